/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_EVENT_H
#define SOFTDAT_EVENT_H
/* Event dispatchers and notification objects (evd.c, cno.c). */
#include "handle.h"

#include <stdatomic.h>

struct softdat_cno {
    struct softdat_handle h;
    DAT_OS_WAIT_PROXY_AGENT agent;
    int efd;                     /* eventfd of the waiter */
    struct softdat_evd *fired;   /* the EVD that has triggered it */
    bool agent_due;
    int waiters, users;
};

struct softdat_evd {
    struct softdat_handle h;
    struct softdat_cno *cno;
    DAT_EVD_FLAGS flags;
    DAT_EVENT *ring;
    uint32_t qlen, head;
    _Atomic uint32_t count;
    int efd;                     /* eventfd of the waiter; -1 until somebody waits */
    int waiters, users;
    bool enabled, waitable, overflowed;
};

static inline bool softdat_evd_full(const struct softdat_evd *evd)
{
    return atomic_load_explicit(&evd->count, memory_order_relaxed) >= evd->qlen;
}

/* evd.c */
struct softdat_evd *softdat_evd_make(struct softdat_ia *ia, DAT_COUNT qlen, DAT_EVD_FLAGS flags);
void softdat_evd_destroy(struct softdat_evd *evd);
void softdat_evd_post(struct softdat_evd *evd, const DAT_EVENT *event);
/* The same in two steps: fill the slot, then push it. NULL: it overflows, which has been told. */
DAT_EVENT *softdat_evd_slot(struct softdat_evd *evd);
void softdat_evd_push(struct softdat_evd *evd, DAT_EVENT *slot);
void softdat_run_agents(struct softdat_ia *ia);

#endif
