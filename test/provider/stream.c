/* SPDX-License-Identifier: MIT */
/*
 * System calls of a connection between hosts. The IA tcp0 makes TCP connections within one host;
 * the peer process is stopped while requests are posted, so the counts do not depend on when the
 * two processes run.
 */
#include "peer.h"
#include "syscalls.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* -- a full socket ---------------------------------------------------------------------------- */

enum { POLLS = 10000, FEW = 200 };

static void serve_until_end(struct side *s, int fd)
{
    peer_accept(s);
    send_byte(fd, 'r');
    peer_wait_end(s);
}

static void start(struct peer *p, struct side *s, peer_role *role)
{
    peer_start(p, "tcp0", role);
    open_side(s, "tcp0");
    peer_connect(p, s);
    assert_int_equal(recv_byte(p->fd), 'r');
    peer_stop(p);
}

static void finish(struct peer *p, struct side *s)
{
    OK(dat_ep_disconnect(s->ep, DAT_CLOSE_ABRUPT_FLAG));
    peer_end(p);
    close_side(s);
}

/* While the socket takes no more bytes, a poll tries neither to send nor to receive. */
static void full_socket(void **state)
{
    enum { WRITES = 32 };
    unsigned long sends = 0;
    struct peer p;
    struct side s;
    DAT_EVENT e;

    (void)state;
    start(&p, &s, serve_until_end);
    for (uint32_t i = 0; i < WRITES; i++) {
        DAT_LMR_TRIPLET t = seg(&s, 0, BUF);
        DAT_RMR_TRIPLET r = peer_memory(&p, 0, BUF);

        OK(dat_ep_post_rdma_write(s.ep, 1, &t, cookie(i), &r, DAT_COMPLETION_DEFAULT_FLAG));
    }
    /* The kernel still moves bytes from one end's buffer to the other's. */
    do {
        sends = syscalls.send;
        for (int i = 0; i < POLLS; i++)
            IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(s.dto, &e));
    } while (syscalls.send > sends && syscalls.send - sends < FEW);
    syscalls_reset();
    for (int i = 0; i < POLLS; i++)
        IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(s.dto, &e));
    assert_in_range(syscalls.send, 0, FEW);
    assert_in_range(syscalls.recv, 0, FEW);
    assert_in_range(syscalls.epoll_ctl, 0, FEW);
    peer_continue(&p);
    for (uint32_t i = 0; i < WRITES; i++)
        expect_dto(&s, i, DAT_DTO_SUCCESS);
    finish(&p, &s);
}

/* -- acknowledgements ------------------------------------------------------------------------- */

enum { SENDS = 64 };

/* Receives the sends, which have all arrived, and reports the system calls by which it has
 * acknowledged them. */
static void count_acks(struct side *s, int fd)
{
    unsigned long sends;

    for (uint32_t i = 0; i < SENDS; i++)
        post_recv(s, 0, 256, i);
    peer_accept(s);
    syscalls_reset();
    send_byte(fd, 'r');          /* is counted as well */
    for (uint32_t i = 0; i < SENDS; i++)
        expect_dto(s, i, DAT_DTO_SUCCESS);
    sends = syscalls.send - 1;
    send_byte(fd, (char)sends);
    peer_wait_end(s);
}

/* 64 outstanding sends are acknowledged when 8, 16, 32 and 64 have been executed: each time by at
 * least half of what was outstanding when they were transmitted. */
static void acknowledges_a_share(void **state)
{
    struct peer p;
    struct side s;

    (void)state;
    start(&p, &s, count_acks);
    for (uint32_t i = 0; i < SENDS; i++)
        post_send(&s, 0, 256, i);
    peer_continue(&p);
    assert_in_range(recv_byte(p.fd), 1, 5);
    for (uint32_t i = 0; i < SENDS; i++)
        expect_dto(&s, i, DAT_DTO_SUCCESS);
    finish(&p, &s);
}

/* -- requests that queue ---------------------------------------------------------------------- */

enum { QUEUED = 64, SHORT_WRITE = 40 };

