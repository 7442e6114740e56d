/* SPDX-License-Identifier: MIT */
/*
 * librdmacm's calls, as far as uDAPL providers use them: all addresses are this host's, and a port
 * belongs to one identifier of all processes. The states are those of the InfiniBand specification,
 * volume 1, 12.9.7, as far as an application sees them. With VERBS_TRANSPORT=iwarp the rules of MPA
 * (RFC 5044, 7.1) hold instead: private data has its own length, the passive side is connected when
 * it accepts, and a connection fails when the passive side transmits before the active side.
 *
 * The REJ of a request whose caller has ended before the answer is lost, as a datagram may be; with
 * VERBS_WITHDRAW=1 it arrives. libdaplofa then frees the CR, though its event is still queued, and
 * dat_cr_query() of that CR crashes.
 */
#include "hv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { ADDRESS, ROUTE, REQUEST, REPLY, READY, REJECT, DREQ, DREP };

enum {
    PRIVATE_MAX = 200,
    NO_LISTENER = 8,       /* reasons of a reject: invalid service ID */
    BY_CONSUMER = 28,
    WITHDRAWN = 4,         /* timeout: a kernel gives it for a request whose caller ends */
    EPHEMERAL = 49152,     /* the first of the ports that nobody asked for */
    EPHEMERALS = 16000,
};

/* Bytes of private data that an application gets of each, whatever the other side gave. */
static const uint8_t private_bytes[] = { [REQUEST] = 56, [REPLY] = 196, [REJECT] = 148,
                                         [DREP] = 0 };

struct message {
    enum kind kind;
    uint32_t to, from;
    int status;
    uint8_t responder_resources, initiator_depth, bytes;
    uint8_t data[PRIVATE_MAX];
};

static int fails(int error)
{
    errno = error;
    return error ? -1 : 0;
}

static uint32_t num_of(struct rdma_cm_id *id)
{
    return ((struct hv_id_handle *)id)->num;
}

static void undeliverable(const struct message *m);

static void transmit(const struct message *m)
{
    struct hv_id *to = hv_id(m->to);

    if (to)
        hv_fifo_write(to->fifo, m, sizeof(*m));
    else
        undeliverable(m);
}

static void notify(uint32_t to, uint32_t from, enum kind kind)
{
    transmit(&(struct message){ .kind = kind, .to = to, .from = from });
}

static void reject(uint32_t to, uint32_t from, int reason)
{
    int status = hv_process()->iwarp ? -ECONNREFUSED : reason;

    transmit(&(struct message){ .kind = REJECT, .to = to, .from = from, .status = status });
}

/* The identifier that it is for has gone. */
static void undeliverable(const struct message *m)
{
    if (hv_id(m->from) && (m->kind == REQUEST || m->kind == REPLY))
        reject(m->from, m->to, NO_LISTENER);
}

static void with_data(struct message *m, const void *data, uint8_t bytes)
{
    if (bytes)
        memcpy(m->data, data, bytes);
    m->bytes = hv_process()->iwarp ? bytes : private_bytes[m->kind];
}

static void with_param(struct message *m, const struct rdma_conn_param *p)
{
    with_data(m, p->private_data, p->private_data_len);
    m->responder_resources = p->responder_resources;
    m->initiator_depth = p->initiator_depth;
}

/* -- events that the application has not acknowledged ----------------------------------------- */

static pthread_mutex_t acks = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;

static void count_unacked(struct hv_id_handle *handle, int more)
{
    pthread_mutex_lock(&acks);
    handle->unacked += more;
    pthread_cond_broadcast(&acknowledged);
    pthread_mutex_unlock(&acks);
}

/* As in librdmacm, an identifier lives until all of its events are acknowledged. */
static void wait_for_acks(const struct hv_id_handle *handle)
{
    pthread_mutex_lock(&acks);
    while (handle->unacked)
        pthread_cond_wait(&acknowledged, &acks);
    pthread_mutex_unlock(&acks);
}

