/* SPDX-License-Identifier: MIT */
/*
 * The shm channel, two ranks in one process, where the test calls progress of each: behaviour that
 * depends on which rank makes progress when. The suite in test/channel has the traffic.
 */
#include "shm_ranks.h"

#include "node.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- which ranks are reached ------------------------------------------------------------------ */

static void only_what_is_proven(void **state)
{
    struct pair *p = *state;
    struct mdapl_shm_card card, bad;
    struct mdapl_shm_peer *peer;
    char text[MDAPL_CARD_MAX];

    assert_true(mdapl_shm_card_read(&card, p->rank[1].card[1]));
    assert_false(mdapl_shm_card_read(&bad, "dapl:1:7f000001/1024:host"));
    for (int wrong = 0; wrong < 4; wrong++) {
        bad = card;
        bad.node ^= wrong == 0;
        bad.token ^= wrong == 1;
        if (wrong == 2)
            strcpy(bad.ref, "1.1");
        if (wrong == 3)
            strcpy(bad.ref, p->rank[0].s->seg.ref);
        assert_true(mdapl_shm_card_write(&bad, text, sizeof(text)) > 0);
        assert_true(mdapl_shm_peer_make(p->rank[0].s, mdapl_ctx_job(p->rank[0].ctx), 1, text,
                                        &peer) < 0);
    }
    assert_int_equal(mdapl_shm_card_write(&card, text, 20), -ENOSPC);
}

/* A sender that its peer has lost before is refused, and notices the refusal. */
static void a_lost_rank_is_refused(void **state)
{
    struct pair *p = *state;

    mdapl_shm_peer_fail(mdapl_shm_peer_of(p->rank[1].other), -EPIPE, "for this test");
    assert_int_equal(send_now(&p->rank[0], 1, 8), MDAPL_DONE);
    rounds(&p->rank[1], 3);
    assert_int_equal(p->rank[1].n_announced, 0);
    assert_int_equal(stats(&p->rank[1])->cr_refused, 1);
    p->now += MDAPL_SEC(1);
    rounds(&p->rank[0], 100);
    assert_non_null(strstr(p->rank[0].fault, "it has lost this rank before"));
    assert_int_equal(send_now(&p->rank[0], 2, 8), -ECONNREFUSED);
}

/* -- doorbells -------------------------------------------------------------------------------- */

static void doorbell_only_if_not_polled(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    for (uint32_t i = 0; i < 50; i++) {
        assert_int_equal(send_now(a, i, 8), MDAPL_DONE);
        rounds(b, 1);
        assert_int_equal(b->n_announced, i + 1);
    }
    assert_int_equal(send_now(a, 50, 100), MDAPL_DONE);
    rounds(b, 1);
    assert_int_equal(stats(a)->shm_msgs, 51);
    assert_int_equal(stats(a)->shm_lines, 50);   /* 4 bytes of header and 8 of body */
    assert_int_equal(stats(a)->shm_doorbells, 1);
    rounds(b, 20000);
    assert_int_equal(b->s->n_polled, 0);
    assert_int_equal(send_now(a, 51, 8), MDAPL_DONE);
    assert_int_equal(stats(a)->shm_doorbells, 2);
    rounds(b, 1);
    assert_int_equal(b->n_announced, 52);
    assert_int_equal(b->s->n_polled, 1);
}

/* A message that is in the ring when the reader stops polling is noticed. */
static void no_sleep_over_a_message(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    send_now(a, 0, 8);
    rounds(b, 1);
    send_now(a, 1, 8);
    mdapl_wait(b->ctx, MDAPL_SEC(3600));     /* returns at once */
    assert_int_equal(stats(b)->shm_sleeps, 0);
    rounds(b, 1);
    assert_int_equal(b->n_announced, 2);
}

/* A rank that sleeps before each message needs no barrier: each message rings its doorbell. */
static void no_barrier_for_each_sleep(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    for (int i = 0; i < 100; i++) {
        assert_int_equal(send_now(a, (uint32_t)i, 8), MDAPL_DONE);
        rounds(b, 1);
        mdapl_wait(b->ctx, 1000);
    }
    assert_int_equal(b->n_announced, 100);
    assert_int_equal(stats(b)->shm_sleeps, 100);
    assert_true(stats(b)->shm_barriers <= 1);
    /* When the rank no longer sleeps the ring is polled again. */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(send_now(a, (uint32_t)i, 8), MDAPL_DONE);
        rounds(b, 1);
    }
    assert_true(stats(a)->shm_doorbells <= 102);
}

