/* SPDX-License-Identifier: MIT */
/*
 * Establishing connections while the other rank makes no MPI call for long, while replies or
 * requests are lost, delayed or doubled, when both ends connect at once, and when the other rank
 * has ended. Complete channels in one process on the fake provider; time is a variable.
 * test_connect SEED runs that one seed, test_connect SEED TEST (0: all of them) that test.
 */
#include "unit.h"

#include "cfg.h"
#include "dapl.h"
#include "err.h"
#include "fake.h"
#include "log.h"
#include "quiet.h"
#include "seeds.h"
#include "stats.h"
#include "transport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8, MESSAGES = 5 };

struct rank {
    int rank;
    struct mdapl_ctx *ctx;
    struct mdapl_cfg cfg;
    uint64_t computes_until;     /* makes no call before this time */
    bool wired;
    int received, sent, faults;
    uint64_t fault_at;
    char why[768];
    FILE *log;
    char *lines;
    size_t n_lines_bytes;
    struct mdapl_op op[MOST_RANKS * MESSAGES];
    int n_ops;
};

static struct {
    struct rank rank[MOST_RANKS];
    char card[MOST_RANKS][MDAPL_CARD_MAX];
    int size;
    uint64_t seed;
} w;

#define CHECK(cond)                                                              \
    do {                                                                         \
        if (!(cond)) {                                                           \
            fprintf(stderr, "seed %llu: %s:%d: %s\n", (unsigned long long)w.seed, \
                    __FILE__, __LINE__, #cond);                                  \
            abort();                                                             \
        }                                                                        \
    } while (0)

static const struct mdapl_channel *const alone[] = { &mdapl_dapl_channel, NULL };
static const struct mdapl_channel *const second[] = { &quiet_channel, &mdapl_dapl_channel, NULL };

/* -- the owner --------------------------------------------------------------------------------- */

static enum mdapl_next on_msg(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m)
{
    (void)peer;
    CHECK(m->hdr_len == 8 && m->len == 0);
    ((struct rank *)owner)->received++;
    return MDAPL_NEXT_GO;
}

static void on_fault(void *owner, struct mdapl_peer *peer, int status, const char *why)
{
    struct rank *me = owner;

    (void)peer;
    CHECK(status < 0);
    me->faults++;
    me->fault_at = *fake_time();
    snprintf(me->why, sizeof(me->why), "%s", why);
}

static void sent(struct mdapl_op *op, int status)
{
    (void)op, (void)status;
}

static void send_to(int from, int to)
{
    struct rank *me = &w.rank[from];
    struct mdapl_msg msg = { .hdr = "message", .hdr_len = 8 };
    struct mdapl_peer *peer;

    CHECK(mdapl_peer_get(me->ctx, to, &peer) == 0);
    me->op[me->n_ops].done = sent;
    CHECK(mdapl_send(peer, &msg, &me->op[me->n_ops++]) >= 0);
    me->sent++;
}

/* -- the world --------------------------------------------------------------------------------- */

static int get_card(void *owner, int rank, char *buf, size_t len)
{
    (void)owner;
    snprintf(buf, len, "%s", w.card[rank]);
    return 0;
}

/* Knobs as "name=value name=value". */
static void set_knobs(struct mdapl_cfg *cfg, const char *knobs)
{
    char text[256], *save = NULL;
    struct mdapl_err err;

    snprintf(text, sizeof(text), "%s", knobs);
    for (char *k = strtok_r(text, " ", &save); k; k = strtok_r(NULL, " ", &save)) {
        char *value = strchr(k, '=');

        *value++ = 0;
        if (mdapl_cfg_set(cfg, k, value, &err))
            fail_msg("%s", err.text);
    }
}

static void open_rank(int i, const struct mdapl_channel *const *channels, const char *knobs)
{
    static const struct mdapl_up up = { .msg = on_msg, .fault = on_fault };
    struct rank *me = &w.rank[i];
    struct mdapl_err err;
    struct mdapl_ctx_args args = {
        .channels = channels, .up = &up, .owner = me, .cfg = &me->cfg,
        .clock = mdapl_clock_manual(fake_time()),
        .job = { .rank = i, .size = w.size, .id = 77, .key = "sixteen bytes..",
                 .card = get_card },
    };

    me->rank = i;
    mdapl_cfg_init(&me->cfg);
    set_knobs(&me->cfg, "ia=fake wiring=ondemand reg_cache=off");
    set_knobs(&me->cfg, knobs);
    set_knobs(&me->cfg, getenv("SIM_VERBOSE") ? "verbose=3" : "");
    if (mdapl_ctx_open(&args, &me->ctx, &err))
        fail_msg("%s", err.text);
    me->log = open_memstream(&me->lines, &me->n_lines_bytes);
    if (!getenv("SIM_VERBOSE"))
        mdapl_ctx_log(me->ctx)->out = me->log;
    CHECK(mdapl_ctx_card(me->ctx, w.card[i], sizeof(w.card[i])) > 0);
}

static void start(uint64_t seed, int size, const struct fake_faults *faults, const char *knobs)
{
    memset(&w, 0, sizeof(w));
    w.seed = seed;
    w.size = size;
    fake_start(seed, faults, NULL);
    for (int i = 0; i < size; i++)
        open_rank(i, alone, knobs);
}

static bool awake(const struct rank *me)
{
    return *fake_time() >= me->computes_until;
}

/* Ranks make progress in any order, about one round for each tick, until it is over. False: it was
 * not within so much virtual time. */
static bool run_until(bool (*over)(void), uint64_t ns, uint64_t tick)
{
    uint64_t end = *fake_time() + ns;

    while (!over()) {
        struct rank *me = &w.rank[fake_random((uint64_t)w.size)];

        if (*fake_time() >= end)
            return false;
        fake_step();
        *fake_time() += fake_random(tick);
        if (awake(me))
            mdapl_progress(me->ctx);
    }
    return true;
}

static bool never(void)
{
    return false;
}

static bool all_received(void)
{
    int sent_n = 0, received = 0;

    for (int i = 0; i < w.size; i++) {
        sent_n += w.rank[i].sent;
        received += w.rank[i].received;
    }
    return received == sent_n;
}

static bool any_fault(void)
{
    for (int i = 0; i < w.size; i++)
        if (w.rank[i].faults)
            return true;
    return false;
}

static bool drained(void)
{
    size_t left = 0;

    for (int i = 0; i < w.size; i++)
        left += mdapl_drain(w.rank[i].ctx);
    return left == 0;
}

static void close_all(void)
{
    for (int i = 0; i < w.size; i++) {
        mdapl_ctx_close(w.rank[i].ctx);
        fclose(w.rank[i].log);
        free(w.rank[i].lines);
    }
    CHECK(fake_stop() == 0);
}

static uint64_t sum(size_t offset)
{
    uint64_t n = 0;

    for (int i = 0; i < w.size; i++)
        n += *(uint64_t *)(void *)((char *)mdapl_ctx_stats(w.rank[i].ctx) + offset);
    return n;
}

#define SUM(counter) sum(offsetof(struct mdapl_stats, counter))

/* How many lines with this text a rank has printed. */
static int lines_with(int rank, const char *text)
{
    int n = 0;

    fflush(w.rank[rank].log);
    for (const char *s = w.rank[rank].lines; (s = strstr(s, text)); s++)
        n++;
    return n;
}

static const char waiting[] = "has not answered";

/* -- a rank that makes no MPI call ------------------------------------------------------------- */

static const struct fake_faults trouble[] = {
    { 0 }, { .lose_cr = 2 }, { .dup_cr = 2 }, { .time_out_cr = 3 }, { .lose_accept = 2 },
    { .lose_cr = 3, .dup_cr = 2, .lose_accept = 3 }, { .lose_cr = 2, .lose_accept = 2 },
    { .reject_cr = 3 },
};

/* For any time of computing and any trouble of requests, no peer is failed, and one connection is
 * established in the end. */
static void peer_computes(void **state)
{
    enum { KINDS = sizeof(trouble) / sizeof(trouble[0]) };
    uint64_t stale = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(KINDS * 25); i++) {
        uint64_t seed = seed_at(i), computes;

        start(seed, 2, &trouble[seed % KINDS], "connect_timeout_ms=2000");
        computes = MDAPL_MS(fake_random(40000));
        w.rank[1].computes_until = *fake_time() + computes;
        for (int k = 0; k < MESSAGES; k++)
            send_to(0, 1);
        run_until(never, computes, MDAPL_MS(2));
        if (fake_random(2))
            send_to(1, 0);
        CHECK(run_until(all_received, MDAPL_SEC(120), MDAPL_MS(2)));
        CHECK(!any_fault());
        CHECK(run_until(drained, MDAPL_SEC(10), MDAPL_MS(1)));
        CHECK(SUM(connects) == 2);
        CHECK(computes < MDAPL_MS(3200) || lines_with(0, waiting) > 0);
        CHECK(lines_with(0, waiting) <= 6);
        stale += SUM(cr_stale);
        close_all();
    }
    CHECK(shown(stale, 30));
}

