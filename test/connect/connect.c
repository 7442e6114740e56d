/* SPDX-License-Identifier: MIT */
/*
 * connect busy SECONDS     rank 1 computes so long before its first MPI call after MPI_Init; rank 0
 *                          sends to it at once and waits for the answer
 * connect gone             rank 1 ends before rank 0, which has nothing of it yet, sends to it
 * connect probe US         rank 1 asks with MPI_Iprobe, US microseconds of work apart, and prints
 *                          how many calls that took from when rank 0 may have sent
 * connect all              each rank sends to all others
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FAST_PROBES = 5000 };

static void rest(long us)
{
    struct timespec t = { us / 1000000, us % 1000000 * 1000 };

    nanosleep(&t, NULL);
}

static int answer(int got)
{
    return got * 7 + 1;
}

static void ask(void)
{
    int x = 41, back = 0;

    MPI_Send(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(&back, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf(back == answer(x) ? "the answer is right\n" : "WRONG answer\n");
}

static void serve(void)
{
    int x = 0, back;

    MPI_Recv(&x, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    back = answer(x);
    MPI_Send(&back, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
}

static void busy(int rank, long seconds)
{
    time_t until = time(NULL) + seconds;
    volatile double sum = 0;

    if (rank == 0)
        ask();
    if (rank != 1)
        return;
    while (time(NULL) < until)
        sum += 1;
    serve();
}

static void gone(int rank)
{
    if (rank == 1)
        _exit(0);
    rest(1000000);
    ask();
}

/* Rank 1 polls in vain for long, then makes no call while the request of rank 0 comes in. */
static void probe(int rank, long us)
{
    long calls = 0;
    int there = 0;

    if (rank == 0) {
        rest(1000000);
        ask();
    }
    if (rank != 1)
        return;
    for (int i = 0; i < FAST_PROBES && !there; i++)
        MPI_Iprobe(0, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (!there)
        rest(3000000);
    for (; !there; calls++) {
        MPI_Iprobe(0, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        rest(us);
    }
    printf("%ld calls\n", calls);
    serve();
}

static void all(int rank, int size)
{
    MPI_Request *r = calloc((size_t)size * 2, sizeof(*r));
    int *in = calloc((size_t)size, sizeof(*in)), wrong = 0;

    for (int i = 0; i < size; i++) {
        MPI_Irecv(&in[i], 1, MPI_INT, i, 2, MPI_COMM_WORLD, &r[2 * i]);
        MPI_Isend(&rank, 1, MPI_INT, i, 2, MPI_COMM_WORLD, &r[2 * i + 1]);
    }
    for (int i = 0; i < 2 * size; i++)
        MPI_Wait(&r[i], MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++)
        wrong += in[i] != i;
    printf(wrong ? "%d WRONG\n" : "all right\n", wrong);
    free(r);
    free(in);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    long number = argc > 2 ? atol(argv[2]) : 0;
    int rank, size;

    /* The launcher signals the survivors of a rank that has ended; the device asks it who that is,
     * unless the program has chosen otherwise. Here it is to find out by itself. */
    if (strcmp(mode, "gone") == 0)
        signal(SIGUSR1, SIG_IGN);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(mode, "busy") == 0)
        busy(rank, number);
    else if (strcmp(mode, "gone") == 0)
        gone(rank);
    else if (strcmp(mode, "probe") == 0)
        probe(rank, number);
    else if (strcmp(mode, "all") == 0)
        all(rank, size);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Finalize();
    return 0;
}
