/* SPDX-License-Identifier: MIT */
/*
 * One copy (src/shm/cma.c) on a kernel that reads less than requested: this file replaces the
 * system call, and the ranks are in one process.
 */
#include "shm_ranks.h"

#include "iov.h"
#include "min.h"
#include "rndv.h"

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
    struct sending s = { .op.done = ranks_done }, r = s;
    uint32_t number = 1;
    struct mdapl_msg msg = { &number, sizeof(number), from, n_from, false };

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    assert_int_equal(mdapl_send(a->other, &msg, &s.op), 0);
    rounds(b, 1);
    assert_int_equal(ranks_read(b, b->announced[0].rx, to, n_to, &r.op), 0);
    assert_true(r.done == 1 && r.status == 0);
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

/* -- several bodies --------------------------------------------------------------------------- */

enum { BODIES = 20, BODY = 20000, SOME = 4 };

/* Rank 0 sends bodies of these lengths, and the owner of rank 1 reads each in the upcall, one
 * behind the other in sink, but for the first `unread` ones. */
static struct {
    struct sending sent[BODIES], read[BODIES];
    struct mdapl_rx *rx[BODIES];
    size_t len[BODIES], at[BODIES + 1];
    int n, unread, dropped;
    struct mdapl_shm_peer *peer; /* to be lost */
} f;

static enum mdapl_next read_at_once(void *owner, struct mdapl_peer *peer,
                                    const struct mdapl_rx_msg *m)
{
    struct rank *me = owner;
    int i = me->n_announced;
    struct iovec v = { sink + f.at[i], f.len[i] };
    enum mdapl_next next = ranks_on_msg(owner, peer, m);

    f.rx[i] = m->rx;
    if (i >= f.unread)
        assert_int_equal(mdapl_rx_read(m->rx, &v, 1, &f.read[i].op), 0);
    return next;
}

static void send_bodies(struct pair *p, const size_t *len, int n)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    p->rank[0].s->single_from = 0;       /* bodies of middle length are announced */
    mdapl_shm_cma_works(mdapl_shm_peer_of(p->rank[1].other));
    memset(&f, 0, sizeof(f));
    fill_source(MIB, 1);
    f.dropped = -1;
    f.n = n;
    for (int i = 0; i < n; i++) {
        f.sent[i].op.done = f.read[i].op.done = ranks_done;
        f.len[i] = len ? len[i] : BODY;
        f.at[i + 1] = f.at[i] + f.len[i];
        assert_int_equal(send_op(&p->rank[0], (uint32_t)i, f.len[i], false, &f.sent[i].op), 0);
    }
    on_message = read_at_once;
    calls = 0;
}

/* So many bodies, the first ones, have been read. */
static void assert_read(int n)
{
    for (int i = f.unread; i < f.n; i++) {
        assert_int_equal(f.read[i].done, i < n && i != f.dropped);
        assert_int_equal(f.read[i].status, 0);
        if (f.read[i].done)
            assert_memory_equal(source, sink + f.at[i], f.len[i]);
    }
}

static void assert_sent(int n)
{
    for (int i = f.unread; i < f.n; i++) {
        assert_int_equal(f.sent[i].done, i < n);
        assert_int_equal(f.sent[i].status, i == f.dropped ? -ECANCELED : 0);
    }
}

/* Bodies that have been announced one after the other are read by one call, and one FIN ends them:
 * so many, then the owner may be about to send others, or to say where the next one belongs. */
static void together(void **state)
{
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    const struct mdapl_shm_spsc_tx *fins = &mdapl_shm_peer_of(b->other)->tx;
    uint32_t before = fins->next;

    send_bodies(p, NULL, BODIES);
    for (int i = 0; i < BODIES; i += MDAPL_SHM_RNDV_TOGETHER) {
        int n = mdapl_min(i + MDAPL_SHM_RNDV_TOGETHER, BODIES);

        rounds(b, 1);
        assert_int_equal(b->n_announced, n);
        assert_int_equal(calls, i / MDAPL_SHM_RNDV_TOGETHER + 1);
        assert_int_equal(fins->next - before, calls);
        assert_read(n);
        rounds(a, 1);
        assert_sent(n);
    }
    assert_int_equal(stats(b)->shm_single_copies, BODIES);
}

/* Those of one length, with not too many bytes. */
static void a_call_for_each_length(void **state)
{
    static const size_t len[] = { BODY, BODY, 2 * BODY, 2 * BODY, 2 * BODY, LONG, LONG };
    static const int read[] = { 2, 5, 6, 7 };
    struct pair *p = *state;

    send_bodies(p, len, 7);
    for (int i = 0; i < SOME; i++) {
        rounds(&p->rank[1], 1);
        assert_int_equal(calls, i + 1);
        assert_read(read[i]);
    }
    rounds(&p->rank[0], 1);
    assert_sent(7);
}

/* A message whose owner does not say yet where its body belongs ends the round, and for some time
 * each one does: it would be announced sooner than the owner wants it. */
static void one_in_a_round(void **state)
{
    struct pair *p = *state;
    struct rank *b = &p->rank[1];
    int alone = 0;

    send_bodies(p, NULL, BODIES);
    f.unread = 1;
    for (; b->n_announced < BODIES; alone++) {
        int before = b->n_announced;

        rounds(b, 1);
        if (b->n_announced > before + 1)
            break;
    }
    assert_int_equal(alone, 16);
    assert_int_equal(b->n_announced, BODIES);
    assert_read(BODIES);
    mdapl_rx_drop(f.rx[0]);
    rounds(&p->rank[0], 1);
    assert_sent(BODIES);
}

