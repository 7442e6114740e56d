/* SPDX-License-Identifier: MIT */
/* The connection's and the rendezvous' tables: every cell, and two machines against each other. */
#include "unit.h"

#include "cm_fsm.h"
#include "rail_fsm.h"
#include "rndv_fsm.h"

#include <stdbool.h>
#include <stdio.h>

/* -- one connection --------------------------------------------------------------------------- */

static void every_cell_is_possible(void **state)
{
    (void)state;
    for (int s = 0; s < MDAPL_CM_STATES; s++)
        for (int e = 0; e < MDAPL_CM_EVENTS; e++) {
            struct mdapl_dapl_cm_move m = mdapl_dapl_cm_step(s, e);

            assert_in_range(m.next, 0, MDAPL_CM_STATES - 1);
            /* A request is always answered or refused, never left alone. */
            if (e == MDAPL_CM_CR_WINS || e == MDAPL_CM_CR_LOSES)
                assert_true(m.action == MDAPL_CM_DO_ACCEPT || m.action == MDAPL_CM_DO_REJECT);
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
}

static void dead_stays_dead(void **state)
{
    (void)state;
    for (int e = 0; e < MDAPL_CM_EVENTS; e++)
        assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_DEAD, e).next, MDAPL_CM_DEAD);
}

/* A connection that ends drains, whatever else happens; nothing but the end of that leads on, and
 * no request is sent or accepted meanwhile. */
static void draining_ends_with_drained(void **state)
{
    static const int ends[][2] = {
        { MDAPL_CM_UP, MDAPL_CM_LOST }, { MDAPL_CM_UP, MDAPL_CM_CLOSE },
        { MDAPL_CM_CONNECTING, MDAPL_CM_CLOSE }, { MDAPL_CM_ACCEPTING, MDAPL_CM_CLOSE },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        assert_int_equal(mdapl_dapl_cm_step(ends[i][0], ends[i][1]).next, MDAPL_CM_DRAINING);
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_UP, MDAPL_CM_LOST).action, MDAPL_CM_DO_LOSE);
    for (int e = 0; e < MDAPL_CM_EVENTS; e++) {
        struct mdapl_dapl_cm_move m = mdapl_dapl_cm_step(MDAPL_CM_DRAINING, e);

        assert_int_equal(m.next, e == MDAPL_CM_DRAINED ? MDAPL_CM_DEAD : MDAPL_CM_DRAINING);
        assert_true(m.action != MDAPL_CM_DO_CONNECT && m.action != MDAPL_CM_DO_ACCEPT);
    }
    assert_int_equal(mdapl_dapl_cm_step(MDAPL_CM_DRAINING, MDAPL_CM_DRAINED).action,
                     MDAPL_CM_DO_FORGET);
    /* Only what may have DTOs posted waits for them. */
    for (int s = 0; s < MDAPL_CM_STATES; s++)
        for (int e = 0; e < MDAPL_CM_EVENTS; e++)
            if (s != MDAPL_CM_DRAINING && mdapl_dapl_cm_step(s, e).next == MDAPL_CM_DRAINING)
                assert_true(s == MDAPL_CM_UP || s == MDAPL_CM_CONNECTING
                            || s == MDAPL_CM_ACCEPTING);
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
 * Two ends that both connect. Messages in flight are a multiset; a seeded choice selects the one
 * that arrives next. Each connection attempt is (caller, number); an end forgets an attempt that it
 * has abandoned, so that a late reply to it is ignored, as cm.c does with EPs without owner.
 */
enum kind { REQUEST, ACCEPTED, REJECTED, READY, PAUSE_OVER };

struct flying {
    enum kind kind;
    int to, attempt;
};

struct end {
    enum mdapl_dapl_cm_state state;
    int attempt;                 /* the one it is part of: (caller << 16) | number; 0: none */
    int tries;
};

struct net {
    struct end end[2];
    struct flying fly[64];
    int n;
    unsigned seed;
    bool strange;                /* something that may not happen has happened */
};

static unsigned next_random(struct net *w, unsigned n)
{
    w->seed = w->seed * 1103515245u + 12345u;
    return (w->seed >> 16) % n;
}

static void send_to(struct net *w, enum kind kind, int to, int attempt)
{
    if (w->n < 64)
        w->fly[w->n++] = (struct flying){ kind, to, attempt };
    else
        w->strange = true;
}

static void feed(struct net *w, int me, enum mdapl_dapl_cm_event event, int attempt)
{
    struct end *e = &w->end[me];
    struct mdapl_dapl_cm_move m = mdapl_dapl_cm_step(e->state, event);

    e->state = m.next;
    switch (m.action) {
    case MDAPL_CM_DO_CONNECT:
        e->attempt = (me + 1) << 16 | ++e->tries;
        send_to(w, REQUEST, !me, e->attempt);
        break;
    case MDAPL_CM_DO_ACCEPT:
        e->attempt = attempt;
        send_to(w, ACCEPTED, !me, attempt);
        break;
    case MDAPL_CM_DO_REJECT:
        send_to(w, REJECTED, !me, attempt);
        break;
    case MDAPL_CM_DO_BACKOFF:
    case MDAPL_CM_DO_CONNECT_SOON:
        e->attempt = 0;
        send_to(w, PAUSE_OVER, me, 0);
        break;
    case MDAPL_CM_DO_RELEASE:                /* both ends request it at some time */
        e->attempt = 0;
        feed(w, me, MDAPL_CM_CONNECT_REQ, 0);
        break;
    case MDAPL_CM_DO_LOSE:
        w->strange = true;
        break;
    default:
        break;
    }
}

static void arrive(struct net *w, struct flying f)
{
    struct end *e = &w->end[f.to];

    switch (f.kind) {
    case REQUEST:
        feed(w, f.to, f.to == 1 ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES, f.attempt);
        break;
    case ACCEPTED:
        if (e->attempt != f.attempt) {       /* given up: the other end sees it end */
            send_to(w, REJECTED, !f.to, f.attempt);
            break;
        }
        feed(w, f.to, MDAPL_CM_ESTABLISHED, f.attempt);
        send_to(w, READY, !f.to, f.attempt);
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
    }
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
                struct flying f = w.fly[what - 2];

                w.fly[what - 2] = w.fly[--w.n];
                arrive(&w, f);
            }
        }
        if (w.strange || w.end[0].state != MDAPL_CM_UP || w.end[1].state != MDAPL_CM_UP
            || w.end[0].attempt != w.end[1].attempt)
            fail_msg("seed %u: %s on attempt %x, %s on attempt %x after %d steps", seed,
                     mdapl_dapl_cm_state_name(w.end[0].state), (unsigned)w.end[0].attempt,
                     mdapl_dapl_cm_state_name(w.end[1].state), (unsigned)w.end[1].attempt, steps);
    }
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
        cmocka_unit_test(sender_table),
        cmocka_unit_test(receiver_table),
    };

    return RUN(tests);
}
