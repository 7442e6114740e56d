/* SPDX-License-Identifier: MIT */
#include "frames.h"

#include "log.h"
#include "peer.h"
#include "wire.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { TEXT_BYTES = 640 };

struct text {
    char *at;
    size_t room;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What does not fit is cut. */
static void add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(t->at, t->room, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n >= t->room)
        n = t->room > 0 ? (int)t->room - 1 : 0;
    t->at += n;
    t->room -= (size_t)n;
}

static void add_segs(struct text *t, const char *name, const struct mdapl_dapl_segs *segs)
{
    add(t, " %s %u", name, segs->n);
    for (uint32_t k = 0; segs->n > 0 && k < segs->n_rails; k++)
        add(t, "%s%" PRIu32, k > 0 ? "," : " of ", segs->generation[k]);
    for (uint32_t i = 0; i < segs->n; i++) {
        add(t, " (%#" PRIx64 " %" PRIu64, segs->seg[i].addr, segs->seg[i].len);
        for (uint32_t k = 0; k < segs->n_rails; k++)
            add(t, " %#" PRIx32, segs->seg[i].key[k]);
        add(t, ")");
    }
}

static void add_ranges(struct text *t, const char *name, const struct mdapl_dapl_ranges *ranges)
{
    add(t, " %s %u", name, ranges->n);
    for (uint32_t i = 0; i < ranges->n; i++)
        add(t, " (%" PRIu64 " %" PRIu64 ")", ranges->range[i].off, ranges->range[i].len);
}

/* add_rts() and so on: the fields of a frame. */
#define BARE(...)
#define FRAME(number, NAME, name, psn, envelope, fields, tail)              \
    static void add_##name(struct text *t, const uint8_t *p, size_t len)    \
    {                                                                       \
        struct mdapl_dapl_##name b;                                              \
                                                                            \
        if (!mdapl_dapl_##name##_get(&b, p, len)) {                              \
            add(t, " impossible");                                          \
            return;                                                         \
        }                                                                   \
        fields                                                              \
    }
#define U32(member) add(t, " " #member " %" PRIu32, b.member);
#define U64(member) add(t, " " #member " %" PRIu64, b.member);
#define ID(member) add(t, " " #member " %#" PRIx32, b.member);
#define ADDR(member) add(t, " " #member " %#" PRIx64, b.member);
#define SEGS(member) add_segs(t, #member, &b.member);
#define RANGES(member) add_ranges(t, #member, &b.member);
#include "frames.def"

static void (*const add_fields[MDAPL_FRAME_TYPES])(struct text *, const uint8_t *, size_t) = {
#define BARE(...)
#define FRAME(number, NAME, name, ...) [number] = add_##name,
#include "frames.def"
};

void mdapl_dapl_frame_text(const void *frame, size_t len, char *text, size_t room)
{
    struct text t = { text, room };
    const uint8_t *p = frame;
    struct mdapl_dapl_frame f;

    if (!mdapl_dapl_frame_get(&f, frame, len)) {
        add(&t, "no frame: %zu bytes", len);
        for (size_t i = 0; i < len && i < MDAPL_FRAME_HDR_BYTES; i++)
            add(&t, " %02x", p[i]);
        return;
    }
    add(&t, "%s%s%s psn %" PRIu32 " ack %" PRIu32 " limits %" PRIu32 " %" PRIu32,
        mdapl_dapl_frame_name(f.type), f.flags & MDAPL_FRAME_STALLED ? " STALLED" : "",
        f.flags & MDAPL_FRAME_ASKS ? " ASKS" : "", f.psn, f.ack, f.sr_limit, f.ring_limit);
    if (f.hdr_len > 0)
        add(&t, " envelope %u", f.hdr_len);
    add(&t, " len %" PRIu32, f.len);
    if (add_fields[f.type])
        add_fields[f.type](&t, p + MDAPL_FRAME_HDR_BYTES + f.hdr_len, f.len);
}

void mdapl_dapl_frame_log(const struct mdapl_dapl_peer *peer, const char *way, const void *frame,
                          size_t len)
{
    char text[TEXT_BYTES];

    mdapl_dapl_frame_text(frame, len, text, sizeof(text));
    mdapl_log(mdapl_ctx_log(peer->d->ctx), MDAPL_FRAME, "%s rank %d %s", way, peer->base.rank,
              text);
}
