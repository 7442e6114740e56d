/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_EVD_H
#define MDAPL_EVD_H
/*
 * Event dispatchers: polling them and sleeping on them. One DTO EVD serves many EPs of an adapter
 * (ia.h), so the cost of a poll hardly depends on the number of peers; connection, CR and
 * asynchronous EVDs are polled less often (dapl.c).
 */
#include <dat2/udat.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mdapl_dapl_ia;

/* A queue that a thread of wire_thread.c may wait for. */
enum mdapl_dapl_evd_queue { MDAPL_EVD_CR, MDAPL_EVD_CONN };

/* Handles the events in the DTO queues and, if `all`, in the connection, CR and asynchronous
 * queues. Returns how many were handled. */
int mdapl_dapl_evd_poll(struct mdapl_dapl_ia *ia, bool all);

/*
 * A sleep is mdapl_dapl_evd_arm(), mdapl_dapl_evd_sleep(), mdapl_dapl_evd_disarm(); rails.c does it
 * for several adapters. Between arm and disarm the queues of transfers, connections and requests
 * notify the adapter's CNO; at other times the adapter is spared the notices.
 *
 * Arm returns false if an event is there already, so that there is nothing to sleep for; the next
 * poll handles it. agent: the CNO calls it at the first event, once; NULL: it ends a sleep.
 */
bool mdapl_dapl_evd_arm(struct mdapl_dapl_ia *ia, const DAT_OS_WAIT_PROXY_AGENT *agent);
/* Sleeps until an armed adapter has an event or an alarm, at most ns nanoseconds. */
void mdapl_dapl_evd_sleep(struct mdapl_dapl_ia *ia, uint64_t ns);
void mdapl_dapl_evd_disarm(struct mdapl_dapl_ia *ia);
/* Ends a sleep on an adapter that has an alarm_evd. Any thread may call it. */
void mdapl_dapl_evd_alarm(const struct mdapl_dapl_ia *ia);

/*
 * For several threads on one adapter: sleeps until that queue has an event, at most ns nanoseconds
 * (UINT64_MAX: no limit), and handles it with the lock held. The lock is not held during the sleep.
 * 1: one event was handled; 0: timeout; -1: the queue is unwaitable
 * (mdapl_dapl_evd_stop_serving()).
 */
int mdapl_dapl_evd_serve(struct mdapl_dapl_ia *ia, enum mdapl_dapl_evd_queue queue, uint64_t ns,
                         pthread_mutex_t *lock);
/* Makes the CR queue unwaitable: mdapl_dapl_evd_serve() returns -1. Polling it still works. */
void mdapl_dapl_evd_stop_serving(struct mdapl_dapl_ia *ia);

#endif
