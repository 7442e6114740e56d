/* SPDX-License-Identifier: MIT */
#include "xfer.h"

#include "body.h"
#include "cfg.h"
#include "conn.h"
#include "min.h"
#include "peer.h"
#include "stats.h"
#include "stream.h"

#include <assert.h>

/* One posted transfer. */
struct transfer {
    struct mdapl_dapl_dto dto;
    struct mdapl_dapl_xfer *move;
    uint64_t off;                    /* of its first byte, in the body */
};

void mdapl_dapl_xfer_init(struct mdapl_dapl_chan *d)
{
    mdapl_pool_init(&d->transfers, sizeof(struct transfer), sizeof(void *), 64, 0);
}

void mdapl_dapl_xfer_fini(struct mdapl_dapl_chan *d)
{
    mdapl_pool_fini(&d->transfers);
}

static bool can_read(const struct mdapl_dapl_ep *ep)
{
    return mdapl_dapl_ep_has_slot(ep) && ep->reads < ep->reads_max;
}

/* The other request slots are reserved for frames: half of them, or fewer where frames that make no
 * event may have taken more. */
static bool can_write(const struct mdapl_dapl_ep *ep)
{
    return mdapl_dapl_ep_has_slot(ep) && ep->req_posted < mdapl_max(ep->req_max / 2, ep->batch);
}

static const struct {
    bool (*can)(const struct mdapl_dapl_ep *ep);
    int (*post)(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *local, const DAT_RMR_TRIPLET *remote,
                struct mdapl_dapl_dto *dto);
    enum mdapl_dapl_op op;
} way[] = {
    [MDAPL_DTO_READ] = { can_read, mdapl_dapl_ep_post_read, MDAPL_DAPL_OP_READ },
    [MDAPL_DTO_WRITE] = { can_write, mdapl_dapl_ep_post_write, MDAPL_DAPL_OP_WRITE },
};

static enum mdapl_dapl_fit fit(const struct mdapl_dapl_xfer *m, const struct mdapl_dapl_stream *st)
{
    int rail = st->ia->rail;

    if (!mdapl_dapl_segs_have(m->remote, rail, st->up->peer_generation)
        || !mdapl_dapl_body_has(m->local, rail))
        return MDAPL_DAPL_FIT_NEVER;
    return way[m->kind].can(&st->up->ep) ? MDAPL_DAPL_FIT_NOW : MDAPL_DAPL_FIT_LATER;
}

/* Maximum bytes of one DTO. A striped body has at least one DTO for each stream, unless each would
 * be shorter than half of MPIR_CVAR_DAPL_STRIPE_BYTES. */
static uint64_t max_bytes(const struct mdapl_dapl_xfer *m)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(m->peer->d->ctx);
    uint64_t stripe = (m->len + (uint64_t)m->peer->n_streams - 1) / (uint64_t)m->peer->n_streams;
    uint64_t floor = ((uint64_t)cfg->stripe_bytes + 1) / 2;

    if (m->stream >= 0)
        return (uint64_t)cfg->rndv_segment;
    return mdapl_min((uint64_t)cfg->rndv_segment, stripe > floor ? stripe : floor);
}

static void stop(struct mdapl_dapl_xfer *m)
{
    mdapl_list_remove(&m->link);
    m->stopped = true;
}

/* It is over: of what has been issued nothing is in flight, so all has been transferred. */
static void settle(struct mdapl_dapl_xfer *m)
{
    m->end = mdapl_dapl_ledger_missing(&m->issued, m->body_at, m->len).off;
    mdapl_dapl_xfer_free(m);
}

/* The range of a DTO that has failed is posted again, unless the transfer has been stopped. */
static void put_back(struct mdapl_dapl_xfer *m, uint64_t off, uint64_t len)
{
    if (mdapl_dapl_ledger_remove(&m->issued, off, len))
        mdapl_dapl_out_of_memory(m->peer, "a range of a body");
    if (!m->stopped && mdapl_list_empty(&m->link))
        mdapl_list_append(&m->peer->xfers, &m->link);
}

