/* SPDX-License-Identifier: MIT */
/* Every byte on the wire: round trips, what is refused, and the examples of src/dapl/PROTOCOL. */
#include "unit.h"

#include "contract.h"
#include "frames.h"
#include "siphash.h"
#include "x25519.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }

static const uint8_t key[16] = KEY;
/* The examples' job, whose rank 7 this is, and a group that has the same key with it. */
static const struct mdapl_group job = { .size = 8, .id = 0x01020304, .key = KEY };
static const struct mdapl_group other = { .size = 9, .id = 0x01020305, .key = KEY };
static const struct mdapl_name self = { 0x01020304, 7 };

/* Vectors of the reference implementation: key 00..0f, input 00 01 .. of the given length. */
static void siphash_vectors(void **state)
{
    static const struct { size_t len; uint8_t mac[16]; } row[] = {
        { 0, { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
               0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93 } },
        { 1, { 0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
               0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45 } },
    };
    uint8_t in[16], mac[16];

    (void)state;
    for (int i = 0; i < 16; i++)
        in[i] = (uint8_t)i;
    for (size_t i = 0; i < 2; i++) {
        mdapl_siphash(key, in, row[i].len, mac);
        assert_memory_equal(mac, row[i].mac, 16);
    }
    assert_true(mdapl_mac_equal(mac, mac));
    assert_false(mdapl_mac_equal(mac, key));
}

/* Vectors of RFC 7748: sections 6.1 (Bob's keys) and 5.2 (the first iteration). */
static void x25519_vectors(void **state)
{
    static const uint8_t nine[MDAPL_X25519_BYTES] = { 9 };
    static const uint8_t bob[MDAPL_X25519_BYTES] = {
        0x5d, 0xab, 0x08, 0x7e, 0x62, 0x4a, 0x8a, 0x4b, 0x79, 0xe1, 0x7f,
        0x8b, 0x83, 0x80, 0x0e, 0xe6, 0x6f, 0x3b, 0xb1, 0x29, 0x26, 0x18,
        0xb6, 0xfd, 0x1c, 0x2f, 0x8b, 0x27, 0xff, 0x88, 0xe0, 0xeb };
    static const uint8_t bobs_public[MDAPL_X25519_BYTES] = {
        0xde, 0x9e, 0xdb, 0x7d, 0x7b, 0x7d, 0xc1, 0xb4, 0xd3, 0x5b, 0x61,
        0xc2, 0xec, 0xe4, 0x35, 0x37, 0x3f, 0x83, 0x43, 0xc8, 0x5b, 0x78,
        0x67, 0x4d, 0xad, 0xfc, 0x7e, 0x14, 0x6f, 0x88, 0x2b, 0x4f };
    static const uint8_t once[MDAPL_X25519_BYTES] = {
        0x42, 0x2c, 0x8e, 0x7a, 0x62, 0x27, 0xd7, 0xbc, 0xa1, 0x35, 0x0b,
        0x3e, 0x2b, 0xb7, 0x27, 0x9f, 0x78, 0x97, 0xb8, 0x7b, 0xb6, 0x85,
        0x4b, 0x78, 0x3c, 0x60, 0xe8, 0x03, 0x11, 0xae, 0x30, 0x79 };
    uint8_t out[MDAPL_X25519_BYTES], back[MDAPL_X25519_BYTES], mine[MDAPL_X25519_BYTES];

    (void)state;
    mdapl_x25519_public(out, bob);
    assert_memory_equal(out, bobs_public, sizeof(out));
    mdapl_x25519(out, nine, nine);
    assert_memory_equal(out, once, sizeof(out));
    memset(out, 0xff, sizeof(out));          /* above p, and with the bit that is ignored */
    mdapl_x25519(back, bob, out);
    memset(out, 0, sizeof(out));
    out[0] = 18;                             /* 2^255 - 1 modulo p */
    mdapl_x25519(out, bob, out);
    assert_memory_equal(out, back, sizeof(out));
    /* Both ends of a pair have the same key. */
    mdapl_x25519_public(mine, once);
    mdapl_x25519(out, bob, mine);
    mdapl_x25519(back, once, bobs_public);
    assert_memory_equal(out, back, sizeof(out));
}

