/* SPDX-License-Identifier: MIT */
#include "lmr.h"

#include "stats.h"

#include <errno.h>

static const struct {
    enum mdapl_lmr_use use;
    DAT_MEM_PRIV_FLAGS priv;
} rights[] = {
    { MDAPL_LMR_LOCAL, DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG },
    { MDAPL_LMR_REMOTE_READ, DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG },
    { MDAPL_LMR_REMOTE_WRITE, DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG
                              | DAT_MEM_PRIV_REMOTE_WRITE_FLAG },
};

static DAT_MEM_PRIV_FLAGS priv_of(unsigned use)
{
    unsigned priv = 0;

    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
        if (use & rights[i].use)
            priv |= rights[i].priv;
    return (DAT_MEM_PRIV_FLAGS)priv;
}

static bool register_on(struct mdapl_ia *ia, void *addr, size_t len, unsigned use,
                        struct mdapl_lmr *lmr)
{
    DAT_REGION_DESCRIPTION region = { .for_va = addr };
    int i = lmr->n;
    DAT_VLEN got_len;
    DAT_VADDR got_addr;

    mdapl_ctx_stats(ia->ctx)->registrations++;
    if (len <= ia->max.lmr
        && ia->dat->dat_lmr_create(ia->handle, DAT_MEM_TYPE_VIRTUAL, region, len, ia->pz,
                                   priv_of(use), DAT_VA_TYPE_VA, &lmr->on[i].handle,
                                   &lmr->on[i].local, &lmr->on[i].key, &got_len, &got_addr)
               == DAT_SUCCESS) {
        lmr->n++;
        return true;
    }
    mdapl_ctx_stats(ia->ctx)->reg_failures++;
    return false;
}

int mdapl_lmr_register(const struct mdapl_rails *rails, void *addr, size_t len,
                       unsigned use, struct mdapl_lmr *lmr)
{
    lmr->n = 0;
    lmr->rails = rails;
    for (int i = 0; i < rails->n; i++)
        if (!register_on(rails->ia[i], addr, len, use, lmr)) {
            mdapl_lmr_release(lmr);
            return -ENOMEM;
        }
    return 0;
}

void mdapl_lmr_release(struct mdapl_lmr *lmr)
{
    for (int i = 0; i < lmr->n; i++)
        lmr->rails->ia[i]->dat->dat_lmr_free(lmr->on[i].handle);
    lmr->n = 0;
}
