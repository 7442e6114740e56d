/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <string.h>

/*
 * The calls of every message, in their usual case. Short sends and RDMA writes go over a ring: from
 * the triplet to the in-line frame of the ring, and from there to the destination, when nothing is
 * queued before them; over a stream by one send(), and from the bytes that it has received. They
 * are the frames of tx.c and frame.c, in the same order and with the same checks. Each call of DAT
 * ends by a tail call if its case is another one, so that no register is saved for what is rare; it
 * has changed nothing then.
 *
 * What makes the usual case of a connection is checked again only after something else than the
 * calls of this file has had the lock (ia->changes).
 */

/* memcpy() by words, of which the last two may overlap: a call costs more than the copy. */
static inline void copy_short(uint8_t *to, const uint8_t *from, size_t n)
{
    size_t i = 0;

    if (n < 8) {
        for (; i < n; i++)
            to[i] = from[i];
        return;
    }
    for (; i + 8 < n; i += 8)
        memcpy(to + i, from + i, 8);
    memcpy(to + n - 8, from + n - 8, 8);
}

bool softdat_short_plain(const struct softdat_conn *c)
{
    const struct softdat_config *cfg = &c->ia->cfg;
    bool faults = cfg->fatal_after != 0;

    for (int i = 0; i < SOFTDAT_FAULTS; i++)
        faults |= i != SOFTDAT_FAULT_LMR && cfg->often[i].n > 0;
    return !faults && !cfg->limits && !cfg->delays;
}

/* -- the usual case --------------------------------------------------------------------------- */

/* True if nothing is queued before a request of c that is posted now. */
static bool is_next(const struct softdat_conn *c)
{
    const struct softdat_ep *ep = c ? c->ep : NULL;

    return ep && c->plain && ep->state == DAT_EP_STATE_CONNECTED && c->cur_n == 0
           && ep->req.sent == ep->req.count && softdat_list_empty(&c->out_queue)
           && !softdat_break_pending(c) && !softdat_path_cut(c);
}

/* True if a request that is posted now may be transmitted at once by the ring of c. */
static bool may_transmit(struct softdat_conn *c)
{
    if (!is_next(c) || !c->uses_rings || !softdat_list_empty(&c->acks))
        return false;
    c->may_transmit = c->ia->changes;
    return true;
}

/* True if a short frame of c's link may be executed, and its requests completed, now. */
static bool may_receive(struct softdat_conn *c)
{
    const struct softdat_ep *ep = c->ep;

    if (!ep || !c->plain || ep->state != DAT_EP_STATE_CONNECTED || c->hdr_have > 0 || c->stalled
        || c->discard_rx || !softdat_list_empty(&c->held) || softdat_break_pending(c))
        return false;
    c->may_receive = c->ia->changes;
    return true;
}

/* Finds the registration of a segment for local_at(). False: it has none. */
static bool know(struct softdat_ep *ep, struct softdat_known *k, const DAT_LMR_TRIPLET *seg,
                 DAT_MEM_PRIV_FLAGS priv)
{
    const struct softdat_ia *ia = ep->h.ia;
    const struct softdat_region *r = softdat_region_find(ia, seg->lmr_context);

    if (!softdat_region_at(r, ep->pz, seg->virtual_address, seg->segment_length, priv))
        return false;
    *k = (struct softdat_known){ r->key, ia->regions_freed, r->va, r->len, r->at };
    return true;
}

/* Returns the local address of a segment whose registration was that of the one before; NULL: it
 * was not, or does not contain the segment. */
static inline uint8_t *local_at(const struct softdat_ia *ia, const struct softdat_known *k,
                                const DAT_LMR_TRIPLET *seg)
{
    uint64_t at = seg->virtual_address - k->va;

    return k->key == seg->lmr_context && k->regions_freed == ia->regions_freed
           && seg->segment_length <= k->len && at <= k->len - seg->segment_length
           ? k->at + at : NULL;
}

/* The begin of a call by the owner of the lock, which it takes. Returns local_at() of the segment;
 * NULL also if the bias has been revoked meanwhile: revoked() follows. */
static inline uint8_t *begin(struct softdat_ia *ia, const struct softdat_known *k,
                             const DAT_LMR_TRIPLET *seg)
{
    return datlock_begin(&ia->lock) ? local_at(ia, k, seg) : NULL;
}

/* True if the bias has been revoked since begin() was called; the lock is released then. */
static bool revoked(struct softdat_ia *ia)
{
    if (datlock_owned(&ia->lock))
        return false;
    datlock_leave(&ia->lock);
    return true;
}

