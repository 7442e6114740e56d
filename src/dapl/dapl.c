/* SPDX-License-Identifier: MIT */
#include "dapl.h"

#include "cfg.h"
#include "cm.h"
#include "conn.h"
#include "err.h"
#include "fault.h"
#include "frames.h"
#include "ia.h"
#include "log.h"
#include "min.h"
#include "peer.h"
#include "place.h"
#include "regcache.h"
#include "rma.h"
#include "rndv.h"
#include "vbuf.h"
#include "wire.h"
#include "wireup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    CLOSE_MS = 2000,             /* longest wait for the adapter to flush closed EPs */
    FLUSH_US = 100,              /* longest sleep between two polls for that */
    UNNOTIFIED_US = 100,         /* longest sleep when frames may arrive without an event */
    UNUSED_LOOK_US = 1000,       /* between two looks before the first connection */
};

/* -- opening ---------------------------------------------------------------------------------- */

/* Does this rail have the limits that the channel needs? 0, or -ENODEV with the one clear line. */
static int check_rail(struct mdapl_dapl_chan *d, const struct mdapl_dapl_ia *ia)
{
    const struct mdapl_dapl_ia_limits *max = &ia->max;

    if (max->priv < MDAPL_HELLO_BYTES)
        return mdapl_err_set(mdapl_ctx_err(d->ctx), -ENODEV,
                             "IA %s carries only %u bytes of private data with a connection "
                             "request; %d are needed. Use another IA", ia->name, max->priv,
                             MDAPL_HELLO_BYTES);
    if (max->dtos < MDAPL_WINDOW_MIN + MDAPL_SR_RESERVE || max->message < MDAPL_FRAME_MIN)
        return mdapl_err_set(mdapl_ctx_err(d->ctx), -ENODEV,
                             "IA %s is too small: it allows %u transfers per endpoint and messages "
                             "of %llu bytes; 6 and 512 are needed. Use another IA", ia->name,
                             max->dtos, (unsigned long long)max->message);
    return 0;
}

/* The knobs, cut to what all rails allow. 0, or -errno with the one clear line. */
static int fit_limits(struct mdapl_dapl_chan *d)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(d->ctx);
    const struct mdapl_dapl_ia_limits *max = &d->rails.max;
    int rc = 0;

    for (int i = 0; !rc && i < d->rails.n; i++)
        rc = check_rail(d, d->rails.ia[i]);
    if (rc)
        return rc;
    d->sr_window = max->window;
    d->ep_requests = max->requests;
    d->streams_per_rail = (int)cfg->streams;
    d->can_read = max->reads > 0;
    d->retain = cfg->retain == MDAPL_RETAIN_ON;
    d->frame_room = (size_t)mdapl_min(max->message, (uint64_t)cfg->vbuf_size)
                    - MDAPL_FRAME_HDR_BYTES;
    d->eager_max = mdapl_max(d->frame_room, (size_t)cfg->eager_bytes + MDAPL_HDR_MAX);
    return 0;
}

/* Opens the adapters that the knob lists, or the first that opens. */
static int open_rails(struct mdapl_dapl_chan *d)
{
    struct mdapl_dapl_ia_hooks hooks = mdapl_dapl_cm_hooks(d);
    char names[sizeof(mdapl_ctx_cfg(d->ctx)->ia)], *save = NULL;
    const char *name;
    int rc = 0;

    snprintf(names, sizeof(names), "%s", mdapl_ctx_cfg(d->ctx)->ia);
    name = strtok_r(names, ",", &save);
    for (name = name ? name : ""; name && !rc; name = strtok_r(NULL, ",", &save)) {
        if (d->rails.n == MDAPL_MAX_RAILS)
            return mdapl_err_set(mdapl_ctx_err(d->ctx), -EINVAL, "MPIR_CVAR_DAPL_IA names more "
                                 "than %d adapters. Name fewer", MDAPL_MAX_RAILS);
        rc = mdapl_dapl_ia_open(d->ctx, &d->dat, name, &hooks, &d->rails.ia[d->rails.n]);
        if (!rc) {
            d->rails.ia[d->rails.n]->rail = d->rails.n;
            d->rails.n++;
        }
    }
    return rc;
}

/* Logs where each adapter and this rank are in the machine, for users who bind ranks to cores. */
static void log_places(const struct mdapl_dapl_chan *d)
{
    char line[512];

    if (mdapl_ctx_cfg(d->ctx)->verbose < MDAPL_INFO)
        return;
    for (int i = 0; i < d->rails.n; i++) {
        const struct mdapl_dapl_ia *ia = d->rails.ia[i];

        mdapl_dapl_place_describe((const struct sockaddr *)(const void *)ia->addr, line,
                                  sizeof(line));
        mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_INFO, "IA %s: %s", ia->name, line);
    }
}

