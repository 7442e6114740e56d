/* SPDX-License-Identifier: MIT */
/*
 * Link emulation and fault injection: delays, low limits, ports that are cut, injected faults.
 * test/provider/run writes the dat.conf with the IAs that the cases name.
 */
#include "world.h"

#include <dat_path_extensions.h>
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

enum { LONG_REQUESTS = 64 };

static DAT_RETURN write_one(struct world *w, uint32_t len, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(&w->a, 0, len);
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, len);

    return dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(n), &r, DAT_COMPLETION_DEFAULT_FLAG);
}

static DAT_RETURN read_one(struct world *w, uint32_t len, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(&w->a, 0, len);
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, len);

    return dat_ep_post_rdma_read(w->a.ep, 1, &t, cookie(n), &r, DAT_COMPLETION_DEFAULT_FLAG);
}

static void expect_reply(unsigned k, const char *command, const char *reply)
{
    char text[SOFTDAT_CONTROL_MAX + 1];

    assert_true(control(k, command, text) > 0);
    if (!strstr(text, reply))
        fail_msg("the reply to \"%s\" is \"%s\", not \"%s\"", command, text, reply);
}

/* Expects the completions of all posted requests, then exactly one event. Returns the number of
 * successes. */
static uint64_t drain_broken(struct world *w, uint64_t first, uint64_t posted)
{
    uint64_t good = first;
    int errors = 0;

    for (uint64_t n = first; n < posted; n++) {
        DAT_EVENT e = next_event(w->a.dto);
        const DAT_DTO_COMPLETION_EVENT_DATA *c = &e.event_data.dto_completion_event_data;

        assert_int_equal(c->user_cookie.as_64, n);
        if (c->status == DAT_DTO_SUCCESS)
            good = n + 1;
        else if (c->status != DAT_DTO_ERR_FLUSHED)
            errors++;
    }
    assert_true(errors <= 1);    /* the request with the transport error */
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    expect_nothing(w->a.conn);
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_DISCONNECTED);
    return good;
}

static void end_broken(struct world *w)
{
    expect_conn(&w->b, DAT_CONNECTION_EVENT_BROKEN);
    expect_nothing(w->b.conn);
}

/* -- rate and delay --------------------------------------------------------------------------- */

static void rate_is_a_limit(void **state)
{
    struct world *w = *state;
    uint64_t start;

    connect_pair(w);
    memset(w->a.buf, 0x11, BUF);
    start = now_us();
    for (int i = 0; i < 4; i++) {
        OK(write_one(w, BUF, 1));
        expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    }
    assert_true(now_us() - start >= 55000);      /* 4 MiB at 64 MiB/s: 62.5 ms less the burst */
    state_of(&w->b);
    assert_memory_equal(w->a.buf, w->b.buf, BUF);
}

/* A send is received after the latency of 3 ms. */
static void expect_latency(struct world *w)
{
    uint64_t start;

    post_recv(&w->b, 0, 64, 7);
    start = now_us();
    post_send(&w->a, 0, 64, 1);
    expect_dto(&w->b, 7, DAT_DTO_SUCCESS);
    assert_true(now_us() - start >= 3000);
    expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
}

static void latency_is_added(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    expect_latency(w);
}

static void jitter_keeps_the_order(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    for (uint32_t i = 0; i < 40; i++)
        post_recv(&w->b, i * 64, 64, i);
    for (uint32_t i = 0; i < 40; i++) {
        memcpy(w->a.buf + i * 64, &i, sizeof(i));
        post_send(&w->a, i * 64, 64, 100 + i);
    }
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t got;

        expect_dto(&w->b, i, DAT_DTO_SUCCESS);
        memcpy(&got, w->b.buf + i * 64, sizeof(got));
        assert_int_equal(got, i);
        expect_dto(&w->a, 100 + i, DAT_DTO_SUCCESS);
    }
}

