/* SPDX-License-Identifier: MIT */
#include "conn.h"

#include "cfg.h"
#include "dat_path_extensions.h"
#include "err.h"
#include "log.h"
#include "min.h"
#include "path_fsm.h"
#include "path_spec.h"
#include "peer.h"
#include "stats.h"

#include <errno.h>
#include <stdlib.h>

enum {
    SHARE = 100,             /* at most one part in so many of a rank's time is spent here; */
    PAUSE_US = 5000,         /* from one connection to the next, since a provider does most of the
                                work later: the software provider some 100 us
                                (benchmarks/results/paths.md) */
    CHECK_MS = 1000,         /* until a connection that waits for an event is queried; doubles */
    CHECK_DOUBLINGS = 6,
};

struct mdapl_dapl_path {
    struct mdapl_dapl_conn *conn;
    enum mdapl_dapl_path_state state;
    struct mdapl_list link;      /* on paths->waiting, but in the state NONE */
    uint64_t due;                /* ns */
    unsigned checks;             /* how often what was due has changed nothing, in a row */
    uint64_t load_pause;         /* before an alternate path is loaded, ns */
    uint64_t move_pause;         /* for which it has been armed before this end moves it, ns */
    bool leaving;                /* this end has asked it to move, as its path carries nothing */
    uint32_t first_port;         /* the local port over which it was established */
    DAT_PATH_PARAM seen;         /* what the last query returned */
};

struct mdapl_dapl_paths {
    struct mdapl_dapl_path_spec spec;
    struct mdapl_list waiting;
    struct mdapl_timer timer;    /* the next of them is due, and the pause is over */
    uint64_t rest;               /* end of the pause, ns */
    struct mdapl_dapl_chan *d;
    int balance;                 /* the knob, as it has been carried out */
};

static const struct mdapl_cfg *cfg_of(const struct mdapl_dapl_conn *conn)
{
    return mdapl_ctx_cfg(conn->ep.ia->ctx);
}

/* -- the provider ----------------------------------------------------------------------------- */

static DAT_RETURN set_alternate(const struct mdapl_dapl_ep *ep, const DAT_PATH *path)
{
    return ep->ia->dat->dat_extension_op(ep->handle, DAT_PATH_SET_ALTERNATE_OP, path);
}

static DAT_RETURN rearm(const struct mdapl_dapl_ep *ep)
{
    return ep->ia->dat->dat_extension_op(ep->handle, DAT_PATH_REARM_OP);
}

static DAT_RETURN migrate(const struct mdapl_dapl_ep *ep)
{
    return ep->ia->dat->dat_extension_op(ep->handle, DAT_PATH_MIGRATE_OP);
}

static bool query(const struct mdapl_dapl_ep *ep, DAT_PATH_PARAM *param)
{
    *param = (DAT_PATH_PARAM){ .state = DAT_PATH_MIGRATED };
    return ep->handle != DAT_HANDLE_NULL
           && ep->ia->dat->dat_extension_op(ep->handle, DAT_PATH_QUERY_OP, param) == DAT_SUCCESS;
}

/* -- where a connection should be ------------------------------------------------------------- */

/*
 * The local port to which this end moves the connection; 0: it does not. With the knob BALANCE the
 * sum of both ranks and the stream's place on its rail decide, so that the ports of an adapter get
 * the same number of connections whatever the order in which they are made.
 */
static uint32_t wanted_port(const struct mdapl_dapl_conn *conn)
{
    const struct mdapl_dapl_peer *peer = conn->st->peer;
    const struct mdapl_dapl_paths *paths = peer->d->paths;
    uint64_t nth = (uint64_t)mdapl_ctx_job(peer->d->ctx)->rank + (uint64_t)peer->base.rank
                   + (uint64_t)(conn->stream / peer->n_rails);

    if (!conn->caller)
        return 0;
    if (cfg_of(conn)->path_balance == MDAPL_PATH_BALANCE_ON)
        return mdapl_dapl_path_balanced(&paths->spec, conn->ep.ia->max.ports, nth);
    return cfg_of(conn)->path_back == MDAPL_PATH_BACK_ON ? conn->path->first_port : 0;
}

