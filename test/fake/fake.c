/* SPDX-License-Identifier: MIT */
#include "fake.h"

#include "dat_path_extensions.h"

#include <dat2/dat_registry.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_OBJECTS = 4096,
    PSPS = 256,
    FEW_EPS = 256,               /* room for so many at first: a seed's numbers depend on it */
    PAST = 64,
    LATE_NS = 300000,            /* what is late is so late */
    RECV_SEGS = 2,               /* segments of a receive at most */
};

#define ERROR(type) ((DAT_RETURN)(DAT_CLASS_ERROR | (type)))

struct object {
    DAT_PROVIDER *provider;      /* first: libdat2 looks here */
    struct object *next;         /* all objects */
};

/* As dapl's: an agent is called once, and not before the object has been waited for again. */
struct cno {
    struct object o;
    struct evd *fired;           /* since the last wait; NULL: none */
    DAT_OS_WAIT_PROXY_AGENT agent;
};

struct evd {
    struct object o;
    struct cno *cno;
    bool disabled;               /* for the CNO */
    DAT_EVENT *queue;            /* a ring of size entries, n of them used from first on */
    int first, n, size;
    int qlen;                    /* 0: no limit */
    struct evd *async;           /* of its IA */
    bool overflowed;
};

struct ia {
    struct object o;
    struct evd *async;
    struct ia *next;             /* on f.ias */
    bool dead;                   /* it makes no objects any more */
    bool silent;                 /* then: nor does it complete what was posted */
    unsigned ports;              /* 0: it has no path extension */
    bool port_down[FAKE_PORTS + 1];
};

struct lmr {
    struct object o;
    DAT_IA_HANDLE ia;
    uint64_t addr, len;
    uint32_t key;
    DAT_MEM_PRIV_FLAGS priv;
};

struct dto {
    struct dto *next;
    DAT_DTO_COOKIE cookie;
    DAT_DTOS op;
    DAT_LMR_TRIPLET seg, more;   /* more: the second one of a receive */
    DAT_RMR_TRIPLET remote;
    DAT_COMPLETION_FLAGS flags;
    bool half;                   /* a write: all but its last bytes have landed */
    bool delayed;                /* a write: it lands later */
    void *late;                  /* a read: its data, which is on its way; else NULL */
    bool executed;
    bool counted;                /* for fake_faults.fail_nth */
    bool met;                    /* the plan has been asked for it */
    uint64_t at;                 /* with fake_slow_reads(): when it has its turn, ns; 0: unknown */
};

struct dto_queue {
    struct dto *first, *last;
    int n, max;
};

struct ep {
    struct object o;
    DAT_IA_HANDLE ia;
    struct evd *recv_evd, *req_evd, *conn_evd;
    DAT_EP_STATE state;
    struct ep *peer;
    unsigned serial;
    struct dto_queue recv, req;
    uint8_t priv[256];
    bool unflushed;              /* it has ended while flushes were held */
    bool called;                 /* it has made a request */
    bool connected;              /* it has been established */
    bool accepted;               /* its connection was requested by the other end */
    unsigned received;           /* sends of the other end that have arrived */
    bool half_open;              /* the other end has ended its connection without notice */
    uint64_t fails_at;           /* then: when the oldest request fails */
    DAT_PATH_PARAM path;
    bool asked;                  /* for a migration */
    uint64_t stalled;            /* since when the path does not transmit, ns; 0: it does */
    uint64_t moving;             /* it has migrated, and transmits at this time, ns */
    bool swallows;               /* its requests are lost on their way */
    uint64_t free_at;            /* with fake_slow_reads(): when it has transmitted what it must */
    bool planned_silence;        /* by the plan, and not counted as broken yet */
};

struct psp {
    struct object o;
    struct ia *ia;
    struct evd *evd;
    DAT_CONN_QUAL qual;
};

/* A connection request, from dat_ep_connect to its end. */
struct cr {
    struct object o;
    struct ep *caller;           /* NULL: a stranger, or a caller that has gone */
    struct cr *next;             /* on f.crs */
    uint8_t priv[256];
    int len;
    bool stranger;
};

/* An RDMA write that has been flushed and will land. */
struct late {
    struct late *next;
    DAT_IA_HANDLE ia;            /* of its target */
    unsigned ep;                 /* serial number of the EP there */
    DAT_RMR_TRIPLET to;
    uint64_t len;
    uint8_t bytes[];
};

/* Something of connection management that is under way. */
struct pending {
    struct pending *next;
    enum { ARRIVE, CM_EVENT } kind;
    bool parked;                 /* outside, until fake_hold_requests(false) or fake_hold_ends() */
    struct cr *cr;               /* ARRIVE */
    DAT_CONN_QUAL qual;
    struct ep *ep;               /* CM_EVENT */
    DAT_EVENT_NUMBER number;
    uint8_t priv[256];
    int len;
};

static struct {
    uint64_t seed, now;
    struct fake_faults faults;
    struct fake_limits limits;
    struct object *objects;
    struct pending *pending;
    struct cr *crs;
    struct ia *ias;
    DAT_IA_HANDLE held_ia;
    struct lmr *lmr[MAX_OBJECTS];
    uint32_t gen;
    unsigned lmrs, calls, taken_back, accepts, executed, counted, recvs, sends;
    int strangers_rejected, parked;
    unsigned steps, end_ia_at;   /* step; 0: none */
    int end_ia;
    bool end_silently, refuse_closes;
    unsigned openings, refuse_openings;
    uint64_t opening_ns, opened_at;
    bool hold, refuse_ias, hold_flushes, hold_ends, delay_writes, delay_reads, land_at_flush;
    struct late *late;           /* the last one first */
    unsigned eps, completions;   /* made, ever */
    struct {
        struct evd *evd;
        DAT_EVENT event;
        unsigned ep;             /* its serial */
    } past[PAST];                /* the last completions; evd NULL: none */
    uint64_t not_ready;
    const struct fake_fault *plan;
    int n_plan;
    unsigned requests, broken, doubled;  /* of the plan */
    uint64_t refused_bytes;      /* of a send */
    struct evd *taken_from;      /* by the last call that dequeues */
    unsigned looked_behind;
    bool lose_next_cr, lose_next_accept, late_next_cr, late_next_accept;
    uint64_t flushes_at, ends_at, late_at;   /* when these holds end; 0: no hold */
    uint64_t read_ns;            /* of each KiB that is read */
    uint64_t move_ns;            /* until a connection that has migrated transmits */
    uint8_t forged[64];
    size_t forged_len;
    unsigned ports, migrated, path_failed, path_calls, move_one_in;
    bool hold_arming, hold_moves, lose_path_events;
    const struct fake_cut *cuts;
    int n_cuts;
    DAT_PROVIDER_INFO info;
} f;

static DAT_PROVIDER table;
static struct sockaddr_in address;
static struct sockaddr_in6 address6;

static DAT_RETURN cr_reject(DAT_CR_HANDLE handle, DAT_COUNT len, const DAT_PVOID priv);

uint64_t *fake_time(void)
{
    return &f.now;
}

uint64_t fake_random(uint64_t n)
{
    f.seed ^= f.seed << 13;
    f.seed ^= f.seed >> 7;
    f.seed ^= f.seed << 17;
    return f.seed % n;
}

static bool every(unsigned n, unsigned *count)
{
    return n && ++*count % n == 0;
}

/* -- objects ---------------------------------------------------------------------------------- */

static void *make(size_t size)
{
    struct object *o = calloc(1, size);

    if (!o)
        abort();
    o->provider = &table;
    o->next = f.objects;
    f.objects = o;
    return o;
}

static void unmake(void *object)
{
    for (struct object **at = &f.objects; *at; at = &(*at)->next)
        if (*at == object) {
            *at = (*at)->next;
            free(object);
            return;
        }
    abort();                     /* freed twice */
}

static DAT_RETURN ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd_p,
                          DAT_IA_HANDLE *ia_p)
{
    struct ia *ia, **at = &f.ias;

    (void)name, (void)qlen;
    f.openings++;
    f.opened_at = f.now;
    f.now += f.opening_ns;
    if (f.refuse_ias || (f.refuse_openings > 0 && f.refuse_openings--))
        return ERROR(DAT_INSUFFICIENT_RESOURCES);
    ia = make(sizeof(*ia));
    ia->ports = f.ports;
    ia->async = make(sizeof(*ia->async));
    while (*at)
        at = &(*at)->next;
    *at = ia;
    *evd_p = ia->async;
    *ia_p = ia;
    return DAT_SUCCESS;
}

static uint32_t reads_in(void)
{
    return f.limits.reads_in ? f.limits.reads_in : f.limits.reads;
}

static uint32_t evd_qlen(void)
{
    return f.limits.evd_qlen ? f.limits.evd_qlen : 1 << 20;
}

/* The named attributes of a provider whose IAs have so many ports. */
static void name_ports(unsigned ports, DAT_PROVIDER_ATTR *prov)
{
    static const char *const number[FAKE_PORTS + 1] = { "0", "1", "2", "3", "4" };
    static DAT_NAMED_ATTR attr[] = {
        { "DAT_FAKE_OTHER", "TRUE" }, { DAT_PATH_ATTR, "100" }, { DAT_PATH_ATTR_PORTS, NULL },
    };

    attr[2].value = number[ports];
    prov->provider_specific_attr = attr;
    prov->num_provider_specific_attr = ports ? 3 : 1;
}

