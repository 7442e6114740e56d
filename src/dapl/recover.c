/* SPDX-License-Identifier: MIT */
#include "fault.h"

#include "cfg.h"
#include "cm.h"
#include "cm_report.h"
#include "conn.h"
#include "log.h"
#include "peer.h"
#include "stats.h"

#include <errno.h>

/* -- the verdict ------------------------------------------------------------------------------- */

/* Has this time passed? limit_ms 0: there is none. */
static bool is_over(uint64_t ns, int64_t limit_ms)
{
    return limit_ms > 0 && ns >= MDAPL_MS(limit_ms);
}

/* An attempt is repeated while something may still answer: a definite refusal has to last as long
 * as one request may take, a lack of answers as long as a knob says: one for the first connection,
 * one for those that follow. */
static enum mdapl_dapl_verdict judge_attempt(const struct mdapl_dapl_fault *f,
                                             const struct mdapl_cfg *cfg)
{
    if (f->cause->says == MDAPL_CM_REPLY_NEVER)
        return MDAPL_DAPL_FAIL_PEER;
    if (f->spare)
        return MDAPL_DAPL_RETRY;
    if (f->cause->says == MDAPL_CM_REPLY_NO && is_over(f->refused_ns, cfg->connect_timeout_ms))
        return MDAPL_DAPL_FAIL_PEER;
    if (f->outage_ns > 0)
        return is_over(f->outage_ns, cfg->max_outage_ms) ? MDAPL_DAPL_FAIL_PEER : MDAPL_DAPL_RETRY;
    if (f->cause->says == MDAPL_CM_REPLY_NO)
        return MDAPL_DAPL_RETRY;
    return is_over(f->waited_ns, cfg->connect_unanswered_ms) ? MDAPL_DAPL_FAIL_PEER
                                                             : MDAPL_DAPL_RETRY;
}

static enum mdapl_dapl_verdict judge_end(const struct mdapl_dapl_fault *f,
                                         const struct mdapl_cfg *cfg)
{
    bool hopeless = is_over(f->outage_ns, cfg->max_outage_ms)
                    || (f->bugs > 0 && mdapl_dapl_fault_is_bug(f));

    return f->recovers && !hopeless ? MDAPL_DAPL_REPLACE : MDAPL_DAPL_FAIL_PEER;
}

static enum mdapl_dapl_verdict fatal(const struct mdapl_dapl_fault *f, const struct mdapl_cfg *cfg)
{
    (void)f, (void)cfg;
    return MDAPL_DAPL_FAIL_PEER;
}

/* For each kind of fault: the function that judges it; status and user line of the lost peer. */
static const struct {
    enum mdapl_dapl_verdict (*judge)(const struct mdapl_dapl_fault *, const struct mdapl_cfg *);
    int status;
    void (*line)(const struct mdapl_dapl_stream *, const struct mdapl_dapl_fault *, char *,
                 size_t);
} kinds[MDAPL_DAPL_FAULT_KINDS] = {
    [MDAPL_DAPL_FAULT_DTO] = { judge_end, -ECONNRESET, mdapl_dapl_cm_line_lost },
    [MDAPL_DAPL_FAULT_POST] = { judge_end, -ECONNRESET, mdapl_dapl_cm_line_lost },
    [MDAPL_DAPL_FAULT_ATTEMPT] = { judge_attempt, -EHOSTUNREACH, mdapl_dapl_cm_line_unconnected },
    [MDAPL_DAPL_FAULT_LOST] = { judge_end, -ECONNRESET, mdapl_dapl_cm_line_lost },
    [MDAPL_DAPL_FAULT_FRAME] = { fatal, -EPROTO, mdapl_dapl_cm_line_frame },
    [MDAPL_DAPL_FAULT_MEMORY] = { fatal, -ENOMEM, mdapl_dapl_cm_line_memory },
    [MDAPL_DAPL_FAULT_BUG] = { fatal, -EPROTO, mdapl_dapl_cm_line_bug },
    [MDAPL_DAPL_FAULT_IA] = { fatal, -EIO, mdapl_dapl_cm_line_ia },
};

