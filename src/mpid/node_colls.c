/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

/*
 * Collective operations on one node that are made otherwise than MPICH would: a barrier, and a
 * reduction of a few numbers, by counters in shared memory (src/shm/node_barrier.c), and which
 * lengths go by trees.
 */

MDAPL_REPLACE(MPIR_Barrier_intra_smp, MPIR_Comm *comm, mdapl_mpich_last last);
MDAPL_REPLACE(MPIR_Reduce_intra_reduce_scatter_gather, const void *sendbuf, void *recvbuf,
              MPI_Aint count, MPI_Datatype datatype, MPI_Op op, int root, MPIR_Comm *comm,
              mdapl_mpich_last last);
MDAPL_REPLACE(MPIR_Bcast_intra_scatter_recursive_doubling_allgather, void *buf, MPI_Aint count,
              MPI_Datatype datatype, int root, MPIR_Comm *comm, mdapl_mpich_last last);
MDAPL_REPLACE(MPIR_Bcast_intra_scatter_ring_allgather, void *buf, MPI_Aint count,
              MPI_Datatype datatype, int root, MPIR_Comm *comm, mdapl_mpich_last last);

/* -- barriers --------------------------------------------------------------------------------- */

/* Are its processes those of MPI_COMM_WORLD, in the same order? */
static bool is_world(MPIR_Comm *comm)
{
    MPIR_Comm *world = MPIR_Process.comm_world;
    MPIDI_VC_t *mine, *its;

    if (comm == world || !world || comm->comm_kind != MPIR_COMM_KIND__INTRACOMM
        || comm->local_size != world->local_size)
        return comm == world;
    for (int i = 0; i < comm->local_size; i++) {
        MPIDI_Comm_get_vc(comm, i, &mine);
        MPIDI_Comm_get_vc(world, i, &its);
        if (mine != its)
            return false;
    }
    return true;
}

/* Not where a thread may wait for the one that makes progress, nor where the program is to see
 * which ranks are lost. */
bool mdapl_ch3_node_counts(bool threads)
{
    return !threads && !MPIR_CVAR_ENABLE_FT;
}

/* Waits for the other ranks, which have this one's count. */
static int await_ranks(struct mdapl_ch3_glue *g)
{
    int mpi_errno = mdapl_ch3_progress_barrier(g);

    if (mpi_errno == MPI_SUCCESS && !mdapl_barrier_passed(g->ctx))
        mdapl_ch3_lost_in_barrier(g);
    return mpi_errno;
}

/* Is there such a barrier of all ranks of the communicator? Then returns when all have entered it.
 * r: NULL, or what they bring (transport.h). */
static bool meet(MPIR_Comm *comm, const struct mdapl_reduce *r, int *mpi_errno)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    int rc = g->ctx && is_world(comm) ? mdapl_barrier_enter(g->ctx, r) : -ENOTSUP;

    *mpi_errno = rc == 0 ? await_ranks(g) : MPI_SUCCESS;
    return rc >= 0;
}

/* MPICH's is a barrier of each node's ranks, one of a rank of each node, and a broadcast on each
 * node. On one node the first of these is enough; that of all ranks needs no messages. */
int __wrap_MPIR_Barrier_intra_smp(MPIR_Comm *comm, mdapl_mpich_last last)
{
    int mpi_errno;

    if (meet(comm, NULL, &mpi_errno))
        return mpi_errno;
    if (comm->node_comm && mdapl_mpich_is_on_one_node(comm))
        return MPIR_Barrier(comm->node_comm, last);
    return __real_MPIR_Barrier_intra_smp(comm, last);
}

/* -- reductions of a few numbers -------------------------------------------------------------- */

/* The arguments of MPI_Allreduce that are the same at all ranks. */
struct operation {
    MPI_Aint count;
    MPI_Datatype datatype;
    MPI_Op op;
};

static void combine(const void *arg, const void *in, void *inout)
{
    const struct operation *o = arg;

    MPIR_Reduce_local(in, inout, o->count, o->datatype, o->op);
}

/* Bytes of one rank's values, if they may be brought into a barrier; else 0. Not where the user's
 * functions combine them, which may do more than that. */
