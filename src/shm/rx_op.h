/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_READ_H
#define MDAPL_SHM_READ_H
/*
 * A read of the owner's in progress: its bytes arrive in cells, of a body that has been asked for
 * (rndv.c) or is pushed (pipe.c). All of a peer are on peer->reading, so that they can fail
 * together.
 */
#include "iov.h"
#include "list.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_op;
struct mdapl_shm_peer;

struct mdapl_shm_rx_op {
    struct mdapl_list link;      /* on peer->reading */
    void (*over)(struct mdapl_shm_rx_op *r, int status); /* ends it, and calls op->done */
    struct mdapl_op *op;         /* NULL: none is in progress */
    size_t want, got;            /* bytes */
    struct iovec *dst;
    struct mdapl_iov cursor;
};

void mdapl_shm_rx_op_init(struct mdapl_shm_rx_op *r,
                          void (*over)(struct mdapl_shm_rx_op *r, int status));
/* Begins a read of so many bytes into a copy of iov. 0 or -ENOMEM. */
int mdapl_shm_rx_op_begin(struct mdapl_shm_peer *peer, struct mdapl_shm_rx_op *r,
                          const struct iovec *iov, int n, size_t want, struct mdapl_op *op);
/* The next bytes, no more than are wanted. */
void mdapl_shm_rx_op_put(struct mdapl_shm_rx_op *r, const void *bytes, size_t n);
/* Ends it, if it is in progress. Returns its op, or NULL. */
struct mdapl_op *mdapl_shm_rx_op_end(struct mdapl_shm_rx_op *r);

#endif
