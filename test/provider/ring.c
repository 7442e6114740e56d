/* SPDX-License-Identifier: MIT */
/*
 * Unit test of the byte rings between two adapters of one host (src/softdat/shared.c): both ends
 * are in this process, on one segment. The reader gets the bytes in their order at every value of
 * the 32-bit positions.
 */
#include "softdat.h"
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Functions of the provider that shared.c calls. */
void softdat_direct_offer(struct softdat_conn *c) { (void)c; }
void softdat_direct_probe(struct softdat_conn *c) { (void)c; }
bool softdat_rx_ring(struct softdat_conn *c) { (void)c; return false; }
void softdat_request_progress(struct softdat_ia *ia) { (void)ia; }
void softdat_ack_later(struct softdat_conn *c) { (void)c; }
uint64_t softdat_now(void) { return 1; }

static int delays;               /* connections that are to continue later */
void softdat_delay_until(struct softdat_conn *c, uint64_t when) { (void)c, (void)when, delays++; }

static int refuse_sends, sends;  /* the next send() calls fail; those that do not */

/* In place of the C library's. */
ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    (void)fd, (void)buf, (void)flags;
    if (refuse_sends > 0) {
        refuse_sends--;
        errno = ENOBUFS;
        return -1;
    }
    sends++;
    return (ssize_t)n;
}

struct pair {
    struct softdat_ia ia;
    struct softdat_conn out, in;     /* the writer, the reader */
    unsigned next_out, next_in;      /* counters: byte k of the stream is k modulo a prime */
    int fd[2];
};

static void end_of(struct pair *p, struct softdat_conn *c, int fd)
{
    c->ia = &p->ia;
    c->sock.fd = fd;
    softdat_list_init(&c->acks);
    softdat_list_init(&c->polled);
    softdat_list_init(&c->delayed);
}

static int set_up(void **state)
{
    struct pair *p = calloc(1, sizeof(*p));
    int fd;

    p->ia.cfg.local = SOFTDAT_LOCAL_SHARED;
    softdat_list_init(&p->ia.rings);
    softdat_list_init(&p->ia.acks);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, p->fd), 0);
    end_of(p, &p->out, p->fd[0]);
    end_of(p, &p->in, p->fd[1]);
    fd = softdat_shared_create(&p->out);
    assert_true(fd >= 0);
    assert_true(softdat_shared_attach(&p->in, fd));
    softdat_shared_start(&p->out);
    softdat_shared_start(&p->in);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *p = *state;

    softdat_shared_free(&p->out);
    softdat_shared_free(&p->in);
    close(p->fd[0]);
    close(p->fd[1]);
    free(p);
    return 0;
}

/* Writes n bytes, for which the ring must have room. */
static void put(struct pair *p, size_t n)
{
    static uint8_t bytes[SOFTDAT_RING];
    struct iovec v = { bytes, n };

    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(p->next_out++ % 251);
    assert_int_equal(softdat_shared_write(&p->out, &v, 1), n);
}

/* Reads n bytes and compares them. */
static void get(struct pair *p, size_t n)
{
    while (n > 0) {
        const uint8_t *at;
        ssize_t got = softdat_shared_peek(&p->in, &at);

        assert_true(got > 0);
        if ((size_t)got > n)
            got = (ssize_t)n;
        for (ssize_t i = 0; i < got; i++)
            assert_int_equal(at[i], p->next_in++ % 251);
        softdat_shared_consume(&p->in, (size_t)got);
        n -= (size_t)got;
    }
    softdat_shared_ack(&p->in);
}

/* Sets the state as if n more bytes had been written and read. */
static void skip_bytes(struct pair *p, uint32_t n)
{
    struct softdat_half *half = p->out.shared.mine;

    assert_int_equal(n % SOFTDAT_RING, 0);   /* the rings' contents keep their places */
    p->out.shared.tail += n;
    p->out.shared.their_head += n;
    atomic_store(&half->counters, softdat_both((uint32_t)half->counters + n, 0));
    p->in.shared.head += n;
    p->in.shared.head_published += n;
    atomic_fetch_add(&p->in.shared.mine->head, n);
}

static void short_and_long_frames(void **state)
{
    struct pair *p = *state;

    for (size_t n = 1; n < 3000; n += 7) {
        put(p, n);               /* the ring is empty: in-line if it is short */
        put(p, 40);
        get(p, n + 40);
    }
}

/* A stream that is never fully read for 2^32 bytes reaches the position of its last in-line frame
 * again. That frame must not be read a second time. */
static void position_recurs(void **state)
{
    struct pair *p = *state;
    uint32_t at;

    put(p, 1000);
    get(p, 1000);
    at = p->out.shared.tail;
    put(p, 32);                  /* in-line, at position `at` */
    put(p, 5000);                /* from here on the ring is never empty */
    get(p, 32);
    for (int i = 0; i < 200; i++) {
        put(p, 1000);
        get(p, 1000);
    }
    skip_bytes(p, (at - p->in.shared.head) / SOFTDAT_RING * SOFTDAT_RING);
    while (p->in.shared.head != at) {
        size_t step = at - p->in.shared.head < 1000 ? at - p->in.shared.head : 1000;

        put(p, step);
        get(p, step);
    }
    put(p, 1000);
    get(p, 6000);
}

/* A doorbell that the kernel has no memory for is sent later, once. */
static void doorbell_without_memory(void **state)
{
    struct pair *p = *state;

    sends = delays = 0;
    refuse_sends = 2;
    atomic_store(&p->in.shared.mine->armed, 1);
    softdat_doorbell(&p->out);
    softdat_doorbell(&p->out);
    assert_int_equal(delays, 2);
    assert_int_equal(sends, 0);
    softdat_doorbell(&p->out);
    softdat_doorbell(&p->out);
    assert_int_equal(sends, 1);
    assert_int_equal(delays, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(short_and_long_frames, set_up, tear_down),
        cmocka_unit_test_setup_teardown(position_recurs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(doorbell_without_memory, set_up, tear_down),
    };

    return RUN(tests);
}
