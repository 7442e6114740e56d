/* SPDX-License-Identifier: MIT */
/*
 * Ownership of memory in DAT 2.0: when a request has completed or been flushed, its endpoint is
 * disconnected, or a registration is freed, the memory is the consumer's again, and no adapter
 * reads or writes it any more.
 */
#include "peer.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static DAT_RETURN post_read(struct side *s, uint32_t len, DAT_RMR_TRIPLET from, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(s, 0, len);

    return dat_ep_post_rdma_read(s->ep, 1, &t, cookie(n), &from, DAT_COMPLETION_DEFAULT_FLAG);
}

static DAT_RETURN post_write(struct side *s, uint32_t len, DAT_RMR_TRIPLET to, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(s, 0, len);

    return dat_ep_post_rdma_write(s->ep, 1, &t, cookie(n), &to, DAT_COMPLETION_DEFAULT_FLAG);
}

static size_t count_not(const uint8_t *p, size_t n, uint8_t value)
{
    size_t other = 0;

    for (size_t i = 0; i < n; i++)
        other += p[i] != value;
    return other;
}

static DAT_DTO_COMPLETION_STATUS status_of(struct side *s)
{
    return next_event(s->dto).event_data.dto_completion_event_data.status;
}

static void free_lmr(struct side *s)
{
    OK(dat_lmr_free(s->lmr));
    s->lmr = DAT_HANDLE_NULL;
}

/* Registers a side's buffer again, since tear_down frees a registration. */
static void register_again(struct side *s)
{
    register_buf(s, &s->lmr, &s->local, &s->key);
}

/* -- cancelled requests to a stopped process -------------------------------------------------- */

/* Accepts, waits for the end of the connection, and sends 'a' if its memory contains a byte
 * 0xaa. */
static void report_written(struct side *s, int fd)
{
    memset(s->buf, 0x42, BUF);
    peer_accept(s);
    send_byte(fd, 'r');
    peer_wait_end(s);
    send_byte(fd, BUF - count_not(s->buf, BUF, 0xaa) ? 'a' : '-');
    recv_byte(fd);
}

