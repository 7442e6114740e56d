/* SPDX-License-Identifier: MIT */
#include "tx.h"

#include "cfg.h"
#include "cm.h"
#include "conn.h"
#include "iov.h"
#include "log.h"
#include "peer.h"
#include "rndv.h"
#include "ring.h"
#include "rx.h"
#include "seq.h"
#include "sr.h"
#include "stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- one frame -------------------------------------------------------------------------------- */

enum mdapl_lane mdapl_tx_lane(struct mdapl_stream *st, size_t len)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(st->peer->d->ctx);

    if (!mdapl_stream_up(st))
        return MDAPL_LANE_NONE;
    if (!mdapl_ep_has_slot(&st->up->ep)) {
        stats->dto_stalls++;
        return MDAPL_LANE_NONE;
    }
    if (st->index == 0 && mdapl_ring_takes(st->peer, len))
        return MDAPL_LANE_RING;
    if (mdapl_txwin_open(&st->up->txwin, 0))
        return MDAPL_LANE_SR;
    stats->window_stalls++;
    return MDAPL_LANE_NONE;
}

/* How a lane posts. */
static const struct {
    int (*post)(struct mdapl_stream *, struct mdapl_vbuf *);
    enum mdapl_dapl_op op;
} lanes[] = {
    [MDAPL_LANE_SR] = { mdapl_sr_post, MDAPL_DAPL_OP_SEND },
    [MDAPL_LANE_RING] = { mdapl_ring_post, MDAPL_DAPL_OP_RING_WRITE },
};

/* Its transfer is over: the adapter gives the buffer back. */
static void has_left(struct mdapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    struct mdapl_stream *st = mdapl_dapl_conn_of(dto->ep)->st;

    (void)len;
    if (status != DAT_DTO_SUCCESS)
        mdapl_dapl_dto_failed(dto, dto->kind == MDAPL_DTO_SEND ? MDAPL_DAPL_OP_SEND
                                                               : MDAPL_DAPL_OP_RING_WRITE,
                              status);
    /* The EP of a closed connection still gives its buffers back. */
    mdapl_vbuf_put(dto->ep->ia->vbufs, MDAPL_OF(dto, struct mdapl_vbuf, dto));
    if (st)
        mdapl_dpeer_stir(st->peer);
}

static void post(struct mdapl_stream *st, enum mdapl_lane lane, struct mdapl_vbuf *b)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(st->peer->d->ctx);

    stats->tx_frames++;
    *(lane == MDAPL_LANE_SR ? &stats->tx_sr_bytes : &stats->tx_ring_bytes) += b->len;
    stats->tx_ring += lane == MDAPL_LANE_RING;
    b->dto.done = has_left;
    if (lanes[lane].post(st, b) == 0)
        return;
    mdapl_vbuf_put(&st->peer->d->vbufs, b);
    mdapl_dapl_post_refused(st->up, lanes[lane].op);
}

/* Keeps a frame until the peer acknowledges it. */
static void retain(struct mdapl_dpeer *peer, struct mdapl_vbuf *b)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->d->ctx);

    b->holds++;
    mdapl_list_append(&peer->retained, &b->link);
    peer->retained_bytes += b->len;
    mdapl_stats_max(&stats->retained_max, mdapl_dpeer_unacked(peer));
    mdapl_stats_max(&stats->retained_bytes_max, peer->retained_bytes);
}

/* Writes the header in front of a filled frame and hands it to the lane. */
static void leave(struct mdapl_stream *st, enum mdapl_lane lane, struct mdapl_vbuf *b,
                  struct mdapl_frame *f)
{
    struct mdapl_dpeer *peer = st->peer;

    f->psn = (uint32_t)peer->tx_next;
    f->ack = (uint32_t)peer->rx_next;
    f->sr_limit = mdapl_rxwin_tell(&st->up->rxwin);
    f->ring_limit = mdapl_ring_limit(peer);
    mdapl_frame_put(f, b->data);
    b->psn = f->psn;
    b->len = MDAPL_FRAME_HDR_BYTES + f->hdr_len + f->len;
    mdapl_rx_told(peer);
    if (mdapl_frame_sequenced(f->type)) {
        peer->tx_next++;
        if (mdapl_ctx_cfg(peer->d->ctx)->retain == MDAPL_RETAIN_ON)
            retain(peer, b);
    }
    mdapl_log(mdapl_ctx_log(peer->d->ctx), MDAPL_FRAME, "-> rank %d type %d psn %u ack %u len %u",
              peer->base.rank, f->type, f->psn, f->ack, f->len);
    post(st, lane, b);
    peer->ring_out.talked = peer->d->now;
}

