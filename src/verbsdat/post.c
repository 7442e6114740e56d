/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "calls.h"

#include <arpa/inet.h>
#include <dat2/dat_ib_extensions.h>
#include <stddef.h>

/* DAT's segments are those of verbs, so a posted list needs no copy. */
_Static_assert(sizeof(DAT_LMR_TRIPLET) == sizeof(struct ibv_sge)
               && offsetof(DAT_LMR_TRIPLET, virtual_address) == offsetof(struct ibv_sge, addr)
               && offsetof(DAT_LMR_TRIPLET, segment_length) == offsetof(struct ibv_sge, length)
               && offsetof(DAT_LMR_TRIPLET, lmr_context) == offsetof(struct ibv_sge, lkey),
               "DAT_LMR_TRIPLET is not an ibv_sge");

static const DAT_RETURN bad_ep = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP;
static const DAT_RETURN no_room = DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES
                                  | DAT_RESOURCE_MEMORY;

static const struct row {
    enum ibv_wr_opcode opcode;
    bool inlines, remote, atomic;
} rows[] = {
    [VERBSDAT_SEND] = { IBV_WR_SEND, .inlines = true },
    [VERBSDAT_WRITE] = { IBV_WR_RDMA_WRITE, .inlines = true, .remote = true },
    [VERBSDAT_READ] = { IBV_WR_RDMA_READ, .remote = true },
    [VERBSDAT_WRITE_IMM] = { IBV_WR_RDMA_WRITE_WITH_IMM, .inlines = true, .remote = true },
    [VERBSDAT_FETCH_ADD] = { IBV_WR_ATOMIC_FETCH_AND_ADD, .remote = true, .atomic = true },
    [VERBSDAT_CMP_SWAP] = { IBV_WR_ATOMIC_CMP_AND_SWP, .remote = true, .atomic = true },
};

/* A request as the calls give it. */
struct request {
    enum verbsdat_kind kind;
    DAT_COUNT n;                 /* segments */
    DAT_LMR_TRIPLET *seg;
    DAT_DTO_COOKIE cookie;
    DAT_COMPLETION_FLAGS flags;
    const DAT_RMR_TRIPLET *remote;
    uint64_t operand[2];
    uint32_t imm;
};

/* The segments that have bytes: to some adapters a length of 0 means 2^31. */
static int without_empty(DAT_LMR_TRIPLET *seg, int n, DAT_LMR_TRIPLET out[VERBSDAT_MAX_IOV])
{
    int k = 0;

    for (int i = 0; i < n; i++)
        if (seg[i].segment_length > 0)
            out[k++] = seg[i];
    return k;
}

static bool has_empty(const DAT_LMR_TRIPLET *seg, int n)
{
    for (int i = 0; i < n; i++)
        if (seg[i].segment_length == 0)
            return true;
    return false;
}

static uint64_t sum(const DAT_LMR_TRIPLET *seg, int n)
{
    uint64_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += seg[i].segment_length;
    return bytes;
}

static void fill_remote(struct ibv_send_wr *wr, const struct request *r)
{
    if (rows[r->kind].atomic) {
        wr->wr.atomic.remote_addr = r->remote->virtual_address;
        wr->wr.atomic.rkey = r->remote->rmr_context;
        wr->wr.atomic.compare_add = r->operand[0];
        wr->wr.atomic.swap = r->operand[1];
    } else {
        wr->wr.rdma.remote_addr = r->remote->virtual_address;
        wr->wr.rdma.rkey = r->remote->rmr_context;
    }
}

/* With ep->lock: has the queue a free slot? Completions that nobody has polled may free some. */
static bool make_room(struct verbsdat_queue *q, struct verbsdat_evd *evd)
{
    if (q->head - atomic_load_explicit(&q->tail, memory_order_acquire) < q->max)
        return true;
    verbsdat_evd_pull(evd);
    return q->head - atomic_load_explicit(&q->tail, memory_order_acquire) < q->max;
}

/* With ep->lock: is what is posted now nothing to the adapter? It completes as lost then. */
static bool vanishes(const struct verbsdat_ep *ep)
{
    return ep->over && verbsdat_ep_loses(ep);
}

static void flush(struct verbsdat_ep *ep)
{
    verbsdat_lock(ep->h.ia);
    verbsdat_ep_flush(ep);
    verbsdat_unlock(ep->h.ia);
}

