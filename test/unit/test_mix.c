/* SPDX-License-Identifier: MIT */
/*
 * The registration cache in a program that does anything to its memory, in a seeded order: uses it,
 * holds registrations, unmaps, maps, moves, discards, allocates, frees and forks, on an adapter
 * that refuses now and then. No transfer may be wrong; without the watcher some must be.
 */
#include "unit.h"

#include "pinner.h"
#include "regs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ARENA = 256, HELD = 8, HEAPS = 8, STEPS = 4000 };

struct buffer {
    char *at;
    size_t len;
};

static struct mix {
    char *arena;
    struct mdapl_dapl_reg *parked[HELD];
    struct buffer heap[HEAPS];
    uint64_t seed;
} m;

static size_t draw(size_t n)
{
    m.seed = m.seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(m.seed >> 33) % n;
}

/* Some pages of the arena, often the same. */
static struct buffer draw_pages(void)
{
    size_t at = draw(2) ? 32 * draw(ARENA / 32) : draw(ARENA);
    size_t n = at % 32 == 0 ? 8 : 1 + draw(ARENA - at < 24 ? ARENA - at : 24);

    return (struct buffer){ m.arena + at * regs.page, n * regs.page };
}

static void mix_use(struct buffer b)
{
    static const unsigned uses[] = { MDAPL_LMR_LOCAL, MDAPL_LMR_REMOTE_READ,
                                     MDAPL_LMR_REMOTE_WRITE };
    size_t at = draw(b.len / 2), len = 1 + draw(b.len - at), h = draw(3 * HELD);
    struct mdapl_dapl_reg *reg = regs_get(b.at + at, len, uses[draw(3)]);

    if (!reg)
        return;                              /* refused: what is held is too much */
    regs_agree(reg, b.at + at, len);
    if (h >= HELD || m.parked[h])
        regs_put(reg);
    else
        m.parked[h] = reg;
}

static void mix_put(struct buffer b)
{
    size_t h = draw(HELD);

    (void)b;
    if (m.parked[h])
        regs_put(m.parked[h]);
    m.parked[h] = NULL;
}

static void mix_map_again(struct buffer b)
{
    munmap(b.at, b.len);
    regs_map(b.at, b.len, MAP_FIXED_NOREPLACE);
}

static void mix_map_over(struct buffer b)
{
    regs_map(b.at, b.len, MAP_FIXED);
}

static void mix_discard(struct buffer b)
{
    assert_int_equal(madvise(b.at, b.len, MADV_DONTNEED), 0);
}

static void move(char *from, char *to)
{
    assert_ptr_equal(mremap(from, regs.page, regs.page, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
}

/* Page by page: pages next to each other may be watched or not. */
static void mix_swap(struct buffer b)
{
    struct buffer to = draw_pages();
    char *spare = regs_map(NULL, regs.page, 0);

    for (size_t i = 0; i < b.len && i < to.len; i += regs.page)
        if (b.at + i != to.at + i) {
            move(b.at + i, spare);
            move(to.at + i, b.at + i);
            move(spare, to.at + i);
            regs_map(spare, regs.page, MAP_FIXED);
        }
    munmap(spare, regs.page);
}

static void mix_heap(struct buffer b)
{
    struct buffer *h = &m.heap[draw(HEAPS)];

    (void)b;
    if (draw(3)) {
        h->len = 1 + draw(300000);
        h->at = realloc(h->at, h->len);
        assert_non_null(h->at);
        mix_use(*h);
    } else {
        free(h->at);
        h->at = NULL;
    }
}

static void mix_fork(struct buffer b)
{
    if (draw(20) == 0)
        regs_fork(b.at, b.len);
}

static void mix_refuse(struct buffer b)
{
    (void)b;
    pinner_limit(draw(4) ? SIZE_MAX : 60 * regs.page);
}

static void run_mix(uint64_t seed, bool unreported)
{
    static void (*const act[])(struct buffer b) = {
        mix_use, mix_use, mix_use, mix_use, mix_use, mix_use, mix_use, mix_use, mix_use, mix_put,
        mix_put, mix_map_again, mix_map_over, mix_discard, mix_swap, mix_heap, mix_heap, mix_fork,
        mix_refuse,
    };

    memset(&m, 0, sizeof(m));
    m.seed = seed;
    regs.unreported = unreported;
    m.arena = regs_map(NULL, ARENA * regs.page, 0);
    for (int i = 0; i < STEPS; i++)
        act[draw(sizeof(act) / sizeof(act[0]))](draw_pages());
    for (size_t h = 0; h < HELD; h++)
        if (m.parked[h])
            regs_put(m.parked[h]);
    for (size_t h = 0; h < HEAPS; h++)
        free(m.heap[h].at);
    munmap(m.arena, ARENA * regs.page);
}

static void any_mix_is_right(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        regs_start(100 * (uint64_t)getpagesize());
        run_mix(seed, false);
        if (regs.wrong > 0)
            fail_msg("seed %llu: %d transfers wrong", (unsigned long long)seed, regs.wrong);
        assert_true(regs.stats->reg_hits > STEPS / 100);
        assert_true(regs.stats->reg_invalidated > STEPS / 100);
        assert_true(regs.stats->reg_evictions > STEPS / 100);
        assert_true(regs.stats->reg_failures > 0);
        regs_stop();
        regs_start(100 * (uint64_t)getpagesize());
        run_mix(seed, true);
        assert_true(regs.wrong > 0);
        regs_stop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mix_is_right),
    };

    return RUN(tests);
}
