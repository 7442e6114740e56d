/* SPDX-License-Identifier: MIT */
/*
 * Peers that misbehave harm nobody else, and handles that have been freed are recognised.
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

/* The pair of the world still works. */
static void all_is_well(struct world *w)
{
    post_recv(&w->b, 0, 64, 70);
    post_send(&w->a, 0, 64, 71);
    expect_dto(&w->b, 70, DAT_DTO_SUCCESS);
    expect_dto(&w->a, 71, DAT_DTO_SUCCESS);
}

/* A socket to the listening point of b: what a stranger can do. */
static int stranger(struct world *w)
{
    struct sockaddr_in to;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    memcpy(&to, w->addr, sizeof(to));
    to.sin_port = htons((uint16_t)w->qual);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Has the other end hung up? b makes progress meanwhile. */
static bool hung_up(struct world *w, int fd)
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

static void garbage_is_hung_up_on(void **state)
{
    static const char garbage[64] = "GET / HTTP/1.0\r\n\r\n";
    struct world *w = *state;
    int fd = stranger(w);

    join(w);
    assert_int_equal(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL), sizeof(garbage));
    assert_true(hung_up(w, fd));
    close(fd);
    expect_nothing(w->b.cr);
    all_is_well(w);
}

static void silence_harms_nobody(void **state)
{
    struct world *w = *state;
    int fd[32];

    for (int i = 0; i < 32; i++)
        fd[i] = stranger(w);
    join(w);
    expect_nothing(w->b.cr);
    all_is_well(w);
    for (int i = 0; i < 32; i++)
        close(fd[i]);
}

/* Half a CONNECT, then the end. */
static void half_a_call(void **state)
{
    static const uint8_t half[20] = { 0x5d, 1 };
    struct world *w = *state;
    int fd = stranger(w);

    send(fd, half, sizeof(half), MSG_NOSIGNAL);
    close(fd);
    join(w);
    expect_nothing(w->b.cr);
    all_is_well(w);
}

/* -- processes that stop or die --------------------------------------------------------------- */

static struct invitation {
    _Atomic int ready;
    DAT_CONN_QUAL qual;
    struct sockaddr_in addr;
    uint64_t va;
    DAT_RMR_CONTEXT key;
} *shared;

static pid_t guest;

/* The guest process: calls, and then does nothing until it is killed. */
static void be_guest(void)
{
    struct side s = { .ia = DAT_HANDLE_NULL };
    DAT_EVENT e;

    while (!shared->ready)
        usleep(1000);
    open_side(&s, "soft0");
    OK(dat_ep_connect(s.ep, (DAT_IA_ADDRESS_PTR)&shared->addr, shared->qual, 5 * SEC, 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    e = next_event(s.conn);
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    shared->va = (uint64_t)(uintptr_t)s.buf;
    shared->key = s.key;
    shared->ready = 2;
    for (;;)
        pause();
}

/* Forked before this process opens anything. */
static int set_up_guest(void **state)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                  0);
    guest = fork();
    if (guest == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_guest();
    }
    return set_up(state);
}

/* b's second endpoint is connected to the guest. */
static DAT_EP_HANDLE let_in(struct world *w)
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

static DAT_RETURN write_to_guest(struct world *w, DAT_EP_HANDLE ep, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(&w->b, 0, 65536);
    DAT_RMR_TRIPLET r = { shared->va, 65536, shared->key };

    return dat_ep_post_rdma_write(ep, 1, &t, cookie(n), &r, DAT_COMPLETION_DEFAULT_FLAG);
}

static void stopped_peer_is_waited_for(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE ep = let_in(w);

    kill(guest, SIGSTOP);
    waitpid(guest, NULL, WUNTRACED);
    for (uint64_t i = 0; i < 8; i++)
        OK(write_to_guest(w, ep, i));
    join(w);
    expect_nothing(w->b.dto);
    all_is_well(w);
    kill(guest, SIGCONT);
    for (uint64_t i = 0; i < 8; i++)
        expect_dto(&w->b, i, DAT_DTO_SUCCESS);
    OK(dat_ep_free(ep));
}

static void dead_peer_breaks_only_its_connection(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE ep = let_in(w);
    DAT_EVENT e;

    join(w);
    kill(guest, SIGKILL);
    e = next_event(w->b.conn);
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_BROKEN);
    assert_ptr_equal(e.event_data.connect_event_data.ep_handle, ep);
    expect_nothing(w->b.conn);
    all_is_well(w);
    OK(dat_ep_free(ep));
}

static int tear_down_guest(void **state)
{
    kill(guest, SIGKILL);
    waitpid(guest, NULL, 0);
    munmap(shared, sizeof(*shared));
    return tear_down(state);
}

/* -- threads that sleep ----------------------------------------------------------------------- */

enum { ROUND_TRIPS = 20000 };

/* Refuses the first call; until it comes, this thread sleeps while others come and go. */
static void *refuse_a_call(void *arg)
{
    struct world *w = arg;
    DAT_COUNT more;
    DAT_EVENT e;

    if (dat_evd_wait(w->b.cr, 60 * SEC, 1, &e, &more) == DAT_SUCCESS)
        dat_cr_reject(e.event_data.cr_arrival_event_data.cr_handle, 0, NULL);
    return NULL;
}

/* Sends back what comes, until a receive or a wait fails. */
static void *echo(void *arg)
{
    struct side *s = arg;
    DAT_LMR_TRIPLET in = seg(s, 0, 8), out = seg(s, 64, 8);
    DAT_COUNT more;
    DAT_EVENT e;

    while (dat_evd_wait(s->dto, 5 * SEC, 1, &e, &more) == DAT_SUCCESS
           && e.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS) {
        dat_ep_post_recv(s->ep, 1, &in, cookie(1), DAT_COMPLETION_DEFAULT_FLAG);
        dat_ep_post_send(s->ep, 1, &out, cookie(2), DAT_COMPLETION_SUPPRESS_FLAG);
    }
    return NULL;
}

/* Two threads sleep on one adapter: what wakes one of them must not be lost for the other. */
static void sleepers_miss_nothing(void **state)
{
    struct world *w = *state;
    pthread_t refusing, echoing;

    post_recv(&w->b, 0, 8, 1);
    join(w);
    pthread_create(&refusing, NULL, refuse_a_call, w);
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
    OK(dat_ep_connect(w->a.ep, w->addr, w->qual, 5 * SEC, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_PEER_REJECTED);
    pthread_join(refusing, NULL);
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

/* A connection request whose caller has gone before it was answered. */
static void caller_goes_before_the_answer(void **state)
{
    struct world *w = *state;
    DAT_CR_HANDLE cr = call(w, "hi", 2);

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
        CASE(garbage_is_hung_up_on),
        CASE(silence_harms_nobody),
        CASE(half_a_call),
        cmocka_unit_test_setup_teardown(stopped_peer_is_waited_for, set_up_guest, tear_down_guest),
        cmocka_unit_test_setup_teardown(dead_peer_breaks_only_its_connection, set_up_guest,
                                        tear_down_guest),
        CASE(sleepers_miss_nothing),
        CASE(freed_handles_are_recognised),
        CASE(caller_goes_before_the_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
