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

static bool is_trusted(const struct mdapl_dapl_stream *st)
{
    return mdapl_dapl_stream_up(st) && !is_suspect(st);
}

/* The lowest stream that is up, on a rail that is not suspect; NULL: there is none. */
static struct mdapl_dapl_stream *trusted_stream(struct mdapl_dapl_peer *peer)
{
    for (int i = 0; i < peer->n_streams; i++)
        if (is_trusted(&peer->stream[i]))
            return &peer->stream[i];
    return NULL;
}

struct mdapl_dapl_stream *mdapl_dapl_stream_pick(struct mdapl_dapl_peer *peer, int stream,
                                                 bool (*can)(const struct mdapl_dapl_ep *ep))
{
    bool given = stream >= 0 && is_trusted(&peer->stream[stream]);
    struct mdapl_dapl_stream *trusted = given ? &peer->stream[stream] : trusted_stream(peer);
    struct mdapl_dapl_stream *best = NULL;

    if (stream >= 0 && trusted)
        return can(&trusted->up->ep) ? trusted : NULL;
    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_stream *st = &peer->stream[i];

        if (usable(st, can) && !(trusted && is_suspect(st))
            && (!best || st->up->ep.bytes < best->up->ep.bytes))
            best = st;
    }
    return best;
}
