/* SPDX-License-Identifier: MIT */
/*
 * Flow control: windows and acknowledgements of one and of several streams. test_flow [SEED [TEST]]
 * runs that one seed with the frames shown; SEED 0: all, TEST alone.
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

/* -- several streams -------------------------------------------------------------------------- */

/* Bursts of at most `most` messages, long bodies among short ones, one way or both, all read at
 * once. */
static void bursts(struct sim *s, int rounds, uint64_t most, uint32_t longest)
{
    bool both = fake_random(2);

    for (int k = 0; k < rounds; k++) {
        for (uint64_t n = 1 + fake_random(most); n > 0; n--) {
            uint32_t len = (uint32_t)(fake_random(3) ? 9000 + fake_random(longest - 9000)
                                                     : fake_random(500));
            int from = both && fake_random(2) ? 1 : 0;

            sim_send(s, from, 1 - from, len, false);
            if (fake_random(2))
                sim_round(s);
        }
        sim_run(s);
    }
}

/* Streams carry WRITTEN frames only one way: nothing goes back that would open their windows. */
static void written_on_many_streams(void **state)
{
    static const char *const rndv[] = { "rput", "rput", "copy" };
    char knobs[256];
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(150); i++) {
        start(&s, i, 2, NULL, NULL);
        snprintf(knobs, sizeof(knobs), "streams=%d sr_window=%d stripe_bytes=%d rndv=%s ring=%s",
                 3 + (int)fake_random(6), 4 + (int)fake_random(13),
                 1500 + (int)fake_random(20000), rndv[fake_random(3)],
                 fake_random(2) ? "on" : "off");
        sim_open_all(&s, knobs);
        s.lazy = 1 << fake_random(10);
        bursts(&s, 4, 48, 60000);
        SIM_CHECK(&s, SIM_SUM(&s, rx_rput) + SIM_SUM(&s, rx_copy) > 0);
        sim_end(&s);
    }
}

/* Four adapters without RDMA read and no knob but their names. */
static void four_rails_without_reads(void **state)
{
    static const struct fake_limits no_read = { .dtos = 128, .priv = 56, .rdma = 1 << 20 };
    uint64_t written = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        start(&s, i, 2, NULL, &no_read);
        sim_open_all(&s, "ia=fake,fake,fake,fake");
        s.lazy = 1 << fake_random(10);
        bursts(&s, 3, 48, 600000);
        written += SIM_SUM(&s, rx_rput);
        sim_end(&s);
    }
    assert_true(written > 100);
}

/* -- frames that have overtaken others --------------------------------------------------------- */

/*
 * One connection stands still with a WRITTEN frame on it, another carries a flood of messages
 * behind it. What overtakes is bounded by the windows, and nothing is lost.
 */
static void one_stream_stands_still(void **state)
{
    uint64_t most = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(12); i++) {
        start(&s, i, 2, NULL, NULL);
        sim_open_all(&s, "streams=3 rndv=rput stripe_bytes=100000 ring=on ring_after=1");
        fake_hold((int)(i % 6));
        for (int k = 0; k < 3; k++)
            sim_send(&s, 0, 1, 20000, false);
        sim_rounds(&s, 2000);
        for (int k = 0; k < 6000; k++)
            sim_send(&s, 0, 1, 40, false);
        sim_rounds(&s, 80000);
        fake_hold(-1);
        sim_run(&s);
        SIM_CHECK(&s, SIM_SUM(&s, early_max) <= 3 * 16 + 32);
        if (most < SIM_SUM(&s, early_max))
            most = SIM_SUM(&s, early_max);
        sim_end(&s);
    }
    assert_true(most >= 16);     /* it was tried */
}

/* As many frames under way as the knobs allow, the receiver now and then absent. */
static void largest_windows(void **state)
{
    static const struct fake_limits large = { .dtos = 16384, .reads = 4, .priv = 56,
                                              .rdma = 1 << 20 };
    uint64_t early = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(3); i++) {
        start(&s, i, 2, NULL, &large);
        sim_open_all(&s, "sr_window=4096 ring_slots=4096 ep_requests=16384 vbuf_size=512 ring=on "
                         "ring_slot_bytes=128 ring_after=1");
        s.lazy = 1000;
        for (int k = 0; k < 30000; k++) {
            sim_send(&s, 0, 1, (uint32_t)fake_random(60), false);
            for (uint64_t n = fake_random(6); n > 0; n--)
                sim_round(&s);
        }
        sim_run(&s);
        early += SIM_SUM(&s, early);
        sim_end(&s);
    }
    assert_true(only_seed || early > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_on_many_streams),
        cmocka_unit_test(four_rails_without_reads),
        cmocka_unit_test(one_stream_stands_still),
        cmocka_unit_test(largest_windows),
    };

    if (argc > 1)
        only_seed = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return RUN(tests);
}
