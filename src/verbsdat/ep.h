/* SPDX-License-Identifier: MIT */
#ifndef VERBSDAT_EP_H
#define VERBSDAT_EP_H
/* Endpoints and what they use: receive queues, memory, connection requests. */
#include "datlock.h"
#include "event.h"
#include "handle.h"
#include "ia.h"

#include <dat_path_extensions.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

struct verbsdat_pz {
    struct verbsdat_handle h;
    struct ibv_pd *pd;
    atomic_uint users;
};

struct verbsdat_lmr {
    struct verbsdat_handle h;
    struct verbsdat_pz *pz;
    struct ibv_mr *mr;
    DAT_LMR_PARAM param;
};

enum verbsdat_kind {
    VERBSDAT_SEND, VERBSDAT_WRITE, VERBSDAT_READ, VERBSDAT_WRITE_IMM, VERBSDAT_FETCH_ADD,
    VERBSDAT_CMP_SWAP, VERBSDAT_RECV,
    VERBSDAT_MARK,               /* a write of no bytes: mark and announce of an EP */
};

/* A posted work request; its address is the wr_id. */
struct verbsdat_slot {
    struct verbsdat_ep *ep;      /* NULL: of a shared queue */
    DAT_DTO_COOKIE cookie;
    uint32_t number;             /* its place in the order of posting */
    uint8_t kind;                /* enum verbsdat_kind */
    bool silent;                 /* the consumer wants no event of its success */
    struct verbsdat_srq *srq;
    struct verbsdat_slot *next;  /* free slots of a shared queue */
};

/* Slots [tail, head) by number modulo size. */
struct verbsdat_queue {
    struct verbsdat_slot *slot;
    uint32_t mask, max;
    uint32_t head;
    _Atomic uint32_t tail;       /* moved when a completion is polled */
};

struct verbsdat_srq {
    struct verbsdat_handle h;
    struct verbsdat_pz *pz;
    struct ibv_srq *srq;
    pthread_mutex_t lock;
    struct verbsdat_slot *slot, *free;
    uint32_t max, max_iov, posted, low;
    atomic_uint users;
};

/* The paths of a connection (path.c); all with ia->lock. */
struct verbsdat_path {
    DAT_PATH_STATE state;
    bool set;                    /* an alternate: */
    DAT_PATH wanted;             /* as it was set; */
    DAT_PATH wanted_by_peer;     /* the peer's, as it has answered, from this side; */
    DAT_PATH loaded;             /* the QP has it; both 0: it has none */
    DAT_PATH current;            /* 0: not known */
    uint32_t n_remote;           /* ports of the peer; 0: not known */
    struct in_addr remote[VERBSDAT_PORTS];
    bool asked;                  /* this side has asked it to migrate */
    uint64_t due;                /* the peer is to be asked, or the QP; ns, UINT64_MAX: neither */
    unsigned tries;
    uint32_t n_armed, n_migrated, n_failed;
};

struct verbsdat_ep {
    struct verbsdat_handle h;
    _Atomic(DAT_EP_STATE) state;     /* written with ia->lock */
    DAT_EP_ATTR attr;
    struct verbsdat_pz *pz;
    struct verbsdat_evd *recv_evd, *req_evd, *conn_evd;
    struct verbsdat_srq *srq;
    struct rdma_cm_id *id;           /* from the request or its acceptance on; else NULL */
    struct ibv_qp *qp;
    struct verbsdat_ep *next_by_qp;
    /* requests and receives */
    struct datlock lock;
    struct verbsdat_queue req, recv;
    uint32_t silent_run;         /* requests since the last one that is signaled */
    uint32_t max_silent;         /* of them in a row */
    uint32_t max_inline;
    uint32_t max_iov;            /* segments of a request, of any kind */
    struct verbsdat_slot mark;   /* behind the last request of a connection that ends; its number
                                    is the next: those below have ended when the mark has */
    bool marked;                 /* it has been posted */
    struct verbsdat_slot announce;       /* the first packet on another path */
    atomic_bool announcing;
    bool over;                   /* the QP is in the error state, or on its way */
    atomic_bool fault;           /* a completion had an error */
    struct verbsdat_path path;
    /* connection */
    struct sockaddr_in remote;
    DAT_CONN_QUAL remote_qual;
    uint64_t deadline;           /* of connecting, ns; UINT64_MAX: none */
    bool abandoned;              /* its attempt has ended: the thread ends the identifier */
    struct rdma_conn_param param;
    uint8_t priv_out[VERBSDAT_PRIV];
    uint8_t priv[UINT8_MAX];     /* of the peer, of the last event */
};

