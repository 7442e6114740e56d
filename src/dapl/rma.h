/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_DAPL_RMA_H
#define MDAPL_DAPL_RMA_H
/*
 * Puts and gets: RDMA writes and reads of memory that the peer has exposed, without any frame.
 * xfer.c transfers them, over one stream or in stripes, as the bodies of rendezvous.
 *
 * A connection that breaks: a read that has failed is posted again on any stream. A write that has
 * failed may have been placed, and worse, may still be placed until the connection has drained at
 * the peer. Were it repeated elsewhere, the put be done, and the same memory written again, then
 * the old bytes could land on the new ones. So the first write that fails stops the put, and it
 * goes on from its first missing byte when each connection on which one has failed is known to have
 * drained at the peer: it has made or accepted the next one of that stream; or, where another
 * stream is up meanwhile, the peer has been asked (ENDED) and has answered (DRAINED). So no put
 * waits for a stream that does not return.
 *
 * An adapter that is opened again: the peer's keys of that rail are void, and the put or get ends
 * with -ESTALE if no stream is up whose key is good. What is registered here is registered anew.
 */
#include "channel.h"

#include <stdbool.h>

struct mdapl_dapl_chan;
struct mdapl_dapl_peer;
struct mdapl_dapl_stream;

/* mdapl_expose(), mdapl_put() and mdapl_get() of the channel: as in transport.h. */
int mdapl_dapl_rma_expose(void *state, void *base, size_t len, struct mdapl_exposed **e_p);
int mdapl_dapl_rma_put(struct mdapl_peer *peer, const struct mdapl_where *to, uint64_t off,
                       const void *from, size_t len, struct mdapl_op *op);
int mdapl_dapl_rma_get(struct mdapl_peer *peer, const struct mdapl_where *from, uint64_t off,
                       void *to, size_t len, struct mdapl_op *op);

/* Is any put or get to the peer in progress? */
bool mdapl_dapl_rma_busy(const struct mdapl_dapl_peer *peer);
/* A new connection of st is up. */
void mdapl_dapl_rma_up(struct mdapl_dapl_stream *st);
/* Connections have drained: answers the peers that wait for that. */
void mdapl_dapl_rma_drained(struct mdapl_dapl_chan *d);
/* Goes on with those that have stopped and may. Only inside progress. Returns how many. */
int mdapl_dapl_rma_go_on(struct mdapl_dapl_peer *peer);
/* The peer is lost: each ends with status once what is posted of it has completed. */
void mdapl_dapl_rma_fail(struct mdapl_dapl_peer *peer, int status);
/* Ends those whose DTOs never complete; only when the channel closes. */
void mdapl_dapl_rma_free(struct mdapl_dapl_peer *peer);
/* Withdraws what the owner has left exposed, when the channel closes. */
void mdapl_dapl_rma_fini(struct mdapl_dapl_chan *d);

#endif