static struct mdapl_dapl_hello hello(void)
{
    return (struct mdapl_dapl_hello){ .stream = 3,
                                      .group = 0x01020304,
                                      .dst_group = 0x01020304,
                                      .src = 2,
                                      .dst = 7,
                                      .epoch = 1,
                                      .incarnation = 0xaabbccdd,
                                      .met = 0x99887766,
                                      .rx_next = 0x11223344,
                                      .frame_bytes = 8192,
                                      .sr_window = 16,
                                      .offers = MDAPL_HELLO_RETAINS };
}

static enum mdapl_dapl_hello_verdict get(const uint8_t *raw, size_t len)
{
    struct mdapl_dapl_hello h;

    return mdapl_dapl_hello_get(&h, raw, len, &job, self);
}

static void hello_round_trip(void **state)
{
    struct mdapl_dapl_hello in = hello(), out;
    uint8_t raw[MDAPL_HELLO_BYTES + 8] = { 0 };

    (void)state;
    mdapl_dapl_hello_put(&in, key, raw);
    memset(&out, 0, sizeof(out));
    assert_int_equal(mdapl_dapl_hello_group(raw, sizeof(raw)), 0x01020304);
    assert_int_equal(mdapl_dapl_hello_get(&out, raw, sizeof(raw), &job, self), MDAPL_HELLO_OK);
    assert_int_equal(out.group, 0x01020304);
    assert_int_equal(out.src, 2);
    assert_int_equal(out.dst, 7);
    assert_int_equal(out.epoch, 1);
    assert_int_equal(out.stream, 3);
    assert_int_equal(out.flags, 0);
    assert_int_equal(out.incarnation, 0xaabbccdd);
    assert_int_equal(out.met, 0x99887766);
    assert_int_equal(out.rx_next, 0x11223344);
    assert_int_equal(out.frame_bytes, 8192);
    assert_int_equal(out.sr_window, 16);
    assert_int_equal(out.offers, MDAPL_HELLO_RETAINS);
}

static void hello_verdicts(void **state)
{
    struct mdapl_dapl_hello h = hello();
    uint8_t raw[MDAPL_HELLO_BYTES], bad[MDAPL_HELLO_BYTES];
    const struct { size_t at; enum mdapl_dapl_hello_verdict verdict; } flip[] = {
        { 0, MDAPL_HELLO_NOT_OURS }, { 2, MDAPL_HELLO_OTHER_VERSION }, { 3, MDAPL_HELLO_BAD_MAC },
        { 4, MDAPL_HELLO_UNKNOWN_GROUP }, { 8, MDAPL_HELLO_BAD_MAC }, { 39, MDAPL_HELLO_BAD_MAC },
        { 40, MDAPL_HELLO_BAD_MAC }, { 55, MDAPL_HELLO_BAD_MAC },
    };

    (void)state;
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(get(raw, 55), MDAPL_HELLO_SHORT);
    assert_int_equal(get(raw, 0), MDAPL_HELLO_SHORT);
    for (size_t i = 0; i < sizeof(flip) / sizeof(flip[0]); i++) {
        memcpy(bad, raw, sizeof(bad));
        bad[flip[i].at] ^= 0x40;
        assert_int_equal(get(bad, sizeof(bad)), flip[i].verdict);
    }
    h.src = 8;                               /* no such rank */
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(get(raw, sizeof(raw)), MDAPL_HELLO_BAD_RANK);
    h.src = 7;                               /* myself */
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(get(raw, sizeof(raw)), MDAPL_HELLO_BAD_RANK);
    h.src = 2, h.dst = 6;                    /* for another rank */
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(get(raw, sizeof(raw)), MDAPL_HELLO_BAD_RANK);
    h = hello();
    h.frame_bytes = MDAPL_FRAME_MIN - 1;
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(get(raw, sizeof(raw)), MDAPL_HELLO_BAD_SIZE);
    h.frame_bytes = MDAPL_FRAME_MIN;
    h.sr_window = MDAPL_WINDOW_MIN - 1;
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(get(raw, sizeof(raw)), MDAPL_HELLO_BAD_SIZE);
    for (int v = 0; v <= MDAPL_HELLO_BAD_SIZE; v++)
        assert_non_null(mdapl_dapl_hello_verdict_text(v));
}

