/* SPDX-License-Identifier: MIT */
/*
 * Puts and gets between two ranks, through connections that end and adapters that are opened
 * again. What is put is compared in the peer's memory as soon as the put is done, and again before
 * the next one to the same place, so that bytes which land late are found.
 * test_rma [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "conn.h"
#include "peer.h"
#include "plans.h"
#include "sim.h"

#include <errno.h>
#include <string.h>

enum { SLOTS = 4, SLOT = 24000, RANKS = 2, MEMORY = SLOTS * SLOT, UNTOUCHED = 0x5a };

/* A part of a rank's memory, which the other rank uses by one put or get at a time. */
struct slot {
    struct mdapl_op op;
    struct side *side;
    int at;                      /* its first byte */
    bool busy, put;
    uint32_t off, len;           /* what is put or got */
    uint8_t local[SLOT];
};

/* A rank's memory, and what its user, the other rank, knows of it. */
struct side {
    struct world *w;
    int user;
    struct mdapl_exposed *exposed;
    struct mdapl_where where;
    uint8_t memory[MEMORY], model[MEMORY];
    struct slot slot[SLOTS];
};

struct world {
    struct sim sim;              /* first */
    struct side side[RANKS];     /* by the rank whose memory it is */
    int left;                    /* operations that are still to be started */
    int done, stale, failed;
};

static void check_slot(const struct slot *slot)
{
    const struct side *side = slot->side;

    SIM_CHECK(&side->w->sim, memcmp(side->memory + slot->at, side->model + slot->at, SLOT) == 0);
}

/* It has had no effect that anybody may rely on: a message does it. The description is renewed. */
static void by_message(struct slot *slot)
{
    struct side *side = slot->side;
    int at = slot->at + (int)slot->off;

    if (slot->put)
        memcpy(side->memory + at, slot->local, slot->len);
    else
        memcpy(slot->local, side->memory + at, slot->len);
    mdapl_exposed_where(side->exposed, &side->where);
    side->w->stale++;
}

static void op_done(struct mdapl_op *op, int status)
{
    struct slot *slot = (struct slot *)(void *)op;
    struct side *side = slot->side;
    struct sim *s = &side->w->sim;
    int at = slot->at + (int)slot->off;

    SIM_CHECK(s, slot->busy);
    slot->busy = false;
    side->w->done++;
    if (status == -ECONNRESET || status == -ECANCELED || status == -EHOSTUNREACH) {
        SIM_CHECK(s, s->may_fail);
        side->w->failed++;
        return;
    }
    SIM_CHECK(s, status == 0 || status == -ESTALE);
    if (status)
        by_message(slot);
    if (slot->put)
        memcpy(side->model + at, slot->local, slot->len);
    else
        SIM_CHECK(s, memcmp(slot->local, side->model + at, slot->len) == 0);
    check_slot(slot);
}

static void start_op(struct slot *slot)
{
    struct side *side = slot->side;
    struct sim *s = &side->w->sim;
    uint32_t longest = fake_random(3) ? SLOT : 64;
    struct mdapl_peer *peer;
    int rc;

    check_slot(slot);
    slot->put = fake_random(2);
    slot->len = 1 + (uint32_t)fake_random(longest);
    slot->off = (uint32_t)fake_random(SLOT - slot->len + 1);
    for (uint32_t i = 0; i < slot->len; i++)
        slot->local[i] = slot->put ? (uint8_t)fake_random(256) : 0xee;
    slot->busy = true;
    side->w->left--;
    SIM_CHECK(s, sim_peer(s, side->user, 1 - side->user, &peer) == 0);
    rc = (slot->put ? mdapl_put(peer, &side->where, (uint64_t)slot->at + slot->off, slot->local,
                                slot->len, &slot->op)
                    : mdapl_get(peer, &side->where, (uint64_t)slot->at + slot->off, slot->local,
                                slot->len, &slot->op));
    if (rc == -ENOMEM)           /* an adapter that is DOWN registers nothing */
        rc = -ESTALE;
    if (rc < 0)
        op_done(&slot->op, rc);
}

