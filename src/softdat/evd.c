/* SPDX-License-Identifier: MIT */
#include "softdat.h"
#include "calls.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct softdat_evd *evd_of(DAT_EVD_HANDLE handle)
{
    return softdat_get(handle, DAT_HANDLE_TYPE_EVD);
}

static struct softdat_cno *cno_of(DAT_CNO_HANDLE handle)
{
    return softdat_get(handle, DAT_HANDLE_TYPE_CNO);
}

static const DAT_RETURN bad_evd =
    DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EVD_REQUEST;

static void wake(int fd)
{
    uint64_t one = 1;

    if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
        return;                  /* the counter is full: the waiter wakes anyway */
}

static void clear_wakeup(int fd)
{
    uint64_t n;

    if (fd >= 0 && read(fd, &n, sizeof(n)) < 0)
        return;                  /* it was not signalled */
}

/* -- posting ---------------------------------------------------------------------------------- */

static void trigger_cno(struct softdat_evd *evd)
{
    struct softdat_cno *cno = evd->cno;

    cno->fired = evd;
    if (cno->agent.proxy_agent_func && !cno->agent_due) {
        cno->agent_due = true;
        cno->h.ia->n_agents_due++;
    }
    if (cno->waiters > 0)
        wake(cno->efd);
}

/* Dissociates the EVD from its CNO. If it had triggered the CNO, another EVD of that CNO with
 * queued events takes its place. */
static void detach_cno(struct softdat_evd *evd)
{
    struct softdat_cno *cno = evd->cno;
    struct softdat_list *l;

    if (!cno)
        return;
    evd->cno = NULL;
    cno->users--;
    if (cno->fired != evd)
        return;
    cno->fired = NULL;
    for (l = evd->h.ia->objects.next; l != &evd->h.ia->objects; l = l->next) {
        struct softdat_evd *other = (struct softdat_evd *)SOFTDAT_OF(l, struct softdat_handle,
                                                                     link);

        if (other->h.type == DAT_HANDLE_TYPE_EVD && other->cno == cno && other->enabled
            && atomic_load(&other->count) > 0)
            cno->fired = other;
    }
}

/* Agents are the consumer's code and may call the provider, so they run without the lock. */
void softdat_run_agents(struct softdat_ia *ia)
{
    while (ia->n_agents_due > 0) {
        struct softdat_list *l;
        DAT_OS_WAIT_PROXY_AGENT agent = { NULL, NULL };
        struct softdat_evd *evd = NULL;

        for (l = ia->objects.next; l != &ia->objects && !evd; l = l->next) {
            struct softdat_handle *h = SOFTDAT_OF(l, struct softdat_handle, link);
            struct softdat_cno *cno = (struct softdat_cno *)h;

            if (h->type != DAT_HANDLE_TYPE_CNO || !cno->agent_due)
                continue;
            cno->agent_due = false;
            agent = cno->agent;
            evd = cno->fired;
        }
        ia->n_agents_due--;
        if (!evd || !agent.proxy_agent_func)
            continue;
        datlock_release(&ia->lock);
        agent.proxy_agent_func(agent.instance_data, evd);
        datlock_take(&ia->lock);
    }
}

static void overflow(struct softdat_evd *evd)
{
    struct softdat_ia *ia = evd->h.ia;
    DAT_EVENT event;

    if (evd->overflowed || evd == ia->async_evd)
        return;
    evd->overflowed = true;
    memset(&event, 0, sizeof(event));
    event.event_number = DAT_ASYNC_ERROR_EVD_OVERFLOW;
    event.event_data.asynch_error_event_data.dat_handle = evd;
    event.event_data.asynch_error_event_data.reason = 0;
    softdat_evd_post(ia->async_evd, &event);
}

static uint32_t ring_index(const struct softdat_evd *evd, uint32_t i)
{
    uint32_t at = evd->head + i;

    return at < evd->qlen ? at : at - evd->qlen;
}

