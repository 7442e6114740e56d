/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include "cfg.h"
#include "conn.h"
#include "frames.h"
#include "peer.h"
#include "regcache.h"
#include "vbuf.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    RINGS_PER_CHUNK = 8,
    FEW_LMRS = 64,               /* an adapter with so few registrations needs them for frames */
    TAG_BITS = 16,               /* of a frame's last word: number (32), tag (16), length (16) */
    LEN_BITS = 16,
};

/* The slots of one connection. */
struct mdapl_dapl_ring_mem {
    struct mdapl_list link;      /* on d->ring_free */
    struct chunk *chunk;
    uint8_t *slots;
};

/* Memory of several rings, with one registration. */
struct chunk {
    struct mdapl_dapl_block block;
    struct mdapl_dapl_chan *d;
    int rings;
    struct mdapl_dapl_ring_mem ring[RINGS_PER_CHUNK];
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
    mdapl_list_init(&d->ring_free);
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

/* More slots, on d->ring_free. False: no memory, or no registration. */
static bool chunk_make(struct mdapl_dapl_chan *d)
{
    struct chunk *c = calloc(1, sizeof(*c));

    if (!c)
        return false;
    c->rings = RINGS_PER_CHUNK;
    while (c->rings > 1 && (uint64_t)c->rings * ring_bytes(d) > d->rails.lmr_max)
        c->rings--;
    if (!mdapl_dapl_block_make(d->regs, (size_t)c->rings * ring_bytes(d), MDAPL_LMR_REMOTE_WRITE,
                               0, &c->block)) {
        free(c);
        return false;
    }
    c->d = d;
    mdapl_list_append(&d->ring_chunks, &c->block.link);
    for (int i = 0; i < c->rings; i++) {
        c->ring[i].chunk = c;
        c->ring[i].slots = c->block.data + (size_t)i * ring_bytes(d);
        mdapl_list_append(&d->ring_free, &c->ring[i].link);
    }
    return true;
}

/* Slots that no connection has; NULL: no memory, or no registration on that rail. */
static struct mdapl_dapl_ring_mem *take_slots(struct mdapl_dapl_chan *d, int rail)
{
    struct mdapl_dapl_ring_mem *mem;

    if (mdapl_list_empty(&d->ring_free) && !chunk_make(d))
        return NULL;
    mem = MDAPL_OF(mdapl_list_first(&d->ring_free), struct mdapl_dapl_ring_mem, link);
    if (!mdapl_dapl_block_need(d->regs, &mem->chunk->block, 1u << rail))
        return NULL;
    mdapl_list_remove(&mem->link);
    return mem;
}

/* -- offering slots --------------------------------------------------------------------------- */

/* The connection on which a peer is to write frames into slots; NULL: none is open. */
static struct mdapl_dapl_conn *conn_of(const struct mdapl_dapl_peer *peer)
{
    struct mdapl_dapl_conn *conn = mdapl_dapl_peer_main(peer)->conn;

