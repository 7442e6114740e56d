/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"
#include "datpath.h"

#include <string.h>

/*
 * The alternate path of a connection: the operations and events of dat_path_extensions.h and their
 * states, and the same for connections with several paths as DAT 2.0 has them. standby.c makes the
 * link over the alternate, migrate.c moves the connection to it. docs/paths.md has the rules.
 *
 *      MIGRATED  rearm: announces by LOADED what this side has loaded         -> REARM
 *      REARM     both have loaded, and the standby is there                   -> ARMED
 *      ARMED     the standby fails                                            -> REARM
 *      ARMED     the connection uses the standby                              -> MIGRATED
 */

_Static_assert(SOFTDAT_MAX_PORTS == 2, "another port than this one is the other one");
_Static_assert(sizeof(DAT_PATH_EVENT_DATA) <= sizeof(((DAT_EVENT *)0)->event_extension_data),
               "the event has room for the data");

/* -- paths ------------------------------------------------------------------------------------ */

static DAT_PATH path_in_use(const struct softdat_conn *c)
{
    return (DAT_PATH){ c->port + 1u, c->peer_port };
}

static DAT_PATH resolve(const struct softdat_conn *c, DAT_PATH mine, DAT_PATH theirs)
{
    return (DAT_PATH){
        datpath_port(mine.local_port, theirs.remote_port, c->port + 1u, c->ia->cfg.n_ports),
        datpath_port(mine.remote_port, theirs.local_port, c->peer_port, c->peer_ports),
    };
}

bool softdat_alternate_path(const struct softdat_conn *c, DAT_PATH *path)
{
    const struct softdat_alternate *a = c->ep ? c->ep->alternate : NULL;

    if (!a || a->state != DAT_PATH_REARM || !a->peer_loaded)
        return false;
    *path = resolve(c, a->path, a->peer_path);
    return path->local_port && path->remote_port && !datpath_same(*path, path_in_use(c));
}

/* -- events ----------------------------------------------------------------------------------- */

static void post(struct softdat_ia *ia, DAT_PATH_EVENT_NUMBER number,
                 const DAT_PATH_EVENT_DATA *data)
{
    DAT_EVENT event = datpath_event(number, data);

    softdat_evd_post(ia->async_evd, &event);
}

/* The events of DAT 2.0 for a connection with several paths: with one path, or more, left. */
static void post_ha(struct softdat_ep *ep, DAT_PATH_EVENT_NUMBER number)
{
    DAT_EVENT event;

    if (number == DAT_PATH_EVENT_FAILED)
        return;
    memset(&event, 0, sizeof(event));
    event.event_number = number == DAT_PATH_EVENT_ARMED ? DAT_HA_UP_TO_MULTI_PATH
                                                        : DAT_HA_DOWN_TO_1;
    event.event_data.asynch_error_event_data.dat_handle = ep;
    softdat_evd_post(ep->h.ia->async_evd, &event);
}

static void report(struct softdat_ep *ep, DAT_PATH_EVENT_NUMBER number, DAT_PATH_CAUSE cause)
{
    const DAT_PATH_EVENT_DATA data = {
        .handle = ep, .context = ep->h.context, .path = path_in_use(ep->conn),
        .cause = (DAT_UINT32)cause, .n_migrated = ep->alternate->n_migrated,
    };

    if (ep->alternate->multipath)
        post_ha(ep, number);
    else
        post(ep->h.ia, number, &data);
}

void softdat_alternate_port(struct softdat_ia *ia, uint32_t port, bool up)
{
    const DAT_PATH_EVENT_DATA data = { .handle = ia, .context = ia->h.context,
                                       .path = { port + 1, 0 } };

    if (ia->uses_paths)
        post(ia, up ? DAT_PATH_EVENT_UP : DAT_PATH_EVENT_DOWN, &data);
}

/* -- states ----------------------------------------------------------------------------------- */

/* Returns the alternate of ep, which has one from now on. NULL: out of memory. */
static struct softdat_alternate *alternate_of(struct softdat_ep *ep)
{
    if (!ep->alternate) {
        ep->alternate = softdat_alloc(sizeof(*ep->alternate));
        if (!ep->alternate)
            return NULL;
        ep->alternate->ep = ep;
        softdat_list_init(&ep->alternate->waits);
    }
    return ep->alternate;
}

void softdat_alternate_begin(struct softdat_ep *ep, bool multipath)
{
    struct softdat_alternate *a = multipath ? alternate_of(ep) : ep->alternate;

    if (!a)
        return;
    a->multipath = multipath;
    a->n_armed = a->n_migrated = a->n_failed = 0;
}

