/* SPDX-License-Identifier: MIT */
/*
 * Two jobs of one node that exchange messages through shared memory: a peer is (group, rank), and
 * the two jobs have a key for each other. All processes are contexts of this one.
 */
#include "unit.h"

#include "cfg.h"
#include "err.h"
#include "quiet.h"
#include "seg.h"
#include "shm.h"
#include "stats.h"
#include "transport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HALF = 3, ALL = 2 * HALF, LONG = 200000, ROUNDS = 100000 };

static const char port_key[MDAPL_KEY_BYTES] = "key of the port";
static const char wrong_key[MDAPL_KEY_BYTES] = "another's key..";

struct world;

struct job {
    struct world *w;
    int first;
    uint32_t id;
};

struct process {
    struct world *w;
    struct job *job;
    struct mdapl_ctx *ctx;
    struct mdapl_group *other;   /* the other job's */
    uint32_t sent[ALL], got[ALL];
    int done, failed, faults;
    char card[MDAPL_CARD_MAX];
};

struct world {
    struct job job[2];
    struct process process[ALL];
    uint64_t now;
    bool passed_on;              /* it is not known where a group's processes are */
};

struct envelope {
    uint32_t from, number;
};

struct transfer {
    struct mdapl_op op;
    struct process *me;
    struct mdapl_rx *rx;
    struct envelope env;
    size_t len;
    uint8_t body[LONG];
};

/* -- the owner -------------------------------------------------------------------------------- */

static uint8_t byte_of(const struct envelope *e, size_t i)
{
    return (uint8_t)(e->from * 31 + e->number * 7 + i * 13 + (i >> 8));
}

static int index_of(const struct mdapl_peer *peer)
{
    const struct job *job = mdapl_peer_group(peer)->owner;

    return job->first + peer->rank;
}

static void read_done(struct mdapl_op *op, int status)
{
    struct transfer *t = (struct transfer *)(void *)op;

    for (size_t i = 0; status == 0 && i < t->len; i++)
        assert_int_equal(t->body[i], byte_of(&t->env, i));
    if (status)
        mdapl_rx_drop(t->rx);
    free(t);
}

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct process *me = owner;
    struct transfer *t = calloc(1, sizeof(*t));
    struct iovec v;
    int rc;

    assert_non_null(t);
    assert_true(m->hdr_len == sizeof(t->env) && m->len <= LONG);
    memcpy(&t->env, m->hdr, sizeof(t->env));
    assert_int_equal(t->env.from, index_of(peer));
    assert_int_equal(t->env.number, me->got[t->env.from]++);
    t->len = m->len;
    t->rx = m->rx;
    t->op.done = read_done;
    if (m->data)
        memcpy(t->body, m->data, m->len);
    v = (struct iovec){ t->body, m->len };
    rc = m->rx ? mdapl_rx_read(m->rx, &v, 1, &t->op) : MDAPL_DONE;
    if (rc)
        read_done(&t->op, rc < 0 ? rc : 0);
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    (void)peer, (void)status, (void)why;
    ((struct process *)owner)->faults++;
}

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    const struct job *job = owner;

    snprintf(buf, len, "%s", job->w->process[job->first + rank].card);
    return 0;
}

/* -- the world -------------------------------------------------------------------------------- */

static void open_one(struct world *w, int i, bool alone)
{
    const struct mdapl_channel *const channels[] = { &mdapl_shm_channel,
                                                     alone ? NULL : &quiet_channel, NULL };
    static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
    struct process *me = &w->process[i];
    struct job *job = &w->job[i / HALF];
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = &cfg,
        .clock = mdapl_clock_manual(&w->now),
        .job = { .rank = i - job->first, .size = HALF, .id = job->id, .key = "key of each job",
                 .card = get_card, .owner = job },
    };

    me->w = w;
    me->job = job;
    mdapl_cfg_init(&cfg);
    assert_int_equal(mdapl_ctx_open(&args, &me->ctx, &err), 0);
    assert_true(mdapl_ctx_card(me->ctx, me->card, sizeof(me->card)) > 0);
}

