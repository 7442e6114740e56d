/* SPDX-License-Identifier: MIT */
/*
 * MPI windows of ranks that share memory, and of ranks that do not. windows MODE [BYTES]:
 *
 *   stores      MPI_Win_allocate_shared: what one rank stores the next one loads, all the way
 *               round, and not one message is sent
 *   operations  MPI_Win_allocate: every rank adds to all; says how many messages that took
 *   created     the same, by MPI_Win_create with alloc_shm over a shared window's memory
 *   refused     MPI_Win_allocate_shared of BYTES must fail; says why, and the job goes on
 *   split       MPI_COMM_TYPE_SHARED: says how many ranks are in mine; a window of them is shared
 *   hold        adds to a shared window until it is killed
 *
 * Rank 0 prints. Exit status 0 only when everything was right.
 */
#include "../lines.h"

#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 200, ADDS = 500 };

static int rank, size;
static MPI_Aint bytes_wanted = 1;

static void check(int good, const char *what)
{
    if (good)
        return;
    printf("rank %d: wrong: %s\n", rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* -- counting messages ------------------------------------------------------------------------ */

static MPI_T_pvar_session session;
static MPI_T_pvar_handle sent;

static void count_open(void)
{
    int provided, index, count;

    check(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS
          && MPI_T_pvar_get_index("dapl_tx_msgs", MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS
          && MPI_T_pvar_session_create(&session) == MPI_SUCCESS
          && MPI_T_pvar_handle_alloc(session, index, NULL, &sent, &count) == MPI_SUCCESS,
          "the counter of messages is not there");
}

static unsigned long long messages(void)
{
    unsigned long long n;

    check(MPI_T_pvar_read(session, sent, &n) == MPI_SUCCESS, "the counter cannot be read");
    return n;
}

static void count_close(void)
{
    MPI_T_pvar_handle_free(session, &sent);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
}

/* -- stores ----------------------------------------------------------------------------------- */

/* Rank 0 has nothing, the others have different sizes and units. */
static MPI_Aint bytes_of(int r)
{
    return r == 0 ? 0 : 8 * (100 + r);
}

static int unit_of(int r)
{
    return r % 2 ? 8 : 4;
}

/* What MPI_Win_shared_query says of everybody. Where the first one's memory is. */
static char *queried(MPI_Win win, const char *mine, int apart)
{
    char *first, *next, *base;
    MPI_Aint bytes;
    int unit;

    MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &first);
    check(bytes == bytes_of(1) && unit == unit_of(1), "MPI_PROC_NULL is the first one with memory");
    next = first;
    for (int r = 0; r < size; r++) {
        MPI_Win_shared_query(win, r, &bytes, &unit, &base);
        check(bytes == bytes_of(r) && unit == unit_of(r), "size and unit of another rank");
        check(bytes == 0 || apart || base == next, "the parts are not one behind the other");
        check(bytes == 0 || !apart || (size_t)base % 4096 == 0, "a part apart is not on a page");
        check(r != rank || base == mine, "my part is elsewhere");
        next = bytes > 0 ? base + bytes : next;
    }
    return first;
}

/* A number goes round through the first long of each rank's part; rank 0 uses that of rank 1. */
static void go_round(MPI_Win win)
{
    _Atomic long *in, *out;
    MPI_Aint bytes;
    int unit;

    MPI_Win_shared_query(win, rank ? rank : 1, &bytes, &unit, &in);
    MPI_Win_shared_query(win, rank < size - 1 ? rank + 1 : MPI_PROC_NULL, &bytes, &unit, &out);
    in += rank == 0;             /* the second long of that part */
    out += rank == size - 1;
    for (long i = 1; i <= ROUNDS; i++) {
        if (rank == 0)
            atomic_store(out, i);
        while (atomic_load(in) != i)
            sched_yield();
        if (rank != 0)
            atomic_store(out, i);
    }
}

static void stores_of(MPI_Info info, int apart)
{
    unsigned long long before;
    MPI_Win win;
    char *mine;

    MPI_Win_allocate_shared(bytes_of(rank), unit_of(rank), info, MPI_COMM_WORLD, &mine, &win);
    queried(win, mine, apart);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    before = messages();
    go_round(win);
    check(messages() == before, "stores and loads sent messages");
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

static void stores(void)
{
    MPI_Info info;

    stores_of(MPI_INFO_NULL, 0);
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
    stores_of(info, 1);
    MPI_Info_free(&info);
    if (rank == 0)
        printf("%d rounds, no message\n", 2 * ROUNDS);
}

/* -- operations ------------------------------------------------------------------------------- */

/* Adds to a number of each rank and counts up another one, atomically. */
static void add(MPI_Win win)
{
    long one = 1, mine = rank + 1, old, last = -1;

    for (int i = 0; i < ADDS; i++) {
        MPI_Accumulate(&mine, 1, MPI_LONG, i % size, 0, 1, MPI_LONG, MPI_SUM, win);
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 1, MPI_SUM, win);
        MPI_Win_flush_all(win);
        check(old > last, "a counter went back");
        last = old;
    }
}

/* mine: my two numbers in the window. */
static void operate(MPI_Win win, long *mine)
{
    unsigned long long before, n[2];
    long sum = 0, all = (long)ADDS * size * (size + 1) / 2;

    mine[0] = mine[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    before = messages();
    add(win);
    n[0] = messages() - before;
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Reduce(&n[0], &n[1], 1, MPI_UNSIGNED_LONG_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine[0], &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    check(rank != 0 || (sum == all && mine[1] == (long)ADDS * size), "the sums");
    if (rank == 0)
        printf("the sums are right, %s\n", n[1] ? "with messages" : "no message");
}

static void operations(void)
{
    MPI_Win win;
    long *mine;

    MPI_Win_allocate(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    operate(win, mine);
    MPI_Win_free(&win);
}

static void created(void)
{
    MPI_Win under, win;
    MPI_Info info;
    long *mine;

    MPI_Win_allocate_shared(4 * sizeof(long), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &under);
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shm", "true");
    mine += rank % 3;            /* not in the same place of each part */
    MPI_Win_create(mine, 2 * sizeof(long), sizeof(long), info, MPI_COMM_WORLD, &win);
    operate(win, mine);
    MPI_Win_free(&win);
    MPI_Info_free(&info);
    MPI_Win_free(&under);
}

/* -- refused ---------------------------------------------------------------------------------- */

static void refused(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int rc, class, len;
    MPI_Win win;
    void *mine;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    rc = MPI_Win_allocate_shared(bytes_wanted, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    check(rc != MPI_SUCCESS, "the window was not refused");
    MPI_Error_class(rc, &class);
    MPI_Error_string(rc, text, &len);
    if (rank == 0)
        printf("class %s: %s\n", class == MPI_ERR_RMA_SHARED ? "RMA_SHARED"
               : class == MPI_ERR_NO_MEM ? "NO_MEM" : "other", text);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    operations();
}

/* -- split ------------------------------------------------------------------------------------ */

static void split(void)
{
    int n, least;
    MPI_Comm comm;
    MPI_Win win;
    int *mine;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
    MPI_Comm_size(comm, &n);
    MPI_Win_allocate_shared(sizeof(int), 1, MPI_INFO_NULL, comm, &mine, &win);
    MPI_Win_free(&win);
    MPI_Comm_free(&comm);
    MPI_Reduce(&n, &least, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks share memory\n", least);
}

/* -- hold ------------------------------------------------------------------------------------- */

static void hold(void)
{
    MPI_Win win;
    long *mine;

    MPI_Win_allocate_shared(1 << 20, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    MPI_Win_lock_all(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("holding\n");
        fflush(stdout);
    }
    for (;;) {
        long one = 1;

        MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
        MPI_Win_flush_all(win);
    }
}

/* -- all of them ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    { "stores", stores }, { "operations", operations }, { "created", created },
    { "refused", refused }, { "split", split }, { "hold", hold },
};

static void run(const char *name)
{
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(modes[i].name, name) == 0) {
            modes[i].run();
            return;
        }
    }
    check(0, "no such mode");
}

int main(int argc, char **argv)
{
    if (argc > 2)
        bytes_wanted = (MPI_Aint)atoll(argv[2]);
    MPI_Init(&argc, &argv);
    print_whole_lines();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    count_open();
    run(argc > 1 ? argv[1] : "");
    count_close();
    MPI_Finalize();
    return 0;
}
