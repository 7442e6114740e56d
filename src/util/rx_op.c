/* SPDX-License-Identifier: MIT */
#include "rx_op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void mdapl_rx_op_init(struct mdapl_rx_op *r, void (*over)(struct mdapl_rx_op *r, int status))
{
    *r = (struct mdapl_rx_op){ .over = over };
    mdapl_list_init(&r->link);
}

int mdapl_rx_op_begin(struct mdapl_rx_op *r, struct mdapl_list *reading, const struct iovec *iov,
                      int n, size_t want, struct mdapl_op *op)
{
    r->dst = malloc((size_t)n * sizeof(*r->dst));
    if (!r->dst)
        return -ENOMEM;
    memcpy(r->dst, iov, (size_t)n * sizeof(*r->dst));
    r->cursor = mdapl_iov_start(r->dst, n);
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

    mdapl_list_remove(&r->link);
    free(r->dst);
    r->dst = NULL;
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
