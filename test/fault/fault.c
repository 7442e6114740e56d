/* SPDX-License-Identifier: MIT */
/*
 * fault SEED MESSAGES MAX: all ranks send each other messages of 0 to MAX bytes, MESSAGES together,
 * while connections break, and compare every byte. Messages are numbered per pair of ranks; source,
 * destination and number give a message's length, bytes and mode. A rank receives them by
 * MPI_ANY_SOURCE and MPI_ANY_TAG, and each source's have to be complete and in order.
 *
 * Rank 0 prints "fault: N messages, B bytes: L lost, D doubled, R reordered, C corrupt", a line of
 * sums over all ranks: the faults that the provider has injected, as daplsoft reports, and the
 * counters that follow what has failed; by how much a rank has grown at most since a quarter of
 * its messages had been received: in bytes of heap, descriptors and mappings; and the longest time
 * between two messages that a rank received in one exchange.
 *
 * With FAULT_UNTIL in the environment they send MESSAGES again and again until that file exists,
 * and rank 0 prints "fault: exchange N" after each time.
 */
#include "../lines.h"

#include <dirent.h>
#include <malloc.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 16, TAGS = 32000, RANKS_MAX = 64 };

static struct {
    int rank, size;
    uint64_t seed;
    size_t max;
} me;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);        /* splitmix64 */
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* -- a message -------------------------------------------------------------------------------- */

/* What source, destination and number say; another value for each `what`. */
static uint64_t draw(int src, int dst, uint64_t number, uint64_t what)
{
    uint64_t pair = (uint64_t)src << 32 | (uint64_t)dst;

    return mix(mix(mix(me.seed + pair) + number) + what * UINT64_C(0x9e3779b97f4a7c15));
}

/* Half of all messages fit a frame, and one in 100 is up to the maximum. */
static size_t length_of(int src, int dst, uint64_t number)
{
    static const struct { unsigned percent; size_t most; } kind[] = {
        { 5, 0 }, { 30, 100 }, { 20, 5000 }, { 29, 40000 }, { 15, 300000 }, { 1, SIZE_MAX },
    };
    uint64_t percent = draw(src, dst, number, 1) % 100;
    size_t i = 0, most;

    while (percent >= kind[i].percent)
        percent -= kind[i++].percent;
    most = kind[i].most < me.max ? kind[i].most : me.max;
    return (size_t)(draw(src, dst, number, 2) % (most + 1));
}

static bool is_synchronous(int src, int dst, uint64_t number)
{
    return draw(src, dst, number, 3) % 8 == 0;
}

static uint64_t word_of(uint64_t first, size_t i)
{
    return (first + i) * UINT64_C(0x9e3779b97f4a7c15) ^ first;
}

static void fill(uint8_t *p, size_t len, uint64_t first)
{
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        uint64_t w = word_of(first, i);

        memcpy(p + i, &w, 8);
    }
    for (; i < len; i++)
        p[i] = (uint8_t)word_of(first, i);
}

static bool is_filled(const uint8_t *p, size_t len, uint64_t first)
{
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        uint64_t w = word_of(first, i);

        if (memcmp(p + i, &w, 8) != 0)
            return false;
    }
    for (; i < len; i++)
        if (p[i] != (uint8_t)word_of(first, i))
            return false;
    return true;
}

/* -- sending ---------------------------------------------------------------------------------- */

static struct {
    MPI_Request req[WINDOW];
    uint8_t *buf[WINDOW];
    uint64_t sent[RANKS_MAX];    /* by destination */
    uint64_t left;
} out;

/* The destination of the k-th message of this rank. */
static int destination(uint64_t k)
{
    int dst = (int)(draw(me.rank, -1, k, 4) % (uint64_t)(me.size - 1));

    return dst + (dst >= me.rank);
}

static void send_next(int i)
{
    int dst = destination(--out.left);
    uint64_t number = out.sent[dst]++;
    size_t len = length_of(me.rank, dst, number);

    fill(out.buf[i], len, draw(me.rank, dst, number, 5));
    (is_synchronous(me.rank, dst, number) ? MPI_Issend : MPI_Isend)(
        out.buf[i], (int)len, MPI_BYTE, dst, (int)(number % TAGS), MPI_COMM_WORLD, &out.req[i]);
}

