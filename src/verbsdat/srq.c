/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "calls.h"

#include <stdlib.h>

static struct verbsdat_srq *srq_of(DAT_SRQ_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_SRQ);
}

static const DAT_RETURN bad_srq = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_SRQ;

/* -- EPs by QP number: a receive of a shared queue has no EP until it completes ---------------- */

static struct verbsdat_ep **bucket(struct verbsdat_ia *ia, uint32_t qp_num)
{
    return &ia->by_qp[qp_num % VERBSDAT_QP_BUCKETS];
}

void verbsdat_by_qp_add(struct verbsdat_ep *ep)
{
    struct verbsdat_ia *ia = ep->h.ia;
    struct verbsdat_ep **at = bucket(ia, ep->qp->qp_num);

    pthread_mutex_lock(&ia->qp_lock);
    ep->next_by_qp = *at;
    *at = ep;
    pthread_mutex_unlock(&ia->qp_lock);
}

void verbsdat_by_qp_remove(struct verbsdat_ep *ep)
{
    struct verbsdat_ia *ia = ep->h.ia;
    struct verbsdat_ep **at = bucket(ia, ep->qp->qp_num);

    pthread_mutex_lock(&ia->qp_lock);
    while (*at && *at != ep)
        at = &(*at)->next_by_qp;
    if (*at)
        *at = ep->next_by_qp;
    pthread_mutex_unlock(&ia->qp_lock);
}

struct verbsdat_ep *verbsdat_by_qp(struct verbsdat_ia *ia, uint32_t qp_num)
{
    struct verbsdat_ep *ep;

    pthread_mutex_lock(&ia->qp_lock);
    for (ep = *bucket(ia, qp_num); ep && ep->qp->qp_num != qp_num;)
        ep = ep->next_by_qp;
    pthread_mutex_unlock(&ia->qp_lock);
    return ep;
}

/* -- the queue --------------------------------------------------------------------------------- */

void verbsdat_srq_give(struct verbsdat_slot *slot)
{
    struct verbsdat_srq *srq = slot->srq;

    pthread_mutex_lock(&srq->lock);
    slot->next = srq->free;
    srq->free = slot;
    srq->posted--;
    pthread_mutex_unlock(&srq->lock);
}

static bool srq_make(struct verbsdat_srq *srq, struct verbsdat_pz *pz, const DAT_SRQ_ATTR *attr)
{
    struct ibv_srq_init_attr init = {
        .srq_context = srq,
        .attr = { .max_wr = (uint32_t)attr->max_recv_dtos, .max_sge = (uint32_t)attr->max_recv_iov }
    };

    srq->max = init.attr.max_wr;
    srq->max_iov = init.attr.max_sge;
    srq->slot = calloc(srq->max, sizeof(*srq->slot));
    if (!srq->slot)
        return false;
    for (uint32_t i = 0; i < srq->max; i++)
        srq->slot[i] = (struct verbsdat_slot){
            .kind = VERBSDAT_RECV, .srq = srq,
            .next = i + 1 < srq->max ? &srq->slot[i + 1] : NULL };
    srq->free = srq->slot;
    srq->srq = ibv_create_srq(pz->pd, &init);
    return srq->srq != NULL;
}

DAT_RETURN verbsdat_srq_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
                               DAT_SRQ_ATTR *attr, DAT_SRQ_HANDLE *srq_p)
{
    struct verbsdat_ia *ia = verbsdat_ia_of(ia_handle);
    struct verbsdat_pz *pz = verbsdat_get(pz_handle, DAT_HANDLE_TYPE_PZ);
    struct verbsdat_srq *srq;

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!pz)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    if (!srq_p || !attr || attr->max_recv_dtos <= 0 || attr->max_recv_dtos > ia->device.max_srq_wr
        || attr->max_recv_iov <= 0 || attr->max_recv_iov > ia->device.max_srq_sge)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    srq = calloc(1, sizeof(*srq));
    if (!srq || !srq_make(srq, pz, attr)) {
        free(srq ? srq->slot : NULL);
        free(srq);
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
    }
    srq->pz = pz;
    atomic_fetch_add(&pz->users, 1);
    pthread_mutex_init(&srq->lock, NULL);
    verbsdat_handle_add(&srq->h, ia, DAT_HANDLE_TYPE_SRQ);
    if (attr->low_watermark > 0)
        verbsdat_srq_set_lw(srq, attr->low_watermark);
    *srq_p = srq;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_srq_free(DAT_SRQ_HANDLE handle)
{
    struct verbsdat_srq *srq = srq_of(handle);
    struct verbsdat_ia *ia;

    if (!srq)
        return bad_srq;
    if (atomic_load(&srq->users) > 0
        || (ibv_destroy_srq(srq->srq) && !atomic_load(&srq->h.ia->lost)))
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
    atomic_fetch_sub(&srq->pz->users, 1);
    pthread_mutex_destroy(&srq->lock);
    free(srq->slot);
    ia = srq->h.ia;
    verbsdat_lock(ia);
    verbsdat_handle_end(&srq->h);
    verbsdat_unlock(ia);
    return DAT_SUCCESS;
}

