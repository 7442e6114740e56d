/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_VBUF_H
#define MDAPL_VBUF_H
/*
 * Frame buffers: memory for one frame each, in chunks. Each rail has a pool of its own, registered
 * on that rail, for its receives and for the frames that its streams transmit. A vbuf is in one of
 * these hands at a time:
 *
 *      free list -> peer (being filled) -> posted and retained -> retained -> free list
 *                                      \-> posted -------------------------/
 *      free list -> posted for receiving -> being read -> posted again
 *
 * A short frame is in a small part of its own, of which a page has many: frames are retained for
 * each peer, receives are posted for each, and most frames are short. The rest of its buffer is not
 * touched. So a receive has two segments: the small part, and what a longer frame needs.
 *
 * `posted` and `retained` are independent: the adapter may take longer than the peer's
 * acknowledgement and the other way round. mdapl_dapl_vbuf_put() drops one of the two holds.
 */
#include "ia.h"
#include "list.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct mdapl_dapl_conn;
struct mdapl_dapl_regcache;

enum {
    MDAPL_VBUF_BEHIND = 16,  /* room behind a frame for the last word of the ring lane */
    MDAPL_VBUF_SMALL = 256,  /* bytes of the small part of a buffer, with that room */
    MDAPL_VBUF_SEGS = 2,     /* segments of a receive at most */
    MDAPL_VBUF_RESERVE = 4,  /* buffers that each use leaves for those before it */
};

/*
 * What a buffer is for. The last few are reserved for the first uses, so that all come to their end
 * when the adapter takes no more memory: acknowledgements make peers release buffers, frames make
 * them release registrations, and what receives take stays taken for as long as the connection.
 */
enum mdapl_dapl_vbuf_use { MDAPL_VBUF_ACK, MDAPL_VBUF_FRAME, MDAPL_VBUF_RECEIVE };

struct mdapl_dapl_vbuf {
    struct mdapl_dapl_dto dto; /* when posted */
    struct mdapl_list link;  /* free, or retained by a peer */
    uint8_t *data;           /* the frame: whole or small */
    uint8_t *whole, *small;  /* small: the same where registrations are short */
    struct mdapl_dapl_vbufs *pool; /* its rail's */
    DAT_LMR_CONTEXT key;     /* of its chunk, on that rail */
    const struct mdapl_dapl_conn *carrier; /* while retained: which transmitted it last; NULL: that
                                            * connection has ended, and it is to be sent again */
    uint32_t psn;            /* of the frame in it (low 32 bits), while retained */
    uint32_t len;            /* bytes of the frame in it */
    int holds;
};

struct mdapl_dapl_vbufs {
    struct mdapl_dapl_ia *ia;
    struct mdapl_dapl_regcache *regs; /* unused registrations in it are evicted for chunks */
    uint32_t size;           /* bytes of one frame */
    int n_chunks;
    bool refused;            /* no memory was to be had for the last chunk */
    uint32_t n_free;
    uint32_t n_promised;     /* of these: for the receives of connections that follow broken ones */
    uint32_t n_unsignaled;   /* posted, and their completion makes no event of its own (ep.c) */
    struct mdapl_list free;
    struct mdapl_list chunks;
};

/* The pool of a rail. size: bytes of one frame. */
void mdapl_dapl_vbufs_init(struct mdapl_dapl_vbufs *v, struct mdapl_dapl_ia *ia,
                           struct mdapl_dapl_regcache *regs, uint32_t size);
/* The rail has been opened again: registers the pool's chunks there. False: it refuses. */
bool mdapl_dapl_vbufs_register_again(struct mdapl_dapl_vbufs *v);
void mdapl_dapl_vbufs_fini(struct mdapl_dapl_vbufs *v);
/* How many there are for this use, before more memory is registered. */
static inline uint32_t mdapl_dapl_vbufs_for(const struct mdapl_dapl_vbufs *v,
                                            enum mdapl_dapl_vbuf_use use)
{
    uint32_t kept = use == MDAPL_VBUF_ACK ? 0 : use * MDAPL_VBUF_RESERVE + v->n_promised;

    return v->n_free > kept ? v->n_free - kept : 0;
}
/* Registers memory until there are more than n. False: it is refused. */
bool mdapl_dapl_vbufs_grow_slow(struct mdapl_dapl_vbufs *v, enum mdapl_dapl_vbuf_use use,
                                uint32_t n);
static inline bool mdapl_dapl_vbufs_grow(struct mdapl_dapl_vbufs *v, enum mdapl_dapl_vbuf_use use,
                                         uint32_t n)
{
    return mdapl_dapl_vbufs_for(v, use) > n || mdapl_dapl_vbufs_grow_slow(v, use, n);
}
/* A buffer with one hold, whose `data` is to be chosen, or NULL if memory or registrations are
 * exhausted. */
static inline struct mdapl_dapl_vbuf *mdapl_dapl_vbuf_get(struct mdapl_dapl_vbufs *v,
                                                          enum mdapl_dapl_vbuf_use use)
{
    struct mdapl_dapl_vbuf *b;

    if (!mdapl_dapl_vbufs_grow(v, use, 0))
        return NULL;
    b = MDAPL_OF(mdapl_list_take(&v->free), struct mdapl_dapl_vbuf, link);
    v->n_free--;
    b->holds = 1;
    return b;
}
/* Chooses where in b a frame of at most len bytes is. */
static inline void mdapl_dapl_vbuf_choose(struct mdapl_dapl_vbuf *b, size_t len)
{
    b->data = len <= MDAPL_VBUF_SMALL - MDAPL_VBUF_BEHIND ? b->small : b->whole;
}

/* The segments of a receive into b, for a frame of the pool's size. Returns how many they are. */
int mdapl_dapl_vbuf_recv_segs(struct mdapl_dapl_vbuf *b, DAT_LMR_TRIPLET seg[MDAPL_VBUF_SEGS]);
/* A frame of len bytes has arrived in these segments: from here on all of it is at b->data. */
static inline void mdapl_dapl_vbuf_arrived(struct mdapl_dapl_vbuf *b, size_t len)
{
    if (len > MDAPL_VBUF_SMALL && b->data != b->whole)
        b->data = memcpy(b->whole, b->small, MDAPL_VBUF_SMALL);
}

/* Drops one hold; the last one frees the buffer. */
void mdapl_dapl_vbuf_put(struct mdapl_dapl_vbufs *v, struct mdapl_dapl_vbuf *b);

/* The DAT description of its first len bytes, for its rail. */
static inline DAT_LMR_TRIPLET mdapl_dapl_vbuf_seg(const struct mdapl_dapl_vbuf *b, uint32_t len)
{
    return (DAT_LMR_TRIPLET){ .virtual_address = (DAT_VADDR)(uintptr_t)b->data,
                              .segment_length = len,
                              .lmr_context = b->key };
}

#endif
