/* SPDX-License-Identifier: MIT */
/*
 * Alternate paths as dat_path_extensions.h and docs/paths.md have them: each operation in each
 * state, bad input, what one side alone can do, migration on request, and what DAT 2.0 itself has
 * for connections with several paths. The IA ports1 has two ports and a long `retry`, soft0 has one
 * port.
 */
#include "armed.h"
#include "threads.h"

#include <string.h>

/* -- attributes ------------------------------------------------------------------------------- */

static const char *named(const DAT_PROVIDER_ATTR *a, const char *name)
{
    for (int i = 0; i < a->num_provider_specific_attr; i++)
        if (strcmp(a->provider_specific_attr[i].name, name) == 0)
            return a->provider_specific_attr[i].value;
    return NULL;
}

static void expect_attributes(struct world *w, const char *ports, DAT_BOOLEAN several)
{
    DAT_PROVIDER_ATTR a;

    OK(dat_ia_query(w->a.ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, &a));
    assert_string_equal(named(&a, DAT_PATH_ATTR), "100");
    assert_string_equal(named(&a, DAT_PATH_ATTR_PORTS), ports);
    assert_int_equal(a.supports_multipath, several);
    assert_int_equal(a.ha_supported, several);
}

static void attributes_of_one_port(void **state)
{
    expect_attributes(*state, "1", DAT_FALSE);
}

static void attributes_of_two_ports(void **state)
{
    expect_attributes(*state, "2", DAT_TRUE);
}

/* -- operations and states -------------------------------------------------------------------- */

enum { SET, REARM, MIGRATE, QUERY, OPERATIONS };

static DAT_RETURN operate(DAT_EP_HANDLE ep, int op)
{
    DAT_PATH path = { 0, 0 };
    DAT_PATH_PARAM param;

    switch (op) {
    case SET: return dat_path_set_alternate(ep, &path);
    case REARM: return dat_path_rearm(ep);
    case MIGRATE: return dat_path_migrate(ep);
    default: return dat_path_query(ep, &param);
    }
}

/* Expects that the operations but `legal` (bits) fail, and change nothing. */
static void expect_legal(struct side *s, unsigned legal)
{
    DAT_PATH_PARAM before = path_query(s), after;

    for (int op = 0; op < OPERATIONS; op++)
        if (!(legal & 1u << op))
            IS(DAT_INVALID_STATE, operate(s->ep, op));
    after = path_query(s);
    assert_memory_equal(&before, &after, sizeof(before));
}

static void each_operation_in_each_state(void **state)
{
    const unsigned set = 1u << SET, rearm = 1u << REARM, migrate = 1u << MIGRATE,
                   query = 1u << QUERY;
    struct world *w = *state;
    DAT_CR_HANDLE cr;

    expect_legal(&w->a, set | query);
    expect_path(path_query(&w->a).current, 0, 0);
    OK(dat_path_set_alternate(w->a.ep, NULL));
    expect_legal(&w->a, set | query);            /* it is set, but there is no connection */
    cr = request(w, NULL, 0);
    expect_legal(&w->a, query);
    OK(dat_cr_accept(cr, w->b.ep, 0, NULL));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect_legal(&w->a, set | rearm | query);    /* as it was set before */
    expect_legal(&w->b, set | query);
    OK(dat_path_rearm(w->a.ep));
    expect_state(&w->a, DAT_PATH_REARM);
    expect_legal(&w->a, query);
    load(&w->b);
    expect_armed(w);
    expect_legal(&w->a, migrate | query);
    expect_legal(&w->b, migrate | query);
    OK(dat_path_migrate(w->a.ep));
    expect_migrated(w, DAT_PATH_CAUSE_REQUEST, DAT_PATH_CAUSE_PEER, 2);
    expect_legal(&w->a, set | query);            /* what was set is in use now */
    expect_path(path_query(&w->a).alternate, 0, 0);
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_legal(&w->a, query);
    expect_counts(w, 1, 1, 0);                   /* they stay until the next connection */
    OK(dat_ep_reset(w->a.ep));
    OK(dat_ep_reset(w->b.ep));
    expect_legal(&w->a, set | query);
    connect_pair(w);
    expect_counts(w, 0, 0, 0);
    expect_no_event(w);
}

