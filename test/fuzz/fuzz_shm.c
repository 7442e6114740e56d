/* SPDX-License-Identifier: MIT */
/*
 * The shm channel with a peer that writes invalid bytes into shared memory.
 *
 *   fuzz_shm [--seed=N] [--first=N] [--runs=N] [--seconds=N]
 *
 * Each run has three ranks in this process. Rank 1 is hostile: its channel has real traffic with
 * rank 0, and between the steps, inside rank 0's upcalls, and in a part of the runs by a thread all
 * the time, bytes are changed wherever rank 1 could: in its inring in rank 0's segment, in the
 * doorbells, in its own segment; or it sends records of its own making, with ids and lengths that
 * are nearly right. Rank 2 is a bystander. Then: a header has stayed as it was announced, no
 * message has followed a fault, every operation has ended once, and the bystander's messages have
 * arrived (no doorbell is erased once it sends). Runs of one seed are the same, but for those with
 * the thread. Built with sanitizers it looks deeper: no access outside of what there is.
 */
#include "cfg.h"
#include "channel.h"
#include "err.h"
#include "peer.h"
#include "rndv.h"
#include "shm.h"
#include "transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RANKS = 3, VICTIM = 0, HOSTILE = 1, BYSTANDER = 2,
    STEPS = 60, OPS = 20 * STEPS, KEPT = 32,
    LONGEST = 300000, READ_MOST = 200000,
    WELL = 5,                    /* messages of the bystander, each way */
    LAST_ROUNDS = 400,
};

struct op {
    struct mdapl_op op;
    struct rank *me;
    struct mdapl_rx *rx;         /* a read's */
    size_t after;                /* ... bytes of it that will be left */
    char *buf;
    size_t len;                  /* of buf */
    bool pending;
};

struct rank {
    struct mdapl_ctx *ctx;
    struct mdapl_shm_chan *s;
    int rank, faults[RANKS], acked[RANKS];
    struct mdapl_rx *kept[KEPT]; /* bodies that the owner has not finished */
    int n_kept;
    uint64_t sum;                /* of the bytes of bodies that were here: all of them are read */
    struct op op[OPS];
    int n_ops;
};

static struct run {
    struct rank rank[RANKS];
    char card[RANKS][MDAPL_CARD_MAX];
    uint64_t now;
    bool everywhere;             /* the bystander's rings as well */
    bool bystander_sends;
    struct mdapl_shm_inring_at in;    /* rank 1's inring in rank 0's segment */
    pthread_t thread;
    bool threaded;
    atomic_bool stop;
} r;

static uint64_t seed = 1, rng, run;
static char source[LONGEST];

