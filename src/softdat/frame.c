/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <string.h>

enum { LONG_PAYLOAD = 1 << 14 };  /* bytes of payload; a longer frame limits the read-ahead */

/*
 * Handlers of received frames. header_X checks the header of a frame of type X and prepares the
 * sink; complete_X executes the frame when its payload is complete; recheck_X verifies its memory
 * again when a registration has been freed while the payload was arriving.
 */

/* -- headers ---------------------------------------------------------------------------------- */

/* Makes the sink drop the whole payload. */
static void discard(struct softdat_conn *c)
{
    softdat_sink_start(&c->sink, c->hdr.len);
    c->sink.discard = true;
}

static bool header_send(struct softdat_conn *c)
{
    /* If earlier sends are held, this one needs a buffer as well. */
    struct softdat_dto *d = softdat_list_empty(&c->held) ? softdat_ep_pop_recv(c->ep) : NULL;
    DAT_DTO_COMPLETION_STATUS status = d ? softdat_recv_check(c->ia, d, c->hdr.len)
                                         : DAT_DTO_SUCCESS;

    if (status != DAT_DTO_SUCCESS) {
        discard(c);
        softdat_held_refuse(c, status);
        return true;
    }
    if (d) {
        softdat_sink_into(&c->sink, d, c->hdr.len);
        return true;
    }
    c->held_current = softdat_held_create(c->hdr.len);
    if (!c->held_current)
        return false;
    softdat_sink_start(&c->sink, c->hdr.len);
    softdat_sink_add(&c->sink, c->held_current->data, c->hdr.len);
    return true;
}

/* Returns the local address of the memory that the request names, len bytes with rights priv; NULL:
 * no such region, rights or bounds. */
static uint8_t *target(const struct softdat_conn *c, uint64_t len, DAT_MEM_PRIV_FLAGS priv)
{
    return softdat_region_at(softdat_region_find(c->ia, c->hdr.key), c->ep->pz, c->hdr.addr, len,
                             priv);
}

