/* SPDX-License-Identifier: MIT */
/*
 * Connecting by itself, as paper mpi-over-udapl measures it (5.1): a barrier, every rank connects
 * to every other, a barrier. The ranks are processes that this program forks; their business cards
 * and the barriers are in shared memory, so that no launcher is in the figure.
 *
 *   wire_perf RANKS [ROUNDS]
 *
 * on the IA that MPIR_CVAR_DAPL_IA names, wired as MPIR_CVAR_DAPL_WIRING says. Prints the median
 * of the rounds, ms. Each round opens and closes the adapters of all ranks.
 */
#include "cfg.h"
#include "dapl.h"
#include "err.h"
#include "stats.h"
#include "transport.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LIMIT_S = 120, ROUNDS_MAX = 1000,
    YIELDS = 5, SLEEP_US = 1000,     /* as MPI_Init waits where ranks share cores */
};

/* Between all ranks of all rounds. */
struct shared {
    pthread_barrier_t barrier;
    double ms[ROUNDS_MAX];       /* of rank 0 */
    char card[][MDAPL_CARD_MAX];
};

struct rank {
    struct shared *s;
    struct mdapl_ctx *ctx;
    int rank, size;
};

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    (void)owner, (void)peer, (void)m;
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    (void)owner, (void)peer, (void)status;
    fprintf(stderr, "wire_perf: %s\n", why);
    exit(1);
}

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    const struct rank *me = owner;

    snprintf(buf, len, "%s", me->s->card[rank]);
    return 0;
}

static void check(int rc, const char *text)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "wire_perf: %s\n", text);
    exit(1);
}

static void open_ctx(struct rank *me, const struct mdapl_cfg *cfg)
{
    static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
    static const struct mdapl_channel *const channels[] = { &mdapl_dapl_channel, NULL };
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = cfg,
        .job = { .rank = me->rank, .size = me->size, .id = 1, .key = "wire_perf",
                 .card = get_card },
    };

    check(mdapl_ctx_open(&args, &me->ctx, &err), err.text);
    check(mdapl_ctx_card(me->ctx, me->s->card[me->rank], MDAPL_CARD_MAX), "no room for the card");
}

static void wire(struct rank *me)
{
    int rc, idle = 0;

    while ((rc = mdapl_wire(me->ctx)) == 0)
        if (mdapl_progress(me->ctx) > 0)
            idle = 0;
        else if (idle++ < YIELDS)
            sched_yield();
        else
            mdapl_wait(me->ctx, MDAPL_US(SLEEP_US));
    check(rc, mdapl_ctx_err(me->ctx)->text);
}

/* ms between two barriers. */
static double one_round(struct rank *me, const struct mdapl_cfg *cfg)
{
    struct mdapl_clock clock = mdapl_clock_system();
    uint64_t start, end;

    open_ctx(me, cfg);
    pthread_barrier_wait(&me->s->barrier);
    start = mdapl_clock_now(&clock);
    wire(me);
    pthread_barrier_wait(&me->s->barrier);
    end = mdapl_clock_now(&clock);
    mdapl_ctx_close(me->ctx);
    pthread_barrier_wait(&me->s->barrier);
    return (double)(end - start) * 1e-6;
}

static void run_rank(struct shared *s, int rank, int size, int rounds)
{
    struct rank me = { .s = s, .rank = rank, .size = size };
    struct mdapl_cfg cfg;
    struct mdapl_err err;

    alarm(LIMIT_S);
    check(mdapl_cfg_env(&cfg, &err), err.text);
    for (int i = 0; i < rounds; i++) {
        double ms = one_round(&me, &cfg);

        if (rank == 0)
            s->ms[i] = ms;
    }
    exit(0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct shared *share(int ranks)
{
    struct shared *s = mmap(NULL, sizeof(*s) + (size_t)ranks * MDAPL_CARD_MAX,
                            PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;

    if (s == MAP_FAILED)
        return NULL;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&s->barrier, &attr, (unsigned)ranks);
    return s;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 0, rounds = argc > 2 ? atoi(argv[2]) : 5;
    struct shared *s = ranks > 1 ? share(ranks) : NULL;
    int status, bad = 0;

    if (!s || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: wire_perf RANKS [ROUNDS]\n");
        return 1;
    }
    for (int i = 0; i < ranks; i++)
        if (fork() == 0)
            run_rank(s, i, ranks, rounds);
    /* The others would wait at a barrier for one that has failed: their alarms end them. */
    while (wait(&status) > 0)
        bad += status != 0;
    if (bad)
        return 1;
    qsort(s->ms, (size_t)rounds, sizeof(s->ms[0]), by_value);
    printf("%.3f\n", s->ms[rounds / 2]);
    return 0;
}
