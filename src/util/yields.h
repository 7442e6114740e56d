/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_YIELDS_H
#define MDAPL_YIELDS_H
/*
 * How often a waiting rank that shares its core yields it before it sleeps.
 *
 * A yield costs less than a sleep with its wake-up, and while other ranks run several messages may
 * arrive for one round. It brings nothing where what the rank waits for takes long, nor where the
 * scheduler returns from it at once: Linux yields only within an autogroup, which is a session, and
 * some launchers make a session for each rank. And it does harm where a program that computes gets
 * the core, for a sleeper that is woken goes before such a program, one that has yielded behind it.
 * So the number follows what the yields bring.
 */
#include <stdint.h>

enum {
    MDAPL_YIELDS_FIRST = 4,      /* in the first wait */
    MDAPL_YIELDS_MOST = 64,      /* in one wait */
    MDAPL_YIELDS_PAUSE = 64,     /* waits without any, before one yield is tried again */
    MDAPL_YIELDS_LONG_US = 2000, /* a program computes on this core; many ranks that exchange
                                  * messages have it for less, together */
};

struct mdapl_yields {
    int allowed;                 /* in one wait */
    int pause;                   /* waits until one is tried again; 0: no pause */
};

static inline void mdapl_yields_init(struct mdapl_yields *y)
{
    *y = (struct mdapl_yields){ .allowed = MDAPL_YIELDS_FIRST };
}

/* Something arrived in a wait that had yielded and not slept. */
static inline void mdapl_yields_paid(struct mdapl_yields *y)
{
    y->allowed = y->allowed < MDAPL_YIELDS_MOST / 2 ? 2 * y->allowed : MDAPL_YIELDS_MOST;
}

/* A wait without result so far has made all its yields, and the rank sleeps now. */
static inline void mdapl_yields_spent(struct mdapl_yields *y)
{
    if (y->pause > 0 && --y->pause == 0)
        y->allowed = 1;
    else if (y->pause == 0 && (y->allowed /= 2) == 0)
        y->pause = MDAPL_YIELDS_PAUSE;
}

/* A yield took so many nanoseconds. */
static inline void mdapl_yields_took(struct mdapl_yields *y, uint64_t ns)
{
    if (ns < MDAPL_YIELDS_LONG_US * (uint64_t)1000)
        return;
    y->allowed = 0;
    y->pause = MDAPL_YIELDS_PAUSE;
}

#endif
