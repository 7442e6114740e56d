/* SPDX-License-Identifier: MIT */
/*
 * How long bodies are copied (src/shm/way.c), on kernels and processors that are given as costs:
 * this file replaces the system calls, and the test's clock advances by what each copy costs. The
 * ranks are in one process.
 */
#include "shm_ranks.h"

#include "iov.h"
#include "judge.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

enum { RANKS = 3, FEW = 64, ROUNDS = 1000, STREAM = 6 };

/* ns that a KiB costs: one copy by the kernel, two copies in cells or in the ring. */
static unsigned kernel_kib, cells_kib;
static unsigned put_kib;         /* of these, the sender's copy while both ends send */
static unsigned wait_kib;        /* what a sender loses that has to wait for the end of one copy */
static unsigned new_kib;         /* 0, or what places cost that no body has used before */
static const char *used;         /* of the ring's data, up to here; NULL: not at all */
static bool forbidden;
static bool synchronous;         /* so bodies are that go in one direction */
static struct rank *helper;      /* NULL, or the sender, which copies at the same time, ... */
static unsigned helper_kib;      /* ... and what that adds to the time of the receiver's copy */
static uint64_t *now;

static void takes(unsigned kib, size_t bytes)
{
    *now += (uint64_t)kib * (bytes >> 10);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *here, unsigned long n_here,
                         const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    struct mdapl_iov dst = mdapl_iov_start(here, (int)n_here);
    size_t n = 0;

    (void)pid, (void)flags;
    if (forbidden) {
        errno = EPERM;
        return -1;
    }
    for (unsigned long i = 0; i < n_there; i++)
        n += mdapl_iov_scatter(&dst, there[i].iov_base, there[i].iov_len);
    takes(kernel_kib, n);
    if (helper)
        rounds(helper, 1);
    return (ssize_t)n;
}

/* While the receiver copies. */
ssize_t process_vm_writev(pid_t pid, const struct iovec *here, unsigned long n_here,
                          const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    struct mdapl_iov src = mdapl_iov_start(here, (int)n_here);
    size_t n = 0;

    (void)pid, (void)flags;
    for (unsigned long i = 0; i < n_there; i++)
        n += mdapl_iov_gather(&src, there[i].iov_base, there[i].iov_len);
    takes(helper_kib, n);
    return (ssize_t)n;
}

static int make(void **state)
{
    int rc;

    ranks_single_bytes = "-1";
    forbidden = synchronous = false;
    helper = NULL;
    new_kib = wait_kib = helper_kib = 0;
    used = NULL;
    rc = ranks_make(state, RANKS);
    ranks_single_bytes = "1g";
    now = &((struct pair *)*state)->now;
    for (size_t i = 0; i < MIB; i++)
        source[i] = (char)(i * 5 + (i >> 10));
    return rc;
}

/* -- bodies ----------------------------------------------------------------------------------- */

static struct sending reading;
static struct mdapl_rx *unread;

static enum mdapl_next keep(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    (void)owner, (void)peer;
    unread = m->rx;
    if (!m->rx) {                /* it came in the ring, or in the pair buffer */
        bool fresh = m->data + m->len > used;

        memcpy(sink, m->data, m->len);
        used = fresh ? m->data + m->len : used;
        takes(new_kib && fresh ? new_kib : cells_kib, m->len);
        reading.done++;
    }
    return MDAPL_NEXT_GO;
}

/* A round; the cells that the rank has filled in it cost their time. */
static void costly_round(struct rank *me, size_t len, unsigned kib)
{
    uint64_t cells = stats(me)->shm_cells;

    rounds(me, 1);
    if (stats(me)->shm_cells > cells)
        takes(new_kib && cells < MDAPL_CELLS ? new_kib : kib, len);
}

static void both(struct rank *from, struct rank *to, size_t len)
{
    costly_round(from, len, cells_kib);
    rounds(to, 1);
}

