/* SPDX-License-Identifier: MIT */
/* The connection's and the rendezvous' tables: every cell, and two machines against each other. */
#include "unit.h"

#include "cm_fsm.h"
#include "rail_fsm.h"
#include "rndv_fsm.h"

#include <stdbool.h>
#include <stdio.h>

/* -- one connection --------------------------------------------------------------------------- */

/* Does it keep a request, to answer it later? */
static bool holds(enum mdapl_dapl_cm_action action)
{
    return action == MDAPL_CM_DO_HOLD || action == MDAPL_CM_DO_HOLD_LOSE
           || action == MDAPL_CM_DO_HOLD_CLOSE;
}

static void every_cell_is_possible(void **state)
{
    (void)state;
    for (int s = 0; s < MDAPL_CM_STATES; s++)
        for (int e = 0; e < MDAPL_CM_EVENTS; e++) {
            struct mdapl_dapl_cm_move m = mdapl_dapl_cm_step(s, e);

            assert_in_range(m.next, 0, MDAPL_CM_STATES - 1);
            /* A request is always answered or refused, never left alone. */
            if (e == MDAPL_CM_CR_WINS || e == MDAPL_CM_CR_LOSES)
                assert_true(m.action == MDAPL_CM_DO_ACCEPT || m.action == MDAPL_CM_DO_REJECT
                            || (m.next == MDAPL_CM_DRAINING && holds(m.action)));
            /* Where nothing is done nothing changes. */
            if (m.action == MDAPL_CM_NOTHING)
                assert_int_equal(m.next, s);
            assert_non_null(mdapl_dapl_cm_state_name(s));
            assert_non_null(mdapl_dapl_cm_event_name(e));
        }
}

/* Every wait ends: a state that the remote end need not end has a timer that does. */
static void every_wait_ends(void **state)
{
    (void)state;
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_CONNECTING, MDAPL_CM_TIMER).next,
                     MDAPL_CM_BACKOFF);
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_BACKOFF, MDAPL_CM_TIMER).next,
                     MDAPL_CM_CONNECTING);
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_ACCEPTING, MDAPL_CM_TIMER).next, MDAPL_CM_IDLE);
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_REACCEPTING, MDAPL_CM_TIMER).next,
                     MDAPL_CM_DRAINING);
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_DRAINING, MDAPL_CM_TIMER).action,
                     MDAPL_CM_DO_OVERDUE);
}

static void dead_stays_dead(void **state)
{
    (void)state;
    for (int e = 0; e < MDAPL_CM_EVENTS; e++)
        assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_DEAD, e).next, MDAPL_CM_DEAD);
}

static bool drains(int state)
{
    return state == MDAPL_CM_DRAINING || state == MDAPL_CM_CLOSING;
}

/* A connection that ends drains, whatever else happens; nothing but the end of that leads on, and
 * no request is sent or accepted meanwhile. */
static void draining_ends_with_drained(void **state)
{
    static const struct {
        int from, event, to;
    } ends[] = {
        { MDAPL_CM_UP, MDAPL_CM_LOST, MDAPL_CM_DRAINING },
        { MDAPL_CM_UP, MDAPL_CM_CR_WINS, MDAPL_CM_DRAINING },
        { MDAPL_CM_UP, MDAPL_CM_CR_LOSES, MDAPL_CM_DRAINING },
        { MDAPL_CM_REACCEPTING, MDAPL_CM_LOST, MDAPL_CM_DRAINING },
        { MDAPL_CM_REACCEPTING, MDAPL_CM_REJECTED, MDAPL_CM_DRAINING },
        { MDAPL_CM_REACCEPTING, MDAPL_CM_CR_WINS, MDAPL_CM_DRAINING },
        { MDAPL_CM_UP, MDAPL_CM_CLOSE, MDAPL_CM_CLOSING },
        { MDAPL_CM_CONNECTING, MDAPL_CM_CLOSE, MDAPL_CM_CLOSING },
        { MDAPL_CM_ACCEPTING, MDAPL_CM_CLOSE, MDAPL_CM_CLOSING },
        { MDAPL_CM_REACCEPTING, MDAPL_CM_CLOSE, MDAPL_CM_CLOSING },
        { MDAPL_CM_DRAINING, MDAPL_CM_CLOSE, MDAPL_CM_CLOSING },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        assert_int_equal(mdapl_dapl_cm_step(ends[i].from, ends[i].event).next, ends[i].to);
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_UP, MDAPL_CM_LOST).action, MDAPL_CM_DO_LOSE);
    for (int s = 0; s < MDAPL_CM_STATES; s++)
        for (int e = 0; drains(s) && e < MDAPL_CM_EVENTS; e++) {
            struct mdapl_dapl_cm_move m = mdapl_dapl_cm_step(s, e);

            assert_true(drains(m.next) == (e != MDAPL_CM_DRAINED));
            assert_true(m.action != MDAPL_CM_DO_CONNECT && m.action != MDAPL_CM_DO_ACCEPT);
            /* What is closed stays so. */
            assert_true(s != MDAPL_CM_CLOSING || m.next != MDAPL_CM_DRAINING);
        }
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_DRAINING, MDAPL_CM_DRAINED).next,
                     MDAPL_CM_BACKOFF);
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_CLOSING, MDAPL_CM_DRAINED).next, MDAPL_CM_DEAD);
    /* Only what may have DTOs posted waits for them. */
    for (int s = 0; s < MDAPL_CM_STATES; s++)
        for (int e = 0; e < MDAPL_CM_EVENTS; e++)
            if (!drains(s) && drains(mdapl_dapl_cm_step(s, e).next))
                assert_true(s == MDAPL_CM_UP || s == MDAPL_CM_CONNECTING
                            || s == MDAPL_CM_ACCEPTING || s == MDAPL_CM_REACCEPTING);
}