/* All connections of a port share its rate; the other port has a latency. */
static void ports_have_limits_of_their_own(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE a = w->a.ep, b = w->b.ep;
    DAT_PATH_PARAM p;
    uint64_t start;

    connect_pair(w);
    make_ep(&w->a);
    make_ep(&w->b);
    connect_pair(w);
    start = now_us();
    for (int i = 0; i < 4; i++) {
        DAT_LMR_TRIPLET t = seg(&w->a, 0, BUF);
        DAT_RMR_TRIPLET r = rseg(&w->b, 0, BUF);

        OK(dat_ep_post_rdma_write(i % 2 ? a : w->a.ep, 1, &t, cookie(1), &r,
                                  DAT_COMPLETION_DEFAULT_FLAG));
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(next_event(w->a.dto).event_data.dto_completion_event_data.status,
                         DAT_DTO_SUCCESS);
    assert_true(now_us() - start >= 55000);      /* 4 MiB at 64 MiB/s: 62.5 ms less the burst */
    for (int i = 0; i < 2; i++) {
        OK(dat_path_set_alternate(i ? w->b.ep : w->a.ep, NULL));
        OK(dat_path_rearm(i ? w->b.ep : w->a.ep));
    }
    next_event(w->a.async);
    OK(dat_path_migrate(w->a.ep));
    next_event(w->a.async);
    OK(dat_path_query(w->a.ep, &p));
    assert_int_equal(p.current.local_port, 2);
    expect_latency(w);
    OK(dat_ep_free(a));
    OK(dat_ep_free(b));
}

/* -- low limits ------------------------------------------------------------------------------- */

static void limits_are_reported_and_enforced(void **state)
{
    struct world *w = *state;
    DAT_EP_ATTR attr = { .service_type = DAT_SERVICE_TYPE_RC, .max_recv_dtos = 8,
                         .max_request_dtos = 8, .max_recv_iov = 1, .max_request_iov = 1 };
    DAT_EP_HANDLE ep;
    DAT_IA_ATTR ia;
    DAT_PROVIDER_ATTR pa;

    OK(dat_ia_query(w->a.ia, NULL, DAT_IA_FIELD_ALL, &ia, DAT_PROVIDER_FIELD_ALL, &pa));
    assert_int_equal(ia.max_dto_per_ep, 8);
    assert_int_equal(ia.max_iov_segments_per_dto, 2);
    assert_int_equal(ia.max_iov_segments_per_rdma_write, 1);
    assert_int_equal(ia.max_rdma_read_per_ep_out, 1);
    assert_int_equal(ia.max_message_size, 65536);
    assert_int_equal(ia.max_lmrs, 2);
    assert_int_equal(ia.max_lmr_block_size, 1 << 20);
    assert_int_equal(pa.max_private_data_size, 56);
    OK(dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, &attr, &ep));
    OK(dat_ep_free(ep));
    attr.max_request_dtos = 9;
    IS(DAT_INVALID_PARAMETER, dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, &attr,
                                            &ep));
    attr.max_request_dtos = 8;
    attr.max_rdma_write_iov = 2;
    IS(DAT_INVALID_PARAMETER, dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, &attr,
                                            &ep));
    connect_pair(w);
    OK(write_one(w, 65536, 1));
    expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    IS(DAT_LENGTH_ERROR, write_one(w, 65537, 1));
    for (uint64_t i = 0; i < 6; i++)             /* one in flight at a time; all complete */
        OK(read_one(w, 4096, i));
    for (uint64_t i = 0; i < 6; i++)
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
}

static DAT_RETURN register_more(struct side *s, DAT_VLEN len, DAT_LMR_HANDLE *lmr)
{
    DAT_REGION_DESCRIPTION region = { .for_va = s->buf };
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
    DAT_VLEN got;
    DAT_VADDR at;

    return dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, len, s->pz, DAT_MEM_PRIV_ALL_FLAG,
                          DAT_VA_TYPE_VA, lmr, &local, &key, &got, &at);
}

static void registrations_are_limited(void **state)
{
    struct world *w = *state;
    DAT_LMR_HANDLE lmr, none;

    IS(DAT_INVALID_PARAMETER, register_more(&w->a, BUF + 1, &none));
    OK(register_more(&w->a, 4096, &lmr));
    IS(DAT_INSUFFICIENT_RESOURCES, register_more(&w->a, 4096, &none));
    OK(dat_lmr_free(lmr));
    OK(register_more(&w->a, 4096, &lmr));
    OK(dat_lmr_free(lmr));
}

