/* SPDX-License-Identifier: MIT */
#include "mem.h"

#include "softdat.h"
#include "calls.h"

#include <sys/random.h>

enum { GEN_MASK = (1 << (32 - SOFTDAT_INDEX_BITS)) - 1 };

/* -- protection zones ------------------------------------------------------------------------- */

DAT_RETURN softdat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_p)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_pz *pz;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    pz = softdat_alloc(sizeof(*pz));
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
    softdat_handle_end(&pz->h);
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

/* -- registered memory ------------------------------------------------------------------------ */

/* Doubles the table of regions. False: out of memory, or the maximum is reached. */
static bool grow_table(struct softdat_ia *ia)
{
    uint32_t n = ia->n_mem ? ia->n_mem * 2 : 256;
    struct softdat_mem_slot *mem;
    uint32_t gen = 1;

    if (n > SOFTDAT_INDEX_MAX)
        return false;
    mem = softdat_alloc_n(n, sizeof(*mem));
    if (!mem)
        return false;
    for (uint32_t i = 0; i < ia->n_mem; i++)
        mem[i] = ia->mem[i];
    softdat_free(ia->mem);
    ia->mem = mem;
    /* Generations start at random, so that a peer cannot derive keys from another process's. */
    if (getrandom(&gen, sizeof(gen), GRND_NONBLOCK) != sizeof(gen))
        gen = 1;
    for (uint32_t i = n; i-- > ia->n_mem;) {
        mem[i] = (struct softdat_mem_slot){ NULL, (gen + i * 7919) % GEN_MASK + 1, ia->free_mem };
        ia->free_mem = i + 1;
    }
    ia->n_mem = n;
    return true;
}

bool softdat_segs_recheck(struct softdat_ia *ia, struct softdat_dto *d)
{
    for (int i = 0; i < d->n_seg; i++)
        if (d->seg[i].key && !softdat_region_find(ia, d->seg[i].key))
            return false;
    d->regions_freed = ia->regions_freed;
    return true;
}

/* Puts a region into the table and gives it a key. False: the table is full or out of memory. */
static bool region_add(struct softdat_ia *ia, struct softdat_region *region)
{
    struct softdat_mem_slot *s;
    uint32_t i;

    if (!ia->free_mem && !grow_table(ia))
        return false;
    i = ia->free_mem - 1;
    s = &ia->mem[i];
    ia->free_mem = s->next_free;
    s->region = region;
    region->key = s->gen << SOFTDAT_INDEX_BITS | i;
    return true;
}

/* Invalidates the key of a region and breaks connections whose requests in flight use it. */
static void region_remove(struct softdat_ia *ia, struct softdat_region *region)
{
    uint32_t key = region->key, i = key & (SOFTDAT_INDEX_MAX - 1);
    struct softdat_mem_slot *s = &ia->mem[i];

    if (key == 0)
        return;
    region->key = 0;
    s->region = NULL;
    ia->regions_freed++;
    softdat_direct_region_freed(ia, key);
    s->gen = s->gen % GEN_MASK + 1;
    s->next_free = ia->free_mem;
    ia->free_mem = i + 1;
}

/* Sets address and length of *r from a region description of that type. */
static DAT_RETURN resolve_region(DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region,
                                 struct softdat_region *r)
{
    struct softdat_lmr *of;

    if (type == DAT_MEM_TYPE_VIRTUAL) {
        r->at = region.for_va;
    } else if (type == DAT_MEM_TYPE_SHARED_VIRTUAL) {
        r->at = region.for_shared_memory.virtual_address;
    } else if (type == DAT_MEM_TYPE_LMR) {
        of = softdat_get(region.for_lmr_handle, DAT_HANDLE_TYPE_LMR);
        if (!of)
            return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
        r->at = of->region.at;
        r->len = of->region.len;
    } else {
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    }
    return DAT_SUCCESS;
}

static DAT_RETURN lmr_register(struct softdat_ia *ia, struct softdat_lmr *lmr)
{
    bool ok;

    softdat_lock(ia);
    ok = ia->n_lmrs < ia->cfg.max_lmrs && !softdat_fault_injected(ia, SOFTDAT_FAULT_LMR)
         && region_add(ia, &lmr->region);
    if (ok) {
        ia->n_lmrs++;
        ia->count[SOFTDAT_N_LMRS]++;
        softdat_handle_init(&lmr->h, ia, DAT_HANDLE_TYPE_LMR);
        lmr->region.pz->users++;
    }
    softdat_unlock(ia);
    return ok ? DAT_SUCCESS : DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION);
}

