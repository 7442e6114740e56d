/* SPDX-License-Identifier: MIT */
/*
 * The shm channel with more than two ranks: a message waits for no rank but its receiver (MPI 4.0,
 * 3.5: of a matching send and receive at least one completes, whatever else happens). Ranks 1 and 2
 * make no progress here, with bodies in flight to them; rank 3 does.
 */
#include "shm_ranks.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, SENDS = 16, ROUNDS = 2000 };

static struct sending stuck[3 * SENDS];
static int n_stuck;

static int make(void **state)
{
    n_stuck = 0;
    return ranks_make(state, RANKS);
}

static struct mdapl_op *stuck_op(void)
{
    stuck[n_stuck] = (struct sending){ .op.done = ranks_done };
    return &stuck[n_stuck++].op;
}

/* The body of the message to rank 3: read as it is announced, into sink. */
static struct sending reading;

static enum mdapl_next read_it(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct rank *me = owner;
    struct iovec v = { sink, sizeof(sink) };

    (void)peer;
    me->n_announced++;
    if (m->data)
        memcpy(sink, m->data, m->len);
    if (!m->rx || mdapl_rx_read(m->rx, &v, 1, &reading.op) == MDAPL_DONE)
        reading.done++;
    return MDAPL_NEXT_GO;
}

/* Rank 0 sends to rank 3, and these two make progress. */
static void arrives(struct pair *p, size_t len, bool synchronous)
{
    struct rank *a = &p->rank[0], *d = &p->rank[3];
    struct sending s = { .op.done = ranks_done };
    int before = d->n_announced, rc;

    reading = (struct sending){ .op.done = ranks_done };
    memset(sink, 0, len);
    assert_int_equal(mdapl_peer_get(a->ctx, 3, &a->other), 0);
    rc = send_op(a, 9, len, synchronous, &s.op);
    assert_true(rc >= 0);
    for (int i = 0; i < ROUNDS && !(reading.done && (rc == MDAPL_DONE || s.done)); i++) {
        rounds(a, 1);
        rounds(d, 1);
    }
    assert_int_equal(d->n_announced, before + 1);
    assert_int_equal(reading.done, 1);
    assert_true(rc == MDAPL_DONE || s.done == 1);
    assert_memory_equal(sink, source, len);
}

static void all_sizes(struct pair *p)
{
    for (size_t len = 8192; len <= MIB; len *= 2)
        for (int way = 0; way < 4; way++)
            arrives(p, len - (way & 1), way & 2);
}

/* Ranks 1 and 2 make no progress, and messages to them wait for room in their rings. */
static void past_full_rings(void **state)
{
    struct pair *p = *state;

    fill_source(sizeof(source), 0);
    on_message = read_it;
    for (int i = 0; i < SENDS; i++)
        for (int to = 1; to <= 2; to++)
            assert_true(send_to(&p->rank[0], to, 1, 60000, stuck_op()) >= 0);
    all_sizes(p);
    if (memory_can_be_read()) {
        p->rank[3].s->single_from = 0;
        all_sizes(p);
    }
    on_message = ranks_on_msg;
}

/* Bodies that ranks 1 and 2 have requested hold all cells. */
static void past_requested_bodies(void **state)
{
    static char elsewhere[3][MIB];
    static struct sending asked[3];
    struct pair *p = *state;

    fill_source(sizeof(source), 0);
    for (int to = 1; to <= 2; to++) {
        struct rank *me = &p->rank[to];
        struct iovec v = { elsewhere[to], MIB };

        assert_int_equal(send_to(&p->rank[0], to, 1, MIB, stuck_op()), 0);
        rounds(me, 1);
        asked[to] = (struct sending){ .op.done = ranks_done };
        assert_int_equal(mdapl_rx_read(me->announced[0].rx, &v, 1, &asked[to].op), 0);
    }
    rounds(&p->rank[0], 10);
    on_message = read_it;
    all_sizes(p);
    on_message = ranks_on_msg;
}

/* The same when ranks 1 and 2 make progress later: nothing that was sent to them is lost. */
static void queued_messages_arrive(void **state)
{
    struct pair *p = *state;

    past_full_rings(state);
    on_message = read_it;
    for (int i = 0; i < ROUNDS; i++)
        for (int r = 0; r < RANKS; r++)
            rounds(&p->rank[r], 1);
    on_message = ranks_on_msg;
    assert_int_equal(p->rank[1].n_announced, SENDS);
    assert_int_equal(p->rank[2].n_announced, SENDS);
}

#define FOUR(f) cmocka_unit_test_setup_teardown(f, make, ranks_unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUR(past_full_rings), FOUR(past_requested_bodies),
        FOUR(queued_messages_arrive),
    };

    return RUN(tests);
}
