/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/*
 * A CH3 packet is the header of one message, its data the body. CH3 would feed a long
 * non-contiguous message in batches (SendReloadIOV); the channel wants to know the length at once,
 * so that all bodies go out whole: as pieces where they are few, else packed.
 */
enum { PIECES = MPL_IOV_LIMIT };

/* Bytes of those packets of two-sided communication that are much shorter than the largest: with
 * them a short message is one cache line for src/shm. Handlers of RMA copy whole packets. */
const uint8_t mdapl_ch3_short_packet[MPIDI_CH3_PKT_END_ALL] = {
    [MPIDI_CH3_PKT_EAGER_SEND] = sizeof(MPIDI_CH3_Pkt_eager_send_t),
    [MPIDI_CH3_PKT_EAGERSHORT_SEND] = sizeof(MPIDI_CH3_Pkt_eagershort_send_t),
    [MPIDI_CH3_PKT_EAGER_SYNC_SEND] = sizeof(MPIDI_CH3_Pkt_eager_sync_send_t),
    [MPIDI_CH3_PKT_EAGER_SYNC_ACK] = sizeof(MPIDI_CH3_Pkt_eager_sync_ack_t),
    [MPIDI_CH3_PKT_READY_SEND] = sizeof(MPIDI_CH3_Pkt_ready_send_t),
    [MPIDI_CH3_PKT_CANCEL_SEND_REQ] = sizeof(MPIDI_CH3_Pkt_cancel_send_req_t),
    [MPIDI_CH3_PKT_CANCEL_SEND_RESP] = sizeof(MPIDI_CH3_Pkt_cancel_send_resp_t),
    [MPIDI_CH3_PKT_CLOSE] = sizeof(MPIDI_CH3_Pkt_close_t),
    [MPIDI_CH3I_PKT_DAPL_RNDV] = sizeof(MPIDI_CH3_Pkt_rndv_req_to_send_t),
};

static MPIR_Request *request_of(struct mdapl_op *op)
{
    return MPL_container_of(op, MPIR_Request, ch.op);
}

/* Completes a send whose body cannot be sent, unless the loss of the peer has done so already. */
static void fail(MPIR_Request *sreq)
{
    if (MPIR_Request_is_complete(sreq))
        return;
    mdapl_ch3_lost_op(sreq->ch.vc, &sreq->dev.match);
    mdapl_ch3_lost_fail_send(sreq, sreq->ch.vc);
}

/* Ends a send. status: 0, or the negative errno that its body failed with. */
static void complete(MPIR_Request *sreq, int status)
{
    int done = 0, mpi_errno;

    if (sreq->ch.pack)
        MPL_free(sreq->ch.pack);
    sreq->ch.pack = NULL;
    if (status < 0) {
        fail(sreq);
        return;
    }
    mpi_errno = MPIDI_CH3U_Handle_send_req(sreq->ch.vc, sreq, &done);
    if (mpi_errno != MPI_SUCCESS)
        mdapl_ch3_handler_failed(mpi_errno, "a message that was sent");
}

static void send_done(struct mdapl_op *op, int status)
{
    MPIR_Request *sreq = request_of(op);

    /* A cancelled rendezvous is completed by the answer to its cancel request
     * (mpid_cancel_send). */
    if (status != -ECANCELED || !sreq->dev.cancel_pending)
        complete(sreq, status == -ECANCELED ? 0 : status);
    MPIR_Request_free(sreq);
}

static struct mdapl_msg message(const void *hdr, const struct iovec *body, int n, bool synchronous)
{
    return (struct mdapl_msg){ .hdr = hdr, .hdr_len = mdapl_ch3_packet_len(hdr), .body = body,
                               .n_body = n, .synchronous = synchronous };
}

/* Sends with the caller's request, which is completed now or by progress. An MPI error code. */
int mdapl_ch3_send_body(MPIDI_VC_t *vc, MPIR_Request *sreq, const void *hdr,
                        const struct iovec *body, int n_body, bool synchronous)
{
    struct mdapl_msg msg = message(hdr, body, n_body, synchronous);
    struct mdapl_peer *peer;
    int rc = mdapl_ch3_vc_peer(vc, &peer);

    sreq->ch.vc = vc;
    sreq->ch.op.done = send_done;
    if (rc == 0)
        rc = mdapl_send(peer, &msg, &sreq->ch.op);
    if (rc == 0)                 /* the user may free the request before it is complete */
        MPIR_Request_add_ref(sreq);
    else
        complete(sreq, rc);
    return MPI_SUCCESS;
}

