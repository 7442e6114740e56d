/* SPDX-License-Identifier: MIT */
/*
 * Alternate paths: a connection whose path fails moves to another port of its adapter, and every
 * message is delivered once and in order (sim.c compares numbers and bytes); where it cannot move
 * it is replaced. The fault happens at each event of some scenarios. Migrations and failures are
 * counted exactly: the fake provider knows how many there were.
 * test_paths [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "conn.h"
#include "err.h"
#include "path_fsm.h"
#include "path_spec.h"
#include "peer.h"
#include "seeds.h"
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* -- the tables ------------------------------------------------------------------------------- */

static void every_cell_is_possible(void **state)
{
    (void)state;
    for (int s = 0; s < MDAPL_DAPL_PATH_STATES; s++)
        for (int e = 0; e < MDAPL_DAPL_PATH_EVENTS; e++) {
            enum mdapl_dapl_path_state next = mdapl_dapl_path_next(s, e);

            assert_in_range(next, 0, MDAPL_DAPL_PATH_STATES - 1);
            assert_non_null(mdapl_dapl_path_state_name(next));
            if (s == MDAPL_DAPL_PATH_NONE)
                assert_int_equal(next, MDAPL_DAPL_PATH_NONE);
            if (e == MDAPL_DAPL_PATH_MIGRATED && s != MDAPL_DAPL_PATH_NONE)
                assert_int_equal(next, MDAPL_DAPL_PATH_UNLOADED);
            if (e == MDAPL_DAPL_PATH_IS_ARMED && s == MDAPL_DAPL_PATH_MOVING)
                assert_int_equal(next, MDAPL_DAPL_PATH_MOVING);
        }
}

static void the_knob_is_read(void **state)
{
    static const char *const wrong[] = {
        "", "on", "0", "256", "1,", ",1", "1:", "1:0", ":1", "1 2", "1;2", "-1",
        "1,2,3,4,5,6,7,8,9", "auto,1", "99999999999999999999",
    };
    struct mdapl_dapl_path_spec spec;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_false(mdapl_dapl_path_spec_read(wrong[i], &spec));
    assert_true(mdapl_dapl_path_spec_read("off", &spec) && spec.off);
    assert_true(mdapl_dapl_path_spec_read("auto", &spec) && !spec.off && spec.n == 0);
    assert_true(mdapl_dapl_path_spec_read("2,1:255", &spec) && spec.n == 2);
    assert_int_equal(spec.path[0].local_port, 2);
    assert_int_equal(spec.path[0].remote_port, 0);
    assert_int_equal(spec.path[1].local_port, 1);
    assert_int_equal(spec.path[1].remote_port, 255);
}

