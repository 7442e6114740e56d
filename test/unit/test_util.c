/* SPDX-License-Identifier: MIT */
/* list, seq, window, iov, pool, idmap, group, tree, timer, clock: small things, at their edges. */
#include "unit.h"

#include "bytes.h"
#include "clock.h"
#include "group.h"
#include "idmap.h"
#include "iov.h"
#include "list.h"
#include "min.h"
#include "pool.h"
#include "window.h"
#include "timer.h"
#include "tree.h"
#include "yields.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void list_keeps_order(void **state)
{
    struct mdapl_list head, item[3];

    (void)state;
    mdapl_list_init(&head);
    assert_null(mdapl_list_take(&head));
    for (int i = 0; i < 3; i++)
        mdapl_list_append(&head, &item[i]);
    mdapl_list_remove(&item[1]);
    assert_true(mdapl_list_empty(&item[1]));
    mdapl_list_remove(&item[1]);             /* twice does no harm */
    assert_ptr_equal(mdapl_list_take(&head), &item[0]);
    mdapl_list_before(head.next, &item[1]);
    assert_ptr_equal(mdapl_list_take(&head), &item[1]);
    assert_ptr_equal(mdapl_list_take(&head), &item[2]);
    assert_true(mdapl_list_empty(&head));
}

static void list_survives_removal_in_loop(void **state)
{
    struct mdapl_list head, item[4];
    int n = 0;

    (void)state;
    mdapl_list_init(&head);
    for (int i = 0; i < 4; i++)
        mdapl_list_append(&head, &item[i]);
    MDAPL_LIST_EACH_SAFE(pos, &head) {
        mdapl_list_remove(pos);
        n++;
    }
    assert_int_equal(n, 4);
    assert_true(mdapl_list_empty(&head));
}

