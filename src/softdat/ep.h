/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_EP_H
#define SOFTDAT_EP_H
/* Endpoints, and the requests and receives that are posted on them. */
#include "ep_fsm.h"
#include "mem.h"
#include "wire.h"
#include "dat_path_extensions.h"

#include <netinet/in.h>

#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>

struct softdat_ia;
struct softdat_conn;
struct softdat_srq;
struct softdat_config;

enum { SOFTDAT_DTO_BIND = 0x100 };   /* beside DAT_DTOS and DAT_IB_DTOS */

enum softdat_dto_state { SOFTDAT_DTO_QUEUED, SOFTDAT_DTO_SENT, SOFTDAT_DTO_DONE };

/* A local segment of a DTO. */
struct softdat_seg {
    uint8_t *at;
    size_t len;
    uint32_t key;                /* lmr_context of its registration; 0: the provider's memory */
};

struct softdat_dto {
    DAT_DTO_COOKIE cookie;
    int op;                      /* DAT_DTOS, DAT_IB_DTOS or SOFTDAT_DTO_BIND */
    DAT_COMPLETION_FLAGS flags;
    enum softdat_dto_state state;
    DAT_DTO_COMPLETION_STATUS status;
    uint32_t seq;                /* SEND and WRITE: sequence number, acknowledged by the peer */
    int n_seg;
    uint64_t len;                /* bytes requested; completed receive: bytes received */
    uint64_t raddr;
    uint64_t due;                /* link emulation: earliest transmit time, ns */
    uint32_t rkey;
    uint32_t regions_freed;      /* ia->regions_freed when its segments were last verified */
    uint64_t begun;
    struct softdat_seg *seg;     /* n_seg entries of the ring's array */
    bool direct;                 /* the target copies the bytes (PULL, PUSH) */
    bool judged;                 /* the way was chosen by the judge, at time `begun`, ns */
    bool plain;                  /* posted by short.c: it completes by `executed` */
    uint8_t ext;                 /* extended event: 1 + its DAT_IB_EXT_TYPE; else 0 */
    uint32_t imm;                /* immediate data, sent or received */
    uint64_t operand[2];         /* atomic operation: add; or compare, swap */
    struct softdat_bind bind;
};

/* True if the request brings data back: it completes with its response. */
static inline bool softdat_is_read(const struct softdat_dto *d)
{
    return d->op == DAT_DTO_RDMA_READ || d->op == DAT_IB_DTO_FETCH_ADD
           || d->op == DAT_IB_DTO_CMP_SWAP;
}

/* A ring of posted DTOs, oldest first. It has as many entries as were posted at a time, in powers
 * of two, since few consumers use all that they have asked for, on each EP. A pointer to an entry
 * is valid until another one is posted. */
struct softdat_ring {
    struct softdat_dto *dto;
    struct softdat_seg *seg;
    uint32_t size, head, count;
    uint32_t sent;               /* requests: how many, from head on, are transmitted */
    uint32_t max, seg_each;      /* it grows to so many entries; segments of each */
};

/* Returns the oldest DTO; without one: the next free entry. */
static inline struct softdat_dto *softdat_ring_first(const struct softdat_ring *r)
{
    return &r->dto[r->head];
}

/* Returns the i-th DTO from the oldest; i == count: the next free entry. */
static inline struct softdat_dto *softdat_ring_at(struct softdat_ring *r, uint32_t i)
{
    uint32_t at = r->head + i;

    return &r->dto[at < r->size ? at : at - r->size];
}

static inline void softdat_ring_pop(struct softdat_ring *r)
{
    r->head = r->head + 1 < r->size ? r->head + 1 : 0;
    r->count--;
    if (r->sent > 0)
        r->sent--;
}

/* A registration as the last segment used it: what short.c needs of it. */
struct softdat_known {
    uint32_t key;                /* lmr_context; 0: none */
    uint32_t regions_freed;      /* ia->regions_freed when it was looked up */
    uint64_t va, len;            /* as in softdat_region */
    uint8_t *at;
};

