/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <string.h>

static struct softdat_ep *ep_of(DAT_EP_HANDLE handle)
{
    return softdat_get(handle, DAT_HANDLE_TYPE_EP);
}

static const DAT_RETURN bad_ep = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP;

/* Checks the local segments against their registrations and stores their addresses in d. */
static DAT_RETURN resolve_segs(struct softdat_ia *ia, const struct softdat_pz *pz,
                               struct softdat_dto *d, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                               DAT_MEM_PRIV_FLAGS priv)
{
    d->n_seg = 0;
    d->len = 0;
    d->regions_freed = ia->regions_freed;
    for (DAT_COUNT i = 0; i < n; i++) {
        struct softdat_region *r = softdat_region_find(ia, seg[i].lmr_context);
        uint8_t *at;

        if (seg[i].segment_length == 0)
            continue;
        at = softdat_region_at(r, pz, seg[i].virtual_address, seg[i].segment_length, 0);
        if (!at)
            return DAT_ERROR(DAT_PROTECTION_VIOLATION, DAT_NO_SUBTYPE);
        if ((r->priv & priv) != priv)
            return DAT_ERROR(DAT_PRIVILEGES_VIOLATION, DAT_NO_SUBTYPE);
        d->seg[d->n_seg++] = (struct softdat_seg){ at, seg[i].segment_length, seg[i].lmr_context };
        d->len += seg[i].segment_length;
    }
    return DAT_SUCCESS;
}

/* -- requests --------------------------------------------------------------------------------- */

static bool may_request(const struct softdat_ep *ep)
{
    return ep->state == DAT_EP_STATE_CONNECTED || ep->state == DAT_EP_STATE_DISCONNECTED;
}

/* The properties in which kinds of requests differ. Reading the local registered memory needs no
 * right: adapters do not check one, and clients (dtest among them) do not request it. */
struct kind {
    int op;                      /* DAT_DTOS or DAT_IB_DTOS */
    uint8_t ext;                 /* as softdat_dto.ext */
    bool remote;                 /* has a remote address and key */
    bool answered;               /* has a response with data: counts as an RDMA read */
    DAT_MEM_PRIV_FLAGS priv;     /* rights that the local memory needs */
    size_t iov_at, max_at;       /* offsets in DAT_EP_ATTR: maximum of segments, of bytes */
    uint64_t len;                /* required length, bytes; 0: any */
};

#define LIMITS(iov, max) .iov_at = offsetof(DAT_EP_ATTR, iov), .max_at = offsetof(DAT_EP_ATTR, max)

static const struct kind kind_send = {
    DAT_DTO_SEND, LIMITS(max_request_iov, max_message_size),
};
static const struct kind kind_write = {
    DAT_DTO_RDMA_WRITE, .remote = true, LIMITS(max_rdma_write_iov, max_rdma_size),
};
static const struct kind kind_read = {
    DAT_DTO_RDMA_READ, .remote = true, .answered = true, .priv = DAT_MEM_PRIV_LOCAL_WRITE_FLAG,
    LIMITS(max_rdma_read_iov, max_rdma_size),
};
static const struct kind kind_write_imm = {
    DAT_IB_DTO_RDMA_WRITE_IMMED, .remote = true, .ext = 1 + DAT_IB_RDMA_WRITE_IMMED,
    LIMITS(max_rdma_write_iov, max_rdma_size),
};
static const struct kind kind_fetch_add = {
    DAT_IB_DTO_FETCH_ADD, .remote = true, .answered = true, .ext = 1 + DAT_IB_FETCH_AND_ADD,
    .len = 8, .priv = DAT_MEM_PRIV_LOCAL_WRITE_FLAG, LIMITS(max_rdma_read_iov, max_rdma_size),
};
static const struct kind kind_cmp_swap = {
    DAT_IB_DTO_CMP_SWAP, .remote = true, .answered = true, .ext = 1 + DAT_IB_CMP_AND_SWAP,
    .len = 8, .priv = DAT_MEM_PRIV_LOCAL_WRITE_FLAG, LIMITS(max_rdma_read_iov, max_rdma_size),
};

static DAT_COUNT iov_limit(const struct softdat_ep *ep, const struct kind *k)
{
    DAT_COUNT n = *(const DAT_COUNT *)(const void *)((const char *)&ep->attr + k->iov_at);

    /* Clients of DAT 1.x leave the RDMA limits zero and expect those of requests. */
    if (n <= 0)
        n = ep->attr.max_request_iov;
    return n > 0 ? n : 1;
}

/* The arguments of a post call. */
struct request {
    DAT_COUNT n;
    const DAT_LMR_TRIPLET *seg;
    DAT_DTO_COOKIE cookie;
    const DAT_RMR_TRIPLET *remote;
    DAT_COMPLETION_FLAGS flags;
    uint32_t imm;
    uint64_t operand[2];
};