/* Starts what can be started. */
static void go(struct world *w)
{
    struct side *side = &w->side[fake_random(RANKS)];
    struct slot *slot = &side->slot[fake_random(SLOTS)];

    if (w->left > 0 && !slot->busy && fake_random(4) == 0)
        start_op(slot);
}

static bool all_done(struct sim *s)
{
    struct world *w = (struct world *)(void *)s;

    go(w);
    if (w->left > 0)
        return false;
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < SLOTS; i++)
            if (w->side[r].slot[i].busy)
                return false;
    return sim_settled(s);
}

static void expose(struct world *w)
{
    for (int r = 0; r < RANKS; r++) {
        struct side *side = &w->side[r];

        side->w = w;
        side->user = 1 - r;
        memset(side->memory, UNTOUCHED, MEMORY);
        memset(side->model, UNTOUCHED, MEMORY);
        SIM_CHECK(&w->sim, mdapl_expose(w->sim.rank[r].ctx, side->memory, MEMORY,
                                        &side->exposed) == 0);
        mdapl_exposed_where(side->exposed, &side->where);
        SIM_CHECK(&w->sim, side->where.len > 0);
        for (int i = 0; i < SLOTS; i++)
            side->slot[i] = (struct slot){ .op.done = op_done, .side = side, .at = i * SLOT };
    }
}

static void withdraw(struct world *w)
{
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < SLOTS; i++)
            check_slot(&w->side[r].slot[i]);
        mdapl_withdraw(w->side[r].exposed);
    }
}

static void start(struct world *w, uint64_t seed, const struct fake_limits *limits)
{
    memset(w, 0, sizeof(*w));
    sim_start(&w->sim, seed, RANKS, NULL, limits);
    w->sim.verbose = only_seed != 0;
}

static bool is_drained(struct sim *s)
{
    size_t left = 0;

    for (int r = 0; r < s->n; r++)
        left += mdapl_drain(s->rank[r].ctx);
    return left == 0;
}

/* -- no faults --------------------------------------------------------------------------------- */

static const char *const ways[] = {
    "ring=off",
    "ring=off wiring=ondemand rndv_segment=4096 ep_requests=4",
    "ring=off streams=3 stripe_bytes=1000 rndv_segment=4096",
    "ring=off ia=fake,fake stripe_bytes=1000",
    "ring=on ring_after=1 rndv=rput suppress=off streams=2",
};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static void put_and_get(void **state)
{
    static struct world w;
    /* a read at a time, short transfers, memory in several registrations */
    static const struct fake_limits small = { .dtos = 16, .reads = 1, .priv = 64, .rdma = 3000,
                                              .lmr = 20000 };

    (void)state;
    for (uint64_t i = 0; i < seeds(300); i++) {
        start(&w, seed_at(i), seed_at(i) % 3 == 0 ? &small : NULL);
        sim_open_all(&w.sim, ways[seed_at(i) % WAYS]);
        expose(&w);
        w.left = 40;
        sim_send(&w.sim, 0, 1, 30000, false);
        sim_until(&w.sim, all_done);
        SIM_CHECK(&w.sim, w.done == 40 && w.stale == 0);
        SIM_CHECK(&w.sim, SIM_SUM(&w.sim, rma_puts) + SIM_SUM(&w.sim, rma_gets) == 40);
        SIM_CHECK(&w.sim, SIM_SUM(&w.sim, rma_bytes) > 0 && SIM_SUM(&w.sim, tx_msgs) == 1);
        withdraw(&w);
        sim_end(&w.sim);
    }
}

/* The target makes no progress at all. */
static void without_the_target(void **state)
{
    static struct world w;

    (void)state;
    for (uint64_t i = 0; i < seeds(50); i++) {
        start(&w, seed_at(i), NULL);
        sim_open_all(&w.sim, ways[seed_at(i) % WAYS]);
        sim_send(&w.sim, 0, 1, 50, false);       /* they are connected */
        sim_run(&w.sim);
        sim_rounds(&w.sim, 3000);
        expose(&w);
        for (int k = 0; k < 20; k++) {
            struct slot *slot = &w.side[1].slot[k % SLOTS];

            start_op(slot);
            for (int rounds = 0; slot->busy; rounds++) {
                SIM_CHECK(&w.sim, rounds < 20000);
                fake_step();
                mdapl_progress(w.sim.rank[0].ctx);
            }
        }
        SIM_CHECK(&w.sim, SIM_STAT(&w.sim, 0, rma_puts) + SIM_STAT(&w.sim, 0, rma_gets) == 20);
        withdraw(&w);
        sim_end(&w.sim);
    }
}

