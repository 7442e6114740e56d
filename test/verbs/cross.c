/* SPDX-License-Identifier: MIT */
/*
 * cross: first thing, each rank sends to all others, so that with wiring on demand the connection
 * requests of all pairs cross. A short body and a long one to each, in three rounds; every word is
 * checked. Each rank prints "all right" after MPI_Finalize.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHORT = 3, LONG = 30000, ROUNDS = 3 };

static int word(int round, int from, int to, int at)
{
    return ((round * 37 + from) * 41 + to) * 100003 + at;
}

static int exchange(int round, int rank, int size, int len)
{
    int *out = malloc((size_t)size * len * sizeof(*out)), wrong = 0, n = 0;
    int *in = calloc((size_t)size * len, sizeof(*in));
    MPI_Request *r = malloc((size_t)size * 2 * sizeof(MPI_Request));

    for (int i = 0; i < size * len; i++)
        out[i] = word(round, rank, i / len, i % len);
    for (int k = 0; k < size; k++) {
        if (k == rank)
            continue;
        MPI_Irecv(in + k * len, len, MPI_INT, k, round, MPI_COMM_WORLD, &r[n++]);
        MPI_Isend(out + k * len, len, MPI_INT, k, round, MPI_COMM_WORLD, &r[n++]);
    }
    for (int i = 0; i < n; i++)
        MPI_Wait(&r[i], MPI_STATUS_IGNORE);
    for (int i = 0; i < size * len; i++)
        wrong += i / len != rank && in[i] != word(round, i / len, rank, i % len);
    free(out);
    free(in);
    free(r);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, size, wrong = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < ROUNDS; round++)
        wrong += exchange(round, rank, size, SHORT) + exchange(round, rank, size, LONG);
    MPI_Finalize();
    printf(wrong ? "%d words WRONG\n" : "all right\n", wrong);
    return wrong != 0;
}
