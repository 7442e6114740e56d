/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <string.h>

/*
 * Link emulation and fault injection. Both are off by default and then cost a comparison.
 *
 * Link emulation: a frame is transmitted `latency`, and up to `jitter` more, after it was posted,
 * and a connection transmits at most `rate` bytes per second. Frames keep their order.
 *
 * Fault injection draws from a generator that starts with `seed`: the same calls in the same order
 * get the same faults. A fault is carried out at the end of a round of progress
 * (softdat_fault_execute), when no function up the stack uses the connection.
 */

enum {
    BURST = 16384,               /* bytes transmitted at once under a rate limit */
    CATCH_UP_NS = 200000,        /* idle time of the link that may be used later */
};

/* -- link emulation --------------------------------------------------------------------------- */

static uint64_t draw(struct softdat_ia *ia)
{
    uint64_t z = ia->random += UINT64_C(0x9e3779b97f4a7c15);     /* splitmix64 */

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t softdat_delay_draw_due(struct softdat_ia *ia)
{
    const struct softdat_config *cfg = &ia->cfg;
    uint64_t us = cfg->latency_us;

    if (cfg->jitter_us)
        us += draw(ia) % (cfg->jitter_us + 1);
    return softdat_now() + us * 1000;
}

void softdat_delay_until(struct softdat_conn *c, uint64_t when)
{
    c->resume_at = when;
    softdat_round_complete(c->ia);
    softdat_helper_wake(c->ia);  /* it may sleep beyond that time */
    if (softdat_list_empty(&c->delayed))
        softdat_list_append(&c->ia->delayed, &c->delayed);
}

static size_t defer(struct softdat_conn *c, uint64_t when)
{
    softdat_delay_until(c, when);
    return 0;
}

size_t softdat_rate_limit(struct softdat_conn *c)
{
    uint64_t rate = c->ia->cfg.rate, now = softdat_now();

    if (c->cur_due > now)
        return defer(c, c->cur_due);
    if (!rate)
        return SIZE_MAX;
    if (c->rate_free_at > now)
        return defer(c, c->rate_free_at);
    if (c->rate_free_at + CATCH_UP_NS < now)
        c->rate_free_at = now - CATCH_UP_NS;
    return BURST;
}

void softdat_delay_resume(struct softdat_ia *ia)
{
    uint64_t now = softdat_now();
    struct softdat_list *l = ia->delayed.next;

    while (l != &ia->delayed) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, delayed);

        l = l->next;
        if (c->resume_at > now)
            continue;
        softdat_list_remove(&c->delayed);
        if (c->phase == SOFTDAT_CONNECTING)
            softdat_connect_retry(c);
        else if (c->migrating && c->sock.fd < 0)
            softdat_migrate_retry(c);
        else
            softdat_tx_progress(c);
    }
}

uint64_t softdat_delay_next(const struct softdat_ia *ia)
{
    uint64_t next = UINT64_MAX;

    for (struct softdat_list *l = ia->delayed.next; l != &ia->delayed; l = l->next)
        if (SOFTDAT_OF(l, struct softdat_conn, delayed)->resume_at < next)
            next = SOFTDAT_OF(l, struct softdat_conn, delayed)->resume_at;
    return next;
}

/* -- fault injection -------------------------------------------------------------------------- */

bool softdat_fault_draw(struct softdat_ia *ia, enum softdat_fault what)
{
    if (ia->count[SOFTDAT_N_FAULTS] >= ia->cfg.max_faults || draw(ia) % ia->cfg.one_in[what])
        return false;
    ia->count[SOFTDAT_N_FAULTS]++;
    return true;
}

void softdat_fault_break_later(struct softdat_conn *c)
{
    if (softdat_list_empty(&c->to_break))
        softdat_list_append(&c->ia->to_break, &c->to_break);
    softdat_round_complete(c->ia);
    softdat_helper_wake(c->ia);
}

void softdat_fault_fail_request(struct softdat_conn *c, struct softdat_dto *d,
                                DAT_DTO_COMPLETION_STATUS status)
{
    d->state = SOFTDAT_DTO_DONE;
    d->status = status;
    c->request_failed = true;
    softdat_fault_break_later(c);
}

void softdat_fault_on_request(struct softdat_conn *c)
{
    struct softdat_ia *ia = c->ia;

    if (softdat_fault_injected(ia, SOFTDAT_FAULT_BREAK))
        softdat_fault_break_later(c);
    if (ia->cfg.fatal_after && ++ia->requests == ia->cfg.fatal_after) {
        ia->fatal = true;
        softdat_round_complete(ia);
        softdat_helper_wake(ia);
    }
}

/* Fails the whole adapter: breaks every connection and posts the asynchronous event. */
static void fail(struct softdat_ia *ia)
{
    DAT_EVENT event;

    ia->fatal = false;
    ia->failed = true;
    while (!softdat_list_empty(&ia->conns))
        softdat_conn_lost(SOFTDAT_OF(ia->conns.next, struct softdat_conn, link));
    memset(&event, 0, sizeof(event));
    event.event_number = DAT_ASYNC_ERROR_IA_CATASTROPHIC;
    event.event_data.asynch_error_event_data.dat_handle = ia;
    event.event_data.asynch_error_event_data.reason = DAT_IA_CATASTROPHIC_ERROR;
    softdat_evd_post(ia->async_evd, &event);
}

void softdat_fault_execute(struct softdat_ia *ia)
{
    while (!softdat_list_empty(&ia->to_break)) {
        struct softdat_conn *c = SOFTDAT_OF(ia->to_break.next, struct softdat_conn, to_break);

        softdat_list_remove(&c->to_break);
        if (c->request_failed)
            softdat_conn_lost(c);
        else
            softdat_conn_break(c, DAT_DTO_ERR_TRANSPORT);
    }
    if (ia->fatal)
        fail(ia);
}