static DAT_RETURN post(struct verbsdat_srq *srq, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                       DAT_DTO_COOKIE cookie)
{
    struct verbsdat_slot *slot = srq->free;
    struct ibv_recv_wr wr = { .sg_list = (struct ibv_sge *)seg, .num_sge = n }, *bad;

    if (!slot)
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    slot->cookie = cookie;
    wr.wr_id = (uintptr_t)slot;
    srq->free = slot->next;
    srq->posted++;
    if (ibv_post_srq_recv(srq->srq, &wr, &bad) == 0)
        return DAT_SUCCESS;
    srq->free = slot;
    srq->posted--;
    return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
}

DAT_RETURN verbsdat_srq_post_recv(DAT_SRQ_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                  DAT_DTO_COOKIE cookie)
{
    struct verbsdat_srq *srq = srq_of(handle);
    DAT_RETURN ret;

    if (!srq)
        return bad_srq;
    if (n < 0 || (n > 0 && !seg) || (uint32_t)n > srq->max_iov)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    pthread_mutex_lock(&srq->lock);
    ret = post(srq, n, seg, cookie);
    pthread_mutex_unlock(&srq->lock);
    return ret;
}

DAT_RETURN verbsdat_srq_query(DAT_SRQ_HANDLE handle, DAT_SRQ_PARAM_MASK mask, DAT_SRQ_PARAM *param)
{
    struct verbsdat_srq *srq = srq_of(handle);

    (void)mask;
    if (!srq)
        return bad_srq;
    if (!param)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    pthread_mutex_lock(&srq->lock);
    *param = (DAT_SRQ_PARAM){
        .ia_handle = srq->h.ia, .srq_state = DAT_SRQ_STATE_OPERATIONAL, .pz_handle = srq->pz,
        .max_recv_dtos = (DAT_COUNT)srq->max, .max_recv_iov = (DAT_COUNT)srq->max_iov,
        .low_watermark = (DAT_COUNT)srq->low,
        /* the adapter does not say how many of them messages are arriving in */
        .available_dto_count = (DAT_COUNT)srq->posted,
        .outstanding_dto_count = (DAT_COUNT)srq->posted };
    pthread_mutex_unlock(&srq->lock);
    return DAT_SUCCESS;
}

/* Not there: the places of posted receives cannot be moved while the adapter has them. */
DAT_RETURN verbsdat_srq_resize(DAT_SRQ_HANDLE handle, DAT_COUNT size)
{
    (void)size;
    return srq_of(handle) ? VERBSDAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE) : bad_srq;
}

/* Soft-RoCE compares with the limit only when a receive is taken. */
DAT_RETURN verbsdat_srq_set_lw(DAT_SRQ_HANDLE handle, DAT_COUNT low)
{
    struct verbsdat_srq *srq = srq_of(handle);
    struct ibv_srq_attr attr = { .srq_limit = (uint32_t)low };
    bool is_low;

    if (!srq)
        return bad_srq;
    if (low < 0 || (uint32_t)low > srq->max)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    pthread_mutex_lock(&srq->lock);
    srq->low = (uint32_t)low;
    is_low = srq->posted < srq->low;
    pthread_mutex_unlock(&srq->lock);
    if (is_low)
        attr.srq_limit = 0;
    if (ibv_modify_srq(srq->srq, &attr, IBV_SRQ_LIMIT))
        return VERBSDAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    if (is_low)
        verbsdat_srq_low(srq);
    return DAT_SUCCESS;
}
