/* SPDX-License-Identifier: MIT */
/*
 * Messages into the rings, or FIFOs (fifo.c), and a queue for each peer. A message is written at
 * once if the queue is empty and the ring has room; else it is queued, with a copy of its header.
 */
#include "peer.h"

#include "bytes.h"
#include "iov.h"
#include "min.h"
#include "stats.h"

#include <errno.h>
#include <string.h>

enum { STREAM = 4 };             /* messages in flight: the peer is not waited for */

/* -- into the ring ---------------------------------------------------------------------------- */

bool mdapl_shm_tx_open(struct mdapl_shm_peer *peer)
{
    if (peer->tx.in.front)
        return true;
    if (peer->broken || peer->dead)
        return false;
    if (mdapl_shm_doorbell_open(peer))
        mdapl_shm_peer_broken(peer, -ENOMEM, "its segment has no inring or no memory left");
    return peer->tx.in.front && !peer->broken;
}

/* Another message like m is about to follow, and the peer has the lines of its slot. The stores of
 * all that is done before would queue behind the first one that waits for them. */
static inline void prepare_next(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_slot *slot = peer->tx.slot;

    mdapl_bytes_will_write(slot);
    if (m->hdr_len + m->len > MDAPL_LINE_ROOM)
        mdapl_bytes_will_write(&slot->room[MDAPL_LINE_ROOM]);
}

/*
 * Publishes a message that has been filled, and with it how many of the peer's messages have been
 * taken. If the peer does not poll this ring its doorbell is rung (doorbell.c): the load of
 * `polled` is ordered after the store of the slot. The load is relaxed, as the reader's barrier
 * excludes a stale 1, and a stale 0 only costs a doorbell.
 */
__attribute__((always_inline)) static inline void publish(struct mdapl_shm_peer *peer,
                                                          const struct mdapl_shm_spsc_msg *m,
                                                          int type)
{
    mdapl_shm_spsc_publish(&peer->tx, m, (uint8_t)type, peer->rx.taken);
    if (peer->tx.next - peer->tx.acked >= STREAM)
        prepare_next(peer, m);
    mdapl_shm_spsc_ack_piggybacked(&peer->rx);
    if (peer->fence)
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);   /* for the compiler's order */
    if (!atomic_load_explicit(&peer->tx.in.front->polled, memory_order_relaxed))
        mdapl_shm_doorbell_ring(peer);
}

/* Does a message fit into the first line of its slot? */
static inline bool is_line(size_t hdr_len, size_t len)
{
    return mdapl_shm_spsc_align(hdr_len) + len <= MDAPL_LINE_ROOM;
}

/* Does a body that the slot's first line does not take go into the pair buffer, in one message? Not
 * if the header needs the second line and the body fits there, not in a stream, in which the peer
 * has not taken all that was sent, nor where non-temporal stores into the ring have been found to
 * be faster than cached ones. */
static bool takes_pair_buffer(struct mdapl_shm_peer *peer, int type, const struct mdapl_msg *msg,
                              size_t len)
{
    return type == MDAPL_SHM_MSG && len <= MDAPL_SHM_WHOLE && msg->hdr_len <= MDAPL_SLOT_ROOM
           && (msg->hdr_len <= MDAPL_LINE_ROOM || mdapl_shm_spsc_outside(msg->hdr_len, len) > 0)
           && peer->tx.next == peer->tx.acked && mdapl_shm_pair_has_room(&peer->pair, len)
           && (len < MDAPL_BYTES_LONG || mdapl_shm_store_elsewhere(peer, len));
}

/* Reserves the place of a message. False: no room. */
__attribute__((always_inline)) static inline bool reserve(struct mdapl_shm_peer *peer, int type,
                                                          const struct mdapl_msg *msg, size_t len,
                                                          struct mdapl_shm_spsc_msg *m)
{
    uint32_t off = 0;

    if (is_line(msg->hdr_len, len) || !takes_pair_buffer(peer, type, msg, len))
        return mdapl_shm_spsc_reserve(&peer->tx, msg->hdr_len, len, m);
    if (!mdapl_shm_spsc_reserve_parts(&peer->tx, len, 1, &off))
        return false;
    mdapl_shm_spsc_part(&peer->tx, off, msg->hdr_len, len, m);
    peer->s->stats->shm_pair_bodies++;
    return true;
}

/* Copies the next bytes of the cursor to where the message's body is. In the pair buffer that has
 * its lines in this core's cache, however far the peer is. */