    return conn && conn->st ? conn : NULL;
}

/* Takes slots for the connection and queues the RING frame that names them. */
static void offer(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_peer *peer = conn->st->peer;
    struct mdapl_dapl_chan *d = peer->d;
    int rail = conn->ep.ia->rail;
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(peer, MDAPL_FRAME_RING);
    struct mdapl_dapl_ring_mem *mem = it ? take_slots(d, rail) : NULL;
    struct mdapl_dapl_ring_given given;

    if (!mem) {                  /* no memory: no peer gets another ring */
        if (it)
            mdapl_pool_give(&d->items, it);
        d->rings_left = 0;
        return;
    }
    d->rings_left--;
    d->n_rings++;
    given = (struct mdapl_dapl_ring_given){
        .addr = (uint64_t)(uintptr_t)mem->slots, .key = mem->chunk->block.lmr.on[rail].key,
        .slots = d->ring_slots, .slot_bytes = d->ring_slot_bytes, .tag = ++d->ring_tag,
    };
    conn->ring_in.mem = mem;
    conn->ring_in.slots = mem->slots;
    conn->ring_in.word = mem->slots + d->ring_slot_bytes - MDAPL_RING_TRAILER;
    conn->ring_in.expected = UINT64_C(1) << TAG_BITS | given.tag;
    mdapl_list_append(&d->rings, &conn->ring_in.link);
    it->stream = conn->stream;
    it->len = (uint32_t)mdapl_dapl_ring_given_put(&given, it->u.bytes);
    mdapl_dapl_item_queue(peer, it);
}

void mdapl_dapl_ring_maybe_offer(struct mdapl_dapl_peer *peer)
{
    const struct mdapl_dapl_chan *d = peer->d;
    struct mdapl_dapl_conn *conn;

    if (d->rings_left <= 0 || peer->rx_next < (uint64_t)mdapl_ctx_cfg(d->ctx)->ring_after)
        return;
    conn = conn_of(peer);
    if (conn && !conn->ring_in.slots)
        offer(conn);
}

void mdapl_dapl_ring_close(struct mdapl_dapl_conn *conn)
{
    if (!conn->ring_in.slots)
        return;
    mdapl_list_remove(&conn->ring_in.link);
    conn->ring_in.mem->chunk->d->n_rings--;
    mdapl_dapl_item_drop(conn->st->peer, MDAPL_FRAME_RING, conn->stream);
}

void mdapl_dapl_ring_release(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_ring_mem *mem = conn->ring_in.mem;

    if (!mem)
        return;
    if (conn->ep.abandoned) {    /* writes of its peer may still land there */
        mem->chunk->block.kept = true;
        return;
    }
    mdapl_list_before(mem->chunk->d->ring_free.next, &mem->link);      /* it is in the caches */
    mem->chunk->d->rings_left++;
}

bool mdapl_dapl_on_ring_given(struct mdapl_dapl_stream *st,
                              const struct mdapl_dapl_ring_given *given,
                              const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_ring_out *out = &st->conn->ring_out;

    (void)f, (void)p;
    if (out->slots)
        return false;            /* a peer offers slots once on a connection */
    out->addr = given->addr;
    out->key = given->key;
    out->tag = given->tag;
    out->slots = given->slots;
    out->slot_bytes = given->slot_bytes;
    out->win = (struct mdapl_txwin){ .sent = 0, .limit = given->slots };
    return true;
}

/* -- writing ---------------------------------------------------------------------------------- */

int mdapl_dapl_ring_post(struct mdapl_dapl_conn *conn, struct mdapl_dapl_vbuf *b)
{
    struct mdapl_dapl_ring_out *out = &conn->ring_out;
    uint32_t slot = (uint32_t)(out->win.sent % out->slots);
    size_t pad = mdapl_dapl_ring_padded(b->len), len = pad + MDAPL_RING_TRAILER;
    uint64_t number = (uint32_t)++out->win.sent;
    uint64_t word = (number << TAG_BITS | out->tag) << LEN_BITS | b->len;
    DAT_LMR_TRIPLET from = mdapl_dapl_vbuf_seg(b, (uint32_t)len);
    DAT_RMR_TRIPLET to = {
        .virtual_address = out->addr + (uint64_t)(slot + 1) * out->slot_bytes - len,
        .segment_length = len, .rmr_context = out->key,
    };

    assert(out->win.sent <= out->win.limit && len <= out->slot_bytes);
    memset(b->data + b->len, 0, pad - b->len);
    memcpy(b->data + pad, &word, sizeof(word));
    return mdapl_dapl_ep_post_write_unsignaled(&conn->ep, &from, &to, &b->dto);
}

/* -- polling ---------------------------------------------------------------------------------- */

static uint64_t last_word(const struct mdapl_dapl_ring_in *in)
{
    return atomic_load_explicit((_Atomic uint64_t *)(void *)in->word, memory_order_acquire);
}

/* Has the next frame landed? */
static bool is_there(const struct mdapl_dapl_ring_in *in)
{
    return last_word(in) >> LEN_BITS == in->expected;
}

/* It has: passes it on. */
static void take_frame(struct mdapl_dapl_conn *conn, const struct mdapl_dapl_chan *d)
{
    struct mdapl_dapl_ring_in *in = &conn->ring_in;
    size_t len = (uint16_t)last_word(in), pad = mdapl_dapl_ring_padded(len);

    if (pad > d->ring_slot_bytes - MDAPL_RING_TRAILER)
        pad = len = 0;           /* which is no frame */
    if (mdapl_dapl_rx_frame(conn->st, &in->freed, in->word - pad, len))
        in->freed++;
    in->expected = (in->expected + (UINT64_C(1) << TAG_BITS)) & (UINT64_MAX >> LEN_BITS);
    in->word += d->ring_slot_bytes;
    if (in->word > in->slots + ring_bytes(d))
        in->word -= ring_bytes(d);
}

int mdapl_dapl_ring_poll_conn(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_ring_in *in = &conn->ring_in;
    struct mdapl_dapl_peer *peer;
    int n = 0;

    if (!in->slots || in->busy || !is_there(in))
        return 0;
    peer = conn->st->peer;
    in->busy = true;
    while (n < (int)peer->d->ring_slots && conn->st && !peer->dead && is_there(in)) {
        take_frame(conn, peer->d);
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
        n += mdapl_dapl_ring_poll_conn(MDAPL_OF(pos, struct mdapl_dapl_conn, ring_in.link));
    return n;
}
