/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_REGS_H
#define MDAPL_TEST_REGS_H
/*
 * A registration cache on an adapter that pins (pinner.h), with the real watcher of memory, and
 * the detector of wrong data: the program's view of its memory and the adapter's view through a
 * registration must be the same whenever the cache returns that registration.
 */
#include "ia.h"
#include "regcache.h"
#include "stats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the tests look at; one at a time. */
extern struct regs {
    struct mdapl_ctx *ctx;
    struct mdapl_stats *stats;
    struct mdapl_dapl_dat dat;
    struct mdapl_dapl_ia ia;
    struct mdapl_dapl_rails rails;
    struct mdapl_dapl_regcache c;
    size_t page;
    uint64_t stamp;
    uint64_t ns;                 /* the clock */
    int wrong;                   /* transfers, found by regs_agree() */
    bool unreported;             /* the cache gets no reports of changes: its entries go stale */
} regs;

/* A cache of so many bytes; the test is skipped where there can be none. */
void regs_start(uint64_t limit);
/* Nothing must be left, and, unless the cache had no reports, no transfer have been wrong. */
void regs_stop(void);

/* NULL: refused. */
struct mdapl_dapl_reg *regs_get(void *at, size_t len, unsigned use);
void regs_put(struct mdapl_dapl_reg *reg);

/* Fills memory with what has never been anywhere before. */
void regs_stamp(void *at, size_t len);
/* Does the adapter see what the program writes, and, if it may write, the other way round? */
void regs_agree(const struct mdapl_dapl_reg *reg, void *at, size_t len);
/* Get for reading and writing, agree, put. */
void regs_transfer(void *at, size_t len);

/* Waits until the cache can have the reports of all changes before this call: the next lookup uses
 * the cache. */
void regs_settle(void);

/* Forks; both sides write while both have this memory, and the child unmaps it. */
void regs_fork(void *at, size_t len);
/* Private memory, at a certain place (flags say how) or NULL. */
char *regs_map(void *at, size_t len, int flags);

#endif
