/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RNDV_H
#define MDAPL_RNDV_H
/*
 * Bodies too long for one frame: rndv_tx.c is the sending end, rndv_rx.c the receiving one. The
 * sender announces the message with an RTS; once the receiver's owner reads, the body comes by
 *
 *      rget    RDMA reads of the receiver's, when the RTS says where the body lies
 *      rput    RDMA writes of the sender's, when the receiver's CTS says where it should go;
 *              WRITTEN frames follow them on the same streams
 *      copy    DATA frames, when the CTS says no such thing or the sender cannot write
 *
 * and a FIN of the receiver's ends it. The sender's knob chooses; what the adapters or the memory
 * do not allow falls to the next of the three.
 */
#include "transport.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>

struct mdapl_dapl;
struct mdapl_dpeer;
struct mdapl_item;
struct mdapl_rndv_tx;

/* -- the sending end -------------------------------------------------------------------------- */

/* Starts a rendezvous; op->done when the receiver has read or dropped the body. 0 or -ENOMEM. */
int mdapl_rndv_send(struct mdapl_dpeer *peer, const struct mdapl_msg *msg, size_t len,
                    struct mdapl_op *op);
/* Makes an item, whose envelope is in it, the RTS of a rendezvous of the first len bytes at v,
 * which may be a part of the item. False: out of memory, and the item is as it was. */
bool mdapl_rndv_announce(struct mdapl_dpeer *peer, struct mdapl_item *it, const struct iovec *v,
                         int n, size_t len, struct mdapl_op *op);
/* Encodes the next DATA frame of at most room bytes; bytes written. */
size_t mdapl_rndv_put_data(struct mdapl_rndv_tx *tx, uint8_t *out, size_t room, bool *last_p);
/* Frames (rx.h). */
bool mdapl_dapl_on_cts(struct mdapl_dpeer *peer, const struct mdapl_cts *cts,
                       const struct mdapl_frame *f, const uint8_t *p);
bool mdapl_dapl_on_fin(struct mdapl_dpeer *peer, const struct mdapl_fin *fin,
                       const struct mdapl_frame *f, const uint8_t *p);
/* The peer is lost: sends fail once nothing of theirs is posted any more. */
void mdapl_rndv_fail_tx(struct mdapl_dpeer *peer, int status);
/* Ends those whose RDMA never came back; only when the channel closes. */
void mdapl_rndv_free_tx(struct mdapl_dpeer *peer);

/* -- the receiving end ------------------------------------------------------------------------ */

/* Frames (rx.h). */
bool mdapl_dapl_on_rts(struct mdapl_dpeer *peer, const struct mdapl_rts *rts,
                       const struct mdapl_frame *f, const uint8_t *p);
bool mdapl_dapl_on_data(struct mdapl_dpeer *peer, const struct mdapl_data *data,
                        const struct mdapl_frame *f, const uint8_t *p);
bool mdapl_dapl_on_written(struct mdapl_dpeer *peer, const struct mdapl_written *written,
                           const struct mdapl_frame *f, const uint8_t *p);
/* The peer is lost: reads fail once nothing of theirs is posted any more; announced bodies stay
 * until their owner drops them. */
void mdapl_rndv_fail_rx(struct mdapl_dpeer *peer, int status);
/* Forgets announced bodies that the owner never dropped; only when the channel closes. */
void mdapl_rndv_free_rx(struct mdapl_dpeer *peer);

#endif
