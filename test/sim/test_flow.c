/* SPDX-License-Identifier: MIT */
/*
 * Flow control: windows and acknowledgements of one and of several streams. test_flow [SEED [TEST]]
 * runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "conn.h"
#include "err.h"
#include "frames.h"
#include "peer.h"
#include "seeds.h"
#include "sim.h"

#include <stdio.h>
#include <string.h>

static void start(struct sim *s, uint64_t i, int n, const struct fake_faults *faults,
                  const struct fake_limits *limits)
{
    sim_start(s, seed_at(i), n, faults, limits);
    s->verbose = only_seed != 0;
}

/* -- several streams -------------------------------------------------------------------------- */

/* Bursts of at most `most` messages, long bodies among short ones, one way or both, all read at
 * once. */
static void bursts(struct sim *s, int rounds, uint64_t most, uint32_t longest)
{
    bool both = fake_random(2);

    for (int k = 0; k < rounds; k++) {
        for (uint64_t n = 1 + fake_random(most); n > 0; n--) {
            uint32_t len = (uint32_t)(fake_random(3) ? 9000 + fake_random(longest - 9000)
                                                     : fake_random(500));
            int from = both && fake_random(2) ? 1 : 0;

            sim_send(s, from, 1 - from, len, false);
            if (fake_random(2))
                sim_round(s);
        }
        sim_run(s);
    }
}

/* Streams carry WRITTEN frames only one way: no frame in the other direction advertises their
 * windows. */
static void written_on_many_streams(void **state)
{
    static const char *const rndv[] = { "rput", "rput", "copy" };
    char knobs[256];
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(150); i++) {
        start(&s, i, 2, NULL, NULL);
        snprintf(knobs, sizeof(knobs), "streams=%d sr_window=%d stripe_bytes=%d rndv=%s ring=%s",
                 3 + (int)fake_random(6), 4 + (int)fake_random(13),
                 1500 + (int)fake_random(20000), rndv[fake_random(3)],
                 fake_random(2) ? "on" : "off");
        sim_open_all(&s, knobs);
        s.lazy = 1 << fake_random(10);
        bursts(&s, 4, 48, 60000);
        SIM_CHECK(&s, SIM_SUM(&s, rx_rput) + SIM_SUM(&s, rx_copy) > 0);
        sim_end(&s);
    }
}

/* Four adapters without RDMA read and no knob but their names. */
static void four_rails_without_reads(void **state)
{
    static const struct fake_limits no_read = { .dtos = 128, .priv = 56, .rdma = 1 << 20 };
    uint64_t written = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        start(&s, i, 2, NULL, &no_read);
        sim_open_all(&s, "ia=fake,fake,fake,fake");
        s.lazy = 1 << fake_random(10);
        bursts(&s, 3, 48, 600000);
        written += SIM_SUM(&s, rx_rput);
        sim_end(&s);
    }
    assert_true(written > 100);
}

/* -- frames that have overtaken others --------------------------------------------------------- */

/*
 * One connection stands still with a WRITTEN frame on it, another carries a flood of messages
 * behind it. What overtakes is bounded by the windows, and nothing is lost.
 */
static void one_stream_stands_still(void **state)
{
    uint64_t most = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(12); i++) {
        start(&s, i, 2, NULL, NULL);
        sim_open_all(&s, "dead_ms=0 streams=3 rndv=rput stripe_bytes=100000 sr_window=16 "
                         "ring=on ring_after=1");
        fake_hold((int)(i % 6));
        for (int k = 0; k < 3; k++)
            sim_send(&s, 0, 1, 20000, false);
        sim_rounds(&s, 2000);
        for (int k = 0; k < 6000; k++)
            sim_send(&s, 0, 1, 40, false);
        sim_rounds(&s, 80000);
        fake_hold(-1);
        sim_run(&s);
        SIM_CHECK(&s, SIM_SUM(&s, reordered_max) <= 3 * 16 + 32);
        if (most < SIM_SUM(&s, reordered_max))
            most = SIM_SUM(&s, reordered_max);
        sim_end(&s);
    }
    assert_true(most >= 16);     /* it was tried */
}

