/* SPDX-License-Identifier: MIT */
/*
 * What the five kernels share. Each is an MPI program after a problem of the report "The NAS
 * Parallel Benchmarks" (RNR-94-007): ep, is, cg, ft, mg. Class W, between the report's sample size
 * S and its class A, and its results were published later.
 *
 *   KERNEL S|W|A [spoil]
 *
 * main() of a kernel: kernel_begin(), its input, an untimed warm-up, kernel_start(), the problem,
 * kernel_stop(), kernel_end() with the verdict. The last line on stdout is for programs:
 *
 *   KERNEL CLASS RANKS SECONDS MOPS VERIFIED|FAILED
 *
 * Exit status 0 only when the result is the published one. With `spoil` one number is made wrong on
 * the way, as a device that delivers a wrong byte would: the verdict must be FAILED.
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <mpi.h>

enum kernel_class { CLASS_S, CLASS_W, CLASS_A, CLASSES };

struct kernel {
    const char *name;
    enum kernel_class size;
    int rank, ranks;
    int spoil;              /* one number of the last rank is to be made wrong */
    double started, seconds;
};

/* Enters MPI and reads the arguments; on wrong ones says so in one line and ends the job. */
void kernel_begin(struct kernel *k, const char *name, int argc, char **argv);

/* Ends the job with one line unless it has a power of two of ranks, at most `most`. */
void kernel_need_power_of_two(const struct kernel *k, int most);

/* Ends the job with one line if it has more than `most` ranks. */
void kernel_need_at_most(const struct kernel *k, int most);

/* The timed part, from when all ranks are there until the last one has finished. */
void kernel_start(struct kernel *k);
void kernel_stop(struct kernel *k);

/* Is `got` as near to `want` as the relative `tolerance` asks? Not if it is no number. */
int kernel_close(double got, double want, double tolerance);

/* Is it this rank that makes a number wrong? */
int kernel_spoils(const struct kernel *k);

/*
 * Prints the verdict and leaves MPI; `verified` and `ops` (operations as the report counts them)
 * count on rank 0. Returns the exit status, the same on all ranks.
 */
int kernel_end(const struct kernel *k, int verified, double ops);

/* n * size bytes of zeros; without memory the job ends with one line. */
void *kernel_alloc(size_t n, size_t size);

/* The first of `n` things that is mine when they are dealt out evenly; of rank + 1: my end. */
int64_t kernel_share(int64_t n, int rank, int ranks);

/*
 * The report's random numbers: x_k+1 = 5^13 x_k mod 2^46, and 2^-46 x_k is the number in
 * (0, 1). The state is the x_k of the last number drawn.
 */
#define LCG_FACTOR UINT64_C(1220703125)         /* 5^13 */
#define LCG_MASK ((UINT64_C(1) << 46) - 1)

/* Draws the next number's x. The product mod 2^64 is enough: 2^46 divides 2^64. */
static inline uint64_t lcg_next(uint64_t *x)
{
    return *x = *x * LCG_FACTOR & LCG_MASK;
}

static inline double lcg_uniform(uint64_t *x)
{
    return (double)lcg_next(x) * 0x1p-46;
}

/* The state after n numbers from `seed`, in log n steps. */
uint64_t lcg_skip(uint64_t seed, uint64_t n);

#endif
