/* SPDX-License-Identifier: MIT */
/*
 * The judge of two ways (src/shm/contest.c) on machines that are given as costs, in virtual time:
 * which way it settles on, and what its trials cost. Way 0 are two copies and way 1 is one, of
 * bodies in both directions.
 */
#include "unit.h"

#include "contest.h"

#include <string.h>

enum { DEPTH = 32, LEAD = 8000, MANY = 80000 };

/* ns of a body of 64 KiB, while both ends copy. */
struct machine {
    const char *name;
    uint64_t ns[MDAPL_SHM_CONTEST_WAYS];
    unsigned best;
};

/* The first one is of measurements: a Xeon with 2 cores. All others are emulations. */
static const struct machine machines[] = {
    { "the kernel wins", { 5200, 4350 }, 1 },
    { "two copies win", { 4350, 5200 }, 0 },
    { "the kernel is slow", { 4500, 13500 }, 0 },
    { "the ring is slow", { 13500, 4500 }, 1 },
};
enum { MACHINES = sizeof(machines) / sizeof(machines[0]) };

static struct mdapl_shm_contest contest;
static uint32_t random_bits;
static uint64_t spent, ideal;    /* ns: of all bodies; had each gone the best way */
static unsigned other, news;     /* bodies that did not go the best way; decisions */

/* Of one machine, with bodies in flight that were sent before the judge said another way. */
static struct {
    const struct machine *m;
    size_t len;                  /* of its bodies */
    unsigned by_itself,          /* the way of bodies while the judge says none */
        flight[DEPTH];           /* of those that arrive next */
    unsigned at;
    bool rounds;                 /* of DEPTH bodies, all of which arrive at the same time */
    int early;                   /* bodies of a round that the other end sends before it notices
                                  * what is judged at its beginning */
    unsigned mixing;             /* percent more that one copy costs in a round that has both */
    bool mixed;                  /* as this round has */
    bool disturbed;              /* others use the core now and then */
} run;

static void start(const struct machine *m, uint32_t seed)
{
    memset(&run, 0, sizeof(run));
    run.m = m;
    run.len = 65536;
    run.early = 1;
    mdapl_shm_contest_init(&contest, MDAPL_SHM_CONTEST_NONE);
    random_bits = seed;
    spent = ideal = 0;
    other = news = 0;
}

static uint32_t random_next(void)
{
    random_bits = random_bits * 1664525u + 1013904223u;
    return random_bits >> 16;
}

/* What this process sees of the time of a body. */
static uint64_t seen(uint64_t ns, int i)
{
    if (run.rounds)
        ns = i % DEPTH == 0 ? DEPTH * ns - (DEPTH - 1) : 1;
    if (run.disturbed && random_next() % 4096 == 0)
        ns += 2000000;
    return ns + ns * (random_next() % 256) / 2560;
}

static unsigned next_way(void)
{
    return contest.now == MDAPL_SHM_CONTEST_NONE ? run.by_itself : contest.now;
}

/* With the next bodies sent, but for those that the other end has sent early. */
static void round_ends(void)
{
    news += mdapl_shm_contest_round(&contest);
    for (int i = run.early; i < DEPTH; i++)
        run.flight[i] = next_way();
    run.mixed = run.flight[0] != run.flight[DEPTH - 1];
}

static void bodies(int n)
{
    for (int i = 0; i < n; i++) {
        unsigned way = run.flight[run.at];
        uint64_t ns = run.m->ns[way] * (run.len / 65536);

        if (run.mixed && way == 1)
            ns += ns * run.mixing / 100;
        news += mdapl_shm_contest_body(&contest, way, run.len, seen(ns, i));
        spent += ns;
        ideal += run.m->ns[run.m->best] * (run.len / 65536);
        other += way != run.m->best;
        run.flight[run.at] = next_way();
        run.at = (run.at + 1) % DEPTH;
        if (run.rounds && run.at == 0)
            round_ends();
    }
}

/* -- tests ------------------------------------------------------------------------------------ */

