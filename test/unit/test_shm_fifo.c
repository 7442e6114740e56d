/* SPDX-License-Identifier: MIT */
/* The FIFO of a rank (src/shm/fifo.h) by itself, and what the channel sends in it (fifo.c). */
#include "shm_ranks.h"

#include "fifo.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { FIRST = 4 };              /* messages to a rank that go into its FIFO */

/* -- by itself -------------------------------------------------------------------------------- */

struct fifo {
    struct mdapl_shm_fifo_ends ends;
    struct mdapl_shm_fifo_slot slot[MDAPL_FIFO_SLOTS];
};

static int make(void **state)
{
    struct fifo *f = aligned_alloc(MDAPL_LINE_BYTES, sizeof(*f));

    *state = memset(f, 0, sizeof(*f));
    return 0;
}

static int unmake(void **state)
{
    free(*state);
    return 0;
}

static void fill_and_publish(struct fifo *f, uint32_t at, uint32_t writer, uint32_t number)
{
    struct mdapl_shm_fifo_slot *slot = mdapl_shm_fifo_slot(f->slot, at);

    slot->number = number;
    slot->ack = ~number;
    memcpy(slot->room, &number, sizeof(number));
    memset(slot->room + 8, (int)number, number % 41);
    mdapl_shm_fifo_publish(f->slot, at, writer, sizeof(number), number % 41);
}

static bool put(struct fifo *f, uint32_t writer, uint32_t number)
{
    uint32_t at = 0;

    if (!mdapl_shm_fifo_claim(&f->ends, &at))
        return false;
    fill_and_publish(f, at, writer, number);
    return true;
}

/* Takes the next message, if it is published. */
static bool take(struct fifo *f, uint32_t *taken, struct mdapl_shm_fifo_msg *m)
{
    uint32_t number;

    if (mdapl_shm_fifo_peek(f->slot, *taken, m) != MDAPL_SPSC_MSG)
        return false;
    memcpy(&number, m->hdr, sizeof(number));
    assert_true(number == m->number && m->ack == ~number && m->hdr_len == sizeof(number));
    assert_int_equal(m->len, number % 41);
    for (int i = 0; i < m->len; i++)
        assert_int_equal(m->body[i], (uint8_t)number);
    atomic_store_explicit(&f->ends.taken, ++*taken, memory_order_release);
    return true;
}

/* The counts of slots begin again at 2^32, those of laps with them. */
static void in_order(void **state)
{
    static const uint32_t starts[] = { 0, 1, 3 * MDAPL_FIFO_SLOTS - 1, -5u * MDAPL_FIFO_SLOTS,
                                       (1u << 31) - 7 };
    struct fifo *f = *state;
    struct mdapl_shm_fifo_msg m;

    for (size_t k = 0; k < sizeof(starts) / sizeof(starts[0]); k++) {
        uint32_t taken = starts[k] - MDAPL_FIFO_SLOTS;

        memset(f, 0, sizeof(*f));
        atomic_store(&f->ends.tail, taken);
        atomic_store(&f->ends.taken, taken);
        for (uint32_t i = 0; i < 10 * MDAPL_FIFO_SLOTS; i++) {
            uint32_t writer = i * 7 % 65536;

            assert_true(i < MDAPL_FIFO_SLOTS || !take(f, &taken, &m));     /* an old word */
            assert_true(put(f, writer, i));
            assert_true(take(f, &taken, &m));
            assert_true(m.writer == writer && m.number == i);
        }
        assert_int_equal(atomic_load(&f->ends.tail), taken);
    }
}

static void full(void **state)
{
    struct fifo *f = *state;
    struct mdapl_shm_fifo_msg m;
    uint32_t taken = 0;

    for (uint32_t i = 0; i < MDAPL_FIFO_SLOTS; i++)
        assert_true(put(f, 1, i));
    assert_false(put(f, 1, 0));
    for (uint32_t i = 0; i < 3; i++)
        assert_true(take(f, &taken, &m));
    for (uint32_t i = 0; i < 3; i++)
        assert_true(put(f, 2, i));
    assert_false(put(f, 2, 0));
}

