/* SPDX-License-Identifier: MIT */
/*
 * Two hosts (network namespaces joined by a veth pair): a host that becomes unresponsive breaks the
 * connection after the IA's `retry`; a stopped process on a responsive host does not. The IA
 * remote0 is on the veth device and has a retry of one second.
 */
#include "cable.h"

#include <string.h>
#include <unistd.h>

static void accept_and_serve(struct side *s, int fd)
{
    DAT_COUNT more;
    DAT_EVENT e;

    peer_accept(s);
    send_byte(fd, 'r');
    dat_evd_wait(s->conn, 120 * SEC, 1, &e, &more);
}

static DAT_RETURN post_write(struct side *s, const struct peer *p, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(s, 0, BUF);
    DAT_RMR_TRIPLET r = peer_memory(p, 0, BUF);

    return dat_ep_post_rdma_write(s->ep, 1, &t, cookie(n), &r, DAT_COMPLETION_DEFAULT_FLAG);
}

static void start_remote(struct peer *p, struct side *s)
{
    peer_start_prepared(p, "remote0", accept_and_serve, make_cable);
    open_side(s, "remote0");
    peer_connect(p, s);
    recv_byte(p->fd);
}

static void expect_broken(struct side *s)
{
    DAT_COUNT more;
    DAT_EVENT e;

    OK(dat_evd_wait(s->conn, ATMOST, 1, &e, &more));
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_BROKEN);
}

/* The host is unresponsive before the send: TCP acknowledges nothing. */
static void unresponsive_before_send(struct side *local, int fd)
{
    struct peer p;
    struct side s;

    (void)local;
    start_remote(&p, &s);
    drop_packets(&p, 0);
    post_send(&s, 0, 8, 1);
    expect_dto(&s, 1, DAT_DTO_ERR_TRANSPORT);
    expect_broken(&s);
    peer_end(&p);
    send_byte(fd, 'd');
}

/* TCP has acknowledged the request; its response never arrives. */
static void unresponsive_after_send(struct side *local, int fd)
{
    struct peer p;
    struct side s;

    (void)local;
    start_remote(&p, &s);
    peer_stop(&p);
    post_send(&s, 0, 8, 1);
    usleep(500000);              /* the remote kernel acknowledges */
    drop_packets(&p, 0);
    expect_broken(&s);
    peer_end(&p);
    send_byte(fd, 'd');
}

/* Nothing is in flight: this side waits for a message. */
static void unresponsive_while_idle(struct side *local, int fd)
{
    struct peer p;
    struct side s;

    (void)local;
    start_remote(&p, &s);
    post_recv(&s, 0, 8, 1);
    drop_packets(&p, 0);
    expect_broken(&s);
    peer_end(&p);
    send_byte(fd, 'd');
}

enum { WRITES = 16, SENDS = 8 };

/* The process is stopped for longer than `retry`, with more in flight than TCP buffers, then
 * less. */
static void stopped_is_not_unresponsive(struct side *local, int fd)
{
    struct peer p;
    struct side s;

    (void)local;
    start_remote(&p, &s);
    peer_stop(&p);
    for (uint64_t i = 0; i < WRITES; i++)
        OK(post_write(&s, &p, i));
    expect_nothing(s.dto);
    usleep(3500000);
    peer_continue(&p);
    for (uint64_t i = 0; i < WRITES; i++)
        expect_dto(&s, i, DAT_DTO_SUCCESS);
    for (uint64_t i = 0; i < SENDS; i++) {       /* each after an idle time */
        usleep(1100000);
        OK(post_write(&s, &p, i));
        expect_dto(&s, i, DAT_DTO_SUCCESS);
    }
    expect_nothing(s.conn);
    peer_end(&p);
    send_byte(fd, 'd');
}

static void unacknowledged_request(void **state)
{
    (void)state;
    between_hosts(unresponsive_before_send);
}

static void request_without_response(void **state)
{
    (void)state;
    between_hosts(unresponsive_after_send);
}

static void idle_connection(void **state)
{
    (void)state;
    between_hosts(unresponsive_while_idle);
}

static void stopped_process(void **state)
{
    (void)state;
    between_hosts(stopped_is_not_unresponsive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unacknowledged_request),
        cmocka_unit_test(request_without_response),
        cmocka_unit_test(idle_connection),
        cmocka_unit_test(stopped_process),
    };

    return RUN(tests);
}