static void seq_widens_to_nearest(void **state)
{
    static const struct { uint64_t near; uint32_t low; uint64_t full; } row[] = {
        { 0, 0, 0 },
        { 5, 7, 7 },
        { 0xffffffff, 0, 0x100000000 },
        { 0x100000000, 0xffffffff, 0xffffffff },
        { 0x1fffffffe, 3, 0x200000003 },
        { 0x500000010, 0x8, 0x500000008 },
        { 0x500000000, 0x7fffffff, 0x57fffffff },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        assert_int_equal(mdapl_seq_widen(row[i].near, row[i].low), row[i].full);
    assert_true(mdapl_seq_before(0xffffffff, 0));
    assert_false(mdapl_seq_before(0, 0xffffffff));
    assert_false(mdapl_seq_before(7, 7));
}

static void window_is_absolute(void **state)
{
    struct mdapl_txwin tx = { .sent = 0xfffffffe, .limit = 0xfffffffe };

    (void)state;
    assert_false(mdapl_txwin_open(&tx, 0));
    assert_true(mdapl_txwin_open(&tx, 1));
    assert_false(mdapl_txwin_update(&tx, 0xfffffffe));   /* advertised again */
    assert_false(mdapl_txwin_update(&tx, 0xfffffff0));   /* an older one */
    assert_true(mdapl_txwin_update(&tx, 2));             /* over the wrap */
    assert_int_equal(tx.limit, 0x100000002);
    tx.sent = 0x100000002;
    assert_false(mdapl_txwin_open(&tx, 0));
}

static void update_due_beyond_half(void **state)
{
    struct mdapl_rxwin rx = { .freed = 0, .advertised = 4, .size = 4 };

    (void)state;
    assert_false(mdapl_rxwin_update_due(&rx));
    rx.freed = 1;
    assert_false(mdapl_rxwin_update_due(&rx));
    rx.freed = 2;
    assert_false(mdapl_rxwin_update_due(&rx));           /* two in a row are common */
    rx.freed = 3;
    assert_true(mdapl_rxwin_update_due(&rx));
    assert_int_equal(mdapl_rxwin_advertise(&rx), 7);
    assert_false(mdapl_rxwin_update_due(&rx));
    rx = (struct mdapl_rxwin){ .freed = 1, .advertised = 2, .size = 2 };
    assert_false(mdapl_rxwin_update_due(&rx));           /* never one for one */
    rx.freed = 2;
    assert_true(mdapl_rxwin_update_due(&rx));
    rx = (struct mdapl_rxwin){ .freed = 2, .advertised = 3, .size = 3 };
    assert_true(mdapl_rxwin_update_due(&rx));
    rx = (struct mdapl_rxwin){ .freed = 8, .advertised = 16, .size = 16 };
    assert_false(mdapl_rxwin_update_due(&rx));
    rx.freed = 9;
    assert_true(mdapl_rxwin_update_due(&rx));
    assert_false(mdapl_rxwin_growth_due(&rx));
    rx = (struct mdapl_rxwin){ .freed = 32, .advertised = 39, .size = 16 };
    assert_true(mdapl_rxwin_growth_due(&rx));
    rx.advertised = 48;
    assert_false(mdapl_rxwin_growth_due(&rx));
}

/* From 4 on, twice as large each time that a frame had to wait. */
static void window_grows(void **state)
{
    static const struct { uint32_t most, size[5]; } row[] = {
        { 32, { 4, 8, 16, 32, 32 } },
        { 1000, { 4, 8, 16, 32, 64 } },
        { 50, { 4, 8, 16, 32, 50 } },
        { 6, { 4, 6, 6, 6, 6 } },
        { 4, { 4, 4, 4, 4, 4 } },
        { 2, { 2, 2, 2, 2, 2 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct mdapl_rxwin w = mdapl_rxwin_new(mdapl_rxwin_first(row[i].most), row[i].most);

        assert_int_equal(w.advertised, w.size);
        for (size_t k = 0; k < 5; k++) {
            assert_int_equal(w.size, row[i].size[k]);
            w.size += mdapl_rxwin_growth(&w);
        }
    }
}

static void iov_walks_pieces(void **state)
{
    char a[3] = "abc", b[4] = "defg", out[8] = { 0 };
    struct iovec v[] = { { a, 3 }, { NULL, 0 }, { b, 4 } };
    struct mdapl_iov c = mdapl_iov_start(v, 3);
    void *p;

    (void)state;
    assert_int_equal(mdapl_iov_len(v, 3), 7);
    assert_int_equal(mdapl_iov_gather(&c, out, 5), 5);
    assert_memory_equal(out, "abcde", 5);
    assert_int_equal(mdapl_iov_piece(&c, 1, &p), 1);
    assert_ptr_equal(p, b + 2);
    assert_int_equal(mdapl_iov_gather(&c, out, 5), 1);   /* the end */
    assert_int_equal(mdapl_iov_piece(&c, 9, &p), 0);
    assert_null(p);
    c = mdapl_iov_start(v, 3);
    mdapl_iov_skip(&c, 2);
    assert_int_equal(mdapl_iov_scatter(&c, "XYZ", 3), 3);
    assert_memory_equal(a, "abX", 3);
    assert_memory_equal(b, "YZfg", 4);
}

static void pool_reuses_and_stops(void **state)
{
    struct mdapl_pool p;
    void *a, *b;

    (void)state;
    mdapl_pool_init(&p, 3, 64, 2, 3);
    a = mdapl_pool_take(&p);
    b = mdapl_pool_take(&p);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_ptr_not_equal(a, b);
    memset(a, 0xff, p.size);
    assert_non_null(mdapl_pool_take(&p));
    assert_null(mdapl_pool_take(&p));                    /* the limit */
    mdapl_pool_give(&p, a);
    assert_ptr_equal(mdapl_pool_take(&p), a);
    assert_int_equal(p.taken, 3);
    mdapl_pool_fini(&p);
}

/* The id of a finished object is not soon another's. */
static void idmap_ids_come_back_late(void **state)
{
    struct mdapl_idmap m;
    uint32_t first, id;
    int obj;

    (void)state;
    mdapl_idmap_init(&m);
    assert_int_equal(mdapl_idmap_add(&m, &obj, &first), 0);
    mdapl_idmap_remove(&m, first);
    for (int i = 0; i < 200000; i++) {
        assert_int_equal(mdapl_idmap_add(&m, &obj, &id), 0);
        assert_int_not_equal(id, first);
        mdapl_idmap_remove(&m, id);
    }
    mdapl_idmap_fini(&m);
}

static void idmap_knows_generations(void **state)
{
    struct mdapl_idmap m;
    uint32_t id[200], again;
    int obj[200];

    (void)state;
    mdapl_idmap_init(&m);
    assert_null(mdapl_idmap_find(&m, 0));
    assert_null(mdapl_idmap_find(&m, 0xffffffff));
    for (int i = 0; i < 200; i++)
        assert_int_equal(mdapl_idmap_add(&m, &obj[i], &id[i]), 0);
    for (int i = 0; i < 200; i++)
        assert_ptr_equal(mdapl_idmap_find(&m, id[i]), &obj[i]);
    mdapl_idmap_remove(&m, id[5]);
    mdapl_idmap_remove(&m, id[5]);                       /* of something gone: nothing */
    assert_null(mdapl_idmap_find(&m, id[5]));
    mdapl_idmap_add(&m, &obj[5], &again);
    assert_int_not_equal(again, id[5]);
    assert_null(mdapl_idmap_find(&m, id[5]));
    assert_int_equal(m.used, 200);
    mdapl_idmap_fini(&m);
}

/* An id that was given is told from one that never was, after any number of rounds. */
static void idmap_knows_what_it_gave(void **state)
{
    struct mdapl_idmap m;
    uint32_t first, id, other;
    int obj;

    (void)state;
    mdapl_idmap_init(&m);
    assert_false(mdapl_idmap_given(&m, 1 << 20));
    mdapl_idmap_add(&m, &obj, &first);
    assert_true(mdapl_idmap_given(&m, first));
    assert_false(mdapl_idmap_given(&m, first + (1 << 20)));      /* its next generation */
    assert_false(mdapl_idmap_given(&m, first + 1));              /* its neighbour */
    assert_false(mdapl_idmap_given(&m, first + 1000000));        /* no slot */
    assert_false(mdapl_idmap_given(&m, 0));
    mdapl_idmap_remove(&m, first);
    assert_true(mdapl_idmap_given(&m, first));
    assert_false(mdapl_idmap_given(&m, first + (1 << 20)));
    for (int i = 0; i < 64 * 5000; i++) {    /* every slot, beyond its last generation */
        mdapl_idmap_add(&m, &obj, &id);
        mdapl_idmap_remove(&m, id);
        assert_true(mdapl_idmap_given(&m, id));
    }
    mdapl_idmap_add(&m, &obj, &other);
    assert_true(mdapl_idmap_given(&m, first) && mdapl_idmap_given(&m, other));
    mdapl_idmap_fini(&m);
}

enum { NODES = 1000 };

static int depth(const struct mdapl_tree_node *n)
{
    int low = n ? depth(n->low) : -1, high = n ? depth(n->high) : -1;

    return 1 + (low > high ? low : high);
}

/* A search has the same result as a comparison with every node. */
static void check_tree(const struct mdapl_tree *t, const struct mdapl_tree_node *node,
                       const bool *in, uint64_t key)
{
    const struct mdapl_tree_node *upto = NULL, *above = NULL;

    for (size_t i = 0; i < NODES; i++) {
        if (in[i] && node[i].key <= key && (!upto || node[i].key > upto->key))
            upto = &node[i];
        if (in[i] && node[i].key > key && (!above || node[i].key < above->key))
            above = &node[i];
    }
    assert_ptr_equal(mdapl_tree_upto(t, key), upto);
    assert_ptr_equal(mdapl_tree_above(t, key), above);
}

static struct mdapl_group *add_group(struct mdapl_groups *groups, uint32_t id, int size, int rc)
{
    struct mdapl_group *group = NULL;

    assert_int_equal(mdapl_groups_add(groups, &(struct mdapl_group){ .id = id, .size = size },
                                      &group), rc);
    return group;
}

static void groups_are_found_by_id(void **state)
{
    struct mdapl_groups groups = { 0 };
    struct mdapl_group *a, *b, *c;

    (void)state;
    a = add_group(&groups, 7, 4, 0);
    b = add_group(&groups, 8, 1, 0);
    assert_ptr_equal(mdapl_groups_find(&groups, 7), a);
    assert_ptr_equal(mdapl_groups_find(&groups, 8), b);
    assert_null(mdapl_groups_find(&groups, 9));
    assert_null(add_group(&groups, 8, 2, -EEXIST));
    assert_null(add_group(&groups, 9, 0, -EINVAL));
    mdapl_groups_remove(&groups, a);
    assert_null(mdapl_groups_find(&groups, 7));
    c = add_group(&groups, 9, 2, 0);
    assert_int_equal(c->index, 0);           /* that of the removed one */
    assert_int_equal(groups.n, 2);
    mdapl_groups_fini(&groups);
}

static void ports_open_and_close(void **state)
{
    const struct mdapl_group one = { .size = 1, .self = { 5, 0 } };
    const struct mdapl_group other = { .size = 1, .self = { 6, 0 } };
    struct mdapl_groups groups = { 0 };

    (void)state;
    assert_int_equal(mdapl_groups_open_port(&groups, &one), 0);
    assert_int_equal(mdapl_groups_open_port(&groups, &other), 0);
    assert_int_equal(mdapl_groups_open_port(&groups, &one), -EEXIST);
    mdapl_groups_close_port(&groups, 7);     /* there is none */
    mdapl_groups_close_port(&groups, 5);
    assert_int_equal(groups.ports->visitors.self.group, 6);
    assert_null(groups.ports->next);
    assert_int_equal(mdapl_groups_open_port(&groups, &one), 0);
    mdapl_groups_fini(&groups);              /* the open ones, too */
    assert_null(groups.ports);
}

static void peers_are_listed_by_channel(void **state)
{
    /* Only their addresses matter. */
    const struct mdapl_channel *one = (void *)&one, *two = (void *)&two;
    struct mdapl_groups groups = { 0 };
    struct mdapl_group *a = add_group(&groups, 7, 3, 0), *b = add_group(&groups, 8, 1, 0);
    struct mdapl_group *c = add_group(&groups, 9, 2, 0);
    struct mdapl_peer first = { .channel = one, .group = 0, .rank = 1 };
    struct mdapl_peer other = { .channel = two, .group = 0, .rank = 2 };
    struct mdapl_peer last = { .channel = one, .group = 2, .rank = 0 };

    (void)state;
    assert_null(mdapl_groups_next_peer(&groups, one, NULL));
    a->peers[1] = &first;
    a->peers[2] = &other;
    c->peers[0] = &last;
    mdapl_groups_remove(&groups, b);
    assert_ptr_equal(mdapl_groups_next_peer(&groups, one, NULL), &first);
    assert_ptr_equal(mdapl_groups_next_peer(&groups, one, &first), &last);
    assert_null(mdapl_groups_next_peer(&groups, one, &last));
    assert_ptr_equal(mdapl_groups_next_peer(&groups, two, NULL), &other);
    assert_null(mdapl_groups_next_peer(&groups, two, &other));
    mdapl_groups_fini(&groups);
}

static void tree_finds_neighbours(void **state)
{
    struct mdapl_tree_node node[NODES];
    bool in[NODES] = { false };
    struct mdapl_tree t = { NULL };
    unsigned seed = 1;

    (void)state;
    assert_null(mdapl_tree_upto(&t, UINT64_MAX));
    assert_null(mdapl_tree_above(&t, 0));
    for (size_t i = 0; i < NODES; i++)
        node[i].key = i * 4096;
    for (int step = 0; step < 20000; step++) {
        size_t i = (size_t)rand_r(&seed) % NODES;

        (in[i] ? mdapl_tree_remove : mdapl_tree_add)(&t, &node[i]);
        in[i] = !in[i];
        if (step % 10 == 0)
            check_tree(&t, node, in, (uint64_t)rand_r(&seed) % ((NODES + 1) * 4096));
    }
    for (size_t i = 0; i < NODES; i++)
        if (in[i])
            mdapl_tree_remove(&t, &node[i]);
    assert_null(t.root);
}

static void tree_stays_low(void **state)
{
    static struct mdapl_tree_node node[1 << 16];
    struct mdapl_tree t = { NULL };
    size_t n = sizeof(node) / sizeof(node[0]);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        node[i].key = i << 12;
        mdapl_tree_add(&t, &node[i]);
    }
    assert_in_range(depth(t.root), 15, 60);
    for (size_t i = 0; i < n; i += 2)
        mdapl_tree_remove(&t, &node[i]);
    assert_in_range(depth(t.root), 14, 60);
}

static int fired[3], n_fired;
static struct mdapl_timer timer[3];

static void fire(struct mdapl_timer *t)
{
    fired[n_fired++] = (int)(t - timer);
}

static void timers_fire_in_order(void **state)
{
    uint64_t ns = 0;
    struct mdapl_clock clock = mdapl_clock_manual(&ns);
    struct mdapl_timers s;

    (void)state;
    mdapl_timers_init(&s);
    assert_int_equal(mdapl_timers_next(&s), UINT64_MAX);
    for (int i = 0; i < 3; i++)
        mdapl_timer_init(&timer[i], fire);
    mdapl_timer_set(&s, &timer[0], 30);
    mdapl_timer_set(&s, &timer[1], 10);
    mdapl_timer_set(&s, &timer[2], 20);
    mdapl_timer_set(&s, &timer[1], 25);                  /* moved */
    mdapl_timer_stop(&timer[0]);
    assert_int_equal(mdapl_timers_next(&s), 20);
    ns = 19;
    assert_int_equal(mdapl_timers_run(&s, mdapl_clock_now(&clock)), 0);
    ns = 40;
    assert_int_equal(mdapl_timers_run(&s, mdapl_clock_now(&clock)), 2);
    assert_int_equal(fired[0], 2);
    assert_int_equal(fired[1], 1);
    assert_int_equal(mdapl_timers_run(&s, 1000), 0);
}

/* Every length and alignment copies as memcpy() does, and changes no byte beside it. */
static void bytes(void **state)
{
    enum { MOST = 600, ROOM = MOST + 160 };
    static uint8_t from[ROOM], to[ROOM], want[ROOM];
    mdapl_bytes_copier *const copiers[] = { mdapl_bytes_copy, mdapl_bytes_copy_lines,
                                            mdapl_bytes_copy_stream };

    (void)state;
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t n = 0; n <= MOST; n++)
        for (size_t at = 0; at < 64; at += 1 + n % 3) {
            memset(want, 0xee, ROOM);
            memcpy(want + at, from + n % 5, n);
            for (size_t by = 0; by < sizeof(copiers) / sizeof(copiers[0]); by++) {
                memset(to, 0xee, ROOM);
                copiers[by](to + at, from + n % 5, n);
                assert_memory_equal(to, want, ROOM);
            }
        }
}

/* The same for long copies, their destination up to a cache line and more ahead of the source
 * modulo a page, which decides how mdapl_bytes_copy() makes one. */
static void long_bytes(void **state)
{
    enum { N = 2 * MDAPL_BYTES_LONG, PAGE = 4096, ROOM = N + 2 * PAGE };
    static _Alignas(PAGE) uint8_t from[ROOM], to[ROOM], want[ROOM];
    mdapl_bytes_copier *const copiers[] = { mdapl_bytes_copy_long, mdapl_bytes_copy_stream };

    (void)state;
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t n = N - 3; n <= N; n++)
        for (size_t at = PAGE - 2; at < PAGE + 68; at++)
            for (size_t by = 0; by < sizeof(copiers) / sizeof(copiers[0]); by++) {
                memset(to, 0xee, ROOM);
                memset(want, 0xee, ROOM);
                memcpy(want + at, from, n);
                copiers[by](to + at, from, n);
                assert_memory_equal(to, want, ROOM);
            }
}

