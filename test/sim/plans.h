/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_PLANS_H
#define MDAPL_TEST_PLANS_H
/*
 * Plans of faults that a test runs its scenarios under: one at each request, or several, of which
 * one may happen during the recovery from another.
 */
#include "fake.h"
#include "seeds.h"

enum { MOST_FAULTS = 4 };

/* Runs a scenario under a plan of n faults, at most MOST_FAULTS. Returns the number of requests
 * that it has executed. */
typedef unsigned run_plan(uint64_t seed, int scenario, const struct fake_fault *plan, int n);

/* The faults of a plan happen, its requests counted from now on. later: room for n faults, used
 * until the end of the run. Returns how many requests have been executed before. */
static inline unsigned begin_plan(const struct fake_fault *plan, int n, struct fake_fault *later)
{
    unsigned first = fake_executed();

    for (int k = 0; k < n; k++)
        later[k] = (struct fake_fault){ plan[k].kind, plan[k].nth + first };
    fake_plan(later, n);
    return first;
}

/* The seed of a run names all of it: scenario, request and kind. Returns how many faults have
 * happened. */
static inline unsigned run_at_every_request(run_plan *run, int scenarios)
{
    unsigned hit = 0;

    for (int scenario = 0; scenario < scenarios; scenario++) {
        unsigned requests = run((uint64_t)scenario, scenario, NULL, 0);

        for (unsigned nth = 1; nth <= requests; nth++)
            for (int kind = 0; kind < FAKE_FAULT_KINDS; kind++) {
                uint64_t seed = ((uint64_t)scenario << 24 | nth << 8 | (unsigned)kind) + 1;
                struct fake_fault plan = { (enum fake_fault_kind)kind, nth };

                if (!only_seed || seed == only_seed)
                    hit += run(seed - 1, scenario, &plan, 1) >= nth;
            }
    }
    return hit;
}

/* Two to four faults, at one of so many requests each, for 600 seeds. factor: makes the draws of
 * one test others than those of another. */
static inline void run_with_several(run_plan *run, int scenarios, uint64_t factor, unsigned among)
{
    for (uint64_t i = 0; i < seeds(600); i++) {
        uint64_t seed = seed_at(i);
        struct fake_fault plan[MOST_FAULTS];
        int scenario, n;

        fake_start(seed * factor, NULL, NULL);       /* for its numbers */
        scenario = (int)fake_random((uint64_t)scenarios);
        n = 2 + (int)fake_random(3);
        for (int k = 0; k < n; k++)
            plan[k] = (struct fake_fault){ (enum fake_fault_kind)fake_random(FAKE_FAULT_KINDS),
                                           1 + (unsigned)fake_random(among) };
        fake_stop();
        run(seed - 1, scenario, plan, n);
    }
}

#endif
