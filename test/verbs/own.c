/* SPDX-License-Identifier: MIT */
/*
 * libdaplverbs on the stand-in for verbs (hv.h), where test/provider does not go: what it costs in
 * calls and completions, suppressed completions, endings, asynchronous events. Needs the
 * environment that test/verbs/run gives: IA soft0 is one of libdaplverbs.
 */
#include "world.h"

#include <arpa/inet.h>
#include <dat_path_extensions.h>
#include <dirent.h>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { BYTES = 8, DEPTH = 32, MANY = 300, BATCH = 16 };
enum { QPS = 2048 };         /* more than the stand-in has */

/* -- the stand-in ------------------------------------------------------------------------------ */

static long counted(const char *name)
{
    long (*count)(const char *);
    void *f = dlsym(RTLD_DEFAULT, "ibv_hv_count");

    assert_non_null(f);
    memcpy(&count, &f, sizeof(f));
    return count(name);
}

static void port_event(int type)
{
    void (*raise)(int);
    void *f = dlsym(RTLD_DEFAULT, "ibv_hv_port_event");

    assert_non_null(f);
    memcpy(&raise, &f, sizeof(f));
    raise(type);
}

/* No path of this address carries anything; "0.0.0.0": all do. */
static void cut(const char *addr)
{
    void (*set)(uint32_t);
    void *f = dlsym(RTLD_DEFAULT, "ibv_hv_cut");

    assert_non_null(f);
    memcpy(&set, &f, sizeof(f));
    set(inet_addr(addr));
}

static void send_flagged(struct side *s, uint64_t n, DAT_COMPLETION_FLAGS flags)
{
    DAT_LMR_TRIPLET t = seg(s, 0, BYTES);

    OK(dat_ep_post_send(s->ep, 1, &t, cookie(n), flags));
}

/* -- alternate paths (test/provider/paths.c has the operations) -------------------------------- */

static DAT_PATH_EVENT_DATA path_event(struct side *s, DAT_PATH_EVENT_NUMBER number)
{
    DAT_PATH_EVENT_DATA data;
    DAT_EVENT e = next_event(s->async);

    assert_int_equal(e.event_number, number);
    memcpy(&data, e.event_extension_data, sizeof(data));
    assert_ptr_equal(data.handle, s->ep);
    return data;
}

static void load_both(struct world *w)
{
    OK(dat_path_set_alternate(w->b.ep, NULL));
    OK(dat_path_rearm(w->b.ep));
    OK(dat_path_set_alternate(w->a.ep, NULL));
    OK(dat_path_rearm(w->a.ep));
    path_event(&w->a, DAT_PATH_EVENT_ARMED);
    path_event(&w->b, DAT_PATH_EVENT_ARMED);
}

/* The path in use is cut under a stream: every message arrives once, in order, and each side has
 * one event. Then the other one, after it has been armed again. */
static void cut_path_is_left(void **state)
{
    struct world *w = *state;
    uint64_t n = 0;

    connect_pair(w);
    for (int i = 0; i < DEPTH; i++)
        post_recv(&w->b, 64, BYTES, (uint64_t)i);
    for (DAT_UINT32 round = 1; round <= 2; round++) {
        load_both(w);
        cut(round == 1 ? "127.0.0.1" : "127.0.0.2");
        for (int i = 0; i < MANY; i++, n++) {
            send_flagged(&w->a, n, DAT_COMPLETION_DEFAULT_FLAG);
            expect_dto(&w->b, n, DAT_DTO_SUCCESS);
            expect_dto(&w->a, n, DAT_DTO_SUCCESS);
            post_recv(&w->b, 64, BYTES, n + DEPTH);
        }
        assert_int_equal(path_event(&w->a, DAT_PATH_EVENT_MIGRATED).n_migrated, round);
        assert_int_equal(path_event(&w->b, DAT_PATH_EVENT_MIGRATED).path.local_port, 3 - round);
    }
    cut("0.0.0.0");
}