static void bad_arguments(void **state)
{
    struct world *w = *state;
    const DAT_PATH local_3 = { 3, 0 }, remote_3 = { 0, 3 }, remote_256 = { 0, 256 };

    for (int op = 0; op < OPERATIONS; op++)
        IS(DAT_INVALID_HANDLE, operate(w->a.pz, op));
    IS(DAT_INVALID_PARAMETER, dat_path_query(w->a.ep, NULL));
    IS(DAT_INVALID_PARAMETER, dat_path_set_alternate(w->a.ep, &local_3));
    IS(DAT_INVALID_PARAMETER, dat_path_set_alternate(w->a.ep, &remote_256));
    OK(dat_path_set_alternate(w->a.ep, &remote_3));  /* the peer's ports are not known */
    IS(DAT_NOT_IMPLEMENTED, dat_extension_op(w->a.ep, DAT_PATH_QUERY_OP + 1, NULL));
}

/* Once the peer's ports are known. */
static void bad_ports(void **state)
{
    const DAT_PATH in_use = { 1, 1 }, local_3 = { 3, 0 }, remote_3 = { 0, 3 }, crossed = { 1, 2 },
                   back = { 2, 1 };
    struct world *w = *state;

    connect_pair(w);
    for (DAT_UINT32 port = 2; port >= 1; port--) {
        arm(w);
        OK(dat_path_migrate(w->a.ep));
        expect_migrated(w, DAT_PATH_CAUSE_REQUEST, DAT_PATH_CAUSE_PEER, port);
    }
    for (int b = 0; b <= 1; b++) {
        DAT_EP_HANDLE ep = mixed_side(w, b)->ep;

        IS(DAT_INVALID_PARAMETER, dat_path_set_alternate(ep, &local_3));
        IS(DAT_INVALID_PARAMETER, dat_path_set_alternate(ep, &remote_3));
        IS(DAT_INVALID_PARAMETER, dat_path_set_alternate(ep, &in_use));
        OK(dat_path_set_alternate(ep, &crossed));
        OK(dat_path_set_alternate(ep, &back));
        expect_path(path_query(mixed_side(w, b)).alternate, 2, 1);
    }
}

static void no_other_path(void **state)
{
    struct world *w = *state;
    const DAT_PATH port_1 = { 1, 1 };

    connect_pair(w);
    IS(DAT_MODEL_NOT_SUPPORTED, dat_path_set_alternate(w->a.ep, NULL));
    IS(DAT_MODEL_NOT_SUPPORTED, dat_path_set_alternate(w->b.ep, &port_1));
    IS(DAT_INVALID_STATE, dat_path_rearm(w->a.ep));
}

/* A stale path raises no error when it is loaded: the connection is not armed. */
static void set_before_but_in_use(void **state)
{
    struct world *w = *state;
    const DAT_PATH path = { 1, 1 };

    OK(dat_path_set_alternate(w->a.ep, &path));
    connect_pair(w);
    OK(dat_path_rearm(w->a.ep));
    load(&w->b);
    expect_nothing(w->a.async);
    expect_state(&w->a, DAT_PATH_REARM);
    expect_state(&w->b, DAT_PATH_REARM);
}

static void one_side_alone(void **state)
{
    struct world *w = *state;

    for (int b = 0; b <= 1; b++) {
        connect_pair(w);
        load(mixed_side(w, b));
        expect_nothing(w->a.async);
        expect_nothing(w->b.async);
        expect_state(mixed_side(w, b), DAT_PATH_REARM);
        expect_state(mixed_side(w, !b), DAT_PATH_MIGRATED);
        load(mixed_side(w, !b));
        expect_armed(w);
        OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
        expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
        expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
        expect_no_event(w);
        OK(dat_ep_reset(w->a.ep));
        OK(dat_ep_reset(w->b.ep));
    }
}

