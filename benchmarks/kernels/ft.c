/* SPDX-License-Identifier: MIT */
/*
 * FT, a diffusion equation by Fourier transforms: a random field in three dimensions is
 * transformed, and for each of some times its waves are damped and transformed back. Ranks have
 * slabs of z; for the transform along z all exchange with all, and then they have slabs of y.
 */
#include "kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LINES transforms are done at once, so that memory is read in long runs. */
enum { SEED = 314159265, TIMES = 6, POINTS = 1024, LINES = 16, MAX_RANKS = 32 };

static const double alpha = 1e-6, pi = 3.14159265358979323846;

struct complex {
    double re, im;
};

static const struct problem {
    int nx, ny, nz;
    struct complex sums[TIMES];
} problems[CLASSES] = {
    [CLASS_S] = { 64, 64, 64, {
        { 5.546087004964e+02, 4.845363331978e+02 }, { 5.546385409189e+02, 4.865304269511e+02 },
        { 5.546148406171e+02, 4.883910722336e+02 }, { 5.545423607415e+02, 4.901273169046e+02 },
        { 5.544255039624e+02, 4.917475857993e+02 }, { 5.542683411902e+02, 4.932597244941e+02 } } },
    [CLASS_W] = { 128, 128, 32, {
        { 5.673612178944e+02, 5.293246849175e+02 }, { 5.631436885271e+02, 5.282149986629e+02 },
        { 5.594024089970e+02, 5.270996558037e+02 }, { 5.560698047020e+02, 5.260027904925e+02 },
        { 5.530898991250e+02, 5.249400845633e+02 }, { 5.504159734538e+02, 5.239212247086e+02 } } },
    [CLASS_A] = { 256, 256, 128, {
        { 5.046735008193e+02, 5.114047905510e+02 }, { 5.059412319734e+02, 5.098809666433e+02 },
        { 5.069376896287e+02, 5.098144042213e+02 }, { 5.077892868474e+02, 5.101336130759e+02 },
        { 5.085233095391e+02, 5.104914655194e+02 }, { 5.091487099959e+02, 5.107917842803e+02 } } },
};

/*
 * A field is stored by z, y, x in slabs of z, [nz / ranks][ny][nx], or in slabs of y,
 * [nz][ny / ranks][nx]; both have `mine` numbers.
 */
struct ft {
    struct kernel k;
    const struct problem *is;
    size_t mine;
    struct complex *waves;      /* the field's transform, in slabs of y */
    struct complex *field;      /* what is being transformed */
    struct complex *parcel;     /* the same on its way between ranks */
    double *damping;            /* of each wave, from one time to the next */
    struct complex *lines;      /* LINES lines of the longest axis, twice */
    struct complex *roots;      /* exp(-2 pi i j / longest), j < longest / 2 */
    int longest;
};

/* -- one axis --------------------------------------------------------------------------------- */

/* b = (a0 + a1) and (a0 - a1) w for a run of `n` pairs. */
static void butterflies(const struct complex *a0, const struct complex *a1, struct complex *sum,
                        struct complex *turned, struct complex w, int n)
{
    for (int i = 0; i < n; i++) {
        double re = a0[i].re - a1[i].re, im = a0[i].im - a1[i].im;

        sum[i].re = a0[i].re + a1[i].re;
        sum[i].im = a0[i].im + a1[i].im;
        turned[i].re = re * w.re - im * w.im;
        turned[i].im = re * w.im + im * w.re;
    }
}

/*
 * Stockham's transform of LINES lines of n numbers, lying [n][LINES] in f->lines: each of its log n
 * passes goes from one half of f->lines to the other and leaves the numbers in order. Returns where
 * the result is. `sign` is that of the exponent.
 */
static struct complex *transform_lines(const struct ft *f, int n, int sign)
{
    struct complex *from = f->lines, *to = f->lines + (size_t)f->longest * LINES, *last;

    for (int half = n / 2, run = LINES; half >= 1; half /= 2, run *= 2) {
        for (int j = 0; j < half; j++) {
            struct complex w = f->roots[j * (f->longest / 2 / half)];

            w.im *= -sign;
            butterflies(from + j * run, from + (j + half) * run, to + 2 * j * run,
                        to + (2 * j + 1) * run, w, run);
        }
        last = from;
        from = to;
        to = last;
    }
    return from;
}

