/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <string.h>

static const uint64_t ready_timeout_ns = UINT64_C(30) * 1000000000; /* from ACCEPT to READY */

void softdat_conn_learn_ports(struct softdat_conn *c)
{
    c->peer_port = c->hdr.status & SOFTDAT_PORT_MASK;
    c->peer_ports = (uint8_t)(c->hdr.status >> SOFTDAT_PORTS_SHIFT);
}

void softdat_conn_learn_address(struct softdat_conn *c)
{
    softdat_conn_learn_ports(c);
    if (c->peer.sin_family == AF_INET)
        return;
    c->peer.sin_family = AF_INET;
    c->peer.sin_addr.s_addr = (in_addr_t)c->hdr.addr;
}

/* Handles CONNECT: makes the connection request and posts its event. Without room for the event the
 * connection is closed, which the active side sees as a rejection. */
bool softdat_cm_on_connect(struct softdat_conn *c)
{
    struct softdat_cr *cr = softdat_alloc(sizeof(*cr));
    DAT_EVENT event;
    DAT_CR_ARRIVAL_EVENT_DATA *e = &event.event_data.cr_arrival_event_data;

    if (!cr || !c->sp || softdat_evd_full(c->sp->evd)) {
        softdat_free(cr);
        return false;
    }
    c->phase = SOFTDAT_CR_PENDING;
    c->ia->n_unidentified--;
    c->deadline = 0;
    c->cr = cr;
    c->token = (uint64_t)c->hdr.id << 32 | c->hdr.key;
    c->multipath = c->hdr.size != 0;
    softdat_conn_learn_address(c);
    cr->conn = c;
    cr->sp = c->sp;
    cr->from = c->peer;
    softdat_handle_init(&cr->h, c->ia, DAT_HANDLE_TYPE_CR);
    memset(&event, 0, sizeof(event));
    event.event_number = DAT_CONNECTION_REQUEST_EVENT;
    e->sp_handle.psp_handle = c->sp;
    e->local_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&c->ia->cfg.port[c->port].addr;
    e->conn_qual = c->sp->qual;
    e->cr_handle = cr;
    softdat_evd_post(c->sp->evd, &event);
    /* A reserved service point accepts one request (DAT 2.0, dat_rsp_create). */
    if (c->sp->ep)
        softdat_sp_close_listeners(c->ia, c->sp);
    return true;
}

DAT_RETURN softdat_cr_query(DAT_CR_HANDLE handle, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM *p)
{
    struct softdat_cr *cr = softdat_get(handle, DAT_HANDLE_TYPE_CR);

    (void)mask;
    if (!cr)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
    if (!p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    softdat_lock(cr->h.ia);
    *p = (DAT_CR_PARAM){
        .remote_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&cr->from,
        .private_data_size = cr->conn ? (DAT_COUNT)cr->conn->hdr.len : 0,
        .private_data = cr->conn ? cr->conn->priv : NULL,
        .local_ep_handle = cr->sp && cr->sp->ep ? cr->sp->ep : DAT_HANDLE_NULL,
    };
    softdat_unlock(cr->h.ia);
    return DAT_SUCCESS;
}

static void cr_free(struct softdat_cr *cr)
{
    if (cr->conn)
        cr->conn->cr = NULL;
    softdat_handle_end(&cr->h);
}

DAT_RETURN softdat_cr_accept(DAT_CR_HANDLE handle, DAT_EP_HANDLE ep_handle, DAT_COUNT size,
                             const DAT_PVOID priv)
{
    struct softdat_cr *cr = softdat_get(handle, DAT_HANDLE_TYPE_CR);
    struct softdat_ep *ep = softdat_get(ep_handle, DAT_HANDLE_TYPE_EP);
    struct softdat_conn *c;
    struct softdat_ia *ia;

    if (!cr)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
    ia = cr->h.ia;
    if (!ep_handle && cr->sp && cr->sp->ep)
        ep = cr->sp->ep;
    if (!ep)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    if (size < 0 || (uint32_t)size > ia->cfg.max_priv || (size > 0 && !priv))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    softdat_lock(ia);
    if (!softdat_ep_step(ep, SOFTDAT_EP_ACCEPT)) {
        softdat_unlock(ia);
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
    }
    c = cr->conn;
    ep->remote = cr->from;
    ep->port = c ? c->port : 0;
    if (cr->sp && cr->sp->ep == ep)
        cr->sp->ep = NULL;
    cr_free(cr);
    if (!c) {                    /* the active side has closed it */
        softdat_ep_step(ep, SOFTDAT_EP_FAIL);
        softdat_ep_event(ep, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, NULL, 0);
    } else {
        c->ep = ep;
        ep->conn = c;
        softdat_alternate_begin(ep, c->multipath);
        c->phase = SOFTDAT_ACCEPT_SENT;
        softdat_conn_deadline(c, ready_timeout_ns);
        softdat_tx_frame(c, SOFTDAT_ACCEPT, priv, (size_t)size);
    }
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_cr_reject(DAT_CR_HANDLE handle, DAT_COUNT size, const DAT_PVOID priv)
{
    struct softdat_cr *cr = softdat_get(handle, DAT_HANDLE_TYPE_CR);
    struct softdat_ia *ia;
    struct softdat_conn *c;

    if (!cr)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
    if (size < 0 || (uint32_t)size > cr->h.ia->cfg.max_priv || (size > 0 && !priv))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    ia = cr->h.ia;
    softdat_lock(ia);
    c = cr->conn;
    cr_free(cr);
    if (c) {
        softdat_tx_frame(c, SOFTDAT_REJECT, priv, (size_t)size);
        c->bye_sent = true;
        softdat_conn_linger(c);
        softdat_tx_progress(c);
    }
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

/* Handles READY: the connection is established. */
bool softdat_cm_on_ready(struct softdat_conn *c)
{
    if (!c->ep)
        return false;
    softdat_conn_open(c);
    softdat_ep_step(c->ep, SOFTDAT_EP_UP);
    softdat_ep_event(c->ep, DAT_CONNECTION_EVENT_ESTABLISHED, NULL, 0);
    softdat_alternate_open(c);
    softdat_tx_progress(c);
    return true;
}
