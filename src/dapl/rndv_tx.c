/* SPDX-License-Identifier: MIT */
#include "rndv.h"

#include "body.h"
#include "cfg.h"
#include "conn.h"
#include "frames.h"
#include "iov.h"
#include "peer.h"
#include "rndv_fsm.h"
#include "xfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* From mdapl_send() to the FIN. */
struct mdapl_dapl_rndv_tx {
    struct mdapl_list link;          /* on peer->rndv_tx */
    struct mdapl_dapl_peer *peer;
    enum mdapl_dapl_rtx_state state;
    struct mdapl_op *op;
    int status;                      /* ENDING: for op->done() */
    uint32_t id;
    struct mdapl_dapl_body body;
    uint64_t asked;                  /* end of the bytes that the last CTS requests */
    struct mdapl_list writes;        /* answers to CTS whose RDMA writes are not all complete */
    /* SENDING in DATA frames: the bytes that the CTS requests */
    bool queued;                     /* they have an item */
    uint32_t rx_id;
    uint64_t off, left;              /* of the next byte; how many */
    struct mdapl_iov cursor;         /* at it */
};

/* The answer to one CTS by RDMA. The first write that fails stops it, and the receiver requests the
 * rest once the connection has drained at its end. */
struct write {
    struct mdapl_dapl_xfer move;
    struct mdapl_list link;          /* on tx->writes */
    struct mdapl_dapl_rndv_tx *tx;
    struct mdapl_dapl_segs to;       /* what the CTS names */
    struct mdapl_dapl_written posted[]; /* by stream: what no WRITTEN of it has named yet */
};

/* -- from the announcement to the end --------------------------------------------------------- */

/* An event of ours, or one of the wire that has been found possible before. False: it is neither,
 * the state stays and the peer is lost. */
static bool tx_step(struct mdapl_dapl_rndv_tx *tx, enum mdapl_dapl_rtx_event event)
{
    int next = mdapl_dapl_rtx_step(tx->state, event);

    if (next < 0) {
        mdapl_dapl_impossible(tx->peer, "a rendezvous of ours made an impossible step");
        return false;
    }
    tx->state = (enum mdapl_dapl_rtx_state)next;
    return true;
}

/* Frees the rendezvous and completes its send. */
static void tx_end(struct mdapl_dapl_rndv_tx *tx)
{
    struct mdapl_op *op = tx->op;
    int status = tx->status;

    mdapl_dapl_body_free(&tx->body);
    mdapl_idmap_remove(&tx->peer->d->tx_ids, tx->id);
    mdapl_list_remove(&tx->link);
    free(tx);
    op->done(op, status);
}

int mdapl_dapl_rndv_send(struct mdapl_dapl_peer *peer, const struct mdapl_msg *msg, size_t len,
                         struct mdapl_op *op)
{
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(peer, MDAPL_FRAME_RTS);
    struct mdapl_dapl_rndv_tx *tx = calloc(1, sizeof(*tx));
    struct mdapl_dapl_chan *d = peer->d;
    int64_t how = mdapl_ctx_cfg(d->ctx)->rndv;
    struct mdapl_dapl_rts rts;

    if (!it || !tx || mdapl_dapl_body_init(&tx->body, d->rails.lmr_max, msg->body, msg->n_body, len)
        || mdapl_idmap_add(&d->tx_ids, tx, &tx->id)) {
        if (it)
            mdapl_pool_give(&d->items, it);
        if (tx)
            mdapl_dapl_body_free(&tx->body);
        free(tx);
        return -ENOMEM;
    }
    tx->peer = peer;
    tx->op = op;
    mdapl_list_init(&tx->writes);
    mdapl_list_append(&peer->rndv_tx, &tx->link);
    if (how != MDAPL_RNDV_COPY)  /* before the RTS: a CTS of rput needs it soon after */
        mdapl_dapl_body_register(&tx->body, d->regs, MDAPL_LMR_REMOTE_READ, peer->n_rails);
    rts.body_len = tx->body.len;
    rts.tx_id = tx->id;
    rts.at.n = rts.at.n_rails = 0;
    if (how == MDAPL_RNDV_RGET)
        mdapl_dapl_body_describe(&tx->body, 0, peer->n_rails, &rts.at);
    it->len = (uint32_t)mdapl_dapl_rts_put(&rts, it->u.bytes);
    it->hdr_len = (uint16_t)msg->hdr_len;
    memcpy(it->hdr, msg->hdr, msg->hdr_len);
    mdapl_dapl_item_queue(peer, it);
    return 0;
}

/* The rendezvous of an id that this peer has sent us. */
static struct mdapl_dapl_rndv_tx *tx_find(const struct mdapl_dapl_peer *peer, uint32_t id)
{
    struct mdapl_dapl_rndv_tx *tx = mdapl_idmap_find(&peer->d->tx_ids, id);

    return tx && tx->peer == peer ? tx : NULL;
}

/* Ends it now, or when its last RDMA write has completed, since that still reads its memory. False:
 * it cannot end in its state. */
