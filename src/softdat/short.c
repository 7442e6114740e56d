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

/* True if the next request of c may be transmitted at once. */
static inline bool may_transmit(const struct softdat_conn *c, const struct softdat_ep *ep)
{
    return c->plain && ep->state == DAT_EP_STATE_CONNECTED && c->cur_n == 0
           && ep->req.sent == ep->req.count && ep->req.count < ep->req.size
           && softdat_list_empty(&c->out_queue) && !softdat_break_pending(c)
           && !softdat_path_cut(c);
}

/* True if len bytes are not more than the EP and the adapter permit. */
static inline bool length_permitted(const struct softdat_ep *ep, bool rdma, uint32_t len)
{
    uint64_t max = rdma ? ep->attr.max_rdma_size : ep->attr.max_message_size;

    return len <= ep->h.ia->cfg.max_message && (max == 0 || len <= max);
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
    d->direct = false;
    d->n_seg = 0;
    d->ext = 0;
    ep->req.count++;
    ep->req.sent++;
}

bool softdat_short_post(struct softdat_ep *ep, const DAT_LMR_TRIPLET *seg,
                        const DAT_RMR_TRIPLET *remote, DAT_DTO_COOKIE cookie,
                        DAT_COMPLETION_FLAGS flags)
{
    struct softdat_conn *c = ep->conn;
    struct softdat_ia *ia = ep->h.ia;
    uint32_t len = seg->segment_length;
    struct softdat_frame *f;
    const uint8_t *from;

    if (!c || len == 0 || !may_transmit(c, ep) || !length_permitted(ep, remote, len)
        || (remote && remote->segment_length < len)
        || (flags & DAT_COMPLETION_BARRIER_FENCE_FLAG && ep->reads > 0))
        return false;
    from = softdat_region_at(softdat_region_find(ia, seg->lmr_context), ep->pz,
                             seg->virtual_address, len, 0);
    f = from ? softdat_shared_inline(c) : NULL;
    if (!f)
        return false;
    record(ep, remote ? DAT_DTO_RDMA_WRITE : DAT_DTO_SEND, len, cookie, flags);
    *f = (struct softdat_frame){
        .magic = SOFTDAT_WIRE_MAGIC, .type = remote ? SOFTDAT_WRITE : SOFTDAT_SEND, .len = len,
        .ack = c->executed, .key = remote ? remote->rmr_context : 0,
        .addr = remote ? remote->virtual_address : 0,
    };
    copy_short((uint8_t *)(f + 1), from, len);
    ia->count[remote ? SOFTDAT_N_WRITES : SOFTDAT_N_SENDS]++;
    ia->count[SOFTDAT_N_BYTES_OUT] += len;
    softdat_shared_inline_done(c, sizeof(*f) + len);
    return true;
}

/* -- receiving -------------------------------------------------------------------------------- */

/* Delivers a send to the oldest receive. */
static bool deliver_send(struct softdat_conn *c, const uint8_t *from, uint32_t len)
{
    struct softdat_ep *ep = c->ep;
    struct softdat_ring *ring = &ep->own.ring;
    struct softdat_dto *d = softdat_ring_at(ring, 0);
    struct softdat_ia *ia = c->ia;

    if (ep->srq || ring->count == 0 || d->n_seg != 1 || !softdat_list_empty(&c->held)
        || softdat_recv_check(ia, d, len) != DAT_DTO_SUCCESS)
        return false;
    copy_short(d->seg[0].at, from, len);
    d->len = len;
    ia->count[SOFTDAT_N_RECVS]++;
    ia->count[SOFTDAT_N_BYTES_IN] += len;
    softdat_ep_complete(ep, ep->recv_evd, d);
    softdat_ring_pop(ring);
    return true;
}

/* Stores an RDMA write; the last aligned word last. */
static bool store_write(struct softdat_conn *c, const struct softdat_frame *f, const uint8_t *from)
{
    uint8_t *at = softdat_region_at(softdat_region_find(c->ia, f->key), c->ep->pz, f->addr, f->len,
                                    DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    size_t tail = softdat_tail_len((uintptr_t)at, f->len);

    if (!at)
        return false;
    copy_short(at, from, f->len - tail);
    softdat_store_tail((uintptr_t)at + f->len - tail, from + f->len - tail, tail);
    return true;
}

bool softdat_short_receive(struct softdat_conn *c)
{
    size_t size;
    const uint8_t *at = c->plain && c->ep && c->hdr_have == 0 && !c->stalled && !c->discard_rx
                                && !softdat_break_pending(c)
                            ? softdat_shared_inline_read(c, &size) : NULL;
    struct softdat_frame f;
    bool done;

    if (!at || size <= sizeof(f))
        return false;
    memcpy(&f, at, sizeof(f));   /* once: the peer can change it at any time */
    if (f.magic != SOFTDAT_WIRE_MAGIC || f.len != size - sizeof(f))
        return false;
    at += sizeof(f);
    done = f.type == SOFTDAT_SEND ? deliver_send(c, at, f.len)
                                  : f.type == SOFTDAT_WRITE && store_write(c, &f, at);
    if (!done)
        return false;
    c->executed++;
    c->shared.head += (uint32_t)size;
    softdat_shared_ack(c);
    return true;
}
