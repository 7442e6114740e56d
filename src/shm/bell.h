/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_BELL_H
#define MDAPL_SHM_BELL_H
/*
 * Who has something for me. A process watches the rings of those who have talked lately: it looks
 * at their next slot in every round, so that their messages cost no more than the slot. All others
 * ring a bell, a bit in the reader's head, after they have written; so silent ones cost one look
 * at one word, however many they are. A reader that goes to sleep stops watching, and whoever
 * rings a sleeper's bell wakes it.
 *
 * Both ends have to agree although neither waits: the writer stores its slot and then loads
 * `watched`; the reader, when it stops watching, stores `watched` and then looks at the slot once
 * more. If both loads could pass the stores before them a message would be lost to sight. The
 * reader, for whom it is rare, pays for that with mdapl_os_barrier(); where the system has none
 * the writer uses a fence. That is all that is asked of them, so `watched` itself is relaxed.
 *
 * The bits of the bells, `bells` and `asleep` are sequentially consistent, because a sleeper and a
 * ringer agree in the same way: one stores `asleep` and loads `bells`, the other sets its bit and
 * loads `asleep`; and one takes `bells` before the words below it, the other sets a word before it
 * looks whether `bells` tells of it. The first bell publishes the hello as well: written before
 * the bit is set, read after the bit has been taken.
 */
#include "peer.h"

/* Takes a door of the peer's, for my first message. 0 or -errno. */
int mdapl_bell_come(struct mdapl_speer *peer);
/* The slow way of mdapl_bell_after(). */
void mdapl_bell_ring(struct mdapl_speer *peer);
/* Answers the bells that have been rung. Returns how many messages there were. */
int mdapl_bell_answer(struct mdapl_shm *s);
/* Looks at the rings that are watched. Returns how many messages there were. */
int mdapl_bell_watch(struct mdapl_shm *s);
/* Stops watching those that have been silent since the last call. */
void mdapl_bell_age(struct mdapl_shm *s);
/* Sleeps until a bell rings, at most ns nanoseconds. */
void mdapl_bell_sleep(struct mdapl_shm *s, uint64_t ns);
/* Nothing is taken from this peer any more. */
void mdapl_bell_forget(struct mdapl_speer *peer);

/*
 * A message has been written: the peer sees it or hears the bell. Relaxed: a stale 1 is what the
 * reader's barrier excludes, a stale 0 costs a bell too many.
 */
static inline void mdapl_bell_after(struct mdapl_speer *peer)
{
    if (peer->fence)
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);   /* the compiler keeps the order, too */
    if (!atomic_load_explicit(&peer->tx.door->watched, memory_order_relaxed))
        mdapl_bell_ring(peer);
}

static inline bool mdapl_bell_rung(const struct mdapl_shm *s)
{
    return atomic_load_explicit(&s->seg.head->bells, memory_order_relaxed) != 0;
}

#endif
