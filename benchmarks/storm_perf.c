/* SPDX-License-Identifier: MIT */
/*
 * All connections of one process break at once: how long until they have all been replaced. Rank 0
 * is a process and is connected to each other rank by all streams; the other ranks are contexts of
 * a second process, so that two cores are enough. Idle connections are replaced like all others.
 *
 *   storm_perf RANKS STREAMS [TURNS]
 *
 * on the software provider's adapters that MPIR_CVAR_DAPL_IA names, with STREAMS connections
 * between two ranks (MPIR_CVAR_DAPL_STREAMS for each adapter). `daplsoft break` has to be in PATH.
 * Prints for each turn the ms from the first break that rank 0 notices to its last connection.
 */
#include "cfg.h"
#include "dapl.h"
#include "err.h"
#include "stats.h"
#include "transport.h"

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_S = 120 };

extern char **environ;

/* Between the two processes. */
struct shared {
    atomic_int opened;           /* ranks */
    char card[][MDAPL_CARD_MAX];
};

struct rank {
    struct shared *s;
    struct mdapl_ctx *ctx;
};

static void check(int rc, const char *text)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "storm_perf: %s\n", text);
    exit(1);
}

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    (void)owner, (void)peer, (void)m;
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    (void)owner, (void)peer, (void)status;
    check(-1, why);
}

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    const struct rank *me = owner;

    snprintf(buf, len, "%s", me->s->card[rank]);
    return 0;
}

static void open_rank(struct rank *me, struct shared *s, int rank, int size)
{
    static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
    static const struct mdapl_channel *const channels[] = { &mdapl_dapl_channel, NULL };
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = &cfg,
        .job = { .rank = rank, .size = size, .id = 1, .key = "storm_perf", .card = get_card },
    };

    me->s = s;
    check(mdapl_cfg_env(&cfg, &err), err.text);
    cfg.wiring = MDAPL_WIRING_ONDEMAND;
    check(mdapl_ctx_open(&args, &me->ctx, &err), err.text);
    check(mdapl_ctx_card(me->ctx, s->card[rank], MDAPL_CARD_MAX), "no room for the card");
    atomic_fetch_add(&s->opened, 1);
}

/* The second process: all ranks but 0, until it is killed. */
static void run_others(struct shared *s, int size)
{
    struct rank *rank = calloc((size_t)size, sizeof(*rank));

    alarm(LIMIT_S);
    check(rank ? 0 : -1, "out of memory");
    for (int i = 1; i < size; i++)
        open_rank(&rank[i], s, i, size);
    for (;;) {
        int moved = 0;

        for (int i = 1; i < size; i++)
            moved += mdapl_progress(rank[i].ctx);
        if (moved == 0)
            sched_yield();
    }
}

/* Progress until the counter has this value. */
static void until(struct rank *me, const uint64_t *counter, uint64_t value)
{
    while (*counter < value)
        if (mdapl_progress(me->ctx) == 0)
            sched_yield();
}

static void connect_all(struct rank *me, int size, int streams)
{
    const struct mdapl_msg msg = { .hdr = "", .hdr_len = 1 };
    struct mdapl_peer *peer;

    for (int i = 1; i < size; i++) {
        check(mdapl_peer_get(me->ctx, i, &peer), "a rank has no card");
        mdapl_send(peer, &msg, NULL);        /* connects, and may refuse the message */
    }
    until(me, &mdapl_ctx_stats(me->ctx)->connects, (uint64_t)(size - 1) * (uint64_t)streams);
}

/* Has the provider break all connections of this process. Returns the process that does so. */
static pid_t break_all(void)
{
    char self[16];
    char *const argv[] = { "daplsoft", "break", self, NULL };
    posix_spawn_file_actions_t quiet;
    pid_t pid;

    snprintf(self, sizeof(self), "%d", (int)getpid());
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", 0, 0);
    check(posix_spawnp(&pid, argv[0], &quiet, NULL, argv, environ) ? -1 : 0,
          "daplsoft is not in PATH");
    posix_spawn_file_actions_destroy(&quiet);
    return pid;
}

static double one_turn(struct rank *me, uint64_t connections)
{
    struct mdapl_clock clock = mdapl_clock_system();
    const struct mdapl_stats *stats = mdapl_ctx_stats(me->ctx);
    uint64_t began, replaced = stats->reconnects + connections;
    pid_t pid = break_all();

    until(me, &stats->breaks, stats->breaks + 1);
    began = mdapl_clock_now(&clock);
    until(me, &stats->reconnects, replaced);
    began = mdapl_clock_now(&clock) - began;
    waitpid(pid, NULL, 0);
    return (double)began * 1e-6;
}

int main(int argc, char **argv)
{
    int size = argc > 2 ? atoi(argv[1]) : 0, streams = argc > 2 ? atoi(argv[2]) : 0;
    int turns = argc > 3 ? atoi(argv[3]) : 5;
    struct rank me;
    struct shared *s;
    pid_t others;

    if (size < 2 || streams < 1) {
        fprintf(stderr, "usage: storm_perf RANKS STREAMS [TURNS]\n");
        return 1;
    }
    alarm(LIMIT_S);
    s = mmap(NULL, sizeof(*s) + (size_t)size * MDAPL_CARD_MAX, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(s == MAP_FAILED ? -1 : 0, "out of memory");
    others = fork();
    if (others == 0)
        run_others(s, size);
    open_rank(&me, s, 0, size);
    while (atomic_load(&s->opened) < size)
        if (waitpid(others, NULL, WNOHANG))
            return 1;
    connect_all(&me, size, streams);
    for (int i = 0; i < turns; i++)
        printf("%.3f\n", one_turn(&me, (uint64_t)(size - 1) * (uint64_t)streams));
    kill(others, SIGKILL);
    waitpid(others, NULL, 0);
    return 0;
}
