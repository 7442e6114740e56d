/* SPDX-License-Identifier: MIT */
#include "mpidi_ch3_impl.h"
#include "launch.h"

#include "log.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>

/*
 * A peer is lost: its process has ended, or no connection to it can be had. docs/faults.md says
 * what the program sees then, and why no result can be wrong. In short, the job ends at once unless
 *
 *  - MPIR_CVAR_ENABLE_FT is set, or a communicator that the peer is a member of has an error
 *    handler that returns to the program, and
 *  - no window of MPI RMA has the peer as a member, and
 *  - no collective operation fails, now or later, that does not report it: some algorithms of this
 *    MPICH return MPI_SUCCESS after errors of the messages that they are made of (colls.c).
 *
 * CH3's own state of a lost VC is MORIBUND. In that state CH3 completes operations by itself,
 * without a call of the channel, and the third rule could not be kept. So the VC keeps its state
 * until MPI_Finalize: sends fail in send.c, and receives that are posted to a lost peer are
 * completed by mdapl_ch3_lost_poll().
 */

enum {
    EXIT_LOST = 1,
    REPORT_MS = 2000,            /* in which the launcher reports the end of a process */
};

static const char no_collective[] =
    "a collective operation needs it, and this MPICH does not report every error of a collective "
    "operation";

void mdapl_ch3_end_job(const char *fmt, ...)
{
    char line[768];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    mdapl_launch_print(MPIR_Process.rank, line);
    MPID_Abort(NULL, MPI_SUCCESS, EXIT_LOST, "ch3:dapl has ended the job");
    abort();
}

/* -- communicators ----------------------------------------------------------------------------- */

struct mdapl_ch3_comm {
    MPIR_Comm *comm;
    struct mdapl_ch3_comm *next;
};

static int comm_created(MPIR_Comm *comm, void *param)
{
    struct mdapl_ch3_glue *g = param;
    struct mdapl_ch3_comm *c = MPL_malloc(sizeof(*c), MPL_MEM_COMM);
    int mpi_errno = MPI_SUCCESS;

    mdapl_ch3_port_matched(comm);
    /* Every process of the communicator does so before one of them can send a message in it. */
    mdapl_ch3_group_add_new(g);
    if (!c) {
        MPIR_ERR_SET(mpi_errno, MPI_ERR_NO_MEM, "**nomem");
        return mpi_errno;
    }
    *c = (struct mdapl_ch3_comm){ comm, g->comms };
    g->comms = c;
    return MPI_SUCCESS;
}

/* True if errors are returned to the program. NULL is MPI's default, MPI_ERRORS_ARE_FATAL. */
static bool returns_errors(const MPIR_Errhandler *handler)
{
    return handler && handler->handle != MPI_ERRORS_ARE_FATAL
           && handler->handle != MPI_ERRORS_ABORT;
}

static int comm_destroyed(MPIR_Comm *comm, void *param)
{
    struct mdapl_ch3_glue *g = param;

    /* In MPI_Finalize the error handler of MPI_COMM_WORLD stays in force until the end. */
    if (comm == MPIR_Process.comm_world)
        g->world_returns = returns_errors(comm->errhandler);
    for (struct mdapl_ch3_comm **at = &g->comms, *c; (c = *at); at = &c->next)
        if (c->comm == comm) {
            *at = c->next;
            MPL_free(c);
            break;
        }
    return MPI_SUCCESS;
}

static bool is_member(MPIR_Comm *comm, const MPIDI_VC_t *vc)
{
    MPIDI_VC_t *member;

    for (int i = 0; i < comm->remote_size; i++) {
        MPIDI_Comm_get_vc(comm, i, &member);
        if (member == vc)
            return true;
    }
    return false;
}

static bool in_communicator(const MPIDI_VC_t *vc)
{
    for (const struct mdapl_ch3_comm *c = mdapl_ch3_glue.comms; c; c = c->next)
        if (is_member(c->comm, vc))
            return true;
    return false;
}

static bool any_returns(const MPIDI_VC_t *vc)
{
    for (const struct mdapl_ch3_comm *c = mdapl_ch3_glue.comms; c; c = c->next)
        if (returns_errors(c->comm->errhandler) && is_member(c->comm, vc))
            return true;
    return mdapl_ch3_glue.world_returns;
}

