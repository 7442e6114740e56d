/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/*
 * Which of MPICH's collective operations report the errors of their messages.
 *
 * MPICH makes them of messages: when one fails, an algorithm records that, goes on, so
 * that no other rank waits for it, and returns an error at its end. All do so but
 *
 *  - until 4.1 those of MPI_Allreduce, which return what their last step returned;
 *  - those of blocking operations that are made of a nonblocking one: the result of waiting for it
 *    is not its status. Operations on neighbours are so, and others if the user chooses "nb";
 *  - those of nonblocking operations with names "tsp_", which MPICH does not use by itself.
 *
 * The first two end with a call of one function, which is replaced: the error flag and the status
 * are at hand when it returns. With MPIR_CVAR_ENABLE_FT the control variables that choose an
 * algorithm have no effect.
 *
 * Only then does a failed message not end the job (lost.c): MPICH's own MPI-IO ignores errors of
 * collective operations, on communicators with error handlers that return.
 */

MDAPL_REPLACE(MPIR_Allreduce, const void *sendbuf, void *recvbuf, MPI_Aint count,
              MPI_Datatype datatype, MPI_Op op, MPIR_Comm *comm, mdapl_mpich_last last);
MDAPL_REPLACE(MPIC_Wait, MPIR_Request *req MDAPL_WAIT_LAST);
MDAPL_REPLACE(MPIDI_CH3U_Clean_recvq, MPIR_Comm *comm);

/* -- operations that would not report -------------------------------------------------------- */

int __wrap_MPIR_Allreduce(const void *sendbuf, void *recvbuf, MPI_Aint count, MPI_Datatype datatype,
                          MPI_Op op, MPIR_Comm *comm, mdapl_mpich_last last)
{
    int before = mdapl_mpich_flagged(last), mpi_errno, errclass;

    if (mdapl_ch3_node_reduce(sendbuf, recvbuf, count, datatype, op, comm, &mpi_errno))
        return mpi_errno;
    mpi_errno = __real_MPIR_Allreduce(sendbuf, recvbuf, count, datatype, op, comm, last);
    errclass = mdapl_mpich_flagged(last);
    if (mpi_errno == MPI_SUCCESS && before == MPI_SUCCESS && errclass != MPI_SUCCESS)
        MPIR_ERR_SET(mpi_errno, errclass, "**coll_fail");
    return mpi_errno;
}

int __wrap_MPIC_Wait(MPIR_Request *req MDAPL_WAIT_LAST)
{
    int mpi_errno = __real_MPIC_Wait(req MDAPL_WAIT_PASS);

    return mpi_errno == MPI_SUCCESS && req->kind == MPIR_REQUEST_KIND__COLL
               ? req->status.MPI_ERROR : mpi_errno;
}

/* A static library is linked by the program, without --wrap. The compiler takes two functions to be
 * different, so it must not see what is compared. */
static bool is_wrapped(void)
{
    int (*volatile wait)(MPIR_Request *MDAPL_WAIT_LAST) = MPIC_Wait;

    return wait == __wrap_MPIC_Wait;
}

/* -- algorithms ------------------------------------------------------------------------------- */

static bool chooses_algorithm(const char *cvar)
{
    static const char end[] = "_ALGORITHM";
    size_t len = strlen(cvar);

    return len >= sizeof(end) && strcmp(cvar + len - (sizeof(end) - 1), end) == 0;
}

void mdapl_ch3_colls_init(void)
{
    for (unsigned i = 0; MPIR_CVAR_ENABLE_FT && i < utarray_len(cvar_table); i++) {
        cvar_table_entry_t *cvar = (cvar_table_entry_t *)(void *)utarray_eltptr(cvar_table, i);

        if (chooses_algorithm(cvar->name))
            *(int *)cvar->addr = 0;              /* auto, in each list of values */
    }
}

/* -- messages --------------------------------------------------------------------------------- */

bool mdapl_ch3_colls_report(void)
{
    return MDAPL_COLLS_REPORT && MPIR_CVAR_ENABLE_FT && is_wrapped();
}

bool mdapl_ch3_colls_is_census(int tag)
{
    tag = MPIR_TAG_MASK_ERROR_BITS(tag) & ~MPIR_TAG_COLL_BIT;
    return tag == MPIR_SHRINK_TAG || tag == MPIR_AGREE_TAG;
}

/* -- revoked communicators -------------------------------------------------------------------- */

/*
 * When a communicator is revoked CH3 drops its messages, those in its queues and those that arrive
 * later: but not those of MPIX_Comm_shrink and _agree, with which another rank may have begun
 * already. Of these it takes only one of two kinds for what it is, and a rank whose message was
 * dropped waits for ever. So those in the queues have a context of their own meanwhile, and the
 * communicator is not revoked while one that arrives is matched or queued.
 */
enum { ASIDE = 0xffff };

static int of_collectives(const MPIR_Comm *comm)
{
    return comm->recvcontext_id + MDAPL_CONTEXT_COLL;
}

static void set_aside(MPIR_Request *req, const void *comm)
{
    if (MPIR_Object_get_ref(req) > 0 && req->kind == MPIR_REQUEST_KIND__RECV
        && req->dev.match.parts.context_id == of_collectives(comm)
        && mdapl_ch3_colls_is_census(req->dev.match.parts.tag))
        req->dev.match.parts.context_id = ASIDE;
}

static void put_back(MPIR_Request *req, const void *comm)
{
    if (MPIR_Object_get_ref(req) > 0 && req->kind == MPIR_REQUEST_KIND__RECV
        && req->dev.match.parts.context_id == ASIDE)
        req->dev.match.parts.context_id = of_collectives(comm);
}

MPIR_Comm *mdapl_ch3_colls_admit(const MPIDI_Message_match *match)
{
    MPIR_Comm *comm = NULL;

    if (!match || !mdapl_ch3_colls_is_census(match->parts.tag))
        return NULL;
    MPIDI_CH3I_Comm_find(match->parts.context_id, &comm);
    if (!comm || !comm->revoked)
        return NULL;
    comm->revoked = 0;
    return comm;
}

/* CH3's handlers of eager messages. */
static const int eager[] = { MPIDI_CH3_PKT_EAGERSHORT_SEND, MPIDI_CH3_PKT_EAGER_SEND };

static int on_eager(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, void *data, intptr_t *buflen,
                    MPIR_Request **rreq_p)
{
    MPIR_Comm *comm = mdapl_ch3_colls_admit(mdapl_ch3_match_of(pkt));
    int mpi_errno = mdapl_ch3_glue.eager[pkt->type == eager[1]](vc, pkt, data, buflen, rreq_p);

    mdapl_ch3_colls_admitted(comm);
    return mpi_errno;
}

/* The first communicator is revoked: until then no message takes the way above. */
static void replace_handlers(struct mdapl_ch3_glue *g)
{
    for (int i = 0; i < 2 && !g->eager[i]; i++) {
        g->eager[i] = g->handler[eager[i]];
        g->handler[eager[i]] = on_eager;
    }
}

int __wrap_MPIDI_CH3U_Clean_recvq(MPIR_Comm *comm)
{
    int mpi_errno;

    replace_handlers(&mdapl_ch3_glue);
    mdapl_ch3_request_pool_visit(set_aside, comm);
    mpi_errno = __real_MPIDI_CH3U_Clean_recvq(comm);
    mdapl_ch3_request_pool_visit(put_back, comm);
    return mpi_errno;
}
