/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "dapl.h"
#include "launch.h"
#include "log.h"
#include "mdapl_knobs.h"
#include "shm.h"
#include "stats.h"

#include <sched.h>

struct mdapl_ch3_glue mdapl_ch3_glue;

/* In order of preference. */
static const struct mdapl_channel *const channels[] = { &mdapl_shm_channel, &mdapl_dapl_channel,
                                                       NULL };

static void look(void *owner)
{
    mdapl_ch3_cvars_look(owner);
    mdapl_ch3_unexpected_look(owner);
}

static const struct mdapl_up up_one_thread = {
    .msg = mdapl_ch3_recv_msg, .fault = mdapl_ch3_vc_fault, .look = look,
};
static const struct mdapl_up up_several_threads = {
    .msg = mdapl_ch3_recv_msg, .fault = mdapl_ch3_vc_fault, .look = look,
    .sleep_begin = mdapl_ch3_sleep_begin, .sleep_end = mdapl_ch3_sleep_end,
};

enum {
    WIRE_YIELDS = 5,             /* before a sleep in wire(), at least */
    LOST_DRAIN_MS = 2000         /* how long MPI_Finalize waits for a peer that may be dead */
};

/* -- opening ---------------------------------------------------------------------------------- */

static int init_error(int rank, const char *text)
{
    int mpi_errno = MPI_SUCCESS;

    mdapl_launch_print(rank, text);
    MPIR_ERR_SET(mpi_errno, MPI_ERR_OTHER, "**ch3|dapl|init");
    return mpi_errno;
}

static bool near(void *owner, int rank)
{
    const MPIDI_PG_t *pg = owner;

    return pg->vct[rank].node_id == mdapl_ch3_glue.pg->vct[MPIR_Process.rank].node_id;
}

static int open_ctx(struct mdapl_ch3_glue *g, int rank)
{
    bool threads = MPIR_ThreadInfo.thread_provided == MPI_THREAD_MULTIPLE;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .owner = g, .cfg = &g->cfg,
        .up = threads ? &up_several_threads : &up_one_thread,
        .barrier = mdapl_ch3_node_counts(threads),
        .job = { .rank = rank, .size = g->pg->size, .card = mdapl_ch3_cards_get, .near = near,
                 .owner = g->pg },
    };

    mdapl_launch_dat_environment(&g->cfg);
    if (mdapl_ctx_open(&args, &g->ctx, &err))
        return init_error(rank, err.text);
    g->pg->ch.group = mdapl_ctx_job(g->ctx);
    return MPI_SUCCESS;
}

static const char rank_ended[] =
    "a rank has ended during MPI_Init: the launcher reports it. Look for what ended it";

static int wait_for_all(struct mdapl_ch3_glue *g, int rank, bool serve)
{
    int rc = mdapl_ch3_barrier(g, serve);

    if (rc == -ECONNRESET)
        return init_error(rank, rank_ended);
    return rc ? init_error(rank, "the launcher's barrier failed; check the launcher") : MPI_SUCCESS;
}

/* Tests which ranks of the node reach each other; after the barrier each rank
 * can read all verdicts. */
static int probe(struct mdapl_ch3_glue *g, int rank)
{
    mdapl_probe(g->ctx);
    return wait_for_all(g, rank, false);
}

/* Publishes this rank's card and, on rank 0, the job's key. Returns when every rank has done so. */
static int publish(struct mdapl_ch3_glue *g, int rank)
{
    struct mdapl_launch_job job;
    char card[MDAPL_CARD_MAX];
    struct mdapl_err err;
    int mpi_errno, rc;

    if (mdapl_ctx_card(g->ctx, card, sizeof(card)) < 0)
        return init_error(rank, "the business card does not fit; name fewer adapters in "
                                "MPIR_CVAR_DAPL_IA");
    if (rank == 0 && mdapl_launch_put_job(&err))
        return init_error(rank, err.text);
    mpi_errno = mdapl_ch3_cards_put(g, rank, card);
    if (mpi_errno == MPI_SUCCESS && mdapl_launch_get_job(&job))
        mpi_errno = init_error(rank,
                               "the launcher does not give the job's key; check the launcher");
    if (mpi_errno == MPI_SUCCESS)
        mdapl_ch3_group_set_job(g, job.id, job.key);
    rc = mpi_errno == MPI_SUCCESS ? mdapl_ch3_cards_share(g, rank) : 0;
    if (rc)
        mpi_errno = init_error(rank, rc == -ECONNRESET ? rank_ended :
                               "the launcher does not take or give business cards; check it");
    return mpi_errno;
}

/* -- how long to poll ------------------------------------------------------------------------- */

static bool same_node(const struct mdapl_ch3_glue *g, int a, int b)
{
    return g->pg->vct[a].node_id == g->pg->vct[b].node_id;
}

static int ranks_here(const struct mdapl_ch3_glue *g, int rank)
{
    int n = 0;

    for (int i = 0; i < g->pg->size; i++)
        n += same_node(g, i, rank);
    return n;
}