DAT_EVENT *softdat_evd_slot(struct softdat_evd *evd)
{
    uint32_t count = atomic_load_explicit(&evd->count, memory_order_relaxed);

    if (evd == evd->h.ia->into_evd)
        return evd->h.ia->into;
    if (count < evd->qlen)
        return &evd->ring[ring_index(evd, count)];
    overflow(evd);
    return NULL;
}

void softdat_evd_push(struct softdat_evd *evd, DAT_EVENT *slot)
{
    uint32_t count = atomic_load_explicit(&evd->count, memory_order_relaxed);

    slot->evd_handle = evd;
    if (evd == evd->h.ia->into_evd) {        /* the caller of dat_evd_dequeue has it */
        evd->h.ia->into_evd = NULL;
        evd->h.ia->into = NULL;
        return;
    }
    atomic_store_explicit(&evd->count, count + 1, memory_order_release);
    if (evd->waiters > 0)
        wake(evd->efd);
    if (evd->cno && evd->enabled)
        trigger_cno(evd);
}

void softdat_evd_post(struct softdat_evd *evd, const DAT_EVENT *event)
{
    DAT_EVENT *slot = softdat_evd_slot(evd);

    if (!slot)
        return;
    *slot = *event;
    softdat_evd_push(evd, slot);
}

/* -- creating and freeing --------------------------------------------------------------------- */

struct softdat_evd *softdat_evd_make(struct softdat_ia *ia, DAT_COUNT qlen, DAT_EVD_FLAGS flags)
{
    struct softdat_evd *evd = softdat_alloc(sizeof(*evd));

    if (!evd)
        return NULL;
    evd->qlen = (uint32_t)(qlen > 0 ? qlen : 1);
    evd->ring = softdat_alloc_n(evd->qlen, sizeof(*evd->ring));
    if (!evd->ring) {
        softdat_free(evd);
        return NULL;
    }
    evd->flags = flags;
    evd->efd = -1;
    evd->enabled = evd->waitable = true;
    softdat_handle_init(&evd->h, ia, DAT_HANDLE_TYPE_EVD);
    return evd;
}

void softdat_evd_destroy(struct softdat_evd *evd)
{
    detach_cno(evd);
    if (evd->efd >= 0)
        close(evd->efd);
    softdat_free(evd->ring);
    softdat_handle_end(&evd->h);
}

DAT_RETURN softdat_evd_create(DAT_IA_HANDLE ia_handle, DAT_COUNT qlen, DAT_CNO_HANDLE cno_handle,
                              DAT_EVD_FLAGS flags, DAT_EVD_HANDLE *evd_p)
{
    struct softdat_ia *ia = softdat_get(ia_handle, DAT_HANDLE_TYPE_IA);
    struct softdat_cno *cno = cno_handle ? cno_of(cno_handle) : NULL;
    struct softdat_evd *evd;

    if (!ia)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    if (cno_handle && !cno)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
    if (qlen <= 0 || qlen > SOFTDAT_MAX_QLEN)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    if (!evd_p || flags == 0)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
    softdat_lock(ia);
    evd = softdat_evd_make(ia, qlen, flags);
    if (evd && cno) {
        evd->cno = cno;
        cno->users++;
    }
    softdat_unlock(ia);
    if (!evd)
        return DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    *evd_p = evd;
    return DAT_SUCCESS;
}

DAT_RETURN softdat_evd_free(DAT_EVD_HANDLE handle)
{
    struct softdat_evd *evd = evd_of(handle);
    struct softdat_ia *ia;
    DAT_RETURN ret = DAT_SUCCESS;

    if (!evd)
        return bad_evd;
    ia = evd->h.ia;
    softdat_lock(ia);
    if (evd->users > 0 || evd->waiters > 0 || evd == ia->async_evd)
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
    else
        softdat_evd_destroy(evd);
    softdat_unlock(ia);
    return ret;
}