static bool header_write(struct softdat_conn *c)
{
    size_t len = c->hdr.len;

    c->tail_len = 0;
    c->target = target(c, len, DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    softdat_sink_start(&c->sink, len);
    if (len == 0)
        return true;
    if (!c->target) {
        discard(c);
        return softdat_tx_nak(c, c->executed + 1, DAT_DTO_ERR_REMOTE_ACCESS);
    }
    c->tail_len = softdat_tail_len((uintptr_t)c->target, len);
    softdat_sink_add(&c->sink, c->target, len - c->tail_len);
    softdat_sink_add(&c->sink, c->tail, c->tail_len);
    return true;
}

static bool header_read(struct softdat_conn *c)
{
    uint8_t *at = target(c, c->hdr.size, DAT_MEM_PRIV_REMOTE_READ_FLAG);

    softdat_sink_start(&c->sink, 0);
    if (c->hdr.size > 0 && !at)
        return softdat_tx_nak(c, 0, DAT_DTO_ERR_REMOTE_ACCESS);
    return softdat_tx_read_data(c, at, c->hdr.size, c->hdr.size > 0 ? c->hdr.key : 0);
}

/* Receives the payload into c->priv: it is part of the request, not its data. */
static void sink_to_priv(struct softdat_conn *c)
{
    softdat_sink_start(&c->sink, c->hdr.len);
    softdat_sink_add(&c->sink, c->priv, c->hdr.len);
}

static bool header_atomic(struct softdat_conn *c)
{
    if (c->hdr.len != sizeof(uint64_t[2]))
        return false;
    c->target = target(c, sizeof(uint64_t),
                       (DAT_MEM_PRIV_FLAGS)DAT_IB_MEM_PRIV_REMOTE_ATOMIC);
    sink_to_priv(c);
    if (c->target && (uintptr_t)c->target % sizeof(uint64_t) == 0)
        return true;
    discard(c);
    return softdat_tx_nak(c, 0, DAT_DTO_ERR_REMOTE_ACCESS);
}

/* PULL and PUSH: the payload is only the list of the requester's pieces. `id` is for a NAK. */
static bool header_direct(struct softdat_conn *c, DAT_MEM_PRIV_FLAGS priv, uint32_t id)
{
    const struct softdat_frame *f = &c->hdr;

    if (!c->uses_rings || !c->shared.access_verified || f->size == 0 || f->len > sizeof(c->priv))
        return false;
    c->target = target(c, f->size, priv);
    c->copied = 0;
    sink_to_priv(c);
    if (c->target)
        return true;
    discard(c);
    return softdat_tx_nak(c, id, DAT_DTO_ERR_REMOTE_ACCESS);
}

static bool header_pull(struct softdat_conn *c)
{
    return header_direct(c, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, c->executed + 1);
}

static bool header_push(struct softdat_conn *c)
{
    return header_direct(c, DAT_MEM_PRIV_REMOTE_READ_FLAG, 0);
}

/* Returns the oldest READ or ATOMIC in flight, whose response is next; NULL: none. */
static struct softdat_dto *oldest_read(struct softdat_ep *ep)
{
    for (uint32_t i = 0; ep && i < ep->req.sent; i++) {
        struct softdat_dto *d = softdat_ring_at(&ep->req, i);

        if (softdat_is_read(d) && d->state == SOFTDAT_DTO_SENT)
            return d;
    }
    return NULL;
}

static bool header_read_data(struct softdat_conn *c)
{
    struct softdat_dto *d = oldest_read(c->ep);

    if (!d || d->len != c->hdr.len)
        return false;
    if (!softdat_segs_registered(c->ia, d)) {
        softdat_fault_fail_request(c, d, DAT_DTO_ERR_LOCAL_PROTECTION);
        discard(c);
        return true;
    }
    softdat_sink_into(&c->sink, d, c->hdr.len);
    return true;
}

static bool header_priv(struct softdat_conn *c)
{
    if (c->hdr.len > sizeof(c->priv))
        return false;
    softdat_sink_start(&c->sink, c->hdr.len);
    softdat_sink_add(&c->sink, c->priv, c->hdr.len);
    return true;
}

static bool header_bare(struct softdat_conn *c)
{
    softdat_sink_start(&c->sink, 0);
    return c->hdr.len == 0;
}

/* -- memory of a partly received frame -------------------------------------------------------- */

static void recheck_send(struct softdat_conn *c)
{
    if (c->held_current || softdat_segs_registered(c->ia, &c->ep->current_recv))
        return;
    c->sink.discard = true;
    softdat_held_refuse(c, DAT_DTO_ERR_LOCAL_PROTECTION);
}

static void recheck_target(struct softdat_conn *c, DAT_MEM_PRIV_FLAGS priv, uint64_t len,
                           uint32_t id)
{
    if (len == 0 || target(c, len, priv) == c->target)
        return;
    c->sink.discard = true;
    softdat_tx_nak(c, id, DAT_DTO_ERR_REMOTE_ACCESS);
}

static void recheck_write(struct softdat_conn *c)
{
    recheck_target(c, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, c->hdr.len, c->executed + 1);
}

static void recheck_pull(struct softdat_conn *c)
{
    recheck_target(c, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, c->hdr.size, c->executed + 1);
}

static void recheck_push(struct softdat_conn *c)
{
    recheck_target(c, DAT_MEM_PRIV_REMOTE_READ_FLAG, c->hdr.size, 0);
}

static void recheck_atomic(struct softdat_conn *c)
{
    recheck_target(c, (DAT_MEM_PRIV_FLAGS)DAT_IB_MEM_PRIV_REMOTE_ATOMIC, sizeof(uint64_t), 0);
}

static void recheck_read_data(struct softdat_conn *c)
{
    struct softdat_dto *d = oldest_read(c->ep);

    if (!d || softdat_segs_registered(c->ia, d))
        return;
    softdat_fault_fail_request(c, d, DAT_DTO_ERR_LOCAL_PROTECTION);
    c->sink.discard = true;
}

/* -- complete frames -------------------------------------------------------------------------- */

/* Marks d as done: the peer has executed it. False: fault injection loses the completion, and c
 * breaks. */
static bool complete_request(struct softdat_conn *c, struct softdat_dto *d)
{
    if (softdat_fault_injected(c->ia, SOFTDAT_FAULT_LOSE))
        softdat_fault_break_later(c);
    else
        d->state = SOFTDAT_DTO_DONE;
    return d->state == SOFTDAT_DTO_DONE;
}

bool softdat_frame_acked(struct softdat_conn *c, uint32_t ack)
{
    struct softdat_ep *ep = c->ep;
    struct softdat_sample sample = { 0 };

    if (!ep || softdat_break_pending(c))
        return true;
    if ((int32_t)(ep->last_seq - ack) < 0)
        return false;
    c->peer_executed = ack;
    for (uint32_t i = 0; i < ep->req.sent; i++) {
        struct softdat_dto *d = softdat_ring_at(&ep->req, i);

        if (softdat_is_read(d))
            continue;
        if ((int32_t)(ack - d->seq) < 0)
            break;
        if (d->state != SOFTDAT_DTO_SENT)
            continue;
        if (!complete_request(c, d))
            break;
        softdat_direct_completed(&sample, d);
    }
    softdat_direct_judge(c, &sample);
    softdat_ep_reap(ep);
    return true;
}

static bool complete_send(struct softdat_conn *c)
{
    struct softdat_held *h = c->held_current;

    if (h) {
        c->held_current = NULL;
        softdat_held_queue(c, h);
        return true;
    }
    softdat_ack_executed(c);
    softdat_ep_recv_done(c->ep, DAT_DTO_SUCCESS, c->hdr.len, NULL);
    return true;
}

static bool complete_write(struct softdat_conn *c)
{
    if (c->hdr.len > 0)
        softdat_store_tail((uintptr_t)c->target + c->hdr.len - c->tail_len, c->tail, c->tail_len);
    softdat_ack_executed(c);
    return true;
}

/* Queues the notification of a write with immediate data, in order with the held sends. */
static bool queue_imm(struct softdat_conn *c, uint64_t written)
{
    struct softdat_held *h = softdat_held_create(0);

    if (!h)
        return false;
    h->imm = true;
    h->imm_data = c->hdr.id;
    h->written = written;
    softdat_held_queue(c, h);
    return true;
}

static bool complete_write_imm(struct softdat_conn *c)
{
    if (c->hdr.len > 0)
        softdat_store_tail((uintptr_t)c->target + c->hdr.len - c->tail_len, c->tail, c->tail_len);
    return queue_imm(c, c->hdr.len);
}

static bool complete_atomic(struct softdat_conn *c)
{
    _Atomic uint64_t *at = (_Atomic uint64_t *)(void *)c->target;
    uint64_t operand[2], old;

    memcpy(operand, c->priv, sizeof(operand));
    c->reads_taken++;
    if (c->hdr.id == SOFTDAT_FETCH_ADD) {
        old = atomic_fetch_add(at, operand[0]);
    } else if (c->hdr.id == SOFTDAT_CMP_SWAP) {
        old = operand[0];
        atomic_compare_exchange_strong(at, &old, operand[1]);
    } else {
        return false;
    }
    return softdat_tx_frame(c, SOFTDAT_READ_DATA, &old, sizeof(old));
}

static bool complete_read_data(struct softdat_conn *c)
{
    struct softdat_dto *d = oldest_read(c->ep);

    if (!d)
        return false;
    if (softdat_break_pending(c) || !complete_request(c, d))
        return true;
    softdat_direct_completed(&c->sample, d);
    c->ep->reads--;
    softdat_ep_reap(c->ep);
    softdat_tx_progress(c);      /* a fenced request or another read may be waiting */
    return true;
}

/* Returns true if the copy is complete. If not it goes on in the next round, or the connection
 * ends: after withdrawn consent the requester ends it; unmapped memory of the requester is refused
 * with a local error. */
static bool check_direct(struct softdat_conn *c, enum softdat_direct_result how, uint32_t id)
{
    c->copying = how == SOFTDAT_DIRECT_PART;
    if (c->copying) {
        c->hdr_have = sizeof(c->hdr);    /* the frame is not complete */
        softdat_round_complete(c->ia);
    }
    if (how == SOFTDAT_DIRECT_UNREACHABLE)
        softdat_tx_nak(c, id, DAT_DTO_ERR_LOCAL_PROTECTION);
    if (how == SOFTDAT_DIRECT_WITHDRAWN)
        c->discard_rx |= SOFTDAT_DISCARD_LINK;
    return how == SOFTDAT_DIRECT_DONE;
}

static bool pull(struct softdat_conn *c)
{
    size_t tail_len = softdat_tail_len((uintptr_t)c->target, c->hdr.size);

    if (!check_direct(c, softdat_direct_pull(c, c->tail, tail_len), c->executed + 1))
        return false;
    softdat_store_tail((uintptr_t)c->target + c->hdr.size - tail_len, c->tail, tail_len);
    return true;
}

static bool complete_pull(struct softdat_conn *c)
{
    if (pull(c))
        softdat_ack_executed(c);
    return true;
}

static bool complete_pull_imm(struct softdat_conn *c)
{
    return !pull(c) || queue_imm(c, c->hdr.size);
}

static bool complete_push(struct softdat_conn *c)
{
    if (!check_direct(c, softdat_direct_push(c), 0))
        return true;
    c->reads_taken++;
    return softdat_tx_frame(c, SOFTDAT_PUSHED, NULL, 0);
}

/* The response has been queued when the header arrived. */
static bool complete_read(struct softdat_conn *c)
{
    c->reads_taken++;
    return true;
}

static bool complete_nothing(struct softdat_conn *c)
{
    (void)c;
    return true;
}

/* NAK: the refused request completes with the status in the frame, and the connection breaks. */
static bool complete_nak(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;

    for (uint32_t i = 0; ep && i < ep->req.sent; i++) {
        struct softdat_dto *d = softdat_ring_at(&ep->req, i);
        bool read = softdat_is_read(d);

        if (d->state != SOFTDAT_DTO_SENT || (c->hdr.id ? read || d->seq != c->hdr.id : !read))
            continue;
        d->state = SOFTDAT_DTO_DONE;
        d->status = (DAT_DTO_COMPLETION_STATUS)c->hdr.status;
        break;
    }
    if (ep) {
        softdat_conn_detach(c, true);
        softdat_ep_down(ep, DAT_CONNECTION_EVENT_BROKEN);
    }
    return true;
}

static bool complete_bye(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;

    c->bye_received = true;
    if (ep) {
        softdat_conn_detach(c, true);
        softdat_ep_down(ep, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
    return true;
}

/* The handlers of each type. open: permitted on open connections only; else the handler checks the
 * phase. recheck: NULL if the frame names no registered memory. */
static const struct {
    bool open;
    bool (*header)(struct softdat_conn *);
    bool (*complete)(struct softdat_conn *);
    void (*recheck)(struct softdat_conn *);
} frame[SOFTDAT_FRAME_TYPES] = {
    [SOFTDAT_CONNECT] = { false, header_priv, softdat_cm_frame, NULL },
    [SOFTDAT_ACCEPT] = { false, header_priv, softdat_cm_frame, NULL },
    [SOFTDAT_REJECT] = { false, header_priv, softdat_cm_frame, NULL },
    [SOFTDAT_READY] = { false, header_bare, softdat_cm_frame, NULL },
    [SOFTDAT_SEND] = { true, header_send, complete_send, recheck_send },
    [SOFTDAT_WRITE] = { true, header_write, complete_write, recheck_write },
    [SOFTDAT_READ] = { true, header_read, complete_read, NULL },
    [SOFTDAT_READ_DATA] = { true, header_read_data, complete_read_data, recheck_read_data },
    [SOFTDAT_ACK] = { true, header_bare, complete_nothing, NULL },
    [SOFTDAT_NAK] = { true, header_bare, complete_nak, NULL },
    [SOFTDAT_BYE] = { true, header_bare, complete_bye, NULL },
    [SOFTDAT_PULL] = { true, header_pull, complete_pull, recheck_pull },
    [SOFTDAT_PUSH] = { true, header_push, complete_push, recheck_push },
    [SOFTDAT_WRITE_IMM] = { true, header_write, complete_write_imm, recheck_write },
    [SOFTDAT_PULL_IMM] = { true, header_pull, complete_pull_imm, recheck_pull },
    [SOFTDAT_ATOMIC] = { true, header_atomic, complete_atomic, recheck_atomic },
    [SOFTDAT_PUSHED] = { true, header_bare, complete_read_data, NULL },
    [SOFTDAT_MIGRATE] = { false, header_priv, softdat_cm_frame, NULL },
    [SOFTDAT_MIGRATED] = { false, header_priv, softdat_cm_frame, NULL },
    [SOFTDAT_MIGRATE_DONE] = { true, header_bare, softdat_cm_frame, NULL },
    [SOFTDAT_LOADED] = { true, header_bare, softdat_cm_frame, NULL },
    [SOFTDAT_STANDBY] = { false, header_bare, softdat_cm_frame, NULL },
    [SOFTDAT_STANDBY_OK] = { false, header_bare, softdat_cm_frame, NULL },
    [SOFTDAT_STANDBY_READY] = { false, header_bare, softdat_cm_frame, NULL },
    [SOFTDAT_MOVE] = { false, header_bare, softdat_cm_frame, NULL },
};

/* True if the frame is handled while all others are dropped. A NAK is: both sides may have refused
 * a request of the other, and each waits for the other's NAK. */
static bool ends_connection(const struct softdat_frame *f)
{
    return f->type == SOFTDAT_BYE || f->type == SOFTDAT_NAK;
}

bool softdat_frame_header(struct softdat_conn *c)
{
    const struct softdat_frame *f = &c->hdr;

    if (f->magic != SOFTDAT_WIRE_MAGIC || f->type == 0 || f->type >= SOFTDAT_FRAME_TYPES
        || f->len > UINT32_C(1) << 31)
        return false;
    if (frame[f->type].open
        && (c->phase < SOFTDAT_OPEN || (c->ep && !softdat_frame_acked(c, f->ack))))
        return false;
    if (frame[f->type].open && (c->discard_rx || !c->ep) && !ends_connection(f)) {
        discard(c);
        return true;
    }
    c->long_expected = f->len > LONG_PAYLOAD;
    c->hdr_regions_freed = c->ia->regions_freed;
    return frame[f->type].header(c);
}

bool softdat_frame_complete(struct softdat_conn *c)
{
    c->hdr_have = 0;
    c->copying = false;
    if (c->sink.discard)
        return true;
    return frame[c->hdr.type].complete(c);
}

void softdat_frame_recheck(struct softdat_conn *c)
{
    if (c->hdr_have < sizeof(c->hdr) || c->parked || c->hdr_regions_freed == c->ia->regions_freed)
        return;
    c->hdr_regions_freed = c->ia->regions_freed;
    if (!c->sink.discard && c->ep && frame[c->hdr.type].recheck)
        frame[c->hdr.type].recheck(c);
}