static DAT_RETURN ia_query(DAT_IA_HANDLE ia, DAT_EVD_HANDLE *evd_p, DAT_IA_ATTR_MASK mask,
                           DAT_IA_ATTR *attr, DAT_PROVIDER_ATTR_MASK pmask, DAT_PROVIDER_ATTR *prov)
{
    if (evd_p)
        *evd_p = DAT_HANDLE_NULL;
    if (mask && attr) {
        memset(attr, 0, sizeof(*attr));
        attr->ia_address_ptr = f.limits.ipv6 ? (DAT_IA_ADDRESS_PTR)&address6
                                             : (DAT_IA_ADDRESS_PTR)&address;
        attr->max_dto_per_ep = (DAT_COUNT)f.limits.dtos;
        attr->max_rdma_read_per_ep_out = (DAT_COUNT)f.limits.reads;
        attr->max_rdma_read_per_ep_in = (DAT_COUNT)reads_in();
        attr->max_evd_qlen = (DAT_COUNT)evd_qlen();
        attr->max_lmr_block_size = f.limits.lmr ? f.limits.lmr : UINT32_MAX;
        attr->max_lmrs = f.limits.lmrs ? (DAT_COUNT)f.limits.lmrs : MAX_OBJECTS;
        attr->max_message_size = 1 << 20;
        attr->max_iov_segments_per_dto = f.limits.one_segment ? 1 : RECV_SEGS;
        attr->max_rdma_size = f.limits.rdma;
        attr->extension_supported = DAT_EXTENSION_IB;
    }
    if (pmask && prov) {
        memset((void *)prov, 0, sizeof(*prov));
        prov->dapl_version_major = 2;
        prov->max_private_data_size = (DAT_COUNT)f.limits.priv;
        name_ports(((struct ia *)ia)->ports, prov);
    }
    return DAT_SUCCESS;
}

static DAT_RETURN evd_free(DAT_EVD_HANDLE handle);
static DAT_RETURN lmr_free(DAT_LMR_HANDLE handle);

/* ABRUPT: with its registrations. */
static DAT_RETURN ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    struct ia **at = &f.ias;

    (void)flags;
    if (f.refuse_closes && ((struct ia *)ia)->dead)
        return ERROR(DAT_INTERNAL_ERROR);
    while (*at != ia)
        at = &(*at)->next;
    *at = (*at)->next;
    for (int i = 0; i < MAX_OBJECTS; i++)
        if (f.lmr[i] && f.lmr[i]->ia == ia)
            lmr_free(f.lmr[i]);
    evd_free(((struct ia *)ia)->async);
    unmake(ia);
    return DAT_SUCCESS;
}

static DAT_RETURN pz_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz_p)
{
    (void)ia;
    *pz_p = make(sizeof(struct object));
    return DAT_SUCCESS;
}

static DAT_RETURN simple_free(DAT_HANDLE h)
{
    unmake(h);
    return DAT_SUCCESS;
}

/* -- events ----------------------------------------------------------------------------------- */

static bool post(struct evd *evd, const DAT_EVENT *event);

static void post_async(struct evd *async, DAT_HANDLE what, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;

    memset(&event, 0, sizeof(event));
    event.event_number = number;
    event.event_data.asynch_error_event_data.dat_handle = what;
    post(async, &event);
}

static void trigger(struct evd *evd)
{
    struct cno *cno = evd->cno;
    DAT_OS_WAIT_PROXY_AGENT agent;

    if (!cno || evd->disabled || cno->fired)
        return;
    agent = cno->agent;
    cno->agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
    cno->fired = evd;
    if (agent.proxy_agent_func)
        agent.proxy_agent_func(agent.instance_data, evd);
}

/* False: the queue is full and the event is lost. */
static bool post(struct evd *evd, const DAT_EVENT *event)
{
    if (evd->qlen && evd->n == evd->qlen) {
        if (!evd->overflowed)
            post_async(evd->async, evd, DAT_ASYNC_ERROR_EVD_OVERFLOW);
        evd->overflowed = true;
        return false;
    }
    if (evd->n == evd->size) {
        DAT_EVENT *more = calloc((size_t)(evd->size ? evd->size * 2 : 16), sizeof(*more));

        if (!more)
            abort();
        for (int i = 0; i < evd->n; i++)
            more[i] = evd->queue[(evd->first + i) % evd->size];
        free(evd->queue);
        evd->queue = more;
        evd->first = 0;
        evd->size = evd->size ? evd->size * 2 : 16;
    }
    evd->queue[(evd->first + evd->n++) % evd->size] = *event;
    trigger(evd);
    return true;
}

void fake_refuse_ias(bool refuse)
{
    f.refuse_ias = refuse;
}

void fake_refuse_openings(unsigned n, uint64_t ns)
{
    f.refuse_openings = n;
    f.opening_ns = ns;
}

unsigned fake_openings(uint64_t *last_p)
{
    *last_p = f.opened_at;
    return f.openings;
}

void fake_refuse_closes(void)
{
    f.refuse_closes = true;
}

static struct ia *nth_ia(int nth)
{
    struct ia *ia = f.ias;

    while (ia && nth-- > 0)
        ia = ia->next;
    return ia;
}

void fake_async(int nth, DAT_EVENT_NUMBER number)
{
    struct ia *ia = nth_ia(nth);

    post_async(ia->async, ia, number);
}

static DAT_RETURN evd_create(DAT_IA_HANDLE ia, DAT_COUNT qlen, DAT_CNO_HANDLE cno,
                             DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *evd_p)
{
    struct evd *evd;

    (void)flags;
    if ((uint32_t)qlen > evd_qlen())
        return ERROR(DAT_INVALID_PARAMETER);
    evd = make(sizeof(*evd));
    evd->qlen = qlen;
    evd->cno = cno;
    evd->async = ((struct ia *)ia)->async;
    *evd_p = evd;
    return DAT_SUCCESS;
}

static DAT_RETURN evd_resize(DAT_EVD_HANDLE evd, DAT_COUNT qlen)
{
    (void)evd, (void)qlen;
    abort();                     /* there are providers that never return from this */
}

static DAT_RETURN evd_dequeue(DAT_EVD_HANDLE handle, DAT_EVENT *event)
{
    struct evd *evd = handle;

    f.looked_behind += evd->n == 0 && f.taken_from == evd;
    f.taken_from = evd->n > 0 ? evd : NULL;
    if (evd->n == 0)
        return ERROR(DAT_QUEUE_EMPTY);
    *event = evd->queue[evd->first];
    evd->first = (evd->first + 1) % evd->size;
    evd->n--;
    return DAT_SUCCESS;
}

/* Sleeping lets the world move and the time pass. */
static DAT_RETURN evd_wait(DAT_EVD_HANDLE handle, DAT_TIMEOUT us, DAT_COUNT threshold,
                           DAT_EVENT *event, DAT_COUNT *more)
{
    (void)threshold;
    *more = 0;
    fake_step();
    f.now += (uint64_t)us * 1000;
    return evd_dequeue(handle, event) == DAT_SUCCESS ? DAT_SUCCESS : ERROR(DAT_TIMEOUT_EXPIRED);
}

/* An event that is there already triggers nothing: consumers look after they have enabled. */
static DAT_RETURN evd_enable(DAT_EVD_HANDLE handle)
{
    ((struct evd *)handle)->disabled = false;
    return DAT_SUCCESS;
}

static DAT_RETURN evd_disable(DAT_EVD_HANDLE handle)
{
    ((struct evd *)handle)->disabled = true;
    return DAT_SUCCESS;
}

static DAT_RETURN evd_post_se(DAT_EVD_HANDLE handle, const DAT_EVENT *event)
{
    struct evd *evd = handle;

    if (evd->n == evd->qlen)
        return ERROR(DAT_QUEUE_FULL);
    post(evd, event);
    return DAT_SUCCESS;
}

static DAT_RETURN cno_create(DAT_IA_HANDLE ia, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno_p)
{
    struct cno *cno = make(sizeof(*cno));

    (void)ia;
    cno->agent = agent;
    *cno_p = cno;
    return DAT_SUCCESS;
}

static DAT_RETURN cno_modify_agent(DAT_CNO_HANDLE handle, DAT_OS_WAIT_PROXY_AGENT agent)
{
    ((struct cno *)handle)->agent = agent;
    return DAT_SUCCESS;
}

/* Until it is triggered; the time passes at once when nothing can happen. */
static DAT_RETURN cno_wait(DAT_CNO_HANDLE handle, DAT_TIMEOUT us, DAT_EVD_HANDLE *evd_p)
{
    struct cno *cno = handle;
    uint64_t end = f.now + (uint64_t)us * 1000;

    while (!cno->fired && f.now < end)
        if (!fake_step() && f.now < end)
            f.now = end;
    if (!cno->fired)
        return ERROR(DAT_TIMEOUT_EXPIRED);
    *evd_p = cno->fired;
    cno->fired = NULL;
    return DAT_SUCCESS;
}

/* Requests that were not taken are freed with their queue. */
static DAT_RETURN evd_free(DAT_EVD_HANDLE handle)
{
    struct evd *evd = handle;

    for (int i = 0; i < evd->n; i++) {
        const DAT_EVENT *event = &evd->queue[(evd->first + i) % evd->size];

        if (event->event_number == DAT_CONNECTION_REQUEST_EVENT)
            cr_reject(event->event_data.cr_arrival_event_data.cr_handle, 0, NULL);
    }
    free(evd->queue);
    unmake(evd);
    return DAT_SUCCESS;
}

static void complete(struct ep *ep, struct evd *evd, const struct dto *d,
                     DAT_DTO_COMPLETION_STATUS status, uint64_t len)
{
    DAT_EVENT event;
    DAT_DTO_COMPLETION_EVENT_DATA *e = &event.event_data.dto_completion_event_data;

    if (status == DAT_DTO_SUCCESS && d->flags & DAT_COMPLETION_SUPPRESS_FLAG)
        return;
    memset(&event, 0, sizeof(event));
    event.event_number = DAT_DTO_COMPLETION_EVENT;
    e->ep_handle = ep;
    e->user_cookie = d->cookie;
    e->status = status;
    e->transfered_length = (DAT_SEG_LENGTH)len;
    post(evd, &event);
    f.past[f.completions % PAST].evd = evd;
    f.past[f.completions % PAST].event = event;
    f.past[f.completions++ % PAST].ep = ep->serial;
}

