/* SPDX-License-Identifier: MIT */
#include "regcache.h"

#include "min.h"
#include "stats.h"
#include "channel.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct mdapl_dapl_reg *reg_of(struct mdapl_tree_node *node)
{
    return node ? MDAPL_OF(node, struct mdapl_dapl_reg, node) : NULL;
}

static uint64_t length(struct mdapl_dapl_memwatch_range r)
{
    return r.end - r.start;
}

/* -- making and ending registrations ---------------------------------------------------------- */

static struct mdapl_dapl_reg *reg_make(struct mdapl_dapl_regcache *c,
                                       struct mdapl_dapl_memwatch_range r, unsigned use,
                                       unsigned rails)
{
    struct mdapl_dapl_reg *reg = mdapl_pool_take(&c->regs);

    if (!reg)
        return NULL;
    *reg = (struct mdapl_dapl_reg){ .range = r, .use = use };
    mdapl_list_init(&reg->link);
    mdapl_dapl_lmr_init(&reg->lmr, c->rails, (void *)r.start, length(r), use);
    if (mdapl_dapl_lmr_need(&reg->lmr, rails)) {
        mdapl_dapl_lmr_release(&reg->lmr);
        mdapl_pool_give(&c->regs, reg);
        return NULL;
    }
    c->bytes += length(r);
    mdapl_stats_max(&c->stats->reg_bytes_max, c->bytes);
    return reg;
}

static void reg_release(struct mdapl_dapl_regcache *c, struct mdapl_dapl_reg *reg)
{
    assert(reg->users == 0);
    mdapl_list_remove(&reg->link);
    mdapl_dapl_lmr_release(&reg->lmr);
    c->bytes -= length(reg->range);
    mdapl_pool_give(&c->regs, reg);
}

/* Removes a registration from the set; its last user releases it. */
static void reg_remove(struct mdapl_dapl_regcache *c, struct mdapl_dapl_reg *reg)
{
    mdapl_tree_remove(&c->kept, &reg->node);
    reg->kept = false;
    if (reg->users == 0)
        reg_release(c, reg);
}

/* -- the kept ones ---------------------------------------------------------------------------- */

/* The first registration of the set, by address, that overlaps the range. */
static struct mdapl_dapl_reg *first_in(const struct mdapl_dapl_regcache *c,
                                       struct mdapl_dapl_memwatch_range r)
{
    struct mdapl_dapl_reg *reg = reg_of(mdapl_tree_upto(&c->kept, r.start));

    if (!reg || reg->range.end <= r.start)
        reg = reg_of(mdapl_tree_above(&c->kept, r.start));
    return reg && reg->range.start < r.end ? reg : NULL;
}

static struct mdapl_dapl_reg *next_in(const struct mdapl_dapl_regcache *c,
                                      struct mdapl_dapl_memwatch_range r,
                                      const struct mdapl_dapl_reg *reg)
{
    struct mdapl_dapl_reg *next = reg_of(mdapl_tree_above(&c->kept, reg->range.start));

    return next && next->range.start < r.end ? next : NULL;
}

static struct mdapl_dapl_reg *find(const struct mdapl_dapl_regcache *c,
                                   struct mdapl_dapl_memwatch_range r, unsigned use)
{
    struct mdapl_dapl_reg *reg = reg_of(mdapl_tree_upto(&c->kept, r.start));

    return reg && reg->range.end >= r.end && (reg->use & use) == use ? reg : NULL;
}

/* Removes all registrations that overlap the range. Returns how many. */
static unsigned forget(struct mdapl_dapl_regcache *c, struct mdapl_dapl_memwatch_range r)
{
    struct mdapl_dapl_reg *reg;
    unsigned n = 0;

    while ((reg = first_in(c, r))) {
        reg_remove(c, reg);
        n++;
    }
    return n;
}

/* Adds a registration to the set, in place of those that it covers. */
static void keep(struct mdapl_dapl_regcache *c, struct mdapl_dapl_reg *reg)
{
    struct mdapl_dapl_reg *old;

    while ((old = first_in(c, reg->range)))
        reg_remove(c, old);
    reg->node.key = reg->range.start;
    reg->kept = true;
    mdapl_tree_add(&c->kept, &reg->node);
}

/* Evicts until at most max_bytes are registered, or all registrations left are in use. */
static void evict(struct mdapl_dapl_regcache *c, uint64_t max_bytes)
{
    while (c->bytes > max_bytes && !mdapl_list_empty(&c->unused)) {
        struct mdapl_dapl_reg *reg = MDAPL_OF(c->unused.next, struct mdapl_dapl_reg, link);

        c->stats->reg_evictions++;
        reg_remove(c, reg);
    }
}

