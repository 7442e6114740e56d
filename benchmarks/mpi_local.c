/* SPDX-License-Identifier: MIT */
/*
 * What the ranks of one host do together and hold then: an ordinary MPI program for any MPI,
 * driven by benchmarks/shm.py.
 *
 *   mpi_local [ROUNDS]
 *
 *   first_ms    the first round: after a barrier each rank sends 8 bytes to each other one and
 *               receives from all, everything under way at once; the slowest rank
 *   later_ms    the median of the ROUNDS (20) after it
 *   first_faults, first_switches, later_faults, later_switches
 *               page faults and context switches of a rank in the first round, and in one of the
 *               later ones with its barrier and reduction; the mean of the ranks
 *   barrier_us  then ROUNDS barriers, the mean
 *   pss_kib, anon_kib, bare_kib
 *               after these, the median of the ranks: memory with its share of
 *               what processes share (Pss); private memory; and Pss before MPI_Init
 *   tcp_share   of 4 MiB that each rank then gets from the one before it, the part that came
 *               through its TCP sockets; the largest of the ranks: 0 in shared memory
 *   cores       what each rank may run on
 *
 * Rank 0 prints them as one line of JSON. Exit status 0 only when every message was right.
 */
#include <linux/tcp.h>
#include <mpi.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { LARGE = 4 << 20, MAX_FDS = 1024, MAX_CORES = 64 };

/* What one rank tells of itself at the end. */
struct holding {
    double pss_kib, anon_kib, bare_kib, tcp_share;
    char cores[MAX_CORES];
};

static int rank, size;

/* -- this process ----------------------------------------------------------------------------- */

/* Pages of hugetlbfs are not in the kernel's Pss: they count in full. */
static void read_memory(double *pss, double *anon)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    double part;
    char line[256];

    *pss = *anon = 0;
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "Pss: %lf", &part) == 1 || sscanf(line, "Shared_Hugetlb: %lf", &part) == 1
            || sscanf(line, "Private_Hugetlb: %lf", &part) == 1)
            *pss += part;
        sscanf(line, "Anonymous: %lf", anon);
    }
    if (f)
        fclose(f);
}

static double tcp_bytes(void)
{
    double sum = 0;

    for (int fd = 0; fd < MAX_FDS; fd++) {
        struct tcp_info info = { 0 };
        socklen_t len = sizeof(info);

        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0)
            sum += (double)info.tcpi_bytes_received;
    }
    return sum;
}

/* "0,2": in the environment's words, as many as there is room for. */
static void read_cores(char cores[MAX_CORES])
{
    cpu_set_t set;
    int n = 0;

    cores[0] = '\0';
    if (sched_getaffinity(0, sizeof(set), &set))
        return;
    for (int i = 0; i < CPU_SETSIZE && n < MAX_CORES - 8; i++)
        if (CPU_ISSET(i, &set))
            n += snprintf(cores + n, (size_t)(MAX_CORES - n), "%s%d", n ? "," : "", i);
}

/* -- messages --------------------------------------------------------------------------------- */

/* Everybody with everybody; how many messages were wrong. */
static int all_to_all(void)
{
    MPI_Request *requests = malloc(2 * (size_t)size * sizeof(*requests));
    long long *got = malloc((size_t)size * sizeof(*got)), mine = rank;
    int n = 0, bad = 0;

    for (int step = 1; step < size; step++) {
        int from = (rank - step + size) % size;

        MPI_Irecv(&got[from], 8, MPI_BYTE, from, 0, MPI_COMM_WORLD, &requests[n++]);
    }
    for (int step = 1; step < size; step++)
        MPI_Isend(&mine, 8, MPI_BYTE, (rank + step) % size, 0, MPI_COMM_WORLD, &requests[n++]);
    while (n > 0)
        MPI_Wait(&requests[--n], MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++)
        bad += i != rank && got[i] != i;
    free(requests);
    free(got);
    return bad;
}

/* What this process has cost the kernel since a start. */
struct costs {
    double faults, switches;
};

static struct costs costs_now(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (struct costs){ (double)(u.ru_minflt + u.ru_majflt),
                           (double)(u.ru_nvcsw + u.ru_nivcsw) };
}

