/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_LMR_H
#define MDAPL_LMR_H
/* Registered memory of one adapter. rndv.c registers bodies, vbuf.c its chunks. */
#include "ia.h"

#include <stddef.h>
#include <stdint.h>

struct mdapl_lmr {
    DAT_LMR_HANDLE handle;   /* NULL: nothing registered */
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;     /* what a peer names it by */
};

enum mdapl_lmr_use { MDAPL_LMR_LOCAL, MDAPL_LMR_REMOTE_READ };

/* Registers len bytes at addr. 0, or -ENOMEM: the provider refuses (counted, not logged: the
 * caller has another way). */
int mdapl_lmr_register(struct mdapl_ia *ia, void *addr, size_t len, enum mdapl_lmr_use use,
                       struct mdapl_lmr *lmr);
/* Does nothing when nothing is registered. */
void mdapl_lmr_release(struct mdapl_lmr *lmr);

#endif