/* What is not possible is refused, and has no effect. */
static void refusals(void **state)
{
    static const struct fake_limits no_reads = { .dtos = 64, .reads = 0, .priv = 64,
                                                 .rdma = 1 << 20 };
    static struct world w;
    struct mdapl_where none = { 0 }, bad;
    struct mdapl_op op = { 0 };
    struct mdapl_peer *peer;
    struct sim *s = &w.sim;
    uint8_t *to;

    (void)state;
    start(&w, 1, &no_reads);
    sim_open_all(s, "ring=off");
    expose(&w);
    to = w.side[0].slot[0].local;
    assert_int_equal(sim_peer(s, 0, 1, &peer), 0);
    assert_int_equal(mdapl_get(peer, &w.side[1].where, 0, to, 8, &op), -ENOTSUP);
    assert_int_equal(mdapl_put(peer, &none, 0, to, 8, &op), -EINVAL);
    bad = w.side[1].where;
    bad.len--;
    assert_int_equal(mdapl_put(peer, &bad, 0, to, 8, &op), -EINVAL);
    assert_int_equal(mdapl_put(peer, &w.side[1].where, MEMORY - 7, to, 8, &op), -EINVAL);
    assert_int_equal(mdapl_put(peer, &w.side[1].where, UINT64_MAX, to, 8, &op), -EINVAL);
    assert_int_equal(mdapl_put(peer, &w.side[1].where, 0, to, 0, &op), -EINVAL);
    withdraw(&w);
    sim_end(s);

    start(&w, 1, NULL);
    sim_open_all(s, "ring=off rndv=copy");
    assert_int_equal(mdapl_expose(s->rank[0].ctx, w.side[0].memory, MEMORY, &w.side[0].exposed),
                     -ENOTSUP);
    sim_end(s);
}

/* -- every request, every kind of fault -------------------------------------------------------- */

enum { OPS = 12 };

static const char *const scenarios[] = {
    "ring=off",
    "ring=off rndv_segment=4096 ep_requests=4 suppress=off",
    "ring=off streams=2 stripe_bytes=1000 rndv_segment=4096",
    "ring=off ia=fake,fake stripe_bytes=1000",
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(scenarios[0]) };

static uint64_t restarts, runs;

static unsigned run(uint64_t seed, int scenario, const struct fake_fault *plan, int n)
{
    static struct world w;
    struct fake_fault later[MOST_FAULTS];
    unsigned requests, first;
    struct sim *s = &w.sim;

    start(&w, seed, NULL);
    fake_delay_writes(true);
    fake_land_at_flush(true);
    fake_delay_reads(true);
    sim_open_all(s, scenarios[scenario]);
    expose(&w);
    first = begin_plan(plan, n, later);
    s->lazy = 1 << fake_random(4);
    w.left = OPS;
    sim_send(s, 0, 1, 50, false);
    sim_until(s, all_done);
    sim_rounds(s, 1500);
    sim_until(s, is_drained);
    SIM_CHECK(s, s->rank[0].faults == 0 && s->rank[1].faults == 0);
    SIM_CHECK(s, SIM_SUM(s, bad_frames) == 0 && w.stale == 0);
    SIM_CHECK(s, SIM_SUM(s, rma_puts) + SIM_SUM(s, rma_gets) == OPS);
    restarts += SIM_SUM(s, rma_restarts);
    runs++;
    withdraw(&w);
    requests = fake_executed() - first;
    sim_close(s);
    return requests;
}

static void at_every_request(void **state)
{
    unsigned hit = run_at_every_request(run, SCENARIOS);

    (void)state;
    assert_true(shown(hit, 500) && shown(restarts, 100));
}

