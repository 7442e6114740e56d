/* SPDX-License-Identifier: MIT */
#include "cm.h"

#include "cfg.h"
#include "cm_act.h"
#include "cm_fsm.h"
#include "cm_hello.h"
#include "cm_report.h"
#include "cm_time.h"
#include "conn.h"
#include "dapl.h"
#include "log.h"
#include "peer.h"
#include "rma.h"
#include "rndv.h"

#include <stdio.h>
#include <string.h>

enum {
    SOON_MS = 5000,              /* an UNREACHABLE after more time is no answer */
    ATTENTIVE_MS = 10,           /* each round polls all queues so long after an event */
    STEADY_MS = 1000,            /* a connection that stood so long has ended the outage before */
};

static const struct mdapl_cfg *cfg_of(const struct mdapl_dapl_stream *st)
{
    return mdapl_ctx_cfg(st->peer->d->ctx);
}

static struct mdapl_log *log_of(const struct mdapl_dapl_stream *st)
{
    return mdapl_ctx_log(st->peer->d->ctx);
}

/* -- changes of state ------------------------------------------------------------------------- */

/* The peer has no connection any more. One that broke at once, before a frame was delivered, does
 * not end the outage before it. */
static void begin_outage(const struct mdapl_dapl_stream *st, uint64_t now)
{
    struct mdapl_dapl_peer *peer = st->peer;

    if (peer->down_since == 0 || mdapl_dapl_peer_delivered(peer) != st->cm.up_mark
        || now - st->cm.up_at >= MDAPL_MS(STEADY_MS))
        peer->down_since = now;
}

/* Changes the state of a stream's connection, and the counters of the peer and of the channel that
 * follow from it. A timer belongs to the state in which it was set. */
static void enter(struct mdapl_dapl_stream *st, enum mdapl_dapl_cm_state next)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_chan *d = peer->d;
    enum mdapl_dapl_cm_state was = st->cm.state;
    uint64_t now = mdapl_ctx_now(d->ctx);
    bool was_connected = peer->n_up == peer->n_streams;

    d->used = true;
    d->n_connecting += mdapl_dapl_cm_connecting(next) - mdapl_dapl_cm_connecting(was);
    peer->n_up += (next == MDAPL_CM_UP) - (was == MDAPL_CM_UP);
    d->n_connected += (peer->n_up == peer->n_streams) - was_connected;
    if (was == MDAPL_CM_UP && next != was && peer->n_up == 0)
        begin_outage(st, now);
    if (next != was) {
        mdapl_timer_stop(&st->cm.timer);
        mdapl_dapl_cm_request_end(st);
        st->cm.overdue = false;
        mdapl_dapl_stream_set_up(st, NULL);
    }
    if (was == MDAPL_CM_UP && next != was)
        mdapl_dapl_probe_end(st);
    if (mdapl_dapl_cm_connecting(next))
        d->attentive_until = now + MDAPL_MS(ATTENTIVE_MS);
    if (!mdapl_dapl_cm_connecting(was) && mdapl_dapl_cm_connecting(next)) {
        st->cm.since = now;
        st->cm.warn_at = now + MDAPL_MS(cfg_of(st)->connect_timeout_ms);
        st->cm.refused = false;
        st->cm.unanswered = 0;
        st->cm.requests = 0;
    }
    st->cm.state = next;
}

