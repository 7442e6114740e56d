/* SPDX-License-Identifier: MIT */
/*
 * What a one-sided operation of rank 0 on rank 1 takes, in one number.
 *
 *   mpi_rma TEST BYTES COUNT
 *
 *   put, get, acc        an operation and its flush (us); acc: MPI_SUM of longs
 *   fop, cas             MPI_Fetch_and_op (MPI_SUM), MPI_Compare_and_swap of a long, and their
 *                        flush (us)
 *   put_bw, get_bw, acc_bw, fop_bw, cas_bw   16 operations and one flush (MB/s, 10^6)
 *   put_busy, get_busy   the longest of them while rank 1 computes for 2 s and calls no MPI (us)
 *
 * All in one lock_all epoch. COUNT operations, or sixteens of them. But in put_busy and get_busy
 * rank 1 waits in a barrier, where it makes progress.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 16, BUSY_S = 2 };

static int rank, bytes;
static long count;
static MPI_Win win;
static char *local;              /* WINDOW operations */

static void put(int i)
{
    MPI_Put(local + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 1, (MPI_Aint)i * bytes, bytes,
            MPI_BYTE, win);
}

static void get(int i)
{
    MPI_Get(local + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 1, (MPI_Aint)i * bytes, bytes,
            MPI_BYTE, win);
}

static void accumulate(int i)
{
    int n = bytes / (int)sizeof(long);

    MPI_Accumulate(local + (size_t)i * (size_t)bytes, n, MPI_LONG, 1, (MPI_Aint)i * bytes, n,
                   MPI_LONG, MPI_SUM, win);
}

static void fetch_and_op(int i)
{
    static long one = 1;

    MPI_Fetch_and_op(&one, local + (size_t)i * (size_t)bytes, MPI_LONG, 1, 0, MPI_SUM, win);
}

static void compare_and_swap(int i)
{
    static long one = 1, zero;

    MPI_Compare_and_swap(&one, &zero, local + (size_t)i * (size_t)bytes, MPI_LONG, 1, 0, win);
}

static const struct test {
    const char *name;
    void (*op)(int i);
    int window, busy;
} tests[] = {
    { "put", put, 1, 0 },         { "get", get, 1, 0 },
    { "acc", accumulate, 1, 0 },  { "fop", fetch_and_op, 1, 0 },
    { "cas", compare_and_swap, 1, 0 },
    { "put_bw", put, WINDOW, 0 }, { "get_bw", get, WINDOW, 0 },
    { "acc_bw", accumulate, WINDOW, 0 }, { "fop_bw", fetch_and_op, WINDOW, 0 },
    { "cas_bw", compare_and_swap, WINDOW, 0 },
    { "put_busy", put, 1, 1 },    { "get_busy", get, 1, 1 },
};

static const struct test *find(const char *name)
{
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        if (strcmp(tests[i].name, name) == 0)
            return &tests[i];
    return NULL;
}

/* Seconds of n windows; *longest_p: of the longest. */
static double run(const struct test *t, long n, double *longest_p)
{
    double begin = MPI_Wtime(), before = begin, now = begin;

    *longest_p = 0;
    for (long k = 0; k < n; k++, before = now) {
        for (int i = 0; i < t->window; i++)
            t->op(i);
        MPI_Win_flush(1, win);
        now = MPI_Wtime();
        *longest_p = now - before > *longest_p ? now - before : *longest_p;
    }
    return now - begin;
}

static void compute(double seconds)
{
    volatile double x = 1;

    for (double end = MPI_Wtime() + seconds; MPI_Wtime() < end;)
        for (int i = 0; i < 10000; i++)
            x = x * 1.0000001;
}

static void measure(const struct test *t)
{
    double seconds = 0, longest = 0;

    if (rank == 0)               /* the lock, connections, registrations */
        run(t, count / 10 + 2, &longest);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1 && t->busy)
        compute(BUSY_S);
    if (rank == 0 && t->busy)
        compute(0.01);           /* rank 1 has left the barrier */
    if (rank == 0)
        seconds = run(t, count, &longest);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && t->window > 1)
        printf("%.4f\n", (double)bytes * (double)(count * t->window) / seconds * 1e-6);
    else if (rank == 0)
        printf("%.4f\n", (t->busy ? longest : seconds / (double)count) * 1e6);
}

int main(int argc, char **argv)
{
    const struct test *t = argc == 4 ? find(argv[1]) : NULL;
    char *memory;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bytes = t ? atoi(argv[2]) : 0;
    count = t ? atol(argv[3]) : 0;
    local = calloc(WINDOW, bytes > 0 ? (size_t)bytes : 1);
    if (!t || !local || bytes < (int)sizeof(long) || bytes % (int)sizeof(long) || count < 1) {
        fprintf(stderr, "usage: mpi_rma TEST BYTES COUNT (a multiple of %zu bytes)\n",
                sizeof(long));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Win_allocate((MPI_Aint)bytes * WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, (size_t)bytes * WINDOW);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    measure(t);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    free(local);
    MPI_Finalize();
    return 0;
}
