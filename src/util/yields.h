/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_YIELDS_H
#define MDAPL_YIELDS_H
/*
 * How often a waiting rank that shares its core yields it before it sleeps.
 *
 * A yield costs less than a sleep with its wake-up, and while other ranks run several messages may
 * arrive for one round. Ranks that yield keep each other from sleeping: where some have begun to
 * sleep the others' yields bring less, so that it does not pay to reduce their number when they
 * brought nothing, and what is wasted then is a fraction of a millisecond for a wait.
 *
 * It does harm where a program that computes gets the core, for a sleeper that is woken goes before
 * such a program, one that has yielded behind it: a yield that took longer than the other ranks on
 * the core need is followed by a pause of some waits without any. Ranks that touch new memory may
 * need as long, together, so the first pause is short and each further one twice as long. After
 * such a slice the scheduler prefers the ranks for a while: some yields are short then, and each of
 * them makes the next pause shorter by one wait only.
 */
#include <stdint.h>

enum {
    MDAPL_YIELDS = 64,           /* in one wait */
    MDAPL_YIELDS_ALONE = 200,    /* the same, of a rank with a core of its own that does not spin */
    MDAPL_YIELDS_FEW = 4,        /* waits of the first pause */
    MDAPL_YIELDS_PAUSE = 1024,   /* ... of the longest */
    MDAPL_YIELDS_RANK_US = 100,  /* many times what a rank needs to take a message and answer it */
    MDAPL_YIELDS_RANKS = 4,      /* on a core, at least: the system does something now and then */
};

struct mdapl_yields {
    uint64_t long_ns;            /* a yield that takes so long is a long one */
    int pause;                   /* length of the last one, less what yields have shortened it */
    int left;                    /* waits of it that are left */
};

/* ranks: that share the core. */
static inline void mdapl_yields_init(struct mdapl_yields *y, int ranks)
{
    uint64_t all = (uint64_t)(ranks > MDAPL_YIELDS_RANKS ? ranks : MDAPL_YIELDS_RANKS);

    *y = (struct mdapl_yields){ .long_ns = all * MDAPL_YIELDS_RANK_US * 1000 };
}

/* In this wait. */
static inline int mdapl_yields_allowed(const struct mdapl_yields *y)
{
    return y->left > 0 ? 0 : MDAPL_YIELDS;
}

/* A wait without result so far has made all its yields, and the rank sleeps now. */
static inline void mdapl_yields_spent(struct mdapl_yields *y)
{
    if (y->left > 0)
        y->left--;
}

/* A yield took so many nanoseconds. */
static inline void mdapl_yields_took(struct mdapl_yields *y, uint64_t ns)
{
    if (ns < y->long_ns) {
        y->pause -= y->pause > 0;
        return;
    }
    y->pause = 2 * y->pause + MDAPL_YIELDS_FEW;
    if (y->pause > MDAPL_YIELDS_PAUSE)
        y->pause = MDAPL_YIELDS_PAUSE;
    y->left = y->pause;
}

#endif
