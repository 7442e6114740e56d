/* SPDX-License-Identifier: MIT */
#include "wireup.h"

#include "cfg.h"
#include "cm.h"
#include "dapl.h"
#include "err.h"
#include "ia.h"
#include "peer.h"

#include <errno.h>

static bool wants_ring(const struct mdapl_dapl *d)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(d->ctx);
    int size = mdapl_ctx_job(d->ctx)->size;

    return cfg->wiring == MDAPL_WIRING_RING
           || (cfg->wiring == MDAPL_WIRING_AUTO && size <= cfg->wiring_max_ring);
}

/*
 * The last step in which I call. Distances s and size-s are the same pair seen from its two ends,
 * so half of the steps are enough; at the distance that is its own mirror the upper half calls.
 */
static int last_step(int rank, int size)
{
    return size % 2 || rank >= size / 2 ? size / 2 : size / 2 - 1;
}

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

/* Peers that another channel reaches will not be connected. */
static int count_wanted(struct mdapl_dapl *d)
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

static int call(struct mdapl_dapl *d, int step)
{
    const struct mdapl_job *job = mdapl_ctx_job(d->ctx);
    struct mdapl_peer *base;
    int rc = get_peer(d, (job->rank - step + job->size) % job->size, &base);

    if (!rc && base->channel == &mdapl_dapl_channel)
        mdapl_cm_want(mdapl_dpeer_of(base));
    return rc;
}

int mdapl_wireup_run(struct mdapl_dapl *d)
{
    const struct mdapl_job *job = mdapl_ctx_job(d->ctx);
    int last = last_step(job->rank, job->size);
    int rc = 0;

    if (!wants_ring(d) || job->size == 1)
        return MDAPL_DONE;
    if (d->failed)
        return d->failed;
    if (d->wire_step == 0)
        rc = count_wanted(d);
    while (!rc && d->wire_step < last
           && d->n_connecting < (int)mdapl_ctx_cfg(d->ctx)->wiring_inflight)
        rc = call(d, ++d->wire_step);
    if (rc)
        return rc;
    return d->wire_step >= last && d->n_whole == d->n_wanted ? MDAPL_DONE : 0;
}