/* -- channels and identifiers ----------------------------------------------------------------- */

struct channel {
    struct rdma_event_channel channel;
    uint32_t fifo;
};

struct rdma_event_channel *rdma_create_event_channel(void)
{
    struct channel *channel = calloc(1, sizeof(*channel));

    hv_process();
    channel->channel.fd = hv_fifo_make(&channel->fifo);
    return &channel->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *handle)
{
    struct channel *channel = (struct channel *)handle;

    hv_fifo_remove(channel->fifo, handle->fd);
    free(channel);
}

/* The lock is held. */
static struct hv_id_handle *new_id(struct rdma_event_channel *channel, void *context)
{
    struct hv_id *id = HV_NEW(hv_process()->shared->id, HV_IDS);
    struct hv_id_handle *handle = id ? calloc(1, sizeof(*handle)) : NULL;

    if (!handle)
        return NULL;
    id->fifo = ((struct channel *)channel)->fifo;
    handle->num = id->num;
    handle->id.channel = channel;
    handle->id.context = context;
    handle->id.ps = RDMA_PS_TCP;
    hv_process()->id[id->num % HV_IDS] = handle;
    return handle;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                   enum rdma_port_space ps)
{
    struct hv_id_handle *handle = NULL;

    if (ps == RDMA_PS_TCP) {
        hv_lock();
        handle = new_id(channel, context);
        hv_unlock();
    }
    if (!handle)
        return fails(ENOMEM);
    *id = &handle->id;
    return 0;
}

/* As in the kernel, it is gone from here on for other threads, whose calls fail (EINVAL); what they
 * have of it is freed when they have acknowledged their events. */
int rdma_destroy_id(struct rdma_cm_id *handle)
{
    uint32_t num = num_of(handle);
    struct hv_id *id;

    hv_lock();
    id = hv_id(num);
    if (id->state == HV_UP)
        notify(id->peer, num, DREQ);
    else if (id->state == HV_DREQ_RECEIVED)
        notify(id->peer, num, DREP);
    else if (id->state == HV_CALLED || (id->state == HV_CALLING && hv_process()->withdraw))
        reject(id->peer, num, id->state == HV_CALLED ? BY_CONSUMER : WITHDRAWN);
    id->num = 0;
    hv_process()->id[num % HV_IDS] = NULL;
    hv_unlock();
    wait_for_acks((struct hv_id_handle *)handle);
    free(handle);
    return 0;
}

/* -- addresses -------------------------------------------------------------------------------- */

static void attach_device(struct rdma_cm_id *id)
{
    struct hv_process *p = hv_process();

    if (!p->cm_context)
        p->cm_context = ibv_open_device(&p->device);
    id->verbs = p->cm_context;
    id->port_num = 1;
}

static bool port_is_used(const struct hv_shared *s, uint32_t addr, uint16_t port)
{
    for (int i = 0; i < HV_IDS; i++)
        if (s->id[i].num && s->id[i].port == port && s->id[i].addr == addr)
            return true;
    return false;
}

static uint16_t ephemeral_port(struct hv_shared *s, uint32_t addr)
{
    uint16_t port;

    do
        port = (uint16_t)(EPHEMERAL + s->next_port++ % EPHEMERALS);
    while (port_is_used(s, addr, port));
    return port;
}

int rdma_bind_addr(struct rdma_cm_id *handle, struct sockaddr *addr)
{
    struct sockaddr_in in = *(struct sockaddr_in *)addr;
    struct hv_shared *s = hv_process()->shared;
    uint16_t port = ntohs(in.sin_port);
    int rc = 0;

    hv_lock();
    if (in.sin_addr.s_addr && ntohl(in.sin_addr.s_addr) >> 24 != IN_LOOPBACKNET) {
        rc = ENODEV;             /* the addresses of the device are those of the loopback network */
    } else if (port && port_is_used(s, in.sin_addr.s_addr, port)) {
        rc = EADDRINUSE;
    } else {
        if (!port)
            port = ephemeral_port(s, in.sin_addr.s_addr);
        in.sin_port = htons(port);
        hv_id(num_of(handle))->port = port;
        hv_id(num_of(handle))->addr = in.sin_addr.s_addr;
        handle->route.addr.src_sin = in;
        attach_device(handle);
    }
    hv_unlock();
    return fails(rc);
}

