/* SPDX-License-Identifier: MIT */
/*
 * IS, integer sort: the rank of each of n keys, ten times over. Keys are counted in buckets (one
 * allreduce), buckets dealt out so that every rank gets about as many keys, the keys sent to where
 * their bucket went (alltoallv), and counted there.
 */
#include "kernel.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 314159265, ROUNDS = 10, BUCKETS = 1024, PROBES = 5 };

/* The key at `index` has rank `at + slope * round` in rounds 1 to 10. */
struct probe {
    int index, at, slope;
};

static const struct {
    int keys_log, values_log;
    struct probe probes[PROBES];
} problems[CLASSES] = {
    [CLASS_S] = { 16, 11, { { 48427, 0, 1 }, { 17148, 18, 1 }, { 23627, 346, 1 },
                            { 62548, 64917, -1 }, { 4431, 65463, -1 } } },
    [CLASS_W] = { 20, 16, { { 357773, 1247, 1 }, { 934767, 11696, 1 }, { 875723, 1039987, -1 },
                            { 898999, 1043896, -1 }, { 404505, 1048018, -1 } } },
    [CLASS_A] = { 23, 19, { { 2112377, 103, 1 }, { 662041, 17522, 1 }, { 5336171, 123927, 1 },
                            { 3642833, 8288933, -1 }, { 4250760, 8388265, -1 } } },
};

struct sort {
    struct kernel k;
    int values;             /* keys are in [0, values) */
    int shift;              /* key >> shift: its bucket */
    int64_t n;              /* keys of all ranks */
    int first, own;         /* mine are keys[first .. first + own) of the sequence */
    int *keys, *by_bucket;
    int *sent, *sent_at, *got, *got_at;         /* per rank, of the alltoallv */
    int *mine;              /* the keys that came to me, `came` of them, room for `room` */
    int came, room;
    int low, high;          /* their values are in [low, high) */
    int64_t below;          /* keys at ranks before me */
    int *upto;              /* upto[v - low]: keys of mine with a value of at most v */
    int probe_keys[PROBES];
    int passed;             /* probes that had the right rank */
};

/* A key is the mean of four uniform numbers, of `values`. The sum is exact in 48 bits. */
static void make_keys(struct sort *s)
{
    uint64_t x = lcg_skip(SEED, 4 * (uint64_t)s->first);
    int bits = problems[s->k.size].values_log;

    for (int i = 0; i < s->own; i++) {
        uint64_t sum = lcg_next(&x);

        for (int j = 1; j < 4; j++)
            sum += lcg_next(&x);
        s->keys[i] = (int)(sum >> (48 - bits));
    }
}

static int holds(const struct sort *s, int index)
{
    return index >= s->first && index < s->first + s->own;
}

