/* SPDX-License-Identifier: MIT */
#include "lmr.h"

#include "stats.h"

#include <errno.h>
#include <sys/mman.h>

static const DAT_MEM_PRIV_FLAGS priv_of[] = {
    [MDAPL_LMR_LOCAL] = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG,
    [MDAPL_LMR_REMOTE_READ] = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG,
    [MDAPL_LMR_REMOTE_WRITE] = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG
                               | DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
};

static bool register_on(struct mdapl_ia *ia, void *addr, size_t len, enum mdapl_lmr_use use,
                        struct mdapl_lmr *lmr)
{
    DAT_REGION_DESCRIPTION region = { .for_va = addr };
    int i = lmr->n;
    DAT_VLEN got_len;
    DAT_VADDR got_addr;

    mdapl_ctx_stats(ia->ctx)->registrations++;
    if (len <= ia->max.lmr
        && ia->dat->dat_lmr_create(ia->handle, DAT_MEM_TYPE_VIRTUAL, region, len, ia->pz,
                                   priv_of[use], DAT_VA_TYPE_VA, &lmr->on[i].handle,
                                   &lmr->on[i].local, &lmr->on[i].key, &got_len, &got_addr)
               == DAT_SUCCESS) {
        lmr->n++;
        return true;
    }
    mdapl_ctx_stats(ia->ctx)->reg_failures++;
    return false;
}

int mdapl_lmr_register(const struct mdapl_rails *rails, void *addr, size_t len,
                       enum mdapl_lmr_use use, struct mdapl_lmr *lmr)
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

bool mdapl_block_make(const struct mdapl_rails *rails, size_t bytes, enum mdapl_lmr_use use,
                      struct mdapl_block *block)
{
    block->bytes = bytes;
    block->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block->data == MAP_FAILED)
        return false;
    if (mdapl_lmr_register(rails, block->data, bytes, use, &block->lmr) == 0)
        return true;
    munmap(block->data, bytes);
    return false;
}

void mdapl_block_free(struct mdapl_block *block)
{
    mdapl_lmr_release(&block->lmr);
    munmap(block->data, block->bytes);
}
