/* SPDX-License-Identifier: MIT */
#include "cm.h"

#include "async.h"
#include "cfg.h"
#include "cm_fsm.h"
#include "cm_report.h"
#include "dapl.h"
#include "ep.h"
#include "err.h"
#include "least.h"
#include "log.h"
#include "peer.h"
#include "rx.h"
#include "seq.h"
#include "stats.h"
#include "wire.h"

#include <errno.h>
#include <string.h>

enum {
    PAUSE_DOUBLINGS = 5,         /* the pause between tries grows 32 times at most */
    TIME_DOUBLINGS = 3,          /* the time of a request that nobody answers, 8 times */
    GRACE_MS = 1000,             /* for the provider to report that a request's time is over */
    SOON_MS = 5000,              /* an UNREACHABLE that comes later is no answer */
    ATTENTIVE_MS = 10,           /* every round looks for events so long after the last one */
};

/* What a step of the table acts on besides the peer. */
struct step {
    DAT_CR_HANDLE cr;            /* the request to answer or to refuse */
    const struct mdapl_hello *hello;     /* its hello */
    const struct mdapl_cm_cause *cause;
    const char *detail;          /* more about it; NULL: nothing */
};

static const struct mdapl_cfg *cfg_of(const struct mdapl_stream *st)
{
    return mdapl_ctx_cfg(st->peer->d->ctx);
}

static struct mdapl_log *log_of(const struct mdapl_stream *st)
{
    return mdapl_ctx_log(st->peer->d->ctx);
}

static void run(struct mdapl_stream *st, enum mdapl_cm_event event, const struct step *s);

/* The same for what the channel has found by itself. */
static void run_for(struct mdapl_stream *st, enum mdapl_cm_event event, enum mdapl_cm_cause_id id,
                    const char *detail)
{
    run(st, event, &(struct step){ .cause = mdapl_cm_cause(id), .detail = detail });
}

/* -- the hello -------------------------------------------------------------------------------- */

static void put_hello(const struct mdapl_stream *st, uint8_t flags, uint32_t epoch,
                      uint8_t out[MDAPL_HELLO_BYTES])
{
    const struct mdapl_job *job = mdapl_ctx_job(st->peer->d->ctx);
    struct mdapl_hello h = {
        .flags = flags, .stream = (uint8_t)st->index, .job = job->id, .src = (uint32_t)job->rank,
        .dst = (uint32_t)st->peer->base.rank, .epoch = epoch,
        .incarnation = st->peer->d->incarnation, .rx_next = st->peer->rx_next,
        .frame_bytes = (uint32_t)st->peer->d->frame_room + MDAPL_FRAME_HDR_BYTES,
        .sr_window = (uint16_t)st->peer->d->sr_window,
        .offers = cfg_of(st)->retain == MDAPL_RETAIN_ON ? MDAPL_HELLO_RETAINS : 0,
    };

    mdapl_hello_put(&h, job->key, out);
}

static enum mdapl_hello_verdict get_hello(const struct mdapl_dapl *d, const void *priv, size_t len,
                                          struct mdapl_hello *h)
{
    const struct mdapl_job *job = mdapl_ctx_job(d->ctx);

    return mdapl_hello_get(h, priv, len, job->key, job->id, (uint32_t)job->rank,
                           (uint32_t)job->size);
}

/* -- actions ---------------------------------------------------------------------------------- */

static bool connecting(enum mdapl_cm_state s)
{
    return s == MDAPL_CM_CALLING || s == MDAPL_CM_PAUSING || s == MDAPL_CM_ANSWERING;
}

static void drop_ep(struct mdapl_stream *st)
{
    if (!st->cm.ep)
        return;
    mdapl_ep_close(st->cm.ep);
    st->cm.ep = NULL;
    st->peer->d->n_closing++;
}

/* A fresh EP with its receives posted, as the windows of both ends assume. */
static int fresh_ep(struct mdapl_stream *st)
{
    struct mdapl_dapl *d = st->peer->d;
    int rc;

    drop_ep(st);
    rc = mdapl_ep_create(st->ia, st, d->sr_window + MDAPL_SR_RESERVE, d->ep_requests,
                         &st->cm.ep);
    if (rc)
        return rc;
    st->rxwin = (struct mdapl_rxwin){ .freed = 0, .told = d->sr_window, .size = d->sr_window };
    st->txwin = (struct mdapl_txwin){ .sent = 0 };   /* until the peer's hello opens it */
    rc = mdapl_rx_arm(st, st->cm.ep);
    if (rc)
        mdapl_err_set(mdapl_ctx_err(d->ctx), rc, "IA %s has no memory for the receives of one "
                      "more endpoint. Make MPIR_CVAR_DAPL_SR_WINDOW or _VBUF_SIZE smaller, or "
                      "raise the memory lock limit (ulimit -l)", st->ia->name);
    return rc;
}

