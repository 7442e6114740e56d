/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include "mpid_port.h"

#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/*
 * Ports: how two jobs meet. CH3 does the MPI side (ch3u_port.c): the process that connects and the
 * one that accepts exchange packets over a temporary VC, which has no process group, then the
 * descriptions of both sides' process groups, and close it. The channel's side is the port's name,
 * which has the id and a random key of the port and what its process's business card has for
 * visitors, and the temporary VC. A process that does not know the key is refused
 * (mdapl_port_open() in transport.h).
 *
 * CH3 expects that the process at the other end of a temporary VC lives until the VC has been
 * closed. If it does not, the channel answers in its place, as if it had withdrawn or closed it:
 * MPI_Comm_connect then returns MPI_ERR_PORT, and MPI_Comm_accept waits for the next process.
 */
enum {
    NAME_MAX_BYTES = 2 * (4 + MDAPL_KEY_BYTES) + MDAPL_CARD_MAX,
};

static const char field[] = "dapl"; /* the channel's part of a port's name */

/* An open port of this process. */
struct mdapl_ch3_port {
    struct mdapl_ch3_port *next;
    uint32_t id;
    int tag;                     /* CH3's number of the port; -1 until CH3 has opened it */
};

/* CH3's own functions, which the channel's call. */
static MPIDI_PortFns ch3;

static int port_error(const char *why)
{
    int mpi_errno = MPI_SUCCESS;

    MPIR_ERR_SET1(mpi_errno, MPI_ERR_PORT, "**ch3|dapl|port", "**ch3|dapl|port %s", why);
    return mpi_errno;
}

/* A random id; 0 stands for none. */
static bool random_id(uint32_t *id)
{
    do {
        if (getrandom(id, sizeof(*id), 0) != sizeof(*id))
            return false;
    } while (*id == 0);
    return true;
}

/* -- cards ------------------------------------------------------------------------------------- */

/* group->card of visitors, until they have sent theirs, and of the process that this one visits. */
static int get_card(void *owner, int rank, char *buf, size_t len)
{
    (void)rank;
    return (size_t)snprintf(buf, len, "%s", (const char *)owner) < len ? 0 : -ENOSPC;
}

/* -- opening and closing ----------------------------------------------------------------------- */

static struct mdapl_ch3_port **port_at(struct mdapl_ch3_glue *g, uint32_t id)
{
    struct mdapl_ch3_port **at = &g->ports;

    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void forget_port(struct mdapl_ch3_glue *g, uint32_t id)
{
    struct mdapl_ch3_port **at = port_at(g, id), *port = *at;

    if (!port)
        return;
    mdapl_port_close(g->ctx, id);
    *at = port->next;
    MPL_free(port);
}

/* A new port in the context. */
static struct mdapl_ch3_port *make_port(struct mdapl_ch3_glue *g, struct mdapl_group *visitors)
{
    struct mdapl_ch3_port *port = MPL_malloc(sizeof(*port), MPL_MEM_DYNAMIC);

    if (!port || !random_id(&visitors->self.group)
        || getrandom(visitors->key, sizeof(visitors->key), 0) != sizeof(visitors->key)
        || mdapl_port_open(g->ctx, visitors)) {
        MPL_free(port);
        return NULL;
    }
    *port = (struct mdapl_ch3_port){ g->ports, visitors->self.group, -1 };
    g->ports = port;
    return port;
}

/* CH3 calls this to fill in a port's name. It ignores the result, so open_port() looks for the
 * port. */
int MPIDI_CH3_Get_business_card(int rank, char *value, int len)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    struct mdapl_group visitors = { .size = 1, .card = get_card, .owner = g->visitor_card };
    char text[NAME_MAX_BYTES];
    size_t n;

