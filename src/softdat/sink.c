/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <string.h>

/* -- the destination of payload --------------------------------------------------------------- */

/* Consumes at most n bytes of the current iov entry. Returns their number, and their start in
 * *base_p. */
static size_t consume_piece(struct softdat_sink *s, size_t n, void **base_p)
{
    struct iovec *v = &s->iov[s->at];

    *base_p = v->iov_base;
    if (n >= v->iov_len) {
        s->at++;
        return v->iov_len;
    }
    v->iov_base = (char *)v->iov_base + n;
    v->iov_len -= n;
    return n;
}

void softdat_sink_advance(struct softdat_sink *s, size_t n)
{
    void *base;

    s->left -= n;
    while (n > 0 && !s->discard)
        n -= consume_piece(s, n, &base);
}

void softdat_sink_copy(struct softdat_sink *s, const uint8_t *from, size_t n)
{
    void *base;

    s->left -= n;
    while (n > 0 && !s->discard) {
        size_t step = consume_piece(s, n, &base);

        memcpy(base, from, step);
        from += step;
        n -= step;
    }
}

int softdat_iov_prefix(const struct iovec *v, int n, size_t max, struct iovec *out)
{
    int i;

    for (i = 0; i < n && max > 0; i++) {
        out[i] = v[i];
        if (out[i].iov_len > max)
            out[i].iov_len = max;
        max -= out[i].iov_len;
    }
    return i;
}

void softdat_iov_step(struct iovec **v, int *n_v, size_t n)
{
    while (*n_v > 0 && n >= (*v)->iov_len) {
        n -= (*v)->iov_len;
        ++*v;
        --*n_v;
    }
    if (n > 0) {
        (*v)->iov_base = (char *)(*v)->iov_base + n;
        (*v)->iov_len -= n;
    }
}

/* -- the last word of an RDMA write ----------------------------------------------------------- */

/*
 * A consumer that polls memory for an RDMA write reads its last word, as adapters write in address
 * order; so that word must become visible last. The payload from the last 8-byte boundary on is
 * received into a buffer and stored, in naturally aligned pieces with release order, after
 * everything before it.
 */
size_t softdat_tail_len(uint64_t addr, size_t len)
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
