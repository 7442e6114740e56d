/* SPDX-License-Identifier: MIT */
/* How often rounds of progress read the clock, which is a system call on some hosts. */
#include "unit.h"

#include "ctx.h"

enum { ROUNDS = 10000 };

/* A clock that counts its readings, each of which takes so long. */
struct counted {
    uint64_t now, cost;
    unsigned readings;
};

static uint64_t counted_now(void *arg)
{
    struct counted *c = arg;

    c->readings++;
    c->now += c->cost;
    return c->now;
}

/* A context without channels. */
static void start(struct mdapl_ctx *ctx, struct counted *c, uint64_t cost)
{
    *c = (struct counted){ .now = MDAPL_SEC(1), .cost = cost };
    *ctx = (struct mdapl_ctx){ .clock = { counted_now, c } };
    mdapl_rounds_init(ctx);
}

/* Readings in n rounds that last so long. */
static unsigned readings(struct mdapl_ctx *ctx, struct counted *c, int n, uint64_t ns)
{
    unsigned before = c->readings;

    for (int i = 0; i < n; i++) {
        mdapl_progress(ctx);
        c->now += ns;
    }
    return c->readings - before;
}

/* Readings that measure how long one takes, in so many rounds of this length: every eighth look has
 * one, and a look is due after 100 us, or 32 strides. */
static unsigned weighings(uint64_t rounds, uint64_t ns)
{
    return (unsigned)(rounds * ns / MDAPL_US(800) + rounds / 16 / 32 / 8 + 1);
}

/* Rounds of this length read the clock so often at most, and at least every 100 us. */
static void pace(uint64_t ns, unsigned most)
{
    struct mdapl_ctx ctx;
    struct counted c;
    unsigned n;

    start(&ctx, &c, 0);
    readings(&ctx, &c, 100, ns);
    n = readings(&ctx, &c, ROUNDS, ns);
    assert_true(n <= most + weighings(ROUNDS, ns));
    assert_true(n >= ROUNDS / 16 && n * MDAPL_US(100) >= ROUNDS * ns - MDAPL_US(200));
}

static void fast_rounds(void **state)
{
    (void)state;
    pace(30, ROUNDS / 16 + 1);
    pace(MDAPL_US(6), ROUNDS / 16 + 1);
}

/* As where a poll is a system call of a slow host. */
static void slow_rounds(void **state)
{
    (void)state;
    pace(MDAPL_US(10), ROUNDS / 10 + 1);
    pace(MDAPL_US(30), ROUNDS / 3 + 1);
}

/* A program that computes for 1 ms between its calls: each of them reads the clock, after the first
 * ones. */
static void rare_rounds(void **state)
{
    struct mdapl_ctx ctx;
    struct counted c;

    (void)state;
    start(&ctx, &c, 0);
    readings(&ctx, &c, ROUNDS, 30);
    readings(&ctx, &c, 16, MDAPL_MS(1));
    assert_int_equal(readings(&ctx, &c, 80, MDAPL_MS(1)), 80 + 80 / 8);
}

/* Where a reading takes as long as a round it is made nearly as rarely as in fast ones ... */
static void dear_clock(void **state)
{
    struct mdapl_ctx ctx;
    struct counted c;

    (void)state;
    start(&ctx, &c, MDAPL_US(70));
    readings(&ctx, &c, 1000, MDAPL_US(50));
    assert_true(readings(&ctx, &c, ROUNDS, MDAPL_US(50)) <= ROUNDS / 14);
}

/* ... and where it takes a third of a round, as in virtual machines whose system calls are slow, it
 * takes little of the time; a program that computes between its calls has it soon. */
static void clock_of_slow_calls(void **state)
{
    struct mdapl_ctx ctx;
    struct counted c;

    (void)state;
    start(&ctx, &c, MDAPL_US(8));
    readings(&ctx, &c, 1000, MDAPL_US(25));
    assert_true(readings(&ctx, &c, ROUNDS, MDAPL_US(25)) <= ROUNDS / 55);
    readings(&ctx, &c, 64, MDAPL_MS(1));
    assert_in_range(readings(&ctx, &c, 80, MDAPL_MS(1)), 40, 80 + 80 / 8);
    /* as soon as ever where it does not */
    c.cost = 0;
    readings(&ctx, &c, ROUNDS, MDAPL_US(25));
    readings(&ctx, &c, 16, MDAPL_MS(1));
    assert_int_equal(readings(&ctx, &c, 80, MDAPL_MS(1)), 80 + 80 / 8);
}

