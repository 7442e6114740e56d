/* SPDX-License-Identifier: MIT */
#include "push.h"

#include "cell.h"
#include "least.h"
#include "peer.h"
#include "tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A body of which the first bytes may be there already. */
struct pushed {
    struct mdapl_rx rx;          /* what the owner holds */
    struct mdapl_list link;      /* on peer->pushed */
    struct mdapl_speer *peer;
    size_t len, came, at;        /* bytes of the body: all, here, read */
    uint8_t *aside;              /* len bytes; of them those from at (+ got) to came are in use */
    /* the read in progress: it has had all that came */
    struct mdapl_op *op;
    size_t want, got;
    struct iovec *dst;
    struct mdapl_iov cursor;
};

/* -- sending ---------------------------------------------------------------------------------- */

static int cells_for(size_t len)
{
    size_t share = mdapl_cell_share(len);

    return (int)((len + share - 1) / share);
}

bool mdapl_push_will(const struct mdapl_speer *peer, size_t len)
{
    return peer->s->n_free_cells + (int)peer->fly_n >= cells_for(len);
}

bool mdapl_push_send(struct mdapl_speer *peer, const struct mdapl_msg *msg, size_t len)
{
    size_t share = mdapl_cell_share(len);
    struct mdapl_iov cur = mdapl_iov_start(msg->body, msg->n_body);
    struct mdapl_shm_data data = { .off = 0 };
    uint64_t body = len;

    if (!mdapl_cells_free(peer, cells_for(len), 1)
        || !mdapl_shm_tx_put_with(peer, MDAPL_SHM_PUSH, msg->hdr, msg->hdr_len, &body,
                                  sizeof(body)))
        return false;
    while (data.off < len) {
        size_t n = mdapl_least(len - data.off, share);

        mdapl_cell_send(peer, &cur, n, &data);
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
    struct mdapl_speer *peer = b->peer;

    mdapl_inbox_over(&peer->inbox, &b->rx);
    if (peer->coming == b) {
        peer->coming = NULL;
        peer->coming_left = b->len - b->came;
    }
    mdapl_list_remove(&b->link);
    free(b->aside);
    free(b->dst);
    free(b);
}

static void pushed_drop(struct mdapl_rx *rx)
{
    pushed_free(pushed_of(rx));
}

/* So many more bytes have been read; with the last one the body goes. */
static void advance(struct pushed *b, size_t n)
{
    b->at += n;
    b->rx.left -= n;
    if (b->rx.left == 0)
        pushed_free(b);
}

static void read_over(struct pushed *b, int status)
{
    struct mdapl_op *op = b->op;

    b->op = NULL;
    free(b->dst);
    b->dst = NULL;
    if (status == 0)
        advance(b, b->want);
    op->done(op, status);
}

/* -- a read ----------------------------------------------------------------------------------- */

/* The rest of it comes with the cells. */
static int read_on(struct pushed *b, const struct iovec *iov, int n, struct mdapl_op *op)
{
    b->dst = malloc((size_t)n * sizeof(*b->dst));
    if (!b->dst)
        return -ENOMEM;
    memcpy(b->dst, iov, (size_t)n * sizeof(*b->dst));
    b->cursor = mdapl_iov_start(b->dst, n);
    b->got = b->came - b->at;
    if (b->got > 0)
        mdapl_iov_scatter(&b->cursor, b->aside + b->at, b->got);
    b->op = op;
    return 0;
}

static int pushed_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct pushed *b = pushed_of(rx);
    size_t room = mdapl_iov_len(iov, n);
    struct mdapl_iov cur = mdapl_iov_start(iov, n);

    if (b->op)
        return -EBUSY;
    b->want = mdapl_least(room, rx->left);
    if (b->want > b->came - b->at)
        return b->peer->dead ? b->peer->dead : read_on(b, iov, n, op);
    if (b->want > 0) {
        mdapl_iov_scatter(&cur, b->aside + b->at, b->want);
        advance(b, b->want);
    }
    return MDAPL_DONE;
}

static const struct mdapl_rx_ops pushed_ops = {
    .read = pushed_read, .drop = pushed_drop, .finish = pushed_drop
};

/* -- what comes in ---------------------------------------------------------------------------- */

bool mdapl_push_on_push(struct mdapl_speer *peer, const void *hdr, size_t hdr_len,
                        const void *body, size_t len)
{
    struct pushed *b = calloc(1, sizeof(*b));
    uint64_t total = 0;

    if (!b) {
        mdapl_speer_broken(peer, "out of memory");
        return true;
    }
    memcpy(&total, body, mdapl_least(len, sizeof(total)));
    if (len != sizeof(total) || total == 0 || total > MDAPL_SHM_PUSH_BYTES || peer->coming
        || peer->coming_left > 0) {
        free(b);
        return false;
    }
    b->rx = (struct mdapl_rx){ &pushed_ops, NULL, 0, total };
    b->peer = peer;
    b->len = total;
    peer->coming = b;
    mdapl_list_append(&peer->pushed, &b->link);
    if (mdapl_inbox_announce(&peer->inbox, hdr, hdr_len, &b->rx))
        mdapl_speer_broken(peer, "out of memory for a message that waits");
    return true;
}

static bool put_aside(struct pushed *b, const uint8_t *bytes, size_t n)
{
    if (!b->aside)
        b->aside = malloc(b->len);
    if (b->aside)
        memcpy(b->aside + b->came, bytes, n);
    return b->aside != NULL;
}

/* First to the read in progress; what it does not want is put aside for the next one. */
static void take(struct pushed *b, const uint8_t *bytes, size_t n)
{
    size_t wanted = b->op ? b->want - b->got : 0, now = mdapl_least(n, wanted);

    if (now > 0)
        mdapl_iov_scatter(&b->cursor, bytes, now);
    b->got += now;
    b->came += now;
    if (n > now && !put_aside(b, bytes + now, n - now)) {
        mdapl_speer_broken(b->peer, "out of memory for a message that waits");
        return;
    }
    b->came += n - now;
    if (b->came == b->len)
        b->peer->coming = NULL;
    if (b->op && b->got == b->want)
        read_over(b, 0);
}

bool mdapl_push_on_data(struct mdapl_speer *peer, const struct mdapl_shm_data *data)
{
    const uint8_t *cell = mdapl_cell_of(peer, data);
    struct pushed *b = peer->coming;

    if (!b) {                    /* dropped */
        if (data->len > peer->coming_left)
            return false;
        peer->coming_left -= data->len;
        return true;
    }
    if (!cell || data->off != b->came || data->len > b->len - b->came)
        return false;
    take(b, cell, data->len);
    return true;
}

/* -- a lost peer ------------------------------------------------------------------------------ */

/* A body with a read under way: op->done may drop any of them. */
static struct pushed *being_read(struct mdapl_speer *peer)
{
    MDAPL_LIST_EACH(pos, &peer->pushed) {
        struct pushed *b = MDAPL_OF(pos, struct pushed, link);

        if (b->op)
            return b;
    }
    return NULL;
}

void mdapl_push_fail(struct mdapl_speer *peer, int status)
{
    struct pushed *b;

    while ((b = being_read(peer)))
        read_over(b, status);
}

void mdapl_push_free(struct mdapl_speer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->pushed)))
        pushed_free(MDAPL_OF(l, struct pushed, link));
}
