/* SPDX-License-Identifier: MIT */
#include "wireup.h"

#include "cfg.h"
#include "cm.h"
#include "dapl.h"
#include "err.h"
#include "ia.h"
#include "log.h"
#include "peer.h"
#include "stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { IAS_MAX = 256 };          /* bytes of the names of all rails in a line */

static int get_peer(struct mdapl_dapl_chan *d, int rank, struct mdapl_peer **base_p)
{
    int rc = mdapl_peer_get(d->ctx, rank, base_p);
    char ias[IAS_MAX];

    if (!rc)
        return 0;
    mdapl_dapl_rails_names(&d->rails, ias, sizeof(ias));
    return mdapl_err_set(mdapl_ctx_err(d->ctx), rc,
                         "IA %s: the business card of rank %d names nothing that it reaches. Use "
                         "the same installation and kind of adapter everywhere", ias, rank);
}

int mdapl_dapl_wireup_count(struct mdapl_dapl_chan *d)
{
    const struct mdapl_group *job = mdapl_ctx_job(d->ctx);
    struct mdapl_peer *base;
    int rc = 0;

    d->n_wanted = 0;
    for (int rank = 0; !rc && rank < job->size; rank++) {
        if (rank != job->rank)
            rc = get_peer(d, rank, &base);
        if (!rc && rank != job->rank)
            d->n_wanted += base->channel == &mdapl_dapl_channel;
    }
    return rc;
}

int mdapl_dapl_wireup_call(struct mdapl_dapl_chan *d, int rank)
{
    struct mdapl_peer *base;
    int rc = get_peer(d, rank, &base);

    if (!rc && base->channel == &mdapl_dapl_channel)
        mdapl_dapl_cm_connect(mdapl_dapl_peer_of(base));
    return rc;
}

/* Sends requests to a peer that is not connected, and adds its name to the line. Returns 1; 0 if it
 * is connected. */
static int call_late(struct mdapl_dapl_peer *peer, char *names, size_t len)
{
    size_t at = strlen(names);

    if (peer->n_up == peer->n_streams)
        return 0;
    if (at + sizeof(peer->host) + 32 < len)
        snprintf(names + at, len - at, "%srank %d on %s", at ? ", " : "", peer->base.rank,
                 peer->host);
    mdapl_dapl_cm_connect(peer);
    return 1;
}

/* After connect_timeout_ms, sends requests to all ranks that are not connected: their own requests
 * may have been lost, or they may reach this rank by another channel. cm.c reports those that do
 * not answer. */
static void call_all_late(struct mdapl_dapl_chan *d)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(d->ctx);
    uint64_t waited = mdapl_ctx_now(d->ctx) - d->wire_start;
    char names[256] = "", ias[IAS_MAX];
    int n = 0;

    if (d->called_late || waited < MDAPL_MS(cfg->connect_timeout_ms))
        return;
    d->called_late = true;
    for (struct mdapl_dapl_peer *p = NULL; (p = mdapl_dapl_peer_next(d, p));)
        n += call_late(p, names, sizeof(names));
    mdapl_dapl_rails_names(&d->rails, ias, sizeof(ias));
    if (n > 0)
        mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_WARN,
                  "IA %s: after %llu s of MPI_Init %d of %d ranks are not connected: %s. What has "
                  "not called is called now; check that all ranks of the job have started",
                  ias, (unsigned long long)(waited / 1000000000), n, d->n_wanted,
                  names);
}

int mdapl_dapl_wireup_missing(struct mdapl_dapl_chan *d)
{
    if (d->n_connected == d->n_wanted)
        return MDAPL_DONE;
    call_all_late(d);
    return d->failed;
}

/*
 * The last step in which this rank sends a request. Distances s and size-s are the same pair from
 * its two ends, so half of the steps are enough; at distance size/2 the upper half of the ranks
 * sends the requests.
 */
static int last_step(int rank, int size)
{
    return size % 2 || rank >= size / 2 ? size / 2 : size / 2 - 1;
}

static int by_ring(struct mdapl_dapl_chan *d)
{
    const struct mdapl_group *job = mdapl_ctx_job(d->ctx);
    int last = last_step(job->rank, job->size);
    int rc = d->failed;

    if (!rc && d->wire_step == 0)
        rc = mdapl_dapl_wireup_count(d);
    while (!rc && d->wire_step < last
           && d->n_connecting < (int)mdapl_ctx_cfg(d->ctx)->wiring_inflight) {
        d->wire_step++;
        rc = mdapl_dapl_wireup_call(d, (job->rank - d->wire_step + job->size) % job->size);
    }
    if (rc)
        return rc;
    return d->wire_step >= last ? mdapl_dapl_wireup_missing(d) : 0;
}

static int on_demand(struct mdapl_dapl_chan *d)
{
    (void)d;
    return MDAPL_DONE;
}

static int (*const way[])(struct mdapl_dapl_chan *) = {
    [MDAPL_WIRING_RING] = by_ring,
    [MDAPL_WIRING_ONDEMAND] = on_demand,
    [MDAPL_WIRING_THREAD] = mdapl_dapl_wire_thread_run,
};

int mdapl_dapl_wireup_run(struct mdapl_dapl_chan *d)
{
    int rc;

    if (d->wire_start == 0)
        d->wire_start = mdapl_ctx_now(d->ctx);
    rc = way[mdapl_cfg_wiring(mdapl_ctx_cfg(d->ctx), mdapl_ctx_job(d->ctx)->size)](d);
    d->wiring = rc == 0;
    if (rc == MDAPL_DONE)
        mdapl_ctx_stats(d->ctx)->wire_us = (mdapl_ctx_now(d->ctx) - d->wire_start) / 1000;
    return rc;
}
