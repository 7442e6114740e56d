/* SPDX-License-Identifier: MIT */
/*
 * Conformance of the software provider to DAT 2.0, through libdat2 (world.h).
 */
#include "world.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* -- connecting ------------------------------------------------------------------------------- */

static void private_data_both_ways(void **state)
{
    struct world *w = *state;
    uint8_t there[56], back[200];
    DAT_CR_PARAM p;
    DAT_CR_HANDLE cr;
    DAT_EVENT e;

    memset(there, 0x11, sizeof(there));
    memset(back, 0x22, sizeof(back));
    cr = request(w, there, sizeof(there));
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
    OK(dat_cr_query(cr, DAT_CR_FIELD_ALL, &p));
    assert_int_equal(p.private_data_size, sizeof(there));
    assert_memory_equal(p.private_data, there, sizeof(there));
    assert_int_equal(((struct sockaddr *)p.remote_ia_address_ptr)->sa_family, AF_INET);
    OK(dat_cr_accept(cr, w->b.ep, sizeof(back), back));
    e = next_event(w->a.conn);
    assert_int_equal(e.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_int_equal(e.event_data.connect_event_data.private_data_size, sizeof(back));
    assert_memory_equal(e.event_data.connect_event_data.private_data, back, sizeof(back));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_CONNECTED);
    assert_int_equal(state_of(&w->b), DAT_EP_STATE_CONNECTED);
}

static void rejected_then_reset_and_connected(void **state)
{
    struct world *w = *state;

    OK(dat_cr_reject(request(w, "x", 1), 0, NULL));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_PEER_REJECTED);
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_DISCONNECTED);
    OK(dat_ep_reset(w->a.ep));
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_UNCONNECTED);
    connect_pair(w);
}

