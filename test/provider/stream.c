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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_socket),
        cmocka_unit_test(acknowledges_a_share),
    };

    return RUN(tests);
}
