/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "dapl.h"
#include "log.h"
#include "mdapl_knobs.h"
#include "pmi.h"
#include "shm.h"
#include "stats.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

struct mdapl_glue mdapl_glue;

/* In order of preference. */
static const struct mdapl_channel *const channels[] = { &mdapl_shm_channel, &mdapl_dapl_channel,
                                                       NULL };

static const struct mdapl_up up = { .msg = mdapl_recv_msg, .fault = mdapl_vc_fault };

enum { JOB_BYTES = sizeof(uint32_t) + MDAPL_KEY_BYTES };

static const char job_key_name[] = "dapl-job";

/* -- the launcher ----------------------------------------------------------------------------- */

/* Rank 0 draws the job's id and key; they travel through the launcher only, never in arguments or
 * the environment (FAULTS: whoever knows the key may connect). */
static int put_job(const char *kvs)
{
    unsigned char raw[JOB_BYTES];
    char hex[2 * JOB_BYTES + 1];

    if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
        return -EIO;
    for (int i = 0; i < JOB_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", raw[i]);
    return PMI_KVS_Put(kvs, job_key_name, hex) == PMI_SUCCESS ? 0 : -EIO;
}

static int get_job(struct mdapl_ctx *ctx, const char *kvs)
{
    unsigned char raw[JOB_BYTES];
    char hex[2 * JOB_BYTES + 1];
    uint32_t id;

    if (PMI_KVS_Get(kvs, job_key_name, hex, sizeof(hex)) != PMI_SUCCESS)
        return -EIO;
    for (int i = 0; i < JOB_BYTES; i++)
        if (sscanf(hex + 2 * i, "%2hhx", &raw[i]) != 1)
            return -EIO;
    memcpy(&id, raw, sizeof(id));
    mdapl_ctx_set_job(ctx, id, raw + sizeof(id));
    return 0;
}

/* -- opening ---------------------------------------------------------------------------------- */

/* The dat.conf of this installation, unless the user names one. */
static void choose_dat_conf(const struct mdapl_cfg *cfg)
{
    const char *file = *cfg->dat_conf ? cfg->dat_conf : MDAPL_DAT_CONF;

    if (!getenv("DAT_OVERRIDE") && (*cfg->dat_conf || access(file, R_OK) == 0))
        setenv("DAT_OVERRIDE", file, 1);
}

void mdapl_say(int rank, const char *text)
{
    const struct timespec moment = { 0, 100 * 1000 * 1000 };
    char host[64] = "?";

    gethostname(host, sizeof(host) - 1);
    fprintf(stderr, "[rank %d %s pid %d] ch3:dapl: %s\n", rank, host, (int)getpid(), text);
    nanosleep(&moment, NULL);
}

static int init_error(int rank, const char *text)
{
    int mpi_errno = MPI_SUCCESS;

    mdapl_say(rank, text);
    MPIR_ERR_SET(mpi_errno, MPI_ERR_OTHER, "**ch3|dapl|init");
    return mpi_errno;
}

static int open_ctx(struct mdapl_glue *g, int rank)
{
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = g, .cfg = &g->cfg,
        .job = { .rank = rank, .size = g->pg->size, .card = mdapl_cards_get },
    };

    choose_dat_conf(&g->cfg);
    if (mdapl_ctx_open(&args, &g->ctx, &err))
        return init_error(rank, err.text);
    return MPI_SUCCESS;
}

/* My card and, from rank 0, the job's secret go to the launcher; all have put theirs after that. */
static int publish(struct mdapl_glue *g, int rank)
{
    char card[MDAPL_CARD_MAX], *kvs;
    int mpi_errno;

    MPIDI_PG_GetConnKVSname(&kvs);
    if (mdapl_ctx_card(g->ctx, card, sizeof(card)) < 0)
        return init_error(rank, "the business card does not fit; name fewer adapters in "
                                "MPIR_CVAR_DAPL_IA");
    if (rank == 0 && put_job(kvs))
        return init_error(rank, "the launcher does not take the job's key; check the launcher");
    mpi_errno = MPIDI_PG_SetConnInfo(rank, card);
    if (mpi_errno == MPI_SUCCESS && get_job(g->ctx, kvs))
        mpi_errno = init_error(rank,
                               "the launcher does not give the job's key; check the launcher");
    if (mpi_errno == MPI_SUCCESS && mdapl_cards_share(g, rank))
        mpi_errno = init_error(rank,
                               "the launcher does not take business cards; check the launcher");
    return mpi_errno;
}

/* Cores for the ranks of this node. A rank that is bound to one core has others beside it. */
static int cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    return n > 1 ? n : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* How long a waiting rank polls: hardly at all where ranks share cores, since what it waits for
 * may need the core that it polls on. */
static void choose_patience(struct mdapl_glue *g, int rank)
{
    int here = 0;
    bool crowded;

    for (int i = 0; i < g->pg->size; i++)
        here += g->pg->vct[i].node_id == g->pg->vct[rank].node_id;
    crowded = here > cores();
    if (g->cfg.spin_polls < 0)
        g->cfg.spin_polls = crowded ? 0 : 20000;
    if (g->cfg.yield_polls < 0)
        g->cfg.yield_polls = crowded ? 5 : 200;
}

