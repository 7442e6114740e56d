/* SPDX-License-Identifier: MIT */
#include "glue.h"

/*
 * The calls of the module that ch4 does not compile into its own code, and for which it has nothing
 * of its own to do: memory, windows, partitioned messages; objects that it need not know of; and
 * what it does not have, processes of other jobs.
 */

/* -- objects ---------------------------------------------------------------------------------- */

#define NOTHING_TO_DO(name, ...)          \
    int MPIDI_NM_##name(__VA_ARGS__)      \
    {                                     \
        return MPI_SUCCESS;               \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"

NOTHING_TO_DO(comm_set_hints, MPIR_Comm *comm, MPIR_Info *info)
NOTHING_TO_DO(mpi_comm_commit_pre_hook, MPIR_Comm *comm)
NOTHING_TO_DO(mpi_comm_commit_post_hook, MPIR_Comm *comm)
NOTHING_TO_DO(mpi_comm_free_hook, MPIR_Comm *comm)
NOTHING_TO_DO(mpi_win_create_hook, MPIR_Win *win)
NOTHING_TO_DO(mpi_win_allocate_hook, MPIR_Win *win)
NOTHING_TO_DO(mpi_win_allocate_shared_hook, MPIR_Win *win)
NOTHING_TO_DO(mpi_win_create_dynamic_hook, MPIR_Win *win)
NOTHING_TO_DO(mpi_win_attach_hook, MPIR_Win *win, void *base, MPI_Aint size)
NOTHING_TO_DO(mpi_win_detach_hook, MPIR_Win *win, const void *base)
NOTHING_TO_DO(mpi_win_free_hook, MPIR_Win *win)
NOTHING_TO_DO(mpi_type_commit_hook, MPIR_Datatype *type)
NOTHING_TO_DO(mpi_type_free_hook, MPIR_Datatype *type)
NOTHING_TO_DO(mpi_op_commit_hook, MPIR_Op *op)
NOTHING_TO_DO(mpi_op_free_hook, MPIR_Op *op)

/* -- memory and windows ----------------------------------------------------------------------- */

void *MPIDI_NM_mpi_alloc_mem(MPI_Aint size, MPIR_Info *info)
{
    return MPIDIG_mpi_alloc_mem(size, info);
}

int MPIDI_NM_mpi_free_mem(void *mem)
{
    return MPIDIG_mpi_free_mem(mem);
}

int MPIDI_NM_mpi_win_create(void *base, MPI_Aint size, int unit, MPIR_Info *info, MPIR_Comm *comm,
                            MPIR_Win **win_p)
{
    return MPIDIG_mpi_win_create(base, size, unit, info, comm, win_p);
}

int MPIDI_NM_mpi_win_create_dynamic(MPIR_Info *info, MPIR_Comm *comm, MPIR_Win **win_p)
{
    return MPIDIG_mpi_win_create_dynamic(info, comm, win_p);
}

int MPIDI_NM_mpi_win_allocate(MPI_Aint size, int unit, MPIR_Info *info, MPIR_Comm *comm,
                              void *base_p, MPIR_Win **win_p)
{
    return MPIDIG_mpi_win_allocate(size, unit, info, comm, base_p, win_p);
}

int MPIDI_NM_mpi_win_allocate_shared(MPI_Aint size, int unit, MPIR_Info *info, MPIR_Comm *comm,
                                     void **base_p, MPIR_Win **win_p)
{
    return MPIDIG_mpi_win_allocate_shared(size, unit, info, comm, base_p, win_p);
}

int MPIDI_NM_mpi_win_free(MPIR_Win **win_p)
{
    return MPIDIG_mpi_win_free(win_p);
}

int MPIDI_NM_mpi_win_attach(MPIR_Win *win, void *base, MPI_Aint size)
{
    return MPIDIG_mpi_win_attach(win, base, size);
}

int MPIDI_NM_mpi_win_detach(MPIR_Win *win, const void *base)
{
    return MPIDIG_mpi_win_detach(win, base);
}

int MPIDI_NM_mpi_win_set_info(MPIR_Win *win, MPIR_Info *info)
{
    return MPIDIG_mpi_win_set_info(win, info);
}

int MPIDI_NM_mpi_win_get_info(MPIR_Win *win, MPIR_Info **info_p)
{
    return MPIDIG_mpi_win_get_info(win, info_p);
}

/* -- partitioned messages --------------------------------------------------------------------- */

int MPIDI_NM_mpi_psend_init(const void *buf, int parts, MPI_Aint count, MPI_Datatype type, int to,
                            int tag, MPIR_Comm *comm, MPIR_Info *info, MPIDI_av_entry_t *av,
                            MPIR_Request **req_p)
{
    return MPIDIG_mpi_psend_init(buf, parts, count, type, to, tag, comm, info, req_p);
}

int MPIDI_NM_mpi_precv_init(void *buf, int parts, MPI_Aint count, MPI_Datatype type, int from,
                            int tag, MPIR_Comm *comm, MPIR_Info *info, MPIDI_av_entry_t *av,
                            MPIR_Request **req_p)
{
    return MPIDIG_mpi_precv_init(buf, parts, count, type, from, tag, comm, info, req_p);
}

/* -- other jobs ------------------------------------------------------------------------------- */

static int no_other_jobs(void)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_SET(mpi_errno, MPI_ERR_SPAWN, "**ch4|dapl|jobs");
    return mpi_errno;
}

int MPIDI_NM_get_local_upids(MPIR_Comm *comm, int **len_p, char **upids_p)
{
    return no_other_jobs();
}

int MPIDI_NM_upids_to_gpids(int size, int *len, char *upids, uint64_t *gpids)
{
    return no_other_jobs();
}

int MPIDI_NM_dynamic_send(uint64_t gpid, int tag, const void *buf, int len, int timeout)
{
    return no_other_jobs();
}

int MPIDI_NM_dynamic_recv(int tag, void *buf, int len, int timeout)
{
    return no_other_jobs();
}
