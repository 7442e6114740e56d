/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,              /* a whole job may call at once */
    ACCEPT_BURST = 64,
    FIRST_ANY = 1024, LAST_ANY = 64535,
};

static const uint64_t stranger_ns = UINT64_C(5) * 1000000000;    /* to say CONNECT */
static const uint64_t linger_ns = UINT64_C(2) * 1000000000;      /* to finish after a disconnect */
static const uint64_t answer_ns = UINT64_C(30) * 1000000000;     /* for READY after ACCEPT */

/* -- connections ------------------------------------------------------------------------------ */

void softdat_conn_deadline(struct softdat_conn *c, uint64_t ns)
{
    c->deadline = softdat_now() + ns;
    if (c->deadline < c->ia->next_deadline)
        c->ia->next_deadline = c->deadline;
}

static void connected(struct softdat_conn *c);

static void conn_ready(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    struct softdat_conn *c = SOFTDAT_OF(s, struct softdat_conn, sock);

    (void)ia;
    if (c->phase == SOFTDAT_CALLING) {
        connected(c);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        softdat_rx_ready(c);
    if (c->sock.fd >= 0 && events & EPOLLOUT)
        softdat_tx_pump(c);
    if (c->sock.fd >= 0 && c->stalled && events & (EPOLLHUP | EPOLLERR))
        softdat_conn_lost(c);
}

struct softdat_conn *softdat_conn_make(struct softdat_ia *ia, int fd, enum softdat_conn_phase phase)
{
    struct softdat_conn *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->sock = (struct softdat_sock){ .fd = fd, .ready = conn_ready };
    c->ia = ia;
    softdat_list_init(&c->slow);
    softdat_list_init(&c->doomed);
    c->phase = phase;
    softdat_list_init(&c->acks);
    softdat_list_init(&c->outs);
    softdat_list_init(&c->held);
    softdat_list_init(&c->polled);
    softdat_list_init(&c->waiting);
    c->segment_fd = -1;
    if (softdat_sock_add(ia, &c->sock, phase == SOFTDAT_CALLING ? EPOLLOUT : EPOLLIN)) {
        free(c);
        return NULL;
    }
    softdat_list_append(&ia->conns, &c->link);
    ia->n_sockets++;
    return c;
}

void softdat_conn_free(struct softdat_conn *c)
{
    softdat_sock_close(c->ia, &c->sock);
    softdat_list_remove(&c->acks);
    softdat_list_remove(&c->polled);
    softdat_list_remove(&c->slow);
    softdat_list_remove(&c->doomed);
    c->ia->n_streams -= c->stream;
    c->ia->n_sockets -= !c->ringed && !c->stream;
    c->stream = false;
    if (c->segment_fd >= 0)
        close(c->segment_fd);
    while (!softdat_list_empty(&c->outs)) {
        struct softdat_out *out = SOFTDAT_OF(c->outs.next, struct softdat_out, link);

        softdat_list_remove(&out->link);
        free(out);
    }
    free(c->cur_out);
    c->cur_out = NULL;
    softdat_rx_free(c);
    if (c->ep)
        c->ep->conn = NULL;
    if (c->cr)
        c->cr->conn = NULL;
    c->ep = NULL;
    c->cr = NULL;
    /* Its socket may be among the events of this round: it is freed at the round's end. */
    softdat_list_remove(&c->link);
    softdat_list_append(&c->ia->dead, &c->link);
}

void softdat_conn_leave(struct softdat_conn *c, bool linger)
{
    bool half_written_request = c->cur_n > 0 && !c->cur_out;

    if (c->ep)
        c->ep->conn = NULL;
    c->ep = NULL;
    /* The EP's memory is its owner's again: nothing may be read from it or written to it now. A
     * request that has left in part cannot be finished without its memory. */
    if (!linger || c->phase < SOFTDAT_OPEN || half_written_request) {
        softdat_conn_free(c);
        return;
    }
    c->phase = SOFTDAT_LEAVING;
    if (c->hdr_have == sizeof(c->hdr))
        c->sink.discard = true;
    softdat_rx_free(c);
    softdat_conn_deadline(c, linger_ns);
    if (!c->said_bye)
        softdat_tx_frame(c, SOFTDAT_BYE, NULL, 0);
}

/* -- the end that nobody asked for ------------------------------------------------------------ */

static void ep_failed(struct softdat_conn *c, DAT_EVENT_NUMBER number)
{
    struct softdat_ep *ep = c->ep;

    softdat_conn_free(c);
    if (ep && softdat_ep_step(ep, SOFTDAT_EP_FAIL))
        softdat_ep_event(ep, number, NULL, 0);
}

static void ep_lost(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;

    c->ia->count[SOFTDAT_N_BREAKS]++;
    softdat_conn_free(c);
    if (ep)
        softdat_ep_down(ep, DAT_CONNECTION_EVENT_BROKEN);
}

void softdat_conn_break(struct softdat_conn *c, DAT_DTO_COMPLETION_STATUS status)
{
    struct softdat_dto *d = c->ep ? softdat_ring_unfinished(&c->ep->req) : NULL;

    if (d) {
        d->state = SOFTDAT_DTO_DONE;
        d->status = status;
    }
    softdat_conn_lost(c);
}

void softdat_conn_lost(struct softdat_conn *c)
{
    switch (c->phase) {
    case SOFTDAT_CALLED:
        ep_failed(c, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
        break;
    case SOFTDAT_ANSWERED:
        ep_failed(c, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
        break;
    case SOFTDAT_OPEN:
        ep_lost(c);
        break;
    default:
        softdat_conn_free(c);
        break;
    }
}

void softdat_conn_expire(struct softdat_conn *c)
{
    if (c->phase == SOFTDAT_CALLING || c->phase == SOFTDAT_CALLED)
        ep_failed(c, DAT_CONNECTION_EVENT_TIMED_OUT);
    else if (c->phase == SOFTDAT_OPEN)
        softdat_path_expired(c);
    else
        softdat_conn_lost(c);
}

/* -- listening -------------------------------------------------------------------------------- */

/* On one host connections go through abstract unix sockets: nothing stays behind in the file
 * system, and a network namespace is a host of its own. */
static socklen_t local_name(struct sockaddr_un *un, struct in_addr addr, uint32_t qual)
{
    char text[INET_ADDRSTRLEN];

    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    inet_ntop(AF_INET, &addr, text, sizeof(text));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1
                       + (size_t)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
                                          "daplsoft.%s.%u", text, qual));
}

/* Other users stay out: abstract names have no permissions. */
bool softdat_same_user(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0
           && (cred.uid == geteuid() || cred.uid == 0);
}

static void set_nodelay(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void take_call(struct softdat_ia *ia, const struct softdat_listener *at, int fd)
{
    struct softdat_conn *c;
    socklen_t len = sizeof(c->peer);

    if (ia->failed || (at->local && !softdat_same_user(fd))
        || !(c = softdat_conn_make(ia, fd, SOFTDAT_INCOMING))) {
        close(fd);
        return;
    }
    c->sp = at->sp;
    c->local = at->local;
    c->port = at->port;
    if (!c->local) {
        set_nodelay(fd);
        getpeername(fd, (struct sockaddr *)&c->peer, &len);
    }
    softdat_conn_deadline(c, stranger_ns);
}

static void listen_ready(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    const struct softdat_listener *at = SOFTDAT_OF(s, struct softdat_listener, sock);

    (void)events;
    for (int i = 0; i < ACCEPT_BURST; i++) {
        int got = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (got < 0)
            return;
        take_call(ia, at, got);
    }
}

static int listen_tcp(struct sockaddr_in sin, uint32_t qual)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;    /* with errno as it is: the user reads it */
    sin.sin_port = htons((uint16_t)qual);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    close(fd);
    return -1;
}

static int listen_local(struct sockaddr_in sin, uint32_t qual)
{
    struct sockaddr_un un;
    socklen_t len = local_name(&un, sin.sin_addr, qual);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&un, len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void sp_deaf(struct softdat_ia *ia, struct softdat_sp *sp)
{
    for (uint32_t i = 0; i < ia->cfg.n_ports; i++) {
        softdat_sock_close(ia, &sp->listener[i].tcp.sock);
        softdat_sock_close(ia, &sp->listener[i].local.sock);
    }
}

static void sp_close(struct softdat_ia *ia, struct softdat_sp *sp)
{
    struct softdat_list *l = ia->conns.next;

    sp_deaf(ia, sp);
    while (l != &ia->conns) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        l = l->next;
        if (c->phase == SOFTDAT_INCOMING && c->sp == sp)
            softdat_conn_free(c);
        else if (c->sp == sp)
            c->sp = NULL;
    }
    for (l = ia->handles.next; l != &ia->handles; l = l->next) {
        struct softdat_cr *cr = (struct softdat_cr *)SOFTDAT_OF(l, struct softdat_handle, link);

        if (cr->h.type == DAT_HANDLE_TYPE_CR && cr->sp == sp)
            cr->sp = NULL;
    }
}

static bool listen_on(struct softdat_ia *ia, struct softdat_listener *at, int fd)
{
    at->sock = (struct softdat_sock){ .fd = fd, .ready = listen_ready };
    return fd >= 0 && softdat_sock_add(ia, &at->sock, EPOLLIN) == 0;
}

/* On every port, by TCP and by a unix socket. */
static bool sp_listen(struct softdat_ia *ia, struct softdat_sp *sp)
{
    uint32_t qual = (uint32_t)sp->qual;
    bool ok = true;

    for (uint8_t i = 0; i < ia->cfg.n_ports; i++) {
        struct sockaddr_in sin = ia->cfg.port[i].addr;

        sp->listener[i].tcp = (struct softdat_listener){ .sp = sp, .port = i };
        sp->listener[i].local = (struct softdat_listener){ .sp = sp, .port = i, .local = true };
        ok = listen_on(ia, &sp->listener[i].tcp, ok ? listen_tcp(sin, qual) : -1) && ok;
        ok = listen_on(ia, &sp->listener[i].local, ok ? listen_local(sin, qual) : -1) && ok;
        if (ok && ia->cfg.port[i].cut) {
            softdat_sock_mute(ia, &sp->listener[i].tcp.sock, true);
            softdat_sock_mute(ia, &sp->listener[i].local.sock, true);
        }
    }
    return ok;
}

static DAT_RETURN sp_create(struct softdat_ia *ia, DAT_HANDLE_TYPE type, DAT_CONN_QUAL qual,
                            struct softdat_evd *evd, struct softdat_sp **sp_p)
{
    struct softdat_sp *sp;

    if (qual == 0 || qual > UINT16_MAX)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (ia->failed)
        return DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    sp = calloc(1, sizeof(*sp));
    if (!sp)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    sp->qual = qual;
    sp->evd = evd;
    if (!sp_listen(ia, sp)) {
        bool taken = errno == EADDRINUSE;

        sp_deaf(ia, sp);
        free(sp);
        return taken ? DAT_ERROR(DAT_CONN_QUAL_IN_USE, DAT_NO_SUBTYPE)
                     : DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
    }
    evd->users++;
    softdat_handle_init(&sp->h, ia, type);
    *sp_p = sp;
    return DAT_SUCCESS;
}

static void sp_free(struct softdat_sp *sp)
{
    sp_close(sp->h.ia, sp);
    sp->evd->users--;
    if (sp->ep)
        softdat_ep_step(sp->ep, SOFTDAT_EP_RELEASE);
    softdat_handle_end(&sp->h);
}

DAT_RETURN softdat_psp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL qual,
                              DAT_EVD_HANDLE evd_handle,
                              DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp_p)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_evd *evd = softdat_get(evd_handle, DAT_HANDLE_TYPE_EVD);
    struct softdat_sp *sp = NULL;
    DAT_RETURN ret;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!evd || !(evd->flags & DAT_EVD_CR_FLAG))
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
    if (flags != DAT_PSP_CONSUMER_FLAG)
        return DAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    softdat_lock(ia);
    ret = sp_create(ia, DAT_HANDLE_TYPE_PSP, qual, evd, &sp);
    if (ret == DAT_SUCCESS)
        sp->flags = flags;
    softdat_unlock(ia);
    if (ret == DAT_SUCCESS)
        *psp_p = sp;
    return ret;
}

