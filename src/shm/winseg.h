/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_WINSEG_H
#define MDAPL_SHM_WINSEG_H
/*
 * Memory that several processes of a node share, for MPI windows. src/mpid uses it (win_share.c,
 * win.c), independently of the channel.
 *
 *      head       the token; the lock
 *      bytes      for the caller; each rank owns a part of them
 *
 * One rank makes the segment and sends an offer to the others. A process that opens the reference
 * of the offer and finds the token there shares memory with the maker (as in seg.h). Each rank then
 * allocates its part, so that running out of memory is an error here and not a signal later, and
 * the pages are near the core of their owner. After that the ranks agree whether to keep the
 * segment; it is freed with its last mapping, however the ranks end (os.h).
 */
#include "node.h"

#include <stddef.h>
#include <stdint.h>

struct mdapl_shm_winseg;

/* What the maker sends to the others of its node, as bytes. */
struct mdapl_shm_winseg_offer {
    int64_t rc;              /* 0, or -errno: no segment could be made */
    uint64_t bytes;
    struct mdapl_shm_card card;
};

/* Makes a segment for so many bytes, which the caller owns, and fills the offer, also on failure.
 * 0, or with *share_p NULL -EFBIG (RLIMIT_FSIZE), -ENOMEM, -ENOTSUP, or another -errno of a system
 * call. */
int mdapl_shm_winseg_make(size_t bytes, struct mdapl_shm_winseg_offer *offer,
                         struct mdapl_shm_winseg **share_p);
/* Opens the segment of another rank, whose offer->rc is 0. 0, or with *share_p NULL -EHOSTUNREACH
 * (the two processes do not share memory) or -ENOMEM. */
int mdapl_shm_winseg_open(const struct mdapl_shm_winseg_offer *offer,
                         struct mdapl_shm_winseg **share_p);
/* Allocates the part of this rank: len bytes at offset `at`. 0, or -errno: memory is out. */
int mdapl_shm_winseg_alloc(struct mdapl_shm_winseg *share, size_t at, size_t len);
/* All ranks have opened it: the reference is removed. */
void mdapl_shm_winseg_commit(struct mdapl_shm_winseg *share);
/* Unmaps the segment and frees share; other ranks keep their mappings. */
void mdapl_shm_winseg_close(struct mdapl_shm_winseg *share);

/* The first byte, at the start of a page, and the length in bytes. */
void *mdapl_shm_winseg_base(const struct mdapl_shm_winseg *share);
size_t mdapl_shm_winseg_bytes(const struct mdapl_shm_winseg *share);
/* Different for each share of a job, the same in all its ranks, never 0. */
uint64_t mdapl_shm_winseg_token(const struct mdapl_shm_winseg *share);

/* A lock between the processes. When its holder has ended, the next process gets it. */
void mdapl_shm_winseg_lock(struct mdapl_shm_winseg *share);
void mdapl_shm_winseg_unlock(struct mdapl_shm_winseg *share);

#endif
