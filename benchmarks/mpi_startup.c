/* SPDX-License-Identifier: MIT */
/*
 * How a job starts and what its processes hold: an ordinary MPI program for any MPI, driven by
 * benchmarks/startup.py and test/scale.
 *
 *   init_ms      MPI_Init, the slowest rank
 *   wire_ms      of it, connecting: ch3:dapl's counter dapl_wire_us, the slowest rank (-1: another
 *                MPI)
 *   first_ms     the first round in which each pair of ranks exchanges a message
 *   second_ms    the second one: all connections stand
 *   pss_kib, anon_kib, fds, sockets, segments
 *                after MPI_Init and after both rounds ("_init", "_all"), the mean of the ranks:
 *                memory, shares of shared pages counted (Pss); private memory; open files, of them
 *                sockets; mappings of shared memory without a name (between two ranks of a host)
 *
 * Rank 0 prints them as one line of JSON. Exit status 0 only when every message was right.
 */
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PSS, ANON, FDS, SOCKETS, SEGMENTS, KINDS };

static const char *const kind_name[KINDS] = { "pss_kib", "anon_kib", "fds", "sockets", "segments" };

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

/* -- what this process holds ------------------------------------------------------------------ */

static void read_memory(double held[KINDS])
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double kib;

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "Pss: %lf", &kib) == 1)
            held[PSS] = kib;
        if (sscanf(line, "Anonymous: %lf", &kib) == 1)
            held[ANON] = kib;
    }
    if (f)
        fclose(f);
}

static void count_files(double held[KINDS])
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    char target[64];

    while (d && (e = readdir(d))) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);

        if (n < 0)
            continue;
        target[n] = '\0';
        held[FDS]++;
        held[SOCKETS] += strncmp(target, "socket:", 7) == 0;
    }
    if (d)
        closedir(d);
}

static void count_segments(double held[KINDS])
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];

    while (f && fgets(line, sizeof(line), f))
        held[SEGMENTS] += strstr(line, "/memfd:") != NULL;
    if (f)
        fclose(f);
}

static void take_stock(double held[KINDS])
{
    memset(held, 0, KINDS * sizeof(*held));
    read_memory(held);
    count_files(held);
    count_segments(held);
}

/* -- ch3:dapl's own counter ------------------------------------------------------------------- */

static int pvar_index(const char *name)
{
    int n = 0, i, level, class, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    MPI_T_enum e;

    MPI_T_pvar_get_num(&n);
    for (i = 0; i < n; i++) {
        char found[128], text[16];
        int found_len = sizeof(found), text_len = sizeof(text);

        if (MPI_T_pvar_get_info(i, found, &found_len, &level, &class, &type, &e, text, &text_len,
                                &bind, &readonly, &continuous, &atomic) == MPI_SUCCESS
            && strcmp(found, name) == 0)
            return i;
    }
    return -1;
}

/* -1: this MPI does not have it. */
static double pvar(const char *name)
{
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    unsigned long long value = 0;
    int provided, i, count;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    i = pvar_index(name);
    if (i >= 0) {
        MPI_T_pvar_session_create(&session);
        MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &count);
        MPI_T_pvar_read(session, handle, &value);
        MPI_T_pvar_handle_free(session, &handle);
        MPI_T_pvar_session_free(&session);
    }
    MPI_T_finalize();
    return i < 0 ? -1 : (double)value;
}

/* -- rounds ----------------------------------------------------------------------------------- */

/* Everybody with everybody, in steps in which each rank has one partner on each side. */
static int exchange(int rank, int size)
{
    int bad = 0;

    for (int step = 1; step < size; step++) {
        int to = (rank + step) % size, from = (rank - step + size) % size, got = -1;

        MPI_Sendrecv(&rank, 1, MPI_INT, to, step, &got, 1, MPI_INT, from, step, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        bad += got != from;
    }
    return bad;
}

/* One round, in ms on the slowest rank; adds what was wrong. */
static double timed_round(int rank, int size, int *bad)
{
    double start, ms, worst = 0;

    start = now_ms();
    *bad += exchange(rank, size);
    ms = now_ms() - start;
    MPI_Reduce(&ms, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return worst;
}

static void print_means(const char *when, const double sum[KINDS], int size)
{
    for (int k = 0; k < KINDS; k++)
        printf(", \"%s_%s\": %.1f", kind_name[k], when, sum[k] / size);
}

int main(int argc, char **argv)
{
    double own[2], worst[2], held[2][KINDS], sum[2][KINDS], first, second, start = now_ms();
    int rank, size, bad = 0, all_bad = 0;

    MPI_Init(&argc, &argv);
    own[0] = now_ms() - start;
    own[1] = pvar("dapl_wire_us") / 1e3;
    take_stock(held[0]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* The reduction comes after the round: it would connect some pairs before it. */
    first = timed_round(rank, size, &bad);
    second = timed_round(rank, size, &bad);
    take_stock(held[1]);
    MPI_Reduce(own, worst, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(held, sum, 2 * KINDS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"ranks\": %d, \"init_ms\": %.3f, \"wire_ms\": %.3f, \"first_ms\": %.3f, "
               "\"second_ms\": %.3f", size, worst[0], worst[1] < 0 ? -1 : worst[1], first, second);
        print_means("init", sum[0], size);
        print_means("all", sum[1], size);
        printf(", \"wrong\": %d}\n", all_bad);
    }
    MPI_Finalize();
    return all_bad != 0;
}