/* On each machine, however its bodies go before: the best way, and trials cost little. */
static void finds_the_best_way(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES * 8; i++) {
        const struct machine *m = &machines[i / 8];

        start(m, (uint32_t)i);
        run.by_itself = i % 2 ? 1 : 0;
        run.rounds = i & 2;
        run.disturbed = i & 4;
        bodies(LEAD);
        if (!run.disturbed && contest.way != m->best)
            fail_msg("%s: not decided after %d bodies", m->name, LEAD);
        spent = ideal = 0;
        bodies(MANY);
        assert_int_equal(contest.way, m->best);
        if (spent * 100 > ideal * 106)
            fail_msg("%s: %g times the time", m->name, (double)spent / (double)ideal);
    }
}

/* Where a round has as many bodies as a window, the first one after a switch does not count: its
 * other bodies are in the way of those that are tried. */
static void a_mixed_round_does_not_count(void **state)
{
    (void)state;
    for (size_t kib = 64; kib <= 4096; kib *= 8) {
        start(&machines[0], 1);
        run.len = kib << 10;
        run.rounds = true;
        run.early = DEPTH / 4;
        run.mixing = 50;
        bodies(LEAD);
        assert_int_equal(contest.way, 1);
        assert_int_equal(news, 1);
    }
}

/* Of long bodies a few are enough, even if no round ends. */
static void long_bodies_are_tried_briefly(void **state)
{
    (void)state;
    for (size_t mib = 1; mib <= 64; mib *= 2) {
        int n;

        start(&machines[0], 1);
        run.len = mib << 20;
        for (n = 0; contest.way == MDAPL_SHM_CONTEST_NONE && n < LEAD; n++)
            bodies(1);
        assert_int_equal(contest.way, 1);
        if (n > 8 * DEPTH && (uint64_t)n * mib > 700)
            fail_msg("bodies of %zu MiB: decided after %d", mib, n);
    }
}

/* A machine that changes is judged again. */
static void a_change_is_noticed(void **state)
{
    (void)state;
    for (int from = 0; from < MACHINES; from++)
        for (int to = 0; to < MACHINES; to++) {
            start(&machines[from], 3);
            bodies(MANY);
            run.m = &machines[to];
            bodies(MANY);
            other = 0;
            bodies(MANY);
            if (other > MANY / 8)
                fail_msg("%s, then %s: %u of %d bodies the wrong way", machines[from].name,
                         machines[to].name, other, MANY);
        }
}

/* When the way in use becomes slower than the other one was, few bodies suffer. */
static void a_way_that_became_slow_is_replaced_soon(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < 2; rounds++) {
        start(&machines[0], 3);
        run.rounds = rounds;
        bodies(MANY);
        run.m = &machines[2];
        bodies(LEAD);
        assert_int_equal(contest.way, 0);
    }
}

/* Where both ways cost the same, or nearly, one of them stays in use. */
static void no_difference_changes_nothing(void **state)
{
    static const struct machine same = { "no difference", { 5000, 4850 }, 1 };

    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        start(&same, seed);
        run.rounds = run.disturbed = true;
        bodies(MANY);
        assert_int_equal(news, 1);
    }
}

/* A time in which all is slow decides nothing, and its end neither. */
static void a_slow_while_changes_nothing(void **state)
{
    static const struct machine slow = { "slow", { 52000, 43500 }, 1 };

    (void)state;
    for (int lead = LEAD; lead < 2 * LEAD; lead += 100) {
        start(&machines[0], 3);
        bodies(lead);
        run.m = &slow;
        bodies(3000);
        run.m = &machines[0];
        bodies(MANY);
        assert_int_equal(news, 1);
    }
}

/* Before the first trial bodies go their own ways, and after one whose bodies go others than they
 * should. */
