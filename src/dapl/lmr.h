/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_LMR_H
#define MDAPL_LMR_H
/*
 * Registered memory. A registration covers all rails, so that any of them can carry any part of
 * it. rndv.c registers bodies; vbuf.c and ring.c make blocks of memory of their own.
 */
#include "ia.h"
#include "list.h"
#include "wire.h"

#include <stddef.h>
#include <stdint.h>

/* The adapters of the channel, in the order of the knob. */
struct mdapl_rails {
    struct mdapl_ia *ia[MDAPL_MAX_RAILS];
    int n;
    uint64_t lmr_max;        /* bytes of one registration, the least of all */
};

struct mdapl_lmr {
    struct {
        DAT_LMR_HANDLE handle;
        DAT_LMR_CONTEXT local;
        DAT_RMR_CONTEXT key; /* what a peer names it by */
    } on[MDAPL_MAX_RAILS];
    int n;                   /* 0: nothing registered */
    const struct mdapl_rails *rails;
};

enum mdapl_lmr_use { MDAPL_LMR_LOCAL, MDAPL_LMR_REMOTE_READ, MDAPL_LMR_REMOTE_WRITE };

/* Registers len bytes at addr. 0, or -ENOMEM: a provider refuses (counted, not logged: the caller
 * has another way). */
int mdapl_lmr_register(const struct mdapl_rails *rails, void *addr, size_t len,
                       enum mdapl_lmr_use use, struct mdapl_lmr *lmr);
/* Does nothing when nothing is registered. */
void mdapl_lmr_release(struct mdapl_lmr *lmr);

/* Memory of the channel's own: mapped, so that no other object shares a registered page. */
struct mdapl_block {
    struct mdapl_list link;  /* its maker's */
    struct mdapl_lmr lmr;
    uint8_t *data;           /* zeros at first */
    size_t bytes;
};

/* Maps and registers bytes for it. False: no memory, or no registration. */
bool mdapl_block_make(const struct mdapl_rails *rails, size_t bytes, enum mdapl_lmr_use use,
                      struct mdapl_block *block);
void mdapl_block_free(struct mdapl_block *block);

#endif