static void post_write(struct world *w, DAT_LMR_CONTEXT local, uint32_t i)
{
    DAT_LMR_TRIPLET t = seg(&w->a, i * SHORT_WRITE, SHORT_WRITE);
    DAT_RMR_TRIPLET r = rseg(&w->b, i * SHORT_WRITE, SHORT_WRITE);

    t.lmr_context = local;
    OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(i), &r, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Requests that have queued while the socket was full are transmitted several by a call, also if
 * that takes only a part of them. */
static void queued_requests_go_together(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    for (int i = 0; i < QUEUED * SHORT_WRITE; i++) {
        w->a.buf[i] = (uint8_t)(i % 251 + 1);
        w->b.buf[i] = 0;
    }
    syscalls.full = true;
    for (uint32_t i = 0; i < QUEUED; i++)
        post_write(w, w->a.local, i);
    syscalls_reset();
    syscalls.full = false;
    syscalls.send_most = 500;    /* several frames, and a part of one */
    for (uint32_t i = 0; i < QUEUED; i++)
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
    syscalls.send_most = 0;
    assert_in_range(syscalls.send, 1, QUEUED / 2);
    assert_memory_equal(w->a.buf, w->b.buf, QUEUED * SHORT_WRITE);
}

/* One of the requests that wait to be transmitted together loses its registration: it fails. */
static void memory_of_queued_requests(void **state)
{
    struct world *w = *state;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
    DAT_LMR_HANDLE lmr;
    DAT_EVENT e;

    connect_pair(w);
    register_buf(&w->a, &lmr, &local, &key);
    w->b.buf[0] = w->b.buf[SHORT_WRITE] = 0;
    w->a.buf[0] = w->a.buf[SHORT_WRITE] = 1;
    syscalls.send_refused = 3;   /* the third of the two requests together */
    post_write(w, w->a.local, 0);
    post_write(w, local, 1);
    while (syscalls.send_refused > 0)
        IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->a.dto, &e));
    OK(dat_lmr_free(lmr));
    expect_dto(&w->a, 0, DAT_DTO_ERR_FLUSHED);
    expect_dto(&w->a, 1, DAT_DTO_ERR_LOCAL_PROTECTION);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    assert_int_equal(w->b.buf[SHORT_WRITE], 0);
}

/* -- what a message costs --------------------------------------------------------------------- */

enum { ROUNDS = 200, MESSAGE = 64, MANY = 128, LONG = 1 << 16, WINDOW = 8 };

/* Polls for the next completion, which is of this cookie. */
static void poll_dto(struct side *s, uint64_t n)
{
    DAT_EVENT e;

    while (DAT_GET_TYPE(dat_evd_dequeue(s->dto, &e)) != DAT_SUCCESS)
        ;
    assert_int_equal(e.event_data.dto_completion_event_data.status, DAT_DTO_SUCCESS);
    assert_int_equal(e.event_data.dto_completion_event_data.user_cookie.as_64, n);
}

enum { SENT = 1, RECEIVED };

/* A message of a ping-pong is one send() and one successful recv(), and the answer acknowledges it.
 * Both sides are polled by one thread in turn; only if that is interrupted for long a helper thread
 * acknowledges by itself. */
static void ping_pong(void **state)
{
    struct world *w = *state;
    struct side *from = &w->a, *to = &w->b, *side;

    connect_pair(w);
    syscalls_reset();
    for (int i = 0; i < ROUNDS; i++) {
        post_recv(to, 0, MESSAGE, RECEIVED);
        post_send(from, MESSAGE, MESSAGE, SENT);
        if (i > 0)
            poll_dto(to, SENT);
        poll_dto(to, RECEIVED);
        side = from;
        from = to;
        to = side;
    }
    assert_in_range(syscalls.send, ROUNDS, ROUNDS + ROUNDS / 2);
    assert_in_range(syscalls.recv - syscalls.recv_empty, ROUNDS, ROUNDS + ROUNDS / 2);
    assert_in_range(syscalls.recv_empty, 0, ROUNDS);
    assert_int_equal(syscalls.epoll_ctl, 0);
}

