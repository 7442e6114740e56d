/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RING_H
#define MDAPL_RING_H
/*
 * The ring lane: short frames by RDMA write into slots of the peer's memory, which the peer polls
 * (the RDMA channel of paper mpi-over-udapl, 4.1). It uses no receive and makes no event.
 *
 * A frame lies at the end of its slot, before a word of 8 bytes with its length and the number of
 * the write (PROTOCOL, section 7). That word is the last of the RDMA write, so where the adapter
 * places writes in order, a load of the word (acquire) that finds the number makes the frame
 * visible. Slots are used in turn; the window says how many are free, and a frame for which none is
 * free takes the sr lane.
 *
 * Slots belong to a connection, not to a peer. They are given to another one when their connection
 * has drained and its EP is freed, and each time under a new tag, which the last word of a frame
 * carries: a write of an earlier connection that lands all the same is not taken for a frame.
 *
 * A rank allocates slots for a peer only after a number of frames from it (a knob), so that memory
 * follows the communication graph. A write does not wake a rank that sleeps: a frame takes the ring
 * only shortly after another one to the same peer.
 */
#include "clock.h"
#include "list.h"
#include "window.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_dapl_chan;
struct mdapl_dapl_conn;
struct mdapl_dapl_peer;
struct mdapl_dapl_ring_mem;
struct mdapl_dapl_stream;
struct mdapl_dapl_vbuf;

enum {
    MDAPL_RING_TRAILER = 8,
    MDAPL_RING_ACTIVE_US = 100, /* a peer to which nothing was transmitted for so long may sleep */
};

/* The slots that the peer writes. */
struct mdapl_dapl_ring_in {
    struct mdapl_list link;      /* on d->rings */
    struct mdapl_dapl_ring_mem *mem; /* which the slots are of */
    uint8_t *slots;              /* NULL: the peer has none */
    uint8_t *word;               /* the last word of the next frame */
    uint64_t expected;           /* number and tag in it */
    uint64_t freed;              /* frames whose credit has been given back */
    bool busy;                   /* frames are being taken out: not again from inside that */
};

/* The slots at the peer that we write. */
struct mdapl_dapl_ring_out {
    uint64_t addr;
    uint32_t key, tag;
    uint32_t slots, slot_bytes;  /* slots 0: none */
    struct mdapl_txwin win;
};

/* The bytes that a frame of len bytes takes in front of the last word. */
static inline size_t mdapl_dapl_ring_padded(size_t len)
{
    return (len + 7) & ~(size_t)7;
}

/* The limit to advertise, 0 while the peer has no slots; slots: of each ring. */
static inline uint32_t mdapl_dapl_ring_limit(const struct mdapl_dapl_ring_in *in, uint32_t slots)
{
    return in->slots ? (uint32_t)(in->freed + slots) : 0;
}

/* Is there a slot for a frame of len bytes, and does the peer poll it? idle: ns since a frame was
 * transmitted to the peer. */
static inline bool mdapl_dapl_ring_has_room(const struct mdapl_dapl_ring_out *out, size_t len,
                                            uint64_t idle)
{
    return out->slots > 0
        && mdapl_dapl_ring_padded(len) + MDAPL_RING_TRAILER <= out->slot_bytes
        && mdapl_txwin_open(&out->win, 0) && idle < MDAPL_US(MDAPL_RING_ACTIVE_US);
}

/* Sets the sizes of the rings by the knobs and the limits of the adapter; allocates nothing. */
void mdapl_dapl_ring_init(struct mdapl_dapl_chan *d);
/* Frees the memory of all rings; their peers do not write any more. */
void mdapl_dapl_ring_fini(struct mdapl_dapl_chan *d);
/* A frame has arrived from the peer: allocates slots for it and queues a RING frame, when it has
 * sent enough and there is memory. */
void mdapl_dapl_ring_maybe_offer(struct mdapl_dapl_peer *peer);
/* Posts an RDMA write of the frame in b by b->dto, after mdapl_dapl_ring_has_room(). 0, or -EIO:
 * the EP refuses it. */
int mdapl_dapl_ring_post(struct mdapl_dapl_conn *conn, struct mdapl_dapl_vbuf *b);
/* Takes out the frames that have been written, by all peers, or on one connection. Returns how
 * many. */
int mdapl_dapl_ring_poll(struct mdapl_dapl_chan *d);
int mdapl_dapl_ring_poll_conn(struct mdapl_dapl_conn *conn);
/* The connection is being closed: its slots are polled no more, and not offered if they still are
 * to be. */
void mdapl_dapl_ring_close(struct mdapl_dapl_conn *conn);
/* Its EP has been freed: another connection may have the slots. */
void mdapl_dapl_ring_release(struct mdapl_dapl_conn *conn);

#endif