static void xfer_done(struct mdapl_dapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    struct transfer *t = MDAPL_OF(dto, struct transfer, dto);
    struct mdapl_dapl_xfer *m = t->move;
    struct mdapl_dapl_peer *peer = m->peer;

    (void)len;
    assert(m->under_way > 0);
    m->under_way--;
    if (status == DAT_DTO_SUCCESS) {
        mdapl_ctx_stats(peer->d->ctx)->rdma_bytes += dto->bytes;
        m->window += m->window > 0;
    } else {
        mdapl_dapl_dto_failed(dto, way[m->kind].op, status);
        put_back(m, t->off, dto->bytes);
        if (m->failed)
            m->failed(m, mdapl_dapl_conn_of(dto->ep));
        if (m->once)
            stop(m);
    }
    mdapl_pool_give(&peer->d->transfers, t);
    if (m->under_way == 0 && (m->stopped || m->issued.done == m->len)) {
        settle(m);
        m->over(m);
    }
    /* The next DTO, a frame or an acknowledgement may wait for this request slot. */
    mdapl_dapl_peer_wake_if_pending(peer);
}

/* Posts the next DTO. False: no stream has a free slot, the EP refuses it, or *stranded_p: there is
 * no stream for it. */
static bool post_one(struct mdapl_dapl_xfer *m, bool *stranded_p)
{
    struct mdapl_dapl_chan *d = m->peer->d;
    struct mdapl_dapl_range next = mdapl_dapl_ledger_missing(&m->issued, m->body_at, m->len);
    struct mdapl_dapl_stream *st = mdapl_dapl_stream_pick(m->peer, m->stream, m, fit, stranded_p);
    struct transfer *t = st ? mdapl_pool_take(&d->transfers) : NULL;
    uint64_t at = next.off - m->body_at, n, rest;
    DAT_LMR_TRIPLET local;
    DAT_RMR_TRIPLET remote;

    if (!t)
        return false;
    local = mdapl_dapl_body_at(m->local, st->ia->rail, m->local_off + at, &n);
    remote = mdapl_dapl_segs_at(m->remote, st->ia->rail, m->remote_off + at, &rest);
    n = mdapl_min(mdapl_min(n, rest), next.len);
    n = mdapl_min(mdapl_min(n, st->ia->max.rdma), max_bytes(m));
    local.segment_length = remote.segment_length = (DAT_SEG_LENGTH)n;
    t->move = m;
    t->off = next.off;
    t->dto.done = xfer_done;
    if (way[m->kind].post(&st->up->ep, &local, &remote, &t->dto)) {
        mdapl_pool_give(&d->transfers, t);
        mdapl_dapl_post_refused(st->up, way[m->kind].op);
        return false;
    }
    m->under_way++;
    if (m->posted)
        m->posted(m, st, next.off, n);
    if (mdapl_dapl_ledger_add(&m->issued, next.off, n) < 0) {
        mdapl_dapl_out_of_memory(m->peer, "a range of a body");
        return false;
    }
    return true;
}

void mdapl_dapl_xfer_start(struct mdapl_dapl_xfer *m)
{
    mdapl_list_init(&m->link);
    mdapl_dapl_ledger_init(&m->issued);
    m->stream = mdapl_dapl_stream_for(m->peer, m->len);
    mdapl_list_append(&m->peer->xfers, &m->link);
    mdapl_dapl_xfer_flush(m->peer);
}

static bool is_full(const struct mdapl_dapl_xfer *m)
{
    return m->window > 0 && m->under_way >= m->window;
}

/* Posts what it can of a transfer, adds how many DTOs to *n_p. False: the next one waits for a
 * slot, and so do those behind it. */
static bool post_some(struct mdapl_dapl_xfer *m, int *n_p)
{
    bool stranded = false;

    while (m->issued.done < m->len && !is_full(m) && post_one(m, &stranded))
        ++*n_p;
    if (m->issued.done == m->len) {
        mdapl_list_remove(&m->link);
        if (m->all_posted)
            m->all_posted(m);
        return true;
    }
    if (stranded && m->stranded)
        m->stranded(m);
    return stranded || is_full(m);
}

int mdapl_dapl_xfer_flush(struct mdapl_dapl_peer *peer)
{
    int n = 0;

    MDAPL_LIST_EACH_SAFE(pos, &peer->xfers)
        if (!post_some(MDAPL_OF(pos, struct mdapl_dapl_xfer, link), &n))
            break;
    return n;
}

bool mdapl_dapl_xfer_stop(struct mdapl_dapl_xfer *m)
{
    stop(m);
    if (m->under_way == 0)
        settle(m);
    return m->under_way > 0;
}

void mdapl_dapl_xfer_free(struct mdapl_dapl_xfer *m)
{
    mdapl_dapl_ledger_free(&m->issued);
}
