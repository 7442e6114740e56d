/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_RING_H
#define MDAPL_SHM_RING_H
/*
 * The inring: a ring of messages from one process to another, with one writer and one reader
 * (Lamport's queue). It lies in the reader's segment, in two pieces:
 *
 *      line       written by the reader: how many messages it has taken, whether it polls
 *      slots      the front ones: two cache lines for each message
 *
 *      slots      the rest
 *      data       what does not fit into slots
 *
 * A slot is a word, a few counters and 112 bytes of room for the header and, if it fits behind the
 * header, the body. A message of up to 48 bytes costs the transfer of one cache line; the other
 * line of the slot is adjacent, and many processors fetch it too. A header or body that does not
 * fit lies in data, at an offset that the slot names.
 *
 * The slots are two rings: the front ones, which are used while few messages are in flight, and the
 * rest. The first pieces of all inrings lie together (seg.h), so a peer with which messages are
 * exchanged now and then takes a third of a page, and little of a cache. The writer decides with
 * each message where its next one will be, and says so in the word: in front if it knows that the
 * place there has been taken, else in that ring whose next place has the older message. Each ring's
 * next place is its oldest, so if any place is free, this one is.
 *
 * Where long bodies lie decides how fast they are copied. A line that the writer stored, or the
 * reader loaded, a moment ago is in that core's own cache, and each copy has to take it from there:
 * on some processors that costs two to four times as much as a line that has gone to the shared
 * cache meanwhile, and on others less than all that leaves a cache for many lines. So bodies walk
 * on through data, and begin at its first byte again when the writing process has stored a lap, to
 * this reader or to others: a long one is more than its own cache holds, a short one a part of it
 * (lap.c). But short bodies begin there whenever no data is in flight: one that is answered before
 * the next one is stored finds its lines in the two cores' caches, and touches little memory.
 *
 * Bodies that answer each other have a place of their own, the pair buffer. Both ends write it
 * in turn (migratory data, in the words of cache coherence): the end that has read a body there has
 * its lines in its own cache, and stores its next body over it. To read one gives the turn, so no
 * message does. An end without the turn stores bodies in data.
 *
 * Memory orders: the word is stored last (release) and carries the message's number, so a reader
 * that loads the expected number (acquire) sees the message. The place of a word holds words only,
 * so an old word differs from a new one and the reader need not write into a slot; each place is
 * used at least every MDAPL_SLOTS_REFRESH messages, long before the numbers repeat. The reader
 * stores `taken` (release) after it has taken a message; the writer loads it (acquire) before it
 * reuses the place, but only when it is out of room: otherwise the number arrives in `ack` of a
 * slot of the ring in the other direction, where the word of that slot orders it after the reader's
 * loads. All else here is plain memory, and each end has its own counters. These are the weakest
 * orders: test_shm_ring and test_shm_threads fail under TSan with any of them relaxed.
 *
 * Numbers are the low 32 bits of counts that never decrease (window.h); the first message is 1. The
 * word has the number above 19 bits for the body's length, 8 for the header's, 1 for where the next
 * message will be and 4 for the type.
 */
#include "contract.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    MDAPL_LINE_BYTES = 64,
    MDAPL_SLOT_BYTES = 128,
    MDAPL_SLOTS = 64,
    MDAPL_SLOTS_FRONT = 8,       /* of them */
    MDAPL_SLOTS_REFRESH = 1 << 30,
    MDAPL_WORD_REST = 16,        /* in a word: the next message is in the rest of the slots, */
    MDAPL_WORD_HDR = 5,          /* ... where the header's length begins, */
    MDAPL_WORD_PAIR = 1 << 13,   /* ... the body is in the pair buffer, */
    MDAPL_WORD_LEN = 14,         /* ... and its length begins */
    MDAPL_SLOT_ROOM = 112,
    MDAPL_LINE_ROOM = 48, /* of it, in the first line */
    MDAPL_SPREAD_LONG = 4608,    /* bytes of a body in data that always walks on */
    MDAPL_ACK_BYTES = 16384,     /* of data taken, after which that is published */
    MDAPL_SPLITS = 16,           /* bodies that both ends are copying, at most */
    MDAPL_PAIR_BYTES = 262144,   /* in a pair buffer */
};

