/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_PUSH_H
#define MDAPL_SHM_PUSH_H
/*
 * Bodies of middle length, too long for the ring and too short to ask for: if enough cells are
 * free, the message and its cells leave together (PUSH, then DATA after DATA); if earlier ones to
 * the same peer hold the cells it waits for them; if other peers hold them the body is announced
 * instead (copy.h). The receiver knows the message while the sender still copies. What the owner
 * has not asked for when it arrives is copied aside, so that cells never wait for the owner.
 */
#include "channel.h"

#include <stdint.h>

struct mdapl_shm_data;
struct mdapl_speer;

/* Sends all of it, now; false: no room for that. */
bool mdapl_push_send(struct mdapl_speer *peer, const struct mdapl_msg *msg, size_t len);
/* Will there be cells for so many bytes once this peer has taken what is on its way to it? */
bool mdapl_push_will(const struct mdapl_speer *peer, size_t len);

/* What comes in; false: impossible, or the peer has failed for want of memory. */
bool mdapl_push_on_push(struct mdapl_speer *peer, const void *hdr, size_t hdr_len,
                        const void *body, size_t len);
/* bytes: data->len of them, in a cell or in the ring. */
bool mdapl_push_on_data(struct mdapl_speer *peer, const struct mdapl_shm_data *data,
                        const uint8_t *bytes);

/* Frees the bodies that the owner never finished. */
void mdapl_push_free(struct mdapl_speer *peer);

#endif
