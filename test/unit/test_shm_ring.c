/* SPDX-License-Identifier: MIT */
/* The ring between two processes of a node (src/shm/ring.h) by itself. */
#include "unit.h"

#include "ring.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    MANY = 60000,
    SOME_BYTES = 8192,
    DATA_BYTES = 262144,
    REST_BYTES = sizeof(struct mdapl_shm_inring_rest) / 4096 * 4096 + 4096 + DATA_BYTES,
    SPREAD = 20 * SOME_BYTES,    /* bytes of a long lap */
    SHORT_LAP = 3 * SOME_BYTES,
};

struct pair {
    struct mdapl_shm_inring_at in;
    struct mdapl_shm_spsc_tx tx;
    struct mdapl_shm_spsc_rx rx;
    struct mdapl_shm_spread spread;
    struct mdapl_shm_pair none;
};

static int make(void **state)
{
    struct pair *p = calloc(1, sizeof(*p));

    p->in.front = aligned_alloc(MDAPL_SLOT_BYTES, sizeof(*p->in.front));
    p->in.rest = aligned_alloc(4096, REST_BYTES);
    memset(p->in.front, 0, sizeof(*p->in.front));
    memset(p->in.rest, 0, REST_BYTES);
    mdapl_shm_spsc_open_tx(&p->tx, p->in);
    mdapl_shm_spsc_open_rx(&p->rx, p->in);
    p->rx.data_bytes = DATA_BYTES;
    p->tx.room = 7 * SOME_BYTES;
    p->tx.spread = &p->spread;
    p->tx.pair = p->rx.pair = &p->none;
    p->spread.lap[MDAPL_LAP_LONG] = SPREAD;
    p->spread.lap[MDAPL_LAP_SHORT] = SHORT_LAP;
    *state = p;
    return 0;
}

static int unmake(void **state)
{
    struct pair *p = *state;

    free(p->in.front);
    free(p->in.rest);
    free(p);
    return 0;
}

/* Both ends after so many messages. */
static void start_at(struct pair *p, uint32_t n)
{
    p->tx.next = p->tx.acked = p->rx.taken = p->rx.acked = n;
    for (int i = 0; i < MDAPL_SLOTS; i++)
        p->tx.number[i] = n;
    atomic_store(&p->in.front->taken, n);
}

/* A byte of the n-th message, different from those around it and from those of the last lap. */
static uint8_t byte(uint32_t n, size_t i)
{
    return (uint8_t)(n * 131 + i * 7 + (i >> 8) + 1);
}

static void fill(uint8_t *to, uint32_t n, size_t from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = byte(n, from + i);
}

static bool right(const uint8_t *p, uint32_t n, size_t from, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != byte(n, from + i))
            return false;
    return true;
}

/* Writes the n-th message if there is room. */
static bool put(struct mdapl_shm_spsc_tx *tx, uint32_t n, size_t hdr_len, size_t len)
{
    struct mdapl_shm_spsc_msg m;

    if (!mdapl_shm_spsc_reserve(tx, hdr_len, len, &m))
        return false;
    fill(m.hdr, n, 0, hdr_len);
    fill(m.body, n, hdr_len, len);
    mdapl_shm_spsc_publish(tx, &m, (uint8_t)(n % 5), n);
    return true;
}

static bool get(struct mdapl_shm_spsc_rx *rx, uint32_t n, size_t hdr_len, size_t len)
{
    struct mdapl_shm_spsc_msg m;

    if (mdapl_shm_spsc_peek(rx, &m) != MDAPL_SPSC_MSG || m.hdr_len != hdr_len || m.len != len
        || m.type != n % 5 || m.ack != n || !right(m.hdr, n, 0, hdr_len)
        || !right(m.body, n, hdr_len, len))
        return false;
    mdapl_shm_spsc_took(rx, &m);
    return true;
}

