/* SPDX-License-Identifier: MIT */
/*
 * The optional parts of DAT 2.0 and the IB extensions (world.h): shared receive queues, RMRs,
 * zero-based addresses, immediate data and atomic operations.
 */
#include "world.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* -- shared receive queues -------------------------------------------------------------------- */

static DAT_SRQ_HANDLE make_srq(struct side *s, DAT_COUNT size, DAT_COUNT low)
{
    DAT_SRQ_ATTR attr = { size, 2, low };
    DAT_SRQ_HANDLE srq;

    OK(dat_srq_create(s->ia, s->pz, &attr, &srq));
    return srq;
}

/* Replaces b's EP by one on a shared receive queue and connects the pair. */
static DAT_SRQ_HANDLE connect_srq(struct world *w, DAT_COUNT size, DAT_COUNT low)
{
    DAT_SRQ_HANDLE srq = make_srq(&w->b, size, low);

    OK(dat_ep_free(w->b.ep));
    OK(dat_ep_create_with_srq(w->b.ia, w->b.pz, w->b.dto, w->b.dto, w->b.conn, srq, NULL,
                              &w->b.ep));
    connect_pair(w);
    return srq;
}

static void post_srq(struct side *s, DAT_SRQ_HANDLE srq, size_t at, uint32_t len, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(s, at, len);

    OK(dat_srq_post_recv(srq, 1, &t, cookie(n)));
}

static void free_srq(struct world *w, DAT_SRQ_HANDLE srq)
{
    DAT_EVENT e;

    IS(DAT_INVALID_STATE, dat_srq_free(srq));
    OK(dat_ep_disconnect(w->b.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    e = next_event(w->b.async);  /* no receive of the queue belongs to the EP any more */
    assert_int_equal(e.event_number, DAT_ASYNC_ERROR_EP_BROKEN);
    assert_ptr_equal(e.event_data.asynch_error_event_data.dat_handle, w->b.ep);
    OK(dat_ep_free(w->b.ep));
    OK(dat_srq_free(srq));
    make_ep(&w->b);
}

static void srq_is_served_in_order(void **state)
{
    struct world *w = *state;
    DAT_SRQ_HANDLE srq = connect_srq(w, 8, 0);
    DAT_LMR_TRIPLET t = seg(&w->b, 0, 8);
    DAT_SRQ_PARAM p;

    IS(DAT_INVALID_STATE, dat_ep_post_recv(w->b.ep, 1, &t, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    for (uint64_t i = 0; i < 4; i++)
        post_srq(&w->b, srq, i * 64, 64, 100 + i);
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &p));
    assert_int_equal(p.available_dto_count, 4);
    assert_int_equal(p.max_recv_dtos, 8);
    for (uint64_t i = 0; i < 4; i++) {
        memset(w->a.buf, (int)(i + 1), 64);
        post_send(&w->a, 0, 64, i);
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
        expect_dto(&w->b, 100 + i, DAT_DTO_SUCCESS);
        assert_int_equal(w->b.buf[i * 64 + 63], i + 1);
    }
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &p));
    assert_int_equal(p.available_dto_count, 0);
    assert_int_equal(p.outstanding_dto_count, 0);
    free_srq(w, srq);
}

