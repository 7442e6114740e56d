/* SPDX-License-Identifier: MIT */
/* The receiving end of a rendezvous (rndv.h). */
#include "rndv.h"

#include "peer.h"

#include "channel.h"
#include "min.h"
#include "rx_op.h"
#include "stats.h"

#include <errno.h>
#include <string.h>

enum {
    CALL_BYTES = 1 << 19,        /* of several bodies that one system call copies, at most */
    ALONE = 16,                  /* bodies that end a round of progress each, after one that has */
};

/* The receiving end, from the RTS to the last byte or the drop. */
struct long_rx {
    struct mdapl_rx rx;          /* what the owner holds */
    struct mdapl_list link;      /* on peer->bodies */
    struct mdapl_shm_peer *peer;
    uint32_t tx_id, id;          /* the sender's, this rank's (0: none yet) */
    size_t len, at;              /* bytes of the body: all, read */
    size_t by_cells;             /* ... requested through cells */
    struct mdapl_rx_op read;     /* a read in progress, through cells or split, or one that waits */
    struct mdapl_list later;     /* ... for its turn: this is on peer->later, */
    enum mdapl_shm_way way_later;
    struct mdapl_shm_copy copy;  /* ... its copy */
    struct mdapl_shm_split split;
    bool refused;                /* ... the kernel did not copy all that this end took */
    struct mdapl_pieces from;    /* addresses in the sender's memory; none: they were too many */
};

void mdapl_shm_rndv_rx_init(struct mdapl_shm_chan *s)
{
    mdapl_idmap_init(&s->rx_ids);
    mdapl_pool_init(&s->bodies, sizeof(struct long_rx), sizeof(void *), MDAPL_SHM_RNDV_CHUNK, 0);
}

void mdapl_shm_rndv_rx_fini(struct mdapl_shm_chan *s)
{
    mdapl_idmap_fini(&s->rx_ids);
    mdapl_pool_fini(&s->bodies);
}

/* -- the end of a body ------------------------------------------------------------------------ */

/* Ends a read; whole: all its bytes have arrived. */
static struct mdapl_op *end_read(struct long_rx *r, bool whole)
{
    bool begun = r->read.op && mdapl_list_empty(&r->later);

    mdapl_list_remove(&r->later);
    if (r->split.word)
        mdapl_shm_split_free(r->peer, &r->split);
    if (begun)
        mdapl_shm_way_end(r->peer, &r->copy, whole);
    return mdapl_rx_op_end(&r->read);
}

static void rx_free(struct long_rx *r)
{
    mdapl_inbox_over(&r->peer->inbox, &r->rx);
    if (r->id)
        mdapl_idmap_remove(&r->peer->s->rx_ids, r->id);
    mdapl_list_remove(&r->link);
    end_read(r, false);
    mdapl_pieces_free(&r->from);
    mdapl_pool_give(&r->peer->s->bodies, r);
}

static void send_fins(struct mdapl_shm_peer *peer, const struct mdapl_shm_fin *fin)
{
    if (!peer->dead && mdapl_shm_tx_record(peer, MDAPL_SHM_FIN, fin, sizeof(*fin)))
        mdapl_shm_peer_broken(peer, -ENOMEM, "out of memory");
}

static void send_fin(struct long_rx *r, int status)
{
    struct mdapl_shm_fin fin = { { r->tx_id }, 1, status,
                                 mdapl_shm_way_wanted(r->peer, r->len) };

    send_fins(r->peer, &fin);
}

/* Counts n more bytes as read; the last one ends the body. */
static void advance(struct long_rx *r, size_t n)
{
    r->at += n;
    r->rx.left -= n;
    if (r->rx.left > 0)
        return;
    if (r->by_cells < r->len)
        send_fin(r, 0);
    rx_free(r);
}

static struct long_rx *long_rx_of(struct mdapl_rx *rx)
{
    return MDAPL_OF(rx, struct long_rx, rx);
}

