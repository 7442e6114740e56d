/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_TX_H
#define MDAPL_SHM_TX_H
/* A peer's queue, and messages into its ring. */
#include "channel.h"

struct mdapl_iov;
struct mdapl_long;
struct mdapl_shm_item;
struct mdapl_speer;

/* As mdapl_send(). */
int mdapl_shm_tx_send(struct mdapl_peer *base, const struct mdapl_msg *msg, struct mdapl_op *op);
/* Sends a record without a body, or queues it. 0 or -ENOMEM. */
int mdapl_shm_tx_record(struct mdapl_speer *peer, int type, const void *record, size_t len);
/* Writes a message with the next len bytes of a cursor, or with len bytes at body, or a record
 * without a body, if there is room. */
bool mdapl_shm_tx_put_from(struct mdapl_speer *peer, int type, const void *hdr, size_t hdr_len,
                           struct mdapl_iov *from, size_t len);
bool mdapl_shm_tx_put_with(struct mdapl_speer *peer, int type, const void *hdr, size_t hdr_len,
                           const void *body, size_t len);
bool mdapl_shm_tx_put(struct mdapl_speer *peer, int type, const void *record, size_t len);
/* Is there a ring to the peer's with room for a record? Takes a door if there is none yet. */
bool mdapl_shm_tx_open(struct mdapl_speer *peer);
/* Sends what waits, as far as there is room. Returns how many things moved. */
int mdapl_shm_tx_flush(struct mdapl_speer *peer);
/* Everything that waits fails. */
void mdapl_shm_tx_fail(struct mdapl_speer *peer, int status);

#endif