/* -- memory ----------------------------------------------------------------------------------- */

static bool has_enough_lmrs(DAT_IA_HANDLE ia)
{
    uint32_t n = 0;

    for (int i = 0; f.limits.lmrs && i < MAX_OBJECTS; i++)
        n += f.lmr[i] && f.lmr[i]->ia == ia;
    return f.limits.lmrs && n >= f.limits.lmrs;
}

static DAT_RETURN lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region,
                             DAT_VLEN len, DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS priv,
                             DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr_p, DAT_LMR_CONTEXT *local,
                             DAT_RMR_CONTEXT *key, DAT_VLEN *got_len, DAT_VADDR *got_addr)
{
    struct lmr *lmr;
    uint32_t slot = 0;

    (void)type, (void)pz, (void)va;
    if (f.limits.lmr && len > f.limits.lmr)
        return ERROR(DAT_INVALID_PARAMETER);
    if (((struct ia *)ia)->dead || has_enough_lmrs(ia) || every(f.faults.refuse_lmr, &f.lmrs))
        return ERROR(DAT_INSUFFICIENT_RESOURCES);
    while (slot < MAX_OBJECTS && f.lmr[slot])
        slot++;
    if (slot == MAX_OBJECTS)
        return ERROR(DAT_INSUFFICIENT_RESOURCES);
    lmr = make(sizeof(*lmr));
    *lmr = (struct lmr){
        lmr->o, ia, (uint64_t)(uintptr_t)region.for_va, len, ++f.gen << 12 | slot, priv,
    };
    f.lmr[slot] = lmr;
    *lmr_p = lmr;
    *local = *key = lmr->key;
    *got_len = len;
    *got_addr = lmr->addr;
    return DAT_SUCCESS;
}

static DAT_RETURN lmr_free(DAT_LMR_HANDLE handle)
{
    struct lmr *lmr = handle;

    f.lmr[lmr->key % MAX_OBJECTS] = NULL;
    unmake(lmr);
    return DAT_SUCCESS;
}

/* The memory of a description, NULL when it is not registered so with that adapter. */
static void *memory(DAT_IA_HANDLE ia, uint64_t addr, uint64_t len, uint32_t key,
                    DAT_MEM_PRIV_FLAGS priv)
{
    struct lmr *lmr = f.lmr[key % MAX_OBJECTS];

    if (!lmr || lmr->ia != ia || lmr->key != key || addr < lmr->addr
        || addr + len > lmr->addr + lmr->len || (lmr->priv & priv) != priv)
        return NULL;
    return (void *)(uintptr_t)addr;
}

static void *local(const struct ep *ep, const DAT_LMR_TRIPLET *seg, uint64_t len)
{
    void *p = memory(ep->ia, seg->virtual_address, len, seg->lmr_context, 0);

    if (!p)
        abort();                 /* the device uses memory that it has not registered */
    return p;
}

/* -- endpoints -------------------------------------------------------------------------------- */

static DAT_RETURN ep_create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv,
                            DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn, const DAT_EP_ATTR *attr,
                            DAT_EP_HANDLE *ep_p)
{
    struct ep *ep;

    (void)pz;
    if (((struct ia *)ia)->dead)
        return ERROR(DAT_INTERNAL_ERROR);
    if ((uint32_t)attr->max_rdma_read_out > f.limits.reads
        || (uint32_t)attr->max_rdma_read_in > reads_in())
        return ERROR(DAT_INVALID_PARAMETER);
    ep = make(sizeof(*ep));
    ep->ia = ia;
    ep->serial = ++f.eps;
    ep->recv_evd = recv;
    ep->req_evd = req;
    ep->conn_evd = conn;
    ep->state = DAT_EP_STATE_UNCONNECTED;
    ep->recv.max = attr->max_recv_dtos;
    ep->req.max = attr->max_request_dtos;
    *ep_p = ep;
    return DAT_SUCCESS;
}

static DAT_RETURN queue(struct dto_queue *q, DAT_DTOS op, const DAT_LMR_TRIPLET *seg,
                        DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                        DAT_COMPLETION_FLAGS flags)
{
    struct dto *d = calloc(1, sizeof(*d));

    if (!d || q->n == q->max) {
        free(d);
        return ERROR(DAT_INSUFFICIENT_RESOURCES);
    }
    *d = (struct dto){ .cookie = cookie, .op = op, .seg = *seg, .flags = flags };
    if (remote)
        d->remote = *remote;
    *(q->first ? &q->last->next : &q->first) = d;
    q->last = d;
    q->n++;
    return DAT_SUCCESS;
}

static void pop(struct dto_queue *q)
{
    struct dto *d = q->first;

    q->first = d->next;
    q->n--;
    free(d->late);
    free(d);
}

/* The late writes to an EP that is being flushed. */
static void land_at(const struct ep *ep)
{
    struct late **at = &f.late, *l;

    while (f.land_at_flush && (l = *at)) {
        if (l->ep != ep->serial) {
            at = &l->next;
            continue;
        }
        memcpy((void *)(uintptr_t)l->to.virtual_address, l->bytes, l->len);
        *at = l->next;
        free(l);
    }
}

static bool is_silent(const struct ep *ep)
{
    return ((struct ia *)ep->ia)->silent;
}

static void flush(struct ep *ep)
{
    ep->unflushed = !is_silent(ep) && (f.hold_flushes || f.flushes_at > 0);
    if (ep->unflushed || is_silent(ep))
        return;
    land_at(ep);
    for (struct dto *d; (d = ep->req.first); pop(&ep->req)) {
        if (d->late)
            memcpy(local(ep, &d->seg, d->seg.segment_length), d->late, d->seg.segment_length);
        complete(ep, ep->req_evd, d, DAT_DTO_ERR_FLUSHED, 0);
    }
    for (; ep->recv.first; pop(&ep->recv))
        complete(ep, ep->recv_evd, ep->recv.first, DAT_DTO_ERR_FLUSHED, 0);
}

static void drop_pending(const struct ep *ep)
{
    struct pending **at = &f.pending;

    for (struct cr *cr = f.crs; cr; cr = cr->next)
        if (cr->caller == ep)
            cr->caller = NULL;
    while (*at) {
        struct pending *p = *at;

        if (p->kind == CM_EVENT && p->ep == ep) {
            *at = p->next;
            free(p);
        } else {
            at = &p->next;
        }
    }
}

/* Is it the event of a connection's end, or of a request's? */
static bool ends(DAT_EVENT_NUMBER number)
{
    return number == DAT_CONNECTION_EVENT_DISCONNECTED || number == DAT_CONNECTION_EVENT_BROKEN
           || number == DAT_CONNECTION_EVENT_PEER_REJECTED;
}

static void queue_event(struct ep *ep, DAT_EVENT_NUMBER number, const void *priv, int len)
{
    struct pending *p = calloc(1, sizeof(*p)), **at = &f.pending;

    if (!p)
        abort();
    p->kind = CM_EVENT;
    p->ep = ep;
    p->number = number;
    p->parked = (f.hold_ends || f.ends_at > 0) && ends(number);
    p->len = len;
    if (len > 0)
        memcpy(p->priv, priv, (size_t)len);
    while (*at)
        at = &(*at)->next;
    *at = p;
}

void fake_delay_writes(bool delay)
{
    f.delay_writes = delay;
}

/* Keeps the writes that ep has posted to peer and that have not been executed. */
static void delay_writes(struct ep *ep, const struct ep *peer)
{
    for (struct dto *d = ep->req.first; d && f.delay_writes; d = d->next) {
        uint64_t len = d->seg.segment_length;
        struct late *l = d->op == DAT_DTO_RDMA_WRITE && !d->executed && !d->delayed
                             ? malloc(sizeof(*l) + len) : NULL;

        if (!l)
            continue;
        d->delayed = true;
        *l = (struct late){ .next = f.late, .ia = peer->ia, .ep = peer->serial, .to = d->remote,
                            .len = len };
        memcpy(l->bytes, local(ep, &d->seg, len), len);
        f.late = l;
    }
}

/* Takes the data of the reads that ep has made of peer's memory and that have not been executed. */
static void delay_reads(struct ep *ep, const struct ep *peer)
{
    for (struct dto *d = ep->req.first; d && f.delay_reads; d = d->next) {
        uint64_t len = d->seg.segment_length;
        const void *from = d->op == DAT_DTO_RDMA_READ && !d->executed
                               ? memory(peer->ia, d->remote.virtual_address, len,
                                        d->remote.rmr_context, DAT_MEM_PRIV_REMOTE_READ_FLAG)
                               : NULL;

        d->late = from ? malloc(len) : NULL;
        if (d->late)
            memcpy(d->late, from, len);
    }
}

static int land_writes(bool anywhere)
{
    struct late *l;
    int n = 0;

    while ((l = f.late)) {
        void *to = memory(l->ia, l->to.virtual_address, l->len, l->to.rmr_context,
                          DAT_MEM_PRIV_REMOTE_WRITE_FLAG);

        if (!to && anywhere)
            to = (void *)(uintptr_t)l->to.virtual_address;
        if (to)
            memcpy(to, l->bytes, l->len);
        n += to != NULL;
        f.late = l->next;
        free(l);
    }
    return n;
}

int fake_land_writes(void)
{
    return land_writes(false);
}

int fake_land_writes_anywhere(void)
{
    return land_writes(true);
}

void fake_land_at_flush(bool land)
{
    f.land_at_flush = land;
}

void fake_delay_reads(bool delay)
{
    f.delay_reads = delay;
}

