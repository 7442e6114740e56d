/* SPDX-License-Identifier: MIT */
#include "frames.h"

#include "bytes.h"
#include "cfg.h"
#include "cm.h"
#include "conn.h"
#include "iov.h"
#include "log.h"
#include "min.h"
#include "peer.h"
#include "ring.h"
#include "rndv.h"
#include "stats.h"
#include "vbuf.h"
#include "window.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* -- one frame -------------------------------------------------------------------------------- */

/* How a frame is transmitted. */
enum lane { LANE_NONE, LANE_SR, LANE_RING };

bool mdapl_dapl_tx_sr_open(const struct mdapl_dapl_stream *st, uint32_t reserve)
{
    return mdapl_dapl_stream_up(st) && mdapl_dapl_ep_has_slot(&st->up->ep)
           && mdapl_txwin_open(&st->up->txwin, reserve);
}

/* How a frame of at most len bytes may be transmitted on this stream now. */
static enum lane pick_lane(const struct mdapl_dapl_stream *st, size_t len)
{
    struct mdapl_dapl_peer *peer = st->peer;

    if (!mdapl_dapl_stream_up(st))
        return LANE_NONE;
    if (!mdapl_dapl_ep_has_slot(&st->up->ep)) {
        peer->d->stats->dto_stalls++;
        return LANE_NONE;
    }
    if (mdapl_dapl_ring_has_room(&st->up->ring_out, len, peer->d->now - peer->last_tx))
        return LANE_RING;
    if (mdapl_txwin_open(&st->up->txwin, 0))
        return LANE_SR;
    st->up->txwin.stalled = true;
    peer->d->stats->window_stalls++;
    return LANE_NONE;
}

/* A post of the frame in b has completed: drops its hold on the buffer. */
static inline void completed(struct mdapl_dapl_dto *dto, struct mdapl_dapl_vbuf *b,
                             DAT_DTO_COMPLETION_STATUS status)
{
    struct mdapl_dapl_stream *st = mdapl_dapl_conn_of(dto->ep)->st;

    if (status != DAT_DTO_SUCCESS)
        mdapl_dapl_dto_failed(dto, dto->kind == MDAPL_DTO_SEND ? MDAPL_DAPL_OP_SEND
                                                               : MDAPL_DAPL_OP_RING_WRITE,
                              status);
    /* Buffers of a closed connection are freed as its requests are flushed. */
    mdapl_dapl_vbuf_put(dto->ep->ia->vbufs, b);
    if (st)
        mdapl_dapl_peer_wake_if_pending(st->peer);
}

static void posted_once(struct mdapl_dapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    (void)len;
    completed(dto, MDAPL_OF(dto, struct mdapl_dapl_vbuf, dto), status);
}

static int post_send(struct mdapl_dapl_conn *conn, struct mdapl_dapl_vbuf *b,
                     struct mdapl_dapl_dto *dto)
{
    DAT_LMR_TRIPLET seg = mdapl_dapl_vbuf_seg(b, b->len);

    assert(mdapl_txwin_open(&conn->txwin, MDAPL_SR_RESERVE));
    conn->txwin.sent++;
    return mdapl_dapl_ep_post_send(&conn->ep, &seg, dto);
}

/* A frame that is transmitted acknowledges all that has been received. */
static void ack_transmitted(struct mdapl_dapl_peer *peer)
{
    peer->rx_acked = peer->rx_next;
    peer->rx_asked = false;
    peer->rx_unacked_bytes = 0;
    mdapl_list_remove(&peer->ack_pending);
}

/* Writes the header in front of a filled frame, retains it and posts it, on a connection that is up
 * or was when the caller began. f: all but flags, psn, ack and limits. */
static void transmit(struct mdapl_dapl_conn *conn, enum lane lane, struct mdapl_dapl_vbuf *b,
                     struct mdapl_dapl_frame *f)
{
    struct mdapl_dapl_peer *peer = conn->st->peer;
    struct mdapl_dapl_chan *d = peer->d;
    struct mdapl_stats *stats = d->stats;

