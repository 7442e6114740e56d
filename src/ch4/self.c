/* SPDX-License-Identifier: MIT */
#include "glue.h"

#include "channel.h"
#include "iov.h"

/*
 * Messages to this process. The contract has no peer for it, so they wait in a queue until the next
 * round of progress: a handler may not be called while its sender is in ch4's queues. A body that
 * is too long for ch4's buffers is fetched as that of another process is, with the calls of the
 * channels' side of the contract.
 */
struct kept {
    struct mdapl_rx rx;
    size_t at;
    char bytes[];
};

struct mdapl_ch4_self {
    struct mdapl_ch4_self *next;
    struct mdapl_ch4_am am;
    size_t hdr_len;
    struct kept *body;           /* NULL: there is none */
};

/* -- bodies in memory ------------------------------------------------------------------------- */

static void drop(struct mdapl_rx *rx)
{
    MPL_free(rx);
}

static int read_kept(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct kept *k = (struct kept *)rx;
    struct mdapl_iov to = mdapl_iov_start(iov, n);
    size_t len = mdapl_iov_scatter(&to, k->bytes + k->at, rx->left);

    (void)op;
    k->at += len;
    rx->left -= len;
    if (rx->left == 0)
        drop(rx);
    return MDAPL_DONE;
}

static const struct mdapl_rx_ops kept_ops = { .read = read_kept, .drop = drop };

static struct kept *keep(const char *data, size_t len)
{
    struct kept *k = MPL_malloc(sizeof(*k) + len, MPL_MEM_BUFFER);

    if (!k)
        mdapl_ch4_end_job("no memory for the body of a message");
    *k = (struct kept){ .rx = { .ops = &kept_ops, .left = len } };
    memcpy(k->bytes, data, len);
    return k;
}

struct mdapl_rx *mdapl_ch4_self_keep(const char *data, size_t len)
{
    return &keep(data, len)->rx;
}

/* -- the queue -------------------------------------------------------------------------------- */

void mdapl_ch4_self_send(const struct mdapl_msg *msg)
{
    struct mdapl_ch4_glue *g = &mdapl_ch4_glue;
    struct mdapl_ch4_self *s = MPL_malloc(sizeof(*s), MPL_MEM_BUFFER);

    if (!s)
        mdapl_ch4_end_job("no memory for a message");
    s->next = NULL;
    s->hdr_len = msg->hdr_len;
    memcpy(&s->am, msg->hdr, msg->hdr_len);
    s->body = msg->n_body ? keep(msg->body->iov_base, msg->body->iov_len) : NULL;
    *g->end = s;
    g->end = &s->next;
}

static void hand_over(struct mdapl_ch4_self *s)
{
    struct mdapl_rx_msg m = { .hdr = &s->am, .hdr_len = s->hdr_len };
    bool fetched = s->body && s->body->rx.left > (size_t)MPIR_CVAR_CH4_AM_PACK_BUFFER_SIZE;

    if (s->body)
        m.len = s->body->rx.left;
    if (fetched)
        m.rx = &s->body->rx;
    else if (s->body)
        m.data = s->body->bytes;
    mdapl_ch4_am_arrived(&m);
    if (s->body && !fetched)
        drop(&s->body->rx);
}

int mdapl_ch4_self_progress(void)
{
    struct mdapl_ch4_glue *g = &mdapl_ch4_glue;
    struct mdapl_ch4_self *s = g->first;
    int moved = 0;

    g->first = NULL;             /* what handlers send now is for the next round */
    g->end = &g->first;
    for (struct mdapl_ch4_self *next; s; s = next, moved++) {
        next = s->next;
        hand_over(s);
        MPL_free(s);
    }
    return moved;
}
