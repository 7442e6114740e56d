/* SPDX-License-Identifier: MIT */
#include "conn.h"

#include "cm_report.h"
#include "err.h"
#include "frames.h"
#include "log.h"
#include "peer.h"
#include "stats.h"
#include "vbuf.h"

#include <errno.h>
#include <stdlib.h>

/* -- making and ending ------------------------------------------------------------------------- */

static int no_memory(const struct mdapl_dapl_stream *st)
{
    return mdapl_err_set(mdapl_ctx_err(st->peer->d->ctx), -ENOMEM,
                         "IA %s has no memory for the receives of one more endpoint. Make "
                         "MPIR_CVAR_DAPL_SR_WINDOW or _VBUF_SIZE smaller, or raise the memory "
                         "lock limit (ulimit -l)", st->ia->name);
}

/* The next look at the closed connections finds that its time is over. */
static void end_overdue(struct mdapl_timer *t)
{
    (void)t;
}

/* Receives of a connection, at least. */
static uint32_t least_receives(const struct mdapl_dapl_chan *d)
{
    return mdapl_rxwin_first(d->sr_window) + MDAPL_SR_RESERVE;
}

void mdapl_dapl_conn_promise(struct mdapl_dapl_stream *st, bool next)
{
    uint32_t n = least_receives(st->peer->d);

    if (next && !st->promised)
        st->ia->vbufs->n_promised += n;
    if (!next && st->promised)
        st->ia->vbufs->n_promised -= n;
    st->promised = next;
}

/* Takes frame buffers for the receives of a connection. Returns how many it got, at most `most`. */
static uint32_t reserve(struct mdapl_dapl_conn *conn, uint32_t most, enum mdapl_dapl_vbuf_use use)
{
    struct mdapl_dapl_vbuf *b;
    uint32_t n = 0;

    while (n < most && (b = mdapl_dapl_vbuf_get(conn->ep.ia->vbufs, use))) {
        mdapl_list_append(&conn->reserved, &b->link);
        n++;
    }
    return n;
}

/* Reserves the receives of a connection: as many as the stream's last one had if there is memory
 * for them, else fewer. False: there is not even for the least. */
static bool open_window(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_stream *st = conn->st;
    uint32_t least = least_receives(st->peer->d), all = st->rx_window + MDAPL_SR_RESERVE, n;
    enum mdapl_dapl_vbuf_use use = st->promised ? MDAPL_VBUF_FRAME : MDAPL_VBUF_RECEIVE;

    mdapl_dapl_conn_promise(st, false);
    n = reserve(conn, least, use);
    if (n < least) {
        mdapl_dapl_tx_need_buffers(st->peer->d);
        return false;
    }
    n += reserve(conn, all - least, MDAPL_VBUF_RECEIVE);
    st->rx_window = n - MDAPL_SR_RESERVE;
    conn->rxwin = mdapl_rxwin_new(st->rx_window, st->peer->d->sr_window);
    return true;
}

int mdapl_dapl_conn_open(struct mdapl_dapl_stream *st, uint32_t epoch, bool receives,
                         struct mdapl_dapl_conn **conn_p)
{
    struct mdapl_dapl_chan *d = st->peer->d;
    struct mdapl_dapl_conn *conn = calloc(1, sizeof(*conn));
    int rc;

    *conn_p = NULL;
    if (!conn)
        return no_memory(st);
    rc = mdapl_dapl_ep_init(&conn->ep, st->ia, receives ? d->sr_window + MDAPL_SR_RESERVE : 1,
                            receives ? d->ep_requests : 1);
    if (rc) {
        free(conn);
        return rc;
    }
    conn->st = st;
    mdapl_list_init(&conn->link);
    mdapl_list_init(&conn->ring_in.link);
    mdapl_list_init(&conn->reserved);
    mdapl_timer_init(&conn->end_timer, end_overdue);
    conn->rank = st->peer->base.rank;
    conn->stream = st->index;
    conn->epoch = epoch;
    /* The transmit window stays empty until the peer's hello opens it. */
    if (receives && !open_window(conn)) {
        mdapl_dapl_conn_close(conn, NULL);
        return no_memory(st);
    }
    *conn_p = conn;
    return 0;
}

void mdapl_dapl_conn_close(struct mdapl_dapl_conn *conn, struct mdapl_dapl_stream *waiter)
{
    struct mdapl_dapl_peer *peer = conn->st->peer;

    mdapl_dapl_path_down(conn);
    mdapl_dapl_rx_forget_credits(peer, &conn->rxwin.freed);
    mdapl_dapl_rx_forget_credits(peer, &conn->ring_in.freed);
    if (peer->n_streams > 1)
        mdapl_dapl_rx_give_early(peer);
    mdapl_dapl_ring_close(conn);
    mdapl_dapl_rx_unreserve(conn);
    mdapl_dapl_tx_lost(peer, conn);
    if (conn->ep.recv_max > 1 && !peer->dead)    /* another one is to follow it */
        mdapl_dapl_conn_promise(conn->st, true);
    conn->st = NULL;
    conn->waiter = waiter;
    mdapl_list_append(&peer->d->closed, &conn->link);
    if (!conn->loses)
        mdapl_dapl_ep_disconnect(&conn->ep);
}

