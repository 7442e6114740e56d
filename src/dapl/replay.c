/* SPDX-License-Identifier: MIT */
/*
 * Frames that are sent again, because the connection that carried them has ended before the peer
 * acknowledged them (paper resilient-message-passing, IV.A).
 */
#include "frames.h"

#include "conn.h"
#include "peer.h"
#include "vbuf.h"

#include <errno.h>
#include <string.h>

/* The oldest retained frame whose connection has ended; NULL: there is none. */
static struct mdapl_dapl_vbuf *oldest_lost(const struct mdapl_dapl_peer *peer)
{
    MDAPL_LIST_EACH(pos, &peer->retained)
        if (!MDAPL_OF(pos, struct mdapl_dapl_vbuf, link)->carrier)
            return MDAPL_OF(pos, struct mdapl_dapl_vbuf, link);
    return NULL;
}

/* The lowest stream that has a slot and an open window. Where the peer waits for the lost frames,
 * those behind them hold the credits of their stream. NULL: there is none. */
static struct mdapl_dapl_stream *replay_stream(const struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (mdapl_dapl_tx_sr_open(&peer->stream[i], 0))
            return &peer->stream[i];
    return NULL;
}

/* A copy of a retained frame, in a buffer that is registered on the stream's rail; it takes the
 * place of b, whose posts complete by themselves. NULL: there is no buffer now. */
static struct mdapl_dapl_vbuf *moved(struct mdapl_dapl_stream *st, struct mdapl_dapl_vbuf *b)
{
    struct mdapl_dapl_vbuf *copy = mdapl_dapl_tx_buffer(st, MDAPL_FRAME_NONE, b->len);

    if (!copy)
        return NULL;
    memcpy(copy->data, b->data, b->len);
    copy->len = b->len;
    copy->psn = b->psn;
    copy->carrier = NULL;
    mdapl_list_before(&b->link, &copy->link);
    mdapl_list_remove(&b->link);
    mdapl_dapl_vbuf_put(b->pool, b);
    return copy;
}

bool mdapl_dapl_replay_next(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *it)
{
    struct mdapl_dapl_vbuf *b = oldest_lost(peer);
    struct mdapl_dapl_stream *st;
    int rc;

    if (!b) {
        peer->replaying = false;
        mdapl_dapl_item_put(peer, it);
        return true;
    }
    st = replay_stream(peer);
    /* What its connection may still transmit must not have the limits of another one. */
    if (st && (b->pool != st->ia->vbufs || b->holds > 1))
        b = moved(st, b);
    if (!st || !b)
        return false;
    rc = mdapl_dapl_tx_repost(st, b);
    if (rc == -ENOMEM)
        mdapl_dapl_out_of_memory(peer, "a frame that is sent again");
    return rc == 0;
}

/* Before anything else that is queued, since the peer expects the frames in their order. */
static void queue_replay(struct mdapl_dapl_peer *peer)
{
    struct mdapl_dapl_item *it = mdapl_dapl_item_get(peer, MDAPL_FRAME_NONE);

    if (!it) {
        mdapl_dapl_out_of_memory(peer, "frames that are sent again");
        return;
    }
    peer->replaying = true;
    mdapl_list_before(peer->ctl.next, &it->link);
}

void mdapl_dapl_tx_lost(struct mdapl_dapl_peer *peer, const struct mdapl_dapl_conn *conn)
{
    uint64_t n = 0;

    MDAPL_LIST_EACH(pos, &peer->retained) {
        struct mdapl_dapl_vbuf *b = MDAPL_OF(pos, struct mdapl_dapl_vbuf, link);

        if (b->carrier != conn)
            continue;
        b->carrier = NULL;
        n++;
    }
    if (n > 0)
        mdapl_dapl_event(peer, conn->stream, MDAPL_DAPL_EVENT_REPLAY, "", "", n);
    if (n > 0 && !peer->replaying && !peer->dead)
        queue_replay(peer);
}

static bool is_cts(const uint8_t *fields, size_t len, uint32_t rx_id)
{
    struct mdapl_dapl_cts cts;

    return mdapl_dapl_cts_get(&cts, fields, len) && cts.rx_id == rx_id;
}

bool mdapl_dapl_tx_has_cts(const struct mdapl_dapl_peer *peer, uint32_t rx_id)
{
    MDAPL_LIST_EACH(pos, &peer->ctl) {
        const struct mdapl_dapl_item *it = MDAPL_OF(pos, struct mdapl_dapl_item, link);

        if (it->type == MDAPL_FRAME_CTS && is_cts(it->u.bytes, it->len, rx_id))
            return true;
    }
    MDAPL_LIST_EACH(pos, &peer->retained) {
        const struct mdapl_dapl_vbuf *b = MDAPL_OF(pos, struct mdapl_dapl_vbuf, link);

        if (b->data[0] == MDAPL_FRAME_CTS
            && is_cts(b->data + MDAPL_FRAME_HDR_BYTES, b->len - MDAPL_FRAME_HDR_BYTES, rx_id))
            return true;
    }
    return false;
}
