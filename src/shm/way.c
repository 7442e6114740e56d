/* SPDX-License-Identifier: MIT */
/*
 * Which way a long body is copied. Its receiver decides: by the knob SHM_SINGLE_BYTES, or by a
 * judge for each peer (judge.h), because cores may be near to each other or far apart. A decision
 * is kept in the segment of the node's first rank, where all other pairs of the node find it. While
 * bodies are in flight in both directions one end decides for both (flow.c).
 *
 * A body of middle length is sent in the ring, where one copy is impossible, unless the receiver
 * has decided for one copy: then it is announced (RTS). The sender sends some of the first ones
 * the other way, and more at growing intervals, so that the receiver knows what both cost; the CTS
 * or FIN returns its decision. Likewise a longer body that may be sent in the pair buffer, with the
 * difference that while the receiver tries one copy all of them are announced. Where the
 * ring's data or the pair buffer has not been used yet a body costs both ends a page fault for each
 * 4 KiB, which is no measure: such places are used first.
 *
 * Of the bodies of middle length those up to 8 KiB are announced only while others are in flight in
 * both directions and the end that decides for both wants it: several are read by one system call
 * then, while one alone is faster in the ring.
 */
#include "peer.h"

#include "channel.h"
#include "judge.h"
#include "min.h"
#include "rndv.h"

#include <errno.h>
#include <stdlib.h>

enum {
    MIDDLE = 1, LONG = 6,        /* classes: of middle length, above MDAPL_SHM_SHORT, and longer */
    OFFERED = 2,                 /* ... those of middle length below are announced only while others
                                    are in flight in both directions */
    OFFERS = LONG + 1 - OFFERED, /* classes that may be announced or not: also the first longer one,
                                    in the pair buffer */
    BATCH = 16,                  /* bodies' bytes that make a sample while others are in flight */
    FIRST_GAP = 8,               /* bodies before the first that go the other way, and between */
    LAST_GAP = 4096,
    LONG_GAP = 256,              /* ... of longer ones: their receiver tries more rarely */
    OTHERS = 3,                  /* bodies that go the other way at a time */
    WHOLE_PERCENT = 200,         /* cost of a body in the ring, of the time to take it: the sender
                                    copies, too, */
    PARTS_PERCENT = 125,         /* ... but all except its first part meanwhile */
    ANSWERED = 2,                /* bodies with a message before each, that are no stream: in one
                                    some message may say now and then that all have arrived */
    TIMED = 2, OF = 8,           /* bodies of middle length that go the way in use and are timed: a
                                    look at the clock waits for the loads before it */
};

/* The last body of middle length that a peer has brought. */
struct brought {
    uint64_t at;                 /* ns */
    uint64_t sent;               /* messages that this process had sent by then */
    uint8_t way, c;              /* way: MDAPL_SHM_WAYS: not timed */
    uint8_t answered;            /* up to ANSWERED: so many in a row had one before them */
    uint8_t n;                   /* of OF */
};

/* Announced bodies that are in flight from a peer, to measure their pace. Those of one class that
 * are copied in one way, one begun after the other, are a batch. */
struct pace {
    uint64_t since;              /* ns; 0: not known */
    size_t bytes;                /* of the newest batch, arrived since then */
    uint32_t batch;              /* its number */
    unsigned n, newest;          /* bodies in flight; of them, of the newest batch */
    uint8_t way, c;              /* ... which are these */
    bool running;                /* some were in flight at `since`, and bytes of theirs were here */
    bool fresh;                  /* a cell was used for the first time: a page fault, once */
    uint32_t cells;              /* of the peer's cells, those from here on were never used */
};

/* What the sender knows of the receiver's decision for a class of bodies that it need not announce.
 * */
struct offer {
    uint8_t way;                 /* MDAPL_SHM_WAYS: not known */
    uint8_t others;              /* bodies that are still to go the other way */
    uint16_t n, gap;             /* bodies since the last of these; between two times */
};

struct mdapl_shm_copying {
    struct mdapl_shm_judge judge;
    uint32_t used;               /* of data of the peer's ring: up to here bodies have been taken */
    struct pace pace;
    struct brought brought;
    struct offer offer[OFFERS];
};

static bool is_middle(unsigned c)
{
    return c >= MIDDLE && c < LONG;
}