enum mdapl_dapl_verdict mdapl_dapl_judge(const struct mdapl_dapl_fault *f,
                                         const struct mdapl_cfg *cfg)
{
    return kinds[f->kind].judge(f, cfg);
}

bool mdapl_dapl_fault_is_final(const struct mdapl_dapl_fault *f)
{
    return kinds[f->kind].judge == fatal;
}

/* -- carrying out a verdict -------------------------------------------------------------------- */

static void fail_peer(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f)
{
    struct mdapl_dapl_peer *peer = st->peer;
    char line[768];

    if (peer->dead)              /* another stream's fault came first */
        return;
    kinds[f->kind].line(st, f, line, sizeof(line));
    if (mdapl_ctx_cfg(peer->d->ctx)->events != MDAPL_EVENTS_OFF)
        mdapl_dapl_events_print(peer);
    mdapl_dapl_cm_close(peer);
    mdapl_dapl_peer_fail(peer, kinds[f->kind].status, line);
}

/* The connection has ended: cm.c replaces it as soon as it has drained. */
static void replace(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f)
{
    struct mdapl_dapl_peer *peer = st->peer;
    char what[192];

    st->ended_by = *f;
    peer->bugs += mdapl_dapl_fault_is_bug(f);
    mdapl_ctx_stats(peer->d->ctx)->breaks++;
    mdapl_log(mdapl_ctx_log(peer->d->ctx), MDAPL_CONN,
              "rank %d on %s: connection %u of stream %d over IA %s has ended: %s; %llu frames not "
              "acknowledged", peer->base.rank, peer->host, f->epoch, st->index, f->ia->name,
              mdapl_dapl_fault_text(f, what, sizeof(what)),
              (unsigned long long)mdapl_dapl_peer_unacked(peer));
}

static void (*const carry_out[])(struct mdapl_dapl_stream *, const struct mdapl_dapl_fault *) = {
    [MDAPL_DAPL_RETRY] = mdapl_dapl_cm_warn,
    [MDAPL_DAPL_REPLACE] = replace,
    [MDAPL_DAPL_FAIL_PEER] = fail_peer,
};

/* What the verdict depends on besides the fault itself, now that the connection has ended. */
static void complete(const struct mdapl_dapl_stream *st, struct mdapl_dapl_fault *f)
{
    const struct mdapl_dapl_peer *peer = st->peer;
    uint64_t now = mdapl_ctx_now(peer->d->ctx);

    f->recovers = peer->recovers;
    f->spare = peer->n_up > 0 && st->cm.connections > 0;
    f->outage_ns = peer->was_up && peer->n_up == 0 ? now - peer->down_since : 0;
    f->bugs = peer->bugs;
}

int mdapl_dapl_recover(struct mdapl_dapl_peer *peer)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(peer->d->ctx);
    int n = 0;

    peer->faulty = false;
    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_stream *st = &peer->stream[i];
        struct mdapl_dapl_fault f = st->fault;

        if (f.kind == MDAPL_DAPL_FAULT_NONE)
            continue;
        st->fault.kind = MDAPL_DAPL_FAULT_NONE;
        mdapl_dapl_event(peer, i, MDAPL_DAPL_EVENT_FAULT, mdapl_dapl_fault_name(&f),
                         f.kind == MDAPL_DAPL_FAULT_DTO ? " failed" : "",
                         mdapl_dapl_peer_unacked(peer));
        if (kinds[f.kind].judge == judge_end && st->conn && st->conn->epoch == f.epoch)
            mdapl_dapl_cm_broke(st);
        complete(st, &f);
        carry_out[mdapl_dapl_judge(&f, cfg)](st, &f);
        n++;
    }
    return n;
}

void mdapl_dapl_recover_all(struct mdapl_dapl_chan *d)
{
    MDAPL_LIST_EACH_SAFE(pos, &d->work) {
        struct mdapl_dapl_peer *peer = MDAPL_OF(pos, struct mdapl_dapl_peer, work);

        if (peer->faulty)
            mdapl_dapl_recover(peer);
    }
}