/* Ranks are those of their own groups, and a hello to one group is none to another. */
static void hello_between_groups(void **state)
{
    static const struct mdapl_name third = { 0x01020306, 7 };
    static const struct mdapl_group changed = { .size = 9, .id = 0x01020305, .key = "another" };
    struct mdapl_dapl_hello h = hello(), out;
    uint8_t raw[MDAPL_HELLO_BYTES];

    (void)state;
    h.group = other.id, h.src = 8;
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(mdapl_dapl_hello_group(raw, sizeof(raw)), other.id);
    assert_int_equal(mdapl_dapl_hello_group(raw, sizeof(raw) - 1), 0);
    assert_int_equal(mdapl_dapl_hello_get(&out, raw, sizeof(raw), &other, self), MDAPL_HELLO_OK);
    assert_int_equal(out.group, other.id);
    assert_int_equal(mdapl_dapl_hello_get(&out, raw, sizeof(raw), NULL, self),
                     MDAPL_HELLO_UNKNOWN_GROUP);
    assert_int_equal(mdapl_dapl_hello_get(&out, raw, sizeof(raw), &job, self),
                     MDAPL_HELLO_UNKNOWN_GROUP);
    assert_int_equal(mdapl_dapl_hello_get(&out, raw, sizeof(raw), &changed, self),
                     MDAPL_HELLO_BAD_MAC);
    assert_int_equal(mdapl_dapl_hello_get(&out, raw, sizeof(raw), &other, third),
                     MDAPL_HELLO_BAD_MAC);
    h.src = 7;                               /* the same rank as the receiver's */
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(mdapl_dapl_hello_get(&out, raw, sizeof(raw), &other, self), MDAPL_HELLO_OK);
    h.src = 9;
    mdapl_dapl_hello_put(&h, key, raw);
    assert_int_equal(mdapl_dapl_hello_get(&out, raw, sizeof(raw), &other, self),
                     MDAPL_HELLO_BAD_RANK);
}

static void frame_shapes(void **state)
{
    static const struct { struct mdapl_dapl_frame f; size_t extra; bool good; } row[] = {
        { { .type = MDAPL_FRAME_MSG }, 0, true },
        { { .type = MDAPL_FRAME_MSG, .hdr_len = 80, .len = 100 }, 0, true },
        { { .type = MDAPL_FRAME_MSG, .hdr_len = 129 }, 0, false },
        { { .type = MDAPL_FRAME_MSG, .hdr_len = 8 }, 1, false },
        { { .type = MDAPL_FRAME_MSG, .len = 0xffffffff }, 0, false },
        { { .type = MDAPL_FRAME_MSG, .flags = MDAPL_FRAME_STALLED }, 0, true },
        { { .type = MDAPL_FRAME_MSG, .flags = MDAPL_FRAME_STALLED | MDAPL_FRAME_ASKS }, 0, true },
        { { .type = MDAPL_FRAME_MSG, .flags = 4 }, 0, false },
        { { .type = 0 }, 0, false },
        { { .type = MDAPL_FRAME_TYPES }, 0, false },
        { { .type = MDAPL_FRAME_RTS, .len = 15 }, 0, false },
        { { .type = MDAPL_FRAME_RTS, .hdr_len = 80, .len = 16 }, 0, true },
        { { .type = MDAPL_FRAME_CTS, .len = 28 }, 0, true },
        { { .type = MDAPL_FRAME_CTS, .hdr_len = 1, .len = 28 }, 0, false },
        { { .type = MDAPL_FRAME_CTS, .len = 27 }, 0, false },
        { { .type = MDAPL_FRAME_WRITTEN, .len = 36 }, 0, true },
        { { .type = MDAPL_FRAME_WRITTEN, .len = 19 }, 0, false },
        { { .type = MDAPL_FRAME_DATA, .len = 15 }, 0, false },
        { { .type = MDAPL_FRAME_FIN, .len = 8 }, 0, true },
        { { .type = MDAPL_FRAME_ACK }, 0, true },
        { { .type = MDAPL_FRAME_ACK, .len = 1 }, 0, false },
        { { .type = MDAPL_FRAME_FIN, .len = 9 }, 0, false },
        { { .type = MDAPL_FRAME_RING, .len = 24 }, 0, true },
        { { .type = MDAPL_FRAME_RING, .len = 23 }, 0, false },
    };
    uint8_t raw[512] = { 0 };
    struct mdapl_dapl_frame got;

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        size_t len = MDAPL_FRAME_HDR_BYTES + row[i].f.hdr_len + row[i].f.len % 256 + row[i].extra;

        mdapl_dapl_frame_put(&row[i].f, raw);
        if (mdapl_dapl_frame_get(&got, raw, len) != row[i].good)
            fail_msg("row %zu", i);
    }
    assert_false(mdapl_dapl_frame_get(&got, raw, 23));
}