/* Does a body of this class go in the ring without being judged? */
static bool goes_unjudged(const struct mdapl_shm_peer *peer, unsigned c)
{
    return c >= MIDDLE && c < OFFERED && !mdapl_shm_flow_both(peer);
}

int mdapl_shm_way_make(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_copying *k = calloc(1, sizeof(*k));

    peer->copying = k;
    if (!k)
        return -ENOMEM;
    mdapl_shm_judge_init(&k->judge);
    for (int i = 0; i < OFFERS; i++)
        k->offer[i] = (struct offer){ .way = MDAPL_SHM_WAYS, .gap = FIRST_GAP };
    for (unsigned c = MIDDLE; c < LONG; c++)
        mdapl_shm_judge_forbid(&k->judge, c, MDAPL_SHM_BOTH);
    return 0;
}

void mdapl_shm_way_free(struct mdapl_shm_peer *peer)
{
    free(peer->copying);
}

/* -- receiving -------------------------------------------------------------------------------- */

/* Bodies of this process can be copied by two copies only. */
static void forbid_single(struct mdapl_shm_peer *peer)
{
    mdapl_shm_judge_forbid_all(&peer->copying->judge, MDAPL_SHM_ONCE);
    mdapl_shm_judge_forbid_all(&peer->copying->judge, MDAPL_SHM_BOTH);
}

void mdapl_shm_way_no_writes(struct mdapl_shm_peer *peer)
{
    mdapl_shm_judge_forbid_all(&peer->copying->judge, MDAPL_SHM_BOTH);
}

/* By the judge, for a longer body. */
static enum mdapl_shm_way choose(struct mdapl_shm_peer *peer, unsigned c)
{
    struct mdapl_shm_judge *judge = &peer->copying->judge;
    enum mdapl_shm_way way = mdapl_shm_node_way(peer->s, MDAPL_SHM_ONE, c);

    if (!judge->c[c].decided && way < MDAPL_SHM_WAYS)
        mdapl_shm_judge_take(judge, c, way);
    return mdapl_shm_judge_choose(judge, c);
}

enum mdapl_shm_way mdapl_shm_way_choose(struct mdapl_shm_peer *peer, size_t len, bool once)
{
    struct mdapl_shm_judge *judge = &peer->copying->judge;
    int64_t from = peer->s->single_from;
    unsigned c = mdapl_shm_judge_class(len);
    bool possible = !judge->c[c].forbidden[MDAPL_SHM_ONCE];
    enum mdapl_shm_way way;

    if (from >= 0 && once && (int64_t)len >= from && mdapl_shm_cma_works(peer))
        return MDAPL_SHM_ONCE;
    if (possible && (from >= 0 || !mdapl_shm_cma_works(peer))) {
        forbid_single(peer);
        possible = false;
    }
    if (is_middle(c))            /* it is announced for this, or it is synchronous */
        return once && possible ? MDAPL_SHM_ONCE : MDAPL_SHM_TWICE;
    way = mdapl_shm_flow_both(peer) ? mdapl_shm_flow_way(peer, c) : choose(peer, c);
    if (way == MDAPL_SHM_WAYS)   /* until that is decided */
        way = judge->c[c].decided && judge->c[c].way != MDAPL_SHM_TWICE ? MDAPL_SHM_ONCE
                                                                        : MDAPL_SHM_TWICE;
    return once && possible ? way : MDAPL_SHM_TWICE;
}

static void sample(struct mdapl_shm_peer *peer, unsigned c, enum mdapl_shm_way way, size_t bytes,
                   uint64_t ns)
{
    struct mdapl_shm_judge *judge = &peer->copying->judge;
    const struct mdapl_shm_judged *k = &judge->c[c];

    if (!k->forbidden[way] && !mdapl_shm_flow_both(peer)
        && (is_middle(c) ? mdapl_shm_judge_note(judge, c, way, bytes, ns)
                         : mdapl_shm_judge_sample(judge, c, way, bytes, ns)))
        mdapl_shm_node_decide(peer, MDAPL_SHM_ONE, c,
                              &(struct mdapl_shm_decision){ k->way, MDAPL_SHM_WAYS, k->cost });
}

/* Does the time of a body that goes this way matter? */
static bool timed(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, unsigned c)
{
    const struct mdapl_shm_judged *k = &peer->copying->judge.c[c];

    if (goes_unjudged(peer, c) || !mdapl_shm_flow_timed(peer, c))
        return false;
    return !is_middle(c) || mdapl_shm_flow_both(peer) || !k->decided || k->way != way
           || peer->copying->brought.n++ % OF < TIMED;
}

