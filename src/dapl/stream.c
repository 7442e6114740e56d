/* SPDX-License-Identifier: MIT */
#include "stream.h"

#include "cfg.h"
#include "conn.h"

int mdapl_dapl_stream_for(struct mdapl_dapl_peer *peer, uint64_t len)
{
    if (peer->n_streams == 1)
        return 0;
    if (len >= (uint64_t)mdapl_ctx_cfg(peer->d->ctx)->stripe_bytes)
        return -1;
    return (int)(peer->next_stream++ % (unsigned)peer->n_streams);
}

static bool usable(const struct mdapl_dapl_stream *st, bool (*can)(const struct mdapl_dapl_ep *ep))
{
    return mdapl_dapl_stream_up(st) && can(&st->up->ep);
}

static bool is_suspect(const struct mdapl_dapl_stream *st)
{
    return st->ia->state != MDAPL_DAPL_RAIL_OPEN;
}

/* Stream 0 takes the turn of a stream that is not up or whose rail is suspect. */
static struct mdapl_dapl_stream *one(struct mdapl_dapl_peer *peer, int stream)
{
    struct mdapl_dapl_stream *st = &peer->stream[stream];

    return mdapl_dapl_stream_up(st) && !is_suspect(st) ? st : mdapl_dapl_peer_main(peer);
}

/* Is there a stream that is up, on a rail that is not suspect? */
static bool has_trusted(const struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (mdapl_dapl_stream_up(&peer->stream[i]) && !is_suspect(&peer->stream[i]))
            return true;
    return false;
}

struct mdapl_dapl_stream *mdapl_dapl_stream_pick(struct mdapl_dapl_peer *peer, int stream,
                                                 bool (*can)(const struct mdapl_dapl_ep *ep))
{
    struct mdapl_dapl_stream *best = NULL;
    bool trusted;

    if (stream >= 0) {
        best = one(peer, stream);
        return usable(best, can) ? best : NULL;
    }
    trusted = has_trusted(peer);
    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_stream *st = &peer->stream[i];

        if (usable(st, can) && !(trusted && is_suspect(st))
            && (!best || st->up->ep.bytes < best->up->ep.bytes))
            best = st;
    }
    return best;
}
