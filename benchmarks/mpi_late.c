/* SPDX-License-Identifier: MIT */
/*
 * One rank that is late: an ordinary MPI program for any MPI, of 3 ranks, driven by
 * benchmarks/late.py.
 *
 *   mpi_late ROUNDS
 *
 * Ranks 1 and 2 send ROUNDS messages of 8 bytes each to rank 0, which receives one of each in turn.
 * Rank 1 begins when rank 2 has sent all of its messages. Rank 0 prints the time of a round as one
 * line of JSON: round_us, from the first message of rank 1 to the last one of rank 2. Exit status 0
 * only when every message was right.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void send_all(int rank, int rounds)
{
    if (rank == 1)
        MPI_Recv(NULL, 0, MPI_BYTE, 2, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (long long i = 0; i < rounds; i++)
        MPI_Send(&i, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    if (rank == 2)
        MPI_Send(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
}

/* Returns how many messages were wrong. */
static int receive_all(int rounds, double *us)
{
    double start = 0;
    int bad = 0;

    for (int i = 0; i < rounds; i++)
        for (int from = 1; from <= 2; from++) {
            long long got = -1;

            MPI_Recv(&got, 8, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (i == 0 && from == 1)
                start = MPI_Wtime();
            bad += got != i;
        }
    *us = (MPI_Wtime() - start) * 1e6;
    return bad;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1000, rank, bad = 0;
    double us;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank > 0)
        send_all(rank, rounds);
    else
        bad = receive_all(rounds, &us);
    if (rank == 0)
        printf("{\"round_us\": %.4f, \"wrong\": %d}\n", us / rounds, bad);
    MPI_Finalize();
    return bad > 0;
}
