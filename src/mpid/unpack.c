/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/*
 * Bodies that do not go as they are into the user's buffer: into a datatype of many small pieces,
 * or one that is longer than the buffer. CH3 would receive them in batches of 256 KiB; with a
 * truncated message it asks for the same bytes again, and its offsets are ints. Here the body is
 * read in long pieces and unpacked piece by piece, and what does not fit is not even fetched.
 */
enum { PIECE = 4 << 20 };        /* bytes of a piece at most: one RDMA transfer or a few */

struct mdapl_ch3_staging {
    size_t fits;                 /* bytes of the body that still go into the user's buffer */
    size_t size;                 /* of bytes[] */
    size_t kept;                 /* at its start: too few to fill a basic element, so far */
    size_t asked;                /* bytes of the read in progress */
    char bytes[];
};

/* Receive_data_found() sets the error of a message that is too long before any of it is read. */
static bool is_truncated(const MPIR_Request *rreq)
{
    return MPIDI_Request_get_type(rreq) == MPIDI_REQUEST_TYPE_RECV
           && rreq->status.MPI_ERROR != MPI_SUCCESS
           && rreq->dev.msgsize < rreq->dev.recv_data_sz;
}

/* Would CH3 receive the next batch through its own buffer, or too much of it? */
bool mdapl_ch3_unpack_wanted(const MPIR_Request *rreq)
{
    return rreq->dev.OnDataAvail == MPIDI_CH3_ReqHandler_UnpackSRBufReloadIOV
           || rreq->dev.OnDataAvail == MPIDI_CH3_ReqHandler_UnpackSRBufComplete
           || is_truncated(rreq);
}

/* -- the end ----------------------------------------------------------------------------------- */

/* Frees the staging memory; called when a read has failed, too. */
void mdapl_ch3_unpack_end(MPIR_Request *rreq)
{
    MPL_free(rreq->ch.pack);
    rreq->ch.pack = NULL;
}

/* Discards the rest of the body. CH3 completes the request: this was the last batch. */
static int finish(MPIR_Request *rreq)
{
    mdapl_ch3_recv_drop(rreq);
    rreq->dev.OnDataAvail = rreq->dev.OnFinal;
    mdapl_ch3_unpack_end(rreq);
    return MDAPL_DONE;
}

static int mismatch(MPIR_Request *rreq)
{
    MPIR_STATUS_SET_COUNT(rreq->status, rreq->dev.msg_offset);
    rreq->status.MPI_ERROR = MPIR_Err_create_code(MPI_SUCCESS, MPIR_ERR_RECOVERABLE, __func__,
                                                  __LINE__, MPI_ERR_TYPE, "**dtypemismatch", 0);
    return finish(rreq);
}

/* -- pieces ------------------------------------------------------------------------------------ */

/* Unpacks what has been read. False: the datatype takes none of it. */
static bool unpack(MPIR_Request *rreq)
{
    struct mdapl_ch3_staging *s = rreq->ch.pack;
    MPI_Aint here = (MPI_Aint)(s->kept + s->asked), taken = 0;

    mdapl_mpich_unpack(s->bytes, here, rreq->dev.user_buf, rreq->dev.user_count,
                       rreq->dev.datatype, rreq->dev.msg_offset, &taken);
    rreq->dev.msg_offset += taken;
    s->fits -= s->asked;
    s->kept = (size_t)(here - taken);
    memmove(s->bytes, s->bytes + taken, s->kept);
    return taken > 0;
}

/* Reads the next piece: MDAPL_DONE, 0 or a negative errno, as mdapl_rx_read(). */
static int read_piece(MPIR_Request *rreq)
{
    struct mdapl_ch3_staging *s = rreq->ch.pack;
    struct iovec iov;

    s->asked = MPL_MIN(s->size - s->kept, s->fits);
    iov = (struct iovec){ s->bytes + s->kept, s->asked };
    return mdapl_ch3_recv_bytes(rreq, &iov, 1);
}

/* Reads and unpacks until nothing more fits or a read is pending. */
static int read_pieces(MPIR_Request *rreq)
{
    struct mdapl_ch3_staging *s = rreq->ch.pack;

    while (s->fits > 0) {
        int rc = read_piece(rreq);

        if (rc != MDAPL_DONE)
            return rc;
        if (!unpack(rreq))
            return mismatch(rreq);
    }
    return s->kept > 0 ? mismatch(rreq) : finish(rreq);
}

/* op->done of a piece. */
static void piece_done(struct mdapl_op *op, int status)
{
    MPIR_Request *rreq = MPL_container_of(op, MPIR_Request, ch.op);
    int rc = status;

    if (status == 0)
        rc = unpack(rreq) ? read_pieces(rreq) : mismatch(rreq);
    if (rc == 0)
        return;
    rreq->ch.op.done = mdapl_ch3_recv_done;
    mdapl_ch3_recv_done(op, rc < 0 ? rc : 0);
}

/*
 * Reads the rest of the body into the request's typed buffer, from dev.msg_offset to dev.msgsize:
 * MDAPL_DONE, 0 (mdapl_ch3_recv_done() is called) or a negative errno, as mdapl_rx_read().
 */
int mdapl_ch3_unpack_body(MPIR_Request *rreq)
{
    struct mdapl_ch3_staging *s;
    size_t fits, size;

    /* CH3 has loaded a first batch, whose bytes it counts as received. */
    if (is_truncated(rreq))
        rreq->dev.msg_offset = 0;
    fits = MPL_MIN((size_t)(rreq->dev.msgsize - rreq->dev.msg_offset), rreq->ch.left);
    size = MPL_MIN(fits, (size_t)PIECE);
    s = MPL_malloc(sizeof(*s) + size, MPL_MEM_BUFFER);
    if (!s)
        return -ENOMEM;
    *s = (struct mdapl_ch3_staging){ .fits = fits, .size = size };
    rreq->ch.pack = s;
    rreq->ch.op.done = piece_done;
    return read_pieces(rreq);
}
