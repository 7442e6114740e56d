/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <stdlib.h>
#include <sys/random.h>

/* A key is (generation << INDEX_BITS) | index: a freed region's key is never another's. */
enum { INDEX_BITS = 18, INDEX_MAX = 1 << INDEX_BITS, GEN_MASK = (1 << (32 - INDEX_BITS)) - 1 };

/* -- protection zones ------------------------------------------------------------------------- */

DAT_RETURN softdat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_p)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_pz *pz;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    pz = calloc(1, sizeof(*pz));
    if (!pz)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    softdat_lock(ia);
    softdat_handle_init(&pz->h, ia, DAT_HANDLE_TYPE_PZ);
    softdat_unlock(ia);
    *pz_p = pz;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_pz_query(DAT_PZ_HANDLE handle, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM *param)
{
    struct softdat_pz *pz = softdat_get(handle, DAT_HANDLE_TYPE_PZ);

    (void)mask;
    if (!pz)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    if (!param)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    param->ia_handle = pz->h.ia;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_pz_free(DAT_PZ_HANDLE handle)
{
    struct softdat_pz *pz = softdat_get(handle, DAT_HANDLE_TYPE_PZ);
    struct softdat_ia *ia;

    if (!pz)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    ia = pz->h.ia;
    softdat_lock(ia);
    if (pz->users > 0) {
        softdat_unlock(ia);
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
    }
    softdat_handle_fini(&pz->h);
    softdat_unlock(ia);
    free(pz);
    return DAT_SUCCESS;
}

/* -- registered memory ------------------------------------------------------------------------ */

static bool grow(struct softdat_ia *ia)
{
    uint32_t n = ia->n_mem ? ia->n_mem * 2 : 256;
    struct softdat_mem_slot *mem;
    uint32_t gen = 1;

    if (n > INDEX_MAX)
        return false;
    mem = realloc(ia->mem, n * sizeof(*mem));
    if (!mem)
        return false;
    ia->mem = mem;
    /* Generations start anywhere, so that keys are not guessed from other processes' keys. */
    if (getrandom(&gen, sizeof(gen), GRND_NONBLOCK) != sizeof(gen))
        gen = 1;
    for (uint32_t i = n; i-- > ia->n_mem;) {
        mem[i] = (struct softdat_mem_slot){ NULL, (gen + i * 7919) % GEN_MASK + 1, ia->free_mem };
        ia->free_mem = i + 1;
    }
    ia->n_mem = n;
    return true;
}

struct softdat_lmr *softdat_lmr_find(struct softdat_ia *ia, uint32_t key)
{
    uint32_t i = key & (INDEX_MAX - 1);
    struct softdat_lmr *lmr = i < ia->n_mem ? ia->mem[i].lmr : NULL;

    return lmr && lmr->key == key ? lmr : NULL;
}

bool softdat_lmr_allows(const struct softdat_lmr *lmr, const struct softdat_pz *pz, uint64_t addr,
                        uint64_t len, DAT_MEM_PRIV_FLAGS priv)
{
    return lmr && lmr->pz == pz && (lmr->priv & priv) == priv && addr >= lmr->addr
           && len <= lmr->len && addr - lmr->addr <= lmr->len - len;
}

static bool enter(struct softdat_ia *ia, struct softdat_lmr *lmr)
{
    struct softdat_mem_slot *s;
    uint32_t i;

    if (!ia->free_mem && !grow(ia))
        return false;
    i = ia->free_mem - 1;
    s = &ia->mem[i];
    ia->free_mem = s->next_free;
    s->lmr = lmr;
    lmr->key = s->gen << INDEX_BITS | i;
    return true;
}

static void leave(struct softdat_ia *ia, struct softdat_lmr *lmr)
{
    uint32_t i = lmr->key & (INDEX_MAX - 1);
    struct softdat_mem_slot *s = &ia->mem[i];

    s->lmr = NULL;
    s->gen = s->gen % GEN_MASK + 1;
    s->next_free = ia->free_mem;
    ia->free_mem = i + 1;
}

DAT_RETURN softdat_lmr_create(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE type,
                              DAT_REGION_DESCRIPTION region, DAT_VLEN len, DAT_PZ_HANDLE pz_handle,
                              DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr_p,
                              DAT_LMR_CONTEXT *local_p, DAT_RMR_CONTEXT *key_p,
                              DAT_VLEN *got_len, DAT_VADDR *got_addr)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_pz *pz = softdat_get(pz_handle, DAT_HANDLE_TYPE_PZ);
    struct softdat_lmr *lmr;
    bool ok;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!pz)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    if (va != DAT_VA_TYPE_VA)
        return DAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    if (type != DAT_MEM_TYPE_VIRTUAL && type != DAT_MEM_TYPE_LMR)
        return DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
    if (len == 0 || !lmr_p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    lmr = calloc(1, sizeof(*lmr));
    if (!lmr)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    lmr->addr = (uint64_t)(uintptr_t)region.for_va;
    if (type == DAT_MEM_TYPE_LMR) {
        struct softdat_lmr *of = softdat_get(region.for_lmr_handle, DAT_HANDLE_TYPE_LMR);

        if (!of) {
            free(lmr);
            return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
        }
        lmr->addr = of->addr;
        len = of->len;
    }
    lmr->len = len;
    lmr->pz = pz;
    lmr->priv = priv;
    softdat_lock(ia);
    ok = enter(ia, lmr);
    if (ok) {
        softdat_handle_init(&lmr->h, ia, DAT_HANDLE_TYPE_LMR);
        pz->users++;
    }
    softdat_unlock(ia);
    if (!ok) {
        free(lmr);
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION);
    }
    *lmr_p = lmr;
    if (local_p)
        *local_p = lmr->key;
    if (key_p)
        *key_p = lmr->key;
    if (got_len)
        *got_len = len;
    if (got_addr)
        *got_addr = lmr->addr;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_lmr_query(DAT_LMR_HANDLE handle, DAT_LMR_PARAM_MASK mask, DAT_LMR_PARAM *param)
{
    struct softdat_lmr *lmr = softdat_get(handle, DAT_HANDLE_TYPE_LMR);

    (void)mask;
    if (!lmr)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
    if (!param)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    *param = (DAT_LMR_PARAM){
        .ia_handle = lmr->h.ia, .mem_type = DAT_MEM_TYPE_VIRTUAL,
        .region_desc = { .for_va = (DAT_PVOID)(uintptr_t)lmr->addr }, .length = lmr->len,
        .pz_handle = lmr->pz, .mem_priv = lmr->priv, .va_type = DAT_VA_TYPE_VA,
        .lmr_context = lmr->key, .rmr_context = lmr->key, .registered_size = lmr->len,
        .registered_address = lmr->addr,
    };
    return DAT_SUCCESS;
}

DAT_RETURN softdat_lmr_free(DAT_LMR_HANDLE handle)
{
    struct softdat_lmr *lmr = softdat_get(handle, DAT_HANDLE_TYPE_LMR);
    struct softdat_ia *ia;

    if (!lmr)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
    ia = lmr->h.ia;
    softdat_lock(ia);
    leave(ia, lmr);
    lmr->pz->users--;
    softdat_handle_fini(&lmr->h);
    softdat_unlock(ia);
    free(lmr);
    return DAT_SUCCESS;
}

/* Memory is coherent: there is nothing to synchronise. */
DAT_RETURN softdat_lmr_sync(DAT_IA_HANDLE handle, const DAT_LMR_TRIPLET *seg, DAT_VLEN n)
{
    (void)seg, (void)n;
    if (!softdat_get(handle, DAT_HANDLE_TYPE_IA))
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    return DAT_SUCCESS;
}
