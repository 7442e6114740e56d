/* SPDX-License-Identifier: MIT */
/*
 * MG, multigrid: V-cycles for Poisson's equation on a periodic cube with ten charges of each sign.
 * Ranks share out each grid in blocks and exchange faces with their neighbours after each step.
 * Grids so coarse that a block would be one point wide are gathered on the way down, and every rank
 * has all of them.
 */
#include "kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 314159265, CYCLES = 4, CHARGES = 10, MAX_LEVELS = 8, AXES = 3 };

static const struct problem {
    int levels;             /* the finest has 2^levels points on each axis */
    double norm;            /* of what is left after the last cycle */
} problems[CLASSES] = {
    [CLASS_S] = { 5, 0.5307707005734e-04 },
    [CLASS_W] = { 7, 0.6467329375339e-05 },
    [CLASS_A] = { 8, 0.2433365309069e-05 },
};

/* Weights of the 27 points around one, by how many of their coordinates differ from its. */
struct stencil {
    double same, face, edge, corner;
};

static const struct stencil laplace = { -8.0 / 3, 0, 1.0 / 6, 1.0 / 12 };
static const struct stencil smoother = { -3.0 / 8, 1.0 / 32, -1.0 / 64, 0 };
static const struct stencil coarsen = { 1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16 };

/* One grid. Its arrays are [z][y][x] of my block with a border of one point all around. */
struct level {
    int n;                  /* points on each axis, of the whole cube */
    int shared;             /* in blocks; otherwise every rank has all of it */
    int own[AXES];          /* points of my block, along x, y, z */
    int from[AXES];         /* where it begins in the cube */
    double *u, *r;          /* the correction, and what is left */
};

struct mg {
    struct kernel k;
    const struct problem *is;
    int blocks[AXES];       /* ranks along each axis: x, y, z */
    int place[AXES];        /* mine */
    int next[AXES], last[AXES];             /* ranks after and before me */
    struct level levels[MAX_LEVELS + 1];    /* [1] has 2 points on an axis */
    double *v;              /* the charges, on the finest */
    double *faces;          /* room for two faces */
    double *side, *diagonal;                /* a line's sums over four neighbour lines each */
};

/* -- arrays ----------------------------------------------------------------------------------- */

static size_t size_of(const struct level *g)
{
    return (size_t)(g->own[0] + 2) * (size_t)(g->own[1] + 2) * (size_t)(g->own[2] + 2);
}

/* The line of x at (y, z), -1 to own: [-1] is its first border point. */
static double *line(const struct level *g, double *a, int y, int z)
{
    return a + ((size_t)(z + 1) * (size_t)(g->own[1] + 2) + (size_t)(y + 1))
        * (size_t)(g->own[0] + 2) + 1;
}

/* Copies the plane `at` of an axis, borders included, to a face or (in) from it: its points. */
static int face(const struct level *g, double *a, int axis, int at, double *f, int in)
{
    int low[AXES] = { -1, -1, -1 }, high[AXES], n = 0;

    for (int i = 0; i < AXES; i++)
        high[i] = g->own[i];
    low[axis] = high[axis] = at;
    for (int z = low[2]; z <= high[2]; z++)
        for (int y = low[1]; y <= high[1]; y++) {
            double *row = line(g, a, y, z);

            for (int x = low[0]; x <= high[0]; x++, n++)
                *(in ? &row[x] : &f[n]) = in ? f[n] : row[x];
        }
    return n;
}

