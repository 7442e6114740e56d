/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"
#include "launch.h"

/*
 * The launcher's barrier is given up when the launcher reports that a rank has ended (lost.c). A
 * peer that is lost for another reason may still be on its way to MPI_Finalize: it has
 * MPIR_CVAR_DAPL_CONNECT_TIMEOUT_MS, then the job ends. With MPIR_CVAR_ENABLE_FT nobody waits for
 * it: it may be a rank that has left the barrier out because it knew of a death before this one, or
 * one that has ended on another host, of which Hydra reports nothing here.
 *
 * After the wiring, and in MPI_Finalize, the calling thread makes progress meanwhile: it needs no
 * other rank any more, but a connection may break whose other end still needs it, and then this
 * rank has to accept another one.
 */
struct wait {
    struct mdapl_ch3_glue *glue;
    bool serve;
    uint64_t limit;
};

static int meanwhile(void *arg)
{
    const struct wait *w = arg;
    struct mdapl_ch3_glue *g = w->glue;
    int moved = w->serve ? mdapl_progress(g->ctx) : 0;

    if (g->signalled || (MPIR_CVAR_ENABLE_FT && g->n_lost_ranks > 0))
        return -ECONNRESET;
    if (g->n_lost_ranks > 0 && mdapl_ctx_now(g->ctx) > w->limit)
        mdapl_ch3_end_job("the job ends: a rank that was lost has not called MPI_Finalize within "
                          "MPIR_CVAR_DAPL_CONNECT_TIMEOUT_MS=%lld after this one",
                          (long long)g->cfg.connect_timeout_ms);
    return moved;
}

int mdapl_ch3_barrier(struct mdapl_ch3_glue *g, bool serve)
{
    struct wait w = {
        .glue = g, .serve = serve,
        .limit = mdapl_ctx_now(g->ctx) + MDAPL_MS(g->cfg.connect_timeout_ms),
    };

    if (MPIR_CVAR_ENABLE_FT && g->n_lost_ranks > 0)
        return -ECONNRESET;
    if ((g->n_lost_ranks > 0 || g->n_dead > 0 || g->signalled) && mdapl_ch3_lost_any_dead(g))
        return -ECONNRESET;
    return mdapl_launch_barrier(meanwhile, &w);
}