/* Makes the file by which a test sees that a process listens on that port. */
static void show_listener(uint16_t port)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%s/listening.%d", hv_process()->folder, port);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
    uint16_t port;

    (void)backlog;
    hv_lock();
    hv_id(num_of(id))->listening = true;
    port = hv_id(num_of(id))->port;
    hv_unlock();
    show_listener(port);
    return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *handle, struct sockaddr *src, struct sockaddr *dst,
                      int timeout_ms)
{
    struct hv_id *id;

    (void)timeout_ms;
    hv_lock();
    id = hv_id(num_of(handle));
    if (src)
        handle->route.addr.src_sin = *(struct sockaddr_in *)src;
    handle->route.addr.dst_sin = *(struct sockaddr_in *)dst;
    if (!id->port)
        id->port = ephemeral_port(hv_process()->shared, id->addr);
    handle->route.addr.src_sin.sin_port = htons(id->port);
    hv_path_record((struct hv_id_handle *)handle);
    attach_device(handle);
    notify(id->num, id->num, ADDRESS);
    hv_unlock();
    return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    (void)timeout_ms;
    hv_lock();
    notify(num_of(id), num_of(id), ROUTE);
    hv_unlock();
    return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int option, void *value, size_t bytes)
{
    (void)id, (void)level, (void)option, (void)value, (void)bytes;
    return 0;
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
    (void)id, (void)event;
    return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
    return id->route.addr.src_sin.sin_port;
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
    return id->route.addr.dst_sin.sin_port;
}

/* -- connections ------------------------------------------------------------------------------ */

static struct hv_qp *qp_of(const struct hv_id *id)
{
    return hv_qp(id->qpn);
}

static void connect_qp(struct hv_qp *qp, struct hv_qp *peer, const struct rdma_addr *addr,
                       bool hold)
{
    if (!qp || qp->state != IBV_QPS_INIT)
        return;
    qp->path = (struct hv_path){ addr->src_sin.sin_addr.s_addr, addr->dst_sin.sin_addr.s_addr };
    qp->dest = peer ? peer->num : 0;
    qp->hold = hold;
    qp->state = IBV_QPS_RTS;
    hv_transmit(qp);
    hv_transmit_to(qp);
}

static void fail_qp(const struct hv_id *id)
{
    if (qp_of(id))
        hv_fail(qp_of(id));
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT,
        .qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_ATOMIC,
    };

    id->qp = ibv_create_qp(pd, attr);
    if (!id->qp)
        return -1;
    return fails(ibv_modify_qp(id->qp, &init, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS));
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
    if (id->qp)
        ibv_destroy_qp(id->qp);
    id->qp = NULL;
}

/* Who listens at this address, or at any; providers that name none have one address. */
static uint32_t listener(const struct hv_shared *s, const struct sockaddr_in *at)
{
    for (int i = 0; i < HV_IDS; i++) {
        const struct hv_id *id = &s->id[i];

        if (id->num && id->listening && id->port == ntohs(at->sin_port)
            && (!id->addr || id->addr == at->sin_addr.s_addr))
            return id->num;
    }
    return 0;
}

int rdma_connect(struct rdma_cm_id *handle, struct rdma_conn_param *param)
{
    struct message m = { .kind = REQUEST, .from = num_of(handle) };
    struct hv_id *id;
    int rc = 0;

    with_param(&m, param);
    hv_lock();
    id = hv_id(m.from);
    m.to = listener(hv_process()->shared, &handle->route.addr.dst_sin);
    if (!id) {
        rc = EINVAL;
    } else if (m.to == 0 && hv_process()->iwarp) {    /* TCP connects before this returns */
        id->state = HV_OVER;
        rc = ECONNREFUSED;
    } else {
        id->state = HV_CALLING;
        id->qpn = handle->qp ? handle->qp->qp_num : 0;
        transmit(&m);
    }
    hv_unlock();
    return fails(rc);
}

