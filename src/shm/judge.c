/* SPDX-License-Identifier: MIT */
#include "judge.h"

#include "min.h"

enum {
    MIB = 1 << 20,
    SAMPLES = 3,                 /* of a way in a trial: the first ones touch new memory */
    BODIES = 128,                /* ... that may pass for them */
    HOPELESS = 2,                /* a trial ends at a sample that costs so many times the best */
    FIRST_GAP = 16,              /* bodies between trials, at first and at most */
    LAST_GAP = 1024,
    THRIFT = 64,                 /* bodies after trials for each body's time that they cost */
    THRIFT_MAX = 1 << 16,
    RISE = 8,                    /* a cost is raised by this part of it, at most, */
    RISE_NOTED = 64,             /* ... of a way that others choose */
    CLEARLY = 90,                /* percent of the cost in use, to replace it */
    TOGETHER = 3,                /* times that two cores are as fast as the receiver's, at most */
    SOON = 80,                   /* ... to try again soon: one disturbed body is not enough */
};

void mdapl_shm_judge_init(struct mdapl_shm_judge *j)
{
    *j = (struct mdapl_shm_judge){ 0 };
    for (unsigned c = 0; c < MDAPL_SHM_CLASSES; c++)
        j->c[c] = (struct mdapl_shm_judged){ .gap = FIRST_GAP, .samples = SAMPLES,
                                             .bodies = BODIES };
}

size_t mdapl_shm_judge_longest(unsigned c)
{
    return c == MDAPL_SHM_CLASSES - 1 ? SIZE_MAX : (size_t)MDAPL_SHM_CLASS_BYTES << c;
}

void mdapl_shm_judge_take(struct mdapl_shm_judge *j, unsigned c, enum mdapl_shm_way way)
{
    struct mdapl_shm_judged *k = &j->c[c];

    if (k->decided || k->forbidden[way])
        return;
    k->way = (uint8_t)way;
    k->trying = MDAPL_SHM_WAYS;
    k->left = FIRST_GAP;
    k->decided = true;
}

/* -- costs ------------------------------------------------------------------------------------ */

static uint32_t cost_of(size_t bytes, uint64_t ns)
{
    double cost = (double)ns * MIB / (double)bytes;

    return cost < 1 ? 1 : cost > UINT32_MAX ? UINT32_MAX : (uint32_t)cost;
}

static uint32_t merge(uint32_t old, uint32_t cost, unsigned part)
{
    uint64_t most = (uint64_t)old + old / part + 1;

    return old == 0 || cost < most ? cost : most > UINT32_MAX ? UINT32_MAX : (uint32_t)most;
}

/* The way with the lowest cost; one that is possible, if none has a cost. */
static enum mdapl_shm_way best(const struct mdapl_shm_judged *k)
{
    int way = -1;

    for (int i = 0; i < MDAPL_SHM_WAYS; i++)
        if (!k->forbidden[i] && k->cost[i] > 0 && (way < 0 || k->cost[i] < k->cost[way]))
            way = i;
    if (way < 0)
        way = k->forbidden[k->way] ? MDAPL_SHM_TWICE : k->way;
    return (enum mdapl_shm_way)way;
}

/* Does a body cost less that way than this percentage of the way in use? */
static bool better(const struct mdapl_shm_judged *k, enum mdapl_shm_way way, unsigned percent)
{
    return k->cost[way] > 0
           && (k->cost[k->way] == 0
               || (uint64_t)k->cost[way] * 100 < (uint64_t)k->cost[k->way] * percent);
}

/* -- trials ----------------------------------------------------------------------------------- */

/* Trials take about 1 in THRIFT of the time, by what the ways cost: their bodies were the more of
 * it the more each took longer than in the best way. */
static uint32_t interval(const struct mdapl_shm_judged *k)
{
    uint64_t all = 0, least = k->cost[k->way];
    unsigned others = 0;

    for (int i = 0; i < MDAPL_SHM_WAYS; i++)
        if (!k->forbidden[i] && k->cost[i] > least) {
            all += k->cost[i] - least;
            others++;
        }
    if (least == 0 || others == 0)
        return k->gap;
    return k->gap + (uint32_t)mdapl_min(all * k->tried * THRIFT / others / least, THRIFT_MAX);
}

/* All ways have been tried. Returns whether the decision is new. */
static bool decide(struct mdapl_shm_judged *k)
{
    enum mdapl_shm_way way = best(k);
    bool first = !k->decided, other = way != k->way && (first || better(k, way, CLEARLY));

    if (other)
        k->way = (uint8_t)way;
    k->gap = other ? FIRST_GAP : (uint32_t)mdapl_min(k->gap * 2u, LAST_GAP);
    k->trying = MDAPL_SHM_WAYS;
    k->decided = first ? k->cost[k->way] > 0 : true;
    k->left = interval(k);
    k->tried = 0;
    return k->decided && (first || other);
}

