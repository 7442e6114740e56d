/* SPDX-License-Identifier: MIT */
#include "rndv.h"

#include "body.h"
#include "cfg.h"
#include "conn.h"
#include "frames.h"
#include "iov.h"
#include "ledger.h"
#include "peer.h"
#include "rndv_fsm.h"
#include "stats.h"
#include "xfer.h"

#include <errno.h>
#include <stdlib.h>

/* From the RTS to the FIN. */
struct rndv_rx {
    struct mdapl_rx rx;              /* what the owner holds */
    struct mdapl_list link;          /* on peer->rndv_rx */
    struct mdapl_dapl_peer *peer;
    enum mdapl_dapl_rrx_state state;
    int status;                      /* the first failure */
    struct mdapl_dapl_rts rts;
    uint64_t at;                     /* body bytes read */
    struct mdapl_dapl_ledger done;   /* body bytes that have arrived, read or not */
    /* the owner's read in progress */
    struct mdapl_op *op;
    struct mdapl_dapl_body dst;
    struct mdapl_dapl_xfer move;     /* READING */
    uint32_t id;                     /* ASKED: the id of the read in frames, of the last CTS */
    bool offered;                    /* ASKED: the sender may write */
    uint32_t generation;             /* of the rail of stream 0, when that CTS was made */
    bool again;                      /* it is to be requested anew */
};

static void rx_free(struct rndv_rx *r)
{
    mdapl_dapl_body_free(&r->dst);
    mdapl_dapl_ledger_free(&r->done);
    mdapl_dapl_xfer_free(&r->move);
    mdapl_inbox_over(&r->peer->inbox, &r->rx);
    mdapl_list_remove(&r->link);
    free(r);
}

/* An event of ours or of the owner, or one of the wire that has been found possible before. False:
 * it is none of these, the state stays and the peer is lost. */
static bool rx_step(struct rndv_rx *r, enum mdapl_dapl_rrx_event event)
{
    int next = mdapl_dapl_rrx_step(r->state, event);

    if (next < 0) {
        mdapl_dapl_impossible(r->peer, "a rendezvous of ours made an impossible step");
        return false;
    }
    r->state = (enum mdapl_dapl_rrx_state)next;
    return true;
}

static void send_fin(struct rndv_rx *r, enum mdapl_dapl_fin_status status)
{
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(r->peer, MDAPL_FRAME_FIN);

    if (!it) {
        mdapl_dapl_out_of_memory(r->peer, "the end of a body");
        return;
    }
    it->len = (uint32_t)mdapl_dapl_fin_put(
        &(struct mdapl_dapl_fin){ r->rts.tx_id, (uint32_t)status }, it->u.bytes);
    mdapl_dapl_item_queue(r->peer, it);
}

/* -- the end of a read ------------------------------------------------------------------------ */

static void ask_next(struct mdapl_dapl_peer *peer);

/* Ends the owner's read with a status: its memory is not written any more. */
static void read_over(struct rndv_rx *r, int status)
{
    struct mdapl_dapl_peer *peer = r->peer;
    struct mdapl_op *op = r->op;

    r->op = NULL;
    mdapl_dapl_body_free(&r->dst);
    if (r->id)
        mdapl_idmap_remove(&r->peer->d->rx_ids, r->id);
    r->id = 0;
    r->again = false;
    if (r->state == MDAPL_RRX_OVER) {
        send_fin(r, MDAPL_FIN_READ);
        rx_free(r);
    }
    ask_next(peer);
    op->done(op, status);
}

/* The counters of the bodies that are received in one way. */
struct way {
    uint64_t *bodies, *bytes;
};

/* The owner's read is complete; way: the counters of the method that moved it. */
static void read_done(struct rndv_rx *r, struct way way)
{
    *way.bodies += r->at == 0;
    *way.bytes += r->dst.len;
    r->at += r->dst.len;
    r->rx.left -= r->dst.len;
    if (rx_step(r, r->rx.left > 0 ? MDAPL_RRX_MORE : MDAPL_RRX_LAST))
        read_over(r, 0);
}

static void ask_rest(struct rndv_rx *r);

/* xfer->over of RDMA reads. */
static void fetched(struct mdapl_dapl_xfer *m)
{
    struct rndv_rx *r = MDAPL_OF(m, struct rndv_rx, move);
    struct mdapl_stats *stats = mdapl_ctx_stats(r->peer->d->ctx);

    if (r->state == MDAPL_RRX_FAILING) {
        if (rx_step(r, MDAPL_RRX_FLUSHED))
            read_over(r, r->status);
    } else if (m->stopped) {
        ask_rest(r);
    } else {
        read_done(r, (struct way){ &stats->rx_rget, &stats->rx_rget_bytes });
    }
}

