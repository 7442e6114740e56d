/* SPDX-License-Identifier: MIT */
#include "glue.h"

#include "iov.h"
#include "log.h"
#include "transport.h"

#include <errno.h>

/*
 * An active message of ch4 is a message of the contract: its header behind the number of its
 * handler, and its body, if it has one. The channels carry a body of any length, and a body that
 * they do not bring with the header is read into the buffer of the request that the handler gives,
 * at once or, for a message that no receive has matched, when ch4 asks for it.
 */
/* -- sending ---------------------------------------------------------------------------------- */

/* A message that is still to be transmitted, or read by its receiver. */
struct sending {
    struct mdapl_op op;
    MPIR_Request *sreq;          /* NULL: it has no body */
    int handler;
    void *packed;                /* the body, where it is not the user's memory */
};

/* The body may be reused, or the peer is lost: then the job ends. */
static void sent(MPIR_Request *sreq, int handler, void *packed)
{
    MPL_free(packed);
    if (sreq)
        MPIDIG_global.origin_cbs[handler](sreq);
}

static void sending_done(struct mdapl_op *op, int status)
{
    struct sending *s = (struct sending *)op;

    (void)status;                /* -ECANCELED: the receiver's buffer had no room for any of it */
    sent(s->sreq, s->handler, s->packed);
    MPL_free(s);
}

/* The peer of a rank; NULL: it is this process. */
static struct mdapl_peer *peer_of(MPIR_Comm *comm, int rank)
{
    MPIDI_av_entry_t *av = MPIDIU_comm_rank_to_av(comm, rank);
    struct mdapl_peer **peer_p = &av->netmod.dapl.peer;
    int lpid, table;

    if (*peer_p)
        return *peer_p;
    MPIDIU_comm_rank_to_pid(comm, rank, &lpid, &table);
    if (lpid != MPIR_Process.rank && mdapl_peer_get(mdapl_ch4_glue.ctx, lpid, peer_p))
        mdapl_ch4_end_job("a rank that no channel reaches; MPIR_CVAR_DAPL_CHANNELS has them");
    return *peer_p;
}

/* Transmits, or queues. An MPI error code. */
static int transmit(struct mdapl_peer *peer, const struct mdapl_msg *msg, int handler,
                    MPIR_Request *sreq, void *packed)
{
    struct sending *s;
    int mpi_errno = MPI_SUCCESS, rc = mdapl_send(peer, msg, NULL);

    if (rc == -EAGAIN) {
        s = MPL_malloc(sizeof(*s), MPL_MEM_BUFFER);
        if (!s)
            mdapl_ch4_end_job("no memory for a message");
        *s = (struct sending){ { sending_done }, sreq, handler, packed };
        rc = mdapl_send(peer, msg, &s->op);
        if (rc == 0)
            return MPI_SUCCESS;
        MPL_free(s);
    }
    if (rc < 0)
        MPIR_ERR_SET(mpi_errno, MPI_ERR_OTHER, "**fail");
    sent(sreq, handler, packed);
    return mpi_errno;
}

/* A copy of a body that is not contiguous. */
static void *pack(const void *buf, MPI_Aint count, MPI_Datatype type, MPI_Aint len)
{
    MPI_Aint packed = 0;
    void *copy = MPL_malloc(len, MPL_MEM_BUFFER);

    if (!copy)
        mdapl_ch4_end_job("no memory to pack the body of a message");
    MPIR_Typerep_pack(buf, count, type, 0, copy, len, &packed);
    return copy;
}

int mdapl_ch4_am_send(MPIR_Comm *comm, int rank, int handler, const void *hdr, size_t hdr_len,
                      const void *buf, MPI_Aint count, MPI_Datatype type, MPIR_Request *sreq)
{
    struct mdapl_ch4_am am;
    struct iovec body = { NULL, 0 };
    struct mdapl_msg msg = {
        .hdr = &am, .hdr_len = offsetof(struct mdapl_ch4_am, hdr) + hdr_len, .body = &body,
    };
    struct mdapl_peer *peer = peer_of(comm, rank);
    MPI_Aint len, lb;
    void *packed = NULL;
    int contiguous;

    am.handler = (uint64_t)handler;
    memcpy(am.hdr, hdr, hdr_len);
    MPIDI_Datatype_check_contig_size_lb(type, count, contiguous, len, lb);
    if (len > 0) {
        if (!contiguous)
            packed = pack(buf, count, type, len);
        body.iov_base = packed ? packed : MPIR_get_contig_ptr(buf, lb);
        body.iov_len = (size_t)len;
        msg.n_body = 1;
    }
    if (peer)
        return transmit(peer, &msg, handler, sreq, packed);
    mdapl_ch4_self_send(&msg);
    sent(sreq, handler, packed);
    return MPI_SUCCESS;
}

/* -- receiving -------------------------------------------------------------------------------- */

/* A body that is being read. */
struct reading {
    struct mdapl_op op;
    MPIR_Request *rreq;
    struct mdapl_rx *rest;       /* what the buffer has no room for; NULL: nothing */
    void *packed;                /* the body, until it is unpacked; NULL: it is read in place */
};

/* Completes the request; status: 0, or a negative errno if the peer is lost, which ends the job. */
static void reading_done(struct mdapl_op *op, int status)
{
    struct reading *r = (struct reading *)op;
    MPIR_Request *rreq = r->rreq;

    if (status < 0)
        MPIR_ERR_SET(rreq->status.MPI_ERROR, MPI_ERR_OTHER, "**fail");
    if (r->rest)
        mdapl_rx_drop(r->rest);
    if (r->packed && status == 0)
        MPIDIG_recv_copy(r->packed, rreq);
    MPL_free(r->packed);
    MPL_free(r);
    MPIDIG_REQUEST(rreq, req->target_cmpl_cb)(rreq);
}