static void die(const char *what)
{
    printf("not ok 1 - fuzz: %s (--seed=%llu, run %llu)\n", what, (unsigned long long)seed,
           (unsigned long long)run);
    fflush(stdout);
    _exit(1);
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t draw(uint64_t n)
{
    return next(&rng) % n;
}

/* -- changing shared memory ------------------------------------------------------------------- */

/* A few bytes of a region: anything, or a word that is nearly what is there. */
static void change(uint8_t *base, size_t len, uint64_t *state)
{
    size_t at = next(state) % (len - 8) & ~(size_t)(next(state) % 2 ? 7 : 0);
    uint64_t word, how = next(state) % 4;

    memcpy(&word, base + at, 8);
    word = how == 0 ? next(state) : how == 1 ? word + 1 - 2 * (next(state) % 2)
           : how == 2 ? word ^ (uint64_t)1 << next(state) % 64 : next(state) % 256;
    memcpy(base + at, &word, how == 3 ? 1 : 8);
}

/* What one rank has of another: NULL before they have met. */
static struct mdapl_shm_peer *peer_at(int here, int rank)
{
    struct mdapl_peer *peer = mdapl_ctx_job(r.rank[here].ctx)->peers[rank];

    return peer ? mdapl_shm_peer_of(peer) : NULL;
}

static uint32_t slot_now(void)
{
    const struct mdapl_shm_peer *peer = peer_at(VICTIM, HOSTILE);

    return (peer ? peer->rx.walk.at + (run & 1) : 0) % MDAPL_SLOTS;
}

/* Somewhere that rank 1 can write. */
static void meddle(uint64_t *state)
{
    struct mdapl_shm_seg *own = &r.rank[HOSTILE].s->seg, *far = &r.rank[VICTIM].s->seg;

    switch (next(state) % 5) {
    case 0:
        if (r.in.front)
            change((uint8_t *)r.in.front, sizeof(*r.in.front), state);
        break;
    case 1:                      /* the message that is being taken, or one of the next */
        if (r.in.front)
            change((uint8_t *)mdapl_shm_slot_at(&r.in, slot_now()), MDAPL_SLOT_BYTES / 2, state);
        break;
    case 2:
        change((uint8_t *)own->head, own->bytes, state);
        break;
    case 3:                      /* a doorbell that is erased may be the bystander's only one */
        if (r.bystander_sends)
            break;
        change((uint8_t *)far->head->doorbell, sizeof(far->head->doorbell), state);
        atomic_store(&far->head->doorbell_words, next(state));
        break;
    default:
        if (r.everywhere)
            change((uint8_t *)far->head, far->bytes, state);
        else
            change((uint8_t *)own->head, sizeof(*own->head), state);
    }
}

static void *meddle_all_the_time(void *arg)
{
    uint64_t state = *(uint64_t *)arg;

    while (!atomic_load(&r.stop)) {
        meddle(&state);
        if (next(&state) % 64 == 0)
            usleep(20);
    }
    return NULL;
}

/* -- writes into rank 1's memory --------------------------------------------------------------- */

/* All ranks are in this process, and a record of rank 1 may name any place of it: only writes to
 * buffers of reads that are in progress are done. */
ssize_t process_vm_writev(pid_t pid, const struct iovec *here, unsigned long n_here,
                          const struct iovec *there, unsigned long n_there, unsigned long flags)
{
    struct mdapl_iov from = mdapl_iov_start(here, (int)n_here);
    char *to = there->iov_base;
    size_t len = mdapl_iov_len(here, (int)n_here);

    (void)pid, (void)n_there, (void)flags;
    for (int i = 0; i < RANKS; i++)
        for (struct op *op = r.rank[i].op; op < r.rank[i].op + r.rank[i].n_ops; op++)
            if (op->pending && to >= op->buf && to < op->buf + op->len
                && len <= (size_t)(op->buf + op->len - to))
                return (ssize_t)mdapl_iov_gather(&from, to, len);
    return draw(2) ? (ssize_t)len : -1;
}

/* -- records of rank 1's making --------------------------------------------------------------- */

/* An id, an offset or a length: small, nearly right, or anything. */
static uint64_t number(void)
{
    static const uint64_t likely[] = { 0, 1, 8, 24, 8192, 16384, 32768, 40000, 65536, LONGEST,
                                       1 << 20, (1 << 20) + 1, UINT32_MAX, UINT64_MAX };
    uint64_t n = likely[draw(sizeof(likely) / sizeof(likely[0]))];

    return draw(4) ? n : draw(8) ? n + draw(3) - 1 : next(&rng);
}

static void forge(void)
{
    static const uint8_t lens[MDAPL_SHM_TYPES] = {
        [MDAPL_SHM_MSG] = 40,
        [MDAPL_SHM_RTS] = 40,
        [MDAPL_SHM_CTS] = sizeof(struct mdapl_shm_cts),
        [MDAPL_SHM_DATA] = sizeof(struct mdapl_shm_data),
        [MDAPL_SHM_SPLIT] = sizeof(struct mdapl_shm_split_at),
        [MDAPL_SHM_SPLIT_END] = sizeof(struct mdapl_shm_split_end),
        [MDAPL_SHM_FIN] = sizeof(struct mdapl_shm_fin),
    };
    struct mdapl_shm_peer *peer = peer_at(HOSTILE, VICTIM);
    uint64_t type = draw(MDAPL_SHM_TYPES + 1), hdr[MDAPL_HDR_MAX / 8], body[130];
    size_t hdr_len = type < MDAPL_SHM_TYPES && draw(4) ? lens[type] : draw(MDAPL_HDR_MAX + 1);
    size_t len = draw(3) ? draw(3) * 8 : draw(sizeof(body));

    for (size_t i = 0; i < sizeof(hdr) / 8; i++)
        hdr[i] = draw(2) ? number() : number() << 32 | (uint32_t)number();
    for (size_t i = 0; i < sizeof(body) / 8; i++)
        body[i] = draw(2) ? number() : number() << 32 | (uint32_t)number();
    /* The first id that a channel gives, and the next ones. */
    if (type >= MDAPL_SHM_CTS && draw(4))
        hdr[0] = (hdr[0] & ~(uint64_t)UINT32_MAX) | 1 << 20 | draw(draw(2) ? 4 : 32);
    if (type == MDAPL_SHM_FIN && draw(4))
        hdr[offsetof(struct mdapl_shm_fin, n) / 8] = draw(MDAPL_SHM_RNDV_TOGETHER + 2);
    if (!peer || peer->dead || !mdapl_shm_tx_put(peer, (int)type, hdr, hdr_len, body, len))
        return;
    r.in = peer->tx.in;
    if (draw(2))
        mdapl_shm_doorbell_ring(peer);
}

/* -- owners ----------------------------------------------------------------------------------- */

static void keep(struct rank *me, struct mdapl_rx *rx)
{
    if (me->n_kept == KEPT)
        mdapl_rx_drop(rx);
    else
        me->kept[me->n_kept++] = rx;
}

static void op_done(struct mdapl_op *base, int status)
{
    struct op *op = (struct op *)(void *)base;

    if (!op->pending)
        die("an operation has ended twice");
    op->pending = false;
    free(op->buf);
    /* After a failure the body has to be dropped; after its last byte it is gone. */
    if (op->rx && status)
        mdapl_rx_drop(op->rx);
    else if (op->rx && op->after > 0)
        keep(op->me, op->rx);
}

static struct op *op_make(struct rank *me, size_t len)
{
    struct op *op = &me->op[me->n_ops++];

    *op = (struct op){ .op.done = op_done, .me = me, .buf = malloc(len + 1), .len = len,
                       .pending = true };
    return op;
}

/* Reads some of a body, or drops it. */
static void go_on(struct rank *me, struct mdapl_rx *rx)
{
    size_t len = draw(2) ? READ_MOST : 1 + draw(READ_MOST);
    struct iovec v;
    struct op *op;
    int rc;

    if (me->n_ops == OPS || draw(5) == 0) {
        mdapl_rx_drop(rx);
        return;
    }
    len = len < rx->left ? len : rx->left;
    op = op_make(me, len);
    op->rx = rx;
    op->after = rx->left - len;
    v = (struct iovec){ op->buf, len };
    rc = mdapl_rx_read(rx, &v, 1, &op->op);
    if (rc)
        op_done(&op->op, rc < 0 ? rc : 0);
}

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    static const enum mdapl_next next[8] = { MDAPL_NEXT_HOLD, MDAPL_NEXT_HOLD, MDAPL_NEXT_LATER };
    struct rank *me = owner;
    uint8_t copy[MDAPL_HDR_MAX];

    if (me->faults[peer->rank])
        die("a message after the fault");
    if (m->hdr_len > sizeof(copy))
        die("a header that is too long");
    memcpy(copy, m->hdr, m->hdr_len);
    me->acked[peer->rank]++;
    for (uint64_t n = draw(4); n > 0 && me->rank == VICTIM && peer->rank == HOSTILE; n--)
        meddle(&rng);
    if (memcmp(copy, m->hdr, m->hdr_len))
        die("a header has changed while it was looked at");
    for (size_t i = 0; m->data && i < m->len; i++)
        me->sum += (uint8_t)m->data[i];
    if (m->rx && draw(2))
        go_on(me, m->rx);
    else if (m->rx)
        keep(me, m->rx);
    return next[draw(8)];
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    struct rank *me = owner;

    if (status >= 0 || !*why || me->faults[peer->rank]++)
        die("a fault that is none, or the second one");
}

