/* SPDX-License-Identifier: MIT */
/*
 * Faults as values: the user's line names the operation, the DAT status, the stream and the IA that
 * failed; which faults are not a broken connection; and nothing is freed or connected again before
 * every posted DTO has completed. test_recover [SEED [TEST]] runs that one seed (0: all).
 */
#include "unit.h"

#include "cm_hello.h"
#include "cm_report.h"
#include "conn.h"
#include "log.h"
#include "peer.h"
#include "fault.h"
#include "seeds.h"
#include "sim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void start(struct sim *s, uint64_t i, const struct fake_faults *faults)
{
    sim_start(s, seed_at(i), 2, faults, NULL);
    s->verbose = only_seed != 0;
}

/* The line of the one rank that noticed it first, by its own transfer. */
static const char *line_with(const struct sim *s, const char *text)
{
    for (int i = 0; i < s->n; i++)
        if (strstr(s->rank[i].why, text))
            return s->rank[i].why;
    return NULL;
}

/* -- the line ---------------------------------------------------------------------------------- */

/* Ends with a fault at both ranks, and one of their lines has all of these texts. */
static void expect_line(struct sim *s, const char *const text[], size_t n)
{
    const char *line;

    sim_run(s);
    sim_rounds(s, 2000);
    SIM_CHECK(s, s->rank[0].faults == 1 && s->rank[1].faults == 1);
    line = line_with(s, text[0]);
    if (!line)
        fprintf(stderr, "%s\n%s\n", s->rank[0].why, s->rank[1].why);
    SIM_CHECK(s, line != NULL);
    for (size_t k = 0; k < n && text[k]; k++) {
        if (!strstr(line, text[k]))
            fprintf(stderr, "no \"%s\" in: %s\n", text[k], line);
        SIM_CHECK(s, strstr(line, text[k]) != NULL);
    }
}

/* Bodies take the streams in turn, so the second one is on stream 1; frames are on stream 0. */
static void line_names_what_failed(void **state)
{
    static const struct {
        const char *knobs;
        struct fake_faults faults;
        const char *text[5];
    } row[] = {
        { "rndv=rget ring=off",
          { .fail_op = DAT_DTO_RDMA_READ, .fail_nth = 2,
            .fail_status = DAT_DTO_ERR_REMOTE_ACCESS },
          { "an RDMA read failed (DAT_DTO_ERR_REMOTE_ACCESS)", "stream 1", "IA fake",
            "lost the connection to rank 0", "report" } },
        { "rndv=rget ring=off",
          { .fail_op = DAT_DTO_RDMA_READ, .fail_nth = 1, .fail_status = DAT_DTO_ERR_TRANSPORT },
          { "an RDMA read failed (DAT_DTO_ERR_TRANSPORT)", "stream 0", "IA fake",
            "lost the connection to rank 0", "The path was down" } },
        { "rndv=rput ring=off",
          { .fail_op = DAT_DTO_RDMA_WRITE, .fail_nth = 2, .fail_status = DAT_DTO_ERR_TRANSPORT },
          { "an RDMA write failed (DAT_DTO_ERR_TRANSPORT)", "stream 1", "IA fake",
            "lost the connection to rank 1", "The path was down" } },
        { "ring=off",
          { .fail_op = DAT_DTO_SEND, .fail_nth = 3,
            .fail_status = DAT_DTO_ERR_RECEIVER_NOT_READY },
          { "a send failed (DAT_DTO_ERR_RECEIVER_NOT_READY)", "stream 0", "IA fake",
            "lost the connection to rank" } },
    };
    struct sim s;

    (void)state;
    for (size_t k = 0; k < sizeof(row) / sizeof(row[0]); k++)
        for (uint64_t i = 0; i < seeds(10); i++) {
            char knobs[96];

            start(&s, i, &row[k].faults);
            snprintf(knobs, sizeof(knobs), "ft=off streams=2 stripe_bytes=1000000 %s",
                     row[k].knobs);
            sim_open_all(&s, knobs);
            s.may_fail = true;
            for (int n = 0; n < 3; n++) {
                sim_send(&s, 0, 1, 30000, false);
                sim_run(&s);
            }
            expect_line(&s, row[k].text, 5);
            sim_close(&s);
        }
}

