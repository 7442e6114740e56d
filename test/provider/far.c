/* SPDX-License-Identifier: MIT */
/*
 * Two hosts (network namespaces with a cable between them): a host that falls silent is noticed in
 * the time that the IA's `retry` gives, and a process that is stopped on a host that answers is not
 * taken for one. The IA far0 has the cable's end and a retry of one second.
 */
#include "partner.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEAR "10.94.0.1"
#define FAR "10.94.0.2"

__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return system(text) == 0;
}

static void leave_network(void)
{
    if (unshare(CLONE_NEWNET) || !run("ip link set lo up"))
        _exit(77);
}

/* The far host: a network of its own, and a cable to that of the process that has forked it. */
static void lay_cable(void)
{
    int near = getppid();

    leave_network();
    if (!run("ip link add p0 type veth peer name p0 netns %d && ip addr add " FAR "/24 dev p0 && "
             "ip link set p0 up && nsenter -t %d -n ip addr add " NEAR "/24 dev p0 && "
             "nsenter -t %d -n ip link set p0 up", near, near, near))
        _exit(77);
}

static void silence(const struct partner *p)
{
    assert_true(run("nsenter -t %d -n ip route add blackhole " NEAR "/32", (int)p->pid));
}

static void accept_and_work(struct side *s, int fd)
{
    DAT_COUNT more;
    DAT_EVENT e;

    partner_accept(s);
    say(fd, 'r');
    dat_evd_wait(s->conn, 120 * SEC, 1, &e, &more);
}

static DAT_RETURN post_write(struct side *s, const struct partner *p, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(s, 0, BUF);
    DAT_RMR_TRIPLET r = partner_at(p, 0, BUF);

    return dat_ep_post_rdma_write(s->ep, 1, &t, cookie(n), &r, DAT_COMPLETION_DEFAULT_FLAG);
}

static void start_far(struct partner *p, struct side *s)
{
    partner_start_prepared(p, "far0", accept_and_work, lay_cable);
    open_side(s, "far0");
    partner_join(p, s);
    hear(p->fd);
}

static void expect_verdict(struct side *s)
{
    DAT_COUNT more;
    DAT_EVENT e;

    OK(dat_evd_wait(s->conn, 30 * SEC, 1, &e, &more));
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_BROKEN);
}

/* Silent before anything is sent: nothing is ever acknowledged. */
static void silent_before(struct side *near, int fd)
{
    struct partner p;
    struct side s;

    (void)near;
    start_far(&p, &s);
    silence(&p);
    post_send(&s, 0, 8, 1);
    expect_dto(&s, 1, DAT_DTO_ERR_TRANSPORT);
    expect_verdict(&s);
    partner_end(&p);
    say(fd, 'd');
}

/* TCP has carried the request, but its answer never comes. */
static void silent_after(struct side *near, int fd)
{
    struct partner p;
    struct side s;

    (void)near;
    start_far(&p, &s);
    partner_stop(&p);
    post_send(&s, 0, 8, 1);
    usleep(500000);              /* the far kernel acknowledges */
    silence(&p);
    expect_verdict(&s);
    partner_end(&p);
    say(fd, 'd');
}

/* Nothing is under way: one end waits for a message. */
static void silent_idle(struct side *near, int fd)
{
    struct partner p;
    struct side s;

    (void)near;
    start_far(&p, &s);
    post_recv(&s, 0, 8, 1);
    silence(&p);
    expect_verdict(&s);
    partner_end(&p);
    say(fd, 'd');
}

enum { WRITES = 16, SENDS = 8 };

/* Stopped for longer than `retry`, with more under way than TCP holds, and then with little. */
static void stopped_is_not_silent(struct side *near, int fd)
{
    struct partner p;
    struct side s;

    (void)near;
    start_far(&p, &s);
    partner_stop(&p);
    for (uint64_t i = 0; i < WRITES; i++)
        OK(post_write(&s, &p, i));
    expect_nothing(s.dto);
    usleep(3500000);
    partner_continue(&p);
    for (uint64_t i = 0; i < WRITES; i++)
        expect_dto(&s, i, DAT_DTO_SUCCESS);
    for (uint64_t i = 0; i < SENDS; i++) {       /* each after a silence */
        usleep(1100000);
        OK(post_write(&s, &p, i));
        expect_dto(&s, i, DAT_DTO_SUCCESS);
    }
    expect_nothing(s.conn);
    partner_end(&p);
    say(fd, 'd');
}

static void between_hosts(partner_role *role)
{
    struct partner p;

    if (getuid() != 0 || system("ip -V >/dev/null 2>&1 && nsenter -V >/dev/null 2>&1"))
        SKIP_TEST("hosts of its own need root, ip and nsenter");
    partner_start_prepared(&p, "soft0", role, leave_network);
    assert_int_equal(hear(p.fd), 'd');
    partner_end(&p);
}

static void unacknowledged_request(void **state)
{
    (void)state;
    between_hosts(silent_before);
}

static void unanswered_request(void **state)
{
    (void)state;
    between_hosts(silent_after);
}

static void nothing_under_way(void **state)
{
    (void)state;
    between_hosts(silent_idle);
}

static void stopped_process(void **state)
{
    (void)state;
    between_hosts(stopped_is_not_silent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unacknowledged_request),
        cmocka_unit_test(unanswered_request),
        cmocka_unit_test(nothing_under_way),
        cmocka_unit_test(stopped_process),
    };

    return RUN(tests);
}