/* Half an hour: requests and lines get rarer. */
static void peer_computes_for_long(void **state)
{
    (void)state;
    start(seed_at(0), 2, NULL, "");
    w.rank[1].computes_until = MDAPL_SEC(1800);
    send_to(0, 1);
    run_until(never, MDAPL_SEC(29), MDAPL_MS(10));
    CHECK(lines_with(0, waiting) == 0);
    run_until(never, MDAPL_SEC(2), MDAPL_MS(10));
    CHECK(lines_with(0, waiting) == 1);
    CHECK(lines_with(0, "rank 1 on ") == 1 && lines_with(0, "IA fake") == 1);
    CHECK(lines_with(0, "127.0.0.1") == 1);
    CHECK(lines_with(0, "no answer in time") == 1);
    run_until(never, MDAPL_SEC(1769), MDAPL_MS(10));
    CHECK(fake_requests() < 12);
    CHECK(lines_with(0, waiting) >= 3 && lines_with(0, waiting) < 10);
    CHECK(run_until(all_received, MDAPL_SEC(1), MDAPL_MS(1)));
    CHECK(run_until(drained, MDAPL_SEC(10), MDAPL_MS(1)));
    CHECK(!any_fault() && SUM(connects) == 2);
    close_all();
}

/* The user may set a limit to the waiting. */
static void unanswered_for_too_long(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(20); i++) {
        uint64_t began;

        start(seed_at(i), 2, NULL, "connect_timeout_ms=1000 connect_unanswered_ms=7500");
        w.rank[1].computes_until = UINT64_MAX;
        began = *fake_time();
        send_to(0, 1);
        CHECK(run_until(any_fault, MDAPL_SEC(60), MDAPL_MS(2)));
        CHECK(w.rank[0].fault_at - began >= MDAPL_MS(7500));
        CHECK(w.rank[0].fault_at - began < MDAPL_MS(7800));
        CHECK(strstr(w.rank[0].why, "MPIR_CVAR_DAPL_CONNECT_UNANSWERED_MS"));
        CHECK(strstr(w.rank[0].why, "no answer in time"));
        close_all();
    }
}

