/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <stdlib.h>
#include <string.h>

static struct softdat_ep *ep_of(DAT_EP_HANDLE handle)
{
    return softdat_get(handle, DAT_HANDLE_TYPE_EP);
}

static const DAT_RETURN bad_ep = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP;

/* -- rings of posted DTOs --------------------------------------------------------------------- */

struct softdat_dto *softdat_ring_at(struct softdat_ring *r, uint32_t i)
{
    uint32_t at = r->head + i;

    return &r->dto[at < r->size ? at : at - r->size];
}

static bool ring_make(struct softdat_ring *r, uint32_t size, uint32_t iov_each)
{
    r->size = size;
    r->dto = calloc(size, sizeof(*r->dto));
    r->iov = calloc((size_t)size * iov_each, sizeof(*r->iov));
    for (uint32_t i = 0; r->dto && r->iov && i < size; i++)
        r->dto[i].iov = &r->iov[(size_t)i * iov_each];
    return r->dto && r->iov;
}

static void ring_free(struct softdat_ring *r)
{
    free(r->dto);
    free(r->iov);
}

static void ring_pop(struct softdat_ring *r)
{
    r->head = r->head + 1 < r->size ? r->head + 1 : 0;
    r->count--;
    if (r->sent > 0)
        r->sent--;
}

/* -- completing ------------------------------------------------------------------------------- */

static void complete(struct softdat_ep *ep, struct softdat_evd *evd, const struct softdat_dto *d)
{
    DAT_EVENT *event;

    if (!evd || (d->status == DAT_DTO_SUCCESS && d->flags & DAT_COMPLETION_SUPPRESS_FLAG))
        return;
    event = softdat_evd_slot(evd);
    if (!event)
        return;
    event->event_number = DAT_DTO_COMPLETION_EVENT;
    event->event_data.dto_completion_event_data = (DAT_DTO_COMPLETION_EVENT_DATA){
        .ep_handle = ep, .user_cookie = d->cookie, .status = d->status, .operation = d->op,
        .transfered_length = d->status == DAT_DTO_SUCCESS ? (DAT_SEG_LENGTH)d->len : 0,
    };
    softdat_evd_push(evd);
}

static void reap_done(struct softdat_ep *ep)
{
    while (ep->req.count > 0 && softdat_ring_at(&ep->req, 0)->state == SOFTDAT_DTO_DONE) {
        complete(ep, ep->req_evd, softdat_ring_at(&ep->req, 0));
        ring_pop(&ep->req);
    }
}

void softdat_ep_reap(struct softdat_ep *ep)
{
    reap_done(ep);
    /* A graceful disconnect waits for the last request. */
    if (ep->state == DAT_EP_STATE_DISCONNECT_PENDING && ep->req.count == 0 && ep->conn
        && !ep->conn->said_bye)
        softdat_tx_frame(ep->conn, SOFTDAT_BYE, NULL, 0);
}

void softdat_ep_recv_done(struct softdat_ep *ep, DAT_DTO_COMPLETION_STATUS status, uint64_t len)
{
    struct softdat_dto *d = softdat_ring_at(&ep->recv, 0);

    if (ep->recv.count == 0)
        return;
    d->status = status;
    d->len = len;
    complete(ep, ep->recv_evd, d);
    ring_pop(&ep->recv);
}

