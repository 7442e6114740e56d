/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    SCRATCH = 1 << 16,           /* bytes of ia->scratch */
    READ_SMALL = 1 << 14,        /* read so much while headers are expected */
    READ_LITTLE = 512,           /* ... and so much between long frames */
    HELD_MAX = 1 << 22,          /* bytes of sends without a receive; then no more is read */
    ROUNDS = 16,                 /* reads from one socket before others get their turn */
};

/* -- where payload goes ----------------------------------------------------------------------- */

static void sink_start(struct softdat_sink *s, size_t len)
{
    *s = (struct softdat_sink){ .left = len };
}

static void sink_add(struct softdat_sink *s, void *base, size_t len)
{
    if (len > 0)
        s->iov[s->n++] = (struct iovec){ base, len };
}

static void sink_advance(struct softdat_sink *s, size_t n)
{
    s->left -= n;
    if (s->discard)
        return;
    while (n > 0) {
        struct iovec *v = &s->iov[s->at];
        size_t step = n < v->iov_len ? n : v->iov_len;

        v->iov_base = (char *)v->iov_base + step;
        v->iov_len -= step;
        n -= step;
        if (v->iov_len == 0)
            s->at++;
    }
}

static void sink_copy(struct softdat_sink *s, const uint8_t *from, size_t n)
{
    while (n > 0 && s->left > 0) {
        size_t step = n < s->left ? n : s->left;

        if (!s->discard) {
            if (step > s->iov[s->at].iov_len)
                step = s->iov[s->at].iov_len;
            memcpy(s->iov[s->at].iov_base, from, step);
        }
        sink_advance(s, step);
        from += step;
        n -= step;
    }
}

/* -- the last word of an RDMA write ----------------------------------------------------------- */

/*
 * Whoever polls memory for an RDMA write looks at its last word, so that word must become visible
 * last (UDAPL.md E1). The payload from the last 8-byte boundary on is kept aside and stored, in
 * naturally aligned pieces, the last with release order, when everything before it has landed.
 */
static size_t tail_of(uint64_t addr, size_t len)
{
    uint64_t last = (addr + len - 1) & ~(uint64_t)7;

    return len == 0 ? 0 : (size_t)(addr + len - (last > addr ? last : addr));
}

static void store_piece(uint8_t *to, const uint8_t *from, size_t size)
{
    uint64_t v8;
    uint32_t v4;
    uint16_t v2;

    if (size == 8) {
        memcpy(&v8, from, 8);
        atomic_store_explicit((_Atomic uint64_t *)(void *)to, v8, memory_order_release);
    } else if (size == 4) {
        memcpy(&v4, from, 4);
        atomic_store_explicit((_Atomic uint32_t *)(void *)to, v4, memory_order_release);
    } else if (size == 2) {
        memcpy(&v2, from, 2);
        atomic_store_explicit((_Atomic uint16_t *)(void *)to, v2, memory_order_release);
    } else {
        atomic_store_explicit((_Atomic uint8_t *)to, *from, memory_order_release);
    }
}

static void store_tail(uint64_t addr, const uint8_t *from, size_t len)
{
    size_t done = 0;

    while (done < len) {
        uint64_t at = addr + done;
        size_t size = 8;

        while (size > len - done || at % size)
            size /= 2;
        store_piece((uint8_t *)(uintptr_t)at, from + done, size);
        done += size;
    }
}

/* -- frames: at the header -------------------------------------------------------------------- */

static void sink_into(struct softdat_sink *s, const struct softdat_dto *d, size_t len)
{
    sink_start(s, len);
    for (int i = 0; i < d->n_seg && len > 0; i++) {
        size_t n = d->seg[i].len < len ? d->seg[i].len : len;

        sink_add(s, d->seg[i].at, n);
        len -= n;
    }
}

/* All of the frame's payload goes nowhere. */
static void discard(struct softdat_conn *c)
{
    sink_start(&c->sink, c->hdr.len);
    c->sink.discard = true;
}

