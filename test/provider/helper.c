/* SPDX-License-Identifier: MIT */
/*
 * The helper thread: it blocks all signals and wakes only for work. And processes that fork, or
 * that have a limit on file size.
 */
#include "peer.h"
#include "threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- no wake-ups ------------------------------------------------------------------------------ */

static void idle_adapter_causes_no_wakeups(void **state)
{
    (void)state;
    NEEDS_NO_OTHER_THREAD();
    expect_no_switches();
}

/* The program makes no call after a connection has been used. */
static void computing_causes_no_wakeups(void **state)
{
    struct world *w = *state;

    NEEDS_NO_OTHER_THREAD();
    connect_pair(w);
    for (uint32_t i = 0; i < 100; i++) {
        post_recv(&w->b, 0, 64, i);
        post_send(&w->a, 0, 64, i);
        expect_dto(&w->b, i, DAT_DTO_SUCCESS);
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
    }
    post_recv(&w->b, 0, 64, 7);
    expect_no_switches();
    /* A message that arrives then is served at once, without a call on that side. */
    memset(w->a.buf, 0x61, 64);
    post_send(&w->a, 0, 64, 8);
    expect_dto(&w->a, 8, DAT_DTO_SUCCESS);
    expect_no_switches();
    expect_dto(&w->b, 7, DAT_DTO_SUCCESS);
}

static void *wait_for_recv(void *arg)
{
    struct side *s = arg;
    DAT_COUNT more;
    DAT_EVENT e;

    return (void *)(uintptr_t)DAT_GET_TYPE(dat_evd_wait(s->dto, ATMOST, 1, &e, &more));
}

/* A thread waits for a message: neither it nor the helper thread wakes. */
static void waiting_causes_no_wakeups(void **state)
{
    struct world *w = *state;
    pthread_t waiter;
    void *end;

    NEEDS_NO_OTHER_THREAD();
    post_recv(&w->b, 0, 64, 7);
    connect_pair(w);
    pthread_create(&waiter, NULL, wait_for_recv, &w->b);
    expect_no_switches();
    post_send(&w->a, 0, 64, 8);
    pthread_join(waiter, &end);
    assert_int_equal((uintptr_t)end, DAT_SUCCESS);
    expect_dto(&w->a, 8, DAT_DTO_SUCCESS);
    expect_no_switches();
}

/* The program polls and then stops: the helper thread serves after at most two of its periods. */
static void polling_then_computing(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET t = seg(&w->a, 0, BUF);
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, BUF);
    DAT_EVENT e;

    NEEDS_NO_OTHER_THREAD();
    connect_pair(w);
    for (int i = 0; i < 20; i++) {
        for (int k = 0; k < 2000; k++)
            IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->b.dto, &e));
        memset(w->a.buf, i, BUF);
        OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(1), &r, DAT_COMPLETION_DEFAULT_FLAG));
        expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    }
}

/* -- signals ---------------------------------------------------------------------------------- */

static void expect_blocked(const char *tid, void *arg)
{
    unsigned long long blocked = thread_status(tid, "SigBlk", 16);

    (void)arg;
    for (int sig = 1; sig < 32; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            assert_true(blocked >> (sig - 1) & 1);
}

static void helper_blocks_signals(void **state)
{
    (void)state;
    each_other_thread(expect_blocked, NULL);
}

/* -- limits and forks ------------------------------------------------------------------------- */

/* RLIMIT_FSIZE is below the size of a segment: none is made, and no SIGXFSZ ends the program. */
static void connects_without_file_size(struct side *s, int fd)
{
    struct rlimit small = { 65536, 65536 };
    struct peer p;

    assert_int_equal(recv(fd, &p, sizeof(p), MSG_WAITALL), sizeof(p));
    setrlimit(RLIMIT_FSIZE, &small);
    peer_connect(&p, s);
    post_recv(s, 0, 64, 1);
    expect_dto(s, 1, DAT_DTO_SUCCESS);
    send_byte(fd, 'd');
    recv_byte(fd);
}

static void advertise(struct world *w, struct peer *p)
{
    struct peer self = { .qual = w->qual };

    memcpy(&self.addr, w->addr, sizeof(self.addr));
    assert_int_equal(send(p->fd, &self, sizeof(self), MSG_NOSIGNAL), sizeof(self));
}

static void file_size_limit(void **state)
{
    struct peer p;
    struct world *w;
    void *name = NULL;

    (void)state;
    peer_start(&p, "soft0", connects_without_file_size);
    set_up(&name);
    w = name;
    advertise(w, &p);
    peer_accept(&w->b);
    post_send(&w->b, 0, 64, 2);
    assert_int_equal(recv_byte(p.fd), 'd');
    expect_dto(&w->b, 2, DAT_DTO_SUCCESS);
    peer_end(&p);
    tear_down(&name);
}

/* Accepts a connection, forks a child that outlives it, and kills itself. */
static void forks_and_ends(struct side *s, int fd)
{
    pid_t child;

    peer_accept(s);
    child = test_fork();
    if (child == 0) {
        close(fd);
        sleep(30);
        _exit(0);
    }
    assert_int_equal(send(fd, &child, sizeof(child), MSG_NOSIGNAL), sizeof(child));
    kill(getpid(), SIGKILL);
}

static void child_closes_the_connections(void **state)
{
    struct peer p;
    struct side s;
    pid_t child;

    (void)state;
    peer_start(&p, "soft0", forks_and_ends);
    open_side(&s, "soft0");
    peer_connect(&p, &s);
    assert_int_equal(recv(p.fd, &child, sizeof(child), MSG_WAITALL), sizeof(child));
    waitpid(p.pid, NULL, 0);
    post_send(&s, 0, 8, 1);
    expect_conn(&s, DAT_CONNECTION_EVENT_BROKEN);
    kill(child, SIGKILL);
    close(p.fd);
    close_side(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_size_limit),
        cmocka_unit_test(child_closes_the_connections),
        CASE(helper_blocks_signals),
        CASE(idle_adapter_causes_no_wakeups),
        CASE(computing_causes_no_wakeups),
        CASE(waiting_causes_no_wakeups),
        CASE(polling_then_computing),
    };

    return RUN(tests);
}
