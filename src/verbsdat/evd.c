/* SPDX-License-Identifier: MIT */
#include "event.h"

#include "verbsdat.h"
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    BATCH = 8,                   /* completions that one call polls */
    SPARE = 32,                  /* entries of a CQ beyond its EVD's events, for the EPs' writes of
                                    no bytes */
    SPARE_PART = 4,              /* and one more for so many events */
    QLEN_MAX = 1 << 22,
};

static const DAT_RETURN bad_evd = DAT_CLASS_ERROR | DAT_INVALID_HANDLE
                                  | DAT_INVALID_HANDLE_EVD_REQUEST;

/* Without the error class: clients (dtest -p) compare the whole value with what dapl returns. */
static const DAT_RETURN queue_empty = DAT_QUEUE_EMPTY;

struct verbsdat_evd *verbsdat_evd_of(DAT_EVD_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_EVD);
}

/* -- the queue; with evd->lock ----------------------------------------------------------------- */

static uint32_t place(const struct verbsdat_evd *evd, uint32_t i)
{
    uint32_t at = evd->head + i;

    return at < evd->qlen ? at : at - evd->qlen;
}

static void pop(struct verbsdat_evd *evd, DAT_EVENT *event)
{
    *event = evd->ring[evd->head];
    evd->head = place(evd, 1);
    evd->count--;
}

/* Polls once. The first event goes to *first if that is not NULL, the others to the queue, which
 * has room for all of them. Returns the number of completions. */
static int poll_cq(struct verbsdat_evd *evd, DAT_EVENT **first)
{
    uint32_t room = evd->qlen - evd->count;
    struct ibv_wc wc[BATCH];
    int n = ibv_poll_cq(evd->cq, room < BATCH ? (int)room : BATCH, wc);

    for (int i = 0; i < n; i++) {
        if (*first)
            *first = verbsdat_done(evd, &wc[i], *first) ? NULL : *first;
        else
            evd->count += verbsdat_done(evd, &wc[i], &evd->ring[place(evd, evd->count)]);
    }
    return n;
}

static void pull(struct verbsdat_evd *evd)
{
    DAT_EVENT *none = NULL;

    while (evd->cq && evd->count < evd->qlen && poll_cq(evd, &none) > 0)
        ;
}

/* Takes the next event. False: there is none. */
static bool take(struct verbsdat_evd *evd, DAT_EVENT *event)
{
    DAT_EVENT *wanted = event;

    if (evd->count > 0) {
        pop(evd, event);
        return true;
    }
    while (evd->cq && wanted && poll_cq(evd, &wanted) > 0)
        ;
    return !wanted;
}

bool verbsdat_evd_rearm(struct verbsdat_evd *evd)
{
    bool wanted = evd->waiters > 0 || evd->closing > 0 || (evd->cno && evd->enabled);

    if (!evd->cq || evd->armed || !wanted)
        return false;
    evd->armed = true;
    ibv_req_notify_cq(evd->cq, 0);
    return true;
}

/* -- posting and notifying --------------------------------------------------------------------- */

static void overflow(struct verbsdat_evd *evd)
{
    struct verbsdat_ia *ia = evd->h.ia;
    DAT_EVENT event;

    if (evd == ia->async_evd)
        return;
    memset(&event, 0, sizeof(event));
    event.event_number = DAT_ASYNC_ERROR_EVD_OVERFLOW;
    event.event_data.asynch_error_event_data.dat_handle = evd;
    event.event_data.asynch_error_event_data.reason = DAT_EVD_OVERFLOW_ERROR;
    verbsdat_evd_post(ia->async_evd, &event);
}

bool verbsdat_evd_post(struct verbsdat_evd *evd, const DAT_EVENT *event)
{
    bool fits, lost, notify;

    datlock_take(&evd->lock);
    fits = evd->count < evd->qlen;
    lost = !fits && !evd->overflowed;
    evd->overflowed = evd->overflowed || lost;
    if (fits) {
        DAT_EVENT *slot = &evd->ring[place(evd, evd->count++)];

        *slot = *event;
        slot->evd_handle = evd;
    }
    if (fits && evd->waiters > 0)
        eventfd_write(evd->efd, 1);
    notify = fits && evd->cno && evd->enabled;
    if (notify)
        verbsdat_cno_trigger(evd->cno, evd);
    datlock_release(&evd->lock);
    if (lost)
        overflow(evd);
    return fits;
}

