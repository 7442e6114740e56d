/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/*
 * MPI messages too long for a frame, in place of CH3's own rendezvous packets: one mdapl_send() of
 * envelope and body, one mdapl_rx_read() once the receiver has matched the envelope. A channel that
 * sends the body with its envelope, at once, may do so unless the send is a synchronous one: then
 * it is an eager message (recv.c).
 */

/* -- sending ---------------------------------------------------------------------------------- */

static void fill_envelope(MPIDI_CH3_Pkt_t *upkt, MPIR_Request *sreq, intptr_t data_sz, int tag,
                          const MPIR_Comm *comm, int context_offset)
{
    MPIDI_CH3_Pkt_rndv_req_to_send_t *pkt = &upkt->rndv_req_to_send;

    MPIDI_Pkt_init(upkt, MPIDI_CH3I_PKT_DAPL_RNDV);
    pkt->match.parts.rank = comm->rank;
    pkt->match.parts.tag = tag;
    pkt->match.parts.context_id = comm->context_id + context_offset;
    pkt->sender_req_id = sreq->handle;
    pkt->data_sz = data_sz;
}

/* CH3's rndvSend_fn. */
int mdapl_ch3_rndv_start(MPIR_Request **sreq_p, const void *buf, MPI_Aint count,
                         MPI_Datatype datatype, int dt_contig, intptr_t data_sz,
                         MPI_Aint dt_true_lb, int rank, int tag, MPIR_Comm *comm,
                         int context_offset)
{
    MPIR_Request *sreq = *sreq_p;
    struct iovec iov[MPL_IOV_LIMIT];
    MPIDI_CH3_Pkt_t pkt;
    MPIDI_VC_t *vc;
    int n = MPL_IOV_LIMIT, mpi_errno = MPI_SUCCESS;

    (void)count, (void)datatype;
    sreq->dev.OnDataAvail = NULL;
    sreq->dev.OnFinal = NULL;
    sreq->dev.partner_request = NULL;
    sreq->ch.pack = NULL;
    MPIDI_Comm_get_vc_set_active(comm, rank, &vc);
    fill_envelope(&pkt, sreq, data_sz, tag, comm, context_offset);
    if (dt_contig) {
        iov[0] = (struct iovec){ MPIR_get_contig_ptr(buf, dt_true_lb), (size_t)data_sz };
        n = 1;
    } else {
        sreq->dev.msg_offset = 0;
        sreq->dev.msgsize = data_sz;
        mpi_errno = mdapl_ch3_send_typed_body(sreq, iov, &n);
    }
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = mdapl_ch3_send_body(vc, sreq, &pkt, iov, n,
                                        MPIDI_Request_get_type(sreq) == MPIDI_REQUEST_TYPE_SSEND);
    /* The channel has sent the body as well, so CH3 cancels it as an eager one. */
    if (mpi_errno == MPI_SUCCESS && MPIR_Request_is_complete(sreq))
        MPIDI_Request_set_msg_type(sreq, MPIDI_REQUEST_EAGER_MSG);
    if (mpi_errno != MPI_SUCCESS) {
        MPIR_Request_free(sreq);
        *sreq_p = NULL;
    }
    return mpi_errno;
}

/* -- receiving -------------------------------------------------------------------------------- */

/* Records rx for the unexpected message of rreq. False: out of memory. */
static bool add_unmatched(MPIR_Request *rreq, struct mdapl_rx *rx)
{
    struct mdapl_ch3_unmatched *u = MPL_malloc(sizeof(*u), MPL_MEM_OTHER);
    struct mdapl_ch3_unmatched *head = &mdapl_ch3_glue.unmatched;

    if (!u)
        return false;
    *u = (struct mdapl_ch3_unmatched){ .next = head, .prev = head->prev, .rx = rx };
    u->prev->next = u->next->prev = u;
    rreq->ch.unmatched = u;
    return true;
}

static struct mdapl_rx *remove_unmatched(struct mdapl_ch3_unmatched *u)
{
    struct mdapl_rx *rx = u->rx;

    u->prev->next = u->next;
    u->next->prev = u->prev;
    MPL_free(u);
    return rx;
}

static void fill_request(MPIR_Request *rreq, const MPIDI_CH3_Pkt_rndv_req_to_send_t *pkt)
{
    rreq->status.MPI_SOURCE = pkt->match.parts.rank;
    rreq->status.MPI_TAG = pkt->match.parts.tag;
    MPIR_STATUS_SET_COUNT(rreq->status, pkt->data_sz);
    rreq->dev.sender_req_id = pkt->sender_req_id;
    rreq->dev.recv_data_sz = pkt->data_sz;
    MPIDI_Request_set_msg_type(rreq, MPIDI_REQUEST_RNDV_MSG);
}

