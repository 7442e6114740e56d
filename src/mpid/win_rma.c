/* SPDX-License-Identifier: MIT */
#include "win_rma.h"

#include "log.h"

#include <errno.h>

/*
 * The memory of windows that RDMA reaches: each rank exposes its own, and all ranks exchange the
 * descriptions when the window is made. One that has become void is asked for anew, with a packet
 * of the channel's own.
 */

/* -- windows ---------------------------------------------------------------------------------- */

/* Do all ranks share the node? Then shared memory or messages reach them, the same for all. */
static bool is_on_one_node(const MPIR_Comm *comm)
{
    return comm->node_comm && comm->node_comm->local_size == comm->local_size
           && mdapl_ch3_shm_is_chosen();
}

static struct mdapl_ch3_rma *make(const MPIR_Comm *comm)
{
    struct mdapl_ch3_rma *rma = MPL_calloc(1, sizeof(*rma) + sizeof(rma->target[0])
                                              * (size_t)comm->local_size, MPL_MEM_RMA);
    int n = MPIDI_PG_Get_size(mdapl_ch3_glue.pg);

    if (rma)
        rma->rank_of = MPL_malloc((size_t)n * sizeof(int), MPL_MEM_RMA);
    if (rma && !rma->rank_of) {
        MPL_free(rma);
        rma = NULL;
    }
    for (int i = 0; rma && i < n; i++)
        rma->rank_of[i] = -1;
    return rma;
}

static void map_ranks(struct mdapl_ch3_rma *rma, MPIR_Comm *comm)
{
    for (int i = 0; i < comm->local_size; i++) {
        MPIDI_VC_t *vc;

        MPIDI_Comm_get_vc(comm, i, &vc);
        if (vc->pg == mdapl_ch3_glue.pg)
            rma->rank_of[vc->pg_rank] = i;
    }
}

/* Exposes this rank's memory, if its adapter can. */
static void expose(struct mdapl_ch3_rma *rma, void *base, MPI_Aint size,
                   struct mdapl_ch3_place *place)
{
    int rc = size > 0 ? mdapl_expose(mdapl_ch3_glue.ctx, base, (size_t)size, &rma->mine) : 0;

    rma->id = ++mdapl_ch3_glue.last_window;
    if (rma->mine) {
        place->id = rma->id;
        mdapl_exposed_where(rma->mine, &place->where);
    }
    if (rc == -ENOMEM)
        mdapl_log(mdapl_ctx_log(mdapl_ch3_glue.ctx), MDAPL_INFO, "a window's memory of %lld bytes "
                  "cannot be registered; it goes in messages", (long long)size);
}

void mdapl_ch3_rma_free(MPIR_Win *win)
{
    struct mdapl_ch3_rma *rma = win->ch.rma;

    win->ch.rma = NULL;
    if (!rma)
        return;
    if (rma->mine && mdapl_ch3_glue.ctx)
        mdapl_withdraw(rma->mine);
    MPL_free(rma->rank_of);
    MPL_free(rma);
}

/* All ranks learn where the memory of the others is. Collective. An MPI error code. */
static int share_places(MPIR_Win *win, void *base, MPI_Aint size)
{
    MPIR_Comm *comm = win->comm_ptr;
    struct mdapl_ch3_place *all = MPL_calloc((size_t)comm->local_size, sizeof(*all), MPL_MEM_RMA);
    struct mdapl_ch3_rma *rma = all ? make(comm) : NULL;
    int mpi_errno = MPI_SUCCESS;

    if (!rma) {
        MPL_free(all);
        MPIR_ERR_SET(mpi_errno, MPI_ERR_NO_MEM, "**nomem");
        return mpi_errno;
    }
    win->ch.rma = rma;
    map_ranks(rma, comm);
    expose(rma, base, size, &all[comm->rank]);
    mpi_errno = mdapl_mpich_allgather(all, sizeof(*all), comm);
    for (int i = 0; mpi_errno == MPI_SUCCESS && i < comm->local_size; i++)
        rma->target[i].place = all[i];
    MPL_free(all);
    return mpi_errno;
}