static bool is_elsewhere(const struct mdapl_dapl_conn *conn)
{
    uint32_t port = wanted_port(conn);

    return port > 0 && port != conn->path->seen.current.local_port;
}

/* -- what is due, and when -------------------------------------------------------------------- */

static void set_due(struct mdapl_dapl_conn *conn, uint64_t pause)
{
    struct mdapl_dapl_paths *paths = conn->st->peer->d->paths;
    struct mdapl_dapl_path *path = conn->path;

    path->due = mdapl_ctx_now(conn->ep.ia->ctx) + pause;
    mdapl_list_remove(&path->link);
    mdapl_list_append(&paths->waiting, &path->link);
    if (mdapl_list_empty(&paths->timer.link) || path->due < paths->timer.due)
        mdapl_timer_set(&paths->d->timers, &paths->timer, mdapl_max(path->due, paths->rest));
}

/* Until it is queried, or what was refused is tried again. */
static uint64_t check_pause(const struct mdapl_dapl_path *path)
{
    return MDAPL_MS(CHECK_MS) << mdapl_min(path->checks, CHECK_DOUBLINGS);
}

/* Its state has changed, or what it is to do. */
static void schedule(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_path *path = conn->path;

    if (path->state == MDAPL_DAPL_PATH_NONE)
        mdapl_list_remove(&path->link);
    else if (path->state == MDAPL_DAPL_PATH_UNLOADED)
        set_due(conn, path->load_pause);
    else if (path->state == MDAPL_DAPL_PATH_ARMED && is_elsewhere(conn))
        set_due(conn, path->move_pause);
    else
        set_due(conn, check_pause(path));
}

/* -- what has happened ------------------------------------------------------------------------ */

static const char *const cause_text[] = {
    [DAT_PATH_CAUSE_NONE] = "the provider has not reported why",
    [DAT_PATH_CAUSE_REQUEST] = "this rank has asked for it",
    [DAT_PATH_CAUSE_PEER] = "the other end has moved it",
    [DAT_PATH_CAUSE_PORT] = "its port is down",
    [DAT_PATH_CAUSE_TIMEOUT] = "its former path has not transmitted in time",
};

static const char *text_of(DAT_UINT32 cause)
{
    return cause_text[cause < sizeof(cause_text) / sizeof(*cause_text) ? cause : 0];
}

static void step(struct mdapl_dapl_conn *conn, enum mdapl_dapl_path_event event)
{
    struct mdapl_dapl_path *path = conn->path;
    enum mdapl_dapl_path_state next = mdapl_dapl_path_next(path->state, event);

    if (next == path->state)
        return;
    mdapl_log(mdapl_ctx_log(conn->ep.ia->ctx), MDAPL_CONN, "rank %d stream %d: alternate path of "
              "connection %u: %s -> %s", conn->rank, conn->stream, conn->epoch,
              mdapl_dapl_path_state_name(path->state), mdapl_dapl_path_state_name(next));
    path->state = next;
    path->checks = 0;
}

/* Has this end asked for the migration, to leave a path, or to have the connection elsewhere? */
static bool is_left(const struct mdapl_dapl_path *path)
{
    return path->state == MDAPL_DAPL_PATH_MOVING && path->leaving;
}

static bool is_wanted(const struct mdapl_dapl_path *path)
{
    return path->state == MDAPL_DAPL_PATH_MOVING && !path->leaving;
}

/* Why it has moved: as this end knows best, or as the provider has reported. */
static const char *reason(const struct mdapl_dapl_path *path, DAT_UINT32 cause)
{
    bool here = cause == DAT_PATH_CAUSE_NONE || cause == DAT_PATH_CAUSE_REQUEST;

    if (here && is_left(path))
        return "its former path carried nothing";
    return text_of(here && is_wanted(path) ? DAT_PATH_CAUSE_REQUEST : cause);
}

