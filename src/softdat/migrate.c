/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/*
 * Replaces the link below a connection while it stands (PROTOCOL, section 4). The active side makes
 * the new link, by a connection of its own, the carrier. Until that has sent MIGRATE the former
 * link is used; from then on the active side has none, and what both sides have taken of each
 * other's frames does not change. Each side then transmits again what the other has not taken. A
 * carrier that fails is followed by another one, until the connection breaks after `retry`.
 */

static const uint64_t again_ns = UINT64_C(10) * 1000000; /* between two carriers */

static uint64_t retry_ns(const struct softdat_ia *ia)
{
    return ia->cfg.retry_ms * 1000000;
}

/* -- without a link, and with another one ----------------------------------------------------- */

/* Takes what c polls, but not its socket. */
static void retire(struct softdat_conn *c)
{
    softdat_direct_withdraw(c);
    softdat_conn_unlist(c);
    softdat_retransmit_begin(c);
    softdat_shared_free(c);
    c->shared = (struct softdat_shared){ .seg = NULL };
    c->uses_rings = c->plain = false;
    softdat_rx_take_back(c);
    if (!c->migrating || c->deadline == 0)
        softdat_conn_deadline(c, retry_ns(c->ia));
    c->migrating = true;
    softdat_round_complete(c->ia);
}

void softdat_migrate_unlink(struct softdat_conn *c)
{
    if (c->sock.fd < 0)
        return;
    retire(c);
    softdat_sock_close(c->ia, &c->sock);
}

/* The same, but the peer does not see the end of the former link before it has the new one: it
 * would take that for the end of the connection. */
static void unlink_quietly(struct softdat_conn *c)
{
    if (c->sock.fd < 0)
        return;
    retire(c);
    softdat_sock_suspend(c->ia, &c->sock, true);
    c->old_fd = c->sock.fd;
    c->sock.fd = -1;
}

/* Moves the carrier's link to c, which has none; `executed` is what the peer has reported so far.
 * Frees the carrier. */
static void attach(struct softdat_conn *c, struct softdat_conn *carrier, uint32_t executed)
{
    struct softdat_ia *ia = c->ia;

    softdat_sock_suspend(ia, &carrier->sock, true);
    c->sock.fd = carrier->sock.fd;
    c->sock.events = c->stalled ? EPOLLRDHUP : EPOLLIN;
    c->sock.suspended = true;
    c->local = carrier->local;
    c->port = carrier->port;
    c->peer = carrier->peer;
    c->peer_port = carrier->peer_port;
    c->shared = carrier->shared;
    c->shared.executed_seen = executed;
    c->unacked_since = 0;
    c->grant = 0;
    carrier->sock.fd = -1;       /* and ia->n_sockets counts c in its place */
    carrier->shared.seg = NULL;
    carrier->migrates = c->carrier = NULL;
    carrier->heir = c;
    softdat_conn_free(carrier);
    if (!softdat_path_cut(c))
        softdat_sock_suspend(ia, &c->sock, false);
    if (c->old_fd >= 0)
        close(c->old_fd);
    c->old_fd = -1;
    if (c->shared.seg)
        softdat_shared_publish(c);
    else if (c->phase == SOFTDAT_OPEN)
        softdat_conn_poll(c);
    softdat_path_keep_alive(c);
    if (c->ep) {
        c->ep->port = c->port;
        softdat_ack_later(c);
    }
    ia->count[SOFTDAT_N_MIGRATIONS]++;
}

/* Both sides use the new link. A send that has partly arrived has its receive already, and short.c
 * would take another one. */
static void finish(struct softdat_conn *c)
{
    c->migrating = false;
    c->plain = softdat_short_plain(c) && !(c->ep && c->ep->has_current_recv);
    softdat_path_set_deadline(c);
    softdat_alternate_moved(c);
}

/* What c has taken. It does not change while c has no link: a send that waits for a receive and
 * gets one has been counted. */
