/* SPDX-License-Identifier: MIT */
/*
 * The link below a connection is replaced while the connection stands: every request completes
 * once and in order, every send arrives once, an atomic operation is executed once. The former link
 * stops after each number of bytes, in each direction; so does the new one while it is being made.
 * The IA ports1 has two ports and a long `retry`.
 */
#include "cuts.h"
#include "mixed.h"

#include <stdlib.h>
#include <string.h>

/* -- connecting, migrating, disconnecting ----------------------------------------------------- */

static void connect_new(struct world *w)
{
    cuts_reset();
    connect_pair(w);
}

static void migrate(struct world *w)
{
    const char *reply = mixed_command(w, false, "migrate");

    if (!strstr(reply, " 1 connections"))
        fail_msg("the adapter's reply to migrate: \"%s\"", reply);
}

static unsigned long migrations(struct world *w, bool b)
{
    const char *at = strstr(mixed_command(w, b, "show"), "migrations: ");

    assert_non_null(at);
    return strtoul(at + strlen("migrations: "), NULL, 10);
}

static void await_migrations(struct world *w, unsigned long a, unsigned long b)
{
    while (migrations(w, false) != a || migrations(w, true) != b) {
        mixed_none(w->a.conn);
        mixed_none(w->b.conn);
    }
}

/* -- tests ------------------------------------------------------------------------------------ */

/* On each port in turn, with nothing in flight. */
static void idle(void **state)
{
    struct world *w = *state;

    connect_new(w);
    for (unsigned long n = 1; n <= 4; n++) {
        migrate(w);
        await_migrations(w, n, n);
        assert_non_null(strstr(mixed_command(w, false, "show"), n % 2 ? "port=2 state=open"
                                                                : "port=1 state=open"));
        assert_non_null(strstr(mixed_command(w, true, "show"), n % 2 ? "port=2 state=open"
                                                               : "port=1 state=open"));
    }
    mixed_prepare(w);
    for (int i = 0; i < MIXED_STEPS; i++)
        mixed_post(w, i);
    mixed_finish(w);
    mixed_disconnect(w);
}

/* Before each step, with the peer's port cut since each earlier one: so what is in flight is in the
 * rings, or in the kernel. */
static void at_each_step(void **state)
{
    struct world *w = *state;

    for (int cut = 0; cut <= MIXED_STEPS; cut++)
        for (int at = cut; at <= MIXED_STEPS; at++) {
            connect_new(w);
            mixed_prepare(w);
            for (int i = 0; i <= MIXED_STEPS; i++) {
                if (i == cut)
                    mixed_command(w, true, "cut 1");
                if (i == at)
                    migrate(w);
                if (i < MIXED_STEPS)
                    mixed_post(w, i);
            }
            mixed_finish(w);
            mixed_disconnect(w);
            mixed_command(w, true, "heal 1");
        }
}

static void run_cut(struct world *w, enum cuts_end end, long bytes)
{
    connect_new(w);
    cuts_set(0, CUTS_ACTIVE, end == CUTS_ACTIVE ? bytes : CUTS_NEVER, false);
    cuts_set(0, CUTS_PASSIVE, end == CUTS_PASSIVE ? bytes : CUTS_NEVER, false);
    mixed_prepare(w);
    for (int i = 0; i < MIXED_STEPS; i++)
        mixed_post(w, i);
    for (int i = 0; i < 4; i++) {        /* both sides read what there is */
        mixed_none(w->a.conn);
        mixed_none(w->b.conn);
    }
    if (bytes != CUTS_NEVER)
        migrate(w);
    mixed_finish(w);
}

