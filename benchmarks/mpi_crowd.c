/* SPDX-License-Identifier: MIT */
/*
 * What waiting costs where ranks share cores: an ordinary MPI program for any MPI, driven by
 * benchmarks/crowd.py.
 *
 *   mpi_crowd [ROUNDS]
 *
 * Each operation is made ROUNDS (100) times, after as many that are not measured. Rank 0 prints one
 * line of JSON:
 *
 *   NAME_us         time of one, of the slowest rank
 *   NAME_switches   context switches of a rank in one, the mean of the ranks
 *
 * where NAME is ring (MPI_Sendrecv with both neighbours), all_to_all (8 bytes to each other rank,
 * everything under way at once), barrier or allreduce (a sum of one double). Exit status 0 only
 * when every result was right.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

struct job {
    int rank, size;
    MPI_Request *requests;
    long long *got;
};

static bool ring(struct job *j)
{
    int left = (j->rank + j->size - 1) % j->size;
    long long mine = j->rank, got = -1;

    MPI_Sendrecv(&mine, 8, MPI_BYTE, (j->rank + 1) % j->size, 0, &got, 8, MPI_BYTE, left, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return got == left;
}

static bool all_to_all(struct job *j)
{
    long long mine = j->rank;
    bool right = true;
    int n = 0;

    for (int step = 1; step < j->size; step++) {
        int from = (j->rank + j->size - step) % j->size;

        MPI_Irecv(&j->got[from], 8, MPI_BYTE, from, 0, MPI_COMM_WORLD, &j->requests[n++]);
    }
    for (int step = 1; step < j->size; step++)
        MPI_Isend(&mine, 8, MPI_BYTE, (j->rank + step) % j->size, 0, MPI_COMM_WORLD,
                  &j->requests[n++]);
    while (n > 0)
        MPI_Wait(&j->requests[--n], MPI_STATUS_IGNORE);
    for (int i = 0; i < j->size; i++)
        right = right && (i == j->rank || j->got[i] == i);
    return right;
}

static bool barrier(struct job *j)
{
    (void)j;
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS;
}

static bool allreduce(struct job *j)
{
    double mine = j->rank, sum = 0;

    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum == j->size * (j->size - 1) / 2.0;
}

static const struct operation {
    const char *name;
    bool (*once)(struct job *j);
} operations[] = {
    { "ring", ring }, { "all_to_all", all_to_all }, { "barrier", barrier },
    { "allreduce", allreduce },
};
enum { OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

static double switches(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_nvcsw + u.ru_nivcsw);
}

/* How many were wrong; *us and *switched are of one, of this rank. */
static int repeated(const struct operation *o, struct job *j, int rounds, double *us,
                    double *switched)
{
    double start, before;
    int wrong = 0;

    for (int i = 0; i < rounds; i++)
        wrong += !o->once(j);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    before = switches();
    for (int i = 0; i < rounds; i++)
        wrong += !o->once(j);
    *us = (MPI_Wtime() - start) * 1e6 / rounds;
    *switched = (switches() - before) / rounds;
    return wrong;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100, wrong = 0, all_wrong;
    struct job j;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &j.size);
    j.requests = malloc(2 * (size_t)j.size * sizeof(*j.requests));
    j.got = malloc((size_t)j.size * sizeof(*j.got));
    for (int i = 0; i < OPERATIONS; i++) {
        double us, switched, slowest, sum;

        wrong += repeated(&operations[i], &j, rounds, &us, &switched);
        MPI_Reduce(&us, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(&switched, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (j.rank == 0)
            printf("%s\"%s_us\": %.3f, \"%s_switches\": %.2f", i ? ", " : "{", operations[i].name,
                   slowest, operations[i].name, sum / j.size);
    }
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (j.rank == 0)
        printf("}\n");
    free(j.requests);
    free(j.got);
    MPI_Finalize();
    return all_wrong != 0;
}