/* -- definite answers -------------------------------------------------------------------------- */

static const struct {
    DAT_EVENT_NUMBER event;
    const char *name, *advice;
} definite[] = {
    { DAT_CONNECTION_EVENT_PEER_REJECTED, "DAT_CONNECTION_EVENT_PEER_REJECTED", "same" },
    { DAT_CONNECTION_EVENT_NON_PEER_REJECTED, "DAT_CONNECTION_EVENT_NON_PEER_REJECTED", "ended" },
    { DAT_CONNECTION_EVENT_UNREACHABLE, "DAT_CONNECTION_EVENT_UNREACHABLE", "network" },
};

/* Refusals fail the peer when they have lasted for connect_timeout_ms. The pauses between requests
 * are 1, 2, 4, 8, 16, 16 ... times connect_retry_ms, each up to half as long again. */
static void refused_for_too_long(void **state)
{
    static const struct { const char *knobs; unsigned least, most; } row[] = {
        { "connect_timeout_ms=2000 connect_retry_ms=50", 5, 8 },
        { "connect_timeout_ms=2000 connect_retry_ms=400", 3, 4 },
        { "connect_timeout_ms=8000 connect_retry_ms=50", 10, 15 },
    };

    (void)state;
    for (size_t k = 0; k < 3; k++)
        for (uint64_t i = 0; i < seeds(20); i++) {
            const struct fake_faults faults = { .answer = definite[k].event };
            uint64_t timeout = MDAPL_MS(i % 3 == 2 ? 8000 : 2000), began;
            char requests[32];

            start(seed_at(i), 2, &faults, row[i % 3].knobs);
            began = *fake_time();
            send_to(1, 0);
            CHECK(run_until(any_fault, MDAPL_SEC(60), MDAPL_MS(1)));
            CHECK(w.rank[1].fault_at - began >= timeout);
            CHECK(w.rank[1].fault_at - began < timeout + MDAPL_MS(400) * 8);
            CHECK(fake_requests() >= row[i % 3].least && fake_requests() <= row[i % 3].most);
            snprintf(requests, sizeof(requests), "%u requests", fake_requests());
            CHECK(strstr(w.rank[1].why, requests));
            CHECK(strstr(w.rank[1].why, definite[k].name));
            CHECK(strstr(w.rank[1].why, definite[k].advice));
            CHECK(strstr(w.rank[1].why, "rank 0 on ") && strstr(w.rank[1].why, "127.0.0.1"));
            CHECK(lines_with(1, waiting) == 0);
            close_all();
        }
}

