/* SPDX-License-Identifier: MIT */
/*
 * Two jobs that exchange messages over dapl: a peer is (group, rank), each pair of groups has a key
 * of its own. Three ranks each, so every rank number is there twice.
 */
#include "unit.h"

#include "channel.h"
#include "sim.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6, HALF = 3 };

static const char port_key[MDAPL_KEY_BYTES] = "key of the port";
static const char wrong_key[MDAPL_KEY_BYTES] = "another's key..";

static uint64_t seeds(uint64_t n)
{
    const char *more = getenv("MDAPL_SEEDS");

    return more ? n * strtoull(more, NULL, 10) : n;
}

static void start(struct sim *s, uint64_t seed, const struct fake_faults *faults,
                  const char *knobs)
{
    sim_start(s, 41000 + seed, RANKS, faults, NULL);
    sim_split(s, HALF);
    sim_open_all(s, knobs);
}

static void join_all(struct sim *s)
{
    for (int i = 0; i < RANKS; i++)
        sim_join(s, i, port_key);
}

/* A round, and some microseconds of the ranks' own work, so that timers of many ms fire soon. */
static void round_and_pause(struct sim *s)
{
    sim_round(s);
    *fake_time() += fake_random(50000);
}

/* As sim_run(), with these pauses. */
static void run_long(struct sim *s)
{
    for (int i = 0; !sim_settled(s); i++) {
        SIM_CHECK(s, i < 1000000);
        round_and_pause(s);
    }
}

/* Steps the removal of the other job's group by one rank. Returns whether that ended it. */
static bool remove_once(struct sim_rank *me)
{
    if (!me->other || mdapl_group_remove(me->other) != MDAPL_DONE)
        return false;
    me->other = NULL;
    return true;
}

/* Has the other job's group removed by the ranks from first up to end. */
static void part(struct sim *s, int first, int end)
{
    int left = 0;

    for (int r = first; r < end; r++)
        left += s->rank[r].other != NULL;
    for (int i = 0; left > 0; i++) {
        SIM_CHECK(s, i < 100000);
        for (int r = first; r < end; r++)
            left -= remove_once(&s->rank[r]);
        sim_round(s);
    }
}

/* n messages between processes that the seed chooses, of the same job and of both. */
static void traffic(struct sim *s, int n)
{
    while (n-- > 0) {
        int from = (int)fake_random(RANKS), to = (int)fake_random(RANKS - 1);

        sim_send(s, from, to + (to >= from), (uint32_t)fake_random(1u << fake_random(17)),
                 fake_random(8) == 0);
        sim_rounds(s, (int)fake_random(20));
    }
    sim_run(s);
}

/* sim.c compares the sender of each message with its peer's group and rank. */
static void messages_in_all_directions(void **state)
{
    static const char *const knobs[] = { "", "streams=2 rndv=rput", "wiring=ondemand ring=on" };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(12); i++) {
        start(&s, i, NULL, knobs[i % 3]);
        join_all(&s);
        traffic(&s, 120);
        for (int k = 0; k < HALF; k++)           /* the same rank of the other job */
            sim_send(&s, k, HALF + k, 100, false);
        sim_run(&s);
        assert_int_equal(SIM_SUM(&s, cr_refused), 0);
        sim_end(&s);
    }
}

/* Requests that cross, get lost, arrive twice or are rejected lead to one connection. */
static void crossing_requests(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(40); i++) {
        const struct fake_faults faults = {
            .reject_cr = i % 4 == 1 ? 5 : 0, .lose_cr = i % 4 == 2 ? 5 : 0,
            .dup_cr = i % 4 == 3 ? 4 : 0,
        };

        start(&s, i, &faults, "wiring=ondemand connect_timeout_ms=50");
        join_all(&s);
        for (int a = 0; a < HALF; a++)
            for (int b = HALF; b < RANKS; b++) {
                sim_send(&s, a, b, 100, false);
                sim_send(&s, b, a, 100, false);
            }
        run_long(&s);
        assert_int_equal(SIM_SUM(&s, connects), 2 * HALF * HALF);
        for (int r = 0; r < HALF && i % 4 == 0; r++)     /* the lower group id wins */
            assert_int_equal(SIM_STAT(&s, r, connect_retries), 0);
        assert_int_equal(SIM_SUM(&s, cr_refused), 0);
        sim_end(&s);
    }
}

