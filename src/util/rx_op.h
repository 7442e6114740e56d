/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RX_OP_H
#define MDAPL_RX_OP_H
/*
 * A read by the owner that is in progress: its bytes are copied as they arrive, in parts (part.h)
 * or in cells of shared memory. All such reads of a peer are on one list, so that they can fail
 * together.
 */
#include "iov.h"
#include "list.h"

#include <stdint.h>

struct mdapl_op;

struct mdapl_rx_op {
    struct mdapl_list link;      /* on the peer's list */
    void (*over)(struct mdapl_rx_op *r, int status); /* ends the read, calls op->done */
    struct mdapl_op *op;         /* NULL: none is in progress */
    size_t want, got;            /* bytes: to read, read */
    struct mdapl_pieces to;      /* the caller's iov, while it is in progress */
    struct mdapl_iov cursor;     /* ... in it */
};

/* No read is in progress. over: as in the struct. */
void mdapl_rx_op_init(struct mdapl_rx_op *r, void (*over)(struct mdapl_rx_op *r, int status));
/* Begins a read of `want` bytes into iov (n pieces; the list is copied), which is appended to
 * `reading`. 0 or -ENOMEM. */
int mdapl_rx_op_begin(struct mdapl_rx_op *r, struct mdapl_list *reading, const struct iovec *iov,
                      int n, size_t want, struct mdapl_op *op);
/* Copies the next n bytes to their place, at most want - got. */
void mdapl_rx_op_put(struct mdapl_rx_op *r, const void *bytes, size_t n);
/* Ends the read, if one is in progress. Returns its op, or NULL. */
struct mdapl_op *mdapl_rx_op_end(struct mdapl_rx_op *r);
/* The peer is lost: each read on its list ends with status. */
void mdapl_rx_ops_fail(struct mdapl_list *reading, int status);

#endif
