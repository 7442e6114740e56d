/* SPDX-License-Identifier: MIT */
/*
 * A process that sleeps until a doorbell is rung. It polls no inring then, so that each message
 * rings.
 *
 * `asleep` is sequentially consistent, as `doorbell_words` is: the sleeper stores `asleep` and then
 * loads `doorbell_words`, a writer sets its bit there and then loads `asleep`, so one of them sees
 * what the other has stored.
 *
 * The system may wake a process on the core of its waker, although both go on: where another job
 * uses the cores, too, none is idle. There each message would cost a time slice, because the one
 * polls until the other has the core, and as many processes on each core as on the others look
 * balanced. A rank that polls is meant to have a core that no other one of its job uses: it returns
 * to the one that it slept on.
 */
#include "peer.h"

#include "cfg.h"
#include "channel.h"
#include "stats.h"

void mdapl_shm_sleep_end(struct mdapl_shm_peer *peer)
{
    struct mdapl_shm_seg_head *far = peer->far.head;

    if (!atomic_load(&far->asleep) || !atomic_exchange(&far->asleep, 0))
        return;
    peer->s->stats->shm_wakes++;
    atomic_store_explicit(&far->waker_core, mdapl_shm_os_core(), memory_order_relaxed);
    mdapl_shm_os_wake(&far->asleep);
}

void mdapl_shm_sleep_wake(struct mdapl_shm_chan *s)
{
    if (atomic_exchange(&s->seg.head->asleep, 0))
        mdapl_shm_os_wake(&s->seg.head->asleep);
}

static void leave_waker(struct mdapl_shm_chan *s, int home)
{
    int waker = atomic_load_explicit(&s->seg.head->waker_core, memory_order_relaxed);

    if (waker >= 0 && waker == mdapl_shm_os_core() && mdapl_ctx_cfg(s->ctx)->spin_polls != 0
        && mdapl_shm_os_core_leave(waker, home))
        s->stats->shm_core_moves++;
}

void mdapl_shm_sleep(struct mdapl_shm_chan *s, uint64_t ns)
{
    struct mdapl_shm_seg_head *head = s->seg.head;
    int home = mdapl_shm_os_core();
    bool in_barrier;

    if (!mdapl_shm_polled_stop(s))
        return;
    atomic_store_explicit(&head->waker_core, -1, memory_order_relaxed);
    in_barrier = mdapl_shm_node_barrier_sleep(s);
    atomic_store(&head->asleep, 1);
    if (atomic_load(&head->doorbell_words) == 0
        && !(in_barrier && mdapl_shm_node_barrier_passed(s))) {
        s->stats->shm_sleeps++;
        mdapl_ctx_sleep_begin(s->ctx);
        mdapl_shm_os_sleep(&head->asleep, 1, ns);
        leave_waker(s, home);
        mdapl_ctx_sleep_end(s->ctx);
        s->slept = true;
    }
    atomic_store(&head->asleep, 0);
    if (in_barrier)
        mdapl_shm_node_barrier_wakes(s);
}