/* Handles an event of a stream, and the events that its action returns. */
static void run(struct mdapl_dapl_stream *st, enum mdapl_dapl_cm_event event,
                struct mdapl_dapl_cm_args s)
{
    for (int e = event; e != MDAPL_CM_NO_EVENT;) {
        struct mdapl_dapl_cm_move move = mdapl_dapl_cm_step(st->cm.state,
                                                            (enum mdapl_dapl_cm_event)e);

        if (move.next != st->cm.state)
            mdapl_log(log_of(st), MDAPL_CONN, "rank %d stream %d: %s, %s -> %s",
                      st->peer->base.rank, st->index,
                      mdapl_dapl_cm_event_name((enum mdapl_dapl_cm_event)e),
                      mdapl_dapl_cm_state_name(st->cm.state), mdapl_dapl_cm_state_name(move.next));
        if (move.next != st->cm.state)
            mdapl_dapl_event(st->peer, st->index, MDAPL_DAPL_EVENT_STATE,
                             mdapl_dapl_cm_event_name((enum mdapl_dapl_cm_event)e),
                             mdapl_dapl_cm_state_name(move.next), st->cm.epoch);
        enter(st, move.next);
        e = mdapl_dapl_cm_act(st, move.action, &s);
    }
}

/* The same for an event that the channel itself makes. */
static void run_for(struct mdapl_dapl_stream *st, enum mdapl_dapl_cm_event event,
                    enum mdapl_dapl_cm_cause_id id)
{
    run(st, event, (struct mdapl_dapl_cm_args){ .cause = mdapl_dapl_cm_cause(id) });
}

/* -- requests that arrive --------------------------------------------------------------------- */

/* Is the request stale? Its epoch is not above the last one of the peer (a newer request replaced
 * it, it is older than the connection, or it is a replay), or the peer has accepted the request of
 * this rank since it sent this one. */
static bool is_stale(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_hello *h)
{
    return !mdapl_seq_before(st->cm.peer_epoch, h->epoch)
        || (st->cm.state == MDAPL_CM_CONNECTING
            && mdapl_dapl_ep_state(&st->conn->ep) == DAT_EP_STATE_CONNECTED);
}

/* How a request that does not fit is rejected, and why. flag 0: without a hello, as one of which
 * nothing is verified. */
static const struct refusal {
    uint8_t flag;
    const char *why;
} refusals[MDAPL_HELLO_FIT_N] = {
    [MDAPL_HELLO_FORMER] = { MDAPL_HELLO_GONE, "is for a peer that has been removed" },
    [MDAPL_HELLO_EARLY] = { MDAPL_HELLO_BUSY, "is early: its last peer is still to be removed" },
    [MDAPL_HELLO_AHEAD] = { 0, "acknowledges what was never sent" },
    [MDAPL_HELLO_ELSEWHERE] = { 0, "comes from a rank that another channel reaches" },
};

static void refuse(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia, DAT_CR_HANDLE cr,
                   const struct mdapl_group *from, const struct mdapl_dapl_hello *h,
                   enum mdapl_dapl_hello_fit fit)
{
    if (refusals[fit].flag)
        mdapl_dapl_cm_reject_stale(d, from, cr, refusals[fit].flag, h, refusals[fit].why);
    else
        mdapl_dapl_cm_reject_stranger(d, ia, cr, refusals[fit].why);
}

/* The stream of a verified request that fits; NULL: there is none. */
static struct mdapl_dapl_stream *stream_of(struct mdapl_group *from,
                                           const struct mdapl_dapl_hello *h)
{
    struct mdapl_dapl_peer *peer;
    struct mdapl_peer *base;

    if (mdapl_group_peer(from, (int)h->src, &base) || base->channel != &mdapl_dapl_channel)
        return NULL;
    peer = mdapl_dapl_peer_of(base);
    return h->stream < peer->n_streams ? &peer->stream[h->stream] : NULL;
}

/* A verified request that fits. */
static void on_request(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia, DAT_CR_HANDLE cr,
                       struct mdapl_group *from, const struct mdapl_dapl_hello *h)
{
    struct mdapl_dapl_stream *st = stream_of(from, h);

    if (!st) {
        mdapl_dapl_cm_reject_stranger(d, ia, cr, "is for a stream that we do not have");
        return;
    }
    if (is_stale(st, h)) {
        mdapl_dapl_cm_reject_stale(d, from, cr, MDAPL_HELLO_BUSY, h, "is stale");
        return;
    }
    st->cm.peer_epoch = h->epoch;
    run(st, mdapl_dapl_cm_wins(st->peer) ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES,
        (struct mdapl_dapl_cm_args){
            .cr = cr, .hello = h, .cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_OWN) });
}

