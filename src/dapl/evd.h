/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_EVD_H
#define MDAPL_EVD_H
/*
 * Taking events. One DTO EVD serves many EPs of an adapter (ia.h), so that a poll costs the same
 * for almost any number of peers; the other three EVDs are polled less often (dapl.c).
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mdapl_ia;

/* What a thread of its own may wait for (wire_thread.c). */
enum mdapl_evd_queue { MDAPL_EVD_CR, MDAPL_EVD_CONN };

/* Handles what is there: DTO completions, and when `all` connection events, CRs and asynchronous
 * errors. Returns how many events were handled. */
int mdapl_evd_poll(struct mdapl_ia *ia, bool all);
/*
 * Whether an event on any queue is to end a sleep, and not only a completed DTO: wanted while
 * connections are made, and always where there are several DTO EVDs. At other times an adapter is
 * spared the notices. False: it cannot be had, so sleeps must be short.
 */
bool mdapl_evd_all_wake(struct mdapl_ia *ia, bool wanted);
/* Sleeps until there is an event, at most ns nanoseconds. It is handled by the next poll. */
void mdapl_evd_wait(struct mdapl_ia *ia, uint64_t ns);

/*
 * While several threads serve an adapter: sleeps until that queue has an event, at most ns
 * nanoseconds (UINT64_MAX: no limit), and handles it. The lock is taken for the handling alone.
 * 1: one was handled; 0: time is over; -1: nobody may wait on this queue (any more).
 */
int mdapl_evd_serve(struct mdapl_ia *ia, enum mdapl_evd_queue queue, uint64_t ns,
                    pthread_mutex_t *lock);
/* Whoever waits for connection requests returns, and nobody waits again; they can be polled. */
void mdapl_evd_shut(struct mdapl_ia *ia);

#endif