static void reads_not_supported(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    IS(DAT_MODEL_NOT_SUPPORTED, read_one(w, 8, 1));
    OK(write_one(w, 8, 1));
    expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
}

static void registrations_fail_as_seeded(void **state)
{
    struct world *w = *state;
    int failed = 0;

    for (int i = 0; i < 64; i++) {
        DAT_LMR_HANDLE lmr;
        DAT_RETURN ret = register_more(&w->a, 4096, &lmr);

        if (ret == DAT_SUCCESS) {
            OK(dat_lmr_free(lmr));
        } else {
            IS(DAT_INSUFFICIENT_RESOURCES, ret);
            failed++;
        }
    }
    assert_int_equal(failed, 3); /* faults=3 */
}

/* -- faults ----------------------------------------------------------------------------------- */

/* Posts writes until the connection breaks, fewer than `most`. Returns their number. */
static uint64_t until_broken(struct world *w, uint64_t most)
{
    uint64_t n = 0;

    connect_pair(w);
    while (state_of(&w->a) == DAT_EP_STATE_CONNECTED) {
        assert_true(n < most);
        OK(write_one(w, 8, n++));
        if (state_of(&w->a) == DAT_EP_STATE_CONNECTED) {
            DAT_EVENT e = next_event(w->a.dto);

            if (e.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS)
                continue;
            assert_int_equal(e.event_data.dto_completion_event_data.status,
                             DAT_DTO_ERR_TRANSPORT);
        }
        break;
    }
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    expect_nothing(w->a.conn);
    end_broken(w);
    return n;
}

static uint64_t first_break;

static void breaks_as_seeded(void **state)
{
    first_break = until_broken(*state, 10000);
    assert_true(first_break > 1);
}

static void same_seed_breaks_at_the_same_request(void **state)
{
    assert_int_equal(until_broken(*state, 10000), first_break);
}

static void breaks_by_time(void **state)
{
    assert_true(until_broken(*state, UINT64_MAX) > 1);
    expect_reply(0, "show", "faults_injected: 1");
}

/* One in a week. */
static void breaks_not_before_its_time(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    for (uint64_t n = 0; n < 10000; n++) {
        OK(write_one(w, 8, n));
        expect_dto(&w->a, n, DAT_DTO_SUCCESS);
    }
}

/* The write is executed but completes with an error, as it may on hardware. */
static void completion_is_lost(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    memset(w->a.buf, 0x77, 8);
    OK(write_one(w, 8, 0));
    expect_dto(&w->a, 0, DAT_DTO_ERR_TRANSPORT);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    end_broken(w);
    assert_int_equal(w->b.buf[7], 0x77);
    expect_reply(0, "show", "faults_injected: 1");
}

