/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_SHARE_H
#define MDAPL_SHM_SHARE_H
/*
 * Memory that several processes of a node share, for MPI windows. src/mpid uses it (win_share.c,
 * win.c), independently of the channel.
 *
 *      head       the token; the lock
 *      bytes      for the caller; each rank owns a part of them
 *
 * One rank makes it and sends the offer to the others. A process that opens the reference of the
 * offer and finds the token there shares memory with the maker (as in seg.h). Each rank then takes
 * its part, which allocates it: so running out of memory is an error here and not a signal later,
 * and the pages are near the core of their owner. When all have tried, they keep it or close it; it
 * is freed with its last mapping, however the ranks end (os.h).
 */
#include "node.h"

#include <stddef.h>
#include <stdint.h>

struct mdapl_shm_winseg;

/* What the maker sends to the others of its node, as bytes. */
struct mdapl_shm_share_offer {
    int64_t rc;              /* 0, or -errno: there is none */
    uint64_t bytes;
    struct mdapl_shm_card card;
};

/* Makes it and fills the offer, at a failure too. 0, or with *share_p NULL -EFBIG (RLIMIT_FSIZE),
 * -ENOMEM, -ENOTSUP, or another -errno of the system's. */
int mdapl_shm_share_make(size_t bytes, struct mdapl_shm_share_offer *offer,
                         struct mdapl_shm_winseg **share_p);
/* Opens what another rank has made: offer->rc is 0. 0, or with *share_p NULL -EHOSTUNREACH (this is
 * not the same memory) or -ENOMEM. */
int mdapl_shm_share_open(const struct mdapl_shm_share_offer *offer,
                         struct mdapl_shm_winseg **share_p);
/* Allocates the part of this rank: len bytes from at on. 0, or -errno: there is no memory. */
int mdapl_shm_winseg_alloc(struct mdapl_shm_winseg *share, size_t at, size_t len);
/* All ranks have opened it: the reference is removed. */
void mdapl_shm_winseg_commit(struct mdapl_shm_winseg *share);
/* Unmaps it; other ranks keep their mappings. */
void mdapl_shm_share_close(struct mdapl_shm_winseg *share);

/* The first byte, at the start of a page, and the length in bytes. */
void *mdapl_shm_share_base(const struct mdapl_shm_winseg *share);
size_t mdapl_shm_share_bytes(const struct mdapl_shm_winseg *share);
/* Different for each share of a job, the same in all its ranks, never 0. */
uint64_t mdapl_shm_share_token(const struct mdapl_shm_winseg *share);

/* A lock between the processes; that of a process that has ended is released. */
void mdapl_shm_share_lock(struct mdapl_shm_winseg *share);
void mdapl_shm_share_unlock(struct mdapl_shm_winseg *share);

#endif
