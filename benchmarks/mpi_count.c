/* SPDX-License-Identifier: MIT */
/*
 * The calls of short messages between two ranks of one host, for a profiler that counts
 * instructions (benchmarks/instructions.py): an ordinary MPI program for any MPI.
 *
 *   mpi_count COUNT FILE
 *
 * Rank 0 sends, rank 1 receives, COUNT messages of each size in each stage:
 *
 *   found     by MPI_Send; it has arrived before MPI_Recv is called
 *   posted    by MPI_Isend, with MPI_Wait when it has been received; MPI_Irecv is called before it
 *             is sent, MPI_Wait after it has arrived
 *
 * Some implementations do not end an MPI_Send until the receiver has polled. At the sizes at which
 * that is so, MPI_Isend and MPI_Wait replace it; rank 0 prints these sizes as one line, "[1024]".
 *
 * The calls that are counted are made in functions of their own, whose names are arguments of the
 * profiler: count_send() and so on; stage_done() is called after each stage. The ranks take turns
 * by words in the new file FILE, which both map: a rank that waits for the other one makes no MPI
 * call. The clock of the C library stands still, so that no implementation does more because the
 * machine is slow.
 */
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_BYTES = 1024, TAG = 1, IDLE_ROUNDS = 2000, CLOCKS = 16 };

static const int sizes[] = { 0, 8, 64, 1024 };
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

/* How often each rank has reached its part of a message. */
struct turns {
    _Alignas(64) atomic_long ready;      /* rank 1: the message may be sent */
    _Alignas(64) atomic_long sent;       /* rank 0: the message has been sent */
    _Alignas(64) atomic_long received;   /* rank 1 */
};

static struct {
    struct turns *turns;
    long messages;
    char body[MAX_BYTES];
    MPI_Request request;
} own;

/* -- the clock -------------------------------------------------------------------------------- */

static struct timespec stopped[CLOCKS];
static bool clock_stands;

/* The C library's clock for this program and all its libraries. */
int clock_gettime(clockid_t clock, struct timespec *t)
{
    if (!clock_stands || clock < 0 || clock >= CLOCKS)
        return (int)syscall(SYS_clock_gettime, clock, t);
    *t = stopped[clock];
    return 0;
}

static void stop_clock(void)
{
    for (int i = 0; i < CLOCKS; i++)
        syscall(SYS_clock_gettime, i, &stopped[i]);
    clock_stands = true;
}

/* -- the calls -------------------------------------------------------------------------------- */

