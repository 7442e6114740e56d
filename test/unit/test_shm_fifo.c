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

static void fill_and_publish(struct fifo *f, uint64_t tail, uint32_t writer, uint32_t number)
{
    struct mdapl_shm_fifo_slot *slot = mdapl_shm_fifo_slot(f->slot, (uint32_t)tail);

    slot->number = number;
    slot->ack = ~number;
    memcpy(slot->room, &number, sizeof(number));
    memset(slot->room + 8, (int)number, number % 41);
    mdapl_shm_fifo_publish(slot, tail, writer, sizeof(number), number % 41);
}

static bool put(struct fifo *f, uint32_t writer, uint32_t number)
{
    uint64_t tail = 0;

    if (!mdapl_shm_fifo_claim(&f->ends, writer, &tail))
        return false;
    fill_and_publish(f, tail, writer, number);
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
            uint32_t writer = i * 7 % MDAPL_FIFO_WRITERS;

            assert_true(i < MDAPL_FIFO_SLOTS || !take(f, &taken, &m));     /* an old word */
            assert_true(put(f, writer, i));
            assert_true(take(f, &taken, &m));
            assert_true(m.writer == writer && m.number == i);
        }
        assert_int_equal((uint32_t)atomic_load(&f->ends.tail), taken);
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

static void who_has_claimed(void **state)
{
    struct fifo *f = *state;
    uint64_t of_7 = 0, of_9 = 0;

    assert_int_equal(mdapl_shm_fifo_claimant(&f->ends, f->slot, 0), -1);
    assert_true(mdapl_shm_fifo_claim(&f->ends, 7, &of_7));
    assert_int_equal(mdapl_shm_fifo_claimant(&f->ends, f->slot, 0), 7);
    assert_true(mdapl_shm_fifo_claim(&f->ends, 9, &of_9));
    assert_int_equal(mdapl_shm_fifo_claimant(&f->ends, f->slot, 0), -1);
    fill_and_publish(f, of_9, 9, 0);
    assert_int_equal(mdapl_shm_fifo_claimant(&f->ends, f->slot, 0), 7);
    fill_and_publish(f, of_7, 7, 0);
    assert_int_equal(mdapl_shm_fifo_claimant(&f->ends, f->slot, 0), -1);
    assert_int_equal(mdapl_shm_fifo_claimant(&f->ends, f->slot, 2), -1);
}

/* The writer may store anything. */
static void impossible_lengths(void **state)
{
    static const uint8_t lens[][2] = { { 49, 0 }, { 0, 49 }, { 41, 1 }, { 255, 0 }, { 0, 255 } };
    struct fifo *f = *state;
    struct mdapl_shm_fifo_msg m;
    uint64_t tail = 0;

    for (uint32_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        assert_true(mdapl_shm_fifo_claim(&f->ends, 1, &tail));
        mdapl_shm_fifo_publish(&f->slot[i], tail, 1, lens[i][0], lens[i][1]);
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

/* Sends in the inring, as soon as `others` are in the FIFO, where the slot before is not published;
 * meanwhile the reader stops polling, and wants to sleep. */
static void behind_a_claimed_slot(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1], *c = &p->rank[2];
    struct mdapl_shm_seg_head *head = a->s->seg.head;
    uint32_t index = to(c)->far_inring;
    struct mdapl_shm_fifo_slot *slot;
    uint64_t tail = 0;

    assert_true(mdapl_shm_fifo_claim(&head->fifo_ends, index, &tail));
    for (uint32_t i = 0; i < FIRST + 3; i++)
        assert_int_equal(send_now(b, i, 8), MDAPL_DONE);
    rounds(a, 3);
    mdapl_wait(a->ctx, MDAPL_SEC(3600));
    rounds(a, 20000);
    mdapl_wait(a->ctx, MDAPL_SEC(3600));
    assert_int_equal(a->n_announced, 0);
    assert_int_equal(stats(a)->shm_sleeps, 0);
    slot = mdapl_shm_fifo_slot(head->fifo, (uint32_t)tail);
    slot->number = ++to(c)->tx.next;
    slot->ack = 0;
    mdapl_shm_fifo_publish(slot, tail, index, 4, 0);
    atomic_fetch_or(&head->doorbell_words, (uint64_t)1 << MDAPL_SHM_DOORBELL_FIFO);
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
    struct mdapl_shm_seg_head *head = a->s->seg.head;
    uint64_t tail = 0;

    assert_true(mdapl_shm_fifo_claim(&head->fifo_ends, to(c)->far_inring, &tail));
    for (uint32_t i = 0; i < FIRST + 1; i++)
        assert_int_equal(send_now(b, i, 8), MDAPL_DONE);
    mdapl_shm_peer_broken(to(a), -EPIPE, "for this test");
    rounds(a, 1);
    assert_int_equal(a->n_faults, 1);
    has_all(a, FIRST + 1);
    mdapl_shm_fifo_slot(head->fifo, (uint32_t)tail)->number = ++to(c)->tx.next;
    mdapl_shm_fifo_publish(mdapl_shm_fifo_slot(head->fifo, (uint32_t)tail), tail,
                           to(c)->far_inring, 4, 0);
    assert_int_equal(send_now(c, 9, 8), MDAPL_DONE);
    rounds(a, 2);
    assert_int_equal(a->n_announced, FIRST + 3);
    assert_int_equal(a->announced[FIRST + 2].number, 9);
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

    to(b)->far_inring = MDAPL_FIFO_WRITERS - 1;
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
        ALONE(who_has_claimed),
        ALONE(impossible_lengths),
        ALONE(many_writers),
        TEST(the_first_need_no_inring),
        TEST(one_that_is_no_line),
        TEST(a_full_one),
        OF_MANY(behind_a_claimed_slot),
        OF_MANY(last_messages_behind_a_claimed_slot),
        TEST(nonsense),
        TEST(a_sleeper_is_woken),
    };

    return RUN(tests);
}
