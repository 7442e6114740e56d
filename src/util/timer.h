/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TIMER_H
#define MDAPL_TIMER_H
/*
 * Deadlines. A timer is embedded in its object and fires once, from mdapl_timers_run() only. The
 * set is a list in the order of their deadlines: there are few (connections being made), and the
 * check for "nothing due" is one comparison.
 */
#include "list.h"
#include <stdint.h>

struct mdapl_timer {
    struct mdapl_list link;
    uint64_t due;            /* ns on the set's clock */
    void (*fire)(struct mdapl_timer *t);
};

struct mdapl_timers {
    struct mdapl_list queue;
};

void mdapl_timers_init(struct mdapl_timers *s);
void mdapl_timer_init(struct mdapl_timer *t, void (*fire)(struct mdapl_timer *t));
/* Arms the timer, or moves it when it is armed. */
void mdapl_timer_set(struct mdapl_timers *s, struct mdapl_timer *t, uint64_t due);
void mdapl_timer_stop(struct mdapl_timer *t);
/* Fires all that are due at now. Returns how many fired. */
int mdapl_timers_run(struct mdapl_timers *s, uint64_t now);
/* The next deadline in ns on the set's clock, UINT64_MAX when there is none. */
uint64_t mdapl_timers_next(const struct mdapl_timers *s);

#endif