/* The event of an EP's end. */
static void report_end(struct ep *ep, DAT_EVENT_NUMBER number)
{
    if (!is_silent(ep))
        queue_event(ep, number, NULL, 0);
}

/* The other end does not notice, unless one of its requests fails, from this time on. */
static void leave_half_open(struct ep *ep, uint64_t until)
{
    struct ep *peer = ep->peer;

    delay_writes(ep, peer);
    delay_writes(peer, ep);
    delay_reads(ep, peer);
    delay_reads(peer, ep);
    ep->peer = NULL;
    peer->peer = NULL;
    peer->half_open = true;
    peer->fails_at = until;
}

/* Has the connection of an EP a direction that loses everything? */
static bool has_silence(const struct ep *ep)
{
    return ep->peer && (ep->swallows || ep->peer->swallows);
}

/* The connection of an EP ends: the other end gets an event, both flush. */
static void end(struct ep *ep, DAT_EVENT_NUMBER number)
{
    struct ep *peer = ep->peer;

    if (has_silence(ep)) {
        f.broken += ep->planned_silence || peer->planned_silence;
        leave_half_open(ep, UINT64_MAX);
        peer = NULL;
    }
    ep->peer = NULL;
    ep->state = DAT_EP_STATE_DISCONNECTED;
    if (peer) {
        delay_writes(ep, peer);
        delay_writes(peer, ep);
        delay_reads(ep, peer);
        delay_reads(peer, ep);
    }
    flush(ep);
    report_end(ep, number);
    if (peer) {
        peer->peer = NULL;
        peer->state = DAT_EP_STATE_DISCONNECTED;
        flush(peer);
        report_end(peer, number);
    }
}

static DAT_RETURN ep_disconnect(DAT_EP_HANDLE handle, DAT_CLOSE_FLAGS flags)
{
    struct ep *ep = handle;

    (void)flags;
    f.taken_back += ep->state == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
    if (ep->state != DAT_EP_STATE_UNCONNECTED && ep->state != DAT_EP_STATE_DISCONNECTED) {
        drop_pending(ep);
        end(ep, DAT_CONNECTION_EVENT_DISCONNECTED);
    }
    return DAT_SUCCESS;
}

static DAT_RETURN ep_reset(DAT_EP_HANDLE handle)
{
    struct ep *ep = handle;

    while ((ep->called || ep->connected) && ep->recv.first)
        pop(&ep->recv);
    flush(ep);
    ep->state = DAT_EP_STATE_UNCONNECTED;
    return DAT_SUCCESS;
}

static DAT_RETURN ep_free(DAT_EP_HANDLE handle)
{
    struct ep *ep = handle;

    ep_disconnect(ep, DAT_CLOSE_ABRUPT_FLAG);
    drop_pending(ep);
    flush(ep);
    while (ep->req.first)        /* held requests end without an event */
        pop(&ep->req);
    while (ep->recv.first)
        pop(&ep->recv);
    unmake(ep);
    return DAT_SUCCESS;
}

static DAT_RETURN ep_get_status(DAT_EP_HANDLE handle, DAT_EP_STATE *state, DAT_BOOLEAN *recv_idle,
                                DAT_BOOLEAN *req_idle)
{
    struct ep *ep = handle;

    *state = ep->state;
    *recv_idle = ep->recv.n == 0;
    *req_idle = ep->req.n == 0;
    return DAT_SUCCESS;
}

static DAT_RETURN post_request(DAT_EP_HANDLE handle, DAT_DTOS op, const DAT_LMR_TRIPLET *seg,
                               DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                               DAT_COMPLETION_FLAGS flags)
{
    struct ep *ep = handle;
    DAT_RETURN ret;

    local(ep, seg, seg->segment_length);
    if (ep->state != DAT_EP_STATE_CONNECTED && ep->state != DAT_EP_STATE_DISCONNECTED)
        return ERROR(DAT_INVALID_STATE);
    if (ep->accepted && !ep->received)
        abort();                 /* the acceptor transmits first */
    ret = queue(&ep->req, op, seg, cookie, remote, flags);
    if (ret == DAT_SUCCESS && ep->state == DAT_EP_STATE_DISCONNECTED)
        flush(ep);
    return ret;
}

static DAT_RETURN ep_post_send(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                               DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    if (f.faults.refuse_send && ++f.sends == f.faults.refuse_send) {
        f.refused_bytes = seg->segment_length;
        return ERROR(DAT_INSUFFICIENT_RESOURCES);
    }
    return n == 1 ? post_request(ep, DAT_DTO_SEND, seg, cookie, NULL, flags)
                  : ERROR(DAT_INVALID_PARAMETER);
}

static DAT_RETURN ep_post_read(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                               DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                               DAT_COMPLETION_FLAGS flags)
{
    if (n != 1 || seg->segment_length > f.limits.rdma
        || seg->segment_length != remote->segment_length)
        return ERROR(DAT_INVALID_PARAMETER);
    return post_request(ep, DAT_DTO_RDMA_READ, seg, cookie, remote, flags);
}

static DAT_RETURN ep_post_write(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                                DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                                DAT_COMPLETION_FLAGS flags)
{
    if (n != 1 || seg->segment_length > f.limits.rdma
        || seg->segment_length > remote->segment_length)
        return ERROR(DAT_INVALID_PARAMETER);
    return post_request(ep, DAT_DTO_RDMA_WRITE, seg, cookie, remote, flags);
}

static DAT_RETURN ep_post_recv(DAT_EP_HANDLE handle, DAT_COUNT n, DAT_LMR_TRIPLET *seg,
                               DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags)
{
    struct ep *ep = handle;
    DAT_RETURN ret;

    if (ep->received > 1 && f.faults.refuse_recv && ++f.recvs == f.faults.refuse_recv)
        return ERROR(DAT_INSUFFICIENT_RESOURCES);
    ret = n >= 1 && n <= RECV_SEGS ? queue(&ep->recv, DAT_DTO_RECEIVE, seg, cookie, NULL, flags)
                                   : ERROR(DAT_INVALID_PARAMETER);
    if (ret == DAT_SUCCESS && n == RECV_SEGS)
        ep->recv.last->more = seg[1];
    if (ret == DAT_SUCCESS && ep->state == DAT_EP_STATE_DISCONNECTED)
        flush(ep);
    return ret;
}

static struct cr *cr_make(struct ep *caller, const void *priv, int len)
{
    struct cr *cr = make(sizeof(*cr));

    cr->caller = caller;
    cr->stranger = !caller;
    cr->len = len;
    memcpy(cr->priv, priv, (size_t)len);
    cr->next = f.crs;
    f.crs = cr;
    return cr;
}

static void cr_unmake(struct cr *cr)
{
    struct cr **at = &f.crs;

    while (*at != cr)
        at = &(*at)->next;
    *at = cr->next;
    unmake(cr);
}

/* -- connecting ------------------------------------------------------------------------------- */

/* A handle is a PSP if it is on this list. */
static struct psp *psps[PSPS];

static struct psp *find_psp(DAT_CONN_QUAL qual)
{
    for (int i = 0; i < PSPS; i++)
        if (psps[i] && psps[i]->qual == qual)
            return psps[i];
    return NULL;
}

static DAT_RETURN psp_create(DAT_IA_HANDLE ia, DAT_CONN_QUAL qual, DAT_EVD_HANDLE evd,
                             DAT_PSP_FLAGS flags, DAT_PSP_HANDLE *psp_p)
{
    struct psp *psp;
    int i = 0;

    (void)flags;
    if (find_psp(qual))
        return ERROR(DAT_CONN_QUAL_IN_USE);
    psp = make(sizeof(*psp));
    psp->ia = ia;
    psp->evd = evd;
    psp->qual = qual;
    while (psps[i])
        i++;
    psps[i] = psp;
    *psp_p = psp;
    return DAT_SUCCESS;
}

static DAT_RETURN psp_free(DAT_PSP_HANDLE handle)
{
    for (int i = 0; i < PSPS; i++)
        if ((void *)psps[i] == handle)
            psps[i] = NULL;
    unmake(handle);
    return DAT_SUCCESS;
}

static void arrive_later(struct cr *cr, DAT_CONN_QUAL qual)
{
    struct pending *p = calloc(1, sizeof(*p));

    if (!p)
        abort();
    p->kind = ARRIVE;
    p->cr = cr;
    p->qual = qual;
    p->parked = f.hold || f.late_next_cr;
    if (f.late_next_cr)
        f.late_at = f.now + LATE_NS;
    f.late_next_cr = false;
    p->next = f.pending;
    f.pending = p;
}

void fake_hold_requests(bool hold)
{
    f.hold = hold;
    for (struct pending *p = f.pending; p; p = p->next)
        p->parked = p->parked && (hold || p->kind != ARRIVE);
}

void fake_hold_ends(bool hold)
{
    f.hold_ends = hold;
    for (struct pending *p = f.pending; p; p = p->next)
        p->parked = p->parked && (hold || p->kind == ARRIVE);
}

unsigned fake_requests(void)
{
    return f.calls;
}

unsigned fake_taken_back(void)
{
    return f.taken_back;
}

