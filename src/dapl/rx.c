/* SPDX-License-Identifier: MIT */
#include "frames.h"

#include "cfg.h"
#include "cm_act.h"
#include "conn.h"
#include "fault.h"
#include "log.h"
#include "peer.h"
#include "stats.h"
#include "vbuf.h"
#include "window.h"
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE = 64 };             /* buffers that a long window leaves */

/* -- acknowledgement -------------------------------------------------------------------------- */

bool mdapl_dapl_rx_psn_ack_due(const struct mdapl_dapl_peer *peer)
{
    uint64_t frames = peer->rx_next - peer->rx_acked;
    const struct mdapl_cfg *cfg;

    if (frames == 0)
        return false;
    cfg = mdapl_ctx_cfg(peer->d->ctx);
    if (peer->rx_asked || peer->d->draining
        || peer->d->now >= peer->ack_pending_since + MDAPL_US(cfg->ack_idle_us))
        return true;
    return peer->retains
           && (frames >= (uint64_t)cfg->ack_frames
               || peer->rx_unacked_bytes >= (uint64_t)cfg->ack_bytes);
}

bool mdapl_dapl_rx_ack_due(const struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (peer->stream[i].up && mdapl_rxwin_update_due(&peer->stream[i].up->rxwin))
            return true;
    return mdapl_dapl_rx_psn_ack_due(peer);
}

/* -- frames: one function per type; false: the content is impossible -------------------------- */

/* A message is lost for lack of memory: nothing that follows it may be delivered. */
static void no_memory(struct mdapl_dapl_peer *peer)
{
    mdapl_dapl_out_of_memory(peer, "a message that waits");
    mdapl_dapl_recover(peer);
}

static bool on_msg(struct mdapl_dapl_stream *st, const struct mdapl_dapl_frame *f,
                   const uint8_t *p)
{
    struct mdapl_dapl_peer *peer = st->peer;

    if (mdapl_inbox_take(&peer->inbox, p, f->hdr_len, p + f->hdr_len, f->len) < 0)
        no_memory(peer);
    return true;
}

/* The header, which has been handled, is all of an ACK. */
static bool on_ack(struct mdapl_dapl_stream *st, const struct mdapl_dapl_frame *f,
                   const uint8_t *p)
{
    (void)st, (void)f, (void)p;
    return true;
}

/* on_rts() and so on: decodes the fields and calls the handler of the type. */
#define BARE(...)
#define FRAME(number, NAME, name, ...)                                                            \
    static bool on_##name(struct mdapl_dapl_stream *st, const struct mdapl_dapl_frame *f,         \
                          const uint8_t *p)                                                       \
    {                                                                                             \
        struct mdapl_dapl_##name fields;                                                          \
                                                                                                  \
        if (!mdapl_dapl_frame_has_body(number))                                                   \
            mdapl_dapl_event(st->peer, st->index, MDAPL_DAPL_EVENT_RECEIVED, #NAME, "", f->psn);  \
        return mdapl_dapl_##name##_get(&fields, p + f->hdr_len, f->len)                           \
            && mdapl_dapl_on_##name(st, &fields, f, p);                                           \
    }
#include "frames.def"

static bool (*const on_frame[MDAPL_FRAME_TYPES])(struct mdapl_dapl_stream *,
                                                 const struct mdapl_dapl_frame *,
                                                 const uint8_t *) = {
#define FRAME(number, NAME, name, ...) [number] = on_##name,
#include "frames.def"
};

/* Raises the fault, to be judged at once: nothing that follows the frame may be delivered. type: of
 * the frame, or 0; len: its bytes. */
__attribute__((cold)) static void bad_frame(struct mdapl_dapl_stream *st, uint8_t type,
                                            const char *what, size_t len)
{
    mdapl_ctx_stats(st->peer->d->ctx)->bad_frames++;
    mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){ .kind = MDAPL_DAPL_FAULT_FRAME,
                                                     .stream = st->index,
                                                     .text = what,
                                                     .frame = mdapl_dapl_frame_name(type),
                                                     .len = len });
    mdapl_dapl_recover(st->peer);
}

