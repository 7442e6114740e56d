/* SPDX-License-Identifier: MIT */
#include "win_rma.h"

#include <errno.h>

/*
 * Puts and gets by RDMA. CH3 makes packets of all one-sided operations and hands them to
 * MPIDI_CH3_iStartMsg() and the like. This file has a look at those packets before they are sent,
 * for each window and target:
 *
 *      PUT, GET    of contiguous memory that the target has exposed become mdapl_put() and
 *                  mdapl_get(), and complete CH3's request. The others are sent as they are
 *      FLUSH, UNLOCK, DECR_AT_COUNTER, and the flags of an operation that stand for them, wait
 *                  until no put or get by RDMA to the target is in progress. Then the target
 *                  may know that the epoch has ended
 *
 * CH3 counts an acknowledgement of the target for each FLUSH and UNLOCK, and for each GET. When
 * nothing but RDMA has been used since the last one, this rank itself knows that all is complete,
 * and gives CH3 the acknowledgement: the target's processor has no part in it. A target is `dirty`
 * while it has to be asked.
 *
 * A put in an active target epoch, in which the target takes part anyway, goes as a message if it
 * fits a frame: many of them then need no event each. An operation with a LOCK is a message, since
 * the target's processor grants locks.
 */

enum {
    LOCK = MPIDI_CH3_PKT_FLAG_RMA_LOCK_SHARED | MPIDI_CH3_PKT_FLAG_RMA_LOCK_EXCLUSIVE,
    FLUSH = MPIDI_CH3_PKT_FLAG_RMA_FLUSH,
    UNLOCK = MPIDI_CH3_PKT_FLAG_RMA_UNLOCK,
    DECR = MPIDI_CH3_PKT_FLAG_RMA_DECR_AT_COUNTER,
    NO_ACK = MPIDI_CH3_PKT_FLAG_RMA_UNLOCK_NO_ACK,
};

/* A put or get by RDMA, with all that it takes to do it as a message after all. */
struct rma_op {
    struct mdapl_op op;
    MPIR_Win *win;
    int rank;
    MPIDI_VC_t *vc;
    MPIR_Request *req;
    MPIDI_CH3_Pkt_t pkt;
    struct iovec body;           /* of a put */
};

/* -- the packets ------------------------------------------------------------------------------ */

enum what { NOT_OURS, OPERATION, END };

/* Where a packet has its flags, and what leads to its window. */
static const struct shape {
    uint8_t what, flags, handle;
    bool by_request;
} shapes[MPIDI_CH3_PKT_END_CH3] = {
#define SHAPE(WHAT, member, by, handle)                         \
    { WHAT, offsetof(MPIDI_CH3_Pkt_t, member.pkt_flags),        \
      offsetof(MPIDI_CH3_Pkt_t, member.handle), by }
    [MPIDI_CH3_PKT_PUT] = SHAPE(OPERATION, put, false, source_win_handle),
    [MPIDI_CH3_PKT_PUT_IMMED] = SHAPE(OPERATION, put, false, source_win_handle),
    [MPIDI_CH3_PKT_GET] = SHAPE(OPERATION, get, true, request_handle),
    [MPIDI_CH3_PKT_ACCUMULATE] = SHAPE(OPERATION, accum, false, source_win_handle),
    [MPIDI_CH3_PKT_ACCUMULATE_IMMED] = SHAPE(OPERATION, accum, false, source_win_handle),
    [MPIDI_CH3_PKT_GET_ACCUM] = SHAPE(OPERATION, get_accum, true, request_handle),
    [MPIDI_CH3_PKT_GET_ACCUM_IMMED] = SHAPE(OPERATION, get_accum, true, request_handle),
    [MPIDI_CH3_PKT_FOP] = SHAPE(OPERATION, fop, true, request_handle),
    [MPIDI_CH3_PKT_FOP_IMMED] = SHAPE(OPERATION, fop, true, request_handle),
    [MPIDI_CH3_PKT_CAS_IMMED] = SHAPE(OPERATION, cas, true, request_handle),
    [MPIDI_CH3_PKT_UNLOCK] = SHAPE(END, unlock, false, source_win_handle),
    [MPIDI_CH3_PKT_DECR_AT_COUNTER] = SHAPE(END, decr_at_cnt, false, source_win_handle),
    /* It has no flags: those of its type stand for them. */
    [MPIDI_CH3_PKT_FLUSH] = { END, offsetof(MPIDI_CH3_Pkt_t, type),
                              offsetof(MPIDI_CH3_Pkt_t, flush.source_win_handle), false },
};