/* Both sides name ports: these have to be the same path. */
static void ports_of_both_sides(void **state)
{
    static const struct {
        DAT_PATH a, b;
        bool fits;
        DAT_UINT32 port_a, port_b;
    } wish[] = {
        { { 2, 1 }, { 1, 2 }, true, 2, 1 },
        { { 1, 2 }, { 0, 0 }, true, 1, 2 },
        { { 0, 0 }, { 1, 2 }, true, 2, 1 },
        { { 2, 0 }, { 2, 0 }, true, 2, 2 },
        { { 2, 1 }, { 2, 1 }, false, 0, 0 },
        { { 2, 0 }, { 0, 1 }, false, 0, 0 },
    };
    struct world *w = *state;

    for (size_t i = 0; i < sizeof(wish) / sizeof(wish[0]); i++) {
        connect_pair(w);
        OK(dat_path_set_alternate(w->a.ep, &wish[i].a));
        OK(dat_path_set_alternate(w->b.ep, &wish[i].b));
        OK(dat_path_rearm(w->a.ep));
        OK(dat_path_rearm(w->b.ep));
        if (wish[i].fits) {
            expect_armed(w);
            OK(dat_path_migrate(w->b.ep));
            expect_path(expect_event(&w->a, DAT_PATH_EVENT_MIGRATED).path, wish[i].port_a,
                        wish[i].port_b);
            expect_path(expect_event(&w->b, DAT_PATH_EVENT_MIGRATED).path, wish[i].port_b,
                        wish[i].port_a);
            expect_path(path_query(&w->a).current, wish[i].port_a, wish[i].port_b);
        }
        expect_nothing(w->a.async);
        OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
        expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
        expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
        OK(dat_ep_reset(w->a.ep));
        OK(dat_ep_reset(w->b.ep));
    }
}

/* -- migration on request --------------------------------------------------------------------- */

/* By each side in turn, from each port. The counts are exact, and no descriptor is left. */
static void back_and_forth(void **state)
{
    enum { TIMES = 1000 };
    struct world *w = *state;
    DAT_CONTEXT context = { .as_64 = 77 };
    int fds;

    connect_pair(w);
    OK(dat_set_consumer_context(w->a.ep, context));
    arm(w);
    expect_path(path_query(&w->a).current, 1, 1);
    expect_path(path_query(&w->b).current, 1, 1);
    fds = open_descriptors();
    for (DAT_UINT32 n = 1; n <= TIMES; n++) {
        bool b = n % 2 == 0;
        DAT_UINT32 asked = DAT_PATH_CAUSE_REQUEST, peer = DAT_PATH_CAUSE_PEER;

        OK(dat_path_migrate(mixed_side(w, b)->ep));
        expect_migrated(w, b ? peer : asked, b ? asked : peer, n % 2 ? 2 : 1);
        expect_counts(w, n, n, 0);
        load(&w->b);
        load(&w->a);
        assert_int_equal(expect_event(&w->a, DAT_PATH_EVENT_ARMED).context.as_64, 77);
        expect_event(&w->b, DAT_PATH_EVENT_ARMED);
    }
    assert_int_equal(open_descriptors(), fds);
    mixed_prepare(w);
    for (int i = 0; i < MIXED_STEPS; i++)
        mixed_post(w, i);
    mixed_finish(w);
    mixed_disconnect(w);
    expect_no_event(w);
}

static void daplsoft_shows_and_moves(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    assert_non_null(strstr(mixed_command(w, false, "show"), "path=1:1 migrated"));
    load(&w->a);
    assert_non_null(strstr(mixed_command(w, false, "show"), "path=1:1 rearm"));
    load(&w->b);
    expect_armed(w);
    assert_non_null(strstr(mixed_command(w, false, "show"), "path=1:1 armed alternate=2:2"));
    assert_non_null(strstr(mixed_command(w, true, "show"), "path=1:1 armed alternate=2:2"));
    assert_null(strstr(mixed_command(w, true, "show"), "state=standby"));
    assert_non_null(strstr(mixed_command(w, true, "migrate 2"), " 0 connections"));
    assert_non_null(strstr(mixed_command(w, true, "migrate 1"), " 1 connections"));
    expect_migrated(w, DAT_PATH_CAUSE_PEER, DAT_PATH_CAUSE_REQUEST, 2);
    assert_non_null(strstr(mixed_command(w, false, "show"),
                           "path=2:2 migrated, 1 armed, 1 migrated, 0 failed"));
}

/* An armed connection at rest wakes no thread. */
static void no_wakeups(void **state)
{
    struct world *w = *state;

    NEEDS_NO_OTHER_THREAD();
    connect_pair(w);
    arm(w);
    expect_no_switches();
    expect_state(&w->a, DAT_PATH_ARMED);
}

/* -- several paths, in DAT's own words -------------------------------------------------------- */

