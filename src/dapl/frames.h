/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_DAPL_FRAMES_H
#define MDAPL_DAPL_FRAMES_H
/*
 * The path of a frame, out and in, and its line in the log.
 *
 * Out (tx.c): what cannot be transmitted at once becomes an item on the peer's queue. A control
 * frame is encoded when it is queued; the frame that is transmitted gets its psn, its ack and its
 * limits then and nothing else. Frames are retained until the peer acknowledges them (paper
 * resilient-message-passing, IV.A), and a retained frame can be transmitted again.
 *
 * In (rx.c): a frame is checked, put in sequence, acknowledged and passed to the handler of its
 * type. Messages reach the owner through the peer's inbox (util), which copies what the owner does
 * not take, so a receive is posted again at once.
 */
#include "channel.h"
#include "ia.h"
#include "iov.h"
#include "list.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_dapl_conn;
struct mdapl_dapl_ep;
struct mdapl_dapl_peer;
struct mdapl_dapl_rndv_tx;
struct mdapl_dapl_stream;
struct mdapl_dapl_vbuf;
struct mdapl_pool;

/* -- out: tx.c --------------------------------------------------------------------------------- */

enum {
    MDAPL_DAPL_ANY_STREAM = -1,
};

/* A message on its way into frames: one MSG, or a HEAD and MOREs. */
struct mdapl_dapl_out {
    const void *hdr;
    uint16_t hdr_len;
    size_t len, at;              /* bytes of the body: all, in frames so far */
    struct mdapl_iov cur;        /* the next one */
};

/* Something that waits to be transmitted: a message, the DATA frames of a body, or a control frame;
 * of type NONE: the frames that are sent again. */
