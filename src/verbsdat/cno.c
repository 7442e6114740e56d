/* SPDX-License-Identifier: MIT */
#include "verbsdat.h"
#include "calls.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static struct verbsdat_cno *cno_of(DAT_CNO_HANDLE handle)
{
    return verbsdat_get(handle, DAT_HANDLE_TYPE_CNO);
}

static const DAT_RETURN bad_cno = DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CNO;

uint64_t verbsdat_wait_left(uint64_t start, DAT_TIMEOUT us)
{
    uint64_t spent = verbsdat_now() - start, all = (uint64_t)us * 1000;

    if (us == DAT_TIMEOUT_INFINITE)
        return UINT64_MAX;
    return spent >= all ? 0 : all - spent;
}

void verbsdat_sleep(int fd, int other, uint64_t ns)
{
    struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = other, .events = POLLIN } };
    struct timespec t = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };

    ppoll(p, 2, ns == UINT64_MAX ? NULL : &t, NULL);
}

/* -- notifying --------------------------------------------------------------------------------- */

void verbsdat_cno_trigger(struct verbsdat_cno *cno, struct verbsdat_evd *evd)
{
    pthread_mutex_lock(&cno->lock);
    if (!cno->fired) {
        cno->fired = evd;
        eventfd_write(cno->efd, 1);
        if (cno->agent.proxy_agent_func && !cno->agent_due) {
            cno->agent_due = true;
            atomic_fetch_add(&cno->h.ia->agents_due, 1);
        }
    }
    pthread_mutex_unlock(&cno->lock);
}

bool verbsdat_cno_has_agent(struct verbsdat_cno *cno)
{
    bool has;

    pthread_mutex_lock(&cno->lock);
    has = cno->agent.proxy_agent_func != NULL;
    pthread_mutex_unlock(&cno->lock);
    return has;
}

/* The next agent that is due, with the EVD that triggered its CNO. */
static bool next_due(struct verbsdat_ia *ia, DAT_OS_WAIT_PROXY_AGENT *agent, DAT_EVD_HANDLE *evd)
{
    bool found = false;

    pthread_mutex_lock(&ia->lock);
    for (struct mdapl_list *l = ia->objects.next; l != &ia->objects && !found; l = l->next) {
        struct verbsdat_cno *cno = (void *)MDAPL_OF(l, struct verbsdat_handle, link);

        if (cno->h.type != DAT_HANDLE_TYPE_CNO)
            continue;
        pthread_mutex_lock(&cno->lock);
        found = cno->agent_due;
        if (found) {
            cno->agent_due = false;
            atomic_fetch_sub(&ia->agents_due, 1);
            *agent = cno->agent;
            *evd = cno->fired;
        }
        pthread_mutex_unlock(&cno->lock);
    }
    pthread_mutex_unlock(&ia->lock);
    return found;
}

void verbsdat_cno_agents(struct verbsdat_ia *ia)
{
    DAT_OS_WAIT_PROXY_AGENT agent;
    DAT_EVD_HANDLE evd;

    while (atomic_load(&ia->agents_due) > 0 && next_due(ia, &agent, &evd))
        if (agent.proxy_agent_func)
            agent.proxy_agent_func(agent.instance_data, evd);
}

void verbsdat_cno_attach(struct verbsdat_cno *cno, struct verbsdat_evd *evd)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = evd };

    pthread_mutex_lock(&cno->lock);
    cno->users++;
    pthread_mutex_unlock(&cno->lock);
    if (evd->cq)
        epoll_ctl(cno->epfd, EPOLL_CTL_ADD, evd->channel->fd, &e);
}

void verbsdat_cno_detach(struct verbsdat_cno *cno, struct verbsdat_evd *evd)
{
    eventfd_t n;

    if (evd->cq)
        epoll_ctl(cno->epfd, EPOLL_CTL_DEL, evd->channel->fd, NULL);
    pthread_mutex_lock(&cno->lock);
    cno->users--;
    if (cno->fired == evd) {
        cno->fired = NULL;
        eventfd_read(cno->efd, &n);
    }
    pthread_mutex_unlock(&cno->lock);
}

/* -- calls ------------------------------------------------------------------------------------- */

static bool open_descriptors(struct verbsdat_cno *cno)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL };

    cno->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cno->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (cno->efd >= 0 && cno->epfd >= 0 && !epoll_ctl(cno->epfd, EPOLL_CTL_ADD, cno->efd, &e))
        return true;
    if (cno->efd >= 0)
        close(cno->efd);
    if (cno->epfd >= 0)
        close(cno->epfd);
    return false;
}

