/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CLOCK_H
#define MDAPL_CLOCK_H
/*
 * Time as a parameter, so that tests can set it. Nanoseconds since an arbitrary start, monotonic.
 */
#include <stdint.h>

struct mdapl_clock {
    uint64_t (*now)(void *arg);
    void *arg;
};

/* The system's monotonic clock. */
struct mdapl_clock mdapl_clock_system(void);
/* A clock that reads *ns, which the test sets. */
struct mdapl_clock mdapl_clock_manual(uint64_t *ns);

static inline uint64_t mdapl_clock_now(const struct mdapl_clock *c)
{
    return c->now(c->arg);
}

#define MDAPL_US(n) ((uint64_t)(n) * 1000u)
#define MDAPL_MS(n) ((uint64_t)(n) * 1000000u)
#define MDAPL_SEC(n) ((uint64_t)(n) * 1000000000u)

#endif