/* As many frames under way as the knobs allow, the receiver now and then absent. */
static void largest_windows(void **state)
{
    static const struct fake_limits largest = { .dtos = 16384, .reads = 4, .priv = 56,
                                                .rdma = 1 << 20 };
    uint64_t reordered = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(3); i++) {
        start(&s, i, 2, NULL, &largest);
        sim_open_all(&s, "sr_window=4096 sr_total=100000 ring_slots=4096 ep_requests=16384 "
                         "vbuf_size=512 ring=on ring_slot_bytes=128 ring_after=1");
        s.lazy = 1000;
        for (int k = 0; k < 30000; k++) {
            sim_send(&s, 0, 1, (uint32_t)fake_random(60), false);
            for (uint64_t n = fake_random(6); n > 0; n--)
                sim_round(&s);
        }
        sim_run(&s);
        reordered += SIM_SUM(&s, reordered);
        sim_end(&s);
    }
    assert_true(shown(reordered, 0));
}

/* -- ends that differ -------------------------------------------------------------------------- */

/* Frame buffers and windows of different sizes, and one end that keeps no frames: every size of
 * message gets through, also when it was queued before the peer's offer was known. */
static void unlike_knobs(void **state)
{
    static const char *const vbuf[] = { "512", "1000", "8192", "65536" };
    static const char *const window[] = { "2", "5", "16", "100" };
    static const char *const rndv[] = { "rget", "rput", "copy" };
    static const char *const eager[] = { "0", "20000", "65536" };
    static const struct fake_limits plain = { .dtos = 128, .reads = 4, .priv = 56,
                                              .rdma = 1 << 20, .one_segment = true };
    char knobs[256];
    struct mdapl_err err;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(200); i++) {
        start(&s, i, 2, NULL, i % 4 == 0 ? &plain : NULL);
        for (int r = 0; r < 2; r++) {
            snprintf(knobs, sizeof(knobs), "vbuf_size=%s sr_window=%s rndv=%s retain=%s ring=%s "
                     "ring_after=1 ring_slot_bytes=%s streams=%d wiring=%s eager_bytes=%s",
                     vbuf[fake_random(4)], window[fake_random(4)], rndv[fake_random(3)],
                     fake_random(2) ? "on" : "off", fake_random(2) ? "on" : "off",
                     fake_random(2) ? "128" : "65536", 1 + (int)fake_random(3),
                     i % 2 ? "ring" : "ondemand", eager[fake_random(3)]);
            SIM_CHECK(&s, sim_open(&s, r, knobs, &err) == 0);
        }
        sim_connect(&s);
        bursts(&s, 3, 40, 70000);
        sim_end(&s);
    }
}

/* The window of rank 0 on its connection to this rank, which has as many receives. */
static uint32_t window_for(struct sim *s, int rank)
{
    const struct mdapl_dapl_conn *conn = sim_dapl_peer(s, 0, rank)->stream[0].conn;

    SIM_CHECK(s, conn->ep.recv_posted == conn->rxwin.size + MDAPL_SR_RESERVE);
    return conn->rxwin.size;
}

/* Each peer has the receives that its traffic needs: one whose frames are answered one by one, in
 * all however many, a quarter. The next connection begins with those of the last one. */
static void windows_grow_with_traffic(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        start(&s, i, 3, NULL, NULL);
        sim_open_all(&s, "wiring=ring ring=off sr_window=32");
        for (uint32_t k = 0; k < 40; k++)
            for (int r = 1; r < 3; r++) {
                sim_send(&s, r, 0, 10, false);
                sim_run(&s);
                sim_send(&s, 0, r, 10, false);
                sim_run(&s);
            }
        SIM_CHECK(&s, window_for(&s, 1) <= 8 && window_for(&s, 2) <= 8);
        for (uint32_t k = 0; k < 80; k++)
            sim_send(&s, 1, 0, 150 + k * 10, false);
        sim_run(&s);
        SIM_CHECK(&s, window_for(&s, 1) == 32 && window_for(&s, 2) <= 8);
        fake_break_all(0);
        sim_send(&s, 1, 0, 10, false);
        sim_send(&s, 2, 0, 10, false);
        sim_run(&s);
        SIM_CHECK(&s, window_for(&s, 1) == 32 && window_for(&s, 2) <= 8);
        sim_end(&s);
    }
}

/* Windows of a larger job may become less long, but 32 frames long in any; an adapter may have less
 * room, too. */
