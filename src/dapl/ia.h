/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_IA_H
#define MDAPL_IA_H
/*
 * A rail: one interface adapter (IA), opened, with its protection zone, notification object (CNO),
 * event dispatchers (EVDs) and listening point (PSP). dapl.c opens it; evd.c takes its events; ep.c
 * makes endpoints on it and lmr.c registrations. Only ia.c, evd.c, ep.c and lmr.c call the DAT API,
 * cm.c and cm_hello.c its calls for connection requests, and path.c those of the path extension;
 * test/lint has this as a rule.
 */
#include "channel.h"
#include "dat.h"
#include "list.h"
#include "rail_fsm.h"
#include "timer.h"
#include "tree.h"

#include <dat2/udat.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct dat_path_event_data;
struct mdapl_ctx;
struct mdapl_dapl_chan;
struct mdapl_dapl_cm_cause;
struct mdapl_dapl_ep;
struct mdapl_dapl_ia;
struct mdapl_dapl_vbufs;

enum mdapl_dapl_dto_kind { MDAPL_DTO_SEND, MDAPL_DTO_READ, MDAPL_DTO_WRITE };   /* requests */

/*
 * One posted transfer (DTO). It is embedded in what it moves (a vbuf, a rendezvous), and it stays
 * where it is until done() has been called. Providers make exactly one completion for each post,
 * flushed posts included, but none for the success of an unsignaled one: its success is implied by
 * the completion of a later request of the same EP. `ep` counts the completions that are
 * outstanding. The cookie that the provider returns names the EP's incarnation and the post, and
 * no address (ep.h).
 */
struct mdapl_dapl_dto {
    void (*done)(struct mdapl_dapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len);
    struct mdapl_dapl_ep *ep;
    uint16_t number;         /* of the post, among the receives or the requests of its EP */
    bool unsignaled;
    bool reported;           /* a request that has completed, behind a read that has not */
    enum mdapl_dapl_dto_kind kind; /* of a request */
    size_t len;              /* what its event says, if it is reported */
    uint64_t bytes;          /* of RDMA, for the balance between streams */
};

/* Callbacks of connection management (cm.c), called by evd.c. arg: the channel. */
struct mdapl_dapl_ia_hooks {
    void (*cr)(void *arg, struct mdapl_dapl_ia *ia, DAT_CR_HANDLE cr);
    void (*conn)(void *arg, struct mdapl_dapl_ep *ep, DAT_EVENT_NUMBER event, const void *priv,
                 size_t priv_len);
    /* An asynchronous error of the object `what`; ep: the endpoint that it is, or NULL. */
    void (*async)(void *arg, struct mdapl_dapl_ia *ia, DAT_HANDLE what, struct mdapl_dapl_ep *ep,
                  DAT_EVENT_NUMBER event);
    /* An event of the path extension; ep as above. */
    void (*path)(void *arg, struct mdapl_dapl_ia *ia, struct mdapl_dapl_ep *ep,
                 DAT_EVENT_NUMBER event, const struct dat_path_event_data *data);
    void *arg;
};

/* What the provider allows, cut to what the channel uses. */
struct mdapl_dapl_ia_limits {
    uint32_t dtos;           /* per EP and direction */
    uint32_t window, requests;   /* what the knobs give an EP: frames that it receives, requests */
    uint32_t reads;          /* RDMA reads that an EP makes at once; 0: no RDMA read */
    uint32_t reads_in;       /* that it answers at once */
    uint32_t recv_segs;      /* segments of a receive: 1 or 2 */
    uint32_t evd_qlen;
    uint32_t priv;           /* bytes of private data in a request */
    uint64_t message;        /* bytes of one send */
    uint64_t rdma;           /* bytes of one RDMA transfer */
    uint64_t lmr;            /* bytes of one registration */
    uint32_t lmrs;           /* registrations */
    uint32_t ports;          /* over which a path may lead; 0: it has no path extension */
    bool ordered;            /* RDMA writes land in the order of their addresses */
    bool placed;             /* a write that has completed is in the peer's memory */
};

/*
 * A queue of DTO completions. Its length is fixed, because with some providers dat_evd_resize()
 * never returns or loses events. When all entries of one queue are reserved by EPs the next EP gets
 * another queue.
 */
