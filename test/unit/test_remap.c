/* SPDX-License-Identifier: MIT */
/*
 * Kept registrations of memory that programs unmap, map again, move, discard, free and fork: no
 * transfer may be wrong. The detector of wrong data (regs.h) is tested as well: the same with a
 * cache that gets no reports of changes must produce wrong data.
 */
#include "unit.h"

#include "regs.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGES = 64 };

/* -- what programs do with their memory ------------------------------------------------------- */

struct buffer {
    char *at;
    size_t len;
};

static void map(struct buffer *b)
{
    b->len = PAGES * regs.page;
    b->at = regs_map(NULL, b->len, 0);
}

static void unmap(struct buffer *b)
{
    munmap(b->at, b->len);
}

static void map_again(struct buffer *b)
{
    munmap(b->at, b->len);
    regs_map(b->at, b->len, MAP_FIXED_NOREPLACE);
}

static void map_over(struct buffer *b)
{
    regs_map(b->at, b->len, MAP_FIXED);
}

static void map_page_again(struct buffer *b)
{
    munmap(b->at + regs.page, regs.page);
    regs_map(b->at + regs.page, regs.page, MAP_FIXED_NOREPLACE);
}

static void move(char *from, size_t len, char *to)
{
    assert_ptr_equal(mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
}

static void move_away_and_back(struct buffer *b)
{
    char *to = regs_map(NULL, b->len, 0);

    move(b->at, b->len, to);
    move(to, b->len, b->at);
}

static void move_another_here(struct buffer *b)
{
    move(regs_map(NULL, b->len, 0), b->len, b->at);
}

/* No room behind: the mapping moves when it grows, and another one takes its addresses. */
static void map_cramped(struct buffer *b)
{
    map(b);
    b->len -= regs.page;
}

static void unmap_cramped(struct buffer *b)
{
    munmap(b->at, b->len + regs.page);
}

static void grow_and_move(struct buffer *b)
{
    char *grown = mremap(b->at, b->len, 2 * b->len, MREMAP_MAYMOVE);

    assert_ptr_not_equal(grown, MAP_FAILED);
    assert_ptr_not_equal(grown, b->at);
    regs_map(b->at, b->len, MAP_FIXED_NOREPLACE);
    regs_transfer(grown, 2 * b->len);
    munmap(grown, 2 * b->len);
}

static void shrink_and_grow(struct buffer *b)
{
    assert_ptr_equal(mremap(b->at, b->len, regs.page, 0), b->at);
    assert_ptr_equal(mremap(b->at, regs.page, b->len, 0), b->at);
}

static void discard(struct buffer *b)
{
    assert_int_equal(madvise(b->at, b->len, MADV_DONTNEED), 0);
}

static void free_lazily(struct buffer *b)
{
    assert_int_equal(madvise(b->at, b->len, MADV_FREE), 0);
}

static void protect_and_back(struct buffer *b)
{
    mprotect(b->at, b->len, PROT_NONE);
    mprotect(b->at, b->len, PROT_READ | PROT_WRITE);
}

static void brk_up(struct buffer *b)
{
    sbrk(-(intptr_t)sbrk(0) & (intptr_t)(regs.page - 1));
    b->len = PAGES * regs.page;
    b->at = sbrk((intptr_t)b->len);
}

static void brk_down(struct buffer *b)
{
    assert_ptr_equal(sbrk(0), b->at + b->len);
    sbrk(-(intptr_t)b->len);
}

static void brk_down_and_up(struct buffer *b)
{
    brk_down(b);
    assert_ptr_equal(sbrk((intptr_t)b->len), b->at);
}

static void alloc(struct buffer *b)
{
    b->len = 300000;
    b->at = malloc(b->len);
    assert_non_null(b->at);
}

static void release(struct buffer *b)
{
    free(b->at);
}

static void alloc_again(struct buffer *b)
{
    free(b->at);
    alloc(b);
}

static void trim_and_alloc_again(struct buffer *b)
{
    free(b->at);
    malloc_trim(0);
    alloc(b);
}

static void realloc_it(struct buffer *b)
{
    b->len = b->len * 3 / 2;
    b->at = realloc(b->at, b->len);
    assert_non_null(b->at);
}

static void fork_and_write(struct buffer *b)
{
    regs_fork(b->at, b->len);
}

/* make, then in turns a transfer and the change, then end. */
static const struct pattern {
    const char *name;
    void (*make)(struct buffer *b), (*change)(struct buffer *b), (*end)(struct buffer *b);
    bool stale;                  /* without the watcher wrong data is sure */
} patterns[] = {
    { "unmapped and mapped again", map, map_again, unmap, true },
    { "mapped over", map, map_over, unmap, true },
    { "one page unmapped and mapped again", map, map_page_again, unmap, true },
    { "moved away and back", map, move_away_and_back, unmap, false },
    { "another one moved here", map, move_another_here, unmap, true },
    { "grown, moved, another one here", map_cramped, grow_and_move, unmap_cramped, true },
    { "shrunk and grown", map, shrink_and_grow, unmap, true },
    { "discarded", map, discard, unmap, true },
    { "freed lazily", map, free_lazily, unmap, false },
    { "protected and back", map, protect_and_back, unmap, false },
    { "brk down and up", brk_up, brk_down_and_up, brk_down, true },
    { "freed and allocated", alloc, alloc_again, release, false },
    { "freed, trimmed and allocated", alloc, trim_and_alloc_again, release, false },
    { "reallocated", alloc, realloc_it, release, false },
    { "forked, both write", map, fork_and_write, unmap, false },
};

static void run_pattern(const struct pattern *p)
{
    struct buffer b;

    p->make(&b);
    regs_transfer(b.at, b.len);
    for (int i = 0; i < 4; i++) {
        p->change(&b);
        regs_transfer(b.at, b.len);
        regs_transfer(b.at + 24, b.len / 2);
    }
    p->end(&b);
}

static const size_t n_patterns = sizeof(patterns) / sizeof(patterns[0]);

static void changed_memory_is_right(void **state)
{
    (void)state;
    regs_start(1 << 30);
    for (size_t i = 0; i < n_patterns; i++) {
        run_pattern(&patterns[i]);
        if (regs.wrong > 0)
            fail_msg("%s: wrong data", patterns[i].name);
    }
    regs_stop();
}

static void detector_finds_stale_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_patterns; i++) {
        regs_start(1 << 30);
        regs.unreported = true;
        run_pattern(&patterns[i]);
        if (regs.wrong == 0 && patterns[i].stale)
            fail_msg("%s: wrong data was not found", patterns[i].name);
        regs_stop();
    }
}