static void send_some(void)
{
    int n, index[WINDOW];
    MPI_Status status[WINDOW];

    MPI_Testsome(WINDOW, out.req, &n, index, status);
    for (int i = 0; i < WINDOW && out.left > 0; i++)
        if (out.req[i] == MPI_REQUEST_NULL)
            send_next(i);
}

static bool all_sent(void)
{
    for (int i = 0; i < WINDOW; i++)
        if (out.req[i] != MPI_REQUEST_NULL)
            return false;
    return out.left == 0;
}

/* -- receiving -------------------------------------------------------------------------------- */

static struct {
    MPI_Request req[WINDOW];
    uint8_t *buf[WINDOW];
    uint64_t expected[RANKS_MAX], taken[RANKS_MAX];          /* by source */
    uint64_t posted, done, all;
    unsigned long long messages, bytes, lost, doubled, reordered, corrupt;
    double last, gap;            /* when the last one came, s; the longest time between two */
} in;

/* The oldest receive is complete. Messages are matched in the order of the receives. */
static void check(const MPI_Status *status)
{
    int src = status->MPI_SOURCE, len, slot = (int)(in.done % WINDOW);
    uint64_t number = in.taken[src]++;
    uint64_t ahead = ((uint64_t)status->MPI_TAG + TAGS - number % TAGS) % TAGS;

    double now = MPI_Wtime();

    MPI_Get_count(status, MPI_BYTE, &len);
    if (in.last > 0 && now - in.last > in.gap)
        in.gap = now - in.last;
    in.last = now;
    in.messages++;
    in.bytes += (unsigned long long)len;
    if (ahead > TAGS / 2) {
        in.doubled++;
        in.taken[src]--;
    } else if (ahead > 0) {
        in.reordered++;
    } else if ((size_t)len != length_of(src, me.rank, number)
               || !is_filled(in.buf[slot], (size_t)len, draw(src, me.rank, number, 5))) {
        in.corrupt++;
    }
    in.done++;
}

static void receive_some(void)
{
    MPI_Status status;
    int flag = 1;

    while (in.posted < in.all && in.posted < in.done + WINDOW) {
        int slot = (int)(in.posted++ % WINDOW);

        MPI_Irecv(in.buf[slot], (int)me.max, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                  &in.req[slot]);
    }
    while (in.done < in.posted) {
        MPI_Test(&in.req[in.done % WINDOW], &flag, &status);
        if (!flag)
            return;
        check(&status);
    }
}

/* The test finds its processes by files named after their ids. */
static void show_process(void)
{
    const char *folder = getenv("FAULT_PROCESSES");
    char path[1024];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%ld", folder ? folder : "/nowhere", (long)getpid());
    f = folder ? fopen(path, "w") : NULL;
    if (f)
        fclose(f);
}

/* -- what the process holds -------------------------------------------------------------------- */

enum { HEAP, DESCRIPTORS, MAPPINGS, HELD };

static long long count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    long long n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static long long count_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    long long n = 0;
    int c;

    while (f && (c = getc(f)) != EOF)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

static void look(long long held[HELD])
{
    struct mallinfo2 heap = mallinfo2();

    held[HEAP] = (long long)(heap.uordblks + heap.hblkhd);
    held[DESCRIPTORS] = count_files("/proc/self/fd");
    held[MAPPINGS] = count_lines("/proc/self/maps");
}

