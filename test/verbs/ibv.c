/* SPDX-License-Identifier: MIT */
/* libibverbs' calls about objects, as far as uDAPL providers use them. */
#include "hv.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CQE_BYTES = 64 };         /* of locked memory that an entry of a CQ takes */

static int fails(int error)
{
    return errno = error;
}

/* -- locked memory, of registrations and CQs -------------------------------------------------- */

/* False: that would be more than the process may lock. With the lock. */
static bool lock_memory(uint64_t bytes)
{
    struct hv_process *process = hv_process();

    if (bytes > process->lockable - process->locked)
        return false;
    process->locked += bytes;
    return true;
}

static void unlock_memory(uint64_t bytes)
{
    hv_process()->locked -= bytes;
}

/* -- the device ------------------------------------------------------------------------------- */

struct ibv_device **ibv_get_device_list(int *n)
{
    struct ibv_device **list = calloc(2, sizeof(*list));

    list[0] = &hv_process()->device;
    if (n)
        *n = 1;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    (void)device;
    return 0x0102030405060708ull;
}

/* The contexts of the process, for events of the port. */
static struct hv_context *contexts[16];

static bool set_context(struct hv_context *from, struct hv_context *to)
{
    bool found = false;

    for (size_t i = 0; i < sizeof(contexts) / sizeof(contexts[0]) && !found; i++)
        found = __atomic_compare_exchange_n(&contexts[i], &(struct hv_context *){ from }, to, false,
                                            __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return found;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct hv_context *made = calloc(1, sizeof(*made));
    struct ibv_context *context = &made->context;

    if (!made || !set_context(NULL, made)) {
        free(made);
        return NULL;
    }
    context->device = device;
    context->async_fd = hv_fifo_make(&made->async);
    context->cmd_fd = -1;
    context->num_comp_vectors = 1;
    context->ops.poll_cq = hv_poll_cq;
    context->ops.req_notify_cq = hv_req_notify_cq;
    context->ops.post_send = hv_post_send;
    context->ops.post_recv = hv_post_recv;
    context->ops.post_srq_recv = hv_post_srq_recv;
    return context;
}

int ibv_close_device(struct ibv_context *context)
{
    set_context((struct hv_context *)context, NULL);
    hv_fifo_remove(((struct hv_context *)context)->async, context->async_fd);
    free(context);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    *attr = (struct ibv_device_attr){
        .max_mr_size = UINT64_MAX, .page_size_cap = 4096, .max_qp = HV_QPS - 1,
        .max_qp_wr = HV_WRS, .max_sge = HV_SGES, .max_sge_rd = HV_SGES, .max_cq = HV_CQS - 1,
        .max_cqe = HV_CQES, .max_mr = HV_MRS - 1, .max_pd = 1 << 16, .max_pkeys = 1,
        .max_qp_rd_atom = HV_READS, .max_qp_init_rd_atom = HV_READS,
        .max_res_rd_atom = HV_READS * HV_QPS, .phys_port_cnt = 1,
        .max_srq = HV_SRQS - 1, .max_srq_wr = HV_RECV_WRS, .max_srq_sge = HV_SGES,
        .device_cap_flags = hv_process()->migrate ? IBV_DEVICE_AUTO_PATH_MIG : 0,
        .atomic_cap = hv_process()->iwarp ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA,
    };
    return 0;
}

/* The caller's struct may be one of before port_cap_flags2. */
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat)
{
    const struct ibv_port_attr attr = {
        .state = hv_process()->port_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096,
        .gid_tbl_len = HV_GIDS, .pkey_tbl_len = 1, .max_msg_sz = 1u << 31, .active_width = 2,
        .active_speed = 1, .lid = hv_process()->infiniband,
        .link_layer = hv_process()->infiniband ? IBV_LINK_LAYER_INFINIBAND
                                               : IBV_LINK_LAYER_ETHERNET,
    };

    (void)context;
    if (port != 1)
        return fails(EINVAL);
    memcpy(compat, &attr, offsetof(struct ibv_port_attr, port_cap_flags2));
    return 0;
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? "PORT_ACTIVE" : "PORT_DOWN";
}

const char *ibv_node_type_str(enum ibv_node_type type)
{
    return type == IBV_NODE_RNIC ? "iWARP NIC" : "InfiniBand channel adapter";
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
    return type == IBV_EVENT_QP_LAST_WQE_REACHED ? "last WQE reached" : "another event";
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_SUCCESS ? "success" : "failure";
}

int ibv_fork_init(void)
{
    return 0;
}

