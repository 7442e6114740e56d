/* SPDX-License-Identifier: MIT */
/*
 * A fault-tolerant program (MPIR_CVAR_ENABLE_FT=1): in each of the collective operations below, in
 * turn, the last rank exits, until two are left. The others repeat the operation without it:
 *
 *   survive FIRST COUNT HOW     FIRST: the operation to begin with; COUNT: elements for each rank
 *      HOW early    the rank exits before the operation
 *          late     it takes part, and exits then: the others may be in it still
 *
 * No operation may return MPI_SUCCESS and a wrong result. All survivors agree whether they have it
 * (MPIX_Comm_agree); if not, they leave the communicator (MPIX_Comm_revoke, MPIX_Comm_shrink).
 * Rank 0 ends with "survived in N of M ranks"; "results wrong" is printed by who has one.
 */
#include "../lines.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, TRIES = 50 };

static MPI_Comm comm;
static int rank, size, count;
static int *out, *in, counts[MOST], places[MOST], bytes[MOST];
static MPI_Datatype types[MOST];

/* Element i of what rank r sends to rank q. */
static int value(int r, int q, int i)
{
    return r * 1000003 + q * 1009 + i;
}

/* Element i of the sum over ranks 0 to n - 1 of what they send to rank q. */
static int sum(int n, int q, int i)
{
    int s = 0;

    for (int r = 0; r < n; r++)
        s += value(r, q, i);
    return s;
}

static void fill(int blocks)
{
    for (int q = 0; q < blocks; q++)
        for (int i = 0; i < count; i++)
            out[q * count + i] = value(rank, q, i);
    memset(in, 0, sizeof(*in) * (size_t)(MOST * count));
}

/* -- what has to be received -------------------------------------------------------------- */

static int all_blocks(void)      /* from each rank its block for this one */
{
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++)
            if (in[r * count + i] != value(r, rank, i))
                return 0;
    return 1;
}

static int all_first(void)       /* from each rank its first block */
{
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++)
            if (in[r * count + i] != value(r, 0, i))
                return 0;
    return 1;
}

static int all_first_at_root(void)
{
    return rank != 0 || all_first();
}

static int block_of_root(void)
{
    for (int i = 0; i < count; i++)
        if (in[i] != value(0, rank, i))
            return 0;
    return 1;
}

static int first_of_root(void)
{
    for (int i = 0; i < count; i++)
        if (out[i] != value(0, 0, i))
            return 0;
    return 1;
}

static int sum_of(int n, int q)
{
    for (int i = 0; i < count; i++)
        if (in[i] != sum(n, q, i))
            return 0;
    return 1;
}

static int sum_of_all(void)
{
    return sum_of(size, 0);
}

static int sum_at_root(void)
{
    return rank != 0 || sum_of(size, 0);
}

static int sum_up_to_me(void)
{
    return sum_of(rank + 1, 0);
}

static int sum_before_me(void)
{
    return rank == 0 || sum_of(rank, 0);
}

static int sum_of_my_block(void)
{
    return sum_of(size, rank);
}

static int nothing(void)
{
    return 1;
}

/* -- the operations ------------------------------------------------------------------------- */

/* ID BLOCKING NONBLOCKING ARGUMENTS: calls both with these. */
#define BOTH(id, blocking, nonblocking, ...)                                                     \
    static int id(void)                                                                          \
    {                                                                                            \
        return blocking(__VA_ARGS__);                                                            \
    }                                                                                            \
    static int i##id(void)                                                                       \
    {                                                                                            \
        MPI_Request r;                                                                           \
        int rc = nonblocking(__VA_ARGS__, &r);                                                   \
                                                                                                 \
        return rc ? rc : MPI_Wait(&r, MPI_STATUS_IGNORE);                                        \
    }

BOTH(barrier, MPI_Barrier, MPI_Ibarrier, comm)
BOTH(bcast, MPI_Bcast, MPI_Ibcast, out, count, MPI_INT, 0, comm)
BOTH(gather, MPI_Gather, MPI_Igather, out, count, MPI_INT, in, count, MPI_INT, 0, comm)
BOTH(gatherv, MPI_Gatherv, MPI_Igatherv, out, count, MPI_INT, in, counts, places, MPI_INT, 0, comm)
BOTH(scatter, MPI_Scatter, MPI_Iscatter, out, count, MPI_INT, in, count, MPI_INT, 0, comm)
BOTH(scatterv, MPI_Scatterv, MPI_Iscatterv, out, counts, places, MPI_INT, in, count, MPI_INT, 0,
     comm)
BOTH(allgather, MPI_Allgather, MPI_Iallgather, out, count, MPI_INT, in, count, MPI_INT, comm)
BOTH(allgatherv, MPI_Allgatherv, MPI_Iallgatherv, out, count, MPI_INT, in, counts, places, MPI_INT,
     comm)
BOTH(alltoall, MPI_Alltoall, MPI_Ialltoall, out, count, MPI_INT, in, count, MPI_INT, comm)
BOTH(alltoallv, MPI_Alltoallv, MPI_Ialltoallv, out, counts, places, MPI_INT, in, counts, places,
     MPI_INT, comm)
BOTH(alltoallw, MPI_Alltoallw, MPI_Ialltoallw, out, counts, bytes, types, in, counts, bytes, types,
     comm)
