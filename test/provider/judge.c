/* SPDX-License-Identifier: MIT */
/*
 * Unit test of the choice between rings and copies by the kernel (src/softdat/judge.c) on machines
 * of virtual time: whatever the two ways cost, requests take little more than by the better one.
 */
#include "judge.h"
#include "unit.h"

#include <string.h>

enum { LEN = 1 << 18, WINDOW = 16, MANY = 4000 };

struct machine {
    struct softdat_judge judge;
    uint64_t cost[SOFTDAT_WAYS]; /* ns of a request */
    uint64_t random;             /* of the disturbances; 0: none */
    bool late;                   /* every other completion is noticed when the next one is there */
    uint64_t spent, best;        /* ns of all requests; of the same by the better way */
    unsigned used[SOFTDAT_WAYS];
};

static struct machine machine_of(uint64_t ring, uint64_t direct)
{
    struct machine m = { .cost = { ring, direct } };

    softdat_judge_init(&m.judge);
    return m;
}

/* The time of the next request: in one case of 8 another process has the core. */
static uint64_t time_of(struct machine *m, enum softdat_way way)
{
    uint64_t ns = m->cost[way];

    if (m->random == 0)
        return ns;
    m->random = m->random * 6364136223846793005u + 1442695040888963407u;
    return m->random >> 61 ? ns + ns * (m->random >> 40 & 15) / 64 : ns * 40;
}

/* Makes n requests with `window` of them in flight; a sample arrives when its request is the oldest
 * of them. */
static void run(struct machine *m, int n, int window)
{
    unsigned c = softdat_judge_class(LEN);
    enum softdat_way way[WINDOW] = { 0 };

    for (int i = 0; i < n + window; i++) {
        enum softdat_way *slot = &way[i % window];

        if (i >= window) {
            uint64_t ns = time_of(m, *slot);

            if (m->late)
                ns = i % 2 ? 2 * ns - 1 : 1;
            softdat_judge_sample(&m->judge, c, *slot, LEN, ns);
            m->spent += m->cost[*slot];
            m->best += m->cost[0] < m->cost[1] ? m->cost[0] : m->cost[1];
        }
        *slot = softdat_judge_choose(&m->judge, c);
        m->used[*slot]++;
    }
}

/* Runs machines with ratios from 1/8 to 8 of the costs. */
static void each_ratio(int window, uint64_t random, bool late)
{
    for (uint64_t direct = 12500; direct <= 800000; direct *= 2) {
        struct machine m = machine_of(100000, direct);

        m.random = random;
        m.late = late;
        run(&m, MANY, window);
        assert_true(m.spent < m.best + m.best / 8);
        assert_true(m.used[SOFTDAT_WAY_RING] > 0 && m.used[SOFTDAT_WAY_DIRECT] > 0);
    }
}

static void one_at_a_time(void **state)
{
    (void)state;
    each_ratio(1, 0, false);
}

static void many_in_flight(void **state)
{
    (void)state;
    each_ratio(WINDOW, 0, false);
}

/* What one sample has too much the next one has too little. */
static void completions_noticed_late(void **state)
{
    (void)state;
    each_ratio(1, 0, true);
    each_ratio(WINDOW, 0, true);
}

static void with_disturbances(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        each_ratio(1, seed, false);
        each_ratio(WINDOW, seed, false);
    }
}

/* The way in use becomes slow: it is left within few requests, also long after the last trial. */
static void a_machine_that_changes(void **state)
{
    struct machine m = machine_of(100000, 40000);

    (void)state;
    run(&m, 20 * MANY, 1);
    m.spent = m.best = 0;
    m.cost[SOFTDAT_WAY_DIRECT] = 400000;
    run(&m, MANY, 1);
    assert_true(m.spent < m.best + m.best / 8);
}

/* The way that is not in use becomes the faster one: a trial finds it. */
static void the_other_way_improves(void **state)
{
    struct machine m = machine_of(100000, 200000);

    (void)state;
    run(&m, 20 * MANY, 1);
    m.cost[SOFTDAT_WAY_DIRECT] = 20000;
    run(&m, 2 * MANY, 1);
    m.spent = m.best = 0;
    run(&m, MANY, 1);
    assert_true(m.spent < m.best + m.best / 8);
}

static void classes(void **state)
{
    (void)state;
    assert_int_equal(softdat_judge_class(1), 0);
    assert_int_equal(softdat_judge_class(SOFTDAT_JUDGE_FROM), 0);
    assert_int_equal(softdat_judge_class(SOFTDAT_JUDGE_FROM + 1), 1);
    assert_int_equal(softdat_judge_class(UINT64_MAX), SOFTDAT_JUDGE_CLASSES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(many_in_flight),
        cmocka_unit_test(completions_noticed_late),
        cmocka_unit_test(with_disturbances),
        cmocka_unit_test(a_machine_that_changes),
        cmocka_unit_test(the_other_way_improves),
        cmocka_unit_test(classes),
    };

    return RUN(tests);
}
