/* SPDX-License-Identifier: MIT */
#include "duplex.h"

#include "min.h"

enum {
    MIB = 1 << 20,
    WINDOWS = 4,                 /* of a trial: the first and the third of the way in use */
    BODIES = 24, BYTES = 8 * MIB,    /* that a window has at least, if it ends with a round */
    NO_ROUND = 256,              /* bodies after which a window ends that no round ends, */
    NO_ROUND_BYTES = 64 * MIB,   /* ... or BODIES of them that have so many bytes */
    SETTLED = 64,                /* bodies before it that do not count, */
    SETTLED_BYTES = 32 * MIB,    /* ... or fewer, with so many bytes */
    SEEN_MAX = 1024,             /* bodies after which a window, and the trial, is given up */
    HOPELESS = 2,                /* times as long as the other way a window lasts, at most, if it
                                    ends with a round */
    FIRST = 32,                  /* bodies before the first trial */
    FIRST_GAP = 512,             /* bodies between trials, at first and at most, */
    LAST_GAP = 8192,
    THRIFT = 16,                 /* ... and the first one divided by this for each body's time that
                                    the last trial has cost */
    LAST_LEFT = 1 << 17,
    WATCH = 1024,                /* bodies between windows that are measured between trials */
    SLOW = 4,                    /* such windows, one after the other, that cost clearly more than
                                    the other way did: then a trial begins */
    CLEARLY = 95,                /* percent of a cost that is clearly less */
};

void mdapl_shm_duplex_init(struct mdapl_shm_duplex *d)
{
    *d = (struct mdapl_shm_duplex){ .way = MDAPL_SHM_WAYS, .now = MDAPL_SHM_WAYS, .left = FIRST,
                                    .gap = FIRST_GAP, .window = WINDOWS };
}

void mdapl_shm_duplex_take(struct mdapl_shm_duplex *d, enum mdapl_shm_way way)
{
    if (d->way != MDAPL_SHM_WAYS || way > MDAPL_SHM_ONCE)
        return;
    d->way = d->now = way;
    d->left = FIRST_GAP;
    d->window = WINDOWS;
}

static enum mdapl_shm_way in_use(const struct mdapl_shm_duplex *d)
{
    return d->way == MDAPL_SHM_WAYS ? MDAPL_SHM_TWICE : d->way;
}

static enum mdapl_shm_way opposite(enum mdapl_shm_way way)
{
    return way == MDAPL_SHM_ONCE ? MDAPL_SHM_TWICE : MDAPL_SHM_ONCE;
}

/* begun: its bodies count from now on. */
static void begin_window(struct mdapl_shm_duplex *d, unsigned window, bool begun)
{
    d->window = window;
    d->now = window % 2 == 0 ? in_use(d) : opposite(in_use(d));
    d->begun = begun;
    d->seen = d->counted = 0;
    d->bytes = d->ns = 0;
}

static void begin_trial(struct mdapl_shm_duplex *d)
{
    for (int i = 0; i < MDAPL_SHM_DUPLEX_WAYS; i++)
        d->least[i] = 0;
    begin_window(d, 0, false);
}

static void watch_later(struct mdapl_shm_duplex *d)
{
    begin_window(d, WINDOWS, false);
    d->unwatched = WATCH;
}

/* Ends a trial; spent: it has cost the time of so many bodies. */
static void end_trial(struct mdapl_shm_duplex *d, uint64_t spent)
{
    watch_later(d);
    d->slow = 0;
    d->now = d->way;
    d->left = (uint32_t)mdapl_min(d->gap + spent * d->gap / THRIFT, LAST_LEFT);
}

static bool clearly_less(uint32_t cost, uint32_t other)
{
    return (uint64_t)cost * 100 < (uint64_t)other * CLEARLY;
}

/* The trial is over. Returns whether the decision is new: not before a second trial at once says
 * the same, as others may have used the cores in the first one. */
