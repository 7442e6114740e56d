/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "mpid_rma_oplist.h"

/*
 * CH3's global pools of RMA operations and targets. CH3 makes them in MPI_Init and writes every
 * element, 4.6 MiB of each process by default, also in programs that have no window. Here MPI_Init
 * makes them empty, and the first window makes them with the sizes of their CVARs.
 */

/* Called before CH3 makes the pools. */
void mdapl_ch3_rma_pool_defer(struct mdapl_ch3_rma_pool *p)
{
    p->ops = MPIR_CVAR_CH3_RMA_OP_GLOBAL_POOL_SIZE;
    p->targets = MPIR_CVAR_CH3_RMA_TARGET_GLOBAL_POOL_SIZE;
    p->deferred = true;
    MPIR_CVAR_CH3_RMA_OP_GLOBAL_POOL_SIZE = 0;
    MPIR_CVAR_CH3_RMA_TARGET_GLOBAL_POOL_SIZE = 0;
}

/* Called after that: MPI_T shows the sizes as they were set. */
void mdapl_ch3_rma_pool_restore(const struct mdapl_ch3_rma_pool *p)
{
    MPIR_CVAR_CH3_RMA_OP_GLOBAL_POOL_SIZE = p->ops;
    MPIR_CVAR_CH3_RMA_TARGET_GLOBAL_POOL_SIZE = p->targets;
}

/* The elements of the pools are on loan to windows only, so at the first one the empty pools can be
 * replaced. CH3 frees the pools in MPI_Finalize, as it frees its own. */
int mdapl_ch3_rma_pool_make(struct mdapl_ch3_rma_pool *p)
{
    int mpi_errno;

    if (!p->deferred)
        return MPI_SUCCESS;
    MPIDI_RMA_finalize();
    mpi_errno = MPIDI_RMA_init();
    p->deferred = mpi_errno != MPI_SUCCESS;
    if (p->deferred) {           /* what it had made is freed, and MPI_Finalize frees again */
        global_rma_op_pool_start = global_rma_op_pool_head = NULL;
        global_rma_target_pool_start = global_rma_target_pool_head = NULL;
    }
    return mpi_errno;
}