static void connection_refused(void **state)
{
    struct world *w = *state;

    OK(dat_ep_connect(w->a.ep, w->addr, w->qual == 64535 ? 1024 : w->qual + 1, ATMOST, 0, NULL,
                      DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
}

static void connect_times_out(void **state)
{
    struct world *w = *state;
    DAT_EVENT e;

    OK(dat_ep_connect(w->a.ep, w->addr, w->qual, SEC / 10, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    e = next_event(w->b.cr);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_TIMED_OUT);
    /* Accepting a request whose active side has closed posts an event. */
    OK(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, w->b.ep, 0, NULL));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR);
}

static void qualifier_in_use(void **state)
{
    struct world *w = *state;
    DAT_PSP_HANDLE psp;

    IS(DAT_CONN_QUAL_IN_USE,
       dat_psp_create(w->a.ia, w->qual, w->a.cr, DAT_PSP_CONSUMER_FLAG, &psp));
}

static void wrong_states(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET t = seg(&w->a, 0, 8);

    IS(DAT_INVALID_STATE, dat_ep_post_send(w->a.ep, 1, &t, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    connect_pair(w);
    IS(DAT_INVALID_STATE, dat_ep_reset(w->a.ep));
    IS(DAT_INVALID_STATE, dat_ep_connect(w->a.ep, w->addr, w->qual, SEC, 0, NULL,
                                         DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    IS(DAT_INVALID_STATE, dat_pz_free(w->a.pz));
    IS(DAT_INVALID_STATE, dat_evd_free(w->a.dto));
    IS(DAT_INVALID_STATE, dat_ia_close(w->a.ia, DAT_CLOSE_GRACEFUL_FLAG));
}

/* -- transfers -------------------------------------------------------------------------------- */

static void sends_in_order(void **state)
{
    struct world *w = *state;

    for (uint32_t i = 0; i < 8; i++)
        post_recv(&w->b, i * 4096, 4096, 100 + i);
    connect_pair(w);
    for (uint32_t i = 0; i < 8; i++) {
        w->a.buf[i * 512] = (uint8_t)(i + 1);
        post_send(&w->a, i * 512, i * 37, i);
    }
    for (uint32_t i = 0; i < 8; i++)
        expect_dto(&w->b, 100 + i, DAT_DTO_SUCCESS);
    for (uint32_t i = 0; i < 8; i++)
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
    for (uint32_t i = 1; i < 8; i++)
        assert_int_equal(w->b.buf[i * 4096], i + 1);
}

/* A send fills the segments of a receive one after the other, of one registration or of two. */
static void receive_of_two_segments(void **state)
{
    enum { FIRST = 48, SECOND = 4096, AT = 8192 };
    static const uint32_t len[] = { 1, FIRST - 1, FIRST, FIRST + 1, 64, 65, 2000, FIRST + SECOND };
    struct world *w = *state;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT other;
    DAT_RMR_CONTEXT key;

    connect_pair(w);
    register_buf(&w->b, &lmr, &other, &key);
    for (uint32_t i = 0; i < 4 * sizeof(len) / sizeof(len[0]); i++) {
        DAT_LMR_TRIPLET t[2] = { seg(&w->b, 0, FIRST), seg(&w->b, AT, SECOND) };
        uint32_t bytes = len[i / 4];

        if (i % 4 == 3)
            t[1].lmr_context = other;
        memset(w->a.buf, (int)i + 1, bytes);
        memset(w->b.buf, 0, AT + SECOND);
        OK(dat_ep_post_recv(w->b.ep, 2, t, cookie(100 + i), DAT_COMPLETION_DEFAULT_FLAG));
        post_send(&w->a, 0, bytes, i);
        expect_dto(&w->b, 100 + i, DAT_DTO_SUCCESS);
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
        for (uint32_t k = 0; k < FIRST + SECOND; k++)
            assert_int_equal(w->b.buf[k < FIRST ? k : AT + k - FIRST], k < bytes ? i + 1 : 0);
        assert_int_equal(w->b.buf[FIRST], 0);
    }
    OK(dat_lmr_free(lmr));
}

static void receive_posted_late(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    strcpy((char *)w->a.buf, "early");
    post_send(&w->a, 0, 6, 1);
    expect_nothing(w->b.dto);
    post_recv(&w->b, 64, 100, 2);
    expect_dto(&w->b, 2, DAT_DTO_SUCCESS);
    expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    assert_string_equal((char *)w->b.buf + 64, "early");
}

static void send_longer_than_receive(void **state)
{
    struct world *w = *state;

    post_recv(&w->b, 0, 10, 2);
    connect_pair(w);
    post_send(&w->a, 0, 11, 1);
    expect_dto(&w->b, 2, DAT_DTO_ERR_LOCAL_LENGTH);
    expect_dto(&w->a, 1, DAT_DTO_ERR_REMOTE_RESPONDER);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
}

static void rdma_write_and_read(void **state)
{
    struct world *w = *state;
    static const uint32_t len[] = { 1, 7, 8, 9, 4096, 65537, 300000 };
    DAT_LMR_TRIPLET t;
    DAT_RMR_TRIPLET r;

    connect_pair(w);
    for (size_t i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
        for (uint32_t k = 0; k < len[i]; k++)
            w->a.buf[k] = (uint8_t)(k * 7 + i);
        t = seg(&w->a, 0, len[i]);
        r = rseg(&w->b, 3, len[i]);
        OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(1), &r, DAT_COMPLETION_DEFAULT_FLAG));
        expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
        assert_memory_equal(w->b.buf + 3, w->a.buf, len[i]);
        t = seg(&w->a, BUF / 2 + 1, len[i]);
        OK(dat_ep_post_rdma_read(w->a.ep, 1, &t, cookie(2), &r, DAT_COMPLETION_DEFAULT_FLAG));
        expect_dto(&w->a, 2, DAT_DTO_SUCCESS);
        assert_memory_equal(w->a.buf + BUF / 2 + 1, w->b.buf + 3, len[i]);
    }
    expect_nothing(w->b.dto);    /* the target gets no event */
}

static void refused(struct world *w, bool read, DAT_RMR_TRIPLET r)
{
    DAT_LMR_TRIPLET t = seg(&w->a, 0, 64);

    connect_pair(w);
    memset(w->a.buf, 0x77, 64);
    if (read)
        OK(dat_ep_post_rdma_read(w->a.ep, 1, &t, cookie(5), &r, DAT_COMPLETION_DEFAULT_FLAG));
    else
        OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(5), &r, DAT_COMPLETION_DEFAULT_FLAG));
    post_send(&w->a, 0, 8, 6);   /* posted after it: flushed */
    expect_dto(&w->a, 5, DAT_DTO_ERR_REMOTE_ACCESS);
    expect_dto(&w->a, 6, DAT_DTO_ERR_FLUSHED);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    for (int i = 0; i < BUF; i += 4096)
        assert_int_equal(w->b.buf[i], 0);
}

static void wrong_key(void **state)
{
    struct world *w = *state;
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, 64);

    r.rmr_context ^= 1 << 20;
    refused(w, false, r);
}

static void out_of_bounds(void **state)
{
    struct world *w = *state;

    refused(w, false, rseg(&w->b, BUF - 63, 64));
}