static bool decide(struct mdapl_shm_duplex *d)
{
    uint32_t once = d->least[MDAPL_SHM_ONCE], twice = d->least[MDAPL_SHM_TWICE];
    uint64_t fast = mdapl_min(once, twice), slow = mdapl_max(once, twice);
    enum mdapl_shm_way way = once < twice ? MDAPL_SHM_ONCE : MDAPL_SHM_TWICE;
    bool first = d->way == MDAPL_SHM_WAYS;
    bool wins = !first && way != d->way
                && clearly_less(d->least[way], d->least[d->way]);
    bool new = first || (wins && d->doubted);

    d->doubted = wins && !new;
    if (new)
        d->way = way;
    d->gap = new || d->doubted ? FIRST_GAP : (uint32_t)mdapl_min(d->gap * 2, LAST_GAP);
    end_trial(d, (slow - fast) * d->seen * (WINDOWS / 2) / fast);
    if (d->doubted)
        begin_trial(d);
    return new;
}

/* What the window's bodies cost, ns for 1 MiB. */
static uint32_t cost_of(const struct mdapl_shm_duplex *d)
{
    double cost = (double)d->ns * MIB / (double)d->bytes;

    return cost < 1 ? 1 : cost > UINT32_MAX ? UINT32_MAX : (uint32_t)cost;
}

/* Ends a window of a trial, and the trial with the last one. Returns whether the decision is
 * new. */
static bool end_window(struct mdapl_shm_duplex *d, bool round)
{
    uint32_t cost = cost_of(d), *least = &d->least[d->now];

    *least = *least > 0 && *least < cost ? *least : cost;
    if (d->window + 1 == WINDOWS)
        return decide(d);
    begin_window(d, d->window + 1, round);
    return false;
}

/* Ends a window between trials: has the way in use become slower than the other one was? */
static void watch(struct mdapl_shm_duplex *d, bool round)
{
    d->slow = clearly_less(d->least[opposite(d->way)], cost_of(d)) ? d->slow + 1 : 0;
    if (d->slow == 0)
        watch_later(d);
    else if (d->slow < SLOW)
        begin_window(d, WINDOWS, round);
    else
        begin_trial(d);
}

static bool over(struct mdapl_shm_duplex *d, bool round)
{
    if (d->window < WINDOWS)
        return end_window(d, round);
    watch(d, round);
    return false;
}

static void count_from_here(struct mdapl_shm_duplex *d)
{
    d->begun = true;
    d->counted = 0;
    d->bytes = d->ns = 0;
}

static bool has_enough(const struct mdapl_shm_duplex *d)
{
    uint64_t best = d->least[opposite(d->now)];

    return (d->counted >= BODIES && d->bytes >= BYTES)
           || (best > 0 && d->ns > best * HOPELESS * (BYTES / MIB));
}

static bool has_enough_of_no_round(const struct mdapl_shm_duplex *d)
{
    return d->counted >= NO_ROUND || (d->counted >= BODIES && d->bytes >= NO_ROUND_BYTES);
}

/* Have the bodies of other ways that were in flight arrived? */
static bool has_settled(const struct mdapl_shm_duplex *d, size_t len)
{
    return d->counted >= SETTLED || d->counted * (uint64_t)len >= SETTLED_BYTES;
}

bool mdapl_shm_duplex_measures(const struct mdapl_shm_duplex *d)
{
    return d->window < WINDOWS || (d->unwatched == 0 && d->way != MDAPL_SHM_WAYS);
}

/* A body between trials. */
static void pass(struct mdapl_shm_duplex *d)
{
    d->unwatched -= d->unwatched > 0;
    if (d->left > 0)
        d->left--;
    else
        begin_trial(d);
}

/* Bodies do not go the window's way. */
static void give_up(struct mdapl_shm_duplex *d)
{
    if (d->window < WINDOWS)
        end_trial(d, SEEN_MAX);
    else
        watch_later(d);
}

bool mdapl_shm_duplex_body(struct mdapl_shm_duplex *d, enum mdapl_shm_way way, size_t bytes,
                           uint64_t ns)
{
    if (d->window == WINDOWS)
        pass(d);
    if (!mdapl_shm_duplex_measures(d))
        return false;
    d->counted += way == d->now;
    d->bytes += bytes;
    d->ns += ns;
    if (++d->seen == SEEN_MAX)
        give_up(d);
    else if (d->begun && has_enough_of_no_round(d))
        return over(d, false);
    else if (!d->begun && has_settled(d, bytes))
        count_from_here(d);
    return false;
}

bool mdapl_shm_duplex_round(struct mdapl_shm_duplex *d)
{
    if (d->begun && has_enough(d))
        return over(d, true);
    if (!d->begun && d->counted > 0)
        count_from_here(d);
    return false;
}
