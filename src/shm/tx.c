/* SPDX-License-Identifier: MIT */
#include "tx.h"

#include "bell.h"
#include "bytes.h"
#include "copy.h"
#include "peer.h"
#include "push.h"
#include "stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- into the ring ---------------------------------------------------------------------------- */

static bool come(struct mdapl_speer *peer)
{
    if (peer->broken || peer->dead)
        return false;
    if (mdapl_bell_come(peer))
        mdapl_speer_broken(peer, -ENOMEM, "its segment has no door or no memory left");
    return peer->tx.door && !peer->broken;
}

bool mdapl_shm_tx_open(struct mdapl_speer *peer)
{
    return peer->tx.door || come(peer);
}

/* The message is filled: out with it. What we have taken from the peer is told with it. */
static void leave(struct mdapl_speer *peer, const struct mdapl_spsc_msg *m, int type)
{
    mdapl_spsc_publish(&peer->tx, m, (uint8_t)type, peer->rx.taken);
    mdapl_spsc_told(&peer->rx);
    mdapl_bell_after(peer);
}

bool mdapl_shm_tx_put_from(struct mdapl_speer *peer, int type, const void *hdr, size_t hdr_len,
                           struct mdapl_iov *from, size_t len)
{
    struct mdapl_spsc_msg m;

    if (!mdapl_shm_tx_open(peer) || !mdapl_spsc_reserve(&peer->tx, hdr_len, len, &m))
        return false;
    memcpy(m.hdr, hdr, hdr_len);
    mdapl_iov_gather(from, m.body, len);
    leave(peer, &m, type);
    return true;
}

bool mdapl_shm_tx_put_with(struct mdapl_speer *peer, int type, const void *hdr, size_t hdr_len,
                           const void *body, size_t len)
{
    const struct iovec v = { (void *)(uintptr_t)body, len };
    struct mdapl_iov from = mdapl_iov_start(&v, 1);

    return mdapl_shm_tx_put_from(peer, type, hdr, hdr_len, &from, len);
}

bool mdapl_shm_tx_put(struct mdapl_speer *peer, int type, const void *record, size_t len)
{
    return mdapl_shm_tx_put_with(peer, type, record, len, "", 0);
}

static bool fits_ring(const struct mdapl_msg *msg, size_t len)
{
    return msg->hdr_len + len <= MDAPL_SHM_EAGER;
}

static void put_body(uint8_t *body, const struct iovec *v, int n, size_t len)
{
    struct mdapl_iov cur = mdapl_iov_start(v, n);

    if (n == 1)
        mdapl_bytes_copy(body, v->iov_base, len);
    else if (len > 0)
        mdapl_iov_gather(&cur, body, len);
}

static bool put_msg(struct mdapl_speer *peer, const struct mdapl_msg *msg, size_t len)
{
    struct mdapl_spsc_msg m;

    if (!mdapl_shm_tx_open(peer) || !mdapl_spsc_reserve(&peer->tx, msg->hdr_len, len, &m))
        return false;
    mdapl_bytes_copy(m.hdr, msg->hdr, msg->hdr_len);
    put_body(m.body, msg->body, msg->n_body, len);
    leave(peer, &m, MDAPL_SHM_MSG);
    return true;
}

/* All of it, body included, if there is room. */
static bool send_now(struct mdapl_speer *peer, const struct mdapl_msg *msg, size_t len)
{
    return fits_ring(msg, len) ? put_msg(peer, msg, len) : mdapl_push_send(peer, msg, len);
}

static bool put_rts(struct mdapl_speer *peer, const struct mdapl_shm_item *it)
{
    size_t len = mdapl_long_rts_len(it->send);
    struct mdapl_spsc_msg m;

    if (!mdapl_shm_tx_open(peer) || !mdapl_spsc_reserve(&peer->tx, it->hdr_len, len, &m))
        return false;
    memcpy(m.hdr, it->hdr, it->hdr_len);
    mdapl_long_put_rts(it->send, m.body);
    leave(peer, &m, MDAPL_SHM_RTS);
    return true;
}