static void read_out_of_bounds(void **state)
{
    struct world *w = *state;
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, 64);

    r.virtual_address -= 1;
    refused(w, true, r);
}

static void missing_right_and_freed_key(void **state)
{
    struct world *w = *state;
    DAT_REGION_DESCRIPTION region = { .for_va = w->b.buf };
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, 64);
    DAT_VLEN len;
    DAT_VADDR addr;

    OK(dat_lmr_create(w->b.ia, DAT_MEM_TYPE_VIRTUAL, region, 4096, w->b.pz,
                      DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA,
                      &lmr, &local, &key, &len, &addr));
    r.rmr_context = key;
    refused(w, false, r);
    OK(dat_lmr_free(lmr));
    OK(dat_ep_reset(w->a.ep));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_reset(w->b.ep));
    refused(w, true, r);         /* a freed key is invalid */
}

static void local_segment_checked(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET t;

    connect_pair(w);
    t = seg(&w->a, BUF - 4, 8);
    IS(DAT_PROTECTION_VIOLATION,
       dat_ep_post_send(w->a.ep, 1, &t, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    t = seg(&w->b, 0, 8);        /* another adapter's memory */
    IS(DAT_PROTECTION_VIOLATION,
       dat_ep_post_recv(w->a.ep, 1, &t, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
}

static void suppressed_completion(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET t = seg(&w->a, 0, 16);
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, 16);

    connect_pair(w);
    OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(1), &r, DAT_COMPLETION_SUPPRESS_FLAG));
    OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(2), &r, DAT_COMPLETION_DEFAULT_FLAG));
    expect_dto(&w->a, 2, DAT_DTO_SUCCESS);
    expect_nothing(w->a.dto);
}

/* -- the last word of a write ----------------------------------------------------------------- */

struct poller {
    struct side *b;
    int rounds, torn;
    _Atomic int seen;
};

/* Not for TSan: a socket between two adapters of one process orders the reads. */
__attribute__((no_sanitize("thread"))) static void *poll_last_word(void *arg)
{
    struct poller *p = arg;
    _Atomic uint32_t *last = (_Atomic uint32_t *)(void *)(p->b->buf + 8192 - 4);

    for (int i = 1; i <= p->rounds; i++) {
        while (atomic_load_explicit(last, memory_order_acquire) != (uint32_t)i)
            ;
        for (int k = 0; k < 8192; k += 64)
            p->torn += p->b->buf[k] != (uint8_t)i;
        atomic_store(&p->seen, i);
    }
    return NULL;
}

static void last_word_is_visible_last(void **state)
{
    struct world *w = *state;
    struct poller p = { .b = &w->b, .rounds = 2000 };
    DAT_LMR_TRIPLET t = seg(&w->a, 0, 8192);
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, 8192);
    pthread_t thread;

    connect_pair(w);
    pthread_create(&thread, NULL, poll_last_word, &p);
    for (int i = 1; i <= p.rounds; i++) {
        uint32_t word = (uint32_t)i;

        memset(w->a.buf, i, 8192);
        memcpy(w->a.buf + 8192 - 4, &word, 4);
        OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(1), &r, DAT_COMPLETION_DEFAULT_FLAG));
        while (atomic_load(&p.seen) < i) {
            DAT_EVENT e;

            dat_evd_dequeue(w->b.conn, &e);          /* the target makes progress */
        }
        expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    }
    pthread_join(thread, NULL);
    assert_int_equal(p.torn, 0);
}

/* -- disconnecting ---------------------------------------------------------------------------- */

static void disconnect_flushes_once(DAT_CLOSE_FLAGS flags, struct world *w)
{
    for (uint64_t i = 0; i < 3; i++) {
        post_recv(&w->a, 0, 64, 10 + i);
        post_recv(&w->b, 0, 64, 20 + i);
    }
    connect_pair(w);
    OK(dat_ep_disconnect(w->a.ep, flags));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    for (uint64_t i = 0; i < 3; i++) {
        expect_dto(&w->a, 10 + i, DAT_DTO_ERR_FLUSHED);
        expect_dto(&w->b, 20 + i, DAT_DTO_ERR_FLUSHED);
    }
    OK(dat_ep_disconnect(w->b.ep, flags));           /* a second disconnect has no effect */
    expect_nothing(w->a.conn);
    expect_nothing(w->b.conn);
    expect_nothing(w->a.dto);
    expect_nothing(w->b.dto);
    assert_int_equal(state_of(&w->a), DAT_EP_STATE_DISCONNECTED);
    post_recv(&w->a, 0, 64, 30);                     /* posted now it is flushed at once */
    expect_dto(&w->a, 30, DAT_DTO_ERR_FLUSHED);
    OK(dat_ep_reset(w->a.ep));
    OK(dat_ep_reset(w->b.ep));
    connect_pair(w);
}

