/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_H
#define MDAPL_SHM_H
/* The shm channel: peers on this node, through shared memory. shm.c is its table of calls: start
 * there. */
struct mdapl_channel;

extern const struct mdapl_channel mdapl_shm_channel;

#endif
