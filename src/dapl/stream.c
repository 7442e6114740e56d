/* SPDX-License-Identifier: MIT */
#include "stream.h"

#include "cfg.h"
#include "conn.h"

int mdapl_stream_for(struct mdapl_dpeer *peer, uint64_t len)
{
    if (peer->n_streams == 1)
        return 0;
    if (len >= (uint64_t)mdapl_ctx_cfg(peer->d->ctx)->stripe_bytes)
        return -1;
    return (int)(peer->next_stream++ % (unsigned)peer->n_streams);
}

static bool usable(const struct mdapl_stream *st, bool (*can)(const struct mdapl_ep *ep))
{
    return mdapl_stream_up(st) && can(&st->up->ep);
}

/* Stream 0 carries what is for a stream that is not up. */
static struct mdapl_stream *one(struct mdapl_dpeer *peer, int stream)
{
    return mdapl_stream_up(&peer->stream[stream]) ? &peer->stream[stream]
                                                  : mdapl_dpeer_main(peer);
}

struct mdapl_stream *mdapl_stream_pick(struct mdapl_dpeer *peer, int stream,
                                       bool (*can)(const struct mdapl_ep *ep))
{
    struct mdapl_stream *best = NULL;

    if (stream >= 0) {
        best = one(peer, stream);
        return usable(best, can) ? best : NULL;
    }
    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_stream *st = &peer->stream[i];

        if (usable(st, can) && (!best || st->up->ep.bytes < best->up->ep.bytes))
            best = st;
    }
    return best;
}
