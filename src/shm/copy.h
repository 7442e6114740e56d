/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_COPY_H
#define MDAPL_SHM_COPY_H
/*
 * Long bodies, and synchronous ones. The sender announces them (RTS) and keeps them; the receiver,
 * when the owner reads, has them copied in one of two ways, and says FIN at the end.
 *
 *      once    it reads them out of the sender's memory, if the kernel lets it. The sender's core
 *              does nothing, the kernel pins page after page.
 *      twice   it asks for bytes (CTS), and the sender copies them into cells of its segment while
 *              the receiver copies them out (DATA tells of each cell): two cores at once, no
 *              system call.
 *
 * The RTS publishes the bytes of the body where they lie, for the kernel's reads too, and the FIN
 * gives them back: both are messages of a ring (ring.h).
 *
 * Which is faster from which length on depends on the machine: it is measured when the first long
 * body comes, or set by a knob.
 */
#include "channel.h"

struct mdapl_long;
struct mdapl_shm;
struct mdapl_shm_cts;
struct mdapl_shm_data;
struct mdapl_shm_fin;
struct mdapl_speer;

void mdapl_long_init(struct mdapl_shm *s);
/* A body that has been announced to a peer. NULL: out of memory. */
struct mdapl_long *mdapl_long_send(struct mdapl_speer *peer, const struct mdapl_msg *msg,
                                   size_t len, struct mdapl_op *op);
/* The record that is the body of its RTS. */
size_t mdapl_long_rts_len(const struct mdapl_long *send);
void mdapl_long_put_rts(struct mdapl_long *send, void *out);
/* Sends pieces of bodies that have been asked for. Returns how many. */
int mdapl_long_stream(struct mdapl_speer *peer);

/* What comes in; false: impossible, or the peer has failed for want of memory. */
bool mdapl_long_on_rts(struct mdapl_speer *peer, const void *hdr, size_t hdr_len, const void *rts,
                       size_t len);
bool mdapl_long_on_cts(struct mdapl_speer *peer, const struct mdapl_shm_cts *cts);
/* bytes: data->len of them, in a cell or in the ring. */
bool mdapl_long_on_data(struct mdapl_speer *peer, const struct mdapl_shm_data *data,
                        const uint8_t *bytes);
bool mdapl_long_on_fin(struct mdapl_speer *peer, const struct mdapl_shm_fin *fin);

/* The peer is lost: sends fail. */
void mdapl_long_fail(struct mdapl_speer *peer, int status);
/* Frees the bodies that the owner never finished. */
void mdapl_long_free(struct mdapl_speer *peer);

#endif
