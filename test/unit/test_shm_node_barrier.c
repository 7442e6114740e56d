/* SPDX-License-Identifier: MIT */
/* A barrier of all ranks of a node, by counters: when it is passed, what comes out of it, and who
 * wakes whom. */
#include "shm_ranks.h"

#include <errno.h>

static void wire_all(struct pair *p)
{
    for (int i = 0; i < p->n; i++)
        assert_int_equal(mdapl_wire(p->rank[i].ctx), MDAPL_DONE);
}

static int enter(struct pair *p, int rank)
{
    return mdapl_barrier_enter(p->rank[rank].ctx, NULL);
}

static bool passed(struct pair *p, int rank)
{
    return mdapl_barrier_passed(p->rank[rank].ctx);
}

/* In each barrier another rank is the last one: at its leaf, at the last leaf, or of all. */
static void the_last_one_releases(void **state)
{
    struct pair *p = *state;

    wire_all(p);
    for (int last = 0; last < p->n; last++) {
        for (int i = 1; i < p->n; i++)
            assert_int_equal(enter(p, (last + i) % p->n), 0);
        for (int i = 1; i < p->n; i++)
            assert_false(passed(p, (last + i) % p->n));
        assert_int_equal(enter(p, last), MDAPL_DONE);
        for (int i = 0; i < p->n; i++)
            assert_true(passed(p, i));
    }
    assert_int_equal(stats(&p->rank[0])->node_barriers, p->n);
    assert_int_equal(stats(&p->rank[0])->tx_msgs, 0);
}

/* Puts a text before another one: a result shows which values it has, and in which order. */
enum { TEXT = 64 };

static void prepend(const void *arg, const void *in, void *inout)
{
    char both[2 * TEXT];

    assert_int_equal((uintptr_t)in % alignof(max_align_t), 0);
    assert_int_equal((uintptr_t)inout % alignof(max_align_t), 0);
    snprintf(both, sizeof(both), "%s%s", (const char *)in, (const char *)inout);
    memcpy(inout, both, TEXT);
    ++*(int *)(uintptr_t)arg;
}

static int bring(struct pair *p, int rank, const char *text, size_t len, int *calls)
{
    struct mdapl_reduce r = { .own = text, .len = len, .combine = prepend, .arg = calls };

    return mdapl_barrier_enter(p->rank[rank].ctx, &r);
}

static const char *result(struct pair *p, int rank)
{
    return mdapl_barrier_result(p->rank[rank].ctx);
}

/* Whoever is the last one, the values are combined in the order of the ranks, each once; and in
 * each barrier other ones. */
static void values_come_out_in_order(void **state)
{
    struct pair *p = *state;

    wire_all(p);
    for (int last = 0; last < p->n; last++) {
        char text[MANY][TEXT] = { 0 }, all[TEXT] = { 0 };
        int calls = 0;

        for (int i = 0; i < p->n; i++)
            all[i] = text[i][0] = (char)('0' + (last + i) % 64);
        for (int i = 1; i < p->n; i++)
            assert_int_equal(bring(p, (last + i) % p->n, text[(last + i) % p->n], TEXT, &calls), 0);
        assert_int_equal(bring(p, last, text[last], TEXT, &calls), MDAPL_DONE);
        assert_int_equal(calls, p->n - 1);
        for (int i = 0; i < p->n; i++) {
            assert_true(passed(p, i));
            assert_string_equal(result(p, i), all);
        }
    }
    assert_int_equal(stats(&p->rank[0])->node_reduces, p->n);
    assert_int_equal(stats(&p->rank[0])->tx_msgs, 0);
}

/* A result stays until its rank enters the next barrier, whoever has entered that. */
static void a_result_stays(void **state)
{
    static const char text[3][TEXT] = { "a", "b", "c" };
    struct pair *p = *state;
    int calls = 0;

    wire_all(p);
    assert_int_equal(bring(p, 0, text[0], TEXT, &calls), 0);
    assert_int_equal(bring(p, 1, text[1], TEXT, &calls), MDAPL_DONE);
    assert_int_equal(bring(p, 1, text[2], TEXT, &calls), 0);
    assert_true(passed(p, 0));
    assert_string_equal(result(p, 0), "ab");
    assert_int_equal(bring(p, 0, text[0], TEXT, &calls), MDAPL_DONE);
    assert_string_equal(result(p, 0), "ac");
    assert_string_equal(result(p, 1), "ac");
}

/* One rank's value is shorter: at the first leaf, at the last one, or of the last rank that enters.
 * All ranks know, and the next result is right. */
static void different_lengths(void **state)
{
    static const char text[TEXT] = "x";
    struct pair *p = *state;
    int calls = 0;

    wire_all(p);
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < p->n; k++)
            bring(p, k, text, k == i ? TEXT / 2 : TEXT, &calls);
        for (int k = 0; k < p->n; k++)
            assert_null(result(p, k));
        for (int k = 0; k < p->n; k++)
            bring(p, k, text, TEXT, &calls);
        for (int k = 0; k < p->n; k++)
            assert_int_equal(strlen(result(p, k)), p->n);
    }
}

