/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"

#include <sched.h>

volatile unsigned int MPIDI_CH3I_progress_completion_count;

enum { REST_ROUNDS = 16 };       /* poll_rest() is called at least every so many rounds */

/* Makes progress in the channels. Returns how much there was: messages above all. */
static int poll_channels(void)
{
    if (!mdapl_ch3_glue.ctx)
        return 0;
    if (mdapl_ch3_glue.recvs.paused)
        mdapl_ch3_unexpected_waiting(&mdapl_ch3_glue);
    return mdapl_progress(mdapl_ch3_glue.ctx);
}

/* The rarer work: MPICH's progress hooks (schedules of collectives), VCs to terminate, lost
 * peers. */
static int poll_rest(bool *moved_p)
{
    int by_hooks = 0, mpi_errno = mdapl_mpich_run_hooks(&by_hooks);

    if (mpi_errno != MPI_SUCCESS)
        return mpi_errno;
    if (by_hooks) {
        *moved_p = true;
        MPIDI_CH3_Progress_signal_completion();
    }
    mdapl_ch3_lost_poll(*moved_p);
    mdapl_ch3_group_poll(&mdapl_ch3_glue);
    return mdapl_ch3_vc_terminate_idle();
}

/*
 * How often a wait yields before it sleeps: as the knob says, or yields.h. A rank that has spun on
 * a core of its own does not: where another job has put the rank that it waits for on that core,
 * yields keep both there, and each message costs a spin, while a sleeper leaves the core of its
 * waker (src/shm/sleep.c).
 */
static int64_t yields_allowed(const struct mdapl_ch3_glue *g)
{
    if (g->cfg.yield_polls >= 0)
        return g->cfg.yield_polls;
    if (g->oversubscribed)
        return mdapl_yields_allowed(&g->yields);
    return g->cfg.spin_polls > 0 ? 0 : MDAPL_YIELDS_ALONE;
}

static void yield_core(struct mdapl_ch3_glue *g)
{
    uint64_t begin = g->ctx ? mdapl_ctx_now(g->ctx) : 0;

    sched_yield();
    if (g->ctx)
        mdapl_yields_took(&g->yields, begin, mdapl_ctx_now(g->ctx));
}

/* After `polls` empty rounds in a row, and one more: spin, then yield the core, then sleep. */
static void idle(struct mdapl_ch3_glue *g, int64_t polls)
{
    int64_t yields = polls - g->cfg.spin_polls;

    if (yields < 0)
        return;
    if (yields < yields_allowed(g)) {
        yield_core(g);
        return;
    }
    if (yields == yields_allowed(g))
        mdapl_yields_spent(&g->yields);
    mdapl_ch3_sleep(g);
}

static bool completed(const void *state)
{
    return ((const MPID_Progress_state *)state)->ch.completion_count
           != MPIDI_CH3I_progress_completion_count;
}

/*
 * A rank that waits for a message polls idle channels most of the time. It does the rarer work when
 * progress was made on something else, when the wait is long, and every REST_ROUNDS rounds.
 */
static bool rest_is_due(bool over, int64_t polls, bool moved)
{
    return (moved && !over) || polls >= mdapl_ch3_glue.cfg.spin_polls
           || ++mdapl_ch3_glue.rounds % REST_ROUNDS == 0;
}

/* Waits until over(arg), after a first round of progress; moved: there was some, due: so is the
 * rarer work. */
__attribute__((always_inline)) static inline int wait_until(bool (*over)(const void *arg),
                                                            const void *arg, bool moved, bool due)
{
    int64_t polls = mdapl_ch3_glue.spun;
    int mpi_errno = MPI_SUCCESS;

    mdapl_ch3_glue.spun = 0;
    for (;;) {
        int n;

        if (due)
            mpi_errno = poll_rest(&moved);
        if (mpi_errno != MPI_SUCCESS || over(arg))
            return mpi_errno;
        /* Other threads may run here, and complete what this one waits for. */
        MPID_THREAD_CS_YIELD(GLOBAL, MPIR_THREAD_GLOBAL_ALLFUNC_MUTEX);
        if (!moved)
            idle(&mdapl_ch3_glue, polls++);
        if (over(arg))
            return mpi_errno;
        n = poll_channels();
        moved = n > 0;
        due = rest_is_due(over(arg), polls, moved);
        if (moved) {
            mdapl_yields_brought(&mdapl_ch3_glue.yields, n);
            polls = 0;
        }
    }
}

/* Waits until something is completed. Not inline, as its registers would be saved for each message
 * that the first round finds. */
__attribute__((noinline)) static int wait_longer(const MPID_Progress_state *state, bool moved,
                                                 bool due)
{
    return wait_until(completed, state, moved, due);
}

/* All ranks have entered the barrier, or one will not. */
static bool barrier_is_over(const void *arg)
{
    const struct mdapl_ch3_glue *g = arg;

    return mdapl_barrier_passed(g->ctx) || g->n_lost_ranks > 0;
}

int mdapl_ch3_progress_barrier(const struct mdapl_ch3_glue *g)
{
    return wait_until(barrier_is_over, g, true, false);
}

int mdapl_ch3_progress_spin(bool (*over)(const void *arg), const void *arg)
{
    int64_t polls = 0;
    int mpi_errno = MPI_SUCCESS;

    do {
        bool moved = poll_channels() > 0;

        if (rest_is_due(over(arg), polls, moved))
            mpi_errno = poll_rest(&moved);
        polls = moved ? 0 : polls + 1;
    } while (mpi_errno == MPI_SUCCESS && !over(arg) && polls < mdapl_ch3_glue.cfg.spin_polls);
    mdapl_ch3_glue.spun = over(arg) ? 0 : polls;
    return mpi_errno;
}

int MPIDI_CH3I_Progress(int blocking, MPID_Progress_state *state)
{
    bool moved = poll_channels() > 0, due;
    int mpi_errno = MPI_SUCCESS;

    if (!blocking)
        return poll_rest(&moved);
    due = rest_is_due(completed(state), 0, moved);
    if (due || !completed(state))
        mpi_errno = wait_longer(state, moved, due);
    state->ch.completion_count = MPIDI_CH3I_progress_completion_count;
    return mpi_errno;
}
