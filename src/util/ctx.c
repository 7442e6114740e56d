/* SPDX-License-Identifier: MIT */
#include "ctx.h"

#include "inbox.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IDLE_ROUNDS = 1000 };     /* empty rounds after which one of several is polled rarely */

/* -- opening and closing ---------------------------------------------------------------------- */

int mdapl_group_add(struct mdapl_ctx *ctx, const struct mdapl_group *args,
                    struct mdapl_group **group_p)
{
    int rc = mdapl_groups_add(&ctx->groups, args, group_p);

    if (rc)
        return rc;
    (*group_p)->ctx = ctx;
    if (!(*group_p)->owner)
        (*group_p)->owner = ctx->owner;
    for (int i = 0; i < ctx->n_channels && !args->self.group; i++)
        if (ctx->channel[i].table->join)
            ctx->channel[i].table->join(ctx->channel[i].state, *group_p);
    return 0;
}

static struct mdapl_ctx *ctx_make(const struct mdapl_ctx_args *args)
{
    struct mdapl_ctx *ctx = calloc(1, sizeof(*ctx));

    if (!ctx)
        return NULL;
    ctx->up = args->up;
    ctx->owner = args->owner;
    ctx->barrier = args->barrier;
    mdapl_list_init(&ctx->paused);
    if (mdapl_group_add(ctx, &args->job, &ctx->job)) {
        free(ctx);
        return NULL;
    }
    ctx->cfg = *args->cfg;
    ctx->clock = args->clock.now ? args->clock : mdapl_clock_system();
    mdapl_rounds_init(ctx);
    ctx->log.level = args->cfg->verbose;
    ctx->log.rank = args->job.rank;
    if (gethostname(ctx->log.host, sizeof(ctx->log.host) - 1))
        snprintf(ctx->log.host, sizeof(ctx->log.host), "?");
    return ctx;
}

static int open_one(struct mdapl_ctx *ctx, const struct mdapl_channel *table)
{
    struct mdapl_open_channel *c = &ctx->channel[ctx->n_channels];
    int rc = table->open(ctx, &c->state);

    if (rc == -ENOTSUP)
        mdapl_log(&ctx->log, MDAPL_INFO, "%s", ctx->err.text);
    if (rc)
        return rc;
    c->table = table;
    /* The first one is that of this node's ranks; the others have no connection for a while. */
    c->idle_rounds = ctx->n_channels > 0 ? IDLE_ROUNDS + 1 : 0;
    ctx->n_channels++;
    return 0;
}

/* The channel of this name; NULL: there is none, or it is open already. */
static const struct mdapl_channel *find_channel(const struct mdapl_ctx *ctx,
                                                const struct mdapl_channel *const *list,
                                                const char *name)
{
    for (int i = 0; i < ctx->n_channels; i++)
        if (strcmp(ctx->channel[i].table->name, name) == 0)
            return NULL;
    while (*list && strcmp((*list)->name, name) != 0)
        list++;
    return *list;
}

/* The error when no channel could be opened; rc is that of the last one. */
static int none_opens(struct mdapl_ctx *ctx, int rc)
{
    char why[sizeof(ctx->err.text)];

    if (rc != -ENOTSUP)
        return rc;
    memcpy(why, ctx->err.text, sizeof(why));
    return mdapl_err_set(&ctx->err, rc, "%.500s, and MPIR_CVAR_DAPL_CHANNELS=%.128s has no other "
                         "channel. Add dapl to it", why, ctx->cfg.channels);
}

