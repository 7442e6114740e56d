/* SPDX-License-Identifier: MIT */
/*
 * EP, "embarrassingly parallel": 2^m pairs of uniform numbers become pairs of Gaussian deviates,
 * which are summed and counted in square rings. Ranks talk only to add up.
 */
#include "kernel.h"
#include <math.h>
#include <stdio.h>

enum { SEED = 271828183, RINGS = 10 };

static const struct {
    int m;
    double sx, sy;
} problems[CLASSES] = {
    [CLASS_S] = { 24, -3.247834652034740e3, -6.958407078382297e3 },
    [CLASS_W] = { 25, -2.863319731645753e3, -6.320053679109499e3 },
    [CLASS_A] = { 28, -4.295875165629892e3, -1.580732573678431e4 },
};

struct sums {
    double x, y;
    double rings[RINGS];    /* pairs by max(|x|, |y|), cut to an integer */
};

/* The pairs [from, to) of the sequence. */
static void tally(struct sums *s, int64_t from, int64_t to)
{
    uint64_t random = lcg_skip(SEED, 2 * (uint64_t)from);

    for (int64_t i = from; i < to; i++) {
        double x = 2 * lcg_uniform(&random) - 1, y = 2 * lcg_uniform(&random) - 1;
        double t = x * x + y * y;

        if (t > 1)
            continue;
        t = sqrt(-2 * log(t) / t);
        x *= t;
        y *= t;
        s->x += x;
        s->y += y;
        s->rings[(int)fmax(fabs(x), fabs(y))]++;
    }
}

int main(int argc, char **argv)
{
    struct kernel k;
    struct sums mine = { 0 }, all = { 0 };
    double pairs = 0;
    int64_t n;
    int ok;

    kernel_begin(&k, "ep", argc, argv);
    n = INT64_C(1) << problems[k.size].m;
    MPI_Reduce(&mine, &all, sizeof(mine) / sizeof(double), MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    kernel_start(&k);
    tally(&mine, kernel_share(n, k.rank, k.ranks), kernel_share(n, k.rank + 1, k.ranks));
    if (kernel_spoils(&k))
        mine.y += 1e-3;
    MPI_Reduce(&mine, &all, sizeof(mine) / sizeof(double), MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    kernel_stop(&k);
    for (int i = 0; i < RINGS; i++)
        pairs += all.rings[i];
    if (k.rank == 0)
        printf("ep: sums %.12e and %.12e of %.0f pairs, published %.12e and %.12e\n", all.x, all.y,
               pairs, problems[k.size].sx, problems[k.size].sy);
    ok = kernel_close(all.x, problems[k.size].sx, 1e-8) &&
        kernel_close(all.y, problems[k.size].sy, 1e-8);
    return kernel_end(&k, ok, 2.0 * (double)n);
}
