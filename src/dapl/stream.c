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

/* How good a stream is for *m, slots aside. */
enum { USELESS, SUSPECT, SPARE, TRUSTED };

/* Does its rail carry bodies only while no other one can? */
static bool is_spare(const struct mdapl_dapl_stream *st)
{
    return st->ia->rail > 0
           && mdapl_ctx_cfg(st->peer->d->ctx)->ia_use == MDAPL_IA_USE_SPARE;
}

static int worth(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_xfer *m,
                 mdapl_dapl_fit *fit)
{
    if (!mdapl_dapl_stream_up(st) || fit(m, st) == MDAPL_DAPL_FIT_NEVER)
        return USELESS;
    if (st->ia->state != MDAPL_DAPL_RAIL_OPEN)
        return SUSPECT;
    return is_spare(st) ? SPARE : TRUSTED;
}

struct mdapl_dapl_stream *mdapl_dapl_stream_pick(struct mdapl_dapl_peer *peer, int stream,
                                                 const struct mdapl_dapl_xfer *m,
                                                 mdapl_dapl_fit *fit, bool *stranded_p)
{
    struct mdapl_dapl_stream *best = stream >= 0 ? &peer->stream[stream] : NULL;
    int most = USELESS, up = 0;

    for (int i = 0; i < peer->n_streams; i++) {
        int w = worth(&peer->stream[i], m, fit);

        most = w > most ? w : most;
        up += mdapl_dapl_stream_up(&peer->stream[i]);
    }
    *stranded_p = up > 0 && most == USELESS;
    if (most == USELESS)
        return NULL;
    if (best && worth(best, m, fit) < most)
        best = NULL;
    for (int i = 0; i < peer->n_streams && (stream < 0 || !best); i++) {
        struct mdapl_dapl_stream *st = &peer->stream[i];

        if (worth(st, m, fit) == most
            && (stream >= 0 || fit(m, st) == MDAPL_DAPL_FIT_NOW)
            && (!best || st->up->ep.bytes < best->up->ep.bytes))
            best = st;
    }
    return best && fit(m, best) == MDAPL_DAPL_FIT_NOW ? best : NULL;
}
