/* SPDX-License-Identifier: MIT */
#include "evd.h"

#include "ep.h"
#include "ia.h"
#include "list.h"
#include "stats.h"

enum {
    BURST = 32,              /* DTO events taken in one poll, so that other work gets its turn */
    SELDOM = 64,             /* every so many polls the three slow EVDs are looked at */
};

static void handle_dto(struct mdapl_ia *ia, const DAT_DTO_COMPLETION_EVENT_DATA *d)
{
    struct mdapl_dto *dto = d->user_cookie.as_ptr;

    mdapl_ctx_stats(ia->ctx)->dtos++;
    mdapl_ep_completed(dto, d->status, (size_t)d->transfered_length);
}

/* The EP object of a handle: events may be late, so it must still be on the list. */
static struct mdapl_ep *find_ep(struct mdapl_ia *ia, DAT_EP_HANDLE handle)
{
    MDAPL_LIST_EACH(pos, &ia->eps) {
        struct mdapl_ep *ep = MDAPL_OF(pos, struct mdapl_ep, link);

        if (ep->handle == handle)
            return ep;
    }
    return NULL;
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

static int poll_slow(struct mdapl_ia *ia)
{
    return drain(ia, ia->conn_evd, handle_conn) + drain(ia, ia->cr_evd, handle_cr)
           + drain(ia, ia->async_evd, handle_async);
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
    if (all || ++ia->rounds % SELDOM == 0)
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

    ia->rounds = SELDOM - 1;     /* whatever woke us or did not: look at everything next */
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
