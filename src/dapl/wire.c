/* SPDX-License-Identifier: MIT */
#include "wire.h"

#include "siphash.h"
#include "channel.h"

#include <string.h>

_Static_assert(MDAPL_MAX_STREAMS <= 16, "four bits of the hello");
_Static_assert(MDAPL_HELLO_BYTES <= 56, "the smallest private data that providers give");
_Static_assert(MDAPL_KEY_BYTES == 16, "SipHash takes a key of 128 bits");

/* Little-endian access; compilers make single moves of these on little-endian machines. */
static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)v);
    put16(p + 2, (uint16_t)(v >> 16));
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* -- hello ------------------------------------------------------------------------------------ */

enum { HELLO_MAC_AT = 40, HELLO_STREAM_SHIFT = 4 };

void mdapl_hello_put(const struct mdapl_hello *h, const uint8_t key[16],
                     uint8_t out[MDAPL_HELLO_BYTES])
{
    put16(out, MDAPL_HELLO_MAGIC);
    out[2] = MDAPL_HELLO_VERSION;
    out[3] = (uint8_t)(h->flags | h->stream << HELLO_STREAM_SHIFT);
    put32(out + 4, h->job);
    put32(out + 8, h->src);
    put32(out + 12, h->dst);
    put32(out + 16, h->epoch);
    put32(out + 20, h->incarnation);
    put64(out + 24, h->rx_next);
    put32(out + 32, h->frame_bytes);
    put16(out + 36, h->sr_window);
    put16(out + 38, h->offers);
    mdapl_siphash(key, out, HELLO_MAC_AT, out + HELLO_MAC_AT);
}

enum mdapl_hello_verdict mdapl_hello_get(struct mdapl_hello *h, const void *in, size_t len,
                                         const uint8_t key[16], uint32_t job, uint32_t me,
                                         uint32_t size)
{
    const uint8_t *p = in;
    uint8_t mac[16];

    /* Providers may hand over more than was sent: some pad the private data with zeros. */
    if (len < MDAPL_HELLO_BYTES)
        return MDAPL_HELLO_SHORT;
    if (get16(p) != MDAPL_HELLO_MAGIC)
        return MDAPL_HELLO_NOT_OURS;
    if (p[2] != MDAPL_HELLO_VERSION)
        return MDAPL_HELLO_OTHER_VERSION;
    if (get32(p + 4) != job)
        return MDAPL_HELLO_OTHER_JOB;
    mdapl_siphash(key, p, HELLO_MAC_AT, mac);
    if (!mdapl_mac_equal(mac, p + HELLO_MAC_AT))
        return MDAPL_HELLO_BAD_MAC;
    *h = (struct mdapl_hello){
        .flags = p[3] & ((1 << HELLO_STREAM_SHIFT) - 1), .stream = p[3] >> HELLO_STREAM_SHIFT,
        .job = get32(p + 4), .src = get32(p + 8), .dst = get32(p + 12),
        .epoch = get32(p + 16), .incarnation = get32(p + 20), .rx_next = get64(p + 24),
        .frame_bytes = get32(p + 32), .sr_window = get16(p + 36), .offers = get16(p + 38),
    };
    if (h->src >= size || h->src == me || h->dst != me)
        return MDAPL_HELLO_BAD_RANK;
    return h->frame_bytes >= MDAPL_FRAME_MIN && h->sr_window >= MDAPL_WINDOW_MIN
               ? MDAPL_HELLO_OK : MDAPL_HELLO_BAD_SIZE;
}

const char *mdapl_hello_verdict_text(enum mdapl_hello_verdict v)
{
    static const char *const text[] = {
        [MDAPL_HELLO_OK] = "is one of ours",
        [MDAPL_HELLO_SHORT] = "has too little private data",
        [MDAPL_HELLO_NOT_OURS] = "does not speak our protocol",
        [MDAPL_HELLO_OTHER_VERSION] = "speaks another version of our protocol",
        [MDAPL_HELLO_OTHER_JOB] = "belongs to another job",
        [MDAPL_HELLO_BAD_MAC] = "does not know the job's key",
        [MDAPL_HELLO_BAD_RANK] = "names impossible ranks",
        [MDAPL_HELLO_BAD_SIZE] = "offers impossible sizes",
    };

    return text[v];
}

