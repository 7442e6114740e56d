/* SPDX-License-Identifier: MIT */
/*
 * The judge of copies (src/shm/judge.c) on machines that are given as costs, in virtual time: which
 * way it settles on, and what its trials cost.
 */
#include "unit.h"

#include "judge.h"

#include <string.h>

enum { LEAD = 64, MANY = 20000 };

/* What a way costs: ns of any body, and ns of a KiB. */
struct cost {
    uint32_t fixed, kib;
};

struct machine {
    const char *name;
    struct cost of[MDAPL_SHM_WAYS];
    struct {
        size_t len;
        enum mdapl_shm_way way;
    } best[3];
};

/* The first two ways of the first two are of measurements: an Epyc, where two copies win, and a
 * Xeon with 2 cores, where the kernel wins. All others are emulations. */
static const struct machine machines[] = {
    { "two copies win", { { 900, 112 }, { 1500, 190 }, { 2500, 125 } },
      { { 16384, MDAPL_SHM_TWICE }, { 65536, MDAPL_SHM_TWICE }, { 1 << 20, MDAPL_SHM_TWICE } } },
    { "the kernel wins", { { 1500, 76 }, { 800, 47 }, { 1600, 55 } },
      { { 16384, MDAPL_SHM_ONCE }, { 262144, MDAPL_SHM_ONCE }, { 1 << 20, MDAPL_SHM_ONCE } } },
    { "the kernel wins for long bodies", { { 500, 100 }, { 9000, 50 }, { 9000, 100 } },
      { { 16384, MDAPL_SHM_TWICE }, { 65536, MDAPL_SHM_TWICE }, { 1 << 20, MDAPL_SHM_ONCE } } },
    { "the kernel is very slow", { { 500, 100 }, { 9000, 9000 }, { 9000, 9000 } },
      { { 16384, MDAPL_SHM_TWICE }, { 65536, MDAPL_SHM_TWICE }, { 1 << 20, MDAPL_SHM_TWICE } } },
    { "cells are very slow", { { 500, 9000 }, { 9000, 50 }, { 15000, 50 } },
      { { 16384, MDAPL_SHM_ONCE }, { 65536, MDAPL_SHM_ONCE }, { 1 << 20, MDAPL_SHM_ONCE } } },
    { "both ends are the fastest", { { 900, 112 }, { 1500, 90 }, { 3000, 55 } },
      { { 16384, MDAPL_SHM_TWICE }, { 65536, MDAPL_SHM_BOTH }, { 1 << 20, MDAPL_SHM_BOTH } } },
};
enum { MACHINES = sizeof(machines) / sizeof(machines[0]) };

struct run {
    struct mdapl_shm_judge judge;
    const struct machine *m;
    uint32_t random;
    uint64_t spent, ideal;       /* ns: of all bodies; had each gone the best way */
    enum mdapl_shm_way last;
    unsigned long other;         /* bodies that did not go the best way */
};

static uint64_t time_of(const struct machine *m, enum mdapl_shm_way way, size_t len)
{
    return m->of[way].fixed + (uint64_t)m->of[way].kib * (len >> 10);
}

/* Up to 10 % more, and in one of 64 bodies 20 times as much: another process had the core. */
static uint64_t disturbed(struct run *r, uint64_t ns)
{
    r->random = r->random * 1664525u + 1013904223u;
    ns += ns * (r->random >> 16 & 0xff) / 2560;
    return (r->random >> 26) == 0 ? ns * 20 : ns;
}

static uint64_t least(const struct run *r, size_t len)
{
    uint64_t ns = UINT64_MAX;

    for (int i = 0; i < MDAPL_SHM_WAYS; i++) {
        uint64_t t = time_of(r->m, (enum mdapl_shm_way)i, len);

        if (!r->judge.c[mdapl_shm_judge_class(len)].forbidden[i] && t < ns)
            ns = t;
    }
    return ns;
}