/* xfer->stranded: the sender's adapter, or this rank's, has been opened again. */
static void strand(struct mdapl_dapl_xfer *m)
{
    if (!mdapl_dapl_xfer_stop(m))
        ask_rest(MDAPL_OF(m, struct rndv_rx, move));
}

/* -- what the owner calls --------------------------------------------------------------------- */

static struct rndv_rx *rndv_rx_of(struct mdapl_rx *rx)
{
    return MDAPL_OF(rx, struct rndv_rx, rx);
}

/* Requests the bytes of the read from `off` of the body on by a CTS, which names their memory if
 * that is registered. Each CTS has an id of its own. 0 or -ENOMEM: the read has no id. */
static int ask_from(struct rndv_rx *r, uint64_t off)
{
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(r->peer, MDAPL_FRAME_CTS);
    struct mdapl_dapl_cts cts;

    if (!it || mdapl_idmap_add(&r->peer->d->rx_ids, r, &r->id)) {
        if (it)
            mdapl_pool_give(&r->peer->d->items, it);
        return -ENOMEM;
    }
    cts.tx_id = r->rts.tx_id;
    cts.rx_id = r->id;
    cts.off = off;
    cts.len = r->at + r->dst.len - off;
    cts.to.n = cts.to.n_rails = 0;
    if (r->dst.regs)             /* on rails that have been opened again, too */
        mdapl_dapl_body_register(&r->dst, r->dst.regs, MDAPL_LMR_REMOTE_WRITE, r->peer->n_rails);
    r->generation = r->peer->stream[0].ia->generation;
    r->offered = mdapl_dapl_body_describe(&r->dst, off - r->at, r->peer->n_rails, &cts.to);
    it->len = (uint32_t)mdapl_dapl_cts_put(&cts, it->u.bytes);
    mdapl_dapl_item_queue(r->peer, it);
    return 0;
}

/* All bytes of the read. */
static int ask(struct rndv_rx *r)
{
    int rc = ask_from(r, r->at);

    if (rc)
        mdapl_dapl_body_free(&r->dst);
    else
        rx_step(r, MDAPL_RRX_ASK);
    return rc;
}

/* What RDMA reads have not fetched, from the first byte on; none of them is in flight. */
static void ask_rest(struct rndv_rx *r)
{
    if (!rx_step(r, MDAPL_RRX_STRANDED))
        return;
    if (mdapl_dapl_ledger_add(&r->done, r->at, r->move.end - r->at) < 0
        || ask_from(r, r->move.end))
        mdapl_dapl_out_of_memory(r->peer, "the request of a body");
    mdapl_ctx_stats(r->peer->d->ctx)->rndv_restarts++;
}

static int rndv_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct rndv_rx *r = rndv_rx_of(rx);
    struct mdapl_dapl_chan *d = r->peer->d;
    bool reads = d->can_read && r->rts.at.n > 0, registered = false;

    if (r->peer->dead)
        return r->peer->dead;
    if (r->state != MDAPL_RRX_IDLE)
        return -EBUSY;
    if (mdapl_dapl_body_init(&r->dst, d->rails.lmr_max, iov, n, rx->left))
        return -ENOMEM;
    if (r->dst.len == 0) {
        mdapl_dapl_body_free(&r->dst);
        return MDAPL_DONE;
    }
    r->op = op;
    /* Remote write for reads, too: iWARP places their answers as writes of the peer, and DAT does
     * not say which adapters do (providers do not set rdma_write_for_rdma_read_req). The peer does
     * not get the key. */
    if (mdapl_ctx_cfg(d->ctx)->rndv != MDAPL_RNDV_COPY)
        registered = mdapl_dapl_body_register(&r->dst, d->regs, MDAPL_LMR_REMOTE_WRITE,
                                              r->peer->n_rails);
    if (!registered || !reads)
        return ask(r);
    r->move = (struct mdapl_dapl_xfer){
        .peer = r->peer,
        .kind = MDAPL_DTO_READ,
        .local = &r->dst,
        .remote = &r->rts.at,
        .remote_off = r->at,
        .body_at = r->at,
        .len = r->dst.len,
        .stranded = strand,
        .over = fetched,
    };
    rx_step(r, MDAPL_RRX_READ);
    mdapl_dapl_xfer_start(&r->move);
    return 0;
}

static void rndv_drop(struct mdapl_rx *rx)
{
    struct rndv_rx *r = rndv_rx_of(rx);

    if (!rx_step(r, MDAPL_RRX_DROP))
        return;                  /* a read in progress ends with the peer */
    if (!r->peer->dead)
        send_fin(r, r->at > 0 ? MDAPL_FIN_READ : MDAPL_FIN_DROPPED);
    rx_free(r);
}

