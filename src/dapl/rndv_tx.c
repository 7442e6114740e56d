/* SPDX-License-Identifier: MIT */
#include "rndv.h"

#include "body.h"
#include "cfg.h"
#include "conn.h"
#include "iov.h"
#include "move.h"
#include "peer.h"
#include "rndv_fsm.h"
#include "tx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* From mdapl_send() to the FIN. */
struct mdapl_rndv_tx {
    struct mdapl_list link;          /* on peer->rndv_tx */
    struct mdapl_dpeer *peer;
    enum mdapl_rtx_state state;
    struct mdapl_op *op;
    int status;                      /* ENDING: what op will hear */
    uint32_t id;
    struct mdapl_body body;
    struct mdapl_list writes;        /* answers to CTS whose RDMA writes are not all complete */
    /* SENDING in DATA frames: what the receiver asked for */
    uint32_t rx_id;
    uint64_t off, left;              /* of the next byte; how many */
    struct mdapl_iov cursor;         /* at it */
};

/* The answer to one CTS by RDMA. */
struct write {
    struct mdapl_move move;
    struct mdapl_list link;          /* on tx->writes */
    struct mdapl_rndv_tx *tx;
    struct mdapl_cts cts;
};

/* -- from the announcement to the end --------------------------------------------------------- */

static struct mdapl_rndv_tx *tx_make(struct mdapl_dpeer *peer, const struct iovec *v, int n,
                                     size_t len, struct mdapl_op *op)
{
    struct mdapl_dapl *d = peer->d;
    struct mdapl_rndv_tx *tx = calloc(1, sizeof(*tx));

    if (!tx || mdapl_body_take(&tx->body, d->rails.lmr_max, v, n, len)
        || mdapl_idmap_add(&d->tx_ids, tx, &tx->id)) {
        if (tx)
            mdapl_body_free(&tx->body);
        free(tx);
        return NULL;
    }
    tx->peer = peer;
    tx->op = op;
    mdapl_list_init(&tx->writes);
    mdapl_list_append(&peer->rndv_tx, &tx->link);
    return tx;
}

/* An event of ours, or one of the wire that has been found possible before. */
static void tx_step(struct mdapl_rndv_tx *tx, enum mdapl_rtx_event event)
{
    int next = mdapl_rtx_step(tx->state, event);

    assert(next >= 0);
    tx->state = (enum mdapl_rtx_state)next;
}

/* It is over; the owner hears. */
static void tx_end(struct mdapl_rndv_tx *tx)
{
    struct mdapl_op *op = tx->op;
    int status = tx->status;

    mdapl_body_free(&tx->body);
    mdapl_idmap_remove(&tx->peer->d->tx_ids, tx->id);
    mdapl_list_remove(&tx->link);
    free(tx);
    op->done(op, status);
}

bool mdapl_rndv_announce(struct mdapl_dpeer *peer, struct mdapl_item *it, const struct iovec *v,
                         int n, size_t len, struct mdapl_op *op)
{
    struct mdapl_rndv_tx *tx = tx_make(peer, v, n, len, op);

    if (!tx)
        return false;
    if (mdapl_ctx_cfg(peer->d->ctx)->rndv != MDAPL_RNDV_COPY)  /* now, while the RTS travels */
        mdapl_body_register(&tx->body, &peer->d->regs, MDAPL_LMR_REMOTE_READ);
    it->type = MDAPL_FRAME_RTS;
    it->u.rndv = tx;
    return true;
}

int mdapl_rndv_send(struct mdapl_dpeer *peer, const struct mdapl_msg *msg, size_t len,
                    struct mdapl_op *op)
{
    struct mdapl_item *it = mdapl_item_get(peer, MDAPL_FRAME_RTS);

    if (!it || !mdapl_rndv_announce(peer, it, msg->body, msg->n_body, len, op)) {
        if (it)
            mdapl_pool_give(&peer->d->items, it);
        return -ENOMEM;
    }
    it->hdr_len = (uint16_t)msg->hdr_len;
    memcpy(it->hdr, msg->hdr, msg->hdr_len);
    mdapl_item_queue(peer, it);
    return 0;
}

