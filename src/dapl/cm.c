/* SPDX-License-Identifier: MIT */
#include "cm.h"

#include "async.h"
#include "cfg.h"
#include "cm_fsm.h"
#include "dapl.h"
#include "ep.h"
#include "err.h"
#include "log.h"
#include "peer.h"
#include "sr.h"
#include "stats.h"
#include "wire.h"

#include <errno.h>
#include <string.h>

enum { PAUSE_DOUBLINGS = 5 };    /* the pause between tries grows 32 times at most */

/* What a step of the table acts on besides the peer. */
struct step {
    DAT_CR_HANDLE cr;            /* the request to answer or to refuse */
    const struct mdapl_hello *hello;     /* its hello */
    const char *why;             /* the event in words */
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

/* -- the hello -------------------------------------------------------------------------------- */

static void put_hello(const struct mdapl_stream *st, uint8_t flags,
                      uint8_t out[MDAPL_HELLO_BYTES])
{
    const struct mdapl_job *job = mdapl_ctx_job(st->peer->d->ctx);
    struct mdapl_hello h = {
        .flags = flags, .stream = (uint8_t)st->index, .job = job->id, .src = (uint32_t)job->rank,
        .dst = (uint32_t)st->peer->base.rank, .epoch = st->cm.epoch,
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
    rc = mdapl_sr_arm(st, st->cm.ep);
    if (rc)
        mdapl_err_set(mdapl_ctx_err(d->ctx), rc, "IA %s has no memory for the receives of one "
                      "more endpoint. Make MPIR_CVAR_DAPL_SR_WINDOW or _VBUF_SIZE smaller, or "
                      "raise the memory lock limit (ulimit -l)", st->ia->name);
    return rc;
}

static void do_call(struct mdapl_stream *st, const struct step *s)
{
    uint8_t hello[MDAPL_HELLO_BYTES];
    int rc = fresh_ep(st);

    (void)s;
    st->cm.tries++;
    put_hello(st, 0, hello);
    if (!rc)
        rc = mdapl_ep_connect(st->cm.ep, st->cm.addr, st->cm.addr_len, st->cm.qual,
                              MDAPL_MS(cfg_of(st)->connect_timeout_ms), hello, sizeof(hello));
    if (rc)
        run(st, MDAPL_CM_REFUSED, &(struct step){ .why = "the call was refused locally" });
}

static void refuse(struct mdapl_dapl *d, DAT_CR_HANDLE cr)
{
    d->dat.dat_cr_reject(cr, 0, NULL);
}

static void do_answer(struct mdapl_stream *st, const struct step *s)
{
    uint8_t hello[MDAPL_HELLO_BYTES];
    int rc = fresh_ep(st);

    put_hello(st, MDAPL_HELLO_ANSWER, hello);
    mdapl_dpeer_offered(st, s->hello);
    if (rc)
        refuse(st->peer->d, s->cr);
    else
        rc = mdapl_ep_accept(st->cm.ep, s->cr, hello, sizeof(hello));
    if (rc)
        run(st, MDAPL_CM_REFUSED, &(struct step){ .why = "the answer was refused locally" });
}

static void do_refuse(struct mdapl_stream *st, const struct step *s)
{
    refuse(st->peer->d, s->cr);
}

static void do_up(struct mdapl_stream *st, const struct step *s)
{
    (void)s;
    st->cm.ep->up = true;
    mdapl_ctx_stats(st->peer->d->ctx)->connects++;
    mdapl_log(log_of(st), MDAPL_CONN,
              "connected to rank %d on %s, stream %d on IA %s (qualifier %llu), try %u",
              st->peer->base.rank, st->peer->host, st->index, st->ia->name,
              (unsigned long long)st->cm.qual, st->cm.tries);
    mdapl_dpeer_wake(st->peer);
}

static void do_pause(struct mdapl_stream *st, const struct step *s)
{
    struct mdapl_dapl *d = st->peer->d;
    uint32_t doublings = st->cm.tries < PAUSE_DOUBLINGS ? st->cm.tries : PAUSE_DOUBLINGS;
    uint64_t pause = MDAPL_MS(cfg_of(st)->connect_retry_ms) << doublings >> 1;
    uint64_t now = mdapl_ctx_now(d->ctx);

    /* Without jitter all callers of a busy rank would come back together. */
    pause += (d->incarnation ^ (uint64_t)st->peer->base.rank * 2654435761u) % (pause / 2 + 1);
    drop_ep(st);
    mdapl_ctx_stats(d->ctx)->connect_retries++;
    mdapl_log(log_of(st), MDAPL_CONN, "rank %d on %s: %s; trying again in %llu ms",
              st->peer->base.rank, st->peer->host, s->why, (unsigned long long)(pause / 1000000));
    if (now - st->cm.since >= MDAPL_MS(cfg_of(st)->connect_timeout_ms))
        run(st, MDAPL_CM_GIVE_UP, s);
    else
        mdapl_timer_set(&d->timers, &st->cm.retry, now + pause);
}

static void do_fail(struct mdapl_stream *st, const struct step *s)
{
    bool was_up = st->cm.ep && st->cm.ep->up;

    drop_ep(st);
    if (was_up)
        mdapl_dpeer_fail(st->peer, -ECONNRESET,
                         "lost the connection to rank %d on %s over IA %s: %s, %llu frames not "
                         "acknowledged. Check that the process and its host are alive",
                         st->peer->base.rank, st->peer->host, st->ia->name, s->why,
                         (unsigned long long)mdapl_dpeer_unacked(st->peer));
    else
        mdapl_dpeer_fail(st->peer, -EHOSTUNREACH,
                         "rank %d on %s could not be connected over IA %s within %lld ms: %s, %u "
                         "tries. Check that the host is alive and that this IA reaches it, or "
                         "raise MPIR_CVAR_DAPL_CONNECT_TIMEOUT_MS",
                         st->peer->base.rank, st->peer->host, st->ia->name,
                         (long long)cfg_of(st)->connect_timeout_ms, s->why, st->cm.tries);
}

static void do_close(struct mdapl_stream *st, const struct step *s)
{
    (void)s;
    drop_ep(st);
}

static void (*const act[])(struct mdapl_stream *, const struct step *) = {
    [MDAPL_CM_NOTHING] = NULL,
    [MDAPL_CM_DO_CALL] = do_call,
    [MDAPL_CM_DO_ANSWER] = do_answer,
    [MDAPL_CM_DO_REFUSE] = do_refuse,
    [MDAPL_CM_DO_UP] = do_up,
    [MDAPL_CM_DO_PAUSE] = do_pause,
    [MDAPL_CM_DO_FAIL] = do_fail,
    [MDAPL_CM_DO_CLOSE] = do_close,
};

/* -- the one place that changes the state ----------------------------------------------------- */

static bool connecting(enum mdapl_cm_state s)
{
    return s == MDAPL_CM_CALLING || s == MDAPL_CM_PAUSING || s == MDAPL_CM_ANSWERING;
}

static void enter(struct mdapl_stream *st, enum mdapl_cm_state next)
{
    struct mdapl_dpeer *peer = st->peer;
    struct mdapl_dapl *d = peer->d;
    enum mdapl_cm_state was = st->cm.state;
    bool whole = peer->n_up == peer->n_streams;

    d->n_connecting += connecting(next) - connecting(was);
    peer->n_up += (next == MDAPL_CM_UP) - (was == MDAPL_CM_UP);
    d->n_whole += (peer->n_up == peer->n_streams) - whole;
    if (next != MDAPL_CM_PAUSING)
        mdapl_timer_stop(&st->cm.retry);
    if (!connecting(was) && connecting(next))
        st->cm.since = mdapl_ctx_now(d->ctx);
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

static void on_cr(void *arg, struct mdapl_ia *ia, DAT_CR_HANDLE cr)
{
    struct mdapl_dapl *d = arg;
    struct mdapl_peer *base;
    struct mdapl_hello h;
    DAT_CR_PARAM param;
    enum mdapl_hello_verdict verdict = MDAPL_HELLO_SHORT;

    memset(&param, 0, sizeof(param));
    if (d->dat.dat_cr_query(cr, DAT_CR_FIELD_ALL, &param) == DAT_SUCCESS && param.private_data)
        verdict = get_hello(d, param.private_data, (size_t)param.private_data_size, &h);
    if (verdict == MDAPL_HELLO_OK && h.flags & MDAPL_HELLO_ANSWER)
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
    run(&mdapl_dpeer_of(base)->stream[h.stream],
        (int)h.src < mdapl_ctx_job(d->ctx)->rank ? MDAPL_CM_CR_WINS : MDAPL_CM_CR_LOSES,
        &(struct step){ .cr = cr, .hello = &h });
}

/* -- connection events ------------------------------------------------------------------------ */

static const struct {
    DAT_EVENT_NUMBER number;
    enum mdapl_cm_event event;
    const char *why;
} conn_event[] = {
    { DAT_CONNECTION_EVENT_ESTABLISHED, MDAPL_CM_ESTABLISHED, "established" },
    { DAT_CONNECTION_EVENT_PEER_REJECTED, MDAPL_CM_REFUSED, "the peer refused" },
    { DAT_CONNECTION_EVENT_NON_PEER_REJECTED, MDAPL_CM_REFUSED, "nobody listens there" },
    { DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, MDAPL_CM_REFUSED, "the answer failed" },
    { DAT_CONNECTION_EVENT_TIMED_OUT, MDAPL_CM_REFUSED, "no answer in time" },
    { DAT_CONNECTION_EVENT_UNREACHABLE, MDAPL_CM_REFUSED, "unreachable" },
    { DAT_CONNECTION_EVENT_DISCONNECTED, MDAPL_CM_LOST, "the peer disconnected" },
    { DAT_CONNECTION_EVENT_BROKEN, MDAPL_CM_LOST, "the connection broke" },
};

/* The caller checks who has answered, and takes the offer. */
static bool answer_is_good(struct mdapl_stream *st, const void *priv, size_t len)
{
    struct mdapl_hello h;

    if (get_hello(st->peer->d, priv, len, &h) != MDAPL_HELLO_OK || !(h.flags & MDAPL_HELLO_ANSWER)
        || (int)h.src != st->peer->base.rank || h.stream != st->index)
        return false;
    mdapl_dpeer_offered(st, &h);
    return true;
}

static void on_conn(void *arg, struct mdapl_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                    size_t len)
{
    struct mdapl_dapl *d = arg;
    struct mdapl_stream *st = ep->owner;

    if (!st || d->closing)
        return;
    for (size_t i = 0; i < sizeof(conn_event) / sizeof(conn_event[0]); i++) {
        struct step s = { .why = conn_event[i].why };
        enum mdapl_cm_event event = conn_event[i].event;

        if (conn_event[i].number != number)
            continue;
        if (event == MDAPL_CM_ESTABLISHED && st->cm.state == MDAPL_CM_CALLING
            && !answer_is_good(st, priv, len)) {
            event = MDAPL_CM_REFUSED;
            s.why = "somebody else answers there";
        }
        run(st, event, &s);
        return;
    }
}

struct mdapl_ia_hooks mdapl_cm_hooks(struct mdapl_dapl *d)
{
    return (struct mdapl_ia_hooks){ .cr = on_cr, .conn = on_conn, .async = mdapl_async_event,
                                    .arg = d };
}

/* -- from inside the channel ------------------------------------------------------------------ */

static void retry_fired(struct mdapl_timer *t)
{
    struct mdapl_cm *cm = MDAPL_OF(t, struct mdapl_cm, retry);

    run(MDAPL_OF(cm, struct mdapl_stream, cm), MDAPL_CM_RETRY, &(struct step){ .why = "retry" });
}

void mdapl_cm_init(struct mdapl_stream *st)
{
    st->cm.epoch = 1;
    mdapl_timer_init(&st->cm.retry, retry_fired);
}

void mdapl_cm_want(struct mdapl_dpeer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (peer->stream[i].cm.state == MDAPL_CM_IDLE)
            run(&peer->stream[i], MDAPL_CM_WANT, &(struct step){ .why = "wanted" });
}

void mdapl_cm_lost(struct mdapl_stream *st, const char *why)
{
    run(st, MDAPL_CM_LOST, &(struct step){ .why = why });
}

void mdapl_cm_close(struct mdapl_dpeer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        run(&peer->stream[i], MDAPL_CM_CLOSE, &(struct step){ .why = "closed" });
}