static int *flags_of(MPIDI_CH3_Pkt_t *pkt)
{
    return (int *)(void *)((char *)pkt + shapes[pkt->type].flags);
}

static MPIR_Win *win_of(const MPIDI_CH3_Pkt_t *pkt)
{
    const struct shape *shape = &shapes[pkt->type];
    int handle = *(const int *)(const void *)((const char *)pkt + shape->handle);
    MPIR_Request *req;
    MPIR_Win *win;

    if (shape->by_request) {
        MPIR_Request_get_ptr(handle, req);
        handle = req->dev.source_win_handle;
    }
    MPIR_Win_get_ptr(handle, win);
    return win;
}

/* -- the end of an epoch ---------------------------------------------------------------------- */

static void send_end(MPIR_Win *win, int rank, MPIDI_VC_t *vc, int type, int flags)
{
    MPI_Win there = win->basic_info_table[rank].win_handle;
    MPIDI_CH3_Pkt_t pkt;

    memset(&pkt, 0, sizeof(pkt));
    pkt.type = type;
    if (type == MPIDI_CH3_PKT_FLUSH) {
        pkt.flush.source_win_handle = win->handle;
        pkt.flush.target_win_handle = there;
    } else if (type == MPIDI_CH3_PKT_UNLOCK) {
        pkt.unlock.source_win_handle = win->handle;
        pkt.unlock.target_win_handle = there;
        pkt.unlock.pkt_flags = flags;
    } else {
        pkt.decr_at_cnt.source_win_handle = win->handle;
        pkt.decr_at_cnt.target_win_handle = there;
        pkt.decr_at_cnt.pkt_flags = flags;
    }
    mdapl_ch3_send_packet(vc, &pkt);
}

/* Gives CH3 what the target would have sent. */
static void acknowledge(MPIR_Win *win, int rank, MPIDI_VC_t *vc)
{
    MPIDI_CH3_Pkt_t pkt;
    MPIR_Request *none = NULL;
    intptr_t len = 0;
    int mpi_errno;

    memset(&pkt, 0, sizeof(pkt));
    pkt.type = MPIDI_CH3_PKT_ACK;
    pkt.ack.source_win_handle = win->handle;
    pkt.ack.target_rank = rank;
    mpi_errno = mdapl_ch3_glue.handler[MPIDI_CH3_PKT_ACK](vc, &pkt, NULL, &len, &none);
    if (mpi_errno != MPI_SUCCESS)
        mdapl_ch3_handler_failed(mpi_errno, "the end of a flush");
}

/* No put or get by RDMA is in progress: sends what has waited for that. */
static void settle(MPIR_Win *win, int rank, MPIDI_VC_t *vc)
{
    struct mdapl_ch3_target *t = &win->ch.rma->target[rank];
    int ends = t->ends, acks = t->acks;
    bool ask = acks > 0 && t->dirty;

    if (t->in_flight > 0)
        return;
    t->ends = t->acks = 0;
    /* The target has all that was sent before the next epoch begins. */
    if (ask || ends)
        t->dirty = false;
    if (ends & DECR)
        send_end(win, rank, vc, MPIDI_CH3_PKT_DECR_AT_COUNTER, ask ? FLUSH : 0);
    else if (ends & UNLOCK)
        send_end(win, rank, vc, MPIDI_CH3_PKT_UNLOCK, ask ? 0 : NO_ACK);
    else if (ask)
        send_end(win, rank, vc, MPIDI_CH3_PKT_FLUSH, 0);
    for (acks -= ask; acks > 0; acks--)
        acknowledge(win, rank, vc);
}

/* FLUSH, UNLOCK or DECR_AT_COUNTER is sent by settle(). */
static void end_epoch(MPIR_Win *win, int rank, MPIDI_VC_t *vc, const MPIDI_CH3_Pkt_t *pkt)
{
    struct mdapl_ch3_target *t = &win->ch.rma->target[rank];

    if (pkt->type == MPIDI_CH3_PKT_FLUSH) {
        t->acks++;
    } else if (pkt->type == MPIDI_CH3_PKT_UNLOCK) {
        t->ends |= UNLOCK;
        t->acks += !(pkt->unlock.pkt_flags & NO_ACK);
    } else {
        t->ends |= DECR;
        t->acks += !!(pkt->decr_at_cnt.pkt_flags & FLUSH);
    }
    settle(win, rank, vc);
}

/* -- the end of a put or get ------------------------------------------------------------------ */