void verbsdat_evd_pull(struct verbsdat_evd *evd)
{
    datlock_take(&evd->lock);
    pull(evd);
    if (evd->count > 0 && evd->waiters > 0)
        eventfd_write(evd->efd, 1);
    datlock_release(&evd->lock);
}

void verbsdat_evd_drain(struct verbsdat_evd *evd)
{
    DAT_EVENT dropped;
    struct ibv_wc wc;
    bool lost = false;

    verbsdat_evd_pull(evd);
    datlock_take(&evd->lock);
    while (evd->count == evd->qlen && ibv_poll_cq(evd->cq, 1, &wc) > 0)
        lost = verbsdat_done(evd, &wc, &dropped) || lost;
    lost = lost && !evd->overflowed;
    evd->overflowed = evd->overflowed || lost;
    datlock_release(&evd->lock);
    if (lost)
        overflow(evd);
}

bool verbsdat_evd_notified(struct verbsdat_evd *evd, bool trigger)
{
    struct ibv_cq *cq;
    void *context;
    bool any = false;

    datlock_take(&evd->lock);
    if (ibv_get_cq_event(evd->channel, &cq, &context) == 0) {
        ibv_ack_cq_events(cq, 1);
        evd->armed = false;
        any = evd->enabled;
        if (any && trigger && evd->cno)
            verbsdat_cno_trigger(evd->cno, evd);
        if (evd->waiters > 0)
            eventfd_write(evd->efd, 1);
        if (evd->closing > 0)
            verbsdat_thread_wake(evd->h.ia);
    }
    datlock_release(&evd->lock);
    return any;
}

/* With evd->lock: the adapter's thread waits for the EVD's completions where no caller does. */
static void update_watch(struct verbsdat_evd *evd)
{
    bool on = evd->cq && (evd->closing > 0
                          || (evd->cno && evd->enabled && verbsdat_cno_has_agent(evd->cno)));

    if (on == evd->watched)
        return;
    evd->watched = on;
    verbsdat_thread_watch(evd->h.ia, evd, on);
}

void verbsdat_evd_watch(struct verbsdat_evd *evd)
{
    datlock_take(&evd->lock);
    update_watch(evd);
    datlock_release(&evd->lock);
}

void verbsdat_evd_closing(struct verbsdat_evd *evd, int more)
{
    datlock_take(&evd->lock);
    evd->closing += (unsigned)more;
    update_watch(evd);
    datlock_release(&evd->lock);
}

/* -- creating and freeing ---------------------------------------------------------------------- */

static int cq_entries(const struct verbsdat_ia *ia, uint32_t qlen)
{
    int64_t n = (int64_t)qlen + qlen / SPARE_PART + SPARE;

    return n < ia->device.max_cqe ? (int)n : ia->device.max_cqe;
}

static bool make_cq(struct verbsdat_evd *evd, struct verbsdat_ia *ia)
{
    evd->channel = ibv_create_comp_channel(ia->verbs);
    if (!evd->channel)
        return false;
    fcntl(evd->channel->fd, F_SETFL, fcntl(evd->channel->fd, F_GETFL) | O_NONBLOCK);
    evd->cq = ibv_create_cq(ia->verbs, cq_entries(ia, evd->qlen), evd, evd->channel, 0);
    if (!evd->cq)
        ibv_destroy_comp_channel(evd->channel);
    return evd->cq != NULL;
}

struct verbsdat_evd *verbsdat_evd_make(struct verbsdat_ia *ia, DAT_COUNT qlen, DAT_EVD_FLAGS flags)
{
    struct verbsdat_evd *evd = calloc(1, sizeof(*evd));

    if (!evd)
        return NULL;
    evd->qlen = (uint32_t)qlen;
    evd->flags = flags;
    evd->efd = -1;
    evd->enabled = evd->waitable = true;
    evd->ring = calloc(evd->qlen, sizeof(*evd->ring));
    if (!evd->ring || (flags & DAT_EVD_DTO_FLAG && !make_cq(evd, ia))) {
        free(evd->ring);
        free(evd);
        return NULL;
    }
    datlock_init(&evd->lock);
    verbsdat_handle_add(&evd->h, ia, DAT_HANDLE_TYPE_EVD);
    return evd;
}

/* With ia->lock, or when the adapter's thread has ended. */
void verbsdat_evd_destroy(struct verbsdat_evd *evd)
{
    if (evd->cno)
        verbsdat_cno_detach(evd->cno, evd);
    evd->cno = NULL;
    update_watch(evd);
    if (evd->cq) {
        ibv_destroy_cq(evd->cq);
        ibv_destroy_comp_channel(evd->channel);
    }
    if (evd->efd >= 0)
        close(evd->efd);
    free(evd->ring);
    datlock_destroy(&evd->lock);
    verbsdat_handle_end(&evd->h);
}

