/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BACKLOG = 1024 };         /* requests that the thread has not taken */

/* -- service points ---------------------------------------------------------------------------- */

/* An identifier that listens; NULL: errno says why. */
static struct rdma_cm_id *listen_at(struct verbsdat_ia *ia, const struct sockaddr_in *addr,
                                    uint16_t port, struct verbsdat_psp *psp)
{
    struct rdma_cm_id *id = verbsdat_cm_id(ia, addr, port, psp);
    int error;

    if (!id || rdma_listen(id, BACKLOG) == 0)
        return id;
    error = errno;
    rdma_destroy_id(id);
    errno = error;
    return NULL;
}

/* At all addresses of the IA. */
static DAT_RETURN listen_on(struct verbsdat_ia *ia, uint16_t port, struct verbsdat_psp *psp)
{
    psp->id = listen_at(ia, &ia->cfg.addr, port, psp);
    if (psp->id && ia->migrates)
        psp->alternate = listen_at(ia, &ia->cfg.alternate, ntohs(rdma_get_src_port(psp->id)), psp);
    if (psp->id && (psp->alternate || !ia->migrates))
        return DAT_SUCCESS;
    if (psp->id)
        rdma_destroy_id(psp->id);
    return errno == EADDRINUSE ? VERBSDAT_ERROR(DAT_CONN_QUAL_IN_USE, DAT_NO_SUBTYPE)
                               : VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
}

/* qual 0: any. */
static DAT_RETURN create(struct verbsdat_ia *ia, DAT_CONN_QUAL qual, DAT_EVD_HANDLE evd_handle,
                         DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp_p)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(evd_handle);
    struct verbsdat_psp *psp;
    DAT_RETURN ret;

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!evd || evd->h.ia != ia || !(evd->flags & DAT_EVD_CR_FLAG))
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
    if (flags != DAT_PSP_CONSUMER_FLAG)
        return VERBSDAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    if (!psp_p)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
    psp = calloc(1, sizeof(*psp));
    if (!psp)
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    psp->evd = evd;
    verbsdat_lock(ia);           /* the thread may see a request before this returns */
    ret = listen_on(ia, verbsdat_cm_port(qual), psp);
    if (ret == DAT_SUCCESS) {
        psp->qual = qual ? qual : ntohs(rdma_get_src_port(psp->id));
        atomic_fetch_add(&evd->users, 1);
        verbsdat_handle_init(&psp->h, ia, DAT_HANDLE_TYPE_PSP);
        *psp_p = psp;
    }
    verbsdat_unlock(ia);
    if (ret != DAT_SUCCESS)
        free(psp);
    return ret;
}

DAT_RETURN verbsdat_psp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL qual, DAT_EVD_HANDLE evd,
                               DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp_p)
{
    if (qual == 0)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    return create(verbsdat_ia_of(ia), qual, evd, flags, psp_p);
}

DAT_RETURN verbsdat_psp_create_any(DAT_IA_HANDLE ia, DAT_CONN_QUAL *qual, DAT_EVD_HANDLE evd,
                                   DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp_p)
{
    DAT_RETURN ret;

    if (!qual)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    ret = create(verbsdat_ia_of(ia), 0, evd, flags, psp_p);
    if (ret == DAT_SUCCESS)
        *qual = ((struct verbsdat_psp *)*psp_p)->qual;
    return ret;
}

static struct verbsdat_psp *psp_of(DAT_PSP_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_PSP);
}

