/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SR_H
#define MDAPL_SR_H
/*
 * The sr lane: frames by send and receive. Its window counts receives that are posted at the
 * other end; every frame that arrives gives its receive back in the same round of progress,
 * whatever the owner does with what was in it.
 */
struct mdapl_stream;
struct mdapl_dto;
struct mdapl_ep;
struct mdapl_vbuf;

/* Posts the receives of an EP, before it is connected. 0 or -ENOMEM. */
int mdapl_sr_arm(struct mdapl_stream *st, struct mdapl_ep *ep);
/* Posts a send of the frame in b. 0 or -EIO; dto, b's own or another one, ends with its
 * completion. */
int mdapl_sr_post(struct mdapl_stream *st, struct mdapl_vbuf *b, struct mdapl_dto *dto);

#endif