/* Rounds until all sends have failed; the job itself is not affected. */
static void all_fail(struct sim *s, int sends)
{
    int failed = 0, status = 0;

    s->may_fail = true;
    for (int i = 0; failed < sends; i++) {
        SIM_CHECK(s, i < 1000000);
        round_and_pause(s);
        failed = 0;
        for (int r = 0; r < RANKS; r++) {
            failed += s->rank[r].sends_failed;
            status = s->rank[r].faults ? s->rank[r].status : status;
        }
    }
    SIM_CHECK(s, status == -EHOSTUNREACH);
    SIM_CHECK(s, SIM_SUM(s, cr_refused) > 0);
    s->may_fail = false;
    for (int from = 0; from < RANKS; from++)
        sim_send(s, from, from < HALF ? (from + 1) % HALF : HALF + (from + 1) % HALF, 100, false);
    s->may_fail = true;                          /* for sim_settled(): the others have failed */
    sim_run(s);
}

static void wrong_key_is_refused(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(4); i++) {
        start(&s, i, NULL, "connect_timeout_ms=200");
        for (int r = 0; r < RANKS; r++)
            sim_join(&s, r, r < HALF ? port_key : wrong_key);
        sim_send(&s, 0, HALF, 100, false);
        sim_send(&s, HALF + 1, 1, 100000, false);
        all_fail(&s, 2);
        sim_close(&s);
    }
}

/* A job that another has not added is a stranger: nothing is allocated for its requests. */
static void unknown_group_is_refused(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(4); i++) {
        int eps;

        start(&s, i, NULL, "connect_timeout_ms=200");
        eps = fake_eps();
        for (int r = 0; r < HALF; r++)
            sim_join(&s, r, port_key);
        sim_send(&s, 0, HALF, 100, false);
        all_fail(&s, 1);
        sim_rounds(&s, 5000);                    /* those of the sender's attempts drain */
        assert_int_equal(fake_eps(), eps);
        sim_close(&s);
    }
}

/* A job that adds the other one a little later gets the messages that have been sent meanwhile. */
static void one_job_adds_the_other_later(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(8); i++) {
        start(&s, i, NULL, "connect_timeout_ms=100000");
        for (int r = 0; r < HALF; r++)
            sim_join(&s, r, port_key);
        sim_send(&s, 1, HALF + 2, 100, false);
        while (SIM_SUM(&s, cr_refused) < 2)
            round_and_pause(&s);
        for (int r = HALF; r < RANKS; r++)
            sim_join(&s, r, port_key);
        run_long(&s);
        sim_end(&s);
    }
}

/* After both have removed the other's group nothing of it is left, and it can be added again under
 * another key. */
static void removed_and_added_again(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(8); i++) {
        int eps;

        start(&s, i, NULL, i % 2 ? "streams=2" : "");
        eps = fake_eps();
        for (int again = 0; again < 3; again++) {
            for (int r = 0; r < RANKS; r++)
                sim_join(&s, r, again % 2 ? wrong_key : port_key);
            traffic(&s, 60);
            assert_true(fake_eps() > eps);
            s.may_fail = true;                   /* the job that is first is lost for the other */
            part(&s, 0, RANKS);
            assert_int_equal(fake_eps(), eps);
            s.may_fail = false;
        }
        sim_end(&s);
    }
}

/* Has every rank acknowledged what the other job's have sent? */
static bool all_settled(struct sim *s)
{
    for (int r = 0; r < RANKS; r++)
        for (int to = 0; to < HALF; to++) {
            struct mdapl_peer *peer = s->rank[r].other->peers[to];

            if (peer && !mdapl_peer_settled(peer))
                return false;
        }
    return true;
}

/* The next step of a rank that removes the other job's group, adds it again, and then sends.
 * Returns the messages that it has sent. */
static int step_to_new_group(struct sim *s, int r, bool *is_new)
{
    struct sim_rank *me = &s->rank[r];

    if (!*is_new && remove_once(me)) {
        sim_join(s, r, port_key);
        *is_new = true;
    }
    if (!*is_new || fake_random(4))
        return 0;
    sim_send(s, r, (r < HALF ? HALF : 0) + (int)fake_random(HALF), (uint32_t)fake_random(20000),
             false);
    return 1;
}

