/* SPDX-License-Identifier: MIT */
/*
 * Unit test of the providers' lock (src/datline/datlock.c): exclusion between its owner and other
 * threads, and who becomes the owner.
 */
#include "datlock.h"
#include "unit.h"

#include <string.h>

enum { MANY = 1000, TURNS = 20000, OTHERS = 3 };

struct guarded {
    struct datlock lock;
    long number;                 /* of the times that the lock was held; protected by it */
    bool held;                   /* the lock is held; protected by it */
};

static int set_up(void **state)
{
    static struct guarded g;

    memset(&g, 0, sizeof(g));
    datlock_init(&g.lock);
    if (!g.lock.may_bias)
        SKIP_TEST("the kernel has no membarrier()");
    *state = &g;
    return 0;
}

static int tear_down(void **state)
{
    struct guarded *g = *state;

    datlock_destroy(&g->lock);
    return 0;
}

/* Holds the lock once. */
static void hold(struct guarded *g)
{
    assert_false(g->held);
    g->held = true;
    g->number++;
    g->held = false;
    datlock_release(&g->lock);
}

static void take_many(struct guarded *g, int n)
{
    for (int i = 0; i < n; i++) {
        datlock_take(&g->lock);
        hold(g);
    }
}

static void run(void *(*f)(void *), struct guarded *g)
{
    pthread_t t;

    assert_int_equal(pthread_create(&t, NULL, f, g), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
}

static void *take_once(void *arg)
{
    take_many(arg, 1);
    return NULL;
}

static void *try_once(void *arg)
{
    struct guarded *g = arg;

    if (datlock_try(&g->lock))
        hold(g);
    return NULL;
}

static void *never_owner(void *arg)
{
    struct guarded *g = arg;

    g->lock.never = datlock_self();
    take_many(g, MANY);
    return NULL;
}

static void the_thread_that_calls_owns_it(void **state)
{
    struct guarded *g = *state;

    take_many(g, MANY);
    assert_int_equal(g->lock.owner, datlock_self());
    run(take_once, g);
    assert_int_equal(g->lock.owner, 0);
    take_many(g, MANY);
    assert_int_equal(g->lock.owner, datlock_self());
    assert_int_equal(g->number, 2 * MANY + 1);
}

static void the_helper_never_owns_it(void **state)
{
    struct guarded *g = *state;

    run(never_owner, g);
    assert_int_equal(g->lock.owner, 0);
    assert_int_equal(g->number, MANY);
}

static void a_try_does_not_wait_for_the_owner(void **state)
{
    struct guarded *g = *state;

    take_many(g, MANY);
    datlock_take(&g->lock);
    run(try_once, g);
    assert_int_equal(g->number, MANY);
    datlock_release(&g->lock);
    run(try_once, g);
    assert_int_equal(g->number, MANY + 1);
}

static void *take_many_times(void *arg)
{
    take_many(arg, MANY);
    return NULL;
}

/* An owner that is suspended where it has read that it is the owner stores `inside` later, when the
 * bias is revoked: no other thread may be the owner by then, until this one has noticed. */
static void an_owner_that_is_late(void **state)
{
    struct guarded *g = *state;

    take_many(g, MANY);
    assert_true(datlock_owned(&g->lock));
    run(take_many_times, g);
    assert_int_equal(g->lock.owner, 0);
    assert_false(datlock_begin(&g->lock));
    datlock_leave(&g->lock);
    take_many(g, 1);
    run(take_many_times, g);
    assert_int_not_equal(g->lock.owner, 0);
    assert_false(datlock_owned(&g->lock));
}

/* Takes it in rows long enough to become the owner in between. */
static void *take_in_rows(void *arg)
{
    struct guarded *g = arg;

    for (int done = 0; done < TURNS; done += 100) {
        take_many(g, 100);
        sched_yield();
    }
    return NULL;
}

static void owners_exclude_each_other(void **state)
{
    struct guarded *g = *state;
    pthread_t t[OTHERS];

    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, take_in_rows, g), 0);
    take_in_rows(g);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    assert_int_equal(g->number, (OTHERS + 1) * TURNS);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_thread_that_calls_owns_it),
        CASE(the_helper_never_owns_it),
        CASE(a_try_does_not_wait_for_the_owner),
        CASE(an_owner_that_is_late), CASE(owners_exclude_each_other),
    };

    return RUN(tests);
}
