/* SPDX-License-Identifier: MIT */
/*
 * What adapters and providers do wrong: one clear line, no wrong byte, no wait without end.
 * test_faults [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "err.h"
#include "seeds.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char started_again[] = "MDAPL_TEST_FAULTS_CONF";

static void start(struct sim *s, uint64_t i, int n, const struct fake_faults *faults,
                  const struct fake_limits *limits)
{
    sim_start(s, seed_at(i), n, faults, limits);
    s->verbose = only_seed != 0;
}

/* -- striped reads ---------------------------------------------------------------------------- */

/* One piece fails and others succeed in the same round, the last one too: the body has not been
 * read (sim.c compares the bytes of bodies reported as read). */
static void one_stripe_fails(void **state)
{
    int failed = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(200); i++) {
        struct fake_faults faults = {
            .fail_op = DAT_DTO_RDMA_READ, .fail_nth = 1 + (unsigned)(i % 7),
            .fail_status = DAT_DTO_ERR_REMOTE_ACCESS,
        };

        start(&s, i, 2, &faults, NULL);
        sim_open_all(&s, "ft=off streams=4 stripe_bytes=4000");
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
    assert_true(shown(failed, 100));
}

/* -- what providers cannot do ------------------------------------------------------------------ */

/* Traffic of every kind between all ranks. */
static void mixed(struct sim *s, int messages)
{
    for (int k = 0; k < messages; k++) {
        int from = (int)fake_random((uint64_t)s->n), to = (int)fake_random((uint64_t)s->n - 1);

        sim_send(s, from, to + (to >= from), (uint32_t)fake_random(fake_random(2) ? 300 : 30000),
                 fake_random(4) == 0);
        sim_rounds(s, (int)fake_random(4));
    }
    sim_run(s);
}

/* Event queues cannot be resized, and are short: more endpoints get more of them. */
static void short_event_queues(void **state)
{
    static const struct fake_limits limits = {
        .dtos = 128, .reads = 4, .priv = 56, .rdma = 1 << 20, .evd_qlen = 200,
    };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        start(&s, i, 4, NULL, &limits);
        sim_open_all(&s, i % 2 ? "streams=3" : "streams=3 wiring=ondemand rndv=rput");
        mixed(&s, 60);
        sim_end(&s);
    }
}

/* An adapter answers fewer reads than it makes; it needs the right of remote write on the memory
 * that it reads into. */
static void unlike_read_limits(void **state)
{
    static const struct fake_limits limits = {
        .dtos = 128, .reads = 8, .priv = 56, .rdma = 1 << 20, .reads_in = 2,
        .sink_needs_write = true,
    };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        start(&s, i, 3, NULL, &limits);
        sim_open_all(&s, "streams=2 stripe_bytes=10000");
        mixed(&s, 60);
        SIM_CHECK(&s, SIM_SUM(&s, rx_rget) > 0);
        sim_end(&s);
    }
}

/* More first contacts than a rank's queue has room for, while it computes: they are repeated. */
static void many_first_contacts(void **state)
{
    static const struct fake_limits limits = {
        .dtos = 128, .reads = 4, .priv = 56, .rdma = 1 << 20, .evd_qlen = 8,
    };
    uint64_t repeated = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        struct mdapl_err err;

        start(&s, i, 4, NULL, &limits);
        for (int r = 0; r < 4; r++)
            SIM_CHECK(&s, sim_open(&s, r, "wiring=ondemand streams=4 sr_window=2 ep_requests=4 "
                                   "connect_timeout_ms=3600000", &err) == 0);
        for (int r = 0; r < 3; r++)
            sim_send(&s, r, 3, 100, false);
        for (int k = 0; k < 2000; k++) {     /* rank 3 computes */
            fake_step();
            mdapl_progress(s.rank[k % 3].ctx);
        }
        sim_run(&s);
        repeated += SIM_SUM(&s, connect_retries);
        sim_end(&s);
    }
    assert_true(repeated > 0);
}

/* -- what an adapter reports of itself -------------------------------------------------------- */

