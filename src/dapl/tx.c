/* SPDX-License-Identifier: MIT */
#include "frames.h"

#include "cfg.h"
#include "cm.h"
#include "conn.h"
#include "iov.h"
#include "log.h"
#include "peer.h"
#include "ring.h"
#include "rndv.h"
#include "stats.h"
#include "vbuf.h"
#include "window.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- one frame -------------------------------------------------------------------------------- */

/* How a frame is transmitted. */
enum lane { LANE_NONE, LANE_SR, LANE_RING };

/* May a frame go by the sr lane now, which may use `reserve` slots beyond the stream's window? */
static bool sr_open(const struct mdapl_dapl_stream *st, uint32_t reserve)
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

static int post_send(struct mdapl_dapl_stream *st, struct mdapl_dapl_vbuf *b,
                     struct mdapl_dapl_dto *dto)
{
    DAT_LMR_TRIPLET seg = mdapl_dapl_vbuf_seg(b, b->len);

    assert(mdapl_txwin_open(&st->up->txwin, MDAPL_SR_RESERVE));
    st->up->txwin.sent++;
    return mdapl_dapl_ep_post_send(&st->up->ep, &seg, dto);
}

/* A frame that is transmitted acknowledges all that has been received. */
static void ack_transmitted(struct mdapl_dapl_peer *peer)
{
    peer->rx_acked = peer->rx_next;
    peer->rx_unacked_bytes = 0;
    mdapl_list_remove(&peer->ack_pending);
}

/* Writes the header in front of a filled frame, retains it and posts it. f: all but psn, ack and
 * limits. */
static void transmit(struct mdapl_dapl_stream *st, enum lane lane, struct mdapl_dapl_vbuf *b,
                     struct mdapl_dapl_frame *f)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_chan *d = peer->d;
    struct mdapl_stats *stats = d->stats;

    f->psn = (uint32_t)peer->tx_next;
    f->ack = (uint32_t)peer->rx_next;
    f->sr_limit = mdapl_rxwin_advertise(&st->up->rxwin);
    f->ring_limit = mdapl_dapl_ring_limit(&st->up->ring_in, d->ring_slots);
    mdapl_dapl_frame_put(f, b->data);
    b->psn = f->psn;
    b->len = MDAPL_FRAME_HDR_BYTES + f->hdr_len + f->len;
    b->dto.done = posted_once;
    ack_transmitted(peer);
    if (mdapl_dapl_frame_sequenced(f->type)) {
        peer->tx_next++;
        if (d->retain) {
            b->holds++;
            b->carrier = st->up;
            mdapl_list_append(&peer->retained, &b->link);
            peer->retained_bytes += b->len;
            mdapl_stats_max(&stats->retained_max, mdapl_dapl_peer_unacked(peer));
            mdapl_stats_max(&stats->retained_bytes_max, peer->retained_bytes);
        }
    }
    if (mdapl_ctx_log(d->ctx)->level >= MDAPL_FRAME)
        mdapl_dapl_frame_log(peer, "->", b->data, b->len);
    peer->last_tx = d->now;
    stats->tx_frames++;
    if (lane == LANE_RING) {
        stats->tx_ring++;
        stats->tx_ring_bytes += b->len;
        if (mdapl_dapl_ring_post(st, b) == 0)
            return;
    } else {
        stats->tx_sr_bytes += b->len;
        if (post_send(st, b, &b->dto) == 0)
            return;
    }
    mdapl_dapl_vbuf_put(b->pool, b);
    mdapl_dapl_post_refused(st->up, lane == LANE_RING ? MDAPL_DAPL_OP_RING_WRITE
                                                      : MDAPL_DAPL_OP_SEND);
}

/* A buffer for a frame of at most len bytes on this stream; NULL: there is none now. */
static struct mdapl_dapl_vbuf *frame_buffer(struct mdapl_dapl_stream *st,
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
    it->u.msg.n = msg->n_body;
    it->u.msg.v = it->u.msg.own;
    if (msg->n_body > MDAPL_ITEM_IOV) {
        it->u.msg.v = malloc(sizeof(struct iovec) * (size_t)msg->n_body);
        if (!it->u.msg.v) {
            mdapl_pool_give(&peer->d->items, it);
            return -ENOMEM;
        }
    }
    if (msg->n_body > 0)
        memcpy(it->u.msg.v, msg->body, sizeof(struct iovec) * (size_t)msg->n_body);
    mdapl_dapl_item_queue(peer, it);
    return 0;
}

