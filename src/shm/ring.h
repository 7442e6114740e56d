/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_RING_H
#define MDAPL_SHM_RING_H
/*
 * The inring: a ring of messages from one process to another, with one writer and one reader
 * (Lamport's queue). It lies in the reader's segment.
 *
 *      hello      the writer's identity, written once
 *      line       written by the reader: how many messages it has taken, whether it polls
 *      slots      two cache lines for each message, used in turn
 *      data       what does not fit into slots
 *
 * A slot is a word, a few counters and 112 bytes of room for the header and, if it fits behind the
 * header, the body. A message of up to 48 bytes costs the transfer of one cache line; the other
 * line of the slot is adjacent, and many processors fetch it too. A header or body that does not
 * fit lies in data, at an offset that the slot names.
 *
 * Where long bodies lie decides how fast they are copied. A line that the writer stored, or the
 * reader loaded, a moment ago is in that core's own cache, and each copy has to take it from there:
 * that costs two to four times as much as a line that has gone to the shared cache meanwhile. So
 * long bodies walk on through data, and begin at its first byte again only when the writing process
 * has stored more than its own cache holds, to this reader or to others (struct mdapl_shm_spread).
 * Short ones begin there whenever none is in flight: they touch little memory.
 *
 * Memory orders: the word is stored last (release) and carries the message's number, so a reader
 * that loads the expected number (acquire) sees the message. The place of a word holds words only,
 * so an old word differs from a new one and the reader need not write into a slot. The reader
 * stores `taken` (release) after it has taken a message; the writer loads it (acquire) before it
 * reuses the place, but only when it is out of room: otherwise the number arrives in `ack` of a
 * slot of the ring in the other direction, where the word of that slot orders it after the reader's
 * loads. All else here is plain memory, and each end has its own counters. These are the weakest
 * orders: test_shm_ring and test_shm_threads fail under TSan with any of them relaxed.
 *
 * Numbers are the low 32 bits of counts that never decrease (window.h); the first message is 1. The
 * word has the number above 20 bits for the body's length, 8 for the header's and 4 for the type.
 */
#include "contract.h"
#include "node.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    MDAPL_LINE_BYTES = 64,
    MDAPL_SLOT_BYTES = 128,
    MDAPL_SLOTS = 64,
    MDAPL_SLOT_ROOM = 112,
    MDAPL_LINE_ROOM = 48, /* of it, in the first line */
    MDAPL_SPREAD_LONG = 4096,    /* bytes of a body in data that is long */
    MDAPL_ACK_BYTES = 16384,     /* of data taken, after which that is published */
};

/* Written by the sender before its first message; the first doorbell publishes it (doorbell.c). */
struct mdapl_shm_hello {
    uint32_t group;
    uint32_t rank;           /* in that group */
    uint8_t mac[16];         /* mdapl_shm_seg_mac() */
    char card[MDAPL_SHM_CARD_BYTES]; /* node.h, of one that visits a port; else zeros */
};

struct mdapl_shm_slot {
    alignas(MDAPL_SLOT_BYTES) _Atomic uint64_t word;   /* number, body, header, type */
    uint32_t ack;            /* messages of the other direction that the writer has taken */
    uint32_t at;             /* in data: what is not in room */
    uint8_t room[MDAPL_SLOT_ROOM];
};

struct mdapl_shm_inring {
    struct mdapl_shm_hello hello;
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint32_t taken;
    _Atomic uint32_t polled;     /* 0: the reader needs the doorbell (doorbell.c) */
    _Atomic uint32_t refused;    /* the reader rejects the hello: it takes no message */
    alignas(2 * MDAPL_LINE_BYTES) struct mdapl_shm_slot slot[MDAPL_SLOTS];
    uint8_t data[];              /* as many bytes as the segment has for it (seg.h) */
};

_Static_assert(sizeof(struct mdapl_shm_slot) == MDAPL_SLOT_BYTES, "a slot is two lines");
_Static_assert(sizeof(struct mdapl_shm_inring) % MDAPL_SLOT_BYTES == 0, "data begins a line");

