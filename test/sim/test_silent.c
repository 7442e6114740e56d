/* SPDX-License-Identifier: MIT */
/*
 * Paths that lose everything without an error. Such a connection is replaced in a fraction of a
 * second, but only where another one can carry its frames; a peer that computes or is stopped loses
 * none. Where the loss begins at every request is in test_break and test_bodies.
 * test_silent [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "clock.h"
#include "conn.h"
#include "peer.h"
#include "seeds.h"
#include "sim.h"

#include <stdio.h>

enum {
    DEAD_MS = 50,                /* the knob's default */
    VERDICT_MS = 80,             /* that, the looks after the second answer, and what looks take */
};

/* The number of a run, which its seed gives: it chooses the knobs, too. */
static uint64_t run_at(uint64_t k)
{
    return seed_at(k) - 1;
}

static void start_on(struct sim *s, uint64_t i, const char *knobs, const struct fake_limits *limits)
{
    sim_start(s, i + 1, 2, NULL, limits);
    s->verbose = only_seed != 0;
    sim_open_all(s, knobs);
    for (int k = 0; k < 20; k++)
        sim_send(s, k % 2, 1 - k % 2, k % 5 ? 200 : 12000, false);
    sim_until(s, sim_settled);
    sim_rounds(s, 7000);         /* the words, the slots and the acknowledgements have arrived */
}

static void start(struct sim *s, uint64_t i, const char *knobs)
{
    start_on(s, i, knobs, NULL);
}

/* The connection of a rank's stream loses everything from now on. */
static void swallow(struct sim *s, int rank, int stream, bool both)
{
    const struct mdapl_dapl_peer *peer = sim_dapl_peer(s, rank, 1 - rank);

    fake_swallow(fake_nth_ep(peer->stream[stream].conn->ep.handle), both);
}

/* Time passes; all make progress. */
static void slow_rounds(struct sim *s, uint64_t ms)
{
    uint64_t until = *fake_time() + MDAPL_MS(ms);

    while (*fake_time() < until) {
        sim_rounds(s, 20);
        *fake_time() += MDAPL_US(300);
    }
}

/* The time until a connection ends as silent, ms; both ranks are to have something unfinished. */
static double until_verdict(struct sim *s)
{
    uint64_t began = *fake_time();

    while (SIM_SUM(s, silent) == 0 && *fake_time() - began < MDAPL_MS(10 * DEAD_MS))
        slow_rounds(s, 1);
    return (double)(*fake_time() - began) / 1e6;
}

/* Time passes; only rank 0 makes progress. */
static void alone_for(struct sim *s, uint64_t ms)
{
    for (uint64_t k = 0; k < ms; k++) {
        for (int n = 0; n < 6; n++) {
            fake_step();
            mdapl_progress(s->rank[0].ctx);
        }
        *fake_time() += MDAPL_MS(1);
    }
}

/* -- a path that loses everything -------------------------------------------------------------- */

static const char *const ways[] = {
    "ring=off", "ring=on ring_after=1", "ia=fake,fake ring=off", "streams=3 ring=off",
    "ring=off rndv=rput", "ia=fake,fake ring=on ring_after=1 rndv=rput stripe_bytes=4000",
    "ring=off sr_window=2 suppress=off", "ring=off rndv=copy",
    "ring=off eager_bytes=65536 vbuf_size=1000",
};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static void is_replaced_in_time(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(16 * WAYS); k++) {
        uint64_t i = run_at(k);
        int rank = (int)(i / WAYS % 2);

        start(&s, i, ways[i % WAYS]);
        swallow(&s, rank, 0, i / WAYS / 2 % 2);
        sim_send(&s, rank, 1 - rank, 100, false);
        sim_send(&s, rank, 1 - rank, 12000, false);
        sim_send(&s, 1 - rank, rank, 200, false);
        SIM_CHECK(&s, until_verdict(&s) < VERDICT_MS);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 2 && SIM_SUM(&s, silent) >= 1);
        sim_end(&s);
    }
}

/* The time to a verdict does not depend on what was suspect before: here all connections, for as
 * long as a busy host or a stopped process keeps them so. */