static int open_named(struct mdapl_ctx *ctx, const struct mdapl_channel *const *list)
{
    char names[sizeof(ctx->cfg.channels)], *save = NULL;
    int rc = 0;

    memcpy(names, ctx->cfg.channels, sizeof(names));
    for (char *name = strtok_r(names, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        const struct mdapl_channel *table = find_channel(ctx, list, name);

        if (!table)
            return mdapl_err_set(&ctx->err, -EINVAL, "MPIR_CVAR_DAPL_CHANNELS=%s is not possible: "
                                 "it must be different names with commas between them, of shm and "
                                 "dapl", ctx->cfg.channels);
        rc = open_one(ctx, table);
        if (rc && rc != -ENOTSUP)
            return rc;
    }
    return ctx->n_channels > 0 ? 0 : none_opens(ctx, rc);
}

static int open_all(struct mdapl_ctx *ctx, const struct mdapl_channel *const *list)
{
    int rc = 0;

    for (; *list; list++) {
        rc = open_one(ctx, *list);
        if (rc && rc != -ENOTSUP)
            return rc;
    }
    return ctx->n_channels > 0 ? 0 : rc;
}

int mdapl_ctx_open(const struct mdapl_ctx_args *args, struct mdapl_ctx **ctx_p,
                   struct mdapl_err *err)
{
    struct mdapl_ctx *ctx = ctx_make(args);
    int rc;

    if (!ctx)
        return mdapl_err_set(err, -ENOMEM, "out of memory");
    rc = *ctx->cfg.channels ? open_named(ctx, args->channels) : open_all(ctx, args->channels);
    if (rc) {
        *err = ctx->err;
        mdapl_ctx_close(ctx);
        return rc;
    }
    ctx->silent_max = ctx->n_channels > 1 ? IDLE_ROUNDS : UINT_MAX;
    *ctx_p = ctx;
    return 0;
}

void mdapl_ctx_close(struct mdapl_ctx *ctx)
{
    for (int i = ctx->n_channels; i-- > 0;)
        ctx->channel[i].table->close(ctx->channel[i].state);
    mdapl_groups_fini(&ctx->groups);
    free(ctx);
}

static int write_card(struct mdapl_ctx *ctx, bool port, char *buf, size_t len)
{
    size_t at = 0;

    for (int i = 0; i < ctx->n_channels; i++) {
        const struct mdapl_channel *table = ctx->channel[i].table;
        int (*card)(void *, char *, size_t) = port && table->port_card ? table->port_card
                                                                       : table->card;
        int n = at + 1 < len ? card(ctx->channel[i].state, buf + at + !!i, len - at - !!i)
                             : -ENOSPC;

        if (n < 0)
            return n;
        if (i)
            buf[at++] = '!';
        at += (size_t)n;
    }
    return (int)at;
}

int mdapl_ctx_card(struct mdapl_ctx *ctx, char *buf, size_t len)
{
    return write_card(ctx, false, buf, len);
}

int mdapl_port_card(struct mdapl_ctx *ctx, char *buf, size_t len)
{
    return write_card(ctx, true, buf, len);
}

void mdapl_ctx_set_job(struct mdapl_ctx *ctx, uint32_t id, const uint8_t key[MDAPL_KEY_BYTES])
{
    ctx->job->id = id;
    memcpy(ctx->job->key, key, MDAPL_KEY_BYTES);
}

size_t mdapl_ctx_eager_max(struct mdapl_ctx *ctx)
{
    size_t least = SIZE_MAX;

    for (int i = 0; i < ctx->n_channels; i++) {
        size_t n = ctx->channel[i].table->eager_max(ctx->channel[i].state);

        if (n < least)
            least = n;
    }
    return least;
}

size_t mdapl_peer_eager_max(const struct mdapl_peer *peer)
{
    const struct mdapl_ctx *ctx = peer->ctx;
    int i = 0;

    while (ctx->channel[i].table != peer->channel)
        i++;
    return peer->channel->eager_max(ctx->channel[i].state);
}

void mdapl_probe(struct mdapl_ctx *ctx)
{
    for (int i = 0; i < ctx->n_channels; i++)
        if (ctx->channel[i].table->probe)
            ctx->channel[i].table->probe(ctx->channel[i].state);
}

int mdapl_wire(struct mdapl_ctx *ctx)
{
    int all = MDAPL_DONE;

    for (int i = 0; i < ctx->n_channels; i++) {
        int rc = ctx->channel[i].table->wire(ctx->channel[i].state);

        if (rc < 0)
            return rc;
        if (rc != MDAPL_DONE)
            all = 0;
    }
    return all;
}

void mdapl_group_close(struct mdapl_group *group)
{
    group->closed = true;
}

int mdapl_group_remove(struct mdapl_group *group)
{
    struct mdapl_ctx *ctx = group->ctx;
    int left = 0;

    mdapl_group_close(group);
    for (int i = 0; i < group->size; i++)
        if (group->peers[i])
            left += group->peers[i]->channel->leave(group->peers[i]) != MDAPL_DONE;
    if (left > 0)
        return 0;
    for (int i = 0; i < ctx->n_channels; i++)
        if (ctx->channel[i].table->part)
            ctx->channel[i].table->part(ctx->channel[i].state, group);
    mdapl_groups_remove(&ctx->groups, group);
    return MDAPL_DONE;
}

int mdapl_port_open(struct mdapl_ctx *ctx, const struct mdapl_group *visitors)
{
    return mdapl_groups_open_port(&ctx->groups, visitors);
}

void mdapl_port_close(struct mdapl_ctx *ctx, uint32_t id)
{
    mdapl_groups_close_port(&ctx->groups, id);
}

int mdapl_peer_locate(struct mdapl_peer *peer, const char *card)
{
    return peer->channel->locate ? peer->channel->locate(peer, card) : 0;
}

void mdapl_peer_lost(struct mdapl_peer *peer)
{
    if (peer->channel->lost)
        peer->channel->lost(peer);
}

int mdapl_peer_remove(struct mdapl_peer *peer)
{
    return peer->channel->leave(peer);
}

/* The first channel that reaches the rank makes its peer; sure: of those whose ends always
 * agree. */
static int reach(struct mdapl_group *group, int rank, const char *card, bool sure)
{
    const struct mdapl_ctx *ctx = group->ctx;
    int rc = -EHOSTUNREACH;

    for (int i = 0; rc && i < ctx->n_channels; i++) {
        const struct mdapl_channel *table = ctx->channel[i].table;

        if ((!sure || !table->probe) && (!group->visitor || group->visitor == table))
            rc = table->reach(ctx->channel[i].state, group, rank, card, &group->peers[rank]);
    }
    return rc;
}

int mdapl_group_peer(struct mdapl_group *group, int rank, struct mdapl_peer **peer_p)
{
    struct mdapl_ctx *ctx = group->ctx;
    char card[MDAPL_CARD_MAX];
    int rc;

    if (rank < 0 || rank >= group->size || (group == ctx->job && rank == group->rank))
        return -EINVAL;
    if (!group->peers[rank]) {
        if (group->closed)
            return -ESHUTDOWN;
        rc = mdapl_group_card(group, rank, card, sizeof(card));
        if (rc)
            return rc;
        /* The ends of a visit cannot agree on a channel before it. */
        rc = mdapl_group_is_port(group) ? reach(group, rank, card, true) : -EHOSTUNREACH;
        if (rc)
            rc = reach(group, rank, card, false);
        if (rc)
            return rc;
    }
    *peer_p = group->peers[rank];
    return 0;
}

bool mdapl_ctx_barrier(const struct mdapl_ctx *ctx)
{
    return ctx->barrier;
}

int mdapl_barrier_enter(struct mdapl_ctx *ctx, const struct mdapl_reduce *r)
{
    int rc = -ENOTSUP;

    for (int i = 0; rc == -ENOTSUP && i < ctx->n_channels; i++)
        if (ctx->channel[i].table->enter)
            rc = ctx->channel[i].table->enter(ctx->channel[i].state, r);
    return rc;
}

bool mdapl_barrier_passed(const struct mdapl_ctx *ctx)
{
    bool passed = true;

    for (int i = 0; i < ctx->n_channels; i++)
        if (ctx->channel[i].table->passed)
            passed = passed && ctx->channel[i].table->passed(ctx->channel[i].state);
    return passed;
}

const void *mdapl_barrier_result(const struct mdapl_ctx *ctx)
{
    const void *result = NULL;

    for (int i = 0; !result && i < ctx->n_channels; i++)
        if (ctx->channel[i].table->result)
            result = ctx->channel[i].table->result(ctx->channel[i].state);
    return result;
}

size_t mdapl_drain(struct mdapl_ctx *ctx)
{
    size_t n = 0;

    for (int i = 0; i < ctx->n_channels; i++)
        n += ctx->channel[i].table->drain(ctx->channel[i].state);
    return n;
}

/* -- the verbs -------------------------------------------------------------------------------- */

int mdapl_send(struct mdapl_peer *peer, const struct mdapl_msg *msg, struct mdapl_op *op)
{
    return peer->channel->send(peer, msg, op);
}

int mdapl_rx_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    return rx->ops->read(rx, iov, n, op);
}

