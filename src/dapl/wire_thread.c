/* SPDX-License-Identifier: MIT */
#include "wireup.h"

#include "cm.h"
#include "err.h"
#include "fault.h"
#include "ia.h"
#include "peer.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { LOOK_US = 1000 };         /* longest sleep of the client between two runs of its timers */

struct server {
    struct wiring *w;
    struct mdapl_dapl_ia *ia;
    pthread_t thread;
};

struct wiring {
    struct mdapl_dapl_chan *d;
    pthread_mutex_t lock;        /* around the channel's state, and `over` */
    bool over;
    int n_servers;
    struct server server[MDAPL_MAX_RAILS];
};

/* -- the servers ------------------------------------------------------------------------------ */

static void *serve(void *arg)
{
    struct server *s = arg;
    struct wiring *w = s->w;

    while (mdapl_dapl_evd_serve(s->ia, MDAPL_EVD_CR, UINT64_MAX, &w->lock) >= 0)
        ;
    pthread_mutex_lock(&w->lock);
    if (!w->over && !w->d->failed)
        w->d->failed = mdapl_err_set(mdapl_ctx_err(w->d->ctx), -ENOTSUP,
                                     "IA %s: a thread cannot wait for connection requests. Set "
                                     "MPIR_CVAR_DAPL_WIRING to ring", s->ia->name);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int start_servers(struct wiring *w)
{
    for (int i = 0; i < w->d->rails.n; i++) {
        struct server *s = &w->server[i];
        int rc;

        *s = (struct server){ .w = w, .ia = w->d->rails.ia[i] };
        rc = pthread_create(&s->thread, NULL, serve, s);
        if (rc)
            return mdapl_err_set(mdapl_ctx_err(w->d->ctx), -rc,
                                 "no thread to accept connections with: %s. Raise the limit of "
                                 "processes (ulimit -u), or set MPIR_CVAR_DAPL_WIRING to ring",
                                 strerror(rc));
        w->n_servers++;
    }
    return 0;
}

static void stop_servers(struct wiring *w)
{
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n_servers; i++) {
        mdapl_dapl_evd_stop_serving(w->server[i].ia);
        pthread_join(w->server[i].thread, NULL);
    }
}

/* -- the client: this thread ------------------------------------------------------------------ */

/* Sends connection requests to all ranks below this one. 0 or -errno. */
static int call_all(struct wiring *w)
{
    int me = mdapl_ctx_job(w->d->ctx)->rank, rc = 0;

    for (int rank = 0; rank < me && !rc; rank++) {
        pthread_mutex_lock(&w->lock);
        rc = mdapl_dapl_wireup_call(w->d, rank);
        pthread_mutex_unlock(&w->lock);
    }
    return rc;
}

/* Runs the timers that are due and judges faults. MDAPL_DONE: all connections are established; 0:
 * not yet, and *ns_p is the longest sleep in ns; or -errno. */
static int look(struct wiring *w, uint64_t *ns_p)
{
    struct mdapl_dapl_chan *d = w->d;
    uint64_t now = mdapl_ctx_now(d->ctx), next;
    int rc;

    pthread_mutex_lock(&w->lock);
    mdapl_timers_run(&d->timers, now);
    mdapl_dapl_cm_request(d);
    mdapl_dapl_recover_all(d);
    next = mdapl_timers_next(&d->timers);
    rc = d->failed ? d->failed : mdapl_dapl_wireup_missing(d);
    pthread_mutex_unlock(&w->lock);
    *ns_p = next <= now ? 0 : next - now;
    if (*ns_p > MDAPL_US(LOOK_US))
        *ns_p = MDAPL_US(LOOK_US);
    return rc;
}

static int wait_connected(struct wiring *w)
{
    uint64_t ns;
    int rc;

    while ((rc = look(w, &ns)) == 0)
        for (int i = 0; i < w->d->rails.n; i++)
            mdapl_dapl_evd_serve(w->d->rails.ia[i], MDAPL_EVD_CONN, i == 0 ? ns : 0, &w->lock);
    return rc;
}

int mdapl_dapl_wire_thread_run(struct mdapl_dapl_chan *d)
{
    struct wiring w = { .d = d, .lock = PTHREAD_MUTEX_INITIALIZER };
    int rc = mdapl_dapl_wireup_count(d);

    if (!rc)
        rc = start_servers(&w);
    if (!rc)
        rc = call_all(&w);
    if (!rc)
        rc = wait_connected(&w);
    stop_servers(&w);
    pthread_mutex_destroy(&w.lock);
    return rc;
}
