/* SPDX-License-Identifier: MIT */
/*
 * Adapters that fail: the rail is closed and opened again, and every message is delivered once and
 * in order (sim.c compares numbers and bytes); with a second rail at once. The adapter fails at
 * each event of some scenarios.
 * test_ia [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
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

static void start(struct sim *s, uint64_t seed)
{
    sim_start(s, seed, 2, NULL, NULL);
    s->verbose = only_seed != 0;
    s->keep = true;
    fake_land_at_flush(true);
    fake_delay_reads(true);
}

/* -- every event ------------------------------------------------------------------------------- */

enum { MESSAGES = 10, RANKS = 2 };

static const struct {
    const char *knobs;
    uint64_t longest;            /* bytes of a message */
    int rails;                   /* of each rank */
} scenarios[] = {
    { "wiring=ondemand ring=off", 3000, 1 },
    { "wiring=ring ring=on ring_after=2 ring_slots=4 suppress=off", 3000, 1 },
    { "wiring=ondemand ring=off rndv=rget rndv_segment=4096", 20000, 1 },
    { "wiring=ring ring=off rndv=rput rndv_segment=4096 ep_requests=4", 20000, 1 },
    { "wiring=ring ring=off rndv=copy vbuf_size=4096 streams=2", 20000, 1 },
    { "wiring=ondemand ring=on ring_after=1 ia=fake,fake", 3000, 2 },
    { "wiring=ring ring=off rndv=rget ia=fake,fake stripe_bytes=4000", 20000, 2 },
    { "wiring=ring ring=off rndv=rput ia=fake,fake sr_window=2 stripe_bytes=4000", 20000, 2 },
    { "wiring=ondemand ring=off rndv=copy ia=fake,fake streams=2", 20000, 2 },
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(scenarios[0]) };

/* What becomes of the adapter. */
enum how { AT_ONCE, AFTER_SOME, NEVER, NOT_CLOSED, HOWS };

static const char *const how_name[HOWS] = {
    "opened at once", "opened after some attempts", "never opened", "never closed",
};

/* Messages both ways, some of them as long as this. */
static void exchange(struct sim *s, int messages, uint64_t longest)
{
    for (int k = 0; k < messages; k++) {
        uint64_t most = fake_random(2) ? 300 : longest;

        sim_send(s, k % 2, 1 - k % 2, (uint32_t)fake_random(most), k % 7 == 0);
        sim_rounds(s, (int)fake_random(12));
    }
}

static bool is_drained(struct sim *s)
{
    size_t left = 0;

    for (int r = 0; r < s->n; r++)
        left += mdapl_drain(s->rank[r].ctx);
    return left == 0;
}

/* Has the adapter been opened again, and are all connections up? */
static bool is_whole(struct sim *s)
{
    for (int r = 0; r < RANKS; r++) {
        const struct mdapl_dapl_peer *peer = sim_dapl_peer(s, r, 1 - r);

        if (peer->n_up < peer->n_streams)
            return false;
    }
    return SIM_SUM(s, ia_reopens) > 0;
}

static bool is_over(struct sim *s)
{
    return sim_settled(s) && s->rank[0].faults + s->rank[1].faults == RANKS;
}

/* One rank's only adapter has gone for ever: both give the other one up, with one line each. */
static void expect_given_up(struct sim *s, uint64_t began)
{
    static const char *const text[] = {
        "IA fake: the adapter failed (DAT_ASYNC_ERROR_IA_CATASTROPHIC)",
        "could not be opened again for 3.0 s", "attempts", "rank ", "cannot be reached any more",
        "not acknowledged", "Check the adapter",
    };
    const char *why;
    int owner;

    sim_until(s, is_over);
    SIM_CHECK(s, *fake_time() - began <= MDAPL_MS(5000));
    owner = strstr(s->rank[0].why, "opened again") == NULL;
    SIM_CHECK(s, s->rank[0].faults == 1 && s->rank[1].faults == 1);
    why = s->rank[owner].why;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        if (!strstr(why, text[i]))
            fprintf(stderr, "no \"%s\" in: %s\n", text[i], why);
        SIM_CHECK(s, strstr(why, text[i]) != NULL);
    }
    SIM_CHECK(s, strstr(s->rank[1 - owner].why, "IA fake") != NULL);
}

static void expect_recovered(struct sim *s, int scenario, enum how how)
{
    bool connected = strstr(scenarios[scenario].knobs, "wiring=ring") != NULL;

    sim_until(s, sim_settled);
    if (how != NEVER) {
        sim_until(s, is_whole);
        SIM_CHECK(s, SIM_SUM(s, ia_reopens) == 1);
        if (connected && how == AT_ONCE)
            SIM_CHECK(s, SIM_SUM(s, outage_max) < 400000);
        exchange(s, MESSAGES, scenarios[scenario].longest);
        sim_until(s, sim_settled);
    }
    if (connected && scenarios[scenario].rails == 2)     /* no pause */
        SIM_CHECK(s, SIM_SUM(s, outage_max) == 0);
    SIM_CHECK(s, s->rank[0].faults == 0 && s->rank[1].faults == 0);
    SIM_CHECK(s, SIM_SUM(s, bad_frames) == 0);
    sim_until(s, is_drained);
}