static void alternates(void **state)
{
    static const struct {
        const char *knob;
        uint32_t current, wanted;
        bool found;
        uint32_t local, remote;
    } rows[] = {
        { "auto", 1, 0, true, 0, 0 },
        { "auto", 1, 2, true, 2, 0 },
        { "auto", 1, 1, true, 0, 0 },
        { "2:3", 1, 0, true, 2, 3 },
        { "2:3", 2, 0, false, 0, 0 },
        { "1,2", 1, 0, true, 2, 0 },
        { "1,2", 2, 2, true, 1, 0 },
        { "1,2,3:1", 1, 3, true, 3, 1 },
        { "1,2,3:1", 1, 4, true, 2, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        DAT_PATH current = { rows[i].current, 1 }, path;
        struct mdapl_dapl_path_spec spec;

        assert_true(mdapl_dapl_path_spec_read(rows[i].knob, &spec));
        assert_int_equal(mdapl_dapl_path_alternate(&spec, &current, rows[i].wanted, &path),
                         rows[i].found);
        if (!rows[i].found)
            continue;
        assert_int_equal(path.local_port, rows[i].local);
        assert_int_equal(path.remote_port, rows[i].remote);
    }
}

/* -- helpers ---------------------------------------------------------------------------------- */

static void start(struct sim *s, uint64_t seed, int n, unsigned ports)
{
    sim_start(s, seed, n, NULL, NULL);
    s->verbose = only_seed != 0;
    fake_ports(ports);
}

static void open_one(struct sim *s, int rank, const char *knobs)
{
    struct mdapl_err err;

    SIM_CHECK(s, sim_open(s, rank, knobs, &err) == 0);
}

/* Calls f for each connection of each rank. */
static void each_conn(struct sim *s, void (*f)(struct sim *s, int rank,
                                               struct mdapl_dapl_conn *conn))
{
    for (int a = 0; a < s->n; a++)
        for (int b = 0; b < s->n; b++) {
            struct mdapl_dapl_peer *peer = a == b ? NULL : sim_dapl_peer(s, a, b);

            for (int i = 0; peer && i < peer->n_streams; i++)
                if (peer->stream[i].up)
                    f(s, a, peer->stream[i].up);
        }
}

static int n_conns, on_port[SIM_RANKS][FAKE_PORTS + 1];

static void count_conn(struct sim *s, int rank, struct mdapl_dapl_conn *conn)
{
    unsigned port = fake_port_of(conn->ep.handle);

    SIM_CHECK(s, port <= FAKE_PORTS);
    n_conns++;
    on_port[rank][port]++;
}

/* The first connection of a rank to the next one. */
static struct mdapl_dapl_conn *first_conn(struct sim *s, int rank)
{
    return sim_dapl_peer(s, rank, (rank + 1) % s->n)->stream[0].up;
}

/* How many connections the ranks have on each port. */
static void count_ports(struct sim *s)
{
    n_conns = 0;
    memset(on_port, 0, sizeof(on_port));
    each_conn(s, count_conn);
}

/* Has every connection been armed since the last migration? */
static bool all_armed(struct sim *s)
{
    count_ports(s);
    return SIM_SUM(s, path_armed) >= (uint64_t)n_conns + SIM_SUM(s, path_migrated);
}

/* n ranks with two ports each, whose connections are armed. */
static void start_armed(struct sim *s, uint64_t seed, int n, const char *knobs)
{
    start(s, seed, n, 2);
    sim_open_all(s, knobs);
    sim_until(s, all_armed);
}

/* Has every rank noticed what has happened? */
static bool all_counted(struct sim *s)
{
    return SIM_SUM(s, path_migrated) == 2 * fake_migrated()
           && SIM_SUM(s, path_failed) == 2 * fake_path_failed();
}

static bool is_drained(struct sim *s)
{
    size_t left = 0;

    for (int r = 0; r < s->n; r++)
        left += mdapl_drain(s->rank[r].ctx);
    return left == 0;
}

static void exchange(struct sim *s, int messages, uint64_t longest)
{
    for (int k = 0; k < messages; k++) {
        int from = (int)fake_random((uint64_t)s->n);
        int to = (from + 1 + (int)fake_random((uint64_t)s->n - 1)) % s->n;

        sim_send(s, from, to, (uint32_t)fake_random(fake_random(2) ? 300 : longest), k % 7 == 0);
        sim_rounds(s, (int)fake_random(12));
    }
}

static void pass(struct sim *s, uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i++) {
        *fake_time() += MDAPL_MS(1);
        sim_rounds(s, 20);
    }
}

/* -- loading ---------------------------------------------------------------------------------- */

/* More connections than a batch, over any number of ports of at least two. */
static void every_connection_is_armed(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(12); i++) {
        struct sim s;

        start(&s, seed_at(i), 3, 2 + (unsigned)i % 3);
        sim_open_all(&s, i % 2 ? "streams=8 wiring=ring" : "streams=8 wiring=ring ia=fake,fake");
        exchange(&s, 20, 3000);
        sim_until(&s, all_armed);
        SIM_CHECK(&s, n_conns == (i % 2 ? 3 * 2 * 8 : 3 * 2 * 16));
        SIM_CHECK(&s, SIM_SUM(&s, path_armed) == (uint64_t)n_conns);
        SIM_CHECK(&s, SIM_SUM(&s, path_migrated) == 0 && fake_migrated() == 0);
        sim_until(&s, sim_settled);
        sim_end(&s);
    }
}

/* A provider without the extension, or with the knob off, is not called at all. */
static void without_paths_no_call(void **state)
{
    static const struct { unsigned ports; const char *knobs; } rows[] = {
        { 0, "wiring=ring" }, { 2, "wiring=ring paths=off" }, { 0, "wiring=ring path_balance=on" },
    };

    (void)state;
    for (uint64_t i = 0; i < seeds(3); i++) {
        struct sim s;

        start(&s, seed_at(i), 2, rows[i].ports);
        sim_open_all(&s, rows[i].knobs);
        exchange(&s, 20, 3000);
        sim_until(&s, sim_settled);
        pass(&s, 20);
        SIM_CHECK(&s, fake_path_calls() == 0);
        sim_end(&s);
    }
}

