/* SPDX-License-Identifier: MIT */
/* The pair buffer: bodies that answer each other are stored in one place, by turns. */
#include "shm_ranks.h"

#include "bytes.h"
#include "min.h"
#include "store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 20261127, BODIES = 3000, SOME = 50000 };

static struct mdapl_shm_peer *peer_of(const struct rank *me)
{
    return mdapl_shm_peer_of(me->other);
}

static bool has_turn(const struct rank *me)
{
    return peer_of(me)->pair.turn;
}

static uint64_t in_pair(const struct rank *me)
{
    return stats(me)->shm_pair_bodies;
}

/* The two ranks, when each has sent a message; *a has the turn. */
static void meet(struct pair *p, struct rank **a, struct rank **b)
{
    bool second;

    for (int i = 0; i < 2; i++) {
        ranks_use_ring(&p->rank[i]);
        assert_int_equal(send_now(&p->rank[i], 0, 8), MDAPL_DONE);
        rounds(&p->rank[!i], 2);
        p->rank[!i].n_announced = 0;
    }
    if (mdapl_shm_os_inring_max() < 4 * MDAPL_PAIR_BYTES) {
        assert_false(has_turn(&p->rank[0]) || has_turn(&p->rank[1]));
        SKIP_TEST("inrings are small here: there are no pair buffers");
    }
    second = has_turn(&p->rank[1]);
    assert_true(has_turn(&p->rank[0]) != second);
    *a = &p->rank[second];
    *b = &p->rank[!second];
}

/* The owner of the last message reads its body, all of which has arrived. */
static void read_last(struct rank *me, size_t len)
{
    struct sending r = { .op.done = ranks_done };
    struct iovec v = { sink, len };

    if (last_rx(me))
        assert_int_equal(ranks_read(me, last_rx(me), &v, 1, &r.op), MDAPL_DONE);
    assert_memory_equal(source, sink, len);
}

static void send_and_read(struct rank *from, struct rank *to, uint32_t number, size_t len)
{
    fill_source(len, number);
    assert_int_equal(send_now(from, number, len), MDAPL_DONE);
    rounds(to, 1);
    assert_int_equal(to->announced[to->n_announced - 1].number, number);
    read_last(to, len);
    to->n_announced = 0;
}

/* Bodies that answer each other use no data of a ring. */
static void answers(void **state)
{
    static const size_t len[] = { MDAPL_SHM_WHOLE + 1, SOME, 65536, MDAPL_SHM_EAGER,
                                  MDAPL_SHM_EAGER + 1, MDAPL_PAIR_BYTES };
    struct rank *a, *b;

    meet(*state, &a, &b);
    for (uint32_t i = 0; i < 6 * (uint32_t)(sizeof(len) / sizeof(len[0])); i++) {
        struct rank *from = i % 2 ? b : a, *to = i % 2 ? a : b;

        assert_true(has_turn(from) && !has_turn(to));
        send_and_read(from, to, i, len[i / 6]);
        assert_true(!has_turn(from) && has_turn(to));
    }
    assert_int_equal(in_pair(a) + in_pair(b), 36);
    assert_true(peer_of(a)->tx.put == 0 && peer_of(b)->tx.put == 0);
}

/* Sends bodies of this length to and fro, a's first one with the turn; returns how many of them
 * used the pair buffer. */
static uint64_t to_and_fro(struct rank *a, struct rank *b, size_t len, uint32_t bodies)
{
    uint64_t before = in_pair(a) + in_pair(b);

    for (uint32_t i = 0; i < bodies; i++)
        send_and_read(i % 2 ? b : a, i % 2 ? a : b, i, len);
    return in_pair(a) + in_pair(b) - before;
}

/* Nor do short bodies, each in one message, if its slot's first line does not take it. */
static void short_answers(void **state)
{
    struct rank *a, *b;

    meet(*state, &a, &b);
    assert_int_equal(to_and_fro(a, b, MDAPL_LINE_ROOM - sizeof(uint64_t), 4), 0);
    assert_true(has_turn(a));
    assert_int_equal(to_and_fro(a, b, MDAPL_LINE_ROOM - sizeof(uint64_t) + 1, 4), 4);
    assert_int_equal(to_and_fro(a, b, MDAPL_BYTES_LONG - 1, 4), 4);
    assert_true(peer_of(a)->tx.put == 0 && peer_of(b)->tx.put == 0);
    assert_int_equal(peer_of(b)->rx.taken, 1 + 6);    /* and one in meet() */
}

