/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_RX_OP_H
#define MDAPL_SHM_RX_OP_H
/*
 * A read by the owner that is in progress: its bytes arrive in cells (rndv.c) or in parts (part.c).
 * All reads of a peer are on peer->reading, so that they can fail together.
 */
#include "iov.h"
#include "list.h"

#include <stdint.h>

struct mdapl_op;
struct mdapl_shm_peer;

struct mdapl_shm_rx_op {
    struct mdapl_list link;      /* on peer->reading */
    void (*over)(struct mdapl_shm_rx_op *r, int status); /* ends the read, calls op->done */
    struct mdapl_op *op;         /* NULL: none is in progress */
    size_t want, got;            /* bytes: to read, read */
    struct iovec *dst;           /* owned copy of the caller's iov */
    struct mdapl_iov cursor;     /* in dst */
};

/* No read is in progress. over: as in the struct. */
void mdapl_shm_rx_op_init(struct mdapl_shm_rx_op *r,
                          void (*over)(struct mdapl_shm_rx_op *r, int status));
/* Begins a read of `want` bytes into iov (n pieces; the list is copied). 0 or -ENOMEM. */
int mdapl_shm_rx_op_begin(struct mdapl_shm_peer *peer, struct mdapl_shm_rx_op *r,
                          const struct iovec *iov, int n, size_t want, struct mdapl_op *op);
/* Copies the next n bytes to their place, at most want - got. */
void mdapl_shm_rx_op_put(struct mdapl_shm_rx_op *r, const void *bytes, size_t n);
/* Ends the read, if one is in progress. Returns its op, or NULL. */
struct mdapl_op *mdapl_shm_rx_op_end(struct mdapl_shm_rx_op *r);

#endif