/* One port at both ends: there is nothing to load, and it is not tried again and again. */
static void one_port_has_no_alternate(void **state)
{
    struct sim s;
    unsigned calls;

    (void)state;
    start(&s, 1, 2, 1);
    sim_open_all(&s, "wiring=ring");
    pass(&s, 10);
    calls = fake_path_calls();
    exchange(&s, 20, 3000);
    sim_until(&s, sim_settled);
    pass(&s, 5000);
    SIM_CHECK(&s, fake_path_calls() == calls && calls <= 8);
    sim_end(&s);
}

/* The peer has no paths, or not those: the connection is as if there were none, and breaks. */
static void a_peer_without_paths(void **state)
{
    static const struct { unsigned ports; const char *knobs; } rows[] = {
        { 0, "wiring=ring" }, { 2, "wiring=ring paths=off" }, { 2, "wiring=ring paths=1:1" },
    };

    (void)state;
    for (uint64_t i = 0; i < seeds(12); i++) {
        struct fake_cut cut = { 20 + (unsigned)i * 10, 0, 1, false, i % 2 };
        struct sim s;

        start(&s, seed_at(i), 2, 2);
        open_one(&s, 0, "wiring=ring");
        fake_ports(rows[i % 3].ports);
        open_one(&s, 1, rows[i % 3].knobs);
        fake_ports(2);
        sim_connect(&s);
        cut.step += fake_steps();
        fake_cuts(&cut, 1);
        for (int k = 0; k < 20; k++)
            exchange(&s, 4, 3000);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, path_armed) == 0 && fake_migrated() == 0);
        SIM_CHECK(&s, SIM_SUM(&s, reconnects) == 2);
        sim_until(&s, is_drained);
        sim_close(&s);
    }
}

static void a_wrong_knob_is_refused(void **state)
{
    struct mdapl_err err;
    struct sim s;

    (void)state;
    start(&s, 1, 1, 2);
    SIM_CHECK(&s, sim_open(&s, 0, "paths=left", &err) == -EINVAL);
    assert_non_null(strstr(err.text, "MPIR_CVAR_DAPL_PATHS=\"left\" is not possible: it must be "));
    SIM_CHECK(&s, fake_stop() == 0);
}

/* -- faults at every event -------------------------------------------------------------------- */

static const struct {
    const char *knobs;
    uint64_t longest;            /* bytes of a message */
} scenarios[] = {
    { "wiring=ondemand ring=off", 3000 },
    { "wiring=ring ring=on ring_after=2 ring_slots=4 suppress=off path_back=on", 3000 },
    { "wiring=ring ring=off rndv=rget rndv_segment=4096 streams=2", 20000 },
    { "wiring=ring ring=off rndv=rput rndv_segment=4096 ep_requests=4 path_balance=on", 20000 },
};

enum { SCENARIOS = sizeof(scenarios) / sizeof(*scenarios), MESSAGES = 10 };

enum how {
    PRIMARY,                     /* the first path fails, reported; the alternate is healthy */
    PRIMARY_SILENT,              /* the same by time */
    PRIMARY_FAR,                 /* the port of the other end; by event or by time */
    ALTERNATE_DEAD,              /* the alternate fails unnoticed, then the first path */
    ALTERNATE_FIRST,             /* the same, but reported, and it comes back later */
    BOTH,                        /* both paths fail at once, and come back */
    FLAP,                        /* the first path fails and works again, three times */
    NEVER_ARMED,                 /* the alternate is never armed */
    EVENTS_LOST,                 /* as PRIMARY, and no event of paths arrives */
    CROSSING,                    /* connections move all the time, and then as PRIMARY */
    WITH_BREAK,                  /* as PRIMARY, and a request fails near that event */
    HOWS
};

static const char *const how_name[HOWS] = {
    "primary", "primary, silent", "primary, far end", "alternate dead", "alternate first", "both",
    "flap", "never armed", "events lost", "crossing", "with a break",
};