static const struct mdapl_rx_ops rndv_ops = {
    .read = rndv_read, .drop = rndv_drop
};

/* -- frames ----------------------------------------------------------------------------------- */

/* An RTS cannot repeat that of a rendezvous which is over: it is replayed with its psn, and dropped
 * by that if it has been taken. */
bool mdapl_dapl_on_rts(struct mdapl_dapl_stream *st, const struct mdapl_dapl_rts *rts,
                       const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct rndv_rx *r;

    if (rts->at.n > 0 && rts->at.n_rails != peer->n_rails)
        return false;
    r = calloc(1, sizeof(*r));
    if (!r) {
        mdapl_dapl_out_of_memory(peer, "a body that is announced");
        return true;
    }
    r->rx = (struct mdapl_rx){ &rndv_ops, rts->body_len };
    r->peer = peer;
    r->rts = *rts;
    mdapl_dapl_ledger_init(&r->done);
    mdapl_list_append(&peer->rndv_rx, &r->link);
    if (mdapl_inbox_announce(&peer->inbox, p, f->hdr_len, &r->rx))
        mdapl_dapl_out_of_memory(peer, "a message that waits");
    return true;
}

/* The read whose CTS had this id; NULL: there is none. */
static struct rndv_rx *asked(const struct mdapl_dapl_peer *peer, uint32_t rx_id, uint32_t tx_id)
{
    struct rndv_rx *r = mdapl_idmap_find(&peer->d->rx_ids, rx_id);

    return r && r->peer == peer && r->rts.tx_id == tx_id
           && mdapl_dapl_rrx_step(r->state, MDAPL_RRX_DATA) >= 0 ? r : NULL;
}

/* Are these bytes part of the read? */
static bool in_read(const struct rndv_rx *r, uint64_t off, uint64_t len)
{
    return off >= r->at && len <= r->dst.len && off - r->at <= r->dst.len - len;
}

/* Ends the read when all its bytes have arrived, and nothing can be written to its memory any more:
 * what a connection that has ended still places (hazard 1) is waited for. */
static void arrived(struct rndv_rx *r, struct way way)
{
    if (mdapl_dapl_ledger_has(&r->done, r->at, r->dst.len)
        && !(r->offered && mdapl_dapl_rndv_unsettled(r->peer, NULL)))
        read_done(r, way);
}

static struct way written_way(const struct rndv_rx *r)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(r->peer->d->ctx);

    return (struct way){ &stats->rx_rput, &stats->rx_rput_bytes };
}

bool mdapl_dapl_on_data(struct mdapl_dapl_stream *st, const struct mdapl_dapl_data *data,
                        const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_peer *peer = st->peer;
    size_t len = f->len - MDAPL_DATA_BYTES;
    struct rndv_rx *r = asked(peer, data->rx_id, data->tx_id);
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->d->ctx);
    struct mdapl_iov cur;
    int64_t added;

    if (!r)
        return mdapl_dapl_rndv_had(peer->d, &peer->d->rx_ids, data->rx_id);
    if (!in_read(r, data->off, len))
        return false;
    added = mdapl_dapl_ledger_add(&r->done, data->off, len);
    if (added < 0)
        mdapl_dapl_out_of_memory(peer, "a range of a body that has arrived");
    if (added <= 0)              /* a duplicate is not copied again */
        return true;
    cur = mdapl_iov_start(r->dst.v, r->dst.n);
    mdapl_iov_skip(&cur, data->off - r->at);
    mdapl_iov_scatter(&cur, p + MDAPL_DATA_BYTES, len);
    arrived(r, (struct way){ &stats->rx_copy, &stats->rx_copy_bytes });
    ask_next(peer);
    return true;
}

/*
 * What no WRITTEN has named is requested anew, from its first byte on, with another id, so that the
 * WRITTENs of the older CTS name nothing of it. All bytes behind the first are written again:
 * the read is not complete before a WRITTEN of the new CTS has named each, for a write that nobody
 * waits for might be placed in memory that the owner has back.
 */
static void restart(struct rndv_rx *r)
{
    uint64_t end = r->at + r->dst.len;
    uint64_t off = mdapl_dapl_ledger_missing(&r->done, r->at, r->dst.len).off;

    r->again = false;
    if (off == end) {
        read_done(r, written_way(r));
        return;
    }
    mdapl_idmap_remove(&r->peer->d->rx_ids, r->id);
    r->id = 0;
    if (!rx_step(r, MDAPL_RRX_DRAINED))
        return;
    if (mdapl_dapl_ledger_remove(&r->done, off, end - off) || ask_from(r, off))
        mdapl_dapl_out_of_memory(r->peer, "the request of a body");
    mdapl_ctx_stats(r->peer->d->ctx)->rndv_restarts++;
}