static void adapter_fails(void **state)
{
    static const struct { DAT_EVENT_NUMBER number; const char *text; } row[] = {
        { DAT_ASYNC_ERROR_IA_CATASTROPHIC, "the adapter failed" },
        { DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, "the provider failed" },
        { DAT_ASYNC_ERROR_EVD_OVERFLOW, "an event queue overflowed" },
    };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(12); i++) {
        start(&s, i, 3, NULL, NULL);
        sim_open_all(&s, i % 2 ? "ft=off ia=fake,fake" : "ft=off wiring=ring");
        s.may_fail = true;
        for (int k = 0; k < 10; k++)
            sim_send(&s, 0, 1 + k % 2, 20000, true);
        sim_rounds(&s, (int)fake_random(100));
        fake_async(0, row[i % 3].number);
        sim_run(&s);
        sim_rounds(&s, 4000);
        SIM_CHECK(&s, s.rank[0].faults == 2);
        SIM_CHECK(&s, strstr(s.rank[0].why, row[i % 3].text));
        SIM_CHECK(&s, strstr(s.rank[0].why, "IA fake"));
        SIM_CHECK(&s, s.rank[1].faults == 1 && s.rank[2].faults == 1);
        sim_close(&s);
    }
}

/* -- names and cards -------------------------------------------------------------------------- */

/* The first adapter that opens is behind many lines of dat.conf that do not (write_dat_conf()). */
static void long_dat_conf(void **state)
{
    struct mdapl_err err = { .text = "" };
    struct sim s;

    (void)state;
    start(&s, 0, 1, NULL, NULL);
    if (sim_open(&s, 0, "ia=", &err))
        fail_msg("%s", err.text);
    sim_close(&s);
}

/* The cards of four rails with long addresses; the host's name is cut when room is short. */
static void long_cards(void **state)
{
    static const struct fake_limits limits = {
        .dtos = 128, .reads = 4, .priv = 56, .rdma = 1 << 20, .ipv6 = true,
    };
    char text[2 * MDAPL_CARD_MAX];
    struct sim s;
    int n;

    (void)state;
    start(&s, 0, 2, NULL, &limits);
    sim_open_all(&s, "ia=fake,fake,fake,fake");
    n = mdapl_ctx_card(s.rank[0].ctx, text, sizeof(text));
    assert_int_equal(n, strlen(s.card[0]));
    assert_true(n + 80 + 62 < MDAPL_CARD_MAX);       /* the other channel's, a longer name */
    assert_int_equal(mdapl_ctx_card(s.rank[0].ctx, text, (size_t)n), n - 1);
    assert_int_equal(strncmp(text, s.card[0], (size_t)n - 1), 0);
    assert_true(mdapl_ctx_card(s.rank[0].ctx, text, (size_t)n / 2) < 0);
    mixed(&s, 20);
    sim_end(&s);
}

/* -- receives --------------------------------------------------------------------------------- */

/* A receive that cannot be posted again would be missing in the window that the peer counts on. */
static void receive_refused(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        struct fake_faults faults = { .refuse_recv = 1 + (unsigned)i };

        start(&s, i, 2, &faults, NULL);
        sim_open_all(&s, "ft=off ring=off sr_window=4");      /* it does not grow: all are needed */
        s.may_fail = true;
        for (int k = 0; k < 100; k++)
            sim_send(&s, 0, 1, 200, false);
        sim_run(&s);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, s.rank[0].faults == 1 && s.rank[1].faults == 1);
        SIM_CHECK(&s, strstr(s.rank[0].why, "a receive was refused")
                      || strstr(s.rank[1].why, "a receive was refused"));
        sim_close(&s);
    }
}

/*
 * libdat2 reads its list of adapters as it is loaded, so the program starts once more with a list
 * of its own: many lines without a library and, at the end, the fake provider's name.
 */
static void write_dat_conf(char **argv)
{
    char path[] = "/tmp/mdapl-dat-conf-XXXXXX";
    int fd = mkstemp(path);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (!out)
        return;
    for (int i = 0; i <= 300; i++)
        fprintf(out, "%s%.0d u2.0 nonthreadsafe default /nowhere/libnone.so none.1.0 \"\" \"\"\n",
                i < 300 ? "other" : "fake", i < 300 ? i + 1 : 0);
    fclose(out);
    setenv("DAT_OVERRIDE", path, 1);
    setenv(started_again, path, 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stripe_fails),
        cmocka_unit_test(short_event_queues),
        cmocka_unit_test(unlike_read_limits),
        cmocka_unit_test(many_first_contacts),
        cmocka_unit_test(adapter_fails),
        cmocka_unit_test(long_dat_conf),
        cmocka_unit_test(long_cards),
        cmocka_unit_test(receive_refused),
    };
    int rc;

    if (!getenv(started_again))
        write_dat_conf(argv);
    read_seed(argc, argv);
    rc = RUN(tests);
    if (getenv(started_again))
        unlink(getenv(started_again));
    return rc;
}
