/* SPDX-License-Identifier: MIT */
/*
 * Exactly one event for every connect and every connection, also when an EVD is full, a backlog is
 * full, or the adapter fails; and which threads may wait for it.
 */
#include "peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECTS = 6 };

static void connect_to(struct world *w, DAT_EP_HANDLE ep, DAT_CONN_QUAL qual)
{
    OK(dat_ep_connect(ep, w->addr, qual, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
}

static void make_eps(struct side *s, DAT_EP_HANDLE *ep, int n)
{
    for (int i = 0; i < n; i++)
        OK(dat_ep_create(s->ia, s->pz, s->dto, s->dto, s->conn, NULL, &ep[i]));
}

static void free_eps(DAT_EP_HANDLE *ep, int n)
{
    for (int i = 0; i < n; i++)
        OK(dat_ep_free(ep[i]));
}

/* Connection requests that find the EVD full are rejected. */
static void full_evd_rejects_requests(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE out[CONNECTS], in[2];
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;
    DAT_EVD_HANDLE cr;
    DAT_EVENT e;

    OK(dat_evd_create(w->b.ia, 2, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &cr));
    OK(dat_psp_create_any(w->b.ia, &qual, cr, DAT_PSP_CONSUMER_FLAG, &psp));
    make_eps(&w->a, out, CONNECTS);
    make_eps(&w->b, in, 2);
    for (int i = 0; i < CONNECTS; i++)
        connect_to(w, out[i], qual);
    for (int i = 0; i < CONNECTS - 2; i++)
        assert_int_equal(next_event(w->a.conn).event_number,
                         DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    for (int i = 0; i < 2; i++) {
        e = next_event(cr);
        OK(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, in[i], 0, NULL));
        assert_int_equal(next_event(w->a.conn).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        assert_int_equal(next_event(w->b.conn).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    expect_nothing(w->a.conn);
    expect_nothing(cr);
    free_eps(out, CONNECTS);
    free_eps(in, 2);
    OK(dat_psp_free(psp));
    OK(dat_evd_free(cr));
}

/* -- a backlog that is full ------------------------------------------------------------------- */

enum { MANY = 12 };

/* Enters a network namespace in which the backlog of listening sockets is 4. */
static bool limit_backlog(void)
{
    int fd, s;
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    bool ok;

    if (unshare(CLONE_NEWNET))
        return false;
    s = socket(AF_INET, SOCK_DGRAM, 0);
    ok = ioctl(s, SIOCSIFFLAGS, &lo) == 0;
    close(s);
    fd = open("/proc/sys/net/core/somaxconn", O_WRONLY);
    ok = fd >= 0 && write(fd, "4", 1) == 1 && ok;
    close(fd);
    return ok;
}

/* Accepts MANY connections. */
static void accept_many(struct side *s, int fd)
{
    DAT_EP_HANDLE ep[MANY];

    send_byte(fd, 'r');
    make_eps(s, ep, MANY);
    for (int i = 0; i < MANY; i++)
        OK(dat_cr_accept(next_event(s->cr).event_data.cr_arrival_event_data.cr_handle, ep[i], 0,
                         NULL));
    recv_byte(fd);
}

/* Runs in a process in a network namespace of its own. */
static void connect_many(struct side *s, int fd)
{
    struct peer p;
    DAT_EP_HANDLE ep[MANY];
    char text[SOFTDAT_CONTROL_MAX + 1];
    const char *link = getenv("TEST_LINK");
    unsigned by_link = 0;

    peer_start(&p, "soft0", accept_many);
    recv_byte(p.fd);
    peer_stop(&p);
    make_eps(s, ep, MANY);
    for (int i = 0; i < MANY; i++)
        OK(dat_ep_connect(ep[i], (DAT_IA_ADDRESS_PTR)&p.addr, p.qual, ATMOST, 0, NULL,
                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    expect_nothing(s->conn);
    peer_continue(&p);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(next_event(s->conn).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_true(control(0, "show", text) > 0);
    for (const char *at = text; (at = strstr(at, link ? link : "shared rings")); at++)
        by_link++;
    assert_int_equal(by_link, MANY);
    peer_end(&p);
    send_byte(fd, 'd');
}

static void enter_network(void)
{
    if (!limit_backlog())
        _exit(77);
}

/* A connect that finds the backlog full is delayed, and still uses the configured link. */
static void full_backlog_delays_connects(void **state)
{
    struct peer p;

    (void)state;
    if (getuid() != 0)
        SKIP_TEST("only root can make a network of its own");
    peer_start_prepared(&p, "soft0", connect_many, enter_network);
    assert_int_equal(recv_byte(p.fd), 'd');
    peer_end(&p);
}

/* -- an adapter that fails -------------------------------------------------------------------- */

/* A TCP port that does not answer connects, because its backlog is full. */
struct full_port {
    struct sockaddr_in addr;
    int fd[8];
};

static void open_full_port(struct full_port *p)
{
    socklen_t len = sizeof(p->addr);

    p->addr = (struct sockaddr_in){ .sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    p->fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(p->fd[0], (struct sockaddr *)&p->addr, len), 0);
    assert_int_equal(listen(p->fd[0], 0), 0);
    getsockname(p->fd[0], (struct sockaddr *)&p->addr, &len);
    for (int i = 1; i < 8; i++) {
        p->fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(p->fd[i], (struct sockaddr *)&p->addr, len);
    }
}

static void close_full_port(struct full_port *p)
{
    for (int i = 0; i < 8; i++)
        close(p->fd[i]);
}

static void failure_ends_connects(void **state)
{
    struct world *w = *state;
    char text[SOFTDAT_CONTROL_MAX + 1];
    struct full_port full;

    open_full_port(&full);
    connect_to(w, w->a.ep, ntohs(full.addr.sin_port));
    expect_nothing(w->a.conn);
    assert_true(control(0, "fail", text) > 0);
    assert_int_equal(next_event(w->a.async).event_number, DAT_ASYNC_ERROR_IA_CATASTROPHIC);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_UNREACHABLE);
    expect_nothing(w->a.conn);
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_DISCONNECTED);
    close_full_port(&full);
}

/* -- event dispatchers and waiters ------------------------------------------------------------ */

static DAT_EVENT software(void)
{
    DAT_EVENT e;

    memset(&e, 0, sizeof(e));
    e.event_number = DAT_SOFTWARE_EVENT;
    return e;
}

/* A CNO does not report a freed EVD but another one with events. */
static void freed_evd_is_not_reported(void **state)
{
    struct world *w = *state;
    DAT_OS_WAIT_PROXY_AGENT none = { NULL, NULL };
    DAT_EVD_HANDLE evd[2], fired;
    DAT_CNO_HANDLE cno;
    DAT_EVENT e = software();

    OK(dat_cno_create(w->a.ia, none, &cno));
    for (int i = 0; i < 2; i++) {
        OK(dat_evd_create(w->a.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd[i]));
        OK(dat_evd_post_se(evd[i], &e));
    }
    OK(dat_evd_free(evd[1]));
    OK(dat_cno_wait(cno, ATMOST, &fired));
    assert_ptr_equal(fired, evd[0]);
    OK(dat_evd_post_se(evd[0], &e));
    OK(dat_evd_modify_cno(evd[0], DAT_HANDLE_NULL));
    IS(DAT_TIMEOUT_EXPIRED, dat_cno_wait(cno, 1000, &fired));
    OK(dat_evd_free(evd[0]));
    OK(dat_cno_free(cno));
}

/* The second of two waiters is refused; this one waits again until it gets the event. */
static void *wait_for_one(void *arg)
{
    DAT_RETURN ret;
    DAT_COUNT more;
    DAT_EVENT e;

    do
        ret = dat_evd_wait(arg, ATMOST, 1, &e, &more);
    while (DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_INVALID_STATE));
    return (void *)(uintptr_t)DAT_GET_TYPE(ret);
}

/* An EVD has one waiter: a second could get the event that wakes the first. */
static void second_waiter_is_refused(void **state)
{
    struct world *w = *state;
    DAT_EVD_HANDLE evd;
    DAT_EVENT e = software(), got;
    DAT_RETURN ret = DAT_SUCCESS;
    pthread_t first;
    DAT_COUNT more;
    void *end;

    OK(dat_evd_create(w->a.ia, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd));
    pthread_create(&first, NULL, wait_for_one, evd);
    for (int i = 0; i < 500 && DAT_GET_TYPE(ret) != DAT_GET_TYPE(DAT_INVALID_STATE); i++) {
        usleep(1000);            /* lets the other thread run */
        ret = dat_evd_wait(evd, SEC / 100, 1, &got, &more);
    }
    IS(DAT_INVALID_STATE, ret);
    OK(dat_evd_post_se(evd, &e));
    pthread_join(first, &end);
    assert_int_equal((uintptr_t)end, DAT_SUCCESS);
    OK(dat_evd_free(evd));
}

/* An EVD of another adapter cannot be the asynchronous EVD. */
static void evd_of_another_adapter(void **state)
{
    struct world *w = *state;
    DAT_EVD_HANDLE evd = w->a.async;
    DAT_IA_HANDLE ia;

    IS(DAT_INVALID_HANDLE, dat_ia_open("soft0", 8, &evd, &ia));
}

/* -- completions ------------------------------------------------------------------------------ */

enum { SIZES = 3 };
static const uint32_t size_of[SIZES] = { 8, 200, 5000 };

static bool link_has_rings(void)
{
    const char *link = getenv("TEST_LINK");

    return link && (strstr(link, "rings") || strstr(link, "direct"));
}

/* Receives each send by polling and, over rings, stops right after the dequeue. */
static void receive_and_stop(struct side *s, int fd)
{
    DAT_EVENT e;

    for (int i = 0; i < SIZES; i++)
        post_recv(s, 0, BUF / 2, 1);
    peer_accept(s);
    send_byte(fd, 'r');
    for (int i = 0; i < SIZES; i++) {
        while (dat_evd_dequeue(s->dto, &e) != DAT_SUCCESS)
            ;
        if (link_has_rings())
            raise(SIGSTOP);
    }
    recv_byte(fd);
}

/* A receiver that has dequeued the completion of its receive has reported the send as executed: the
 * sender's completion does not wait for its next call. */
static void completion_needs_no_call_of_the_receiver(void **state)
{
    struct side s;
    struct peer p;

    (void)state;
    peer_start(&p, "soft0", receive_and_stop);
    open_side(&s, "soft0");
    peer_connect(&p, &s);
    recv_byte(p.fd);
    for (unsigned i = 0; i < SIZES; i++) {
        post_send(&s, 0, size_of[i], i);
        if (link_has_rings())
            waitpid(p.pid, NULL, WUNTRACED);
        expect_dto(&s, i, DAT_DTO_SUCCESS);
        if (link_has_rings())
            peer_continue(&p);
    }
    send_byte(p.fd, 'e');
    close_side(&s);
    peer_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_backlog_delays_connects),
        cmocka_unit_test(completion_needs_no_call_of_the_receiver),
        CASE(full_evd_rejects_requests),
        CASE(failure_ends_connects),
        CASE(freed_evd_is_not_reported),
        CASE(second_waiter_is_refused),
        CASE(evd_of_another_adapter),
    };

    return RUN(tests);
}