/* The first is of full length: libdaploscm takes the text of a short one for a pointer and crashes.
 * Behind it: 127.0.0.1 and 127.0.0.2. */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    static const union ibv_gid one = { { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0,
                                         0x77, 1 } };
    static const union ibv_gid mapped = { { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127 } };

    (void)context;
    if (port != 1 || index < 0 || index >= HV_GIDS)
        return fails(EINVAL);
    *gid = index == 0 ? one : mapped;
    if (index > 0)
        gid->raw[15] = (uint8_t)index;
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    (void)context, (void)port, (void)index;
    *pkey = 0xffff;
    return 0;
}

static bool is_of_qp(int type)
{
    return type == IBV_EVENT_QP_LAST_WQE_REACHED || type == IBV_EVENT_PATH_MIG;
}

static bool element_of(const struct hv_async *a, struct ibv_async_event *event)
{
    struct hv_process *p = hv_process();

    if (is_of_qp(a->type) && hv_qp(a->num))
        event->element.qp = &p->qp[a->num % HV_QPS]->qp;
    else if (a->type == IBV_EVENT_SRQ_LIMIT_REACHED && hv_srq(a->num))
        event->element.srq = &p->srq[a->num % HV_SRQS]->srq;
    else if (a->type == IBV_EVENT_PORT_ERR || a->type == IBV_EVENT_PORT_ACTIVE)
        event->element.port_num = (int)a->num;
    else
        return false;            /* its object has gone */
    return true;
}

/* Events that have been returned and not acknowledged: their objects are not destroyed. */
static pthread_mutex_t acks = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;

static void count_unacked(const struct ibv_async_event *event, int more)
{
    pthread_mutex_lock(&acks);
    if (is_of_qp(event->event_type))
        ((struct hv_qp_handle *)event->element.qp)->unacked += more;
    else if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
        ((struct hv_srq_handle *)event->element.srq)->unacked += more;
    pthread_cond_broadcast(&acknowledged);
    pthread_mutex_unlock(&acks);
}

void hv_wait_for_acks(const int *unacked)
{
    pthread_mutex_lock(&acks);
    while (*unacked)
        pthread_cond_wait(&acknowledged, &acks);
    pthread_mutex_unlock(&acks);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct hv_async a;
    bool known = false;

    while (!known) {
        if (read(context->async_fd, &a, sizeof(a)) != sizeof(a))
            return -1;
        hv_lock();
        event->event_type = (enum ibv_event_type)a.type;
        known = element_of(&a, event);
        if (known)
            count_unacked(event, 1);
        hv_unlock();
    }
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    count_unacked(event, -1);
}

void ibv_hv_port_event(int type)
{
    struct hv_async a = { type, 1 };

    hv_lock();
    for (size_t i = 0; i < sizeof(contexts) / sizeof(contexts[0]); i++)
        if (contexts[i])
            hv_fifo_write(contexts[i]->async, &a, sizeof(a));
    hv_unlock();
}

