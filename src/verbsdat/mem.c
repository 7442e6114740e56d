/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "calls.h"

#include <dat2/dat_ib_extensions.h>
#include <errno.h>
#include <stdlib.h>

static struct verbsdat_pz *pz_of(DAT_PZ_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_PZ);
}

static struct verbsdat_lmr *lmr_of(DAT_LMR_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_LMR);
}

static const DAT_RETURN bad_pz = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_PZ;
static const DAT_RETURN bad_lmr = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_LMR;

/* -- protection zones -------------------------------------------------------------------------- */

DAT_RETURN verbsdat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_p)
{
    struct verbsdat_ia *ia = verbsdat_ia_of(ia_handle);
    struct verbsdat_pz *pz;

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    pz = calloc(1, sizeof(*pz));
    if (pz)
        pz->pd = ibv_alloc_pd(ia->verbs);
    if (!pz || !pz->pd) {
        free(pz);
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_PROTECTION_DOMAIN);
    }
    verbsdat_handle_add(&pz->h, ia, DAT_HANDLE_TYPE_PZ);
    *pz_p = pz;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_pz_query(DAT_PZ_HANDLE handle, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM *param)
{
    struct verbsdat_pz *pz = pz_of(handle);

    (void)mask;
    if (!pz)
        return bad_pz;
    if (!param)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    param->ia_handle = pz->h.ia;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_pz_free(DAT_PZ_HANDLE handle)
{
    struct verbsdat_pz *pz = pz_of(handle);
    struct verbsdat_ia *ia;

    if (!pz)
        return bad_pz;
    if (atomic_load(&pz->users) > 0 || (ibv_dealloc_pd(pz->pd) && !atomic_load(&pz->h.ia->lost)))
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
    ia = pz->h.ia;
    verbsdat_lock(ia);
    verbsdat_handle_end(&pz->h);
    verbsdat_unlock(ia);
    return DAT_SUCCESS;
}

/* -- registered memory ------------------------------------------------------------------------- */

static const struct {
    int priv, access;
} rights[] = {
    { DAT_MEM_PRIV_LOCAL_WRITE_FLAG, IBV_ACCESS_LOCAL_WRITE },
    { DAT_MEM_PRIV_REMOTE_READ_FLAG, IBV_ACCESS_REMOTE_READ },
    /* verbs allow what others write only where this side may write (IBA 10.6.6.2) */
    { DAT_MEM_PRIV_REMOTE_WRITE_FLAG, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE },
    { DAT_IB_MEM_PRIV_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE },
};

static int access_of(const struct verbsdat_ia *ia, int priv)
{
    int access = 0;

    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
        if (priv & rights[i].priv)
            access |= rights[i].access;
    if (ia->device.atomic_cap == IBV_ATOMIC_NONE)
        access &= ~IBV_ACCESS_REMOTE_ATOMIC;
    return access;
}

/* Where a region begins; NULL: it is of a kind that is not supported. */
static void *start_of(DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region)
{
    struct verbsdat_lmr *of;

    if (type == DAT_MEM_TYPE_VIRTUAL)
        return region.for_va;
    if (type != DAT_MEM_TYPE_LMR)
        return NULL;
    of = lmr_of(region.for_lmr_handle);
    return of ? of->mr->addr : NULL;
}

DAT_RETURN verbsdat_lmr_create(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE type,
                               DAT_REGION_DESCRIPTION region, DAT_VLEN len,
                               DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va,
                               DAT_LMR_HANDLE *lmr_p, DAT_LMR_CONTEXT *local,
                               DAT_RMR_CONTEXT *remote, DAT_VLEN *len_p, DAT_VADDR *addr_p)
{
    struct verbsdat_ia *ia = verbsdat_ia_of(ia_handle);
    struct verbsdat_pz *pz = pz_of(pz_handle);
    void *start = start_of(type, region);
    struct verbsdat_lmr *lmr;

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!pz || pz->h.ia != ia)
        return bad_pz;
    if (va != DAT_VA_TYPE_VA || (type != DAT_MEM_TYPE_VIRTUAL && type != DAT_MEM_TYPE_LMR))
        return VERBSDAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    if (!start || len == 0 || len > ia->device.max_mr_size || !lmr_p)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    lmr = calloc(1, sizeof(*lmr));
    if (lmr)         /* in parentheses: the function, not the macro of newer headers */
        lmr->mr = (ibv_reg_mr)(pz->pd, start, len, access_of(ia, (int)priv));
    if (!lmr || !lmr->mr) {
        free(lmr);
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY_REGION);
    }
    lmr->pz = pz;
    atomic_fetch_add(&pz->users, 1);
    lmr->param = (DAT_LMR_PARAM){
        .ia_handle = ia, .mem_type = type, .region_desc = region, .length = len, .pz_handle = pz,
        .mem_priv = priv, .va_type = va, .lmr_context = lmr->mr->lkey,
        .rmr_context = lmr->mr->rkey, .registered_size = len,
        .registered_address = (DAT_VADDR)(uintptr_t)start };
    verbsdat_handle_add(&lmr->h, ia, DAT_HANDLE_TYPE_LMR);
    *lmr_p = lmr;
    if (local)
        *local = lmr->mr->lkey;
    if (remote)
        *remote = lmr->mr->rkey;
    if (len_p)
        *len_p = len;
    if (addr_p)
        *addr_p = lmr->param.registered_address;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_lmr_query(DAT_LMR_HANDLE handle, DAT_LMR_PARAM_MASK mask, DAT_LMR_PARAM *param)
{
    struct verbsdat_lmr *lmr = lmr_of(handle);

    (void)mask;
    if (!lmr)
        return bad_lmr;
    if (!param)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    *param = lmr->param;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_lmr_free(DAT_LMR_HANDLE handle)
{
    struct verbsdat_lmr *lmr = lmr_of(handle);
    struct verbsdat_ia *ia;

    if (!lmr)
        return bad_lmr;
    if (ibv_dereg_mr(lmr->mr) && !atomic_load(&lmr->h.ia->lost))
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_LMR_IN_USE);
    atomic_fetch_sub(&lmr->pz->users, 1);
    ia = lmr->h.ia;
    verbsdat_lock(ia);
    verbsdat_handle_end(&lmr->h);
    verbsdat_unlock(ia);
    return DAT_SUCCESS;
}

/* Verbs need no synchronisation of memory with RDMA. */
DAT_RETURN verbsdat_lmr_sync(DAT_IA_HANDLE handle, const DAT_LMR_TRIPLET *seg, DAT_VLEN n)
{
    (void)seg, (void)n;
    return verbsdat_ia_of(handle) ? DAT_SUCCESS
                                  : VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
}
