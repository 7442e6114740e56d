/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_IOV_H
#define MDAPL_IOV_H
/* A cursor over an iovec: copies bytes out of, or into, the pieces in their order. And an owned
 * copy of one. */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

struct mdapl_iov {
    const struct iovec *v;   /* not owned */
    int n;                   /* pieces left, the current one included */
    size_t at;               /* offset in the current piece */
};

static inline struct mdapl_iov mdapl_iov_start(const struct iovec *v, int n)
{
    return (struct mdapl_iov){ .v = v, .n = n, .at = 0 };
}

/* Bytes in all of v. */
static inline size_t mdapl_iov_len(const struct iovec *v, int n)
{
    size_t len = 0;

    if (n == 1)                  /* as most are */
        return v->iov_len;
    for (int i = 0; i < n; i++)
        len += v[i].iov_len;
    return len;
}

/* Copies at most len bytes from the cursor to buf (gather) or from buf to the cursor (scatter), and
 * advances the cursor. Returns the bytes copied: less than len only at the end. */
size_t mdapl_iov_gather(struct mdapl_iov *c, void *buf, size_t len);
size_t mdapl_iov_scatter(struct mdapl_iov *c, const void *buf, size_t len);
/* As mdapl_iov_gather(), each piece by a routine that is as memcpy() (bytes.h). */
size_t mdapl_iov_gather_by(struct mdapl_iov *c, void *buf, size_t len,
                           void (*by)(void *to, const void *from, size_t n));
/* Returns the length of the next contiguous piece, at most max bytes, sets *ptr to it and advances
 * the cursor. 0 with *ptr NULL at the end. */
size_t mdapl_iov_piece(struct mdapl_iov *c, size_t max, void **ptr);
/* Advances the cursor by len bytes. */
void mdapl_iov_skip_pieces(struct mdapl_iov *c, size_t len);
static inline void mdapl_iov_skip(struct mdapl_iov *c, size_t len)
{
    if (c->n > 0 && len <= c->v->iov_len - c->at)
        c->at += len;            /* in the current piece, as most do */
    else
        mdapl_iov_skip_pieces(c, len);
}

/*
 * A copy of an iovec, which its holder owns: the list of a body's pieces, not their bytes. Few
 * pieces, as most bodies have, need no memory. It is not moved, as it may point into itself.
 */
enum { MDAPL_PIECES_FEW = 4 };

struct mdapl_pieces {
    struct iovec *v;             /* few[] or allocated */
    int n;
    struct iovec few[MDAPL_PIECES_FEW];
};

/* Makes room for n pieces, which the caller fills. False: out of memory; it may be freed
 * nonetheless. */
static inline bool mdapl_pieces_make(struct mdapl_pieces *p, int n)
{
    p->n = n;
    p->v = n <= MDAPL_PIECES_FEW ? p->few : malloc((size_t)n * sizeof(*p->v));
    return p->v != NULL;
}

/* Copies a list. The same. */
static inline bool mdapl_pieces_copy(struct mdapl_pieces *p, const struct iovec *v, int n)
{
    if (!mdapl_pieces_make(p, n))
        return false;
    if (n == 1)                  /* as most have */
        p->few[0] = v[0];
    else if (n > 0)
        memcpy(p->v, v, (size_t)n * sizeof(*v));
    return true;
}

static inline void mdapl_pieces_free(struct mdapl_pieces *p)
{
    if (p->v != p->few)
        free(p->v);
}

#endif
