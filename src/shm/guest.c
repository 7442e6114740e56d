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
 *
 * An entry that is not free has the pid of its guest beside the state: if that process has ended,
 * wherever it was, the owner frees the entry too. An end that leaves refuses the other end's inring
 * in its own segment, which the other one notices as it notices the refusal of a hello.
 *
 * Where this is the only channel there is nothing to decide: a rank is reached without its hello,
 * as it may learn of this group later (MPI_Intercomm_create passes groups on). The first message of
 * such a guest waits in its ring until the group is added; that of one that has left and come back,
 * until the peer that it was before is removed.
 *
 * A visitor of a port is a guest that the owner does not know before: its hello, whose MAC is made
 * with the port's key, has the card of its segment. The owner admits it at its first message: it
 * adds the visitor's group, maps the segment, and becomes a guest there.
 */
#include "peer.h"

#include "channel.h"
#include "log.h"
#include "shm.h"
#include "siphash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FREE, CLAIMED, THERE, GONE, STATES };

/* What an entry holds: the state, and the process that has claimed it. */
static uint32_t entry_word(uint32_t state, pid_t pid)
{
    return (uint32_t)pid * STATES + state;
}

static bool is_guest(const struct mdapl_shm_peer *peer)
{
    return peer->base.group > 0;
}

static bool has_left(uint32_t word)
{
    return word % STATES == GONE
           || (word != FREE && mdapl_shm_os_process_ended(-1, (pid_t)(word / STATES)));
}

bool mdapl_shm_guest_has_left(const struct mdapl_shm_chan *s, uint32_t index)
{
    return index >= s->seg.first_guest
           && atomic_load(&s->seg.head->guest[index - s->seg.first_guest].state) % STATES != THERE;
}

void mdapl_shm_guest_sweep(struct mdapl_shm_chan *s)
{
    for (uint32_t i = 0; i < MDAPL_SHM_GUESTS; i++) {
        struct mdapl_shm_guest *guest = &s->seg.head->guest[i];
        uint32_t index = s->seg.first_guest + i;
        struct mdapl_shm_inring_at in;

        if (s->owner[index] || !has_left(atomic_load(&guest->state)))
            continue;
        in = mdapl_shm_seg_inring(&s->seg, index);
        memset(in.front, 0, sizeof(*in.front));
        memset(in.rest, 0, sizeof(*in.rest));
        s->early &= ~((uint64_t)1 << i);
        atomic_store(&guest->state, FREE);
    }
}

/* -- hellos ----------------------------------------------------------------------------------- */

/* The MAC of a hello for the process `to`, whose segment has this token, under the key of the group
 * that both are in, or the port's. */
static void mac_of(const uint8_t key[16], const struct mdapl_shm_hello *h, struct mdapl_name to,
                   uint64_t token, uint8_t mac[16])
{
    struct {
        char what[8];
        uint32_t from_group, from_rank, to_group, to_rank;
        uint64_t token;
        char card[MDAPL_SHM_CARD_BYTES];
    } said = { "shmdoor", h->group, h->rank, to.group, (uint32_t)to.rank, token, "" };
    size_t len = strnlen(h->card, sizeof(h->card));    /* most have none */

    memcpy(said.card, h->card, len);
    mdapl_siphash(key, &said, sizeof(said) - sizeof(said.card) + len, mac);
}

/* That of this process for a peer. */
static struct mdapl_shm_hello hello_for(const struct mdapl_shm_peer *peer)
{
    const struct mdapl_group *group = mdapl_peer_group(&peer->base);
    struct mdapl_name self = mdapl_group_self(group), to = { group->id, peer->base.rank };
    struct mdapl_shm_hello h = { .group = self.group, .rank = (uint32_t)self.rank };

    if (mdapl_group_is_port(group))
        memcpy(h.card, peer->s->card, sizeof(h.card));
    mac_of(group->key, &h, to, peer->token, h.mac);
    return h;
}

/* Has it the right MAC for a process of this group? */
static bool is_right(const struct mdapl_shm_chan *s, const struct mdapl_group *group,
                     const struct mdapl_shm_hello *h)
{
    struct mdapl_name self = mdapl_group_self(group);
    uint8_t mac[16];

    if (h->rank >= (uint32_t)group->size || (h->group == self.group && (int)h->rank == self.rank))
        return false;
    mac_of(group->key, h, self, s->seg.head->token, mac);
    return mdapl_mac_equal(mac, h->mac);
}