/* A queue of receives: of one EP, or shared by several (rq.c). */
struct softdat_rq {
    struct softdat_ring ring;
    uint32_t max_iov;
    struct softdat_list waiting; /* connections with a held or parked send */
};

struct softdat_srq {
    struct softdat_handle h;
    struct softdat_pz *pz;
    struct softdat_rq rq;
    uint32_t low_watermark;      /* posts an event below so many receives; 0: disarmed */
    uint32_t recvs_in_progress;         /* receives consumed but not completed */
    int users;
};

/* The alternate path of an EP, and its migrations (alternate.c, standby.c). Most EPs have none. */
struct softdat_alternate {
    struct softdat_ep *ep;
    DAT_PATH path;               /* as it was set */
    bool set;
    bool multipath;              /* DAT 2.0: the provider loads, and reports by DAT's own events */
    bool peer_loaded;            /* the peer has loaded its alternate, */
    DAT_PATH peer_path;          /* which is this */
    DAT_PATH_STATE state;
    uint32_t n_armed, n_migrated, n_failed;
    struct softdat_conn *standby;    /* the link over the alternate path; NULL: none */
    struct softdat_list waits;   /* on ia->standbys until standby_at, ns */
    uint64_t standby_at;
    unsigned tries;              /* to make a standby, since there was one */
    uint32_t move;               /* number of the migration that is being made; 0: none */
    uint32_t move_cause;         /* DAT_PATH_CAUSE, of this side; 0: the peer has begun it */
    bool move_asked;             /* passive: MOVE has been transmitted */
    bool link_reset;             /* the remote kernel has reset the former link */
};

struct softdat_ep {
    struct softdat_handle h;
    DAT_EP_STATE state;          /* changed only by softdat_ep_step() */
    uint8_t port;                /* index of the adapter's port */
    bool has_current_recv;
    DAT_EP_ATTR attr;
    struct softdat_pz *pz;
    struct softdat_evd *recv_evd, *req_evd, *conn_evd;
    struct softdat_conn *conn;
    struct softdat_rq own, *rq;  /* rq: &own, or &srq->rq */
    struct softdat_srq *srq;
    struct softdat_dto current_recv;    /* the receive of the send that arrives now */
    struct softdat_seg *current_recv_seg;       /* as many as a receive can have */
    struct softdat_ring req;
    uint32_t last_seq;           /* sequence number of the last SEND or WRITE transmitted */
    uint32_t reads;              /* RDMA reads and atomics in flight */
    uint32_t short_send, short_rdma;     /* bytes that may be posted by short.c */
    struct softdat_known known_out, known_in;    /* of its last request and receive there */
    struct sockaddr_in remote;
    DAT_CONN_QUAL remote_qual;
    uint8_t priv[SOFTDAT_PRIV_MAX];   /* the peer's private data, for the event */
    struct softdat_alternate *alternate;     /* NULL: none was ever set */
};

/* ep.c; called with the lock. */
/* Posts the event of ep with private data priv, copied; no event if ep has no connect EVD. */
void softdat_ep_event(struct softdat_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                      size_t priv_len);
/* Posts the completion of d, a request or receive of ep, to evd (NULL: none), unless it is
 * suppressed. */
void softdat_ep_complete(struct softdat_ep *ep, struct softdat_evd *evd,
                         const struct softdat_dto *d);
/* Posts the completions of the finished requests at the head of the queue. With
 * DAT_CLOSE_GRACEFUL_FLAG, sends BYE after the last one. */
void softdat_ep_reap(struct softdat_ep *ep);
/* Moves the oldest posted receive to ep->current_recv and returns that. NULL: none is posted. */
struct softdat_dto *softdat_ep_pop_recv(struct softdat_ep *ep);
/* Completes ep->current_recv, if there is one, with status and len bytes. imm: immediate data of
 * the write that consumed it; NULL: a send did. */
