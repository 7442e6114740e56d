/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CM_H
#define MDAPL_CM_H
/*
 * Connection management: turns DAT's events into the events of cm_fsm.h and carries out its
 * actions. A failure is raised as a fault (conn.h); recover.c decides whether it ends the peer.
 * A connection request is verified (hello, MAC under its group's key) before anything is allocated
 * for it.
 */
#include "channel.h"
#include "ia.h"

struct mdapl_dapl_chan;
struct mdapl_dapl_cm_cause;
struct mdapl_dapl_cm_requests;
struct mdapl_dapl_conn;
struct mdapl_dapl_fault;
struct mdapl_dapl_peer;
struct mdapl_dapl_stream;

/* The hooks that the adapter calls. */
struct mdapl_dapl_ia_hooks mdapl_dapl_cm_hooks(struct mdapl_dapl_chan *d);

/* Initializes the connection management of a stream: state IDLE. */
void mdapl_dapl_cm_init(struct mdapl_dapl_stream *st);
/* Connects all streams of the peer: in the next round of progress, requests are sent on those that
 * are idle. */
void mdapl_dapl_cm_connect(struct mdapl_dapl_peer *peer);
/* No requests are in flight, and no stream waits to make one (cm_time.h). */
void mdapl_dapl_cm_requests_init(struct mdapl_dapl_cm_requests *r);
/* Makes the requests whose turn it is. */
void mdapl_dapl_cm_request(struct mdapl_dapl_chan *d);
/* When one may be made without an event before, ns; UINT64_MAX: no stream waits. */
uint64_t mdapl_dapl_cm_request_due(const struct mdapl_dapl_chan *d);
/* The stream's connection, or the attempt at one, has ended by a fault that has been judged. */
void mdapl_dapl_cm_broke(struct mdapl_dapl_stream *st);
/* The adapter reports, asynchronously, that the connection has ended. */
void mdapl_dapl_cm_lost(struct mdapl_dapl_conn *conn, DAT_EVENT_NUMBER number);
/* The stream's rail has gone DOWN, for this cause: its connection ends, and so does an attempt at
 * one. No request is made until mdapl_dapl_cm_rail_up(). */
void mdapl_dapl_cm_rail_down(struct mdapl_dapl_stream *st,
                             const struct mdapl_dapl_cm_cause *cause);
/* The rail is open again: makes a request if the stream is to be connected. */
void mdapl_dapl_cm_rail_up(struct mdapl_dapl_stream *st);
/* Ends all connections of the peer and every attempt at one. They drain. */
void mdapl_dapl_cm_close(struct mdapl_dapl_peer *peer);
/* After mdapl_dapl_cm_close(): have all connections of the peer drained? */
bool mdapl_dapl_cm_ended(const struct mdapl_dapl_peer *peer);
/* Frees the closed connections that have drained, and steps the streams that waited for that.
 * Returns whether all have. */
bool mdapl_dapl_cm_reap(struct mdapl_dapl_chan *d);

/*
 * An asynchronous error of an adapter: the hook of struct mdapl_dapl_ia_hooks, in async.c. An error
 * of an endpoint ends that endpoint's connection; one after which the adapter is unusable ends its
 * rail (ia.h); any other is a line in the log. arg: the channel; what: the handle in the event; ep:
 * the endpoint of that handle, or NULL when it is none.
 */
void mdapl_dapl_async_event(void *arg, struct mdapl_dapl_ia *ia, DAT_HANDLE what,
                            struct mdapl_dapl_ep *ep, DAT_EVENT_NUMBER number);

#endif
