/* SPDX-License-Identifier: MIT */
#include "contest.h"

#include "min.h"

enum {
    MIB = 1 << 20,
    WINDOWS = 4,                 /* of a trial: the first and the third of the way in use */
    BODIES = 24, BYTES = 8 * MIB,    /* that a window has at least, if it ends with a round */
    NO_ROUND = 256,              /* bodies after which a window ends that no round ends */
    SETTLED = 64,                /* bodies before a window that do not count */
    /* Where no round has ended for NO_ROUND bodies, fewer with so many bytes are enough: */
    NO_ROUND_BYTES = 64 * MIB,   /* ... BODIES of a window, */
    SETTLED_BYTES = 32 * MIB,    /* ... and any before it */
    SEEN_MAX = 1024,             /* bodies after which a window, and the trial, is given up */
    HOPELESS = 2,                /* times as long as the other way a window lasts, at most, if it
                                    ends with a round */
    FIRST = 32,                  /* bodies before the first trial */
    FIRST_GAP = 512,             /* bodies between trials, at first and at most, */
    LAST_GAP = 8192,
    THRIFT = 16,                 /* ... and the first one divided by this for each body's time that
                                    the last trial has cost */
    LAST_LEFT = 1 << 17,
    WATCH = 1024,                /* bodies between windows that are measured between trials, */
    WATCH_BYTES = 16 * MIB,      /* ... with so many bytes: of the time of short ones a look at the
                                    clock is a larger part */
    SLOW = 4,                    /* such windows, one after the other, that cost clearly more than
                                    the other way did: then a trial begins */
    CLEARLY = 95,                /* percent of a cost that is clearly less */
};

void mdapl_shm_contest_init(struct mdapl_shm_contest *k, unsigned before)
{
    *k = (struct mdapl_shm_contest){ .way = MDAPL_SHM_CONTEST_NONE, .before = before,
                                     .now = before, .left = FIRST, .gap = FIRST_GAP,
                                     .window = WINDOWS, .unended = NO_ROUND };
}

void mdapl_shm_contest_take(struct mdapl_shm_contest *k, unsigned way)
{
    if (k->way != MDAPL_SHM_CONTEST_NONE || way >= MDAPL_SHM_CONTEST_NONE)
        return;
    k->way = k->now = way;
    k->left = FIRST_GAP;
    k->window = WINDOWS;
}

static unsigned in_use(const struct mdapl_shm_contest *k)
{
    return k->way == MDAPL_SHM_CONTEST_NONE ? k->before : k->way;
}

/* begun: its bodies count from now on. */
static void begin_window(struct mdapl_shm_contest *k, unsigned window, bool begun)
{
    unsigned first = in_use(k) == 1;     /* way 0, if none is in use */

    k->window = window;
    k->now = window % 2 == 0 ? first : !first;
    k->begun = begun;
    k->seen = k->counted = 0;
    k->bytes = k->ns = 0;
}

static void begin_trial(struct mdapl_shm_contest *k)
{
    for (int i = 0; i < MDAPL_SHM_CONTEST_WAYS; i++)
        k->least[i] = 0;
    begin_window(k, 0, false);
}

static void watch_later(struct mdapl_shm_contest *k)
{
    begin_window(k, WINDOWS, false);
    k->unwatched = (uint32_t)mdapl_max((size_t)WATCH, k->size > 0 ? WATCH_BYTES / k->size : 0);
}

/* Ends a trial; spent: it has cost the time of so many bodies. */
static void end_trial(struct mdapl_shm_contest *k, uint64_t spent)
{
    watch_later(k);
    k->slow = 0;
    k->now = in_use(k);
    k->left = (uint32_t)mdapl_min(k->gap + spent * k->gap / THRIFT, LAST_LEFT);
}

static bool clearly_less(uint32_t cost, uint32_t other)
{
    return (uint64_t)cost * 100 < (uint64_t)other * CLEARLY;
}

/* The trial is over. Returns whether the decision is new: not before a second trial at once says
 * the same, as others may have used the cores in the first one. */
static bool decide(struct mdapl_shm_contest *k)
{
    unsigned way = k->least[1] < k->least[0];
    uint64_t fast = k->least[way], slow = k->least[!way];
    bool first = k->way == MDAPL_SHM_CONTEST_NONE;
    bool wins = !first && way != k->way && clearly_less(k->least[way], k->least[k->way]);
    bool new = first || (wins && k->doubted);

    k->doubted = wins && !new;
    if (new)
        k->way = way;
    k->gap = new || k->doubted ? FIRST_GAP : (uint32_t)mdapl_min(k->gap * 2, LAST_GAP);
    end_trial(k, (slow - fast) * k->seen * (WINDOWS / 2) / fast);
    if (k->doubted)
        begin_trial(k);
    return new;
}