/* The ends of a call: the lock is released, after a doorbell to the peer if one is due. */
__attribute__((noinline)) static DAT_RETURN wake_waiter(struct softdat_ia *ia)
{
    datlock_wake(&ia->lock);
    return DAT_SUCCESS;
}

__attribute__((noinline)) static DAT_RETURN ring_doorbell(struct softdat_conn *c, uint32_t armed)
{
    softdat_shared_wake_peer(c, armed);
    datlock_leave(&c->ia->lock);
    return DAT_SUCCESS;
}

static inline DAT_RETURN done(struct softdat_ia *ia)
{
    return datlock_end(&ia->lock) ? DAT_SUCCESS : wake_waiter(ia);
}

static inline DAT_RETURN done_with_ring(struct softdat_conn *c)
{
    uint32_t armed = softdat_doorbell_due(c);

    return armed ? ring_doorbell(c, armed) : done(c->ia);
}

/* -- transmitting ----------------------------------------------------------------------------- */

/* Stores the request in the queue as one that is transmitted, and returns it. */
static inline struct softdat_dto *record(struct softdat_ep *ep, int op, uint32_t len,
                                         DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
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
    d->plain = true;
    d->ext = 0;
    d->n_seg = 0;
    ep->req.count++;
    ep->req.sent++;
    ep->h.ia->count[op == DAT_DTO_SEND ? SOFTDAT_N_SENDS : SOFTDAT_N_WRITES]++;
    ep->h.ia->count[SOFTDAT_N_BYTES_OUT] += len;
    return d;
}

/* True if a request fits the queue of ep and need not wait for a read. */
static inline bool fits(const struct softdat_ep *ep, DAT_COMPLETION_FLAGS flags)
{
    return ep->req.count < ep->req.size
           && !(flags & DAT_COMPLETION_BARRIER_FENCE_FLAG && ep->reads > 0);
}

/* True if a request of ep, posted now, is the in-line frame of an idle ring. */
static inline bool posts_inline(const struct softdat_ep *ep, DAT_COMPLETION_FLAGS flags)
{
    struct softdat_conn *c = ep->conn;

    return c && c->may_transmit == c->ia->changes && fits(ep, flags)
           && softdat_all_read(&c->shared);
}

/* True if a request of ep, posted now, is transmitted by one call on a stream. */
static bool posts_on_stream(const struct softdat_ep *ep, DAT_COMPLETION_FLAGS flags)
{
    return is_next(ep->conn) && ep->conn->stream && !ep->conn->blocked && fits(ep, flags);
}

/* Posts a send (remote: NULL) or a write of the bytes at `from`. */
static inline __attribute__((always_inline)) DAT_RETURN
post(struct softdat_ep *ep, const uint8_t *from, uint32_t len, const DAT_RMR_TRIPLET *remote,
     DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct softdat_conn *c = ep->conn;
    struct softdat_frame *f = (struct softdat_frame *)(void *)c->shared.mine->inline_data;

    record(ep, remote ? DAT_DTO_RDMA_WRITE : DAT_DTO_SEND, len, cookie, flags);
    f->magic = SOFTDAT_WIRE_MAGIC;
    f->type = remote ? SOFTDAT_WRITE : SOFTDAT_SEND;
    f->status = 0;
    f->len = len;
    f->ack = c->executed;
    f->key = remote ? remote->rmr_context : 0;
    f->addr = remote ? remote->virtual_address : 0;
    f->size = f->id = 0;
    copy_short((uint8_t *)(f + 1), from, len);
    softdat_inline_note(&c->shared, (uint32_t)sizeof(*f) + len);
    softdat_shared_publish(c);
    return done_with_ring(c);
}

/* The same on a stream, with the lock, which it releases. The request keeps where its bytes are: it
 * is transmitted again if the link is replaced. */
static DAT_RETURN post_on_stream(struct softdat_ep *ep, uint8_t *from, const DAT_LMR_TRIPLET *seg,
                                 const DAT_RMR_TRIPLET *remote, DAT_DTO_COOKIE cookie,
                                 DAT_COMPLETION_FLAGS flags)
{
    struct softdat_ia *ia = ep->h.ia;
    struct softdat_dto *d = record(ep, remote ? DAT_DTO_RDMA_WRITE : DAT_DTO_SEND,
                                   seg->segment_length, cookie, flags);

    d->seg[0] = (struct softdat_seg){ from, seg->segment_length, seg->lmr_context };
    d->n_seg = 1;
    d->regions_freed = ia->regions_freed;
    d->due = 0;
    d->raddr = remote ? remote->virtual_address : 0;
    d->rkey = remote ? remote->rmr_context : 0;
    softdat_changing(ia);
    softdat_tx_short(ep->conn, d);
    return done(ia);
}

