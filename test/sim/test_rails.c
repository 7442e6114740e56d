/* SPDX-License-Identifier: MIT */
/*
 * Several adapters in one job: a sleep ends with an event of any of them.
 * test_rails [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "err.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static uint64_t only_seed;

static uint64_t seeds(uint64_t n)
{
    return only_seed ? 1 : n;
}

static void start(struct sim *s, uint64_t i, int n)
{
    sim_start(s, only_seed ? only_seed : i + 1, n, NULL, NULL);
    s->verbose = only_seed != 0;
}

/* -- sleeping --------------------------------------------------------------------------------- */

enum { LONG_US = 1000000 };

/* Puts rank i to sleep for LONG_US. Returns how long that was, in us. */
static uint64_t sleep_of(struct sim *s, int i)
{
    uint64_t began = *fake_time();

    mdapl_wait(s->rank[i].ctx, MDAPL_US(LONG_US));
    return (*fake_time() - began) / 1000;
}

/* A sleep without an event is as long as it may be. */
static void quiet_rails_let_sleep(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(8); i++) {
        start(&s, i, 2);
        sim_open_all(&s, i % 2 ? "ia=fake,fake" : "ia=fake,fake,fake streams=2");
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, sleep_of(&s, 1) >= LONG_US);
        SIM_CHECK(&s, sleep_of(&s, 1) >= LONG_US);
        sim_end(&s);
    }
}

/* Rank 1 sleeps whenever it has nothing to do, until it has read all messages; each sleep is ended
 * by what rank 0 or the adapters do. */
static void sleep_until_read(struct sim *s)
{
    for (int rounds = 0; s->rank[1].reads < (int)s->rank[0].sent[1]; rounds++) {
        SIM_CHECK(s, rounds < 1000);
        mdapl_progress(s->rank[0].ctx);
        while (mdapl_progress(s->rank[1].ctx) > 0)
            ;
        if (s->rank[1].reads < (int)s->rank[0].sent[1])
            SIM_CHECK(s, sleep_of(s, 1) < LONG_US);
    }
}

/* Bodies take the streams in turn, so their reads complete on one rail or the other. */
static void transfers_on_any_rail_wake(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(40); i++) {
        start(&s, i, 2);
        sim_open_all(&s, "ia=fake,fake,fake ack_idle_us=60000000");
        for (int k = 0; k < 6; k++) {
            sim_rounds(&s, 500);
            sim_send(&s, 0, 1, 20000, false);
            sleep_until_read(&s);
        }
        sim_end(&s);
    }
}

/* The first message calls on every rail; the order in which the requests arrive is the seed's. */
static void requests_on_any_rail_wake(void **state)
{
    struct mdapl_err err;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(40); i++) {
        start(&s, i, 2);
        for (int r = 0; r < 2; r++)
            SIM_CHECK(&s, sim_open(&s, r, "ia=fake,fake wiring=ondemand ack_idle_us=60000000",
                                   &err) == 0);
        sim_send(&s, 0, 1, 100, false);
        while (SIM_STAT(&s, 1, connects) < 2) {
            mdapl_progress(s.rank[0].ctx);
            while (mdapl_progress(s.rank[1].ctx) > 0)
                ;
            if (SIM_STAT(&s, 1, connects) < 2)
                SIM_CHECK(&s, sleep_of(&s, 1) < LONG_US);
        }
        sim_run(&s);
        sim_end(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet_rails_let_sleep),
        cmocka_unit_test(transfers_on_any_rail_wake),
        cmocka_unit_test(requests_on_any_rail_wake),
    };

    if (argc > 1)
        only_seed = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return RUN(tests);
}
