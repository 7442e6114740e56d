/* SPDX-License-Identifier: MIT */
/*
 * The first job: an ordinary MPI program that checks what it receives and prints how fast it came.
 * quickstart runs it on 4 ranks.
 *
 *   ring       every rank passes a growing pattern to the next one, all the way round
 *   allreduce  sums of known result, short and long
 *   ping-pong  ranks 0 and size-1: half the round trip, and the bandwidth of the longer messages
 *
 * Exit status 0 only when every byte was right.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING_MAX = 1 << 20,     /* bytes */
    PP_MAX = 4 << 20,       /* bytes */
    LIBVERSION_LINES = 4
};

/* A byte that depends on who sends, how much, and where in the message it stands. */
static unsigned char pattern(int rank, size_t len, size_t at)
{
    return (unsigned char)(rank * 31 + len * 7 + at * 13 + (at >> 8));
}

static void fill(unsigned char *buf, int rank, size_t len)
{
    for (size_t i = 0; i < len; i++)
        buf[i] = pattern(rank, len, i);
}

static long wrong(const unsigned char *buf, int rank, size_t len)
{
    long n = 0;

    for (size_t i = 0; i < len; i++)
        n += buf[i] != pattern(rank, len, i);
    return n;
}

static void *need(size_t len)
{
    void *p = malloc(len);

    if (!p) {
        fprintf(stderr, "mpi_first: out of memory (%zu bytes)\n", len);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return p;
}

/* Every rank to its right neighbour, lengths around the eager and rendezvous limits included. */
static long ring(int rank, int size)
{
    unsigned char *out = need(RING_MAX), *in = need(RING_MAX);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    long bad = 0;

    for (size_t len = 1; len <= RING_MAX; len = len * 5 / 2 + 1) {
        MPI_Status st;
        int got;

        fill(out, rank, len);
        memset(in, 0, len);
        MPI_Sendrecv(out, (int)len, MPI_BYTE, right, 7, in, RING_MAX, MPI_BYTE, left, 7,
                     MPI_COMM_WORLD, &st);
        MPI_Get_count(&st, MPI_BYTE, &got);
        bad += got != (int)len || wrong(in, left, len);
    }
    free(out);
    free(in);
    return bad;
}

/* Sum over ranks of (rank + i), whose result every rank knows. */
static long allreduce(int rank, int size)
{
    static const int counts[] = { 1, 1000, 100000 };
    long bad = 0;

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        int n = counts[c];
        double *in = need(n * sizeof(double)), *out = need(n * sizeof(double));

        for (int i = 0; i < n; i++)
            in[i] = rank + i;
        MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++)
            bad += out[i] != size * (size - 1) / 2.0 + (double)size * i;
        free(in);
        free(out);
    }
    return bad;
}

/* One size of the ping-pong of rank 0 and rank peer: seconds of half a round trip, on rank 0. */
static double ping_pong(unsigned char *buf, int len, int rounds, int rank, int peer)
{
    double start = 0;

    for (int i = -rounds / 10 - 1; i < rounds; i++) {
        if (i == 0)
            start = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(buf, len, MPI_BYTE, peer, 9, MPI_COMM_WORLD);
            MPI_Recv(buf, len, MPI_BYTE, peer, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buf, len, MPI_BYTE, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buf, len, MPI_BYTE, 0, 9, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - start) / (2.0 * rounds);
}

static long table(int rank, int size)
{
    unsigned char *buf = need(PP_MAX);
    long bad = 0;

    if (rank == 0)
        printf("%10s %12s %14s   ping-pong of ranks 0 and %d\n", "bytes", "latency us",
               "bandwidth MB/s", size - 1);
    for (int len = 1; len <= PP_MAX; len *= 4) {
        int rounds = len <= 4096 ? 1000 : len <= 65536 ? 300 : 30;

        if (rank == 0 || rank == size - 1) {
            fill(buf, 0, len);
            double t = ping_pong(buf, len, rounds, rank, size - 1);
            bad += wrong(buf, 0, len) != 0;
            if (rank == 0)
                printf("%10d %12.2f %14.1f\n", len, t * 1e6, len / t * 1e-6);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(buf);
    return bad;
}

/* The device line of the library's own description. */
static void print_library(int size)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING], *save = NULL;
    int len, lines = 0;

    MPI_Get_library_version(text, &len);
    for (char *line = strtok_r(text, "\n", &save); line && lines < LIBVERSION_LINES;
         line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "MPICH Version", 13) && strncmp(line, "MPICH Device", 12))
            continue;
        printf("%s\n", line);
        lines++;
    }
    printf("ranks:\t\t%d\n", size);
}

int main(int argc, char **argv)
{
    int rank, size;
    long bad[2], sum[2];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        print_library(size);
    bad[0] = ring(rank, size);
    bad[1] = allreduce(rank, size);
    if (size > 1)
        bad[0] += table(rank, size);
    MPI_Reduce(bad, sum, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("ring and ping-pong: %s, allreduce: %s\n", sum[0] ? "WRONG DATA" : "ok",
               sum[1] ? "WRONG DATA" : "ok");
    MPI_Bcast(sum, 2, MPI_LONG, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return sum[0] || sum[1];
}