static int make_world(void **state, bool alone)
{
    struct world *w = calloc(1, sizeof(*w));

    w->now = MDAPL_SEC(1000);
    for (int k = 0; k < 2; k++)
        w->job[k] = (struct job){ w, k * HALF, 77 + (uint32_t)k };
    for (int i = 0; i < ALL; i++)
        open_one(w, i, alone);
    for (int i = 0; i < ALL; i++)
        mdapl_probe(w->process[i].ctx);
    for (int i = 0; i < ALL; i++)
        assert_int_equal(mdapl_wire(w->process[i].ctx), MDAPL_DONE);
    *state = w;
    return 0;
}

static int make(void **state)
{
    return make_world(state, true);
}

static int make_beside(void **state)
{
    return make_world(state, false);
}

static int unmake(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < ALL; i++)
        mdapl_ctx_close(w->process[i].ctx);
    free(w);
    return 0;
}

static bool nowhere_near(void *owner, int rank)
{
    (void)owner, (void)rank;
    return false;
}

static void join(struct process *me, const char *key)
{
    struct job *other = &me->w->job[me->job == &me->w->job[0]];
    struct mdapl_group group = { .size = HALF, .id = other->id, .card = get_card, .owner = other,
                                 .near = me->w->passed_on ? nowhere_near : NULL };

    memcpy(group.key, key, sizeof(group.key));
    assert_int_equal(mdapl_group_add(me->ctx, &group, &me->other), 0);
}

static void part(struct process *me)
{
    assert_int_equal(mdapl_group_remove(me->other), MDAPL_DONE);
    me->other = NULL;
}

static int get_peer(struct world *w, int from, int to, struct mdapl_peer **peer_p)
{
    struct process *me = &w->process[from];
    struct job *job = w->process[to].job;

    return mdapl_group_peer(job == me->job ? mdapl_ctx_job(me->ctx) : me->other, to - job->first,
                            peer_p);
}

static void send_done(struct mdapl_op *op, int status)
{
    struct transfer *t = (struct transfer *)(void *)op;

    t->me->done++;
    t->me->failed += status != 0;
    free(t);
}

static void send_one(struct world *w, int from, int to, size_t len)
{
    struct process *me = &w->process[from];
    struct transfer *t = calloc(1, sizeof(*t));
    struct iovec v = { t->body, len };
    struct mdapl_peer *peer;
    struct mdapl_msg msg = { &t->env, sizeof(t->env), &v, 1, false };
    int rc;

    assert_int_equal(get_peer(w, from, to, &peer), 0);
    *t = (struct transfer){ .op.done = send_done, .me = me,
                            .env = { (uint32_t)from, me->sent[to]++ } };
    for (size_t i = 0; i < len; i++)
        t->body[i] = byte_of(&t->env, i);
    rc = mdapl_send(peer, &msg, &t->op);
    if (rc)
        send_done(&t->op, rc < 0 ? rc : 0);
}

static void round_of_all(struct world *w)
{
    for (int i = 0; i < ALL; i++)
        mdapl_progress(w->process[i].ctx);
    w->now += 1000;
}

/* Rounds until all that was sent has been announced and acknowledged. */
static void run(struct world *w)
{
    size_t left = 1;

    for (int n = 0; left > 0; n++) {
        assert_true(n < ROUNDS);
        round_of_all(w);
        left = 0;
        for (int i = 0; i < ALL; i++) {
            left += mdapl_drain(w->process[i].ctx);
            for (int k = 0; k < ALL; k++)
                left += w->process[i].sent[k] - w->process[k].got[i];
        }
    }
}

/* -- tests ------------------------------------------------------------------------------------ */