const MPIDI_Message_match *mdapl_ch3_match_of(const MPIDI_CH3_Pkt_t *pkt)
{
    switch (pkt->type) {
    case MPIDI_CH3_PKT_EAGER_SEND:
    case MPIDI_CH3_PKT_EAGER_SYNC_SEND:
    case MPIDI_CH3_PKT_READY_SEND:
    case MPIDI_CH3I_PKT_DAPL_RNDV:
        return &pkt->eager_send.match;
    case MPIDI_CH3_PKT_EAGERSHORT_SEND:
        return &pkt->eagershort_send.match;
    default:
        return NULL;
    }
}

/* The error of a packet to a lost peer. A cancel request has no answer then: the send fails, and
 * MPI_Cancel does not. */
__attribute__((noinline)) static int refuse(MPIDI_VC_t *vc, const MPIDI_CH3_Pkt_t *pkt)
{
    const MPIDI_Message_match *match = mdapl_ch3_match_of(pkt);
    MPIR_Request *sreq;

    /* What closes the VC has an answer nonetheless: that the other end has closed it, too. */
    if (pkt->type == MPIDI_CH3_PKT_CLOSE || !vc->pg) {
        mdapl_ch3_vc_terminate(vc);
        if (pkt->type == MPIDI_CH3_PKT_CLOSE || pkt->type == MPIDI_CH3_PKT_CONN_ACK
            || pkt->type == MPIDI_CH3_PKT_ACCEPT_ACK)
            return MPI_SUCCESS;
    }
    if (pkt->type == MPIDI_CH3_PKT_CANCEL_SEND_REQ) {
        MPIR_Request_get_ptr(pkt->cancel_send_req.sender_req_id, sreq);
        mdapl_ch3_lost_fail_send(sreq, vc);
        return MPI_SUCCESS;
    }
    if (match)
        mdapl_ch3_lost_op(vc, match);
    return mdapl_ch3_vc_error(vc);
}

/* Sends with a new request *sreq_p what the channel has not taken at once. Not inline, as its
 * registers would be saved for each message. */
__attribute__((noinline)) static int start_later(MPIDI_VC_t *vc, const struct mdapl_msg *msg,
                                                 MPIR_Request **sreq_p)
{
    MPIR_Request *sreq = MPIR_Request_create(MPIR_REQUEST_KIND__SEND);
    const MPIDI_Message_match *match = mdapl_ch3_match_of(msg->hdr);

    if (!sreq)
        return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, __func__, __LINE__,
                                    MPI_ERR_OTHER, "**nomem", 0);
    MPIR_Object_set_ref(sreq, 2);
    sreq->dev.match.parts.context_id = match ? match->parts.context_id : MDAPL_CONTEXT_PT2PT;
    sreq->dev.match.parts.tag = match ? match->parts.tag : 0;
    sreq->dev.OnDataAvail = NULL;
    sreq->ch.pack = NULL;
    *sreq_p = sreq;
    return mdapl_ch3_send_body(vc, sreq, msg->hdr, msg->body, msg->n_body, false);
}

/* Sends without a request if the channel takes all of it now; else *sreq_p is a new request. */
static inline int start(MPIDI_VC_t *vc, const void *hdr, const struct iovec *body, int n_body,
                        MPIR_Request **sreq_p)
{
    struct mdapl_msg msg = message(hdr, body, n_body, false);
    struct mdapl_peer *peer;
    int rc = mdapl_ch3_vc_peer(vc, &peer);

    *sreq_p = NULL;
    if (rc == 0)
        rc = mdapl_send(peer, &msg, NULL);
    if (rc == MDAPL_DONE)
        return MPI_SUCCESS;
    return rc == -EAGAIN ? start_later(vc, &msg, sreq_p) : refuse(vc, hdr);
}

/* The same for a packet of RMA, unless RDMA does what it says. */
__attribute__((noinline)) static int start_rma(MPIDI_VC_t *vc, const void *hdr,
                                               const struct iovec *body, int n_body,
                                               MPIR_Request **sreq_p)
{
    MPIDI_CH3_Pkt_t changed;
    const void *pkt;

    *sreq_p = NULL;
    pkt = mdapl_ch3_rma_start(vc, hdr, body, n_body, sreq_p, &changed);
    return pkt ? start(vc, pkt, body, n_body, sreq_p) : MPI_SUCCESS;
}

void mdapl_ch3_send_packet(MPIDI_VC_t *vc, const MPIDI_CH3_Pkt_t *pkt)
{
    MPIR_Request *sreq = NULL;
    int mpi_errno = start(vc, pkt, NULL, 0, &sreq);

    if (sreq)
        MPIR_Request_free(sreq);
    if (mpi_errno != MPI_SUCCESS)
        mdapl_ch3_handler_failed(mpi_errno, "a packet");
}

int MPIDI_CH3_iStartMsg(MPIDI_VC_t *vc, void *hdr, intptr_t hdr_sz, MPIR_Request **sreq_p)
{
    (void)hdr_sz;                /* the type says what counts: mdapl_ch3_packet_len() */
    return mdapl_ch3_is_rma(hdr) ? start_rma(vc, hdr, NULL, 0, sreq_p)
                                 : start(vc, hdr, NULL, 0, sreq_p);
}

