/* SPDX-License-Identifier: MIT */
/*
 * Several adapters in one job: a sleep ends with an event of any of them, and one that fails or is
 * SUSPECT does not affect the others.
 * test_rails [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "conn.h"
#include "err.h"
#include "peer.h"
#include "regcache.h"
#include "seeds.h"
#include "sim.h"
#include "vbuf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void start(struct sim *s, uint64_t i, int n)
{
    sim_start(s, seed_at(i), n, NULL, NULL);
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

/* -- a rail's life ---------------------------------------------------------------------------- */

/* Rank 1 has one adapter, the others have two. Adapters are numbered in this order. */
enum { R0_A, R0_B, R1_A, R2_A, R2_B };

static void open_unlike(struct sim *s, const char *more)
{
    static const char *const ias[] = { "fake,fake", "fake", "fake,fake" };

    for (int r = 0; r < 3; r++) {
        struct mdapl_err err;
        char knobs[128];

        snprintf(knobs, sizeof(knobs), "ia=%s %s", ias[r], more);
        SIM_CHECK(s, sim_open(s, r, knobs, &err) == 0);
    }
    sim_connect(s);
}

/* Messages of all kinds between ranks 0 and 1, until all have been read. */
static void both_ways(struct sim *s, int n)
{
    for (int k = 0; k < n; k++) {
        sim_send(s, k % 2, 1 - k % 2, k % 3 ? 200 : 30000, k % 5 == 0);
        sim_rounds(s, (int)fake_random(20));
    }
    sim_run(s);
}

/* A rank whose second adapter has failed loses the peers that it reached through it. With the
 * others it goes on as before: no call is made to the adapter that is DOWN, so bodies travel by
 * RDMA and there are frame buffers for any number of frames. */
static void a_rail_that_is_down_is_left_alone(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        uint64_t by_rdma;

        start(&s, i, 3);
        open_unlike(&s, "ft=off vbuf_size=16384 ring=off");
        both_ways(&s, 20);
        s.may_fail = true;
        fake_end_ia(R0_B);
        sim_rounds(&s, 2000);
        SIM_CHECK(&s, s.rank[0].faults == 1 && s.rank[2].faults == 1 && s.rank[1].faults == 0);
        s.may_fail = false;
        by_rdma = SIM_SUM(&s, rx_rget);
        for (int k = 0; k < 100; k++)
            sim_send(&s, 0, 1, 12000, false);
        both_ways(&s, 40);
        SIM_CHECK(&s, SIM_SUM(&s, rx_rget) >= by_rdma + 14 && SIM_SUM(&s, rx_copy) == 0);
        SIM_CHECK(&s, SIM_STAT(&s, 0, reg_failures) == 0);
        SIM_CHECK(&s, sleep_of(&s, 0) > 0);
        sim_close(&s);
    }
}

/* The adapter executes nothing, so a body of which a piece is read through it does not end. */
static void bodies_avoid_a_suspect_rail(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        start(&s, i, 2);
        sim_open_all(&s, "ia=fake,fake stripe_bytes=40000 ring=off");
        sim_rounds(&s, 500);
        fake_async(3, DAT_ASYNC_ERROR_TIMED_OUT);
        sim_rounds(&s, 500);
        fake_hold_ia(3);
        for (int k = 0; k < 4; k++)
            sim_send(&s, 0, 1, k % 2 ? 30000 : 60000, false);
        sim_run(&s);
        *fake_time() += MDAPL_SEC(2);            /* without another doubt it is trusted again */
        sim_rounds(&s, 500);
        sim_send(&s, 0, 1, 60000, false);
        sim_rounds(&s, 5000);
        SIM_CHECK(&s, !sim_settled(&s));
        fake_hold_ia(-1);
        sim_run(&s);
        sim_end(&s);
    }
}

/* -- keys ------------------------------------------------------------------------------------- */

/* Two rails without a channel around them. */
static struct bare {
    struct mdapl_ctx *ctx;
    struct mdapl_dapl_dat dat;
    struct mdapl_dapl_rails rails;
    struct mdapl_dapl_regcache regs;
    struct mdapl_dapl_vbufs vbufs; /* of the second */
} bare;