/* The field seen as [outer][n][inner]: transforms it along n. */
static void transform_axis(const struct ft *f, struct complex *field, int n, size_t inner, int sign)
{
    for (size_t line = 0; line < f->mine / (size_t)n; line += LINES) {
        struct complex *at[LINES], *out;

        for (size_t l = 0; l < LINES; l++)
            at[l] = field + (line + l) / inner * inner * (size_t)n + (line + l) % inner;
        for (size_t i = 0; i < (size_t)n; i++)
            for (size_t l = 0; l < LINES; l++)
                f->lines[i * LINES + l] = at[l][i * inner];
        out = transform_lines(f, n, sign);
        for (size_t i = 0; i < (size_t)n; i++)
            for (size_t l = 0; l < LINES; l++)
                at[l][i * inner] = out[i * LINES + l];
    }
}

/* -- three axes ------------------------------------------------------------------------------- */

/*
 * Between a slab of z and parcels for all ranks, [ranks][nz / ranks][ny / ranks][nx]: rows of one
 * parcel are together in the slab. A slab of y is its parcels one after the other.
 */
static void pack(const struct ft *f, struct complex *slab, struct complex *parcels, int back)
{
    int planes = f->is->nz / f->k.ranks;
    size_t run = (size_t)f->is->nx * (size_t)(f->is->ny / f->k.ranks);

    for (int z = 0; z < planes; z++)
        for (int to = 0; to < f->k.ranks; to++) {
            struct complex *a = slab + (size_t)(z * f->k.ranks + to) * run;
            struct complex *b = parcels + (size_t)(to * planes + z) * run;

            memcpy(back ? a : b, back ? b : a, run * sizeof(*a));
        }
}

static void exchange(const struct ft *f, struct complex *from, struct complex *to)
{
    int numbers = (int)(2 * f->mine / (size_t)f->k.ranks);

    MPI_Alltoall(from, numbers, MPI_DOUBLE, to, numbers, MPI_DOUBLE, MPI_COMM_WORLD);
    if (kernel_spoils(&f->k))
        to[0].re += 1;
}

/* Slabs of z in `field` become the waves, in slabs of y. */
static void forward(const struct ft *f)
{
    size_t nx = (size_t)f->is->nx;

    transform_axis(f, f->field, f->is->nx, 1, -1);
    transform_axis(f, f->field, f->is->ny, nx, -1);
    pack(f, f->field, f->parcel, 0);
    exchange(f, f->parcel, f->waves);
    transform_axis(f, f->waves, f->is->nz, nx * (size_t)(f->is->ny / f->k.ranks), -1);
}

/* A slab of y in `field` becomes one of z. */
static void backward(const struct ft *f)
{
    size_t nx = (size_t)f->is->nx;

    transform_axis(f, f->field, f->is->nz, nx * (size_t)(f->is->ny / f->k.ranks), 1);
    exchange(f, f->field, f->parcel);
    pack(f, f->field, f->parcel, 1);
    transform_axis(f, f->field, f->is->ny, nx, 1);
    transform_axis(f, f->field, f->is->nx, 1, 1);
}

/* -- the problem ------------------------------------------------------------------------------ */

/* My slab of the random field. */
static void start_field(const struct ft *f)
{
    uint64_t random = lcg_skip(SEED, 2 * (uint64_t)f->k.rank * f->mine);

    for (size_t i = 0; i < f->mine; i++) {
        f->field[i].re = lcg_uniform(&random);
        f->field[i].im = lcg_uniform(&random);
    }
}

/* The square of an index's frequency: those above half are negative ones. */
static double frequency2(int i, int n)
{
    int k = i < n / 2 ? i : i - n;

    return (double)k * k;
}

static void set_damping(const struct ft *f)
{
    const struct problem *is = f->is;
    int rows = is->ny / f->k.ranks;
    double *d = f->damping;

    for (int z = 0; z < is->nz; z++)
        for (int y = 0; y < rows; y++)
            for (int x = 0; x < is->nx; x++)
                *d++ = exp(-4 * alpha * pi * pi * (frequency2(x, is->nx)
                    + frequency2(y + f->k.rank * rows, is->ny) + frequency2(z, is->nz)));
}