static void pairs(void **state)
{
    (void)state;
    run_with_several(run, SCENARIOS, 79, 40);
}

/* -- adapters ---------------------------------------------------------------------------------- */

/* An adapter fails and is opened again: what names its old keys ends with -ESTALE, or takes the
 * other rail, and the new description is good. */
static void adapter_opened_again(void **state)
{
    static const char *const knobs[] = {
        "ring=off", "ring=off rndv_segment=4096", "ring=off ia=fake,fake stripe_bytes=1000",
    };
    static struct world w;
    int stale = 0;
    uint64_t reopens = 0, ops = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(300); i++) {
        start(&w, seed_at(i), NULL);
        fake_land_at_flush(true);
        fake_delay_reads(true);
        sim_open_all(&w.sim, knobs[seed_at(i) % 3]);
        expose(&w);
        w.left = 40;
        w.sim.lazy = 1 << fake_random(4);
        fake_end_ia_later(1 + (unsigned)fake_random(300), (int)fake_random(RANKS), false);
        sim_until(&w.sim, all_done);
        SIM_CHECK(&w.sim, w.sim.rank[0].faults + w.sim.rank[1].faults == 0);
        sim_rounds(&w.sim, 1500);
        sim_until(&w.sim, is_drained);
        stale += w.stale;
        ops += SIM_SUM(&w.sim, rma_puts) + SIM_SUM(&w.sim, rma_gets);
        reopens += SIM_SUM(&w.sim, ia_reopens);
        withdraw(&w);
        sim_close(&w.sim);
    }
    assert_true(shown(reopens, 100) && shown((uint64_t)stale, 50) && shown(ops, 5000));
}

/* An adapter of two fails and does not open again: what has failed on it ends nonetheless, over the
 * other one, and no old byte lands on a newer one. */
static void stream_that_does_not_return(void **state)
{
    static struct world w;
    uint64_t again = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(300); i++) {
        start(&w, seed_at(i), NULL);
        fake_delay_writes(true);
        fake_land_at_flush(true);
        fake_delay_reads(true);
        sim_open_all(&w.sim, "ring=off ia=fake,fake stripe_bytes=1000 rndv_segment=4096");
        expose(&w);
        w.left = 60;
        w.sim.lazy = 1 << fake_random(4);
        fake_refuse_ias(true);
        fake_end_ia_later(1 + (unsigned)fake_random(300), (int)fake_random(4), false);
        sim_until(&w.sim, all_done);
        SIM_CHECK(&w.sim, w.sim.rank[0].faults + w.sim.rank[1].faults == 0 && w.done == 60);
        SIM_CHECK(&w.sim, SIM_SUM(&w.sim, ia_reopens) == 0 && SIM_SUM(&w.sim, bad_frames) == 0);
        again += SIM_SUM(&w.sim, rma_restarts);
        withdraw(&w);
        sim_close(&w.sim);
    }
    assert_true(shown(again, 50));
}

/* A peer that is lost: each operation ends once. */
static void lost_peer(void **state)
{
    static struct world w;
    int failed = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(100); i++) {
        struct mdapl_peer *peer;

        start(&w, seed_at(i), NULL);
        w.sim.may_fail = true;
        fake_land_at_flush(true);
        sim_open_all(&w.sim, ways[seed_at(i) % WAYS]);
        expose(&w);
        w.left = 20;
        for (int k = 0; k < 60; k++) {
            go(&w);
            sim_rounds(&w.sim, (int)fake_random(3));
        }
        w.left = 0;
        SIM_CHECK(&w.sim, sim_peer(&w.sim, 0, 1, &peer) == 0);
        mdapl_peer_lost(peer);
        sim_until(&w.sim, all_done);
        failed += w.failed;
        sim_close(&w.sim);
    }
    assert_true(shown((uint64_t)failed, 100));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_and_get),
        cmocka_unit_test(without_the_target),
        cmocka_unit_test(refusals),
        cmocka_unit_test(at_every_request),
        cmocka_unit_test(pairs),
        cmocka_unit_test(adapter_opened_again),
        cmocka_unit_test(stream_that_does_not_return),
        cmocka_unit_test(lost_peer),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