static void send_some(struct rank *me, int to)
{
    static const size_t most[] = { 0, 8, 100, 5000, 60000, LONGEST };
    size_t len = draw(most[draw(6)] + 1);
    uint64_t hdr[MDAPL_HDR_MAX / 8] = { 0 };
    struct iovec v[2] = { { source, len / 3 }, { source + len / 3, len - len / 3 } };
    struct mdapl_msg msg = { hdr, draw(sizeof(hdr) + 1), v, 2, draw(4) == 0 };
    struct mdapl_peer *peer;
    struct op *op;
    int rc;

    if (me->n_ops == OPS || mdapl_peer_get(me->ctx, to, &peer))
        return;
    op = op_make(me, 0);
    rc = mdapl_send(peer, &msg, &op->op);
    if (rc)
        op_done(&op->op, rc < 0 ? rc : 0);
}

/* -- one run ---------------------------------------------------------------------------------- */

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    (void)owner;
    snprintf(buf, len, "%s", r.card[rank]);
    return 0;
}

static void *last_state;

static int open_and_look(struct mdapl_ctx *ctx, void **state_p)
{
    int rc = mdapl_shm_channel.open(ctx, state_p);

    last_state = *state_p;
    return rc;
}

static void open_rank(int rank)
{
    static struct mdapl_channel looking;
    static const struct mdapl_channel *const channels[] = { &looking, NULL };
    static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
    static const char *const ways[] = { "1g", "1g", "0", "-1", "-1" };
    struct rank *me = &r.rank[rank];
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = &cfg,
        .clock = mdapl_clock_manual(&r.now),
        .job = { .rank = rank, .size = RANKS, .id = 77, .key = "shm fuzz key", .card = get_card },
    };

    looking = mdapl_shm_channel;
    looking.open = open_and_look;
    me->rank = rank;
    mdapl_cfg_init(&cfg);
    if (mdapl_cfg_set(&cfg, "shm_single_bytes", ways[draw(5)], &err)
        || mdapl_ctx_open(&args, &me->ctx, &err)
        || mdapl_ctx_card(me->ctx, r.card[rank], MDAPL_CARD_MAX) < 0)
        die("a rank does not open");
    me->s = last_state;
    for (int c = 0; c < 2 * MDAPL_SHM_CLASSES; c++)
        me->s->seg.head->way[c % 2][c / 2] = (uint32_t)draw(MDAPL_SHM_WAYS + 2);
}