    (void)rank;
    if (!make_port(g, &visitors))
        return port_error("no memory or no random numbers for its key");
    n = (size_t)snprintf(text, sizeof(text), "%08" PRIx32 ".", visitors.self.group);
    for (int i = 0; i < MDAPL_KEY_BYTES; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", visitors.key[i]);
    snprintf(text + n, sizeof(text) - n, ".%s", g->visitor_card);
    if (MPL_str_add_string_arg(&value, &len, field, text) == MPL_SUCCESS)
        return MPI_SUCCESS;
    forget_port(g, visitors.self.group);
    return port_error("its name does not fit");
}

/* Reads id, key and card from a port's name. card: room for NAME_MAX_BYTES. */
static bool read_name(const char *name, uint32_t *id, uint8_t key[MDAPL_KEY_BYTES], char *card)
{
    char text[NAME_MAX_BYTES], hex[2 * MDAPL_KEY_BYTES + 1];
    int at = 0;

    if (MPL_str_get_string_arg(name, field, text, sizeof(text)) != MPL_SUCCESS
        || sscanf(text, "%8" SCNx32 ".%32[0-9a-f].%n", id, hex, &at) != 2 || at == 0
        || strlen(hex) != sizeof(hex) - 1)
        return false;
    for (int i = 0; i < MDAPL_KEY_BYTES; i++)
        sscanf(hex + 2 * i, "%2hhx", &key[i]);
    strcpy(card, text + at);
    return true;
}

/* Opens the context if there is none, as in a job of one rank. */
static int need_ctx(struct mdapl_ch3_glue *g)
{
    int mpi_errno = mdapl_ch3_open_alone(g);

    if (mpi_errno == MPI_SUCCESS
        && mdapl_port_card(g->ctx, g->visitor_card, sizeof(g->visitor_card)) < 0)
        mpi_errno = port_error("its name does not fit");
    return mpi_errno;
}

static int open_port(MPIR_Info *info, char *name)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    struct mdapl_ch3_port *before = g->ports;
    int mpi_errno = need_ctx(g);

    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = ch3.OpenPort(info, name);
    if (mpi_errno == MPI_SUCCESS && g->ports == before)
        mpi_errno = port_error("its name does not fit, or memory is out");
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = MPIDI_GetTagFromPort(name, &g->ports->tag);
    if (mpi_errno != MPI_SUCCESS && g->ports != before)
        forget_port(g, g->ports->id);
    return mpi_errno;
}

static int close_port(const char *name)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    char card[NAME_MAX_BYTES];
    uint8_t key[MDAPL_KEY_BYTES];
    uint32_t id;
    int mpi_errno;

    if (!read_name(name, &id, key, card) || !*port_at(g, id))
        return port_error("this process has not opened it");
    mpi_errno = ch3.ClosePort(name);
    forget_port(g, id);
    return mpi_errno;
}

/* Groups that CH3 learns of here are added by all processes of both sides before the call ends, so
 * they may use shared memory. */
static int accept_jobs(const char *name, MPIR_Info *info, int root, MPIR_Comm *comm,
                       MPIR_Comm **new_p)
{
    int mpi_errno;

    mdapl_ch3_glue.meetings++;
    mpi_errno = ch3.CommAccept(name, info, root, comm, new_p);
    mdapl_ch3_glue.meetings--;
    return mpi_errno;
}

/* MPI_Comm_connect has reached its own timeout. CH3 then waits in MPI_Finalize for the answer to
 * the visit, of which there is none if the visit has not arrived. */
static void give_up_visit(MPIDI_VC_t *vc)
{
    const MPIDI_CH3I_Port_connreq_t *request = vc->connreq_obj;

    if (request && request->stat == MPIDI_CH3I_PORT_CONNREQ_REVOKE && vc->ch.peer
        && !mdapl_peer_idle(vc->ch.peer))
        mdapl_ch3_lost(vc);
}

static int connect_jobs(const char *name, MPIR_Info *info, int root, MPIR_Comm *comm,
                        MPIR_Comm **new_p)
{
    int mpi_errno;

    mdapl_ch3_glue.meetings++;
    mpi_errno = ch3.CommConnect(name, info, root, comm, new_p);
    mdapl_ch3_glue.meetings--;
    if (mpi_errno != MPI_SUCCESS && mdapl_ch3_glue.visiting)
        give_up_visit(mdapl_ch3_glue.visiting);
    return mpi_errno;
}

int MPIDI_CH3_PortFnsInit(MPIDI_PortFns *fns)
{
    ch3 = *fns;
    *fns = (MPIDI_PortFns){ open_port, close_port, accept_jobs, connect_jobs };
    return MPI_SUCCESS;
}

void mdapl_ch3_port_fini(struct mdapl_ch3_glue *g)
{
    while (g->ports)
        forget_port(g, g->ports->id);
}

/* -- temporary VCs ----------------------------------------------------------------------------- */

static MPIDI_VC_t *make_vc(struct mdapl_peer *peer, bool visitor)
{
    MPIDI_VC_t *vc = MPL_malloc(sizeof(*vc), MPL_MEM_ADDRESS);

    if (!vc)
        return NULL;
    MPIDI_VC_Init(vc, NULL, 0);
    vc->connreq_obj = NULL;
    vc->ch.visitor = visitor;
    vc->ch.group = mdapl_peer_group(peer);
    mdapl_ch3_vc_bind(vc, peer);
    MPIDI_CHANGE_VC_STATE(vc, ACTIVE);
    return vc;
}

bool mdapl_ch3_port_is_visit(const struct mdapl_group *group)
{
    return group->card == get_card;
}

MPIDI_VC_t *mdapl_ch3_port_visitor(struct mdapl_peer *peer)
{
    return make_vc(peer, true);
}

