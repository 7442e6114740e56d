/* SPDX-License-Identifier: MIT */
/*
 * pinned [MODE]: two ranks exchange long messages, 20 of them after the first. Between two messages
 * their memory is
 *
 *   unmapped     (without MODE) unmapped, and mapped anew, so that addresses have other pages
 *   discarded    the same, but its pages are discarded: MADV_DONTNEED
 *   kept         the same with its pages
 *
 * An adapter that reads or writes the pages of before shows as a wrong word. Memory pinned by
 * adapters (VmPin) must be as much at the end as after the first message. Rank 0 prints
 * "pinned: N KiB", what is pinned between two messages; each rank "all right" after MPI_Finalize.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { WORDS = 1 << 18, BYTES = WORDS * (int)sizeof(int), ROUNDS = 20 };

static int *out, *in;

static void map_both(void)
{
    out = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    in = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void unmap_both(void)
{
    munmap(in, BYTES);
    munmap(out, BYTES);
    map_both();
}

static void discard_both(void)
{
    madvise(in, BYTES, MADV_DONTNEED);
    madvise(out, BYTES, MADV_DONTNEED);
}

static void keep_both(void)
{
}

static const struct {
    const char *name;
    void (*between)(void);
} modes[] = {
    { "unmapped", unmap_both }, { "discarded", discard_both }, { "kept", keep_both },
};

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
    int wrong = 0;

    for (int i = 0; i < WORDS; i++)
        out[i] = (round * 2 + rank) * WORDS + i;
    MPI_Sendrecv(out, WORDS, MPI_INT, !rank, round, in, WORDS, MPI_INT, !rank, round,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < WORDS; i++)
        wrong += in[i] != (round * 2 + !rank) * WORDS + i;
    return wrong;
}

int main(int argc, char **argv)
{
    long before, after;
    int rank, wrong, mode = 2;

    MPI_Init(&argc, &argv);
    while (mode > 0 && strcmp(argc > 1 ? argv[1] : "unmapped", modes[mode].name))
        mode--;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    map_both();
    wrong = exchange(rank, 0);
    before = pinned();
    for (int round = 1; round <= ROUNDS; round++) {
        modes[mode].between();
        wrong += exchange(rank, round);
    }
    after = pinned();
    if (rank == 0)
        printf("pinned: %ld KiB\n", after);
    MPI_Finalize();
    if (wrong)
        printf("%d words WRONG\n", wrong);
    else if (before <= 0 || after != before)
        printf("%ld KiB were pinned, then %ld\n", before, after);
    else
        printf("all right\n");
    return wrong != 0;
}
