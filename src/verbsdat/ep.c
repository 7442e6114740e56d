/* SPDX-License-Identifier: MIT */
#include "ep.h"

#include "verbsdat.h"
#include "calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    DTOS = 128, IOVS = 4, READS = 16,    /* of an EP that is created without attributes */
    DRAIN_US = 50,               /* between two looks at the CQs of an EP that is being freed */
    DRAIN_LOOKS = 100000,        /* an adapter that flushes nothing for 5 s has failed */
    LOST_MS = 20,                /* what has not been flushed then has vanished */
};

static const DAT_RETURN bad_ep = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP;
static const DAT_RETURN no_qp = DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES | DAT_RESOURCE_TEP;

struct verbsdat_ep *verbsdat_ep_of(DAT_EP_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_EP);
}

/* -- queues ------------------------------------------------------------------------------------ */

static bool queue_make(struct verbsdat_queue *q, struct verbsdat_ep *ep, DAT_COUNT max,
                       enum verbsdat_kind kind)
{
    uint32_t n = 1;

    while (n < (uint32_t)max)
        n *= 2;
    q->slot = calloc(n, sizeof(*q->slot));
    if (!q->slot)
        return false;
    q->mask = n - 1;
    q->max = (uint32_t)max;
    for (uint32_t i = 0; i < n; i++)
        q->slot[i] = (struct verbsdat_slot){ .ep = ep, .kind = (uint8_t)kind };
    return true;
}

/* A write of no bytes, which needs no key (IBA 9.7.4.1.3). On a QP in the error state it is
 * flushed, behind all that was posted before. */
static int write_nothing(struct verbsdat_ep *ep, struct verbsdat_slot *slot)
{
    struct ibv_send_wr wr = { .wr_id = (uintptr_t)slot, .opcode = IBV_WR_RDMA_WRITE,
                              .send_flags = IBV_SEND_SIGNALED }, *bad;

    slot->number = ep->req.head;
    return ibv_post_send(ep->qp, &wr, &bad);
}

void verbsdat_ep_mark(struct verbsdat_ep *ep)
{
    if (ep->silent_run == 0 || ep->marked)
        return;
    ep->marked = true;
    write_nothing(ep, &ep->mark);        /* an iWARP QP that has failed may take none */
}

void verbsdat_ep_announce(struct verbsdat_ep *ep)
{
    datlock_take(&ep->lock);
    if (!ep->over && !atomic_exchange(&ep->announcing, true) && write_nothing(ep, &ep->announce))
        atomic_store(&ep->announcing, false);
    datlock_release(&ep->lock);
}

bool verbsdat_ep_loses(const struct verbsdat_ep *ep)
{
    return ep->h.ia->iwarp || atomic_load(&ep->h.ia->lost);
}

/*
 * An InfiniBand QP in the error state flushes what is posted (IBA 10.3.1.7); Soft-RoCE does it with
 * receives when the state is set the next time. On iWARP only what was posted before is flushed
 * (RDMA Verbs, 6.2.4), while the rest vanishes, and a device that has been removed may flush
 * nothing: the time is limited.
 */
void verbsdat_ep_flush(struct verbsdat_ep *ep)
{
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

    datlock_take(&ep->lock);
    ep->over = true;
    verbsdat_ep_mark(ep);
    datlock_release(&ep->lock);
    ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE);
    if (!verbsdat_ep_loses(ep))
        return;
    ep->deadline = verbsdat_now() + (uint64_t)LOST_MS * 1000000;
    verbsdat_thread_deadline(ep->h.ia, ep->deadline);
}

/* Completes the first DTO of a queue in place of the adapter; with ep->lock. False: there is none.
 * Whether a request without a completion has been executed is not known. */
static bool complete_lost(struct verbsdat_queue *q, struct verbsdat_evd *evd)
{
    struct verbsdat_slot *slot;
    DAT_EVENT event;
    bool idle, reported = false;

    datlock_take(&evd->lock);
    idle = verbsdat_queue_idle(q);
    slot = &q->slot[atomic_load(&q->tail) & q->mask];
    if (!idle)
        reported = verbsdat_done(evd, &(struct ibv_wc){ .wr_id = (uintptr_t)slot,
                                                        .status = IBV_WC_WR_FLUSH_ERR }, &event);
    datlock_release(&evd->lock);
    if (reported && !slot->silent)
        verbsdat_evd_post(evd, &event);
    return !idle;
}

void verbsdat_ep_lost(struct verbsdat_ep *ep)
{
    verbsdat_evd_pull(ep->req_evd);
    verbsdat_evd_pull(ep->recv_evd);
    datlock_take(&ep->lock);
    while (complete_lost(&ep->req, ep->req_evd))
        ;
    while (!ep->srq && complete_lost(&ep->recv, ep->recv_evd))
        ;
    datlock_release(&ep->lock);
}