struct mdapl_dapl_dto_evd {
    DAT_EVD_HANDLE handle;
    uint32_t room, used;     /* entries; of them, reserved by EPs */
    uint32_t burst;          /* events that the next poll takes at most (evd.c) */
};

enum { MDAPL_DTO_EVDS = 32 };

/* A rail that is DOWN, and the attempts to open it again (rail.c). */
struct mdapl_dapl_rail_down {
    const struct mdapl_dapl_cm_cause *cause;     /* why it is */
    uint64_t since;          /* ns */
    uint64_t open_at;        /* when the next attempt is due, ns */
    uint64_t took;           /* the time of the last attempt, ns */
    uint32_t attempts;
    struct mdapl_timer timer;
    char why[192];           /* why the last one failed; "": there was none */
};

struct mdapl_dapl_ia {
    struct mdapl_ctx *ctx;
    const struct mdapl_dapl_dat *dat;
    int rail;                /* its place among the channel's adapters */
    enum mdapl_dapl_rail_state state;    /* mdapl_dapl_rail_step() changes it */
    /* Of its DAT objects, 1 at first; each time that the rail goes DOWN it grows. What carries an
     * older one - keys, handles of registrations - is not used any more. */
    uint32_t generation;
    uint64_t quiet_at;       /* SUSPECT: when it is OPEN again unless it is doubted, ns */
    char name[DAT_NAME_MAX_LENGTH];
    struct mdapl_dapl_ia_limits max;
    struct mdapl_dapl_ia_hooks hooks;

    DAT_IA_HANDLE handle;
    DAT_PZ_HANDLE pz;
    DAT_EVD_HANDLE conn_evd, cr_evd, async_evd;
    struct mdapl_dapl_dto_evd dto[MDAPL_DTO_EVDS];
    int n_dto;               /* of them, at least one */
    DAT_CNO_HANDLE cno;      /* of these queues, which notify it during a sleep only (evd.c) */
    DAT_EVD_HANDLE alarm_evd;      /* software events that end a sleep; several rails, or threads:
                                    * rails.c */
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;      /* what the PSP listens on */
    uint8_t addr[28];        /* the adapter's address, a struct sockaddr */
    uint8_t addr_len;

    struct mdapl_dapl_vbufs *vbufs; /* frame buffers of its EPs */
    struct mdapl_tree by_handle;   /* its EPs by handle, for events that name one */
    struct mdapl_dapl_ep **ep;     /* its EPs by the index in their cookies; NULL: free */
    uint32_t n_ep, ep_serial;      /* places in it; of EPs made, ever */
    struct mdapl_dapl_kept_event {
        void (*handle)(struct mdapl_dapl_ia *ia, const DAT_EVENT *event);
        DAT_EVENT event;
    } kept;                  /* found before a sleep, to be handled; handle NULL: none */
    struct mdapl_dapl_rail_down down;
    bool calls_fail;         /* a call has reported that the adapter is unusable */
    bool alarmed;            /* it has an alarm_evd whenever it is open */
    bool asleep;             /* a thread sleeps on it, and others may use it */
    bool abandoned;          /* it, or an earlier incarnation of it, could not be closed */
};

/* Opens the adapter of this name, or with "" the first of dat.conf that opens, into *ia_p, which
 * the caller closes. hooks is copied. 0, or -errno with the one clear line in mdapl_ctx_err(). */
int mdapl_dapl_ia_open(struct mdapl_ctx *ctx, const struct mdapl_dapl_dat *dat, const char *name,
                       const struct mdapl_dapl_ia_hooks *hooks, struct mdapl_dapl_ia **ia_p);
/* Closes and frees it; its EPs have been freed (conn.h). */
void mdapl_dapl_ia_close(struct mdapl_dapl_ia *ia);
/* Reserves n entries of a DTO queue, since an overflow would lose completions. The EP gives them
 * back by lowering `used`. NULL: the provider makes no further queue. */