/* A buffer for a frame to this peer; NULL: there is none now. */
static struct mdapl_vbuf *frame_buffer(struct mdapl_dpeer *peer, enum mdapl_frame_type type)
{
    struct mdapl_vbufs *v = &peer->d->vbufs;
    struct mdapl_vbuf *b = type == MDAPL_FRAME_ACK ? mdapl_vbuf_get_for_ack(v)
                                                   : mdapl_vbuf_get(v);

    if (b)
        return b;
    mdapl_ctx_stats(peer->d->ctx)->vbuf_stalls++;
    if (mdapl_list_empty(&peer->starved))
        mdapl_list_append(&peer->d->starved, &peer->starved);
    return NULL;
}

/* -- filling: one function per frame type ----------------------------------------------------- */

static uint8_t *frame_envelope(struct mdapl_vbuf *b, const struct mdapl_item *it)
{
    uint8_t *p = b->data + MDAPL_FRAME_HDR_BYTES;

    memcpy(p, it->hdr, it->hdr_len);
    return p + it->hdr_len;
}

static bool fill_msg(struct mdapl_dpeer *peer, struct mdapl_item *it, struct mdapl_vbuf *b,
                     struct mdapl_frame *f)
{
    struct mdapl_iov cur = mdapl_iov_start(it->u.msg.v, it->u.msg.n);

    (void)peer;
    f->len = (uint32_t)mdapl_iov_gather(&cur, frame_envelope(b, it), it->u.msg.len);
    return true;
}

static bool fill_rts(struct mdapl_dpeer *peer, struct mdapl_item *it, struct mdapl_vbuf *b,
                     struct mdapl_frame *f)
{
    (void)peer;
    f->len = (uint32_t)mdapl_rndv_put_rts(it->u.rndv, frame_envelope(b, it));
    return true;
}

static bool fill_cts(struct mdapl_dpeer *peer, struct mdapl_item *it, struct mdapl_vbuf *b,
                     struct mdapl_frame *f)
{
    (void)peer;
    f->len = (uint32_t)mdapl_cts_put(&it->u.cts, b->data + MDAPL_FRAME_HDR_BYTES);
    return true;
}

static bool fill_data(struct mdapl_dpeer *peer, struct mdapl_item *it, struct mdapl_vbuf *b,
                      struct mdapl_frame *f)
{
    bool last;

    f->len = (uint32_t)mdapl_rndv_put_data(it->u.rndv, b->data + MDAPL_FRAME_HDR_BYTES,
                                           peer->frame_room, &last);
    return last;
}

static bool fill_written(struct mdapl_dpeer *peer, struct mdapl_item *it, struct mdapl_vbuf *b,
                         struct mdapl_frame *f)
{
    (void)peer;
    f->len = (uint32_t)mdapl_written_put(&it->u.written, b->data + MDAPL_FRAME_HDR_BYTES);
    return true;
}

static bool fill_fin(struct mdapl_dpeer *peer, struct mdapl_item *it, struct mdapl_vbuf *b,
                     struct mdapl_frame *f)
{
    (void)peer;
    f->len = (uint32_t)mdapl_fin_put(&it->u.fin, b->data + MDAPL_FRAME_HDR_BYTES);
    return true;
}

static bool fill_ring(struct mdapl_dpeer *peer, struct mdapl_item *it, struct mdapl_vbuf *b,
                      struct mdapl_frame *f)
{
    (void)peer;
    f->len = (uint32_t)mdapl_ring_put(&it->u.ring, b->data + MDAPL_FRAME_HDR_BYTES);
    return true;
}

/* Fills one frame of the item; true when that was its last one. */
static bool (*const fill[MDAPL_FRAME_TYPES])(struct mdapl_dpeer *, struct mdapl_item *,
                                             struct mdapl_vbuf *, struct mdapl_frame *) = {
    [MDAPL_FRAME_MSG] = fill_msg,
    [MDAPL_FRAME_RTS] = fill_rts,
    [MDAPL_FRAME_CTS] = fill_cts,
    [MDAPL_FRAME_DATA] = fill_data,
    [MDAPL_FRAME_FIN] = fill_fin,
    [MDAPL_FRAME_RING] = fill_ring,
    [MDAPL_FRAME_WRITTEN] = fill_written,
};

/* How long its next frame may be. */
static size_t longest(const struct mdapl_dpeer *peer, const struct mdapl_item *it)
{
    static const size_t fixed[MDAPL_FRAME_TYPES] = {
        [MDAPL_FRAME_RTS] = MDAPL_RTS_BYTES + MDAPL_SEGS_MOST,
        [MDAPL_FRAME_CTS] = MDAPL_CTS_BYTES + MDAPL_SEGS_MOST,
        [MDAPL_FRAME_FIN] = MDAPL_FIN_BYTES,
        [MDAPL_FRAME_RING] = MDAPL_RING_BYTES,
        [MDAPL_FRAME_WRITTEN] = MDAPL_WRITTEN_BYTES,
    };
    size_t len = it->type == MDAPL_FRAME_MSG ? it->u.msg.len : fixed[it->type];

    if (it->type == MDAPL_FRAME_DATA)
        len = peer->frame_room;
    return MDAPL_FRAME_HDR_BYTES + it->hdr_len + len;
}

