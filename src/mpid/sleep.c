/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"
#include "min.h"

#include <pthread.h>
#include <time.h>

/*
 * How waiting threads sleep. One at a time sleeps in the channels, which an event of theirs ends,
 * and makes progress for all. With MPI_THREAD_MULTIPLE the others sleep until something has
 * completed, by any thread. The thread in the channels leaves MPICH's critical section only while
 * it sleeps: what is in struct mdapl_ch3_sleep, but `serial`, is of the thread in the section.
 */

volatile int MPIDI_CH3I_progress_blocked;        /* threads that sleep; CH3 declares it */

enum {
    FOLLOWER_SLEEPS = 20,        /* as long as so many sleeps in the channels: then a thread that
                                  * waits for a completion looks itself */
    ALONE_US = 50,               /* of a rank without channels */
};

void mdapl_ch3_sleep_init(struct mdapl_ch3_sleep *s)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->completion, &attr);
    pthread_condattr_destroy(&attr);
}

void mdapl_ch3_sleep_begin(void *owner)
{
    struct mdapl_ch3_glue *g = owner;

    g->sleep.asleep = true;
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
}

void mdapl_ch3_sleep_end(void *owner)
{
    struct mdapl_ch3_glue *g = owner;

    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    g->sleep.asleep = false;
}

/* Ends the sleep in the channels, if a thread is in it. */
static void wake_sleeper(struct mdapl_ch3_glue *g)
{
    if (!g->sleep.asleep)
        return;
    g->sleep.asleep = false;
    mdapl_wake(g->ctx);
}

/* CH3's name: something has completed while threads sleep. */
void MPIDI_CH3I_Progress_wakeup(void)
{
    struct mdapl_ch3_sleep *s = &mdapl_ch3_glue.sleep;

    pthread_mutex_lock(&s->lock);
    s->serial++;
    pthread_cond_broadcast(&s->completion);
    pthread_mutex_unlock(&s->lock);
    wake_sleeper(&mdapl_ch3_glue);
}

static struct timespec in_ns(uint64_t ns)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec;
    return (struct timespec){ t.tv_sec + (time_t)(ns / MDAPL_MS(1000)),
                              (long)(ns % MDAPL_MS(1000)) };
}

static void await_completion(struct mdapl_ch3_sleep *s, uint64_t ns)
{
    const struct timespec end = in_ns(ns);
    unsigned seen;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    seen = s->serial;
    MPID_THREAD_CS_EXIT(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
    while (s->serial == seen && rc == 0)
        rc = pthread_cond_timedwait(&s->completion, &s->lock, &end);
    pthread_mutex_unlock(&s->lock);
    MPID_THREAD_CS_ENTER(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
}

void mdapl_ch3_sleep(struct mdapl_ch3_glue *g)
{
    uint64_t ns = MDAPL_US(g->cfg.sleep_us);
    struct mdapl_ch3_sleep *s = &g->sleep;

    MPIDI_CH3I_progress_blocked++;
    if (!g->ctx) {               /* a job of one rank: its other threads, or schedules to poll */
        await_completion(s, mdapl_min(ns, MDAPL_US(ALONE_US)));
    } else if (s->taken) {
        /* What this thread has begun may need an earlier end of the other one's sleep. */
        wake_sleeper(g);
        await_completion(s, FOLLOWER_SLEEPS * ns);
    } else {
        s->taken = true;
        mdapl_wait(g->ctx, ns);
        s->taken = false;
    }
    MPIDI_CH3I_progress_blocked--;
}
