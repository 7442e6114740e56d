/* SPDX-License-Identifier: MIT */
#include "wireup.h"

#include "cfg.h"
#include "cm.h"
#include "dapl.h"
#include "err.h"
#include "ia.h"
#include "peer.h"
#include "stats.h"
#include "wire_thread.h"

#include <errno.h>

static int get_peer(struct mdapl_dapl *d, int rank, struct mdapl_peer **base_p)
{
    int rc = mdapl_peer_get(d->ctx, rank, base_p);

    if (rc)
        mdapl_err_set(mdapl_ctx_err(d->ctx), rc,
                      "IA %s: the business card of rank %d names nothing that it reaches. Use the "
                      "same installation and kind of adapter everywhere", d->rails.ia[0]->name,
                      rank);
    return rc;
}

int mdapl_wireup_count(struct mdapl_dapl *d)
{
    const struct mdapl_job *job = mdapl_ctx_job(d->ctx);
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

int mdapl_wireup_call(struct mdapl_dapl *d, int rank)
{
    struct mdapl_peer *base;
    int rc = get_peer(d, rank, &base);

    if (!rc && base->channel == &mdapl_dapl_channel)
        mdapl_cm_want(mdapl_dpeer_of(base));
    return rc;
}

/*
 * The last step in which I call. Distances s and size-s are the same pair seen from its two ends,
 * so half of the steps are enough; at the distance that is its own mirror the upper half calls.
 */
static int last_step(int rank, int size)
{
    return size % 2 || rank >= size / 2 ? size / 2 : size / 2 - 1;
}

static int by_ring(struct mdapl_dapl *d)
{
    const struct mdapl_job *job = mdapl_ctx_job(d->ctx);
    int last = last_step(job->rank, job->size);
    int rc = d->failed;

    if (!rc && d->wire_step == 0)
        rc = mdapl_wireup_count(d);
    while (!rc && d->wire_step < last
           && d->n_connecting < (int)mdapl_ctx_cfg(d->ctx)->wiring_inflight) {
        d->wire_step++;
        rc = mdapl_wireup_call(d, (job->rank - d->wire_step + job->size) % job->size);
    }
    if (rc)
        return rc;
    return d->wire_step >= last && d->n_whole == d->n_wanted ? MDAPL_DONE : 0;
}

static int on_demand(struct mdapl_dapl *d)
{
    (void)d;
    return MDAPL_DONE;
}

static int (*const way[])(struct mdapl_dapl *) = {
    [MDAPL_WIRING_RING] = by_ring,
    [MDAPL_WIRING_ONDEMAND] = on_demand,
    [MDAPL_WIRING_THREAD] = mdapl_wire_thread_run,
};

int mdapl_wireup_run(struct mdapl_dapl *d)
{
    int rc;

    if (d->wire_began == 0)
        d->wire_began = mdapl_ctx_now(d->ctx);
    rc = way[mdapl_cfg_wiring(mdapl_ctx_cfg(d->ctx), mdapl_ctx_job(d->ctx)->size)](d);
    d->wiring = rc == 0;
    if (rc == MDAPL_DONE)
        mdapl_ctx_stats(d->ctx)->wire_us = (mdapl_ctx_now(d->ctx) - d->wire_began) / 1000;
    return rc;
}
