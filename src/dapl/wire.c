/* SPDX-License-Identifier: MIT */
#include "wire.h"

#include "contract.h"
#include "little.h"
#include "siphash.h"

#include <string.h>

_Static_assert(MDAPL_MAX_STREAMS <= 16, "four bits of the hello");
_Static_assert(MDAPL_HELLO_BYTES <= 56, "the smallest private data that providers give");
_Static_assert(MDAPL_KEY_BYTES == 16, "SipHash takes a key of 128 bits");

/* -- hello ------------------------------------------------------------------------------------ */

enum { HELLO_MAC_AT = 40, HELLO_STREAM_SHIFT = 4, HELLO_GENERATION_SHIFT = 4 };

/* The MAC of the hello in p, for a process of the group dst. */
static void hello_mac(const uint8_t *p, uint32_t dst, const uint8_t key[16], uint8_t mac[16])
{
    uint8_t text[HELLO_MAC_AT + 4];

    memcpy(text, p, HELLO_MAC_AT);
    mdapl_put32(text + HELLO_MAC_AT, dst);
    mdapl_siphash(key, text, sizeof(text), mac);
}

void mdapl_dapl_hello_put(const struct mdapl_dapl_hello *h, const uint8_t key[16],
                          uint8_t out[MDAPL_HELLO_BYTES])
{
    mdapl_put16(out, MDAPL_HELLO_MAGIC);
    out[2] = MDAPL_HELLO_VERSION;
    out[3] = (uint8_t)(h->flags | h->stream << HELLO_STREAM_SHIFT);
    mdapl_put32(out + 4, h->group);
    mdapl_put32(out + 8, h->src);
    mdapl_put32(out + 12, h->dst);
    mdapl_put32(out + 16, h->epoch);
    mdapl_put32(out + 20, h->incarnation);
    mdapl_put32(out + 24, h->met);
    mdapl_put32(out + 28, h->rx_next);
    mdapl_put32(out + 32, h->frame_bytes);
    mdapl_put16(out + 36, h->sr_window);
    mdapl_put16(out + 38, (uint16_t)(h->offers | h->generation << HELLO_GENERATION_SHIFT));
    hello_mac(out, h->dst_group, key, out + HELLO_MAC_AT);
}

uint32_t mdapl_dapl_hello_group(const void *in, size_t len)
{
    return len < MDAPL_HELLO_BYTES ? 0 : mdapl_get32((const uint8_t *)in + 4);
}

enum mdapl_dapl_hello_verdict mdapl_dapl_hello_get(struct mdapl_dapl_hello *h, const void *in,
                                                   size_t len, const struct mdapl_group *from,
                                                   struct mdapl_name self)
{
    const uint8_t *p = in;
    uint8_t mac[16];

    /* Providers may hand over more than was sent: some pad the private data with zeros. */
    if (len < MDAPL_HELLO_BYTES)
        return MDAPL_HELLO_SHORT;
    if (mdapl_get16(p) != MDAPL_HELLO_MAGIC)
        return MDAPL_HELLO_NOT_OURS;
    if (p[2] != MDAPL_HELLO_VERSION)
        return MDAPL_HELLO_OTHER_VERSION;
    if (!from || mdapl_get32(p + 4) != from->id)
        return MDAPL_HELLO_UNKNOWN_GROUP;
    hello_mac(p, self.group, from->key, mac);
    if (!mdapl_mac_equal(mac, p + HELLO_MAC_AT))
        return MDAPL_HELLO_BAD_MAC;
    *h = (struct mdapl_dapl_hello){
        .flags = p[3] & ((1 << HELLO_STREAM_SHIFT) - 1), .stream = p[3] >> HELLO_STREAM_SHIFT,
        .group = from->id, .dst_group = self.group,
        .src = mdapl_get32(p + 8), .dst = mdapl_get32(p + 12),
        .epoch = mdapl_get32(p + 16), .incarnation = mdapl_get32(p + 20),
        .met = mdapl_get32(p + 24), .rx_next = mdapl_get32(p + 28),
        .frame_bytes = mdapl_get32(p + 32), .sr_window = mdapl_get16(p + 36),
        .offers = mdapl_get16(p + 38) & ((1 << HELLO_GENERATION_SHIFT) - 1),
        .generation = mdapl_get16(p + 38) >> HELLO_GENERATION_SHIFT,
    };
    if (h->src >= (uint32_t)from->size || h->dst != (uint32_t)self.rank
        || (from->id == self.group && h->src == h->dst))
        return MDAPL_HELLO_BAD_RANK;
    return h->frame_bytes >= MDAPL_FRAME_MIN && h->sr_window >= MDAPL_WINDOW_MIN
               ? MDAPL_HELLO_OK : MDAPL_HELLO_BAD_SIZE;
}