/* Plane `at` goes to rank `to`; the one that comes from rank `from` is put at `border`. */
static void pass(const struct mg *m, const struct level *g, double *a, int axis, int at, int to,
                 int border, int from)
{
    int n = face(g, a, axis, at, m->faces, 0);
    double *came = m->faces + n;

    if (g->shared && to != m->k.rank)
        MPI_Sendrecv(m->faces, n, MPI_DOUBLE, to, axis, came, n, MPI_DOUBLE, from, axis,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        came = m->faces;
    face(g, a, axis, border, came, 1);
}

/* Sets the border from the neighbours, axis by axis: so edges and corners come with the faces. */
static void fill_border(const struct mg *m, const struct level *g, double *a)
{
    for (int axis = 0; axis < AXES; axis++) {
        int own = g->own[axis];

        pass(m, g, a, axis, own - 1, m->next[axis], -1, m->last[axis]);
        pass(m, g, a, axis, 0, m->last[axis], own, m->next[axis]);
    }
    if (kernel_spoils(&m->k) && a == g->u)
        line(g, a, 0, 0)[-1] += 1e-3;
}

static void clear(const struct level *g, double *a)
{
    memset(a, 0, size_of(g) * sizeof(double));
}

/* -- stencils --------------------------------------------------------------------------------- */

/* Sums over the lines beside (y, z), and over those across the corner, borders included. */
static void sum_lines(const struct mg *m, const struct level *g, double *a, int y, int z)
{
    const double *s0 = line(g, a, y - 1, z), *s1 = line(g, a, y + 1, z);
    const double *s2 = line(g, a, y, z - 1), *s3 = line(g, a, y, z + 1);
    const double *d0 = line(g, a, y - 1, z - 1), *d1 = line(g, a, y + 1, z - 1);
    const double *d2 = line(g, a, y - 1, z + 1), *d3 = line(g, a, y + 1, z + 1);
    double *side = m->side, *diagonal = m->diagonal;

    for (int x = -1; x <= g->own[0]; x++) {
        side[x] = s0[x] + s1[x] + s2[x] + s3[x];
        diagonal[x] = d0[x] + d1[x] + d2[x] + d3[x];
    }
}

static inline double weigh(const struct stencil *s, const double *here, const double *side,
                           const double *diagonal, int x)
{
    return s->same * here[x] + s->face * (here[x - 1] + here[x + 1] + side[x])
        + s->edge * (side[x - 1] + side[x + 1] + diagonal[x])
        + s->corner * (diagonal[x - 1] + diagonal[x + 1]);
}

/* out = base + sign * stencil(in), and its border. */
static void apply(const struct mg *m, const struct level *g, struct stencil s, double *in,
                  double *base, double sign, double *out)
{
    const double *side = m->side, *diagonal = m->diagonal;

    for (int z = 0; z < g->own[2]; z++)
        for (int y = 0; y < g->own[1]; y++) {
            const double *here = line(g, in, y, z), *b = line(g, base, y, z);
            double *o = line(g, out, y, z);

            sum_lines(m, g, in, y, z);
            for (int x = 0; x < g->own[0]; x++)
                o[x] = b[x] + sign * weigh(&s, here, side, diagonal, x);
        }
    fill_border(m, g, out);
}

/* Where my block of `fine` begins in what I have of `coarse`. */
static int offset(const struct level *fine, const struct level *coarse, int axis)
{
    return fine->from[axis] / 2 - coarse->from[axis];
}

/* r of the coarser grid, whose point i is point 2 i + 1 of the finer one. */
static void go_down(const struct mg *m, const struct level *fine, const struct level *coarse)
{
    int ox = offset(fine, coarse, 0), oy = offset(fine, coarse, 1), oz = offset(fine, coarse, 2);

    clear(coarse, coarse->r);
    for (int z = 0; z < fine->own[2] / 2; z++)
        for (int y = 0; y < fine->own[1] / 2; y++) {
            const double *here = line(fine, fine->r, 2 * y + 1, 2 * z + 1);
            double *o = line(coarse, coarse->r, oy + y, oz + z) + ox;

            sum_lines(m, fine, fine->r, 2 * y + 1, 2 * z + 1);
            for (int x = 0; x < fine->own[0] / 2; x++)
                o[x] = weigh(&coarsen, here, m->side, m->diagonal, 2 * x + 1);
        }
    if (fine->shared && !coarse->shared)    /* the blocks of the others are zero */
        MPI_Allreduce(MPI_IN_PLACE, coarse->r, (int)size_of(coarse), MPI_DOUBLE, MPI_SUM,
                      MPI_COMM_WORLD);
    fill_border(m, coarse, coarse->r);
}

/* The coarser grid's points on both sides of a finer one's; both the same when it is there. */
static int before(int i)
{
    return (i + 1) / 2 - 1;
}

static int after(int i)
{
    return (i + 2) / 2 - 1;
}

/* Adds the coarser grid's u to the finer one's, means between points; on the border too. */
static void go_up(const struct mg *m, const struct level *coarse, const struct level *fine)
{
    int ox = offset(fine, coarse, 0), oy = offset(fine, coarse, 1), oz = offset(fine, coarse, 2);
    int half = fine->own[0] / 2;
    double *mean = m->side;

    for (int z = -1; z <= fine->own[2]; z++)
        for (int y = -1; y <= fine->own[1]; y++) {
            const double *a = line(coarse, coarse->u, oy + before(y), oz + before(z)) + ox;
            const double *b = line(coarse, coarse->u, oy + after(y), oz + before(z)) + ox;
            const double *c = line(coarse, coarse->u, oy + before(y), oz + after(z)) + ox;
            const double *d = line(coarse, coarse->u, oy + after(y), oz + after(z)) + ox;
            double *o = line(fine, fine->u, y, z);

            for (int x = -1; x <= half; x++)
                mean[x] = (a[x] + b[x] + c[x] + d[x]) / 4;
            for (int x = 0; x <= half; x++) {
                o[2 * x - 1] += mean[x - 1];
                o[2 * x] += (mean[x - 1] + mean[x]) / 2;
            }
        }
}

/* -- the method ------------------------------------------------------------------------------- */

/* r = v - A u on the finest grid. */
static void look(const struct mg *m)
{
    const struct level *g = &m->levels[m->is->levels];

    apply(m, g, laplace, g->u, m->v, -1, g->r);
}

/* One V: r down to the coarsest grid, and corrections of u up again, smoothed on each. */
static void cycle(const struct mg *m)
{
    const struct level *g = m->levels;
    int top = m->is->levels;

    for (int l = top; l > 1; l--)
        go_down(m, &g[l], &g[l - 1]);
    clear(&g[1], g[1].u);
    apply(m, &g[1], smoother, g[1].r, g[1].u, 1, g[1].u);
    for (int l = 2; l <= top; l++) {
        if (l < top)
            clear(&g[l], g[l].u);
        go_up(m, &g[l - 1], &g[l]);
        apply(m, &g[l], laplace, g[l].u, l < top ? g[l].r : m->v, -1, g[l].r);
        apply(m, &g[l], smoother, g[l].r, g[l].u, 1, g[l].u);
    }
}

static void solve(const struct mg *m, int cycles)
{
    const struct level *g = &m->levels[m->is->levels];

    clear(g, g->u);
    look(m);
    for (int i = 0; i < cycles; i++) {
        cycle(m);
        look(m);
    }
}

/* The root of the mean square of r on the finest grid. */
static double norm(const struct mg *m)
{
    const struct level *g = &m->levels[m->is->levels];
    double mine = 0, all;

    for (int z = 0; z < g->own[2]; z++)
        for (int y = 0; y < g->own[1]; y++) {
            const double *r = line(g, g->r, y, z);

            for (int x = 0; x < g->own[0]; x++)
                mine += r[x] * r[x];
        }
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sqrt(all / ((double)g->n * g->n * g->n));
}

/* -- the charges ------------------------------------------------------------------------------ */

/* A point of the cube by its number, and how much it wants a charge. */
struct spot {
    double want, at;
};

/* Keeps the CHARGES spots that want it most, the keenest first. */
static void keep(struct spot *best, struct spot s)
{
    for (int i = 0; i < CHARGES; i++)
        if (s.want > best[i].want) {
            struct spot next = best[i];

            best[i] = s;
            s = next;
        }
}

/* The largest (sign 1) or smallest (-1) of the random numbers of the points, of all ranks. */
static void choose(const struct mg *m, double sign, struct spot *best)
{
    const struct level *g = &m->levels[m->is->levels];
    struct spot *all = kernel_alloc((size_t)(CHARGES * m->k.ranks), sizeof(*all));

    for (int i = 0; i < CHARGES; i++)
        best[i].want = -HUGE_VAL;
    for (int z = 0; z < g->own[2]; z++)
        for (int y = 0; y < g->own[1]; y++) {
            int64_t at = ((int64_t)(g->from[2] + z) * g->n + g->from[1] + y) * g->n + g->from[0];
            uint64_t random = lcg_skip(SEED, (uint64_t)at);

            for (int x = 0; x < g->own[0]; x++)
                keep(best, (struct spot){ sign * lcg_uniform(&random), (double)(at + x) });
        }
    MPI_Allgather(best, 2 * CHARGES, MPI_DOUBLE, all, 2 * CHARGES, MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < CHARGES; i++)
        best[i].want = -HUGE_VAL;
    for (int i = 0; i < CHARGES * m->k.ranks; i++)
        keep(best, all[i]);
    free(all);
}

static void set_charges(const struct mg *m, double sign)
{
    const struct level *g = &m->levels[m->is->levels];
    struct spot best[CHARGES];

    choose(m, sign, best);
    for (int i = 0; i < CHARGES; i++) {
        int at = (int)best[i].at;
        int x = at % g->n - g->from[0], y = at / g->n % g->n - g->from[1];
        int z = at / g->n / g->n - g->from[2];

        if (x >= 0 && x < g->own[0] && y >= 0 && y < g->own[1] && z >= 0 && z < g->own[2])
            line(g, m->v, y, z)[x] = sign;
    }
}

/* -- the grids -------------------------------------------------------------------------------- */

static int rank_at(const struct mg *m, int axis, int step)
{
    int at[AXES] = { m->place[0], m->place[1], m->place[2] };

    at[axis] = (at[axis] + step + m->blocks[axis]) % m->blocks[axis];
    return (at[2] * m->blocks[1] + at[1]) * m->blocks[0] + at[0];
}

/* Doubles the blocks along z, y, x in turn until every rank has one. */
static void find_place(struct mg *m)
{
    int blocks = 1, rank = m->k.rank;

    for (int i = 0; i < AXES; i++)
        m->blocks[i] = 1;
    for (int axis = 2; blocks < m->k.ranks; blocks *= 2, axis = (axis + 2) % AXES)
        m->blocks[axis] *= 2;
    for (int i = 0; i < AXES; i++) {
        m->place[i] = rank % m->blocks[i];
        rank /= m->blocks[i];
    }
    for (int i = 0; i < AXES; i++) {
        m->next[i] = rank_at(m, i, 1);
        m->last[i] = rank_at(m, i, -1);
    }
}

static void make_level(const struct mg *m, struct level *g, int n)
{
    g->n = n;
    g->shared = m->k.ranks > 1 && n >= 2 * m->blocks[2];    /* z has the most blocks */
    for (int i = 0; i < AXES; i++) {
        g->own[i] = g->shared ? n / m->blocks[i] : n;
        g->from[i] = g->shared ? m->place[i] * g->own[i] : 0;
    }
    g->u = kernel_alloc(size_of(g), sizeof(double));
    g->r = kernel_alloc(size_of(g), sizeof(double));
}

static void set_up(struct mg *m)
{
    const struct level *top;
    size_t widest;

    m->is = &problems[m->k.size];
    find_place(m);
    for (int l = 1; l <= m->is->levels; l++)
        make_level(m, &m->levels[l], 1 << l);
    top = &m->levels[m->is->levels];
    m->v = kernel_alloc(size_of(top), sizeof(double));
    widest = (size_t)top->n + 2;
    m->faces = kernel_alloc(2 * widest * widest, sizeof(double));
    m->side = (double *)kernel_alloc(widest, sizeof(double)) + 1;
    m->diagonal = (double *)kernel_alloc(widest, sizeof(double)) + 1;
    set_charges(m, 1);
    set_charges(m, -1);
}

static void tear_down(struct mg *m)
{
    for (int l = 1; l <= m->is->levels; l++) {
        free(m->levels[l].u);
        free(m->levels[l].r);
    }
    free(m->v);
    free(m->faces);
    free(m->side - 1);
    free(m->diagonal - 1);
}

int main(int argc, char **argv)
{
    struct mg m = { .v = NULL };
    double left, n;

    kernel_begin(&m.k, "mg", argc, argv);
    kernel_need_power_of_two(&m.k, 1024);
    set_up(&m);
    solve(&m, 1);
    kernel_start(&m.k);
    solve(&m, CYCLES);
    left = norm(&m);
    kernel_stop(&m.k);
    n = m.levels[m.is->levels].n;
    if (m.k.rank == 0)
        printf("mg: norm %.13e, published %.13e\n", left, m.is->norm);
    tear_down(&m);
    return kernel_end(&m.k, kernel_close(left, m.is->norm, 1e-8), 58.0 * CYCLES * n * n * n);
}