size_t mdapl_rndv_put_rts(struct mdapl_rndv_tx *tx, uint8_t *out)
{
    struct mdapl_rts rts = { .body_len = tx->body.len, .tx_id = tx->id };

    if (mdapl_ctx_cfg(tx->peer->d->ctx)->rndv == MDAPL_RNDV_RGET)
        mdapl_body_tell(&tx->body, tx->peer->n_rails, &rts.at);
    return mdapl_rts_put(&rts, out);
}

/* The rendezvous of an id that this peer has sent us. */
static struct mdapl_rndv_tx *tx_find(const struct mdapl_dpeer *peer, uint32_t id)
{
    struct mdapl_rndv_tx *tx = mdapl_idmap_find(&peer->d->tx_ids, id);

    return tx && tx->peer == peer ? tx : NULL;
}

/* Ends it now, or when its last RDMA write has completed: until then its memory is read. */
static bool tx_ends(struct mdapl_rndv_tx *tx, enum mdapl_rtx_event event,
                    enum mdapl_rtx_event busy, int status)
{
    if (!mdapl_list_empty(&tx->writes))
        event = busy;
    if (mdapl_rtx_step(tx->state, event) < 0)
        return false;
    tx_step(tx, event);
    tx->status = status;
    if (tx->state == MDAPL_RTX_OVER)
        tx_end(tx);
    return true;
}

bool mdapl_rndv_on_fin(struct mdapl_dpeer *peer, const struct mdapl_fin *fin)
{
    struct mdapl_rndv_tx *tx = tx_find(peer, fin->tx_id);

    return tx && tx_ends(tx, MDAPL_RTX_FIN, MDAPL_RTX_FIN_BUSY,
                         fin->status == MDAPL_FIN_DROPPED ? -ECANCELED : 0);
}

/* -- answering a CTS by RDMA writes ----------------------------------------------------------- */

/* On each stream a frame says how much has been written before it: it arrives after that. */
static void all_posted(struct mdapl_move *m)
{
    struct write *w = MDAPL_OF(m, struct write, move);
    struct mdapl_dpeer *peer = m->peer;

    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_item *it;

        if (m->on_stream[i] == 0)
            continue;
        it = mdapl_item_get(peer, MDAPL_FRAME_WRITTEN);
        if (!it) {
            mdapl_dapl_out_of_memory(peer, "a frame behind RDMA writes");
            return;
        }
        it->stream = i;
        it->u.written = (struct mdapl_written){ w->cts.rx_id, w->cts.tx_id, m->on_stream[i] };
        mdapl_item_queue(peer, it);
    }
    tx_step(w->tx, MDAPL_RTX_SENT);
}

static void write_over(struct mdapl_move *m)
{
    struct write *w = MDAPL_OF(m, struct write, move);
    struct mdapl_rndv_tx *tx = w->tx;

    mdapl_list_remove(&w->link);
    free(w);
    if (tx->state != MDAPL_RTX_ENDING || !mdapl_list_empty(&tx->writes))
        return;
    tx_step(tx, MDAPL_RTX_FLUSHED);
    tx_end(tx);
}

static bool answer_by_writes(struct mdapl_rndv_tx *tx, const struct mdapl_cts *cts)
{
    struct mdapl_dpeer *peer = tx->peer;
    struct write *w;

    if (cts->to.n == 0 || mdapl_ctx_cfg(peer->d->ctx)->rndv == MDAPL_RNDV_COPY
        || !mdapl_body_register(&tx->body, &peer->d->regs, MDAPL_LMR_REMOTE_READ))
        return false;
    w = calloc(1, sizeof(*w));
    if (!w)
        return false;
    w->tx = tx;
    w->cts = *cts;
    w->move = (struct mdapl_move){
        .peer = peer, .kind = MDAPL_DTO_WRITE, .here = &tx->body, .here_at = cts->off,
        .there = &w->cts.to, .len = cts->len, .all_posted = all_posted, .over = write_over,
    };
    mdapl_list_append(&tx->writes, &w->link);
    mdapl_move_start(&w->move);
    return true;
}