/* The connection uses another path since the last query. */
static void count_migrated(struct mdapl_dapl_conn *conn, const DAT_PATH_PARAM *now,
                           DAT_UINT32 cause)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(conn->ep.ia->ctx);
    const struct mdapl_dapl_path *path = conn->path;
    bool wanted = is_wanted(path);
    bool balanced = cfg_of(conn)->path_balance == MDAPL_PATH_BALANCE_ON;

    stats->path_migrated += now->n_migrated - path->seen.n_migrated;
    stats->path_balanced += wanted && balanced;
    stats->path_back += wanted && !balanced;
    mdapl_log(mdapl_ctx_log(conn->ep.ia->ctx), MDAPL_INFO,
              "connection %u to rank %d, stream %d, has moved from port %u to port %u of IA %s: %s",
              conn->epoch, conn->rank, conn->stream, path->seen.current.local_port,
              now->current.local_port, conn->ep.ia->name,
              reason(path, cause));
}

/* Counts what has happened to the connection since the last query. */
static void count(struct mdapl_dapl_conn *conn, const DAT_PATH_PARAM *now, DAT_UINT32 cause)
{
    struct mdapl_stats *stats = mdapl_ctx_stats(conn->ep.ia->ctx);
    const DAT_PATH_PARAM *seen = &conn->path->seen;

    stats->path_armed += now->n_armed - seen->n_armed;
    stats->path_failed += now->n_failed - seen->n_failed;
    if (now->n_migrated != seen->n_migrated)
        count_migrated(conn, now, cause);
    if (now->n_failed != seen->n_failed)
        mdapl_log(mdapl_ctx_log(conn->ep.ia->ctx), MDAPL_INFO,
                  "connection %u to rank %d, stream %d, cannot move from port %u of IA %s: its "
                  "alternate path has failed, too", conn->epoch, conn->rank, conn->stream,
                  seen->current.local_port, conn->ep.ia->name);
}

/*
 * The connection has migrated. A path that has failed is left alone until it can be expected to
 * work again; which end has seen the fault only that end knows, and the other one's loading waits
 * for it. A migration of unknown cause counts as a fault.
 */
static void moved(struct mdapl_dapl_conn *conn, DAT_UINT32 cause)
{
    struct mdapl_dapl_path *path = conn->path;
    uint64_t quiet = MDAPL_MS(cfg_of(conn)->path_quiet_ms);
    bool wanted = is_wanted(path);
    bool fault = is_left(path)
                 || (cause != DAT_PATH_CAUSE_REQUEST && cause != DAT_PATH_CAUSE_PEER
                     && !(wanted && cause == DAT_PATH_CAUSE_NONE));

    path->load_pause = fault ? quiet : 0;
    path->move_pause = wanted ? 0 : quiet;
    mdapl_dapl_probe_moved(conn);
    step(conn, MDAPL_DAPL_PATH_MIGRATED);
}

/* Takes over what a query returns. cause: of the event that was the reason for it. */
static void sync(struct mdapl_dapl_conn *conn, DAT_UINT32 cause)
{
    static const enum mdapl_dapl_path_event is[] = {
        [DAT_PATH_MIGRATED] = MDAPL_DAPL_PATH_IS_MIGRATED,
        [DAT_PATH_REARM] = MDAPL_DAPL_PATH_IS_REARM,
        [DAT_PATH_ARMED] = MDAPL_DAPL_PATH_IS_ARMED,
    };
    struct mdapl_dapl_path *path = conn->path;
    enum mdapl_dapl_path_state was = path->state;
    DAT_PATH_PARAM now;
    bool has_moved;

    if (!query(&conn->ep, &now) || now.state > DAT_PATH_ARMED)
        return;
    has_moved = now.n_migrated != path->seen.n_migrated;
    count(conn, &now, cause);
    if (has_moved)
        moved(conn, cause);
    else
        now.current = path->seen.current;    /* a migration under way is not counted yet */
    path->seen = now;
    step(conn, is[now.state]);
    if (has_moved || path->state != was)
        schedule(conn);
}

/* -- doing it --------------------------------------------------------------------------------- */