struct verbsdat_psp {
    struct verbsdat_handle h;
    DAT_CONN_QUAL qual;
    struct verbsdat_evd *evd;
    struct rdma_cm_id *id;
    struct rdma_cm_id *alternate;        /* at the other address of the IA; NULL: it has none */
};

struct verbsdat_cr {
    struct verbsdat_handle h;
    struct rdma_cm_id *id;       /* NULL: the request has been withdrawn */
    struct sockaddr_in from;
    uint8_t priv[UINT8_MAX];
    uint8_t priv_len, responder_resources, initiator_depth;
};

/* ep.c */
struct verbsdat_ep *verbsdat_ep_of(DAT_EP_HANDLE handle);
/* Makes all DTOs of the EP complete: behind requests whose success makes no completion a mark is
 * posted, and the QP enters the error state. Again after a DTO was posted to such an EP; with
 * ia->lock. */
void verbsdat_ep_flush(struct verbsdat_ep *ep);
/* May the adapter never complete what it should flush? */
bool verbsdat_ep_loses(const struct verbsdat_ep *ep);
/* Completes what the adapter has not flushed in time; with ia->lock. */
void verbsdat_ep_lost(struct verbsdat_ep *ep);
/* Posts the mark if requests without a completion are the last; with ep->lock. */
void verbsdat_ep_mark(struct verbsdat_ep *ep);
/* Transmits a packet, from which the peer's adapter learns which path this side uses. */
void verbsdat_ep_announce(struct verbsdat_ep *ep);
/* Have all requests ended, as far as has been polled? */
static inline bool verbsdat_queue_idle(const struct verbsdat_queue *q)
{
    return atomic_load_explicit(&q->tail, memory_order_acquire) == q->head;
}

/* cm.c; all with ia->lock */
/* The EP has failed, or its connection has ended: state DISCONNECTED, flush, event. */
void verbsdat_ep_down(struct verbsdat_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                      size_t priv_len);
/* Ends a connection or an attempt at once, without an event. */
void verbsdat_ep_abort(struct verbsdat_ep *ep);
/* Takes the identifier from the EP; the caller destroys it without the lock. */
struct rdma_cm_id *verbsdat_ep_take_id(struct verbsdat_ep *ep);
/* EPs whose last request has ended, whose time is over, or that had an error. */
void verbsdat_cm_closing(struct verbsdat_ia *ia);
void verbsdat_cm_deadlines(struct verbsdat_ia *ia);
void verbsdat_cm_faults(struct verbsdat_ia *ia);
void verbsdat_cm_abandoned(struct verbsdat_ia *ia);
/* Connection parameters of an EP: what its attributes allow, and private data. */
void verbsdat_cm_param(struct verbsdat_ep *ep, const void *priv, DAT_COUNT size);
/* The TCP port of a qualifier. Larger ones are folded, as other providers do; of 0 it is 0. */
uint16_t verbsdat_cm_port(DAT_CONN_QUAL qual);
/* An identifier bound to an address of the adapter and this port; NULL: errno says why. */
struct rdma_cm_id *verbsdat_cm_id(struct verbsdat_ia *ia, const struct sockaddr_in *addr,
                                  uint16_t port, void *context);