    f->flags = conn->txwin.stalled ? MDAPL_FRAME_STALLED : 0;
    if (peer->tx_asks) {
        f->flags |= MDAPL_FRAME_ASKS;
        mdapl_dapl_ep_signal_next(&conn->ep);
        peer->tx_asks = false;
    }
    conn->txwin.stalled = false;
    f->psn = (uint32_t)peer->tx_next;
    f->ack = (uint32_t)peer->rx_next;
    f->sr_limit = mdapl_rxwin_advertise(&conn->rxwin);
    f->ring_limit = mdapl_dapl_ring_limit(&conn->ring_in, d->ring_slots);
    mdapl_dapl_frame_put(f, b->data);
    b->psn = f->psn;
    b->len = MDAPL_FRAME_HDR_BYTES + f->hdr_len + f->len;
    b->dto.done = posted_once;
    ack_transmitted(peer);
    if (mdapl_dapl_frame_sequenced(f->type)) {
        peer->tx_next++;
        if (d->retain) {
            b->holds++;
            b->carrier = conn;
            mdapl_list_append(&peer->retained, &b->link);
            peer->retained_bytes += b->len;
            mdapl_stats_max(&stats->retained_max, mdapl_dapl_peer_unacked(peer));
            mdapl_stats_max(&stats->retained_bytes_max, peer->retained_bytes);
        }
    }
    if (d->log->level >= MDAPL_FRAME)
        mdapl_dapl_frame_log(peer, "->", b->data, b->len);
    peer->last_tx = d->now;
    stats->tx_frames++;
    if (lane == LANE_RING) {
        stats->tx_ring++;
        stats->tx_ring_bytes += b->len;
        if (mdapl_dapl_ring_post(conn, b) == 0)
            return;
    } else {
        stats->tx_sr_bytes += b->len;
        if (post_send(conn, b, &b->dto) == 0)
            return;
    }
    mdapl_dapl_vbuf_put(b->pool, b);
    mdapl_dapl_post_refused(conn, lane == LANE_RING ? MDAPL_DAPL_OP_RING_WRITE
                                                    : MDAPL_DAPL_OP_SEND);
}

/* Has the stream's connection buffers of frames whose completion makes no event of its own? */
static bool has_unsignaled(const struct mdapl_dapl_stream *st)
{
    return st->up && st->up->ep.n_unsignaled > 0;
}

/* Would a frame that asks for an acknowledgement, and makes an event, free buffers? */
static bool is_worth_asking(const struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (has_unsignaled(&peer->stream[i]))
            return true;
    return !mdapl_list_empty(&peer->retained) && peer->tx_acked >= peer->tx_asked;
}

void mdapl_dapl_tx_need_buffers(struct mdapl_dapl_chan *d)
{
    struct mdapl_dapl_peer *peer = NULL;

    while ((peer = mdapl_dapl_peer_next(d, peer)))
        if (!peer->dead && is_worth_asking(peer)) {
            peer->tx_asks = true;
            peer->tx_asked = peer->tx_next;
            mdapl_dapl_peer_wake(peer);
        }
}

struct mdapl_dapl_vbuf *mdapl_dapl_tx_buffer(struct mdapl_dapl_stream *st,
                                             enum mdapl_dapl_frame_type type, size_t len)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_vbuf *b = mdapl_dapl_vbuf_get(
        st->ia->vbufs, type == MDAPL_FRAME_ACK ? MDAPL_VBUF_ACK : MDAPL_VBUF_FRAME);

    if (b) {
        mdapl_dapl_vbuf_choose(b, len);
        return b;
    }
    mdapl_ctx_stats(peer->d->ctx)->vbuf_stalls++;
    if (mdapl_list_empty(&peer->d->vbuf_waiters))
        mdapl_dapl_tx_need_buffers(peer->d);
    if (mdapl_list_empty(&peer->vbuf_waiters))
        mdapl_list_append(&peer->d->vbuf_waiters, &peer->vbuf_waiters);
    return NULL;
}

/* -- sending ---------------------------------------------------------------------------------- */

static struct mdapl_dapl_item *first_item(struct mdapl_dapl_peer *peer)
{
    struct mdapl_list *l = mdapl_list_first(&peer->ctl);

