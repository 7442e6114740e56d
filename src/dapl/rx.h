/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RX_H
#define MDAPL_RX_H
/*
 * Frames in, and the receives of the sr lane: a frame is checked, put in sequence, acknowledged and
 * handed to the handler of its type. Messages go to the owner through the peer's inbox (util),
 * which copies what the owner does not take, so a receive is posted again at once.
 */
#include "channel.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>

struct mdapl_dapl_peer;
struct mdapl_dapl_ep;
struct mdapl_dapl_stream;

/* Posts the receives of an EP of st, before it is connected: a window and the reserve. 0, -ENOMEM
 * or -EIO; those that are posted stay so. */
int mdapl_dapl_rx_arm(struct mdapl_dapl_stream *st, struct mdapl_dapl_ep *ep);
/*
 * Takes a frame of len bytes that has arrived on a connection to the peer of st; the memory is the
 * caller's after the call. True: it has been delivered, or was a duplicate, or has failed the peer;
 * the caller gives its credit back. False: frames before it are missing, a copy is in the reorder
 * queue, and *credit (how many credits of its lane have been given back) is raised in its turn.
 */
bool mdapl_dapl_rx_frame(struct mdapl_dapl_stream *st, uint64_t *credit, const void *frame,
                         size_t len);
/*
 * The handlers of the types that have fields: mdapl_dapl_on_rts() and so on, in rndv_tx.c,
 * rndv_rx.c and ring.c. They are called in the order of psns, with
 *   peer    the sender of the frame
 *   fields  what its row in frames.def names, decoded and found possible
 *   f       its header
 *   p       the bytes behind the header: the envelope, the fields, what follows them
 * all good during the call only. False: the frame is impossible in the state that the two are in,
 * which fails the peer.
 */
#define BARE(...)
#define FRAME(number, NAME, name, ...)                                                            \
    bool mdapl_dapl_on_##name(struct mdapl_dapl_peer *peer,                                       \
                              const struct mdapl_dapl_##name *fields,                             \
                              const struct mdapl_dapl_frame *f, const uint8_t *p);
#include "frames.def"

/* Is an acknowledgement of psns due, in a frame of its own: by the number of frames or bytes since
 * the last one, by time, or because the job drains? */
bool mdapl_dapl_rx_psn_ack_due(const struct mdapl_dapl_peer *peer);
/* The same, or a window update of one of its streams. */
bool mdapl_dapl_rx_ack_due(const struct mdapl_dapl_peer *peer);
/* The connection of this credit count is closed: frames in the reorder queue raise it no more. */
void mdapl_dapl_rx_forget_credits(struct mdapl_dapl_peer *peer, const uint64_t *credit);
/* The peer is lost: messages that wait are not announced, frames in the reorder queue are freed. */
void mdapl_dapl_rx_fail(struct mdapl_dapl_peer *peer);

#endif