static void rx_drop(struct mdapl_rx *rx)
{
    struct long_rx *r = long_rx_of(rx);

    send_fin(r, r->at > 0 ? 0 : -ECANCELED);
    rx_free(r);
}

/* -- a read ----------------------------------------------------------------------------------- */

/* Copies `bodies` of len bytes each at once; their time is one of `way`. False: the kernel refused.
 * */
static bool copy_once(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, size_t len,
                      unsigned bodies, struct mdapl_iov here, struct mdapl_iov there)
{
    struct mdapl_shm_copy copy;
    bool done;

    mdapl_shm_way_begin(peer, way, len, bodies, &copy);
    done = mdapl_shm_cma_read(peer, &here, &there, len * bodies);
    mdapl_shm_way_end(peer, &copy, done);
    return done;
}

static bool read_once(struct long_rx *r, enum mdapl_shm_way way, const struct iovec *iov, int n,
                      size_t want)
{
    struct mdapl_iov there = mdapl_iov_start(r->from.v, r->from.n);

    mdapl_iov_skip(&there, r->at);
    return copy_once(r->peer, way, want, 1, mdapl_iov_start(iov, n), there);
}

/* Begins a read that other messages will end, unless it has waited. 0 or -ENOMEM. */
static int begin_read(struct long_rx *r, const struct iovec *iov, int n, size_t want,
                      struct mdapl_op *op)
{
    if (!r->id && mdapl_idmap_add(&r->peer->s->rx_ids, r, &r->id))
        return -ENOMEM;
    return r->read.op ? 0 : mdapl_rx_op_begin(&r->read, &r->peer->reading, iov, n, want, op);
}

/* Requests the bytes of the read through cells. 0 or -ENOMEM. */
static int request(struct long_rx *r)
{
    struct mdapl_shm_cts cts = { r->tx_id, r->id, r->at, r->read.want,
                                 mdapl_shm_way_wanted(r->peer, r->len) };

    r->by_cells += r->read.want;
    mdapl_shm_way_begin(r->peer, MDAPL_SHM_TWICE, r->read.want, 1, &r->copy);
    return mdapl_shm_tx_record(r->peer, MDAPL_SHM_CTS, &cts, sizeof(cts));
}

static int read_twice(struct long_rx *r, const struct iovec *iov, int n, size_t want,
                      struct mdapl_op *op)
{
    int rc = begin_read(r, iov, n, want, op);

    if (rc == 0 && (rc = request(r)))
        end_read(r, false);
    return rc;
}

/* All parts that this end and the sender have taken are there; or not: then all bytes of the read
 * are requested. MDAPL_DONE, 0 or -ENOMEM. */
static int end_split(struct long_rx *r, bool whole)
{
    if (whole)
        return MDAPL_DONE;
    mdapl_shm_split_free(r->peer, &r->split);
    mdapl_shm_way_end(r->peer, &r->copy, false);
    return request(r);
}

/* Copies parts of the split, which has begun. MDAPL_DONE: all of them; 0: the sender has others, or
 * the kernel refused; -ENOMEM. */
static int read_both(struct long_rx *r, const struct iovec *iov, size_t want, struct mdapl_op *op)
{
    struct mdapl_iov there = mdapl_iov_start(r->from.v, r->from.n);
    int rc = begin_read(r, iov, 1, want, op);
    struct mdapl_shm_split_at at = { r->tx_id, r->id, r->split.number, r->split.index, r->at, want,
                                     (uint64_t)(uintptr_t)iov->iov_base };

    mdapl_shm_cma_allow(r->peer->s, want);
    if (rc == 0)
        mdapl_shm_way_begin(r->peer, MDAPL_SHM_BOTH, want, 1, &r->copy);
    if (rc == 0 && (rc = mdapl_shm_tx_record(r->peer, MDAPL_SHM_SPLIT, &at, sizeof(at))) == 0) {
        mdapl_iov_skip(&there, r->at);
        r->refused = mdapl_shm_split_read(r->peer, &r->split, mdapl_iov_start(iov, 1), there)
                     < r->split.taken;
        if (r->split.taken == r->split.parts)
            rc = end_split(r, !r->refused);
    }
    if (rc)
        end_read(r, rc == MDAPL_DONE);
    return rc;
}