/* -- the reorder queue ------------------------------------------------------------------------- */

/*
 * A frame that has arrived before one with a lower psn, since frames take several connections. It
 * keeps its credit until its turn, so the queue is never longer than the credits of the peer.
 */
struct reordered {
    struct mdapl_list link;
    uint64_t psn;
    struct mdapl_dapl_stream *st; /* on which it arrived */
    uint64_t *credit;            /* NULL: it has been given back, or that connection is closed */
    size_t len;
    uint8_t frame[];
};

static struct reordered *reordered_of(struct mdapl_list *l)
{
    return MDAPL_OF(l, struct reordered, link);
}

/* How many frames the peer can have in flight: each one not yet delivered holds a credit of a
 * connection, or held one that has been given back early (below), or that of one that has ended. */
static uint64_t max_in_flight(const struct mdapl_dapl_peer *peer)
{
    return 2 * (uint64_t)peer->n_streams * (peer->d->sr_window + peer->d->ring_slots);
}

/*
 * Are the credits of frames in the reorder queue given back before their turn? While a stream is
 * down, the missing frames may be those that its connection carried: they have to be sent again on
 * a stream whose window the frames behind them would keep closed. The queue has a limit.
 */
static bool gives_early(const struct mdapl_dapl_peer *peer)
{
    return peer->n_up < peer->n_streams && peer->n_reordered < max_in_flight(peer) / 2;
}

/* Queues a copy in the order of psns, which keeps its credit unless that is NULL. False: that psn
 * is in the queue already. */
static bool reorder_insert(struct mdapl_dapl_stream *st, uint64_t psn, uint64_t *credit,
                           const void *frame, size_t len)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_list *at = peer->reordered.prev;
    struct reordered *e;

    while (at != &peer->reordered && reordered_of(at)->psn > psn)
        at = at->prev;
    if (at != &peer->reordered && reordered_of(at)->psn == psn)
        return false;
    e = malloc(sizeof(*e) + len);
    if (!e) {
        no_memory(peer);
        return true;
    }
    e->psn = psn;
    e->st = st;
    e->credit = credit;
    e->len = len;
    memcpy(e->frame, frame, len);
    mdapl_list_before(at->next, &e->link);
    mdapl_ctx_stats(peer->d->ctx)->reordered++;
    mdapl_stats_max(&mdapl_ctx_stats(peer->d->ctx)->reordered_max, ++peer->n_reordered);
    return true;
}

void mdapl_dapl_rx_forget_credits(struct mdapl_dapl_peer *peer, const uint64_t *credit)
{
    MDAPL_LIST_EACH(pos, &peer->reordered)
        if (reordered_of(pos)->credit == credit)
            reordered_of(pos)->credit = NULL;
}

void mdapl_dapl_rx_give_early(struct mdapl_dapl_peer *peer)
{
    MDAPL_LIST_EACH(pos, &peer->reordered) {
        struct reordered *e = reordered_of(pos);

        if (e->credit)
            ++*e->credit;
        e->credit = NULL;
    }
    mdapl_dapl_peer_wake_if_pending(peer);
}

static void reorder_clear(struct mdapl_dapl_peer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_take(&peer->reordered)))
        free(reordered_of(l));
}

/* -- receives ---------------------------------------------------------------------------------- */

static void received(struct mdapl_dapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len);

/* Posts a buffer as a receive. 0 or -EIO. */
static int post_recv(struct mdapl_dapl_ep *ep, struct mdapl_dapl_vbuf *b)
{
    DAT_LMR_TRIPLET seg[MDAPL_VBUF_SEGS];
    int n = mdapl_dapl_vbuf_recv_segs(b, seg);

    b->dto.done = received;
    return mdapl_dapl_ep_post_recv(ep, n, seg, &b->dto);
}

