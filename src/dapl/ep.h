/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_EP_H
#define MDAPL_EP_H
/*
 * One end of one connection, and the only place that posts transfers. cm.c makes EPs and brings
 * them up; tx.c, rx.c, ring.c and move.c post on them. An EP counts what is posted on it and is
 * freed when all of it has completed: a vbuf or a user's buffer is never reused while an adapter
 * may still write it.
 */
#include "ia.h"
#include "list.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_ep {
    struct mdapl_list link;  /* on its adapter */
    struct mdapl_tree_node by_handle;   /* there, too */
    struct mdapl_ia *ia;
    DAT_EP_HANDLE handle;
    struct mdapl_dto_evd *dto_evd;      /* where its transfers complete */
    void *owner;             /* the stream; NULL once nobody wants this EP any more */
    uint32_t recv_posted, req_posted;   /* completions owed to us */
    uint32_t recv_max, req_max;
    uint32_t reads, reads_max;          /* RDMA reads under way */
    uint64_t bytes;                     /* of RDMA under way */
    struct mdapl_list silent;           /* requests whose success makes no event, oldest first */
    uint32_t n_silent, in_a_row, batch; /* they; since the last signalled one; at most so many */
    uint32_t seq;                       /* of the last request */
    unsigned quiet;                     /* closing: how often nothing was to be heard of it */
    bool up;                 /* ESTABLISHED has been seen: may post requests */
    bool closing;
};

/* Makes an unconnected EP with room for recv_max receives and req_max requests. 0 or -errno. */
int mdapl_ep_create(struct mdapl_ia *ia, void *owner, uint32_t recv_max, uint32_t req_max,
                    struct mdapl_ep **ep_p);
/* Gives the EP up: disconnects it and forgets the owner. It frees itself when all is flushed. */
void mdapl_ep_close(struct mdapl_ep *ep);
/* Frees it now, whatever is posted: only when the adapter itself goes. */
void mdapl_ep_free(struct mdapl_ep *ep);
/* Frees the closed EPs of which everything has completed. Returns how many are left closing. */
uint32_t mdapl_ep_reap(struct mdapl_ia *ia);

int mdapl_ep_connect(struct mdapl_ep *ep, const uint8_t *addr, uint8_t addr_len, uint64_t qual,
                     uint64_t timeout_ns, const void *priv, size_t priv_len);
/* The provider's state of it: ahead of the events that are still in the queue. */
DAT_EP_STATE mdapl_ep_state(const struct mdapl_ep *ep);
int mdapl_ep_accept(struct mdapl_ep *ep, DAT_CR_HANDLE cr, const void *priv, size_t priv_len);

/* Is there a request slot free? */
static inline bool mdapl_ep_has_slot(const struct mdapl_ep *ep)
{
    return ep->up && ep->req_posted < ep->req_max;
}

/* The posts. 0, or -EIO: the EP is no good any more (nothing was posted). */
int mdapl_ep_post_send(struct mdapl_ep *ep, DAT_LMR_TRIPLET *seg, struct mdapl_dto *dto);
int mdapl_ep_post_recv(struct mdapl_ep *ep, DAT_LMR_TRIPLET *seg, struct mdapl_dto *dto);
int mdapl_ep_post_read(struct mdapl_ep *ep, DAT_LMR_TRIPLET *to, const DAT_RMR_TRIPLET *from,
                       struct mdapl_dto *dto);
int mdapl_ep_post_write(struct mdapl_ep *ep, DAT_LMR_TRIPLET *from, const DAT_RMR_TRIPLET *to,
                        struct mdapl_dto *dto);
/* As the one before it, but of a batch of them (and of sends) only one makes an event. */
int mdapl_ep_post_write_silent(struct mdapl_ep *ep, DAT_LMR_TRIPLET *from,
                               const DAT_RMR_TRIPLET *to, struct mdapl_dto *dto);
/* A completion has been taken (evd.c): it is told, after those that it is the news of. */
void mdapl_ep_completed(struct mdapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len);

#endif
