/* SPDX-License-Identifier: MIT */
/*
 * awaited [multiple]: blocking receives of rank 1, of messages of rank 0 and of its own. For each
 * of the cases below it prints "NAME N": how many messages it received without a request (the
 * counter awaited). "wrong: ..." for what is not as MPI says. multiple: with MPI_THREAD_MULTIPLE.
 */
#include "../lines.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20, TAG = 7 };

static int rank;
static unsigned char out[MOST], in[MOST];
static const char *name;         /* of the case */
static MPI_T_pvar_session session;
static MPI_T_pvar_handle counter;

static void check(int good, const char *what)
{
    if (!good)
        printf("wrong: %s: %s\n", name, what);
}

static void find_counter(void)
{
    int index, count;

    check(MPI_T_pvar_get_index("dapl_awaited", MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS
              && MPI_T_pvar_session_create(&session) == MPI_SUCCESS
              && MPI_T_pvar_handle_alloc(session, index, NULL, &counter, &count) == MPI_SUCCESS,
          "there is no counter");
}

static unsigned long long counted(void)
{
    unsigned long long v = 0;

    MPI_T_pvar_read(session, counter, &v);
    return v;
}

static void fill(int len, int tag)
{
    for (int i = 0; i < len; i++)
        out[i] = (unsigned char)(i * 7 + len + tag);
}

static void send(int len, int tag)
{
    fill(len, tag);
    MPI_Send(out, len, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
}

static int is_filled(const unsigned char *bytes, int len, int tag)
{
    for (int i = 0; i < len; i++)
        if (bytes[i] != (unsigned char)(i * 7 + len + tag))
            return 0;
    return 1;
}

static void check_status(const MPI_Status *status, int source, int len, int tag)
{
    int count = -1, cancelled = 1;

    MPI_Get_count(status, MPI_BYTE, &count);
    MPI_Test_cancelled(status, &cancelled);
    check(status->MPI_SOURCE == source && status->MPI_TAG == tag, "the envelope in the status");
    check(count == len, "the length in the status");
    check(!cancelled, "cancelled in the status");
}

/* Receives as many bytes as there are, into a buffer that has room for more. */
static void receive(int source, int tag, int len, int of_tag)
{
    MPI_Status status;

    memset(&status, 0xa5, sizeof(status));
    memset(in, 0, sizeof(in));
    MPI_Recv(in, len + 8, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status);
    check(is_filled(in, len, of_tag), "the bytes");
    check(in[len] == 0, "the byte behind them");
    check_status(&status, 0, len, of_tag);
}

/* -- cases ------------------------------------------------------------------------------------ */

static const int lengths[] = { 0, 1, 3, 8, 16, 17, 32, 33, 64, 65, 500, 2111, 2112, 4000 };
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* Rank 0 goes on when rank 1 has received what it has sent. */
static void in_step(void)
{
    if (rank == 0)
        MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
}

static void lengths_case(void)
{
    for (int i = 0; i < LENGTHS; i++) {
        if (rank == 0)
            send(lengths[i], TAG);
        else
            receive(0, TAG, lengths[i], TAG);
        in_step();
    }
}

/* Rank 0 runs ahead. */
static void stream_case(void)
{
    for (int i = 0; i < 200; i++) {
        if (rank == 0)
            send(i, TAG);
        else
            receive(0, TAG, i, TAG);
    }
}

static void any_case(void)
{
    for (int i = 0; i < 8; i++) {
        if (rank == 0)
            send(24, i);
        else
            receive(i & 1 ? MPI_ANY_SOURCE : 0, i & 2 ? MPI_ANY_TAG : i, 24, i);
        in_step();
    }
}

static void ignored_case(void)
{
    if (rank == 0)
        send(24, TAG);
    else
        MPI_Recv(in, 24, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(rank == 0 || is_filled(in, 24, TAG), "the bytes");
}

static void truncated_case(void)
{
    MPI_Status status;
    int errclass, rc;

    if (rank == 0) {
        send(8, TAG);
        send(200, TAG);
        return;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int len = 4; len <= 100; len += 96) {
        memset(in, 0, sizeof(in));
        rc = MPI_Recv(in, len, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &status);
        MPI_Error_class(rc, &errclass);
        check(errclass == MPI_ERR_TRUNCATE, "a message is longer than the buffer");
        check(in[len] == 0, "the byte behind the buffer");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Each second byte, and bytes that begin behind the buffer's address. */
static void types_case(void)
{
    int lengths[2] = { 16, 16 };
    MPI_Aint at[2] = { 8, 24 };
    MPI_Datatype sparse, dense;

    if (rank == 0) {
        send(32, TAG);
        in_step();
        send(32, TAG);
        return;
    }
    MPI_Type_vector(32, 1, 2, MPI_BYTE, &sparse);
    MPI_Type_create_hindexed(2, lengths, at, MPI_BYTE, &dense);
    MPI_Type_commit(&sparse);
    MPI_Type_commit(&dense);
    MPI_Recv(in, 1, sparse, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 32; i++)
        out[i] = in[2 * i];
    check(is_filled(out, 32, TAG), "sparse bytes");
    in_step();
    MPI_Recv(in, 1, dense, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(is_filled(in + 8, 32, TAG), "bytes at an offset");
    MPI_Type_free(&sparse);
    MPI_Type_free(&dense);
}

/* A receive that was posted before gets the first message. */
static void posted_case(void)
{
    MPI_Request request;

    if (rank == 0) {
        send(10, TAG);
        send(20, TAG);
        return;
    }
    MPI_Irecv(out, 10, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    receive(0, TAG, 20, TAG);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(is_filled(out, 10, TAG), "the bytes of the first receive");
}

/* Messages in another order than their receives; those after them are awaited again. */
static void unexpected_case(void)
{
    for (int i = 0; rank == 0 && i < 10; i++)
        send(40, i);
    for (int i = 9; rank == 1 && i >= 0; i--)
        receive(0, i, 40, i);
    for (int i = 0; i < 40; i++) {
        if (rank == 0)
            send(40, TAG);
        else
            receive(0, TAG, 40, TAG);
    }
}

/* A message that arrives while rank 1 waits for another one comes before those that are sent later,
 * whatever its length. */
static void order_case(void)
{
    for (int len = 8; len < MOST; len *= 4) {
        MPI_Request request;

        if (rank == 0) {
            fill(len, TAG);
            memcpy(in, out, (size_t)len);
            MPI_Isend(in, len, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
            send(8, TAG + 1);
        } else {
            receive(0, TAG + 1, 8, TAG + 1);
        }
        in_step();
        if (rank == 0) {
            send(16, TAG);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            receive(0, TAG, len, TAG);
            receive(0, TAG, 16, TAG);
        }
    }
}

static void synchronous_case(void)
{
    memset(out, 1, 8);
    if (rank == 0)
        MPI_Ssend(out, 8, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    else
        MPI_Recv(in, 8, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(rank == 0 || memcmp(in, out, 8) == 0, "the bytes");
}

static void long_case(void)
{
    for (int len = 1 << 15; len < MOST; len *= 2) {
        if (rank == 0)
            send(len, TAG);
        else
            receive(0, TAG, len, TAG);
    }
}

/* Messages of its own, which no channel carries. */
static void own_case(void)
{
    MPI_Request request;
    MPI_Status status;

    for (int i = 0; rank == 1 && i < 2; i++) {
        MPI_Isend(out, 8, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
        MPI_Recv(in, 8, MPI_BYTE, i ? MPI_ANY_SOURCE : 1, TAG, MPI_COMM_WORLD, &status);
        check_status(&status, 1, 8, TAG);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void bcast_case(void)
{
    for (int i = 0; i < 5; i++) {
        memset(in, rank == 0 ? i + 1 : 0, 8);
        MPI_Bcast(in, 8, MPI_BYTE, 0, MPI_COMM_WORLD);
        check(in[0] == i + 1 && in[7] == i + 1, "the bytes");
        in_step();
    }
}

/* Other communicators: messages of the first one come before. */
static void context_case(void)
{
    MPI_Comm other;

    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    if (rank == 0) {
        send(24, TAG);
        MPI_Send(out, 24, MPI_BYTE, 1, TAG, other);
    } else {
        MPI_Recv(in, 24, MPI_BYTE, 0, TAG, other, MPI_STATUS_IGNORE);
        check(is_filled(in, 24, TAG), "the bytes");
        receive(0, TAG, 24, TAG);
    }
    MPI_Comm_free(&other);
}

/* One call sends to the other rank and receives from it; each rank has a tag of its own. */
static void exchange(int len)
{
    MPI_Status status;

    fill(len, rank);
    memset(in, 0, (size_t)len + 1);
    MPI_Sendrecv(out, len, MPI_BYTE, 1 - rank, rank, in, len + 1, MPI_BYTE, 1 - rank, 1 - rank,
                 MPI_COMM_WORLD, &status);
    check(is_filled(in, len, 1 - rank) && in[len] == 0, "the bytes");
    check_status(&status, 1 - rank, len, 1 - rank);
}

static void exchange_case(void)
{
    for (int i = 0; i < LENGTHS; i++)
        exchange(lengths[i]);
}

static void exchange_long_case(void)
{
    for (int len = 1 << 15; len < MOST; len *= 2)
        exchange(len);
}

/* With itself, and with nobody at one end or both. */
static void exchange_alone_case(void)
{
    const int with[][2] = { { rank, rank },
                            { MPI_PROC_NULL, MPI_PROC_NULL },
                            { MPI_PROC_NULL, 1 - rank },
                            { 1 - rank, MPI_PROC_NULL } };

    for (int i = 0; i < 4; i++) {
        int dest = with[i][rank], source = with[i][1 - rank];
        MPI_Status status;

        fill(24, 0);
        memset(in, 0, 24);
        MPI_Sendrecv(out, 24, MPI_BYTE, dest, TAG, in, 24, MPI_BYTE, source, TAG, MPI_COMM_WORLD,
                     &status);
        check(source == MPI_PROC_NULL ? in[0] == 0 && in[1] == 0 : is_filled(in, 24, 0),
              "the bytes");
        check_status(&status, source, source == MPI_PROC_NULL ? 0 : 24,
                     source == MPI_PROC_NULL ? MPI_ANY_TAG : TAG);
    }
}

static void exchange_truncated_case(void)
{
    int errclass, rc;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    rc = MPI_Sendrecv(out, 24, MPI_BYTE, 1 - rank, TAG, in, 8, MPI_BYTE, 1 - rank, TAG,
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(rc, &errclass);
    check(errclass == MPI_ERR_TRUNCATE, "a message is longer than the buffer");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* An algorithm of exchanges. */
static void allgather_case(void)
{
    for (int i = 0; i < 5; i++) {
        unsigned char mine[8], both[16] = { 0 };

        memset(mine, 2 * i + rank + 1, sizeof(mine));
        MPI_Allgather(mine, 8, MPI_BYTE, both, 8, MPI_BYTE, MPI_COMM_WORLD);
        check(both[0] == 2 * i + 1 && both[15] == 2 * i + 2, "the bytes");
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    { "lengths", lengths_case },     { "stream", stream_case },
    { "any", any_case },             { "ignored", ignored_case },
    { "truncated", truncated_case }, { "types", types_case },
    { "posted", posted_case },       { "unexpected", unexpected_case },
    { "long", long_case },           { "synchronous", synchronous_case },
    { "order", order_case },
    { "own", own_case },             { "bcast", bcast_case },
    { "context", context_case },     { "exchange", exchange_case },
    { "allgather", allgather_case }, { "exchange_long", exchange_long_case },
    { "alone", exchange_alone_case }, { "exchange_truncated", exchange_truncated_case },
};

int main(int argc, char **argv)
{
    int wanted = argc > 1 && strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE
                                                              : MPI_THREAD_SINGLE;
    int provided;

    MPI_Init_thread(&argc, &argv, wanted, &provided);
    print_whole_lines();
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    find_counter();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned long long before;

        name = cases[i].name;
        MPI_Barrier(MPI_COMM_WORLD);
        before = counted();
        in_step();               /* in the barrier rank 1 would find what rank 0 sends next */
        cases[i].run();
        if (rank == 1)
            printf("%s %llu\n", name, counted() - before);
    }
    MPI_Finalize();
    return 0;
}
