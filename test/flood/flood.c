/* SPDX-License-Identifier: MIT */
/*
 * More messages than there are receives for: rank 2 sends COUNT or FEW messages to rank 0, while
 * rank 0 waits for rank 1, which begins when rank 2 has sent all of them.
 *
 *   flood late       rank 0 receives one message of each of the two in turn
 *   flood any        ... from any rank
 *   flood probe      ... as MPI_Probe finds them; a receive of no message waits all the time
 *   flood tags       it receives the last one of rank 2 before, which has a tag of its own; in this
 *                    and the last way rank 1 sends nothing
 *   flood window     rank 2 then puts into a window of rank 0, and rank 1 begins after that
 *   flood answers    rank 2 then receives a synchronous message of rank 0, which waits for both
 *   flood nobody     rank 0 receives none of them
 *
 * Prints "fault: ..." for what is wrong.
 */
#include "../lines.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 20000, FEW = 300, AHEAD = 1, LAST = 2, NEVER = 3, GO = 4, SYNC = 5 };

static int rank;

static void check(int good, const char *what, int number)
{
    if (!good)
        printf("fault: rank %d: %s %d\n", rank, what, number);
}

static void send(int to, int tag, int number)
{
    MPI_Send(&number, 1, MPI_INT, to, tag, MPI_COMM_WORLD);
}

static int receive(int from, int tag, MPI_Status *status)
{
    int number = -1;

    MPI_Recv(&number, 1, MPI_INT, from, tag, MPI_COMM_WORLD, status);
    return number;
}

/* What ranks 1 and 2 do; rank 2 sends so many messages. */
static void send_ahead(int n)
{
    if (rank == 1)
        receive(2, GO, MPI_STATUS_IGNORE);
    for (int i = 0; i < n; i++)
        send(0, AHEAD, i);
}

static void go(void)
{
    if (rank == 2)
        send(1, GO, 0);
}

/* All that ranks 1 and 2 do where COUNT messages are sent. Returns whether this is one of them. */
static bool sends_ahead(void)
{
    if (rank == 0)
        return false;
    send_ahead(COUNT);
    go();
    return true;
}

static void late(void)
{
    if (sends_ahead())
        return;
    for (int i = 0; i < COUNT; i++)
        for (int from = 1; from <= 2; from++)
            check(receive(from, AHEAD, MPI_STATUS_IGNORE) == i, "not in order: message", i);
}

/* The next message is of status->MPI_SOURCE. */
static void in_its_order(int number, int next[3], const MPI_Status *status)
{
    check(number == next[status->MPI_SOURCE]++, "not in order: message", number);
}

static void any(void)
{
    int next[3] = { 0 };
    MPI_Status status;

    if (sends_ahead())
        return;
    receive(1, AHEAD, &status);          /* the others wait meanwhile */
    next[1] = 1;
    for (int i = 1; i < 2 * COUNT; i++) {
        int number = receive(MPI_ANY_SOURCE, AHEAD, &status);

        in_its_order(number, next, &status);
    }
}

static void probe(void)
{
    int next[3] = { 0 }, nothing;
    MPI_Request never;
    MPI_Status status;

    if (sends_ahead())
        return;
    MPI_Irecv(&nothing, 1, MPI_INT, 1, NEVER, MPI_COMM_WORLD, &never);
    for (int i = 0; i < 2 * COUNT; i++) {
        MPI_Probe(i < COUNT ? 2 : MPI_ANY_SOURCE, AHEAD, MPI_COMM_WORLD, &status);
        in_its_order(receive(status.MPI_SOURCE, AHEAD, &status), next, &status);
    }
    MPI_Cancel(&never);
    MPI_Wait(&never, MPI_STATUS_IGNORE);
}

static void tags(void)
{
    if (rank > 0) {
        if (rank == 2) {
            send_ahead(FEW);
            send(0, LAST, FEW);
        }
        return;
    }
    check(receive(2, LAST, MPI_STATUS_IGNORE) == FEW, "not the last one", FEW);
    for (int i = 0; i < FEW; i++)
        check(receive(2, AHEAD, MPI_STATUS_IGNORE) == i, "not in order: message", i);
}

static void window(void)
{
    int memory = 0, put = 7;
    MPI_Win win;

    MPI_Win_create(&memory, sizeof(memory), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (rank > 0)
        send_ahead(FEW);
    if (rank == 2) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Put(&put, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
        MPI_Win_unlock(0, win);
    }
    go();
    for (int i = 0; rank == 0 && i < FEW; i++)
        for (int from = 1; from <= 2; from++)
            check(receive(from, AHEAD, MPI_STATUS_IGNORE) == i, "not in order: message", i);
    check(rank > 0 || memory == put, "no put, but", memory);
    MPI_Win_free(&win);
}

static void answers(void)
{
    MPI_Request wait[2];
    int number = 9, first;

    if (rank > 0)
        send_ahead(FEW);
    if (rank == 2)
        check(receive(0, SYNC, MPI_STATUS_IGNORE) == 9, "not the synchronous one", 9);
    go();
    if (rank > 0)
        return;
    MPI_Irecv(&first, 1, MPI_INT, 1, AHEAD, MPI_COMM_WORLD, &wait[0]);
    MPI_Issend(&number, 1, MPI_INT, 2, SYNC, MPI_COMM_WORLD, &wait[1]);
    for (int i = 0; i < 2; i++)
        MPI_Wait(&wait[i], MPI_STATUS_IGNORE);
    check(first == 0, "not the first of rank 1", first);
    for (int i = 0; i < FEW; i++) {
        check(receive(2, AHEAD, MPI_STATUS_IGNORE) == i, "not in order: message", i);
        check(i == 0 || receive(1, AHEAD, MPI_STATUS_IGNORE) == i, "not in order: message", i);
    }
}

static void nobody(void)
{
    if (rank == 2) {
        send_ahead(FEW);
        send(0, LAST, FEW);
    }
    if (rank == 0)
        receive(2, LAST, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = { { "late", late }, { "any", any }, { "probe", probe }, { "tags", tags },
                 { "window", window }, { "answers", answers }, { "nobody", nobody } };

    MPI_Init(&argc, &argv);
    print_whole_lines();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (argc > 1 && strcmp(argv[1], ways[i].name) == 0)
            ways[i].run();
    MPI_Finalize();
    return 0;
}
