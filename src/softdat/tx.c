/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    COALESCE_MAX = 512,          /* bytes of a frame that is copied to one buffer */
    TOGETHER_MAX = 1 << 18,      /* bytes of queued requests to which another one is added */
    CALL_MAX = 1 << 20,          /* bytes of a request that one round writes to a socket */
};

/* -- frames that are not requests ------------------------------------------------------------- */

/* Makes a frame: header f, and len bytes of payload: a copy of priv, or data registered under key.
 * NULL: out of memory; or it would be the response to more reads than an adapter has in flight. */
static struct softdat_out *make_out(struct softdat_conn *c, const struct softdat_frame *f,
                                    const void *data, uint32_t key, const void *priv, size_t len)
{
    bool excess = softdat_is_response(f) && c->responses == SOFTDAT_MAX_READS;
    struct softdat_out *out = excess ? NULL : softdat_alloc(sizeof(*out) + (priv ? len : 0));

    if (!out)
        return NULL;
    c->responses += softdat_is_response(f);
    out->f = *f;
    out->key = key;
    out->due = c->phase == SOFTDAT_OPEN ? softdat_delay_due(c->ia, c->port) : 0;
    out->f.magic = SOFTDAT_WIRE_MAGIC;
    out->f.len = (uint32_t)len;
    out->data = data;
    if (priv) {
        memcpy(out->priv, priv, len);
        out->data = out->priv;
    }
    return out;
}

/* Makes a frame and queues it. False: as make_out(). */
static bool queue(struct softdat_conn *c, const struct softdat_frame *f, const void *data,
                  uint32_t key, const void *priv, size_t len)
{
    struct softdat_out *out = make_out(c, f, data, key, priv, len);

    if (!out)
        return false;
    softdat_list_append(&c->out_queue, &out->link);
    softdat_tx_progress(c);
    return true;
}

/* The frames that make a link. */
static const bool links[SOFTDAT_FRAME_TYPES] = {
    [SOFTDAT_CONNECT] = true, [SOFTDAT_ACCEPT] = true, [SOFTDAT_MIGRATE] = true,
    [SOFTDAT_MIGRATED] = true, [SOFTDAT_STANDBY] = true, [SOFTDAT_STANDBY_OK] = true,
};

/* The header of a control frame; its length is set by make_out(). */
static struct softdat_frame control_header(struct softdat_conn *c, enum softdat_frame_type type)
{
    struct softdat_frame f = { .type = (uint8_t)type };

    if (links[type])
        f.status = (uint16_t)((c->port + 1u) | c->ia->cfg.n_ports << SOFTDAT_PORTS_SHIFT);
    if (type == SOFTDAT_CONNECT || type == SOFTDAT_STANDBY || type == SOFTDAT_MIGRATE)
        /* The peer cannot learn it from a unix socket. */
        f.addr = c->ia->cfg.port[c->port].addr.sin_addr.s_addr;
    if (type == SOFTDAT_CONNECT || type == SOFTDAT_STANDBY) {
        f.key = (uint32_t)c->token;
        f.id = (uint32_t)(c->token >> 32);
    }
    if (type == SOFTDAT_CONNECT)
        f.size = c->multipath;
    if (type == SOFTDAT_MIGRATE && c->migrates->ep && c->migrates->ep->alternate)
        f.id = c->migrates->ep->alternate->move;
    if (type == SOFTDAT_LOADED) {
        f.key = c->ep->alternate->path.local_port;
        f.id = c->ep->alternate->path.remote_port;
    }
    if (type == SOFTDAT_ACCEPT && c->ia->cfg.n_ports > 1)
        f.addr = c->ia->cfg.port[!c->port].addr.sin_addr.s_addr;
    if (type == SOFTDAT_ACCEPT || type == SOFTDAT_MIGRATED)
        f.size = c->shared.seg != NULL;
    return f;
}

bool softdat_tx_frame(struct softdat_conn *c, enum softdat_frame_type type, const void *priv,
                      size_t len)
{
    struct softdat_frame f = control_header(c, type);

    if (type == SOFTDAT_BYE)
        c->bye_sent = true;
    return queue(c, &f, NULL, 0, len > 0 ? priv : NULL, len);
}

