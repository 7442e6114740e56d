/* SPDX-License-Identifier: MIT */
/*
 * One copy of a long body, made by both ends. The receiver divides the body into parts and sends
 * the address of its buffer (SPLIT). Then both ends take parts, the receiver from the front and the
 * sender from the back, and copy each by cross-memory attach (cma.c), until all are taken; the
 * sender reports how many of its parts are there (SPLIT_END). A word of the inring has how many
 * each end has taken. So two cores copy if the sender makes progress meanwhile; if it computes, the
 * receiver takes all parts and waits for nothing.
 *
 * Memory orders: a part is copied by the end that has taken it, so the word only has to be atomic.
 * What it is at first is published by SPLIT, the bytes of the sender's parts by SPLIT_END, as
 * messages of a ring (ring.h). A sender that comes too late, when the body is over or the word has
 * been used again, finds another number there and takes nothing.
 */
#include "peer.h"

#include "iov.h"
#include "min.h"
#include "rndv.h"

enum {
    PAGE = 4096,
    PARTS = 16,                  /* of a body, about, */
    LEAST = 16384,               /* of so many bytes each, at least, */
    MOST = 131072,               /* ... and at most: one end may wait for the other's last part */
    COUNT_BITS = 16,             /* of the parts that an end has taken */
};

/* What an end adds to the word to take a part: the number is above both counts. */
static const uint64_t receivers = 1, senders = (uint64_t)1 << COUNT_BITS;

static bool divide(struct mdapl_shm_split *split, uint64_t len)
{
    uint64_t part = (len / PARTS + PAGE - 1) / PAGE * PAGE;

    part = part < LEAST ? LEAST : mdapl_min(part, MOST);
    if (len == 0 || (len + part - 1) / part >= (uint64_t)1 << COUNT_BITS)
        return false;
    split->len = len;
    split->part_len = (uint32_t)part;
    split->parts = (uint32_t)((len + part - 1) / part);
    split->taken = 0;
    return true;
}

bool mdapl_shm_split_begin(struct mdapl_shm_peer *peer, size_t len, struct mdapl_shm_split *split)
{
    uint32_t i = 0;

    while (i < MDAPL_SPLITS && (peer->split_words >> i & 1))
        i++;
    if (i == MDAPL_SPLITS || !divide(split, len))
        return false;
    peer->split_words |= 1u << i;
    split->index = i;
    split->number = ++peer->splits;
    split->word = &peer->rx.in.front->split[i];
    atomic_store_explicit(split->word, (uint64_t)split->number << 2 * COUNT_BITS,
                          memory_order_relaxed);
    return true;
}

void mdapl_shm_split_free(struct mdapl_shm_peer *peer, struct mdapl_shm_split *split)
{
    atomic_store_explicit(split->word, 0, memory_order_relaxed);
    peer->split_words &= ~(1u << split->index);
    split->word = NULL;
}

bool mdapl_shm_split_join(struct mdapl_shm_peer *peer, const struct mdapl_shm_split_at *at,
                          struct mdapl_shm_split *split)
{
    if (at->word >= MDAPL_SPLITS || !divide(split, at->len))
        return false;
    split->number = at->number;
    split->word = &peer->tx.in.front->split[at->word];
    return true;
}

/* Takes the next part. False: all are taken. */
static bool take(struct mdapl_shm_split *split, uint64_t one)
{
    const uint64_t mask = senders - 1;
    uint64_t w = atomic_load_explicit(split->word, memory_order_relaxed);

    do {
        uint64_t taken = (w & mask) + (w >> COUNT_BITS & mask);

        if (w >> 2 * COUNT_BITS != split->number || taken >= split->parts
            || split->taken == split->parts)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(split->word, &w, w + one, memory_order_relaxed,
                                                    memory_order_relaxed));
    split->taken++;
    return true;
}

/* Copies a part between the two cursors, which are at the body's first byte. */
static bool copy(struct mdapl_shm_peer *peer, const struct mdapl_shm_split *split, uint32_t part,
                 struct mdapl_iov here, struct mdapl_iov there, mdapl_shm_cma_move *by)
{
    size_t off = (size_t)part * split->part_len;

    mdapl_iov_skip(&here, off);
    mdapl_iov_skip(&there, off);
    return by(peer, &here, &there, mdapl_min(split->part_len, split->len - off));
}

uint32_t mdapl_shm_split_read(struct mdapl_shm_peer *peer, struct mdapl_shm_split *split,
                              struct mdapl_iov here, struct mdapl_iov there)
{
    uint32_t n = 0;

    while (take(split, receivers)
           && copy(peer, split, split->taken - 1, here, there, mdapl_shm_cma_read))
        n++;
    while (take(split, receivers)) {}    /* after a refusal the sender gets no more of them */
    return n;
}

uint32_t mdapl_shm_split_write(struct mdapl_shm_peer *peer, struct mdapl_shm_split *split,
                               struct mdapl_iov here, struct mdapl_iov there)
{
    uint32_t n = 0;

    while (take(split, senders)
           && copy(peer, split, split->parts - split->taken, here, there, mdapl_shm_cma_write))
        n++;
    return n;
}
