/* SPDX-License-Identifier: MIT */
#include "hv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

/* -- completions ------------------------------------------------------------------------------ */

static void complete(uint32_t cq_num, struct hv_cqe cqe)
{
    struct hv_cq *cq = hv_cq(cq_num);

    if (!cq)
        return;
    if (cq->head - cq->tail >= cq->max) {
        fprintf(stderr, "verbs of one host: a CQ of %u entries overflows\n", cq->max);
        return;
    }
    cq->cqe[cq->head % cq->max] = cqe;
    __atomic_store_n(&cq->head, cq->head + 1, __ATOMIC_RELEASE);
    if (cq->armed) {
        cq->armed = false;
        hv_count(HV_NOTIFICATIONS, 1);
        hv_fifo_write(cq->fifo, &cq->num, sizeof(cq->num));
    }
}

static void complete_send(struct hv_qp *qp, const struct hv_send *s, int op, int status)
{
    complete(qp->send_cq, (struct hv_cqe){ .id = s->id, .status = status, .op = op,
                                           .bytes = s->bytes, .qpn = qp->num, .of_send = true,
                                           .polled = qp->send_tail });
}

struct hv_rq *hv_rq(struct hv_qp *qp)
{
    struct hv_srq *srq = hv_srq(qp->srq);

    return srq ? &srq->rq : &qp->rq;
}

void hv_check_limit(struct hv_srq *srq)
{
    if (!srq || srq->rq.head - srq->rq.tail >= srq->limit)
        return;
    srq->limit = 0;
    hv_fifo_write(srq->async, &(struct hv_async){ IBV_EVENT_SRQ_LIMIT_REACHED, srq->num },
                  sizeof(struct hv_async));
}

/* What lies before a message in its receive. */
static uint32_t header_of(const struct hv_qp *qp)
{
    return qp->ud ? HV_GRH : 0;
}

static void complete_recv(struct hv_qp *qp, const struct hv_send *from, int op, int status)
{
    struct hv_rq *rq = hv_rq(qp);
    const struct hv_recv *r = &rq->recv[rq->tail++ % rq->max];

    complete(qp->recv_cq, (struct hv_cqe){ .id = r->id, .status = status, .op = op,
                                           .bytes = from ? header_of(qp) + from->bytes : 0,
                                           .qpn = qp->num, .imm = from ? from->imm : 0,
                                           .from = from ? from->from : 0,
                                           .with_imm = from && from->op != IBV_WR_SEND });
    hv_check_limit(hv_srq(qp->srq));
}

static void flush(struct hv_qp *qp)
{
    while (qp->send_tail != qp->send_head) {
        const struct hv_send *s = &qp->send[qp->send_tail++ % qp->send_max];

        complete_send(qp, s, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR);
    }
    while (!qp->srq && qp->rq.tail != qp->rq.head)
        complete_recv(qp, NULL, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR);
}

void hv_fail(struct hv_qp *qp)
{
    bool first = qp->state != IBV_QPS_ERR;

    qp->state = IBV_QPS_ERR;
    flush(qp);
    if (first && qp->srq)
        hv_fifo_write(qp->async, &(struct hv_async){ IBV_EVENT_QP_LAST_WQE_REACHED, qp->num },
                      sizeof(struct hv_async));
}

void hv_reset(struct hv_qp *qp)
{
    qp->state = IBV_QPS_RESET;
    qp->send_tail = qp->send_polled = qp->send_head;
    qp->rq.tail = qp->rq.head;
    qp->dest = 0;
    qp->hold = qp->early = false;
}

/* -- memory ----------------------------------------------------------------------------------- */

static bool allowed(const struct hv_qp *qp, uint32_t key, uint64_t addr, uint64_t bytes, int access)
{
    const struct hv_mr *mr = &hv_process()->shared->mr[key % HV_MRS];

    return key && mr->num == key && mr->pd == qp->pd && addr >= mr->start &&
           addr + bytes <= mr->start + mr->bytes && (mr->access & access) == access;
}

static bool all_allowed(const struct hv_qp *qp, const struct ibv_sge *sge, int n, int access)
{
    for (int i = 0; i < n; i++)
        if (sge[i].length && !allowed(qp, sge[i].lkey, sge[i].addr, sge[i].length, access))
            return false;
    return true;
}

/* The last word lands last, as with an adapter that places a write in order: MPI with RING=on
 * relies on that. The stores of one copy by the kernel (rep movs) may become visible in any order,
 * those of two one after the other. */