/* -- entries ---------------------------------------------------------------------------------- */

/* The inring of an entry of this segment. */
static uint32_t index_of(const struct mdapl_shm_chan *s, const struct mdapl_shm_guest *entry)
{
    return s->seg.first_guest + (uint32_t)(entry - s->seg.head->guest);
}

/* The entry of this segment that has the hello of a rank of another group, or NULL. */
static struct mdapl_shm_guest *entry_of(struct mdapl_shm_chan *s, const struct mdapl_group *group,
                                        int rank)
{
    for (uint32_t i = 0; i < MDAPL_SHM_GUESTS; i++) {
        struct mdapl_shm_guest *guest = &s->seg.head->guest[i];
        struct mdapl_shm_hello hello;

        if (atomic_load(&guest->state) % STATES != THERE)
            continue;
        hello = guest->hello;    /* once: the guest may change it */
        if ((int)hello.rank == rank && hello.group == group->id && is_right(s, group, &hello))
            return guest;
    }
    return NULL;
}

/* Claims an entry of the peer's segment. 0 or -ENOMEM. */
static int claim(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_seg *far = &peer->far;
    pid_t pid = getpid();

    for (uint32_t i = 0; i < MDAPL_SHM_GUESTS; i++) {
        struct mdapl_shm_guest *guest = &far->head->guest[i];
        uint32_t is = FREE;

        if (!atomic_compare_exchange_strong(&guest->state, &is, entry_word(CLAIMED, pid)))
            continue;
        peer->far_inring = far->first_guest + i;
        if (mdapl_shm_seg_reserve_inring(far, peer->far_inring)) {
            atomic_store(&guest->state, FREE);
            return -ENOMEM;
        }
        guest->hello = hello_for(peer);
        atomic_store(&guest->state, entry_word(THERE, pid));
        return 0;
    }
    return -ENOMEM;
}