/* -- answering a CTS in DATA frames ----------------------------------------------------------- */

static bool answer_by_frames(struct mdapl_rndv_tx *tx, const struct mdapl_cts *cts)
{
    struct mdapl_item *it = mdapl_item_get(tx->peer, MDAPL_FRAME_DATA);

    if (!it)
        return false;
    tx->rx_id = cts->rx_id;
    tx->off = cts->off;
    tx->left = cts->len;
    tx->cursor = mdapl_iov_start(tx->body.v, tx->body.n);
    mdapl_iov_skip(&tx->cursor, cts->off);
    it->u.rndv = tx;
    mdapl_item_queue(tx->peer, it);
    return true;
}

size_t mdapl_rndv_put_data(struct mdapl_rndv_tx *tx, uint8_t *out, size_t room, bool *last_p)
{
    struct mdapl_data data = { tx->rx_id, tx->id, tx->off };
    size_t n = tx->left < room - MDAPL_DATA_BYTES ? tx->left : room - MDAPL_DATA_BYTES;

    mdapl_iov_gather(&tx->cursor, out + mdapl_data_put(&data, out), n);
    tx->off += n;
    tx->left -= n;
    *last_p = tx->left == 0;
    if (*last_p)
        tx_step(tx, MDAPL_RTX_SENT);
    return MDAPL_DATA_BYTES + n;
}

bool mdapl_rndv_on_cts(struct mdapl_dpeer *peer, const struct mdapl_cts *cts)
{
    struct mdapl_rndv_tx *tx = tx_find(peer, cts->tx_id);

    if (!tx || mdapl_rtx_step(tx->state, MDAPL_RTX_CTS) < 0 || cts->off > tx->body.len
        || cts->len > tx->body.len - cts->off
        || (cts->to.n > 0 && cts->to.n_rails != peer->n_rails))
        return false;
    tx_step(tx, MDAPL_RTX_CTS);
    if (!answer_by_writes(tx, cts) && !answer_by_frames(tx, cts))
        mdapl_dapl_out_of_memory(peer, "the frames of a body");
    return true;
}

/* -- a lost peer ------------------------------------------------------------------------------ */

/* The next one that has not been ended yet: op->done may end any of them. */
static struct mdapl_rndv_tx *unended(struct mdapl_dpeer *peer)
{
    MDAPL_LIST_EACH(pos, &peer->rndv_tx) {
        struct mdapl_rndv_tx *tx = MDAPL_OF(pos, struct mdapl_rndv_tx, link);

        if (tx->state != MDAPL_RTX_ENDING)
            return tx;
    }
    return NULL;
}

/* Posts no more of it, and forgets what was not posted at all. */
static void stop_writes(struct mdapl_rndv_tx *tx)
{
    MDAPL_LIST_EACH_SAFE(pos, &tx->writes) {
        struct write *w = MDAPL_OF(pos, struct write, link);

        if (mdapl_move_stop(&w->move))
            continue;
        mdapl_list_remove(&w->link);
        free(w);
    }
}

void mdapl_rndv_fail_tx(struct mdapl_dpeer *peer, int status)
{
    struct mdapl_rndv_tx *tx;

    while ((tx = unended(peer))) {
        stop_writes(tx);
        tx_ends(tx, MDAPL_RTX_LOST, MDAPL_RTX_LOST_BUSY, status);
    }
}

void mdapl_rndv_free_tx(struct mdapl_dpeer *peer)
{
    struct mdapl_list *l, *k;

    while ((l = mdapl_list_first(&peer->rndv_tx))) {
        struct mdapl_rndv_tx *tx = MDAPL_OF(l, struct mdapl_rndv_tx, link);

        while ((k = mdapl_list_take(&tx->writes)))
            free(MDAPL_OF(k, struct write, link));
        tx_end(tx);
    }
}
