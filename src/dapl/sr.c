/* SPDX-License-Identifier: MIT */
#include "sr.h"

#include "conn.h"
#include "peer.h"
#include "rx.h"
#include "stats.h"

#include <assert.h>
#include <errno.h>

static struct mdapl_vbuf *vbuf_of(struct mdapl_dto *dto)
{
    return MDAPL_OF(dto, struct mdapl_vbuf, dto);
}

/* The EP of a closed connection still gives its vbufs back. */
static struct mdapl_vbufs *pool_of(const struct mdapl_ep *ep)
{
    return ep->ia->vbufs;
}

static int post(struct mdapl_ep *ep, struct mdapl_vbuf *b);

static void received(struct mdapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    struct mdapl_vbuf *b = vbuf_of(dto);
    struct mdapl_ep *ep = dto->ep;
    struct mdapl_dapl_conn *conn = mdapl_dapl_conn_of(ep);
    struct mdapl_stream *st = conn->st;

    if (st && status == DAT_DTO_SUCCESS) {
        if (mdapl_rx_frame(st, &conn->rxwin.freed, b->data, len))
            conn->rxwin.freed++;
        mdapl_dpeer_stir(st->peer);
        /* The frame may have been its last one: the connection is closed then. */
        if (conn->st && post(ep, b) == 0)
            return;
        /* The peer counts on the receive, and would wait or overrun us. */
        mdapl_dapl_post_refused(conn, MDAPL_DAPL_OP_RECV);
    } else {
        mdapl_dapl_dto_failed(dto, MDAPL_DAPL_OP_RECV, status);
    }
    mdapl_vbuf_put(pool_of(ep), b);
}

static int post(struct mdapl_ep *ep, struct mdapl_vbuf *b)
{
    DAT_LMR_TRIPLET seg = mdapl_vbuf_seg(b, ep->ia, pool_of(ep)->size);

    b->dto.done = received;
    return mdapl_ep_post_recv(ep, &seg, &b->dto);
}

int mdapl_sr_arm(struct mdapl_stream *st, struct mdapl_ep *ep)
{
    struct mdapl_dapl *d = st->peer->d;

    for (uint32_t i = 0; i < d->sr_window + MDAPL_SR_RESERVE; i++) {
        struct mdapl_vbuf *b = mdapl_vbuf_get(&d->vbufs);

        if (!b)
            return -ENOMEM;
        if (post(ep, b)) {
            mdapl_vbuf_put(&d->vbufs, b);
            return -EIO;
        }
    }
    return 0;
}

int mdapl_sr_post(struct mdapl_stream *st, struct mdapl_vbuf *b)
{
    DAT_LMR_TRIPLET seg = mdapl_vbuf_seg(b, st->ia, b->len);

    assert(mdapl_txwin_open(&st->up->txwin, MDAPL_SR_RESERVE));
    st->up->txwin.sent++;
    return mdapl_ep_post_send(&st->up->ep, &seg, &b->dto);
}
