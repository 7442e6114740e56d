/* SPDX-License-Identifier: MIT */
/*
 * Long bodies in both directions of a pair of ranks at once. While they are in flight all go the
 * same way, as one end decides for both (contest.h); its decision is in its own segment, in the
 * inring from the other end.
 *
 * A program sends and receives in rounds: bodies in both directions, and then it waits for all of
 * them. A round begins with the first body sent while the program waits for none that it has sent,
 * or with one that the peer has sent earlier. What the program does between two rounds is no time
 * of bodies.
 */
#include "peer.h"

#include "channel.h"
#include "contest.h"
#include "judge.h"
#include "min.h"

#include <errno.h>
#include <stdlib.h>

enum {
    STILL = 128,                 /* bodies for which traffic of both directions is taken to last, */
    ONE_WAY = 256,               /* ... but not when so many have been sent and none received */
    HUGE = 9,                    /* class, above 1 MiB: no core's cache has some of these, and a
                                  * second copy of each in both directions is likely to cost more */
};

_Static_assert(MDAPL_SHM_TWICE == 0 && MDAPL_SHM_ONCE == 1 && MDAPL_SHM_CONTEST_WAYS == 2,
               "the ways of a contest are these");

struct mdapl_shm_flow {
    struct mdapl_shm_contest *duplex;  /* of each class; NULL: this end has judged none */
    uint64_t at;                 /* ns, when the last body of either direction arrived, or the first
                                  * one of the round was sent; this and c if this end judges */
    uint16_t sends;              /* bodies, since the last one from the peer */
    int16_t ahead;               /* bodies sent in this round, less those from the peer */
    uint8_t still;               /* not 0: bodies are in flight in both directions, in general */
    uint8_t c;                   /* class of the last one; MDAPL_SHM_CLASSES: none in this round */
    bool crossed;                /* others were in flight when the peer sent its last one */
    bool early;                  /* all of this round are the peer's */
};

int mdapl_shm_flow_make(struct mdapl_shm_peer *peer)
{
    peer->flow = calloc(1, sizeof(*peer->flow));
    return peer->flow ? 0 : -ENOMEM;
}

void mdapl_shm_flow_free(struct mdapl_shm_peer *peer)
{
    if (peer->flow)
        free(peer->flow->duplex);
    free(peer->flow);
}

/* Does this end decide for both? */
static bool leads(const struct mdapl_shm_peer *peer)
{
    return peer->s->seg.head->token < peer->token;
}

static struct mdapl_shm_inring *decided_in(const struct mdapl_shm_peer *peer)
{
    return leads(peer) ? peer->rx.in.front : peer->tx.in.front;
}

bool mdapl_shm_flow_both(const struct mdapl_shm_peer *peer)
{
    return peer->flow->still > 0;
}

bool mdapl_shm_flow_timed(const struct mdapl_shm_peer *peer, unsigned c)
{
    const struct mdapl_shm_flow *f = peer->flow;

    return !mdapl_shm_flow_both(peer)
           || (f->duplex && mdapl_shm_contest_measures(&f->duplex[c]));
}

/* In the inring two bits are of each class: 1 more than the way, 0 for none. */
enum mdapl_shm_way mdapl_shm_flow_way(const struct mdapl_shm_peer *peer, unsigned c)
{
    const struct mdapl_shm_inring *in = decided_in(peer);
    uint32_t way;

    if (!mdapl_shm_flow_both(peer) || !in)
        return MDAPL_SHM_WAYS;
    way = atomic_load_explicit(&in->duplex, memory_order_relaxed) >> 2 * c & 3;
    return way >= 1 && way <= MDAPL_SHM_ONCE + 1 ? (enum mdapl_shm_way)(way - 1) : MDAPL_SHM_WAYS;
}

static void set_way(struct mdapl_shm_inring *in, unsigned c, unsigned way)
{
    uint32_t old = atomic_load_explicit(&in->duplex, memory_order_relaxed);
    uint32_t word = old & ~(3u << 2 * c);

    if (way < MDAPL_SHM_CONTEST_WAYS)
        word |= ((uint32_t)way + 1) << 2 * c;
    if (word != old)
        atomic_store_explicit(&in->duplex, word, memory_order_relaxed);
}

/* -- judging ---------------------------------------------------------------------------------- */

static struct mdapl_shm_contest *make(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_contest *d = calloc(MDAPL_SHM_CLASSES, sizeof(*d));

    for (unsigned c = 0; d && c < MDAPL_SHM_CLASSES; c++) {
        mdapl_shm_contest_init(&d[c], c < HUGE ? MDAPL_SHM_CONTEST_NONE : MDAPL_SHM_ONCE);
        mdapl_shm_contest_take(&d[c], mdapl_shm_node_way(peer->s, MDAPL_SHM_TWO, c));
        set_way(decided_in(peer), c, d[c].now);
    }
    return d;
}

/* The judge of a class; NULL: the peer judges, the knob SHM_SINGLE_BYTES does, or there is nothing
 * to be judged. */
