/* SPDX-License-Identifier: MIT */
/* Rounds of progress in the channels of a context, and waiting for them. */
#include "ctx.h"

#include "min.h"

enum {
    STRIDE = 16,                 /* rounds between two readings of the clock, at most ... */
    STRIDE_LONG = 64,            /* ... where a reading takes long */
    LOOK_US = 100,               /* time between two calls of a channel's look(), at most ... */
    LOOK_STRIDES = 32,           /* ... or so many readings of the clock */
    CLOCK_SHARE = 256,           /* a reading of the clock takes this part of that time, at most */
    LOOK_LONG_US = 2000,         /* that time where a reading takes long or a core is shared */
    WEIGH_LOOKS = 8,             /* looks between two measurements of a reading */
    SHARED_SLEEP_US = 100,       /* longest sleep in one channel while another has connections */
};

static int count_idle(struct mdapl_open_channel *c, int moved)
{
    c->idle_rounds = moved > 0 ? 0 : c->idle_rounds + 1;
    return moved;
}

static int poll_one(struct mdapl_open_channel *c)
{
    return count_idle(c, c->table->progress(c->state));
}

static void set_look(struct mdapl_ctx *ctx)
{
    ctx->look_ns = mdapl_max(ctx->look_least_ns, CLOCK_SHARE * ctx->clock_ns);
}

void mdapl_ctx_share_core(struct mdapl_ctx *ctx, int processes)
{
    ctx->look_least_ns = mdapl_min(MDAPL_US(LOOK_US) * (uint64_t)processes, MDAPL_US(LOOK_LONG_US));
    set_look(ctx);
}

/* A reading of the clock is a system call on some hosts, and takes as long there as a round. So its
 * part of the time between two looks is limited; now: it has been read just before. */
static void weigh_clock(struct mdapl_ctx *ctx, uint64_t now)
{
    uint64_t most = MDAPL_US(LOOK_LONG_US) / CLOCK_SHARE;
    uint64_t took = mdapl_min(mdapl_ctx_now(ctx) - now, most);

    ctx->clock_ns = (3 * ctx->clock_ns + took) / 4;
    set_look(ctx);
}

/* Calls each channel's look(). */
static int look(struct mdapl_ctx *ctx, uint64_t now)
{
    int n = 0;

    ctx->looked = now;
    ctx->strides = 0;
    if (ctx->looks++ % WEIGH_LOOKS == 0)
        weigh_clock(ctx, now);
    if (ctx->up && ctx->up->look)
        ctx->up->look(ctx->owner);
    for (int i = 0; i < ctx->n_channels; i++) {
        struct mdapl_open_channel *c = &ctx->channel[i];

        n += c->table->look ? count_idle(c, c->table->look(c->state, now)) : poll_one(c);
    }
    return n;
}

void mdapl_rounds_init(struct mdapl_ctx *ctx)
{
    ctx->until_clock = ctx->stride = 1;
    mdapl_ctx_share_core(ctx, 1);
}

/* Rounds until the next reading of the clock: as many as are made in look_ns when they last as long
 * as the last ones, which took `passed` ns together. */
static unsigned next_stride(const struct mdapl_ctx *ctx, uint64_t passed)
{
    bool dear = CLOCK_SHARE * ctx->clock_ns > MDAPL_US(LOOK_US);
    uint64_t last = ctx->stride, most = mdapl_min(2 * last, dear ? STRIDE_LONG : STRIDE);
    uint64_t paced = passed > 0 ? last * ctx->look_ns / passed : most;

    return (unsigned)mdapl_max(mdapl_min(paced, most), 1);
}

/*
 * A round that reads the clock. If the program polls rarely each round is one, so that no timer
 * depends on a number of calls; if it spins, every 16th or 64th. These rounds also poll idle
 * channels that have connections; channels without connections are polled when look() is due.
 */
static int round_with_clock(struct mdapl_ctx *ctx)
{
    uint64_t now = mdapl_ctx_now(ctx);
    int n = 0;

    ctx->stride = next_stride(ctx, now - ctx->clock_read);
    ctx->until_clock = ctx->stride;
    ctx->clock_read = now;
    if (now - ctx->looked >= ctx->look_ns || ++ctx->strides >= LOOK_STRIDES)
        return look(ctx, now);
    for (int i = 0; i < ctx->n_channels; i++) {
        struct mdapl_open_channel *c = &ctx->channel[i];

        if (c->idle_rounds <= ctx->silent_max || c->table->has_connections(c->state))
            n += poll_one(c);
    }
    return n;
}

int mdapl_progress(struct mdapl_ctx *ctx)
{
    int n = 0;

    if (--ctx->until_clock == 0)
        return round_with_clock(ctx);
    for (int i = 0; i < ctx->n_channels; i++)
        if (ctx->channel[i].idle_rounds <= ctx->silent_max)
            n += poll_one(&ctx->channel[i]);
    return n;
}

/* The next round calls look(): a new connection or a timer may have ended the sleep. */
static void look_next(struct mdapl_ctx *ctx)
{
    ctx->until_clock = 1;
    ctx->strides = LOOK_STRIDES;
}

bool mdapl_ctx_threaded(const struct mdapl_ctx *ctx)
{
    return ctx->up && ctx->up->sleep_begin;
}

void mdapl_ctx_sleep_begin(struct mdapl_ctx *ctx)
{
    if (mdapl_ctx_threaded(ctx))
        ctx->up->sleep_begin(ctx->owner);
}

void mdapl_ctx_sleep_end(struct mdapl_ctx *ctx)
{
    if (mdapl_ctx_threaded(ctx))
        ctx->up->sleep_end(ctx->owner);
}

void mdapl_wake(struct mdapl_ctx *ctx)
{
    ctx->woken = true;
    for (int i = 0; i < ctx->n_channels; i++)
        ctx->channel[i].table->wake(ctx->channel[i].state);
}

void mdapl_wait(struct mdapl_ctx *ctx, uint64_t ns)
{
    int connected = 0;

    ctx->woken = false;
    look_next(ctx);
    for (int i = 0; i < ctx->n_channels; i++)
        connected += ctx->channel[i].table->has_connections(ctx->channel[i].state);
    /* A sleep in one channel does not end with an event of another, so it is short. */
    if (connected > 1 && ns > MDAPL_US(SHARED_SLEEP_US))
        ns = MDAPL_US(SHARED_SLEEP_US);
    for (int i = 0; i < ctx->n_channels && !ctx->woken; i++) {
        struct mdapl_open_channel *c = &ctx->channel[i];

        if (connected == 0 ? i == 0 : c->table->has_connections(c->state))
            c->table->wait(c->state, ns);
    }
}