/* Must the body be unpacked into the request's buffer? */
static bool is_sparse(MPIR_Request *rreq)
{
    int contiguous = 1;

    if (MPIDIG_REQUEST(rreq, req->recv_async).recv_type == MPIDIG_RECV_DATATYPE)
        MPIDI_Datatype_check_contig(MPIDIG_REQUEST(rreq, datatype), contiguous);
    return !contiguous;
}

/* Where the body goes: memory for all of it, or the pieces of the request's buffer. *one: the only
 * piece. Returns the pieces. */
static const struct iovec *target_of(struct reading *r, size_t len, struct iovec *one, int *n_p)
{
    int contiguous, on_device;
    MPI_Aint size;
    void *data;

    *n_p = 1;
    if (is_sparse(r->rreq)) {
        r->packed = MPL_malloc(len, MPL_MEM_BUFFER);
        if (!r->packed)
            mdapl_ch4_end_job("no memory to unpack the body of a message");
        *one = (struct iovec){ r->packed, len };
        return one;
    }
    MPIDIG_get_recv_data(&contiguous, &on_device, &data, &size, r->rreq);
    MPIDIG_recv_setup(r->rreq);
    if (!contiguous) {
        *n_p = (int)size;
        return data;
    }
    *one = (struct iovec){ data, (size_t)size };
    return one;
}

/* Begins to read the body of a request whose buffer is known. True: it is complete. */
static bool fetch(MPIR_Request *rreq)
{
    struct mdapl_rx *rx = rreq->dev.ch4.am.netmod_am.dapl.rx;
    struct reading *r = MPL_calloc(1, sizeof(*r), MPL_MEM_BUFFER);
    const struct iovec *iov;
    struct iovec one;
    size_t room;
    int n, rc;

    if (!r)
        mdapl_ch4_end_job("no memory for a message");
    r->op.done = reading_done;
    r->rreq = rreq;
    rreq->dev.ch4.am.netmod_am.dapl.rx = NULL;
    iov = target_of(r, rx->left, &one, &n);
    room = mdapl_iov_len(iov, n);
    if (room < rx->left)
        r->rest = rx;
    rc = room > 0 ? mdapl_rx_read(rx, iov, n, &r->op) : MDAPL_DONE;
    if (rc == 0)
        return false;
    if (rc < 0)
        r->rest = rx;            /* a failed read does not free it */
    reading_done(&r->op, rc < 0 ? rc : 0);
    return true;
}

int mdapl_ch4_am_fetch(MPIR_Request *rreq)
{
    fetch(rreq);
    return MPI_SUCCESS;
}

/* The handler of a message whose body has to be fetched. Without a request it does not want the
 * body. */
static enum mdapl_next announce(MPIDIG_am_target_msg_cb handle, void *hdr, struct mdapl_rx *rx)
{
    MPIR_Request *rreq = NULL;

    handle(hdr, NULL, (MPI_Aint)rx->left, MPIDIG_AM_ATTR__IS_ASYNC | MPIDIG_AM_ATTR__IS_RNDV,
           &rreq);
    if (!rreq) {
        mdapl_rx_drop(rx);
        return MDAPL_NEXT_GO;
    }
    if (mdapl_ch4_glue.closing && !MPIDIG_recv_initialized(rreq)) {
        mdapl_rx_drop(rx);
        return MDAPL_NEXT_GO;
    }
    rreq->dev.ch4.am.netmod_am.dapl.rx = rx;
    if (!MPIDIG_recv_initialized(rreq) || fetch(rreq))
        return MDAPL_NEXT_GO;
    /* Operations on a window keep their order; MPI messages are matched, that is all. */
    return handle == MPIDIG_global.target_msg_cbs[MPIDIG_SEND] ? MDAPL_NEXT_GO : MDAPL_NEXT_HOLD;
}

void mdapl_ch4_am_forget_unmatched(void)
{
    mdapl_ch4_glue.closing = true;
    for (MPIR_Request *rreq = MPIDI_global.per_vci[0].unexp_list; rreq; rreq = rreq->next) {
        struct mdapl_rx **rx_p = &rreq->dev.ch4.am.netmod_am.dapl.rx;

        if (*rx_p)
            mdapl_rx_drop(*rx_p);
        *rx_p = NULL;
    }
}

enum mdapl_next mdapl_ch4_am_arrived(const struct mdapl_rx_msg *m)
{
    struct mdapl_ch4_am *am = (struct mdapl_ch4_am *)m->hdr;
    MPIDIG_am_target_msg_cb handle = am->handler < MPIDI_AM_HANDLERS_MAX
                                     ? MPIDIG_global.target_msg_cbs[am->handler] : NULL;

    if (!handle || m->hdr_len < offsetof(struct mdapl_ch4_am, hdr))
        mdapl_ch4_end_job("a message that is none of this MPI's; use the same installation "
                          "everywhere");
    if (m->rx)
        return announce(handle, am->hdr, m->rx);
    if (m->len > (size_t)MPIR_CVAR_CH4_AM_PACK_BUFFER_SIZE)
        return announce(handle, am->hdr, mdapl_ch4_self_keep(m->data, m->len));
    handle(am->hdr, (void *)m->data, (MPI_Aint)m->len, 0, NULL);
    return MDAPL_NEXT_GO;
}
