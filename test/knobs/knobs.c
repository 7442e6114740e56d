/* SPDX-License-Identifier: MIT */
/*
 * Knobs and counters as an MPI_T tool sees them.
 *
 *   knobs classes              the class of every counter, and that each can be read
 *   knobs late                 counters after MPI_Finalize
 *   knobs cvar NAME [VALUE]    a control variable after MPI_Init; VALUE is written before
 *   knobs transfer N LEN ...   rank 0 sends N messages of LEN bytes (pairs) to rank 1: what the
 *                              counters of the two grew by
 *   knobs paced N LEN          the same, with a pause before each message
 *   knobs gather N             ranks but 0 send N messages each to rank 0: the counters that grew
 *   knobs barriers N           N calls of MPI_Barrier: the counters that grew
 *   knobs sums N COUNT         2 N calls of MPI_Allreduce of COUNT numbers: the counters that grew
 *   knobs trees N LEN          N calls of MPI_Bcast and MPI_Reduce of LEN bytes, by roots in turn:
 *                              the counters that grew
 *   knobs unlike               one of which rank 0 has one number, the others two: its error
 *   knobs idle MS              rank 1 waits for a message while rank 0 sleeps: yields of its core,
 *                              and the counters that grew
 *   knobs exchange N           N messages in turn each way: how often the system gave the core of a
 *                              rank to another process, and the counters that grew
 *   knobs answers N LEN        N messages of LEN bytes each way, by turns, each compared, and one
 *                              more from each rank, which it cancels: the counters that grew
 *   knobs unmatched N LEN      N messages of LEN bytes arrive before their receives: the counters
 *                              that grew before these are posted
 *   knobs early LEN FILE       the first message of the job, of LEN bytes: rank 1 makes no progress
 *                              until rank 0 has sent it, and made FILE
 *   knobs tune NAME VALUE COUNTER COUNTER
 *                              messages between all ranks until the first counter has grown at
 *                              each; then the control variable is written, and the same for the
 *                              second
 *   knobs wired                connections that stand after MPI_Init
 *
 * Prints "rank R NAME VALUE" lines, and "fault: ..." for what is wrong.
 */
#include "../lines.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256 };

static const char prefix[] = "dapl_";

static struct counter {
    char name[64];
    int class, index;
    MPI_T_pvar_handle handle;
    unsigned long long before;
} counters[MOST];
static int n_counters, rank, size;
static MPI_T_pvar_session session;
static unsigned long long yields;

/* The library's calls come here: it has been loaded after this program. */
int sched_yield(void)
{
    yields++;
    return (int)syscall(SYS_sched_yield);
}

static void check(int good, const char *what, const char *name)
{
    if (!good)
        printf("fault: rank %d: %s %s\n", rank, what, name);
}

static int class_of(const char *name)
{
    const char *end = strrchr(name, '_');

    if (end && strcmp(end, "_max") == 0)
        return MPI_T_PVAR_CLASS_HIGHWATERMARK;
    return end && strcmp(end, "_us") == 0 ? MPI_T_PVAR_CLASS_TIMER : MPI_T_PVAR_CLASS_COUNTER;
}

/* Finds the counters; how many there are. */
static int find_counters(void)
{
    int total;

    n_counters = 0;
    MPI_T_pvar_get_num(&total);
    for (int i = 0; i < total && n_counters < MOST; i++) {
        struct counter *c = &counters[n_counters];
        int len = sizeof(c->name), verbosity, bind, readonly, continuous, atomic, no = 0;
        MPI_Datatype type;
        MPI_T_enum words;

        if (MPI_T_pvar_get_info(i, c->name, &len, &verbosity, &c->class, &type, &words, NULL, &no,
                                &bind, &readonly, &continuous, &atomic) != MPI_SUCCESS
            || strncmp(c->name, prefix, strlen(prefix)) != 0)
            continue;
        check(c->class == class_of(c->name), "wrong class of", c->name);
        check(type == MPI_UNSIGNED_LONG_LONG, "wrong type of", c->name);
        check(readonly && continuous, "not readonly and continuous:", c->name);
        c->index = i;
        n_counters++;
    }
    return n_counters;
}

