/* SPDX-License-Identifier: MIT */
/*
 * A connection migrates to its alternate path, by request or because a port is cut, while requests
 * of every kind are in flight: nothing is lost, flushed or executed twice; the counts are exact.
 * The former link stops after each number of bytes, the standby ends at each byte of its making and
 * of the migration. The IA ports1 has two ports and a long `retry`, ports2 a short one.
 */
#include "armed.h"
#include "cuts.h"

#include <stdlib.h>

static void connect_armed(struct world *w)
{
    cuts_reset();
    connect_pair(w);
    arm(w);
}

/* Asks each side in `by` (bits) to migrate. The second may have migrated by then. */
static void migrate(struct world *w, unsigned by)
{
    for (int b = 1; b >= 0; b--) {
        DAT_RETURN ret = by & 1u << b ? dat_path_migrate(mixed_side(w, b)->ep) : DAT_SUCCESS;

        assert_true(ret == DAT_SUCCESS || (by == 3 && DAT_GET_TYPE(ret) == DAT_INVALID_STATE));
    }
}

static void expect_moved(struct side *s, DAT_UINT32 port)
{
    expect_path(expect_event(s, DAT_PATH_EVENT_MIGRATED).path, port, port);
}

static void expect_both_moved(struct world *w, DAT_UINT32 port)
{
    expect_moved(&w->a, port);
    expect_moved(&w->b, port);
}

/* -- while requests are in flight ------------------------------------------------------------- */

/* Executes all steps; before step `at` the sides of the set `by` do this. */
static void steps_around(struct world *w, int at, void (*act)(struct world *w, unsigned by),
                         unsigned by)
{
    mixed_prepare(w);
    for (int i = 0; i <= MIXED_STEPS; i++) {
        if (i == at)
            act(w, by);
        if (i < MIXED_STEPS)
            mixed_post(w, i);
    }
    mixed_finish(w);
}

static void request_at_each_step(void **state)
{
    struct world *w = *state;

    for (unsigned by = 1; by <= 3; by++)
        for (int at = 0; at <= MIXED_STEPS; at++) {
            connect_armed(w);
            steps_around(w, at, migrate, by);
            expect_both_moved(w, 2);
            expect_counts(w, 1, 1, 0);
            mixed_disconnect(w);
            expect_no_event(w);
        }
}

/* A side may migrate because of its peer before its own port is cut. */
static void expect_cut_and_moved(struct side *s, bool cut)
{
    int n[2] = { 0, 0 };         /* events: of the port, of the EP */

    for (int i = 0; i <= cut; i++) {
        DAT_EVENT e = next_event(s->async);

        n[0] += e.event_number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_DOWN;
        n[1] += e.event_number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_MIGRATED;
    }
    assert_int_equal(n[0], cut);
    assert_int_equal(n[1], 1);
    expect_path(path_query(s).current, 2, 2);
}

static void cut_first_ports(struct world *w, unsigned by)
{
    for (int b = 0; b <= 1; b++)
        if (by & 1u << b)
            mixed_command(w, b, "cut 1");
}

/* Without a request: the port of one side, or of both, goes down. */
static void cut_at_each_step(void **state)
{
    struct world *w = *state;

    for (unsigned by = 1; by <= 3; by++)
        for (int at = 0; at <= MIXED_STEPS; at++) {
            connect_armed(w);
            steps_around(w, at, cut_first_ports, by);
            expect_cut_and_moved(&w->a, by & 1);
            expect_cut_and_moved(&w->b, by & 2);
            expect_counts(w, 1, 1, 0);
            for (int b = 0; b <= 1; b++)
                if (by & 1u << b) {
                    mixed_command(w, b, "heal 1");
                    expect_port(mixed_side(w, b), DAT_PATH_EVENT_UP, 1);
                }
            mixed_disconnect(w);
            expect_no_event(w);
        }
}

static void causes(void **state)
{
    struct world *w = *state;

    for (int b = 0; b <= 1; b++) {
        DAT_UINT32 port = DAT_PATH_CAUSE_PORT, peer = DAT_PATH_CAUSE_PEER;

        connect_armed(w);
        mixed_command(w, b, "cut 1");
        expect_port(mixed_side(w, b), DAT_PATH_EVENT_DOWN, 1);
        expect_migrated(w, b ? peer : port, b ? port : peer, 2);
        mixed_command(w, b, "heal 1");
        expect_port(mixed_side(w, b), DAT_PATH_EVENT_UP, 1);
        post_recv(&w->a, 0, 8, MIXED_EXTRA);
        post_recv(&w->b, 0, 8, MIXED_EXTRA);
        mixed_disconnect(w);
    }
}

