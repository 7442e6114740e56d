/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_FIFO_H
#define MDAPL_SHM_FIFO_H
/*
 * The FIFO of a rank: a queue in its segment for messages of all other ranks of its node, with many
 * writers and one reader. Its slots are lines that follow each other, so a rank that exchanges
 * first messages with many others needs little memory but the lines that carry them.
 *
 * A writer claims a slot by the count in `tail`, fills it, and publishes it by storing its word.
 * The word has the number of the lap, so an old word differs from a new one and the reader need not
 * write into a slot; a word is 0 before the first lap. A slot that is claimed and not published
 * holds up those behind it, for a few instructions, and if its writer's process ends between the
 * two until the reader passes over it. So that the reader knows when to do so, a writer says in its
 * own segment, from before its claim until it has published, whose FIFO it writes: a slot that is
 * not published while no process says so never will be.
 *
 * Memory orders: the word is stored last (release), so a reader that loads the expected lap
 * (acquire) sees the message. The reader stores `taken` (release) after it has read the slots up to
 * there; a writer loads it (acquire) before it claims one of them again. test_shm_fifo fails under
 * TSan with any of these relaxed. `writes` is stored before the claim, which is a release, and once
 * more after the word; a reader that has loaded `tail` (acquire) loads `writes` (acquire) of all
 * and then the word again.
 */
#include "ring.h"

enum {
    MDAPL_FIFO_SLOTS = 128,
    MDAPL_FIFO_LAPS = 1 << 25,   /* after which their numbers begin again, with those of slots */
    MDAPL_FIFO_HDR = 8,          /* in a word, above the length of the body: the header's, */
    MDAPL_FIFO_WRITER = 16,      /* ... the writer, */
    MDAPL_FIFO_LAP = 32,         /* ... and the lap */
};
_Static_assert((uint64_t)MDAPL_FIFO_LAPS * MDAPL_FIFO_SLOTS == (uint64_t)1 << 32,
               "a count of slots has a lap");

struct mdapl_shm_fifo_slot {
    alignas(MDAPL_LINE_BYTES) _Atomic uint64_t word;
    uint32_t number;             /* of the pair's messages, in that direction */
    uint32_t ack;                /* messages of the other direction that the writer has taken */
    uint8_t room[MDAPL_LINE_ROOM];   /* for header and body, as in an inring's slot */
};
_Static_assert(sizeof(struct mdapl_shm_fifo_slot) == MDAPL_LINE_BYTES, "a slot is a line");

/* How many slots have been claimed, and taken, in total. */
struct mdapl_shm_fifo_ends {
    _Atomic uint32_t tail, taken;
};

static inline uint32_t mdapl_shm_fifo_lap(uint32_t at)
{
    return (at / MDAPL_FIFO_SLOTS + 1) % MDAPL_FIFO_LAPS;
}

/* The slot at this place of the total. */
static inline struct mdapl_shm_fifo_slot *mdapl_shm_fifo_slot(struct mdapl_shm_fifo_slot *slots,
                                                             uint32_t at)
{
    return &slots[at % MDAPL_FIFO_SLOTS];
}

/* -- the writing end -------------------------------------------------------------------------- */

/* Claims the slot at *at_p. False: none is free. */
static inline bool mdapl_shm_fifo_claim(struct mdapl_shm_fifo_ends *ends, uint32_t *at_p)
{
    uint32_t tail = atomic_load_explicit(&ends->tail, memory_order_relaxed);

    do {
        uint32_t taken = atomic_load_explicit(&ends->taken, memory_order_acquire);

        if (tail - taken >= MDAPL_FIFO_SLOTS)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&ends->tail, &tail, tail + 1,
                                                    memory_order_release, memory_order_relaxed));
    *at_p = tail;
    return true;
}

/* Publishes the slot at this place, which has been claimed and filled. */
static inline void mdapl_shm_fifo_publish(struct mdapl_shm_fifo_slot *slots, uint32_t at,
                                          uint32_t writer, size_t hdr_len, size_t len)
{
    atomic_store_explicit(&mdapl_shm_fifo_slot(slots, at)->word,
                          (uint64_t)mdapl_shm_fifo_lap(at) << MDAPL_FIFO_LAP
                              | (uint64_t)writer << MDAPL_FIFO_WRITER
                              | (uint64_t)hdr_len << MDAPL_FIFO_HDR | len,
                          memory_order_release);
}

/* -- the reading end -------------------------------------------------------------------------- */

struct mdapl_shm_fifo_msg {
    uint32_t writer, number, ack;
    uint8_t hdr_len, len;
    const uint8_t *hdr, *body;
};

/* The word of the slot at this place; 0: it is not published. */
static inline uint64_t mdapl_shm_fifo_word(struct mdapl_shm_fifo_slot *slots, uint32_t at)
{
    uint64_t word = atomic_load_explicit(&mdapl_shm_fifo_slot(slots, at)->word,
                                         memory_order_acquire);

    return word >> MDAPL_FIFO_LAP == mdapl_shm_fifo_lap(at) ? word : 0;
}

/* The message at this place, which stays there. NONE: it is not published; BAD: its lengths are
 * impossible. */
static inline enum mdapl_shm_spsc_status mdapl_shm_fifo_peek(struct mdapl_shm_fifo_slot *slots,
                                                           uint32_t at,
                                                           struct mdapl_shm_fifo_msg *m)
{
    const struct mdapl_shm_fifo_slot *slot = mdapl_shm_fifo_slot(slots, at);
    uint64_t word = mdapl_shm_fifo_word(slots, at);

    if (!word)
        return MDAPL_SPSC_NONE;
    m->writer = (uint16_t)(word >> MDAPL_FIFO_WRITER);
    m->hdr_len = (uint8_t)(word >> MDAPL_FIFO_HDR);
    m->len = (uint8_t)word;
    m->number = slot->number;
    m->ack = slot->ack;
    m->hdr = slot->room;
    m->body = slot->room + mdapl_shm_spsc_align(m->hdr_len);
    return mdapl_shm_spsc_align(m->hdr_len) + m->len <= MDAPL_LINE_ROOM ? MDAPL_SPSC_MSG
                                                                        : MDAPL_SPSC_BAD;
}

/* Has the slot at this place been claimed? */
static inline bool mdapl_shm_fifo_is_claimed(const struct mdapl_shm_fifo_ends *ends, uint32_t at)
{
    return (int32_t)(atomic_load_explicit(&ends->tail, memory_order_acquire) - at) > 0;
}

/* -- fifo.c ----------------------------------------------------------------------------------- */

struct mdapl_msg;
struct mdapl_shm_chan;
struct mdapl_shm_peer;

/* Writes a message, whose header and body fit into a line, into the peer's FIFO. False: it is not
 * one of the first ones to this peer, or there is no room; it goes into the inring. */
bool mdapl_shm_fifo_put(struct mdapl_shm_peer *peer, const struct mdapl_msg *msg);
/* Takes notice of what the peer has taken. */
void mdapl_shm_fifo_ack_in(struct mdapl_shm_peer *peer);
/* Takes messages out of this process's FIFO. Returns how many. */
int mdapl_shm_fifo_poll(struct mdapl_shm_chan *s);
/* Takes all that this peer, which is about to be lost, has published there. */
void mdapl_shm_fifo_last(struct mdapl_shm_peer *peer);
/* Has the next round of progress pass over a slot that was claimed by a process which has ended. */
void mdapl_shm_fifo_check(struct mdapl_shm_chan *s);

#endif