void softdat_ep_recv_done(struct softdat_ep *ep, DAT_DTO_COMPLETION_STATUS status, uint64_t len,
                          const uint32_t *imm);
/* Completes all DTOs of ep, but not those of its shared receive queue, with DAT_DTO_ERR_FLUSHED. */
void softdat_ep_flush(struct softdat_ep *ep);
/* True if the attributes are within the limits of the adapter. */
bool softdat_ep_attr_fits(const struct softdat_config *cfg, const DAT_EP_ATTR *attr);
/* Ends the connection of ep: flushes its DTOs and posts the event number, once. */
void softdat_ep_down(struct softdat_ep *ep, DAT_EVENT_NUMBER number);
/* Frees an EP without a connection. */
void softdat_ep_destroy(struct softdat_ep *ep);

/* alternate.c */
/* A connection of ep begins: nothing has been loaded or counted. */
void softdat_alternate_begin(struct softdat_ep *ep, bool multipath);
/* It has ended. The counts stay. */
void softdat_alternate_end(struct softdat_ep *ep);
/* Returns ep's state as the consumer sees it: several paths have one of their own. */
DAT_EP_STATE softdat_alternate_ep_state(const struct softdat_ep *ep);

/* rq.c */
/* Makes a ring of at most max DTOs with seg_each segments each. False: out of memory. */
bool softdat_ring_make(struct softdat_ring *r, uint32_t max, uint32_t seg_each);
/* Makes room for one more entry. False: there are max, or out of memory. */
bool softdat_ring_grow(struct softdat_ring *r);
/* True if there is room for one more entry, now or after growing. */
static inline bool softdat_ring_room(struct softdat_ring *r)
{
    return r->count < r->size || softdat_ring_grow(r);
}
void softdat_ring_free(struct softdat_ring *r);
/* Returns the oldest request that is not done; NULL: none. */
struct softdat_dto *softdat_ring_unfinished(struct softdat_ring *r);
/* Initialises rq with such a ring. False: out of memory. */
bool softdat_rq_make(struct softdat_rq *rq, uint32_t max, uint32_t seg_each);
/* Counts a receive that has left the queue; posts the low watermark event if it is due. */
void softdat_srq_consumed(struct softdat_srq *srq);

/* post.c */
/* Posts a bind (DAT 2.0, dat_rmr_bind); called with the lock. Returns DAT_INVALID_STATE if ep is
 * not connected, DAT_INSUFFICIENT_RESOURCES if its request queue is full. */
DAT_RETURN softdat_ep_post_bind(struct softdat_ep *ep, const struct softdat_bind *bind,
                                DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
/* The DAT calls of these names, of requests and receives that short.c does not post itself. ep is
 * NULL if the handle was of no EP. Without the lock. */
DAT_RETURN softdat_post_send(struct softdat_ep *ep, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                             DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
DAT_RETURN softdat_post_write(struct softdat_ep *ep, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                              DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                              DAT_COMPLETION_FLAGS flags);
DAT_RETURN softdat_post_recv(struct softdat_ep *ep, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                             DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
/* Makes d, behind the last entry of the ring, whose segments are set, a posted receive. */
static inline void softdat_recv_append(struct softdat_ring *ring, struct softdat_dto *d,
                                       DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    d->cookie = cookie;
    d->flags = flags & ~(DAT_COMPLETION_FLAGS)DAT_COMPLETION_SUPPRESS_FLAG;
    d->op = DAT_DTO_RECEIVE;
    d->ext = 0;
    d->status = DAT_DTO_SUCCESS;
    ring->count++;
}
/* Posts a receive of n segments in protection zone pz; called with the lock. Returns an error as
 * dat_ep_post_recv does (DAT 2.0). */
DAT_RETURN softdat_rq_post(struct softdat_ia *ia, struct softdat_rq *rq,
                           const struct softdat_pz *pz, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                           DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);

#endif
