/* SPDX-License-Identifier: MIT */
/*
 * Puts, gets and accumulates of windows, with a comparison of every byte. rma MODE ...:
 *
 *   bytes ROUNDS SEED LARGEST   rounds of random operations of all ranks on all others, of LARGEST
 *                      bytes at most, with all kinds of windows and of synchronization; after each
 *                      round the targets compare their memory with what was put there
 *   counts TURNS WORDS  all ranks count in the same WORDS words of rank 0, TURNS times each: got,
 *                      and put with one more, under an exclusive lock
 *   computes MS        rank 1 computes for MS milliseconds without a call of MPI; rank 0 puts and
 *                      gets meanwhile, and says how long each took
 *
 * Rank 0 prints, at the end the counters of all ranks together. Exit status 0 only when everything
 * was right.
 */
#include "../lines.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 8, SPACES = 5 };

static int rank, size;

static void check(int good, const char *what)
{
    if (good)
        return;
    printf("rank %d: wrong: %s\n", rank, what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* -- counters --------------------------------------------------------------------------------- */

static const char *const counters[] = {
    "dapl_rma_puts", "dapl_rma_gets", "dapl_rma_restarts", "dapl_rma_stranded", "dapl_breaks",
    "dapl_ia_reopens", "dapl_tx_msgs",
};
enum { COUNTERS = sizeof(counters) / sizeof(counters[0]) };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[COUNTERS];

static void counters_open(void)
{
    int provided, index, count, good;

    good = MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS
           && MPI_T_pvar_session_create(&session) == MPI_SUCCESS;
    for (int i = 0; i < COUNTERS; i++)
        good = good
               && MPI_T_pvar_get_index(counters[i], MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS
               && MPI_T_pvar_handle_alloc(session, index, NULL, &handles[i], &count) == MPI_SUCCESS;
    check(good, "the counters are not there");
}

static void counters_print(void)
{
    unsigned long long n[COUNTERS];

    for (int i = 0; i < COUNTERS; i++)
        check(MPI_T_pvar_read(session, handles[i], &n[i]) == MPI_SUCCESS, "a counter is not read");
    MPI_Reduce(rank ? n : MPI_IN_PLACE, n, COUNTERS, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0,
               MPI_COMM_WORLD);
    if (rank == 0) {
        printf("rma:");
        for (int i = 0; i < COUNTERS; i++)
            printf(" %s %llu", counters[i] + strlen("dapl_"), n[i]);
        printf("\n");
    }
}

/* -- random numbers --------------------------------------------------------------------------- */

static uint64_t common, own;     /* the same in all ranks; different ones */

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

/* -- windows ---------------------------------------------------------------------------------- */

enum kind { CREATED, ALLOCATED, DYNAMIC, KINDS };

/*
 * Each rank's memory has a region for each rank, which only that rank uses. A region has slots;
 * between two synchronizations each slot is used once, as operations have no order.
 */
static long slot_bytes;
static MPI_Win win;
static enum kind kind;
static unsigned char *memory;    /* mine */
static unsigned char **model;    /* by rank: what my region of its memory has */
static MPI_Aint *base;           /* of a dynamic window: where each rank's memory is */

static long region(void)
{
    return SLOTS * slot_bytes;
}

static void window_open(void)
{
    MPI_Aint bytes = region() * size;

    kind = (enum kind)draw(&common, KINDS);
    if (kind == ALLOCATED) {
        MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else {
        memory = malloc((size_t)bytes);
        check(memory != NULL, "no memory");
        if (kind == CREATED)
            MPI_Win_create(memory, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        else
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    memset(memory, 0, (size_t)bytes);
    memset(base, 0, (size_t)size * sizeof(*base));
    if (kind == DYNAMIC) {
        MPI_Win_attach(win, memory, bytes);
        MPI_Get_address(memory, &base[rank]);
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_AINT, base, 1, MPI_AINT, MPI_COMM_WORLD);
    }
    for (int r = 0; r < size; r++)
        memset(model[r], 0, (size_t)region());
    MPI_Barrier(MPI_COMM_WORLD);
}

static void window_close(void)
{
    if (kind == DYNAMIC)
        MPI_Win_detach(win, memory);
    MPI_Win_free(&win);
    if (kind != ALLOCATED)
        free(memory);
}

/* -- operations ------------------------------------------------------------------------------- */

/* One of this rank, from its start to the next synchronization. */
struct operation {
    enum { NONE, PUT, GET, XOR, SPACED_PUT } what;
    int target;
    long at, len;                /* in the region; bytes that are transferred */
    unsigned char *buf;
    MPI_Request req;
};

static struct operation *ops;    /* one for each target and slot */

static MPI_Aint place(const struct operation *o)
{
    return base[o->target] + rank * region() + o->at;
}

/* Of a put whose bytes are SPACES apart at the target. */
static MPI_Datatype spaced(long n)
{
    MPI_Datatype type;

    MPI_Type_vector((int)n, 1, SPACES, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void start(struct operation *o, int target, int slot, int by_request)
{
    long longest = draw(&own, 3) ? slot_bytes : 40;
    unsigned char *m = model[target] + slot * slot_bytes;
    MPI_Datatype type;
    int n;

    o->what = 1 + draw(&own, 8) % 4;             /* all of them as often as the others */
    o->target = target;
    o->len = 1 + draw(&own, (uint32_t)longest);
    if (o->what == SPACED_PUT)
        o->len = 1 + (o->len - 1) / SPACES;
    o->at = draw(&own, (uint32_t)(slot_bytes - (o->what == SPACED_PUT ? SPACES * o->len - SPACES + 1
                                                                    : o->len) + 1));
    m += o->at;
    o->at += slot * slot_bytes;
    o->buf = malloc((size_t)o->len);
    check(o->buf != NULL, "no memory");
    n = (int)o->len;
    for (long i = 0; i < o->len; i++)
        o->buf[i] = (unsigned char)draw(&own, 256);
    for (long i = 0; i < o->len && o->what != GET; i++)
        m[o->what == SPACED_PUT ? i * SPACES : i] = o->what == XOR ? m[i] ^ o->buf[i] : o->buf[i];
    o->req = MPI_REQUEST_NULL;
    if (o->what == PUT && by_request)
        MPI_Rput(o->buf, n, MPI_BYTE, target, place(o), n, MPI_BYTE, win, &o->req);
    else if (o->what == PUT)
        MPI_Put(o->buf, n, MPI_BYTE, target, place(o), n, MPI_BYTE, win);
    else if (o->what == GET && by_request)
        MPI_Rget(o->buf, n, MPI_BYTE, target, place(o), n, MPI_BYTE, win, &o->req);
    else if (o->what == GET)
        MPI_Get(o->buf, n, MPI_BYTE, target, place(o), n, MPI_BYTE, win);
    else if (o->what == XOR)
        MPI_Accumulate(o->buf, n, MPI_BYTE, target, place(o), n, MPI_BYTE, MPI_BXOR, win);
    else {
        type = spaced(o->len);
        MPI_Put(o->buf, n, MPI_BYTE, target, place(o), 1, type, win);
        MPI_Type_free(&type);
    }
}

/* Some operations on a rank, or on all if target is -1. */
static void start_some(int target, int by_request)
{
    for (int r = 0; r < size; r++)
        for (int i = 0; i < SLOTS; i++)
            if (r != rank && (target < 0 || r == target) && draw(&own, 3))
                start(&ops[r * SLOTS + i], r, i, by_request);
}

/* They are complete here; what has been got is compared. */
static void finish_all(void)
{
    for (int i = 0; i < size * SLOTS; i++) {
        struct operation *o = &ops[i];

        if (o->what == NONE)
            continue;
        if (o->req != MPI_REQUEST_NULL)
            MPI_Wait(&o->req, MPI_STATUS_IGNORE);
        check(o->what != GET || memcmp(o->buf, model[o->target] + o->at, (size_t)o->len) == 0,
              "what a get has brought");
        free(o->buf);
        o->what = NONE;
    }
}

/* The buffers of what is locally complete may be written. */
static void spoil_buffers(void)
{
    for (int i = 0; i < size * SLOTS; i++)
        if (ops[i].what != NONE && ops[i].what != GET)
            memset(ops[i].buf, 0xee, (size_t)ops[i].len);
}

/* All ranks compare their memory with what the others have put there. */
static void compare(void)
{
    unsigned char *expected = malloc((size_t)region());
    int same = 1;

    check(expected != NULL, "no memory");
    for (int k = 1; k < size; k++) {
        int to = (rank + k) % size, from = (rank - k + size) % size;

        MPI_Sendrecv(model[to], (int)region(), MPI_BYTE, to, 7, expected, (int)region(), MPI_BYTE,
                     from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        same = same && memcmp(memory + from * region(), expected, (size_t)region()) == 0;
    }
    check(same, "the bytes that others have put");
    free(expected);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* -- kinds of synchronization ----------------------------------------------------------------- */

static void by_fence(void)
{
    MPI_Win_fence(draw(&common, 2) ? MPI_MODE_NOPRECEDE : 0, win);
    for (int k = 0; k < 2; k++) {
        start_some(-1, 0);
        MPI_Win_fence(k ? MPI_MODE_NOSUCCEED : 0, win);
        finish_all();
    }
}

static void by_post(void)
{
    MPI_Group all, others;

    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_excl(all, 1, &rank, &others);
    for (int k = 0; k < 2; k++) {
        MPI_Win_post(others, 0, win);
        MPI_Win_start(others, 0, win);
        start_some(-1, 0);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
        finish_all();
    }
    MPI_Group_free(&others);
    MPI_Group_free(&all);
}

static void by_lock(void)
{
    for (int k = 1; k < 2 * size; k++) {
        int target = (rank + k) % size;

        if (target == rank)
            continue;
        MPI_Win_lock(draw(&own, 2) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, win);
        start_some(target, 0);
        if (draw(&own, 2)) {
            MPI_Win_flush(target, win);
            finish_all();
            start_some(target, 0);
        }
        MPI_Win_unlock(target, win);
        finish_all();
    }
}

static void by_lock_all(void)
{
    MPI_Win_lock_all(draw(&common, 2) ? MPI_MODE_NOCHECK : 0, win);
    for (int k = 0; k < 4; k++) {
        int target = (rank + 1 + (int)draw(&own, (uint32_t)size - 1)) % size;

        start_some(k == 3 ? -1 : target, 0);
        if (draw(&own, 2)) {
            MPI_Win_flush_local(target, win);
            if (k < 3)
                spoil_buffers();
        }
        if (k == 3)
            MPI_Win_flush_all(win);
        else
            MPI_Win_flush(target, win);
        finish_all();
    }
    start_some(-1, 0);
    MPI_Win_unlock_all(win);
    finish_all();
}

static void by_requests(void)
{
    MPI_Win_lock_all(0, win);
    for (int k = 0; k < 3; k++) {
        start_some(-1, 1);
        for (int i = 0; i < size * SLOTS; i++)
            if (ops[i].what == PUT || ops[i].what == GET)
                MPI_Wait(&ops[i].req, MPI_STATUS_IGNORE);
        MPI_Win_flush_all(win);
        finish_all();
    }
    MPI_Win_unlock_all(win);
}

static void (*const ways[])(void) = { by_fence, by_post, by_lock, by_lock_all, by_requests };
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static void bytes(int rounds, uint64_t seed, long largest)
{
    common = seed * 2 + 1;
    own = seed * 1000003 + (uint64_t)rank * 77777;
    slot_bytes = largest;
    base = calloc((size_t)size, sizeof(*base));
    model = calloc((size_t)size, sizeof(*model));
    ops = calloc((size_t)size * SLOTS, sizeof(*ops));
    check(base && model && ops, "no memory");
    for (int r = 0; r < size; r++) {
        model[r] = malloc((size_t)region());
        check(model[r] != NULL, "no memory");
    }
    for (int k = 0; k < rounds; k++) {
        if (k % 4 == 0)
            window_open();
        ways[draw(&common, WAYS)]();
        MPI_Barrier(MPI_COMM_WORLD);
        compare();
        if (k % 4 == 3 || k == rounds - 1)
            window_close();
    }
    if (rank == 0)
        printf("rma: %d rounds, all bytes are right\n", rounds);
}

/* -- an exclusive lock ------------------------------------------------------------------------ */

static void count_up(long *words, int n)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Get(words, n, MPI_LONG, 0, 0, n, MPI_LONG, win);
    MPI_Win_flush(0, win);
    for (int i = 0; i < n; i++)
        check(words[i] == words[0], "a put of another rank is not complete");
    for (int i = 0; i < n; i++)
        words[i]++;
    MPI_Put(words, n, MPI_LONG, 0, 0, n, MPI_LONG, win);
    MPI_Win_unlock(0, win);
}

static void counts(int turns, int n)
{
    long *words = malloc((size_t)n * sizeof(*words)), *own_words;

    check(words != NULL, "no memory");
    MPI_Win_allocate(n * (MPI_Aint)sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD,
                     &own_words, &win);
    memset(own_words, 0, (size_t)n * sizeof(long));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < turns; i++)
        count_up(words, n);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n && rank == 0; i++)
        check(own_words[i] == (long)turns * size, "the sum");
    if (rank == 0)
        printf("rma: %d ranks have counted to %d\n", size, turns * size);
    MPI_Win_free(&win);
    free(words);
}

/* -- a target that computes ------------------------------------------------------------------- */

enum { LONG = 1 << 20 };

static void compute(double seconds)
{
    volatile double x = 1;

    for (double end = MPI_Wtime() + seconds; MPI_Wtime() < end;)
        for (int i = 0; i < 10000; i++)
            x = x * 1.0000001;
}

static double longest;           /* of a put or a get, in seconds */

static void took(const char *what, double begin)
{
    double seconds = MPI_Wtime() - begin;

    longest = seconds > longest ? seconds : longest;
    printf("rma: %s while the target computes: %.1f us\n", what, seconds * 1e6);
}

static void put_and_get(long n, const char *put, const char *get)
{
    unsigned char *out = malloc((size_t)n), *in = calloc(1, (size_t)n);
    double begin;

    check(out && in, "no memory");
    memset(out, 0x3c, (size_t)n);
    for (int k = 0; k < 2; k++) {
        begin = MPI_Wtime();
        MPI_Put(out, (int)n, MPI_BYTE, 1, 0, (int)n, MPI_BYTE, win);
        MPI_Win_flush(1, win);
        took(put, begin);
        begin = MPI_Wtime();
        MPI_Get(in, (int)n, MPI_BYTE, 1, 0, (int)n, MPI_BYTE, win);
        MPI_Win_flush(1, win);
        took(get, begin);
    }
    check(memcmp(in, out, (size_t)n) == 0, "what a get has brought");
    free(in);
    free(out);
}

static void computes(double seconds)
{
    double begin;
    long word;

    MPI_Win_allocate(LONG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, LONG);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    if (rank == 0) {             /* CH3 requests a lock with the first operation */
        MPI_Get(&word, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
        MPI_Win_flush(1, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        compute(seconds);
    if (rank == 0) {
        compute(0.05);           /* it has left the barrier */
        put_and_get(8, "put and flush of 8 bytes", "get and flush of 8 bytes");
        put_and_get(LONG, "put and flush of 1 MiB", "get and flush of 1 MiB");
        begin = MPI_Wtime();
        MPI_Put(&word, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
        MPI_Win_unlock_all(win);
        took("put and unlock_all", begin);
        begin = MPI_Wtime();
        MPI_Win_lock(MPI_LOCK_SHARED, 1, MPI_MODE_NOCHECK, win);
        MPI_Get(&word, 1, MPI_LONG, 1, 0, 1, MPI_LONG, win);
        MPI_Win_unlock(1, win);
        took("lock without a check, get and unlock", begin);
        check(longest < seconds / 4, "the target's processor was waited for");
        printf("rma: the target has no part in it\n");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0)
        MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    print_whole_lines();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    counters_open();
    if (argc == 5 && strcmp(argv[1], "bytes") == 0)
        bytes(atoi(argv[2]), strtoull(argv[3], NULL, 0), atol(argv[4]));
    else if (argc == 4 && strcmp(argv[1], "counts") == 0)
        counts(atoi(argv[2]), atoi(argv[3]));
    else if (argc == 3 && strcmp(argv[1], "computes") == 0)
        computes(atof(argv[2]) / 1000);
    else
        check(0, "usage: rma bytes ROUNDS SEED LARGEST | counts TURNS WORDS | computes MS");
    counters_print();
    MPI_Finalize();
    return 0;
}
