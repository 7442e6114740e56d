/* SPDX-License-Identifier: MIT */
/*
 * Connections that break are replaced, and the frames that they carried are sent again: every
 * message is delivered once and in order (sim.c compares numbers and bytes). Each kind of fault
 * happens at each request of some scenarios, and pairs of them by seeds.
 * test_break [SEED [TEST [all]]] runs that one seed with the frames shown; SEED 0: those that
 * ./check runs, TEST alone; all: every kind at every request, and not half of them.
 */
#include "unit.h"

#include "conn.h"
#include "err.h"
#include "peer.h"
#include "seeds.h"
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGES = 24 };

static bool all;

static void start(struct sim *s, uint64_t i, const struct fake_faults *faults)
{
    sim_start(s, seed_at(i), 2, faults, NULL);
    s->verbose = only_seed != 0;
}

/* The place in fake_async_ep() of a rank's connection to another one. */
static int connection_of(struct sim *s, int rank, int other)
{
    return fake_nth_ep(mdapl_dapl_peer_main(sim_dapl_peer(s, rank, other))->conn->ep.handle);
}

/* Are all connections up at both ends, and have the last ones before them drained? */
static bool is_quiet(struct sim *s)
{
    int streams = 0, up = 0;

    for (int r = 0; r < 2; r++) {
        const struct mdapl_dapl_peer *peer = sim_dapl_peer(s, r, 1 - r);

        streams += peer->n_streams;
        for (int i = 0; i < peer->n_streams; i++)
            up += mdapl_dapl_stream_up(&peer->stream[i]);
    }
    return up == streams && fake_eps() == streams;
}

/* Messages both ways, some of them as long as this. */
static void exchange(struct sim *s, int messages, uint64_t longest)
{
    for (int k = 0; k < messages; k++) {
        uint64_t most = fake_random(3) ? 300 : longest;

        sim_send(s, k % 2, 1 - k % 2, (uint32_t)fake_random(most), false);
        sim_rounds(s, (int)fake_random(12));
    }
    sim_until(s, sim_settled);
}

/* -- one break --------------------------------------------------------------------------------- */

/* No acknowledgement has a frame of its own, which is not sent again. */
#define NO_ACKS "sr_window=1000 ack_frames=4096 ack_bytes=1g ack_idle_us=60000000 "

/* The nth send fails without having been executed. It may be one of the few acknowledgements that
 * advertise a longer window. */
static void a_failed_send_is_sent_again(void **state)
{
    uint64_t replayed = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(100); i++) {
        const struct fake_faults faults = {
            .fail_op = DAT_DTO_SEND, .fail_nth = 1 + (unsigned)i % 20,
            .fail_status = DAT_DTO_ERR_TRANSPORT,
        };

        start(&s, i, &faults);
        sim_open_all(&s, i % 2 ? NO_ACKS "wiring=ondemand ring=off dead_ms=0"
                             : NO_ACKS "ring=off dead_ms=0");
        exchange(&s, 60, 3000);
        sim_rounds(&s, 1000);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 2 && SIM_SUM(&s, reconnects) == 2);
        replayed += SIM_SUM(&s, replayed_frames) > 0;
        SIM_CHECK(&s, SIM_SUM(&s, outage_max) > 0);
        sim_end(&s);
    }
    assert_true(shown(replayed, 90));
}

/* One of the frames of a message, all of which are posted in one call, is refused: those behind it
 * are sent again as well. Only an acknowledgement, which is a header and no more, is not: the first
 * frame of a caller, or one that advertises a longer window. */
static void a_refused_frame_of_several(void **state)
{
    struct sim s;

    (void)state;
    for (unsigned nth = 1; nth <= 24; nth++) {
        const struct fake_faults faults = { .refuse_send = nth };

        start(&s, nth, &faults);
        sim_open_all(&s, "ring=off dead_ms=0 sr_window=100 vbuf_size=1000 eager_bytes=20000");
        sim_send(&s, 0, 1, 20000, false);
        sim_send(&s, 0, 1, 100, false);
        sim_send(&s, 1, 0, 20000, false);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 2 && SIM_SUM(&s, tx_eager) == 3);
        SIM_CHECK(&s, SIM_SUM(&s, replayed_frames) > 0
                      || fake_refused_bytes() == MDAPL_FRAME_HDR_BYTES);
        sim_end(&s);
    }
}

/* -- every request, every kind of fault -------------------------------------------------------- */