void softdat_alternate_end(struct softdat_ep *ep)
{
    struct softdat_alternate *a = ep->alternate;

    if (!a)
        return;
    a->path = a->peer_path = (DAT_PATH){ 0, 0 };
    a->set = a->multipath = a->peer_loaded = a->move_asked = a->link_reset = false;
    a->state = DAT_PATH_MIGRATED;
    a->move = a->move_cause = 0;
    a->tries = 0;
}

DAT_EP_STATE softdat_alternate_ep_state(const struct softdat_ep *ep)
{
    const struct softdat_alternate *a = ep->alternate;
    bool several = a && a->multipath && a->state == DAT_PATH_ARMED;

    return several && ep->state == DAT_EP_STATE_CONNECTED ? DAT_EP_STATE_CONNECTED_MULTI_PATH
                                                          : ep->state;
}

static void load(struct softdat_conn *c)
{
    c->ep->alternate->set = true;
    c->ep->alternate->state = DAT_PATH_REARM;
    softdat_tx_frame(c, SOFTDAT_LOADED, NULL, 0);
    softdat_standby_make(c);
}

void softdat_alternate_open(struct softdat_conn *c)
{
    if (c->multipath && c->ep && c->ep->alternate && (c->ia->cfg.n_ports > 1 || c->peer_ports > 1))
        load(c);
}

/* Without memory the connection is not armed. */
bool softdat_cm_on_loaded(struct softdat_conn *c)
{
    struct softdat_alternate *a = alternate_of(c->ep);

    if (!a)
        return true;
    a->peer_loaded = true;
    a->peer_path = (DAT_PATH){ c->hdr.key, c->hdr.id };
    softdat_standby_make(c);
    return true;
}

void softdat_alternate_armed(struct softdat_conn *c)
{
    struct softdat_alternate *a = c->ep->alternate;

    a->state = DAT_PATH_ARMED;
    a->n_armed++;
    a->tries = 0;
    report(c->ep, DAT_PATH_EVENT_ARMED, DAT_PATH_CAUSE_NONE);
    softdat_path_keep_alive(c);
    if (softdat_path_down(c))
        softdat_standby_begin(c, DAT_PATH_CAUSE_PORT);
    softdat_path_set_deadline(c);
}

void softdat_alternate_down(struct softdat_conn *c)
{
    if (c->ep->alternate->state != DAT_PATH_ARMED)
        return;
    c->ep->alternate->state = DAT_PATH_REARM;
    softdat_path_keep_alive(c);
    report(c->ep, DAT_PATH_EVENT_DOWN, DAT_PATH_CAUSE_NONE);
}

/* The connection uses its alternate. */
static void migrated(struct softdat_conn *c)
{
    struct softdat_alternate *a = c->ep->alternate;
    uint32_t cause = a->move_cause ? a->move_cause : (uint32_t)DAT_PATH_CAUSE_PEER;

    a->path = (DAT_PATH){ 0, 0 };
    a->set = false;
    a->state = DAT_PATH_MIGRATED;
    a->n_migrated++;
    report(c->ep, DAT_PATH_EVENT_MIGRATED, (DAT_PATH_CAUSE)cause);
    if (a->multipath)
        load(c);
}

/* It uses a link that was not made in advance (daplsoft migrate): what was loaded, perhaps for the
 * path that is now in use, is loaded again, for the path that is not. */
static void relinked(struct softdat_conn *c)
{
    struct softdat_alternate *a = c->ep->alternate;

    if (a->set)
        a->path = (DAT_PATH){ 0, 0 };
    softdat_alternate_down(c);
    if (a->state == DAT_PATH_REARM)
        load(c);
}

void softdat_alternate_moved(struct softdat_conn *c)
{
    struct softdat_alternate *a = c->ep ? c->ep->alternate : NULL;
    bool to_standby = a && a->move != 0;

    if (!a)
        return;
    softdat_standby_close(c);
    a->peer_loaded = false;
    a->move = 0;
    to_standby ? migrated(c) : relinked(c);
    a->move_cause = 0;
    a->move_asked = a->link_reset = false;
}

void softdat_alternate_failed(struct softdat_conn *c)
{
    struct softdat_alternate *a = c->ep ? c->ep->alternate : NULL;

    if (!a || a->state == DAT_PATH_MIGRATED || !a->peer_loaded)
        return;
    a->n_failed++;
    report(c->ep, DAT_PATH_EVENT_FAILED, (DAT_PATH_CAUSE)a->move_cause);
}

/* -- the operations --------------------------------------------------------------------------- */

