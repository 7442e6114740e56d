/* SPDX-License-Identifier: MIT */
#include "rails.h"

#include "channel.h"
#include "clock.h"
#include "ia.h"
#include "min.h"

#include <stdio.h>
#include <time.h>

void mdapl_dapl_rails_init(struct mdapl_dapl_rails *rails)
{
    *rails = (struct mdapl_dapl_rails){ .n = 0 };
    pthread_mutex_init(&rails->alarm.lock, NULL);
}

void mdapl_dapl_rails_names(const struct mdapl_dapl_rails *rails, char *buf, size_t len)
{
    size_t n = 0;

    *buf = '\0';
    for (int i = 0; i < rails->n && n < len; i++)
        n += (size_t)snprintf(buf + n, len - n, "%s%s", i ? "," : "", rails->ia[i]->name);
}

uint32_t mdapl_dapl_rails_ports(const struct mdapl_dapl_rails *rails)
{
    uint32_t most = 0;

    for (int i = 0; i < rails->n; i++)
        if (rails->ia[i]->max.ports > most)
            most = rails->ia[i]->max.ports;
    return most;
}

/* Lowers each limit to that of another rail if that is lower. */
static struct mdapl_dapl_ia_limits least_of(struct mdapl_dapl_ia_limits a,
                                            const struct mdapl_dapl_ia_limits *b)
{
    return (struct mdapl_dapl_ia_limits){
        .dtos = (uint32_t)mdapl_min(a.dtos, b->dtos),
        .reads = (uint32_t)mdapl_min(a.reads, b->reads),
        .reads_in = (uint32_t)mdapl_min(a.reads_in, b->reads_in),
        .window = (uint32_t)mdapl_min(a.window, b->window),
        .requests = (uint32_t)mdapl_min(a.requests, b->requests),
        .evd_qlen = (uint32_t)mdapl_min(a.evd_qlen, b->evd_qlen),
        .priv = (uint32_t)mdapl_min(a.priv, b->priv),
        .message = mdapl_min(a.message, b->message),
        .rdma = mdapl_min(a.rdma, b->rdma),
        .lmr = mdapl_min(a.lmr, b->lmr),
        .lmrs = (uint32_t)mdapl_min(a.lmrs, b->lmrs),
        .ports = (uint32_t)mdapl_min(a.ports, b->ports),
        .ordered = a.ordered && b->ordered,
        .placed = a.placed && b->placed,
    };
}

/* Does anything but an event of the rail on which a thread sleeps end that sleep? */
static bool needs_alarm(const struct mdapl_dapl_rails *rails)
{
    return rails->n > 1 || (rails->n > 0 && mdapl_ctx_threaded(rails->ia[0]->ctx));
}

int mdapl_dapl_rails_start(struct mdapl_dapl_rails *rails)
{
    int rc = 0;

    for (int i = 0; i < rails->n; i++)
        rails->max = i ? least_of(rails->max, &rails->ia[i]->max) : rails->ia[i]->max;
    rails->lmr_max = rails->max.lmr;
    for (int i = 0; !rc && needs_alarm(rails) && i < rails->n; i++)
        rc = mdapl_dapl_ia_make_alarm(rails->ia[i]);
    return rc;
}

void mdapl_dapl_rails_close(struct mdapl_dapl_rails *rails)
{
    for (int i = 0; i < rails->n; i++)
        mdapl_dapl_ia_close(rails->ia[i]);
    pthread_mutex_destroy(&rails->alarm.lock);
}

unsigned mdapl_dapl_usable_rails(const struct mdapl_dapl_rails *rails, int n)
{
    unsigned set = 0;

    for (int i = 0; i < n; i++)
        if (mdapl_dapl_rail_usable(rails->ia[i]))
            set |= 1u << i;
    return set;
}

/* -- sleeping --------------------------------------------------------------------------------- */

/* The agent: a rail on which no thread sleeps has an event. Called by a thread of its provider. */
static void wake_sleeper(DAT_PVOID arg, DAT_EVD_HANDLE evd)
{
    struct mdapl_dapl_alarm *alarm = arg;

    (void)evd;
    pthread_mutex_lock(&alarm->lock);
    if (alarm->asleep_on)
        mdapl_dapl_evd_alarm(alarm->asleep_on);
    pthread_mutex_unlock(&alarm->lock);
}

static void sleep_on(struct mdapl_dapl_alarm *alarm, const struct mdapl_dapl_ia *ia)
{
    pthread_mutex_lock(&alarm->lock);
    alarm->asleep_on = ia;
    pthread_mutex_unlock(&alarm->lock);
}

static struct mdapl_dapl_ia *any_usable(const struct mdapl_dapl_rails *rails)
{
    for (int i = 0; i < rails->n; i++)
        if (mdapl_dapl_rail_usable(rails->ia[i]))
            return rails->ia[i];
    return NULL;
}

/* No rail is open: the next attempt to open one is due before long. */
static void sleep_briefly(struct mdapl_ctx *ctx, uint64_t ns)
{
    struct timespec t = { .tv_nsec = (long)mdapl_min(ns, MDAPL_MS(1)) };

    mdapl_ctx_sleep_begin(ctx);
    nanosleep(&t, NULL);
    mdapl_ctx_sleep_end(ctx);
}

/* The owner's other threads may use the rails meanwhile. */
static void sleep_in(struct mdapl_dapl_ia *ia, uint64_t ns)
{
    ia->asleep = true;
    mdapl_ctx_sleep_begin(ia->ctx);
    mdapl_dapl_evd_sleep(ia, ns);
    mdapl_ctx_sleep_end(ia->ctx);
    ia->asleep = false;
}

void mdapl_dapl_rails_wake(struct mdapl_dapl_rails *rails)
{
    wake_sleeper(&rails->alarm, DAT_HANDLE_NULL);
}

void mdapl_dapl_rails_wait(struct mdapl_dapl_rails *rails, uint64_t ns)
{
    const DAT_OS_WAIT_PROXY_AGENT agent = { &rails->alarm, wake_sleeper };
    struct mdapl_dapl_ia *sleeper = any_usable(rails);
    bool no_event = sleeper != NULL;

    sleep_on(&rails->alarm, sleeper);
    for (int i = 0; i < rails->n; i++)
        if (mdapl_dapl_rail_usable(rails->ia[i]))
            no_event = mdapl_dapl_evd_arm(rails->ia[i], rails->ia[i] == sleeper ? NULL : &agent)
                       && no_event;
    if (no_event)
        sleep_in(sleeper, ns);
    else if (!sleeper)
        sleep_briefly(rails->ia[0]->ctx, ns);
    sleep_on(&rails->alarm, NULL);
    for (int i = 0; i < rails->n; i++)
        if (mdapl_dapl_rail_usable(rails->ia[i]))
            mdapl_dapl_evd_disarm(rails->ia[i]);
}
