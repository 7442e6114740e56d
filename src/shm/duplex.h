/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_DUPLEX_H
#define MDAPL_SHM_DUPLEX_H
/*
 * Which way of copying is the fastest while long bodies are in flight in both directions of a pair
 * of ranks. Each core copies for both directions then, so the time of one body says little: it has
 * copies of the other direction in it, or waits for the other core. What counts is how many bytes
 * arrive in both directions together, over a window of bodies that all go the same way.
 *
 * One end of the pair judges, for both directions: in one class of lengths (judge.h) all bodies of
 * both go the same way. A trial has two windows of each way, by turns, so that what changes
 * meanwhile changes both. Trials come at growing intervals, and take a small part of the time by
 * what they cost.
 *
 * The caller gives the times, so a test has virtual ones.
 */
#include "seg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MDAPL_SHM_DUPLEX_WAYS = MDAPL_SHM_ONCE + 1 };    /* that are compared: two copies, and one */

/* Of a class of lengths. */
struct mdapl_shm_duplex {
    enum mdapl_shm_way way;      /* the best; MDAPL_SHM_WAYS: none yet */
    enum mdapl_shm_way now;      /* ... the one that bodies go now: that, or the one in trial */
    uint32_t least[MDAPL_SHM_DUPLEX_WAYS];   /* ns for 1 MiB, in a window of the last trial */
    uint32_t left, gap;          /* bodies until the next trial; between the last two */
    bool doubted;                /* the last trial's result, which this one is to confirm */
    unsigned window;             /* of a trial; after the last one bodies go without trial */
    uint32_t unwatched;          /* bodies until one is measured, without a trial */
    unsigned slow;               /* windows without a trial in a row in which `way` was too slow */
    bool begun;                  /* it counts */
    unsigned seen, counted;      /* bodies of the window: all; those of its way, since it began to
                                  * count */
    uint64_t bytes, ns;          /* ... of all, since then */
};

void mdapl_shm_duplex_init(struct mdapl_shm_duplex *d);
/* Another pair's decision is taken over, for a class in which there is none yet. */
void mdapl_shm_duplex_take(struct mdapl_shm_duplex *d, enum mdapl_shm_way way);
/* Does the time of the next body count? Else it need not be known. */
bool mdapl_shm_duplex_measures(const struct mdapl_shm_duplex *d);
/* A body of this class has arrived, in either direction, which went this way. ns: since the last
 * one of any class, or since the round began. Returns whether d->way has been decided, for the
 * first time or otherwise than before. */
bool mdapl_shm_duplex_body(struct mdapl_shm_duplex *d, enum mdapl_shm_way way, size_t bytes,
                           uint64_t ns);
/* A round of the program ends: it waits for none of the bodies that it has sent, and is about to
 * send others. Bodies come in bursts, and a window of whole rounds has whole ones. Returns the
 * same. */
bool mdapl_shm_duplex_round(struct mdapl_shm_duplex *d);

#endif
