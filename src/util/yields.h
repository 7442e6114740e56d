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
 * such a program, one that has yielded behind it. So long yields are followed by a pause of some
 * waits without any, and the pause doubles while they go on.
 *
 * But ranks that are busy themselves make yields long, too: all of them touch new memory at first.
 * A pause does harm then, as a yield among ranks that sleep and wake takes longest, and is taken
 * for another reason to pause: a job of many ranks stayed slow for good. Two things distinguish a
 * program that computes. The ranks of a job do much the same, so a yield is long only if the other
 * ranks of the core, each for twice as long as this one has just run, would not need so much. And
 * beside a program every second or third yield is long, as after its slice the scheduler prefers
 * the ranks for a while, so there is no pause while few of the yields are.
 *
 * Nor does a pause pay where a yield brings messages of many ranks: a sleep ends with the first of
 * them, so that all ranks would be woken for each one.
 */
#include "min.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MDAPL_YIELDS = 64,           /* in one wait */
    MDAPL_YIELDS_ALONE = 200,    /* the same, of a rank with a core of its own that does not spin */
    MDAPL_YIELDS_FEW = 4,        /* waits of the first pause */
    MDAPL_YIELDS_PAUSE = 1024,   /* ... of the longest */
    MDAPL_YIELDS_RANK_US = 100,  /* many times what a rank needs to take a message and answer it */
    MDAPL_YIELDS_BUSY_US = 500,  /* what one that is busy between two waits needs, at most */
    MDAPL_YIELDS_WAKE_US = 20,   /* what a sleep costs a rank and the one that ends it */
    MDAPL_YIELDS_RANKS = 4,      /* on a core, at least: the system does something now and then */
    MDAPL_YIELDS_LONG = 10,      /* short yields that outweigh a long one */
    MDAPL_YIELDS_SURE = 3 * MDAPL_YIELDS_LONG - 5,    /* so many more are long: it is a program */
};

struct mdapl_yields {
    uint64_t ranks;              /* on this core */
    uint64_t end;                /* of the last yield, ns; 0: the rank has slept since */
    uint64_t busy;               /* ns that it ran between two yields, of late */
    uint64_t brought;            /* messages after a yield, of late; one of each rank counts */
    int score;                   /* long yields of late, each as LONG short ones */
    int pause;                   /* length of the last one, less what yields have shortened it */
    int left;                    /* waits of it that are left */
};

/* ranks: that share the core. */
static inline void mdapl_yields_init(struct mdapl_yields *y, int ranks)
{
    uint64_t all = (uint64_t)(ranks > MDAPL_YIELDS_RANKS ? ranks : MDAPL_YIELDS_RANKS);

    *y = (struct mdapl_yields){ .ranks = all };
}

/* In this wait. */
static inline int mdapl_yields_allowed(const struct mdapl_yields *y)
{
    return y->left > 0 ? 0 : MDAPL_YIELDS;
}

/* A wait without result so far has made all its yields, and the rank sleeps now. */
static inline void mdapl_yields_spent(struct mdapl_yields *y)
{
    y->end = 0;
    if (y->left > 0)
        y->left--;
}

/* A round found so many messages. It counts if the rank has not slept since its last yield. */
static inline void mdapl_yields_brought(struct mdapl_yields *y, int messages)
{
    if (y->end == 0)
        return;
    y->brought -= y->brought / 4;
    y->brought = mdapl_min(mdapl_max((uint64_t)messages, y->brought), y->ranks);
}

/* Is a yield of so many nanoseconds longer than ranks make it, and than their wake-ups would
 * take? */
static inline bool mdapl_yields_is_long(const struct mdapl_yields *y, uint64_t ns)
{
    uint64_t us = mdapl_max(2 * y->busy / 1000, y->brought * MDAPL_YIELDS_WAKE_US);

    us = mdapl_min(mdapl_max(us, MDAPL_YIELDS_RANK_US), MDAPL_YIELDS_BUSY_US);
    return ns >= y->ranks * us * 1000;
}

/* A yield lasted from begin to end, ns. */
static inline void mdapl_yields_took(struct mdapl_yields *y, uint64_t begin, uint64_t end)
{
    uint64_t ran = y->end ? begin - y->end : 0;

    y->busy -= y->busy / 4;
    y->busy = ran > y->busy ? ran : y->busy;
    y->end = end;
    if (!mdapl_yields_is_long(y, end - begin)) {
        y->score -= y->score > 0;
        y->pause -= y->pause > 0;
        return;
    }
    if (y->score < MDAPL_YIELDS_SURE)
        y->score += MDAPL_YIELDS_LONG;
    if (y->score < MDAPL_YIELDS_SURE)
        return;
    y->pause = 2 * y->pause + MDAPL_YIELDS_FEW;
    if (y->pause > MDAPL_YIELDS_PAUSE)
        y->pause = MDAPL_YIELDS_PAUSE;
    y->left = y->pause;
}

#endif