/* Lack of memory is this process's, and no fault of the wire. */
static void out_of_memory_is_no_lost_connection(void **state)
{
    struct mdapl_peer *peer;
    struct sim s;

    (void)state;
    start(&s, 0, NULL);
    sim_open_all(&s, "streams=2");
    s.may_fail = true;
    SIM_CHECK(&s, mdapl_peer_get(s.rank[0].ctx, 1, &peer) == 0);
    mdapl_dapl_out_of_memory(mdapl_dapl_peer_of(peer), "a message that waits");
    SIM_CHECK(&s, s.rank[0].faults == 0);            /* no upcall from inside a verb */
    sim_rounds(&s, 20000);
    SIM_CHECK(&s, s.rank[0].faults == 1 && s.rank[0].status == -ENOMEM);
    SIM_CHECK(&s, strstr(s.rank[0].why, "out of memory for a message that waits"));
    SIM_CHECK(&s, strstr(s.rank[0].why, "rank 1 on "));
    SIM_CHECK(&s, strstr(s.rank[0].why, "Free memory"));
    SIM_CHECK(&s, !strstr(s.rank[0].why, "lost the connection"));
    SIM_CHECK(&s, s.rank[1].faults == 1 && strstr(s.rank[1].why, "it has given this rank up"));
    SIM_CHECK(&s, strstr(s.rank[1].why, "DAT_CONNECTION_EVENT_"));
    sim_close(&s);
}

/* A refused post: the connection of stream 0 of the receiver. */
static void refused_post_has_its_status(void **state)
{
    static const char *const text[] = {
        "a receive was refused (DAT_INSUFFICIENT_RESOURCES", "stream 0", "IA fake",
    };
    const struct fake_faults faults = { .refuse_recv = 3 };
    struct sim s;

    (void)state;
    start(&s, 0, &faults);
    sim_open_all(&s, "ft=off ring=off");
    s.may_fail = true;
    for (int k = 0; k < 20; k++)
        sim_send(&s, 0, 1, 200, false);
    expect_line(&s, text, 3);
    sim_close(&s);
}

/* An asynchronous error of one endpoint is the end of its connection, and of no other. */
static void endpoint_breaks(void **state)
{
    static const struct {
        DAT_EVENT_NUMBER number;
        const char *text[3];
    } row[] = {
        { DAT_ASYNC_ERROR_EP_BROKEN,
          { "the endpoint broke (DAT_ASYNC_ERROR_EP_BROKEN)", "lost the connection", "stream" } },
        { DAT_ASYNC_ERROR_TIMED_OUT,
          { "an operation timed out (DAT_ASYNC_ERROR_TIMED_OUT)", "lost the connection",
            "stream" } },
        { DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR,
          { "the provider failed (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR)",
            "lost the connection", "stream" } },
    };
    struct sim s;

    (void)state;
    for (size_t k = 0; k < sizeof(row) / sizeof(row[0]); k++)
        for (uint64_t i = 0; i < seeds(8); i++) {
            start(&s, i, NULL);
            sim_open_all(&s, "ft=off streams=2");
            s.may_fail = true;
            fake_async_ep((int)fake_random(4), row[k].number);
            expect_line(&s, row[k].text, 3);
            sim_close(&s);
        }
}

/* -- the verdict ------------------------------------------------------------------------------- */

