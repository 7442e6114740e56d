/* SPDX-License-Identifier: MIT */
/*
 * The time of a collective operation: an ordinary MPI program for any MPI, driven by
 * benchmarks/colls.py.
 *
 *   mpi_colls OPERATION BYTES ROUNDS
 *
 * OPERATION is bcast, reduce, allreduce (sums of doubles), allgather, alltoall or sendrecv (to the
 * next rank, from the one before), of BYTES from one rank to another, a multiple of 8. It is made
 * ROUNDS times one after the other, that SLICES times, after as many that are not measured. Rank 0
 * prints the median of the slices, us of one operation, of the slowest rank. Exit status 0 only
 * when the first and last number of each result were right.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICES = 7 };

struct job {
    int rank, size;
    int n;                       /* doubles from one rank to another */
    double *mine, *got;
};

static void set(double *numbers, int n, double x)
{
    numbers[0] = numbers[n - 1] = x;
}

static bool are(const double *numbers, int n, double x)
{
    return numbers[0] == x && numbers[n - 1] == x;
}

static double sum_of(const struct job *j, int round)
{
    return (double)j->size * round + j->size * (j->size - 1) / 2.0;
}

static bool bcast(struct job *j, int round)
{
    if (j->rank == 0)
        set(j->got, j->n, round);
    MPI_Bcast(j->got, j->n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return are(j->got, j->n, round);
}

static bool reduce(struct job *j, int round)
{
    set(j->mine, j->n, j->rank + round);
    MPI_Reduce(j->mine, j->got, j->n, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return j->rank != 0 || are(j->got, j->n, sum_of(j, round));
}

static bool allreduce(struct job *j, int round)
{
    set(j->mine, j->n, j->rank + round);
    MPI_Allreduce(j->mine, j->got, j->n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return are(j->got, j->n, sum_of(j, round));
}

static bool allgather(struct job *j, int round)
{
    bool right = true;

    set(j->mine, j->n, j->rank + round);
    MPI_Allgather(j->mine, j->n, MPI_DOUBLE, j->got, j->n, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < j->size; i++)
        right = right && are(j->got + (size_t)i * (size_t)j->n, j->n, i + round);
    return right;
}

static bool alltoall(struct job *j, int round)
{
    bool right = true;

    for (int i = 0; i < j->size; i++)
        set(j->mine + (size_t)i * (size_t)j->n, j->n, j->rank + i + round);
    MPI_Alltoall(j->mine, j->n, MPI_DOUBLE, j->got, j->n, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < j->size; i++)
        right = right && are(j->got + (size_t)i * (size_t)j->n, j->n, i + j->rank + round);
    return right;
}

static bool sendrecv(struct job *j, int round)
{
    int next = (j->rank + 1) % j->size, before = (j->rank + j->size - 1) % j->size;

    set(j->mine, j->n, j->rank + round);
    MPI_Sendrecv(j->mine, j->n, MPI_DOUBLE, next, 0, j->got, j->n, MPI_DOUBLE, before, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return are(j->got, j->n, before + round);
}

static const struct operation {
    const char *name;
    bool (*once)(struct job *j, int round);
} operations[] = {
    { "bcast", bcast }, { "reduce", reduce }, { "allreduce", allreduce },
    { "allgather", allgather }, { "alltoall", alltoall }, { "sendrecv", sendrecv },
};

static const struct operation *operation_of(const char *name)
{
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}

/* In us, of the slowest rank; known to rank 0. */
static double slice(const struct operation *o, struct job *j, int rounds, int *wrong)
{
    double start, us, slowest = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (int i = 0; i < rounds; i++)
        *wrong += !o->once(j, i);
    us = (MPI_Wtime() - start) * 1e6 / rounds;
    MPI_Reduce(&us, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return slowest;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Memory of numbers that have been written. */
static double *numbers(size_t n)
{
    double *p = malloc(n * sizeof(*p));

    for (size_t i = 0; p && i < n; i++)
        p[i] = (double)i;
    return p;
}

int main(int argc, char **argv)
{
    const struct operation *o = argc == 4 ? operation_of(argv[1]) : NULL;
    int bytes = argc == 4 ? atoi(argv[2]) : 0, rounds = argc == 4 ? atoi(argv[3]) : 0;
    int wrong = 0, all_wrong = 0;
    double us[SLICES];
    struct job j;

    if (!o || bytes < 8 || rounds < 1)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &j.size);
    j.n = bytes / 8;
    j.mine = numbers((size_t)j.n * (size_t)j.size);
    j.got = numbers((size_t)j.n * (size_t)j.size);
    if (!j.mine || !j.got)
        MPI_Abort(MPI_COMM_WORLD, 1);
    slice(o, &j, rounds, &wrong);
    for (int i = 0; i < SLICES; i++)
        us[i] = slice(o, &j, rounds, &wrong);
    qsort(us, SLICES, sizeof(us[0]), by_value);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (j.rank == 0)
        printf("%.4f\n", us[SLICES / 2]);
    free(j.mine);
    free(j.got);
    MPI_Finalize();
    return all_wrong != 0;
}
