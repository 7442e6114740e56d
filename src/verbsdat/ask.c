/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"

#include <arpa/inet.h>
#include <string.h>

/*
 * What the two sides of a connection have to know of each other before it is armed, in place of the
 * LAP and APR messages of InfiniBand's connection manager, which librdmacm does not offer: the side
 * that has connected sends a connection request to the service point of the connection, over the
 * path in use to learn the peer's ports, and then over the alternate path to load it. The request
 * is refused in each case; both it and the refusal carry private data. That the answer arrives
 * shows that the path works. There is one exchange of an IA at a time.
 */

enum {
    EXCHANGE_MS = 1000,          /* for an answer */
    MAGIC = 0x64617070,
};

enum verdict {
    NEVER,                       /* that side has no alternate paths */
    NOT_YET,                     /* it is not connected, has not loaded, or wants another path */
    LOADED,
};

/* All in network order. Ports are those of the sender. */
struct ask {
    uint32_t magic;
    uint32_t from_qpn, to_qpn;
    uint8_t verdict;             /* of an answer */
    uint8_t n_ports;
    uint8_t local, remote;       /* to be loaded; of an answer: wanted; 0: any */
    uint32_t addr[VERBSDAT_PORTS];
};

_Static_assert(sizeof(struct ask) <= VERBSDAT_PRIV, "a request has no room for it");

/* -- the exchange ------------------------------------------------------------------------------ */

static void fill(struct ask *m, const struct verbsdat_ia *ia, DAT_PATH path)
{
    *m = (struct ask){ .magic = htonl(MAGIC), .n_ports = VERBSDAT_PORTS,
                       .local = (uint8_t)path.local_port, .remote = (uint8_t)path.remote_port };
    for (int i = 0; i < VERBSDAT_PORTS; i++)
        m->addr[i] = ia->at[i].sin_addr.s_addr;
}

static bool read_it(struct ask *m, const void *priv, size_t bytes)
{
    if (!priv || bytes < sizeof(*m))
        return false;
    memcpy(m, priv, sizeof(*m));
    return m->magic == htonl(MAGIC) && m->n_ports <= VERBSDAT_PORTS;
}

static void learn_ports(struct verbsdat_ep *ep, const struct ask *m)
{
    struct in_addr addr[VERBSDAT_PORTS];

    for (int i = 0; i < VERBSDAT_PORTS; i++)
        addr[i].s_addr = m->addr[i];
    verbsdat_path_ports(ep, m->n_ports, addr);
}

/* -- the side that asks ------------------------------------------------------------------------ */

bool verbsdat_ask_peer(struct verbsdat_ep *ep)
{
    struct verbsdat_ia *ia = ep->h.ia;
    struct sockaddr_in to = ep->remote;
    DAT_PATH path = ep->path.current;

    if (ia->ask.id)
        return false;
    if (ep->path.n_remote > 0) {
        if (!verbsdat_path_alternate(ep, &path))
            return false;
        to.sin_addr = ep->path.remote[path.remote_port - 1];
    }
    ia->ask.id = verbsdat_cm_id(ia, &ia->at[path.local_port - 1], 0, &ia->ask.h);
    if (!ia->ask.id)
        return false;
    ia->ask.ep = ep;
    ia->ask.deadline = verbsdat_now();
    if (rdma_resolve_addr(ia->ask.id, NULL, (struct sockaddr *)&to, EXCHANGE_MS) == 0)
        ia->ask.deadline += EXCHANGE_MS * UINT64_C(1000000);
    verbsdat_thread_deadline(ia, ia->ask.deadline);
    return true;
}

static bool send_request(struct verbsdat_ia *ia, struct verbsdat_ep *ep)
{
    struct rdma_conn_param param = { .private_data_len = sizeof(struct ask),
                                     .qp_num = ia->ask.qp->qp_num };
    DAT_PATH path = { 0, 0 };
    struct ask m;

    if (ep->path.n_remote > 0 && !verbsdat_path_alternate(ep, &path))
        return false;
    fill(&m, ia, path);
    m.from_qpn = htonl(ep->qp->qp_num);
    m.to_qpn = htonl(verbsdat_alternate_peer(ep));
    param.private_data = &m;
    return rdma_connect(ia->ask.id, &param) == 0;
}