static void windows_are_shared(void **state)
{
    static const struct { int ranks; const char *knobs; struct fake_limits limits; uint32_t most; }
    row[] = {
        { 2, "sr_window=300", { .dtos = 4096 }, 300 },
        { 2, "sr_total=200", { .dtos = 4096 }, 100 },
        { 3, "sr_total=300 streams=2", { .dtos = 4096 }, 50 },
        { 4, "sr_total=64", { .dtos = 4096 }, 32 },
        { 4, "sr_total=64 sr_window=20", { .dtos = 4096 }, 20 },
        { 2, "", { .dtos = 100 }, 98 },
        { 2, "", { .dtos = 4096, .evd_qlen = 200 }, 98 },
        { 2, "ep_requests=40", { .dtos = 4096, .evd_qlen = 200 }, 158 },
    };
    struct sim s;

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct fake_limits limits = row[i].limits;
        char knobs[128];

        limits.reads = 4;
        limits.priv = 56;
        limits.rdma = 1 << 20;
        start(&s, i, row[i].ranks, NULL, &limits);
        snprintf(knobs, sizeof(knobs), "wiring=ring ring=off %s", row[i].knobs);
        sim_open_all(&s, knobs);
        for (uint32_t k = 0; k < 2000; k++)
            sim_send(&s, 1, 0, 10, false);
        sim_run(&s);
        SIM_CHECK(&s, window_for(&s, 1) == row[i].most);
        sim_end(&s);
    }
}

/* Memory for some hundred short frames. */
static const struct fake_limits few = { .dtos = 4096, .reads = 4, .priv = 56, .rdma = 1 << 20,
                                        .lmr = 160000, .lmrs = 2 };

/* One peer's window takes what memory there is, but for what the connections of others need. */
static void a_long_window_leaves_memory(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        start(&s, i, 5, NULL, &few);
        sim_open_all(&s, "wiring=ondemand ring=off vbuf_size=1000");
        for (int k = 0; k < 2000; k++)
            sim_send(&s, 1, 0, 10, false);
        sim_run(&s);
        SIM_CHECK(&s, window_for(&s, 1) > 32);
        for (int r = 2; r < 5; r++)
            sim_send(&s, r, 0, 10, false);
        sim_run(&s);
        SIM_CHECK(&s, SIM_STAT(&s, 0, cr_refused) == 0 && s.rank[0].faults == 0);
        sim_end(&s);
    }
}

#define PLAIN "wiring=ondemand dead_ms=0 ring=off"    /* no frames but those that are needed */

/* A message in a frame of one end's size goes to an end with smaller buffers in several. */
static void queued_before_the_offer(void **state)
{
    struct mdapl_err err;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        start(&s, i, 2, NULL, NULL);
        SIM_CHECK(&s, sim_open(&s, 0, PLAIN " vbuf_size=8192", &err) == 0);
        SIM_CHECK(&s, sim_open(&s, 1, PLAIN " vbuf_size=1024", &err) == 0);
        for (uint32_t k = 0; k < 20; k++)
            sim_send(&s, 0, 1, 100 * k, false);
        sim_run(&s);
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_eager) == 20 && SIM_STAT(&s, 0, tx_rndv) == 0);
        /* up to 900 bytes one, up to 1900 two */
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_frames) == 10 + 2 * 10 + SIM_STAT(&s, 0, tx_acks));
        sim_send(&s, 0, 1, 1024 - 24 - 12, false);       /* fits: 24 of the header, 12 of ours */
        sim_send(&s, 0, 1, 1024 - 24 - 12 + 1, false);
        sim_run(&s);
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_frames) == 33 + SIM_STAT(&s, 0, tx_acks));
        sim_end(&s);
    }
}

/* -- acknowledgements and counters ----------------------------------------------------------- */

static const struct fake_limits large = { .dtos = 4096, .reads = 4, .priv = 56, .rdma = 1 << 20 };

/* One way, without a window update (the window is large) and without an end of patience. */
static void one_way(struct sim *s, uint64_t i, const char *knobs, int messages, uint32_t len)
{
    char all[256];

    start(s, i, 2, NULL, &large);
    snprintf(all, sizeof(all), "dead_ms=0 ring=off wiring=ring sr_window=2000 sr_total=4000 "
             "ack_idle_us=60000000 %s", knobs);
    sim_open_all(s, all);
    for (int k = 0; k < 9; k++)
        mdapl_dapl_rx_grow_window(sim_dapl_peer(s, 1, 0)->stream[0].conn);
    sim_send(s, 1, 0, 10, false);
    sim_run(s);
    for (int k = 0; k < messages; k++)
        sim_send(s, 0, 1, len, false);
    sim_run(s);
    sim_rounds(s, 500);
}

