/* SPDX-License-Identifier: MIT */
#include "shm.h"

#include "channel.h"
#include "clock.h"
#include "err.h"
#include "min.h"
#include "node.h"
#include "peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOUSEKEEPING = 64,           /* rounds of progress between two of housekeeping() */
    AGE = 8192,                  /* rounds after which a silent ring is not polled any more */
    CHECK_MS = 100,              /* between two checks that the peers' processes run */
    WORK_US = 50,                /* longest sleep while a queue waits for room in a ring, or this
                                  * rank for readers: a message that is taken rings no doorbell */
    CORE_CACHE = 1 << 20,        /* bytes, where the system does not say */
    SHORT_LAP = 1 << 19,         /* bytes of a short lap, at least */
};

/* -- opening ---------------------------------------------------------------------------------- */

static int unusable(struct mdapl_ctx *ctx, const char *why)
{
    return mdapl_err_set(mdapl_ctx_err(ctx), -ENOTSUP,
                         "no shared memory between the ranks of this node: %s", why);
}

static int make_segment(struct mdapl_shm_chan *s)
{
    int rank = mdapl_ctx_job(s->ctx)->rank;
    struct mdapl_shm_seg again;
    int rc;

    if (mdapl_shm_node_here(&s->node))
        return unusable(s->ctx, "this node's identity cannot be read (is /proc mounted?)");
    s->word = s->node ^ (uint64_t)(uintptr_t)s;
    s->barrier = mdapl_shm_os_barrier_init();
    rc = mdapl_shm_seg_make(&s->seg, rank, s->near.n, &s->word, s->barrier);
    if (rc)
        return unusable(s->ctx, strerror(-rc));
    s->seg.head->ranks = s->near.digest;
    /* If its owner cannot open the segment by its reference, no other process can. */
    if (mdapl_shm_seg_open(&again, s->seg.ref, s->seg.head->token, rank, s->near.n) == 0) {
        mdapl_shm_seg_close(&again);
        return 0;
    }
    mdapl_shm_seg_close(&s->seg);
    return unusable(s->ctx, "a segment of its own cannot be opened again");
}

/* A line has left a core's cache after twice as many bytes as that holds. After a quarter of it,
 * and what is in flight, it is still there, with others of the program. No more than a short lap is
 * in flight where the ring's end has been left out (ring.h). */
static void init_laps(struct mdapl_shm_spread *spread)
{
    size_t cache = mdapl_shm_os_core_cache();

    cache = cache ? cache : CORE_CACHE;
    spread->lap[MDAPL_LAP_LONG] = 2 * (uint64_t)cache;
    spread->lap[MDAPL_LAP_SHORT] = mdapl_max(cache / 4, SHORT_LAP);
}

static struct mdapl_shm_chan *make_state(struct mdapl_ctx *ctx)
{
    struct mdapl_shm_chan *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->ctx = ctx;
    s->stats = mdapl_ctx_stats(ctx);
    init_laps(&s->spread);
    s->owner = calloc(MDAPL_SHM_INRINGS + MDAPL_SHM_GUESTS, sizeof(*s->owner));
    mdapl_shm_cma_init(s);
    mdapl_list_init(&s->work);
    mdapl_pool_init(&s->items, sizeof(struct mdapl_shm_item), sizeof(void *), 32, 0);
    mdapl_shm_cells_init(s);
    mdapl_shm_rndv_tx_init(s);
    mdapl_shm_rndv_rx_init(s);
    return s;
}

static void free_state(struct mdapl_shm_chan *s)
{
    mdapl_shm_near_free(s);
    mdapl_shm_rndv_tx_fini(s);
    mdapl_shm_rndv_rx_fini(s);
    mdapl_pool_fini(&s->items);
    free(s->joined);
    free(s->owner);
    free(s);
}

static void write_card(struct mdapl_shm_chan *s)
{
    struct mdapl_shm_card card = { .node = s->node, .token = s->seg.head->token };

    memcpy(card.ref, s->seg.ref, sizeof(card.ref));
    mdapl_shm_card_write(&card, s->card, sizeof(s->card));
}