static bool in_window(const MPIR_Win *list, const MPIDI_VC_t *vc)
{
    for (; list; list = list->next)
        if (is_member(list->comm_ptr, vc))
            return true;
    return false;
}

/* -- the verdict ------------------------------------------------------------------------------- */

/* The reason why the job must end without this peer; NULL: it can continue. */
static const char *reason_to_end(const MPIDI_VC_t *vc)
{
    /* MPI_Comm_connect and _accept return an error; and one that has been disconnected from is of
     * no concern. */
    if (!vc->pg || (vc->pg != mdapl_ch3_glue.pg && !in_communicator(vc)))
        return NULL;
    if (in_window(MPIDI_RMA_Win_active_list_head, vc)
        || in_window(MPIDI_RMA_Win_inactive_list_head, vc))
        return "it is a member of a window of MPI RMA, whose operations cannot complete without it";
    if (mdapl_ch3_glue.collective_failed)
        return no_collective;
    if (MPIR_CVAR_ENABLE_FT || any_returns(vc))
        return NULL;
    return "no communicator that it is a member of has an error handler that returns to the "
           "program";
}

/* -- what the launcher reports ----------------------------------------------------------------- */

void mdapl_ch3_lost_report(MPIDI_VC_t *vc)
{
    mdapl_ch3_glue.n_dead += !vc->ch.reported;
    mdapl_ch3_glue.n_reported++;
    vc->ch.reported = true;
}

/* Reads from the launcher which ranks have died: ranks and ranges, separated by commas. CH3's call
 * for this needs MPI_COMM_WORLD, which does not exist any more in MPI_Finalize. */
static void read_dead_ranks(struct mdapl_ch3_glue *g)
{
    char list[1024] = "", *save = NULL;
    int first, last;

    if (mdapl_mpich_dead_ranks(list, sizeof(list)) != MPI_SUCCESS)
        return;
    for (char *part = strtok_r(list, ",", &save); part; part = strtok_r(NULL, ",", &save)) {
        int n = sscanf(part, "%d-%d", &first, &last);

        for (int i = first; n > 0 && i >= 0 && i < g->pg->size && i <= (n == 2 ? last : first); i++)
            mdapl_ch3_lost_report(&g->pg->vct[i]);
    }
}

/*
 * MPIX_Comm_shrink and _agree take the set of failed processes from the launcher. A connection may
 * report the end of a process before that does, and each attempt of theirs without that process in
 * the set fails.
 */
static void await_report(struct mdapl_ch3_glue *g, const MPIDI_VC_t *vc)
{
    const struct timespec while_ = { 0, 1000000 };

    for (int ms = 0; !vc->ch.reported && ms < REPORT_MS; ms++) {
        read_dead_ranks(g);
        if (!vc->ch.reported)
            nanosleep(&while_, NULL);
    }
}

/* The suffix of a context id marks the messages of collective operations. */
static bool is_collective(int context_id)
{
    return (context_id & MPIR_CONTEXT_SUFFIX_MASK) == MDAPL_CONTEXT_COLL;
}

void mdapl_ch3_lost_op(MPIDI_VC_t *vc, const MPIDI_Message_match *match)
{
    if (!is_collective(match->parts.context_id))
        return;
    if (mdapl_ch3_colls_report()) {
        if (mdapl_ch3_colls_is_census(match->parts.tag) && vc->pg == mdapl_ch3_glue.pg)
            await_report(&mdapl_ch3_glue, vc);
        return;
    }
    /* The channel fails the operations first, and reports the lost peer and the cause after
     * that. */
    if (mdapl_ch3_is_lost(vc))
        mdapl_ch3_end_job("the job ends: rank %d is lost, and %s", vc->pg_rank, no_collective);
    mdapl_ch3_glue.collective_failed = true;
}

void mdapl_ch3_lost_in_barrier(const struct mdapl_ch3_glue *g)
{
    int rank = 0;

    while (rank < g->pg->size - 1 && !mdapl_ch3_is_lost(&g->pg->vct[rank]))
        rank++;
    mdapl_ch3_end_job("the job ends: rank %d is lost, and %s", rank, no_collective);
}

/* -- operations that wait for the peer --------------------------------------------------------- */

/* MPI's status of a receive from any source is that of a failed process, until the program
 * acknowledges the failure. */