static void report_growth(const long long before[HELD])
{
    long long grown[HELD], most[HELD];

    look(grown);
    for (int i = 0; i < HELD; i++)
        grown[i] -= before[i];
    MPI_Reduce(grown, most, HELD, MPI_LONG_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (me.rank == 0)
        printf("fault: grown heap %lld descriptors %lld mappings %lld\n", most[HEAP],
               most[DESCRIPTORS], most[MAPPINGS]);
}

static void report_gap(void)
{
    double most;

    MPI_Reduce(&in.gap, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (me.rank == 0)
        printf("fault: gap %.0f us\n", most * 1e6);
}

/* -- the report ------------------------------------------------------------------------------- */

/* The value of a counter of this rank; 0 if there is none of that name. */
static unsigned long long counter(const char *name)
{
    unsigned long long value = 0;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    int count, index;

    if (MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS)
        return 0;
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count);
    MPI_T_pvar_read(session, handle, &value);
    MPI_T_pvar_session_free(&session);
    return value;
}

/* What the provider of this process has injected, by its tool. */
static unsigned long long injected(void)
{
    unsigned long long all = 0, n;
    char command[64], line[256];
    FILE *p;

    snprintf(command, sizeof(command), "daplsoft show %d", (int)getpid());
    p = popen(command, "r");
    while (p && fgets(line, sizeof(line), p))
        if (sscanf(line, "faults_injected: %llu", &n) == 1)
            all += n;
    if (p)
        pclose(p);
    return all;
}

static void report(void)
{
    static const char *const name[] = {
        "dapl_breaks", "dapl_reconnects", "dapl_replayed_frames", "dapl_old_frames", "dapl_dup",
        "dapl_stale_completions", "dapl_ia_reopens", "dapl_path_migrated", "dapl_path_failed",
        "dapl_path_balanced",
    };
    enum { NAMES = sizeof(name) / sizeof(name[0]), OWN = 7 };
    unsigned long long mine[NAMES + OWN] = {
        in.messages, in.bytes, in.lost, in.doubled, in.reordered, in.corrupt, injected(),
    }, sum[NAMES + OWN];

    for (int i = 0; i < NAMES; i++)
        mine[OWN + i] = counter(name[i]);
    MPI_Reduce(mine, sum, NAMES + OWN, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (me.rank != 0)
        return;
    printf("fault: %llu messages, %llu bytes: %llu lost, %llu doubled, %llu reordered, "
           "%llu corrupt\n", sum[0], sum[1], sum[2], sum[3], sum[4], sum[5]);
    printf("fault: injected %llu", sum[6]);
    for (int i = 0; i < NAMES; i++)
        printf(" %s %llu", name[i] + strlen("dapl_"), sum[OWN + i]);
    printf("\n");
    fflush(stdout);
}

/* -- a run ------------------------------------------------------------------------------------ */

/* All ranks send and receive so many messages, together. */
static void exchange(uint64_t messages, long long held[HELD])
{
    uint64_t per_dst[RANKS_MAX] = { 0 }, expected[RANKS_MAX];

    out.left = messages / (uint64_t)me.size;
    for (uint64_t k = 0; k < out.left; k++)
        per_dst[destination(k)]++;
    MPI_Alltoall(per_dst, 1, MPI_UINT64_T, expected, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < me.size; i++) {
        in.expected[i] += expected[i];
        in.all += expected[i];
    }
    in.last = 0;
    while (in.done < in.all || !all_sent()) {
        receive_some();
        send_some();
        if (!held[HEAP] && in.done >= in.all / 4)
            look(held);
    }
}

/* Is there to be another exchange? The same answer at all ranks. */
static bool goes_on(void)
{
    const char *until = getenv("FAULT_UNTIL");
    static int n;
    int more = me.rank == 0 && until && access(until, F_OK) != 0;

    if (me.rank == 0 && until) {
        printf("fault: exchange %d\n", ++n);
        fflush(stdout);
    }
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return more != 0;
}

int main(int argc, char **argv)
{
    long long held[HELD] = { 0 };
    int provided;

    MPI_Init(&argc, &argv);
    print_whole_lines();
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &me.size);
    if (argc != 4 || me.size < 2 || me.size > RANKS_MAX) {
        fprintf(stderr, "fault SEED MESSAGES MAX, with 2 to %d ranks\n", RANKS_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    show_process();
    me.seed = mix(strtoull(argv[1], NULL, 0));
    me.max = strtoull(argv[3], NULL, 0);
    for (int i = 0; i < WINDOW; i++) {
        out.buf[i] = malloc(me.max + 1);
        in.buf[i] = malloc(me.max + 1);
        out.req[i] = in.req[i] = MPI_REQUEST_NULL;
    }
    do
        exchange(strtoull(argv[2], NULL, 0), held);
    while (goes_on());
    for (int i = 0; i < me.size; i++)
        in.lost += in.expected[i] > in.taken[i] ? in.expected[i] - in.taken[i] : 0;
    MPI_Barrier(MPI_COMM_WORLD);
    report_growth(held);
    report_gap();
    report();
    MPI_Finalize();
    return in.lost + in.doubled + in.reordered + in.corrupt > 0;
}