static size_t brought_by(const struct operation *o)
{
    size_t bytes;

    if (MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM || HANDLE_GET_KIND(o->op) != HANDLE_KIND_BUILTIN
        || HANDLE_GET_KIND(o->datatype) != HANDLE_KIND_BUILTIN || o->count > MDAPL_REDUCE_BYTES)
        return 0;
    bytes = (size_t)o->count * MPIR_Datatype_get_basic_size(o->datatype);
    return bytes <= MDAPL_REDUCE_BYTES ? bytes : 0;
}

bool mdapl_ch3_node_reduce(const void *sendbuf, void *recvbuf, MPI_Aint count,
                           MPI_Datatype datatype, MPI_Op op, MPIR_Comm *comm, int *mpi_errno)
{
    const struct operation o = { count, datatype, op };
    struct mdapl_reduce r = {
        .own = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf, .len = brought_by(&o),
        .combine = combine, .arg = &o,
    };
    const void *result;

    if (r.len == 0 || !meet(comm, &r, mpi_errno))
        return false;
    result = mdapl_barrier_result(mdapl_ch3_glue.ctx);
    if (result)
        memcpy(recvbuf, result, r.len);
    else
        MPIR_ERR_SET(*mpi_errno, MPI_ERR_OTHER, "**collective_size_mismatch");
    return true;
}

/* -- trees ------------------------------------------------------------------------------------ */

/*
 * From some KiB on MPICH has ranks exchange parts of a body: each rank copies, or adds, less of it,
 * but each call waits for all ranks. A tree lets the ranks that have only to send, or to receive,
 * go on to their next call. Up to these lengths it is on one node as fast for a single call, and
 * faster for many, above all where ranks share cores (benchmarks/run colls).
 */
enum { TREE_REDUCE = 16384, TREE_BCAST = 32768 };

/* chosen: the control variable that names the user's algorithm, 0: MPICH's choice. */
static bool goes_by_tree(int chosen, const MPIR_Comm *comm, MPI_Aint count, MPI_Datatype datatype,
                         MPI_Aint most)
{
    MPI_Aint each;

    MPIR_Datatype_get_size_macro(datatype, each);
    return !chosen && count * each <= most && mdapl_mpich_is_on_one_node(comm);
}

int __wrap_MPIR_Reduce_intra_reduce_scatter_gather(const void *sendbuf, void *recvbuf,
                                                   MPI_Aint count, MPI_Datatype datatype,
                                                   MPI_Op op, int root, MPIR_Comm *comm,
                                                   mdapl_mpich_last last)
{
    bool tree = goes_by_tree(MPIR_CVAR_REDUCE_INTRA_ALGORITHM, comm, count, datatype, TREE_REDUCE);

    return (tree ? MPIR_Reduce_intra_binomial : __real_MPIR_Reduce_intra_reduce_scatter_gather)(
        sendbuf, recvbuf, count, datatype, op, root, comm, last);
}

int __wrap_MPIR_Bcast_intra_scatter_recursive_doubling_allgather(void *buf, MPI_Aint count,
                                                                 MPI_Datatype datatype, int root,
                                                                 MPIR_Comm *comm,
                                                                 mdapl_mpich_last last)
{
    bool tree = goes_by_tree(MPIR_CVAR_BCAST_INTRA_ALGORITHM, comm, count, datatype, TREE_BCAST);

    return (tree ? MPIR_Bcast_intra_binomial
                 : __real_MPIR_Bcast_intra_scatter_recursive_doubling_allgather)(
        buf, count, datatype, root, comm, last);
}

int __wrap_MPIR_Bcast_intra_scatter_ring_allgather(void *buf, MPI_Aint count,
                                                   MPI_Datatype datatype, int root,
                                                   MPIR_Comm *comm, mdapl_mpich_last last)
{
    bool tree = goes_by_tree(MPIR_CVAR_BCAST_INTRA_ALGORITHM, comm, count, datatype, TREE_BCAST);

    return (tree ? MPIR_Bcast_intra_binomial : __real_MPIR_Bcast_intra_scatter_ring_allgather)(
        buf, count, datatype, root, comm, last);
}
