/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_DAPL_FRAME_LOG_H
#define MDAPL_DAPL_FRAME_LOG_H
/* Frames as text: the lines of log level 3, for those who look for a fault of the protocol. */
#include <stddef.h>

struct mdapl_dapl_peer;

/*
 * Writes one frame as "FIN psn 6 ack 4 limits 20 0 len 8 tx_id 0x100000 status 0": its type, its
 * header (the limits of both lanes), the fields of its row and the pieces of memory that it names.
 * What is not a frame is written as its length and first bytes. frame: len bytes. text: room bytes,
 * ended by a zero, cut when too short.
 */
void mdapl_dapl_frame_text(const void *frame, size_t len, char *text, size_t room);
/* Logs a frame that goes to ("->") or comes from ("<-") the peer. For level MDAPL_FRAME only: the
 * caller asks for the level, so that frames which are not logged cost one comparison. */
void mdapl_dapl_frame_log(const struct mdapl_dapl_peer *peer, const char *way, const void *frame,
                          size_t len);

#endif
