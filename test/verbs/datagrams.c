/* SPDX-License-Identifier: MIT */
/*
 * Unreliable datagrams between two QPs of one process (InfiniBand specification, volume 1, 9.8.3
 * and 11.4.1.2), by which UCX wires its connections: the rules of the stand-in for verbs (hv.h),
 * checked there and on Soft-RoCE. Uses the first device.
 */
#include "unit.h"

#include <infiniband/verbs.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum { GRH = 40, BYTES = 100, DEPTH = 4, QKEY = 0x1234567, LIMIT_S = 20 };

static struct {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *sent, *received;
    struct ibv_qp *from, *to;
    struct ibv_ah *ah;
    struct ibv_mr *mr;
    struct {
        uint8_t out[BYTES], in[2][GRH + BYTES];
    } memory;
} own;

static struct ibv_qp *make_qp(void)
{
    struct ibv_qp_init_attr init = {
        .send_cq = own.sent, .recv_cq = own.received, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
    struct ibv_qp *qp = ibv_create_qp(own.pd, &init);

    assert_non_null(qp);
    assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT
                                                  | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_RTR;
    assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

static int set_up(void **state)
{
    struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 1 };
    struct ibv_device **devices = ibv_get_device_list(NULL);

    (void)state;
    assert_non_null(devices[0]);
    own.context = ibv_open_device(devices[0]);
    assert_non_null(own.context);
    ibv_free_device_list(devices);
    own.pd = ibv_alloc_pd(own.context);
    own.sent = ibv_create_cq(own.context, 2 * DEPTH, NULL, NULL, 0);
    own.received = ibv_create_cq(own.context, 2 * DEPTH, NULL, NULL, 0);
    own.mr = ibv_reg_mr(own.pd, &own.memory, sizeof(own.memory), IBV_ACCESS_LOCAL_WRITE);
    own.from = make_qp();
    own.to = make_qp();
    assert_int_equal(ibv_query_gid(own.context, 1, 0, &attr.grh.dgid), 0);
    own.ah = ibv_create_ah(own.pd, &attr);
    assert_non_null(own.ah);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ibv_destroy_ah(own.ah);
    ibv_destroy_qp(own.from);
    ibv_destroy_qp(own.to);
    ibv_dereg_mr(own.mr);
    ibv_destroy_cq(own.sent);
    ibv_destroy_cq(own.received);
    ibv_dealloc_pd(own.pd);
    return ibv_close_device(own.context);
}

static struct ibv_wc next(struct ibv_cq *cq)
{
    time_t end = time(NULL) + LIMIT_S;
    struct ibv_wc wc;

    while (ibv_poll_cq(cq, 1, &wc) == 0) {
        assert_true(time(NULL) < end);
        sched_yield();
    }
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    return wc;
}

/* A datagram of this byte, which has been transmitted when this returns. */
static void send_byte(uint8_t byte, uint32_t qpn, uint32_t qkey)
{
    struct ibv_sge sge = { (uintptr_t)own.memory.out, BYTES, own.mr->lkey };
    struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };

    memset(own.memory.out, byte, BYTES);
    wr.wr.ud.ah = own.ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
    assert_int_equal(ibv_post_send(own.from, &wr, &bad), 0);
    next(own.sent);
}

static void post_receive(struct ibv_qp *qp, int i)
{
    struct ibv_sge sge = { (uintptr_t)own.memory.in[i], GRH + BYTES, own.mr->lkey };
    struct ibv_recv_wr *bad, wr = { .wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1 };

    memset(own.memory.in[i], 0, GRH + BYTES);
    assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}

/* The next datagram is of this byte, in this receive, behind the place of a GRH. */
static void check_received(uint8_t byte, int i)
{
    struct ibv_wc wc = next(own.received);

    assert_int_equal(wc.wr_id, i);
    assert_int_equal(wc.byte_len, GRH + BYTES);
    assert_int_equal(wc.src_qp, own.from->qp_num);
    for (int at = 0; at < BYTES; at++)
        assert_int_equal(own.memory.in[i][GRH + at], byte);
}

static void a_datagram_arrives(void **state)
{
    (void)state;
    post_receive(own.to, 0);
    post_receive(own.to, 1);
    send_byte(1, own.to->qp_num, QKEY);
    send_byte(2, own.to->qp_num, QKEY);
    check_received(1, 0);
    check_received(2, 1);
}

/* The one behind it is in the receive that it did not take. */
static void another_key_is_lost(void **state)
{
    (void)state;
    post_receive(own.to, 0);
    send_byte(1, own.to->qp_num, QKEY + 1);
    send_byte(2, own.to->qp_num, QKEY);
    check_received(2, 0);
}

static void without_a_receive_it_is_lost(void **state)
{
    (void)state;
    send_byte(1, own.to->qp_num, QKEY);
    post_receive(own.from, 1);
    send_byte(2, own.from->qp_num, QKEY);
    check_received(2, 1);        /* so the first one has been, too, before there is a receive */
    post_receive(own.to, 0);
    send_byte(3, own.to->qp_num, QKEY);
    check_received(3, 0);
}

static void to_nobody_it_is_lost(void **state)
{
    (void)state;
    post_receive(own.to, 0);
    send_byte(1, own.to->qp_num + 1, QKEY);
    send_byte(2, own.to->qp_num, QKEY);
    check_received(2, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_datagram_arrives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_key_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_receive_it_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(to_nobody_it_is_lost, set_up, tear_down),
    };

    return RUN(tests);
}