bool softdat_tx_read_data(struct softdat_conn *c, const void *data, uint32_t len, uint32_t key)
{
    struct softdat_frame f = { .type = SOFTDAT_READ_DATA };

    return queue(c, &f, data, key, NULL, len);
}

bool softdat_tx_drop_responses(struct softdat_conn *c)
{
    struct softdat_list *l = c->out_queue.next;

    while (l != &c->out_queue) {
        struct softdat_out *out = SOFTDAT_OF(l, struct softdat_out, link);

        l = l->next;
        if (out->key == 0)
            continue;
        softdat_list_remove(&out->link);
        c->responses -= softdat_is_response(&out->f);
        softdat_free(out);
    }
    return !c->cur_out || c->cur_out->key == 0;
}

bool softdat_tx_nak(struct softdat_conn *c, uint32_t id, DAT_DTO_COMPLETION_STATUS status)
{
    struct softdat_frame f = { .type = SOFTDAT_NAK, .status = (uint16_t)status, .id = id };

    c->discard_rx |= SOFTDAT_DISCARD_NAK;
    return queue(c, &f, NULL, 0, NULL, 0);
}

bool softdat_tx_frame_first(struct softdat_conn *c, enum softdat_frame_type type, const void *priv,
                            size_t len)
{
    struct softdat_frame f = control_header(c, type);
    struct softdat_out *out = make_out(c, &f, NULL, 0, len > 0 ? priv : NULL, len);

    if (out)
        softdat_list_prepend(&c->out_queue, &out->link);
    return out != NULL;
}

/* -- the frame being transmitted -------------------------------------------------------------- */

static void add_bytes(struct softdat_conn *c, void *base, size_t len)
{
    c->cur[c->cur_n++] = (struct iovec){ base, len };
}

/* Makes f the current frame, or the last of several; due: its earliest transmit time, ns. */
static void begin(struct softdat_conn *c, const struct softdat_frame *f, uint64_t due)
{
    struct softdat_frame *hdr = &c->cur_hdr[c->cur_frames++];

    *hdr = *f;
    c->cur_due = due;
    if (!c->local && !c->deadline)
        softdat_path_set_deadline(c); /* a frame is outstanding from now on */
    c->cur_regions_freed = c->ia->regions_freed;
    hdr->ack = c->executed;
    c->acked = c->executed;
    c->unacked_bytes = 0;
    softdat_list_remove(&c->acks);
    add_bytes(c, hdr, sizeof(*hdr));
}

/* True if the memory of a queued READ response is still registered. */
static bool out_registered(struct softdat_ia *ia, const struct softdat_out *out)
{
    return out->key == 0 || softdat_region_find(ia, out->key);
}

/* Turns a READ response that has not begun into a NAK, because its registration has been freed. */
static void refuse_read(struct softdat_conn *c, struct softdat_out *out)
{
    c->discard_rx |= SOFTDAT_DISCARD_NAK;
    c->responses--;
    out->f.type = SOFTDAT_NAK;
    out->f.status = DAT_DTO_ERR_REMOTE_ACCESS;
    out->f.len = 0;
    out->key = 0;
}

static bool begin_out(struct softdat_conn *c)
{
    struct softdat_out *out;

    if (softdat_list_empty(&c->out_queue))
        return false;
    out = SOFTDAT_OF(c->out_queue.next, struct softdat_out, link);
    softdat_list_remove(&out->link);
    if (!out_registered(c->ia, out))
        refuse_read(c, out);
    begin(c, &out->f, out->due);
    c->cur_out = out;
    if (out->f.len > 0)
        add_bytes(c, (void *)(uintptr_t)out->data, out->f.len);
    return true;
}

/* The frame type of a request: with its payload, and for a direct copy by the target (0: none). */
static const struct { uint8_t plain, direct; } frame_of[] = {
    [DAT_DTO_SEND] = { SOFTDAT_SEND, 0 },
    [DAT_DTO_RDMA_WRITE] = { SOFTDAT_WRITE, SOFTDAT_PULL },
    [DAT_DTO_RDMA_READ] = { SOFTDAT_READ, SOFTDAT_PUSH },
    [DAT_IB_DTO_RDMA_WRITE_IMMED] = { SOFTDAT_WRITE_IMM, SOFTDAT_PULL_IMM },
    [DAT_IB_DTO_FETCH_ADD] = { SOFTDAT_ATOMIC, 0 },
    [DAT_IB_DTO_CMP_SWAP] = { SOFTDAT_ATOMIC, 0 },
};

