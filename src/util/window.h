/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WINDOW_H
#define MDAPL_WINDOW_H
/*
 * Flow control by absolute limits: the receiver advertises how many frames it allows in total since
 * the connection began, the sender counts what it has transmitted in total. A lost or repeated
 * advertisement does no harm, since the highest limit counts (RFC 9000, 4.1: MAX_DATA). See
 * src/dapl/PROTOCOL for the argument that this does not deadlock.
 */
#include <stdbool.h>
#include <stdint.h>

enum {
    MDAPL_WINDOW_FIRST = 4,      /* slots of a window at the beginning, if it may have them */
    MDAPL_WINDOW_SHORT = 32,     /* ... that it may have in however large a job, and however little
                                  * memory is left for others, if the knob allows them */
};

/* The sending end. */
struct mdapl_txwin {
    uint64_t sent;           /* transmitted, in total */
    uint64_t limit;          /* allowed, in total */
    bool stalled;            /* a frame had to wait; the next one has the flag that says so */
};

/* The receiving end. */
struct mdapl_rxwin {
    uint64_t freed;          /* slots that are free again, in total */
    uint64_t advertised;     /* the limit that was advertised last */
    uint32_t size, most;     /* slots; that it may have */
};

/*
 * Most peers of a large job have few frames under way at once, and answer them; each slot is
 * memory. A window begins with few, and grows to twice its size when a frame had to wait for it, or
 * when it was advertised in a frame of its own, which a larger one needs less often. So it is as
 * large as the way is long, the receiver late and the answers few.
 */
static inline uint32_t mdapl_rxwin_first(uint32_t most)
{
    return most < MDAPL_WINDOW_FIRST ? most : MDAPL_WINDOW_FIRST;
}

/* The window of a new connection, whose first slots are advertised; it may get `most`. */
static inline struct mdapl_rxwin mdapl_rxwin_new(uint32_t first, uint32_t most)
{
    return (struct mdapl_rxwin){ .advertised = first, .size = first, .most = most };
}

/* By how many slots the window is to grow, which the caller adds to `size` one by one as it has the
 * memory. */
static inline uint32_t mdapl_rxwin_growth(const struct mdapl_rxwin *w)
{
    return w->size < w->most - w->size ? w->size : w->most - w->size;
}

/* May another frame be transmitted? reserve: slots beyond the limit that this frame may use. */
static inline bool mdapl_txwin_open(const struct mdapl_txwin *w, uint32_t reserve)
{
    return w->sent < w->limit + reserve;
}

/* How many more frames may be transmitted. */
static inline uint64_t mdapl_txwin_left(const struct mdapl_txwin *w)
{
    return mdapl_txwin_open(w, 0) ? w->limit - w->sent : 0;
}

/* Takes an advertised limit (its low 32 bits); a lower one than before is old and is ignored.
 * Returns whether the window grew. */
bool mdapl_txwin_update(struct mdapl_txwin *w, uint32_t limit);

static inline uint64_t mdapl_rxwin_limit(const struct mdapl_rxwin *w)
{
    return w->freed + w->size;
}

/*
 * Is a frame of its own due to advertise the limit? It is when more than half of the window, which
 * has two slots at least, is not advertised: that frame itself takes a slot, so with one slot per
 * update the two ends would exchange updates for ever.
 */
static inline bool mdapl_rxwin_update_due(const struct mdapl_rxwin *w)
{
    return mdapl_rxwin_limit(w) - w->advertised > w->size / 2;
}

/* Is the window to grow with the update that is sent now? Not yet with those for the connection's
 * own first frames. */
static inline bool mdapl_rxwin_growth_due(const struct mdapl_rxwin *w)
{
    return mdapl_rxwin_update_due(w) && w->freed >= 2 * (uint64_t)w->size;
}

/* The limit (low 32 bits) for a frame that is transmitted now; it counts as advertised. */
uint32_t mdapl_rxwin_advertise(struct mdapl_rxwin *w);

/*
 * Serial numbers. Counters are 64 bits wide in memory and never wrap; the wire carries their low
 * 32 bits (RFC 1982 serial arithmetic). That is enough because a window is far smaller than 2^31
 * and frames of an old connection are discarded before a new one carries any.
 */

/* The full number nearest to `near` whose low 32 bits are `low`. */
static inline uint64_t mdapl_seq_widen(uint64_t near, uint32_t low)
{
    return near + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)near);
}

static inline bool mdapl_seq_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

#endif
