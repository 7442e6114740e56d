/* SPDX-License-Identifier: MIT */
/*
 * Bodies through connections that end: every byte once, and none in memory that its owner has back.
 * test_bodies [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "conn.h"
#include "peer.h"
#include "rndv.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t only_seed;

static uint64_t seeds(uint64_t n)
{
    return only_seed ? 1 : n;
}

static void start(struct sim *s, uint64_t i)
{
    sim_start(s, only_seed ? only_seed : i + 1, 2, NULL, NULL);
    s->verbose = only_seed != 0;
    s->keep = true;
}

static struct mdapl_dapl_peer *peer_of(struct sim *s, int rank)
{
    struct mdapl_peer *peer;

    SIM_CHECK(s, mdapl_peer_get(s->rank[rank].ctx, 1 - rank, &peer) == 0);
    return mdapl_dapl_peer_of(peer);
}

/* -- another request of the same bytes --------------------------------------------------------- */

/* The knobs of the runs: each way, one or more connections, bodies in one piece or in many. */
static const char *const ways[] = {
    "ring=off rndv=rput",
    "ring=off rndv=rput rndv_segment=4096 ep_requests=4",
    "ring=off rndv=rput streams=3 stripe_bytes=1000 rndv_segment=4096",
    "ring=off rndv=rput ia=fake,fake stripe_bytes=1000",
    "ring=off rndv=rget streams=2 stripe_bytes=1000",
    "ring=off rndv=copy streams=2 vbuf_size=1000",
};

enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/*
 * The receiver learns at any moment that a connection has drained, although none has ended: it
 * requests the rest anew, the sender stops what it writes and waits for it, and the names of the
 * older writes change nothing.
 */
static void requested_anew(void **state)
{
    uint64_t restarts = 0, old = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(600); i++) {
        start(&s, i);
        sim_open_all(&s, ways[i % WAYS]);
        s.lazy = 1 << fake_random(5);
        for (int k = 0; k < 3; k++)
            sim_send(&s, 0, 1, 20000 + (uint32_t)fake_random(30000), k == 1);
        for (int k = 0; k < 4; k++) {
            struct mdapl_dapl_peer *peer = peer_of(&s, 1);

            sim_rounds(&s, (int)fake_random(40));
            mdapl_dapl_rndv_drained(&peer->stream[fake_random((uint64_t)peer->n_streams)]);
        }
        sim_run(&s);
        restarts += SIM_STAT(&s, 1, rndv_restarts);
        old += SIM_STAT(&s, 1, old_frames);
        SIM_CHECK(&s, i % WAYS < 4 || SIM_STAT(&s, 1, rndv_restarts) == 0);
        sim_end(&s);
    }
    assert_true(only_seed || (restarts > 200 && old > 100));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requested_anew),
    };

    if (argc > 1)
        only_seed = strtoull(argv[1], NULL, 0);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return RUN(tests);
}