/* In the offset of a place: it is in the pair buffer, at the other bits' offset. */
#define MDAPL_AT_PAIR ((uint32_t)1 << 31)

struct mdapl_shm_slot {
    alignas(MDAPL_SLOT_BYTES) _Atomic uint64_t word;   /* number, body, header, type */
    uint32_t ack;            /* messages of the other direction that the writer has taken */
    uint32_t at;             /* in data or in the pair buffer: what is not in room */
    uint8_t room[MDAPL_SLOT_ROOM];
};

/* The first piece. */
struct mdapl_shm_inring {
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint32_t taken;
    _Atomic uint32_t polled;     /* 0: the reader needs the doorbell (doorbell.c) */
    _Atomic uint32_t refused;    /* the reader rejects the writer: it takes no message */
    _Atomic uint32_t duplex;     /* how long bodies go in both directions, if its reader judges that
                                  * (way.c) */
    alignas(MDAPL_LINE_BYTES) _Atomic uint64_t split[MDAPL_SPLITS];    /* split.c */
    alignas(2 * MDAPL_LINE_BYTES) struct mdapl_shm_slot slot[MDAPL_SLOTS_FRONT];
};

/* The second one, which begins a page. Data does not: buffers of programs often do, and a body that
 * lies at the same place of a page as its source is copied more slowly by some processors. */
struct mdapl_shm_inring_rest {
    struct mdapl_shm_slot slot[MDAPL_SLOTS - MDAPL_SLOTS_FRONT];
    uint8_t unused[MDAPL_SLOTS_FRONT * MDAPL_SLOT_BYTES + 4 * MDAPL_LINE_BYTES];
    uint8_t data[];              /* as many bytes as the segment has for it (seg.h) */
};

_Static_assert(sizeof(struct mdapl_shm_slot) == MDAPL_SLOT_BYTES, "a slot is two lines");

/* Where both pieces are mapped. */
struct mdapl_shm_inring_at {
    struct mdapl_shm_inring *front;  /* NULL: there is no inring yet */
    struct mdapl_shm_inring_rest *rest;
};

static inline struct mdapl_shm_slot *mdapl_shm_slot_at(const struct mdapl_shm_inring_at *in,
                                                       uint32_t at)
{
    return at < MDAPL_SLOTS_FRONT ? &in->front->slot[at] : &in->rest->slot[at - MDAPL_SLOTS_FRONT];
}

enum { MDAPL_LAP_LONG, MDAPL_LAP_SHORT, MDAPL_LAPS };

/* The bodies of a process that walk on, in all rings that it writes. */
struct mdapl_shm_spread {
    uint64_t stored;             /* bytes, in total */
    uint64_t lap[MDAPL_LAPS];    /* ... between two times at a ring's first byte, at least */
};

/* One end's view of the pair buffer. */
struct mdapl_shm_pair {
    uint8_t *bytes;              /* NULL: there is none (yet) */
    bool turn;                   /* this end may write */
    uint32_t used;               /* up to here it has been written or read */
};

/* May a body of len bytes be stored there? */
static inline bool mdapl_shm_pair_has_room(const struct mdapl_shm_pair *pair, size_t len)
{
    return pair->turn && len <= MDAPL_PAIR_BYTES;
}

/* Memory is used up to `end`; *used: up to where it has been. Returns whether more is now. */
static inline bool mdapl_shm_use(uint32_t *used, size_t end)
{
    bool more = *used < end;

    if (more)
        *used = (uint32_t)end;
    return more;
}

/* Where an end is: the next message is in slot `at`. Of each ring, by its own count, the next
 * slot. */
struct mdapl_shm_walk {
    uint32_t at, front, rest;
};

static inline uint32_t mdapl_shm_walk_slot(const struct mdapl_shm_walk *w, bool rest)
{
    return rest ? MDAPL_SLOTS_FRONT + w->rest : w->front;
}

