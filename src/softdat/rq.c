/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <string.h>

/* -- rings of posted DTOs --------------------------------------------------------------------- */

/* Moves the entries, in their order, to memory for `size` entries. */
static bool resize(struct softdat_ring *r, uint32_t size)
{
    struct softdat_ring to = *r;

    to.size = size;
    to.head = 0;
    to.dto = softdat_alloc_n(size, sizeof(*r->dto));
    to.seg = softdat_alloc_n((size_t)size * r->seg_each, sizeof(*r->seg));
    if (!to.dto || !to.seg) {
        softdat_ring_free(&to);
        return false;
    }
    for (uint32_t i = 0; i < size; i++) {
        if (i < r->count)
            to.dto[i] = *softdat_ring_at(r, i);
        to.dto[i].seg = &to.seg[(size_t)i * r->seg_each];
        if (i < r->count)
            memcpy(to.dto[i].seg, softdat_ring_at(r, i)->seg,
                   (size_t)to.dto[i].n_seg * sizeof(*to.seg));
    }
    softdat_ring_free(r);
    *r = to;
    return true;
}

bool softdat_ring_make(struct softdat_ring *r, uint32_t max, uint32_t seg_each)
{
    *r = (struct softdat_ring){ .max = max, .seg_each = seg_each };
    return resize(r, 1);
}

bool softdat_ring_grow(struct softdat_ring *r)
{
    uint32_t size = r->size < r->max / 2 ? 2 * r->size : r->max;

    return r->size < r->max && resize(r, size);
}

void softdat_ring_free(struct softdat_ring *r)
{
    softdat_free(r->dto);
    softdat_free(r->seg);
}

struct softdat_dto *softdat_ring_unfinished(struct softdat_ring *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (softdat_ring_at(r, i)->state != SOFTDAT_DTO_DONE)
            return softdat_ring_at(r, i);
    return NULL;
}

bool softdat_rq_make(struct softdat_rq *rq, uint32_t max, uint32_t seg_each)
{
    softdat_list_init(&rq->waiting);
    rq->max_iov = seg_each;
    return softdat_ring_make(&rq->ring, max, seg_each);
}

/* -- shared receive queues -------------------------------------------------------------------- */

static struct softdat_srq *srq_of(DAT_SRQ_HANDLE handle)
{
    return softdat_get(handle, DAT_HANDLE_TYPE_SRQ);
}

static const DAT_RETURN bad_srq = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_SRQ;