/* n bodies, and how many of the last LEAD did not go this way. */
static void bodies(struct run *r, size_t len, int n, enum mdapl_shm_way way)
{
    unsigned c = mdapl_shm_judge_class(len);

    r->other = 0;
    for (int i = 0; i < n; i++) {
        uint64_t ns;

        r->last = mdapl_shm_judge_choose(&r->judge, c);
        ns = time_of(r->m, r->last, len);
        r->spent += ns;
        r->ideal += least(r, len);
        r->other += r->last != way;
        mdapl_shm_judge_sample(&r->judge, c, r->last, len, disturbed(r, ns));
    }
}

static void start(struct run *r, const struct machine *m, uint32_t seed)
{
    memset(r, 0, sizeof(*r));
    mdapl_shm_judge_init(&r->judge);
    r->m = m;
    r->random = seed;
}

/* -- tests ------------------------------------------------------------------------------------ */

static void classes_are_powers_of_two(void **state)
{
    (void)state;
    assert_int_equal(mdapl_shm_judge_class(1), 0);
    assert_int_equal(mdapl_shm_judge_class(4096), 0);
    assert_int_equal(mdapl_shm_judge_class(4097), 1);
    assert_int_equal(mdapl_shm_judge_class(65536), 4);
    assert_int_equal(mdapl_shm_judge_class(4u << 20), 10);
    assert_int_equal(mdapl_shm_judge_class((4u << 20) + 1), MDAPL_SHM_CLASSES - 1);
    assert_int_equal(mdapl_shm_judge_class(SIZE_MAX), MDAPL_SHM_CLASSES - 1);
    for (unsigned c = 0; c < MDAPL_SHM_CLASSES; c++)
        assert_int_equal(mdapl_shm_judge_class(mdapl_shm_judge_longest(c)), c);
}

/* On each machine and for each length: the best way, and trials cost little. */
static void finds_the_best_way(void **state)
{
    struct run r;

    (void)state;
    for (int m = 0; m < MACHINES; m++)
        for (uint32_t seed = 1; seed <= 20; seed++)
            for (int i = 0; i < 3; i++) {
                size_t len = machines[m].best[i].len;

                start(&r, &machines[m], seed);
                bodies(&r, len, LEAD, machines[m].best[i].way);
                r.spent = r.ideal = 0;
                bodies(&r, len, MANY, machines[m].best[i].way);
                if (r.other * 50 > MANY || r.spent * 100 > r.ideal * 105)
                    fail_msg("%s, %zu bytes, seed %u: %lu bodies went another way, %g times the "
                             "time", machines[m].name, len, seed, r.other,
                             (double)r.spent / (double)r.ideal);
            }
}

/* The first bodies try every way a few times, whatever that costs, and no more. */
static void first_trials_are_few(void **state)
{
    struct run r;

    (void)state;
    for (int m = 0; m < MACHINES; m++) {
        start(&r, &machines[m], 7);
        bodies(&r, 65536, 3 * MDAPL_SHM_WAYS, machines[m].best[1].way);
        bodies(&r, 65536, 1, machines[m].best[1].way);
        if (r.other > 0)
            fail_msg("%s: not decided after %d bodies", machines[m].name, 3 * MDAPL_SHM_WAYS);
    }
}

/* Both ends together are at most three times as fast as the receiver alone: where that is not
 * enough, they are not tried. */
static void what_cannot_win_is_not_tried(void **state)
{
    struct run r;

    (void)state;
    for (int m = 0; m < MACHINES; m++) {
        int both = 0;

        start(&r, &machines[m], 7);
        for (int i = 0; i < MANY; i++) {
            bodies(&r, 1 << 20, 1, MDAPL_SHM_BOTH);
            both += r.last == MDAPL_SHM_BOTH;
        }
        assert_int_equal(both > 0, time_of(&machines[m], MDAPL_SHM_ONCE, 1 << 20)
                                       < 3 * time_of(&machines[m], MDAPL_SHM_TWICE, 1 << 20));
    }
}