/* ... and not published: the slots behind it wait. */
static void claimed(void **state)
{
    struct fifo *f = *state;
    struct mdapl_shm_fifo_msg m;
    uint32_t first = 9, second = 9, taken = 0;

    assert_false(mdapl_shm_fifo_is_claimed(&f->ends, 0));
    assert_true(mdapl_shm_fifo_claim(&f->ends, &first));
    assert_true(mdapl_shm_fifo_claim(&f->ends, &second));
    assert_true(mdapl_shm_fifo_is_claimed(&f->ends, 0));
    fill_and_publish(f, second, 9, 1);
    assert_false(take(f, &taken, &m));
    fill_and_publish(f, first, 7, 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(take(f, &taken, &m) && m.number == i);
    assert_false(mdapl_shm_fifo_is_claimed(&f->ends, taken));
}

/* The writer may store anything. */
static void impossible_lengths(void **state)
{
    static const uint8_t lens[][2] = { { 49, 0 }, { 0, 49 }, { 41, 1 }, { 255, 0 }, { 0, 255 } };
    struct fifo *f = *state;
    struct mdapl_shm_fifo_msg m;
    uint32_t at = 0;

    for (uint32_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        assert_true(mdapl_shm_fifo_claim(&f->ends, &at));
        mdapl_shm_fifo_publish(f->slot, at, 1, lens[i][0], lens[i][1]);
        assert_int_equal(mdapl_shm_fifo_peek(f->slot, i, &m), MDAPL_SPSC_BAD);
    }
}

enum { WRITERS = 4, EACH = 20000 };

static struct writing {
    pthread_t thread;
    struct fifo *fifo;
    uint32_t writer;
} writing[WRITERS];

static void *write_all(void *arg)
{
    struct writing *w = arg;

    for (uint32_t i = 0; i < EACH; i++)
        while (!put(w->fifo, w->writer, i))
            sched_yield();
    return NULL;
}

/* For TSan: what one writer stores, and what another one stores in the same slot later. */
static void many_writers(void **state)
{
    struct fifo *f = *state;
    uint32_t next[WRITERS] = { 0 }, taken = 0;
    struct mdapl_shm_fifo_msg m;

    for (uint32_t i = 0; i < WRITERS; i++) {
        writing[i] = (struct writing){ .fifo = f, .writer = i };
        assert_int_equal(pthread_create(&writing[i].thread, NULL, write_all, &writing[i]), 0);
    }
    while (taken < WRITERS * EACH) {
        if (!take(f, &taken, &m)) {
            sched_yield();
            continue;
        }
        assert_in_range(m.writer, 0, WRITERS - 1);
        assert_int_equal(m.number, next[m.writer]++);
    }
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_join(writing[i].thread, NULL), 0);
}

/* -- in the channel --------------------------------------------------------------------------- */

static struct mdapl_shm_peer *to(const struct rank *me)
{
    return mdapl_shm_peer_of(me->other);
}

static bool uses_ring(const struct rank *me)
{
    return to(me)->tx.in.front != NULL;
}

/* This rank has been announced the messages 0 to n - 1, in their order. */
static void has_all(const struct rank *me, int n)
{
    assert_int_equal(me->n_announced, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(me->announced[i].number, i);
}

static void the_first_need_no_inring(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    for (uint32_t i = 0; i < FIRST; i++)
        assert_int_equal(send_now(a, i, 8), MDAPL_DONE);
    assert_false(uses_ring(a));
    assert_false(mdapl_peer_idle(a->other));
    rounds(b, 1);
    has_all(b, FIRST);
    assert_true(mdapl_peer_idle(a->other));
    assert_int_equal(stats(a)->shm_doorbells, 0);
    assert_int_equal(send_now(a, FIRST, 8), MDAPL_DONE);
    assert_true(uses_ring(a));
    rounds(b, 1);
    has_all(b, FIRST + 1);
    assert_int_equal(stats(a)->shm_lines, FIRST + 1);
}

/* ... and all behind it, at once and in the same order. */
static void one_that_is_no_line(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    assert_int_equal(send_now(a, 0, 8), MDAPL_DONE);
    assert_int_equal(send_now(a, 1, 100), MDAPL_DONE);
    assert_true(uses_ring(a));
    assert_int_equal(send_now(a, 2, 8), MDAPL_DONE);
    rounds(b, 1);
    has_all(b, 3);
}

static void a_full_one(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    assert_int_equal(send_now(a, 0, 8), MDAPL_DONE);
    atomic_store(&b->s->seg.head->fifo_ends.taken, 1u - MDAPL_FIFO_SLOTS);
    assert_int_equal(send_now(a, 1, 8), MDAPL_DONE);
    assert_true(uses_ring(a));
    rounds(b, 1);
    has_all(b, 2);
}

/* Rank `me` claims a slot of rank 0's FIFO, and publishes a message without a body there. */
static uint32_t claim(struct rank *me)
{
    uint32_t at = 0;

    atomic_store(&me->s->seg.head->writes, 1);
    assert_true(mdapl_shm_fifo_claim(&to(me)->far.head->fifo_ends, &at));
    return at;
}

static void publish(struct rank *me, uint32_t at)
{
    struct mdapl_shm_seg_head *far = to(me)->far.head;

    mdapl_shm_fifo_slot(far->fifo, at)->number = ++to(me)->tx.next;
    mdapl_shm_fifo_publish(far->fifo, at, to(me)->far_inring, 4, 0);
    atomic_store(&me->s->seg.head->writes, 0);
    atomic_fetch_or(&far->doorbell_words, (uint64_t)1 << MDAPL_SHM_DOORBELL_FIFO);
}

/* Messages in the FIFO, where the slot before is not published, and in the inring behind those.
 * Meanwhile the reader stops polling, looks whether the slot is still written, and wants to
 * sleep. */
static void behind_a_claimed_slot(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1], *c = &p->rank[2];
    uint32_t at = claim(c);

    for (uint32_t i = 0; i < FIRST + 3; i++)
        assert_int_equal(send_now(b, i, 8), MDAPL_DONE);
    rounds(a, 3);
    mdapl_wait(a->ctx, MDAPL_SEC(3600));
    p->now += MDAPL_SEC(1);
    rounds(a, 20000);
    mdapl_wait(a->ctx, MDAPL_SEC(3600));
    assert_int_equal(a->n_announced, 0);
    assert_int_equal(stats(a)->shm_sleeps, 0);
    publish(c, at);
    rounds(a, 2);
    assert_int_equal(a->n_announced, 1 + FIRST + 3);
    for (int i = 0; i < FIRST + 3; i++)
        assert_int_equal(a->announced[1 + i].number, i);
}