/* Posts a receive more. False: there is no buffer for it, or it is refused. */
static bool post_another(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_vbufs *v = conn->ep.ia->vbufs;
    struct mdapl_dapl_vbuf *b = mdapl_dapl_vbuf_get(v, MDAPL_VBUF_RECEIVE);

    if (b && post_recv(&conn->ep, b) == 0)
        return true;
    if (b)
        mdapl_dapl_vbuf_put(v, b);
    return false;
}

/* Is there memory for one more receive of the window? A long one leaves buffers for the connections
 * that other peers may still make. */
static bool may_grow(const struct mdapl_dapl_conn *conn)
{
    return mdapl_dapl_vbufs_grow(conn->ep.ia->vbufs, MDAPL_VBUF_RECEIVE,
                                 conn->rxwin.size < MDAPL_WINDOW_SHORT ? 0 : SPARE);
}

void mdapl_dapl_rx_grow_window(struct mdapl_dapl_conn *conn)
{
    uint32_t n = mdapl_rxwin_growth(&conn->rxwin);

    for (; n > 0 && may_grow(conn) && post_another(conn); n--)
        conn->rxwin.size++;
    conn->st->rx_window = conn->rxwin.size;
}

/* -- every frame ------------------------------------------------------------------------------ */

/* Delivers the frame with the next psn. p: the bytes behind its header; len: of the whole frame. */
static void take(struct mdapl_dapl_stream *st, const struct mdapl_dapl_frame *f, const uint8_t *p,
                 size_t len)
{
    struct mdapl_dapl_peer *peer = st->peer;

    peer->rx_next++;
    peer->rx_unacked_bytes += len;
    if (mdapl_list_empty(&peer->ack_pending)) {
        peer->ack_pending_since = peer->d->now;
        mdapl_list_append(&peer->d->ack_pending, &peer->ack_pending);
    }
    if (!on_frame[f->type](st, f, p))
        bad_frame(st, f->type, "its content is wrong", len);
}

static void deliver_reordered(struct mdapl_dapl_peer *peer)
{
    struct mdapl_list *l;
    struct mdapl_dapl_frame f;

    while (!peer->dead && (l = mdapl_list_first(&peer->reordered))
           && reordered_of(l)->psn == peer->rx_next) {
        struct reordered *e = reordered_of(l);

        mdapl_list_remove(l);
        peer->n_reordered--;
        mdapl_dapl_frame_get(&f, e->frame, e->len); /* checked when it arrived */
        take(e->st, &f, e->frame + MDAPL_FRAME_HDR_BYTES, e->len);
        if (e->credit)
            ++*e->credit;
        free(e);
    }
}

/* A frame that is not the next one: a later one goes to the reorder queue, an older one has been
 * delivered before and is dropped. Returns as mdapl_dapl_rx_frame(). */
static bool out_of_order(struct mdapl_dapl_stream *st, uint8_t type, uint64_t psn,
                         uint64_t *credit, const void *frame, size_t len)
{
    struct mdapl_dapl_peer *peer = st->peer;
    bool early = gives_early(peer);

    if (psn >= peer->rx_next + max_in_flight(peer))
        bad_frame(st, type, "more frames before it are missing than can be under way", len);
    else if (psn > peer->rx_next && reorder_insert(st, psn, early ? NULL : credit, frame, len))
        return early;
    else
        mdapl_ctx_stats(peer->d->ctx)->dup++;
    return true;
}

