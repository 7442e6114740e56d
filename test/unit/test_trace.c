/* SPDX-License-Identifier: MIT */
/*
 * The connection's table between two ends that send messages, acknowledge and replay them, with a
 * network that loses requests and breaks connections: runs of the Spin model of that protocol
 * (ack_reconnect.traces, made by test/unit/traces), and random steps. After each step the model's
 * assertions hold: every message is delivered once and in order, nothing is acknowledged that has
 * not been delivered, and two ends that are up on one connection agree on its number.
 *
 *   test_trace [STEPS]       random steps, 10000000 unless said
 *
 * Rank 0 sends and rank 1 acknowledges. What is in flight on a connection that one end has left is
 * not received; and no request is made or accepted before a connection that was used has drained.
 * As in cm.c, requests are numbered, an end forgets an attempt that it has given up,
 * and what it held is answered after the drain.
 */
#include "unit.h"

#include "cm_fsm.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 2, QUEUE = 64, MESSAGES = 6, RUN = 120 };

enum kind { REQUEST, ACCEPTED, REJECTED, READY, GONE };

/* On its way to an end. */
struct packet {
    enum kind kind;
    int attempt;                 /* (caller + 1) << 16 | number of its request */
    int number;                  /* of the connection */
    int rx_next;                 /* psn that its sender expects */
};

struct queue {
    struct packet at[QUEUE];
    int n;
};

struct end {
    enum mdapl_dapl_cm_state state;
    int attempt, number;         /* that it is part of; 0: none */
    int highest, stale;          /* cm.epoch and cm.peer_epoch */
    struct packet held;          /* attempt 0: none */
    bool was_up, draining, pause;
    bool dirty;                  /* it has a connection that was used, and that has not drained */
    int broken;                  /* the attempt whose connection has broken */
};

struct world {
    struct end end[2];
    struct queue to[2];          /* requests and answers */
    struct queue data, acks;     /* on connections; rx_next has the psn or the acknowledgement */
    int acked, next, most;       /* of the sender: most is the highest next ever */
    int expected, delivered;
    bool ack_due;
    int messages;                /* to be sent */
    uint64_t seed;
    const char *what;            /* for the line of a failure */
    int steps;
};

#define CHECK(w, cond) check(w, cond, #cond)

static void check(const struct world *w, bool cond, const char *text)
{
    const struct end *e = w->end;

    if (cond)
        return;
    fail_msg("%s, after %d steps: %s; %s on %x (%d), %s on %x (%d), %d acked, %d delivered",
             w->what, w->steps, text,
             mdapl_dapl_cm_state_name(e[0].state), (unsigned)e[0].attempt, e[0].number,
             mdapl_dapl_cm_state_name(e[1].state), (unsigned)e[1].attempt, e[1].number,
             w->acked, w->delivered);
}

static uint64_t draw(struct world *w, uint64_t n)
{
    w->seed ^= w->seed << 13;
    w->seed ^= w->seed >> 7;
    w->seed ^= w->seed << 17;
    return w->seed % n;
}

static void put(struct world *w, struct queue *q, struct packet p)
{
    CHECK(w, q->n < QUEUE);
    q->at[q->n++] = p;
}

static struct packet take(struct queue *q, int i)
{
    struct packet p = q->at[i];

    memmove(&q->at[i], &q->at[i + 1], (size_t)(--q->n - i) * sizeof(p));
    return p;
}

/* -- the actions of the table ------------------------------------------------------------------ */

static void feed(struct world *w, int me, enum mdapl_dapl_cm_event event, const struct packet *p);

/* What it does not answer or use any more. */
static void give_up(struct world *w, int me)
{
    if (w->end[me].attempt)
        put(w, &w->to[!me], (struct packet){ GONE, w->end[me].attempt, 0, 0 });
    w->end[me].attempt = 0;
}

static void reject(struct world *w, int me, const struct packet *p)
{
    put(w, &w->to[!me], (struct packet){ REJECTED, p->attempt, 0, 0 });
}

/* A hello says what its sender expects: all before it has been delivered. */
static void acknowledged(struct world *w, int me, int rx_next)
{
    if (me == 0 && rx_next > w->acked)
        w->acked = rx_next;
}

