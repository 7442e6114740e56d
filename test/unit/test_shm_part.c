/* SPDX-License-Identifier: MIT */
/*
 * Bodies in parts: what their receiver does when some parts have arrived and others have not. The
 * sender writes all parts in one call, so the test writes them itself where that matters.
 */
#include "shm_ranks.h"

#include "bytes.h"
#include "min.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BODIES = 4000, SEED = 20261125 };

/* A body that is being written in parts. */
struct body {
    struct rank *from;
    uint32_t number, off;
    size_t len, at;              /* bytes: all, written */
};

static struct mdapl_shm_spsc_tx *tx_of(const struct rank *me)
{
    return &mdapl_shm_peer_of(me->other)->tx;
}

static struct body begin(struct rank *from, uint32_t number, size_t len)
{
    struct body b = { .from = from, .number = number, .len = len };

    fill_source(len, number);
    assert_true(mdapl_shm_tx_open(mdapl_shm_peer_of(from->other)));
    assert_true(mdapl_shm_spsc_reserve_parts(tx_of(from), len, mdapl_shm_parts(len), &b.off));
    return b;
}

/* Writes the next part, of n bytes, behind a header that says that the body has `all`. */
static void write_part_as(struct body *b, size_t n, uint64_t all)
{
    struct {
        struct mdapl_shm_head head;
        uint32_t number;
    } h = { { all }, b->number };
    size_t hdr_len = b->at == 0 ? sizeof(h.head) + sizeof(h.number) : 0;
    struct mdapl_shm_spsc_msg m;

    mdapl_shm_spsc_part(tx_of(b->from), b->off + (uint32_t)b->at, hdr_len, n, &m);
    memcpy(m.hdr, &h, hdr_len);
    memcpy(m.body, source + b->at, n);
    mdapl_shm_spsc_publish(tx_of(b->from), &m, b->at == 0 ? MDAPL_SHM_HEAD : MDAPL_SHM_MORE,
                           mdapl_shm_peer_of(b->from->other)->rx.taken);
    b->at += n;
}

static void write_part(struct body *b)
{
    write_part_as(b, mdapl_min(mdapl_shm_part_len(b->len), b->len - b->at), b->len);
}

/* Opens the ring and has it polled. */
static void open_ring(struct pair *p)
{
    ranks_use_ring(&p->rank[0]);
    assert_int_equal(send_now(&p->rank[0], 0, 8), MDAPL_DONE);
    rounds(&p->rank[1], 2);
    p->rank[1].n_announced = 0;
}

/* The first part of a body arrives at rank 1 in a ring that is polled. */
static struct body begin_in(struct pair *p, size_t len)
{
    struct body b;

    open_ring(p);
    b = begin(&p->rank[0], 1, len);
    write_part(&b);
    rounds(&p->rank[1], 1);
    return b;
}

static int read_to_sink(struct mdapl_rx *rx, size_t len, struct sending *r)
{
    struct iovec v[2] = { { sink, 1000 }, { sink + 1000, len - 1000 } };

    *r = (struct sending){ .op.done = ranks_done };
    return mdapl_rx_read(rx, v, 2, &r->op);
}

/* A next message is announced, so nothing of the one before is left. */
static void next_arrives(struct rank *a, struct rank *b)
{
    int n = b->n_announced;

    assert_int_equal(send_now(a, 77, 8), MDAPL_DONE);
    rounds(b, 1);
    assert_int_equal(b->n_announced, n + 1);
    assert_int_equal(b->announced[n].number, 77);
    assert_int_equal(b->n_faults, 0);
}

/* -- the sender ------------------------------------------------------------------------------- */

/* Parts are whole lines, none fits into a slot, and there are as many as the channel says. */
static void sizes(void **state)
{
    (void)state;
    for (size_t len = MDAPL_SHM_WHOLE + 1; len <= MDAPL_SHM_EAGER; len++) {
        size_t n = mdapl_shm_parts(len), size = mdapl_shm_part_len(len);

        assert_int_equal(size % MDAPL_LINE_BYTES, 0);
        assert_true(n > 1 && (n - 1) * size + MDAPL_SLOT_ROOM < len && len <= n * size);
    }
}