static uint64_t timeout_of(const struct mdapl_stream *st)
{
    return MDAPL_MS(cfg_of(st)->connect_timeout_ms);
}

static void set_timer(struct mdapl_stream *st, uint64_t due)
{
    mdapl_timer_set(&st->peer->d->timers, &st->cm.timer, due);
}

/* How long the next request may wait for an answer: longer each time that none comes, so that a
 * rank which has computed for long finds few requests of ours. */
static uint64_t time_of_request(const struct mdapl_stream *st, uint64_t now)
{
    uint64_t limit = MDAPL_MS(cfg_of(st)->connect_unanswered_ms), waited = now - st->cm.since;
    uint64_t time = timeout_of(st) << mdapl_least(st->cm.unanswered, TIME_DOUBLINGS);

    return limit > waited ? mdapl_least(time, limit - waited) : time;
}

static void do_call_soon(struct mdapl_stream *st, const struct step *s)
{
    (void)s;
    set_timer(st, mdapl_ctx_now(st->peer->d->ctx));
}

static void do_call(struct mdapl_stream *st, const struct step *s)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx), time = time_of_request(st, now);
    uint8_t hello[MDAPL_HELLO_BYTES];
    int rc = fresh_ep(st);

    (void)s;
    st->cm.called = now;
    st->cm.epoch++;
    put_hello(st, 0, st->cm.epoch, hello);
    if (!rc)
        rc = mdapl_ep_connect(st->cm.ep, st->cm.addr, st->cm.addr_len, st->cm.qual, time, hello,
                              sizeof(hello));
    if (rc)
        run_for(st, MDAPL_CM_REFUSED, MDAPL_CAUSE_LOCAL, mdapl_ctx_err(st->peer->d->ctx)->text);
    else
        set_timer(st, now + time + MDAPL_MS(GRACE_MS));
}

static void refuse(struct mdapl_dapl *d, DAT_CR_HANDLE cr)
{
    d->dat.dat_cr_reject(cr, 0, NULL);
}

static void do_answer(struct mdapl_stream *st, const struct step *s)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);
    uint8_t hello[MDAPL_HELLO_BYTES];
    int rc = fresh_ep(st);

    put_hello(st, MDAPL_HELLO_ANSWER, st->cm.peer_epoch, hello);
    mdapl_dpeer_offered(st, s->hello);
    if (rc)
        refuse(st->peer->d, s->cr);
    else
        rc = mdapl_ep_accept(st->cm.ep, s->cr, hello, sizeof(hello));
    if (rc)
        run_for(st, MDAPL_CM_REFUSED, MDAPL_CAUSE_LOCAL, mdapl_ctx_err(st->peer->d->ctx)->text);
    else
        set_timer(st, now + timeout_of(st));
}

/* A refusal that is no verdict: the caller is to go on. */
static void refuse_for_now(struct mdapl_stream *st, DAT_CR_HANDLE cr, uint32_t epoch)
{
    uint8_t hello[MDAPL_HELLO_BYTES];

    put_hello(st, MDAPL_HELLO_BUSY, epoch, hello);
    st->peer->d->dat.dat_cr_reject(cr, sizeof(hello), hello);
}

static void do_refuse(struct mdapl_stream *st, const struct step *s)
{
    uint64_t due = mdapl_ctx_now(st->peer->d->ctx) + timeout_of(st);

    if (st->cm.state != MDAPL_CM_CALLING) {
        refuse(st->peer->d, s->cr);
        return;
    }
    refuse_for_now(st, s->cr, st->cm.peer_epoch);
    /* Ours wins. As its receiver is alive, it will be answered soon or has been lost. */
    if (due < st->cm.timer.due)
        set_timer(st, due);
}

static void do_up(struct mdapl_stream *st, const struct step *s)
{
    (void)s;
    st->cm.ep->up = true;
    st->cm.unanswered = 0;
    mdapl_ctx_stats(st->peer->d->ctx)->connects++;
    mdapl_log(log_of(st), MDAPL_CONN,
              "connected to rank %d on %s, stream %d on IA %s (qualifier %llu), request %u",
              st->peer->base.rank, st->peer->host, st->index, st->ia->name,
              (unsigned long long)st->cm.qual, st->cm.epoch);
    mdapl_dpeer_wake(st->peer);
}