static void nothing_is_there(void **state)
{
    struct pair *p = *state;
    struct mdapl_shm_spsc_msg m;

    assert_int_equal(mdapl_shm_spsc_peek(&p->rx, &m), MDAPL_SPSC_NONE);
    assert_true(put(&p->tx, 7, 3, 0));
    assert_true(get(&p->rx, 7, 3, 0));
    assert_int_equal(mdapl_shm_spsc_peek(&p->rx, &m), MDAPL_SPSC_NONE);
}

static void every_size(void **state)
{
    struct pair *p = *state;
    uint32_t n = 0;

    for (size_t hdr = 0; hdr <= MDAPL_HDR_MAX; hdr++)
        for (size_t len = 0; len <= 200; len++, n++) {
            assert_true(put(&p->tx, n, hdr, len));
            assert_true(get(&p->rx, n, hdr, len));
            mdapl_shm_spsc_ack_flush(&p->rx);
        }
    for (size_t len = 0; len < 16000; len += 61, n++) {
        assert_true(put(&p->tx, n, 24, len));
        assert_true(get(&p->rx, n, 24, len));
        mdapl_shm_spsc_ack_flush(&p->rx);
    }
}

/* What fits into a slot takes nothing else: header and body together. */
static void short_ones_take_no_data(void **state)
{
    struct pair *p = *state;

    for (uint32_t n = 0; n < MDAPL_SLOTS; n++)
        assert_true(put(&p->tx, n, 24, 88));
    assert_int_equal(p->tx.put, 0);
    assert_false(put(&p->tx, MDAPL_SLOTS, 24, 88));
    for (uint32_t n = 0; n < MDAPL_SLOTS; n++)
        assert_true(get(&p->rx, n, 24, 88));
}

/* The longest body, with the longest header, in all of the data. */
static void the_longest(void **state)
{
    struct pair *p = *state;

    p->tx.room = DATA_BYTES;
    for (uint32_t n = 0; n < 3; n++)
        assert_true(put(&p->tx, n, MDAPL_HDR_MAX, 65536));
    assert_false(put(&p->tx, 3, MDAPL_HDR_MAX, 65536));
    for (uint32_t n = 0; n < 3; n++)
        assert_true(get(&p->rx, n, MDAPL_HDR_MAX, 65536));
}

/* All slots or all data in use; the writer has room again only after an acknowledgement. */
static void full(void **state)
{
    struct pair *p = *state;
    uint32_t in = 0, out = 0;

    while (put(&p->tx, in, 120, SOME_BYTES))
        in++;
    assert_in_range(in, 5, 7);
    assert_true(put(&p->tx, in++, 8, 8));
    assert_true(get(&p->rx, out++, 120, SOME_BYTES));
    assert_false(put(&p->tx, in, 120, SOME_BYTES));
    mdapl_shm_spsc_ack_flush(&p->rx);
    assert_true(put(&p->tx, in, 120, SOME_BYTES));
    for (; out < in - 1; out++)
        assert_true(get(&p->rx, out, 120, SOME_BYTES));
    assert_true(get(&p->rx, out++, 8, 8));
    assert_true(get(&p->rx, out++, 120, SOME_BYTES));
}

/* Where the next message of this size lies, which is sent and taken. */
static uint32_t place_of_next(struct pair *p, uint32_t *n, size_t len)
{
    uint32_t at, slot = p->tx.walk.at;

    assert_true(put(&p->tx, *n, 24, len));
    at = mdapl_shm_slot_at(&p->in, slot)->at;
    assert_true(get(&p->rx, *n, 24, len));
    mdapl_shm_spsc_ack_flush(&p->rx);
    mdapl_shm_spsc_ack_in(&p->tx, p->rx.taken);
    ++*n;
    return at;
}

/* Short bodies lie in the first bytes; long ones walk on until so many bytes have been stored that
 * the first ones have left the caches, short ones behind them too. */
