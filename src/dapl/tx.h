/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TX_H
#define MDAPL_TX_H
/*
 * Frames out. What cannot leave at once becomes an item on the peer's queue; an item is filled
 * into a frame when there is room for it, and the frame gets its psn at that moment. Frames are
 * retained until the peer acknowledges them (paper resilient-message-passing, IV.A).
 */
#include "list.h"
#include "channel.h"
#include "wire.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_dpeer;
struct mdapl_stream;
struct mdapl_rndv_tx;
struct mdapl_vbuf;

enum { MDAPL_ITEM_IOV = 16 };    /* pieces of a body that an item holds without more memory */

/* Something that waits to be sent; the frame type says which part of `u` counts. */
struct mdapl_item {
    struct mdapl_list link;
    enum mdapl_frame_type type;
    int stream;                  /* on which its frames leave */
    struct mdapl_op *op;         /* MSG: done when the body has been copied into its frame */
    uint16_t hdr_len;
    uint8_t hdr[MDAPL_HDR_MAX];
    union {
        struct {
            struct iovec *v;     /* own[] or allocated */
            int n;
            size_t len;
            struct iovec own[MDAPL_ITEM_IOV];
        } msg;
        struct mdapl_rndv_tx *rndv;    /* RTS and DATA */
        struct mdapl_cts cts;
        struct mdapl_written written;
        struct mdapl_fin fin;
        struct mdapl_ring_given ring;
    } u;
};

/* The channel's send. */
int mdapl_tx_send(struct mdapl_peer *peer, const struct mdapl_msg *msg, struct mdapl_op *op);

/* A fresh item of a type, not on any queue; NULL when memory is out. */
struct mdapl_item *mdapl_item_get(struct mdapl_dpeer *peer, enum mdapl_frame_type type);
/* Queues it: messages behind messages; control items behind control items, before all messages. */
void mdapl_item_queue(struct mdapl_dpeer *peer, struct mdapl_item *item);

/* How a frame of at most len bytes may leave on this stream now. The one place that knows. */
enum mdapl_lane { MDAPL_LANE_NONE, MDAPL_LANE_SR, MDAPL_LANE_RING };
enum mdapl_lane mdapl_tx_lane(struct mdapl_stream *st, size_t len);
/* Sends what can leave, then an acknowledgement if one is due and nothing carried it. */
int mdapl_tx_flush(struct mdapl_dpeer *peer);
/* The peer has everything below psn `ack` (low 32 bits). False: it cannot know of that many. */
bool mdapl_tx_acked(struct mdapl_dpeer *peer, uint32_t ack);
/* The peer is lost: every queued operation fails with status, retained frames are let go. */
void mdapl_tx_fail(struct mdapl_dpeer *peer, int status);

#endif