/* -- protection domains and registrations ----------------------------------------------------- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));

    pd->context = context;
    hv_lock();
    pd->handle = ++hv_process()->shared->next_pd;
    hv_unlock();
    return pd;
}

static bool pd_is_used(const struct hv_shared *s, uint32_t pd)
{
    for (int i = 0; i < HV_QPS; i++)
        if (s->qp[i].num && s->qp[i].pd == pd)
            return true;
    for (int i = 0; i < HV_MRS; i++)
        if (s->mr[i].num && s->mr[i].pd == pd)
            return true;
    return false;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    bool used;

    hv_lock();
    used = pd_is_used(hv_process()->shared, pd->handle);
    hv_unlock();
    if (used)
        return fails(EBUSY);
    free(pd);
    return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *start, size_t bytes, int access)
{
    const int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    struct hv_process *process = hv_process();
    struct ibv_mr *handle;
    struct hv_mr *mr;

    if (access & remote && !(access & IBV_ACCESS_LOCAL_WRITE)) {
        errno = EINVAL;
        return NULL;
    }
    hv_lock();
    mr = lock_memory(bytes) ? HV_NEW(process->shared->mr, HV_MRS) : NULL;
    if (!mr) {
        hv_unlock();
        errno = ENOMEM;
        return NULL;
    }
    mr->pd = pd->handle;
    mr->access = access;
    mr->pid = process->pid;
    mr->start = (uintptr_t)start;
    mr->bytes = bytes;
    handle = calloc(1, sizeof(*handle));
    *handle = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = start, .length = bytes,
                               .handle = mr->num, .lkey = mr->num, .rkey = mr->num };
    hv_unlock();
    return handle;
}

/* Where peers see the bytes is not its caller's choice here. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *start, size_t bytes, uint64_t iova,
                                unsigned access)
{
    if (iova != (uintptr_t)start) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return ibv_reg_mr(pd, start, bytes, (int)(access & ~IBV_ACCESS_OPTIONAL_RANGE));
}

int ibv_dereg_mr(struct ibv_mr *handle)
{
    hv_lock();
    hv_process()->shared->mr[handle->handle % HV_MRS].num = 0;
    unlock_memory(handle->length);
    hv_unlock();
    free(handle);
    return 0;
}

/* -- completion channels and queues ----------------------------------------------------------- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));
    uint32_t fifo;

    channel->context = context;
    channel->fd = hv_fifo_make(&fifo);
    channel->refcnt = (int)fifo;
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    hv_fifo_remove((uint32_t)channel->refcnt, channel->fd);
    free(channel);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    struct hv_cq_handle *handle;
    struct hv_cq *cq;

    (void)vector;
    if (entries <= 0 || entries > HV_CQES) {
        errno = EINVAL;
        return NULL;
    }
    hv_lock();
    cq = lock_memory(CQE_BYTES * (uint64_t)entries)
             ? HV_NEW_TO(hv_process()->shared->cq, HV_CQS, cqe) : NULL;
    if (!cq) {
        hv_unlock();
        errno = ENOMEM;
        return NULL;
    }
    cq->max = (uint32_t)entries;
    cq->fifo = channel ? (uint32_t)channel->refcnt : 0;
    handle = calloc(1, sizeof(*handle));
    handle->num = cq->num;
    handle->cq = (struct ibv_cq){ .context = context, .channel = channel, .cqe = entries,
                                  .cq_context = cq_context, .handle = cq->num };
    hv_process()->cq[cq->num % HV_CQS] = handle;
    hv_unlock();
    return &handle->cq;
}

static bool cq_is_used(const struct hv_shared *s, uint32_t num)
{
    for (int i = 0; i < HV_QPS; i++)
        if (s->qp[i].num && (s->qp[i].send_cq == num || s->qp[i].recv_cq == num))
            return true;
    return false;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    uint32_t num = ((struct hv_cq_handle *)cq)->num;
    bool used;

    hv_lock();
    used = cq_is_used(hv_process()->shared, num);
    if (!used) {
        unlock_memory(CQE_BYTES * (uint64_t)hv_cq(num)->max);
        hv_cq(num)->num = 0;
        hv_process()->cq[num % HV_CQS] = NULL;
    }
    hv_unlock();
    if (used)
        return fails(EBUSY);
    free(cq);
    return 0;
}

/* The CQ keeps its completions. */
int ibv_resize_cq(struct ibv_cq *handle, int entries)
{
    static struct hv_cqe kept[HV_CQES];
    struct hv_cq *cq;
    uint32_t n = 0;
    int rc = 0;

    hv_lock();
    cq = hv_cq(((struct hv_cq_handle *)handle)->num);
    if (entries <= 0 || entries > HV_CQES || cq->head - cq->tail > (uint32_t)entries)
        rc = EINVAL;
    while (!rc && cq->tail != cq->head)
        kept[n++] = cq->cqe[cq->tail++ % cq->max];
    if (!rc) {
        memcpy(cq->cqe, kept, n * sizeof(kept[0]));
        unlock_memory(CQE_BYTES * (uint64_t)cq->max);
        lock_memory(CQE_BYTES * (uint64_t)entries);
        cq->max = (uint32_t)entries;
        cq->tail = 0;
        __atomic_store_n(&cq->head, n, __ATOMIC_RELEASE);
        handle->cqe = entries;
    }
    hv_unlock();
    return fails(rc);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    struct hv_cq_handle *handle;
    uint32_t num;

    if (read(channel->fd, &num, sizeof(num)) != sizeof(num))
        return -1;
    hv_lock();
    handle = hv_cq(num) ? hv_process()->cq[num % HV_CQS] : NULL;
    hv_unlock();
    if (!handle) {
        errno = EAGAIN;
        return -1;
    }
    *cq = &handle->cq;
    *cq_context = handle->cq.cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
    (void)cq, (void)n;
}

/* -- queue pairs ------------------------------------------------------------------------------ */