/* Disconnects, frees the EP and the registration, and overwrites the memory. */
static void cancel(struct side *s)
{
    OK(dat_ep_disconnect(s->ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(s, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_int_equal(status_of(s), DAT_DTO_ERR_FLUSHED);
    OK(dat_ep_free(s->ep));
    free_lmr(s);
    memset(s->buf, 0xaa, BUF);
    make_ep(s);
}

/* Posts a request to a stopped process, cancels it, and continues the process. */
static char cancel_while_stopped(struct side *s, bool read)
{
    struct peer p;
    int reply;

    peer_start(&p, "soft0", report_written);
    open_side(s, "soft0");
    memset(s->buf, 0x11, BUF);
    peer_connect(&p, s);
    recv_byte(p.fd);
    peer_stop(&p);
    OK(read ? post_read(s, BUF, peer_memory(&p, 0, BUF), 1)
            : post_write(s, BUF, peer_memory(&p, 0, BUF), 1));
    cancel(s);
    peer_continue(&p);
    reply = recv_byte(p.fd);
    peer_end(&p);
    return (char)reply;
}

static void flushed_read_writes_nothing(void **state)
{
    struct side s;

    (void)state;
    cancel_while_stopped(&s, true);
    assert_int_equal(count_not(s.buf, BUF, 0xaa), 0);
    register_again(&s);
    close_side(&s);
}

static void flushed_write_reads_nothing(void **state)
{
    struct side s;

    (void)state;
    assert_int_equal(cancel_while_stopped(&s, false), '-');
    register_again(&s);
    close_side(&s);
}

enum { RACES = 300 };

/* Accepts RACES connections, one after another. */
static void accept_all(struct side *s, int fd)
{
    memset(s->buf, 0x42, BUF);
    for (int i = 0; i < RACES; i++) {
        peer_accept(s);
        peer_wait_end(s);
        OK(dat_ep_reset(s->ep));
    }
    send_byte(fd, 'd');
    recv_byte(fd);
}

/* Disconnects while the peer copies: at a varying time before, during or after the copy. */
static void disconnect_during_copy(void **state)
{
    struct peer p;
    struct side s;
    volatile unsigned spin = 0;

    (void)state;
    peer_start(&p, "soft0", accept_all);
    open_side(&s, "soft0");
    for (unsigned i = 0; i < RACES; i++) {
        peer_connect(&p, &s);
        memset(s.buf, 0x55, BUF);
        OK(post_read(&s, BUF, peer_memory(&p, 0, BUF), i));
        for (unsigned k = 0; k < i * 400; k++)
            spin++;
        OK(dat_ep_disconnect(s.ep, DAT_CLOSE_ABRUPT_FLAG));
        memset(s.buf, 0xaa, BUF);
        expect_conn(&s, DAT_CONNECTION_EVENT_DISCONNECTED);
        status_of(&s);
        OK(dat_ep_reset(s.ep));
        assert_int_equal(count_not(s.buf, BUF, 0xaa), 0);
    }
    assert_int_equal(recv_byte(p.fd), 'd');
    assert_int_equal(count_not(s.buf, BUF, 0xaa), 0);
    peer_end(&p);
    close_side(&s);
}

/* -- registrations freed with requests in flight ---------------------------------------------- */

/* Makes progress on both sides until the byte `at` changes. At a low rate the transfer is then
 * incomplete. The byte is written like by DMA, without synchronisation, hence not for TSan. */
__attribute__((no_sanitize("thread")))
static void until_changed(struct world *w, const uint8_t *at, uint8_t from)
{
    DAT_EVENT e;

    for (int i = 0; *(const volatile uint8_t *)at == from; i++) {
        assert_true(i < 20000000);
        IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->a.dto, &e));
        IS(DAT_QUEUE_EMPTY, dat_evd_dequeue(w->b.dto, &e));
    }
}

static void expect_end(struct side *s)
{
    DAT_EVENT e = next_event(s->conn);

    assert_int_not_equal(e.event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect_nothing(s->conn);
}

/* The target frees its registration while a write into it arrives. */
static void target_frees_during_write(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    memset(w->a.buf, 0x11, BUF);
    OK(post_write(&w->a, BUF, rseg(&w->b, 0, BUF), 1));
    until_changed(w, w->b.buf, 0);
    free_lmr(&w->b);
    memset(w->b.buf, 0xaa, BUF);
    assert_int_not_equal(status_of(&w->a), DAT_DTO_SUCCESS);
    expect_end(&w->a);
    expect_end(&w->b);
    assert_int_equal(count_not(w->b.buf, BUF, 0xaa), 0);
    register_again(&w->b);
}

/* The target frees its registration, and makes the memory unreadable, while the response of a read
 * from it is transmitted. */
static void target_frees_during_read(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    memset(w->b.buf, 0x22, BUF);
    state_of(&w->b);             /* its lock orders the memset for its helper */
    OK(post_read(&w->a, BUF, rseg(&w->b, 0, BUF), 1));
    until_changed(w, w->a.buf, 0);
    free_lmr(&w->b);
    assert_int_equal(mprotect(w->b.buf, BUF, PROT_NONE), 0);
    assert_int_not_equal(status_of(&w->a), DAT_DTO_SUCCESS);
    expect_end(&w->a);
    expect_end(&w->b);
    assert_int_equal(mprotect(w->b.buf, BUF, PROT_READ | PROT_WRITE), 0);
    register_again(&w->b);
}

/* The same after a disconnect and after freeing the EP, which is the order that DAT requires. */
static void target_disconnects_during_read(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    memset(w->b.buf, 0x22, BUF);
    state_of(&w->b);             /* its lock orders the memset for its helper */
    OK(post_read(&w->a, BUF, rseg(&w->b, 0, BUF), 1));
    until_changed(w, w->a.buf, 0);
    OK(dat_ep_disconnect(w->b.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(w->b.ep));
    free_lmr(&w->b);
    assert_int_equal(mprotect(w->b.buf, BUF, PROT_NONE), 0);
    assert_int_not_equal(status_of(&w->a), DAT_DTO_SUCCESS);
    expect_end(&w->a);
    assert_int_equal(mprotect(w->b.buf, BUF, PROT_READ | PROT_WRITE), 0);
    register_again(&w->b);
    make_ep(&w->b);
}

/* Queued responses that have not begun are not transmitted after a disconnect. */
static void queued_responses_are_dropped(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    memset(w->b.buf, 0x22, BUF);
    state_of(&w->b);             /* its lock orders the memset for its helper */
    for (uint64_t i = 0; i < 4; i++)
        OK(post_read(&w->a, BUF / 4, rseg(&w->b, i * (BUF / 4), BUF / 4), i));
    until_changed(w, w->a.buf, 0);
    OK(dat_ep_disconnect(w->b.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_int_equal(mprotect(w->b.buf, BUF, PROT_NONE), 0);
    for (uint64_t i = 0; i < 4; i++)
        status_of(&w->a);
    expect_end(&w->a);
    assert_int_equal(mprotect(w->b.buf, BUF, PROT_READ | PROT_WRITE), 0);
}

/* The requester frees the registration from which it writes, during the write. */
static void requester_frees_during_write(void **state)
{
    struct world *w = *state;

    connect_pair(w);
    memset(w->a.buf, 0x11, BUF);
    OK(post_write(&w->a, BUF, rseg(&w->b, 0, BUF), 1));
    until_changed(w, w->b.buf, 0);
    free_lmr(&w->a);
    assert_int_equal(mprotect(w->a.buf, BUF, PROT_NONE), 0);
    assert_int_not_equal(status_of(&w->a), DAT_DTO_SUCCESS);
    expect_end(&w->a);
    expect_end(&w->b);
    assert_int_equal(mprotect(w->a.buf, BUF, PROT_READ | PROT_WRITE), 0);
    register_again(&w->a);
}

/* The requester frees the registration into which it reads: before the response, and during it. */
static void requester_frees_during_read(void **state)
{
    struct world *w = *state;

    for (int begun = 0; begun < 2; begun++) {
        connect_pair(w);
        memset(w->a.buf, 0, BUF);
        memset(w->b.buf, 0x22, BUF);
        state_of(&w->b);             /* its lock orders the memset for its helper */
        OK(post_read(&w->a, BUF, rseg(&w->b, 0, BUF), 1));
        if (begun)
            until_changed(w, w->a.buf, 0);
        free_lmr(&w->a);
        memset(w->a.buf, 0xaa, BUF);
        assert_int_not_equal(status_of(&w->a), DAT_DTO_SUCCESS);
        expect_end(&w->a);
        expect_end(&w->b);
        assert_int_equal(count_not(w->a.buf, BUF, 0xaa), 0);
        register_again(&w->a);
        OK(dat_ep_reset(w->a.ep));
        OK(dat_ep_reset(w->b.ep));
    }
}

/* A send arrives for a receive whose registration has been freed. */
static void receive_of_freed_memory(void **state)
{
    struct world *w = *state;

    post_recv(&w->b, 0, 64, 7);
    connect_pair(w);
    free_lmr(&w->b);
    memset(w->b.buf, 0xaa, BUF);
    post_send(&w->a, 0, 64, 1);
    expect_dto(&w->b, 7, DAT_DTO_ERR_LOCAL_PROTECTION);
    expect_dto(&w->a, 1, DAT_DTO_ERR_REMOTE_RESPONDER);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    expect_end(&w->b);
    assert_int_equal(count_not(w->b.buf, BUF, 0xaa), 0);
    register_again(&w->b);
}

/* -- lengths ---------------------------------------------------------------------------------- */

/* A message whose length exceeds 32 bits is refused, also by an EP without a limit of its own. */
static void lengths_beyond_32_bits(void **state)
{
    enum { PIECE = 1 << 28, PIECES = 16 };
    struct world *w = *state;
    DAT_EP_ATTR attr = { .service_type = DAT_SERVICE_TYPE_RC, .max_recv_dtos = 8,
                         .max_request_dtos = 8, .max_recv_iov = 1, .max_request_iov = PIECES };
    DAT_REGION_DESCRIPTION region;
    DAT_LMR_TRIPLET t[PIECES];
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
    DAT_LMR_HANDLE lmr;
    DAT_VLEN len;
    DAT_VADDR at;

    region.for_va = mmap(NULL, PIECE + 8, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(region.for_va, MAP_FAILED);
    OK(dat_lmr_create(w->a.ia, DAT_MEM_TYPE_VIRTUAL, region, PIECE + 8, w->a.pz,
                      DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &local, &key, &len, &at));
    for (int i = 0; i < PIECES; i++)
        t[i] = (DAT_LMR_TRIPLET){ at, PIECE + (i == 0 ? 8 : 0), local };
    OK(dat_ep_free(w->a.ep));
    OK(dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, &attr, &w->a.ep));
    post_recv(&w->b, 0, 64, 7);
    connect_pair(w);
    IS(DAT_LENGTH_ERROR, dat_ep_post_send(w->a.ep, PIECES, t, cookie(1),
                                          DAT_COMPLETION_DEFAULT_FLAG));
    expect_nothing(w->b.dto);
    OK(dat_lmr_free(lmr));
    munmap(region.for_va, PIECE + 8);
}

/* -- a long request, which is executed in parts ----------------------------------------------- */

/* EXTENT: so much that another message arrives before it is executed; little of it is used. */
enum { LONG = 16 << 20, EXTENT = 64 << 20 };

/* Registered memory of a side. */
struct memory {
    uint8_t *at;
    uint32_t len;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
};

static struct memory memory_of(const struct side *s, uint32_t len, uint8_t value)
{
    struct memory m = { .len = len };
    DAT_REGION_DESCRIPTION region;
    DAT_VLEN size;
    DAT_VADDR addr;

    m.at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
    assert_ptr_not_equal(m.at, MAP_FAILED);
    if (value)
        memset(m.at, value, len);
    region.for_va = m.at;
    OK(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, len, s->pz, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_VA, &m.lmr, &m.local, &m.key, &size, &addr));
    return m;
}

static DAT_LMR_TRIPLET all_of(const struct memory *m)
{
    return (DAT_LMR_TRIPLET){ .virtual_address = (DAT_VADDR)(uintptr_t)m->at,
                              .segment_length = m->len, .lmr_context = m->local };
}

static DAT_RMR_TRIPLET remote_all_of(const struct memory *m)
{
    return (DAT_RMR_TRIPLET){ .virtual_address = (DAT_VADDR)(uintptr_t)m->at,
                              .segment_length = m->len, .rmr_context = m->key };
}

static void write_all(const struct side *s, const struct memory *from, const struct memory *to)
{
    DAT_LMR_TRIPLET t = all_of(from);
    DAT_RMR_TRIPLET r = remote_all_of(to);

    OK(dat_ep_post_rdma_write(s->ep, 1, &t, cookie(0), &r, DAT_COMPLETION_DEFAULT_FLAG));
}

/* Waits until the helper threads have changed the byte. Not for TSan, as until_changed(). */
__attribute__((no_sanitize("thread")))
static void wait_for_change(const uint8_t *at, uint8_t from)
{
    while (*(const volatile uint8_t *)at == from)
        sched_yield();
}

static void poll_both(struct world *w)
{
    DAT_EVENT e;

    for (int i = 0; i < 100; i++) {
        dat_evd_dequeue(w->a.dto, &e);
        dat_evd_dequeue(w->b.dto, &e);
    }
}

/* Two long memories, the first of which is to be written to the second. */
struct extent {
    struct memory from, to;
};

static struct extent extent_of(struct world *w)
{
    struct extent x = { memory_of(&w->a, EXTENT, 0), memory_of(&w->b, EXTENT, 0) };

    x.from.at[0] = x.from.at[EXTENT - 1] = 1;
    return x;
}

static void free_extent(const struct extent *x)
{
    OK(dat_lmr_free(x->from.lmr));
    OK(dat_lmr_free(x->to.lmr));
    munmap(x->from.at, EXTENT);
    munmap(x->to.at, EXTENT);
}

/* Writes while another connection transmits a message. Was the message there before the last byte
 * of the write? */
static bool message_overtakes_write(struct world *w)
{
    struct extent x = extent_of(w);
    DAT_EP_HANDLE first[2];
    DAT_EVENT e;
    bool overtook;

    connect_pair(w);
    first[0] = w->a.ep;
    first[1] = w->b.ep;
    make_ep(&w->a);
    make_ep(&w->b);
    connect_pair(w);
    post_recv(&w->b, 0, 8, 1);
    write_all(&(struct side){ .ep = first[0] }, &x.from, &x.to);
    post_send(&w->a, 0, 8, 2);
    while (DAT_GET_TYPE(dat_evd_dequeue(w->b.dto, &e)) == DAT_QUEUE_EMPTY)
        ;
    overtook = x.to.at[EXTENT - 1] == 0;
    assert_int_equal(e.event_data.dto_completion_event_data.user_cookie.as_64, 1);
    OK(dat_ep_free(first[0]));
    OK(dat_ep_free(first[1]));
    free_extent(&x);
    return overtook;
}

/* Writes, and calls the target as soon as the first byte has arrived. Did the call return before
 * the last byte was there? */
static bool call_overtakes_write(struct world *w)
{
    struct extent x = extent_of(w);
    bool overtook;

    connect_pair(w);
    write_all(&w->a, &x.from, &x.to);
    wait_for_change(x.to.at, 0);
    state_of(&w->b);
    overtook = x.to.at[EXTENT - 1] == 0;
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    OK(dat_ep_disconnect(w->b.ep, DAT_CLOSE_ABRUPT_FLAG));
    free_extent(&x);
    return overtook;
}

/* A provider that finishes the write first fails each time; one that does not may still be late
 * where other programs have the processors. */
static void overtakes_sometimes(bool (*overtakes)(struct world *))
{
    enum { TIMES = 100 };

    for (int i = 0; i < TIMES; i++) {
        void *world = NULL;
        bool overtook;

        set_up(&world);
        overtook = overtakes(world);
        tear_down(&world);
        if (overtook)
            return;
    }
    fail_msg("the write was executed first, %d times", TIMES);
}

/* A message of another connection arrives while a long write is being executed. */
static void long_write_delays_no_others(void **state)
{
    (void)state;
    overtakes_sometimes(message_overtakes_write);
}

/* A call of the target gets the lock while its helper thread executes a long write. */
static void long_write_delays_no_calls(void **state)
{
    (void)state;
    overtakes_sometimes(call_overtakes_write);
}

/* The target frees its registration between two parts of a write. */
static void target_frees_between_parts(void **state)
{
    struct world *w = *state;
    struct memory from = memory_of(&w->a, LONG, 0x11), to = memory_of(&w->b, LONG, 0);

    connect_pair(w);
    write_all(&w->a, &from, &to);
    until_changed(w, to.at, 0);
    OK(dat_lmr_free(to.lmr));
    memset(to.at, 0xaa, LONG);
    assert_int_not_equal(status_of(&w->a), DAT_DTO_SUCCESS);
    expect_end(&w->a);
    expect_end(&w->b);
    assert_int_equal(count_not(to.at, LONG, 0xaa), 0);
    OK(dat_lmr_free(from.lmr));
    munmap(from.at, LONG);
    munmap(to.at, LONG);
}

/* The requester disconnects between two parts of a read; the target goes on to poll. */
static void requester_disconnects_between_parts(void **state)
{
    struct world *w = *state;
    struct memory from = memory_of(&w->b, LONG, 0x11), to = memory_of(&w->a, LONG, 0);
    DAT_LMR_TRIPLET t = all_of(&to);
    DAT_RMR_TRIPLET r = remote_all_of(&from);

    connect_pair(w);
    OK(dat_ep_post_rdma_read(w->a.ep, 1, &t, cookie(0), &r, DAT_COMPLETION_DEFAULT_FLAG));
    until_changed(w, to.at, 0);
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    memset(to.at, 0xaa, LONG);
    poll_both(w);
    expect_end(&w->a);
    expect_end(&w->b);
    assert_int_equal(count_not(to.at, LONG, 0xaa), 0);
    OK(dat_lmr_free(from.lmr));
    OK(dat_lmr_free(to.lmr));
    munmap(from.at, LONG);
    munmap(to.at, LONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flushed_read_writes_nothing),
        cmocka_unit_test(flushed_write_reads_nothing),
        cmocka_unit_test(disconnect_during_copy),
        CASE_ON(target_frees_during_write, "slow0"),
        CASE_ON(target_frees_during_read, "slow0"),
        CASE_ON(target_disconnects_during_read, "slow0"),
        CASE_ON(queued_responses_are_dropped, "slow0"),
        CASE_ON(requester_frees_during_write, "slow0"),
        CASE_ON(requester_frees_during_read, "slow0"),
        CASE(receive_of_freed_memory),
        cmocka_unit_test(long_write_delays_no_others),
        cmocka_unit_test(long_write_delays_no_calls),
        CASE(target_frees_between_parts),
        CASE(requester_disconnects_between_parts),
        CASE(lengths_beyond_32_bits),
    };

    return RUN(tests);
}
