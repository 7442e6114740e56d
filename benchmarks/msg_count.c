/* SPDX-License-Identifier: MIT */
/*
 * Messages between two contexts of one process, for a profiler that counts instructions
 * (benchmarks/counts.py). The channel dapl runs on the fake provider of test/fake, so that what is
 * counted is the device and not a provider; the clock stands still but for that provider's steps.
 *
 *   msg_count CHANNEL BYTES COUNT [KNOB=VALUE...]
 *
 * COUNT times a message of BYTES goes each way: exchange() is what is counted, after as many
 * messages that are not. A body that has to be fetched is read.
 */
#include "cfg.h"
#include "dapl.h"
#include "err.h"
#include "fake.h"
#include "shm.h"
#include "transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum { RANKS = 2, MAX_BYTES = 1 << 22, HEADER = 48 };

static struct rank {
    struct mdapl_ctx *ctx;
    struct mdapl_peer *other;
    struct mdapl_op sent, read;
    char card[MDAPL_CARD_MAX];
    long arrived, to_complete;   /* messages received; operations that are in progress */
    char *from, *to;
} ranks[RANKS];

static const struct mdapl_channel *const all[] = { &mdapl_shm_channel, &mdapl_dapl_channel, NULL };

static void die(const char *what)
{
    fprintf(stderr, "msg_count: %s\n", what);
    exit(1);
}

static void sent(struct mdapl_op *op, int status)
{
    struct rank *me = op == &ranks[0].sent ? &ranks[0] : &ranks[1];

    if (status)
        die("a send failed");
    me->to_complete--;
}

static void arrived(struct mdapl_op *op, int status)
{
    struct rank *me = op == &ranks[0].read ? &ranks[0] : &ranks[1];

    if (status)
        die("a read failed");
    me->arrived++;
}

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct rank *me = owner;
    struct iovec all_of_it = { me->to, MAX_BYTES };
    int rc;

    (void)peer;
    if (!m->rx) {
        memcpy(me->to, m->data, m->len);
        me->arrived++;
        return MDAPL_NEXT_GO;
    }
    all_of_it.iov_len = m->rx->left;
    rc = mdapl_rx_read(m->rx, &all_of_it, 1, &me->read);
    if (rc < 0)
        die("a body is refused");
    me->arrived += rc == MDAPL_DONE;
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    (void)owner, (void)peer, (void)status;
    die(why);
}

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    (void)owner;
    snprintf(buf, len, "%s", ranks[rank].card);
    return 0;
}

static void set(struct mdapl_cfg *cfg, const char *knob, const char *value)
{
    struct mdapl_err err;

    if (mdapl_cfg_set(cfg, knob, value, &err))
        die(err.text);
}

static void open_rank(int rank, const char *channel, char **knobs)
{
    static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
    struct rank *me = &ranks[rank];
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = all, .up = &up, .owner = me, .cfg = &cfg,
        .clock = mdapl_clock_manual(fake_time()),
        .job = { .rank = rank, .size = RANKS, .id = 7, .key = "count the steps", .card = get_card },
    };

    mdapl_cfg_init(&cfg);
    set(&cfg, "channels", channel);
    set(&cfg, "ia", "fake");
    for (; *knobs; knobs++) {
        char *value = strchr(*knobs, '=');

        if (!value)
            die("a knob is NAME=VALUE");
        *value = '\0';
        set(&cfg, *knobs, value + 1);
        *value = '=';
    }
    me->sent.done = sent;
    me->read.done = arrived;
    me->from = calloc(1, MAX_BYTES);
    me->to = malloc(MAX_BYTES);
    if (!me->from || !me->to)
        die("out of memory");
    if (mdapl_ctx_open(&args, &me->ctx, &err))
        die(err.text);
    if (mdapl_ctx_card(me->ctx, me->card, sizeof(me->card)) < 0)
        die("no business card");
}

static void round_of_all(bool fake)
{
    while (fake && fake_step())
        continue;
    for (int i = 0; i < RANKS; i++)
        mdapl_progress(ranks[i].ctx);
}

static void connect_ranks(bool fake)
{
    int up = 0;

    for (int i = 0; i < RANKS; i++)
        mdapl_probe(ranks[i].ctx);
    while (up < RANKS) {
        round_of_all(fake);
        up = 0;
        for (int i = 0; i < RANKS; i++)
            up += mdapl_wire(ranks[i].ctx) == MDAPL_DONE;
    }
    for (int i = 0; i < RANKS; i++)
        if (mdapl_peer_get(ranks[i].ctx, !i, &ranks[i].other))
            die("the other rank is not reached");
}

/* One message from rank `from` to the other one, until it has arrived and its send is done. */
static void message(int from, size_t bytes, bool fake)
{
    static const char header[HEADER];
    struct rank *me = &ranks[from], *to = &ranks[!from];
    struct iovec body = { me->from, bytes };
    struct mdapl_msg msg = { .hdr = header, .hdr_len = HEADER, .body = &body, .n_body = 1 };
    long before = to->arrived;
    int rc = mdapl_send(me->other, &msg, &me->sent);

    if (rc < 0)
        die("a send is refused");
    me->to_complete += rc == 0;
    while (to->arrived == before || me->to_complete > 0)
        round_of_all(fake);
}

static inline void turns(size_t bytes, long count, bool fake)
{
    for (long i = 0; i < count; i++)
        for (int from = 0; from < RANKS; from++)
            message(from, bytes, fake);
}

/* What is counted: its name is an argument of the profiler. */
void exchange(size_t bytes, long count, bool fake);
__attribute__((noinline)) void exchange(size_t bytes, long count, bool fake)
{
    turns(bytes, count, fake);
}

int main(int argc, char **argv)
{
    bool fake = argc > 1 && strcmp(argv[1], "dapl") == 0;
    size_t bytes = argc > 3 ? strtoul(argv[2], NULL, 10) : MAX_BYTES + 1;
    long count = argc > 3 ? strtol(argv[3], NULL, 10) : 0;

    if (bytes > MAX_BYTES || count < 1)
        die("arguments: shm|dapl BYTES COUNT [KNOB=VALUE...]");
    if (fake)
        fake_start(1, NULL, NULL);
    for (int i = 0; i < RANKS; i++)
        open_rank(i, argv[1], argv + 4);
    connect_ranks(fake);
    turns(bytes, count, fake);
    exchange(bytes, count, fake);
    printf("%ld\n", ranks[0].arrived + ranks[1].arrived);
    return 0;
}