static const struct {
    const char *knobs;
    uint64_t longest;            /* bytes of a message */
} scenarios[] = {
    { "wiring=ondemand ring=off", 3000 },
    { "wiring=ring ring=off sr_window=2", 3000 },
    { "wiring=ring ring=on ring_after=2 ring_slots=4 suppress=off", 3000 },
    { "wiring=ondemand ring=on ring_after=1", 3000 },
    { "wiring=ring ring=off ack_frames=1 suppress=off ep_requests=4", 3000 },
    { "wiring=ondemand ring=off streams=2", 3000 },
    { "wiring=ring ring=on ring_after=1 ring_slots=4 ia=fake,fake", 3000 },
    { "wiring=ring ring=off ia=fake,fake rndv=rput sr_window=2 stripe_bytes=4000", 20000 },
    { "wiring=ring ring=off eager_bytes=65536 vbuf_size=1000", 10000 },
    { "wiring=ondemand ring=off ia=fake,fake eager_bytes=65536 vbuf_size=1000 sr_window=2", 10000 },
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(scenarios[0]) };

static const char *const kind_name[FAKE_FAULT_KINDS] = {
    "not executed", "executed", "then break", "flush late", "end late", "one-sided", "doubled",
    "request lost", "request late", "accept lost", "accept late",
    "swallowed", "swallowed both",
};

/* Has this rank drained? It goes on with progress then, as in the launcher's barrier. */
static bool is_drained(struct sim *s)
{
    for (int r = 0; r < s->n; r++)
        s->drained[r] |= s->rank[r].ctx && mdapl_drain(s->rank[r].ctx) == 0;
    for (int r = 0; r < s->n; r++)
        if (s->rank[r].ctx && !s->drained[r])
            return false;
    return true;
}

/* All have drained, and close one after the other. The end of a connection is no reason for another
 * one then, and nothing is printed. */
static void close_all(struct sim *s, int first)
{
    unsigned calls = fake_requests();

    mdapl_ctx_close(s->rank[first].ctx);
    sim_leave(s, first);
    sim_rounds(s, 3000);
    SIM_CHECK(s, fake_requests() == calls && s->rank[1 - first].faults == 0);
    sim_close(s);
}

/* MPI_Finalize: each rank drains and waits for the others, then all close. */
static void finish(struct sim *s)
{
    sim_until(s, is_drained);
    sim_rounds(s, 200);
    close_all(s, 0);
}

/* One run with the faults of a plan. Returns how many requests there were. */
static unsigned run(uint64_t seed, int scenario, const struct fake_fault *plan, int n)
{
    unsigned requests;
    struct sim s;

    start(&s, seed, NULL);
    fake_plan(plan, n);
    sim_open_all(&s, scenarios[scenario].knobs);
    exchange(&s, MESSAGES, scenarios[scenario].longest);
    for (int k = 0; k <= n; k++) {               /* acknowledgements may meet a fault, too */
        sim_rounds(&s, 1500);
        sim_until(&s, is_quiet);
    }
    SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[1].faults == 0);
    SIM_CHECK(&s, s.rank[0].announced[1] == MESSAGES / 2 && s.rank[1].announced[0] == MESSAGES / 2);
    /* Each end counts a break, unless it had not been established there. */
    SIM_CHECK(&s, SIM_SUM(&s, breaks) >= fake_broken() && SIM_SUM(&s, breaks) <= 2 * fake_broken());
    SIM_CHECK(&s, SIM_SUM(&s, stale_completions) == fake_doubled());
    SIM_CHECK(&s, SIM_SUM(&s, dup) <= SIM_SUM(&s, replayed_frames));
    sim_until(&s, is_drained);
    requests = fake_executed();
    finish(&s);
    return requests;
}

static void print_plan(uint64_t seed, int scenario, const struct fake_fault *plan, int n)
{
    if (!only_seed)
        return;
    fprintf(stderr, "seed %llu: %s;", (unsigned long long)seed,
            scenarios[scenario].knobs);
    for (int i = 0; i < n; i++)
        fprintf(stderr, " request %u %s", plan[i].nth, kind_name[plan[i].kind]);
    fprintf(stderr, "\n");
}

/* The seed of a run names all of it: scenario, request and kind. */
static void at_every_request(void **state)
{
    int hit = 0;

    (void)state;
    for (int scenario = 0; scenario < SCENARIOS; scenario++) {
        unsigned requests = run((uint64_t)scenario, scenario, NULL, 0);

        for (unsigned nth = 1; nth <= requests; nth++)
            for (int kind = 0; kind < FAKE_FAULT_KINDS; kind++) {
                uint64_t seed = ((uint64_t)scenario << 24 | nth << 8 | (unsigned)kind) + 1;
                struct fake_fault plan = { (enum fake_fault_kind)kind, nth };

                if (only_seed ? seed != only_seed : !all && (nth + (unsigned)kind) % 2)
                    continue;
                print_plan(seed, scenario, &plan, 1);
                hit += run(seed - 1, scenario, &plan, 1) >= nth;
            }
    }
    assert_true(shown(hit, 800));
}

