/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"
#include "launch.h"

#include "log.h"
#include "winseg.h"

/*
 * MPI RMA is CH3's own, in messages; puts and gets between nodes go by RDMA where they can (rma.c).
 * A channel can give CH3 memory that the ranks of a node share: there it puts, gets and accumulates
 * in place. In each window all ranks of a node share, or none.
 *
 *      MPI_Win_allocate_shared   has to have it: all its ranks share memory, or it is refused
 *      MPI_Win_allocate          has it where that is possible, else memory of each rank's own
 *      MPI_Win_create            with info alloc_shm, over the memory of one of the others
 *
 * win_share.c makes it so.
 */

/* Exchanges the addresses of the window's memory, as CH3 does for all windows. */
static int publish(MPIR_Win **win_p, MPIR_Info *info, MPIR_Comm *comm, void *base_ptr)
{
    MPIR_Win *win = *win_p;

    win->base = win->shm_base_addrs[win->comm_ptr->node_comm->rank];
    *(void **)base_ptr = win->base;
    return MPIDI_CH3U_Win_fns.gather_info(win->base, win->size, win->disp_unit, info, comm, win_p);
}

/* -- why not ---------------------------------------------------------------------------------- */

static const struct why {
    int rc, errclass;
    const char *text;
} whys[] = {
    { -EXDEV, MPI_ERR_RMA_SHARED, "is not on one node with all others; split their communicator by "
      "MPI_Comm_split_type with MPI_COMM_TYPE_SHARED, or use MPI_Win_allocate" },
    { -EHOSTUNREACH, MPI_ERR_RMA_SHARED, "does not share memory with the others of its node (has "
      "it a container or a namespace of its own?); start them in one, or use MPI_Win_allocate" },
    { -ENOMEM, MPI_ERR_NO_MEM, "does not get so much memory; use less, or fewer ranks of a node" },
    { -ENOSPC, MPI_ERR_NO_MEM, "does not get so much memory; use less, or fewer ranks of a node" },
    { -EFBIG, MPI_ERR_NO_MEM, "may not make it so large; raise its limit on the size of files "
      "(ulimit -f)" },
};

/* The MPI error class, and the line. */
static int why_not(const MPIR_Win *win, const struct mdapl_ch3_outcome *outcome, char *line,
                   size_t len)
{
    struct why why = { outcome->rc, MPI_ERR_NO_MEM, strerror(-outcome->rc) };

    for (size_t i = 0; i < sizeof(whys) / sizeof(whys[0]); i++)
        if (whys[i].rc == outcome->rc)
            why = whys[i];
    snprintf(line, len, "no shared memory for this window of %d ranks: rank %d %s",
             win->comm_ptr->local_size, outcome->rank, why.text);
    return why.errclass;
}

/* Called by all ranks of the window; one of them prints the reason, since the error ends most jobs.
 * The window is released as by MPI_Win_free. */
static int refuse(MPIR_Win **win_p, const struct mdapl_ch3_outcome *outcome)
{
    char line[MPI_MAX_ERROR_STRING / 2];
    int errclass = why_not(*win_p, outcome, line, sizeof(line)), mpi_errno;

    if (outcome->rank == MPIR_Process.rank)
        mdapl_launch_print(outcome->rank, line);
    mpi_errno = MPID_Win_free(win_p);
    MPIR_ERR_SET1(mpi_errno, errclass, "**ch3|dapl|window", "**ch3|dapl|window %s", line);
    return mpi_errno;
}

static void log_refusal(const MPIR_Win *win, const struct mdapl_ch3_outcome *outcome)
{
    char line[MPI_MAX_ERROR_STRING / 2];

    if (win->comm_ptr->node_comm->rank != 0)
        return;
    why_not(win, outcome, line, sizeof(line));
    mdapl_log(mdapl_ctx_log(mdapl_ch3_glue.ctx), MDAPL_INFO, "%s; it goes in messages", line);
}

/* -- CH3's calls ------------------------------------------------------------------------------ */

static int first_world_rank(MPIR_Comm *comm)
{
    MPIDI_VC_t *vc;

    MPIDI_Comm_get_vc(comm, 0, &vc);
    return vc->pg_rank;
}

/* MPI_Win_allocate_shared. */
static int allocate_shared(MPI_Aint size, int disp_unit, MPIR_Info *info, MPIR_Comm *comm,
                           void *base_ptr, MPIR_Win **win_p)
{
    MPIR_Win *win = *win_p;
    MPIR_Comm *all = win->comm_ptr;
    struct mdapl_ch3_outcome outcome = { -EXDEV, first_world_rank(all) };
    int mpi_errno;

    if (all->local_size == 1)
        return MPIDI_CH3U_Win_allocate_no_shm(size, disp_unit, info, comm, base_ptr, win_p);
    if (!all->node_comm || all->node_comm->local_size < all->local_size)
        return refuse(win_p, &outcome);
    mpi_errno = mdapl_ch3_win_share(win, win->info_args.alloc_shared_noncontig, &outcome);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    return win->ch.share ? publish(win_p, info, comm, base_ptr) : refuse(win_p, &outcome);
}