static bool write_in_order(pid_t pid, const struct iovec *local, uint64_t to)
{
    size_t bytes = local->iov_len, last = bytes < sizeof(uint64_t) ? bytes : sizeof(uint64_t);
    struct iovec remote[] = {
        { (void *)(uintptr_t)to, bytes - last },
        { (void *)(uintptr_t)(to + bytes - last), last },
    };

    return process_vm_writev(pid, local, 1, remote, 2, 0) == (ssize_t)bytes;
}

/* One of the two processes is this one. False: the other one has gone, or has unmapped it. */
static bool copy(pid_t to_pid, uint64_t to, pid_t from_pid, uint64_t from, size_t bytes)
{
    pid_t me = hv_process()->pid;
    struct iovec local = { (void *)(uintptr_t)(to_pid == me ? to : from), bytes };
    struct iovec remote = { (void *)(uintptr_t)(to_pid == me ? from : to), bytes };

    if (to_pid == me && from_pid == me) {
        memmove(local.iov_base, remote.iov_base, bytes);
        return true;
    }
    if (to_pid == me)
        return process_vm_readv(from_pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes;
    return write_in_order(to_pid, &local, to);
}

struct side {
    pid_t pid;
    int n;
    const struct ibv_sge *sge;
    uint32_t skipped;    /* bytes before the first */
};

/* Moves bytes from one list of pieces to another; both have at least so many. */
static bool move(struct side to, struct side from, uint32_t bytes)
{
    uint32_t to_done = to.skipped, from_done = from.skipped, piece;

    for (; bytes; bytes -= piece) {
        while (to_done >= to.sge->length)
            to_done -= to.sge++->length;
        while (from_done >= from.sge->length)
            from_done -= from.sge++->length;
        piece = to.sge->length - to_done;
        if (piece > from.sge->length - from_done)
            piece = from.sge->length - from_done;
        if (piece > bytes)
            piece = bytes;
        if (!copy(to.pid, to.sge->addr + to_done, from.pid, from.sge->addr + from_done, piece))
            return false;
        to_done += piece;
        from_done += piece;
    }
    return true;
}

/* -- operations ------------------------------------------------------------------------------- */

static const struct op {
    bool known, receives, writes, reads, atomic;
    int local, remote;    /* access that the operation needs */
    int wc, recv_wc;
} ops[] = {
    [IBV_WR_SEND] = { true, .receives = true, .wc = IBV_WC_SEND, .recv_wc = IBV_WC_RECV },
    [IBV_WR_SEND_WITH_IMM] = { true, .receives = true, .wc = IBV_WC_SEND,
                               .recv_wc = IBV_WC_RECV },
    [IBV_WR_RDMA_WRITE] = { true, .writes = true, .remote = IBV_ACCESS_REMOTE_WRITE,
                            .wc = IBV_WC_RDMA_WRITE },
    [IBV_WR_RDMA_WRITE_WITH_IMM] = { true, .writes = true, .receives = true,
                                     .remote = IBV_ACCESS_REMOTE_WRITE, .wc = IBV_WC_RDMA_WRITE,
                                     .recv_wc = IBV_WC_RECV_RDMA_WITH_IMM },
    [IBV_WR_RDMA_READ] = { true, .reads = true, .local = IBV_ACCESS_LOCAL_WRITE,
                           .remote = IBV_ACCESS_REMOTE_READ, .wc = IBV_WC_RDMA_READ },
    [IBV_WR_ATOMIC_CMP_AND_SWP] = { true, .reads = true, .atomic = true,
                                    .local = IBV_ACCESS_LOCAL_WRITE,
                                    .remote = IBV_ACCESS_REMOTE_ATOMIC, .wc = IBV_WC_COMP_SWAP },
    [IBV_WR_ATOMIC_FETCH_AND_ADD] = { true, .reads = true, .atomic = true,
                                      .local = IBV_ACCESS_LOCAL_WRITE,
                                      .remote = IBV_ACCESS_REMOTE_ATOMIC,
                                      .wc = IBV_WC_FETCH_ADD },
};

static struct side source(const struct hv_qp *qp, const struct hv_send *s, struct ibv_sge *inlined)
{
    *inlined = (struct ibv_sge){ .addr = (uintptr_t)s->data, .length = s->bytes };
    if (s->inlined)
        return (struct side){ hv_process()->pid, 1, inlined, 0 };
    return (struct side){ qp->pid, s->n_sge, s->sge, 0 };
}

/* A send into the peer's next receive. */
static int deliver(struct hv_qp *qp, struct hv_qp *peer, const struct hv_send *s)
{
    const struct hv_rq *rq = hv_rq(peer);
    const struct hv_recv *r = &rq->recv[rq->tail % rq->max];
    struct ibv_sge inlined;

    if (header_of(peer) + s->bytes > r->bytes) {
        complete_recv(peer, NULL, IBV_WC_RECV, IBV_WC_LOC_LEN_ERR);
        return IBV_WC_REM_INV_REQ_ERR;
    }
    if (!all_allowed(peer, r->sge, r->n_sge, IBV_ACCESS_LOCAL_WRITE)) {
        complete_recv(peer, NULL, IBV_WC_RECV, IBV_WC_LOC_PROT_ERR);
        return IBV_WC_REM_OP_ERR;
    }
    if (!move((struct side){ peer->pid, r->n_sge, r->sge, header_of(peer) },
              source(qp, s, &inlined), s->bytes))
        return IBV_WC_RETRY_EXC_ERR;
    return IBV_WC_SUCCESS;
}

/* The new value of an atomic operation's 8 bytes. */
static uint64_t operate(const struct hv_send *s, uint64_t old)
{
    if (s->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
        return old + s->compare_add;
    return old == s->compare_add ? s->swap : old;
}

/* An RDMA operation on the peer's memory. */
static int access_remote(struct hv_qp *qp, struct hv_qp *peer, const struct hv_send *s)
{
    const struct op *op = &ops[s->op];
    struct ibv_sge far = { .addr = s->remote, .length = s->bytes }, inlined;
    struct side remote = { peer->pid, 1, &far, 0 }, local = source(qp, s, &inlined);
    uint64_t value = 0;
    bool ok;

    if ((peer->access & op->remote) != op->remote ||
        (s->bytes && !allowed(peer, s->rkey, s->remote, s->bytes, op->remote)))
        return IBV_WC_REM_ACCESS_ERR;
    if (op->atomic && (s->bytes != sizeof(value) || s->remote % sizeof(value)))
        return IBV_WC_REM_INV_REQ_ERR;
    if (op->atomic) {
        ok = copy(hv_process()->pid, (uintptr_t)&value, peer->pid, s->remote, sizeof(value));
        struct ibv_sge here = { .addr = (uintptr_t)&value, .length = sizeof(value) };
        ok = ok && move(local, (struct side){ hv_process()->pid, 1, &here, 0 }, sizeof(value));
        value = operate(s, value);
        ok = ok && copy(peer->pid, s->remote, hv_process()->pid, (uintptr_t)&value, sizeof(value));
    } else {
        ok = op->reads ? move(local, remote, s->bytes) : move(remote, local, s->bytes);
    }
    return ok ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
}

static bool can_receive(const struct hv_qp *peer)
{
    return peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS;
}

static bool has_receive(struct hv_qp *qp)
{
    return hv_rq(qp)->tail != hv_rq(qp)->head;
}

/* Nobody reports what becomes of a datagram. */
static int send_datagram(struct hv_qp *qp, const struct hv_send *s)
{
    struct hv_qp *to = hv_qp(s->to);

    if (!s->inlined && !all_allowed(qp, s->sge, s->n_sge, 0))
        return IBV_WC_LOC_PROT_ERR;
    if (to && to->ud && to->qkey == s->qkey && can_receive(to) && has_receive(to) &&
        deliver(qp, to, s) == IBV_WC_SUCCESS)
        complete_recv(to, s, IBV_WC_RECV, IBV_WC_SUCCESS);
    return IBV_WC_SUCCESS;
}

/* The status of a request that is not waiting for a receive. */
static int carry_out(struct hv_qp *qp, struct hv_qp *peer, const struct hv_send *s)
{
    const struct op *op = &ops[s->op];
    /* the sink of a read is written by the network: iWARP wants it open to that (RFC 5040, 5.2) */
    int local = op->local | (op->reads && hv_process()->iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);
    int status = IBV_WC_SUCCESS;

    if (qp->ud)
        return send_datagram(qp, s);
    if (!peer || !hv_path_carries(qp, peer))
        return IBV_WC_RETRY_EXC_ERR;
    if (!s->inlined && !all_allowed(qp, s->sge, s->n_sge, local))
        return IBV_WC_LOC_PROT_ERR;
    if (op->remote)
        status = access_remote(qp, peer, s);
    else
        status = deliver(qp, peer, s);
    if (status == IBV_WC_SUCCESS && op->receives)
        complete_recv(peer, s, op->recv_wc, IBV_WC_SUCCESS);
    return status;
}

/* The QP at the other end, if it is connected to this one; NULL else. */
static struct hv_qp *other_end(const struct hv_qp *qp)
{
    struct hv_qp *peer = hv_qp(qp->dest);

    return peer && (!peer->dest || peer->dest == qp->num) ? peer : NULL;
}

void hv_transmit(struct hv_qp *qp)
{
    if (qp->hold && qp->send_tail != qp->send_head) {
        qp->early = true;
        return;
    }
    while (qp->state == IBV_QPS_RTS && qp->send_tail != qp->send_head) {
        const struct hv_send *s = &qp->send[qp->send_tail % qp->send_max];
        struct hv_qp *peer = other_end(qp);
        int status;

        if (peer && peer->state == IBV_QPS_INIT)
            return;    /* it answers as soon as it is connected */
        if (peer && can_receive(peer) && ops[s->op].receives && !has_receive(peer))
            return;    /* RNR */
        status = carry_out(qp, peer && can_receive(peer) ? peer : NULL, s);
        qp->send_tail++;
        if (status != IBV_WC_SUCCESS || s->signaled)
            complete_send(qp, s, ops[s->op].wc, status);
        if (status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
            status == IBV_WC_REM_OP_ERR)
            hv_fail(peer);
        if (status != IBV_WC_SUCCESS)
            hv_fail(qp);
    }
}

void hv_transmit_to(struct hv_qp *qp)
{
    struct hv_qp *peer = hv_qp(qp->dest);

    if (peer && peer->dest == qp->num)
        hv_transmit(peer);
}

/* -- the fast calls --------------------------------------------------------------------------- */

static struct hv_qp *of(struct ibv_qp *qp)
{
    return ((struct hv_qp_handle *)qp)->of;
}

static struct ibv_wc take(const struct hv_cqe *e)
{
    struct hv_qp *qp = hv_qp(e->qpn);

    if (qp && e->of_send)
        qp->send_polled = e->polled;
    return (struct ibv_wc){ .wr_id = e->id, .status = (enum ibv_wc_status)e->status,
                            .opcode = (enum ibv_wc_opcode)e->op, .byte_len = e->bytes,
                            .qp_num = e->qpn, .src_qp = e->from, .imm_data = e->imm,
                            .wc_flags = e->with_imm ? IBV_WC_WITH_IMM : 0 };
}

int hv_poll_cq(struct ibv_cq *handle, int n, struct ibv_wc *wc)
{
    uint32_t num = ((struct hv_cq_handle *)handle)->num;
    struct hv_cq *cq = &hv_process()->shared->cq[num % HV_CQS];
    int k = 0;

    hv_count(HV_POLLS, 1);
    if (__atomic_load_n(&cq->head, __ATOMIC_ACQUIRE) ==
        __atomic_load_n(&cq->tail, __ATOMIC_RELAXED))
        return 0;
    hv_lock();
    while (k < n && cq->tail != cq->head)
        wc[k++] = take(&cq->cqe[cq->tail++ % cq->max]);
    hv_unlock();
    hv_count(HV_COMPLETIONS, (unsigned long)k);
    return k;
}

int hv_req_notify_cq(struct ibv_cq *handle, int solicited_only)
{
    (void)solicited_only;
    hv_count(HV_ARMS, 1);
    hv_lock();
    hv_cq(((struct hv_cq_handle *)handle)->num)->armed = true;
    hv_unlock();
    return 0;
}

static uint32_t sum(const struct ibv_sge *sge, int n)
{
    uint32_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += sge[i].length;
    return bytes;
}

static void inline_bytes(struct hv_send *s)
{
    size_t at = 0;

    for (int i = 0; i < s->n_sge; at += s->sge[i++].length)
        memcpy(s->data + at, (void *)(uintptr_t)s->sge[i].addr, s->sge[i].length);
}

static void fill_send(struct hv_send *s, const struct hv_qp *qp, const struct ibv_send_wr *wr)
{
    const struct op *op = &ops[wr->opcode];

    s->id = wr->wr_id;
    s->from = qp->num;
    s->to = qp->ud ? wr->wr.ud.remote_qpn : 0;
    s->qkey = qp->ud ? wr->wr.ud.remote_qkey : 0;
    s->op = (uint8_t)wr->opcode;
    s->imm = wr->imm_data;
    s->signaled = qp->signal_all || wr->send_flags & IBV_SEND_SIGNALED;
    s->inlined = wr->send_flags & IBV_SEND_INLINE;
    s->n_sge = (uint8_t)wr->num_sge;
    s->bytes = sum(wr->sg_list, wr->num_sge);
    memcpy(s->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(s->sge[0]));
    s->remote = op->atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr;
    s->rkey = op->atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
    s->compare_add = wr->wr.atomic.compare_add;
    s->swap = wr->wr.atomic.swap;
    if (s->inlined)
        inline_bytes(s);
}

static int queue_send(struct hv_qp *qp, const struct ibv_send_wr *wr)
{
    if (qp->state == IBV_QPS_ERR && hv_process()->iwarp)
        return 0;
    if (qp->state == IBV_QPS_ERR) {
        const struct hv_send flushed = { .id = wr->wr_id };

        complete_send(qp, &flushed, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR);
        return 0;
    }
    if (qp->state != IBV_QPS_RTS || wr->num_sge > HV_SGES ||
        wr->opcode >= sizeof(ops) / sizeof(ops[0]) || !ops[wr->opcode].known ||
        (wr->send_flags & IBV_SEND_INLINE && sum(wr->sg_list, wr->num_sge) > HV_INLINE))
        return EINVAL;
    if (qp->send_head - qp->send_polled >= qp->send_max)
        return ENOMEM;
    fill_send(&qp->send[qp->send_head++ % qp->send_max], qp, wr);
    hv_count(HV_SENDS, 1);
    return 0;
}

int hv_post_send(struct ibv_qp *handle, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    int rc = 0;

    hv_count(HV_SEND_CALLS, 1);
    hv_lock();
    for (; wr && !rc; wr = rc ? wr : wr->next)
        rc = queue_send(of(handle), wr);
    *bad = wr;
    hv_transmit(of(handle));
    hv_unlock();
    return errno = rc;
}

int hv_queue_recv(struct hv_rq *rq, const struct ibv_recv_wr *wr)
{
    struct hv_recv *r;

    if (wr->num_sge > HV_SGES)
        return EINVAL;
    if (rq->head - rq->tail >= rq->max)
        return ENOMEM;
    r = &rq->recv[rq->head++ % rq->max];
    r->id = wr->wr_id;
    r->n_sge = (uint8_t)wr->num_sge;
    r->bytes = sum(wr->sg_list, wr->num_sge);
    memcpy(r->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(r->sge[0]));
    hv_count(HV_RECVS, 1);
    return 0;
}

static int queue_recv(struct hv_qp *qp, const struct ibv_recv_wr *wr)
{
    if (qp->state == IBV_QPS_RESET || qp->srq)
        return EINVAL;
    if (qp->state == IBV_QPS_ERR && hv_process()->iwarp)
        return 0;
    return hv_queue_recv(&qp->rq, wr);
}

int hv_post_recv(struct ibv_qp *handle, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    int rc = 0;

    hv_count(HV_RECV_CALLS, 1);
    hv_lock();
    for (; wr && !rc; wr = rc ? wr : wr->next)
        rc = queue_recv(of(handle), wr);
    *bad = wr;
    hv_transmit_to(of(handle));
    hv_unlock();
    return errno = rc;
}

/* Any QP on the shared queue may have a peer that waits for a receive. */
static void transmit_to_all(const struct hv_srq *srq)
{
    struct hv_shared *s = hv_process()->shared;

    for (int i = 0; i < HV_QPS; i++)
        if (s->qp[i].num && s->qp[i].srq == srq->num)
            hv_transmit_to(&s->qp[i]);
}

int hv_post_srq_recv(struct ibv_srq *handle, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct hv_srq *srq = ((struct hv_srq_handle *)handle)->of;
    int rc = 0;

    hv_count(HV_RECV_CALLS, 1);
    hv_lock();
    for (; wr && !rc; wr = rc ? wr : wr->next)
        rc = hv_queue_recv(&srq->rq, wr);
    *bad = wr;
    transmit_to_all(srq);
    hv_unlock();
    return errno = rc;
}
