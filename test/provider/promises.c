/* SPDX-License-Identifier: MIT */
/*
 * What DAT promises of memory: when a request has completed or been flushed, an endpoint is
 * disconnected, or a registration freed, its owner uses the memory for something else, and nobody
 * reads or writes it any more.
 */
#include "partner.h"

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

/* Registers the buffer of a side again, so that tear_down finds what it expects. */
static void register_again(struct side *s)
{
    DAT_REGION_DESCRIPTION region = { .for_va = s->buf };
    DAT_VLEN len;
    DAT_VADDR addr;

    OK(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, BUF, s->pz, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_VA, &s->lmr, &s->local, &s->key, &len, &addr));
}

/* -- the far process was stopped meanwhile ---------------------------------------------------- */

/* Accepts, waits for the end of the connection, and says how many bytes of its memory are 0xaa. */
static void count_what_came(struct side *s, int fd)
{
    memset(s->buf, 0x42, BUF);
    partner_accept(s);
    say(fd, 'r');
    partner_until_ended(s);
    say(fd, BUF - count_not(s->buf, BUF, 0xaa) ? 'a' : '-');
    hear(fd);
}

/* Ends all that this side has under way and takes its memory back. */
static void give_up(struct side *s)
{
    OK(dat_ep_disconnect(s->ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(s, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_int_equal(status_of(s), DAT_DTO_ERR_FLUSHED);
    OK(dat_ep_free(s->ep));
    free_lmr(s);
    memset(s->buf, 0xaa, BUF);
    make_ep(s);
}

/* A request is posted to a process that is stopped, given up, and the process goes on. */
static char give_up_while_stopped(struct side *s, bool read)
{
    struct partner p;
    int answer;

    partner_start(&p, "soft0", count_what_came);
    open_side(s, "soft0");
    memset(s->buf, 0x11, BUF);
    partner_join(&p, s);
    hear(p.fd);
    partner_stop(&p);
    OK(read ? post_read(s, BUF, partner_at(&p, 0, BUF), 1)
            : post_write(s, BUF, partner_at(&p, 0, BUF), 1));
    give_up(s);
    partner_continue(&p);
    answer = hear(p.fd);
    partner_end(&p);
    return (char)answer;
}

static void flushed_read_writes_nothing(void **state)
{
    struct side s;

    (void)state;
    give_up_while_stopped(&s, true);
    assert_int_equal(count_not(s.buf, BUF, 0xaa), 0);
    register_again(&s);
    close_side(&s);
}

static void flushed_write_reads_nothing(void **state)
{
    struct side s;

    (void)state;
    assert_int_equal(give_up_while_stopped(&s, false), '-');
    register_again(&s);
    close_side(&s);
}

enum { RACES = 300 };

/* Accepts again and again. */
static void accept_all(struct side *s, int fd)
{
    memset(s->buf, 0x42, BUF);
    for (int i = 0; i < RACES; i++) {
        partner_accept(s);
        partner_until_ended(s);
        OK(dat_ep_reset(s->ep));
    }
    say(fd, 'd');
    hear(fd);
}

/* The far process carries the bytes while this one gives up: somewhere before, in the middle of
 * the copy, or after it. */
static void giving_up_in_the_middle(void **state)
{
    struct partner p;
    struct side s;
    volatile unsigned spin = 0;

    (void)state;
    partner_start(&p, "soft0", accept_all);
    open_side(&s, "soft0");
    for (unsigned i = 0; i < RACES; i++) {
        partner_join(&p, &s);
        memset(s.buf, 0x55, BUF);
        OK(post_read(&s, BUF, partner_at(&p, 0, BUF), i));
        for (unsigned k = 0; k < i * 400; k++)
            spin++;
        OK(dat_ep_disconnect(s.ep, DAT_CLOSE_ABRUPT_FLAG));
        memset(s.buf, 0xaa, BUF);
        expect_conn(&s, DAT_CONNECTION_EVENT_DISCONNECTED);
        status_of(&s);
        OK(dat_ep_reset(s.ep));
        assert_int_equal(count_not(s.buf, BUF, 0xaa), 0);
    }
    assert_int_equal(hear(p.fd), 'd');
    assert_int_equal(count_not(s.buf, BUF, 0xaa), 0);
    partner_end(&p);
    close_side(&s);
}

/* -- what is under way when a registration is freed ------------------------------------------- */

/* Progress on both sides until the first byte has arrived. On a slow wire the last one is far behind.
 * The byte is written as by an adapter's DMA: TSan would report a race with this read. */
__attribute__((no_sanitize("thread"))) static void until_changed(struct world *w, const uint8_t *at,
                                                                 uint8_t from)
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

/* The target frees its registration while a write into it is arriving. */
static void write_into_what_is_freed(void **state)
{
    struct world *w = *state;

    join(w);
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

/* The target frees the registration whose contents are on their way as the answer to a read, and
 * makes the memory unreadable. */
static void read_from_what_is_freed(void **state)
{
    struct world *w = *state;

    join(w);
    memset(w->b.buf, 0x22, BUF);
    state_of(&w->b);             /* its helper sees that from here on */
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

/* The same after a disconnect, with the answer in the middle: all in its right order. */
static void read_from_what_has_left(void **state)
{
    struct world *w = *state;

    join(w);
    memset(w->b.buf, 0x22, BUF);
    state_of(&w->b);             /* its helper sees that from here on */
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

/* Answers that wait behind others, and have not begun, are not begun after a disconnect either. */
static void answers_that_wait(void **state)
{
    struct world *w = *state;

    join(w);
    memset(w->b.buf, 0x22, BUF);
    state_of(&w->b);             /* its helper sees that from here on */
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

/* The requester frees what it writes from in the middle of the write. */
static void write_from_what_is_freed(void **state)
{
    struct world *w = *state;

    join(w);
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

/* The requester frees what it reads into: in the middle, and before the answer has begun. */
static void read_into_what_is_freed(void **state)
{
    struct world *w = *state;

    for (int begun = 0; begun < 2; begun++) {
        join(w);
        memset(w->a.buf, 0, BUF);
        memset(w->b.buf, 0x22, BUF);
        state_of(&w->b);             /* its helper sees that from here on */
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

/* A receive whose memory is no longer registered when a send comes for it. */
static void receive_into_what_is_freed(void **state)
{
    struct world *w = *state;

    post_recv(&w->b, 0, 64, 7);
    join(w);
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

/* A message of more than 32 bits of length is refused, also by an EP without a limit of its own. */
static void lengths_are_not_cut(void **state)
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
    join(w);
    IS(DAT_LENGTH_ERROR, dat_ep_post_send(w->a.ep, PIECES, t, cookie(1),
                                          DAT_COMPLETION_DEFAULT_FLAG));
    expect_nothing(w->b.dto);
    OK(dat_lmr_free(lmr));
    munmap(region.for_va, PIECE + 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flushed_read_writes_nothing),
        cmocka_unit_test(flushed_write_reads_nothing),
        cmocka_unit_test(giving_up_in_the_middle),
        CASE_ON(write_into_what_is_freed, "slow0"),
        CASE_ON(read_from_what_is_freed, "slow0"),
        CASE_ON(read_from_what_has_left, "slow0"),
        CASE_ON(answers_that_wait, "slow0"),
        CASE_ON(write_from_what_is_freed, "slow0"),
        CASE_ON(read_into_what_is_freed, "slow0"),
        CASE(receive_into_what_is_freed),
        CASE(lengths_are_not_cut),
    };

    return RUN(tests);
}
