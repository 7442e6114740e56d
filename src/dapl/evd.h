/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_EVD_H
#define MDAPL_EVD_H
/*
 * Taking events. One DTO EVD serves many EPs of an adapter (ia.h), so that a poll costs the same
 * for almost any number of peers; the other three EVDs are polled less often (dapl.c).
 */
#include <dat2/udat.h>
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
 * A sleep is mdapl_evd_arm(), mdapl_evd_sleep(), mdapl_evd_disarm(); rails.c does it for several
 * adapters. Between arm and disarm the queues of transfers, connections and requests notify the
 * adapter's CNO; at other times the adapter is spared the notices.
 *
 * Arm returns false if an event is there already, so that there is nothing to sleep for; the next
 * poll handles it. agent: the CNO calls it at the first event, once; NULL: it ends a sleep.
 */
bool mdapl_evd_arm(struct mdapl_ia *ia, const DAT_OS_WAIT_PROXY_AGENT *agent);
/* Sleeps until an armed adapter has an event or an alarm, at most ns nanoseconds. */
void mdapl_evd_sleep(struct mdapl_ia *ia, uint64_t ns);
void mdapl_evd_disarm(struct mdapl_ia *ia);
/* Ends a sleep on an adapter that has an alarm_evd. Any thread may call it. */
void mdapl_evd_alarm(const struct mdapl_ia *ia);

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