    if (!l)
        l = mdapl_list_first(&peer->queue);
    return l ? MDAPL_OF(l, struct mdapl_dapl_item, link) : NULL;
}

static struct mdapl_dapl_out outgoing(const void *hdr, size_t hdr_len, const struct iovec *v, int n,
                                      size_t len)
{
    return (struct mdapl_dapl_out){ .hdr = hdr, .hdr_len = (uint16_t)hdr_len, .len = len,
                                    .cur = mdapl_iov_start(v, n) };
}

static int queue_msg(struct mdapl_dapl_peer *peer, const struct mdapl_msg *msg, size_t len,
                     struct mdapl_op *op)
{
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(peer, MDAPL_FRAME_MSG);

    if (!it)
        return -ENOMEM;
    it->op = op;
    it->hdr_len = (uint16_t)msg->hdr_len;
    memcpy(it->hdr, msg->hdr, msg->hdr_len);
    it->len = (uint32_t)len;
    if (!mdapl_pieces_copy(&it->u.msg.body, msg->body, msg->n_body)) {
        mdapl_dapl_item_put(peer, it);
        return -ENOMEM;
    }
    it->u.msg.out = outgoing(it->hdr, it->hdr_len, it->u.msg.body.v, msg->n_body, len);
    mdapl_dapl_item_queue(peer, it);
    return 0;
}

/* Writes the next frame of a message, from the envelope on, to p; f gets its type and lengths. */
static void put_msg(const struct mdapl_dapl_peer *peer, struct mdapl_dapl_out *m, uint8_t *p,
                    struct mdapl_dapl_frame *f)
{
    size_t room = peer->frame_room, n;

    f->type = m->at > 0 ? MDAPL_FRAME_MORE
            : m->hdr_len + m->len > room ? MDAPL_FRAME_HEAD : MDAPL_FRAME_MSG;
    f->hdr_len = m->at > 0 ? 0 : m->hdr_len;
    f->len = 0;
    memcpy(p, m->hdr, f->hdr_len);
    p += f->hdr_len;
    if (f->type == MDAPL_FRAME_HEAD)
        f->len = (uint32_t)mdapl_dapl_head_put(&(struct mdapl_dapl_head){ m->len }, p);
    if (f->type == MDAPL_FRAME_MORE)
        f->len = (uint32_t)mdapl_dapl_more_put(&(struct mdapl_dapl_more){ m->len - m->at }, p);
    n = mdapl_min(m->len - m->at, room - f->hdr_len - f->len);
    mdapl_iov_gather(&m->cur, p + f->len, n);
    f->len += (uint32_t)n;
    m->at += n;
}

/* Bytes of the longest frame of a message. */
static size_t frame_bytes(const struct mdapl_dapl_peer *peer, size_t hdr_len, size_t len)
{
    return MDAPL_FRAME_HDR_BYTES + mdapl_min(hdr_len + len, peer->frame_room);
}

/* May all frames of a message be transmitted now? */
static bool has_room_for_all(const struct mdapl_dapl_stream *st, size_t hdr_len, size_t len)
{
    size_t least = st->peer->frame_room - MDAPL_MORE_BYTES;
    size_t n = (hdr_len + len + MDAPL_HEAD_BYTES + least - 1) / least;

    return mdapl_dapl_stream_up(st) && n <= mdapl_txwin_left(&st->up->txwin)
           && n <= mdapl_dapl_ep_slots(&st->up->ep)
           && n <= mdapl_dapl_vbufs_for(st->ia->vbufs, MDAPL_VBUF_FRAME);
}

