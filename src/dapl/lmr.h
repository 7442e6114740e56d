/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_LMR_H
#define MDAPL_LMR_H
/*
 * Registered memory. A registration covers all rails, so that any of them can carry any part of
 * it. regcache.c makes and keeps them.
 */
#include "rails.h"

#include <stddef.h>
#include <stdint.h>

struct mdapl_lmr {
    struct {
        DAT_LMR_HANDLE handle;
        DAT_LMR_CONTEXT local;
        DAT_RMR_CONTEXT key; /* what a peer names it by */
    } on[MDAPL_MAX_RAILS];
    int n;                   /* 0: nothing registered */
    const struct mdapl_rails *rails;
};

/* What the memory is for; several may be or-ed. */
enum mdapl_lmr_use {
    MDAPL_LMR_LOCAL = 1,         /* I read and write it */
    MDAPL_LMR_REMOTE_READ = 2,   /* I and peers read it: memory that is read-only will do */
    MDAPL_LMR_REMOTE_WRITE = 4,  /* I read and write it, peers write it */
};

/* Registers len bytes at addr. 0, or -ENOMEM: a provider refuses (counted, not logged: the caller
 * has another way). */
int mdapl_lmr_register(const struct mdapl_rails *rails, void *addr, size_t len,
                       unsigned use, struct mdapl_lmr *lmr);
/* Does nothing when nothing is registered. */
void mdapl_lmr_release(struct mdapl_lmr *lmr);

#endif
