/* SPDX-License-Identifier: MIT */
#include "conn.h"

#include "cfg.h"
#include "cm_hello.h"
#include "cm_report.h"
#include "frames.h"
#include "log.h"
#include "min.h"
#include "peer.h"
#include "regcache.h"
#include "stats.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOOKS = 8,                   /* in MPIR_CVAR_DAPL_DEAD_MS */
    AT_FIRST = 16,               /* times as many on a new connection */
    SUSPECT = 2,                 /* looks after which the peer's other connections are probed */
    ANSWERS = 2,                 /* to pings, one after the other, before a verdict */
    GRACE = 3,                   /* looks after each of them */
    PAUSE_MAX = 64,              /* looks between probes of a peer that only computes */
    DOUBLINGS = 7,               /* of the time to a verdict */
    PEER_US = 10,                /* time between two looks for each peer: its price is bounded */
    STEADY_MS = 10000,           /* a connection that stood so long forgets verdicts before it */
    PINGS = 4,                   /* in flight at most, to all peers */
    PING_MS = 250,               /* time from one ping to the next without an answer; doubles */
    PING_DOUBLINGS = 6,
    PING_MS_MAX = 1000,          /* time for the answer, at most */
    FEW_LMRS = 64,               /* an adapter with so few registrations needs them for frames */
    WORD = 8,                    /* bytes of a probe */
    WORDS = 2 * WORD,
};

/* -- the words --------------------------------------------------------------------------------- */

void mdapl_dapl_probes_init(struct mdapl_dapl_chan *d)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(d->ctx);

    d->probes.on = cfg->dead_ms > 0 && cfg->ft == MDAPL_FT_ON && d->retain
                   && d->rails.max.lmrs >= FEW_LMRS;
}

void mdapl_dapl_probes_fini(struct mdapl_dapl_chan *d)
{
    if (d->probes.words)
        mdapl_dapl_block_free(d->probes.words);
    free(d->probes.words);
}

/* Allocates the words, registered nowhere. */
static struct mdapl_dapl_block *make_words(struct mdapl_dapl_chan *d)
{
    struct mdapl_dapl_block *words = calloc(1, sizeof(*words));

    if (words && mdapl_dapl_block_make(d->regs, WORDS, MDAPL_LMR_REMOTE_WRITE, 0, words))
        return words;
    free(words);
    return NULL;
}

bool mdapl_dapl_probe_has_word(struct mdapl_dapl_chan *d, int rail)
{
    if (!d->probes.on)
        return false;
    if (!d->probes.words)
        d->probes.words = make_words(d);
    return d->probes.words && mdapl_dapl_block_need(d->regs, d->probes.words, 1u << rail);
}

void mdapl_dapl_probe_offer(struct mdapl_dapl_stream *st)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_chan *d = peer->d;
    int rail = st->ia->rail;
    uint8_t fields[MDAPL_WORD_BYTES];
    struct mdapl_dapl_item *it;
    uint32_t len;

    if (!peer->recovers || !mdapl_dapl_probe_has_word(d, rail))
        return;
    len = (uint32_t)mdapl_dapl_word_put(
        &(struct mdapl_dapl_word){ (uint64_t)(uintptr_t)d->probes.words->data,
                                   d->probes.words->lmr.on[rail].key }, fields);
    /* Not behind frames that wait for the window of another stream. */
    if (mdapl_dapl_tx_ahead(st, MDAPL_FRAME_WORD, fields, len))
        return;
    it = mdapl_dapl_item_get(peer, MDAPL_FRAME_WORD);
    if (!it)
        return;
    it->stream = st->index;
    it->len = len;
    memcpy(it->u.bytes, fields, len);
    mdapl_dapl_item_queue(peer, it);
}

bool mdapl_dapl_on_word(struct mdapl_dapl_stream *st, const struct mdapl_dapl_word *word,
                        const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_probe *probe = &st->conn->probe;

    (void)f, (void)p;
    if (probe->given)
        return false;            /* a peer names it once on a connection */
    probe->addr = word->addr;
    probe->key = word->key;
    probe->given = true;
    return true;
}

/* -- probes ------------------------------------------------------------------------------------ */

/* What has arrived on a connection, and what has completed, ever. */
static uint64_t received(const struct mdapl_dapl_conn *conn)
{
    return conn->ep.recv.next - conn->ep.recv_posted + conn->ring_in.expected;
}

static uint64_t completed(const struct mdapl_dapl_conn *conn)
{
    return conn->ep.req.next - conn->ep.req_posted;
}

