/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    READ_AHEAD = 1 << 14,        /* bytes to read ahead of the current frame */
    READ_AHEAD_LONG = 512,       /* the same between long frames */
    MAX_READS = 16,              /* reads from one socket in one round */
};

/* -- the socket ------------------------------------------------------------------------------- */

/* Copies the missing bytes of a header from p. Returns how many of the n bytes it took. */
static size_t copy_header(struct softdat_conn *c, const uint8_t *p, size_t n)
{
    size_t rest = sizeof(c->hdr) - c->hdr_have, step = rest < n ? rest : n;

    if (step == sizeof(c->hdr))
        memcpy(&c->hdr, p, sizeof(c->hdr));      /* the usual case, with a constant length */
    else
        memcpy((uint8_t *)&c->hdr + c->hdr_have, p, step);
    c->hdr_have += step;
    return step;
}

/* Handles n bytes that have been read. *left_p: bytes not consumed because the frame is parked, or
 * the one before is being copied.
 * False: a violation of the protocol. */
static bool parse(struct softdat_conn *c, const uint8_t *p, size_t n, size_t *left_p)
{
    *left_p = 0;
    for (;;) {
        size_t step;

        if (c->hdr_have < sizeof(c->hdr)) {
            step = copy_header(c, p, n);
            p += step;
            n -= step;
            if (c->hdr_have < sizeof(c->hdr))
                return true;
            if (softdat_held_full(c) && softdat_held_park(c)) {
                *left_p = n;
                return true;
            }
            if (c->sock.fd < 0)
                return true;
            if (!softdat_frame_header(c))
                return false;
        }
        step = c->sink.left < n ? c->sink.left : n;
        softdat_sink_copy(&c->sink, p, step);
        p += step;
        n -= step;
        if (c->sink.left > 0)
            return true;
        if (!softdat_frame_complete(c))
            return false;
        if (c->sock.fd < 0) {    /* this frame has ended the connection, or another has its link */
            *left_p = c->heir ? n : 0;
            return true;
        }
        if (c->copying) {
            *left_p = n;
            return true;
        }
    }
}

/* The same for bytes from a socket, which cannot be read again: keeps a copy of those left. */
static bool parse_and_keep(struct softdat_conn *c, const uint8_t *p, size_t n)
{
    size_t left;
    bool ok = parse(c, p, n, &left);

    if (left == 0)
        return ok;
    if (c->heir) {
        if (!c->heir->uses_rings && !parse_and_keep(c->heir, p + n - left, left)
            && c->heir->sock.fd >= 0)
            softdat_conn_lost(c->heir);
        return ok;
    }
    c->read_ahead = softdat_alloc(left);
    if (!c->read_ahead)
        return false;
    memcpy(c->read_ahead, p + n - left, left);
    c->n_read_ahead = left;
    return ok;
}

void softdat_rx_unpark(struct softdat_conn *c)
{
    uint8_t *read_ahead = c->read_ahead;
    size_t n = c->n_read_ahead;
    bool ok;

    c->parked = false;
    c->read_ahead = NULL;
    c->n_read_ahead = 0;
    softdat_rx_stall(c, false);
    ok = softdat_frame_header(c);
    if (ok && n > 0)
        ok = parse_and_keep(c, read_ahead, n);
    softdat_free(read_ahead);
    if (!ok && c->sock.fd >= 0)
        softdat_conn_lost(c);
}

/* Reads from a local connection that waits for CONNECT, which may carry the segment's
 * descriptor. */
static ssize_t recv_connect(struct softdat_conn *c)
{
    union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec v = { c->ia->scratch, READ_AHEAD };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
                        .msg_controllen = sizeof(control.room) };
    ssize_t n = recvmsg(c->sock.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

    /* The buffer's size is rounded up, so it may contain more than one descriptor. */
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= h->cmsg_len; at += sizeof(int)) {
            int fd;

            memcpy(&fd, (char *)h + at, sizeof(fd));
            softdat_shared_attach(c, fd);    /* closes it in any case */
        }
    return n;
}

/* Reads the rest of the payload to its destination and, in the same call, reads ahead into the
 * scratch buffer: little between long frames, whose payload would have to be copied once more. */
static ssize_t read_frames(struct softdat_conn *c, size_t *requested_p)
{
    size_t read_ahead = c->long_expected ? READ_AHEAD_LONG : READ_AHEAD;
    bool payload = c->hdr_have == sizeof(c->hdr) && !c->sink.discard;
    struct iovec v[SOFTDAT_MAX_IOV + 2];
    struct msghdr m = { .msg_iov = v };
    ssize_t n;

    *requested_p = read_ahead + (payload ? c->sink.left : 0);
    if (!payload)
        return recv(c->sock.fd, c->ia->scratch, read_ahead, MSG_DONTWAIT);
    m.msg_iovlen = (size_t)(c->sink.n - c->sink.at);
    memcpy(v, c->sink.iov + c->sink.at, m.msg_iovlen * sizeof(*v));
    v[m.msg_iovlen++] = (struct iovec){ c->ia->scratch, read_ahead };
    n = recvmsg(c->sock.fd, &m, MSG_DONTWAIT);
    return n;
}

/* Handles n bytes that have been read; inside: they begin within a frame. False: as parse(). */
static bool handle(struct softdat_conn *c, const uint8_t *p, size_t n, bool inside)
{
    size_t done = inside ? 0 : softdat_short_stream(c, p, n);

    return (n > 0 && done == n) || parse_and_keep(c, p + done, n - done);
}

/* Reads once. Returns 1: read again, 0: nothing more for now, -1: the stream has ended or
 * failed. */