/* CH3's hook in which ranks of all kinds of windows exchange the addresses of their memory. */
int mdapl_ch3_rma_gather_info(void *base, MPI_Aint size, int disp_unit, MPIR_Info *info,
                              MPIR_Comm *comm, MPIR_Win **win_p)
{
    MPIR_Win *win = *win_p;
    int mpi_errno = MPIDI_CH3U_Win_gather_info(base, size, disp_unit, info, comm, win_p);

    /* The memory of a dynamic window is attached later, and CH3 has no hook for that. */
    if (mpi_errno != MPI_SUCCESS || win->create_flavor == MPI_WIN_FLAVOR_DYNAMIC
        || !mdapl_ch3_glue.ctx || win->comm_ptr->local_size == 1 || is_on_one_node(win->comm_ptr))
        return mpi_errno;
    return share_places(win, base, size);
}

/* -- an adapter that has been opened again ---------------------------------------------------- */

enum { WHERE_MAX = 56 };         /* bytes of a description that a packet has room for */

/* A request for the description of a window's memory, and the answer. */
struct where_pkt {
    MPIDI_CH3_Pkt_type_t type;
    MPI_Win win;                 /* handle of its receiver */
    uint32_t id;                 /* of the window whose memory it is */
    MPI_Win answer_to;           /* the handle of its sender */
    uint16_t len;                /* of an answer; 0: it is not exposed any more */
    uint8_t bytes[WHERE_MAX];
};

_Static_assert(sizeof(struct where_pkt) <= sizeof(MPIDI_CH3_Pkt_t), "it is sent as a packet");

static void send_where(MPIDI_VC_t *vc, const struct where_pkt *where)
{
    MPIDI_CH3_Pkt_t pkt;

    memset(&pkt, 0, sizeof(pkt));
    memcpy(&pkt, where, sizeof(*where));
    mdapl_ch3_send_packet(vc, &pkt);
}

void mdapl_ch3_win_ask(MPIR_Win *win, int rank, MPIDI_VC_t *vc)
{
    struct mdapl_ch3_place *place = &win->ch.rma->target[rank].place;
    struct where_pkt ask = {
        .type = MPIDI_CH3I_PKT_DAPL_ASK, .win = win->basic_info_table[rank].win_handle,
        .id = place->id, .answer_to = win->handle,
    };

    if (place->where.len == 0)
        return;
    place->where.len = 0;
    send_where(vc, &ask);
}

/* The window with this handle; NULL: it has been freed, or it is another one. */
static MPIR_Win *find(MPIR_Win *list, MPI_Win handle)
{
    while (list && (list->handle != handle || !list->ch.rma))
        list = list->next;
    return list;
}

static MPIR_Win *find_window(MPI_Win handle)
{
    MPIR_Win *win = find(MPIDI_RMA_Win_active_list_head, handle);

    return win ? win : find(MPIDI_RMA_Win_inactive_list_head, handle);
}

int mdapl_ch3_rma_asked(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, void *data, intptr_t *buflen,
                        MPIR_Request **rreq_p)
{
    struct where_pkt where;
    struct mdapl_where now;
    MPIR_Win *win;

    (void)data;
    *buflen = 0;
    *rreq_p = NULL;
    memcpy(&where, pkt, sizeof(where));
    win = find_window(where.win);
    if (!win || win->ch.rma->id != where.id || !win->ch.rma->mine)
        return MPI_SUCCESS;
    mdapl_exposed_where(win->ch.rma->mine, &now);
    where.type = MPIDI_CH3I_PKT_DAPL_WHERE;
    where.win = where.answer_to;
    where.len = now.len <= WHERE_MAX ? now.len : 0;
    memcpy(where.bytes, now.bytes, where.len);
    send_where(vc, &where);
    return MPI_SUCCESS;
}

int mdapl_ch3_rma_answered(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, void *data, intptr_t *buflen,
                           MPIR_Request **rreq_p)
{
    struct where_pkt where;
    MPIR_Win *win;
    int rank;

    (void)data;
    *buflen = 0;
    *rreq_p = NULL;
    memcpy(&where, pkt, sizeof(where));
    win = find_window(where.win);
    rank = win ? mdapl_ch3_win_rank(win->ch.rma, vc) : -1;
    if (rank < 0 || win->ch.rma->target[rank].place.id != where.id || where.len > WHERE_MAX)
        return MPI_SUCCESS;
    win->ch.rma->target[rank].place.where.len = where.len;
    memcpy(win->ch.rma->target[rank].place.where.bytes, where.bytes, where.len);
    return MPI_SUCCESS;
}
