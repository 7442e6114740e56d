/* SPDX-License-Identifier: MIT */
/*
 * Bodies that both ends copy (src/shm/split.c), at every point where the sender may make progress
 * and where the kernel may refuse: this file replaces the system calls, the ranks are in one
 * process, and the sender makes progress while the receiver copies a part that the test chooses.
 */
#include "shm_ranks.h"

#include "iov.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

enum { NEVER = 1000, PARTS = 16, BODIES = MDAPL_SPLITS + 2 };

static struct {
    int reads, writes;           /* of parts */
    int meet;                    /* the sender makes progress in this read; NEVER: in none */
    int no_read, no_write;       /* the kernel refuses from this one on */
    struct rank *sender;
    char copied[MIB >> 12];      /* how often each page of sink was copied */
} k;

static ssize_t move(const struct iovec *to, unsigned long n_to, const struct iovec *from,
                    unsigned long n_from)
{
    struct mdapl_iov dst = mdapl_iov_start(to, (int)n_to);
    size_t page = (size_t)((char *)to->iov_base - sink) >> 12, n = 0;

    for (unsigned long i = 0; i < n_from; i++)
        n += mdapl_iov_scatter(&dst, from[i].iov_base, from[i].iov_len);
    for (size_t i = 0; i < n >> 12; i++)
        k.copied[page + i]++;
    return (ssize_t)n;
}

static ssize_t refuse(void)
{
    errno = EPERM;
    return -1;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n_here,
                         const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    int n = k.reads;

    (void)pid, (void)flags;
    if (here->iov_len <= sizeof(uint64_t))
        return move(here, n_here, there, n_there);   /* does it work at all */
    k.reads++;
    if (n == k.meet)
        rounds(k.sender, 1);
    return n >= k.no_read ? refuse() : move(here, n_here, there, n_there);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *here, unsigned long n_here,
                          const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    (void)pid, (void)flags;
    return k.writes++ >= k.no_write ? refuse() : move(there, n_there, here, n_here);
}

static void expect(int meet, int no_read, int no_write)
{
    k.reads = k.writes = 0;
    k.meet = meet, k.no_read = no_read, k.no_write = no_write;
    memset(k.copied, 0, sizeof(k.copied));
    memset(sink, 0, MIB);
}

static int make(void **state)
{
    struct pair *p;
    int rc;

    ranks_single_bytes = "-1";
    rc = ranks_make_two(state);
    ranks_single_bytes = "1g";
    p = *state;
    /* As if the node had decided. */
    for (int c = 0; c < MDAPL_SHM_CLASSES; c++)
        p->rank[0].s->seg.head->way[MDAPL_SHM_ONE][c] = MDAPL_SHM_BOTH + 1;
    for (size_t i = 0; i < MIB; i++)
        source[i] = (char)(i * 5 + (i >> 10));
    k.sender = &p->rank[0];
    expect(NEVER, NEVER, NEVER);
    return rc;
}

static struct mdapl_rx *send_len(struct pair *p, struct sending *s, size_t len)
{
    struct rank *b = &p->rank[1];
    int n = b->n_announced;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    *s = (struct sending){ .op.done = ranks_done };
    assert_int_equal(send_op(&p->rank[0], (uint32_t)n, len, false, &s->op), 0);
    rounds(b, 1);
    assert_int_equal(b->n_announced, n + 1);
    return b->announced[n].rx;
}

static struct mdapl_rx *send_body(struct pair *p, struct sending *s)
{
    return send_len(p, s, MIB);
}

/* A body in these pieces at the receiver. */
static void one_body(struct pair *p, const struct iovec *v, int n)
{
    struct sending s, r = { .op.done = ranks_done };
    struct mdapl_rx *rx = send_body(p, &s);

    assert_int_equal(ranks_read(&p->rank[1], rx, v, n, &r.op), 0);
    for (int i = 0; i < 100 && !(r.done && s.done); i++) {
        rounds(&p->rank[0], 1);
        rounds(&p->rank[1], 1);
    }
    assert_true(r.done == 1 && r.status == 0 && s.done == 1 && s.status == 0);
    assert_memory_equal(sink, source, MIB);
}

static void body(struct pair *p)
{
    const struct iovec v = { sink, MIB };

    one_body(p, &v, 1);
}

/* -- tests ------------------------------------------------------------------------------------ */

/* Each page is copied once, whenever the sender makes progress, or when it makes none before the
 * receiver has copied all. */
static void each_part_is_copied_once(void **state)
{
    struct pair *p = *state;

    for (int meet = 0; meet < PARTS; meet++) {
        expect(meet < PARTS - 1 ? meet : NEVER, NEVER, NEVER);
        body(p);
        assert_int_equal(k.reads, meet + 1);
        assert_int_equal(k.writes, PARTS - k.reads);
        for (size_t i = 0; i < sizeof(k.copied); i++)
            assert_int_equal(k.copied[i], 1);
    }
    assert_int_equal(stats(&p->rank[1])->shm_split_copies, PARTS);
    assert_int_equal(stats(&p->rank[0])->shm_cells, 0);
}

/* The sender finds the word of a body that is over in use by the next one. */
static void a_late_sender_takes_nothing(void **state)
{
    struct pair *p = *state;
    const struct iovec v = { sink, MIB };
    static struct sending s[3];
    struct sending r = { .op.done = ranks_done };

    for (int i = 0; i < 3; i++) {
        struct mdapl_rx *rx = send_body(p, &s[i]);

        expect(i < 2 ? NEVER : 3, NEVER, NEVER);
        assert_int_equal(ranks_read(&p->rank[1], rx, &v, 1, &r.op), 0);
        assert_int_equal(r.done, i < 2 ? i + 1 : 2);
    }
    rounds(&p->rank[1], 1);
    assert_true(r.done == 3 && r.status == 0);
    assert_int_equal(k.writes, PARTS - 4);       /* of the last one only */
    for (size_t i = 0; i < sizeof(k.copied); i++)
        assert_int_equal(k.copied[i], 1);
}