static void fill(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m,
                 struct mdapl_iov *from)
{
    if (m->in_pair || m->len < MDAPL_BYTES_LONG) {
        mdapl_iov_gather(from, m->body, m->len);
    } else {
        mdapl_shm_store(peer, from, m->body, m->len);
        mdapl_shm_lap_stored(peer, m->len);
    }
}

/* Writes a message, with its body of len bytes, if there is room. Inline in the way of a short
 * message, whose registers would be saved twice. */
__attribute__((always_inline)) static inline bool put(struct mdapl_shm_peer *peer, int type,
                                                      const struct mdapl_msg *msg, size_t len)
{
    struct mdapl_shm_spsc_msg m;

    if ((!peer->tx.in.front && !mdapl_shm_tx_open(peer)) || !reserve(peer, type, msg, len, &m))
        return false;
    mdapl_bytes_copy(m.hdr, msg->hdr, msg->hdr_len);
    if (msg->n_body == 1 && len < MDAPL_BYTES_LONG) {
        mdapl_bytes_copy(m.body, msg->body->iov_base, len);
    } else if (len > 0) {
        struct mdapl_iov cur = mdapl_iov_start(msg->body, msg->n_body);

        fill(peer, &m, &cur);
    }
    publish(peer, &m, type);
    return true;
}

bool mdapl_shm_tx_put(struct mdapl_shm_peer *peer, int type, const void *hdr, size_t hdr_len,
                      const void *body, size_t len)
{
    const struct iovec v = { (void *)(uintptr_t)body, len };
    const struct mdapl_msg msg = { hdr, hdr_len, &v, len > 0, false };

    return put(peer, type, &msg, len);
}

bool mdapl_shm_tx_put_from(struct mdapl_shm_peer *peer, int type, const void *hdr, size_t hdr_len,
                           struct mdapl_iov *from, size_t len)
{
    struct mdapl_shm_spsc_msg m;

    if (!mdapl_shm_tx_open(peer) || !mdapl_shm_spsc_reserve(&peer->tx, hdr_len, len, &m))
        return false;
    mdapl_bytes_copy(m.hdr, hdr, hdr_len);
    mdapl_shm_store(peer, from, m.body, len);
    publish(peer, &m, type);
    return true;
}

/* Writes a message in parts, each of which the peer may take while the next one is copied. */
static bool put_parts(struct mdapl_shm_peer *peer, const struct mdapl_msg *msg, size_t len)
{
    struct mdapl_iov cur = mdapl_iov_start(msg->body, msg->n_body);
    size_t size = mdapl_shm_part_len(len);
    struct mdapl_shm_head head = { len };
    struct mdapl_shm_spsc_msg m;
    uint32_t off = 0;

    if (!mdapl_shm_tx_open(peer)
        || !mdapl_shm_spsc_reserve_parts(&peer->tx, len, mdapl_shm_parts(len), &off))
        return false;
    for (size_t at = 0; at < len; at += size) {
        bool first = at == 0;

        mdapl_shm_spsc_part(&peer->tx, off + (uint32_t)at, first ? sizeof(head) + msg->hdr_len : 0,
                            mdapl_min(size, len - at), &m);
        if (first) {
            memcpy(m.hdr, &head, sizeof(head));
            mdapl_bytes_copy(m.hdr + sizeof(head), msg->hdr, msg->hdr_len);
            peer->s->stats->shm_pair_bodies += m.in_pair;
        }
        fill(peer, &m, &cur);
        publish(peer, &m, first ? MDAPL_SHM_HEAD : MDAPL_SHM_MORE);
    }
    return true;
}

/* Writes a message with its body, in parts or not. */
__attribute__((always_inline)) static inline bool put_any(struct mdapl_shm_peer *peer, int type,
                                                          const struct mdapl_msg *msg, size_t len)
{
    uint32_t in_ring = peer->tx.used, in_pair = peer->pair.used;

    if (!(type == MDAPL_SHM_HEAD ? put_parts(peer, msg, len) : put(peer, type, msg, len)))
        return false;
    if (len > MDAPL_SHM_SHORT) {
        peer->long_sent = peer->tx.next;
        if (peer->tx.used != in_ring || peer->pair.used != in_pair)
            mdapl_shm_flow_fresh(peer, len);
        mdapl_shm_flow_sent(peer, MDAPL_SHM_TWICE, len);
    }
    return true;
}

/* -- queued items ----------------------------------------------------------------------------- */

static struct mdapl_shm_item *item_make(struct mdapl_shm_peer *peer, int type, const void *hdr,
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
    mdapl_pieces_make(&it->body, 0);
    it->len = 0;
    it->send = NULL;
    return it;
}