static void rts_shapes(void **state)
{
    struct mdapl_dapl_rts in = { .body_len = 30, .tx_id = 5,
                            .at = { 2, 2, { 8, 9 }, { { 0x1000, 10, { 1, 3 } },
                                                      { 0x9000, 20, { 2, 4 } } } } }, out;
    uint8_t raw[512];
    size_t len = mdapl_dapl_rts_put(&in, raw);

    (void)state;
    assert_int_equal(len, MDAPL_RTS_BYTES + 2 * 4 + 2 * (MDAPL_SEG_BYTES + 2 * 4));
    assert_true(mdapl_dapl_rts_get(&out, raw, len));
    assert_int_equal(out.at.seg[1].addr, 0x9000);
    assert_int_equal(out.at.seg[1].key[0], 2);
    assert_int_equal(out.at.seg[0].key[1], 3);
    assert_true(out.at.generation[0] == 8 && out.at.generation[1] == 9);
    assert_false(mdapl_dapl_rts_get(&out, raw, len - 1));
    assert_false(mdapl_dapl_rts_get(&out, raw, 15));
    in.body_len = 29;                        /* the pieces are more than the body */
    assert_false(mdapl_dapl_rts_get(&out, raw, mdapl_dapl_rts_put(&in, raw)));
    in.body_len = 31;                        /* or less */
    assert_false(mdapl_dapl_rts_get(&out, raw, mdapl_dapl_rts_put(&in, raw)));
    in = (struct mdapl_dapl_rts){ .body_len = UINT64_MAX,
                             .at = { 2, 1, { 1 }, { { 0, UINT64_MAX, { 1 } }, { 0, 1, { 2 } } } } };
    assert_false(mdapl_dapl_rts_get(&out, raw, mdapl_dapl_rts_put(&in, raw)));
    in = (struct mdapl_dapl_rts){ .body_len = 0 };
    assert_false(mdapl_dapl_rts_get(&out, raw, mdapl_dapl_rts_put(&in, raw)));
    in = (struct mdapl_dapl_rts){ .body_len = 7 };
    assert_true(mdapl_dapl_rts_get(&out, raw, mdapl_dapl_rts_put(&in, raw)));
    memset(raw + 12, 0xff, 4);               /* more pieces than there may be */
    assert_false(mdapl_dapl_rts_get(&out, raw, sizeof(raw)));
    in = (struct mdapl_dapl_rts){ .body_len = 9, .at = { .n = 1, .seg = { { 0, 9, { 0 } } } } };
    assert_false(mdapl_dapl_rts_get(&out, raw, mdapl_dapl_rts_put(&in, raw))); /* of no rail */
}