/* Nothing waits and a lane is open: the body is copied straight into a frame. */
static bool send_now(struct mdapl_dapl_peer *peer, const struct mdapl_msg *msg, size_t len)
{
    struct mdapl_dapl_frame f = { .type = MDAPL_FRAME_MSG, .hdr_len = (uint16_t)msg->hdr_len,
                             .len = (uint32_t)len };
    struct mdapl_iov cur = mdapl_iov_start(msg->body, msg->n_body);
    struct mdapl_dapl_stream *st = mdapl_dapl_peer_main(peer);
    enum lane lane;
    struct mdapl_dapl_vbuf *b;

    if (first_item(peer))
        return false;
    lane = pick_lane(st, MDAPL_FRAME_HDR_BYTES + msg->hdr_len + len);
    if (lane == LANE_NONE)
        return false;
    b = frame_buffer(st, MDAPL_FRAME_MSG, MDAPL_FRAME_HDR_BYTES + msg->hdr_len + len);
    if (!b)
        return false;
    memcpy(b->data + MDAPL_FRAME_HDR_BYTES, msg->hdr, msg->hdr_len);
    mdapl_iov_gather(&cur, b->data + MDAPL_FRAME_HDR_BYTES + msg->hdr_len, len);
    transmit(st, lane, b, &f);
    return true;
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
    bool eager = msg->hdr_len + len <= peer->frame_room && !(msg->synchronous && len > 0);
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

/*
 * A message that was queued before the hello of the peer, and is longer than the frames that the
 * peer takes, becomes a rendezvous in its place in the queue. False: out of memory.
 */
static bool rendezvous_instead(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *it)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->d->ctx);
    struct iovec *v = it->u.msg.v == it->u.msg.own ? NULL : it->u.msg.v;
    size_t len = it->len;

    if (!mdapl_dapl_rndv_announce(peer, it, it->u.msg.v, it->u.msg.n, len, it->op)) {
        mdapl_dapl_out_of_memory(peer, "a message to be sent");
        return false;
    }
    free(v);
    it->op = NULL;
    stats->tx_eager--;
    stats->tx_rndv++;
    stats->tx_eager_bytes -= len;
    stats->tx_rndv_bytes += len;
    return true;
}

/* Copies an item's next frame, from the envelope on, to p; *len_p: bytes behind the envelope. True:
 * it was the last one of the item. */
static bool put_item(struct mdapl_dapl_item *it, uint8_t *p, uint32_t *len_p)
{
    struct mdapl_iov cur;
    bool last = true;

    memcpy(p, it->hdr, it->hdr_len);
    p += it->hdr_len;
    *len_p = it->len;
    if (it->type == MDAPL_FRAME_MSG) {
        cur = mdapl_iov_start(it->u.msg.v, it->u.msg.n);
        mdapl_iov_gather(&cur, p, it->len);
    } else if (it->type == MDAPL_FRAME_DATA) {
        *len_p = (uint32_t)mdapl_dapl_rndv_put_data(it->u.rndv, p, it->len, &last);
    } else {
        memcpy(p, it->u.bytes, it->len);
    }
    return last;
}

/* -- replay ----------------------------------------------------------------------------------- */

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

    if (!sr_open(st, 0))
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
    if (mdapl_ctx_log(d->ctx)->level >= MDAPL_FRAME)
        mdapl_dapl_frame_log(peer, "-> again", b->data, b->len);
    d->stats->replayed_frames++;
    d->stats->replayed_bytes += b->len;
    if (post_send(st, b, &r->dto) == 0)
        return 0;
    mdapl_dapl_vbuf_put(b->pool, b);
    mdapl_pool_give(&d->reposts, r);
    mdapl_dapl_post_refused(st->up, MDAPL_DAPL_OP_SEND);
    return -EIO;
}

/* The oldest retained frame whose connection has ended; NULL: there is none. */
static struct mdapl_dapl_vbuf *oldest_lost(const struct mdapl_dapl_peer *peer)
{
    MDAPL_LIST_EACH(pos, &peer->retained)
        if (!MDAPL_OF(pos, struct mdapl_dapl_vbuf, link)->carrier)
            return MDAPL_OF(pos, struct mdapl_dapl_vbuf, link);
    return NULL;
}

/* The lowest stream that has a slot and an open window. Where the peer waits for the lost frames,
 * those behind them hold the credits of their stream. NULL: there is none. */
static struct mdapl_dapl_stream *replay_stream(const struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (sr_open(&peer->stream[i], 0))
            return &peer->stream[i];
    return NULL;
}

/* A copy of a retained frame, in a buffer that is registered on the stream's rail; it takes the
 * place of b, whose posts complete by themselves. NULL: there is no buffer now. */
static struct mdapl_dapl_vbuf *moved(struct mdapl_dapl_stream *st, struct mdapl_dapl_vbuf *b)
{
    struct mdapl_dapl_vbuf *copy = frame_buffer(st, MDAPL_FRAME_NONE, b->len);

    if (!copy)
        return NULL;
    memcpy(copy->data, b->data, b->len);
    copy->len = b->len;
    copy->psn = b->psn;
    copy->carrier = NULL;
    mdapl_list_before(&b->link, &copy->link);
    mdapl_list_remove(&b->link);
    mdapl_dapl_vbuf_put(b->pool, b);
    return copy;
}

/* Transmits the next frame of a replay, or ends it. False: that is not possible now. */
static bool replay_next(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *it)
{
    struct mdapl_dapl_vbuf *b = oldest_lost(peer);
    struct mdapl_dapl_stream *st;
    int rc;

    if (!b) {
        peer->replaying = false;
        mdapl_dapl_item_put(peer, it);
        return true;
    }
    st = replay_stream(peer);
    /* What its connection may still transmit must not have the limits of another one. */
    if (st && (b->pool != st->ia->vbufs || b->holds > 1))
        b = moved(st, b);
    if (!st || !b)
        return false;
    rc = mdapl_dapl_tx_repost(st, b);
    if (rc == -ENOMEM)
        mdapl_dapl_out_of_memory(peer, "a frame that is sent again");
    return rc == 0;
}

