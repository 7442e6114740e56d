/* SPDX-License-Identifier: MIT */
/*
 * Doorbells. A process polls the inrings of the peers that have sent to it lately: each round looks
 * at their next slot, so that their messages cost no more than the slot. All other senders set a
 * bit in the head of the reader's segment, their doorbell, after they have written; so idle peers
 * cost one load for all of them. A reader polls no inring while it sleeps; a sender that rings its
 * doorbell wakes it.
 *
 * Both ends have to agree without waiting: the writer stores its slot and then loads `watched`; the
 * reader that stops polling stores `watched` and then looks at the slot once more. If both loads
 * could pass the stores before them, the message would stay unseen. Stopping is rare, so the reader
 * pays for the order, with mdapl_os_barrier(); where the system has none the writer uses a fence.
 * `watched` itself may then be relaxed.
 *
 * The doorbell bits, `bells` and `asleep` are sequentially consistent, because a sleeping reader
 * and a writer agree in the same way: one stores `asleep` and loads `bells`, the other sets its bit
 * and loads `asleep`; and one takes `bells` before the words below it, the other sets a word before
 * it checks whether its bit in `bells` is set. The first doorbell also publishes the hello, which
 * is written before the bit is set and read after the bit has been taken.
 */
#include "peer.h"

#include "channel.h"
#include "log.h"
#include "shm.h"
#include "siphash.h"
#include "stats.h"

#include <errno.h>

/* -- the writer: a ring in another's segment --------------------------------------------------- */

static struct mdapl_shm_hello hello_for(const struct mdapl_speer *peer)
{
    const struct mdapl_job *job = mdapl_ctx_job(peer->s->ctx);
    struct mdapl_shm_hello h = { .job = job->id, .rank = (uint32_t)job->rank };

    mdapl_seg_mac(job, h.rank, (uint32_t)peer->base.rank, peer->token, h.mac);
    return h;
}

int mdapl_bell_come(struct mdapl_speer *peer)
{
    struct mdapl_shm *s = peer->s;
    struct mdapl_door *door = mdapl_seg_take_door(&peer->far, &peer->far_door);

    if (!door)
        return -ENOMEM;
    peer->fence = !s->barrier || !peer->far.head->barrier;
    door->hello = hello_for(peer);       /* the first doorbell publishes it */
    peer->tx.door = door;
    s->n_doors++;
    return 0;
}

void mdapl_bell_ring(struct mdapl_speer *peer)
{
    struct mdapl_seg_head *far = peer->far.head;
    uint32_t word = peer->far_door / 64;
    struct mdapl_stats *stats = peer->s->stats;

    stats->shm_bells++;
    atomic_fetch_or(&far->bell[word], (uint64_t)1 << peer->far_door % 64);
    if (!(atomic_load(&far->bells) >> word & 1))
        atomic_fetch_or(&far->bells, (uint64_t)1 << word);
    if (atomic_load(&far->asleep) && atomic_exchange(&far->asleep, 0)) {
        stats->shm_wakes++;
        mdapl_os_wake(&far->asleep);
    }
}

/* -- the reader: a first message --------------------------------------------------------------- */

static bool hello_right(const struct mdapl_shm *s, const struct mdapl_shm_hello *h)
{
    const struct mdapl_job *job = mdapl_ctx_job(s->ctx);
    uint8_t mac[16];

    if (h->job != job->id || h->rank >= (uint32_t)job->size || (int)h->rank == job->rank)
        return false;
    mdapl_seg_mac(job, h->rank, (uint32_t)job->rank, s->seg.head->token, mac);
    return mdapl_mac_equal(mac, h->mac);
}

/* The peer that sent this hello; NULL: its MAC is wrong, it has a ring already, it is lost, or we
 * do not reach it in shared memory. */
static struct mdapl_speer *visitor(struct mdapl_shm *s, const struct mdapl_shm_hello *h)
{
    struct mdapl_peer *base;

    if (!hello_right(s, h) || mdapl_peer_get(s->ctx, (int)h->rank, &base)
        || base->channel != &mdapl_shm_channel || mdapl_speer_of(base)->rx.door
        || mdapl_speer_of(base)->dead)
        return NULL;
    return mdapl_speer_of(base);
}

static struct mdapl_speer *open_door(struct mdapl_shm *s, uint32_t index)
{
    struct mdapl_door *door = mdapl_seg_door(&s->seg, index);
    struct mdapl_shm_hello hello;
    struct mdapl_speer *peer;

    if (!door)
        return NULL;
    hello = door->hello;         /* once: the peer may change it; the doorbell has published it */
    peer = visitor(s, &hello);
    if (!peer) {
        s->stats->cr_refused++;
        mdapl_log(mdapl_ctx_log(s->ctx), MDAPL_INFO,
                  "refused shared memory to one that calls itself rank %u", hello.rank);
        atomic_store(&door->refused, 1);
        return NULL;
    }
    mdapl_log(mdapl_ctx_log(s->ctx), MDAPL_CONN, "rank %d sends through shared memory, door %u",
              peer->base.rank, index);
    peer->rx.door = door;
    peer->door = index;
    s->owner[index] = peer;
    s->n_doors++;
    return peer;
}