static DAT_RETURN ep_connect(DAT_EP_HANDLE handle, DAT_IA_ADDRESS_PTR to, DAT_CONN_QUAL qual,
                             DAT_TIMEOUT us, DAT_COUNT len, const DAT_PVOID priv, DAT_QOS qos,
                             DAT_CONNECT_FLAGS flags)
{
    struct ep *ep = handle;

    (void)to, (void)qos, (void)flags;
    if (us != DAT_TIMEOUT_INFINITE)
        abort();                 /* a provider's timer may find the EP freed */
    if (ep->state != DAT_EP_STATE_UNCONNECTED || (uint32_t)len > f.limits.priv)
        return ERROR(DAT_INVALID_STATE);
    ep->state = DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
    ep->called = true;
    f.calls++;
    if (f.faults.answer) {
        queue_event(ep, f.faults.answer, NULL, 0);
        return DAT_SUCCESS;
    }
    if ((f.faults.lose_cr && f.calls % f.faults.lose_cr == 0) || f.lose_next_cr) {
        f.lose_next_cr = false;
        return DAT_SUCCESS;
    }
    if (f.faults.time_out_cr && f.calls % f.faults.time_out_cr == 0) {
        queue_event(ep, DAT_CONNECTION_EVENT_TIMED_OUT, NULL, 0);
        return DAT_SUCCESS;
    }
    if (f.faults.reject_cr && f.calls % f.faults.reject_cr == 0) {
        queue_event(ep, DAT_CONNECTION_EVENT_NON_PEER_REJECTED, NULL, 0);
        return DAT_SUCCESS;
    }
    arrive_later(cr_make(ep, priv, len), qual);
    if (f.faults.dup_cr && f.calls % f.faults.dup_cr == 0) {
        struct cr *again = cr_make(NULL, priv, len);

        again->stranger = false;
        arrive_later(again, qual);
    }
    return DAT_SUCCESS;
}

static DAT_RETURN cr_query(DAT_CR_HANDLE handle, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM *param)
{
    struct cr *cr = handle;

    (void)mask;
    memset(param, 0, sizeof(*param));
    param->private_data = cr->len ? cr->priv : NULL;
    param->private_data_size = cr->len;
    return DAT_SUCCESS;
}

/* The event that it has been established arrives late. */
static void park_established(const struct ep *ep)
{
    f.late_at = f.now + LATE_NS;
    for (struct pending *p = f.pending; p; p = p->next)
        p->parked |= p->kind == CM_EVENT && p->ep == ep;
}

static void take_first_path(struct ep *caller);
static bool has_path(const struct ep *caller, const struct ia *to);

static DAT_RETURN cr_accept(DAT_CR_HANDLE handle, DAT_EP_HANDLE ep_handle, DAT_COUNT len,
                            const DAT_PVOID priv)
{
    struct cr *cr = handle;
    struct ep *ep = ep_handle, *caller = cr->caller;

    cr_unmake(cr);
    if (!caller || caller->state != DAT_EP_STATE_ACTIVE_CONNECTION_PENDING) {
        ep->state = DAT_EP_STATE_DISCONNECTED;
        queue_event(ep, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, NULL, 0);
        return DAT_SUCCESS;
    }
    if (every(f.faults.lose_accept, &f.accepts) || f.lose_next_accept) {
        f.lose_next_accept = false;
        ep->state = DAT_EP_STATE_COMPLETION_PENDING;
        return DAT_SUCCESS;
    }
    caller->peer = ep;
    ep->peer = caller;
    take_first_path(caller);
    ep->accepted = true;
    ep->connected = caller->connected = true;
    ep->state = caller->state = DAT_EP_STATE_CONNECTED;
    queue_event(caller, DAT_CONNECTION_EVENT_ESTABLISHED, priv, len);
    if (f.late_next_accept)
        park_established(caller);
    f.late_next_accept = false;
    queue_event(ep, DAT_CONNECTION_EVENT_ESTABLISHED, NULL, 0);
    return DAT_SUCCESS;
}

static DAT_RETURN cr_reject(DAT_CR_HANDLE handle, DAT_COUNT len, const DAT_PVOID priv)
{
    struct cr *cr = handle;
    struct ep *caller = cr->caller;

    f.strangers_rejected += cr->stranger;
    cr_unmake(cr);
    if (caller && caller->state == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING)
        queue_event(caller, DAT_CONNECTION_EVENT_PEER_REJECTED, priv, len);
    return DAT_SUCCESS;
}

bool fake_stranger(int nth, const void *priv, size_t len)
{
    for (int i = 0; i < PSPS; i++) {
        if (!psps[i] || nth-- > 0)
            continue;
        arrive_later(cr_make(NULL, priv, (int)len), psps[i]->qual);
        return true;
    }
    return false;
}

int fake_strangers_rejected(void)
{
    return f.strangers_rejected;
}

uint64_t fake_not_ready(void)
{
    return f.not_ready;
}

void fake_forge(const void *bytes, size_t len)
{
    memcpy(f.forged, bytes, len);
    f.forged_len = len;
}

/* -- what happens ----------------------------------------------------------------------------- */

/* Nobody listens where the request was to arrive. */
static void refuse_unknown(struct cr *cr)
{
    if (cr->caller && cr->caller->state == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING)
        queue_event(cr->caller, DAT_CONNECTION_EVENT_NON_PEER_REJECTED, NULL, 0);
    cr_unmake(cr);
}

static void happen_pending(struct pending *p)
{
    DAT_EVENT event;

    memset(&event, 0, sizeof(event));
    if (p->kind == ARRIVE) {
        struct psp *psp = find_psp(p->qual);

        if (!psp || psp->ia->dead) {
            refuse_unknown(p->cr);
            return;
        }
        if (p->cr->caller && !has_path(p->cr->caller, psp->ia)) {
            cr_unmake(p->cr);    /* it is lost */
            return;
        }
        event.event_number = DAT_CONNECTION_REQUEST_EVENT;
        event.event_data.cr_arrival_event_data.cr_handle = p->cr;
        if (!post(psp->evd, &event)) {
            if (p->cr->caller)
                queue_event(p->cr->caller, DAT_CONNECTION_EVENT_TIMED_OUT, NULL, 0);
            cr_unmake(p->cr);
        }
        return;
    }
    if (p->number != DAT_CONNECTION_EVENT_ESTABLISHED)
        p->ep->state = DAT_EP_STATE_DISCONNECTED;
    event.event_number = p->number;
    event.event_data.connect_event_data.ep_handle = p->ep;
    memcpy(p->ep->priv, p->priv, sizeof(p->priv));
    event.event_data.connect_event_data.private_data = p->len ? p->ep->priv : NULL;
    event.event_data.connect_event_data.private_data_size = p->len;
    post(p->ep->conn_evd, &event);
}

/* Copies a frame to the segments of a receive. */
static void scatter(const struct ep *ep, const struct dto *to, const void *from, uint64_t len)
{
    uint64_t first = len < to->seg.segment_length ? len : to->seg.segment_length;

    if (len - first > to->more.segment_length)
        abort();                 /* a frame longer than its receive */
    memcpy(local(ep, &to->seg, first), from, first);
    if (len > first)
        memcpy(local(ep, &to->more, len - first), (const char *)from + first, len - first);
}

static bool execute_send(struct ep *ep, struct dto *d)
{
    struct dto *to = ep->peer->recv.first;
    uint64_t len = d->seg.segment_length;

    if (!to)
        return f.not_ready++, false;     /* an adapter tries again, for a while */
    scatter(ep->peer, to, local(ep, &d->seg, len), len);
    if (f.forged_len > 0) {
        scatter(ep->peer, to, f.forged, f.forged_len);
        len = f.forged_len;
        f.forged_len = 0;
    }
    complete(ep->peer, ep->peer->recv_evd, to, DAT_DTO_SUCCESS, len);
    pop(&ep->peer->recv);
    ep->peer->received++;
    return true;
}

/* Bytes land one part after the other, as adapters place them: the last 8 by themselves. */
static bool execute_write(struct ep *ep, struct dto *d)
{
    uint64_t len = d->seg.segment_length, last = len < 8 ? len : 8;
    uint8_t *from = local(ep, &d->seg, len);
    uint8_t *to = memory(ep->peer->ia, d->remote.virtual_address, len, d->remote.rmr_context,
                         DAT_MEM_PRIV_REMOTE_WRITE_FLAG);

    if (!to)
        abort();                 /* writes where the peer has not allowed it, or not any more */
    if (!d->half) {
        memcpy(to, from, len - last);
        d->half = true;
        return false;
    }
    memcpy(to + len - last, from + len - last, last);
    return true;
}

static bool execute(struct ep *ep, struct dto *d)
{
    uint64_t len = d->seg.segment_length;
    void *from;

    if (d->op == DAT_DTO_SEND)
        return execute_send(ep, d);
    if (d->op == DAT_DTO_RDMA_WRITE)
        return execute_write(ep, d);
    from = memory(ep->peer->ia, d->remote.virtual_address, len, d->remote.rmr_context,
                  DAT_MEM_PRIV_REMOTE_READ_FLAG);
    if (!from)
        abort();                 /* reads what the peer has not offered, or not any more */
    if (f.limits.sink_needs_write
        && !memory(ep->ia, d->seg.virtual_address, len, d->seg.lmr_context,
                   DAT_MEM_PRIV_REMOTE_WRITE_FLAG))
        abort();                 /* the answer cannot be placed */
    memcpy(local(ep, &d->seg, len), from, len);
    return true;
}

/* Is it the frame by which a caller permits the acceptor to transmit? It is not counted. */
static bool is_first(const struct ep *ep, const struct dto *d)
{
    return ep->peer->accepted && !ep->peer->received && d->op == DAT_DTO_SEND;
}

/* The request fails, and its connection with it; those before it have succeeded. */
static bool dto_fails(struct ep *ep, struct dto *d)
{
    if (d->op != f.faults.fail_op || d->counted || is_first(ep, d))
        return false;
    d->counted = true;
    if (++f.counted != f.faults.fail_nth)
        return false;
    while (ep->req.first != d) {
        complete(ep, ep->req_evd, ep->req.first, DAT_DTO_SUCCESS,
                 ep->req.first->seg.segment_length);
        pop(&ep->req);
    }
    complete(ep, ep->req_evd, d, f.faults.fail_status, 0);
    pop(&ep->req);
    end(ep, DAT_CONNECTION_EVENT_BROKEN);
    return true;
}

/* -- the plan --------------------------------------------------------------------------------- */