static int open_bare(struct mdapl_ctx *ctx, void **state_p)
{
    static const struct mdapl_dapl_ia_hooks none;
    struct mdapl_dapl_rails *rails = &bare.rails;

    *state_p = &bare;
    mdapl_dapl_rails_init(rails);
    assert_int_equal(mdapl_dapl_dat_load(&bare.dat, mdapl_ctx_err(ctx)), 0);
    for (; rails->n < 2; rails->n++) {
        assert_int_equal(mdapl_dapl_ia_open(ctx, &bare.dat, "fake", &none, &rails->ia[rails->n]),
                         0);
        rails->ia[rails->n]->rail = rails->n;
    }
    assert_int_equal(mdapl_dapl_rails_start(rails), 0);
    mdapl_dapl_regcache_init(&bare.regs, rails, mdapl_ctx_stats(ctx), NULL, 0);
    mdapl_dapl_vbufs_init(&bare.vbufs, rails->ia[1], &bare.regs, 4096);
    return 0;
}

static void close_bare(void *state)
{
    (void)state;
    mdapl_dapl_vbufs_fini(&bare.vbufs);
    mdapl_dapl_regcache_fini(&bare.regs);
    mdapl_dapl_rails_close(&bare.rails);
}

static void start_bare(void)
{
    static const struct mdapl_channel table = {
        .name = "bare", .open = open_bare, .close = close_bare,
    };
    static const struct mdapl_channel *const only[] = { &table, NULL };
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = { .channels = only, .cfg = &cfg, .job = { .size = 1 },
                                   .clock = mdapl_clock_manual(fake_time()) };

    fake_start(1, NULL, NULL);
    mdapl_cfg_init(&cfg);
    assert_int_equal(mdapl_ctx_open(&args, &bare.ctx, &err), 0);
}

/* Keys are made for the requested rails. What a rail had before it went DOWN is void, also
 * after it has been opened again; the other rail's keys stay. */
static void keys_have_a_generation(void **state)
{
    enum { FIRST = 1, SECOND = 2 };      /* sets of rails */
    static char memory[4096];
    struct mdapl_dapl_ia *second;
    DAT_RMR_CONTEXT old[2];
    DAT_LMR_CONTEXT frames;
    DAT_CONN_QUAL qual;
    struct mdapl_dapl_vbuf *b;
    struct mdapl_dapl_lmr lmr;

    (void)state;
    start_bare();
    second = bare.rails.ia[1];
    mdapl_dapl_lmr_init(&lmr, &bare.rails, memory, sizeof(memory), MDAPL_LMR_REMOTE_READ);
    assert_int_equal(mdapl_dapl_lmr_need(&lmr, FIRST), 0);
    assert_true(mdapl_dapl_lmr_has(&lmr, 0) && !mdapl_dapl_lmr_has(&lmr, 1));
    assert_int_equal(mdapl_dapl_lmr_need(&lmr, FIRST | SECOND), 0);
    assert_true(mdapl_dapl_lmr_has(&lmr, 1));
    old[0] = lmr.on[0].key, old[1] = lmr.on[1].key;
    b = mdapl_dapl_vbuf_get(&bare.vbufs, MDAPL_VBUF_FRAME);
    frames = b->key;
    qual = second->qual;

    assert_int_equal(mdapl_dapl_rail_reopen(second), -EBUSY);
    mdapl_dapl_rail_step(second, MDAPL_DAPL_RAIL_FATAL);
    assert_int_equal(second->state, MDAPL_DAPL_RAIL_DOWN);
    assert_true(mdapl_dapl_lmr_has(&lmr, 0) && !mdapl_dapl_lmr_has(&lmr, 1));
    assert_int_equal(mdapl_dapl_lmr_need(&lmr, FIRST), 0);
    assert_true(mdapl_dapl_lmr_need(&lmr, FIRST | SECOND) < 0);

    assert_int_equal(mdapl_dapl_rail_reopen(second), 0);
    assert_int_equal(second->state, MDAPL_DAPL_RAIL_OPEN);
    assert_true(second->qual == qual);
    assert_false(mdapl_dapl_lmr_has(&lmr, 1));
    assert_int_equal(mdapl_dapl_lmr_need(&lmr, FIRST | SECOND), 0);
    assert_int_equal(lmr.on[0].key, old[0]);
    assert_int_not_equal(lmr.on[1].key, old[1]);
    assert_int_not_equal(b->key, frames);
    mdapl_dapl_vbuf_put(&bare.vbufs, b);
    mdapl_dapl_lmr_release(&lmr);
    mdapl_ctx_close(bare.ctx);
    assert_int_equal(fake_stop(), 0);
}

