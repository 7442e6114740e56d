/* SPDX-License-Identifier: MIT */
/*
 * What programs do most with short messages, for tools/hot-functions: `hot PHASE ROUNDS`. After a
 * few rounds all others are made by rounds(), with which a profiler begins. Without arguments it
 * prints the phases.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, WARM = 50 };

static int rank, size;
static double out[MOST], in[MOST];
static MPI_Request requests[2 * MOST];
static MPI_Status statuses[2 * MOST];

static void round_trip(void)
{
    int other = rank ^ 1;

    if (rank % 2 == 0)
        MPI_Send(out, 1, MPI_DOUBLE, other, 0, MPI_COMM_WORLD);
    MPI_Recv(in, 1, MPI_DOUBLE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank % 2 == 1)
        MPI_Send(out, 1, MPI_DOUBLE, other, 0, MPI_COMM_WORLD);
}

static void neighbours(void)
{
    MPI_Sendrecv(out, 1, MPI_DOUBLE, (rank + 1) % size, 0, in, 1, MPI_DOUBLE,
                 (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void many(void)
{
    for (int i = 0; i < size; i++) {
        MPI_Irecv(&in[i], 1, MPI_DOUBLE, i, 1, MPI_COMM_WORLD, &requests[i]);
        MPI_Isend(&out[i], 1, MPI_DOUBLE, i, 1, MPI_COMM_WORLD, &requests[size + i]);
    }
    MPI_Waitall(2 * size, requests, statuses);
}

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void allreduce(void)
{
    MPI_Allreduce(out, in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce_bcast(void)
{
    MPI_Reduce(out, in, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Bcast(in, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

static void gather(void)
{
    MPI_Allgather(out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, MPI_COMM_WORLD);
}

static void alltoall(void)
{
    MPI_Alltoall(out, 1, MPI_DOUBLE, in, 1, MPI_DOUBLE, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    void (*round)(void);
} phases[] = {
    { "round_trip", round_trip }, { "neighbours", neighbours }, { "many", many },
    { "barrier", barrier }, { "allreduce", allreduce }, { "reduce_bcast", reduce_bcast },
    { "gather", gather }, { "alltoall", alltoall },
};

__attribute__((noinline)) void rounds(void (*round)(void), int n);
void rounds(void (*round)(void), int n)
{
    for (int i = 0; i < n; i++)
        round();
}

int main(int argc, char **argv)
{
    const size_t n = sizeof(phases) / sizeof(phases[0]);

    for (size_t i = 0; argc < 3 && i < n; i++)
        puts(phases[i].name);
    if (argc < 3)
        return 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(argv[1], phases[i].name) != 0)
            continue;
        for (int warm = 0; warm < WARM; warm++)
            phases[i].round();
        rounds(phases[i].round, atoi(argv[2]));
    }
    MPI_Finalize();
    return 0;
}
