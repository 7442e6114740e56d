/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TIMER_H
#define MDAPL_TIMER_H
/*
 * Timers. A timer is embedded in its object and fires once, during mdapl_timers_run(). The set is a
 * list in the order of deadlines, because there are few (connections being established), and a
 * check that no timer is due is one comparison.
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
/* Arms the timer for `due`, ns on the set's clock; changes the deadline of an armed one. */
void mdapl_timer_set(struct mdapl_timers *s, struct mdapl_timer *t, uint64_t due);
void mdapl_timer_stop(struct mdapl_timer *t);
/* Fires all timers that are due at `now`. Returns how many. */
int mdapl_timers_run(struct mdapl_timers *s, uint64_t now);
/* The next deadline, ns on the set's clock; UINT64_MAX: no timer is armed. */
uint64_t mdapl_timers_next(const struct mdapl_timers *s);

#endif
