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

static int call(struct mdapl_dapl *d, int step)
{
    const struct mdapl_job *job = mdapl_ctx_job(d->ctx);
    int rank = (job->rank - step + job->size) % job->size;
    struct mdapl_peer *base;
    int rc = mdapl_peer_get(d->ctx, rank, &base);

    if (rc)
        return mdapl_err_set(mdapl_ctx_err(d->ctx), rc,
                             "IA %s: the business card of rank %d names nothing that it reaches. "
                             "Use the same installation and kind of adapter everywhere",
                             d->rails.ia[0]->name, rank);
    if (base->channel == &mdapl_dapl_channel)
        mdapl_cm_want(mdapl_dpeer_of(base));
    return 0;
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
    while (!rc && d->wire_step < last
           && d->n_connecting < (int)mdapl_ctx_cfg(d->ctx)->wiring_inflight)
        rc = call(d, ++d->wire_step);
    if (rc)
        return rc;
    return d->wire_step >= last && d->n_whole == job->size - 1 ? MDAPL_DONE : 0;
}