static void is_replaced_in_time_again(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(8 * WAYS); k++) {
        uint64_t i = run_at(k);
        int rank = (int)(i / WAYS % 2);

        start(&s, i, ways[i % WAYS]);
        for (int n = 0; n < sim_dapl_peer(&s, 0, 1)->n_streams; n++)
            swallow(&s, 0, n, true);
        sim_send(&s, 0, 1, 200, false);
        sim_send(&s, 1, 0, 200, false);
        slow_rounds(&s, 20 + i / WAYS % 8 * 5);
        fake_end_swallow();
        sim_until(&s, sim_settled);
        sim_rounds(&s, 3000);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        swallow(&s, rank, 0, i / WAYS / 2 % 2);
        sim_send(&s, rank, 1 - rank, 100, false);
        sim_send(&s, 1 - rank, rank, 200, false);
        SIM_CHECK(&s, until_verdict(&s) < VERDICT_MS);
        sim_until(&s, sim_settled);
        sim_end(&s);
    }
}

/* While a job connects, the first frame on a connection may take long: that is no reason for pings,
 * which are connection requests too. One that never comes is one. */
static void a_new_connection_is_not_pinged(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(16); k++) {
        uint64_t i = run_at(k);
        int rank = (int)(i % 2);
        unsigned requests;

        sim_start(&s, i + 1, 2, NULL, NULL);
        s.verbose = only_seed != 0;
        sim_open_all(&s, "wiring=ondemand ring=off");
        sim_send(&s, rank, 1 - rank, 100, false);
        while (!sim_dapl_peer(&s, rank, 1 - rank)->stream[0].up)
            sim_round(&s);
        swallow(&s, rank, 0, true);
        requests = fake_requests();
        slow_rounds(&s, 4 * DEAD_MS);
        SIM_CHECK(&s, fake_requests() == requests && SIM_SUM(&s, silent) == 0);
        slow_rounds(&s, 16 * DEAD_MS);
        SIM_CHECK(&s, fake_requests() > requests);
        sim_until(&s, sim_settled);
        sim_end(&s);
    }
}

/* Nothing is replaced where nothing is unacknowledged, or where the knob says so. */
static void idle_or_off(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(10); k++) {
        uint64_t i = run_at(k), probes;
        bool off = i % 2;

        start(&s, i, off ? "dead_ms=0" : "ring=off");
        probes = SIM_SUM(&s, probes);
        if (!off)
            swallow(&s, 0, 0, true);
        alone_for(&s, 1000);
        SIM_CHECK(&s, SIM_SUM(&s, probes) == probes && (!off || probes == 0));
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        sim_close(&s);
    }
}

/* -- a process that does not answer ------------------------------------------------------------ */

/* It computes: its adapter executes. */
static void a_peer_that_computes(void **state)
{
    unsigned calls;
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(2 * WAYS); k++) {
        uint64_t i = run_at(k);

        start(&s, i, ways[i % WAYS]);
        calls = fake_requests();
        for (int m = 0; m < 5; m++)
            sim_send(&s, 0, 1, 200, false);
        alone_for(&s, 20000);
        SIM_CHECK(&s, SIM_STAT(&s, 0, probes) > 0 && SIM_SUM(&s, breaks) == 0);
        SIM_CHECK(&s, SIM_STAT(&s, 0, probes) < 2000 && fake_requests() == calls);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        sim_end(&s);
    }
}

/* It is stopped, and on the software provider its adapter is, too. */
static void a_peer_that_is_stopped(void **state)
{
    unsigned calls;
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(2 * WAYS); k++) {
        uint64_t i = run_at(k);

        start(&s, i, ways[i % WAYS]);
        calls = fake_requests();
        for (int n = 0; n < sim_dapl_peer(&s, 0, 1)->n_streams; n++)
            swallow(&s, 0, n, true);
        for (int m = 0; m < 5; m++)
            sim_send(&s, 0, 1, m ? 200 : 12000, false);
        alone_for(&s, 20000);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        SIM_CHECK(&s, fake_requests() - calls < 40);
        fake_end_swallow();
        sim_until(&s, sim_settled);
        sim_rounds(&s, 3000);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        sim_end(&s);
    }
}

/* -- a slow link ------------------------------------------------------------------------------- */

