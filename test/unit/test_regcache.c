/* SPDX-License-Identifier: MIT */
/* The registration cache: what is kept, for what use, and how long. */
#include "unit.h"

#include "pinner.h"
#include "regs.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 64, PLENTY = 1 << 30 };

static const unsigned both = MDAPL_LMR_LOCAL | MDAPL_LMR_REMOTE_READ;
static char *memory;             /* so many pages */

static size_t pages(size_t n)
{
    return n * regs.page;
}

static char *at(size_t page)
{
    return memory + pages(page);
}

static void start(uint64_t limit)
{
    regs_start(limit);
    memory = regs_map(NULL, pages(PAGES), 0);
}

static void stop(void)
{
    munmap(memory, pages(PAGES));
    regs_stop();
}

static void map_again(size_t page, size_t n)
{
    munmap(at(page), pages(n));
    regs_map(at(page), pages(n), MAP_FIXED_NOREPLACE);
}

static void reuse_is_a_hit(void **state)
{
    (void)state;
    start(PLENTY);
    for (int i = 0; i < 10; i++)
        regs_transfer(memory + 100 * i, pages(PAGES) - 2000);
    assert_int_equal(regs.stats->reg_misses, 1);
    assert_int_equal(regs.stats->reg_hits, 9);
    assert_int_equal(regs.stats->registrations, 1);
    assert_int_equal(regs.stats->reg_bytes_max, pages(PAGES));
    stop();
}

/* The registration for this use. */
static DAT_LMR_CONTEXT key_for(unsigned use)
{
    struct mdapl_dapl_reg *reg = regs_get(at(0), pages(2), use);
    DAT_LMR_CONTEXT key = reg->lmr.on[0].local;

    regs_put(reg);
    return key;
}

/* A send needs the right to read only: its memory may be read-only. */
static void rights_are_as_requested(void **state)
{
    DAT_LMR_CONTEXT key;

    (void)state;
    start(PLENTY);
    key = key_for(MDAPL_LMR_REMOTE_READ);
    assert_true(pinner_may(key, DAT_MEM_PRIV_REMOTE_READ_FLAG));
    assert_false(pinner_may(key, DAT_MEM_PRIV_LOCAL_WRITE_FLAG));
    key = key_for(MDAPL_LMR_LOCAL);
    assert_true(pinner_may(key, DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG));
    assert_false(pinner_may(key, DAT_MEM_PRIV_REMOTE_WRITE_FLAG));
    assert_int_equal(key_for(MDAPL_LMR_REMOTE_READ), key);
    assert_int_equal(key_for(MDAPL_LMR_LOCAL), key);
    assert_int_equal(regs.stats->reg_misses, 2);
    key = key_for(MDAPL_LMR_REMOTE_WRITE);
    assert_true(pinner_may(key, DAT_MEM_PRIV_REMOTE_WRITE_FLAG));
    assert_int_equal(pinner_count(), 1);
    stop();
}

/* The adapter fails and is opened again: what was kept is not used before it has a new key. */
static void a_new_generation_is_registered_again(void **state)
{
    struct mdapl_dapl_reg *reg;
    DAT_LMR_HANDLE handle;

    (void)state;
    start(PLENTY);
    reg = regs_get(at(0), pages(2), both);
    handle = reg->lmr.on[0].handle;
    regs_put(reg);
    mdapl_dapl_rail_step(&regs.ia, MDAPL_DAPL_RAIL_FATAL);
    assert_null(regs_get(at(0), pages(2), both));
    mdapl_dapl_rail_step(&regs.ia, MDAPL_DAPL_RAIL_REOPEN);
    pinner_lmr_free(handle);     /* with its adapter */
    mdapl_dapl_rail_step(&regs.ia, MDAPL_DAPL_RAIL_OPENED);
    reg = regs_get(at(0), pages(2), both);
    assert_int_equal(regs.stats->registrations, 2);
    regs_agree(reg, at(0), pages(2));
    regs_put(reg);
    assert_int_equal(regs.stats->reg_misses, 1);
    stop();
}