/* The slot `at` has been used. */
static inline void mdapl_shm_walk_used(struct mdapl_shm_walk *w)
{
    uint32_t next = w->at + 1;

    if (w->at < MDAPL_SLOTS_FRONT)
        w->front = next % MDAPL_SLOTS_FRONT;
    else
        w->rest = next < MDAPL_SLOTS ? next - MDAPL_SLOTS_FRONT : 0;
}

/* The same; rest: the next message is in that ring. */
static inline void mdapl_shm_walk_on(struct mdapl_shm_walk *w, bool rest)
{
    mdapl_shm_walk_used(w);
    w->at = mdapl_shm_walk_slot(w, rest);
}

/* A message in its place. */
struct mdapl_shm_spsc_msg {
    bool next_in_rest;
    uint8_t type;
    uint8_t slots;           /* that it takes (part.c) */
    uint8_t hdr_len;
    uint32_t len;            /* of the body */
    uint32_t ack;
    uint32_t outside;        /* bytes in data, or in the pair buffer */
    uint32_t room;           /* ... that there are from the body's first one on */
    bool in_pair;
    uint8_t *hdr, *body;
};

/* -- the writing end -------------------------------------------------------------------------- */

/* In the order in which messages need it. */
struct mdapl_shm_spsc_tx {
    struct mdapl_shm_slot *slot; /* of the next message */
    uint32_t next;           /* messages written, those in the FIFO included */
    uint32_t acked;          /* messages that the reader has taken, as last known */
    struct mdapl_shm_walk walk;
    uint32_t outside_from;   /* number of the first message since put was 0 last */
    struct mdapl_shm_inring_at in;
    uint64_t put, freed;     /* bytes of data reserved, and freed, in total; both with padding */
    uint32_t number[MDAPL_SLOTS];    /* of the last message in each slot */
    uint32_t room;           /* bytes of data that may be used */
    uint32_t used;           /* ... up to here they have been used */
    bool spread_out;         /* bodies have walked on since put was at the first byte */
    uint64_t begun;          /* spread->stored, when the first of them was */
    uint8_t lap;             /* of spread->lap */
    struct mdapl_shm_spread *spread;
    struct mdapl_shm_pair *pair;
    uint64_t end[MDAPL_SLOTS];   /* put, after each message since then, by number */
};

/* From now on messages are written into this inring. */
static inline void mdapl_shm_spsc_open_tx(struct mdapl_shm_spsc_tx *tx,
                                          struct mdapl_shm_inring_at in)
{
    tx->in = in;
    tx->slot = mdapl_shm_slot_at(&in, tx->walk.at);
}

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
    return !tx->spread_out || tx->spread->stored - tx->begun >= tx->spread->lap[tx->lap];
}

/* Takes a number of messages that the reader has taken. An old or impossible one is ignored. */
static inline void mdapl_shm_spsc_ack_in(struct mdapl_shm_spsc_tx *tx, uint32_t taken)
{
    if (taken == tx->acked || taken - tx->acked > tx->next - tx->acked)
        return;
    tx->acked = taken;
    if (tx->put == 0)
        return;
    if ((int32_t)(taken - tx->outside_from) >= 0)
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
    mdapl_shm_use(&tx->used, off + bytes);
    if (off == 0)
        tx->spread_out = false;
    if (!tx->spread_out) {
        if (bytes < MDAPL_SPREAD_LONG && tx->put == tx->freed)
            return;
        tx->begun = tx->spread->stored;
        tx->spread_out = true;
    }
    tx->spread->stored += bytes;
}

/* What the reader has published of that. */
static inline uint32_t mdapl_shm_spsc_taken(const struct mdapl_shm_spsc_tx *tx)
{
    return atomic_load_explicit(&tx->in.front->taken, memory_order_acquire);
}