/* One run; step: the event at which an adapter fails, 0: none does. Returns how many there were. */
static unsigned run(uint64_t seed, int scenario, unsigned step, enum how how)
{
    bool given_up = step > 0 && how == NEVER && scenarios[scenario].rails == 1;
    int ias = RANKS * scenarios[scenario].rails;
    unsigned steps;
    uint64_t began;
    struct sim s;
    char knobs[160];

    start(&s, seed);
    /* One that does not close is dead all the same: the owner's memory is not kept for it. */
    fake_delay_writes(how != NOT_CLOSED);
    snprintf(knobs, sizeof(knobs), "max_outage_ms=3000 connect_timeout_ms=3000 %s",
             scenarios[scenario].knobs);
    sim_open_all(&s, knobs);
    sim_rounds(&s, 300);
    began = *fake_time();
    s.may_fail = given_up;
    s.unclosed = how == NOT_CLOSED;
    steps = fake_steps();
    if (step > 0)
        fake_end_ia_later(step, (int)fake_random((uint64_t)ias), fake_random(2));
    fake_refuse_openings(how == AFTER_SOME ? 1 + (unsigned)fake_random(5) : 0, 0);
    if (how == NEVER)
        fake_refuse_ias(true);
    if (how == NOT_CLOSED)
        fake_refuse_closes();
    exchange(&s, MESSAGES, scenarios[scenario].longest);
    while (fake_steps() - steps < step) {        /* until it has failed, however much that takes */
        exchange(&s, 2, 300);
        sim_rounds(&s, 60);
    }
    if (step == 0) {
        sim_until(&s, sim_settled);
    } else if (given_up) {
        exchange(&s, 2, 300);
        expect_given_up(&s, began);
    } else {
        expect_recovered(&s, scenario, how);
    }
    steps = fake_steps() - steps;
    sim_close(&s);
    return steps;
}

/* The seed of a run names all of it: scenario, event and what becomes of the adapter. */
static void at_every_event(void **state)
{
    int runs = 0;

    (void)state;
    for (int scenario = 0; scenario < SCENARIOS; scenario++) {
        unsigned steps = run((uint64_t)scenario + 1, scenario, 0, AT_ONCE);

        for (unsigned step = 1; step <= steps; step++)
            for (int how = 0; how < HOWS; how++) {
                uint64_t seed = ((uint64_t)scenario << 24 | step << 8 | (unsigned)how) + 1;

                if (only_seed && seed != only_seed)
                    continue;
                if (only_seed)
                    fprintf(stderr, "seed %llu: %s; event %u, %s\n", (unsigned long long)seed,
                            scenarios[scenario].knobs, step, how_name[how]);
                run(seed, scenario, step, (enum how)how);
                runs++;
            }
    }
    assert_true(shown(runs, 1500));
}

/* -- how it is opened -------------------------------------------------------------------------- */

/* Adapters of both ranks fail, one after the other, perhaps while another one is down, and without
 * a report: the next call that makes an endpoint says it. */
static void again_and_again_without_a_report(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(150); i++) {
        uint64_t seed = seed_at(i);
        int scenario = (int)(seed % SCENARIOS);
        struct sim s;

        start(&s, seed);
        fake_delay_writes(true);
        sim_open_all(&s, scenarios[scenario].knobs);
        for (int k = 0; k < 4; k++) {
            exchange(&s, 6, scenarios[scenario].longest);
            sim_rounds(&s, (int)fake_random(100));
            fake_end_ia_unreported((int)fake_random((uint64_t)scenarios[scenario].rails * RANKS));
            if (k % 2)
                sim_until(&s, sim_settled);
        }
        exchange(&s, 6, scenarios[scenario].longest);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[1].faults == 0);
        sim_until(&s, is_whole);
        sim_until(&s, is_drained);
        sim_close(&s);
    }
}

/* The provider takes its time for each attempt to open the adapter: at most a tenth of the time is
 * spent in them. The qualifier that is in the business card is kept. */
static void opening_takes_a_tenth(void **state)
{
    enum { OPENING_MS = 30, ATTEMPTS = 12 };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        unsigned before, n;
        uint64_t last, next;
        DAT_CONN_QUAL qual;

        start(&s, seed_at(i));
        sim_open_all(&s, "wiring=ring ring=off");
        exchange(&s, MESSAGES, 3000);
        qual = sim_dapl_peer(&s, 0, 1)->stream[0].ia->qual;
        before = fake_openings(&last);
        fake_refuse_openings(ATTEMPTS, MDAPL_MS(OPENING_MS));
        fake_end_ia(0);
        last = 0;
        while ((n = fake_openings(&next)) < before + ATTEMPTS) {
            SIM_CHECK(&s, n == before || last == next || last == 0
                          || next - last >= MDAPL_MS((1 + 10) * OPENING_MS));
            last = n == before ? 0 : next;
            *fake_time() += MDAPL_MS(1);
            sim_round(&s);
        }
        sim_until(&s, is_whole);
        SIM_CHECK(&s, sim_dapl_peer(&s, 0, 1)->stream[0].ia->qual == qual);
        exchange(&s, MESSAGES, 3000);
        sim_until(&s, sim_settled);
        sim_until(&s, is_drained);
        sim_close(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_every_event),
        cmocka_unit_test(again_and_again_without_a_report),
        cmocka_unit_test(opening_takes_a_tenth),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
