/* SPDX-License-Identifier: MIT */
#include "shm_ranks.h"

#include "min.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char source[MIB], sink[MIB];
const char *ranks_single_bytes = "1g";
int ranks_without_barrier = -1;

/* The channel as it is, and its state for the test to look at. */
static void *last_state;

static int open_and_look(struct mdapl_ctx *ctx, void **state_p)
{
    int rc = mdapl_shm_channel.open(ctx, state_p);

    last_state = rc ? NULL : *state_p;
    return rc;
}

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    snprintf(buf, len, "%s", ((struct rank *)owner)->card[rank]);
    return 0;
}

enum mdapl_next ranks_on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct rank *me = owner;
    struct announced *t = &me->announced[me->n_announced++ % KEEP];

    (void)peer;
    assert_int_equal(m->hdr_len, sizeof(t->number));
    memcpy(&t->number, m->hdr, sizeof(t->number));
    t->len = m->len;
    t->rx = m->rx;
    assert_int_equal((m->rx != NULL) + (m->data != NULL), m->len > 0);
    if (m->data)
        memcpy(sink, m->data, m->len);
    return me->next;
}

ranks_msg_fn *on_message = ranks_on_msg;

static enum mdapl_next upcall(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    return on_message(owner, peer, m);
}

void (*ranks_asleep)(struct rank *me);

static void sleep_begin(void *owner)
{
    if (ranks_asleep)
        ranks_asleep(owner);
}

static void sleep_end(void *owner)
{
    (void)owner;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    struct rank *me = owner;

    (void)peer, (void)status;
    me->n_faults++;
    snprintf(me->fault, sizeof(me->fault), "%s", why);
}

void ranks_open(struct pair *p, int rank)
{
    static struct mdapl_channel looking;
    static const struct mdapl_channel *const channels[] = { &looking, NULL };
    static const struct mdapl_up up = { .msg = upcall, .fault = on_fault,
                                        .sleep_begin = sleep_begin, .sleep_end = sleep_end };
    struct rank *me = &p->rank[rank];
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = &cfg,
        .clock = mdapl_clock_manual(&p->now), .barrier = rank != ranks_without_barrier,
        .job = { .rank = rank, .size = p->size ? p->size : p->n, .id = 77, .key = "shm pair key",
                 .card = get_card, .near = p->near },
    };

    looking = mdapl_shm_channel;
    looking.open = open_and_look;
    mdapl_cfg_init(&cfg);
    assert_int_equal(mdapl_cfg_set(&cfg, "shm_single_bytes", ranks_single_bytes, &err), 0);
    me->next = MDAPL_NEXT_GO;
    assert_int_equal(mdapl_ctx_open(&args, &me->ctx, &err), 0);
    me->s = last_state;
    assert_true(mdapl_ctx_card(me->ctx, me->card[rank], MDAPL_CARD_MAX) > 0);
}

static void introduce(struct pair *p)
{
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->n; k++)
            if (i != k)
                strcpy(p->rank[i].card[k], p->rank[k].card[k]);
}

void ranks_open_all(struct pair *p)
{
    for (int i = 0; i < p->n; i++)
        ranks_open(p, i);
    introduce(p);
}

static void reach(struct pair *p)
{
    for (int i = 0; i < p->n; i++)
        mdapl_probe(p->rank[i].ctx);
    for (int i = 0; i < p->n; i++)
        assert_int_equal(mdapl_peer_get(p->rank[i].ctx, !i, &p->rank[i].other), 0);
}

int ranks_make(void **state, int n)
{
    struct pair *p = calloc(1, sizeof(*p));

    p->now = MDAPL_SEC(1000);
    p->n = n;
    ranks_open_all(p);
    reach(p);
    *state = p;
    return 0;
}

int ranks_make_two(void **state)
{
    return ranks_make(state, 2);
}

int ranks_make_many(void **state)
{
    return ranks_make(state, MANY);
}

int ranks_unmake(void **state)
{
    struct pair *p = *state;

    for (int i = 0; i < p->n; i++)
        mdapl_ctx_close(p->rank[i].ctx);
    free(p);
    return 0;
}

/* -- sending ---------------------------------------------------------------------------------- */

int ranks_read(struct rank *me, struct mdapl_rx *rx, const struct iovec *v, int n,
               struct mdapl_op *op)
{
    int rc = mdapl_rx_read(rx, v, n, op);

    if (rc == 0)
        mdapl_shm_rndv_read_waiting(mdapl_shm_peer_of(me->other));
    return rc;
}

void ranks_use_ring(struct rank *me)
{
    assert_true(mdapl_shm_tx_open(mdapl_shm_peer_of(me->other)));
}

void ranks_done(struct mdapl_op *op, int status)
{
    struct sending *s = (struct sending *)(void *)op;

    s->done++;
    s->status = status;
}

static int send_msg(struct mdapl_peer *peer, uint32_t number, size_t len, bool synchronous,
                    struct mdapl_op *op)
{
    struct iovec v = { source, len };
    struct mdapl_msg msg = { &number, sizeof(number), &v, 1, synchronous };

    return mdapl_send(peer, &msg, op);
}

int send_to(struct rank *me, int to, uint32_t number, size_t len, struct mdapl_op *op)
{
    struct mdapl_peer *peer;

    assert_int_equal(mdapl_peer_get(me->ctx, to, &peer), 0);
    return send_msg(peer, number, len, false, op);
}

int send_op(struct rank *me, uint32_t number, size_t len, bool synchronous, struct mdapl_op *op)
{
    return send_msg(me->other, number, len, synchronous, op);
}

int send_now(struct rank *me, uint32_t number, size_t len)
{
    return send_op(me, number, len, false, NULL);
}

size_t longest_in_ring(const struct rank *me)
{
    return mdapl_min(MDAPL_SHM_EAGER,
                     mdapl_shm_spsc_longest(&mdapl_shm_peer_of(me->other)->tx));
}

void fill_source(size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++)
        source[i] = (char)(seed * 31 + i * 7 + (i >> 9));
    memset(sink, 0, sizeof(sink));
}

struct mdapl_rx *last_rx(const struct rank *me)
{
    return me->announced[me->n_announced - 1].rx;
}

void rounds(struct rank *me, int n)
{
    while (n-- > 0)
        mdapl_progress(me->ctx);
}

const struct mdapl_stats *stats(const struct rank *me)
{
    return mdapl_ctx_stats(me->ctx);
}

bool memory_can_be_read(void)
{
    uint64_t from = 1, to = 0;
    struct iovec here = { &to, sizeof(to) }, there = { &from, sizeof(from) };

    return mdapl_shm_os_read(getpid(), &here, 1, &there, 1) == (ssize_t)sizeof(to);
}