DAT_RETURN softdat_evd_query(DAT_EVD_HANDLE handle, DAT_EVD_PARAM_MASK mask, DAT_EVD_PARAM *param)
{
    struct softdat_evd *evd = evd_of(handle);
    int state;

    (void)mask;
    if (!evd)
        return bad_evd;
    if (!param)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    state = (evd->enabled ? DAT_EVD_STATE_ENABLED : DAT_EVD_STATE_DISABLED)
            | (evd->waitable ? DAT_EVD_STATE_WAITABLE : DAT_EVD_STATE_UNWAITABLE);
    *param = (DAT_EVD_PARAM){ .ia_handle = evd->h.ia, .evd_qlen = (DAT_COUNT)evd->qlen,
                              .evd_state = (DAT_EVD_STATE)state, .cno_handle = evd->cno,
                              .evd_flags = evd->flags };
    return DAT_SUCCESS;
}

DAT_RETURN softdat_evd_modify_cno(DAT_EVD_HANDLE handle, DAT_CNO_HANDLE cno_handle)
{
    struct softdat_evd *evd = evd_of(handle);
    struct softdat_cno *cno = cno_handle ? cno_of(cno_handle) : NULL;

    if (!evd)
        return bad_evd;
    if (cno_handle && !cno)
        return DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO);
    softdat_lock(evd->h.ia);
    detach_cno(evd);
    evd->cno = cno;
    if (cno)
        cno->users++;
    if (cno && evd->enabled && atomic_load(&evd->count) > 0)
        trigger_cno(evd);
    softdat_unlock(evd->h.ia);
    return DAT_SUCCESS;
}

static DAT_RETURN set_flag(DAT_EVD_HANDLE handle, size_t offset, bool value)
{
    struct softdat_evd *evd = evd_of(handle);

    if (!evd)
        return bad_evd;
    softdat_lock(evd->h.ia);
    *(bool *)((char *)evd + offset) = value;
    if (evd->waiters > 0)
        wake(evd->efd);
    if (value && evd->cno && evd->enabled && atomic_load(&evd->count) > 0)
        trigger_cno(evd);
    softdat_unlock(evd->h.ia);
    return DAT_SUCCESS;
}

DAT_RETURN softdat_evd_enable(DAT_EVD_HANDLE handle)
{
    return set_flag(handle, offsetof(struct softdat_evd, enabled), true);
}

DAT_RETURN softdat_evd_disable(DAT_EVD_HANDLE handle)
{
    return set_flag(handle, offsetof(struct softdat_evd, enabled), false);
}

DAT_RETURN softdat_evd_set_unwaitable(DAT_EVD_HANDLE handle)
{
    return set_flag(handle, offsetof(struct softdat_evd, waitable), false);
}

DAT_RETURN softdat_evd_clear_unwaitable(DAT_EVD_HANDLE handle)
{
    return set_flag(handle, offsetof(struct softdat_evd, waitable), true);
}

DAT_RETURN softdat_evd_resize(DAT_EVD_HANDLE handle, DAT_COUNT qlen)
{
    struct softdat_evd *evd = evd_of(handle);
    DAT_RETURN ret = DAT_SUCCESS;
    DAT_EVENT *ring;
    uint32_t count;

    if (!evd)
        return bad_evd;
    if (qlen <= 0 || qlen > SOFTDAT_MAX_QLEN)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    softdat_lock(evd->h.ia);
    count = atomic_load(&evd->count);
    ring = softdat_alloc_n((size_t)qlen, sizeof(*ring));
    if (!ring) {
        ret = DAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    } else if (count > (uint32_t)qlen) {
        softdat_free(ring);
        ret = DAT_ERROR(DAT_INVALID_STATE, DAT_NO_SUBTYPE);
    } else {
        for (uint32_t i = 0; i < count; i++)
            ring[i] = evd->ring[ring_index(evd, i)];
        softdat_free(evd->ring);
        evd->ring = ring;
        evd->head = 0;
        evd->qlen = (uint32_t)qlen;
    }
    softdat_unlock(evd->h.ia);
    return ret;
}