static void poll_until_byte(struct side *s, int fd)
{
    DAT_EVENT e;

    peer_accept(s);
    send_byte(fd, 'r');
    while (s->buf[BUF - 1] == 0)
        IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(s->dto, &e));
    peer_wait_end(s);
}

/* Long writes of which some are outstanding: one send each, and the acknowledgements come for many
 * at a time. */
static void stream_of_writes(void **state)
{
    DAT_LMR_TRIPLET t;
    DAT_RMR_TRIPLET r;
    struct peer p;
    struct side s;

    (void)state;
    peer_start(&p, "tcp0", poll_until_byte);
    open_side(&s, "tcp0");
    peer_connect(&p, &s);
    assert_int_equal(recv_byte(p.fd), 'r');
    t = seg(&s, 0, LONG);
    r = peer_memory(&p, 0, LONG);
    syscalls_reset();
    for (uint64_t i = 0; i < MANY + WINDOW; i++) {
        if (i >= WINDOW)
            poll_dto(&s, i - WINDOW);
        if (i < MANY)
            OK(dat_ep_post_rdma_write(s.ep, 1, &t, cookie(i), &r, DAT_COMPLETION_DEFAULT_FLAG));
    }
    assert_in_range(syscalls.send, MANY, MANY + MANY / 2);
    assert_in_range(syscalls.recv - syscalls.recv_empty, 1, MANY);
    assert_int_equal(syscalls.epoll_ctl, 0);
    s.buf[0] = 1;
    t = seg(&s, 0, 1);
    r = peer_memory(&p, BUF - 1, 1);
    OK(dat_ep_post_rdma_write(s.ep, 1, &t, cookie(MANY), &r, DAT_COMPLETION_DEFAULT_FLAG));
    poll_dto(&s, MANY);
    finish(&p, &s);
}

/* -- a socket that takes a part of a frame ---------------------------------------------------- */

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % n;
}

/* Fills both buffers with other bytes. */
static void fill(struct world *w, uint32_t *seed)
{
    for (int i = 0; i < MESSAGE; i++) {
        w->a.buf[i] = (uint8_t)random_below(seed, 256);
        w->b.buf[i] = (uint8_t)~w->a.buf[i];
    }
}

/* Short sends and writes of which the socket takes some bytes, or none, at a time. */
static void cut_frames(void **state)
{
    struct world *w = *state;
    uint32_t seed = 7;

    connect_pair(w);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint32_t len = 1 + random_below(&seed, MESSAGE);
        DAT_LMR_TRIPLET t = seg(&w->a, 0, len);
        DAT_RMR_TRIPLET r = rseg(&w->b, 0, len);

        fill(w, &seed);
        syscalls.send_most = 1 + random_below(&seed, 2 * MESSAGE);
        syscalls.send_refused = random_below(&seed, 3);
        if (i % 2) {
            post_recv(&w->b, 0, len, RECEIVED);
            post_send(&w->a, 0, len, SENT);
            expect_dto(&w->b, RECEIVED, DAT_DTO_SUCCESS);
        } else {
            OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(SENT), &r,
                                      DAT_COMPLETION_DEFAULT_FLAG));
        }
        expect_dto(&w->a, SENT, DAT_DTO_SUCCESS);
        assert_memory_equal(w->a.buf, w->b.buf, len);
        if (len < MESSAGE)
            assert_int_equal(w->b.buf[len], (uint8_t)~w->a.buf[len]);
    }
    syscalls.send_most = syscalls.send_refused = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_socket),
        cmocka_unit_test(acknowledges_a_share),
        CASE_ON(queued_requests_go_together, "tcp0"),
        CASE_ON(memory_of_queued_requests, "tcp0"),
        CASE_ON(ping_pong, "tcp0"),
        cmocka_unit_test(stream_of_writes),
        CASE_ON(cut_frames, "tcp0"),
    };

    return RUN(tests);
}