/* A provider whose own retries are over may report a computing peer as unreachable: only an early
 * report is a verdict on the network. */
static void unreachable_after_long(void **state)
{
    (void)state;
    start(seed_at(0), 2, NULL, "connect_timeout_ms=20000");
    w.rank[1].computes_until = UINT64_MAX;
    send_to(0, 1);
    for (int i = 0; i < 10; i++) {
        run_until(never, MDAPL_SEC(12), MDAPL_MS(2));
        fake_end_requests(DAT_CONNECTION_EVENT_UNREACHABLE);
    }
    CHECK(!any_fault());
    CHECK(lines_with(0, "DAT_CONNECTION_EVENT_UNREACHABLE") > 0);
    w.rank[1].computes_until = 0;
    CHECK(run_until(all_received, MDAPL_SEC(100), MDAPL_MS(2)));
    close_all();
}

/* -- order ------------------------------------------------------------------------------------- */

/* Requests that were given up arrive before, with and after the one that counts. */
static void stale_requests_overtake(void **state)
{
    uint64_t stale = 0;

    (void)state;
    for (uint64_t i = 0; i < seeds(300); i++) {
        start(seed_at(i), 2, NULL, "connect_timeout_ms=1000");
        fake_hold_requests(true);
        send_to(i % 2, !(i % 2));
        run_until(never, MDAPL_MS(3500), MDAPL_MS(2));
        CHECK(fake_requests() >= 2);
        fake_hold_requests(false);
        CHECK(run_until(all_received, MDAPL_SEC(60), 2));
        run_until(never, MDAPL_MS(20), 2);
        CHECK(!any_fault());
        CHECK(run_until(drained, MDAPL_SEC(10), MDAPL_MS(1)));
        stale += SUM(cr_stale);
        close_all();
    }
    CHECK(shown(stale, 200));
}

/* The lower rank's request wins, even when it is lost: the higher rank's are refused until that is
 * noticed, and no rank takes these refusals for a verdict. */
static void lost_request_wins(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(60); i++) {
        const struct fake_faults lose = { .lose_cr = 1 };

        start(seed_at(i), 2, &lose, "connect_timeout_ms=4000");
        w.rank[1].cfg.connect_timeout_ms = 4000;
        set_knobs((struct mdapl_cfg *)(uintptr_t)mdapl_ctx_cfg(w.rank[1].ctx),
                  "connect_timeout_ms=1000");
        send_to(0, 1);
        run_until(never, MDAPL_MS(1), MDAPL_US(10));
        CHECK(fake_requests() == 1);
        *fake_faults() = (struct fake_faults){ 0 };
        send_to(1, 0);
        CHECK(run_until(all_received, MDAPL_SEC(20), MDAPL_MS(1)));
        CHECK(run_until(drained, MDAPL_SEC(10), MDAPL_MS(1)));
        CHECK(!any_fault() && SUM(connects) == 2);
        close_all();
    }
}