static void flush(struct softdat_ep *ep)
{
    reap_done(ep);
    for (; ep->req.count > 0; ring_pop(&ep->req)) {
        struct softdat_dto *d = softdat_ring_at(&ep->req, 0);

        if (d->state != SOFTDAT_DTO_DONE)
            d->status = DAT_DTO_ERR_FLUSHED;
        complete(ep, ep->req_evd, d);
    }
    while (ep->recv.count > 0)
        softdat_ep_recv_done(ep, DAT_DTO_ERR_FLUSHED, 0);
    ep->reads = 0;
    ep->next_seq = 0;
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

void softdat_ep_down(struct softdat_ep *ep, DAT_EVENT_NUMBER number)
{
    if (!softdat_ep_step(ep, SOFTDAT_EP_DOWN))
        return;
    flush(ep);
    softdat_ep_event(ep, number, NULL, 0);
}

/* -- making and ending ------------------------------------------------------------------------ */

static const DAT_EP_ATTR default_attr = {
    .service_type = DAT_SERVICE_TYPE_RC,
    .max_message_size = UINT32_C(1) << 31,
    .max_rdma_size = UINT32_C(1) << 31,
    .qos = DAT_QOS_BEST_EFFORT,
    .max_recv_dtos = 128,
    .max_request_dtos = 128,
    .max_recv_iov = 4,
    .max_request_iov = 4,
    .max_rdma_read_in = 16,
    .max_rdma_read_out = 16,
    .max_rdma_read_iov = 4,
    .max_rdma_write_iov = 4,
};

static bool attr_fits(const DAT_EP_ATTR *a)
{
    return a->service_type == DAT_SERVICE_TYPE_RC && a->max_recv_dtos >= 0
           && a->max_recv_dtos <= SOFTDAT_MAX_DTO && a->max_request_dtos >= 0
           && a->max_request_dtos <= SOFTDAT_MAX_DTO && a->max_recv_iov <= SOFTDAT_MAX_IOV
           && a->max_request_iov <= SOFTDAT_MAX_IOV && a->max_rdma_read_iov <= SOFTDAT_MAX_IOV
           && a->max_rdma_write_iov <= SOFTDAT_MAX_IOV
           && a->max_rdma_read_in <= SOFTDAT_MAX_READS
           && a->max_rdma_read_out <= SOFTDAT_MAX_READS
           && !(a->recv_completion_flags & DAT_COMPLETION_SUPPRESS_FLAG);
}

static uint32_t most(DAT_COUNT a, DAT_COUNT b, DAT_COUNT c)
{
    DAT_COUNT m = a > b ? a : b;

    m = m > c ? m : c;
    return m > 0 ? (uint32_t)m : 1;
}

static bool ep_rings(struct softdat_ep *ep)
{
    const DAT_EP_ATTR *a = &ep->attr;

    return ring_make(&ep->recv, most(a->max_recv_dtos, 1, 1), most(a->max_recv_iov, 1, 1))
           && ring_make(&ep->req, most(a->max_request_dtos, 1, 1),
                        most(a->max_request_iov, a->max_rdma_read_iov, a->max_rdma_write_iov));
}

static void use(struct softdat_evd *evd, int n)
{
    if (evd)
        evd->users += n;
}

void softdat_ep_destroy(struct softdat_ep *ep)
{
    softdat_handle_fini(&ep->h);
    use(ep->recv_evd, -1);
    use(ep->req_evd, -1);
    use(ep->conn_evd, -1);
    if (ep->pz)
        ep->pz->users--;
    ring_free(&ep->recv);
    ring_free(&ep->req);
    free(ep);
}

/* NULL for a null handle, and *ok false for a handle that is none. */
static struct softdat_evd *evd_or_null(DAT_EVD_HANDLE handle, bool *ok)
{
    struct softdat_evd *evd = handle ? softdat_get(handle, DAT_HANDLE_TYPE_EVD) : NULL;

    if (handle && !evd)
        *ok = false;
    return evd;
}

DAT_RETURN softdat_ep_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                             DAT_EVD_HANDLE recv, DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn,
                             const DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep_p)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_pz *pz = softdat_get(pz_handle, DAT_HANDLE_TYPE_PZ);
    struct softdat_ep *ep;
    bool ok = true;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!pz)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    if (!ep_p || (attr && !attr_fits(attr)))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
    ep = calloc(1, sizeof(*ep));
    if (!ep)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    ep->state = DAT_EP_STATE_UNCONNECTED;
    ep->attr = attr ? *attr : default_attr;
    ep->recv_evd = evd_or_null(recv, &ok);
    ep->req_evd = evd_or_null(req, &ok);
    ep->conn_evd = evd_or_null(conn, &ok);
    if (!ok || !ep_rings(ep)) {
        ring_free(&ep->recv);
        ring_free(&ep->req);
        free(ep);
        return ok ? DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY)
                  : DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_REQUEST);
    }
    softdat_lock(ia);
    softdat_handle_init(&ep->h, ia, DAT_HANDLE_TYPE_EP);
    use(ep->recv_evd, 1);
    use(ep->req_evd, 1);
    use(ep->conn_evd, 1);
    ep->pz = pz;
    pz->users++;
    softdat_unlock(ia);
    *ep_p = ep;
    return DAT_SUCCESS;
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
        softdat_conn_leave(ep->conn, true);
    flush(ep);
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
        flush(ep);
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
    p->ep_state = ep->state;
    p->local_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ep->h.ia->cfg.addr;
    p->remote_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&ep->remote;
    p->remote_port_qual = ep->remote_qual;
    p->pz_handle = ep->pz;
    p->recv_evd_handle = ep->recv_evd;
    p->request_evd_handle = ep->req_evd;
    p->connect_evd_handle = ep->conn_evd;
    p->ep_attr = ep->attr;
    softdat_unlock(ep->h.ia);
    return DAT_SUCCESS;
}

