/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    EPOLL_BATCH = 64,                    /* descriptors served in one round */
    HELPER_PERIOD_NS = 1000 * 1000,      /* between two checks for calls of the application */
    EPOLL_PERIOD_NS = 20 * 1000,         /* between two epolls if all open connections are polled */
    EPOLL_PERIOD_MAX_NS = 160 * 1000,    /* the same after some that have found nothing */
    CLOCK_ROUNDS = 16,                   /* rounds between two reads of the clock, then */
    QUIET_ROUNDS_MAX = 256,              /* the same while only rings are polled: it adapts */
    MAX_POLLED_STREAMS = 4,              /* open connections that are read without epoll */
};

uint64_t softdat_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* -- sockets ---------------------------------------------------------------------------------- */

int softdat_sock_add(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    struct epoll_event e = { .events = events, .data.ptr = s };

    s->events = events;
    return epoll_ctl(ia->epfd, EPOLL_CTL_ADD, s->fd, &e);
}

void softdat_sock_set_events(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    struct epoll_event e = { .events = events, .data.ptr = s };

    if (s->fd < 0 || s->events == events)
        return;
    s->events = events;
    if (!s->suspended)
        epoll_ctl(ia->epfd, EPOLL_CTL_MOD, s->fd, &e);
}

void softdat_sock_suspend(struct softdat_ia *ia, struct softdat_sock *s, bool suspend)
{
    struct epoll_event e = { .events = s->events, .data.ptr = s };

    if (s->fd < 0 || s->suspended == suspend)
        return;
    s->suspended = suspend;
    epoll_ctl(ia->epfd, suspend ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, s->fd, &e);
}

void softdat_sock_close(struct softdat_ia *ia, struct softdat_sock *s)
{
    if (s->fd < 0)
        return;
    if (!s->suspended)
        epoll_ctl(ia->epfd, EPOLL_CTL_DEL, s->fd, NULL);
    close(s->fd);
    s->fd = -1;
}

/* -- the event loop --------------------------------------------------------------------------- */

static struct softdat_conn *first_expired(struct softdat_ia *ia, uint64_t now)
{
    for (struct softdat_list *l = ia->conns.next; l != &ia->conns; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        if (c->deadline && c->deadline <= now)
            return c;
    }
    return NULL;
}

/* A connection that expires gets another deadline or ends, perhaps with others: its carrier, its
 * standby. */
static void expire(struct softdat_ia *ia)
{
    uint64_t now = softdat_now();
    struct softdat_conn *c;

    while ((c = first_expired(ia, now)))
        softdat_conn_expire(c);
    softdat_standby_resume(ia);
    ia->next_deadline = softdat_standby_next(ia);
    for (struct softdat_list *l = ia->conns.next; l != &ia->conns; l = l->next) {
        uint64_t deadline = SOFTDAT_OF(l, struct softdat_conn, link)->deadline;

        if (deadline && deadline < ia->next_deadline)
            ia->next_deadline = deadline;
    }
}

/* Frees the connections that have ended in this round. */
static void free_closed(struct softdat_ia *ia)
{
    while (!softdat_list_empty(&ia->to_free)) {
        struct softdat_conn *c = SOFTDAT_OF(ia->to_free.next, struct softdat_conn, link);

        softdat_list_remove(&c->link);
        softdat_shared_free(c);
        softdat_free(c);
    }
}

static int poll_sockets(struct softdat_ia *ia)
{
    struct epoll_event e[EPOLL_BATCH];
    int n = epoll_wait(ia->epfd, e, EPOLL_BATCH, 0);

    for (int i = 0; i < n; i++) {
        struct softdat_sock *s = e[i].data.ptr;

        if (s->fd >= 0 && !s->suspended)
            s->ready(ia, s, e[i].events);
    }
    if (ia->next_deadline != UINT64_MAX && softdat_now() >= ia->next_deadline)
        expire(ia);
    return n > 0 ? n : 0;
}

static int poll_rings(struct softdat_ia *ia)
{
    struct softdat_list *l = ia->rings.next;
    int n = 0;

    ia->rings_blocked = false;
    while (l != &ia->rings) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, polled);

        l = l->next;
        ia->rings_blocked |= c->blocked || c->stalled || c->copying || softdat_path_cut(c);
        if ((softdat_shared_pending(c) || c->blocked || c->copying) && !softdat_path_cut(c))
            n += softdat_rx_ring(c);
    }
    return n;
}