/* -- one rail --------------------------------------------------------------------------------- */

static void a_rail_comes_back_only_by_being_opened(void **state)
{
    (void)state;
    for (int s = 0; s < MDAPL_DAPL_RAIL_STATES; s++) {
        assert_non_null(mdapl_dapl_rail_state_name(s));
        assert_int_equal(mdapl_dapl_rail_next(s, MDAPL_DAPL_RAIL_FATAL), MDAPL_DAPL_RAIL_DOWN);
    }
    for (int e = 0; e < MDAPL_DAPL_RAIL_EVENTS; e++)
        assert_int_equal(mdapl_dapl_rail_next(MDAPL_DAPL_RAIL_DOWN, e),
                         e == MDAPL_DAPL_RAIL_REOPEN ? MDAPL_DAPL_RAIL_REOPENING
                                                     : MDAPL_DAPL_RAIL_DOWN);
    assert_int_equal(mdapl_dapl_rail_next(MDAPL_DAPL_RAIL_REOPENING, MDAPL_DAPL_RAIL_OPENED),
                     MDAPL_DAPL_RAIL_OPEN);
    assert_int_equal(mdapl_dapl_rail_next(MDAPL_DAPL_RAIL_REOPENING, MDAPL_DAPL_RAIL_REFUSED),
                     MDAPL_DAPL_RAIL_DOWN);
}

static void doubt_ends(void **state)
{
    (void)state;
    assert_int_equal(mdapl_dapl_rail_next(MDAPL_DAPL_RAIL_OPEN, MDAPL_DAPL_RAIL_DOUBT),
                     MDAPL_DAPL_RAIL_SUSPECT);
    assert_int_equal(mdapl_dapl_rail_next(MDAPL_DAPL_RAIL_SUSPECT, MDAPL_DAPL_RAIL_QUIET),
                     MDAPL_DAPL_RAIL_OPEN);
}

/* -- two ends and the network between them ---------------------------------------------------- */

/*
 * Two ends that both connect, and connections that break. Messages in flight are a multiset; a
 * seeded choice selects the one that arrives next. An attempt is (caller, number); an end forgets
 * one that it has abandoned, so that a late reply to it is ignored, as cm.c does with EPs without
 * owner. Numbers are those of cm_hello.h.
 */
enum kind { REQUEST, ACCEPTED, REJECTED, READY, PAUSE_OVER, TIMEOUT, BROKEN, DRAINED };

struct flying {
    enum kind kind;
    int to, attempt, number;
};

struct end {
    enum mdapl_dapl_cm_state state;
    int attempt;                 /* the one it is part of: (caller << 16) | number; 0: none */
    int number;                  /* of the connection */
    int highest, stale;          /* cm.epoch and cm.peer_epoch */
    int held;                    /* a request */
    bool was_up;
};

struct net {
    struct end end[2];
    struct flying fly[64];
    int n, lost;                 /* connections that were lost */
    unsigned seed;
    bool strange;                /* something that may not happen has happened */
};

