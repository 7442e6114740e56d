/* SPDX-License-Identifier: MIT */
/*
 * The first messages of a rank to another one of its job: in the FIFO (fifo.h) of that rank, if
 * they fit into a line. All later ones are in its inring there, and so is a longer one, with all
 * behind it. Programs may send to all ranks, but to most of them only now and then: there an inring
 * costs both ends page faults, translations of addresses, and lines that nobody has used before.
 *
 * The messages of a pair have one sequence of numbers, so those in the inring are taken when all in
 * the FIFO have been: before that, theirs is not the next number (ring.h). Where the FIFO is full
 * the inring is used at once, so no message waits until other ranks' are taken.
 *
 * The FIFO's doorbell is the bit of `doorbell_words` that is no word's.
 */
#include "fifo.h"

#include "bytes.h"
#include "channel.h"
#include "peer.h"

#include <string.h>

enum {
    FIRST = 4,                   /* messages */
    NOBODY = -1,
};

static const uint64_t doorbell = (uint64_t)1 << MDAPL_SHM_DOORBELL_FIFO;

/* -- the writer ------------------------------------------------------------------------------- */

/* Whose FIFO this process writes. */
static void set_writes(struct mdapl_shm_seg_head *own, int32_t rank)
{
    atomic_store_explicit(&own->writes, rank + 1, memory_order_release);
}

/* Always by an atomic operation: a load of the bit could pass the store of the slot's word, so that
 * the reader takes the bit in between and finds no message. */
static void ring_doorbell(struct mdapl_shm_peer *peer)
{
    atomic_fetch_or(&peer->far.head->doorbell_words, doorbell);
    mdapl_shm_sleep_end(peer);
}

/* Programs send their first messages to one rank after the other, and where many ranks share a core
 * most of the time of a first access to a segment is that of the translation of its address. */
static void prefetch_next(const struct mdapl_shm_peer *peer)
{
    const struct mdapl_shm_peer *next = peer->next_near;

    if (next && next->tx.next == 0)
        mdapl_bytes_will_write(&next->far.head->fifo_ends);
}

bool mdapl_shm_fifo_put(struct mdapl_shm_peer *peer, const struct mdapl_msg *msg)
{
    struct mdapl_shm_seg_head *far = peer->far.head, *own = peer->s->seg.head;
    size_t len = msg->n_body > 0 ? msg->body->iov_len : 0;
    struct mdapl_shm_fifo_slot *slot;
    uint32_t at;

    if (peer->tx.next >= FIRST || peer->base.group > 0)
        return false;
    /* It is loaded first, and would be transferred twice. */
    mdapl_bytes_will_write(&far->fifo_ends);
    set_writes(own, peer->base.rank);
    if (!mdapl_shm_fifo_claim(&far->fifo_ends, &at)) {
        set_writes(own, NOBODY);
        return false;
    }
    slot = mdapl_shm_fifo_slot(far->fifo, at);
    mdapl_bytes_copy(slot->room, msg->hdr, msg->hdr_len);
    if (len > 0)
        mdapl_bytes_copy(slot->room + mdapl_shm_spsc_align(msg->hdr_len), msg->body->iov_base, len);
    if (peer->tx.next == 0) {
        peer->s->n_inrings++;
        prefetch_next(peer);
    }
    slot->number = ++peer->tx.next;
    slot->ack = peer->rx.taken;
    mdapl_shm_spsc_ack_piggybacked(&peer->rx);
    mdapl_shm_fifo_publish(far->fifo, at, peer->far_inring, msg->hdr_len, len);
    set_writes(own, NOBODY);
    peer->fifo_end = at + 1;
    ring_doorbell(peer);
    return true;
}

void mdapl_shm_fifo_ack_in(struct mdapl_shm_peer *peer)
{
    uint32_t taken = atomic_load_explicit(&peer->far.head->fifo_ends.taken, memory_order_acquire);

    if ((int32_t)(taken - peer->fifo_end) >= 0)
        mdapl_shm_spsc_ack_in(&peer->tx, peer->tx.next);
}

/* -- the reader ------------------------------------------------------------------------------- */

static void take(struct mdapl_shm_peer *peer, const struct mdapl_shm_fifo_msg *m)
{
    uint8_t *hdr = peer->s->hdr;

    memcpy(hdr, m->hdr, MDAPL_LINE_ROOM);
    mdapl_shm_spsc_ack_in(&peer->tx, m->ack);
    /* `taken` of the FIFO acknowledges it. */
    peer->rx.acked = ++peer->rx.taken;
    if (mdapl_inbox_take(&peer->inbox, hdr, m->hdr_len, m->body, m->len) < 0)
        mdapl_shm_peer_no_memory(peer);
}

/* The peer that has written a message; NULL: what it sends is not taken. */
static struct mdapl_shm_peer *writer_of(struct mdapl_shm_chan *s,
                                        const struct mdapl_shm_fifo_msg *m)
{
    struct mdapl_shm_peer *peer = m->writer < (uint32_t)s->near.n
                                      ? mdapl_shm_doorbell_writer(s, m->writer) : NULL;

    return peer && !peer->dead ? peer : NULL;
}

int mdapl_shm_fifo_poll(struct mdapl_shm_chan *s)
{
    struct mdapl_shm_seg_head *head = s->seg.head;
    enum mdapl_shm_spsc_status status;
    struct mdapl_shm_fifo_msg m;
    int n = 0;

    while (n < MDAPL_FIFO_SLOTS
           && (status = mdapl_shm_fifo_peek(head->fifo, s->fifo_taken, &m)) != MDAPL_SPSC_NONE) {
        struct mdapl_shm_peer *peer = writer_of(s, &m);

        if (peer && status == MDAPL_SPSC_MSG && m.number == peer->rx.taken + 1)
            take(peer, &m);
        else if (peer)
            mdapl_shm_rx_bad(peer);
        s->fifo_taken++;
        n++;
    }
    atomic_store_explicit(&head->fifo_ends.taken, s->fifo_taken, memory_order_release);
    return n;
}

/* -- writers that have ended ------------------------------------------------------------------ */

void mdapl_shm_fifo_last(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_chan *s = peer->s;
    struct mdapl_shm_fifo_msg m;

    for (uint32_t i = 0; i < MDAPL_FIFO_SLOTS; i++)
        if (mdapl_shm_fifo_peek(s->seg.head->fifo, s->fifo_taken + i, &m) == MDAPL_SPSC_MSG
            && writer_of(s, &m) == peer && m.number == peer->rx.taken + 1)
            take(peer, &m);
}

/* Does a process that has not ended write this process's FIFO? */
static bool is_written(const struct mdapl_shm_chan *s)
{
    for (int i = 0; i < s->near.n; i++) {
        const struct mdapl_shm_peer *peer = mdapl_shm_near_peer(s, i);

        if (peer && atomic_load_explicit(&peer->far.head->writes, memory_order_acquire)
                        == mdapl_ctx_job(s->ctx)->rank + 1
            && !mdapl_shm_os_process_ended(peer->process, peer->pid))
            return true;
    }
    return false;
}

void mdapl_shm_fifo_check(struct mdapl_shm_chan *s)
{
    struct mdapl_shm_seg_head *head = s->seg.head;

    if (!mdapl_shm_fifo_is_claimed(&head->fifo_ends, s->fifo_taken) || is_written(s)
        || mdapl_shm_fifo_word(head->fifo, s->fifo_taken))
        return;
    s->fifo_taken++;
    atomic_fetch_or(&head->doorbell_words, doorbell);
}
