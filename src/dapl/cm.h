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
#include "wire.h"

struct mdapl_dapl_chan;
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
/* The adapter reports, asynchronously, that the connection has ended. */
void mdapl_dapl_cm_lost(struct mdapl_dapl_conn *conn, DAT_EVENT_NUMBER number);
/* The first frame of the connection's other end has arrived, perhaps before the event that it is
 * established: an acceptor may transmit from now on. */
void mdapl_dapl_cm_first_frame(struct mdapl_dapl_conn *conn);
/* Ends all connections of the peer and every attempt at one. They drain. */
void mdapl_dapl_cm_close(struct mdapl_dapl_peer *peer);
/* After mdapl_dapl_cm_close(): have all connections of the peer drained? */
bool mdapl_dapl_cm_ended(const struct mdapl_dapl_peer *peer);
/* Frees the closed connections that have drained, and steps the streams that waited for that.
 * Returns whether all have. */
bool mdapl_dapl_cm_reap(struct mdapl_dapl_chan *d);

/* hello.c */
/* Reads and verifies the private data of a request or of an answer. priv: len bytes of it. */
enum mdapl_dapl_hello_verdict mdapl_dapl_hello_verify(const struct mdapl_dapl_chan *d,
                                                      const void *priv, size_t len,
                                                      struct mdapl_dapl_hello *h);
/* The same for a request of a group that this process does not have: it may be that of a visitor,
 * which knows the key of an open port. The visitor is then added as a group. */
enum mdapl_dapl_hello_verdict mdapl_dapl_hello_visitor(struct mdapl_dapl_chan *d, const void *priv,
                                                       size_t len, struct mdapl_dapl_hello *h);

/*
 * An asynchronous error of an adapter: the hook of struct mdapl_dapl_ia_hooks, in async.c. An error
 * of an endpoint ends that endpoint's connection; one after which the adapter is unusable is raised
 * as a fault of each of its streams; any other is a line in the log. arg: the channel; what: the
 * handle in the event; ep: the endpoint of that handle, or NULL when it is none.
 */
void mdapl_dapl_async_event(void *arg, struct mdapl_dapl_ia *ia, DAT_HANDLE what,
                            struct mdapl_dapl_ep *ep, DAT_EVENT_NUMBER number);

#endif
