/* SPDX-License-Identifier: MIT */
#include "ia.h"

#include "channel.h"
#include "dat_path_extensions.h"
#include "ep.h"
#include "stats.h"

#include <string.h>

enum {
    BURST = 32,              /* events of a queue in one poll at most: other work is not delayed */
};

struct queue {
    DAT_EVD_HANDLE evd;
    void (*handle)(struct mdapl_dapl_ia *ia, const DAT_EVENT *event);
};

static void handle_dto(struct mdapl_dapl_ia *ia, const DAT_EVENT *e)
{
    const DAT_DTO_COMPLETION_EVENT_DATA *d = &e->event_data.dto_completion_event_data;

    mdapl_ctx_stats(ia->ctx)->dtos++;
    mdapl_dapl_ep_completed(ia, d->user_cookie.as_64, d->status, (size_t)d->transfered_length);
}

/* The EP object of a handle. An event may arrive after its EP has been freed, so the handle is
 * looked up; dat_ep_query() on it would be undefined. */
static struct mdapl_dapl_ep *find_ep(struct mdapl_dapl_ia *ia, DAT_EP_HANDLE handle)
{
    uint64_t key = (uint64_t)(uintptr_t)handle;
    struct mdapl_tree_node *node = mdapl_tree_upto(&ia->by_handle, key);

    return node && node->key == key ? MDAPL_OF(node, struct mdapl_dapl_ep, by_handle) : NULL;
}

static void handle_cr(struct mdapl_dapl_ia *ia, const DAT_EVENT *e)
{
    ia->hooks.cr(ia->hooks.arg, ia, e->event_data.cr_arrival_event_data.cr_handle);
}

static void handle_conn(struct mdapl_dapl_ia *ia, const DAT_EVENT *e)
{
    const DAT_CONNECTION_EVENT_DATA *d = &e->event_data.connect_event_data;
    struct mdapl_dapl_ep *ep = find_ep(ia, d->ep_handle);

    if (ep)
        ia->hooks.conn(ia->hooks.arg, ep, e->event_number, d->private_data,
                       d->private_data && d->private_data_size > 0 ? (size_t)d->private_data_size
                                                                   : 0);
}

/* Has the adapter the path extension, and is it one of its events? */
static bool is_of_path(const struct mdapl_dapl_ia *ia, DAT_EVENT_NUMBER number)
{
    return ia->max.ports > 0 && number >= (DAT_EVENT_NUMBER)DAT_PATH_EVENT_ARMED
           && number <= (DAT_EVENT_NUMBER)DAT_PATH_EVENT_UP;
}

static void handle_path(struct mdapl_dapl_ia *ia, const DAT_EVENT *e)
{
    DAT_PATH_EVENT_DATA data;

    memcpy(&data, e->event_extension_data, sizeof(data));
    ia->hooks.path(ia->hooks.arg, ia, find_ep(ia, (DAT_EP_HANDLE)data.handle), e->event_number,
                   &data);
}

static void handle_async(struct mdapl_dapl_ia *ia, const DAT_EVENT *e)
{
    DAT_HANDLE h = e->event_data.asynch_error_event_data.dat_handle;

    if (is_of_path(ia, e->event_number)) {
        handle_path(ia, e);
        return;
    }
    ia->hooks.async(ia->hooks.arg, ia, h, find_ep(ia, (DAT_EP_HANDLE)h), e->event_number);
}

static int drain(struct mdapl_dapl_ia *ia, DAT_EVD_HANDLE evd,
                 void (*handle)(struct mdapl_dapl_ia *, const DAT_EVENT *))
{
    DAT_EVENT event;
    int n = 0;

    while (n < BURST && ia->dat->dat_evd_dequeue(evd, &event) == DAT_SUCCESS) {
        handle(ia, &event);
        n++;
    }
    return n;
}

/* To find that a queue is empty costs the provider nearly as much as an event. Who waits for one
 * message has it with one event, so a poll takes one, and twice as many as the last one if that
 * took all that it might. */
static int poll_dto(struct mdapl_dapl_ia *ia, struct mdapl_dapl_dto_evd *dto)
{
    DAT_EVENT event;
    uint32_t n = 0;

    while (n < dto->burst && ia->dat->dat_evd_dequeue(dto->handle, &event) == DAT_SUCCESS) {
        handle_dto(ia, &event);
        n++;
    }
    if (n < dto->burst)
        dto->burst = n > 0 ? n : 1;
    else if (n < BURST)
        dto->burst = 2 * n;
    return (int)n;
}

