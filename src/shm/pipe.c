/* SPDX-License-Identifier: MIT */
/*
 * Bodies of middle length, too long for the ring and too short for a rendezvous. If enough cells
 * are free, the message and its cells are sent together (PUSH, then one DATA for each cell). If
 * earlier bodies to the same peer hold the cells, the message is queued; if other peers hold them,
 * the message is sent by rendezvous (rndv.c). The receiver announces the message while the sender
 * still copies. Bytes that arrive before the owner reads them are copied to a buffer, so that no
 * cell waits for the owner.
 */
#include "peer.h"

#include "bytes.h"
#include "channel.h"
#include "min.h"
#include "rx_op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A body that is arriving. */
struct pushed {
    struct mdapl_rx rx;          /* what the owner holds */
    struct mdapl_list link;      /* on peer->pushed */
    struct mdapl_shm_peer *peer;
    size_t len, arrived, at;     /* bytes of the body: all, arrived, read */
    uint8_t *aside;              /* len bytes; valid: those from `at` to `arrived` if no read is in
                                    progress; NULL: none had to be copied */
    struct mdapl_shm_rx_op read; /* while it is in progress it gets the bytes that arrive */
};

/* -- sending ---------------------------------------------------------------------------------- */

static int cells_for(size_t len)
{
    size_t share = mdapl_shm_cell_share(len);

    return (int)((len + share - 1) / share);
}

bool mdapl_shm_pipe_will_fit(const struct mdapl_shm_peer *peer, size_t len)
{
    return peer->s->n_free_cells + (int)peer->inflight_n >= cells_for(len);
}

bool mdapl_shm_pipe_send(struct mdapl_shm_peer *peer, const struct mdapl_msg *msg, size_t len)
{
    size_t share = mdapl_shm_cell_share(len);
    struct mdapl_iov cur = mdapl_iov_start(msg->body, msg->n_body);
    struct mdapl_shm_data data = { .off = 0 };
    uint64_t body = len;

    if (!mdapl_shm_cells_free(peer, cells_for(len), 1)
        || !mdapl_shm_tx_put(peer, MDAPL_SHM_PUSH, msg->hdr, msg->hdr_len, &body, sizeof(body)))
        return false;
    while (data.off < len) {
        size_t n = mdapl_min(len - data.off, share);

        mdapl_shm_cell_send(peer, &cur, n, &data);
        data.off += n;
    }
    return true;
}

/* -- the end of a body ------------------------------------------------------------------------ */

static struct pushed *pushed_of(struct mdapl_rx *rx)
{
    return MDAPL_OF(rx, struct pushed, rx);
}

static void pushed_free(struct pushed *b)
{
    struct mdapl_shm_peer *peer = b->peer;

    mdapl_inbox_over(&peer->inbox, &b->rx);
    if (peer->piping == b) {
        peer->piping = NULL;
        peer->piping_left = b->len - b->arrived;
    }
    mdapl_list_remove(&b->link);
    mdapl_shm_rx_op_end(&b->read);
    free(b->aside);
    free(b);
}

static void pushed_drop(struct mdapl_rx *rx)
{
    pushed_free(pushed_of(rx));
}

/* Counts n more bytes as read; the last one frees the body. */
static void advance(struct pushed *b, size_t n)
{
    b->at += n;
    b->rx.left -= n;
    if (b->rx.left == 0)
        pushed_free(b);
}

static void read_over(struct mdapl_shm_rx_op *read, int status)
{
    struct pushed *b = MDAPL_OF(read, struct pushed, read);
    struct mdapl_op *op = mdapl_shm_rx_op_end(read);

    if (status == 0)
        advance(b, read->want);
    op->done(op, status);
}

/* -- a read ----------------------------------------------------------------------------------- */

/* Begins a read of more bytes than have arrived; the cells that arrive later continue it. */
static int read_arriving(struct pushed *b, const struct iovec *iov, int n, size_t want,
                   struct mdapl_op *op)
{
    if (mdapl_shm_rx_op_begin(b->peer, &b->read, iov, n, want, op))
        return -ENOMEM;
    if (b->arrived > b->at)
        mdapl_shm_rx_op_put(&b->read, b->aside + b->at, b->arrived - b->at);
    return 0;
}

static int pushed_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct pushed *b = pushed_of(rx);
    size_t want = mdapl_min(mdapl_iov_len(iov, n), rx->left);
    struct mdapl_iov cur = mdapl_iov_start(iov, n);

    if (b->read.op)
        return -EBUSY;
    if (want > b->arrived - b->at)
        return b->peer->dead ? b->peer->dead : read_arriving(b, iov, n, want, op);
    if (want > 0) {
        mdapl_iov_scatter(&cur, b->aside + b->at, want);
        advance(b, want);
    }
    return MDAPL_DONE;
}

static const struct mdapl_rx_ops pushed_ops = {
    .read = pushed_read, .drop = pushed_drop
};

/* -- messages received ------------------------------------------------------------------------ */

bool mdapl_shm_pipe_on_start(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct pushed *b = calloc(1, sizeof(*b));
    uint64_t total = 0;

    if (!b)
        return mdapl_shm_peer_no_memory(peer);
    memcpy(&total, m->body, mdapl_min(m->len, sizeof(total)));
    if (m->len != sizeof(total) || total == 0 || total > MDAPL_SHM_PUSH_BYTES || peer->piping
        || peer->piping_left > 0) {
        free(b);
        return false;
    }
    b->rx = (struct mdapl_rx){ &pushed_ops, total };
    b->peer = peer;
    mdapl_shm_rx_op_init(&b->read, read_over);
    b->len = total;
    peer->piping = b;
    mdapl_list_append(&peer->pushed, &b->link);
    return mdapl_inbox_announce(&peer->inbox, m->hdr, m->hdr_len, &b->rx) == 0
           || mdapl_shm_peer_no_memory(peer);
}

static bool put_aside(struct pushed *b, const uint8_t *bytes, size_t n)
{
    if (!b->aside)
        b->aside = malloc(b->len);
    if (b->aside)
        mdapl_bytes_copy(b->aside + b->arrived, bytes, n);
    return b->aside != NULL;
}

/* Copies n arrived bytes to the read in progress, and those beyond it to b->aside. */
static bool take(struct pushed *b, const uint8_t *bytes, size_t n)
{
    struct mdapl_shm_rx_op *read = &b->read;
    size_t wanted = read->op ? read->want - read->got : 0, now = mdapl_min(n, wanted);

    if (now > 0)
        mdapl_shm_rx_op_put(read, bytes, now);
    b->arrived += now;
    if (n > now && !put_aside(b, bytes + now, n - now))
        return mdapl_shm_peer_no_memory(b->peer);
    b->arrived += n - now;
    if (b->arrived == b->len)
        b->peer->piping = NULL;
    if (read->op && read->got == read->want)
        read_over(read, 0);
    return true;
}

bool mdapl_shm_pipe_on_data(struct mdapl_shm_peer *peer, const struct mdapl_shm_data *data,
                            const uint8_t *bytes)
{
    struct pushed *b = peer->piping;

    if (!b) {                    /* the owner has dropped the body */
        if (data->len > peer->piping_left)
            return false;
        peer->piping_left -= data->len;
        return true;
    }
    if (data->off != b->arrived || data->len > b->len - b->arrived)
        return false;
    return take(b, bytes, data->len);
}

/* -- closing ---------------------------------------------------------------------------------- */

void mdapl_shm_pipe_free(struct mdapl_shm_peer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->pushed)))
        pushed_free(MDAPL_OF(l, struct pushed, link));
}
