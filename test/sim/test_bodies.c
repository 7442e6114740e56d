/* SPDX-License-Identifier: MIT */
/*
 * Bodies through connections that end: every byte once, and none in memory that its owner has back.
 * test_bodies [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "conn.h"
#include "peer.h"
#include "rndv.h"
#include "plans.h"
#include "sim.h"

#include <stdio.h>

static void start(struct sim *s, uint64_t i)
{
    sim_start(s, seed_at(i), 2, NULL, NULL);
    s->verbose = only_seed != 0;
    s->keep = true;
}

/* -- another request of the same bytes --------------------------------------------------------- */

/* The knobs of the runs: each way, one or more connections, bodies in one piece or in many. */
static const char *const ways[] = {
    "ring=off rndv=rput",
    "ring=off rndv=rput rndv_segment=4096 ep_requests=4",
    "ring=off rndv=rput streams=3 stripe_bytes=1000 rndv_segment=4096",
    "ring=off rndv=rput ia=fake,fake stripe_bytes=1000",
    "ring=off rndv=rget streams=2 stripe_bytes=1000",
    "ring=off rndv=copy streams=2 vbuf_size=1000",
};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/*
 * The receiver learns at any moment that a connection has drained, although none has ended: it
 * requests the rest anew, the sender stops what it writes and waits for it, and the names of the
 * older writes change nothing.
 */
static void requested_anew(void **state)
{
    uint64_t restarts = 0, old = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(600); i++) {
        start(&s, i);
        sim_open_all(&s, ways[i % WAYS]);
        s.lazy = 1 << fake_random(5);
        for (int k = 0; k < 3; k++)
            sim_send(&s, 0, 1, 20000 + (uint32_t)fake_random(30000), k == 1);
        for (int k = 0; k < 4; k++) {
            struct mdapl_dapl_peer *peer = sim_dapl_peer(&s, 1, 0);

            sim_rounds(&s, (int)fake_random(40));
            mdapl_dapl_rndv_drained(&peer->stream[fake_random((uint64_t)peer->n_streams)]);
        }
        sim_run(&s);
        restarts += SIM_STAT(&s, 1, rndv_restarts);
        old += SIM_STAT(&s, 1, old_frames);
        SIM_CHECK(&s, i % WAYS < 4 || SIM_STAT(&s, 1, rndv_restarts) == 0);
        sim_end(&s);
    }
    assert_true(shown(restarts, 200) && shown(old, 100));
}

/* -- every request, every kind of fault -------------------------------------------------------- */

enum { BODIES = 4 };

static const struct {
    const char *knobs;
    bool parts;                  /* read in parts, some dropped */
} scenarios[] = {
    { "ring=off rndv=rget", false },
    { "ring=off rndv=rget rndv_segment=4096 suppress=off", true },
    { "ring=off rndv=rget streams=2 stripe_bytes=1000", false },
    { "ring=off rndv=rget ia=fake,fake stripe_bytes=1000", false },
    { "ring=off rndv=rput", false },
    { "ring=off rndv=rput rndv_segment=4096 ep_requests=4", true },
    { "ring=off rndv=rput streams=2 stripe_bytes=1000", false },
    { "ring=off rndv=rput ia=fake,fake stripe_bytes=1000", false },
    { "ring=off rndv=copy vbuf_size=4096", true },
    { "ring=on ring_after=1 rndv=rput streams=2", false },
    { "ring=off eager_bytes=65536 vbuf_size=4096", true },
    { "ring=off eager_bytes=65536 vbuf_size=1000 streams=2 stripe_bytes=1000", true },
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(scenarios[0]) };

static bool is_drained(struct sim *s)
{
    size_t left = 0;

    for (int r = 0; r < s->n; r++)
        left += mdapl_drain(s->rank[r].ctx);
    return left == 0;
}

/* What bodies and their recovery did, over all runs. */
static struct {
    uint64_t restarts, old, runs;
} total;

/*
 * Bodies both ways, with short messages between them, and the faults of a plan, whose requests are
 * counted once the ranks are connected. Writes that an ended connection has flushed are placed as
 * late as DAT allows, and so is the data of its reads. Returns how many requests there were.
 */