/* The number of ranks of this node with the same set of cores, this one included. */
static int ranks_on_set(struct mdapl_ch3_glue *g, int rank, uint32_t set)
{
    int n = 0;

    for (int i = 0; i < g->pg->size; i++)
        n += i == rank || (same_node(g, i, rank) && mdapl_ch3_cards_cores(g, i) == set);
    return n;
}

/* How long a waiting rank polls. Where ranks share cores it does not spin, because the rank that it
 * waits for may need the same core: it yields (progress.c), then sleeps. user: the knobs as the
 * user set them. So many ranks run on so many cores. Returns how many share each core. */
static int set_polls(struct mdapl_ch3_glue *g, const struct mdapl_cfg *user, int ranks, int cores)
{
    bool oversubscribed = ranks > cores;
    int sharers = (ranks + cores - 1) / cores;

    g->oversubscribed = oversubscribed;
    g->cfg.spin_polls = user->spin_polls >= 0 ? user->spin_polls : oversubscribed ? 0 : 20000;
    mdapl_yields_init(&g->yields, sharers);
    return sharers;
}

/* The channels need a policy before the other ranks' sets of cores are known. A rank that is bound
 * to a part of the cores is assumed to share it with no other rank. */
static void estimate_polls(struct mdapl_ch3_glue *g, const struct mdapl_cfg *user, int rank)
{
    uint32_t set;
    int online;

    mdapl_ch3_cores(&set, &online);
    set_polls(g, user, ranks_here(g, rank), online);
}

static void choose_polls(struct mdapl_ch3_glue *g, const struct mdapl_cfg *user, int rank)
{
    uint32_t set;
    int online, cores = mdapl_ch3_cores(&set, &online), here = ranks_here(g, rank), sharers;
    struct mdapl_err err;

    /* The launcher is queried for the other ranks' sets only where they decide. */
    if (here <= cores || here > online)
        sharers = set_polls(g, user, here, online);
    else
        sharers = set_polls(g, user, ranks_on_set(g, rank, set), cores);
    mdapl_ctx_share_core(g->ctx, sharers);
    /* The channels were opened with the estimate: shared memory moves ranks that spin only. */
    if (g->cfg.spin_polls == 0)
        mdapl_ctx_tune(g->ctx, "spin_polls", "0", &err);
}

/* -- wiring ----------------------------------------------------------------------------------- */

/* Yielding before sleeping lets several events arrive for one pass. */
static int64_t yields_in_wire(const struct mdapl_ch3_glue *g)
{
    if (g->cfg.yield_polls < 0)
        return g->oversubscribed ? WIRE_YIELDS : MDAPL_YIELDS_ALONE;
    return g->cfg.yield_polls > WIRE_YIELDS ? g->cfg.yield_polls : WIRE_YIELDS;
}

static int wire(struct mdapl_ch3_glue *g, int rank)
{
    int64_t yields = yields_in_wire(g), idle = 0;
    int rc;

    while ((rc = mdapl_wire(g->ctx)) == 0)
        if (mdapl_progress(g->ctx) > 0)
            idle = 0;
        else if (idle++ < yields)
            sched_yield();
        else
            mdapl_wait(g->ctx, MDAPL_US(g->cfg.sleep_us));
    return rc < 0 ? init_error(rank, mdapl_ctx_err(g->ctx)->text) : MPI_SUCCESS;
}

static void log_start(struct mdapl_ch3_glue *g, int rank)
{
    char line[512];

    if (rank != 0 || g->cfg.verbose < MDAPL_INFO)
        return;
    if (!g->ctx) {
        mdapl_launch_print(rank, "1 rank: no channel and no adapter is opened");
        return;
    }
    mdapl_ctx_describe(g->ctx, line, sizeof(line));
    mdapl_log(mdapl_ctx_log(g->ctx), MDAPL_INFO, "%d ranks, %s%s", g->pg->size, line,
              g->oversubscribed ? "; ranks share cores: one that waits yields or sleeps" : "");
}

static int init_handlers(struct mdapl_ch3_glue *g)
{
    int mpi_errno = MPIDI_CH3_PktHandler_Init(g->handler, MPIDI_CH3_PKT_END_ALL);

    /* CH3's own handler would not release the body of a cancelled rendezvous. */
    g->handler[MPIDI_CH3_PKT_CANCEL_SEND_REQ] = mdapl_ch3_rndv_cancel;
    g->handler[MPIDI_CH3I_PKT_DAPL_VISIT] = mdapl_ch3_port_visited;
    g->handler[MPIDI_CH3I_PKT_DAPL_ASK] = mdapl_ch3_rma_asked;
    g->handler[MPIDI_CH3I_PKT_DAPL_WHERE] = mdapl_ch3_rma_answered;
    return mpi_errno;
}

static int start_alone(void)
{
    struct mdapl_err err;
    int task;

    return mdapl_launch_alone(&err, &task) ? init_error(task, err.text) : MPI_SUCCESS;
}

