/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_EP_H
#define MDAPL_EP_H
/*
 * A DAT endpoint, and all posting of DTOs. conn.c makes EPs and ends them, cm.c brings them up, and
 * tx.c, rx.c, ring.c and xfer.c post on them. An EP counts what is posted on it and has not
 * completed; it is freed when that is nothing, because until then an adapter may still write into a
 * vbuf or a user's buffer.
 *
 * A cookie is 64 bits: a serial number of the EP (24), its index in ia->ep (23), whether the DTO is
 * a request (1), and the number of the post on the EP (16). A completion whose EP has been freed,
 * or whose post has completed, is stale: counted and ignored, whatever uses that memory by now.
 */
#include "ia.h"
#include "list.h"

#include <stdbool.h>
#include <stdint.h>

/* The DTOs that are posted, receives or requests, by the low bits of their numbers. */
struct mdapl_dapl_posts {
    struct mdapl_dapl_dto **dto; /* mask + 1 of them */
    uint32_t mask;
    uint32_t next;               /* number of the next post */
};

struct mdapl_dapl_ep {
    struct mdapl_tree_node by_handle;   /* in ia->by_handle: events name an EP by its handle */
    struct mdapl_dapl_ia *ia;
    DAT_EP_HANDLE handle;
    struct mdapl_dapl_dto_evd *dto_evd; /* where its transfers complete */
    uint64_t cookie;                    /* of its DTOs, without what is of one DTO */
    struct mdapl_dapl_posts recv, req;
    uint32_t recv_posted, req_posted;   /* DTOs that have not completed */
    uint32_t recv_max, req_max;
    uint32_t reported;                  /* number behind the last request that has succeeded */
    uint32_t reads, reads_max;          /* RDMA reads in flight; at most */
    uint64_t bytes;                     /* of RDMA in flight */
    uint32_t n_unsignaled, unsignaled_run,
        batch;      /* requests without an event; since the last signalled one; at most so many */
    unsigned idle_polls;                /* draining: looks in a row without a completion */
    bool attempted;                     /* a request was made or accepted: an event will end it */
    bool unaccepted;                    /* its acceptance came too late: the caller had gone */
    bool ended;                         /* that event has been dequeued */
    bool abandoned;                     /* the provider has not freed it: mdapl_dapl_ep_end() */
    DAT_RETURN refused;                 /* what the last post that failed returned */
};

/* Initializes *ep, an unconnected EP with room for recv_max receives and req_max requests. 0, or
 * -ENOMEM with the line in mdapl_ctx_err(); then there is nothing to end. */
int mdapl_dapl_ep_init(struct mdapl_dapl_ep *ep, struct mdapl_dapl_ia *ia, uint32_t recv_max,
                       uint32_t req_max);
/* Frees the DAT endpoint, whatever is posted on it. */
void mdapl_dapl_ep_fini(struct mdapl_dapl_ep *ep);
/*
 * Its rail is DOWN: frees the DAT endpoint, after which the adapter does nothing for it, and
 * completes what is posted on it as flushed. False: the provider refuses. With `abandon` it counts
 * as freed even so; then its requests complete, and its receives are forgotten with their buffers,
 * because the adapter may still write there.
 */
bool mdapl_dapl_ep_end(struct mdapl_dapl_ep *ep, bool abandon);
/* Ends its connection, or its attempt at one; what is posted on it is flushed. */
void mdapl_dapl_ep_disconnect(struct mdapl_dapl_ep *ep);
/* After mdapl_dapl_ep_disconnect(): has every DTO that was posted completed? Resets the EP for DTOs
 * that the provider does not flush by itself, so it has to be called until it is true. */
bool mdapl_dapl_ep_flushed(struct mdapl_dapl_ep *ep);
/* Is the event still to come that ends its connection or its attempt? Until then the provider may
 * deliver events that name the EP. */
static inline bool mdapl_dapl_ep_end_pending(const struct mdapl_dapl_ep *ep)
{
    return ep->attempted && !ep->ended;
}

/* Sends a connection request with priv_len bytes of private data to a listener. It lasts until its
 * answer, or mdapl_dapl_ep_disconnect(). 0, or -EIO with the line in mdapl_ctx_err(). */
int mdapl_dapl_ep_connect(struct mdapl_dapl_ep *ep, const uint8_t *addr, uint8_t addr_len,
                          uint64_t qual, const void *priv, size_t priv_len);
/* The provider's state of it: ahead of the events that are still in the queue. */
DAT_EP_STATE mdapl_dapl_ep_state(const struct mdapl_dapl_ep *ep);
/* Accepts a request with this EP; errors as mdapl_dapl_ep_connect(). */
int mdapl_dapl_ep_accept(struct mdapl_dapl_ep *ep, DAT_CR_HANDLE cr, const void *priv,
                         size_t priv_len);

/* Is there a request slot free? */
static inline bool mdapl_dapl_ep_has_slot(const struct mdapl_dapl_ep *ep)
{
    return ep->req_posted < ep->req_max;
}

/* The next request makes an event. */
static inline void mdapl_dapl_ep_signal_next(struct mdapl_dapl_ep *ep)
{
    ep->unsignaled_run = ep->batch;
}

/* How many more requests may be posted. */
static inline uint32_t mdapl_dapl_ep_slots(const struct mdapl_dapl_ep *ep)
{
    return mdapl_dapl_ep_has_slot(ep) ? ep->req_max - ep->req_posted : 0;
}

/* The posts. 0, or -EIO: nothing was posted, and ep->refused says what DAT returned. */
int mdapl_dapl_ep_post_send(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *seg,
                            struct mdapl_dapl_dto *dto);
int mdapl_dapl_ep_post_recv(struct mdapl_dapl_ep *ep, int n, DAT_LMR_TRIPLET seg[n],
                            struct mdapl_dapl_dto *dto);
int mdapl_dapl_ep_post_read(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *to,
                            const DAT_RMR_TRIPLET *from, struct mdapl_dapl_dto *dto);
int mdapl_dapl_ep_post_write(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *from,
                             const DAT_RMR_TRIPLET *to, struct mdapl_dapl_dto *dto);
/* As the one before it, but of a batch of them (and of sends) only one makes an event. */
int mdapl_dapl_ep_post_write_unsignaled(struct mdapl_dapl_ep *ep, DAT_LMR_TRIPLET *from,
                                        const DAT_RMR_TRIPLET *to, struct mdapl_dapl_dto *dto);
/* A completion with this cookie has been dequeued (evd.c): completes its DTO, and first the earlier
 * requests that its completion implies, since requests complete in their order. A stale one is
 * counted. */
void mdapl_dapl_ep_completed(struct mdapl_dapl_ia *ia, uint64_t cookie,
                             DAT_DTO_COMPLETION_STATUS status, size_t len);

#endif