/* Reads the body of a matched message into the user's buffer. An MPI error code. */
static int fetch(MPIDI_VC_t *vc, MPIR_Request *rreq, struct mdapl_rx *rx)
{
    intptr_t here = 0;
    int complete = FALSE;
    int mpi_errno = MPIDI_CH3U_Receive_data_found(rreq, NULL, &here, &complete);

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = mdapl_ch3_recv_body(vc, rreq, rx);
    return mpi_errno;
}

/* CH3's rndvRecv_fn: an unexpected rendezvous has been matched. */
int mdapl_ch3_rndv_match(MPIDI_VC_t *vc, MPIR_Request *rreq)
{
    struct mdapl_rx *rx = remove_unmatched(rreq->ch.unmatched);

    rreq->ch.unmatched = NULL;
    return fetch(vc, rreq, rx);
}

/* The envelope of a rendezvous has arrived. */
int mdapl_ch3_rndv_announced(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *upkt, struct mdapl_rx *rx)
{
    MPIDI_CH3_Pkt_rndv_req_to_send_t *pkt = &upkt->rndv_req_to_send;
    MPIR_Comm *revoked = mdapl_ch3_colls_admit(&pkt->match);
    MPIR_Request *rreq;
    int found;

    rreq = MPIDI_CH3U_Recvq_FDP_or_AEU(&pkt->match, &found);
    mdapl_ch3_colls_admitted(revoked);
    if (!rreq)
        return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_FATAL, __func__, __LINE__, MPI_ERR_OTHER,
                                    "**nomemreq", "**nomemuereq %d",
                                    MPIDI_CH3U_Recvq_count_unexp());
    /* A complete request that was not found: its communicator has been revoked. */
    if (!found && MPIR_cc_get(rreq->cc) == 0) {
        mdapl_rx_drop(rx);
        return MPI_SUCCESS;
    }
    fill_request(rreq, pkt);
    if (found)
        return fetch(vc, rreq, rx);
    if (!add_unmatched(rreq, rx))
        return MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_FATAL, __func__, __LINE__,
                                    MPI_ERR_NO_MEM, "**nomem", 0);
    MPIDI_CH3_Progress_signal_completion();      /* a probe may be waiting for it */
    return MPI_SUCCESS;
}

/* -- cancelling ------------------------------------------------------------------------------- */

static bool cancel_unexpected(MPIDI_CH3_Pkt_cancel_send_req_t *pkt)
{
    MPIR_Request *rreq = MPIDI_CH3U_Recvq_FDU(pkt->sender_req_id, &pkt->match);

    if (!rreq)
        return false;
    if (MPIDI_Request_get_msg_type(rreq) == MPIDI_REQUEST_RNDV_MSG) {
        mdapl_rx_drop(remove_unmatched(rreq->ch.unmatched));
        MPIR_Request_free(rreq);
    } else if (rreq->dev.recv_data_sz > 0) {
        MPL_free(rreq->dev.tmpbuf);
    }
    MPIR_Request_free(rreq);
    return true;
}

/* The handler of CH3's cancel request: an unexpected message is deleted, with its body. */
int mdapl_ch3_rndv_cancel(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *upkt, void *data, intptr_t *buflen,
                          MPIR_Request **rreq_p)
{
    MPIDI_CH3_Pkt_t answer;
    MPIDI_CH3_Pkt_cancel_send_resp_t *resp = &answer.cancel_send_resp;
    MPIR_Request *sreq;
    int mpi_errno;

    (void)data;
    *buflen = 0;
    *rreq_p = NULL;
    MPIDI_Pkt_init(&answer, MPIDI_CH3_PKT_CANCEL_SEND_RESP);
    resp->sender_req_id = upkt->cancel_send_req.sender_req_id;
    resp->ack = cancel_unexpected(&upkt->cancel_send_req);
    mpi_errno = MPIDI_CH3_iStartMsg(vc, &answer, sizeof(*resp), &sreq);
    if (mpi_errno == MPI_SUCCESS && sreq)
        MPIR_Request_free(sreq);
    return mpi_errno;
}

/* Drops unexpected messages at the end of the job, which completes their senders' requests. */
void mdapl_ch3_rndv_forget_unmatched(void)
{
    struct mdapl_ch3_unmatched *head = &mdapl_ch3_glue.unmatched;

    while (head->next != head)
        mdapl_rx_drop(remove_unmatched(head->next));
}