bool softdat_stream_polled(const struct softdat_conn *c)
{
    return c->stream && !c->ia->doorbells_armed && c->ia->n_streams <= MAX_POLLED_STREAMS;
}

void softdat_stream_watch(struct softdat_conn *c)
{
    softdat_sock_set_events(c->ia, &c->sock, c->sock.events | EPOLLOUT);
}

/* With more streams each is watched since it has been blocked; the cost of a sleep must not grow
 * with their number. */
void softdat_streams_watch(struct softdat_ia *ia)
{
    if (ia->n_streams > MAX_POLLED_STREAMS + 1)
        return;
    for (struct softdat_list *l = ia->streams.next; l != &ia->streams; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, polled);

        if (c->blocked && !softdat_stream_polled(c))
            softdat_stream_watch(c);
    }
}

/* Polls a stream whose socket's buffer is full: one poll(), which does not take the socket's lock,
 * in place of a send and a read that would both be refused. */
static int poll_blocked(struct softdat_conn *c)
{
    struct pollfd fd = { .fd = c->sock.fd, .events = c->stalled ? POLLOUT : POLLIN | POLLOUT };
    int n = 0;

    if (poll(&fd, 1, 0) <= 0)
        return 0;
    if (fd.revents & ~POLLOUT && !c->stalled)
        n = softdat_rx_ready(c);
    if (c->sock.fd >= 0 && fd.revents & POLLOUT)
        softdat_tx_unblock(c);
    return n;
}

/* Reads the streams without epoll: for few streams an empty read is cheaper than epoll_wait(). */
static int poll_streams(struct softdat_ia *ia)
{
    struct softdat_list *l = ia->streams.next;
    int n = 0;

    while (l != &ia->streams && ia->n_streams <= MAX_POLLED_STREAMS) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, polled);

        l = l->next;
        if (c->sock.suspended)
            continue;
        if (c->blocked)
            n += poll_blocked(c);
        else if (!c->stalled)
            n += softdat_rx_ready(c);
        if (c->cur_n > 0)
            softdat_tx_progress(c);
    }
    return n;
}

/* True if this round is to poll epoll, which costs a system call. If every connection is open and
 * polled otherwise, only EPOLL_PERIOD_NS after the last time. */
static bool epoll_due(struct softdat_ia *ia)
{
    uint64_t now;

    if (ia->n_sockets > 0 || ia->n_streams > MAX_POLLED_STREAMS
        || (softdat_list_empty(&ia->rings) && softdat_list_empty(&ia->streams)))
        return true;
    if (++ia->rounds % CLOCK_ROUNDS)
        return false;
    now = softdat_now();
    if (now - ia->last_epoll < ia->epoll_period) {
        if (ia->quiet_rounds < QUIET_ROUNDS_MAX)
            ia->quiet_rounds *= 2;
        return false;
    }
    if (ia->quiet_rounds > CLOCK_ROUNDS)
        ia->quiet_rounds /= 2;
    ia->last_epoll = now;
    return true;
}

/* True if nothing is to be polled but rings that are not blocked. */
static bool only_rings(const struct softdat_ia *ia)
{
    return !ia->doorbells_armed && ia->n_sockets == 0 && softdat_list_empty(&ia->streams)
           && softdat_list_empty(&ia->acks) && softdat_list_empty(&ia->delayed)
           && softdat_list_empty(&ia->to_break) && !ia->fatal && !ia->listen_resume_at
           && !ia->rings_blocked && !softdat_list_empty(&ia->rings)
           && !ia->cfg.port[0].cut && !ia->cfg.port[1].cut;
}

/* Chooses which of the following calls makes the next complete round, which reads the clock. */
static void plan_rounds(struct softdat_ia *ia)
{
    softdat_round_complete(ia);
    if (!only_rings(ia))
        return;
    ia->next_complete += ia->quiet_rounds;
    ia->rounds |= CLOCK_ROUNDS - 1;
}

/* Ends a round: delayed connections, injected faults, ended connections, paused accepting. */
static void end_round(struct softdat_ia *ia)
{
    if (!softdat_list_empty(&ia->delayed))
        softdat_delay_resume(ia);
    if (ia->fatal || !softdat_list_empty(&ia->to_break))
        softdat_fault_execute(ia);
    if (!softdat_list_empty(&ia->to_free))
        free_closed(ia);
    if (ia->listen_resume_at && softdat_now() >= ia->listen_resume_at)
        softdat_listen_resume(ia);
}

