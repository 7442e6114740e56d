/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_PINNER_H
#define MDAPL_TEST_PINNER_H
/*
 * The memory of an adapter that pins: dat_lmr_create() and dat_lmr_free() on pages that the kernel
 * holds for an io_uring, as it holds them for an RDMA adapter. Transfers through a
 * registration use these pages, also after the addresses have been mapped again. So a registration
 * that outlives its memory shows wrong data.
 */
#include "dat.h"

#include <stdbool.h>
#include <stddef.h>

/* Sets up the io_uring. False: this kernel permits none. */
bool pinner_open(void);
/* Returns how many registrations had not been freed. */
int pinner_close(void);

/* From now on no more than so many bytes are pinned at once. */
void pinner_limit(size_t bytes);
/* The registrations there are. */
int pinner_count(void);

DAT_RETURN pinner_lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region,
                             DAT_VLEN len, DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS priv,
                             DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr_p, DAT_LMR_CONTEXT *local,
                             DAT_RMR_CONTEXT *key, DAT_VLEN *got_len, DAT_VADDR *got_addr);
DAT_RETURN pinner_lmr_free(DAT_LMR_HANDLE lmr);

/* What the adapter reads at addr, or writes there; at most PINNER_MAX bytes. */
enum { PINNER_MAX = 4 << 20 };
const void *pinner_read(DAT_LMR_CONTEXT key, const void *addr, size_t len);
void pinner_write(DAT_LMR_CONTEXT key, void *addr, const void *from, size_t len);
/* Was it registered for that? */
bool pinner_may(DAT_LMR_CONTEXT key, DAT_MEM_PRIV_FLAGS priv);

#endif
