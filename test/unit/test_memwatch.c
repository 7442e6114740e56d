/* SPDX-License-Identifier: MIT */
/* The events of the memory watcher, for every way in which a program's pages are replaced. */
#include "unit.h"

#include "memwatch.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 16 };

static struct mdapl_dapl_memwatch *w;
static size_t page;

/* New memory, or with MAP_FIXED at an address. New memory is between two pages without access, so
 * that the kernel does not merge it with what is next to it. */
static char *map(char *at, size_t pages, int flags)
{
    char *m;

    if (!at) {
        at = mmap(NULL, (pages + 2) * page, PROT_NONE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
        assert_ptr_not_equal(at, MAP_FAILED);
        at += page;
        flags |= MAP_FIXED;
    }
    m = mmap(at, pages * page, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);

    assert_ptr_not_equal(m, MAP_FAILED);
    memset(m, 1, pages * page);
    return m;
}

static struct mdapl_dapl_memwatch_range range(const char *at, size_t pages)
{
    return (struct mdapl_dapl_memwatch_range){ (uintptr_t)at, (uintptr_t)at + pages * page };
}

/* The watcher may give up while a busy machine does not schedule its thread. */
static void sync_with(struct mdapl_dapl_memwatch *watch)
{
    while (!mdapl_dapl_memwatch_sync(watch))
        sched_yield();
}

static void expect(const char *at, size_t pages)
{
    struct mdapl_dapl_memwatch_range r, want = range(at, pages);

    sync_with(w);
    assert_true(mdapl_dapl_memwatch_next(w, &r));
    assert_int_equal(r.start, want.start);
    assert_int_equal(r.end, want.end);
}

static void expect_nothing(void)
{
    struct mdapl_dapl_memwatch_range r;

    sync_with(w);
    assert_false(mdapl_dapl_memwatch_next(w, &r));
}

static int start(void **state)
{
    (void)state;
    page = (size_t)getpagesize();
    if (mdapl_dapl_memwatch_open(&w))
        w = NULL;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    if (w)
        mdapl_dapl_memwatch_close(w);
    return 0;
}

/* Every test begins so. */
static void need_watcher(void)
{
    if (!w)
        SKIP_TEST("this system cannot watch memory");
}

static void reports_every_change(void **state)
{
    char *m, *other;

    (void)state;
    need_watcher();
    m = map(NULL, PAGES, MAP_PRIVATE);
    other = map(NULL, PAGES, MAP_PRIVATE);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m, PAGES)), 0);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m, PAGES)), 0);
    expect_nothing();
    munmap(m, page);
    expect(m, 1);
    map(m + page, 2, MAP_PRIVATE | MAP_FIXED);
    expect(m + page, 2);
    madvise(m + 3 * page, page, MADV_DONTNEED);
    expect(m + 3 * page, 1);
    madvise(m + 4 * page, page, MADV_FREE);
    expect(m + 4 * page, 1);
    assert_ptr_equal(mremap(m + 5 * page, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, other), other);
    expect(m + 5 * page, 1);             /* moved, and so */
    expect(m + 5 * page, 1);             /* gone */
    assert_ptr_equal(mremap(m + 6 * page, 2 * page, page, 0), m + 6 * page);
    expect(m + 7 * page, 1);
    mprotect(m + 8 * page, page, PROT_READ);
    expect_nothing();
    munmap(m, PAGES * page);
    munmap(other, PAGES * page);
    do
        sync_with(w);
    while (mdapl_dapl_memwatch_next(w, &(struct mdapl_dapl_memwatch_range){ 0, 0 }));
}

static void reports_brk(void **state)
{
    char *m;

    (void)state;
    need_watcher();
    sbrk(-(intptr_t)sbrk(0) & (intptr_t)(page - 1));
    m = sbrk((intptr_t)(2 * page));
    assert_int_equal((uintptr_t)m % page, 0);
    memset(m, 1, 2 * page);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m, 2)), 0);
    assert_ptr_equal(sbrk(-(intptr_t)page), m + 2 * page);
    expect(m + page, 1);
    assert_ptr_equal(sbrk(-(intptr_t)page), m + page);
    expect(m, 1);
}

/* A mapping of which a part is watched is still one mapping: it can grow and move. */
static void part_of_a_mapping(void **state)
{
    char *m, *n;

    (void)state;
    need_watcher();
    m = map(NULL, PAGES, MAP_PRIVATE);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m + 4 * page, 2)), 0);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m + 9 * page, 1)), 0);
    n = mremap(m, PAGES * page, 2 * PAGES * page, MREMAP_MAYMOVE);
    if (n == MAP_FAILED)
        fail_msg("mremap: %s", strerror(errno));
    assert_ptr_not_equal(n, m);
    assert_int_equal(n[5 * page], 1);
    expect(m, PAGES);                    /* moved, and so */
    expect(m, PAGES);                    /* gone */
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(n + 4 * page, 1)), 0);
    n = mremap(n, 2 * PAGES * page, 4 * PAGES * page, MREMAP_MAYMOVE);
    assert_ptr_not_equal(n, MAP_FAILED);
    munmap(n, 4 * PAGES * page);
    do
        sync_with(w);
    while (mdapl_dapl_memwatch_next(w, &(struct mdapl_dapl_memwatch_range){ 0, 0 }));
}