static void forbid_any_source(const MPIDI_VC_t *vc)
{
    for (const struct mdapl_ch3_comm *c = mdapl_ch3_glue.comms; c; c = c->next)
        if (is_member(c->comm, vc))
            c->comm->dev.anysource_enabled = FALSE;
}

/* True for a send to vc that waits for an answer packet. The channel itself has no operation
 * left. */
static bool waits_for_answer(const MPIR_Request *req, const MPIDI_VC_t *vc)
{
    MPIDI_VC_t *to;

    if (MPIR_Object_get_ref(req) <= 0 || req->kind != MPIR_REQUEST_KIND__SEND || !req->comm
        || MPIR_cc_get(req->cc) == 0)
        return false;
    MPIDI_Comm_get_vc(req->comm, req->dev.match.parts.rank, &to);
    return to == vc;
}

void mdapl_ch3_lost_fail_send(MPIR_Request *sreq, const MPIDI_VC_t *vc)
{
    sreq->status.MPI_ERROR = mdapl_ch3_vc_error(vc);
    /* Synchronous sends and cancelled ones are waited for twice. */
    MPIR_cc_set(&sreq->cc, 1);
    MPID_Request_complete(sreq);
}

/* CH3 keeps no list of the requests that wait for answer packets (short synchronous sends, cancel
 * requests) and does not export that of posted receives; a list of ours would cost every message.
 * So after a loss, and only then, all requests are visited (request_pool.c). */
static void fail_waiting(MPIR_Request *req, const void *vc)
{
    if (waits_for_answer(req, vc))
        mdapl_ch3_lost_fail_send(req, vc);
}

/* -- receives that are posted ------------------------------------------------------------------ */

/* The lost VC that this posted receive waits for, or NULL. */
static MPIDI_VC_t *lost_source(const MPIR_Request *rreq)
{
    MPIDI_VC_t *vc = NULL;
    int rank = rreq->dev.match.parts.rank;

    if (rank != MPI_ANY_SOURCE) {
        MPIDI_Comm_get_vc(rreq->comm, rank, &vc);
        return mdapl_ch3_is_lost(vc) ? vc : NULL;
    }
    /* With MPIR_CVAR_ENABLE_FT MPICH itself handles those of the program, and keeps them posted. */
    if (rreq->comm->dev.anysource_enabled
        || (MPIR_CVAR_ENABLE_FT && !is_collective(rreq->dev.match.parts.context_id)))
        return NULL;
    for (int i = 0; i < rreq->comm->remote_size; i++) {
        MPIDI_Comm_get_vc(rreq->comm, i, &vc);
        if (mdapl_ch3_is_lost(vc))
            return vc;
    }
    return NULL;
}

/* Completes a posted receive that waits for a lost peer. */
static void fail_posted(MPIR_Request *rreq, const void *arg)
{
    MPIDI_VC_t *vc;

    (void)arg;
    if (MPIR_Object_get_ref(rreq) <= 0 || rreq->kind != MPIR_REQUEST_KIND__RECV || !rreq->comm
        || MPIR_cc_get(rreq->cc) == 0)
        return;
    vc = lost_source(rreq);
    if (!vc || !MPIDI_CH3U_Recvq_DP(rreq))
        return;
    mdapl_ch3_lost_op(vc, &rreq->dev.match);
    rreq->status.MPI_ERROR = mdapl_ch3_vc_error(vc);
    MPID_Request_complete(rreq);
}

/* -- losing a peer ----------------------------------------------------------------------------- */

/* Ends the VC in CH3's state machine, too. */
static void terminate(MPIDI_VC_t *vc)
{
    if (vc->state != MPIDI_VC_STATE_MORIBUND && vc->state != MPIDI_VC_STATE_INACTIVE_CLOSED)
        MPIDI_CH3U_Handle_connection(vc, MPIDI_VC_EVENT_TERMINATED);
}

int mdapl_ch3_lost_level(void)
{
    return MPIR_CVAR_ENABLE_FT ? MDAPL_INFO : MDAPL_WARN;
}

