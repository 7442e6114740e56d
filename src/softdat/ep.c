/* SPDX-License-Identifier: MIT */
#include "ep.h"

#include "softdat.h"
#include "calls.h"

#include <string.h>

static struct softdat_ep *ep_of(DAT_EP_HANDLE handle)
{
    return softdat_get(handle, DAT_HANDLE_TYPE_EP);
}

static const DAT_RETURN bad_ep = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP;

/* -- completion ------------------------------------------------------------------------------- */

static void fill_event(DAT_EVENT *event, struct softdat_ep *ep, const struct softdat_dto *d)
{
    DAT_IB_EXTENSION_EVENT_DATA *ext = (DAT_IB_EXTENSION_EVENT_DATA *)(void *)
                                           event->event_extension_data;

    event->event_number = d->ext ? (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT : DAT_DTO_COMPLETION_EVENT;
    event->event_data.dto_completion_event_data = (DAT_DTO_COMPLETION_EVENT_DATA){
        .ep_handle = ep, .user_cookie = d->cookie, .status = d->status,
        .operation = (DAT_DTOS)d->op,
        .transfered_length = d->status == DAT_DTO_SUCCESS ? (DAT_SEG_LENGTH)d->len : 0,
    };
    if (!d->ext)
        return;
    memset(event->event_extension_data, 0, sizeof(event->event_extension_data));
    ext->type = (DAT_IB_EXT_TYPE)(d->ext - 1);
    ext->status = d->status == DAT_DTO_SUCCESS ? DAT_OP_SUCCESS : DAT_IB_OP_ERR;
    ext->val.immed.data = d->imm;
}

static void fill_bind_event(DAT_EVENT *event, const struct softdat_dto *d)
{
    event->event_number = DAT_RMR_BIND_COMPLETION_EVENT;
    event->event_data.rmr_completion_event_data = (DAT_RMR_BIND_COMPLETION_EVENT_DATA){
        .rmr_handle = d->bind.rmr, .user_cookie.as_64 = d->cookie.as_64, .status = d->status,
    };
}

void softdat_ep_complete(struct softdat_ep *ep, struct softdat_evd *evd,
                         const struct softdat_dto *d)
{
    DAT_EVENT *event;

    if (!evd || (d->status == DAT_DTO_SUCCESS && d->flags & DAT_COMPLETION_SUPPRESS_FLAG))
        return;
    event = softdat_evd_slot(evd);
    if (!event)
        return;
    if (d->op == SOFTDAT_DTO_BIND)
        fill_bind_event(event, d);
    else
        fill_event(event, ep, d);
    softdat_evd_push(evd, event);
}

static void reap_done(struct softdat_ep *ep)
{
    while (ep->req.count > 0 && softdat_ring_at(&ep->req, 0)->state == SOFTDAT_DTO_DONE) {
        softdat_ep_complete(ep, ep->req_evd, softdat_ring_at(&ep->req, 0));
        softdat_ring_pop(&ep->req);
    }
}

void softdat_ep_reap(struct softdat_ep *ep)
{
    reap_done(ep);
    /* A graceful disconnect ends after the last request (DAT 2.0, dat_ep_disconnect). */
    if (ep->state == DAT_EP_STATE_DISCONNECT_PENDING && ep->req.count == 0 && ep->conn
        && !ep->conn->bye_sent)
        softdat_tx_frame(ep->conn, SOFTDAT_BYE, NULL, 0);
}

struct softdat_dto *softdat_ep_pop_recv(struct softdat_ep *ep)
{
    struct softdat_dto *d = softdat_ring_at(&ep->rq->ring, 0);

    if (ep->has_current_recv)    /* of a send that has partly arrived on a former link */
        return &ep->current_recv;
    if (ep->rq->ring.count == 0)
        return NULL;
    ep->current_recv = *d;
    ep->current_recv.seg = ep->current_recv_seg;
    memcpy(ep->current_recv_seg, d->seg, (size_t)d->n_seg * sizeof(*d->seg));
    ep->has_current_recv = true;
    softdat_ring_pop(&ep->rq->ring);
    if (ep->srq)
        softdat_srq_consumed(ep->srq);
    return &ep->current_recv;
}

void softdat_ep_recv_done(struct softdat_ep *ep, DAT_DTO_COMPLETION_STATUS status, uint64_t len,
                          const uint32_t *imm)
{
    struct softdat_dto *d = &ep->current_recv;

    if (!ep->has_current_recv)
        return;
    ep->has_current_recv = false;
    if (ep->srq)
        ep->srq->recvs_in_progress--;
    d->status = status;
    d->len = len;
    if (status == DAT_DTO_SUCCESS) {
        ep->h.ia->count[SOFTDAT_N_RECVS]++;
        ep->h.ia->count[SOFTDAT_N_BYTES_IN] += len;
    }
    if (imm) {
        d->op = DAT_IB_DTO_RECV_IMMED;
        d->ext = 1 + DAT_IB_RDMA_WRITE_IMMED_DATA;
        d->imm = *imm;
    }
    softdat_ep_complete(ep, ep->recv_evd, d);
}

void softdat_ep_flush(struct softdat_ep *ep)
{
    reap_done(ep);
    for (; ep->req.count > 0; softdat_ring_pop(&ep->req)) {
        struct softdat_dto *d = softdat_ring_at(&ep->req, 0);

        if (d->op == SOFTDAT_DTO_BIND && d->state != SOFTDAT_DTO_DONE)
            softdat_bind_cancel(&d->bind);
        if (d->state != SOFTDAT_DTO_DONE)
            d->status = DAT_DTO_ERR_FLUSHED;
        softdat_ep_complete(ep, ep->req_evd, d);
    }
    do
        softdat_ep_recv_done(ep, DAT_DTO_ERR_FLUSHED, 0, NULL);
    while (!ep->srq && softdat_ep_pop_recv(ep));
    ep->reads = 0;
    ep->last_seq = 0;
}

void softdat_ep_event(struct softdat_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                      size_t priv_len)
{
    DAT_EVENT event;
    DAT_CONNECTION_EVENT_DATA *e = &event.event_data.connect_event_data;

    if (!ep->conn_evd)
        return;
    memset(&event, 0, sizeof(event));
    event.event_number = number;
    e->ep_handle = ep;
    if (priv_len > 0)
        memcpy(ep->priv, priv, priv_len);
    e->private_data = priv_len > 0 ? ep->priv : NULL;
    e->private_data_size = (DAT_COUNT)priv_len;
    softdat_evd_post(ep->conn_evd, &event);
}

/* Posts the event "no receive of the shared queue belongs to this EP any more". Debian's providers
 * post it with this number and reason, and clients (dtestsrq) wait for it before they free the
 * EP. */
static void post_last_recv_event(struct softdat_ep *ep)
{
    DAT_EVENT event;

    memset(&event, 0, sizeof(event));
    event.event_number = DAT_ASYNC_ERROR_EP_BROKEN;
    event.event_data.asynch_error_event_data.dat_handle = ep;
    event.event_data.asynch_error_event_data.reason = DAT_EP_TRANSFER_TO_ERROR;
    softdat_evd_post(ep->h.ia->async_evd, &event);
}

void softdat_ep_down(struct softdat_ep *ep, DAT_EVENT_NUMBER number)
{
    if (!softdat_ep_step(ep, SOFTDAT_EP_DOWN))
        return;
    softdat_ep_flush(ep);
    softdat_alternate_end(ep);
    softdat_ep_event(ep, number, NULL, 0);
    if (ep->srq)
        post_last_recv_event(ep);
}

/* -- creating and freeing --------------------------------------------------------------------- */

static DAT_COUNT capped(DAT_COUNT n, uint64_t limit)
{
    return (uint64_t)n < limit ? n : (DAT_COUNT)limit;
}

/* The attributes of an EP that is created without any. */
static DAT_EP_ATTR default_attr(const struct softdat_config *cfg)
{
    DAT_COUNT iov = capped(4, cfg->max_iov), rdma_iov = capped(4, cfg->max_rdma_iov);

    return (DAT_EP_ATTR){
        .service_type = DAT_SERVICE_TYPE_RC,
        .max_message_size = cfg->max_message,
        .max_rdma_size = cfg->max_message,
        .qos = DAT_QOS_BEST_EFFORT,
        .max_recv_dtos = capped(128, cfg->max_dtos),
        .max_request_dtos = capped(128, cfg->max_dtos),
        .max_recv_iov = iov,
        .max_request_iov = iov,
        .max_rdma_read_in = capped(16, cfg->max_reads),
        .max_rdma_read_out = capped(16, cfg->max_reads),
        .max_rdma_read_iov = rdma_iov,
        .max_rdma_write_iov = rdma_iov,
    };
}

static bool within(DAT_COUNT n, uint64_t limit)
{
    return n >= 0 && (uint64_t)n <= limit;
}

bool softdat_ep_attr_fits(const struct softdat_config *cfg, const DAT_EP_ATTR *a)
{
    return a->service_type == DAT_SERVICE_TYPE_RC && within(a->max_recv_dtos, cfg->max_dtos)
           && within(a->max_request_dtos, cfg->max_dtos) && a->max_message_size <= cfg->max_message
           && a->max_rdma_size <= cfg->max_message && within(a->max_recv_iov, cfg->max_iov)
           && within(a->max_request_iov, cfg->max_iov)
           && within(a->max_rdma_read_iov, cfg->max_rdma_iov)
           && within(a->max_rdma_write_iov, cfg->max_rdma_iov)
           && within(a->max_rdma_read_in, cfg->max_reads)
           && within(a->max_rdma_read_out, cfg->max_reads)
           && !(a->recv_completion_flags & DAT_COMPLETION_SUPPRESS_FLAG);
}

static uint32_t max_of(DAT_COUNT a, DAT_COUNT b, DAT_COUNT c)
{
    DAT_COUNT m = a > b ? a : b;

    m = m > c ? m : c;
    return m > 0 ? (uint32_t)m : 1;
}

/* Segments that a request needs: the maximum over its kinds. */
static uint32_t request_iov(const DAT_EP_ATTR *a)
{
    return max_of(a->max_request_iov, a->max_rdma_read_iov, a->max_rdma_write_iov);
}

/* srq: NULL, or where its receives will be. */
static bool ep_rings(struct softdat_ep *ep, const struct softdat_srq *srq)
{
    const DAT_EP_ATTR *a = &ep->attr;
    uint32_t recv_iov = max_of(a->max_recv_iov, srq ? (DAT_COUNT)srq->rq.max_iov : 1, 1);

    ep->current_recv_seg = softdat_alloc_n(recv_iov, sizeof(*ep->current_recv_seg));
    return ep->current_recv_seg
           && softdat_rq_make(&ep->own, max_of(a->max_recv_dtos, 1, 1),
                              max_of(a->max_recv_iov, 1, 1))
           && softdat_ring_make(&ep->req, max_of(a->max_request_dtos, 1, 1), request_iov(a));
}

static void ep_rings_free(struct softdat_ep *ep)
{
    softdat_ring_free(&ep->own.ring);
    softdat_ring_free(&ep->req);
    softdat_free(ep->current_recv_seg);
}

static void count_use(struct softdat_evd *evd, int n)
{
    if (evd)
        evd->users += n;
}

void softdat_ep_destroy(struct softdat_ep *ep)
{
    count_use(ep->recv_evd, -1);
    count_use(ep->req_evd, -1);
    count_use(ep->conn_evd, -1);
    if (ep->pz)
        ep->pz->users--;
    if (ep->srq)
        ep->srq->users--;
    ep_rings_free(ep);
    softdat_free(ep->alternate);
    ep->alternate = NULL;
    softdat_handle_end(&ep->h);
}

/* Returns the EVD of a handle, NULL for DAT_HANDLE_NULL; an invalid handle sets *ok to false. */
static struct softdat_evd *optional_evd(DAT_EVD_HANDLE handle, bool *ok)
{
    struct softdat_evd *evd = handle ? softdat_get(handle, DAT_HANDLE_TYPE_EVD) : NULL;

    if (handle && !evd)
        *ok = false;
    return evd;
}

static struct softdat_ep *ep_make(const struct softdat_config *cfg, const DAT_EP_ATTR *attr,
                                  const struct softdat_srq *srq)
{
    struct softdat_ep *ep = softdat_alloc(sizeof(*ep));

    if (!ep)
        return NULL;
    ep->state = DAT_EP_STATE_UNCONNECTED;
    ep->attr = attr ? *attr : default_attr(cfg);
    ep->rq = &ep->own;
    softdat_short_limits(ep, cfg);
    if (ep_rings(ep, srq))
        return ep;
    ep_rings_free(ep);
    softdat_free(ep);
    return NULL;
}

static void ep_register(struct softdat_ep *ep, struct softdat_ia *ia, struct softdat_pz *pz,
                        struct softdat_srq *srq)
{
    softdat_lock(ia);
    softdat_handle_init(&ep->h, ia, DAT_HANDLE_TYPE_EP);
    count_use(ep->recv_evd, 1);
    count_use(ep->req_evd, 1);
    count_use(ep->conn_evd, 1);
    ep->pz = pz;
    pz->users++;
    if (srq) {
        ep->srq = srq;
        ep->rq = &srq->rq;
        srq->users++;
    }
    softdat_unlock(ia);
}

static DAT_RETURN create(struct softdat_ia *ia, struct softdat_pz *pz, DAT_EVD_HANDLE recv,
                         DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn, struct softdat_srq *srq,
                         const DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep_p)
{
    struct softdat_ep *ep;
    bool ok = true;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!pz)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    if (!ep_p || (attr && !softdat_ep_attr_fits(&ia->cfg, attr)))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
    if (ia->failed)
        return DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    ep = ep_make(&ia->cfg, attr, srq);
    if (!ep)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    ep->recv_evd = optional_evd(recv, &ok);
    ep->req_evd = optional_evd(req, &ok);
    ep->conn_evd = optional_evd(conn, &ok);
    if (!ok) {
        ep_rings_free(ep);
        softdat_free(ep);
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_REQUEST);
    }
    ep_register(ep, ia, pz, srq);
    *ep_p = ep;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_ep_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv,
                             DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn, const DAT_EP_ATTR *attr,
                             DAT_EP_HANDLE *ep_p)
{
    return create(softdat_get(ia, DAT_HANDLE_TYPE_IA), softdat_get(pz, DAT_HANDLE_TYPE_PZ), recv,
                  req, conn, NULL, attr, ep_p);
}

