/* SPDX-License-Identifier: MIT */
/*
 * lost WHAT HANDLER DEATH: what the other ranks see when the last rank, the victim, is lost. They
 * repeat an operation; one that returns MPI_SUCCESS with a wrong result prints "wrong".
 *
 *      WHAT      a row of the table below
 *      HANDLER   fatal: MPI's default; return: MPI_ERRORS_RETURN, an error ends the repetitions
 *      DEATH     kill: the victim dies of a signal, exit: it exits, both after some repetitions;
 *                late: it exits after a second without any; none: whatever connections break, by
 *                dat.conf
 */
#include "../lines.h"

#include <mpi.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WARM_UP = 20, REPEATS = 4000, LONG_INTS = 1 << 20, TAG = 7, EXIT_DEAD = 3 };

static struct {
    int rank, size, victim;
    int *data;               /* LONG_INTS of them, and as many again for what is received */
    MPI_Win win;
    MPI_Datatype sparse;     /* every second int */
} me;

/* What a repetition found; an MPI error code is not 0, and never -1. */
enum { WRONG = -1 };

static int verdict(int rc, bool right)
{
    return rc != MPI_SUCCESS ? rc : right ? 0 : WRONG;
}

/* -- the operations: repetition k, on all ranks as long as the victim lives -------------------- */

static int do_allreduce(int k)
{
    int mine = me.rank + k, sum = -1;
    int rc = MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);

    return verdict(rc, sum == me.size * (me.size - 1) / 2 + me.size * k);
}

/* Long enough for the algorithm of long vectors. */
static int do_allreduce_long(int k)
{
    enum { N = 20000 };
    int *sum = me.data + LONG_INTS, rc;
    bool right = true;

    for (int i = 0; i < N; i++)
        me.data[i] = me.rank + k;
    rc = MPI_Allreduce(me.data, sum, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        right = right && sum[i] == me.size * (me.size - 1) / 2 + me.size * k;
    return verdict(rc, right);
}

static int do_iallreduce(int k)
{
    int mine = me.rank + k, sum = -1, rc;
    MPI_Request req;

    rc = MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &req);
    if (rc == MPI_SUCCESS)
        rc = MPI_Wait(&req, MPI_STATUS_IGNORE);
    return verdict(rc, sum == me.size * (me.size - 1) / 2 + me.size * k);
}

static int do_reduce(int k)
{
    int mine = me.rank + k, sum = -1;
    int rc = MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);

    return verdict(rc, me.rank != 0 || sum == me.size * (me.size - 1) / 2 + me.size * k);
}

/* From the victim, so that nobody has a value once it is gone. */
static int do_bcast(int k)
{
    int value = me.rank == me.victim ? k : -1;
    int rc = MPI_Bcast(&value, 1, MPI_INT, me.victim, MPI_COMM_WORLD);

    return verdict(rc, value == k);
}

