/* SPDX-License-Identifier: MIT */
#include "cm_act.h"

#include "cm_hello.h"
#include "cm_report.h"
#include "cm_time.h"
#include "conn.h"
#include "err.h"
#include "frames.h"
#include "log.h"
#include "peer.h"
#include "rma.h"
#include "rndv.h"
#include "stats.h"

#include <stdio.h>

static struct mdapl_log *log_of(const struct mdapl_dapl_stream *st)
{
    return mdapl_ctx_log(st->peer->d->ctx);
}

/* -- what several of them do ------------------------------------------------------------------- */

/* Closes the stream's connection, or the attempt at one; it drains on d->closed. */
static void give_up(struct mdapl_dapl_stream *st)
{
    if (st->conn)
        mdapl_dapl_conn_close(st->conn, NULL);
    st->conn = NULL;
}

/* Replaces the stream's connection by a new one; epoch: number of its connection request. 0, or
 * -errno as mdapl_dapl_conn_open(). */
static int fresh_conn(struct mdapl_dapl_stream *st, uint32_t epoch)
{
    give_up(st);
    return mdapl_dapl_conn_open(st, epoch, true, &st->conn);
}

void mdapl_dapl_cm_set_timer(struct mdapl_dapl_stream *st, uint64_t due)
{
    mdapl_timer_set(&st->peer->d->timers, &st->cm.timer, due);
}

static int do_connect_soon(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    (void)s;
    mdapl_dapl_cm_set_timer(st, mdapl_ctx_now(st->peer->d->ctx));
    return MDAPL_CM_NO_EVENT;
}

/* The adapter or the memory of this side refuses the attempt: returns REJECTED, with the cause. */
static int refused_here(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    s->cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_LOCAL);
    s->detail = mdapl_ctx_err(st->peer->d->ctx)->text;
    return MDAPL_CM_REJECTED;
}

/* At the end of a job this rank needs the connection no more: it has nothing left to transmit, and
 * no acknowledgement either. If the peer has, it makes a request; if it has left the launcher's
 * barrier already, it would refuse one for ever. */
static bool is_end_of_job(const struct mdapl_dapl_stream *st)
{
    return st->peer->d->draining && mdapl_dapl_peer_unfinished(st->peer) == 0;
}

static int do_connect(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx), time = mdapl_dapl_cm_request_time(st, now);
    uint8_t hello[MDAPL_HELLO_BYTES];
    int rc;

    if (is_end_of_job(st))       /* by now: another stream has transmitted what was left */
        return MDAPL_CM_NOT_NEEDED;
    rc = fresh_conn(st, ++st->cm.epoch);
    st->cm.called = now;
    st->cm.requests++;
    mdapl_dapl_cm_request_begin(st);
    mdapl_dapl_cm_hello_put(st, 0, st->cm.epoch, hello);
    if (!rc) {
        st->conn->caller = true;
        rc = mdapl_dapl_ep_connect(&st->conn->ep, st->cm.addr, st->cm.addr_len, st->cm.qual, hello,
                                   sizeof(hello));
    }
    if (rc)
        return refused_here(st, s);
    mdapl_dapl_cm_set_timer(st, now + time);
    return MDAPL_CM_NO_EVENT;
}

static void reject(const struct mdapl_dapl_stream *st, DAT_CR_HANDLE cr, uint8_t flag,
                   const struct mdapl_dapl_hello *request)
{
    mdapl_dapl_cm_reject(st->peer->d, mdapl_peer_group(&st->peer->base), cr, flag, request);
}

/* The number of the connection that follows from accepting a request of this number. */
static uint32_t next_number(const struct mdapl_dapl_cm *cm, uint32_t request)
{
    return mdapl_seq_before(cm->epoch, request) ? request : cm->epoch + 1;
}

/* The request has been accepted: the time for ESTABLISHED begins. */
static int do_await(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    (void)s;
    mdapl_dapl_cm_set_timer(st, mdapl_ctx_now(st->peer->d->ctx) + mdapl_dapl_cm_time(st));
    return MDAPL_CM_NO_EVENT;
}