static void begin(void)
{
    memset(&r, 0, sizeof(r));
    r.now = MDAPL_SEC(1000);
    r.everywhere = draw(4) == 0;
    for (int i = 0; i < RANKS; i++)
        open_rank(i);
    for (int i = 0; i < RANKS; i++)
        mdapl_probe(r.rank[i].ctx);
    for (int i = 0; i < RANKS; i++)
        if (mdapl_wire(r.rank[i].ctx) != MDAPL_DONE)
            die("ranks do not reach each other");
    /* Half of the runs begin with a first message that is sound. */
    if (draw(2) || (r.threaded = draw(4) == 0))
        send_some(&r.rank[HOSTILE], VICTIM);
    /* In some the victim's queue is full, so that records arrive before the messages to which they
     * refer. */
    for (int i = 0, n = draw(8) == 0 ? MDAPL_SLOTS + 4 : 0; i < n; i++)
        send_some(&r.rank[VICTIM], HOSTILE);
    if (r.threaded) {
        static uint64_t state;

        state = rng;
        r.in = peer_at(HOSTILE, VICTIM)->tx.in;
        if (pthread_create(&r.thread, NULL, meddle_all_the_time, &state))
            die("no thread");
    }
}

static void step(void)
{
    struct rank *victim = &r.rank[VICTIM], *hostile = &r.rank[HOSTILE];

    switch (draw(10)) {
    case 0: send_some(victim, HOSTILE); break;
    case 1:
        send_some(hostile, VICTIM);
        r.in = peer_at(HOSTILE, VICTIM)->tx.in;
        break;
    case 2: forge(); break;
    case 3: mdapl_progress(hostile->ctx); break;
    case 4:
        if (victim->n_kept > 0)
            go_on(victim, victim->kept[--victim->n_kept]);
        break;
    case 5:
        if (draw(8) == 0)
            mdapl_wait(victim->ctx, 1000);
        else
            mdapl_resume_all(victim->ctx);
        break;
    case 6: r.now += MDAPL_MS(draw(200)); break;
    case 7:
        if (draw(2))
            meddle(&rng);
        break;
    default: mdapl_progress(victim->ctx);
    }
}