int MPIDI_CH3_iStartMsgv(MPIDI_VC_t *vc, struct iovec *iov, int n_iov, MPIR_Request **sreq_p)
{
    return mdapl_ch3_is_rma(iov[0].iov_base)
               ? start_rma(vc, iov[0].iov_base, iov + 1, n_iov - 1, sreq_p)
               : start(vc, iov[0].iov_base, iov + 1, n_iov - 1, sreq_p);
}

/* What is sent in place of a packet of RMA that has a request already: RDMA does none of those. */
static const void *with_request(MPIDI_VC_t *vc, const void *hdr, MPIDI_CH3_Pkt_t *changed)
{
    return mdapl_ch3_is_rma(hdr) ? mdapl_ch3_rma_start(vc, hdr, NULL, 0, NULL, changed) : hdr;
}

int MPIDI_CH3_iSend(MPIDI_VC_t *vc, MPIR_Request *sreq, void *hdr, intptr_t hdr_sz)
{
    MPIDI_CH3_Pkt_t changed;

    (void)hdr_sz;
    sreq->ch.pack = NULL;
    return mdapl_ch3_send_body(vc, sreq, with_request(vc, hdr, &changed), NULL, 0, false);
}

int MPIDI_CH3_iSendv(MPIDI_VC_t *vc, MPIR_Request *sreq, struct iovec *iov, int n_iov)
{
    /* Non-contiguous bodies come through mdapl_ch3_send_noncontig(): nothing is left to reload. */
    MPIDI_CH3_Pkt_t changed;

    MPIR_Assert(sreq->dev.OnDataAvail != MPIDI_CH3_ReqHandler_SendReloadIOV);
    sreq->ch.pack = NULL;
    return mdapl_ch3_send_body(vc, sreq, with_request(vc, iov[0].iov_base, &changed), iov + 1,
                               n_iov - 1, false);
}

/* -- non-contiguous bodies -------------------------------------------------------------------- */

static int pack_body(MPIR_Request *sreq, MPI_Aint len, struct iovec *iov)
{
    MPI_Aint packed = 0;

    sreq->ch.pack = MPL_malloc((size_t)len, MPL_MEM_BUFFER);
    if (!sreq->ch.pack)
        return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, __func__, __LINE__,
                                    MPI_ERR_OTHER, "**nomem", 0);
    mdapl_mpich_pack(sreq->dev.user_buf, sreq->dev.user_count, sreq->dev.datatype,
                     sreq->dev.msg_offset, sreq->ch.pack, len, &packed);
    iov[0] = (struct iovec){ sreq->ch.pack, (size_t)len };
    if (packed == len)
        return MPI_SUCCESS;
    MPL_free(sreq->ch.pack);
    sreq->ch.pack = NULL;
    return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, __func__, __LINE__,
                                MPI_ERR_TYPE, "**dtypemismatch", 0);
}

/*
 * The pieces of the request's typed buffer, from dev.msg_offset to dev.msgsize: at most *n_p of
 * them, else one packed piece that the request owns until it is complete.
 */
int mdapl_ch3_send_typed_body(MPIR_Request *sreq, struct iovec *iov, int *n_p)
{
    MPI_Aint len = sreq->dev.msgsize - sreq->dev.msg_offset, bytes = 0, pieces = 0;

    sreq->ch.pack = NULL;
    MPIR_Typerep_to_iov(sreq->dev.user_buf, sreq->dev.user_count, sreq->dev.datatype,
                        sreq->dev.msg_offset, iov, *n_p, len, &pieces, &bytes);
    *n_p = (int)pieces;
    if (bytes == len)
        return MPI_SUCCESS;
    *n_p = 1;
    return pack_body(sreq, len, iov);
}

/* CH3's hook for sends of derived datatypes; hdr_iov is an extended header in front of the data. */
int mdapl_ch3_send_noncontig(MPIDI_VC_t *vc, MPIR_Request *sreq, void *hdr, intptr_t hdr_sz,
                             struct iovec *hdr_iov, int n_hdr_iov)
{
    struct iovec iov[PIECES];
    MPIDI_CH3_Pkt_t changed;
    int n = PIECES - n_hdr_iov, mpi_errno;

    (void)hdr_sz;
    for (int i = 0; i < n_hdr_iov; i++)
        iov[i] = hdr_iov[i];
    mpi_errno = mdapl_ch3_send_typed_body(sreq, iov + n_hdr_iov, &n);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    sreq->dev.OnDataAvail = sreq->dev.OnFinal;
    return mdapl_ch3_send_body(vc, sreq, with_request(vc, hdr, &changed), iov, n_hdr_iov + n,
                               false);
}
