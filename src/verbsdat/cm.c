/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum {
    RESOLVE_MS = 5000,           /* for an address, and for a route, at most */
    BY_CONSUMER = 28,            /* the reason of a REJ (IBA 12.6.7.2) */
};

static const DAT_RETURN bad_ep = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP;

struct rdma_cm_id *verbsdat_cm_id(struct verbsdat_ia *ia, const struct sockaddr_in *addr,
                                  uint16_t port, void *context)
{
    struct sockaddr_in at = *addr;
    struct rdma_cm_id *id;
    int error;

    if (rdma_create_id(ia->cm, &id, context, RDMA_PS_TCP))
        return NULL;
    at.sin_port = htons(port);
    if (rdma_bind_addr(id, (struct sockaddr *)&at) == 0)
        return id;
    error = errno;
    rdma_destroy_id(id);
    errno = error;
    return NULL;
}

uint16_t verbsdat_cm_port(DAT_CONN_QUAL qual)
{
    return (uint16_t)(qual <= UINT16_MAX ? qual : 1024 + qual % (UINT16_MAX - 1024));
}

void verbsdat_cm_param(struct verbsdat_ep *ep, const void *priv, DAT_COUNT size)
{
    if (size > 0)
        memcpy(ep->priv_out, priv, (size_t)size);
    ep->param = (struct rdma_conn_param){
        .private_data = ep->priv_out, .private_data_len = (uint8_t)size,
        .responder_resources = (uint8_t)ep->attr.max_rdma_read_in,
        .initiator_depth = (uint8_t)ep->attr.max_rdma_read_out,
        .retry_count = ep->h.ia->cfg.retry,
        .rnr_retry_count = 7,    /* for ever: a send waits for its receive */
    };
}

/* -- states ------------------------------------------------------------------------------------ */

static void set_state(struct verbsdat_ep *ep, DAT_EP_STATE state)
{
    DAT_EP_STATE before = atomic_exchange(&ep->state, state);

    if (before == DAT_EP_STATE_DISCONNECT_PENDING && state != before) {
        ep->h.ia->closing--;
        verbsdat_evd_closing(ep->req_evd, -1);
    }
    if (state == DAT_EP_STATE_CONNECTED)
        verbsdat_path_begin(ep);
    else if (before == DAT_EP_STATE_CONNECTED)
        verbsdat_path_end(ep);
    if (before == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING && state == DAT_EP_STATE_DISCONNECTED) {
        ep->abandoned = ep->h.ia->abandoned = true;
        verbsdat_thread_wake(ep->h.ia);
    }
    ep->deadline = UINT64_MAX;
}

static void post_event(struct verbsdat_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
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
    verbsdat_evd_post(ep->conn_evd, &event);
}

void verbsdat_ep_down(struct verbsdat_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                      size_t priv_len)
{
    set_state(ep, DAT_EP_STATE_DISCONNECTED);
    verbsdat_ep_flush(ep);
    post_event(ep, number, priv, priv_len);
}

static bool is_up(const struct verbsdat_ep *ep)
{
    DAT_EP_STATE state = atomic_load(&ep->state);

    return state == DAT_EP_STATE_CONNECTED || state == DAT_EP_STATE_DISCONNECT_PENDING;
}

/* Sends the peer a DREQ if it may be connected. */
static void release_peer(struct verbsdat_ep *ep)
{
    if (ep->id && (is_up(ep) || atomic_load(&ep->state) == DAT_EP_STATE_COMPLETION_PENDING))
        rdma_disconnect(ep->id);
}

void verbsdat_ep_abort(struct verbsdat_ep *ep)
{
    release_peer(ep);
    set_state(ep, DAT_EP_STATE_DISCONNECTED);
    verbsdat_ep_flush(ep);
}

struct rdma_cm_id *verbsdat_ep_take_id(struct verbsdat_ep *ep)
{
    struct rdma_cm_id *id = ep->id;

    if (id) {
        id->context = NULL;
        id->qp = NULL;
    }
    ep->id = NULL;
    return id;
}

/* -- events of the connection manager; with ia->lock ------------------------------------------- */

static bool is_calling(const struct verbsdat_ep *ep)
{
    return atomic_load(&ep->state) == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
}

static void unreachable(struct verbsdat_ep *ep)
{
    verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_UNREACHABLE, NULL, 0);
}

static void on_address(struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    uint8_t timeout = ep->h.ia->cfg.ack_timeout;

    (void)e;
    if (!is_calling(ep))
        return;
    if (timeout)
        rdma_set_option(ep->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                        sizeof(timeout));
    if (rdma_resolve_route(ep->id, RESOLVE_MS))
        unreachable(ep);
}