/* -- frames ----------------------------------------------------------------------------------- */

/* Which lengths a type may have behind the header. */
static const struct {
    bool envelope;
    uint16_t min_len;
} shape[MDAPL_FRAME_TYPES] = {
    [MDAPL_FRAME_MSG] = { true, 0 },
    [MDAPL_FRAME_RTS] = { true, MDAPL_RTS_BYTES },
    [MDAPL_FRAME_CTS] = { false, MDAPL_CTS_BYTES },
    [MDAPL_FRAME_DATA] = { false, MDAPL_DATA_BYTES },
    [MDAPL_FRAME_WRITTEN] = { false, MDAPL_WRITTEN_BYTES },
    [MDAPL_FRAME_FIN] = { false, MDAPL_FIN_BYTES },
    [MDAPL_FRAME_ACK] = { false, 0 },
    [MDAPL_FRAME_RING] = { false, MDAPL_RING_BYTES },
};

void mdapl_frame_put(const struct mdapl_frame *f, uint8_t out[MDAPL_FRAME_HDR_BYTES])
{
    out[0] = f->type;
    out[1] = f->flags;
    put16(out + 2, f->hdr_len);
    put32(out + 4, f->psn);
    put32(out + 8, f->ack);
    put32(out + 12, f->sr_limit);
    put32(out + 16, f->ring_limit);
    put32(out + 20, f->len);
}

bool mdapl_frame_get(struct mdapl_frame *f, const void *in, size_t len)
{
    const uint8_t *p = in;

    if (len < MDAPL_FRAME_HDR_BYTES)
        return false;
    *f = (struct mdapl_frame){
        .type = p[0], .flags = p[1], .hdr_len = get16(p + 2), .psn = get32(p + 4),
        .ack = get32(p + 8), .sr_limit = get32(p + 12), .ring_limit = get32(p + 16),
        .len = get32(p + 20),
    };
    return f->type >= MDAPL_FRAME_MSG && f->type < MDAPL_FRAME_TYPES && f->flags == 0
           && f->hdr_len <= (shape[f->type].envelope ? MDAPL_HDR_MAX : 0)
           && f->len >= shape[f->type].min_len
           && (f->type != MDAPL_FRAME_ACK || f->len == 0)
           && (uint64_t)MDAPL_FRAME_HDR_BYTES + f->hdr_len + f->len == len;
}

/* -- bodies ----------------------------------------------------------------------------------- */

static uint8_t *put_segs(const struct mdapl_segs *segs, uint8_t *p)
{
    for (uint32_t i = 0; i < segs->n; i++) {
        put64(p, segs->seg[i].addr);
        put64(p + 8, segs->seg[i].len);
        p += MDAPL_SEG_BYTES;
        for (uint32_t k = 0; k < segs->n_rails; k++, p += 4)
            put32(p, segs->seg[i].key[k]);
    }
    return p;
}

/* Reads n_segs, n_rails at `head` and the pieces in the len bytes at p: together `sum` bytes. */
static bool get_segs(struct mdapl_segs *segs, const uint8_t *head, const uint8_t *p, size_t len,
                     uint64_t sum)
{
    segs->n = get16(head);
    segs->n_rails = get16(head + 2);
    if (segs->n > MDAPL_MAX_SEGS || segs->n_rails > MDAPL_MAX_RAILS
        || (segs->n > 0 && segs->n_rails == 0)
        || len != (size_t)segs->n * (MDAPL_SEG_BYTES + 4u * segs->n_rails))
        return false;
    for (uint32_t i = 0; i < segs->n; i++) {
        segs->seg[i] = (struct mdapl_seg){ .addr = get64(p), .len = get64(p + 8) };
        p += MDAPL_SEG_BYTES;
        for (uint32_t k = 0; k < segs->n_rails; k++, p += 4)
            segs->seg[i].key[k] = get32(p);
        if (segs->seg[i].len == 0 || segs->seg[i].len > sum)
            return false;
        sum -= segs->seg[i].len;
    }
    return segs->n == 0 || sum == 0;
}