/* Polls epoll: the more rarely the longer it has found nothing. */
static int poll_epoll(struct softdat_ia *ia)
{
    int n = poll_sockets(ia);

    if (n > 0)
        ia->epoll_period = EPOLL_PERIOD_NS;
    else if (ia->epoll_period < EPOLL_PERIOD_MAX_NS)
        ia->epoll_period *= 2;
    return n;
}

/* Polls rings, streams and, when due, epoll. Returns the number of sources that had input. */
static int complete_round(struct softdat_ia *ia)
{
    int n;

    softdat_changing(ia);
    /* This thread polls, so peers need send no doorbells; the helper thread checks that it goes
     * on. */
    if (softdat_shared_disarm(ia))
        softdat_helper_wake(ia);
    ia->work_pending = false;
    n = poll_rings(ia) + poll_streams(ia);
    if (epoll_due(ia))
        n += poll_epoll(ia);
    if (n > 0)
        ia->idle_since = 0;
    else if (!softdat_list_empty(&ia->acks))
        softdat_acks_when_idle(ia);
    end_round(ia);
    plan_rounds(ia);
    return n;
}

void softdat_progress(struct softdat_ia *ia)
{
    uint32_t n = softdat_count_call(ia);
    struct softdat_list *l = ia->rings.next;

    if (!softdat_round_quiet(ia, n)) {
        complete_round(ia);
        return;
    }
    /* As poll_rings(), without its checks: no ring is blocked or cut in a quiet round. */
    while (l != &ia->rings) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, polled);

        l = l->next;
        if (softdat_shared_pending(c))
            softdat_rx_ring(c);
    }
    if (!softdat_round_quiet(ia, n))
        end_round(ia);
}

int softdat_progress_blocking(struct softdat_ia *ia)
{
    int n;

    if (!ia->doorbells_armed || ia->work_pending)
        return complete_round(ia);
    n = poll_sockets(ia);
    end_round(ia);
    softdat_round_complete(ia);
    return n;
}

/* -- sleeping --------------------------------------------------------------------------------- */

/* Returns the time, ns, of the next work that no descriptor announces; UINT64_MAX: none. */
static uint64_t next_due(struct softdat_ia *ia)
{
    uint64_t due = softdat_delay_next(ia);

    if (ia->fatal || !softdat_list_empty(&ia->to_break))
        return 0;
    if (ia->listen_resume_at && ia->listen_resume_at < due)
        due = ia->listen_resume_at;
    return ia->next_deadline < due ? ia->next_deadline : due;
}

