/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_MEM_H
#define SOFTDAT_MEM_H
/* Protection zones and registered memory (mem.c). */
#include "handle.h"

struct softdat_dto;

/* A key is (generation << INDEX_BITS) | index, so the key of a freed region stays invalid when its
 * slot is reused. */
enum { SOFTDAT_INDEX_BITS = 19, SOFTDAT_INDEX_MAX = 1 << SOFTDAT_INDEX_BITS };

struct softdat_pz {
    struct softdat_handle h;
    int users;
};

/* Memory behind a key: of an LMR, or the part of one that an RMR is bound to. */
struct softdat_region {
    uint64_t va, len;            /* DAT addresses of the region: va to va + len - 1 */
    uint8_t *at;                 /* local address of va */
    struct softdat_pz *pz;
    DAT_MEM_PRIV_FLAGS priv;
    uint32_t key;                /* lmr_context and rmr_context; 0: none */
};

struct softdat_lmr {
    struct softdat_handle h;
    struct softdat_region region;
    DAT_VA_TYPE va_type;
    int users;                   /* RMRs bound to it */
};

struct softdat_rmr {
    struct softdat_handle h;
    struct softdat_pz *pz;
    struct softdat_lmr *lmr;     /* NULL: not bound */
    struct softdat_region region;
};

struct softdat_mem_slot {
    struct softdat_region *region;   /* NULL: free, or a bind is pending */
    uint32_t gen;                /* generation of the next key */
    uint32_t next_free;          /* index of the next free slot plus 1; 0: none */
};

/* A posted bind: the region becomes valid when the bind is applied. */
struct softdat_bind {
    struct softdat_rmr *rmr;
    struct softdat_lmr *lmr;     /* NULL: an unbind */
    struct softdat_region region;
};

/* mem.c */
/* Slow path of softdat_segs_registered() (quick.h): looks up each segment's key. */
bool softdat_segs_recheck(struct softdat_ia *ia, struct softdat_dto *d);
/* Applies a bind when its turn among the EP's requests comes: the RMR's old key becomes invalid,
 * the new one valid. */
void softdat_bind_apply(struct softdat_bind *bind);
/* Drops a bind that is flushed: its key never becomes valid. */
void softdat_bind_cancel(struct softdat_bind *bind);

#endif
