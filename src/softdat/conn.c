/* SPDX-License-Identifier: MIT */
#include "conn.h"

#include "softdat.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

static const uint64_t linger_ns = UINT64_C(2) * 1000000000;      /* to transmit the queue */

void softdat_due(struct softdat_ia *ia, uint64_t when)
{
    if (when >= ia->next_deadline)
        return;
    ia->next_deadline = when;
    softdat_helper_wake(ia);     /* it may sleep beyond that time */
}

void softdat_conn_deadline(struct softdat_conn *c, uint64_t ns)
{
    c->deadline = softdat_now() + ns;
    softdat_due(c->ia, c->deadline);
}

/* The events of a round may be those of a socket that has been replaced in it. */
static bool socket_ended(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };

    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

bool softdat_conn_ended(const struct softdat_conn *c)
{
    return c->sock.fd >= 0 && socket_ended(c->sock.fd);
}

static void conn_ready(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    struct softdat_conn *c = SOFTDAT_OF(s, struct softdat_conn, sock);

    if (c->phase == SOFTDAT_CONNECTING) {
        softdat_connect_done(c);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        softdat_rx_ready(c);
    if (c->sock.fd >= 0 && c->uses_rings && ia->doorbells_armed)
        softdat_shared_doorbell(c);
    if (c->sock.fd >= 0 && events & EPOLLOUT)
        softdat_tx_unblock(c);
    if (c->sock.fd >= 0 && c->stalled && events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)
        && socket_ended(c->sock.fd))
        softdat_conn_link_lost(c);
}

struct softdat_conn *softdat_conn_make(struct softdat_ia *ia, int fd, enum softdat_conn_phase phase)
{
    struct softdat_conn *c = softdat_alloc(sizeof(*c));

    if (!c)
        return NULL;
    c->sock = (struct softdat_sock){ .fd = fd, .ready = conn_ready };
    c->ia = ia;
    softdat_list_init(&c->delayed);
    softdat_list_init(&c->to_break);
    c->phase = phase;
    softdat_list_init(&c->acks);
    softdat_list_init(&c->out_queue);
    softdat_list_init(&c->answered);
    softdat_list_init(&c->held);
    softdat_list_init(&c->polled);
    softdat_list_init(&c->waiting);
    c->segment_fd = c->old_fd = -1;
    if (softdat_sock_add(ia, &c->sock, phase == SOFTDAT_CONNECTING ? EPOLLOUT : EPOLLIN)) {
        softdat_free(c);
        return NULL;
    }
    softdat_list_append(&ia->conns, &c->link);
    ia->n_unidentified += phase == SOFTDAT_ACCEPTED;
    ia->n_sockets++;
    softdat_round_complete(ia);
    return c;
}

void softdat_conn_unlist(struct softdat_conn *c)
{
    softdat_list_remove(&c->polled);
    c->ia->n_streams -= c->stream;
    c->ia->n_sockets -= c->sock.fd >= 0 && !c->uses_rings && !c->stream && !c->resting;
    c->stream = c->resting = false;
}