/* The former link stops after each number of bytes. */
static void at_each_byte(void **state)
{
    struct world *w = *state;

    for (int end = CUTS_ACTIVE; end <= CUTS_PASSIVE; end++) {
        long all;

        run_cut(w, (enum cuts_end)end, CUTS_NEVER);
        all = cuts_sent(0, (enum cuts_end)end);
        mixed_disconnect(w);
        for (long bytes = 0; bytes <= all; bytes++) {
            run_cut(w, (enum cuts_end)end, bytes);
            mixed_disconnect(w);
        }
    }
}

enum { MIGRATE_BYTES = 56 };     /* of MIGRATE, and of MIGRATED */

/* The new link ends at each byte of its making; another one is made. */
static void new_link_ends(void **state)
{
    struct world *w = *state;

    for (int end = CUTS_ACTIVE; end <= CUTS_PASSIVE; end++)
        for (long bytes = 0; bytes < MIGRATE_BYTES; bytes++) {
            connect_new(w);
            cuts_set(1, (enum cuts_end)end, bytes, true);
            mixed_prepare(w);
            for (int i = 0; i < MIXED_STEPS; i++) {
                if (i == MIXED_STEPS / 2)
                    migrate(w);
                mixed_post(w, i);
            }
            mixed_finish(w);
            mixed_disconnect(w);
        }
}

/* Several links, each of which stops somewhere behind its making, by a seed. */
static void many_links(void **state)
{
    enum { SEEDS = 60, LINKS = 6, SPAN = 900 };
    struct world *w = *state;

    for (unsigned seed = 0; seed < SEEDS; seed++) {
        unsigned long a = migrations(w, false), b = migrations(w, true);
        unsigned random = seed;

        connect_new(w);
        mixed_prepare(w);
        for (int link = 0; link < LINKS; link++)
            for (int end = CUTS_ACTIVE; end <= CUTS_PASSIVE; end++)
                cuts_set(link, (enum cuts_end)end, MIGRATE_BYTES + rand_r(&random) % SPAN, false);
        for (int i = 0; i < MIXED_STEPS; i++)
            mixed_post(w, i);
        for (unsigned long n = 1; n <= LINKS; n++) {
            migrate(w);
            await_migrations(w, a + n, b + n);
        }
        mixed_finish(w);
        mixed_disconnect(w);
    }
}

/* A disconnect while the link is replaced: one event at each side. */
static void disconnect_meanwhile(void **state)
{
    struct world *w = *state;

    for (int by_b = 0; by_b <= 1; by_b++) {
        connect_new(w);
        migrate(w);
        OK(dat_ep_disconnect(mixed_side(w, by_b)->ep, DAT_CLOSE_ABRUPT_FLAG));
        expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
        expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
        mixed_none(w->a.conn);
        mixed_none(w->b.conn);
        OK(dat_ep_reset(w->a.ep));
        OK(dat_ep_reset(w->b.ep));
    }
}

/* Without a service point there is no new link, and the former one stays. */
static void nobody_listens(void **state)
{
    struct world *w = *state;

    connect_new(w);
    OK(dat_psp_free(w->psp));
    mixed_command(w, false, "migrate");
    mixed_prepare(w);
    for (int i = 0; i < MIXED_STEPS; i++)
        mixed_post(w, i);
    mixed_finish(w);
    mixed_disconnect(w);
    assert_int_equal(migrations(w, false), 0);
    OK(dat_psp_create(w->b.ia, w->qual, w->b.cr, DAT_PSP_CONSUMER_FLAG, &w->psp));
}

#define ON_TWO_PORTS(f) \
    cmocka_unit_test_prestate_setup_teardown(f, mixed_set_up, mixed_tear_down, \
                                             (void *)(uintptr_t)"ports1")

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_TWO_PORTS(idle),
        ON_TWO_PORTS(at_each_step),
        ON_TWO_PORTS(at_each_byte),
        ON_TWO_PORTS(new_link_ends),
        ON_TWO_PORTS(many_links),
        ON_TWO_PORTS(disconnect_meanwhile),
        ON_TWO_PORTS(nobody_listens),
    };

    return RUN(tests);
}
