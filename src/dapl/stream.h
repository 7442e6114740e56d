/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_STREAM_H
#define MDAPL_STREAM_H
/*
 * Which of a peer's connections carries what (paper mpi-over-udapl, 6.1). Frames go on stream 0.
 * Long bodies take the streams in turn, one each; from MPIR_CVAR_DAPL_STRIPE_BYTES on, a body is
 * cut, and each piece goes to the stream with the fewest bytes under way: so a faster rail takes
 * more, without anybody having to know how fast it is.
 */
#include "peer.h"

struct mdapl_ep;

/* The stream of a body of len bytes; -1: all of them, in stripes. */
int mdapl_stream_for(struct mdapl_dpeer *peer, uint64_t len);
/* The stream for its next piece, one on which it `can` be posted: the given one, or with -1 the
 * least loaded of all. NULL: none now. */
struct mdapl_stream *mdapl_stream_pick(struct mdapl_dpeer *peer, int stream,
                                       bool (*can)(const struct mdapl_ep *ep));

#endif
