/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_SHARE_H
#define MDAPL_SHM_SHARE_H
/*
 * Memory that several processes of a node share: what lies under an MPI window. Its caller is
 * src/mpid (win_share.c, win.c); the channel needs none of it, and it needs no channel.
 *
 *      head       the token that proves it; the lock
 *      bytes      the caller's, parts of them each rank's own
 *
 * One rank makes it and gives the offer to the others; who opens what the offer names and finds the
 * token there shares memory with the maker, and who does not, does not (as seg.h). Each rank then
 * takes its part: the memory is there from then on, so that running out of it is an error here and
 * no signal later, and it is near the core of its owner. When all have tried, they keep it or close
 * it; it ends with its last mapping, however the ranks end (os.h).
 */
#include "node.h"

#include <stddef.h>
#include <stdint.h>

struct mdapl_share;

/* How the others find it. Bytes: ranks of one node send it as it is. */
struct mdapl_share_offer {
    int64_t rc;              /* 0, or -errno: there is none */
    uint64_t bytes;
    struct mdapl_card card;
};

/* Makes it and fills the offer, at a failure too. 0, or with *share_p NULL -EFBIG (a limit on the
 * size of files), -ENOMEM, -ENOTSUP, or what else the system says. */
int mdapl_share_make(size_t bytes, struct mdapl_share_offer *offer, struct mdapl_share **share_p);
/* Opens what another has made; its rc is 0. 0, or with *share_p NULL -EHOSTUNREACH (this is not
 * the same memory) or -ENOMEM. */
int mdapl_share_open(const struct mdapl_share_offer *offer, struct mdapl_share **share_p);
/* My part. 0 or -errno: the memory is not there. */
int mdapl_share_take(struct mdapl_share *share, size_t at, size_t len);
/* All have opened it: nobody else will. */
void mdapl_share_settle(struct mdapl_share *share);
/* Unmaps it. The others may still use theirs. */
void mdapl_share_close(struct mdapl_share *share);

/* The first byte, on a page's start; the length. */
void *mdapl_share_base(const struct mdapl_share *share);
size_t mdapl_share_bytes(const struct mdapl_share *share);
/* Different for each share of a job, the same in all its ranks, never 0. */
uint64_t mdapl_share_token(const struct mdapl_share *share);

/* One process at a time. One that ends while it has the lock leaves it to the next. */
void mdapl_share_lock(struct mdapl_share *share);
void mdapl_share_unlock(struct mdapl_share *share);

#endif