static uint64_t copy_clock;      /* ns; each copy advances it, a disturbed one by more */

static void copy_advances(uint64_t ns, size_t n)
{
    static unsigned copies;

    copy_clock += ns * n * (copies++ % 5 == 0 ? 30 : 1);
}

static void quick_copier(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    copy_advances(2, n);
}

static void slow_copier(void *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    copy_advances(3, n);
}

/* By the least of some samples; copiers that take as long as each other are not slow. */
static void slow_bytes(void **state)
{
    const struct mdapl_clock clock = mdapl_clock_manual(&copy_clock);

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_true(mdapl_bytes_is_slow(slow_copier, quick_copier, &clock));
        assert_false(mdapl_bytes_is_slow(quick_copier, slow_copier, &clock));
        assert_false(mdapl_bytes_is_slow(slow_copier, slow_copier, &clock));
        copy_advances(0, 0);
    }
}

/* Waits until one yields. */
static int waits_without(struct mdapl_yields *y)
{
    int n = 0;

    for (; mdapl_yields_allowed(y) == 0; n++)
        mdapl_yields_spent(y);
    return n;
}

/* A yield, after the rank has run for so long. */
static void yield_after(struct mdapl_yields *y, uint64_t ran, uint64_t ns)
{
    uint64_t begin = y->end ? y->end + ran : MDAPL_MS(1);

    mdapl_yields_took(y, begin, begin + ns);
}