/* -- items ------------------------------------------------------------------------------------ */

struct mdapl_item *mdapl_item_get(struct mdapl_dpeer *peer, enum mdapl_frame_type type)
{
    struct mdapl_item *it = mdapl_pool_take(&peer->d->items);

    if (!it)
        return NULL;
    mdapl_list_init(&it->link);
    it->type = type;
    it->stream = 0;
    it->op = NULL;
    it->hdr_len = 0;
    return it;
}

static void item_put(struct mdapl_dpeer *peer, struct mdapl_item *it)
{
    mdapl_list_remove(&it->link);
    if (it->type == MDAPL_FRAME_MSG && it->u.msg.v != it->u.msg.own)
        free(it->u.msg.v);
    mdapl_pool_give(&peer->d->items, it);
}

void mdapl_item_queue(struct mdapl_dpeer *peer, struct mdapl_item *it)
{
    bool message = it->type == MDAPL_FRAME_MSG || it->type == MDAPL_FRAME_RTS;

    mdapl_list_append(message ? &peer->queue : &peer->ctl, &it->link);
    mdapl_dpeer_wake(peer);
}

static struct mdapl_item *first_item(struct mdapl_dpeer *peer)
{
    struct mdapl_list *l = mdapl_list_first(&peer->ctl);

    if (!l)
        l = mdapl_list_first(&peer->queue);
    return l ? MDAPL_OF(l, struct mdapl_item, link) : NULL;
}

/* -- sending ---------------------------------------------------------------------------------- */

static int queue_msg(struct mdapl_dpeer *peer, const struct mdapl_msg *msg, size_t len,
                     struct mdapl_op *op)
{
    struct mdapl_item *it = mdapl_item_get(peer, MDAPL_FRAME_MSG);

    if (!it)
        return -ENOMEM;
    it->op = op;
    it->hdr_len = (uint16_t)msg->hdr_len;
    memcpy(it->hdr, msg->hdr, msg->hdr_len);
    it->u.msg.len = len;
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
    mdapl_item_queue(peer, it);
    return 0;
}

/* The short way: nothing waits and there is room, so the body goes straight into a frame. */
static bool send_now(struct mdapl_dpeer *peer, const struct mdapl_msg *msg, size_t len)
{
    struct mdapl_frame f = { .type = MDAPL_FRAME_MSG, .hdr_len = (uint16_t)msg->hdr_len,
                             .len = (uint32_t)len };
    struct mdapl_iov cur = mdapl_iov_start(msg->body, msg->n_body);
    struct mdapl_stream *st = mdapl_dpeer_main(peer);
    enum mdapl_lane lane;
    struct mdapl_vbuf *b;

    if (first_item(peer))
        return false;
    lane = mdapl_tx_lane(st, MDAPL_FRAME_HDR_BYTES + msg->hdr_len + len);
    if (lane == MDAPL_LANE_NONE)
        return false;
    b = frame_buffer(peer, MDAPL_FRAME_MSG);
    if (!b)
        return false;
    memcpy(b->data + MDAPL_FRAME_HDR_BYTES, msg->hdr, msg->hdr_len);
    mdapl_iov_gather(&cur, b->data + MDAPL_FRAME_HDR_BYTES + msg->hdr_len, len);
    leave(st, lane, b, &f);
    return true;
}

static void count_msg(struct mdapl_dpeer *peer, size_t len, bool eager)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->d->ctx);

    stats->tx_msgs++;
    stats->tx_bytes += len;
    *(eager ? &stats->tx_eager : &stats->tx_rndv) += 1;
    *(eager ? &stats->tx_eager_bytes : &stats->tx_rndv_bytes) += len;
}

int mdapl_tx_send(struct mdapl_peer *base, const struct mdapl_msg *msg, struct mdapl_op *op)
{
    struct mdapl_dpeer *peer = mdapl_dpeer_of(base);
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
    mdapl_cm_want(peer);
    if (!op)
        return -EAGAIN;
    rc = eager ? queue_msg(peer, msg, len, op) : mdapl_rndv_send(peer, msg, len, op);
    if (rc == 0)
        count_msg(peer, len, eager);
    return rc;
}

/*
 * A message that was queued before the peer's hello said what it takes, and is too long for that,
 * becomes a rendezvous in its place. False: out of memory.
 */