/* Several migrations among the requests, by a seed. */
static void many_migrations(void **state)
{
    enum { SEEDS = 40 };
    struct world *w = *state;

    for (unsigned seed = 0; seed < SEEDS; seed++) {
        unsigned random = seed, n = 0;

        connect_armed(w);
        mixed_prepare(w);
        for (int i = 0; i < MIXED_STEPS; i++) {
            mixed_post(w, i);
            if (rand_r(&random) % 3)
                continue;
            migrate(w, 1 + (unsigned)rand_r(&random) % 3);
            n++;
            expect_both_moved(w, n % 2 ? 2 : 1);
            arm(w);
        }
        mixed_finish(w);
        expect_counts(w, n + 1, n, 0);
        mixed_disconnect(w);
        expect_no_event(w);
    }
}

/* -- links that stop at each byte ------------------------------------------------------------- */

/* The former link takes `bytes` more from one end after it is armed. Returns how many it would. */
static long run_former(struct world *w, enum cuts_end end, long bytes)
{
    long all;

    connect_armed(w);
    cuts_set(0, end, bytes, false);
    mixed_prepare(w);
    for (int i = 0; i < MIXED_STEPS; i++)
        mixed_post(w, i);
    for (int i = 0; i < 4; i++)          /* both sides read what there is */
        expect_no_event(w);
    all = cuts_sent(0, end);
    if (bytes != CUTS_NEVER) {
        migrate(w, 1 + (unsigned)bytes % 3);
        expect_both_moved(w, 2);
    }
    mixed_finish(w);
    mixed_disconnect(w);
    return all;
}

static void former_link_stops(void **state)
{
    enum { STEP = 5 };
    struct world *w = *state;

    for (int end = CUTS_ACTIVE; end <= CUTS_PASSIVE; end++) {
        long all = run_former(w, (enum cuts_end)end, CUTS_NEVER);

        for (long bytes = 0; bytes <= all; bytes += STEP)
            run_former(w, (enum cuts_end)end, bytes);
    }
}

/* STANDBY, STANDBY_READY, MIGRATE; STANDBY_OK, MIGRATED. */
static const long made_after[] = { [CUTS_ACTIVE] = 64, [CUTS_PASSIVE] = 32 };
static const long moved_after[] = { [CUTS_ACTIVE] = 120, [CUTS_PASSIVE] = 88 };

/* The standby ends while it is made, and another one is; or while the connection migrates to it,
 * and the link is made again. */
static void standby_ends(void **state)
{
    enum { STEP = 3 };
    struct world *w = *state;

    for (int end = CUTS_ACTIVE; end <= CUTS_PASSIVE; end++)
        for (long bytes = 0; bytes < moved_after[end]; bytes += STEP) {
            cuts_reset();
            connect_pair(w);
            cuts_set(1, (enum cuts_end)end, bytes, true);
            load(&w->a);
            load(&w->b);
            await_state(w, false, DAT_PATH_ARMED);
            await_state(w, true, DAT_PATH_ARMED);
            mixed_prepare(w);
            for (int i = 0; i < MIXED_STEPS; i++) {
                if (i == MIXED_STEPS / 2 && bytes >= made_after[end])
                    OK(dat_path_migrate(w->a.ep));
                mixed_post(w, i);
            }
            mixed_finish(w);
            if (bytes >= made_after[end]) {
                await_state(w, false, DAT_PATH_MIGRATED);
                await_state(w, true, DAT_PATH_MIGRATED);
                assert_int_equal(path_query(&w->a).n_migrated, 1);
                assert_int_equal(path_query(&w->b).n_migrated, 1);
            }
            mixed_disconnect(w);
        }
}

/* -- the alternate path fails ----------------------------------------------------------------- */

static void standby_cut_and_healed(void **state)
{
    struct world *w = *state;

    connect_armed(w);
    for (DAT_UINT32 n = 1; n <= 6; n++) {
        bool b = n % 2 == 0;

        mixed_command(w, b, "cut 2");
        expect_port(mixed_side(w, b), DAT_PATH_EVENT_DOWN, 2);
        expect_event(&w->a, DAT_PATH_EVENT_DOWN);
        expect_event(&w->b, DAT_PATH_EVENT_DOWN);
        expect_state(&w->a, DAT_PATH_REARM);
        expect_state(&w->b, DAT_PATH_REARM);
        IS(DAT_INVALID_STATE, dat_path_migrate(w->a.ep));
        IS(DAT_INVALID_STATE, dat_path_migrate(w->b.ep));
        mixed_command(w, b, "heal 2");
        expect_port(mixed_side(w, b), DAT_PATH_EVENT_UP, 2);
        expect_armed(w);
        expect_counts(w, n + 1, 0, 0);
    }
    migrate(w, 2);
    expect_both_moved(w, 2);
}

/* The other path is down already: the connection breaks after `retry`, as without paths. */
static void both_paths_down(void **state)
{
    struct world *w = *state;
    DAT_PATH_EVENT_DATA data;

    connect_armed(w);
    mixed_command(w, false, "cut 2");
    expect_port(&w->a, DAT_PATH_EVENT_DOWN, 2);
    expect_event(&w->a, DAT_PATH_EVENT_DOWN);
    post_send(&w->a, 0, 8, 1);
    mixed_command(w, false, "cut 1");
    post_send(&w->a, 0, 8, 2);
    expect_port(&w->a, DAT_PATH_EVENT_DOWN, 1);
    data = expect_event(&w->a, DAT_PATH_EVENT_FAILED);
    expect_path(data.path, 1, 1);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    assert_int_equal(path_query(&w->a).n_failed, 1);
    assert_int_equal(path_query(&w->a).n_migrated, 0);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_BROKEN);
}