/* MDAPL_DONE, 0 or -ENOMEM. */
static int read_now(struct long_rx *r, enum mdapl_shm_way way, const struct iovec *iov, int n,
                    size_t want, struct mdapl_op *op)
{
    struct mdapl_stats *stats = r->peer->s->stats;
    bool first = r->at == 0;
    uint64_t *counter;
    int rc;

    /* If as many bodies are split as can be, this end copies one while the sender copies those. */
    if (way == MDAPL_SHM_BOTH && mdapl_shm_split_begin(r->peer, want, &r->split)) {
        counter = &stats->shm_split_copies;
        rc = read_both(r, iov, want, op);
    } else if (way != MDAPL_SHM_TWICE && read_once(r, way, iov, n, want)) {
        counter = &stats->shm_single_copies;
        rc = MDAPL_DONE;
    } else {                     /* if the kernel refused, one copy is not chosen from now on */
        counter = &stats->shm_copies;
        rc = read_twice(r, iov, n, want, op);
    }
    if (rc >= 0)
        *counter += first;
    return rc;
}

/* A copy that this core makes waits until the round of progress has taken what is in the rings, or
 * for the next round: bodies that have been announced one after the other are copied together, and
 * the caller may be about to send some, which the peer copies meanwhile. 0 or -ENOMEM. */
static int read_later(struct long_rx *r, enum mdapl_shm_way way, const struct iovec *iov, int n,
                      size_t want, struct mdapl_op *op)
{
    int rc = mdapl_rx_op_begin(&r->read, &r->peer->reading, iov, n, want, op);

    if (rc)
        return rc;
    r->way_later = way;
    mdapl_list_append(&r->peer->later, &r->later);
    mdapl_shm_peer_wake(r->peer);
    return 0;
}

/* Whole bodies of one length, each in one piece at both ends, that one system call copies: the
 * kernel finds the peer, and whether this process may read it, once for all of them. */
struct call {
    struct mdapl_list bodies;    /* that have waited */
    unsigned n;
    size_t len;
    struct iovec here[MDAPL_SHM_RNDV_TOGETHER], there[MDAPL_SHM_RNDV_TOGETHER];
};

static struct long_rx *waiting(struct mdapl_list *l)
{
    return l ? MDAPL_OF(l, struct long_rx, later) : NULL;
}

static bool fits(const struct call *call, const struct long_rx *r)
{
    return r->way_later == MDAPL_SHM_ONCE && r->read.want == r->len && r->read.to.n == 1
           && r->from.n == 1
           && (call->n == 0 || (call->n < MDAPL_SHM_RNDV_TOGETHER && r->len == call->len
                                && r->len <= CALL_BYTES / (call->n + 1)));
}

static void add(struct call *call, struct long_rx *r)
{
    call->len = r->len;
    call->here[call->n] = (struct iovec){ r->read.to.v->iov_base, r->len };
    call->there[call->n++] = *r->from.v;
    mdapl_list_remove(&r->later);
    mdapl_list_append(&call->bodies, &r->later);
}

/* False: the kernel refused. */
static bool copy_together(struct mdapl_shm_peer *peer, const struct call *call)
{
    return copy_once(peer, MDAPL_SHM_ONCE, call->len, call->n,
                     mdapl_iov_start(call->here, (int)call->n),
                     mdapl_iov_start(call->there, (int)call->n));
}