/* Are sleeps short, because no process can end them (os_posix.c)? */
static bool naps(void)
{
    const struct mdapl_clock clock = mdapl_clock_system();
    uint64_t start = mdapl_clock_now(&clock);
    _Atomic uint32_t word = 1;

    mdapl_shm_os_sleep(&word, 1, MDAPL_MS(5));
    return mdapl_clock_now(&clock) - start < MDAPL_MS(5);
}

static void *sleep_until_announced(void *arg)
{
    struct rank *me = arg;

    while (me->n_announced < 2) {
        mdapl_wait(me->ctx, MDAPL_SEC(30));
        mdapl_progress(me->ctx);
    }
    return NULL;
}

/* The sender wakes a receiver that sleeps; without that the test takes half a minute. */
static void doorbell_wakes_a_sleeper(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    pthread_t thread;

    send_now(a, 0, 8);
    rounds(b, 1);
    assert_int_equal(pthread_create(&thread, NULL, sleep_until_announced, b), 0);
    while (!atomic_load(&b->s->seg.head->asleep))
        sched_yield();
    send_now(a, 1, 8);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(b->n_announced, 2);
    if (!naps())
        assert_int_equal(stats(a)->shm_wakes, 1);
}

static void wake(struct rank *me)
{
    mdapl_wake(me->ctx);
}

/* Another thread ends a sleep, also before it is one; without that the test takes an hour. */
static void another_thread_wakes_a_sleeper(void **state)
{
    struct rank *b = &((struct pair *)*state)->rank[1];

    ranks_asleep = wake;
    mdapl_wait(b->ctx, MDAPL_SEC(3600));
    ranks_asleep = NULL;
    assert_int_equal(stats(b)->shm_sleeps, 1);
}

/* -- room ------------------------------------------------------------------------------------- */

/* After a long body the owner may say where the next one belongs, before it is taken; short
 * messages are taken in one round. */
static void one_long_body_in_a_round(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    assert_int_equal(send_now(a, 0, 8), MDAPL_DONE);
    rounds(b, 2);                /* from now on the ring is polled */
    for (uint32_t i = 1; i <= 8; i++)
        assert_int_equal(send_now(a, i, i <= 4 ? 8192 : 8), MDAPL_DONE);
    for (int i = 1; i <= 4; i++) {
        rounds(b, 1);
        assert_int_equal(b->n_announced, 1 + i);
    }
    rounds(b, 1);
    assert_int_equal(b->n_announced, 9);
}