static void long_ones_are_spread(void **state)
{
    struct pair *p = *state;
    uint32_t n = 0, last = 0, at;

    p->tx.room = DATA_BYTES;
    for (int lap = 0; lap < 3; lap++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(place_of_next(p, &n, 1000), 0);
        for (int i = 0; i < SPREAD / SOME_BYTES; i++, last = at) {
            at = place_of_next(p, &n, SOME_BYTES);
            assert_true(i == 0 ? at == 0 : at == last + SOME_BYTES);
        }
    }
    assert_int_equal(place_of_next(p, &n, SOME_BYTES), 0);
    assert_int_equal(place_of_next(p, &n, 1000), SOME_BYTES);
    assert_int_equal(place_of_next(p, &n, SOME_BYTES), SOME_BYTES + 1024);
}

/* So do short ones while another one is in flight, and until as many bytes have been stored; then
 * they lie in the first bytes again, whatever is in flight that needs no data. */
static void short_ones_in_flight_are_spread(void **state)
{
    enum { LEN = 1000, LINES = 1024 };
    struct pair *p = *state;
    uint32_t n = 0;

    p->tx.room = DATA_BYTES;
    for (int lap = 0; lap < 3; lap++) {
        uint32_t at = 0;

        assert_true(put(&p->tx, n, 24, LEN));
        for (int stored = 0; stored < SPREAD; stored += LEN, n++) {
            uint32_t slot = p->tx.walk.at;

            assert_true(put(&p->tx, n + 1, 24, LEN));
            assert_int_equal(mdapl_shm_slot_at(&p->in, slot)->at, at += LINES);
            assert_true(get(&p->rx, n, 24, LEN));
            mdapl_shm_spsc_ack_flush(&p->rx);
            mdapl_shm_spsc_ack_in(&p->tx, p->rx.taken);
        }
        assert_true(get(&p->rx, n++, 24, LEN));
        mdapl_shm_spsc_ack_flush(&p->rx);
        mdapl_shm_spsc_ack_in(&p->tx, p->rx.taken);
        for (int i = 0; i < 3; i++) {
            assert_true(put(&p->tx, n, 24, 8));
            assert_true(get(&p->rx, n++, 24, 8));
            assert_int_equal(place_of_next(p, &n, LEN), 0);
        }
    }
}

/* What the process stores into its other rings counts: of two rings each has half as far to go. */
static void rings_are_spread_together(void **state)
{
    struct pair *p = *state, *q;
    uint32_t n = 0, m = 0;

    assert_int_equal(make((void **)&q), 0);
    p->tx.room = q->tx.room = DATA_BYTES;
    q->tx.spread = &p->spread;
    for (int i = 0; i < SPREAD / SOME_BYTES / 2; i++) {
        assert_int_equal(place_of_next(p, &n, SOME_BYTES), i * SOME_BYTES);
        assert_int_equal(place_of_next(q, &m, SOME_BYTES), i * SOME_BYTES);
    }
    assert_int_equal(place_of_next(p, &n, SOME_BYTES), 0);
    assert_int_equal(place_of_next(q, &m, SOME_BYTES), 0);
    unmake((void **)&q);
}

/* A ring in which laps are short does not, whatever was stored before. */
static void short_laps(void **state)
{
    struct pair *p = *state;
    uint32_t n = 0;

    p->tx.room = DATA_BYTES;
    for (int i = 0; i < 4; i++)
        assert_int_equal(place_of_next(p, &n, SOME_BYTES), i * SOME_BYTES);
    p->tx.lap = MDAPL_LAP_SHORT;
    for (int i = 0; i < 9; i++)
        assert_int_equal(place_of_next(p, &n, SOME_BYTES), i % 3 * SOME_BYTES);
}

/* The same with messages in flight: back to the first bytes before the end of data, but never onto
 * what has not been taken. */
