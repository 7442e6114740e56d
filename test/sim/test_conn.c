/* SPDX-License-Identifier: MIT */
/*
 * The end of a connection: its EP is freed, and what follows it begins, when every DTO has
 * completed and the provider has reported the end, in whichever order; attempts that were given up
 * drain aside. test_conn [SEED [TEST]] runs that one seed (0: all).
 */
#include "unit.h"

#include "conn.h"
#include "err.h"
#include "peer.h"
#include "seeds.h"
#include "sim.h"


static void start(struct sim *s, uint64_t i, int n, const struct fake_faults *faults)
{
    sim_start(s, seed_at(i), n, faults, NULL);
    s->verbose = only_seed != 0;
}

static struct mdapl_dapl_stream *stream(struct sim *s, int rank, int other)
{
    struct mdapl_peer *base;

    SIM_CHECK(s, mdapl_peer_get(s->rank[rank].ctx, other, &base) == 0);
    return mdapl_dapl_peer_main(mdapl_dapl_peer_of(base));
}

static bool is_in(struct sim *s, enum mdapl_dapl_cm_state state)
{
    return stream(s, 0, 1)->cm.state == state && stream(s, 1, 0)->cm.state == state;
}

/* The time of virtual ms passes, with rounds before and after. */
static void pass(struct sim *s, uint64_t ms)
{
    sim_rounds(s, 2000);
    *fake_time() += ms * 1000000;
    sim_rounds(s, 2000);
}

/* -- the end ----------------------------------------------------------------------------------- */

/* Two ranks lose their connection while flushes (1) and events of the end (2) are held. */
static void lose(struct sim *s, uint64_t i, unsigned held)
{
    const struct fake_faults faults = {
        .fail_op = DAT_DTO_SEND, .fail_nth = 5, .fail_status = DAT_DTO_ERR_TRANSPORT,
    };

    start(s, i, 2, &faults);
    sim_open_all(s, "ft=off ring=off");
    s->may_fail = true;
    fake_hold_flushes(held & 1);
    fake_hold_ends(held & 2);
    for (int k = 0; k < 10; k++)
        sim_send(s, k % 2, 1 - k % 2, 200, false);
    sim_rounds(s, 2000);
    /* One rank has the error of its send; the other notices the end by its event, or not at all. */
    if (held & 2)
        mdapl_dapl_impossible(stream(s, s->rank[0].faults, 1 - s->rank[0].faults)->peer, "test");
    sim_rounds(s, 2000);
    SIM_CHECK(s, s->rank[0].faults == 1 && s->rank[1].faults == 1);
}

static void expect_drained(struct sim *s, uint64_t abandoned)
{
    SIM_CHECK(s, fake_eps() == 0 && is_in(s, MDAPL_CM_DEAD));
    SIM_CHECK(s, SIM_SUM(s, abandoned) == abandoned);
    sim_close(s);
}

/* Time alone ends no connection with DTOs in flight. */
static void end_comes_before_the_last_flush(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        lose(&s, i, 1);
        pass(&s, 3 * MDAPL_DAPL_END_MS);
        SIM_CHECK(&s, fake_eps() == 2 && is_in(&s, MDAPL_CM_CLOSING));
        fake_hold_flushes(false);
        sim_rounds(&s, 2000);
        expect_drained(&s, 0);
    }
}

static void end_comes_after_the_last_flush(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        lose(&s, i, 3);
        pass(&s, 3 * MDAPL_DAPL_END_MS);
        fake_hold_flushes(false);
        pass(&s, MDAPL_DAPL_END_MS / 2);
        SIM_CHECK(&s, fake_eps() == 2 && is_in(&s, MDAPL_CM_CLOSING));
        fake_hold_ends(false);
        sim_rounds(&s, 2000);
        expect_drained(&s, 0);
    }
}

/* The provider never reports it: the connection is abandoned, its EP freed. */
static void end_never_comes(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        lose(&s, i, 2);
        SIM_CHECK(&s, fake_eps() == 2 && is_in(&s, MDAPL_CM_CLOSING));
        pass(&s, MDAPL_DAPL_END_MS);
        expect_drained(&s, 2);
    }
}

/* A rank that sleeps wakes for it, although nothing happens. */
static void wait_for_the_end_ends_a_sleep(void **state)
{
    struct sim s;
    uint64_t began;

    (void)state;
    lose(&s, 0, 2);
    began = *fake_time();
    for (int r = 0; r < 2; r++)
        for (int k = 0; stream(&s, r, 1 - r)->cm.state != MDAPL_CM_DEAD; k++) {
            SIM_CHECK(&s, k < 100);
            mdapl_wait(s.rank[r].ctx, UINT64_C(3600000000000));
            *fake_time() += 1000;        /* a sleep of less than this is none */
            mdapl_progress(s.rank[r].ctx);
        }
    SIM_CHECK(&s, *fake_time() - began < MDAPL_MS(2 * MDAPL_DAPL_END_MS));
    sim_close(&s);
}

