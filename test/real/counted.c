/* SPDX-License-Identifier: MIT */
/*
 * What a tool of MPI's profiling interface sees.
 *
 *   counted           on 2 ranks: 7 calls of MPI_Send and 7 of MPI_Recv by rank 0, and the answers
 *   -DTOOL -shared    the tool, preloaded: counts these calls and prints at MPI_Finalize
 *                     `rank R: tool SENDS RECVS`
 */
#include "../lines.h"

#include <mpi.h>
#include <stdio.h>

#ifdef TOOL

static int sends, recvs;

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buf, count, type, dest, tag, comm);
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    recvs++;
    return PMPI_Recv(buf, count, type, source, tag, comm, status);
}

int MPI_Finalize(void)
{
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("rank %d: tool %d %d\n", rank, sends, recvs);
    fflush(stdout);
    return PMPI_Finalize();
}

#else

enum { MESSAGES = 7 };

int main(int argc, char **argv)
{
    int rank, got = 0;

    MPI_Init(&argc, &argv);
    print_whole_lines();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < MESSAGES; i++) {
        if (rank == 0)
            MPI_Send(&i, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(&got, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(&got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        if (got != i)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}

#endif