/* As mdapl_shm_spsc_find(), once more with what the reader has taken by now if there is no room. */
static inline uint64_t mdapl_shm_spsc_find_now(struct mdapl_shm_spsc_tx *tx, size_t bytes,
                                               unsigned slots, uint32_t *off_p)
{
    uint64_t at = mdapl_shm_spsc_find(tx, bytes, slots, off_p);

    if (at != UINT64_MAX)
        return at;
    mdapl_shm_spsc_ack_in(tx, mdapl_shm_spsc_taken(tx));
    return mdapl_shm_spsc_find(tx, bytes, slots, off_p);
}

/* The longest body for which there is room whenever the reader has taken all: bytes may be left at
 * the end of data, fewer than it has, and what was taken last is not published yet. */
static inline size_t mdapl_shm_spsc_longest(const struct mdapl_shm_spsc_tx *tx)
{
    return (tx->room - MDAPL_ACK_BYTES) / 2;
}

/* Would so many bytes, in parts, lie where none has been before? Such a place costs page faults,
 * once. */
static inline bool mdapl_shm_spsc_is_fresh(const struct mdapl_shm_spsc_tx *tx, size_t bytes)
{
    uint32_t off = 0;

    if (mdapl_shm_pair_has_room(tx->pair, bytes))
        return bytes > tx->pair->used;
    return mdapl_shm_spsc_find(tx, bytes, 1, &off) != UINT64_MAX && off + bytes > tx->used;
}

/* Rounded up to lines, so that the next message shares no line with this one. */
static inline size_t mdapl_shm_spsc_lines(size_t bytes)
{
    return (bytes + MDAPL_LINE_BYTES - 1) & ~(size_t)(MDAPL_LINE_BYTES - 1);
}

/* The next message has data up to this byte of the total. */
static inline void mdapl_shm_spsc_put(struct mdapl_shm_spsc_tx *tx, uint64_t put)
{
    if (tx->put == 0)
        tx->outside_from = tx->next + 1;
    tx->put = put;
}

/* The next message, if its header and body fit into the slot. */
static inline void mdapl_shm_spsc_in_slot(const struct mdapl_shm_spsc_tx *tx, size_t hdr_len,
                                          size_t len, struct mdapl_shm_spsc_msg *m)
{
    m->in_pair = false;
    m->hdr = tx->slot->room;
    m->body = tx->slot->room + mdapl_shm_spsc_align(hdr_len);
    m->hdr_len = (uint8_t)hdr_len;
    m->len = (uint32_t)len;
}

/*
 * Reserves a place for a message. False: no room. The caller fills m->hdr and m->body and publishes
 * the message before any other call for this end.
 */
static inline bool mdapl_shm_spsc_reserve(struct mdapl_shm_spsc_tx *tx, size_t hdr_len, size_t len,
                                          struct mdapl_shm_spsc_msg *m)
{
    size_t outside = mdapl_shm_spsc_outside(hdr_len, len);
    uint32_t off = 0;
    uint64_t at = mdapl_shm_spsc_find_now(tx, outside, 1, &off);

    if (at == UINT64_MAX)
        return false;
    mdapl_shm_spsc_in_slot(tx, hdr_len, len, m);
    if (outside > 0) {
        mdapl_shm_spsc_spread(tx, off, outside);
        tx->slot->at = off;
        m->body = tx->in.rest->data + off;
        if (hdr_len > MDAPL_SLOT_ROOM) {
            m->hdr = m->body;
            m->body += mdapl_shm_spsc_align(hdr_len);
        }
        mdapl_shm_spsc_put(tx, at + mdapl_shm_spsc_lines(outside));
    }
    return true;
}

/* Reserves a place for a body of len bytes in n messages, *off_p. False: no room. The caller fills
 * and publishes all of them (mdapl_shm_spsc_part()) before any other call for this end. */
static inline bool mdapl_shm_spsc_reserve_parts(struct mdapl_shm_spsc_tx *tx, size_t len,
                                                unsigned n, uint32_t *off_p)
{
    bool in_pair = mdapl_shm_pair_has_room(tx->pair, len);
    uint64_t at = mdapl_shm_spsc_find_now(tx, in_pair ? 0 : len, n, off_p);

    if (at == UINT64_MAX)
        return false;
    if (in_pair) {
        *off_p = MDAPL_AT_PAIR;
        tx->pair->turn = false;
        mdapl_shm_use(&tx->pair->used, len);
        return true;
    }
    mdapl_shm_spsc_spread(tx, *off_p, len);
    mdapl_shm_spsc_put(tx, at);
    return true;
}