/* True if the request may start: a fenced one waits until earlier reads are complete, a read while
 * max_rdma_read_out reads are in flight. */
static bool may_start(const struct softdat_ep *ep, const struct softdat_dto *d)
{
    if (d->flags & DAT_COMPLETION_BARRIER_FENCE_FLAG && ep->reads > 0)
        return false;
    return !softdat_is_read(d) || ep->reads < (uint32_t)ep->attr.max_rdma_read_out;
}

/* Applies a bind, which needs no frame, in its turn among the requests. False: d is not a bind. */
static bool apply_bind(struct softdat_ep *ep, struct softdat_dto *d)
{
    if (d->op != SOFTDAT_DTO_BIND)
        return false;
    if (d->state != SOFTDAT_DTO_DONE)
        softdat_bind_apply(&d->bind);
    d->state = SOFTDAT_DTO_DONE;
    ep->req.sent++;
    softdat_ep_reap(ep);
    return true;
}

static struct softdat_dto *next_to_start(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;
    struct softdat_dto *d;

    if (!ep || c->phase != SOFTDAT_OPEN)
        return NULL;
    do {
        if (ep->req.sent == ep->req.count)
            return NULL;
        d = softdat_ring_at(&ep->req, ep->req.sent);
        if (!may_start(ep, d))
            return NULL;
    } while (apply_bind(ep, d));
    return d;
}

static void add_iov(struct softdat_conn *c, const struct softdat_dto *d)
{
    for (int i = 0; i < d->n_seg; i++)
        add_bytes(c, d->seg[i].at, d->seg[i].len);
}

/* Appends the payload of request d to the frame that begin() has started and completes its
 * header. */
static void add_payload(struct softdat_conn *c, struct softdat_dto *d, bool direct)
{
    struct softdat_frame *f = &c->cur_hdr[c->cur_frames - 1];

    if (direct || d->op == DAT_DTO_RDMA_READ)
        f->size = (uint32_t)d->len;
    if (f->type == SOFTDAT_ATOMIC) {
        f->id = d->op == DAT_IB_DTO_FETCH_ADD ? SOFTDAT_FETCH_ADD : SOFTDAT_CMP_SWAP;
        f->len = sizeof(d->operand);
        memcpy(c->cur_list, d->operand, sizeof(d->operand));     /* d may be moved */
        add_bytes(c, c->cur_list, f->len);
    } else if (direct) {
        f->len = softdat_direct_list(d, c->cur_list);
        add_bytes(c, c->cur_list, f->len);
    } else if (d->op != DAT_DTO_RDMA_READ) {
        f->len = (uint32_t)d->len;
        add_iov(c, d);
    }
}

static bool begin_request(struct softdat_conn *c)
{
    struct softdat_ep *ep = c->ep;
    struct softdat_dto *d = next_to_start(c);
    uint16_t hint = 0;
    bool direct;

    if (!d)
        return false;
    if (!softdat_segs_registered(c->ia, d)) {
        softdat_fault_fail_request(c, d, DAT_DTO_ERR_LOCAL_PROTECTION);
        return false;
    }
    d->direct = d->judged = false;
    if (frame_of[d->op].direct)
        softdat_direct_choose(c, d);
    direct = d->direct;
    ep->req.sent++;
    d->state = SOFTDAT_DTO_SENT;
    c->ia->count[SOFTDAT_N_DIRECT] += direct;
    if (softdat_is_read(d)) {
        ep->reads++;
        c->reads_sent++;
    } else {
        hint = softdat_ack_hint(c, d->seq = ++ep->last_seq, d->len);
    }
    begin(c, &(struct softdat_frame){
        .magic = SOFTDAT_WIRE_MAGIC, .addr = d->raddr, .key = d->rkey, .id = d->ext ? d->imm : 0,
        .status = hint, .type = direct ? frame_of[d->op].direct : frame_of[d->op].plain,
    }, d->due);
    add_payload(c, d, direct);
    return true;
}