void softdat_conn_poll(struct softdat_conn *c)
{
    c->stream = true;
    softdat_list_append(&c->ia->streams, &c->polled);
    c->ia->n_streams++;
    c->ia->n_sockets--;
    softdat_streams_watch(c->ia);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void softdat_conn_free(struct softdat_conn *c)
{
    softdat_direct_withdraw(c);
    softdat_conn_unlist(c);
    softdat_sock_close(c->ia, &c->sock);
    softdat_standby_ended(c);
    softdat_list_remove(&c->acks);
    softdat_list_remove(&c->delayed);
    softdat_list_remove(&c->to_break);
    c->ia->n_unidentified -= c->phase == SOFTDAT_ACCEPTED;
    close_fd(&c->segment_fd);
    close_fd(&c->old_fd);
    softdat_retransmit_forget(c);
    while (!softdat_list_empty(&c->out_queue)) {
        struct softdat_out *out = SOFTDAT_OF(c->out_queue.next, struct softdat_out, link);

        softdat_list_remove(&out->link);
        softdat_free(out);
    }
    softdat_free(c->cur_out);
    c->cur_out = NULL;
    softdat_held_free(c);
    if (c->ep)
        c->ep->conn = NULL;
    if (c->cr)
        c->cr->conn = NULL;
    c->ep = NULL;
    c->cr = NULL;
    /* Events of this round may point to c, so its memory is freed at the end of the round. */
    softdat_list_remove(&c->link);
    softdat_list_append(&c->ia->to_free, &c->link);
    softdat_round_complete(c->ia);
    softdat_migrate_failed(c);
}

void softdat_conn_linger(struct softdat_conn *c)
{
    c->phase = SOFTDAT_LINGERING;
    softdat_conn_deadline(c, linger_ns);
}

void softdat_conn_detach(struct softdat_conn *c, bool linger)
{
    bool half_written_request = c->cur_n > 0 && !c->cur_out;
    bool half_written_answer = !softdat_tx_drop_responses(c);

    softdat_direct_withdraw(c);
    softdat_retransmit_forget(c);
    softdat_standby_detach(c);
    if (c->ep)
        c->ep->conn = NULL;
    c->ep = NULL;
    c->may_transmit = c->may_receive = 0;
    /* The consumer owns the memory of the EP's requests and of queued READ responses again, so the
     * provider must not access it. A frame of it that is half transmitted cannot be completed. */
    if (!linger || c->phase < SOFTDAT_OPEN || half_written_request || half_written_answer) {
        softdat_conn_free(c);
        return;
    }
    softdat_conn_linger(c);
    if (c->hdr_have == sizeof(c->hdr))
        c->sink.discard = true;
    softdat_held_free(c);
    if (!c->bye_sent)
        softdat_tx_frame(c, SOFTDAT_BYE, NULL, 0);
}

void softdat_conn_open(struct softdat_conn *c)
{
    c->phase = SOFTDAT_OPEN;
    c->plain = softdat_short_plain(c);
    if (!c->uses_rings)
        softdat_conn_poll(c);
    c->ia->count[SOFTDAT_N_CONNECTS]++;
    softdat_path_keep_alive(c);
    softdat_path_set_deadline(c);
}

/* -- connection failure ----------------------------------------------------------------------- */

void softdat_conn_failed(struct softdat_conn *c, DAT_EVENT_NUMBER number)
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

/* The event of the EP when its connection fails in a phase: `lost`, the peer has closed it, or
 * `expired`, the phase has reached its deadline. 0: the connection has no EP in this phase. */
static const struct { DAT_EVENT_NUMBER lost, expired; } end_of[] = {
    [SOFTDAT_CONNECTING] = { DAT_CONNECTION_EVENT_UNREACHABLE, DAT_CONNECTION_EVENT_TIMED_OUT },
    [SOFTDAT_CONNECT_SENT] = { DAT_CONNECTION_EVENT_NON_PEER_REJECTED,
                               DAT_CONNECTION_EVENT_TIMED_OUT },
    [SOFTDAT_ACCEPTED] = { 0, 0 },
    [SOFTDAT_CR_PENDING] = { 0, 0 },
    [SOFTDAT_STANDBY_LINK] = { 0, 0 },
    [SOFTDAT_ACCEPT_SENT] = { DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR,
                              DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR },
    [SOFTDAT_OPEN] = { DAT_CONNECTION_EVENT_BROKEN, DAT_CONNECTION_EVENT_BROKEN },
    [SOFTDAT_LINGERING] = { 0, 0 },
};

static void end(struct softdat_conn *c, DAT_EVENT_NUMBER number)
{
    if (c->phase == SOFTDAT_OPEN)
        ep_lost(c);
    else if (number)
        softdat_conn_failed(c, number);
    else
        softdat_conn_free(c);
}

void softdat_conn_lost(struct softdat_conn *c)
{
    end(c, end_of[c->phase].lost);
}

void softdat_conn_link_lost(struct softdat_conn *c)
{
    if (c->phase == SOFTDAT_OPEN && c->migrating)
        softdat_migrate_unlink(c);
    else
        softdat_conn_lost(c);
}

void softdat_conn_expire(struct softdat_conn *c)
{
    if (c->phase == SOFTDAT_OPEN)
        softdat_path_expired(c);
    else
        end(c, end_of[c->phase].expired);
}

/* -- frames of connection management ---------------------------------------------------------- */

#define DURING(phase) (1u << (phase))

static const struct {
    unsigned phases;             /* DURING() of those that permit the frame */
    bool (*act)(struct softdat_conn *);
} cm_frame[SOFTDAT_FRAME_TYPES] = {
    [SOFTDAT_CONNECT] = { DURING(SOFTDAT_ACCEPTED), softdat_cm_on_connect },
    [SOFTDAT_ACCEPT] = { DURING(SOFTDAT_CONNECT_SENT), softdat_cm_on_accept },
    [SOFTDAT_REJECT] = { DURING(SOFTDAT_CONNECT_SENT), softdat_cm_on_reject },
    [SOFTDAT_READY] = { DURING(SOFTDAT_ACCEPT_SENT), softdat_cm_on_ready },
    [SOFTDAT_MIGRATE] = { DURING(SOFTDAT_ACCEPTED) | DURING(SOFTDAT_STANDBY_LINK),
                          softdat_cm_on_migrate },
    [SOFTDAT_MIGRATED] = { DURING(SOFTDAT_CONNECT_SENT), softdat_cm_on_migrated },
    [SOFTDAT_MIGRATE_DONE] = { DURING(SOFTDAT_OPEN), softdat_cm_on_migrate_done },
    [SOFTDAT_LOADED] = { DURING(SOFTDAT_OPEN), softdat_cm_on_loaded },
    [SOFTDAT_STANDBY] = { DURING(SOFTDAT_ACCEPTED), softdat_cm_on_standby },
    [SOFTDAT_STANDBY_OK] = { DURING(SOFTDAT_CONNECT_SENT), softdat_cm_on_standby_ok },
    [SOFTDAT_STANDBY_READY] = { DURING(SOFTDAT_STANDBY_LINK), softdat_cm_on_standby_ready },
    /* in transit when the active side has sent MIGRATE by itself */
    [SOFTDAT_MOVE] = { DURING(SOFTDAT_STANDBY_LINK) | DURING(SOFTDAT_CONNECT_SENT),
                       softdat_cm_on_move },
};

bool softdat_cm_frame(struct softdat_conn *c)
{
    return cm_frame[c->hdr.type].phases & DURING(c->phase) && cm_frame[c->hdr.type].act(c);
}
