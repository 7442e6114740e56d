/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include "cfg.h"
#include "conn.h"
#include "frames.h"
#include "peer.h"
#include "stats.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    RINGS_PER_CHUNK = 8,
    FEW_LMRS = 64,               /* an adapter with so few registrations needs them for frames */
};

/* Memory of several rings, with one registration. */
struct chunk {
    struct mdapl_dapl_block block;
    int rings, used;
};

/* -- memory ----------------------------------------------------------------------------------- */

static size_t ring_bytes(const struct mdapl_dapl_chan *d)
{
    return (size_t)d->ring_slots * d->ring_slot_bytes;
}

void mdapl_dapl_ring_init(struct mdapl_dapl_chan *d)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(d->ctx);
    size_t max_bytes = mdapl_dapl_ring_padded(d->frame_room + MDAPL_FRAME_HDR_BYTES)
                     + MDAPL_RING_TRAILER;
    bool wanted = cfg->ring == MDAPL_RING_ON
                  || (cfg->ring == MDAPL_RING_AUTO && d->rails.max.ordered
                      && cfg->spin_polls != 0);

    mdapl_list_init(&d->rings);
    mdapl_list_init(&d->ring_chunks);
    d->ring_slot_bytes = (uint32_t)cfg->ring_slot_bytes & ~63u;
    if (d->ring_slot_bytes > max_bytes)
        d->ring_slot_bytes = (uint32_t)max_bytes;
    d->ring_slots = (uint32_t)cfg->ring_slots;
    if (d->rails.max.lmrs < FEW_LMRS || ring_bytes(d) > d->rails.lmr_max)
        wanted = false;
    d->rings_left = wanted ? (int)cfg->ring_peers : 0;
}

void mdapl_dapl_ring_fini(struct mdapl_dapl_chan *d)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_take(&d->ring_chunks))) {
        struct chunk *c = MDAPL_OF(l, struct chunk, block.link);

        mdapl_dapl_block_free(&c->block);
        free(c);
    }
}

static struct chunk *chunk_make(struct mdapl_dapl_chan *d)
{
    struct chunk *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->rings = RINGS_PER_CHUNK;
    while (c->rings > 1 && (uint64_t)c->rings * ring_bytes(d) > d->rails.lmr_max)
        c->rings--;
    if (!mdapl_dapl_block_make(&d->regs, (size_t)c->rings * ring_bytes(d), MDAPL_LMR_REMOTE_WRITE,
                               0, &c->block)) {
        free(c);
        return NULL;
    }
    mdapl_list_append(&d->ring_chunks, &c->block.link);
    return c;
}

/* A chunk with room for one more ring; NULL: no memory, or no registration. */
static struct chunk *chunk_with_room(struct mdapl_dapl_chan *d)
{
    struct mdapl_list *last = d->ring_chunks.prev;
    struct chunk *c = MDAPL_OF(last, struct chunk, block.link);

    return last != &d->ring_chunks && c->used < c->rings ? c : chunk_make(d);
}

/* -- offering slots --------------------------------------------------------------------------- */

/* Allocates the peer's slots and queues the RING frame that names them. */
static void offer(struct mdapl_dapl_peer *peer)
{
    struct mdapl_dapl_chan *d = peer->d;
    struct chunk *c = chunk_with_room(d);
    int rail = mdapl_dapl_peer_main(peer)->ia->rail;
    bool registered = c && mdapl_dapl_block_need(&d->regs, &c->block, 1u << rail);
    struct mdapl_dapl_item *it = registered ? mdapl_dapl_item_get(peer, MDAPL_FRAME_RING) : NULL;
    struct mdapl_dapl_ring_given given;

    if (!it) {                   /* no memory: no peer gets another ring */
        d->rings_left = 0;
        return;
    }
    d->rings_left--;
    d->n_rings++;
    peer->ring_in.slots = c->block.data + (size_t)c->used++ * ring_bytes(d);
    mdapl_list_append(&d->rings, &peer->ring_in.link);
    given = (struct mdapl_dapl_ring_given){
        .addr = (uint64_t)(uintptr_t)peer->ring_in.slots, .key = c->block.lmr.on[rail].key,
        .slots = d->ring_slots, .slot_bytes = d->ring_slot_bytes,
    };
    it->len = (uint32_t)mdapl_dapl_ring_given_put(&given, it->u.bytes);
    mdapl_dapl_item_queue(peer, it);
}