static DAT_RETURN connect_with(struct world *w, DAT_CONNECT_FLAGS flags)
{
    return dat_ep_connect(w->a.ep, w->addr, w->qual, ATMOST, 0, NULL, DAT_QOS_BEST_EFFORT, flags);
}

static void connect_several(struct world *w, DAT_CONNECT_FLAGS flags)
{
    DAT_EVENT e;

    OK(connect_with(w, flags));
    e = next_event(w->b.cr);
    OK(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, w->b.ep, 0, NULL));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ESTABLISHED);
}

static void expect_ha(struct world *w, DAT_EVENT_NUMBER number)
{
    for (int b = 0; b <= 1; b++) {
        DAT_EVENT e = next_event(mixed_side(w, b)->async);

        assert_int_equal(e.event_number, number);
        assert_ptr_equal(e.event_data.asynch_error_event_data.dat_handle, mixed_side(w, b)->ep);
    }
}

static void several_paths(void **state)
{
    static const DAT_CONNECT_FLAGS flags[] = { DAT_CONNECT_MULTIPATH_REQUESTED_FLAG,
                                               DAT_CONNECT_MULTIPATH_REQUIRED_FLAG };
    struct world *w = *state;

    for (int i = 0; i < 2; i++) {
        connect_several(w, flags[i]);
        expect_ha(w, DAT_HA_UP_TO_MULTI_PATH);
        assert_int_equal(state_of(&w->a), DAT_EP_STATE_CONNECTED_MULTI_PATH);
        assert_int_equal(state_of(&w->b), DAT_EP_STATE_CONNECTED_MULTI_PATH);
        IS(DAT_INVALID_STATE, dat_path_set_alternate(w->a.ep, NULL));
        mixed_command(w, false, "cut 1");
        expect_port(&w->a, DAT_PATH_EVENT_DOWN, 1);
        expect_ha(w, DAT_HA_DOWN_TO_1);
        expect_path(path_query(&w->a).current, 2, 2);
        assert_int_equal(state_of(&w->a), DAT_EP_STATE_CONNECTED);
        mixed_command(w, false, "heal 1");
        expect_port(&w->a, DAT_PATH_EVENT_UP, 1);
        expect_ha(w, DAT_HA_UP_TO_MULTI_PATH);
        expect_counts(w, 2, 1, 0);
        OK(dat_ep_disconnect(w->b.ep, DAT_CLOSE_ABRUPT_FLAG));
        expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
        expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
        assert_int_equal(state_of(&w->a), DAT_EP_STATE_DISCONNECTED);
        OK(dat_ep_reset(w->a.ep));
        OK(dat_ep_reset(w->b.ep));
        expect_no_event(w);
    }
}

/* Without another port, several paths cannot be had: if they are required that is an error. */
static void several_paths_of_one_port(void **state)
{
    struct world *w = *state;

    IS(DAT_MODEL_NOT_SUPPORTED, connect_with(w, DAT_CONNECT_MULTIPATH_REQUIRED_FLAG));
    IS(DAT_INVALID_PARAMETER, connect_with(w, (DAT_CONNECT_FLAGS)4));
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_UNCONNECTED);
    connect_several(w, DAT_CONNECT_MULTIPATH_REQUESTED_FLAG);
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_CONNECTED);
    expect_state(&w->a, DAT_PATH_MIGRATED);
    expect_nothing(w->a.async);
}

#define ON(f, name) \
    cmocka_unit_test_prestate_setup_teardown(f, mixed_set_up, mixed_tear_down, \
                                             (void *)(uintptr_t)(name))

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(attributes_of_one_port, "soft0"),
        ON(attributes_of_two_ports, "ports1"),
        ON(each_operation_in_each_state, "ports1"),
        ON(bad_arguments, "ports1"),
        ON(bad_ports, "ports1"),
        ON(no_other_path, "soft0"),
        ON(set_before_but_in_use, "ports1"),
        ON(one_side_alone, "ports1"),
        ON(ports_of_both_sides, "ports1"),
        ON(back_and_forth, "ports1"),
        ON(daplsoft_shows_and_moves, "ports1"),
        ON(no_wakeups, "ports1"),
        ON(several_paths, "ports1"),
        ON(several_paths_of_one_port, "soft0"),
    };

    return RUN(tests);
}
