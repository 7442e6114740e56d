/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_STREAM_H
#define MDAPL_STREAM_H
/*
 * Which stream of a peer carries what (paper mpi-over-udapl, 6.1). Frames go on stream 0. Long
 * bodies take the streams in turn, one each. A body of MPIR_CVAR_DAPL_STRIPE_BYTES or more is cut,
 * and each piece goes to the stream with the fewest bytes in flight, so that a faster rail takes
 * more although its speed is not known.
 */
#include "peer.h"

struct mdapl_dapl_ep;

/* The stream of the peer's next long body, of len bytes; -1: all streams, in stripes. */
int mdapl_dapl_stream_for(struct mdapl_dapl_peer *peer, uint64_t len);
/* The stream on which the next piece of a body can be posted now: the given one (while that is not
 * up, or its rail suspect, the lowest that is up), or for -1 the one with the fewest bytes in
 * flight. can: whether an EP has room
 * for it. NULL: no stream has room. */
struct mdapl_dapl_stream *mdapl_dapl_stream_pick(struct mdapl_dapl_peer *peer, int stream,
                                                 bool (*can)(const struct mdapl_dapl_ep *ep));

#endif