DAT_RETURN verbsdat_cno_create(DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent,
                               DAT_CNO_HANDLE *cno_p)
{
    struct verbsdat_ia *ia = verbsdat_ia_of(ia_handle);
    struct verbsdat_cno *cno;

    if (!ia)
        return VERBSDAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    cno = calloc(1, sizeof(*cno));
    if (!cno || !open_descriptors(cno)) {
        free(cno);
        return VERBSDAT_ERROR(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
    }
    cno->agent = agent;
    pthread_mutex_init(&cno->lock, NULL);
    verbsdat_handle_add(&cno->h, ia, DAT_HANDLE_TYPE_CNO);
    *cno_p = cno;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_cno_modify_agent(DAT_CNO_HANDLE handle, DAT_OS_WAIT_PROXY_AGENT agent)
{
    struct verbsdat_cno *cno = cno_of(handle);
    struct verbsdat_ia *ia;

    if (!cno)
        return bad_cno;
    ia = cno->h.ia;
    verbsdat_lock(ia);
    pthread_mutex_lock(&cno->lock);
    cno->agent = agent;
    pthread_mutex_unlock(&cno->lock);
    for (struct mdapl_list *l = ia->objects.next; l != &ia->objects; l = l->next) {
        struct verbsdat_evd *evd = (void *)MDAPL_OF(l, struct verbsdat_handle, link);

        if (evd->h.type == DAT_HANDLE_TYPE_EVD && evd->cno == cno)
            verbsdat_evd_watch(evd);
    }
    verbsdat_unlock(ia);
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_cno_query(DAT_CNO_HANDLE handle, DAT_CNO_PARAM_MASK mask, DAT_CNO_PARAM *param)
{
    struct verbsdat_cno *cno = cno_of(handle);

    (void)mask;
    if (!cno)
        return bad_cno;
    if (!param)
        return VERBSDAT_ERROR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
    param->ia_handle = cno->h.ia;
    param->proxy_type = cno->agent.proxy_agent_func ? DAT_PROXY_TYPE_AGENT : DAT_PROXY_TYPE_NONE;
    param->proxy.agent = cno->agent;
    return DAT_SUCCESS;
}

DAT_RETURN verbsdat_cno_free(DAT_CNO_HANDLE handle)
{
    struct verbsdat_cno *cno = cno_of(handle);
    struct verbsdat_ia *ia;
    bool used;

    if (!cno)
        return bad_cno;
    ia = cno->h.ia;
    verbsdat_lock(ia);
    used = cno->users > 0 || cno->waiters > 0;
    if (!used) {
        atomic_fetch_sub(&ia->agents_due, cno->agent_due);
        close(cno->epfd);
        close(cno->efd);
        verbsdat_handle_end(&cno->h);
    }
    verbsdat_unlock(ia);
    return used ? VERBSDAT_ERROR(DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE) : DAT_SUCCESS;
}

/* Takes what has triggered the CNO; NULL: nothing has. */
static struct verbsdat_evd *take(struct verbsdat_cno *cno)
{
    struct verbsdat_evd *evd;
    eventfd_t n;

    pthread_mutex_lock(&cno->lock);
    evd = cno->fired;
    cno->fired = NULL;
    if (evd)
        eventfd_read(cno->efd, &n);
    pthread_mutex_unlock(&cno->lock);
    return evd;
}

/* The EVD of one notification of a CQ that has arrived; NULL: none. */
static struct verbsdat_evd *notified(struct verbsdat_cno *cno)
{
    struct epoll_event e;
    struct verbsdat_evd *evd;

    while (epoll_wait(cno->epfd, &e, 1, 0) == 1 && e.data.ptr) {
        evd = e.data.ptr;
        if (verbsdat_evd_notified(evd, false))
            return evd;
    }
    return NULL;
}

DAT_RETURN verbsdat_cno_wait(DAT_CNO_HANDLE handle, DAT_TIMEOUT us, DAT_EVD_HANDLE *evd_p)
{
    struct verbsdat_cno *cno = cno_of(handle);
    uint64_t start = verbsdat_now(), rest = 1;
    struct verbsdat_evd *evd = NULL;

    if (!cno)
        return bad_cno;
    pthread_mutex_lock(&cno->lock);
    cno->waiters++;
    pthread_mutex_unlock(&cno->lock);
    while (rest > 0) {
        evd = take(cno);
        if (!evd)
            evd = notified(cno);
        rest = evd ? 0 : verbsdat_wait_left(start, us);
        if (rest > 0)
            verbsdat_sleep(cno->epfd, -1, rest);
    }
    pthread_mutex_lock(&cno->lock);
    cno->waiters--;
    pthread_mutex_unlock(&cno->lock);
    *evd_p = evd;
    return evd ? DAT_SUCCESS : VERBSDAT_ERROR(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE);
}