DAT_RETURN softdat_psp_create_any(DAT_IA_HANDLE ia, DAT_CONN_QUAL *qual, DAT_EVD_HANDLE evd,
                                  DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp_p)
{
    DAT_RETURN ret = DAT_ERROR(DAT_CONN_QUAL_UNAVAILABLE, DAT_NO_SUBTYPE);
    uint32_t span = LAST_ANY - FIRST_ANY + 1;

    for (uint32_t i = 0; i < span; i++) {
        *qual = FIRST_ANY + ((uint32_t)getpid() + i) % span;
        ret = softdat_psp_create(ia, *qual, evd, flags, psp_p);
        if (DAT_GET_TYPE(ret) != DAT_GET_TYPE(DAT_CONN_QUAL_IN_USE))
            break;
    }
    return ret;
}

DAT_RETURN softdat_psp_query(DAT_PSP_HANDLE handle, DAT_PSP_PARAM_MASK mask, DAT_PSP_PARAM *p)
{
    struct softdat_sp *sp = softdat_get(handle, DAT_HANDLE_TYPE_PSP);

    (void)mask;
    if (!sp)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
    if (!p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    *p = (DAT_PSP_PARAM){ sp->h.ia, sp->qual, sp->evd, sp->flags };
    return DAT_SUCCESS;
}

DAT_RETURN softdat_psp_free(DAT_PSP_HANDLE handle)
{
    struct softdat_sp *sp = softdat_get(handle, DAT_HANDLE_TYPE_PSP);
    struct softdat_ia *ia;

    if (!sp)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
    ia = sp->h.ia;
    softdat_lock(ia);
    sp_free(sp);
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_rsp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL qual, DAT_EP_HANDLE ep_handle,
                              DAT_EVD_HANDLE evd_handle, DAT_RSP_HANDLE *rsp_p)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_ep *ep = softdat_get(ep_handle, DAT_HANDLE_TYPE_EP);
    struct softdat_evd *evd = softdat_get(evd_handle, DAT_HANDLE_TYPE_EVD);
    struct softdat_sp *sp = NULL;
    DAT_RETURN ret;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!ep)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    if (!evd)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CR);
    softdat_lock(ia);
    if (!softdat_ep_can(ep, SOFTDAT_EP_RESERVE))
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED);
    else
        ret = sp_create(ia, DAT_HANDLE_TYPE_RSP, qual, evd, &sp);
    if (ret == DAT_SUCCESS) {
        sp->ep = ep;
        softdat_ep_step(ep, SOFTDAT_EP_RESERVE);
        *rsp_p = sp;
    }
    softdat_unlock(ia);
    return ret;
}

