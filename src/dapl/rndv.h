/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RNDV_H
#define MDAPL_RNDV_H
/*
 * Rendezvous: bodies that do not fit a frame (paper resilient-message-passing, III). rndv_tx.c is
 * the sending end, rndv_rx.c the receiving one. The sender announces the message with an RTS; once
 * the receiver's owner reads, the body is moved by
 *
 *      rget    RDMA reads of the receiver, when the RTS names the memory of the body
 *      rput    RDMA writes of the sender, when the CTS of the receiver names the memory to write;
 *              WRITTEN frames follow them on the same streams
 *      copy    DATA frames, when the CTS names no memory or the sender cannot write
 *
 * and a FIN of the receiver ends it. The sender's knob chooses the first of the three that is
 * tried; where the adapters or the registrations do not allow it the next one is taken. The
 * handlers of the frames are declared in frames.h.
 */
#include "channel.h"
#include "idmap.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>

struct mdapl_dapl_chan;
struct mdapl_dapl_peer;
struct mdapl_dapl_rndv_tx;
struct mdapl_dapl_stream;

/* What the rendezvous of a channel have in common. */
void mdapl_dapl_rndv_init(struct mdapl_dapl_chan *d);
void mdapl_dapl_rndv_fini(struct mdapl_dapl_chan *d);

/* -- the sending end -------------------------------------------------------------------------- */

/*
 * Starts a rendezvous for a message with a body of len bytes, which stays the caller's and as it is
 * until op->done(): when the receiver has read the body (0), has dropped it (-ECANCELED) or the
 * peer is lost. 0 or -ENOMEM; then op->done() is not called.
 */
int mdapl_dapl_rndv_send(struct mdapl_dapl_peer *peer, const struct mdapl_msg *msg, size_t len,
                         struct mdapl_op *op);
/* Writes the fields and the bytes of the next DATA frame, at most room bytes, to out. Returns the
 * bytes written; *last_p: they are the last ones that the CTS requests. */
size_t mdapl_dapl_rndv_put_data(struct mdapl_dapl_rndv_tx *tx, uint8_t *out, size_t room,
                                bool *last_p);
/* The peer is lost: each send fails with status once its RDMA writes have completed. */
void mdapl_dapl_rndv_fail_tx(struct mdapl_dapl_peer *peer, int status);
/* Ends the sends whose RDMA writes never complete; only when the channel closes. */
void mdapl_dapl_rndv_free_tx(struct mdapl_dapl_peer *peer);

/* -- the receiving end ------------------------------------------------------------------------ */

/* The peer is lost: each read in progress fails with status once its RDMA reads have completed;
 * announced bodies stay until their owner drops them. */
void mdapl_dapl_rndv_fail_rx(struct mdapl_dapl_peer *peer, int status);
/* Frees announced bodies that the owner has not dropped; only when the channel closes. */
void mdapl_dapl_rndv_free_rx(struct mdapl_dapl_peer *peer);

/* -- connections that end and follow each other: both ends ------------------------------------ */

/* The connection of st has ended; what is posted on it is still to be flushed, st->conn is it. */
void mdapl_dapl_rndv_ended(struct mdapl_dapl_stream *st);
/* It has drained: every DTO of it has completed, and nothing of it is written here any more. The
 * last call while st->conn is it; inside progress, since it may complete the owner's reads. It is
 * called, too, when the rail of st is open again and st has no connection yet. */
void mdapl_dapl_rndv_drained(struct mdapl_dapl_stream *st);
/* A new connection of st is up. */
void mdapl_dapl_rndv_up(struct mdapl_dapl_stream *st);

/* Does a connection of the peer drain, or is about to? Until it has, writes that the peer posted on
 * it may still be placed. but: a stream whose connection has drained, or NULL. */
bool mdapl_dapl_rndv_unsettled(const struct mdapl_dapl_peer *peer,
                               const struct mdapl_dapl_stream *but);
/* Has a WRITTEN, of a stream that exists, arrived on the connection that it names, the one that
 * carried its writes? Only then have they been placed. A replayed one arrives on another; the one
 * that it names has ended at the peer, so it ends here. */
bool mdapl_dapl_rndv_carried(struct mdapl_dapl_stream *st, const struct mdapl_dapl_written *w);
/* Nothing of an ended connection is placed any more: marks what the peer has not written, and with
 * several streams begins to request it anew (rndv_rx.c). */
void mdapl_dapl_rndv_ask_again(struct mdapl_dapl_peer *peer);
/* The peer has a connection again: with one stream, begins to. */
void mdapl_dapl_rndv_ask_on(struct mdapl_dapl_peer *peer);
/* A frame names an id of these that no rendezvous has: true if one had it. Then the frame is
 * skipped and counted; else it is a bad one. */
bool mdapl_dapl_rndv_had(struct mdapl_dapl_chan *d, const struct mdapl_idmap *ids, uint32_t id);

#endif
