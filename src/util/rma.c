/* SPDX-License-Identifier: MIT */
#include "transport.h"

#include "channel.h"

#include <errno.h>

void mdapl_exposed_where(struct mdapl_exposed *e, struct mdapl_where *where)
{
    e->ops->describe(e, where);
}

void mdapl_withdraw(struct mdapl_exposed *e)
{
    e->ops->withdraw(e);
}

bool mdapl_peer_has_rma(const struct mdapl_peer *peer)
{
    return peer->channel->put != NULL;
}

int mdapl_put(struct mdapl_peer *peer, const struct mdapl_where *to, uint64_t off,
              const void *from, size_t len, struct mdapl_op *op)
{
    return mdapl_peer_has_rma(peer) ? peer->channel->put(peer, to, off, from, len, op) : -ENOTSUP;
}

int mdapl_get(struct mdapl_peer *peer, const struct mdapl_where *from, uint64_t off, void *to,
              size_t len, struct mdapl_op *op)
{
    return mdapl_peer_has_rma(peer) ? peer->channel->get(peer, from, off, to, len, op) : -ENOTSUP;
}