/* Where ordinary stores into the ring are slow those into the pair buffer are not known to be
 * faster. So the ring has those that are measured, the first ones among them, and all of them if it
 * gets non-temporal stores. */
static void stores_that_are_measured(void **state)
{
    struct mdapl_shm_stored *k;
    struct rank *a, *b;
    uint64_t some;

    meet(*state, &a, &b);
    send_and_read(a, b, 1, MDAPL_SHM_WHOLE);
    send_and_read(b, a, 2, MDAPL_SHM_WHOLE);
    assert_true(has_turn(a));
    k = mdapl_shm_store_class(peer_of(a)->stores, MDAPL_SHM_WHOLE);
    k->left = mdapl_shm_store_class(peer_of(b)->stores, MDAPL_SHM_WHOLE)->left = 5;
    assert_int_equal(to_and_fro(a, b, MDAPL_SHM_WHOLE, 10), 10);
    assert_int_equal(k->left, 0);
    assert_int_equal(to_and_fro(a, b, MDAPL_SHM_WHOLE, 4), 0);
    assert_int_equal(k->samples, 2);
    assert_true(has_turn(a));
    k->left = 100;
    k->by = MDAPL_SHM_STORE_STREAM;
    some = in_pair(a);
    send_and_read(a, b, 3, MDAPL_SHM_WHOLE);
    assert_int_equal(in_pair(a), some);
}

/* In a stream the pair buffer is no help, and a body in it delays those behind it. */
static void no_answer(void **state)
{
    struct rank *a, *b;

    meet(*state, &a, &b);
    assert_int_equal(send_now(a, 1, 8), MDAPL_DONE);
    send_and_read(a, b, 2, 1000);
    assert_true(has_turn(a) && in_pair(a) == 0);
    assert_int_equal(send_now(b, 3, 8), MDAPL_DONE);
    rounds(a, 1);
    a->n_announced = 0;
    send_and_read(a, b, 4, 1000);
    assert_true(has_turn(b) && in_pair(a) == 1);
}

/* Bodies of the end without the turn are in its ring. */
static void others(void **state)
{
    struct rank *a, *b;

    meet(*state, &a, &b);
    send_and_read(b, a, 1, 1000);
    send_and_read(b, a, 2, SOME);
    assert_true(has_turn(a));
    send_and_read(a, b, 3, SOME);
    send_and_read(a, b, 4, SOME);
    assert_true(has_turn(b));
    assert_true(in_pair(a) == 1 && in_pair(b) == 0);
}

/* Two bodies on their way, the first one in the pair buffer: neither is stored over the other, and
 * the first may be read last. */
static void one_behind_the_other(void **state)
{
    struct rank *a, *b;

    meet(*state, &a, &b);
    fill_source(SOME, 5);
    assert_int_equal(send_now(a, 5, SOME), MDAPL_DONE);
    source[0]++;
    assert_int_equal(send_now(a, 6, SOME), MDAPL_DONE);
    rounds(b, 1);
    assert_true(b->n_announced == 1 && sink[0] == (char)(source[0] - 1));
    rounds(b, 1);
    assert_int_equal(b->n_announced, 2);
    assert_memory_equal(source, sink, SOME);
    assert_int_equal(in_pair(a), 1);
}

/* A body longer than the ring takes is sent at once with the turn, and is announced without it, or
 * if something is queued. */