/* A body is written with all its parts or not at all, and waits with what is behind it. */
static void all_or_nothing(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending s = { .op.done = ranks_done };
    size_t len = longest_in_ring(a);
    uint32_t n = 0;

    fill_source(len, 3);
    while (n < MDAPL_SLOTS - mdapl_shm_parts(len) + 1)
        assert_int_equal(send_now(a, n++, 8), MDAPL_DONE);
    assert_int_equal(send_now(a, n, len), -EAGAIN);
    assert_int_equal(send_op(a, n++, len, false, &s.op), 0);
    assert_int_equal(send_now(a, n, 8), -EAGAIN);
    rounds(b, MDAPL_SLOTS);
    rounds(a, 1);
    assert_int_equal(s.done, 1);
    rounds(b, 1);
    assert_int_equal(b->n_announced, n);
    assert_memory_equal(source, sink, len);
    next_arrives(a, b);
}

/* -- the receiver ----------------------------------------------------------------------------- */

/* The owner reads when k parts have arrived: with all it is one message in place. */
static void read_after_some(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending r;

    open_ring(p);
    for (size_t k = 1; k <= mdapl_shm_parts(MDAPL_SHM_EAGER); k++) {
        struct body body = begin(a, (uint32_t)k, MDAPL_SHM_EAGER);
        bool whole = k == mdapl_shm_parts(body.len);

        write_part(&body);
        for (size_t i = 1; i < k; i++) {
            rounds(b, whole ? 0 : 1);
            write_part(&body);
        }
        rounds(b, 1);
        assert_int_equal(last_rx(b) == NULL, whole);
        if (!whole) {
            assert_int_equal(read_to_sink(last_rx(b), body.len, &r), 0);
            while (body.at < body.len) {
                assert_int_equal(r.done, 0);
                write_part(&body);
                rounds(b, 1);
            }
            assert_true(r.done == 1 && r.status == 0);
        }
        assert_memory_equal(source, sink, body.len);
        next_arrives(a, b);
    }
}

/* What has been kept is read when the sender has long been gone. */
static void read_at_last(void **state)
{
    struct pair *p = *state;
    struct rank *b = &p->rank[1];
    struct body body = begin_in(p, 50000);
    struct sending r;

    while (body.at < body.len) {
        write_part(&body);
        rounds(b, 1);
    }
    mdapl_shm_peer_fail(mdapl_shm_peer_of(b->other), -ECONNRESET, "test");
    assert_int_equal(read_to_sink(last_rx(b), body.len, &r), MDAPL_DONE);
    assert_memory_equal(source, sink, body.len);
}

/* The sender is lost in the middle of a body: the read in progress fails, and the next one. */
static void lost_in_the_middle(void **state)
{
    struct pair *p = *state;
    struct rank *b = &p->rank[1];
    struct body body = begin_in(p, 50000);
    struct sending r;

    assert_int_equal(read_to_sink(last_rx(b), body.len, &r), 0);
    mdapl_shm_peer_fail(mdapl_shm_peer_of(b->other), -ECONNRESET, "test");
    assert_true(r.done == 1 && r.status == -ECONNRESET);
    assert_int_equal(read_to_sink(last_rx(b), body.len, &r), -ECONNRESET);
    assert_int_equal(r.done, 0);
    mdapl_rx_drop(last_rx(b));
}

/* While the owner holds, the message behind a body in parts is queued. */
static void held_until_its_end(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct body body;
    struct sending r;

    open_ring(p);
    b->next = MDAPL_NEXT_HOLD;
    body = begin(a, 1, 40000);
    write_part(&body);
    rounds(b, 1);
    while (body.at < body.len)
        write_part(&body);
    assert_int_equal(send_now(a, 2, 8), MDAPL_DONE);
    rounds(b, 3);
    assert_int_equal(b->n_announced, 1);
    assert_int_equal(stats(b)->parked, 1);
    assert_int_equal(read_to_sink(last_rx(b), body.len, &r), MDAPL_DONE);
    rounds(b, 1);
    assert_int_equal(b->n_announced, 2);
}

/* A body that is read in pieces of random lengths, the next one in op->done or later; at times the
 * rest is dropped. */
static struct random_read {
    struct mdapl_op op;
    struct mdapl_rx *rx;
    size_t left, at;
    bool drops, reading;
} random_read;

