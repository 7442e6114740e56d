/* SPDX-License-Identifier: MIT */
/* The sending end of a rendezvous (rndv.h). */
#include "rndv.h"

#include "peer.h"

#include "channel.h"
#include "min.h"

#include <errno.h>
#include <string.h>

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
    struct mdapl_pieces body;    /* none of them empty */
};

void mdapl_shm_rndv_tx_init(struct mdapl_shm_chan *s)
{
    mdapl_idmap_init(&s->tx_ids);
    mdapl_pool_init(&s->sends, sizeof(struct mdapl_shm_rndv), sizeof(void *),
                    MDAPL_SHM_RNDV_CHUNK, 0);
}

void mdapl_shm_rndv_tx_fini(struct mdapl_shm_chan *s)
{
    mdapl_idmap_fini(&s->tx_ids);
    mdapl_pool_fini(&s->sends);
}

/* -- announcing ------------------------------------------------------------------------------- */

struct mdapl_shm_rndv *mdapl_shm_rndv_send(struct mdapl_shm_peer *peer,
                                           const struct mdapl_msg *msg, size_t len,
                                           struct mdapl_op *op)
{
    struct mdapl_shm_chan *s = peer->s;
    struct mdapl_shm_rndv *send = mdapl_pool_take(&s->sends);

    if (!send)
        return NULL;
    if (!mdapl_pieces_make(&send->body, msg->n_body)) {
        mdapl_pool_give(&s->sends, send);
        return NULL;
    }
    send->body.n = 0;
    for (int i = 0; i < msg->n_body; i++)
        if (msg->body[i].iov_len > 0)
            send->body.v[send->body.n++] = msg->body[i];
    send->op = op;
    send->peer = peer;
    send->id = 0;
    send->announced = false;
    send->len = len;
    send->requested = 0;
    mdapl_list_init(&send->link);
    mdapl_list_init(&send->streaming);
    if (mdapl_idmap_add(&s->tx_ids, send, &send->id)) {
        mdapl_shm_rndv_forget(send);
        return NULL;
    }
    mdapl_list_append(&peer->sends, &send->link);
    mdapl_shm_cma_allow(s, len);
    return send;
}

void mdapl_shm_rndv_forget(struct mdapl_shm_rndv *send)
{
    struct mdapl_shm_chan *s = send->peer->s;

    mdapl_idmap_remove(&s->tx_ids, send->id);
    mdapl_list_remove(&send->link);
    mdapl_list_remove(&send->streaming);
    mdapl_pieces_free(&send->body);
    mdapl_pool_give(&s->sends, send);
}

static void send_end(struct mdapl_shm_rndv *send, int status)
{
    struct mdapl_op *op = send->op;

    if (status == 0)
        mdapl_shm_flow_sent(send->peer, send->requested > 0 ? MDAPL_SHM_TWICE : MDAPL_SHM_ONCE,
                            send->len);
    mdapl_shm_rndv_forget(send);
    op->done(op, status);
}

bool mdapl_shm_rndv_put_rts(struct mdapl_shm_rndv *send, const void *hdr, size_t hdr_len)
{
    const struct iovec *v = send->body.v;
    unsigned n = send->body.n <= MDAPL_SHM_RTS_PIECES ? (unsigned)send->body.n : 0;
    struct {
        struct mdapl_shm_rts rts;
        struct mdapl_shm_rts_piece piece[MDAPL_SHM_RTS_PIECES];
    } body;

    body.rts = (struct mdapl_shm_rts){ send->len, send->id, n };
    for (unsigned i = 0; i < n; i++)
        body.piece[i] = (struct mdapl_shm_rts_piece){ (uint64_t)(uintptr_t)v[i].iov_base,
                                                      v[i].iov_len };
    send->announced |= mdapl_shm_tx_put(send->peer, MDAPL_SHM_RTS, hdr, hdr_len, &body,
                                        sizeof(body.rts) + n * sizeof(body.piece[0]));
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
    send->cursor = mdapl_iov_start(send->body.v, send->body.n);
    mdapl_iov_skip(&send->cursor, cts.off);
    mdapl_list_append(&peer->streaming, &send->streaming);
    mdapl_shm_peer_wake(peer);
    return true;
}

bool mdapl_shm_rndv_on_fin(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_fin fin;

    memcpy(&fin, m->hdr, sizeof(fin));
    if (fin.n == 0 || fin.n > MDAPL_SHM_RNDV_TOGETHER)
        return false;
    for (uint32_t i = 0; i < fin.n; i++) {
        struct mdapl_shm_rndv *send = find_send(peer, fin.tx_id[i]);

        if (!send || !mdapl_list_empty(&send->streaming))
            return false;
        mdapl_shm_way_advised(peer, send->len, fin.way);
        send_end(send, fin.status == -ECANCELED ? -ECANCELED : 0);
    }
    return true;
}

/* -- requested bytes -------------------------------------------------------------------------- */

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

/* One body after the other: the first ones are there sooner, rather than all at the same time. */
int mdapl_shm_rndv_stream(struct mdapl_shm_peer *peer)
{
    struct mdapl_list *l;
    int n = 0;

    while ((l = mdapl_list_first(&peer->streaming))) {
        struct mdapl_shm_rndv *send = MDAPL_OF(l, struct mdapl_shm_rndv, streaming);

        if (!send_piece(peer, send))
            break;
        n++;
        if (send->sent < send->cts.len)
            continue;
        mdapl_list_remove(l);
        if (send->requested == send->len)
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
    here = mdapl_iov_start(send->body.v, send->body.n);
    mdapl_iov_skip(&here, at.off);
    v = (struct iovec){ (void *)(uintptr_t)at.addr, at.len };
    there = mdapl_iov_start(&v, 1);
    end = (struct mdapl_shm_split_end){ at.tx_id, at.rx_id,
                                        mdapl_shm_split_write(peer, &split, here, there) };
    return split.taken == 0
           || mdapl_shm_tx_record(peer, MDAPL_SHM_SPLIT_END, &end, sizeof(end)) == 0
           || mdapl_shm_peer_no_memory(peer);
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