static void abrupt_disconnect(void **state)
{
    disconnect_flushes_once(DAT_CLOSE_ABRUPT_FLAG, *state);
}

static void graceful_disconnect(void **state)
{
    disconnect_flushes_once(DAT_CLOSE_GRACEFUL_FLAG, *state);
}

/* Sends from a to b, by calls that poll and do not wait. */
static void send_polling(struct world *w, uint64_t n)
{
    DAT_EVENT e;

    post_recv(&w->b, 0, 8, n);
    post_send(&w->a, 0, 8, n);
    while (dat_evd_dequeue(w->b.dto, &e) != DAT_SUCCESS)
        continue;
}

/* What holds for one request after another does not hold any more when another call has changed
 * it: after many sends a disconnect begins, which waits for the completion of the last one. What is
 * posted then is refused or, once the connection has ended, flushed. */
static void disconnect_after_many_sends(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET t = seg(&w->a, 0, 8);
    DAT_RETURN ret;
    DAT_EVENT e;

    connect_pair(w);
    for (uint64_t i = 0; i < 200; i++) {
        send_polling(w, i);
        while (dat_evd_dequeue(w->a.dto, &e) != DAT_SUCCESS)
            continue;
    }
    send_polling(w, 200);
    post_recv(&w->b, 0, 8, 201);
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_GRACEFUL_FLAG));
    ret = dat_ep_post_send(w->a.ep, 1, &t, cookie(202), DAT_COMPLETION_DEFAULT_FLAG);
    expect_dto(&w->a, 200, DAT_DTO_SUCCESS);
    if (DAT_GET_TYPE(ret) != DAT_INVALID_STATE) {
        OK(ret);
        expect_dto(&w->a, 202, DAT_DTO_ERR_FLUSHED);
    }
    expect_dto(&w->b, 201, DAT_DTO_ERR_FLUSHED);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_nothing(w->a.dto);
}

static void reset_flushes_receives(void **state)
{
    struct world *w = *state;

    post_recv(&w->a, 0, 64, 1);
    OK(dat_ep_reset(w->a.ep));
    expect_dto(&w->a, 1, DAT_DTO_ERR_FLUSHED);
}

/* -- event dispatchers ------------------------------------------------------------------------ */

static DAT_EVENT software(uint64_t n)
{
    DAT_EVENT e;

    memset(&e, 0, sizeof(e));
    e.event_number = DAT_SOFTWARE_EVENT;
    e.event_data.software_event_data.pointer = (DAT_PVOID)(uintptr_t)n;
    return e;
}

static void software_events_and_resize(void **state)
{
    struct world *w = *state;
    DAT_EVD_HANDLE evd;
    DAT_EVENT e;
    DAT_EVD_PARAM p;

    OK(dat_evd_create(w->a.ia, 2, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd));
    IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(evd, &e));
    for (uint64_t i = 1; i <= 2; i++) {
        e = software(i);
        OK(dat_evd_post_se(evd, &e));
    }
    e = software(3);
    IS(DAT_QUEUE_FULL, dat_evd_post_se(evd, &e));
    IS(DAT_INVALID_STATE, dat_evd_resize(evd, 1));
    OK(dat_evd_resize(evd, 5));
    OK(dat_evd_post_se(evd, &e));
    OK(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &p));
    assert_int_equal(p.evd_qlen, 5);
    for (uintptr_t i = 1; i <= 3; i++) {
        OK(dat_evd_dequeue(evd, &e));
        assert_int_equal((uintptr_t)e.event_data.software_event_data.pointer, i);
    }
    OK(dat_evd_set_unwaitable(evd));
    IS(DAT_INVALID_STATE, dat_evd_wait(evd, SEC, 1, &e, &(DAT_COUNT){ 0 }));
    OK(dat_evd_clear_unwaitable(evd));
    IS(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evd, 1000, 1, &e, &(DAT_COUNT){ 0 }));
    OK(dat_evd_free(evd));
}