struct mdapl_dapl_dto_evd *mdapl_dapl_ia_reserve(struct mdapl_dapl_ia *ia, uint32_t n);
/*
 * An event in the life of a rail. SUSPECT ends by itself (mdapl_dapl_rail_look()). DOWN: the
 * registrations of the rail are void, it makes no others, and no thread sleeps on it; posted DTOs
 * are still flushed. The caller judges what that means for peers.
 */
void mdapl_dapl_rail_step(struct mdapl_dapl_ia *ia, enum mdapl_dapl_rail_event event);
/* May anything be made on it, or posted? Else none of its streams is up. */
static inline bool mdapl_dapl_rail_usable(const struct mdapl_dapl_ia *ia)
{
    return ia->state == MDAPL_DAPL_RAIL_OPEN || ia->state == MDAPL_DAPL_RAIL_SUSPECT;
}

/*
 * Closes the DAT objects of a rail that is DOWN, its EPs first: the DTOs that have not completed
 * are flushed here, once their EP is freed, so op->done() may be called. 0: it is closed. -EAGAIN:
 * the provider refuses, or a thread sleeps on it, whose sleep is ended. Then the call can be
 * repeated; with `abandon` the rail counts as closed also if the provider refuses, the objects that
 * the provider has not freed are left, and the receives that are posted on them keep their buffers,
 * because the adapter may still write there.
 */
int mdapl_dapl_rail_shut(struct mdapl_dapl_ia *ia, bool abandon);
/*
 * Closes the DAT objects of a rail that is DOWN and opens the adapter of the same name again, with
 * its old connection qualifier if that is free; its frame buffers are registered anew. 0: OPEN.
 * -EBUSY: it is not DOWN, or EPs are left on it. Any other -errno, with the one clear line in
 * mdapl_ctx_err(): DOWN as before. It blocks as long as the provider takes.
 */
int mdapl_dapl_rail_reopen(struct mdapl_dapl_ia *ia);
/* Makes alarm_evd. 0, or -errno with the one clear line in mdapl_ctx_err(). */
int mdapl_dapl_ia_make_alarm(struct mdapl_dapl_ia *ia);
/* The text of a DAT status: "DAT_INVALID_PARAMETER, DAT_INVALID_ARG1". */
const char *mdapl_dapl_dat_text(const struct mdapl_dapl_ia *ia, DAT_RETURN ret, char buf[96]);

/* -- an adapter that fails: rail.c ------------------------------------------------------------- */

/*
 * It does not end the job (paper resilient-message-passing, adapter failure). Its rail goes DOWN:
 * its connections end, and what they carried moves to the streams of other rails in the same round
 * of progress. It is closed, and opened again with backoff. Its streams wait in BACKOFF meanwhile;
 * once it is open they are connected like any others that have ended. A peer that has no other rail
 * is given up after MPIR_CVAR_DAPL_MAX_OUTAGE_MS. With MPIR_CVAR_DAPL_FT=off all peers on the rail
 * are lost at once, and it is not opened again.
 */

/* Prepares the rail for that, when the timers of its channel have been initialized. */
void mdapl_dapl_rail_init(struct mdapl_dapl_ia *ia);
/* The adapter can carry nothing any more. Ignored if that is known. Only inside progress. */
void mdapl_dapl_rail_fail(struct mdapl_dapl_chan *d, struct mdapl_dapl_ia *ia,
                          const struct mdapl_dapl_cm_cause *cause);
/* A rail that is SUSPECT is OPEN again when its time is over, or DOWN if its calls fail. */
void mdapl_dapl_rail_look_at_suspect(struct mdapl_dapl_chan *d, struct mdapl_dapl_ia *ia);
/* What is due, to be called now and then. Only inside progress. */
static inline void mdapl_dapl_rail_look(struct mdapl_dapl_chan *d, struct mdapl_dapl_ia *ia)
{
    if (ia->state == MDAPL_DAPL_RAIL_SUSPECT)
        mdapl_dapl_rail_look_at_suspect(d, ia);
}

/* -- events: evd.c ---------------------------------------------------------------------------- */

/*
 * One DTO EVD serves many EPs of an adapter, so the cost of a poll hardly depends on the number of
 * peers; connection, CR and asynchronous EVDs are polled less often (dapl.c).
 */

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
