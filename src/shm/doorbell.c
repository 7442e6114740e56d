/* SPDX-License-Identifier: MIT */
/*
 * Doorbells. A process polls the inrings of the peers that have sent lately: each round loads their
 * next slots, so a message costs no more than its slot. All other senders set a bit in the head of
 * the reader's segment, their doorbell, after they have written a message; so all idle peers
 * together cost one load. A reader that sleeps polls no inring; the doorbell wakes it.
 *
 * Both ends agree without waiting: the writer stores its slot and then loads `polled`; a reader
 * that stops polling stores `polled` and then loads the slot once more. If both loads could pass
 * the stores before them, the message would not be noticed. Stopping is rare, so the reader pays
 * for the order, with mdapl_shm_os_barrier(); where the system has no such barrier the writer
 * uses a fence. In both cases `polled` itself may be relaxed.
 *
 * `doorbell` and `doorbell_words` are sequentially consistent, because a sleeping reader and a
 * writer agree in the same way (sleep.c). The reader takes `doorbell_words` before `doorbell`, the
 * writer sets its bit in `doorbell` before it loads `doorbell_words`.
 */
#include "peer.h"

#include "channel.h"
#include "log.h"
#include "shm.h"
#include "stats.h"

#include <errno.h>

/* -- the writer: a ring in another's segment --------------------------------------------------- */

int mdapl_shm_doorbell_open(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_chan *s = peer->s;
    struct mdapl_shm_inring_at in = mdapl_shm_seg_inring(&peer->far, peer->far_inring);

    /* That of a guest has been reserved when it was claimed. */
    if (!in.front || (peer->base.group == 0
                      && mdapl_shm_seg_reserve_inring(&peer->far, peer->far_inring)))
        return -ENOMEM;
    /* A load, unlike a store, has the kernel map the pages around it as well (seg.c). */
    (void)atomic_load_explicit(&in.front->refused, memory_order_relaxed);
    mdapl_shm_spsc_open_tx(&peer->tx, in);
    if (peer->token < s->seg.head->token) {
        peer->pair.bytes = mdapl_shm_seg_pair(&peer->far, &in);
        peer->pair.turn = peer->pair.bytes;
    }
    s->n_inrings += peer->tx.next == 0;
    return 0;
}

void mdapl_shm_doorbell_ring(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_seg_head *far = peer->far.head;
    uint32_t word = peer->far_inring / 64;

    peer->s->stats->shm_doorbells++;
    atomic_fetch_or(&far->doorbell[word], (uint64_t)1 << peer->far_inring % 64);
    if (!(atomic_load(&far->doorbell_words) >> word & 1))
        atomic_fetch_or(&far->doorbell_words, (uint64_t)1 << word);
    mdapl_shm_sleep_end(peer);
}

/* -- the reader: a first message --------------------------------------------------------------- */

/* The peer that is this rank; NULL: it has an inring already or is lost, or another channel reaches
 * it. */
static struct mdapl_shm_peer *new_writer(struct mdapl_group *group, int rank)
{
    struct mdapl_peer *base;
    struct mdapl_shm_peer *peer;

    if (mdapl_group_peer(group, rank, &base) || base->channel != &mdapl_shm_channel)
        return NULL;
    peer = mdapl_shm_peer_of(base);
    return peer->rx.in.front || peer->dead ? NULL : peer;
}

static struct mdapl_shm_peer *open_inring(struct mdapl_shm_chan *s, uint32_t index)
{
    struct mdapl_shm_inring_at in = mdapl_shm_seg_inring(&s->seg, index);
    struct mdapl_group *group = mdapl_ctx_job(s->ctx);
    struct mdapl_shm_peer *peer;
    int rank, rc = 0;

    if (!in.front || mdapl_shm_guest_has_left(s, index))
        return NULL;
    if (index < s->seg.first_guest)
        rank = s->near.rank[index];
    else
        rc = mdapl_shm_guest_who(s, index, &group, &rank);
    if (rc == -EAGAIN)
        return NULL;
    peer = rc == 0 ? new_writer(group, rank) : NULL;
    if (!peer) {
        s->stats->cr_refused++;
        mdapl_log(mdapl_ctx_log(s->ctx), MDAPL_INFO,
                  "refused shared memory to one that calls itself rank %d", rank);
        atomic_store(&in.front->refused, 1);
        atomic_store(&s->seg.head->refuses, 1);
        return NULL;
    }
    mdapl_log(mdapl_ctx_log(s->ctx), MDAPL_CONN, "rank %d sends through shared memory, inring %u",
              peer->base.rank, index);
    mdapl_shm_spsc_open_rx(&peer->rx, in);
    peer->rx.data_bytes = mdapl_shm_seg_data_bytes(&s->seg);
    if (s->seg.head->token < peer->token)
        peer->pair.bytes = mdapl_shm_seg_pair(&s->seg, &in);
    peer->inring = index;
    s->owner[index] = peer;
    s->n_inrings++;
    return peer;
}

