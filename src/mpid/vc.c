/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "log.h"

/* frame: bytes of packet and data that travel eagerly; longer messages go by rendezvous. */
static void set_eager_max(MPIDI_VC_t *vc, size_t frame)
{
    vc->eager_max_msg_sz = (intptr_t)(frame - sizeof(MPIDI_CH3_Pkt_t));
    vc->ready_eager_max_msg_sz = vc->eager_max_msg_sz;
}

/* Called before and after the context is open; what depends on it is set the second time. */
int MPIDI_CH3_VC_Init(MPIDI_VC_t *vc)
{
    vc->sendNoncontig_fn = mdapl_send_noncontig;
    vc->rndvSend_fn = mdapl_rndv_start;
    vc->rndvRecv_fn = mdapl_rndv_match;
    if (!mdapl_glue.ctx) {
        vc->ch = (struct mdapl_vc){ 0 };
        return MPI_SUCCESS;
    }
    set_eager_max(vc, mdapl_ctx_eager_max(mdapl_glue.ctx));
    return MPI_SUCCESS;
}

int MPIDI_CH3_VC_Destroy(MPIDI_VC_t *vc)
{
    if (vc->ch.peer)
        vc->ch.peer->owner = NULL;
    vc->ch.peer = NULL;
    return MPI_SUCCESS;
}

/* The channel has closed and freed the peers; CH3 destroys most VCs later. */
void mdapl_vc_forget_peers(void)
{
    for (int i = 0; i < mdapl_glue.pg->size; i++)
        mdapl_glue.pg->vct[i].ch.peer = NULL;
}

/* The error of an operation on a VC whose peer is lost. */
int mdapl_vc_error(const MPIDI_VC_t *vc)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_SET1(mpi_errno, MPIX_ERR_PROC_FAILED, "**comm_fail", "**comm_fail %d", vc->pg_rank);
    return mpi_errno;
}

/* One line: why no channel reaches this rank, and what to do. */
static void explain_unreachable(const MPIDI_VC_t *vc, int rc)
{
    const char *tried = mdapl_glue.cfg.channels;
    struct mdapl_log *log = mdapl_ctx_log(mdapl_glue.ctx);

    if (rc != -EHOSTUNREACH)
        mdapl_log(log, MDAPL_WARN, "rank %d cannot be reached: %s as its business card was read or "
                  "its peer was made; check the launcher and the memory of this host", vc->pg_rank,
                  strerror(-rc));
    else if (*tried && !strstr(tried, "dapl"))
        mdapl_log(log, MDAPL_WARN, "rank %d cannot be reached through MPIR_CVAR_DAPL_CHANNELS=%s, "
                  "which is for ranks of one node that may share memory; the channel dapl reaches "
                  "ranks of other nodes: add it, or leave the knob empty", vc->pg_rank, tried);
    else
        mdapl_log(log, MDAPL_WARN, "rank %d cannot be reached through the channels %s: its "
                  "business card names no adapter that ours reaches. Use the same installation and "
                  "kind of adapter everywhere", vc->pg_rank, *tried ? tried : "shm,dapl");
}

/* The first packet to a rank. A rank that no channel reaches is lost. */
int mdapl_vc_make_peer(MPIDI_VC_t *vc)
{
    int rc = mdapl_is_lost(vc) ? -ECONNRESET : 0;

    if (rc)
        return rc;
    rc = mdapl_peer_get(mdapl_glue.ctx, vc->pg_rank, &vc->ch.peer);
    if (rc) {
        explain_unreachable(vc, rc);
        mdapl_lost(vc);
        return rc;
    }
    vc->ch.peer->owner = vc;
    set_eager_max(vc, mdapl_peer_eager_max(vc->ch.peer));
    return 0;
}

/* The VC of a peer that has sent a message, perhaps its first. */
MPIDI_VC_t *mdapl_vc_of(struct mdapl_peer *peer)
{
    MPIDI_VC_t *vc = peer->owner ? peer->owner : &mdapl_glue.pg->vct[peer->rank];

    vc->ch.peer = peer;
    peer->owner = vc;
    /* CH3 closes active VCs at the end, with packets in both directions. */
    if (vc->state == MPIDI_VC_STATE_INACTIVE)
        MPIDI_CHANGE_VC_STATE(vc, ACTIVE);
    return vc;
}

/* -- the end of a VC -------------------------------------------------------------------------- */

/* CH3's close protocol has ended, or the launcher has reported the end of the process. */
int MPIDI_CH3_Connection_terminate(MPIDI_VC_t *vc)
{
    if (vc->state != MPIDI_VC_STATE_CLOSED) {
        mdapl_lost_report(vc);
        return MPI_SUCCESS;
    }
    vc->ch.next = mdapl_glue.terminating;
    mdapl_glue.terminating = vc;
    return MPI_SUCCESS;
}

/* Gives CH3 the event TERMINATED for each closed VC whose peer has got all that was sent. An MPI
 * error code. */
int mdapl_vc_terminate_idle(void)
{
    MPIDI_VC_t **at = &mdapl_glue.terminating;
    int mpi_errno = MPI_SUCCESS;

    while (mpi_errno == MPI_SUCCESS && *at) {
        MPIDI_VC_t *vc = *at;

        if (vc->ch.peer && !mdapl_peer_idle(vc->ch.peer)) {
            at = &vc->ch.next;
            continue;
        }
        *at = vc->ch.next;
        if (vc->state != MPIDI_VC_STATE_MORIBUND)
            mpi_errno = MPIDI_CH3U_Handle_connection(vc, MPIDI_VC_EVENT_TERMINATED);
    }
    return mpi_errno;
}

/* up->fault: a peer is lost. What the channel had in its hands has failed already. */
void mdapl_vc_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    (void)owner, (void)status;
    mdapl_log(mdapl_ctx_log(mdapl_glue.ctx), MDAPL_WARN, "%s", why);
    mdapl_lost(&mdapl_glue.pg->vct[peer->rank]);
}
