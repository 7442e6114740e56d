/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_JUDGE_H
#define MDAPL_SHM_JUDGE_H
/*
 * Which way of copying a long body is the fastest here, by the bodies themselves. No copy is made
 * to measure: the first bodies of each length try all ways in turn, and from then on the fastest
 * one is used. It is judged again at growing intervals, and soon if the way in use has become
 * slower than another one was. If another one wins, the one in use is tried, too, before it is
 * replaced. A wrong judgement, or a machine that changes, costs a few bodies.
 *
 * A cost is the time of a byte from the receiver's decision to the body's end. Disturbances only
 * add time, so a cost falls to each lower sample at once, and a higher one raises it by 1/8 at
 * most; by 1/64 where the judge does not choose, since a way may be in use for long while the
 * others' costs are old.
 *
 * Lengths are judged in classes: up to 4 KiB, 8 KiB, 16 KiB ... 4 MiB, and longer ones. The caller
 * gives the times, so a test has virtual ones.
 */
#include "seg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_shm_judged {
    uint32_t cost[MDAPL_SHM_WAYS];   /* ns for 1 MiB; 0: not measured */
    uint32_t left, gap;          /* bodies until the next trials; between the last two trials */
    uint8_t way;                 /* in use */
    uint8_t trying;              /* MDAPL_SHM_WAYS: no trial */
    uint8_t samples, bodies;     /* of the trial, that are still permitted */
    uint16_t tried;              /* bodies in trials since the last decision */
    bool forbidden[MDAPL_SHM_WAYS];
    bool decided;                /* way is the result of trials, here or in another process */
};

struct mdapl_shm_judge {
    struct mdapl_shm_judged c[MDAPL_SHM_CLASSES];
};

void mdapl_shm_judge_init(struct mdapl_shm_judge *j);
/* The class of a length in bytes, and the longest length of a class. */
static inline unsigned mdapl_shm_judge_class(size_t len)
{
    unsigned long long above = len > 0 ? (len - 1) / MDAPL_SHM_CLASS_BYTES : 0;
    unsigned bits = above > 0 ? 64 - (unsigned)__builtin_clzll(above) : 0;

    return bits < MDAPL_SHM_CLASSES ? bits : MDAPL_SHM_CLASSES - 1;
}
size_t mdapl_shm_judge_longest(unsigned c);
/* Takes another process's decision for a class in which this one has not decided. Lengths of the
 * class are tried again after the first interval. */
void mdapl_shm_judge_take(struct mdapl_shm_judge *j, unsigned c, enum mdapl_shm_way way);
/* The way of the next body of this class. */
enum mdapl_shm_way mdapl_shm_judge_choose(struct mdapl_shm_judge *j, unsigned c);
/* So many bytes of bodies of this class took ns that way. Returns whether this has decided the
 * class, for the first time or otherwise than before. */
bool mdapl_shm_judge_sample(struct mdapl_shm_judge *j, unsigned c, enum mdapl_shm_way way,
                            size_t bytes, uint64_t ns);
/* A body of this class goes a way that others have chosen: it counts for when trials begin. */
void mdapl_shm_judge_pass(struct mdapl_shm_judge *j, unsigned c);
/* As mdapl_shm_judge_sample(), for a class whose ways others choose, without trials: it is decided
 * when all possible ways have a cost, and otherwise when another one is clearly better. */
bool mdapl_shm_judge_note(struct mdapl_shm_judge *j, unsigned c, enum mdapl_shm_way way,
                          size_t bytes, uint64_t ns);
/* This way is not possible for a class, or for any: it is not chosen again. */
void mdapl_shm_judge_forbid(struct mdapl_shm_judge *j, unsigned c, enum mdapl_shm_way way);
void mdapl_shm_judge_forbid_all(struct mdapl_shm_judge *j, enum mdapl_shm_way way);

#endif