/* Rank `from` sends a body that rank `to` reads. */
static void one_body(struct pair *p, int from, int to, size_t len)
{
    struct rank *a = &p->rank[from], *b = &p->rank[to];
    struct sending s = { .op.done = ranks_done };
    struct iovec v = { sink, len };
    int rc;

    reading = (struct sending){ .op.done = ranks_done };
    unread = NULL;
    memset(sink, 0, len);
    assert_int_equal(mdapl_peer_get(a->ctx, to, &a->other), 0);
    rc = send_op(a, 1, len, synchronous, &s.op);
    assert_true(rc >= 0);
    for (int i = 0; i < ROUNDS && !unread && !reading.done; i++)
        rounds(b, 1);
    assert_true(unread || reading.done);
    if (unread && mdapl_rx_read(unread, &v, 1, &reading.op) == MDAPL_DONE)
        reading.done++;
    for (int i = 0; i < ROUNDS && !(reading.done && (rc == MDAPL_DONE || s.done)); i++)
        both(a, b, len);
    assert_true(reading.done == 1 && reading.status == 0);
    assert_memory_equal(sink, source, len);
    if (rc != MDAPL_DONE)
        takes(wait_kib, len);
}

/* n bodies. Returns how many of them were copied once. */
static unsigned long bodies(struct pair *p, int from, int to, size_t len, int n)
{
    uint64_t before = stats(&p->rank[to])->shm_single_copies;

    on_message = keep;
    while (n-- > 0)
        one_body(p, from, to, len);
    on_message = ranks_on_msg;
    return (unsigned long)(stats(&p->rank[to])->shm_single_copies - before);
}

/* n bodies in each direction, by turns. Returns how many were sent in the pair buffer. */
static unsigned long answers(struct pair *p, size_t len, int n)
{
    uint64_t before = stats(&p->rank[0])->shm_pair_bodies + stats(&p->rank[1])->shm_pair_bodies;

    while (n-- > 0) {
        bodies(p, 0, 1, len, 1);
        bodies(p, 1, 0, len, 1);
    }
    return (unsigned long)(stats(&p->rank[0])->shm_pair_bodies
                           + stats(&p->rank[1])->shm_pair_bodies - before);
}

/* Ranks 0 and 1, each with a body of its own under way to the other. */
static struct end {
    struct rank *me;
    struct sending sent, got;
    struct mdapl_rx *rx;
    int rc;                      /* of the send */
} ends[2];

static enum mdapl_next keep_crossing(void *owner, struct mdapl_peer *peer,
                                     const struct mdapl_rx_msg *m)
{
    struct end *e = &ends[owner == ends[1].me];

    (void)peer;
    e->rx = m->rx;
    if (!m->rx) {
        memcpy(sink, m->data, m->len);
        takes(cells_kib, m->len);
        e->got.done++;
    }
    return MDAPL_NEXT_GO;
}

static bool crossed(void)
{
    for (int i = 0; i < 2; i++)
        if (!ends[i].got.done || !(ends[i].rc == MDAPL_DONE || ends[i].sent.done))
            return false;
    return true;
}

/* Sends a body; if it is put into the ring or the pair buffer that takes its time. */
static int put_costly(struct rank *me, int to, size_t len, struct mdapl_op *op)
{
    const struct mdapl_shm_peer *peer = mdapl_shm_peer_of(me->other);
    uint32_t in_ring = peer->tx.used, in_pair = peer->pair.used;
    int rc = send_to(me, to, 1, len, op);
    bool fresh = peer->tx.used != in_ring || peer->pair.used != in_pair;

    assert_true(rc >= 0);
    if (rc == MDAPL_DONE)
        takes(new_kib && fresh ? new_kib : put_kib, len);
    return rc;
}

/* A body in each direction, both sent before one is read: for each of them both cores copy, one
 * after the other, since the ranks do. */
static void crossing(struct pair *p, size_t len)
{
    struct iovec v = { sink, len };

    for (int i = 0; i < 2; i++) {
        ends[i] = (struct end){ .me = &p->rank[i], .sent.op.done = ranks_done,
                                .got.op.done = ranks_done };
        ends[i].rc = put_costly(ends[i].me, !i, len, &ends[i].sent.op);
    }
    for (int n = 0; n < ROUNDS && !crossed(); n++) {
        for (int i = 0; i < 2; i++) {
            struct mdapl_rx *rx;

            costly_round(ends[i].me, len, cells_kib + put_kib);
            rx = ends[i].rx;
            ends[i].rx = NULL;
            if (rx && mdapl_rx_read(rx, &v, 1, &ends[i].got.op) == MDAPL_DONE)
                ends[i].got.done++;
        }
    }
    assert_true(crossed());
}