static void probed(struct mdapl_dapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    struct mdapl_dapl_conn *conn = mdapl_dapl_conn_of(dto->ep);

    (void)len;
    conn->probe.posted = false;
    conn->probe.pause = (uint32_t)mdapl_min(2 * (uint64_t)conn->probe.pause, PAUSE_MAX);
    if (status != DAT_DTO_SUCCESS)
        mdapl_dapl_dto_failed(dto, MDAPL_DAPL_OP_PROBE, status);
}

static void post(struct mdapl_dapl_stream *st)
{
    struct mdapl_dapl_chan *d = st->peer->d;
    struct mdapl_dapl_probe *probe = &st->conn->probe;
    int rail = st->ia->rail;
    DAT_LMR_TRIPLET from;
    DAT_RMR_TRIPLET to;

    if (!st->up || probe->posted || !probe->given || !mdapl_dapl_ep_has_slot(&st->up->ep)
        || !mdapl_dapl_probe_has_word(d, rail))
        return;
    from = (DAT_LMR_TRIPLET){
        .virtual_address = (DAT_VADDR)(uintptr_t)(d->probes.words->data + WORD),
        .segment_length = WORD, .lmr_context = d->probes.words->lmr.on[rail].local,
    };
    to = (DAT_RMR_TRIPLET){
        .virtual_address = probe->addr, .segment_length = WORD, .rmr_context = probe->key,
    };
    probe->dto.done = probed;
    probe->posted = true;
    d->stats->probes++;
    if (mdapl_dapl_ep_post_write(&st->up->ep, &from, &to, &probe->dto)) {
        probe->posted = false;
        mdapl_dapl_post_refused(st->up, MDAPL_DAPL_OP_PROBE);
    }
}

/* The time between two looks, ns. */
static uint64_t pause_of(const struct mdapl_dapl_chan *d)
{
    return MDAPL_MS(mdapl_ctx_cfg(d->ctx)->dead_ms) / LOOKS;
}

/* The stream's connection, if it is up and no fault of it waits; else NULL. */
static struct mdapl_dapl_conn *conn_of(const struct mdapl_dapl_stream *st)
{
    return st->cm.state == MDAPL_CM_UP && st->fault.kind == MDAPL_DAPL_FAULT_NONE ? st->conn
                                                                                 : NULL;
}

/* Looks to a verdict, at least. A connection on which nothing has arrived yet has longer: while a
 * job connects, the peer has many others to answer, and pings would delay it further. */
static uint32_t limit_of(const struct mdapl_dapl_stream *st)
{
    uint32_t looks = received(conn_of(st)) > 0 ? LOOKS : LOOKS * AT_FIRST;

    return looks << mdapl_min(st->pings.verdicts, DOUBLINGS);
}

/* Is it time for a ping, or for the verdict? The first ping is made when half of the looks are
 * over, the second one so that the looks after its answer end with them. */
static bool is_due(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_probe *probe)
{
    uint32_t limit = limit_of(st);

    return probe->answers == 0 ? probe->pending >= limit / 2
                               : probe->pending >= limit - GRACE && probe->grace >= GRACE;
}

/* -- pings ------------------------------------------------------------------------------------- */

static void ping_over(struct mdapl_dapl_stream *st)
{
    if (!st->pings.conn)
        return;
    mdapl_dapl_conn_close(st->pings.conn, NULL);
    st->pings.conn = NULL;
    st->peer->d->probes.pings--;
}

void mdapl_dapl_probe_end(struct mdapl_dapl_stream *st)
{
    ping_over(st);
    mdapl_dapl_item_drop(st->peer, MDAPL_FRAME_WORD, st->index);
}

/* A connection request that has the number of the connection that is up, to be rejected. False: it
 * is not time for one, or it cannot be made. */
static bool ping_on(struct mdapl_dapl_stream *st, uint64_t now)
{
    uint64_t time = MDAPL_MS(PING_MS) << mdapl_min(st->pings.n, PING_DOUBLINGS);
    struct mdapl_dapl_probes *probes = &st->peer->d->probes;
    uint8_t hello[MDAPL_HELLO_BYTES];

    if (st->pings.conn || now < st->pings.next || probes->pings == PINGS || st->cm.addr_len == 0)
        return false;
    st->pings.n++;
    st->pings.at = now;
    st->pings.over = now + mdapl_min(time, MDAPL_MS(PING_MS_MAX));
    st->pings.next = now + time;
    if (mdapl_dapl_conn_open(st, st->conn->epoch, false, &st->pings.conn))
        return false;
    probes->pings++;
    mdapl_dapl_cm_hello_put(st, MDAPL_HELLO_PING, st->conn->epoch, hello);
    if (mdapl_dapl_ep_connect(&st->pings.conn->ep, st->cm.addr, st->cm.addr_len, st->cm.qual, hello,
                              sizeof(hello)) == 0)
        return true;
    ping_over(st);
    return false;
}