DAT_RETURN softdat_ep_create_with_srq(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv,
                                      DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn,
                                      DAT_SRQ_HANDLE srq_handle, const DAT_EP_ATTR *attr,
                                      DAT_EP_HANDLE *ep_p)
{
    struct softdat_srq *srq = softdat_get(srq_handle, DAT_HANDLE_TYPE_SRQ);

    if (!srq)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_SRQ);
    return create(softdat_get(ia, DAT_HANDLE_TYPE_IA), softdat_get(pz, DAT_HANDLE_TYPE_PZ), recv,
                  req, conn, srq, attr, ep_p);
}

DAT_RETURN softdat_ep_free(DAT_EP_HANDLE handle)
{
    struct softdat_ep *ep = ep_of(handle);
    struct softdat_ia *ia;

    if (!ep)
        return bad_ep;
    ia = ep->h.ia;
    softdat_lock(ia);
    if (ep->state == DAT_EP_STATE_RESERVED) {
        softdat_unlock(ia);
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED);
    }
    if (ep->conn)
        softdat_conn_detach(ep->conn, true);
    softdat_ep_flush(ep);
    softdat_ep_destroy(ep);
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_ep_reset(DAT_EP_HANDLE handle)
{
    struct softdat_ep *ep = ep_of(handle);
    DAT_RETURN ret = DAT_SUCCESS;

    if (!ep)
        return bad_ep;
    softdat_lock(ep->h.ia);
    if (softdat_ep_step(ep, SOFTDAT_EP_RESET))
        softdat_ep_flush(ep);
    else
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
    softdat_unlock(ep->h.ia);
    return ret;
}