/* Every rank learns the values of the keys whose ranks are probed. */
static void share_probes(struct sort *s)
{
    int here[PROBES] = { 0 };

    for (int i = 0; i < PROBES; i++) {
        int index = problems[s->k.size].probes[i].index;

        if (holds(s, index))
            here[i] = s->keys[index - s->first];
    }
    MPI_Allreduce(here, s->probe_keys, PROBES, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* The two keys that each round changes. */
static void change(struct sort *s, int round)
{
    if (holds(s, round))
        s->keys[round - s->first] = round;
    if (holds(s, round + ROUNDS))
        s->keys[round + ROUNDS - s->first] = s->values - round;
}

static void order_by_bucket(struct sort *s, const int count[BUCKETS])
{
    int at[BUCKETS], sum = 0;

    for (int b = 0; b < BUCKETS; b++) {
        at[b] = sum;
        sum += count[b];
    }
    for (int i = 0; i < s->own; i++)
        s->by_bucket[at[s->keys[i] >> s->shift]++] = s->keys[i];
}

/* A bucket goes to the rank whose even share of all keys its first key falls into. */
static void deal(struct sort *s, const int count[BUCKETS], const int all[BUCKETS])
{
    int64_t before = 0;

    memset(s->sent, 0, (size_t)s->k.ranks * sizeof(int));
    s->below = s->low = s->high = 0;
    for (int b = 0; b < BUCKETS; b++) {
        int to = before < s->n ? (int)(before * s->k.ranks / s->n) : s->k.ranks - 1;

        s->sent[to] += count[b];
        before += all[b];
        if (to <= s->k.rank)
            s->high = (b + 1) << s->shift;
        if (to < s->k.rank) {
            s->low = s->high;
            s->below = before;
        }
    }
}

static int offsets(int *at, const int *count, int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++) {
        at[i] = sum;
        sum += count[i];
    }
    return sum;
}

static void exchange(struct sort *s)
{
    MPI_Alltoall(s->sent, 1, MPI_INT, s->got, 1, MPI_INT, MPI_COMM_WORLD);
    offsets(s->sent_at, s->sent, s->k.ranks);
    s->came = offsets(s->got_at, s->got, s->k.ranks);
    if (s->came > s->room) {
        free(s->mine);
        s->room = s->came + s->came / 8;
        s->mine = kernel_alloc((size_t)s->room, sizeof(int));
    }
    MPI_Alltoallv(s->by_bucket, s->sent, s->sent_at, MPI_INT, s->mine, s->got, s->got_at, MPI_INT,
                  MPI_COMM_WORLD);
    if (kernel_spoils(&s->k) && s->came)
        s->mine[0] = s->mine[0] == s->low ? s->low + 1 : s->low;
}

static void count_values(struct sort *s)
{
    int sum = 0;

    memset(s->upto, 0, (size_t)(s->high - s->low) * sizeof(int));
    for (int i = 0; i < s->came; i++)
        s->upto[s->mine[i] - s->low]++;
    for (int v = 0; v < s->high - s->low; v++)
        s->upto[v] = sum += s->upto[v];
}

/* Of the probed keys those that came to me: is the number of smaller ones the published one? */
static void probe(struct sort *s, int round)
{
    for (int i = 0; i < PROBES; i++) {
        const struct probe *p = &problems[s->k.size].probes[i];
        int v = s->probe_keys[i];

        if (v < s->low || v >= s->high)
            continue;
        s->passed += s->below + (v > s->low ? s->upto[v - 1 - s->low] : 0)
            == p->at + p->slope * round;
    }
}

static void rank_keys(struct sort *s, int round)
{
    int count[BUCKETS] = { 0 }, all[BUCKETS];

    change(s, round);
    for (int i = 0; i < s->own; i++)
        count[s->keys[i] >> s->shift]++;
    order_by_bucket(s, count);
    MPI_Allreduce(count, all, BUCKETS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    deal(s, count, all);
    exchange(s);
    count_values(s);
    probe(s, round);
}

static int64_t sum_of(const int *keys, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += keys[i];
    return sum;
}

/* Puts the keys in the order of their ranks. Wrong are neighbours out of order, and lost keys. */
static int64_t sort_wrong(struct sort *s)
{
    int *sorted = kernel_alloc((size_t)s->came, sizeof(int)), before = -1, last;
    int64_t wrong = 0, lost[2], sum[2];

    for (int i = 0; i < s->came; i++)
        sorted[--s->upto[s->mine[i] - s->low]] = s->mine[i];
    last = s->came ? sorted[s->came - 1] : -1;
    MPI_Exscan(&last, &before, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < s->came; before = sorted[i++])
        wrong += before > sorted[i];
    lost[0] = s->came - s->own;
    lost[1] = sum_of(sorted, s->came) - sum_of(s->keys, s->own);
    MPI_Allreduce(lost, sum, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    free(sorted);
    return wrong + (s->k.rank == 0) * (llabs(sum[0]) + llabs(sum[1]));
}

static void set_up(struct sort *s)
{
    size_t ranks = (size_t)s->k.ranks;

    s->n = INT64_C(1) << problems[s->k.size].keys_log;
    s->values = 1 << problems[s->k.size].values_log;
    s->shift = problems[s->k.size].values_log - 10;
    s->first = (int)kernel_share(s->n, s->k.rank, s->k.ranks);
    s->own = (int)kernel_share(s->n, s->k.rank + 1, s->k.ranks) - s->first;
    s->keys = kernel_alloc((size_t)s->own, sizeof(int));
    s->by_bucket = kernel_alloc((size_t)s->own, sizeof(int));
    s->upto = kernel_alloc((size_t)s->values, sizeof(int));
    s->sent = kernel_alloc(4 * ranks, sizeof(int));
    s->sent_at = s->sent + ranks;
    s->got = s->sent_at + ranks;
    s->got_at = s->got + ranks;
    make_keys(s);
    share_probes(s);
}

int main(int argc, char **argv)
{
    struct sort s = { .room = 0 };
    int64_t mine[2], all[2] = { 0, 0 };
    int ok;

    kernel_begin(&s.k, "is", argc, argv);
    kernel_need_at_most(&s.k, BUCKETS);
    set_up(&s);
    rank_keys(&s, 1);
    s.passed = 0;
    kernel_start(&s.k);
    for (int round = 1; round <= ROUNDS; round++)
        rank_keys(&s, round);
    kernel_stop(&s.k);
    mine[0] = s.passed;
    mine[1] = sort_wrong(&s);
    MPI_Reduce(mine, all, 2, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    ok = all[0] == PROBES * ROUNDS && all[1] == 0;
    if (s.k.rank == 0)
        printf("is: %lld of %d probed ranks are the published ones, %s\n", (long long)all[0],
               PROBES * ROUNDS, all[1] ? "the sort is wrong" : "sorted");
    free(s.keys);
    free(s.by_bucket);
    free(s.upto);
    free(s.sent);
    free(s.mine);
    return kernel_end(&s.k, ok, (double)ROUNDS * (double)s.n);
}