bool mdapl_dapl_rx_frame(struct mdapl_dapl_stream *st, uint64_t *credit, const void *frame,
                         size_t len)
{
    struct mdapl_dapl_peer *peer = st->peer;
    const uint8_t *p = frame;
    struct mdapl_dapl_frame f;
    uint64_t psn;

    peer->d->stats->rx_frames++;
    if (!mdapl_dapl_frame_get(&f, p, len)) {
        bad_frame(st, 0, "its header is wrong", len);
        return true;
    }
    if (peer->d->log->level >= MDAPL_FRAME)
        mdapl_dapl_frame_log(peer, "<-", frame, len);
    if (!mdapl_dapl_tx_acked(peer, f.ack)) {
        bad_frame(st, f.type, "it acknowledges what was never sent", len);
        return true;
    }
    mdapl_txwin_update(&st->conn->txwin, f.sr_limit);
    if (st->conn->ring_out.slots)
        mdapl_txwin_update(&st->conn->ring_out.win, f.ring_limit);
    if (f.flags & MDAPL_FRAME_STALLED)
        mdapl_dapl_rx_grow_window(st->conn);
    peer->rx_asked |= (f.flags & MDAPL_FRAME_ASKS) != 0;
    if (!mdapl_dapl_frame_sequenced(f.type)) {
        if (!on_frame[f.type](st, &f, p + MDAPL_FRAME_HDR_BYTES))
            bad_frame(st, f.type, "its content is wrong", len);
        return true;
    }
    psn = mdapl_seq_widen(peer->rx_next, f.psn);
    /* Frames that the peer wrote into the ring before it sent this one are in the ring already. */
    if (psn > peer->rx_next)
        mdapl_dapl_ring_poll_conn(st->conn);
    if (psn != peer->rx_next)
        return out_of_order(st, f.type, psn, credit, frame, len);
    take(st, &f, p + MDAPL_FRAME_HDR_BYTES, len);
    if (!mdapl_list_empty(&peer->reordered))
        deliver_reordered(peer);
    mdapl_dapl_ring_maybe_offer(peer);
    return true;
}

/* -- the sr lane ------------------------------------------------------------------------------ */

/* A receive has completed. It is posted again in the same round, because the peer has its credit;
 * the inbox copies a message that the owner does not take. */
static void received(struct mdapl_dapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    struct mdapl_dapl_vbuf *b = MDAPL_OF(dto, struct mdapl_dapl_vbuf, dto);
    struct mdapl_dapl_ep *ep = dto->ep;
    struct mdapl_dapl_conn *conn = mdapl_dapl_conn_of(ep);
    struct mdapl_dapl_stream *st = conn->st;

    if (st && status == DAT_DTO_SUCCESS) {
        mdapl_dapl_vbuf_arrived(b, len);
        if (!conn->first_arrived)
            mdapl_dapl_cm_first_frame(conn);
        if (mdapl_dapl_rx_frame(st, &conn->rxwin.freed, b->data, len))
            conn->rxwin.freed++;
        mdapl_dapl_peer_wake_if_pending(st->peer);
        /* The frame may have been its last one: the connection is closed then. */
        if (conn->st && post_recv(ep, b) == 0)
            return;
        /* The peer would wait for the receive, or overrun it. */
        mdapl_dapl_post_refused(conn, MDAPL_DAPL_OP_RECV);
    } else {
        mdapl_dapl_dto_failed(dto, MDAPL_DAPL_OP_RECV, status);
        if (st)                  /* it has ended, and the event that says so is to follow */
            mdapl_dapl_conn_promise(st, true);
    }
    /* Buffers of a closed connection are freed as its receives are flushed. */
    mdapl_dapl_vbuf_put(ep->ia->vbufs, b);
}

int mdapl_dapl_rx_arm(struct mdapl_dapl_conn *conn)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&conn->reserved))) {
        if (post_recv(&conn->ep, MDAPL_OF(l, struct mdapl_dapl_vbuf, link)))
            return -EIO;
        mdapl_list_remove(l);
    }
    return 0;
}

void mdapl_dapl_rx_unreserve(struct mdapl_dapl_conn *conn)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&conn->reserved))) {
        mdapl_list_remove(l);
        mdapl_dapl_vbuf_put(conn->ep.ia->vbufs, MDAPL_OF(l, struct mdapl_dapl_vbuf, link));
    }
}

void mdapl_dapl_rx_fail(struct mdapl_dapl_peer *peer)
{
    mdapl_inbox_fail(&peer->inbox);
    mdapl_list_remove(&peer->ack_pending);
    reorder_clear(peer);
    peer->n_reordered = 0;
}
