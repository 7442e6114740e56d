/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_STORE_H
#define MDAPL_SHM_STORE_H
/*
 * How this process stores bytes of bodies into shared memory for a peer: so that their lines stay
 * in its caches, or by non-temporal stores, which go to memory. Where both ends share a cache the
 * latter make the reader wait for memory. Where they do not, the lines are in the reader's cache,
 * which read what was there before, and each ordinary store waits for one.
 *
 * Which one is right depends on where the two processes run, and a scheduler may move them. The
 * writer finds out by the time of its own copies, now and then: where the lines are far away,
 * ordinary stores take several times as long, and where they are near about as long. What the
 * reader loses is not measured: it is taken to be the time of reading from memory.
 *
 * The caller gives the times, so a test has virtual ones.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MDAPL_SHM_STORE_CLASSES = 5, /* of lengths: below 4 KiB, 8 KiB, and so on; 32 KiB and more */
};

enum mdapl_shm_store_by {
    MDAPL_SHM_STORE_CACHED,
    MDAPL_SHM_STORE_STREAM,      /* non-temporal */
    MDAPL_SHM_STORE_WAYS
};

/* Copies of one class of lengths to one peer. */
struct mdapl_shm_stored {
    uint32_t cost[MDAPL_SHM_STORE_WAYS]; /* the least of this trial, ns for 1 MiB; 0: none */
    uint16_t left, gap;          /* copies until the next trial; between the last two */
    uint8_t samples;             /* of this trial */
    uint8_t by;                  /* in use */
};

struct mdapl_shm_stores {
    struct mdapl_shm_stored c[MDAPL_SHM_STORE_CLASSES];
};

void mdapl_shm_stores_init(struct mdapl_shm_stores *stores);
/* The class of a length in bytes, which is at least MDAPL_BYTES_LONG. */
struct mdapl_shm_stored *mdapl_shm_store_class(struct mdapl_shm_stores *stores, size_t len);
/* How the next copy of this class is made. *trial: it is measured. */
enum mdapl_shm_store_by mdapl_shm_store_next(struct mdapl_shm_stored *k, bool *trial);
/* A copy of a trial, of len bytes, took ns. Returns whether this has changed what is in use. */
bool mdapl_shm_store_sample(struct mdapl_shm_stored *k, enum mdapl_shm_store_by by, size_t len,
                            uint64_t ns);

#endif