static struct verbsdat_cno *cno_of(DAT_CNO_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_CNO);
}

DAT_RETURN verbsdat_evd_create(DAT_IA_HANDLE ia_handle, DAT_COUNT qlen, DAT_CNO_HANDLE cno_handle,
                               DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *evd_p)
{
    struct verbsdat_ia *ia = verbsdat_ia_of(ia_handle);
    struct verbsdat_cno *cno = cno_of(cno_handle);
    struct verbsdat_evd *evd;

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (cno_handle && !cno)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
    if (qlen <= 0 || qlen > QLEN_MAX)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (!evd_p || flags == 0)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    evd = verbsdat_evd_make(ia, qlen, flags);
    if (!evd)
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD);
    if (cno)
        verbsdat_evd_modify_cno(evd, cno);
    *evd_p = evd;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_evd_free(DAT_EVD_HANDLE handle)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);
    DAT_RETURN ret = DAT_SUCCESS;
    struct verbsdat_ia *ia;

    if (!evd)
        return bad_evd;
    ia = evd->h.ia;
    verbsdat_lock(ia);
    if (atomic_load(&evd->users) > 0 || evd->waiters > 0 || evd == ia->async_evd)
        ret = VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
    else
        verbsdat_evd_destroy(evd);
    verbsdat_unlock(ia);
    return ret;
}

DAT_RETURN verbsdat_evd_query(DAT_EVD_HANDLE handle, DAT_EVD_PARAM_MASK mask, DAT_EVD_PARAM *param)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);
    int state;

    (void)mask;
    if (!evd)
        return bad_evd;
    if (!param)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    datlock_take(&evd->lock);
    state = (evd->enabled ? DAT_EVD_STATE_ENABLED : DAT_EVD_STATE_DISABLED)
            | (evd->waitable ? DAT_EVD_STATE_WAITABLE : DAT_EVD_STATE_UNWAITABLE);
    *param = (DAT_EVD_PARAM){ .ia_handle = evd->h.ia, .evd_qlen = (DAT_COUNT)evd->qlen,
                              .evd_state = (DAT_EVD_STATE)state, .cno_handle = evd->cno,
                              .evd_flags = evd->flags };
    datlock_release(&evd->lock);
    return DAT_SUCCESS;
}

/* -- changing ---------------------------------------------------------------------------------- */

/* With evd->lock, after a change of what is to be notified: events that are there notify. */
static void renotify(struct verbsdat_evd *evd)
{
    update_watch(evd);
    if (verbsdat_evd_rearm(evd))
        pull(evd);
    if (evd->cno && evd->enabled && evd->count > 0)
        verbsdat_cno_trigger(evd->cno, evd);
    if (evd->waiters > 0)
        eventfd_write(evd->efd, 1);
}

DAT_RETURN verbsdat_evd_modify_cno(DAT_EVD_HANDLE handle, DAT_CNO_HANDLE cno_handle)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);
    struct verbsdat_cno *cno = cno_of(cno_handle);

    if (!evd)
        return bad_evd;
    if (cno_handle && (!cno || cno->h.ia != evd->h.ia))
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
    datlock_take(&evd->lock);
    if (evd->cno)
        verbsdat_cno_detach(evd->cno, evd);
    if (cno)
        verbsdat_cno_attach(cno, evd);
    evd->cno = cno;
    renotify(evd);
    datlock_release(&evd->lock);
    verbsdat_cno_agents(evd->h.ia);
    return DAT_SUCCESS;
}

static DAT_RETURN set_flag(struct verbsdat_evd *evd, bool *flag, bool value)
{
    datlock_take(&evd->lock);
    *flag = value;
    renotify(evd);
    datlock_release(&evd->lock);
    verbsdat_cno_agents(evd->h.ia);
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_evd_enable(DAT_EVD_HANDLE handle)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);

    return evd ? set_flag(evd, &evd->enabled, true) : bad_evd;
}

DAT_RETURN verbsdat_evd_disable(DAT_EVD_HANDLE handle)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);

    return evd ? set_flag(evd, &evd->enabled, false) : bad_evd;
}

DAT_RETURN verbsdat_evd_set_unwaitable(DAT_EVD_HANDLE handle)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);

    return evd ? set_flag(evd, &evd->waitable, false) : bad_evd;
}