/* The adapter cannot be opened: the rail is DOWN as before. */
static void a_refused_reopening_leaves_it_down(void **state)
{
    struct mdapl_dapl_ia *second;

    (void)state;
    start_bare();
    second = bare.rails.ia[1];
    mdapl_dapl_rail_step(second, MDAPL_DAPL_RAIL_FATAL);
    fake_refuse_ias(true);
    assert_true(mdapl_dapl_rail_reopen(second) < 0);
    assert_non_null(strstr(mdapl_ctx_err(bare.ctx)->text, "IA fake"));
    assert_int_equal(second->state, MDAPL_DAPL_RAIL_DOWN);
    fake_refuse_ias(false);
    assert_int_equal(mdapl_dapl_rail_reopen(second), 0);
    mdapl_ctx_close(bare.ctx);
    assert_int_equal(fake_stop(), 0);
}

/* -- spares ------------------------------------------------------------------------------------ */

/* Requests that have been posted on the connections of a rank to the other one, on one rail. */
static uint32_t posted(struct sim *s, int rank, int rail)
{
    const struct mdapl_dapl_peer *peer = sim_dapl_peer(s, rank, 1 - rank);
    uint32_t n = 0;

    for (int i = 0; i < peer->n_streams; i++)
        if (peer->stream[i].ia->rail == rail && peer->stream[i].up)
            n += peer->stream[i].up->ep.req.next;
    return n;
}

static void long_bodies(struct sim *s, int n)
{
    for (int k = 0; k < n; k++)
        sim_send(s, k % 2, 1 - k % 2, k % 3 ? 20000 : 100000, false);
    sim_run(s);
    sim_rounds(s, 2000);
}

/* The second adapter is connected, and carries nothing but what each connection begins with. When
 * the first one has no connection any more, and gets none, the second one carries all. */
static void later_adapters_may_be_spares(void **state)
{
    static const char *const knobs[] = {
        "ia_use=spare rndv=rget ring=off", "ia_use=spare rndv=rput ring=off stripe_bytes=30000",
        "ia_use=share rndv=rget ring=off", "ia_use=spare streams=2 stripe_bytes=30000",
    };
    enum { FEW = 4 };
    struct sim s;

    (void)state;
    for (uint64_t k = 0; k < seeds(16); k++) {
        uint64_t i = seed_at(k) - 1;
        char all[96];

        sim_start(&s, i + 1, 2, NULL, NULL);
        s.verbose = only_seed != 0;
        snprintf(all, sizeof(all), "ia=fake,fake %s", knobs[i % 4]);
        sim_open_all(&s, all);
        long_bodies(&s, 20);
        for (int r = 0; r < 2; r++) {
            SIM_CHECK(&s, posted(&s, r, 0) > FEW);
            SIM_CHECK(&s, i % 4 == 2 || posted(&s, r, 1) <= FEW);
        }
        SIM_CHECK(&s, i % 4 != 2 || posted(&s, 0, 1) + posted(&s, 1, 1) > 2 * FEW);
        fake_hold_requests(true);
        for (int n = 0; n < sim_dapl_peer(&s, 0, 1)->n_streams; n += 2)
            fake_async_ep(fake_nth_ep(sim_dapl_peer(&s, 0, 1)->stream[n].conn->ep.handle),
                          DAT_ASYNC_ERROR_EP_BROKEN);
        long_bodies(&s, 20);
        SIM_CHECK(&s, posted(&s, 0, 0) == 0 && posted(&s, 0, 1) > FEW);
        fake_hold_requests(false);
        sim_end(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet_rails_let_sleep),
        cmocka_unit_test(transfers_on_any_rail_wake),
        cmocka_unit_test(requests_on_any_rail_wake),
        cmocka_unit_test(a_rail_that_is_down_is_left_alone),
        cmocka_unit_test(bodies_avoid_a_suspect_rail),
        cmocka_unit_test(keys_have_a_generation),
        cmocka_unit_test(a_refused_reopening_leaves_it_down),
        cmocka_unit_test(later_adapters_may_be_spares),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