/* A request that has been read and verified. */
struct request {
    struct mdapl_dapl_hello h;
    struct mdapl_group *from;    /* its group; NULL: it is of a visitor, whose group this is: */
    struct mdapl_group visitor;
};

/* NULL, or why it is not one of ours: as in "a request that ..." */
static const char *read_request(struct mdapl_dapl_chan *d, DAT_CR_HANDLE cr, struct request *r)
{
    enum mdapl_dapl_hello_verdict verdict = MDAPL_HELLO_SHORT;
    DAT_CR_PARAM param;
    size_t len = 0;

    if (d->closing)
        return "came while the job ends";
    memset(&param, 0, sizeof(param));
    if (d->dat.dat_cr_query(cr, DAT_CR_FIELD_ALL, &param) == DAT_SUCCESS && param.private_data)
        len = (size_t)param.private_data_size;
    if (len > 0)
        verdict = mdapl_dapl_cm_hello_get(d, param.private_data, len, &r->h);
    r->from = verdict == MDAPL_HELLO_OK ? mdapl_group_find(d->ctx, r->h.group) : NULL;
    if (verdict == MDAPL_HELLO_UNKNOWN_GROUP)
        verdict = mdapl_dapl_cm_hello_visitor(d, param.private_data, len, &r->h, &r->visitor);
    if (verdict == MDAPL_HELLO_OK && (r->h.flags & ~MDAPL_HELLO_PING) != 0)
        verdict = MDAPL_HELLO_NOT_OURS;
    return verdict == MDAPL_HELLO_OK ? NULL : mdapl_dapl_hello_verdict_text(verdict);
}

static void on_cr(void *arg, struct mdapl_dapl_ia *ia, DAT_CR_HANDLE cr)
{
    enum mdapl_dapl_hello_fit fit = MDAPL_HELLO_FITS;
    struct mdapl_dapl_chan *d = arg;
    struct request r;
    const char *why;

    if (!mdapl_dapl_rail_usable(ia))             /* the request ends as the adapter is closed */
        return;
    why = read_request(d, cr, &r);
    if (why) {
        mdapl_dapl_cm_reject_stranger(d, ia, cr, why);
        return;
    }
    if (r.from)
        fit = mdapl_dapl_cm_hello_fit(r.from, &r.h);
    else if (r.h.met || mdapl_group_add(d->ctx, &r.visitor, &r.from))
        fit = MDAPL_HELLO_FORMER;
    if (fit == MDAPL_HELLO_FITS && r.h.flags & MDAPL_HELLO_PING)
        mdapl_dapl_cm_answer(d, r.from, cr, &r.h);
    else if (fit == MDAPL_HELLO_FITS)
        on_request(d, ia, cr, r.from, &r.h);
    else
        refuse(d, ia, cr, r.from ? r.from : &r.visitor, &r.h, fit);
}

/* -- connection events ------------------------------------------------------------------------ */

/* The cause that follows from the hello or the time of an event of a request, beside the number of
 * the event; MDAPL_CAUSES: the number alone says it. */