static bool tx_ends(struct mdapl_dapl_rndv_tx *tx, enum mdapl_dapl_rtx_event event,
                    enum mdapl_dapl_rtx_event busy, int status)
{
    if (!mdapl_list_empty(&tx->writes))
        event = busy;
    if (mdapl_dapl_rtx_step(tx->state, event) < 0 || !tx_step(tx, event))
        return false;
    tx->status = status;
    if (tx->state == MDAPL_RTX_OVER)
        tx_end(tx);
    return true;
}

bool mdapl_dapl_on_fin(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fin *fin,
                       const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_rndv_tx *tx = tx_find(st->peer, fin->tx_id);

    (void)f, (void)p;
    if (!tx)
        return mdapl_dapl_rndv_had(st->peer->d, &st->peer->d->tx_ids, fin->tx_id);
    return tx_ends(tx, MDAPL_RTX_FIN, MDAPL_RTX_FIN_BUSY,
                         fin->status == MDAPL_FIN_DROPPED ? -ECANCELED : 0);
}

/* -- answering a CTS by RDMA writes ----------------------------------------------------------- */

/* Queues a WRITTEN for what has been posted on a stream. It takes the same connection, so it
 * arrives after the writes have been placed; if that has ended, another, and the receiver learns of
 * the end. */
static void send_written(struct write *w, int stream)
{
    struct mdapl_dapl_peer *peer = w->tx->peer;
    const struct mdapl_dapl_conn *up = peer->stream[stream].up;
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(peer, MDAPL_FRAME_WRITTEN);

    if (it) {
        if (up && up->epoch == w->posted[stream].epoch)
            it->stream = stream;
        it->len = (uint32_t)mdapl_dapl_written_put(&w->posted[stream], it->u.bytes);
        mdapl_dapl_item_queue(peer, it);
    } else {
        mdapl_dapl_out_of_memory(peer, "a frame behind RDMA writes");
    }
    w->posted[stream].done.n = 0;
}

static void send_all_written(struct write *w)
{
    for (int i = 0; i < w->tx->peer->n_streams; i++)
        if (w->posted[i].done.n > 0)
            send_written(w, i);
}

/* xfer->posted: pieces that follow each other on a connection are one range. */
static void piece_posted(struct mdapl_dapl_xfer *m, const struct mdapl_dapl_stream *st,
                         uint64_t off, uint64_t len)
{
    struct write *w = MDAPL_OF(m, struct write, move);
    struct mdapl_dapl_written *next = &w->posted[st->index];
    struct mdapl_dapl_ranges *p = &next->done;
    struct mdapl_dapl_range *last = p->n > 0 ? &p->range[p->n - 1] : NULL;

    if (last && (next->epoch != st->conn->epoch || p->n == MDAPL_MAX_RANGES)) {
        send_written(w, st->index);
        last = NULL;
    }
    next->epoch = st->conn->epoch;
    if (last && last->off + last->len == off)
        last->len += len;
    else
        p->range[p->n++] = (struct mdapl_dapl_range){ off, len };
    if (m->window > 0)           /* the next connection has to repeat less */
        send_written(w, st->index);
}

static void all_posted(struct mdapl_dapl_xfer *m)
{
    struct write *w = MDAPL_OF(m, struct write, move);

    send_all_written(w);
    tx_step(w->tx, MDAPL_RTX_SENT);
}

/* No write of it is in flight. */
static void write_free(struct write *w)
{
    mdapl_list_remove(&w->link);
    free(w);
}

static void write_over(struct mdapl_dapl_xfer *m)
{
    struct write *w = MDAPL_OF(m, struct write, move);
    struct mdapl_dapl_rndv_tx *tx = w->tx;

    if (!tx->peer->dead)
        send_all_written(w);     /* of an answer that a failed write has stopped */
    write_free(w);
    if (tx->state != MDAPL_RTX_ENDING || !mdapl_list_empty(&tx->writes))
        return;
    if (tx_step(tx, MDAPL_RTX_FLUSHED))
        tx_end(tx);
}

/* Stops its RDMA writes, and frees the answers that have none in flight. report: name what they
 * have written, before what newer ones write. */
static void stop_writes(struct mdapl_dapl_rndv_tx *tx, bool report)
{
    MDAPL_LIST_EACH_SAFE(pos, &tx->writes) {
        struct write *w = MDAPL_OF(pos, struct write, link);

        if (report)
            send_all_written(w);
        if (!mdapl_dapl_xfer_stop(&w->move))
            write_free(w);
    }
}