/* Makes the registration cache. It keeps registrations if the system reports unmapped memory, and
 * if the knob is on, or auto and a measurement shows that keeping them costs less. */
static void open_regs(struct mdapl_dapl_chan *d)
{
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(d->ctx);
    struct mdapl_dapl_memwatch *watch = NULL;
    int rc = 0;

    if (cfg->reg_cache != MDAPL_REG_CACHE_OFF && cfg->reg_cache_bytes > 0)
        rc = mdapl_dapl_memwatch_open(&watch);
    if (rc)
        mdapl_log(mdapl_ctx_log(d->ctx), MDAPL_INFO, "registrations end with their transfer: this "
                  "system does not report unmapped memory (userfaultfd: %s)", strerror(-rc));
    if (watch && cfg->reg_cache == MDAPL_REG_CACHE_AUTO
        && !mdapl_dapl_regcache_pays_off(d->ctx, &d->rails, watch)) {
        mdapl_dapl_memwatch_close(watch);
        watch = NULL;
    }
    mdapl_dapl_regcache_init(d->regs, &d->rails, mdapl_ctx_stats(d->ctx), watch,
                             (uint64_t)cfg->reg_cache_bytes);
}

static void close_channel(void *state);

static int make_room(struct mdapl_dapl_chan *d)
{
    int rc = fit_limits(d);

    open_regs(d);
    for (int i = 0; i < d->rails.n; i++)
        mdapl_dapl_vbufs_init(&d->vbufs[i], d->rails.ia[i], d->regs,
                              (uint32_t)d->frame_room + MDAPL_FRAME_HDR_BYTES);
    mdapl_pool_init(&d->items, sizeof(struct mdapl_dapl_item), sizeof(void *), 32, 0);
    mdapl_pool_init(&d->reposts, sizeof(struct mdapl_dapl_repost), sizeof(void *), 32, 0);
    mdapl_dapl_rndv_init(d);
    mdapl_dapl_ring_init(d);
    mdapl_dapl_probes_init(d);
    mdapl_list_init(&d->work);
    mdapl_list_init(&d->ack_pending);
    mdapl_list_init(&d->vbuf_waiters);
    mdapl_list_init(&d->closed);
    mdapl_list_init(&d->exposed);
    mdapl_list_init(&d->asked);
    mdapl_timers_init(&d->timers);
    mdapl_dapl_cm_requests_init(&d->requests);
    for (int i = 0; i < d->rails.n; i++)
        mdapl_dapl_rail_init(d->rails.ia[i]);
    if (!rc)
        rc = mdapl_dapl_paths_open(d);
    if (getrandom(&d->incarnation, sizeof(d->incarnation), 0) != sizeof(d->incarnation))
        d->incarnation = (uint32_t)mdapl_ctx_now(d->ctx);
    return rc;
}

/* What holds registrations, frame buffers and events. 0 or -ENOMEM. */
static int make_stores(struct mdapl_dapl_chan *d)
{
    bool events = mdapl_dapl_events_open(d);

    d->regs = calloc(1, sizeof(*d->regs));
    d->vbufs = d->regs ? calloc((size_t)d->rails.n, sizeof(*d->vbufs)) : NULL;
    return d->vbufs && events ? 0 : mdapl_err_set(mdapl_ctx_err(d->ctx), -ENOMEM, "out of memory");
}

static int open_channel(struct mdapl_ctx *ctx, void **state_p)
{
    struct mdapl_dapl_chan *d = calloc(1, sizeof(*d));
    int rc;

    if (!d)
        return mdapl_err_set(mdapl_ctx_err(ctx), -ENOMEM, "out of memory");
    d->ctx = ctx;
    d->stats = mdapl_ctx_stats(ctx);
    d->log = mdapl_ctx_log(ctx);
    mdapl_dapl_rails_init(&d->rails);
    rc = mdapl_dapl_dat_load(&d->dat, mdapl_ctx_err(ctx));
    if (!rc)
        rc = open_rails(d);
    if (!rc)
        rc = mdapl_dapl_rails_start(&d->rails);
    if (!rc)
        rc = make_stores(d);
    if (rc) {
        mdapl_dapl_rails_close(&d->rails);
        free(d->events);
        free(d->vbufs);
        free(d->regs);
        free(d);
        return rc;
    }
    rc = make_room(d);
    if (rc) {
        close_channel(d);
        return rc;
    }
    log_places(d);
    *state_p = d;
    return 0;
}