/* New memory where watched memory was is watched when it is added. */
static void same_addresses_again(void **state)
{
    char *m;

    (void)state;
    need_watcher();
    m = map(NULL, PAGES, MAP_PRIVATE);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mdapl_dapl_memwatch_add(w, range(m + 2 * page, 1)), 0);
        assert_int_equal(mdapl_dapl_memwatch_add(w, range(m + 3 * page, 1)), 0);
        map(m, PAGES, MAP_PRIVATE | MAP_FIXED);
        expect(m, PAGES);
        madvise(m + 2 * page, page, MADV_DONTNEED);
        expect_nothing();
    }
    munmap(m, PAGES * page);
    expect_nothing();
}

static void too_much_is_everything(void **state)
{
    struct mdapl_dapl_memwatch_range r;
    char *m;
    int n = 0;

    (void)state;
    need_watcher();
    m = map(NULL, 1, MAP_PRIVATE);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m, 1)), 0);
    for (int i = 0; i < 2000; i++)
        madvise(m, page, MADV_DONTNEED);
    sync_with(w);
    assert_true(mdapl_dapl_memwatch_next(w, &r));
    assert_int_equal(r.start, 0);
    assert_int_equal(r.end, UINTPTR_MAX);
    while (mdapl_dapl_memwatch_next(w, &r))
        n++;
    assert_in_range(n, 1, 1999);
    madvise(m, page, MADV_DONTNEED);                 /* and is reported again */
    expect(m, 1);
    expect_nothing();
    munmap(m, page);
    expect(m, 1);
}

static void knows_what_it_cannot_watch(void **state)
{
    struct mdapl_dapl_memwatch *second;
    FILE *f = tmpfile();
    char *m, *s, *of_file, *mixed;

    (void)state;
    need_watcher();
    m = map(NULL, 2, MAP_PRIVATE);
    s = map(NULL, 2, MAP_SHARED);
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), (off_t)page), 0);
    of_file = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(f), 0);
    assert_ptr_not_equal(of_file, MAP_FAILED);
    assert_true(mdapl_dapl_memwatch_add(w, range(of_file, 1)) < 0);
    assert_true(mdapl_dapl_memwatch_shared(w, range(s, 2)));
    assert_false(mdapl_dapl_memwatch_shared(w, range(m, 2)));
    mixed = map(NULL, 3000, MAP_PRIVATE);            /* shared in its middle only */
    assert_false(mdapl_dapl_memwatch_shared(w, range(mixed, 3000)));
    map(mixed + 1500 * page, 1, MAP_SHARED | MAP_FIXED);
    assert_true(mdapl_dapl_memwatch_shared(w, range(mixed, 3000)));
    munmap(mixed, 3000 * page);
    assert_int_equal(mdapl_dapl_memwatch_open(&second), 0);
    assert_int_equal(mdapl_dapl_memwatch_add(second, range(m, 1)), 0);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m, 2)), -EBUSY);
    mdapl_dapl_memwatch_close(second);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m, 2)), 0);
    munmap(of_file, page);
    munmap(s, 2 * page);
    expect_nothing();
    munmap(m, 2 * page);
    expect(m, 2);
    fclose(f);
}

static void child_is_not_watched(void **state)
{
    pid_t pid;
    char *m;
    int status;

    (void)state;
    need_watcher();
    m = map(NULL, 2, MAP_PRIVATE);
    assert_int_equal(mdapl_dapl_memwatch_add(w, range(m, 2)), 0);
    pid = test_fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(madvise(m, page, MADV_DONTNEED) || munmap(m, 2 * page));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    expect_nothing();
    munmap(m, page);                                 /* the parent's change is reported */
    expect(m, 1);
    munmap(m + page, page);
    expect(m + page, 1);
}

/* What was watched when the watcher closed is ordinary memory again. */
static void closes_with_ranges_watched(void **state)
{
    struct mdapl_dapl_memwatch *second;
    char *m;

    (void)state;
    need_watcher();
    m = map(NULL, 2, MAP_PRIVATE);
    assert_int_equal(mdapl_dapl_memwatch_open(&second), 0);
    assert_int_equal(mdapl_dapl_memwatch_add(second, range(m, 2)), 0);
    mdapl_dapl_memwatch_close(second);
    assert_int_equal(munmap(m, 2 * page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_every_change),
        cmocka_unit_test(reports_brk),
        cmocka_unit_test(part_of_a_mapping),
        cmocka_unit_test(same_addresses_again),
        cmocka_unit_test(too_much_is_everything),
        cmocka_unit_test(knows_what_it_cannot_watch),
        cmocka_unit_test(child_is_not_watched),
        cmocka_unit_test(closes_with_ranges_watched),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