static struct softdat_taken taken(const struct softdat_conn *c)
{
    struct softdat_taken t = {
        .executed = c->executed, .writes = c->executed, .reads = c->reads_taken,
        .responses = c->reads_sent - (c->ep ? c->ep->reads : 0),
    };

    for (struct softdat_list *l = c->held.next; l != &c->held; l = l->next)
        t.writes++;
    return t;
}

/* Makes c transmit again what the peer has not taken. False: the peer's numbers are impossible. */
static bool take_back(struct softdat_conn *c, const struct softdat_taken *theirs)
{
    return !c->ep || (softdat_frame_acked(c, theirs->executed)
                      && softdat_retransmit_after(c, theirs));
}

static bool read_taken(const struct softdat_conn *carrier, struct softdat_taken *t)
{
    memcpy(t, carrier->priv, sizeof(*t));
    return carrier->hdr.len == sizeof(*t);
}

/* -- the active side -------------------------------------------------------------------------- */

/* The path that the connection does not use: the other port of each side that has two. Returns the
 * index of this side's port. */
static int other_path(const struct softdat_conn *c, struct sockaddr_in *to)
{
    *to = c->peer;
    if (c->other_addr.s_addr)
        to->sin_addr = c->other_addr;
    return c->ia->cfg.n_ports > 1 ? !c->port : c->port;
}

/* Makes a carrier over a path. False: that is not possible now. */
static bool make_carrier(struct softdat_conn *c, int port, struct sockaddr_in to)
{
    struct softdat_conn *n;
    int error;

    if (c->ia->cfg.port[port].cut)
        return false;
    n = softdat_connect_from(c->ia, port, to, &error);
    if (!n)
        return false;
    if (c->carrier)
        softdat_conn_free(c->carrier);
    n->migrates = c;
    c->carrier = n;
    softdat_conn_deadline(n, retry_ns(c->ia) / 4 + 1);
    if (n->phase == SOFTDAT_CONNECT_SENT)
        softdat_connect_start(n);
    return true;
}

bool softdat_migrate(struct softdat_conn *c)
{
    struct sockaddr_in to;
    int port = other_path(c, &to);

    if (softdat_standby_usable(c))
        return softdat_standby_begin(c, DAT_PATH_CAUSE_REQUEST);
    return c->phase == SOFTDAT_OPEN && c->active && c->token && !softdat_break_pending(c)
           && make_carrier(c, port, to);
}

void softdat_migrate_send(struct softdat_conn *carrier)
{
    struct softdat_conn *c = carrier->migrates;
    struct softdat_taken mine;

    unlink_quietly(c);
    mine = taken(c);
    mine.token = c->token;
    if (carrier->shared.seg)
        atomic_store_explicit(&carrier->shared.mine->counters,
                              softdat_both(carrier->shared.tail, c->executed),
                              memory_order_release);
    softdat_tx_frame(carrier, SOFTDAT_MIGRATE, &mine, sizeof(mine));
}

void softdat_migrate_failed(struct softdat_conn *carrier)
{
    struct softdat_conn *c = carrier->migrates;

    if (carrier->carrier) {      /* it is a connection that ends, with its carrier */
        carrier->carrier->migrates = NULL;
        softdat_conn_free(carrier->carrier);
        carrier->carrier = NULL;
    }
    if (!c || carrier->is_standby)
        return;
    carrier->migrates = NULL;
    if (c->carrier == carrier)
        c->carrier = NULL;
    /* The peer that has reset the former link, and has now closed the standby, is gone. */
    if (c->ep && c->ep->alternate && c->ep->alternate->link_reset)
        softdat_fault_break_later(c);
    else if (c->sock.fd < 0 && !c->carrier)
        softdat_delay_until(c, softdat_now() + again_ns);
}