/* n of these. Returns how many bodies of the 2 n were copied once. */
static unsigned long crossings(struct pair *p, size_t len, int n)
{
    uint64_t before = stats(&p->rank[0])->shm_single_copies + stats(&p->rank[1])->shm_single_copies;

    on_message = keep_crossing;
    while (n-- > 0)
        crossing(p, len);
    on_message = ranks_on_msg;
    return (unsigned long)(stats(&p->rank[0])->shm_single_copies
                           + stats(&p->rank[1])->shm_single_copies - before);
}

/* Bodies from rank 0 to rank 1 until all of the ring's data, whose size the processor's caches
 * decide, has been used, and then as many as a decision needs. */
static void decision(struct pair *p, size_t len)
{
    bodies(p, 0, 1, len, (int)(mdapl_shm_seg_data_bytes(&p->rank[1].s->seg) / len) + FEW);
}

static void fast_kernel(void)
{
    kernel_kib = 40, cells_kib = 100;
}

static void slow_kernel(void)
{
    kernel_kib = 1000, cells_kib = 100;
}

static const size_t lens[] = { 20000, 65536, MDAPL_SHM_EAGER, MDAPL_SHM_EAGER + 1, 300000, MIB };
enum { LENS = sizeof(lens) / sizeof(lens[0]) };

/* -- tests ------------------------------------------------------------------------------------ */

/* A kernel that copies fast copies all bodies but a few, those of middle length included. */
static void a_fast_kernel_is_used(void **state)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    fast_kernel();
    for (int i = 0; i < LENS; i++) {
        decision(*state, lens[i]);
        assert_true(bodies(*state, 0, 1, lens[i], FEW) >= FEW - 6);
    }
}

/* Where the sender makes progress meanwhile, both copy, but for bodies of middle length. */
static void both_ends_are_used(void **state)
{
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    fast_kernel();
    helper = &p->rank[0];
    for (int i = 0; i < LENS; i++) {
        uint64_t before;

        decision(p, lens[i]);
        before = stats(&p->rank[1])->shm_split_copies;
        bodies(p, 0, 1, lens[i], FEW);
        assert_int_equal(stats(&p->rank[1])->shm_split_copies - before >= FEW - 9,
                         lens[i] > MDAPL_SHM_EAGER);
    }
}

static void a_slow_kernel_is_not(void **state)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    slow_kernel();
    for (int i = 0; i < LENS; i++)
        assert_true(bodies(*state, 0, 1, lens[i], 2 * FEW) <= 6);
}

/* The page faults of places that are used for the first time say nothing about later bodies. */
static void new_memory_is_no_cost(void **state)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    slow_kernel();
    new_kib = 20 * kernel_kib;
    for (int i = 0; i < LENS; i++) {
        bodies(*state, 0, 1, lens[i], FEW);
        assert_true(bodies(*state, 0, 1, lens[i], FEW) <= 6);
    }
}

/* Nor do those of the ring's data, of which a body uses a new place each time at first. */
static void new_data_is_no_cost(void **state)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    slow_kernel();
    new_kib = 20 * kernel_kib;
    assert_true(bodies(*state, 0, 1, 30000, 8 * FEW) <= 12);
    assert_true(bodies(*state, 0, 1, 60000, 8 * FEW) <= 12);
    fast_kernel();
    bodies(*state, 0, 1, 60000, 32 * FEW);
    assert_true(bodies(*state, 0, 1, 60000, 8 * FEW) >= 7 * FEW);
}

/* The first decision was right, and then the machine changes. */
static void a_wrong_decision_is_replaced(void **state)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    fast_kernel();
    bodies(*state, 0, 1, 300000, FEW);
    slow_kernel();
    bodies(*state, 0, 1, 300000, 3 * FEW);
    assert_true(bodies(*state, 0, 1, 300000, FEW) <= 6);
}

/* Bodies that answer each other are copied once where that is faster, now and then to measure it,
 * and as soon as it has become faster; never more than the pair buffer holds of them. */
static void answers_are_judged(void **state)
{
    static const size_t some[] = { 20000, MDAPL_SHM_EAGER, MDAPL_PAIR_BYTES };   /* three classes */
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    for (int i = 0; i < 3; i++) {
        slow_kernel();
        assert_in_range(answers(p, some[i], 2 * FEW), 4 * FEW - 40, 4 * FEW - 1);
        fast_kernel();
        answers(p, some[i], 32 * FEW);
        assert_true(answers(p, some[i], FEW) <= 12);
        slow_kernel();
        answers(p, some[i], 16 * FEW);
        assert_true(answers(p, some[i], FEW) >= 2 * FEW - 12);
    }
    assert_int_equal(answers(p, MDAPL_PAIR_BYTES + 1, 2), 0);
}