static int read_some(struct softdat_conn *c, bool *any_p)
{
    size_t requested = READ_AHEAD, placed = 0;
    bool payload;
    ssize_t n;

    if (!c->uses_rings)
        softdat_frame_recheck(c);
    payload = c->hdr_have == sizeof(c->hdr) && !c->sink.discard && !c->uses_rings;
    n = c->uses_rings ? recv(c->sock.fd, c->ia->scratch, READ_AHEAD, MSG_DONTWAIT)
                : c->local && c->phase == SOFTDAT_ACCEPTED ? recv_connect(c)
                                                           : read_frames(c, &requested);

    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno == EINTR ? 1 : -1;
    *any_p = true;
    if (n == 0)
        return -1;
    if (payload) {
        placed = (size_t)n < c->sink.left ? (size_t)n : c->sink.left;
        softdat_sink_advance(&c->sink, placed);
    }
    /* Beside rings a socket carries only doorbells; the caller reads the ring next. */
    if (!c->uses_rings && !handle(c, c->ia->scratch, (size_t)n - placed, payload))
        return -1;
    return (size_t)n == requested;
}

void softdat_rx_take_back(struct softdat_conn *c)
{
    softdat_free(c->held_current);
    c->held_current = NULL;
    softdat_free(c->read_ahead);
    c->read_ahead = NULL;
    c->n_read_ahead = 0;
    c->parked = c->copying = false;
    if (softdat_list_empty(&c->held))
        softdat_list_remove(&c->waiting);
    c->stalled = c->held_bytes > SOFTDAT_HELD_MAX;
    c->hdr_have = 0;
    c->sink = (struct softdat_sink){ .left = 0 };
    c->discard_rx &= ~SOFTDAT_DISCARD_LINK;
    c->long_expected = false;
}

void softdat_rx_stall(struct softdat_conn *c, bool stalled)
{
    uint32_t events = c->sock.events & ~(uint32_t)(EPOLLIN | EPOLLRDHUP);

    c->stalled = stalled;
    softdat_round_complete(c->ia);
    if (c->uses_rings && !stalled)
        softdat_request_progress(c->ia); /* no doorbell announces what the ring contains already */
    softdat_sock_set_events(c->ia, &c->sock, events | (stalled ? EPOLLRDHUP : EPOLLIN));
}

/* The socket has ended; error: an errno value, 0: the peer has closed it. */
static void link_failed(struct softdat_conn *c, int error)
{
    if (c->phase != SOFTDAT_OPEN || c->migrating)
        softdat_conn_link_lost(c);
    else if (softdat_standby_replaces(c, error))
        return;
    else if (error == ETIMEDOUT)
        softdat_path_break(c);
    else
        softdat_conn_link_lost(c);
}

bool softdat_rx_ready(struct softdat_conn *c)
{
    bool any = false;
    int rc = 1, failed = 0;

    for (int i = 0; rc > 0 && i < MAX_READS && c->sock.fd >= 0 && !c->stalled; i++) {
        errno = 0;
        rc = read_some(c, &any);
        failed = errno;
        if (c->held_bytes > SOFTDAT_HELD_MAX)
            softdat_rx_stall(c, true);
    }
    if (rc < 0 && c->uses_rings)
        do
            softdat_rx_ring(c);  /* what the peer wrote before it closed is valid */
        while (c->copying && c->sock.fd >= 0);
    if (rc < 0 && c->sock.fd >= 0)
        link_failed(c, failed);
    return any;
}

/* -- shared rings ----------------------------------------------------------------------------- */

static bool read_ring(struct softdat_conn *c)
{
    const uint8_t *p;
    bool any = false;
    size_t consumed = 0, left = 0;
    ssize_t n = 0;

    softdat_frame_recheck(c);
    if (c->copying) {
        any = true;
        n = softdat_frame_complete(c) ? 0 : -1;
    }
    /* At most one ring's worth of bytes, so that the consumer gets to post receives. */
    while (n >= 0 && c->sock.fd >= 0 && !c->stalled && !c->copying && consumed < SOFTDAT_RING
           && (n = softdat_shared_peek(c, &p)) > 0) {
        any = true;
        consumed += (size_t)n;
        if (!parse(c, p, (size_t)n, &left)) {
            n = -1;
            break;
        }
        if (c->sock.fd < 0)
            break;
        softdat_shared_consume(c, (size_t)n - left);
        if (c->held_bytes > SOFTDAT_HELD_MAX)
            softdat_rx_stall(c, true);
    }
    if (n < 0 && c->sock.fd >= 0)
        softdat_conn_lost(c);
    return any;
}

bool softdat_rx_ring(struct softdat_conn *c)
{
    bool any = softdat_shared_has_bytes(c) && softdat_short_receive(c);
    uint32_t executed;

    if (!any) {
        softdat_changing(c->ia);
        any = (c->copying || softdat_shared_has_bytes(c)) && read_ring(c);
    }
    softdat_direct_judge(c, &c->sample);
    if (c->sock.fd < 0)
        return any;
    if (!softdat_list_empty(&c->acks))
        softdat_shared_ack(c);   /* the sender may wait for its completion */
    executed = softdat_shared_executed(c);
    if (executed != c->shared.executed_seen) {
        any = true;
        c->shared.executed_seen = executed;
        if (!softdat_frame_acked(c, executed)) {
            softdat_conn_lost(c);
            return any;
        }
    }
    if (c->blocked && c->sock.fd >= 0 && softdat_shared_has_room(c)) {
        any = true;
        softdat_tx_progress(c);
    }
    return any;
}