/* -- polled rings ----------------------------------------------------------------------------- */

static void set_watched(struct mdapl_speer *peer, uint32_t yes)
{
    atomic_store_explicit(&peer->rx.door->watched, yes, memory_order_relaxed);
}

static void watch(struct mdapl_speer *peer)
{
    struct mdapl_shm *s = peer->s;

    peer->active = true;
    if (peer->hot || peer->dead || s->n_hot == MDAPL_HOT)
        return;
    peer->hot = true;
    s->hot[s->n_hot++] = peer;
    set_watched(peer, 1);
}

static void unwatch(struct mdapl_shm *s, int i)
{
    s->hot[i]->hot = false;
    s->hot[i] = s->hot[--s->n_hot];
}

/* It interrupts each core that runs a process with such barriers, so it is counted. */
static void barrier(struct mdapl_shm *s)
{
    s->stats->shm_barriers++;
    mdapl_os_barrier();
}

/* Is there a message in its ring? */
static bool has_news(const struct mdapl_speer *peer)
{
    struct mdapl_spsc_msg m;

    return mdapl_spsc_peek(&peer->rx, &m) != MDAPL_SPSC_NONE;
}

void mdapl_bell_age(struct mdapl_shm *s)
{
    bool silent = false;

    for (int i = 0; i < s->n_hot; i++)
        if (!s->hot[i]->active) {
            set_watched(s->hot[i], 0);
            silent = true;
        }
    if (silent)
        barrier(s);
    for (int i = s->n_hot; i-- > 0;) {
        struct mdapl_speer *peer = s->hot[i];

        if (peer->active || has_news(peer))
            set_watched(peer, 1);
        else
            unwatch(s, i);
        peer->active = false;
    }
}

void mdapl_bell_forget(struct mdapl_speer *peer)
{
    struct mdapl_shm *s = peer->s;

    for (int i = s->n_hot; i-- > 0;)
        if (s->hot[i] == peer)
            unwatch(s, i);
}

/* -- doorbells that have been rung ------------------------------------------------------------- */

/* Rings its doorbell here, for a ring with more messages than one round takes. */
static void again(struct mdapl_shm *s, uint32_t door)
{
    atomic_fetch_or(&s->seg.head->bell[door / 64], (uint64_t)1 << door % 64);
    atomic_fetch_or(&s->seg.head->bells, (uint64_t)1 << door / 64);
}

static int answer(struct mdapl_shm *s, uint32_t door)
{
    struct mdapl_speer *peer = s->owner[door];
    int n;

    if (!peer)
        peer = open_door(s, door);
    if (!peer || peer->dead)
        return 0;
    /* A rank that sleeps between two messages stops polling before each sleep, which costs a
     * barrier: so a ring is polled when its doorbell rings a second time without a sleep. */
    if (!s->slept)
        watch(peer);
    n = mdapl_shm_rx_poll(peer);
    if (peer->hot || peer->dead)
        return n;
    /* tell() in shm.c does this later for the polled rings, and for no others. */
    mdapl_spsc_tell(&peer->rx);
    if (has_news(peer))
        again(s, door);
    return n;
}

int mdapl_bell_answer(struct mdapl_shm *s)
{
    uint64_t words = atomic_exchange(&s->seg.head->bells, 0);
    int n = 0;

    for (; words; words &= words - 1) {
        uint32_t w = (uint32_t)__builtin_ctzll(words);
        uint64_t doors = atomic_exchange(&s->seg.head->bell[w], 0);

        for (; doors; doors &= doors - 1)
            n += answer(s, 64 * w + (uint32_t)__builtin_ctzll(doors));
    }
    s->slept = false;
    return n;
}

/* -- sleeping --------------------------------------------------------------------------------- */

/* Stops polling all rings, so that each message rings a doorbell. False: there is a message. */
static bool unwatch_all(struct mdapl_shm *s)
{
    bool quiet = true;

    for (int i = 0; i < s->n_hot; i++) {
        mdapl_spsc_tell(&s->hot[i]->rx);
        set_watched(s->hot[i], 0);
    }
    if (s->n_hot > 0)
        barrier(s);
    for (int i = s->n_hot; i-- > 0;) {
        if (has_news(s->hot[i])) {
            set_watched(s->hot[i], 1);
            quiet = false;
        } else {
            unwatch(s, i);
        }
    }
    return quiet;
}

void mdapl_bell_sleep(struct mdapl_shm *s, uint64_t ns)
{
    struct mdapl_seg_head *head = s->seg.head;

    if (!unwatch_all(s))
        return;
    atomic_store(&head->asleep, 1);
    if (atomic_load(&head->bells) == 0) {
        s->stats->shm_sleeps++;
        mdapl_os_sleep(&head->asleep, 1, ns);
        s->slept = true;
    }
    atomic_store(&head->asleep, 0);
}