static int open_channel(struct mdapl_ctx *ctx, void **state_p)
{
    struct mdapl_shm_chan *s = make_state(ctx);
    int rc = s && s->owner && mdapl_shm_near_init(s) == 0
             ? make_segment(s) : mdapl_err_set(mdapl_ctx_err(ctx), -ENOMEM, "out of memory");

    if (rc) {
        if (s)
            free_state(s);
        return rc;
    }
    write_card(s);
    *state_p = s;
    return 0;
}

static int card(void *state, char *buf, size_t len)
{
    const struct mdapl_shm_chan *s = state;
    size_t n = strlen(s->card);

    if (n >= len)
        return -ENOSPC;
    memcpy(buf, s->card, n + 1);
    return (int)n;
}

static void probe(void *state)
{
    mdapl_shm_near_probe(state);
}

static int reach(void *state, struct mdapl_group *group, int rank, const char *text,
                 struct mdapl_peer **peer_p)
{
    struct mdapl_shm_peer *peer;
    int rc = group->index > 0 ? mdapl_shm_guest_reach(state, group, rank, text, &peer)
                              : mdapl_shm_near_reach(state, rank, &peer);

    if (!rc)
        *peer_p = &peer->base;
    return rc;
}

static void join(void *state, struct mdapl_group *group)
{
    mdapl_shm_guest_join(state, group);
}

static int leave(struct mdapl_peer *base)
{
    mdapl_shm_peer_free(mdapl_shm_peer_of(base));
    return MDAPL_DONE;
}

static void part(void *state, struct mdapl_group *group)
{
    mdapl_shm_guest_part(state, group->index);
}

static int not_reached(struct mdapl_shm_chan *s, int rank)
{
    char why[256];

    mdapl_shm_near_cause(s, rank, why, sizeof(why));
    return mdapl_err_set(mdapl_ctx_err(s->ctx), -EHOSTUNREACH,
                         "rank %d is not reached through shared memory, the only channel there is: "
                         "%s. Put dapl into MPIR_CVAR_DAPL_CHANNELS", rank, why);
}

/* A first message opens its inring, and probe() has mapped the ranks that are reached; all other
 * ranks belong to another channel, or the job fails. */
static int wire(void *state)
{
    struct mdapl_shm_chan *s = state;
    struct mdapl_group *job = mdapl_ctx_job(s->ctx);
    struct mdapl_peer *peer;

    if (s->wired)
        return MDAPL_DONE;
    s->wired = true;
    for (int i = 0; i < s->near.n; i++)
        if (i != s->near.me)
            mdapl_peer_get(s->ctx, s->near.rank[i], &peer);
    mdapl_shm_node_barrier_open(s);
    for (int i = 0; i < job->size && mdapl_ctx_alone(s->ctx); i++)
        if (i != job->rank && !job->peers[i])
            return not_reached(s, i);
    return MDAPL_DONE;
}

static size_t eager_max(void *state)
{
    (void)state;
    return MDAPL_HDR_MAX + MDAPL_SHM_SHORT;
}

/* -- running ---------------------------------------------------------------------------------- */

static int work(struct mdapl_shm_chan *s)
{
    struct mdapl_list todo, *l;
    int n = 0;

    /* A peer that is put on s->work during this round is served in the next one. */
    todo = s->work;
    todo.next->prev = todo.prev->next = &todo;
    mdapl_list_init(&s->work);
    while ((l = mdapl_list_take(&todo)))
        n += mdapl_shm_peer_progress(MDAPL_OF(l, struct mdapl_shm_peer, work));
    return n;
}

/* Publishes how many messages have been taken to peers that no message has carried it to. */
static void flush_acks(struct mdapl_shm_chan *s)
{
    for (int i = 0; i < s->n_polled; i++)
        if (s->polled[i]->rx.taken != s->polled[i]->rx.acked)
            mdapl_shm_spsc_ack_flush(&s->polled[i]->rx);
}

static void check(struct mdapl_shm_chan *s)
{
    uint64_t now = mdapl_ctx_now(s->ctx);

    if (now - s->checked < MDAPL_MS(CHECK_MS))
        return;
    s->checked = now;
    mdapl_shm_guest_sweep(s);
    mdapl_shm_fifo_check(s);
    for (struct mdapl_shm_peer *p = NULL; (p = mdapl_shm_peer_next(s, p));)
        mdapl_shm_peer_check(p);
}