/* The next message of such a body: its len bytes are at this place, whole lines but for the last
 * one's, and in data more than would fit into the slot. The header, which does, may have no
 * bytes. */
static inline void mdapl_shm_spsc_part(struct mdapl_shm_spsc_tx *tx, uint32_t off, size_t hdr_len,
                                       size_t len, struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_slot *slot = tx->slot;

    m->in_pair = off & MDAPL_AT_PAIR;
    off &= ~MDAPL_AT_PAIR;
    slot->at = off;
    m->hdr = slot->room;
    m->hdr_len = (uint8_t)hdr_len;
    m->body = (m->in_pair ? tx->pair->bytes : tx->in.rest->data) + off;
    m->len = (uint32_t)len;
    if (!m->in_pair)
        tx->put += mdapl_shm_spsc_lines(len);
}

/* Is the message after the last one to be in the rest of the slots? */
static inline bool mdapl_shm_spsc_next_in_rest(const struct mdapl_shm_spsc_tx *tx)
{
    uint32_t front = tx->number[mdapl_shm_walk_slot(&tx->walk, false)];
    bool refresh = (tx->next + MDAPL_SLOTS_REFRESH / 2) % MDAPL_SLOTS_REFRESH < MDAPL_SLOTS;

    return ((int32_t)(front - tx->acked) > 0 || refresh)
           && (int32_t)(tx->number[mdapl_shm_walk_slot(&tx->walk, true)] - front) < 0;
}

/* Publishes a filled message. ack: messages that this process has taken from the other ring. */
static inline void mdapl_shm_spsc_publish(struct mdapl_shm_spsc_tx *tx,
                                          const struct mdapl_shm_spsc_msg *m, uint8_t type,
                                          uint32_t ack)
{
    struct mdapl_shm_walk *w = &tx->walk;
    struct mdapl_shm_slot *slot = tx->slot;
    bool rest;

    if (tx->put > 0)
        tx->end[tx->next % MDAPL_SLOTS] = tx->put;
    tx->number[w->at] = ++tx->next;
    mdapl_shm_walk_used(w);
    rest = mdapl_shm_spsc_next_in_rest(tx);
    w->at = mdapl_shm_walk_slot(w, rest);
    tx->slot = mdapl_shm_slot_at(&tx->in, w->at);
    slot->ack = ack;
    atomic_store_explicit(&slot->word, (uint64_t)tx->next << 32
                                           | (uint64_t)m->len << MDAPL_WORD_LEN
                                           | (uint64_t)m->hdr_len << MDAPL_WORD_HDR
                                           | (m->in_pair ? MDAPL_WORD_PAIR : 0)
                                           | (rest ? MDAPL_WORD_REST : 0) | type,
                          memory_order_release);
}

/* -- the reading end -------------------------------------------------------------------------- */

struct mdapl_shm_spsc_rx {
    struct mdapl_shm_inring_at in;
    struct mdapl_shm_slot *slot; /* of the next message */
    uint32_t data_bytes;     /* of data in it */
    struct mdapl_shm_pair *pair;
    struct mdapl_shm_walk walk;
    uint32_t taken;          /* messages taken */
    uint32_t acked;          /* of them, how many have been published to the writer */
    uint32_t bytes;          /* of data, in messages taken since then */
};

/* From now on messages are read from this inring. */
static inline void mdapl_shm_spsc_open_rx(struct mdapl_shm_spsc_rx *rx,
                                          struct mdapl_shm_inring_at in)
{
    rx->in = in;
    rx->slot = mdapl_shm_slot_at(&in, rx->walk.at);
}

enum mdapl_shm_spsc_status { MDAPL_SPSC_NONE, MDAPL_SPSC_MSG, MDAPL_SPSC_BAD };

