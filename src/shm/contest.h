/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_CONTEST_H
#define MDAPL_SHM_CONTEST_H
/*
 * Which of two ways of bodies is the faster one, where the time of one body says little: each core
 * copies for other bodies meanwhile, or waits for the other core. What counts is how many bytes
 * arrive over a window of bodies that all go the same way.
 *
 * A trial has two windows of each way, by turns, so that what changes meanwhile changes both.
 * Trials come at growing intervals, and take a small part of the time by what they cost.
 *
 * Long bodies in both directions of a pair of ranks are judged so (flow.c): one end judges for both
 * directions, and in one class of lengths (judge.h) all bodies of both go the same way. And the
 * laps of bodies in a ring (lap.c).
 *
 * The caller gives the times, so a test has virtual ones.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MDAPL_SHM_CONTEST_WAYS = 2,  /* that are compared: 0 and 1 */
    MDAPL_SHM_CONTEST_NONE = MDAPL_SHM_CONTEST_WAYS
};

struct mdapl_shm_contest {
    unsigned way;                /* the best; MDAPL_SHM_CONTEST_NONE: none yet */
    unsigned before;             /* in use until it is decided; MDAPL_SHM_CONTEST_NONE: others
                                  * say */
    unsigned now;                /* ... the one that bodies go now: that, or the one in trial */
    uint32_t least[MDAPL_SHM_CONTEST_WAYS];  /* ns for 1 MiB, in a window of the last trial */
    uint32_t left, gap;          /* bodies until the next trial; between the last two */
    bool doubted;                /* the last trial's result, which this one is to confirm */
    unsigned window;             /* of a trial; after the last one bodies go without trial */
    uint32_t unwatched;          /* bodies until one is measured, without a trial */
    size_t size;                 /* bytes of the last body */
    unsigned slow;               /* windows without a trial in a row in which `way` was too slow */
    unsigned unended;            /* bodies since the last round ended; NO_ROUND at first, and at
                                  * most */
    bool begun;                  /* it counts */
    unsigned seen, counted;      /* bodies of the window: all; those of its way, since it began to
                                  * count */
    uint64_t bytes, ns;          /* ... of all, since then */
};

/* before: as in the struct. */
void mdapl_shm_contest_init(struct mdapl_shm_contest *k, unsigned before);
/* Another contest's decision is taken over, if there is none yet. */
void mdapl_shm_contest_take(struct mdapl_shm_contest *k, unsigned way);
/* Does the time of the next body count? Else it need not be known. */
bool mdapl_shm_contest_measures(const struct mdapl_shm_contest *k);
/* A body is over, which went this way, or another one if that is none of the two. ns: since the
 * last one, or since the round began. Returns whether k->way has been decided, for the first time
 * or otherwise than before. */
bool mdapl_shm_contest_body(struct mdapl_shm_contest *k, unsigned way, size_t bytes, uint64_t ns);
/* A body is over whose time does not count, as it is the first one at its place: that has cost page
 * faults. The window begins again. */
void mdapl_shm_contest_fresh(struct mdapl_shm_contest *k);
/* A round of the program ends: it waits for none of the bodies that it has sent, and is about to
 * send others. Bodies come in bursts, and a window of whole rounds has whole ones. Returns the
 * same. */
bool mdapl_shm_contest_round(struct mdapl_shm_contest *k);

#endif