/* After a slice of a program that computes the scheduler prefers the ranks for a while. */
static void yields_end_beside_a_program_that_computes(void **state)
{
    const uint64_t is_long = MDAPL_US(16 * MDAPL_YIELDS_RANK_US);
    struct mdapl_yields y;
    int pause = 0, n = 0;

    (void)state;
    mdapl_yields_init(&y, 16);
    mdapl_yields_spent(&y);
    while (mdapl_yields_allowed(&y) == MDAPL_YIELDS) {
        yield_after(&y, 0, is_long - 1);
        yield_after(&y, 0, is_long - 1);
        yield_after(&y, 0, is_long);
        n++;
    }
    assert_in_range(n, 3, 4);
    for (int i = 0; i < 20; i++) {
        pause = (int)mdapl_min(2 * pause + MDAPL_YIELDS_FEW, MDAPL_YIELDS_PAUSE);
        assert_int_equal(waits_without(&y), pause);
        yield_after(&y, 0, is_long);
    }
    assert_int_equal(pause, MDAPL_YIELDS_PAUSE);
    waits_without(&y);
    for (int i = 0; i < MDAPL_YIELDS_PAUSE; i++)
        yield_after(&y, 0, 0);
    for (int i = 0; i < 3; i++)
        yield_after(&y, 0, MDAPL_MS(10));
    assert_int_equal(waits_without(&y), MDAPL_YIELDS_FEW);
}