/* RDMA reads are in flight when the connection breaks: their operation does not end, and so its
 * memory stays the channel's, before they have been flushed. */
static void reads_in_flight(void **state)
{
    int tried = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        const struct fake_faults faults = {
            .fail_op = DAT_DTO_RDMA_READ, .fail_nth = 2, .fail_status = DAT_DTO_ERR_TRANSPORT,
        };

        start(&s, i, 2, &faults);
        sim_open_all(&s, "ft=off ring=off rndv=rget rndv_segment=4096");
        s.may_fail = true;
        fake_hold_flushes(true);
        sim_send(&s, 0, 1, 40000, false);
        while (s.rank[1].faults == 0)
            sim_round(&s);
        pass(&s, 3 * MDAPL_DAPL_END_MS);
        if (s.rank[1].reads == 0) {
            SIM_CHECK(&s, fake_eps() == 2 && is_in(&s, MDAPL_CM_CLOSING));
            tried++;
        }
        fake_hold_flushes(false);
        sim_rounds(&s, 4000);    /* some looks in a row have to find no completion */
        SIM_CHECK(&s, s.rank[1].reads == 1);
        expect_drained(&s, 0);
    }
    assert_true(shown(tried, 10));
}

/* -- attempts ---------------------------------------------------------------------------------- */

/* Both ranks request, and the attempt that loses is given up: messages are delivered while it
 * drains, and its EP is freed after its end, or without one when its time is over. */
static void crossing_loser_drains_aside(void **state)
{
    int drained_aside = 0;
    struct mdapl_err err;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(40); i++) {
        bool never = i % 2;

        start(&s, i, 2, NULL);
        fake_hold_ends(true);
        fake_hold_requests(true);
        for (int r = 0; r < 2; r++)
            SIM_CHECK(&s, sim_open(&s, r, "wiring=ondemand ring=off", &err) == 0);
        sim_send(&s, 0, 1, 100, false);
        sim_send(&s, 1, 0, 100, false);
        sim_rounds(&s, 200);
        SIM_CHECK(&s, fake_requests() == 2);
        fake_hold_requests(false);
        sim_run(&s);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, is_in(&s, MDAPL_CM_UP));
        drained_aside += fake_eps() == 3;        /* 2: it was rejected first, which is an end */
        if (never)
            pass(&s, MDAPL_DAPL_END_MS);
        else
            fake_hold_ends(false);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, fake_eps() == 2 && fake_taken_back() == never);
        fake_hold_ends(false);
        sim_end(&s);
    }
    assert_true(shown(drained_aside, 10));
}

/* An attempt times out here while its acceptance is lost: the next one is made at once, and both
 * ranks connect although no end is ever reported. */
static void attempt_without_an_end_is_no_obstacle(void **state)
{
    struct mdapl_err err;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        const struct fake_faults faults = { .lose_cr = 2, .lose_accept = 3 };

        start(&s, i, 2, &faults);
        fake_hold_ends(true);
        for (int r = 0; r < 2; r++)
            SIM_CHECK(&s, sim_open(&s, r, "wiring=ondemand connect_timeout_ms=10", &err) == 0);
        for (int k = 0; k < 6; k++)
            sim_send(&s, k % 2, 1 - k % 2, 100, false);
        for (int k = 0; !sim_settled(&s); k++) {
            SIM_CHECK(&s, k < 4000);
            *fake_time() += 1000000;
            sim_rounds(&s, 20);
        }
        pass(&s, MDAPL_DAPL_END_MS);
        SIM_CHECK(&s, fake_eps() == 2);
        sim_end(&s);
    }
}

/* -- completions of an older incarnation ------------------------------------------------------- */

/* The completions of a freed EP arrive once more, while another connection uses its buffers: they
 * are counted and nothing else, and every message arrives whole. */
