/* SPDX-License-Identifier: MIT */
/*
 * What adapters and providers do wrong: one clear line, no wrong byte, no wait without end.
 * test_faults [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t only_seed;

static uint64_t seeds(uint64_t n)
{
    return only_seed ? 1 : n;
}

static void start(struct sim *s, uint64_t i, int n, const struct fake_faults *faults,
                  const struct fake_limits *limits)
{
    sim_start(s, only_seed ? only_seed : i + 1, n, faults, limits);
    s->verbose = only_seed != 0;
}

/* -- striped reads ---------------------------------------------------------------------------- */

/* One piece fails and others succeed in the same round, the last one too: the body has not been
 * read (sim.c compares the bytes of what is said to have been). */
static void one_stripe_fails(void **state)
{
    int failed = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(200); i++) {
        struct fake_faults faults = { .fail_read = 1 + (unsigned)(i % 7) };

        start(&s, i, 2, &faults, NULL);
        sim_open_all(&s, "streams=4 stripe_bytes=4000");
        s.may_fail = true;
        s.lazy = 1 << fake_random(8);
        sim_send(&s, 0, 1, 60000, false);
        sim_send(&s, 0, 1, 60000, false);
        sim_run(&s);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, s.rank[1].faults == 1);
        SIM_CHECK(&s, strstr(s.rank[1].why, "lost the connection to rank 0"));
        failed += s.rank[1].reads_failed;
        sim_close(&s);
    }
    assert_true(only_seed || failed > 100);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stripe_fails),
    };

    if (argc > 1)
        only_seed = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return RUN(tests);
}