static void verdicts(void **state)
{
    enum { LIMIT_MS = 5000, TIMEOUT_MS = 1000, OUTAGE_MS = 3000 };
    enum { FAIL = MDAPL_DAPL_FAIL_PEER, RETRY = MDAPL_DAPL_RETRY, REPLACE = MDAPL_DAPL_REPLACE };
    static const struct {
        struct mdapl_dapl_fault f;
        enum mdapl_dapl_cm_cause_id cause;
        int verdict, without_limit;
    } row[] = {
        /* A connection that ends is replaced, if both ends do that. */
        { { .kind = MDAPL_DAPL_FAULT_DTO, .dto_status = DAT_DTO_ERR_TRANSPORT },
          MDAPL_CAUSE_OWN, FAIL, FAIL },
        { { .kind = MDAPL_DAPL_FAULT_POST }, MDAPL_CAUSE_OWN, FAIL, FAIL },
        { { .kind = MDAPL_DAPL_FAULT_LOST }, MDAPL_CAUSE_BROKEN, FAIL, FAIL },
        { { .kind = MDAPL_DAPL_FAULT_DTO, .dto_status = DAT_DTO_ERR_TRANSPORT, .recovers = true },
          MDAPL_CAUSE_OWN, REPLACE, REPLACE },
        { { .kind = MDAPL_DAPL_FAULT_POST, .recovers = true }, MDAPL_CAUSE_OWN, REPLACE, REPLACE },
        { { .kind = MDAPL_DAPL_FAULT_LOST, .recovers = true }, MDAPL_CAUSE_BROKEN, REPLACE,
          REPLACE },
        /* Connections that end at once, again and again, are an outage. */
        { { .kind = MDAPL_DAPL_FAULT_LOST, .recovers = true, .outage_ns = MDAPL_MS(OUTAGE_MS) },
          MDAPL_CAUSE_BROKEN, FAIL, REPLACE },
        /* What no network causes may happen once, as a first fault may cause others. */
        { { .kind = MDAPL_DAPL_FAULT_DTO, .dto_status = DAT_DTO_ERR_REMOTE_ACCESS,
            .recovers = true }, MDAPL_CAUSE_OWN, REPLACE, REPLACE },
        { { .kind = MDAPL_DAPL_FAULT_DTO, .dto_status = DAT_DTO_ERR_REMOTE_ACCESS,
            .recovers = true, .bugs = 1 }, MDAPL_CAUSE_OWN, FAIL, FAIL },
        { { .kind = MDAPL_DAPL_FAULT_DTO, .dto_status = DAT_DTO_ERR_TRANSPORT, .recovers = true,
            .bugs = 1 }, MDAPL_CAUSE_OWN, REPLACE, REPLACE },
        { { .kind = MDAPL_DAPL_FAULT_FRAME, .recovers = true }, MDAPL_CAUSE_OWN, FAIL, FAIL },
        { { .kind = MDAPL_DAPL_FAULT_MEMORY, .recovers = true }, MDAPL_CAUSE_OWN, FAIL, FAIL },
        { { .kind = MDAPL_DAPL_FAULT_IA, .recovers = true }, MDAPL_CAUSE_OWN, FAIL, FAIL },
        /* Silence ends a peer only after the limit, if there is one. */
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .waited_ns = MDAPL_MS(LIMIT_MS) - 1 },
          MDAPL_CAUSE_TIMED_OUT, RETRY, RETRY },
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .waited_ns = MDAPL_MS(LIMIT_MS) },
          MDAPL_CAUSE_TIMED_OUT, FAIL, RETRY },
        /* One that had a connection has another limit, unless it has another connection. */
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .waited_ns = MDAPL_MS(LIMIT_MS),
            .outage_ns = MDAPL_MS(OUTAGE_MS) - 1 }, MDAPL_CAUSE_TIMED_OUT, RETRY, RETRY },
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .outage_ns = MDAPL_MS(OUTAGE_MS) },
          MDAPL_CAUSE_TIMED_OUT, FAIL, RETRY },
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .waited_ns = MDAPL_MS(LIMIT_MS), .spare = true },
          MDAPL_CAUSE_TIMED_OUT, RETRY, RETRY },
        /* A definite refusal does once it has lasted for the time of a request, or at once. */
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .refused_ns = MDAPL_MS(TIMEOUT_MS) - 1 },
          MDAPL_CAUSE_PEER_REJECTED, RETRY, RETRY },
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .refused_ns = MDAPL_MS(TIMEOUT_MS) },
          MDAPL_CAUSE_PEER_REJECTED, FAIL, FAIL },
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .refused_ns = MDAPL_MS(TIMEOUT_MS), .spare = true },
          MDAPL_CAUSE_PEER_REJECTED, RETRY, RETRY },
        { { .kind = MDAPL_DAPL_FAULT_ATTEMPT, .spare = true }, MDAPL_CAUSE_GONE, FAIL, FAIL },
    };
    struct mdapl_cfg cfg;

    (void)state;
    mdapl_cfg_init(&cfg);
    cfg.connect_timeout_ms = TIMEOUT_MS;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct mdapl_dapl_fault f = row[i].f;

        f.cause = mdapl_dapl_cm_cause(row[i].cause);
        cfg.connect_unanswered_ms = LIMIT_MS;
        cfg.max_outage_ms = OUTAGE_MS;
        assert_int_equal(mdapl_dapl_judge(&f, &cfg), row[i].verdict);
        cfg.connect_unanswered_ms = cfg.max_outage_ms = 0;
        assert_int_equal(mdapl_dapl_judge(&f, &cfg), row[i].without_limit);
    }
}