static struct softdat_conn *open_conn(const struct softdat_ep *ep)
{
    return ep->state == DAT_EP_STATE_CONNECTED && ep->conn && ep->conn->phase == SOFTDAT_OPEN
               ? ep->conn : NULL;
}

static DAT_PATH_STATE path_state(const struct softdat_ep *ep)
{
    return ep->alternate ? ep->alternate->state : DAT_PATH_MIGRATED;
}

/* DAT_SUCCESS, or why that path cannot be the alternate of an open connection. */
static DAT_RETURN check_path(const struct softdat_conn *c, DAT_PATH path)
{
    if (c->peer_ports && path.remote_port > c->peer_ports)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    if (c->ia->cfg.n_ports < 2 && c->peer_ports == 1)
        return DAT_ERROR(DAT_MODEL_NOT_SUPPORTED, DAT_NO_SUBTYPE);
    if (datpath_same(resolve(c, path, (DAT_PATH){ 0, 0 }), path_in_use(c)))
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    return DAT_SUCCESS;
}

static DAT_RETURN set_alternate(struct softdat_ep *ep, va_list *args)
{
    const DAT_PATH *given = va_arg(*args, const DAT_PATH *);
    DAT_PATH path = given ? *given : (DAT_PATH){ 0, 0 };
    struct softdat_conn *c = open_conn(ep);
    struct softdat_alternate *a;
    DAT_RETURN ret = DAT_SUCCESS;

    if (path_state(ep) != DAT_PATH_MIGRATED
        || (!c && ep->state != DAT_EP_STATE_UNCONNECTED && ep->state != DAT_EP_STATE_RESERVED))
        return DAT_ERROR(DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    if (path.local_port > ep->h.ia->cfg.n_ports || path.remote_port > DAT_PATH_MAX_PORT)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    if (c)
        ret = check_path(c, path);
    if (ret != DAT_SUCCESS)
        return ret;
    a = alternate_of(ep);
    if (!a)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    a->path = path;
    a->set = true;
    return DAT_SUCCESS;
}

static DAT_RETURN rearm(struct softdat_ep *ep, va_list *args)
{
    struct softdat_conn *c = open_conn(ep);

    (void)args;
    if (!c || !ep->alternate || !ep->alternate->set || path_state(ep) != DAT_PATH_MIGRATED)
        return DAT_ERROR(DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    load(c);
    return DAT_SUCCESS;
}

/* Armed, but without a standby that could be begun with: a migration is being made. */
static DAT_RETURN migrate(struct softdat_ep *ep, va_list *args)
{
    struct softdat_conn *c = open_conn(ep);

    (void)args;
    if (!c || path_state(ep) != DAT_PATH_ARMED)
        return DAT_ERROR(DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    softdat_standby_begin(c, DAT_PATH_CAUSE_REQUEST);
    return DAT_SUCCESS;
}

static DAT_RETURN query(struct softdat_ep *ep, va_list *args)
{
    DAT_PATH_PARAM *param = va_arg(*args, DAT_PATH_PARAM *);
    static const struct softdat_alternate none;
    const struct softdat_alternate *a = ep->alternate ? ep->alternate : &none;
    const struct softdat_conn *c = open_conn(ep);

    if (!param)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    *param = (DAT_PATH_PARAM){
        .state = a->state, .current = c ? path_in_use(c) : (DAT_PATH){ 0, 0 },
        .alternate = a->path, .n_armed = a->n_armed, .n_migrated = a->n_migrated,
        .n_failed = a->n_failed,
    };
    return DAT_SUCCESS;
}

static const struct {
    int op;
    DAT_RETURN (*act)(struct softdat_ep *, va_list *);
} operation[] = {
    { DAT_PATH_SET_ALTERNATE_OP, set_alternate },
    { DAT_PATH_REARM_OP, rearm },
    { DAT_PATH_MIGRATE_OP, migrate },
    { DAT_PATH_QUERY_OP, query },
};

DAT_RETURN softdat_alternate_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, va_list args)
{
    struct softdat_ep *ep = softdat_get(handle, DAT_HANDLE_TYPE_EP);
    DAT_RETURN ret = DAT_ERROR(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);
    va_list copy;

    for (size_t i = 0; i < sizeof(operation) / sizeof(operation[0]); i++) {
        if ((int)op != operation[i].op)
            continue;
        if (!ep)
            return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
        softdat_lock(ep->h.ia);
        ep->h.ia->uses_paths = true;
        va_copy(copy, args);
        ret = operation[i].act(ep, &copy);
        va_end(copy);
        softdat_unlock(ep->h.ia);
    }
    return ret;
}