static void do_connect(struct world *w, int me, const struct packet *p)
{
    struct end *e = &w->end[me];

    (void)p;
    CHECK(w, !e->dirty);
    e->attempt = (me + 1) << 16 | ++e->highest;
    put(w, &w->to[!me], (struct packet){ REQUEST, e->attempt, 0, w->expected });
}

static void do_accept(struct world *w, int me, const struct packet *p)
{
    struct end *e = &w->end[me];
    int request = p->attempt & 0xffff;

    CHECK(w, !e->dirty);
    give_up(w, me);
    e->attempt = p->attempt;
    e->number = e->highest = request > e->highest ? request : e->highest + 1;
    acknowledged(w, me, p->rx_next);
    put(w, &w->to[!me], (struct packet){ ACCEPTED, e->attempt, e->number, w->expected });
    if (e->was_up)
        feed(w, me, MDAPL_CM_AGAIN, NULL);
}

static void do_hold(struct world *w, int me, const struct packet *p)
{
    if (w->end[me].held.attempt)
        reject(w, me, &w->end[me].held);
    w->end[me].held = *p;
}

/* The other end may use it from now on. */
static void do_await(struct world *w, int me, const struct packet *p)
{
    (void)p;
    w->end[me].dirty = true;
}

static void do_up(struct world *w, int me, const struct packet *p)
{
    (void)p;
    w->end[me].was_up = w->end[me].dirty = true;
    w->next = me == 0 ? w->acked : w->next;      /* replay */
}

static void do_pause(struct world *w, int me, const struct packet *p)
{
    (void)p;
    give_up(w, me);
    w->end[me].pause = true;
}

static void do_close(struct world *w, int me, const struct packet *p)
{
    (void)p;
    give_up(w, me);
    w->end[me].draining = true;
}

static void do_hold_close(struct world *w, int me, const struct packet *p)
{
    do_hold(w, me, p);
    do_close(w, me, p);
}

static void do_release(struct world *w, int me, const struct packet *p)
{
    give_up(w, me);
    feed(w, me, MDAPL_CM_CONNECT_REQ, p);
}

static void do_replace(struct world *w, int me, const struct packet *p)
{
    struct packet held = w->end[me].held;

    (void)p;
    w->end[me].held.attempt = 0;
    if (held.attempt)
        feed(w, me, me == 1 ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES, &held);
    else
        w->end[me].pause = true;
}

static void do_nothing(struct world *w, int me, const struct packet *p)
{
    (void)w, (void)me, (void)p;
}

static void impossible(struct world *w, int me, const struct packet *p)
{
    (void)me, (void)p;
    CHECK(w, !"an action that nothing here causes");
}

static void (*const actions[])(struct world *, int, const struct packet *) = {
    [MDAPL_CM_NOTHING] = do_nothing,
    [MDAPL_CM_DO_CONNECT_SOON] = do_pause,
    [MDAPL_CM_DO_CONNECT] = do_connect,
    [MDAPL_CM_DO_ACCEPT] = do_accept,
    [MDAPL_CM_DO_AWAIT] = do_await,
    [MDAPL_CM_DO_REJECT] = reject,
    [MDAPL_CM_DO_HOLD] = do_hold,
    [MDAPL_CM_DO_HOLD_LOSE] = do_hold_close,
    [MDAPL_CM_DO_HOLD_CLOSE] = do_hold_close,
    [MDAPL_CM_DO_UP] = do_up,
    [MDAPL_CM_DO_BACKOFF] = do_pause,
    [MDAPL_CM_DO_RELEASE] = do_release,
    [MDAPL_CM_DO_LOSE] = do_close,
    [MDAPL_CM_DO_CLOSE] = do_close,
    [MDAPL_CM_DO_END] = impossible,
    [MDAPL_CM_DO_FORGET] = impossible,
    [MDAPL_CM_DO_REPLACE] = do_replace,
    [MDAPL_CM_DO_OVERDUE] = impossible,
    [MDAPL_CM_DO_REST] = impossible,
    [MDAPL_CM_DO_NO_MORE] = impossible,
};

