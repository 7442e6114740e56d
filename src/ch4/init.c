/* SPDX-License-Identifier: MIT */
#include "glue.h"

#include "dapl.h"
#include "err.h"
#include "launch.h"
#include "log.h"
#include "shm.h"
#include "stats.h"
#include "transport.h"

#include "mpidu_bc.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

struct mdapl_ch4_glue mdapl_ch4_glue;

enum { EXIT_LOST = 1 };

void mdapl_ch4_end_job(const char *text)
{
    mdapl_launch_print(MPIR_Process.rank, text);
    MPID_Abort(NULL, MPI_SUCCESS, EXIT_LOST, "ch4:dapl has ended the job");
    abort();
}

/* -- upcalls ---------------------------------------------------------------------------------- */

static enum mdapl_next arrived(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    (void)owner, (void)peer;
    return mdapl_ch4_am_arrived(m);
}

/* ch4 has no call by which operations with a lost process would fail. */
static void fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    char line[512];

    (void)owner, (void)status;
    snprintf(line, sizeof(line), "the job ends: rank %d is lost: %s", peer->rank, why);
    mdapl_ch4_end_job(line);
}

static const struct mdapl_up up = { .msg = arrived, .fault = fault };

/* -- progress --------------------------------------------------------------------------------- */

/* ch4 does not say whether it waits or only tests, so a rank never sleeps here; after many rounds
 * without any progress it lets others have its core. */
void mdapl_ch4_progress(void)
{
    struct mdapl_ch4_glue *g = &mdapl_ch4_glue;
    int moved = g->first ? mdapl_ch4_self_progress() : 0;

    if (g->ctx)
        moved += mdapl_progress(g->ctx);
    if (moved)
        g->idle = 0;
    else if (++g->idle > g->cfg.spin_polls)
        sched_yield();
}

static int serve(void *arg)
{
    struct mdapl_ch4_glue *g = arg;

    return mdapl_progress(g->ctx);
}

/* -- opening ---------------------------------------------------------------------------------- */

static int init_error(int rank, const char *text)
{
    int mpi_errno = MPI_SUCCESS;

    mdapl_launch_print(rank, text);
    MPIR_ERR_SET(mpi_errno, MPI_ERR_OTHER, "**ch3|dapl|init");
    return mpi_errno;
}

static int card(void *owner, int rank, char *buf, size_t len)
{
    const struct mdapl_ch4_glue *g = owner;
    const char *text = g->cards + (size_t)rank * (size_t)g->card_len;

    if (strlen(text) >= len)
        return -ENOSPC;
    strcpy(buf, text);
    return 0;
}

static bool near(void *owner, int rank)
{
    (void)owner;
    return MPIR_Process.node_map[rank] == MPIR_Process.node_map[MPIR_Process.rank];
}

static int open_ctx(struct mdapl_ch4_glue *g)
{
    static const struct mdapl_channel *const channels[] = { &mdapl_shm_channel,
                                                           &mdapl_dapl_channel, NULL };
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .owner = g, .cfg = &g->cfg, .up = &up,
        .job = { .rank = MPIR_Process.rank, .size = MPIR_Process.size, .card = card, .near = near,
                 .owner = g },
    };

    mdapl_launch_dat_environment(&g->cfg);
    return mdapl_ctx_open(&args, &g->ctx, &err) ? init_error(MPIR_Process.rank, err.text)
                                                : MPI_SUCCESS;
}

/* Publishes this rank's card and, on rank 0, the job's key; reads those of all ranks. */
static int exchange(struct mdapl_ch4_glue *g)
{
    char mine[MDAPL_CARD_MAX];
    struct mdapl_launch_job job;
    struct mdapl_err err;
    void *table;
    int len = mdapl_ctx_card(g->ctx, mine, sizeof(mine)), mpi_errno;

    if (len < 0)
        return init_error(MPIR_Process.rank, "the business card does not fit; name fewer adapters "
                          "in MPIR_CVAR_DAPL_IA");
    if (MPIR_Process.rank == 0 && mdapl_launch_put_job(&err))
        return init_error(0, err.text);
    mpi_errno = MPIDU_bc_table_create(MPIR_Process.rank, MPIR_Process.size, MPIR_Process.node_map,
                                      mine, len + 1, FALSE, FALSE, &table, &g->card_len);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    g->cards = MPL_malloc(MPIR_Process.size * g->card_len, MPL_MEM_ADDRESS);
    if (g->cards)
        memcpy(g->cards, table, (size_t)MPIR_Process.size * (size_t)g->card_len);
    MPIDU_bc_table_destroy();
    if (!g->cards)
        return init_error(MPIR_Process.rank, "no memory for the business cards");
    if (mdapl_launch_get_job(&job))
        return init_error(MPIR_Process.rank,
                          "the launcher does not give the job's key; check the launcher");
    mdapl_ctx_set_job(g->ctx, job.id, job.key);
    return MPI_SUCCESS;
}

