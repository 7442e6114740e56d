/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "bytes.h"
#include "log.h"

static MPIR_Request *request_of(struct mdapl_op *op)
{
    return MPL_container_of(op, MPIR_Request, ch.op);
}

void mdapl_ch3_handler_failed(int mpi_errno, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];

    /* Its answer cannot be sent to a lost peer, which does not wait for it. */
    if (MPIR_ERR_GET_CLASS(mpi_errno) == MPIX_ERR_PROC_FAILED)
        return;
    MPIR_Err_get_string(mpi_errno, text, sizeof(text), NULL);
    mdapl_ch3_end_job("the job ends: %s could not be handled: %s", what, text);
}

/* The body cannot be read: the peer is lost, or memory is short. */
static void fail_read(MPIR_Request *rreq, int status)
{
    mdapl_ch3_unpack_end(rreq);
    if (rreq->ch.rx)
        mdapl_rx_drop(rreq->ch.rx);
    rreq->ch.rx = NULL;
    if (status == -ENOMEM) {
        MPIR_ERR_SET(rreq->status.MPI_ERROR, MPI_ERR_NO_MEM, "**nomem");
    } else {
        mdapl_ch3_lost_op(rreq->ch.vc, &rreq->dev.match);
        rreq->status.MPI_ERROR = mdapl_ch3_vc_error(rreq->ch.vc);
    }
    MPID_Request_complete(rreq);
}

/* The request's iov has been filled: CH3 loads it again or completes the request. */
static int batch_done(MPIR_Request *rreq, int *complete)
{
    /* The last byte has freed the rx. */
    if (rreq->ch.left == 0)
        rreq->ch.rx = NULL;
    rreq->dev.iov_offset = 0;
    if (rreq->dev.OnDataAvail)
        return rreq->dev.OnDataAvail(rreq->ch.vc, rreq, complete);
    *complete = TRUE;
    return MPID_Request_complete(rreq);
}

static size_t batch_len(const MPIR_Request *rreq)
{
    size_t len = 0;

    for (int i = 0; i < rreq->dev.iov_count; i++)
        len += rreq->dev.iov[rreq->dev.iov_offset + (size_t)i].iov_len;
    return len;
}

void mdapl_ch3_recv_drop(MPIR_Request *rreq)
{
    if (rreq->ch.left > 0 && rreq->ch.rx)
        mdapl_rx_drop(rreq->ch.rx);
    rreq->ch.rx = NULL;
    rreq->ch.left = 0;
}

/* A body that is here is copied: batch for batch, all of them within the upcall that brought it. */
static int copy_bytes(struct mdapl_ch3_req *ch, const struct iovec *iov, int n)
{
    for (int i = 0; i < n; ch->data += iov[i++].iov_len)
        mdapl_bytes_copy(iov[i].iov_base, ch->data, iov[i].iov_len);
    return MDAPL_DONE;
}

int mdapl_ch3_recv_bytes(MPIR_Request *rreq, const struct iovec *iov, int n)
{
    struct mdapl_ch3_req *ch = &rreq->ch;

    for (int i = 0; i < n; i++)
        ch->left -= iov[i].iov_len;
    return ch->data ? copy_bytes(ch, iov, n) : mdapl_rx_read(ch->rx, iov, n, &ch->op);
}

/* Reads one batch. MDAPL_DONE, 0 (op->done comes), or a negative errno: the rx is still there. */
static int read_batch(MPIR_Request *rreq)
{
    size_t len = batch_len(rreq);

    if (rreq->dev.drop_data) {
        mdapl_ch3_recv_drop(rreq); /* CH3 does not want the bytes: they are not fetched */
        return MDAPL_DONE;
    }
    if (mdapl_ch3_unpack_wanted(rreq))
        return mdapl_ch3_unpack_body(rreq);
    /* CH3's length is the packet's, the channel's is that of the body. */
    if (len == 0 || len > rreq->ch.left)
        return -EPROTO;
    return mdapl_ch3_recv_bytes(rreq, rreq->dev.iov + rreq->dev.iov_offset, rreq->dev.iov_count);
}

/* Reads on until CH3 has enough or the rest has to be waited for. *pending_p: it has. */
static int read_on(MPIR_Request *rreq, bool *pending_p)
{
    int complete = FALSE, mpi_errno = MPI_SUCCESS;

    *pending_p = false;
    while (!complete && mpi_errno == MPI_SUCCESS) {
        int rc = read_batch(rreq);

        if (rc == 0) {
            *pending_p = true;
            return MPI_SUCCESS;
        }
        if (rc < 0) {
            fail_read(rreq, rc);
            return MPI_SUCCESS;
        }
        mpi_errno = batch_done(rreq, &complete);
    }
    return mpi_errno;
}

/* op->done of a read. */
void mdapl_ch3_recv_done(struct mdapl_op *op, int status)
{
    MPIR_Request *rreq = request_of(op);
    int complete = FALSE, mpi_errno;
    bool pending;

    if (status < 0) {
        fail_read(rreq, status);
        return;
    }
    mpi_errno = batch_done(rreq, &complete);
    if (mpi_errno == MPI_SUCCESS && !complete)
        mpi_errno = read_on(rreq, &pending);
    if (mpi_errno != MPI_SUCCESS)
        mdapl_ch3_handler_failed(mpi_errno, "the rest of a message");
}

