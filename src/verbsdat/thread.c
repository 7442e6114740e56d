/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/*
 * The thread sleeps on the connection manager's channel, the device's asynchronous events, the
 * channels of the EVDs that it watches, and wake_fd. What it finds there decides nothing by itself:
 * after each sleep it looks at all that may be due.
 */

enum { BATCH = 8 };

uint64_t verbsdat_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void verbsdat_thread_wake(struct verbsdat_ia *ia)
{
    eventfd_write(ia->wake_fd, 1);
}

void verbsdat_thread_deadline(struct verbsdat_ia *ia, uint64_t ns)
{
    if (ns >= ia->next_deadline)
        return;
    ia->next_deadline = ns;
    verbsdat_thread_wake(ia);
}

static int sleep_on(struct verbsdat_ia *ia, int fd, void *what)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = what };

    return epoll_ctl(ia->epfd, EPOLL_CTL_ADD, fd, &e) ? errno : 0;
}

void verbsdat_thread_watch(struct verbsdat_ia *ia, struct verbsdat_evd *evd, bool on)
{
    if (on)
        sleep_on(ia, evd->channel->fd, evd);
    else
        epoll_ctl(ia->epfd, EPOLL_CTL_DEL, evd->channel->fd, NULL);
}

/* -- asynchronous events ----------------------------------------------------------------------- */

struct async {
    DAT_EVENT_NUMBER number;
    int reason;
};

static void post_async(struct verbsdat_ia *ia, DAT_HANDLE what, const struct async *a)
{
    DAT_EVENT event;

    memset(&event, 0, sizeof(event));
    event.event_number = a->number;
    event.event_data.asynch_error_event_data.dat_handle = what;
    event.event_data.asynch_error_event_data.reason = (DAT_UINT32)a->reason;
    verbsdat_evd_post(ia->async_evd, &event);
}

static void post_port(struct verbsdat_ia *ia, void *arg)
{
    post_async(ia, ia, arg);
}

/* The device has failed. Its last event may have been this one: a channel without a device is
 * always ready. */
static void post_fatal(struct verbsdat_ia *ia, void *arg)
{
    atomic_store(&ia->lost, true);
    epoll_ctl(ia->epfd, EPOLL_CTL_DEL, ia->verbs->async_fd, NULL);
    post_async(ia, ia, arg);
}

static void fault_of(struct verbsdat_ep *ep)
{
    atomic_store(&ep->fault, true);
    atomic_store(&ep->h.ia->faulty, true);
    verbsdat_thread_wake(ep->h.ia);
}

void verbsdat_srq_low(struct verbsdat_srq *srq)
{
    static const struct async low = { DAT_ASYNC_ERROR_EP_BROKEN, DAT_SRQ_LOW_WATERMARK_EVENT };

    post_async(srq->h.ia, srq, &low);
}

static void port_up(struct verbsdat_ia *ia, void *number)
{
    verbsdat_lock(ia);
    verbsdat_path_port(ia, (uint8_t)*(int *)number, true);
    verbsdat_unlock(ia);
}

static void port_down(struct verbsdat_ia *ia, void *number)
{
    verbsdat_lock(ia);
    verbsdat_path_port(ia, (uint8_t)*(int *)number, false);
    verbsdat_unlock(ia);
}

static void of_path(struct verbsdat_ep *ep, void (*f)(struct verbsdat_ep *))
{
    verbsdat_lock(ep->h.ia);
    f(ep);
    verbsdat_unlock(ep->h.ia);
}

/* Events of the device and its ports go to all IAs on it, the others to that of their object. DAT
 * has no number for a port that is down for a while: its TIMED_OUT says that the adapter's
 * operations may not come to an end, and is no reason to give it up. */
static void async_event(struct verbsdat_ia *ia, struct ibv_async_event *e)
{
    static struct async down = { DAT_ASYNC_ERROR_TIMED_OUT, DAT_IA_OTHER_ERROR };
    static struct async fatal = { DAT_ASYNC_ERROR_IA_CATASTROPHIC, DAT_IA_CATASTROPHIC_ERROR };
    static const struct async overflow = { DAT_ASYNC_ERROR_EVD_OVERFLOW, DAT_EVD_OVERFLOW_ERROR };
    static const struct async last = { DAT_ASYNC_ERROR_EP_BROKEN, DAT_EP_TRANSFER_TO_ERROR };

    switch (e->event_type) {
    case IBV_EVENT_DEVICE_FATAL:
        verbsdat_ia_each(ia->verbs, post_fatal, &fatal);
        break;
    case IBV_EVENT_PORT_ERR:
        verbsdat_ia_each(ia->verbs, post_port, &down);
        verbsdat_ia_each(ia->verbs, port_down, &e->element.port_num);
        break;
    case IBV_EVENT_PORT_ACTIVE:
        verbsdat_ia_each(ia->verbs, port_up, &e->element.port_num);
        break;
    case IBV_EVENT_PATH_MIG:
        of_path(e->element.qp->qp_context, verbsdat_path_migrated);
        break;
    case IBV_EVENT_PATH_MIG_ERR:
        of_path(e->element.qp->qp_context, verbsdat_path_failed);
        break;
    case IBV_EVENT_CQ_ERR: {
        struct verbsdat_evd *evd = e->element.cq->cq_context;

        post_async(evd->h.ia, evd, &overflow);
        break;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        fault_of(e->element.qp->qp_context);
        break;
    case IBV_EVENT_COMM_EST: {
        struct verbsdat_ep *ep = e->element.qp->qp_context;

        verbsdat_lock(ep->h.ia);
        if (ep->id)
            rdma_notify(ep->id, IBV_EVENT_COMM_EST);
        verbsdat_unlock(ep->h.ia);
        break;
    }
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
        struct verbsdat_ep *ep = e->element.qp->qp_context;

        post_async(ep->h.ia, ep, &last);
        break;
    }
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        verbsdat_srq_low(e->element.srq->srq_context);
        break;
    default:
        break;                   /* of LIDs, keys: nothing that DAT has an error for */
    }
}