static void spread_in_flight(void **state)
{
    struct pair *p = *state;
    uint32_t in = 0, out = 0, most = 0, at = 0;

    p->tx.room = DATA_BYTES;
    p->spread.lap[MDAPL_LAP_LONG] = 8 * SOME_BYTES;
    for (; out < 1000; out++) {
        for (uint32_t slot = p->tx.walk.at; in - out < 4 && put(&p->tx, in, 24, SOME_BYTES); in++) {
            at = mdapl_shm_slot_at(&p->in, slot)->at;
            most = at > most ? at : most;
            slot = p->tx.walk.at;
        }
        assert_true(get(&p->rx, out, 24, SOME_BYTES));
        mdapl_shm_spsc_ack_flush(&p->rx);
        mdapl_shm_spsc_ack_in(&p->tx, p->rx.taken);
    }
    assert_int_equal(most, 7 * SOME_BYTES);
}

/* -- the two rings of slots -------------------------------------------------------------------- */

/* Acknowledgements are a few messages late, as those are that come with messages of the other
 * direction. */
static void few_in_flight_stay_in_front(void **state)
{
    struct pair *p = *state;
    uint32_t in = 0;

    for (; in < MANY; in++) {
        assert_in_range(p->tx.walk.at, 0, MDAPL_SLOTS_FRONT - 1);
        assert_true(put(&p->tx, in, 24, 8));
        if (in >= 2)
            mdapl_shm_spsc_ack_in(&p->tx, in - 2);
        assert_true(get(&p->rx, in, 24, 8));
    }
    for (int i = MDAPL_SLOTS_FRONT; i < MDAPL_SLOTS; i++)
        assert_int_equal(atomic_load(&mdapl_shm_slot_at(&p->in, (uint32_t)i)->word), 0);
}

static uint32_t draw(uint32_t n)
{
    return (uint32_t)rand() % n;
}

/* There is room whenever a slot is free, whatever has been sent, taken and acknowledged. */
static void a_free_slot_is_found(void **state)
{
    struct pair *p = *state;
    uint32_t in = 0, out = 0, acked = 0;

    srand(1);
    while (out < MANY) {
        uint32_t n, sent = draw(draw(2) ? 4 : 2 * MDAPL_SLOTS);

        for (n = 0; n < sent; n++, in++) {
            atomic_store(&p->in.front->taken, acked);
            if (in - acked == MDAPL_SLOTS)
                break;
            assert_true(put(&p->tx, in, 24, 8));
        }
        assert_true(n == sent || !put(&p->tx, in, 24, 8));
        for (n = draw(in - out + 1); n > 0; n--, out++)
            assert_true(get(&p->rx, out, 24, 8));
        acked += draw(out - acked + 1);
        if (draw(2))
            mdapl_shm_spsc_ack_in(&p->tx, acked);
    }
}

/* A word that was left in the rest of the slots would be that of a message 2^32 later. */
static void each_slot_is_used_now_and_then(void **state)
{
    struct pair *p = *state;

    start_at(p, MDAPL_SLOTS_REFRESH / 2 - 10);
    for (uint32_t n = 0; n < 200; n++) {
        assert_true(put(&p->tx, n, 24, 8));
        mdapl_shm_spsc_ack_in(&p->tx, p->tx.next - 1);
        assert_true(get(&p->rx, n, 24, 8));
    }
    for (int i = 0; i < MDAPL_SLOTS; i++)
        assert_in_range(p->tx.number[i], MDAPL_SLOTS_REFRESH / 2, MDAPL_SLOTS_REFRESH / 2 + 200);
    assert_in_range(p->tx.walk.at, 0, MDAPL_SLOTS_FRONT - 1);
}