/* on_msg() compares the sender of each message with its peer's group and rank. */
static void messages_in_all_directions(void **state)
{
    static const size_t len[] = { 0, 8, 100, 5000, 40000, LONG };
    struct world *w = *state;

    for (int i = 0; i < ALL; i++)
        join(&w->process[i], port_key);
    for (int n = 0; n < 12; n++)
        for (int from = 0; from < ALL; from++)
            for (int to = 0; to < ALL; to++)
                if (to != from)
                    send_one(w, from, to, len[(n + from + to) % 6]);
    run(w);
    for (int i = 0; i < ALL; i++)
        assert_int_equal(w->process[i].faults + w->process[i].failed, 0);
}

/* Neither end reaches the other, so that another channel can have the pair. */
static void nobody_is_reached(struct world *w)
{
    struct mdapl_peer *peer;

    for (int from = 0; from < ALL; from++)
        for (int to = 0; to < ALL; to++)
            if (w->process[from].other && w->process[to].job != w->process[from].job)
                assert_int_equal(get_peer(w, from, to, &peer), -EHOSTUNREACH);
    for (int from = 0; from < ALL; from++)       /* the jobs themselves are not affected */
        for (int to = 0; to < ALL; to++)
            if (to != from && w->process[to].job == w->process[from].job)
                send_one(w, from, to, 100);
    run(w);
}

static void wrong_key_is_refused(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < ALL; i++)
        join(&w->process[i], i < HALF ? port_key : wrong_key);
    nobody_is_reached(w);
}

static void unknown_group_is_refused(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < HALF; i++)
        join(&w->process[i], port_key);
    nobody_is_reached(w);
}

/* Nothing else reaches them, so what is sent waits until the other job has this one's group: also
 * where some of its processes have it already. */
static void group_is_added_later(void **state)
{
    struct world *w = *state;

    w->passed_on = true;
    for (int i = 0; i < HALF; i++)
        join(&w->process[i], port_key);
    for (int n = 0; n < 100; n++)
        for (int k = 0; k < HALF; k++)
            send_one(w, k, HALF + (k + n) % HALF, n % 8 ? 100 : LONG);
    for (int i = HALF; i < ALL; i++) {
        for (int n = 0; n < 3000; n++)
            round_of_all(w);
        for (int k = 0; k < HALF; k++)
            assert_int_equal(w->process[i].got[k], 0);
        join(&w->process[i], port_key);
        send_one(w, i, i - HALF, 100);
    }
    run(w);
    for (int i = 0; i < ALL; i++) {
        assert_int_equal(w->process[i].faults + w->process[i].failed, 0);
        assert_int_equal(mdapl_ctx_stats(w->process[i].ctx)->cr_refused, 0);
    }
}

/* The process that was to be a guest ends, and its entry is another one's. */
static void early_guest_leaves(void **state)
{
    struct world *w = *state;

    for (int n = 0; n < 2 * MDAPL_SHM_GUESTS; n++) {
        join(&w->process[0], port_key);
        send_one(w, 0, HALF, 8);
        w->process[0].sent[HALF] = 0;
        round_of_all(w);
        part(&w->process[0]);
        for (int k = 0; k < 3000; k++)
            round_of_all(w);
    }
    join(&w->process[HALF], port_key);
    join(&w->process[0], port_key);
    send_one(w, 0, HALF, 8);
    run(w);
    assert_int_equal(mdapl_ctx_stats(w->process[HALF].ctx)->cr_refused, 0);
}

static void wrong_key_is_refused_alone(void **state)
{
    struct world *w = *state;

    for (int i = 0; i < ALL; i++)
        join(&w->process[i], i < HALF ? port_key : wrong_key);
    send_one(w, 0, HALF, 8);
    for (int n = 0; w->process[0].faults == 0; n++) {
        assert_true(n < ROUNDS);
        round_of_all(w);
    }
    assert_int_equal(mdapl_ctx_stats(w->process[HALF].ctx)->cr_refused, 1);
    assert_int_equal(w->process[HALF].got[0], 0);
}