static bool rendezvous_instead(struct mdapl_dpeer *peer, struct mdapl_item *it)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->d->ctx);
    struct iovec *v = it->u.msg.v == it->u.msg.own ? NULL : it->u.msg.v;
    size_t len = it->u.msg.len;

    if (!mdapl_rndv_announce(peer, it, it->u.msg.v, it->u.msg.n, len, it->op)) {
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

/* One frame of the first item, if there is one and it may leave. */
static bool send_next(struct mdapl_dpeer *peer)
{
    struct mdapl_item *it = first_item(peer);
    struct mdapl_stream *st = it ? &peer->stream[it->stream] : NULL;
    enum mdapl_lane lane = it ? mdapl_tx_lane(st, longest(peer, it)) : MDAPL_LANE_NONE;
    struct mdapl_frame f = { 0 };
    struct mdapl_op *op;
    struct mdapl_vbuf *b;

    if (lane == MDAPL_LANE_NONE)
        return false;
    if (it->type == MDAPL_FRAME_MSG && it->hdr_len + it->u.msg.len > peer->frame_room)
        return rendezvous_instead(peer, it);
    b = frame_buffer(peer, it->type);
    if (!b)
        return false;
    f.type = (uint8_t)it->type;
    f.hdr_len = it->hdr_len;
    op = it->op;
    if (fill[it->type](peer, it, b, &f))
        item_put(peer, it);
    else
        op = NULL;
    leave(st, lane, b, &f);
    if (op)
        op->done(op, 0);
    return true;
}

/*
 * An acknowledgement in a frame of its own; it may use `reserve` slots beyond the stream's window.
 * False: it cannot be transmitted now.
 */
static bool send_ack(struct mdapl_stream *st, uint32_t reserve)
{
    struct mdapl_frame f = { .type = MDAPL_FRAME_ACK };
    struct mdapl_vbuf *b;

    if (!mdapl_stream_up(st) || !mdapl_ep_has_slot(&st->up->ep)
        || !mdapl_txwin_open(&st->up->txwin, reserve))
        return false;
    b = frame_buffer(st->peer, MDAPL_FRAME_ACK);
    if (!b)
        return false;
    mdapl_ctx_stats(st->peer->d->ctx)->tx_acks++;
    leave(st, MDAPL_LANE_SR, b, &f);
    return true;
}

/*
 * One for each stream whose window update is due (PROTOCOL, "No deadlock"). A stream that cannot
 * transmit does not hold up the others. It is tried again when a request of its EP completes, when
 * a frame of the peer raises its limit, or when a frame buffer is free: each of them wakes the
 * peer.
 */
static int send_acks(struct mdapl_dpeer *peer)
{
    int n = 0;

    for (int i = 0; i < peer->n_streams; i++)
        if (peer->stream[i].up && mdapl_rxwin_owes(&peer->stream[i].up->rxwin))
            n += send_ack(&peer->stream[i], MDAPL_SR_RESERVE);
    if (mdapl_rx_psn_ack_due(peer))
        n += send_ack(mdapl_dpeer_main(peer), 0);
    return n;
}

int mdapl_tx_flush(struct mdapl_dpeer *peer)
{
    int n = 0;

    while (send_next(peer))
        n++;
    return n + send_acks(peer);
}

/* -- acknowledgement -------------------------------------------------------------------------- */

bool mdapl_tx_acked(struct mdapl_dpeer *peer, uint32_t ack)
{
    uint64_t all = mdapl_seq_widen(peer->tx_acked, ack);
    struct mdapl_list *l;

    if (all > peer->tx_next)
        return false;
    if (all > peer->tx_acked)
        peer->tx_acked = all;
    while ((l = mdapl_list_first(&peer->retained))) {
        struct mdapl_vbuf *b = MDAPL_OF(l, struct mdapl_vbuf, link);

        if (!mdapl_seq_before(b->psn, ack))
            break;
        mdapl_list_remove(&b->link);
        peer->retained_bytes -= b->len;
        mdapl_vbuf_put(&peer->d->vbufs, b);
    }
    return true;
}

static void fail_items(struct mdapl_dpeer *peer, struct mdapl_list *list, int status)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(list))) {
        struct mdapl_item *it = MDAPL_OF(l, struct mdapl_item, link);
        struct mdapl_op *op = it->op;

        item_put(peer, it);
        if (op)
            op->done(op, status);
    }
}

void mdapl_tx_fail(struct mdapl_dpeer *peer, int status)
{
    fail_items(peer, &peer->ctl, status);
    fail_items(peer, &peer->queue, status);
    mdapl_tx_acked(peer, (uint32_t)peer->tx_next);
}