/* Of `rounds` rounds since `start`, for each and in the mean of the ranks; known to rank 0. */
static struct costs costs_of(struct costs start, int rounds)
{
    struct costs now = costs_now(), sum = { 0, 0 };
    double mine[2] = { now.faults - start.faults, now.switches - start.switches };

    MPI_Reduce(mine, &sum, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return (struct costs){ sum.faults / rounds / size, sum.switches / rounds / size };
}

/* One round, in ms on the slowest rank; known to rank 0. */
static double timed_round(int *bad)
{
    double start, ms, worst = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    *bad += all_to_all();
    ms = (MPI_Wtime() - start) * 1e3;
    MPI_Reduce(&ms, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return worst;
}

/* A barrier in us, the mean of so many. */
static double barriers(int rounds)
{
    double start;

    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    for (int i = 0; i < rounds; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    return (MPI_Wtime() - start) * 1e6 / rounds;
}

static double tcp_share(void)
{
    char *out = calloc(2, LARGE);
    double before;

    MPI_Barrier(MPI_COMM_WORLD);
    before = tcp_bytes();
    MPI_Sendrecv(out, LARGE, MPI_BYTE, (rank + 1) % size, 1, out + LARGE, LARGE, MPI_BYTE,
                 (rank - 1 + size) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    free(out);
    return (tcp_bytes() - before) / LARGE;
}

/* -- what comes out --------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts the numbers. */
static double median(double *numbers, int n)
{
    qsort(numbers, (size_t)n, sizeof(*numbers), by_value);
    return (numbers[n / 2] + numbers[(n - 1) / 2]) / 2;
}

/* Of the double that is `offset` bytes into each holding; sorted into `numbers`. */
static double median_of(const struct holding *all, size_t offset, double *numbers)
{
    for (int i = 0; i < size; i++)
        memcpy(&numbers[i], (const char *)&all[i] + offset, sizeof(*numbers));
    return median(numbers, size);
}

static void print_holdings(const struct holding *all)
{
    double *numbers = malloc((size_t)size * sizeof(*numbers));

    printf(", \"pss_kib\": %.1f", median_of(all, offsetof(struct holding, pss_kib), numbers));
    printf(", \"anon_kib\": %.1f", median_of(all, offsetof(struct holding, anon_kib), numbers));
    printf(", \"bare_kib\": %.1f", median_of(all, offsetof(struct holding, bare_kib), numbers));
    median_of(all, offsetof(struct holding, tcp_share), numbers);
    printf(", \"tcp_share\": %.4f, \"cores\": [", numbers[size - 1]);
    for (int i = 0; i < size; i++)
        printf("%s\"%s\"", i ? ", " : "", all[i].cores);
    printf("]}\n");
    free(numbers);
}

static int measure(int rounds, double bare_kib)
{
    double *later = malloc((size_t)rounds * sizeof(*later)), first, barrier_us;
    struct costs of_first, of_later, start;
    struct holding own = { .bare_kib = bare_kib };
    struct holding *all = malloc((size_t)size * sizeof(*all));
    int bad = 0, all_bad = 0;

    start = costs_now();
    first = timed_round(&bad);
    of_first = costs_of(start, 1);
    start = costs_now();
    for (int i = 0; i < rounds; i++)
        later[i] = timed_round(&bad);
    of_later = costs_of(start, rounds);
    barrier_us = barriers(rounds);
    read_memory(&own.pss_kib, &own.anon_kib);
    own.tcp_share = tcp_share();
    read_cores(own.cores);
    MPI_Gather(&own, sizeof(own), MPI_BYTE, all, sizeof(own), MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&bad, &all_bad, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"ranks\": %d, \"wrong\": %d, \"first_ms\": %.4f, \"later_ms\": %.4f"
               ", \"barrier_us\": %.2f", size, all_bad, first, median(later, rounds), barrier_us);
        printf(", \"first_faults\": %.1f, \"first_switches\": %.1f, \"later_faults\": %.2f"
               ", \"later_switches\": %.2f", of_first.faults, of_first.switches, of_later.faults,
               of_later.switches);
        print_holdings(all);
    }
    free(later);
    free(all);
    return all_bad != 0;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20, wrong;
    double bare_kib, anon_kib;

    read_memory(&bare_kib, &anon_kib);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    wrong = measure(rounds < 1 ? 1 : rounds, bare_kib);
    MPI_Finalize();
    return wrong;
}