/* A rank that yields before it sleeps finds several events when its turn comes again. */
static int wire(struct mdapl_glue *g, int rank)
{
    int64_t idle = 0;
    int rc;

    while ((rc = mdapl_wire(g->ctx)) == 0)
        if (mdapl_progress(g->ctx) > 0)
            idle = 0;
        else if (idle++ < g->cfg.yield_polls)
            sched_yield();
        else
            mdapl_wait(g->ctx, MDAPL_US(g->cfg.sleep_us));
    return rc < 0 ? init_error(rank, mdapl_ctx_err(g->ctx)->text) : MPI_SUCCESS;
}

static void tell(struct mdapl_glue *g, int rank)
{
    char line[512];

    if (rank != 0 || g->cfg.verbose < MDAPL_INFO)
        return;
    mdapl_ctx_describe(g->ctx, line, sizeof(line));
    mdapl_log(mdapl_ctx_log(g->ctx), MDAPL_INFO, "%d ranks, %s", g->pg->size, line);
}

static int init_handlers(struct mdapl_glue *g)
{
    int mpi_errno = MPIDI_CH3_PktHandler_Init(g->handler, MPIDI_CH3_PKT_END_ALL);

    /* CH3's own would forget the body of a cancelled rendezvous. */
    g->handler[MPIDI_CH3_PKT_CANCEL_SEND_REQ] = mdapl_rndv_cancel;
    return mpi_errno;
}

int MPIDI_CH3_Init(int has_parent, MPIDI_PG_t *pg, int rank)
{
    struct mdapl_glue *g = &mdapl_glue;
    struct mdapl_err err;
    int mpi_errno;

    (void)has_parent;
    memset(g, 0, sizeof(*g));
    g->pg = pg;
    g->unmatched.next = g->unmatched.prev = &g->unmatched;
    if (mdapl_cfg_from_cvars(&g->cfg, &err))
        return init_error(rank, err.text);
    choose_patience(g, rank);
    mdapl_split_init(g);
    mpi_errno = init_handlers(g);
    /* A job of one rank talks to nobody and needs no adapter. */
    if (mpi_errno != MPI_SUCCESS || pg->size == 1)
        return mpi_errno;
    mpi_errno = open_ctx(g, rank);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = publish(g, rank);
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = wire(g, rank);
    if (mpi_errno == MPI_SUCCESS) {
        mdapl_pvars_register(mdapl_ctx_stats(g->ctx));
        tell(g, rank);
    }
    return mpi_errno;
}

int MPIDI_CH3_InitCompleted(void)
{
    struct mdapl_glue *g = &mdapl_glue;

    /* The VCs were made before the context was open: now their eager limit is known. */
    for (int i = 0; g->ctx && i < g->pg->size; i++)
        MPIDI_CH3_VC_Init(&g->pg->vct[i]);
    return MPI_SUCCESS;
}

/* -- closing ---------------------------------------------------------------------------------- */

/* One write for all of it, so that ranks do not mix theirs. */
static void summarise(struct mdapl_glue *g, int rank)
{
    char text[4096];
    size_t n;

    if (g->cfg.summary == MDAPL_SUMMARY_OFF || (g->cfg.summary == MDAPL_SUMMARY_FIRST && rank != 0))
        return;
    n = (size_t)snprintf(text, sizeof(text), "[rank %d %s] ch3:dapl, what was done:\n", rank,
                         mdapl_ctx_host(g->ctx));
    mdapl_stats_print(mdapl_ctx_stats(g->ctx), text + n, sizeof(text) - n);
    fputs(text, stderr);
}

/*
 * Drain, barrier, close (FAULTS, hazard 16). Before the barrier everything that either side sent
 * has been acknowledged, so that behind it nobody needs anything from anybody.
 */
int MPIDI_CH3_Finalize(void)
{
    struct mdapl_glue *g = &mdapl_glue;

    if (!g->ctx)
        return MPI_SUCCESS;
    mdapl_rndv_forget_unmatched();
    while (mdapl_drain(g->ctx) > 0)
        if (mdapl_progress(g->ctx) == 0)
            mdapl_wait(g->ctx, MDAPL_US(g->cfg.sleep_us));
    summarise(g, mdapl_ctx_job(g->ctx)->rank);
    PMI_Barrier();
    mdapl_ctx_close(g->ctx);
    g->ctx = NULL;
    mdapl_vc_forget_peers();
    mdapl_cards_free(g);
    return MPI_SUCCESS;
}

/* -- what there is nothing to do for ---------------------------------------------------------- */

int MPIDI_CH3_PG_Init(MPIDI_PG_t *pg)
{
    (void)pg;
    return MPI_SUCCESS;
}

int MPIDI_CH3_PG_Destroy(MPIDI_PG_t *pg)
{
    (void)pg;
    return MPI_SUCCESS;
}

int MPIDI_CH3_PortFnsInit(MPIDI_PortFns *fns)
{
    (void)fns;
    return MPI_SUCCESS;
}