/* A job of several ranks: opens the channels, exchanges cards, connects. */
static int start(struct mdapl_ch3_glue *g, const struct mdapl_cfg *user, int rank)
{
    int mpi_errno;

    estimate_polls(g, user, rank);
    mpi_errno = open_ctx(g, rank);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = publish(g, rank);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = probe(g, rank);
    if (mpi_errno == MPI_SUCCESS) {
        choose_polls(g, user, rank);
        mpi_errno = wire(g, rank);
    }
    /* MPI_Init ends in a barrier of the launcher's, in which a rank serves no other one. */
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = wait_for_all(g, rank, true);
    return mpi_errno;
}

int mdapl_ch3_open_alone(struct mdapl_ch3_glue *g)
{
    struct mdapl_launch_job job;
    char card[MDAPL_CARD_MAX];
    struct mdapl_cfg user;
    struct mdapl_err err;
    int mpi_errno;

    if (g->ctx)
        return MPI_SUCCESS;
    if (mdapl_launch_make_job(&job, &err))
        return init_error(0, err.text);
    user = g->cfg;
    estimate_polls(g, &user, 0);
    mpi_errno = open_ctx(g, 0);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mdapl_ch3_group_set_job(g, job.id, job.key);
    if (mdapl_ctx_card(g->ctx, card, sizeof(card)) < 0 || mdapl_ch3_cards_alone(g, card))
        return init_error(0, "the business card does not fit; name fewer adapters in "
                             "MPIR_CVAR_DAPL_IA");
    mdapl_probe(g->ctx);
    return wire(g, 0);
}

int MPIDI_CH3_Init(int has_parent, MPIDI_PG_t *pg, int rank)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    struct mdapl_cfg user;
    struct mdapl_err err;
    int mpi_errno;

    (void)has_parent;
    memset(g, 0, sizeof(*g));
    g->pg = pg;
    pg->connInfoToString = mdapl_ch3_group_text;
    g->unmatched.next = g->unmatched.prev = &g->unmatched;
    mdapl_ch3_sleep_init(&g->sleep);
    mdapl_ch3_request_pool_make();
    mdapl_ch3_rma_pool_defer(&g->rma_pool);
    if (mdapl_ch3_cfg_from_cvars(g, &err))
        return init_error(rank, err.text);
    user = g->cfg;
    mdapl_ch3_heap_init(&g->heap, (size_t)g->cfg.keep_bytes);
    mdapl_pvars_register(&g->counters);
    mdapl_ch3_split_init(g);
    mpi_errno = mdapl_ch3_lost_init(g);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = init_handlers(g);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = pg->size > 1 ? start(g, &user, rank) : start_alone();
    if (mpi_errno == MPI_SUCCESS)
        log_start(g, rank);
    return mpi_errno;
}

int MPIDI_CH3_InitCompleted(void)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;

    mdapl_ch3_rma_pool_restore(&g->rma_pool);
    /* The VCs were initialised before the context was open; their eager limit is known now. */
    for (int i = 0; g->ctx && i < g->pg->size; i++)
        mdapl_ch3_vc_opened(&g->pg->vct[i]);
    return MPI_SUCCESS;
}

/* -- closing ---------------------------------------------------------------------------------- */

/* MPI_T's read function of a counter. counter: its address in g->counters. While the context is
 * open the channel has the value; g->counters has the final one, since MPI_T outlives
 * MPI_Finalize. */
void mdapl_ch3_pvar_read(void *counter, void *object, int count, void *buf)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    size_t at = (size_t)((char *)counter - (char *)&g->counters);
    const char *from = g->ctx ? (const char *)mdapl_ctx_stats(g->ctx) : (const char *)&g->counters;

    (void)object, (void)count;
    memcpy(buf, from + at, sizeof(uint64_t));
}

/* Waits until all messages are delivered and acknowledged, in both directions. A peer whose end
 * only the launcher reports acknowledges nothing, so after a loss the wait is bounded. */
static void drain(struct mdapl_ch3_glue *g)
{
    uint64_t limit = mdapl_ctx_now(g->ctx) + MDAPL_MS(LOST_DRAIN_MS);

    while (mdapl_drain(g->ctx) > 0 && (g->n_lost == 0 || mdapl_ctx_now(g->ctx) < limit))
        if (mdapl_progress(g->ctx) == 0)
            mdapl_wait(g->ctx, MDAPL_US(g->cfg.sleep_us));
}

/*
 * Drain, barrier, close. At the barrier all frames of both sides have been acknowledged, so after
 * it no rank needs another one to make progress.
 */
static void close_ctx(struct mdapl_ch3_glue *g)
{
    mdapl_ch3_rndv_forget_unmatched();
    mdapl_ch3_group_finish_removals(g);
    mdapl_ch3_port_fini(g);
    drain(g);
    g->counters = *mdapl_ctx_stats(g->ctx);
    mdapl_ch3_barrier(g, true);
    mdapl_ctx_close(g->ctx);
    g->ctx = NULL;
    mdapl_ch3_group_forget();
    mdapl_ch3_cards_free(g);
}

int MPIDI_CH3_Finalize(void)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;

    if (g->ctx)
        close_ctx(g);
    mdapl_launch_summary(&g->cfg, &g->counters, MPIR_Process.rank);
    mdapl_ch3_heap_fini(&g->heap);
    return MPI_SUCCESS;
}
