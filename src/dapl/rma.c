/* SPDX-License-Identifier: MIT */
#include "rma.h"

#include "body.h"
#include "cfg.h"
#include "cm.h"
#include "conn.h"
#include "frames.h"
#include "peer.h"
#include "stats.h"
#include "xfer.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert((int)MDAPL_WHERE_BYTES >= (int)MDAPL_SEGS_BYTES, "room for all pieces");
_Static_assert(MDAPL_MAX_STREAMS <= 32, "a set of streams");

/* -- exposed memory --------------------------------------------------------------------------- */

struct exposed {
    struct mdapl_exposed base;
    struct mdapl_list link;          /* on d->exposed */
    struct mdapl_dapl_chan *d;
    struct mdapl_dapl_body body;
};

enum { PEERS_USE = MDAPL_LMR_REMOTE_READ | MDAPL_LMR_REMOTE_WRITE };

static struct exposed *exposed_of(struct mdapl_exposed *base)
{
    return MDAPL_OF(base, struct exposed, base);
}

static void withdraw(struct mdapl_exposed *base)
{
    struct exposed *e = exposed_of(base);

    mdapl_list_remove(&e->link);
    mdapl_dapl_body_free(&e->body);
    free(e);
}

static void describe(struct mdapl_exposed *base, struct mdapl_where *where)
{
    struct exposed *e = exposed_of(base);
    int n = e->d->rails.n;
    struct mdapl_dapl_segs segs;

    /* On rails that have been opened again, too. */
    mdapl_dapl_body_register(&e->body, e->d->regs, PEERS_USE, n);
    where->len = 0;
    if (mdapl_dapl_body_describe(&e->body, 0, n, &segs))
        where->len = (uint16_t)mdapl_dapl_segs_put(&segs, where->bytes);
}

static const struct mdapl_exposed_ops exposed_ops = { .describe = describe, .withdraw = withdraw };

/* Do the adapters and the knobs allow transfers without frames? */
static bool has_rma(const struct mdapl_dapl_chan *d)
{
    return d->rails.max.placed && mdapl_ctx_cfg(d->ctx)->rndv != MDAPL_RNDV_COPY;
}

int mdapl_dapl_rma_expose(void *state, void *base, size_t len, struct mdapl_exposed **e_p)
{
    struct mdapl_dapl_chan *d = state;
    struct iovec v = { base, len };
    struct exposed *e;

    if (!has_rma(d))
        return -ENOTSUP;
    e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->base.ops = &exposed_ops;
    e->d = d;
    mdapl_list_init(&e->link);
    if (mdapl_dapl_body_init(&e->body, d->rails.lmr_max, &v, 1, len)
        || e->body.n > MDAPL_MAX_SEGS
        || !mdapl_dapl_body_register(&e->body, d->regs, PEERS_USE, d->rails.n)) {
        withdraw(&e->base);
        return -ENOMEM;
    }
    mdapl_list_append(&d->exposed, &e->link);
    *e_p = &e->base;
    return 0;
}

void mdapl_dapl_rma_fini(struct mdapl_dapl_chan *d)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&d->exposed)))
        withdraw(&MDAPL_OF(l, struct exposed, link)->base);
}

/* -- puts and gets ---------------------------------------------------------------------------- */

struct rma {
    struct mdapl_list link;          /* on peer->rma, or on peer->rma_waiting when it has stopped */
    struct mdapl_dapl_peer *peer;
    struct mdapl_op *op;
    int status;                      /* that of the lost peer; 0 */
    uint32_t broken;                 /* a set of streams: a write has failed on the connection of
                                      * each, which has not been replaced yet */
    uint64_t off, len;               /* in the peer's memory */
    struct mdapl_dapl_body local;
    struct mdapl_dapl_segs remote;
    struct mdapl_dapl_xfer move;     /* of the bytes that are missing */
};