/* The job ends while messages and acknowledgements are in flight, and a connection breaks. */
static void the_end_of_the_job(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < seeds(300); k++) {
        uint64_t i = only_seed ? only_seed - 1 : k;
        struct fake_fault plan[2];
        struct sim s;

        start(&s, i, NULL);
        for (int f = 0; f < 2; f++)
            plan[f] = (struct fake_fault){ (enum fake_fault_kind)fake_random(FAKE_FAULT_KINDS),
                                           1 + (unsigned)fake_random(24) };
        print_plan(i + 1, (int)(i % SCENARIOS), plan, 1 + (int)(i % 2));
        fake_plan(plan, 1 + (int)(i % 2));
        sim_open_all(&s, scenarios[i % SCENARIOS].knobs);
        for (int m = 0; m < 12; m++)
            sim_send(&s, m % 2, 1 - m % 2, 100, false);
        sim_until(&s, is_drained);
        SIM_CHECK(&s, s.rank[0].announced[1] == 6 && s.rank[1].announced[0] == 6);
        finish(&s);
    }
}

/* All have drained, and one has left the launcher's barrier before the other, whose connection has
 * just broken: that needs no other one, and nobody is lost. */
static void broken_after_all_have_drained(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(100); i++) {
        struct sim s;

        start(&s, seed_at(i), NULL);
        sim_open_all(&s, scenarios[i % SCENARIOS].knobs);
        for (int m = 0; m < 12; m++)
            sim_send(&s, m % 2, 1 - m % 2, 100, false);
        sim_until(&s, is_drained);
        fake_break_all(0);
        sim_rounds(&s, (int)fake_random(60));
        close_all(&s, (int)(i % 2));
    }
}

/* Several faults, of which one may happen during the recovery from another. */
static void pairs(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(300); i++) {
        uint64_t seed = seed_at(i);
        struct fake_fault plan[4];
        int scenario, n;

        fake_start(seed * 77, NULL, NULL);       /* for its numbers */
        scenario = (int)fake_random(SCENARIOS);
        n = 2 + (int)fake_random(3);
        for (int k = 0; k < n; k++)
            plan[k] = (struct fake_fault){ (enum fake_fault_kind)fake_random(FAKE_FAULT_KINDS),
                                           1 + (unsigned)fake_random(40) };
        fake_stop();
        print_plan(seed, scenario, plan, n);
        run(seed - 1, scenario, plan, n);
    }
}

/* -- several streams --------------------------------------------------------------------------- */

/* The stream that carries the frames breaks and cannot be connected again: its frames move to the
 * other one, on another adapter or not, and none waits. */
static void one_of_two_is_enough(void **state)
{
    static const char *const knobs[] = {
        "streams=2 ring=off", "ia=fake,fake ring=off sr_window=2",
        "ia=fake,fake ring=on ring_after=1", "ia=fake,fake ring=off rndv=rput stripe_bytes=4000",
    };
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(80); k++) {
        uint64_t i = only_seed ? only_seed - 1 : k;

        start(&s, i, NULL);
        sim_open_all(&s, knobs[i % 4]);
        exchange(&s, 10, 10000);
        for (int m = 0; m < 20; m++)
            sim_send(&s, m % 2, 1 - m % 2, m % 4 ? 200 : 20000, false);
        fake_hold_requests(true);
        fake_async_ep(connection_of(&s, (int)(i % 2), (int)(1 - i % 2)),
                      DAT_ASYNC_ERROR_EP_BROKEN);
        sim_rounds(&s, (int)fake_random(400));
        exchange(&s, 40, 20000);
        for (int r = 0; r < 2; r++)
            SIM_CHECK(&s, sim_dapl_peer(&s, r, 1 - r)->n_up == 1);
        *fake_time() += MDAPL_MS(100000);        /* far more than an outage may last */
        sim_rounds(&s, 2000);
        exchange(&s, 10, 20000);
        fake_hold_requests(false);
        sim_until(&s, is_quiet);
        exchange(&s, 40, 20000);
        sim_end(&s);
    }
}

/* -- giving up --------------------------------------------------------------------------------- */

static void expect_texts(struct sim *s, const char *line, const char *const text[], size_t n)
{
    for (size_t k = 0; k < n; k++) {
        if (!strstr(line, text[k]))
            fprintf(stderr, "no \"%s\" in: %s\n", text[k], line);
        SIM_CHECK(s, strstr(line, text[k]) != NULL);
    }
}

static bool is_given_up(struct sim *s)
{
    return s->rank[0].faults > 0 && s->rank[1].faults > 0;
}

static bool rank_0_is_lost(struct sim *s)
{
    return s->rank[1].faults > 0 && s->rank[2].faults > 0;
}