DAT_RETURN softdat_lmr_create(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE type,
                              DAT_REGION_DESCRIPTION region, DAT_VLEN len, DAT_PZ_HANDLE pz_handle,
                              DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr_p,
                              DAT_LMR_CONTEXT *local_p, DAT_RMR_CONTEXT *key_p,
                              DAT_VLEN *got_len, DAT_VADDR *got_addr)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_pz *pz = softdat_get(pz_handle, DAT_HANDLE_TYPE_PZ);
    struct softdat_region r = { .len = len, .pz = pz, .priv = priv };
    struct softdat_lmr *lmr;
    DAT_RETURN ret;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!pz)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    ret = resolve_region(type, region, &r);
    if (ret != DAT_SUCCESS)
        return ret;
    if (r.len == 0 || r.len > ia->cfg.max_lmr_size || !lmr_p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    if (ia->failed)
        return DAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
    lmr = softdat_alloc(sizeof(*lmr));
    if (!lmr)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    r.va = va == DAT_VA_TYPE_ZB ? 0 : (uint64_t)(uintptr_t)r.at;
    lmr->region = r;
    lmr->va_type = va;
    ret = lmr_register(ia, lmr);
    if (ret != DAT_SUCCESS) {
        softdat_free(lmr);
        return ret;
    }
    *lmr_p = lmr;
    if (local_p)
        *local_p = lmr->region.key;
    if (key_p)
        *key_p = lmr->region.key;
    if (got_len)
        *got_len = r.len;
    if (got_addr)
        *got_addr = r.va;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_lmr_query(DAT_LMR_HANDLE handle, DAT_LMR_PARAM_MASK mask, DAT_LMR_PARAM *param)
{
    struct softdat_lmr *lmr = softdat_get(handle, DAT_HANDLE_TYPE_LMR);
    const struct softdat_region *r = &lmr->region;

    (void)mask;
    if (!lmr)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
    if (!param)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    *param = (DAT_LMR_PARAM){
        .ia_handle = lmr->h.ia, .mem_type = DAT_MEM_TYPE_VIRTUAL,
        .region_desc = { .for_va = r->at }, .length = r->len, .pz_handle = r->pz,
        .mem_priv = r->priv, .va_type = lmr->va_type, .lmr_context = r->key,
        .rmr_context = r->key, .registered_size = r->len, .registered_address = r->va,
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
    if (lmr->users > 0) {
        softdat_unlock(ia);
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_LMR_IN_USE);
    }
    region_remove(ia, &lmr->region);
    ia->n_lmrs--;
    lmr->region.pz->users--;
    softdat_handle_end(&lmr->h);
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

/* Memory is coherent, so there is nothing to synchronise (DAT 2.0, dat_lmr_sync_rdma_read). */
DAT_RETURN softdat_lmr_sync(DAT_IA_HANDLE handle, const DAT_LMR_TRIPLET *seg, DAT_VLEN n)
{
    (void)seg, (void)n;
    if (!softdat_get(handle, DAT_HANDLE_TYPE_IA))
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    return DAT_SUCCESS;
}

/* -- windows into registered memory: RMRs ----------------------------------------------------- */

static struct softdat_rmr *rmr_of(DAT_RMR_HANDLE handle)
{
    return softdat_get(handle, DAT_HANDLE_TYPE_RMR);
}

static const DAT_RETURN bad_rmr = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_RMR;

DAT_RETURN softdat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_p)
{
    struct softdat_pz *pz = softdat_get(pz_handle, DAT_HANDLE_TYPE_PZ);
    struct softdat_rmr *rmr;

    if (!pz)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    if (!rmr_p)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    rmr = softdat_alloc(sizeof(*rmr));
    if (!rmr)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    softdat_lock(pz->h.ia);
    softdat_handle_init(&rmr->h, pz->h.ia, DAT_HANDLE_TYPE_RMR);
    rmr->pz = pz;
    pz->users++;
    softdat_unlock(pz->h.ia);
    *rmr_p = rmr;
    return DAT_SUCCESS;
}

static void unbind(struct softdat_rmr *rmr)
{
    region_remove(rmr->h.ia, &rmr->region);
    if (rmr->lmr)
        rmr->lmr->users--;
    rmr->lmr = NULL;
}

DAT_RETURN softdat_rmr_free(DAT_RMR_HANDLE handle)
{
    struct softdat_rmr *rmr = rmr_of(handle);
    struct softdat_ia *ia;

    if (!rmr)
        return bad_rmr;
    ia = rmr->h.ia;
    softdat_lock(ia);
    unbind(rmr);
    rmr->pz->users--;
    softdat_handle_end(&rmr->h);
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_rmr_query(DAT_RMR_HANDLE handle, DAT_RMR_PARAM_MASK mask, DAT_RMR_PARAM *param)
{
    struct softdat_rmr *rmr = rmr_of(handle);

    (void)mask;
    if (!rmr)
        return bad_rmr;
    if (!param)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    softdat_lock(rmr->h.ia);
    *param = (DAT_RMR_PARAM){
        .ia_handle = rmr->h.ia, .pz_handle = rmr->pz, .mem_priv = rmr->region.priv,
        .rmr_context = rmr->region.key, .rmr_scope = DAT_RMR_SCOPE_PZ,
        .lmr_triplet = { .virtual_address = rmr->region.va,
                         .segment_length = (DAT_SEG_LENGTH)rmr->region.len,
                         .lmr_context = rmr->lmr ? rmr->lmr->region.key : 0 },
    };
    softdat_unlock(rmr->h.ia);
    return DAT_SUCCESS;
}

void softdat_bind_apply(struct softdat_bind *bind)
{
    struct softdat_rmr *rmr = bind->rmr;

    if (!rmr_of(rmr)) {          /* the RMR has been freed */
        softdat_bind_cancel(bind);
        return;
    }
    unbind(rmr);
    rmr->region = bind->region;
    rmr->lmr = bind->lmr;
    if (bind->lmr)
        rmr->h.ia->mem[rmr->region.key & (SOFTDAT_INDEX_MAX - 1)].region = &rmr->region;
}

void softdat_bind_cancel(struct softdat_bind *bind)
{
    if (!bind->lmr)
        return;
    region_remove(bind->lmr->h.ia, &bind->region);
    bind->lmr->users--;
    bind->lmr = NULL;
}

/* Allocates the new key of a bind and describes its region. The key's slot stays empty, and the key
 * invalid, until the bind is applied. */
static DAT_RETURN prepare_bind(struct softdat_bind *bind, const DAT_LMR_TRIPLET *seg,
                               DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va)
{
    const struct softdat_region *of = &bind->lmr->region;
    struct softdat_region *r = &bind->region;
    struct softdat_ia *ia = bind->lmr->h.ia;

    *r = (struct softdat_region){
        .va = va == DAT_VA_TYPE_ZB ? 0 : seg->virtual_address, .len = seg->segment_length,
        .pz = bind->rmr->pz, .priv = priv,
        .at = softdat_region_at(of, bind->rmr->pz, seg->virtual_address, seg->segment_length, 0),
    };
    if (!r->at)
        return DAT_ERROR(DAT_PROTECTION_VIOLATION, DAT_NO_SUBTYPE);
    if (priv & DAT_MEM_PRIV_REMOTE_WRITE_FLAG && !(of->priv & DAT_MEM_PRIV_LOCAL_WRITE_FLAG))
        return DAT_ERROR(DAT_PRIVILEGES_VIOLATION, DAT_NO_SUBTYPE);
    if (!region_add(ia, r))
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION);
    ia->mem[r->key & (SOFTDAT_INDEX_MAX - 1)].region = NULL;
    bind->lmr->users++;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_rmr_bind(DAT_RMR_HANDLE handle, DAT_LMR_HANDLE lmr_handle,
                            const DAT_LMR_TRIPLET *seg, DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va,
                            DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE cookie,
                            DAT_COMPLETION_FLAGS flags, DAT_RMR_CONTEXT *key_p)
{
    struct softdat_ep *ep = softdat_get(ep_handle, DAT_HANDLE_TYPE_EP);
    struct softdat_bind bind = { .rmr = rmr_of(handle),
                                 .lmr = softdat_get(lmr_handle, DAT_HANDLE_TYPE_LMR) };
    DAT_RETURN ret = DAT_SUCCESS;

    if (!bind.rmr)
        return bad_rmr;
    if (!ep)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    if (!seg)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    if (seg->segment_length == 0)
        bind.lmr = NULL;         /* unbind */
    else if (!bind.lmr || seg->lmr_context != bind.lmr->region.key)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
    softdat_lock(ep->h.ia);
    if (bind.lmr)
        ret = prepare_bind(&bind, seg, priv, va);
    if (ret == DAT_SUCCESS) {
        ret = softdat_ep_post_bind(ep, &bind, cookie, flags);
        if (ret != DAT_SUCCESS)
            softdat_bind_cancel(&bind);
        else if (key_p)
            *key_p = bind.region.key;
    }
    softdat_unlock(ep->h.ia);
    return ret;
}
