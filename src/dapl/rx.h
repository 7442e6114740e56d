/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RX_H
#define MDAPL_RX_H
/*
 * Frames in: checked, put in sequence, acknowledged, handed to the one that their type concerns.
 * Messages go to the owner through the peer's inbox (util), so frames never wait for the owner.
 */
#include "transport.h"

#include <stdbool.h>
#include <stddef.h>

struct mdapl_dpeer;
struct mdapl_ep;
struct mdapl_stream;

/* Posts the receives of an EP of st, before it is connected: a window and the reserve. 0, -ENOMEM
 * or -EIO; those that are posted stay so. */
int mdapl_rx_arm(struct mdapl_stream *st, struct mdapl_ep *ep);
/*
 * A frame of len bytes has arrived on a connection of the peer's. True: it has been dealt with and
 * the caller gives its credit back. False: frames before it are missing, it was copied to the
 * reorder queue, and *credit (the count of credits given back of its lane) is raised in its turn.
 */
bool mdapl_rx_frame(struct mdapl_stream *st, uint64_t *credit, const void *frame, size_t len);
/*
 * The handler of each type that has fields, mdapl_dapl_on_<name>() (rndv.h, ring.h), is called in
 * the order of psns with
 *   peer    the sender of the frame
 *   fields  what its row in frames.def names, read and found possible; good during the call
 *   f       its header
 *   p       the bytes behind the header: the envelope, the fields, what follows them; as `fields`
 * and returns false when the frame makes no sense in the state that the two are in: that ends the
 * peer.
 */

/* Is an acknowledgement of psns due that no other frame has carried? */
bool mdapl_rx_psn_ack_due(const struct mdapl_dpeer *peer);
/* The same, or the window update of a stream (mdapl_rxwin_owes()). */
bool mdapl_rx_ack_due(const struct mdapl_dpeer *peer);
/* The peer is lost: what waits will not be announced. */
void mdapl_rx_fail(struct mdapl_dpeer *peer);

#endif