/* The request has been refused: as it was meant, or since the peer cannot do that. */
static void take_answer(struct verbsdat_ep *ep, const struct rdma_cm_event *e)
{
    bool knew = ep->path.n_remote > 0;
    DAT_PATH path;
    struct ask m;

    if (!read_it(&m, e->param.conn.private_data, e->param.conn.private_data_len))
        return;
    if (m.verdict == NEVER) {
        ep->path.due = UINT64_MAX;
        return;
    }
    learn_ports(ep, &m);
    ep->path.wanted_by_peer = (DAT_PATH){ m.remote, m.local };
    if (!knew)
        ep->path.due = 0;
    else if (m.verdict == LOADED && verbsdat_path_alternate(ep, &path)
             && verbsdat_alternate_load(ep, e->id))
        verbsdat_path_loaded(ep, path);
}

struct rdma_cm_id *verbsdat_ask_event(struct verbsdat_ia *ia, const struct rdma_cm_event *e)
{
    struct verbsdat_ep *ep = ia->ask.ep;
    bool waits = ep && ep->path.state == DAT_PATH_REARM;

    if (waits && e->event == RDMA_CM_EVENT_ADDR_RESOLVED
        && rdma_resolve_route(e->id, EXCHANGE_MS) == 0)
        return NULL;
    if (waits && e->event == RDMA_CM_EVENT_ROUTE_RESOLVED && send_request(ia, ep))
        return NULL;
    if (waits)
        verbsdat_path_again(ep);
    if (waits && e->event == RDMA_CM_EVENT_REJECTED)
        take_answer(ep, e);
    ia->ask.id->context = NULL;
    ia->ask.id = NULL;
    ia->ask.ep = NULL;
    verbsdat_thread_deadline(ia, verbsdat_now());    /* others may wait for this */
    return e->id;
}

struct rdma_cm_id *verbsdat_ask_expired(struct verbsdat_ia *ia)
{
    struct rdma_cm_id *id = ia->ask.id;

    if (!id || verbsdat_now() < ia->ask.deadline)
        return NULL;
    if (ia->ask.ep)
        verbsdat_path_again(ia->ask.ep);
    id->context = NULL;
    ia->ask.id = NULL;
    ia->ask.ep = NULL;
    verbsdat_thread_deadline(ia, verbsdat_now());
    return id;
}

void verbsdat_ask_forget(const struct verbsdat_ep *ep)
{
    if (ep->h.ia->ask.ep == ep)
        ep->h.ia->ask.ep = NULL;
}

/* -- the side that answers --------------------------------------------------------------------- */

/* The connection between these two QPs; NULL: there is none. */
static struct verbsdat_ep *find(struct verbsdat_ia *ia, const struct ask *m)
{
    struct verbsdat_ep *ep;

    VERBSDAT_EACH_EP(ep, ia)
        if (ep->qp && ep->qp->qp_num == ntohl(m->to_qpn)
            && atomic_load(&ep->state) == DAT_EP_STATE_CONNECTED
            && verbsdat_alternate_peer(ep) == ntohl(m->from_qpn))
            return ep;
    return NULL;
}

static bool same(DAT_PATH a, DAT_PATH b)
{
    return a.local_port == b.local_port && a.remote_port == b.remote_port;
}

static enum verdict judge(struct verbsdat_ep *ep, const struct ask *m, const struct rdma_cm_id *id)
{
    DAT_PATH asked = { m->remote, m->local }, path;

    learn_ports(ep, m);
    if (!m->local || ep->path.state == DAT_PATH_MIGRATED)
        return NOT_YET;
    if (same(ep->path.loaded, asked))            /* the peer has lost the answer */
        return LOADED;
    ep->path.wanted_by_peer = asked;
    if (!verbsdat_path_alternate(ep, &path) || !same(path, asked)
        || !verbsdat_alternate_load(ep, id))
        return NOT_YET;
    verbsdat_path_loaded(ep, path);
    return LOADED;
}

bool verbsdat_ask_answer(struct verbsdat_ia *ia, const struct rdma_cm_event *e)
{
    struct verbsdat_ep *ep;
    struct ask m, answer;

    if (!read_it(&m, e->param.conn.private_data, e->param.conn.private_data_len))
        return false;
    ep = ia->migrates ? find(ia, &m) : NULL;
    fill(&answer, ia, ep && ep->path.state == DAT_PATH_REARM ? ep->path.wanted
                                                             : (DAT_PATH){ 0, 0 });
    answer.verdict = (uint8_t)(ep ? judge(ep, &m, e->id) : ia->migrates ? NOT_YET : NEVER);
    e->id->context = NULL;
    rdma_reject(e->id, &answer, sizeof(answer));
    return true;
}
