/* SPDX-License-Identifier: MIT */
#include "iov.h"

#include "bytes.h"

#include <string.h>

size_t mdapl_iov_piece(struct mdapl_iov *c, size_t max, void **ptr)
{
    size_t len;

    while (c->n > 0 && c->at == c->v->iov_len) {
        c->v++;
        c->n--;
        c->at = 0;
    }
    *ptr = NULL;
    if (c->n == 0)
        return 0;
    len = c->v->iov_len - c->at;
    if (len > max)
        len = max;
    *ptr = (char *)c->v->iov_base + c->at;
    c->at += len;
    return len;
}

static inline void copy(void *to, const void *from, size_t n)
{
    mdapl_bytes_copy(to, from, n);
}

static inline size_t gather(struct mdapl_iov *c, void *buf, size_t len,
                            void (*by)(void *to, const void *from, size_t n))
{
    size_t done = 0, n;
    void *p;

    while (done < len && (n = mdapl_iov_piece(c, len - done, &p)) > 0) {
        by((char *)buf + done, p, n);
        done += n;
    }
    return done;
}

size_t mdapl_iov_gather(struct mdapl_iov *c, void *buf, size_t len)
{
    return gather(c, buf, len, copy);
}

size_t mdapl_iov_gather_by(struct mdapl_iov *c, void *buf, size_t len,
                           void (*by)(void *to, const void *from, size_t n))
{
    return gather(c, buf, len, by);
}

size_t mdapl_iov_scatter(struct mdapl_iov *c, const void *buf, size_t len)
{
    size_t done = 0, n;
    void *p;

    while (done < len && (n = mdapl_iov_piece(c, len - done, &p)) > 0) {
        copy(p, (const char *)buf + done, n);
        done += n;
    }
    return done;
}

void mdapl_iov_skip_pieces(struct mdapl_iov *c, size_t len)
{
    size_t n;
    void *p;

    while (len > 0 && (n = mdapl_iov_piece(c, len, &p)) > 0)
        len -= n;
}
