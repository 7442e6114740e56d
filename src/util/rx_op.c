/* SPDX-License-Identifier: MIT */
#include "rx_op.h"

#include <errno.h>

void mdapl_rx_op_init(struct mdapl_rx_op *r, void (*over)(struct mdapl_rx_op *r, int status))
{
    mdapl_list_init(&r->link);
    r->over = over;
    r->op = NULL;
}

int mdapl_rx_op_begin(struct mdapl_rx_op *r, struct mdapl_list *reading, const struct iovec *iov,
                      int n, size_t want, struct mdapl_op *op)
{
    if (!mdapl_pieces_copy(&r->to, iov, n))
        return -ENOMEM;
    r->cursor = mdapl_iov_start(r->to.v, n);
    r->want = want;
    r->got = 0;
    r->op = op;
    mdapl_list_append(reading, &r->link);
    return 0;
}

void mdapl_rx_op_put(struct mdapl_rx_op *r, const void *bytes, size_t n)
{
    mdapl_iov_scatter(&r->cursor, bytes, n);
    r->got += n;
}

struct mdapl_op *mdapl_rx_op_end(struct mdapl_rx_op *r)
{
    struct mdapl_op *op = r->op;

    if (!op)
        return NULL;
    mdapl_list_remove(&r->link);
    mdapl_pieces_free(&r->to);
    r->op = NULL;
    return op;
}

void mdapl_rx_ops_fail(struct mdapl_list *reading, int status)
{
    struct mdapl_list *l;

    /* From the head each time: op->done of one read may drop another body. */
    while ((l = mdapl_list_first(reading))) {
        struct mdapl_rx_op *r = MDAPL_OF(l, struct mdapl_rx_op, link);

        r->over(r, status);
    }
}
