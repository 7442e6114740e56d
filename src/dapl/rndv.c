/* SPDX-License-Identifier: MIT */
#include "rndv.h"

#include "conn.h"
#include "frames.h"
#include "peer.h"
#include "stats.h"
#include "xfer.h"

void mdapl_dapl_rndv_init(struct mdapl_dapl_chan *d)
{
    mdapl_idmap_init(&d->tx_ids);
    mdapl_idmap_init(&d->rx_ids);
    mdapl_dapl_xfer_init(d);
}

void mdapl_dapl_rndv_fini(struct mdapl_dapl_chan *d)
{
    mdapl_idmap_fini(&d->tx_ids);
    mdapl_idmap_fini(&d->rx_ids);
    mdapl_dapl_xfer_fini(d);
}

bool mdapl_dapl_rndv_had(struct mdapl_dapl_chan *d, const struct mdapl_idmap *ids, uint32_t id)
{
    if (mdapl_idmap_find(ids, id) || !mdapl_idmap_given(ids, id))
        return false;
    mdapl_ctx_stats(d->ctx)->old_frames++;
    return true;
}

bool mdapl_dapl_rndv_carried(struct mdapl_dapl_stream *st, const struct mdapl_dapl_written *w)
{
    struct mdapl_dapl_stream *on = &st->peer->stream[w->stream];

    if (on == st && mdapl_dapl_conn_is_open(st, w->epoch))
        return true;
    mdapl_ctx_stats(st->peer->d->ctx)->old_frames++;
    mdapl_dapl_lost_by_peer(on, w->epoch);
    return false;
}

/* Has the connection of a stream ended, or is it about to: a fault of it waits to be judged? */
static bool is_unsettled(const struct mdapl_dapl_stream *st)
{
    return st->cm.state == MDAPL_CM_DRAINING
           || (st->cm.state == MDAPL_CM_UP && st->fault.kind != MDAPL_DAPL_FAULT_NONE);
}

bool mdapl_dapl_rndv_unsettled(const struct mdapl_dapl_peer *peer,
                               const struct mdapl_dapl_stream *but)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (&peer->stream[i] != but && is_unsettled(&peer->stream[i]))
            return true;
    return false;
}

/* RDMA that has not been posted takes another stream by itself. A queued WRITTEN does from now on:
 * it would hold up the frames behind it, and it proves nothing on the stream's next connection. */
void mdapl_dapl_rndv_ended(struct mdapl_dapl_stream *st)
{
    MDAPL_LIST_EACH(pos, &st->peer->ctl) {
        struct mdapl_dapl_item *it = MDAPL_OF(pos, struct mdapl_dapl_item, link);

        if (it->type == MDAPL_FRAME_WRITTEN && it->stream == st->index)
            it->stream = MDAPL_DAPL_ANY_STREAM;
    }
    mdapl_dapl_peer_wake(st->peer);
}

void mdapl_dapl_rndv_drained(struct mdapl_dapl_stream *st)
{
    if (!st->peer->dead && !mdapl_dapl_rndv_unsettled(st->peer, st))
        mdapl_dapl_rndv_ask_again(st->peer);
}

void mdapl_dapl_rndv_up(struct mdapl_dapl_stream *st)
{
    mdapl_dapl_peer_wake(st->peer);
    mdapl_dapl_rndv_ask_on(st->peer);
}
