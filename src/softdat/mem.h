/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_MEM_H
#define SOFTDAT_MEM_H
/* Protection zones and registered memory (mem.c, rmr.c). */
#include "handle.h"

struct softdat_dto;

/* A key is (generation << INDEX_BITS) | index: a freed region's key is never another's. */
enum { SOFTDAT_INDEX_BITS = 19, SOFTDAT_INDEX_MAX = 1 << SOFTDAT_INDEX_BITS };

struct softdat_pz {
    struct softdat_handle h;
    int users;
};

/* Memory that a key opens: of an LMR, or the part of one that an RMR is bound to. */
struct softdat_region {
    uint64_t va, len;            /* addresses that the key takes: from va on */
    uint8_t *at;                 /* where va is */
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
    struct softdat_region *region;   /* NULL while free */
    uint32_t gen;
    uint32_t next_free;          /* index + 1 */
};

/* A bind that has been posted (mem.c): the region is what the new context opens. */
struct softdat_bind {
    struct softdat_rmr *rmr;
    struct softdat_lmr *lmr;     /* NULL: unbind */
    struct softdat_region region;
};

/* mem.c */
/* As softdat_segs_registered (quick.h) when a registration has ended since the last look. */
bool softdat_segs_recheck(struct softdat_ia *ia, struct softdat_dto *d);
/* What a posted bind does in its turn. */
void softdat_bind_apply(struct softdat_bind *bind);
/* It will never have its turn. */
void softdat_bind_cancel(struct softdat_bind *bind);

#endif
