/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_RAILS_H
#define MDAPL_RAILS_H
/*
 * The adapters of a channel, in the order of MPIR_CVAR_DAPL_IA. Peers, streams and registrations
 * name one by its place here (ia->rail). No rail is the first among them: what concerns the channel
 * concerns all.
 */
#include "ia.h"
#include "wire.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A CNO belongs to one IA, so a thread can sleep on one rail only. The other rails' CNOs call an
 * agent (DAT 2.0, OS wait proxy agent), which posts a software event to the rail that it sleeps on.
 * Agents run in the providers' threads, perhaps after the sleep has ended: the lock is around the
 * handle.
 */
struct mdapl_dapl_alarm {
    pthread_mutex_t lock;
    const struct mdapl_dapl_ia *asleep_on; /* NULL: no sleep in progress */
};

struct mdapl_dapl_rails {
    struct mdapl_dapl_ia *ia[MDAPL_MAX_RAILS];
    int n;
    struct mdapl_dapl_ia_limits max;     /* the least of all */
    uint64_t lmr_max;        /* bytes of one registration: of them */
    struct mdapl_dapl_alarm alarm;
};

/* No rail, before anything else. */
void mdapl_dapl_rails_init(struct mdapl_dapl_rails *rails);
/* Their names, with commas between them. */
void mdapl_dapl_rails_names(const struct mdapl_dapl_rails *rails, char *buf, size_t len);
/* The most ports over which the paths of one of them may lead; 0: none has the path extension. */
uint32_t mdapl_dapl_rails_ports(const struct mdapl_dapl_rails *rails);
/* Sets max of the opened rails, and prepares sleeps on all of them. 0, or -errno with the one clear
 * line in mdapl_ctx_err(). */
int mdapl_dapl_rails_start(struct mdapl_dapl_rails *rails);
/* Closes every rail that is open, with everything left on it. */
void mdapl_dapl_rails_close(struct mdapl_dapl_rails *rails);
/* Sleeps until any rail has an event of transfers or of connections, at most ns nanoseconds. The
 * next mdapl_dapl_evd_poll() handles it. Must not be called by two threads at a time. */
void mdapl_dapl_rails_wait(struct mdapl_dapl_rails *rails, uint64_t ns);
/* Ends that sleep, if there is one. Any thread may call it. */
void mdapl_dapl_rails_wake(struct mdapl_dapl_rails *rails);

/*
 * Registered memory: for each rail that needs it a handle and keys, made at the first use. They
 * carry the generation of the rail (ia.h) and are void once the rail has gone DOWN: its adapter is
 * closed then, and takes its registrations with it. regcache.c makes and keeps them.
 */
struct mdapl_dapl_lmr {
    const struct mdapl_dapl_rails *rails;
    void *addr;
    size_t len;
    unsigned use;                /* enum mdapl_dapl_lmr_use */
    struct {
        DAT_LMR_HANDLE handle;
        DAT_LMR_CONTEXT local;
        DAT_RMR_CONTEXT key;     /* what a peer names it by */
        uint32_t generation;     /* 0: not registered */
    } on[MDAPL_MAX_RAILS];
};

/* What the memory is for; several may be or-ed. */
enum mdapl_dapl_lmr_use {
    MDAPL_LMR_LOCAL = 1,         /* I read and write it */
    MDAPL_LMR_REMOTE_READ = 2,   /* I and peers read it: memory that is read-only will do */
    MDAPL_LMR_REMOTE_WRITE = 4,  /* I read and write it, peers write it */
};

/* A set of rails, by their places. */
static inline unsigned mdapl_dapl_first_rails(int n)
{
    return (1u << n) - 1;
}

/* Those of the first n rails that are usable. */
unsigned mdapl_dapl_usable_rails(const struct mdapl_dapl_rails *rails, int n);

/* Memory that is not registered yet. len: bytes. */
void mdapl_dapl_lmr_init(struct mdapl_dapl_lmr *lmr, const struct mdapl_dapl_rails *rails,
                         void *addr, size_t len, unsigned use);
/* Registers it on those of the rails on which it is not. 0, or -ENOMEM: one of them refuses or is
 * DOWN (counted, not logged: the caller has another way); the others have it. */
int mdapl_dapl_lmr_need(struct mdapl_dapl_lmr *lmr, unsigned rails);
/* Ends its registrations. */
void mdapl_dapl_lmr_release(struct mdapl_dapl_lmr *lmr);

/* May its keys of this rail be used? */
static inline bool mdapl_dapl_lmr_has(const struct mdapl_dapl_lmr *lmr, int rail)
{
    return lmr->on[rail].generation == lmr->rails->ia[rail]->generation;
}

#endif
