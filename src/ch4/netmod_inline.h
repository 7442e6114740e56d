/* SPDX-License-Identifier: MIT */
#ifndef NETMOD_INLINE_H_INCLUDED
#define NETMOD_INLINE_H_INCLUDED
/*
 * The calls of the module that ch4 compiles into its own code. Matching, windows and collective
 * operations are those that MPICH has for modules that carry active messages only; the rest are the
 * active messages (am.c) and progress (init.c).
 */
#include "netmod_am_fallback.h"

/* am.c */
/* Bytes of an active message's header, at most: the contract's, less the number of the handler. */
enum { MDAPL_CH4_HDR_MAX = 120 };
/* Sends an active message with a header only, or with `count` elements of a datatype as its body.
 * sreq: completed by the handler's callback at the origin when the body may be reused; NULL: there
 * is no body. An MPI error code. */
int mdapl_ch4_am_send(MPIR_Comm *comm, int rank, int handler, const void *hdr, size_t hdr_len,
                      const void *buf, MPI_Aint count, MPI_Datatype type, MPIR_Request *sreq);
/* Fetches the body of a request whose buffer is known now. An MPI error code. */
int mdapl_ch4_am_fetch(MPIR_Request *rreq);

/* init.c */
void mdapl_ch4_progress(void);

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_progress(int vci, int blocking)
{
    (void)vci, (void)blocking;
    mdapl_ch4_progress();
    return MPI_SUCCESS;
}

/* -- active messages -------------------------------------------------------------------------- */

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_am_send_hdr(int rank, MPIR_Comm *comm, int handler,
                                                  const void *hdr, MPI_Aint hdr_len, int src_vci,
                                                  int dst_vci)
{
    (void)src_vci, (void)dst_vci;
    return mdapl_ch4_am_send(comm, rank, handler, hdr, (size_t)hdr_len, NULL, 0, MPI_BYTE, NULL);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_am_isend(int rank, MPIR_Comm *comm, int handler,
                                               const void *hdr, MPI_Aint hdr_len, const void *buf,
                                               MPI_Aint count, MPI_Datatype type, int src_vci,
                                               int dst_vci, MPIR_Request *sreq)
{
    (void)src_vci, (void)dst_vci;
    return mdapl_ch4_am_send(comm, rank, handler, hdr, (size_t)hdr_len, buf, count, type, sreq);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_am_send_hdr_reply(MPIR_Comm *comm, int rank, int handler,
                                                        const void *hdr, MPI_Aint hdr_len,
                                                        int src_vci, int dst_vci)
{
    return MPIDI_NM_am_send_hdr(rank, comm, handler, hdr, hdr_len, src_vci, dst_vci);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_am_isend_reply(MPIR_Comm *comm, int rank, int handler,
                                                     const void *hdr, MPI_Aint hdr_len,
                                                     const void *buf, MPI_Aint count,
                                                     MPI_Datatype type, int src_vci, int dst_vci,
                                                     MPIR_Request *sreq)
{
    return MPIDI_NM_am_isend(rank, comm, handler, hdr, hdr_len, buf, count, type, src_vci, dst_vci,
                             sreq);
}

/* The contract carries a body of any length with its message, so ch4's rendezvous is not used. */
MPL_STATIC_INLINE_PREFIX bool MPIDI_NM_am_check_eager(MPI_Aint hdr_len, MPI_Aint len,
                                                      const void *buf, MPI_Aint count,
                                                      MPI_Datatype type, MPIR_Request *sreq)
{
    (void)hdr_len, (void)len, (void)buf, (void)count, (void)type, (void)sreq;
    return true;
}

MPL_STATIC_INLINE_PREFIX MPI_Aint MPIDI_NM_am_hdr_max_sz(void)
{
    return MDAPL_CH4_HDR_MAX;
}

/* Longer bodies of unexpected messages stay in the channel until they are matched (am.c). */
MPL_STATIC_INLINE_PREFIX MPI_Aint MPIDI_NM_am_eager_buf_limit(void)
{
    return MPIR_CVAR_CH4_AM_PACK_BUFFER_SIZE;
}

MPL_STATIC_INLINE_PREFIX MPI_Aint MPIDI_NM_am_eager_limit(void)
{
    return MPIDI_NM_am_eager_buf_limit();
}

MPL_STATIC_INLINE_PREFIX MPIDIG_recv_data_copy_cb MPIDI_NM_am_get_data_copy_cb(uint32_t attr)
{
    (void)attr;
    return mdapl_ch4_am_fetch;
}

MPL_STATIC_INLINE_PREFIX void MPIDI_NM_am_request_init(MPIR_Request *req)
{
    req->dev.ch4.am.netmod_am.dapl.rx = NULL;
}

MPL_STATIC_INLINE_PREFIX void MPIDI_NM_am_request_finalize(MPIR_Request *req)
{
    (void)req;
}

/* -- processes -------------------------------------------------------------------------------- */

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_rank_is_local(int rank, MPIR_Comm *comm)
{
    return MPIDIU_rank_is_local(rank, comm);
}

MPL_STATIC_INLINE_PREFIX int MPIDI_NM_comm_get_gpid(MPIR_Comm *comm, int rank, uint64_t *gpid_p,
                                                    bool is_remote)
{
    int lpid = 0, table = 0;

    if (comm->comm_kind == MPIR_COMM_KIND__INTRACOMM || is_remote)
        MPIDIU_comm_rank_to_pid(comm, rank, &lpid, &table);
    else
        MPIDIU_comm_rank_to_pid_local(comm, rank, &lpid, &table);
    *gpid_p = MPIDIU_GPID_CREATE(table, lpid);
    return MPI_SUCCESS;
}

#endif