void fake_plan(const struct fake_fault *plan, int n)
{
    f.plan = plan;
    f.n_plan = n;
}

unsigned fake_broken(void)
{
    return f.broken;
}

unsigned fake_doubled(void)
{
    return f.doubled;
}

unsigned fake_executed(void)
{
    return f.requests;
}

uint64_t fake_refused_bytes(void)
{
    return f.refused_bytes;
}

unsigned fake_looked_behind(void)
{
    return f.looked_behind;
}

/* The fault of the request that is executed next; FAKE_FAULT_KINDS: none. */
static enum fake_fault_kind next_fault(void)
{
    f.requests++;
    for (int i = 0; i < f.n_plan; i++)
        if (f.plan[i].nth == f.requests)
            return f.plan[i].kind;
    return FAKE_FAULT_KINDS;
}

/* The requests before d have succeeded. */
static void complete_before(struct ep *ep, const struct dto *d)
{
    while (ep->req.first != d) {
        complete(ep, ep->req_evd, ep->req.first, DAT_DTO_SUCCESS,
                 ep->req.first->seg.segment_length);
        pop(&ep->req);
    }
}

/* The connection of ep breaks at d, which completes with an error unless it has succeeded. */
static void break_at(struct ep *ep, struct dto *d, enum fake_fault_kind kind)
{
    f.broken++;
    complete_before(ep, d);
    if (kind == FAKE_NOT_EXECUTED || kind == FAKE_ONE_SIDED)
        delay_writes(ep, ep->peer);
    complete(ep, ep->req_evd, d,
             kind == FAKE_THEN_BREAK ? DAT_DTO_SUCCESS : DAT_DTO_ERR_TRANSPORT,
             kind == FAKE_THEN_BREAK ? d->seg.segment_length : 0);
    pop(&ep->req);
    if (kind == FAKE_ONE_SIDED)
        leave_half_open(ep, f.now + LATE_NS);
    f.flushes_at = kind == FAKE_FLUSH_LATE ? f.now + LATE_NS : f.flushes_at;
    f.ends_at = kind == FAKE_END_LATE ? f.now + LATE_NS : f.ends_at;
    f.lose_next_cr |= kind == FAKE_REQUEST_LOST;
    f.late_next_cr |= kind == FAKE_REQUEST_LATE;
    f.lose_next_accept |= kind == FAKE_ACCEPT_LOST;
    f.late_next_accept |= kind == FAKE_ACCEPT_LATE;
    end(ep, DAT_CONNECTION_EVENT_BROKEN);
}

static void double_completion(struct ep *ep, struct dto *d)
{
    complete_before(ep, d);
    complete(ep, ep->req_evd, d, DAT_DTO_SUCCESS, d->seg.segment_length);
    if (!(d->flags & DAT_COMPLETION_SUPPRESS_FLAG)) {
        complete(ep, ep->req_evd, d, DAT_DTO_SUCCESS, d->seg.segment_length);
        f.doubled++;
    }
    pop(&ep->req);
}

static void swallow(struct ep *ep, bool both)
{
    ep->swallows = true;
    if (ep->peer)
        ep->peer->swallows |= both;
}

/* The request has its turn: the fault that the plan has for it happens. False: it has none. */
static bool planned(struct ep *ep, struct dto *d)
{
    enum fake_fault_kind kind;

    if (d->met || (d->op == DAT_DTO_SEND && !ep->peer->recv.first))
        return false;
    d->met = true;
    kind = next_fault();
    if (kind == FAKE_FAULT_KINDS)
        return false;
    if (kind == FAKE_SWALLOWED || kind == FAKE_SWALLOWED_BOTH) {
        swallow(ep, kind == FAKE_SWALLOWED_BOTH);
        ep->planned_silence = true;
        return true;
    }
    if (kind != FAKE_NOT_EXECUTED && kind != FAKE_ONE_SIDED)
        while (!execute(ep, d))
            ;
    if (kind == FAKE_DOUBLED)
        double_completion(ep, d);
    else
        break_at(ep, d, kind);
    return true;
}

/* A request on a connection that the other end has ended without notice fails after a while. */
static bool half_open_fails(struct ep *ep)
{
    if (!ep->half_open || ep->state != DAT_EP_STATE_CONNECTED || !ep->req.first
        || f.now < ep->fails_at)
        return false;
    complete(ep, ep->req_evd, ep->req.first, DAT_DTO_ERR_TRANSPORT, 0);
    pop(&ep->req);
    end(ep, DAT_CONNECTION_EVENT_BROKEN);
    return true;
}

/* What was held for some time is late enough. */
static void end_holds(void)
{
    if (f.flushes_at > 0 && f.now >= f.flushes_at) {
        f.flushes_at = 0;
        fake_hold_flushes(f.hold_flushes);
    }
    if (f.ends_at > 0 && f.now >= f.ends_at) {
        f.ends_at = 0;
        fake_hold_ends(f.hold_ends);
    }
    for (struct pending *p = f.pending; f.late_at > 0 && f.now >= f.late_at && p; p = p->next)
        p->parked = (f.hold && p->kind == ARRIVE) || (f.hold_ends && p->parked);
    f.late_at = f.now >= f.late_at ? 0 : f.late_at;
}

/* The oldest request that has not been executed. */
static struct dto *to_execute(struct ep *ep)
{
    struct dto *d = ep->req.first;

    while (d && d->executed)
        d = d->next;
    return d;
}

void fake_slow_reads(uint64_t ns)
{
    f.read_ns = ns;
}

/* The requests of an EP get their turns: the data of reads is transmitted by the other end, each in
 * its turn, and the requests of an EP behind what it has to transmit then. */
static void take_turns(struct ep *ep)
{
    for (struct dto *d = ep->req.first; d; d = d->next) {
        struct ep *from = d->op == DAT_DTO_RDMA_READ ? ep->peer : ep;

        if (d->at)
            continue;
        from->free_at = from->free_at > f.now ? from->free_at : f.now;
        if (d->op == DAT_DTO_RDMA_READ)
            from->free_at += d->seg.segment_length * f.read_ns / 1024;
        d->at = from->free_at;
    }
}

/* The request behind the first one, a read, is executed and completes before that. */
static void let_pass(struct dto_queue *q)
{
    struct dto *read = q->first, *next = read ? read->next : NULL;

    if (!next || read->op != DAT_DTO_RDMA_READ || read->executed || read->late
        || next->op == DAT_DTO_RDMA_READ)
        return;
    read->next = next->next;
    next->next = read;
    q->first = next;
    if (q->last == next)
        q->last = read;
}

static bool stands_still(struct ep *ep);

/* Moves one EP: executes a request, or completes one that has been executed. */
static bool move_ep(struct ep *ep)
{
    struct dto *d;
    bool can_complete;
    bool half, first;

    if (f.faults.late_read && fake_random(f.faults.late_read) == 0)
        let_pass(&ep->req);
    d = to_execute(ep);
    can_complete = ep->req.first && ep->req.first->executed;
    half = d && d->half;
    if (half_open_fails(ep))
        return true;
    if (ep->state != DAT_EP_STATE_CONNECTED || !ep->peer || stands_still(ep))
        return false;
    if (ep->swallows)
        return false;
    if (f.read_ns)
        take_turns(ep);
    if (d && f.now < d->at)
        d = NULL;
    if (d && (dto_fails(ep, d) || planned(ep, d)))
        return true;
    first = d && is_first(ep, d);
    if (d && (!can_complete || fake_random(2)) && execute(ep, d)) {
        d->executed = true;
        if (f.faults.break_after && !first && ++f.executed == f.faults.break_after)
            end(ep, DAT_CONNECTION_EVENT_BROKEN);
        return true;
    }
    if (d && d->half && !half)
        return true;
    if (!can_complete || ep->peer->swallows)
        return false;
    complete(ep, ep->req_evd, ep->req.first, DAT_DTO_SUCCESS, ep->req.first->seg.segment_length);
    pop(&ep->req);
    return true;
}

/* All EPs, and free places; a new one takes the first of these. */
static struct ep **eps;
static int n_eps;

void fake_async_ep(int nth, DAT_EVENT_NUMBER number)
{
    post_async(((struct ia *)eps[nth]->ia)->async, eps[nth], number);
}

void fake_swallow(int nth, bool both)
{
    swallow(eps[nth], both);
}

void fake_end_swallow(void)
{
    for (int i = 0; i < n_eps; i++)
        if (eps[i])
            eps[i]->swallows = false;
}

int fake_nth_ep(DAT_EP_HANDLE ep)
{
    int i = 0;

    while (i < n_eps && eps[i] != ep)
        i++;
    return i;
}

void fake_hold(int nth)
{
    f.parked = nth;
}

void fake_hold_ia(int nth)
{
    f.held_ia = nth < 0 ? NULL : nth_ia(nth);
}

void fake_hold_flushes(bool hold)
{
    f.hold_flushes = hold;
    for (int i = 0; i < n_eps && !hold; i++)
        if (eps[i] && eps[i]->unflushed)
            flush(eps[i]);
}

int fake_complete_again(bool freed)
{
    int n = 0;

    for (int i = 0; i < PAST && f.past[i].evd; i++) {
        bool exists = false;

        for (int k = 0; k < n_eps; k++)
            exists |= eps[k] && eps[k]->serial == f.past[i].ep;
        if (exists == freed)
            continue;
        post(f.past[i].evd, &f.past[i].event);
        n++;
    }
    return n;
}

int fake_eps(void)
{
    int n = 0;

    for (int i = 0; i < n_eps; i++)
        n += eps[i] != NULL;
    return n;
}

/* Twice as many as there are. */
static void make_places(void)
{
    int n = n_eps ? 2 * n_eps : FEW_EPS;

    eps = realloc(eps, (size_t)n * sizeof(*eps));
    if (!eps)
        abort();
    memset(eps + n_eps, 0, (size_t)(n - n_eps) * sizeof(*eps));
    n_eps = n;
}

