/* SPDX-License-Identifier: MIT */
/*
 * rma: puts, gets and accumulates between all ranks, in windows of their own memory and of MPI's,
 * by fences, by locks, and by post and start. Every word is checked. Each rank prints "all right"
 * after MPI_Finalize.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 20000 };          /* of each rank in each window: short and long messages */

static int rank, size;

static int word(int from, int to, int at)
{
    return (from * 41 + to) * 100003 + at;
}

/* Each rank's part k is put there by rank k. */
static int puts_between_fences(MPI_Win win, int *mem, int *out, int n)
{
    int wrong = 0;

    MPI_Win_fence(0, win);
    for (int to = 0; to < size; to++) {
        for (int i = 0; i < n; i++)
            out[to * n + i] = word(rank, to, i);
        MPI_Put(out + to * n, n, MPI_INT, to, (MPI_Aint)rank * n, n, MPI_INT, win);
    }
    MPI_Win_fence(0, win);
    for (int i = 0; i < size * n; i++)
        wrong += mem[i] != word(i / n, rank, i % n);
    MPI_Barrier(MPI_COMM_WORLD);
    return wrong;
}

static int gets_by_locks(MPI_Win win, int *in, int n)
{
    int wrong = 0;

    for (int from = 0; from < size; from++) {
        MPI_Win_lock(MPI_LOCK_SHARED, from, 0, win);
        MPI_Get(in, n, MPI_INT, from, (MPI_Aint)rank * n, n, MPI_INT, win);
        MPI_Win_unlock(from, win);
        for (int i = 0; i < n; i++)
            wrong += in[i] != word(rank, from, i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return wrong;
}

/* All ranks add to the same words; each word's sum does not depend on their order. */
static int sums_by_locks(MPI_Win win, int *mem, int *out, int n)
{
    int wrong = 0;

    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    for (int i = 0; i < n; i++)
        mem[i] = 0;
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n; i++)
        out[i] = (rank + 1) * (i % 7);
    for (int to = 0; to < size; to++) {
        MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
        MPI_Accumulate(out, n, MPI_INT, to, 0, n, MPI_INT, MPI_SUM, win);
        MPI_Win_unlock(to, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    for (int i = 0; i < n; i++)
        wrong += mem[i] != size * (size + 1) / 2 * (i % 7);
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
    return wrong;
}

static int puts_by_post_and_start(MPI_Win win, int *mem, int *out, int n)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size, wrong = 0;
    MPI_Group all, to, from;

    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &next, &to);
    MPI_Group_incl(all, 1, &last, &from);
    for (int i = 0; i < n; i++)
        out[i] = word(rank, next, i);
    MPI_Win_post(from, 0, win);
    MPI_Win_start(to, 0, win);
    MPI_Put(out, n, MPI_INT, next, 0, n, MPI_INT, win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    for (int i = 0; i < n; i++)
        wrong += mem[i] != word(last, rank, i);
    MPI_Group_free(&all);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Barrier(MPI_COMM_WORLD);
    return wrong;
}

static int all(MPI_Win win, int *mem)
{
    int *buf = malloc((size_t)size * WORDS * sizeof(*buf)), wrong = 0;

    for (int n = 1; n <= WORDS; n *= 20) {
        wrong += puts_between_fences(win, mem, buf, n);
        wrong += gets_by_locks(win, buf, n);
        wrong += sums_by_locks(win, mem, buf, n);
        wrong += puts_by_post_and_start(win, mem, buf, n);
    }
    free(buf);
    return wrong;
}

int main(int argc, char **argv)
{
    MPI_Aint bytes;
    int *mem, wrong;
    MPI_Win win;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bytes = (MPI_Aint)size * WORDS * (MPI_Aint)sizeof(*mem);
    mem = malloc((size_t)bytes);
    MPI_Win_create(mem, bytes, sizeof(*mem), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    wrong = all(win, mem);
    MPI_Win_free(&win);
    free(mem);
    MPI_Win_allocate(bytes, sizeof(*mem), MPI_INFO_NULL, MPI_COMM_WORLD, &mem, &win);
    wrong += all(win, mem);
    MPI_Win_free(&win);
    MPI_Finalize();
    printf(wrong ? "%d words WRONG\n" : "all right\n", wrong);
    return wrong != 0;
}