static enum mdapl_dapl_cm_cause_id look_closer(struct mdapl_dapl_stream *st,
                                               DAT_EVENT_NUMBER number, const void *priv,
                                               size_t len)
{
    uint64_t waited = mdapl_ctx_now(st->peer->d->ctx) - st->cm.called;
    struct mdapl_dapl_hello h;

    if (number == DAT_CONNECTION_EVENT_ESTABLISHED) {
        if (!mdapl_dapl_cm_hello_is_reply(st, priv, len, &h))
            return MDAPL_CAUSE_WRONG_ANSWER;
        st->conn->epoch = st->cm.epoch = st->cm.peer_epoch = h.epoch;
        mdapl_dapl_peer_offered(st, &h);
    }
    if (number == DAT_CONNECTION_EVENT_PEER_REJECTED
        && mdapl_dapl_cm_hello_is_rejection(st, priv, len, MDAPL_HELLO_BUSY, &h))
        return MDAPL_CAUSE_BUSY;
    if (number == DAT_CONNECTION_EVENT_PEER_REJECTED
        && mdapl_dapl_cm_hello_is_rejection(st, priv, len, MDAPL_HELLO_GONE, &h))
        return MDAPL_CAUSE_GONE;
    if (number == DAT_CONNECTION_EVENT_UNREACHABLE && waited > MDAPL_MS(SOON_MS))
        return MDAPL_CAUSE_UNREACHABLE_LATE;
    return MDAPL_CAUSES;
}

static void on_conn(void *arg, struct mdapl_dapl_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                    size_t len)
{
    const struct mdapl_dapl_cm_cause *cause = mdapl_dapl_cm_cause_of(number);
    enum mdapl_dapl_cm_cause_id closer = MDAPL_CAUSES;
    struct mdapl_dapl_chan *d = arg;
    struct mdapl_dapl_stream *st = mdapl_dapl_conn_of(ep)->st;

    if (!cause)
        return;
    ep->ended |= cause->event != MDAPL_CM_ESTABLISHED;
    ep->unaccepted |= number == DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR;
    if (!st || d->closing)
        return;
    if (mdapl_dapl_conn_of(ep) == st->pings.conn) {
        mdapl_dapl_probe_pinged(st, number, priv, len);
        return;
    }
    if (st->cm.state == MDAPL_CM_CONNECTING)
        closer = look_closer(st, number, priv, len);
    if (closer != MDAPL_CAUSES)
        cause = mdapl_dapl_cm_cause(closer);
    run(st, cause->event, (struct mdapl_dapl_cm_args){ .cause = cause });
}

struct mdapl_dapl_ia_hooks mdapl_dapl_cm_hooks(struct mdapl_dapl_chan *d)
{
    return (struct mdapl_dapl_ia_hooks){
        .cr = on_cr, .conn = on_conn, .async = mdapl_dapl_async_event,
        .path = mdapl_dapl_path_event, .arg = d
    };
}

/* -- from inside the channel ------------------------------------------------------------------ */

static bool has_decided(const struct mdapl_dapl_ep *ep)
{
    DAT_EP_STATE state = mdapl_dapl_ep_state(ep);

    return state == DAT_EP_STATE_CONNECTED || state == DAT_EP_STATE_DISCONNECTED;
}

/* The timer of a backoff, of a request or of an acceptance has fired. What follows a backoff waits
 * for its turn. */
static void timer_fired(struct mdapl_timer *t)
{
    struct mdapl_dapl_cm *cm = MDAPL_OF(t, struct mdapl_dapl_cm, timer);
    struct mdapl_dapl_stream *st = MDAPL_OF(cm, struct mdapl_dapl_stream, cm);
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);

    if (cm->state == MDAPL_CM_BACKOFF) {
        mdapl_dapl_cm_request_wait(st);
        return;
    }
    /* The provider has changed the state of the EP, so the event for it is in the queue. */
    if (cm->state != MDAPL_CM_DRAINING && !cm->overdue && has_decided(&st->conn->ep)) {
        cm->overdue = true;
        mdapl_dapl_cm_set_timer(st, now + MDAPL_MS(MDAPL_CM_GRACE_MS));
        return;
    }
    run_for(st, MDAPL_CM_TIMER, MDAPL_CAUSE_NO_EVENT);
}

void mdapl_dapl_cm_init(struct mdapl_dapl_stream *st)
{
    mdapl_timer_init(&st->cm.timer, timer_fired);
    mdapl_list_init(&st->cm.request);
}