static int card(void *state, char *buf, size_t len)
{
    return mdapl_dapl_card_put(state, buf, len);
}

static int port_card(void *state, char *buf, size_t len)
{
    return mdapl_dapl_port_card_put(state, buf, len);
}

static int reach(void *state, struct mdapl_group *group, int rank, const char *text,
                 struct mdapl_peer **peer_p)
{
    struct mdapl_dapl_peer *peer;
    int rc = mdapl_dapl_peer_make(state, group, rank, text, &peer);

    if (!rc)
        *peer_p = &peer->base;
    return rc;
}

/* The owner gives the peer up. */
static void give_up(struct mdapl_dapl_peer *peer, int status)
{
    if (peer->dead)
        return;
    mdapl_dapl_cm_close(peer);
    peer->dead = status;
    mdapl_dapl_peer_end(peer, status);
}

static void lost(struct mdapl_peer *base)
{
    give_up(mdapl_dapl_peer_of(base), -ECONNRESET);
}

static int leave(struct mdapl_peer *base)
{
    struct mdapl_dapl_peer *peer = mdapl_dapl_peer_of(base);

    give_up(peer, -ECANCELED);
    if (!mdapl_dapl_cm_ended(peer))
        return 0;
    mdapl_dapl_peer_free(peer);
    return MDAPL_DONE;
}

static size_t eager_max(void *state)
{
    return ((struct mdapl_dapl_chan *)state)->eager_max;
}

static int wire(void *state)
{
    return mdapl_dapl_wireup_run(state);
}

/* -- running ---------------------------------------------------------------------------------- */

static int work(struct mdapl_dapl_chan *d)
{
    struct mdapl_list todo, *l;
    int n = 0;

    /* Peers that are woken meanwhile are handled in the next round. */
    if (mdapl_list_empty(&d->work))
        return 0;
    todo = d->work;
    todo.next->prev = todo.prev->next = &todo;
    mdapl_list_init(&d->work);
    while ((l = mdapl_list_take(&todo))) {
        struct mdapl_dapl_peer *peer = MDAPL_OF(l, struct mdapl_dapl_peer, work);

        if (peer->faulty)
            n += mdapl_dapl_recover(peer);
        if (!peer->dead)         /* frames of a connection that ended move to another one */
            n += mdapl_dapl_peer_progress(peer);
    }
    return n;
}

/* Wakes the peers to which an acknowledgement is due. */
static void wake_ack_pending(struct mdapl_dapl_chan *d)
{
    MDAPL_LIST_EACH(pos, &d->ack_pending) {
        struct mdapl_dapl_peer *peer = MDAPL_OF(pos, struct mdapl_dapl_peer, ack_pending);

        if (mdapl_dapl_rx_ack_due(peer))
            mdapl_dapl_peer_wake(peer);
    }
}

/* Wakes the peers that found no frame buffer. */
static void wake_vbuf_waiters(struct mdapl_dapl_chan *d)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_take(&d->vbuf_waiters)))
        mdapl_dapl_peer_wake(MDAPL_OF(l, struct mdapl_dapl_peer, vbuf_waiters));
}

static int poll(struct mdapl_dapl_chan *d, bool all)
{
    int n = 0;

    for (int i = 0; i < d->rails.n; i++)
        n += mdapl_dapl_evd_poll(d->rails.ia[i], all);
    return n;
}

/* Does this rank connect, or wait for requests of its wiring? */
static bool connecting(const struct mdapl_dapl_chan *d)
{
    return d->n_connecting > 0 || d->wiring;
}

static bool any_vbuf_available(const struct mdapl_dapl_chan *d)
{
    for (int i = 0; i < d->rails.n; i++)
        if (mdapl_dapl_vbufs_for(&d->vbufs[i], MDAPL_VBUF_FRAME) > 0)
            return true;
    return false;
}

/* Timers, buffers and other work that is not part of each round. Returns how many timers fired. */
static int housekeeping(struct mdapl_dapl_chan *d)
{
    int n;

    mdapl_dapl_events_look(d);
    wake_ack_pending(d);
    wake_vbuf_waiters(d);        /* a registration may be free again, for more buffers */
    for (int i = 0; i < d->rails.n; i++)
        mdapl_dapl_rail_look(d, d->rails.ia[i]);
    if (d->paths)
        mdapl_dapl_paths_look(d);
    n = mdapl_timers_run(&d->timers, d->now);
    mdapl_dapl_cm_request(d);
    if (d->probes.on && d->now >= d->probes.at)
        mdapl_dapl_probe_look(d, d->now);
    /* After the timers: what is to follow a connection that ended in this round is judged first. */
    if (!mdapl_list_empty(&d->closed))
        mdapl_dapl_cm_reap(d);
    return n;
}

