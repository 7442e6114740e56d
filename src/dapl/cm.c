/* SPDX-License-Identifier: MIT */
#include "cm.h"

#include "cfg.h"
#include "cm_fsm.h"
#include "cm_report.h"
#include "conn.h"
#include "dapl.h"
#include "ep.h"
#include "err.h"
#include "frames.h"
#include "log.h"
#include "min.h"
#include "peer.h"
#include "stats.h"
#include "window.h"
#include "wire.h"

#include <stdio.h>
#include <string.h>

enum {
    BACKOFF_DOUBLINGS = 5,       /* the pause between tries grows 32 times at most */
    TIME_DOUBLINGS = 3,          /* the time of an unanswered request, 8 times */
    GRACE_MS = 1000,             /* for the provider to report the timeout of a request */
    SOON_MS = 5000,              /* an UNREACHABLE after more time is no answer */
    ATTENTIVE_MS = 10,           /* each round polls all queues so long after an event */
};

/* What a step of the table acts on besides the stream. */
struct step {
    DAT_CR_HANDLE cr;            /* the request to answer or to refuse */
    const struct mdapl_dapl_hello *hello; /* its hello */
    const struct mdapl_dapl_cm_cause *cause;
    const char *detail;          /* more about it; NULL: nothing */
};

/* What an action returns: the event to handle next in the same call, or NO_EVENT. */
enum { NO_EVENT = MDAPL_CM_EVENTS };

static const struct mdapl_cfg *cfg_of(const struct mdapl_dapl_stream *st)
{
    return mdapl_ctx_cfg(st->peer->d->ctx);
}

static struct mdapl_log *log_of(const struct mdapl_dapl_stream *st)
{
    return mdapl_ctx_log(st->peer->d->ctx);
}

/* -- the hello -------------------------------------------------------------------------------- */

static void put_hello(const struct mdapl_dapl_stream *st, uint8_t flags, uint32_t epoch,
                      uint8_t out[MDAPL_HELLO_BYTES])
{
    const struct mdapl_group *group = mdapl_peer_group(&st->peer->base);
    struct mdapl_name self = mdapl_group_self(group);
    struct mdapl_dapl_hello h = {
        .flags = flags, .stream = (uint8_t)st->index, .group = self.group, .dst_group = group->id,
        .src = (uint32_t)self.rank, .dst = (uint32_t)st->peer->base.rank, .epoch = epoch,
        .incarnation = st->peer->d->incarnation, .rx_next = st->peer->rx_next,
        .frame_bytes = (uint32_t)st->peer->d->frame_room + MDAPL_FRAME_HDR_BYTES,
        .sr_window = (uint16_t)st->peer->d->sr_window,
        .offers = cfg_of(st)->retain == MDAPL_RETAIN_ON ? MDAPL_HELLO_RETAINS : 0,
    };

    mdapl_dapl_hello_put(&h, group->key, out);
}

/* -- actions ---------------------------------------------------------------------------------- */

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
    return mdapl_dapl_conn_open(st, epoch, &st->conn);
}

static uint64_t timeout_of(const struct mdapl_dapl_stream *st)
{
    return MDAPL_MS(cfg_of(st)->connect_timeout_ms);
}

static void set_timer(struct mdapl_dapl_stream *st, uint64_t due)
{
    mdapl_timer_set(&st->peer->d->timers, &st->cm.timer, due);
}

/* The timeout of the next request, in ns. It doubles with each unanswered one, so that few requests
 * of this rank are queued at a peer that computes outside MPI for long. */
static uint64_t time_of_request(const struct mdapl_dapl_stream *st, uint64_t now)
{
    uint64_t limit = MDAPL_MS(cfg_of(st)->connect_unanswered_ms), waited = now - st->cm.since;
    uint64_t time = timeout_of(st) << mdapl_min(st->cm.unanswered, TIME_DOUBLINGS);

    return limit > waited ? mdapl_min(time, limit - waited) : time;
}

static int do_connect_soon(struct mdapl_dapl_stream *st, struct step *s)
{
    (void)s;
    set_timer(st, mdapl_ctx_now(st->peer->d->ctx));
    return NO_EVENT;
}

/* The adapter or the memory of this side refuses the attempt: returns REJECTED, with the cause. */
static int refused_here(struct mdapl_dapl_stream *st, struct step *s)
{
    s->cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_LOCAL);
    s->detail = mdapl_ctx_err(st->peer->d->ctx)->text;
    return MDAPL_CM_REJECTED;
}