static void srq_posted_late_and_resized(void **state)
{
    struct world *w = *state;
    DAT_SRQ_HANDLE srq = connect_srq(w, 2, 0);
    DAT_LMR_TRIPLET t = seg(&w->b, 0, 8);

    for (uint64_t i = 0; i < 5; i++)
        post_send(&w->a, 0, 8, i);
    expect_nothing(w->a.dto);    /* the sends wait for receives */
    post_srq(&w->b, srq, 0, 8, 0);
    expect_dto(&w->b, 0, DAT_DTO_SUCCESS);
    for (uint64_t i = 1; i < 5; i++)
        post_srq(&w->b, srq, 0, 8, i);
    for (uint64_t i = 1; i < 5; i++)
        expect_dto(&w->b, i, DAT_DTO_SUCCESS);
    for (uint64_t i = 0; i < 5; i++)
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
    post_srq(&w->b, srq, 0, 8, 10);
    post_srq(&w->b, srq, 0, 8, 11);
    IS(DAT_INSUFFICIENT_RESOURCES, dat_srq_post_recv(srq, 1, &t, cookie(12)));
    IS(DAT_INVALID_STATE, dat_srq_resize(srq, 1));
    OK(dat_srq_resize(srq, 3));
    OK(dat_srq_post_recv(srq, 1, &t, cookie(12)));
    for (uint64_t i = 10; i < 13; i++) {
        post_send(&w->a, 0, 8, i);
        expect_dto(&w->b, i, DAT_DTO_SUCCESS);
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
    }
    free_srq(w, srq);
}

static void expect_low(struct side *s, DAT_SRQ_HANDLE srq)
{
    DAT_EVENT e = next_event(s->async);

    assert_ptr_equal(e.event_data.asynch_error_event_data.dat_handle, srq);
    assert_int_equal(e.event_data.asynch_error_event_data.reason, DAT_SRQ_LOW_WATERMARK_EVENT);
}

static void srq_low_watermark(void **state)
{
    struct world *w = *state;
    DAT_SRQ_HANDLE srq = connect_srq(w, 8, 0);

    for (uint64_t i = 0; i < 4; i++)
        post_srq(&w->b, srq, 0, 8, i);
    OK(dat_srq_set_lw(srq, 3));
    expect_nothing(w->b.async);
    for (uint64_t i = 0; i < 2; i++) {
        post_send(&w->a, 0, 8, i);
        expect_dto(&w->b, i, DAT_DTO_SUCCESS);
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
    }
    expect_low(&w->b, srq);      /* at the second: 2 are left */
    expect_nothing(w->b.async);  /* once for each time that it is armed */
    OK(dat_srq_set_lw(srq, 8));
    expect_low(&w->b, srq);
    IS(DAT_INVALID_PARAMETER, dat_srq_set_lw(srq, 9));
    free_srq(w, srq);
}

/* -- RMRs and addresses ----------------------------------------------------------------------- */

static DAT_RMR_CONTEXT bind_rmr(struct side *s, DAT_RMR_HANDLE rmr, size_t at, uint32_t len,
                                DAT_MEM_PRIV_FLAGS priv, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(s, at, len);
    DAT_RMR_COOKIE c = { .as_64 = n };
    DAT_RMR_CONTEXT key = 0;
    DAT_EVENT e;

    OK(dat_rmr_bind(rmr, s->lmr, &t, priv, DAT_VA_TYPE_VA, s->ep, c, DAT_COMPLETION_DEFAULT_FLAG,
                    &key));
    e = next_event(s->dto);
    assert_int_equal(e.event_number, DAT_RMR_BIND_COMPLETION_EVENT);
    assert_ptr_equal(e.event_data.rmr_completion_event_data.rmr_handle, rmr);
    assert_int_equal(e.event_data.rmr_completion_event_data.user_cookie.as_64, n);
    assert_int_equal(e.event_data.rmr_completion_event_data.status, DAT_DTO_SUCCESS);
    return key;
}

static void write_to(struct world *w, DAT_RMR_TRIPLET r, DAT_DTO_COMPLETION_STATUS status)
{
    DAT_LMR_TRIPLET t = seg(&w->a, 0, r.segment_length);

    OK(dat_ep_post_rdma_write(w->a.ep, 1, &t, cookie(1), &r, DAT_COMPLETION_DEFAULT_FLAG));
    expect_dto(&w->a, 1, status);
    state_of(&w->b);             /* takes the target's lock, which orders the write for TSan */
}

static void reconnect(struct world *w)
{
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_reset(w->a.ep));
    OK(dat_ep_reset(w->b.ep));
    connect_pair(w);
}

