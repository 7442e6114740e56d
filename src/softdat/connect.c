/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG_RETRY_NS = 1000 * 1000 }; /* between two connects to a full backlog */

static void send_connect(struct softdat_conn *c)
{
    c->phase = SOFTDAT_CONNECT_SENT;
    if (c->migrates) {
        c->is_standby ? softdat_standby_send(c) : softdat_migrate_send(c);
        return;
    }
    if (getrandom(&c->token, sizeof(c->token), GRND_NONBLOCK) != sizeof(c->token))
        c->token = 0;
    softdat_tx_frame(c, SOFTDAT_CONNECT, c->priv, c->sink.left);
    c->sink.left = 0;
}

static const struct {
    int error;
    DAT_EVENT_NUMBER number;
} errno_event[] = {
    { ECONNREFUSED, DAT_CONNECTION_EVENT_NON_PEER_REJECTED },
    { ECONNRESET, DAT_CONNECTION_EVENT_NON_PEER_REJECTED },
    { ETIMEDOUT, DAT_CONNECTION_EVENT_TIMED_OUT },
};

static DAT_EVENT_NUMBER event_of_errno(int error)
{
    for (size_t i = 0; i < sizeof(errno_event) / sizeof(errno_event[0]); i++)
        if (errno_event[i].error == error)
            return errno_event[i].number;
    return DAT_CONNECTION_EVENT_UNREACHABLE;
}

void softdat_connect_done(struct softdat_conn *c)
{
    int error = 0;
    socklen_t len = sizeof(error);

    getsockopt(c->sock.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error) {
        softdat_conn_failed(c, event_of_errno(error));
        return;
    }
    softdat_set_nodelay(c->sock.fd);
    softdat_sock_set_events(c->ia, &c->sock, EPOLLIN);
    send_connect(c);
}

/* Connects to a process of this host by a unix socket. NULL: no process of this user listens there.
 * If the backlog is full the connect is repeated later: TCP would be a slower link for the whole
 * life of the connection. */
static struct softdat_conn *connect_local(struct softdat_ia *ia, const struct sockaddr_in *to)
{
    int fd = softdat_local_socket();
    int error = fd < 0 ? errno : softdat_connect_local(fd, to->sin_addr, ntohs(to->sin_port));
    bool full = fd >= 0 && error == EAGAIN;
    struct softdat_conn *c = NULL;

    if (fd >= 0 && (!error || full))
        c = softdat_conn_make(ia, fd, full ? SOFTDAT_CONNECTING : SOFTDAT_CONNECT_SENT);
    if (!c && fd >= 0)
        close(fd);
    if (c)
        c->local = true;
    if (c && full) {
        softdat_sock_suspend(c->ia, &c->sock, true);
        softdat_delay_until(c, softdat_now() + BACKLOG_RETRY_NS);
    }
    return c;
}

void softdat_connect_retry(struct softdat_conn *c)
{
    int error = softdat_connect_local(c->sock.fd, c->peer.sin_addr, ntohs(c->peer.sin_port));

    if (error == EAGAIN) {
        softdat_delay_until(c, softdat_now() + BACKLOG_RETRY_NS);
        return;
    }
    if (error) {
        softdat_conn_failed(c, event_of_errno(error));
        return;
    }
    softdat_sock_suspend(c->ia, &c->sock, false);
    softdat_sock_set_events(c->ia, &c->sock, EPOLLIN);
    softdat_connect_start(c);
}

void softdat_connect_start(struct softdat_conn *c)
{
    c->segment_fd = softdat_shared_create(c);
    send_connect(c);
}

struct softdat_conn *softdat_connect_from(struct softdat_ia *ia, int port, struct sockaddr_in to,
                                          int *error_p)
{
    struct softdat_conn *c = ia->cfg.local >= SOFTDAT_LOCAL_SOCKET ? connect_local(ia, &to) : NULL;
    int fd = c ? -1 : softdat_connect_tcp(ia->cfg.port[port].addr, to, error_p);

    if (fd >= 0)
        c = softdat_conn_make(ia, fd, SOFTDAT_CONNECTING);
    if (!c && fd >= 0)
        close(fd);
    if (c) {
        c->port = (uint8_t)port;
        c->peer = to;
        c->active = true;
    }
    return c;
}