/* All ranks of the node test which of them they reach: after the barrier each can read all
 * verdicts. */
static int probe(struct mdapl_ch4_glue *g)
{
    mdapl_probe(g->ctx);
    return MPIR_pmi_barrier();
}

static int wire(struct mdapl_ch4_glue *g)
{
    int rc;

    while ((rc = mdapl_wire(g->ctx)) == 0)
        if (mdapl_progress(g->ctx) == 0)
            mdapl_wait(g->ctx, MDAPL_US(g->cfg.sleep_us));
    if (rc < 0)
        return init_error(MPIR_Process.rank, mdapl_ctx_err(g->ctx)->text);
    /* The others may still need this rank. */
    return mdapl_launch_barrier(serve, g) ? init_error(MPIR_Process.rank, "the launcher's barrier "
                                                       "failed; check the launcher")
                                          : MPI_SUCCESS;
}

static void log_start(struct mdapl_ch4_glue *g)
{
    char line[512];

    if (MPIR_Process.rank != 0 || g->cfg.verbose < MDAPL_INFO)
        return;
    mdapl_ctx_describe(g->ctx, line, sizeof(line));
    mdapl_log(mdapl_ctx_log(g->ctx), MDAPL_INFO, "%d ranks, %s", MPIR_Process.size, line);
}

/* Where ranks share cores, one that waits lets the others run at once. */
static void set_polls(struct mdapl_ch4_glue *g)
{
    if (g->cfg.spin_polls < 0)
        g->cfg.spin_polls = MPIR_Process.local_size > sysconf(_SC_NPROCESSORS_ONLN) ? 0 : 20000;
}

int MPIDI_NM_init_local(int *tag_bits)
{
    struct mdapl_ch4_glue *g = &mdapl_ch4_glue;
    struct mdapl_err err;
    int task;

    memset(g, 0, sizeof(*g));
    g->end = &g->first;
    *tag_bits = MPIR_TAG_BITS_DEFAULT;
    if (mdapl_cfg_env(&g->cfg, &err))
        return init_error(MPIR_Process.rank, err.text);
    set_polls(g);
    if (MPIR_Process.size == 1 && mdapl_launch_alone(&err, &task))
        return init_error(task, err.text);
    return MPI_SUCCESS;
}

int MPIDI_NM_init_world(void)
{
    struct mdapl_ch4_glue *g = &mdapl_ch4_glue;
    int mpi_errno;

    for (int i = 0; i < MPIR_Process.size; i++)
        MPIDIU_get_av(0, i).netmod.dapl.peer = NULL;     /* ch4 leaves its table as it is */
    if (MPIR_Process.size == 1)
        return MPI_SUCCESS;
    mpi_errno = open_ctx(g);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = exchange(g);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = probe(g);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = wire(g);
    if (mpi_errno == MPI_SUCCESS)
        log_start(g);
    return mpi_errno;
}

int MPIDI_NM_post_init(void)
{
    return MPI_SUCCESS;
}

/* -- closing ---------------------------------------------------------------------------------- */

/* Drain, barrier, close: at the barrier all frames of both sides have been acknowledged. */
int MPIDI_NM_mpi_finalize_hook(void)
{
    struct mdapl_ch4_glue *g = &mdapl_ch4_glue;
    struct mdapl_stats counters = { 0 };

    mdapl_ch4_am_forget_unmatched();
    mdapl_ch4_self_progress();
    if (g->ctx) {
        while (mdapl_drain(g->ctx) > 0)
            if (mdapl_progress(g->ctx) == 0)
                mdapl_wait(g->ctx, MDAPL_US(g->cfg.sleep_us));
        counters = *mdapl_ctx_stats(g->ctx);
        mdapl_launch_barrier(serve, g);
        mdapl_ctx_close(g->ctx);
        g->ctx = NULL;
        MPL_free(g->cards);
    }
    mdapl_launch_summary(&g->cfg, &counters, MPIR_Process.rank);
    return MPI_SUCCESS;
}