/* The cuts of one run: what happens to which port of which IA, so many steps behind the first. */
static const struct fake_cut cuts[HOWS][6] = {
    [PRIMARY] = { { 0, 0, 1, false, true } },
    [PRIMARY_SILENT] = { { 0, 0, 1, false, false } },
    [PRIMARY_FAR] = { { 0, 1, 1, false, true } },
    [ALTERNATE_DEAD] = { { 0, 1, 2, false, false }, { 3, 0, 1, false, true },
                         { 90, 1, 2, true, false }, { 91, 0, 1, true, true } },
    [ALTERNATE_FIRST] = { { 0, 0, 2, false, true }, { 3, 0, 1, false, true },
                          { 40, 0, 2, true, true }, { 80, 0, 1, true, true } },
    [BOTH] = { { 0, 0, 1, false, true }, { 0, 0, 2, false, true },
               { 60, 0, 1, true, true }, { 70, 0, 2, true, true } },
    [FLAP] = { { 0, 0, 1, false, true }, { 4, 0, 1, true, true }, { 9, 0, 1, false, true },
               { 15, 0, 1, true, true }, { 22, 0, 1, false, true }, { 30, 0, 1, true, true } },
    [NEVER_ARMED] = { { 0, 0, 1, false, true } },
    [EVENTS_LOST] = { { 0, 0, 1, false, true } },
    [CROSSING] = { { 0, 0, 1, false, true }, { 50, 0, 1, true, true } },
    [WITH_BREAK] = { { 0, 0, 1, false, true } },
};

enum { CUTS = sizeof(cuts[0]) / sizeof(cuts[0][0]), LAST = 100 };

/* Does no connection of a run with this fault end, if it is armed when that happens? */
static bool moves_only(enum how how)
{
    return how == PRIMARY || how == PRIMARY_SILENT || how == PRIMARY_FAR || how == EVENTS_LOST
           || how == FLAP;
}

/* Traffic until this step; where nothing moves any more, since all paths are out, the rest of the
 * cuts is made all the same. */
static void reach(struct sim *s, unsigned step, const struct fake_cut *cut)
{
    for (int ms = 0; ms < 300 && fake_steps() < step; ms++) {
        if (ms < 100)
            exchange(s, 2, 300);
        sim_rounds(s, 60);
        *fake_time() += MDAPL_MS(1);
    }
    for (int i = 0; i < CUTS; i++)
        if (cut[i].step > fake_steps())
            fake_port(cut[i].nth_ia, cut[i].port, cut[i].up, cut[i].reported);
    fake_cuts(NULL, 0);
}

static void expect(struct sim *s, int scenario, enum how how, bool armed)
{
    sim_until(s, sim_settled);
    exchange(s, MESSAGES, scenarios[scenario].longest);
    sim_until(s, sim_settled);
    fake_move_at_random(0);
    sim_until(s, all_counted);
    SIM_CHECK(s, s->rank[0].faults == 0 && s->rank[1].faults == 0);
    SIM_CHECK(s, SIM_SUM(s, bad_frames) == 0 && SIM_SUM(s, stale_completions) == 0);
    if (armed && moves_only(how))
        SIM_CHECK(s, SIM_SUM(s, breaks) == 0 && SIM_SUM(s, reconnects) == 0);
    if (how == NEVER_ARMED)
        SIM_CHECK(s, fake_migrated() == 0 && SIM_SUM(s, path_armed) == 0);
    else if (armed && (moves_only(how) || how == CROSSING))
        SIM_CHECK(s, fake_migrated() > 0);
    SIM_CHECK(s, SIM_SUM(s, path_down) == 0 || how != EVENTS_LOST);
}

/* One run; step: the event of the first cut, 0: none. Returns how many events there were. */
static unsigned run(uint64_t seed, int scenario, unsigned step, enum how how, bool armed)
{
    struct fake_fault plan = { (enum fake_fault_kind)(seed % FAKE_FAULT_KINDS), step / 2 + 1 };
    struct fake_cut mine[CUTS];
    unsigned began;
    struct sim s;
    char knobs[200];

    start(&s, seed, 2, 2);
    snprintf(knobs, sizeof(knobs), "path_quiet_ms=5 %s", scenarios[scenario].knobs);
    fake_hold_arming(how == NEVER_ARMED);
    fake_lose_path_events(how == EVENTS_LOST);
    sim_open_all(&s, knobs);
    if (armed) {
        exchange(&s, 2, 300);
        sim_until(&s, all_armed);
    }
    began = fake_steps();
    memcpy(mine, cuts[how], sizeof(mine));
    for (int i = 0; i < CUTS; i++)
        mine[i].step += mine[i].port && step ? began + step : 0;
    fake_cuts(mine, CUTS);
    fake_plan(&plan, how == WITH_BREAK && plan.kind != FAKE_DOUBLED ? 1 : 0);
    fake_move_at_random(how == CROSSING ? 40 : 0);
    exchange(&s, MESSAGES, scenarios[scenario].longest);
    if (step > 0) {
        reach(&s, began + step + LAST, mine);
        expect(&s, scenario, how, armed);
    }
    sim_until(&s, sim_settled);
    sim_until(&s, is_drained);
    began = fake_steps() - began;
    sim_close(&s);
    return began;
}

