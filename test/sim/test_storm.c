/* SPDX-License-Identifier: MIT */
/*
 * All connections of a rank break at once, many hundreds of them: all are replaced, the rank has no
 * more requests under way at any time than a constant, and peers that do not answer hold up nobody
 * else. test_storm [SEED [TEST]] runs that one seed (0: all).
 */
#include "unit.h"

#include "conn.h"
#include "peer.h"
#include "seeds.h"
#include "sim.h"

#include <string.h>

enum {
    RANKS = 51, RAILS = 2, STREAMS = 8 * RAILS,
    CONNECTIONS = (RANKS - 1) * STREAMS,         /* of rank 0, with all others */
    LIMIT = 64,                                  /* the knob wiring_inflight's default */
    COMPUTING = 10,                              /* ranks that make no progress */
};

#define KNOBS "wiring=ondemand streams=8 ia=fake,fake ring=off sr_window=2 vbuf_size=512"

static struct sim s;
static bool computes[RANKS];

/* Requests of a rank that are under way. */
static unsigned under_way(int rank)
{
    unsigned n = 0;

    for (int i = 0; i < RAILS; i++)
        n += fake_under_way(rank * RAILS + i);
    return n;
}

/* Streams of rank 0 that are up at both ends, to the ranks that compute or to the others. */
static int up(bool to_computing)
{
    int n = 0;

    for (int r = 1; r < RANKS; r++)
        for (int i = 0; i < STREAMS && computes[r] == to_computing; i++)
            n += mdapl_dapl_stream_up(&sim_dapl_peer(&s, 0, r)->stream[i])
                 && mdapl_dapl_stream_up(&sim_dapl_peer(&s, r, 0)->stream[i]);
    return n;
}

/* One step of the world, and of one rank that does not compute. */
static void one_round(void)
{
    int rank = (int)fake_random(RANKS);

    fake_step();
    if (!computes[rank])
        mdapl_progress(s.rank[rank].ctx);
}

/* Rounds until all connections of rank 0 to those who do not compute are up, and that many of its
 * connections have been replaced; no rank has more requests under way than most at any time.
 * Returns the time that this has taken, ns. */
static uint64_t until_connected(unsigned replaced, unsigned most)
{
    uint64_t began = *fake_time();
    int others = CONNECTIONS;

    for (int r = 1; r < RANKS; r++)
        others -= computes[r] ? STREAMS : 0;
    for (int rounds = 0; SIM_STAT(&s, 0, reconnects) < replaced || up(false) < others; rounds++) {
        for (int k = 0; k < 100; k++) {
            one_round();
            SIM_CHECK(&s, under_way(0) <= most);
        }
        for (int r = 1; r < RANKS; r++)
            SIM_CHECK(&s, under_way(r) <= LIMIT);
        SIM_CHECK(&s, rounds < 100000);
    }
    return *fake_time() - began;
}

static void open_all(uint64_t i)
{
    memset(computes, 0, sizeof(computes));
    sim_start(&s, seed_at(i), RANKS, NULL, NULL);
    s.verbose = only_seed != 0;
    sim_open_all(&s, KNOBS);
}

static void break_all(void)
{
    for (int i = 0; i < RAILS; i++)
        fake_break_all(i);
}

/* Messages both ways, which may be sent before the connections are there again. */
static void send_all(void)
{
    for (int r = 1; r < RANKS; r++) {
        sim_send(&s, 0, r, 200, false);
        sim_send(&s, r, 0, 3000, false);
    }
}

static void all_are_replaced(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(3); i++) {
        open_all(i);
        for (int r = 1; r < RANKS; r++)
            sim_send(&s, r % 2 ? 0 : r, r % 2 ? r : 0, 100, false);
        until_connected(0, LIMIT);
        break_all();
        send_all();
        SIM_CHECK(&s, until_connected(CONNECTIONS, LIMIT) < MDAPL_MS(1000));
        SIM_CHECK(&s, SIM_STAT(&s, 0, breaks) == CONNECTIONS);
        SIM_CHECK(&s, SIM_STAT(&s, 0, reconnects) == CONNECTIONS);
        sim_run(&s);
        sim_end(&s);
    }
}

/* Ranks that compute answer nothing. Rank 0 makes one request for each of their connections, and
 * the others do not wait for that: neither those that nobody has connected before, whose peers make
 * no requests, nor those that break. */
static void those_that_compute_hold_up_nobody(void **state)
{
    const unsigned most = LIMIT + COMPUTING * STREAMS;

    (void)state;
    for (uint64_t i = 0; i < seeds(4); i++) {
        open_all(i);
        for (int r = 1; r <= COMPUTING; r++)
            computes[i % 2 ? RANKS - r : r] = true;
        for (int r = 1; r < RANKS; r++)
            sim_send(&s, 0, r, 100, false);
        SIM_CHECK(&s, until_connected(0, most) < MDAPL_MS(200));
        SIM_CHECK(&s, up(true) == 0);
        break_all();
        send_all();
        SIM_CHECK(&s, until_connected(CONNECTIONS - COMPUTING * STREAMS, most) < MDAPL_MS(200));
        SIM_CHECK(&s, up(true) == 0);
        memset(computes, 0, sizeof(computes));
        until_connected(0, most);
        sim_run(&s);
        sim_end(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_replaced),
        cmocka_unit_test(those_that_compute_hold_up_nobody),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
