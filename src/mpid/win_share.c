/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "winseg.h"

#include <unistd.h>

/*
 * The memory of a shared window: the ranks' sizes, the layout, the agreement that all have it. To
 * CH3 a shared window is shm_allocated, with shm_base_addrs by rank in node_comm.
 */

/* The part of one rank of the node. */
struct part {
    MPI_Aint size;
    MPI_Aint at;                 /* where it begins in the share */
    MPI_Aint apart;              /* on pages of its own; the first rank's counts */
    MPI_Aint token;              /* MPI_Win_create: of which share; 0: none */
};

/* The parts of all ranks of the node; the caller frees them. */
static int gather_parts(MPIR_Comm *node, struct part mine, struct part **part_p)
{
    struct part *part = MPL_calloc((size_t)node->local_size, sizeof(*part), MPL_MEM_RMA);
    int mpi_errno = MPI_SUCCESS;

    *part_p = part;
    if (!part) {
        MPIR_ERR_SET(mpi_errno, MPI_ERR_NO_MEM, "**nomem");
        return mpi_errno;
    }
    part[node->rank] = mine;
    return mdapl_mpich_allgather(part, sizeof(*part), node);
}

/* -- sharing ---------------------------------------------------------------------------------- */

/* Each part behind the one before it, as MPI wants it, or on pages of its own. Bytes of all. */
static size_t lay_out(struct part *part, int n)
{
    size_t unit = part[0].apart ? (size_t)sysconf(_SC_PAGESIZE) : 1, end = 0;

    for (int i = 0; i < n; i++) {
        size_t len = ((size_t)part[i].size + unit - 1) / unit * unit;

        if (len > (size_t)PTRDIFF_MAX - end)
            return SIZE_MAX;
        part[i].at = (MPI_Aint)end;
        end += len;
    }
    return end;
}

/* Rank 0 of the node creates the segment, the others map it, each allocates its part. *rc_p: 0, or
 * the negative errno of this rank. */
static int make_or_open(MPIR_Comm *node, size_t bytes, const struct part *mine,
                        struct mdapl_shm_winseg **share_p, int *rc_p)
{
    struct mdapl_shm_winseg_offer offer;
    int rc = 0, mpi_errno;

    if (node->rank == 0)
        rc = mdapl_shm_winseg_make(bytes, &offer, share_p);
    mpi_errno = mdapl_mpich_bcast(&offer, sizeof(offer), node);
    if (mpi_errno == MPI_SUCCESS && node->rank != 0 && offer.rc == 0)
        rc = mdapl_shm_winseg_open(&offer, share_p);
    if (mpi_errno == MPI_SUCCESS && *share_p)
        rc = mdapl_shm_winseg_alloc(*share_p, (size_t)mine->at, (size_t)mine->size);
    *rc_p = rc;
    return mpi_errno;
}

static int agree(MPIR_Comm *node, int rc, struct mdapl_ch3_outcome *outcome)
{
    int first[2] = { rc, MPIR_Process.rank };
    int mpi_errno = mdapl_mpich_lowest(first, node);

    *outcome = (struct mdapl_ch3_outcome){ first[0], first[1] };
    return mpi_errno;
}

/* All ranks of the node, or none: *share_p stays NULL and outcome says why. */
static int share_parts(MPIR_Comm *node, struct part *part, struct mdapl_shm_winseg **share_p,
                       struct mdapl_ch3_outcome *outcome)
{
    size_t bytes = lay_out(part, node->local_size);
    int rc, mpi_errno = make_or_open(node, bytes, &part[node->rank], share_p, &rc);

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = agree(node, rc, outcome);
    if (mpi_errno == MPI_SUCCESS && outcome->rc == 0) {
        mdapl_shm_winseg_commit(*share_p);
    } else if (*share_p) {
        mdapl_shm_winseg_close(*share_p);
        *share_p = NULL;
    }
    return mpi_errno;
}

/* -- windows ---------------------------------------------------------------------------------- */

/* From here on CH3 accesses the memory of each rank directly. */
static int set_bases(MPIR_Win *win, struct mdapl_shm_winseg *share, const struct part *part)
{
    int n = win->comm_ptr->node_comm->local_size, mpi_errno = MPI_SUCCESS;
    char *base = mdapl_shm_winseg_base(share);

    win->shm_base_addrs = MPL_malloc((size_t)n * sizeof(*win->shm_base_addrs), MPL_MEM_SHM);
    if (!win->shm_base_addrs) {
        MPIR_ERR_SET(mpi_errno, MPI_ERR_NO_MEM, "**nomem");
        return mpi_errno;
    }
    for (int i = 0; i < n; i++)
        win->shm_base_addrs[i] = part[i].size > 0 ? base + part[i].at : NULL;
    win->ch.share = share;
    win->shm_allocated = TRUE;
    return mpi_errno;
}

/* Allocates the window's memory in one segment, if the ranks of the node can share memory. */
int mdapl_ch3_win_share(MPIR_Win *win, bool apart, struct mdapl_ch3_outcome *outcome)
{
    MPIR_Comm *node = win->comm_ptr->node_comm;
    struct mdapl_shm_winseg *share = NULL;
    struct part *part;
    int mpi_errno = gather_parts(node, (struct part){ .size = win->size, .apart = apart },
                                 &part);

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = share_parts(node, part, &share, outcome);
    if (share && (mpi_errno = set_bases(win, share, part)) != MPI_SUCCESS)
        mdapl_shm_winseg_close(share);
    MPL_free(part);
    return mpi_errno;
}

/* -- detecting -------------------------------------------------------------------------------- */

static MPIR_Win *window_around(MPIR_Win *list, const char *base, MPI_Aint size)
{
    for (; list; list = list->next) {
        const struct mdapl_shm_winseg *share = list->ch.share;
        const char *start = share ? mdapl_shm_winseg_base(share) : NULL;

        if (share && base >= start && base + size <= start + mdapl_shm_winseg_bytes(share))
            return list;
    }
    return NULL;
}

/* The share that this memory is a part of; NULL: it is not shared. */
static struct mdapl_shm_winseg *share_around(const char *base, MPI_Aint size)
{
    MPIR_Win *win = window_around(MPIDI_RMA_Win_inactive_list_head, base, size);

    if (!win)
        win = window_around(MPIDI_RMA_Win_active_list_head, base, size);
    return win ? win->ch.share : NULL;
}

/* MPI_Win_create over shared memory: if it is the same share for all ranks of the node. */
int mdapl_ch3_win_detect(MPIR_Win **win_p)
{
    MPIR_Win *win = *win_p;
    MPIR_Comm *node = win->comm_ptr->node_comm;
    struct mdapl_shm_winseg *share = share_around(win->base, win->size);
    struct part mine = { .size = win->size }, *part;
    int mpi_errno;

    if (!node)
        return MPI_SUCCESS;
    if (share) {
        mine.at = (char *)win->base - (char *)mdapl_shm_winseg_base(share);
        mine.token = (MPI_Aint)mdapl_shm_winseg_token(share);
    }
    mpi_errno = gather_parts(node, mine, &part);
    for (int i = 0; mpi_errno == MPI_SUCCESS && i < node->local_size; i++)
        if (part[i].token != mine.token)
            share = NULL;
    if (mpi_errno == MPI_SUCCESS && share)
        mpi_errno = set_bases(win, share, part);
    MPL_free(part);
    return mpi_errno;
}