/* By turns over both paths, as neither is known to be up. */
void softdat_migrate_retry(struct softdat_conn *c)
{
    struct sockaddr_in to;
    int port = other_path(c, &to);

    if (!c->active || c->carrier)
        return;
    if (++c->attempts % 2 == 0) {
        port = c->port;
        to = c->peer;
    }
    if (!make_carrier(c, port, to))
        softdat_delay_until(c, softdat_now() + again_ns);
}

bool softdat_cm_on_migrated(struct softdat_conn *carrier)
{
    struct softdat_conn *c = carrier->migrates;
    struct in_addr former;
    struct softdat_taken theirs;
    bool shared = carrier->hdr.size && carrier->shared.seg;

    if (!c || carrier->is_standby || !read_taken(carrier, &theirs))
        return false;
    softdat_conn_learn_ports(carrier);
    if (!take_back(c, &theirs)) {
        softdat_conn_lost(c);    /* and its carrier */
        return true;
    }
    former = c->peer.sin_addr;
    if (!shared)
        softdat_shared_free(carrier);
    attach(c, carrier, theirs.executed);
    if (c->other_addr.s_addr && former.s_addr != c->peer.sin_addr.s_addr)
        c->other_addr = former;
    if (shared) {
        softdat_direct_probe(c);
        softdat_shared_start(c);
    }
    softdat_tx_frame_first(c, SOFTDAT_MIGRATE_DONE, NULL, 0);
    finish(c);
    softdat_tx_progress(c);
    return true;
}

/* The peer has disconnected before it learned of the new link. */
bool softdat_migrate_rejected(struct softdat_conn *carrier)
{
    struct softdat_conn *c = carrier->migrates;
    struct softdat_ep *ep = c->ep;

    softdat_conn_free(c);        /* and its carrier */
    if (ep)
        softdat_ep_down(ep, DAT_CONNECTION_EVENT_DISCONNECTED);
    return true;
}

/* -- the passive side ------------------------------------------------------------------------- */

struct softdat_conn *softdat_conn_find(struct softdat_ia *ia, uint64_t token)
{
    for (struct softdat_list *l = ia->conns.next; l != &ia->conns; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        if (!c->active && token && c->token == token && c->phase >= SOFTDAT_ACCEPT_SENT)
            return c;
    }
    return NULL;
}

/* Answers the request of a peer from which this side has disconnected. */
static bool reject(struct softdat_conn *carrier)
{
    carrier->ia->n_unidentified -= carrier->phase == SOFTDAT_ACCEPTED;
    softdat_conn_linger(carrier);
    carrier->bye_sent = true;
    return softdat_tx_frame(carrier, SOFTDAT_REJECT, NULL, 0);
}

bool softdat_cm_on_migrate(struct softdat_conn *carrier)
{
    struct softdat_taken theirs, mine;
    struct softdat_conn *c;

    if (!read_taken(carrier, &theirs))
        return false;
    c = softdat_conn_find(carrier->ia, theirs.token);
    if (!c)
        return false;
    if (carrier->resting)
        softdat_standby_take(carrier);
    if (!c->ep)
        return reject(carrier);
    if (c->phase == SOFTDAT_ACCEPT_SENT && !softdat_cm_on_ready(c))
        return false;
    softdat_migrate_unlink(c);
    if (!take_back(c, &theirs)) {
        softdat_conn_lost(c);
        return false;
    }
    softdat_conn_learn_address(carrier);
    if (c->ep->alternate)
        c->ep->alternate->move = carrier->hdr.id;
    mine = taken(c);
    attach(c, carrier, theirs.executed);
    softdat_conn_deadline(c, retry_ns(c->ia));
    if (!softdat_tx_frame_first(c, SOFTDAT_MIGRATED, &mine, sizeof(mine)))
        softdat_conn_lost(c);    /* out of memory */
    else
        softdat_tx_progress(c);
    return true;
}

bool softdat_cm_on_migrate_done(struct softdat_conn *c)
{
    if (!c->migrating)
        return false;
    finish(c);
    softdat_tx_progress(c);
    return true;
}