/* Both paths are cut: the connection breaks. */
static void no_path_is_left(void **state)
{
    struct world *w = *state;

    post_recv(&w->b, 64, BYTES, 0);
    connect_pair(w);
    cut("127.0.0.1");
    send_flagged(&w->a, 0, DAT_COMPLETION_DEFAULT_FLAG);
    expect_dto(&w->a, 0, DAT_DTO_ERR_TRANSPORT);
    assert_int_equal(next_event(w->a.conn).event_number, DAT_CONNECTION_EVENT_BROKEN);
    cut("0.0.0.0");
}

/* An adapter whose driver refuses alternate paths has none, whatever its flags say; nor has an IA
 * with one address. */
static void one_address_has_no_paths(void **state)
{
    struct world *w = *state;
    DAT_PATH_PARAM param;

    IS(DAT_NOT_IMPLEMENTED, dat_path_query(w->a.ep, &param));
}

/* -- costs ------------------------------------------------------------------------------------- */

static void one_way(struct side *from, struct side *to, uint64_t n)
{
    send_flagged(from, n, DAT_COMPLETION_DEFAULT_FLAG);
    expect_dto(to, n, DAT_DTO_SUCCESS);
    expect_dto(from, n, DAT_DTO_SUCCESS);
    post_recv(to, 64, BYTES, n + 1);
}

static void ping_pong_costs(void **state)
{
    struct world *w = *state;
    long calls, sends, recvs, completions;

    post_recv(&w->a, 64, BYTES, 0);
    post_recv(&w->b, 64, BYTES, 0);
    connect_pair(w);
    calls = counted("send_calls");
    sends = counted("sends");
    recvs = counted("recvs");
    completions = counted("completions");
    for (int i = 0; i < MANY; i++) {
        one_way(&w->a, &w->b, (uint64_t)i);
        one_way(&w->b, &w->a, (uint64_t)i);
    }
    /* of a message: one doorbell, one request, one receive; a completion at each side */
    assert_int_equal(counted("send_calls") - calls, 2 * MANY);
    assert_int_equal(counted("sends") - sends, 2 * MANY);
    assert_int_equal(counted("recvs") - recvs, 2 * MANY);
    assert_int_equal(counted("completions") - completions, 4 * MANY);
}

static void stream_costs(void **state)
{
    struct world *w = *state;
    long calls, completions;

    connect_pair(w);
    for (int i = 0; i < DEPTH; i++)
        post_recv(&w->b, 64, BYTES, (uint64_t)i);
    calls = counted("send_calls");
    completions = counted("completions");
    for (int i = 0; i < MANY * BATCH; i++) {
        bool last = i % BATCH == BATCH - 1;

        send_flagged(&w->a, (uint64_t)i, last ? DAT_COMPLETION_DEFAULT_FLAG
                                              : DAT_COMPLETION_SUPPRESS_FLAG);
        expect_dto(&w->b, (uint64_t)i, DAT_DTO_SUCCESS);
        post_recv(&w->b, 64, BYTES, (uint64_t)i + DEPTH);
        if (last)
            expect_dto(&w->a, (uint64_t)i, DAT_DTO_SUCCESS);
    }
    /* of a message: one doorbell, a completion at the receiver and 1 / BATCH at the sender */
    assert_int_equal(counted("send_calls") - calls, MANY * BATCH);
    assert_int_equal(counted("completions") - completions, MANY * BATCH + MANY);
}

/* Nothing is armed while nobody waits: a program that polls has no notifications. */
static void polling_arms_nothing(void **state)
{
    struct world *w = *state;
    DAT_EVENT e;
    long arms, notifications;
    int got = 0;

    post_recv(&w->b, 64, BYTES, 1);
    connect_pair(w);
    arms = counted("arms");
    notifications = counted("notifications");
    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->a.dto, &e));
    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->b.dto, &e));
    post_send(&w->a, 0, BYTES, 1);
    while (got < 2)
        got += (dat_evd_dequeue(w->a.dto, &e) == DAT_SUCCESS)
               + (dat_evd_dequeue(w->b.dto, &e) == DAT_SUCCESS);
    assert_int_equal(counted("arms"), arms);
    assert_int_equal(counted("notifications"), notifications);
}