/* Nothing has to be done at a fork: what was kept is still right, and still kept. */
static void fork_keeps_registrations(void **state)
{
    struct buffer b;

    (void)state;
    regs_start(1 << 30);
    map(&b);
    for (int i = 0; i < 3; i++) {
        regs_transfer(b.at, b.len);
        fork_and_write(&b);
    }
    regs_transfer(b.at, b.len);
    assert_int_equal(regs.stats->reg_misses, 1);
    assert_int_equal(regs.stats->reg_invalidated, 0);
    unmap(&b);
    regs_stop();
}

/* -- another thread --------------------------------------------------------------------------- */

static struct {
    char *at;
    size_t len;
    atomic_int round, gone;      /* unmap it once more; has been */
    atomic_bool over;
} t;

/* Unmaps memory when requested, and in between discards memory of its own, watched as well. */
static void *unmapper(void *arg)
{
    struct buffer *own = arg;

    while (!atomic_load(&t.over)) {
        if (atomic_load(&t.round) > atomic_load(&t.gone)) {
            munmap(t.at, t.len);
            atomic_fetch_add(&t.gone, 1);
        } else {
            madvise(own->at, own->len, MADV_DONTNEED);
            sched_yield();
        }
    }
    return NULL;
}

/*
 * The address is used again before the other thread's munmap() has returned: the kernel has let go
 * of the old pages, but the event may not even be there yet.
 */
static void address_is_used_again_at_once(void **state)
{
    struct buffer own;
    pthread_t thread;

    (void)state;
    regs_start(1 << 30);
    map(&own);
    regs_transfer(own.at, own.len);
    t.len = 8 * regs.page;
    t.at = regs_map(NULL, t.len, 0);
    assert_int_equal(pthread_create(&thread, NULL, unmapper, &own), 0);
    for (int i = 1; i <= 400; i++) {
        regs_transfer(t.at, t.len);
        atomic_store(&t.round, i);
        while (mmap(t.at, t.len, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
            ;
        regs_transfer(t.at, t.len);
        while (atomic_load(&t.gone) < i)
            sched_yield();
    }
    atomic_store(&t.over, true);
    pthread_join(thread, NULL);
    discard(&own);
    regs_settle();
    regs_transfer(own.at, own.len);
    assert_true(regs.stats->reg_invalidated > 0);
    munmap(t.at, t.len);
    unmap(&own);
    regs_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_memory_is_right),
        cmocka_unit_test(detector_finds_stale_memory),
        cmocka_unit_test(fork_keeps_registrations),
        cmocka_unit_test(address_is_used_again_at_once),
    };

    return RUN(tests);
}
