/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_LMR_H
#define MDAPL_LMR_H
/*
 * Registered memory: for each rail that needs it a handle and keys, made when first asked for. They
 * carry the generation of the rail (ia.h) and are void once the rail has gone DOWN: its adapter is
 * closed then, and takes its registrations with it. regcache.c makes and keeps them.
 */
#include "rails.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_dapl_lmr {
    const struct mdapl_dapl_rails *rails;
    void *addr;
    size_t len;
    unsigned use;                /* enum mdapl_dapl_lmr_use */
    struct {
        DAT_LMR_HANDLE handle;
        DAT_LMR_CONTEXT local;
        DAT_RMR_CONTEXT key;     /* what a peer names it by */
        uint32_t generation;     /* 0: not registered */
    } on[MDAPL_MAX_RAILS];
};

/* What the memory is for; several may be or-ed. */
enum mdapl_dapl_lmr_use {
    MDAPL_LMR_LOCAL = 1,         /* I read and write it */
    MDAPL_LMR_REMOTE_READ = 2,   /* I and peers read it: memory that is read-only will do */
    MDAPL_LMR_REMOTE_WRITE = 4,  /* I read and write it, peers write it */
};

/* A set of rails, by their places. */
static inline unsigned mdapl_dapl_first_rails(int n)
{
    return (1u << n) - 1;
}

/* Memory that is not registered yet. len: bytes. */
void mdapl_dapl_lmr_init(struct mdapl_dapl_lmr *lmr, const struct mdapl_dapl_rails *rails,
                         void *addr, size_t len, unsigned use);
/* Registers it on those of the rails on which it is not. 0, or -ENOMEM: one of them refuses or is
 * DOWN (counted, not logged: the caller has another way); the others have it. */
int mdapl_dapl_lmr_need(struct mdapl_dapl_lmr *lmr, unsigned rails);
/* Ends its registrations. */
void mdapl_dapl_lmr_release(struct mdapl_dapl_lmr *lmr);

/* May its keys of this rail be used? */
static inline bool mdapl_dapl_lmr_has(const struct mdapl_dapl_lmr *lmr, int rail)
{
    return lmr->on[rail].generation == lmr->rails->ia[rail]->generation;
}

#endif
