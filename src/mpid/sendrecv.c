/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/*
 * MPI_Sendrecv, and the same of collective operations, by a send that has no request if it is short
 * and a receive that awaits its message (awaited.c). MPICH makes both of two nonblocking calls,
 * whose requests are almost half of the instructions of short messages. A send of CH3's makes no
 * progress, so a receive that is posted after it is as early as one before it.
 */

MDAPL_REPLACE(MPIR_Sendrecv_impl, const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype,
              int dest, int sendtag, void *recvbuf, MPI_Aint recvcount, MPI_Datatype recvtype,
              int source, int recvtag, MPIR_Comm *comm, MPI_Status *status);
MDAPL_REPLACE(MPIC_Sendrecv, const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype,
              int dest, int sendtag, void *recvbuf, MPI_Aint recvcount, MPI_Datatype recvtype,
              int source, int recvtag, MPIR_Comm *comm, MPI_Status *status,
              mdapl_mpich_last errflag);
MDAPL_REPLACE(MPIC_Isend, const void *buf, MPI_Aint count, MPI_Datatype datatype, int dest, int tag,
              MPIR_Comm *comm, MPIR_Request **req_p, mdapl_mpich_last errflag);

/* May a message for this rank be sent before anything else is known? Not to itself, nor where a
 * program goes on when that fails: MPICH's receive takes its message then. */
static bool may_send(const MPIR_Comm *comm, int dest)
{
    return dest != MPI_PROC_NULL && dest != comm->rank
           && comm->comm_kind == MPIR_COMM_KIND__INTRACOMM && !MPIR_CVAR_ENABLE_FT;
}

/* Waits for a request, fills the status and frees it. */
static int finish(MPIR_Request *req, MPI_Status *status)
{
    int mpi_errno = MPID_Wait(req, MPI_STATUS_IGNORE);

    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mpi_errno = req->status.MPI_ERROR;
    MPIR_Request_extract_status(req, status);
    MPIR_Request_free(req);
    return mpi_errno;
}

int __wrap_MPIR_Sendrecv_impl(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype,
                              int dest, int sendtag, void *recvbuf, MPI_Aint recvcount,
                              MPI_Datatype recvtype, int source, int recvtag, MPIR_Comm *comm,
                              MPI_Status *status)
{
    MPIR_Request *sreq = NULL, *rreq = NULL;
    int mpi_errno, of_send = MPI_SUCCESS;

    if (source == MPI_PROC_NULL || !may_send(comm, dest))
        return __real_MPIR_Sendrecv_impl(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf,
                                         recvcount, recvtype, source, recvtag, comm, status);
    mpi_errno = MPID_Send(sendbuf, sendcount, sendtype, dest, sendtag, comm, MDAPL_CONTEXT_PT2PT,
                          &sreq);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mpi_errno = MPID_Recv(recvbuf, recvcount, recvtype, source, recvtag, comm, MDAPL_CONTEXT_PT2PT,
                          status, &rreq);
    if (rreq)
        mpi_errno = finish(rreq, status);
    if (sreq)
        of_send = finish(sreq, MPI_STATUS_IGNORE);
    return mpi_errno != MPI_SUCCESS ? mpi_errno : of_send;
}

int __wrap_MPIC_Sendrecv(const void *sendbuf, MPI_Aint sendcount, MPI_Datatype sendtype, int dest,
                         int sendtag, void *recvbuf, MPI_Aint recvcount, MPI_Datatype recvtype,
                         int source, int recvtag, MPIR_Comm *comm, MPI_Status *status,
                         mdapl_mpich_last errflag)
{
    MPIR_Request *sreq = NULL;
    int mpi_errno, of_send = MPI_SUCCESS;

    if (source == MPI_PROC_NULL || !may_send(comm, dest) || !mdapl_mpich_is_start(errflag))
        return __real_MPIC_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                                    recvtype, source, recvtag, comm, status, errflag);
    mpi_errno = MPID_Send(sendbuf, sendcount, sendtype, dest, sendtag, comm, MDAPL_CONTEXT_COLL,
                          &sreq);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    mpi_errno = MPIC_Recv(recvbuf, recvcount, recvtype, source, recvtag, comm,
                          status MDAPL_WAIT_PASS);
    if (sreq) {
        of_send = MPIC_Wait(sreq MDAPL_WAIT_PASS);
        if (of_send == MPI_SUCCESS)
            of_send = sreq->status.MPI_ERROR;
        MPIR_Request_free(sreq);
    }
    return mpi_errno != MPI_SUCCESS ? mpi_errno : of_send;
}

/* A type of the user's may be freed before a request is complete that does not hold it. */
int __wrap_MPIC_Isend(const void *buf, MPI_Aint count, MPI_Datatype datatype, int dest, int tag,
                      MPIR_Comm *comm, MPIR_Request **req_p, mdapl_mpich_last errflag)
{
    int mpi_errno;

    if (!may_send(comm, dest) || !mdapl_mpich_is_start(errflag)
        || HANDLE_GET_KIND(datatype) != HANDLE_KIND_BUILTIN)
        return __real_MPIC_Isend(buf, count, datatype, dest, tag, comm, req_p, errflag);
    *req_p = NULL;
    mpi_errno = MPID_Send(buf, count, datatype, dest, tag, comm, MDAPL_CONTEXT_COLL, req_p);
    if (mpi_errno == MPI_SUCCESS && !*req_p)
        *req_p = MPIR_Request_create_complete(MPIR_REQUEST_KIND__SEND);
    return mpi_errno;
}
