/* SPDX-License-Identifier: MIT */
#include "cm_hello.h"

#include "cfg.h"
#include "conn.h"
#include "dapl.h"
#include "ia.h"
#include "log.h"
#include "stats.h"
#include "window.h"

/* -- hellos ------------------------------------------------------------------------------------ */

static uint8_t offers(const struct mdapl_dapl_stream *st)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(st->peer->d->ctx);
    uint8_t all = MDAPL_HELLO_RETAINS;

    if (cfg->retain != MDAPL_RETAIN_ON)
        return 0;
    if (cfg->ft == MDAPL_FT_ON)
        all |= MDAPL_HELLO_RECOVERS;
    if (mdapl_dapl_probe_has_word(st->peer->d, st->ia->rail))
        all |= MDAPL_HELLO_WORDS;
    return all;
}

void mdapl_dapl_cm_hello_put(const struct mdapl_dapl_stream *st, uint8_t flags, uint32_t epoch,
                             uint8_t out[MDAPL_HELLO_BYTES])
{
    struct mdapl_dapl_chan *d = st->peer->d;
    const struct mdapl_group *group = mdapl_peer_group(&st->peer->base);
    struct mdapl_name self = mdapl_group_self(group);
    struct mdapl_dapl_hello h = {
        .flags = flags, .stream = (uint8_t)st->index, .group = self.group, .dst_group = group->id,
        .src = (uint32_t)self.rank, .dst = (uint32_t)st->peer->base.rank, .epoch = epoch,
        .incarnation = st->peer->incarnation, .met = st->peer->met,
        .rx_next = (uint32_t)st->peer->rx_next,
        .frame_bytes = (uint32_t)d->frame_room + MDAPL_FRAME_HDR_BYTES,
        .sr_window = (uint16_t)st->rx_window, .offers = offers(st),
        .generation = (uint16_t)(st->ia->generation % MDAPL_HELLO_GENERATIONS),
    };

    mdapl_dapl_hello_put(&h, group->key, out);
}

enum mdapl_dapl_hello_verdict mdapl_dapl_cm_hello_get(const struct mdapl_dapl_chan *d,
                                                      const void *priv, size_t len,
                                                      struct mdapl_dapl_hello *h)
{
    const struct mdapl_group *from = mdapl_group_find(d->ctx, mdapl_dapl_hello_group(priv, len));

    return mdapl_dapl_hello_get(h, priv, len, from,
                                mdapl_group_self(from ? from : mdapl_ctx_job(d->ctx)));
}

enum mdapl_dapl_hello_verdict mdapl_dapl_cm_hello_visitor(struct mdapl_dapl_chan *d,
                                                          const void *priv, size_t len,
                                                          struct mdapl_dapl_hello *h,
                                                          struct mdapl_group *visitor)
{
    enum mdapl_dapl_hello_verdict verdict = MDAPL_HELLO_UNKNOWN_GROUP;
    const struct mdapl_port *port = NULL;

    while (verdict != MDAPL_HELLO_OK && (port = mdapl_port_next(d->ctx, port))) {
        *visitor = mdapl_port_visitor(port, mdapl_dapl_hello_group(priv, len),
                                      &mdapl_dapl_channel);
        verdict = mdapl_dapl_hello_get(h, priv, len, visitor, visitor->self);
    }
    return verdict;
}

enum mdapl_dapl_hello_fit mdapl_dapl_cm_hello_fit(const struct mdapl_group *group,
                                                  const struct mdapl_dapl_hello *h)
{
    struct mdapl_peer *base = group->peers[h->src];
    const struct mdapl_dapl_peer *peer;

    if (!base && h->met)
        return MDAPL_HELLO_FORMER;
    if (!base)
        return group->closed ? MDAPL_HELLO_EARLY : MDAPL_HELLO_FITS;
    if (base->channel != &mdapl_dapl_channel)
        return MDAPL_HELLO_ELSEWHERE;
    peer = mdapl_dapl_peer_of(base);
    if (h->met && h->met != peer->incarnation)
        return MDAPL_HELLO_FORMER;
    if (peer->met && h->incarnation != peer->met)
        return MDAPL_HELLO_EARLY;
    return mdapl_seq_before((uint32_t)peer->tx_next, h->rx_next) ? MDAPL_HELLO_AHEAD
                                                                 : MDAPL_HELLO_FITS;
}