/* Round and round with every mixture of lengths; numbers that wrap are like others. */
static void round_and_round(void **state)
{
    static const size_t len[] = { 0, 8, 24, 25, 100, 1000, 4096, SOME_BYTES };
    static const size_t hdr[] = { 24, 40, 104, 112, 113, 128 };
    struct pair *p = *state;
    uint32_t in = 0, out = 0;

    start_at(p, UINT32_MAX - 1000);
    while (out < MANY / 4) {
        if (in - out < 40 && put(&p->tx, in, hdr[in / 3 % 6], len[in % 8])) {
            in++;
            continue;
        }
        for (int i = 0; i < 23 && out < in; i++, out++)
            assert_true(get(&p->rx, out, hdr[out / 3 % 6], len[out % 8]));
        if (mdapl_shm_spsc_ack_due(&p->rx) || out % 3 == 0)
            mdapl_shm_spsc_ack_flush(&p->rx);
    }
}

/* An acknowledgement that is old, or of what was never sent, changes nothing. */
static void impossible_acks(void **state)
{
    struct pair *p = *state;

    for (uint32_t n = 0; n < 10; n++)
        assert_true(put(&p->tx, n, 8, 100));
    mdapl_shm_spsc_ack_in(&p->tx, 6);
    assert_int_equal(p->tx.acked, 6);
    mdapl_shm_spsc_ack_in(&p->tx, 5);
    mdapl_shm_spsc_ack_in(&p->tx, 6);
    mdapl_shm_spsc_ack_in(&p->tx, 11);
    mdapl_shm_spsc_ack_in(&p->tx, UINT32_MAX);
    assert_int_equal(p->tx.acked, 6);
    mdapl_shm_spsc_ack_in(&p->tx, 10);
    assert_int_equal(p->tx.acked, 10);
    assert_int_equal(p->tx.put, 0);
}

/* The writer may store anything: lengths and places outside the ring are refused. */
static void impossible_slots(void **state)
{
    struct pair *p = *state;
    struct mdapl_shm_spsc_msg m;

    assert_true(put(&p->tx, 0, 24, 1000));
    p->in.front->slot[0].at = DATA_BYTES - 999;
    assert_int_equal(mdapl_shm_spsc_peek(&p->rx, &m), MDAPL_SPSC_BAD);
    p->in.front->slot[0].at = UINT32_MAX;
    assert_int_equal(mdapl_shm_spsc_peek(&p->rx, &m), MDAPL_SPSC_BAD);
    p->in.front->slot[0].at = 0;
    assert_int_equal(mdapl_shm_spsc_peek(&p->rx, &m), MDAPL_SPSC_MSG);
    p->in.front->slot[0].at = 2;     /* the longest body is as long as data here, but for a byte */
    atomic_store(&p->in.front->slot[0].word, (uint64_t)1 << 32 | UINT32_MAX << MDAPL_WORD_LEN
                                                  | 24 << MDAPL_WORD_HDR);
    assert_int_equal(mdapl_shm_spsc_peek(&p->rx, &m), MDAPL_SPSC_BAD);
    atomic_store(&p->in.front->slot[0].word, (uint64_t)1 << 32 | 129 << MDAPL_WORD_HDR);
    assert_int_equal(mdapl_shm_spsc_peek(&p->rx, &m), MDAPL_SPSC_BAD);
}

/* -- two threads ------------------------------------------------------------------------------ */

/*
 * A weaker memory order fails here, natively or under TSan: messages of every length, so many that
 * all numbers and places are used again and again, and the numbers wrap. Acknowledgements arrive
 * through the line or with the messages of the other ring.
 */
static size_t some_hdr(uint32_t n)
{
    return n * 5 % (MDAPL_HDR_MAX + 1);
}

static size_t some_len(uint32_t n)
{
    return n % 32 == 0 ? n * 37 % 16000 : n % 120;
}

static void *write_all(void *arg)
{
    struct pair *p = arg;

    for (uint32_t n = 0; n < MANY;)
        if (put(&p->tx, n, some_hdr(n), some_len(n)))
            n++;
        else
            sched_yield();
    return NULL;
}