/* Three ranks; the connection of the first two breaks in the middle of messages. */
static void break_of_three(struct sim *s, uint64_t i, const char *knobs)
{
    sim_start(s, seed_at(i), 3, NULL, NULL);
    s->verbose = only_seed != 0;
    sim_open_all(s, knobs);
    for (int k = 0; k < 12; k++)
        sim_send(s, k % 2, 1 - k % 2, 200, false);
    sim_until(s, sim_settled);
    s->may_fail = true;
    sim_send(s, 0, 1, 200, false);
    sim_send(s, 1, 0, 200, false);
}

/* Messages of the ranks that have not lost each other. */
static void expect_the_others(struct sim *s, int from, int to)
{
    uint32_t before = s->rank[to].announced[from];

    for (int k = 0; k < 10; k++)
        sim_send(s, from, to, 300, false);
    sim_rounds(s, 4000);
    SIM_CHECK(s, s->rank[to].announced[from] == before + 10);
}

/* No request arrives any more. Both ranks give the other one up when the time of the knob is over
 * and not before, with one line; the third rank is not concerned. */
static void gives_up_after_max_outage(void **state)
{
    static const char *const text[] = {
        "no path to rank", "IA fake", "for 2.0 s", "BROKEN", "requests",
        "no answer in time", "frames (", "bytes) are not acknowledged",
    };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        uint64_t began;

        break_of_three(&s, i, "ring=off max_outage_ms=2000");
        fake_hold_requests(true);
        fake_async_ep(connection_of(&s, 0, 1), DAT_ASYNC_ERROR_EP_BROKEN);
        began = *fake_time();
        sim_until(&s, is_given_up);
        SIM_CHECK(&s, *fake_time() - began >= MDAPL_MS(2000) - MDAPL_MS(1));
        SIM_CHECK(&s, *fake_time() - began <= MDAPL_MS(3000));
        SIM_CHECK(&s, s.rank[0].faults == 1 && s.rank[1].faults == 1 && s.rank[2].faults == 0);
        SIM_CHECK(&s, s.rank[0].status == -EHOSTUNREACH);
        expect_texts(&s, s.rank[0].why, text, 3);
        expect_texts(&s, s.rank[1].why, text, 3);
        SIM_CHECK(&s, strstr(s.rank[0].why, text[5]) || strstr(s.rank[1].why, text[5]));
        expect_texts(&s, s.rank[0].why, text + 6, 2);
        fake_hold_requests(false);
        expect_the_others(&s, 2, 0);
        expect_the_others(&s, 1, 2);
        sim_close(&s);
    }
}

/* A provider that does not flush what an ended connection has posted is not waited for longer. */
static void gives_up_a_drain(void **state)
{
    static const char *const text[] = { "no path to rank", "for 2.0 s", "not completed all" };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        break_of_three(&s, i, "ring=off max_outage_ms=2000");
        fake_hold_flushes(true);
        fake_async_ep(connection_of(&s, 0, 1), DAT_ASYNC_ERROR_EP_BROKEN);
        sim_until(&s, is_given_up);
        for (int r = 0; r < 2; r++)
            expect_texts(&s, s.rank[r].why, text, 3);
        fake_hold_flushes(false);
        expect_the_others(&s, 2, 0);
        sim_close(&s);
    }
}

/* A rank ends without a word. What was its address refuses requests, for the time of one. */
static void a_rank_that_has_gone_is_given_up(void **state)
{
    static const char *const text[] = {
        "no path to rank 0", "for 1.", "NON_PEER_REJECTED", "Its process has ended",
    };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        break_of_three(&s, i, "ring=off connect_timeout_ms=1000");
        sim_rounds(&s, 2000);
        mdapl_ctx_close(s.rank[0].ctx);
        sim_leave(&s, 0);
        sim_send(&s, 1, 0, 100, false);
        sim_until(&s, rank_0_is_lost);
        SIM_CHECK(&s, s.rank[1].faults == 1 && s.rank[2].faults == 1);
        expect_texts(&s, s.rank[1].why, text, 4);
        expect_the_others(&s, 1, 2);
        sim_close(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_send_is_sent_again),
        cmocka_unit_test(a_refused_frame_of_several),
        cmocka_unit_test(at_every_request),
        cmocka_unit_test(pairs),
        cmocka_unit_test(the_end_of_the_job),
        cmocka_unit_test(broken_after_all_have_drained),
        cmocka_unit_test(one_of_two_is_enough),
        cmocka_unit_test(gives_up_after_max_outage),
        cmocka_unit_test(gives_up_a_drain),
        cmocka_unit_test(a_rank_that_has_gone_is_given_up),
    };

    read_seed(argc, argv);
    all = argc > 3;
    return RUN(tests);
}