/* A visitor of which it is not known where it listens: it is the one that connects. */
static void await_request(struct mdapl_dapl_stream *st)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx), end = mdapl_dapl_cm_outage_end(st->peer);

    if (now >= end)
        mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
            .kind = MDAPL_DAPL_FAULT_ATTEMPT, .stream = st->index,
            .cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_NO_EVENT), .waited_ns = now - st->cm.since });
    else if (end != UINT64_MAX)
        mdapl_dapl_cm_set_timer(st, end);
}

void mdapl_dapl_cm_request(struct mdapl_dapl_chan *d)
{
    struct mdapl_dapl_stream *st;

    while ((st = mdapl_dapl_cm_request_next(d)))
        if (st->cm.addr_len == 0)
            await_request(st);
        else if (mdapl_dapl_rail_usable(st->ia))  /* else mdapl_dapl_cm_rail_up() starts a timer */
            run_for(st, MDAPL_CM_TIMER, MDAPL_CAUSE_NO_EVENT);
}

void mdapl_dapl_cm_connect(struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++) {
        peer->stream[i].cm.wanted = true;
        if (peer->stream[i].cm.state == MDAPL_CM_IDLE)
            run_for(&peer->stream[i], MDAPL_CM_CONNECT_REQ, MDAPL_CAUSE_OWN);
    }
}

void mdapl_dapl_cm_lost(struct mdapl_dapl_conn *conn, DAT_EVENT_NUMBER number)
{
    const struct mdapl_dapl_cm_cause *cause = mdapl_dapl_cm_cause_of(number);

    if (conn->st && conn->st->conn == conn && cause)
        run(conn->st, cause->event, (struct mdapl_dapl_cm_args){ .cause = cause });
}

void mdapl_dapl_cm_broke(struct mdapl_dapl_stream *st)
{
    run_for(st, MDAPL_CM_LOST, MDAPL_CAUSE_OWN);
}

void mdapl_dapl_cm_rail_down(struct mdapl_dapl_stream *st, const struct mdapl_dapl_cm_cause *cause)
{
    mdapl_dapl_cm_reject_held(st, MDAPL_HELLO_BUSY);
    run(st, MDAPL_CM_LOST, (struct mdapl_dapl_cm_args){ .cause = cause });
}

void mdapl_dapl_cm_rail_up(struct mdapl_dapl_stream *st)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);

    /* A CTS between the end of the last connection and DOWN has named keys that are void now. */
    mdapl_dapl_rndv_drained(st);
    if (st->cm.state != MDAPL_CM_BACKOFF)
        return;
    st->cm.refused = false;
    st->cm.since = st->peer->was_up ? st->cm.since : now;
    mdapl_dapl_cm_set_timer(st, now + mdapl_dapl_cm_turn(st));
}

void mdapl_dapl_cm_close(struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++) {
        run_for(&peer->stream[i], MDAPL_CM_CLOSE, MDAPL_CAUSE_OWN);
        mdapl_dapl_cm_reject_held(&peer->stream[i], MDAPL_HELLO_GONE);
    }
}

bool mdapl_dapl_cm_ended(const struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (peer->stream[i].cm.state != MDAPL_CM_DEAD)
            return false;
    return true;
}

bool mdapl_dapl_cm_reap(struct mdapl_dapl_chan *d)
{
    struct mdapl_dapl_conn *conn;

    while ((conn = mdapl_dapl_conn_drained(d))) {
        struct mdapl_dapl_stream *waiter = conn->waiter;

        if (waiter)
            mdapl_dapl_rndv_drained(waiter);
        mdapl_dapl_conn_free(conn);
        if (waiter)
            run_for(waiter, MDAPL_CM_DRAINED, MDAPL_CAUSE_OWN);
        mdapl_dapl_rma_drained(d);
    }
    return mdapl_list_empty(&d->closed);
}