DAT_RETURN softdat_evd_post_se(DAT_EVD_HANDLE handle, const DAT_EVENT *event)
{
    struct softdat_evd *evd = evd_of(handle);
    DAT_RETURN ret = DAT_SUCCESS;

    if (!evd)
        return bad_evd;
    if (!(evd->flags & DAT_EVD_SOFTWARE_FLAG) || !event
        || event->event_number != DAT_SOFTWARE_EVENT)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    softdat_lock(evd->h.ia);
    if (atomic_load(&evd->count) == evd->qlen)
        ret = DAT_ERROR(DAT_QUEUE_FULL, DAT_NO_SUBTYPE);
    else
        softdat_evd_post(evd, event);
    softdat_unlock(evd->h.ia);
    return ret;
}

/* -- dequeuing -------------------------------------------------------------------------------- */

static void pop(struct softdat_evd *evd, DAT_EVENT *event)
{
    *event = evd->ring[evd->head];
    evd->head = ring_index(evd, 1);
    atomic_store_explicit(&evd->count, atomic_load(&evd->count) - 1, memory_order_release);
}

/* Without the error class: clients (dtest -p) compare the whole value with what dapl returns. */
static const DAT_RETURN queue_empty = DAT_QUEUE_EMPTY;

/* True if an event of evd has to be queued, because a CNO or a waiter is notified of it. */
static inline bool notifies(const struct softdat_evd *evd)
{
    return (evd->cno && evd->enabled) || evd->waiters > 0;
}

/* Makes a round with the lock. If evd had no event the first one is stored in *event. Returns true
 * if it was. */
static bool round_into(struct softdat_evd *evd, DAT_EVENT *event)
{
    struct softdat_ia *ia = evd->h.ia;
    bool stored;

    if (atomic_load_explicit(&evd->count, memory_order_relaxed) == 0 && !notifies(evd))
        ia->into_evd = evd;
    ia->into = event;
    softdat_progress(ia);
    stored = ia->into == NULL;
    ia->into_evd = NULL;
    ia->into = NULL;
    return stored;
}

/* Without a connection the helper thread does what there is to do: connection requests. A call that
 * took part would only wake it, for a period (net.c); ranks of one node do that all the time. */
static inline bool unconnected(const struct softdat_ia *ia)
{
    return softdat_list_empty(&ia->conns);
}

/* Not inline, as dequeue(): the registers that they save would be saved for each empty poll. */
__attribute__((noinline)) DAT_RETURN softdat_evd_dequeue_locked(struct softdat_evd *evd,
                                                                DAT_EVENT *event)
{
    DAT_RETURN ret = DAT_SUCCESS;
    bool queued = atomic_load_explicit(&evd->count, memory_order_relaxed) > 0;

    if (queued || unconnected(evd->h.ia) || !round_into(evd, event)) {
        if (atomic_load_explicit(&evd->count, memory_order_relaxed) > 0)
            pop(evd, event);
        else
            ret = queue_empty;
    }
    softdat_unlock(evd->h.ia);
    return ret;
}

/* A dequeue by a thread that is not the owner of the lock. */
__attribute__((noinline)) static DAT_RETURN dequeue(struct softdat_evd *evd, DAT_EVENT *event)
{
    struct softdat_ia *ia = evd->h.ia;

    if (atomic_load_explicit(&evd->count, memory_order_acquire) > 0)
        datlock_take(&ia->lock);
    else if (!datlock_try(&ia->lock))
        return queue_empty;
    return softdat_evd_dequeue_locked(evd, event);
}

/* A dequeue by the former owner of the lock, whose bias has been revoked as it entered. */
__attribute__((noinline)) static DAT_RETURN dequeue_revoked(struct softdat_evd *evd,
                                                            DAT_EVENT *event)
{
    datlock_leave(&evd->h.ia->lock);
    return dequeue(evd, event);
}

