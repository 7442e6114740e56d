/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * The adapter's ports, and whether the paths through them are up.
 *
 * A port is down while it is cut (daplsoft cut) or its interface has no carrier. A cut suspends the
 * port's connections in both directions without loss, as the kernel suspends a TCP connection when
 * the carrier is lost. If the path is up again within `retry` its connections continue; otherwise
 * they break, as on an adapter whose retry count is exhausted.
 *
 * The path may also fail at the remote end. A peer process that is stopped or computes must not be
 * taken for that, so the test is whether the remote kernel acknowledges TCP segments, which does
 * not depend on the process. While nothing is unacknowledged, TCP keep-alive does the same test.
 */

/* -- the choice of a port --------------------------------------------------------------------- */

static bool same_net(const struct softdat_port *p, struct in_addr to)
{
    return (p->addr.sin_addr.s_addr & p->mask.s_addr) == (to.s_addr & p->mask.s_addr);
}

/* Ranks a port for a connection to that address; 0: not usable. Without a carrier it still reaches
 * its own host. */
static int port_rank(const struct softdat_port *p, struct in_addr to)
{
    if (p->cut)
        return 0;
    return !p->carrier ? 1 : same_net(p, to) ? 3 : 2;
}

int softdat_path_choose(const struct softdat_ia *ia, struct in_addr to)
{
    int best = 0, port = -1;

    for (uint32_t i = 0; i < ia->cfg.n_ports; i++) {
        int s = port_rank(&ia->cfg.port[i], to);

        if (s > best) {
            best = s;
            port = (int)i;
        }
    }
    return port;
}

/* -- up and down ------------------------------------------------------------------------------ */

bool softdat_path_down(const struct softdat_conn *c)
{
    const struct softdat_port *p = &c->ia->cfg.port[c->port];

    return p->cut || (!p->carrier && !c->local);
}

static uint64_t retry_ns(const struct softdat_ia *ia)
{
    return ia->cfg.retry_ms * 1000000;
}

/* True if frames are queued or requests in flight, so that the remote kernel must acknowledge. */
static bool outstanding(const struct softdat_conn *c)
{
    return !softdat_tx_idle(c) || (c->ep && c->ep->req.sent > 0);
}

/* The time without acknowledgements after which c is to migrate or to break; or it is a standby and
 * has failed. */
static uint64_t timeout_ns(const struct softdat_conn *c)
{
    bool short_time = softdat_standby_usable(c) || c->resting;

    return short_time ? c->ia->cfg.path_timeout_ms * 1000000 : retry_ns(c->ia);
}

/* If the port is down the deadline is `retry` from now; between hosts, with anything outstanding, a
 * quarter of that, or of the time after which it migrates. An idle connection between hosts is left
 * to TCP keep-alive. */
void softdat_path_set_deadline(struct softdat_conn *c)
{
    if (c->phase != SOFTDAT_OPEN || c->migrating)
        return;                  /* they have a deadline of their own */
    c->deadline = 0;
    if (softdat_path_down(c))
        softdat_conn_deadline(c, retry_ns(c->ia));
    else if (!c->local && outstanding(c))
        softdat_conn_deadline(c, timeout_ns(c) / 4 + 1);
}

/* The remote kernel answers keep-alive probes even while its process is stopped. TCP takes whole
 * seconds, so the time is rounded up. A standby at rest has no deadline for what it has transmitted
 * last, so TCP has. */