static void housekeeping(struct mdapl_shm_chan *s)
{
    flush_acks(s);
    check(s);
    if (s->rounds % AGE == 0)
        mdapl_shm_polled_age(s);
}

static int progress(void *state)
{
    struct mdapl_shm_chan *s = state;
    int n = 0;

    /* Of several rings most are empty, and need no call. */
    for (int i = 0; i < s->n_polled; i++)
        if (s->n_polled == 1 || mdapl_shm_rx_pending(s->polled[i]))
            n += mdapl_shm_rx_poll(s->polled[i]);
    if (atomic_load_explicit(&s->seg.head->doorbell_words, memory_order_relaxed) != 0)
        n += mdapl_shm_doorbell_poll(s);
    if (!mdapl_list_empty(&s->work))
        n += work(s);
    if (++s->rounds % HOUSEKEEPING == 0)
        housekeeping(s);
    return n;
}

static bool has_connections(void *state)
{
    const struct mdapl_shm_chan *s = state;

    return s->n_inrings > 0 || s->node_barrier.root;
}

static void wait(void *state, uint64_t ns)
{
    struct mdapl_shm_chan *s = state;

    check(s);
    if ((!mdapl_list_empty(&s->work) || s->draining) && ns > MDAPL_US(WORK_US))
        ns = MDAPL_US(WORK_US);
    mdapl_shm_sleep(s, ns);
}

static void wake(void *state)
{
    mdapl_shm_sleep_wake(state);
}

static size_t drain(void *state)
{
    struct mdapl_shm_chan *s = state;
    size_t n = 0;

    s->draining = true;
    for (struct mdapl_shm_peer *p = NULL; (p = mdapl_shm_peer_next(s, p));)
        n += mdapl_shm_peer_unfinished(p);
    s->drained = n == 0;
    return n;
}

static bool idle(struct mdapl_peer *base)
{
    return mdapl_shm_peer_idle(mdapl_shm_peer_of(base));
}

static bool settled(struct mdapl_peer *base)
{
    return mdapl_shm_peer_unfinished(mdapl_shm_peer_of(base)) == 0;
}

/* -- closing ---------------------------------------------------------------------------------- */

static void close_channel(void *state)
{
    struct mdapl_shm_chan *s = state;
    struct mdapl_shm_peer *peer, *after;

    for (peer = mdapl_shm_peer_next(s, NULL); peer; peer = after) {
        after = mdapl_shm_peer_next(s, peer);
        mdapl_shm_peer_free(peer);
    }
    mdapl_shm_guest_part(s, -1);
    mdapl_shm_seg_close(&s->seg);
    free_state(s);
}

static void describe(void *state, char *buf, size_t len)
{
    (void)state;
    snprintf(buf, len, "channel shm: rings of %d slots of %d bytes, cells of %d bytes", MDAPL_SLOTS,
             MDAPL_SLOT_BYTES, MDAPL_CELL_BYTES);
}

/* -- the channel's table of calls ------------------------------------------------------------- */

const struct mdapl_channel mdapl_shm_channel = {
    .name = "shm",
    .open = open_channel,        /* node.c, seg.c */
    .card = card,                /* node.c */
    .probe = probe,              /* near.c */
    .reach = reach,
    .join = join,                /* guest.c */
    .leave = leave,
    .part = part,
    .wire = wire,
    .eager_max = eager_max,
    .send = mdapl_shm_tx_send,   /* tx.c, rndv_tx.c */
    .enter = mdapl_shm_node_barrier_enter,
    .passed = mdapl_shm_node_barrier_passed,
    .result = mdapl_shm_node_barrier_result,
    .progress = progress,        /* doorbell.c, then rx.c, rndv_rx.c */
    .has_connections = has_connections,
    .wait = wait,                /* doorbell.c */
    .wake = wake,
    .drain = drain,
    .idle = idle,
    .settled = settled,
    .close = close_channel,
    .describe = describe,
};