/* A machine that changes (cores that move apart, a kernel that got slower) is judged again. */
static void a_change_is_noticed(void **state)
{
    struct run r;

    (void)state;
    for (int from = 0; from < MACHINES; from++)
        for (int to = 0; to < MACHINES; to++) {
            start(&r, &machines[from], 3);
            bodies(&r, 1 << 20, 5000, machines[from].best[2].way);
            r.m = &machines[to];
            bodies(&r, 1 << 20, 4 * MANY, machines[to].best[2].way);
            bodies(&r, 1 << 20, 2000, machines[to].best[2].way);
            if (r.other > 100)
                fail_msg("%s, then %s: %lu of 2000 bodies the wrong way", machines[from].name,
                         machines[to].name, r.other);
        }
}

/* When the way in use becomes slow, few bodies suffer. */
static void a_way_that_became_slow_is_replaced_soon(void **state)
{
    struct run r;

    (void)state;
    start(&r, &machines[1], 3);
    bodies(&r, 1 << 20, 5000, MDAPL_SHM_ONCE);
    r.m = &machines[3];
    bodies(&r, 1 << 20, 200, MDAPL_SHM_TWICE);
    assert_true(r.other < 100);
}

/* Ways that all become slow for a while, as when another process has the core, stay as they are: a
 * cost of the time after is not compared with one of the while. */
static void a_slow_while_changes_nothing(void **state)
{
    struct run r;

    (void)state;
    for (int length = 1; length < 40; length++) {
        unsigned c = mdapl_shm_judge_class(1 << 20);

        start(&r, &machines[0], 3);
        bodies(&r, 1 << 20, 5000, MDAPL_SHM_TWICE);
        for (int i = 0; i < length; i++) {
            enum mdapl_shm_way way = mdapl_shm_judge_choose(&r.judge, c);

            mdapl_shm_judge_sample(&r.judge, c, way, 1 << 20, 5 * time_of(r.m, way, 1 << 20));
        }
        bodies(&r, 1 << 20, 200, MDAPL_SHM_TWICE);
        if (r.other > 20)
            fail_msg("after %d slow bodies %lu of 200 the wrong way", length, r.other);
    }
}

/* A way that is not tried, since it cannot win, is not chosen for what it cost long ago. */
static void an_old_cost_is_no_reason(void **state)
{
    struct machine m = { "two copies win, just", { { 0, 100 }, { 0, 150 }, { 0, 108 } },
                         { { 0 } } };
    struct run r;
    int both = 0;

    (void)state;
    start(&r, &m, 3);
    bodies(&r, 1 << 20, 5000, MDAPL_SHM_TWICE);
    m.of[MDAPL_SHM_TWICE].kib = 320;
    m.of[MDAPL_SHM_ONCE].kib = 300;
    m.of[MDAPL_SHM_BOTH].kib = 2000;
    for (int i = 0; i < 200; i++) {
        bodies(&r, 1 << 20, 1, MDAPL_SHM_TWICE);
        both += r.last == MDAPL_SHM_BOTH;
    }
    assert_in_range(both, 0, 6);
}

static void what_is_forbidden_is_not_tried(void **state)
{
    struct run r;

    (void)state;
    start(&r, &machines[1], 5);
    bodies(&r, 65536, 100, MDAPL_SHM_ONCE);
    assert_int_equal(r.last, MDAPL_SHM_ONCE);
    mdapl_shm_judge_forbid_all(&r.judge, MDAPL_SHM_ONCE);
    mdapl_shm_judge_forbid(&r.judge, mdapl_shm_judge_class(65536), MDAPL_SHM_BOTH);
    for (int i = 0; i < MANY; i++) {
        bodies(&r, 65536, 1, MDAPL_SHM_TWICE);
        assert_int_equal(r.last, MDAPL_SHM_TWICE);
    }
    bodies(&r, 65536, LEAD, MDAPL_SHM_TWICE);
    assert_true(r.other < LEAD / 8);
    bodies(&r, 1 << 20, LEAD, MDAPL_SHM_BOTH);   /* of another class */
    bodies(&r, 1 << 20, LEAD, MDAPL_SHM_BOTH);
    assert_true(r.other < LEAD / 8);
}

