/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_STREAM_H
#define MDAPL_STREAM_H
/*
 * Which stream of a peer carries what (paper mpi-over-udapl, 6.1). Frames go on the lowest that is
 * up. Long bodies take the streams in turn, one each. A body of MPIR_CVAR_DAPL_STRIPE_BYTES or more
 * is cut, and each piece goes to the stream with the fewest bytes in flight, so that a faster rail
 * takes more although its speed is not known. With MPIR_CVAR_DAPL_IA_USE=spare the first rail takes
 * all while it has a connection.
 */
#include "peer.h"

struct mdapl_dapl_xfer;

/* The stream of the peer's next long body, of len bytes; -1: all streams, in stripes. */
int mdapl_dapl_stream_for(struct mdapl_dapl_peer *peer, uint64_t len);
/* What a transfer can do on a stream that is up. */
enum mdapl_dapl_fit {
    MDAPL_DAPL_FIT_NEVER,        /* a key of its memory is void there */
    MDAPL_DAPL_FIT_LATER,        /* no request slot is free */
    MDAPL_DAPL_FIT_NOW,
};

typedef enum mdapl_dapl_fit mdapl_dapl_fit(const struct mdapl_dapl_xfer *m,
                                           const struct mdapl_dapl_stream *st);

/*
 * The stream on which the next piece of a body can be posted now: the given one (while that is not
 * up, its rail is suspect or *m never fits it, the lowest other one), or for -1 the one with the
 * fewest bytes in flight. Those whose rails are neither suspect nor spare come first. fit: what *m
 * can do on a stream. NULL: there is none; then *stranded_p says whether streams are up and *m
 * never fits any.
 */
struct mdapl_dapl_stream *mdapl_dapl_stream_pick(struct mdapl_dapl_peer *peer, int stream,
                                                 const struct mdapl_dapl_xfer *m,
                                                 mdapl_dapl_fit *fit, bool *stranded_p);

#endif
