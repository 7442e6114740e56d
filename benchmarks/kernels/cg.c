/* SPDX-License-Identifier: MIT */
/*
 * CG, conjugate gradient: the largest eigenvalue of a large sparse matrix by inverse iteration with
 * a shift, each step 25 steps of the conjugate gradient method. The matrix is spread over a grid of
 * ranks; a product with it is a sum along each row of the grid, by exchanges of pairs, and an
 * exchange with the transposed place in the grid.
 */
#include "kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 314159265, INNER = 25, MAX_DRAWN = 12 };

static const double rcond = 0.1;

static const struct problem {
    int n, drawn, steps;        /* order, numbers drawn for each vector, outer steps */
    double shift, zeta;
} problems[CLASSES] = {
    [CLASS_S] = { 1400, 7, 15, 10, 8.5971775078648 },
    [CLASS_W] = { 7000, 8, 15, 12, 10.362595087124 },
    [CLASS_A] = { 14000, 11, 15, 20, 17.130235054029 },
};

struct entry {
    int at;
    double value;
};

/* One of the sparse vectors whose outer products make the matrix. */
struct sparse {
    int n;
    struct entry entries[MAX_DRAWN];
};

/*
 * The grid has as many columns as rows, or twice as many. A rank in row i and column j has the
 * block (i, j) of the matrix, and of each vector the piece that goes with its column.
 */
struct cg {
    struct kernel k;
    struct problem is;
    int rows, cols, row, col;
    int piece;                  /* numbers of a vector that I have */
    int height;                 /* rows of the matrix that I have */
    int *start;                 /* entries[start[i] .. start[i + 1]) are those of my i-th row */
    struct entry *entries;      /* .at: the place in my piece */
    int partner, part;          /* the transposed place, and which piece of my rows it has */
    double *x, *z, *r, *p, *q;  /* pieces of vectors */
    double *sum, *other;        /* `height` numbers: a product, the same from another column */
};

/* -- the matrix ------------------------------------------------------------------------------- */

static int find(const struct sparse *v, int at)
{
    int i = 0;

    while (i < v->n && v->entries[i].at != at)
        i++;
    return i;
}

/* Vector `index`: numbers at drawn places, and one half at its own. */
static void draw(struct sparse *v, uint64_t *random, const struct problem *is, int index)
{
    int range = 1, i;

    while (range < is->n)
        range *= 2;
    v->n = 0;
    while (v->n < is->drawn) {
        double value = lcg_uniform(random);
        int at = (int)(lcg_uniform(random) * range);

        if (at < is->n && find(v, at) == v->n)
            v->entries[v->n++] = (struct entry){ at, value };
    }
    i = find(v, index);
    v->entries[i] = (struct entry){ index, 0.5 };
    v->n += i == v->n;
}

static int my_row(const struct cg *c, int i)
{
    int at = i - c->row * c->height;

    return at >= 0 && at < c->height ? at : -1;
}

static int my_column(const struct cg *c, int i)
{
    int at = i - c->col * c->piece;

    return at >= 0 && at < c->piece ? at : -1;
}

/* Adds to `used[row]` one entry; it is stored too when the places of rows are known. */
static void add(struct cg *c, int *used, int row, int col, double value)
{
    if (row < 0 || col < 0)
        return;
    if (c->entries)
        c->entries[c->start[row] + used[row]] = (struct entry){ col, value };
    used[row]++;
}

