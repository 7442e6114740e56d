/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WINDOW_H
#define MDAPL_WINDOW_H
/*
 * Flow control by absolute limits: the receiver says how many it allows ever, the sender counts
 * how many it has sent ever. A lost or repeated announcement costs nothing, since only the
 * highest limit counts (the idea of QUIC's MAX_DATA). See src/dapl/PROTOCOL for the argument
 * that this does not deadlock.
 */
#include <stdbool.h>
#include <stdint.h>

/* The sending end. */
struct mdapl_txwin {
    uint64_t sent;           /* how many have left, ever */
    uint64_t limit;          /* how many may leave, ever */
};

/* The receiving end. */
struct mdapl_rxwin {
    uint64_t freed;          /* how many slots have been given back, ever */
    uint64_t told;           /* the limit that the peer has been told last */
    uint32_t size;           /* slots */
};

/* May another one leave, with `reserve` slots more than the limit for those who may use them? */
static inline bool mdapl_txwin_open(const struct mdapl_txwin *w, uint32_t reserve)
{
    return w->sent < w->limit + reserve;
}

/* A limit has been heard, its low 32 bits. Limits never go back. True when the window grew. */
bool mdapl_txwin_hear(struct mdapl_txwin *w, uint32_t limit);

static inline uint64_t mdapl_rxwin_limit(const struct mdapl_rxwin *w)
{
    return w->freed + w->size;
}

/*
 * Is so much of the window unknown to the peer that it deserves a frame of its own? Half of it,
 * and at least two: the frame that tells takes a slot itself, and with one for one the two ends
 * would tell each other of nothing but their telling for ever.
 */
static inline bool mdapl_rxwin_owes(const struct mdapl_rxwin *w)
{
    uint32_t half = (w->size + 1) / 2;

    return mdapl_rxwin_limit(w) - w->told >= (half > 2 ? half : 2);
}

/* The limit to put into a frame that leaves now (low 32 bits); remembered as told. */
uint32_t mdapl_rxwin_tell(struct mdapl_rxwin *w);

#endif
