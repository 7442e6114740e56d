/* SPDX-License-Identifier: MIT */
#include "rndv.h"

#include "body.h"
#include "cfg.h"
#include "conn.h"
#include "iov.h"
#include "move.h"
#include "peer.h"
#include "rndv_fsm.h"
#include "rx.h"
#include "stats.h"
#include "tx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* From the RTS to the FIN. */
struct rndv_rx {
    struct mdapl_rx rx;              /* what the owner holds */
    struct mdapl_list link;          /* on peer->rndv_rx */
    struct mdapl_dpeer *peer;
    enum mdapl_rrx_state state;
    int status;                      /* the first failure */
    struct mdapl_rts rts;
    uint64_t at;                     /* body bytes read */
    /* the owner's read in progress */
    struct mdapl_op *op;
    struct mdapl_body dst;
    struct mdapl_move move;          /* READING */
    uint32_t id;                     /* ASKED: my name for it */
    bool offered;                    /* ASKED: the sender may write */
    uint64_t got;                    /* ASKED: bytes that have come */
};

static void rx_free(struct rndv_rx *r)
{
    mdapl_body_free(&r->dst);
    mdapl_inbox_over(&r->peer->inbox, &r->rx);
    mdapl_list_remove(&r->link);
    free(r);
}

/* An event of ours, or one of the wire that has been found possible before. */
static void rx_step(struct rndv_rx *r, enum mdapl_rrx_event event)
{
    int next = mdapl_rrx_step(r->state, event);

    assert(next >= 0);
    r->state = (enum mdapl_rrx_state)next;
}

static void send_fin(struct rndv_rx *r, enum mdapl_fin_status status)
{
    struct mdapl_item *it = mdapl_item_get(r->peer, MDAPL_FRAME_FIN);

    if (!it) {
        mdapl_dapl_out_of_memory(r->peer, "the end of a body");
        return;
    }
    it->u.fin = (struct mdapl_fin){ r->rts.tx_id, (uint32_t)status };
    mdapl_item_queue(r->peer, it);
}

/* -- the end of a read ------------------------------------------------------------------------ */

/* The owner has its memory back. */
static void read_over(struct rndv_rx *r, int status)
{
    struct mdapl_op *op = r->op;

    r->op = NULL;
    mdapl_body_free(&r->dst);
    if (r->id)
        mdapl_idmap_remove(&r->peer->d->rx_ids, r->id);
    r->id = 0;
    if (r->state == MDAPL_RRX_OVER) {
        send_fin(r, MDAPL_FIN_READ);
        rx_free(r);
    }
    op->done(op, status);
}

/* The counters of bodies that come in one way. */
struct way {
    uint64_t *bodies, *bytes;
};

/* All that the owner asked for has come, in this way. */
static void read_done(struct rndv_rx *r, struct way way)
{
    *way.bodies += r->at == 0;
    *way.bytes += r->dst.len;
    r->at += r->dst.len;
    r->rx.left -= r->dst.len;
    rx_step(r, r->rx.left > 0 ? MDAPL_RRX_MORE : MDAPL_RRX_LAST);
    read_over(r, 0);
}

/* move->over of RDMA reads. */
static void fetched(struct mdapl_move *m)
{
    struct rndv_rx *r = MDAPL_OF(m, struct rndv_rx, move);
    struct mdapl_stats *stats = mdapl_ctx_stats(r->peer->d->ctx);

    if (r->state != MDAPL_RRX_FAILING) {
        read_done(r, (struct way){ &stats->rx_rget, &stats->rx_rget_bytes });
        return;
    }
    rx_step(r, MDAPL_RRX_FLUSHED);
    read_over(r, r->status);
}

/* -- what the owner calls --------------------------------------------------------------------- */

static struct rndv_rx *rndv_rx_of(struct mdapl_rx *rx)
{
    return MDAPL_OF(rx, struct rndv_rx, rx);
}

static int fetch(struct rndv_rx *r)
{
    r->move = (struct mdapl_move){
        .peer = r->peer, .kind = MDAPL_DTO_READ, .here = &r->dst, .there = &r->rts.at,
        .there_at = r->at, .len = r->dst.len, .over = fetched,
    };
    rx_step(r, MDAPL_RRX_READ);
    mdapl_move_start(&r->move);
    return 0;
}

/* Asks the sender for the bytes, and says where they may be written if they may. */
static int ask(struct rndv_rx *r)
{
    struct mdapl_item *it = mdapl_item_get(r->peer, MDAPL_FRAME_CTS);

    if (!it || mdapl_idmap_add(&r->peer->d->rx_ids, r, &r->id)) {
        if (it)
            mdapl_pool_give(&r->peer->d->items, it);
        mdapl_body_free(&r->dst);
        return -ENOMEM;
    }
    it->u.cts = (struct mdapl_cts){ r->rts.tx_id, r->id, r->at, r->dst.len, { .n = 0 } };
    r->offered = mdapl_body_tell(&r->dst, r->peer->n_rails, &it->u.cts.to);
    r->got = 0;
    rx_step(r, MDAPL_RRX_ASK);
    mdapl_item_queue(r->peer, it);
    return 0;
}