/* ... which gets the core in every second yield only. */
static void short_yields_between_long_ones(void **state)
{
    struct mdapl_yields y;
    int waits = 0;

    (void)state;
    mdapl_yields_init(&y, 1);
    for (int i = 0; i < 20; i++) {
        yield_after(&y, 0, MDAPL_US(MDAPL_YIELDS_RANKS * MDAPL_YIELDS_RANK_US) - 1);
        assert_int_equal(mdapl_yields_allowed(&y), MDAPL_YIELDS);
        yield_after(&y, 0, MDAPL_US(MDAPL_YIELDS_RANKS * MDAPL_YIELDS_RANK_US));
        waits = waits_without(&y);
        assert_true(i < 2 ? waits == 0 : waits > 0);
    }
    assert_int_equal(waits, MDAPL_YIELDS_PAUSE);
}

/* All ranks of the core touch new memory, so a yield takes as long as they do; then they are as
 * quick as ever. */
static void yields_go_on_beside_busy_ranks(void **state)
{
    struct mdapl_yields y;

    (void)state;
    mdapl_yields_init(&y, 16);
    yield_after(&y, 0, 0);
    for (int i = 0; i < 20; i++) {
        yield_after(&y, MDAPL_US(200), MDAPL_US(16 * 250));
        assert_int_equal(mdapl_yields_allowed(&y), MDAPL_YIELDS);
    }
    for (int i = 0; i < 20; i++)
        yield_after(&y, MDAPL_US(2), MDAPL_US(16 * 2));
    assert_true(mdapl_yields_is_long(&y, MDAPL_US(16 * MDAPL_YIELDS_RANK_US)));
    /* time in a sleep is none that it runs */
    mdapl_yields_spent(&y);
    mdapl_yields_took(&y, MDAPL_MS(1000), MDAPL_MS(1001));
    assert_true(mdapl_yields_is_long(&y, MDAPL_US(16 * MDAPL_YIELDS_RANK_US)));
    /* however long it computes, a yield of some ms is a long one where few ranks share the core */
    mdapl_yields_init(&y, 2);
    yield_after(&y, 0, 0);
    yield_after(&y, MDAPL_MS(50), 0);
    assert_true(mdapl_yields_is_long(&y, MDAPL_MS(2)));
}