/* -- polled rings ----------------------------------------------------------------------------- */

static void set_polled(struct mdapl_shm_peer *peer, uint32_t yes)
{
    atomic_store_explicit(&peer->rx.in.front->polled, yes, memory_order_relaxed);
}

static void start_polling(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_chan *s = peer->s;

    peer->active = true;
    if (peer->polled || peer->dead || s->n_polled == MDAPL_SHM_POLLED)
        return;
    peer->polled = true;
    s->polled[s->n_polled++] = peer;
    set_polled(peer, 1);
}

static void stop_polling(struct mdapl_shm_chan *s, int i)
{
    s->polled[i]->polled = false;
    s->polled[i] = s->polled[--s->n_polled];
}

/* Counted, because it interrupts each core that runs a process with such barriers. */
static void barrier(struct mdapl_shm_chan *s)
{
    s->stats->shm_barriers++;
    mdapl_shm_os_barrier();
}

void mdapl_shm_polled_age(struct mdapl_shm_chan *s)
{
    bool silent = false;

    for (int i = 0; i < s->n_polled; i++)
        if (!s->polled[i]->active) {
            set_polled(s->polled[i], 0);
            silent = true;
        }
    if (silent)
        barrier(s);
    for (int i = s->n_polled; i-- > 0;) {
        struct mdapl_shm_peer *peer = s->polled[i];

        if (peer->active || mdapl_shm_rx_has_any(peer))
            set_polled(peer, 1);
        else
            stop_polling(s, i);
        peer->active = false;
    }
}

bool mdapl_shm_polled_stop(struct mdapl_shm_chan *s)
{
    bool empty = true;

    for (int i = 0; i < s->n_polled; i++) {
        mdapl_shm_spsc_ack_flush(&s->polled[i]->rx);
        set_polled(s->polled[i], 0);
    }
    if (s->n_polled > 0)
        barrier(s);
    for (int i = s->n_polled; i-- > 0;) {
        if (mdapl_shm_rx_has_any(s->polled[i])) {
            set_polled(s->polled[i], 1);
            empty = false;
        } else {
            stop_polling(s, i);
        }
    }
    return empty;
}

void mdapl_shm_doorbell_close(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_chan *s = peer->s;

    for (int i = s->n_polled; i-- > 0;)
        if (s->polled[i] == peer)
            stop_polling(s, i);
}

/* -- doorbells that have been rung ------------------------------------------------------------- */

void mdapl_shm_doorbell_again(struct mdapl_shm_chan *s, uint32_t inring)
{
    atomic_fetch_or(&s->seg.head->doorbell[inring / 64], (uint64_t)1 << inring % 64);
    atomic_fetch_or(&s->seg.head->doorbell_words, (uint64_t)1 << inring / 64);
}

struct mdapl_shm_peer *mdapl_shm_doorbell_writer(struct mdapl_shm_chan *s, uint32_t inring)
{
    return s->owner[inring] ? s->owner[inring] : open_inring(s, inring);
}

static int poll_rung(struct mdapl_shm_chan *s, uint32_t inring)
{
    struct mdapl_shm_peer *peer = mdapl_shm_doorbell_writer(s, inring);
    int n;

    if (!peer || peer->dead)
        return 0;
    /* A rank that sleeps between two messages stops polling before each sleep, which costs a
     * barrier: so a ring is polled when its doorbell rings a second time without a sleep. */
    if (!s->slept)
        start_polling(peer);
    n = mdapl_shm_rx_poll(peer);
    if (peer->polled || peer->dead)
        return n;
    /* flush_acks() in shm.c does this for the polled rings, and for no others. */
    mdapl_shm_spsc_ack_flush(&peer->rx);
    if (mdapl_shm_rx_has_any(peer))
        mdapl_shm_doorbell_again(s, inring);
    return n;
}

int mdapl_shm_doorbell_poll(struct mdapl_shm_chan *s)
{
    uint64_t words = atomic_exchange(&s->seg.head->doorbell_words, 0);
    int n = 0;

    if (words >> MDAPL_SHM_DOORBELL_FIFO)
        n = mdapl_shm_fifo_poll(s);
    words &= ((uint64_t)1 << MDAPL_SHM_DOORBELL_FIFO) - 1;
    for (; words; words &= words - 1) {
        uint32_t w = (uint32_t)__builtin_ctzll(words);
        uint64_t bits = atomic_exchange(&s->seg.head->doorbell[w], 0);

        for (; bits; bits &= bits - 1)
            n += poll_rung(s, 64 * w + (uint32_t)__builtin_ctzll(bits));
    }
    s->slept = false;
    return n;
}