bool mdapl_dapl_on_written(struct mdapl_dapl_stream *st, const struct mdapl_dapl_written *written,
                           const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct rndv_rx *r = asked(peer, written->rx_id, written->tx_id);

    (void)f, (void)p;
    if ((int)written->stream >= peer->n_streams)
        return false;
    if (!mdapl_dapl_rndv_carried(st, written)) {
        /* The sender has used a connection that may have drained here before the CTS was sent. */
        if (r && r->offered && !r->again && !mdapl_dapl_rndv_unsettled(peer, NULL))
            restart(r);
        return true;
    }
    if (!r)
        return mdapl_dapl_rndv_had(peer->d, &peer->d->rx_ids, written->rx_id);
    if (!r->offered)
        return false;
    for (uint32_t i = 0; i < written->done.n; i++) {
        const struct mdapl_dapl_range *done = &written->done.range[i];

        if (!in_read(r, done->off, done->len))
            return false;
        if (mdapl_dapl_ledger_add(&r->done, done->off, done->len) < 0) {
            mdapl_dapl_out_of_memory(peer, "a range of a body that has arrived");
            return true;
        }
    }
    arrived(r, written_way(r));
    ask_next(peer);
    return true;
}

/* -- a connection that has drained ------------------------------------------------------------ */

/* The first that is to be requested anew, or the first whose bytes have all arrived; looked up anew
 * each time, as op->done() may drop any. NULL: there is none. */
static struct rndv_rx *to_restart(struct mdapl_dapl_peer *peer, bool complete)
{
    MDAPL_LIST_EACH(pos, &peer->rndv_rx) {
        struct rndv_rx *r = MDAPL_OF(pos, struct rndv_rx, link);

        if (r->again && (!complete || mdapl_dapl_ledger_has(&r->done, r->at, r->dst.len)))
            return r;
    }
    return NULL;
}

/*
 * Something of a body has arrived, so there is a connection that carries bodies: two more are
 * requested anew, of those that wait. The requests of all at once would be all that a connection
 * carries which breaks soon.
 */
static void ask_next(struct mdapl_dapl_peer *peer)
{
    struct rndv_rx *r;

    for (int n = 0; n < 2; n++) {
        if (peer->dead || mdapl_dapl_rndv_unsettled(peer, NULL))
            return;
        r = to_restart(peer, false);
        if (r)
            restart(r);
    }
}

void mdapl_dapl_rndv_ask_again(struct mdapl_dapl_peer *peer)
{
    struct rndv_rx *r;

    MDAPL_LIST_EACH(pos, &peer->rndv_rx) {
        r = MDAPL_OF(pos, struct rndv_rx, link);
        r->again = r->state == MDAPL_RRX_ASKED && r->offered;
    }
    while ((r = to_restart(peer, true)))
        restart(r);
    if (peer->n_streams > 1 && (r = to_restart(peer, false)))
        restart(r);
}

/*
 * The hello has said which frames the peer has. A CTS that it has not is transmitted again with the
 * other frames, and answered on this connection: another one would only be one more. (Where the
 * peer has several connections it may have arrived on one of them meanwhile.)
 */
void mdapl_dapl_rndv_ask_on(struct mdapl_dapl_peer *peer)
{
    uint32_t generation = peer->stream[0].ia->generation;
    struct rndv_rx *r;

    if (peer->n_streams > 1)
        return;
    MDAPL_LIST_EACH(pos, &peer->rndv_rx) {
        r = MDAPL_OF(pos, struct rndv_rx, link);
        if (r->again && r->generation == generation && mdapl_dapl_tx_has_cts(peer, r->id))
            r->again = false;
    }
    if ((r = to_restart(peer, false)))
        restart(r);
}

/* -- a lost peer ------------------------------------------------------------------------------ */

/* The first body that has not been failed; looked up anew each time, as op->done() may drop any. */
static struct rndv_rx *unfailed(struct mdapl_dapl_peer *peer)
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
    bool busy = r->state == MDAPL_RRX_READING && mdapl_dapl_xfer_stop(&r->move);
    enum mdapl_dapl_rrx_event event = busy ? MDAPL_RRX_LOST_BUSY : MDAPL_RRX_LOST;

    r->status = status;
    if (mdapl_dapl_rrx_step(r->state, event) >= 0)
        rx_step(r, event);
    if (r->op && r->state == MDAPL_RRX_IDLE)
        read_over(r, status);
}

void mdapl_dapl_rndv_fail_rx(struct mdapl_dapl_peer *peer, int status)
{
    struct rndv_rx *r;

    while ((r = unfailed(peer)))
        fail(r, status);
}

void mdapl_dapl_rndv_free_rx(struct mdapl_dapl_peer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->rndv_rx)))
        rx_free(MDAPL_OF(l, struct rndv_rx, link));
}