static int rndv_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct rndv_rx *r = rndv_rx_of(rx);
    struct mdapl_dapl *d = r->peer->d;
    bool reads = d->can_read && r->rts.at.n > 0, registered = false;

    if (r->peer->dead)
        return r->peer->dead;
    if (r->state != MDAPL_RRX_IDLE)
        return -EBUSY;
    if (mdapl_body_take(&r->dst, d->rails.lmr_max, iov, n, rx->left))
        return -ENOMEM;
    if (r->dst.len == 0) {
        mdapl_body_free(&r->dst);
        return MDAPL_DONE;
    }
    r->op = op;
    /* Also for reads: iWARP places their answers as writes of the peer, and DAT does not tell which
     * adapters do (providers leave rdma_write_for_rdma_read_req alone). The key is not sent. */
    if (mdapl_ctx_cfg(d->ctx)->rndv != MDAPL_RNDV_COPY)
        registered = mdapl_body_register(&r->dst, &d->regs, MDAPL_LMR_REMOTE_WRITE);
    return registered && reads ? fetch(r) : ask(r);
}

static void rndv_drop(struct mdapl_rx *rx)
{
    struct rndv_rx *r = rndv_rx_of(rx);

    rx_step(r, MDAPL_RRX_DROP);
    if (!r->peer->dead)
        send_fin(r, r->at > 0 ? MDAPL_FIN_READ : MDAPL_FIN_DROPPED);
    rx_free(r);
}

static const struct mdapl_rx_ops rndv_ops = {
    .read = rndv_read, .drop = rndv_drop, .finish = rndv_drop
};

/* -- frames ----------------------------------------------------------------------------------- */

bool mdapl_rndv_on_rts(struct mdapl_dpeer *peer, const struct mdapl_rts *rts, const void *hdr,
                       size_t hdr_len)
{
    struct rndv_rx *r;

    if (rts->at.n > 0 && rts->at.n_rails != peer->n_rails)
        return false;
    r = calloc(1, sizeof(*r));
    if (!r) {
        mdapl_dapl_out_of_memory(peer, "a body that is announced");
        return true;
    }
    r->rx = (struct mdapl_rx){ &rndv_ops, NULL, 0, rts->body_len };
    r->peer = peer;
    r->rts = *rts;
    mdapl_list_append(&peer->rndv_rx, &r->link);
    if (mdapl_inbox_announce(&peer->inbox, hdr, hdr_len, &r->rx))
        mdapl_dapl_out_of_memory(peer, "a message that waits");
    return true;
}

/* The read that asked for len more bytes under this id. */
static struct rndv_rx *asked(const struct mdapl_dpeer *peer, uint32_t rx_id, uint32_t tx_id,
                             uint64_t len)
{
    struct rndv_rx *r = mdapl_idmap_find(&peer->d->rx_ids, rx_id);

    return r && r->peer == peer && r->rts.tx_id == tx_id
           && mdapl_rrx_step(r->state, MDAPL_RRX_DATA) >= 0
           && len <= r->dst.len - r->got ? r : NULL;
}

static void came(struct rndv_rx *r, uint64_t len, struct way way)
{
    r->got += len;
    if (r->got == r->dst.len)
        read_done(r, way);
}

bool mdapl_rndv_on_data(struct mdapl_dpeer *peer, const struct mdapl_data *data, const void *bytes,
                        size_t len)
{
    struct rndv_rx *r = asked(peer, data->rx_id, data->tx_id, len);
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->d->ctx);
    struct mdapl_iov cur;

    if (!r || data->off != r->at + r->got)
        return false;
    cur = mdapl_iov_start(r->dst.v, r->dst.n);
    mdapl_iov_skip(&cur, r->got);
    mdapl_iov_scatter(&cur, bytes, len);
    came(r, len, (struct way){ &stats->rx_copy, &stats->rx_copy_bytes });
    return true;
}

bool mdapl_rndv_on_written(struct mdapl_dpeer *peer, const struct mdapl_written *written)
{
    struct rndv_rx *r = asked(peer, written->rx_id, written->tx_id, written->len);
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->d->ctx);

    if (!r || !r->offered)
        return false;
    came(r, written->len, (struct way){ &stats->rx_rput, &stats->rx_rput_bytes });
    return true;
}

/* -- a lost peer ------------------------------------------------------------------------------ */

/* The next body that has not been failed yet: op->done may drop any of them. */
static struct rndv_rx *unfailed(struct mdapl_dpeer *peer)
{
    MDAPL_LIST_EACH(pos, &peer->rndv_rx) {
        struct rndv_rx *r = MDAPL_OF(pos, struct rndv_rx, link);

        if (r->status == 0)
            return r;
    }
    return NULL;
}

static void fail(struct rndv_rx *r, int status)
{
    bool busy = r->state == MDAPL_RRX_READING && mdapl_move_stop(&r->move);
    enum mdapl_rrx_event event = busy ? MDAPL_RRX_LOST_BUSY : MDAPL_RRX_LOST;

    r->status = status;
    if (mdapl_rrx_step(r->state, event) >= 0)
        rx_step(r, event);
    if (r->op && r->state == MDAPL_RRX_IDLE)
        read_over(r, status);
}

void mdapl_rndv_fail_rx(struct mdapl_dpeer *peer, int status)
{
    struct rndv_rx *r;

    while ((r = unfailed(peer)))
        fail(r, status);
}

void mdapl_rndv_free_rx(struct mdapl_dpeer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->rndv_rx)))
        rx_free(MDAPL_OF(l, struct rndv_rx, link));
}