static void item_free(struct mdapl_shm_peer *peer, struct mdapl_shm_item *it)
{
    mdapl_list_remove(&it->link);
    mdapl_pieces_free(&it->body);
    mdapl_pool_give(&peer->s->items, it);
}

static void item_queue(struct mdapl_shm_peer *peer, struct mdapl_list *list,
                       struct mdapl_shm_item *it)
{
    mdapl_list_append(list, &it->link);
    mdapl_shm_peer_wake(peer);
}

int mdapl_shm_tx_record(struct mdapl_shm_peer *peer, int type, const void *record, size_t len)
{
    struct mdapl_shm_item *it;

    if (mdapl_list_empty(&peer->ctl) && mdapl_shm_tx_put(peer, type, record, len, NULL, 0))
        return 0;
    it = item_make(peer, type, record, len);
    if (!it)
        return -ENOMEM;
    item_queue(peer, &peer->ctl, it);
    return 0;
}

/* -- sending ---------------------------------------------------------------------------------- */

/* Is a body that the ring does not take sent in the pair buffer? Not in a stream, where others are
 * under way by rendezvous: the copy of this one would delay theirs. */
static bool answers(const struct mdapl_shm_peer *peer, size_t len)
{
    return mdapl_shm_pair_has_room(&peer->pair, len) && mdapl_list_empty(&peer->sends)
           && mdapl_list_empty(&peer->bodies);
}

/* How a message travels: with its body in the ring, in parts if it is long there or in the pair
 * buffer, or by rendezvous if the body is longer, if the message is synchronous, or if one copy is
 * faster (way.c). */
static int type_of(struct mdapl_shm_peer *peer, const struct mdapl_msg *msg, size_t len)
{
    bool parts = sizeof(struct mdapl_shm_head) + msg->hdr_len <= MDAPL_SLOT_ROOM;

    if (msg->synchronous && len > 0)
        return MDAPL_SHM_RTS;
    if (len <= MDAPL_SHM_SHORT)
        return MDAPL_SHM_MSG;
    mdapl_shm_flow_sends(peer, len);
    if ((len > MDAPL_SHM_EAGER && !(parts && answers(peer, len)))
        || len > mdapl_shm_spsc_longest(&peer->tx) || mdapl_shm_way_announce(peer, len))
        return MDAPL_SHM_RTS;
    return parts && len > MDAPL_SHM_WHOLE ? MDAPL_SHM_HEAD : MDAPL_SHM_MSG;
}

static inline void count(struct mdapl_stats *stats, bool eager, bool line, size_t len)
{
    stats->tx_msgs++;
    stats->tx_bytes += len;
    stats->shm_msgs++;
    if (!eager) {
        stats->tx_rndv++;
        return;
    }
    stats->tx_eager++;
    stats->shm_lines += line;
}

/* Queues a message. Not inline, nor is announce(), as its registers would be saved for each message
 * that is sent at once. */
__attribute__((noinline)) static int queue_msg(struct mdapl_shm_peer *peer, int type,
                                               const struct mdapl_msg *msg, size_t len,
                                               struct mdapl_op *op)
{
    struct mdapl_shm_item *it = item_make(peer, type, msg->hdr, msg->hdr_len);

    if (!it)
        return -ENOMEM;
    if (!mdapl_pieces_copy(&it->body, msg->body, msg->n_body)) {
        item_free(peer, it);
        return -ENOMEM;
    }
    it->len = len;
    it->op = op;
    count(peer->s->stats, true, is_line(msg->hdr_len, len), len);
    item_queue(peer, &peer->queue, it);
    return 0;
}

/* Begins a rendezvous: sends its RTS, or queues it. */
__attribute__((noinline)) static int announce(struct mdapl_shm_peer *peer,
                                              const struct mdapl_msg *msg, size_t len,
                                              struct mdapl_op *op)
{
    struct mdapl_shm_rndv *send = mdapl_shm_rndv_send(peer, msg, len, op);
    struct mdapl_shm_item *it;

    if (!send)
        return -ENOMEM;
    if (!mdapl_list_empty(&peer->queue)
        || !mdapl_shm_rndv_put_rts(send, msg->hdr, msg->hdr_len)) {
        it = item_make(peer, MDAPL_SHM_RTS, msg->hdr, msg->hdr_len);
        if (!it) {
            mdapl_shm_rndv_forget(send);
            return -ENOMEM;
        }
        it->send = send;
        item_queue(peer, &peer->queue, it);
    }
    count(peer->s->stats, false, false, len);
    return 0;
}