/* Does the provider never have such a path? Any other refusal may be over later, as that of a state
 * which has changed since the last query. */
static bool is_final(DAT_RETURN ret)
{
    return DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_MODEL_NOT_SUPPORTED)
           || DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_INVALID_PARAMETER)
           || DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_NOT_IMPLEMENTED);
}

/* Loads the alternate path at this end (paper apm-over-infiniband, 3.1.2). */
static void load(struct mdapl_dapl_conn *conn)
{
    const struct mdapl_dapl_paths *paths = conn->st->peer->d->paths;
    DAT_RETURN ret = DAT_MODEL_NOT_SUPPORTED;
    DAT_PATH path;

    if (mdapl_dapl_path_alternate(&paths->spec, &conn->path->seen.current, wanted_port(conn),
                                  &path))
        ret = set_alternate(&conn->ep, &path);
    if (ret == DAT_SUCCESS)
        ret = rearm(&conn->ep);
    if (ret == DAT_SUCCESS)
        step(conn, MDAPL_DAPL_PATH_LOADED);
    else if (is_final(ret))
        step(conn, MDAPL_DAPL_PATH_REFUSED);
}

/* Asks for a migration to the alternate path (3.1.3). leaving: since the other carries nothing. */
static void move(struct mdapl_dapl_conn *conn, bool leaving)
{
    if (migrate(&conn->ep) != DAT_SUCCESS)
        return;
    conn->path->leaving = leaving;
    step(conn, MDAPL_DAPL_PATH_ASKED);
}

/* What is due of one connection. If it changes nothing, it is due again after a pause. */
static void act(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_path *path = conn->path;
    enum mdapl_dapl_path_state was = path->state;

    sync(conn, DAT_PATH_CAUSE_NONE);
    if (path->state != was)
        return;
    if (was == MDAPL_DAPL_PATH_UNLOADED)
        load(conn);
    else if (was == MDAPL_DAPL_PATH_ARMED && is_elsewhere(conn))
        move(conn, false);
    else if (was == MDAPL_DAPL_PATH_MOVING && path->checks > 0)
        step(conn, MDAPL_DAPL_PATH_LATE);
    if (path->state != was) {
        schedule(conn);
        sync(conn, DAT_PATH_CAUSE_NONE);
    } else {
        set_due(conn, check_pause(path));
        path->checks++;
    }
}

bool mdapl_dapl_path_leave(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_path *path = conn->path;

    if (!path || path->state != MDAPL_DAPL_PATH_ARMED)
        return false;
    move(conn, true);
    if (path->state != MDAPL_DAPL_PATH_MOVING)
        return false;
    schedule(conn);
    sync(conn, DAT_PATH_CAUSE_NONE);
    return true;
}

/* The connection that is due first; NULL: none waits. */
static struct mdapl_dapl_path *first_due(const struct mdapl_dapl_paths *paths)
{
    struct mdapl_dapl_path *first = NULL;

    MDAPL_LIST_EACH(pos, &paths->waiting) {
        struct mdapl_dapl_path *path = MDAPL_OF(pos, struct mdapl_dapl_path, link);

        if (!first || path->due < first->due)
            first = path;
    }
    return first;
}

/* The timer: one connection, since data goes first; then a pause that is many times as long. */
static void act_on_due(struct mdapl_timer *t)
{
    struct mdapl_dapl_paths *paths = MDAPL_OF(t, struct mdapl_dapl_paths, timer);
    uint64_t now = mdapl_ctx_now(paths->d->ctx), took;
    struct mdapl_dapl_path *path = first_due(paths);

    if (path && path->due <= now)
        act(path->conn);
    took = mdapl_ctx_now(paths->d->ctx) - now;
    paths->rest = now + mdapl_max(took * SHARE, MDAPL_US(PAUSE_US));
    path = first_due(paths);
    if (path)
        mdapl_timer_set(&paths->d->timers, t, mdapl_max(path->due, paths->rest));
}

/* -- connections ------------------------------------------------------------------------------ */

