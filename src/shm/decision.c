/* SPDX-License-Identifier: MIT */
/* How long bodies are copied on this node, and which laps they go in a ring: what one pair of ranks
 * has decided others begin with. */
#include "peer.h"

#include "channel.h"
#include "judge.h"
#include "log.h"
#include "shm.h"

#include <stdio.h>

/* Where they are: in the segment of the node's first rank. NULL: it is not reached. */
static struct mdapl_shm_seg_head *node_head(struct mdapl_shm_chan *s)
{
    struct mdapl_peer *first = mdapl_ctx_job(s->ctx)->peers[s->near.rank[0]];

    if (s->near.me == 0)
        return s->seg.head;
    return first && first->channel == &mdapl_shm_channel ? mdapl_shm_peer_of(first)->far.head
                                                         : NULL;
}

enum mdapl_shm_way mdapl_shm_node_way(struct mdapl_shm_chan *s, enum mdapl_shm_directions n,
                                      unsigned c)
{
    struct mdapl_shm_seg_head *head = node_head(s);
    uint32_t way = head ? atomic_load_explicit(&head->way[n][c], memory_order_relaxed) : 0;

    return way >= 1 && way <= MDAPL_SHM_WAYS ? (enum mdapl_shm_way)(way - 1) : MDAPL_SHM_WAYS;
}

static const char *const names[MDAPL_SHM_WAYS] = {
    [MDAPL_SHM_TWICE] = "two copies",
    [MDAPL_SHM_ONCE] = "one copy by the kernel",
    [MDAPL_SHM_BOTH] = "one copy by both ends",
};

static void log_decision(struct mdapl_shm_peer *peer, enum mdapl_shm_directions n, unsigned c,
                         const struct mdapl_shm_decision *d)
{
    size_t longest = mdapl_shm_judge_longest(c < MDAPL_SHM_CLASSES - 1 ? c : c - 1);
    char text[256];
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < d->n && used < sizeof(text); i++)
        if (d->cost[i] > 0)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %.1f GB/s",
                                     used ? ", " : "", names[i], (double)(1 << 20) / d->cost[i]);
    mdapl_log(mdapl_ctx_log(peer->s->ctx), MDAPL_INFO, "bodies %s %zu KiB %s rank %d: %s; now %s",
              c < MDAPL_SHM_CLASSES - 1 ? "up to" : "over", longest >> 10,
              n == MDAPL_SHM_ONE ? "from" : "to and from", peer->base.rank, text, names[d->way]);
}

void mdapl_shm_node_decide(struct mdapl_shm_peer *peer, enum mdapl_shm_directions n, unsigned c,
                           const struct mdapl_shm_decision *d)
{
    struct mdapl_shm_seg_head *head = node_head(peer->s);
    uint32_t way = (uint32_t)d->way + 1;

    if (!head || atomic_exchange_explicit(&head->way[n][c], way, memory_order_relaxed) != way)
        log_decision(peer, n, c, d);
}

unsigned mdapl_shm_node_lap(struct mdapl_shm_chan *s)
{
    struct mdapl_shm_seg_head *head = node_head(s);
    uint32_t lap = head ? atomic_load_explicit(&head->lap, memory_order_relaxed) : 0;

    return lap >= 1 && lap <= MDAPL_LAPS ? lap - 1 : MDAPL_LAPS;
}

bool mdapl_shm_node_decide_lap(struct mdapl_shm_chan *s, unsigned lap)
{
    struct mdapl_shm_seg_head *head = node_head(s);

    return !head || atomic_exchange_explicit(&head->lap, lap + 1, memory_order_relaxed) != lap + 1;
}