/* Other peers have taken the cells that this body was to leave in: it is announced instead, since
 * nobody knows when they give them back. */
static bool announce_instead(struct mdapl_speer *peer, struct mdapl_shm_item *it,
                             const struct mdapl_msg *msg)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->s->ctx);

    it->send = mdapl_long_send(peer, msg, it->len, it->op);
    if (!it->send) {
        mdapl_speer_broken(peer, -ENOMEM, "out of memory");
        return false;
    }
    it->op = NULL;               /* the body's now, until its FIN */
    it->type = MDAPL_SHM_RTS;
    stats->tx_eager--;
    stats->tx_rndv++;
    return true;
}

static bool put_item(struct mdapl_speer *peer, struct mdapl_shm_item *it)
{
    const struct mdapl_msg msg = { it->hdr, it->hdr_len, it->v, it->n, false };

    if ((it->type == MDAPL_SHM_MSG || it->type == MDAPL_SHM_PUSH) && send_now(peer, &msg, it->len))
        return true;
    if (it->type == MDAPL_SHM_PUSH && !mdapl_push_will(peer, it->len)
        && !announce_instead(peer, it, &msg))
        return false;
    if (it->type == MDAPL_SHM_RTS)
        return put_rts(peer, it);
    return it->type != MDAPL_SHM_MSG && it->type != MDAPL_SHM_PUSH
           && mdapl_shm_tx_put(peer, it->type, it->hdr, it->hdr_len);
}

/* -- items that wait -------------------------------------------------------------------------- */

static struct mdapl_shm_item *item_make(struct mdapl_speer *peer, int type, const void *hdr,
                                        size_t hdr_len)
{
    struct mdapl_shm_item *it = mdapl_pool_take(&peer->s->items);

    if (!it)
        return NULL;
    mdapl_list_init(&it->link);
    it->op = NULL;
    it->type = (uint8_t)type;
    it->hdr_len = (uint8_t)hdr_len;
    memcpy(it->hdr, hdr, hdr_len);
    it->v = it->own;
    it->n = 0;
    return it;
}

static void item_free(struct mdapl_speer *peer, struct mdapl_shm_item *it)
{
    mdapl_list_remove(&it->link);
    if (it->v != it->own)
        free(it->v);
    mdapl_pool_give(&peer->s->items, it);
}

static void item_queue(struct mdapl_speer *peer, struct mdapl_list *list,
                       struct mdapl_shm_item *it)
{
    mdapl_list_append(list, &it->link);
    mdapl_speer_wake(peer);
}

static bool item_take_body(struct mdapl_shm_item *it, const struct mdapl_msg *msg, size_t len)
{
    it->len = len;
    it->n = msg->n_body;
    if (msg->n_body > (int)(sizeof(it->own) / sizeof(it->own[0])))
        it->v = malloc(sizeof(*it->v) * (size_t)msg->n_body);
    if (!it->v)
        return false;
    if (msg->n_body > 0)
        memcpy(it->v, msg->body, sizeof(*it->v) * (size_t)msg->n_body);
    return true;
}

int mdapl_shm_tx_record(struct mdapl_speer *peer, int type, const void *record, size_t len)
{
    struct mdapl_shm_item *it;

    if (mdapl_list_empty(&peer->ctl) && mdapl_shm_tx_put(peer, type, record, len))
        return 0;
    it = item_make(peer, type, record, len);
    if (!it)
        return -ENOMEM;
    item_queue(peer, &peer->ctl, it);
    return 0;
}

/* -- sending ---------------------------------------------------------------------------------- */

static int queue_msg(struct mdapl_speer *peer, const struct mdapl_msg *msg, size_t len,
                     struct mdapl_op *op)
{
    int type = fits_ring(msg, len) ? MDAPL_SHM_MSG : MDAPL_SHM_PUSH;
    struct mdapl_shm_item *it = item_make(peer, type, msg->hdr, msg->hdr_len);

