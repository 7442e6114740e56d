/* SPDX-License-Identifier: MIT */
#include "rndv.h"

#include "cfg.h"
#include "ep.h"
#include "iov.h"
#include "peer.h"
#include "regcache.h"
#include "rndv_fsm.h"
#include "rx.h"
#include "stats.h"
#include "stream.h"
#include "tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The sending end, from mdapl_send() to the FIN. */
struct mdapl_rndv_tx {
    struct mdapl_list link;          /* on peer->rndv_tx */
    struct mdapl_dpeer *peer;
    enum mdapl_rtx_state state;
    struct mdapl_op *op;
    uint32_t id;
    size_t len;                      /* of the body */
    struct mdapl_reg *reg[MDAPL_RTS_SEGS];
    int n_reg;                       /* 0: not registered, DATA frames only */
    struct mdapl_cts asked;          /* SENDING: what the receiver asked for */
    size_t sent;                     /* of that */
    struct mdapl_iov cursor;         /* the next byte of that */
    int n_body;
    struct iovec body[];
};

/* The receiving end, from the RTS to the FIN. */
struct rndv_rx {
    struct mdapl_rx rx;              /* what the owner holds */
    struct mdapl_list link;          /* on peer->rndv_rx */
    struct mdapl_list fetching;      /* on peer->fetching while reads are to be posted */
    struct mdapl_dpeer *peer;
    enum mdapl_rrx_state state;
    uint32_t id;                     /* while ASKED */
    struct mdapl_rts rts;
    int stream;                      /* which carries it; -1: all of them, in stripes */
    uint64_t at;                     /* body bytes read or being read */
    /* the read in progress */
    struct mdapl_op *op;
    size_t want, got, issued;        /* bytes of it: in all, landed, posted */
    uint32_t posted;                 /* RDMA reads under way */
    struct iovec *dst;
    struct mdapl_reg **reg;          /* one for each piece of dst */
    int n_dst;
    int status;                      /* the first failure */
};

/* One posted RDMA read. */
struct fetch {
    struct mdapl_dto dto;
    struct rndv_rx *r;
};

void mdapl_rndv_init(struct mdapl_dapl *d)
{
    mdapl_idmap_init(&d->tx_ids);
    mdapl_idmap_init(&d->rx_ids);
    mdapl_pool_init(&d->reads, sizeof(struct fetch), sizeof(void *), 64, 0);
}

/* -- sending ---------------------------------------------------------------------------------- */

static void tx_release(struct mdapl_rndv_tx *tx)
{
    for (int i = 0; i < tx->n_reg; i++)
        mdapl_reg_put(&tx->peer->d->regs, tx->reg[i]);
    tx->n_reg = 0;
}

static void tx_free(struct mdapl_rndv_tx *tx)
{
    tx_release(tx);
    mdapl_idmap_remove(&tx->peer->d->tx_ids, tx->id);
    mdapl_list_remove(&tx->link);
    free(tx);
}

/* Registers every piece, or none. */
static void tx_register(struct mdapl_rndv_tx *tx)
{
    struct mdapl_dapl *d = tx->peer->d;

    if (mdapl_ctx_cfg(d->ctx)->rndv == MDAPL_RNDV_COPY || tx->n_body > MDAPL_RTS_SEGS)
        return;
    for (int i = 0; i < tx->n_body; i++) {
        if (mdapl_reg_get(&d->regs, tx->body[i].iov_base, tx->body[i].iov_len,
                          MDAPL_LMR_REMOTE_READ, &tx->reg[i])) {
            tx_release(tx);
            return;
        }
        tx->n_reg++;
    }
}

/* The pieces of an iovec without empty ones, none longer than max. Returns how many; to: where they
 * go, or NULL. */
static int cut(const struct iovec *from, int n, uint64_t max, struct iovec *to)
{
    int made = 0;

    for (int i = 0; i < n; i++)
        for (size_t at = 0; at < from[i].iov_len; made++) {
            size_t len = from[i].iov_len - at < max ? from[i].iov_len - at : max;

            if (to)
                to[made] = (struct iovec){ (char *)from[i].iov_base + at, len };
            at += len;
        }
    return made;
}