/* -- suppressed completions -------------------------------------------------------------------- */

static bool requests_idle(struct side *s)
{
    DAT_EP_STATE st;
    DAT_BOOLEAN recv_idle, req_idle;

    OK(dat_ep_get_status(s->ep, &st, &recv_idle, &req_idle));
    return req_idle;
}

/* A consumer that never asks for a completion is not stopped by its queue's length. */
static void all_are_suppressed(void **state)
{
    struct world *w = *state;
    DAT_EVENT e;

    connect_pair(w);
    for (int i = 0; i < MANY; i++) {
        post_recv(&w->b, 64, BYTES, (uint64_t)i);
        send_flagged(&w->a, (uint64_t)i, DAT_COMPLETION_SUPPRESS_FLAG);
        expect_dto(&w->b, (uint64_t)i, DAT_DTO_SUCCESS);
    }
    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->a.dto, &e));
    assert_false(requests_idle(&w->a));      /* none has completed behind the last ones */
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    while (!requests_idle(&w->a))
        poll(NULL, 0, 1);
    /* The last one's acknowledgement may have been under way: then it is flushed. */
    if (DAT_GET_TYPE(dat_evd_dequeue(w->a.dto, &e)) == DAT_SUCCESS) {
        assert_int_equal(e.event_data.dto_completion_event_data.user_cookie.as_64, MANY - 1);
        assert_int_equal(e.event_data.dto_completion_event_data.status, DAT_DTO_ERR_FLUSHED);
    }
    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->a.dto, &e));
}

/* What has not been executed is flushed with an event, suppressed or not. */
static void suppressed_are_flushed(void **state)
{
    struct world *w = *state;
    DAT_EVENT e;

    connect_pair(w);
    for (int i = 0; i < 3; i++)              /* they wait for receives */
        send_flagged(&w->a, (uint64_t)i, DAT_COMPLETION_SUPPRESS_FLAG);
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    for (int i = 0; i < 3; i++)
        expect_dto(&w->a, (uint64_t)i, DAT_DTO_ERR_FLUSHED);
    while (!requests_idle(&w->a))
        poll(NULL, 0, 1);
    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->a.dto, &e));
}

/* -- endings ----------------------------------------------------------------------------------- */

static void graceful_waits_for_requests(DAT_COMPLETION_FLAGS flags, struct world *w)
{
    connect_pair(w);
    send_flagged(&w->a, 1, flags);           /* it waits for a receive */
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_GRACEFUL_FLAG));
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_DISCONNECT_PENDING);
    expect_nothing(w->a.conn);
    post_recv(&w->b, 64, BYTES, 2);
    expect_dto(&w->b, 2, DAT_DTO_SUCCESS);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    if (flags == DAT_COMPLETION_DEFAULT_FLAG)
        expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    assert_true(requests_idle(&w->a));
}

static void graceful_with_a_completion(void **state)
{
    graceful_waits_for_requests(DAT_COMPLETION_DEFAULT_FLAG, *state);
}

static void graceful_without_a_completion(void **state)
{
    graceful_waits_for_requests(DAT_COMPLETION_SUPPRESS_FLAG, *state);
}

/* Freeing an EP leaves a completion of each of its DTOs behind. */
static void freed_with_all_completions(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE ep;
    DAT_EVENT e;

    OK(dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, NULL, &ep));
    for (int i = 0; i < DEPTH; i++) {
        DAT_LMR_TRIPLET t = seg(&w->a, 0, 8);

        OK(dat_ep_post_recv(ep, 1, &t, cookie((uint64_t)i), DAT_COMPLETION_DEFAULT_FLAG));
    }
    OK(dat_ep_free(ep));
    for (int i = 0; i < DEPTH; i++) {
        OK(dat_evd_dequeue(w->a.dto, &e));
        assert_int_equal(e.event_data.dto_completion_event_data.user_cookie.as_64, i);
        assert_int_equal(e.event_data.dto_completion_event_data.status, DAT_DTO_ERR_FLUSHED);
    }
    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->a.dto, &e));
}