static void yields_go_on_if_few_are_long(void **state)
{
    struct mdapl_yields y;

    (void)state;
    mdapl_yields_init(&y, 16);
    for (int i = 0; i < 100; i++) {
        for (int n = 0; n < 2 * MDAPL_YIELDS_LONG; n++)
            yield_after(&y, 0, MDAPL_US(10));
        yield_after(&y, 0, MDAPL_MS(8));
        yield_after(&y, 0, MDAPL_MS(8));
        assert_int_equal(mdapl_yields_allowed(&y), MDAPL_YIELDS);
    }
}

/* Each yield brings messages of many ranks, and a sleep would end with each of them. Beside a
 * program it ends, too, where that takes longer, and where it brings few. */
static void yields_go_on_that_bring_many_messages(void **state)
{
    static const struct { int ranks, messages, ms; bool is_long; } row[] = {
        { 32, 18, 11, false }, { 32, 18, 12, true }, { 32, 1000, 15, false },
        { 32, 1000, 16, true }, { 32, 1, 4, true }, { 16, 100, 5, false }, { 16, 100, 6, true },
        { 4, 1000, 3, true },
    };
    struct mdapl_yields y;

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        mdapl_yields_init(&y, row[i].ranks);
        yield_after(&y, 0, 0);
        mdapl_yields_brought(&y, row[i].messages);
        for (int n = 0; n < 3; n++)
            yield_after(&y, 0, MDAPL_MS(row[i].ms));
        assert_int_equal(waits_without(&y), row[i].is_long ? MDAPL_YIELDS_FEW : 0);
        /* messages that end a sleep do not count, and a yield that brings few counts, too */
        mdapl_yields_spent(&y);
        mdapl_yields_brought(&y, 1000);
        yield_after(&y, 0, 0);
        for (int n = 0; n < 32; n++)
            mdapl_yields_brought(&y, 1);
        assert_true(mdapl_yields_is_long(&y, MDAPL_US(row[i].ranks * MDAPL_YIELDS_RANK_US)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yields_end_beside_a_program_that_computes),
        cmocka_unit_test(short_yields_between_long_ones),
        cmocka_unit_test(yields_go_on_beside_busy_ranks),
        cmocka_unit_test(yields_go_on_if_few_are_long),
        cmocka_unit_test(yields_go_on_that_bring_many_messages),
        cmocka_unit_test(list_keeps_order),
        cmocka_unit_test(list_survives_removal_in_loop),
        cmocka_unit_test(seq_widens_to_nearest),
        cmocka_unit_test(window_is_absolute),
        cmocka_unit_test(update_due_beyond_half),
        cmocka_unit_test(window_grows),
        cmocka_unit_test(bytes),
        cmocka_unit_test(long_bytes), cmocka_unit_test(slow_bytes),
        cmocka_unit_test(iov_walks_pieces),
        cmocka_unit_test(pool_reuses_and_stops),
        cmocka_unit_test(idmap_knows_generations),
        cmocka_unit_test(idmap_knows_what_it_gave),
        cmocka_unit_test(idmap_ids_come_back_late),
        cmocka_unit_test(groups_are_found_by_id),
        cmocka_unit_test(ports_open_and_close),
        cmocka_unit_test(peers_are_listed_by_channel),
        cmocka_unit_test(tree_finds_neighbours),
        cmocka_unit_test(tree_stays_low),
        cmocka_unit_test(timers_fire_in_order),
    };

    return RUN(tests);
}