int rdma_accept(struct rdma_cm_id *handle, struct rdma_conn_param *param)
{
    struct message m = { .kind = REPLY, .from = num_of(handle) };
    struct hv_id *id, *caller;
    int rc = 0;

    with_param(&m, param);
    hv_lock();
    id = hv_id(m.from);
    if (!id || id->state != HV_CALLED) {
        rc = EINVAL;
    } else {
        id->qpn = handle->qp ? handle->qp->qp_num : 0;
        id->state = HV_UP;
        m.to = id->peer;
        transmit(&m);
        caller = hv_id(id->peer);
        connect_qp(qp_of(id), caller ? qp_of(caller) : NULL, &handle->route.addr,
                   hv_process()->iwarp);
        if (hv_process()->iwarp)
            notify(id->num, id->peer, READY);
    }
    hv_unlock();
    return fails(rc);
}

int rdma_reject(struct rdma_cm_id *handle, const void *data, uint8_t bytes)
{
    struct message m = { .kind = REJECT, .from = num_of(handle),
                         .status = hv_process()->iwarp ? -ECONNREFUSED : BY_CONSUMER };
    struct hv_id *id;

    with_data(&m, data, bytes);
    hv_lock();
    id = hv_id(m.from);
    if (id) {
        m.to = id->peer;
        id->state = HV_OVER;
        transmit(&m);
    }
    hv_unlock();
    return fails(id ? 0 : EINVAL);
}

/* Whether the peer can still answer a DREQ. */
static bool can_answer(const struct hv_id *peer)
{
    return peer && (peer->state == HV_CALLING || peer->state == HV_UP ||
                    peer->state == HV_DREQ_SENT);
}

int rdma_disconnect(struct rdma_cm_id *handle)
{
    struct hv_id *id;
    int rc = 0;

    hv_lock();
    id = hv_id(num_of(handle));
    if (!id) {
        rc = EINVAL;
    } else if (id->state == HV_UP) {
        fail_qp(id);
        id->state = HV_DREQ_SENT;
        if (can_answer(hv_id(id->peer)))
            notify(id->peer, id->num, DREQ);
        else
            notify(id->num, id->peer, DREP);
    } else if (id->state == HV_DREQ_RECEIVED) {
        fail_qp(id);
        id->state = HV_OVER;
        notify(id->peer, id->num, DREP);
    } else {
        rc = EINVAL;
    }
    hv_unlock();
    return fails(rc);
}

/* -- events ----------------------------------------------------------------------------------- */

/* An event as it is returned: with the message that it came from. */
struct event {
    struct rdma_cm_event event;
    struct hv_id_handle *of;
    struct message message;
};

/* Each takes a message for an identifier, with the lock held. False: no event comes of it. */

static bool take_request(struct hv_id *id, struct event *e)
{
    struct rdma_cm_id *listening = e->event.id;
    struct hv_id *caller = hv_id(e->message.from);
    struct hv_id_handle *handle;

    (void)id;
    if (!caller || caller->state != HV_CALLING)
        return false;
    handle = new_id(listening->channel, listening->context);
    if (!handle)
        return false;
    attach_device(&handle->id);
    handle->id.route = listening->route;
    handle->id.route.addr.dst_sin = listening->route.addr.src_sin;
    handle->id.route.addr.dst_sin.sin_addr.s_addr = caller->addr;
    handle->id.route.addr.dst_sin.sin_port = htons(caller->port);
    hv_path_record(handle);
    hv_id(handle->num)->peer = caller->num;
    hv_id(handle->num)->state = HV_CALLED;
    caller->peer = handle->num;
    e->event.listen_id = listening;
    e->event.id = &handle->id;
    return true;
}

