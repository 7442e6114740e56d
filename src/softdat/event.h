/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_EVENT_H
#define SOFTDAT_EVENT_H
/* Event dispatchers and consumer notification objects (evd.c, cno.c). */
#include "handle.h"

#include <stdatomic.h>

struct softdat_cno {
    struct softdat_handle h;
    DAT_OS_WAIT_PROXY_AGENT agent;
    int efd;                     /* eventfd that wakes the waiters */
    struct softdat_evd *fired;   /* the EVD that triggered the CNO; NULL: not triggered */
    bool agent_due;              /* the agent is to be called */
    int waiters;                 /* threads in dat_cno_wait */
    int users;                   /* EVDs associated with the CNO */
};

struct softdat_evd {
    struct softdat_handle h;
    struct softdat_cno *cno;     /* NULL: none */
    DAT_EVD_FLAGS flags;
    DAT_EVENT *ring;             /* qlen events, the oldest at head */
    uint32_t qlen, head;
    _Atomic uint32_t count;      /* queued events; read without the lock by dat_evd_dequeue */
    int efd;                     /* eventfd that wakes the waiter; -1 until the first wait */
    int waiters;                 /* threads in dat_evd_wait: 0 or 1 */
    int users;                   /* EPs and service points that post to it */
    bool enabled, waitable;
    bool overflowed;             /* the overflow event has been posted */
};

/* True if the next event would overflow the EVD. */
static inline bool softdat_evd_full(const struct softdat_evd *evd)
{
    return atomic_load_explicit(&evd->count, memory_order_relaxed) >= evd->qlen;
}

/* evd.c; called with the adapter's lock. */
/* Makes an EVD of qlen events (at least 1). NULL: out of memory. */
struct softdat_evd *softdat_evd_make(struct softdat_ia *ia, DAT_COUNT qlen, DAT_EVD_FLAGS flags);
/* Frees an EVD without users or waiters. */
void softdat_evd_destroy(struct softdat_evd *evd);
/* Queues a copy of the event, wakes the waiter and triggers the CNO. If the EVD is full the event
 * is lost and DAT_ASYNC_ERROR_EVD_OVERFLOW is posted once. */
void softdat_evd_post(struct softdat_evd *evd, const DAT_EVENT *event);
/* The same without the copy: fill the slot, then push it. NULL: the EVD is full, as above. */
DAT_EVENT *softdat_evd_slot(struct softdat_evd *evd);
void softdat_evd_push(struct softdat_evd *evd, DAT_EVENT *slot);
/* Ends a dequeue with a round of progress if evd is empty, and releases the lock. */
DAT_RETURN softdat_evd_dequeue_locked(struct softdat_evd *evd, DAT_EVENT *event);
/* Returns the ns that remain of a wait of `us` that began at `start`, softdat_now(). */
uint64_t softdat_wait_left(uint64_t start, DAT_TIMEOUT us);
/* Sleeps without the lock until efd or a descriptor of the adapter wakes the thread, at most ns. */
void softdat_wait_sleep(struct softdat_ia *ia, int efd, int *waiters, uint64_t ns);
/* Ends a wait: the thread may not return to the provider for long, so the helper thread leaves
 * standby and flushes the pending acknowledgements. */
void softdat_wait_end(struct softdat_ia *ia);
/* Calls the agents of triggered CNOs; releases the lock during each call. */
void softdat_run_agents(struct softdat_ia *ia);

#endif