static void two_threads(void **state)
{
    struct pair *p = *state;
    struct mdapl_shm_spsc_msg m;
    pthread_t writer;
    uint32_t n = 0;

    start_at(p, UINT32_MAX - MANY / 2);
    assert_int_equal(pthread_create(&writer, NULL, write_all, p), 0);
    while (n < MANY) {
        if (mdapl_shm_spsc_peek(&p->rx, &m) == MDAPL_SPSC_NONE) {
            mdapl_shm_spsc_ack_flush(&p->rx);
            sched_yield();
            continue;
        }
        if (!get(&p->rx, n, some_hdr(n), some_len(n)))
            fail_msg("message %u is not what was written", n);
        n++;
        if (mdapl_shm_spsc_ack_due(&p->rx))
            mdapl_shm_spsc_ack_flush(&p->rx);
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
}

/* One of two that write to each other. */
struct end {
    struct mdapl_shm_spsc_tx *tx;
    struct mdapl_shm_spsc_rx *rx;
    uint32_t in, out;
    bool wrong;
};

/* The next message, if there is room; it carries an acknowledgement, as the channel's do. */
static bool end_writes(struct end *e)
{
    struct mdapl_shm_spsc_msg m;

    if (e->out == MANY || !mdapl_shm_spsc_reserve(e->tx, some_hdr(e->out), some_len(e->out), &m))
        return false;
    fill(m.hdr, e->out, 0, m.hdr_len);
    fill(m.body, e->out, m.hdr_len, m.len);
    mdapl_shm_spsc_publish(e->tx, &m, 0, e->rx->taken);
    mdapl_shm_spsc_ack_piggybacked(e->rx);
    e->out++;
    return true;
}

static bool end_reads(struct end *e)
{
    struct mdapl_shm_spsc_msg m;

    if (mdapl_shm_spsc_peek(e->rx, &m) == MDAPL_SPSC_NONE)
        return false;
    mdapl_shm_spsc_ack_in(e->tx, m.ack);
    e->wrong |= m.hdr_len != some_hdr(e->in) || m.len != some_len(e->in)
                || !right(m.hdr, e->in, 0, m.hdr_len) || !right(m.body, e->in, m.hdr_len, m.len);
    mdapl_shm_spsc_took(e->rx, &m);
    e->in++;
    return true;
}

static void *write_and_read(void *arg)
{
    struct end *e = arg;

    while (e->in < MANY || e->out < MANY) {
        bool moved = end_writes(e);

        if (end_reads(e) || moved)
            continue;
        /* No message in the other direction: the line has to carry the acknowledgement. */
        mdapl_shm_spsc_ack_flush(e->rx);
        sched_yield();
    }
    mdapl_shm_spsc_ack_flush(e->rx);
    return NULL;
}

static void both_ways(void **state)
{
    struct pair *p = *state, *q;
    struct end here = { .tx = &p->tx }, there = { .rx = &p->rx };
    pthread_t other;

    assert_int_equal(make((void **)&q), 0);
    start_at(p, UINT32_MAX - MANY / 2);
    start_at(q, UINT32_MAX - MANY / 2);
    here.rx = &q->rx;
    there.tx = &q->tx;
    assert_int_equal(pthread_create(&other, NULL, write_and_read, &there), 0);
    write_and_read(&here);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_false(here.wrong || there.wrong);
    assert_int_equal(p->rx.taken, p->tx.next);
    unmake((void **)&q);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_there), TEST(every_size), TEST(short_ones_take_no_data),
        TEST(the_longest), TEST(full), TEST(long_ones_are_spread),
        TEST(short_ones_in_flight_are_spread),
        TEST(rings_are_spread_together), TEST(short_laps), TEST(spread_in_flight),
        TEST(few_in_flight_stay_in_front), TEST(a_free_slot_is_found),
        TEST(each_slot_is_used_now_and_then),
        TEST(round_and_round), TEST(impossible_acks), TEST(impossible_slots), TEST(two_threads),
        TEST(both_ways),
    };

    return RUN(tests);
}
