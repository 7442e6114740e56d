/* SPDX-License-Identifier: MIT */
/*
 * 1000 connections between two adapters of one process, which thus has both ends: what an idle one
 * costs in memory and descriptors, and that the helper threads do nothing for it.
 */
#include "peer.h"
#include "syscalls.h"
#include "threads.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { N = 1000, ENDS = 2 * N };

enum {
    MEMORY_MAX = 4096,           /* bytes of an idle end, without the segment */
    SPARE = 100,                 /* descriptors of everything else, at most */
    WAITED = 3,                  /* event queues on which the test waits: a descriptor each */
    EVENTS = 3 * N,              /* in them */
};

/* The connections, beside the one EP of each side. */
struct many {
    struct world *w;
    DAT_EVD_HANDLE conn[2], cr;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;
    DAT_EP_HANDLE ep[2][N];      /* 0: active; 1: passive */
};

static struct side *side(struct many *m, int i)
{
    return i == 0 ? &m->w->a : &m->w->b;
}

static void make_many(struct many *m)
{
    DAT_EP_ATTR attr = {
        .service_type = DAT_SERVICE_TYPE_RC, .max_message_size = 4096, .max_rdma_size = 4096,
        .max_recv_dtos = 64, .max_request_dtos = 64, .max_recv_iov = 1, .max_request_iov = 1,
        .max_rdma_read_iov = 1, .max_rdma_write_iov = 1,
    };

    for (int i = 0; i < 2; i++) {
        struct side *s = side(m, i);

        OK(dat_evd_create(s->ia, N, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &m->conn[i]));
        for (int k = 0; k < N; k++)
            OK(dat_ep_create(s->ia, s->pz, s->dto, s->dto, m->conn[i], &attr, &m->ep[i][k]));
    }
    OK(dat_evd_create(m->w->b.ia, N, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &m->cr));
    OK(dat_psp_create_any(m->w->b.ia, &m->qual, m->cr, DAT_PSP_CONSUMER_FLAG, &m->psp));
}

static void expect_all(struct many *m, DAT_EVENT_NUMBER number)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < N; k++)
            assert_int_equal(next_event(m->conn[i]).event_number, number);
}

static void connect_many(struct many *m)
{
    for (int k = 0; k < N; k++)
        OK(dat_ep_connect(m->ep[0][k], m->w->addr, m->qual, ATMOST, 0, NULL, DAT_QOS_BEST_EFFORT,
                          DAT_CONNECT_DEFAULT_FLAG));
    for (int k = 0; k < N; k++) {
        DAT_EVENT e = next_event(m->cr);

        assert_int_equal(e.event_number, DAT_CONNECTION_REQUEST_EVENT);
        OK(dat_cr_accept(e.event_data.cr_arrival_event_data.cr_handle, m->ep[1][k], 0, NULL));
    }
    expect_all(m, DAT_CONNECTION_EVENT_ESTABLISHED);
}

static void free_many(struct many *m)
{
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < N; k++)
            OK(dat_ep_free(m->ep[i][k]));
        OK(dat_evd_free(m->conn[i]));
    }
    OK(dat_psp_free(m->psp));
    OK(dat_evd_free(m->cr));
    free(m);
}

static struct many *start_many(struct world *w)
{
    struct rlimit limit;
    struct many *m;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < ENDS + SPARE)
        SKIP_TEST("the hard limit of descriptors is too low for 1000 connections");
    m = calloc(1, sizeof(*m));
    m->w = w;
    return m;
}

/* -- what they hold --------------------------------------------------------------------------- */

/* Private memory and page tables of this process, bytes. A segment is shared memory. */
static size_t private_memory(void)
{
    return 1024 * (size_t)(thread_status(NULL, "RssAnon:", 10)
                           + thread_status(NULL, "VmPTE:", 10));
}

static void memory_and_descriptors(void **state)
{
    struct many *m = start_many(*state);
    size_t before, after;
    int descriptors;

    memset(m->ep, 1, sizeof(m->ep));     /* its pages are there before */
    before = private_memory();
    make_many(m);
    descriptors = open_descriptors();
    connect_many(m);
    assert_in_range(open_descriptors() - descriptors, ENDS, ENDS + WAITED);
    after = private_memory();
    free_many(m);
    if (SANITIZED)
        SKIP_TEST("a sanitizer has memory of its own for each allocation");
    assert_true(after - before <= (size_t)ENDS * MEMORY_MAX + EVENTS * sizeof(DAT_EVENT));
}

/* -- what the helper threads do --------------------------------------------------------------- */

enum { CALLS_MAX = 32 };         /* system calls of a message, at most; one for each connection
                                    would be a thousand */

static void add_switches(const char *tid, void *arg)
{
    *(unsigned long long *)arg += thread_status(tid, "voluntary_ctxt_switches", 10);
}

/* No thread wakes up for idle connections, and the costs of a message on one more connection, which
 * the helper of the target receives, do not grow with their number. */
static void helper_ignores_idle_connections(void **state)
{
    struct world *w = *state;
    unsigned long long before = 0, after = 0;
    struct many *m;

    NEEDS_NO_OTHER_THREAD();
    m = start_many(w);
    make_many(m);
    connect_many(m);
    connect_pair(w);
    for (uint32_t i = 0; i < QLEN; i++)
        post_recv(&w->b, 0, 8, i);
    expect_no_switches();
    each_other_thread(add_switches, &before);
    syscalls_reset();
    for (uint32_t i = 0; i < QLEN; i++) {
        post_send(&w->a, 0, 8, i);
        expect_dto(&w->a, i, DAT_DTO_SUCCESS);
    }
    assert_in_range(syscalls_total(), QLEN, QLEN * CALLS_MAX);
    each_other_thread(add_switches, &after);
    assert_in_range(after - before, 0, QLEN * CALLS_MAX);
    expect_no_switches();
    for (uint32_t i = 0; i < QLEN; i++)
        expect_dto(&w->b, i, DAT_DTO_SUCCESS);
    free_many(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(helper_ignores_idle_connections),
        CASE(memory_and_descriptors),
    };

    return RUN(tests);
}