/* Bytes of all of a body, or of bodies of class c, have been copied in so many ns, until now; now
 * is 0 if they were not timed. In a stream a body of middle length costs the time since the one
 * before: a sender that waits for the end of one copy sends nothing meanwhile, while it fills the
 * ring as the receiver empties it. Not so if bodies answer messages: that is the pace of the
 * program. */
static void copied(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, unsigned c, size_t all,
                   size_t bytes, uint64_t now, uint64_t ns)
{
    struct brought *b = &peer->copying->brought;
    uint64_t sent = mdapl_shm_tx_sent(peer->s), last = b->at;
    int answered = b->sent == sent ? 0 : mdapl_min(b->answered + 1, ANSWERED);
    bool same = b->way == way && b->c == c;

    if (is_middle(c)) {
        b->at = now;
        b->sent = sent;
        b->way = (uint8_t)(now > 0 ? way : MDAPL_SHM_WAYS);
        b->c = (uint8_t)c;
        b->answered = (uint8_t)answered;
    }
    if (now == 0)
        return;
    if (!is_middle(c) || answered == ANSWERED)
        sample(peer, c, way, bytes, ns);
    else if (answered == 0 && same)
        sample(peer, c, way, all, now - last);
}

uint64_t mdapl_shm_way_comes(struct mdapl_shm_peer *peer, size_t len)
{
    unsigned c = mdapl_shm_judge_class(len);

    mdapl_shm_flow_comes(peer);
    if (!is_middle(c))
        mdapl_shm_judge_pass(&peer->copying->judge, c);
    return timed(peer, MDAPL_SHM_TWICE, c) ? mdapl_ctx_now(peer->s->ctx) : 0;
}

void mdapl_shm_way_ring(struct mdapl_shm_peer *peer, size_t len, const uint8_t *at, size_t first,
                        bool in_pair, uint64_t start)
{
    uint32_t *used = in_pair ? &peer->pair.used : &peer->copying->used;
    const uint8_t *begin = in_pair ? peer->pair.bytes : peer->rx.in.rest->data;
    unsigned percent = len > MDAPL_SHM_WHOLE ? PARTS_PERCENT : WHOLE_PERCENT;
    uint64_t now = start > 0 ? mdapl_ctx_now(peer->s->ctx) : 0;
    unsigned c = mdapl_shm_judge_class(len);

    if (goes_unjudged(peer, c))
        return;
    if (mdapl_shm_use(used, (size_t)(at - begin) + len)) {
        peer->copying->brought.way = MDAPL_SHM_WAYS;
        mdapl_shm_flow_fresh(peer, len);
    } else {
        copied(peer, MDAPL_SHM_TWICE, c, len, first, now, (now - start) * percent / 100);
    }
    mdapl_shm_flow_arrived(peer, MDAPL_SHM_TWICE, len, start);
}

/* Bodies overlap, so their time is that of all bytes that arrive while any is in flight, if all in
 * flight are of one batch. */
static void measure_from(struct pace *p, uint64_t ns, bool running)
{
    p->since = ns;
    p->bytes = 0;
    p->running = running;
    p->fresh = false;
}

/* Is a copy judged by its pace? One copy of middle length is judged by itself. */
static bool paced(enum mdapl_shm_way way, unsigned c)
{
    return way == MDAPL_SHM_TWICE || !is_middle(c);
}

void mdapl_shm_way_begin(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, size_t len,
                         unsigned bodies, struct mdapl_shm_copy *copy)
{
    struct pace *p = &peer->copying->pace;
    unsigned c = mdapl_shm_judge_class(len);

    *copy = (struct mdapl_shm_copy){ .len = len, .bodies = bodies, .way = way };
    if (timed(peer, way, c))
        copy->start = mdapl_ctx_now(peer->s->ctx);
    if (!paced(way, c))
        return;
    if (p->n++ == 0 || p->c != c || p->way != way) {
        p->batch++;
        p->newest = 0;
        p->c = (uint8_t)c;
        p->way = (uint8_t)way;
        measure_from(p, copy->start, p->n > 1);
    }
    p->newest++;
    copy->batch = p->batch;
}