static int do_connect(struct mdapl_dapl_stream *st, struct step *s)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx), time = time_of_request(st, now);
    uint8_t hello[MDAPL_HELLO_BYTES];
    int rc = fresh_conn(st, ++st->cm.epoch);

    st->cm.called = now;
    put_hello(st, 0, st->cm.epoch, hello);
    if (!rc) {
        st->conn->caller = true;
        rc = mdapl_dapl_ep_connect(&st->conn->ep, st->cm.addr, st->cm.addr_len, st->cm.qual, time,
                                   hello, sizeof(hello));
    }
    if (rc)
        return refused_here(st, s);
    set_timer(st, now + time + MDAPL_MS(GRACE_MS));
    return NO_EVENT;
}

static void refuse(struct mdapl_dapl_chan *d, DAT_CR_HANDLE cr)
{
    d->dat.dat_cr_reject(cr, 0, NULL);
}

static int do_accept(struct mdapl_dapl_stream *st, struct step *s)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);
    uint8_t hello[MDAPL_HELLO_BYTES];
    int rc = fresh_conn(st, st->cm.peer_epoch);

    put_hello(st, MDAPL_HELLO_REPLY, st->cm.peer_epoch, hello);
    if (!rc)
        rc = mdapl_dapl_rx_arm(st->conn);
    if (rc) {
        refuse(st->peer->d, s->cr);
        return refused_here(st, s);
    }
    mdapl_dapl_peer_offered(st, s->hello);
    if (mdapl_dapl_ep_accept(&st->conn->ep, s->cr, hello, sizeof(hello)))
        return refused_here(st, s);
    set_timer(st, now + timeout_of(st));
    return NO_EVENT;
}

/* Rejects a request with BUSY: its sender may repeat it, or has another request in flight. */
static void refuse_for_now(struct mdapl_dapl_stream *st, DAT_CR_HANDLE cr, uint32_t epoch)
{
    uint8_t hello[MDAPL_HELLO_BYTES];

    put_hello(st, MDAPL_HELLO_BUSY, epoch, hello);
    st->peer->d->dat.dat_cr_reject(cr, sizeof(hello), hello);
}

static int do_reject(struct mdapl_dapl_stream *st, struct step *s)
{
    uint64_t due = mdapl_ctx_now(st->peer->d->ctx) + timeout_of(st);

    if (st->cm.state != MDAPL_CM_CONNECTING) {
        refuse(st->peer->d, s->cr);
        return NO_EVENT;
    }
    refuse_for_now(st, s->cr, st->cm.peer_epoch);
    /* The request of this rank wins. Its receiver is alive, so the answer arrives soon, or the
     * request has been lost. */
    if (due < st->cm.timer.due)
        set_timer(st, due);
    return NO_EVENT;
}

/* Frames may be transmitted on the stream's connection. */
static void open_to_frames(struct mdapl_dapl_stream *st)
{
    if (st->fault.kind == MDAPL_DAPL_FAULT_NONE)
        st->up = st->conn;
    mdapl_dapl_peer_wake(st->peer);
}

void mdapl_dapl_cm_first_frame(struct mdapl_dapl_conn *conn)
{
    conn->first_arrived = true;
    if (conn->st->cm.state == MDAPL_CM_UP && !conn->caller)
        open_to_frames(conn->st);
}

static int do_up(struct mdapl_dapl_stream *st, struct step *s)
{
    (void)s;
    if (st->conn->caller && mdapl_dapl_rx_arm(st->conn))
        mdapl_dapl_post_refused(st->conn, MDAPL_DAPL_OP_RECV);
    if (st->conn->caller || st->conn->first_arrived)
        open_to_frames(st);
    st->cm.unanswered = 0;
    mdapl_ctx_stats(st->peer->d->ctx)->connects++;
    mdapl_log(log_of(st), MDAPL_CONN,
              "connected to rank %d on %s, stream %d on IA %s (qualifier %llu), connection %u",
              st->peer->base.rank, st->peer->host, st->index, st->ia->name,
              (unsigned long long)st->cm.qual, st->conn->epoch);
    return NO_EVENT;
}

/* Raises the fault of an attempt that has ended. The fault has the time since connecting began and
 * since the first refusal of those in a row. now: ns. */
static void raise_attempt(struct mdapl_dapl_stream *st, const struct step *s, uint64_t now)
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

/* Without jitter, all requests to a busy rank would be repeated at the same time. The jitter is a
 * multiplicative hash of the job, both ranks and epoch, so that a run of the simulation is
 * reproducible. */
