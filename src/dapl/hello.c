/* SPDX-License-Identifier: MIT */
/* Hellos that arrive: which group has the key that verifies them. */
#include "cm.h"

#include "channel.h"
#include "peer.h"
#include "wire.h"

enum mdapl_dapl_hello_verdict mdapl_dapl_hello_verify(const struct mdapl_dapl_chan *d,
                                                      const void *priv, size_t len,
                                                      struct mdapl_dapl_hello *h)
{
    const struct mdapl_group *from = mdapl_group_find(d->ctx, mdapl_dapl_hello_group(priv, len));

    return mdapl_dapl_hello_get(h, priv, len, from,
                                mdapl_group_self(from ? from : mdapl_ctx_job(d->ctx)));
}

enum mdapl_dapl_hello_verdict mdapl_dapl_hello_visitor(struct mdapl_dapl_chan *d, const void *priv,
                                                       size_t len, struct mdapl_dapl_hello *h)
{
    enum mdapl_dapl_hello_verdict verdict = MDAPL_HELLO_UNKNOWN_GROUP;
    const struct mdapl_port *port = NULL;
    struct mdapl_group visitor, *added;

    while (verdict != MDAPL_HELLO_OK && (port = mdapl_port_next(d->ctx, port))) {
        visitor = mdapl_port_visitor(port, mdapl_dapl_hello_group(priv, len));
        verdict = mdapl_dapl_hello_get(h, priv, len, &visitor, visitor.self);
    }
    if (verdict == MDAPL_HELLO_OK && mdapl_group_add(d->ctx, &visitor, &added))
        verdict = MDAPL_HELLO_UNKNOWN_GROUP;
    return verdict;
}
