/* SPDX-License-Identifier: MIT */
/*
 * Two hosts with two cables. A connection that is armed migrates when the cable in use is pulled or
 * the remote host does not acknowledge, with requests in flight or without, and back; every request
 * completes, in order, and the bytes are right. The IA paths0 is on both cables and has a long
 * `retry`; its path_timeout is half a second.
 */
#include "cable.h"

#include <dat_path_extensions.h>
#include <string.h>

enum { LEN = 4096, PAIRS = 24 };     /* a pair: a write, and a read of what it has written */

/* -- the remote side -------------------------------------------------------------------------- */

/* Loads, and again after each migration, until the other process ends this one. */
static void accept_and_load(struct side *s, int fd)
{
    DAT_PATH_PARAM p;

    peer_accept(s);
    send_byte(fd, 'r');
    for (;;) {
        OK(dat_path_query(s->ep, &p));
        if (p.state == DAT_PATH_MIGRATED) {
            OK(dat_path_set_alternate(s->ep, NULL));
            OK(dat_path_rearm(s->ep));
        }
        next_event(s->async);
    }
}

/* -- the local side --------------------------------------------------------------------------- */

/* Waits for that event of the EP. Ports go down and up meanwhile, perhaps more than once, and the
 * standby with them. */
static DAT_PATH_EVENT_DATA expect_event(struct side *s, DAT_PATH_EVENT_NUMBER number)
{
    DAT_PATH_EVENT_DATA data;
    DAT_EVENT e;

    do {
        e = next_event(s->async);
        assert_int_not_equal(e.event_number, DAT_PATH_EVENT_FAILED);
        memcpy(&data, e.event_extension_data, sizeof(data));
    } while (e.event_number != (DAT_EVENT_NUMBER)(int)number || data.handle != s->ep);
    return data;
}

static void await_armed(struct side *s)
{
    OK(dat_path_set_alternate(s->ep, NULL));
    OK(dat_path_rearm(s->ep));
    expect_event(s, DAT_PATH_EVENT_ARMED);
}

static void start_remote(struct peer *p, struct side *s)
{
    peer_start_prepared(p, "paths0", accept_and_load, make_two_cables);
    open_side(s, "paths0");
    peer_connect(p, s);
    recv_byte(p->fd);
    await_armed(s);
}

static uint8_t pattern(int round, int i, size_t k)
{
    return (uint8_t)(round + 31 * i + 7 * (int)k);
}

/* Posts pairs from..to-1. The local buffer has what is written, then what is read. */
static void post_pairs(struct side *s, const struct peer *p, int round, int from, int to)
{
    for (int i = from; i < to; i++) {
        size_t at = (size_t)i * LEN, back = (size_t)(PAIRS + i) * LEN;
        DAT_LMR_TRIPLET out = seg(s, at, LEN), in = seg(s, back, LEN);
        DAT_RMR_TRIPLET r = peer_memory(p, at, LEN);
        uint64_t n = 2 * (uint64_t)i;

        for (size_t k = 0; k < LEN; k++)
            s->buf[at + k] = pattern(round, i, k);
        memset(s->buf + back, 0, LEN);
        OK(dat_ep_post_rdma_write(s->ep, 1, &out, cookie(n), &r, DAT_COMPLETION_DEFAULT_FLAG));
        OK(dat_ep_post_rdma_read(s->ep, 1, &in, cookie(n + 1), &r, DAT_COMPLETION_DEFAULT_FLAG));
    }
}

static void expect_pairs(struct side *s, int round)
{
    for (uint64_t n = 0; n < 2 * PAIRS; n++)
        expect_dto(s, n, DAT_DTO_SUCCESS);
    state_of(s);
    for (int i = 0; i < PAIRS; i++)
        for (size_t k = 0; k < LEN; k++)
            assert_int_equal(s->buf[(size_t)(PAIRS + i) * LEN + k], pattern(round, i, k));
}

static void expect_counts(struct side *s, DAT_UINT32 migrated)
{
    DAT_PATH_PARAM p;

    OK(dat_path_query(s->ep, &p));
    assert_int_equal(p.n_migrated, migrated);
    assert_int_equal(p.n_failed, 0);
}

static void end(struct side *s, struct peer *p, int fd)
{
    DAT_EVENT e;

    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(s->conn, &e));
    peer_end(p);
    send_byte(fd, 'd');
}

