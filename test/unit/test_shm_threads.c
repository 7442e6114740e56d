/* SPDX-License-Identifier: MIT */
/*
 * The shm channel with ranks that are threads, in one address space (one_space.c): TSan sees every
 * word that they share. Inrings, doorbells, cells, sleeping and waking are the channel's own. The
 * traffic has every way of a body, in both directions at once, each checked byte by byte.
 */
#include "unit.h"

#include "cfg.h"
#include "err.h"
#include "os.h"
#include "shm.h"
#include "stats.h"
#include "transport.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 3,
    MESSAGES = 400,              /* from each rank to each other */
    IN_FLIGHT = 6,               /* sends of one rank that may be unfinished */
    LONGEST = 200000,
    WAIT_US = 200,
};

struct rank {
    struct job *job;
    struct mdapl_ctx *ctx;
    int rank, unfinished, received;
    uint32_t sent[RANKS], announced[RANKS];
};

struct job {
    struct rank rank[RANKS];
    char card[RANKS][MDAPL_CARD_MAX];
    bool to_one;                 /* rank 0 only receives, the others send to it */
    atomic_int drained;
    const char *_Atomic wrong;   /* what was; ends all ranks */
};

/* A message's header, and what follows from it. */
struct header {
    uint32_t from, number;
    uint8_t more[MDAPL_HDR_MAX - 8];
};

struct body {
    struct mdapl_op op;
    struct rank *me;
    struct header h;
    size_t len;
    uint8_t bytes[];
};

/* -- messages --------------------------------------------------------------------------------- */

/* In a line, in a slot, in the ring's data, in cells at once, in cells after a CTS. */
static size_t len_of(uint32_t number)
{
    static const size_t most[] = { 8, 40, 100, 3000, 16000, 60000, LONGEST };
    static const uint8_t kind[] = { 0, 1, 2, 0, 3, 1, 2, 4, 0, 5, 1, 3, 2, 0, 6, 1 };

    return number * 7919u % (most[kind[number % sizeof(kind)]] + 1);
}

static size_t hdr_of(uint32_t number)
{
    return 8 + number * 5 % (sizeof(struct header) - 7);
}

static uint8_t byte(const struct header *h, size_t i)
{
    return (uint8_t)(h->number * 131 + h->from * 17 + i * 7 + (i >> 8));
}

static void fill(uint8_t *to, const struct header *h, size_t len)
{
    for (size_t i = 0; i < len; i++)
        to[i] = byte(h, i);
}

static bool right(const uint8_t *p, const struct header *h, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != byte(h, i))
            return false;
    return true;
}

static struct body *body_make(struct rank *me, void (*done)(struct mdapl_op *, int), size_t len)
{
    struct body *b = malloc(sizeof(*b) + len);

    b->op.done = done;
    b->me = me;
    b->len = len;
    return b;
}

static void check(struct rank *me, bool good, const char *what)
{
    if (!good)
        atomic_store(&me->job->wrong, what);
}

/* -- receiving -------------------------------------------------------------------------------- */

static void read_done(struct mdapl_op *op, int status)
{
    struct body *b = (struct body *)(void *)op;

    check(b->me, status == 0, "a read failed");
    check(b->me, right(b->bytes, &b->h, b->len), "a body is not what was sent");
    b->me->received++;
    free(b);
}

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct rank *me = owner;
    size_t len = len_of(me->announced[peer->rank]);
    struct body *b = body_make(me, read_done, len);
    struct iovec v = { b->bytes, len };

    memcpy(&b->h, m->hdr, m->hdr_len);
    check(me, m->hdr_len == hdr_of(me->announced[peer->rank]) && (int)b->h.from == peer->rank
              && b->h.number == me->announced[peer->rank]
              && right(b->h.more, &b->h, m->hdr_len - 8),
          "a header is not what was sent");
    check(me, m->len == len, "a body has another length");
    me->announced[peer->rank]++;
    if (m->data)
        memcpy(b->bytes, m->data, len);
    if (!m->rx || mdapl_rx_read(m->rx, &v, 1, &b->op) == MDAPL_DONE)
        read_done(&b->op, 0);
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    (void)peer, (void)status, (void)why;
    check(owner, false, "a peer was lost");
}

/* -- sending ---------------------------------------------------------------------------------- */

static void send_done(struct mdapl_op *op, int status)
{
    struct body *b = (struct body *)(void *)op;

    check(b->me, status == 0, "a send failed");
    memset(b->bytes, 0xee, b->len);          /* a later read gets wrong bytes */
    b->me->unfinished--;
    free(b);
}

static void send_one(struct rank *me, int to)
{
    uint32_t number = me->sent[to]++;
    struct body *b = body_make(me, send_done, len_of(number));
    struct iovec v = { b->bytes, b->len };
    struct mdapl_msg msg = { &b->h, hdr_of(number), &v, 1, number % 50 == 0 };
    struct mdapl_peer *peer;
    int rc;

    b->h.from = (uint32_t)me->rank;
    b->h.number = number;
    fill(b->h.more, &b->h, sizeof(b->h.more));
    fill(b->bytes, &b->h, b->len);
    me->unfinished++;
    check(me, mdapl_peer_get(me->ctx, to, &peer) == 0, "a peer is out of reach");
    rc = mdapl_send(peer, &msg, &b->op);
    check(me, rc >= 0, "a send was refused");
    if (rc == MDAPL_DONE)
        send_done(&b->op, 0);
}

/* -- one rank --------------------------------------------------------------------------------- */

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    snprintf(buf, len, "%s", ((struct rank *)owner)->job->card[rank]);
    return 0;
}

