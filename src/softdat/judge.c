/* SPDX-License-Identifier: MIT */
#include "judge.h"

enum {
    TRIAL = 8,                   /* requests of a trial; the first two are not judged */
    FIRST_GAP = 64, MAX_GAP = 4096,  /* requests between two trials */
    ENOUGH = 4,                  /* samples of a trial, with the one of the transition */
    HOPELESS = 4,                /* times the cost of the way in use: the trial ends */
};

void softdat_judge_init(struct softdat_judge *j)
{
    for (unsigned c = 0; c < SOFTDAT_JUDGE_CLASSES; c++)
        j->c[c] = (struct softdat_judged){ .way = SOFTDAT_WAY_RING, .gap = FIRST_GAP,
                                           .left = TRIAL };
}

unsigned softdat_judge_class(uint64_t len)
{
    unsigned c = 0;

    while (c < SOFTDAT_JUDGE_CLASSES - 1 && len > (uint64_t)SOFTDAT_JUDGE_FROM << c)
        c++;
    return c;
}

static enum softdat_way other(const struct softdat_judged *k)
{
    return k->way == SOFTDAT_WAY_RING ? SOFTDAT_WAY_DIRECT : SOFTDAT_WAY_RING;
}

enum softdat_way softdat_judge_choose(struct softdat_judge *j, unsigned c)
{
    struct softdat_judged *k = &j->c[c];

    if (k->trial == 0 && k->left > 0) {
        k->left--;
        return (enum softdat_way)k->way;
    }
    if (k->trial == 0) {
        k->trial = TRIAL;
        k->samples = 0;
        k->left = k->gap;
        k->gap = k->gap < MAX_GAP ? k->gap * 2 : MAX_GAP;
    }
    k->trial--;
    return other(k);
}

/* Returns the time of 1 MiB by this sample and the one before; 0: that was of the other way. A
 * sample of several requests counts by itself, too; `max` is the most that one has. */
static uint64_t cost_of(struct softdat_judged *k, enum softdat_way way, uint64_t bytes, uint64_t ns,
                        uint64_t max)
{
    bool pair = k->last == way && k->last_bytes > 0;
    uint64_t all_bytes = bytes + (pair ? k->last_bytes : 0);
    uint64_t all_ns = ns + (pair ? k->last_ns : 0);

    k->last = (uint8_t)way;
    k->last_bytes = bytes;
    k->last_ns = ns;
    return bytes > 0 && (pair || bytes > max) ? all_ns * (1 << 20) / all_bytes : 0;
}

/* Changes the cost of a way. The first sample of a trial has bytes that were copied before it, and
 * is not used; the former cost, which may be old, is not either. */
static void update(struct softdat_judged *k, enum softdat_way way, uint32_t cost)
{
    uint32_t *old = &k->cost[way];
    bool tried = way != k->way && k->samples < ENOUGH;

    if (tried && k->samples++ == 0) {
        k->last_bytes = *old = 0;
        return;
    }
    if (cost == 0)
        return;
    if (*old == 0 || cost < *old)
        *old = cost;
    else
        *old += cost - *old < *old / 8 ? cost - *old : *old / 8 + 1;
}

void softdat_judge_sample(struct softdat_judge *j, unsigned c, enum softdat_way way,
                          uint64_t bytes, uint64_t ns)
{
    struct softdat_judged *k = &j->c[c];
    uint64_t cost = cost_of(k, way, bytes, ns, (uint64_t)SOFTDAT_JUDGE_FROM << c);
    uint32_t *in_use;

    update(k, way, cost < UINT32_MAX / 16 ? (uint32_t)cost : UINT32_MAX / 16);
    in_use = &k->cost[k->way];
    if (*in_use == 0 || k->cost[other(k)] == 0)
        return;
    if (k->samples >= ENOUGH && k->cost[other(k)] > *in_use * HOPELESS)
        k->trial = 0;
    if (k->cost[other(k)] >= *in_use - *in_use / 8)
        return;
    k->way = (uint8_t)other(k);
    k->trial = 0;
    k->left = k->gap = FIRST_GAP;
}