/* Removes the registrations of memory that has changed since the last lookup. False: kept
 * registrations cannot be used now. */
static bool drop_changed(struct mdapl_dapl_regcache *c)
{
    struct mdapl_dapl_memwatch_range r;

    if (!c->watch || !mdapl_dapl_memwatch_sync(c->watch))
        return false;
    while (mdapl_dapl_memwatch_next(c->watch, &r))
        c->stats->reg_invalidated += forget(c, r);
    return true;
}

/* -- registering what is not kept -------------------------------------------------------------- */

static bool fits(const struct mdapl_dapl_regcache *c, struct mdapl_dapl_memwatch_range r)
{
    return length(r) <= c->rails->lmr_max && length(r) <= c->limit;
}

static struct mdapl_dapl_memwatch_range whole_pages(const struct mdapl_dapl_regcache *c,
                                                    struct mdapl_dapl_memwatch_range r)
{
    return (struct mdapl_dapl_memwatch_range){ r.start & ~(c->page - 1),
                                 (r.end + c->page - 1) & ~(c->page - 1) };
}

/* Extends the range and its use to the registrations that it overlaps, if one registration of all
 * fits the limits; else removes these. */
static void join(struct mdapl_dapl_regcache *c, struct mdapl_dapl_memwatch_range *range_p,
                 unsigned *use_p)
{
    struct mdapl_dapl_memwatch_range all = *range_p;
    unsigned use = *use_p;

    for (struct mdapl_dapl_reg *reg = first_in(c, *range_p); reg;
         reg = next_in(c, *range_p, reg)) {
        if (reg->range.start < all.start)
            all.start = reg->range.start;
        if (reg->range.end > all.end)
            all.end = reg->range.end;
        use |= reg->use;
    }
    if (!fits(c, all)) {
        forget(c, *range_p);
        return;
    }
    *range_p = all;
    *use_p = use;
}

/* Watches the memory and then registers it, so the next lookup finds a change in between. NULL: it
 * cannot be watched, or the provider refuses. */
static struct mdapl_dapl_reg *make_kept(struct mdapl_dapl_regcache *c,
                                        struct mdapl_dapl_memwatch_range r, unsigned use,
                                        unsigned rails)
{
    struct mdapl_dapl_reg *reg;

    join(c, &r, &use);
    if (mdapl_dapl_memwatch_add(c->watch, r))
        return NULL;
    reg = reg_make(c, r, use, rails);
    if (reg && !mdapl_dapl_memwatch_shared(c->watch, r)) {
        keep(c, reg);
        return reg;
    }
    forget(c, r);
    return reg;
}

static struct mdapl_dapl_reg *make(struct mdapl_dapl_regcache *c,
                                   struct mdapl_dapl_memwatch_range asked, unsigned use,
                                   unsigned rails, bool may_keep)
{
    struct mdapl_dapl_memwatch_range pages = whole_pages(c, asked);
    struct mdapl_dapl_reg *reg = NULL;

    evict(c, c->limit > length(pages) ? c->limit - length(pages) : 0);
    if (may_keep && fits(c, pages))
        reg = make_kept(c, pages, use, rails);
    if (!reg)
        reg = reg_make(c, asked, use, rails);       /* for this transfer only */
    if (!reg) {
        evict(c, 0);
        reg = reg_make(c, asked, use, rails);
    }
    return reg;
}

/* -- the cost of a registration ---------------------------------------------------------------- */

enum { PROBE_BYTES = 1 << 16, PROBES = 8, PAYS = 2 };

bool mdapl_dapl_regcache_pays_off(const struct mdapl_ctx *ctx,
                                  const struct mdapl_dapl_rails *rails,
                                  struct mdapl_dapl_memwatch *watch)
{
    uint64_t registering = UINT64_MAX, asking = UINT64_MAX;
    void *probe = calloc(1, PROBE_BYTES);
    struct mdapl_dapl_lmr lmr;
    int done = 0;

