/* SPDX-License-Identifier: MIT */
/*
 * Rendezvous, for long bodies and for synchronous messages. The sender announces the body (RTS)
 * and leaves it in place; when the owner reads, the receiver copies it in one of three ways. When
 * all has been read or dropped the receiver sends a FIN, unless the sender knows: it has sent
 * every byte.
 *
 *      once    The receiver reads the body out of the sender's memory, if the kernel permits
 *              (cross-memory attach). The sender's core does nothing; the kernel pins each page.
 *      both    The same, but the sender copies parts of the body, too, in the same way (SPLIT): two
 *              cores, and one copy.
 *      twice   The receiver requests bytes (CTS); the sender copies them into cells of its segment
 *              while the receiver copies them out (one DATA for each cell): two cores, no system
 *              call.
 *
 * RTS and FIN are messages of a ring, so their memory order (ring.h) covers the body: the receiver
 * and its kernel see all bytes after the RTS, and the sender may change them after the FIN. So is
 * SPLIT_END, after which the receiver sees the sender's parts.
 *
 * Which one is faster depends on the machine and on the length: way.c decides for each body.
 */
#include "peer.h"

#include "channel.h"
#include "min.h"
#include "rx_op.h"
#include "stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SEGS = 64 };              /* pieces of a body in an RTS, at most */

/* The body of an RTS; n_segs of struct seg follow, the pieces of the body in the sender's memory.
 * */
struct rts {
    uint64_t len;
    uint32_t tx_id, n_segs;      /* n_segs 0: the body has more than SEGS pieces */
};

struct seg {
    uint64_t addr, len;
};

/* The sending end, from mdapl_send() to the FIN. */
struct mdapl_shm_rndv {
    struct mdapl_list link;      /* on peer->sends */
    struct mdapl_list streaming; /* on peer->streaming while requested bytes are to be sent */
    struct mdapl_op *op;
    struct mdapl_shm_peer *peer;
    uint32_t id;
    bool announced;              /* the RTS has been sent, so the receiver may use the id */
    size_t len;
    struct mdapl_shm_cts cts;    /* the last one received */
    size_t sent;                 /* bytes that it requests, transmitted */
    size_t requested;            /* ... that it and those before it request */
    struct mdapl_iov cursor;     /* at the next of them */
    int n_body;
    struct iovec body[];
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
    struct mdapl_list later;     /* ... for progress: this is on peer->later, */
    enum mdapl_shm_way way_later;
    int n_later;                 /* ... and so many pieces are its destination */
    struct mdapl_shm_copy copy;  /* ... its copy */
    struct mdapl_shm_split split;
    bool refused;                /* ... the kernel did not copy all that this end took */
    uint32_t n_segs;
    struct iovec seg[];          /* addresses in the sender's memory */
};

/* -- sending ---------------------------------------------------------------------------------- */

struct mdapl_shm_rndv *mdapl_shm_rndv_send(struct mdapl_shm_peer *peer,
                                           const struct mdapl_msg *msg, size_t len,
                                           struct mdapl_op *op)
{
    struct mdapl_shm_rndv *send = malloc(sizeof(*send)
                                         + (size_t)msg->n_body * sizeof(send->body[0]));

    if (!send)
        return NULL;
    *send = (struct mdapl_shm_rndv){ .op = op, .peer = peer, .len = len };
    for (int i = 0; i < msg->n_body; i++)
        if (msg->body[i].iov_len > 0)
            send->body[send->n_body++] = msg->body[i];
    if (mdapl_idmap_add(&peer->s->tx_ids, send, &send->id)) {
        free(send);
        return NULL;
    }
    mdapl_list_append(&peer->sends, &send->link);
    mdapl_list_init(&send->streaming);
    mdapl_shm_cma_allow(peer->s, len);
    return send;
}

static void send_end(struct mdapl_shm_rndv *send, int status)
{
    struct mdapl_op *op = send->op;

    if (status == 0)
        mdapl_shm_flow_sent(send->peer, send->requested > 0 ? MDAPL_SHM_TWICE : MDAPL_SHM_ONCE,
                            send->len);
    mdapl_idmap_remove(&send->peer->s->tx_ids, send->id);
    mdapl_list_remove(&send->link);
    mdapl_list_remove(&send->streaming);
    free(send);
    op->done(op, status);
}