static unsigned run(uint64_t seed, int scenario, const struct fake_fault *plan, int n)
{
    struct fake_fault later[MOST_FAULTS];
    unsigned requests, first;
    struct sim s;

    start(&s, seed);
    s.parts = scenarios[scenario].parts;
    fake_delay_writes(true);
    fake_land_at_flush(true);
    fake_delay_reads(true);
    sim_open_all(&s, scenarios[scenario].knobs);
    first = begin_plan(plan, n, later);
    s.lazy = 1 << fake_random(4);
    for (int k = 0; k < BODIES; k++) {
        sim_send(&s, k == 2, k != 2, 12000 + (uint32_t)fake_random(20000), k == 1);
        sim_send(&s, k % 2, 1 - k % 2, 50, false);
        sim_rounds(&s, (int)fake_random(60));
    }
    sim_until(&s, sim_settled);
    sim_rounds(&s, 1500);
    sim_until(&s, is_drained);
    SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[1].faults == 0);
    SIM_CHECK(&s, SIM_SUM(&s, bad_frames) == 0);
    total.restarts += SIM_SUM(&s, rndv_restarts);
    total.old += SIM_SUM(&s, old_frames);
    total.runs++;
    requests = fake_executed() - first;
    sim_close(&s);
    return requests;
}

static void at_every_request(void **state)
{
    unsigned hit = run_at_every_request(run, SCENARIOS);

    (void)state;
    assert_true(shown(hit, 1000) && shown(total.restarts, 100) && shown(total.old, 100));
}

static void pairs(void **state)
{
    (void)state;
    run_with_several(run, SCENARIOS, 77, 60);
}

/* -- an older request ------------------------------------------------------------------------- */

/*
 * A body is requested again and again while its first request, or what has been written for that on
 * another stream, stands still; then the connection that carried the requests breaks, for one end
 * first: all of them are sent again over another stream.
 */
static void older_requests(void **state)
{
    static const char *const knobs[] = {
        "ring=off rndv=rput streams=3 stripe_bytes=1000 rndv_segment=4096 dead_ms=0",
        "ring=off rndv=rput ia=fake,fake stripe_bytes=1000 rndv_segment=4096 dead_ms=0",
        "ring=on ring_after=1 rndv=rput streams=2 rndv_segment=4096 dead_ms=0",
    };
    uint64_t restarts = 0, old = 0, replayed = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(900); i++) {
        struct mdapl_dapl_peer *peer;
        struct sim s;
        int ep[2], other;

        start(&s, i);
        fake_delay_writes(true);
        fake_land_at_flush(true);
        sim_open_all(&s, knobs[seed_at(i) % 3]);
        for (int r = 0; r < 2; r++)
            ep[r] = fake_nth_ep(sim_dapl_peer(&s, r, 1 - r)->stream[0].conn->ep.handle);
        peer = sim_dapl_peer(&s, 1, 0);
        other = 1 + (int)fake_random((uint64_t)peer->n_streams - 1);
        for (int k = 0; k < 3; k++)
            sim_send(&s, 0, 1, 20000 + (uint32_t)fake_random(30000), k == 1);
        sim_rounds(&s, (int)fake_random(100));
        if (i % 4 == 1)                          /* the request, */
            fake_hold(ep[1]);
        if (i % 4 == 2)                          /* or what has been written for it */
            fake_hold(fake_nth_ep(sim_dapl_peer(&s, 0, 1)->stream[other].conn->ep.handle));
        for (int k = 0; k < 3; k++) {
            sim_rounds(&s, (int)fake_random(200));
            mdapl_dapl_rndv_drained(&peer->stream[other]);
        }
        sim_rounds(&s, (int)fake_random(400));
        fake_hold_ends(fake_random(2));
        fake_hold_flushes(fake_random(2));
        if (sim_dapl_peer(&s, 0, 1)->n_up == sim_dapl_peer(&s, 0, 1)->n_streams)
            fake_async_ep(ep[fake_random(2)], DAT_ASYNC_ERROR_EP_BROKEN);
        sim_rounds(&s, (int)fake_random(600));
        fake_hold(-1);
        fake_hold_ends(false);
        fake_hold_flushes(false);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, bad_frames) == 0 && s.rank[0].faults + s.rank[1].faults == 0);
        sim_kept(&s);
        restarts += SIM_STAT(&s, 1, rndv_restarts);
        old += SIM_SUM(&s, old_frames);
        replayed += SIM_STAT(&s, 1, replayed_frames);
        sim_end(&s);
    }
    assert_true(shown(restarts, 500) && shown(old, 200) && shown(replayed, 500));
}

