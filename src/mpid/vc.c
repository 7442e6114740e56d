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

/* CH3 calls this for the job's VCs before the context is open. */
int MPIDI_CH3_VC_Init(MPIDI_VC_t *vc)
{
    vc->ch = (struct mdapl_ch3_vc){ 0 };
    vc->sendNoncontig_fn = mdapl_ch3_send_noncontig;
    vc->rndvSend_fn = mdapl_ch3_rndv_start;
    vc->rndvRecv_fn = mdapl_ch3_rndv_match;
    if (mdapl_ch3_glue.ctx)
        mdapl_ch3_vc_opened(vc);
    return MPI_SUCCESS;
}

void mdapl_ch3_vc_opened(MPIDI_VC_t *vc)
{
    set_eager_max(vc, mdapl_ctx_eager_max(mdapl_ch3_glue.ctx));
}

static bool is_of_job(const MPIDI_VC_t *vc)
{
    return vc->pg == mdapl_ch3_glue.pg;
}

/* Gives up the peer of a VC that is not used any more. Those of the job stay connected. */
static void give_up_peer(MPIDI_VC_t *vc)
{
    struct mdapl_peer *peer = vc->ch.peer;

    vc->ch.peer = NULL;
    if (!peer)
        return;
    peer->owner = NULL;
    if (!is_of_job(vc))
        mdapl_ch3_group_remove_peer(peer);
}

static void stop_terminating(MPIDI_VC_t *vc)
{
    MPIDI_VC_t **at = &mdapl_ch3_glue.terminating;

    while (*at && *at != vc)
        at = &(*at)->ch.next;
    if (*at)
        *at = vc->ch.next;
    vc->ch.terminating = false;
}

int MPIDI_CH3_VC_Destroy(MPIDI_VC_t *vc)
{
    struct mdapl_group *group = vc->ch.group;

    vc->ch.group = NULL;
    vc->connreq_obj = NULL;
    if (mdapl_ch3_glue.visiting == vc)
        mdapl_ch3_glue.visiting = NULL;
    if (vc->ch.terminating)
        stop_terminating(vc);
    if (!mdapl_ch3_glue.ctx)
        return MPI_SUCCESS;
    give_up_peer(vc);
    if (group)
        mdapl_ch3_group_remove(group);
    return MPI_SUCCESS;
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
    if (!vc->pg->ch.group)
        mdapl_ch3_group_poll(&mdapl_ch3_glue);
    rc = vc->pg->ch.group ? mdapl_group_peer(vc->pg->ch.group, vc->pg_rank, &vc->ch.peer)
                          : -EHOSTUNREACH;
    if (rc) {
        explain_unreachable(vc, rc);
        mdapl_ch3_lost(vc);
        return rc;
    }
    mdapl_ch3_vc_bind(vc, vc->ch.peer);
    return 0;
}

void mdapl_ch3_vc_bind(MPIDI_VC_t *vc, struct mdapl_peer *peer)
{
    vc->ch.peer = peer;
    peer->owner = vc;
    set_eager_max(vc, mdapl_peer_eager_max(peer));
}

/* The VC of (group, rank). NULL: the peer is being removed, or is that of a visitor, which has no
 * VC yet. */
static MPIDI_VC_t *vc_at(const struct mdapl_peer *peer)
{
    MPIDI_PG_t *pg = mdapl_peer_group(peer)->owner;

    if (mdapl_ch3_group_is_removed(peer) || mdapl_ch3_port_is_visit(mdapl_peer_group(peer)))
        return NULL;
    return &pg->vct[peer->rank];
}

/* The same for the first message of a peer. */
static MPIDI_VC_t *vc_of_first(struct mdapl_peer *peer)
{
    MPIDI_VC_t *vc = vc_at(peer);

    if (!vc && !mdapl_ch3_group_is_removed(peer))
        return mdapl_ch3_port_visitor(peer);
    if (vc)
        mdapl_ch3_vc_bind(vc, peer);
    return vc;
}

void mdapl_ch3_vc_begin(struct mdapl_peer *peer)
{
    MPIDI_VC_t *vc = peer->owner ? peer->owner : vc_of_first(peer);

    /* CH3 runs its close protocol over active VCs, and both sides have to take part. */
    if (vc && vc->state == MPIDI_VC_STATE_INACTIVE)
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
    mdapl_ch3_vc_terminate(vc);
    return MPI_SUCCESS;
}

void mdapl_ch3_vc_terminate(MPIDI_VC_t *vc)
{
    if (vc->ch.terminating)
        return;
    vc->ch.terminating = true;
    vc->ch.next = mdapl_ch3_glue.terminating;
    mdapl_ch3_glue.terminating = vc;
}

/* Raises TERMINATED. It may free the VC. An MPI error code. */
static int end_vc(MPIDI_VC_t *vc)
{
    if (!is_of_job(vc))
        give_up_peer(vc);
    if (vc->ch.lost && !vc->pg) {
        int mpi_errno = mdapl_ch3_port_lost(vc);

        /* CH3 frees a temporary VC when it has been closed. */
        if (mpi_errno != MPI_SUCCESS || (vc->state != MPIDI_VC_STATE_LOCAL_CLOSE
                                         && vc->state != MPIDI_VC_STATE_CLOSE_ACKED
                                         && vc->state != MPIDI_VC_STATE_CLOSED))
            return mpi_errno;
        MPIDI_CHANGE_VC_STATE(vc, CLOSED);
    }
    if (vc->state == MPIDI_VC_STATE_MORIBUND)
        return MPI_SUCCESS;
    /* Who waits for this VC alone is to look at it again. */
    MPIDI_CH3_Progress_signal_completion();
    return MPIDI_CH3U_Handle_connection(vc, MPIDI_VC_EVENT_TERMINATED);
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
        vc->ch.terminating = false;
        mpi_errno = end_vc(vc);
    }
    return mpi_errno;
}

/* Is the end of the connection of a peer of another job no loss? CH3 has closed the VC, or has not
 * used it; or a visitor has sent nothing. */
static bool ends_in_order(const MPIDI_VC_t *vc, struct mdapl_peer *peer)
{
    if (!vc) {
        if (!mdapl_ch3_group_is_removed(peer))
            mdapl_ch3_group_remove(mdapl_peer_group(peer));
        return true;
    }
    if (is_of_job(vc) || (vc->state != MPIDI_VC_STATE_CLOSED && peer->owner))
        return false;
    if (vc->state != MPIDI_VC_STATE_CLOSED)
        mdapl_ch3_group_remove_peer(peer);
    return true;
}

/* up->fault: a peer is lost. The channel's operations with it have failed already. */
void mdapl_ch3_vc_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    MPIDI_VC_t *vc = peer->owner ? peer->owner : vc_at(peer);

    (void)owner, (void)status;
    if (ends_in_order(vc, peer) || mdapl_ch3_is_lost(vc))
        return;
    /* A VC to a port has no group: what becomes of it is what MPI_Comm_connect returns. */
    mdapl_log(mdapl_ctx_log(mdapl_ch3_glue.ctx), vc->pg ? mdapl_ch3_lost_level() : MDAPL_INFO,
              "%s", why);
    mdapl_ch3_lost(vc);
}