static uint64_t jitter(const struct mdapl_dapl_stream *st)
{
    const struct mdapl_group *job = mdapl_ctx_job(st->peer->d->ctx);
    uint64_t x = (uint64_t)job->id << 32 ^ st->cm.epoch;

    x ^= (uint64_t)job->rank << 40 ^ (uint64_t)st->peer->base.rank << 16;
    return x * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

static int do_backoff(struct mdapl_dapl_stream *st, struct step *s)
{
    struct mdapl_dapl_chan *d = st->peer->d;
    uint64_t doublings = mdapl_min(st->cm.epoch, BACKOFF_DOUBLINGS);
    uint64_t pause = MDAPL_MS(cfg_of(st)->connect_retry_ms) << doublings >> 1;
    uint64_t now = mdapl_ctx_now(d->ctx);

    pause += jitter(st) % (pause / 2 + 1);
    mdapl_ctx_stats(d->ctx)->connect_retries++;
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d on %s: %s; trying again in %llu ms",
              st->peer->base.rank, st->peer->host, s->cause->text,
              (unsigned long long)(pause / 1000000));
    raise_attempt(st, s, now);
    give_up(st);
    set_timer(st, now + pause);
    return NO_EVENT;
}

static int do_release(struct mdapl_dapl_stream *st, struct step *s)
{
    give_up(st);
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d on %s: %s", st->peer->base.rank, st->peer->host,
              s->cause->text);
    return st->cm.wanted ? (int)MDAPL_CM_CONNECT_REQ : (int)NO_EVENT;
}

static int do_close(struct mdapl_dapl_stream *st, struct step *s)
{
    (void)s;
    mdapl_dapl_conn_close(st->conn, st);
    return NO_EVENT;
}

static int do_lose(struct mdapl_dapl_stream *st, struct step *s)
{
    mdapl_dapl_ring_poll_conn(st->conn); /* what has been written is delivered before */
    mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
        .kind = MDAPL_DAPL_FAULT_LOST, .stream = st->index, .cause = s->cause });
    return do_close(st, s);
}

static int do_forget(struct mdapl_dapl_stream *st, struct step *s)
{
    (void)s;
    st->conn = NULL;
    return NO_EVENT;
}

static int (*const act[])(struct mdapl_dapl_stream *, struct step *) = {
    [MDAPL_CM_NOTHING] = NULL,
    [MDAPL_CM_DO_CONNECT_SOON] = do_connect_soon,
    [MDAPL_CM_DO_CONNECT] = do_connect,
    [MDAPL_CM_DO_ACCEPT] = do_accept,
    [MDAPL_CM_DO_REJECT] = do_reject,
    [MDAPL_CM_DO_UP] = do_up,
    [MDAPL_CM_DO_BACKOFF] = do_backoff,
    [MDAPL_CM_DO_RELEASE] = do_release,
    [MDAPL_CM_DO_LOSE] = do_lose,
    [MDAPL_CM_DO_CLOSE] = do_close,
    [MDAPL_CM_DO_END] = NULL,
    [MDAPL_CM_DO_FORGET] = do_forget,
};

/* -- changes of state ------------------------------------------------------------------------- */

/* Changes the state of a stream's connection, and the counters of the peer and of the channel that
 * follow from it. A timer belongs to the state in which it was set. */
static void enter(struct mdapl_dapl_stream *st, enum mdapl_dapl_cm_state next)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_chan *d = peer->d;
    enum mdapl_dapl_cm_state was = st->cm.state;
    uint64_t now = mdapl_ctx_now(d->ctx);
    bool was_connected = peer->n_up == peer->n_streams;

    d->n_connecting += mdapl_dapl_cm_connecting(next) - mdapl_dapl_cm_connecting(was);
    peer->n_up += (next == MDAPL_CM_UP) - (was == MDAPL_CM_UP);
    d->n_connected += (peer->n_up == peer->n_streams) - was_connected;
    if (next != was) {
        mdapl_timer_stop(&st->cm.timer);
        st->cm.overdue = false;
        st->up = NULL;
    }
    if (mdapl_dapl_cm_connecting(next))
        d->attentive_until = now + MDAPL_MS(ATTENTIVE_MS);
    if (!mdapl_dapl_cm_connecting(was) && mdapl_dapl_cm_connecting(next)) {
        st->cm.since = now;
        st->cm.warn_at = now + timeout_of(st);
        st->cm.refused = false;
        st->cm.unanswered = 0;
    }
    st->cm.state = next;
}