static DAT_RETURN ep_create_listed(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, DAT_EVD_HANDLE recv,
                                   DAT_EVD_HANDLE req, DAT_EVD_HANDLE conn,
                                   const DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep_p)
{
    DAT_RETURN ret;
    int i = 0;

    while (i < n_eps && eps[i])
        i++;
    if (i == n_eps)
        make_places();
    ret = ep_create(ia, pz, recv, req, conn, attr, ep_p);
    if (ret == DAT_SUCCESS)
        eps[i] = *ep_p;
    return ret;
}

static DAT_RETURN ep_free_listed(DAT_EP_HANDLE handle)
{
    if (f.refuse_closes && ((struct ia *)((struct ep *)handle)->ia)->dead)
        return ERROR(DAT_INTERNAL_ERROR);
    for (int i = 0; i < n_eps; i++)
        if ((void *)eps[i] == handle)
            eps[i] = NULL;
    return ep_free(handle);
}

/* Events of one connection arrive in order; the connection is chosen. */
static bool move_pending(void)
{
    struct pending **at = &f.pending, *p;
    uint64_t n = 0, pick;

    for (p = f.pending; p; p = p->next)
        n += !p->parked;
    if (n == 0)
        return false;
    pick = fake_random(n);
    while ((*at)->parked || pick-- > 0)
        at = &(*at)->next;
    p = *at;
    if (p->kind == CM_EVENT)
        for (at = &f.pending; (*at)->kind != CM_EVENT || (*at)->ep != p->ep; at = &(*at)->next)
            ;
    p = *at;
    *at = p->next;
    happen_pending(p);
    free(p);
    return true;
}

void fake_end_requests(DAT_EVENT_NUMBER number)
{
    for (int i = 0; i < n_eps; i++) {
        struct ep *ep = eps[i];

        if (!ep || ep->state != DAT_EP_STATE_ACTIVE_CONNECTION_PENDING)
            continue;
        drop_pending(ep);
        ep->state = DAT_EP_STATE_DISCONNECTED;
        queue_event(ep, number, NULL, 0);
    }
}

static void break_all(const struct ia *ia)
{
    for (int i = 0; i < n_eps; i++)
        if (eps[i] && eps[i]->ia == ia && eps[i]->state == DAT_EP_STATE_CONNECTED)
            end(eps[i], DAT_CONNECTION_EVENT_BROKEN);
}

static void end_ia(struct ia *ia, bool silent)
{
    ia->dead = true;
    ia->silent = silent;
    break_all(ia);
}

void fake_break_all(int nth)
{
    break_all(nth_ia(nth));
}

void fake_end_ia(int nth)
{
    fake_async(nth, DAT_ASYNC_ERROR_IA_CATASTROPHIC);
    end_ia(nth_ia(nth), false);
}

void fake_end_ia_unreported(int nth)
{
    struct ia *ia = nth_ia(nth);

    if (ia)
        end_ia(ia, false);
}

void fake_end_ia_later(unsigned steps, int nth, bool silent)
{
    f.end_ia_at = f.steps + steps;
    f.end_ia = nth;
    f.end_silently = silent;
}

unsigned fake_steps(void)
{
    return f.steps;
}

struct fake_faults *fake_faults(void)
{
    return &f.faults;
}

unsigned fake_under_way(int nth)
{
    const struct ia *ia = nth_ia(nth);
    unsigned n = 0;

    for (int i = 0; i < n_eps; i++)
        n += eps[i] && eps[i]->ia == ia
             && eps[i]->state == DAT_EP_STATE_ACTIVE_CONNECTION_PENDING;
    return n;
}

/* first: the EP that is tried first. */
static bool step(uint64_t first)
{
    if (fake_random(3) == 0 && move_pending())
        return true;
    for (int i = 0; i < n_eps; i++) {
        int at = (int)((first + (uint64_t)i) % (uint64_t)n_eps);

        if (eps[at] && at != f.parked && eps[at]->ia != f.held_ia && move_ep(eps[at]))
            return true;
    }
    return move_pending();
}

/* -- paths ------------------------------------------------------------------------------------ */

static struct ia *ia_of(const struct ep *ep)
{
    return ep->ia;
}

static bool works(const struct ep *ep, unsigned local, unsigned remote)
{
    return !ia_of(ep)->port_down[local] && !ia_of(ep->peer)->port_down[remote];
}

static bool is_up(const struct ep *ep)
{
    return ep && ep->peer && ep->state == DAT_EP_STATE_CONNECTED;
}

static unsigned first_up(const struct ia *ia)
{
    unsigned port = 1;

    while (port < ia->ports && ia->port_down[port])
        port++;
    return ia->ports ? port : 0;
}

static bool has_path(const struct ep *caller, const struct ia *to)
{
    return !ia_of(caller)->port_down[first_up(ia_of(caller))] && !to->port_down[first_up(to)];
}

static void take_first_path(struct ep *caller)
{
    struct ep *ep = caller->peer;
    unsigned local = first_up(ia_of(caller)), remote = first_up(ia_of(ep));

    caller->path.current = (DAT_PATH){ local, remote };
    ep->path.current = (DAT_PATH){ remote, local };
}

static void report_path(struct ia *ia, struct ep *ep, DAT_PATH_EVENT_NUMBER number,
                        DAT_PATH_CAUSE cause, unsigned port)
{
    DAT_PATH_EVENT_DATA data = { .handle = ep ? (DAT_HANDLE)ep : (DAT_HANDLE)ia, .cause = cause };
    DAT_EVENT event;

    if (f.lose_path_events || ia->ports == 0)
        return;
    data.path = ep ? ep->path.current : (DAT_PATH){ .local_port = port };
    data.n_migrated = ep ? ep->path.n_migrated : 0;
    memset(&event, 0, sizeof(event));
    event.event_number = (DAT_EVENT_NUMBER)number;
    memcpy(event.event_extension_data, &data, sizeof(data));
    post(ia->async, &event);
}

/* Both ends of the path that the two have loaded; false: what they have loaded does not fit. */
static bool alternate_of(const struct ep *ep, unsigned *local, unsigned *remote)
{
    const DAT_PATH *a = &ep->path.alternate, *b = &ep->peer->path.alternate;

    *local = a->local_port;
    *remote = b->local_port;
    return a->local_port && b->local_port
           && (!a->remote_port || a->remote_port == b->local_port)
           && (!b->remote_port || b->remote_port == a->local_port)
           && (a->local_port != ep->path.current.local_port
               || b->local_port != ep->peer->path.current.local_port);
}

static void migrate_end(struct ep *ep, unsigned local, unsigned remote, DAT_PATH_CAUSE cause)
{
    ep->path.current = (DAT_PATH){ local, remote };
    ep->path.alternate = (DAT_PATH){ 0, 0 };
    ep->path.state = DAT_PATH_MIGRATED;
    ep->path.n_migrated++;
    ep->stalled = 0;
    ep->moving = f.now + f.move_ns;
    ep->swallows = false;        /* the former path did */
    report_path(ia_of(ep), ep, DAT_PATH_EVENT_MIGRATED, ep->asked ? DAT_PATH_CAUSE_REQUEST : cause,
                0);
    ep->asked = false;
}

/* An armed connection migrates, or cannot and breaks. */
static void migrate_both(struct ep *ep, DAT_PATH_CAUSE cause)
{
    struct ep *peer = ep->peer;
    unsigned local, remote;

    alternate_of(ep, &local, &remote);
    if (!works(ep, local, remote)) {
        f.path_failed++;
        ep->path.n_failed++;
        peer->path.n_failed++;
        report_path(ia_of(ep), ep, DAT_PATH_EVENT_FAILED, cause, 0);
        report_path(ia_of(peer), peer, DAT_PATH_EVENT_FAILED, DAT_PATH_CAUSE_PEER, 0);
        end(ep, DAT_CONNECTION_EVENT_BROKEN);
        return;
    }
    f.migrated++;
    migrate_end(ep, local, remote, cause);
    migrate_end(peer, remote, local, DAT_PATH_CAUSE_PEER);
}

static void set_both(struct ep *ep, DAT_PATH_STATE state, DAT_PATH_EVENT_NUMBER number)
{
    struct ep *both[] = { ep, ep->peer };

    for (int i = 0; i < 2; i++) {
        both[i]->path.state = state;
        both[i]->path.n_armed += state == DAT_PATH_ARMED;
        report_path(ia_of(both[i]), both[i], number, DAT_PATH_CAUSE_NONE, 0);
    }
}

/* What moves by itself between two ends. */
static void move_path(struct ep *ep)
{
    bool armed = ep->path.state == DAT_PATH_ARMED;
    unsigned local, remote;

    if (ep->path.state == DAT_PATH_REARM && ep->peer->path.state == DAT_PATH_REARM
        && !f.hold_arming && alternate_of(ep, &local, &remote) && works(ep, local, remote)
        && fake_random(8) == 0)
        set_both(ep, DAT_PATH_ARMED, DAT_PATH_EVENT_ARMED);
    else if (armed && !f.hold_moves && (ep->asked || ep->peer->asked) && fake_random(4) == 0)
        migrate_both(ep->asked ? ep : ep->peer, DAT_PATH_CAUSE_REQUEST);
    else if (armed && f.move_one_in && fake_random(f.move_one_in) == 0)
        migrate_both(ep, DAT_PATH_CAUSE_TIMEOUT);
}

static void move_paths(void)
{
    for (int i = 0; i < n_eps && f.ports; i++)
        if (is_up(eps[i]) && !eps[i]->accepted)
            move_path(eps[i]);
}