static void on_route(struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    (void)e;
    if (!is_calling(ep))
        return;
    if (rdma_connect(ep->id, &ep->param) == 0)
        return;
    if (errno == ECONNREFUSED)   /* iWARP: of the TCP connection */
        verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_NON_PEER_REJECTED, NULL, 0);
    else
        unreachable(ep);
}

static void on_unreachable(struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    (void)e;
    if (is_calling(ep))
        unreachable(ep);
    else if (atomic_load(&ep->state) == DAT_EP_STATE_COMPLETION_PENDING)
        verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, NULL, 0);
}

static void on_error(struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    if (is_calling(ep))
        verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_NON_PEER_REJECTED, NULL, 0);
    else
        on_unreachable(ep, e);
}

/* Has the peer's consumer refused, or is there none? iWARP reports both as a refused TCP
 * connection: there a consumer is known by its private data. */
static bool by_peer(const struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    return ep->h.ia->iwarp ? e->param.conn.private_data_len > 0 : e->status == BY_CONSUMER;
}

static void on_rejected(struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    if (!is_calling(ep) || !by_peer(ep, e))
        on_error(ep, e);
    else
        verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_PEER_REJECTED, e->param.conn.private_data,
                         e->param.conn.private_data_len);
}

static void on_established(struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    bool calling = is_calling(ep);

    if (atomic_load(&ep->state) == DAT_EP_STATE_DISCONNECTED)
        rdma_disconnect(ep->id);     /* the consumer has ended the acceptance */
    if (!calling && atomic_load(&ep->state) != DAT_EP_STATE_COMPLETION_PENDING)
        return;
    set_state(ep, DAT_EP_STATE_CONNECTED);
    post_event(ep, DAT_CONNECTION_EVENT_ESTABLISHED, e->param.conn.private_data,
               calling && e->param.conn.private_data ? e->param.conn.private_data_len : 0);
}

static void on_disconnected(struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    if (is_up(ep)) {
        /* the peer may have ended it because of an error that has completed here as well */
        verbsdat_evd_pull(ep->req_evd);
        verbsdat_evd_pull(ep->recv_evd);
        rdma_disconnect(ep->id);     /* the answer to the peer's request */
        verbsdat_ep_down(ep, atomic_exchange(&ep->fault, false)
                                 ? DAT_CONNECTION_EVENT_BROKEN
                                 : DAT_CONNECTION_EVENT_DISCONNECTED, NULL, 0);
    } else {
        on_error(ep, e);
    }
}

static void (*const of_ep[])(struct verbsdat_ep *, const struct rdma_cm_event *) = {
    [RDMA_CM_EVENT_ADDR_RESOLVED] = on_address,
    [RDMA_CM_EVENT_ADDR_ERROR] = on_unreachable,
    [RDMA_CM_EVENT_ROUTE_RESOLVED] = on_route,
    [RDMA_CM_EVENT_ROUTE_ERROR] = on_unreachable,
    [RDMA_CM_EVENT_CONNECT_ERROR] = on_error,
    [RDMA_CM_EVENT_UNREACHABLE] = on_unreachable,
    [RDMA_CM_EVENT_REJECTED] = on_rejected,
    [RDMA_CM_EVENT_ESTABLISHED] = on_established,
    [RDMA_CM_EVENT_DISCONNECTED] = on_disconnected,
};

static void adapter_gone(struct verbsdat_ia *ia)
{
    DAT_EVENT event;

    if (atomic_exchange(&ia->lost, true))
        return;                  /* the device has reported it */
    memset(&event, 0, sizeof(event));
    event.event_number = DAT_ASYNC_ERROR_IA_CATASTROPHIC;
    event.event_data.asynch_error_event_data.dat_handle = ia;
    event.event_data.asynch_error_event_data.reason = DAT_IA_CATASTROPHIC_ERROR;
    verbsdat_evd_post(ia->async_evd, &event);
}

/* Handles an event. Returns an identifier that is to be destroyed, or NULL. */
static struct rdma_cm_id *handle(struct verbsdat_ia *ia, const struct rdma_cm_event *e)
{
    struct verbsdat_handle *h = e->id->context;

