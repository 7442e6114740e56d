/* SPDX-License-Identifier: MIT */
#ifndef VERBSDAT_EVENT_H
#define VERBSDAT_EVENT_H
/* Event dispatchers and notification objects (evd.c, cno.c, done.c). */
#include "datlock.h"
#include "handle.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct verbsdat_cno {
    struct verbsdat_handle h;
    pthread_mutex_t lock;
    DAT_OS_WAIT_PROXY_AGENT agent;
    bool agent_due;
    struct verbsdat_evd *fired;  /* what triggered it, until a wait takes it */
    int efd;                     /* readable while fired */
    int epfd;                    /* efd, and the completion channels of the EVDs on it */
    unsigned users, waiters;
};

/*
 * Events are queued in ring; completions of transfers stay in the CQ until a call for the EVD polls
 * them. Each EVD with a CQ has a completion channel: the CQ is armed only while a thread waits on
 * the EVD, or its CNO is to be notified, or the adapter's thread waits for the last request of an
 * EP that is being closed.
 */
struct verbsdat_evd {
    struct verbsdat_handle h;
    DAT_EVD_FLAGS flags;
    struct datlock lock;
    DAT_EVENT *ring;
    uint32_t qlen, head, count;
    struct ibv_cq *cq;           /* NULL: not for transfers */
    struct ibv_comp_channel *channel;
    bool armed;                  /* the channel becomes readable at the next completion */
    bool enabled, waitable, overflowed;
    bool watched;                /* the adapter's thread waits on the channel */
    unsigned closing;            /* EPs that it waits for */
    int efd;                     /* wakes the waiter; -1: never waited on */
    unsigned waiters;
    atomic_uint users;           /* EPs and PSPs */
    struct verbsdat_cno *cno;
};

/* done.c: turns a completion into an event, with evd->lock. False: the consumer gets none. */
bool verbsdat_done(struct verbsdat_evd *evd, const struct ibv_wc *wc, DAT_EVENT *event);

/* evd.c */
struct verbsdat_evd *verbsdat_evd_of(DAT_EVD_HANDLE handle);
/* NULL: errno says why. */
struct verbsdat_evd *verbsdat_evd_make(struct verbsdat_ia *ia, DAT_COUNT qlen, DAT_EVD_FLAGS flags);
void verbsdat_evd_destroy(struct verbsdat_evd *evd);
/* Queues an event. False: the queue is full, and the asynchronous EVD has been notified. */
bool verbsdat_evd_post(struct verbsdat_evd *evd, const DAT_EVENT *event);
/* Polls the CQ into the queue until one of them is empty or full. */
void verbsdat_evd_pull(struct verbsdat_evd *evd);
/* The same, until the CQ is empty: events that the queue has no room for are lost, which the
 * asynchronous EVD is notified of. */
void verbsdat_evd_drain(struct verbsdat_evd *evd);
/* Consumes a notification of the CQ, if there is one, and wakes the EVD's waiter; trigger: notifies
 * its CNO. True: there was one, and the EVD is enabled. */
bool verbsdat_evd_notified(struct verbsdat_evd *evd, bool trigger);
/* Arms the CQ if somebody wants to be notified; with evd->lock. True: it was not armed before, so
 * it may have completions of before. */
bool verbsdat_evd_rearm(struct verbsdat_evd *evd);
/* The adapter's thread waits for a request on it, or one less. */
void verbsdat_evd_closing(struct verbsdat_evd *evd, int more);
/* The same after the CNO's agent has changed. */
void verbsdat_evd_watch(struct verbsdat_evd *evd);

/* cno.c */
/* Notifies the CNO, whose agent is called later. */
void verbsdat_cno_trigger(struct verbsdat_cno *cno, struct verbsdat_evd *evd);
bool verbsdat_cno_has_agent(struct verbsdat_cno *cno);
void verbsdat_cno_attach(struct verbsdat_cno *cno, struct verbsdat_evd *evd);
void verbsdat_cno_detach(struct verbsdat_cno *cno, struct verbsdat_evd *evd);
/* Calls the agents that are due, without locks. */
void verbsdat_cno_agents(struct verbsdat_ia *ia);
/* What is left of a wait of us microseconds that began at start (ns); UINT64_MAX: no limit. */
uint64_t verbsdat_wait_left(uint64_t start, DAT_TIMEOUT us);
/* Sleeps until one of two descriptors (-1: none) is readable, or for ns. */
void verbsdat_sleep(int fd, int other, uint64_t ns);

#endif
