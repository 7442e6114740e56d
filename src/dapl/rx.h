/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RX_H
#define MDAPL_RX_H
/*
 * Frames in: checked, put in sequence, acknowledged, handed to the one that their type concerns.
 * Messages are announced to the owner in their order; while the owner holds (MDAPL_NEXT_HOLD) they
 * are copied out of their frames and wait, so that frames never wait for the owner.
 */
#include "transport.h"

#include <stdbool.h>
#include <stddef.h>

struct mdapl_dapl;
struct mdapl_dpeer;
struct mdapl_stream;

/* The pools of bodies and announcements. */
void mdapl_rx_pools_init(struct mdapl_dapl *d);
/* Frees them, with the bodies that the owner never finished. */
void mdapl_rx_pools_fini(struct mdapl_dapl *d);

/* A frame of len bytes has arrived on a connection of the peer's. */
void mdapl_rx_frame(struct mdapl_stream *st, const void *frame, size_t len);
/* Announces a message, or queues the announcement. rx: NULL without a body. */
void mdapl_rx_announce(struct mdapl_dpeer *peer, const void *hdr, size_t hdr_len,
                       struct mdapl_rx *rx);
/* This rx has come to its end: what waited behind it may be announced in the next round. */
void mdapl_rx_over(struct mdapl_dpeer *peer, struct mdapl_rx *rx);
/* Announces what waits, as long as the owner does not hold. Returns how many. */
int mdapl_rx_announce_held(struct mdapl_dpeer *peer);
/* The stream whose window the peer must hear of; NULL: none. */
struct mdapl_stream *mdapl_rx_owing_stream(const struct mdapl_dpeer *peer);
/* Is an acknowledgement due that no other frame has carried? */
bool mdapl_rx_ack_due(const struct mdapl_dpeer *peer);
/* A frame that leaves has told the peer all that we have received. */
void mdapl_rx_told(struct mdapl_dpeer *peer);
/* The peer is lost: what waits will not be announced. */
void mdapl_rx_fail(struct mdapl_dpeer *peer);

#endif