/* The operation goes as a message, as its flags have been dealt with. */
static void by_message(struct rma_op *o, struct mdapl_ch3_target *t)
{
    *flags_of(&o->pkt) &= MPIDI_CH3_PKT_FLAG_RMA_IMMED_RESP;
    if (o->pkt.type == MPIDI_CH3_PKT_GET) {
        mdapl_ch3_send_packet(o->vc, &o->pkt);
        return;
    }
    t->dirty = true;
    mdapl_ch3_send_body(o->vc, o->req, &o->pkt, &o->body, o->pkt.type == MPIDI_CH3_PKT_PUT, false);
}

/* Completes CH3's request. status: 0, or the negative errno of a lost peer: the job ends, as the
 * peer is a member of a window, and until then no epoch does. */
static void complete(struct rma_op *o, int status)
{
    int mpi_errno;

    if (status < 0)
        o->req->status.MPI_ERROR = mdapl_ch3_vc_error(o->vc);
    mpi_errno = MPID_Request_complete(o->req);
    if (mpi_errno != MPI_SUCCESS)
        mdapl_ch3_handler_failed(mpi_errno, "a put or a get");
}

static void rma_done(struct mdapl_op *op, int status)
{
    struct rma_op *o = MPL_container_of(op, struct rma_op, op);
    struct mdapl_ch3_target *t = &o->win->ch.rma->target[o->rank];

    t->in_flight--;
    if (status == -ESTALE) {
        mdapl_ch3_win_ask(o->win, o->rank, o->vc);
        by_message(o, t);
    } else {
        complete(o, status);
    }
    if (status == 0 || status == -ESTALE)
        settle(o->win, o->rank, o->vc);
    MPL_free(o);
}

/* -- puts and gets ---------------------------------------------------------------------------- */

/* Is the target at work on the window only when this rank is not? */
static bool is_passive(const MPIR_Win *win)
{
    return win->states.access_state != MPIDI_RMA_FENCE_GRANTED
           && win->states.access_state != MPIDI_RMA_PSCW_GRANTED;
}

/* Bytes of so many elements of a datatype that is a block without gaps; else 0. */
static size_t contiguous_bytes(MPI_Datatype type, MPI_Aint count)
{
    MPI_Aint size = 0;
    int contiguous;

    MPIR_Datatype_is_contig(type, &contiguous);
    if (contiguous)
        MPIR_Datatype_get_size_macro(type, size);
    return (size_t)size * (size_t)count;
}

/* The bytes that a put or get is about, in the memory of the target; false: it has other memory, or
 * a layout. */
static bool remote_bytes(const MPIR_Win *win, int rank, const void *addr, MPI_Datatype type,
                         int count, uint64_t *off_p, size_t *len_p)
{
    const MPIDI_Win_basic_info_t *info = &win->basic_info_table[rank];
    uint64_t off = (uint64_t)((uintptr_t)addr - (uintptr_t)info->base_addr);

    *off_p = off;
    *len_p = MPIR_DATATYPE_IS_PREDEFINED(type) ? contiguous_bytes(type, count) : 0;
    return *len_p > 0 && off <= (uint64_t)info->size && *len_p <= (uint64_t)info->size - off;
}

static int put(struct rma_op *o, struct mdapl_peer *peer, const struct mdapl_ch3_target *t,
               const struct iovec *body)
{
    const MPIDI_CH3_Pkt_put_t *p = &o->pkt.put;
    uint64_t off;
    size_t len;

    if (!remote_bytes(o->win, o->rank, p->addr, p->datatype, p->count, &off, &len)
        || (!is_passive(o->win) && len <= (size_t)o->vc->eager_max_msg_sz))
        return -ENOTSUP;
    o->body = body ? *body : (struct iovec){ (void *)(uintptr_t)&p->info.data, len };
    if (o->body.iov_len != len)
        return -EINVAL;
    o->req = MPIR_Request_create(MPIR_REQUEST_KIND__SEND);
    if (!o->req)
        return -ENOMEM;
    MPIR_Object_set_ref(o->req, 2);
    o->req->dev.match.parts.context_id = MDAPL_CONTEXT_PT2PT;
    o->req->dev.OnDataAvail = NULL;
    o->req->ch.pack = NULL;
    return mdapl_put(peer, &t->place.where, off, o->body.iov_base, len, &o->op);
}

