/* SPDX-License-Identifier: MIT */
#include "softdat.h"

/* An acknowledgement is transmitted at once when the sender requests it, and after so many executed
 * requests or bytes at the latest; else with the next frame. On a socket a frame of its own costs
 * two system calls; beside a ring it is a store. */
enum {
    ACK_REQUESTS = 64, ACK_REQUESTS_RING = 32,
    ACK_BYTES = 1 << 22, ACK_BYTES_RING = 1 << 18,
    /* The sender requests one with the last of so many requests or bytes, if they are at least half
     * of what is outstanding: so the other half keeps the link busy meanwhile. */
    SHARE_REQUESTS = 8, SHARE_BYTES = 1 << 18,
};
static const uint64_t ack_delay_ns = 10000; /* idle time before an ACK frame */

uint16_t softdat_ack_hint(struct softdat_conn *c, uint32_t seq, uint64_t len)
{
    uint32_t outstanding = seq - c->peer_executed, n = seq - c->ack_requested;

    if (c->uses_rings)
        return 0;
    if (outstanding == 1)
        c->ack_bytes = 0;
    c->ack_bytes += len;
    n = outstanding < n ? outstanding : n;
    if ((n < SHARE_REQUESTS && c->ack_bytes < SHARE_BYTES) || 2 * n < outstanding)
        return 0;
    c->ack_requested = seq;
    c->ack_bytes = 0;
    return SOFTDAT_ACK_NOW;
}

static void acknowledge(struct softdat_conn *c)
{
    if (c->uses_rings)
        softdat_shared_ack(c);
    else
        softdat_tx_frame(c, SOFTDAT_ACK, NULL, 0);
}

void softdat_ack_executed(struct softdat_conn *c)
{
    c->executed++;
    c->unacked_bytes += (uint64_t)c->hdr.len + c->hdr.size;  /* size: of a PULL */
    softdat_ack_later(c);
    if (c->hdr.status != SOFTDAT_ACK_NOW
        && c->executed - c->acked < (c->uses_rings ? ACK_REQUESTS_RING : ACK_REQUESTS)
        && c->unacked_bytes < (c->uses_rings ? ACK_BYTES_RING : ACK_BYTES))
        return;
    acknowledge(c);
}

void softdat_ack_later(struct softdat_conn *c)
{
    if (!softdat_list_empty(&c->acks))
        return;
    softdat_list_append(&c->ia->acks, &c->acks);
    softdat_round_complete(c->ia);
}

void softdat_acks_when_idle(struct softdat_ia *ia)
{
    struct softdat_list *l = ia->acks.next;
    uint64_t now = 0;

    while (l != &ia->acks) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, acks);

        l = l->next;
        if (c->uses_rings)
            softdat_shared_ack(c);
    }
    if (!softdat_list_empty(&ia->acks))
        now = softdat_now();
    if (ia->idle_since == 0)
        ia->idle_since = now;
    else if (now - ia->idle_since >= ack_delay_ns)
        softdat_acks_flush(ia);
}

void softdat_acks_flush(struct softdat_ia *ia)
{
    while (!softdat_list_empty(&ia->acks)) {
        struct softdat_conn *c = SOFTDAT_OF(ia->acks.next, struct softdat_conn, acks);

        softdat_list_remove(&c->acks);
        acknowledge(c);
    }
}