/* Buffers that share a page, each requested while the other is in use, end in one registration. */
static void neighbours_join(void **state)
{
    size_t len = pages(10) + 8;

    (void)state;
    start(PLENTY);
    for (int i = 0; i < 4; i++) {
        struct mdapl_dapl_reg *one = regs_get(at(0), len, MDAPL_LMR_LOCAL);
        struct mdapl_dapl_reg *two = regs_get(at(0) + len, len, MDAPL_LMR_REMOTE_READ);

        regs_agree(one, at(0), len);
        regs_agree(two, at(0) + len, len);
        regs_put(one);
        regs_put(two);
    }
    assert_int_equal(regs.stats->reg_misses, 2);
    assert_int_equal(pinner_count(), 1);
    assert_int_equal(regs.c.bytes, pages(21));
    stop();
}

static void longest_unused_goes_first(void **state)
{
    (void)state;
    start(4 * (uint64_t)getpagesize());
    for (size_t i = 0; i < 4; i++)
        regs_transfer(at(2 * i), pages(1));
    regs_transfer(at(0), pages(1));          /* the latest now */
    regs_transfer(at(8), pages(1));          /* 2 goes */
    assert_int_equal(regs.stats->reg_evictions, 1);
    assert_int_equal(regs.stats->reg_hits, 1);
    regs_transfer(at(0), pages(1));
    assert_int_equal(regs.stats->reg_hits, 2);
    stop();
}

/* A mapping of which parts are registered, or were, can still grow and move. */
static void parts_leave_a_mapping_whole(void **state)
{
    char *m;

    (void)state;
    start(4 * (uint64_t)getpagesize());
    m = regs_map(NULL, pages(16), 0);
    regs_transfer(m + pages(4), pages(2));
    regs_transfer(m + pages(8), pages(1));
    regs_transfer(at(0), pages(4));          /* they are evicted */
    assert_int_equal(regs.stats->reg_evictions, 2);
    regs_transfer(m + pages(12), pages(1));
    m = mremap(m, pages(16), pages(32), MREMAP_MAYMOVE);
    assert_ptr_not_equal(m, MAP_FAILED);
    regs_transfer(m + pages(12), pages(1));
    munmap(m, pages(32));
    stop();
}

static void limit_leaves_what_is_used(void **state)
{
    struct mdapl_dapl_reg *used, *more;

    (void)state;
    start(4 * (uint64_t)getpagesize());
    regs_transfer(at(10), pages(3));
    used = regs_get(at(0), pages(1), both);
    regs_transfer(at(20), pages(3));
    assert_int_equal(regs.c.bytes, pages(4));
    regs_transfer(at(30), pages(9));         /* longer than the limit: not kept */
    assert_int_equal(regs.c.bytes, pages(1));
    assert_int_equal(regs.stats->reg_bytes_max, pages(10));
    more = regs_get(at(40), pages(4), both);
    regs_agree(used, at(0), pages(1));
    regs_agree(more, at(40), pages(4));
    regs_put(used);
    assert_int_equal(regs.c.bytes, pages(4));
    regs_put(more);
    assert_int_equal(regs.c.bytes, pages(4));
    stop();
}

static void refusal_evicts(void **state)
{
    struct mdapl_dapl_reg *used, *more;
    struct mdapl_dapl_block own;

    (void)state;
    start(PLENTY);
    pinner_limit(pages(8));
    for (size_t i = 0; i < 4; i++)
        regs_transfer(at(2 * i), pages(1));
    used = regs_get(at(20), pages(6), both);
    assert_non_null(used);
    assert_int_equal(pinner_count(), 1);
    assert_null(regs_get(at(30), pages(3), both));       /* nothing is left to evict */
    assert_null(regs_get(at(22), pages(6), both));
    more = regs_get(at(30), pages(2), both);
    regs_agree(more, at(30), pages(2));
    regs_agree(used, at(20), pages(6));
    regs_put(more);
    assert_true(mdapl_dapl_block_make(&regs.c, pages(2), MDAPL_LMR_LOCAL, 1, &own));
    mdapl_dapl_block_free(&own);
    regs_put(used);
    regs_transfer(at(20), pages(6));
    stop();
}