/* The seed of a run names all of it: scenario, event, fault, and whether it was armed before. */
static void at_every_event(void **state)
{
    int runs = 0;

    (void)state;
    for (int scenario = 0; scenario < SCENARIOS; scenario++) {
        unsigned steps = run((uint64_t)scenario + 1, scenario, 0, PRIMARY, true);

        for (unsigned step = 1; step <= steps; step++)
            for (int how = 0; how < 2 * HOWS; how++) {
                uint64_t seed = ((uint64_t)scenario << 24 | step << 8 | (unsigned)how) + 1;
                bool armed = how < HOWS && how != NEVER_ARMED;

                if (only_seed ? seed != only_seed : (step + (unsigned)how) % 4)
                    continue;
                if (only_seed)
                    fprintf(stderr, "seed %llu: %s; event %u, %s\n", (unsigned long long)seed,
                            scenarios[scenario].knobs, step, how_name[how % HOWS]);
                run(seed, scenario, step, (enum how)(how % HOWS), armed);
                runs++;
            }
    }
    assert_true(shown(runs, 1000));
}

/* -- moving back, and balance ----------------------------------------------------------------- */

static int on(const struct sim *s, unsigned port)
{
    int n = 0;

    for (int r = 0; r < s->n; r++)
        n += on_port[r][port];
    return n;
}

/* A connection is moved back once its first path has been up for as long as the knob says, by one
 * end; without the knob it stays. */
static void back_to_the_first_path(void **state)
{
    enum { QUIET_MS = 50 };

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        bool back = i % 2;
        uint64_t up_at;
        struct sim s;

        start_armed(&s, seed_at(i), 2, back ? "path_back=on path_quiet_ms=50" : "path_quiet_ms=50");
        fake_port((int)i / 2 % 2, 1, false, i % 3);
        exchange(&s, 10, 3000);
        sim_until(&s, sim_settled);
        sim_until(&s, all_counted);
        count_ports(&s);
        SIM_CHECK(&s, fake_migrated() == 1 && on(&s, 2) == 2);
        pass(&s, 10 * QUIET_MS);
        SIM_CHECK(&s, fake_migrated() == 1);
        fake_port((int)i / 2 % 2, 1, true, i % 3);
        up_at = *fake_time();
        for (int ms = 0; ms < 4 * QUIET_MS && fake_migrated() == 1; ms++)
            pass(&s, 1);
        count_ports(&s);
        SIM_CHECK(&s, on(&s, 1) == (back ? 2 : 0));
        SIM_CHECK(&s, !back || *fake_time() - up_at >= MDAPL_MS(QUIET_MS));
        sim_until(&s, all_counted);
        sim_until(&s, all_armed);
        SIM_CHECK(&s, SIM_SUM(&s, path_back) == back && SIM_SUM(&s, path_balanced) == 0);
        exchange(&s, 10, 3000);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        sim_end(&s);
    }
}

/* A path that carries nothing, and nobody reports it: the connection moves, and goes back later. If
 * it cannot move, or does not although it was asked to, it is replaced. */