/* Does its path not transmit? If that lasts the connection migrates, or breaks. */
static bool stands_still(struct ep *ep)
{
    if (f.now < ep->moving)
        return true;
    if (works(ep, ep->path.current.local_port, ep->path.current.remote_port)) {
        ep->stalled = 0;
        return false;
    }
    if (ep->stalled == 0 && ep->req.first)
        ep->stalled = f.now;
    if (ep->stalled == 0 || f.now < ep->stalled + LATE_NS)
        return true;
    if (ep->path.state == DAT_PATH_ARMED)
        migrate_both(ep, DAT_PATH_CAUSE_TIMEOUT);
    else
        end(ep, DAT_CONNECTION_EVENT_BROKEN);
    return true;
}

/* The port of an end has failed, and its adapter has noticed. */
static void port_failed(struct ep *ep, unsigned port)
{
    unsigned local = 0, remote = 0;

    if (ep->path.state != DAT_PATH_ARMED)
        return;
    alternate_of(ep, &local, &remote);
    if (ep->path.current.local_port == port)
        migrate_both(ep, DAT_PATH_CAUSE_PORT);
    else if (local == port)
        set_both(ep, DAT_PATH_REARM, DAT_PATH_EVENT_DOWN);
}

void fake_port(int nth, unsigned port, bool up, bool reported)
{
    struct ia *ia = nth_ia(nth);

    if (!ia || ia->port_down[port] == !up)
        return;
    ia->port_down[port] = !up;
    if (!reported)
        return;
    report_path(ia, NULL, up ? DAT_PATH_EVENT_UP : DAT_PATH_EVENT_DOWN, DAT_PATH_CAUSE_NONE, port);
    for (int i = 0; i < n_eps && !up; i++)
        if (is_up(eps[i]) && eps[i]->ia == ia)
            port_failed(eps[i], port);
}

void fake_cuts(const struct fake_cut *cuts, int n)
{
    f.cuts = cuts;
    f.n_cuts = n;
}

static void make_cuts(unsigned at)
{
    for (int i = 0; i < f.n_cuts; i++)
        if (f.cuts[i].step == at)
            fake_port(f.cuts[i].nth_ia, f.cuts[i].port, f.cuts[i].up, f.cuts[i].reported);
}

void fake_ports(unsigned n)
{
    f.ports = n;
}

void fake_hold_arming(bool hold)
{
    f.hold_arming = hold;
}

void fake_hold_moves(bool hold)
{
    f.hold_moves = hold;
}

void fake_lose_path_events(bool lose)
{
    f.lose_path_events = lose;
}

void fake_slow_moves(uint64_t ns)
{
    f.move_ns = ns;
}

void fake_move_at_random(unsigned one_in)
{
    f.move_one_in = one_in;
}

unsigned fake_migrated(void)
{
    return f.migrated;
}

unsigned fake_path_failed(void)
{
    return f.path_failed;
}

unsigned fake_path_calls(void)
{
    return f.path_calls;
}

unsigned fake_port_of(DAT_EP_HANDLE ep)
{
    return ((struct ep *)ep)->path.current.local_port;
}

/* A port of an IA with so many; 0: not the one in use, if there is another. */
static unsigned choose(unsigned port, unsigned ports, unsigned in_use)
{
    return port || ports == 0 ? port : in_use == 1 && ports > 1 ? 2 : 1;
}

static DAT_RETURN path_set(struct ep *ep, const DAT_PATH *path)
{
    unsigned theirs = is_up(ep) ? ia_of(ep->peer)->ports : 0;
    DAT_PATH to = path ? *path : (DAT_PATH){ 0, 0 };

    if (ep->path.state != DAT_PATH_MIGRATED || ep->state == DAT_EP_STATE_DISCONNECTED)
        return ERROR(DAT_INVALID_STATE);
    if (to.local_port > ia_of(ep)->ports || (theirs && to.remote_port > theirs))
        return ERROR(DAT_INVALID_PARAMETER);
    if (ia_of(ep)->ports < 2 && theirs < 2)
        return ERROR(DAT_MODEL_NOT_SUPPORTED);
    to.local_port = choose(to.local_port, ia_of(ep)->ports, ep->path.current.local_port);
    if (to.local_port == ep->path.current.local_port
        && to.remote_port == ep->path.current.remote_port)
        return ERROR(DAT_INVALID_PARAMETER);
    ep->path.alternate = to;
    return DAT_SUCCESS;
}

static DAT_RETURN path_rearm(struct ep *ep)
{
    if (!is_up(ep) || ep->path.state != DAT_PATH_MIGRATED || ep->path.alternate.local_port == 0)
        return ERROR(DAT_INVALID_STATE);
    ep->path.state = DAT_PATH_REARM;
    return DAT_SUCCESS;
}

static DAT_RETURN path_migrate(struct ep *ep)
{
    if (!is_up(ep) || ep->path.state != DAT_PATH_ARMED)
        return ERROR(DAT_INVALID_STATE);
    ep->asked = true;
    return DAT_SUCCESS;
}

static DAT_RETURN extended_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args)
{
    struct ep *ep = handle;

    f.path_calls++;
    if (ia_of(ep)->ports == 0)
        abort();                 /* the provider has no such attribute */
    if (op == (DAT_EXTENDED_OP)DAT_PATH_SET_ALTERNATE_OP)
        return path_set(ep, va_arg(args, const DAT_PATH *));
    if (op == (DAT_EXTENDED_OP)DAT_PATH_REARM_OP)
        return path_rearm(ep);
    if (op == (DAT_EXTENDED_OP)DAT_PATH_MIGRATE_OP)
        return path_migrate(ep);
    *va_arg(args, DAT_PATH_PARAM *) = ep->path;
    return DAT_SUCCESS;
}

/* -- time ------------------------------------------------------------------------------------- */

bool fake_step(void)
{
    uint64_t first = fake_random((uint64_t)n_eps);
    bool moved;

    f.now += 1000 + fake_random(1000);
    f.taken_from = NULL;
    end_holds();
    move_paths();
    moved = step(first);
    if (moved)
        make_cuts(f.steps + 1);
    if (moved && ++f.steps == f.end_ia_at) {
        fake_async(f.end_ia, DAT_ASYNC_ERROR_IA_CATASTROPHIC);
        end_ia(nth_ia(f.end_ia), f.end_silently);
    }
    return moved;
}

/* -- starting and ending ---------------------------------------------------------------------- */

static DAT_PROVIDER table = {
    .device_name = "fake",
    .ia_open_func = ia_open, .ia_query_func = ia_query, .ia_close_func = ia_close,
    .pz_create_func = pz_create, .pz_free_func = simple_free,
    .evd_create_func = evd_create, .evd_resize_func = evd_resize, .evd_wait_func = evd_wait,
    .evd_dequeue_func = evd_dequeue, .evd_free_func = evd_free,
    .cno_create_func = cno_create, .cno_free_func = simple_free, .cno_wait_func = cno_wait,
    .cno_modify_agent_func = cno_modify_agent, .evd_post_se_func = evd_post_se,
    .evd_enable_func = evd_enable, .evd_disable_func = evd_disable,
    .lmr_create_func = lmr_create, .lmr_free_func = lmr_free,
    .psp_create_func = psp_create, .psp_free_func = psp_free,
    .cr_query_func = cr_query, .cr_accept_func = cr_accept, .cr_reject_func = cr_reject,
    .ep_create_func = ep_create_listed, .ep_free_func = ep_free_listed,
    .ep_connect_func = ep_connect, .ep_disconnect_func = ep_disconnect, .ep_reset_func = ep_reset,
    .ep_get_status_func = ep_get_status, .ep_post_send_func = ep_post_send,
    .ep_post_recv_func = ep_post_recv, .ep_post_rdma_read_func = ep_post_read,
    .ep_post_rdma_write_func = ep_post_write, .handle_extendedop_func = extended_op,
};

void fake_start(uint64_t seed, const struct fake_faults *faults, const struct fake_limits *limits)
{
    static const struct fake_limits usual = {
        .dtos = 128, .reads = 4, .priv = 56, .rdma = 1 << 20,
    };

    memset(&f, 0, sizeof(f));
    memset(psps, 0, sizeof(psps));
    make_places();
    f.seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < 8; i++)
        fake_random(2);
    f.parked = -1;
    if (faults)
        f.faults = *faults;
    f.limits = limits ? *limits : usual;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memset(&address6, 0xfd, sizeof(address6));
    address6.sin6_family = AF_INET6;
    f.info = (DAT_PROVIDER_INFO){ .ia_name = "fake", .dapl_version_major = 2 };
    dat_registry_add_provider(&table, &f.info);
}

/* Closes what could not be closed, so that libdat2 frees it: its handles of IAs are small
 * numbers. */
static void close_ias(void)
{
    f.refuse_closes = false;
    for (uintptr_t i = 0; i < 64 && f.ias; i++)
        dat_ia_close((DAT_IA_HANDLE)i, DAT_CLOSE_ABRUPT_FLAG);
}

int fake_stop(void)
{
    int left = 0;

    if (f.refuse_closes)
        close_ias();
    dat_registry_remove_provider(&table, &f.info);
    fake_land_writes();
    while (f.pending) {
        struct pending *p = f.pending;

        f.pending = p->next;
        if (p->kind == ARRIVE)
            cr_unmake(p->cr);
        free(p);
    }
    for (int i = 0; i < n_eps; i++)        /* of an IA that has not been closed */
        while (eps[i] && eps[i]->req.first)
            pop(&eps[i]->req);
    for (int i = 0; i < n_eps; i++)
        while (eps[i] && eps[i]->recv.first)
            pop(&eps[i]->recv);
    free(eps);
    eps = NULL;
    n_eps = 0;
    while (f.objects) {
        struct object *o = f.objects;

        f.objects = o->next;
        free(o);
        left++;
    }
    return left;
}
