/* SPDX-License-Identifier: MIT */
#include "rx.h"

#include "cfg.h"
#include "conn.h"
#include "log.h"
#include "peer.h"
#include "recover.h"
#include "rndv.h"
#include "seq.h"
#include "stats.h"
#include "tx.h"
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- acknowledgement -------------------------------------------------------------------------- */

bool mdapl_rx_psn_ack_due(const struct mdapl_dpeer *peer)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(peer->d->ctx);
    uint64_t frames = peer->rx_next - peer->rx_acked;

    if (frames > 0 && (peer->d->draining || peer->d->now >= peer->owing_since
                                                   + MDAPL_US(cfg->ack_idle_us)))
        return true;
    return peer->retains
           && (frames >= (uint64_t)cfg->ack_frames
               || peer->rx_unacked_bytes >= (uint64_t)cfg->ack_bytes);
}

bool mdapl_rx_ack_due(const struct mdapl_dpeer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (peer->stream[i].up && mdapl_rxwin_owes(&peer->stream[i].up->rxwin))
            return true;
    return mdapl_rx_psn_ack_due(peer);
}

void mdapl_rx_told(struct mdapl_dpeer *peer)
{
    peer->rx_acked = peer->rx_next;
    peer->rx_unacked_bytes = 0;
    mdapl_list_remove(&peer->owing);
}

static void owe(struct mdapl_dpeer *peer, size_t bytes)
{
    peer->rx_unacked_bytes += bytes;
    if (!mdapl_list_empty(&peer->owing))
        return;
    peer->owing_since = peer->d->now;
    mdapl_list_append(&peer->d->owing, &peer->owing);
}

/* -- frames: one function per type; false: the content is impossible -------------------------- */

/* A message is lost for lack of memory: nothing that follows it may be delivered. */
static void no_memory(struct mdapl_dpeer *peer)
{
    mdapl_dapl_out_of_memory(peer, "a message that waits");
    mdapl_dapl_recover(peer);
}

static bool on_msg(struct mdapl_dpeer *peer, const struct mdapl_frame *f, const uint8_t *p)
{
    if (mdapl_inbox_take(&peer->inbox, p, f->hdr_len, p + f->hdr_len, f->len))
        no_memory(peer);
    return true;
}

static bool on_rts(struct mdapl_dpeer *peer, const struct mdapl_frame *f, const uint8_t *p)
{
    struct mdapl_rts rts;

    return mdapl_rts_get(&rts, p + f->hdr_len, f->len)
           && mdapl_rndv_on_rts(peer, &rts, p, f->hdr_len);
}

static bool on_cts(struct mdapl_dpeer *peer, const struct mdapl_frame *f, const uint8_t *p)
{
    struct mdapl_cts cts;

    return mdapl_cts_get(&cts, p, f->len) && mdapl_rndv_on_cts(peer, &cts);
}

static bool on_data(struct mdapl_dpeer *peer, const struct mdapl_frame *f, const uint8_t *p)
{
    struct mdapl_data data;

    return mdapl_data_get(&data, p, f->len)
           && mdapl_rndv_on_data(peer, &data, p + MDAPL_DATA_BYTES, f->len - MDAPL_DATA_BYTES);
}

static bool on_written(struct mdapl_dpeer *peer, const struct mdapl_frame *f, const uint8_t *p)
{
    struct mdapl_written written;

    return mdapl_written_get(&written, p, f->len) && mdapl_rndv_on_written(peer, &written);
}

static bool on_fin(struct mdapl_dpeer *peer, const struct mdapl_frame *f, const uint8_t *p)
{
    struct mdapl_fin fin;

    return mdapl_fin_get(&fin, p, f->len) && mdapl_rndv_on_fin(peer, &fin);
}

static bool (*const on_frame[MDAPL_FRAME_TYPES])(struct mdapl_dpeer *, const struct mdapl_frame *,
                                                 const uint8_t *) = {
    [MDAPL_FRAME_MSG] = on_msg,
    [MDAPL_FRAME_RTS] = on_rts,
    [MDAPL_FRAME_CTS] = on_cts,
    [MDAPL_FRAME_DATA] = on_data,
    [MDAPL_FRAME_FIN] = on_fin,
    [MDAPL_FRAME_WRITTEN] = on_written,
};

/* Judged at once: nothing that follows it may be delivered. */
static void bad_frame(struct mdapl_stream *st, const char *what, size_t len)
{
    mdapl_ctx_stats(st->peer->d->ctx)->bad_frames++;
    mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
        .kind = MDAPL_DAPL_FAULT_FRAME, .stream = st->index, .text = what, .len = len });
    mdapl_dapl_recover(st->peer);
}

/* -- the reorder queue ------------------------------------------------------------------------- */

/*
 * A frame that waits for those before it: frames take several connections. It keeps its credit
 * until its turn, so all that wait are never more than the peer was given credits for.
 */
struct early {
    struct mdapl_list link;
    uint64_t psn;
    struct mdapl_stream *st;     /* on which it arrived */
    uint64_t *credit;            /* NULL: that connection is closed */
    size_t len;
    uint8_t frame[];
};

static struct early *early_of(struct mdapl_list *l)
{
    return MDAPL_OF(l, struct early, link);
}

