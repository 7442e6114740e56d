/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RNDV_H
#define MDAPL_RNDV_H
/*
 * Bodies too long for one frame. The sender announces the message with an RTS that says where the
 * registered body lies; the receiver, once its owner reads, fetches it by RDMA reads (rget) and
 * ends with a FIN. When either side cannot register its memory, or the provider has no RDMA read,
 * the receiver asks for the bytes with a CTS and they come in DATA frames (copy).
 */
#include "transport.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>

struct mdapl_dapl;
struct mdapl_dpeer;
struct mdapl_rndv_tx;

void mdapl_rndv_init(struct mdapl_dapl *d);
void mdapl_rndv_fini(struct mdapl_dapl *d);

/* Starts a rendezvous; op->done when the receiver has read or dropped the body. 0 or -ENOMEM. */
int mdapl_rndv_send(struct mdapl_dpeer *peer, const struct mdapl_msg *msg, size_t len,
                    struct mdapl_op *op);
/* Fills an RTS, or the next DATA frame of at most room bytes; bytes written. */
size_t mdapl_rndv_put_rts(struct mdapl_rndv_tx *tx, uint8_t *out);
size_t mdapl_rndv_put_data(struct mdapl_rndv_tx *tx, uint8_t *out, size_t room, bool *last_p);

/* Frames; false: the content is impossible. */
bool mdapl_rndv_on_rts(struct mdapl_dpeer *peer, const struct mdapl_rts *rts, const void *hdr,
                       size_t hdr_len);
bool mdapl_rndv_on_cts(struct mdapl_dpeer *peer, const struct mdapl_cts *cts);
bool mdapl_rndv_on_data(struct mdapl_dpeer *peer, const struct mdapl_data *data, const void *bytes,
                        size_t len);
bool mdapl_rndv_on_fin(struct mdapl_dpeer *peer, const struct mdapl_fin *fin);

/* Posts RDMA reads that waited for room. Returns how many. */
int mdapl_rndv_flush(struct mdapl_dpeer *peer);
/* The peer is lost: sends fail, reads fail once nothing of theirs is posted any more; announced
 * bodies stay until their owner drops them. */
void mdapl_rndv_fail(struct mdapl_dpeer *peer, int status);
/* Forgets announced bodies that the owner never dropped; at the end only. */
void mdapl_rndv_free(struct mdapl_dpeer *peer);

#endif