/* Waits until all DTOs have completed and are queued as events. False: some do not. */
static bool drain(struct verbsdat_ep *ep)
{
    for (int i = 0; i < DRAIN_LOOKS; i++) {
        verbsdat_evd_drain(ep->req_evd);
        verbsdat_evd_drain(ep->recv_evd);
        if (verbsdat_queue_idle(&ep->req) && (ep->srq || verbsdat_queue_idle(&ep->recv)))
            return true;
        verbsdat_sleep(-1, -1, DRAIN_US * 1000);
    }
    return false;
}

/* -- the QP ------------------------------------------------------------------------------------ */

static struct ibv_qp_init_attr qp_attr(const struct verbsdat_ep *ep, uint32_t inlined)
{
    const DAT_EP_ATTR *a = &ep->attr;

    return (struct ibv_qp_init_attr){
        .qp_context = (void *)(uintptr_t)ep,
        .send_cq = ep->req_evd->cq,
        .recv_cq = ep->recv_evd->cq,
        .srq = ep->srq ? ep->srq->srq : NULL,
        .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = (uint32_t)a->max_request_dtos + 2,      /* mark and announce */
                 .max_recv_wr = ep->srq ? 0 : (uint32_t)a->max_recv_dtos,
                 .max_send_sge = ep->max_iov,
                 .max_recv_sge = ep->srq ? 0 : (uint32_t)a->max_recv_iov,
                 .max_inline_data = inlined },
    };
}

/* A new QP, in the state INIT; NULL: errno says why. It is made on the IA's identifier, which knows
 * port and P_Key: the EP gets one of its own when it connects, since each holds a TCP port at which
 * a consumer may want to listen. Adapters differ in what they can inline, and do not say how much
 * before they refuse. */
static struct ibv_qp *make_qp(struct verbsdat_ep *ep)
{
    struct rdma_cm_id *id = ep->h.ia->id;
    uint32_t inlined = ep->h.ia->cfg.max_inline;
    struct ibv_qp_init_attr attr;
    struct ibv_qp *qp;
    int rc;

    verbsdat_lock(ep->h.ia);
    do {
        attr = qp_attr(ep, inlined);
        rc = rdma_create_qp(id, ep->pz->pd, &attr);
        inlined /= 2;
    } while (rc && inlined > 0);
    qp = id->qp;
    id->qp = NULL;
    verbsdat_unlock(ep->h.ia);
    ep->max_inline = attr.cap.max_inline_data;
    return qp;
}

static void begin(struct verbsdat_ep *ep, struct ibv_qp *qp)
{
    ep->qp = qp;
    ep->silent_run = 0;
    ep->marked = ep->over = ep->abandoned = false;
    ep->deadline = ep->path.due = UINT64_MAX;
    atomic_store(&ep->fault, false);
    atomic_store(&ep->announcing, false);
    if (ep->srq)
        verbsdat_by_qp_add(ep);
}

/* Ends the QP and its connection, when all DTOs have completed. Without ia->lock. */
static void end(struct verbsdat_ep *ep)
{
    struct rdma_cm_id *id;

    verbsdat_lock(ep->h.ia);
    id = verbsdat_ep_take_id(ep);
    verbsdat_unlock(ep->h.ia);
    if (ep->srq)
        verbsdat_by_qp_remove(ep);
    ibv_destroy_qp(ep->qp);
    if (id)
        rdma_destroy_id(id);
}

/* -- creating ---------------------------------------------------------------------------------- */

static DAT_EP_ATTR default_attr(const struct verbsdat_ia *ia)
{
    const struct ibv_device_attr *d = &ia->device;
    DAT_COUNT iov = d->max_sge < IOVS ? d->max_sge : IOVS;
    DAT_COUNT dtos = d->max_qp_wr <= DTOS ? d->max_qp_wr - 2 : DTOS;

    return (DAT_EP_ATTR){
        .service_type = DAT_SERVICE_TYPE_RC,
        .max_message_size = ia->port.max_msg_sz,
        .max_rdma_size = ia->port.max_msg_sz,
        .qos = DAT_QOS_BEST_EFFORT,
        .max_recv_dtos = dtos,
        .max_request_dtos = dtos,
        .max_recv_iov = iov,
        .max_request_iov = iov,
        .max_rdma_read_in = d->max_qp_rd_atom < READS ? d->max_qp_rd_atom : READS,
        .max_rdma_read_out = d->max_qp_init_rd_atom < READS ? d->max_qp_init_rd_atom : READS,
        .max_rdma_read_iov = 1,
        .max_rdma_write_iov = iov,
    };
}

static bool within(DAT_COUNT n, int64_t max)
{
    return n >= 0 && n <= max;
}