/* Acknowledgements of rank 1 beside the one by which it, the caller, has opened the connection. */
static uint64_t acks(struct sim *s)
{
    return SIM_STAT(s, 1, tx_acks) - 1;
}

static void when_acknowledgements_leave(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        one_way(&s, i, "ack_frames=5", 100, 10);
        SIM_CHECK(&s, acks(&s) >= 2 && acks(&s) <= 100 / 5);
        sim_end(&s);
        one_way(&s, i, "ack_frames=4096 ack_bytes=10000", 95, 1000);     /* 1036 in each frame */
        SIM_CHECK(&s, acks(&s) >= 2 && acks(&s) <= 95 / 10);
        sim_end(&s);
        one_way(&s, i, "ack_frames=4096 ack_bytes=1g", 100, 1000);
        SIM_CHECK(&s, acks(&s) == 0);
        SIM_CHECK(&s, SIM_STAT(&s, 0, retained_max) == 100);
        SIM_CHECK(&s, SIM_STAT(&s, 0, retained_bytes_max) == 100 * 1036);
        *fake_time() += UINT64_C(61000000000);
        sim_rounds(&s, 500);
        SIM_CHECK(&s, acks(&s) == 1);
        sim_end(&s);
    }
}

/* One of so many sends in a row makes an event. */
static void events_of_batches(void **state)
{
    static const struct { const char *knobs; uint64_t batch; } row[] = {
        { "", 80 }, { "ep_requests=32", 20 }, { "ep_requests=4", 2 }, { "suppress=off", 1 },
    };
    struct sim s;

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        one_way(&s, i, row[i].knobs, 500, 10);
        SIM_CHECK(&s, SIM_STAT(&s, 0, dtos) - SIM_STAT(&s, 0, rx_frames)
                          == SIM_STAT(&s, 0, tx_frames) / row[i].batch);
        sim_end(&s);
    }
}

/* Who waits for one message has it with one call; in a stream more are taken at a time. */
static void a_poll_takes_one_of_one(void **state)
{
    unsigned before;
    struct sim s;

    (void)state;
    one_way(&s, 0, "", 10, 100);
    before = fake_looked_behind();
    for (int k = 0; k < 40; k++) {
        sim_send(&s, k % 2, 1 - k % 2, 100, false);
        sim_run(&s);
        sim_rounds(&s, 2);
    }
    SIM_CHECK(&s, fake_looked_behind() == before);
    for (int k = 0; k < 40; k++)
        sim_send(&s, 0, 1, 100, false);
    sim_run(&s);
    SIM_CHECK(&s, fake_looked_behind() - before < 40 / 2);
    sim_end(&s);
}

/* The sender has memory for a few frames only, all of which are retained: it asks for the
 * acknowledgement that frees them. */
static void buffers_are_asked_for(void **state)
{
    struct mdapl_err err;
    char knobs[160];
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        start(&s, i, 3, NULL, &few);
        for (int r = 0; r < 3; r++) {
            snprintf(knobs, sizeof(knobs), "wiring=ring dead_ms=0 ring=off sr_window=200 "
                     "ack_frames=4096 ack_bytes=1g ack_idle_us=60000000 vbuf_size=%d",
                     r == 0 ? 8192 : 512);
            SIM_CHECK(&s, sim_open(&s, r, knobs, &err) == 0);
        }
        sim_connect(&s);
        for (int k = 0; k < 400; k++)
            sim_send(&s, 0, 1 + k % 2, 10, false);
        sim_run(&s);
        SIM_CHECK(&s, SIM_STAT(&s, 0, vbuf_stalls) > 0);
        sim_end(&s);
    }
}