/* How many frames the peer can have in flight: each one not yet delivered holds a credit. */
static uint64_t max_in_flight(const struct mdapl_dpeer *peer)
{
    return (uint64_t)peer->n_streams * peer->d->sr_window
           + (peer->ring_in.slots ? peer->d->ring_slots : 0);
}

/* Queues a copy, in order; false: it is there already. */
static bool keep_early(struct mdapl_stream *st, uint64_t psn, uint64_t *credit, const void *frame,
                       size_t len)
{
    struct mdapl_dpeer *peer = st->peer;
    struct mdapl_list *at = peer->early.prev;
    struct early *e;

    while (at != &peer->early && early_of(at)->psn > psn)
        at = at->prev;
    if (at != &peer->early && early_of(at)->psn == psn)
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
    mdapl_ctx_stats(peer->d->ctx)->early++;
    mdapl_stats_max(&mdapl_ctx_stats(peer->d->ctx)->early_max, ++peer->n_early);
    return true;
}

void mdapl_rx_forget_credits(struct mdapl_dpeer *peer, const uint64_t *credit)
{
    MDAPL_LIST_EACH(pos, &peer->early)
        if (early_of(pos)->credit == credit)
            early_of(pos)->credit = NULL;
}

static void forget_early(struct mdapl_dpeer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_take(&peer->early)))
        free(early_of(l));
}

/* -- every frame ------------------------------------------------------------------------------ */

/* It is its turn. p: behind the header. */
static void take(struct mdapl_stream *st, const struct mdapl_frame *f, const uint8_t *p,
                 size_t len)
{
    struct mdapl_dpeer *peer = st->peer;

    peer->rx_next++;
    owe(peer, len);
    if (!on_frame[f->type](peer, f, p))
        bad_frame(st, "its content is wrong", len);
}

static void take_early(struct mdapl_dpeer *peer)
{
    struct mdapl_list *l;
    struct mdapl_frame f;

    while (!peer->dead && (l = mdapl_list_first(&peer->early))
           && early_of(l)->psn == peer->rx_next) {
        struct early *e = early_of(l);

        mdapl_list_remove(l);
        peer->n_early--;
        mdapl_frame_get(&f, e->frame, e->len);   /* it was good when it came */
        take(e->st, &f, e->frame + MDAPL_FRAME_HDR_BYTES, e->len);
        if (e->credit)
            ++*e->credit;
        free(e);
    }
}

/* A later one waits, with its credit; the number of an older one has been delivered already. */
static bool out_of_turn(struct mdapl_stream *st, uint64_t psn, uint64_t *credit,
                        const void *frame, size_t len)
{
    struct mdapl_dpeer *peer = st->peer;

    if (psn >= peer->rx_next + max_in_flight(peer))
        bad_frame(st, "more frames before it are missing than can be under way", len);
    else if (psn > peer->rx_next && keep_early(st, psn, credit, frame, len))
        return false;
    else
        mdapl_ctx_stats(peer->d->ctx)->dup++;
    return true;
}

static bool on_ring(struct mdapl_dpeer *peer, const struct mdapl_frame *f, const uint8_t *p)
{
    struct mdapl_ring_given given;

    return mdapl_ring_get(&given, p, f->len) && mdapl_ring_on_given(peer, &given);
}

bool mdapl_rx_frame(struct mdapl_stream *st, uint64_t *credit, const void *frame, size_t len)
{
    struct mdapl_dpeer *peer = st->peer;
    const uint8_t *p = frame;
    struct mdapl_frame f;
    uint64_t psn;

    mdapl_ctx_stats(peer->d->ctx)->rx_frames++;
    if (!mdapl_frame_get(&f, p, len)) {
        bad_frame(st, "its header is wrong", len);
        return true;
    }
    mdapl_log(mdapl_ctx_log(peer->d->ctx), MDAPL_FRAME, "<- rank %d type %d psn %u ack %u len %u",
              peer->base.rank, f.type, f.psn, f.ack, f.len);
    if (!mdapl_tx_acked(peer, f.ack)) {
        bad_frame(st, "it acknowledges what was never sent", len);
        return true;
    }
    mdapl_txwin_hear(&st->conn->txwin, f.sr_limit);
    if (peer->ring_out.at.slots)
        mdapl_txwin_hear(&peer->ring_out.win, f.ring_limit);
    if (!mdapl_frame_sequenced(f.type)) {
        if (f.type == MDAPL_FRAME_RING && !on_ring(peer, &f, p + MDAPL_FRAME_HDR_BYTES))
            bad_frame(st, "its content is wrong", len);
        return true;
    }
    psn = mdapl_seq_widen(peer->rx_next, f.psn);
    /* What was written into the ring before it was sent has landed before it came. */
    if (psn > peer->rx_next)
        mdapl_ring_poll_peer(peer);
    if (psn != peer->rx_next)
        return out_of_turn(st, psn, credit, frame, len);
    take(st, &f, p + MDAPL_FRAME_HDR_BYTES, len);
    if (!mdapl_list_empty(&peer->early))
        take_early(peer);
    mdapl_ring_consider(peer);
    return true;
}

void mdapl_rx_fail(struct mdapl_dpeer *peer)
{
    mdapl_inbox_fail(&peer->inbox);
    mdapl_list_remove(&peer->owing);
    forget_early(peer);
    peer->n_early = 0;
}
