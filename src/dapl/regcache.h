/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_REGCACHE_H
#define MDAPL_REGCACHE_H
/*
 * Registrations of the user's memory, kept after their transfer: programs send from the same
 * buffers again and again, and registering costs more than a short transfer. body.c gets one for
 * each piece of a body and puts it back when the piece has travelled.
 *
 * What is kept is a set of ranges of whole pages that do not overlap (tree.h), each with its users;
 * those without users stand in a list, the longest unused first, and are evicted from its front
 * when the bytes registered exceed the limit, or when the adapter refuses a registration. A range
 * that is asked for and touches kept ones is registered together with them, so that buffers which
 * share a page, or are used in pieces or in several ways, end up in one registration.
 *
 * Memory can change behind a registration: memwatch.c tells, before every lookup, which. What has
 * changed leaves the set at once, and is released by its last user. Where memory cannot be watched
 * a registration ends with its transfer.
 */
#include "list.h"
#include "lmr.h"
#include "memwatch.h"
#include "pool.h"
#include "tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_stats;

struct mdapl_regcache {
    const struct mdapl_rails *rails;
    struct mdapl_stats *stats;
    struct mdapl_memwatch *watch;    /* NULL: nothing is kept */
    struct mdapl_tree kept;
    struct mdapl_list unused;        /* those of them without users, the longest unused first */
    struct mdapl_pool regs;
    uint64_t bytes;                  /* registered, kept or not */
    uint64_t limit;                  /* of them, beyond what is in use */
    uintptr_t page;                  /* bytes */
};

/* One registration. The user reads lmr; all else is the cache's. */
struct mdapl_reg {
    struct mdapl_lmr lmr;
    struct mdapl_tree_node node;     /* key: the range's first address */
    struct mdapl_list link;          /* on unused */
    struct mdapl_range range;
    unsigned use;                    /* enum mdapl_lmr_use */
    int users;
    bool kept;                       /* in the tree */
};

/* Is a registration dearer than the question whether a kept one is still good? Measured: some ten
 * registrations. */
bool mdapl_regcache_pays(const struct mdapl_ctx *ctx, const struct mdapl_rails *rails,
                         struct mdapl_memwatch *watch);
/* The cache of these rails; watch becomes the cache's. NULL or limit 0: nothing is kept. */
void mdapl_regcache_init(struct mdapl_regcache *c, const struct mdapl_rails *rails,
                         struct mdapl_stats *stats, struct mdapl_memwatch *watch, uint64_t limit);
/* Releases what has no users. */
void mdapl_regcache_fini(struct mdapl_regcache *c);

/*
 * A registration that covers len bytes at addr on these rails (a set) and is good for at least this
 * use; one that is kept gets the rails that it lacks. The memory must stay mapped until
 * mdapl_reg_put(). 0, or -ENOMEM: a provider refuses, even after everything unused has been
 * evicted, or a rail is DOWN.
 */
int mdapl_reg_get(struct mdapl_regcache *c, void *addr, size_t len, unsigned use, unsigned rails,
                  struct mdapl_reg **reg_p);
void mdapl_reg_put(struct mdapl_regcache *c, struct mdapl_reg *reg);

/* Memory of the channel's own, for long: mapped, so that no other object shares a registered
 * page. */
struct mdapl_block {
    struct mdapl_list link;          /* its maker's */
    struct mdapl_lmr lmr;
    uint8_t *data;                   /* zeros at first */
    size_t bytes;
};

/* Maps bytes for it and registers them on these rails (a set); what the cache keeps unused gives
 * way. False: no memory, or no registration. */
bool mdapl_block_make(struct mdapl_regcache *c, size_t bytes, unsigned use, unsigned rails,
                      struct mdapl_block *block);
/* Registers it on these rails too. False: one of them refuses. */
bool mdapl_block_need(struct mdapl_regcache *c, struct mdapl_block *block, unsigned rails);
void mdapl_block_free(struct mdapl_block *block);

#endif
