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
struct mdapl_stream;

/*
 * A frame of len bytes has arrived on a connection of the peer's. True: it has been dealt with and
 * the caller gives its credit back. False: frames before it are missing, it was copied to the
 * reorder queue, and *credit (the count of credits given back of its lane) is raised in its turn.
 */
bool mdapl_rx_frame(struct mdapl_stream *st, uint64_t *credit, const void *frame, size_t len);
/* Is an acknowledgement of psns due that no other frame has carried? */
bool mdapl_rx_psn_ack_due(const struct mdapl_dpeer *peer);
/* The same, or the window update of a stream (mdapl_rxwin_owes()). */
bool mdapl_rx_ack_due(const struct mdapl_dpeer *peer);
/* A frame that leaves has told the peer all that we have received. */
void mdapl_rx_told(struct mdapl_dpeer *peer);
/* The connection of this credit count is closed: frames that wait raise it no more. */
void mdapl_rx_forget_credits(struct mdapl_dpeer *peer, const uint64_t *credit);
/* The peer is lost: what waits will not be announced. */
void mdapl_rx_fail(struct mdapl_dpeer *peer);

#endif