static struct mdapl_shm_contest *judge_of(struct mdapl_shm_peer *peer, unsigned c)
{
    struct mdapl_shm_flow *f = peer->flow;

    if (c == MDAPL_SHM_CLASSES || !mdapl_shm_flow_both(peer))
        return NULL;
    if (!f->duplex && leads(peer) && peer->s->single_from < 0 && mdapl_shm_cma_works(peer))
        f->duplex = make(peer);
    return f->duplex && mdapl_shm_cma_works(peer) ? &f->duplex[c] : NULL;
}

/* The judge of a class, which said `before`, has been given a body or the end of a round; new: it
 * has decided. */
static void judged(struct mdapl_shm_peer *peer, unsigned c, unsigned before, bool new)
{
    const struct mdapl_shm_contest *d = &peer->flow->duplex[c];

    if (d->now != before)
        set_way(decided_in(peer), c, d->now);
    if (new)
        mdapl_shm_node_decide(peer, MDAPL_SHM_TWO, c,
                              &(struct mdapl_shm_decision){ (enum mdapl_shm_way)d->way,
                                                            MDAPL_SHM_CONTEST_WAYS,
                                                            d->least });
}

/* A body of either direction has arrived, with the time since the last one or, if it is an early
 * one of the peer's, since its `start`, ns; 0: that is not known. */
static void over(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, size_t len, bool early,
                 uint64_t start)
{
    struct mdapl_shm_flow *f = peer->flow;
    unsigned c = mdapl_shm_judge_class(len);
    struct mdapl_shm_contest *d = judge_of(peer, c);
    unsigned before;
    uint64_t now, from;

    if (!d)
        return;
    before = d->now;
    now = mdapl_shm_contest_measures(d) ? mdapl_ctx_now(peer->s->ctx) : f->at;
    from = !early ? f->at : start > 0 ? mdapl_max(f->at, start) : now;
    judged(peer, c, before, mdapl_shm_contest_body(d, way, len, now - from));
    f->at = now;
    f->c = (uint8_t)c;
}

void mdapl_shm_flow_fresh(struct mdapl_shm_peer *peer, size_t len)
{
    struct mdapl_shm_contest *d = judge_of(peer, mdapl_shm_judge_class(len));

    if (d)
        mdapl_shm_contest_fresh(d);
}

static void begin_round(struct mdapl_shm_peer *peer, bool early)
{
    struct mdapl_shm_flow *f = peer->flow;
    struct mdapl_shm_contest *d = judge_of(peer, f->c);
    unsigned before = d ? d->now : MDAPL_SHM_CONTEST_NONE;

    if (d)
        judged(peer, f->c, before, mdapl_shm_contest_round(d));
    f->early = early;
    f->ahead = 0;
    f->c = MDAPL_SHM_CLASSES;
}

/* -- bodies ----------------------------------------------------------------------------------- */

/* If the body answers one, the message that brings or announces it has acknowledged that. */
void mdapl_shm_flow_comes(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_flow *f = peer->flow;
    bool in_ring = (int32_t)(peer->long_sent - peer->tx.acked) > 0;

    if (!in_ring)
        peer->long_sent = peer->tx.acked;        /* numbers begin anew some time */
    f->crossed = in_ring || !mdapl_list_empty(&peer->sends) || !mdapl_list_empty(&peer->queue);
    if (!f->crossed) {
        f->still -= f->still > 0;
        return;
    }
    if (f->still == 0) {         /* what was before is no time of bodies in both directions */
        begin_round(peer, false);
        f->at = mdapl_ctx_now(peer->s->ctx);
    }
    f->still = STILL;
}

void mdapl_shm_flow_arrived(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, size_t len,
                            uint64_t start)
{
    struct mdapl_shm_flow *f = peer->flow;
    bool early = !f->crossed && f->ahead <= 0;

    f->sends = 0;
    if (!mdapl_shm_flow_both(peer))
        return;
    if (early && !f->early)
        begin_round(peer, true);
    over(peer, way, len, early, start);
    f->ahead -= f->ahead > -ONE_WAY;
}

void mdapl_shm_flow_sends(struct mdapl_shm_peer *peer, size_t len)
{
    struct mdapl_shm_flow *f = peer->flow;

    if (!mdapl_shm_flow_both(peer))
        return;
    if (mdapl_list_empty(&peer->sends) && mdapl_list_empty(&peer->queue)) {
        if (!f->early)
            begin_round(peer, false);
        f->early = false;
        if (f->duplex && mdapl_shm_contest_measures(&f->duplex[mdapl_shm_judge_class(len)]))
            f->at = mdapl_ctx_now(peer->s->ctx);
    }
    f->ahead += f->ahead < ONE_WAY;
    if (f->sends++ == ONE_WAY)
        f->still = 0;
}

void mdapl_shm_flow_sent(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, size_t len)
{
    if (mdapl_shm_flow_both(peer))
        over(peer, way, len, false, 0);
}