static int do_barrier(int k)
{
    (void)k;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int from_victim(int source, int k)
{
    int value = -1, rc = 0;

    if (me.rank == 0)
        rc = MPI_Recv(&value, 1, MPI_INT, source, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (me.rank == me.victim)
        rc = MPI_Send(&k, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    return verdict(rc, me.rank != 0 || value == k);
}

static int do_recv(int k)
{
    return from_victim(me.victim, k);
}

static int do_anysource(int k)
{
    return from_victim(MPI_ANY_SOURCE, k);
}

static int do_ssend(int k)
{
    int value = -1, rc = 0;

    if (me.rank == 0)
        rc = MPI_Ssend(&k, 1, MPI_INT, me.victim, TAG, MPI_COMM_WORLD);
    if (me.rank == me.victim)
        rc = MPI_Recv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return verdict(rc, me.rank != me.victim || value == k);
}

static int do_cancel(int k)
{
    MPI_Request req;
    int rc = 0;

    if (me.rank != 0)
        return 0;
    if ((rc = MPI_Isend(&k, 1, MPI_INT, me.victim, TAG + 1, MPI_COMM_WORLD, &req)) == 0
        && (rc = MPI_Cancel(&req)) == 0)
        rc = MPI_Wait(&req, MPI_STATUS_IGNORE);
    return rc;
}

/* More requests than their first block of memory has, some of them complete and freed. */
static int do_many(int k)
{
    enum { MANY = 3000 };
    MPI_Request *req = malloc(MANY * sizeof(MPI_Request));
    MPI_Status *status = malloc(MANY * sizeof(MPI_Status));
    int *in = me.data + LONG_INTS, n = 0, rc;
    bool right = true;

    for (; n < MANY && me.rank == 0; n++)
        MPI_Irecv(&in[n], 1, MPI_INT, me.victim, TAG, MPI_COMM_WORLD, &req[n]);
    for (; n < MANY && me.rank == me.victim; n++) {
        me.data[n] = n ^ k;
        MPI_Isend(&me.data[n], 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, &req[n]);
    }
    rc = MPI_Waitall(n, req, status);
    for (int i = 0; i < n && me.rank == 0; i++)
        right = right && ((rc && status[i].MPI_ERROR) || in[i] == (i ^ k));
    free(status);
    free(req);
    return verdict(rc, right);
}

/* Of two ranks that need no other one, for as long as the loss of another one may take to show. */
static int do_others(int k)
{
    struct timespec moment = { 0, 1000 * 1000 };
    int got = -1, rc = 0;

    if (me.rank < 2)
        rc = MPI_Sendrecv(&k, 1, MPI_INT, 1 - me.rank, TAG, &got, 1, MPI_INT, 1 - me.rank, TAG,
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    nanosleep(&moment, NULL);
    return verdict(rc, me.rank >= 2 || got == k);
}

static void fill(int k)
{
    for (int i = 0; i < LONG_INTS; i++)
        me.data[i] = i ^ k;
}

static int exchange_long(int k, int count, MPI_Datatype type, int step)
{
    int *in = me.data + LONG_INTS, rc = 0;
    bool right = true;

    if (me.rank == me.victim) {
        fill(k);
        return MPI_Send(me.data, count, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
    if (me.rank != 0)
        return 0;
    memset(in, 0xff, LONG_INTS * sizeof(int));
    rc = MPI_Recv(in, step == 1 ? count : 1, type, me.victim, TAG, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE);
    for (int i = 0; i < count; i++)
        right = right && in[(size_t)i * (size_t)step] == (i ^ k);
    return verdict(rc, right);
}

static int do_long(int k)
{
    return exchange_long(k, LONG_INTS, MPI_INT, 1);
}

static int do_sparse(int k)
{
    return exchange_long(k, LONG_INTS / 2, me.sparse, 2);
}

static int do_fence(int k)
{
    int got = -1, rc;

    if ((rc = MPI_Put(&k, 1, MPI_INT, (me.rank + 1) % me.size, 0, 1, MPI_INT, me.win)) == 0
        && (rc = MPI_Win_fence(0, me.win)) == 0
        && (rc = MPI_Get(&got, 1, MPI_INT, (me.rank + 1) % me.size, 0, 1, MPI_INT, me.win)) == 0)
        rc = MPI_Win_fence(0, me.win);
    return verdict(rc, got == k);
}

/* All add under a lock on rank 0's window. The victim dies with the lock: lock_held. */
static int do_lock(int k)
{
    int one = 1, rc;

    (void)k;
    if ((rc = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, me.win)) == 0
        && (rc = MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, me.win)) == 0)
        rc = MPI_Win_unlock(0, me.win);
    return rc;
}

static void hold_lock(void)
{
    int got;

    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, me.win);
    MPI_Get(&got, 1, MPI_INT, 0, 0, 1, MPI_INT, me.win);
    MPI_Win_flush(0, me.win);
}

/* A put and a get of the victim's memory, in which its processor has no part (not by messages). */
static int do_put(int k)
{
    int got = -1, rc;

    if ((rc = MPI_Win_lock(MPI_LOCK_SHARED, me.victim, MPI_MODE_NOCHECK, me.win)) == 0
        && (rc = MPI_Put(&k, 1, MPI_INT, me.victim, me.rank, 1, MPI_INT, me.win)) == 0
        && (rc = MPI_Win_flush(me.victim, me.win)) == 0
        && (rc = MPI_Get(&got, 1, MPI_INT, me.victim, me.rank, 1, MPI_INT, me.win)) == 0)
        rc = MPI_Win_unlock(me.victim, me.win);
    return verdict(rc, got == k);
}

/* Nothing: straight to MPI_Finalize. */
static int do_finalize(int k)
{
    (void)k;
    return 0;
}

/* The same, with a message under way that a dead victim does not take. */
static int do_finalize_sent(int k)
{
    return k == WARM_UP && me.rank != me.victim
               ? MPI_Send(&k, 1, MPI_INT, me.victim, 9, MPI_COMM_WORLD) : 0;
}

static const struct what {
    const char *name;
    int (*repeat)(int k);
    void (*last)(void);      /* what the victim does last */
} whats[] = {
    { "allreduce", do_allreduce, NULL },
    { "allreduce_long", do_allreduce_long, NULL },
    { "iallreduce", do_iallreduce, NULL },
    { "reduce", do_reduce, NULL },
    { "bcast", do_bcast, NULL },
    { "barrier", do_barrier, NULL },
    { "recv", do_recv, NULL },
    { "anysource", do_anysource, NULL },
    { "ssend", do_ssend, NULL },
    { "cancel", do_cancel, NULL },
    { "many", do_many, NULL },
    { "others", do_others, NULL },
    { "long", do_long, NULL },
    { "sparse", do_sparse, NULL },
    { "fence", do_fence, NULL },
    { "lock", do_lock, hold_lock },
    { "put", do_put, NULL },
    { "finalize", do_finalize, NULL },
    { "finalize_sent", do_finalize_sent, NULL },
};

static const struct what *find_what(const char *name)
{
    for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++)
        if (strcmp(whats[i].name, name) == 0)
            return &whats[i];
    fprintf(stderr, "lost: there is no %s\n", name);
    exit(2);
}

static bool uses_window(const struct what *what)
{
    return what->repeat == do_fence || what->repeat == do_lock || what->repeat == do_put;
}

/* The first error ends the repetitions, a wrong result does not. */
static void repeat(const struct what *what)
{
    int wrong = 0, rc = 0, class = 0, k;

    for (k = WARM_UP; k < REPEATS && rc <= 0; k++) {
        rc = what->repeat(k);
        wrong += rc == WRONG;
    }
    if (wrong)
        printf("rank %d: %d results wrong\n", me.rank, wrong);
    if (rc > 0) {
        MPI_Error_class(rc, &class);
        printf("rank %d: error class %d after %d\n", me.rank, class, k - 1);
    }
    fflush(stdout);
}

static void die(const char *death)
{
    if (strcmp(death, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(death, "late") == 0)
        sleep(1);
    _exit(EXIT_DEAD);
}

static void start(const struct what *what, bool returning)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &me.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &me.size);
    me.victim = me.size - 1;
    me.data = calloc(2 * LONG_INTS, sizeof(int));
    MPI_Type_vector(LONG_INTS / 2, 1, 2, MPI_INT, &me.sparse);
    MPI_Type_commit(&me.sparse);
    if (returning)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!uses_window(what))
        return;
    MPI_Win_create(me.data, 4096, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &me.win);
    if (returning)
        MPI_Win_set_errhandler(me.win, MPI_ERRORS_RETURN);
    if (what->repeat == do_fence)
        MPI_Win_fence(0, me.win);
}

int main(int argc, char **argv)
{
    const struct what *what = find_what(argc > 1 ? argv[1] : "");
    bool returning = argc > 2 && strcmp(argv[2], "return") == 0;
    const char *death = argc > 3 ? argv[3] : "none";
    bool warm_up = strcmp(death, "kill") == 0 || strcmp(death, "exit") == 0;

    MPI_Init(&argc, &argv);
    print_whole_lines();
    start(what, returning);
    for (int k = 0; warm_up && k < WARM_UP; k++)
        what->repeat(k);
    /* The victim's lock would keep the others in their warm-up. */
    if (warm_up)
        MPI_Barrier(MPI_COMM_WORLD);
    if (warm_up && me.rank == me.victim && what->last)
        what->last();
    if (warm_up)
        MPI_Barrier(MPI_COMM_WORLD);
    if (me.rank == me.victim && strcmp(death, "none") != 0)
        die(death);
    repeat(what);
    if (!uses_window(what) && !what->last)
        MPI_Finalize();
    printf("rank %d: finalized\n", me.rank);
    return 0;
}