static const struct way {
    unsigned local_use;
    size_t counter;
} ways[] = {
    [MDAPL_DTO_WRITE] = { MDAPL_LMR_REMOTE_READ, offsetof(struct mdapl_stats, rma_puts) },
    /* As the memory of a body that is read (rndv_rx.c). */
    [MDAPL_DTO_READ] = { MDAPL_LMR_REMOTE_WRITE, offsetof(struct mdapl_stats, rma_gets) },
};

static struct mdapl_stats *stats_of(const struct rma *r)
{
    return r->peer->d->stats;
}

static void release(struct rma *r)
{
    mdapl_list_remove(&r->link);
    mdapl_dapl_body_free(&r->local);
    free(r);
}

static void finish(struct rma *r, int status)
{
    struct mdapl_op *op = r->op;

    stats_of(r)->rma_stranded += status == -ESTALE;
    release(r);
    op->done(op, status);
}

/* What has not been transferred is, once nothing of the old connections can be placed any more. */
static void wait(struct rma *r)
{
    mdapl_list_remove(&r->link);
    mdapl_list_append(&r->peer->rma_waiting, &r->link);
    mdapl_dapl_peer_wake(r->peer);
}

/* xfer->over. */
static void over(struct mdapl_dapl_xfer *m)
{
    struct rma *r = MDAPL_OF(m, struct rma, move);
    struct mdapl_stats *stats = stats_of(r);

    if (r->status) {
        finish(r, r->status);
    } else if (m->stopped) {
        wait(r);
    } else {
        *(uint64_t *)(void *)((char *)stats + ways[m->kind].counter) += 1;
        stats->rma_bytes += r->len;
        finish(r, 0);
    }
}

/* xfer->failed. */
static void failed(struct mdapl_dapl_xfer *m, const struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_stream *st = &m->peer->stream[conn->stream];

    if (m->kind != MDAPL_DTO_WRITE || conn->epoch == st->drained_there)
        return;
    MDAPL_OF(m, struct rma, move)->broken |= 1u << conn->stream;
    st->put_failed = conn->epoch;
}

/* xfer->stranded. */
static void strand(struct mdapl_dapl_xfer *m)
{
    if (!mdapl_dapl_xfer_stop(m))
        wait(MDAPL_OF(m, struct rma, move));
}

/* Transfers the bytes from `at` on. */
static void start(struct rma *r, enum mdapl_dapl_dto_kind kind, uint64_t at)
{
    mdapl_list_remove(&r->link);
    mdapl_list_append(&r->peer->rma, &r->link);
    r->move = (struct mdapl_dapl_xfer){
        .peer = r->peer, .kind = kind, .local = &r->local, .local_off = at, .remote = &r->remote,
        .remote_off = r->off + at, .body_at = at, .len = r->len - at,
        .once = kind == MDAPL_DTO_WRITE, .window = kind == MDAPL_DTO_WRITE && at > 0,
        .failed = failed, .stranded = strand, .over = over,
    };
    mdapl_dapl_xfer_start(&r->move);
}

/* Is there a stream for it, or may there be one soon? */
static bool is_possible(const struct rma *r)
{
    bool any_up = false;

    for (int i = 0; i < r->peer->n_streams; i++) {
        const struct mdapl_dapl_stream *st = &r->peer->stream[i];

        if (!mdapl_dapl_stream_up(st))
            continue;
        if (mdapl_dapl_segs_have(&r->remote, st->ia->rail, st->up->peer_generation)
            && mdapl_dapl_body_has(&r->local, st->ia->rail))
            return true;
        any_up = true;
    }
    return !any_up;
}

static int begin(struct mdapl_peer *base, enum mdapl_dapl_dto_kind kind,
                 const struct mdapl_where *where, uint64_t off, void *local, size_t len,
                 struct mdapl_op *op)
{
    struct mdapl_dapl_peer *peer = mdapl_dapl_peer_of(base);
    struct mdapl_dapl_chan *d = peer->d;
    struct iovec v = { local, len };
    struct rma *r;
    uint64_t total;
    int rc = 0;