/* Ten messages in a frame each and one by rendezvous, nothing else: each counter is known. */
static void counters_of_known_traffic(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        start(&s, i, 2, NULL, NULL);
        sim_open_all(&s, "dead_ms=0 ring=off");
        for (int k = 0; k < 10; k++)
            sim_send(&s, 0, 1, 100, false);
        sim_send(&s, 0, 1, 20000, false);
        sim_run(&s);
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_msgs) == 11 && SIM_STAT(&s, 1, rx_msgs) == 11);
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_bytes) == 21000 && SIM_STAT(&s, 1, rx_bytes) == 21000);
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_eager) == 10 && SIM_STAT(&s, 0, tx_eager_bytes) == 1000);
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_rndv) == 1 && SIM_STAT(&s, 0, tx_rndv_bytes) == 20000);
        SIM_CHECK(&s, SIM_STAT(&s, 1, rx_rget) == 1 && SIM_STAT(&s, 1, rx_rget_bytes) == 20000);
        SIM_CHECK(&s, SIM_STAT(&s, 1, rdma_bytes) == 20000 && SIM_STAT(&s, 0, rdma_bytes) == 0);
        SIM_CHECK(&s, SIM_SUM(&s, rx_rput_bytes) == 0 && SIM_SUM(&s, rx_copy_bytes) == 0);
        /* MSG: 24 + 12 + 100 bytes; RTS: 24 + 12 + 16, 4 + one piece of 20; FIN: 24 + 8; ACK: 24 */
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_frames) == 11 + SIM_STAT(&s, 0, tx_acks));
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_sr_bytes)
                          == 10 * 136 + 76 + 24 * SIM_STAT(&s, 0, tx_acks));
        SIM_CHECK(&s, SIM_STAT(&s, 1, tx_frames) == 1 + SIM_STAT(&s, 1, tx_acks));
        SIM_CHECK(&s, SIM_STAT(&s, 1, tx_sr_bytes) == 32 + 24 * SIM_STAT(&s, 1, tx_acks));
        sim_rounds(&s, 500);
        SIM_CHECK(&s, SIM_STAT(&s, 1, rx_frames) == SIM_STAT(&s, 0, tx_frames));
        SIM_CHECK(&s, SIM_SUM(&s, tx_ring) == 0 && SIM_SUM(&s, tx_ring_bytes) == 0);
        sim_end(&s);
    }
}

/* A message that is sent at once, and one that has to wait for its connection, take the frames that
 * they need and no other one. */
static void counters_of_several_frames(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        start(&s, i, 2, NULL, NULL);
        sim_open_all(&s, PLAIN " eager_bytes=20000 vbuf_size=1024 sr_window=100");
        for (uint64_t k = 1; k <= 2; k++) {
            sim_send(&s, 0, 1, 20000, false);
            sim_run(&s);
            SIM_CHECK(&s, SIM_STAT(&s, 0, tx_eager) == k && SIM_STAT(&s, 0, tx_rndv) == 0);
            SIM_CHECK(&s, SIM_STAT(&s, 1, rx_msgs) == k && SIM_STAT(&s, 1, rx_bytes) == k * 20000);
            /* HEAD: 24 + 12 + 8 + 980 bytes; 19 MOREs of 24 + 8 + 992 and one with the last 172 */
            SIM_CHECK(&s, SIM_STAT(&s, 0, tx_frames) == k * 21 + SIM_STAT(&s, 0, tx_acks));
            SIM_CHECK(&s, SIM_STAT(&s, 0, tx_sr_bytes)
                              == k * (21 * (24 + 8) + 12 + 20000) + 24 * SIM_STAT(&s, 0, tx_acks));
            SIM_CHECK(&s, SIM_STAT(&s, 1, tx_frames) == SIM_STAT(&s, 1, tx_acks));
        }
        sim_send(&s, 0, 1, 20000 + 128 - 12 + 1, false);
        sim_run(&s);
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_eager) == 2 && SIM_STAT(&s, 0, tx_rndv) == 1);
        sim_end(&s);
    }
}

/* The other ways of a long body, and the stalls of a narrow endpoint. */
static void counters_of_written_and_copied(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        bool copy = i % 2;

        start(&s, i, 2, NULL, NULL);
        sim_open_all(&s, copy ? "rndv=copy ring=off ep_requests=4" : "rndv=rput ep_requests=4");
        for (int k = 0; k < 20; k++)
            sim_send(&s, 0, 1, 50000, false);
        sim_run(&s);
        SIM_CHECK(&s, SIM_STAT(&s, 1, rx_copy_bytes) == (copy ? 1000000 : 0));
        SIM_CHECK(&s, SIM_STAT(&s, 1, rx_rput_bytes) == (copy ? 0 : 1000000));
        SIM_CHECK(&s, SIM_STAT(&s, 0, rdma_bytes) == (copy ? 0 : 1000000));
        SIM_CHECK(&s, !copy || SIM_STAT(&s, 0, dto_stalls) > 0);
        sim_end(&s);
    }
}

