/* SPDX-License-Identifier: MIT */
/*
 * The flight recorder: the last events of all peers of a channel, in one ring, so that its memory
 * does not grow with the peers; a job in which thousands of connections break at once keeps fewer
 * of each. What is recorded is rare: connections, faults, control frames, no messages.
 */
#include "peer.h"

#include "cfg.h"
#include "log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 512 };             /* a power of two */

struct mdapl_dapl_events {
    uint32_t n;                  /* ever */
    sig_atomic_t printed;        /* how many signals have been followed */
    struct row {
        uint64_t at;             /* ns, some rounds old at most */
        const char *a, *b;       /* static */
        uint64_t number;
        int group, rank;
        uint16_t stream;
        uint16_t kind;           /* enum mdapl_dapl_event */
    } row[ROWS];
};

/* A signal handler has no argument that could name the channel. */
static volatile sig_atomic_t signals;

static void count_signal(int sig)
{
    (void)sig;
    signals++;
}

/* SIGUSR2 prints, unless the program has a use for it. */
static void watch_signal(void)
{
    struct sigaction was, now;

    memset(&now, 0, sizeof(now));
    now.sa_handler = count_signal;
    now.sa_flags = SA_RESTART;
    sigemptyset(&now.sa_mask);
    if (sigaction(SIGUSR2, NULL, &was) == 0 && was.sa_handler == SIG_DFL)
        sigaction(SIGUSR2, &now, NULL);
}

bool mdapl_dapl_events_open(struct mdapl_dapl_chan *d)
{
    d->events = calloc(1, sizeof(*d->events));
    if (!d->events)
        return false;
    d->events->printed = signals;
    if (mdapl_ctx_cfg(d->ctx)->events == MDAPL_EVENTS_SIGNAL)
        watch_signal();
    return true;
}

void mdapl_dapl_event(const struct mdapl_dapl_peer *peer, int stream, enum mdapl_dapl_event kind,
                      const char *a, const char *b, uint64_t number)
{
    struct mdapl_dapl_events *e = peer->d->events;

    e->row[e->n++ % ROWS] = (struct row){
        .at = peer->d->now, .a = a, .b = b, .number = number,
        .group = peer->base.group, .rank = peer->base.rank, .stream = (uint16_t)stream,
        .kind = (uint16_t)kind,
    };
}

static void put(const struct row *row, char *buf, size_t len)
{
    unsigned long long number = row->number;

    switch ((enum mdapl_dapl_event)row->kind) {
#define EVENT(NAME, format)                                                                       \
    case MDAPL_DAPL_EVENT_##NAME:                                                                 \
        snprintf(buf, len, format, row->a, row->b, number);                                       \
        break;
#include "events.def"
    }
}

void mdapl_dapl_events_print(const struct mdapl_dapl_peer *peer)
{
    const struct mdapl_dapl_events *e = peer->d->events;
    uint64_t now = mdapl_ctx_now(peer->d->ctx);
    char text[256];

    for (uint32_t i = e->n > ROWS ? e->n - ROWS : 0; i < e->n; i++) {
        const struct row *row = &e->row[i % ROWS];
        uint64_t us = (now - row->at) / 1000;

        if (row->group != peer->base.group || row->rank != peer->base.rank)
            continue;
        put(row, text, sizeof(text));
        mdapl_log(mdapl_ctx_log(peer->d->ctx), MDAPL_WARN, "rank %d on %s stream %u, %llu.%06llu s "
                  "ago: %s", row->rank, peer->host, row->stream, (unsigned long long)us / 1000000,
                  (unsigned long long)us % 1000000, text);
    }
}

void mdapl_dapl_events_look(struct mdapl_dapl_chan *d)
{
    struct mdapl_dapl_peer *peer = NULL;

    if (d->events->printed == signals
        || mdapl_ctx_cfg(d->ctx)->events != MDAPL_EVENTS_SIGNAL)
        return;
    d->events->printed = signals;
    while ((peer = mdapl_dapl_peer_next(d, peer)))
        mdapl_dapl_events_print(peer);
}