/* Releases ep->lock. A DTO that was posted to a connection that has ended is flushed. */
static inline void posted(struct verbsdat_ep *ep)
{
    bool over = ep->over;

    datlock_release(&ep->lock);
    if (over)
        flush(ep);
}

/*
 * With ep->lock. The slots of requests without a completion are free when a later one has
 * completed, so one of max_silent in a row is signaled whatever the consumer wants, who gets no
 * event of its success.
 */
__attribute__((always_inline)) static inline DAT_RETURN
post(struct verbsdat_ep *ep, const struct request *r, struct ibv_send_wr *wr)
{
    struct verbsdat_slot *slot = &ep->req.slot[ep->req.head & ep->req.mask];
    bool silent = r->flags & DAT_COMPLETION_SUPPRESS_FLAG;
    struct ibv_send_wr *bad;
    uint32_t run = silent ? ep->silent_run + 1 : 0;

    if (!make_room(&ep->req, ep->req_evd))
        return no_room;
    if (run == ep->max_silent)
        run = 0;
    if (run == 0)
        wr->send_flags |= IBV_SEND_SIGNALED;
    wr->wr_id = (uintptr_t)slot;
    slot->cookie = r->cookie;
    slot->number = ep->req.head;
    slot->kind = (uint8_t)r->kind;
    slot->silent = silent;
    if (ibv_post_send(ep->qp, wr, &bad) && !vanishes(ep))
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
    ep->req.head++;
    ep->silent_run = run;
    return DAT_SUCCESS;
}

/* On soft-iWARP a send has completed when TCP has it, before the answer to an RDMA read that was
 * posted earlier has arrived. DTOs of a queue complete in their order, so it waits for that. */
static bool is_fenced(const struct verbsdat_ep *ep, const struct request *r)
{
    return r->flags & DAT_COMPLETION_BARRIER_FENCE_FLAG
           || (ep->h.ia->iwarp && r->kind != VERBSDAT_READ);
}

/* The kind of a call's requests is a constant: its own copy of this looks nothing up in rows. */
__attribute__((always_inline)) static inline DAT_RETURN
post_request(struct verbsdat_ep *ep, const struct request *r)
{
    DAT_EP_STATE state = atomic_load_explicit(&ep->state, memory_order_relaxed);
    const struct row *row = &rows[r->kind];
    DAT_LMR_TRIPLET kept[VERBSDAT_MAX_IOV];
    struct ibv_send_wr wr;       /* of a long struct only what the request needs is set */
    uint64_t bytes;
    DAT_RETURN ret;

    if (state != DAT_EP_STATE_CONNECTED && state != DAT_EP_STATE_DISCONNECTED)
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
    if (r->n < 0 || (r->n > 0 && !r->seg) || (uint32_t)r->n > ep->max_iov)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    bytes = sum(r->seg, r->n);
    if (row->remote && (!r->remote || bytes > r->remote->segment_length))
        return VERBSDAT_ERROR(DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
    if (row->atomic && bytes != sizeof(uint64_t))
        return VERBSDAT_ERROR(DAT_LENGTH_ERROR, DAT_NO_SUBTYPE);
    wr.next = NULL;
    wr.opcode = row->opcode;
    wr.imm_data = r->imm;
    wr.num_sge = r->n;
    wr.sg_list = (struct ibv_sge *)r->seg;
    if (has_empty(r->seg, r->n)) {
        wr.num_sge = without_empty(r->seg, r->n, kept);
        wr.sg_list = (struct ibv_sge *)kept;
    }
    if (row->remote)
        fill_remote(&wr, r);
    wr.send_flags = (row->inlines && bytes <= ep->max_inline ? IBV_SEND_INLINE : 0u)
                    | (r->flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG ? IBV_SEND_SOLICITED : 0u)
                    | (is_fenced(ep, r) ? IBV_SEND_FENCE : 0u);
    datlock_take(&ep->lock);
    ret = post(ep, r, &wr);
    posted(ep);
    return ret;
}

DAT_RETURN verbsdat_ep_post_send(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                 DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);

    if (!ep)
        return bad_ep;
    return post_request(ep, &(struct request){ .kind = VERBSDAT_SEND, .n = n, .seg = seg,
                                               .cookie = cookie, .flags = flags });
}

DAT_RETURN verbsdat_ep_post_rdma_read(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                      DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                                      DAT_COMPLETION_FLAGS flags)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);

    if (!ep)
        return bad_ep;
    return post_request(ep, &(struct request){ .kind = VERBSDAT_READ, .n = n, .seg = seg,
                                               .cookie = cookie, .flags = flags,
                                               .remote = remote });
}