/* One line for a peer that is waited for, each time that the wait has doubled. */
static void warn(struct mdapl_stream *st, const struct step *s, uint64_t now)
{
    char line[640];

    for (int i = 0; i < st->index; i++)
        if (connecting(st->peer->stream[i].cm.state))
            return;
    if (s->cause->says == MDAPL_CM_SAYS_NO || now < st->cm.warn_at)
        return;
    mdapl_cm_line_waiting(st, s->cause, now - st->cm.since, line, sizeof(line));
    mdapl_log(log_of(st), MDAPL_WARN, "%s", line);
    st->cm.warn_at = now + (now - st->cm.since);
}

/* Whether an attempt that has ended so was the last one. */
static bool was_last(struct mdapl_stream *st, enum mdapl_cm_says says, uint64_t now)
{
    uint64_t limit = MDAPL_MS(cfg_of(st)->connect_unanswered_ms);

    st->cm.unanswered = says == MDAPL_CM_SAYS_NOTHING ? st->cm.unanswered + 1 : 0;
    if (says == MDAPL_CM_SAYS_NO) {
        if (!st->cm.refused)
            st->cm.refused_since = now;
        st->cm.refused = true;
        return now - st->cm.refused_since >= timeout_of(st);
    }
    st->cm.refused = false;
    return limit > 0 && now - st->cm.since >= limit;
}

/* Without jitter all callers of a busy rank would come back together. A multiplicative hash of who
 * calls whom for which time, so that a run of the simulation can be repeated. */
static uint64_t jitter(const struct mdapl_stream *st)
{
    const struct mdapl_job *job = mdapl_ctx_job(st->peer->d->ctx);
    uint64_t x = (uint64_t)job->id << 32 ^ st->cm.epoch;

    x ^= (uint64_t)job->rank << 40 ^ (uint64_t)st->peer->base.rank << 16;
    return x * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

static void do_pause(struct mdapl_stream *st, const struct step *s)
{
    struct mdapl_dapl *d = st->peer->d;
    uint64_t doublings = mdapl_least(st->cm.epoch, PAUSE_DOUBLINGS);
    uint64_t pause = MDAPL_MS(cfg_of(st)->connect_retry_ms) << doublings >> 1;
    uint64_t now = mdapl_ctx_now(d->ctx);

    pause += jitter(st) % (pause / 2 + 1);
    drop_ep(st);
    mdapl_ctx_stats(d->ctx)->connect_retries++;
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d on %s: %s; trying again in %llu ms",
              st->peer->base.rank, st->peer->host, s->cause->text,
              (unsigned long long)(pause / 1000000));
    if (was_last(st, s->cause->says, now)) {
        run(st, MDAPL_CM_GIVE_UP, s);
        return;
    }
    warn(st, s, now);
    set_timer(st, now + pause);
}

static void do_release(struct mdapl_stream *st, const struct step *s)
{
    drop_ep(st);
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d on %s: %s", st->peer->base.rank, st->peer->host,
              s->cause->text);
    if (st->cm.wanted)
        run(st, MDAPL_CM_WANT, s);
}

static void do_fail(struct mdapl_stream *st, const struct step *s)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);
    bool was_up = st->cm.ep && st->cm.ep->up;
    const char *detail = s->detail ? s->detail : "";
    char line[640];

    drop_ep(st);
    if (was_up)
        mdapl_cm_line_lost(st, s->cause, detail, line, sizeof(line));
    else
        mdapl_cm_line_unconnected(st, s->cause, detail, now - st->cm.since, line, sizeof(line));
    mdapl_dpeer_fail(st->peer, was_up ? -ECONNRESET : -EHOSTUNREACH, "%s", line);
}

static void do_close(struct mdapl_stream *st, const struct step *s)
{
    (void)s;
    drop_ep(st);
}

static void (*const act[])(struct mdapl_stream *, const struct step *) = {
    [MDAPL_CM_NOTHING] = NULL,
    [MDAPL_CM_DO_CALL_SOON] = do_call_soon,
    [MDAPL_CM_DO_CALL] = do_call,
    [MDAPL_CM_DO_ANSWER] = do_answer,
    [MDAPL_CM_DO_REFUSE] = do_refuse,
    [MDAPL_CM_DO_UP] = do_up,
    [MDAPL_CM_DO_PAUSE] = do_pause,
    [MDAPL_CM_DO_RELEASE] = do_release,
    [MDAPL_CM_DO_FAIL] = do_fail,
    [MDAPL_CM_DO_CLOSE] = do_close,
};

/* -- the one place that changes the state ----------------------------------------------------- */

