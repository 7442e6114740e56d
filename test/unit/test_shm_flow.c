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
    for (size_t len = MDAPL_SHM_SHORT; len <= MIB; len *= 2)
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

/* -- an owner that pauses a peer -------------------------------------------------------------- */

static struct mdapl_peer *peer_of(struct pair *p, int rank, int other)
{
    struct mdapl_peer *peer;

    assert_int_equal(mdapl_peer_get(p->rank[rank].ctx, other, &peer), 0);
    return peer;
}

/* Its messages are queued, with or without bodies, until the owner resumes it; others' are not. */
static void a_paused_peer(void **state)
{
    enum { N = 5 };
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *d = &p->rank[3];

    fill_source(sizeof(source), 0);
    d->next = MDAPL_NEXT_LATER;
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(send_to(a, 3, i, i * 100, NULL), MDAPL_DONE);
    rounds(d, ROUNDS);           /* after some of them it publishes what it has taken */
    assert_int_equal(d->n_announced, 1);
    assert_int_equal(stats(d)->pauses, 1);
    assert_int_equal(stats(d)->parked, N - 1);
    assert_true(mdapl_peer_idle(peer_of(p, 0, 3)));      /* the sender has all acknowledged */
    d->next = MDAPL_NEXT_GO;
    assert_int_equal(send_to(&p->rank[1], 3, 70, 8, NULL), MDAPL_DONE);
    rounds(d, 3);
    assert_int_equal(d->n_announced, 2);
    assert_int_equal(d->announced[1].number, 70);
    d->next = MDAPL_NEXT_LATER;
    mdapl_resume(peer_of(p, 3, 0));                      /* for one message, by that answer */
    assert_int_equal(d->n_announced, 2);
    rounds(d, 3);
    assert_int_equal(d->n_announced, 3);
    d->next = MDAPL_NEXT_GO;
    mdapl_resume(peer_of(p, 3, 0));
    rounds(d, 1);
    for (uint32_t i = 1; i < N; i++) {
        assert_int_equal(d->announced[i + 1].number, i);
        assert_int_equal(d->announced[i + 1].len, i * 100);
    }
    assert_memory_equal(sink, source, (N - 1) * 100);
    assert_int_equal(send_to(a, 3, N, 8, NULL), MDAPL_DONE);
    rounds(d, 1);
    assert_int_equal(d->n_announced, N + 2);
    assert_int_equal(stats(d)->pauses, 2);
}

/* Of several peers, resumed together; one of them has sent nothing meanwhile. */
static void paused_peers(void **state)
{
    struct pair *p = *state;
    struct rank *d = &p->rank[3];

    d->next = MDAPL_NEXT_LATER;
    for (int from = 0; from < 3; from++)
        for (uint32_t i = 0; i < 1 + (from > 0); i++)
            assert_int_equal(send_to(&p->rank[from], 3, 10 * (uint32_t)from + i, 8, NULL),
                             MDAPL_DONE);
    rounds(d, 3);
    assert_int_equal(d->n_announced, 3);
    d->next = MDAPL_NEXT_GO;
    mdapl_resume_all(d->ctx);
    mdapl_resume_all(d->ctx);
    rounds(d, 1);
    assert_int_equal(d->n_announced, 5);
    assert_int_equal(send_to(&p->rank[0], 3, 1, 8, NULL), MDAPL_DONE);
    rounds(d, 1);
    assert_int_equal(d->n_announced, 6);
}

/* A body that the owner fetches later holds back what follows, and so does a pause: the queue waits
 * for the end of both, in any order. */
static void paused_and_held(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *d = &p->rank[3];

    for (int first = 0; first < 2; first++) {
        int before = d->n_announced;

        d->next = MDAPL_NEXT_LATER;
        assert_int_equal(send_to(a, 3, 0, 8, NULL), MDAPL_DONE);
        assert_true(send_to(a, 3, 1, MIB, stuck_op()) >= 0);
        assert_true(send_to(a, 3, 2, 8, stuck_op()) >= 0);
        rounds(d, 3);
        assert_int_equal(d->n_announced, before + 1);
        d->next = MDAPL_NEXT_HOLD;
        mdapl_resume_all(d->ctx);
        rounds(d, 3);
        assert_int_equal(d->n_announced, before + 2);
        mdapl_resume_all(d->ctx);
        rounds(d, 3);
        assert_int_equal(d->n_announced, before + 2);
        d->next = first ? MDAPL_NEXT_LATER : MDAPL_NEXT_GO;
        mdapl_rx_drop(last_rx(d));
        rounds(d, 3);
        assert_int_equal(d->n_announced, before + 3);
        mdapl_resume_all(d->ctx);
        rounds(a, 3);
    }
}

#define FOUR(f) cmocka_unit_test_setup_teardown(f, make, ranks_unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUR(past_full_rings), FOUR(past_requested_bodies),
        FOUR(queued_messages_arrive),
        FOUR(a_paused_peer), FOUR(paused_peers), FOUR(paused_and_held),
    };

    return RUN(tests);
}