static void overflow_is_an_async_event(void **state)
{
    struct world *w = *state;
    DAT_EVD_HANDLE tiny;
    DAT_EP_HANDLE ep;
    DAT_LMR_TRIPLET t = seg(&w->a, 0, 8);
    DAT_EVENT e;

    OK(dat_evd_create(w->a.ia, 1, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &tiny));
    OK(dat_ep_create(w->a.ia, w->a.pz, tiny, tiny, w->a.conn, NULL, &ep));
    for (int i = 0; i < 3; i++)
        OK(dat_ep_post_recv(ep, 1, &t, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_reset(ep));        /* three completions for one entry */
    e = next_event(w->a.async);
    assert_int_equal(e.event_number, DAT_ASYNC_ERROR_EVD_OVERFLOW);
    assert_ptr_equal(e.event_data.asynch_error_event_data.dat_handle, tiny);
    OK(dat_ep_free(ep));
    OK(dat_evd_free(tiny));
}

static void notification_object(void **state)
{
    struct world *w = *state;
    DAT_OS_WAIT_PROXY_AGENT none = { NULL, NULL };
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE evd, fired;
    DAT_EVENT e = software(1);

    OK(dat_cno_create(w->a.ia, none, &cno));
    OK(dat_evd_create(w->a.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
    IS(DAT_TIMEOUT_EXPIRED, dat_cno_wait(cno, 1000, &fired));
    OK(dat_evd_post_se(evd, &e));
    OK(dat_cno_wait(cno, ATMOST, &fired));
    assert_ptr_equal(fired, evd);
    OK(dat_evd_dequeue(evd, &e));
    OK(dat_evd_disable(evd));
    OK(dat_evd_post_se(evd, &e));
    IS(DAT_TIMEOUT_EXPIRED, dat_cno_wait(cno, 1000, &fired));
    OK(dat_evd_enable(evd));
    OK(dat_cno_wait(cno, ATMOST, &fired));
    IS(DAT_INVALID_STATE, dat_cno_free(cno));
    OK(dat_evd_free(evd));
    OK(dat_cno_free(cno));
}

/* -- handles and garbage ---------------------------------------------------------------------- */

static void wrong_handles(void **state)
{
    struct world *w = *state;
    DAT_EP_PARAM p;

    IS(DAT_INVALID_HANDLE, dat_ep_query(w->a.pz, DAT_EP_FIELD_ALL, &p));
    IS(DAT_INVALID_HANDLE, dat_evd_free(w->a.ep));
    IS(DAT_INVALID_HANDLE, dat_ep_disconnect(w->a.lmr, DAT_CLOSE_ABRUPT_FLAG));
}

/* Bytes of another protocol on the port of a service point disturb no other connection. */
static void garbage_is_dropped(void **state)
{
    struct world *w = *state;
    uint8_t junk[4096];
    int fd[16];

    for (int i = 0; i < 16; i++) {
        fd[i] = raw_socket();
        raw_connect(fd[i], w->addr, w->qual);
        for (size_t k = 0; k < sizeof(junk); k++)
            junk[k] = (uint8_t)(k * 31 + (size_t)i * 17);
        if (i % 3 == 0)
            junk[0] = 0x5d, junk[1] = (uint8_t)(i % 13);
        if (i > 0)               /* the first sends nothing */
            assert_true(send(fd[i], junk, i % 2 ? sizeof(junk) : (size_t)i, MSG_NOSIGNAL) > 0);
    }
    connect_pair(w);
    expect_nothing(w->b.cr);
    for (int i = 0; i < 16; i++)
        close(fd[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(private_data_both_ways),
        CASE(rejected_then_reset_and_connected),
        CASE(connection_refused),
        CASE(connect_times_out),
        CASE(qualifier_in_use),
        CASE(wrong_states),
        CASE(sends_in_order),
        CASE(receive_of_two_segments),
        CASE(receive_posted_late),
        CASE(send_longer_than_receive),
        CASE(rdma_write_and_read),
        CASE(wrong_key),
        CASE(out_of_bounds),
        CASE(read_out_of_bounds),
        CASE(missing_right_and_freed_key),
        CASE(local_segment_checked),
        CASE(suppressed_completion),
        CASE(last_word_is_visible_last),
        CASE(abrupt_disconnect),
        CASE(graceful_disconnect),
        CASE(disconnect_after_many_sends),
        CASE(reset_flushes_receives),
        CASE(software_events_and_resize),
        CASE(overflow_is_an_async_event),
        CASE(notification_object),
        CASE(wrong_handles),
        CASE(garbage_is_dropped),
    };

    return RUN(tests);
}