static const char *const slow_ways[] = {
    "ring=off rndv_segment=8192", "ring=on ring_after=1 rndv_segment=8192",
    "ia=fake,fake ring=off rndv_segment=8192 stripe_bytes=20000",
    "streams=3 ring=off rndv_segment=8192 stripe_bytes=20000", "ring=off rndv_segment=24576",
};

enum { SLOW_WAYS = sizeof(slow_ways) / sizeof(slow_ways[0]), SLOW_MESSAGES = 6 };

/* Bodies are read for long, and the frames and probes of their sender wait behind them. */
static void begin_slow(struct sim *s, uint64_t i)
{
    static const struct fake_limits limits = {
        .dtos = 128, .reads = 16, .priv = 56, .rdma = 1 << 20,
    };

    start_on(s, i, slow_ways[i % SLOW_WAYS], &limits);
    fake_slow_reads(MDAPL_MS(1));
    for (int m = 0; m < SLOW_MESSAGES; m++)
        sim_send(s, 0, 1, 100000, false);
}

/* It is none that carries nothing. */
static void a_slow_link(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(8 * SLOW_WAYS); k++) {
        uint64_t i = run_at(k);

        begin_slow(&s, i);
        slow_rounds(&s, 6 * DEAD_MS);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0 && SIM_SUM(&s, silent) == 0);
        sim_end(&s);
    }
}

/* But it may be, later. */
static void a_slow_link_that_is_cut(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(8 * SLOW_WAYS); k++) {
        uint64_t i = run_at(k);

        begin_slow(&s, i);
        slow_rounds(&s, 2 * DEAD_MS);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        swallow(&s, (int)(i / SLOW_WAYS % 2), 0, i / SLOW_WAYS / 2 % 2);
        SIM_CHECK(&s, until_verdict(&s) < VERDICT_MS + 20);
        fake_slow_reads(0);
        sim_until(&s, sim_settled);
        sim_end(&s);
    }
}

/* -- a network that carries nothing ------------------------------------------------------------ */

/* Requests are lost as well. When they arrive again the old connection may still carry nothing, as
 * TCP waits for long before it repeats. */
static void a_network_that_comes_back(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(2 * WAYS); k++) {
        uint64_t i = run_at(k);

        start(&s, i, ways[i % WAYS]);
        for (int n = 0; n < sim_dapl_peer(&s, 0, 1)->n_streams; n++)
            swallow(&s, 0, n, true);
        fake_hold_requests(true);
        for (int m = 0; m < 6; m++)
            sim_send(&s, m % 2, 1 - m % 2, m ? 200 : 12000, false);
        alone_for(&s, 5000);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        fake_hold_requests(false);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) > 0);
        sim_end(&s);
    }
}

/* Each connection that is made carries nothing for long: how often it is replaced is bounded. */
static void again_and_again(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(4); k++) {
        uint64_t i = run_at(k), until;
        uint32_t last = 0;

        start(&s, i, "ring=off");
        until = *fake_time() + MDAPL_MS(20000);
        while (*fake_time() < until) {
            const struct mdapl_dapl_peer *peer = sim_dapl_peer(&s, 0, 1);

            if (mdapl_dapl_stream_up(&peer->stream[0]) && peer->stream[0].conn->epoch != last) {
                last = peer->stream[0].conn->epoch;
                swallow(&s, 0, 0, true);
                sim_send(&s, 0, 1, 200, false);
            }
            sim_rounds(&s, 40);
            *fake_time() += MDAPL_MS(1);
        }
        SIM_CHECK(&s, SIM_SUM(&s, breaks) >= 4 && SIM_SUM(&s, breaks) <= 40);
        fake_end_swallow();
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, s.rank[0].faults + s.rank[1].faults == 0);
        sim_end(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_replaced_in_time),
        cmocka_unit_test(is_replaced_in_time_again),
        cmocka_unit_test(a_new_connection_is_not_pinged),
        cmocka_unit_test(idle_or_off),
        cmocka_unit_test(a_peer_that_computes),
        cmocka_unit_test(a_peer_that_is_stopped),
        cmocka_unit_test(a_slow_link),
        cmocka_unit_test(a_slow_link_that_is_cut),
        cmocka_unit_test(a_network_that_comes_back),
        cmocka_unit_test(again_and_again),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
