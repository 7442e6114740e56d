/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_REGCACHE_H
#define MDAPL_REGCACHE_H
/*
 * Registration cache (pin-down cache, Tezuka et al., 1998): registrations of the user's memory are
 * kept after their transfer, because programs send from the same buffers repeatedly and
 * registering costs more than a short transfer. body.c gets one for each piece of a body and puts
 * it back after the transfer.
 *
 * What is kept is a set of ranges of whole pages that do not overlap (tree.h), each with its users;
 * those without users are on a list, the longest unused first, and are evicted from its front
 * when the bytes registered exceed the limit, or when the adapter refuses a registration. A range
 * of a lookup that overlaps kept ones is registered together with them, so that buffers which
 * share a page, or are used in pieces or in several ways, end up in one registration.
 *
 * Memory can be unmapped while it is registered: before every lookup memwatch.c reports the ranges
 * that have changed. Their registrations are removed from the set at once, and released by their
 * last user. Where memory cannot be watched a registration ends with its transfer.
 */
#include "list.h"
#include "rails.h"
#include "memwatch.h"
#include "pool.h"
#include "tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_stats;

struct mdapl_dapl_regcache {
    const struct mdapl_dapl_rails *rails;
    struct mdapl_stats *stats;
    struct mdapl_dapl_memwatch *watch; /* NULL: nothing is kept */
    struct mdapl_tree kept;
    struct mdapl_list unused;        /* those of them without users, the longest unused first */
    struct mdapl_pool regs;
    uint64_t bytes;                  /* registered, kept or not */
    uint64_t limit;                  /* of them, beyond what is in use */
    uintptr_t page;                  /* bytes */
};

/* One registration. The user reads lmr; all else is the cache's. */
struct mdapl_dapl_reg {
    struct mdapl_dapl_lmr lmr;
    struct mdapl_tree_node node;     /* key: the range's first address */
    struct mdapl_list link;          /* on unused */
    struct mdapl_dapl_memwatch_range range;
    unsigned use;                    /* enum mdapl_dapl_lmr_use */
    int users;
    bool kept;                       /* in the tree */
};

/* Does a registration on all rails take longer than asking memwatch whether a kept one is still
 * valid? It is measured, with some ten registrations. */
bool mdapl_dapl_regcache_pays_off(const struct mdapl_ctx *ctx,
                                  const struct mdapl_dapl_rails *rails,
                                  struct mdapl_dapl_memwatch *watch);
/* The cache of these rails. watch: owned by the cache from now on; NULL: nothing is kept. limit:
 * bytes registered beyond what is in use; 0: nothing is kept. */
void mdapl_dapl_regcache_init(struct mdapl_dapl_regcache *c, const struct mdapl_dapl_rails *rails,
                              struct mdapl_stats *stats, struct mdapl_dapl_memwatch *watch,
                              uint64_t limit);
/* Releases all registrations. None may have users. */
void mdapl_dapl_regcache_fini(struct mdapl_dapl_regcache *c);

/*
 * A registration that covers len bytes at addr on these rails (a set) and is good for at least this
 * use; one that is kept gets the rails that it lacks. The memory must stay mapped until
 * mdapl_dapl_reg_put(). 0, or -ENOMEM: a provider refuses, even after everything unused has been
 * evicted, or a rail is DOWN.
 */
int mdapl_dapl_reg_get(struct mdapl_dapl_regcache *c, void *addr, size_t len, unsigned use,
                       unsigned rails, struct mdapl_dapl_reg **reg_p);
void mdapl_dapl_reg_put(struct mdapl_dapl_regcache *c, struct mdapl_dapl_reg *reg);

/* Memory of the channel itself, registered as long as it exists. It is mapped on its own, so that
 * no other object shares a registered page. */
struct mdapl_dapl_block {
    struct mdapl_list link;          /* its maker's */
    struct mdapl_dapl_lmr lmr;
    uint8_t *data;                   /* zeros at first */
    size_t bytes;
    bool kept;                       /* an adapter that could not be closed may write there: the
                                      * memory stays mapped */
};

/* Maps bytes for it and registers them on these rails (a set); unused
 * registrations of the cache are evicted for it. False: no memory, or no registration. */
bool mdapl_dapl_block_make(struct mdapl_dapl_regcache *c, size_t bytes, unsigned use,
                           unsigned rails, struct mdapl_dapl_block *block);
/* Registers it on these rails too. False: one of them refuses. */
bool mdapl_dapl_block_need(struct mdapl_dapl_regcache *c, struct mdapl_dapl_block *block,
                           unsigned rails);
void mdapl_dapl_block_free(struct mdapl_dapl_block *block);

#endif