/* Handles an event of a stream, and the events that its action returns. */
static void run(struct mdapl_dapl_stream *st, enum mdapl_dapl_cm_event event, struct step s)
{
    for (int e = event; e != NO_EVENT;) {
        struct mdapl_dapl_cm_move move = mdapl_dapl_cm_step(st->cm.state,
                                                            (enum mdapl_dapl_cm_event)e);

        if (move.next != st->cm.state)
            mdapl_log(log_of(st), MDAPL_CONN, "rank %d stream %d: %s, %s -> %s",
                      st->peer->base.rank, st->index,
                      mdapl_dapl_cm_event_name((enum mdapl_dapl_cm_event)e),
                      mdapl_dapl_cm_state_name(st->cm.state), mdapl_dapl_cm_state_name(move.next));
        enter(st, move.next);
        e = act[move.action] ? act[move.action](st, &s) : (int)NO_EVENT;
    }
}

/* The same for an event that the channel itself makes. */
static void run_for(struct mdapl_dapl_stream *st, enum mdapl_dapl_cm_event event,
                    enum mdapl_dapl_cm_cause_id id)
{
    run(st, event, (struct step){ .cause = mdapl_dapl_cm_cause(id) });
}

/* -- requests that arrive --------------------------------------------------------------------- */

static void reject_stranger(struct mdapl_dapl_chan *d, struct mdapl_dapl_ia *ia, DAT_CR_HANDLE cr,
                            const char *why)
{
    mdapl_ctx_stats(d->ctx)->cr_refused++;
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_INFO,
              "IA %s: refused a connection request that %s; nothing needs to be done unless it "
              "comes again and again", ia->name, why);
    refuse(d, cr);
}

/* Is the request stale? Its epoch is not above the last one of the peer (a newer request replaced
 * it, or it is a replay), or the peer has accepted the request of this rank since it sent this
 * one. */
static bool is_stale(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_hello *h)
{
    return !mdapl_seq_before(st->cm.peer_epoch, h->epoch)
        || (st->cm.state == MDAPL_CM_CONNECTING
            && mdapl_dapl_ep_state(&st->conn->ep) == DAT_EP_STATE_CONNECTED);
}

static void refuse_stale(struct mdapl_dapl_stream *st, DAT_CR_HANDLE cr, uint32_t epoch)
{
    mdapl_ctx_stats(st->peer->d->ctx)->cr_stale++;
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d: refused its request %u, which is stale",
              st->peer->base.rank, epoch);
    refuse_for_now(st, cr, epoch);
}

/* Of two requests that cross, that of the lower group id wins, and within a group that of the lower
 * rank: does the one of this peer? */
static bool wins(const struct mdapl_dapl_peer *peer)
{
    const struct mdapl_group *group = mdapl_peer_group(&peer->base);
    struct mdapl_name self = mdapl_group_self(group);

    return group->id == self.group ? peer->base.rank < self.rank : group->id < self.group;
}

static void on_cr(void *arg, struct mdapl_dapl_ia *ia, DAT_CR_HANDLE cr)
{
    struct mdapl_dapl_chan *d = arg;
    struct mdapl_dapl_stream *st;
    struct mdapl_peer *base;
    struct mdapl_dapl_hello h;
    DAT_CR_PARAM param;
    enum mdapl_dapl_hello_verdict verdict = MDAPL_HELLO_SHORT;
    size_t len = 0;

    memset(&param, 0, sizeof(param));
    if (d->dat.dat_cr_query(cr, DAT_CR_FIELD_ALL, &param) == DAT_SUCCESS && param.private_data)
        len = (size_t)param.private_data_size;
    if (len > 0)
        verdict = mdapl_dapl_hello_verify(d, param.private_data, len, &h);
    if (verdict == MDAPL_HELLO_UNKNOWN_GROUP && !d->closing)
        verdict = mdapl_dapl_hello_visitor(d, param.private_data, len, &h);
    if (verdict == MDAPL_HELLO_OK && h.flags & (MDAPL_HELLO_REPLY | MDAPL_HELLO_BUSY))
        verdict = MDAPL_HELLO_NOT_OURS;
    if (verdict != MDAPL_HELLO_OK || d->closing) {
        reject_stranger(d, ia, cr,
                        d->closing ? "came while the job ends"
                                   : mdapl_dapl_hello_verdict_text(verdict));
        return;
    }
    if (mdapl_group_peer(mdapl_group_find(d->ctx, h.group), (int)h.src, &base)
        || base->channel != &mdapl_dapl_channel) {
        reject_stranger(d, ia, cr, "comes from a rank that another channel reaches");
        return;
    }
    if (h.stream >= mdapl_dapl_peer_of(base)->n_streams) {
        reject_stranger(d, ia, cr, "is for a stream that we do not have");
        return;
    }
    st = &mdapl_dapl_peer_of(base)->stream[h.stream];
    if (is_stale(st, &h)) {
        refuse_stale(st, cr, h.epoch);
        return;
    }
    st->cm.peer_epoch = h.epoch;
    run(st, wins(st->peer) ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES,
        (struct step){ .cr = cr, .hello = &h, .cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_OWN) });
}

