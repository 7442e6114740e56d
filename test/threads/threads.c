/* SPDX-License-Identifier: MIT */
/*
 * Threads that wait in MPI calls, 2 ranks. threads MODE [FILE]: idle (each rank has WAITERS threads
 * that wait for a message each), relay (threads in pairs, one of each rank, reply to each other),
 * self (a thread waits for what another thread of its rank sends), async (a rank that makes no call
 * takes part in a transfer; FILE: how the other one says that it has ended).
 */
#include "../lines.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { WAITERS = 3, ROUNDS = 100, LONG = 4 << 20, IDLE_MS = 1000 };

static int rank;

static long switches(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return u.ru_nvcsw;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

static void start(pthread_t *thread, void *(*body)(void *), int n)
{
    for (long i = 0; i < n; i++)
        if (pthread_create(&thread[i], NULL, body, (void *)i))
            MPI_Abort(MPI_COMM_WORLD, 1);
}

static void join(pthread_t *thread, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

static void receive(int from, long tag, int expected)
{
    int number;

    MPI_Recv(&number, 1, MPI_INT, from, (int)tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (number != expected)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *wait_once(void *arg)
{
    receive(1 - rank, (long)arg, 7);
    return NULL;
}

static void idle(const char *file)
{
    const int number = 7;
    pthread_t thread[WAITERS];
    long before;

    (void)file;
    start(thread, wait_once, WAITERS);
    pause_ms(IDLE_MS / 4);       /* until they sleep */
    before = switches();
    pause_ms(IDLE_MS);
    printf("rank %d: %ld switches\n", rank, switches() - before);
    for (int i = 0; i < WAITERS; i++)
        MPI_Send(&number, 1, MPI_INT, 1 - rank, i, MPI_COMM_WORLD);
    join(thread, WAITERS);
}

static void *reply(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (rank == 0)
            MPI_Send(&i, 1, MPI_INT, 1, (int)(long)arg, MPI_COMM_WORLD);
        receive(1 - rank, (long)arg, i);
        if (rank == 1)
            MPI_Send(&i, 1, MPI_INT, 0, (int)(long)arg, MPI_COMM_WORLD);
    }
    return NULL;
}

static void relay(const char *file)
{
    pthread_t thread[WAITERS];

    (void)file;
    start(thread, reply, WAITERS);
    join(thread, WAITERS);
    printf("rank %d: %d replies\n", rank, WAITERS * ROUNDS);
}

static void *receive_all(void *arg)
{
    for (int i = 0; i < ROUNDS; i++)
        receive(rank, (long)arg, i);
    return NULL;
}

static void self(const char *file)
{
    pthread_t thread[WAITERS];

    (void)file;
    start(thread, receive_all, WAITERS);
    for (int i = 0; i < ROUNDS; i++) {
        pause_ms(2);             /* most of the time they sleep by then */
        for (int k = 0; k < WAITERS; k++)
            MPI_Send(&i, 1, MPI_INT, rank, k, MPI_COMM_WORLD);
    }
    join(thread, WAITERS);
    printf("rank %d: %d from itself\n", rank, WAITERS * ROUNDS);
}

static void async(const char *file)
{
    char *body = calloc(1, LONG);
    MPI_Request request;

    if (rank == 0) {
        MPI_Irecv(body, LONG, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
        while (access(file, F_OK))
            ;                    /* computes */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        memset(body, 'x', LONG);
        MPI_Ssend(body, LONG, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        fclose(fopen(file, "w"));
    }
    printf("rank %d: %s\n", rank, body[LONG - 1] == 'x' ? "transferred" : "wrong");
    free(body);
}

static const struct {
    const char *name;
    void (*run)(const char *file);
} modes[] = { { "idle", idle }, { "relay", relay }, { "self", self }, { "async", async } };

int main(int argc, char **argv)
{
    int provided;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    print_whole_lines();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(argv[1], modes[i].name) == 0)
            modes[i].run(argc > 2 ? argv[2] : "");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