/* An acceptance that is lost: the acceptor does not wait for it for ever. */
static void acceptance_is_lost(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(100); i++) {
        struct fake_faults lose = { .lose_accept = 1 };

        start(seed_at(i), 2, &lose, "connect_timeout_ms=1000");
        send_to(i % 2, !(i % 2));
        run_until(never, MDAPL_MS(500), MDAPL_MS(1));
        *fake_faults() = (struct fake_faults){ 0 };
        CHECK(SUM(connects) == 0);
        /* The acceptor has something to send as well, and its caller is given up. */
        if (i % 4 < 2) {
            send_to(!(i % 2), i % 2);
            CHECK(run_until(all_received, MDAPL_SEC(20), MDAPL_MS(1)));
        } else {
            w.rank[i % 2].computes_until = *fake_time() + MDAPL_SEC(30);
            run_until(never, MDAPL_SEC(30), MDAPL_MS(1));
            CHECK(run_until(all_received, MDAPL_SEC(20), MDAPL_MS(1)));
        }
        CHECK(run_until(drained, MDAPL_SEC(10), MDAPL_MS(1)));
        CHECK(!any_fault() && SUM(connects) == 2);
        close_all();
    }
}

/* The caller has ended when its request is accepted: the called rank fails no operation. */
static void caller_has_gone(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(40); i++) {
        start(seed_at(i), 3, NULL, "connect_timeout_ms=1000");
        w.rank[1].computes_until = MDAPL_SEC(5);
        send_to(2, 1);
        run_until(never, MDAPL_MS(500), MDAPL_MS(1));
        mdapl_ctx_close(w.rank[2].ctx);
        w.rank[2].computes_until = UINT64_MAX;
        run_until(never, MDAPL_SEC(20), MDAPL_MS(1));
        CHECK(w.rank[1].faults == 0);
        send_to(0, 1);
        w.rank[2].sent = 0;
        CHECK(run_until(all_received, MDAPL_SEC(20), MDAPL_MS(1)));
        fclose(w.rank[2].log);
        free(w.rank[2].lines);
        w.size = 2;
        close_all();
    }
}

/* -- wiring ------------------------------------------------------------------------------------ */

static int wire_rc;              /* the first failure */

static bool all_wired(void)
{
    bool all = true;

    for (int i = 0; i < w.size; i++) {
        struct rank *me = &w.rank[i];
        int rc = me->wired || !awake(me) ? 0 : mdapl_wire(me->ctx);

        me->wired |= rc == MDAPL_DONE;
        if (rc < 0 && !wire_rc)
            wire_rc = rc;
        all &= me->wired;
    }
    return all || wire_rc;
}

/* The rank that is to connect starts late: the other one reports that, and connects itself. */
static void called_rank_connects_itself(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < seeds(40); i++) {
        wire_rc = 0;
        start(seed_at(i), 2, NULL, "connect_timeout_ms=1000 wiring=ring");
        w.rank[1].computes_until = MDAPL_SEC(10);
        CHECK(!run_until(all_wired, MDAPL_SEC(9), MDAPL_MS(1)));
        CHECK(wire_rc == 0);
        CHECK(lines_with(0, "rank 1 on ") >= 2);
        CHECK(lines_with(0, "has not called") == 1);
        CHECK(run_until(all_wired, MDAPL_SEC(20), MDAPL_MS(1)));
        CHECK(wire_rc == 0 && SUM(connects) == 2);
        close_all();
    }
}