/* -- connection events ------------------------------------------------------------------------ */

/* Is this a hello of the peer with this flag, in answer to the request that is in flight? */
static bool hello_is_back(struct mdapl_dapl_stream *st, const void *priv, size_t len, uint8_t flag,
                          struct mdapl_dapl_hello *h)
{
    return mdapl_dapl_hello_verify(st->peer->d, priv, len, h) == MDAPL_HELLO_OK && h->flags == flag
           && h->group == mdapl_peer_group(&st->peer->base)->id
           && (int)h->src == st->peer->base.rank && h->stream == st->index
           && h->epoch == st->cm.epoch;
}

/* The cause that follows from the hello or the time of an event of a request, beside the number of
 * the event; MDAPL_CAUSES: the number alone says it. */
static enum mdapl_dapl_cm_cause_id look_closer(struct mdapl_dapl_stream *st,
                                               DAT_EVENT_NUMBER number, const void *priv,
                                               size_t len)
{
    uint64_t waited = mdapl_ctx_now(st->peer->d->ctx) - st->cm.called;
    struct mdapl_dapl_hello h;

    if (number == DAT_CONNECTION_EVENT_ESTABLISHED) {
        if (!hello_is_back(st, priv, len, MDAPL_HELLO_REPLY, &h))
            return MDAPL_CAUSE_WRONG_ANSWER;
        mdapl_dapl_peer_offered(st, &h);
    }
    if (number == DAT_CONNECTION_EVENT_PEER_REJECTED
        && hello_is_back(st, priv, len, MDAPL_HELLO_BUSY, &h))
        return MDAPL_CAUSE_BUSY;
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
    if (st->cm.state == MDAPL_CM_CONNECTING)
        closer = look_closer(st, number, priv, len);
    if (closer != MDAPL_CAUSES)
        cause = mdapl_dapl_cm_cause(closer);
    run(st, cause->event, (struct step){ .cause = cause });
}

struct mdapl_dapl_ia_hooks mdapl_dapl_cm_hooks(struct mdapl_dapl_chan *d)
{
    return (struct mdapl_dapl_ia_hooks){
        .cr = on_cr, .conn = on_conn, .async = mdapl_dapl_async_event, .arg = d
    };
}

/* -- from inside the channel ------------------------------------------------------------------ */

static bool has_decided(const struct mdapl_dapl_ep *ep)
{
    DAT_EP_STATE state = mdapl_dapl_ep_state(ep);

    return state == DAT_EP_STATE_CONNECTED || state == DAT_EP_STATE_DISCONNECTED;
}

/* The timer of a backoff, of a request or of an acceptance has fired. */
static void timer_fired(struct mdapl_timer *t)
{
    struct mdapl_dapl_cm *cm = MDAPL_OF(t, struct mdapl_dapl_cm, timer);
    struct mdapl_dapl_stream *st = MDAPL_OF(cm, struct mdapl_dapl_stream, cm);
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);

    /* The provider has changed the state of the EP, so the event for it is in the queue. */
    if (cm->state != MDAPL_CM_BACKOFF && !cm->overdue && has_decided(&st->conn->ep)) {
        cm->overdue = true;
        set_timer(st, now + MDAPL_MS(GRACE_MS));
        return;
    }
    run_for(st, MDAPL_CM_TIMER, MDAPL_CAUSE_NO_EVENT);
}

void mdapl_dapl_cm_init(struct mdapl_dapl_stream *st)
{
    mdapl_timer_init(&st->cm.timer, timer_fired);
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

    if (conn->st && cause)
        run(conn->st, cause->event, (struct step){ .cause = cause });
}

void mdapl_dapl_cm_close(struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        run_for(&peer->stream[i], MDAPL_CM_CLOSE, MDAPL_CAUSE_OWN);
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

        mdapl_dapl_conn_free(conn);
        if (waiter)
            run_for(waiter, MDAPL_CM_DRAINED, MDAPL_CAUSE_OWN);
    }
    return mdapl_list_empty(&d->closed);
}