    if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
        return !verbsdat_ask_answer(ia, e) && verbsdat_cr_arrived(ia, e) ? NULL : e->id;
    if (e->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        if (e->id == ia->id)
            adapter_gone(ia);
        return NULL;
    }
    if (!h)
        return NULL;
    if (h->type == VERBSDAT_ASK)
        return verbsdat_ask_event(ia, e);
    if (h->type == DAT_HANDLE_TYPE_CR) {
        verbsdat_cr_withdrawn((struct verbsdat_cr *)h);
        return e->id;
    }
    if (h->type == DAT_HANDLE_TYPE_EP && e->event < sizeof(of_ep) / sizeof(of_ep[0])
        && of_ep[e->event])
        of_ep[e->event]((struct verbsdat_ep *)h, e);
    return NULL;
}

void verbsdat_cm_event(struct rdma_cm_event *event, struct verbsdat_ia *ia)
{
    struct rdma_cm_id *over;

    verbsdat_lock(ia);
    over = handle(ia, event);
    verbsdat_unlock(ia);
    rdma_ack_cm_event(event);
    if (over)
        rdma_destroy_id(over);
}

/* -- what the adapter's thread looks at -------------------------------------------------------- */

struct verbsdat_ep *verbsdat_next_ep(struct verbsdat_ia *ia, struct mdapl_list **at)
{
    while (*at != &ia->objects) {
        struct verbsdat_handle *h = MDAPL_OF(*at, struct verbsdat_handle, link);

        *at = (*at)->next;
        if (h->type == DAT_HANDLE_TYPE_EP)
            return (struct verbsdat_ep *)h;
    }
    return NULL;
}

/* Ends the connection if its last request has ended; the CQ is armed for the case that not. */
static void try_to_close(struct verbsdat_ep *ep)
{
    datlock_take(&ep->req_evd->lock);
    verbsdat_evd_rearm(ep->req_evd);
    datlock_release(&ep->req_evd->lock);
    verbsdat_evd_pull(ep->req_evd);
    if (!verbsdat_queue_idle(&ep->req))
        return;
    rdma_disconnect(ep->id);
    verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_DISCONNECTED, NULL, 0);
}

void verbsdat_cm_closing(struct verbsdat_ia *ia)
{
    struct verbsdat_ep *ep;

    VERBSDAT_EACH_EP(ep, ia)
        if (atomic_load(&ep->state) == DAT_EP_STATE_DISCONNECT_PENDING)
            try_to_close(ep);
}

static void time_is_over(struct verbsdat_ep *ep)
{
    ep->deadline = UINT64_MAX;
    if (is_calling(ep))
        verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_TIMED_OUT, NULL, 0);
    else
        verbsdat_ep_lost(ep);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void verbsdat_cm_deadlines(struct verbsdat_ia *ia)
{
    uint64_t now = verbsdat_now();
    struct verbsdat_ep *ep;

    ia->next_deadline = UINT64_MAX;
    VERBSDAT_EACH_EP(ep, ia) {
        if (ep->deadline <= now)
            time_is_over(ep);
        if (ep->path.due <= now)
            verbsdat_path_due(ep);
        ia->next_deadline = least(ia->next_deadline, least(ep->deadline, ep->path.due));
    }
    if (ia->ask.id)
        ia->next_deadline = least(ia->next_deadline, ia->ask.deadline);
}

void verbsdat_cm_faults(struct verbsdat_ia *ia)
{
    struct verbsdat_ep *ep;

    VERBSDAT_EACH_EP(ep, ia) {
        if (!atomic_exchange(&ep->fault, false) || !is_up(ep))
            continue;
        rdma_disconnect(ep->id);
        verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_BROKEN, NULL, 0);
    }
}

/* Attempts to connect that have ended, by time or by the consumer: an answer that arrives later is
 * refused when the identifier has gone. Releases ia->lock meanwhile. */
void verbsdat_cm_abandoned(struct verbsdat_ia *ia)
{
    struct rdma_cm_id *over;
    struct verbsdat_ep *ep;

    do {
        over = NULL;
        VERBSDAT_EACH_EP(ep, ia) {
            if (!ep->abandoned)
                continue;
            ep->abandoned = false;
            over = verbsdat_ep_take_id(ep);
            if (over)
                break;
        }
        if (over) {
            verbsdat_unlock(ia);
            rdma_destroy_id(over);
            verbsdat_lock(ia);
        }
    } while (over);
}

/* -- connecting -------------------------------------------------------------------------------- */