/* Where each rank copies the bodies that it sends and those that it receives, one copy by the
 * kernel is faster than two although it is slower than either of them; in one direction not. */
static void both_directions_are_judged(void **state)
{
    static const size_t some[] = { 12000, 40000, MDAPL_SHM_EAGER, 300000 };
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    kernel_kib = 150, cells_kib = 100, put_kib = 280;
    for (int i = 0; i < 4; i++) {
        decision(p, some[i]);
        assert_true(bodies(p, 0, 1, some[i], FEW) <= 6);
        crossings(p, some[i], 32 * FEW);
        assert_true(crossings(p, some[i], FEW) >= 2 * FEW - 12);
        bodies(p, 0, 1, some[i], 64 * FEW);
        assert_true(bodies(p, 0, 1, some[i], FEW) <= 6);
    }
}

/* ... also where a copy costs a receiver little, but a sender much, as it does after a while. */
static void both_directions_are_judged_together(void **state)
{
    static const size_t some[] = { 12000, 40000, MDAPL_SHM_EAGER, 300000 };
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    for (int i = 0; i < 4; i++) {
        kernel_kib = 150, cells_kib = put_kib = 40;
        crossings(p, some[i], 16 * FEW);
        assert_true(crossings(p, some[i], FEW) <= 12);
        cells_kib = 60, put_kib = 300;
        crossings(p, some[i], 32 * FEW);
        assert_true(crossings(p, some[i], FEW) >= 2 * FEW - 12);
    }
}

/* Short bodies are announced if they are synchronous, and then judged as longer ones are. */
static void short_synchronous_bodies(void **state)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    synchronous = true;
    fast_kernel();
    bodies(*state, 0, 1, MDAPL_SHM_SHORT, FEW);
    assert_true(bodies(*state, 0, 1, MDAPL_SHM_SHORT, FEW) >= FEW - 12);
    slow_kernel();
    bodies(*state, 0, 1, MDAPL_SHM_SHORT, 3 * FEW);
    assert_true(bodies(*state, 0, 1, MDAPL_SHM_SHORT, FEW) <= 6);
}

/* The first bodies at their places in the ring are no measure of two copies. */
static void new_data_is_no_cost_in_both_directions(void **state)
{
    static const size_t some[] = { 8192, 40000 };
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    kernel_kib = 500, put_kib = 100, cells_kib = 100, new_kib = 2000;
    for (int i = 0; i < 2; i++) {
        unsigned c = mdapl_shm_judge_class(some[i]);
        enum mdapl_shm_way way;

        while ((way = mdapl_shm_node_way(p->rank[0].s, MDAPL_SHM_TWO, c)) == MDAPL_SHM_WAYS)
            crossings(p, some[i], 1);
        assert_int_equal(way, MDAPL_SHM_TWICE);
    }
}

/* ... nor is the time in which bodies went in one direction only, or none did. */
static void a_pause_is_no_cost_in_both_directions(void **state)
{
    enum { LEN = 12000, APART = 200 };
    const unsigned c = mdapl_shm_judge_class(LEN);
    struct pair *p = *state;
    int judge = p->rank[0].s->seg.head->token > p->rank[1].s->seg.head->token;
    enum mdapl_shm_way way;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    kernel_kib = 500, put_kib = 100, cells_kib = 100;
    decision(p, LEN);
    while ((way = mdapl_shm_node_way(p->rank[0].s, MDAPL_SHM_TWO, c)) == MDAPL_SHM_WAYS) {
        crossings(p, LEN, 8);
        if (mdapl_shm_flow_way(mdapl_shm_peer_of(p->rank[0].other), c) == MDAPL_SHM_TWICE) {
            bodies(p, !judge, judge, LEN, APART);
            *now += 1000000000;
        }
    }
    assert_int_equal(way, MDAPL_SHM_TWICE);
}

/* Bodies up to 8 KiB are copied once only while they are in flight in both directions, and nobody
 * times them else. */