/* True if the next request may be transmitted by the same call as the current ones. */
static bool may_add(struct softdat_conn *c)
{
    struct softdat_ring *req = &c->ep->req;
    const struct softdat_dto *d = softdat_ring_at(req, req->sent);
    size_t bytes = 0;

    if (req->sent == req->count || (d->op != DAT_DTO_SEND && d->op != DAT_DTO_RDMA_WRITE))
        return false;
    for (int i = 0; i < c->cur_n; i++)
        bytes += c->cur[i].iov_len;
    return c->cur_n + 1 + d->n_seg <= SOFTDAT_CUR_IOV && bytes < TOGETHER_MAX;
}

/* Begins the next request and, on a stream, with it those that have queued behind it. */
static bool begin_requests(struct softdat_conn *c)
{
    bool any = begin_request(c);

    while (any && c->stream && c->plain && may_add(c) && begin_request(c))
        ;
    return any;
}

/* Accounts for n transmitted bytes of the current frames; frees them when they are complete. */
static void advance_current(struct softdat_conn *c, size_t n)
{
    struct iovec *v = c->cur + c->cur_at;
    int left = c->cur_n - c->cur_at;

    softdat_rate_charge(c, n);
    softdat_iov_step(&v, &left, n);
    c->cur_at = c->cur_n - left;
    if (left > 0)
        return;
    c->cur_n = c->cur_at = c->cur_frames = 0;
    if (c->cur_out) {
        c->responses -= softdat_is_response(&c->cur_out->f);
        if (softdat_is_answer(&c->cur_out->f))
            softdat_retransmit_keep(c, c->cur_out);
        else
            softdat_free(c->cur_out);
        c->cur_out = NULL;
        /* With a segment these are the last frames on the socket; the peer sends READY or
         * MIGRATE_DONE through the ring. */
        if ((c->cur_hdr[0].type == SOFTDAT_ACCEPT || c->cur_hdr[0].type == SOFTDAT_MIGRATED)
            && c->shared.seg)
            softdat_shared_start(c);
    }
}

