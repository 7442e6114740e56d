/* SPDX-License-Identifier: MIT */
/*
 * The channels through their contract (src/util/transport.h), every rank a process of its own: in
 * shared memory, or on a real DAT provider. What the fake provider's tests show for all orders of
 * events, this shows with the memory, threads and sockets of several processes: every message
 * announced once, in order, with its own bytes; nothing left at the end; no rank waits for ever.
 *
 * The knobs in the environment select the channels and the IA (test/channel/run).
 */
#include "unit.h"

#include "cfg.h"
#include "channel.h"
#include "channels.h"
#include "err.h"
#include "stats.h"
#include "transport.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 6, MAX_KNOBS = 6, LIMIT_S = 600, WAIT_NS = 200 * 1000 };

/* Where bodies lie. */
enum place {
    FRESH,                       /* in memory of their own */
    SAME,                        /* in the same memory each time */
    REMAPPED                     /* at the same address, mapped anew each time */
};

/* What the ranks of one row do. */
struct traffic {
    int ranks, messages;         /* messages to each of the others */
    size_t max_len;
    int in_flight;               /* sends of one rank that may be unfinished */
    bool all_to_one;             /* rank 0 only listens */
    bool all_max;                /* every message is as long as the longest */
    bool late;                   /* bodies are read only when every message has been announced */
    bool drop;                   /* every third body is dropped unread */
    bool sleep;                  /* waiting ranks sleep in mdapl_wait() */
    bool threads;                /* they have a thread that does, and wait for its sleeps to end */
    bool synchronous;
    enum place place;            /* not FRESH: one message in flight, between two ranks */
    const char *knob[MAX_KNOBS][2];
};

struct message {                 /* its header on the wire */
    uint64_t len;
    uint32_t src, number, seed, unused;
};

struct sending {
    struct mdapl_op op;
    struct rank *me;
    uint64_t *body;
};

struct receiving {
    struct mdapl_op op;
    struct rank *me;
    struct mdapl_rx *rx;
    struct message msg;
    uint64_t *body;
    struct receiving *next;
};

/* A thread that only sleeps in mdapl_wait(). The lock is that of the context. */
struct sleeper {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t woke;
    unsigned sleeps;             /* that have ended */
    bool changed;                /* the context, since the last of them began */
    bool running, stop;
};

struct rank {
    const struct traffic *t;
    void *place[2];              /* of the body being sent, of the one being received */
    struct mdapl_ctx *ctx;
    int rank, sends, unfinished, sent[MAX_RANKS];
    int next_number[MAX_RANKS], announced, received;
    struct receiving *late;
    unsigned seed;
    struct sleeper sleeper;
};

/* Between the processes of one row: the launcher. */
static struct shared {
    char card[MAX_RANKS][MDAPL_CARD_MAX];
    atomic_int arrived;
} *shared;