void mdapl_resume(struct mdapl_peer *peer)
{
    if (peer->paused)
        mdapl_inbox_resume(peer->paused);
}

void mdapl_resume_all(struct mdapl_ctx *ctx)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_first(&ctx->paused)))
        mdapl_inbox_resume(MDAPL_OF(l, struct mdapl_inbox, link));
}

void mdapl_rx_drop(struct mdapl_rx *rx)
{
    rx->ops->drop(rx);
}

int mdapl_expose(struct mdapl_ctx *ctx, void *base, size_t len, struct mdapl_exposed **e_p)
{
    for (int i = 0; i < ctx->n_channels; i++)
        if (ctx->channel[i].table->expose)
            return ctx->channel[i].table->expose(ctx->channel[i].state, base, len, e_p);
    return -ENOTSUP;
}

bool mdapl_peer_idle(struct mdapl_peer *peer)
{
    return peer->channel->idle(peer);
}

bool mdapl_peer_settled(struct mdapl_peer *peer)
{
    return peer->channel->settled(peer);
}

void mdapl_ctx_describe(struct mdapl_ctx *ctx, char *buf, size_t len)
{
    size_t at = 0;

    for (int i = 0; i < ctx->n_channels && at < len; i++) {
        if (i)
            at += (size_t)snprintf(buf + at, len - at, "; ");
        ctx->channel[i].table->describe(ctx->channel[i].state, buf + at, len - at);
        at += strlen(buf + at);
    }
}