/* A send and the receive that was taken for it do not go together: both ends learn it. */
static void fail_recv(struct softdat_conn *c, DAT_DTO_COMPLETION_STATUS status)
{
    softdat_tx_nak(c, c->executed + 1, DAT_DTO_ERR_REMOTE_RESPONDER);
    softdat_ep_recv_done(c->ep, status, 0, NULL);
}

/* Does what arrives fit the receive, and is its memory still registered? */
static DAT_DTO_COMPLETION_STATUS judge_recv(struct softdat_conn *c, struct softdat_dto *d,
                                            size_t len)
{
    return len > d->len ? DAT_DTO_ERR_LOCAL_LENGTH
           : !softdat_segs_registered(c->ia, d) ? DAT_DTO_ERR_LOCAL_PROTECTION : DAT_DTO_SUCCESS;
}

static struct softdat_held *hold(size_t len)
{
    struct softdat_held *h = malloc(sizeof(*h) + len);

    if (h)
        *h = (struct softdat_held){ .len = len };
    return h;
}

static bool head_send(struct softdat_conn *c)
{
    /* a held send is before it */
    struct softdat_dto *d = softdat_list_empty(&c->held) ? softdat_ep_take_recv(c->ep) : NULL;

    DAT_DTO_COMPLETION_STATUS status = d ? judge_recv(c, d, c->hdr.len) : DAT_DTO_SUCCESS;

    c->holding = NULL;
    if (status != DAT_DTO_SUCCESS) {
        discard(c);
        fail_recv(c, status);
        return true;
    }
    if (d) {
        sink_into(&c->sink, d, c->hdr.len);
        return true;
    }
    c->holding = hold(c->hdr.len);
    if (!c->holding)
        return false;
    sink_start(&c->sink, c->hdr.len);
    sink_add(&c->sink, c->holding->data, c->hdr.len);
    return true;
}

/* The memory that a request names, NULL when it may not. */
static uint8_t *target(const struct softdat_conn *c, uint64_t len, DAT_MEM_PRIV_FLAGS priv)
{
    return softdat_region_at(softdat_region_find(c->ia, c->hdr.key), c->ep->pz, c->hdr.addr, len,
                             priv);
}