/* Slots of the ring lane for one peer only. */
static void ring_for_few_peers(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        int with_ring = 0;

        start(&s, i, 4, NULL, NULL);
        sim_open_all(&s, "ring=on ring_after=1 ring_peers=1");
        for (int k = 0; k < 60; k++)
            sim_send(&s, 1 + k % 3, 0, 40, false);
        sim_run(&s);
        for (int k = 0; k < 60; k++) {       /* while they exchange messages */
            sim_send(&s, 1 + k % 3, 0, 40, false);
            sim_run(&s);
        }
        for (int r = 1; r < 4; r++) {
            with_ring += SIM_STAT(&s, r, tx_ring) > 0;
            SIM_CHECK(&s, (SIM_STAT(&s, r, tx_ring) > 0) == (SIM_STAT(&s, r, tx_ring_bytes) > 0));
        }
        SIM_CHECK(&s, with_ring == 1);
        sim_end(&s);
    }
}

/* -- few registrations ------------------------------------------------------------------------- */

/* One registration is of frame buffers, a body takes the other. While the body waits for its RTS to
 * be transmitted there are no more buffers to be had, whatever the windows would like. */
static void exchange_scarce(struct sim *s)
{
    for (int k = 0; k < 600; k++) {
        int from = (int)fake_random(4), to = (from + 1 + (int)fake_random(3)) % 4;

        sim_send(s, from, to, (uint32_t)fake_random(fake_random(3) ? 500 : 60000), false);
        sim_rounds(s, (int)fake_random(10));
    }
    sim_run(s);
}

static const struct fake_limits two = { .dtos = 64, .reads = 4, .priv = 56, .rdma = 1 << 20,
                                        .lmrs = 2 };

static void two_registrations(void **state)
{
    uint64_t stalls = 0, registered = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(60); i++) {
        start(&s, i, 4, NULL, &two);
        sim_open_all(&s, "sr_window=60 vbuf_size=8192");
        exchange_scarce(&s);
        stalls += SIM_SUM(&s, vbuf_stalls);
        registered += SIM_SUM(&s, rx_rget) + SIM_SUM(&s, rx_rput);
        sim_end(&s);
    }
    assert_true(stalls > 0 && registered > 0);
}

/* A connection that breaks has had more slots than there may be buffers for, for the next one. */
static void broken_with_two_registrations(void **state)
{
    struct fake_fault plan[40];
    uint64_t breaks = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(60); i++) {
        start(&s, i, 4, NULL, &two);
        sim_open_all(&s, "ft=on sr_window=16 vbuf_size=8192");
        for (int k = 0; k < 40; k++)
            plan[k] = (struct fake_fault){ FAKE_THEN_BREAK, fake_executed() + 50 * (unsigned)k
                                                                + (unsigned)fake_random(50) };
        fake_plan(plan, 40);
        exchange_scarce(&s);
        breaks += SIM_SUM(&s, breaks);
        sim_end(&s);
    }
    assert_true(breaks > 60 * 10);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_on_many_streams),
        cmocka_unit_test(four_rails_without_reads),
        cmocka_unit_test(one_stream_stands_still),
        cmocka_unit_test(largest_windows),
        cmocka_unit_test(unlike_knobs),
        cmocka_unit_test(windows_grow_with_traffic),
        cmocka_unit_test(windows_are_shared),
        cmocka_unit_test(a_long_window_leaves_memory),
        cmocka_unit_test(queued_before_the_offer),
        cmocka_unit_test(when_acknowledgements_leave),
        cmocka_unit_test(events_of_batches),
        cmocka_unit_test(a_poll_takes_one_of_one),
        cmocka_unit_test(buffers_are_asked_for),
        cmocka_unit_test(counters_of_known_traffic),
        cmocka_unit_test(counters_of_several_frames),
        cmocka_unit_test(counters_of_written_and_copied),
        cmocka_unit_test(ring_for_few_peers),
        cmocka_unit_test(two_registrations),
        cmocka_unit_test(broken_with_two_registrations),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
