/* SPDX-License-Identifier: MIT */
/*
 * What a replay needs: control frames are bytes from the moment they are queued, a retained frame
 * can be posted again while its first post is incomplete, a rendezvous has a ledger of its bytes.
 * test_replay [SEED [TEST]] runs that one seed with the frames shown; SEED 0: all, TEST alone.
 */
#include "unit.h"

#include "conn.h"
#include "err.h"
#include "peer.h"
#include "seeds.h"
#include "frames.h"
#include "window.h"
#include "sim.h"
#include "vbuf.h"
#include "wire.h"

#include <string.h>

enum { FRAME_BYTES = 8192 };

static void start(struct sim *s, uint64_t i)
{
    sim_start(s, seed_at(i), 2, NULL, NULL);
    s->verbose = only_seed != 0;
}

/* The oldest retained frame of a type; NULL: none. */
static struct mdapl_dapl_vbuf *retained(const struct mdapl_dapl_peer *peer, uint8_t type)
{
    MDAPL_LIST_EACH(pos, &peer->retained) {
        struct mdapl_dapl_vbuf *b = MDAPL_OF(pos, struct mdapl_dapl_vbuf, link);

        if (b->data[0] == type)
            return b;
    }
    return NULL;
}

/* -- control frames ---------------------------------------------------------------------------- */

/* The RTS waits for the connection as the bytes that are transmitted later. */
static void control_frames_are_bytes(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        uint8_t queued[sizeof(((struct mdapl_dapl_item *)NULL)->u.bytes)];
        struct mdapl_dapl_peer *peer;
        struct mdapl_dapl_vbuf *b = NULL;
        struct mdapl_dapl_item *it;
        struct mdapl_err err;
        struct mdapl_dapl_rts rts;
        uint32_t len;

        start(&s, i);
        for (int r = 0; r < 2; r++)
            SIM_CHECK(&s, sim_open(&s, r, "wiring=ondemand ring=off", &err) == 0);
        sim_send(&s, 0, 1, 20000, false);
        peer = sim_dapl_peer(&s, 0, 1);
        it = MDAPL_OF(mdapl_list_first(&peer->queue), struct mdapl_dapl_item, link);
        SIM_CHECK(&s,
                  it->type == MDAPL_FRAME_RTS && mdapl_dapl_rts_get(&rts, it->u.bytes, it->len));
        SIM_CHECK(&s, rts.body_len == 20000 && rts.at.n == 1);
        len = it->len;
        memcpy(queued, it->u.bytes, len);
        while (!b) {
            sim_round(&s);
            b = retained(peer, MDAPL_FRAME_RTS);
        }
        SIM_CHECK(&s, b->len == MDAPL_FRAME_HDR_BYTES + 12 + len);
        SIM_CHECK(&s, memcmp(b->data + MDAPL_FRAME_HDR_BYTES + 12, queued, len) == 0);
        sim_run(&s);
        sim_end(&s);
    }
}

/* -- the same buffer twice --------------------------------------------------------------------- */

/*
 * A message is posted on stream 0 and, before that post has completed, again on stream 1; one of
 * four endpoints stands still meanwhile, and many later messages take every free buffer. The buffer
 * is freed only when both posts have completed and the frame is acknowledged, and the message is
 * announced once.
 */
static void posted_twice(void **state)
{
    int first_is_out = 0, second_is_out = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(80); i++) {
        struct mdapl_dapl_peer *peer;
        struct mdapl_dapl_vbuf *b;
        uint32_t psn;

        start(&s, i);
        sim_open_all(&s, "ring=off streams=2 suppress=off ack_idle_us=1000");
        sim_rounds(&s, 200);
        peer = sim_dapl_peer(&s, 0, 1);
        fake_hold((int)(i % 4));
        sim_send(&s, 0, 1, 100, false);
        b = retained(peer, MDAPL_FRAME_MSG);
        SIM_CHECK(&s, b && b->holds == 2);
        psn = b->psn;
        SIM_CHECK(&s, mdapl_dapl_tx_repost(&peer->stream[1], b) == 0);
        SIM_CHECK(&s, b->holds == 3);
        for (int k = 0; k < 3000; k++) {
            bool out[2] = { k > 0 && peer->stream[0].up->ep.req_posted > 0,
                            peer->stream[1].up->ep.req_posted > 0 };

            if (k % 100 == 99 && k < 2000)
                sim_send(&s, 0, 1, 40, false);
            sim_round(&s);
            if (peer->stream[1].up->ep.req_posted > 0)
                SIM_CHECK(&s, b->holds > 0 && b->psn == psn);
            if (k == 2500) {     /* nothing moves any more: the one that stands still is left */
                bool acked = peer->tx_acked > psn;

                first_is_out += acked && out[0] && !out[1] && b->holds == 1;
                second_is_out += acked && out[1] && b->holds == 1;
            }
        }
        fake_hold(-1);
        sim_run(&s);
        sim_rounds(&s, 500);
        SIM_CHECK(&s, SIM_STAT(&s, 1, dup) == 1);
        SIM_CHECK(&s, b->holds == 0 || b->psn != psn);
        sim_end(&s);
    }
    assert_true(shown(first_is_out, 5) && shown(second_is_out, 5));
}

