/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "stats.h"

/*
 * CH3 keeps messages that no receive has matched in one list, and each receive looks through all of
 * it. If one rank is late, and others go on sending, the list would grow by what they send, and the
 * time for each receive with it: the late rank's messages are at its end. So when the list is long
 * the next such message pauses its sender. Later messages stay in the channel's queue for that
 * peer, in which nothing is looked for, until
 *
 *      a receive is posted that they may match: then no message in the list does
 *      this rank waits for something else than a receive, as a probe does
 *      this rank has waited for long without a match: the list may be longer then, since what the
 *          peer has also sent, such as an operation on a window, may be behind those messages
 */

enum {
    LONG = 64,                   /* messages in CH3's list, each a cache line or two to look at */
    /* After so many ns times n * n without a match there may be n more. To receive them one by one,
     * from a list of n, takes a small part of that. */
    MORE_NS = 300,
};

static void resume_all(struct mdapl_ch3_glue *g)
{
    g->recvs.paused = false;
    mdapl_resume_all(g->ctx);
}

/* The VC whose messages a posted receive may match; NULL: those of all. Not kept in the request, of
 * which a short message would touch no such line. */
static inline MPIDI_VC_t *vc_of(const MPIR_Request *rreq)
{
    MPIDI_VC_t *vc = NULL;

    if (rreq->dev.match.parts.rank != MPI_ANY_SOURCE)
        MPIDI_Comm_get_vc(rreq->comm, rreq->dev.match.parts.rank, &vc);
    return vc;
}

/* CH3 has posted a receive. */
void MPIDI_CH3I_Recv_posted(const MPIR_Request *rreq)
{
    struct mdapl_ch3_recvs *r = &mdapl_ch3_glue.recvs;
    MPIDI_VC_t *vc = vc_of(rreq);

    r->posted++;
    if (vc)
        vc->ch.recvs_posted++;
    else
        r->any++;
    if (!r->paused)
        return;
    if (!vc)
        resume_all(&mdapl_ch3_glue);
    else if (vc->ch.peer)
        mdapl_resume(vc->ch.peer);
}

/* It has matched or cancelled one. Returns 0: the channel has not matched it before. */
int MPIDI_CH3I_Recv_unposted(const MPIR_Request *rreq)
{
    struct mdapl_ch3_recvs *r = &mdapl_ch3_glue.recvs;
    MPIDI_VC_t *vc = vc_of(rreq);

    r->posted--;
    r->matched++;
    if (vc)
        vc->ch.recvs_posted--;
    else
        r->any--;
    return 0;
}

/* Counts the list, which takes as long as the list is. */
static void count(struct mdapl_ch3_glue *g)
{
    struct mdapl_ch3_recvs *r = &g->recvs;
    unsigned most = LONG + r->more;

    r->listed = (unsigned)MPIDI_CH3U_Recvq_count_unexp();
    r->room = r->listed < most ? most - r->listed : 0;
    r->arrived = r->asked = 0;
    mdapl_stats_max(&mdapl_ctx_stats(g->ctx)->unexpected_max, r->listed);
}

bool mdapl_ch3_unexpected_none(struct mdapl_ch3_glue *g)
{
    struct mdapl_ch3_recvs *r = &g->recvs;

    /* It is counted as often as it takes one receive on an average a message or two to look at. */
    if (r->listed + r->arrived > 0 && ++r->asked >= r->listed + r->arrived)
        count(g);
    return r->listed + r->arrived == 0;
}

static bool takes_all_of(const MPIDI_VC_t *vc)
{
    return mdapl_ch3_glue.finalizing || mdapl_ch3_glue.recvs.any > 0 || vc->ch.recvs_posted > 0;
}

enum mdapl_next mdapl_ch3_unexpected_next(const MPIDI_VC_t *vc)
{
    return takes_all_of(vc) ? MDAPL_NEXT_GO : MDAPL_NEXT_LATER;
}

enum mdapl_next mdapl_ch3_unexpected_arrived(const MPIDI_VC_t *vc)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    struct mdapl_ch3_recvs *r = &g->recvs;

    r->arrived++;
    if (takes_all_of(vc))
        return MDAPL_NEXT_GO;
    if (r->room == 0 && r->arrived >= r->listed)
        count(g);
    if (r->room == 0) {
        r->paused = true;
        return MDAPL_NEXT_LATER;
    }
    r->room--;
    return MDAPL_NEXT_GO;
}

void mdapl_ch3_unexpected_waiting(struct mdapl_ch3_glue *g)
{
    if (g->recvs.posted == 0 || g->finalizing)
        resume_all(g);
}

void mdapl_ch3_unexpected_look(struct mdapl_ch3_glue *g)
{
    struct mdapl_ch3_recvs *r = &g->recvs;
    uint64_t now;

    if (!r->paused) {
        r->since = r->more = 0;
        return;
    }
    now = mdapl_ctx_now(g->ctx);
    if (r->since == 0 || r->matched_before != r->matched) {
        r->since = now;
        r->matched_before = r->matched;
        r->more = 0;
    }
    while (MORE_NS * (uint64_t)r->more * r->more < now - r->since)
        r->more++;
    count(g);
    resume_all(g);
}
