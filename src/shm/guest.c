/* SPDX-License-Identifier: MIT */
/*
 * Processes of other jobs on this node. A segment has some inrings more than its own job needs, for
 * guests: a guest maps the whole segment, claims an entry of the table in its head and writes its
 * hello there; the inring of that number is its own. Both ends of a pair do so when they add the
 * other's group (join). A pair uses shared memory if each finds the other's hello in its own
 * segment, so both ends decide by the same two facts (as near.c does in a job).
 *
 *      FREE -> CLAIMED -> THERE    the guest: its hello stands in the entry
 *      THERE -> GONE               the guest: it writes no more
 *      GONE -> FREE                the owner, when it reads the inring no more
 */
#include "peer.h"

#include "channel.h"
#include "log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FREE, CLAIMED, THERE, GONE };

static bool is_guest(const struct mdapl_shm_peer *peer)
{
    return peer->base.group > 0;
}

/* Frees the entries of guests that have left. */
static void sweep(struct mdapl_shm_chan *s)
{
    for (uint32_t i = 0; i < MDAPL_SHM_GUESTS; i++) {
        struct mdapl_shm_guest *guest = &s->seg.head->guest[i];
        uint32_t index = s->seg.first_guest + i;

        if (atomic_load(&guest->state) != GONE || s->owner[index])
            continue;
        memset(mdapl_shm_seg_inring(&s->seg, index), 0, sizeof(struct mdapl_shm_inring));
        atomic_store(&guest->state, FREE);
    }
}

/* The entry of this segment that has the hello of a rank of another group, or NULL. */
static struct mdapl_shm_guest *entry_of(struct mdapl_shm_chan *s, const struct mdapl_group *group,
                                        int rank)
{
    for (uint32_t i = 0; i < MDAPL_SHM_GUESTS; i++) {
        struct mdapl_shm_guest *guest = &s->seg.head->guest[i];
        struct mdapl_shm_hello hello;

        if (atomic_load(&guest->state) != THERE)
            continue;
        hello = guest->hello;    /* once: the guest may change it */
        if ((int)hello.rank == rank && mdapl_shm_hello_group(s, &hello) == group)
            return guest;
    }
    return NULL;
}

/* Claims an entry of the peer's segment. 0 or -ENOMEM. */
static int claim(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_seg *far = &peer->far;

    for (uint32_t i = 0; i < MDAPL_SHM_GUESTS; i++) {
        struct mdapl_shm_guest *guest = &far->head->guest[i];
        uint32_t is = FREE;

        if (!atomic_compare_exchange_strong(&guest->state, &is, CLAIMED))
            continue;
        peer->far_inring = far->first_guest + i;
        if (mdapl_shm_seg_reserve_inring(far, peer->far_inring)) {
            atomic_store(&guest->state, FREE);
            return -ENOMEM;
        }
        guest->hello = mdapl_shm_hello_for(peer);
        atomic_store(&guest->state, THERE);
        return 0;
    }
    return -ENOMEM;
}

static int join_one(struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank)
{
    struct mdapl_shm_peer **joined, *peer;
    char card[MDAPL_CARD_MAX];
    int rc = mdapl_group_card(group, rank, card, sizeof(card));

    if (rc)
        return rc;
    joined = realloc(s->joined, ((size_t)s->n_joined + 1) * sizeof(struct mdapl_shm_peer *));
    if (!joined)
        return -ENOMEM;
    s->joined = joined;
    rc = mdapl_shm_peer_make(s, group, rank, card, &peer);
    if (rc)
        return rc;
    rc = claim(peer);
    if (rc) {
        peer->far_inring = 0;
        mdapl_shm_peer_free(peer);
        return rc;
    }
    s->joined[s->n_joined++] = peer;
    return 0;
}

void mdapl_shm_guest_join(struct mdapl_shm_chan *s, const struct mdapl_group *group)
{
    sweep(s);
    for (int rank = 0; rank < group->size; rank++)
        if (mdapl_group_near(group, rank)) {
            int rc = join_one(s, group, rank);

            if (rc)
                mdapl_log(mdapl_ctx_log(s->ctx), MDAPL_INFO, "rank %d of job %08x is not reached "
                          "through shared memory: %s", rank, group->id, strerror(-rc));
        }
}

int mdapl_shm_guest_reach(struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank,
                          struct mdapl_shm_peer **peer_p)
{
    int i = 0;

    while (i < s->n_joined && (s->joined[i]->base.group != group->index
                               || s->joined[i]->base.rank != rank))
        i++;
    if (i == s->n_joined || !entry_of(s, group, rank))
        return -EHOSTUNREACH;
    *peer_p = s->joined[i];
    s->joined[i] = s->joined[--s->n_joined];
    return 0;
}

void mdapl_shm_guest_part(struct mdapl_shm_chan *s, int group)
{
    for (int i = s->n_joined; i-- > 0;)
        if (group < 0 || s->joined[i]->base.group == group) {
            mdapl_shm_peer_free(s->joined[i]);
            s->joined[i] = s->joined[--s->n_joined];
        }
}

void mdapl_shm_guest_leave(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_chan *s = peer->s;
    struct mdapl_shm_guest *entry;

    if (!is_guest(peer))
        return;
    s->n_inrings -= (peer->tx.inring != NULL) + (peer->rx.inring != NULL);
    /* What it has not taken of our cells it does not read any more. */
    peer->tx.acked = peer->tx.next;
    mdapl_shm_cells_reclaim(peer);
    if (peer->rx.inring)
        s->owner[peer->inring] = NULL;
    if (peer->far_inring)
        atomic_store(&peer->far.head->guest[peer->far_inring - peer->far.first_guest].state, GONE);
    entry = mdapl_shm_os_process_ended(peer->process, peer->pid)
                ? entry_of(s, mdapl_peer_group(&peer->base), peer->base.rank)
                : NULL;
    if (entry)
        atomic_store(&entry->state, GONE);
    sweep(s);
}