static unsigned next_random(struct net *w, unsigned n)
{
    w->seed = w->seed * 1103515245u + 12345u;
    return (w->seed >> 16) % n;
}

static void send_to(struct net *w, enum kind kind, int to, int attempt, int number)
{
    if (w->n < 64)
        w->fly[w->n++] = (struct flying){ kind, to, attempt, number };
    else
        w->strange = true;
}

static void feed(struct net *w, int me, enum mdapl_dapl_cm_event event, int attempt);

static void feed_request(struct net *w, int me, int attempt)
{
    feed(w, me, me == 1 ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES, attempt);
}

/* The end of this end's part in an attempt, as seen by the other one. */
static void abandon(struct net *w, int me)
{
    struct end *e = &w->end[me];

    if (e->attempt)
        send_to(w, BROKEN, !me, e->attempt, 0);
    e->attempt = 0;
}

static void accept_request(struct net *w, int me, int attempt)
{
    struct end *e = &w->end[me];
    int request = attempt & 0xffff;

    abandon(w, me);
    e->attempt = attempt;
    e->number = e->highest = request > e->highest ? request : e->highest + 1;
    send_to(w, ACCEPTED, !me, attempt, e->number);
    if (e->was_up)
        feed(w, me, MDAPL_CM_AGAIN, 0);
}

static void hold(struct net *w, int me, int attempt)
{
    struct end *e = &w->end[me];

    if (e->held)
        send_to(w, REJECTED, !me, e->held, 0);
    e->held = attempt;
}

static void lose(struct net *w, int me)
{
    abandon(w, me);
    send_to(w, DRAINED, me, 0, 0);
}

static void replace(struct net *w, int me)
{
    struct end *e = &w->end[me];
    int held = e->held;

    e->held = 0;
    if (held)
        feed_request(w, me, held);
    else
        send_to(w, PAUSE_OVER, me, 0, 0);
}

static void act(struct net *w, int me, enum mdapl_dapl_cm_action action, int attempt)
{
    struct end *e = &w->end[me];

    switch (action) {
    case MDAPL_CM_DO_CONNECT:
        e->attempt = (me + 1) << 16 | ++e->highest;
        send_to(w, REQUEST, !me, e->attempt, 0);
        break;
    case MDAPL_CM_DO_ACCEPT:
        accept_request(w, me, attempt);
        break;
    case MDAPL_CM_DO_REJECT:
        send_to(w, REJECTED, !me, attempt, 0);
        break;
    case MDAPL_CM_DO_BACKOFF:
        abandon(w, me);
        send_to(w, PAUSE_OVER, me, 0, 0);
        break;
    case MDAPL_CM_DO_CONNECT_SOON:
        send_to(w, PAUSE_OVER, me, 0, 0);
        break;
    case MDAPL_CM_DO_RELEASE:                /* both ends request it at some time */
        abandon(w, me);
        feed(w, me, MDAPL_CM_CONNECT_REQ, 0);
        break;
    case MDAPL_CM_DO_UP:
        e->was_up = true;
        break;
    case MDAPL_CM_DO_HOLD:
        hold(w, me, attempt);
        break;
    case MDAPL_CM_DO_HOLD_LOSE:
    case MDAPL_CM_DO_HOLD_CLOSE:
        hold(w, me, attempt);
        lose(w, me);
        break;
    case MDAPL_CM_DO_LOSE:
    case MDAPL_CM_DO_CLOSE:
        w->lost++;
        lose(w, me);
        break;
    case MDAPL_CM_DO_REPLACE:
        replace(w, me);
        break;
    default:
        break;
    }
}

static void feed(struct net *w, int me, enum mdapl_dapl_cm_event event, int attempt)
{
    struct end *e = &w->end[me];
    struct mdapl_dapl_cm_move m = mdapl_dapl_cm_step(e->state, event);

    e->state = m.next;
    act(w, me, m.action, attempt);
}

static void arrive_request(struct net *w, struct flying f)
{
    struct end *e = &w->end[f.to];
    int request = f.attempt & 0xffff;

    if (request <= e->stale) {
        send_to(w, REJECTED, !f.to, f.attempt, 0);
        return;
    }
    e->stale = request;
    feed_request(w, f.to, f.attempt);
}

