/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_NEAR_H
#define MDAPL_SHM_NEAR_H
/*
 * Which ranks of this node are reached through shared memory.
 *
 * Whether a process can map another's segment is not the same in both directions: one of the two
 * may be undumpable, out of address space, or confined. Both
 * ends have to use the same channel, so both
 * have to know the verdict of both, before the first message:
 *
 *      1. probe: each rank maps the segments of all ranks that the launcher places on its node, and
 *         writes into its own segment which of them it has mapped.
 *      2. the launcher's barrier: all verdicts have been written.
 *      3. reach: a rank is reached if we have mapped its segment and its segment says that it has
 *         mapped ours. The other side reads the same two words, so it comes to the same answer; a
 *         rank whose segment we have not mapped finds our "no" in ours, or has not mapped ours
 *         either.
 *
 * A segment has room for the ranks of its node, whatever the size of the job.
 */
#include <stdbool.h>
#include <stddef.h>

struct mdapl_shm;
struct mdapl_speer;

/* Ranks that the launcher places on one node, me among them. */
struct mdapl_near {
    int *rank;               /* in ascending order, the same on all of them */
    int n, me;               /* how many; my own index */
    struct mdapl_speer **probed;  /* those whose segment has been mapped, until they are reached */
};

/* Before the segment is made. 0 or -ENOMEM. */
int mdapl_near_init(struct mdapl_shm *s);
void mdapl_near_free(struct mdapl_shm *s);
/* Step 1, once. */
void mdapl_near_probe(struct mdapl_shm *s);
/* Step 3. 0 or -EHOSTUNREACH; the peer is the channel's. */
int mdapl_near_reach(struct mdapl_shm *s, int rank, struct mdapl_speer **peer_p);
/* Why a rank is not reached, as the end of a sentence about it. */
void mdapl_near_why(const struct mdapl_shm *s, int rank, char *buf, size_t len);

#endif