static DAT_RETURN fill(struct softdat_ep *ep, const struct kind *k, const struct request *r,
                       struct softdat_dto *d)
{
    DAT_SEG_LENGTH max = *(const DAT_SEG_LENGTH *)(const void *)((const char *)&ep->attr
                                                                 + k->max_at);
    DAT_RETURN ret = resolve_segs(ep->h.ia, ep->pz, d, r->n, r->seg, k->priv);

    if (ret != DAT_SUCCESS)
        return ret;
    if (max == 0)                /* the EP has no limit of its own */
        max = ep->h.ia->cfg.max_message;
    if (d->len > max || (r->remote && r->remote->segment_length < d->len)
        || (k->len && d->len != k->len))
        return DAT_ERROR(DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
    d->op = k->op;
    d->ext = k->ext;
    d->cookie = r->cookie;
    d->flags = r->flags;
    d->raddr = r->remote ? r->remote->virtual_address : 0;
    d->rkey = r->remote ? r->remote->rmr_context : 0;
    d->imm = r->imm;
    d->direct = false;
    d->operand[0] = r->operand[0];
    d->operand[1] = r->operand[1];
    return DAT_SUCCESS;
}

/* Returns the next free entry of the request queue; NULL with an error in *ret_p. */
static struct softdat_dto *next_request(struct softdat_ep *ep, DAT_RETURN *ret_p)
{
    *ret_p = DAT_SUCCESS;
    if (!may_request(ep))
        *ret_p = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    else if (!softdat_ring_room(&ep->req))
        *ret_p = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    else
        return softdat_ring_at(&ep->req, ep->req.count);
    return NULL;
}

static void count_request(struct softdat_ia *ia, const struct softdat_dto *d)
{
    static const struct { uint8_t number, bytes; } row[] = {
        [DAT_DTO_SEND] = { SOFTDAT_N_SENDS, SOFTDAT_N_BYTES_OUT },
        [DAT_DTO_RDMA_WRITE] = { SOFTDAT_N_WRITES, SOFTDAT_N_BYTES_OUT },
        [DAT_DTO_RDMA_READ] = { SOFTDAT_N_READS, SOFTDAT_N_BYTES_READ },
        [DAT_IB_DTO_RDMA_WRITE_IMMED] = { SOFTDAT_N_WRITES, SOFTDAT_N_BYTES_OUT },
        [DAT_IB_DTO_FETCH_ADD] = { SOFTDAT_N_ATOMICS, SOFTDAT_N_BYTES_READ },
        [DAT_IB_DTO_CMP_SWAP] = { SOFTDAT_N_ATOMICS, SOFTDAT_N_BYTES_READ },
        [SOFTDAT_DTO_BIND] = { SOFTDAT_N_BINDS, SOFTDAT_N_BYTES_OUT },
    };

    ia->count[row[d->op].number]++;
    ia->count[row[d->op].bytes] += d->len;
}

static void start_request(struct softdat_ep *ep, struct softdat_dto *d)
{
    d->state = SOFTDAT_DTO_QUEUED;
    d->status = DAT_DTO_SUCCESS;
    d->plain = false;
    d->due = softdat_delay_due(ep->h.ia, ep->port);
    ep->req.count++;
    count_request(ep->h.ia, d);
    if (ep->conn)
        softdat_fault_on_request(ep->conn);
    if (ep->conn)
        softdat_tx_progress(ep->conn);
    else
        softdat_ep_flush(ep);    /* disconnected: it is flushed at once (DAT 2.0) */
}

/* Posts a request; called with the lock. */
static DAT_RETURN post_locked(struct softdat_ep *ep, const struct kind *k, const struct request *r)
{
    DAT_RETURN ret;
    struct softdat_dto *d = next_request(ep, &ret);

    softdat_round_complete(ep->h.ia);
    if (d)
        ret = fill(ep, k, r, d);
    if (ret == DAT_SUCCESS)
        start_request(ep, d);
    return ret;
}

static DAT_RETURN post_request(struct softdat_ep *ep, const struct kind *k,
                               const struct request *r)
{
    DAT_RETURN ret;

    if (!ep)
        return bad_ep;
    if (r->n < 0 || (r->n > 0 && !r->seg) || r->n > iov_limit(ep, k) || (k->remote && !r->remote))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (k->answered && ep->attr.max_rdma_read_out <= 0)
        return DAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    datlock_take(&ep->h.ia->lock);
    softdat_changing(ep->h.ia);
    ret = post_locked(ep, k, r);
    softdat_unlock(ep->h.ia);
    return ret;
}

DAT_RETURN softdat_post_send(struct softdat_ep *ep, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                             DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct request r = { .n = n, .seg = seg, .cookie = cookie, .flags = flags };

    return post_request(ep, &kind_send, &r);
}

DAT_RETURN softdat_ep_post_rdma_read(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                     DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                                     DAT_COMPLETION_FLAGS flags)
{
    struct request r = { .n = n, .seg = seg, .cookie = cookie, .remote = remote, .flags = flags };

    return post_request(ep_of(handle), &kind_read, &r);
}

DAT_RETURN softdat_post_write(struct softdat_ep *ep, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                              DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                              DAT_COMPLETION_FLAGS flags)
{
    struct request r = { .n = n, .seg = seg, .cookie = cookie, .remote = remote, .flags = flags };

    return post_request(ep, &kind_write, &r);
}

DAT_RETURN softdat_ep_post_bind(struct softdat_ep *ep, const struct softdat_bind *bind,
                                DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    DAT_RETURN ret;
    struct softdat_dto *d = next_request(ep, &ret);

    if (!d)
        return ret;
    d->op = SOFTDAT_DTO_BIND;
    d->ext = 0;
    d->cookie.as_64 = cookie.as_64;
    d->flags = flags;
    d->n_seg = 0;
    d->len = 0;
    d->direct = false;
    d->bind = *bind;
    start_request(ep, d);
    return DAT_SUCCESS;
}

/* -- extended operations (dat_ib_extensions.h) ------------------------------------------------ */

/* Reads the arguments that the macros of the header pass last, in their order. */
static void read_common_args(struct request *r, va_list *args)
{
    r->seg = va_arg(*args, const DAT_LMR_TRIPLET *);
    r->cookie = va_arg(*args, DAT_DTO_COOKIE);
    r->remote = va_arg(*args, const DAT_RMR_TRIPLET *);
}

/* Reads the arguments of an operation. Returns its kind; NULL: there is no such operation. */
static const struct kind *read_args(struct request *r, DAT_EXTENDED_OP op, va_list *args)
{
    const struct kind *k;

    switch ((int)op) {
    case DAT_IB_FETCH_AND_ADD_OP:
        k = &kind_fetch_add;
        r->operand[0] = va_arg(*args, DAT_UINT64);
        read_common_args(r, args);
        break;
    case DAT_IB_CMP_AND_SWAP_OP:
        k = &kind_cmp_swap;
        r->operand[0] = va_arg(*args, DAT_UINT64);
        r->operand[1] = va_arg(*args, DAT_UINT64);
        read_common_args(r, args);
        break;
    case DAT_IB_RDMA_WRITE_IMMED_OP:
        k = &kind_write_imm;
        r->n = va_arg(*args, DAT_COUNT);
        read_common_args(r, args);
        r->imm = va_arg(*args, DAT_UINT32);
        break;
    default:
        return NULL;
    }
    r->flags = (DAT_COMPLETION_FLAGS)va_arg(*args, int);
    return k;
}

/* Reads from a copy of args: a function that is passed a va_list by value and reads it leaves that
 * of its caller indeterminate (C11 7.16p3), and where va_list is an array a parameter's address is
 * not that of a va_list. */
DAT_RETURN softdat_extended_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args)
{
    struct request r = { .n = 1 };
    const struct kind *k;
    va_list copy;

    va_copy(copy, args);
    k = read_args(&r, op, &copy);
    va_end(copy);
    return k ? post_request(ep_of(handle), k, &r) : softdat_alternate_op(handle, op, args);
}

