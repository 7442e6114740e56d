/* SPDX-License-Identifier: MIT */
/*
 * Peers that misbehave disturb no other connection; waiting threads lose no event; handles of freed
 * objects are recognised.
 */
#include "world.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Checks that the pair still transfers a message. */
static void check_pair(struct world *w)
{
    post_recv(&w->b, 0, 64, 70);
    post_send(&w->a, 0, 64, 71);
    expect_dto(&w->b, 70, DAT_DTO_SUCCESS);
    expect_dto(&w->a, 71, DAT_DTO_SUCCESS);
}

/* Makes progress on b until it closes the socket. False: it does not, for 5 s. */
static bool closed_by_adapter(struct world *w, int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    DAT_EVENT e;
    char c;

    for (int i = 0; i < 5000; i++) {
        dat_evd_dequeue(w->b.dto, &e);
        if (poll(&p, 1, 1) > 0)
            return recv(fd, &c, 1, 0) <= 0;
    }
    return false;
}

static void garbage_is_dropped(void **state)
{
    static const char garbage[64] = "GET / HTTP/1.0\r\n\r\n";
    struct world *w = *state;
    int fd = raw_socket();

    raw_connect(fd, w->addr, w->qual);
    connect_pair(w);
    assert_int_equal(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL), sizeof(garbage));
    assert_true(closed_by_adapter(w, fd));
    close(fd);
    expect_nothing(w->b.cr);
    check_pair(w);
}

static void silent_connections_are_harmless(void **state)
{
    struct world *w = *state;
    int fd[32];

    for (int i = 0; i < 32; i++) {
        fd[i] = raw_socket();
        raw_connect(fd[i], w->addr, w->qual);
    }
    connect_pair(w);
    expect_nothing(w->b.cr);
    check_pair(w);
    for (int i = 0; i < 32; i++)
        close(fd[i]);
}

/* A part of a CONNECT frame, then the end of the stream. */
static void truncated_connect(void **state)
{
    static const uint8_t half[20] = { 0x5d, 1 };
    struct world *w = *state;
    int fd = raw_socket();

    raw_connect(fd, w->addr, w->qual);
    send(fd, half, sizeof(half), MSG_NOSIGNAL);
    close(fd);
    connect_pair(w);
    expect_nothing(w->b.cr);
    check_pair(w);
}

/* -- processes that stop or die --------------------------------------------------------------- */

static struct exchange {
    _Atomic int ready;
    DAT_CONN_QUAL qual;
    struct sockaddr_in addr;
    uint64_t va;
    DAT_RMR_CONTEXT key;
} *shared;

static pid_t peer;

/* The peer process: connects, then does nothing until it is killed. */
static void run_peer(void)
{
    struct side s = { .ia = DAT_HANDLE_NULL };
    DAT_EVENT e;

    while (!shared->ready)
        usleep(1000);
    open_side(&s, "soft0");
    OK(dat_ep_connect(s.ep, (DAT_IA_ADDRESS_PTR)&shared->addr, shared->qual, ATMOST, 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    e = next_event(s.conn);
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    shared->va = (uint64_t)(uintptr_t)s.buf;
    shared->key = s.key;
    shared->ready = 2;
    for (;;)
        pause();
}

/* Forks the peer before this process opens an adapter. */
static int set_up_peer(void **state)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                  0);
    peer = test_fork();
    if (peer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_peer();
    }
    return set_up(state);
}

/* Connects the peer to a second endpoint of b. */
static DAT_EP_HANDLE accept_peer(struct world *w)
{
    DAT_EP_HANDLE ep;
    DAT_EVENT e;

    OK(dat_ep_create(w->b.ia, w->b.pz, w->b.dto, w->b.dto, w->b.conn, NULL, &ep));
    memcpy(&shared->addr, w->addr, sizeof(shared->addr));
    shared->qual = w->qual;
    shared->ready = 1;
    e = next_event(w->b.cr);
    OK(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, ep, 0, NULL));
    e = next_event(w->b.conn);
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    while (shared->ready != 2)
        usleep(1000);
    return ep;
}

static DAT_RETURN write_to_peer(struct world *w, DAT_EP_HANDLE ep, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(&w->b, 0, 65536);
    DAT_RMR_TRIPLET r = { shared->va, 65536, shared->key };

    return dat_ep_post_rdma_write(ep, 1, &t, cookie(n), &r, DAT_COMPLETION_DEFAULT_FLAG);
}

static void stopped_peer_breaks_nothing(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE ep = accept_peer(w);

    kill(peer, SIGSTOP);
    waitpid(peer, NULL, WUNTRACED);
    for (uint64_t i = 0; i < 8; i++)
        OK(write_to_peer(w, ep, i));
    connect_pair(w);
    expect_nothing(w->b.dto);
    check_pair(w);
    kill(peer, SIGCONT);
    for (uint64_t i = 0; i < 8; i++)
        expect_dto(&w->b, i, DAT_DTO_SUCCESS);
    OK(dat_ep_free(ep));
}

