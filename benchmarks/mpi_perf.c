/* SPDX-License-Identifier: MIT */
/*
 * What MPI does between ranks 0 and 1, in one number.
 *
 *   mpi_perf TEST BYTES COUNT [WINDOW [SLICES]]
 *
 *   lat    half a round trip (us)
 *   bw     one way, WINDOW (16) messages under way all the time (MB/s, 10^6)
 *   bibw   both ways at the same time (MB/s, both together)
 *   rate   as bw, in messages per second (millions)
 *   reduce MPI_Allreduce of doubles (us)
 *
 * COUNT counts round trips, windows of messages, or calls of MPI_Allreduce. What is timed lies
 * between MPI_Pcontrol(1) and MPI_Pcontrol(0).
 *
 * With PERF_WARM_MS in the environment the ranks exchange messages for so many milliseconds first.
 * Where the ranks' processors are themselves processes of one machine, its scheduler takes some
 * 200 ms to spread them and what carries their frames.
 *
 * With SLICES the ranks are on one host, which may move them between near cores and far ones while
 * it is measured: so many times COUNT, each on a line of its own, with the times (us) that a cache
 * line took from one rank to the other one before and after it.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_WINDOW = 256, LINES = 200, PAGE = 4096 };

static int rank, bytes, window = 16, slices;
static long count;
static atomic_long *shared;      /* with slices: in a page that both ranks map */
static char *buf;                /* window messages to send, as many to receive */
static MPI_Request incoming[MAX_WINDOW], outgoing[MAX_WINDOW];

static char *message(int i)
{
    return buf + (size_t)i * (size_t)bytes;
}

static void ping(int to)
{
    MPI_Send(message(0), bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

static void pong(int from)
{
    MPI_Recv(message(1), bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void round_trip(void)
{
    if (rank == 0) {
        ping(1);
        pong(1);
    } else {
        pong(0);
        ping(0);
    }
}

/* As many messages as the window has, each as soon as the one before it in its place is done; the
 * ranks for which `sends` and `receives` is true do that. */
static void exchange(int sends, int receives)
{
    for (int i = 0; i < window; i++) {
        if (receives) {
            MPI_Wait(&incoming[i], MPI_STATUS_IGNORE);
            MPI_Irecv(message(window + i), bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD,
                      &incoming[i]);
        }
        if (sends) {
            MPI_Wait(&outgoing[i], MPI_STATUS_IGNORE);
            MPI_Isend(message(i), bytes, MPI_BYTE, !rank, 1, MPI_COMM_WORLD, &outgoing[i]);
        }
    }
}

static void one_way(void)
{
    exchange(rank == 0, rank == 1);
}

static void both_ways(void)
{
    exchange(1, 1);
}

static void reduce(void)
{
    MPI_Allreduce(message(0), message(1), bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
}

/* All that was begun is done. */
static void finish(void)
{
    for (int i = 0; i < window; i++) {
        MPI_Wait(&incoming[i], MPI_STATUS_IGNORE);
        MPI_Wait(&outgoing[i], MPI_STATUS_IGNORE);
    }
}

static double lat(double s)
{
    return s / (double)count / 2 * 1e6;
}

static double each(double s)
{
    return s / (double)count * 1e6;
}

static double bw(double s)
{
    return (double)count * window * bytes / s / 1e6;
}

static double bibw(double s)
{
    return 2 * bw(s);
}

static double rate(double s)
{
    return (double)count * window / s / 1e6;
}

static const struct {
    const char *name;
    void (*step)(void);
    double (*figure)(double seconds);
} tests[] = {
    { "lat", round_trip, lat }, { "bw", one_way, bw }, { "bibw", both_ways, bibw },
    { "rate", one_way, rate },        { "reduce", reduce, each },
};

/* False, on both: the ranks do not share memory. */
static int share(void)
{
    char name[] = "/dev/shm/mpi_perf-XXXXXX";
    int fd = rank == 0 ? mkstemp(name) : -1, mapped;

    if (rank == 0 && ftruncate(fd, PAGE))
        fd = -1;
    MPI_Bcast(name, sizeof(name), MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 1)
        fd = open(name, O_RDWR);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    mapped = shared != MAP_FAILED;
    MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0)
        unlink(name);
    if (rank == 0 && !mapped)
        fprintf(stderr, "mpi_perf: the ranks cannot share a page in /dev/shm\n");
    return mapped;
}

/* How long a cache line takes from one rank to the other one, us. */
static double line(void)
{
    static long turn;            /* as in the page, when none is under way */
    long end = turn + 2 * LINES;
    double start;

    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (; turn < end; turn += 2) {
        while (atomic_load(shared) != turn + rank)
            ;
        atomic_store(shared, turn + rank + 1);
    }
    while (rank == 0 && atomic_load(shared) != end)
        ;
    return (MPI_Wtime() - start) / (2 * LINES) * 1e6;
}

/* Seconds that `count` steps take, after those from `from` to 0, which warm up. */
static double timed(void (*step)(void), long from)
{
    double start = 0;

    for (long k = from; k < count; k++) {
        if (k == 0) {
            finish();
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Pcontrol(1);
            start = MPI_Wtime();
        }
        step();
    }
    finish();
    MPI_Pcontrol(0);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

static void warm_up(void)
{
    const char *ms = getenv("PERF_WARM_MS");
    double end = MPI_Wtime() + (ms ? atof(ms) / 1000 : 0);

    for (int more = ms != NULL; more; MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD)) {
        for (int k = 0; k < 10; k++)
            MPI_Barrier(MPI_COMM_WORLD);
        more = MPI_Wtime() < end;
    }
}

static int run(const char *name)
{
    double before, figure;
    size_t i = 0;

    while (i < sizeof(tests) / sizeof(tests[0]) && strcmp(tests[i].name, name))
        i++;
    if (i == sizeof(tests) / sizeof(tests[0]) || (slices > 0 && !share()))
        return 1;
    for (int k = 0; k < window; k++)
        incoming[k] = outgoing[k] = MPI_REQUEST_NULL;
    warm_up();
    figure = tests[i].figure(timed(tests[i].step, -count / 10 - 1));
    if (rank == 0 && slices == 0)
        printf("%.4f\n", figure);
    before = slices > 0 ? line() : 0;
    for (int k = 0; k < slices; k++) {
        double after;

        figure = tests[i].figure(timed(tests[i].step, 0));
        after = line();
        if (rank == 0)
            printf("%.4f %.4f %.4f\n", figure, before, after);
        before = after;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int size, wrong = 1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc >= 4 && size == 2) {
        bytes = atoi(argv[2]);
        count = atol(argv[3]);
        window = argc > 4 ? atoi(argv[4]) : window;
        slices = argc > 5 ? atoi(argv[5]) : 0;
        if (bytes >= 0 && count > 0 && window > 0 && window <= MAX_WINDOW) {
            buf = malloc(2 * (size_t)window * (size_t)(bytes ? bytes : 1));
            memset(buf, 1, 2 * (size_t)window * (size_t)(bytes ? bytes : 1));
            wrong = run(argv[1]);
            free(buf);
        }
    }
    if (wrong && rank == 0)
        fprintf(stderr, "mpi_perf: two ranks, lat|bw|bibw|rate|reduce BYTES COUNT [WINDOW up to %d "
                        "[SLICES]]\n",
                MAX_WINDOW);
    MPI_Finalize();
    return wrong;
}
