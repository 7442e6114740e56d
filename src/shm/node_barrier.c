/* SPDX-License-Identifier: MIT */
/*
 * A barrier of all ranks of a job that runs on one node, by counters in their segments. In an
 * algorithm of messages a rank waits for another one at each step, and where ranks share a core
 * each such wait is a switch of processes. Here a rank counts itself and waits once.
 *
 * It is a tree of two levels: ranks count themselves at leaves, some at each, in the segment of the
 * leaf's first rank. The last one counts the leaf at the root, in the segment of the node's first
 * rank, and the last one of all releases the leaves. So no counter is taken by more than a few
 * processors at a time. Values that the ranks bring take the same way: the last one at a leaf makes
 * one of those of the leaf, and the last one of all makes one of these, which the leaves get.
 *
 * The counts go up with each barrier and are never reset, so a rank knows by its own how many there
 * have to be. And no value needs a second place: a rank that enters a barrier has taken what came
 * out of the one before, and the one that writes a result knows that all have entered.
 *
 * All accesses to counters are sequentially consistent: a rank that is about to sleep adds itself
 * to `sleepers` and then loads `released`, the last rank stores `released` and then loads
 * `sleepers`, so one of them sees what the other has stored.
 */
#include "peer.h"

#include "channel.h"
#include "min.h"
#include "shm.h"
#include "stats.h"

#include <errno.h>
#include <string.h>

enum {
    LEAF = 8,                    /* ranks that count themselves at a leaf */
    MISMATCH = -1,               /* the length of a value that was made of such of two lengths */
};

static struct mdapl_shm_seg_head *head_at(const struct mdapl_shm_chan *s, uint32_t index)
{
    struct mdapl_shm_peer *peer;

    if (index == (uint32_t)s->near.me)
        return s->seg.head;
    peer = mdapl_shm_near_peer(s, (int)index);
    return peer ? peer->far.head : NULL;
}

void mdapl_shm_node_barrier_open(struct mdapl_shm_chan *s)
{
    const struct mdapl_group *job = mdapl_ctx_job(s->ctx);
    bool all = s->near.n == job->size && mdapl_ctx_barrier(s->ctx);

    for (uint32_t i = 0; all && i < (uint32_t)s->near.n; i++)
        all = head_at(s, i) != NULL;
    atomic_store(&s->seg.head->takes_part, all);
}

/* Finds the counters, if all ranks take part: then all of them find that. */
static bool find(struct mdapl_shm_chan *s)
{
    struct mdapl_shm_node_barrier *b = &s->node_barrier;
    uint32_t n = (uint32_t)s->near.n, me = (uint32_t)s->near.me, leaf = me - me % LEAF;

    if (b->none || b->root)
        return b->root;
    b->none = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct mdapl_shm_seg_head *head = head_at(s, i);

        if (!head || !atomic_load(&head->takes_part))
            return false;
    }
    b->none = false;
    b->root = head_at(s, 0);
    b->leaf = head_at(s, leaf);
    b->ranks = mdapl_min(n - leaf, LEAF);
    b->leaves = (n + LEAF - 1) / LEAF;
    return true;
}

static void wake_leaf(struct mdapl_shm_chan *s, uint32_t first)
{
    uint32_t end = mdapl_min((uint32_t)s->near.n, first + LEAF);

    for (uint32_t i = first; i < end; i++)
        if (i != (uint32_t)s->near.me)
            mdapl_shm_sleep_end(mdapl_shm_near_peer(s, (int)i));
}

static void bring(struct mdapl_shm_chan *s, const struct mdapl_reduce *r)
{
    s->node_barrier.len = s->seg.head->brought_len = (uint32_t)r->len;
    memcpy(s->seg.head->brought, r->own, r->len);
}

/* Makes one value, that of the rank `last`, of those of the ranks of a leaf (step: 1), or of those
 * of the leaves (LEAF), each of which is that of its last rank. */
static void combine(const struct mdapl_shm_chan *s, const struct mdapl_reduce *r, int first,
                    int last, int step)
{
    struct mdapl_shm_seg_head *to = head_at(s, (uint32_t)last);

    for (int i = last - last % step - 1; i >= first; i -= step) {
        const struct mdapl_shm_seg_head *from = head_at(s, (uint32_t)i);

        if (from->brought_len == to->brought_len)
            r->combine(r->arg, from->brought, to->brought);
        else
            to->brought_len = (uint32_t)MISMATCH;
    }
}

/* r: what came out is the value of the last rank. */
static void release(struct mdapl_shm_chan *s, const struct mdapl_reduce *r)
{
    const struct mdapl_shm_seg_head *from = head_at(s, (uint32_t)s->near.n - 1);

    for (uint32_t first = 0; first < (uint32_t)s->near.n; first += LEAF) {
        struct mdapl_shm_seg_head *head = head_at(s, first);

        if (r) {
            head->result_len = from->brought_len;
            memcpy(head->result, from->brought, r->len);
        }
        atomic_store(&head->released, s->node_barrier.entered);
        if (atomic_load(&head->sleepers) > 0)
            wake_leaf(s, first);
    }
}

/* Counts; is it the last one of so many? */
static bool is_last(_Atomic uint32_t *count, uint32_t barriers, uint32_t of)
{
    return atomic_fetch_add(count, 1) + 1 == barriers * of;
}

int mdapl_shm_node_barrier_enter(void *state, const struct mdapl_reduce *r)
{
    struct mdapl_shm_chan *s = state;
    struct mdapl_shm_node_barrier *b = &s->node_barrier;
    int leaf = s->near.me - s->near.me % LEAF;

    if (!find(s))
        return -ENOTSUP;
    s->stats->node_barriers++;
    s->stats->node_reduces += r != NULL;
    b->entered++;
    if (r)
        bring(s, r);
    if (!is_last(&b->leaf->arrived, b->entered, b->ranks))
        return 0;
    if (r)
        combine(s, r, leaf, leaf + (int)b->ranks - 1, 1);
    if (b->leaves > 1 && !is_last(&b->root->leaves, b->entered, b->leaves))
        return 0;
    if (r)
        combine(s, r, 0, s->near.n - 1, LEAF);
    release(s, r);
    return MDAPL_DONE;
}

bool mdapl_shm_node_barrier_passed(void *state)
{
    const struct mdapl_shm_node_barrier *b = &((struct mdapl_shm_chan *)state)->node_barrier;

    return !b->leaf || atomic_load(&b->leaf->released) == b->entered;
}

const void *mdapl_shm_node_barrier_result(void *state)
{
    const struct mdapl_shm_node_barrier *b = &((struct mdapl_shm_chan *)state)->node_barrier;

    return b->leaf && b->leaf->result_len == b->len ? b->leaf->result : NULL;
}

bool mdapl_shm_node_barrier_sleep(struct mdapl_shm_chan *s)
{
    if (mdapl_shm_node_barrier_passed(s))
        return false;
    atomic_fetch_add(&s->node_barrier.leaf->sleepers, 1);
    return true;
}

void mdapl_shm_node_barrier_wakes(struct mdapl_shm_chan *s)
{
    atomic_fetch_sub(&s->node_barrier.leaf->sleepers, 1);
}