static void read_random(struct random_read *r)
{
    while (r->left > 0 && rand() % 3 > 0) {
        size_t n = 1 + (size_t)rand() % r->left;
        struct iovec v = { sink + r->at, n };
        int rc;

        if (r->drops && rand() % 4 == 0) {
            mdapl_rx_drop(r->rx);
            r->left = 0;
            return;
        }
        r->at += n;
        r->left -= n;
        rc = mdapl_rx_read(r->rx, &v, 1, &r->op);
        r->reading = rc == 0;
        if (r->reading)
            return;
        assert_int_equal(rc, MDAPL_DONE);
    }
}

static void read_more(struct mdapl_op *op, int status)
{
    struct random_read *r = MDAPL_OF(op, struct random_read, op);

    assert_int_equal(status, 0);
    r->reading = false;
    read_random(r);
}

/* Parts arrive between reads of random lengths, at random times. */
static void any_order(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    size_t most = longest_in_ring(a) - MDAPL_SHM_WHOLE;

    srand(SEED);
    open_ring(p);
    for (uint32_t i = 0; i < BODIES; i++) {
        struct body body = begin(a, i, MDAPL_SHM_WHOLE + 1 + (size_t)rand() % most);
        struct random_read *r = &random_read;

        b->n_announced = 0;
        write_part(&body);
        rounds(b, 1);
        *r = (struct random_read){ .op.done = read_more, .rx = last_rx(b), .left = body.len,
                                   .drops = rand() % 3 == 0 };
        while (body.at < body.len || r->left > 0 || r->reading) {
            if (!r->reading && rand() % 3 == 0)
                read_random(r);
            if (body.at < body.len && rand() % 2 == 0)
                write_part(&body);
            rounds(b, rand() % 2);
        }
        rounds(b, (int)mdapl_shm_parts(body.len));
        assert_memory_equal(source, sink, r->at);
    }
    assert_int_equal(b->n_faults, 0);
}

/* -- a peer that breaks the protocol ---------------------------------------------------------- */

static void refused(struct rank *b)
{
    rounds(b, 2);
    assert_non_null(strstr(b->fault, "none of this protocol"));
    assert_int_equal(stats(b)->bad_frames, 1);
}

static void wrong_lengths(void **state)
{
    static const struct {
        size_t first;
        uint64_t all;
    } wrong[] = {
        { 16384, 0 }, { 16384, 16384 }, { 16384, MDAPL_SHM_EAGER + 1 }, { 16384, UINT64_MAX },
        { 16384, 65536 - 4096 }, { 8192, 65536 }, { 16384, (uint64_t)1 << 32 | 65536 },
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct pair *p;
        struct body body;

        if (i > 0)
            ranks_make_two(state);
        p = *state;
        open_ring(p);
        body = begin(&p->rank[0], 1, MDAPL_SHM_EAGER);
        write_part_as(&body, wrong[i].first, wrong[i].all);
        refused(&p->rank[1]);
        assert_int_equal(p->rank[1].n_announced, 0);
        if (i + 1 < sizeof(wrong) / sizeof(wrong[0]))
            ranks_unmake(state);
    }
}

static void more_than_announced(void **state)
{
    struct pair *p = *state;
    struct body body = begin_in(p, 40000);

    write_part_as(&body, 30000, 0);
    refused(&p->rank[1]);
    mdapl_rx_drop(last_rx(&p->rank[1]));
}

static void more_of_nothing(void **state)
{
    struct pair *p = *state;
    struct body body;

    open_ring(p);
    body = begin(&p->rank[0], 1, 40000);
    body.at = 64;
    write_part_as(&body, 20000, 0);
    refused(&p->rank[1]);
}

static void two_at_a_time(void **state)
{
    struct pair *p = *state;
    struct body two;

    begin_in(p, 40000);
    two = begin(&p->rank[0], 2, 40000);
    write_part(&two);
    refused(&p->rank[1]);
    assert_int_equal(p->rank[1].n_announced, 1);
    mdapl_rx_drop(last_rx(&p->rank[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes), TEST(all_or_nothing), TEST(read_after_some), TEST(read_at_last),
        TEST(lost_in_the_middle), TEST(held_until_its_end), TEST(any_order), TEST(wrong_lengths),
        TEST(more_than_announced), TEST(more_of_nothing), TEST(two_at_a_time),
    };

    return RUN(tests);
}