static int do_accept(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    uint32_t number = next_number(&st->cm, s->hello->epoch);
    uint8_t hello[MDAPL_HELLO_BYTES];
    int rc;

    if (st->conn)
        st->conn->loses = st->conn->caller;
    rc = fresh_conn(st, number);
    st->cm.epoch = number;
    if (!rc)
        rc = mdapl_dapl_rx_arm(st->conn);
    if (rc) {
        reject(st, s->cr, MDAPL_HELLO_BUSY, s->hello);
        return refused_here(st, s);
    }
    mdapl_dapl_peer_offered(st, s->hello);
    mdapl_dapl_cm_hello_put(st, MDAPL_HELLO_REPLY, number, hello);
    if (mdapl_dapl_ep_accept(&st->conn->ep, s->cr, hello, sizeof(hello)))
        return refused_here(st, s);
    /* Rendezvous with a peer that has been connected before may be in progress. */
    return st->peer->was_up ? (int)MDAPL_CM_AGAIN : do_await(st, s);
}

static int do_reject(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    uint64_t due = mdapl_ctx_now(st->peer->d->ctx) + mdapl_dapl_cm_first_time(st);

    if (st->cm.state != MDAPL_CM_CONNECTING) {
        reject(st, s->cr, MDAPL_HELLO_GONE, s->hello);
        return MDAPL_CM_NO_EVENT;
    }
    reject(st, s->cr, MDAPL_HELLO_BUSY, s->hello);
    /* The request of this rank wins. Its receiver is alive, so the answer arrives soon, or the
     * request has been lost. */
    if (due < st->cm.timer.due)
        mdapl_dapl_cm_set_timer(st, due);
    return MDAPL_CM_NO_EVENT;
}

void mdapl_dapl_cm_reject_held(struct mdapl_dapl_stream *st, uint8_t flag)
{
    if (st->cm.held != DAT_HANDLE_NULL)
        reject(st, st->cm.held, flag, &st->cm.held_hello);
    st->cm.held = DAT_HANDLE_NULL;
}

static int do_hold(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    mdapl_dapl_cm_reject_held(st, MDAPL_HELLO_BUSY);
    st->cm.held = s->cr;
    st->cm.held_hello = *s->hello;
    return MDAPL_CM_NO_EVENT;
}

/* Frames may be transmitted on the stream's connection. */
static void open_to_frames(struct mdapl_dapl_stream *st)
{
    mdapl_dapl_peer_wake(st->peer);
    if (st->fault.kind != MDAPL_DAPL_FAULT_NONE || st->up)
        return;
    mdapl_dapl_stream_set_up(st, st->conn);
    mdapl_dapl_probe_offer(st);
    mdapl_dapl_rndv_up(st);
    mdapl_dapl_rma_up(st);
}

void mdapl_dapl_cm_first_frame(struct mdapl_dapl_conn *conn)
{
    conn->first_arrived = true;
    if (conn->st->cm.state == MDAPL_CM_UP && !conn->caller)
        open_to_frames(conn->st);
}

/* A connection has been replaced: the line of the recovery. */
static void report_recovery(struct mdapl_dapl_stream *st, uint64_t now)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(st->peer->d->ctx);
    char what[192];

    stats->reconnects++;
    mdapl_log(log_of(st), MDAPL_INFO, "connected to rank %d on %s again over IA %s, stream %d, "
              "connection %u, after %llu us and %u requests: %s; %llu frames not acknowledged",
              st->peer->base.rank, st->peer->host, st->ia->name, st->index, st->conn->epoch,
              (unsigned long long)((now - st->cm.since) / 1000), st->cm.requests,
              mdapl_dapl_fault_text(&st->ended_by, what, sizeof(what)),
              (unsigned long long)mdapl_dapl_peer_unacked(st->peer));
}