/* More bodies at a time than there are words: the others are copied by the receiver alone. They are
 * of two lengths, since some other way is tried after so many of one. */
static void many_at_a_time(void **state)
{
    struct pair *p = *state;
    struct sending s[BODIES], r[BODIES];
    struct mdapl_rx *rx[BODIES];

    for (int i = 0; i < BODIES; i++)
        rx[i] = send_len(p, &s[i], MIB >> i % 2);
    for (int i = 0; i < BODIES; i++) {
        struct iovec v = { sink, MIB >> i % 2 };

        r[i] = (struct sending){ .op.done = ranks_done };
        expect(i % (PARTS - 1), NEVER, NEVER);
        assert_int_equal(ranks_read(&p->rank[1], rx[i], &v, 1, &r[i].op), 0);
        assert_true(r[i].done == (i >= MDAPL_SPLITS));
    }
    assert_int_equal(stats(&p->rank[1])->shm_split_copies, MDAPL_SPLITS);
    assert_int_equal(stats(&p->rank[1])->shm_single_copies, BODIES - MDAPL_SPLITS);
    rounds(&p->rank[1], 1);
    rounds(&p->rank[0], 1);
    for (int i = 0; i < BODIES; i++)
        assert_true(r[i].done == 1 && r[i].status == 0 && s[i].done == 1 && s[i].status == 0);
    body(p);                     /* and then all words are free */
    assert_int_equal(stats(&p->rank[1])->shm_split_copies, MDAPL_SPLITS + 1);
}

/* What the kernel refuses to copy at either end, from some part on, goes through cells, and so do
 * later bodies if it was the receiver; if it was the sender, they are not split. */
static void the_kernel_refuses(void **state)
{
    for (int meet = 0; meet <= 4; meet++)
        for (int no_read = 0; no_read <= 4; no_read++) {
            struct pair *p = *state;

            expect(meet, no_read, NEVER);
            body(p);
            assert_int_equal(k.reads, (meet < no_read ? meet : no_read) + 1);
            assert_int_equal(k.writes, meet <= no_read ? PARTS - meet - 1 : 0);
            if (meet >= no_read) {       /* else the sender took all that would be refused */
                expect(NEVER, NEVER, NEVER);
                body(p);
                assert_int_equal(k.reads + k.writes, 0);
                assert_int_equal(stats(&p->rank[1])->shm_split_copies, 1);
            }
            ranks_unmake(state);
            make(state);
        }
    for (int no_write = 0; no_write <= 4; no_write++) {
        struct pair *p = *state;

        expect(2, NEVER, no_write);
        body(p);
        assert_true(stats(&p->rank[0])->shm_cells > 0);
        body(p);
        assert_int_equal(k.writes, no_write + 1);
        assert_int_equal(stats(&p->rank[1])->shm_split_copies, 1);
        ranks_unmake(state);
        make(state);
    }
}

/* A read of a part of the body, and one into several pieces, which is not split. */
static void parts_and_pieces(void **state)
{
    struct pair *p = *state;
    const struct iovec first = { sink, 700001 }, rest = { sink + 700001, MIB - 700001 };
    const struct iovec v[2] = { { sink, 5 }, { sink + 5, MIB - 5 } };
    struct sending s, r = { .op.done = ranks_done };
    struct mdapl_rx *rx = send_body(p, &s);

    expect(3, NEVER, NEVER);
    assert_int_equal(ranks_read(&p->rank[1], rx, &first, 1, &r.op), 0);
    assert_int_equal(ranks_read(&p->rank[1], rx, &rest, 1, &r.op), -EBUSY);
    rounds(&p->rank[1], 1);
    assert_true(r.done == 1 && r.status == 0);
    expect(NEVER, NEVER, NEVER);
    memcpy(sink, source, 700001);
    assert_int_equal(ranks_read(&p->rank[1], rx, &rest, 1, &r.op), 0);
    assert_true(r.done == 2 && r.status == 0);
    assert_memory_equal(sink, source, MIB);
    rounds(&p->rank[0], 1);
    assert_true(s.done == 1 && s.status == 0);
    assert_int_equal(stats(&p->rank[1])->shm_split_copies, 1);
    one_body(p, v, 2);
    assert_int_equal(stats(&p->rank[1])->shm_single_copies, 1);
}

/* The sender is lost after it has taken parts. */
static void a_lost_sender(void **state)
{
    struct pair *p = *state;
    struct rank *b = &p->rank[1];
    const struct iovec v = { sink, MIB };
    static struct sending s;
    struct sending r = { .op.done = ranks_done };
    struct mdapl_rx *rx = send_body(p, &s);

    expect(0, NEVER, NEVER);
    assert_int_equal(ranks_read(&p->rank[1], rx, &v, 1, &r.op), 0);
    mdapl_shm_peer_fail(mdapl_shm_peer_of(b->other), -EPIPE, "for this test");
    assert_true(r.done == 1 && r.status == -EPIPE);
}

#define SPLIT(f) cmocka_unit_test_setup_teardown(f, make, ranks_unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPLIT(each_part_is_copied_once), SPLIT(a_late_sender_takes_nothing), SPLIT(many_at_a_time),
        SPLIT(the_kernel_refuses), SPLIT(parts_and_pieces), SPLIT(a_lost_sender),
    };

    return RUN(tests);
}