static void damp(const struct ft *f)
{
    for (size_t i = 0; i < f->mine; i++) {
        f->waves[i].re *= f->damping[i];
        f->waves[i].im *= f->damping[i];
        f->field[i] = f->waves[i];
    }
}

/* The sum over the points (j, 3j, 5j), by the number of all points. On rank 0. */
static struct complex checksum(const struct ft *f)
{
    const struct problem *is = f->is;
    struct complex sum = { 0, 0 }, all = { 0, 0 };
    int planes = is->nz / f->k.ranks;
    double points = (double)is->nx * is->ny * is->nz;

    for (int j = 1; j <= POINTS; j++) {
        int x = j % is->nx, y = 3 * j % is->ny, z = 5 * j % is->nz - f->k.rank * planes;

        if (z < 0 || z >= planes)
            continue;
        sum.re += f->field[(z * is->ny + y) * is->nx + x].re / points;
        sum.im += f->field[(z * is->ny + y) * is->nx + x].im / points;
    }
    MPI_Reduce(&sum, &all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return all;
}

/* As the report asks, all but the roots of unity is timed. */
static void solve(const struct ft *f, struct complex *sums)
{
    set_damping(f);
    start_field(f);
    forward(f);
    for (int t = 0; t < TIMES; t++) {
        damp(f);
        backward(f);
        sums[t] = checksum(f);
    }
}

static int verify(const struct ft *f, const struct complex *sums)
{
    int good = 0;

    if (f->k.rank != 0)
        return 0;
    for (int t = 0; t < TIMES; t++)
        good += kernel_close(sums[t].re, f->is->sums[t].re, 1e-12) &&
            kernel_close(sums[t].im, f->is->sums[t].im, 1e-12);
    printf("ft: %d of %d checksums are the published ones; the last is %.12e %.12e, published "
           "%.12e %.12e\n", good, TIMES, sums[TIMES - 1].re, sums[TIMES - 1].im,
           f->is->sums[TIMES - 1].re, f->is->sums[TIMES - 1].im);
    return good == TIMES;
}

static void set_up(struct ft *f)
{
    const struct problem *is = f->is = &problems[f->k.size];

    f->mine = (size_t)is->nx * (size_t)is->ny * (size_t)(is->nz / f->k.ranks);
    f->waves = kernel_alloc(f->mine, sizeof(struct complex));
    f->field = kernel_alloc(f->mine, sizeof(struct complex));
    f->parcel = kernel_alloc(f->mine, sizeof(struct complex));
    f->damping = kernel_alloc(f->mine, sizeof(double));
    f->longest = is->nx > is->nz ? is->nx : is->nz;     /* ny is never the longest alone */
    f->lines = kernel_alloc(2 * (size_t)f->longest * LINES, sizeof(struct complex));
    f->roots = kernel_alloc((size_t)f->longest / 2, sizeof(struct complex));
    for (int j = 0; j < f->longest / 2; j++)
        f->roots[j] = (struct complex){ cos(2 * pi * j / f->longest),
                                        -sin(2 * pi * j / f->longest) };
}

int main(int argc, char **argv)
{
    struct ft f = { .mine = 0 };
    struct complex sums[TIMES];
    double points, ops;
    int ok;

    kernel_begin(&f.k, "ft", argc, argv);
    kernel_need_power_of_two(&f.k, MAX_RANKS);
    set_up(&f);
    start_field(&f);
    forward(&f);
    kernel_start(&f.k);
    solve(&f, sums);
    kernel_stop(&f.k);
    ok = verify(&f, sums);
    free(f.waves);
    free(f.field);
    free(f.parcel);
    free(f.damping);
    free(f.lines);
    free(f.roots);
    points = (double)f.is->nx * f.is->ny * f.is->nz;
    ops = points * (14.8157 + 7.19641 * log(points) + (5.23518 + 7.21113 * log(points)) * TIMES);
    return kernel_end(&f.k, ok, ops);
}
