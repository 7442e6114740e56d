/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <string.h>

/*
 * Short sends and RDMA writes over a ring: from the triplet to the in-line frame of the ring, and
 * from there to the destination, when nothing is queued before them. They are the frames of tx.c
 * and frame.c, in the same order and with the same checks; whatever is not the usual case is left
 * to these: the functions return false and have changed nothing.
 */

/* memcpy() by words: a call costs more than the copy. */
static inline void copy_short(uint8_t *to, const uint8_t *from, size_t n)
{
    for (; n >= 8; n -= 8, to += 8, from += 8)
        memcpy(to, from, 8);
    for (; n > 0; n--)
        *to++ = *from++;
}

bool softdat_short_plain(const struct softdat_conn *c)
{
    const struct softdat_config *cfg = &c->ia->cfg;
    bool faults = cfg->fatal_after != 0;

    for (int i = 0; i < SOFTDAT_FAULTS; i++)
        faults |= i != SOFTDAT_FAULT_LMR && cfg->one_in[i];
    return c->uses_rings && !faults && !cfg->rate && !cfg->latency_us && !cfg->jitter_us;
}

/* -- transmitting ----------------------------------------------------------------------------- */

/* True if the next request of ep may be transmitted at once. */
static inline bool may_transmit(const struct softdat_conn *c, const struct softdat_ep *ep)
{
    return c && c->plain && ep->state == DAT_EP_STATE_CONNECTED && c->cur_n == 0
           && ep->req.sent == ep->req.count && ep->req.count < ep->req.size
           && softdat_list_empty(&c->out_queue) && softdat_list_empty(&c->acks)
           && !softdat_break_pending(c) && !softdat_path_cut(c);
}

/* Stores the request in the queue as one that is transmitted. */
static inline void record(struct softdat_ep *ep, int op, uint32_t len, DAT_DTO_COOKIE cookie,
                          DAT_COMPLETION_FLAGS flags)
{
    struct softdat_dto *d = softdat_ring_at(&ep->req, ep->req.count);

    d->cookie = cookie;
    d->op = op;
    d->flags = flags;
    d->state = SOFTDAT_DTO_SENT;
    d->status = DAT_DTO_SUCCESS;
    d->seq = ++ep->last_seq;
    d->len = len;
    d->direct = d->judged = false;
    d->n_seg = 0;
    d->ext = 0;
    ep->req.count++;
    ep->req.sent++;
}

/* Posts a send (remote: NULL) or a write; called with the lock. */
static inline __attribute__((always_inline)) bool
post(struct softdat_ep *ep, const DAT_LMR_TRIPLET *seg, const DAT_RMR_TRIPLET *remote,
     DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct softdat_conn *c = ep->conn;
    struct softdat_ia *ia = ep->h.ia;
    uint32_t len = seg->segment_length;
    struct softdat_frame *f;
    const uint8_t *from;

    if (!may_transmit(c, ep) || !softdat_all_read(&c->shared)
        || (remote && remote->segment_length < len)
        || (flags & DAT_COMPLETION_BARRIER_FENCE_FLAG && ep->reads > 0))
        return false;
    from = softdat_region_at(softdat_region_find(ia, seg->lmr_context), ep->pz,
                             seg->virtual_address, len, 0);
    if (!from)
        return false;
    record(ep, remote ? DAT_DTO_RDMA_WRITE : DAT_DTO_SEND, len, cookie, flags);
    f = (struct softdat_frame *)(void *)c->shared.mine->inline_data;
    *f = (struct softdat_frame){
        .magic = SOFTDAT_WIRE_MAGIC, .type = remote ? SOFTDAT_WRITE : SOFTDAT_SEND, .len = len,
        .ack = c->executed, .key = remote ? remote->rmr_context : 0,
        .addr = remote ? remote->virtual_address : 0,
    };
    copy_short((uint8_t *)(f + 1), from, len);
    ia->count[remote ? SOFTDAT_N_WRITES : SOFTDAT_N_SENDS]++;
    ia->count[SOFTDAT_N_BYTES_OUT] += len;
    softdat_inline_publish(c, sizeof(*f) + len);
    return true;
}

bool softdat_short_send(struct softdat_ep *ep, const DAT_LMR_TRIPLET *seg, DAT_DTO_COOKIE cookie,
                        DAT_COMPLETION_FLAGS flags)
{
    bool posted;

    softdat_lock_take(&ep->h.ia->lock);
    posted = post(ep, seg, NULL, cookie, flags);
    softdat_lock_release(&ep->h.ia->lock);
    return posted;
}

bool softdat_short_write(struct softdat_ep *ep, const DAT_LMR_TRIPLET *seg,
                         const DAT_RMR_TRIPLET *remote, DAT_DTO_COOKIE cookie,
                         DAT_COMPLETION_FLAGS flags)
{
    bool posted;

    softdat_lock_take(&ep->h.ia->lock);
    posted = post(ep, seg, remote, cookie, flags);
    softdat_lock_release(&ep->h.ia->lock);
    return posted;
}

static uint32_t least(uint64_t a, uint64_t b)
{
    uint64_t min = a == 0 || b < a ? b : a;      /* 0: the EP has no limit of its own */

    return min < SOFTDAT_SHORT ? (uint32_t)min : SOFTDAT_SHORT;
}

void softdat_short_limits(struct softdat_ep *ep, const struct softdat_config *cfg)
{
    ep->short_send = least(ep->attr.max_message_size, cfg->max_message);
    ep->short_rdma = least(ep->attr.max_rdma_size, cfg->max_message);
}