static bool fits(const struct verbsdat_ia *ia, const DAT_EP_ATTR *a)
{
    const struct ibv_device_attr *d = &ia->device;
    int iov = d->max_sge < VERBSDAT_MAX_IOV ? d->max_sge : VERBSDAT_MAX_IOV;

    return a->service_type == DAT_SERVICE_TYPE_RC
           && within(a->max_recv_dtos, (int64_t)d->max_qp_wr - 2)
           && within(a->max_request_dtos, (int64_t)d->max_qp_wr - 2)
           && within(a->max_recv_iov, iov) && within(a->max_request_iov, iov)
           && within(a->max_rdma_read_iov, iov) && within(a->max_rdma_write_iov, iov)
           && within(a->max_rdma_read_in, d->max_qp_rd_atom)
           && within(a->max_rdma_read_out, d->max_qp_init_rd_atom)
           && a->max_message_size <= ia->port.max_msg_sz && a->max_rdma_size <= ia->port.max_msg_sz
           && !(a->recv_completion_flags & DAT_COMPLETION_SUPPRESS_FLAG);
}

static DAT_COUNT at_least_one(DAT_COUNT n)
{
    return n > 0 ? n : 1;
}

static DAT_COUNT larger(DAT_COUNT a, DAT_COUNT b)
{
    return a > b ? a : b;
}

static struct verbsdat_ep *ep_make(const struct verbsdat_ia *ia, const DAT_EP_ATTR *attr)
{
    struct verbsdat_ep *ep = calloc(1, sizeof(*ep));

    if (!ep)
        return NULL;
    ep->attr = attr ? *attr : default_attr(ia);
    ep->attr.max_request_dtos = at_least_one(ep->attr.max_request_dtos);
    ep->attr.max_recv_dtos = at_least_one(ep->attr.max_recv_dtos);
    /* a QP has one limit for its requests of all kinds */
    ep->max_iov = (uint32_t)larger(at_least_one(ep->attr.max_request_iov),
                                   larger(ep->attr.max_rdma_read_iov,
                                          ep->attr.max_rdma_write_iov));
    ep->attr.max_recv_iov = at_least_one(ep->attr.max_recv_iov);
    ep->max_silent = (uint32_t)at_least_one(ep->attr.max_request_dtos * 3 / 4);
    ep->mark = ep->announce = (struct verbsdat_slot){ .ep = ep, .kind = VERBSDAT_MARK };
    datlock_init(&ep->lock);
    if (queue_make(&ep->req, ep, ep->attr.max_request_dtos, VERBSDAT_SEND)
        && queue_make(&ep->recv, ep, ep->attr.max_recv_dtos, VERBSDAT_RECV))
        return ep;
    free(ep->req.slot);
    free(ep);
    return NULL;
}

static void ep_unmake(struct verbsdat_ep *ep)
{
    free(ep->req.slot);
    free(ep->recv.slot);
    datlock_destroy(&ep->lock);
}

static void count_users(struct verbsdat_ep *ep, int n)
{
    struct verbsdat_evd *evd[] = { ep->recv_evd, ep->req_evd, ep->conn_evd };

    for (int i = 0; i < 3; i++)
        if (evd[i])
            atomic_fetch_add(&evd[i]->users, (unsigned)n);
    atomic_fetch_add(&ep->pz->users, (unsigned)n);
    if (ep->srq)
        atomic_fetch_add(&ep->srq->users, (unsigned)n);
}

/* The EVDs of an EP: transfers need a CQ, connection events only a queue. */
static DAT_RETURN set_evds(struct verbsdat_ep *ep, DAT_EVD_HANDLE recv, DAT_EVD_HANDLE req,
                           DAT_EVD_HANDLE conn)
{
    ep->recv_evd = verbsdat_evd_of(recv);
    ep->req_evd = verbsdat_evd_of(req);
    ep->conn_evd = verbsdat_evd_of(conn);
    if (!ep->recv_evd || !ep->recv_evd->cq)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_RECV);
    if (!ep->req_evd || !ep->req_evd->cq)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_REQUEST);
    if (conn && !ep->conn_evd)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CONN);
    return DAT_SUCCESS;
}

