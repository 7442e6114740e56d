/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <string.h>

/*
 * Link emulation and fault injection. Both are off by default and then cost a comparison.
 *
 * Link emulation: a frame is transmitted `latency`, that of its port, and up to `jitter` more,
 * after it was posted; a connection transmits at most `rate` bytes per second, and all connections
 * of a port together at most the rate of the port. Frames keep their order.
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

uint64_t softdat_delay_draw_due(struct softdat_ia *ia, uint8_t port)
{
    const struct softdat_config *cfg = &ia->cfg;
    uint64_t us = cfg->latency_us + cfg->port_latency_us[port];

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

/* Makes the idle time of a link, but the last CATCH_UP_NS, one that has not been used. */
static void catch_up(uint64_t *free_at, uint64_t now)
{
    if (*free_at + CATCH_UP_NS < now)
        *free_at = now - CATCH_UP_NS;
}

static uint64_t ns_of(size_t n, uint64_t rate)
{
    return n * UINT64_C(1000000000) / rate;
}

/* The bytes of the current frame that are to be transmitted next. */
static size_t next_burst(const struct softdat_conn *c)
{
    size_t n = 0;

    for (int i = c->cur_at; i < c->cur_n && n < BURST; i++)
        n += c->cur[i].iov_len;
    return n < BURST ? n : BURST;
}

/* The connections of a port get its time in the order in which they ask for it: a connection that
 * has to wait has been granted its part already. */
static void ask_port(struct softdat_conn *c, uint64_t now)
{
    struct softdat_port *p = &c->ia->cfg.port[c->port];

    if (c->grant > 0)
        return;
    catch_up(&p->free_at, now);
    c->grant = (uint16_t)next_burst(c);
    if (c->rate_free_at < p->free_at)
        c->rate_free_at = p->free_at;
    p->free_at += ns_of(c->grant, c->ia->cfg.port_rate[c->port]);
}

size_t softdat_rate_limit(struct softdat_conn *c)
{
    const struct softdat_config *cfg = &c->ia->cfg;
    uint64_t now = softdat_now(), port_rate = cfg->port_rate[c->port];

    if (c->cur_due > now)
        return defer(c, c->cur_due);
    if (port_rate)
        ask_port(c, now);
    if (c->rate_free_at > now)
        return defer(c, c->rate_free_at);
    catch_up(&c->rate_free_at, now);
    return port_rate ? c->grant : cfg->rate ? (size_t)BURST : SIZE_MAX;
}

void softdat_rate_charge_limits(struct softdat_conn *c, size_t n)
{
    if (c->ia->cfg.rate)
        c->rate_free_at += ns_of(n, c->ia->cfg.rate);
    c->grant = n < c->grant ? (uint16_t)(c->grant - n) : 0;
}

static void resume(struct softdat_conn *c)
{
    if (c->uses_rings)
        softdat_doorbell(c);     /* it may be what could not be sent (shared.c) */
    softdat_tx_progress(c);
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
            resume(c);
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

/* Is it time for a fault, of which there is one in so many milliseconds? The first one comes within
 * that time after the first request, as if there had been others before; between two are from half
 * of it to one and a half. The clock makes it another time in each process. */
static bool is_due(struct softdat_ia *ia, enum softdat_fault what, uint64_t ms)
{
    uint64_t now = softdat_now(), span = ms * 1000000, *at = &ia->fault_at[what];
    bool due = *at > 0 && now >= *at;

    if (due || *at == 0)
        *at = now + (due ? span / 2 : 0) + (draw(ia) ^ now) % span;
    return due;
}

bool softdat_fault_draw(struct softdat_ia *ia, enum softdat_fault what)
{
    const struct softdat_often *often = &ia->cfg.often[what];

    if (ia->count[SOFTDAT_N_FAULTS] >= ia->cfg.max_faults
        || (often->by_time ? !is_due(ia, what, often->n) : draw(ia) % often->n))
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