/* The flag of a hello of the stream's peer in answer to this peer; -1: it is none. */
static int flag_of_answer(const struct mdapl_dapl_stream *st, const void *priv, size_t len,
                          struct mdapl_dapl_hello *h)
{
    const struct mdapl_dapl_peer *peer = st->peer;

    return mdapl_dapl_cm_hello_get(peer->d, priv, len, h) == MDAPL_HELLO_OK
                   && h->group == mdapl_peer_group(&peer->base)->id
                   && (int)h->src == peer->base.rank && h->stream == st->index
                   && h->met == peer->incarnation
               ? h->flags : -1;
}

bool mdapl_dapl_cm_hello_is_reply(const struct mdapl_dapl_stream *st, const void *priv, size_t len,
                                  struct mdapl_dapl_hello *h)
{
    return flag_of_answer(st, priv, len, h) == MDAPL_HELLO_REPLY
           && !mdapl_seq_before(h->epoch, st->conn->epoch)
           && mdapl_dapl_cm_hello_fit(mdapl_peer_group(&st->peer->base), h) == MDAPL_HELLO_FITS;
}

bool mdapl_dapl_cm_hello_is_rejection(const struct mdapl_dapl_stream *st, const void *priv,
                                      size_t len, uint8_t flag, struct mdapl_dapl_hello *h)
{
    return flag_of_answer(st, priv, len, h) == flag && h->epoch == st->conn->epoch;
}

bool mdapl_dapl_cm_wins(const struct mdapl_dapl_peer *peer)
{
    const struct mdapl_group *group = mdapl_peer_group(&peer->base);
    struct mdapl_name self = mdapl_group_self(group);

    return group->id == self.group ? peer->base.rank < self.rank : group->id < self.group;
}

/* -- rejections -------------------------------------------------------------------------------- */

void mdapl_dapl_cm_reject_stranger(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia,
                                   DAT_CR_HANDLE cr, const char *why)
{
    mdapl_ctx_stats(d->ctx)->cr_refused++;
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_INFO,
              "IA %s: refused a connection request that %s; nothing needs to be done unless it "
              "comes again and again", ia->name, why);
    d->dat.dat_cr_reject(cr, 0, NULL);
}

/* All that it says follows from the request, so a rank that has no peer for its sender can reject
 * it, too; but for what the answer to a ping says, `ages`. */
static void reject(struct mdapl_dapl_chan *d, const struct mdapl_group *from, DAT_CR_HANDLE cr,
                   uint8_t flag, const struct mdapl_dapl_hello *request, uint32_t ages)
{
    const struct mdapl_dapl_hello h = {
        .flags = flag, .stream = request->stream, .group = request->dst_group,
        .dst_group = request->group, .src = request->dst, .dst = request->src,
        .epoch = request->epoch, .incarnation = request->met, .met = request->incarnation,
        .rx_next = ages, .frame_bytes = MDAPL_FRAME_MIN, .sr_window = MDAPL_WINDOW_MIN,
    };
    uint8_t hello[MDAPL_HELLO_BYTES];

    mdapl_dapl_hello_put(&h, from->key, hello);
    d->dat.dat_cr_reject(cr, sizeof(hello), hello);
}

void mdapl_dapl_cm_reject(struct mdapl_dapl_chan *d, const struct mdapl_group *from,
                          DAT_CR_HANDLE cr, uint8_t flag, const struct mdapl_dapl_hello *request)
{
    reject(d, from, cr, flag, request, 0);
}

void mdapl_dapl_cm_answer(struct mdapl_dapl_chan *d, const struct mdapl_group *from,
                          DAT_CR_HANDLE cr, const struct mdapl_dapl_hello *ping)
{
    struct mdapl_peer *base = from->peers[ping->src];

    reject(d, from, cr, MDAPL_HELLO_BUSY, ping,
           base ? mdapl_dapl_probe_answer(mdapl_dapl_peer_of(base)) : 0);
}

void mdapl_dapl_cm_reject_stale(struct mdapl_dapl_chan *d, const struct mdapl_group *from,
                                DAT_CR_HANDLE cr, uint8_t flag,
                                const struct mdapl_dapl_hello *request, const char *why)
{
    mdapl_ctx_stats(d->ctx)->cr_stale++;
    mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_CONN, "rank %u: refused its request %u, which %s",
              request->src, request->epoch, why);
    mdapl_dapl_cm_reject(d, from, cr, flag, request);
}