void mdapl_ch3_lost(MPIDI_VC_t *vc)
{
    const char *why;

    if (mdapl_ch3_is_lost(vc))
        return;
    vc->ch.lost = true;
    mdapl_ch3_glue.n_lost++;
    mdapl_ch3_glue.n_lost_ranks += vc->pg == mdapl_ch3_glue.pg;
    if (vc->ch.peer && vc->pg != mdapl_ch3_glue.pg)
        mdapl_ch3_group_remove_peer(vc->ch.peer);
    else if (vc->ch.peer)
        mdapl_peer_lost(vc->ch.peer);
    /* Packets to it take the slow path of mdapl_ch3_vc_peer(). */
    vc->ch.peer = NULL;
    why = reason_to_end(vc);
    if (why)
        mdapl_ch3_end_job("the job ends: rank %d%s is lost, and %s", vc->pg_rank,
                          vc->pg == mdapl_ch3_glue.pg ? "" : " of another job", why);
    forbid_any_source(vc);
    mdapl_ch3_request_pool_visit(fail_waiting, vc);
    if (mdapl_ch3_glue.finalizing && vc->pg)
        terminate(vc);
    else if (!vc->pg || vc->state == MPIDI_VC_STATE_LOCAL_CLOSE
             || vc->state == MPIDI_VC_STATE_CLOSE_ACKED)
        mdapl_ch3_vc_terminate(vc);
    MPIDI_CH3_Progress_signal_completion();
}

/* In MPI_Finalize, before CH3 runs its close protocol, which a lost peer would not answer. */
static int begin_finalize(void *param)
{
    struct mdapl_ch3_glue *g = param;
    MPIDI_PG_iterator each;
    MPIDI_PG_t *pg;

    g->finalizing = true;
    MPIDI_PG_Get_iterator(&each);
    for (MPIDI_PG_Get_next(&each, &pg); pg; MPIDI_PG_Get_next(&each, &pg))
        for (int i = 0; i < pg->size; i++)
            if (pg->vct[i].ch.lost)
                terminate(&pg->vct[i]);
    return MPI_SUCCESS;
}

/* -- the launcher ------------------------------------------------------------------------------ */

/* Hydra sends SIGUSR1 when a process has ended and the others go on (-disable-auto-cleanup). */
static void on_signal(int number)
{
    (void)number;
    mdapl_ch3_glue.signalled = 1;
}

/* Does not replace a handler of the program. Not undone in MPI_Finalize: the signal may arrive
 * later. */
static void catch_signal(void)
{
    struct sigaction now, mine = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

    if (sigaction(SIGUSR1, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO)
        && now.sa_handler == SIG_DFL)
        sigaction(SIGUSR1, &mine, NULL);
}

bool mdapl_ch3_lost_any_dead(struct mdapl_ch3_glue *g)
{
    g->signalled = 0;
    read_dead_ranks(g);
    return g->n_dead > 0;
}

/* Fails the peers that the launcher reported. The channel detects most of them itself, and knows
 * the cause. */
static void lose_reported(struct mdapl_ch3_glue *g)
{
    g->n_reported = 0;
    for (int i = 0; i < g->pg->size; i++) {
        if (!g->pg->vct[i].ch.reported || g->pg->vct[i].ch.lost)
            continue;
        mdapl_log(mdapl_ctx_log(g->ctx), mdapl_ch3_lost_level(),
                  "lost rank %d: the launcher reports that its process has ended", i);
        mdapl_ch3_lost(&g->pg->vct[i]);
    }
}

void mdapl_ch3_lost_poll(bool moved)
{
    struct mdapl_ch3_glue *g = &mdapl_ch3_glue;

    if (g->signalled) {
        g->signalled = 0;
        read_dead_ranks(g);
    }
    /* First deliver what the peer sent before its end. */
    if (g->n_reported > 0 && !moved && g->ctx)
        lose_reported(g);
    if (g->n_lost > 0)
        mdapl_ch3_request_pool_visit(fail_posted, NULL);
}

int mdapl_ch3_lost_init(struct mdapl_ch3_glue *g)
{
    int mpi_errno = MPIDI_CH3U_Comm_register_create_hook(comm_created, g);

    mdapl_ch3_colls_init();
    if (mpi_errno == MPI_SUCCESS)
        mpi_errno = MPIDI_CH3U_Comm_register_destroy_hook(comm_destroyed, g);
    MPIR_Add_finalize(begin_finalize, g, MPIR_FINALIZE_CALLBACK_PRIO + 1);
    catch_signal();
    return mpi_errno;
}