BOTH(reduce, MPI_Reduce, MPI_Ireduce, out, in, count, MPI_INT, MPI_SUM, 0, comm)
BOTH(allreduce, MPI_Allreduce, MPI_Iallreduce, out, in, count, MPI_INT, MPI_SUM, comm)
BOTH(scan, MPI_Scan, MPI_Iscan, out, in, count, MPI_INT, MPI_SUM, comm)
BOTH(exscan, MPI_Exscan, MPI_Iexscan, out, in, count, MPI_INT, MPI_SUM, comm)
BOTH(reduce_scatter, MPI_Reduce_scatter, MPI_Ireduce_scatter, out, in, counts, MPI_INT, MPI_SUM,
     comm)
BOTH(reduce_scatter_block, MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, out, in, count,
     MPI_INT, MPI_SUM, comm)

/* Errors of making a communicator are those of the operations that it needs. */
static int dup_and_barrier(void)
{
    MPI_Comm other = MPI_COMM_NULL;
    int rc = MPI_Comm_dup(comm, &other);

    if (rc)
        return rc;
    rc = MPI_Barrier(other);
    MPI_Comm_free(&other);
    return rc;
}

static const struct op {
    const char *name;
    int (*call)(void);
    int (*right)(void);
} ops[] = {
#define TWO(id, right) { #id, id, right }, { "i" #id, i##id, right }
    TWO(barrier, nothing),
    TWO(bcast, first_of_root),
    TWO(gather, all_first_at_root),
    TWO(gatherv, all_first_at_root),
    TWO(scatter, block_of_root),
    TWO(scatterv, block_of_root),
    TWO(allgather, all_first),
    TWO(allgatherv, all_first),
    TWO(alltoall, all_blocks),
    TWO(alltoallv, all_blocks),
    TWO(alltoallw, all_blocks),
    TWO(reduce, sum_at_root),
    TWO(allreduce, sum_of_all),
    TWO(scan, sum_up_to_me),
    TWO(exscan, sum_before_me),
    TWO(reduce_scatter, sum_of_my_block),
    TWO(reduce_scatter_block, sum_of_my_block),
    { "dup", dup_and_barrier, nothing },
};
enum { OPS = sizeof(ops) / sizeof(ops[0]) };

/* -- one operation ---------------------------------------------------------------------------- */

static void arrange(void)
{
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int r = 0; r < size; r++) {
        counts[r] = count;
        places[r] = r * count;
        bytes[r] = r * count * (int)sizeof(int);
        types[r] = MPI_INT;
    }
}

static void wrong(const char *what, int rc)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;

    if (rc)
        MPI_Error_string(rc, text, &len);
    printf("rank %d of %d: %s: results wrong %s\n", rank, size, what, text);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* Is it an error that the loss of a rank may have? Some algorithms of MPICH forget which it was. */
static int is_expected(int rc)
{
    int class;

    MPI_Error_class(rc, &class);
    return class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED || class == MPI_ERR_OTHER;
}

/* Returns whether this rank has a result. */
static int attempt(const struct op *op)
{
    int rc;

    fill(size);
    rc = op->call();
    if (rc && !is_expected(rc))
        wrong(op->name, rc);
    if (!rc && !op->right())
        wrong(op->name, 0);
    return !rc;
}

/* Goes on without the ranks that have ended. */
static void leave(void)
{
    MPI_Comm next;

    MPIX_Comm_revoke(comm);
    for (int i = 0; MPIX_Comm_shrink(comm, &next) != MPI_SUCCESS; i++)
        if (i == TRIES)
            wrong("shrink", 0);
    MPI_Comm_set_errhandler(next, MPI_ERRORS_RETURN);
    comm = next;
    arrange();
}

/* All survivors have done this operation when it returns. A rank may agree while another one is in
 * the next operation already, so they agree on that, too. */
static void do_it(int k, int n_before)
{
    for (int i = 0; i < TRIES; i++) {
        int mine = attempt(&ops[k]), all = mine, least = k;

        if (MPIX_Comm_agree(comm, &all) != MPI_SUCCESS || !all) {
            leave();
            continue;
        }
        if (MPI_Allreduce(&k, &least, 1, MPI_INT, MPI_MIN, comm) != MPI_SUCCESS) {
            leave();
            continue;
        }
        if (least == k && size < n_before)
            return;
        if (least != k)
            wrong("the number of the operation", 0);
    }
    wrong(ops[k].name, 0);
}

int main(int argc, char **argv)
{
    int first, n, late, world;

    if (argc < 4)
        return 2;
    first = atoi(argv[1]);
    count = atoi(argv[2]);
    late = strcmp(argv[3], "late") == 0;
    MPI_Init(&argc, &argv);
    print_whole_lines();
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    out = malloc(sizeof(*out) * (size_t)(MOST * count));
    in = malloc(sizeof(*in) * (size_t)(MOST * count));
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    arrange();
    for (n = 0; size > 2; n++) {
        int k = (first + n) % OPS, before = size;

        if (rank == size - 1) {
            if (late)
                attempt(&ops[k]);
            exit(0);
        }
        do_it(k, before);
    }
    if (rank == 0)
        printf("survived in %d of %d ranks, %d operations from %s\n", size, world, n,
               ops[first % OPS].name);
    MPI_Finalize();
    return 0;
}