void mdapl_shm_way_arrived(struct mdapl_shm_peer *peer, const struct mdapl_shm_data *data)
{
    struct pace *p = &peer->copying->pace;

    p->bytes += data->len;
    if (data->cell < MDAPL_CELLS && data->cell >= p->cells) {
        p->cells = data->cell + 1;
        p->fresh = true;
    }
}

void mdapl_shm_way_end(struct mdapl_shm_peer *peer, const struct mdapl_shm_copy *copy, bool whole)
{
    struct pace *p = &peer->copying->pace;
    unsigned c = mdapl_shm_judge_class(copy->len);
    size_t all = copy->len * copy->bodies;
    uint64_t now = copy->start > 0 ? mdapl_ctx_now(peer->s->ctx) : 0;
    bool valid = whole && now > 0 && p->since > 0 && p->n == p->newest && !p->fresh;

    for (unsigned i = 0; whole && i < copy->bodies; i++)
        mdapl_shm_flow_arrived(peer, copy->way, copy->len, copy->start);
    if (!paced(copy->way, c)) {
        if (whole)
            copied(peer, copy->way, c, all, all, now, now - copy->start);
        return;
    }
    p->n--;
    p->newest -= copy->batch == p->batch;
    if (copy->way != MDAPL_SHM_TWICE)
        p->bytes += all;
    if (valid && p->n > 0 && p->bytes / BATCH < (size_t)MDAPL_SHM_CLASS_BYTES << c)
        return;
    /* The bytes that were here at the beginning make no difference if as many are here now. */
    if (valid && (p->n > 0 || !p->running))
        sample(peer, c, copy->way, p->bytes, now - p->since);
    measure_from(p, now, p->n > 0);
}

enum mdapl_shm_way mdapl_shm_way_wanted(const struct mdapl_shm_peer *peer, size_t len)
{
    const struct mdapl_shm_judged *k = &peer->copying->judge.c[mdapl_shm_judge_class(len)];

    if (k->trying == MDAPL_SHM_ONCE || k->trying == MDAPL_SHM_BOTH)
        return (enum mdapl_shm_way)k->trying;
    return k->decided ? (enum mdapl_shm_way)k->way : MDAPL_SHM_WAYS;
}

/* -- sending ---------------------------------------------------------------------------------- */

/* NULL: such a body is always announced, or never. */
static struct offer *offer_of(struct mdapl_shm_peer *peer, size_t len)
{
    unsigned c = mdapl_shm_judge_class(len);

    return c >= OFFERED && c - OFFERED < OFFERS ? &peer->copying->offer[c - OFFERED] : NULL;
}

bool mdapl_shm_way_announce(struct mdapl_shm_peer *peer, size_t len)
{
    unsigned c = mdapl_shm_judge_class(len);
    enum mdapl_shm_way way = mdapl_shm_flow_way(peer, c);
    int64_t from = peer->s->single_from;
    struct offer *o = offer_of(peer, len);
    bool fresh, once;

    if (from >= 0)
        return (int64_t)len >= from;
    if (way < MDAPL_SHM_WAYS)
        return way == MDAPL_SHM_ONCE;
    if (!o)
        return false;
    if (o->way == MDAPL_SHM_WAYS)
        o->way = (uint8_t)mdapl_shm_node_way(peer->s, MDAPL_SHM_ONE, c);
    fresh = mdapl_shm_spsc_is_fresh(&peer->tx, len);
    once = o->way == MDAPL_SHM_ONCE || o->way == MDAPL_SHM_BOTH;
    if (o->others == 0) {
        if ((fresh && !once) || ++o->n < o->gap)
            return once;
        o->n = 0;
        o->gap = (uint16_t)mdapl_min(4u * o->gap, len > MDAPL_SHM_EAGER ? LONG_GAP : LAST_GAP);
        o->others = OTHERS;
    }
    o->others -= !(fresh && once);
    return !once;
}

void mdapl_shm_way_advised(struct mdapl_shm_peer *peer, size_t len, uint64_t way)
{
    struct offer *o = offer_of(peer, len);

    if (!o || way >= MDAPL_SHM_WAYS || way == o->way)
        return;
    /* What is best has changed, and may change back; or the receiver of a longer body tries it. */
    if (o->way < MDAPL_SHM_WAYS && len <= MDAPL_SHM_EAGER)
        o->gap = FIRST_GAP;
    o->way = (uint8_t)way;
}
