/* SPDX-License-Identifier: MIT */
#include "part.h"

#include "channel.h"
#include "min.h"
#include "rx_op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mdapl_part {
    struct mdapl_rx rx;          /* what the owner holds */
    struct mdapl_list link;      /* on bodies */
    struct mdapl_parts *parts;   /* its peer's */
    size_t len, got;             /* bytes of the body: all, arrived */
    struct mdapl_rx_op read;     /* a read in progress; then all that has arrived has been read */
    const uint8_t *here;         /* what has arrived and not been read: the channel's, or in kept */
    uint8_t *kept;               /* as long as the body; its bytes that were not read; NULL: none */
};

void mdapl_parts_init(struct mdapl_parts *s, struct mdapl_inbox *inbox, struct mdapl_list *reading,
                      const int *dead)
{
    *s = (struct mdapl_parts){ .inbox = inbox, .reading = reading, .dead = dead };
    mdapl_list_init(&s->bodies);
}

/* Bytes that have arrived and not been read. */
static size_t unread(const struct mdapl_part *p)
{
    return p->got - (p->len - p->rx.left);
}

bool mdapl_parts_up_to_date(const struct mdapl_parts *s)
{
    return s->last && unread(s->last) == 0;
}

static void part_free(struct mdapl_part *p)
{
    struct mdapl_parts *s = p->parts;

    mdapl_inbox_over(s->inbox, &p->rx);
    if (s->last == p)
        s->last = NULL;
    mdapl_list_remove(&p->link);
    mdapl_rx_op_end(&p->read);
    free(p->kept);
    free(p);
}

void mdapl_parts_free(struct mdapl_parts *s)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&s->bodies)))
        part_free(MDAPL_OF(l, struct mdapl_part, link));
}

/* -- the owner's calls ------------------------------------------------------------------------ */

/* Copies what is here to where the read wants it. If that is all, ends the read, and with its last
 * byte the body, and returns its op; NULL: more has to arrive. */
static struct mdapl_op *fill(struct mdapl_part *p)
{
    size_t n = mdapl_min(unread(p), p->read.want - p->read.got);
    struct mdapl_op *op;

    mdapl_rx_op_put(&p->read, p->here, n);
    p->here += n;
    p->rx.left -= n;
    if (p->read.got < p->read.want)
        return NULL;
    op = mdapl_rx_op_end(&p->read);
    if (p->rx.left == 0)
        part_free(p);
    return op;
}

static int part_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct mdapl_part *p = MDAPL_OF(rx, struct mdapl_part, rx);
    size_t want = mdapl_min(mdapl_iov_len(iov, n), rx->left);
    int rc;

    if (p->read.op)
        return -EBUSY;
    if (want == 0)
        return MDAPL_DONE;
    if (*p->parts->dead && want > unread(p))
        return *p->parts->dead;
    rc = mdapl_rx_op_begin(&p->read, p->parts->reading, iov, n, want, op);
    return rc ? rc : fill(p) ? MDAPL_DONE : 0;
}

static void part_drop(struct mdapl_rx *rx)
{
    part_free(MDAPL_OF(rx, struct mdapl_part, rx));
}

static const struct mdapl_rx_ops part_ops = { .read = part_read, .drop = part_drop };

/* The peer is lost. */
static void read_over(struct mdapl_rx_op *read, int status)
{
    struct mdapl_op *op = mdapl_rx_op_end(read);

    op->done(op, status);
}

/* -- what arrives ----------------------------------------------------------------------------- */

/* Keeps what the owner has not read of the last body, if there is one. */
static int keep(struct mdapl_parts *s)
{
    struct mdapl_part *p = s->last;
    size_t n = p ? unread(p) : 0;

    if (n == 0)
        return 0;
    if (!p->kept)
        p->kept = malloc(p->len);
    if (!p->kept)
        return -ENOMEM;
    memcpy(p->kept + p->got - n, p->here, n);
    p->here = p->kept + p->got - n;
    return 0;
}

int mdapl_parts_first(struct mdapl_parts *s, const void *hdr, size_t hdr_len, size_t len,
                      const void *bytes, size_t n)
{
    struct mdapl_part *p;

    if (s->left > 0)
        return -EPROTO;
    p = malloc(sizeof(*p));
    if (!p)
        return -ENOMEM;
    *p = (struct mdapl_part){ .rx = { &part_ops, len }, .parts = s, .len = len, .got = n,
                              .here = bytes };
    mdapl_rx_op_init(&p->read, read_over);
    mdapl_list_append(&s->bodies, &p->link);
    s->last = p;
    s->left = len - n;
    if (mdapl_inbox_announce(s->inbox, hdr, hdr_len, &p->rx))
        return -ENOMEM;
    return keep(s);
}

int mdapl_parts_next(struct mdapl_parts *s, const void *bytes, size_t n)
{
    struct mdapl_part *p = s->last;
    struct mdapl_op *op;

    if (n > s->left)
        return -EPROTO;
    s->left -= n;
    if (!p)
        return 0;
    if (unread(p) > 0) {         /* so there is no read, and it is kept */
        memcpy(p->kept + p->got, bytes, n);
        p->got += n;
        return 0;
    }
    p->here = bytes;
    p->got += n;
    op = p->read.op ? fill(p) : NULL;
    if (op)
        op->done(op, 0);         /* this may read on, or drop the rest */
    return keep(s);
}