/* Before anything else that is queued, since the peer expects the frames in their order. */
static void queue_replay(struct mdapl_dapl_peer *peer)
{
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(peer, MDAPL_FRAME_NONE);

    if (!it) {
        mdapl_dapl_out_of_memory(peer, "frames that are sent again");
        return;
    }
    peer->replaying = true;
    mdapl_list_before(peer->ctl.next, &it->link);
}

void mdapl_dapl_tx_lost(struct mdapl_dapl_peer *peer, const struct mdapl_dapl_conn *conn)
{
    uint64_t n = 0;

    MDAPL_LIST_EACH(pos, &peer->retained) {
        struct mdapl_dapl_vbuf *b = MDAPL_OF(pos, struct mdapl_dapl_vbuf, link);

        if (b->carrier != conn)
            continue;
        b->carrier = NULL;
        n++;
    }
    if (n > 0)
        mdapl_dapl_event(peer, conn->stream, MDAPL_DAPL_EVENT_REPLAY, "", "", n);
    if (n > 0 && !peer->replaying && !peer->dead)
        queue_replay(peer);
}

static bool is_cts(const uint8_t *fields, size_t len, uint32_t rx_id)
{
    struct mdapl_dapl_cts cts;

    return mdapl_dapl_cts_get(&cts, fields, len) && cts.rx_id == rx_id;
}

bool mdapl_dapl_tx_has_cts(const struct mdapl_dapl_peer *peer, uint32_t rx_id)
{
    MDAPL_LIST_EACH(pos, &peer->ctl) {
        const struct mdapl_dapl_item *it = MDAPL_OF(pos, struct mdapl_dapl_item, link);

        if (it->type == MDAPL_FRAME_CTS && is_cts(it->u.bytes, it->len, rx_id))
            return true;
    }
    MDAPL_LIST_EACH(pos, &peer->retained) {
        const struct mdapl_dapl_vbuf *b = MDAPL_OF(pos, struct mdapl_dapl_vbuf, link);

        if (b->data[0] == MDAPL_FRAME_CTS
            && is_cts(b->data + MDAPL_FRAME_HDR_BYTES, b->len - MDAPL_FRAME_HDR_BYTES, rx_id))
            return true;
    }
    return false;
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
    struct mdapl_op *op = NULL;
    struct mdapl_dapl_frame f;
    struct mdapl_dapl_vbuf *b;

    if (it && it->type == MDAPL_FRAME_NONE)
        return replay_next(peer, it);
    if (it)
        lane = pick_lane(st, MDAPL_FRAME_HDR_BYTES + it->hdr_len + it->len);
    if (lane == LANE_NONE)
        return false;
    if (it->type == MDAPL_FRAME_MSG && it->hdr_len + it->len > peer->frame_room)
        return rendezvous_instead(peer, it);
    b = frame_buffer(st, it->type, MDAPL_FRAME_HDR_BYTES + it->hdr_len + it->len);
    if (!b)
        return false;
    f = (struct mdapl_dapl_frame){ .type = (uint8_t)it->type, .hdr_len = it->hdr_len };
    if (it->type != MDAPL_FRAME_MSG && it->type != MDAPL_FRAME_DATA)
        mdapl_dapl_event(peer, st->index, MDAPL_DAPL_EVENT_SENT,
                         mdapl_dapl_frame_name((uint8_t)it->type), "", peer->tx_next);
    if (put_item(it, b->data + MDAPL_FRAME_HDR_BYTES, &f.len)) {
        op = it->op;
        mdapl_dapl_item_put(peer, it);
    }
    transmit(st, lane, b, &f);
    if (op)
        op->done(op, 0);
    return true;
}

bool mdapl_dapl_tx_ahead(struct mdapl_dapl_stream *st, enum mdapl_dapl_frame_type type,
                         const void *fields, uint32_t len)
{
    struct mdapl_dapl_frame f = { .type = (uint8_t)type, .len = len };
    struct mdapl_dapl_vbuf *b = sr_open(st, 0) ? frame_buffer(st, type, MDAPL_FRAME_HDR_BYTES + len)
                                                : NULL;

    if (!b)
        return false;
    memcpy(b->data + MDAPL_FRAME_HDR_BYTES, fields, len);
    transmit(st, LANE_SR, b, &f);
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

    if (!sr_open(st, reserve))
        return false;
    b = frame_buffer(st, MDAPL_FRAME_ACK, MDAPL_FRAME_HDR_BYTES);
    if (!b)
        return false;
    mdapl_ctx_stats(st->peer->d->ctx)->tx_acks++;
    transmit(st, LANE_SR, b, &f);
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

int mdapl_dapl_tx_flush(struct mdapl_dapl_peer *peer)
{
    int n = 0;

    while (send_next(peer))
        n++;
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