static int get(struct rma_op *o, struct mdapl_peer *peer, const struct mdapl_ch3_target *t)
{
    const MPIDI_CH3_Pkt_get_t *p = &o->pkt.get;
    MPI_Aint true_lb;
    uint64_t off;
    size_t len;

    MPIR_Request_get_ptr(p->request_handle, o->req);
    if (!remote_bytes(o->win, o->rank, p->addr, p->datatype, p->count, &off, &len)
        || contiguous_bytes(o->req->dev.datatype, o->req->dev.user_count) != len)
        return -ENOTSUP;
    MPIR_Datatype_get_true_lb(o->req->dev.datatype, &true_lb);
    return mdapl_get(peer, &t->place.where, off, MPIR_get_contig_ptr(o->req->dev.user_buf, true_lb),
                     len, &o->op);
}

/* Does the operation by RDMA. False: it has to be sent. *sreq_p: the request of a put. */
static bool by_rdma(MPIR_Win *win, int rank, MPIDI_VC_t *vc, const MPIDI_CH3_Pkt_t *pkt,
                    const struct iovec *body, int n_body, MPIR_Request **sreq_p)
{
    struct mdapl_ch3_target *t = &win->ch.rma->target[rank];
    bool is_get = pkt->type == MPIDI_CH3_PKT_GET;
    struct mdapl_peer *peer;
    struct rma_op *o;
    int flags, rc;

    if (t->place.where.len == 0 || n_body != (pkt->type == MPIDI_CH3_PKT_PUT)
        || mdapl_ch3_vc_peer(vc, &peer) != 0 || !mdapl_peer_has_rma(peer))
        return false;
    o = MPL_malloc(sizeof(*o), MPL_MEM_RMA);
    if (!o)
        return false;
    *o = (struct rma_op){ .op.done = rma_done, .win = win, .rank = rank, .vc = vc, .pkt = *pkt };
    rc = is_get ? get(o, peer, t) : put(o, peer, t, n_body ? body : NULL);
    if (rc < 0) {
        if (o->req && !is_get) {
            MPIR_Request_free(o->req);
            MPIR_Request_free(o->req);
        }
        if (rc == -ESTALE)
            mdapl_ch3_win_ask(win, rank, vc);
        MPL_free(o);
        return false;
    }
    flags = *flags_of(&o->pkt);
    t->in_flight++;
    t->ends |= flags & (UNLOCK | DECR);
    t->acks += (flags & (FLUSH | UNLOCK)) != 0;
    *sreq_p = is_get ? NULL : o->req;
    return true;
}

/* An operation that is sent. *pkt is changed if it would show the target the end of an epoch
 * while puts or gets by RDMA are in progress. */
static void by_packet(struct mdapl_ch3_target *t, MPIDI_CH3_Pkt_t *pkt)
{
    int *flags = flags_of(pkt);

    if (t->in_flight > 0 && !(*flags & LOCK)) {
        t->ends |= *flags & (UNLOCK | DECR);
        t->acks += (*flags & UNLOCK) != 0;
        *flags &= ~(UNLOCK | DECR);
    }
    t->dirty = !(*flags & (FLUSH | UNLOCK));
}

/*
 * A packet of RMA is about to be sent. Returns what is to be sent: the packet itself, a changed
 * copy in *copy, or NULL: nothing. can_rdma: it has the layout of a put or get that RDMA can do;
 * then *sreq_p is the request of a put by RDMA.
 */
const MPIDI_CH3_Pkt_t *mdapl_ch3_rma_start(MPIDI_VC_t *vc, const MPIDI_CH3_Pkt_t *pkt,
                                           const struct iovec *body, int n_body,
                                           MPIR_Request **sreq_p, MPIDI_CH3_Pkt_t *copy)
{
    enum what what = (enum what)shapes[pkt->type].what;
    MPIR_Win *win = what == NOT_OURS ? NULL : win_of(pkt);
    int rank = win && win->ch.rma ? mdapl_ch3_win_rank(win->ch.rma, vc) : -1;

    if (rank < 0)
        return pkt;
    if (what == END) {
        end_epoch(win, rank, vc, pkt);
        return NULL;
    }
    *copy = *pkt;
    if (sreq_p && (pkt->type == MPIDI_CH3_PKT_GET || pkt->type == MPIDI_CH3_PKT_PUT
                   || pkt->type == MPIDI_CH3_PKT_PUT_IMMED)
        && !(*flags_of(copy) & LOCK) && by_rdma(win, rank, vc, pkt, body, n_body, sreq_p))
        return NULL;
    by_packet(&win->ch.rma->target[rank], copy);
    return copy;
}
