/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_EP_H
#define SOFTDAT_EP_H
/* Endpoints, and the requests and receives that are posted on them. */
#include "ep_fsm.h"
#include "mem.h"
#include "wire.h"

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
    uint32_t key;                /* of the registration that it lies in */
};

struct softdat_dto {
    DAT_DTO_COOKIE cookie;
    int op;                      /* DAT_DTOS, DAT_IB_DTOS or SOFTDAT_DTO_BIND */
    DAT_COMPLETION_FLAGS flags;
    enum softdat_dto_state state;
    DAT_DTO_COMPLETION_STATUS status;
    uint32_t seq;                /* SEND and WRITE: its number, for the acknowledgement */
    uint64_t len;                /* bytes asked for; for a receive, after the end, bytes received */
    uint64_t raddr;
    uint64_t due;                /* on a slow wire: not before, ns */
    uint32_t rkey;
    uint32_t regions_freed;      /* ia->frees when its segments were last found registered */
    bool direct;                 /* the target carries the bytes */
    int n_seg;
    struct softdat_seg *seg;     /* its place in the ring's array */
    uint8_t ext;                 /* an extended event: 1 + its DAT_IB_EXT_TYPE; else 0 */
    uint32_t imm;                /* immediate data, sent or received */
    uint64_t operand[2];         /* of an atomic operation: add; or compare, swap */
    struct softdat_bind bind;
};

/* Does it bring data back? Such requests complete with their answers, in their order. */
static inline bool softdat_is_read(const struct softdat_dto *d)
{
    return d->op == DAT_DTO_RDMA_READ || d->op == DAT_IB_DTO_FETCH_ADD
           || d->op == DAT_IB_DTO_CMP_SWAP;
}

/* A ring of posted DTOs, oldest first. */
struct softdat_ring {
    struct softdat_dto *dto;
    struct softdat_seg *seg;
    uint32_t size, head, count;
    uint32_t sent;               /* requests: how many from head on have been started */
};

/* The i-th of them, counted from the oldest; the one behind the last is the next free place. */
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

/* A queue of receives: an EP's own, or one that EPs share (rq.c). */
struct softdat_rq {
    struct softdat_ring ring;
    uint32_t max_iov;
    struct softdat_list waiting; /* connections that hold sends for which there was no receive */
};

struct softdat_srq {
    struct softdat_handle h;
    struct softdat_pz *pz;
    struct softdat_rq rq;
    uint32_t low_watermark;      /* an event when fewer receives are left; 0: disarmed */
    uint32_t recvs_in_progress;         /* receives that have left the queue and not completed */
    int users;
};

struct softdat_ep {
    struct softdat_handle h;
    DAT_EP_STATE state;          /* changed by softdat_ep_step() only */
    DAT_EP_ATTR attr;
    struct softdat_pz *pz;
    struct softdat_evd *recv_evd, *req_evd, *conn_evd;
    struct softdat_conn *conn;
    struct softdat_rq own, *rq;  /* rq: own, or of srq */
    struct softdat_srq *srq;
    struct softdat_dto current_recv;    /* the receive that the arriving send goes to */
    struct softdat_seg current_recv_seg[SOFTDAT_MAX_IOV];
    bool has_current_recv;
    struct softdat_ring req;
    uint32_t next_seq;           /* of the next SEND or WRITE */
    uint32_t reads;              /* RDMA reads under way */
    struct sockaddr_in remote;
    DAT_CONN_QUAL remote_qual;
    uint8_t port;                /* of ours, through which it is connected */
    uint8_t priv[SOFTDAT_PRIV_MAX];   /* private data of the answer, for the event */
};

/* ep.c */
void softdat_ep_event(struct softdat_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                      size_t priv_len);
/* Takes the completed requests off the head of the ring and tells of them. */
void softdat_ep_reap(struct softdat_ep *ep);
/* Takes the next receive for an arriving send: ep->taken. NULL: there is none. */
struct softdat_dto *softdat_ep_pop_recv(struct softdat_ep *ep);
/* The taken receive completes; imm: a write with immediate data has used it. */
void softdat_ep_recv_done(struct softdat_ep *ep, DAT_DTO_COMPLETION_STATUS status, uint64_t len,
                          const uint32_t *imm);
void softdat_ep_flush(struct softdat_ep *ep);
bool softdat_ep_attr_fits(const struct softdat_config *cfg, const DAT_EP_ATTR *attr);
/* The connection is over: flush everything, one event. */
void softdat_ep_down(struct softdat_ep *ep, DAT_EVENT_NUMBER number);
void softdat_ep_destroy(struct softdat_ep *ep);

/* rq.c */
bool softdat_ring_make(struct softdat_ring *r, uint32_t size, uint32_t seg_each);
void softdat_ring_free(struct softdat_ring *r);
/* The oldest request that has not finished; NULL: none. */
struct softdat_dto *softdat_ring_unfinished(struct softdat_ring *r);
bool softdat_rq_make(struct softdat_rq *rq, uint32_t size, uint32_t seg_each);
/* A receive has left the shared queue: is that to be told? */
void softdat_srq_consumed(struct softdat_srq *srq);

/* post.c */
/* Posts a bind; called with the lock. */
DAT_RETURN softdat_ep_post_bind(struct softdat_ep *ep, const struct softdat_bind *bind,
                                DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
/* Posts a receive to a queue whose memory is of pz; called with the lock. */
DAT_RETURN softdat_rq_post(struct softdat_ia *ia, struct softdat_rq *rq,
                           const struct softdat_pz *pz, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                           DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);

#endif