static void rmr_covers_its_binding(void **state)
{
    struct world *w = *state;
    DAT_RMR_TRIPLET r = rseg(&w->b, 4096, 64);
    DAT_RMR_CONTEXT old;
    DAT_RMR_HANDLE rmr;

    connect_pair(w);
    memset(w->a.buf, 0x5a, 4096);
    OK(dat_rmr_create(w->b.pz, &rmr));
    old = r.rmr_context = bind_rmr(&w->b, rmr, 4096, 64, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, 7);
    write_to(w, r, DAT_DTO_SUCCESS);
    assert_int_equal(w->b.buf[4096 + 63], 0x5a);
    IS(DAT_INVALID_STATE, dat_lmr_free(w->b.lmr));
    r.virtual_address++;
    write_to(w, r, DAT_DTO_ERR_REMOTE_ACCESS);       /* one byte outside the binding */
    reconnect(w);
    r = rseg(&w->b, 8192, 64);
    r.rmr_context = bind_rmr(&w->b, rmr, 8192, 64, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, 8);
    assert_int_not_equal(r.rmr_context, old);
    write_to(w, r, DAT_DTO_SUCCESS);
    r = rseg(&w->b, 4096, 64);
    r.rmr_context = old;
    write_to(w, r, DAT_DTO_ERR_REMOTE_ACCESS);       /* the old context has ended */
    reconnect(w);
    OK(dat_rmr_free(rmr));
}

static void rmr_needs_rights(void **state)
{
    struct world *w = *state;
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, 64);
    DAT_LMR_TRIPLET t = seg(&w->b, BUF - 32, 64);
    DAT_RMR_COOKIE c = { .as_64 = 1 };
    DAT_RMR_CONTEXT key;
    DAT_RMR_HANDLE rmr;

    OK(dat_rmr_create(w->b.pz, &rmr));
    t.segment_length = 16;
    IS(DAT_INVALID_STATE, dat_rmr_bind(rmr, w->b.lmr, &t, DAT_MEM_PRIV_REMOTE_READ_FLAG,
                                       DAT_VA_TYPE_VA, w->b.ep, c, DAT_COMPLETION_DEFAULT_FLAG,
                                       &key));       /* not connected */
    connect_pair(w);
    t.segment_length = 64;
    IS(DAT_PROTECTION_VIOLATION, dat_rmr_bind(rmr, w->b.lmr, &t, DAT_MEM_PRIV_REMOTE_READ_FLAG,
                                              DAT_VA_TYPE_VA, w->b.ep, c,
                                              DAT_COMPLETION_DEFAULT_FLAG, &key));
    r.rmr_context = bind_rmr(&w->b, rmr, 0, 64, DAT_MEM_PRIV_REMOTE_READ_FLAG, 2);
    write_to(w, r, DAT_DTO_ERR_REMOTE_ACCESS);
    reconnect(w);
    r.rmr_context = bind_rmr(&w->b, rmr, 0, 0, DAT_MEM_PRIV_NONE_FLAG, 3);
    assert_int_equal(r.rmr_context, 0);              /* unbound */
    OK(dat_rmr_free(rmr));
}

static void zero_based_addresses(void **state)
{
    struct world *w = *state;
    DAT_REGION_DESCRIPTION region = { .for_va = w->b.buf + 4096 };
    DAT_RMR_TRIPLET r = { .virtual_address = 100, .segment_length = 8 };
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_VLEN len;
    DAT_VADDR addr;

    connect_pair(w);
    OK(dat_lmr_create(w->b.ia, DAT_MEM_TYPE_VIRTUAL, region, 4096, w->b.pz, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_ZB, &lmr, &local, &r.rmr_context, &len, &addr));
    assert_int_equal(addr, 0);
    memset(w->a.buf, 0x66, 8);
    write_to(w, r, DAT_DTO_SUCCESS);
    assert_int_equal(w->b.buf[4096 + 100], 0x66);
    assert_int_equal(w->b.buf[4096 + 107], 0x66);
    assert_int_equal(w->b.buf[4096 + 108], 0);
    OK(dat_lmr_free(lmr));
}