/* The word of the slot where a walk is. */
static inline uint64_t mdapl_shm_spsc_word(const struct mdapl_shm_spsc_rx *rx,
                                           const struct mdapl_shm_walk *w)
{
    return atomic_load_explicit(&mdapl_shm_slot_at(&rx->in, w->at)->word, memory_order_acquire);
}

/* Bytes of the pair buffer that the writer may have written. */
static inline uint32_t mdapl_shm_pair_unread(const struct mdapl_shm_pair *pair)
{
    return pair->bytes && !pair->turn ? MDAPL_PAIR_BYTES : 0;
}

/* Finds the next message, which stays in its place. NONE: not written yet; BAD: its lengths or
 * offset are impossible. */
static inline enum mdapl_shm_spsc_status mdapl_shm_spsc_peek(const struct mdapl_shm_spsc_rx *rx,
                                                           struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_slot *slot = rx->slot;
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    size_t outside;
    uint32_t at;

    if ((uint32_t)(word >> 32) != rx->taken + 1)
        return MDAPL_SPSC_NONE;
    m->next_in_rest = word & MDAPL_WORD_REST;
    m->type = (uint8_t)(word & (MDAPL_WORD_REST - 1));
    m->slots = 1;
    m->hdr_len = (uint8_t)(word >> MDAPL_WORD_HDR);
    m->len = (uint32_t)word >> MDAPL_WORD_LEN;
    m->ack = slot->ack;
    m->hdr = slot->room;
    m->body = slot->room + mdapl_shm_spsc_align(m->hdr_len);
    m->in_pair = word & MDAPL_WORD_PAIR;
    outside = m->in_pair ? m->len : mdapl_shm_spsc_outside(m->hdr_len, m->len);
    m->outside = (uint32_t)outside;
    if (outside == 0)
        return m->in_pair ? MDAPL_SPSC_BAD : MDAPL_SPSC_MSG;
    at = slot->at;           /* once: the writer may change it */
    m->room = m->in_pair ? mdapl_shm_pair_unread(rx->pair) : rx->data_bytes;
    if (m->hdr_len > (m->in_pair ? MDAPL_SLOT_ROOM : MDAPL_HDR_MAX) || outside > m->room
        || at > m->room - outside)
        return MDAPL_SPSC_BAD;
    m->room -= at;
    m->body = (m->in_pair ? rx->pair->bytes : rx->in.rest->data) + at;
    if (m->hdr_len > MDAPL_SLOT_ROOM) {
        m->hdr = m->body;
        m->body += mdapl_shm_spsc_align(m->hdr_len);
    }
    return MDAPL_SPSC_MSG;
}

/* Has the writer published this message and the n - 1 behind it? Then m is all of them. */
static inline bool mdapl_shm_spsc_join(const struct mdapl_shm_spsc_rx *rx, unsigned n,
                                       struct mdapl_shm_spsc_msg *m)
{
    struct mdapl_shm_walk w = rx->walk;
    bool rest = m->next_in_rest;

    for (unsigned i = 2; i <= n; i++) {
        uint64_t word;

        mdapl_shm_walk_on(&w, rest);
        word = mdapl_shm_spsc_word(rx, &w);
        if ((uint32_t)(word >> 32) != rx->taken + i)
            return false;
        rest = word & MDAPL_WORD_REST;
    }
    m->slots = (uint8_t)n;
    return true;
}

/* The message has been taken: the writer may reuse its place once that has been published. */
static inline void mdapl_shm_spsc_took(struct mdapl_shm_spsc_rx *rx,
                                       const struct mdapl_shm_spsc_msg *m)
{
    mdapl_shm_walk_on(&rx->walk, m->next_in_rest);
    for (unsigned i = 2; i <= m->slots; i++)
        mdapl_shm_walk_on(&rx->walk, mdapl_shm_spsc_word(rx, &rx->walk) & MDAPL_WORD_REST);
    rx->slot = mdapl_shm_slot_at(&rx->in, rx->walk.at);
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
    atomic_store_explicit(&rx->in.front->taken, rx->taken, memory_order_release);
    mdapl_shm_spsc_ack_piggybacked(rx);
}

#endif
