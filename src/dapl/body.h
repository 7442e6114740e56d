/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_BODY_H
#define MDAPL_BODY_H
/*
 * A body, or a part of one, as pieces of local memory: copied from the owner's iovec, cut at the
 * maximum length of a registration, and registered if RDMA is to read or write it. Both ends of a
 * rendezvous have one; RTS and CTS carry the addresses of its pieces (struct mdapl_dapl_segs).
 */
#include <dat2/udat.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct mdapl_dapl_reg;
struct mdapl_dapl_regcache;
struct mdapl_dapl_segs;

struct mdapl_dapl_body {
    size_t len;
    int n;
    struct iovec *v;         /* n pieces, none of them empty */
    struct mdapl_dapl_reg **reg; /* one for each, when they are registered */
    struct mdapl_dapl_regcache *regs; /* then; else NULL */
};

/* Takes the first bytes of an iovec of n entries, at most max, in pieces of at most lmr_max bytes.
 * The memory that it names stays the caller's. 0 or -ENOMEM. */
int mdapl_dapl_body_init(struct mdapl_dapl_body *b, uint64_t lmr_max, const struct iovec *iov,
                         int n, size_t max);
/* Releases its registrations and its list of pieces. Does nothing if nothing was taken. */
void mdapl_dapl_body_free(struct mdapl_dapl_body *b);
/* Has every piece registered for a use (enum mdapl_dapl_lmr_use) on those of the first n_rails
 * rails that are usable; called again, on those that it lacks because they have been opened again.
 * False: an adapter refuses; pieces that were registered before stay so. */
bool mdapl_dapl_body_register(struct mdapl_dapl_body *b, struct mdapl_dapl_regcache *regs,
                              unsigned use, int n_rails);
/* Can RDMA on this rail use all of its pieces? */
bool mdapl_dapl_body_has(const struct mdapl_dapl_body *b, int rail);
/* Fills segs, for the peer: addresses and lengths of its pieces from byte `off` on, with keys of
 * those of the first n_rails rails on which it is registered. False: it is on none (any more), or
 * it has more pieces than a frame names. */
bool mdapl_dapl_body_describe(const struct mdapl_dapl_body *b, uint64_t off, int n_rails,
                              struct mdapl_dapl_segs *segs);

/* May the keys of a rail be used on a connection? generation: what the hello of its other end says
 * of the rail. */
bool mdapl_dapl_segs_have(const struct mdapl_dapl_segs *segs, int rail, uint16_t generation);

/* The local address and key of byte `off`. *rest_p: bytes from there to the end of its piece. */
DAT_LMR_TRIPLET mdapl_dapl_body_at(const struct mdapl_dapl_body *b, int rail, uint64_t off,
                                   uint64_t *rest_p);
/* The same at the peer. */
DAT_RMR_TRIPLET mdapl_dapl_segs_at(const struct mdapl_dapl_segs *segs, int rail, uint64_t off,
                                   uint64_t *rest_p);

#endif