/* -- properties, for channels and the owner --------------------------------------------------- */

struct mdapl_group *mdapl_ctx_job(struct mdapl_ctx *ctx)
{
    return ctx->job;
}

struct mdapl_group *mdapl_peer_group(const struct mdapl_peer *peer)
{
    return peer->ctx->groups.at[peer->group];
}

struct mdapl_group *mdapl_group_find(struct mdapl_ctx *ctx, uint32_t id)
{
    return mdapl_groups_find(&ctx->groups, id);
}

struct mdapl_name mdapl_group_self(const struct mdapl_group *group)
{
    const struct mdapl_group *job = group->self.group ? NULL : group->ctx->job;

    return job ? (struct mdapl_name){ job->id, job->rank } : group->self;
}

const struct mdapl_port *mdapl_port_next(const struct mdapl_ctx *ctx,
                                         const struct mdapl_port *prev)
{
    return prev ? prev->next : ctx->groups.ports;
}

struct mdapl_group mdapl_port_visitor(const struct mdapl_port *port, uint32_t id,
                                      const struct mdapl_channel *channel)
{
    struct mdapl_group visitor = port->visitors;

    visitor.id = id;
    visitor.self.group ^= id;
    visitor.visitor = channel;
    return visitor;
}

int mdapl_group_card(const struct mdapl_group *group, int rank, char *buf, size_t len)
{
    return group->card(group->owner, rank, buf, len);
}

bool mdapl_group_near(const struct mdapl_group *group, int rank)
{
    return !group->near || group->near(group->owner, rank);
}

struct mdapl_peer *mdapl_peer_next(struct mdapl_ctx *ctx, const struct mdapl_channel *channel,
                                   const struct mdapl_peer *prev)
{
    return mdapl_groups_next_peer(&ctx->groups, channel, prev);
}

void mdapl_peer_gone(struct mdapl_peer *peer)
{
    struct mdapl_group *group = mdapl_peer_group(peer);

    if (group->peers[peer->rank] == peer)
        group->peers[peer->rank] = NULL;
}

int mdapl_ctx_tune(struct mdapl_ctx *ctx, const char *knob, const char *value,
                   struct mdapl_err *err)
{
    return mdapl_cfg_set(&ctx->cfg, knob, value, err);
}

const struct mdapl_cfg *mdapl_ctx_cfg(const struct mdapl_ctx *ctx)
{
    return &ctx->cfg;
}

struct mdapl_stats *mdapl_ctx_stats(struct mdapl_ctx *ctx)
{
    return &ctx->stats;
}

uint64_t mdapl_ctx_now(const struct mdapl_ctx *ctx)
{
    return mdapl_clock_now(&ctx->clock);
}

uint64_t mdapl_ctx_recent(const struct mdapl_ctx *ctx)
{
    return ctx->clock_read;
}

struct mdapl_log *mdapl_ctx_log(struct mdapl_ctx *ctx)
{
    return &ctx->log;
}

struct mdapl_err *mdapl_ctx_err(struct mdapl_ctx *ctx)
{
    return &ctx->err;
}

struct mdapl_list *mdapl_ctx_paused(struct mdapl_ctx *ctx)
{
    return &ctx->paused;
}

const char *mdapl_ctx_host(const struct mdapl_ctx *ctx)
{
    return ctx->log.host;
}

bool mdapl_ctx_alone(const struct mdapl_ctx *ctx)
{
    return ctx->n_channels == 1;
}

enum mdapl_next mdapl_up_msg(struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    struct mdapl_ctx *ctx = peer->ctx;

    ctx->stats.rx_msgs++;
    ctx->stats.rx_bytes += m->len;
    return ctx->up->msg(ctx->owner, peer, m);
}

void mdapl_up_fault(struct mdapl_peer *peer, int status, const char *why)
{
    peer->ctx->up->fault(peer->ctx->owner, peer, status, why);
}
