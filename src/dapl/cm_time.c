/* SPDX-License-Identifier: MIT */
#include "cm_time.h"

#include "cfg.h"
#include "cm.h"
#include "cm_hello.h"
#include "min.h"

enum {
    BACKOFF_DOUBLINGS = 5,       /* the pause between tries grows 32 times at most */
    TIME_DOUBLINGS = 3,          /* the time of an unanswered request, 8 times */
    MOST_DOUBLINGS = 12,         /* that of a request to a rank that has been connected before */
    RECONNECT_MS = 250,          /* the time of the first such request, at most */
    TURN_MS = 5,                 /* the rank whose request would lose sends one so much later */
};

static const struct mdapl_cfg *cfg_of(const struct mdapl_dapl_stream *st)
{
    return mdapl_ctx_cfg(st->peer->d->ctx);
}

uint64_t mdapl_dapl_cm_time(const struct mdapl_dapl_stream *st)
{
    return MDAPL_MS(cfg_of(st)->connect_timeout_ms);
}

uint64_t mdapl_dapl_cm_first_time(const struct mdapl_dapl_stream *st)
{
    uint64_t time = mdapl_dapl_cm_time(st);

    return st->peer->was_up ? mdapl_min(time, MDAPL_MS(RECONNECT_MS)) : time;
}

uint64_t mdapl_dapl_cm_outage_end(const struct mdapl_dapl_peer *peer)
{
    uint64_t limit = MDAPL_MS(mdapl_ctx_cfg(peer->d->ctx)->max_outage_ms);

    return limit > 0 && peer->was_up && peer->n_up == 0 ? peer->down_since + limit : UINT64_MAX;
}

uint64_t mdapl_dapl_cm_rail_end(const struct mdapl_dapl_stream *st)
{
    const struct mdapl_dapl_peer *peer = st->peer;
    uint64_t limit = MDAPL_MS(cfg_of(st)->max_outage_ms);

    if (st->cm.state != MDAPL_CM_BACKOFF || limit == 0)
        return UINT64_MAX;
    for (int i = 0; i < peer->n_streams; i++)
        if (mdapl_dapl_rail_usable(peer->stream[i].ia))
            return UINT64_MAX;
    return peer->was_up ? mdapl_dapl_cm_outage_end(peer) : st->cm.since + limit;
}

uint64_t mdapl_dapl_cm_request_time(const struct mdapl_dapl_stream *st, uint64_t now)
{
    uint64_t limit = MDAPL_MS(cfg_of(st)->connect_unanswered_ms), waited = now - st->cm.since;
    uint64_t time = mdapl_dapl_cm_first_time(st) << mdapl_min(st->cm.unanswered, MOST_DOUBLINGS);

    time = mdapl_min(time, mdapl_dapl_cm_time(st) << TIME_DOUBLINGS);
    if (st->peer->was_up)
        limit = mdapl_dapl_cm_outage_end(st->peer) - now + waited;
    return limit > waited ? mdapl_min(time, limit - waited) : time;
}

/* Without jitter, all requests to a busy rank would be repeated at the same time. The jitter is a
 * multiplicative hash of the job, both ranks and epoch, so that a run of the simulation is
 * reproducible. */
static uint64_t jitter(const struct mdapl_dapl_stream *st)
{
    const struct mdapl_group *job = mdapl_ctx_job(st->peer->d->ctx);
    uint64_t x = (uint64_t)job->id << 32 ^ st->cm.epoch;

    x ^= (uint64_t)job->rank << 40 ^ (uint64_t)st->peer->base.rank << 16;
    return x * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

uint64_t mdapl_dapl_cm_pause(const struct mdapl_dapl_stream *st)
{
    uint64_t doublings = mdapl_min(st->cm.requests, BACKOFF_DOUBLINGS);
    uint64_t pause = MDAPL_MS(cfg_of(st)->connect_retry_ms) << doublings >> 1;

    return pause + jitter(st) % (pause / 2 + 1);
}

uint64_t mdapl_dapl_cm_turn(const struct mdapl_dapl_stream *st)
{
    return mdapl_dapl_cm_wins(st->peer) ? MDAPL_MS(TURN_MS) + jitter(st) % MDAPL_MS(TURN_MS) : 0;
}

/* -- requests in flight ------------------------------------------------------------------------ */

void mdapl_dapl_cm_requests_init(struct mdapl_dapl_cm_requests *r)
{
    mdapl_list_init(&r->waiting);
    mdapl_list_init(&r->counted);
    r->n = 0;
}

void mdapl_dapl_cm_request_wait(struct mdapl_dapl_stream *st)
{
    if (mdapl_list_empty(&st->cm.request))
        mdapl_list_append(&st->peer->d->requests.waiting, &st->cm.request);
}

void mdapl_dapl_cm_request_begin(struct mdapl_dapl_stream *st)
{
    struct mdapl_dapl_cm_requests *r = &st->peer->d->requests;

    mdapl_list_append(&r->counted, &st->cm.request);
    st->cm.counted = true;
    r->n++;
}

void mdapl_dapl_cm_request_end(struct mdapl_dapl_stream *st)
{
    mdapl_list_remove(&st->cm.request);
    st->peer->d->requests.n -= st->cm.counted;
    st->cm.counted = false;
}

static struct mdapl_dapl_stream *first_of(const struct mdapl_list *list)
{
    return MDAPL_OF(mdapl_list_first(list), struct mdapl_dapl_stream, cm.request);
}

static bool has_room(const struct mdapl_dapl_chan *d)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(d->ctx);

    return d->requests.n < cfg->wiring_inflight || cfg->wiring == MDAPL_WIRING_THREAD;
}

/* When the oldest request that counts does so no more, ns. */
static uint64_t oldest_over(const struct mdapl_dapl_cm_requests *r)
{
    return first_of(&r->counted)->cm.called + MDAPL_MS(MDAPL_CM_COUNTED_MS);
}

uint64_t mdapl_dapl_cm_request_due(const struct mdapl_dapl_chan *d)
{
    if (mdapl_list_empty(&d->requests.waiting))
        return UINT64_MAX;
    return has_room(d) ? 0 : oldest_over(&d->requests);
}

struct mdapl_dapl_stream *mdapl_dapl_cm_request_next(struct mdapl_dapl_chan *d)
{
    struct mdapl_dapl_stream *st;

    if (mdapl_dapl_cm_request_due(d) > mdapl_ctx_now(d->ctx))
        return NULL;
    if (!has_room(d))
        mdapl_dapl_cm_request_end(first_of(&d->requests.counted));
    st = first_of(&d->requests.waiting);
    mdapl_dapl_cm_request_end(st);
    return st;
}