/* Ends the reads of a call, and their bodies by one FIN. Returns how many. */
static int end_call(struct mdapl_shm_peer *peer, struct call *call)
{
    struct mdapl_shm_fin fin = { .way = mdapl_shm_way_wanted(peer, call->len) };
    struct long_rx *r;

    /* From the list each time: op->done of one read may drop another body. */
    while ((r = waiting(mdapl_list_take(&call->bodies)))) {
        struct mdapl_op *op = mdapl_rx_op_end(&r->read);

        fin.tx_id[fin.n++] = r->tx_id;
        rx_free(r);
        op->done(op, 0);
    }
    peer->s->stats->shm_single_copies += fin.n;
    if (fin.n > 0)
        send_fins(peer, &fin);
    return (int)fin.n;
}

static void read_in_turn(struct long_rx *r)
{
    struct mdapl_op *op = r->read.op;
    int rc = read_now(r, r->way_later, r->read.to.v, r->read.to.n, r->read.want, op);

    if (rc == 0)
        return;
    mdapl_rx_op_end(&r->read);
    if (rc == MDAPL_DONE)
        advance(r, r->read.want);
    op->done(op, rc == MDAPL_DONE ? 0 : rc);
}

int mdapl_shm_rndv_read_waiting(struct mdapl_shm_peer *peer)
{
    struct long_rx *r;
    struct call call;
    int n;

    if (mdapl_list_empty(&peer->later))
        return 0;
    call.n = 0;                  /* all else is set with each body */
    mdapl_list_init(&call.bodies);
    while ((r = waiting(mdapl_list_first(&peer->later))) && fits(&call, r))
        add(&call, r);
    if (call.n > 0 && copy_together(peer, &call))
        return end_call(peer, &call);
    if (call.n == 0)
        mdapl_list_append(&call.bodies, mdapl_list_take(&peer->later));
    for (n = 0; (r = waiting(mdapl_list_take(&call.bodies))); n++)
        read_in_turn(r);
    return n;
}

static int rx_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    struct long_rx *r = long_rx_of(rx);
    size_t room = mdapl_iov_len(iov, n), want = mdapl_min(room, rx->left);
    enum mdapl_shm_way way;

    if (r->peer->dead)
        return r->peer->dead;
    if (r->read.op)
        return -EBUSY;
    if (want == 0)
        return MDAPL_DONE;
    way = mdapl_shm_way_choose(r->peer, want, r->from.n > 0);
    if (way == MDAPL_SHM_BOTH && n > 1)
        way = MDAPL_SHM_ONCE;
    return way == MDAPL_SHM_TWICE ? read_now(r, way, iov, n, want, op)
                                  : read_later(r, way, iov, n, want, op);
}

static const struct mdapl_rx_ops long_ops = {
    .read = rx_read, .drop = rx_drop
};

/* -- messages --------------------------------------------------------------------------------- */

/* Ends a read: all bytes have arrived, or it fails with status. */
static void read_over(struct mdapl_rx_op *read, int status)
{
    struct long_rx *r = MDAPL_OF(read, struct long_rx, read);
    struct mdapl_op *op = end_read(r, status == 0);

    if (status == 0)
        advance(r, read->want);
    op->done(op, status);
}

static bool rts_right(const struct mdapl_shm_rts *rts, size_t len)
{
    return len >= sizeof(*rts) && rts->n_pieces <= MDAPL_SHM_RTS_PIECES && rts->len > 0
           && len == sizeof(*rts) + rts->n_pieces * sizeof(struct mdapl_shm_rts_piece);
}

/* Copies the pieces at p. False: their lengths do not add up to the body's. */
static bool take_pieces(struct long_rx *r, const char *p)
{
    size_t sum = 0;

    for (int i = 0; i < r->from.n; i++, p += sizeof(struct mdapl_shm_rts_piece)) {
        struct mdapl_shm_rts_piece piece;

        memcpy(&piece, p, sizeof(piece));
        if (piece.len > r->rx.left - sum)
            return false;
        r->from.v[i] = (struct iovec){ (void *)(uintptr_t)piece.addr, piece.len };
        sum += piece.len;
    }
    return r->from.n == 0 || sum == r->rx.left;
}

