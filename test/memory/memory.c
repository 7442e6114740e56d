/* SPDX-License-Identifier: MIT */
/*
 * Prints what this process holds of memory of its own, as `anonymous KIB` for each rank: pages that
 * it has written and shares with no file and no process. A count of pages, independent of time.
 *
 *   memory talk      after every rank has exchanged a message with every other one
 *   memory requests  after 100 requests have been under way at once
 *   memory window    how much more it is with a window, and the sizes that MPI_T shows
 *   memory reduce    page faults of 50 calls of MPI_Reduce, after some, as `faults N`
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int rank, size;

static long anonymous(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kib = -1;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Anonymous: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static void talk(void)
{
    int out = rank, *in = malloc((size_t)size * sizeof(*in));

    MPI_Allgather(&out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++)
        MPI_Sendrecv(&out, 1, MPI_INT, i, 0, &in[i], 1, MPI_INT, i, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++)
        if (in[i] != i)
            MPI_Abort(MPI_COMM_WORLD, 1);
    free(in);
}

/* Half of the requests receive, half send. */
static void requests(void)
{
    enum { HALF = 50 };
    MPI_Request under_way[2 * HALF];
    MPI_Status status[2 * HALF];
    int out = rank, in[HALF], left = (rank + size - 1) % size, right = (rank + 1) % size;

    for (int i = 0; i < HALF; i++)
        MPI_Irecv(&in[i], 1, MPI_INT, left, i, MPI_COMM_WORLD, &under_way[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < HALF; i++)
        MPI_Issend(&out, 1, MPI_INT, right, i, MPI_COMM_WORLD, &under_way[HALF + i]);
    MPI_Waitall(2 * HALF, under_way, status);
    for (int i = 0; i < HALF; i++)
        if (in[i] != left)
            MPI_Abort(MPI_COMM_WORLD, 1);
}

static int cvar(const char *name)
{
    int index, count, value = -1;
    MPI_T_cvar_handle handle;

    if (MPI_T_cvar_get_index(name, &index) || MPI_T_cvar_handle_alloc(index, NULL, &handle, &count))
        return -1;
    MPI_T_cvar_read(handle, &value);
    MPI_T_cvar_handle_free(&handle);
    return value;
}

/* More operations in one epoch than a small pool has. Each adds 1 to one of the other rank's
 * numbers; they go in messages. */
static int add_many(MPI_Win win, const long *mine)
{
    enum { OPS = 3000, CELLS = 16 };
    long one = 1, sum = 0;

    MPI_Win_fence(0, win);
    for (int i = 0; i < OPS; i++)
        MPI_Accumulate(&one, 1, MPI_LONG, (rank + 1) % size, i % CELLS, 1, MPI_LONG, MPI_SUM, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < CELLS; i++)
        sum += mine[i];
    return sum == OPS;
}

static void window(void)
{
    static long numbers[16];
    long before = anonymous();
    MPI_Win win;
    int right;

    MPI_Win_create(numbers, sizeof(numbers), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    printf("window %ld\n", anonymous() - before);
    right = add_many(win, numbers);
    MPI_Win_free(&win);
    printf("%s, pools of %d and %d\n", right ? "sums are right" : "WRONG SUMS",
           cvar("MPIR_CVAR_CH3_RMA_OP_GLOBAL_POOL_SIZE"),
           cvar("MPIR_CVAR_CH3_RMA_TARGET_GLOBAL_POOL_SIZE"));
}

/* Two lengths in turn: the temporary values of each have a block of their own. */
static void reduce(void)
{
    enum { MANY = 65536, CALLS = 50, FIRST = 20 };
    static double mine[MANY], sum[MANY];
    struct rusage begin, end;

    for (int i = 0; i < CALLS + FIRST; i++) {
        int n = i % 2 ? MANY : MANY / 3;

        if (i == FIRST)
            getrusage(RUSAGE_SELF, &begin);
        mine[n - 1] = i + rank;
        MPI_Reduce(mine, sum, n, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0 && sum[n - 1] != i * size + size * (size - 1) / 2.0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    getrusage(RUSAGE_SELF, &end);
    printf("faults %ld\n", end.ru_minflt - begin.ru_minflt);
}

int main(int argc, char **argv)
{
    int provided;

    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);       /* pages as they are touched */
    MPI_Init(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    talk();
    if (argc == 2 && strcmp(argv[1], "requests") == 0)
        requests();
    if (argc == 2 && strcmp(argv[1], "reduce") == 0)
        reduce();
    if (argc == 2 && strcmp(argv[1], "window") == 0)
        window();
    else
        printf("anonymous %ld\n", anonymous());
    MPI_T_finalize();
    MPI_Finalize();
    return 0;
}