static struct mdapl_rndv_tx *tx_make(struct mdapl_dpeer *peer, const struct mdapl_msg *msg,
                                     size_t len, struct mdapl_op *op)
{
    uint64_t max = peer->d->lmr_max;
    int n = cut(msg->body, msg->n_body, max, NULL);
    struct mdapl_rndv_tx *tx;

    if (n > MDAPL_RTS_SEGS)      /* it will not be registered */
        n = cut(msg->body, msg->n_body, max = UINT64_MAX, NULL);
    tx = calloc(1, sizeof(*tx) + (size_t)n * sizeof(tx->body[0]));
    if (!tx)
        return NULL;
    mdapl_list_init(&tx->link);
    tx->peer = peer;
    tx->op = op;
    tx->len = len;
    tx->n_body = cut(msg->body, msg->n_body, max, tx->body);
    if (mdapl_idmap_add(&peer->d->tx_ids, tx, &tx->id)) {
        free(tx);
        return NULL;
    }
    return tx;
}

int mdapl_rndv_send(struct mdapl_dpeer *peer, const struct mdapl_msg *msg, size_t len,
                    struct mdapl_op *op)
{
    struct mdapl_item *it = mdapl_item_get(peer, MDAPL_FRAME_RTS);
    struct mdapl_rndv_tx *tx = it ? tx_make(peer, msg, len, op) : NULL;

    if (!tx) {
        if (it)
            mdapl_pool_give(&peer->d->items, it);
        return -ENOMEM;
    }
    tx_register(tx);
    mdapl_list_append(&peer->rndv_tx, &tx->link);
    it->hdr_len = (uint16_t)msg->hdr_len;
    memcpy(it->hdr, msg->hdr, msg->hdr_len);
    it->u.rndv = tx;
    mdapl_item_queue(peer, it);
    return 0;
}

size_t mdapl_rndv_put_rts(struct mdapl_rndv_tx *tx, uint8_t *out)
{
    struct mdapl_rts rts = { .body_len = tx->len, .tx_id = tx->id,
                             .n_segs = (uint16_t)tx->n_reg,
                             .n_rails = (uint16_t)tx->peer->n_rails };

    for (int i = 0; i < tx->n_reg; i++) {
        rts.seg[i] = (struct mdapl_seg){ .addr = (uint64_t)(uintptr_t)tx->body[i].iov_base,
                                         .len = tx->body[i].iov_len };
        for (int k = 0; k < tx->peer->n_rails; k++)
            rts.seg[i].key[k] = tx->reg[i]->lmr.on[k].key;
    }
    return mdapl_rts_put(&rts, out);
}

size_t mdapl_rndv_put_data(struct mdapl_rndv_tx *tx, uint8_t *out, size_t room, bool *last_p)
{
    struct mdapl_data data = { tx->asked.rx_id, tx->id, tx->asked.off + tx->sent };
    size_t n = tx->asked.len - tx->sent;

    if (n > room - MDAPL_DATA_BYTES)
        n = room - MDAPL_DATA_BYTES;
    mdapl_iov_gather(&tx->cursor, out + mdapl_data_put(&data, out), n);
    tx->sent += n;
    *last_p = tx->sent == tx->asked.len;
    if (*last_p)
        tx->state = (enum mdapl_rtx_state)mdapl_rtx_step(tx->state, MDAPL_RTX_SENT);
    return MDAPL_DATA_BYTES + n;
}

/* The rendezvous of an id that this peer has sent us, if the event fits its state. */
static struct mdapl_rndv_tx *tx_find(struct mdapl_dpeer *peer, uint32_t id,
                                     enum mdapl_rtx_event event)
{
    struct mdapl_rndv_tx *tx = mdapl_idmap_find(&peer->d->tx_ids, id);
    int next = tx && tx->peer == peer ? mdapl_rtx_step(tx->state, event) : -1;

    if (next < 0)
        return NULL;
    tx->state = (enum mdapl_rtx_state)next;
    return tx;
}

bool mdapl_rndv_on_cts(struct mdapl_dpeer *peer, const struct mdapl_cts *cts)
{
    struct mdapl_rndv_tx *tx = tx_find(peer, cts->tx_id, MDAPL_RTX_CTS);
    struct mdapl_item *it;

    if (!tx || cts->off > tx->len || cts->len > tx->len - cts->off)
        return false;
    it = mdapl_item_get(peer, MDAPL_FRAME_DATA);
    if (!it) {
        mdapl_dpeer_broken(peer, "out of memory");
        return true;
    }
    tx->asked = *cts;
    tx->sent = 0;
    tx->cursor = mdapl_iov_start(tx->body, tx->n_body);
    mdapl_iov_skip(&tx->cursor, cts->off);
    it->u.rndv = tx;
    mdapl_item_queue(peer, it);
    return true;
}

