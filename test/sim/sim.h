/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_SIM_H
#define MDAPL_TEST_SIM_H
/*
 * Ranks of the dapl channel in one process on the fake provider, for tests that choose their own
 * knobs and traffic (test_sim.c has random ones). A message is numbered per pair of ranks and its
 * bytes follow from sender, number and position; the receiver reads it when it is announced and
 * compares every byte. All functions abort with the seed when something is wrong.
 *
 * The ranks are those of one job, or of two (sim_split()): then `rank` in the calls below is a
 * process, and the ranks of each job count from 0.
 */
#include "cfg.h"
#include "fake.h"
#include "stats.h"
#include "transport.h"

#include <stdbool.h>
#include <stdint.h>

enum { SIM_RANKS = 64 };

struct sim;

/* One of the jobs: its processes are those from first on. */
struct sim_job {
    struct sim *sim;
    int first, n;
    uint32_t id;
};

struct sim_rank {
    struct sim *sim;
    int rank;                    /* index of the process, also with two jobs */
    struct sim_job *job;
    struct mdapl_group *other;   /* the other job's group, since sim_join() */
    struct mdapl_ctx *ctx;
    struct mdapl_cfg cfg;
    uint32_t sent[SIM_RANKS], announced[SIM_RANKS];    /* messages, by the other rank */
    int sends, sends_failed;     /* operations that have ended */
    int reads, reads_failed;     /* bodies */
    int faults;                  /* upcalls */
    int status;                  /* of the last one */
    char why[640];               /* and its line */
};

struct sim {
    uint64_t seed;
    int n;                       /* ranks */
    struct sim_job job[2];       /* the second has no ranks unless they are split */
    int started;                 /* messages sent by all */
    int lazy;                    /* the last rank is so many times slower in making progress */
    bool may_fail;               /* operations may fail */
    bool drained[SIM_RANKS];     /* for tests that drain by themselves */
    bool verbose;                /* the frames on stderr */
    bool parts;                  /* bodies are read in parts, and some are dropped before the end */
    bool unclosed;               /* an adapter does not close, and its objects are left */
    bool keep;                   /* bodies stay, filled, when they have been read: sim_kept() */
    struct reading *kept;
    struct sim_rank rank[SIM_RANKS];
    char card[SIM_RANKS][MDAPL_CARD_MAX];
};

#define SIM_CHECK(s, cond) sim_check((s)->seed, cond, #cond, __FILE__, __LINE__)
void sim_check(uint64_t seed, bool cond, const char *text, const char *file, int line);

/* An empty world of n ranks; faults and limits as fake_start(). */
void sim_start(struct sim *s, uint64_t seed, int n, const struct fake_faults *faults,
               const struct fake_limits *limits);
/* Two jobs: the first one has so many of the ranks. Before any is opened. */
void sim_split(struct sim *s, int n);
/* Has a rank add the other job's group, under this key. */
void sim_join(struct sim *s, int rank, const char key[MDAPL_KEY_BYTES]);
/* Has rank 0 of its job open a port of this id, for rank 0 of the other job; and the latter visit
 * it, under its own choice of id. Both then have a group of one rank for the other. */
void sim_open_port(struct sim *s, int rank, uint32_t id, const char key[MDAPL_KEY_BYTES]);
void sim_visit(struct sim *s, int rank, uint32_t port, uint32_t as,
               const char key[MDAPL_KEY_BYTES]);
/* Opens a rank, with "name=value name=value". Returns 0 or the error of mdapl_ctx_open(). */
int sim_open(struct sim *s, int rank, const char *knobs, struct mdapl_err *err);
/* Opens all ranks with the same knobs and connects them. */
void sim_open_all(struct sim *s, const char *knobs);
void sim_connect(struct sim *s);
/* The peer that a rank has for another. 0 or the error. */
int sim_peer(struct sim *s, int rank, int to, struct mdapl_peer **peer_p);
/* The same, as its dapl channel has it. */
struct mdapl_dapl_peer *sim_dapl_peer(struct sim *s, int rank, int to);
/* A message of len bytes. */
void sim_send(struct sim *s, int from, int to, uint32_t len, bool synchronous);
/* The same, only if it can be transmitted at once. False: it cannot. */
bool sim_try(struct sim *s, int from, int to, uint32_t len);
/* One step of the world and one rank's progress. */
void sim_round(struct sim *s);
void sim_rounds(struct sim *s, int n);
/* Have all messages been sent and read, or failed? */
bool sim_settled(struct sim *s);
/* Rounds until it is true: when nothing moves, time passes. Aborts when it never is. */
void sim_until(struct sim *s, bool (*is_true)(struct sim *s));
/* Rounds until they have: aborts when nothing more happens. */
void sim_run(struct sim *s);
/* Aborts if a body that has been read was written after that, or if bytes beside it were written
 * ever. Closing does the same. */
void sim_kept(const struct sim *s);
/* Drains and closes all; every DAT object must have been freed. */
void sim_end(struct sim *s);
/* Closes without draining: after faults. */
void sim_close(struct sim *s);

/* The rank has closed its context by itself: it does not take part any more. */
void sim_leave(struct sim *s, int rank);

/* A counter, over all ranks and of one. */
uint64_t sim_sum(const struct sim *s, size_t offset);
#define SIM_SUM(s, counter) sim_sum(s, offsetof(struct mdapl_stats, counter))
#define SIM_STAT(s, i, counter) (mdapl_ctx_stats((s)->rank[i].ctx)->counter)

#endif