/* -- extended operations ---------------------------------------------------------------------- */

static DAT_IB_EXTENSION_EVENT_DATA expect_ext(struct side *s, uint64_t n, DAT_IB_EXT_TYPE type)
{
    DAT_EVENT e = next_event(s->dto);
    DAT_IB_EXTENSION_EVENT_DATA ext;

    memcpy(&ext, e.event_extension_data, sizeof(ext));
    assert_int_equal(e.event_number, DAT_IB_DTO_EVENT);
    assert_int_equal(e.event_data.dto_completion_event_data.user_cookie.as_64, n);
    assert_int_equal(e.event_data.dto_completion_event_data.status, DAT_DTO_SUCCESS);
    assert_int_equal(ext.type, type);
    return ext;
}

static void write_with_immediate_data(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET t = seg(&w->a, 0, 1000);
    DAT_RMR_TRIPLET r = rseg(&w->b, 5, 1000);

    connect_pair(w);
    memset(w->a.buf, 0x42, 1000);
    OK(dat_ib_post_rdma_write_immed(w->a.ep, 1, &t, cookie(3), &r, 0xfeedbeef,
                                    DAT_COMPLETION_DEFAULT_FLAG));
    post_send(&w->a, 0, 16, 4);
    expect_nothing(w->a.dto);    /* both wait for receives, in order */
    post_recv(&w->b, BUF / 2, 64, 8);
    assert_int_equal(expect_ext(&w->b, 8, DAT_IB_RDMA_WRITE_IMMED_DATA).val.immed.data,
                     0xfeedbeef);
    assert_int_equal(w->b.buf[5 + 999], 0x42);
    post_recv(&w->b, BUF / 2, 64, 9);
    expect_dto(&w->b, 9, DAT_DTO_SUCCESS);
    expect_ext(&w->a, 3, DAT_IB_RDMA_WRITE_IMMED);
    expect_dto(&w->a, 4, DAT_DTO_SUCCESS);
}

/* Registers memory with the right for atomic operations. */
static DAT_RMR_TRIPLET atomic_memory(struct side *s, DAT_LMR_HANDLE *lmr_p)
{
    DAT_REGION_DESCRIPTION region = { .for_va = s->buf };
    DAT_RMR_TRIPLET r = { .virtual_address = (DAT_VADDR)(uintptr_t)s->buf, .segment_length = 8 };
    DAT_LMR_CONTEXT local;
    DAT_VLEN len;
    DAT_VADDR addr;
    int priv = DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;

    OK(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, 4096, s->pz, (DAT_MEM_PRIV_FLAGS)priv,
                      DAT_VA_TYPE_VA, lmr_p, &local, &r.rmr_context, &len, &addr));
    return r;
}