void mdapl_dapl_path_up(struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_path *path;
    DAT_PATH_PARAM now;

    if (!conn->st->peer->d->paths || conn->ep.ia->max.ports == 0 || !query(&conn->ep, &now))
        return;
    path = calloc(1, sizeof(*path));
    if (!path)                   /* then a fault breaks it, and it is replaced */
        return;
    conn->path = path;
    path->conn = conn;
    path->seen = now;
    path->first_port = now.current.local_port;
    mdapl_list_init(&path->link);
    schedule(conn);
}

void mdapl_dapl_path_down(struct mdapl_dapl_conn *conn)
{
    DAT_PATH_PARAM now;

    if (!conn->path)
        return;
    if (query(&conn->ep, &now))
        count(conn, &now, DAT_PATH_CAUSE_NONE);
    mdapl_list_remove(&conn->path->link);
    free(conn->path);
    conn->path = NULL;
}

/* A port has failed or works again: the provider moves what has to be moved. */
static void report_port(const struct mdapl_dapl_ia *ia, DAT_EVENT_NUMBER number, uint32_t port)
{
    mdapl_log(mdapl_ctx_log(ia->ctx), MDAPL_INFO, "IA %s: port %u is %s", ia->name, port,
              number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_DOWN ? "down" : "up again");
}

void mdapl_dapl_path_event(void *arg, struct mdapl_dapl_ia *ia, struct mdapl_dapl_ep *ep,
                           DAT_EVENT_NUMBER number, const DAT_PATH_EVENT_DATA *data)
{
    struct mdapl_dapl_chan *d = arg;
    bool is_down = number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_DOWN;
    bool is_port = number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_UP || is_down;

    if (d->closing)
        return;
    mdapl_ctx_stats(d->ctx)->path_down += is_down;
    if (ep && mdapl_dapl_conn_of(ep)->path)
        sync(mdapl_dapl_conn_of(ep), data->cause);
    else if (!ep && is_port)
        report_port(ia, number, data->path.local_port);
}

/* -- the channel ------------------------------------------------------------------------------ */

/* Calls f for each connection that has paths. */
static void each_conn(struct mdapl_dapl_chan *d, void (*f)(struct mdapl_dapl_conn *conn))
{
    for (struct mdapl_dapl_peer *p = NULL; (p = mdapl_dapl_peer_next(d, p));)
        for (int i = 0; i < p->n_streams; i++)
            if (p->stream[i].conn && p->stream[i].conn->path)
                f(p->stream[i].conn);
}

void mdapl_dapl_paths_look(struct mdapl_dapl_chan *d)
{
    int balance = mdapl_ctx_cfg(d->ctx)->path_balance;

    if (balance == d->paths->balance)
        return;
    d->paths->balance = balance;
    each_conn(d, schedule);
}

int mdapl_dapl_paths_open(struct mdapl_dapl_chan *d)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(d->ctx);
    struct mdapl_dapl_path_spec spec;

    if (!mdapl_dapl_path_spec_read(cfg->paths, &spec))
        return mdapl_err_set(mdapl_ctx_err(d->ctx), -EINVAL, "MPIR_CVAR_DAPL_PATHS=\"%s\" is not "
                             "possible: it must be auto, off, or ports from 1 to %d with commas "
                             "between them, each perhaps with the peer's port behind a colon, %d "
                             "at most", cfg->paths, DAT_PATH_MAX_PORT, MDAPL_DAPL_PATHS);
    if (spec.off || mdapl_dapl_rails_ports(&d->rails) == 0)
        return 0;
    d->paths = calloc(1, sizeof(*d->paths));
    if (!d->paths)
        return mdapl_err_set(mdapl_ctx_err(d->ctx), -ENOMEM, "out of memory");
    d->paths->spec = spec;
    d->paths->d = d;
    d->paths->balance = cfg->path_balance;
    mdapl_list_init(&d->paths->waiting);
    mdapl_timer_init(&d->paths->timer, act_on_due);
    return 0;
}

void mdapl_dapl_paths_close(struct mdapl_dapl_chan *d)
{
    free(d->paths);
    d->paths = NULL;
}
