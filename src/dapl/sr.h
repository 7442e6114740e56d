/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SR_H
#define MDAPL_SR_H
/*
 * The sr lane: frames by send and receive. Its window counts receives that are posted at the
 * other end; every frame that arrives gives its receive back in the same round of progress,
 * whatever the owner does with what was in it.
 */
struct mdapl_stream;
struct mdapl_ep;
struct mdapl_vbuf;

/* Posts the receives of an EP, before it is connected. 0 or -ENOMEM. */
int mdapl_sr_arm(struct mdapl_stream *st, struct mdapl_ep *ep);
/* Sends a filled frame. 0 or -EIO; b->dto is done when it has left. */
int mdapl_sr_post(struct mdapl_stream *st, struct mdapl_vbuf *b);

#endif