static void adapter_fails_permanently(void **state)
{
    struct world *w = *state;
    DAT_EP_HANDLE ep;
    DAT_LMR_HANDLE lmr;
    DAT_EVENT e;

    connect_pair(w);
    for (uint64_t i = 0; i < 8; i++)
        OK(write_one(w, 8, i));
    drain_broken(w, 0, 8);
    e = next_event(w->a.async);
    assert_int_equal(e.event_number, DAT_ASYNC_ERROR_IA_CATASTROPHIC);
    expect_nothing(w->a.async);
    end_broken(w);
    IS(DAT_INTERNAL_ERROR, dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, NULL,
                                         &ep));
    IS(DAT_INTERNAL_ERROR, register_more(&w->a, 4096, &lmr));
    OK(dat_ep_reset(w->a.ep));
    IS(DAT_INTERNAL_ERROR, dat_ep_connect(w->a.ep, w->addr, w->qual, SEC, 0, NULL,
                                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    expect_reply(0, "show", "(failed)");
}

/* -- paths ------------------------------------------------------------------------------------ */

static void heal_within_retry_loses_nothing(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    post_recv(&w->b, 0, 64, 7);
    expect_reply(0, "cut 1", "cut");
    post_send(&w->a, 0, 64, 1);
    expect_nothing(w->b.dto);
    expect_nothing(w->a.dto);
    expect_reply(0, "heal 1", "healed");
    expect_dto(&w->b, 7, DAT_DTO_SUCCESS);
    expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    expect_reply(1, "cut", "cut");               /* the other end */
    OK(write_one(w, BUF, 2));
    expect_nothing(w->a.dto);
    expect_reply(1, "heal", "healed");
    expect_dto(&w->a, 2, DAT_DTO_SUCCESS);
    expect_reply(0, "show", "path_downs: 1");
}

/* Both sides refuse a request of the other before either has received the refusal of its own: each
 * request completes with its error. */
static void requests_refused_at_both_sides(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET from_a = seg(&w->a, 0, 8), from_b = seg(&w->b, 0, 8);
    DAT_RMR_TRIPLET to_b = rseg(&w->b, 0, 8), to_a = rseg(&w->a, 0, 8);

    connect_pair(w);
    expect_reply(0, "cut 1", "cut");
    expect_reply(1, "cut 1", "cut");
    to_a.rmr_context = to_b.rmr_context = 0;
    OK(dat_ep_post_rdma_write(w->a.ep, 1, &from_a, cookie(1), &to_b, DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_rdma_write(w->b.ep, 1, &from_b, cookie(2), &to_a, DAT_COMPLETION_DEFAULT_FLAG));
    expect_reply(0, "heal 1", "healed");
    expect_reply(1, "heal 1", "healed");
    expect_dto(&w->a, 1, DAT_DTO_ERR_REMOTE_ACCESS);
    expect_dto(&w->b, 2, DAT_DTO_ERR_REMOTE_ACCESS);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_BROKEN);
}

static void cut_beyond_retry_breaks(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    expect_reply(0, "cut", "cut");
    for (uint64_t i = 0; i < 4; i++)
        OK(write_one(w, 64, i));
    assert_int_equal(drain_broken(w, 0, 4), 0);
    end_broken(w);
    OK(dat_ep_reset(w->a.ep));
    OK(dat_ep_reset(w->b.ep));
    OK(dat_ep_connect(w->a.ep, w->addr, w->qual, SEC, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_UNREACHABLE);
    expect_reply(0, "heal", "healed");
    OK(dat_ep_reset(w->a.ep));
    connect_pair(w);
    OK(write_one(w, 64, 9));
    expect_dto(&w->a, 9, DAT_DTO_SUCCESS);
}

/* A connect without an answer times out, also if its path is cut and healed before. */
static void cut_keeps_the_connect_timeout(void **state)
{
    struct world *w = *state;
    DAT_EVENT e;

    OK(dat_ep_connect(w->a.ep, w->addr, w->qual, SEC / 5, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    e = next_event(w->b.cr);
    expect_reply(0, "cut", "cut");
    expect_reply(0, "heal", "healed");
    expect_conn(&w->a, DAT_CONNECTION_EVENT_TIMED_OUT);
    OK(dat_cr_reject(e.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
}

static void command_breaks_connections(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    expect_reply(0, "break", "1 connections broken");
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    end_broken(w);
    expect_reply(0, "cut 9", "error: ia");
    expect_reply(0, "sing", "error: unknown command sing");
}

/* The adapter listens on both ports and connects from the second while the first is down. */
static void two_ports(void **state)
{
    struct world *w = *state;
    struct sockaddr_in second, *first = (struct sockaddr_in *)(void *)w->addr;
    DAT_CR_PARAM cr;
    DAT_CR_HANDLE handle;
    DAT_IA_ATTR ia;
    const char *text = NULL;

    OK(dat_ia_query(w->b.ia, NULL, DAT_IA_FIELD_ALL, &ia, 0, NULL));
    for (DAT_COUNT i = 0; i < ia.num_vendor_attr; i++)
        if (strcmp(ia.vendor_attr[i].name, "DAT_SOFTDAT_ADDRESS_2") == 0)
            text = ia.vendor_attr[i].value;
    assert_non_null(text);
    second = *first;
    assert_int_equal(inet_pton(AF_INET, text, &second.sin_addr), 1);
    assert_int_not_equal(second.sin_addr.s_addr, first->sin_addr.s_addr);
    expect_reply(0, "cut 1", "port 1 cut");
    expect_reply(1, "cut 1", "port 1 cut");
    w->addr = (DAT_SOCK_ADDR *)(void *)&second;
    handle = request(w, "x", 1);
    OK(dat_cr_query(handle, DAT_CR_FIELD_ALL, &cr));
    assert_int_equal(((struct sockaddr_in *)(void *)cr.remote_ia_address_ptr)->sin_addr.s_addr,
                     second.sin_addr.s_addr);
    OK(dat_cr_accept(handle, w->b.ep, 0, NULL));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ESTABLISHED);
    OK(write_one(w, 64, 1));
    expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    expect_reply(0, "show", "port 1: 127.0.0.1 cut");
    expect_reply(0, "show", "port=2 state=open");
}

static void link_is_reported(void **state)
{
    struct world *w = *state;
    const char *link = getenv("TEST_LINK");

    connect_pair(w);
    OK(write_one(w, 100, 1));
    expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    expect_reply(0, "show", link ? link : "shared rings");
    expect_reply(0, "show", "bytes_sent_or_written: 100");
    expect_reply(1, "show", "writes: 0");
}

/* Takes the locks: they order what this thread and the helpers do with the buffers, for TSan, which
 * does not see what two adapters of one process share. */
static void order_copies(struct world *w)
{
    state_of(&w->a);
    state_of(&w->b);
}

/* Posts a write or read of len bytes and polls both adapters until it completes. */
static void transfer_polled(struct world *w, bool read, uint32_t len, uint64_t n)
{
    DAT_EVENT e;

    order_copies(w);
    OK(read ? read_one(w, len, n) : write_one(w, len, n));
    while (dat_evd_dequeue(w->a.dto, &e) != DAT_SUCCESS)
        IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->b.dto, &e));
    assert_int_equal(e.event_data.dto_completion_event_data.status, DAT_DTO_SUCCESS);
    assert_int_equal(e.event_data.dto_completion_event_data.user_cookie.as_64, n);
    order_copies(w);
}

/* While the target polls the first long requests of each length go by the rings and by direct
 * copies; the bytes are the same. */
static void long_requests_try_both_ways(void **state)
{
    struct world *w = *state;
    char text[SOFTDAT_CONTROL_MAX + 1];
    const char *at;
    long direct;

    connect_pair(w);
    for (unsigned i = 0; i < LONG_REQUESTS; i++) {
        bool read = i % 2;
        uint32_t len = 1 << 16;

        memset(w->a.buf, (int)i, len);
        memset(w->b.buf, (int)i + 1, len);
        transfer_polled(w, read, len, i);
        assert_memory_equal(w->a.buf, w->b.buf, len);
        assert_int_equal(w->a.buf[len - 1], (uint8_t)(read ? i + 1 : i));
    }
    assert_true(control(0, "show", text) > 0);
    if (strstr(text, "no direct RDMA"))
        SKIP_TEST("the kernel does not allow process_vm_readv");
    at = strstr(text, "direct_transfers: ");
    direct = at ? strtol(at + strlen("direct_transfers: "), NULL, 10) : 0;
    assert_in_range(direct, 1, LONG_REQUESTS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE_ON(rate_is_a_limit, "rate0"),
        CASE_ON(latency_is_added, "late0"),
        CASE_ON(ports_have_limits_of_their_own, "portlimits0"),
        CASE_ON(jitter_keeps_the_order, "jitter0"),
        CASE_ON(limits_are_reported_and_enforced, "tiny0"),
        CASE_ON(registrations_are_limited, "tiny0"),
        CASE_ON(reads_not_supported, "noread0"),
        CASE_ON(registrations_fail_as_seeded, "nolmr0"),
        CASE_ON(breaks_as_seeded, "break0"),
        CASE_ON(same_seed_breaks_at_the_same_request, "break0"),
        CASE_ON(breaks_by_time, "timed0"),
        CASE_ON(breaks_not_before_its_time, "week0"),
        CASE_ON(completion_is_lost, "lose0"),
        CASE_ON(adapter_fails_permanently, "fatal0"),
        CASE(heal_within_retry_loses_nothing),
        CASE_ON(requests_refused_at_both_sides, "ports1"),
        CASE_ON(cut_beyond_retry_breaks, "short0"),
        CASE(cut_keeps_the_connect_timeout),
        CASE(command_breaks_connections),
        CASE_ON(two_ports, "ports0"),
        CASE(link_is_reported),
        CASE_ON(long_requests_try_both_ways, "judged0"),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