static void feed(struct world *w, int me, enum mdapl_dapl_cm_event event, const struct packet *p)
{
    struct mdapl_dapl_cm_move m = mdapl_dapl_cm_step(w->end[me].state, event);

    w->end[me].state = m.next;
    actions[m.action](w, me, p);
}

/* -- steps: each returns whether it was possible ----------------------------------------------- */

static bool is_up(const struct world *w, int me)
{
    return w->end[me].state == MDAPL_CM_UP;
}

/* The first packet of the connection that this end is up on; -1: none has arrived. */
static int first_of(const struct world *w, const struct queue *q, int me)
{
    for (int i = 0; i < q->n && is_up(w, me); i++)
        if (q->at[i].attempt == w->end[me].attempt)
            return i;
    return -1;
}

/* Frames of connections that both ends have left are flushed. */
static void flush(struct world *w, struct queue *q)
{
    for (int i = q->n - 1; i >= 0; i--)
        if (q->at[i].attempt != w->end[0].attempt && q->at[i].attempt != w->end[1].attempt)
            take(q, i);
}

static bool send(struct world *w, int me)
{
    (void)me;
    if (!is_up(w, 0) || w->next >= w->messages || w->next - w->acked >= WINDOW)
        return false;
    put(w, &w->data, (struct packet){ READY, w->end[0].attempt, 0, w->next++ });
    w->most = w->next > w->most ? w->next : w->most;
    return true;
}

static bool receive(struct world *w, int me)
{
    int i = first_of(w, &w->data, 1), psn;

    (void)me;
    if (i < 0)
        return false;
    psn = take(&w->data, i).rx_next;
    CHECK(w, psn <= w->expected);        /* in order on one connection */
    if (psn == w->expected) {
        CHECK(w, psn == w->delivered);
        w->delivered++;
        w->expected++;
    }
    w->ack_due = true;
    return true;
}

static bool acknowledge(struct world *w, int me)
{
    (void)me;
    if (!is_up(w, 1) || !w->ack_due)
        return false;
    put(w, &w->acks, (struct packet){ READY, w->end[1].attempt, 0, w->expected });
    w->ack_due = false;
    return true;
}

static bool take_ack(struct world *w, int me)
{
    int i = first_of(w, &w->acks, 0);

    (void)me;
    if (i < 0)
        return false;
    acknowledged(w, 0, take(&w->acks, i).rx_next);
    w->next = w->next < w->acked ? w->acked : w->next;
    return true;
}

static void request_arrives(struct world *w, int me, const struct packet *p)
{
    struct end *e = &w->end[me];

    if ((p->attempt & 0xffff) <= e->stale) {
        reject(w, me, p);
        return;
    }
    e->stale = p->attempt & 0xffff;
    feed(w, me, me == 1 ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES, p);
}

static void accepted_arrives(struct world *w, int me, const struct packet *p)
{
    struct end *e = &w->end[me];

    if (e->attempt != p->attempt) {              /* given up: the other end sees it end */
        put(w, &w->to[!me], (struct packet){ GONE, p->attempt, 0, 0 });
        return;
    }
    e->number = e->highest = e->stale = p->number;
    acknowledged(w, me, p->rx_next);
    feed(w, me, MDAPL_CM_ESTABLISHED, p);
    put(w, &w->to[!me], (struct packet){ READY, p->attempt, 0, 0 });
}

static bool arrive(struct world *w, int me)
{
    static const enum mdapl_dapl_cm_event event[] = {
        [REJECTED] = MDAPL_CM_REJECTED, [READY] = MDAPL_CM_ESTABLISHED, [GONE] = MDAPL_CM_LOST,
    };
    struct packet p;

    if (w->to[me].n == 0)
        return false;
    p = take(&w->to[me], 0);
    if (p.kind == REQUEST)
        request_arrives(w, me, &p);
    else if (p.kind == ACCEPTED)
        accepted_arrives(w, me, &p);
    else if (w->end[me].attempt == p.attempt)
        feed(w, me, event[p.kind], &p);
    return true;
}

static bool lose(struct world *w, int me)
{
    if (w->to[me].n == 0)
        return false;
    take(&w->to[me], 0);
    return true;
}