static DAT_RETURN create(struct verbsdat_ia *ia, struct verbsdat_pz *pz, DAT_EVD_HANDLE recv,
                         DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn, struct verbsdat_srq *srq,
                         const DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep_p)
{
    struct verbsdat_ep *ep;
    struct ibv_qp *qp = NULL;
    DAT_RETURN ret;

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!pz || pz->h.ia != ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    if (!ep_p || (attr && !fits(ia, attr)))
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
    ep = ep_make(ia, attr);
    if (!ep)
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    ep->pz = pz;
    ep->srq = srq;
    atomic_store(&ep->state, DAT_EP_STATE_UNCONNECTED);
    ep->h.ia = ia;
    ret = set_evds(ep, recv, req, conn);
    if (ret == DAT_SUCCESS && !(qp = make_qp(ep)))
        ret = no_qp;
    if (ret != DAT_SUCCESS) {
        ep_unmake(ep);
        free(ep);
        return ret;
    }
    begin(ep, qp);
    count_users(ep, 1);
    verbsdat_handle_add(&ep->h, ia, DAT_HANDLE_TYPE_EP);
    *ep_p = ep;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_ep_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv,
                              DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn, const DAT_EP_ATTR *attr,
                              DAT_EP_HANDLE *ep_p)
{
    return create(verbsdat_ia_of(ia), verbsdat_get(pz, DAT_HANDLE_TYPE_PZ), recv, req, conn, NULL,
                  attr, ep_p);
}

DAT_RETURN verbsdat_ep_create_with_srq(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv,
                                       DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn,
                                       DAT_SRQ_HANDLE srq_handle, const DAT_EP_ATTR *attr,
                                       DAT_EP_HANDLE *ep_p)
{
    struct verbsdat_srq *srq = verbsdat_get(srq_handle, DAT_HANDLE_TYPE_SRQ);

    if (!srq)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_SRQ);
    return create(verbsdat_ia_of(ia), verbsdat_get(pz, DAT_HANDLE_TYPE_PZ), recv, req, conn, srq,
                  attr, ep_p);
}

/* -- freeing and resetting --------------------------------------------------------------------- */

DAT_RETURN verbsdat_ep_free(DAT_EP_HANDLE handle)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);
    struct verbsdat_ia *ia;
    bool drained;

    if (!ep)
        return bad_ep;
    ia = ep->h.ia;
    verbsdat_lock(ia);
    verbsdat_ep_abort(ep);
    verbsdat_ask_forget(ep);
    verbsdat_unlock(ia);
    drained = drain(ep);
    end(ep);
    count_users(ep, -1);
    verbsdat_lock(ia);
    if (drained) {
        ep_unmake(ep);
        verbsdat_handle_end(&ep->h);
    } else {                     /* completions may still point to it */
        ep->h.alive = 0;
        mdapl_list_remove(&ep->h.link);
    }
    verbsdat_unlock(ia);
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_ep_reset(DAT_EP_HANDLE handle)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);
    DAT_EP_STATE state;
    struct ibv_qp *qp;

    if (!ep)
        return bad_ep;
    state = atomic_load(&ep->state);
    if (state != DAT_EP_STATE_UNCONNECTED && state != DAT_EP_STATE_DISCONNECTED)
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
    verbsdat_lock(ep->h.ia);
    verbsdat_ep_flush(ep);
    verbsdat_unlock(ep->h.ia);
    if (!drain(ep))
        return VERBSDAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    qp = make_qp(ep);
    if (!qp)
        return no_qp;
    end(ep);
    begin(ep, qp);
    verbsdat_lock(ep->h.ia);
    atomic_store(&ep->state, DAT_EP_STATE_UNCONNECTED);
    verbsdat_unlock(ep->h.ia);
    return DAT_SUCCESS;
}

/* -- queries ----------------------------------------------------------------------------------- */

DAT_RETURN verbsdat_ep_query(DAT_EP_HANDLE handle, DAT_EP_PARAM_MASK mask, DAT_EP_PARAM *p)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);

    (void)mask;
    if (!ep)
        return bad_ep;
    if (!p)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    memset(p, 0, sizeof(*p));
    verbsdat_lock(ep->h.ia);
    p->ia_handle = ep->h.ia;
    p->ep_state = atomic_load(&ep->state);
    p->local_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ep->h.ia->cfg.addr;
    p->remote_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ep->remote;
    p->remote_port_qual = ep->remote_qual;
    p->pz_handle = ep->pz;
    p->recv_evd_handle = ep->recv_evd;
    p->request_evd_handle = ep->req_evd;
    p->connect_evd_handle = ep->conn_evd;
    p->srq_handle = ep->srq;
    p->ep_attr = ep->attr;
    verbsdat_unlock(ep->h.ia);
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_ep_get_status(DAT_EP_HANDLE handle, DAT_EP_STATE *state, DAT_BOOLEAN *recv_idle,
                                  DAT_BOOLEAN *req_idle)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);

    if (!ep)
        return bad_ep;
    if (state)
        *state = atomic_load(&ep->state);
    verbsdat_evd_pull(ep->req_evd);
    verbsdat_evd_pull(ep->recv_evd);
    datlock_take(&ep->lock);
    if (recv_idle)
        *recv_idle = ep->srq ? ep->srq->posted == 0 : verbsdat_queue_idle(&ep->recv);
    if (req_idle)
        *req_idle = verbsdat_queue_idle(&ep->req);
    datlock_release(&ep->lock);
    return DAT_SUCCESS;
}