#define CHECK(cond)                                                                         \
    do {                                                                                    \
        if (!(cond)) {                                                                      \
            fprintf(stderr, "pid %d: %s:%d: %s\n", (int)getpid(), __FILE__, __LINE__, #cond); \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)

/* -- bodies: words made from a seed, the last one cut ----------------------------------------- */

static size_t words(size_t len)
{
    return len / 8 + 1;
}

static uint64_t word(const struct message *m, size_t i)
{
    return (m->seed + i) * 0x9e3779b97f4a7c15u ^ m->number;
}

/* Memory for a body that is sent (0) or received (1). */
static uint64_t *body_memory(struct rank *me, int way, size_t len)
{
    size_t bytes = words(me->t->max_len) * 8;
    void *b = me->place[way];

    if (me->t->place == FRESH)
        b = malloc(words(len) * 8);
    else if (!b || me->t->place == REMAPPED)
        b = mmap(b, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | (b ? MAP_FIXED : 0), -1, 0);
    CHECK(b && b != MAP_FAILED);
    if (me->t->place != FRESH)
        me->place[way] = b;
    return b;
}

static void body_free(struct rank *me, uint64_t *b)
{
    if (me->t->place == FRESH)
        free(b);
}

static void body_fill(const struct message *m, uint64_t *b)
{
    for (size_t i = 0; i < words(m->len); i++)
        b[i] = word(m, i);
}

static bool body_right(const struct message *m, const uint64_t *b)
{
    uint64_t last = word(m, m->len / 8);

    for (size_t i = 0; i < m->len / 8; i++)
        if (b[i] != word(m, i))
            return false;
    return memcmp(&b[m->len / 8], &last, m->len % 8) == 0;
}

/* As many short ones as long ones: the length's order of magnitude is drawn first. */
static size_t draw_len(struct rank *me)
{
    size_t top = 1;

    if (me->t->max_len == 0 || me->t->all_max)
        return me->t->max_len;
    for (int k = rand_r(&me->seed) % 24; k > 0 && top < me->t->max_len; k--)
        top *= 2;
    return (size_t)rand_r(&me->seed) % ((top < me->t->max_len ? top : me->t->max_len) + 1);
}

/* -- receiving -------------------------------------------------------------------------------- */

static void read_done(struct mdapl_op *op, int status)
{
    struct receiving *r = (struct receiving *)(void *)op;

    CHECK(status == 0);
    CHECK(body_right(&r->msg, r->body));
    r->me->received++;
    body_free(r->me, r->body);
    free(r);
}

static void take_body(struct receiving *r)
{
    struct iovec v;
    int rc;

    if (r->me->t->drop && r->msg.number % 3 == 0) {
        mdapl_rx_drop(r->rx);
        r->me->received++;
        free(r);
        return;
    }
    r->body = body_memory(r->me, 1, r->msg.len);
    r->op.done = read_done;
    v = (struct iovec){ r->body, r->msg.len };
    rc = mdapl_rx_read(r->rx, &v, 1, &r->op);
    CHECK(rc >= 0);
    if (rc == MDAPL_DONE)
        read_done(&r->op, 0);
}

static void take_or_keep(struct receiving *r)
{
    if (r->me->t->late) {
        r->next = r->me->late;
        r->me->late = r;
    } else {
        take_body(r);
    }
}

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct rank *me = owner;
    struct receiving *r = malloc(sizeof(*r));

    CHECK(r && m->hdr_len == sizeof(r->msg));
    *r = (struct receiving){ .me = me, .rx = m->rx };
    memcpy(&r->msg, m->hdr, sizeof(r->msg));
    CHECK((int)r->msg.src == peer->rank);
    CHECK((int)r->msg.number == me->next_number[r->msg.src]);
    me->next_number[r->msg.src]++;
    me->announced++;
    CHECK(m->len == r->msg.len && (m->rx != NULL) + (m->data != NULL) == (m->len > 0));
    if (m->rx) {
        take_or_keep(r);
    } else {
        r->body = body_memory(me, 1, m->len);
        if (m->data)
            memcpy(r->body, m->data, m->len);
        read_done(&r->op, 0);
    }
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    struct rank *me = owner;

    fprintf(stderr, "rank %d lost rank %d (%d): %s\n", me->rank, peer->rank, status, why);
    _exit(2);
}

/* -- sending ---------------------------------------------------------------------------------- */

static void send_done(struct mdapl_op *op, int status)
{
    struct sending *s = (struct sending *)(void *)op;

    CHECK(status == 0 || (status == -ECANCELED && s->me->t->drop));
    memset(s->body, 0xee, 8);     /* a later read gets wrong bytes */
    s->me->unfinished--;
    body_free(s->me, s->body);
    free(s);
}

static void send_one(struct rank *me, int to)
{
    struct message m = { draw_len(me), (uint32_t)me->rank, (uint32_t)me->sent[to]++,
                         (uint32_t)rand_r(&me->seed), 0 };
    struct sending *s = malloc(sizeof(*s));
    struct mdapl_peer *peer;
    struct iovec v[2];
    struct mdapl_msg msg = { &m, sizeof(m), v, 2, me->t->synchronous };
    int rc;

    CHECK(s);
    *s = (struct sending){ { .done = send_done }, me, body_memory(me, 0, m.len) };
    body_fill(&m, s->body);
    v[0] = (struct iovec){ s->body, m.len / 3 };
    v[1] = (struct iovec){ (char *)s->body + m.len / 3, m.len - m.len / 3 };
    me->unfinished++;
    me->sleeper.changed = true;
    CHECK(mdapl_peer_get(me->ctx, to, &peer) == 0);
    rc = mdapl_send(peer, &msg, &s->op);
    CHECK(rc >= 0);
    if (rc == MDAPL_DONE)
        send_done(&s->op, 0);
}

/* -- a thread that sleeps --------------------------------------------------------------------- */

static void sleep_begin(void *owner)
{
    struct rank *me = owner;

    me->sleeper.changed = false;
    pthread_mutex_unlock(&me->sleeper.lock);
}

static void sleep_end(void *owner)
{
    struct rank *me = owner;

    pthread_mutex_lock(&me->sleeper.lock);
}

/* Its sleeps have no end but an event or mdapl_wake(). */
static void *sleep_always(void *arg)
{
    struct rank *me = arg;

    pthread_mutex_lock(&me->sleeper.lock);
    while (!me->sleeper.stop) {
        mdapl_wait(me->ctx, UINT64_C(3600) * 1000000000);
        me->sleeper.sleeps++;
        pthread_cond_signal(&me->sleeper.woke);
        pthread_mutex_unlock(&me->sleeper.lock);
        sched_yield();
        pthread_mutex_lock(&me->sleeper.lock);
    }
    pthread_mutex_unlock(&me->sleeper.lock);
    return NULL;
}

static void start_sleeper(struct rank *me)
{
    pthread_mutex_init(&me->sleeper.lock, NULL);
    pthread_cond_init(&me->sleeper.woke, NULL);
    pthread_mutex_lock(&me->sleeper.lock);
    CHECK(pthread_create(&me->sleeper.thread, NULL, sleep_always, me) == 0);
    me->sleeper.running = true;
}

static void stop_sleeper(struct rank *me)
{
    me->sleeper.stop = true;
    mdapl_wake(me->ctx);
    pthread_mutex_unlock(&me->sleeper.lock);
    pthread_join(me->sleeper.thread, NULL);
    pthread_mutex_lock(&me->sleeper.lock);       /* the main thread's own sleeps release it, too */
    me->sleeper.running = false;
}

/* Waits until a sleep has ended; one that began before the context changed may be too long. */
static void await_sleeper(struct rank *me)
{
    unsigned before = me->sleeper.sleeps;

    if (me->sleeper.changed)
        mdapl_wake(me->ctx);
    while (me->sleeper.sleeps == before)
        pthread_cond_wait(&me->sleeper.woke, &me->sleeper.lock);
}

/* -- one rank --------------------------------------------------------------------------------- */

static void advance(struct rank *me)
{
    if (mdapl_progress(me->ctx) > 0) {
        me->sleeper.changed = true;
        return;
    }
    if (me->sleeper.running)
        await_sleeper(me);
    else if (me->t->sleep)
        mdapl_wait(me->ctx, WAIT_NS);
    else
        sched_yield();
}

/* The launcher's barrier, as the n-th of its row. */
/* No rank makes progress here: after the last barrier some close while others are still in it. */
static void barrier(struct rank *me, int n)
{
    atomic_fetch_add(&shared->arrived, 1);
    while (atomic_load(&shared->arrived) < n * me->t->ranks)
        sched_yield();
}

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    (void)owner;
    snprintf(buf, len, "%s", shared->card[rank]);
    return 0;
}

static void open_and_wire(struct rank *me)
{
    static const struct mdapl_up one = { .msg = on_msg, .fault = on_fault };
    static const struct mdapl_up several = { .msg = on_msg, .fault = on_fault,
                                             .sleep_begin = sleep_begin, .sleep_end = sleep_end };
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = test_channels, .up = me->t->threads ? &several : &one, .owner = me, .cfg = &cfg,
        .job = { .rank = me->rank, .size = me->t->ranks, .id = (uint32_t)getppid(),
                 .key = "channel test key", .card = get_card },
    };
    int rc = mdapl_cfg_env(&cfg, &err);

    for (int i = 0; rc == 0 && i < MAX_KNOBS && me->t->knob[i][0]; i++)
        rc = mdapl_cfg_set(&cfg, me->t->knob[i][0], me->t->knob[i][1], &err);
    if (rc || mdapl_ctx_open(&args, &me->ctx, &err)) {
        fprintf(stderr, "rank %d: %s\n", me->rank, err.text);
        _exit(3);
    }
    CHECK(mdapl_ctx_card(me->ctx, shared->card[me->rank], MDAPL_CARD_MAX) > 0);
    barrier(me, 1);
    mdapl_probe(me->ctx);
    barrier(me, 2);
    if (me->t->threads)
        start_sleeper(me);
    while ((rc = mdapl_wire(me->ctx)) == 0)
        advance(me);
    if (rc < 0)
        fprintf(stderr, "rank %d: %s\n", me->rank, mdapl_ctx_err(me->ctx)->text);
    CHECK(rc == MDAPL_DONE);
}