bool mdapl_rndv_on_fin(struct mdapl_dpeer *peer, const struct mdapl_fin *fin)
{
    struct mdapl_rndv_tx *tx = tx_find(peer, fin->tx_id, MDAPL_RTX_FIN);
    struct mdapl_op *op;

    if (!tx)
        return false;
    op = tx->op;
    tx_free(tx);
    op->done(op, fin->status == MDAPL_FIN_DROPPED ? -ECANCELED : 0);
    return true;
}

/* -- receiving: the read in progress ---------------------------------------------------------- */

static void dst_release(struct rndv_rx *r)
{
    for (int i = 0; r->reg && i < r->n_dst; i++)
        mdapl_reg_put(&r->peer->d->regs, r->reg[i]);
    free(r->dst);
    free(r->reg);
    r->dst = NULL;
    r->reg = NULL;
    r->n_dst = 0;
}

static void rx_free(struct rndv_rx *r)
{
    dst_release(r);
    mdapl_rx_over(r->peer, &r->rx);
    mdapl_list_remove(&r->link);
    mdapl_list_remove(&r->fetching);
    free(r);
}

static void rx_step(struct rndv_rx *r, enum mdapl_rrx_event event)
{
    r->state = (enum mdapl_rrx_state)mdapl_rrx_step(r->state, event);
}

static void send_fin(struct rndv_rx *r, enum mdapl_fin_status status)
{
    struct mdapl_item *it = mdapl_item_get(r->peer, MDAPL_FRAME_FIN);

    if (!it) {
        mdapl_dpeer_broken(r->peer, "out of memory");
        return;
    }
    it->u.fin = (struct mdapl_fin){ r->rts.tx_id, (uint32_t)status };
    mdapl_item_queue(r->peer, it);
}

/* All that the owner asked for has landed, or will not (status). */
static void read_over(struct rndv_rx *r, int status)
{
    struct mdapl_op *op = r->op;

    r->op = NULL;
    dst_release(r);
    if (r->id)
        mdapl_idmap_remove(&r->peer->d->rx_ids, r->id);
    r->id = 0;
    if (status == 0) {
        r->rx.left -= r->want;
        rx_step(r, r->rx.left > 0 ? MDAPL_RRX_MORE : MDAPL_RRX_LAST);
    }
    if (r->state == MDAPL_RRX_OVER) {
        send_fin(r, MDAPL_FIN_READ);
        rx_free(r);
    }
    op->done(op, status);
}

/* The remote place of body byte `off`, and how many bytes follow it in the same piece. */
static DAT_RMR_TRIPLET source_at(const struct mdapl_rts *rts, int rail, uint64_t off,
                                 uint64_t *rest_p)
{
    uint32_t i = 0;

    while (off >= rts->seg[i].len)
        off -= rts->seg[i++].len;
    *rest_p = rts->seg[i].len - off;
    return (DAT_RMR_TRIPLET){ .virtual_address = rts->seg[i].addr + off,
                              .rmr_context = rts->seg[i].key[rail] };
}

