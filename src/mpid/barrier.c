/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

/*
 * The launcher's barrier. A rank that has died never enters it, and then the call never
 * returns: it has no timeout, and Hydra answers nobody. So a thread calls it. The calling thread
 * waits, and gives the barrier up when the launcher reports that a rank has ended (lost.c). A peer
 * that is lost for another reason may still be on its way to MPI_Finalize: it has
 * MPIR_CVAR_DAPL_CONNECT_TIMEOUT_MS, then the job ends. With MPIR_CVAR_ENABLE_FT nobody waits for
 * it: it may be a rank that has left the barrier out because it knew of a death before this one.
 *
 * After the wiring, and in MPI_Finalize, the calling thread makes progress meanwhile: it needs no
 * other rank any more, but a connection may break whose other end still needs it, and then this
 * rank has to accept another one.
 */
enum { LOOK_MS = 20 };           /* the longest time between two looks at what is reported */

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

/* False: a rank has ended, so the barrier cannot be complete. */
static bool wait_for_all(struct mdapl_ch3_glue *g, bool serve, sem_t *complete)
{
    uint64_t limit = mdapl_ctx_now(g->ctx) + MDAPL_MS(g->cfg.connect_timeout_ms);
    int wait_ms = 0, lost_before = g->n_lost_ranks;

    while (!is_complete(complete, wait_ms)) {
        bool moved = serve && mdapl_progress(g->ctx) > 0;

        wait_ms = moved ? 0 : wait_ms < LOOK_MS / 2 ? 2 * wait_ms + 1 : LOOK_MS;
        if (g->signalled || (MPIR_CVAR_ENABLE_FT && g->n_lost_ranks > lost_before))
            return false;
        if (g->n_lost_ranks > 0 && mdapl_ctx_now(g->ctx) > limit)
            mdapl_ch3_end_job(
                "the job ends: a rank that was lost has not called MPI_Finalize within "
                "MPIR_CVAR_DAPL_CONNECT_TIMEOUT_MS=%lld after this one",
                (long long)g->cfg.connect_timeout_ms);
    }
    return true;
}

int mdapl_ch3_barrier(struct mdapl_ch3_glue *g, bool serve)
{
    struct barrier b = { .rc = MPI_SUCCESS };
    bool complete = true;
    pthread_t thread;

    if ((g->n_lost_ranks > 0 || g->n_dead > 0 || g->signalled) && mdapl_ch3_lost_any_dead(g))
        return -ECONNRESET;
    sem_init(&b.complete, 0, 0);
    if (start(&thread, &b) == 0) {
        complete = wait_for_all(g, serve, &b.complete);
        if (!complete)
            pthread_cancel(thread);
        pthread_join(thread, NULL);
    } else {
        enter(&b);
    }
    sem_destroy(&b.complete);
    return !complete ? -ECONNRESET : b.rc == MPI_SUCCESS ? 0 : -EIO;
}