static void dead_peer_breaks_only_its_connection(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE ep = accept_peer(w);
    DAT_EVENT e;

    connect_pair(w);
    kill(peer, SIGKILL);
    e = next_event(w->b.conn);
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_BROKEN);
    assert_ptr_equal(e.event_data.connect_event_data.ep_handle, ep);
    expect_nothing(w->b.conn);
    check_pair(w);
    OK(dat_ep_free(ep));
}

static int tear_down_peer(void **state)
{
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    munmap(shared, sizeof(*shared));
    return tear_down(state);
}

/* -- waiting threads -------------------------------------------------------------------------- */

enum { ROUND_TRIPS = 20000 };

/* Waits for a connection request and rejects it. Other threads wait and return meanwhile. */
static void *reject_a_request(void *arg)
{
    struct world *w = arg;
    DAT_COUNT more;
    DAT_EVENT e;

    if (dat_evd_wait(w->b.cr, ATMOST, 1, &e, &more) == DAT_SUCCESS)
        dat_cr_reject(e.event_data.cr_arrival_event_data.cr_handle, 0, NULL);
    return NULL;
}

/* Answers each message, until a receive or a wait fails. */
static void *echo(void *arg)
{
    struct side *s = arg;
    DAT_LMR_TRIPLET in = seg(s, 0, 8), out = seg(s, 64, 8);
    DAT_COUNT more;
    DAT_EVENT e;

    while (dat_evd_wait(s->dto, ATMOST, 1, &e, &more) == DAT_SUCCESS
           && e.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS) {
        dat_ep_post_recv(s->ep, 1, &in, cookie(1), DAT_COMPLETION_DEFAULT_FLAG);
        dat_ep_post_send(s->ep, 1, &out, cookie(2), DAT_COMPLETION_SUPPRESS_FLAG);
    }
    return NULL;
}

/* Two threads wait on one adapter: an event for one must not be lost while the other wakes. */
static void two_waiters_lose_no_event(void **state)
{
    struct world *w = *state;
    pthread_t rejecting, echoing;

    post_recv(&w->b, 0, 8, 1);
    connect_pair(w);
    pthread_create(&rejecting, NULL, reject_a_request, w);
    pthread_create(&echoing, NULL, echo, &w->b);
    for (uint64_t i = 0; i < ROUND_TRIPS; i++) {
        DAT_LMR_TRIPLET t = seg(&w->a, 64, 8);

        post_recv(&w->a, 0, 8, i);
        OK(dat_ep_post_send(w->a.ep, 1, &t, cookie(0), DAT_COMPLETION_SUPPRESS_FLAG));
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
    }
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    pthread_join(echoing, NULL);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_reset(w->a.ep));
    OK(dat_ep_connect(w->a.ep, w->addr, w->qual, ATMOST, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_PEER_REJECTED);
    pthread_join(rejecting, NULL);
}

/* -- handles ---------------------------------------------------------------------------------- */

static void freed_handles_are_recognised(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET t = seg(&w->a, 0, 8);
    DAT_EP_HANDLE ep;
    DAT_EVD_HANDLE evd;
    DAT_PZ_HANDLE pz;
    DAT_EVENT e;

    OK(dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, NULL, &ep));
    OK(dat_ep_free(ep));
    IS(DAT_INVALID_HANDLE, dat_ep_post_send(ep, 1, &t, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    IS(DAT_INVALID_HANDLE, dat_ep_free(ep));
    OK(dat_evd_create(w->a.ia, 4, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &evd));
    OK(dat_evd_free(evd));
    IS(DAT_INVALID_HANDLE, dat_evd_dequeue(evd, &e));
    OK(dat_pz_create(w->a.ia, &pz));
    OK(dat_pz_free(pz));
    IS(DAT_INVALID_HANDLE, dat_pz_free(pz));
    OK(dat_psp_free(w->psp));
    IS(DAT_INVALID_HANDLE, dat_psp_free(w->psp));
    OK(dat_psp_create_any(w->b.ia, &w->qual, w->b.cr, DAT_PSP_CONSUMER_FLAG, &w->psp));
    OK(dat_evd_free(w->a.cr));
    IS(DAT_INVALID_HANDLE, dat_evd_free(w->a.cr));
    OK(dat_evd_create(w->a.ia, QLEN, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &w->a.cr));
}

/* The active side disconnects before its request is accepted. */
static void disconnect_before_accept(void **state)
{
    struct world *w = *state;
    DAT_CR_HANDLE cr = request(w, "hi", 2);

    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_nothing(w->b.cr);
    OK(dat_cr_accept(cr, w->b.ep, 0, NULL));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    IS(DAT_INVALID_HANDLE, dat_cr_reject(cr, 0, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(garbage_is_dropped),
        CASE(silent_connections_are_harmless),
        CASE(truncated_connect),
        cmocka_unit_test_setup_teardown(stopped_peer_breaks_nothing, set_up_peer, tear_down_peer),
        cmocka_unit_test_setup_teardown(dead_peer_breaks_only_its_connection, set_up_peer,
                                        tear_down_peer),
        CASE(two_waiters_lose_no_event),
        CASE(freed_handles_are_recognised),
        CASE(disconnect_before_accept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