/* On one connection of each rail. */
static void ping(struct mdapl_dapl_peer *peer, uint64_t now)
{
    uint32_t rails = 0, streams = 0;

    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_stream *st = &peer->stream[i];
        uint32_t rail = 1u << st->ia->rail;

        if (!conn_of(st) || rails & rail)
            continue;
        rails |= rail;
        streams |= (uint32_t)ping_on(st, now) << i;
    }
    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_conn *conn = conn_of(&peer->stream[i]);

        if (!conn || !streams || !is_due(&peer->stream[i], &conn->probe))
            continue;
        conn->probe.pinged |= streams;
        mdapl_dapl_event(peer, i, MDAPL_DAPL_EVENT_SUSPECT, "", "", conn->probe.pending);
    }
}

/* It is not suspect. */
static void clear(struct mdapl_dapl_probe *probe)
{
    probe->quiet = probe->pending = probe->others = probe->answers = 0;
    probe->pinged = 0;
    probe->reachable = false;
}

/* What two bits of an answer say: something has completed at most so many looks ago. */
static const uint32_t ages[] = { UINT32_MAX, 5, 3, 1 };

enum { AGE_BITS = 2, AGE_MASK = (1 << AGE_BITS) - 1 };

_Static_assert(MDAPL_MAX_STREAMS * AGE_BITS <= 32, "an answer has bits for all streams");

uint32_t mdapl_dapl_probe_answer(const struct mdapl_dapl_peer *peer)
{
    uint64_t now = mdapl_ctx_now(peer->d->ctx), look = pause_of(peer->d);
    uint32_t all = 0;

    for (int i = 0; i < peer->n_streams && peer->d->probes.on; i++) {
        const struct mdapl_dapl_conn *conn = conn_of(&peer->stream[i]);
        uint64_t at = 0;
        uint32_t age = AGE_MASK;

        if (conn)
            at = completed(conn) != conn->probe.completed ? now : conn->probe.completed_at;
        while (age > 0 && now - at > ages[age] * look)
            age--;
        all |= age << i * AGE_BITS;
    }
    return all;
}

/* None is in flight, and there is no reason for a pause before the next one. */
static void may_ping(struct mdapl_dapl_stream *st)
{
    st->pings.n = 0;
    st->pings.next = 0;
}

/* The peer has answered the ping of a stream, made some looks ago: each connection that was suspect
 * before counts it, unless something has completed there since the last look at which it moved. */
static void answered(struct mdapl_dapl_stream *st, uint32_t says, uint64_t ago)
{
    struct mdapl_dapl_peer *peer = st->peer;

    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_conn *conn = conn_of(&peer->stream[i]);
        uint64_t age = ago + ages[says >> i * AGE_BITS & AGE_MASK];

        if (conn && age + 1 < conn->probe.pending) {
            clear(&conn->probe);
            conn->probe.pending = (uint32_t)age;
            may_ping(st);
        } else if (conn && conn->probe.pinged & 1u << st->index) {
            conn->probe.pinged = 0;
            conn->probe.answers++;
            conn->probe.grace = 0;
            conn->probe.reachable |= peer->stream[i].ia == st->ia;
            if (conn->probe.answers < ANSWERS)
                may_ping(st);
        } else {
            continue;
        }
        mdapl_dapl_event(peer, i, MDAPL_DAPL_EVENT_ANSWER, "", "", conn->probe.answers);
    }
}

void mdapl_dapl_probe_pinged(struct mdapl_dapl_stream *st, DAT_EVENT_NUMBER number,
                             const void *priv, size_t len)
{
    struct mdapl_dapl_chan *d = st->peer->d;
    struct mdapl_dapl_hello h;
    bool answer = number == DAT_CONNECTION_EVENT_PEER_REJECTED
                  && (mdapl_dapl_cm_hello_is_rejection(st, priv, len, MDAPL_HELLO_BUSY, &h)
                      || mdapl_dapl_cm_hello_is_rejection(st, priv, len, MDAPL_HELLO_GONE, &h));

    ping_over(st);
    if (answer)
        answered(st, h.rx_next, (mdapl_ctx_now(d->ctx) - st->pings.at) / pause_of(d));
}

/* -- looks ------------------------------------------------------------------------------------- */

static void note_completed(struct mdapl_dapl_conn *conn, uint64_t now)
{
    if (completed(conn) != conn->probe.completed)
        conn->probe.completed_at = now;
    conn->probe.completed = completed(conn);
}