/* With ia->lock. What fails at once is reported by an event, as what fails later. */
static void connect_now(struct verbsdat_ep *ep, DAT_TIMEOUT us)
{
    uint64_t ns = us == DAT_TIMEOUT_INFINITE ? UINT64_MAX : verbsdat_now() + (uint64_t)us * 1000;

    set_state(ep, DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    ep->deadline = ns;
    verbsdat_thread_deadline(ep->h.ia, ns);
    ep->id = verbsdat_cm_id(ep->h.ia, &ep->h.ia->cfg.addr, 0, ep);
    if (ep->id)
        ep->id->qp = ep->qp;
    if (!ep->id || rdma_resolve_addr(ep->id, NULL, (struct sockaddr *)&ep->remote, RESOLVE_MS))
        unreachable(ep);
}

DAT_RETURN verbsdat_ep_connect(DAT_EP_HANDLE handle, DAT_IA_ADDRESS_PTR to, DAT_CONN_QUAL qual,
                               DAT_TIMEOUT us, DAT_COUNT size, const DAT_PVOID priv, DAT_QOS qos,
                               DAT_CONNECT_FLAGS flags)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);
    bool possible;

    if (!ep)
        return bad_ep;
    if (!to || ((struct sockaddr *)to)->sa_family != AF_INET)
        return VERBSDAT_ERROR(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED);
    if (qual == 0)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    if (us == 0)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    if (size < 0 || size > VERBSDAT_PRIV || (size > 0 && !priv))
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
    if (qos != DAT_QOS_BEST_EFFORT || flags != DAT_CONNECT_DEFAULT_FLAG)
        return VERBSDAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    verbsdat_lock(ep->h.ia);
    possible = atomic_load(&ep->state) == DAT_EP_STATE_UNCONNECTED;
    if (possible) {
        memcpy(&ep->remote, to, sizeof(ep->remote));
        ep->remote.sin_port = htons(verbsdat_cm_port(qual));
        ep->remote_qual = qual;
        verbsdat_cm_param(ep, priv, size);
        connect_now(ep, us);
    }
    verbsdat_unlock(ep->h.ia);
    return possible ? DAT_SUCCESS
                    : VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
}

DAT_RETURN verbsdat_ep_dup_connect(DAT_EP_HANDLE handle, DAT_EP_HANDLE like, DAT_TIMEOUT us,
                                   DAT_COUNT size, const DAT_PVOID priv, DAT_QOS qos)
{
    struct verbsdat_ep *of = verbsdat_ep_of(like);
    struct sockaddr_in to;
    DAT_CONN_QUAL qual;

    if (!of)
        return bad_ep;
    verbsdat_lock(of->h.ia);
    to = of->remote;
    qual = is_up(of) ? of->remote_qual : 0;
    verbsdat_unlock(of->h.ia);
    if (qual == 0)
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    return verbsdat_ep_connect(handle, (DAT_IA_ADDRESS_PTR)&to, qual, us, size, priv, qos,
                               DAT_CONNECT_DEFAULT_FLAG);
}

/* -- disconnecting ----------------------------------------------------------------------------- */

/* Graceful, with ia->lock: the connection ends after the last request (DAT 2.0, dat_ep_disconnect),
 * for which the adapter's thread waits. */
static void close_later(struct verbsdat_ep *ep)
{
    set_state(ep, DAT_EP_STATE_DISCONNECT_PENDING);
    datlock_take(&ep->lock);
    verbsdat_ep_mark(ep);
    datlock_release(&ep->lock);
    ep->h.ia->closing++;
    verbsdat_evd_closing(ep->req_evd, 1);
    try_to_close(ep);
}

DAT_RETURN verbsdat_ep_disconnect(DAT_EP_HANDLE handle, DAT_CLOSE_FLAGS flags)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);
    DAT_RETURN ret = DAT_SUCCESS;
    DAT_EP_STATE state;

    if (!ep)
        return bad_ep;
    if (flags != DAT_CLOSE_ABRUPT_FLAG && flags != DAT_CLOSE_GRACEFUL_FLAG)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    verbsdat_lock(ep->h.ia);
    state = atomic_load(&ep->state);
    if (state == DAT_EP_STATE_UNCONNECTED) {
        ret = VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    } else if (flags == DAT_CLOSE_GRACEFUL_FLAG && state == DAT_EP_STATE_CONNECTED) {
        close_later(ep);
    } else if (state != DAT_EP_STATE_DISCONNECTED
               && (flags == DAT_CLOSE_ABRUPT_FLAG || state != DAT_EP_STATE_DISCONNECT_PENDING)) {
        release_peer(ep);
        verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_DISCONNECTED, NULL, 0);
    }
    verbsdat_unlock(ep->h.ia);
    return ret;
}