/* The end of an empty dequeue while another thread may wait for the lock. */
__attribute__((noinline)) static DAT_RETURN wake_and_return_empty(struct softdat_ia *ia)
{
    datlock_wake(&ia->lock);
    return queue_empty;
}

/* An empty poll calls nothing: whatever else is to be done is a tail call, so that no register is
 * saved. */
DAT_RETURN softdat_evd_dequeue(DAT_EVD_HANDLE handle, DAT_EVENT *event)
{
    struct softdat_evd *evd = softdat_called(handle, DAT_HANDLE_TYPE_EVD);
    struct softdat_conn *c;
    struct softdat_ia *ia;

    if (!evd)
        return bad_evd;
    if (!event)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
    ia = evd->h.ia;
    if (!datlock_owned(&ia->lock))
        return dequeue(evd, event);
    if (!datlock_begin(&ia->lock))
        return dequeue_revoked(evd, event);
    if (atomic_load_explicit(&evd->count, memory_order_relaxed) > 0 || unconnected(ia)
        || !softdat_round_quiet(ia, softdat_count_call(ia)))
        return softdat_evd_dequeue_locked(evd, event);
    c = softdat_ring_pending(ia);
    if (c)
        return notifies(evd) ? softdat_evd_dequeue_locked(evd, event)
                             : softdat_short_event(evd, event, c);
    return datlock_end(&ia->lock) ? queue_empty : wake_and_return_empty(ia);
}

uint64_t softdat_wait_left(uint64_t start, DAT_TIMEOUT us)
{
    uint64_t spent = softdat_now() - start, all = (uint64_t)us * 1000;

    if (us == DAT_TIMEOUT_INFINITE)
        return UINT64_MAX;
    return spent >= all ? 0 : all - spent;
}

void softdat_wait_sleep(struct softdat_ia *ia, int efd, int *waiters, uint64_t ns)
{
    ++*waiters;
    ia->waiters++;
    softdat_sleep(ia, efd, ns);
    ia->waiters--;
    --*waiters;
    clear_wakeup(efd);
}

void softdat_wait_end(struct softdat_ia *ia)
{
    softdat_count_call(ia);
    if ((ia->waiters == 0 && ia->helper_state == SOFTDAT_HELPER_STANDBY)
        || !softdat_list_empty(&ia->acks))
        softdat_helper_wake(ia);
}

DAT_RETURN softdat_evd_wait(DAT_EVD_HANDLE handle, DAT_TIMEOUT us, DAT_COUNT threshold,
                            DAT_EVENT *event, DAT_COUNT *more)
{
    struct softdat_evd *evd = evd_of(handle);
    uint64_t start = softdat_now(), rest;
    DAT_RETURN ret = DAT_SUCCESS;
    struct softdat_ia *ia;

    if (!evd)
        return bad_evd;
    if (!event || !more || threshold <= 0 || (uint32_t)threshold > evd->qlen)
        return DAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    ia = evd->h.ia;
    softdat_lock(ia);
    if (evd->waiters > 0) {
        softdat_unlock(ia);
        return DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_WAITER);
    }
    if (evd->efd < 0)
        evd->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (;;) {
        softdat_progress_blocking(ia);
        if (!evd->waitable)
            ret = DAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_UNWAITABLE);
        if (ret != DAT_SUCCESS || atomic_load(&evd->count) >= (uint32_t)threshold)
            break;
        rest = softdat_wait_left(start, us);
        if (rest == 0) {
            ret = DAT_ERROR(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE);
            break;
        }
        softdat_wait_sleep(ia, evd->efd, &evd->waiters, rest);
    }
    if (ret == DAT_SUCCESS)
        pop(evd, event);
    *more = (DAT_COUNT)atomic_load(&evd->count);
    softdat_wait_end(ia);
    softdat_unlock(ia);
    return ret;
}