static void longer_than_the_ring(void **state)
{
    struct sending s = { .op.done = ranks_done }, t = s;
    struct rank *a, *b;
    uint32_t n = 0;

    meet(*state, &a, &b);
    while (send_now(a, n, 8) == MDAPL_DONE)
        n++;
    assert_int_equal(send_op(a, n, MDAPL_PAIR_BYTES, false, &s.op), 0);
    assert_true(has_turn(a));
    rounds(b, MDAPL_SLOTS);
    rounds(a, 1);
    rounds(b, 1);
    assert_int_equal(stats(a)->tx_rndv, 1);
    mdapl_rx_drop(last_rx(b));
    rounds(a, 1);
    assert_true(s.done == 1 && s.status == -ECANCELED);
    send_and_read(a, b, ++n, MDAPL_PAIR_BYTES);
    assert_int_equal(send_op(a, ++n, MDAPL_PAIR_BYTES, false, &t.op), 0);
    assert_int_equal(stats(a)->tx_rndv, 2);
    rounds(b, 1);
    mdapl_rx_drop(last_rx(b));
    rounds(a, 1);
    assert_int_equal(t.done, 1);
}

/* ... nor with the turn while a body is under way by rendezvous, in either direction. */
static void longer_in_a_stream(void **state)
{
    struct rank *a, *b, *from;

    meet(*state, &a, &b);
    for (int i = 0; i < 2; i++) {
        struct sending s = { .op.done = ranks_done }, t = s;

        from = i ? b : a;
        assert_int_equal(send_op(from, 1, MIB, false, &s.op), 0);
        rounds(from == a ? b : a, 1);
        assert_true(has_turn(a));
        assert_int_equal(send_op(a, 2, MDAPL_PAIR_BYTES, false, &t.op), 0);
        rounds(b, 1);
        mdapl_rx_drop(last_rx(b));
        mdapl_rx_drop((i ? a : b)->announced[0].rx);
        rounds(a, 1);
        rounds(b, 1);
        assert_true(s.done == 1 && t.done == 1);
        a->n_announced = b->n_announced = 0;
    }
    assert_int_equal(in_pair(a), 0);
}

/* Part by part: until the last one has been taken the turn is the receiver's not, even if the owner
 * has dropped the body. */
static void in_the_middle(void **state)
{
    struct mdapl_shm_head head = { SOME };
    struct rank *a, *b;
    size_t size = mdapl_shm_part_len(SOME);
    uint32_t off = 0;

    meet(*state, &a, &b);
    fill_source(SOME, 1);
    assert_true(mdapl_shm_spsc_reserve_parts(&peer_of(a)->tx, SOME, mdapl_shm_parts(SOME), &off));
    for (size_t at = 0; at < SOME; at += size) {
        struct mdapl_shm_spsc_msg m;

        assert_false(has_turn(b));
        mdapl_shm_spsc_part(&peer_of(a)->tx, off + (uint32_t)at, at ? 0 : sizeof(head) + 4,
                            mdapl_min(size, SOME - at), &m);
        if (at == 0)
            memcpy(m.hdr, &head, sizeof(head));
        memcpy(m.body, source + at, m.len);
        mdapl_shm_spsc_publish(&peer_of(a)->tx, &m, at ? MDAPL_SHM_MORE : MDAPL_SHM_HEAD, 0);
        rounds(b, 1);
        if (at == 0)
            mdapl_rx_drop(last_rx(b));
    }
    assert_true(has_turn(b) && !has_turn(a));
}

/* Bodies of any length, of which now the one and now the other end sends some. */
static void any_order(void **state)
{
    struct pair *p = *state;
    struct rank *a, *b;
    uint64_t all;

    meet(p, &a, &b);
    srand(SEED);
    for (uint32_t i = 0; i < BODIES; i++) {
        struct rank *from = rand() % 2 ? a : b, *to = from == a ? b : a;
        size_t len = 1 + (size_t)rand() % (MDAPL_SHM_WHOLE + SOME);

        send_and_read(from, to, i, len);
        assert_true(has_turn(a) + has_turn(b) == 1);
    }
    all = in_pair(a) + in_pair(b);
    assert_true(all > BODIES / 3 && all < BODIES);
}

/* -- a peer that breaks the protocol ---------------------------------------------------------- */

/* The receiver, which finds this in its ring, does not take it. */
static void publish_refused(struct rank *from, struct rank *to, const struct mdapl_shm_spsc_msg *m,
                            uint8_t type)
{
    mdapl_shm_spsc_publish(&peer_of(from)->tx, m, type, 0);
    rounds(to, 2);
    assert_non_null(strstr(to->fault, "none of this protocol"));
    assert_int_equal(to->n_announced, 0);
}

