/* SPDX-License-Identifier: MIT */
#include "world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

DAT_EVENT next_event(DAT_EVD_HANDLE evd)
{
    DAT_EVENT e;
    DAT_COUNT more;

    memset(&e, 0, sizeof(e));
    OK(dat_evd_wait(evd, ATMOST, 1, &e, &more));
    return e;
}

void expect_conn(struct side *s, DAT_EVENT_NUMBER number)
{
    DAT_EVENT e = next_event(s->conn);

    assert_int_equal(e.event_number, number);
    assert_ptr_equal(e.event_data.connect_event_data.ep_handle, s->ep);
}

void expect_dto(struct side *s, uint64_t cookie, DAT_DTO_COMPLETION_STATUS status)
{
    DAT_EVENT e = next_event(s->dto);

    assert_int_equal(e.event_number, DAT_DTO_COMPLETION_EVENT);
    assert_int_equal(e.event_data.dto_completion_event_data.user_cookie.as_64, cookie);
    assert_int_equal(e.event_data.dto_completion_event_data.status, status);
}

void expect_nothing(DAT_EVD_HANDLE evd)
{
    DAT_EVENT e;
    DAT_COUNT more;

    IS(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evd, SEC / 50, 1, &e, &more));
}

DAT_LMR_TRIPLET seg(const struct side *s, size_t at, uint32_t len)
{
    return (DAT_LMR_TRIPLET){ (DAT_VADDR)(uintptr_t)(s->buf + at), len, s->local };
}

DAT_RMR_TRIPLET rseg(const struct side *s, size_t at, uint32_t len)
{
    return (DAT_RMR_TRIPLET){ (DAT_VADDR)(uintptr_t)(s->buf + at), len, s->key };
}

DAT_DTO_COOKIE cookie(uint64_t n)
{
    return (DAT_DTO_COOKIE){ .as_64 = n };
}

void post_recv(struct side *s, size_t at, uint32_t len, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(s, at, len);

    OK(dat_ep_post_recv(s->ep, 1, &t, cookie(n), DAT_COMPLETION_DEFAULT_FLAG));
}

void post_send(struct side *s, size_t at, uint32_t len, uint64_t n)
{
    DAT_LMR_TRIPLET t = seg(s, at, len);

    OK(dat_ep_post_send(s->ep, 1, &t, cookie(n), DAT_COMPLETION_DEFAULT_FLAG));
}

void make_ep(struct side *s)
{
    OK(dat_ep_create(s->ia, s->pz, s->dto, s->dto, s->conn, NULL, &s->ep));
}

void register_buf(struct side *s, DAT_LMR_HANDLE *lmr, DAT_LMR_CONTEXT *local,
                  DAT_RMR_CONTEXT *key)
{
    DAT_REGION_DESCRIPTION region = { .for_va = s->buf };
    DAT_VLEN len;
    DAT_VADDR addr;

    OK(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, BUF, s->pz, DAT_MEM_PRIV_ALL_FLAG,
                      DAT_VA_TYPE_VA, lmr, local, key, &len, &addr));
}

void open_side(struct side *s, const char *name)
{
    s->async = DAT_HANDLE_NULL;
    OK(dat_ia_open((DAT_NAME_PTR)(uintptr_t)name, 8, &s->async, &s->ia));
    OK(dat_pz_create(s->ia, &s->pz));
    OK(dat_evd_create(s->ia, QLEN, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &s->dto));
    OK(dat_evd_create(s->ia, QLEN, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &s->conn));
    OK(dat_evd_create(s->ia, QLEN, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &s->cr));
    s->buf = aligned_alloc(4096, BUF);
    memset(s->buf, 0, BUF);
    register_buf(s, &s->lmr, &s->local, &s->key);
    make_ep(s);
}

ssize_t control(unsigned k, const char *command, char *reply)
{
    struct sockaddr_un un;
    socklen_t len = softdat_control_name(&un, getpid(), k);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    ssize_t n = -1;

    if (connect(fd, (struct sockaddr *)&un, len) == 0 && send(fd, command, strlen(command), 0) > 0)
        n = recv(fd, reply, SOFTDAT_CONTROL_MAX, 0);
    close(fd);
    reply[n > 0 ? n : 0] = '\0';
    return n;
}

void close_side(struct side *s)
{
    OK(dat_ep_free(s->ep));
    OK(dat_lmr_free(s->lmr));
    OK(dat_evd_free(s->dto));
    OK(dat_evd_free(s->conn));
    OK(dat_evd_free(s->cr));
    OK(dat_pz_free(s->pz));
    OK(dat_ia_close(s->ia, DAT_CLOSE_GRACEFUL_FLAG));    /* graceful: all objects are freed */
    free(s->buf);
}

int set_up(void **state)
{
    const char *name = *state ? *state : "soft0";
    struct world *w = calloc(1, sizeof(*w));
    static DAT_IA_ATTR attr;

    open_side(&w->a, name);
    open_side(&w->b, name);
    OK(dat_psp_create_any(w->b.ia, &w->qual, w->b.cr, DAT_PSP_CONSUMER_FLAG, &w->psp));
    OK(dat_ia_query(w->b.ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    w->addr = (DAT_SOCK_ADDR *)attr.ia_address_ptr;
    *state = w;
    return 0;
}

int tear_down(void **state)
{
    struct world *w = *state;

    OK(dat_psp_free(w->psp));
    close_side(&w->a);
    close_side(&w->b);
    free(w);
    return 0;
}

DAT_CR_HANDLE request(struct world *w, const void *priv, int len)
{
    DAT_EVENT e;

    OK(dat_ep_connect(w->a.ep, w->addr, w->qual, ATMOST, len, (DAT_PVOID)priv, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    e = next_event(w->b.cr);
    assert_int_equal(e.event_number, DAT_CONNECTION_REQUEST_EVENT);
    return e.event_data.cr_arrival_event_data.cr_handle;
}

void connect_pair(struct world *w)
{
    OK(dat_cr_accept(request(w, NULL, 0), w->b.ep, 0, NULL));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_ESTABLISHED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_ESTABLISHED);
}

int raw_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    return fd;
}

void raw_connect(int fd, const void *addr, DAT_CONN_QUAL qual)
{
    struct sockaddr_in to;

    memcpy(&to, addr, sizeof(to));
    to.sin_port = htons((uint16_t)qual);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
}

DAT_EP_STATE state_of(struct side *s)
{
    DAT_EP_STATE st;
    DAT_BOOLEAN r, q;

    OK(dat_ep_get_status(s->ep, &st, &r, &q));
    return st;
}