/* One that has passed may enter the next barrier before the others have seen that they may, too. */
static void some_are_ahead(void **state)
{
    struct pair *p = *state;

    wire_all(p);
    assert_int_equal(enter(p, 0), 0);
    assert_int_equal(enter(p, 1), MDAPL_DONE);
    assert_int_equal(enter(p, 1), 0);
    assert_true(passed(p, 0));
    assert_false(passed(p, 1));
    assert_int_equal(enter(p, 0), MDAPL_DONE);
    assert_true(passed(p, 1));
}

/* Ranks that the last one of a barrier would wake. */
static uint32_t sleepers(const struct pair *p)
{
    return atomic_load(&p->rank[0].s->seg.head->sleepers);
}

static struct pair *asleep_in;

static void last_rank_enters(struct rank *me)
{
    (void)me;
    assert_int_equal(sleepers(asleep_in), 1);
    assert_int_equal(enter(asleep_in, 1), MDAPL_DONE);
}

/* Its sleep would last an hour. */
static void a_sleeper_is_woken(void **state)
{
    struct pair *p = *state;

    wire_all(p);
    asleep_in = p;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(enter(p, 0), 0);
        ranks_asleep = last_rank_enters;
        mdapl_wait(p->rank[0].ctx, MDAPL_SEC(3600));
        ranks_asleep = NULL;
        assert_true(passed(p, 0));
        assert_int_equal(sleepers(p), 0);
    }
    assert_int_equal(stats(&p->rank[0])->shm_sleeps, 3);
    assert_int_equal(stats(&p->rank[1])->shm_wakes, 3);
}

static void nobody_to_wake(struct rank *me)
{
    (void)me;
    assert_int_equal(sleepers(asleep_in), 0);
}

/* A rank that sleeps for another reason, before a barrier or behind it, is not woken for one. */
static void others_are_not_woken(void **state)
{
    struct pair *p = *state;

    wire_all(p);
    asleep_in = p;
    ranks_asleep = nobody_to_wake;
    mdapl_wait(p->rank[0].ctx, 1);
    assert_int_equal(enter(p, 0), 0);
    assert_int_equal(enter(p, 1), MDAPL_DONE);
    mdapl_wait(p->rank[0].ctx, 1);
    ranks_asleep = NULL;
    assert_int_equal(stats(&p->rank[0])->shm_sleeps, 2);
    assert_int_equal(stats(&p->rank[1])->shm_wakes, 0);
}

/* A job that has a rank elsewhere has no such barrier, at any of its ranks. */
static bool all_but_the_last(void *owner, int rank)
{
    (void)owner;
    return rank < 2;
}

/* Ranks that have probed, and not been reached. */
static int make(void **state, int n, bool (*near)(void *, int))
{
    struct pair *p = calloc(1, sizeof(*p));

    p->now = MDAPL_SEC(1000);
    p->n = n;
    p->size = 3;
    p->near = near;
    ranks_open_all(p);
    for (int i = 0; i < p->n; i++)
        mdapl_probe(p->rank[i].ctx);
    *state = p;
    return 0;
}

static int make_two_of_three(void **state)
{
    return make(state, 2, all_but_the_last);
}

static int make_three(void **state)
{
    return make(state, 3, NULL);
}

static int make_two_that_enter(void **state)
{
    int rc;

    ranks_without_barrier = 1;
    rc = make(state, 3, NULL);
    ranks_without_barrier = -1;
    return rc;
}

static void none_with_one_elsewhere(void **state)
{
    struct pair *p = *state;

    for (int i = 0; i < p->n; i++)
        mdapl_wire(p->rank[i].ctx);
    for (int i = 0; i < p->n; i++) {
        assert_int_equal(enter(p, i), -ENOTSUP);
        assert_true(passed(p, i));
    }
}

/* ... nor one in which a rank does not reach another. */
static void none_out_of_reach(void **state)
{
    struct pair *p = *state;

    atomic_store(&p->rank[2].s->seg.head->verdict[1], -EACCES);
    for (int i = 0; i < p->n; i++)
        mdapl_wire(p->rank[i].ctx);
    for (int i = 0; i < p->n; i++)
        assert_int_equal(enter(p, i), -ENOTSUP);
}

/* ... nor one of whose ranks one does not take part, by what it was opened with. */
static void none_without_all(void **state)
{
    struct pair *p = *state;

    wire_all(p);
    for (int i = 0; i < p->n; i++)
        assert_int_equal(enter(p, i), -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_one_releases, ranks_make_many, ranks_unmake),
        cmocka_unit_test_setup_teardown(values_come_out_in_order, ranks_make_many, ranks_unmake),
        cmocka_unit_test_setup_teardown(different_lengths, ranks_make_many, ranks_unmake),
        TEST(a_result_stays), TEST(some_are_ahead), TEST(a_sleeper_is_woken),
        TEST(others_are_not_woken),
        cmocka_unit_test_setup_teardown(none_with_one_elsewhere, make_two_of_three, ranks_unmake),
        cmocka_unit_test_setup_teardown(none_out_of_reach, make_three, ranks_unmake),
        cmocka_unit_test_setup_teardown(none_without_all, make_two_that_enter, ranks_unmake),
    };

    return RUN(tests);
}