/* The long bodies of a process, in all rings that it writes. */
struct mdapl_shm_spread {
    uint64_t stored;             /* bytes, in total */
    uint64_t bytes;              /* ... after which a line has left the caches of single cores */
};

/* A message in its place. */
struct mdapl_shm_spsc_msg {
    uint8_t type;
    uint8_t slots;           /* that it takes (part.c) */
    uint8_t hdr_len;
    uint32_t len;            /* of the body */
    uint32_t ack;
    uint32_t outside;        /* bytes in data */
    uint8_t *hdr, *body;
};

/* -- the writing end -------------------------------------------------------------------------- */

struct mdapl_shm_spsc_tx {
    struct mdapl_shm_inring *inring;
    uint32_t room;           /* bytes of data that may be used */
    uint32_t used;           /* ... up to here they have been used */
    bool spread_out;         /* long bodies were stored since put was at the first byte */
    uint64_t begun;          /* spread->stored, when the first of them was */
    struct mdapl_shm_spread *spread;
    uint32_t next;           /* messages written */
    uint32_t acked;          /* messages that the reader has taken, as last known */
    uint64_t put, freed;     /* bytes of data reserved, and freed, in total; both with padding */
    uint64_t end[MDAPL_SLOTS];   /* put, after each message */
};

static inline size_t mdapl_shm_spsc_align(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

/* Bytes of data that a message of this size needs. */
static inline size_t mdapl_shm_spsc_outside(size_t hdr_len, size_t len)
{
    size_t hdr = mdapl_shm_spsc_align(hdr_len);

    if (hdr + len <= MDAPL_SLOT_ROOM)
        return 0;
    return hdr_len > MDAPL_SLOT_ROOM ? hdr + len : len;
}

/* May the next message begin at the first byte of data again? */
static inline bool mdapl_shm_spsc_may_restart(const struct mdapl_shm_spsc_tx *tx)
{
    return !tx->spread_out || tx->spread->stored - tx->begun >= tx->spread->bytes;
}

/* Takes a number of messages that the reader has taken. An old or impossible one is ignored. */
static inline void mdapl_shm_spsc_ack_in(struct mdapl_shm_spsc_tx *tx, uint32_t taken)
{
    if (taken == tx->acked || taken - tx->acked > tx->next - tx->acked)
        return;
    tx->acked = taken;
    tx->freed = tx->end[(taken - 1) % MDAPL_SLOTS];
    if (taken == tx->next && mdapl_shm_spsc_may_restart(tx))
        tx->put = tx->freed = 0;
}

/* The place of so many bytes of data, as a total like `put`, and in *off_p as an offset;
 * UINT64_MAX: so many slots are not free, or there is no room in data. */
static inline uint64_t mdapl_shm_spsc_find(const struct mdapl_shm_spsc_tx *tx, size_t bytes,
                                           unsigned slots, uint32_t *off_p)
{
    uint64_t at = tx->put, off, rest;

    if (tx->next - tx->acked + slots > MDAPL_SLOTS)
        return UINT64_MAX;
    if (bytes == 0)
        return at;
    off = at % tx->room;
    rest = tx->room - off;
    if (rest < bytes || (mdapl_shm_spsc_may_restart(tx)
                         && at + rest + bytes - tx->freed <= tx->room)) {
        at += rest;
        off = 0;
    }
    *off_p = (uint32_t)off;
    return at + bytes - tx->freed <= tx->room ? at : UINT64_MAX;
}

/* A body of so many bytes is stored at this offset. */
static inline void mdapl_shm_spsc_spread(struct mdapl_shm_spsc_tx *tx, uint32_t off, size_t bytes)
{
    if (tx->used < off + bytes)
        tx->used = off + (uint32_t)bytes;
    if (off == 0)
        tx->spread_out = false;
    if (bytes < MDAPL_SPREAD_LONG)
        return;
    if (!tx->spread_out)
        tx->begun = tx->spread->stored;
    tx->spread_out = true;
    tx->spread->stored += bytes;
}

/* As mdapl_shm_spsc_find(), once more with what the reader has taken by now if there is no room. */
static inline uint64_t mdapl_shm_spsc_find_now(struct mdapl_shm_spsc_tx *tx, size_t bytes,
                                               unsigned slots, uint32_t *off_p)
{
    uint64_t at = mdapl_shm_spsc_find(tx, bytes, slots, off_p);

    if (at != UINT64_MAX)
        return at;
    mdapl_shm_spsc_ack_in(tx, atomic_load_explicit(&tx->inring->taken, memory_order_acquire));
    return mdapl_shm_spsc_find(tx, bytes, slots, off_p);
}

/* Would so many bytes lie where none has been before? Such a place costs page faults, once. */
static inline bool mdapl_shm_spsc_is_fresh(const struct mdapl_shm_spsc_tx *tx, size_t bytes)
{
    uint32_t off = 0;

    return mdapl_shm_spsc_find(tx, bytes, 1, &off) != UINT64_MAX && off + bytes > tx->used;
}

/* Rounded up to lines, so that the next message shares no line with this one. */
static inline size_t mdapl_shm_spsc_lines(size_t bytes)
{
    return (bytes + MDAPL_LINE_BYTES - 1) & ~(size_t)(MDAPL_LINE_BYTES - 1);
}

/*
 * Reserves a place for a message. False: no room. The caller fills m->hdr and m->body and publishes
 * the message before any other call for this end.
 */
static inline bool mdapl_shm_spsc_reserve(struct mdapl_shm_spsc_tx *tx, size_t hdr_len, size_t len,
                                          struct mdapl_shm_spsc_msg *m)
{
    size_t outside = mdapl_shm_spsc_outside(hdr_len, len);
    struct mdapl_shm_slot *slot = &tx->inring->slot[tx->next % MDAPL_SLOTS];
    uint32_t off = 0;
    uint64_t at = mdapl_shm_spsc_find_now(tx, outside, 1, &off);

    if (at == UINT64_MAX)
        return false;
    m->hdr = slot->room;
    m->body = slot->room + mdapl_shm_spsc_align(hdr_len);
    m->hdr_len = (uint8_t)hdr_len;
    m->len = (uint32_t)len;
    if (outside > 0) {
        mdapl_shm_spsc_spread(tx, off, outside);
        slot->at = off;
        m->body = tx->inring->data + off;
        if (hdr_len > MDAPL_SLOT_ROOM) {
            m->hdr = m->body;
            m->body += mdapl_shm_spsc_align(hdr_len);
        }
        tx->put = at + mdapl_shm_spsc_lines(outside);
    }
    return true;
}

/* Reserves a place for a body of len bytes in n messages, at the offset *off_p of data. False: no
 * room. The caller fills and publishes all of them (mdapl_shm_spsc_part()) before any other call
 * for this end. */
static inline bool mdapl_shm_spsc_reserve_parts(struct mdapl_shm_spsc_tx *tx, size_t len,
                                                unsigned n, uint32_t *off_p)
{
    uint64_t at = mdapl_shm_spsc_find_now(tx, len, n, off_p);

    if (at == UINT64_MAX)
        return false;
    mdapl_shm_spsc_spread(tx, *off_p, len);
    tx->put = at;
    return true;
}

/* The next message of such a body: its len bytes are at this offset, whole lines but for the last
 * one's, and more than would fit into the slot. The header, which does, may have no bytes. */
static inline void mdapl_shm_spsc_part(struct mdapl_shm_spsc_tx *tx, uint32_t off, size_t hdr_len,
                                       size_t len, struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_slot *slot = &tx->inring->slot[tx->next % MDAPL_SLOTS];

    slot->at = off;
    m->hdr = slot->room;
    m->hdr_len = (uint8_t)hdr_len;
    m->body = tx->inring->data + off;
    m->len = (uint32_t)len;
    tx->put += mdapl_shm_spsc_lines(len);
}

/* Publishes a filled message. ack: messages that this process has taken from the other ring. */
static inline void mdapl_shm_spsc_publish(struct mdapl_shm_spsc_tx *tx,
                                          const struct mdapl_shm_spsc_msg *m, uint8_t type,
                                          uint32_t ack)
{
    struct mdapl_shm_slot *slot = &tx->inring->slot[tx->next % MDAPL_SLOTS];

    tx->end[tx->next % MDAPL_SLOTS] = tx->put;
    tx->next++;
    slot->ack = ack;
    atomic_store_explicit(&slot->word, (uint64_t)tx->next << 32 | (uint64_t)m->len << 12
                                           | (uint64_t)m->hdr_len << 4 | type,
                          memory_order_release);
}

/* -- the reading end -------------------------------------------------------------------------- */

struct mdapl_shm_spsc_rx {
    struct mdapl_shm_inring *inring;
    uint32_t data_bytes;     /* of data in it */
    uint32_t taken;          /* messages taken */
    uint32_t acked;          /* of them, how many have been published to the writer */
    uint32_t bytes;          /* of data, in messages taken since then */
};

enum mdapl_shm_spsc_status { MDAPL_SPSC_NONE, MDAPL_SPSC_MSG, MDAPL_SPSC_BAD };

/* Finds the next message, which stays in its place. NONE: not written yet; BAD: its lengths or
 * offset are impossible. */
static inline enum mdapl_shm_spsc_status mdapl_shm_spsc_peek(const struct mdapl_shm_spsc_rx *rx,
                                                           struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_slot *slot = &rx->inring->slot[rx->taken % MDAPL_SLOTS];
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    size_t outside, at;

    if ((uint32_t)(word >> 32) != rx->taken + 1)
        return MDAPL_SPSC_NONE;
    m->type = (uint8_t)(word & 15);
    m->slots = 1;
    m->hdr_len = (uint8_t)(word >> 4);
    m->len = (uint32_t)word >> 12;
    m->ack = slot->ack;
    m->hdr = slot->room;
    m->body = slot->room + mdapl_shm_spsc_align(m->hdr_len);
    outside = mdapl_shm_spsc_outside(m->hdr_len, m->len);
    m->outside = (uint32_t)outside;
    if (outside == 0)
        return MDAPL_SPSC_MSG;
    at = slot->at;           /* once: the writer may change it */
    if (m->hdr_len > MDAPL_HDR_MAX || outside > rx->data_bytes || at > rx->data_bytes - outside)
        return MDAPL_SPSC_BAD;
    m->body = rx->inring->data + at;
    if (m->hdr_len > MDAPL_SLOT_ROOM) {
        m->hdr = m->body;
        m->body += mdapl_shm_spsc_align(m->hdr_len);
    }
    return MDAPL_SPSC_MSG;
}

/* Has the writer published this message and the n - 1 behind it? */
static inline bool mdapl_shm_spsc_has(const struct mdapl_shm_spsc_rx *rx, unsigned n)
{
    uint32_t last = rx->taken + n;
    const struct mdapl_shm_slot *slot = &rx->inring->slot[(last - 1) % MDAPL_SLOTS];

    return atomic_load_explicit(&slot->word, memory_order_acquire) >> 32 == last;
}

/* The message has been taken: the writer may reuse its place once that has been published. */
static inline void mdapl_shm_spsc_took(struct mdapl_shm_spsc_rx *rx,
                                       const struct mdapl_shm_spsc_msg *m)
{
    rx->taken += m->slots;
    rx->bytes += m->outside;
}

/* Has so much been taken that it is due to be published in the line? */
static inline bool mdapl_shm_spsc_ack_due(const struct mdapl_shm_spsc_rx *rx)
{
    return rx->taken - rx->acked >= MDAPL_SLOTS / 4 || rx->bytes >= MDAPL_ACK_BYTES;
}

/* A message of the other ring has carried the number. */
static inline void mdapl_shm_spsc_ack_piggybacked(struct mdapl_shm_spsc_rx *rx)
{
    rx->acked = rx->taken;
    rx->bytes = 0;
}

/* Publishes the number in the line. */
static inline void mdapl_shm_spsc_ack_flush(struct mdapl_shm_spsc_rx *rx)
{
    atomic_store_explicit(&rx->inring->taken, rx->taken, memory_order_release);
    mdapl_shm_spsc_ack_piggybacked(rx);
}

#endif