/* The local place of byte `off` of this read. */
static DAT_LMR_TRIPLET target_at(const struct rndv_rx *r, int rail, uint64_t off,
                                 uint64_t *rest_p)
{
    int i = 0;

    while (off >= r->dst[i].iov_len)
        off -= r->dst[i++].iov_len;
    *rest_p = r->dst[i].iov_len - off;
    return (DAT_LMR_TRIPLET){
        .virtual_address = (DAT_VADDR)(uintptr_t)r->dst[i].iov_base + off,
        .lmr_context = r->reg[i]->lmr.on[rail].local };
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void fetched(struct mdapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len);

static bool can_read(const struct mdapl_ep *ep)
{
    return mdapl_ep_has_slot(ep) && ep->reads < ep->reads_max;
}

/* Posts the next RDMA read of r. False: no room, or the connection is gone. */
static bool fetch_one(struct rndv_rx *r)
{
    struct mdapl_dapl *d = r->peer->d;
    struct mdapl_stream *st = mdapl_stream_pick(r->peer, r->stream, can_read);
    struct fetch *f;
    uint64_t n, rest;
    DAT_LMR_TRIPLET to;
    DAT_RMR_TRIPLET from;

    if (!st)
        return false;
    f = mdapl_pool_take(&d->reads);
    if (!f)
        return false;
    from = source_at(&r->rts, st->ia->rail, r->at + r->issued, &n);
    to = target_at(r, st->ia->rail, r->issued, &rest);
    n = least(least(n, rest), r->want - r->issued);
    n = least(least(n, st->ia->max.rdma), (uint64_t)mdapl_ctx_cfg(d->ctx)->rndv_segment);
    to.segment_length = from.segment_length = (DAT_SEG_LENGTH)n;
    f->r = r;
    f->dto.done = fetched;
    if (mdapl_ep_post_read(st->cm.ep, &to, &from, &f->dto)) {
        mdapl_pool_give(&d->reads, f);
        mdapl_dpeer_broken(r->peer, "an RDMA read was refused");
        return false;
    }
    r->posted++;
    r->issued += n;
    return true;
}

static void fetched(struct mdapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    struct fetch *f = MDAPL_OF(dto, struct fetch, dto);
    struct rndv_rx *r = f->r;
    struct mdapl_dpeer *peer = r->peer;

    r->posted--;
    r->got += len;
    mdapl_pool_give(&peer->d->reads, f);
    if (r->state == MDAPL_RRX_FAILING) {
        if (r->posted == 0) {
            rx_step(r, MDAPL_RRX_FLUSHED);
            read_over(r, r->status);
        }
        return;
    }
    if (status != DAT_DTO_SUCCESS) {
        mdapl_dpeer_broken(peer, "an RDMA read failed");
        return;
    }
    mdapl_ctx_stats(peer->d->ctx)->rdma_bytes += len;
    if (r->posted == 0 && r->issued == r->want) {
        r->at += r->want;
        read_over(r, 0);
    }
    if (!mdapl_list_empty(&peer->fetching))
        mdapl_dpeer_wake(peer);
}

int mdapl_rndv_flush(struct mdapl_dpeer *peer)
{
    int n = 0;

    MDAPL_LIST_EACH_SAFE(pos, &peer->fetching) {
        struct rndv_rx *r = MDAPL_OF(pos, struct rndv_rx, fetching);

        while (r->issued < r->want && fetch_one(r))
            n++;
        if (r->issued < r->want)
            break;
        mdapl_list_remove(&r->fetching);
    }
    return n;
}

/* -- receiving: what the owner calls ---------------------------------------------------------- */

static struct rndv_rx *rndv_rx_of(struct mdapl_rx *rx)
{
    return MDAPL_OF(rx, struct rndv_rx, rx);
}

static bool dst_register(struct rndv_rx *r)
{
    struct mdapl_regcache *regs = &r->peer->d->regs;

    if (r->rts.n_segs == 0 || !r->peer->d->can_read)
        return false;
    r->reg = calloc((size_t)r->n_dst, sizeof(*r->reg));
    for (int i = 0; r->reg && i < r->n_dst; i++)
        if (mdapl_reg_get(regs, r->dst[i].iov_base, r->dst[i].iov_len, MDAPL_LMR_LOCAL,
                          &r->reg[i])) {
            while (i-- > 0)
                mdapl_reg_put(regs, r->reg[i]);
            free(r->reg);
            r->reg = NULL;
        }
    return r->reg != NULL;
}

/* Copies the pieces that the read fills, without empty ones. */
static int dst_take(struct rndv_rx *r, const struct iovec *iov, int n)
{
    uint64_t max = r->peer->d->lmr_max;

    r->dst = malloc(((size_t)cut(iov, n, max, NULL) + 1) * sizeof(*r->dst));
    if (!r->dst)
        return -ENOMEM;
    r->want = 0;
    for (int i = 0; i < n && r->want < r->rx.left; i++) {
        struct iovec v = iov[i];

        v.iov_len = least(v.iov_len, r->rx.left - r->want);
        r->want += v.iov_len;
        r->n_dst += cut(&v, 1, max, r->dst + r->n_dst);
    }
    return 0;
}

static int ask(struct rndv_rx *r)
{
    struct mdapl_item *it = mdapl_item_get(r->peer, MDAPL_FRAME_CTS);

    if (!it || mdapl_idmap_add(&r->peer->d->rx_ids, r, &r->id)) {
        if (it)
            mdapl_pool_give(&r->peer->d->items, it);
        dst_release(r);
        return -ENOMEM;
    }
    it->u.cts = (struct mdapl_cts){ r->rts.tx_id, r->id, r->at, r->want };
    rx_step(r, MDAPL_RRX_ASK);
    mdapl_item_queue(r->peer, it);
    return 0;
}

static int rndv_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct rndv_rx *r = rndv_rx_of(rx);
    struct mdapl_stats *stats = mdapl_ctx_stats(r->peer->d->ctx);

    if (r->peer->dead)
        return r->peer->dead;
    if (r->state != MDAPL_RRX_IDLE)
        return -EBUSY;
    if (dst_take(r, iov, n))
        return -ENOMEM;
    if (r->want == 0) {
        dst_release(r);
        return MDAPL_DONE;
    }
    r->op = op;
    r->got = r->issued = 0;
    if (!dst_register(r)) {
        stats->rx_copy += r->at == 0;
        return ask(r);
    }
    stats->rx_rget += r->at == 0;
    r->stream = mdapl_stream_for(r->peer, r->want);
    rx_step(r, MDAPL_RRX_READ);
    mdapl_list_append(&r->peer->fetching, &r->fetching);
    mdapl_rndv_flush(r->peer);
    return 0;
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

/* -- receiving: frames ------------------------------------------------------------------------ */

bool mdapl_rndv_on_rts(struct mdapl_dpeer *peer, const struct mdapl_rts *rts, const void *hdr,
                       size_t hdr_len)
{
    struct rndv_rx *r = calloc(1, sizeof(*r));

    if (!r) {
        mdapl_dpeer_broken(peer, "out of memory");
        return true;
    }
    r->rx = (struct mdapl_rx){ &rndv_ops, NULL, 0, rts->body_len };
    r->peer = peer;
    r->rts = *rts;
    mdapl_list_init(&r->fetching);
    mdapl_list_append(&peer->rndv_rx, &r->link);
    mdapl_rx_announce(peer, hdr, hdr_len, &r->rx);
    return true;
}

bool mdapl_rndv_on_data(struct mdapl_dpeer *peer, const struct mdapl_data *data, const void *bytes,
                        size_t len)
{
    struct rndv_rx *r = mdapl_idmap_find(&peer->d->rx_ids, data->rx_id);
    struct mdapl_iov cur;

    if (!r || r->peer != peer || r->rts.tx_id != data->tx_id
        || mdapl_rrx_step(r->state, MDAPL_RRX_DATA) < 0
        || data->off != r->at + r->got || len > r->want - r->got)
        return false;
    cur = mdapl_iov_start(r->dst, r->n_dst);
    mdapl_iov_skip(&cur, r->got);
    mdapl_iov_scatter(&cur, bytes, len);
    r->got += len;
    if (r->got == r->want) {
        r->at += r->want;
        read_over(r, 0);
    }
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

static void fail_rx(struct rndv_rx *r, int status)
{
    enum mdapl_rrx_event event = r->posted > 0 ? MDAPL_RRX_LOST_BUSY : MDAPL_RRX_LOST;

    mdapl_list_remove(&r->fetching);
    r->status = status;
    if (mdapl_rrx_step(r->state, event) >= 0)
        rx_step(r, event);
    if (r->op && r->state == MDAPL_RRX_IDLE)
        read_over(r, status);
}

void mdapl_rndv_fail(struct mdapl_dpeer *peer, int status)
{
    struct mdapl_list *l;
    struct rndv_rx *r;

    while ((l = mdapl_list_first(&peer->rndv_tx))) {
        struct mdapl_rndv_tx *tx = MDAPL_OF(l, struct mdapl_rndv_tx, link);
        struct mdapl_op *op = tx->op;

        tx_free(tx);
        op->done(op, status);
    }
    while ((r = unfailed(peer)))
        fail_rx(r, status);
}

void mdapl_rndv_free(struct mdapl_dpeer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->rndv_rx)))
        rx_free(MDAPL_OF(l, struct rndv_rx, link));
}

void mdapl_rndv_fini(struct mdapl_dapl *d)
{
    mdapl_idmap_fini(&d->tx_ids);
    mdapl_idmap_fini(&d->rx_ids);
    mdapl_pool_fini(&d->reads);
}