/* True if the segment is one of 1 to max bytes. */
static inline bool is_short(DAT_COUNT n, const DAT_LMR_TRIPLET *seg, uint32_t max)
{
    return n == 1 && seg && seg->segment_length - 1 < max;
}

/* With the lock, which it releases. True: the request is to be posted once more by the call that
 * has not found its case usual, and which will now. known: its registration was that before. */
static bool post_again(struct softdat_ep *ep, const DAT_LMR_TRIPLET *seg, bool known)
{
    bool stream = ep->conn && ep->conn->stream;
    bool again = stream ? !known && know(ep, &ep->known_out, seg, 0)
                        : (!posts_inline(ep, 0) || !known) && may_transmit(ep->conn)
                              && know(ep, &ep->known_out, seg, 0) && posts_inline(ep, 0);

    datlock_leave(&ep->h.ia->lock);
    return again;
}

/* from: of begin(). */
__attribute__((noinline)) static DAT_RETURN
send_again(struct softdat_ep *ep, uint8_t *from, DAT_LMR_TRIPLET *seg, DAT_DTO_COOKIE cookie,
           DAT_COMPLETION_FLAGS flags)
{
    if (revoked(ep->h.ia))
        return softdat_post_send(ep, 1, seg, cookie, flags);
    if (from && posts_on_stream(ep, flags))
        return post_on_stream(ep, from, seg, NULL, cookie, flags);
    return post_again(ep, seg, from != NULL) ? softdat_ep_post_send(ep, 1, seg, cookie, flags)
                                             : softdat_post_send(ep, 1, seg, cookie, flags);
}

DAT_RETURN softdat_ep_post_send(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct softdat_ep *ep = softdat_called(handle, DAT_HANDLE_TYPE_EP);
    uint8_t *from;

    if (!ep || !is_short(n, seg, ep->short_send) || !datlock_owned(&ep->h.ia->lock))
        return softdat_post_send(ep, n, seg, cookie, flags);
    from = begin(ep->h.ia, &ep->known_out, seg);
    if (!from || !posts_inline(ep, flags))
        return send_again(ep, from, seg, cookie, flags);
    return post(ep, from, seg->segment_length, NULL, cookie, flags);
}

__attribute__((noinline)) static DAT_RETURN
write_again(struct softdat_ep *ep, uint8_t *from, DAT_LMR_TRIPLET *seg, DAT_DTO_COOKIE cookie,
            const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags)
{
    if (revoked(ep->h.ia))
        return softdat_post_write(ep, 1, seg, cookie, remote, flags);
    if (from && posts_on_stream(ep, flags))
        return post_on_stream(ep, from, seg, remote, cookie, flags);
    return post_again(ep, seg, from != NULL)
               ? softdat_ep_post_rdma_write(ep, 1, seg, cookie, remote, flags)
               : softdat_post_write(ep, 1, seg, cookie, remote, flags);
}

