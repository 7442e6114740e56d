/* SPDX-License-Identifier: MIT */
/*
 * types: messages of many lengths into buffers of many shapes, on 2 ranks. What fits arrives, what
 * does not is an MPI_ERR_TRUNCATE, nothing else is written, and the next message is right. Prints
 * a line for each case that is wrong, and at the end how many there were.
 * types big GIB: one message of so many GiB into every second double.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 1, NEXT_TAG = 2, GAP = 0xee, BYTES_MAX = 12 << 20 };

/* How a buffer of `room` bytes lies in memory: blocks of `block` bytes, `stride` apart. */
static const struct shape {
    const char *name;
    int block, stride;
} shapes[] = {
    { "contiguous", 1, 1 },
    { "every second byte", 1, 2 },
    { "3 of 5 bytes", 3, 5 },
    { "blocks of 100 KiB", 102400, 102500 },
};
static const int lens[] = { 1, 100, 4000, 8100, 9000, 70000, 300000, 3000000, 9000001 };
static const int rooms[] = { 0, 1, 999, 50000, 2999999, 9000001 };

static int rank, cases, bad;
static unsigned char *out, *in;

static unsigned char byte_at(int len, int i)
{
    return (unsigned char)((i * 2654435761u + (unsigned)len) >> 24);
}

static void complain(const struct shape *s, int len, int room, const char *what, int value)
{
    printf("%s, %d bytes into %d: %s %d\n", s->name, len, room, what, value);
    bad++;
}

/* The bytes that the type of this shape has are right as far as the message goes, the others and
 * those in between are as they were. */
static bool right(const struct shape *s, int len, int room)
{
    int at = 0;

    for (int i = 0; i < room; i++) {
        unsigned char want = i < len ? byte_at(len, i) : GAP;

        at = i / s->block * s->stride + i % s->block;
        if (in[at] != want)
            return false;
        if (i % s->block == s->block - 1)
            for (int k = at + 1; k < at + 1 + s->stride - s->block; k++)
                if (in[k] != GAP)
                    return false;
    }
    return true;
}

static MPI_Datatype make_type(const struct shape *s, int room)
{
    MPI_Datatype body, tail, both;
    int lengths[2] = { 1, room % s->block };
    MPI_Aint at[2] = { 0, (MPI_Aint)(room / s->block) * s->stride };

    MPI_Type_vector(room / s->block, s->block, s->stride, MPI_CHAR, &body);
    MPI_Type_contiguous(1, MPI_CHAR, &tail);
    MPI_Type_create_struct(2, lengths, at, (MPI_Datatype[]){ body, tail }, &both);
    MPI_Type_commit(&both);
    MPI_Type_free(&body);
    MPI_Type_free(&tail);
    return both;
}

static void receive(const struct shape *s, int len, int room, bool posted_first)
{
    MPI_Datatype type = make_type(s, room);
    MPI_Request req;
    MPI_Status status;
    int rc, class = 0, next = 0, got = 0;

    memset(in, GAP, (size_t)BYTES_MAX * 2);
    if (posted_first)
        MPI_Irecv(in, 1, type, 0, TAG, MPI_COMM_WORLD, &req);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!posted_first) {
        MPI_Probe(0, TAG, MPI_COMM_WORLD, &status);
        MPI_Irecv(in, 1, type, 0, TAG, MPI_COMM_WORLD, &req);
    }
    rc = MPI_Wait(&req, &status);
    if (rc)
        MPI_Error_class(rc, &class);
    MPI_Get_count(&status, MPI_CHAR, &got);
    MPI_Recv(&next, 1, MPI_INT, 0, NEXT_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (class != (len > room ? MPI_ERR_TRUNCATE : MPI_SUCCESS))
        complain(s, len, room, "error class", class);
    if (got != (len > room ? room : len))
        complain(s, len, room, "elements", got);
    if (next != len)
        complain(s, len, room, "next message", next);
    if (!right(s, len, room))
        complain(s, len, room, "wrong bytes", 0);
    MPI_Type_free(&type);
}

static void send(int len)
{
    MPI_Request req[2];

    for (int i = 0; i < len; i++)
        out[i] = byte_at(len, i);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(out, len, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &req[0]);
    MPI_Isend(&len, 1, MPI_INT, 1, NEXT_TAG, MPI_COMM_WORLD, &req[1]);
    MPI_Wait(&req[0], MPI_STATUS_IGNORE);
    MPI_Wait(&req[1], MPI_STATUS_IGNORE);
}

static void all_lens(const struct shape *s, int room)
{
    for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++)
        for (int posted_first = 0; posted_first < 2; posted_first++) {
            cases++;
            if (rank == 0)
                send(lens[l]);
            else
                receive(s, lens[l], room, posted_first);
        }
}

/* Elements of 9 bytes, so that pieces of a body end in the middle of a double. */
static void odd_elements(void)
{
    enum { N = 1000000 };
    struct { char c; double d; } *e = calloc(N, sizeof(*e));
    int lengths[2] = { 1, 1 }, wrong = 0;
    MPI_Aint at[2] = { 0, (char *)&e[0].d - (char *)&e[0] };
    MPI_Datatype one, type;

    MPI_Type_create_struct(2, lengths, at, (MPI_Datatype[]){ MPI_CHAR, MPI_DOUBLE }, &one);
    MPI_Type_create_resized(one, 0, sizeof(*e), &type);
    MPI_Type_commit(&type);
    for (int i = 0; rank == 0 && i < N; i++) {
        e[i].c = (char)i;
        e[i].d = i * 0.5;
    }
    if (rank == 0)
        MPI_Send(e, N, type, 1, TAG, MPI_COMM_WORLD);
    else
        MPI_Recv(e, N, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++)
        wrong += e[i].c != (char)i || e[i].d != i * 0.5;
    if (wrong) {
        printf("elements of 9 bytes: %d of %d are wrong\n", wrong, N);
        bad++;
    }
    cases++;
    MPI_Type_free(&one);
    MPI_Type_free(&type);
    free(e);
}

static void big(double gib)
{
    size_t n = (size_t)(gib * (1 << 27)), wrong = 0;
    double *b = malloc(n * sizeof(*b) * (rank == 0 ? 1 : 2));
    MPI_Datatype type;

    MPI_Type_vector((int)n, 1, 2, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    for (size_t i = 0; rank == 0 && i < n; i++)
        b[i] = (double)i;
    if (rank == 0)
        MPI_Send(b, (int)n, MPI_DOUBLE, 1, TAG, MPI_COMM_WORLD);
    else
        MPI_Recv(b, 1, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (size_t i = 0; rank == 1 && i < n; i++)
        wrong += b[2 * i] != (double)i;
    bad += wrong != 0;
    cases++;
    MPI_Type_free(&type);
    free(b);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    out = malloc(BYTES_MAX);
    in = malloc((size_t)BYTES_MAX * 2);
    if (argc > 2) {
        big(atof(argv[2]));
    } else {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            for (size_t r = 0; r < sizeof(rooms) / sizeof(rooms[0]); r++)
                all_lens(&shapes[s], rooms[r]);
        odd_elements();
    }
    if (rank == 1)
        printf("%d cases, %d are wrong\n", cases, bad);
    MPI_Finalize();
    return bad != 0;
}