/* -- draining ---------------------------------------------------------------------------------- */

/* What a rank has logged. */
struct log {
    FILE *out;
    char *text;
    size_t len;
};

static void log_to(struct log *l, const struct sim_rank *me)
{
    l->out = open_memstream(&l->text, &l->len);
    mdapl_ctx_log(me->ctx)->out = l->out;
    mdapl_ctx_log(me->ctx)->level = MDAPL_CONN;
}

static int count(struct log *l, const char *text)
{
    int n = 0;

    fflush(l->out);
    for (const char *p = l->text; p && (p = strstr(p, text)); p++)
        n++;
    return n;
}

static void log_end(struct log *l)
{
    fclose(l->out);
    free(l->text);
}

/* The adapter takes its time to flush a broken connection: until then it drains, and its EP is
 * neither freed nor followed by another. */
static void drains_until_all_has_come_back(void **state)
{
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        struct fake_faults faults = {
            .fail_op = DAT_DTO_SEND, .fail_nth = 5, .fail_status = DAT_DTO_ERR_TRANSPORT,
        };
        struct log log[2];

        start(&s, i, &faults);
        sim_open_all(&s, "ft=off streams=2 ring=off");
        s.may_fail = true;
        for (int r = 0; r < 2; r++)
            log_to(&log[r], &s.rank[r]);
        fake_hold_flushes(true);
        for (int k = 0; k < 10; k++)
            sim_send(&s, k % 2, 1 - k % 2, 200, false);
        sim_run(&s);
        sim_rounds(&s, 20000);
        for (int r = 0; r < 2; r++) {
            SIM_CHECK(&s, s.rank[r].faults == 1);
            SIM_CHECK(&s, count(&log[r], "-> closing") == 2);
            SIM_CHECK(&s, count(&log[r], "closing -> ") == 0);
        }
        SIM_CHECK(&s, fake_eps() == 4);
        fake_hold_flushes(false);
        sim_rounds(&s, 20000);
        for (int r = 0; r < 2; r++)
            SIM_CHECK(&s, count(&log[r], "drained, closing -> dead") == 2);
        SIM_CHECK(&s, fake_eps() == 0);
        sim_close(&s);
        for (int r = 0; r < 2; r++)
            log_end(&log[r]);
    }
}

/* -- a peer that the owner knows to be lost ---------------------------------------------------- */

static bool all_sends_ended(struct sim *s)
{
    return s->rank[0].sends == s->started - (int)s->rank[1].sent[0];
}

/* Its process has ended. What is unfinished ends before any attempt to reach it can, and the owner,
 * who knows, gets no fault. */
static void owner_knows_that_a_peer_is_lost(void **state)
{
    static const char *const knobs[] = { "", "rndv=rput streams=2", "rndv=copy ring=on" };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(60); i++) {
        struct mdapl_peer *peer;
        uint64_t began;

        start(&s, i, NULL);
        sim_open_all(&s, knobs[i % 3]);
        SIM_CHECK(&s, sim_peer(&s, 0, 1, &peer) == 0);
        s.may_fail = true;
        for (int k = 0; k < 6; k++) {
            sim_send(&s, 0, 1, k % 2 ? 300000 : 100, k % 3 == 0);
            sim_send(&s, 1, 0, k % 2 ? 100 : 200000, false);
            sim_rounds(&s, (int)fake_random(100));
        }
        mdapl_ctx_close(s.rank[1].ctx);
        sim_leave(&s, 1);
        sim_rounds(&s, (int)fake_random(500));
        began = *fake_time();
        mdapl_peer_lost(peer);
        sim_until(&s, all_sends_ended);
        SIM_CHECK(&s, *fake_time() - began < 2000000000u);
        sim_send(&s, 0, 1, 100, false);
        sim_until(&s, all_sends_ended);
        SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[0].sends_failed > 0);
        sim_close(&s);
    }
}