/* -- what a rendezvous receives twice --------------------------------------------------------- */

/* The stream that carried a frame. */
static uint32_t carried_on(const uint8_t *frame, size_t len)
{
    struct mdapl_dapl_written written;

    return frame[0] == MDAPL_FRAME_WRITTEN
                   && mdapl_dapl_written_get(&written, frame + MDAPL_FRAME_HDR_BYTES,
                                             len - MDAPL_FRAME_HDR_BYTES)
               ? written.stream : 0;
}

/* Delivers the frame in b to a rank once more, as one in its turn on the connection that carried
 * it: a replay under a new number. */
static void deliver_again(struct sim *s, int rank, const struct mdapl_dapl_vbuf *b)
{
    struct mdapl_dapl_peer *peer = sim_dapl_peer(s, rank, 1 - rank);
    uint8_t frame[FRAME_BYTES];
    uint64_t credit = 0;
    struct mdapl_dapl_frame f;

    memcpy(frame, b->data, b->len);
    SIM_CHECK(s, mdapl_dapl_frame_get(&f, frame, b->len));
    f.psn = (uint32_t)peer->rx_next;
    mdapl_dapl_frame_put(&f, frame);
    mdapl_dapl_rx_frame(&peer->stream[carried_on(frame, b->len)], &credit, frame, b->len);
    peer->rx_next--;             /* the frame with this number has not arrived */
}

/* Half of a body is written, the other half stands still: the first half is reported twice, which
 * is not all of the body. */
static void written_twice(void **state)
{
    struct sim s;
    int tried = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(40); i++) {
        struct mdapl_dapl_vbuf *b;

        start(&s, i);
        sim_open_all(&s, "ring=off streams=2 rndv=rput stripe_bytes=1000 ack_idle_us=60000000");
        sim_rounds(&s, 200);
        sim_send(&s, 0, 1, 40000, false);
        fake_hold((int)(i % 4));
        sim_rounds(&s, 2000);
        b = retained(sim_dapl_peer(&s, 0, 1), MDAPL_FRAME_WRITTEN);
        if (b && !sim_settled(&s)
            && mdapl_seq_before(b->psn, (uint32_t)sim_dapl_peer(&s, 1, 0)->rx_next)) {
            deliver_again(&s, 1, b);
            deliver_again(&s, 1, b);
            sim_rounds(&s, 200);
            SIM_CHECK(&s, !sim_settled(&s));
            tried++;
        }
        fake_hold(-1);
        sim_run(&s);
        sim_end(&s);
    }
    assert_true(shown(tried, 5));
}

/*
 * A CTS again, for bytes that have been written: they are written once more, a few pieces at a
 * time, and the answer is not over before its last piece has been posted.
 */
static void asked_twice(void **state)
{
    int tried = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        struct mdapl_dapl_vbuf *b = NULL;
        uint64_t written;

        start(&s, i);
        sim_open_all(&s, "ring=off rndv=rput rndv_segment=4096 ep_requests=4");
        sim_rounds(&s, 200);
        sim_send(&s, 0, 1, 40000, false);
        for (int k = 0; k < 2000 && !b && !sim_settled(&s); k++) {
            sim_round(&s);
            b = retained(sim_dapl_peer(&s, 1, 0), MDAPL_FRAME_CTS);
        }
        /* Rank 1 computes, so the CTS stays open. */
        for (int k = 0; b && k < 1000; k++) {
            fake_step();
            mdapl_progress(s.rank[0].ctx);
        }
        written = SIM_STAT(&s, 0, rdma_bytes);
        if (b && written == 40000) {
            deliver_again(&s, 0, b);
            for (int k = 0; k < 1000; k++) {
                if (k % 8 == 0)          /* completions of several pieces in one round */
                    mdapl_progress(s.rank[0].ctx);
                fake_step();
            }
            SIM_CHECK(&s, SIM_STAT(&s, 0, rdma_bytes) == 2 * written);
            tried++;
        }
        sim_run(&s);             /* what is named after the FIN is skipped */
        sim_end(&s);
    }
    assert_true(shown(tried, 10));
}