static void connect_now(struct softdat_ep *ep, DAT_TIMEOUT us, const void *priv, size_t size)
{
    int error = ENETUNREACH, port = softdat_path_choose(ep->h.ia, ep->remote.sin_addr);
    struct softdat_conn *c = NULL;

    if (port >= 0)
        c = softdat_connect_from(ep->h.ia, port, ep->remote, &error);

    if (!c) {
        if (error == EMFILE || error == ENFILE)
            softdat_warn_once(ep->h.ia, "connect", error);
        softdat_ep_step(ep, SOFTDAT_EP_FAIL);
        softdat_ep_event(ep, event_of_errno(error), NULL, 0);
        return;
    }
    ep->port = (uint8_t)port;
    c->multipath = ep->alternate && ep->alternate->multipath;
    c->ep = ep;
    ep->conn = c;
    if (us != DAT_TIMEOUT_INFINITE)
        softdat_conn_deadline(c, (uint64_t)us * 1000);
    if (size > 0)
        memcpy(c->priv, priv, size);
    c->sink.left = size;         /* length of priv until CONNECT is queued */
    if (c->phase == SOFTDAT_CONNECT_SENT)
        softdat_connect_start(c);
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
    if (flags & ~(DAT_CONNECT_FLAGS)(DAT_CONNECT_MULTIPATH_REQUESTED_FLAG
                                     | DAT_CONNECT_MULTIPATH_REQUIRED_FLAG))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG8);
    if (qos != DAT_QOS_BEST_EFFORT
        || (flags & DAT_CONNECT_MULTIPATH_REQUIRED_FLAG && ep->h.ia->cfg.n_ports < 2))
        return DAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    softdat_lock(ep->h.ia);
    if (ep->h.ia->failed) {
        ret = DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    } else if (softdat_ep_step(ep, SOFTDAT_EP_CONNECT)) {
        memcpy(&ep->remote, to, sizeof(ep->remote));
        ep->remote.sin_port = htons((uint16_t)qual);
        ep->remote_qual = qual;
        softdat_alternate_begin(ep, flags != DAT_CONNECT_DEFAULT_FLAG);
        connect_now(ep, us, priv, (size_t)size);
    } else {
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
    }
    softdat_unlock(ep->h.ia);
    return ret;
}

/* Connects to another EP's remote address and qualifier. */
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

/* -- ACCEPT and REJECT ------------------------------------------------------------------------ */

bool softdat_cm_on_accept(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;

    if (!ep)
        return false;
    c->other_addr.s_addr = (in_addr_t)c->hdr.addr;
    softdat_conn_learn_ports(c);
    if (c->hdr.size && c->shared.seg) {
        softdat_direct_probe(c);
        softdat_shared_start(c);
    }
    softdat_conn_open(c);
    softdat_tx_frame(c, SOFTDAT_READY, NULL, 0);
    softdat_ep_step(ep, SOFTDAT_EP_UP);
    softdat_ep_event(ep, DAT_CONNECTION_EVENT_ESTABLISHED, c->priv, c->hdr.len);
    softdat_alternate_open(c);
    return true;
}

bool softdat_cm_on_reject(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;
    uint8_t priv[SOFTDAT_PRIV_MAX];
    size_t len = c->hdr.len;

    if (c->migrates && !c->is_standby)
        return softdat_migrate_rejected(c);
    memcpy(priv, c->priv, len);
    softdat_conn_free(c);
    if (ep && softdat_ep_step(ep, SOFTDAT_EP_FAIL))
        softdat_ep_event(ep, DAT_CONNECTION_EVENT_PEER_REJECTED, priv, len);
    return true;
}

/* -- disconnecting ---------------------------------------------------------------------------- */

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
        /* a second disconnect has no effect (DAT 2.0, dat_ep_disconnect) */
    } else if (flags == DAT_CLOSE_GRACEFUL_FLAG && softdat_ep_step(ep, SOFTDAT_EP_DISCONNECT)) {
        softdat_ep_reap(ep);
    } else if (softdat_ep_can(ep, SOFTDAT_EP_DOWN)) {
        if (ep->conn)
            softdat_conn_detach(ep->conn, true);
        softdat_ep_down(ep, DAT_CONNECTION_EVENT_DISCONNECTED);
    } else {
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    }
    softdat_unlock(ia);
    return ret;
}