/* The path that the connection migrates to goes down meanwhile. */
static void cut_while_migrating(void **state)
{
    struct world *w = *state;

    connect_armed(w);
    mixed_command(w, false, "cut");
    expect_port(&w->a, DAT_PATH_EVENT_DOWN, 1);
    expect_port(&w->a, DAT_PATH_EVENT_DOWN, 2);
    expect_event(&w->a, DAT_PATH_EVENT_FAILED);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    assert_int_equal(path_query(&w->a).n_failed, 1);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_BROKEN);
}

/* -- the rest --------------------------------------------------------------------------------- */

static void disconnect_meanwhile(void **state)
{
    struct world *w = *state;
    DAT_EVENT e;

    for (unsigned by = 1; by <= 3; by++)
        for (int by_b = 0; by_b <= 1; by_b++) {
            connect_armed(w);
            migrate(w, by);
            OK(dat_ep_disconnect(mixed_side(w, by_b)->ep, DAT_CLOSE_ABRUPT_FLAG));
            expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
            expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
            mixed_none(w->a.conn);
            mixed_none(w->b.conn);
            while (dat_evd_dequeue(w->a.async, &e) == DAT_SUCCESS
                   || dat_evd_dequeue(w->b.async, &e) == DAT_SUCCESS)
                assert_int_equal(e.event_number, DAT_PATH_EVENT_MIGRATED);
            OK(dat_ep_reset(w->a.ep));
            OK(dat_ep_reset(w->b.ep));
        }
}

/* The connection ends while its standby is made: before and after each step of that. */
static void disconnect_before_armed(void **state)
{
    enum { POLLS = 24 };
    struct world *w = *state;
    DAT_EVENT e;

    for (int polls = 0; polls < POLLS; polls++)
        for (int by_b = 0; by_b <= 1; by_b++) {
            connect_pair(w);
            load(&w->a);
            load(&w->b);
            for (int i = 0; i < polls; i++)
                mixed_none(mixed_side(w, i % 2)->conn);
            OK(dat_ep_disconnect(mixed_side(w, by_b)->ep, DAT_CLOSE_ABRUPT_FLAG));
            expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
            expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
            while (dat_evd_dequeue(w->a.async, &e) == DAT_SUCCESS
                   || dat_evd_dequeue(w->b.async, &e) == DAT_SUCCESS)
                assert_true(e.event_number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_ARMED
                            || e.event_number == (DAT_EVENT_NUMBER)DAT_PATH_EVENT_DOWN);
            OK(dat_ep_reset(w->a.ep));
            OK(dat_ep_reset(w->b.ep));
        }
}

/* A standby that is there needs no service point; another one does. */
static void nobody_listens(void **state)
{
    struct world *w = *state;

    connect_armed(w);
    OK(dat_psp_free(w->psp));
    migrate(w, 1);
    expect_both_moved(w, 2);
    load(&w->a);
    load(&w->b);
    expect_nothing(w->a.async);
    expect_state(&w->a, DAT_PATH_REARM);
    OK(dat_psp_create(w->b.ia, w->qual, w->b.cr, DAT_PSP_CONSUMER_FLAG, &w->psp));
    expect_armed(w);
}

/* daplsoft migrate, without a standby: what was loaded is loaded again, for the path not in use. */
static void moved_without_standby(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    load(&w->b);
    mixed_command(w, false, "migrate");
    while (path_query(&w->b).current.local_port != 2)
        expect_no_event(w);
    expect_state(&w->b, DAT_PATH_REARM);
    load(&w->a);
    expect_armed(w);
    migrate(w, 1);
    expect_both_moved(w, 1);
    expect_counts(w, 1, 1, 0);
}

#define ON(f, name) \
    cmocka_unit_test_prestate_setup_teardown(f, mixed_set_up, mixed_tear_down, \
                                             (void *)(uintptr_t)(name))

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(request_at_each_step, "ports1"),
        ON(cut_at_each_step, "ports1"),
        ON(causes, "ports1"),
        ON(many_migrations, "ports1"),
        ON(former_link_stops, "ports1"),
        ON(standby_ends, "ports1"),
        ON(standby_cut_and_healed, "ports1"),
        ON(both_paths_down, "ports2"),
        ON(cut_while_migrating, "ports2"),
        ON(disconnect_meanwhile, "ports1"),
        ON(disconnect_before_armed, "ports1"),
        ON(nobody_listens, "ports1"),
        ON(moved_without_standby, "ports1"),
    };

    return RUN(tests);
}