static void arrive(struct net *w, struct flying f)
{
    struct end *e = &w->end[f.to];

    switch (f.kind) {
    case REQUEST:
        arrive_request(w, f);
        break;
    case ACCEPTED:
        if (e->attempt != f.attempt) {       /* given up: the other end sees it end */
            send_to(w, BROKEN, !f.to, f.attempt, 0);
            break;
        }
        e->number = e->highest = e->stale = f.number;
        feed(w, f.to, MDAPL_CM_ESTABLISHED, f.attempt);
        send_to(w, READY, !f.to, f.attempt, 0);
        break;
    case READY:
        if (e->attempt == f.attempt)
            feed(w, f.to, MDAPL_CM_ESTABLISHED, f.attempt);
        break;
    case REJECTED:
        if (e->attempt == f.attempt)
            feed(w, f.to, MDAPL_CM_REJECTED, f.attempt);
        break;
    case PAUSE_OVER:
        if (e->state == MDAPL_CM_BACKOFF)
            feed(w, f.to, MDAPL_CM_TIMER, 0);
        break;
    case TIMEOUT:
        if (e->attempt == f.attempt && e->state != MDAPL_CM_UP)
            feed(w, f.to, MDAPL_CM_TIMER, 0);
        break;
    case BROKEN:
        if (e->attempt == f.attempt)
            feed(w, f.to, MDAPL_CM_LOST, 0);
        break;
    case DRAINED:
        feed(w, f.to, MDAPL_CM_DRAINED, 0);
        break;
    }
}

static void arrive_any(struct net *w, unsigned i)
{
    struct flying f = w->fly[i];

    w->fly[i] = w->fly[--w->n];
    arrive(w, f);
}

/* One that is in flight is lost; both ends wait for nothing then. False: it cannot be lost. */
static bool lose_any(struct net *w, unsigned i)
{
    struct flying f = w->fly[i];

    if (f.kind != REQUEST && f.kind != ACCEPTED && f.kind != REJECTED && f.kind != BROKEN)
        return false;
    w->fly[i] = w->fly[--w->n];
    send_to(w, TIMEOUT, 0, f.attempt, 0);
    send_to(w, TIMEOUT, 1, f.attempt, 0);
    return true;
}

static void expect_connected(const struct net *w, unsigned seed, int steps)
{
    const struct end *e = w->end;

    if (w->strange || e[0].state != MDAPL_CM_UP || e[1].state != MDAPL_CM_UP
        || e[0].attempt != e[1].attempt || e[0].number != e[1].number || e[0].held || e[1].held)
        fail_msg("seed %u: %s on attempt %x (%d), %s on attempt %x (%d) after %d steps", seed,
                 mdapl_dapl_cm_state_name(e[0].state), (unsigned)e[0].attempt, e[0].number,
                 mdapl_dapl_cm_state_name(e[1].state), (unsigned)e[1].attempt, e[1].number,
                 steps);
}

static void crossing_connects(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 20000; seed++) {
        struct net w = { .seed = seed };
        bool wanted[2] = { false, false };
        int steps = 0;

        /* Each end requests the connection at some time; then messages arrive in any order. */
        while ((w.n > 0 || !wanted[0] || !wanted[1]) && steps++ < 200) {
            unsigned what = next_random(&w, (unsigned)w.n + 2);

            if (what < 2) {
                feed(&w, (int)what, MDAPL_CM_CONNECT_REQ, 0);
                wanted[what] = true;
            } else {
                arrive_any(&w, what - 2);
            }
        }
        expect_connected(&w, seed, steps);
    }
}

/* Connections break for both ends, at different times, or for one only: the other one notices by
 * the request that follows. Requests and answers are lost, too. In the end both are up on the same
 * connection. */
static void connections_that_break(void **state)
{
    int lost = 0;

    (void)state;
    for (unsigned seed = 1; seed <= 100000; seed++) {
        struct net w = { .seed = seed };
        int steps = 0, faults = 6;

        feed(&w, 0, MDAPL_CM_CONNECT_REQ, 0);
        feed(&w, 1, MDAPL_CM_CONNECT_REQ, 0);
        while ((w.n > 0 || faults > 0) && steps++ < 2000) {
            unsigned what = next_random(&w, (unsigned)w.n + 1);
            int me = (int)next_random(&w, 2);

            if (what > 0 && faults > 0 && next_random(&w, 8) == 0) {
                faults -= lose_any(&w, what - 1);
            } else if (what > 0) {
                arrive_any(&w, what - 1);
            } else if (faults > 0 && w.end[me].state == MDAPL_CM_UP) {
                faults--;
                feed(&w, me, MDAPL_CM_LOST, 0);
            }
        }
        expect_connected(&w, seed, steps);
        lost += w.lost;
    }
    assert_true(lost > 100000);
}