DAT_RETURN softdat_ep_post_rdma_write(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                      DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                                      DAT_COMPLETION_FLAGS flags)
{
    struct softdat_ep *ep = softdat_called(handle, DAT_HANDLE_TYPE_EP);
    uint8_t *from;

    if (!ep || !remote || !is_short(n, seg, ep->short_rdma)
        || remote->segment_length < seg->segment_length || !datlock_owned(&ep->h.ia->lock))
        return softdat_post_write(ep, n, seg, cookie, remote, flags);
    from = begin(ep->h.ia, &ep->known_out, seg);
    if (!from || !posts_inline(ep, flags))
        return write_again(ep, from, seg, cookie, remote, flags);
    return post(ep, from, seg->segment_length, remote, cookie, flags);
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

/* -- posting a receive ------------------------------------------------------------------------ */

__attribute__((noinline)) static DAT_RETURN
recv_again(struct softdat_ep *ep, DAT_COUNT n, DAT_LMR_TRIPLET *seg, DAT_DTO_COOKIE cookie,
           DAT_COMPLETION_FLAGS flags)
{
    bool again;

    if (revoked(ep->h.ia))
        return softdat_post_recv(ep, n, seg, cookie, flags);
    again = !local_at(ep->h.ia, &ep->known_in, seg)
            && know(ep, &ep->known_in, seg, DAT_MEM_PRIV_LOCAL_WRITE_FLAG);
    datlock_leave(&ep->h.ia->lock);
    return again ? softdat_ep_post_recv(ep, n, seg, cookie, flags)
                 : softdat_post_recv(ep, n, seg, cookie, flags);
}

/* Adds its second segment to a receive. False: it is empty or one too many, or its registration is
 * not that of the first one. */
static inline bool add_second(const struct softdat_ep *ep, struct softdat_dto *d,
                              const DAT_LMR_TRIPLET *seg)
{
    uint8_t *to = local_at(ep->h.ia, &ep->known_in, seg);

    if (!to || ep->own.max_iov < 2 || seg->segment_length == 0)
        return false;
    d->seg[1] = (struct softdat_seg){ to, seg->segment_length, seg->lmr_context };
    d->n_seg = 2;
    d->len += seg->segment_length;
    return true;
}

/* The usual case: one segment or two of one registration, the EP is connected and has its own
 * receives, nothing waits for one. */
DAT_RETURN softdat_ep_post_recv(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct softdat_ep *ep = softdat_called(handle, DAT_HANDLE_TYPE_EP);
    struct softdat_ring *ring;
    struct softdat_dto *d;
    struct softdat_ia *ia;
    uint8_t *to;

    if (!ep || n < 1 || n > 2 || !seg || seg->segment_length == 0 || ep->srq
        || !datlock_owned(&ep->h.ia->lock))
        return softdat_post_recv(ep, n, seg, cookie, flags);
    ia = ep->h.ia;
    ring = &ep->own.ring;
    to = begin(ia, &ep->known_in, seg);
    if (!to || !ep->conn || ring->count == ring->size || !softdat_list_empty(&ep->own.waiting))
        return recv_again(ep, n, seg, cookie, flags);
    d = softdat_ring_at(ring, ring->count);
    d->seg[0] = (struct softdat_seg){ to, seg->segment_length, seg->lmr_context };
    d->n_seg = 1;
    d->len = seg->segment_length;
    if (n == 2 && !add_second(ep, d, seg + 1))
        return recv_again(ep, n, seg, cookie, flags);
    d->regions_freed = ia->regions_freed;
    softdat_recv_append(ring, d, cookie, flags);
    return done(ia);
}

/* -- receiving -------------------------------------------------------------------------------- */

/* Copies the in-line frame's header, once, as the peer can change it at any time. Returns the
 * length of the frame; 0: it is not in-line, or left to frame.c. */
static inline size_t header(struct softdat_conn *c, struct softdat_frame *f)
{
    size_t size = softdat_inline_length(&c->shared, (uint32_t)softdat_shared_counters(c));

    if (size <= sizeof(*f))
        return 0;
    memcpy(f, c->shared.theirs->inline_data, sizeof(*f));
    return f->magic == SOFTDAT_WIRE_MAGIC && f->len == size - sizeof(*f) ? size : 0;
}

static inline const uint8_t *payload(const struct softdat_conn *c)
{
    return c->shared.theirs->inline_data + sizeof(struct softdat_frame);
}

/* Copies a send of len bytes to the oldest receive and returns that; NULL: left to frame.c. */
static inline struct softdat_dto *deliver(struct softdat_conn *c, const uint8_t *from, uint32_t len)
{
    struct softdat_ep *ep = c->ep;
    struct softdat_ring *ring = &ep->own.ring;
    struct softdat_dto *d = softdat_ring_first(ring);

    if (ring->count == 0 /* as with an SRQ */ || d->n_seg == 0 || len > d->seg[0].len
        || d->regions_freed != c->ia->regions_freed)
        return NULL;
    copy_short(d->seg[0].at, from, len);
    d->len = len;
    c->ia->count[SOFTDAT_N_RECVS]++;
    c->ia->count[SOFTDAT_N_BYTES_IN] += len;
    return d;
}

/* Stores an RDMA write; the last aligned word last. */
static bool store_write(struct softdat_conn *c, const struct softdat_frame *f, const uint8_t *from)
{
    uint8_t *at = softdat_region_at(softdat_region_find(c->ia, f->key), c->ep->pz, f->addr, f->len,
                                    DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    size_t tail = softdat_tail_len((uintptr_t)at, f->len), first = f->len - tail;

    if (!at)
        return false;
    copy_short(at, from, first);
    softdat_store_tail((uintptr_t)at + first, from + first, tail);
    return true;
}

static bool execute_send(struct softdat_conn *c, const uint8_t *from, uint32_t len)
{
    struct softdat_dto *d = deliver(c, from, len);

    if (!d)
        return false;
    softdat_ep_complete(c->ep, c->ep->recv_evd, d);
    softdat_ring_pop(&c->ep->own.ring);
    return true;
}

/* Executes the frame if it is a send or write; from: its payload. */
static bool execute(struct softdat_conn *c, const struct softdat_frame *f, const uint8_t *from)
{
    return f->type == SOFTDAT_SEND ? execute_send(c, from, f->len)
                                   : f->type == SOFTDAT_WRITE && store_write(c, f, from);
}

bool softdat_short_receive(struct softdat_conn *c)
{
    struct softdat_frame f;
    size_t size = may_receive(c) ? header(c, &f) : 0;

    if (size == 0 || !execute(c, &f, payload(c)))
        return false;
    softdat_inline_executed(c, (uint32_t)size);
    softdat_doorbell(c);
    return true;
}

/* Executes the frame at the beginning of n bytes. Returns its length; 0: it is left to frame.c. */
static size_t stream_frame(struct softdat_conn *c, const uint8_t *p, size_t n)
{
    struct softdat_frame *f = &c->hdr;

    if (n <= sizeof(*f))
        return 0;
    memcpy(f, p, sizeof(*f));
    if (f->magic != SOFTDAT_WIRE_MAGIC || f->len == 0 || f->len > SOFTDAT_SHORT
        || f->len > n - sizeof(*f) || !softdat_frame_acked(c, f->ack)
        || !execute(c, f, p + sizeof(*f)))
        return 0;
    c->long_expected = false;
    softdat_ack_executed(c);
    return sizeof(*f) + f->len;
}

size_t softdat_short_stream(struct softdat_conn *c, const uint8_t *p, size_t n)
{
    size_t done = 0, size;

    while (may_receive(c) && (size = stream_frame(c, p + done, n - done)) > 0)
        done += size;
    return done;
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

/* The receive of a short send that is the in-line frame of c's ring. tail: of the bytes that the
 * peer has written. */
static inline DAT_RETURN received(struct softdat_evd *evd, DAT_EVENT *event,
                                  struct softdat_conn *c, uint32_t tail)
{
    uint32_t size = softdat_inline_length(&c->shared, tail);
    uint32_t len = size - (uint32_t)sizeof(struct softdat_frame);
    struct softdat_dto *d;
    uint64_t start;

    memcpy(&start, c->shared.theirs->inline_data, sizeof(start));
    if (c->ep->recv_evd != evd || size <= sizeof(struct softdat_frame)
        || start != softdat_frame_start(SOFTDAT_SEND, len) || !(d = deliver(c, payload(c), len)))
        return softdat_evd_dequeue_locked(evd, event);
    fill(event, evd, c->ep, d);
    softdat_ring_pop(&c->ep->own.ring);
    softdat_inline_executed(c, size);
    return done_with_ring(c);
}

/* The completion of the oldest request, if the peer has executed it and not more than is
 * outstanding. */
static inline DAT_RETURN sent(struct softdat_evd *evd, DAT_EVENT *event, struct softdat_conn *c,
                              uint32_t executed)
{
    struct softdat_ep *ep = c->ep;
    struct softdat_dto *d = softdat_ring_first(&ep->req);

    if (ep->req_evd != evd || ep->req.sent == 0 || !d->plain
        || d->flags & DAT_COMPLETION_SUPPRESS_FLAG || (int32_t)(executed - d->seq) < 0
        || (int32_t)(ep->last_seq - executed) < 0)
        return softdat_evd_dequeue_locked(evd, event);
    fill(event, evd, ep, d);
    softdat_ring_pop(&ep->req);
    if (executed == d->seq)
        c->shared.executed_seen = executed;
    return done(c->ia);
}

__attribute__((noinline)) static DAT_RETURN
event_again(struct softdat_evd *evd, DAT_EVENT *event, struct softdat_conn *c)
{
    return may_receive(c) ? softdat_short_event(evd, event, c)
                          : softdat_evd_dequeue_locked(evd, event);
}

DAT_RETURN softdat_short_event(struct softdat_evd *evd, DAT_EVENT *event, struct softdat_conn *c)
{
    uint64_t counters = softdat_shared_counters(c);

    if (c->may_receive != c->ia->changes)
        return event_again(evd, event, c);
    return (uint32_t)counters != c->shared.head
           ? received(evd, event, c, (uint32_t)counters)
           : sent(evd, event, c, (uint32_t)(counters >> 32));
}
