/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "datpath.h"

#include <string.h>

/*
 * The alternate path of a connection: the operations, states and events of dat_path_extensions.h.
 * alternate.c has what they are on verbs, ask.c how the two sides agree; docs/paths.md the rules.
 *
 *      MIGRATED  rearm                                                        -> REARM
 *      REARM     both have loaded, and the QP is armed                        -> ARMED
 *      ARMED     the adapter reports that the QP uses the alternate           -> MIGRATED
 */

enum { AGAIN_MS = 5, AGAIN_DOUBLINGS = 8 };      /* until the peer, or the QP, is asked again */

static const DAT_RETURN bad_path = DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG3;
static const DAT_RETURN bad_state = DAT_CLASS_ERROR | DAT_INVALID_STATE;
static const DAT_PATH none = { 0, 0 };

static DAT_PATH resolve(const struct verbsdat_path *p, DAT_PATH mine, DAT_PATH theirs)
{
    return (DAT_PATH){
        datpath_port(mine.local_port, theirs.local_port, p->current.local_port, VERBSDAT_PORTS),
        datpath_port(mine.remote_port, theirs.remote_port, p->current.remote_port, p->n_remote),
    };
}

bool verbsdat_path_alternate(const struct verbsdat_ep *ep, DAT_PATH *path)
{
    const struct verbsdat_path *p = &ep->path;

    *path = resolve(p, p->wanted, p->wanted_by_peer);
    return path->local_port && path->remote_port && path->local_port <= VERBSDAT_PORTS
           && path->remote_port <= p->n_remote && !datpath_same(*path, p->current);
}

/* -- events ------------------------------------------------------------------------------------ */

static void post(struct verbsdat_ia *ia, DAT_PATH_EVENT_NUMBER number,
                 const DAT_PATH_EVENT_DATA *data)
{
    DAT_EVENT event = datpath_event(number, data);

    verbsdat_evd_post(ia->async_evd, &event);
}

static void report(struct verbsdat_ep *ep, DAT_PATH_EVENT_NUMBER number, DAT_PATH_CAUSE cause)
{
    const DAT_PATH_EVENT_DATA data = { .handle = ep, .context = ep->h.context,
                                       .path = ep->path.current, .cause = (DAT_UINT32)cause,
                                       .n_migrated = ep->path.n_migrated };

    post(ep->h.ia, number, &data);
}

void verbsdat_path_port(struct verbsdat_ia *ia, uint8_t verbs_port, bool up)
{
    DAT_PATH_EVENT_DATA data = { .handle = ia, .context = ia->h.context };

    for (uint32_t i = 0; ia->uses_paths && i < VERBSDAT_PORTS; i++) {
        data.path.local_port = i + 1;
        if (ia->verbs_port[i] == verbs_port)
            post(ia, up ? DAT_PATH_EVENT_UP : DAT_PATH_EVENT_DOWN, &data);
    }
}

/* -- states ------------------------------------------------------------------------------------ */

static void set_due(struct verbsdat_ep *ep, uint64_t ns)
{
    ep->path.due = ns;
    verbsdat_thread_deadline(ep->h.ia, ns);
}

void verbsdat_path_again(struct verbsdat_ep *ep)
{
    struct verbsdat_path *p = &ep->path;
    unsigned doublings = p->tries < AGAIN_DOUBLINGS ? p->tries++ : AGAIN_DOUBLINGS;

    set_due(ep, verbsdat_now() + (UINT64_C(1000000) * AGAIN_MS << doublings));
}

/* The number of the port that has an address; 0: none. */
static uint32_t number_of(const struct sockaddr_in *at, struct in_addr addr)
{
    for (uint32_t i = 0; i < VERBSDAT_PORTS; i++)
        if (at[i].sin_addr.s_addr == addr.s_addr)
            return i + 1;
    return 0;
}

void verbsdat_path_begin(struct verbsdat_ep *ep)
{
    const struct sockaddr_in *from = (struct sockaddr_in *)rdma_get_local_addr(ep->id);
    struct verbsdat_path *p = &ep->path;

    p->current = (DAT_PATH){ number_of(ep->h.ia->at, from->sin_addr), 0 };
    p->n_remote = 0;
    p->n_armed = p->n_migrated = p->n_failed = 0;
}

void verbsdat_path_end(struct verbsdat_ep *ep)
{
    struct verbsdat_path *p = &ep->path;

    p->state = DAT_PATH_MIGRATED;
    p->set = p->asked = false;
    p->wanted = p->wanted_by_peer = p->loaded = p->current = none;
    p->due = UINT64_MAX;
}

void verbsdat_path_ports(struct verbsdat_ep *ep, uint32_t n, const struct in_addr *remote)
{
    struct verbsdat_path *p = &ep->path;

    if (p->n_remote > 0)
        return;
    memcpy(p->remote, remote, sizeof(p->remote));
    for (uint32_t i = 0; i < n; i++)
        if (remote[i].s_addr == ep->remote.sin_addr.s_addr)
            p->current.remote_port = i + 1;
    p->n_remote = p->current.remote_port ? n : 0;
}

/* An adapter arms a QP when the next packet of the peer, which has loaded, arrives: it is queried
 * until then. */
static void check_armed(struct verbsdat_ep *ep)
{
    struct verbsdat_path *p = &ep->path;

    if (!verbsdat_alternate_armed(ep)) {
        verbsdat_path_again(ep);
        return;
    }
    p->state = DAT_PATH_ARMED;
    p->due = UINT64_MAX;
    p->n_armed++;
    report(ep, DAT_PATH_EVENT_ARMED, DAT_PATH_CAUSE_NONE);
}