/* A message that fits into a frame: as put_msg(), without a cursor. */
static bool send_frame(struct mdapl_dapl_stream *st, const struct mdapl_msg *msg, size_t len)
{
    size_t bytes = MDAPL_FRAME_HDR_BYTES + msg->hdr_len + len;
    struct mdapl_dapl_frame f = { .type = MDAPL_FRAME_MSG, .hdr_len = (uint16_t)msg->hdr_len,
                                  .len = (uint32_t)len };
    enum lane lane = pick_lane(st, bytes);
    struct mdapl_dapl_vbuf *b = NULL;
    uint8_t *p;

    if (lane != LANE_NONE)
        b = mdapl_dapl_tx_buffer(st, MDAPL_FRAME_MSG, bytes);
    if (!b)
        return false;
    p = b->data + MDAPL_FRAME_HDR_BYTES;
    mdapl_bytes_copy(p, msg->hdr, msg->hdr_len);
    p += msg->hdr_len;
    for (int i = 0; i < msg->n_body; p += msg->body[i++].iov_len)
        mdapl_bytes_copy(p, msg->body[i].iov_base, msg->body[i].iov_len);
    transmit(st->up, lane, b, &f);
    return true;
}

/* A longer one. All buffers of its frames are there. */
static bool send_frames(struct mdapl_dapl_stream *st, const struct mdapl_msg *msg, size_t len)
{
    struct mdapl_dapl_out m = outgoing(msg->hdr, msg->hdr_len, msg->body, msg->n_body, len);
    struct mdapl_dapl_conn *conn = st->up;     /* which may refuse one of them */
    struct mdapl_dapl_frame f = { 0 };

    if (!has_room_for_all(st, msg->hdr_len, len))
        return false;
    while (m.at < len) {
        struct mdapl_dapl_vbuf *b = mdapl_dapl_tx_buffer(st, MDAPL_FRAME_MSG,
                                                         MDAPL_FRAME_HDR_BYTES
                                                             + st->peer->frame_room);

        put_msg(st->peer, &m, b->data + MDAPL_FRAME_HDR_BYTES, &f);
        transmit(conn, LANE_SR, b, &f);
    }
    return true;
}

/* Nothing waits and a lane is open: the body is copied straight into its frames. */
static bool send_now(struct mdapl_dapl_peer *peer, const struct mdapl_msg *msg, size_t len)
{
    struct mdapl_dapl_stream *st = mdapl_dapl_peer_main(peer);

    if (first_item(peer))
        return false;
    return msg->hdr_len + len <= peer->frame_room ? send_frame(st, msg, len)
                                                  : send_frames(st, msg, len);
}

static void count_msg(struct mdapl_dapl_peer *peer, size_t len, bool eager)
{
    struct mdapl_stats *stats = peer->d->stats;

    stats->tx_msgs++;
    stats->tx_bytes += len;
    *(eager ? &stats->tx_eager : &stats->tx_rndv) += 1;
    *(eager ? &stats->tx_eager_bytes : &stats->tx_rndv_bytes) += len;
}

int mdapl_dapl_tx_send(struct mdapl_peer *base, const struct mdapl_msg *msg, struct mdapl_op *op)
{
    struct mdapl_dapl_peer *peer = mdapl_dapl_peer_of(base);
    size_t len = mdapl_iov_len(msg->body, msg->n_body);
    bool eager = msg->hdr_len + len <= peer->d->eager_max && !(msg->synchronous && len > 0);
    int rc;

    if (peer->dead)
        return peer->dead;
    if (msg->hdr_len > MDAPL_HDR_MAX)
        return -EMSGSIZE;
    if (eager && send_now(peer, msg, len)) {
        count_msg(peer, len, eager);
        return MDAPL_DONE;
    }
    mdapl_dapl_cm_connect(peer);
    if (!op)
        return -EAGAIN;
    rc = eager ? queue_msg(peer, msg, len, op) : mdapl_dapl_rndv_send(peer, msg, len, op);
    if (rc == 0)
        count_msg(peer, len, eager);
    return rc;
}

/* Copies an item's next frame, from the envelope on, to p; f gets its type and lengths. True: it
 * was the last one of the item. */
static bool put_item(const struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *it, uint8_t *p,
                     struct mdapl_dapl_frame *f)
{
    bool last = true;

    if (it->type == MDAPL_FRAME_MSG) {
        put_msg(peer, &it->u.msg.out, p, f);
        return it->u.msg.out.at == it->u.msg.out.len;
    }
    *f = (struct mdapl_dapl_frame){ .type = (uint8_t)it->type, .hdr_len = it->hdr_len,
                                    .len = it->len };
    memcpy(p, it->hdr, it->hdr_len);
    p += it->hdr_len;
    if (it->type == MDAPL_FRAME_DATA)
        f->len = (uint32_t)mdapl_dapl_rndv_put_data(it->u.rndv, p, it->len, &last);
    else
        memcpy(p, it->u.bytes, it->len);
    return last;
}