static void bodies_that_go_other_ways(void **state)
{
    (void)state;
    start(&machines[0], 1);
    assert_int_equal(contest.now, MDAPL_SHM_CONTEST_NONE);
    for (int i = 0; i < MANY && contest.now == MDAPL_SHM_CONTEST_NONE; i++)
        mdapl_shm_contest_body(&contest, MDAPL_SHM_CONTEST_NONE, run.len, 1);
    assert_int_not_equal(contest.now, MDAPL_SHM_CONTEST_NONE);
    for (int i = 0; i < MANY && contest.now != MDAPL_SHM_CONTEST_NONE; i++)
        mdapl_shm_contest_body(&contest, MDAPL_SHM_CONTEST_NONE, run.len, 1);
    assert_int_equal(contest.now, MDAPL_SHM_CONTEST_NONE);
    assert_int_equal(contest.way, MDAPL_SHM_CONTEST_NONE);
}

/* A way that is likely to be the best is in use until the first trial and in every other window of
 * it, and after a trial without a decision. */
static void the_way_before_a_decision(void **state)
{
    (void)state;
    for (unsigned best = 0; best < MDAPL_SHM_CONTEST_WAYS; best++) {
        start(&machines[!best], 1);
        mdapl_shm_contest_init(&contest, 1);
        for (int n = 0; contest.way == MDAPL_SHM_CONTEST_NONE && n < LEAD; n++) {
            assert_int_equal(contest.now, contest.window % 2 == 0);
            bodies(1);
        }
        assert_int_equal(contest.way, best);
    }
    mdapl_shm_contest_init(&contest, 1);
    for (int i = 0; i < LEAD; i++)
        mdapl_shm_contest_body(&contest, MDAPL_SHM_CONTEST_NONE, run.len, 1);
    assert_int_equal(contest.now, 1);
}

/* Another pair's decision is used at once, and judged later; it replaces none. */
static void a_decision_is_taken_over(void **state)
{
    (void)state;
    start(&machines[0], 1);
    mdapl_shm_contest_take(&contest, MDAPL_SHM_CONTEST_NONE);
    assert_int_equal(contest.now, MDAPL_SHM_CONTEST_NONE);
    mdapl_shm_contest_take(&contest, 0);
    assert_int_equal(contest.now, 0);
    mdapl_shm_contest_take(&contest, 1);
    assert_int_equal(contest.now, 0);
    bodies(LEAD);
    assert_int_equal(contest.way, 1);
}

/* A clock that stands still, or hours, break nothing. */
static void odd_times(void **state)
{
    static const struct machine hours = { "an hour", { 3600000000000u, 3600000000000u },
                                          1 };

    (void)state;
    start(&hours, 1);
    bodies(MANY);
    assert_int_equal(news, 1);
    start(&hours, 1);
    for (int i = 0; i < MANY; i++)
        mdapl_shm_contest_body(&contest, contest.now, SIZE_MAX / 4, 0);
    assert_in_range(contest.way, 0, 1);
}

/* Of bodies that go the way in use, without trials: how many percent are timed. */
static unsigned timed_percent(size_t len)
{
    unsigned timed = 0;

    start(&machines[0], 1);
    mdapl_shm_contest_take(&contest, 1);
    contest.left = contest.least[0] = UINT32_MAX;
    for (int i = 0; i < MANY; i++) {
        timed += mdapl_shm_contest_measures(&contest);
        mdapl_shm_contest_body(&contest, 1, len, len / 16);
    }
    return timed * 100 / MANY;
}

/* A look at the clock is a larger part of a short body's time. */
static void short_bodies_are_timed_rarely(void **state)
{
    (void)state;
    assert_in_range(timed_percent(8192), 1, 15);
    assert_in_range(timed_percent(65536), 20, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_best_way),
        cmocka_unit_test(a_mixed_round_does_not_count),
        cmocka_unit_test(long_bodies_are_tried_briefly),
        cmocka_unit_test(a_change_is_noticed),
        cmocka_unit_test(a_way_that_became_slow_is_replaced_soon),
        cmocka_unit_test(no_difference_changes_nothing),
        cmocka_unit_test(a_slow_while_changes_nothing),
        cmocka_unit_test(bodies_that_go_other_ways),
        cmocka_unit_test(the_way_before_a_decision),
        cmocka_unit_test(a_decision_is_taken_over),
        cmocka_unit_test(odd_times),
        cmocka_unit_test(short_bodies_are_timed_rarely),
    };

    return RUN(tests);
}
