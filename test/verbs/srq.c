/* SPDX-License-Identifier: MIT */
/* libibverbs' calls about shared receive queues. */
#include "hv.h"

#include <errno.h>
#include <stdlib.h>

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    bool possible = attr->attr.max_wr > 0 && attr->attr.max_wr <= HV_RECV_WRS &&
                    attr->attr.max_sge <= HV_SGES;
    struct hv_srq_handle *handle = NULL;
    struct hv_srq *srq;

    hv_lock();
    srq = possible ? HV_NEW_TO(hv_process()->shared->srq, HV_SRQS, rq.recv) : NULL;
    if (srq) {
        srq->pd = pd->handle;
        srq->async = ((struct hv_context *)pd->context)->async;
        srq->rq.max = attr->attr.max_wr;
        handle = calloc(1, sizeof(*handle));
        handle->of = srq;
        handle->srq = (struct ibv_srq){ .context = pd->context, .pd = pd, .handle = srq->num,
                                        .srq_context = attr->srq_context };
        hv_process()->srq[srq->num % HV_SRQS] = handle;
    }
    hv_unlock();
    errno = srq ? 0 : EINVAL;
    return srq ? &handle->srq : NULL;
}

static bool is_used(const struct hv_srq *srq)
{
    const struct hv_shared *s = hv_process()->shared;

    for (int i = 0; i < HV_QPS; i++)
        if (s->qp[i].num && s->qp[i].srq == srq->num)
            return true;
    return false;
}

int ibv_destroy_srq(struct ibv_srq *handle)
{
    struct hv_srq *srq = ((struct hv_srq_handle *)handle)->of;
    bool used;

    hv_lock();
    used = is_used(srq);
    if (!used)
        srq->num = 0;
    hv_unlock();
    if (used)
        return errno = EBUSY;
    hv_wait_for_acks(&((struct hv_srq_handle *)handle)->unacked);
    free(handle);
    return 0;
}

int ibv_modify_srq(struct ibv_srq *handle, struct ibv_srq_attr *attr, int mask)
{
    struct hv_srq *srq = ((struct hv_srq_handle *)handle)->of;

    if (mask != IBV_SRQ_LIMIT || attr->srq_limit > srq->rq.max)
        return errno = EINVAL;
    hv_lock();
    srq->limit = attr->srq_limit;
    hv_check_limit(srq);
    hv_unlock();
    return 0;
}

int ibv_query_srq(struct ibv_srq *handle, struct ibv_srq_attr *attr)
{
    const struct hv_srq *srq = ((struct hv_srq_handle *)handle)->of;

    *attr = (struct ibv_srq_attr){ .max_wr = srq->rq.max, .max_sge = HV_SGES,
                                   .srq_limit = srq->limit };
    return 0;
}