/* Closing waits for it as well, but not for ever. */
static void closing_waits_for_drained(void **state)
{
    struct sim s;

    (void)state;
    for (int parked = 0; parked < 2; parked++) {
        uint64_t began;

        start(&s, 0, NULL);
        sim_open_all(&s, "streams=2 ring=off");
        sim_rounds(&s, 1000);
        SIM_CHECK(&s, fake_eps() == 4);
        fake_hold_flushes(parked);
        began = *fake_time();
        mdapl_ctx_close(s.rank[0].ctx);
        s.rank[0].ctx = NULL;
        SIM_CHECK(&s, (*fake_time() - began >= 1000000000u) == (parked == 1));
        SIM_CHECK(&s, fake_eps() == 2);
        fake_hold_flushes(false);
        sim_close(&s);
    }
}

/* -- the flight recorder ----------------------------------------------------------------------- */

static bool rank_0_has_lost_1(struct sim *s)
{
    return s->rank[0].faults > 0;
}

/* A peer that is given up: its last events, the last ones at the end, and none of another peer. A
 * signal: those of all. */
static void last_events_are_printed(void **state)
{
    static const char *const knobs[] = {
        "max_outage_ms=1000 events=lost", "max_outage_ms=1000 events=signal", "max_outage_ms=1000",
    };
    struct sim s;

    (void)state;
    for (int way = 0; way < 3; way++) {
        struct log log;

        sim_start(&s, seed_at((uint64_t)way), 3, NULL, NULL);
        sim_open_all(&s, knobs[way]);
        for (int k = 0; k < 30; k++)
            sim_send(&s, k % 3, (k + 1) % 3, k % 2 ? 200 : 20000, false);
        sim_run(&s);
        s.may_fail = true;
        log_to(&log, &s.rank[0]);
        mdapl_ctx_log(s.rank[0].ctx)->level = MDAPL_WARN;
        raise(way == 1 ? SIGUSR2 : 0);
        sim_rounds(&s, 500);
        SIM_CHECK(&s, (count(&log, "rank 1 on") > 0) == (way == 1));
        SIM_CHECK(&s, (count(&log, "rank 2 on") > 0) == (way == 1));
        SIM_CHECK(&s, (count(&log, "established: now up") > 0) == (way == 1));
        log_end(&log);
        log_to(&log, &s.rank[0]);
        mdapl_ctx_log(s.rank[0].ctx)->level = MDAPL_WARN;
        fake_hold_requests(true);
        fake_async_ep(fake_nth_ep(sim_dapl_peer(&s, 0, 1)->stream[0].conn->ep.handle),
                      DAT_ASYNC_ERROR_EP_BROKEN);
        sim_send(&s, 0, 1, 200, false);
        sim_until(&s, rank_0_has_lost_1);
        SIM_CHECK(&s, (count(&log, "s ago: lost: now draining") == 1) == (way < 2));
        SIM_CHECK(&s, (count(&log, "s ago: <- FIN, psn ") > 0) == (way < 2));
        SIM_CHECK(&s, (count(&log, "s ago: fault: ") > 0) == (way < 2));
        SIM_CHECK(&s, count(&log, "rank 2 on") == 0);
        fake_hold_requests(false);
        sim_rounds(&s, 2000);
        sim_close(&s);
        log_end(&log);
    }
}

/* -- requests that are not what they seem ------------------------------------------------------ */

/* A request of rank 1 to rank 0 as it would be made now, with this number; changed: as of a peer
 * that was here before, or with frames that were never sent. */
static void forge_request(struct sim *s, uint8_t flags, uint32_t epoch, uint32_t before,
                          uint64_t ahead, uint8_t hello[MDAPL_HELLO_BYTES])
{
    struct mdapl_dapl_peer *peer = sim_dapl_peer(s, 1, 0);

    peer->incarnation -= before;
    peer->rx_next += ahead;
    mdapl_dapl_cm_hello_put(&peer->stream[0], flags, epoch, hello);
    peer->rx_next -= ahead;
    peer->incarnation += before;
}