static void atomic_operations(void **state)
{
    struct world *w = *state;
    DAT_LMR_HANDLE lmr;
    DAT_RMR_TRIPLET r = atomic_memory(&w->b, &lmr);
    DAT_LMR_TRIPLET t = seg(&w->a, 8, 8);
    _Atomic uint64_t *there = (_Atomic uint64_t *)(void *)w->b.buf;
    uint64_t *here = (uint64_t *)(void *)(w->a.buf + 8);

    connect_pair(w);
    *there = 40;
    OK(dat_ib_post_fetch_and_add(w->a.ep, 2, &t, cookie(1), &r, DAT_COMPLETION_DEFAULT_FLAG));
    expect_ext(&w->a, 1, DAT_IB_FETCH_AND_ADD);
    assert_int_equal(*here, 40);
    assert_int_equal(*there, 42);
    OK(dat_ib_post_cmp_and_swap(w->a.ep, 41, 7, &t, cookie(2), &r, DAT_COMPLETION_DEFAULT_FLAG));
    expect_ext(&w->a, 2, DAT_IB_CMP_AND_SWAP);
    assert_int_equal(*here, 42);
    assert_int_equal(*there, 42);    /* it was not 41 */
    OK(dat_ib_post_cmp_and_swap(w->a.ep, 42, 7, &t, cookie(3), &r, DAT_COMPLETION_DEFAULT_FLAG));
    expect_ext(&w->a, 3, DAT_IB_CMP_AND_SWAP);
    assert_int_equal(*here, 42);
    assert_int_equal(*there, 7);
    t.segment_length = 4;
    IS(DAT_LENGTH_ERROR, dat_ib_post_fetch_and_add(w->a.ep, 2, &t, cookie(4), &r,
                                                   DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_lmr_free(lmr));
}

static void atomic_needs_right(void **state)
{
    struct world *w = *state;
    DAT_LMR_TRIPLET t = seg(&w->a, 8, 8);
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, 8);
    DAT_EVENT e;

    connect_pair(w);
    OK(dat_ib_post_fetch_and_add(w->a.ep, 2, &t, cookie(1), &r, DAT_COMPLETION_DEFAULT_FLAG));
    e = next_event(w->a.dto);
    assert_int_equal(e.event_data.dto_completion_event_data.status, DAT_DTO_ERR_REMOTE_ACCESS);
    expect_conn(&w->a, DAT_CONNECTION_EVENT_BROKEN);
}

static void unknown_extended_operation(void **state)
{
    struct world *w = *state;

    IS(DAT_NOT_IMPLEMENTED, dat_extension_op(w->a.ep, DAT_IB_UD_AH_FREE_OP));
}

/* The attributes of dat_ia_query are what dat_ep_create accepts. */
static void attributes_are_met(void **state)
{
    struct world *w = *state;
    DAT_IA_ATTR ia;
    DAT_PROVIDER_ATTR provider;
    DAT_EP_ATTR attr;
    DAT_EP_HANDLE ep;
    bool immed = false;

    memset(&ia, 0, sizeof(ia));
    OK(dat_ia_query(w->a.ia, NULL, DAT_IA_FIELD_ALL, &ia, DAT_PROVIDER_FIELD_ALL, &provider));
    assert_int_equal(ia.extension_supported, DAT_EXTENSION_IB);
    assert_int_equal(provider.srq_supported, DAT_TRUE);
    for (int i = 0; i < provider.num_provider_specific_attr; i++)
        immed |= strcmp(provider.provider_specific_attr[i].name, DAT_IB_ATTR_IMMED_DATA) == 0;
    assert_true(immed);
    memset(&attr, 0, sizeof(attr));
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_recv_dtos = attr.max_request_dtos = ia.max_dto_per_ep;
    attr.max_recv_iov = attr.max_request_iov = ia.max_iov_segments_per_dto;
    attr.max_rdma_read_in = ia.max_rdma_read_per_ep_in;
    attr.max_rdma_read_out = ia.max_rdma_read_per_ep_out;
    OK(dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, &attr, &ep));
    OK(dat_ep_free(ep));
    attr.max_recv_dtos++;
    IS(DAT_INVALID_PARAMETER,
       dat_ep_create(w->a.ia, w->a.pz, w->a.dto, w->a.dto, w->a.conn, &attr, &ep));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(srq_is_served_in_order),
        CASE(srq_posted_late_and_resized),
        CASE(srq_low_watermark),
        CASE(rmr_covers_its_binding),
        CASE(rmr_needs_rights),
        CASE(zero_based_addresses),
        CASE(write_with_immediate_data),
        CASE(atomic_operations),
        CASE(atomic_needs_right),
        CASE(unknown_extended_operation),
        CASE(attributes_are_met),
    };

    return RUN(tests);
}