static bool break_it(struct world *w, int me)
{
    if (!is_up(w, me))
        return false;
    w->end[0].broken = w->end[1].broken = w->end[me].attempt;
    return true;
}

static bool notice(struct world *w, int me)
{
    if (!is_up(w, me) || w->end[me].broken != w->end[me].attempt)
        return false;
    feed(w, me, MDAPL_CM_LOST, NULL);
    return true;
}

/* The other end has left the connection. */
static bool notice_half_open(struct world *w, int me)
{
    if (!is_up(w, me) || w->end[me].attempt == w->end[!me].attempt)
        return false;
    feed(w, me, MDAPL_CM_LOST, NULL);
    return true;
}

static bool time_out(struct world *w, int me)
{
    enum mdapl_dapl_cm_state s = w->end[me].state;

    if (s != MDAPL_CM_CONNECTING && s != MDAPL_CM_ACCEPTING && s != MDAPL_CM_REACCEPTING)
        return false;
    feed(w, me, MDAPL_CM_TIMER, NULL);
    return true;
}

static bool drained(struct world *w, int me)
{
    if (!w->end[me].draining)
        return false;
    w->end[me].draining = w->end[me].dirty = false;
    feed(w, me, MDAPL_CM_DRAINED, NULL);
    return true;
}

static bool pause_over(struct world *w, int me)
{
    if (!w->end[me].pause)
        return false;
    w->end[me].pause = false;
    if (w->end[me].state == MDAPL_CM_BACKOFF)
        feed(w, me, MDAPL_CM_TIMER, NULL);
    return true;
}

static const struct step {
    char letter;
    bool (*make)(struct world *, int me);
    int weight;                  /* of random steps; 0: only where nothing else is possible */
    bool is_fault;
} steps[] = {
    { 'S', send, 4, false }, { 'D', receive, 4, false }, { 'A', acknowledge, 4, false },
    { 'K', take_ack, 4, false }, { 'R', arrive, 8, false }, { 'Z', drained, 2, false },
    { 'P', pause_over, 2, false }, { 'B', notice, 2, false }, { 'X', break_it, 1, true },
    { 'L', lose, 1, true }, { 'T', time_out, 0, false }, { 'H', notice_half_open, 0, false },
};

enum { STEPS = sizeof(steps) / sizeof(steps[0]), IN_TRACES = 2 };

/* -- runs -------------------------------------------------------------------------------------- */

/* The assertions of the model. */
static void expect_whole(struct world *w)
{
    const struct end *e = w->end;

    w->steps++;
    flush(w, &w->data);
    flush(w, &w->acks);
    CHECK(w, w->acked <= w->delivered && w->delivered <= w->most && w->expected == w->delivered);
    CHECK(w, w->acked <= w->next && w->next - w->acked <= WINDOW);
    CHECK(w, !is_up(w, 0) || !is_up(w, 1) || e[0].attempt != e[1].attempt
                 || e[0].number == e[1].number);
    for (int i = 0; i < 2; i++) {
        CHECK(w, e[i].held.attempt == 0 || e[i].state == MDAPL_CM_DRAINING);
        CHECK(w, !e[i].draining || e[i].state == MDAPL_CM_DRAINING);
    }
}

static bool make(struct world *w, const struct step *s, int me)
{
    if (!s->make(w, me))
        return false;
    expect_whole(w);
    return true;
}

/* Each end is up as if it had been connected from the beginning. */
static struct world connected(int messages, uint64_t seed, const char *what)
{
    struct world w = { .messages = messages, .seed = seed, .what = what };

    for (int i = 0; i < 2; i++)
        w.end[i] = (struct end){ .state = MDAPL_CM_UP, .attempt = 1 << 16 | 1, .number = 1,
                                 .highest = 1, .stale = 1, .was_up = true, .dirty = true };
    return w;
}

/* A step by weight; faults: with them. False: it was not possible. */
static bool random_step(struct world *w, bool faults)
{
    int pick = (int)draw(w, 33);

    for (int i = 0; i < STEPS; i++) {
        pick -= steps[i].weight;
        if (pick < 0)
            return (faults || !steps[i].is_fault) && make(w, &steps[i], (int)draw(w, 2));
    }
    return false;
}