/* The first packet of a visitor, with its card. */
int mdapl_ch3_port_visited(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, void *data, intptr_t *buflen,
                           MPIR_Request **rreq_p)
{
    const struct mdapl_group *group = vc->ch.group;
    const struct mdapl_ch3_port *port;
    char card[MDAPL_CARD_MAX];

    (void)pkt;
    *rreq_p = NULL;
    if (!vc->ch.visitor || vc->connreq_obj)
        return MPI_SUCCESS;
    snprintf(card, sizeof(card), "%.*s", (int)*buflen, (const char *)data);
    if (mdapl_peer_locate(vc->ch.peer, card))
        mdapl_log(mdapl_ctx_log(mdapl_ch3_glue.ctx), MDAPL_WARN, "the card of a process that "
                  "connects to a port of this one cannot be read; use the same installation "
                  "everywhere");
    port = *port_at(&mdapl_ch3_glue, mdapl_group_self(group).group ^ group->id);
    return MPIDI_CH3I_Acceptq_enqueue(vc, port ? port->tag : -1);
}

static int send_visit(MPIDI_VC_t *vc, char *card)
{
    MPIR_Request *sreq = NULL;
    MPIDI_CH3_Pkt_t pkt;
    struct iovec iov[] = { { &pkt, sizeof(pkt) }, { card, strlen(card) } };
    int mpi_errno;

    memset(&pkt, 0, sizeof(pkt));
    pkt.type = MPIDI_CH3I_PKT_DAPL_VISIT;
    mpi_errno = MPIDI_CH3_iStartMsgv(vc, iov, 2, &sreq);
    if (sreq)
        MPIR_Request_free(sreq);
    return mpi_errno;
}

/* The group of the process that has opened the port, and its one peer. */
static int make_peer(struct mdapl_ch3_glue *g, struct mdapl_group *args, struct mdapl_peer **peer_p)
{
    uint32_t port = args->id;
    struct mdapl_group *group;
    int rc;

    if (!random_id(&args->self.group))
        return -errno;
    args->id = port ^ args->self.group;
    rc = mdapl_group_add(g->ctx, args, &group);
    if (rc)
        return rc;
    rc = mdapl_group_peer(group, 0, peer_p);
    if (rc)
        mdapl_ch3_group_remove(group);
    return rc;
}

int MPIDI_CH3_Connect_to_root(const char *name, MPIDI_VC_t **vc_p)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;
    char card[NAME_MAX_BYTES];
    struct mdapl_group args = { .size = 1, .card = get_card, .owner = card };
    struct mdapl_peer *peer;
    int mpi_errno;

    *vc_p = NULL;
    if (!read_name(name, &args.id, args.key, card))
        return port_error("it is not the name of a port of ch3:dapl");
    mpi_errno = need_ctx(g);
    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    if (make_peer(g, &args, &peer))
        return port_error("no channel reaches its process: shared memory reaches those of this "
                          "node and of the same namespaces, the channel dapl those with an "
                          "adapter as ours");
    *vc_p = make_vc(peer, false);
    if (!*vc_p)
        return port_error("memory is out");
    g->visiting = *vc_p;
    return send_visit(*vc_p, g->visitor_card);
}

void mdapl_ch3_port_matched(MPIR_Comm *comm)
{
    MPIDI_VC_t *vc;

    if (comm->comm_kind != MPIR_COMM_KIND__INTERCOMM || comm->remote_size != 1)
        return;
    MPIDI_Comm_get_vc(comm, 0, &vc);
    if (vc->pg)
        return;
    vc->connreq_obj = NULL;
    if (mdapl_ch3_glue.visiting == vc)
        mdapl_ch3_glue.visiting = NULL;
}

/* -- a temporary VC whose process is lost ------------------------------------------------------ */

/* Hands CH3 the packet that a process which withdraws would have sent. */
static int answer(MPIDI_VC_t *vc, int type)
{
    intptr_t none = 0;
    MPIR_Request *rreq = NULL;
    MPIDI_CH3_Pkt_t pkt;

    memset(&pkt, 0, sizeof(pkt));
    pkt.type = type;
    if (type == MPIDI_CH3_PKT_CONN_ACK)
        pkt.conn_ack.ack = FALSE;
    else
        pkt.accept_ack.ack = FALSE;
    return mdapl_ch3_glue.handler[type](vc, &pkt, NULL, &none, &rreq);
}

int mdapl_ch3_port_lost(MPIDI_VC_t *vc)
{
    const MPIDI_CH3I_Port_connreq_t *request = vc->connreq_obj;
    int mpi_errno = MPI_SUCCESS;

    if (request && !vc->ch.visitor && (request->stat == MPIDI_CH3I_PORT_CONNREQ_INITED
                                       || request->stat == MPIDI_CH3I_PORT_CONNREQ_REVOKE))
        mpi_errno = answer(vc, MPIDI_CH3_PKT_CONN_ACK);
    if (mpi_errno == MPI_SUCCESS && request && vc->ch.visitor
        && request->stat == MPIDI_CH3I_PORT_CONNREQ_ACCEPT)
        mpi_errno = answer(vc, MPIDI_CH3_PKT_ACCEPT_ACK);
    MPIDI_CH3_Progress_signal_completion();
    return mpi_errno;
}