/* One round of progress: completions, rings, peers with work; with `all` also the queues of
 * connection events, and upkeep. Returns how many things moved. */
static int one_round(struct mdapl_dapl_chan *d, bool all)
{
    int n = poll(d, all);

    /* After the queues, because a software provider places RDMA writes while it is polled. */
    n += mdapl_dapl_ring_poll(d);
    if (all)
        n += housekeeping(d);
    if (!mdapl_list_empty(&d->vbuf_waiters) && any_vbuf_available(d))
        wake_vbuf_waiters(d);
    return n + work(d);
}

/* Does each round poll all queues? While connections are made and for some ms after their last
 * event, so that a peer which does not answer does not slow down the others. */
static bool attentive(const struct mdapl_dapl_chan *d)
{
    return d->wiring || d->draining || (d->n_connecting > 0 && d->now < d->attentive_until);
}

/* Before the first connection nothing can happen but that one is requested, and a look costs system
 * calls: the ranks of one node that share cores look whenever they wake. */
static int look(void *state, uint64_t now)
{
    struct mdapl_dapl_chan *d = state;

    if (!d->used && !attentive(d) && now - d->looked < MDAPL_US(UNUSED_LOOK_US))
        return 0;
    d->now = d->looked = now;
    return one_round(d, true);
}

static int progress(void *state)
{
    struct mdapl_dapl_chan *d = state;

    if (attentive(d))
        return look(d, mdapl_ctx_now(d->ctx));
    d->now = mdapl_ctx_recent(d->ctx);
    return one_round(d, false);
}

static bool has_connections(void *state)
{
    struct mdapl_dapl_chan *d = state;

    return connecting(d) || d->n_connected > 0;
}

/* Could there be work without an event? A frame in a ring makes none, nor does a freed
 * registration, so a sleep has to be short then. */
static bool may_be_unnoticed(const struct mdapl_dapl_chan *d)
{
    return d->n_rings > 0 || !mdapl_list_empty(&d->vbuf_waiters);
}

static void wait(void *state, uint64_t ns)
{
    struct mdapl_dapl_chan *d = state;
    uint64_t next = mdapl_min(mdapl_timers_next(&d->timers), mdapl_dapl_cm_request_due(d));
    uint64_t now = mdapl_ctx_now(d->ctx);

    if (!mdapl_list_empty(&d->ack_pending) && ns > MDAPL_US(mdapl_ctx_cfg(d->ctx)->ack_idle_us))
        ns = MDAPL_US(mdapl_ctx_cfg(d->ctx)->ack_idle_us);
    if (next <= now || !mdapl_list_empty(&d->work))
        return;
    if (d->probes.watched > 0)
        ns = mdapl_min(ns, d->probes.at > now ? d->probes.at - now : 0);
    if (may_be_unnoticed(d) && ns > MDAPL_US(UNNOTIFIED_US))
        ns = MDAPL_US(UNNOTIFIED_US);
    mdapl_dapl_rails_wait(&d->rails, ns < next - now ? ns : next - now);
    d->looked -= MDAPL_US(UNUSED_LOOK_US);       /* a request may have ended the sleep */
}

static void wake(void *state)
{
    struct mdapl_dapl_chan *d = state;

    mdapl_dapl_rails_wake(&d->rails);
}

static size_t drain(void *state)
{
    struct mdapl_dapl_chan *d = state;
    size_t n = 0;

    d->draining = true;
    for (struct mdapl_dapl_peer *p = NULL; (p = mdapl_dapl_peer_next(d, p));)
        n += mdapl_dapl_peer_unfinished(p);
    return n;
}

static bool idle(struct mdapl_peer *base)
{
    struct mdapl_dapl_peer *peer = mdapl_dapl_peer_of(base);

    return peer->dead || mdapl_dapl_peer_idle(peer);
}

static bool settled(struct mdapl_peer *base)
{
    return mdapl_dapl_peer_unfinished(mdapl_dapl_peer_of(base)) == 0;
}

/* -- closing ---------------------------------------------------------------------------------- */

