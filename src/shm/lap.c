/* SPDX-License-Identifier: MIT */
/*
 * How many bytes of bodies go into the data of a peer's ring before they are at its first byte
 * again (ring.h). After a long lap the lines have left the two cores' caches, after a short one
 * they are still there. Which is the faster depends on the processor, and on what the program keeps
 * in the caches: a writer compares both for each peer (contest.h), by how many bytes it stores in a
 * time. So it is the pace of the slower end that counts, as the other one waits for it.
 */
#include "peer.h"

#include "channel.h"
#include "clock.h"
#include "contest.h"
#include "log.h"

#include <stdlib.h>

enum {
    UNIT = 131072,               /* bytes that make a body of the contest, whose windows have to be
                                    so long that the caches are as after many laps, */
    REST = 8,                    /* ... and as many times that between its trials */
    PAUSE_MS = 1,                /* between two bodies, which is the program's time, not theirs */
};

struct mdapl_shm_laps {
    struct mdapl_shm_contest contest;
    uint64_t at;                 /* ns, when the last one was stored, if the contest measures */
    uint64_t bytes, ns;          /* of the next body of the contest; ns only if it measures */
};

_Static_assert((int)MDAPL_LAPS == (int)MDAPL_SHM_CONTEST_WAYS, "two laps are compared");

/* The bodies that follow go as the contest says. */
static void go_on(struct mdapl_shm_peer *peer)
{
    unsigned now = peer->laps->contest.now;

    peer->tx.lap = now == MDAPL_SHM_CONTEST_NONE ? MDAPL_LAP_LONG : (uint8_t)now;
}

static void begin(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_contest *k = &peer->laps->contest;

    mdapl_shm_contest_init(k, MDAPL_SHM_CONTEST_NONE);
    mdapl_shm_contest_take(k, mdapl_shm_node_lap(peer->s));
    go_on(peer);
}

/* NULL: out of memory, or the ring has no room for different laps. */
static struct mdapl_shm_laps *laps_of(struct mdapl_shm_peer *peer)
{
    if (!peer->laps && peer->tx.room > peer->s->spread.lap[MDAPL_LAP_SHORT]) {
        peer->laps = calloc(1, sizeof(*peer->laps));
        if (peer->laps)
            begin(peer);
    }
    return peer->laps;
}

/* Bytes that make the next body of the contest. */
static uint64_t unit(const struct mdapl_shm_contest *k)
{
    return k->way == MDAPL_SHM_CONTEST_NONE || mdapl_shm_contest_measures(k) ? UNIT : REST * UNIT;
}

static void log_decision(const struct mdapl_shm_peer *peer, const struct mdapl_shm_contest *k)
{
    mdapl_log(mdapl_ctx_log(peer->s->ctx), MDAPL_INFO,
              "bodies for rank %d in its ring: now laps of %zu KiB, %.1f GB/s (the others %.1f)",
              peer->base.rank, (size_t)peer->s->spread.lap[k->way] >> 10,
              (double)(1 << 20) / k->least[k->way], (double)(1 << 20) / k->least[!k->way]);
}

void mdapl_shm_lap_stored(struct mdapl_shm_peer *peer, size_t len)
{
    struct mdapl_shm_laps *k = laps_of(peer);
    uint64_t now;

    if (!k)
        return;
    if (mdapl_shm_contest_measures(&k->contest)) {
        now = mdapl_ctx_now(peer->s->ctx);
        if (now - k->at < MDAPL_MS(PAUSE_MS))
            k->ns += now - k->at;
        k->at = now;
    }
    k->bytes += len;
    if (k->bytes < unit(&k->contest))
        return;
    if (mdapl_shm_contest_body(&k->contest, peer->tx.lap, k->bytes, k->ns)
        && mdapl_shm_node_decide_lap(peer->s, k->contest.way))
        log_decision(peer, &k->contest);
    k->bytes = k->ns = 0;
    go_on(peer);
}
