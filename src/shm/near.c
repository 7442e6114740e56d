/* SPDX-License-Identifier: MIT */
/*
 * Which ranks of this node are reached through shared memory.
 *
 * Process A may be able to map B's segment while B cannot map A's: one of the two may be
 * undumpable, out of address space, or confined. Both ends have to use the same channel, so each
 * has to know both verdicts before the first message:
 *
 *      1. probe: each rank maps the segments of all ranks that the launcher places on its node, and
 *         writes into its own segment which of them it has mapped.
 *      2. the launcher's barrier: all verdicts are written.
 *      3. reach: a rank is reached if this rank has mapped its segment and finds there the verdict
 *         that it has mapped this rank's. The other rank uses the same two verdicts, so the result
 *         is the same; a rank whose segment is not mapped here finds that verdict in this rank's
 *         segment, or has not mapped it either.
 *
 * A segment has room for the ranks of its node, not for those of the job, and a rank's place in the
 * list of those says which inring is its own. So a segment whose owner has another list, from the
 * launcher, is not used.
 */
#include "peer.h"

#include "channel.h"
#include "log.h"
#include "shm.h"
#include "siphash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t digest_of(const struct mdapl_shm_near *near)
{
    static const uint8_t key[16];
    uint64_t digest[2];

    mdapl_siphash(key, near->rank, (size_t)near->n * sizeof(*near->rank), (uint8_t *)digest);
    return digest[0];
}

int mdapl_shm_near_init(struct mdapl_shm_chan *s)
{
    const struct mdapl_group *job = mdapl_ctx_job(s->ctx);
    struct mdapl_shm_near *near = &s->near;
    int n = 0;

    for (int rank = 0; rank < job->size; rank++)
        n += rank == job->rank || mdapl_group_near(job, rank);
    near->rank = calloc((size_t)n, sizeof(*near->rank));
    near->probed = calloc((size_t)n, sizeof(struct mdapl_shm_peer *));
    if (!near->rank || !near->probed)
        return -ENOMEM;
    for (int rank = 0; rank < job->size && near->n < MDAPL_SHM_INRINGS; rank++) {
        if (rank == job->rank)
            near->me = near->n;
        if (rank == job->rank || mdapl_group_near(job, rank))
            near->rank[near->n++] = rank;
    }
    near->digest = digest_of(near);
    return 0;
}

void mdapl_shm_near_free(struct mdapl_shm_chan *s)
{
    for (int i = 0; i < s->near.n; i++)
        if (s->near.probed[i])
            mdapl_shm_peer_free(s->near.probed[i]);
    free(s->near.probed);
    free(s->near.rank);
}

static int probe(struct mdapl_shm_chan *s, int i)
{
    const struct mdapl_group *job = mdapl_ctx_job(s->ctx);
    char card[MDAPL_CARD_MAX];
    int rank = s->near.rank[i];
    int rc = mdapl_group_card(job, rank, card, sizeof(card));
    struct mdapl_shm_peer *peer;

    if (!rc)
        rc = mdapl_shm_peer_make(s, job, rank, card, &peer);
    if (!rc && peer->far.head->ranks != s->near.digest) {
        mdapl_shm_peer_free(peer);
        rc = -EHOSTUNREACH;
    }
    s->near.probed[i] = rc ? NULL : peer;
    return rc;
}

static void link_in_ring(struct mdapl_shm_near *near)
{
    struct mdapl_shm_peer *next = NULL;

    for (int i = 2 * near->n - 1; i >= 0; i--) {
        struct mdapl_shm_peer *peer = near->probed[i % near->n];

        if (peer) {
            peer->next_near = next;
            next = peer;
        }
    }
}

void mdapl_shm_near_probe(struct mdapl_shm_chan *s)
{
    for (int i = 0; i < s->near.n; i++)
        if (i != s->near.me) {
            int rc = probe(s, i);

            atomic_store(&s->seg.head->verdict[i], rc ? rc : MDAPL_MAPPED);
        }
    link_in_ring(&s->near);
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* The index of a rank; -1: it is on another node. */
static int index_of(const struct mdapl_shm_near *near, int rank)
{
    const int *at = bsearch(&rank, near->rank, (size_t)near->n, sizeof(rank), compare);

    return at ? (int)(at - near->rank) : -1;
}

int mdapl_shm_near_reach(struct mdapl_shm_chan *s, int rank, struct mdapl_shm_peer **peer_p)
{
    int i = index_of(&s->near, rank);
    struct mdapl_shm_peer *peer = i < 0 ? NULL : s->near.probed[i];
    char why[256];

    if (peer && atomic_load(&peer->far.head->verdict[s->near.me]) == MDAPL_MAPPED) {
        s->near.probed[i] = NULL;
        *peer_p = peer;
        return 0;
    }
    if (i >= 0) {
        mdapl_shm_near_cause(s, rank, why, sizeof(why));
        mdapl_log(mdapl_ctx_log(s->ctx), MDAPL_INFO, "rank %d is not reached through shared "
                  "memory: %s", rank, why);
    }
    return -EHOSTUNREACH;
}

struct mdapl_shm_peer *mdapl_shm_near_peer(const struct mdapl_shm_chan *s, int index)
{
    struct mdapl_peer *base;

    return mdapl_peer_get(s->ctx, s->near.rank[index], &base) == 0
                   && base->channel == &mdapl_shm_channel
               ? mdapl_shm_peer_of(base) : NULL;
}

static const char *text_of(int verdict)
{
    return verdict == -EHOSTUNREACH ? "it is in another container, namespace or user's session, "
                                      "or has other ranks on this node, by the launcher"
                                    : strerror(-verdict);
}

void mdapl_shm_near_cause(const struct mdapl_shm_chan *s, int rank, char *buf, size_t len)
{
    int i = index_of(&s->near, rank), mine, its;

    if (i < 0) {
        snprintf(buf, len, "it is on another node");
        return;
    }
    mine = atomic_load(&s->seg.head->verdict[i]);
    if (mine != MDAPL_MAPPED) {
        snprintf(buf, len, "its segment cannot be opened from here: %s%s", text_of(mine),
                 mine == -EACCES ? ". Is its program readable, and the process dumpable?" : "");
        return;
    }
    its = s->near.probed[i] ? atomic_load(&s->near.probed[i]->far.head->verdict[s->near.me])
                            : MDAPL_MAPPED;
    snprintf(buf, len, "it cannot open our segment: %s", text_of(its));
}
