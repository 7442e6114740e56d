/* SPDX-License-Identifier: MIT */
/* Bodies read out of the sender's memory by cross-memory attach: whether the kernel permits it,
 * whether it is faster than two copies, and the reads. */
#include "peer.h"

#include "cfg.h"
#include "channel.h"
#include "clock.h"
#include "iov.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void mdapl_shm_cma_init(struct mdapl_shm_chan *s)
{
    s->single_from = mdapl_ctx_cfg(s->ctx)->shm_single_bytes;
}

/* Every process of the user gets this permission, so it is not given before there is a body that
 * the knob lets its receiver read from this process. */
void mdapl_shm_cma_allow(struct mdapl_shm_chan *s, size_t len)
{
    int64_t from = mdapl_ctx_cfg(s->ctx)->shm_single_bytes;

    if (s->reads_allowed || (from >= 0 && len < (uint64_t)from))
        return;
    mdapl_shm_os_reads_allow();
    s->reads_allowed = true;
}

/* -- does it work ----------------------------------------------------------------------------- */

/* The kernel decides for each pair of processes: the test reads a word whose value is known. */
static bool works(struct mdapl_shm_peer *peer)
{
    const struct mdapl_shm_seg_head *far = peer->far.head;
    uint64_t got = 0;
    struct iovec here = { &got, sizeof(got) };
    struct iovec there = { (void *)(uintptr_t)far->word_at, sizeof(got) };

    if (peer->can_read == MDAPL_READ_UNTRIED)
        peer->can_read = mdapl_shm_os_read(far->pid, &here, 1, &there, 1) == (ssize_t)sizeof(got)
                         && got == far->word ? MDAPL_READ_WORKS : MDAPL_READ_FAILS;
    return peer->can_read == MDAPL_READ_WORKS;
}

/* -- does it pay ------------------------------------------------------------------------------ */

enum {
    TRIES = 5,
    LARGE = 262144,
    SMALL = 4096,
    START_NS = 500,              /* time of two copies before the first cell is filled */
    FIRST_CELL = 8192,           /* bytes of the first cell */
    OVERLAP = 125,               /* percent: two copies that overlap, of the time of one */
};

struct trial {
    char *from, *to;
};

static bool copy_by_kernel(const struct trial *t, size_t len)
{
    struct iovec here = { t->to, len }, there = { t->from, len };

    return mdapl_shm_os_read(getpid(), &here, 1, &there, 1) == (ssize_t)len;
}

static bool copy_by_core(const struct trial *t, size_t len)
{
    memcpy(t->to, t->from, len);
    return true;
}

/* The shortest of TRIES copies, in ns, as disturbances only add time. Negative: the copy fails. */
static double best(const struct trial *t, bool (*copy)(const struct trial *, size_t), size_t len)
{
    const struct mdapl_clock clock = mdapl_clock_system();
    double least = -1;

    for (int i = 0; i < TRIES; i++) {
        uint64_t start = mdapl_clock_now(&clock);
        double ns;

        if (!copy(t, len))
            return -1;
        ns = (double)(mdapl_clock_now(&clock) - start);
        if (least < 0 || ns < least)
            least = ns;
    }
    return least;
}

/*
 * Returns from how many bytes on one copy is faster. One copy takes a fixed time and a time for
 * each byte; with two copies both cores work at the same time, so the time is little more than that
 * of one core. Both are measured on this process's memory: bytes in another core's cache slow down
 * both alike.
 */
static int64_t crossover(const struct trial *t)
{
    double small = best(t, copy_by_kernel, SMALL), large = best(t, copy_by_kernel, LARGE);
    double core = best(t, copy_by_core, LARGE) / LARGE * OVERLAP / 100;
    double each = (large - small) / (LARGE - SMALL), fixed = small - each * SMALL;
    double ahead = START_NS + FIRST_CELL * core;

    if (small < 0 || large < 0 || each >= core)
        return INT64_MAX;
    return fixed <= ahead ? 0 : (int64_t)((fixed - ahead) / (core - each));
}

static int64_t measure(const struct mdapl_shm_chan *s)
{
    struct mdapl_log *log = mdapl_ctx_log(s->ctx);
    struct trial t = { malloc(LARGE), malloc(LARGE) };
    int64_t from = INT64_MAX;

    if (t.from && t.to) {
        memset(t.from, 1, LARGE);
        memset(t.to, 2, LARGE);
        from = crossover(&t);
    }
    free(t.from);
    free(t.to);
    if (from == INT64_MAX)
        mdapl_log(log, MDAPL_INFO, "two copies are faster than one here");
    else
        mdapl_log(log, MDAPL_INFO, "one copy is faster than two here from %lld bytes on",
                  (long long)from);
    return from;
}

bool mdapl_shm_cma_pays_off(struct mdapl_shm_peer *peer, size_t len)
{
    struct mdapl_shm_chan *s = peer->s;

    if (s->single_from < 0)
        s->single_from = measure(s);
    return (int64_t)len >= s->single_from && works(peer);
}

/* -- doing it --------------------------------------------------------------------------------- */

enum { PIECES = 16, CALL_BYTES = 1 << 30 };

/* Lists the next pieces of a cursor, at most so many bytes in all. Returns how many pieces. */
static int next_pieces(struct mdapl_iov cur, size_t most, struct iovec v[PIECES])
{
    int n = 0;

    while (n < PIECES && (v[n].iov_len = mdapl_iov_piece(&cur, most, &v[n].iov_base)) > 0)
        most -= v[n++].iov_len;
    return n;
}

bool mdapl_shm_cma_read(struct mdapl_shm_peer *peer, struct mdapl_iov *here,
                        struct mdapl_iov *there, size_t len)
{
    struct iovec to[PIECES], from[PIECES];

    while (len > 0) {
        size_t most = len < CALL_BYTES ? len : CALL_BYTES;
        int n_to = next_pieces(*here, most, to), n_from = next_pieces(*there, most, from);
        ssize_t got = mdapl_shm_os_read(peer->pid, to, n_to, from, n_from);

        if (got <= 0) {
            peer->can_read = MDAPL_READ_FAILS;
            return false;
        }
        /* got < most if one of the two lists was shorter, or the kernel stopped. */
        mdapl_iov_skip(here, (size_t)got);
        mdapl_iov_skip(there, (size_t)got);
        len -= (size_t)got;
    }
    return true;
}