/* -- a frame once more ------------------------------------------------------------------------- */

static void reposted(struct mdapl_dapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    struct mdapl_dapl_repost *r = MDAPL_OF(dto, struct mdapl_dapl_repost, dto);

    (void)len;
    completed(dto, r->b, status);
    mdapl_pool_give(r->pool, r);
}

int mdapl_dapl_tx_repost(struct mdapl_dapl_stream *st, struct mdapl_dapl_vbuf *b)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_chan *d = peer->d;
    struct mdapl_dapl_repost *r;

    if (!mdapl_dapl_tx_sr_open(st, 0))
        return -EAGAIN;
    r = mdapl_pool_take(&d->reposts);
    if (!r)
        return -ENOMEM;
    r->pool = &d->reposts;
    r->b = b;
    r->dto.done = reposted;
    b->holds++;
    b->carrier = st->up;
    mdapl_dapl_frame_stamp(b->data, (uint32_t)peer->rx_next, mdapl_rxwin_advertise(&st->up->rxwin),
                           mdapl_dapl_ring_limit(&st->up->ring_in, d->ring_slots));
    ack_transmitted(peer);
    if (d->log->level >= MDAPL_FRAME)
        mdapl_dapl_frame_log(peer, "-> again", b->data, b->len);
    d->stats->replayed_frames++;
    d->stats->replayed_bytes += b->len;
    if (post_send(st->up, b, &r->dto) == 0)
        return 0;
    mdapl_dapl_vbuf_put(b->pool, b);
    mdapl_pool_give(&d->reposts, r);
    mdapl_dapl_post_refused(st->up, MDAPL_DAPL_OP_SEND);
    return -EIO;
}

/* -- what is transmitted next ----------------------------------------------------------------- */

static struct mdapl_dapl_stream *stream_of(const struct mdapl_dapl_peer *peer,
                                           const struct mdapl_dapl_item *it)
{
    return it->stream == MDAPL_DAPL_ANY_STREAM ? mdapl_dapl_peer_main(peer)
                                               : &peer->stream[it->stream];
}

/* Transmits one frame of the first item, if there is one and a lane is open. */
static bool send_next(struct mdapl_dapl_peer *peer)
{
    struct mdapl_dapl_item *it = first_item(peer);
    struct mdapl_dapl_stream *st = it ? stream_of(peer, it) : NULL;
    enum lane lane = LANE_NONE;
    struct mdapl_dapl_frame f = { 0 };
    struct mdapl_op *op = NULL;
    struct mdapl_dapl_vbuf *b;

    if (it && it->type == MDAPL_FRAME_NONE)
        return mdapl_dapl_replay_next(peer, it);
    if (it)
        lane = pick_lane(st, frame_bytes(peer, it->hdr_len, it->len));
    if (lane == LANE_NONE)
        return false;
    b = mdapl_dapl_tx_buffer(st, it->type, frame_bytes(peer, it->hdr_len, it->len));
    if (!b)
        return false;
    if (!mdapl_dapl_frame_has_body((uint8_t)it->type))
        mdapl_dapl_event(peer, st->index, MDAPL_DAPL_EVENT_SENT,
                         mdapl_dapl_frame_name((uint8_t)it->type), "", peer->tx_next);
    if (put_item(peer, it, b->data + MDAPL_FRAME_HDR_BYTES, &f)) {
        op = it->op;
        mdapl_dapl_item_put(peer, it);
    }
    transmit(st->up, lane, b, &f);
    if (op)
        op->done(op, 0);
    return true;
}