/* What a rank has sent is announced before its loss, also if it is behind another one's slot; and
 * that one goes on. */
static void last_messages_behind_a_claimed_slot(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1], *c = &p->rank[2];
    uint32_t at = claim(c);

    for (uint32_t i = 0; i < FIRST + 1; i++)
        assert_int_equal(send_now(b, i, 8), MDAPL_DONE);
    mdapl_shm_peer_broken(to(a), -EPIPE, "for this test");
    rounds(a, 1);
    assert_int_equal(a->n_faults, 1);
    has_all(a, FIRST + 1);
    publish(c, at);
    assert_int_equal(send_now(c, 9, 8), MDAPL_DONE);
    rounds(a, 2);
    assert_int_equal(a->n_announced, FIRST + 3);
    assert_int_equal(a->announced[FIRST + 2].number, 9);
}

/* A writer notes whose FIFO it writes only while it does. */
static void nobody_writes(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    assert_int_equal(send_now(a, 0, 8), MDAPL_DONE);
    assert_int_equal(atomic_load(&a->s->seg.head->writes), 0);
    atomic_store(&b->s->seg.head->fifo_ends.taken, 1u - MDAPL_FIFO_SLOTS);   /* it is full */
    assert_int_equal(send_now(a, 1, 8), MDAPL_DONE);
    assert_int_equal(atomic_load(&a->s->seg.head->writes), 0);
}

/* A number that is not the next one; a writer that is none. */
static void nonsense(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    to(a)->tx.next = 1;
    assert_int_equal(send_now(a, 0, 8), MDAPL_DONE);
    rounds(b, 1);
    assert_non_null(strstr(b->fault, "none of this protocol"));
    assert_int_equal(stats(b)->bad_frames, 1);
    assert_int_equal(b->n_announced, 0);

    to(b)->far_inring = UINT16_MAX;
    to(b)->dead = 0;
    assert_int_equal(send_now(b, 0, 8), MDAPL_DONE);
    rounds(a, 1);
    assert_int_equal(a->n_announced, 0);
    assert_int_equal(a->n_faults, 0);
}

static struct rank *awake;

static void sends(struct rank *me)
{
    (void)me;
    assert_int_equal(send_now(awake, 0, 8), MDAPL_DONE);
}

/* Its sleep would last an hour. */
static void a_sleeper_is_woken(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];

    awake = a;
    ranks_asleep = sends;
    mdapl_wait(b->ctx, MDAPL_SEC(3600));
    ranks_asleep = NULL;
    rounds(b, 1);
    has_all(b, 1);
    assert_int_equal(stats(b)->shm_sleeps, 1);
    assert_int_equal(stats(a)->shm_wakes, 1);
}

#define ALONE(f) cmocka_unit_test_setup_teardown(f, make, unmake)
#define OF_MANY(f) cmocka_unit_test_setup_teardown(f, ranks_make_many, ranks_unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE(in_order),
        ALONE(full),
        ALONE(claimed),
        ALONE(impossible_lengths),
        ALONE(many_writers),
        TEST(the_first_need_no_inring),
        TEST(one_that_is_no_line),
        TEST(a_full_one),
        OF_MANY(behind_a_claimed_slot),
        OF_MANY(last_messages_behind_a_claimed_slot),
        TEST(nobody_writes),
        TEST(nonsense),
        TEST(a_sleeper_is_woken),
    };

    return RUN(tests);
}