/* Writes a first part, of a body of so many bytes, at a place where it must not be. */
static void refused(struct rank *from, struct rank *to, uint32_t at, size_t len)
{
    struct mdapl_shm_head head = { len };
    struct mdapl_shm_spsc_msg m;

    mdapl_shm_spsc_part(&peer_of(from)->tx, MDAPL_AT_PAIR, sizeof(head) + 4,
                        mdapl_shm_part_len(len), &m);
    peer_of(from)->tx.slot->at = at & ~MDAPL_AT_PAIR;
    m.in_pair = at & MDAPL_AT_PAIR;
    memcpy(m.hdr, &head, sizeof(head));
    publish_refused(from, to, &m, MDAPL_SHM_HEAD);
}

static void out_of_turn(void **state)
{
    struct rank *a, *b;

    meet(*state, &a, &b);
    refused(b, a, MDAPL_AT_PAIR, SOME);
}

static void beyond_its_end(void **state)
{
    struct rank *a, *b;

    meet(*state, &a, &b);
    refused(a, b, MDAPL_AT_PAIR | (MDAPL_PAIR_BYTES - 16384), SOME);
}

static void longer_than_it(void **state)
{
    struct rank *a, *b;

    meet(*state, &a, &b);
    refused(a, b, MDAPL_AT_PAIR, MDAPL_PAIR_BYTES + 1);
}

static void before_there_is_one(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    if (a->s->seg.head->token > b->s->seg.head->token) {   /* opening its ring would make one */
        a = &p->rank[1];
        b = &p->rank[0];
    }
    assert_true(mdapl_shm_tx_open(peer_of(a)));
    assert_null(peer_of(b)->pair.bytes);
    mdapl_shm_doorbell_ring(peer_of(a));
    refused(a, b, MDAPL_AT_PAIR, SOME);
}

/* A message in the pair buffer that has no byte there, or a header that would be there, too. */
static void no_bytes_there(void **state)
{
    struct mdapl_shm_spsc_msg m;
    struct rank *a, *b;

    meet(*state, &a, &b);
    mdapl_shm_spsc_part(&peer_of(a)->tx, MDAPL_AT_PAIR, 4, 0, &m);
    publish_refused(a, b, &m, MDAPL_SHM_MSG);
}

static void header_there(void **state)
{
    struct mdapl_shm_spsc_msg m;
    struct rank *a, *b;

    meet(*state, &a, &b);
    mdapl_shm_spsc_part(&peer_of(a)->tx, MDAPL_AT_PAIR, MDAPL_SLOT_ROOM + 1, MDAPL_SHM_WHOLE, &m);
    publish_refused(a, b, &m, MDAPL_SHM_MSG);
}

/* What only the pair buffer may hold, in the ring. */
static void too_long_for_the_ring(void **state)
{
    struct rank *a, *b;

    meet(*state, &a, &b);
    refused(a, b, 0, MDAPL_SHM_EAGER + 1);
}

/* Inrings of a node with many ranks have no room for one. */
static void small_inrings(void **state)
{
    struct mdapl_shm_seg seg = { .inring_bytes = 524288 };
    struct mdapl_shm_inring_at in = { .rest = NULL };

    (void)state;
    assert_null(mdapl_shm_seg_pair(&seg, &in));
    assert_true(mdapl_shm_seg_data_bytes(&seg) > 500000);
    seg.inring_bytes = 1 << 20;
    assert_true(mdapl_shm_seg_data_bytes(&seg) > 700000
                && mdapl_shm_seg_data_bytes(&seg) < (1 << 20) - MDAPL_PAIR_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers), TEST(short_answers), TEST(stores_that_are_measured), TEST(no_answer),
        TEST(others), TEST(one_behind_the_other), TEST(longer_than_the_ring),
        TEST(longer_in_a_stream), TEST(in_the_middle), TEST(any_order), TEST(out_of_turn),
        TEST(beyond_its_end), TEST(longer_than_it), TEST(before_there_is_one),
        TEST(no_bytes_there), TEST(header_there), TEST(too_long_for_the_ring),
        cmocka_unit_test(small_inrings),
    };

    return RUN(tests);
}