static bool head_write(struct softdat_conn *c)
{
    size_t len = c->hdr.len;

    c->tail_len = 0;
    c->target = target(c, len, DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    sink_start(&c->sink, len);
    if (len == 0)
        return true;
    if (!c->target) {
        discard(c);
        return softdat_tx_nak(c, c->executed + 1, DAT_DTO_ERR_REMOTE_ACCESS);
    }
    c->tail_len = tail_of((uintptr_t)c->target, len);
    sink_add(&c->sink, c->target, len - c->tail_len);
    sink_add(&c->sink, c->tail, c->tail_len);
    return true;
}

static bool head_read(struct softdat_conn *c)
{
    uint8_t *at = target(c, c->hdr.want, DAT_MEM_PRIV_REMOTE_READ_FLAG);

    sink_start(&c->sink, 0);
    if (c->hdr.want > 0 && !at)
        return softdat_tx_nak(c, 0, DAT_DTO_ERR_REMOTE_ACCESS);
    return softdat_tx_read_data(c, at, c->hdr.want, c->hdr.want > 0 ? c->hdr.key : 0);
}

/* Payload that is not the request's data, but says more about it. */
static void sink_words(struct softdat_conn *c)
{
    sink_start(&c->sink, c->hdr.len);
    sink_add(&c->sink, c->priv, c->hdr.len);
}

static bool head_atomic(struct softdat_conn *c)
{
    if (c->hdr.len != sizeof(uint64_t[2]))
        return false;
    c->target = target(c, sizeof(uint64_t),
                       (DAT_MEM_PRIV_FLAGS)DAT_IB_MEM_PRIV_REMOTE_ATOMIC);
    sink_words(c);
    if (c->target && (uintptr_t)c->target % sizeof(uint64_t) == 0)
        return true;
    discard(c);
    return softdat_tx_nak(c, 0, DAT_DTO_ERR_REMOTE_ACCESS);
}

/* The same checks, but only the list of the caller's pieces comes by the connection. */
static bool head_direct(struct softdat_conn *c, DAT_MEM_PRIV_FLAGS priv, uint32_t id)
{
    const struct softdat_frame *f = &c->hdr;

    if (!c->ringed || !c->shared.reaches || f->want == 0 || f->len > sizeof(c->priv))
        return false;
    c->target = target(c, f->want, priv);
    sink_words(c);
    if (c->target)
        return true;
    discard(c);
    return softdat_tx_nak(c, id, DAT_DTO_ERR_REMOTE_ACCESS);
}

static bool head_pull(struct softdat_conn *c)
{
    return head_direct(c, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, c->executed + 1);
}

static bool head_push(struct softdat_conn *c)
{
    return head_direct(c, DAT_MEM_PRIV_REMOTE_READ_FLAG, 0);
}

/* The oldest READ that is under way. */
static struct softdat_dto *first_read(struct softdat_ep *ep)
{
    for (uint32_t i = 0; ep && i < ep->req.sent; i++) {
        struct softdat_dto *d = softdat_ring_at(&ep->req, i);

        if (softdat_is_read(d) && d->state == SOFTDAT_DTO_SENT)
            return d;
    }
    return NULL;
}

static bool head_read_data(struct softdat_conn *c)
{
    struct softdat_dto *d = first_read(c->ep);

    if (!d || d->len != c->hdr.len)
        return false;
    if (!softdat_segs_registered(c->ia, d)) {
        softdat_fault_blame(c, d, DAT_DTO_ERR_LOCAL_PROTECTION);
        discard(c);
        return true;
    }
    sink_into(&c->sink, d, c->hdr.len);
    return true;
}

static bool head_priv(struct softdat_conn *c)
{
    if (c->hdr.len > sizeof(c->priv))
        return false;
    sink_start(&c->sink, c->hdr.len);
    sink_add(&c->sink, c->priv, c->hdr.len);
    return true;
}

static bool head_bare(struct softdat_conn *c)
{
    sink_start(&c->sink, 0);
    return c->hdr.len == 0;
}

/* -- frames: in the middle, when a registration has ended ------------------------------------- */

/* Each of these looks again at the memory that the frame is about, and ends what may not go on. */

static void again_send(struct softdat_conn *c)
{
    if (c->holding || softdat_segs_registered(c->ia, &c->ep->taken))
        return;
    c->sink.discard = true;
    fail_recv(c, DAT_DTO_ERR_LOCAL_PROTECTION);
}

static void again_target(struct softdat_conn *c, DAT_MEM_PRIV_FLAGS priv, uint64_t len, uint32_t id)
{
    if (len == 0 || target(c, len, priv) == c->target)
        return;
    c->sink.discard = true;
    softdat_tx_nak(c, id, DAT_DTO_ERR_REMOTE_ACCESS);
}

static void again_write(struct softdat_conn *c)
{
    again_target(c, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, c->hdr.len, c->executed + 1);
}

static void again_pull(struct softdat_conn *c)
{
    again_target(c, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, c->hdr.want, c->executed + 1);
}

static void again_push(struct softdat_conn *c)
{
    again_target(c, DAT_MEM_PRIV_REMOTE_READ_FLAG, c->hdr.want, 0);
}

static void again_atomic(struct softdat_conn *c)
{
    again_target(c, (DAT_MEM_PRIV_FLAGS)DAT_IB_MEM_PRIV_REMOTE_ATOMIC, sizeof(uint64_t), 0);
}

static void again_read_data(struct softdat_conn *c)
{
    struct softdat_dto *d = first_read(c->ep);

    if (!d || softdat_segs_registered(c->ia, d))
        return;
    softdat_fault_blame(c, d, DAT_DTO_ERR_LOCAL_PROTECTION);
    c->sink.discard = true;
}

/* -- frames: all of it is here ---------------------------------------------------------------- */

/* The peer has executed it. False: the news has been lost, and the connection with it. */
static bool finish(struct softdat_conn *c, struct softdat_dto *d)
{
    if (softdat_fault_strikes(c->ia, SOFTDAT_FAULT_LOSE))
        softdat_fault_doom(c);
    else
        d->state = SOFTDAT_DTO_DONE;
    return d->state == SOFTDAT_DTO_DONE;
}

/* Everything up to request number `ack` has been executed by the peer. */
static bool hear_ack(struct softdat_conn *c, uint32_t ack)
{
    struct softdat_ep *ep = c->ep;

    if (!ep || softdat_doomed(c))
        return true;
    if ((int32_t)(ep->next_seq - ack) < 0)
        return false;
    for (uint32_t i = 0; i < ep->req.sent; i++) {
        struct softdat_dto *d = softdat_ring_at(&ep->req, i);

        if (softdat_is_read(d))
            continue;
        if ((int32_t)(ack - d->seq) < 0)
            break;
        if (d->state == SOFTDAT_DTO_SENT && !finish(c, d))
            break;
    }
    softdat_ep_reap(ep);
    return true;
}

/* What has come waits for a receive. One may have been posted meanwhile. */
static void wait_for_recv(struct softdat_conn *c, struct softdat_held *h)
{
    struct softdat_rq *rq = c->ep->rq;

    c->held_bytes += h->len;
    softdat_list_append(&c->held, &h->link);
    if (softdat_list_empty(&c->waiting))
        softdat_list_append(&rq->waiting, &c->waiting);
    softdat_rx_posted(rq);
}

static bool done_send(struct softdat_conn *c)
{
    struct softdat_held *h = c->holding;

    c->holding = NULL;
    if (h) {
        wait_for_recv(c, h);
        return true;
    }
    softdat_tx_owe_ack(c);
    softdat_ep_recv_done(c->ep, DAT_DTO_SUCCESS, c->hdr.len, NULL);
    return true;
}

static bool done_write(struct softdat_conn *c)
{
    if (c->hdr.len > 0)
        store_tail((uintptr_t)c->target + c->hdr.len - c->tail_len, c->tail, c->tail_len);
    softdat_tx_owe_ack(c);
    return true;
}

/* The write is in place; the news of it takes its turn among the sends. */
static bool tell_written(struct softdat_conn *c, uint64_t written)
{
    struct softdat_held *h = hold(0);

    if (!h)
        return false;
    h->imm = true;
    h->imm_data = c->hdr.id;
    h->written = written;
    wait_for_recv(c, h);
    return true;
}

static bool done_write_imm(struct softdat_conn *c)
{
    if (c->hdr.len > 0)
        store_tail((uintptr_t)c->target + c->hdr.len - c->tail_len, c->tail, c->tail_len);
    return tell_written(c, c->hdr.len);
}

static bool done_atomic(struct softdat_conn *c)
{
    _Atomic uint64_t *at = (_Atomic uint64_t *)(void *)c->target;
    uint64_t operand[2], old;

    memcpy(operand, c->priv, sizeof(operand));
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

static bool done_read_data(struct softdat_conn *c)
{
    struct softdat_dto *d = first_read(c->ep);

    if (!d)
        return false;
    if (softdat_doomed(c) || !finish(c, d))
        return true;
    c->ep->reads--;
    softdat_ep_reap(c->ep);
    softdat_tx_pump(c);          /* a fenced request or a further read may have waited */
    return true;
}

/* What could not be carried ends the connection: by the requester, who has withdrawn its consent
 * since it gives the request up, or by a NAK when its memory is not there: its own fault, so it
 * completes with a local error. */
static bool was_carried(struct softdat_conn *c, enum softdat_carried how, uint32_t id)
{
    if (how == SOFTDAT_UNREACHABLE)
        softdat_tx_nak(c, id, DAT_DTO_ERR_LOCAL_PROTECTION);
    if (how == SOFTDAT_WITHDRAWN)
        c->poisoned = true;
    return how == SOFTDAT_CARRIED;
}

static bool pull(struct softdat_conn *c)
{
    uint8_t tail[8];
    size_t tail_len = tail_of((uintptr_t)c->target, c->hdr.want);

    if (!was_carried(c, softdat_direct_pull(c, tail, tail_len), c->executed + 1))
        return false;
    store_tail((uintptr_t)c->target + c->hdr.want - tail_len, tail, tail_len);
    return true;
}

static bool done_pull(struct softdat_conn *c)
{
    if (pull(c))
        softdat_tx_owe_ack(c);
    return true;
}

static bool done_pull_imm(struct softdat_conn *c)
{
    return !pull(c) || tell_written(c, c->hdr.want);
}

static bool done_push(struct softdat_conn *c)
{
    return !was_carried(c, softdat_direct_push(c), 0)
           || softdat_tx_frame(c, SOFTDAT_PUSHED, NULL, 0);
}

static bool done_nothing(struct softdat_conn *c)
{
    (void)c;
    return true;
}

/* The peer refuses a request: it completes with the status, the connection is broken. */
static bool done_nak(struct softdat_conn *c)
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
        softdat_conn_leave(c, true);
        softdat_ep_down(ep, DAT_CONNECTION_EVENT_BROKEN);
    }
    return true;
}

