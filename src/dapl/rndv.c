/* SPDX-License-Identifier: MIT */
#include "rndv.h"

#include "peer.h"

bool mdapl_dapl_rndv_recovers(const struct mdapl_dapl_peer *peer)
{
    return mdapl_list_empty(&peer->rndv_tx) && mdapl_list_empty(&peer->rndv_rx);
}

void mdapl_dapl_rndv_ended(struct mdapl_dapl_stream *st)
{
    (void)st;
}

void mdapl_dapl_rndv_drained(struct mdapl_dapl_stream *st)
{
    (void)st;
}

void mdapl_dapl_rndv_up(struct mdapl_dapl_stream *st)
{
    (void)st;
}