static void open_rank(struct rank *me)
{
    static const struct mdapl_channel *const channels[] = { &mdapl_shm_channel, NULL };
    static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = &cfg,
        .job = { .rank = me->rank, .size = RANKS, .id = 7, .key = "shm threads key",
                 .card = get_card },
        .barrier = true,
    };

    mdapl_cfg_init(&cfg);
    /* No single copies: TSan does not see what the kernel reads. */
    assert_int_equal(mdapl_cfg_set(&cfg, "shm_single_bytes", "1g", &err), 0);
    assert_int_equal(mdapl_ctx_open(&args, &me->ctx, &err), 0);
    assert_true(mdapl_ctx_card(me->ctx, me->job->card[me->rank], MDAPL_CARD_MAX) > 0);
}

static void advance(struct rank *me)
{
    if (mdapl_progress(me->ctx) == 0)
        mdapl_wait(me->ctx, MDAPL_US(WAIT_US));
}

static bool sends_to(const struct rank *me, int to)
{
    return to != me->rank && (!me->job->to_one || to == 0);
}

static int expected(const struct rank *me)
{
    int n = 0;

    for (int i = 0; i < RANKS; i++)
        n += i != me->rank && sends_to(&me->job->rank[i], me->rank);
    return n * MESSAGES;
}

/* Have all messages been sent and received, or has something gone wrong? */
static bool finished(const struct rank *me)
{
    return atomic_load(&me->job->wrong)
           || (me->received == expected(me) && me->unfinished == 0);
}

/* The next rank that this one has messages for, all in turn; -1: none. */
static int next_target(const struct rank *me)
{
    int to = -1;

    if (atomic_load(&me->job->wrong))
        return -1;
    for (int i = 0; i < RANKS; i++)
        if (sends_to(me, i) && me->sent[i] < MESSAGES && (to < 0 || me->sent[i] < me->sent[to]))
            to = i;
    return to;
}

static void *run(void *arg)
{
    struct rank *me = arg;
    int to;

    while ((to = next_target(me)) >= 0 || !finished(me))
        if (to >= 0 && me->unfinished < IN_FLIGHT)
            send_one(me, to);
        else
            advance(me);
    while (mdapl_drain(me->ctx) > 0 && !atomic_load(&me->job->wrong))
        advance(me);
    /* A rank that has drained makes progress until all have. */
    atomic_fetch_add(&me->job->drained, 1);
    while (atomic_load(&me->job->drained) < RANKS)
        advance(me);
    return NULL;
}

static struct job *start(bool to_one)
{
    struct job *job = calloc(1, sizeof(*job));

    job->to_one = to_one;
    for (int i = 0; i < RANKS; i++) {
        job->rank[i] = (struct rank){ .job = job, .rank = i };
        open_rank(&job->rank[i]);
    }
    for (int i = 0; i < RANKS; i++)
        mdapl_probe(job->rank[i].ctx);
    return job;
}

static void end(struct job *job)
{
    for (int i = 0; i < RANKS; i++)
        mdapl_ctx_close(job->rank[i].ctx);
    free(job);
}

/* Each rank in a thread of its own. */
static void run_threads(struct job *job, void *(*rank)(void *))
{
    pthread_t thread[RANKS];

    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, rank, &job->rank[i]), 0);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    if (job->wrong)
        fail_msg("%s", job->wrong);
}

static void run_all(bool to_one)
{
    struct job *job = start(to_one);
    const struct mdapl_stats *stats = mdapl_ctx_stats(job->rank[RANKS - 1].ctx);

    run_threads(job, run);
    assert_true(stats->shm_doorbells > 0 && stats->shm_cells > 0);
    /* Where inrings are small there are no pair buffers. */
    assert_true(to_one || stats->shm_pair_bodies > 0 || mdapl_shm_os_inring_max() < LONGEST * 4);
    end(job);
}

static void all_to_all(void **state)
{
    (void)state;
    run_all(false);
}

/* A rank that only receives knows a sender by its ring only. */
static void all_to_one(void **state)
{
    (void)state;
    run_all(true);
}

/* What each rank has written, and all of them read behind the barrier. */
static int written[RANKS];

static void pass(struct rank *me, const struct mdapl_reduce *r)
{
    if (mdapl_barrier_enter(me->ctx, r) == MDAPL_DONE)
        return;
    while (!mdapl_barrier_passed(me->ctx))
        if (mdapl_progress(me->ctx) == 0)
            mdapl_wait(me->ctx, MDAPL_SEC(1));
}

static void add(const void *arg, const void *in, void *inout)
{
    (void)arg;
    *(int *)inout += *(const int *)in;
}

static void *run_barriers(void *arg)
{
    struct rank *me = arg;

    for (int i = 1; i <= MESSAGES; i++) {
        struct mdapl_reduce r = { .own = &i, .len = sizeof(i), .combine = add };

        written[me->rank] = i;
        pass(me, NULL);
        for (int k = 0; k < RANKS; k++)
            check(me, written[k] == i, "a rank has passed a barrier before another one entered it");
        pass(me, &r);
        check(me, *(const int *)mdapl_barrier_result(me->ctx) == RANKS * i, "a sum is wrong");
    }
    return NULL;
}

static void barriers(void **state)
{
    struct job *job = start(false);

    (void)state;
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(mdapl_wire(job->rank[i].ctx), MDAPL_DONE);
    run_threads(job, run_barriers);
    end(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_to_all), cmocka_unit_test(all_to_one), cmocka_unit_test(barriers),
    };

    return RUN(tests);
}
