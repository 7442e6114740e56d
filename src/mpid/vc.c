/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "log.h"

/* frame: the longest header and body that the peer takes eagerly; longer messages use
 * rendezvous. */
static void set_eager_max(MPIDI_VC_t *vc, size_t frame)
{
    vc->eager_max_msg_sz = (intptr_t)(frame - sizeof(MPIDI_CH3_Pkt_t));
    vc->ready_eager_max_msg_sz = vc->eager_max_msg_sz;
}

/* CH3 calls this before the context is open, MPIDI_CH3_InitCompleted() once more after that. */
int MPIDI_CH3_VC_Init(MPIDI_VC_t *vc)
{
    vc->sendNoncontig_fn = mdapl_ch3_send_noncontig;
    vc->rndvSend_fn = mdapl_ch3_rndv_start;
    vc->rndvRecv_fn = mdapl_ch3_rndv_match;
    if (!mdapl_ch3_glue.ctx) {
        vc->ch = (struct mdapl_ch3_vc){ 0 };
        return MPI_SUCCESS;
    }
    set_eager_max(vc, mdapl_ctx_eager_max(mdapl_ch3_glue.ctx));
    return MPI_SUCCESS;
}

int MPIDI_CH3_VC_Destroy(MPIDI_VC_t *vc)
{
    if (vc->ch.peer)
        vc->ch.peer->owner = NULL;
    vc->ch.peer = NULL;
    return MPI_SUCCESS;
}

/* For after the channel has closed and freed its peers: CH3 destroys most VCs later. */
void mdapl_ch3_vc_forget_peers(void)
{
    for (int i = 0; i < mdapl_ch3_glue.pg->size; i++)
        mdapl_ch3_glue.pg->vct[i].ch.peer = NULL;
}

/* The error of an operation on a VC whose peer is lost. */
int mdapl_ch3_vc_error(const MPIDI_VC_t *vc)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_SET1(mpi_errno, MPIX_ERR_PROC_FAILED, "**comm_fail", "**comm_fail %d", vc->pg_rank);
    return mpi_errno;
}

/* One line: why no channel reaches this rank, and what to do. */
static void explain_unreachable(const MPIDI_VC_t *vc, int rc)
{
    const char *tried = mdapl_ch3_glue.cfg.channels;
    struct mdapl_log *log = mdapl_ctx_log(mdapl_ch3_glue.ctx);

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

/* The slow path of mdapl_ch3_vc_peer(): the first packet to a rank. If no
 * channel reaches it, it is lost. */
int mdapl_ch3_vc_make_peer(MPIDI_VC_t *vc)
{
    int rc = mdapl_ch3_is_lost(vc) ? -ECONNRESET : 0;

    if (rc)
        return rc;
    rc = mdapl_group_peer(vc->pg->ch.group, vc->pg_rank, &vc->ch.peer);
    if (rc) {
        explain_unreachable(vc, rc);
        mdapl_ch3_lost(vc);
        return rc;
    }
    vc->ch.peer->owner = vc;
    set_eager_max(vc, mdapl_peer_eager_max(vc->ch.peer));
    return 0;
}

/* The VC of (group, rank). */
static MPIDI_VC_t *vc_at(const struct mdapl_peer *peer)
{
    MPIDI_PG_t *pg = mdapl_peer_group(peer)->owner;

    return &pg->vct[peer->rank];
}

void mdapl_ch3_vc_begin(struct mdapl_peer *peer)
{
    MPIDI_VC_t *vc = peer->owner ? peer->owner : vc_at(peer);

    vc->ch.peer = peer;
    peer->owner = vc;
    /* CH3 runs its close protocol over active VCs, and both sides have to take part. */
    if (vc->state == MPIDI_VC_STATE_INACTIVE)
        MPIDI_CHANGE_VC_STATE(vc, ACTIVE);
}

/* -- the end of a VC -------------------------------------------------------------------------- */

/* CH3 calls this after its close protocol, or when the launcher reports the end of the process. */
int MPIDI_CH3_Connection_terminate(MPIDI_VC_t *vc)
{
    if (vc->state != MPIDI_VC_STATE_CLOSED) {
        mdapl_ch3_lost_report(vc);
        return MPI_SUCCESS;
    }
    vc->ch.next = mdapl_ch3_glue.terminating;
    mdapl_ch3_glue.terminating = vc;
    return MPI_SUCCESS;
}

/* Raises TERMINATED for each VC whose peer has acknowledged all frames. An MPI error code. */
int mdapl_ch3_vc_terminate_idle(void)
{
    MPIDI_VC_t **at = &mdapl_ch3_glue.terminating;
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

/* up->fault: a peer is lost. The channel's operations with it have failed already. */
void mdapl_ch3_vc_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    (void)owner, (void)status;
    mdapl_log(mdapl_ctx_log(mdapl_ch3_glue.ctx), MDAPL_WARN, "%s", why);
    mdapl_ch3_lost(vc_at(peer));
}