static void a_silent_path_is_left(void **state)
{
    enum how_left { MOVES, NOT_ARMED, NOT_MOVED, WAYS };

    (void)state;
    for (uint64_t i = 0; i < seeds(8 * WAYS); i++) {
        enum how_left way = (enum how_left)(i % WAYS);
        bool both = i / WAYS % 2;
        int rank = (int)(i / WAYS / 2 % 2);
        struct sim s;

        start(&s, seed_at(i), 2, 2);
        fake_hold_arming(way == NOT_ARMED);
        fake_hold_moves(way == NOT_MOVED);
        sim_open_all(&s, "path_back=on path_quiet_ms=5");
        exchange(&s, 10, 3000);
        sim_until(&s, way == NOT_ARMED ? sim_settled : all_armed);
        sim_until(&s, sim_settled);
        pass(&s, 10);            /* words and acknowledgements have arrived */
        fake_swallow(fake_nth_ep(first_conn(&s, rank)->ep.handle), both);
        sim_send(&s, rank, 1 - rank, 100, false);
        sim_send(&s, rank, 1 - rank, 12000, false);
        sim_until(&s, sim_settled);
        sim_until(&s, all_counted);
        SIM_CHECK(&s, (fake_migrated() > 0) == (way == MOVES));
        SIM_CHECK(&s, (SIM_SUM(&s, breaks) == 0) == (way == MOVES));
        SIM_CHECK(&s, (SIM_SUM(&s, silent) == 0) == (way == MOVES));
        fake_hold_moves(false);
        sim_end(&s);
    }
}

/* Both ends await something of the silent path, so both come to a verdict: the second one is no
 * reason to end the connection, which has moved by then and is about to transmit. */
static void both_ends_of_a_silent_path(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(24); i++) {
        struct sim s;

        start_armed(&s, seed_at(i), 2, "path_back=off");
        exchange(&s, 10, 3000);
        sim_until(&s, sim_settled);
        pass(&s, 10);
        fake_slow_moves(MDAPL_MS(1 + i % 8));
        fake_swallow(fake_nth_ep(first_conn(&s, 0)->ep.handle), true);
        for (int rank = 0; rank < 2; rank++)
            sim_send(&s, rank, 1 - rank, 12000, false);
        sim_until(&s, sim_settled);
        sim_until(&s, all_counted);
        SIM_CHECK(&s, fake_migrated() == 1);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0 && SIM_SUM(&s, silent) == 0);
        sim_end(&s);
    }
}

/* A port that fails and works again all the time does not carry the connection to and fro. */
static void a_flapping_port_is_left_alone(void **state)
{
    enum { QUIET_MS = 50, FLAPS = 200 };

    (void)state;
    for (uint64_t i = 0; i < seeds(6); i++) {
        struct sim s;

        start_armed(&s, seed_at(i), 2, "path_back=on path_quiet_ms=50");
        for (int k = 0; k < FLAPS; k++) {
            fake_port((int)i % 2, 1, k % 2, true);
            exchange(&s, 2, 3000);
            pass(&s, 5);
        }
        SIM_CHECK(&s, fake_migrated() == 1);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        SIM_CHECK(&s, SIM_SUM(&s, path_down) > 1);
        sim_end(&s);
    }
}

/* Do the ports of each rank's adapters carry the same number of connections, but for one? */
static bool is_balanced(struct sim *s)
{
    count_ports(s);
    for (int r = 0; r < s->n; r++)
        if (on_port[r][1] - on_port[r][2] > 1 || on_port[r][2] - on_port[r][1] > 1)
            return false;
    return true;
}

static void tune_all(struct sim *s, const char *value)
{
    struct mdapl_err err;

    for (int r = 0; r < s->n; r++)
        SIM_CHECK(s, mdapl_ctx_tune(s->rank[r].ctx, "path_balance", value, &err) == 0);
}

/* From the begin, or once the knob is written while the job runs. Each connection moves once. */
static void half_of_the_connections_on_each_port(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(24); i++) {
        bool later = i % 2;
        int n = 2 + (int)(i / 2 % 5);
        struct sim s;

        start_armed(&s, seed_at(i), n, later ? "streams=2 wiring=ring"
                                             : "streams=2 wiring=ring path_balance=on");
        exchange(&s, 20, 3000);
        count_ports(&s);
        SIM_CHECK(&s, !later || on(&s, 2) == 0);
        if (later)
            tune_all(&s, "on");
        sim_until(&s, is_balanced);
        sim_until(&s, all_armed);
        sim_until(&s, all_counted);
        SIM_CHECK(&s, fake_migrated() == (unsigned)on(&s, 2) / 2);
        SIM_CHECK(&s, SIM_SUM(&s, path_balanced) == fake_migrated());
        exchange(&s, 20, 3000);
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0 && SIM_SUM(&s, path_back) == 0);
        sim_end(&s);
    }
}