    if (peer->dead)
        return peer->dead;
    if (!has_rma(d) || (kind == MDAPL_DTO_READ && !d->can_read))
        return -ENOTSUP;
    r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    mdapl_list_init(&r->link);
    r->peer = peer;
    r->op = op;
    r->off = off;
    r->len = len;
    if (!mdapl_dapl_segs_get(&r->remote, where->bytes, where->len, &total)
        || len == 0 || off > total || len > total - off)
        rc = -EINVAL;
    else if (mdapl_dapl_body_init(&r->local, d->rails.lmr_max, &v, 1, len)
             || !mdapl_dapl_body_register(&r->local, d->regs, ways[kind].local_use,
                                          peer->n_rails))
        rc = -ENOMEM;
    else if (!is_possible(r))
        rc = -ESTALE;
    if (rc) {
        release(r);
        return rc;
    }
    mdapl_dapl_cm_connect(peer);
    start(r, kind, 0);
    return 0;
}

int mdapl_dapl_rma_put(struct mdapl_peer *peer, const struct mdapl_where *to, uint64_t off,
                       const void *from, size_t len, struct mdapl_op *op)
{
    return begin(peer, MDAPL_DTO_WRITE, to, off, (void *)(uintptr_t)from, len, op);
}

int mdapl_dapl_rma_get(struct mdapl_peer *peer, const struct mdapl_where *from, uint64_t off,
                       void *to, size_t len, struct mdapl_op *op)
{
    return begin(peer, MDAPL_DTO_READ, from, off, to, len, op);
}

bool mdapl_dapl_rma_busy(const struct mdapl_dapl_peer *peer)
{
    return !mdapl_list_empty(&peer->rma) || !mdapl_list_empty(&peer->rma_waiting);
}

/* -- connections that end and follow each other ----------------------------------------------- */

static void clear(struct mdapl_list *list, int stream)
{
    MDAPL_LIST_EACH(pos, list)
        MDAPL_OF(pos, struct rma, link)->broken &= ~(1u << stream);
}

void mdapl_dapl_rma_up(struct mdapl_dapl_stream *st)
{
    clear(&st->peer->rma, st->index);
    clear(&st->peer->rma_waiting, st->index);
}

/* An item for the frame; NULL: memory is out, and the peer fails. */
static struct mdapl_dapl_item *get_item(struct mdapl_dapl_peer *peer,
                                        enum mdapl_dapl_frame_type type)
{
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(peer, type);

    if (!it)
        mdapl_dapl_out_of_memory(peer, "a question about a connection");
    return it;
}

/* Asks the peer whether the connections on which this put has failed have drained there, once for
 * each, if there is a stream that can carry the question. */
static void ask(const struct rma *r)
{
    struct mdapl_dapl_peer *peer = r->peer;

    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_stream *st = &peer->stream[i];
        struct mdapl_dapl_ended ended = { (uint32_t)i, st->put_failed };
        struct mdapl_dapl_item *it;

        if (!(r->broken & 1u << i) || st->put_failed == st->ended_sent
            || peer->n_up == (int)mdapl_dapl_stream_up(st)
            || !(it = get_item(peer, MDAPL_FRAME_ENDED)))
            continue;
        st->ended_sent = st->put_failed;
        it->len = (uint32_t)mdapl_dapl_ended_put(&ended, it->u.bytes);
        mdapl_dapl_item_queue(peer, it);
    }
}

static void answer(struct mdapl_dapl_stream *st)
{
    struct mdapl_dapl_drained drained = { (uint32_t)st->index, st->asked };
    struct mdapl_dapl_item *it;

    if (!mdapl_dapl_conn_is_over(st, st->asked))
        return;
    mdapl_list_remove(&st->asking);
    if (st->peer->dead || !(it = get_item(st->peer, MDAPL_FRAME_DRAINED)))
        return;
    it->len = (uint32_t)mdapl_dapl_drained_put(&drained, it->u.bytes);
    mdapl_dapl_item_queue(st->peer, it);
}

void mdapl_dapl_rma_drained(struct mdapl_dapl_chan *d)
{
    MDAPL_LIST_EACH_SAFE(pos, &d->asked)
        answer(MDAPL_OF(pos, struct mdapl_dapl_stream, asking));
}