/* A connection event, and before it the completions that the provider has reported before it: when
 * a connection ends, a last acknowledgement may be among them. */
static void handle_conn_in_order(struct mdapl_dapl_ia *ia, const DAT_EVENT *event)
{
    for (int i = 0; i < ia->n_dto; i++)
        while (poll_dto(ia, &ia->dto[i]) > 0)
            ;
    handle_conn(ia, event);
}

/* Handles every request in the queue, because cm.c decides by the requests that have arrived
 * whether it sends its own. */
static int poll_slow(struct mdapl_dapl_ia *ia)
{
    int n, got;

    if (!ia->conn_evd)           /* the rail is DOWN, and closed */
        return 0;
    n = drain(ia, ia->conn_evd, handle_conn_in_order);
    do {
        got = drain(ia, ia->cr_evd, handle_cr);
        n += got;
    } while (got == BURST);
    return n + drain(ia, ia->async_evd, handle_async);
}

static int handle_kept(struct mdapl_dapl_ia *ia)
{
    const struct mdapl_dapl_kept_event kept = ia->kept;

    ia->kept.handle = NULL;
    kept.handle(ia, &kept.event);
    return 1;
}

int mdapl_dapl_evd_poll(struct mdapl_dapl_ia *ia, bool all)
{
    int n = 0;

    if (ia->kept.handle)
        n += handle_kept(ia);
    for (int i = 0; i < ia->n_dto; i++)
        n += poll_dto(ia, &ia->dto[i]);
    if (all)
        n += poll_slow(ia);
    return n;
}

/* -- sleeping --------------------------------------------------------------------------------- */

/* The queues whose events end a sleep, and the handler of each. */
static int queues_of(const struct mdapl_dapl_ia *ia, struct queue queue[MDAPL_DTO_EVDS + 2])
{
    int n = 0;

    queue[n++] = (struct queue){ ia->conn_evd, handle_conn_in_order };
    queue[n++] = (struct queue){ ia->cr_evd, handle_cr };
    for (int i = 0; i < ia->n_dto; i++)
        queue[n++] = (struct queue){ ia->dto[i].handle, handle_dto };
    return n;
}

bool mdapl_dapl_evd_arm(struct mdapl_dapl_ia *ia, const DAT_OS_WAIT_PROXY_AGENT *agent)
{
    struct queue queue[MDAPL_DTO_EVDS + 2];
    int n = queues_of(ia, queue);
    DAT_EVD_HANDLE which;

    if (agent) {
        /* A CNO that has been notified since the last wait may not call its agent. */
        ia->dat->dat_cno_wait(ia->cno, 0, &which);
        ia->dat->dat_cno_modify_agent(ia->cno, *agent);
    }
    for (int i = 0; i < n; i++)
        ia->dat->dat_evd_enable(queue[i].evd);
    /* A queue notifies the CNO of events that arrive after it has been enabled. */
    for (int i = 0; i < n && !ia->kept.handle; i++)
        if (ia->dat->dat_evd_dequeue(queue[i].evd, &ia->kept.event) == DAT_SUCCESS)
            ia->kept.handle = queue[i].handle;
    return !ia->kept.handle;
}

void mdapl_dapl_evd_sleep(struct mdapl_dapl_ia *ia, uint64_t ns)
{
    DAT_EVD_HANDLE which;

    ia->dat->dat_cno_wait(ia->cno, (DAT_TIMEOUT)(ns / 1000), &which);
}

void mdapl_dapl_evd_disarm(struct mdapl_dapl_ia *ia)
{
    struct queue queue[MDAPL_DTO_EVDS + 2];
    int n = queues_of(ia, queue);
    DAT_EVENT event;

    for (int i = 0; i < n; i++)
        ia->dat->dat_evd_disable(queue[i].evd);
    while (ia->alarm_evd && ia->dat->dat_evd_dequeue(ia->alarm_evd, &event) == DAT_SUCCESS)
        ;
}

void mdapl_dapl_evd_alarm(const struct mdapl_dapl_ia *ia)
{
    DAT_EVENT event;

    memset(&event, 0, sizeof(event));
    event.event_number = DAT_SOFTWARE_EVENT;
    ia->dat->dat_evd_post_se(ia->alarm_evd, &event);
}

/* -- several threads -------------------------------------------------------------------------- */

int mdapl_dapl_evd_serve(struct mdapl_dapl_ia *ia, enum mdapl_dapl_evd_queue queue, uint64_t ns,
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

void mdapl_dapl_evd_stop_serving(struct mdapl_dapl_ia *ia)
{
    ia->dat->dat_evd_set_unwaitable(ia->cr_evd);
}