DAT_RETURN softdat_ep_query(DAT_EP_HANDLE handle, DAT_EP_PARAM_MASK mask, DAT_EP_PARAM *p)
{
    struct softdat_ep *ep = ep_of(handle);

    (void)mask;
    if (!ep)
        return bad_ep;
    if (!p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    memset(p, 0, sizeof(*p));
    softdat_lock(ep->h.ia);
    p->ia_handle = ep->h.ia;
    p->ep_state = softdat_alternate_ep_state(ep);
    p->local_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ep->h.ia->cfg.port[ep->port].addr;
    p->remote_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ep->remote;
    p->remote_port_qual = ep->remote_qual;
    p->pz_handle = ep->pz;
    p->recv_evd_handle = ep->recv_evd;
    p->request_evd_handle = ep->req_evd;
    p->connect_evd_handle = ep->conn_evd;
    p->srq_handle = ep->srq;
    p->ep_attr = ep->attr;
    softdat_unlock(ep->h.ia);
    return DAT_SUCCESS;
}

/* Replaces the attributes and the queues; possible only while nothing is posted. */
static DAT_RETURN change_attr(struct softdat_ep *ep, const DAT_EP_ATTR *attr)
{
    struct softdat_ep *renewed;

    if (ep->own.ring.count + ep->req.count > 0)
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_NOTREADY);
    renewed = ep_make(&ep->h.ia->cfg, attr, ep->srq);
    if (!renewed)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    ep_rings_free(ep);
    ep->attr = *attr;
    softdat_short_limits(ep, &ep->h.ia->cfg);
    ep->own.ring = renewed->own.ring;
    ep->own.max_iov = renewed->own.max_iov;
    ep->req = renewed->req;
    ep->current_recv_seg = renewed->current_recv_seg;
    softdat_free(renewed);
    return DAT_SUCCESS;
}

