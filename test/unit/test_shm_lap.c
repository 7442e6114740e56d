/* SPDX-License-Identifier: MIT */
/*
 * The laps of bodies in a ring (src/shm/lap.c), on processors that are given as costs, in virtual
 * time: a writer settles on the faster ones.
 */
#include "shm_ranks.h"

enum { LEN = 32768, DEPTH = 8, BURST = 100, BODIES = 8000 };

/* ns for a body. */
struct machine {
    const char *name;
    uint64_t ns[MDAPL_LAPS];
    uint8_t best;
};

/* Of measurements: a Xeon with 2 cores, and an AMD whose cores are near. */
static const struct machine machines[] = {
    { "lines that stay are near", { 2840, 2500 }, MDAPL_LAP_SHORT },
    { "lines that stay are far", { 2400, 5400 }, MDAPL_LAP_LONG },
};

/* Rank 1 takes a body. */
static void take(struct pair *p)
{
    rounds(&p->rank[1], 1);
    assert_int_equal(p->rank[1].n_announced, 1);
    assert_null(last_rx(&p->rank[1]));
    p->rank[1].n_announced = 0;
}

/* Sends n bodies, of which DEPTH are in flight. A program with pauses has none now and then.
 * Returns how many bodies were not in the best laps. */
static int stream(struct pair *p, const struct machine *m, int n, bool pauses)
{
    const struct mdapl_shm_spsc_tx *tx = &mdapl_shm_peer_of(p->rank[0].other)->tx;
    int other = 0;

    for (int i = 0; i < n + DEPTH; i++) {
        if (pauses && i % BURST == 0)
            p->now += MDAPL_SEC(i % 7 + 1);
        if (i < n) {
            other += tx->lap != m->best;
            assert_int_equal(send_now(&p->rank[0], 0, LEN), MDAPL_DONE);
            p->now += m->ns[tx->lap];
        }
        if (i >= DEPTH)
            take(p);
    }
    return other;
}

/* Is this lap in use, and does it end where it should? What the writer does not know to be taken is
 * not overwritten, up to all slots. */
static void assert_laps(const struct mdapl_shm_peer *peer, uint8_t best)
{
    uint64_t most = peer->s->spread.lap[best] + MDAPL_SLOTS * MDAPL_SHM_PART;

    assert_int_equal(peer->tx.lap, best);
    if (best == MDAPL_LAP_SHORT)
        assert_in_range(peer->tx.put % peer->tx.room, 1, most);
}

static void settles(struct pair *p, const struct machine *m)
{
    struct mdapl_shm_peer *peer = mdapl_shm_peer_of(p->rank[0].other);

    assert_int_equal(send_now(&p->rank[0], 0, 8), MDAPL_DONE);
    rounds(&p->rank[1], 1);
    p->rank[1].n_announced = 0;
    if (peer->tx.room <= peer->s->spread.lap[MDAPL_LAP_SHORT])
        SKIP_TEST("inrings are small here: there are no laps to choose from");
    assert_int_equal(peer->tx.lap, MDAPL_LAP_LONG);
    for (int pauses = 0; pauses < 2; pauses++) {
        stream(p, m, BODIES, pauses);
        assert_in_range(stream(p, m, BODIES, pauses), 0, BODIES / 10);
        assert_laps(peer, m->best);
    }
}

static void short_laps_are_faster(void **state)
{
    settles(*state, &machines[0]);
}

static void long_laps_are_faster(void **state)
{
    settles(*state, &machines[1]);
}

/* Another rank of the node begins with what has been decided. */
static void the_node_decides_once(void **state)
{
    struct pair *p = *state;
    struct mdapl_shm_peer *back = mdapl_shm_peer_of(p->rank[1].other);

    settles(p, &machines[0]);
    assert_int_equal(back->tx.lap, MDAPL_LAP_LONG);
    for (int i = 0; i < 2; i++)  /* the first one may be in the pair buffer */
        assert_int_equal(send_now(&p->rank[1], 0, LEN), MDAPL_DONE);
    assert_int_equal(back->tx.lap, MDAPL_LAP_SHORT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(short_laps_are_faster), TEST(long_laps_are_faster),
        TEST(the_node_decides_once),
    };

    return RUN(tests);
}