static void short_bodies_in_both_directions(void **state)
{
    static const size_t some[] = { MDAPL_SHM_SHORT + 1, 8192 };
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    fast_kernel();
    assert_int_equal(crossings(p, MDAPL_SHM_SHORT, 32 * FEW), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bodies(p, 0, 1, some[i], 8 * FEW), 0);
        assert_in_range(answers(p, some[i], 8 * FEW), 16 * FEW - 40, 16 * FEW);
        assert_int_equal(mdapl_shm_way_comes(mdapl_shm_peer_of(p->rank[1].other), some[i]), 0);
        crossings(p, some[i], 64 * FEW);
        assert_true(crossings(p, some[i], FEW) >= 2 * FEW - 12);
        bodies(p, 0, 1, some[i], 8 * FEW);
    }
}

/* Until both directions are judged, bodies that no core's cache has are copied once in them, and
 * others as in one direction. */
static void both_directions_before_a_decision(void **state)
{
    const unsigned longer = mdapl_shm_judge_class(MIB + 1);
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    crossings(p, 40000, 2);
    for (int i = 0; i < 2; i++) {
        const struct mdapl_shm_peer *peer = mdapl_shm_peer_of(ends[i].me->other);

        for (unsigned c = 0; c < MDAPL_SHM_CLASSES; c++)
            assert_int_equal(mdapl_shm_flow_way(peer, c),
                             c < longer ? MDAPL_SHM_WAYS : MDAPL_SHM_ONCE);
    }
}

/* In a stream the wait for the end of a copy counts, and not if bodies answer each other. */
static void a_stream_is_judged_by_its_pace(void **state)
{
    static const size_t some[] = { 20000, 65536, MDAPL_SHM_EAGER };
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    kernel_kib = 100, cells_kib = 100, wait_kib = 50;
    for (int i = 0; i < 3; i++) {
        decision(p, some[i]);
        assert_true(bodies(p, 0, 1, some[i], FEW) <= 6);
        answers(p, some[i], 32 * FEW);
        assert_true(answers(p, some[i], FEW) <= 12);
        bodies(p, 0, 1, some[i], 64 * FEW);
        assert_true(bodies(p, 0, 1, some[i], FEW) <= 6);
    }
}

/* -- a stream --------------------------------------------------------------------------------- */

static struct streamed {
    struct sending sent, got;
    struct mdapl_rx *rx;
    char sink[LONG];
} stream[STREAM];
static unsigned n_announced;

static enum mdapl_next keep_streamed(void *owner, struct mdapl_peer *peer,
                                     const struct mdapl_rx_msg *m)
{
    (void)owner, (void)peer;
    assert_non_null(m->rx);
    stream[n_announced++].rx = m->rx;
    return MDAPL_NEXT_GO;
}

/* Long bodies from rank 0 to rank 1, all sent before one is read and read before one is complete.
 * Returns how many of them both ends copied. */
static unsigned long streamed(struct pair *p)
{
    struct rank *a = &p->rank[0], *b = &p->rank[1];
    uint64_t before = stats(b)->shm_split_copies;
    bool all = false;

    on_message = keep_streamed;
    n_announced = 0;
    for (int i = 0; i < STREAM; i++) {
        stream[i].sent = stream[i].got = (struct sending){ .op.done = ranks_done };
        memset(stream[i].sink, 0, LONG);
        assert_int_equal(send_to(a, 1, (uint32_t)i, LONG, &stream[i].sent.op), 0);
    }
    for (int i = 0; i < ROUNDS && n_announced < STREAM; i++)
        both(a, b, LONG);
    assert_int_equal(n_announced, STREAM);
    for (int i = 0; i < STREAM; i++) {
        struct iovec v = { stream[i].sink, LONG };

        if (mdapl_rx_read(stream[i].rx, &v, 1, &stream[i].got.op) == MDAPL_DONE)
            stream[i].got.done++;
    }
    for (int i = 0; i < ROUNDS && !all; i++) {
        both(a, b, LONG);
        all = true;
        for (int k = 0; k < STREAM; k++)
            all = all && stream[k].got.done && stream[k].sent.done;
    }
    assert_true(all);
    for (int i = 0; i < STREAM; i++)
        assert_memory_equal(stream[i].sink, source, LONG);
    on_message = ranks_on_msg;
    return (unsigned long)(stats(b)->shm_split_copies - before);
}

/* Bodies that both ends copy overlap: all that have begun end together, and their cost is that of
 * all of them. */