void verbsdat_path_loaded(struct verbsdat_ep *ep, DAT_PATH path)
{
    ep->path.loaded = path;
    ep->path.tries = 0;
    check_armed(ep);
}

void verbsdat_path_due(struct verbsdat_ep *ep)
{
    bool calls = ep->remote_qual != 0;           /* that side asks, the other one answers */

    ep->path.due = UINT64_MAX;
    if (ep->path.state != DAT_PATH_REARM)
        return;
    if (ep->path.loaded.local_port)
        check_armed(ep);
    else if (calls && !verbsdat_ask_peer(ep))
        verbsdat_path_again(ep);
}

/* Why the QP has migrated: the adapter does not say. Without requests it has not timed out. */
static DAT_PATH_CAUSE cause_of(struct verbsdat_ep *ep)
{
    if (ep->path.asked)
        return DAT_PATH_CAUSE_REQUEST;
    verbsdat_evd_pull(ep->req_evd);
    return verbsdat_queue_idle(&ep->req) ? DAT_PATH_CAUSE_PEER : DAT_PATH_CAUSE_NONE;
}

void verbsdat_path_migrated(struct verbsdat_ep *ep)
{
    struct verbsdat_path *p = &ep->path;
    DAT_PATH_CAUSE cause = cause_of(ep);

    if (p->state == DAT_PATH_MIGRATED)           /* the connection has ended */
        return;
    p->current = p->loaded;
    p->wanted = p->wanted_by_peer = p->loaded = none;
    p->set = p->asked = false;
    p->state = DAT_PATH_MIGRATED;
    p->due = UINT64_MAX;
    p->n_migrated++;
    ep->remote.sin_addr = p->remote[p->current.remote_port - 1];
    report(ep, DAT_PATH_EVENT_MIGRATED, cause);
    if (cause == DAT_PATH_CAUSE_REQUEST)
        verbsdat_ep_announce(ep);
}

void verbsdat_path_failed(struct verbsdat_ep *ep)
{
    struct verbsdat_path *p = &ep->path;

    if (p->state != DAT_PATH_ARMED)
        return;
    p->n_failed++;
    report(ep, DAT_PATH_EVENT_FAILED, DAT_PATH_CAUSE_NONE);
}

/* -- the operations ---------------------------------------------------------------------------- */

static bool is_connected(const struct verbsdat_ep *ep)
{
    return atomic_load(&ep->state) == DAT_EP_STATE_CONNECTED;
}

static DAT_RETURN set_alternate(struct verbsdat_ep *ep, va_list *args)
{
    const DAT_PATH *given = va_arg(*args, const DAT_PATH *);
    DAT_PATH path = given ? *given : none;
    struct verbsdat_path *p = &ep->path;

    if (p->state != DAT_PATH_MIGRATED
        || (!is_connected(ep) && atomic_load(&ep->state) != DAT_EP_STATE_UNCONNECTED))
        return bad_state;
    if (path.local_port > VERBSDAT_PORTS || path.remote_port > DAT_PATH_MAX_PORT
        || (p->n_remote && path.remote_port > p->n_remote))
        return bad_path;
    if (p->n_remote && datpath_same(resolve(p, path, none), p->current))
        return bad_path;
    p->wanted = path;
    p->set = true;
    return DAT_SUCCESS;
}

static DAT_RETURN rearm(struct verbsdat_ep *ep, va_list *args)
{
    struct verbsdat_path *p = &ep->path;

    (void)args;
    if (!is_connected(ep) || !p->set || p->state != DAT_PATH_MIGRATED)
        return bad_state;
    p->state = DAT_PATH_REARM;
    p->tries = 0;
    set_due(ep, verbsdat_now());
    return DAT_SUCCESS;
}

/* Of two requests the second finds a QP that has migrated, and changes nothing. */
static DAT_RETURN migrate(struct verbsdat_ep *ep, va_list *args)
{
    (void)args;
    if (!is_connected(ep) || ep->path.state != DAT_PATH_ARMED)
        return bad_state;
    ep->path.asked = true;
    return verbsdat_alternate_migrate(ep) ? DAT_SUCCESS
                                          : VERBSDAT_ERROR(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE);
}

static DAT_RETURN query(struct verbsdat_ep *ep, va_list *args)
{
    DAT_PATH_PARAM *param = va_arg(*args, DAT_PATH_PARAM *);
    const struct verbsdat_path *p = &ep->path;

    if (!param)
        return bad_path;
    *param = (DAT_PATH_PARAM){ .state = p->state, .current = p->current, .alternate = p->wanted,
                               .n_armed = p->n_armed, .n_migrated = p->n_migrated,
                               .n_failed = p->n_failed };
    return DAT_SUCCESS;
}

static const struct {
    int op;
    DAT_RETURN (*act)(struct verbsdat_ep *, va_list *);
} operation[] = {
    { DAT_PATH_SET_ALTERNATE_OP, set_alternate },
    { DAT_PATH_REARM_OP, rearm },
    { DAT_PATH_MIGRATE_OP, migrate },
    { DAT_PATH_QUERY_OP, query },
};

DAT_RETURN verbsdat_path_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args)
{
    struct verbsdat_ep *ep = verbsdat_ep_of(handle);
    DAT_RETURN ret = VERBSDAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
    va_list copy;

    for (size_t i = 0; i < sizeof(operation) / sizeof(operation[0]); i++) {
        if ((int)op != operation[i].op)
            continue;
        if (!ep)
            return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
        if (!ep->h.ia->migrates)
            return ret;
        verbsdat_lock(ep->h.ia);
        ep->h.ia->uses_paths = true;
        va_copy(copy, args);
        ret = operation[i].act(ep, &copy);
        va_end(copy);
        verbsdat_unlock(ep->h.ia);
    }
    return ret;
}