bool mdapl_shm_rndv_put_rts(struct mdapl_shm_rndv *send, const void *hdr, size_t hdr_len)
{
    struct {
        struct rts rts;
        struct seg seg[SEGS];
    } body;

    body.rts = (struct rts){ send->len, send->id,
                             send->n_body <= SEGS ? (uint32_t)send->n_body : 0 };
    for (uint32_t i = 0; i < body.rts.n_segs; i++)
        body.seg[i] = (struct seg){ (uint64_t)(uintptr_t)send->body[i].iov_base,
                                    send->body[i].iov_len };
    send->announced |= mdapl_shm_tx_put(send->peer, MDAPL_SHM_RTS, hdr, hdr_len, &body,
                                        sizeof(body.rts) + body.rts.n_segs * sizeof(body.seg[0]));
    return send->announced;
}

/* The body with this id, which the peer has sent. NULL: no body whose RTS this peer has received
 * has the id. */
static struct mdapl_shm_rndv *find_send(struct mdapl_shm_peer *peer, uint32_t id)
{
    struct mdapl_shm_rndv *send = mdapl_idmap_find(&peer->s->tx_ids, id);

    return send && send->peer == peer && send->announced ? send : NULL;
}

bool mdapl_shm_rndv_on_cts(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_rndv *send;
    struct mdapl_shm_cts cts;

    memcpy(&cts, m->hdr, sizeof(cts));
    send = find_send(peer, cts.tx_id);
    if (!send || !mdapl_list_empty(&send->streaming) || cts.len == 0 || cts.off > send->len
        || cts.len > send->len - cts.off || cts.len > send->len - send->requested)
        return false;
    mdapl_shm_way_advised(peer, send->len, cts.way);
    send->cts = cts;
    send->requested += cts.len;
    send->sent = 0;
    send->cursor = mdapl_iov_start(send->body, send->n_body);
    mdapl_iov_skip(&send->cursor, cts.off);
    mdapl_list_append(&peer->streaming, &send->streaming);
    mdapl_shm_peer_wake(peer);
    return true;
}

bool mdapl_shm_rndv_on_fin(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_rndv *send;
    struct mdapl_shm_fin fin;

    memcpy(&fin, m->hdr, sizeof(fin));
    send = find_send(peer, fin.tx_id);
    if (!send || !mdapl_list_empty(&send->streaming))
        return false;
    mdapl_shm_way_advised(peer, send->len, fin.way);
    send_end(send, fin.status == -ECANCELED ? -ECANCELED : 0);
    return true;
}

/* -- sending requested bytes ------------------------------------------------------------------ */

/* Sends the next piece of the bytes that the CTS has requested. False: no room. */
static bool send_piece(struct mdapl_shm_peer *peer, struct mdapl_shm_rndv *send)
{
    size_t share = mdapl_shm_cell_share(send->cts.len), left = send->cts.len - send->sent;
    struct mdapl_shm_data data = { .tx_id = send->id, .rx_id = send->cts.rx_id,
                                   .off = send->cts.off + send->sent };

    if (!mdapl_shm_cell_or_ring(peer, &send->cursor, mdapl_min(left, share), &data))
        return false;
    send->sent += data.len;
    return true;
}

int mdapl_shm_rndv_stream(struct mdapl_shm_peer *peer)
{
    struct mdapl_list *l;
    int n = 0;

    while ((l = mdapl_list_first(&peer->streaming))) {
        struct mdapl_shm_rndv *send = MDAPL_OF(l, struct mdapl_shm_rndv, streaming);

        if (!send_piece(peer, send))
            break;
        n++;
        /* Round robin over the bodies. */
        mdapl_list_remove(l);
        if (send->sent < send->cts.len)
            mdapl_list_append(&peer->streaming, l);
        else if (send->requested == send->len)
            send_end(send, 0);
    }
    return n;
}