size_t mdapl_rts_put(const struct mdapl_rts *r, uint8_t *out)
{
    put64(out, r->body_len);
    put32(out + 8, r->tx_id);
    put16(out + 12, r->at.n);
    put16(out + 14, r->at.n_rails);
    return (size_t)(put_segs(&r->at, out + MDAPL_RTS_BYTES) - out);
}

bool mdapl_rts_get(struct mdapl_rts *r, const void *in, size_t len)
{
    const uint8_t *p = in;

    if (len < MDAPL_RTS_BYTES)
        return false;
    r->body_len = get64(p);
    r->tx_id = get32(p + 8);
    return r->body_len > 0 && get_segs(&r->at, p + 12, p + MDAPL_RTS_BYTES,
                                       len - MDAPL_RTS_BYTES, r->body_len);
}

size_t mdapl_cts_put(const struct mdapl_cts *c, uint8_t *out)
{
    put32(out, c->tx_id);
    put32(out + 4, c->rx_id);
    put64(out + 8, c->off);
    put64(out + 16, c->len);
    put16(out + 24, c->to.n);
    put16(out + 26, c->to.n_rails);
    return (size_t)(put_segs(&c->to, out + MDAPL_CTS_BYTES) - out);
}

bool mdapl_cts_get(struct mdapl_cts *c, const void *in, size_t len)
{
    const uint8_t *p = in;

    if (len < MDAPL_CTS_BYTES)
        return false;
    c->tx_id = get32(p);
    c->rx_id = get32(p + 4);
    c->off = get64(p + 8);
    c->len = get64(p + 16);
    return c->len > 0 && c->off + c->len > c->off
           && get_segs(&c->to, p + 24, p + MDAPL_CTS_BYTES, len - MDAPL_CTS_BYTES, c->len);
}

size_t mdapl_data_put(const struct mdapl_data *d, uint8_t *out)
{
    put32(out, d->rx_id);
    put32(out + 4, d->tx_id);
    put64(out + 8, d->off);
    return MDAPL_DATA_BYTES;
}

bool mdapl_data_get(struct mdapl_data *d, const void *in, size_t len)
{
    const uint8_t *p = in;

    if (len <= MDAPL_DATA_BYTES)
        return false;
    *d = (struct mdapl_data){ get32(p), get32(p + 4), get64(p + 8) };
    return true;
}

size_t mdapl_written_put(const struct mdapl_written *w, uint8_t *out)
{
    put32(out, w->rx_id);
    put32(out + 4, w->tx_id);
    put64(out + 8, w->len);
    return MDAPL_WRITTEN_BYTES;
}

bool mdapl_written_get(struct mdapl_written *w, const void *in, size_t len)
{
    const uint8_t *p = in;

    if (len != MDAPL_WRITTEN_BYTES)
        return false;
    *w = (struct mdapl_written){ get32(p), get32(p + 4), get64(p + 8) };
    return w->len > 0;
}

size_t mdapl_ring_put(const struct mdapl_ring_given *r, uint8_t *out)
{
    put64(out, r->addr);
    put32(out + 8, r->key);
    put32(out + 12, r->slots);
    put32(out + 16, r->slot_bytes);
    return MDAPL_RING_BYTES;
}

bool mdapl_ring_get(struct mdapl_ring_given *r, const void *in, size_t len)
{
    const uint8_t *p = in;

    if (len != MDAPL_RING_BYTES)
        return false;
    *r = (struct mdapl_ring_given){ get64(p), get32(p + 8), get32(p + 12), get32(p + 16) };
    return r->addr % 8 == 0 && r->slots > 0 && r->slot_bytes % 8 == 0 && r->slot_bytes >= 64;
}

size_t mdapl_fin_put(const struct mdapl_fin *f, uint8_t *out)
{
    put32(out, f->tx_id);
    put32(out + 4, f->status);
    return MDAPL_FIN_BYTES;
}

bool mdapl_fin_get(struct mdapl_fin *f, const void *in, size_t len)
{
    const uint8_t *p = in;

    if (len != MDAPL_FIN_BYTES)
        return false;
    *f = (struct mdapl_fin){ get32(p), get32(p + 4) };
    return f->status <= MDAPL_FIN_DROPPED;
}
