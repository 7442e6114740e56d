/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "node.h"

#include <limits.h>

/*
 * MPI_Comm_split_type with MPI_COMM_TYPE_SHARED: ranks of one node, by the launcher's host names,
 * that are in the same system by node.h, so that MPI_Win_allocate_shared works in the communicator.
 * All else is MPICH's own.
 */

/* Equal in ranks that may share memory. In ranks that may not it could be equal by chance; then the
 * window is refused. */
static int memory_color(void)
{
    uint64_t node;

    return mdapl_shm_node_here(&node) == 0 ? (int)(node & INT_MAX) : MPIR_Process.rank;
}

static int split_type(MPIR_Comm *comm, int type, int key, MPIR_Info *info, MPIR_Comm **new_p)
{
    MPIR_Comm *near = NULL;
    int mpi_errno;

    if (type != MPI_COMM_TYPE_SHARED)
        return MPIR_Comm_split_type(comm, type, key, info, new_p);
    mpi_errno = MPIR_Comm_split_impl(comm, memory_color(), key, &near);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    /* By node, and by the parts of it that an info key names (shmem_topo). */
    mpi_errno = MPIR_Comm_split_type_node_topo(near, key, info, new_p);
    MPIR_Comm_free_impl(near);
    return mpi_errno;
}

void mdapl_ch3_split_init(struct mdapl_ch3_glue *g)
{
    g->comm_calls.split_type = split_type;
    MPIR_Comm_fns = &g->comm_calls;
}
