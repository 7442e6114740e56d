/* SPDX-License-Identifier: MIT */
/*
 * A visit at a port, while its connection breaks: the process of the port knows where the visitor
 * listens as soon as the owner has its card, from its first message.
 */
#include "peer.h"
#include "plans.h"
#include "sim.h"

enum { VISITOR = 1, PORT = 0x1234, VISIT = 0xabc1, MESSAGES = 10 };

static const char key[MDAPL_KEY_BYTES] = "key of the port";
static const char *const scenarios[] = {
    "ring=off",
    "ring=on ring_after=1 rndv=rput",
    "rndv=copy",
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(scenarios[0]) };

static uint64_t reconnects;      /* over all runs */

static bool has_visited(struct sim *s)
{
    return s->rank[0].announced[VISITOR] > 0;
}

/* Does neither end owe the other an acknowledgement? */
static bool is_settled(struct sim *s)
{
    struct mdapl_peer *a, *b;

    SIM_CHECK(s, sim_peer(s, 0, VISITOR, &a) == 0 && sim_peer(s, VISITOR, 0, &b) == 0);
    return mdapl_peer_settled(a) && mdapl_peer_settled(b);
}

/* One visit, and the faults of a plan, whose requests are counted from its begin. Returns how many
 * requests there were. */
static unsigned run(uint64_t seed, int scenario, const struct fake_fault *plan, int n)
{
    struct fake_fault later[MOST_FAULTS];
    unsigned requests, first;
    struct sim s;

    sim_start(&s, 52000 + seed, 2, NULL, NULL);
    sim_split(&s, 1);
    sim_open_all(&s, scenarios[scenario]);
    first = begin_plan(plan, n, later);
    sim_open_port(&s, 0, PORT, key);
    sim_visit(&s, VISITOR, PORT, VISIT, key);
    sim_send(&s, VISITOR, 0, 10, false);
    sim_until(&s, has_visited);
    for (int k = 0; k < MESSAGES; k++) {
        sim_send(&s, k % 2, 1 - k % 2, (uint32_t)fake_random(1u << fake_random(16)), false);
        sim_rounds(&s, (int)fake_random(40));
    }
    sim_until(&s, sim_settled);
    sim_until(&s, is_settled);
    SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[VISITOR].faults == 0);
    SIM_CHECK(&s, SIM_SUM(&s, cr_refused) == 0);
    reconnects += SIM_SUM(&s, reconnects);
    requests = fake_executed() - first;
    sim_close(&s);
    return requests;
}

static void at_every_request(void **state)
{
    unsigned hit = run_at_every_request(run, SCENARIOS);

    (void)state;
    assert_true(shown(hit, 500) && shown(reconnects, 500));
}

static void pairs(void **state)
{
    (void)state;
    run_with_several(run, SCENARIOS, 83, 30);
}

/* The visitor vanishes, most often before its first message: the process of the port waits for as
 * long as for any peer, and loses it then. */
static void one_that_vanishes(void **state)
{
    uint64_t limit, was_up = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(60); i++) {
        struct mdapl_peer *visitor;
        struct sim s;

        sim_start(&s, 53000 + seed_at(i), 2, NULL, NULL);
        sim_split(&s, 1);
        sim_open_all(&s, "");
        sim_open_port(&s, 0, PORT, key);
        sim_visit(&s, VISITOR, PORT, VISIT, key);
        sim_send(&s, VISITOR, 0, 10, false);
        while (!mdapl_group_find(s.rank[0].ctx, VISIT))
            sim_round(&s);
        sim_rounds(&s, (int)fake_random(30));
        s.may_fail = true;
        fake_break_all(1);
        limit = *fake_time() + MDAPL_MS(40000);
        while (s.rank[0].faults == 0 && *fake_time() < limit) {
            fake_step();
            *fake_time() += fake_random(2000000);
            mdapl_progress(s.rank[0].ctx);
        }
        visitor = mdapl_group_find(s.rank[0].ctx, VISIT)->peers[0];
        SIM_CHECK(&s, s.rank[0].faults == mdapl_dapl_peer_of(visitor)->was_up);
        was_up += s.rank[0].faults;
        sim_close(&s);
    }
    assert_true(shown(was_up, 20));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_every_request),
        cmocka_unit_test(pairs),
        cmocka_unit_test(one_that_vanishes),
    };

    read_seed(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