bool mdapl_dapl_tx_ahead(struct mdapl_dapl_stream *st, enum mdapl_dapl_frame_type type,
                         const void *fields, uint32_t len)
{
    struct mdapl_dapl_frame f = { .type = (uint8_t)type, .len = len };
    struct mdapl_dapl_vbuf *b = NULL;

    if (mdapl_dapl_tx_sr_open(st, 0))
        b = mdapl_dapl_tx_buffer(st, type, MDAPL_FRAME_HDR_BYTES + len);
    if (!b)
        return false;
    memcpy(b->data + MDAPL_FRAME_HDR_BYTES, fields, len);
    transmit(st->up, LANE_SR, b, &f);
    return true;
}

/*
 * An acknowledgement in a frame of its own; it may use `reserve` slots beyond the stream's window.
 * False: it cannot be transmitted now.
 */
static bool send_ack(struct mdapl_dapl_stream *st, uint32_t reserve)
{
    struct mdapl_dapl_frame f = { .type = MDAPL_FRAME_ACK };
    struct mdapl_dapl_vbuf *b;

    if (!mdapl_dapl_tx_sr_open(st, reserve))
        return false;
    b = mdapl_dapl_tx_buffer(st, MDAPL_FRAME_ACK, MDAPL_FRAME_HDR_BYTES);
    if (!b)
        return false;
    mdapl_ctx_stats(st->peer->d->ctx)->tx_acks++;
    if (mdapl_rxwin_growth_due(&st->up->rxwin))
        mdapl_dapl_rx_grow_window(st->up);
    transmit(st->up, LANE_SR, b, &f);
    return true;
}

/*
 * One for each stream whose window update is due (PROTOCOL, "No deadlock"), and the caller's first
 * frame on a connection that has had none. A stream that cannot transmit does not hold up the
 * others. It is tried again when a request of its EP completes, when a frame of the peer raises its
 * limit, or when a frame buffer is free: each of them wakes the peer.
 */
static int send_acks(struct mdapl_dapl_peer *peer)
{
    int n = 0;

    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_conn *conn = peer->stream[i].up;

        if (conn && ((conn->caller && conn->txwin.sent == 0)
                     || mdapl_rxwin_update_due(&conn->rxwin)))
            n += send_ack(&peer->stream[i], MDAPL_SR_RESERVE);
    }
    if (mdapl_dapl_rx_psn_ack_due(peer))
        n += send_ack(mdapl_dapl_peer_main(peer), 0);
    return n;
}

/* Frames that ask for an acknowledgement: one, and one more on each stream for its buffers. */
static int send_asks(struct mdapl_dapl_peer *peer)
{
    int n = 0;

    if (!peer->tx_asks)
        return 0;
    for (int i = 0; i < peer->n_streams; i++)
        if (has_unsignaled(&peer->stream[i])) {
            mdapl_dapl_ep_signal_next(&peer->stream[i].up->ep);
            n += send_ack(&peer->stream[i], 0);
        }
    return peer->tx_asks ? n + send_ack(mdapl_dapl_peer_main(peer), 0) : n;
}

int mdapl_dapl_tx_flush(struct mdapl_dapl_peer *peer)
{
    int n = 0;

    while (send_next(peer))
        n++;
    n += send_asks(peer);
    return n + send_acks(peer);
}

/* -- acknowledgement -------------------------------------------------------------------------- */

bool mdapl_dapl_tx_acked(struct mdapl_dapl_peer *peer, uint32_t ack)
{
    uint64_t all = mdapl_seq_widen(peer->tx_acked, ack);
    struct mdapl_list *l;

    if (all > peer->tx_next)
        return false;
    if (all > peer->tx_acked)
        peer->tx_acked = all;
    while ((l = mdapl_list_first(&peer->retained))) {
        struct mdapl_dapl_vbuf *b = MDAPL_OF(l, struct mdapl_dapl_vbuf, link);

        if (!mdapl_seq_before(b->psn, ack))
            break;
        mdapl_list_remove(&b->link);
        peer->retained_bytes -= b->len;
        mdapl_dapl_vbuf_put(b->pool, b);
    }
    return true;
}

void mdapl_dapl_tx_fail(struct mdapl_dapl_peer *peer, int status)
{
    mdapl_dapl_items_fail(peer, &peer->ctl, status);
    mdapl_dapl_items_fail(peer, &peer->queue, status);
    mdapl_dapl_tx_acked(peer, (uint32_t)peer->tx_next);
}