void mdapl_dapl_ring_maybe_offer(struct mdapl_dapl_peer *peer)
{
    const struct mdapl_dapl_chan *d = peer->d;

    if (!peer->ring_in.slots && d->rings_left > 0
        && peer->rx_next >= (uint64_t)mdapl_ctx_cfg(d->ctx)->ring_after)
        offer(peer);
}

bool mdapl_dapl_on_ring_given(struct mdapl_dapl_peer *peer,
                              const struct mdapl_dapl_ring_given *given,
                              const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    (void)f, (void)p;
    if (peer->ring_out.at.slots)
        return false;            /* a peer offers slots once */
    peer->ring_out.at = *given;
    peer->ring_out.win = (struct mdapl_txwin){ .sent = 0, .limit = given->slots };
    return true;
}

/* -- writing ---------------------------------------------------------------------------------- */

int mdapl_dapl_ring_post(struct mdapl_dapl_stream *st, struct mdapl_dapl_vbuf *b)
{
    struct mdapl_dapl_ring_out *out = &st->peer->ring_out;
    uint32_t slot = (uint32_t)(out->win.sent % out->at.slots);
    size_t pad = mdapl_dapl_ring_padded(b->len), len = pad + MDAPL_RING_TRAILER;
    uint64_t word = (uint64_t)(uint32_t)++out->win.sent << 32 | b->len;
    DAT_LMR_TRIPLET from = mdapl_dapl_vbuf_seg(b, (uint32_t)len);
    DAT_RMR_TRIPLET to = {
        .virtual_address = out->at.addr + (uint64_t)(slot + 1) * out->at.slot_bytes - len,
        .segment_length = len, .rmr_context = out->at.key,
    };

    assert(out->win.sent <= out->win.limit && len <= out->at.slot_bytes);
    memset(b->data + b->len, 0, pad - b->len);
    memcpy(b->data + pad, &word, sizeof(word));
    return mdapl_dapl_ep_post_write_unsignaled(&st->up->ep, &from, &to, &b->dto);
}

/* -- polling ---------------------------------------------------------------------------------- */

/* The next frame, NULL when it is not there yet. */
static const uint8_t *next_frame(const struct mdapl_dapl_peer *peer, size_t *len_p)
{
    const struct mdapl_dapl_chan *d = peer->d;
    const struct mdapl_dapl_ring_in *in = &peer->ring_in;
    uint32_t slot = (uint32_t)(in->taken % d->ring_slots);
    uint8_t *end = in->slots + (size_t)(slot + 1) * d->ring_slot_bytes - MDAPL_RING_TRAILER;
    uint64_t word = atomic_load_explicit((_Atomic uint64_t *)(void *)end, memory_order_acquire);
    size_t pad;

    if (word >> 32 != (uint32_t)(in->taken + 1))
        return NULL;
    *len_p = (uint32_t)word;
    pad = mdapl_dapl_ring_padded(*len_p);
    return pad <= d->ring_slot_bytes - MDAPL_RING_TRAILER ? end - pad : end;
}

int mdapl_dapl_ring_poll_peer(struct mdapl_dapl_peer *peer)
{
    struct mdapl_dapl_ring_in *in = &peer->ring_in;
    const uint8_t *frame;
    size_t len;
    int n = 0;

    if (!in->slots || in->busy)
        return 0;
    in->busy = true;
    while (n < (int)peer->d->ring_slots && !peer->dead && (frame = next_frame(peer, &len))) {
        if (mdapl_dapl_rx_frame(mdapl_dapl_peer_main(peer), &in->freed, frame, len))
            in->freed++;
        in->taken++;
        n++;
    }
    in->busy = false;
    if (n > 0)
        mdapl_dapl_peer_wake_if_pending(peer);
    return n;
}

int mdapl_dapl_ring_poll(struct mdapl_dapl_chan *d)
{
    int n = 0;

    MDAPL_LIST_EACH_SAFE(pos, &d->rings)
        n += mdapl_dapl_ring_poll_peer(MDAPL_OF(pos, struct mdapl_dapl_peer, ring_in.link));
    return n;
}
