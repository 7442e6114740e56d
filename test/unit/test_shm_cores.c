/* SPDX-License-Identifier: MIT */
/*
 * A rank that is woken on the core of the rank that wakes it goes to another one. test/knobs has
 * two jobs that share their cores.
 */
#include "shm_ranks.h"

#include "os.h"

enum { SLEEPS = 100 };           /* the system may move this process between any two steps */

static int core;

static void wake(struct rank *me)
{
    mdapl_wake(me->ctx);
}

static void wake_from(struct rank *me, int waker_core)
{
    core = mdapl_shm_os_core();
    atomic_store(&me->s->seg.head->waker_core, waker_core);
    wake(me);
}

static void wake_from_same_core(struct rank *me)
{
    wake_from(me, mdapl_shm_os_core());
}

static void wake_from_other_core(struct rank *me)
{
    wake_from(me, mdapl_shm_os_core() + 1);
}

/* In how many of SLEEPS sleeps, each ended by this function, the core changed. */
static int changes(struct rank *me, void (*end)(struct rank *me))
{
    int n = 0;

    core = mdapl_shm_os_core();
    ranks_asleep = end;
    for (int i = 0; i < SLEEPS; i++) {
        mdapl_wait(me->ctx, MDAPL_SEC(3600));
        n += mdapl_shm_os_core() != core;
        core = mdapl_shm_os_core();
    }
    ranks_asleep = NULL;
    return n;
}

static void skip_without_cores(void)
{
    int here = mdapl_shm_os_core();

    if (here < 0)
        SKIP_TEST("this build has no calls for cores");
    if (!mdapl_shm_os_core_leave(here, here))
        SKIP_TEST("two cores are needed");
}

static void the_set_stays(void **state)
{
    int here = mdapl_shm_os_core(), other, back = 0;

    (void)state;
    skip_without_cores();
    for (int i = 0; i < SLEEPS; i++) {
        here = mdapl_shm_os_core();
        assert_true(mdapl_shm_os_core_leave(here, here));
        other = mdapl_shm_os_core();
        assert_true(mdapl_shm_os_core_leave(other, here));
        back += mdapl_shm_os_core() == here && other != here;
    }
    assert_true(back > SLEEPS / 2);
}

static void leaves_the_core_of_its_waker(void **state)
{
    struct rank *b = &((struct pair *)*state)->rank[1];

    skip_without_cores();
    assert_true(changes(b, wake_from_same_core) > SLEEPS / 2);
    assert_true(stats(b)->shm_core_moves > SLEEPS / 2);
}

static void stays_elsewhere(void **state)
{
    struct rank *b = &((struct pair *)*state)->rank[1];

    changes(b, wake_from_other_core);
    assert_true(stats(b)->shm_core_moves < SLEEPS / 2);
}

static void stays_when_no_rank_woke_it(void **state)
{
    struct rank *b = &((struct pair *)*state)->rank[1];

    changes(b, wake_from_same_core);
    mdapl_ctx_stats(b->ctx)->shm_core_moves = 0;
    changes(b, wake);
    assert_int_equal(stats(b)->shm_core_moves, 0);
}

/* Ranks that share cores do not spin, and need none of their own. */
static void stays_where_cores_are_shared(void **state)
{
    struct rank *b = &((struct pair *)*state)->rank[1];
    struct mdapl_err err;

    assert_int_equal(mdapl_ctx_tune(b->ctx, "spin_polls", "0", &err), 0);
    changes(b, wake_from_same_core);
    assert_int_equal(stats(b)->shm_core_moves, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_set_stays),
        TEST(leaves_the_core_of_its_waker),
        TEST(stays_elsewhere),
        TEST(stays_when_no_rank_woke_it),
        TEST(stays_where_cores_are_shared),
    };

    return RUN(tests);
}