/* What an unconnected EP may change: its EVDs, and its attributes while nothing is posted. */
DAT_RETURN softdat_ep_modify(DAT_EP_HANDLE handle, DAT_EP_PARAM_MASK mask, const DAT_EP_PARAM *p)
{
    const DAT_EP_PARAM_MASK evds = DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE
                                   | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
    const DAT_EP_PARAM_MASK attrs = ~(DAT_EP_PARAM_MASK)0xfff;
    struct softdat_ep *ep = ep_of(handle), old;
    DAT_RETURN ret = DAT_SUCCESS;

    if (!ep)
        return bad_ep;
    if (!p || mask & ~(evds | attrs) || (mask & attrs && !attr_fits(&p->ep_attr)))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    softdat_lock(ep->h.ia);
    old = *ep;
    if (ep->state != DAT_EP_STATE_UNCONNECTED && ep->state != DAT_EP_STATE_RESERVED) {
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
    } else if (mask & attrs && ep->recv.count + ep->req.count > 0) {
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_NOTREADY);
    } else if (mask & attrs) {
        ep->attr = p->ep_attr;
        memset(&ep->recv, 0, sizeof(ep->recv));
        memset(&ep->req, 0, sizeof(ep->req));
        if (ep_rings(ep)) {
            ring_free(&old.recv);
            ring_free(&old.req);
        } else {
            ring_free(&ep->recv);
            ring_free(&ep->req);
            ep->recv = old.recv;
            ep->req = old.req;
            ep->attr = old.attr;
            ret = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
        }
    }
    if (ret == DAT_SUCCESS && mask & evds) {
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
            struct softdat_evd *evd = evd_or_null(row[i].handle, &ok);

            if (!(mask & row[i].bit) || !ok)
                continue;
            use(*row[i].at, -1);
            use(evd, 1);
            *row[i].at = evd;
        }
    }
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
        *state = ep->state;
    if (recv_idle)
        *recv_idle = ep->recv.count == 0;
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
        *allocated = (DAT_COUNT)ep->recv.count;
    if (span)
        *span = (DAT_COUNT)ep->recv.count;
    softdat_unlock(ep->h.ia);
    return DAT_SUCCESS;
}

/* -- posting ---------------------------------------------------------------------------------- */

/* Checks the local segments and writes them as an iovec. */
static DAT_RETURN take_segs(struct softdat_ep *ep, struct softdat_dto *d, DAT_COUNT n,
                            const DAT_LMR_TRIPLET *seg, DAT_MEM_PRIV_FLAGS priv)
{
    d->n_iov = 0;
    d->len = 0;
    for (DAT_COUNT i = 0; i < n; i++) {
        struct softdat_lmr *lmr;

        if (seg[i].segment_length == 0)
            continue;
        lmr = softdat_lmr_find(ep->h.ia, seg[i].lmr_context);
        if (!softdat_lmr_allows(lmr, ep->pz, seg[i].virtual_address, seg[i].segment_length, 0))
            return DAT_ERROR(DAT_PROTECTION_VIOLATION, DAT_NO_SUBTYPE);
        if ((lmr->priv & priv) != priv)
            return DAT_ERROR(DAT_PRIVILEGES_VIOLATION, DAT_NO_SUBTYPE);
        d->iov[d->n_iov++] = (struct iovec){ (void *)(uintptr_t)seg[i].virtual_address,
                                             seg[i].segment_length };
        d->len += seg[i].segment_length;
    }
    return DAT_SUCCESS;
}

static bool may_request(const struct softdat_ep *ep)
{
    return ep->state == DAT_EP_STATE_CONNECTED || ep->state == DAT_EP_STATE_DISCONNECTED;
}

/* What the three requests differ in. Reading one's own registered memory needs no right: adapters
 * do not have such a check, and clients (dtest among them) do not ask for it. */
struct kind {
    DAT_DTOS op;
    DAT_MEM_PRIV_FLAGS priv;     /* that the local memory needs */
    size_t iov_at, max_at;       /* offsets in DAT_EP_ATTR: segments, bytes */
};

static const struct kind kind_send = {
    DAT_DTO_SEND, DAT_MEM_PRIV_NONE_FLAG, offsetof(DAT_EP_ATTR, max_request_iov),
    offsetof(DAT_EP_ATTR, max_message_size)
};
static const struct kind kind_write = {
    DAT_DTO_RDMA_WRITE, DAT_MEM_PRIV_NONE_FLAG, offsetof(DAT_EP_ATTR, max_rdma_write_iov),
    offsetof(DAT_EP_ATTR, max_rdma_size)
};
static const struct kind kind_read = {
    DAT_DTO_RDMA_READ, DAT_MEM_PRIV_LOCAL_WRITE_FLAG, offsetof(DAT_EP_ATTR, max_rdma_read_iov),
    offsetof(DAT_EP_ATTR, max_rdma_size)
};