/*
 * Half of the body is still to be posted, so no WRITTEN has named what is in flight, as the rest is
 * requested anew. The older writes on one stream stand still, and the newer ones and all that names
 * them take the other stream. The read must not end before the older ones have landed: what names
 * them comes before what names the newer ones.
 */
static void older_writes_are_named_first(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(100); i++) {
        const struct mdapl_dapl_ep *slow;
        struct sim s;

        start(&s, i);
        sim_open_all(&s, "ring=off rndv=rput streams=2 stripe_bytes=1000 rndv_segment=4096 "
                         "ep_requests=16 dead_ms=0");
        slow = &sim_dapl_peer(&s, 0, 1)->stream[1].conn->ep;
        sim_send(&s, 0, 1, 100000 + (uint32_t)fake_random(100000), false);
        while (!slow->bytes)
            sim_round(&s);
        fake_hold_ia(0);                         /* the sender's */
        sim_rounds(&s, 300);
        mdapl_dapl_rndv_drained(&sim_dapl_peer(&s, 1, 0)->stream[0]);
        sim_rounds(&s, 300);
        fake_hold(fake_nth_ep(slow->handle));
        fake_hold_ia(-1);
        sim_rounds(&s, 6000);
        SIM_CHECK(&s, SIM_STAT(&s, 1, rndv_restarts) == 1 && s.rank[1].reads == 0);
        fake_hold(-1);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, bad_frames) == 0 && SIM_SUM(&s, breaks) == 0);
        sim_kept(&s);
        sim_end(&s);
    }
}

/* -- connections that last for a few requests -------------------------------------------------- */

/* Many long bodies at once, and each connection carries a dozen requests or so, of both ends
 * together: all are there before the breaks have an end. */
static void short_lived_connections(void **state)
{
    enum { BREAKS = 3000, FIRST = 40, AT_ONCE = 16, LENGTH = 64 * 1024 };
    static const char *const knobs[] = {
        "ring=off rndv=rput rndv_segment=4096", "ring=off rndv=rget rndv_segment=4096",
        "ring=off rndv=rput rndv_segment=4096 streams=2 stripe_bytes=8192", "ring=off rndv=copy",
    };
    static struct fake_fault plan[BREAKS];
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(12); k++) {
        uint64_t i = seed_at(k) - 1;
        unsigned life = 10 + (unsigned)i % 7;

        for (int n = 0; n < BREAKS; n++)
            plan[n] = (struct fake_fault){ FAKE_NOT_EXECUTED, FIRST + (unsigned)n * life };
        sim_start(&s, i + 1, 2, NULL, NULL);
        s.verbose = only_seed != 0;
        fake_plan(plan, BREAKS);
        sim_open_all(&s, knobs[i % 4]);
        for (int m = 0; m < AT_ONCE; m++)
            sim_send(&s, 0, 1, LENGTH, false);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, fake_executed() < plan[BREAKS - 1].nth);
        SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[1].faults == 0);
        sim_close(&s);
    }
}

/* -- completions out of order ------------------------------------------------------------------ */

/* A read's completion comes after that of a send behind it: its body is there only then. */
static void reads_that_are_late(void **state)
{
    static const struct fake_faults faults = { .late_read = 2 };
    static const char *const knobs[] = {
        "ring=off rndv=rget", "ring=off rndv=rget rndv_segment=4096 ep_requests=4",
        "ring=off rndv=rget streams=2 stripe_bytes=8192 rndv_segment=4096",
        "ring=on rndv=rget suppress=off",
    };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(200); i++) {
        sim_start(&s, seed_at(i), 2, &faults, NULL);
        s.verbose = only_seed != 0;
        sim_open_all(&s, knobs[seed_at(i) % 4]);
        for (int m = 0; m < 12; m++)
            sim_send(&s, m % 2, !(m % 2), m % 3 ? 20000 + (uint32_t)fake_random(30000) : 100,
                     false);
        sim_run(&s);
        SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[1].faults == 0);
        sim_close(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requested_anew),
        cmocka_unit_test(at_every_request),
        cmocka_unit_test(pairs),
        cmocka_unit_test(older_requests),
        cmocka_unit_test(older_writes_are_named_first),
        cmocka_unit_test(short_lived_connections),
        cmocka_unit_test(reads_that_are_late),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