/* One end of a pair is quicker: it has removed the peer and sends to it again, while the other one
 * still has the old peer. */
static void peer_is_removed_and_made_again(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;

    for (int i = 0; i < ALL; i++)
        join(&w->process[i], port_key);
    for (int n = 0; n < 2 * MDAPL_SHM_GUESTS; n++) {
        int first = n % 2 ? HALF : 0, second = HALF - first;
        uint32_t before;

        send_one(w, first, second, 8);
        send_one(w, second, first, 8);
        run(w);
        assert_int_equal(get_peer(w, first, second, &peer), 0);
        assert_int_equal(mdapl_peer_remove(peer), MDAPL_DONE);
        before = w->process[second].got[first];
        send_one(w, first, second, n % 8 ? 8 : LONG);
        for (int k = 0; k < 1000; k++)
            round_of_all(w);
        assert_int_equal(w->process[second].got[first], before);
        assert_int_equal(get_peer(w, second, first, &peer), 0);
        assert_int_equal(mdapl_peer_remove(peer), MDAPL_DONE);
        run(w);
    }
    assert_int_equal(w->process[0].failed + w->process[HALF].failed, 0);
}

/* More often than a segment has entries for guests. */
static void removed_and_added_again(void **state)
{
    struct world *w = *state;

    for (int n = 0; n < 2 * MDAPL_SHM_GUESTS; n++) {
        for (int i = 0; i < ALL; i++)
            join(&w->process[i], n % 2 ? wrong_key : port_key);
        for (int k = 0; k < HALF; k++) {
            send_one(w, k, HALF + k, 100);
            send_one(w, HALF + (k + 1) % HALF, k, n % 8 == 0 ? LONG : 8);
        }
        run(w);
        for (int i = 0; i < ALL; i++)
            part(&w->process[(i + n) % ALL]);
    }
    for (int i = 0; i < ALL; i++)
        assert_int_equal(w->process[i].faults + w->process[i].failed, 0);
}

/* What is unfinished ends once; a process that sends to a job which has left is refused. */
static void removal_in_the_middle(void **state)
{
    struct world *w = *state;
    struct mdapl_peer *peer;

    for (int i = 0; i < ALL; i++)
        join(&w->process[i], port_key);
    assert_int_equal(get_peer(w, HALF + 2, 2, &peer), 0);
    send_one(w, 0, HALF, LONG);
    send_one(w, HALF + 1, 1, LONG);
    mdapl_progress(w->process[0].ctx);
    for (int i = 0; i < HALF; i++)
        part(&w->process[i]);
    assert_int_equal(w->process[0].failed, 1);
    send_one(w, HALF + 2, 2, 8);
    for (int n = 0; w->process[HALF + 1].failed == 0 || w->process[HALF + 2].faults == 0; n++) {
        assert_true(n < ROUNDS);
        round_of_all(w);
        w->now += MDAPL_MS(1);
    }
    for (int i = HALF; i < ALL; i++)
        part(&w->process[i]);
    for (int i = 0; i < ALL; i++)
        assert_true(w->process[i].done <= 1);
}

#define TEST(f)        cmocka_unit_test_setup_teardown(f, make, unmake)
#define TEST_BESIDE(f) { #f "_beside", f, make_beside, unmake, NULL }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_in_all_directions),      TEST_BESIDE(messages_in_all_directions),
        TEST_BESIDE(wrong_key_is_refused),     TEST(wrong_key_is_refused_alone),
        TEST_BESIDE(unknown_group_is_refused), TEST(group_is_added_later),
        TEST(early_guest_leaves),              TEST(peer_is_removed_and_made_again),
        TEST(removed_and_added_again),         TEST_BESIDE(removed_and_added_again),
        TEST(removal_in_the_middle),           TEST_BESIDE(removal_in_the_middle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