/* Has ranks in any order close the group, then remove and add it. Returns when all have. */
static void meet_again(struct sim *s)
{
    bool closed[RANKS] = { false }, begun[RANKS] = { false }, is_new[RANKS] = { false };
    int n_closed = 0, n_new = 0, sent = 0;

    while (sent < 40 || n_new < RANKS) {
        int r = (int)fake_random(RANKS);
        bool was_new = is_new[r];

        if (!closed[r]) {
            closed[r] = true;
            n_closed++;
            mdapl_group_close(s->rank[r].other);
        } else if (n_closed == RANKS && (begun[r] || fake_random(200) == 0)) {
            begun[r] = true;
            sent += step_to_new_group(s, r, &is_new[r]);
            n_new += is_new[r] && !was_new;
        }
        round_and_pause(s);
    }
}

static bool all_announced(struct sim *s)
{
    for (int r = 0; r < RANKS; r++)
        for (int from = 0; from < RANKS; from++)
            if (s->rank[r].announced[from] != s->rank[from].sent[r])
                return false;
    return true;
}

/* Two jobs separate and meet again, each rank at its own time: no message of the second time is
 * lost to a peer of the first one, and nobody is lost. */
static void ranks_meet_again_at_different_times(void **state)
{
    static const char *const knobs[] = { "wiring=ondemand connect_timeout_ms=200",
                                         "streams=2 connect_timeout_ms=200 rndv=rput" };
    uint64_t stale = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(60); i++) {
        start(&s, i, NULL, knobs[i % 2]);
        join_all(&s);
        traffic(&s, 60);
        sim_until(&s, all_settled);
        s.may_fail = true;       /* the peers of the first time are lost for each other */
        meet_again(&s);
        sim_until(&s, all_announced);
        run_long(&s);
        for (int r = 0; r < RANKS; r++)
            SIM_CHECK(&s, s.rank[r].sends_failed == 0 && s.rank[r].reads_failed == 0);
        SIM_CHECK(&s, SIM_SUM(&s, cr_refused) == 0);
        stale += SIM_SUM(&s, cr_stale);
        s.may_fail = false;
        sim_end(&s);
    }
    assert_true(stale > 0);      /* the old peers do meet the new ones */
}

/* A removal in the middle of messages ends each of them once, when no adapter can touch its memory
 * any more. */
static void removal_ends_what_is_unfinished(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(30); i++) {
        start(&s, i, NULL, i % 2 ? "rndv=rput streams=2 connect_timeout_ms=50"
                                 : "connect_timeout_ms=50");
        join_all(&s);
        s.may_fail = true;
        for (int k = 0; k < HALF; k++) {
            sim_send(&s, k, HALF + k, 100000, false);
            sim_send(&s, HALF + k, k, 60000, true);
            sim_send(&s, k, (k + 1) % HALF, 3000, false);
        }
        sim_rounds(&s, (int)fake_random(1500));
        fake_hold_flushes(true);
        for (int k = 0; k < HALF; k++)
            remove_once(&s.rank[k]);
        sim_rounds(&s, 200);
        fake_hold_flushes(false);
        part(&s, 0, HALF);
        run_long(&s);                            /* the others lose it, or are refused */
        part(&s, HALF, RANKS);
        for (int r = 0; r < HALF; r++)           /* the job's own messages are all there */
            assert_int_equal(s.rank[(r + 1) % HALF].announced[r], 1);
        sim_close(&s);
    }
}

/* The two processes send each other messages through a port. */
static void talk(struct sim *s)
{
    sim_send(s, HALF, 0, 10, false);             /* the visitor is the first to send */
    run_long(s);
    for (int i = 0; i < 20; i++) {
        sim_send(s, 0, HALF, (uint32_t)fake_random(1u << fake_random(17)), false);
        sim_send(s, HALF, 0, (uint32_t)fake_random(1u << fake_random(17)), false);
        sim_rounds(s, (int)fake_random(20));
    }
    run_long(s);
}

/* Rounds until neither of the two owes the other an acknowledgement; then both remove the group.
 * No message has failed. */