static void small_shapes(void **state)
{
    struct mdapl_dapl_cts cts = { 1, 2, 3, 4, { 0 } };
    struct mdapl_dapl_written written = { 1, 2, 0, 7, { 2, { { 3, 4 }, { 9, 1 } } } };
    struct mdapl_dapl_data data = { 5, 6, 7 };
    struct mdapl_dapl_fin fin = { 8, MDAPL_FIN_DROPPED };
    struct mdapl_dapl_head head = { 10 };
    struct mdapl_dapl_more more = { 2 };
    uint8_t raw[64];
    size_t len;

    (void)state;
    assert_int_equal(mdapl_dapl_cts_put(&cts, raw), MDAPL_CTS_BYTES);
    assert_true(mdapl_dapl_cts_get(&cts, raw, MDAPL_CTS_BYTES));
    assert_int_equal(cts.len, 4);
    assert_false(mdapl_dapl_cts_get(&cts, raw, MDAPL_CTS_BYTES + 1));
    cts.to = (struct mdapl_dapl_segs){ 1, 1, { 1 }, { { 0x1000, 4, { 7 } } } };
    assert_int_equal(mdapl_dapl_cts_put(&cts, raw), MDAPL_CTS_BYTES + 4 + MDAPL_SEG_BYTES + 4);
    assert_true(mdapl_dapl_cts_get(&cts, raw, MDAPL_CTS_BYTES + 4 + MDAPL_SEG_BYTES + 4));
    assert_int_equal(cts.to.seg[0].key[0], 7);
    cts.to.seg[0].len = 3;                   /* less room than requested */
    assert_false(mdapl_dapl_cts_get(&cts, raw, mdapl_dapl_cts_put(&cts, raw)));
    cts = (struct mdapl_dapl_cts){ 1, 2, 3, 0, { 0 } };
    mdapl_dapl_cts_put(&cts, raw);
    assert_false(mdapl_dapl_cts_get(&cts, raw, MDAPL_CTS_BYTES));
    cts = (struct mdapl_dapl_cts){ 1, 2, UINT64_MAX, 2, { 0 } };
    mdapl_dapl_cts_put(&cts, raw);
    assert_false(mdapl_dapl_cts_get(&cts, raw, MDAPL_CTS_BYTES));
    mdapl_dapl_data_put(&data, raw);
    assert_false(mdapl_dapl_data_get(&data, raw, MDAPL_DATA_BYTES)); /* no bytes */
    assert_true(mdapl_dapl_data_get(&data, raw, MDAPL_DATA_BYTES + 1));
    assert_int_equal(data.off, 7);
    mdapl_dapl_head_put(&head, raw);
    assert_false(mdapl_dapl_head_get(&head, raw, MDAPL_HEAD_BYTES)); /* no bytes */
    assert_true(mdapl_dapl_head_get(&head, raw, MDAPL_HEAD_BYTES + 9));
    assert_int_equal(head.body_len, 10);
    assert_false(mdapl_dapl_head_get(&head, raw, MDAPL_HEAD_BYTES + 10)); /* all of the body */
    head.body_len = MDAPL_PARTS_MAX + 1;
    assert_false(mdapl_dapl_head_get(&head, raw, mdapl_dapl_head_put(&head, raw) + 1));
    mdapl_dapl_more_put(&more, raw);
    assert_false(mdapl_dapl_more_get(&more, raw, MDAPL_MORE_BYTES));
    assert_true(mdapl_dapl_more_get(&more, raw, MDAPL_MORE_BYTES + 2));
    assert_int_equal(more.left, 2);
    assert_false(mdapl_dapl_more_get(&more, raw, MDAPL_MORE_BYTES + 3)); /* more than is left */
    len = mdapl_dapl_written_put(&written, raw);
    assert_int_equal(len, MDAPL_WRITTEN_BYTES + 2 * MDAPL_RANGE_BYTES);
    assert_true(mdapl_dapl_written_get(&written, raw, len));
    assert_true(written.done.range[1].off == 9 && written.done.range[1].len == 1);
    assert_false(mdapl_dapl_written_get(&written, raw, len - 1));
    written.stream = MDAPL_MAX_STREAMS;      /* there is no such one */
    assert_false(mdapl_dapl_written_get(&written, raw, mdapl_dapl_written_put(&written, raw)));
    written.stream = 0;
    written.done.range[0].len = 0;           /* nothing has been written */
    assert_false(mdapl_dapl_written_get(&written, raw, mdapl_dapl_written_put(&written, raw)));
    written.done.range[0] = (struct mdapl_dapl_range){ UINT64_MAX, 2 };
    assert_false(mdapl_dapl_written_get(&written, raw, mdapl_dapl_written_put(&written, raw)));
    written.done.n = 0;
    assert_false(mdapl_dapl_written_get(&written, raw, mdapl_dapl_written_put(&written, raw)));
    memset(raw + 16, 0xff, 4);               /* more ranges than there may be */
    assert_false(mdapl_dapl_written_get(&written, raw, MDAPL_WRITTEN_BYTES));
    mdapl_dapl_fin_put(&fin, raw);
    assert_true(mdapl_dapl_fin_get(&fin, raw, MDAPL_FIN_BYTES));
    fin.status = 2;
    mdapl_dapl_fin_put(&fin, raw);
    assert_false(mdapl_dapl_fin_get(&fin, raw, MDAPL_FIN_BYTES));
}

