/* SPDX-License-Identifier: MIT */
#include "kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char class_names[CLASSES + 1] = "SWA";

/* One line from rank 0, then the job ends in order. */
_Noreturn static void refuse(const struct kernel *k, const char *why)
{
    if (k->rank == 0)
        fprintf(stderr, "%s: %s\n", k->name, why);
    MPI_Finalize();
    exit(1);
}

void kernel_begin(struct kernel *k, const char *name, int argc, char **argv)
{
    const char *found = NULL;

    *k = (struct kernel){ .name = name };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &k->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &k->ranks);
    if (argc >= 2 && strlen(argv[1]) == 1)
        found = strchr(class_names, argv[1][0]);
    if (!found || argc > 3 || (argc == 3 && strcmp(argv[2], "spoil")))
        refuse(k, "the arguments are a class, S, W or A, and perhaps the word spoil");
    k->size = (enum kernel_class)(found - class_names);
    k->spoil = argc == 3;
}

void kernel_need_at_most(const struct kernel *k, int most)
{
    char why[120];

    if (k->ranks <= most)
        return;
    snprintf(why, sizeof(why), "class %c is for at most %d ranks, not %d; take fewer",
             class_names[k->size], most, k->ranks);
    refuse(k, why);
}

void kernel_need_power_of_two(const struct kernel *k, int most)
{
    char why[120];

    kernel_need_at_most(k, most);
    if ((k->ranks & (k->ranks - 1)) == 0)
        return;
    snprintf(why, sizeof(why), "the number of ranks must be a power of two, up to %d, not %d",
             most, k->ranks);
    refuse(k, why);
}

void kernel_start(struct kernel *k)
{
    MPI_Barrier(MPI_COMM_WORLD);
    k->started = MPI_Wtime();
}

void kernel_stop(struct kernel *k)
{
    double mine = MPI_Wtime() - k->started;

    MPI_Allreduce(&mine, &k->seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

int kernel_close(double got, double want, double tolerance)
{
    return fabs(got - want) <= tolerance * fabs(want);    /* false for NaN */
}

int kernel_spoils(const struct kernel *k)
{
    return k->spoil && k->rank == k->ranks - 1;
}

int kernel_end(const struct kernel *k, int verified, double ops)
{
    MPI_Bcast(&verified, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (k->rank == 0)
        printf("%s %c %d %.6f %.2f %s\n", k->name, class_names[k->size], k->ranks, k->seconds,
               ops / k->seconds * 1e-6, verified ? "VERIFIED" : "FAILED");
    MPI_Finalize();
    return verified ? 0 : 1;
}

void *kernel_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p) {
        fprintf(stderr, "kernel: out of memory (%zu times %zu bytes); take a smaller class\n", n,
                size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return p;
}

int64_t kernel_share(int64_t n, int rank, int ranks)
{
    return n * rank / ranks;
}

uint64_t lcg_skip(uint64_t seed, uint64_t n)
{
    uint64_t x = seed;

    for (uint64_t power = LCG_FACTOR; n; n >>= 1, power = power * power & LCG_MASK)
        if (n & 1)
            x = x * power & LCG_MASK;
    return x;
}
