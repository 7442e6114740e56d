/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <string.h>

/* -- where payload goes ----------------------------------------------------------------------- */

void softdat_sink_start(struct softdat_sink *s, size_t len)
{
    *s = (struct softdat_sink){ .left = len };
}

void softdat_sink_add(struct softdat_sink *s, void *base, size_t len)
{
    if (len > 0)
        s->iov[s->n++] = (struct iovec){ base, len };
}

void softdat_sink_advance(struct softdat_sink *s, size_t n)
{
    s->left -= n;
    if (s->discard)
        return;
    while (n > 0) {
        struct iovec *v = &s->iov[s->at];
        size_t step = n < v->iov_len ? n : v->iov_len;

        v->iov_base = (char *)v->iov_base + step;
        v->iov_len -= step;
        n -= step;
        if (v->iov_len == 0)
            s->at++;
    }
}

void softdat_sink_copy(struct softdat_sink *s, const uint8_t *from, size_t n)
{
    while (n > 0 && s->left > 0) {
        size_t step = n < s->left ? n : s->left;

        if (!s->discard) {
            if (step > s->iov[s->at].iov_len)
                step = s->iov[s->at].iov_len;
            memcpy(s->iov[s->at].iov_base, from, step);
        }
        softdat_sink_advance(s, step);
        from += step;
        n -= step;
    }
}

void softdat_sink_into(struct softdat_sink *s, const struct softdat_dto *d, size_t len)
{
    softdat_sink_start(s, len);
    for (int i = 0; i < d->n_seg && len > 0; i++) {
        size_t n = d->seg[i].len < len ? d->seg[i].len : len;

        softdat_sink_add(s, d->seg[i].at, n);
        len -= n;
    }
}

/* -- the last word of an RDMA write ----------------------------------------------------------- */

/*
 * Whoever polls memory for an RDMA write looks at its last word, so that word must become visible
 * last (UDAPL.md E1). The payload from the last 8-byte boundary on is kept aside and stored, in
 * naturally aligned pieces, the last with release order, when everything before it has landed.
 */
size_t softdat_tail_of(uint64_t addr, size_t len)
{
    uint64_t last = (addr + len - 1) & ~(uint64_t)7;

    return len == 0 ? 0 : (size_t)(addr + len - (last > addr ? last : addr));
}

static void store_piece(uint8_t *to, const uint8_t *from, size_t size)
{
    uint64_t v8;
    uint32_t v4;
    uint16_t v2;

    if (size == 8) {
        memcpy(&v8, from, 8);
        atomic_store_explicit((_Atomic uint64_t *)(void *)to, v8, memory_order_release);
    } else if (size == 4) {
        memcpy(&v4, from, 4);
        atomic_store_explicit((_Atomic uint32_t *)(void *)to, v4, memory_order_release);
    } else if (size == 2) {
        memcpy(&v2, from, 2);
        atomic_store_explicit((_Atomic uint16_t *)(void *)to, v2, memory_order_release);
    } else {
        atomic_store_explicit((_Atomic uint8_t *)to, *from, memory_order_release);
    }
}

void softdat_store_tail(uint64_t addr, const uint8_t *from, size_t len)
{
    size_t done = 0;

    while (done < len) {
        uint64_t at = addr + done;
        size_t size = 8;

        while (size > len - done || at % size)
            size /= 2;
        store_piece((uint8_t *)(uintptr_t)at, from + done, size);
        done += size;
    }
}
