/* SPDX-License-Identifier: MIT */
/*
 * Messages between two adapters of one process, for a profiler that counts instructions
 * (benchmarks/counts.py). The adapter is soft0 of dat.conf.
 *
 *   dat_count send|pong|write|empty BYTES COUNT NS
 *
 *   send    COUNT times a send each way, with its receive and both completions
 *   pong    the same, but each send is posted by the side that has just received, so that it
 *           acknowledges the one before
 *   write   COUNT times an RDMA write each way and its completion; the target polls its last byte
 *   empty   COUNT times two dequeues of an event queue that is empty
 *
 * exchange() is what is counted, after as many messages that are not. Time is virtual meanwhile:
 * each dequeue takes NS, about what it takes at full speed. Under a profiler it takes fifty times
 * as long, so work that is done by the clock would be counted fifty times too often, and
 * differently in each run.
 */
#include <dat2/udat.h>

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 22, QLEN = 64, WAIT_US = 60000000 };

static struct side {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async, dto, conn, cr;
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE ep;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
    uint8_t *from, *to;          /* MAX_BYTES each, registered together */
} sides[2];

static void die(const char *what)
{
    fprintf(stderr, "dat_count: %s\n", what);
    exit(1);
}

#define TRY(call)                       \
    do {                                \
        if ((call) != DAT_SUCCESS)      \
            die(#call);                 \
    } while (0)

/* -- time ------------------------------------------------------------------------------------- */

static _Atomic uint64_t virtual_ns;      /* 0: time is real */
static uint64_t dequeue_ns;

/* A dequeue is about to be made. Only this thread changes the time. */
static void tick(void)
{
    uint64_t now = atomic_load_explicit(&virtual_ns, memory_order_relaxed);

    atomic_store_explicit(&virtual_ns, now + dequeue_ns, memory_order_relaxed);
}

/* In place of the C library's, also for the provider. */
int clock_gettime(clockid_t id, struct timespec *t)
{
    uint64_t ns = atomic_load_explicit(&virtual_ns, memory_order_relaxed);

    if (!ns)
        return (int)syscall(SYS_clock_gettime, id, t);
    *t = (struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
    return 0;
}

/* The same. A thread that waits for a time (the helper thread) does not see it come: what is
 * counted takes less. */
int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
    bool real = atomic_load_explicit(&virtual_ns, memory_order_relaxed) == 0;

    return (int)syscall(SYS_ppoll, fds, n, real ? t : NULL, mask, _NSIG / 8);
}

static void make_time_virtual(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    atomic_store(&virtual_ns, (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
}

/* -- two adapters ----------------------------------------------------------------------------- */

static void open_side(struct side *s)
{
    DAT_REGION_DESCRIPTION region;
    DAT_VLEN len;
    DAT_VADDR va;

    TRY(dat_ia_open((DAT_NAME_PTR)(uintptr_t)"soft0", 8, &s->async, &s->ia));
    TRY(dat_pz_create(s->ia, &s->pz));
    TRY(dat_evd_create(s->ia, QLEN, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &s->dto));
    TRY(dat_evd_create(s->ia, QLEN, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &s->conn));
    TRY(dat_evd_create(s->ia, QLEN, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &s->cr));
    TRY(dat_ep_create(s->ia, s->pz, s->dto, s->dto, s->conn, NULL, &s->ep));
    region.for_va = aligned_alloc(4096, 2 * MAX_BYTES);
    if (!region.for_va)
        die("out of memory");
    s->from = region.for_va;
    s->to = s->from + MAX_BYTES;
    memset(s->from, 0, 2 * MAX_BYTES);
    TRY(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, 2 * MAX_BYTES, s->pz,
                       DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &s->lmr, &s->local, &s->key, &len,
                       &va));
}

static DAT_EVENT next_event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT e;
    DAT_COUNT more;

    TRY(dat_evd_wait(evd, WAIT_US, 1, &e, &more));
    if (e.event_number != number)
        die("another event than expected");
    return e;
}

static void connect_sides(void)
{
    struct side *a = &sides[0], *b = &sides[1];
    static DAT_IA_ATTR attr;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;
    DAT_EVENT e;

    TRY(dat_psp_create_any(b->ia, &qual, b->cr, DAT_PSP_CONSUMER_FLAG, &psp));
    TRY(dat_ia_query(b->ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    TRY(dat_ep_connect(a->ep, attr.ia_address_ptr, qual, WAIT_US, 0, NULL, DAT_QOS_BEST_EFFORT,
                       DAT_CONNECT_DEFAULT_FLAG));
    e = next_event(b->cr, DAT_CONNECTION_REQUEST_EVENT);
    TRY(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, b->ep, 0, NULL));
    next_event(a->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
    next_event(b->conn, DAT_CONNECTION_EVENT_ESTABLISHED);
}

static DAT_LMR_TRIPLET triplet(const struct side *s, const uint8_t *at, uint32_t len)
{
    return (DAT_LMR_TRIPLET){ (DAT_VADDR)(uintptr_t)at, len, s->local };
}

static DAT_RETURN dequeue(struct side *s, DAT_EVENT *e)
{
    tick();
    return dat_evd_dequeue(s->dto, e);
}

/* Polls for the next completion and returns its cookie. Between two polls the other side, which has
 * no event, polls as well. */
static uint64_t next_cookie(struct side *s, struct side *other)
{
    DAT_EVENT e;

    while (dequeue(s, &e) != DAT_SUCCESS)
        if (dequeue(other, &e) == DAT_SUCCESS)
            die("the other side has a completion");
    if (e.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS)
        die("a request has failed");
    return e.event_data.dto_completion_event_data.user_cookie.as_64;
}

static void complete(struct side *s, struct side *other, uint64_t cookie)
{
    if (next_cookie(s, other) != cookie)
        die("another completion than expected");
}

static void send_one(struct side *from, struct side *to, uint32_t bytes, uint8_t value)
{
    DAT_LMR_TRIPLET in = triplet(to, to->to, bytes), out = triplet(from, from->from, bytes);
    DAT_DTO_COOKIE cookie = { .as_64 = 1 };

    (void)value;
    TRY(dat_ep_post_recv(to->ep, 1, &in, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    cookie.as_64 = 2;
    TRY(dat_ep_post_send(from->ep, 1, &out, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    complete(to, from, 1);
    complete(from, to, 2);
}

static void pong_one(struct side *from, struct side *to, uint32_t bytes, uint8_t value)
{
    DAT_LMR_TRIPLET in = triplet(to, to->to, bytes), out = triplet(from, from->from, bytes);
    DAT_DTO_COOKIE cookie = { .as_64 = 1 };
    static bool first = true;

    (void)value;
    TRY(dat_ep_post_recv(to->ep, 1, &in, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    cookie.as_64 = 2;
    TRY(dat_ep_post_send(from->ep, 1, &out, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    /* The completion of its own send, and the receive, in the order of the link. */
    if (next_cookie(to, from) + (first ? 2 : next_cookie(to, from)) != 3)
        die("another completion than expected");
    first = false;
}

static void write_one(struct side *from, struct side *to, uint32_t bytes, uint8_t value)
{
    DAT_LMR_TRIPLET out = triplet(from, from->from, bytes);
    DAT_RMR_TRIPLET there = { .virtual_address = (DAT_VADDR)(uintptr_t)to->to,
                              .segment_length = bytes, .rmr_context = to->key };
    const volatile uint8_t *last = to->to + bytes - 1;
    DAT_DTO_COOKIE cookie = { .as_64 = 3 };
    DAT_EVENT e;

    from->from[bytes - 1] = value;
    TRY(dat_ep_post_rdma_write(from->ep, 1, &out, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    do
        if (dequeue(to, &e) == DAT_SUCCESS)
            die("the target of a write has a completion");
    while (*last != value);
    complete(from, to, 3);
}

static void empty_one(struct side *from, struct side *to, uint32_t bytes, uint8_t value)
{
    DAT_EVENT e;

    (void)to, (void)bytes, (void)value;
    if (dequeue(from, &e) == DAT_SUCCESS)
        die("an empty queue has an event");
}

static const struct test {
    const char *name;
    void (*one)(struct side *from, struct side *to, uint32_t bytes, uint8_t value);
} tests[] = {
    { "send", send_one }, { "pong", pong_one }, { "write", write_one }, { "empty", empty_one },
};

static const struct test *find(const char *name)
{
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        if (!strcmp(tests[i].name, name))
            return &tests[i];
    die("no such test");
    return NULL;
}

__attribute__((noinline)) static void exchange(const struct test *t, uint32_t bytes, long count)
{
    for (long i = 0; i < count; i++) {
        t->one(&sides[0], &sides[1], bytes, (uint8_t)(2 * i + 1));
        t->one(&sides[1], &sides[0], bytes, (uint8_t)(2 * i + 2));
    }
}

/* The same, not counted: a profiler tells the two by their names. */
__attribute__((noinline)) static void warm_up(const struct test *t, uint32_t bytes, long count)
{
    for (long i = 0; i < count; i++) {
        t->one(&sides[0], &sides[1], bytes, (uint8_t)(2 * i + 101));
        t->one(&sides[1], &sides[0], bytes, (uint8_t)(2 * i + 102));
    }
}

int main(int argc, char **argv)
{
    const struct test *t = find(argc == 5 ? argv[1] : "");
    unsigned long bytes = strtoul(argv[2], NULL, 10);
    long count = strtol(argv[3], NULL, 10);

    dequeue_ns = strtoul(argv[4], NULL, 10);
    if (bytes < 1 || bytes > MAX_BYTES || count < 1 || dequeue_ns < 1)
        die("BYTES is from 1 to 4 MiB, COUNT and NS at least 1");
    open_side(&sides[0]);
    open_side(&sides[1]);
    connect_sides();
    make_time_virtual();
    warm_up(t, (uint32_t)bytes, count);
    exchange(t, (uint32_t)bytes, count);
    return 0;
}