static DAT_COUNT iov_limit(const struct softdat_ep *ep, const struct kind *k)
{
    DAT_COUNT n = *(const DAT_COUNT *)(const void *)((const char *)&ep->attr + k->iov_at);

    /* Clients of DAT 1.x leave the RDMA limits zero and mean those of requests. */
    return n > 0 ? n : (DAT_COUNT)most(ep->attr.max_request_iov, 1, 1);
}

static DAT_RETURN fill(struct softdat_ep *ep, const struct kind *k, struct softdat_dto *d,
                       DAT_COUNT n, const DAT_LMR_TRIPLET *seg, const DAT_RMR_TRIPLET *remote)
{
    DAT_SEG_LENGTH max = *(const DAT_SEG_LENGTH *)(const void *)((const char *)&ep->attr
                                                                 + k->max_at);
    DAT_RETURN ret = take_segs(ep, d, n, seg, k->priv);

    if (ret != DAT_SUCCESS)
        return ret;
    if ((max > 0 && d->len > max) || (remote && remote->segment_length < d->len))
        return DAT_ERROR(DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
    d->op = k->op;
    d->raddr = remote ? remote->virtual_address : 0;
    d->rkey = remote ? remote->rmr_context : 0;
    return DAT_SUCCESS;
}

static DAT_RETURN post_request(DAT_EP_HANDLE handle, const struct kind *k, DAT_COUNT n,
                               const DAT_LMR_TRIPLET *seg, DAT_DTO_COOKIE cookie,
                               const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags)
{
    struct softdat_ep *ep = ep_of(handle);
    struct softdat_dto *d;
    DAT_RETURN ret;

    if (!ep)
        return bad_ep;
    if (n < 0 || (n > 0 && !seg) || n > iov_limit(ep, k) || (k->op != DAT_DTO_SEND && !remote))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    softdat_lock(ep->h.ia);
    d = softdat_ring_at(&ep->req, ep->req.count);
    if (!may_request(ep))
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    else if (ep->req.count == ep->req.size)
        ret = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    else
        ret = fill(ep, k, d, n, seg, remote);
    if (ret == DAT_SUCCESS) {
        d->cookie = cookie;
        d->flags = flags;
        d->state = SOFTDAT_DTO_QUEUED;
        d->status = DAT_DTO_SUCCESS;
        ep->req.count++;
        if (ep->conn)
            softdat_tx_pump(ep->conn);
        else
            flush(ep);           /* disconnected: it comes back at once */
    }
    softdat_unlock(ep->h.ia);
    return ret;
}

DAT_RETURN softdat_ep_post_send(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    return post_request(handle, &kind_send, n, seg, cookie, NULL, flags);
}

DAT_RETURN softdat_ep_post_rdma_read(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                     DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                                     DAT_COMPLETION_FLAGS flags)
{
    return post_request(handle, &kind_read, n, seg, cookie, remote, flags);
}

DAT_RETURN softdat_ep_post_rdma_write(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                      DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                                      DAT_COMPLETION_FLAGS flags)
{
    return post_request(handle, &kind_write, n, seg, cookie, remote, flags);
}

DAT_RETURN softdat_ep_post_recv(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct softdat_ep *ep = ep_of(handle);
    struct softdat_dto *d;
    DAT_RETURN ret;

    if (!ep)
        return bad_ep;
    if (n < 0 || (n > 0 && !seg) || n > (DAT_COUNT)most(ep->attr.max_recv_iov, 1, 1))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    softdat_lock(ep->h.ia);
    d = softdat_ring_at(&ep->recv, ep->recv.count);
    if (ep->recv.count == ep->recv.size)
        ret = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    else
        ret = take_segs(ep, d, n, seg, DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    if (ret == DAT_SUCCESS) {
        d->cookie = cookie;
        d->flags = flags & ~(DAT_COMPLETION_FLAGS)DAT_COMPLETION_SUPPRESS_FLAG;
        d->op = DAT_DTO_RECEIVE;
        d->status = DAT_DTO_SUCCESS;
        ep->recv.count++;
        if (ep->conn)
            softdat_rx_posted(ep->conn);
        else if (ep->state == DAT_EP_STATE_DISCONNECTED)
            flush(ep);
    }
    softdat_unlock(ep->h.ia);
    return ret;
}
