/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_DAPL_LEDGER_H
#define MDAPL_DAPL_LEDGER_H
/*
 * Which bytes of a body are done: a set of ranges, in order, apart from each other. The pieces of a
 * body that several streams carry are done in any order, and after a fault a piece may be done
 * twice; the set says what is there and what is missing, where a count of bytes would not. A body
 * that is moved in its order is one range that grows.
 */
#include "wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { MDAPL_DAPL_LEDGER_OWN = 4 };      /* ranges without more memory */

struct mdapl_dapl_ledger {
    uint64_t done;               /* bytes, of all ranges together */
    uint32_t n, room;            /* ranges; that there is memory for */
    struct mdapl_dapl_range *more;       /* where they are when own[] is too small; else NULL */
    struct mdapl_dapl_range own[MDAPL_DAPL_LEDGER_OWN];
};

/* Makes l empty, without a look at what it was. */
static inline void mdapl_dapl_ledger_init(struct mdapl_dapl_ledger *l)
{
    l->done = 0;
    l->n = 0;
    l->room = MDAPL_DAPL_LEDGER_OWN;
    l->more = NULL;
}

/* Frees the memory of l, which is of no use any more but to be freed again. */
static inline void mdapl_dapl_ledger_free(struct mdapl_dapl_ledger *l)
{
    if (l->more)
        free(l->more);
    l->more = NULL;
}

/* The len bytes from off are done; off + len has to fit 64 bits. Returns how many of them were not
 * done before: 0 when all of it is a duplicate; or -ENOMEM, and l is as it was. */
int64_t mdapl_dapl_ledger_add(struct mdapl_dapl_ledger *l, uint64_t off, uint64_t len);
/* None of the len bytes from off is done any more. 0; or -ENOMEM, and l is as it was: what is left
 * of one range would be two. */
int mdapl_dapl_ledger_remove(struct mdapl_dapl_ledger *l, uint64_t off, uint64_t len);
/* Are all of the len bytes from off done? */
bool mdapl_dapl_ledger_has(const struct mdapl_dapl_ledger *l, uint64_t off, uint64_t len);
/* The first bytes of the len from off that are not done; of length 0 when all are. */
struct mdapl_dapl_range mdapl_dapl_ledger_missing(const struct mdapl_dapl_ledger *l, uint64_t off,
                                             uint64_t len);

#endif