/* Copies a short frame to one buffer: send() is cheaper than sendmsg() with several entries. */
static ssize_t send_pieces(struct softdat_conn *c, struct msghdr *m)
{
    uint8_t frame[COALESCE_MAX];
    size_t len = 0;

    for (size_t i = 0; i < m->msg_iovlen; i++) {
        if (m->msg_iov[i].iov_len > sizeof(frame) - len)
            return sendmsg(c->sock.fd, m, MSG_NOSIGNAL | MSG_DONTWAIT);
        memcpy(frame + len, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
        len += m->msg_iov[i].iov_len;
    }
    return send(c->sock.fd, frame, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void continue_when_writable(struct softdat_conn *c)
{
    c->blocked = true;
    if (!softdat_stream_polled(c))
        softdat_stream_watch(c);
}

static bool write_socket(struct softdat_conn *c, struct iovec *v, int n_v)
{
    struct msghdr m = { .msg_iov = v, .msg_iovlen = (size_t)n_v };
    ssize_t n = c->segment_fd >= 0 ? softdat_shared_send(c, &m) : send_pieces(c, &m);

    if (n >= 0) {
        advance_current(c, (size_t)n);
        return true;
    }
    if (errno == EINTR)
        return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
        continue_when_writable(c);
        return false;
    }
    /* The receive path ends the connection, after it has handled what has arrived. */
    shutdown(c->sock.fd, SHUT_WR);
    return false;
}

static bool write_ring(struct softdat_conn *c, struct iovec *v, int n_v)
{
    size_t n = softdat_shared_write(c, v, n_v);

    c->blocked = n == 0;
    if (c->blocked)
        softdat_round_complete(c->ia);
    if (n > 0)
        advance_current(c, n);
    return n > 0;
}

/* Returns how many of the current frames are not completely transmitted. */
static uint32_t unfinished(const struct softdat_conn *c)
{
    const void *first = c->cur_hdr, *end = c->cur_hdr + c->cur_frames;
    uint32_t headers = 0;
    bool header = false;

    for (int i = c->cur_n; i-- > c->cur_at; headers += header)
        header = c->cur[i].iov_base >= first && c->cur[i].iov_base < end;
    return headers + !header;    /* the first entry may be payload, of another frame */
}

/* Returns a request that is not completely transmitted and whose memory is not registered any more;
 * NULL: none. */
static struct softdat_dto *unregistered(struct softdat_conn *c)
{
    for (uint32_t n = unfinished(c); n > 0; n--) {
        struct softdat_dto *d = softdat_ring_at(&c->ep->req, c->ep->req.sent - n);

        if (!d->direct && !softdat_segs_registered(c->ia, d))
            return d;
    }
    return NULL;
}

/* Verifies the memory of half transmitted frames after a registration has been freed. False: it is
 * not registered, or the request is gone; no frame can be taken back, so the connection breaks. */
static bool recheck_current(struct softdat_conn *c)
{
    bool there = c->cur_out ? out_registered(c->ia, c->cur_out)
                            : c->ep && unfinished(c) <= c->ep->req.sent;
    struct softdat_dto *d = there && !c->cur_out ? unregistered(c) : NULL;

    c->cur_regions_freed = c->ia->regions_freed;
    if (d)
        softdat_fault_fail_request(c, d, DAT_DTO_ERR_LOCAL_PROTECTION);
    else if (!there)
        softdat_fault_break_later(c);
    return there && !d;
}

static bool write_some(struct softdat_conn *c)
{
    size_t allowed = softdat_rate_allow(c);
    size_t max = c->uses_rings || allowed < CALL_MAX ? allowed : CALL_MAX;
    struct iovec v[SOFTDAT_CUR_IOV], *from = c->cur + c->cur_at;
    int n = c->cur_n - c->cur_at;

    if (max == 0 || (c->cur_regions_freed != c->ia->regions_freed && !recheck_current(c)))
        return false;
    if (max != SIZE_MAX) {
        n = softdat_iov_prefix(from, n, max, v);
        from = v;
    }
    if (c->uses_rings)
        return write_ring(c, from, n);
    if (!write_socket(c, from, n))
        return false;
    /* The rest in a later round: a target that reads as fast as this writes would keep the
     * application's call here until the end of a request of any length. */
    if (c->cur_n == 0 || allowed != SIZE_MAX)
        return true;
    continue_when_writable(c);
    return false;
}

bool softdat_tx_idle(const struct softdat_conn *c)
{
    return c->cur_n == 0 && softdat_list_empty(&c->out_queue);
}

void softdat_tx_unblock(struct softdat_conn *c)
{
    if (!c->uses_rings)
        c->blocked = false;
    softdat_tx_progress(c);
}

void softdat_tx_progress(struct softdat_conn *c)
{
    if (c->sock.fd < 0 || c->phase == SOFTDAT_CONNECTING || softdat_path_cut(c)
        || softdat_break_pending(c) || (c->blocked && !c->uses_rings))
        return;
    for (;;) {
        if (c->cur_n == 0 && !begin_out(c) && !begin_requests(c))
            break;
        if (!write_some(c))
            return;
    }
    if (c->sock.events & EPOLLOUT)
        softdat_sock_set_events(c->ia, &c->sock, c->sock.events & ~(uint32_t)EPOLLOUT);
    if (c->bye_sent && softdat_tx_idle(c))
        shutdown(c->sock.fd, SHUT_WR);
}

void softdat_tx_short(struct softdat_conn *c, struct softdat_dto *d)
{
    struct { struct softdat_frame f; uint8_t payload[SOFTDAT_SHORT]; } whole;
    size_t len = sizeof(whole.f) + d->len;
    ssize_t n;

    begin(c, &(struct softdat_frame){
        .magic = SOFTDAT_WIRE_MAGIC, .type = frame_of[d->op].plain, .len = (uint32_t)d->len,
        .status = softdat_ack_hint(c, d->seq, d->len), .addr = d->raddr, .key = d->rkey,
    }, 0);
    add_iov(c, d);
    whole.f = c->cur_hdr[0];
    memcpy(whole.payload, d->seg[0].at, d->len);
    n = send(c->sock.fd, &whole, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)len) {
        c->cur_n = c->cur_at = c->cur_frames = 0;
        return;
    }
    if (n > 0)
        advance_current(c, (size_t)n);
    softdat_tx_progress(c);
}