/* Maps the segment of the process with this card and becomes a guest there. */
static int enter(struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank,
                 const char *card)
{
    struct mdapl_shm_peer **joined, *peer;
    int rc;

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

static int join_one(struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank)
{
    char card[MDAPL_CARD_MAX];
    int rc = mdapl_group_card(group, rank, card, sizeof(card));

    return rc ? rc : enter(s, group, rank, card);
}

/* Sets the doorbells of the guests that have been early. */
static void look_again(struct mdapl_shm_chan *s)
{
    for (; s->early; s->early &= s->early - 1)
        mdapl_shm_doorbell_again(s, s->seg.first_guest + (uint32_t)__builtin_ctzll(s->early));
}

void mdapl_shm_guest_join(struct mdapl_shm_chan *s, const struct mdapl_group *group)
{
    mdapl_shm_guest_sweep(s);
    look_again(s);
    for (int rank = 0; rank < group->size; rank++)
        if (mdapl_ctx_alone(s->ctx) || mdapl_group_near(group, rank)) {
            int rc = join_one(s, group, rank);

            if (rc)
                mdapl_log(mdapl_ctx_log(s->ctx), MDAPL_INFO, "rank %d of job %08x is not reached "
                          "through shared memory: %s", rank, group->id, strerror(-rc));
        }
}

static int joined_at(const struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank)
{
    for (int i = 0; i < s->n_joined; i++)
        if (s->joined[i]->base.group == group->index && s->joined[i]->base.rank == rank)
            return i;
    return -1;
}

int mdapl_shm_guest_reach(struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank,
                          const char *card, struct mdapl_shm_peer **peer_p)
{
    bool no_choice = mdapl_group_is_port(group) || mdapl_ctx_alone(s->ctx);
    int i = joined_at(s, group, rank);

    /* a visit, or a rank whose peer had been removed */
    if (i < 0 && no_choice && enter(s, group, rank, card) == 0)
        i = s->n_joined - 1;
    if (i < 0 || !(no_choice || entry_of(s, group, rank)))
        return -EHOSTUNREACH;
    *peer_p = s->joined[i];
    s->joined[i] = s->joined[--s->n_joined];
    return 0;
}

/* -- who writes ------------------------------------------------------------------------------- */

/* May a guest with this hello be known later? Its group may be added; or the peer that it was
 * before is still here, and will be removed. */
static bool is_awaited(struct mdapl_shm_chan *s, const struct mdapl_shm_hello *h)
{
    const struct mdapl_group *group = mdapl_group_find(s->ctx, h->group);
    struct mdapl_peer *peer = group && h->rank < (uint32_t)group->size ? group->peers[h->rank]
                                                                       : NULL;

    if (!group || !peer || peer->channel != &mdapl_shm_channel)
        return !group;
    return mdapl_shm_peer_of(peer)->rx.in.front
           && mdapl_shm_guest_has_left(s, mdapl_shm_peer_of(peer)->inring);
}

static bool is_early(struct mdapl_shm_chan *s, uint32_t index, const struct mdapl_shm_hello *h)
{
    if (*h->card || !mdapl_ctx_alone(s->ctx) || !is_awaited(s, h))
        return false;
    s->early |= (uint64_t)1 << (index - s->seg.first_guest);
    return true;
}

/* Has the process with this hello come to an open port? *visitor is its group then. */
static bool is_visit(struct mdapl_shm_chan *s, const struct mdapl_shm_hello *h,
                     struct mdapl_group *visitor)
{
    const struct mdapl_port *port = NULL;

    while (*h->card && (port = mdapl_port_next(s->ctx, port))) {
        *visitor = mdapl_port_visitor(port, h->group, &mdapl_shm_channel);
        if (is_right(s, visitor, h))
            return true;
    }
    return false;
}

/* Adds the group of a process with this hello, which names no group of the context, as a visitor of
 * an open port. NULL: it is none, its segment cannot be mapped, or memory is out. */
static struct mdapl_group *admit(struct mdapl_shm_chan *s, const struct mdapl_shm_hello *h)
{
    char card[MDAPL_SHM_CARD_BYTES + 1] = "";
    struct mdapl_group visitor, *group;
    struct mdapl_peer *peer;

    memcpy(card, h->card, sizeof(h->card));
    if (!is_visit(s, h, &visitor) || mdapl_group_add(s->ctx, &visitor, &group))
        return NULL;
    if (enter(s, group, 0, card) == 0 && mdapl_group_peer(group, 0, &peer) == 0)
        return group;
    mdapl_group_remove(group);
    return NULL;
}

int mdapl_shm_guest_who(struct mdapl_shm_chan *s, uint32_t index, struct mdapl_group **group_p,
                        int *rank_p)
{
    /* A copy, once: the guest may change it. */
    struct mdapl_shm_hello hello = s->seg.head->guest[index - s->seg.first_guest].hello;
    struct mdapl_group *group;

    *rank_p = (int)hello.rank;
    if (is_early(s, index, &hello))
        return -EAGAIN;
    group = mdapl_group_find(s->ctx, hello.group);
    if (!group)
        group = admit(s, &hello);
    else if (!is_right(s, group, &hello))
        group = NULL;
    *group_p = group;
    return group ? 0 : -EACCES;
}

/* -- leaving ---------------------------------------------------------------------------------- */

/* Guests that are not reached notice it, as this process may go on without its segment. */
static void refuse_all(struct mdapl_shm_chan *s)
{
    for (uint32_t i = 0; i < MDAPL_SHM_GUESTS; i++) {
        struct mdapl_shm_inring_at in = mdapl_shm_seg_inring(&s->seg, s->seg.first_guest + i);

        if (in.front)
            atomic_store(&in.front->refused, 1);
    }
}

void mdapl_shm_guest_part(struct mdapl_shm_chan *s, int group)
{
    if (group < 0)
        refuse_all(s);
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
    s->n_inrings -= (peer->tx.in.front != NULL) + (peer->rx.in.front != NULL);
    /* What it has not taken of our cells it does not read any more. */
    peer->tx.acked = peer->tx.next;
    mdapl_shm_cells_reclaim(peer);
    if (peer->rx.in.front)
        s->owner[peer->inring] = NULL;
    if (peer->far_inring)
        atomic_store(&peer->far.head->guest[peer->far_inring - peer->far.first_guest].state, GONE);
    entry = entry_of(s, mdapl_peer_group(&peer->base), peer->base.rank);
    if (entry)
        atomic_store(&mdapl_shm_seg_inring(&s->seg, index_of(s, entry)).front->refused, 1);
    if (entry && mdapl_shm_os_process_ended(peer->process, peer->pid))
        atomic_store(&entry->state, GONE);
    mdapl_shm_guest_sweep(s);
    look_again(s);
}