/* Waits until all connections have drained, at most CLOSE_MS; then frees those that have not. */
static void flush_closing(struct mdapl_dapl_chan *d)
{
    uint64_t until = mdapl_ctx_now(d->ctx) + MDAPL_MS(CLOSE_MS);

    struct mdapl_list *l;

    while (!mdapl_dapl_cm_reap(d) && mdapl_ctx_now(d->ctx) < until)
        if (poll(d, true) == 0)
            mdapl_dapl_rails_wait(&d->rails, MDAPL_US(FLUSH_US));
    while ((l = mdapl_list_first(&d->closed)))
        mdapl_dapl_conn_free(MDAPL_OF(l, struct mdapl_dapl_conn, link));
}

static void close_channel(void *state)
{
    struct mdapl_dapl_chan *d = state;
    struct mdapl_dapl_peer *peer, *after;

    d->closing = true;
    for (peer = NULL; (peer = mdapl_dapl_peer_next(d, peer));)
        mdapl_dapl_cm_close(peer);
    for (int i = 0; i < d->rails.n; i++)
        if (!mdapl_dapl_rail_usable(d->rails.ia[i]))
            mdapl_dapl_rail_shut(d->rails.ia[i], true);
    flush_closing(d);
    for (peer = mdapl_dapl_peer_next(d, NULL); peer; peer = after) {
        after = mdapl_dapl_peer_next(d, peer);
        mdapl_dapl_peer_free(peer);
    }
    mdapl_dapl_paths_close(d);
    mdapl_dapl_ring_fini(d);
    mdapl_dapl_probes_fini(d);
    for (int i = 0; i < d->rails.n; i++)
        mdapl_dapl_vbufs_fini(&d->vbufs[i]);
    mdapl_dapl_rma_fini(d);
    mdapl_dapl_regcache_fini(d->regs);
    mdapl_dapl_rails_close(&d->rails);
    mdapl_dapl_rndv_fini(d);
    mdapl_pool_fini(&d->items);
    mdapl_pool_fini(&d->reposts);
    free(d->events);
    free(d->vbufs);
    free(d->regs);
    free(d);
}

static void describe(void *state, char *buf, size_t len)
{
    static const char *const rndv[] = { "rget", "rput", "copy" };
    struct mdapl_dapl_chan *d = state;
    int64_t how = mdapl_ctx_cfg(d->ctx)->rndv;
    char names[MDAPL_MAX_RAILS * DAT_NAME_MAX_LENGTH];
    size_t n;

    mdapl_dapl_rails_names(&d->rails, names, sizeof(names));
    n = (size_t)snprintf(buf, len, "channel dapl: IA %s", names);
    if (how == MDAPL_RNDV_RGET && !d->can_read)
        how = MDAPL_RNDV_RPUT;
    if (n < len)
        n += (size_t)snprintf(buf + n, len - n, ", %d stream%s each, lane sr (%u frames of %zu "
                              "bytes)", d->streams_per_rail, d->streams_per_rail > 1 ? "s" : "",
                              d->sr_window, d->frame_room + MDAPL_FRAME_HDR_BYTES);
    if (n < len && d->rings_left > 0)
        n += (size_t)snprintf(buf + n, len - n, " and ring (%u of %u)", d->ring_slots,
                              d->ring_slot_bytes);
    if (n < len)
        snprintf(buf + n, len - n, ", rendezvous %s%s%s", rndv[how],
                 d->regs->watch ? ", registrations are kept" : "",
                 d->paths && mdapl_dapl_rails_ports(&d->rails) > 1 ? ", alternate paths" : "");
}

/* -- the channel's table of calls ------------------------------------------------------------- */

const struct mdapl_channel mdapl_dapl_channel = {
    .name = "dapl",
    .open = open_channel,        /* ia.c: the adapter and its objects */
    .card = card,                /* peer.c */
    .port_card = port_card,      /* peer.c */
    .reach = reach,              /* peer.c */
    .locate = mdapl_dapl_peer_locate, /* peer.c */
    .leave = leave,              /* cm.c, peer.c */
    .lost = lost,                /* the same */
    .wire = wire,                /* wireup.c, cm.c */
    .eager_max = eager_max,
    .send = mdapl_dapl_tx_send,  /* tx.c, ring.c, rndv_tx.c */
    .expose = mdapl_dapl_rma_expose, /* rma.c */
    .put = mdapl_dapl_rma_put,
    .get = mdapl_dapl_rma_get,
    .progress = progress,        /* evd.c, then rx.c, rndv_rx.c */
    .look = look,                /* ... and cm.c */
    .has_connections = has_connections,
    .wait = wait,
    .wake = wake,
    .drain = drain,
    .idle = idle,
    .settled = settled,
    .close = close_channel,
    .describe = describe,
};
