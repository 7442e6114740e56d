/* SPDX-License-Identifier: MIT */
/* The ledger of a rendezvous, against a table of bytes: seeded random ranges. */
#include "unit.h"

#include "ledger.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 400, SEEDS = 400, STEPS = 120 };

static uint64_t rng;

static uint32_t draw(uint32_t n)
{
    rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(rng >> 33) % n;
}

/* Bytes of [off, off + len) whose mark is `mark`; the first of them at *first. */
static uint32_t marked(const bool *byte, uint32_t off, uint32_t len, bool mark, uint32_t *first)
{
    uint32_t n = 0;

    for (uint32_t i = off; i < off + len; i++)
        if (byte[i] == mark && n++ == 0 && first)
            *first = i;
    return n;
}

static void check(const struct mdapl_dapl_ledger *l, const bool *byte)
{
    uint32_t off = draw(BYTES), len = draw(BYTES - off + 1), first = 0, run = 0;
    uint32_t missing = marked(byte, off, len, false, &first);
    struct mdapl_dapl_range hole = mdapl_dapl_ledger_missing(l, off, len);

    assert_int_equal(l->done, marked(byte, 0, BYTES, true, NULL));
    assert_int_equal(mdapl_dapl_ledger_has(l, off, len), missing == 0);
    while (missing > 0 && first + run < off + len && !byte[first + run])
        run++;
    assert_int_equal(hole.len, run);
    if (run > 0)
        assert_int_equal(hole.off, first);
}

/* Removes bytes that may be done or not. */
static void remove_some(struct mdapl_dapl_ledger *l, uint64_t base, bool *byte, uint32_t longest)
{
    uint32_t off = draw(BYTES), len = draw(longest + 1);
    uint64_t before = l->done;

    if (len > BYTES - off)
        len = BYTES - off;
    assert_int_equal(mdapl_dapl_ledger_remove(l, base + off, len), 0);
    assert_int_equal(before - l->done, marked(byte, off, len, true, NULL));
    memset(byte + off, false, len);
}

/* Ranges of any size and place, many of them twice; all bytes far from zero as well. */
static void random_ranges(void **state)
{
    static const uint64_t bases[] = { 0, UINT64_MAX - BYTES };
    uint32_t most = 0;

    (void)state;
    for (rng = 1; rng <= SEEDS; ) {
        uint64_t seed = rng, base = bases[seed % 2];
        struct mdapl_dapl_ledger l;
        bool byte[BYTES] = { false };
        uint32_t longest = 1 + draw(seed % 3 ? 6 : 100);

        mdapl_dapl_ledger_init(&l);
        for (int k = 0; k < STEPS; k++) {
            uint32_t off = draw(BYTES), len = draw(longest + 1);

            if (len > BYTES - off)
                len = BYTES - off;
            assert_int_equal(mdapl_dapl_ledger_add(&l, base + off, len),
                             marked(byte, off, len, false, NULL));
            memset(byte + off, true, len);
            assert_int_equal(mdapl_dapl_ledger_add(&l, base + off, len), 0);
            most = l.n > most ? l.n : most;
            if (k % 3 == 0)
                remove_some(&l, base, byte, longest);
            if (base == 0)
                check(&l, byte);
        }
        /* Adding the missing ranges one by one completes it: a restart does this. */
        while (!mdapl_dapl_ledger_has(&l, base, BYTES)) {
            struct mdapl_dapl_range hole = mdapl_dapl_ledger_missing(&l, base, BYTES);

            assert_int_equal(mdapl_dapl_ledger_add(&l, hole.off, hole.len), hole.len);
        }
        assert_int_equal(l.done, BYTES);
        assert_int_equal(l.n, 1);
        mdapl_dapl_ledger_free(&l);
        rng = seed + 1;
    }
    assert_true(most > 4 * MDAPL_DAPL_LEDGER_OWN);   /* it has grown */
}

/* The ends of ranges, all of one, the middle of one, and what lies between two. */
static void removed(void **state)
{
    struct mdapl_dapl_ledger l;

    (void)state;
    mdapl_dapl_ledger_init(&l);
    mdapl_dapl_ledger_add(&l, 100, 300);
    assert_int_equal(mdapl_dapl_ledger_remove(&l, 0, 100), 0);
    assert_int_equal(mdapl_dapl_ledger_remove(&l, 400, 100), 0);
    assert_int_equal(mdapl_dapl_ledger_remove(&l, 200, 0), 0);
    assert_true(l.n == 1 && l.done == 300);
    assert_int_equal(mdapl_dapl_ledger_remove(&l, 350, 50), 0);
    assert_int_equal(mdapl_dapl_ledger_remove(&l, 100, 50), 0);
    assert_true(l.n == 1 && l.done == 200 && mdapl_dapl_ledger_has(&l, 150, 200));
    assert_int_equal(mdapl_dapl_ledger_remove(&l, 200, 100), 0);
    assert_true(l.n == 2 && l.done == 100);
    assert_true(mdapl_dapl_ledger_has(&l, 150, 50) && mdapl_dapl_ledger_has(&l, 300, 50));
    assert_int_equal(mdapl_dapl_ledger_remove(&l, 0, 1000), 0);
    assert_true(l.n == 0 && l.done == 0);
    mdapl_dapl_ledger_free(&l);
}

/* In order, and the other way round: one range, no memory. */
static void one_range(void **state)
{
    struct mdapl_dapl_ledger l;

    (void)state;
    mdapl_dapl_ledger_init(&l);
    assert_true(mdapl_dapl_ledger_has(&l, 5, 0));
    assert_false(mdapl_dapl_ledger_has(&l, 5, 1));
    for (uint64_t off = 0; off < 100; off += 10)
        assert_int_equal(mdapl_dapl_ledger_add(&l, 100 + off, 10), 10);
    for (uint64_t off = 100; off > 0; off -= 10)
        assert_int_equal(mdapl_dapl_ledger_add(&l, off - 10, 10), 10);
    assert_true(l.n == 1 && !l.more && l.done == 200);
    assert_int_equal(mdapl_dapl_ledger_add(&l, 150, 100), 50);
    assert_int_equal(mdapl_dapl_ledger_add(&l, 0, 0), 0);
    assert_true(mdapl_dapl_ledger_has(&l, 0, 250));
    mdapl_dapl_ledger_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_ranges),
        cmocka_unit_test(removed),
        cmocka_unit_test(one_range),
    };

    return RUN(tests);
}