/* The state of a body that has been announced, with room for its pieces. NULL: out of memory. */
static struct long_rx *make_rx(struct mdapl_shm_peer *peer, const struct mdapl_shm_rts *rts)
{
    struct long_rx *r = mdapl_pool_take(&peer->s->bodies);

    if (!r)
        return NULL;
    if (!mdapl_pieces_make(&r->from, (int)rts->n_pieces)) {
        mdapl_pool_give(&peer->s->bodies, r);
        return NULL;
    }
    r->rx = (struct mdapl_rx){ &long_ops, rts->len };
    r->peer = peer;
    r->tx_id = rts->tx_id;
    r->id = 0;
    r->len = rts->len;
    r->at = r->by_cells = 0;
    r->split.word = NULL;
    mdapl_rx_op_init(&r->read, read_over);
    mdapl_list_init(&r->later);
    mdapl_list_append(&peer->bodies, &r->link);
    return r;
}

bool mdapl_shm_rndv_on_rts(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    const struct mdapl_list *last = peer->later.prev;
    struct mdapl_shm_rts rts = { 0 };
    struct long_rx *r;

    memcpy(&rts, m->body, mdapl_min(m->len, sizeof(rts)));
    if (!rts_right(&rts, m->len))
        return false;
    r = make_rx(peer, &rts);
    if (!r)
        return mdapl_shm_peer_no_memory(peer);
    mdapl_shm_flow_comes(peer);
    if (!take_pieces(r, (const char *)m->body + sizeof(rts))) {
        rx_free(r);
        return false;
    }
    if (mdapl_inbox_announce(&peer->inbox, m->hdr, m->hdr_len, &r->rx))
        return mdapl_shm_peer_no_memory(peer);
    /* A body that waits has its place; others may have one soon, if the round ends with them. */
    if (peer->later.prev == last)
        peer->alone = ALONE;
    else
        peer->alone -= peer->alone > 0;
    return true;
}

bool mdapl_shm_rndv_on_data(struct mdapl_shm_peer *peer, const struct mdapl_shm_data *data,
                            const uint8_t *bytes)
{
    struct long_rx *r = mdapl_idmap_find(&peer->s->rx_ids, data->rx_id);

    if (!r || r->peer != peer || !r->read.op || r->tx_id != data->tx_id
        || data->off != r->at + r->read.got || data->len > r->read.want - r->read.got)
        return false;
    mdapl_rx_op_put(&r->read, bytes, data->len);
    mdapl_shm_way_arrived(peer, data);
    if (r->read.got == r->read.want)
        read_over(&r->read, 0);
    return true;
}

bool mdapl_shm_rndv_on_split_end(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_split_end end;
    struct long_rx *r;
    uint32_t theirs;
    int rc;

    memcpy(&end, m->hdr, sizeof(end));
    r = mdapl_idmap_find(&peer->s->rx_ids, end.rx_id);
    if (!r || r->peer != peer || r->tx_id != end.tx_id || !r->split.word)
        return false;
    theirs = r->split.parts - r->split.taken;
    if (end.parts > theirs)
        return false;
    if (end.parts < theirs)
        mdapl_shm_way_no_writes(peer);
    rc = end_split(r, end.parts == theirs && !r->refused);
    if (rc == MDAPL_DONE)
        read_over(&r->read, 0);
    return rc >= 0 || mdapl_shm_peer_no_memory(peer);
}

/* -- the end ---------------------------------------------------------------------------------- */

void mdapl_shm_rndv_free(struct mdapl_shm_peer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->bodies)))
        rx_free(MDAPL_OF(l, struct long_rx, link));
}