/* ... and ends with a line when it is refused, as by a rank that takes another way to us. */
static void called_one_is_refused(void **state)
{
    const struct fake_faults faults = { .answer = DAT_CONNECTION_EVENT_PEER_REJECTED };

    (void)state;
    wire_rc = 0;
    start(seed_at(0), 2, &faults, "connect_timeout_ms=1000 wiring=ring");
    w.rank[1].computes_until = UINT64_MAX;
    CHECK(run_until(all_wired, MDAPL_SEC(9), MDAPL_MS(1)));
    CHECK(wire_rc < 0);
    CHECK(strstr(mdapl_ctx_err(w.rank[0].ctx)->text, "rank 1 on "));
    CHECK(strstr(mdapl_ctx_err(w.rank[0].ctx)->text, "PEER_REJECTED"));
    close_all();
}

static void wiring_knobs(void **state)
{
    static const struct { const char *knobs; unsigned requests; } row[] = {
        { "wiring=ring wiring_inflight=1", 1 },
        { "wiring=ring wiring_inflight=3", 3 },
        { "wiring=ring", 4 },                /* half of the ring */
        { "wiring=auto wiring_max_ring=8 wiring_inflight=2", 2 },
        { "wiring=auto wiring_max_ring=7", 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        start(seed_at(i), MOST_RANKS, NULL, row[i].knobs);
        for (int k = 0; k < MOST_RANKS - 1; k++)
            w.rank[k].computes_until = UINT64_MAX;
        wire_rc = 0;
        run_until(all_wired, MDAPL_MS(50), MDAPL_US(50));
        CHECK(fake_requests() == row[i].requests);
        CHECK(w.rank[MOST_RANKS - 1].wired == (row[i].requests == 0));
        close_all();
    }
}

/* -- how soon a request is noticed ------------------------------------------------------------- */

/* How many calls of rank 1, so far apart, until so many of its connections are established. The
 * provider does all it can between two of them. */
static int calls_until_connected(uint64_t apart, uint64_t connects)
{
    int n = 0;

    while (mdapl_ctx_stats(w.rank[1].ctx)->connects < connects && n < 200000) {
        uint64_t now = *fake_time();

        for (int k = 0; k < 20; k++)
            fake_step();
        *fake_time() = now + apart;
        mdapl_progress(w.rank[1].ctx);
        n++;
    }
    return n;
}

/* Rank 1 has polled without events for long; then rank 0 connects to it. */
static int calls_after_silence(const struct mdapl_channel *const *channels, bool in_contact,
                               uint64_t apart)
{
    int n;

    memset(&w, 0, sizeof(w));
    w.size = 3;
    w.seed = seed_at(0);
    fake_start(w.seed, NULL, NULL);
    for (int i = 0; i < w.size; i++)
        open_rank(i, channels, "");
    if (in_contact) {
        send_to(2, 1);
        CHECK(run_until(all_received, MDAPL_SEC(1), 100));
    }
    for (int i = 0; i < 50000; i++) {
        *fake_time() += 100;
        mdapl_progress(w.rank[1].ctx);
    }
    send_to(0, 1);
    for (int k = 0; k < 100; k++) {
        fake_step();
        mdapl_progress(w.rank[0].ctx);
    }
    n = calls_until_connected(apart, 1 + in_contact);
    close_all();
    return n;
}

static void request_is_noticed(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const struct mdapl_channel *const *channels = k & 1 ? second : alone;

        CHECK(calls_after_silence(channels, k & 2, MDAPL_MS(1)) <= 20);
        CHECK(calls_after_silence(channels, k & 2, 100) <= 600);
        CHECK(calls_after_silence(channels, k & 2, 0) <= 600);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peer_computes),
        cmocka_unit_test(peer_computes_for_long),
        cmocka_unit_test(unanswered_for_too_long),
        cmocka_unit_test(refused_for_too_long),
        cmocka_unit_test(unreachable_after_long),
        cmocka_unit_test(stale_requests_overtake),
        cmocka_unit_test(lost_request_wins),
        cmocka_unit_test(acceptance_is_lost),
        cmocka_unit_test(caller_has_gone),
        cmocka_unit_test(called_rank_connects_itself),
        cmocka_unit_test(called_one_is_refused),
        cmocka_unit_test(wiring_knobs),
        cmocka_unit_test(request_is_noticed),
    };

    read_seed(argc, argv);
    return RUN(tests);
}
