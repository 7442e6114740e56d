/* SPDX-License-Identifier: MIT */
#include "regs.h"

#include "unit.h"

#include "cfg.h"
#include "err.h"
#include "pinner.h"
#include "transport.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct regs regs;

/* -- a cache and its adapter ------------------------------------------------------------------ */

static int open_nothing(struct mdapl_ctx *ctx, void **state_p)
{
    *state_p = ctx;
    return 0;
}

static void close_nothing(void *state)
{
    (void)state;
}

static void open_ctx(void)
{
    static const struct mdapl_channel none = {
        .name = "none", .open = open_nothing, .close = close_nothing,
    };
    static const struct mdapl_channel *const channels[] = { &none, NULL };
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    struct mdapl_ctx_args args = { .channels = channels, .cfg = &cfg, .job = { .size = 1 },
                                   .clock = mdapl_clock_manual(&regs.ns) };

    mdapl_cfg_init(&cfg);
    assert_int_equal(mdapl_ctx_open(&args, &regs.ctx, &err), 0);
    regs.stats = mdapl_ctx_stats(regs.ctx);
}

/* Waits until the thread has noted all changes; a lookup before that does not use the cache. */
static void settle(struct mdapl_dapl_memwatch *watch)
{
    while (!mdapl_dapl_memwatch_sync(watch))
        ;
}

/* The watcher's thread maps memory when it starts, which must not fill the gaps that tests make. */
static void start_thread(struct mdapl_dapl_memwatch *watch)
{
    char *m = regs_map(NULL, regs.page, 0);
    struct mdapl_dapl_memwatch_range r = { (uintptr_t)m, (uintptr_t)m + regs.page };

    assert_int_equal(mdapl_dapl_memwatch_add(watch, r), 0);
    munmap(m, regs.page);
    settle(watch);
}

void regs_start(uint64_t limit)
{
    struct mdapl_dapl_memwatch *watch;

    if (mdapl_dapl_memwatch_open(&watch))
        SKIP_TEST("this system cannot watch memory");
    if (!pinner_open()) {
        mdapl_dapl_memwatch_close(watch);
        SKIP_TEST("this system cannot pin memory");
    }
    regs.page = (size_t)getpagesize();
    start_thread(watch);
    regs.wrong = 0;
    regs.unreported = false;
    open_ctx();
    regs.dat.dat_lmr_create = pinner_lmr_create;
    regs.dat.dat_lmr_free = pinner_lmr_free;
    regs.ia = (struct mdapl_dapl_ia){ .ctx = regs.ctx, .dat = &regs.dat, .generation = 1,
                                .max = { .lmr = 1 << 30 } };
    regs.rails = (struct mdapl_dapl_rails){ .ia = { &regs.ia }, .n = 1, .lmr_max = 1 << 30 };
    mdapl_dapl_regcache_init(&regs.c, &regs.rails, regs.stats, watch, limit);
}

void regs_stop(void)
{
    mdapl_dapl_regcache_fini(&regs.c);
    mdapl_ctx_close(regs.ctx);
    assert_int_equal(pinner_close(), 0);
    assert_true(regs.wrong == 0 || regs.unreported);
}

struct mdapl_dapl_reg *regs_get(void *at, size_t len, unsigned use)
{
    struct mdapl_dapl_reg *reg = NULL;
    struct mdapl_dapl_memwatch_range r;

    if (regs.unreported) {
        settle(regs.c.watch);
        while (mdapl_dapl_memwatch_next(regs.c.watch, &r))
            ;
    }
    return mdapl_dapl_reg_get(&regs.c, at, len, use, 1, &reg) ? NULL : reg;
}

void regs_put(struct mdapl_dapl_reg *reg)
{
    mdapl_dapl_reg_put(&regs.c, reg);
}

char *regs_map(void *at, size_t len, int flags)
{
    char *m = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

    assert_ptr_not_equal(m, MAP_FAILED);
    return m;
}

void regs_settle(void)
{
    settle(regs.c.watch);
}

void regs_fork(void *at, size_t len)
{
    int go[2], status;
    pid_t pid;
    char c;

    assert_int_equal(pipe(go), 0);
    pid = test_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(go[1]);
        memset(at, 'c', len / 2);
        if (read(go[0], &c, 1) != 0)
            _exit(1);
        memset(at, 'd', len);
        _exit(munmap(at, len));
    }
    regs_stamp(at, len);
    close(go[0]);
    close(go[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* -- the detector ----------------------------------------------------------------------------- */

void regs_stamp(void *at, size_t len)
{
    for (size_t i = 0; i + 8 <= len; i += 8) {
        regs.stamp++;
        memcpy((char *)at + i, &regs.stamp, 8);
    }
}

void regs_agree(const struct mdapl_dapl_reg *reg, void *at, size_t len)
{
    static uint64_t fresh[PINNER_MAX / 8];
    DAT_LMR_CONTEXT key = reg->lmr.on[0].local;
    bool same;

    regs_stamp(at, len);
    same = memcmp(pinner_read(key, at, len), at, len) == 0;
    if (pinner_may(key, DAT_MEM_PRIV_LOCAL_WRITE_FLAG)) {
        regs_stamp(fresh, len);
        pinner_write(key, at, fresh, len);
        same = same && memcmp(at, fresh, len) == 0;
    }
    regs.wrong += !same;
}

void regs_transfer(void *at, size_t len)
{
    struct mdapl_dapl_reg *reg = regs_get(at, len, MDAPL_LMR_LOCAL | MDAPL_LMR_REMOTE_READ);

    assert_non_null(reg);
    regs_agree(reg, at, len);
    regs_put(reg);
}