/* The next rank that this one still has messages for; -1: none. */
static int next_target(struct rank *me)
{
    int to = rand_r(&me->seed) % me->t->ranks;

    for (int i = 0; i < me->t->ranks; i++, to = (to + 1) % me->t->ranks)
        if (to != me->rank && me->sent[to] < me->t->messages && (to == 0 || !me->t->all_to_one))
            return to;
    return -1;
}

static int expected(const struct rank *me)
{
    if (me->t->all_to_one && me->rank != 0)
        return 0;
    return (me->t->ranks - 1) * me->t->messages;
}

static void exchange(struct rank *me)
{
    int to = next_target(me);

    while (to >= 0 || me->unfinished > 0 || me->received < expected(me)) {
        if (to >= 0 && me->unfinished < me->t->in_flight) {
            send_one(me, to);
            to = next_target(me);
        } else {
            advance(me);
        }
        while (me->announced == expected(me) && me->late) {
            struct receiving *r = me->late;

            me->late = r->next;
            take_body(r);
        }
    }
}

/* Kept registrations are used again, but not those of memory that was unmapped. */
static void check_registrations(const struct rank *me, const struct mdapl_stats *stats)
{
    if (me->t->place == FRESH || !test_registrations_kept())
        return;
    if (me->t->place == SAME)
        CHECK(stats->reg_hits > 4 * stats->reg_misses && stats->reg_invalidated == 0);
    else
        CHECK(stats->reg_invalidated > (uint64_t)me->t->messages / 8);
}

