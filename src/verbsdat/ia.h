/* SPDX-License-Identifier: MIT */
#ifndef VERBSDAT_IA_H
#define VERBSDAT_IA_H
/* An adapter: one IPv4 address of one verbs device, with one thread. */
#include "handle.h"

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>

struct verbsdat_evd;
struct verbsdat_ep;

enum {
    VERBSDAT_PRIV = 56,          /* bytes of private data: what RDMA-CM leaves of a request */
    VERBSDAT_MAX_IOV = 16,       /* segments of a DTO */
    VERBSDAT_NAMED = 12,
    VERBSDAT_QP_BUCKETS = 256,
    VERBSDAT_PORTS = 2,          /* addresses of an IA at most: port N of a path is the Nth */
};

/* The IA parameters of dat.conf (config.c). */
struct verbsdat_config {
    struct sockaddr_in addr;
    struct sockaddr_in alternate;        /* sin_family 0: none */
    uint8_t retry;               /* of a transport timeout: 0 to 7 (IBA 9.7.5.1.3) */
    uint8_t ack_timeout;         /* 4.096 us * 2^n; 0: the connection manager's choice */
    uint32_t max_inline;         /* bytes */
};

/* The exchange of an IA with a peer about the alternate path of a connection (ask.c). */
struct verbsdat_ask {
    struct verbsdat_handle h;    /* what its identifier's context is */
    struct rdma_cm_id *id;       /* NULL: there is none under way */
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;           /* verbsdat_unused_qp(): requests have the number of a QP */
    struct verbsdat_ep *ep;      /* NULL: it has ended meanwhile */
    uint64_t deadline;           /* ns */
};

struct verbsdat_ia {
    struct verbsdat_handle h;
    struct mdapl_list open;      /* on the list of all open adapters of the process */
    char name[DAT_NAME_MAX_LENGTH];
    struct verbsdat_config cfg;
    struct rdma_event_channel *cm;
    struct rdma_cm_id *id;       /* bound to the address: it holds the device open */
    struct ibv_context *verbs;
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    bool iwarp;
    atomic_bool lost;            /* the device has failed, or has been removed */
    /* paths: the adapter migrates, and what its ports are then (alternate.c) */
    bool migrates, uses_paths;
    struct sockaddr_in at[VERBSDAT_PORTS];
    uint8_t verbs_port[VERBSDAT_PORTS];
    struct verbsdat_ask ask;
    pthread_mutex_t lock;
    struct mdapl_list objects, freed;
    unsigned n_freed;
    struct verbsdat_evd *async_evd;
    DAT_NAMED_ATTR named[VERBSDAT_NAMED];
    DAT_COUNT n_named;
    char port_text[12];
    atomic_int agents_due;       /* CNOs whose agent is to be called */
    /* thread.c */
    pthread_t thread;
    int epfd, wake_fd;
    bool stop;
    uint64_t next_deadline;      /* ns, CLOCK_MONOTONIC; UINT64_MAX: none */
    unsigned closing;            /* EPs in DISCONNECT_PENDING */
    atomic_bool faulty;          /* an EP's completion had an error */
    bool abandoned;              /* an EP's attempt to connect has ended */
    /* srq.c: EPs with a shared queue, by QP number */
    pthread_mutex_t qp_lock;
    struct verbsdat_ep *by_qp[VERBSDAT_QP_BUCKETS];
};

/* config.c: 0, or -1 after a line on stderr that names the IA and the parameter. */
int verbsdat_config_parse(const char *name, const char *params, struct verbsdat_config *cfg);
/* alternate.c: finds out which ports the IA has and whether the adapter migrates connections. 0, or
 * an errno value: the alternate address is of no port of the adapter. */
int verbsdat_alternate_open(struct verbsdat_ia *ia);
void verbsdat_alternate_close(struct verbsdat_ia *ia);
/* alternate.c: a QP of the IA's own that is never connected, to ask what the adapter can. NULL: the
 * adapter refuses one. It ends with the IA. */
struct ibv_qp *verbsdat_unused_qp(struct verbsdat_ia *ia);
/* attr.c: fills the named attributes. */
void verbsdat_attr_name(struct verbsdat_ia *ia);

/* ia.c */
struct verbsdat_ia *verbsdat_ia_of(DAT_IA_HANDLE handle);
void verbsdat_lock(struct verbsdat_ia *ia);
/* Releases ia->lock and calls the agents that are due. */
void verbsdat_unlock(struct verbsdat_ia *ia);
/* Calls f for every open adapter of the process on this device. */
void verbsdat_ia_each(const struct ibv_context *verbs, void (*f)(struct verbsdat_ia *, void *),
                      void *arg);

/* thread.c */
/* Starts the thread, which blocks all signals. 0, or an errno value. */
int verbsdat_thread_start(struct verbsdat_ia *ia);
/* Ends it; returns when it has ended. */
void verbsdat_thread_stop(struct verbsdat_ia *ia);
/* Makes the thread look at what has changed. */
void verbsdat_thread_wake(struct verbsdat_ia *ia);
/* The thread looks at its EPs' deadlines at this time, or before; with ia->lock. */
void verbsdat_thread_deadline(struct verbsdat_ia *ia, uint64_t ns);
/* Makes the thread wait for notifications of an EVD's CQ, or not. */
void verbsdat_thread_watch(struct verbsdat_ia *ia, struct verbsdat_evd *evd, bool on);
uint64_t verbsdat_now(void);

/* cm.c: an event of the connection manager; takes ia->lock, acknowledges the event. */
void verbsdat_cm_event(struct rdma_cm_event *event, struct verbsdat_ia *ia);

#endif
