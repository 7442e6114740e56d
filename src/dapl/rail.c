/* SPDX-License-Identifier: MIT */
#include "ia.h"

#include "cfg.h"
#include "cm.h"
#include "cm_report.h"
#include "cm_time.h"
#include "conn.h"
#include "err.h"
#include "log.h"
#include "min.h"
#include "peer.h"
#include "stats.h"

#include <errno.h>
#include <stdio.h>

enum {
    CLOSE_MS = 2000,         /* a rail that the provider does not close is abandoned then */
    CLOSE_PAUSE_MS = 10,     /* between two attempts to close it */
    OPEN_PAUSE_MS = 10,      /* after the first attempt to open it that failed; it doubles, */
    OPEN_DOUBLINGS = 7,      /* so many times */
    SHARE = 10,              /* dat_ia_open() may block: one of so many parts of the time at most */
};

/* -- going down -------------------------------------------------------------------------------- */

/* Calls f for each stream of the rail. */
static void each_stream(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia,
                        void (*f)(struct mdapl_dapl_stream *st))
{
    for (struct mdapl_dapl_peer *p = NULL; (p = mdapl_dapl_peer_next(d, p));)
        for (int i = 0; i < p->n_streams; i++)
            if (p->stream[i].ia == ia)
                f(&p->stream[i]);
}

static void end_stream(struct mdapl_dapl_stream *st)
{
    mdapl_dapl_cm_rail_down(st, st->ia->down.cause);
}

/* The rail is not opened again, or not in time: the peer is lost. */
static void give_up(struct mdapl_dapl_stream *st)
{
    mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
        .kind = MDAPL_DAPL_FAULT_IA, .stream = st->index, .text = st->ia->down.cause->text });
}

/* Is it to be opened again? */
static bool is_reopened(const struct mdapl_dapl_chan *d)
{
    return mdapl_ctx_cfg(d->ctx)->ft == MDAPL_FT_ON;
}

void mdapl_dapl_rail_fail(struct mdapl_dapl_chan *d, struct mdapl_dapl_ia *ia,
                          const struct mdapl_dapl_cm_cause *cause)
{
    struct mdapl_dapl_rail_down *down = &ia->down;
    uint64_t now = mdapl_ctx_now(d->ctx);

    if (!mdapl_dapl_rail_usable(ia))
        return;
    mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_FATAL);
    ia->calls_fail = false;
    down->cause = cause;
    down->since = down->open_at = now;
    down->attempts = 0;
    *down->why = '\0';
    if (!is_reopened(d) && !d->failed)           /* ends a wiring in progress */
        d->failed = mdapl_err_set(mdapl_ctx_err(d->ctx), -EIO, "IA %s: %s. %s", ia->name,
                                  cause->text, cause->advice);
    each_stream(d, ia, end_stream);
    if (!is_reopened(d))
        each_stream(d, ia, give_up);
    /* Not here: events of its queues are being handled. */
    mdapl_timer_set(&d->timers, &down->timer, now);
}

void mdapl_dapl_rail_look_at_suspect(struct mdapl_dapl_chan *d, struct mdapl_dapl_ia *ia)
{
    const struct mdapl_dapl_cm_cause *cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_IA_CALLS);

    if (!ia->calls_fail) {
        if (d->now >= ia->quiet_at)
            mdapl_dapl_rail_step(ia, MDAPL_DAPL_RAIL_QUIET);
        return;
    }
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_WARN, "IA %s: %s", ia->name, cause->text);
    mdapl_dapl_rail_fail(d, ia, cause);
}

/* -- closing and opening ----------------------------------------------------------------------- */

/* Closes what is open of it, and frees its connections. False: the provider refuses. */
static bool close_rail(struct mdapl_dapl_chan *d, struct mdapl_dapl_ia *ia, uint64_t now)
{
    bool abandon = now - ia->down.since >= MDAPL_MS(CLOSE_MS), was_abandoned = ia->abandoned;

    if (!ia->handle)
        return true;
    if (mdapl_dapl_rail_shut(ia, abandon))
        return false;
    if (ia->abandoned && !was_abandoned)
        mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_WARN, "IA %s does not close: what it may still use "
                  "of this process's memory stays allocated", ia->name);
    mdapl_dapl_cm_reap(d);
    return true;
}

/* Its streams are connected again. */
static void report_opened(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia, uint64_t now)
{
    mdapl_ctx_stats(d->ctx)->ia_reopens++;
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_INFO, "IA %s is open again (qualifier %llu) after %llu "
              "us and %u attempts: %s", ia->name, (unsigned long long)ia->qual,
              (unsigned long long)(now - ia->down.since) / 1000, ia->down.attempts,
              ia->down.cause->text);
}

/* An attempt to open it. */
static void open_rail(struct mdapl_dapl_chan *d, struct mdapl_dapl_ia *ia, uint64_t began)
{
    struct mdapl_dapl_rail_down *down = &ia->down;
    int rc = mdapl_dapl_rail_reopen(ia);
    uint64_t now = mdapl_ctx_now(d->ctx);
    uint64_t pause = MDAPL_MS(OPEN_PAUSE_MS) << mdapl_min(down->attempts, OPEN_DOUBLINGS);

    down->attempts++;
    down->took = now - began;
    if (!rc) {
        report_opened(d, ia, now);
        each_stream(d, ia, mdapl_dapl_cm_rail_up);
        return;
    }
    snprintf(down->why, sizeof(down->why), "%.*s", (int)sizeof(down->why) - 1,
             mdapl_ctx_err(d->ctx)->text);
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_CONN, "attempt %u: %s", down->attempts, down->why);
    down->open_at = now + (pause > SHARE * down->took ? pause : SHARE * down->took);
}

/* Gives up the peers that have waited for the rail for too long. Returns when the next one will
 * have, ns; UINT64_MAX: none. */
static uint64_t give_up_late(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia,
                             uint64_t now)
{
    uint64_t next = UINT64_MAX;

    for (struct mdapl_dapl_peer *p = NULL; (p = mdapl_dapl_peer_next(d, p));)
        for (int i = 0; i < p->n_streams; i++) {
            uint64_t end = p->stream[i].ia == ia ? mdapl_dapl_cm_rail_end(&p->stream[i])
                                                 : UINT64_MAX;

            if (now >= end)
                give_up(&p->stream[i]);
            else
                next = mdapl_min(next, end);
        }
    return next;
}

/* The rail is DOWN, and something is due: closing it, opening it, or giving peers up. */
static void go_on(struct mdapl_timer *t)
{
    struct mdapl_dapl_ia *ia = MDAPL_OF(t, struct mdapl_dapl_ia, down.timer);
    struct mdapl_dapl_chan *d = ia->hooks.arg;
    uint64_t now = mdapl_ctx_now(d->ctx), next = now + MDAPL_MS(CLOSE_PAUSE_MS);
    bool closed = close_rail(d, ia, now);

    if (closed && !is_reopened(d))
        return;
    if (closed && now >= ia->down.open_at)
        open_rail(d, ia, now);
    if (mdapl_dapl_rail_usable(ia))
        return;
    next = mdapl_min(closed ? ia->down.open_at : next, give_up_late(d, ia, now));
    mdapl_timer_set(&d->timers, t, next);
}

void mdapl_dapl_rail_init(struct mdapl_dapl_ia *ia)
{
    mdapl_timer_init(&ia->down.timer, go_on);
}