static void change_evds(struct softdat_ep *ep, DAT_EP_PARAM_MASK mask, const DAT_EP_PARAM *p)
{
    const struct {
        DAT_EP_PARAM_MASK bit;
        DAT_EVD_HANDLE handle;
        struct softdat_evd **at;
    } row[] = {
        { DAT_EP_FIELD_RECV_EVD_HANDLE, p->recv_evd_handle, &ep->recv_evd },
        { DAT_EP_FIELD_REQUEST_EVD_HANDLE, p->request_evd_handle, &ep->req_evd },
        { DAT_EP_FIELD_CONNECT_EVD_HANDLE, p->connect_evd_handle, &ep->conn_evd },
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        bool ok = true;
        struct softdat_evd *evd = optional_evd(row[i].handle, &ok);

        if (!(mask & row[i].bit) || !ok)
            continue;
        count_use(*row[i].at, -1);
        count_use(evd, 1);
        *row[i].at = evd;
    }
}

/* An unconnected EP may change its EVDs, and its attributes while nothing is posted. */
DAT_RETURN softdat_ep_modify(DAT_EP_HANDLE handle, DAT_EP_PARAM_MASK mask, const DAT_EP_PARAM *p)
{
    const DAT_EP_PARAM_MASK evds = DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE
                                   | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    const DAT_EP_PARAM_MASK attrs = ~(DAT_EP_PARAM_MASK)0xfff;
    struct softdat_ep *ep = ep_of(handle);
    DAT_RETURN ret = DAT_SUCCESS;

    if (!ep)
        return bad_ep;
    if (!p || mask & ~(evds | attrs)
        || (mask & attrs && !softdat_ep_attr_fits(&ep->h.ia->cfg, &p->ep_attr)))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    softdat_lock(ep->h.ia);
    if (ep->state != DAT_EP_STATE_UNCONNECTED && ep->state != DAT_EP_STATE_RESERVED)
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
    if (ret == DAT_SUCCESS && mask & attrs)
        ret = change_attr(ep, &p->ep_attr);
    if (ret == DAT_SUCCESS && mask & evds)
        change_evds(ep, mask, p);
    softdat_unlock(ep->h.ia);
    return ret;
}

DAT_RETURN softdat_ep_get_status(DAT_EP_HANDLE handle, DAT_EP_STATE *state, DAT_BOOLEAN *recv_idle,
                                 DAT_BOOLEAN *req_idle)
{
    struct softdat_ep *ep = ep_of(handle);

    if (!ep)
        return bad_ep;
    softdat_lock(ep->h.ia);
    if (state)
        *state = softdat_alternate_ep_state(ep);
    if (recv_idle)
        *recv_idle = ep->rq->ring.count == 0;
    if (req_idle)
        *req_idle = ep->req.count == 0;
    softdat_unlock(ep->h.ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_ep_recv_query(DAT_EP_HANDLE handle, DAT_COUNT *allocated, DAT_COUNT *span)
{
    struct softdat_ep *ep = ep_of(handle);

    if (!ep)
        return bad_ep;
    softdat_lock(ep->h.ia);
    if (allocated)
        *allocated = (DAT_COUNT)ep->rq->ring.count + ep->has_current_recv;
    if (span)
        *span = (DAT_COUNT)ep->rq->ring.count + ep->has_current_recv;
    softdat_unlock(ep->h.ia);
    return DAT_SUCCESS;
}