/* What the window's bodies cost, ns for 1 MiB. */
static uint32_t cost_of(const struct mdapl_shm_contest *k)
{
    double cost = (double)k->ns * MIB / (double)k->bytes;

    return cost < 1 ? 1 : cost > UINT32_MAX ? UINT32_MAX : (uint32_t)cost;
}

/* Ends a window of a trial, and the trial with the last one. The next one goes another way, which
 * the other end notices as it sends: some of its bodies of the next round go the old way still.
 * Returns whether the decision is new. */
static bool end_window(struct mdapl_shm_contest *k)
{
    uint32_t cost = cost_of(k), *least = &k->least[k->now];

    *least = *least > 0 && *least < cost ? *least : cost;
    if (k->window + 1 == WINDOWS)
        return decide(k);
    begin_window(k, k->window + 1, false);
    return false;
}

/* Ends a window between trials: has the way in use become slower than the other one was? */
static void watch(struct mdapl_shm_contest *k, bool round)
{
    k->slow = clearly_less(k->least[!k->way], cost_of(k)) ? k->slow + 1 : 0;
    if (k->slow == 0)
        watch_later(k);
    else if (k->slow < SLOW)
        begin_window(k, WINDOWS, round);
    else
        begin_trial(k);
}

static bool over(struct mdapl_shm_contest *k, bool round)
{
    if (k->window < WINDOWS)
        return end_window(k);
    watch(k, round);
    return false;
}

static void count_from_here(struct mdapl_shm_contest *k)
{
    k->begun = true;
    k->counted = 0;
    k->bytes = k->ns = 0;
}

static bool has_enough(const struct mdapl_shm_contest *k)
{
    uint64_t best = k->least[!k->now];

    return (k->counted >= BODIES && k->bytes >= BYTES)
           || (best > 0 && k->ns > best * HOPELESS * (BYTES / MIB));
}

/* Where rounds end, windows wait for that. */
static bool has_enough_of_no_round(const struct mdapl_shm_contest *k)
{
    return k->counted >= NO_ROUND
           || (k->unended >= NO_ROUND && k->counted >= BODIES && k->bytes >= NO_ROUND_BYTES);
}

/* Have the bodies of other ways that were in flight arrived? */
static bool has_settled(const struct mdapl_shm_contest *k, size_t len)
{
    return k->counted >= SETTLED
           || (k->unended >= NO_ROUND && k->counted * (uint64_t)len >= SETTLED_BYTES);
}

bool mdapl_shm_contest_measures(const struct mdapl_shm_contest *k)
{
    return k->window < WINDOWS || (k->unwatched == 0 && k->way != MDAPL_SHM_CONTEST_NONE);
}

/* A body between trials. */
static void pass(struct mdapl_shm_contest *k)
{
    k->unwatched -= k->unwatched > 0;
    if (k->left > 0)
        k->left--;
    else
        begin_trial(k);
}

/* Bodies do not go the window's way. */
static void give_up(struct mdapl_shm_contest *k)
{
    if (k->window < WINDOWS)
        end_trial(k, SEEN_MAX);
    else
        watch_later(k);
}

void mdapl_shm_contest_fresh(struct mdapl_shm_contest *k)
{
    if (mdapl_shm_contest_measures(k))
        begin_window(k, k->window, false);
}

bool mdapl_shm_contest_body(struct mdapl_shm_contest *k, unsigned way, size_t bytes, uint64_t ns)
{
    k->unended += k->unended < NO_ROUND;
    k->size = bytes;
    if (k->window == WINDOWS)
        pass(k);
    if (!mdapl_shm_contest_measures(k))
        return false;
    k->counted += way == k->now;
    k->bytes += bytes;
    k->ns += ns;
    if (++k->seen == SEEN_MAX)
        give_up(k);
    else if (k->begun && has_enough_of_no_round(k))
        return over(k, false);
    else if (!k->begun && has_settled(k, bytes))
        count_from_here(k);
    return false;
}

bool mdapl_shm_contest_round(struct mdapl_shm_contest *k)
{
    k->unended = 0;
    if (k->begun && has_enough(k))
        return over(k, true);
    if (!k->begun && k->counted > 0)
        count_from_here(k);
    return false;
}
