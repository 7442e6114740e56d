/* SPDX-License-Identifier: MIT */
#include "datlock.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    BIAS_AFTER = 32,             /* calls in a row; a revocation costs about as much as so many */
    YIELDS = 1000,               /* to a thread that wakes up, at most */
};

void datlock_init(struct datlock *l)
{
    pthread_mutex_init(&l->mutex, NULL);
    l->may_bias = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void datlock_destroy(struct datlock *l)
{
    pthread_mutex_destroy(&l->mutex);
}

/* Ends the bias. The caller holds the mutex; the former owner may still be inside. */
static void end_bias(struct datlock *l)
{
    if (atomic_load_explicit(&l->owner, memory_order_relaxed) == 0)
        return;
    atomic_store_explicit(&l->owner, 0, memory_order_relaxed);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* Notes that this thread holds the lock through the mutex. */
static void taken(struct datlock *l)
{
    uintptr_t self = datlock_self();

    l->by_mutex = true;
    if (l->stores == self)
        l->stores = 0;
    l->in_a_row = l->last == self ? l->in_a_row + 1 : 1;
    l->last = self;
}

void datlock_slow(struct datlock *l)
{
    atomic_fetch_add_explicit(&l->waiting, 1, memory_order_relaxed);
    pthread_mutex_lock(&l->mutex);
    atomic_fetch_sub_explicit(&l->waiting, 1, memory_order_relaxed);
    end_bias(l);
    while (atomic_load_explicit(&l->inside, memory_order_acquire))
        syscall(SYS_futex, &l->inside, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    taken(l);
}

bool datlock_try_slow(struct datlock *l)
{
    if (pthread_mutex_trylock(&l->mutex))
        return false;
    end_bias(l);
    if (atomic_load_explicit(&l->inside, memory_order_acquire)) {
        pthread_mutex_unlock(&l->mutex);
        return false;
    }
    taken(l);
    return true;
}

void datlock_release_slow(struct datlock *l)
{
    l->by_mutex = false;
    if (l->may_bias && l->in_a_row >= BIAS_AFTER && l->last != l->never && l->stores == 0) {
        l->in_a_row = 0;
        l->stores = l->last;
        atomic_store_explicit(&l->owner, l->last, memory_order_release);
    }
    pthread_mutex_unlock(&l->mutex);
}

void datlock_give_way(struct datlock *l)
{
    for (int i = 0; i < YIELDS && atomic_load_explicit(&l->waiting, memory_order_relaxed); i++)
        sched_yield();
}

void datlock_wake(struct datlock *l)
{
    syscall(SYS_futex, &l->inside, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
