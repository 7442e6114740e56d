/* SPDX-License-Identifier: MIT */
/*
 * pinned: two ranks exchange long messages, each from memory and into memory that is mapped for it
 * and unmapped afterwards, so that addresses come back with other pages. An adapter that reads or
 * writes the pages of before shows as a wrong word, and a registration that stays as pinned memory
 * (VmPin), of which there is as much at the end as after the first message. Each rank prints "all
 * right" after MPI_Finalize.
 */
#include <mpi.h>
#include <stdio.h>
#include <sys/mman.h>

enum { WORDS = 1 << 18, ROUNDS = 20 };

static int *mapped(void)
{
    return mmap(NULL, WORDS * sizeof(int), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0);
}

static void unmap(int *p)
{
    munmap(p, WORDS * sizeof(*p));
}

/* KiB of memory that is pinned by adapters; -1: the system does not say. */
static long pinned(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;

    while (f && fgets(line, sizeof(line), f))
        sscanf(line, "VmPin: %ld", &kib);
    if (f)
        fclose(f);
    return kib;
}

static int exchange(int rank, int round)
{
    int *out = mapped(), *in = mapped(), wrong = 0;

    for (int i = 0; i < WORDS; i++)
        out[i] = (round * 2 + rank) * WORDS + i;
    MPI_Sendrecv(out, WORDS, MPI_INT, !rank, round, in, WORDS, MPI_INT, !rank, round,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < WORDS; i++)
        wrong += in[i] != (round * 2 + !rank) * WORDS + i;
    unmap(in);
    unmap(out);
    return wrong;
}

int main(int argc, char **argv)
{
    long before, after;
    int rank, wrong;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    wrong = exchange(rank, 0);
    before = pinned();
    for (int round = 1; round <= ROUNDS; round++)
        wrong += exchange(rank, round);
    after = pinned();
    MPI_Finalize();
    if (wrong)
        printf("%d words WRONG\n", wrong);
    else if (before <= 0 || after != before)
        printf("pinned: %ld KiB, then %ld KiB\n", before, after);
    else
        printf("all right\n");
    return wrong != 0;
}
