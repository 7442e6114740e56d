/* SPDX-License-Identifier: MIT */
/* How often rounds of progress read the clock, which is a system call on some hosts. */
#include "unit.h"

#include "ctx.h"

enum { ROUNDS = 10000 };

/* A clock that counts its readings. */
struct counted {
    uint64_t now;
    unsigned readings;
};

static uint64_t counted_now(void *arg)
{
    struct counted *c = arg;

    c->readings++;
    return c->now;
}

/* A context without channels. */
static void start(struct mdapl_ctx *ctx, struct counted *c)
{
    *c = (struct counted){ .now = MDAPL_SEC(1) };
    *ctx = (struct mdapl_ctx){ .until_clock = 1, .stride = 1, .clock = { counted_now, c } };
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

/* Rounds of this length read the clock so often at most, and at least every 100 us. */
static void pace(uint64_t ns, unsigned most)
{
    struct mdapl_ctx ctx;
    struct counted c;
    unsigned n;

    start(&ctx, &c);
    readings(&ctx, &c, 100, ns);
    n = readings(&ctx, &c, ROUNDS, ns);
    assert_true(n <= most);
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
    start(&ctx, &c);
    readings(&ctx, &c, ROUNDS, 30);
    readings(&ctx, &c, 16, MDAPL_MS(1));
    assert_int_equal(readings(&ctx, &c, 100, MDAPL_MS(1)), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_rounds),
        cmocka_unit_test(slow_rounds),
        cmocka_unit_test(rare_rounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
