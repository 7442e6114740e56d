/* SPDX-License-Identifier: MIT */
/* Memory that processes share (winseg.h): the proof, the allocation, the robust lock. */
#include "unit.h"

#include "seg.h"
#include "winseg.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 3 * 65536 + 100, TURNS = 20000 };

struct test {
    struct mdapl_shm_winseg *share;
    struct mdapl_shm_winseg_offer offer;
};

static int make(void **state)
{
    static struct test t;

    assert_int_equal(mdapl_shm_winseg_make(BYTES, &t.offer, &t.share), 0);
    *state = &t;
    return 0;
}

static int unmake(void **state)
{
    mdapl_shm_winseg_close(((struct test *)*state)->share);
    return 0;
}

static void ended_well(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* What another process stores is loaded here, and the other way round. */
static void one_memory(void **state)
{
    struct test *t = *state;
    struct mdapl_shm_winseg *theirs;
    char *mine = mdapl_shm_winseg_base(t->share);
    pid_t pid;

    assert_int_equal(mine[0], 0);
    mine[0] = 'a';
    pid = test_fork();
    if (pid == 0) {
        char *p;

        if (mdapl_shm_winseg_open(&t->offer, &theirs))
            _exit(1);
        p = mdapl_shm_winseg_base(theirs);
        p[BYTES - 1] = 'z';
        _exit(p[0] != 'a' || p == mine || mdapl_shm_winseg_bytes(theirs) != BYTES);
    }
    ended_well(pid);
    assert_int_equal(mine[BYTES - 1], 'z');
}

static void refused(struct mdapl_shm_winseg_offer offer, int rc)
{
    struct mdapl_shm_winseg *share;

    assert_int_equal(mdapl_shm_winseg_open(&offer, &share), rc);
    assert_null(share);
}

static void only_what_is_proven(void **state)
{
    struct test *t = *state;
    struct mdapl_shm_winseg_offer o;

    o = t->offer, o.card.token++;
    refused(o, -EHOSTUNREACH);
    o = t->offer, o.card.node++;
    refused(o, -EHOSTUNREACH);
    o = t->offer, o.bytes++;
    refused(o, -EHOSTUNREACH);
    mdapl_shm_winseg_commit(t->share);
    refused(t->offer, -EHOSTUNREACH);
}

static long blocks(const struct test *t)
{
    int fd = mdapl_shm_os_segment_open(t->offer.card.ref, MDAPL_SEG_HEAD_BYTES + BYTES);
    struct stat st;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    close(fd);
    return (long)st.st_blocks;
}

/* The memory of a part is allocated before any store into it. */
static void taken(void **state)
{
    struct test *t = *state;
    long before = blocks(t);

    assert_int_equal(mdapl_shm_winseg_alloc(t->share, 65536, 65536), 0);
    assert_int_equal(blocks(t) - before, 65536 / 512);
    assert_int_equal(mdapl_shm_winseg_alloc(t->share, 0, 0), 0);
    assert_int_equal(mdapl_shm_winseg_alloc(t->share, 0, BYTES), 0);
    assert_true(blocks(t) - before >= BYTES / 512);
}

static void take_turns(struct mdapl_shm_winseg *share, volatile long *count)
{
    for (int i = 0; i < TURNS; i++) {
        mdapl_shm_winseg_lock(share);
        *count = *count + 1;
        mdapl_shm_winseg_unlock(share);
    }
}

static void one_at_a_time(void **state)
{
    struct test *t = *state;
    volatile long *count = mdapl_shm_winseg_base(t->share);
    pid_t pid = test_fork();

    if (pid == 0) {
        struct mdapl_shm_winseg *theirs;

        if (mdapl_shm_winseg_open(&t->offer, &theirs))
            _exit(1);
        take_turns(theirs, mdapl_shm_winseg_base(theirs));
        _exit(0);
    }
    take_turns(t->share, count);
    ended_well(pid);
    assert_int_equal(*count, 2 * TURNS);
}

/* Does the system release the locks of a dead thread? qemu's user mode does not. */
static bool locks_of_the_dead_are_known(void)
{
#ifdef SYS_get_robust_list
    size_t len;
    void *head;

    return syscall(SYS_get_robust_list, 0, &head, &len) == 0;
#else
    return true;
#endif
}

/* A process is killed while it holds the lock: the next one gets it, and the one after that. */
static void lock_of_a_killed_process(void **state)
{
    struct test *t = *state;
    int to_parent[2], status;
    char byte;
    pid_t pid;

    if (!locks_of_the_dead_are_known())
        SKIP_TEST("this system does not know which locks a dead thread held");
    assert_int_equal(pipe(to_parent), 0);
    pid = test_fork();
    if (pid == 0) {
        mdapl_shm_winseg_lock(t->share);
        if (write(to_parent[1], "", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(to_parent[0], &byte, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    for (int i = 0; i < 2; i++) {
        mdapl_shm_winseg_lock(t->share);
        mdapl_shm_winseg_unlock(t->share);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(to_parent[0]), close(to_parent[1]);
}

/* -- what cannot be made ---------------------------------------------------------------------- */

static void not_made(size_t bytes, int rc)
{
    struct mdapl_shm_winseg_offer offer;
    struct mdapl_shm_winseg *share;

    assert_int_equal(mdapl_shm_winseg_make(bytes, &offer, &share), rc);
    assert_null(share);
    assert_int_equal(offer.rc, rc);
    refused(offer, -EHOSTUNREACH);
}

static void too_much(void **state)
{
    (void)state;
    not_made(SIZE_MAX, -ENOMEM);
    not_made(PTRDIFF_MAX, -ENOMEM);
}

static void limited(void **state)
{
    struct rlimit old, limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old, limit.rlim_cur = MDAPL_SEG_HEAD_BYTES + BYTES - 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    not_made(BYTES, -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_memory), TEST(only_what_is_proven), TEST(taken), TEST(one_at_a_time),
        TEST(lock_of_a_killed_process), cmocka_unit_test(too_much), cmocka_unit_test(limited),
    };

    return RUN(tests);
}
