/* SPDX-License-Identifier: MIT */
/*
 * How bytes are stored into shared memory (src/shm/store.c) on machines that are given as costs, in
 * virtual time: which stores it settles on, and what its trials cost.
 */
#include "unit.h"

#include "store.h"

#include <string.h>

enum { LEN = 16384, LEAD = 64, MANY = 20000, LAST_GAP = 4096 };

/* ns of a copy of LEN bytes at the writer, by cached and by non-temporal stores. */
struct machine {
    const char *name;
    uint64_t ns[MDAPL_SHM_STORE_WAYS];
    enum mdapl_shm_store_by best;
};

/* Four are of measurements: Epycs, whose virtual cores are threads of one core, share a cache, or
 * are far apart. */
static const struct machine machines[] = {
    { "near cores", { 1000, 1300 }, MDAPL_SHM_STORE_CACHED },
    { "far cores", { 4000, 1300 }, MDAPL_SHM_STORE_STREAM },
    { "no difference", { 1000, 1000 }, MDAPL_SHM_STORE_CACHED },
    { "a gain for the writer that the reader may lose", { 1000, 700 }, MDAPL_SHM_STORE_CACHED },
    { "a clock that stands still", { 0, 0 }, MDAPL_SHM_STORE_CACHED },
    { "near cores, whose lines non-temporal stores have sent to memory", { 1250, 430 },
      MDAPL_SHM_STORE_CACHED },
    { "an hour", { 3600000000000u, 3600000000000u }, MDAPL_SHM_STORE_CACHED },
};
enum { MACHINES = sizeof(machines) / sizeof(machines[0]) };

static struct mdapl_shm_stores stores;
static uint32_t random_bits;
static bool quiet;               /* no copy is disturbed */

/* One of 4 copies takes up to 20 times as long: another process had the core. */
static uint64_t disturbed(uint64_t ns)
{
    random_bits = random_bits * 1664525u + 1013904223u;
    return !quiet && (random_bits >> 30) == 0 ? ns * (1 + (random_bits >> 16 & 0xff) % 20) : ns;
}

static int measured;             /* copies of trials */

/* n copies. Returns how many were not made in the best way. */
static int copies(const struct machine *m, int n)
{
    struct mdapl_shm_stored *k = mdapl_shm_store_class(&stores, LEN);
    int other = 0;

    while (n-- > 0) {
        bool trial;
        enum mdapl_shm_store_by by = mdapl_shm_store_next(k, &trial);

        other += by != m->best;
        measured += trial;
        if (trial)
            mdapl_shm_store_sample(k, by, LEN, disturbed(m->ns[by]));
    }
    return other;
}

/* -- tests ------------------------------------------------------------------------------------ */

static void classes_are_powers_of_two(void **state)
{
    const struct {
        size_t len;
        int c;
    } of[] = { { 2048, 0 }, { 4095, 0 }, { 4096, 1 }, { 8192, 2 }, { 32767, 3 }, { 32768, 4 },
               { SIZE_MAX, MDAPL_SHM_STORE_CLASSES - 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        assert_ptr_equal(mdapl_shm_store_class(&stores, of[i].len), &stores.c[of[i].c]);
}

/* After the first trial, and trials cost little. A trial in which each sample of a way was
 * disturbed may be wrong, and the next one corrects it. */
static void finds_the_best_stores(void **state)
{
    (void)state;
    for (int m = 0; m < MACHINES; m++)
        for (random_bits = 1; random_bits < 20; random_bits++) {
            uint32_t seed = random_bits;
            int other;

            mdapl_shm_stores_init(&stores);
            copies(&machines[m], LEAD);
            other = copies(&machines[m], MANY);
            if (other * 20 > MANY)
                fail_msg("%s, seed %u: %d copies of %d another way", machines[m].name, seed, other,
                         MANY);
            random_bits = seed;
        }
}

/* Cores that move are noticed within some thousand copies. */
static void a_change_is_noticed(void **state)
{
    (void)state;
    for (int from = 0; from < MACHINES; from++)
        for (int to = 0; to < MACHINES; to++) {
            int other;

            random_bits = 7;
            mdapl_shm_stores_init(&stores);
            copies(&machines[from], MANY);
            copies(&machines[to], LAST_GAP + 600);
            other = copies(&machines[to], MANY);
            if (other * 20 > MANY)
                fail_msg("%s, then %s: %d copies of %d another way", machines[from].name,
                         machines[to].name, other, MANY);
        }
}

/* Trials that change nothing become rare. */
static void trials_become_rare(void **state)
{
    (void)state;
    mdapl_shm_stores_init(&stores);
    measured = 0;
    quiet = true;
    copies(&machines[0], MANY);
    quiet = false;
    assert_in_range(measured, 4 * 6, 8 * 6);
}

/* Costs between the two bounds change nothing: the way in use stays. */
static void the_way_in_use_stays(void **state)
{
    static const struct machine between = { "between", { 4000, 2300 }, MDAPL_SHM_STORE_STREAM };

    (void)state;
    mdapl_shm_stores_init(&stores);
    quiet = true;
    copies(&machines[1], LEAD);
    assert_true(copies(&between, MANY) * 20 < MANY);
    quiet = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_powers_of_two),
        cmocka_unit_test(finds_the_best_stores),
        cmocka_unit_test(a_change_is_noticed),
        cmocka_unit_test(trials_become_rare),
        cmocka_unit_test(the_way_in_use_stays),
    };

    return RUN(tests);
}
