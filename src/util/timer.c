/* SPDX-License-Identifier: MIT */
#include "timer.h"

static struct mdapl_timer *timer_of(struct mdapl_list *l)
{
    return MDAPL_OF(l, struct mdapl_timer, link);
}

void mdapl_timers_init(struct mdapl_timers *s)
{
    mdapl_list_init(&s->queue);
}

void mdapl_timer_init(struct mdapl_timer *t, void (*fire)(struct mdapl_timer *t))
{
    mdapl_list_init(&t->link);
    t->due = 0;
    t->fire = fire;
}

void mdapl_timer_set(struct mdapl_timers *s, struct mdapl_timer *t, uint64_t due)
{
    struct mdapl_list *at;

    mdapl_list_remove(&t->link);
    t->due = due;
    /* From the end: of many that are set at one time each is due later than most. */
    at = s->queue.prev;
    while (at != &s->queue && timer_of(at)->due > due)
        at = at->prev;
    mdapl_list_before(at->next, &t->link);
}

void mdapl_timer_stop(struct mdapl_timer *t)
{
    mdapl_list_remove(&t->link);
}

int mdapl_timers_run(struct mdapl_timers *s, uint64_t now)
{
    struct mdapl_list *l;
    int n = 0;

    while ((l = mdapl_list_first(&s->queue)) && timer_of(l)->due <= now) {
        mdapl_list_remove(l);
        timer_of(l)->fire(timer_of(l));
        n++;
    }
    return n;
}

uint64_t mdapl_timers_next(const struct mdapl_timers *s)
{
    struct mdapl_list *l = mdapl_list_first(&s->queue);

    return l ? timer_of(l)->due : UINT64_MAX;
}