/* A read that the kernel does in part continues where the kernel stopped, in some other body. */
static void short_reads_of_several(void **state)
{
    struct pair *p = *state;

    at_most = 4099;
    send_bodies(p, NULL, SOME);
    rounds(&p->rank[1], 1);
    assert_int_equal(calls, SOME * BODY / 4099 + 1);
    assert_read(SOME);
}

/* They are copied twice, each by itself. */
static void the_kernel_reads_none(void **state)
{
    struct pair *p = *state;

    send_bodies(p, NULL, SOME);
    at_most = 0;
    for (int i = 0; i < 100; i++) {
        rounds(&p->rank[1], 1);
        rounds(&p->rank[0], 1);
    }
    assert_read(SOME);
    assert_sent(SOME);
    assert_int_equal(stats(&p->rank[1])->shm_copies, SOME);
    assert_int_equal(stats(&p->rank[1])->shm_single_copies, 0);
}

static void drops_another(struct mdapl_op *op, int status)
{
    ranks_done(op, status);
    mdapl_rx_drop(f.rx[f.dropped]);
}

/* The owner drops a body of the call when it has been given the one before it. */
static void one_is_dropped(void **state)
{
    struct pair *p = *state;

    send_bodies(p, NULL, SOME);
    f.dropped = 2;
    f.read[1].op.done = drops_another;
    rounds(&p->rank[1], 1);
    assert_read(SOME);
    rounds(&p->rank[0], 1);
    assert_sent(SOME);
}

static void loses_the_peer(struct mdapl_op *op, int status)
{
    ranks_done(op, status);
    mdapl_shm_peer_fail(f.peer, -EPIPE, "for this test");
}

/* The owner finds a fault of the peer when it has been given the first body of a call: the others
 * end with it, though they have been copied. */
static void the_peer_is_lost(void **state)
{
    struct pair *p = *state;

    send_bodies(p, NULL, SOME);
    f.peer = mdapl_shm_peer_of(p->rank[1].other);
    f.read[0].op.done = loses_the_peer;
    rounds(&p->rank[1], 1);
    for (int i = 0; i < SOME; i++) {
        assert_int_equal(f.read[i].done, 1);
        assert_int_equal(f.read[i].status, i > 0 ? -EPIPE : 0);
        if (i > 0)
            mdapl_rx_drop(f.rx[i]);
    }
    rounds(&p->rank[1], 1);
    assert_int_equal(calls, 1);
    assert_sent(0);
}

/* -- reads outside progress ------------------------------------------------------------------- */

/* What is read outside progress is copied in it, long bodies one in a round, so what the owner
 * sends after its reads is in flight before. */
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

/* Of bodies with the same length, those that are not in one piece at an end, and one of which a
 * part is read, are copied by themselves. */
static void one_call_reads_whole_pieces(void **state)
{
    static const int pieces[][2] = { { 1, 1 }, { 1, 2 }, { 1, 1 }, { 2, 1 }, { 1, 1 }, { 1, 1 } };
    enum { N = sizeof(pieces) / sizeof(pieces[0]), IN_PART = 4, PART = 9000 };
    struct pair *p = *state;
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    struct sending sent[N], read[N], rest = { .op.done = ranks_done };
    struct iovec v = { sink + IN_PART * BODY + PART, BODY - PART };

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    a->s->single_from = 0;
    fill_source(MIB, 1);
    for (uint32_t i = 0; i < N; i++) {
        const struct iovec from[2] = { { source, pieces[i][0] == 1 ? BODY : 7 },
                                       { source + 7, BODY - 7 } };

        sent[i] = read[i] = (struct sending){ .op.done = ranks_done };
        assert_int_equal(mdapl_send(a->other, &(struct mdapl_msg){ &i, sizeof(i), from,
                                                                   pieces[i][0], false },
                                    &sent[i].op), 0);
        rounds(b, 1);
    }
    for (int i = 0; i < N; i++) {
        const struct iovec to[2] = { { sink + i * BODY, i == IN_PART        ? PART
                                                        : pieces[i][1] == 1 ? BODY : 5 },
                                     { sink + i * BODY + 5, BODY - 5 } };

        assert_int_equal(mdapl_rx_read(b->announced[i].rx, to, pieces[i][1], &read[i].op), 0);
    }
    calls = 0;
    rounds(b, N);
    assert_int_equal(calls, N);
    for (int i = 0; i < N; i++)
        assert_true(read[i].done == 1 && read[i].status == 0);
    assert_int_equal(ranks_read(b, b->announced[IN_PART].rx, &v, 1, &rest.op), 0);
    assert_true(rest.done == 1 && rest.status == 0);
    rounds(a, 1);
    for (int i = 0; i < N; i++) {
        assert_memory_equal(source, sink + i * BODY, BODY);
        assert_true(sent[i].done == 1 && sent[i].status == 0);
    }
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
                                         SINGLE(together),
                                         SINGLE(a_call_for_each_length),
                                         SINGLE(one_in_a_round), SINGLE(short_reads_of_several),
                                         SINGLE(the_kernel_reads_none), SINGLE(one_is_dropped),
                                         SINGLE(the_peer_is_lost),
                                         SINGLE(reads_wait_for_progress),
                                         SINGLE(one_call_reads_whole_pieces),
                                         SINGLE(a_read_that_waits_fails) };

    return RUN(tests);
}