static inline void send_one(int bytes)
{
    MPI_Send(own.body, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
}

static inline void start_one(int bytes)
{
    MPI_Isend(own.body, bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &own.request);
}

static inline void recv_one(int bytes)
{
    MPI_Recv(own.body, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static inline void post_one(int bytes)
{
    MPI_Irecv(own.body, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &own.request);
}

static inline void wait_one(int bytes)
{
    (void)bytes;
    MPI_Wait(&own.request, MPI_STATUS_IGNORE);
}

static inline void nothing(int bytes)
{
    (void)bytes;
}

#define COUNTED_CALL(name, call) \
    void name(int bytes); \
    __attribute__((noinline)) void name(int bytes) { call(bytes); }

COUNTED_CALL(count_send, send_one)
COUNTED_CALL(count_start, start_one)
COUNTED_CALL(count_recv, recv_one)
COUNTED_CALL(count_post, post_one)
COUNTED_CALL(count_wait, wait_one)

void stage_done(void);
__attribute__((noinline)) void stage_done(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* What a rank calls before and after the other one's part of a message: the sender when it may
 * send and when the message has been received; the receiver at first and when it has arrived. */
struct calls {
    void (*first)(int bytes), (*then)(int bytes);
};
enum { UNCOUNTED, COUNTED, HOW_MANY };
enum { FOUND, POSTED, STAGES };

static const struct calls sends[HOW_MANY] = {
    { send_one, nothing }, { count_send, nothing },
}, nonblocking_sends[HOW_MANY] = {
    { start_one, wait_one }, { count_start, count_wait },
}, receives[STAGES][HOW_MANY] = {
    [FOUND] = { { nothing, recv_one }, { nothing, count_recv } },
    [POSTED] = { { post_one, wait_one }, { count_post, count_wait } },
};

/* -- turns ------------------------------------------------------------------------------------ */

static struct turns *map_turns(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    void *p = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(struct turns)) == 0)
        p = mmap(NULL, sizeof(struct turns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    close(fd);
    return p;
}

static void reach(atomic_long *turn, long n)
{
    while (atomic_load(turn) < n)
        sched_yield();
}

static void poll_once(void)
{
    int found;

    MPI_Iprobe(MPI_ANY_SOURCE, TAG + 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
}

/* The sender polls once for each message, so that what the receiver gives back to it arrives. */
static void send_messages(const struct calls *calls, int bytes, long count)
{
    for (long i = 0; i < count; i++) {
        reach(&own.turns->ready, ++own.messages);
        memset(own.body, (char)own.messages, (size_t)bytes);
        calls->first(bytes);
        atomic_store(&own.turns->sent, own.messages);
        reach(&own.turns->received, own.messages);
        calls->then(bytes);
        poll_once();
    }
}

/* How many messages were wrong. */
static long receive_messages(const struct calls *calls, int bytes, long count)
{
    long bad = 0;

    for (long i = 0; i < count; i++) {
        memset(own.body, 0, sizeof(own.body));
        calls->first(bytes);
        atomic_store(&own.turns->ready, ++own.messages);
        reach(&own.turns->sent, own.messages);
        calls->then(bytes);
        atomic_store(&own.turns->received, own.messages);
        for (int at = 0, good = 1; good && at < bytes; at++) {
            good = own.body[at] == (char)own.messages;
            bad += !good;
        }
    }
    return bad;
}

/* A message of the sender of this size: is its send not done before it has been received? */
static bool send_waits(int bytes)
{
    int done;

    reach(&own.turns->ready, ++own.messages);
    memset(own.body, (char)own.messages, (size_t)bytes);
    start_one(bytes);
    MPI_Test(&own.request, &done, MPI_STATUS_IGNORE);
    atomic_store(&own.turns->sent, own.messages);
    reach(&own.turns->received, own.messages);
    MPI_Wait(&own.request, MPI_STATUS_IGNORE);
    return !done;
}

/* -- both ranks ------------------------------------------------------------------------------- */

static void all_sends(long count, const bool waits[SIZES], int counted)
{
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < SIZES; i++) {
            send_messages(s == POSTED || waits[i] ? &nonblocking_sends[counted] : &sends[counted],
                          sizes[i], count);
            if (counted)
                stage_done();
        }
}

static long all_receives(long count, int counted)
{
    long bad = 0;

    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < SIZES; i++) {
            bad += receive_messages(&receives[s][counted], sizes[i], count);
            if (counted)
                stage_done();
        }
    return bad;
}

static void sender(long count)
{
    bool waits[SIZES];
    const char *sep = "";

    printf("[");
    for (int i = 0; i < SIZES; i++) {
        waits[i] = send_waits(sizes[i]);
        if (waits[i])
            printf("%s%d", sep, sizes[i]), sep = ", ";
    }
    printf("]\n");
    all_sends(count, waits, UNCOUNTED);
    all_sends(count, waits, COUNTED);
}

static long receiver(long count)
{
    long bad = 0;

    for (int i = 0; i < SIZES; i++)
        bad += receive_messages(&receives[FOUND][UNCOUNTED], sizes[i], 1);
    return bad + all_receives(count, UNCOUNTED) + all_receives(count, COUNTED);
}

static long both(int rank, long count)
{
    long bad = 0;

    for (int i = 0; i < IDLE_ROUNDS; i++)
        poll_once();
    stop_clock();
    if (rank == 0)
        sender(count);
    else
        bad = receiver(count);
    clock_stands = false;
    return bad;
}

int main(int argc, char **argv)
{
    long bad = 1, count = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    int rank, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (count < 1 || ranks != 2) {
        fprintf(stderr, "mpi_count: two ranks, and arguments COUNT FILE\n");
    } else {
        own.turns = map_turns(argv[2]);
        MPI_Barrier(MPI_COMM_WORLD);
        bad = both(rank, count);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (bad)
        fprintf(stderr, "mpi_count: %ld messages were wrong\n", bad);
    MPI_Finalize();
    return bad != 0;
}
