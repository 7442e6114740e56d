/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TX_H
#define MDAPL_TX_H
/*
 * Frames out. What cannot be transmitted at once becomes an item on the peer's queue. A control
 * frame is encoded when it is queued; the frame that is transmitted gets its psn, its ack and its
 * limits then and nothing else. Frames are retained until the peer acknowledges them (paper
 * resilient-message-passing, IV.A), and a retained frame can be transmitted again.
 */
#include "ia.h"
#include "list.h"
#include "channel.h"
#include "wire.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_dapl_peer;
struct mdapl_pool;
struct mdapl_dapl_stream;
struct mdapl_dapl_rndv_tx;
struct mdapl_dapl_vbuf;

enum { MDAPL_ITEM_IOV = 16 };    /* pieces of a body that an item holds without more memory */

/* Something that waits to be transmitted: a MSG, the DATA frames of a body, or a control frame. */
struct mdapl_dapl_item {
    struct mdapl_list link;
    enum mdapl_dapl_frame_type type;
    int stream;                  /* which transmits its frames */
    struct mdapl_op *op;         /* MSG: done when the body has been copied into its frame */
    uint32_t len;                /* bytes behind the envelope; DATA: at most, in each frame */
    uint16_t hdr_len;
    uint8_t hdr[MDAPL_HDR_MAX];
    union {
        struct {
            struct iovec *v;     /* own[] or allocated */
            int n;
            struct iovec own[MDAPL_ITEM_IOV];
        } msg;
        struct mdapl_dapl_rndv_tx *rndv;      /* DATA */
        uint8_t bytes[MDAPL_FIELDS_MAX];      /* control frames: len bytes, encoded */
    } u;
};

/* A further post of a retained frame: the vbuf has one of its own, which may still be out. */
struct mdapl_dapl_repost {
    struct mdapl_dapl_dto dto;
    struct mdapl_dapl_vbuf *b;   /* has a hold for it */
    struct mdapl_pool *pool;     /* takes it back */
};

/* mdapl_send() of the channel: arguments and errors as in transport.h. */
int mdapl_dapl_tx_send(struct mdapl_peer *peer, const struct mdapl_msg *msg, struct mdapl_op *op);

/* An item of a type for stream 0, empty, on no queue, to be queued or given back to d->items; NULL
 * when memory is out. */
struct mdapl_dapl_item *mdapl_dapl_item_get(struct mdapl_dapl_peer *peer,
                                            enum mdapl_dapl_frame_type type);
/* Queues it, which takes it over: messages (MSG, RTS) in their order, behind all control frames. */
void mdapl_dapl_item_queue(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *item);

/* Transmits what the windows allow, then the acknowledgements that are still due. Returns how many
 * frames. */
int mdapl_dapl_tx_flush(struct mdapl_dapl_peer *peer);
/*
 * Transmits a retained frame of st's peer once more, on the sr lane of st, with the present ack and
 * limits. An earlier post of it may still be out. On st it carries the old or the new ack and
 * limits, and both are true; on another stream it has to be on a connection of which the peer takes
 * nothing any more, or whose limit is not below that of st, since the limits are those of st. The
 * sr lane, because the ring lane writes the number of the write behind the frame, which an earlier
 * write may still need. The buffer is free when every post has come back and the peer has
 * acknowledged the frame. 0; -EAGAIN: there is no window or request slot now; -ENOMEM; -EIO:
 * refused, the connection is lost.
 */
int mdapl_dapl_tx_repost(struct mdapl_dapl_stream *st, struct mdapl_dapl_vbuf *b);
/* The peer has every frame below psn `ack` (low 32 bits): their buffers are let go. False: there is
 * no such frame yet. */
bool mdapl_dapl_tx_acked(struct mdapl_dapl_peer *peer, uint32_t ack);
/* The peer is lost: every queued operation fails with status, retained buffers are let go. */
void mdapl_dapl_tx_fail(struct mdapl_dapl_peer *peer, int status);

#endif