/* Each cable in turn is pulled while requests are in flight, and put back. */
static void pull_cables(struct side *local, int fd)
{
    enum { ROUNDS = 30 };
    struct peer p;
    struct side s;

    (void)local;
    start_remote(&p, &s);
    for (int round = 0; round < ROUNDS; round++) {
        DAT_PATH_EVENT_DATA data;

        post_pairs(&s, &p, round, 0, PAIRS / 2);
        assert_true(shell("ip link set p%d down", round % 2));
        post_pairs(&s, &p, round, PAIRS / 2, PAIRS);
        data = expect_event(&s, DAT_PATH_EVENT_MIGRATED);
        assert_true(data.cause == DAT_PATH_CAUSE_PORT || data.cause == DAT_PATH_CAUSE_PEER);
        assert_int_equal(data.path.local_port, round % 2 ? 1 : 2);
        assert_int_equal(data.path.remote_port, round % 2 ? 1 : 2);
        expect_pairs(&s, round);
        assert_true(shell("ip link set p%d up", round % 2));
        await_armed(&s);
        expect_counts(&s, (DAT_UINT32)round + 1);
    }
    end(&s, &p, fd);
}

/* The remote host does not answer on the cable in use, which has a carrier. */
static void unresponsive_with_requests(struct side *local, int fd)
{
    struct peer p;
    struct side s;

    (void)local;
    start_remote(&p, &s);
    post_pairs(&s, &p, 0, 0, PAIRS / 2);
    drop_packets(&p, 0);
    post_pairs(&s, &p, 0, PAIRS / 2, PAIRS);
    expect_pairs(&s, 0);
    assert_int_equal(expect_event(&s, DAT_PATH_EVENT_MIGRATED).path.local_port, 2);
    expect_counts(&s, 1);
    end(&s, &p, fd);
}

/* The same with nothing in flight. */
static void unresponsive_while_idle(struct side *local, int fd)
{
    struct peer p;
    struct side s;

    (void)local;
    start_remote(&p, &s);
    drop_packets(&p, 0);
    assert_int_equal(expect_event(&s, DAT_PATH_EVENT_MIGRATED).path.local_port, 2);
    post_pairs(&s, &p, 0, 0, PAIRS);
    expect_pairs(&s, 0);
    expect_counts(&s, 1);
    end(&s, &p, fd);
}

/* The cable of the standby is pulled, or the remote host does not answer there. */
static void standby_fails(struct side *local, int fd)
{
    struct peer p;
    struct side s;

    (void)local;
    start_remote(&p, &s);
    assert_true(shell("ip link set p1 down"));
    expect_event(&s, DAT_PATH_EVENT_DOWN);
    IS(DAT_INVALID_STATE, dat_path_migrate(s.ep));
    assert_true(shell("ip link set p1 up"));
    expect_event(&s, DAT_PATH_EVENT_ARMED);
    drop_packets(&p, 1);
    expect_event(&s, DAT_PATH_EVENT_DOWN);
    post_pairs(&s, &p, 0, 0, PAIRS);
    expect_pairs(&s, 0);
    expect_counts(&s, 0);
    end(&s, &p, fd);
}

/* The peer dies: its kernel closes both links, and the connection breaks without a `retry`. */
static void peer_dies(struct side *local, int fd)
{
    struct peer p;
    struct side s;
    DAT_EVENT e;

    (void)local;
    start_remote(&p, &s);
    post_pairs(&s, &p, 0, 0, PAIRS);
    peer_end(&p);
    e = next_event(s.conn);
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_BROKEN);
    send_byte(fd, 'd');
}

/* -- tests ------------------------------------------------------------------------------------ */

#define BETWEEN_HOSTS(role) \
    static void role##_test(void **state) { (void)state; between_hosts(role); }

BETWEEN_HOSTS(pull_cables)
BETWEEN_HOSTS(unresponsive_with_requests)
BETWEEN_HOSTS(unresponsive_while_idle)
BETWEEN_HOSTS(standby_fails)
BETWEEN_HOSTS(peer_dies)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pull_cables_test),
        cmocka_unit_test(unresponsive_with_requests_test),
        cmocka_unit_test(unresponsive_while_idle_test),
        cmocka_unit_test(standby_fails_test),
        cmocka_unit_test(peer_dies_test),
    };

    return RUN(tests);
}