/* A caller that ends before the answer: the request can still be queried, and is not accepted. */
static void withdrawn_request(void **state)
{
    struct world *w = *state;
    uint8_t there[56];
    DAT_CR_HANDLE cr;
    DAT_CR_PARAM p;

    memset(there, 0x5a, sizeof(there));
    cr = request(w, there, sizeof(there));
    OK(dat_ep_free(w->a.ep));
    make_ep(&w->a);
    OK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &p));
    assert_memory_equal(p.private_data, there, sizeof(there));
    OK(dat_cr_accept(cr, w->b.ep, 0, NULL));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
    assert_int_equal(state_of(&w->b), DAT_EP_STATE_DISCONNECTED);
}

/* Nobody answers; whether the request has arrived before the time is over is of no importance. */
static void connect_times_out(void **state)
{
    struct world *w = *state;
    DAT_EVENT e;

    OK(dat_ep_connect(w->a.ep, w->addr, w->qual, SEC / 10, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_TIMED_OUT);
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_DISCONNECTED);
    OK(dat_psp_free(w->psp));                /* no request arrives after this */
    while (dat_evd_dequeue(w->b.cr, &e) == DAT_SUCCESS)
        OK(dat_cr_reject(e.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
    OK(dat_psp_create_any(w->b.ia, &w->qual, w->b.cr, DAT_PSP_CONSUMER_FLAG, &w->psp));
    OK(dat_ep_reset(w->a.ep));
    connect_pair(w);
}

static void private_data_of_a_reply(void **state)
{
    struct world *w = *state;
    uint8_t back[56];
    DAT_EVENT e;

    memset(back, 0x22, sizeof(back));
    OK(dat_cr_accept(request(w, NULL, 0), w->b.ep, sizeof(back), back));
    e = next_event(w->a.conn);
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_true((size_t)e.event_data.connect_event_data.private_data_size >= sizeof(back));
    assert_memory_equal(e.event_data.connect_event_data.private_data, back, sizeof(back));
}

/* The stand-in gives ports in their order. An EP that holds one may have that of a service point
 * which a consumer is about to make, and with some hundred of them it does. */
static void idle_endpoints_take_no_port(void **state)
{
    struct world *w = *state;
    DAT_CONN_QUAL before, after;
    DAT_PSP_HANDLE psp;

    OK(dat_psp_create_any(w->b.ia, &before, w->b.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_psp_free(psp));
    OK(dat_ep_free(w->a.ep));
    make_ep(&w->a);
    OK(dat_psp_create_any(w->b.ia, &after, w->b.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_psp_free(psp));
    assert_int_equal(after, before + 1);
    connect_pair(w);
}

/* A reset that finds no QP leaves the EP as it is: it can be freed, or reset later. */
static void reset_without_resources(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE other[QPS];
    DAT_IA_ATTR attr;
    int n = 0;

    OK(dat_ia_query(w->a.ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    if (attr.max_eps >= QPS)
        SKIP_TEST("the adapter has more QPs than this test makes");
    connect_pair(w);
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    while (n < QPS && dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, NULL,
                                    &other[n]) == DAT_SUCCESS)
        n++;
    assert_in_range(n, 1, QPS - 1);
    IS(DAT_INSUFFICIENT_RESOURCES, dat_ep_reset(w->a.ep));
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_DISCONNECTED);
    IS(DAT_INSUFFICIENT_RESOURCES, dat_ep_reset(w->b.ep));
    OK(dat_ep_free(w->b.ep));
    while (n-- > 0)
        OK(dat_ep_free(other[n]));
    make_ep(&w->b);
    OK(dat_ep_reset(w->a.ep));
    connect_pair(w);
}

/* -- events ------------------------------------------------------------------------------------ */

static void expect_port(struct side *s)
{
    DAT_EVENT e = next_event(s->async);

    assert_int_equal(e.event_number, DAT_ASYNC_ERROR_TIMED_OUT);
    assert_int_equal(e.event_data.asynch_error_event_data.reason, DAT_IA_OTHER_ERROR);
}

/* A port that goes down is reported to every IA on it; one that is back is no error. */
static void port_events(void **state)
{
    struct world *w = *state;

    port_event(IBV_EVENT_PORT_ERR);
    expect_port(&w->a);
    expect_port(&w->b);
    port_event(IBV_EVENT_PORT_ACTIVE);
    expect_nothing(w->a.async);
}

static void resize_keeps_completions(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    for (int i = 0; i < 4; i++)
        post_recv(&w->b, 64, BYTES, (uint64_t)i);
    for (int i = 0; i < 4; i++)
        send_flagged(&w->a, (uint64_t)i, DAT_COMPLETION_SUPPRESS_FLAG);
    expect_dto(&w->b, 0, DAT_DTO_SUCCESS);   /* polls the others as well, or leaves them */
    OK(dat_evd_resize(w->b.dto, 3 * QLEN));
    expect_dto(&w->b, 1, DAT_DTO_SUCCESS);
    OK(dat_evd_resize(w->b.dto, 2));
    IS(DAT_INVALID_PARAMETER, dat_evd_resize(w->b.dto, 0));
    expect_dto(&w->b, 2, DAT_DTO_SUCCESS);
    expect_dto(&w->b, 3, DAT_DTO_SUCCESS);
}

static void ring(DAT_PVOID fd, DAT_EVD_HANDLE evd)
{
    (void)evd;
    eventfd_write(*(int *)fd, 1);
}

/* The agent of a CNO is called for a completion while no thread of the consumer is in DAT. */
static void agent_is_called(void **state)
{
    struct world *w = *state;
    int fd = eventfd(0, EFD_CLOEXEC);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    DAT_OS_WAIT_PROXY_AGENT agent = { &fd, ring };
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE which;

    OK(dat_cno_create(w->b.ia, agent, &cno));
    OK(dat_evd_modify_cno(w->b.dto, cno));
    post_recv(&w->b, 64, BYTES, 1);
    connect_pair(w);
    post_send(&w->a, 0, BYTES, 1);
    assert_int_equal(poll(&p, 1, ATMOST / 1000), 1);
    OK(dat_cno_wait(cno, 0, &which));        /* it is also triggered */
    assert_ptr_equal(which, w->b.dto);
    expect_dto(&w->b, 1, DAT_DTO_SUCCESS);
    OK(dat_evd_modify_cno(w->b.dto, DAT_HANDLE_NULL));
    OK(dat_cno_free(cno));
    close(fd);
}

/* The signals that a thread of this process blocks, if it is one of the provider's; else 0. */
static unsigned long long blocked_by(const char *task)
{
    char path[300], line[200];
    unsigned long long blocked = 0;
    bool ours = false;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f)) {
        ours = ours || strcmp(line, "Name:\tdaplverbs\n") == 0;
        sscanf(line, "SigBlk: %llx", &blocked);
    }
    if (f)
        fclose(f);
    return ours ? blocked : 0;
}

/* The provider's threads block all signals: they are the consumer's. */
static void threads_block_signals(void **state)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *e;
    int found = 0;

    (void)state;
    assert_non_null(tasks);
    while ((e = readdir(tasks))) {
        unsigned long long blocked = blocked_by(e->d_name);

        found += (blocked & 1) && (blocked >> 14 & 1);    /* SIGHUP, SIGTERM */
    }
    closedir(tasks);
    assert_int_equal(found, 2);              /* one of each adapter */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ping_pong_costs),
        CASE(stream_costs),
        CASE(polling_arms_nothing),
        CASE(all_are_suppressed),
        CASE(suppressed_are_flushed),
        CASE(graceful_with_a_completion),
        CASE(graceful_without_a_completion),
        CASE(freed_with_all_completions),
        CASE(withdrawn_request),
        CASE(connect_times_out),
        CASE(private_data_of_a_reply),
        CASE(idle_endpoints_take_no_port),
        CASE(reset_without_resources),
        CASE(port_events),
        CASE_ON(cut_path_is_left, "ports1"),
        CASE_ON(no_path_is_left, "ports1"),
        CASE(one_address_has_no_paths),
        CASE(resize_keeps_completions),
        CASE(agent_is_called),
        CASE(threads_block_signals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