const char *mdapl_dapl_hello_verdict_text(enum mdapl_dapl_hello_verdict v)
{
    static const char *const text[] = {
        [MDAPL_HELLO_OK] = "is one of ours",
        [MDAPL_HELLO_SHORT] = "has too little private data",
        [MDAPL_HELLO_NOT_OURS] = "does not speak our protocol",
        [MDAPL_HELLO_OTHER_VERSION] = "speaks another version of our protocol",
        [MDAPL_HELLO_UNKNOWN_GROUP] = "belongs to another job",
        [MDAPL_HELLO_BAD_MAC] = "does not know the key of its job and ours",
        [MDAPL_HELLO_BAD_RANK] = "names impossible ranks",
        [MDAPL_HELLO_BAD_SIZE] = "offers impossible sizes",
    };

    return text[v];
}

/* -- frames ----------------------------------------------------------------------------------- */

enum { NOTHING = 0, LIST = MDAPL_SEGS_MAX };

_Static_assert(MDAPL_MAX_RANGES * MDAPL_RANGE_BYTES <= LIST, "either list");

#define BYTES UINT32_MAX

/* Bytes of envelope, of fields and behind them, by type. */
static const struct {
    uint16_t envelope_max, fields;
    uint32_t tail_max;
} shape[MDAPL_FRAME_TYPES] = {
#define FRAME(number, NAME, name, psn, envelope, fields, tail) \
    [number] = { envelope ? MDAPL_HDR_MAX : 0, MDAPL_##NAME##_BYTES, tail },
#include "frames.def"
};
#undef BYTES

const char *mdapl_dapl_frame_name(uint8_t type)
{
    static const char *const names[MDAPL_FRAME_TYPES] = {
#define FRAME(number, NAME, ...) [number] = #NAME,
#include "frames.def"
    };

    return type < MDAPL_FRAME_TYPES && names[type] ? names[type] : "?";
}

void mdapl_dapl_frame_put(const struct mdapl_dapl_frame *f, uint8_t out[MDAPL_FRAME_HDR_BYTES])
{
    out[0] = f->type;
    out[1] = f->flags;
    mdapl_put16(out + 2, f->hdr_len);
    mdapl_put32(out + 4, f->psn);
    mdapl_put32(out + 8, f->ack);
    mdapl_put32(out + 12, f->sr_limit);
    mdapl_put32(out + 16, f->ring_limit);
    mdapl_put32(out + 20, f->len);
}

void mdapl_dapl_frame_stamp(uint8_t *frame, uint32_t ack, uint32_t sr_limit, uint32_t ring_limit)
{
    mdapl_put32(frame + 8, ack);
    mdapl_put32(frame + 12, sr_limit);
    mdapl_put32(frame + 16, ring_limit);
}

bool mdapl_dapl_frame_get(struct mdapl_dapl_frame *f, const void *in, size_t len)
{
    const uint8_t *p = in;

    if (len < MDAPL_FRAME_HDR_BYTES)
        return false;
    *f = (struct mdapl_dapl_frame){
        .type = p[0], .flags = p[1], .hdr_len = mdapl_get16(p + 2),
        .psn = mdapl_get32(p + 4), .ack = mdapl_get32(p + 8),
        .sr_limit = mdapl_get32(p + 12), .ring_limit = mdapl_get32(p + 16),
        .len = mdapl_get32(p + 20),
    };
    return f->type >= MDAPL_FRAME_MSG && f->type < MDAPL_FRAME_TYPES
           && (f->flags & ~MDAPL_FRAME_FLAGS) == 0
           && f->hdr_len <= shape[f->type].envelope_max
           && f->len >= shape[f->type].fields
           && f->len - shape[f->type].fields <= shape[f->type].tail_max
           && (uint64_t)MDAPL_FRAME_HDR_BYTES + f->hdr_len + f->len == len;
}

/* -- fields ----------------------------------------------------------------------------------- */

static uint8_t *put_segs(const struct mdapl_dapl_segs *segs, uint8_t *p)
{
    mdapl_put16(p, segs->n);
    mdapl_put16(p + 2, segs->n_rails);
    p += 4;
    for (uint32_t k = 0; segs->n > 0 && k < segs->n_rails; k++, p += 4)
        mdapl_put32(p, segs->generation[k]);
    for (uint32_t i = 0; i < segs->n; i++) {
        mdapl_put64(p, segs->seg[i].addr);
        mdapl_put64(p + 8, segs->seg[i].len);
        p += MDAPL_SEG_BYTES;
        for (uint32_t k = 0; k < segs->n_rails; k++, p += 4)
            mdapl_put32(p, segs->seg[i].key[k]);
    }
    return p;
}

/* Reads the numbers and the pieces, which end the frame; NULL: they do not end where it does. */
static const uint8_t *get_segs(struct mdapl_dapl_segs *segs, const uint8_t *p, const uint8_t *end)
{
    segs->n = mdapl_get16(p);
    segs->n_rails = mdapl_get16(p + 2);
    p += 4;
    if (segs->n > MDAPL_MAX_SEGS || segs->n_rails > MDAPL_MAX_RAILS
        || (segs->n > 0 && segs->n_rails == 0)
        || (size_t)(end - p) != (segs->n > 0) * 4u * segs->n_rails
                                    + (size_t)segs->n * (MDAPL_SEG_BYTES + 4u * segs->n_rails))
        return NULL;
    for (uint32_t k = 0; segs->n > 0 && k < segs->n_rails; k++, p += 4)
        segs->generation[k] = mdapl_get32(p);
    for (uint32_t i = 0; i < segs->n; i++) {
        segs->seg[i] = (struct mdapl_dapl_seg){ .addr = mdapl_get64(p), .len = mdapl_get64(p + 8) };
        p += MDAPL_SEG_BYTES;
        for (uint32_t k = 0; k < segs->n_rails; k++, p += 4)
            segs->seg[i].key[k] = mdapl_get32(p);
    }
    return p;
}

size_t mdapl_dapl_segs_put(const struct mdapl_dapl_segs *segs, uint8_t *out)
{
    return (size_t)(put_segs(segs, out) - out);
}

bool mdapl_dapl_segs_get(struct mdapl_dapl_segs *segs, const void *in, size_t len,
                         uint64_t *total_p)
{
    const uint8_t *p = in;

    memset(segs, 0, sizeof(*segs));
    *total_p = 0;
    if (len < 4 || !get_segs(segs, p, p + len))
        return false;
    for (uint32_t i = 0; i < segs->n; i++) {
        if (segs->seg[i].len == 0 || segs->seg[i].len > UINT64_MAX - *total_p)
            return false;
        *total_p += segs->seg[i].len;
    }
    return segs->n > 0;
}

static uint8_t *put_ranges(const struct mdapl_dapl_ranges *ranges, uint8_t *p)
{
    mdapl_put32(p, ranges->n);
    p += 4;
    for (uint32_t i = 0; i < ranges->n; i++, p += MDAPL_RANGE_BYTES) {
        mdapl_put64(p, ranges->range[i].off);
        mdapl_put64(p + 8, ranges->range[i].len);
    }
    return p;
}

/* As get_segs(). */
static const uint8_t *get_ranges(struct mdapl_dapl_ranges *ranges, const uint8_t *p,
                                 const uint8_t *end)
{
    ranges->n = mdapl_get32(p);
    p += 4;
    if (ranges->n > MDAPL_MAX_RANGES
        || (size_t)(end - p) != (size_t)ranges->n * MDAPL_RANGE_BYTES)
        return NULL;
    for (uint32_t i = 0; i < ranges->n; i++, p += MDAPL_RANGE_BYTES)
        ranges->range[i] = (struct mdapl_dapl_range){ mdapl_get64(p), mdapl_get64(p + 8) };
    return p;
}

/* No pieces, or pieces of len bytes together, none of them empty. */
static bool segs_valid(const struct mdapl_dapl_segs *segs, uint64_t len)
{
    for (uint32_t i = 0; i < segs->n; i++) {
        if (segs->seg[i].len == 0 || segs->seg[i].len > len)
            return false;
        len -= segs->seg[i].len;
    }
    return segs->n == 0 || len == 0;
}

#define BARE(...)
#define FRAME(number, NAME, name, ...) \
    _Static_assert(MDAPL_##NAME##_BYTES <= 28, "MDAPL_FIELDS_MAX");
#include "frames.def"

/* Are the values of the fields possible? rest: bytes behind them. */

static bool rts_valid(const struct mdapl_dapl_rts *r, size_t rest)
{
    return rest == 0 && r->body_len > 0 && segs_valid(&r->at, r->body_len);
}

static bool cts_valid(const struct mdapl_dapl_cts *c, size_t rest)
{
    return rest == 0 && c->len > 0 && c->off + c->len > c->off && segs_valid(&c->to, c->len);
}

static bool data_valid(const struct mdapl_dapl_data *d, size_t rest)
{
    (void)d;
    return rest > 0;
}

static bool fin_valid(const struct mdapl_dapl_fin *f, size_t rest)
{
    return rest == 0 && f->status <= MDAPL_FIN_DROPPED;
}

static bool ring_given_valid(const struct mdapl_dapl_ring_given *r, size_t rest)
{
    return rest == 0 && r->addr % 8 == 0 && r->slots > 0 && r->slot_bytes % 8 == 0
           && r->slot_bytes >= 64 && r->slot_bytes <= 65536 && r->tag <= UINT16_MAX;
}

static bool word_valid(const struct mdapl_dapl_word *w, size_t rest)
{
    return rest == 0 && w->addr % 8 == 0;
}

static bool written_valid(const struct mdapl_dapl_written *w, size_t rest)
{
    for (uint32_t i = 0; i < w->done.n; i++)
        if (w->done.range[i].off + w->done.range[i].len <= w->done.range[i].off)
            return false;
    return rest == 0 && w->done.n > 0 && w->stream < MDAPL_MAX_STREAMS;
}

static bool ended_valid(const struct mdapl_dapl_ended *e, size_t rest)
{
    return rest == 0 && e->stream < MDAPL_MAX_STREAMS && e->epoch > 0;
}

static bool drained_valid(const struct mdapl_dapl_drained *d, size_t rest)
{
    return rest == 0 && d->stream < MDAPL_MAX_STREAMS && d->epoch > 0;
}

static bool head_valid(const struct mdapl_dapl_head *h, size_t rest)
{
    return rest > 0 && h->body_len > rest && h->body_len <= MDAPL_PARTS_MAX;
}

static bool more_valid(const struct mdapl_dapl_more *m, size_t rest)
{
    return rest > 0 && m->left >= rest && m->left <= MDAPL_PARTS_MAX;
}

#define BARE(...)
#define FRAME(number, NAME, name, psn, envelope, fields, tail)             \
    size_t mdapl_dapl_##name##_put(const struct mdapl_dapl_##name *b, uint8_t *out)  \
    {                                                                      \
        uint8_t *p = out;                                                  \
                                                                           \
        fields                                                             \
        return (size_t)(p - out);                                          \
    }
#define U32(member) mdapl_put32(p, b->member), p += 4;
#define U64(member) mdapl_put64(p, b->member), p += 8;
#define ID(member) mdapl_put32(p, b->member), p += 4;
#define ADDR(member) mdapl_put64(p, b->member), p += 8;
#define SEGS(member) p = put_segs(&b->member, p);
#define RANGES(member) p = put_ranges(&b->member, p);
#include "frames.def"

#define BARE(...)
#define FRAME(number, NAME, name, psn, envelope, fields, tail)                  \
    bool mdapl_dapl_##name##_get(struct mdapl_dapl_##name *b, const void *in, size_t len) \
    {                                                                           \
        const uint8_t *p = in, *end = p + len;                                  \
                                                                                \
        if (len < MDAPL_##NAME##_BYTES)                                         \
            return false;                                                       \
        fields                                                                  \
        return name##_valid(b, (size_t)(end - p));                              \
    }
#define U32(member) b->member = mdapl_get32(p), p += 4;
#define U64(member) b->member = mdapl_get64(p), p += 8;
#define ID(member) b->member = mdapl_get32(p), p += 4;
#define ADDR(member) b->member = mdapl_get64(p), p += 8;
#define LISTED(get, member)                \
    p = get(&b->member, p, end);           \
    if (!p)                                \
        return false;
#define SEGS(member) LISTED(get_segs, member)
#define RANGES(member) LISTED(get_ranges, member)
#include "frames.def"