static bool done_bye(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;

    c->heard_bye = true;
    if (ep) {
        softdat_conn_leave(c, true);
        softdat_ep_down(ep, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
    return true;
}

/* What each type is allowed to do; phase: open connections only, or connection management's own.
 * again: NULL for those that are about no registered memory. */
static const struct {
    bool open;
    bool (*head)(struct softdat_conn *);
    bool (*done)(struct softdat_conn *);
    void (*again)(struct softdat_conn *);
} frame[SOFTDAT_FRAME_TYPES] = {
    [SOFTDAT_CONNECT] = { false, head_priv, softdat_cm_frame },
    [SOFTDAT_ACCEPT] = { false, head_priv, softdat_cm_frame },
    [SOFTDAT_REJECT] = { false, head_priv, softdat_cm_frame },
    [SOFTDAT_READY] = { false, head_bare, softdat_cm_frame },
    [SOFTDAT_SEND] = { true, head_send, done_send, again_send },
    [SOFTDAT_WRITE] = { true, head_write, done_write, again_write },
    [SOFTDAT_READ] = { true, head_read, done_nothing },
    [SOFTDAT_READ_DATA] = { true, head_read_data, done_read_data, again_read_data },
    [SOFTDAT_ACK] = { true, head_bare, done_nothing },
    [SOFTDAT_NAK] = { true, head_bare, done_nak },
    [SOFTDAT_BYE] = { true, head_bare, done_bye },
    [SOFTDAT_PULL] = { true, head_pull, done_pull, again_pull },
    [SOFTDAT_PUSH] = { true, head_push, done_push, again_push },
    [SOFTDAT_WRITE_IMM] = { true, head_write, done_write_imm, again_write },
    [SOFTDAT_PULL_IMM] = { true, head_pull, done_pull_imm, again_pull },
    [SOFTDAT_ATOMIC] = { true, head_atomic, done_atomic, again_atomic },
    [SOFTDAT_PUSHED] = { true, head_bare, done_read_data },
};

/* The header is complete. False: this is not our protocol. */
static bool on_head(struct softdat_conn *c)
{
    const struct softdat_frame *f = &c->hdr;

    if (f->magic != SOFTDAT_WIRE_MAGIC || f->type == 0 || f->type >= SOFTDAT_FRAME_TYPES
        || f->len > UINT32_C(1) << 31)
        return false;
    if (frame[f->type].open
        && (c->phase < SOFTDAT_OPEN || (c->ep && !hear_ack(c, f->ack))))
        return false;
    if (frame[f->type].open && (c->poisoned || !c->ep) && f->type != SOFTDAT_BYE) {
        discard(c);
        return true;
    }
    c->expect_long = f->len > READ_SMALL;
    c->hdr_frees = c->ia->frees;
    return frame[f->type].head(c);
}

static bool on_done(struct softdat_conn *c)
{
    c->hdr_have = 0;
    if (c->sink.discard)
        return true;
    return frame[c->hdr.type].done(c);
}

/* A frame goes on that has come in part. If a registration has ended meanwhile, is its memory
 * still there? */
static void look_again(struct softdat_conn *c)
{
    if (c->hdr_have < sizeof(c->hdr) || c->hdr_frees == c->ia->frees)
        return;
    c->hdr_frees = c->ia->frees;
    if (!c->sink.discard && c->ep && frame[c->hdr.type].again)
        frame[c->hdr.type].again(c);
}

/* -- the socket ------------------------------------------------------------------------------- */

/* Takes n bytes that have been read. False: not our protocol. */
static bool parse(struct softdat_conn *c, const uint8_t *p, size_t n)
{
    for (;;) {
        size_t step;

        if (c->hdr_have < sizeof(c->hdr)) {
            step = sizeof(c->hdr) - c->hdr_have < n ? sizeof(c->hdr) - c->hdr_have : n;
            memcpy((uint8_t *)&c->hdr + c->hdr_have, p, step);
            c->hdr_have += step;
            p += step;
            n -= step;
            if (c->hdr_have < sizeof(c->hdr))
                return true;
            if (!on_head(c))
                return false;
        }
        step = c->sink.left < n ? c->sink.left : n;
        sink_copy(&c->sink, p, step);
        p += step;
        n -= step;
        if (c->sink.left > 0)
            return true;
        if (!on_done(c))
            return false;
        if (c->sock.fd < 0)
            return true;         /* it has ended with this frame */
    }
}

/* A first read on the called side of one host may bring the shared segment. */
static ssize_t read_call(struct softdat_conn *c)
{
    union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec v = { c->ia->scratch, READ_SMALL };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control,
                        .msg_controllen = sizeof(control.room) };
    ssize_t n = recvmsg(c->sock.fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    int fd;

    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS
        && h->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(&fd, CMSG_DATA(h), sizeof(fd));
        softdat_shared_take(c, fd);
    }
    return n;
}

/* Payload goes straight to its place, and in the same call what follows it is read ahead: little
 * where long frames are expected, whose payload would have to be copied again. */
static ssize_t read_frames(struct softdat_conn *c, size_t *asked_p)
{
    size_t ahead = c->expect_long ? READ_LITTLE : READ_SMALL;
    bool payload = c->hdr_have == sizeof(c->hdr) && !c->sink.discard;
    struct iovec v[SOFTDAT_MAX_IOV + 2];
    struct msghdr m = { .msg_iov = v };
    ssize_t n;

    *asked_p = ahead + (payload ? c->sink.left : 0);
    if (!payload)
        return recv(c->sock.fd, c->ia->scratch, ahead, MSG_DONTWAIT);
    m.msg_iovlen = (size_t)(c->sink.n - c->sink.at);
    memcpy(v, c->sink.iov + c->sink.at, m.msg_iovlen * sizeof(*v));
    v[m.msg_iovlen++] = (struct iovec){ c->ia->scratch, ahead };
    n = recvmsg(c->sock.fd, &m, MSG_DONTWAIT);
    return n;
}

/* One read. 1: go on, 0: nothing more now, -1: the end. */
static int read_some(struct softdat_conn *c, bool *any_p)
{
    size_t asked = READ_SMALL, placed = 0;
    bool payload;
    ssize_t n;

    if (!c->ringed)
        look_again(c);
    payload = c->hdr_have == sizeof(c->hdr) && !c->sink.discard && !c->ringed;
    n = c->ringed ? recv(c->sock.fd, c->ia->scratch, READ_SMALL, MSG_DONTWAIT)
                : c->local && c->phase == SOFTDAT_INCOMING ? read_call(c)
                                                           : read_frames(c, &asked);

    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno == EINTR ? 1 : -1;
    *any_p = true;
    if (n == 0)
        return -1;
    if (payload) {
        placed = (size_t)n < c->sink.left ? (size_t)n : c->sink.left;
        sink_advance(&c->sink, placed);
    }
    /* Beside rings a socket carries only bells; what they were rung for is looked at next. */
    if (!c->ringed && !parse(c, c->ia->scratch, (size_t)n - placed))
        return -1;
    return (size_t)n == asked;
}

static void set_stalled(struct softdat_conn *c, bool stalled)
{
    uint32_t events = c->sock.events & ~(uint32_t)EPOLLIN;

    c->stalled = stalled;
    softdat_sock_watch(c->ia, &c->sock, stalled ? events : events | EPOLLIN);
}

bool softdat_rx_ready(struct softdat_conn *c)
{
    bool any = false;
    int rc = 1;

    for (int i = 0; rc > 0 && i < ROUNDS && c->sock.fd >= 0 && !c->stalled; i++) {
        rc = read_some(c, &any);
        if (c->held_bytes > HELD_MAX)
            set_stalled(c, true);
    }
    if (rc < 0 && c->ringed)
        softdat_rx_ring(c);      /* what the peer wrote before it went is still good */
    if (rc < 0 && c->sock.fd >= 0)
        softdat_conn_lost(c);
    return any;
}

/* -- shared rings ----------------------------------------------------------------------------- */

static bool read_ring(struct softdat_conn *c)
{
    const uint8_t *p;
    bool any = false;
    size_t taken = 0;
    ssize_t n = 0;

    look_again(c);
    /* Not for ever, however fast the other side writes: ours must get to post receives. */
    while (c->sock.fd >= 0 && !c->stalled && taken < SOFTDAT_RING
           && (n = softdat_shared_peek(c, &p)) > 0) {
        any = true;
        taken += (size_t)n;
        if (!parse(c, p, (size_t)n)) {
            n = -1;
            break;
        }
        if (c->sock.fd < 0)
            break;
        softdat_shared_took(c, (size_t)n);
        if (c->held_bytes > HELD_MAX)
            set_stalled(c, true);
    }
    if (n < 0 && c->sock.fd >= 0)
        softdat_conn_lost(c);
    return any;
}

bool softdat_rx_ring(struct softdat_conn *c)
{
    bool any = read_ring(c);
    uint32_t executed;

    if (c->sock.fd < 0)
        return any;
    executed = softdat_shared_executed(c);
    if (executed != c->shared.heard) {
        any = true;
        c->shared.heard = executed;
        if (!hear_ack(c, executed)) {
            softdat_conn_lost(c);
            return any;
        }
    }
    if (c->blocked && c->sock.fd >= 0 && softdat_shared_has_room(c)) {
        any = true;
        softdat_tx_pump(c);
    }
    return any;
}

/* -- held sends ------------------------------------------------------------------------------- */

static void deliver(struct softdat_conn *c, const struct softdat_held *h)
{
    struct softdat_dto *d = softdat_ep_take_recv(c->ep);
    DAT_DTO_COMPLETION_STATUS status;
    struct softdat_sink s;

    status = judge_recv(c, d, h->len);
    if (status != DAT_DTO_SUCCESS) {
        fail_recv(c, status);
        return;
    }
    sink_into(&s, d, h->len);
    sink_copy(&s, h->data, h->len);
    softdat_tx_owe_ack(c);
    softdat_ep_recv_done(c->ep, DAT_DTO_SUCCESS, h->imm ? h->written : h->len,
                         h->imm ? &h->imm_data : NULL);
}

void softdat_rx_posted(struct softdat_rq *rq)
{
    while (rq->ring.count > 0 && !softdat_list_empty(&rq->waiting)) {
        struct softdat_conn *c = SOFTDAT_OF(rq->waiting.next, struct softdat_conn, waiting);
        struct softdat_held *h = SOFTDAT_OF(c->held.next, struct softdat_held, link);

        softdat_list_remove(&h->link);
        c->held_bytes -= h->len;
        deliver(c, h);
        free(h);
        if (c->poisoned || softdat_list_empty(&c->held))
            softdat_list_remove(&c->waiting);
        if (c->stalled && c->held_bytes <= HELD_MAX)
            set_stalled(c, false);
    }
}

void softdat_rx_free(struct softdat_conn *c)
{
    softdat_list_remove(&c->waiting);
    while (!softdat_list_empty(&c->held)) {
        struct softdat_held *h = SOFTDAT_OF(c->held.next, struct softdat_held, link);

        softdat_list_remove(&h->link);
        free(h);
    }
    free(c->holding);
    c->holding = NULL;
}
