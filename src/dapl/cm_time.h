/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CM_TIME_H
#define MDAPL_CM_TIME_H
/*
 * How long connecting waits, in ns: from the knobs, from what has been tried, and from whether the
 * peer has been connected before. Then it is there, or was a moment ago, and its answer is soon.
 */
#include "peer.h"

/* The time of a request whose receiver may compute outside MPI. */
uint64_t mdapl_dapl_cm_time(const struct mdapl_dapl_stream *st);
/* The time of a first request. */
uint64_t mdapl_dapl_cm_first_time(const struct mdapl_dapl_stream *st);
/* When a stream that waits for its rail to be opened will have waited for too long; UINT64_MAX:
 * never, or its peer may be reached over another rail. */
uint64_t mdapl_dapl_cm_rail_end(const struct mdapl_dapl_stream *st);
/* The time of the next request. It doubles with each unanswered one, so that few requests of this
 * rank are queued at a peer that computes outside MPI for long. */
uint64_t mdapl_dapl_cm_request_time(const struct mdapl_dapl_stream *st, uint64_t now);
/* When the peer will have been without a connection for too long; UINT64_MAX: never, or it has one,
 * or never had one. */
uint64_t mdapl_dapl_cm_outage_end(const struct mdapl_dapl_peer *peer);
/* The pause before the next request, after one that has failed. */
uint64_t mdapl_dapl_cm_pause(const struct mdapl_dapl_stream *st);
/* The pause before a connection that ended is replaced: none for the rank whose request wins. */
uint64_t mdapl_dapl_cm_turn(const struct mdapl_dapl_stream *st);

/*
 * How many requests are in flight: as many as MPIR_CVAR_DAPL_WIRING_INFLIGHT says. When all
 * connections of a rank break at once, the other streams wait, in their order, so that requests do
 * not time out in the queues of hosts that have too many of them. A request counts for
 * MDAPL_CM_COUNTED_MS at most: one that a rank which computes does not answer costs nothing, and
 * the streams behind it do not wait for that. Wiring with a thread has no limit (wireup.h).
 */
enum { MDAPL_CM_COUNTED_MS = 20 };

/* The stream waits for its turn to make a request. */
void mdapl_dapl_cm_request_wait(struct mdapl_dapl_stream *st);
/* The stream makes one now: it counts. */
void mdapl_dapl_cm_request_begin(struct mdapl_dapl_stream *st);
/* It has been answered, or the stream makes none any more. */
void mdapl_dapl_cm_request_end(struct mdapl_dapl_stream *st);
/* The stream that has waited longest, which waits no more, if a request may be made; else NULL. */
struct mdapl_dapl_stream *mdapl_dapl_cm_request_next(struct mdapl_dapl_chan *d);

#endif