/* -- the examples of PROTOCOL ----------------------------------------------------------------- */

static size_t hex(const char *text, uint8_t *out)
{
    size_t n = 0;
    unsigned v;

    for (const char *p = text; *p; p++)
        if (p[0] != ' ' && p[0] != '\n' && sscanf(p, "%2x", &v) == 1) {
            out[n++] = (uint8_t)v;
            p++;
        }
    return n;
}

static FILE *open_protocol(void)
{
    char path[1024];
    FILE *f;

    snprintf(path, sizeof(path), "%s/src/dapl/PROTOCOL",
             getenv("top_srcdir") ? getenv("top_srcdir") : ".");
    f = fopen(path, "r");
    assert_non_null(f);
    return f;
}

/* A hello parses, a frame parses and is shown as the line behind it says; each type has a frame. */
static void protocol_examples(void **state)
{
    int hellos = 0, frames[MDAPL_FRAME_TYPES] = { 0 };
    uint8_t raw[256], again[256];
    char line[1024], text[512] = "";
    FILE *f = open_protocol();

    (void)state;
    while (fgets(line, sizeof(line), f)) {
        struct mdapl_dapl_frame frame;
        size_t len;

        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "hex hello ", 10) == 0) {
            assert_int_equal(hex(line + 10, raw), MDAPL_HELLO_BYTES);
            assert_int_equal(get(raw, MDAPL_HELLO_BYTES), MDAPL_HELLO_OK);
            hellos++;
        } else if (strncmp(line, "hex frame ", 10) == 0) {
            assert_string_equal(text, "");
            len = hex(line + 10, raw);
            assert_true(mdapl_dapl_frame_get(&frame, raw, len));
            mdapl_dapl_frame_put(&frame, again);
            assert_memory_equal(again, raw, MDAPL_FRAME_HDR_BYTES);
            mdapl_dapl_frame_text(raw, len, text, sizeof(text));
            frames[frame.type]++;
        } else if (strncmp(line, "text ", 5) == 0) {
            assert_string_equal(line + 5, text);
            text[0] = 0;
        }
    }
    fclose(f);
    assert_int_equal(hellos, 1);
    for (uint8_t type = 1; type < MDAPL_FRAME_TYPES; type++)
        if (frames[type] == 0)
            fail_msg("PROTOCOL has no %s", mdapl_dapl_frame_name(type));
}

/* What is no frame, or does not fit, is shown as well. */
static void frames_as_text(void **state)
{
    struct mdapl_dapl_frame f = { .type = MDAPL_FRAME_FIN, .psn = 1, .len = 8 };
    uint8_t raw[MDAPL_FRAME_HDR_BYTES + 8] = { 0 };
    char text[64];

    (void)state;
    mdapl_dapl_frame_text("\x01\xff", 2, text, sizeof(text));
    assert_string_equal(text, "no frame: 2 bytes 01 ff");
    mdapl_dapl_frame_put(&f, raw);
    raw[MDAPL_FRAME_HDR_BYTES + 4] = 9;      /* its status */
    mdapl_dapl_frame_text(raw, sizeof(raw), text, sizeof(text));
    assert_string_equal(text, "FIN psn 1 ack 0 limits 0 0 len 8 impossible");
    mdapl_dapl_frame_text(raw, sizeof(raw), text, 10);
    assert_string_equal(text, "FIN psn 1");
    for (int type = 0; type < 256; type++)
        assert_true((mdapl_dapl_frame_name((uint8_t)type)[0] == '?')
                    == (type == 0 || type >= MDAPL_FRAME_TYPES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siphash_vectors),
        cmocka_unit_test(x25519_vectors),
        cmocka_unit_test(hello_round_trip),
        cmocka_unit_test(hello_verdicts),
        cmocka_unit_test(hello_between_groups),
        cmocka_unit_test(frame_shapes),
        cmocka_unit_test(rts_shapes),
        cmocka_unit_test(small_shapes),
        cmocka_unit_test(protocol_examples),
        cmocka_unit_test(frames_as_text),
    };

    return RUN(tests);
}