static void run_rank(const struct traffic *t, int rank)
{
    struct rank me = { .t = t, .rank = rank, .seed = (unsigned)rank + 1 };
    const struct mdapl_stats *stats;

    alarm(LIMIT_S);
    open_and_wire(&me);
    exchange(&me);
    stats = mdapl_ctx_stats(me.ctx);
    CHECK(stats->bad_frames == 0);
    /* A peer that runs too seldom is taken for one whose path has failed: frames are replayed. */
    CHECK(stats->dup == 0 || stats->reconnects > 0);
    CHECK(stats->rx_msgs == (uint64_t)expected(&me));
    CHECK(mdapl_ctx_cfg(me.ctx)->rndv != MDAPL_RNDV_RPUT || expected(&me) == 0
          || (stats->rx_rput > 0 && stats->rx_rget == 0));
    check_registrations(&me, stats);
    if (t->threads)
        stop_sleeper(&me);
    while (mdapl_drain(me.ctx) > 0)
        advance(&me);
    barrier(&me, 3);
    mdapl_ctx_close(me.ctx);
}

/* -- the rows --------------------------------------------------------------------------------- */

static const struct traffic sizes = {
    .ranks = 4, .messages = 150, .max_len = 1 << 20, .in_flight = 16, .sleep = true,
};
static const struct traffic long_bodies = {
    .ranks = 2, .messages = 12, .max_len = 32 << 20, .in_flight = 12, .sleep = true,
};
static const struct traffic flood = {
    .ranks = 4, .messages = 4000, .max_len = 64, .in_flight = 100, .all_to_one = true,
    .sleep = true,
};
static const struct traffic polling = {
    .ranks = 3, .messages = 300, .max_len = 20000, .in_flight = 8,
};
static const struct traffic threads = {
    .ranks = 3, .messages = 200, .max_len = 100000, .in_flight = 8, .threads = true,
    .sleep = true, .knob = { { "ring", "off" } },    /* its slots shorten all sleeps */
};
static const struct traffic late = {
    .ranks = 3, .messages = 200, .max_len = 100000, .in_flight = 300, .late = true, .sleep = true,
};
static const struct traffic dropped = {
    .ranks = 3, .messages = 200, .max_len = 100000, .in_flight = 10, .drop = true, .sleep = true,
};
static const struct traffic synchronous = {
    .ranks = 3, .messages = 100, .max_len = 100000, .in_flight = 10, .synchronous = true,
    .sleep = true,
};
static const struct traffic scarce = {
    .ranks = 6, .messages = 60, .max_len = 100000, .in_flight = 10, .sleep = true,
    .knob = { { "sr_window", "2" }, { "ep_requests", "4" }, { "vbuf_size", "512" },
              { "rndv_segment", "4096" } },
};
static const struct traffic copied = {
    .ranks = 3, .messages = 60, .max_len = 1 << 20, .in_flight = 10, .sleep = true,
    .knob = { { "rndv", "copy" } },
};
static const struct traffic written = {
    .ranks = 3, .messages = 30, .max_len = 4 << 20, .in_flight = 10, .sleep = true,
    .knob = { { "rndv", "rput" }, { "channels", "dapl" } },
};
static const struct traffic written_scarce = {
    .ranks = 4, .messages = 60, .max_len = 100000, .in_flight = 10, .sleep = true,
    .knob = { { "sr_window", "2" }, { "ep_requests", "4" }, { "vbuf_size", "512" },
              { "rndv_segment", "4096" }, { "rndv", "rput" }, { "channels", "dapl" } },
};
/* More than 32 bits count: 8 GiB and more of memory, so test/channel/run decides whether it runs.
 * */