/* -- receiving -------------------------------------------------------------------------------- */

/* Copies the in-line frame's header, once, as the peer can change it at any time. Returns the
 * length of the frame; 0: it is not in-line, or left to frame.c. */
static inline size_t header(struct softdat_conn *c, struct softdat_frame *f)
{
    size_t size = softdat_inline_length(&c->shared);

    if (size <= sizeof(*f) || c->hdr_have > 0 || c->stalled || c->discard_rx
        || softdat_break_pending(c))
        return 0;
    memcpy(f, c->shared.theirs->inline_data, sizeof(*f));
    return f->magic == SOFTDAT_WIRE_MAGIC && f->len == size - sizeof(*f) ? size : 0;
}

static inline const uint8_t *payload(const struct softdat_conn *c)
{
    return c->shared.theirs->inline_data + sizeof(struct softdat_frame);
}

/* Copies a send of len bytes to the oldest receive and returns that; NULL: left to frame.c. */
static inline struct softdat_dto *deliver(struct softdat_conn *c, uint32_t len)
{
    struct softdat_ep *ep = c->ep;
    struct softdat_ring *ring = &ep->own.ring;
    struct softdat_dto *d = softdat_ring_at(ring, 0);

    if (ep->srq || ring->count == 0 || d->n_seg != 1 || !softdat_list_empty(&c->held)
        || softdat_recv_check(c->ia, d, len) != DAT_DTO_SUCCESS)
        return NULL;
    copy_short(d->seg[0].at, payload(c), len);
    d->len = len;
    c->ia->count[SOFTDAT_N_RECVS]++;
    c->ia->count[SOFTDAT_N_BYTES_IN] += len;
    return d;
}

/* Stores an RDMA write; the last aligned word last. */
static bool store_write(struct softdat_conn *c, const struct softdat_frame *f)
{
    uint8_t *at = softdat_region_at(softdat_region_find(c->ia, f->key), c->ep->pz, f->addr, f->len,
                                    DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    size_t tail = softdat_tail_len((uintptr_t)at, f->len), first = f->len - tail;

    if (!at)
        return false;
    copy_short(at, payload(c), first);
    softdat_store_tail((uintptr_t)at + first, payload(c) + first, tail);
    return true;
}

static bool execute_send(struct softdat_conn *c, uint32_t len)
{
    struct softdat_dto *d = deliver(c, len);

    if (!d)
        return false;
    softdat_ep_complete(c->ep, c->ep->recv_evd, d);
    softdat_ring_pop(&c->ep->own.ring);
    return true;
}

bool softdat_short_receive(struct softdat_conn *c)
{
    struct softdat_frame f;
    size_t size = c->plain && c->ep ? header(c, &f) : 0;

    if (size == 0 || !(f.type == SOFTDAT_SEND ? execute_send(c, f.len)
                                              : f.type == SOFTDAT_WRITE && store_write(c, &f)))
        return false;
    softdat_inline_executed(c, size);
    return true;
}

/* -- completions ------------------------------------------------------------------------------ */

/* Stores the successful completion of d in *event. */
static inline void fill(DAT_EVENT *event, struct softdat_evd *evd, struct softdat_ep *ep,
                        const struct softdat_dto *d)
{
    DAT_DTO_COMPLETION_EVENT_DATA *e = &event->event_data.dto_completion_event_data;

    event->event_number = DAT_DTO_COMPLETION_EVENT;
    event->evd_handle = evd;
    e->ep_handle = ep;
    e->user_cookie = d->cookie;
    e->status = DAT_DTO_SUCCESS;
    e->transfered_length = d->len;
    e->operation = (DAT_DTOS)d->op;
    e->rmr_context = 0;
}

static inline bool received(struct softdat_conn *c, struct softdat_evd *evd, DAT_EVENT *event)
{
    struct softdat_frame f;
    size_t size = header(c, &f);
    struct softdat_dto *d = size > 0 && f.type == SOFTDAT_SEND ? deliver(c, f.len) : NULL;

    if (!d)
        return false;
    fill(event, evd, c->ep, d);
    softdat_ring_pop(&c->ep->own.ring);
    softdat_inline_executed(c, size);
    return true;
}

/* The completion of the oldest request, if the peer has executed it and not more than is
 * outstanding. */
static inline bool sent(struct softdat_conn *c, struct softdat_evd *evd, DAT_EVENT *event)
{
    struct softdat_ep *ep = c->ep;
    uint32_t executed = softdat_shared_executed(c);
    struct softdat_dto *d = softdat_ring_at(&ep->req, 0);

    if (ep->req.sent == 0 || ep->state != DAT_EP_STATE_CONNECTED || softdat_is_read(d) || d->ext
        || d->state != SOFTDAT_DTO_SENT || d->judged || d->flags & DAT_COMPLETION_SUPPRESS_FLAG
        || (int32_t)(executed - d->seq) < 0 || (int32_t)(ep->last_seq - executed) < 0
        || softdat_break_pending(c))
        return false;
    fill(event, evd, ep, d);
    softdat_ring_pop(&ep->req);
    if (executed == d->seq)
        c->shared.executed_seen = executed;
    return true;
}

bool softdat_short_recv_event(struct softdat_conn *c, struct softdat_evd *evd, DAT_EVENT *event)
{
    return c->plain && c->ep && c->ep->recv_evd == evd && received(c, evd, event);
}

bool softdat_short_sent_event(struct softdat_conn *c, struct softdat_evd *evd, DAT_EVENT *event)
{
    return c->plain && c->ep && c->ep->req_evd == evd && sent(c, evd, event);
}