static void completions_after_the_end_are_stale(void **state)
{
    struct mdapl_err err;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        uint64_t stale = 0;

        start(&s, i, 3, NULL);
        for (int r = 0; r < 3; r++)
            SIM_CHECK(&s, sim_open(&s, r, "wiring=ondemand ring=off", &err) == 0);
        for (int k = 0; k < 20; k++)
            sim_send(&s, k % 2, 1 - k % 2, 200, false);
        sim_run(&s);
        s.may_fail = true;
        mdapl_dapl_impossible(stream(&s, 0, 1)->peer, "test");
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, fake_eps() == 0);
        for (int k = 0; k < 30; k++) {
            sim_send(&s, k % 2 ? 2 : 0, k % 2 ? 0 : 2, k % 3 ? 200 : 20000, false);
            sim_rounds(&s, 20);
            if (k == 10)
                stale += (uint64_t)fake_complete_again(true);
        }
        sim_run(&s);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, SIM_SUM(&s, stale_completions) == stale && stale > 0);
        SIM_CHECK(&s, s.rank[0].faults == 1 && s.rank[2].faults == 0);
        SIM_CHECK(&s, s.rank[0].announced[2] == 15 && s.rank[2].announced[0] == 15);
        sim_close(&s);
    }
}

/* A provider that reports a completion twice. */
static void completions_count_once(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        uint64_t again = 0;

        start(&s, i, 2, NULL);
        sim_open_all(&s, i % 2 ? "ring=off suppress=off" : "ring=off");
        for (int k = 0; k < 30; k++) {
            sim_send(&s, k % 2, 1 - k % 2, k % 3 ? 200 : 20000, false);
            sim_rounds(&s, 20);
            if (k % 10 == 9)
                again += (uint64_t)fake_complete_again(false);
        }
        sim_run(&s);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, SIM_SUM(&s, stale_completions) == again && again > 0);
        sim_end(&s);
    }
}

/* -- slots of an older incarnation ------------------------------------------------------------- */

/*
 * Rank 1 has written frames into slots of rank 0, and the connection ends before they land. The
 * slots are given to rank 2, but not before that connection has drained. Then the writes of rank 1
 * land where the frames of rank 2 are expected, and none of them is taken for one.
 */
static void late_writes_are_no_frames(void **state)
{
    struct mdapl_err err;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        uint8_t *slots;

        start(&s, i, 3, NULL);
        for (int r = 0; r < 3; r++)
            SIM_CHECK(&s, sim_open(&s, r, "wiring=ondemand ring=on ring_after=1 ring_peers=1 "
                                          "ring_slots=8 suppress=off", &err) == 0);
        sim_send(&s, 1, 0, 20, false);
        sim_run(&s);
        sim_send(&s, 1, 0, 20, false);   /* slots are offered only to a peer that transmits */
        sim_run(&s);
        while (stream(&s, 1, 0)->conn->ring_out.slots == 0)
            sim_round(&s);
        slots = stream(&s, 0, 1)->conn->ring_in.slots;
        SIM_CHECK(&s, slots != NULL);
        s.may_fail = true;
        fake_delay_writes(true);
        fake_hold_ends(true);
        for (int k = 0; k < 8; k++) {
            sim_send(&s, 1, 0, 40, false);
            mdapl_progress(s.rank[1].ctx);
        }
        SIM_CHECK(&s, SIM_STAT(&s, 1, tx_ring) > 0);
        mdapl_dapl_impossible(stream(&s, 0, 1)->peer, "test");
        mdapl_dapl_impossible(stream(&s, 1, 0)->peer, "test");
        for (int r = 0; r < 2; r++)
            mdapl_progress(s.rank[r].ctx);
        for (int k = 0; k < 4; k++)
            sim_send(&s, 2, 0, 30, false);
        sim_run(&s);
        SIM_CHECK(&s, stream(&s, 0, 2)->conn->ring_in.slots == NULL);
        fake_hold_ends(false);
        sim_rounds(&s, 2000);
        sim_send(&s, 2, 0, 30, false);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, stream(&s, 0, 2)->conn->ring_in.slots == slots);
        SIM_CHECK(&s, fake_land_writes() > 0);
        for (int k = 0; k < 40; k++) {
            sim_send(&s, 2, 0, 30, false);
            sim_rounds(&s, 10);
        }
        sim_run(&s);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, s.rank[0].announced[2] == 45 && s.rank[2].faults == 0);
        SIM_CHECK(&s, SIM_STAT(&s, 2, tx_ring) > 0);
        SIM_CHECK(&s, SIM_STAT(&s, 0, dup) == 0 && SIM_STAT(&s, 0, bad_frames) == 0);
        sim_close(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(end_comes_before_the_last_flush),
        cmocka_unit_test(end_comes_after_the_last_flush),
        cmocka_unit_test(end_never_comes),
        cmocka_unit_test(wait_for_the_end_ends_a_sleep),
        cmocka_unit_test(reads_in_flight),
        cmocka_unit_test(crossing_loser_drains_aside),
        cmocka_unit_test(attempt_without_an_end_is_no_obstacle),
        cmocka_unit_test(completions_after_the_end_are_stale),
        cmocka_unit_test(completions_count_once),
        cmocka_unit_test(late_writes_are_no_frames),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
