/* SPDX-License-Identifier: MIT */
#ifndef DATLOCK_H
#define DATLOCK_H
/*
 * A lock that is biased to the thread that takes it most: its owner takes and releases it by plain
 * loads and stores, without a locked instruction; any other thread revokes the bias first, which
 * costs the system call membarrier() (Dice, Moir, Scherer: "Quickly reacquirable locks", 2003). A
 * provider's calls come nearly always from one thread of the program, and its own thread sleeps.
 *
 * The owner stores `inside`, then loads `owner`. A thread that revokes the bias holds the mutex,
 * stores owner = 0, executes membarrier(), which makes each running thread of the process execute a
 * fence, then loads `inside`. So either the owner reads that its bias is revoked, or the other
 * thread reads that the owner is inside, and waits. A thread that has taken the mutex BIAS_AFTER
 * times in a row becomes the owner. Without membarrier() there is no owner, and the mutex is the
 * lock.
 *
 * A former owner may have been suspended after it read that it is the owner and before it stores
 * `inside`, which would then be another owner's. So the lock is biased to another thread only when
 * the former owner has taken the mutex since.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct datlock {
    _Atomic uintptr_t owner;     /* the thread that needs no mutex, datlock_self(); 0: none */
    _Atomic uint32_t inside;     /* 1: the owner holds the lock, or checks whether it may */
    bool by_mutex;               /* the holder has the mutex; changed and read by the holder */
    bool may_bias;               /* membarrier() is available */
    _Atomic uint32_t waiting;    /* threads that wait for the mutex */
    unsigned in_a_row;           /* times that `last` has taken the mutex in a row */
    uintptr_t last;              /* the thread that took it last */
    uintptr_t stores;            /* the thread that may still store `inside`; 0: none */
    uintptr_t never;             /* this thread never becomes the owner */
    pthread_mutex_t mutex;
};

/* datlock.c */
void datlock_init(struct datlock *l);
void datlock_destroy(struct datlock *l);
/* Takes the lock through the mutex, after revoking another thread's bias. */
void datlock_slow(struct datlock *l);
/* The same without waiting. False: another thread holds the lock. */
bool datlock_try_slow(struct datlock *l);
/* Releases the mutex; the thread may become the owner. */
void datlock_release_slow(struct datlock *l);
/* Lets the threads that wait for the lock, which this one has just released and is going to take
 * again, go first: it would nearly always be before a thread that has to wake up. */
void datlock_give_way(struct datlock *l);
/* Wakes the thread that waits in datlock_slow() for the end of a call of the former owner. */
void datlock_wake(struct datlock *l);

/* Identifies this thread. A call of pthread_self() would cost more than the lock does. */
static inline uintptr_t datlock_self(void)
{
    return (uintptr_t)__builtin_thread_pointer();
}

/* True if this thread is the owner. */
static inline bool datlock_owned(const struct datlock *l)
{
    return atomic_load_explicit(&l->owner, memory_order_relaxed) == datlock_self();
}

/* The owner stores that it is inside. False: its bias is revoked, and datlock_leave()
 * follows. */
static inline bool datlock_begin(struct datlock *l)
{
    atomic_store_explicit(&l->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return datlock_owned(l);
}

/* Ends a call of the owner, or of a thread whose bias has been revoked as it entered. False: a
 * thread may wait for that, and datlock_wake() follows. */
static inline bool datlock_end(struct datlock *l)
{
    atomic_store_explicit(&l->inside, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    return atomic_load_explicit(&l->owner, memory_order_relaxed) != 0;
}

static inline void datlock_leave(struct datlock *l)
{
    if (!datlock_end(l))
        datlock_wake(l);
}

/* Takes the lock if this thread is the owner. */
static inline bool datlock_enter(struct datlock *l)
{
    if (!datlock_owned(l))
        return false;
    if (datlock_begin(l))
        return true;
    datlock_leave(l);
    return false;
}

static inline void datlock_take(struct datlock *l)
{
    if (!datlock_enter(l))
        datlock_slow(l);
}

/* False: another thread holds the lock. */
static inline bool datlock_try(struct datlock *l)
{
    return datlock_enter(l) || datlock_try_slow(l);
}

static inline void datlock_release(struct datlock *l)
{
    if (l->by_mutex)
        datlock_release_slow(l);
    else
        datlock_leave(l);
}

#endif