/* A user who names channels without shm gets no shared memory in windows, either. */
bool mdapl_ch3_shm_is_chosen(void)
{
    const char *channels = mdapl_ch3_glue.cfg.channels;

    return !*channels || strstr(channels, "shm");
}

/* MPI_Win_allocate; without shared memory where info alloc_shm forbids it. Each rank's part begins
 * on a page of its own, aligned as allocated memory is. */
static int allocate(MPI_Aint size, int disp_unit, MPIR_Info *info, MPIR_Comm *comm, void *base_ptr,
                    MPIR_Win **win_p)
{
    MPIR_Win *win = *win_p;
    struct mdapl_ch3_outcome outcome;

    if (win->info_args.alloc_shm == TRUE && win->comm_ptr->node_comm && mdapl_ch3_shm_is_chosen()) {
        int mpi_errno = mdapl_ch3_win_share(win, true, &outcome);

        if (mpi_errno != MPI_SUCCESS)
            return mpi_errno;
        if (win->ch.share)
            return publish(win_p, info, comm, base_ptr);
        log_refusal(win, &outcome);
    }
    return MPIDI_CH3U_Win_allocate_no_shm(size, disp_unit, info, comm, base_ptr, win_p);
}

static int first_with_memory(const MPIR_Win *win)
{
    for (int i = 0; i < win->comm_ptr->local_size; i++)
        if (win->basic_info_table[i].size > 0)
            return i;
    return MPI_PROC_NULL;
}

/* MPI_Win_shared_query. With MPI_PROC_NULL the result is of the first rank that has memory; a rank
 * of another node, of which windows by MPI_Win_allocate may have some, shares none. */
static int shared_query(MPIR_Win *win, int rank, MPI_Aint *size, int *disp_unit, void *base_ptr)
{
    int here = -1;

    if (!win->ch.share)
        return MPIDI_CH3U_Win_shared_query(win, rank, size, disp_unit, base_ptr);
    if (rank == MPI_PROC_NULL)
        rank = first_with_memory(win);
    if (rank != MPI_PROC_NULL)
        here = MPIR_Get_intranode_rank(win->comm_ptr, rank);
    if (here < 0) {
        *size = 0;
        *disp_unit = 0;
        *(void **)base_ptr = NULL;
        return MPI_SUCCESS;
    }
    *size = win->basic_info_table[rank].size;
    *disp_unit = win->basic_info_table[rank].disp_unit;
    *(void **)base_ptr = win->shm_base_addrs[here];
    return MPI_SUCCESS;
}

int MPIDI_CH3_Win_fns_init(MPIDI_CH3U_Win_fns_t *fns)
{
    fns->allocate_shared = allocate_shared;
    fns->allocate = allocate;
    fns->detect_shm = mdapl_ch3_win_detect;
    fns->shared_query = shared_query;
    fns->gather_info = mdapl_ch3_rma_gather_info;
    return MPI_SUCCESS;
}

static int init_win(MPI_Aint size, int disp_unit, int flavor, int model, MPIR_Info *info,
                    MPIR_Comm *comm, MPIR_Win **win_p)
{
    MPIR_Win *win = *win_p;

    (void)size, (void)disp_unit, (void)flavor, (void)model, (void)info, (void)comm;
    win->ch.share = NULL;
    win->ch.rma = NULL;
    /* For a window that is refused: MPID_Win_free frees them. */
    win->basic_info_table = NULL;
    win->base = NULL;
    return mdapl_ch3_rma_pool_make(&mdapl_ch3_glue.rma_pool);
}

/* CH3 calls this after a barrier, so no rank uses the memory any more. */
static int free_win(MPIR_Win **win_p)
{
    MPIR_Win *win = *win_p;

    mdapl_ch3_rma_free(win);
    if (win->ch.share && win->create_flavor != MPI_WIN_FLAVOR_CREATE)
        mdapl_shm_winseg_close(win->ch.share);
    win->ch.share = NULL;
    MPL_free(win->shm_base_addrs);
    return MPI_SUCCESS;
}

int MPIDI_CH3_Win_hooks_init(MPIDI_CH3U_Win_hooks_t *hooks)
{
    hooks->win_init = init_win;
    hooks->win_free = free_win;
    return MPI_SUCCESS;
}

/* A VC delivers all packets to one target in order, so a flush arrives after what it flushes. */
int MPIDI_CH3_Win_pkt_orderings_init(MPIDI_CH3U_Win_pkt_ordering_t *orderings)
{
    orderings->am_flush_ordered = 1;
    return MPI_SUCCESS;
}

/* -- atomic operations ------------------------------------------------------------------------ */

void mdapl_ch3_win_lock(MPIR_Win *win)
{
    mdapl_shm_winseg_lock(win->ch.share);
}

void mdapl_ch3_win_unlock(MPIR_Win *win)
{
    mdapl_shm_winseg_unlock(win->ch.share);
}
