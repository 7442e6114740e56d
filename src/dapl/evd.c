/* SPDX-License-Identifier: MIT */
#include "evd.h"

#include "ep.h"
#include "ia.h"
#include "stats.h"

enum {
    BURST = 32,              /* DTO events taken in one poll, so that other work gets its turn */
};

static void handle_dto(struct mdapl_ia *ia, const DAT_DTO_COMPLETION_EVENT_DATA *d)
{
    struct mdapl_dto *dto = d->user_cookie.as_ptr;

    mdapl_ctx_stats(ia->ctx)->dtos++;
    mdapl_ep_completed(dto, d->status, (size_t)d->transfered_length);
}

/* The EP object of a handle. Events may be later than the EP's end, so the handle is looked up and
 * not asked for its context. */
static struct mdapl_ep *find_ep(struct mdapl_ia *ia, DAT_EP_HANDLE handle)
{
    uint64_t key = (uint64_t)(uintptr_t)handle;
    struct mdapl_tree_node *node = mdapl_tree_upto(&ia->by_handle, key);

    return node && node->key == key ? MDAPL_OF(node, struct mdapl_ep, by_handle) : NULL;
}

static void handle_cr(struct mdapl_ia *ia, const DAT_EVENT *e)
{
    ia->hooks.cr(ia->hooks.arg, ia, e->event_data.cr_arrival_event_data.cr_handle);
}

static void handle_conn(struct mdapl_ia *ia, const DAT_EVENT *e)
{
    const DAT_CONNECTION_EVENT_DATA *d = &e->event_data.connect_event_data;
    struct mdapl_ep *ep = find_ep(ia, d->ep_handle);

    if (ep)
        ia->hooks.conn(ia->hooks.arg, ep, e->event_number, d->private_data,
                       d->private_data && d->private_data_size > 0 ? (size_t)d->private_data_size
                                                                   : 0);
}

static void handle_async(struct mdapl_ia *ia, const DAT_EVENT *e)
{
    DAT_HANDLE h = e->event_data.asynch_error_event_data.dat_handle;

    ia->hooks.async(ia->hooks.arg, ia, h, find_ep(ia, (DAT_EP_HANDLE)h), e->event_number);
}

static int drain(struct mdapl_ia *ia, DAT_EVD_HANDLE evd,
                 void (*handle)(struct mdapl_ia *, const DAT_EVENT *))
{
    DAT_EVENT event;
    int n = 0;

    while (n < BURST && ia->dat->dat_evd_dequeue(evd, &event) == DAT_SUCCESS) {
        handle(ia, &event);
        n++;
    }
    return n;
}

/* All requests that there are: what cm.c does next is to know of them. */
static int poll_slow(struct mdapl_ia *ia)
{
    int n = drain(ia, ia->conn_evd, handle_conn), got;

    do {
        got = drain(ia, ia->cr_evd, handle_cr);
        n += got;
    } while (got == BURST);
    return n + drain(ia, ia->async_evd, handle_async);
}

static int poll_dto(struct mdapl_ia *ia, DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    int n = 0;

    while (n < BURST && ia->dat->dat_evd_dequeue(evd, &event) == DAT_SUCCESS) {
        handle_dto(ia, &event.event_data.dto_completion_event_data);
        n++;
    }
    return n;
}

int mdapl_evd_poll(struct mdapl_ia *ia, bool all)
{
    int n = 0;

    if (ia->has_slept_on) {
        ia->has_slept_on = false;
        handle_dto(ia, &ia->slept_on.event_data.dto_completion_event_data);
        n++;
    }
    for (int i = 0; i < ia->n_dto; i++)
        n += poll_dto(ia, ia->dto[i].handle);
    if (all)
        n += poll_slow(ia);
    return n;
}

/* -- sleeping --------------------------------------------------------------------------------- */

static bool attach(struct mdapl_ia *ia, DAT_CNO_HANDLE cno)
{
    bool all = ia->dat->dat_evd_modify_cno(ia->conn_evd, cno) == DAT_SUCCESS;

    all = ia->dat->dat_evd_modify_cno(ia->cr_evd, cno) == DAT_SUCCESS && all;
    for (int i = 0; i < ia->n_dto; i++)
        all = ia->dat->dat_evd_modify_cno(ia->dto[i].handle, cno) == DAT_SUCCESS && all;
    ia->n_attached = ia->n_dto;
    return all;
}

bool mdapl_evd_all_wake(struct mdapl_ia *ia, bool wanted)
{
    wanted = wanted || ia->n_dto > 1;    /* a sleep without it is on one queue */
    if (wanted == ia->all_wake && (!wanted || ia->n_attached == ia->n_dto))
        return true;
    if (!ia->cno && ia->dat->dat_cno_create(ia->handle, DAT_OS_WAIT_PROXY_AGENT_NULL, &ia->cno)
                        != DAT_SUCCESS)
        return false;
    ia->all_wake = wanted && attach(ia, ia->cno);
    if (!ia->all_wake)           /* all of them or none */
        attach(ia, DAT_HANDLE_NULL);
    return ia->all_wake == wanted;
}

void mdapl_evd_wait(struct mdapl_ia *ia, uint64_t ns)
{
    DAT_EVD_HANDLE which;
    DAT_COUNT more;
    DAT_TIMEOUT us = (DAT_TIMEOUT)(ns / 1000);

    if (ia->has_slept_on || us == 0)
        return;
    if (ia->all_wake)
        ia->dat->dat_cno_wait(ia->cno, us, &which);
    else if (ia->dat->dat_evd_wait(ia->dto[0].handle, us, 1, &ia->slept_on, &more) == DAT_SUCCESS)
        ia->has_slept_on = true;
}

/* -- several threads -------------------------------------------------------------------------- */

int mdapl_evd_serve(struct mdapl_ia *ia, enum mdapl_evd_queue queue, uint64_t ns,
                    pthread_mutex_t *lock)
{
    DAT_EVD_HANDLE evd = queue == MDAPL_EVD_CR ? ia->cr_evd : ia->conn_evd;
    DAT_TIMEOUT us = ns == UINT64_MAX ? DAT_TIMEOUT_INFINITE : (DAT_TIMEOUT)(ns / 1000);
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN ret = ia->dat->dat_evd_wait(evd, us, 1, &event, &more);

    if (ret != DAT_SUCCESS)
        return DAT_GET_TYPE(ret) == DAT_TIMEOUT_EXPIRED
               || DAT_GET_TYPE(ret) == DAT_INTERRUPTED_CALL ? 0 : -1;
    pthread_mutex_lock(lock);
    if (queue == MDAPL_EVD_CR)
        handle_cr(ia, &event);
    else
        handle_conn(ia, &event);
    pthread_mutex_unlock(lock);
    return 1;
}

void mdapl_evd_shut(struct mdapl_ia *ia)
{
    ia->dat->dat_evd_set_unwaitable(ia->cr_evd);
}