bool mdapl_dapl_on_ended(struct mdapl_dapl_stream *st, const struct mdapl_dapl_ended *ended,
                         const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_stream *on;

    (void)f, (void)p;
    if ((int)ended->stream >= peer->n_streams)
        return false;
    on = &peer->stream[ended->stream];
    mdapl_list_remove(&on->asking);
    mdapl_list_append(&peer->d->asked, &on->asking);
    on->asked = ended->epoch;
    mdapl_dapl_lost_by_peer(on, ended->epoch);
    answer(on);
    return true;
}

bool mdapl_dapl_on_drained(struct mdapl_dapl_stream *st, const struct mdapl_dapl_drained *drained,
                           const struct mdapl_dapl_frame *f, const uint8_t *p)
{
    struct mdapl_dapl_peer *peer = st->peer;
    struct mdapl_dapl_stream *on;

    (void)f, (void)p;
    if ((int)drained->stream >= peer->n_streams)
        return false;
    on = &peer->stream[drained->stream];
    if (drained->epoch > on->ended_sent)
        return false;
    on->drained_there = drained->epoch;
    /* A put that has failed on a later connection of the stream is another question. */
    if (drained->epoch == on->put_failed)
        mdapl_dapl_rma_up(on);
    mdapl_dapl_peer_wake(peer);
    return true;
}

/* Nothing of it can be placed any more: it goes on, or ends. */
static void go_on(struct rma *r)
{
    if (r->peer->dead) {
        finish(r, r->peer->dead);
        return;
    }
    mdapl_dapl_body_register(&r->local, r->peer->d->regs, ways[r->move.kind].local_use,
                             r->peer->n_rails);
    if (!is_possible(r)) {
        finish(r, -ESTALE);
        return;
    }
    stats_of(r)->rma_restarts += r->move.kind == MDAPL_DTO_WRITE;
    start(r, r->move.kind, r->move.end);
}

int mdapl_dapl_rma_go_on(struct mdapl_dapl_peer *peer)
{
    struct mdapl_list todo, *l;
    int n = 0;

    if (mdapl_list_empty(&peer->rma_waiting))
        return 0;
    /* Those that stop again at once wait for the next round. */
    todo = peer->rma_waiting;
    todo.next->prev = todo.prev->next = &todo;
    mdapl_list_init(&peer->rma_waiting);
    while ((l = mdapl_list_take(&todo))) {
        struct rma *r = MDAPL_OF(l, struct rma, link);

        if (r->broken && !peer->dead) {
            mdapl_list_append(&peer->rma_waiting, &r->link);
            ask(r);
        } else {
            go_on(r);
            n++;
        }
    }
    return n;
}

/* -- a lost peer ------------------------------------------------------------------------------ */

/* The first in progress that has not been stopped for it; looked for anew each time, as op->done()
 * may begin and end any. */
static struct rma *unfailed(struct mdapl_dapl_peer *peer)
{
    MDAPL_LIST_EACH(pos, &peer->rma)
        if (!MDAPL_OF(pos, struct rma, link)->status)
            return MDAPL_OF(pos, struct rma, link);
    return NULL;
}

void mdapl_dapl_rma_fail(struct mdapl_dapl_peer *peer, int status)
{
    struct mdapl_list *l;
    struct rma *r;

    while ((l = mdapl_list_first(&peer->rma_waiting)))
        finish(MDAPL_OF(l, struct rma, link), status);
    while ((r = unfailed(peer))) {
        r->status = status;
        if (!mdapl_dapl_xfer_stop(&r->move))
            finish(r, status);
    }
}

void mdapl_dapl_rma_free(struct mdapl_dapl_peer *peer)
{
    struct mdapl_list *l;

    for (int i = 0; i < peer->n_streams; i++)
        mdapl_list_remove(&peer->stream[i].asking);
    while ((l = mdapl_list_first(&peer->rma))) {
        struct rma *r = MDAPL_OF(l, struct rma, link);

        mdapl_dapl_xfer_free(&r->move);
        finish(r, r->status);
    }
}