/* The bystander and the victim send to each other. */
static void check_bystander(void)
{
    struct rank *a = &r.rank[VICTIM], *b = &r.rank[BYSTANDER];

    r.bystander_sends = true;
    for (int i = 0; i < WELL; i++) {
        send_some(a, BYSTANDER);
        send_some(b, VICTIM);
    }
    for (int i = 0; i < LAST_ROUNDS; i++) {
        mdapl_progress(a->ctx);
        mdapl_progress(b->ctx);
        mdapl_resume_all(a->ctx);
        mdapl_resume_all(b->ctx);
        for (struct rank *me = a; me <= b; me += BYSTANDER)
            while (me->n_kept > 0)
                go_on(me, me->kept[--me->n_kept]);
    }
    if (a->faults[BYSTANDER] || b->faults[VICTIM])
        die("the bystander is lost");
    if (a->acked[BYSTANDER] != WELL || b->acked[VICTIM] != WELL)
        die("the bystander's messages do not arrive");
}

static void end(void)
{
    atomic_store(&r.stop, true);
    if (r.threaded)
        pthread_join(r.thread, NULL);
    for (int i = 0; i < RANKS; i++)
        while (r.rank[i].n_kept > 0)
            mdapl_rx_drop(r.rank[i].kept[--r.rank[i].n_kept]);
    for (int i = RANKS; i-- > 0;)
        mdapl_ctx_close(r.rank[i].ctx);
    for (int i = 0; i < RANKS; i++)
        for (int k = 0; k < r.rank[i].n_ops; k++)
            if (r.rank[i].op[k].pending)
                die("an operation has not ended");
}

static void one_run(void)
{
    begin();
    for (int i = 0; i < STEPS; i++)
        step();
    if (!r.everywhere && !r.threaded)
        check_bystander();
    end();
}

static uint64_t now_us(void)
{
    const struct mdapl_clock clock = mdapl_clock_system();

    return mdapl_clock_now(&clock) / 1000;
}

int main(int argc, char **argv)
{
    uint64_t runs = UINT64_MAX, seconds = 5, start = now_us(), first = 0;
    unsigned long long n;

    for (int i = 1; i < argc; i++)
        if (sscanf(argv[i], "--seed=%llu", &n) == 1)
            seed = n;
        else if (sscanf(argv[i], "--first=%llu", &n) == 1)
            first = n;
        else if (sscanf(argv[i], "--runs=%llu", &n) == 1)
            runs = n;
        else if (sscanf(argv[i], "--seconds=%llu", &n) == 1)
            seconds = n;
    for (run = first; run - first < runs && now_us() - start < seconds * 1000000; run++) {
        rng = seed * UINT64_C(1000003) + run;
        one_run();
    }
    printf("ok 1 - fuzz: shared memory, %llu runs of seed %llu\n1..1\n",
           (unsigned long long)(run - first), (unsigned long long)seed);
    return 0;
}
