/* SPDX-License-Identifier: MIT */
/*
 * One copy (src/shm/cma.c) on a kernel that reads less than requested: this file replaces the
 * system call, and the ranks are in one process.
 */
#include "shm_ranks.h"

#include "iov.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { MAX_RW_COUNT = 0x7ffff000, REALLY_COPIED = 1 << 24 };

static size_t at_most = SIZE_MAX;
static int calls, too_long;

static size_t iov_sum(const struct iovec *v, unsigned long n)
{
    return mdapl_iov_len(v, (int)n);
}

/* As the kernel's, but for no more than at_most bytes, and very long bodies are not touched. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n_here,
                         const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    size_t to = iov_sum(here, n_here), from = iov_sum(there, n_there);
    size_t n = to < from ? to : from;
    struct mdapl_iov src = mdapl_iov_start(there, (int)n_there);
    struct mdapl_iov dst = mdapl_iov_start(here, (int)n_here);
    void *p;

    (void)pid, (void)flags;
    calls++;
    too_long += to > MAX_RW_COUNT || from > MAX_RW_COUNT;
    n = n < at_most ? n : at_most;
    n = n < MAX_RW_COUNT ? n : MAX_RW_COUNT;
    for (size_t done = 0, piece; n < REALLY_COPIED && done < n; done += piece) {
        piece = mdapl_iov_piece(&src, n - done, &p);
        mdapl_iov_scatter(&dst, p, piece);
    }
    return (ssize_t)n;
}

static int make(void **state)
{
    struct pair *p;
    int rc = ranks_make_two(state);

    p = *state;
    p->rank[1].s->single_from = 0;
    on_message = ranks_on_msg;
    calls = too_long = 0;
    at_most = SIZE_MAX;
    return rc;
}

/* Rank 0 sends a body in these pieces, rank 1 reads it into those, in one copy. */
static void one_copy(struct pair *p, const struct iovec *from, int n_from, const struct iovec *to,
                     int n_to)
{
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending s = { .op.done = ranks_done };
    uint32_t number = 1;
    struct mdapl_msg msg = { &number, sizeof(number), from, n_from, false };

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    assert_int_equal(mdapl_send(a->other, &msg, &s.op), 0);
    rounds(b, 1);
    assert_int_equal(ranks_read(b, b->announced[0].rx, to, n_to, NULL), MDAPL_DONE);
    assert_int_equal(stats(b)->shm_single_copies, 1);
    rounds(a, 1);
    assert_true(s.done == 1 && s.status == 0);
}

/* A read that the kernel does in part continues where the kernel stopped. */
static void short_reads(void **state)
{
    const struct iovec from[] = { { source, 1000 }, { source + 1000, LONG - 1000 } };
    const struct iovec to[] = { { sink, 70000 }, { sink + 70000, LONG - 70000 } };

    for (size_t i = 0; i < LONG; i++)
        source[i] = (char)(i * 5 + (i >> 10));
    memset(sink, 0, LONG);
    at_most = 4099;
    one_copy(*state, from, 2, to, 2);
    assert_true(calls > LONG / 4099);
    assert_memory_equal(source, sink, LONG);
}

/* Rank 0 sends a body of LONG bytes, and rank 1 knows it. */
static struct mdapl_rx *announced(struct pair *p, struct sending *sent)
{
    struct rank *b = &p->rank[1];

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    *sent = (struct sending){ .op.done = ranks_done };
    assert_int_equal(send_op(&p->rank[0], (uint32_t)b->n_announced, LONG, false, &sent->op), 0);
    rounds(b, 1);
    return b->announced[b->n_announced - 1].rx;
}

/* An owner that reads each body in the upcall. */
static enum mdapl_next read_at_once(void *owner, struct mdapl_peer *peer,
                                    const struct mdapl_rx_msg *m)
{
    struct rank *me = owner;
    struct iovec v = { sink + (size_t)(me->n_announced % 3) * LONG, LONG };
    enum mdapl_next next = ranks_on_msg(owner, peer, m);

    assert_int_equal(mdapl_rx_read(m->rx, &v, 1, NULL), MDAPL_DONE);
    return next;
}