/* Recorded, old or impossible requests are rejected and counted; nothing follows from them. */
static void false_requests_change_nothing(void **state)
{
    enum { TIMES = 200 };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        uint8_t recorded[MDAPL_HELLO_BYTES], former[MDAPL_HELLO_BYTES], ahead[MDAPL_HELLO_BYTES],
            ping[MDAPL_HELLO_BYTES];
        uint32_t now;

        start(&s, i, NULL);
        sim_open_all(&s, i % 2 ? "ring=on ring_after=1" : "ring=off");
        for (int k = 0; k < 10; k++)
            sim_send(&s, k % 2, 1 - k % 2, 200, false);
        sim_run(&s);
        now = sim_dapl_peer(&s, 1, 0)->stream[0].cm.epoch;
        forge_request(&s, 0, now, 0, 0, recorded);
        forge_request(&s, 0, now + 1, 1, 0, former);
        forge_request(&s, 0, now + 1, 0, 1000, ahead);
        forge_request(&s, MDAPL_HELLO_PING, now, 0, 0, ping);
        for (int k = 0; k < TIMES; k++) {
            SIM_CHECK(&s, fake_stranger(0, recorded, sizeof(recorded)));
            SIM_CHECK(&s, fake_stranger(0, former, sizeof(former)));
            SIM_CHECK(&s, fake_stranger(0, ahead, sizeof(ahead)));
            SIM_CHECK(&s, fake_stranger(0, ping, sizeof(ping)));
            sim_send(&s, k % 2, 1 - k % 2, 200, false);
            sim_rounds(&s, 20);
            SIM_CHECK(&s, fake_eps() == 2);
        }
        sim_run(&s);
        sim_rounds(&s, 4000);
        SIM_CHECK(&s, fake_strangers_rejected() == 4 * TIMES);
        SIM_CHECK(&s, SIM_SUM(&s, cr_stale) == 2 * TIMES && SIM_SUM(&s, cr_refused) == TIMES);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) == 0 && SIM_SUM(&s, connects) == 2);
        sim_end(&s);
    }
}

/* A peer that makes requests for ever, each newer than the connection: each costs a connection, and
 * nothing grows. When it stops, all that was sent arrives. */
static void a_peer_that_reconnects_for_ever(void **state)
{
    enum { TIMES = 60 };
    struct sim s;

    (void)state;
    for (uint64_t i = 0; i < seeds(10); i++) {
        start(&s, i, NULL);
        sim_open_all(&s, i % 2 ? "ring=on ring_after=1" : "ring=off");
        for (int k = 0; k < TIMES; k++) {
            const struct mdapl_dapl_cm *cm = &sim_dapl_peer(&s, 0, 1)->stream[0].cm;
            uint32_t newest = cm->epoch > cm->peer_epoch ? cm->epoch : cm->peer_epoch;
            uint8_t hello[MDAPL_HELLO_BYTES];

            forge_request(&s, 0, newest + 1, 0, 0, hello);
            SIM_CHECK(&s, fake_stranger(0, hello, sizeof(hello)));
            sim_send(&s, k % 2, 1 - k % 2, 200, false);
            sim_rounds(&s, 100 + (int)fake_random(400));
            SIM_CHECK(&s, fake_eps() <= 8);
        }
        sim_until(&s, sim_settled);
        SIM_CHECK(&s, SIM_SUM(&s, breaks) <= 2 * TIMES + 2);
        SIM_CHECK(&s, s.rank[0].faults == 0 && s.rank[1].faults == 0);
        sim_end(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_names_what_failed),
        cmocka_unit_test(out_of_memory_is_no_lost_connection),
        cmocka_unit_test(refused_post_has_its_status),
        cmocka_unit_test(endpoint_breaks),
        cmocka_unit_test(verdicts),
        cmocka_unit_test(drains_until_all_has_come_back),
        cmocka_unit_test(closing_waits_for_drained),
        cmocka_unit_test(owner_knows_that_a_peer_is_lost),
        cmocka_unit_test(last_events_are_printed),
        cmocka_unit_test(false_requests_change_nothing),
        cmocka_unit_test(a_peer_that_reconnects_for_ever),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
