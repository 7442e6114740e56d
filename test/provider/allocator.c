/* SPDX-License-Identifier: MIT */
/*
 * A program whose free() calls the provider, like a registration cache that deregisters freed
 * memory. free() may run on any thread, so the provider must not call it while it holds a lock.
 */
#include "softdat.h"
#include "world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { INTERPOSED = 0 };         /* a sanitizer has an allocator of its own */
#else
enum { INTERPOSED = 1 };
void __libc_free(void *p);
static void call_provider(void);

void free(void *p)
{
    call_provider();
    __libc_free(p);
}
#endif

static struct world *_Atomic active;

/* Takes the locks of both adapters, unless this is a nested call. */
__attribute__((unused)) static void call_provider(void)
{
    static _Thread_local bool inside;
    struct world *w = active;
    DAT_BOOLEAN r, q;
    DAT_EP_STATE st;

    if (!w || inside)
        return;
    inside = true;
    dat_ep_get_status(w->a.ep, &st, &r, &q);
    dat_ep_get_status(w->b.ep, &st, &r, &q);
    inside = false;
}

static void work(struct world *w)
{
    DAT_LMR_TRIPLET t = seg(&w->a, 0, BUF);
    DAT_RMR_TRIPLET r = rseg(&w->b, 0, BUF);
    DAT_EVD_HANDLE evd;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;

    connect_pair(w);
    post_send(&w->a, 0, 4096, 1);                /* held until a receive is posted */
    expect_nothing(w->b.dto);
    post_recv(&w->b, 0, 4096, 2);
    expect_dto(&w->b, 2, DAT_DTO_SUCCESS);
    expect_dto(&w->a, 1, DAT_DTO_SUCCESS);
    OK(dat_ep_post_rdma_read(w->a.ep, 1, &t, cookie(3), &r, DAT_COMPLETION_DEFAULT_FLAG));
    usleep(20000);                               /* lets the helper threads run */
    expect_dto(&w->a, 3, DAT_DTO_SUCCESS);
    OK(dat_evd_create(w->a.ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &evd));
    OK(dat_evd_resize(evd, 100));
    OK(dat_evd_free(evd));
    OK(dat_psp_create_any(w->a.ia, &qual, w->a.cr, DAT_PSP_CONSUMER_FLAG, &psp));
    OK(dat_psp_free(psp));
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    usleep(20000);
    OK(dat_ep_reset(w->a.ep));
    OK(dat_ep_reset(w->b.ep));
}

enum { COPYING = 1, WITHDRAWN = 2 };     /* the consent to direct transfers: PROTOCOL */

/* Plays the target: it copies for a while after the requester has withdrawn its consent. */
static void *copy(void *arg)
{
    _Atomic uint32_t *consent = arg;

    while (!(atomic_load(consent) & WITHDRAWN))
        usleep(1000);
    usleep(100000);
    atomic_fetch_and(consent, ~(uint32_t)COPYING);
    return NULL;
}

/* The requester waits for the end of the copy and checks whether the target is stopped or dead. */
static void withdraw(struct world *w)
{
    struct softdat_conn *c;
    bool shared;
    pthread_t target;

    connect_pair(w);
    c = ((struct softdat_ep *)w->a.ep)->conn;
    shared = c->shared.seg != NULL;
    if (shared) {
        atomic_fetch_or(&c->shared.my_access->consent, COPYING);
        assert_int_equal(pthread_create(&target, NULL, copy, &c->shared.my_access->consent), 0);
    }
    OK(dat_ep_disconnect(w->a.ep, DAT_CLOSE_ABRUPT_FLAG));
    expect_conn(&w->a, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect_conn(&w->b, DAT_CONNECTION_EVENT_DISCONNECTED);
    if (shared)
        assert_int_equal(pthread_join(target, NULL), 0);
}

static void free_calls_the_provider(void **state)
{
    struct world *w = *state;

    if (!INTERPOSED)
        SKIP_TEST("a sanitizer's allocator cannot be replaced");
    alarm(60);                   /* a deadlock ends this program */
    active = w;
    for (int i = 0; i < 5; i++)
        work(w);
    withdraw(w);
    active = NULL;
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(free_calls_the_provider),
    };

    return RUN(tests);
}