DAT_RETURN softdat_rsp_query(DAT_RSP_HANDLE handle, DAT_RSP_PARAM_MASK mask, DAT_RSP_PARAM *p)
{
    struct softdat_sp *sp = softdat_get(handle, DAT_HANDLE_TYPE_RSP);

    (void)mask;
    if (!sp)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP);
    if (!p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    *p = (DAT_RSP_PARAM){ sp->h.ia, sp->qual, sp->evd, sp->ep };
    return DAT_SUCCESS;
}

DAT_RETURN softdat_rsp_free(DAT_RSP_HANDLE handle)
{
    struct softdat_sp *sp = softdat_get(handle, DAT_HANDLE_TYPE_RSP);
    struct softdat_ia *ia;

    if (!sp)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP);
    ia = sp->h.ia;
    softdat_lock(ia);
    sp_free(sp);
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

/* -- requests --------------------------------------------------------------------------------- */

/* CONNECT has arrived: the consumer hears of it. */
static bool asked(struct softdat_conn *c)
{
    struct softdat_cr *cr = calloc(1, sizeof(*cr));
    DAT_EVENT event;
    DAT_CR_ARRIVAL_EVENT_DATA *e = &event.event_data.cr_arrival_event_data;

    if (!cr || !c->sp) {
        free(cr);
        return false;
    }
    c->phase = SOFTDAT_ASKED;
    c->deadline = 0;
    c->cr = cr;
    if (c->peer.sin_family != AF_INET) {
        c->peer.sin_family = AF_INET;
        c->peer.sin_addr.s_addr = (in_addr_t)c->hdr.addr;
    }
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
    /* A reserved service point is for one request. */
    if (c->sp->ep)
        sp_deaf(c->ia, c->sp);
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
    if (!c) {                    /* the caller has gone meanwhile */
        softdat_ep_step(ep, SOFTDAT_EP_FAIL);
        softdat_ep_event(ep, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, NULL, 0);
    } else {
        c->ep = ep;
        ep->conn = c;
        c->phase = SOFTDAT_ANSWERED;
        softdat_conn_deadline(c, answer_ns);
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
        c->phase = SOFTDAT_LEAVING;
        c->said_bye = true;
        softdat_conn_deadline(c, linger_ns);
        softdat_tx_pump(c);
    }
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

/* -- calling ---------------------------------------------------------------------------------- */

static void say_connect(struct softdat_conn *c)
{
    c->phase = SOFTDAT_CALLED;
    softdat_tx_frame(c, SOFTDAT_CONNECT, c->priv, c->sink.left);
    c->sink.left = 0;
}

static const struct {
    int error;
    DAT_EVENT_NUMBER number;
} call_error[] = {
    { ECONNREFUSED, DAT_CONNECTION_EVENT_NON_PEER_REJECTED },
    { ECONNRESET, DAT_CONNECTION_EVENT_NON_PEER_REJECTED },
    { ETIMEDOUT, DAT_CONNECTION_EVENT_TIMED_OUT },
};

static DAT_EVENT_NUMBER number_of(int error)
{
    for (size_t i = 0; i < sizeof(call_error) / sizeof(call_error[0]); i++)
        if (call_error[i].error == error)
            return call_error[i].number;
    return DAT_CONNECTION_EVENT_UNREACHABLE;
}

/* The TCP connect has come to its end. */
static void connected(struct softdat_conn *c)
{
    int error = 0;
    socklen_t len = sizeof(error);

    getsockopt(c->sock.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error) {
        ep_failed(c, number_of(error));
        return;
    }
    set_nodelay(c->sock.fd);
    softdat_sock_watch(c->ia, &c->sock, EPOLLIN);
    say_connect(c);
}

static int call_local(struct in_addr addr, uint32_t qual)
{
    struct sockaddr_un un;
    socklen_t len = local_name(&un, addr, qual);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&un, len) == 0 && softdat_same_user(fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A socket that is connecting from that address; -1 with *error_p. */
static int call_tcp(struct sockaddr_in from, struct sockaddr_in to, int *error_p)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    from.sin_port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0
        && (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EINPROGRESS))
        return fd;
    *error_p = errno;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A socket to the EP's peer from that port: local when it is a process of this host. */
static struct softdat_conn *call_from(struct softdat_ep *ep, int port, int *error_p)
{
    struct softdat_ia *ia = ep->h.ia;
    struct softdat_conn *c = NULL;
    bool local = false;
    int fd = -1;

    if (ia->cfg.local >= SOFTDAT_LOCAL_SOCKET)
        fd = call_local(ep->remote.sin_addr, (uint32_t)ep->remote_qual);
    local = fd >= 0;
    if (!local)
        fd = call_tcp(ia->cfg.port[port].addr, ep->remote, error_p);
    if (fd >= 0)
        c = softdat_conn_make(ia, fd, local ? SOFTDAT_CALLED : SOFTDAT_CALLING);
    if (!c && fd >= 0)
        close(fd);
    if (c) {
        c->local = local;
        c->port = (uint8_t)port;
    }
    return c;
}

static void call_now(struct softdat_ep *ep, DAT_TIMEOUT us, const void *priv, size_t size)
{
    int error = ENETUNREACH, port = softdat_path_choose(ep->h.ia, ep->remote.sin_addr);
    struct softdat_conn *c = port >= 0 ? call_from(ep, port, &error) : NULL;

    if (!c) {
        softdat_ep_step(ep, SOFTDAT_EP_FAIL);
        softdat_ep_event(ep, number_of(error), NULL, 0);
        return;
    }
    ep->port = (uint8_t)port;
    c->ep = ep;
    ep->conn = c;
    c->peer = ep->remote;
    if (us != DAT_TIMEOUT_INFINITE)
        softdat_conn_deadline(c, (uint64_t)us * 1000);
    if (size > 0)
        memcpy(c->priv, priv, size);
    c->sink.left = size;         /* kept there until CONNECT leaves */
    if (c->local) {
        c->segment_fd = softdat_shared_make(c);
        say_connect(c);
    }
}

DAT_RETURN softdat_ep_connect(DAT_EP_HANDLE handle, DAT_IA_ADDRESS_PTR to, DAT_CONN_QUAL qual,
                              DAT_TIMEOUT us, DAT_COUNT size, const DAT_PVOID priv, DAT_QOS qos,
                              DAT_CONNECT_FLAGS flags)
{
    struct softdat_ep *ep = softdat_get(handle, DAT_HANDLE_TYPE_EP);
    DAT_RETURN ret = DAT_SUCCESS;

    if (!ep)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    if (!to || ((struct sockaddr *)to)->sa_family != AF_INET)
        return DAT_ERROR(DAT_INVALID_ADDRESS, DAT_INVALID_ADDRESS_UNSUPPORTED);
    if (qual == 0 || qual > UINT16_MAX)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    if (us == 0)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    if (size < 0 || (uint32_t)size > ep->h.ia->cfg.max_priv || (size > 0 && !priv))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
    if (qos != DAT_QOS_BEST_EFFORT || flags != DAT_CONNECT_DEFAULT_FLAG)
        return DAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    softdat_lock(ep->h.ia);
    if (ep->h.ia->failed) {
        ret = DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    } else if (softdat_ep_step(ep, SOFTDAT_EP_CONNECT)) {
        memcpy(&ep->remote, to, sizeof(ep->remote));
        ep->remote.sin_port = htons((uint16_t)qual);
        ep->remote_qual = qual;
        call_now(ep, us, priv, (size_t)size);
    } else {
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
    }
    softdat_unlock(ep->h.ia);
    return ret;
}

/* Connects to where another EP is connected to. */
DAT_RETURN softdat_ep_dup_connect(DAT_EP_HANDLE handle, DAT_EP_HANDLE like, DAT_TIMEOUT us,
                                  DAT_COUNT size, const DAT_PVOID priv, DAT_QOS qos)
{
    struct softdat_ep *of = softdat_get(like, DAT_HANDLE_TYPE_EP);
    struct sockaddr_in to;
    DAT_CONN_QUAL qual;

    if (!of)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    softdat_lock(of->h.ia);
    to = of->remote;
    qual = of->state == DAT_EP_STATE_CONNECTED ? of->remote_qual : 0;
    softdat_unlock(of->h.ia);
    if (qual == 0)
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    return softdat_ep_connect(handle, (DAT_IA_ADDRESS_PTR)&to, qual, us, size, priv, qos,
                              DAT_CONNECT_DEFAULT_FLAG);
}

/* -- frames of connection management ---------------------------------------------------------- */

static void open_conn(struct softdat_conn *c)
{
    c->phase = SOFTDAT_OPEN;
    if (!c->ringed) {
        c->stream = true;
        softdat_list_append(&c->ia->streams, &c->polled);
        c->ia->n_streams++;
        c->ia->n_sockets--;
    }
    c->ia->count[SOFTDAT_N_CONNECTS]++;
    softdat_path_watch(c);
}

static bool accepted(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;

    if (!ep)
        return false;
    if (c->hdr.want && c->shared.seg) {
        softdat_direct_try(c);
        softdat_shared_start(c);
    }
    open_conn(c);
    softdat_tx_frame(c, SOFTDAT_READY, NULL, 0);
    softdat_ep_step(ep, SOFTDAT_EP_UP);
    softdat_ep_event(ep, DAT_CONNECTION_EVENT_ESTABLISHED, c->priv, c->hdr.len);
    return true;
}

static bool rejected(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;
    uint8_t priv[SOFTDAT_PRIV_MAX];
    size_t len = c->hdr.len;

    memcpy(priv, c->priv, len);
    softdat_conn_free(c);
    if (ep && softdat_ep_step(ep, SOFTDAT_EP_FAIL))
        softdat_ep_event(ep, DAT_CONNECTION_EVENT_PEER_REJECTED, priv, len);
    return true;
}

static bool stands(struct softdat_conn *c)
{
    if (!c->ep)
        return false;
    open_conn(c);
    softdat_ep_step(c->ep, SOFTDAT_EP_UP);
    softdat_ep_event(c->ep, DAT_CONNECTION_EVENT_ESTABLISHED, NULL, 0);
    softdat_tx_pump(c);
    return true;
}

static const struct {
    enum softdat_conn_phase phase;   /* in which the frame is expected */
    bool (*act)(struct softdat_conn *);
} cm_frame[SOFTDAT_FRAME_TYPES] = {
    [SOFTDAT_CONNECT] = { SOFTDAT_INCOMING, asked },
    [SOFTDAT_ACCEPT] = { SOFTDAT_CALLED, accepted },
    [SOFTDAT_REJECT] = { SOFTDAT_CALLED, rejected },
    [SOFTDAT_READY] = { SOFTDAT_ANSWERED, stands },
};

bool softdat_cm_frame(struct softdat_conn *c)
{
    return c->phase == cm_frame[c->hdr.type].phase && cm_frame[c->hdr.type].act(c);
}

/* -- ending ----------------------------------------------------------------------------------- */

DAT_RETURN softdat_ep_disconnect(DAT_EP_HANDLE handle, DAT_CLOSE_FLAGS flags)
{
    struct softdat_ep *ep = softdat_get(handle, DAT_HANDLE_TYPE_EP);
    struct softdat_ia *ia;
    DAT_RETURN ret = DAT_SUCCESS;

    if (!ep)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    if (flags != DAT_CLOSE_ABRUPT_FLAG && flags != DAT_CLOSE_GRACEFUL_FLAG)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    ia = ep->h.ia;
    softdat_lock(ia);
    if (ep->state == DAT_EP_STATE_DISCONNECTED) {
        /* done already */
    } else if (flags == DAT_CLOSE_GRACEFUL_FLAG && softdat_ep_step(ep, SOFTDAT_EP_DISCONNECT)) {
        softdat_ep_reap(ep);
    } else if (softdat_ep_can(ep, SOFTDAT_EP_DOWN)) {
        if (ep->conn)
            softdat_conn_leave(ep->conn, true);
        softdat_ep_down(ep, DAT_CONNECTION_EVENT_DISCONNECTED);
    } else {
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    }
    softdat_unlock(ia);
    return ret;
}