/* -- receives --------------------------------------------------------------------------------- */

DAT_RETURN softdat_rq_post(struct softdat_ia *ia, struct softdat_rq *rq,
                           const struct softdat_pz *pz, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                           DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct softdat_dto *d;
    DAT_RETURN ret;

    if (n < 0 || (n > 0 && !seg) || (uint32_t)n > rq->max_iov)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (!softdat_ring_room(&rq->ring))
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    d = softdat_ring_at(&rq->ring, rq->ring.count);
    ret = resolve_segs(ia, pz, d, n, seg, DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    if (ret != DAT_SUCCESS)
        return ret;
    softdat_recv_append(&rq->ring, d, cookie, flags);
    if (!softdat_list_empty(&rq->waiting)) {
        softdat_round_complete(ia);
        softdat_held_deliver(rq);
    }
    return DAT_SUCCESS;
}

DAT_RETURN softdat_post_recv(struct softdat_ep *ep, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                             DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    DAT_RETURN ret;

    if (!ep)
        return bad_ep;
    if (ep->srq)
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
    datlock_take(&ep->h.ia->lock);
    softdat_changing(ep->h.ia);
    ret = softdat_rq_post(ep->h.ia, ep->rq, ep->pz, n, seg, cookie, flags);
    if (ret == DAT_SUCCESS && !ep->conn && ep->state == DAT_EP_STATE_DISCONNECTED)
        softdat_ep_flush(ep);
    softdat_unlock(ep->h.ia);
    return ret;
}
