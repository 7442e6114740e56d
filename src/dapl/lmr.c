/* SPDX-License-Identifier: MIT */
#include "rails.h"

#include "channel.h"
#include "stats.h"

#include <errno.h>

static const struct {
    enum mdapl_dapl_lmr_use use;
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

static bool register_on(struct mdapl_dapl_lmr *lmr, int rail)
{
    struct mdapl_dapl_ia *ia = lmr->rails->ia[rail];
    DAT_REGION_DESCRIPTION region = { .for_va = lmr->addr };
    DAT_VLEN got_len;
    DAT_VADDR got_addr;

    if (!mdapl_dapl_rail_usable(ia))
        return false;
    mdapl_ctx_stats(ia->ctx)->registrations++;
    if (lmr->len <= ia->max.lmr
        && ia->dat->dat_lmr_create(ia->handle, DAT_MEM_TYPE_VIRTUAL, region, lmr->len, ia->pz,
                                   priv_of(lmr->use), DAT_VA_TYPE_VA, &lmr->on[rail].handle,
                                   &lmr->on[rail].local, &lmr->on[rail].key, &got_len, &got_addr)
               == DAT_SUCCESS) {
        lmr->on[rail].generation = ia->generation;
        return true;
    }
    mdapl_ctx_stats(ia->ctx)->reg_failures++;
    return false;
}

void mdapl_dapl_lmr_init(struct mdapl_dapl_lmr *lmr, const struct mdapl_dapl_rails *rails,
                         void *addr, size_t len, unsigned use)
{
    *lmr = (struct mdapl_dapl_lmr){ .rails = rails, .addr = addr, .len = len, .use = use };
}

int mdapl_dapl_lmr_need(struct mdapl_dapl_lmr *lmr, unsigned rails)
{
    int rc = 0;

    for (int i = 0; i < lmr->rails->n; i++)
        if (rails & 1u << i && !mdapl_dapl_lmr_has(lmr, i) && !register_on(lmr, i))
            rc = -ENOMEM;
    return rc;
}

void mdapl_dapl_lmr_release(struct mdapl_dapl_lmr *lmr)
{
    for (int i = 0; i < lmr->rails->n; i++) {
        if (mdapl_dapl_lmr_has(lmr, i))
            lmr->rails->ia[i]->dat->dat_lmr_free(lmr->on[i].handle);
        lmr->on[i].generation = 0;
    }
}