/* Starts to read the last `left` bytes of a message's body into a request whose iov is loaded. */
static int read_body(MPIDI_VC_t *vc, MPIR_Request *rreq, const struct mdapl_rx_msg *m, size_t left,
                     bool *pending_p)
{
    rreq->dev.iov_offset = 0;
    rreq->ch.vc = vc;
    rreq->ch.rx = m->rx;
    rreq->ch.data = m->rx ? NULL : m->data + (m->len - left);
    rreq->ch.left = left;
    rreq->ch.op.done = mdapl_ch3_recv_done;
    rreq->ch.pack = NULL;
    return read_on(rreq, pending_p);
}

int mdapl_ch3_recv_body(MPIDI_VC_t *vc, MPIR_Request *rreq, struct mdapl_rx *rx)
{
    const struct mdapl_rx_msg m = { .len = rx->left, .rx = rx };
    bool pending;

    return read_body(vc, rreq, &m, m.len, &pending);
}

static bool is_packet(const struct mdapl_rx_msg *m)
{
    const MPIDI_CH3_Pkt_t *pkt = m->hdr;

    return m->hdr_len >= sizeof(pkt->type) && pkt->type >= 0 && pkt->type < MPIDI_CH3_PKT_END_ALL
        && m->hdr_len == mdapl_ch3_packet_len(pkt)
        && (pkt->type == MPIDI_CH3I_PKT_DAPL_RNDV || mdapl_ch3_glue.handler[pkt->type] != NULL);
}

/* A packet of CH3's own: its handler takes the data or gives a request with their destination. */
static int handle_packet(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, const struct mdapl_rx_msg *m,
                         bool *pending_p)
{
    intptr_t taken = m->rx ? 0 : (intptr_t)m->len;
    MPIR_Request *rreq = NULL;
    int mpi_errno = mdapl_ch3_glue.handler[pkt->type](vc, pkt, (void *)m->data, &taken, &rreq);

    if (mpi_errno != MPI_SUCCESS || (size_t)taken == m->len)
        return mpi_errno;
    if (rreq)
        return read_body(vc, rreq, m, m->len - (size_t)taken, pending_p);
    if (m->rx)
        mdapl_rx_drop(m->rx);
    return mpi_errno;
}

/* up->msg. */
enum mdapl_next mdapl_ch3_recv_msg(void *owner, struct mdapl_peer *peer,
                                   const struct mdapl_rx_msg *m)
{
    MPIDI_VC_t *vc = mdapl_ch3_vc_of(peer);
    MPIDI_CH3_Pkt_t *pkt = (MPIDI_CH3_Pkt_t *)m->hdr, whole;
    unsigned matched = mdapl_ch3_glue.recvs.matched;
    enum mdapl_next next;
    bool pending = false;
    int mpi_errno;

    (void)owner;
    if (!vc || !is_packet(m)) {
        mdapl_log(mdapl_ctx_log(mdapl_ch3_glue.ctx), MDAPL_WARN,
                  "dropped a message of rank %d that is no MPI packet; use the same installation "
                  "everywhere",
                  peer->rank);
        if (m->rx)
            mdapl_rx_drop(m->rx);
        return MDAPL_NEXT_GO;
    }
    /* Its handler may copy the whole union, with the union's alignment; frames promise 8 bytes,
     * which is enough for the members of shorter packets. */
    if (m->hdr_len == sizeof(whole))
        pkt = memcpy(&whole, m->hdr, sizeof(whole));
    if (pkt->type == MPIDI_CH3I_PKT_DAPL_RNDV && !m->rx) {
        /* The channel has sent the body with its envelope, so it is an eager message. */
        pkt = memcpy(&whole, m->hdr, sizeof(whole.rndv_req_to_send));
        pkt->type = MPIDI_CH3_PKT_EAGER_SEND;
    }
    if (mdapl_ch3_glue.awaited && mdapl_ch3_awaited_arrived(&mdapl_ch3_glue, pkt, m))
        return MDAPL_NEXT_ENOUGH;
    if (pkt->type == MPIDI_CH3I_PKT_DAPL_RNDV)
        mpi_errno = mdapl_ch3_rndv_announced(vc, pkt, m->rx);
    else
        mpi_errno = handle_packet(vc, pkt, m, &pending);
    if (mpi_errno != MPI_SUCCESS)
        mdapl_ch3_handler_failed(mpi_errno, "a message");
    if (matched != mdapl_ch3_glue.recvs.matched)
        next = mdapl_ch3_glue.recvs.paused ? mdapl_ch3_unexpected_next(vc) : MDAPL_NEXT_GO;
    else
        next = mdapl_ch3_match_of(pkt) ? mdapl_ch3_unexpected_arrived(vc) : MDAPL_NEXT_GO;
    /* CH3 takes the packets of a VC in order, their data included. */
    return pending ? MDAPL_NEXT_HOLD : next;
}