/* -- the thread -------------------------------------------------------------------------------- */

static void take_cm_events(struct verbsdat_ia *ia)
{
    struct rdma_cm_event *event;

    while (rdma_get_cm_event(ia->cm, &event) == 0)
        verbsdat_cm_event(event, ia);
}

static void take_async_events(struct verbsdat_ia *ia)
{
    struct ibv_async_event event;

    while (ibv_get_async_event(ia->verbs, &event) == 0) {
        async_event(ia, &event);
        ibv_ack_async_event(&event);
        verbsdat_cno_agents(ia);
    }
}

/* A notification of a watched EVD. Its handle may be of the past: epoll returns several. */
static void take_notification(struct verbsdat_ia *ia, struct verbsdat_evd *evd)
{
    verbsdat_lock(ia);
    if (evd->h.alive == VERBSDAT_ALIVE)
        verbsdat_evd_notified(evd, true);
    verbsdat_unlock(ia);
}

static void look(struct verbsdat_ia *ia)
{
    struct rdma_cm_id *over;

    verbsdat_lock(ia);
    if (ia->closing > 0)
        verbsdat_cm_closing(ia);
    if (atomic_exchange(&ia->faulty, false))
        verbsdat_cm_faults(ia);
    if (verbsdat_now() >= ia->next_deadline)
        verbsdat_cm_deadlines(ia);
    if (ia->abandoned) {
        ia->abandoned = false;
        verbsdat_cm_abandoned(ia);
    }
    over = verbsdat_ask_expired(ia);
    verbsdat_unlock(ia);
    if (over)
        rdma_destroy_id(over);
}

/* How long to sleep, in milliseconds, rounded up; -1: no deadline. */
static int pause_ms(struct verbsdat_ia *ia)
{
    uint64_t now = verbsdat_now(), at, ms;

    verbsdat_lock(ia);
    at = ia->next_deadline;
    verbsdat_unlock(ia);
    if (at == UINT64_MAX)
        return -1;
    ms = at <= now ? 0 : (at - now) / 1000000 + 1;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

static void *thread(void *arg)
{
    struct epoll_event e[BATCH];
    struct verbsdat_ia *ia = arg;
    bool stop = false;
    eventfd_t n;

    while (!stop) {
        int got = epoll_wait(ia->epfd, e, BATCH, pause_ms(ia));

        for (int i = 0; i < got; i++) {
            if (e[i].data.ptr == ia->cm)
                take_cm_events(ia);
            else if (e[i].data.ptr == ia->verbs)
                take_async_events(ia);
            else if (e[i].data.ptr == ia)
                eventfd_read(ia->wake_fd, &n);
            else
                take_notification(ia, e[i].data.ptr);
        }
        look(ia);
        verbsdat_lock(ia);
        stop = ia->stop;
        verbsdat_unlock(ia);
    }
    return NULL;
}

int verbsdat_thread_start(struct verbsdat_ia *ia)
{
    sigset_t all, before;
    int rc;

    ia->epfd = epoll_create1(EPOLL_CLOEXEC);
    ia->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = ia->epfd < 0 || ia->wake_fd < 0 ? errno : 0;
    if (!rc)
        rc = sleep_on(ia, ia->wake_fd, ia);
    if (!rc)
        rc = sleep_on(ia, ia->cm->fd, ia->cm);
    if (!rc)
        rc = sleep_on(ia, ia->verbs->async_fd, ia->verbs);
    if (!rc) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = pthread_create(&ia->thread, NULL, thread, ia);
        if (!rc)
            pthread_setname_np(ia->thread, "daplverbs");
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (rc && ia->epfd >= 0)
        close(ia->epfd);
    if (rc && ia->wake_fd >= 0)
        close(ia->wake_fd);
    return rc;
}

void verbsdat_thread_stop(struct verbsdat_ia *ia)
{
    verbsdat_lock(ia);
    ia->stop = true;
    verbsdat_unlock(ia);
    verbsdat_thread_wake(ia);
    pthread_join(ia->thread, NULL);
    close(ia->epfd);
    close(ia->wake_fd);
}