static bool answer_by_writes(struct mdapl_dapl_rndv_tx *tx, const struct mdapl_dapl_cts *cts)
{
    struct mdapl_dapl_peer *peer = tx->peer;
    struct write *w;

    if (cts->to.n == 0 || mdapl_ctx_cfg(peer->d->ctx)->rndv == MDAPL_RNDV_COPY
        || !mdapl_dapl_body_register(&tx->body, peer->d->regs, MDAPL_LMR_REMOTE_READ,
                                     peer->n_rails))
        return false;
    w = malloc(sizeof(*w) + sizeof(w->posted[0]) * (size_t)peer->n_streams);
    if (!w)
        return false;
    for (int i = 0; i < peer->n_streams; i++) {
        w->posted[i].rx_id = cts->rx_id;
        w->posted[i].tx_id = cts->tx_id;
        w->posted[i].stream = (uint32_t)i;
        w->posted[i].done.n = 0;
    }
    w->tx = tx;
    w->to = cts->to;
    /* Bytes that have been requested before, since a connection has ended, are written in one piece
     * at a time at first, and named at once. */
    w->move = (struct mdapl_dapl_xfer){
        .peer = peer, .kind = MDAPL_DTO_WRITE, .local = &tx->body, .local_off = cts->off,
        .remote = &w->to, .body_at = cts->off, .len = cts->len, .once = true,
        .window = cts->off < tx->asked, .posted = piece_posted, .all_posted = all_posted,
        .over = write_over,
    };
    mdapl_list_append(&tx->writes, &w->link);
    mdapl_dapl_xfer_start(&w->move);
    return true;
}

/* -- answering a CTS in DATA frames ----------------------------------------------------------- */

/* An item of an older answer goes on with the bytes of this one. */
static bool answer_by_frames(struct mdapl_dapl_rndv_tx *tx, const struct mdapl_dapl_cts *cts)
{
    struct mdapl_dapl_item *it = NULL;

    if (!tx->queued) {
        it = mdapl_dapl_item_get(tx->peer, MDAPL_FRAME_DATA);
        if (!it)
            return false;
    }
    tx->rx_id = cts->rx_id;
    tx->off = cts->off;
    tx->left = cts->len;
    tx->cursor = mdapl_iov_start(tx->body.v, tx->body.n);
    mdapl_iov_skip(&tx->cursor, cts->off);
    if (!it)
        return true;
    tx->queued = true;
    it->u.rndv = tx;
    it->len = (uint32_t)tx->peer->frame_room;
    mdapl_dapl_item_queue(tx->peer, it);
    return true;
}

size_t mdapl_dapl_rndv_put_data(struct mdapl_dapl_rndv_tx *tx, uint8_t *out, size_t room,
                                bool *last_p)
{
    struct mdapl_dapl_data data = { tx->rx_id, tx->id, tx->off };
    size_t n = tx->left < room - MDAPL_DATA_BYTES ? tx->left : room - MDAPL_DATA_BYTES;

    mdapl_iov_gather(&tx->cursor, out + mdapl_dapl_data_put(&data, out), n);
    tx->off += n;
    tx->left -= n;
    *last_p = tx->left == 0;
    if (*last_p) {
        tx->queued = false;
        tx_step(tx, MDAPL_RTX_SENT);
    }
    return MDAPL_DATA_BYTES + n;
}

bool mdapl_dapl_on_cts(struct mdapl_dapl_stream *st, const struct mdapl_dapl_cts *cts,
                       const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_rndv_tx *tx = tx_find(peer, cts->tx_id);

    (void)f, (void)p;
    if (!tx)
        return mdapl_dapl_rndv_had(peer->d, &peer->d->tx_ids, cts->tx_id);
    if (mdapl_dapl_rtx_step(tx->state, MDAPL_RTX_CTS) < 0 || cts->off > tx->body.len
        || cts->len > tx->body.len - cts->off
        || (cts->to.n > 0 && cts->to.n_rails != peer->n_rails))
        return false;
    stop_writes(tx, true);
    tx_step(tx, MDAPL_RTX_CTS);
    if ((tx->queued || !answer_by_writes(tx, cts)) && !answer_by_frames(tx, cts))
        mdapl_dapl_out_of_memory(peer, "the frames of a body");
    tx->asked = cts->off + cts->len;
    return true;
}

/* -- a lost peer ------------------------------------------------------------------------------ */

/* The first one that has not been ended; looked for anew each time, as op->done() may end any. */
static struct mdapl_dapl_rndv_tx *unended(struct mdapl_dapl_peer *peer)
{
    MDAPL_LIST_EACH(pos, &peer->rndv_tx) {
        struct mdapl_dapl_rndv_tx *tx = MDAPL_OF(pos, struct mdapl_dapl_rndv_tx, link);

        if (tx->state != MDAPL_RTX_ENDING)
            return tx;
    }
    return NULL;
}

void mdapl_dapl_rndv_fail_tx(struct mdapl_dapl_peer *peer, int status)
{
    struct mdapl_dapl_rndv_tx *tx;

    while ((tx = unended(peer))) {
        stop_writes(tx, false);
        tx_ends(tx, MDAPL_RTX_LOST, MDAPL_RTX_LOST_BUSY, status);
    }
}

void mdapl_dapl_rndv_free_tx(struct mdapl_dapl_peer *peer)
{
    struct mdapl_list *l, *k;

    while ((l = mdapl_list_first(&peer->rndv_tx))) {
        struct mdapl_dapl_rndv_tx *tx = MDAPL_OF(l, struct mdapl_dapl_rndv_tx, link);

        while ((k = mdapl_list_first(&tx->writes))) {
            struct write *w = MDAPL_OF(k, struct write, link);

            mdapl_dapl_xfer_free(&w->move);
            write_free(w);
        }
        tx_end(tx);
    }
}
