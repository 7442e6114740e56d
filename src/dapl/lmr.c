/* SPDX-License-Identifier: MIT */
#include "lmr.h"

#include "stats.h"

#include <errno.h>

static const DAT_MEM_PRIV_FLAGS priv_of[] = {
    [MDAPL_LMR_LOCAL] = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG,
    [MDAPL_LMR_REMOTE_READ] = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG,
};

int mdapl_lmr_register(struct mdapl_ia *ia, void *addr, size_t len, enum mdapl_lmr_use use,
                       struct mdapl_lmr *lmr)
{
    DAT_REGION_DESCRIPTION region = { .for_va = addr };
    DAT_VLEN got_len;
    DAT_VADDR got_addr;

    mdapl_ctx_stats(ia->ctx)->registrations++;
    if (len <= ia->max.lmr
        && dat_lmr_create(ia->handle, DAT_MEM_TYPE_VIRTUAL, region, len, ia->pz, priv_of[use],
                          DAT_VA_TYPE_VA, &lmr->handle, &lmr->local, &lmr->key, &got_len,
                          &got_addr) == DAT_SUCCESS)
        return 0;
    mdapl_ctx_stats(ia->ctx)->reg_failures++;
    lmr->handle = DAT_HANDLE_NULL;
    return -ENOMEM;
}

void mdapl_lmr_release(struct mdapl_lmr *lmr)
{
    if (lmr->handle)
        dat_lmr_free(lmr->handle);
    lmr->handle = DAT_HANDLE_NULL;
}
