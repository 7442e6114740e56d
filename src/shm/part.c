/* SPDX-License-Identifier: MIT */
/*
 * Bodies of middle length, in parts. Such a body lies in the ring's data as a whole, but several
 * messages say how much of it is there: a HEAD, with the header and the body's length, and MOREs.
 * So the receiver copies one part while the sender copies the next one, as with cells, without the
 * round trip of a rendezvous.
 *
 * The messages of a body follow each other with none of another kind between them. If all have been
 * written when the receiver takes the first one, they are one message (join). Otherwise the owner
 * gets an rx, and the parts are copied to where it reads them as they arrive. What arrives before
 * it reads is kept, because the ring does not wait for the owner.
 */
#include "peer.h"

#include "channel.h"
#include "min.h"
#include "rx_op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mdapl_shm_part {
    struct mdapl_rx rx;          /* what the owner holds */
    struct mdapl_list link;      /* on peer->parts */
    struct mdapl_shm_peer *peer;
    size_t len, got;             /* bytes of the body: all, arrived */
    struct mdapl_shm_rx_op read; /* a read in progress; then all that has arrived has been read */
    const uint8_t *here;         /* what has arrived and not been read: in the ring, or in kept */
    uint8_t *kept;               /* as long as the body; its bytes that were not read; NULL: none */
};

/* Bytes that have arrived and not been read. */
static size_t unread(const struct mdapl_shm_part *p)
{
    return p->got - (p->len - p->rx.left);
}

static void part_free(struct mdapl_shm_part *p)
{
    struct mdapl_shm_peer *peer = p->peer;

    mdapl_inbox_over(&peer->inbox, &p->rx);
    if (peer->part == p)
        peer->part = NULL;
    mdapl_list_remove(&p->link);
    mdapl_shm_rx_op_end(&p->read);
    free(p->kept);
    free(p);
}

void mdapl_shm_parts_free(struct mdapl_shm_peer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->parts)))
        part_free(MDAPL_OF(l, struct mdapl_shm_part, link));
}

/* -- the owner's calls ------------------------------------------------------------------------ */

/* Copies what is here to where the read wants it. If that is all, ends the read, and with its last
 * byte the body, and returns its op; NULL: more has to arrive. */
static struct mdapl_op *fill(struct mdapl_shm_part *p)
{
    size_t n = mdapl_min(unread(p), p->read.want - p->read.got);
    struct mdapl_op *op;

    mdapl_shm_rx_op_put(&p->read, p->here, n);
    p->here += n;
    p->rx.left -= n;
    if (p->read.got < p->read.want)
        return NULL;
    op = mdapl_shm_rx_op_end(&p->read);
    if (p->rx.left == 0)
        part_free(p);
    return op;
}

static int part_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct mdapl_shm_part *p = MDAPL_OF(rx, struct mdapl_shm_part, rx);
    size_t want = mdapl_min(mdapl_iov_len(iov, n), rx->left);
    int rc;

    if (p->read.op)
        return -EBUSY;
    if (want == 0)
        return MDAPL_DONE;
    if (p->peer->dead && want > unread(p))
        return p->peer->dead;
    rc = mdapl_shm_rx_op_begin(p->peer, &p->read, iov, n, want, op);
    return rc ? rc : fill(p) ? MDAPL_DONE : 0;
}

static void part_drop(struct mdapl_rx *rx)
{
    part_free(MDAPL_OF(rx, struct mdapl_shm_part, rx));
}

static const struct mdapl_rx_ops part_ops = { .read = part_read, .drop = part_drop };

/* The peer is lost. */
static void read_over(struct mdapl_shm_rx_op *read, int status)
{
    struct mdapl_op *op = mdapl_shm_rx_op_end(read);

    op->done(op, status);
}

/* -- messages --------------------------------------------------------------------------------- */

/* Keeps what the owner has not read, before it leaves the ring. False: out of memory. */
static bool keep(struct mdapl_shm_part *p)
{
    size_t n = unread(p);

    if (n == 0)
        return true;
    if (!p->kept)
        p->kept = malloc(p->len);
    if (!p->kept)
        return mdapl_shm_peer_no_memory(p->peer);
    memcpy(p->kept + p->got - n, p->here, n);
    p->here = p->kept + p->got - n;
    return true;
}

bool mdapl_shm_part_join(struct mdapl_shm_peer *peer, struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_head head;
    unsigned n;

    if (m->hdr_len < sizeof(head) || peer->part_left > 0)
        return false;
    memcpy(&head, m->hdr, sizeof(head));
    if (head.len <= MDAPL_SHM_SHORT || head.len > MDAPL_SHM_EAGER
        || m->len != mdapl_shm_part_len(head.len)
        || head.len > (size_t)(peer->rx.inring->data + peer->rx.data_bytes - m->body))
        return false;
    n = mdapl_shm_parts(head.len);
    if (!mdapl_shm_spsc_has(&peer->rx, n))
        return true;
    m->type = MDAPL_SHM_MSG;
    m->slots = (uint8_t)n;
    m->hdr += sizeof(head);
    m->hdr_len -= sizeof(head);
    m->len = m->outside = (uint32_t)head.len;
    return true;
}

bool mdapl_shm_part_on_head(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_part *p = malloc(sizeof(*p));
    struct mdapl_shm_head head;
    uint64_t start = mdapl_ctx_now(peer->s->ctx);

    if (!p)
        return mdapl_shm_peer_no_memory(peer);
    memcpy(&head, m->hdr, sizeof(head));
    *p = (struct mdapl_shm_part){ .rx = { &part_ops, head.len }, .peer = peer, .len = head.len,
                                  .got = m->len, .here = m->body };
    mdapl_shm_rx_op_init(&p->read, read_over);
    mdapl_list_append(&peer->parts, &p->link);
    peer->part = p;
    peer->part_left = head.len - m->len;
    if (mdapl_inbox_announce(&peer->inbox, m->hdr + sizeof(head), m->hdr_len - sizeof(head),
                             &p->rx))
        return mdapl_shm_peer_no_memory(peer);
    if (!peer->part)             /* it has been dropped */
        return true;
    if (unread(p) == 0)
        mdapl_shm_way_ring(peer, head.len, m, mdapl_ctx_now(peer->s->ctx) - start);
    return keep(p);
}

bool mdapl_shm_part_on_more(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_part *p = peer->part;
    struct mdapl_op *op;

    if (m->hdr_len > 0 || m->len > peer->part_left)
        return false;
    peer->part_left -= m->len;
    if (!p)
        return true;
    if (unread(p) > 0) {         /* so there is no read, and it is kept */
        memcpy(p->kept + p->got, m->body, m->len);
        p->got += m->len;
        return true;
    }
    p->here = m->body;
    p->got += m->len;
    op = p->read.op ? fill(p) : NULL;
    if (op)
        op->done(op, 0);         /* this may read on, or drop the rest */
    return !peer->part || keep(p);
}