static void a_stream_by_both_ends(void **state)
{
    struct pair *p = *state;
    unsigned long n = 0;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    kernel_kib = 90, cells_kib = 100, helper_kib = 45;
    helper = &p->rank[0];
    for (int i = 0; i < FEW; i++)
        streamed(p);
    for (int i = 0; i < FEW; i++)
        n += streamed(p);
    assert_true(n >= FEW * STREAM * 9 / 10);
}

/* Where the kernel forbids it no body is copied once, and none is announced for nothing. */
static void a_kernel_that_forbids_it(void **state)
{
    struct pair *p = *state;
    uint64_t before;

    forbidden = true;
    fast_kernel();
    for (int i = 0; i < LENS; i++)
        assert_int_equal(bodies(p, 0, 1, lens[i], FEW), 0);
    before = stats(&p->rank[0])->tx_rndv;
    bodies(p, 0, 1, 20000, 8 * FEW);
    assert_true(stats(&p->rank[0])->tx_rndv - before <= 2 * FEW);
}

/* A kernel that forbids it from some body on: that body and all others are copied twice. */
static void a_kernel_that_forbids_it_later(void **state)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    fast_kernel();
    bodies(*state, 0, 1, 300000, FEW);
    forbidden = true;
    assert_int_equal(bodies(*state, 0, 1, 300000, FEW), 0);
    forbidden = false;
}

/* Ranks 1 and 2 use what ranks 0 and 1 have measured, from the first body on. Of the first ten
 * bodies of middle length three go the other way, to measure it. */
static void the_node_measures_once(void **state)
{
    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    fast_kernel();
    for (int i = 0; i < LENS; i++) {
        unsigned long least = lens[i] > MDAPL_SHM_EAGER ? 10 : 10 - 3;

        decision(*state, lens[i]);
        assert_in_range(bodies(*state, 1, 2, lens[i], 10), least, 10);
        assert_in_range(bodies(*state, 2, 0, lens[i], 10), least, 10);
    }
}

/* Once it is decided how they go, most bodies of middle length cost no look at the clock. */
static void few_bodies_are_timed(void **state)
{
    struct pair *p = *state;
    struct mdapl_shm_peer *peer = mdapl_shm_peer_of(p->rank[1].other);
    int timed = 0;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    slow_kernel();
    bodies(p, 0, 1, 40000, 1);
    for (int i = 0; i < FEW; i++)
        assert_true(mdapl_shm_way_comes(peer, 40000) > 0);
    decision(p, 40000);
    for (int i = 0; i < FEW; i++)
        timed += mdapl_shm_way_comes(peer, 40000) > 0;
    assert_int_equal(timed, FEW / 4);
}

/* The knob decides for bodies of middle length, too. */
static void the_knob_decides(void **state)
{
    struct pair *p = *state;

    if (!memory_can_be_read())
        SKIP_TEST("built without what only Linux has");
    slow_kernel();
    for (int i = 0; i < RANKS; i++)
        p->rank[i].s->single_from = 30000;
    assert_int_equal(bodies(p, 0, 1, 29999, FEW), 0);
    assert_int_equal(bodies(p, 0, 1, 30000, FEW), FEW);
    assert_int_equal(bodies(p, 0, 1, 300000, FEW), FEW);
}

#define WAY(f) cmocka_unit_test_setup_teardown(f, make, ranks_unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WAY(a_fast_kernel_is_used), WAY(both_ends_are_used), WAY(a_slow_kernel_is_not),
        WAY(new_memory_is_no_cost),
        WAY(new_data_is_no_cost), WAY(new_data_is_no_cost_in_both_directions),
        WAY(a_wrong_decision_is_replaced), WAY(answers_are_judged),
        WAY(both_directions_are_judged), WAY(both_directions_are_judged_together),
        WAY(a_pause_is_no_cost_in_both_directions),
        WAY(short_synchronous_bodies), WAY(short_bodies_in_both_directions),
        WAY(both_directions_before_a_decision),
        WAY(a_stream_is_judged_by_its_pace), WAY(a_stream_by_both_ends),
        WAY(a_kernel_that_forbids_it), WAY(a_kernel_that_forbids_it_later),
        WAY(the_node_measures_once), WAY(few_bodies_are_timed), WAY(the_knob_decides),
    };

    return RUN(tests);
}