static void leave_in_order(struct sim *s)
{
    struct mdapl_peer *a, *b;

    SIM_CHECK(s, sim_peer(s, 0, HALF, &a) == 0 && sim_peer(s, HALF, 0, &b) == 0);
    for (int i = 0; !mdapl_peer_settled(a) || !mdapl_peer_settled(b); i++) {
        SIM_CHECK(s, i < 100000);
        round_and_pause(s);
    }
    s->may_fail = true;                          /* the second one sees the end of the first */
    while (mdapl_peer_remove(b) != MDAPL_DONE)   /* one peer, then the rest of its group */
        sim_round(s);
    part(s, 0, RANKS);
    s->may_fail = false;
    SIM_CHECK(s, s->rank[0].sends_failed == 0 && s->rank[HALF].sends_failed == 0);
}

static void visitors_of_a_port(void **state)
{
    static const char *const knobs[] = { "wiring=ondemand", "streams=2 rndv=rput", "ring=on" };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(9); i++) {
        int eps;

        start(&s, i, NULL, knobs[i % 3]);
        sim_open_port(&s, 0, 0x1234, port_key);
        eps = fake_eps();
        for (uint32_t visit = 1; visit <= 3; visit++) {
            sim_visit(&s, HALF, 0x1234, 0xabc0 + visit, port_key);
            talk(&s);
            leave_in_order(&s);
            assert_int_equal(fake_eps(), eps);
        }
        assert_int_equal(SIM_SUM(&s, cr_refused), 0);
        sim_end(&s);
    }
}

/* Has rank 0 removed the groups of all its visitors? */
static bool no_visitors(struct sim *s)
{
    return !mdapl_group_find(s->rank[0].ctx, 0xabc1);
}

static bool visitor_lost(struct sim *s)
{
    return s->rank[HALF].faults > 0;
}

/* The process of a port removes a visitor's group while the visitor still uses it: the visitor's
 * peer is lost at once, and no group is added for its requests. */
static void visitor_whose_group_is_removed(void **state)
{
    static const char *const knobs[] = { "wiring=ondemand", "streams=2 rndv=rput", "ring=on" };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(30); i++) {
        start(&s, i, NULL, knobs[i % 3]);
        sim_open_port(&s, 0, 0x1234, port_key);
        sim_visit(&s, HALF, 0x1234, 0xabc1, port_key);
        talk(&s);
        s.may_fail = true;
        for (int k = 0; k < (int)fake_random(4); k++)
            sim_send(&s, HALF, 0, 100, false);
        while (!remove_once(&s.rank[0])) {       /* the visitor makes no progress meanwhile */
            fake_step();
            mdapl_progress(s.rank[0].ctx);
        }
        sim_until(&s, visitor_lost);
        assert_int_equal(s.rank[HALF].status, -EHOSTUNREACH);
        assert_non_null(strstr(s.rank[HALF].why, "it has given this rank up"));
        sim_until(&s, no_visitors);
        part(&s, HALF, HALF + 1);
        sim_close(&s);
    }
}

/* One that does not know the key of a port, or another port's, or visits one that is closed, is
 * refused: no group is added for it. */
static void strangers_at_a_port(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(9); i++) {
        start(&s, i, NULL, "wiring=ondemand connect_timeout_ms=200");
        sim_open_port(&s, 0, 0x1234, port_key);
        sim_open_port(&s, 0, 0x1235, wrong_key);
        if (i % 3 == 2)
            mdapl_port_close(s.rank[0].ctx, 0x1234);
        sim_visit(&s, HALF, 0x1234, 0xabc0, i % 3 == 0 ? wrong_key : i % 3 == 1 ? "neither of both."
                                                                             : port_key);
        sim_send(&s, HALF, 0, 100, false);
        all_fail(&s, 1);
        assert_null(s.rank[0].other);
        part(&s, HALF, HALF + 1);
        sim_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_in_all_directions),
        cmocka_unit_test(crossing_requests),
        cmocka_unit_test(wrong_key_is_refused),
        cmocka_unit_test(unknown_group_is_refused),
        cmocka_unit_test(one_job_adds_the_other_later),
        cmocka_unit_test(removed_and_added_again),
        cmocka_unit_test(ranks_meet_again_at_different_times),
        cmocka_unit_test(removal_ends_what_is_unfinished),
        cmocka_unit_test(visitors_of_a_port),
        cmocka_unit_test(visitor_whose_group_is_removed),
        cmocka_unit_test(strangers_at_a_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