/* The peer can be reached: how long could it not? */
static void end_outage(struct mdapl_dapl_peer *peer, uint64_t now)
{
    if (peer->was_up && peer->n_up == 1)
        mdapl_stats_max(&mdapl_ctx_stats(peer->d->ctx)->outage_max,
                        (now - peer->down_since) / 1000);
    peer->was_up = true;
}

static int do_up(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);

    (void)s;
    if (st->conn->caller && mdapl_dapl_rx_arm(st->conn))
        mdapl_dapl_post_refused(st->conn, MDAPL_DAPL_OP_RECV);
    if (st->cm.connections++ > 0)
        report_recovery(st, now);
    end_outage(st->peer, now);
    st->cm.unanswered = 0;
    st->cm.up_at = now;
    st->cm.up_mark = mdapl_dapl_peer_delivered(st->peer);
    if (st->conn->caller || st->conn->first_arrived)
        open_to_frames(st);
    mdapl_dapl_path_up(st->conn);
    mdapl_ctx_stats(st->peer->d->ctx)->connects++;
    mdapl_log(log_of(st), MDAPL_CONN,
              "connected to rank %d on %s, stream %d on IA %s (qualifier %llu), connection %u",
              st->peer->base.rank, st->peer->host, st->index, st->ia->name,
              (unsigned long long)st->cm.qual, st->conn->epoch);
    return MDAPL_CM_NO_EVENT;
}

/* Raises the fault of an attempt that has ended. The fault has the time since connecting began and
 * since the first refusal of those in a row. now: ns. */
static void raise_attempt(struct mdapl_dapl_stream *st, const struct mdapl_dapl_cm_args *s,
                          uint64_t now)
{
    enum mdapl_dapl_cm_reply says = s->cause->says;
    struct mdapl_dapl_fault f = {
        .kind = MDAPL_DAPL_FAULT_ATTEMPT, .stream = st->index, .cause = s->cause,
        .waited_ns = now - st->cm.since,
    };

    st->cm.unanswered = says == MDAPL_CM_REPLY_NONE ? st->cm.unanswered + 1 : 0;
    if (says == MDAPL_CM_REPLY_NO && !st->cm.refused)
        st->cm.refused_since = now;
    st->cm.refused = says == MDAPL_CM_REPLY_NO;
    f.refused_ns = st->cm.refused ? now - st->cm.refused_since : 0;
    snprintf(f.detail, sizeof(f.detail), "%s", s->detail ? s->detail : "");
    mdapl_dapl_raise(st, &f);
}

static int do_backoff(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    struct mdapl_dapl_chan *d = st->peer->d;
    uint64_t now = mdapl_ctx_now(d->ctx), pause = mdapl_dapl_cm_pause(st);

    if (s->cause->says == MDAPL_CM_REPLY_NEVER && is_end_of_job(st)) {
        give_up(st);
        return MDAPL_CM_NOT_NEEDED;
    }
    mdapl_ctx_stats(d->ctx)->connect_retries++;
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d on %s: %s; trying again in %llu ms",
              st->peer->base.rank, st->peer->host, s->cause->text,
              (unsigned long long)(pause / 1000000));
    if (mdapl_dapl_rail_usable(st->ia))          /* else the peer is not the reason */
        raise_attempt(st, s, now);
    give_up(st);
    mdapl_dapl_cm_set_timer(st, now + pause);
    return MDAPL_CM_NO_EVENT;
}

static int do_release(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    give_up(st);
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d on %s: %s", st->peer->base.rank, st->peer->host,
              s->cause->text);
    return st->cm.wanted ? (int)MDAPL_CM_CONNECT_REQ : (int)MDAPL_CM_NO_EVENT;
}

static int do_close(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    (void)s;
    mdapl_dapl_rndv_ended(st);
    mdapl_dapl_conn_close(st->conn, st);
    return MDAPL_CM_NO_EVENT;
}