static const struct traffic huge = {
    .ranks = 2, .messages = 1, .max_len = ((size_t)4 << 30) + 12345, .in_flight = 1,
    .all_to_one = true, .all_max = true, .sleep = true,
};
static const struct traffic on_demand = {
    .ranks = 6, .messages = 60, .max_len = 100000, .in_flight = 10, .sleep = true,
    .knob = { { "wiring", "ondemand" } },
};

static const struct traffic same_memory = {
    .ranks = 2, .messages = 200, .max_len = 1 << 20, .in_flight = 1, .place = SAME, .sleep = true,
    .knob = { { "reg_cache", "on" }, { "vbuf_size", "8k" }, { "channels", "dapl" } },
};
static const struct traffic remapped_memory = {
    .ranks = 2, .messages = 200, .max_len = 1 << 20, .in_flight = 1, .place = REMAPPED,
    .sleep = true, .knob = { { "reg_cache", "on" }, { "vbuf_size", "8k" }, { "channels", "dapl" } },
};
static const struct traffic few_kept = {
    .ranks = 3, .messages = 100, .max_len = 1 << 20, .in_flight = 10, .sleep = true,
    .knob = { { "reg_cache", "on" }, { "reg_cache_bytes", "256k" } },
};
static const struct traffic none_kept = {
    .ranks = 3, .messages = 60, .max_len = 1 << 20, .in_flight = 10, .sleep = true,
    .knob = { { "reg_cache", "off" } },
};

/* Is the suite built with the channel that the row is for? Most are for any. */
static bool built_with_channel(const struct traffic *t)
{
    const char *name = NULL;

    for (int i = 0; i < MAX_KNOBS && t->knob[i][0]; i++)
        if (strcmp(t->knob[i][0], "channels") == 0)
            name = t->knob[i][1];
    for (int i = 0; name && test_channels[i]; i++)
        if (strcmp(test_channels[i]->name, name) == 0)
            return true;
    return !name;
}

static void run_row(void **state)
{
    const struct traffic *t = *state;
    pid_t pid[MAX_RANKS];
    int status;

    if (!built_with_channel(t))
        SKIP_TEST("built without this channel");
    memset(shared, 0, sizeof(*shared));
    for (int i = 0; i < t->ranks; i++) {
        pid[i] = test_fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            run_rank(t, i);
            exit(0);
        }
    }
    for (int i = 0; i < t->ranks; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        if (status)
            fail_msg("rank %d: %s %d", i, WIFEXITED(status) ? "exit" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
}

#define ROW(t) { #t, run_row, NULL, NULL, (void *)(uintptr_t)&t }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(sizes), ROW(long_bodies), ROW(flood), ROW(polling), ROW(threads), ROW(late),
        ROW(dropped), ROW(synchronous), ROW(scarce), ROW(copied), ROW(written), ROW(written_scarce),
        ROW(on_demand), ROW(same_memory), ROW(remapped_memory), ROW(few_kept), ROW(none_kept),
    };
    const struct CMUnitTest only_huge[] = { ROW(huge) };

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                  0);
    if (shared == MAP_FAILED)
        return 1;
    return getenv("CHANNEL_HUGE") ? RUN(only_huge) : RUN(tests);
}