static void used_until_its_last_put(void **state)
{
    struct mdapl_dapl_reg *one, *again, *other;

    (void)state;
    start(PLENTY);
    one = regs_get(at(0), pages(9), both);
    again = regs_get(at(0), pages(9), both);
    assert_ptr_equal(one, again);
    map_again(0, 9);
    regs_settle();
    other = regs_get(at(0), pages(9), both);
    assert_ptr_not_equal(one, other);
    regs_agree(other, at(0), pages(9));
    regs_put(one);
    assert_int_equal(pinner_count(), 2);
    regs_put(again);
    assert_int_equal(pinner_count(), 1);
    regs_put(other);
    assert_int_equal(regs.stats->reg_invalidated, 1);
    regs_transfer(at(0), pages(9));
    assert_int_equal(regs.stats->reg_hits, 2);
    stop();
}

/* Another process may change its pages, which the watcher does not report. */
static void shared_memory_is_not_kept(void **state)
{
    size_t len;
    void *m;
    int fd;

    (void)state;
    start(PLENTY);
    len = pages(PAGES);
    fd = memfd_create("shared", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)len), 0);
    m = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(m, MAP_FAILED);
    for (int i = 0; i < 3; i++) {
        regs_transfer(m, len);
        assert_int_equal(pinner_count(), 0);
        assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)len),
                         0);
    }
    munmap(m, len);
    close(fd);
    stop();
}

static void nothing_is_kept_unwatched(void **state)
{
    (void)state;
    start(PLENTY);
    mdapl_dapl_regcache_fini(&regs.c);
    mdapl_dapl_regcache_init(&regs.c, &regs.rails, regs.stats, NULL, PLENTY);
    for (int i = 0; i < 3; i++) {
        regs_transfer(at(0), pages(9));
        assert_int_equal(pinner_count(), 0);
        map_again(0, 9);
    }
    assert_int_equal(regs.stats->reg_hits, 0);
    stop();
}

static DAT_RETURN slow_lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE type,
                                  DAT_REGION_DESCRIPTION region, DAT_VLEN len, DAT_PZ_HANDLE pz,
                                  DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr_p,
                                  DAT_LMR_CONTEXT *local, DAT_RMR_CONTEXT *key,
                                  DAT_VLEN *got_len, DAT_VADDR *got_addr)
{
    regs.ns += 5000;
    return pinner_lmr_create(ia, type, region, len, pz, priv, va, lmr_p, local, key, got_len,
                             got_addr);
}

/* The question takes no time on this clock. */
static void keeping_pays_where_registering_is_slow(void **state)
{
    (void)state;
    start(PLENTY);
    assert_false(mdapl_dapl_regcache_pays_off(regs.ctx, &regs.rails, regs.c.watch));
    regs.dat.dat_lmr_create = slow_lmr_create;
    assert_true(mdapl_dapl_regcache_pays_off(regs.ctx, &regs.rails, regs.c.watch));
    pinner_limit(pages(1));      /* an adapter that refuses is not to be tried to the end */
    assert_false(mdapl_dapl_regcache_pays_off(regs.ctx, &regs.rails, regs.c.watch));
    assert_int_equal(pinner_count(), 0);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reuse_is_a_hit),
        cmocka_unit_test(rights_are_as_requested),
        cmocka_unit_test(a_new_generation_is_registered_again),
        cmocka_unit_test(neighbours_join),
        cmocka_unit_test(longest_unused_goes_first),
        cmocka_unit_test(parts_leave_a_mapping_whole),
        cmocka_unit_test(limit_leaves_what_is_used),
        cmocka_unit_test(refusal_evicts),
        cmocka_unit_test(used_until_its_last_put),
        cmocka_unit_test(shared_memory_is_not_kept),
        cmocka_unit_test(nothing_is_kept_unwatched),
        cmocka_unit_test(keeping_pays_where_registering_is_slow),
    };

    return RUN(tests);
}