DAT_RETURN verbsdat_evd_clear_unwaitable(DAT_EVD_HANDLE handle)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);

    return evd ? set_flag(evd, &evd->waitable, true) : bad_evd;
}

/* With evd->lock. The CQ keeps its completions (IBA 11.2.8.3), the queue its events. */
static DAT_RETURN resize(struct verbsdat_evd *evd, uint32_t qlen)
{
    DAT_EVENT *ring;

    if (evd->count > qlen)
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    ring = calloc(qlen, sizeof(*ring));
    if (!ring || (evd->cq && ibv_resize_cq(evd->cq, cq_entries(evd->h.ia, qlen)))) {
        free(ring);
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD);
    }
    for (uint32_t i = 0; i < evd->count; i++)
        ring[i] = evd->ring[place(evd, i)];
    free(evd->ring);
    evd->ring = ring;
    evd->head = 0;
    evd->qlen = qlen;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_evd_resize(DAT_EVD_HANDLE handle, DAT_COUNT qlen)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);
    DAT_RETURN ret;

    if (!evd)
        return bad_evd;
    if (qlen <= 0 || qlen > QLEN_MAX)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    datlock_take(&evd->lock);
    ret = resize(evd, (uint32_t)qlen);
    datlock_release(&evd->lock);
    return ret;
}

DAT_RETURN verbsdat_evd_post_se(DAT_EVD_HANDLE handle, const DAT_EVENT *event)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);
    bool full;

    if (!evd)
        return bad_evd;
    if (!(evd->flags & DAT_EVD_SOFTWARE_FLAG) || !event
        || event->event_number != DAT_SOFTWARE_EVENT)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    datlock_take(&evd->lock);
    full = evd->count == evd->qlen;
    datlock_release(&evd->lock);
    if (full || !verbsdat_evd_post(evd, event))
        return VERBSDAT_ERROR(DAT_QUEUE_FULL, DAT_NO_SUBTYPE);
    verbsdat_cno_agents(evd->h.ia);
    return DAT_SUCCESS;
}

/* -- dequeuing --------------------------------------------------------------------------------- */

DAT_RETURN verbsdat_evd_dequeue(DAT_EVD_HANDLE handle, DAT_EVENT *event)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);
    bool found;

    if (!evd)
        return bad_evd;
    if (!event)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    datlock_take(&evd->lock);
    found = take(evd, event);
    if (!found && verbsdat_evd_rearm(evd))
        found = take(evd, event);
    datlock_release(&evd->lock);
    return found ? DAT_SUCCESS : queue_empty;
}

/* With evd->lock, which is released meanwhile: sleeps until something has changed. */
static void wait_once(struct verbsdat_evd *evd, uint64_t ns)
{
    int channel = evd->cq ? evd->channel->fd : -1;
    eventfd_t n;

    datlock_release(&evd->lock);
    verbsdat_sleep(evd->efd, channel, ns);
    if (evd->cq)
        verbsdat_evd_notified(evd, true);
    datlock_take(&evd->lock);
    eventfd_read(evd->efd, &n);
}

/* With evd->lock, as its only waiter: waits for threshold events. */
static DAT_RETURN wait_for(struct verbsdat_evd *evd, DAT_TIMEOUT us, uint32_t threshold)
{
    uint64_t start = verbsdat_now(), rest;

    for (;;) {
        pull(evd);
        if (!evd->waitable)
            return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
        if (evd->count >= threshold)
            return DAT_SUCCESS;
        if (verbsdat_evd_rearm(evd))
            continue;
        rest = verbsdat_wait_left(start, us);
        if (rest == 0)
            return VERBSDAT_ERROR(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE);
        wait_once(evd, rest);
    }
}

DAT_RETURN verbsdat_evd_wait(DAT_EVD_HANDLE handle, DAT_TIMEOUT us, DAT_COUNT threshold,
                             DAT_EVENT *event, DAT_COUNT *more)
{
    struct verbsdat_evd *evd = verbsdat_evd_of(handle);
    DAT_RETURN ret;

    if (!evd)
        return bad_evd;
    if (!event || !more || threshold <= 0 || (uint32_t)threshold > evd->qlen)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    datlock_take(&evd->lock);
    if (evd->waiters > 0) {
        datlock_release(&evd->lock);
        return VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
    }
    if (evd->efd < 0)
        evd->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    evd->waiters++;
    ret = wait_for(evd, us, (uint32_t)threshold);
    evd->waiters--;
    if (ret == DAT_SUCCESS)
        pop(evd, event);
    *more = (DAT_COUNT)evd->count;
    datlock_release(&evd->lock);
    return ret;
}