static void a_full_ring(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending s = { .op.done = ranks_done };
    uint32_t n = 0;

    while (send_now(a, n, 8) == MDAPL_DONE)
        n++;
    assert_int_equal(n, MDAPL_SLOTS);
    assert_int_equal(send_op(a, n++, 3000, false, &s.op), 0);
    assert_int_equal(send_now(a, n, 8), -EAGAIN);
    rounds(a, 10);
    assert_int_equal(s.done, 0);
    rounds(b, MDAPL_SLOTS);
    rounds(a, 1);
    assert_int_equal(s.done, 1);
    assert_int_equal(send_now(a, n++, 8), MDAPL_DONE);
    rounds(b, 1);
    assert_int_equal(b->n_announced, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(b->announced[i].number, i);
}

static bool in_segment(struct mdapl_peer *peer, const void *p)
{
    const struct mdapl_shm_seg *seg = &mdapl_shm_peer_of(peer)->s->seg;

    return (uintptr_t)p - (uintptr_t)seg->head < seg->bytes;
}

static enum mdapl_next in_place(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    assert_true(in_segment(peer, m->data));
    return ranks_on_msg(owner, peer, m);
}

/* The owner takes a body directly out of the segment, without a copy or an object in between. */
static void taken_in_place(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    const size_t lens[] = { 1, 8, 100, 4096, MDAPL_SHM_WHOLE, 40000, longest_in_ring(a) };

    on_message = in_place;
    for (uint32_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        memset(source, (int)i + 1, lens[i]);
        memset(sink, 0, lens[i]);
        assert_int_equal(send_now(a, i, lens[i]), MDAPL_DONE);
        rounds(b, 1);
        assert_memory_equal(sink, source, lens[i]);
    }
    on_message = ranks_on_msg;
    assert_int_equal(b->n_announced, sizeof(lens) / sizeof(lens[0]));
    assert_int_equal(stats(b)->parked, 0);
}

/* The body of a queued message is a copy. */
static enum mdapl_next compare(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct rank *me = owner;

    ranks_on_msg(owner, peer, m);
    assert_int_equal(m->len, 100);
    assert_false(in_segment(peer, m->data));
    for (size_t i = 0; i < m->len; i++)
        assert_int_equal(m->data[i], me->announced[me->n_announced - 1].number % 100);
    return MDAPL_NEXT_GO;
}

/* While the owner holds, later messages are copied out of the ring; then they are announced in
 * order. */
static void parked(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending s = { .op.done = ranks_done };
    uint32_t n = 0;

    b->next = MDAPL_NEXT_HOLD;
    assert_int_equal(send_op(a, n++, LONG, false, &s.op), 0);
    for (; n < 2 * MDAPL_SLOTS; n++) {
        memset(source, (int)n % 100, 100);
        assert_int_equal(send_now(a, n, 100), MDAPL_DONE);
        rounds(b, 1);
    }
    assert_int_equal(b->n_announced, 1);
    on_message = compare;
    mdapl_rx_drop(b->announced[0].rx);
    rounds(b, 1);
    on_message = ranks_on_msg;
    assert_int_equal(b->n_announced, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(b->announced[i].number, i);
    rounds(a, 1);
    assert_true(s.done == 1 && s.status == -ECANCELED);
}

/* -- long bodies ------------------------------------------------------------------------------ */

/* RTS, CTS, DATA; with more bytes than all cells in flight can have. The send is done with the last
 * of them. */
static void by_cells(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending s = { .op.done = ranks_done }, r = { .op.done = ranks_done };
    struct iovec v[2] = { { sink, 1000 }, { sink + 1000, LONG - 1000 } };

    for (size_t i = 0; i < LONG; i++)
        source[i] = (char)(i * 7 + (i >> 12));
    memset(sink, 0, LONG);
    assert_int_equal(send_op(a, 0, LONG, false, &s.op), 0);
    rounds(b, 1);
    assert_int_equal(b->n_announced, 1);
    assert_int_equal(mdapl_rx_read(b->announced[0].rx, v, 2, &r.op), 0);
    for (int i = 0; i < 100 && !r.done; i++) {
        rounds(a, 1);
        assert_true(stats(a)->shm_cells <= (uint64_t)(i + 1) * MDAPL_SHM_INFLIGHT);
        rounds(b, 1);
    }
    assert_true(s.done == 1 && s.status == 0 && r.done == 1 && r.status == 0);
    assert_memory_equal(source, sink, LONG);
    assert_int_equal(stats(b)->shm_copies, 1);
    assert_int_equal(a->s->n_free_cells + mdapl_shm_peer_of(a->other)->inflight_n,
                     MDAPL_CELLS);
    mdapl_drain(a->ctx);
    mdapl_drain(b->ctx);
    rounds(a, 1);
    rounds(b, 1);
    assert_int_equal(mdapl_drain(a->ctx), 0);
    assert_int_equal(mdapl_drain(b->ctx), 0);
}

/* Bodies that have been requested arrive in their order, a shorter one behind a longer one, too. */
static void requested_bodies_in_order(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending sent[2] = { { .op.done = ranks_done }, { .op.done = ranks_done } };
    struct sending read[2] = { { .op.done = ranks_done }, { .op.done = ranks_done } };
    size_t len[2] = { MIB, LONG };

    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(send_op(a, i, len[i], false, &sent[i].op), 0);
    rounds(b, 1);
    rounds(b, 1);
    for (int i = 0; i < 2; i++) {
        struct iovec v = { sink, len[i] };

        assert_int_equal(mdapl_rx_read(b->announced[i].rx, &v, 1, &read[i].op), 0);
    }
    for (int i = 0; i < 1000 && !read[0].done; i++) {
        rounds(a, 1);
        rounds(b, 1);
        assert_true(read[0].done || !read[1].done);
    }
    for (int i = 0; i < 1000 && !read[1].done; i++) {
        rounds(a, 1);
        rounds(b, 1);
    }
    assert_true(read[0].done && read[1].done && sent[0].done && sent[1].done);
}

/* Reads `len` bytes of a body through cells, and the sender sends them. */
static void read_part(struct pair *p, struct mdapl_rx *rx, size_t at, size_t len)
{
    struct sending r = { .op.done = ranks_done };
    struct iovec v = { sink + at, len };

    assert_int_equal(mdapl_rx_read(rx, &v, 1, &r.op), 0);
    for (int i = 0; i < 100 && !r.done; i++) {
        rounds(&p->rank[0], 1);
        rounds(&p->rank[1], 1);
    }
    assert_true(r.done == 1 && r.status == 0);
}

/* A body that is read in two pieces ends with the second; one whose rest is dropped with a FIN. */
static void by_cells_in_pieces(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    for (int drops = 0; drops < 2; drops++) {
        struct sending s = { .op.done = ranks_done };

        memset(source, 5 + drops, LONG);
        b->n_announced = 0;
        assert_int_equal(send_op(a, 0, LONG, false, &s.op), 0);
        rounds(b, 1);
        read_part(p, b->announced[0].rx, 0, 100000);
        assert_int_equal(s.done, 0);
        if (drops)
            mdapl_rx_drop(b->announced[0].rx);
        else
            read_part(p, b->announced[0].rx, 100000, LONG - 100000);
        rounds(a, 1);
        assert_true(s.done == 1 && s.status == 0);
        assert_memory_equal(source, sink, drops ? 100000 : LONG);
    }
}

/* Other processes get permission to read this one's memory with the first body that may be read so,
 * not before. */
static void reads_are_allowed_when_wanted(void **state)
{
    static const struct {
        const char *knob;
        size_t len;
        bool allowed;
    } row[] = {
        { "-1", 60000, false }, { "-1", LONG, true }, { "0", LONG, true },
        { "400000", LONG, false }, { "1g", LONG, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct sending s = { .op.done = ranks_done };
        struct pair *p;

        ranks_single_bytes = row[i].knob;
        ranks_make_two((void **)&p);
        assert_true(send_op(&p->rank[0], 0, row[i].len, false, &s.op) >= 0);
        assert_int_equal(p->rank[0].s->reads_allowed, row[i].allowed);
        assert_false(p->rank[1].s->reads_allowed);
        ranks_unmake((void **)&p);
    }
    ranks_single_bytes = "1g";
}

/* Read out of the sender's memory, while the sender makes no progress. */
static void by_one_copy(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending s = { .op.done = ranks_done }, r = s;
    struct iovec v = { sink, LONG };

    if (!memory_can_be_read())
        SKIP_TEST("this system reads no other process's memory: bodies are copied twice");
    b->s->single_from = 0;
    for (size_t i = 0; i < LONG; i++)
        source[i] = (char)(i * 5 + (i >> 10));
    memset(sink, 0, LONG);
    assert_int_equal(send_op(a, 0, LONG, false, &s.op), 0);
    rounds(b, 1);
    assert_int_equal(ranks_read(b, b->announced[0].rx, &v, 1, &r.op), 0);
    assert_true(r.done == 1 && r.status == 0);
    assert_memory_equal(source, sink, LONG);
    assert_int_equal(stats(b)->shm_single_copies, 1);
    rounds(a, 1);
    assert_true(s.done == 1 && s.status == 0);
}

/* Where many ranks share a node a ring has less room: a body that is longer is announced. */
static void too_long_for_the_room(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending s[2] = { { .op.done = ranks_done }, { .op.done = ranks_done } };
    struct mdapl_shm_spsc_tx *tx = &mdapl_shm_peer_of(a->other)->tx;
    size_t longest;

    tx->room = MDAPL_SHM_ROOM_LEAST;
    longest = mdapl_shm_spsc_longest(tx);
    assert_in_range(longest, MDAPL_SHM_WHOLE, MDAPL_SHM_ROOM_LEAST);
    assert_int_equal(send_op(a, 0, longest, false, &s[0].op), MDAPL_DONE);
    assert_int_equal(send_op(a, 1, longest + 1, false, &s[1].op), 0);
    rounds(b, 2);
    assert_int_equal(b->n_announced, 2);
    assert_int_equal(stats(a)->tx_rndv, 1);
    mdapl_rx_drop(b->announced[1].rx);
    rounds(a, 1);
    assert_true(s[1].done == 1 && s[1].status == -ECANCELED);
}

static void dropped(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending s = { .op.done = ranks_done };

    assert_int_equal(send_op(a, 0, 10, true, &s.op), 0);
    rounds(b, 1);
    assert_int_equal(s.done, 0);
    assert_false(mdapl_peer_idle(a->other));
    mdapl_rx_drop(b->announced[0].rx);
    rounds(a, 1);
    assert_true(s.done == 1 && s.status == -ECANCELED);
}

/* More senders than a rank polls: each gets the acknowledgement of its message, so it may end. */
static void more_senders_than_polled(void **state)
{
    struct pair *p = *state;

    for (int i = 1; i < MANY; i++)
        assert_int_equal(send_now(&p->rank[i], (uint32_t)i, 8), MDAPL_DONE);
    rounds(&p->rank[0], 1000);
    assert_int_equal(p->rank[0].n_announced, MANY - 1);
    for (int i = 1; i < MANY; i++)
        assert_true(mdapl_peer_idle(p->rank[i].other));
}

/* -- lost peers ------------------------------------------------------------------------------- */

/* A peer that writes an impossible message is failed, with a line. */
static void nonsense(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct mdapl_shm_peer *to_b = mdapl_shm_peer_of(a->other);

    ranks_use_ring(a);
    send_now(a, 0, 8);
    rounds(b, 1);
    atomic_store(&to_b->tx.in.front->slot[1].word, (uint64_t)2 << 32 | 24 << 4 | 15);
    rounds(b, 1);
    assert_non_null(strstr(b->fault, "none of this protocol"));
    assert_int_equal(stats(b)->bad_frames, 1);
    assert_int_equal(send_now(b, 1, 8), -EPROTO);
}

/* A read in progress, of a requested body. */
static void reads_of_a_lost_peer(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct mdapl_shm_peer *to_b = mdapl_shm_peer_of(a->other);
    static struct sending s = { .op.done = ranks_done };      /* it ends with the channel */
    struct sending r = { .op.done = ranks_done };
    struct iovec v = { sink, LONG };

    assert_int_equal(send_op(a, 0, LONG, true, &s.op), 0);
    rounds(b, 1);
    assert_int_equal(mdapl_rx_read(b->announced[0].rx, &v, 1, &r.op), 0);
    atomic_store(&to_b->tx.in.front->slot[1].word, (uint64_t)2 << 32 | 24 << 4 | 15);
    rounds(b, 1);
    assert_non_null(strstr(b->fault, "none of this protocol"));
    assert_true(r.done == 1 && r.status == -EPROTO);
    assert_true(mdapl_list_empty(&mdapl_shm_peer_of(b->other)->reading));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_what_is_proven), TEST(a_lost_rank_is_refused),
        TEST(doorbell_only_if_not_polled), TEST(no_sleep_over_a_message),
        TEST(no_barrier_for_each_sleep), cmocka_unit_test(reads_are_allowed_when_wanted),
        TEST(doorbell_wakes_a_sleeper), TEST(another_thread_wakes_a_sleeper),
        TEST(one_long_body_in_a_round), TEST(a_full_ring),
        TEST(taken_in_place), TEST(parked), TEST(by_cells),
        TEST(requested_bodies_in_order), TEST(by_cells_in_pieces), TEST(by_one_copy),
        TEST(too_long_for_the_room), TEST(dropped),
        cmocka_unit_test_setup_teardown(more_senders_than_polled, ranks_make_many, ranks_unmake),
        TEST(nonsense),
        TEST(reads_of_a_lost_peer),
    };

    return RUN(tests);
}
