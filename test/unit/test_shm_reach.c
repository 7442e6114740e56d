/* SPDX-License-Identifier: MIT */
/*
 * Which ranks are reached through shared memory, where that is not the same in both directions:
 * both ends get the same result, and give the cause.
 */
#include "shm_ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* src/shm/seg.c on a system that maps so many more segments. */
static int mappings_left = INT32_MAX;

static void *map_if_left(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
    if (mappings_left-- <= 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return mmap(at, len, prot, flags, fd, off);
}

#define mmap map_if_left
#include "seg.c"
#undef mmap

enum { RANKS = 3, JOB = 1000 };

/* Ranks that have not probed yet. */
static int make(void **state)
{
    struct pair *p = calloc(1, sizeof(*p));

    p->n = RANKS;
    p->now = MDAPL_SEC(1000);
    ranks_open_all(p);
    *state = p;
    return 0;
}

static bool reached(struct pair *p, int from, int to)
{
    struct mdapl_peer *peer;
    int rc = mdapl_peer_get(p->rank[from].ctx, to, &peer);

    assert_true(rc == 0 || rc == -EHOSTUNREACH);
    return rc == 0;
}

/* Ranks probe in turn; this one finds address space for so many segments only. */
static void probe_all(struct pair *p, int short_of, int mappings)
{
    for (int i = 0; i < p->n; i++) {
        mappings_left = i == short_of ? mappings : INT32_MAX;
        mdapl_probe(p->rank[i].ctx);
    }
    mappings_left = INT32_MAX;
}

static void both_ways_or_not_at_all(void **state)
{
    (void)state;
    for (int unable = 0; unable < RANKS; unable++)
        for (int mappings = 0; mappings < RANKS; mappings++) {
            struct pair *p;
            int n = 0;

            make((void **)&p);
            probe_all(p, unable, mappings);
            for (int i = 0; i < RANKS; i++)
                for (int k = 0; k < i; k++) {
                    bool yes = reached(p, i, k);

                    assert_int_equal(yes, reached(p, k, i));
                    assert_true(yes || i == unable || k == unable);
                    n += yes;
                }
            assert_int_equal(n, 1 + mappings);
            ranks_unmake((void **)&p);
        }
}

static void both_say_why(void **state)
{
    struct pair *p = *state;

    probe_all(p, 1, 0);
    for (int i = 0; i < RANKS; i++) {
        const char *text = mdapl_ctx_err(p->rank[i].ctx)->text;

        assert_int_equal(mdapl_wire(p->rank[i].ctx), -EHOSTUNREACH);
        assert_non_null(strstr(text, "the only channel there is"));
        assert_non_null(strstr(text, strerror(ENOMEM)));
        assert_non_null(strstr(text, i == 1 ? "its segment cannot be opened from here"
                                            : "it cannot open our segment"));
        assert_non_null(strstr(text, "Put dapl into MPIR_CVAR_DAPL_CHANNELS"));
    }
}

static void all_are_reached(void **state)
{
    struct pair *p = *state;

    probe_all(p, -1, 0);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(mdapl_wire(p->rank[i].ctx), MDAPL_DONE);
}

/* The shm channel does not check the process of a peer that it does not reach. */
static void nothing_of_a_peer_that_is_not_reached(void **state)
{
    struct pair *p = *state;

    probe_all(p, 1, 0);
    assert_false(reached(p, 0, 1));
    p->now += MDAPL_SEC(1);
    rounds(&p->rank[0], 200);
    assert_int_equal(p->rank[0].n_faults, 0);
    assert_int_equal(mdapl_drain(p->rank[0].ctx), 0);
}

static bool first_ones(void *owner, int rank)
{
    (void)owner;
    return rank < RANKS;
}

/* A segment has room for the ranks of its node, however large the job. */
static void room_for_the_node(void **state)
{
    struct pair p = { .n = RANKS, .size = JOB, .near = first_ones, .now = MDAPL_SEC(1000) };
    const struct mdapl_shm_seg *seg;
    const char *text;

    (void)state;
    ranks_open_all(&p);
    probe_all(&p, -1, 0);
    seg = &p.rank[0].s->seg;
    assert_true(seg->bytes <= seg->rests_at + (RANKS + MDAPL_SHM_GUESTS) * seg->inring_bytes);
    for (int i = 1; i < RANKS; i++)
        assert_true(reached(&p, 0, i) && reached(&p, i, 0));
    assert_int_equal(mdapl_wire(p.rank[0].ctx), -EHOSTUNREACH);
    text = mdapl_ctx_err(p.rank[0].ctx)->text;
    assert_non_null(strstr(text, "rank 3 is not reached"));
    assert_non_null(strstr(text, "it is on another node"));
    for (int i = 0; i < RANKS; i++)
        mdapl_ctx_close(p.rank[i].ctx);
}

static struct pair *differing;

/* Ranks 1 and 2 are on one node by the launcher, for rank 0 it and rank 2 are. */
static bool differs(void *owner, int rank)
{
    return rank == ((struct rank *)owner == &differing->rank[2] ? 1 : 2);
}

/* By its own list rank 0 has the place that rank 1 has in rank 2's. */
static void other_ranks_of_the_node(void **state)
{
    struct pair p = { .n = RANKS, .near = differs, .now = MDAPL_SEC(1000) };

    (void)state;
    differing = &p;
    ranks_open_all(&p);
    probe_all(&p, -1, 0);
    assert_true(reached(&p, 1, 2) && reached(&p, 2, 1));
    assert_false(reached(&p, 0, 2) || reached(&p, 2, 0));
    for (int i = 0; i < RANKS; i++)
        mdapl_ctx_close(p.rank[i].ctx);
}

#define APART(f) cmocka_unit_test_setup_teardown(f, make, ranks_unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_or_not_at_all), APART(both_say_why), APART(all_are_reached),
        APART(nothing_of_a_peer_that_is_not_reached), cmocka_unit_test(room_for_the_node),
        cmocka_unit_test(other_ranks_of_the_node),
    };

    return RUN(tests);
}