/* A body in so many pieces that one WRITTEN does not name those of a stream. */
static void many_pieces(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        start(&s, i);
        sim_open_all(&s, "ring=off streams=3 rndv=rput stripe_bytes=1000 rndv_segment=4096");
        sim_rounds(&s, 200);
        sim_send(&s, 0, 1, 900000, false);
        sim_run(&s);
        SIM_CHECK(&s, SIM_STAT(&s, 1, rx_rput_bytes) == 900000);
        SIM_CHECK(&s, SIM_STAT(&s, 0, tx_frames) - SIM_STAT(&s, 0, tx_acks) > 1 + 3);
        sim_end(&s);
    }
}

/* A piece of a body that is there already. */
static void data_twice(void **state)
{
    struct sim s;
    int tried = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        start(&s, i);
        sim_open_all(&s, "ring=off rndv=copy sr_window=3 vbuf_size=1000 ack_idle_us=60000000");
        sim_rounds(&s, 200);
        sim_send(&s, 0, 1, 40000, false);
        for (int k = 0; k < 400 && !sim_settled(&s); k++) {
            struct mdapl_dapl_vbuf *b = retained(sim_dapl_peer(&s, 0, 1), MDAPL_FRAME_DATA);

            sim_round(&s);
            if (!b || b->holds == 0 || b->data[0] != MDAPL_FRAME_DATA || s.rank[1].reads > 0
                || !mdapl_seq_before(b->psn, (uint32_t)sim_dapl_peer(&s, 1, 0)->rx_next))
                continue;
            deliver_again(&s, 1, b);
            tried++;
        }
        sim_run(&s);
        sim_end(&s);
    }
    assert_true(shown(tried, 20));
}

/* -- a wrong step ------------------------------------------------------------------------------ */

/* The body of rank 1's oldest CTS. */
static struct mdapl_rx *asked(struct sim *s)
{
    struct mdapl_dapl_peer *peer = sim_dapl_peer(s, 1, 0);
    const struct mdapl_dapl_vbuf *b = retained(peer, MDAPL_FRAME_CTS);
    struct mdapl_dapl_cts cts;

    if (!b
        || !mdapl_dapl_cts_get(&cts, b->data + MDAPL_FRAME_HDR_BYTES,
                               b->len - MDAPL_FRAME_HDR_BYTES))
        return NULL;
    return mdapl_idmap_find(&peer->d->rx_ids, cts.rx_id);
}

/* Its owner drops a body that is being written: a fault with its line, and no write goes astray. */
static void wrong_step(void **state)
{
    int tried = 0;
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        struct mdapl_rx *rx = NULL;

        start(&s, i);
        sim_open_all(&s, "ring=off rndv=rput");
        sim_send(&s, 0, 1, 40000, false);
        for (int k = 0; k < 2000 && !rx && !sim_settled(&s); k++) {
            sim_round(&s);
            rx = asked(&s);
        }
        if (rx) {
            s.may_fail = true;
            mdapl_rx_drop(rx);
            sim_run(&s);
            sim_rounds(&s, 2000);
            SIM_CHECK(&s, s.rank[1].faults == 1 && s.rank[1].reads_failed == 1);
            SIM_CHECK(&s, strstr(s.rank[1].why, "rendezvous"));
            tried++;
        }
        sim_close(&s);
    }
    assert_true(shown(tried, 10));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_frames_are_bytes),
        cmocka_unit_test(posted_twice),
        cmocka_unit_test(written_twice),
        cmocka_unit_test(asked_twice),
        cmocka_unit_test(many_pieces),
        cmocka_unit_test(data_twice),
        cmocka_unit_test(wrong_step),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