/* An EP after *at, which is of ia->objects; NULL: there is none. */
struct verbsdat_ep *verbsdat_next_ep(struct verbsdat_ia *ia, struct mdapl_list **at);
#define VERBSDAT_EACH_EP(ep, ia) \
    for (struct mdapl_list *at_ = (ia)->objects.next; ((ep) = verbsdat_next_ep((ia), &at_));)

/* alternate.c: what a QP has of paths; with ia->lock */
/* Loads the path of a resolved identifier as the alternate. False: the adapter has refused it. */
bool verbsdat_alternate_load(struct verbsdat_ep *ep, const struct rdma_cm_id *id);
bool verbsdat_alternate_armed(const struct verbsdat_ep *ep);
bool verbsdat_alternate_migrate(const struct verbsdat_ep *ep);
/* The number of the peer's QP. */
uint32_t verbsdat_alternate_peer(const struct verbsdat_ep *ep);

/* path.c; with ia->lock */
/* The connection has been made, or has ended. */
void verbsdat_path_begin(struct verbsdat_ep *ep);
void verbsdat_path_end(struct verbsdat_ep *ep);
/* The alternate that both sides want. False: they differ, or it is the path in use. */
bool verbsdat_path_alternate(const struct verbsdat_ep *ep, DAT_PATH *path);
/* The ports of the peer are known now. */
void verbsdat_path_ports(struct verbsdat_ep *ep, uint32_t n, const struct in_addr *remote);
/* The QP has been loaded: it is armed, or will be. */
void verbsdat_path_loaded(struct verbsdat_ep *ep, DAT_PATH path);
/* Asks what is due, of the peer or of the QP. */
void verbsdat_path_due(struct verbsdat_ep *ep);
/* Later, or after some time, or never again. */
void verbsdat_path_again(struct verbsdat_ep *ep);
/* The adapter has reported that the QP has migrated, or cannot. */
void verbsdat_path_migrated(struct verbsdat_ep *ep);
void verbsdat_path_failed(struct verbsdat_ep *ep);
/* A port of the adapter is up, or down. */
void verbsdat_path_port(struct verbsdat_ia *ia, uint8_t verbs_port, bool up);
/* An operation of the extension; DAT_NOT_IMPLEMENTED: it is none. Without ia->lock. */
DAT_RETURN verbsdat_path_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args);

/* ask.c; with ia->lock */
/* Asks the peer. False: another exchange is under way, or it cannot be asked now. */
bool verbsdat_ask_peer(struct verbsdat_ep *ep);
/* An event of the exchange. Returns its identifier if it is over. */
struct rdma_cm_id *verbsdat_ask_event(struct verbsdat_ia *ia, const struct rdma_cm_event *e);
/* A request: answers it if it is one of these. */
bool verbsdat_ask_answer(struct verbsdat_ia *ia, const struct rdma_cm_event *e);
/* Its time is over: returns the identifier that is to be destroyed, or NULL. */
struct rdma_cm_id *verbsdat_ask_expired(struct verbsdat_ia *ia);
/* The EP of the exchange is being freed. */
void verbsdat_ask_forget(const struct verbsdat_ep *ep);

/* accept.c; with ia->lock. A request at a listening identifier. False: it is refused. */
bool verbsdat_cr_arrived(struct verbsdat_ia *ia, const struct rdma_cm_event *event);
/* The caller has gone. The identifier is destroyed by the caller of this function. */
void verbsdat_cr_withdrawn(struct verbsdat_cr *cr);

/* thread.c: the event that a shared queue has fewer receives than its limit */
void verbsdat_srq_low(struct verbsdat_srq *srq);

/* srq.c */
void verbsdat_srq_give(struct verbsdat_slot *slot);
void verbsdat_by_qp_add(struct verbsdat_ep *ep);
void verbsdat_by_qp_remove(struct verbsdat_ep *ep);
struct verbsdat_ep *verbsdat_by_qp(struct verbsdat_ia *ia, uint32_t qp_num);

#endif
