/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPT_BURST = 64,           /* connections accepted in one round */
    MAX_UNIDENTIFIED = 64,       /* accepted connections that have not sent CONNECT */
    FIRST_ANY = 1024, LAST_ANY = 64535,
};

static const uint64_t connect_timeout_ns = UINT64_C(5) * 1000000000; /* from accept() to CONNECT */
static const uint64_t min_age_ns = UINT64_C(100) * 1000000;  /* before it is dropped */

static void accept_socket(struct softdat_ia *ia, const struct softdat_listener *at, int fd)
{
    struct softdat_conn *c;
    socklen_t len = sizeof(c->peer);

    if (ia->failed || (at->local && !softdat_same_user(fd))
        || !(c = softdat_conn_make(ia, fd, SOFTDAT_ACCEPTED))) {
        close(fd);
        return;
    }
    c->sp = at->sp;
    c->local = at->local;
    c->port = at->port;
    if (!c->local) {
        softdat_set_nodelay(fd);
        getpeername(fd, (struct sockaddr *)&c->peer, &len);
    }
    softdat_conn_deadline(c, connect_timeout_ns);
    softdat_rx_ready(c);         /* CONNECT may have arrived */
}

/* Pauses accepting for ns; incoming connections stay in the backlog. */
static void pause_listening(struct softdat_ia *ia, uint64_t ns)
{
    ia->listen_resume_at = softdat_now() + ns;
    softdat_path_listen(ia, false);
}

void softdat_listen_resume(struct softdat_ia *ia)
{
    ia->listen_resume_at = 0;
    softdat_path_listen(ia, true);
}

static struct softdat_conn *oldest_unidentified(struct softdat_ia *ia)
{
    struct softdat_list *l;

    for (l = ia->conns.next; l != &ia->conns; l = l->next)
        if (SOFTDAT_OF(l, struct softdat_conn, link)->phase == SOFTDAT_ACCEPTED)
            return SOFTDAT_OF(l, struct softdat_conn, link);
    return NULL;
}

/* True if one more unidentified connection may be accepted. At the maximum the oldest is dropped if
 * it is older than a peer of this protocol needs for its CONNECT; else accepting is paused. */
static bool admit_unidentified(struct softdat_ia *ia)
{
    struct softdat_conn *c = ia->n_unidentified < MAX_UNIDENTIFIED ? NULL : oldest_unidentified(ia);
    uint64_t age;

    if (!c)
        return true;
    age = softdat_now() - (c->deadline - connect_timeout_ns);
    if (age < min_age_ns) {
        pause_listening(ia, min_age_ns - age);
        return false;
    }
    softdat_conn_free(c);
    return true;
}

/* Handles an error of accept(). True: accept again at once. When descriptors or memory are short,
 * accepting is paused, so that the adapter does not spin. */
static bool retry_accept(struct softdat_ia *ia, int error)
{
    if (error == EMFILE && softdat_raise_fd_limit())
        return true;
    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
        softdat_warn_once(ia, "accept connections", error);
        pause_listening(ia, min_age_ns);
    }
    return false;
}

static void listen_ready(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    const struct softdat_listener *at = SOFTDAT_OF(s, struct softdat_listener, sock);

    (void)events;
    for (int i = 0; i < ACCEPT_BURST && s->fd >= 0 && admit_unidentified(ia); i++) {
        int got = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (got >= 0)
            accept_socket(ia, at, got);
        else if (!retry_accept(ia, errno))
            return;
    }
}

void softdat_sp_close_listeners(struct softdat_ia *ia, struct softdat_sp *sp)
{
    for (uint32_t i = 0; i < ia->cfg.n_ports; i++) {
        softdat_sock_close(ia, &sp->listener[i].tcp.sock);
        softdat_sock_close(ia, &sp->listener[i].local.sock);
    }
}

static void sp_close(struct softdat_ia *ia, struct softdat_sp *sp)
{
    struct softdat_list *l = ia->conns.next;

    softdat_sp_close_listeners(ia, sp);
    while (l != &ia->conns) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        l = l->next;
        if (c->phase == SOFTDAT_ACCEPTED && c->sp == sp)
            softdat_conn_free(c);
        else if (c->sp == sp)
            c->sp = NULL;
    }
    for (l = ia->objects.next; l != &ia->objects; l = l->next) {
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

/* Listens on every port, by TCP and by a unix socket. False, with errno: a socket failed. */
static bool sp_listen(struct softdat_ia *ia, struct softdat_sp *sp)
{
    uint32_t qual = (uint32_t)sp->qual;
    bool ok = true;
    int error = 0;

    for (uint8_t i = 0; i < ia->cfg.n_ports; i++) {
        struct sockaddr_in sin = ia->cfg.port[i].addr;

        sp->listener[i].tcp = (struct softdat_listener){ .sp = sp, .port = i };
        sp->listener[i].local = (struct softdat_listener){ .sp = sp, .port = i, .local = true };
        ok = listen_on(ia, &sp->listener[i].tcp, ok ? softdat_listen_tcp(sin, qual) : -1) && ok;
        ok = listen_on(ia, &sp->listener[i].local, ok ? softdat_listen_local(sin, qual) : -1) && ok;
        if (!ok && !error)
            error = errno;
        if (ok && (ia->cfg.port[i].cut || ia->listen_resume_at)) {
            softdat_sock_suspend(ia, &sp->listener[i].tcp.sock, true);
            softdat_sock_suspend(ia, &sp->listener[i].local.sock, true);
        }
    }
    errno = error;
    return ok;
}

/* Maps an errno value to a DAT_RETURN. errno keeps the cause for the consumer's error message. */
static DAT_RETURN listen_error(int error)
{
    errno = error;
    return error == EADDRINUSE ? DAT_ERROR(DAT_CONN_QUAL_IN_USE, DAT_NO_SUBTYPE)
                               : DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
}

static DAT_RETURN sp_create(struct softdat_ia *ia, DAT_HANDLE_TYPE type, DAT_CONN_QUAL qual,
                            struct softdat_evd *evd, struct softdat_sp **sp_p)
{
    struct softdat_sp *sp;

    if (qual == 0 || qual > UINT16_MAX)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (ia->failed)
        return DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    sp = softdat_alloc(sizeof(*sp));
    if (!sp)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    sp->qual = qual;
    sp->evd = evd;
    if (!sp_listen(ia, sp)) {
        int error = errno;

        softdat_sp_close_listeners(ia, sp);
        softdat_free(sp);
        return listen_error(error);
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