    for (; probe && done < PROBES; done++) {
        uint64_t start = mdapl_ctx_now(ctx), between;

        mdapl_dapl_lmr_init(&lmr, rails, probe, PROBE_BYTES, MDAPL_LMR_REMOTE_WRITE);
        if (mdapl_dapl_lmr_need(&lmr, mdapl_dapl_first_rails(rails->n)))
            break;
        mdapl_dapl_lmr_release(&lmr);
        between = mdapl_ctx_now(ctx);
        mdapl_dapl_memwatch_sync(watch);
        registering = mdapl_min(registering, between - start);
        asking = mdapl_min(asking, mdapl_ctx_now(ctx) - between);
    }
    free(probe);
    return done == PROBES && registering > PAYS * asking;
}

/* -- for the rest of the channel -------------------------------------------------------------- */

void mdapl_dapl_regcache_init(struct mdapl_dapl_regcache *c, const struct mdapl_dapl_rails *rails,
                              struct mdapl_stats *stats, struct mdapl_dapl_memwatch *watch,
                              uint64_t limit)
{
    *c = (struct mdapl_dapl_regcache){ .rails = rails,
                                       .stats = stats,
                                       .watch = watch,
                                       .limit = limit,
                                       .page = (uintptr_t)getpagesize() };
    mdapl_list_init(&c->unused);
    mdapl_pool_init(&c->regs, sizeof(struct mdapl_dapl_reg), sizeof(void *), 64, 0);
}

void mdapl_dapl_regcache_fini(struct mdapl_dapl_regcache *c)
{
    forget(c, (struct mdapl_dapl_memwatch_range){ 0, UINTPTR_MAX });
    if (c->watch)
        mdapl_dapl_memwatch_close(c->watch);
    mdapl_pool_fini(&c->regs);
}

/* Registers a kept registration on the rails that it lacks. NULL: one of them refuses. */
static struct mdapl_dapl_reg *complete(struct mdapl_dapl_regcache *c, struct mdapl_dapl_reg *reg,
                                       unsigned rails)
{
    int rc;

    reg->users++;                /* not to be evicted */
    mdapl_list_remove(&reg->link);
    rc = mdapl_dapl_lmr_need(&reg->lmr, rails);
    if (rc && !mdapl_list_empty(&c->unused)) {
        evict(c, 0);
        rc = mdapl_dapl_lmr_need(&reg->lmr, rails);
    }
    if (rc)
        mdapl_dapl_reg_put(c, reg);
    return rc ? NULL : reg;
}

int mdapl_dapl_reg_get(struct mdapl_dapl_regcache *c, void *addr, size_t len, unsigned use,
                       unsigned rails, struct mdapl_dapl_reg **reg_p)
{
    struct mdapl_dapl_memwatch_range asked = { (uintptr_t)addr, (uintptr_t)addr + len };
    bool trusted = drop_changed(c);
    struct mdapl_dapl_reg *reg = trusted ? find(c, asked, use) : NULL;

    if (reg) {
        c->stats->reg_hits++;
    } else {
        c->stats->reg_misses++;
        reg = make(c, asked, use, rails, trusted);
    }
    *reg_p = reg ? complete(c, reg, rails) : NULL;
    return *reg_p ? 0 : -ENOMEM;
}

void mdapl_dapl_reg_put(struct mdapl_dapl_regcache *c, struct mdapl_dapl_reg *reg)
{
    assert(reg->users > 0);
    if (--reg->users > 0)
        return;
    if (!reg->kept) {
        reg_release(c, reg);
        return;
    }
    mdapl_list_append(&c->unused, &reg->link);
    evict(c, c->limit);
}

/* -- memory of the channel's own --------------------------------------------------------------- */

bool mdapl_dapl_block_need(struct mdapl_dapl_regcache *c, struct mdapl_dapl_block *block,
                           unsigned rails)
{
    int rc = mdapl_dapl_lmr_need(&block->lmr, rails);

    if (rc && !mdapl_list_empty(&c->unused)) {
        evict(c, 0);
        rc = mdapl_dapl_lmr_need(&block->lmr, rails);
    }
    return rc == 0;
}

bool mdapl_dapl_block_make(struct mdapl_dapl_regcache *c, size_t bytes, unsigned use,
                           unsigned rails, struct mdapl_dapl_block *block)
{
    block->bytes = bytes;
    block->kept = false;
    block->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block->data == MAP_FAILED)
        return false;
    mdapl_dapl_lmr_init(&block->lmr, c->rails, block->data, bytes, use);
    if (mdapl_dapl_block_need(c, block, rails))
        return true;
    mdapl_dapl_block_free(block);
    return false;
}

void mdapl_dapl_block_free(struct mdapl_dapl_block *block)
{
    mdapl_dapl_lmr_release(&block->lmr);
    if (!block->kept)
        munmap(block->data, block->bytes);
}