/* Two cores take half the time of one, or less as the sender has its parts in its own cache: can
 * that win? */
static bool can_win(const struct mdapl_shm_judged *k, int way)
{
    return way != MDAPL_SHM_BOTH
           || (uint64_t)k->cost[MDAPL_SHM_ONCE] * 100
                  < (uint64_t)k->cost[best(k)] * TOGETHER * CLEARLY;
}

static void try_way(struct mdapl_shm_judged *k, int way)
{
    k->trying = (uint8_t)way;
    k->samples = SAMPLES;
    k->bodies = BODIES;
}

/* The next way to be tried, from `from` on; the way in use only while nothing is decided. What the
 * others cost in former trials is forgotten: it may be that nothing costs so little now. */
static bool try_from(struct mdapl_shm_judged *k, int from)
{
    for (int i = from; i < MDAPL_SHM_WAYS; i++) {
        if (k->forbidden[i] || (k->decided && i == k->way))
            continue;
        k->cost[i] = 0;
        if (can_win(k, i)) {
            try_way(k, i);
            return true;
        }
    }
    return false;
}

/* Before another way replaces the one in use, that is tried, too: its cost is one of the time
 * before the trials, in which all ways may have been slow. Returns whether the decision is new. */
static bool next_trial(struct mdapl_shm_judged *k)
{
    bool confirms = k->decided && k->trying == k->way;

    if (!confirms && try_from(k, k->trying + 1))
        return false;
    if (confirms || !k->decided || !better(k, best(k), CLEARLY))
        return decide(k);
    try_way(k, k->way);
    return false;
}

enum mdapl_shm_way mdapl_shm_judge_choose(struct mdapl_shm_judge *j, unsigned c)
{
    struct mdapl_shm_judged *k = &j->c[c];

    if (k->trying == MDAPL_SHM_WAYS) {
        if (k->left > 0)
            k->left--;
        else if (!try_from(k, 0))
            decide(k);
    } else if (k->forbidden[k->trying] || k->bodies == 0) {
        next_trial(k);
    }
    if (k->trying == MDAPL_SHM_WAYS)
        return (enum mdapl_shm_way)k->way;
    k->bodies--;
    k->tried++;
    return (enum mdapl_shm_way)k->trying;
}

void mdapl_shm_judge_pass(struct mdapl_shm_judge *j, unsigned c)
{
    j->c[c].left -= j->c[c].left > 0;
}

static bool hopeless(const struct mdapl_shm_judged *k)
{
    return (uint64_t)k->cost[best(k)] * HOPELESS < k->cost[k->trying];
}

bool mdapl_shm_judge_sample(struct mdapl_shm_judge *j, unsigned c, enum mdapl_shm_way way,
                            size_t bytes, uint64_t ns)
{
    struct mdapl_shm_judged *k = &j->c[c];
    uint32_t cost = cost_of(bytes, ns);

    /* A trial asks what the way costs now. */
    k->cost[way] = way == k->trying && k->samples == SAMPLES
                       ? cost : merge(k->cost[way], cost, RISE);
    if (k->trying == MDAPL_SHM_WAYS) {
        if (way == k->way && better(k, best(k), SOON))
            k->left = (uint32_t)mdapl_min(k->left, FIRST_GAP);
        return false;
    }
    if (way != k->trying)
        return false;
    k->samples--;
    return (k->samples == 0 || (k->samples < SAMPLES - 1 && hopeless(k))) && next_trial(k);
}

static bool all_known(const struct mdapl_shm_judged *k)
{
    for (int i = 0; i < MDAPL_SHM_WAYS; i++)
        if (!k->forbidden[i] && k->cost[i] == 0)
            return false;
    return true;
}

bool mdapl_shm_judge_note(struct mdapl_shm_judge *j, unsigned c, enum mdapl_shm_way way,
                          size_t bytes, uint64_t ns)
{
    struct mdapl_shm_judged *k = &j->c[c];
    enum mdapl_shm_way now;

    k->cost[way] = merge(k->cost[way], cost_of(bytes, ns), RISE_NOTED);
    now = best(k);
    if (!all_known(k) || (k->decided && (now == k->way || !better(k, now, CLEARLY))))
        return false;
    k->way = (uint8_t)now;
    k->decided = true;
    return true;
}

void mdapl_shm_judge_forbid(struct mdapl_shm_judge *j, unsigned c, enum mdapl_shm_way way)
{
    struct mdapl_shm_judged *k = &j->c[c];

    k->forbidden[way] = true;
    k->cost[way] = 0;
    if (k->way == way) {
        k->way = MDAPL_SHM_TWICE;
        k->decided = false;
    }
}

void mdapl_shm_judge_forbid_all(struct mdapl_shm_judge *j, enum mdapl_shm_way way)
{
    for (unsigned c = 0; c < MDAPL_SHM_CLASSES; c++)
        mdapl_shm_judge_forbid(j, c, way);
}