/* A port fails and works again: its connections leave it, and half of all use it again. */
static void balance_survives_a_fault(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(12); i++) {
        unsigned port = 1 + (unsigned)i % 2;
        struct sim s;

        start(&s, seed_at(i), 3, 2);
        sim_open_all(&s, "streams=2 wiring=ring path_balance=on path_quiet_ms=20");
        sim_until(&s, is_balanced);
        sim_until(&s, all_armed);
        fake_port(1, port, false, true);
        exchange(&s, 30, 3000);
        sim_until(&s, sim_settled);
        pass(&s, 100);
        sim_until(&s, all_counted);
        count_ports(&s);
        SIM_CHECK(&s, on_port[1][port] == 0);
        fake_port(1, port, true, true);
        sim_until(&s, is_balanced);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0);
        sim_until(&s, is_drained);
        sim_close(&s);
    }
}

/* The listed alternate, not the provider's choice; and the next one from there. */
static void a_list_of_paths(void **state)
{
    static const unsigned goes_to[] = { 3, 4, 3 };

    (void)state;
    for (uint64_t i = 0; i < seeds(6); i++) {
        unsigned at = 1;
        struct sim s;

        start(&s, seed_at(i), 2, 4);
        sim_open_all(&s, "paths=3:3,4 path_quiet_ms=0");
        for (int k = 0; k < 3; k++) {
            sim_until(&s, all_armed);
            fake_port((int)i % 2, at, false, true);
            fake_port((int)i % 2, at, true, true);
            at = goes_to[k];
            sim_until(&s, all_counted);
            count_ports(&s);
            SIM_CHECK(&s, on(&s, at) == 2);
        }
        sim_end(&s);
    }
}

/* -- ends ------------------------------------------------------------------------------------- */

/* Has the connection been replaced at both ends? */
static bool is_whole(struct sim *s)
{
    return SIM_SUM(s, reconnects) == 2;
}

/* All ports of a rank are out for a while: its connections are replaced, over another port. */
static void all_paths_out_is_an_outage(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        struct sim s;

        start_armed(&s, seed_at(i), 2, "wiring=ring");
        fake_port((int)i % 2, 1 + (unsigned)i / 2 % 2, false, i % 3);
        fake_port((int)i % 2, 2 - (unsigned)i / 2 % 2, false, i % 5);
        exchange(&s, 10, 3000);
        pass(&s, 200);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 2 && SIM_SUM(&s, reconnects) == 0);
        fake_port((int)i % 2, 2, true, true);
        sim_until(&s, sim_settled);
        sim_until(&s, is_whole);
        count_ports(&s);
        SIM_CHECK(&s, on_port[i % 2][2] == 1 && on_port[1 - i % 2][1] == 1);
        SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[1].faults == 0);
        sim_until(&s, all_counted);
        sim_end(&s);
    }
}

/* A job ends while paths are loaded, armed or moved: nothing is left. */
static void the_end_at_any_time(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(60); i++) {
        struct sim s;

        start(&s, seed_at(i), 3, 2);
        sim_open_all(&s, "streams=2 path_balance=on path_quiet_ms=0");
        fake_move_at_random(i % 3 ? 30 : 0);
        exchange(&s, (int)i % 20, 3000);
        sim_until(&s, sim_settled);
        sim_end(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_possible),
        cmocka_unit_test(the_knob_is_read),
        cmocka_unit_test(alternates),
        cmocka_unit_test(every_connection_is_armed),
        cmocka_unit_test(without_paths_no_call),
        cmocka_unit_test(one_port_has_no_alternate),
        cmocka_unit_test(a_peer_without_paths),
        cmocka_unit_test(a_wrong_knob_is_refused),
        cmocka_unit_test(at_every_event),
        cmocka_unit_test(back_to_the_first_path),
        cmocka_unit_test(a_silent_path_is_left),
        cmocka_unit_test(both_ends_of_a_silent_path),
        cmocka_unit_test(a_flapping_port_is_left_alone),
        cmocka_unit_test(half_of_the_connections_on_each_port),
        cmocka_unit_test(balance_survives_a_fault),
        cmocka_unit_test(a_list_of_paths),
        cmocka_unit_test(all_paths_out_is_an_outage),
        cmocka_unit_test(the_end_at_any_time),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
