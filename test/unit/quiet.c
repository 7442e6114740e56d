/* SPDX-License-Identifier: MIT */
#include "quiet.h"

#include <errno.h>
#include <stdio.h>

static int quiet_open(struct mdapl_ctx *ctx, void **state_p)
{
    *state_p = ctx;
    return 0;
}

static int quiet_card(void *state, char *buf, size_t len)
{
    (void)state;
    return snprintf(buf, len, "quiet");
}

static int quiet_reach(void *state, struct mdapl_group *group, int rank, const char *card,
                       struct mdapl_peer **peer_p)
{
    (void)state, (void)group, (void)rank, (void)card, (void)peer_p;
    return -EHOSTUNREACH;
}

static int quiet_wire(void *state)
{
    (void)state;
    return MDAPL_DONE;
}

static int quiet_progress(void *state)
{
    (void)state;
    return 0;
}

static bool quiet_has_connections(void *state)
{
    (void)state;
    return true;
}

static size_t quiet_zero(void *state)
{
    (void)state;
    return 0;
}

static size_t quiet_eager_max(void *state)
{
    (void)state;
    return 1024;
}

static void quiet_close(void *state)
{
    (void)state;
}

const struct mdapl_channel quiet_channel = {
    .name = "quiet", .open = quiet_open, .card = quiet_card, .reach = quiet_reach,
    .wire = quiet_wire, .eager_max = quiet_eager_max, .progress = quiet_progress,
    .has_connections = quiet_has_connections, .drain = quiet_zero, .close = quiet_close,
};