DAT_RETURN softdat_srq_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR *attr,
                              DAT_SRQ_HANDLE *srq_p)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_pz *pz = softdat_get(pz_handle, DAT_HANDLE_TYPE_PZ);
    struct softdat_srq *srq;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (!pz)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
    if (!srq_p || !attr || attr->max_recv_dtos <= 0
        || (uint64_t)attr->max_recv_dtos > ia->cfg.max_dtos || attr->max_recv_iov <= 0
        || (uint64_t)attr->max_recv_iov > ia->cfg.max_iov)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    srq = softdat_alloc(sizeof(*srq));
    if (!srq || !softdat_rq_make(&srq->rq, (uint32_t)attr->max_recv_dtos,
                                 (uint32_t)attr->max_recv_iov)) {
        softdat_free(srq);
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    }
    srq->low_watermark = attr->low_watermark > 0 ? (uint32_t)attr->low_watermark : 0;
    srq->pz = pz;
    softdat_lock(ia);
    softdat_handle_init(&srq->h, ia, DAT_HANDLE_TYPE_SRQ);
    pz->users++;
    softdat_unlock(ia);
    *srq_p = srq;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_srq_free(DAT_SRQ_HANDLE handle)
{
    struct softdat_srq *srq = srq_of(handle);
    struct softdat_ia *ia;

    if (!srq)
        return bad_srq;
    ia = srq->h.ia;
    softdat_lock(ia);
    if (srq->users > 0) {
        softdat_unlock(ia);
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
    }
    srq->pz->users--;
    softdat_ring_free(&srq->rq.ring);
    softdat_handle_end(&srq->h);
    softdat_unlock(ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_srq_post_recv(DAT_SRQ_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                 DAT_DTO_COOKIE cookie)
{
    struct softdat_srq *srq = srq_of(handle);
    DAT_RETURN ret;

    if (!srq)
        return bad_srq;
    softdat_lock(srq->h.ia);
    ret = softdat_rq_post(srq->h.ia, &srq->rq, srq->pz, n, seg, cookie,
                          DAT_COMPLETION_DEFAULT_FLAG);
    softdat_unlock(srq->h.ia);
    return ret;
}

DAT_RETURN softdat_srq_query(DAT_SRQ_HANDLE handle, DAT_SRQ_PARAM_MASK mask, DAT_SRQ_PARAM *param)
{
    struct softdat_srq *srq = srq_of(handle);

    (void)mask;
    if (!srq)
        return bad_srq;
    if (!param)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    softdat_lock(srq->h.ia);
    *param = (DAT_SRQ_PARAM){
        .ia_handle = srq->h.ia, .srq_state = DAT_SRQ_STATE_OPERATIONAL, .pz_handle = srq->pz,
        .max_recv_dtos = (DAT_COUNT)srq->rq.ring.max,
        .max_recv_iov = (DAT_COUNT)srq->rq.max_iov,
        .low_watermark = (DAT_COUNT)srq->low_watermark,
        .available_dto_count = (DAT_COUNT)srq->rq.ring.count,
        .outstanding_dto_count = (DAT_COUNT)(srq->rq.ring.count + srq->recvs_in_progress),
    };
    softdat_unlock(srq->h.ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_srq_resize(DAT_SRQ_HANDLE handle, DAT_COUNT size)
{
    struct softdat_srq *srq = srq_of(handle);
    DAT_RETURN ret = DAT_SUCCESS;
    if (!srq)
        return bad_srq;
    if (size <= 0 || (uint64_t)size > srq->h.ia->cfg.max_dtos)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    softdat_lock(srq->h.ia);
    if ((uint32_t)size < srq->rq.ring.count) {
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
    } else if (srq->rq.ring.size > (uint32_t)size && !resize(&srq->rq.ring, (uint32_t)size)) {
        ret = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    } else {
        srq->rq.ring.max = (uint32_t)size;
    }
    softdat_unlock(srq->h.ia);
    return ret;
}

/* Posts the low watermark event if it is due, and disarms it (DAT 2.0, dat_srq_set_lw). */
static void check_watermark(struct softdat_srq *srq)
{
    DAT_EVENT event;

    if (srq->rq.ring.count >= srq->low_watermark)
        return;
    srq->low_watermark = 0;
    memset(&event, 0, sizeof(event));
    event.event_number = DAT_ASYNC_ERROR_EP_BROKEN;    /* the number that Debian's providers use */
    event.event_data.asynch_error_event_data.dat_handle = srq;
    event.event_data.asynch_error_event_data.reason = DAT_SRQ_LOW_WATERMARK_EVENT;
    softdat_evd_post(srq->h.ia->async_evd, &event);
}

void softdat_srq_consumed(struct softdat_srq *srq)
{
    srq->recvs_in_progress++;
    check_watermark(srq);
}

DAT_RETURN softdat_srq_set_lw(DAT_SRQ_HANDLE handle, DAT_COUNT low)
{
    struct softdat_srq *srq = srq_of(handle);

    if (!srq)
        return bad_srq;
    if (low < 0 || (uint32_t)low > srq->rq.ring.max)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    softdat_lock(srq->h.ia);
    srq->low_watermark = (uint32_t)low;
    check_watermark(srq);
    softdat_unlock(srq->h.ia);
    return DAT_SUCCESS;
}
