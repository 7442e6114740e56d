/* SPDX-License-Identifier: MIT */
#include "softdat.h"

/*
 * Sends that arrive before their receive is posted. Reliable hardware answers "receiver not ready"
 * and the sender retries; here the receiver buffers up to SOFTDAT_HELD_MAX bytes per connection and
 * leaves the rest unread, so that the link's flow control stops the sender.
 */

void softdat_held_refuse(struct softdat_conn *c, DAT_DTO_COMPLETION_STATUS status)
{
    softdat_tx_nak(c, c->executed + 1, DAT_DTO_ERR_REMOTE_RESPONDER);
    softdat_ep_recv_done(c->ep, status, 0, NULL);
}

struct softdat_held *softdat_held_create(size_t len)
{
    struct softdat_held *h = softdat_alloc(sizeof(*h) + len);

    if (h)
        *h = (struct softdat_held){ .len = len };
    return h;
}

bool softdat_held_park(struct softdat_conn *c)
{
    struct softdat_rq *rq = c->ep ? c->ep->rq : NULL;

    if (!rq || c->hdr.magic != SOFTDAT_WIRE_MAGIC || c->hdr.type != SOFTDAT_SEND || c->discard_rx
        || c->phase != SOFTDAT_OPEN || (rq->ring.count > 0 && softdat_list_empty(&c->held))
        || !softdat_frame_acked(c, c->hdr.ack) || c->sock.fd < 0)
        return false;
    c->parked = true;
    if (softdat_list_empty(&c->waiting))
        softdat_list_append(&rq->waiting, &c->waiting);
    softdat_rx_stall(c, true);
    return true;
}

void softdat_held_queue(struct softdat_conn *c, struct softdat_held *h)
{
    struct softdat_rq *rq = c->ep->rq;

    c->held_bytes += sizeof(*h) + h->len;
    softdat_list_append(&c->held, &h->link);
    if (softdat_list_empty(&c->waiting))
        softdat_list_append(&rq->waiting, &c->waiting);
    softdat_held_deliver(rq);
}

/* Delivers h to the oldest receive. */
static void deliver(struct softdat_conn *c, const struct softdat_held *h)
{
    struct softdat_dto *d = softdat_ep_pop_recv(c->ep);
    DAT_DTO_COMPLETION_STATUS status;
    struct softdat_sink s;

    status = softdat_recv_check(c->ia, d, h->len);
    if (status != DAT_DTO_SUCCESS) {
        softdat_held_refuse(c, status);
        return;
    }
    softdat_sink_into(&s, d, h->len);
    softdat_sink_copy(&s, h->data, h->len);
    softdat_ack_executed(c);
    softdat_helper_wake(c->ia);  /* acknowledges if the application makes no call */
    softdat_ep_recv_done(c->ep, DAT_DTO_SUCCESS, h->imm ? h->written : h->len,
                         h->imm ? &h->imm_data : NULL);
}

void softdat_held_deliver(struct softdat_rq *rq)
{
    while (rq->ring.count > 0 && !softdat_list_empty(&rq->waiting)) {
        struct softdat_conn *c = SOFTDAT_OF(rq->waiting.next, struct softdat_conn, waiting);
        struct softdat_held *h = SOFTDAT_OF(c->held.next, struct softdat_held, link);

        if (softdat_list_empty(&c->held)) {
            softdat_list_remove(&c->waiting);
            softdat_rx_unpark(c);
            continue;
        }
        softdat_list_remove(&h->link);
        c->held_bytes -= sizeof(*h) + h->len;
        deliver(c, h);
        softdat_free(h);
        if (c->discard_rx || (softdat_list_empty(&c->held) && !c->parked))
            softdat_list_remove(&c->waiting);
        if (c->stalled && !c->parked && c->held_bytes <= SOFTDAT_HELD_MAX)
            softdat_rx_stall(c, false);
    }
}

void softdat_held_free(struct softdat_conn *c)
{
    softdat_list_remove(&c->waiting);
    while (!softdat_list_empty(&c->held)) {
        struct softdat_held *h = SOFTDAT_OF(c->held.next, struct softdat_held, link);

        softdat_list_remove(&h->link);
        softdat_free(h);
    }
    softdat_free(c->held_current);
    c->held_current = NULL;
    softdat_free(c->read_ahead);
    c->read_ahead = NULL;
    c->n_read_ahead = 0;
}