static const struct step *step_of(char letter)
{
    for (int i = 0; i < STEPS; i++)
        if (steps[i].letter == letter)
            return &steps[i];
    return NULL;
}

/* Is nothing of this end's attempt on its way, nor held at the other end? */
static bool is_lost(const struct world *w, int me)
{
    int attempt = w->end[me].attempt;

    for (int to = 0; to < 2; to++)
        for (int i = 0; i < w->to[to].n; i++)
            if (w->to[to].at[i].attempt == attempt)
                return false;
    return w->end[!me].held.attempt != attempt;
}

/* What has been lost is noticed: the time of a request is over, whatever else arrives, or an end is
 * alone on its connection. */
static bool late_step(struct world *w)
{
    for (int me = 0; me < 2; me++)
        if (is_lost(w, me) && (make(w, step_of('T'), me) || make(w, step_of('H'), me)))
            return true;
    return false;
}

/* Any step that the network makes when it works. */
static bool any_step(struct world *w)
{
    for (int k = 0; k < 20; k++)
        if (random_step(w, false))
            return true;
    for (int i = 0; i < STEPS; i++)
        for (int me = 0; me < 2; me++)
            if (steps[i].weight > 0 && !steps[i].is_fault && make(w, &steps[i], me))
                return true;
    return false;
}

/* The network works from now on: all is delivered, and the two are connected. */
static void settle(struct world *w)
{
    const struct end *e = w->end;

    for (int n = 0; w->acked < w->messages || !is_up(w, 0) || !is_up(w, 1)
                    || e[0].attempt != e[1].attempt || w->to[0].n + w->to[1].n > 0; n++) {
        bool moved = any_step(w);

        CHECK(w, n < 1000);
        CHECK(w, late_step(w) || moved);
    }
    CHECK(w, w->delivered == w->messages);
}

/* The model has no drain and no pause. */
static void end_waits(struct world *w)
{
    for (int me = 0; me < 2; me++) {
        make(w, step_of('Z'), me);
        make(w, step_of('P'), me);
    }
}

/* Steps of a trace that are not possible here are left out: where the model accepts a request this
 * rank may have rejected it, as its own one wins. */
static void replay(const char *line, int nth, int *made, int *all)
{
    char what[32];
    struct world w;

    snprintf(what, sizeof(what), "trace %d", nth);
    w = connected(3, (uint64_t)nth, what);
    for (const char *p = line; p[0] && p[1] && p[0] != '\n'; p += p[2] == ' ' ? 3 : 2) {
        const struct step *s = step_of(p[0]);

        assert_non_null(s);
        assert_true(p[1] == '0' || p[1] == '1');
        *made += make(&w, s, p[1] - '0');
        (*all)++;
        end_waits(&w);
    }
    settle(&w);
}

static void traces_of_the_model(void **state)
{
    int n = 0, made = 0, all = 0;
    FILE *f = fopen(TRACES, "r");
    char line[4096];

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (line[0] != '#')
            replay(line, ++n, &made, &all);
    fclose(f);
    print_message("%d traces, %d of %d steps\n", n, made, all);
    assert_true(n >= 100 && made > all / 2);
}

static long random_steps = 10000000;

static void any_steps(void **state)
{
    long left = random_steps;

    (void)state;
    for (uint64_t seed = 1; left > 0; seed++) {
        char what[32];
        struct world w;

        snprintf(what, sizeof(what), "seed %llu", (unsigned long long)seed);
        w = connected(MESSAGES, seed * UINT64_C(0x9e3779b97f4a7c15), what);
        for (int i = 0; i < RUN; i++)
            if (!random_step(&w, true) && draw(&w, 20) == 0)
                make(&w, &steps[STEPS - 1 - (int)draw(&w, IN_TRACES)], (int)draw(&w, 2));
        settle(&w);
        left -= w.steps;
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traces_of_the_model),
        cmocka_unit_test(any_steps),
    };

    if (argc > 1)
        random_steps = atol(argv[1]);
    return RUN(tests);
}