DAT_RETURN verbsdat_ep_post_rdma_write(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                       DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                                       DAT_COMPLETION_FLAGS flags)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);

    if (!ep)
        return bad_ep;
    return post_request(ep, &(struct request){ .kind = VERBSDAT_WRITE, .n = n, .seg = seg,
                                               .cookie = cookie, .flags = flags,
                                               .remote = remote });
}

/* -- extended operations (dat_ib_extensions.h) ------------------------------------------------- */

/* The arguments that the macros of the header pass last, in their order. */
static void read_common_args(struct request *r, va_list *args)
{
    r->seg = va_arg(*args, DAT_LMR_TRIPLET *);
    r->cookie = va_arg(*args, DAT_DTO_COOKIE);
    r->remote = va_arg(*args, const DAT_RMR_TRIPLET *);
}

/* The request of an operation. False: there is no such operation. */
static bool read_args(struct request *r, DAT_EXTENDED_OP op, va_list *args)
{
    switch ((int)op) {
    case DAT_IB_FETCH_AND_ADD_OP:
        r->kind = VERBSDAT_FETCH_ADD;
        r->operand[0] = va_arg(*args, DAT_UINT64);
        read_common_args(r, args);
        break;
    case DAT_IB_CMP_AND_SWAP_OP:
        r->kind = VERBSDAT_CMP_SWAP;
        r->operand[0] = va_arg(*args, DAT_UINT64);
        r->operand[1] = va_arg(*args, DAT_UINT64);
        read_common_args(r, args);
        break;
    case DAT_IB_RDMA_WRITE_IMMED_OP:
        r->kind = VERBSDAT_WRITE_IMM;
        r->n = va_arg(*args, DAT_COUNT);
        read_common_args(r, args);
        r->imm = htonl(va_arg(*args, DAT_UINT32));
        break;
    default:
        return false;
    }
    r->flags = (DAT_COMPLETION_FLAGS)va_arg(*args, int);
    return true;
}

static bool supported(const struct verbsdat_ia *ia, enum verbsdat_kind kind)
{
    return kind == VERBSDAT_WRITE_IMM ? !ia->iwarp : ia->device.atomic_cap != IBV_ATOMIC_NONE;
}

DAT_RETURN verbsdat_extended_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);
    struct request r = { .n = 1 };
    va_list copy;
    DAT_RETURN ret = verbsdat_path_op(handle, op, args);
    bool known;

    if (ret != VERBSDAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE))
        return ret;
    va_copy(copy, args);         /* a parameter's address may be that of a pointer */
    known = read_args(&r, op, &copy);
    va_end(copy);
    if (!known)
        return VERBSDAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
    if (!ep)
        return bad_ep;
    if (!supported(ep->h.ia, r.kind))
        return VERBSDAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
    return post_request(ep, &r);
}

/* -- receives ---------------------------------------------------------------------------------- */

/* With ep->lock. */
static DAT_RETURN post_recv(struct verbsdat_ep *ep, struct ibv_recv_wr *wr, DAT_DTO_COOKIE cookie)
{
    struct verbsdat_slot *slot = &ep->recv.slot[ep->recv.head & ep->recv.mask];
    struct ibv_recv_wr *bad;

    if (!make_room(&ep->recv, ep->recv_evd))
        return no_room;
    wr->wr_id = (uintptr_t)slot;
    slot->cookie = cookie;
    slot->number = ep->recv.head;
    if (ibv_post_recv(ep->qp, wr, &bad) && !vanishes(ep))
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE);
    ep->recv.head++;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_ep_post_recv(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                 DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);
    DAT_LMR_TRIPLET kept[VERBSDAT_MAX_IOV];
    struct ibv_recv_wr wr = { .sg_list = (struct ibv_sge *)seg, .num_sge = n };
    DAT_RETURN ret;

    (void)flags;
    if (!ep)
        return bad_ep;
    if (ep->srq)
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
    if (n < 0 || (n > 0 && !seg) || n > ep->attr.max_recv_iov)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (has_empty(seg, n)) {
        wr.num_sge = without_empty(seg, n, kept);
        wr.sg_list = (struct ibv_sge *)kept;
    }
    datlock_take(&ep->lock);
    ret = post_recv(ep, &wr, cookie);
    posted(ep);
    return ret;
}
