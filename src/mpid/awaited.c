/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "bytes.h"

/*
 * Blocking receives without a request. CH3 makes a request for each receive, puts it into the list
 * of posted ones, finds it there when its message comes, and frees it: a third of the instructions
 * of a receive. Where nothing is posted and no message is unexpected, MPI_Recv, and collective
 * operations, await their message here first: a short one goes into the program's buffer as it
 * arrives. The receive is posted after all, and all is as without this file,
 *
 *  - when its message is one that CH3 has to look at, such as a rendezvous: before CH3 does
 *  - when the wait has been as long as waits spin, or its message may not come (lost peers) or
 *    waits for a posted receive (unexpected.c)
 */

MDAPL_REPLACE(MPID_Recv, void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag,
              MPIR_Comm *comm, int attr, MPI_Status *status, MPIR_Request **request);

struct mdapl_ch3_awaited {
    void *buf;                   /* the arguments of MPID_Recv() */
    MPI_Aint count;
    MPI_Datatype datatype;
    int rank, tag;
    MPIR_Comm *comm;
    int attr;
    MPI_Status *status;
    MPIR_Request **request;
    int context_id;
    int n_lost;                  /* peers that were, when it began */
    bool over;                   /* received or posted: */
    int mpi_errno;               /* with this result */
};

/* Is a message of this rank's own, which the channel does not see, the one that it receives? */
static bool may_be_own(const struct mdapl_ch3_awaited *a)
{
    return a->rank == MPI_ANY_SOURCE
           ? MPIDI_CH3U_Recvq_FU(a->rank, a->tag, a->context_id, MPI_STATUS_IGNORE)
           : a->rank == a->comm->rank && a->comm->comm_kind != MPIR_COMM_KIND__INTERCOMM;
}

/* Is the next message that arrives with its envelope for this receive? */
static bool may_await(struct mdapl_ch3_glue *g, const struct mdapl_ch3_awaited *a)
{
    return g->ctx && g->recvs.posted == 0 && mdapl_ch3_unexpected_none(g) && !g->recvs.paused
           && !g->awaited && !a->comm->revoked && !may_be_own(a)
           && MPIR_ThreadInfo.thread_provided != MPI_THREAD_MULTIPLE;
}

/* Has it its message, or has CH3 to decide what it gets? */
static bool is_over(const void *arg)
{
    const struct mdapl_ch3_awaited *a = arg;
    const struct mdapl_ch3_glue *g = &mdapl_ch3_glue;

    return a->over || g->recvs.paused || g->n_lost != a->n_lost || a->comm->revoked;
}

static int post(struct mdapl_ch3_awaited *a)
{
    return __real_MPID_Recv(a->buf, a->count, a->datatype, a->rank, a->tag, a->comm, a->attr,
                            a->status, a->request);
}

int __wrap_MPID_Recv(void *buf, MPI_Aint count, MPI_Datatype datatype, int rank, int tag,
                     MPIR_Comm *comm, int attr, MPI_Status *status, MPIR_Request **request)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    struct mdapl_ch3_awaited a = {
        .buf = buf, .count = count, .datatype = datatype, .rank = rank, .tag = tag, .comm = comm,
        .attr = attr, .status = status, .request = request,
        .context_id = comm->recvcontext_id + mdapl_mpich_context_of(attr),
        .n_lost = g->n_lost,
    };
    int mpi_errno;

    if (!may_await(g, &a))
        return post(&a);
    *request = NULL;
    g->awaited = &a;
    mpi_errno = mdapl_ch3_progress_spin(is_over, &a);
    g->awaited = NULL;
    if (a.over)
        return a.mpi_errno;
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = post(&a);
    if (!*request)
        g->spun = 0;
    return mpi_errno;
}

static bool is_for(const struct mdapl_ch3_awaited *a, const MPIDI_Message_match *match)
{
    return match->parts.context_id == a->context_id
           && (a->rank == match->parts.rank || a->rank == MPI_ANY_SOURCE)
           && (a->tag == match->parts.tag || a->tag == MPI_ANY_TAG
               || a->tag == MPIR_TAG_MASK_ERROR_BITS(match->parts.tag));
}

/* Does its tag say that the sender of a collective operation has met an error? */
static bool has_error(const struct mdapl_ch3_awaited *a, const MPIDI_Message_match *match)
{
    return a->tag != match->parts.tag
           && match->parts.tag != MPIR_TAG_MASK_ERROR_BITS(match->parts.tag);
}

/* The bytes of a message that is here as a whole; NULL: it is not. */
static const void *whole_body(const MPIDI_CH3_Pkt_t *pkt, const struct mdapl_rx_msg *m,
                              size_t *len_p)
{
    switch (pkt->type) {
    case MPIDI_CH3_PKT_EAGERSHORT_SEND:
        *len_p = (size_t)pkt->eagershort_send.data_sz;
        return pkt->eagershort_send.data;
    case MPIDI_CH3_PKT_EAGER_SEND:
        *len_p = m->len;
        return m->rx || m->len != (size_t)pkt->eager_send.data_sz ? NULL : m->len ? m->data : "";
    default:
        return NULL;
    }
}

/* As memcpy(): from the cache of another core glibc's is faster than a copy by lines. */
static inline void copy(void *to, const void *from, size_t n)
{
    if (n > 64 && n < MDAPL_BYTES_LONG)
        memcpy(to, from, n);
    else
        mdapl_bytes_copy(to, from, n);
}

/* Copies len bytes to the program's buffer, if they fit there in a row. */
static bool copied(const struct mdapl_ch3_awaited *a, const void *body, size_t len)
{
    MPIR_Datatype *type;
    MPI_Aint room, true_lb;
    int in_a_row;

    MPIDI_Datatype_get_info(a->count, a->datatype, in_a_row, room, type, true_lb);
    (void)type;
    if (!in_a_row || len > (size_t)room)
        return false;
    copy(MPIR_get_contig_ptr(a->buf, true_lb), body, len);
    return true;
}

static void fill_status(MPI_Status *status, const MPIDI_Message_match *match, size_t len)
{
    if (status == MPI_STATUS_IGNORE)
        return;
    status->MPI_SOURCE = match->parts.rank;
    status->MPI_TAG = match->parts.tag;
    status->MPI_ERROR = MPI_SUCCESS;
    MPIR_STATUS_SET_COUNT(*status, (MPI_Aint)len);
    MPIR_STATUS_SET_CANCEL_BIT(*status, FALSE);
}

bool mdapl_ch3_awaited_arrived(struct mdapl_ch3_glue *g, const MPIDI_CH3_Pkt_t *pkt,
                               const struct mdapl_rx_msg *m)
{
    struct mdapl_ch3_awaited *a = g->awaited;
    const MPIDI_Message_match *match = mdapl_ch3_match_of(pkt);
    const void *body;
    size_t len;

    /* While peers are paused CH3 decides: to post may resume them, and this is an upcall. */
    if (!match || a->over || !is_for(a, match) || g->recvs.paused)
        return false;
    a->over = true;
    body = whole_body(pkt, m, &len);
    if (body && !has_error(a, match) && copied(a, body, len)) {
        fill_status(a->status, match, len);
        mdapl_ctx_stats(g->ctx)->awaited++;
        return true;
    }
    a->mpi_errno = post(a);
    return false;
}