/* Has something arrived or completed on a connection since the last look? */
static bool has_moved(struct mdapl_dapl_stream *st, struct mdapl_dapl_conn *conn, uint64_t now)
{
    struct mdapl_dapl_probe *probe = &conn->probe;
    uint64_t in = received(conn), out = completed(conn);
    bool moved = in != probe->received || out != probe->completed;

    if (in != probe->received || probe->pause == 0)
        probe->pause = 1;
    probe->received = in;
    note_completed(conn, now);
    if (!moved)
        return false;
    clear(probe);
    probe->moved = false;
    if (!st->pings.conn)
        may_ping(st);
    if (now - st->cm.up_at > MDAPL_MS(STEADY_MS))
        st->pings.verdicts = 0;
    return true;
}

/* Has something to happen on a connection that is up, without a probe? A request that is posted
 * completes; the peer's word arrives; and so does the frame by which a caller permits the acceptor
 * to transmit (conn.h). */
static bool is_awaited(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_conn *conn)
{
    return !st->up || conn->ep.req_posted > conn->ep.n_unsignaled
           || (conn->probe.promised && !conn->probe.given);
}

/* Has the peer anything of this rank's that is not acknowledged, or is anything awaited? */
static bool is_unfinished(const struct mdapl_dapl_peer *peer)
{
    if (!mdapl_dapl_peer_idle(peer))
        return true;
    for (int i = 0; i < peer->n_streams; i++) {
        const struct mdapl_dapl_conn *conn = conn_of(&peer->stream[i]);

        if (conn && is_awaited(&peer->stream[i], conn))
            return true;
    }
    return false;
}

void mdapl_dapl_probe_moved(struct mdapl_dapl_conn *conn)
{
    clear(&conn->probe);
    conn->probe.moved = true;
}

/* A connection that can move to another path does so, once; else, or if that has changed nothing,
 * it ends. */
static void give_up(struct mdapl_dapl_stream *st, struct mdapl_dapl_conn *conn)
{
    st->pings.verdicts++;
    if (!conn->probe.moved && mdapl_dapl_path_leave(conn)) {
        mdapl_dapl_probe_moved(conn);
        return;
    }
    clear(&conn->probe);
    conn->probe.moved = false;
    st->peer->d->stats->silent++;
    mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
        .kind = MDAPL_DAPL_FAULT_LOST, .stream = st->index,
        .cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_SILENT) });
}

/* Nothing has moved on a connection since the last look: if something is awaited it is suspect,
 * else it gets a probe. others: has something on another one of the peer; suspect: one of them is,
 * so there is no pause between probes. */
static void look_at(struct mdapl_dapl_stream *st, struct mdapl_dapl_conn *conn, bool others,
                    bool suspect, uint64_t now)
{
    struct mdapl_dapl_probe *probe = &conn->probe;

    if (!is_awaited(st, conn)) {
        if (++probe->quiet >= probe->pause || suspect)
            post(st);
        return;
    }
    probe->others += others;
    probe->pending++;
    probe->grace++;
    if (!is_due(st, probe))
        return;
    if (probe->answers >= ANSWERS && (probe->reachable || probe->others > 0))
        give_up(st, conn);
    else
        ping(st->peer, now);
}

static void look_at_peer(struct mdapl_dapl_peer *peer, uint64_t now)
{
    uint32_t moved = 0;
    bool suspect = false;

    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_conn *conn = conn_of(&peer->stream[i]);

        if (now >= peer->stream[i].pings.over)
            ping_over(&peer->stream[i]);
        if (conn && has_moved(&peer->stream[i], conn, now))
            moved |= 1u << i;
        suspect |= conn && conn->probe.pending >= SUSPECT;
    }
    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_conn *conn = conn_of(&peer->stream[i]);

        if (conn && !(moved & 1u << i))
            look_at(&peer->stream[i], conn, moved != 0, suspect, now);
    }
}

/* Nothing has to arrive on its connections. */
static void forget(struct mdapl_dapl_peer *peer, uint64_t now)
{
    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_conn *conn = conn_of(&peer->stream[i]);

        ping_over(&peer->stream[i]);
        if (!conn)
            continue;
        clear(&conn->probe);
        note_completed(conn, now);
    }
}

void mdapl_dapl_probe_look(struct mdapl_dapl_chan *d, uint64_t now)
{
    uint64_t pause = pause_of(d), least = 0;
    struct mdapl_dapl_peer *peer = NULL;

    d->probes.watched = 0;
    while ((peer = mdapl_dapl_peer_next(d, peer))) {
        least += MDAPL_US(PEER_US);
        if (peer->dead || !peer->recovers || peer->n_up == 0)
            continue;
        if (is_unfinished(peer)) {
            look_at_peer(peer, now);
            d->probes.watched++;
        } else {
            forget(peer, now);
        }
    }
    d->probes.at = now + (least > pause ? least : pause);
}