/* A round of progress ends with such a body: its owner may be about to send others, or to say where
 * the next one belongs. */
static void one_copy_a_round(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending sent[3];

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    for (uint32_t i = 0; i < 3; i++) {
        sent[i] = (struct sending){ .op.done = ranks_done };
        assert_int_equal(send_op(a, i, LONG, false, &sent[i].op), 0);
    }
    on_message = read_at_once;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(b->n_announced, i);
        rounds(b, 1);
        assert_memory_equal(source, sink + i * LONG, LONG);
        rounds(a, 1);
        assert_true(sent[i].done == 1 && sent[i].status == 0);
    }
}

/* What is read outside progress is copied in it, one body in a round, so what the owner sends after
 * its reads is in flight before. */
static void reads_wait_for_progress(void **state)
{
    struct pair *p = *state;
    struct rank *b = &p->rank[1];
    struct sending sent[3], read[3];
    struct mdapl_rx *rx[3];

    for (int i = 0; i < 3; i++)
        rx[i] = announced(p, &sent[i]);
    for (int i = 0; i < 3; i++) {
        struct iovec v = { sink + i * LONG, LONG };

        read[i] = (struct sending){ .op.done = ranks_done };
        assert_int_equal(mdapl_rx_read(rx[i], &v, 1, &read[i].op), 0);
        assert_int_equal(mdapl_rx_read(rx[i], &v, 1, &read[i].op), -EBUSY);
    }
    calls = 0;                   /* the first one has tried whether memory can be read */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(calls, i);
        rounds(b, 1);
        assert_true(read[i].done == 1 && read[i].status == 0);
        assert_memory_equal(source, sink + i * LONG, LONG);
    }
    rounds(&p->rank[0], 1);
    for (int i = 0; i < 3; i++)
        assert_true(sent[i].done == 1 && sent[i].status == 0);
}

/* A peer that is lost before: its memory is not read any more. */
static void a_read_that_waits_fails(void **state)
{
    struct pair *p = *state;
    static struct sending sent;  /* it ends with its rank */
    struct sending read = { .op.done = ranks_done };
    struct iovec v = { sink, LONG };
    struct mdapl_rx *rx = announced(p, &sent);

    assert_int_equal(mdapl_rx_read(rx, &v, 1, &read.op), 0);
    calls = 0;
    mdapl_shm_peer_fail(mdapl_shm_peer_of(p->rank[1].other), -EPIPE, "for this test");
    assert_true(read.done == 1 && read.status == -EPIPE);
    mdapl_rx_drop(rx);
    rounds(&p->rank[1], 1);
    assert_int_equal(calls, 0);
}

/* More than the kernel reads in one call, in pieces that together are more than that as well. */
static void more_than_one_call_reads(void **state)
{
    const size_t len = (size_t)3 << 30;
    char *space = mmap(NULL, len, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const struct iovec from[] = { { space, INT32_MAX }, { space + INT32_MAX, len - INT32_MAX } };
    const struct iovec to[] = { { space, (1 << 30) - 1 },
                                { space + (1 << 30) - 1, len - (1 << 30) + 1 } };

    if (space == MAP_FAILED)
        SKIP_TEST("no 3 GiB of address space");
    one_copy(*state, from, 2, to, 2);
    assert_int_equal(too_long, 0);
    munmap(space, len);
}

#define SINGLE(f) cmocka_unit_test_setup_teardown(f, make, ranks_unmake)

int main(void)
{
    const struct CMUnitTest tests[] = { SINGLE(short_reads), SINGLE(more_than_one_call_reads),
                                         SINGLE(one_copy_a_round),
                                         SINGLE(reads_wait_for_progress),
                                         SINGLE(a_read_that_waits_fails) };

    return RUN(tests);
}
