/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CTX_H
#define MDAPL_CTX_H
/*
 * A context, for the two files that have its code: ctx.c opens and closes it, finds groups and
 * peers in it and answers what channels and the owner ask for; rounds.c makes progress and waits.
 */
#include "cfg.h"
#include "channel.h"
#include "clock.h"
#include "err.h"
#include "group.h"
#include "list.h"
#include "log.h"
#include "stats.h"
#include "transport.h"

enum { MDAPL_CHANNELS_MAX = 4 };

struct mdapl_open_channel {
    const struct mdapl_channel *table;
    void *state;
    unsigned idle_rounds;        /* empty rounds in a row */
};

struct mdapl_ctx {
    struct mdapl_open_channel channel[MDAPL_CHANNELS_MAX];
    int n_channels;
    unsigned silent_max;         /* empty rounds after which a channel is polled rarely */
    unsigned until_clock;        /* rounds until the clock is read */
    unsigned stride;             /* rounds between the last two readings of the clock */
    unsigned strides;            /* readings of the clock since the last look */
    uint64_t clock_read, looked; /* times of the last reading and the last look, ns */
    uint64_t look_ns;            /* time between two looks, at most ... */
    uint64_t look_least_ns;      /* ... where the clock costs nothing */
    uint64_t clock_ns;           /* what a reading of the clock takes */
    unsigned looks;
    bool barrier;                /* the owner enters barriers of all ranks */
    bool woken;                  /* the sleep in progress is to end */
    const struct mdapl_up *up;
    void *owner;
    struct mdapl_groups groups;
    struct mdapl_list paused;    /* inboxes of paused peers */
    struct mdapl_group *job;     /* group 0 */
    struct mdapl_cfg cfg;
    struct mdapl_clock clock;
    struct mdapl_stats stats;
    struct mdapl_log log;
    struct mdapl_err err;
};

/* The next round is the first one. The clock is set before. */
void mdapl_rounds_init(struct mdapl_ctx *ctx);

#endif
