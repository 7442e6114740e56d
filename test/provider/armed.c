/* SPDX-License-Identifier: MIT */
#include "armed.h"

#include <string.h>

DAT_PATH_PARAM path_query(const struct side *s)
{
    DAT_PATH_PARAM p;

    memset(&p, 0xff, sizeof(p));
    OK(dat_path_query(s->ep, &p));
    return p;
}

void expect_state(const struct side *s, DAT_PATH_STATE state)
{
    assert_int_equal(path_query(s).state, state);
}

void expect_path(DAT_PATH path, DAT_UINT32 local, DAT_UINT32 remote)
{
    assert_int_equal(path.local_port, local);
    assert_int_equal(path.remote_port, remote);
}

void expect_counts(struct world *w, DAT_UINT32 armed, DAT_UINT32 migrated, DAT_UINT32 failed)
{
    for (int b = 0; b <= 1; b++) {
        DAT_PATH_PARAM p = path_query(mixed_side(w, b));

        assert_int_equal(p.n_armed, armed);
        assert_int_equal(p.n_migrated, migrated);
        assert_int_equal(p.n_failed, failed);
    }
}

DAT_PATH_EVENT_DATA expect_event(struct side *s, DAT_PATH_EVENT_NUMBER number)
{
    DAT_EVENT e = next_event(s->async);
    DAT_PATH_EVENT_DATA data;

    memcpy(&data, e.event_extension_data, sizeof(data));
    assert_int_equal(e.event_number, number);
    assert_ptr_equal(data.handle, s->ep);
    return data;
}

/* The IA's own handle is known to libdat2 only, which gives the consumer another. */
void expect_port(struct side *s, DAT_PATH_EVENT_NUMBER number, DAT_UINT32 port)
{
    DAT_EVENT e = next_event(s->async);
    DAT_PATH_EVENT_DATA data;

    memcpy(&data, e.event_extension_data, sizeof(data));
    assert_int_equal(e.event_number, number);
    assert_ptr_not_equal(data.handle, s->ep);
    assert_int_equal(data.path.local_port, port);
}

void load(struct side *s)
{
    OK(dat_path_set_alternate(s->ep, NULL));
    OK(dat_path_rearm(s->ep));
}

void expect_armed(struct world *w)
{
    expect_event(&w->a, DAT_PATH_EVENT_ARMED);
    expect_event(&w->b, DAT_PATH_EVENT_ARMED);
    expect_state(&w->a, DAT_PATH_ARMED);
    expect_state(&w->b, DAT_PATH_ARMED);
}

void arm(struct world *w)
{
    load(&w->a);
    load(&w->b);
    expect_armed(w);
}

void expect_migrated(struct world *w, DAT_UINT32 cause_a, DAT_UINT32 cause_b, DAT_UINT32 port)
{
    DAT_PATH_EVENT_DATA a = expect_event(&w->a, DAT_PATH_EVENT_MIGRATED);
    DAT_PATH_EVENT_DATA b = expect_event(&w->b, DAT_PATH_EVENT_MIGRATED);

    assert_int_equal(a.cause, cause_a);
    assert_int_equal(b.cause, cause_b);
    expect_path(a.path, port, port);
    expect_path(b.path, port, port);
    assert_int_equal(a.n_migrated, b.n_migrated);
    expect_state(&w->a, DAT_PATH_MIGRATED);
    expect_state(&w->b, DAT_PATH_MIGRATED);
}

void await_state(struct world *w, bool b, DAT_PATH_STATE state)
{
    while (path_query(mixed_side(w, b)).state != state) {
        DAT_EVENT e;

        dat_evd_dequeue(w->a.async, &e);
        dat_evd_dequeue(w->b.async, &e);
    }
}

void expect_no_event(struct world *w)
{
    mixed_none(w->a.async);
    mixed_none(w->b.async);
}