/* Another process's decision is used at once, and is judged by the own bodies. */
static void a_decision_is_taken_over(void **state)
{
    unsigned c = mdapl_shm_judge_class(262144);
    struct run r;

    (void)state;
    start(&r, &machines[1], 5);
    mdapl_shm_judge_take(&r.judge, c, MDAPL_SHM_ONCE);
    bodies(&r, 262144, 15, MDAPL_SHM_ONCE);
    assert_int_equal(r.other, 0);
    start(&r, &machines[1], 5);
    mdapl_shm_judge_take(&r.judge, c, MDAPL_SHM_TWICE);
    bodies(&r, 262144, LEAD, MDAPL_SHM_ONCE);
    assert_int_equal(r.last, MDAPL_SHM_ONCE);
    /* ... but not instead of an own one. */
    mdapl_shm_judge_take(&r.judge, c, MDAPL_SHM_TWICE);
    bodies(&r, 262144, 1, MDAPL_SHM_ONCE);
    assert_int_equal(r.last, MDAPL_SHM_ONCE);
}

/* Bodies of which no time can be given (they overlapped others) leave no trial without an end. */
static void trials_without_samples_end(void **state)
{
    struct mdapl_shm_judge j;
    unsigned c = mdapl_shm_judge_class(65536);
    int once = 0;

    (void)state;
    mdapl_shm_judge_init(&j);
    for (int i = 0; i < MANY; i++)
        once += mdapl_shm_judge_choose(&j, c) == MDAPL_SHM_ONCE;
    assert_true(once > 0 && once < MANY / 2);
}

/* Where others choose the way: that bodies are disturbed for a while is no reason to change. */
static void disturbances_change_nothing(void **state)
{
    unsigned c = mdapl_shm_judge_class(65536);
    struct mdapl_shm_judge j;
    int changes = 0;

    (void)state;
    mdapl_shm_judge_init(&j);
    mdapl_shm_judge_forbid_all(&j, MDAPL_SHM_BOTH);
    for (int i = 0; i < MANY; i++) {
        bool rare = i % 1024 < 3, disturbed = i % 100 >= 92;
        enum mdapl_shm_way way = rare ? MDAPL_SHM_ONCE : MDAPL_SHM_TWICE;

        changes += mdapl_shm_judge_note(&j, c, way, 65536, rare ? 6500 : disturbed ? 12000 : 6200);
    }
    assert_int_equal(changes, 1);
    assert_int_equal(j.c[c].way, MDAPL_SHM_TWICE);
    for (int i = 0; i < 64; i++)
        changes += mdapl_shm_judge_note(&j, c, MDAPL_SHM_TWICE, 65536, 12000);
    assert_int_equal(changes, 2);        /* but that they stay so is */
}

/* A time of no ns and one of an hour. */
static void odd_times(void **state)
{
    struct mdapl_shm_judge j;

    (void)state;
    mdapl_shm_judge_init(&j);
    for (int i = 0; i < MANY; i++) {
        enum mdapl_shm_way way = mdapl_shm_judge_choose(&j, 0);

        assert_true(way < MDAPL_SHM_WAYS);
        mdapl_shm_judge_sample(&j, 0, way, 1, way == MDAPL_SHM_TWICE ? 0 : 3600000000000u);
    }
    assert_int_equal(mdapl_shm_judge_choose(&j, 0), MDAPL_SHM_TWICE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_powers_of_two),
        cmocka_unit_test(finds_the_best_way),
        cmocka_unit_test(first_trials_are_few),
        cmocka_unit_test(what_cannot_win_is_not_tried),
        cmocka_unit_test(a_change_is_noticed),
        cmocka_unit_test(a_way_that_became_slow_is_replaced_soon),
        cmocka_unit_test(a_slow_while_changes_nothing),
        cmocka_unit_test(an_old_cost_is_no_reason),
        cmocka_unit_test(what_is_forbidden_is_not_tried),
        cmocka_unit_test(a_decision_is_taken_over),
        cmocka_unit_test(trials_without_samples_end),
        cmocka_unit_test(disturbances_change_nothing),
        cmocka_unit_test(odd_times),
    };

    return RUN(tests);
}
