/* SPDX-License-Identifier: MIT */
#include "launch.h"

#include "mpidimpl.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

/*
 * A rank that has died never enters the launcher's barrier, and then the call never returns: it has
 * no timeout, and Hydra answers nobody. So a thread calls it. The calling thread waits, and makes
 * progress meanwhile where its caller wants it.
 */
enum { LOOK_MS = 20 };           /* the longest time between two calls of meanwhile() */

struct barrier {
    sem_t complete;
    int rc;                      /* an MPI error code */
};

static void *enter(void *arg)
{
    struct barrier *b = arg;

    b->rc = MPIR_pmi_barrier();
    sem_post(&b->complete);
    return NULL;
}

/* The signals of the program are for its own threads. */
static int start(pthread_t *thread, struct barrier *b)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(thread, NULL, enter, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static bool is_complete(sem_t *complete, int wait_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += wait_ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return sem_timedwait(complete, &until) == 0;
}

static int wait_for_all(sem_t *complete, int (*meanwhile)(void *arg), void *arg)
{
    int wait_ms = 0, rc;

    while (!is_complete(complete, wait_ms)) {
        rc = meanwhile(arg);
        if (rc < 0)
            return rc;
        wait_ms = rc > 0 ? 0 : wait_ms < LOOK_MS / 2 ? 2 * wait_ms + 1 : LOOK_MS;
    }
    return 0;
}

int mdapl_launch_barrier(int (*meanwhile)(void *arg), void *arg)
{
    struct barrier b = { .rc = MPI_SUCCESS };
    pthread_t thread;
    int rc = 0;

    sem_init(&b.complete, 0, 0);
    if (start(&thread, &b) == 0) {
        rc = wait_for_all(&b.complete, meanwhile, arg);
        if (rc)
            pthread_cancel(thread);
        pthread_join(thread, NULL);
    } else {
        enter(&b);
    }
    sem_destroy(&b.complete);
    return rc ? rc : b.rc == MPI_SUCCESS ? 0 : -EIO;
}