/* Blocks without the lock until a descriptor is ready, the next due time, or for ns. */
static void block_on(struct softdat_ia *ia, struct pollfd *fd, nfds_t n, uint64_t ns)
{
    uint64_t due = next_due(ia), now = due == UINT64_MAX ? 0 : softdat_now();
    struct timespec t;

    if (due != UINT64_MAX && (due <= now || due - now < ns))
        ns = due > now ? due - now : 0;
    t.tv_sec = (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    softdat_unlock(ia);
    ppoll(fd, n, ns == UINT64_MAX ? NULL : &t, NULL);
    softdat_lock(ia);
}

void softdat_sleep(struct softdat_ia *ia, int efd, uint64_t ns)
{
    struct pollfd fd[2] = { { .fd = ia->epfd, .events = POLLIN }, { .fd = efd, .events = POLLIN } };
    bool may_sleep;

    softdat_acks_flush(ia);
    may_sleep = softdat_shared_arm(ia);
    softdat_streams_watch(ia);
    if (may_sleep) {
        block_on(ia, fd, efd >= 0 ? 2 : 1, ns);
        return;
    }
    softdat_unlock(ia);
    datlock_give_way(&ia->lock);
    softdat_lock(ia);
}

/* -- the helper thread ------------------------------------------------------------------------ */

/*
 * Makes progress while the application computes: connection requests, RDMA to and from this
 * process's memory, receives. Its states:
 *
 *      MONITORING  the application polls: checks every HELPER_PERIOD_NS whether it goes on
 *      SERVING     the application has made no call for one period: sleeps until a descriptor, a
 *                  doorbell or a deadline, then makes progress. An idle adapter never wakes it.
 *      STANDBY     a thread of the application sleeps in a wait and makes progress itself
 *
 * A call that polls and the end of a wait return it to MONITORING. So work is served at most two
 * periods after the application's last call, and at once from then on.
 */
static void wait_period(struct softdat_ia *ia)
{
    struct pollfd fd = { .fd = ia->wake_fd, .events = POLLIN };
    struct timespec t = { 0, HELPER_PERIOD_NS };

    ppoll(&fd, 1, &t, NULL);
}

void softdat_helper_wake(struct softdat_ia *ia)
{
    uint64_t one = 1;

    if (ia->helper_state == SOFTDAT_HELPER_MONITORING)
        return;
    ia->helper_state = SOFTDAT_HELPER_MONITORING;
    if (write(ia->wake_fd, &one, sizeof(one)) < 0)
        return;                  /* the counter is full: the thread wakes anyway */
}

void softdat_request_progress(struct softdat_ia *ia)
{
    ia->work_pending = true;
    softdat_helper_wake(ia);
}

static void standby(struct softdat_ia *ia)
{
    struct pollfd fd = { .fd = ia->wake_fd, .events = POLLIN };

    ia->helper_state = SOFTDAT_HELPER_STANDBY;
    block_on(ia, &fd, 1, UINT64_MAX);
}

static void serve(struct softdat_ia *ia)
{
    if (softdat_progress_blocking(ia) > 0)
        return;
    ia->helper_state = SOFTDAT_HELPER_SERVING;
    softdat_sleep(ia, ia->wake_fd, UINT64_MAX);
}

/* One round after a period without a call of the application. */
static void helper_round(struct softdat_ia *ia)
{
    uint64_t n;

    softdat_lock(ia);
    if (ia->waiters > 0 && ia->doorbells_armed && next_due(ia) > softdat_now())
        standby(ia);
    else
        serve(ia);
    ia->helper_state = SOFTDAT_HELPER_MONITORING;
    softdat_unlock(ia);
    datlock_give_way(&ia->lock);
    if (read(ia->wake_fd, &n, sizeof(n)) < 0)
        return;                  /* it was not woken by this descriptor */
}

static void *helper_main(void *arg)
{
    struct softdat_ia *ia = arg;
    uint32_t seen = 0;

    softdat_lock(ia);
    ia->lock.never = datlock_self();
    softdat_unlock(ia);
    while (!atomic_load(&ia->stopping)) {
        uint32_t calls = atomic_load(&ia->calls);

        if (calls != seen)
            wait_period(ia);
        else
            helper_round(ia);
        seen = calls;
    }
    return NULL;
}

/* Starts the helper thread with all signals blocked: a signal that the program handles, or waits
 * for in one of its own threads, must not be delivered here. Returns 0 or an errno value. */
static int start_helper(struct softdat_ia *ia)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&ia->helper, NULL, helper_main, ia);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int softdat_net_start(struct softdat_ia *ia)
{
    int cause;

    ia->quiet_rounds = CLOCK_ROUNDS;
    ia->epoll_period = EPOLL_PERIOD_NS;
    ia->epfd = epoll_create1(EPOLL_CLOEXEC);
    ia->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ia->epfd >= 0 && ia->wake_fd >= 0) {
        softdat_path_start(ia);
        softdat_control_start(ia);
        cause = start_helper(ia);
        ia->helper_runs = cause == 0;
        if (ia->helper_runs)
            return 0;
        softdat_path_stop(ia);
        softdat_control_stop(ia);
        errno = cause;
    }
    if (ia->epfd >= 0)
        close(ia->epfd);
    if (ia->wake_fd >= 0)
        close(ia->wake_fd);
    return -1;
}

void softdat_net_stop(struct softdat_ia *ia)
{
    uint64_t one = 1;

    atomic_store(&ia->stopping, true);
    while (write(ia->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    if (ia->helper_runs)
        pthread_join(ia->helper, NULL);
    softdat_lock(ia);
    while (!softdat_list_empty(&ia->conns))
        softdat_conn_free(SOFTDAT_OF(ia->conns.next, struct softdat_conn, link));
    free_closed(ia);
    softdat_path_stop(ia);
    softdat_control_stop(ia);
    softdat_unlock(ia);
    close(ia->epfd);
    close(ia->wake_fd);
}
