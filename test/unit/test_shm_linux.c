/* SPDX-License-Identifier: MIT */
/* Effects of src/shm/os_linux.c that the channel's own behaviour does not show. */
#include "unit.h"

#include "seg.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef MDAPL_PORTABLE
enum { PORTABLE = 1 };
#else
enum { PORTABLE = 0 };
#endif

/* The NUMA policy belongs to the memory: it holds in other processes' mappings too. */
static void near_its_owner(void **state)
{
    struct mdapl_shm_seg seg, far;
    uint64_t word = 1;
    int mode = -1;

    (void)state;
    if (PORTABLE)
        SKIP_TEST("built without what only Linux has");
    assert_int_equal(mdapl_shm_seg_make(&seg, 0, 2, &word, false), 0);
    assert_int_equal(mdapl_shm_seg_open(&far, seg.ref, seg.head->token, 0, 2), 0);
    if (syscall(SYS_get_mempolicy, &mode, NULL, 0,
                mdapl_shm_seg_inring(&far, 1).front, MPOL_F_ADDR))
        SKIP_TEST("no memory policies here");
    assert_int_equal(mode, MPOL_PREFERRED);
    mdapl_shm_seg_close(&far);
    mdapl_shm_seg_close(&seg);
}

enum { FLAGS = 512 };                    /* bytes of a line of smaps */

/* The flags of the mapping at p, "" where the kernel does not list it. */
static void mapping_flags(const void *p, char flags[FLAGS])
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char line[FLAGS];
    bool here = false;
    unsigned long from, to;

    *flags = '\0';
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            strcpy(flags, line);
    fclose(f);
}

/* Does madvise() show in smaps, for a mapping of our own? */
static bool advice_counts(void)
{
    size_t len = (size_t)sysconf(_SC_PAGESIZE);
    char flags[FLAGS];
    void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(p, MAP_FAILED);
    madvise(p, len, MADV_NOHUGEPAGE);
    mapping_flags(p, flags);
    munmap(p, len);
    return strstr(flags, " nh") != NULL;
}

/* With huge pages for shared memory an inring would cost 2 MiB. */
static void of_small_pages(void **state)
{
    struct mdapl_shm_seg seg, far;
    uint64_t word = 1;
    char near[FLAGS], other[FLAGS];

    (void)state;
    if (PORTABLE)
        SKIP_TEST("built without what only Linux has");
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK))
        SKIP_TEST("this kernel has no transparent huge pages");
    if (!advice_counts())
        SKIP_TEST("advice about pages has no effect here: an emulator's kernel");
    assert_int_equal(mdapl_shm_seg_make(&seg, 0, 2, &word, false), 0);
    assert_int_equal(mdapl_shm_seg_open(&far, seg.ref, seg.head->token, 0, 2), 0);
    mapping_flags(seg.head, near);
    mapping_flags(far.head, other);
    assert_non_null(strstr(near, " nh"));
    assert_non_null(strstr(other, " nh"));
    mdapl_shm_seg_close(&far);
    mdapl_shm_seg_close(&seg);
}

static long page_faults(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return u.ru_minflt;
}

/* Is the byte at p in memory? */
static bool is_allocated(const void *p)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char in_core = 0;

    assert_int_equal(mincore((void *)((uintptr_t)p & ~(page - 1)), 1, &in_core), 0);
    return in_core & 1;
}

/* Messages of many ranks to one cost it, and each of them, few page faults: none the first ones, in
 * the FIFO, as the kernel maps that with the head, and later ones as their inrings share pages. */
static void first_pieces_share_pages(void **state)
{
    enum { RANKS = 32 };
    struct mdapl_shm_inring_at in;
    struct mdapl_shm_seg seg, far;
    uint64_t word = 1;
    long faults;

    (void)state;
    if (SANITIZED)
        SKIP_TEST("a sanitizer's own memory has page faults, too");
    assert_int_equal(mdapl_shm_seg_make(&seg, 0, RANKS, &word, false), 0);
    assert_int_equal(mdapl_shm_seg_open(&far, seg.ref, seg.head->token, 1, RANKS), -EHOSTUNREACH);
    assert_int_equal(mdapl_shm_seg_open(&far, seg.ref, seg.head->token, 0, RANKS), 0);
    faults = page_faults();
    for (uint32_t i = 0; i < MDAPL_FIFO_SLOTS; i++) {
        assert_true(is_allocated(&seg.head->fifo[i]));
        far.head->fifo[i].number = i;
    }
    /* The kernel may leave out a page that is locked at that moment. */
    assert_in_range(page_faults() - faults, 0, 1);
    for (uint32_t i = 0; i < RANKS; i++) {
        in = mdapl_shm_seg_inring(&far, i);
        in.front->slot[0].at = i;
        in.front->slot[MDAPL_SLOTS_FRONT - 1].at = 1;
        assert_int_equal(mdapl_shm_seg_inring(&seg, i).front->slot[0].at, i);
    }
    assert_in_range(page_faults() - faults, 0, RANKS * 3 / 4);
    mdapl_shm_seg_close(&far);
    mdapl_shm_seg_close(&seg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_its_owner), cmocka_unit_test(of_small_pages),
        cmocka_unit_test(first_pieces_share_pages),
    };

    return RUN(tests);
}