static inline size_t first_len(const struct mdapl_msg *msg)
{
    return msg->n_body > 0 ? msg->body->iov_len : 0;
}

/* Does a message, as most do, fit into a line, and can it be sent at once? Not if others are to be
 * sent first. */
static inline bool is_ready_line(const struct mdapl_shm_peer *peer, const struct mdapl_msg *msg)
{
    size_t len = first_len(msg);

    return msg->n_body <= 1 && is_line(msg->hdr_len, len) && !(msg->synchronous && len > 0)
           && !peer->dead && mdapl_list_empty(&peer->queue);
}

/* ... into the first line of its slot? Not if as far as is known here all slots are in use. */
static inline bool goes_as_line(const struct mdapl_shm_peer *peer, const struct mdapl_msg *msg)
{
    return is_ready_line(peer, msg) && peer->tx.in.front
           && peer->tx.next - peer->tx.acked < MDAPL_SLOTS;
}

/* Such a message. Not inline, nor is send_any(): each saves its own registers. */
__attribute__((noinline)) static int send_line(struct mdapl_shm_peer *peer,
                                               const struct mdapl_msg *msg)
{
    size_t len = first_len(msg);
    struct mdapl_shm_spsc_msg m;

    mdapl_shm_spsc_in_slot(&peer->tx, msg->hdr_len, len, &m);
    mdapl_bytes_copy(m.hdr, msg->hdr, msg->hdr_len);
    if (len > 0)
        mdapl_bytes_copy(m.body, msg->body->iov_base, len);
    publish(peer, &m, MDAPL_SHM_MSG);
    count(peer->s->stats, true, true, len);
    return MDAPL_DONE;
}

__attribute__((noinline)) static int send_any(struct mdapl_shm_peer *peer,
                                              const struct mdapl_msg *msg, struct mdapl_op *op)
{
    size_t len = mdapl_iov_len(msg->body, msg->n_body);
    int type;

    if (peer->dead)
        return peer->dead;
    if (msg->hdr_len > MDAPL_HDR_MAX)
        return -EMSGSIZE;
    if (!peer->tx.in.front && is_ready_line(peer, msg) && mdapl_shm_fifo_put(peer, msg)) {
        count(peer->s->stats, true, true, len);
        return MDAPL_DONE;
    }
    type = type_of(peer, msg, len);
    if (type != MDAPL_SHM_RTS && mdapl_list_empty(&peer->queue) && put_any(peer, type, msg, len)) {
        count(peer->s->stats, true, is_line(msg->hdr_len, len), len);
        return MDAPL_DONE;
    }
    if (!op)
        return -EAGAIN;
    /* The turn of the pair buffer may be over when a message that waits is sent, and the ring does
     * not take one as long as that. */
    return type == MDAPL_SHM_RTS || len > MDAPL_SHM_EAGER ? announce(peer, msg, len, op)
                                                          : queue_msg(peer, type, msg, len, op);
}

int mdapl_shm_tx_send(struct mdapl_peer *base, const struct mdapl_msg *msg, struct mdapl_op *op)
{
    struct mdapl_shm_peer *peer = mdapl_shm_peer_of(base);

    return goes_as_line(peer, msg) ? send_line(peer, msg) : send_any(peer, msg, op);
}

uint64_t mdapl_shm_tx_sent(const struct mdapl_shm_chan *s)
{
    return s->stats->shm_msgs;
}

/* -- sending queued items --------------------------------------------------------------------- */

static bool put_item(struct mdapl_shm_peer *peer, struct mdapl_shm_item *it)
{
    const struct mdapl_msg msg = { it->hdr, it->hdr_len, it->body.v, it->body.n, false };

    if (it->type == MDAPL_SHM_RTS)
        return mdapl_shm_rndv_put_rts(it->send, it->hdr, it->hdr_len);
    return put_any(peer, it->type, &msg, it->len);
}

/* Sends the first item of a list if there is room. */
static bool send_first(struct mdapl_shm_peer *peer, struct mdapl_list *list)
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

int mdapl_shm_tx_flush(struct mdapl_shm_peer *peer)
{
    int n = 0;

    while (send_first(peer, &peer->ctl))
        n++;
    while (mdapl_list_empty(&peer->ctl) && send_first(peer, &peer->queue))
        n++;
    return n + mdapl_shm_rndv_stream(peer);
}

static void fail_items(struct mdapl_shm_peer *peer, struct mdapl_list *list, int status)
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

void mdapl_shm_tx_fail(struct mdapl_shm_peer *peer, int status)
{
    fail_items(peer, &peer->ctl, status);
    fail_items(peer, &peer->queue, status);
}