DAT_RETURN verbsdat_psp_query(DAT_PSP_HANDLE handle, DAT_PSP_PARAM_MASK mask, DAT_PSP_PARAM *p)
{
    struct verbsdat_psp *psp = psp_of(handle);

    (void)mask;
    if (!psp)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
    if (!p)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    *p = (DAT_PSP_PARAM){ .ia_handle = psp->h.ia, .conn_qual = psp->qual, .evd_handle = psp->evd,
                          .psp_flags = DAT_PSP_CONSUMER_FLAG };
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_psp_free(DAT_PSP_HANDLE handle)
{
    struct verbsdat_psp *psp = psp_of(handle);
    struct rdma_cm_id *id, *alternate;
    struct verbsdat_ia *ia;

    if (!psp)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
    ia = psp->h.ia;
    verbsdat_lock(ia);
    id = psp->id;
    alternate = psp->alternate;
    id->context = NULL;
    if (alternate)
        alternate->context = NULL;
    atomic_fetch_sub(&psp->evd->users, 1);
    verbsdat_handle_end(&psp->h);
    verbsdat_unlock(ia);
    rdma_destroy_id(id);
    if (alternate)
        rdma_destroy_id(alternate);
    return DAT_SUCCESS;
}

/* -- connection requests ----------------------------------------------------------------------- */

static bool post_request(struct verbsdat_psp *psp, struct verbsdat_cr *cr)
{
    DAT_EVENT event;
    DAT_CR_ARRIVAL_EVENT_DATA *e = &event.event_data.cr_arrival_event_data;

    memset(&event, 0, sizeof(event));
    event.event_number = DAT_CONNECTION_REQUEST_EVENT;
    e->sp_handle.psp_handle = psp;
    e->local_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&psp->h.ia->cfg.addr;
    e->conn_qual = psp->qual;
    e->cr_handle = cr;
    return verbsdat_evd_post(psp->evd, &event);
}

bool verbsdat_cr_arrived(struct verbsdat_ia *ia, const struct rdma_cm_event *event)
{
    struct verbsdat_psp *psp = event->listen_id->context;
    const struct rdma_conn_param *p = &event->param.conn;
    struct verbsdat_cr *cr = psp ? calloc(1, sizeof(*cr)) : NULL;

    event->id->context = NULL;
    if (!cr)
        return false;
    cr->id = event->id;
    memcpy(&cr->from, rdma_get_peer_addr(cr->id), sizeof(cr->from));
    cr->priv_len = p->private_data ? p->private_data_len : 0;
    if (cr->priv_len > 0)
        memcpy(cr->priv, p->private_data, cr->priv_len);
    cr->responder_resources = p->responder_resources;
    cr->initiator_depth = p->initiator_depth;
    verbsdat_handle_init(&cr->h, ia, DAT_HANDLE_TYPE_CR);
    if (!post_request(psp, cr)) {
        verbsdat_handle_end(&cr->h);
        return false;
    }
    cr->id->context = cr;
    return true;
}

void verbsdat_cr_withdrawn(struct verbsdat_cr *cr)
{
    cr->id->context = NULL;
    cr->id = NULL;
}

static struct verbsdat_cr *cr_of(DAT_CR_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_CR);
}

static const DAT_RETURN bad_cr = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CR;

DAT_RETURN verbsdat_cr_query(DAT_CR_HANDLE handle, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM *p)
{
    struct verbsdat_cr *cr = cr_of(handle);

    (void)mask;
    if (!cr)
        return bad_cr;
    if (!p)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    *p = (DAT_CR_PARAM){ .remote_ia_address_ptr = (DAT_IA_ADDRESS_PTR)&cr->from,
                         .remote_port_qual = ntohs(cr->from.sin_port),
                         .private_data_size = cr->priv_len,
                         .private_data = cr->priv_len ? cr->priv : NULL };
    return DAT_SUCCESS;
}

static uint8_t lesser(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

/* With ia->lock: accepts on the EP. */
static void accept_on(struct verbsdat_ep *ep, struct verbsdat_cr *cr)
{
    ep->id = cr->id;
    ep->id->context = ep;
    ep->id->qp = ep->qp;
    /* what the peer can use of this side's resources (rdma_accept(3)) */
    ep->param.responder_resources = lesser(ep->param.responder_resources, cr->responder_resources);
    ep->param.initiator_depth = lesser(ep->param.initiator_depth, cr->initiator_depth);
    if (rdma_accept(ep->id, &ep->param))
        verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, NULL, 0);
}

DAT_RETURN verbsdat_cr_accept(DAT_CR_HANDLE handle, DAT_EP_HANDLE ep_handle, DAT_COUNT size,
                              const DAT_PVOID priv)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(ep_handle);
    struct verbsdat_cr *cr = cr_of(handle);
    struct verbsdat_ia *ia;
    bool possible;

    if (!cr)
        return bad_cr;
    if (!ep || ep->h.ia != cr->h.ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    if (size < 0 || size > VERBSDAT_PRIV || (size > 0 && !priv))
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    ia = cr->h.ia;
    verbsdat_lock(ia);
    possible = atomic_load(&ep->state) == DAT_EP_STATE_UNCONNECTED;
    if (possible) {
        atomic_store(&ep->state, DAT_EP_STATE_COMPLETION_PENDING);
        ep->remote = cr->from;
        verbsdat_cm_param(ep, priv, size);
        if (cr->id)
            accept_on(ep, cr);
        else                     /* the caller has gone */
            verbsdat_ep_down(ep, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, NULL, 0);
        verbsdat_handle_end(&cr->h);
    }
    verbsdat_unlock(ia);
    return possible ? DAT_SUCCESS
                    : VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
}

DAT_RETURN verbsdat_cr_reject(DAT_CR_HANDLE handle, DAT_COUNT size, const DAT_PVOID priv)
{
    struct verbsdat_cr *cr = cr_of(handle);
    struct verbsdat_ia *ia;
    struct rdma_cm_id *id;

    if (!cr)
        return bad_cr;
    if (size < 0 || size > VERBSDAT_PRIV || (size > 0 && !priv))
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    ia = cr->h.ia;
    verbsdat_lock(ia);
    id = cr->id;
    if (id) {
        id->context = NULL;
        rdma_reject(id, priv, (uint8_t)size);
    }
    verbsdat_handle_end(&cr->h);
    verbsdat_unlock(ia);
    if (id)
        rdma_destroy_id(id);
    return DAT_SUCCESS;
}
