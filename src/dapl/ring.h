/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RING_H
#define MDAPL_RING_H
/*
 * The ring lane: short frames by RDMA write into slots of the peer's memory, which the peer polls
 * (the RDMA channel of paper mpi-over-udapl, 4.1). No receive is used up and no event is made.
 *
 * A frame lies at the end of its slot, before a word of 8 bytes with its length and the number of
 * the write (PROTOCOL, section 7). That word is the last of the RDMA write, so where the adapter
 * places writes in order, whoever sees the word (acquire) sees the frame. Slots are used in turn;
 * the window says how many are free, and a frame that finds none takes the sr lane.
 *
 * A rank gives a peer slots only when it has heard enough of it, so memory follows who talks to
 * whom. Nothing wakes a rank that sleeps: a frame takes the ring only while the two talk.
 */
#include "list.h"
#include "lmr.h"
#include "window.h"
#include "wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_dapl;
struct mdapl_dpeer;
struct mdapl_dto;
struct mdapl_stream;
struct mdapl_vbuf;

enum { MDAPL_RING_TRAILER = 8 };

/* The slots that the peer writes. */
struct mdapl_ring_in {
    struct mdapl_list link;      /* on d->rings */
    uint8_t *slots;              /* NULL: it has none */
    uint64_t taken;              /* frames taken out, ever: the next one's slot */
    uint64_t freed;              /* of them, those whose credit has been given back */
    bool busy;                   /* they are being taken out */
};

/* The slots of the peer's that we write. */
struct mdapl_ring_out {
    struct mdapl_ring_given at;  /* slots 0: none */
    struct mdapl_txwin win;
    uint64_t talked;             /* when a frame left for the peer last, ns */
};

void mdapl_ring_init(struct mdapl_dapl *d);
void mdapl_ring_fini(struct mdapl_dapl *d);
/* A frame has come from the peer: has it earned slots? */
void mdapl_ring_consider(struct mdapl_dpeer *peer);
/* The peer has given us slots (rx.h). */
bool mdapl_dapl_on_ring_given(struct mdapl_dpeer *peer, const struct mdapl_ring_given *given,
                              const struct mdapl_frame *f, const uint8_t *p);
/* The limit to advertise to the peer, 0 while it has no slots. */
uint32_t mdapl_ring_limit(const struct mdapl_dpeer *peer);
/* Would a frame of len bytes go now? */
bool mdapl_ring_takes(const struct mdapl_dpeer *peer, size_t len);
/* Posts a write of the frame in b. 0 or -EIO; dto, b's own, ends with its completion. */
int mdapl_ring_post(struct mdapl_stream *st, struct mdapl_vbuf *b, struct mdapl_dto *dto);
/* Takes the frames that have come, from all or from one. Returns how many. */
int mdapl_ring_poll(struct mdapl_dapl *d);
int mdapl_ring_poll_peer(struct mdapl_dpeer *peer);

#endif