/* The sum of ratio^i v_i v_i', and rcond - shift on the diagonal: my block of it. */
static void add_all(struct cg *c, const struct sparse *vectors, int *used)
{
    double ratio = pow(rcond, 1.0 / c->is.n), weight = 1;

    memset(used, 0, (size_t)c->height * sizeof(int));
    for (int i = 0; i < c->is.n; i++, weight *= ratio) {
        const struct sparse *v = &vectors[i];

        for (int a = 0; a < v->n; a++)
            for (int b = 0; b < v->n; b++)
                add(c, used, my_row(c, v->entries[a].at), my_column(c, v->entries[b].at),
                    weight * v->entries[a].value * v->entries[b].value);
        add(c, used, my_row(c, i), my_column(c, i), rcond - c->is.shift);
    }
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

/* Entries of one place become one, and rows stand close. */
static void merge(struct cg *c)
{
    int n = 0;

    for (int row = 0, from = 0; row < c->height; row++) {
        int to = c->start[row + 1], first = n;

        qsort(&c->entries[from], (size_t)(to - from), sizeof(struct entry), by_place);
        for (; from < to; from++) {
            if (n > first && c->entries[n - 1].at == c->entries[from].at)
                c->entries[n - 1].value += c->entries[from].value;
            else
                c->entries[n++] = c->entries[from];
        }
        c->start[row + 1] = n;
    }
}

/* Every rank draws all vectors: which numbers belong to which depends on all before. */
static void make_matrix(struct cg *c)
{
    struct sparse *vectors = kernel_alloc((size_t)c->is.n, sizeof(*vectors));
    int *used = kernel_alloc((size_t)c->height, sizeof(int));
    uint64_t random = lcg_skip(SEED, 1);

    for (int i = 0; i < c->is.n; i++)
        draw(&vectors[i], &random, &c->is, i);
    add_all(c, vectors, used);
    c->start = kernel_alloc((size_t)c->height + 1, sizeof(int));
    for (int i = 0; i < c->height; i++)
        c->start[i + 1] = c->start[i] + used[i];
    c->entries = kernel_alloc((size_t)c->start[c->height], sizeof(struct entry));
    add_all(c, vectors, used);
    merge(c);
    free(used);
    free(vectors);
}

/* -- products --------------------------------------------------------------------------------- */

/* Adds up n numbers over the ranks of my row: all have the sum, the same to the last bit. */
static void row_sum(const struct cg *c, double *v, int n)
{
    for (int bit = 1; bit < c->cols; bit *= 2) {
        int to = c->row * c->cols + (c->col ^ bit);

        MPI_Sendrecv(v, n, MPI_DOUBLE, to, 1, c->other, n, MPI_DOUBLE, to, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < n; i++)
            v[i] += c->other[i];
    }
}

static double dot(const struct cg *c, const double *a, const double *b)
{
    double sum = 0;

    for (int i = 0; i < c->piece; i++)
        sum += a[i] * b[i];
    row_sum(c, &sum, 1);
    return sum;
}

/* out = A in: my rows' sums over my columns, then over all, then the piece of my column. */
static void multiply(const struct cg *c, const double *in, double *out)
{
    for (int i = 0; i < c->height; i++) {
        double sum = 0;

        for (int e = c->start[i]; e < c->start[i + 1]; e++)
            sum += c->entries[e].value * in[c->entries[e].at];
        c->sum[i] = sum;
    }
    row_sum(c, c->sum, c->height);
    MPI_Sendrecv(c->sum + c->part * c->piece, c->piece, MPI_DOUBLE, c->partner, 2, out, c->piece,
                 MPI_DOUBLE, c->partner, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (kernel_spoils(&c->k))
        out[0] += 1e-3;
}

/* -- the method ------------------------------------------------------------------------------- */

/* Solves A z = x nearly, by INNER steps; returns what is left, |x - A z|. */
static double solve(const struct cg *c)
{
    size_t bytes = (size_t)c->piece * sizeof(double);
    double rho;

    memset(c->z, 0, bytes);
    memcpy(c->r, c->x, bytes);
    memcpy(c->p, c->x, bytes);
    rho = dot(c, c->r, c->r);
    for (int step = 0; step < INNER; step++) {
        double alpha, beta = 1 / rho;

        multiply(c, c->p, c->q);
        alpha = rho / dot(c, c->p, c->q);
        for (int i = 0; i < c->piece; i++) {
            c->z[i] += alpha * c->p[i];
            c->r[i] -= alpha * c->q[i];
        }
        rho = dot(c, c->r, c->r);
        beta *= rho;
        for (int i = 0; i < c->piece; i++)
            c->p[i] = c->r[i] + beta * c->p[i];
    }
    multiply(c, c->z, c->q);
    for (int i = 0; i < c->piece; i++)
        c->r[i] = c->x[i] - c->q[i];
    return sqrt(dot(c, c->r, c->r));
}

/* Inverse iteration from the vector of ones: the estimate of the eigenvalue. */
static double iterate(struct cg *c, int steps, double *left)
{
    double zeta = 0;

    for (int i = 0; i < c->piece; i++)
        c->x[i] = c->col * c->piece + i < c->is.n;    /* nothing after the last piece's end */
    for (int step = 0; step < steps; step++) {
        double norm;

        *left = solve(c);
        zeta = c->is.shift + 1 / dot(c, c->x, c->z);
        norm = sqrt(dot(c, c->z, c->z));
        for (int i = 0; i < c->piece; i++)
            c->x[i] = c->z[i] / norm;
    }
    return zeta;
}

static void set_up(struct cg *c)
{
    int wide;

    c->is = problems[c->k.size];
    for (c->rows = 1; c->rows * c->rows * 4 <= c->k.ranks; )
        c->rows *= 2;
    c->cols = c->k.ranks / c->rows;
    c->row = c->k.rank / c->cols;
    c->col = c->k.rank % c->cols;
    wide = c->cols / c->rows;
    c->piece = (c->is.n + c->cols - 1) / c->cols;
    c->height = wide * c->piece;
    c->part = c->col % wide;
    c->partner = c->col / wide * c->cols + wide * c->row + c->part;
    c->x = kernel_alloc((size_t)(5 * c->piece + 2 * c->height), sizeof(double));
    c->z = c->x + c->piece;
    c->r = c->z + c->piece;
    c->p = c->r + c->piece;
    c->q = c->p + c->piece;
    c->sum = c->q + c->piece;
    c->other = c->sum + c->height;
    make_matrix(c);
}

int main(int argc, char **argv)
{
    struct cg c = { .entries = NULL };
    double zeta, left, ops;

    kernel_begin(&c.k, "cg", argc, argv);
    kernel_need_power_of_two(&c.k, 1024);
    set_up(&c);
    iterate(&c, 1, &left);
    kernel_start(&c.k);
    zeta = iterate(&c, c.is.steps, &left);
    kernel_stop(&c.k);
    if (c.k.rank == 0)
        printf("cg: zeta %.13f, published %.13f, left %.3e\n", zeta, c.is.zeta, left);
    free(c.start);
    free(c.entries);
    free(c.x);
    ops = c.is.drawn * (c.is.drawn + 1);
    ops = 2.0 * c.is.steps * c.is.n * (3 + ops + INNER * (5 + ops) + 3);
    return kernel_end(&c.k, kernel_close(zeta, c.is.zeta, 1e-10), ops);
}