static void open_counters(void)
{
    check(MPI_T_pvar_session_create(&session) == MPI_SUCCESS, "no session", "");
    for (int i = 0; i < n_counters; i++) {
        int count;

        check(MPI_T_pvar_handle_alloc(session, counters[i].index, NULL, &counters[i].handle, &count)
                  == MPI_SUCCESS && count == 1, "no handle of", counters[i].name);
    }
}

static unsigned long long value(struct counter *c)
{
    unsigned long long v = 0;

    check(MPI_T_pvar_read(session, c->handle, &v) == MPI_SUCCESS, "cannot be read:", c->name);
    return v;
}

static void note(void)
{
    for (int i = 0; i < n_counters; i++)
        counters[i].before = value(&counters[i]);
}

/* What has grown since note(). */
static void print_growth(void)
{
    for (int i = 0; i < n_counters; i++) {
        unsigned long long v = value(&counters[i]);

        if (v != counters[i].before)
            printf("rank %d %s %llu\n", rank, counters[i].name + strlen(prefix),
                   v - counters[i].before);
    }
}

static void token(int from, int to)
{
    if (rank == from)
        MPI_Send(NULL, 0, MPI_BYTE, to, 1, MPI_COMM_WORLD);
    else if (rank == to)
        MPI_Recv(NULL, 0, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void messages(int from, int to, int n, int len, int pause_ms)
{
    struct timespec pause = { 0, pause_ms * 1000000L };
    char *buf = calloc(1, (size_t)len + 1);

    for (int i = 0; i < n; i++)
        if (rank == from) {
            nanosleep(&pause, NULL);
            MPI_Send(buf, len, MPI_BYTE, to, 0, MPI_COMM_WORLD);
        } else if (rank == to) {
            MPI_Recv(buf, len, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    free(buf);
}

/* The first token is counted by rank 0 only before, the last one by rank 1 only after. */
static void transfer(char **pairs, int pause_ms)
{
    if (rank == 1)
        note();
    token(1, 0);
    if (rank == 0)
        note();
    for (; pairs[0] && pairs[1]; pairs += 2)
        messages(0, 1, atoi(pairs[0]), atoi(pairs[1]), pause_ms);
    if (rank == 1)
        print_growth();
    token(1, 0);
    if (rank == 0)
        print_growth();
}

static void gather(int n)
{
    note();
    for (int r = 1; r < size; r++) {
        messages(r, 0, n, 8, 0);
        token(0, r);
    }
    print_growth();
}

static void barriers(int n)
{
    note();
    for (int i = 0; i < n; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    print_growth();
}

static void trees(int n, int len)
{
    int count = len / (int)sizeof(long long);
    long long *own = calloc((size_t)count, sizeof(*own));
    long long *sum = calloc((size_t)count, sizeof(*sum));

    note();
    for (int i = 0; i < n; i++) {
        int root = i % size;

        for (int k = 0; k < count; k++)
            own[k] = rank == root ? k + i : 0;
        MPI_Bcast(own, count, MPI_LONG_LONG, root, MPI_COMM_WORLD);
        for (int k = 0; k < count; k++)
            check(own[k] == k + i, "not what was sent:", "MPI_Bcast");
        MPI_Reduce(own, sum, count, MPI_LONG_LONG, MPI_SUM, root, MPI_COMM_WORLD);
        for (int k = 0; rank == root && k < count; k++)
            check(sum[k] == (long long)(k + i) * size, "not the sum:", "MPI_Reduce");
    }
    print_growth();
    free(own);
    free(sum);
}

static void sums(int n, int count)
{
    long long *own = calloc((size_t)count, sizeof(*own));
    long long *sum = calloc((size_t)count, sizeof(*sum));
    int ranks;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    note();
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < count; k++)
            own[k] = k + i * rank;
        MPI_Allreduce(own, sum, count, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (int k = 0; k < count; k++)
            if (sum[k] != (long long)k * ranks + (long long)i * ranks * (ranks - 1) / 2)
                MPI_Abort(MPI_COMM_WORLD, 1);
        MPI_Allreduce(MPI_IN_PLACE, own, count, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
        for (int k = 0; k < count; k++)
            if (own[k] != k + (long long)i * (ranks - 1))
                MPI_Abort(MPI_COMM_WORLD, 1);
    }
    print_growth();
    free(own);
    free(sum);
}

static void unlike(void)
{
    int own[2] = { 1, 1 }, sum[2], rc, len;
    char text[MPI_MAX_ERROR_STRING];

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    rc = MPI_Allreduce(own, sum, rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Error_string(rc, text, &len);
    printf("%s\n", text);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void idle(int ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000L };

    token(1, 0);
    note();
    yields = 0;
    if (rank == 0)
        nanosleep(&t, NULL);
    token(0, 1);
    if (rank == 1) {
        printf("rank 1 yields %llu\n", yields);
        print_growth();
    }
}

/* Times that the system gave this process's core to another one. */
static long switches(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return r.ru_nvcsw + r.ru_nivcsw;
}

static void exchange(int n)
{
    long before;

    token(1, 0);
    note();
    before = switches();
    for (int i = 0; i < n; i++) {
        token(0, 1);
        token(1, 0);
    }
    printf("rank %d switches %ld\n", rank, switches() - before);
    print_growth();
}

static unsigned char byte_of(int number, int i)
{
    return (unsigned char)(number * 31 + i * 7 + (i >> 8));
}

/* Sends a message that differs from all others, or receives and compares it. */
static void patterned(int from, int number, unsigned char *buf, int len)
{
    int wrong = 0;

    if (rank == from) {
        for (int i = 0; i < len; i++)
            buf[i] = byte_of(number, i);
        MPI_Send(buf, len, MPI_BYTE, !from, 0, MPI_COMM_WORLD);
        return;
    }
    memset(buf, 0, (size_t)len);
    MPI_Recv(buf, len, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < len; i++)
        wrong += buf[i] != byte_of(number, i);
    check(wrong == 0, "another message than", "was sent");
}

/* A message for which there is no receive. */
static void cancelled(int from, unsigned char *buf, int len)
{
    MPI_Request req;
    MPI_Status status;
    int yes = 0;

    if (rank == from) {
        MPI_Isend(buf, len, MPI_BYTE, !from, 0, MPI_COMM_WORLD, &req);
        MPI_Cancel(&req);
        MPI_Wait(&req, &status);
        MPI_Test_cancelled(&status, &yes);
        check(yes, "cannot cancel", "a message");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void answers(int n, int len)
{
    unsigned char *buf = malloc((size_t)len);

    token(1, 0);
    note();
    for (int i = 0; i < 2 * n; i++)
        patterned(i % 2, i, buf, len);
    for (int from = 0; from < 2; from++) {
        cancelled(from, buf, len);
        patterned(from, from, buf, len);
    }
    print_growth();
    free(buf);
}

static void unmatched(int n, int len)
{
    unsigned char *buf = malloc((size_t)n * (size_t)len);
    MPI_Request *req = malloc((size_t)n * sizeof(MPI_Request));

    token(1, 0);
    note();
    for (int i = 0; rank == 0 && i < n; i++) {
        memset(buf + (size_t)i * (size_t)len, i + 1, (size_t)len);
        MPI_Isend(buf + (size_t)i * (size_t)len, len, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &req[i]);
    }
    token(0, 1);
    print_growth();
    for (int i = 0; i < n; i++) {
        if (rank == 0) {
            MPI_Wait(&req[i], MPI_STATUS_IGNORE);
            continue;
        }
        MPI_Recv(buf, len, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(buf[0] == i + 1 && memcmp(buf, buf + 1, (size_t)len - 1) == 0,
              "another message than", "was sent");
    }
    free(buf);
    free(req);
}

static void early(int len, const char *file)
{
    const struct timespec ms = { 0, 1000000 };
    unsigned char *buf = calloc(1, (size_t)len);
    MPI_Request req;

    if (rank == 0) {
        memset(buf, 7, (size_t)len);
        MPI_Isend(buf, len, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &req);
        fclose(fopen(file, "w"));
        MPI_Wait(&req, MPI_STATUS_IGNORE);
    } else {
        while (access(file, F_OK) != 0)
            nanosleep(&ms, NULL);
        MPI_Recv(buf, len, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(buf[0] == 7 && memcmp(buf, buf + 1, (size_t)len - 1) == 0, "another message than",
              "was sent");
    }
    free(buf);
}

static void cvar(const char *name, const char *text, int print)
{
    MPI_T_cvar_handle handle;
    char value[1024];
    int index, count;

    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS
        || MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS) {
        check(0, "no control variable", name);
        return;
    }
    if (text)
        check(MPI_T_cvar_write(handle, text) == MPI_SUCCESS, "cannot be written:", name);
    check(MPI_T_cvar_read(handle, value) == MPI_SUCCESS, "cannot be read:", name);
    if (print)
        printf("rank %d %s %s\n", rank, name, value);
    MPI_T_cvar_handle_free(&handle);
}

/* Messages between all ranks until this counter has grown at each. */
static void until_grown(const char *name)
{
    struct counter *c = counters;
    int mine = 0, all = 0;

    while (c < counters + n_counters && strcmp(c->name + strlen(prefix), name) != 0)
        c++;
    check(c < counters + n_counters, "no counter", name);
    while (c < counters + n_counters && !all) {
        mine = value(c) > c->before;
        MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
}

static void tune(char **words)
{
    until_grown(words[2]);
    note();
    MPI_Barrier(MPI_COMM_WORLD);    /* else the value counts before it is noted */
    cvar(words[0], words[1], 0);
    until_grown(words[3]);
    print_growth();
}

/* MPI_T outlives MPI: what it read before MPI_Finalize it reads after that. */
static void late(void)
{
    messages(0, 1, 10, 100, 0);
    note();
    MPI_Finalize();
    for (int i = 0; i < n_counters; i++)
        check(value(&counters[i]) >= counters[i].before
                  && value(&counters[i]) < counters[i].before + 1000000,
              "is lost in MPI_Finalize:", counters[i].name);
    for (int i = 0; i < n_counters; i++)
        if (strcmp(counters[i].name, "dapl_rx_msgs") == 0)
            printf("rank %d rx_msgs %llu\n", rank, value(&counters[i]));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int level;

    MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
    if (strcmp(what, "cvar") == 0)
        cvar(argv[2], argv[3], 0);
    MPI_Init(NULL, NULL);
    print_whole_lines();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    find_counters();
    open_counters();
    if (strcmp(what, "wired") == 0 || strcmp(what, "classes") == 0)
        print_growth();
    if (strcmp(what, "classes") == 0)
        printf("rank %d counters %d\n", rank, n_counters);
    if (strcmp(what, "cvar") == 0)
        cvar(argv[2], NULL, 1);
    if (strcmp(what, "transfer") == 0)
        transfer(argv + 2, 0);
    if (strcmp(what, "paced") == 0)
        transfer(argv + 2, 2);
    if (strcmp(what, "tune") == 0)
        tune(argv + 2);
    if (strcmp(what, "gather") == 0)
        gather(atoi(argv[2]));
    if (strcmp(what, "barriers") == 0)
        barriers(atoi(argv[2]));
    if (strcmp(what, "sums") == 0)
        sums(atoi(argv[2]), atoi(argv[3]));
    if (strcmp(what, "trees") == 0)
        trees(atoi(argv[2]), atoi(argv[3]));
    if (strcmp(what, "unlike") == 0)
        unlike();
    if (strcmp(what, "idle") == 0)
        idle(atoi(argv[2]));
    if (strcmp(what, "exchange") == 0)
        exchange(atoi(argv[2]));
    if (strcmp(what, "answers") == 0)
        answers(atoi(argv[2]), atoi(argv[3]));
    if (strcmp(what, "unmatched") == 0)
        unmatched(atoi(argv[2]), atoi(argv[3]));
    if (strcmp(what, "early") == 0)
        early(atoi(argv[2]), argv[3]);
    fflush(stdout);
    if (strcmp(what, "late") == 0)
        late();
    else
        MPI_Finalize();
    MPI_T_finalize();
    return 0;
}