/* -- rendezvous ------------------------------------------------------------------------------- */

static void sender_table(void **state)
{
    static const struct { int from, event, to; } row[] = {
        { MDAPL_RTX_ANNOUNCED, MDAPL_RTX_CTS, MDAPL_RTX_SENDING },
        { MDAPL_RTX_ANNOUNCED, MDAPL_RTX_FIN, MDAPL_RTX_OVER },
        { MDAPL_RTX_ANNOUNCED, MDAPL_RTX_LOST, MDAPL_RTX_OVER },
        { MDAPL_RTX_SENDING, MDAPL_RTX_SENT, MDAPL_RTX_ANNOUNCED },
        { MDAPL_RTX_SENDING, MDAPL_RTX_LOST, MDAPL_RTX_OVER },
        /* The receiver requests the rest anew, in the middle of an answer. */
        { MDAPL_RTX_SENDING, MDAPL_RTX_CTS, MDAPL_RTX_SENDING },
        /* Memory that RDMA writes still read is waited for. */
        { MDAPL_RTX_ANNOUNCED, MDAPL_RTX_FIN_BUSY, MDAPL_RTX_ENDING },
        { MDAPL_RTX_ANNOUNCED, MDAPL_RTX_LOST_BUSY, MDAPL_RTX_ENDING },
        { MDAPL_RTX_SENDING, MDAPL_RTX_LOST_BUSY, MDAPL_RTX_ENDING },
        { MDAPL_RTX_ENDING, MDAPL_RTX_FLUSHED, MDAPL_RTX_OVER },
    };
    int possible = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        assert_int_equal(mdapl_dapl_rtx_step(row[i].from, row[i].event), row[i].to);
    for (int s = 0; s < MDAPL_RTX_STATES; s++)
        for (int e = 0; e < MDAPL_RTX_EVENTS; e++)
            possible += mdapl_dapl_rtx_step(s, e) >= 0;
    assert_int_equal(possible, sizeof(row) / sizeof(row[0]));
}

static void receiver_table(void **state)
{
    int possible = 0;

    (void)state;
    /* Nothing is written to a buffer that the owner has back. */
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_IDLE, MDAPL_RRX_DATA), -1);
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_READING, MDAPL_RRX_DATA), -1);
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_FAILING, MDAPL_RRX_DATA), -1);
    /* One read at a time, and no drop while one is in progress. */
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_READING, MDAPL_RRX_READ), -1);
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_READING, MDAPL_RRX_DROP), -1);
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_ASKED, MDAPL_RRX_DROP), -1);
    /* A lost peer's reads are waited for. */
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_READING, MDAPL_RRX_LOST_BUSY),
                     MDAPL_RRX_FAILING);
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_FAILING, MDAPL_RRX_FLUSHED), MDAPL_RRX_IDLE);
    /* What a connection lost is requested again, unless this rank reads by itself. */
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_ASKED, MDAPL_RRX_DRAINED), MDAPL_RRX_ASKED);
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_READING, MDAPL_RRX_DRAINED), -1);
    for (int e = 0; e < MDAPL_RRX_EVENTS; e++)
        assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_OVER, e), -1);
    for (int s = 0; s < MDAPL_RRX_STATES; s++)
        for (int e = 0; e < MDAPL_RRX_EVENTS; e++)
            possible += mdapl_dapl_rrx_step(s, e) >= 0;
    assert_int_equal(mdapl_dapl_rrx_step(MDAPL_RRX_READING, MDAPL_RRX_STRANDED), MDAPL_RRX_ASKED);
    assert_int_equal(possible, 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_possible),
        cmocka_unit_test(every_wait_ends),
        cmocka_unit_test(dead_stays_dead),
        cmocka_unit_test(a_rail_comes_back_only_by_being_opened),
        cmocka_unit_test(doubt_ends),
        cmocka_unit_test(draining_ends_with_drained),
        cmocka_unit_test(crossing_connects),
        cmocka_unit_test(connections_that_break),
        cmocka_unit_test(sender_table),
        cmocka_unit_test(receiver_table),
    };

    return RUN(tests);
}