bool mdapl_dapl_conn_is_open(const struct mdapl_dapl_stream *st, uint32_t epoch)
{
    return st->conn && st->conn->st == st && st->conn->epoch == epoch;
}

bool mdapl_dapl_conn_is_over(const struct mdapl_dapl_stream *st, uint32_t epoch)
{
    if (st->conn && st->conn->epoch == epoch)
        return false;
    MDAPL_LIST_EACH(pos, &st->peer->d->closed) {
        const struct mdapl_dapl_conn *conn = MDAPL_OF(pos, struct mdapl_dapl_conn, link);

        if (conn->rank == st->peer->base.rank && conn->stream == st->index && conn->epoch == epoch)
            return false;
    }
    return true;
}

/* Its DTOs have completed, and the event that ends it has not arrived: has its time passed? */
static bool is_abandoned(struct mdapl_dapl_chan *d, struct mdapl_dapl_conn *conn)
{
    uint64_t now = mdapl_ctx_now(d->ctx);

    if (!conn->end_timed) {
        conn->end_timed = true;
        mdapl_timer_set(&d->timers, &conn->end_timer, now + MDAPL_MS(MDAPL_DAPL_END_MS));
    }
    return now >= conn->end_timer.due;
}

struct mdapl_dapl_conn *mdapl_dapl_conn_drained(struct mdapl_dapl_chan *d)
{
    MDAPL_LIST_EACH(pos, &d->closed) {
        struct mdapl_dapl_conn *conn = MDAPL_OF(pos, struct mdapl_dapl_conn, link);
        bool end_pending = mdapl_dapl_ep_end_pending(&conn->ep) && (conn->loses || !d->closing);

        if (!mdapl_dapl_ep_flushed(&conn->ep) || (end_pending && !is_abandoned(d, conn)))
            continue;
        mdapl_list_remove(&conn->link);
        mdapl_ctx_stats(d->ctx)->abandoned += end_pending;
        mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_CONN, "rank %d stream %d: connection %u on IA %s %s",
                  conn->rank, conn->stream, conn->epoch, conn->ep.ia->name,
                  end_pending ? "is abandoned: the provider has not reported its end"
                              : "has drained");
        return conn;
    }
    return NULL;
}

void mdapl_dapl_conn_free(struct mdapl_dapl_conn *conn)
{
    mdapl_list_remove(&conn->link);
    mdapl_timer_stop(&conn->end_timer);
    mdapl_dapl_ep_fini(&conn->ep);
    mdapl_dapl_ring_release(conn);
    free(conn);
}

/* -- faults ------------------------------------------------------------------------------------ */

void mdapl_dapl_raise(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f)
{
    mdapl_dapl_stream_set_up(st, NULL);
    st->peer->faulty = true;
    mdapl_dapl_peer_wake(st->peer);
    if (st->fault.kind != MDAPL_DAPL_FAULT_NONE && !mdapl_dapl_fault_is_final(f))
        return;
    st->fault = *f;
    st->fault.ia = st->ia;
    st->fault.epoch = st->conn ? st->conn->epoch : st->cm.epoch;
}

void mdapl_dapl_dto_failed(struct mdapl_dapl_dto *dto, enum mdapl_dapl_op op,
                           DAT_DTO_COMPLETION_STATUS status)
{
    struct mdapl_dapl_stream *st = mdapl_dapl_conn_of(dto->ep)->st;

    if (st && status != DAT_DTO_ERR_FLUSHED)
        mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
            .kind = MDAPL_DAPL_FAULT_DTO, .stream = st->index, .op = op, .dto_status = status });
}

void mdapl_dapl_lost_by_peer(struct mdapl_dapl_stream *st, uint32_t epoch)
{
    if (mdapl_dapl_conn_is_open(st, epoch))
        mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
            .kind = MDAPL_DAPL_FAULT_LOST, .stream = st->index,
            .cause = mdapl_dapl_cm_cause(MDAPL_CAUSE_BROKEN) });
}

void mdapl_dapl_post_refused(struct mdapl_dapl_conn *conn, enum mdapl_dapl_op op)
{
    struct mdapl_dapl_stream *st = conn->st;

    if (st)
        mdapl_dapl_raise(st, &(struct mdapl_dapl_fault){
            .kind = MDAPL_DAPL_FAULT_POST, .stream = st->index, .op = op,
            .ret = conn->ep.refused });
}

void mdapl_dapl_impossible(struct mdapl_dapl_peer *peer, const char *text)
{
    mdapl_dapl_raise(
        mdapl_dapl_peer_main(peer),
        &(struct mdapl_dapl_fault){ .kind = MDAPL_DAPL_FAULT_BUG, .stream = -1, .text = text });
}

void mdapl_dapl_out_of_memory(struct mdapl_dapl_peer *peer, const char *text)
{
    mdapl_dapl_raise(
        mdapl_dapl_peer_main(peer),
        &(struct mdapl_dapl_fault){ .kind = MDAPL_DAPL_FAULT_MEMORY, .stream = -1, .text = text });
}