static bool take_reply(struct hv_id *id, struct event *e)
{
    struct hv_id *peer = hv_id(e->message.from);
    struct hv_qp *other = peer ? qp_of(peer) : NULL;

    if (id->state != HV_CALLING || !qp_of(id)) {
        undeliverable(&e->message);
        return false;
    }
    id->peer = e->message.from;
    if (other && other->early) {
        id->state = HV_OVER;
        fail_qp(id);
        notify(e->message.from, id->num, DREQ);
        e->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
        e->event.status = -EINVAL;
        return true;
    }
    id->state = HV_UP;
    if (other)
        other->hold = false;
    connect_qp(qp_of(id), other, &e->event.id->route.addr, false);
    if (!hv_process()->iwarp)
        notify(e->message.from, id->num, READY);
    return true;
}

static bool take_reject(struct hv_id *id, struct event *e)
{
    (void)e;
    if (id->state != HV_CALLING && id->state != HV_CALLED && id->state != HV_UP)
        return false;
    id->state = HV_OVER;
    fail_qp(id);
    return true;
}

static bool take_dreq(struct hv_id *id, struct event *e)
{
    (void)e;
    if (id->state != HV_UP && id->state != HV_DREQ_SENT)
        return false;
    id->state = id->state == HV_UP ? HV_DREQ_RECEIVED : HV_OVER;
    if (hv_process()->iwarp)
        fail_qp(id);
    return true;
}

static bool take_drep(struct hv_id *id, struct event *e)
{
    (void)e;
    if (id->state != HV_DREQ_SENT)
        return false;
    id->state = HV_OVER;
    return true;
}

static const struct {
    enum rdma_cm_event_type event;
    bool (*take)(struct hv_id *, struct event *);    /* NULL: it is only reported */
} kinds[] = {
    [ADDRESS] = { RDMA_CM_EVENT_ADDR_RESOLVED, NULL },
    [ROUTE] = { RDMA_CM_EVENT_ROUTE_RESOLVED, NULL },
    [REQUEST] = { RDMA_CM_EVENT_CONNECT_REQUEST, take_request },
    [REPLY] = { RDMA_CM_EVENT_ESTABLISHED, take_reply },
    [READY] = { RDMA_CM_EVENT_ESTABLISHED, NULL },
    [REJECT] = { RDMA_CM_EVENT_REJECTED, take_reject },
    [DREQ] = { RDMA_CM_EVENT_DISCONNECTED, take_dreq },
    [DREP] = { RDMA_CM_EVENT_DISCONNECTED, take_drep },
};

static bool take(struct event *e)
{
    struct message *m = &e->message;
    struct hv_id *id = hv_id(m->to);

    if (!id) {
        undeliverable(m);
        return false;
    }
    e->of = hv_process()->id[m->to % HV_IDS];
    e->event = (struct rdma_cm_event){
        .id = &e->of->id, .event = kinds[m->kind].event,
        .status = m->status,
        /* each side's resources are what the other may use */
        .param.conn = { .private_data = m->bytes ? m->data : NULL, .private_data_len = m->bytes,
                        .responder_resources = m->initiator_depth,
                        .initiator_depth = m->responder_resources },
    };
    if (kinds[m->kind].take && !kinds[m->kind].take(id, e))
        return false;
    count_unacked(e->of, 1);
    return true;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **out)
{
    for (;;) {
        struct event *e = calloc(1, sizeof(*e));
        bool taken;

        if (read(channel->fd, &e->message, sizeof(e->message)) != sizeof(e->message)) {
            free(e);
            return -1;
        }
        hv_lock();
        taken = take(e);
        hv_unlock();
        if (taken) {
            *out = &e->event;
            return 0;
        }
        free(e);
    }
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    count_unacked(((struct event *)event)->of, -1);
    free(event);
    return 0;
}