struct mdapl_dapl_item {
    struct mdapl_list link;
    enum mdapl_dapl_frame_type type;
    int stream;                  /* which transmits its frames; ANY_STREAM: the lowest that is up */
    struct mdapl_op *op;         /* MSG: done when the body has been copied into its frames */
    uint32_t len;                /* bytes behind the envelope, MSG: in all frames; DATA: at most, in
                                  * each frame */
    uint16_t hdr_len;
    uint8_t hdr[MDAPL_HDR_MAX];
    union {
        struct {
            struct mdapl_dapl_out out;
            struct mdapl_pieces body;
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

/* An item of a type for any stream, empty, on no queue, to be queued or put back; NULL when memory
 * is out. item.c has these. */
struct mdapl_dapl_item *mdapl_dapl_item_get(struct mdapl_dapl_peer *peer,
                                            enum mdapl_dapl_frame_type type);
/* Queues it, which takes it over: messages (MSG, RTS) in their order, behind all control frames. */
void mdapl_dapl_item_queue(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *item);

/* Takes an item off its queue and frees it. */
void mdapl_dapl_item_put(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *item);
/* The peer is lost: the operations of all items on a list of its end with status. */
void mdapl_dapl_items_fail(struct mdapl_dapl_peer *peer, struct mdapl_list *list, int status);
/* Drops the queued control frames of a type for a stream. */
void mdapl_dapl_item_drop(struct mdapl_dapl_peer *peer, enum mdapl_dapl_frame_type type,
                          int stream);

/* May a frame go by the sr lane now, which may use `reserve` slots beyond the stream's window? */
bool mdapl_dapl_tx_sr_open(const struct mdapl_dapl_stream *st, uint32_t reserve);
/* Frame buffers are short: peers are asked to acknowledge what is retained for them, each of them
 * once until it has, and the buffers of requests that make no event are freed by one that does. */
void mdapl_dapl_tx_need_buffers(struct mdapl_dapl_chan *d);
/* A buffer for a frame of at most len bytes on this stream; NULL: there is none now, and the peer
 * waits for one. */
struct mdapl_dapl_vbuf *mdapl_dapl_tx_buffer(struct mdapl_dapl_stream *st,
                                             enum mdapl_dapl_frame_type type, size_t len);
/* Transmits a frame without a psn, of len bytes of fields, on a stream at once, ahead of all that
 * is queued. False: it has no window, request slot or frame buffer now. */
bool mdapl_dapl_tx_ahead(struct mdapl_dapl_stream *st, enum mdapl_dapl_frame_type type,
                         const void *fields, uint32_t len);
/* Transmits what the windows allow, then the acknowledgements that are still due. Returns how many
 * frames. */
int mdapl_dapl_tx_flush(struct mdapl_dapl_peer *peer);
/*
 * Transmits a retained frame of st's peer once more, on the sr lane of st, with the present ack and
 * limits. An earlier post of it may still be out. On st it carries the old or the new ack and
 * limits, and both are true; on another stream it has to be on a connection of which the peer takes
 * nothing any more, or whose limit is not below that of st, since the limits are those of st. The
 * sr lane, because the ring lane writes the number of the write behind the frame, which an earlier
 * write may still need. The buffer is free when every post has completed and the peer has
 * acknowledged the frame. 0; -EAGAIN: there is no window or request slot now; -ENOMEM; -EIO:
 * refused, the connection is lost.
 */
int mdapl_dapl_tx_repost(struct mdapl_dapl_stream *st, struct mdapl_dapl_vbuf *b);
/* The peer has every frame below psn `ack` (low 32 bits): releases their buffers. False: no
 * such frame has been transmitted. */
bool mdapl_dapl_tx_acked(struct mdapl_dapl_peer *peer, uint32_t ack);
/* The peer is lost: every queued operation fails with status, retained buffers are freed. */
void mdapl_dapl_tx_fail(struct mdapl_dapl_peer *peer, int status);

/* -- out again: replay.c ----------------------------------------------------------------------- */

/* The connection is being closed: the retained frames that it carried are sent again, before
 * anything new, unless the peer acknowledges them until then. */
void mdapl_dapl_tx_lost(struct mdapl_dapl_peer *peer, const struct mdapl_dapl_conn *conn);
/* Transmits the next frame of a replay, which the item stands for, or ends it. False: that is not
 * possible now. */
bool mdapl_dapl_replay_next(struct mdapl_dapl_peer *peer, struct mdapl_dapl_item *item);
/* Is the CTS with this rx_id still to be transmitted, or not acknowledged? */
bool mdapl_dapl_tx_has_cts(const struct mdapl_dapl_peer *peer, uint32_t rx_id);

/* -- in: rx.c ---------------------------------------------------------------------------------- */

/* Posts the receives reserved for a connection: an acceptor's before it accepts, a caller's when it
 * is established. 0 or -EIO; those that are posted stay so. */
int mdapl_dapl_rx_arm(struct mdapl_dapl_conn *conn);
/* Makes the window of a connection twice as large, as far as it may grow and there is memory. */
void mdapl_dapl_rx_grow_window(struct mdapl_dapl_conn *conn);
/* Gives back those that have not been posted. */
void mdapl_dapl_rx_unreserve(struct mdapl_dapl_conn *conn);
/*
 * Takes a frame of len bytes that has arrived on a connection to the peer of st; the memory is the
 * caller's after the call. True: it has been delivered, or was a duplicate, or has failed the peer;
 * the caller gives its credit back. False: frames before it are missing, a copy is in the reorder
 * queue, and *credit (how many credits of its lane have been given back) is raised in its turn.
 */
bool mdapl_dapl_rx_frame(struct mdapl_dapl_stream *st, uint64_t *credit, const void *frame,
                         size_t len);
/*
 * The handlers of the types that have fields: mdapl_dapl_on_rts() and so on, in part.c, rndv_tx.c,
 * rndv_rx.c, ring.c, probe.c and rma.c. They are called in the order of psns, with
 *   st      the stream of its sender on which the frame has arrived, perhaps on a connection that
 *           has ended since, when it has been in the reorder queue
 *   fields  what its row in frames.def names, decoded and found possible
 *   f       its header
 *   p       the bytes behind the header: the envelope, the fields, what follows them
 * all good during the call only. False: the frame is impossible in the state that the two are in,
 * which fails the peer.
 */
#define BARE(...)
#define FRAME(number, NAME, name, ...)                                                            \
    bool mdapl_dapl_on_##name(struct mdapl_dapl_stream *st,                                       \
                              const struct mdapl_dapl_##name *fields,                             \
                              const struct mdapl_dapl_frame *f, const uint8_t *p);
#include "frames.def"

/* Is an acknowledgement of psns due, in a frame of its own: by the number of frames or bytes since
 * the last one, by time, or because the job drains? */
bool mdapl_dapl_rx_psn_ack_due(const struct mdapl_dapl_peer *peer);
/* The same, or a window update of one of its streams. */
bool mdapl_dapl_rx_ack_due(const struct mdapl_dapl_peer *peer);
/* The connection of this credit count is closed: frames in the reorder queue raise it no more. */
void mdapl_dapl_rx_forget_credits(struct mdapl_dapl_peer *peer, const uint64_t *credit);
/* A stream of the peer has no connection any more: frames in the reorder queue give their credits
 * back, since those that they wait for may have to be sent again on their streams. */
void mdapl_dapl_rx_give_early(struct mdapl_dapl_peer *peer);
/* The peer is lost: messages that wait are not announced, frames in the reorder queue are freed. */
void mdapl_dapl_rx_fail(struct mdapl_dapl_peer *peer);

/* -- log: frame_log.c -------------------------------------------------------------------------- */

/*
 * Writes one frame as "FIN psn 6 ack 4 limits 20 0 len 8 tx_id 0x100000 status 0": its type, its
 * header (the limits of both lanes), the fields of its row and the pieces of memory that it names.
 * What is not a frame is written as its length and first bytes. frame: len bytes. text: room bytes,
 * ended by a zero, cut when too short.
 */
void mdapl_dapl_frame_text(const void *frame, size_t len, char *text, size_t room);
/* Logs a frame that is sent to ("->") or has arrived from ("<-") the peer. For level MDAPL_FRAME
 * only: the caller compares the level, so that frames which are not logged cost one comparison. */
void mdapl_dapl_frame_log(const struct mdapl_dapl_peer *peer, const char *way, const void *frame,
                          size_t len);

#endif