void softdat_path_keep_alive(const struct softdat_conn *c)
{
    int s = (int)((timeout_ns(c) + 999999999) / 1000000000), one = 1;
    int first = s > 2 ? s / 2 : 1, next = s > 4 ? s / 4 : 1;
    int n = s > first ? (s - first + next - 1) / next : 1;
    int unacked_ms = c->resting ? s * 1000 : 0;

    if (c->local)
        return;
    setsockopt(c->sock.fd, IPPROTO_TCP, TCP_KEEPIDLE, &first, sizeof(first));
    setsockopt(c->sock.fd, IPPROTO_TCP, TCP_KEEPINTVL, &next, sizeof(next));
    setsockopt(c->sock.fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof(n));
    setsockopt(c->sock.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
    setsockopt(c->sock.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

static void suspend_listeners(struct softdat_ia *ia, int port, bool suspend)
{
    struct softdat_list *l;

    for (l = ia->objects.next; l != &ia->objects; l = l->next) {
        struct softdat_handle *h = SOFTDAT_OF(l, struct softdat_handle, link);
        struct softdat_sp *sp = (struct softdat_sp *)h;

        if (h->type != DAT_HANDLE_TYPE_PSP && h->type != DAT_HANDLE_TYPE_RSP)
            continue;
        softdat_sock_suspend(ia, &sp->listener[port].tcp.sock, suspend);
        softdat_sock_suspend(ia, &sp->listener[port].local.sock, suspend);
    }
}

void softdat_path_listen(struct softdat_ia *ia, bool on)
{
    for (uint32_t i = 0; i < ia->cfg.n_ports; i++)
        suspend_listeners(ia, (int)i, !on || ia->cfg.port[i].cut);
}

static void port_changed(struct softdat_ia *ia, int port)
{
    struct softdat_list *l = ia->conns.next;
    bool cut = ia->cfg.port[port].cut;

    suspend_listeners(ia, port, cut || ia->listen_resume_at);
    softdat_alternate_port(ia, (uint32_t)port, !cut && ia->cfg.port[port].carrier);
    while (l != &ia->conns) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        l = l->next;
        if (c->port != port || (c->local && c->phase == SOFTDAT_CONNECTING))
            continue;            /* a local connect is suspended by connect.c */
        softdat_sock_suspend(ia, &c->sock, cut);
        softdat_path_set_deadline(c);
        if (!cut)
            softdat_tx_progress(c);
    }
    if (!cut)
        softdat_request_progress(ia); /* no doorbell announces what the rings contain already */
    softdat_standby_ports(ia);
}

bool softdat_path_set(struct softdat_ia *ia, int port, bool cut)
{
    struct softdat_port *p = &ia->cfg.port[port];

    if (port < 0 || (uint32_t)port >= ia->cfg.n_ports)
        return false;
    if (p->cut != cut) {
        p->cut = cut;
        ia->count[SOFTDAT_N_CUTS] += cut;
        port_changed(ia, port);
    }
    return true;
}

/* -- an unresponsive remote kernel ------------------------------------------------------------ */

/*
 * True if the remote kernel has acknowledged nothing for ns although segments are in flight.
 * The time runs from the moment at which unacknowledged segments are found, and restarts with each
 * acknowledgement. The age of the last acknowledgement alone would be wrong: before the first
 * segment in flight there may have been nothing to acknowledge for long.
 */
static bool remote_unresponsive(struct softdat_conn *c, uint64_t ns)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    uint64_t now = softdat_now();

    memset(&info, 0, sizeof(info));
    if (c->local || getsockopt(c->sock.fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return false;
    if (info.tcpi_unacked == 0 && info.tcpi_probes == 0)
        c->unacked_since = 0;
    else if (c->unacked_since == 0
             || now - c->unacked_since >= info.tcpi_last_ack_recv * UINT64_C(1000000))
        c->unacked_since = now;
    return c->unacked_since && now - c->unacked_since >= ns;
}

void softdat_path_break(struct softdat_conn *c)
{
    softdat_alternate_failed(c);
    softdat_conn_break(c, DAT_DTO_ERR_TRANSPORT);
}

/* A connection that is armed migrates first. If that has not helped until `retry` it breaks. */
void softdat_path_expired(struct softdat_conn *c)
{
    if (c->migrating || softdat_path_down(c) || remote_unresponsive(c, retry_ns(c->ia))) {
        softdat_path_break(c);
        return;
    }
    if (softdat_standby_usable(c) && remote_unresponsive(c, timeout_ns(c)))
        softdat_standby_begin(c, DAT_PATH_CAUSE_TIMEOUT);
    softdat_path_set_deadline(c);
}

/* -- carrier ---------------------------------------------------------------------------------- */

/* True if the interface is up and has a carrier. */
static bool has_carrier(const struct softdat_ia *ia, unsigned ifindex)
{
    struct ifreq r;

    memset(&r, 0, sizeof(r));
    return if_indextoname(ifindex, r.ifr_name) && ioctl(ia->netlink.fd, SIOCGIFFLAGS, &r) == 0
           && r.ifr_flags & IFF_UP && r.ifr_flags & IFF_RUNNING;
}

static void read_links(struct softdat_ia *ia)
{
    for (uint32_t i = 0; i < ia->cfg.n_ports; i++) {
        struct softdat_port *p = &ia->cfg.port[i];
        bool carrier = !p->ifindex || has_carrier(ia, p->ifindex);

        if (p->carrier == carrier)
            continue;
        p->carrier = carrier;
        ia->count[SOFTDAT_N_CUTS] += !carrier;
        port_changed(ia, (int)i);
    }
}

/* A message says that a link has changed; what it is now is read, since the kernel may have dropped
 * later messages. */
static void netlink_ready(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    char message;

    (void)events;
    while (recv(s->fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC) > 0
           || errno == ENOBUFS)
        ;
    read_links(ia);
}

/* Without netlink, which a sandbox may forbid, a lost carrier is noticed later, by TCP. */
void softdat_path_start(struct softdat_ia *ia)
{
    struct sockaddr_nl nl = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK };
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

    ia->netlink = (struct softdat_sock){ .fd = fd, .ready = netlink_ready };
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&nl, sizeof(nl))
                    || softdat_sock_add(ia, &ia->netlink, EPOLLIN)))
        softdat_sock_close(ia, &ia->netlink);
    if (ia->netlink.fd >= 0)
        read_links(ia);
}

void softdat_path_stop(struct softdat_ia *ia)
{
    softdat_sock_close(ia, &ia->netlink);
}