/* ... but a program that calls every 3 ms reads it each time. One long reading counts little. */
static void dearest_clock(void **state)
{
    struct mdapl_ctx ctx;
    struct counted c;

    (void)state;
    start(&ctx, &c, MDAPL_MS(1));
    readings(&ctx, &c, 1000, MDAPL_MS(3));
    assert_int_equal(readings(&ctx, &c, 80, MDAPL_MS(3)), 80 + 80 / 8);
    c.cost = 0;
    readings(&ctx, &c, 1000, MDAPL_MS(3));
    assert_int_equal(ctx.look_ns, MDAPL_US(100));
    c.cost = MDAPL_MS(20);
    readings(&ctx, &c, 1, MDAPL_MS(3));
    c.cost = 0;
    readings(&ctx, &c, 7, MDAPL_MS(3));
    assert_true(ctx.look_ns <= MDAPL_US(500));
}

/* Of 16 processes on a core each makes a round when the others have had theirs: it reads the clock
 * as rarely as one that has a core of its own, and never later than every 2 ms. */
static void shared_core(void **state)
{
    struct mdapl_ctx ctx;
    struct counted c;

    (void)state;
    start(&ctx, &c, 0);
    mdapl_ctx_share_core(&ctx, 16);
    readings(&ctx, &c, 100, MDAPL_US(50));
    assert_true(readings(&ctx, &c, ROUNDS, MDAPL_US(50))
                <= ROUNDS / 16 + weighings(ROUNDS, MDAPL_US(50)));
    assert_int_equal(ctx.look_ns, MDAPL_US(1600));
    readings(&ctx, &c, 16, MDAPL_MS(3));
    assert_int_equal(readings(&ctx, &c, 80, MDAPL_MS(3)), 80 + 80 / 8);
    mdapl_ctx_share_core(&ctx, 100);
    assert_int_equal(ctx.look_ns, MDAPL_MS(2));
}

/* A channel without connections, whose next look finds so much. */
struct fake {
    unsigned polls;
    int found;
};

static int fake_progress(void *state)
{
    struct fake *f = state;

    f->polls++;
    return 0;
}

static int fake_look(void *state, uint64_t now)
{
    struct fake *f = state;
    int found = f->found;

    (void)now;
    f->found = 0;
    return found;
}

static bool unconnected(void *state)
{
    (void)state;
    return false;
}

static void fake_close(void *state)
{
    (void)state;
}

static int open_first(struct mdapl_ctx *ctx, void **state_p)
{
    *state_p = (struct fake *)ctx->owner;
    return 0;
}

static int open_second(struct mdapl_ctx *ctx, void **state_p)
{
    *state_p = (struct fake *)ctx->owner + 1;
    return 0;
}

#define FAKE(open_)                                                                     \
    { .name = #open_, .open = open_, .progress = fake_progress, .look = fake_look,      \
      .has_connections = unconnected, .close = fake_close }

/* A job whose ranks are all on one node polls its adapter when it looks, and not in each round,
 * from the first one on: until something comes from there. */
static void second_channel(void **state)
{
    static const struct mdapl_channel first = FAKE(open_first), second = FAKE(open_second);
    static const struct mdapl_channel *const channels[] = { &first, &second, NULL };
    struct fake fake[2] = { { 0, 0 }, { 0, 0 } };
    struct mdapl_ctx_args args = { .channels = channels, .owner = fake, .job.size = 1 };
    struct mdapl_cfg cfg;
    struct mdapl_ctx *ctx;
    struct mdapl_err err;
    struct counted c;

    (void)state;
    mdapl_cfg_init(&cfg);
    args.cfg = &cfg;
    args.clock = (struct mdapl_clock){ counted_now, &c };
    c = (struct counted){ .now = MDAPL_SEC(1) };
    assert_int_equal(mdapl_ctx_open(&args, &ctx, &err), 0);
    readings(ctx, &c, 200, MDAPL_US(1));
    assert_in_range(fake[0].polls, 150, 200);
    assert_int_equal(fake[1].polls, 0);
    fake[1].found = 1;
    readings(ctx, &c, 200, MDAPL_US(1));
    assert_in_range(fake[1].polls, 50, 200);
    mdapl_ctx_close(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_rounds),
        cmocka_unit_test(slow_rounds),
        cmocka_unit_test(rare_rounds),
        cmocka_unit_test(dear_clock),
        cmocka_unit_test(clock_of_slow_calls),
        cmocka_unit_test(dearest_clock),
        cmocka_unit_test(shared_core),
        cmocka_unit_test(second_channel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