static void enter(struct mdapl_stream *st, enum mdapl_cm_state next)
{
    struct mdapl_dpeer *peer = st->peer;
    struct mdapl_dapl *d = peer->d;
    enum mdapl_cm_state was = st->cm.state;
    uint64_t now = mdapl_ctx_now(d->ctx);
    bool whole = peer->n_up == peer->n_streams;

    d->n_connecting += connecting(next) - connecting(was);
    peer->n_up += (next == MDAPL_CM_UP) - (was == MDAPL_CM_UP);
    d->n_whole += (peer->n_up == peer->n_streams) - whole;
    if (next != was) {
        mdapl_timer_stop(&st->cm.timer);
        st->cm.overdue = false;
    }
    if (connecting(next))
        d->attentive_until = now + MDAPL_MS(ATTENTIVE_MS);
    if (!connecting(was) && connecting(next)) {
        st->cm.since = now;
        st->cm.warn_at = now + timeout_of(st);
        st->cm.refused = false;
        st->cm.unanswered = 0;
    }
    st->cm.state = next;
}

static void run(struct mdapl_stream *st, enum mdapl_cm_event event, const struct step *s)
{
    struct mdapl_cm_move move = mdapl_cm_step(st->cm.state, event);

    if (move.next != st->cm.state)
        mdapl_log(log_of(st), MDAPL_CONN, "rank %d: %s, %s -> %s", st->peer->base.rank,
                  mdapl_cm_event_name(event), mdapl_cm_state_name(st->cm.state),
                  mdapl_cm_state_name(move.next));
    enter(st, move.next);
    if (act[move.action])
        act[move.action](st, s);
}

/* -- requests that arrive --------------------------------------------------------------------- */

static void refuse_stranger(struct mdapl_dapl *d, struct mdapl_ia *ia, DAT_CR_HANDLE cr,
                            const char *why)
{
    mdapl_ctx_stats(d->ctx)->cr_refused++;
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_INFO,
              "IA %s: refused a connection request that %s; nothing needs to be done unless it "
              "comes again and again", ia->name, why);
    refuse(d, cr);
}

/* A request that its caller has given up for a newer one, or that somebody repeats; or one that
 * was given up before the caller accepted ours. */
static bool is_stale(const struct mdapl_stream *st, const struct mdapl_hello *h)
{
    return !mdapl_seq_before(st->cm.peer_epoch, h->epoch)
           || (st->cm.state == MDAPL_CM_CALLING
               && mdapl_ep_state(st->cm.ep) == DAT_EP_STATE_CONNECTED);
}

static void refuse_stale(struct mdapl_stream *st, DAT_CR_HANDLE cr, uint32_t epoch)
{
    mdapl_ctx_stats(st->peer->d->ctx)->cr_stale++;
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d: refused its request %u, which is stale",
              st->peer->base.rank, epoch);
    refuse_for_now(st, cr, epoch);
}

static void on_cr(void *arg, struct mdapl_ia *ia, DAT_CR_HANDLE cr)
{
    struct mdapl_dapl *d = arg;
    struct mdapl_stream *st;
    struct mdapl_peer *base;
    struct mdapl_hello h;
    DAT_CR_PARAM param;
    enum mdapl_hello_verdict verdict = MDAPL_HELLO_SHORT;

    memset(&param, 0, sizeof(param));
    if (d->dat.dat_cr_query(cr, DAT_CR_FIELD_ALL, &param) == DAT_SUCCESS && param.private_data)
        verdict = get_hello(d, param.private_data, (size_t)param.private_data_size, &h);
    if (verdict == MDAPL_HELLO_OK && h.flags & (MDAPL_HELLO_ANSWER | MDAPL_HELLO_BUSY))
        verdict = MDAPL_HELLO_NOT_OURS;
    if (verdict != MDAPL_HELLO_OK || d->closing) {
        refuse_stranger(d, ia, cr, d->closing ? "came while the job ends"
                                              : mdapl_hello_verdict_text(verdict));
        return;
    }
    if (mdapl_peer_get(d->ctx, (int)h.src, &base) || base->channel != &mdapl_dapl_channel) {
        refuse_stranger(d, ia, cr, "comes from a rank that another channel reaches");
        return;
    }
    if (h.stream >= mdapl_dpeer_of(base)->n_streams) {
        refuse_stranger(d, ia, cr, "is for a stream that we do not have");
        return;
    }
    st = &mdapl_dpeer_of(base)->stream[h.stream];
    if (is_stale(st, &h)) {
        refuse_stale(st, cr, h.epoch);
        return;
    }
    st->cm.peer_epoch = h.epoch;
    run(st, (int)h.src < mdapl_ctx_job(d->ctx)->rank ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES,
        &(struct step){ .cr = cr, .hello = &h, .cause = mdapl_cm_cause(MDAPL_CAUSE_OWN) });
}