bool mdapl_shm_rndv_on_split(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_split_at at;
    struct mdapl_shm_split split;
    struct mdapl_shm_split_end end;
    struct mdapl_shm_rndv *send;
    struct mdapl_iov here, there;
    struct iovec v;

    memcpy(&at, m->hdr, sizeof(at));
    send = find_send(peer, at.tx_id);
    if (!send || !mdapl_list_empty(&send->streaming) || at.off > send->len
        || at.len > send->len - at.off || !mdapl_shm_split_join(peer, &at, &split))
        return false;
    here = mdapl_iov_start(send->body, send->n_body);
    mdapl_iov_skip(&here, at.off);
    v = (struct iovec){ (void *)(uintptr_t)at.addr, at.len };
    there = mdapl_iov_start(&v, 1);
    end = (struct mdapl_shm_split_end){ at.tx_id, at.rx_id,
                                        mdapl_shm_split_write(peer, &split, here, there) };
    return split.taken == 0
           || mdapl_shm_tx_record(peer, MDAPL_SHM_SPLIT_END, &end, sizeof(end)) == 0
           || mdapl_shm_peer_no_memory(peer);
}

/* -- receiving: the end of a body -------------------------------------------------------------- */

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
    free(r);
}

static void send_fin(struct long_rx *r, int status)
{
    struct mdapl_shm_fin fin = { r->tx_id, status, mdapl_shm_way_wanted(r->peer, r->len) };

    if (!r->peer->dead && mdapl_shm_tx_record(r->peer, MDAPL_SHM_FIN, &fin, sizeof(fin)))
        mdapl_shm_peer_broken(r->peer, -ENOMEM, "out of memory");
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

/* -- receiving: a read ------------------------------------------------------------------------ */

/* Copies a body at once; its time is one of `way`. False: the kernel refused. */
static bool read_once(struct long_rx *r, enum mdapl_shm_way way, const struct iovec *iov, int n,
                      size_t want)
{
    struct mdapl_iov here = mdapl_iov_start(iov, n);
    struct mdapl_iov there = mdapl_iov_start(r->seg, (int)r->n_segs);
    bool done;

    mdapl_iov_skip(&there, r->at);
    mdapl_shm_way_begin(r->peer, way, want, &r->copy);
    done = mdapl_shm_cma_read(r->peer, &here, &there, want);
    mdapl_shm_way_end(r->peer, &r->copy, done);
    return done;
}

/* Begins a read that other messages will end. 0 or -ENOMEM. */
static int begin_read(struct long_rx *r, const struct iovec *iov, int n, size_t want,
                      struct mdapl_op *op)
{
    if (!r->id && mdapl_idmap_add(&r->peer->s->rx_ids, r, &r->id))
        return -ENOMEM;
    return mdapl_rx_op_begin(&r->read, &r->peer->reading, iov, n, want, op);
}

/* Requests the bytes of the read through cells. 0 or -ENOMEM. */
static int request(struct long_rx *r)
{
    struct mdapl_shm_cts cts = { r->tx_id, r->id, r->at, r->read.want,
                                 mdapl_shm_way_wanted(r->peer, r->len) };

    r->by_cells += r->read.want;
    mdapl_shm_way_begin(r->peer, MDAPL_SHM_TWICE, r->read.want, &r->copy);
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
    struct mdapl_iov there = mdapl_iov_start(r->seg, (int)r->n_segs);
    int rc = begin_read(r, iov, 1, want, op);
    struct mdapl_shm_split_at at = { r->tx_id, r->id, r->split.number, r->split.index, r->at, want,
                                     (uint64_t)(uintptr_t)iov->iov_base };

    mdapl_shm_cma_allow(r->peer->s, want);
    if (rc == 0)
        mdapl_shm_way_begin(r->peer, MDAPL_SHM_BOTH, want, &r->copy);
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
    if (rc == MDAPL_DONE)
        advance(r, want);
    return rc;
}

/* Outside progress a copy that this core makes waits for progress: the caller may be about to send
 * bodies of its own, which the peer copies meanwhile. 0 or -ENOMEM. */
static int read_later(struct long_rx *r, enum mdapl_shm_way way, const struct iovec *iov, int n,
                      size_t want, struct mdapl_op *op)
{
    int rc = mdapl_rx_op_begin(&r->read, &r->peer->reading, iov, n, want, op);

    if (rc)
        return rc;
    r->n_later = n;
    r->way_later = way;
    mdapl_list_append(&r->peer->later, &r->later);
    mdapl_shm_peer_wake(r->peer);
    return 0;
}

int mdapl_shm_rndv_read_waiting(struct mdapl_shm_peer *peer)
{
    struct mdapl_list *l = mdapl_list_take(&peer->later);
    struct long_rx *r;
    struct iovec *dst;
    struct mdapl_op *op;
    int rc;

    if (!l)
        return 0;
    r = MDAPL_OF(l, struct long_rx, later);
    dst = r->read.dst;
    r->read.dst = NULL;
    op = mdapl_rx_op_end(&r->read);
    rc = read_now(r, r->way_later, dst, r->n_later, r->read.want, op);
    free(dst);
    if (rc != 0)
        op->done(op, rc == MDAPL_DONE ? 0 : rc);
    return 1;
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
    way = mdapl_shm_way_choose(r->peer, want, r->n_segs > 0);
    if (way == MDAPL_SHM_BOTH && n > 1)
        way = MDAPL_SHM_ONCE;
    if (way != MDAPL_SHM_TWICE && !r->peer->s->in_progress)
        return read_later(r, way, iov, n, want, op);
    return read_now(r, way, iov, n, want, op);
}

static const struct mdapl_rx_ops long_ops = {
    .read = rx_read, .drop = rx_drop
};

/* -- receiving: messages ---------------------------------------------------------------------- */

/* Ends a read: all bytes have arrived, or it fails with status. */
static void read_over(struct mdapl_rx_op *read, int status)
{
    struct long_rx *r = MDAPL_OF(read, struct long_rx, read);
    struct mdapl_op *op = end_read(r, status == 0);

    if (status == 0)
        advance(r, read->want);
    op->done(op, status);
}

static bool rts_right(const struct rts *rts, size_t len)
{
    return len >= sizeof(*rts) && rts->n_segs <= SEGS && rts->len > 0
           && len == sizeof(*rts) + rts->n_segs * sizeof(struct seg);
}

/* Copies the n_segs pieces at p. False: their lengths do not add up to the body's. */
static bool take_segs(struct long_rx *r, const char *p)
{
    size_t sum = 0;

    for (uint32_t i = 0; i < r->n_segs; i++, p += sizeof(struct seg)) {
        struct seg seg;

        memcpy(&seg, p, sizeof(seg));
        if (seg.len > r->rx.left - sum)
            return false;
        r->seg[i] = (struct iovec){ (void *)(uintptr_t)seg.addr, seg.len };
        sum += seg.len;
    }
    return r->n_segs == 0 || sum == r->rx.left;
}

bool mdapl_shm_rndv_on_rts(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct rts rts = { 0 };
    struct long_rx *r;

    memcpy(&rts, m->body, mdapl_min(m->len, sizeof(rts)));
    if (!rts_right(&rts, m->len))
        return false;
    r = malloc(sizeof(*r) + rts.n_segs * sizeof(r->seg[0]));
    if (!r)
        return mdapl_shm_peer_no_memory(peer);
    *r = (struct long_rx){ .rx = { &long_ops, rts.len }, .peer = peer, .len = rts.len,
                           .tx_id = rts.tx_id, .n_segs = rts.n_segs };
    mdapl_rx_op_init(&r->read, read_over);
    mdapl_list_init(&r->later);
    mdapl_list_append(&peer->bodies, &r->link);
    mdapl_shm_flow_comes(peer);
    if (!take_segs(r, (const char *)m->body + sizeof(rts))) {
        rx_free(r);
        return false;
    }
    return mdapl_inbox_announce(&peer->inbox, m->hdr, m->hdr_len, &r->rx) == 0
           || mdapl_shm_peer_no_memory(peer);
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

/* -- a lost peer ------------------------------------------------------------------------------ */

void mdapl_shm_rndv_fail(struct mdapl_shm_peer *peer, int status)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->sends)))
        send_end(MDAPL_OF(l, struct mdapl_shm_rndv, link), status);
    /* A lost peer takes no more cells: those in flight to it are free. */
    peer->tx.acked = peer->tx.next;
    mdapl_shm_cells_reclaim(peer);
}

void mdapl_shm_rndv_free(struct mdapl_shm_peer *peer)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&peer->bodies)))
        rx_free(MDAPL_OF(l, struct long_rx, link));
}
