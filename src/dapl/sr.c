/* SPDX-License-Identifier: MIT */
#include "sr.h"

#include "ep.h"
#include "peer.h"
#include "rx.h"
#include "stats.h"

#include <assert.h>
#include <errno.h>

static struct mdapl_vbuf *vbuf_of(struct mdapl_dto *dto)
{
    return MDAPL_OF(dto, struct mdapl_vbuf, dto);
}

/* An EP without an owner still has vbufs to give back. */
static struct mdapl_vbufs *pool_of(const struct mdapl_ep *ep)
{
    return ep->ia->vbufs;
}

static int post(struct mdapl_ep *ep, struct mdapl_vbuf *b);

static void received(struct mdapl_dto *dto, DAT_DTO_COMPLETION_STATUS status, size_t len)
{
    struct mdapl_vbuf *b = vbuf_of(dto);
    struct mdapl_ep *ep = dto->ep;
    struct mdapl_stream *st = ep->owner;

    if (st && status == DAT_DTO_SUCCESS) {
        if (mdapl_rx_frame(st, &st->rxwin.freed, b->data, len))
            st->rxwin.freed++;
        mdapl_dpeer_stir(st->peer);
        /* The frame may have been its last one: the EP has no owner then. */
        if (ep->owner && post(ep, b) == 0)
            return;
        if (ep->owner)           /* the peer counts on it, and would wait or overrun us */
            mdapl_dpeer_broken(st->peer, "a receive was refused");
    } else if (st && status != DAT_DTO_ERR_FLUSHED) {
        mdapl_dpeer_broken(st->peer, "a receive failed");
    }
    mdapl_vbuf_put(pool_of(ep), b);
}

static int post(struct mdapl_ep *ep, struct mdapl_vbuf *b)
{
    DAT_LMR_TRIPLET seg = mdapl_vbuf_seg(b, pool_of(ep)->size);

    b->dto.done = received;
    return mdapl_ep_post_recv(ep, &seg, &b->dto);
}

int mdapl_sr_arm(struct mdapl_stream *st, struct mdapl_ep *ep)
{
    struct mdapl_dapl *d = st->peer->d;

    for (uint32_t i = 0; i < d->sr_window + MDAPL_SR_RESERVE; i++) {
        struct mdapl_vbuf *b = mdapl_vbuf_get(pool_of(ep));

        if (!b)
            return -ENOMEM;
        if (post(ep, b)) {
            mdapl_vbuf_put(pool_of(ep), b);
            return -EIO;
        }
    }
    return 0;
}

int mdapl_sr_post(struct mdapl_stream *st, struct mdapl_vbuf *b)
{
    DAT_LMR_TRIPLET seg = mdapl_vbuf_seg(b, b->len);

    assert(mdapl_txwin_open(&st->txwin, MDAPL_SR_RESERVE));
    st->txwin.sent++;
    return mdapl_ep_post_send(st->cm.ep, &seg, &b->dto);
}