/* A fault that has been judged by recover.c is not raised again: its cause is this rank itself. */
static int do_lose(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    bool known = s->cause == mdapl_dapl_cm_cause(MDAPL_CAUSE_OWN);
    bool disconnected = s->cause == mdapl_dapl_cm_cause(MDAPL_CAUSE_DISCONNECTED);

    mdapl_dapl_ring_poll_conn(st->conn); /* what has been written is delivered before */
    /* The peer disconnects, too, as soon as it needs the connection no more: that is no fault. */
    if (!known && !(disconnected && is_end_of_job(st)))
        mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
            .kind = MDAPL_DAPL_FAULT_LOST, .stream = st->index, .cause = s->cause });
    if (mdapl_dapl_cm_outage_end(st->peer) != UINT64_MAX)
        mdapl_dapl_cm_set_timer(st, mdapl_dapl_cm_outage_end(st->peer));
    return do_close(st, s);
}

static int do_hold_lose(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    do_hold(st, s);
    s->cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_NEW_REQUEST);
    return do_lose(st, s);
}

static int do_hold_close(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    do_hold(st, s);
    return do_close(st, s);
}

/* The drain lasts for as long as the peer may be without a connection. */
static int do_overdue(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    s->cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_NO_FLUSH);
    raise_attempt(st, s, mdapl_ctx_now(st->peer->d->ctx));
    return MDAPL_CM_NO_EVENT;
}

static int do_forget(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    (void)s;
    st->conn = NULL;
    return MDAPL_CM_NO_EVENT;
}

/* The rank whose request wins sends one at once, the other one a little later. */
static int do_replace(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    struct mdapl_dapl_chan *d = st->peer->d;

    st->conn = NULL;
    st->cm.wanted = true;
    if (st->cm.held != DAT_HANDLE_NULL) {
        s->cr = st->cm.held;
        s->hello = &st->cm.held_hello;
        st->cm.held = DAT_HANDLE_NULL;
        return mdapl_dapl_cm_wins(st->peer) ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES;
    }
    if (is_end_of_job(st))
        return MDAPL_CM_NOT_NEEDED;
    mdapl_dapl_cm_set_timer(st, mdapl_ctx_now(d->ctx) + mdapl_dapl_cm_turn(st));
    return MDAPL_CM_NO_EVENT;
}

static int do_rest(struct mdapl_dapl_stream *st, struct mdapl_dapl_cm_args *s)
{
    (void)s;
    st->cm.wanted = false;
    return MDAPL_CM_NO_EVENT;
}

static int (*const actions[])(struct mdapl_dapl_stream *, struct mdapl_dapl_cm_args *) = {
    [MDAPL_CM_NOTHING] = NULL,
    [MDAPL_CM_DO_CONNECT_SOON] = do_connect_soon,
    [MDAPL_CM_DO_CONNECT] = do_connect,
    [MDAPL_CM_DO_ACCEPT] = do_accept,
    [MDAPL_CM_DO_AWAIT] = do_await,
    [MDAPL_CM_DO_REJECT] = do_reject,
    [MDAPL_CM_DO_HOLD] = do_hold,
    [MDAPL_CM_DO_HOLD_LOSE] = do_hold_lose,
    [MDAPL_CM_DO_HOLD_CLOSE] = do_hold_close,
    [MDAPL_CM_DO_UP] = do_up,
    [MDAPL_CM_DO_BACKOFF] = do_backoff,
    [MDAPL_CM_DO_RELEASE] = do_release,
    [MDAPL_CM_DO_LOSE] = do_lose,
    [MDAPL_CM_DO_CLOSE] = do_close,
    [MDAPL_CM_DO_END] = NULL,
    [MDAPL_CM_DO_FORGET] = do_forget,
    [MDAPL_CM_DO_REPLACE] = do_replace,
    [MDAPL_CM_DO_OVERDUE] = do_overdue,
    [MDAPL_CM_DO_REST] = do_rest,
    [MDAPL_CM_DO_NO_MORE] = NULL,
};

int mdapl_dapl_cm_act(struct mdapl_dapl_stream *st, enum mdapl_dapl_cm_action action,
                      struct mdapl_dapl_cm_args *args)
{
    return actions[action] ? actions[action](st, args) : (int)MDAPL_CM_NO_EVENT;
}