static bool possible(const struct ibv_qp_init_attr *attr)
{
    bool ud = attr->qp_type == IBV_QPT_UD && !hv_process()->iwarp;

    return (ud || attr->qp_type == IBV_QPT_RC) && attr->cap.max_send_wr <= HV_WRS &&
           attr->cap.max_recv_wr <= HV_RECV_WRS && attr->cap.max_send_sge <= HV_SGES &&
           attr->cap.max_recv_sge <= HV_SGES && attr->cap.max_inline_data <= HV_INLINE;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct hv_qp_handle *handle;
    struct hv_qp *qp;

    hv_lock();
    qp = possible(attr) ? HV_NEW_TO(hv_process()->shared->qp, HV_QPS, rq.recv)
                        : NULL;
    if (!qp) {
        hv_unlock();
        errno = EINVAL;
        return NULL;
    }
    qp->pd = pd->handle;
    qp->pid = hv_process()->pid;
    qp->send_cq = ((struct hv_cq_handle *)attr->send_cq)->num;
    qp->recv_cq = ((struct hv_cq_handle *)attr->recv_cq)->num;
    qp->send_max = attr->cap.max_send_wr;
    qp->rq.max = attr->cap.max_recv_wr;
    qp->srq = attr->srq ? ((struct hv_srq_handle *)attr->srq)->of->num : 0;
    qp->async = ((struct hv_context *)pd->context)->async;
    qp->ud = attr->qp_type == IBV_QPT_UD;
    qp->signal_all = attr->sq_sig_all;
    qp->state = IBV_QPS_RESET;
    handle = calloc(1, sizeof(*handle));
    handle->of = qp;
    handle->cap = attr->cap;
    handle->qp = (struct ibv_qp){ .context = pd->context, .pd = pd, .send_cq = attr->send_cq,
                                  .recv_cq = attr->recv_cq, .qp_num = qp->num,
                                  .handle = qp->num, .qp_type = attr->qp_type,
                                  .srq = attr->srq, .state = IBV_QPS_RESET,
                                  .qp_context = attr->qp_context };
    hv_process()->qp[qp->num % HV_QPS] = handle;
    hv_unlock();
    return &handle->qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    hv_lock();
    ((struct hv_qp_handle *)qp)->of->num = 0;
    hv_unlock();
    hv_wait_for_acks(&((struct hv_qp_handle *)qp)->unacked);
    free(qp);
    return 0;
}

/* The state that a QP must be in to go to this one, or itself; any for RESET and ERR. */
static bool reachable(int from, int to)
{
    switch (to) {
    case IBV_QPS_RESET:
    case IBV_QPS_ERR: return true;
    case IBV_QPS_INIT: return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
    case IBV_QPS_RTR: return from == IBV_QPS_INIT;
    case IBV_QPS_RTS: return from == IBV_QPS_RTR || from == IBV_QPS_RTS;
    default: return false;
    }
}

static void enter(struct hv_qp *qp, int state)
{
    if (state == IBV_QPS_ERR)
        hv_fail(qp);
    else if (state == IBV_QPS_RESET)
        hv_reset(qp);
    else
        qp->state = state;
    hv_transmit(qp);
    hv_transmit_to(qp);
}

int ibv_query_qp_data_in_order(struct ibv_qp *handle, enum ibv_wr_opcode op, uint32_t flags)
{
    (void)handle;
    return op == IBV_WR_RDMA_WRITE && !flags && hv_process()->ordered;
}

int ibv_modify_qp(struct ibv_qp *handle, struct ibv_qp_attr *attr, int mask)
{
    struct hv_qp *qp = ((struct hv_qp_handle *)handle)->of;
    int rc = 0;

    hv_lock();
    if (mask & IBV_QP_STATE && !reachable(qp->state, attr->qp_state))
        rc = EINVAL;
    if (!rc)
        rc = hv_path_modify(qp, attr, mask);
    if (!rc) {
        if (mask & IBV_QP_ACCESS_FLAGS)
            qp->access = (int)attr->qp_access_flags;
        if (mask & IBV_QP_QKEY)
            qp->qkey = attr->qkey;
        if (mask & IBV_QP_DEST_QPN)
            qp->dest = attr->dest_qp_num;
        if (mask & IBV_QP_STATE)
            enter(qp, attr->qp_state);
        handle->state = (enum ibv_qp_state)qp->state;
    }
    hv_unlock();
    return fails(rc);
}

/* -- addresses of datagrams: all are this host's ---------------------------------------------- */

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct ibv_ah *ah = calloc(1, sizeof(*ah));

    (void)attr;
    *ah = (struct ibv_ah){ .context = pd->context, .pd = pd };
    return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    free(ah);
    return 0;
}
