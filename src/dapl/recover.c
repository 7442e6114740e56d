/* SPDX-License-Identifier: MIT */
#include "fault.h"

#include "cfg.h"
#include "cm.h"
#include "cm_report.h"
#include "peer.h"

#include <errno.h>

/* -- the verdict ------------------------------------------------------------------------------- */

/* An attempt is repeated while something may still answer: a definite refusal has to last as long
 * as one request may take, and a lack of answers as long as the knob says (0: without limit). */
static enum mdapl_dapl_verdict judge_attempt(const struct mdapl_dapl_fault *f,
                                             const struct mdapl_cfg *cfg)
{
    uint64_t limit = MDAPL_MS(cfg->connect_unanswered_ms);
    bool over = f->cause->says == MDAPL_CM_REPLY_NO
                    ? f->refused_ns >= MDAPL_MS(cfg->connect_timeout_ms)
                    : limit > 0 && f->waited_ns >= limit;

    return over ? MDAPL_DAPL_FAIL_PEER : MDAPL_DAPL_RETRY;
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
    [MDAPL_DAPL_FAULT_DTO] = { fatal, -ECONNRESET, mdapl_dapl_cm_line_lost },
    [MDAPL_DAPL_FAULT_POST] = { fatal, -ECONNRESET, mdapl_dapl_cm_line_lost },
    [MDAPL_DAPL_FAULT_ATTEMPT] = { judge_attempt, -EHOSTUNREACH, mdapl_dapl_cm_line_unconnected },
    [MDAPL_DAPL_FAULT_LOST] = { fatal, -ECONNRESET, mdapl_dapl_cm_line_lost },
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

/* -- carrying out a verdict -------------------------------------------------------------------- */

static void fail_peer(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f)
{
    struct mdapl_dapl_peer *peer = st->peer;
    char line[640];

    if (peer->dead)              /* another stream's fault came first */
        return;
    kinds[f->kind].line(st, f, line, sizeof(line));
    mdapl_dapl_cm_close(peer);
    mdapl_dapl_peer_fail(peer, kinds[f->kind].status, line);
}

static void (*const carry_out[])(struct mdapl_dapl_stream *, const struct mdapl_dapl_fault *) = {
    [MDAPL_DAPL_RETRY] = mdapl_dapl_cm_warn,
    [MDAPL_DAPL_FAIL_PEER] = fail_peer,
};

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