/* -- connection events ------------------------------------------------------------------------ */

/* Is this a hello from the called rank, about the request that is under way? */
static bool hello_is_back(struct mdapl_stream *st, const void *priv, size_t len, uint8_t flag,
                          struct mdapl_hello *h)
{
    return get_hello(st->peer->d, priv, len, h) == MDAPL_HELLO_OK && h->flags == flag
           && (int)h->src == st->peer->base.rank && h->stream == st->index
           && h->epoch == st->cm.epoch;
}

/* What an event on our request means beyond its number. */
static enum mdapl_cm_cause_id look_closer(struct mdapl_stream *st, DAT_EVENT_NUMBER number,
                                          const void *priv, size_t len)
{
    uint64_t waited = mdapl_ctx_now(st->peer->d->ctx) - st->cm.called;
    struct mdapl_hello h;

    if (number == DAT_CONNECTION_EVENT_ESTABLISHED) {
        if (!hello_is_back(st, priv, len, MDAPL_HELLO_ANSWER, &h))
            return MDAPL_CAUSE_WRONG_ANSWER;
        mdapl_dpeer_offered(st, &h);
    }
    if (number == DAT_CONNECTION_EVENT_PEER_REJECTED
        && hello_is_back(st, priv, len, MDAPL_HELLO_BUSY, &h))
        return MDAPL_CAUSE_BUSY;
    if (number == DAT_CONNECTION_EVENT_UNREACHABLE && waited > MDAPL_MS(SOON_MS))
        return MDAPL_CAUSE_UNREACHABLE_LATE;
    return MDAPL_CAUSES;
}

static void on_conn(void *arg, struct mdapl_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                    size_t len)
{
    const struct mdapl_cm_cause *cause = mdapl_cm_cause_of(number);
    enum mdapl_cm_cause_id closer = MDAPL_CAUSES;
    struct mdapl_dapl *d = arg;
    struct mdapl_stream *st = ep->owner;

    if (!st || d->closing || !cause)
        return;
    if (st->cm.state == MDAPL_CM_CALLING)
        closer = look_closer(st, number, priv, len);
    if (closer != MDAPL_CAUSES)
        cause = mdapl_cm_cause(closer);
    run(st, cause->event, &(struct step){ .cause = cause });
}

struct mdapl_ia_hooks mdapl_cm_hooks(struct mdapl_dapl *d)
{
    return (struct mdapl_ia_hooks){ .cr = on_cr, .conn = on_conn, .async = mdapl_async_event,
                                    .arg = d };
}

/* -- from inside the channel ------------------------------------------------------------------ */

static bool has_decided(const struct mdapl_ep *ep)
{
    DAT_EP_STATE state = mdapl_ep_state(ep);

    return state == DAT_EP_STATE_CONNECTED || state == DAT_EP_STATE_DISCONNECTED;
}

/* The time of a pause, of a request or of an acceptance is over. */
static void timer_fired(struct mdapl_timer *t)
{
    struct mdapl_cm *cm = MDAPL_OF(t, struct mdapl_cm, timer);
    struct mdapl_stream *st = MDAPL_OF(cm, struct mdapl_stream, cm);
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);

    /* What the provider has decided, it has reported: the event is in the queue. */
    if (cm->state != MDAPL_CM_PAUSING && !cm->overdue && has_decided(cm->ep)) {
        cm->overdue = true;
        set_timer(st, now + MDAPL_MS(GRACE_MS));
        return;
    }
    run_for(st, MDAPL_CM_TIMER, MDAPL_CAUSE_NO_EVENT, NULL);
}

void mdapl_cm_init(struct mdapl_stream *st)
{
    mdapl_timer_init(&st->cm.timer, timer_fired);
}

void mdapl_cm_want(struct mdapl_dpeer *peer)
{
    for (int i = 0; i < peer->n_streams; i++) {
        peer->stream[i].cm.wanted = true;
        if (peer->stream[i].cm.state == MDAPL_CM_IDLE)
            run_for(&peer->stream[i], MDAPL_CM_WANT, MDAPL_CAUSE_OWN, NULL);
    }
}

void mdapl_cm_lost(struct mdapl_stream *st, const char *why)
{
    run_for(st, MDAPL_CM_LOST, MDAPL_CAUSE_TRANSFER, why);
}

void mdapl_cm_close(struct mdapl_dpeer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        run_for(&peer->stream[i], MDAPL_CM_CLOSE, MDAPL_CAUSE_OWN, NULL);
}