    if (!it)
        return -ENOMEM;
    if (!item_take_body(it, msg, len)) {
        it->v = it->own;
        item_free(peer, it);
        return -ENOMEM;
    }
    it->op = op;
    item_queue(peer, &peer->queue, it);
    return 0;
}

/* The body stays where it is until the receiver asks for it. */
static int send_long(struct mdapl_speer *peer, const struct mdapl_msg *msg, size_t len,
                     struct mdapl_op *op)
{
    struct mdapl_shm_item *it = item_make(peer, MDAPL_SHM_RTS, msg->hdr, msg->hdr_len);

    if (!it)
        return -ENOMEM;
    it->send = mdapl_long_send(peer, msg, len, op);
    if (!it->send) {
        item_free(peer, it);
        return -ENOMEM;
    }
    if (mdapl_list_empty(&peer->queue) && put_rts(peer, it))
        item_free(peer, it);
    else
        item_queue(peer, &peer->queue, it);
    return 0;
}

static void count(struct mdapl_speer *peer, size_t hdr_len, size_t len, bool eager)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(peer->s->ctx);

    stats->tx_msgs++;
    stats->tx_bytes += len;
    stats->shm_msgs++;
    if (!eager) {
        stats->tx_rndv++;
        return;
    }
    stats->tx_eager++;
    stats->shm_lines += mdapl_spsc_align(hdr_len) + len <= MDAPL_LINE_ROOM;
}

/* Has the receiver to ask for the body? When it is long, when its asking is what the sender waits
 * for, and when there is no telling how long others keep the cells that it would need. */
static bool is_asked(const struct mdapl_speer *peer, const struct mdapl_msg *msg, size_t len)
{
    return len > MDAPL_SHM_PUSH_BYTES || (msg->synchronous && len > 0)
           || (!fits_ring(msg, len) && !mdapl_push_will(peer, len));
}

int mdapl_shm_tx_send(struct mdapl_peer *base, const struct mdapl_msg *msg, struct mdapl_op *op)
{
    struct mdapl_speer *peer = mdapl_speer_of(base);
    size_t len = mdapl_iov_len(msg->body, msg->n_body);
    bool asked;
    int rc;

    if (peer->dead)
        return peer->dead;
    if (msg->hdr_len > MDAPL_HDR_MAX)
        return -EMSGSIZE;
    asked = is_asked(peer, msg, len);
    if (!asked && mdapl_list_empty(&peer->queue) && send_now(peer, msg, len)) {
        count(peer, msg->hdr_len, len, true);
        return MDAPL_DONE;
    }
    if (!op)
        return -EAGAIN;
    rc = asked ? send_long(peer, msg, len, op) : queue_msg(peer, msg, len, op);
    if (rc == 0)
        count(peer, msg->hdr_len, len, !asked);
    return rc;
}

/* Sends the first item of a list if there is room. */
static bool send_first(struct mdapl_speer *peer, struct mdapl_list *list)
{
    struct mdapl_list *l = mdapl_list_first(list);
    struct mdapl_shm_item *it = l ? MDAPL_OF(l, struct mdapl_shm_item, link) : NULL;
    struct mdapl_op *op;

    if (!it || !put_item(peer, it))
        return false;
    op = it->op;
    item_free(peer, it);
    if (op)
        op->done(op, 0);
    return true;
}

int mdapl_shm_tx_flush(struct mdapl_speer *peer)
{
    int n = 0;

    while (send_first(peer, &peer->ctl))
        n++;
    while (mdapl_list_empty(&peer->ctl) && send_first(peer, &peer->queue))
        n++;
    return n + mdapl_long_stream(peer);
}

static void fail_items(struct mdapl_speer *peer, struct mdapl_list *list, int status)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(list))) {
        struct mdapl_shm_item *it = MDAPL_OF(l, struct mdapl_shm_item, link);
        struct mdapl_op *op = it->op;

        item_free(peer, it);
        if (op)
            op->done(op, status);
    }
}

void mdapl_shm_tx_fail(struct mdapl_speer *peer, int status)
{
    fail_items(peer, &peer->ctl, status);
    fail_items(peer, &peer->queue, status);
}
