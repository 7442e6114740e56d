/* SPDX-License-Identifier: MIT */
#include "store.h"

#include "bytes.h"
#include "iov.h"
#include "log.h"
#include "min.h"
#include "peer.h"

#include <stdlib.h>

enum {
    MIB = 1 << 20,
    FIRST_CLASS = 4096,          /* bytes: shorter pieces are of the first class */
    LEAD = 8,                    /* copies before the first trial */
    FIRST_GAP = 256,             /* copies between two, at first and at most: those of trials cost
                                    several times as much where all others are in the pair
                                    buffer */
    LAST_GAP = 4096,
    GROWTH = 4,
    SAMPLES = 6,                 /* of a trial, of both ways in turn */
};

/* The decision of a trial, in percent of what cached copies cost: streaming, with what its reader
 * loses, begins below the first and ends above the second. */
enum {
    BEGIN = 80,
    END = 100,
    READER = 100000,             /* ns for 1 MiB from memory, more than from a shared cache */
};

/* -- trials ----------------------------------------------------------------------------------- */

void mdapl_shm_stores_init(struct mdapl_shm_stores *stores)
{
    for (int c = 0; c < MDAPL_SHM_STORE_CLASSES; c++)
        stores->c[c] = (struct mdapl_shm_stored){ .left = LEAD, .gap = FIRST_GAP / GROWTH };
}

struct mdapl_shm_stored *mdapl_shm_store_class(struct mdapl_shm_stores *stores, size_t len)
{
    int c = 0;

    for (len /= FIRST_CLASS; len > 0 && c < MDAPL_SHM_STORE_CLASSES - 1; len /= 2)
        c++;
    return &stores->c[c];
}

enum mdapl_shm_store_by mdapl_shm_store_next(struct mdapl_shm_stored *k, bool *trial)
{
    *trial = k->left == 0;
    if (*trial)
        return (enum mdapl_shm_store_by)(k->samples % MDAPL_SHM_STORE_WAYS);
    k->left--;
    return (enum mdapl_shm_store_by)k->by;
}

static enum mdapl_shm_store_by decide(const struct mdapl_shm_stored *k)
{
    uint64_t bound = k->by == MDAPL_SHM_STORE_STREAM ? END : BEGIN;

    return ((uint64_t)k->cost[MDAPL_SHM_STORE_STREAM] + READER) * 100
           < k->cost[MDAPL_SHM_STORE_CACHED] * bound
               ? MDAPL_SHM_STORE_STREAM : MDAPL_SHM_STORE_CACHED;
}

bool mdapl_shm_store_sample(struct mdapl_shm_stored *k, enum mdapl_shm_store_by by, size_t len,
                            uint64_t ns)
{
    uint64_t cost = ns * MIB / len + 1;
    enum mdapl_shm_store_by before = (enum mdapl_shm_store_by)k->by;

    if (cost > UINT32_MAX)
        cost = UINT32_MAX;
    /* Disturbances only add time. */
    if (k->cost[by] == 0 || cost < k->cost[by])
        k->cost[by] = (uint32_t)cost;
    if (++k->samples < SAMPLES)
        return false;
    k->by = (uint8_t)decide(k);
    k->gap = k->by != before ? FIRST_GAP : (uint16_t)mdapl_min(k->gap * GROWTH, LAST_GAP);
    *k = (struct mdapl_shm_stored){ .left = k->gap, .gap = k->gap, .by = k->by };
    return k->by != before;
}

/* -- copies ----------------------------------------------------------------------------------- */

static mdapl_bytes_copier *const copier[MDAPL_SHM_STORE_WAYS] = {
    [MDAPL_SHM_STORE_CACHED] = mdapl_bytes_copy_long,
    [MDAPL_SHM_STORE_STREAM] = mdapl_bytes_copy_stream,
};

static void log_change(const struct mdapl_shm_peer *peer, const struct mdapl_shm_stored *k,
                       size_t len)
{
    mdapl_log(mdapl_ctx_log(peer->s->ctx), MDAPL_CONN,
              "bodies for rank %d, pieces of %zu bytes: now %s stores", peer->base.rank, len,
              k->by == MDAPL_SHM_STORE_STREAM ? "non-temporal" : "cached");
}

/* False: out of memory. */
static bool make_stores(struct mdapl_shm_peer *peer)
{
    peer->stores = malloc(sizeof(*peer->stores));
    if (peer->stores)
        mdapl_shm_stores_init(peer->stores);
    return peer->stores != NULL;
}

static void store_long(struct mdapl_shm_peer *peer, struct mdapl_iov *from, void *to, size_t len)
{
    struct mdapl_shm_stored *k = mdapl_shm_store_class(peer->stores, len);
    bool trial;
    enum mdapl_shm_store_by by = mdapl_shm_store_next(k, &trial);
    uint64_t start = trial ? mdapl_ctx_now(peer->s->ctx) : 0;

    mdapl_iov_gather_by(from, to, len, copier[by]);
    if (trial && mdapl_shm_store_sample(k, by, len, mdapl_ctx_now(peer->s->ctx) - start))
        log_change(peer, k, len);
}

void mdapl_shm_store(struct mdapl_shm_peer *peer, struct mdapl_iov *from, void *to, size_t len)
{
    if (len >= MDAPL_BYTES_LONG && (peer->stores || make_stores(peer)))
        store_long(peer, from, to, len);
    else
        mdapl_iov_gather(from, to, len);
}

bool mdapl_shm_store_elsewhere(struct mdapl_shm_peer *peer, size_t len)
{
    struct mdapl_shm_stored *k;

    if (!peer->stores)
        return false;
    k = mdapl_shm_store_class(peer->stores, len);
    if (k->left == 0 || k->by != MDAPL_SHM_STORE_CACHED)
        return false;
    k->left--;
    return true;
}
