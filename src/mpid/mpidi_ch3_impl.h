/* SPDX-License-Identifier: MIT */
#ifndef MPIDI_CH3_IMPL_H_INCLUDED
#define MPIDI_CH3_IMPL_H_INCLUDED
/*
 * The inside of the glue. Files, in the way of a message:
 *
 *      init.c       MPI_Init and MPI_Finalize: opens the context, wires, drains, closes
 *      cards.c      business cards, through the launcher
 *      cores.c      the cores of this process
 *      vc.c         VCs and their peers
 *      group.c      the process groups of other jobs, and their keys
 *      port.c       MPI ports: how two jobs meet
 *      lost.c       a lost peer: which operations fail, whether the job ends
 *      colls.c      ... which collective operations report it
 *      node_colls.c collective operations on one node: counters and trees
 *      barrier.c    the launcher's barrier, which a lost peer does not enter
 *      send.c       MPIDI_CH3_iStartMsg[v], iSend[v]; non-contiguous bodies
 *      recv.c       received messages: CH3's packet handlers
 *      awaited.c    ... which a blocking receive waits for
 *      sendrecv.c   MPI_Sendrecv by those
 *      unpack.c     ... whose body is unpacked into a sparse buffer, or truncated
 *      rndv.c       MPI messages too long for a frame; cancelling them
 *      progress.c   polling and waiting
 *      sleep.c      how threads that wait sleep
 *      rma.c        MPI RMA between nodes: CH3's own, over messages; puts and gets by RDMA
 *      win_rma.c    windows whose memory RDMA reaches
 *      win.c        windows, whose memory the ranks of a node share
 *      win_share.c  the memory of shared windows
 *      rma_pool.c   CH3's pools of RMA operations, from the first window on
 *      request_pool.c  MPICH's pool of requests, with a small first block
 *      heap.c       large blocks of memory, kept for the next time
 *      split.c      communicators of ranks that share memory
 *      mpich.h      what differs between the releases of MPICH
 */
#include "mpich.h"
#include "cfg.h"
#include "err.h"
#include "stats.h"
#include "transport.h"
#include "x25519.h"
#include "yields.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* Around CH3's atomic operations in a window that is shm_allocated. */
#define MPIDI_CH3I_SHM_MUTEX_LOCK(win_ptr) mdapl_ch3_win_lock(win_ptr)
#define MPIDI_CH3I_SHM_MUTEX_UNLOCK(win_ptr) mdapl_ch3_win_unlock(win_ptr)

/* MDAPL_REPLACE(function, arguments): what is called in place of a function of MPICH's, __wrap_,
 * and that one, __real_; the linker exchanges them (--wrap in Makefile.mk). */
#define MDAPL_REPLACE(function, ...)                                                             \
    int __real_##function(__VA_ARGS__) __attribute__((weak));                                    \
    int __wrap_##function(__VA_ARGS__)

/* An unexpected rendezvous. CH3 frees such requests without a call of the channel, so its body is
 * recorded here and not in the request alone. */
struct mdapl_ch3_unmatched {
    struct mdapl_ch3_unmatched *next, *prev;
    struct mdapl_rx *rx;
};

/* The sizes that the user has set for CH3's pools of RMA operations and targets (rma_pool.c). */
struct mdapl_ch3_rma_pool {
    int ops, targets;
    bool deferred;                       /* the pools are empty, as there has been no window */
};

/* The text of a control variable that MPI_T may write, and as it was seen last (cvars.c). */
struct mdapl_ch3_live {
    const char *cvar;                    /* its name */
    const char *text;
    char seen[16];
};

/* The threads that sleep (sleep.c). */
struct mdapl_ch3_sleep {
    bool taken;                          /* a thread is in mdapl_wait(), */
    bool asleep;                         /* and sleeps there, until it is woken */
    pthread_mutex_t lock;                /* around `serial` */
    pthread_cond_t completion;
    unsigned serial;                     /* changes with completions */
};

/* Large blocks that MPICH has freed (heap.c). */
enum { MDAPL_CH3_KEPT = 4 };
struct mdapl_ch3_heap {
    size_t longest;                      /* bytes of a block that is kept, at most; 0: none is */
    _Atomic(void *) kept[MDAPL_CH3_KEPT];    /* NULL: an empty place */
    atomic_uint turn;                    /* whose block makes room next, modulo MDAPL_CH3_KEPT */
};

/* Receives, as CH3 says when it posts and matches them, and messages that had none (unexpected.c).
 * Receives that an error removes are counted on as posted. */
struct mdapl_ch3_recvs {
    unsigned posted;                     /* that no message has matched */
    unsigned any;                        /* of them, for any rank */
    unsigned matched;                    /* matched or cancelled, in total */
    bool paused;                         /* there may be paused peers */
    unsigned listed, arrived;            /* in CH3's list when it was counted, and since then */
    unsigned asked;                      /* how often, since then, whether it is empty */
    unsigned room;                       /* how many more it may get before a peer is paused */
    unsigned more;                       /* ... beyond the usual, as this rank has waited long */
    unsigned matched_before;             /* `matched` at the look that changed this */
    uint64_t since;                      /* time of that look, ns; 0: no peer was paused then */
};

/* The process's one instance, in init.c: CH3's calls have no argument that could carry it. */
struct mdapl_ch3_glue {
    struct mdapl_ctx *ctx;               /* NULL in a job of one rank until it meets another */
    MPIDI_PG_t *pg;                      /* MPI_COMM_WORLD's processes */
    struct mdapl_cfg cfg;
    struct mdapl_ch3_live live;          /* the knob PATH_BALANCE */
    MPIDI_VC_t *terminating;             /* VCs whose last frames are still to be acknowledged */
    struct mdapl_ch3_unmatched unmatched; /* list head */
    unsigned rounds;                     /* of waiting; the rarer work is done every few */
    int64_t spun;                        /* empty rounds of the wait that is about to go on */
    struct mdapl_ch3_comm *comms;        /* all communicators (lost.c) */
    bool oversubscribed;                        /* ranks share my cores */
    struct mdapl_yields yields;          /* unless the knob YIELD_POLLS says how many */
    int n_lost;                          /* peers that are lost */
    int n_lost_ranks;                    /* ranks of the job that are */
    int n_dead, n_reported;              /* ... that the launcher reports; reports not looked at */
    bool collective_failed;              /* a message of a collective operation, by a lost peer */
    bool world_returns;                  /* MPI_COMM_WORLD's error handler, at its end, returns */
    bool finalizing;                     /* MPI_Finalize has begun */
    volatile sig_atomic_t signalled;     /* the launcher has signalled the end of a process */
    struct mdapl_stats counters;         /* as they were at the end of ctx */
    MPIDI_CH3_PktHandler_Fcn *handler[MPIDI_CH3_PKT_END_ALL];
    MPIDI_CH3_PktHandler_Fcn *eager[2];  /* CH3's own of eager messages, once those of revoked
                                          * communicators need others (colls.c) */
    uint8_t secret[MDAPL_X25519_BYTES];  /* the job's, for keys with other groups */
    int new_groups;                      /* process groups that may have to be added */
    int meetings;                        /* calls of MPI_Comm_accept and _connect in progress */
    struct mdapl_ch3_removal *removals;  /* peers and groups that are being removed, in order */
    struct mdapl_ch3_port *ports;        /* the open ones */
    MPIDI_VC_t *visiting;                /* the VC of MPI_Comm_connect, until it has an answer */
    char visitor_card[MDAPL_CARD_MAX];   /* what a port's name has of the business card */
    struct mdapl_ch3_rma_pool rma_pool;
    uint32_t last_window;                /* id of the last window that may have exposed memory */
    MPIR_Commops comm_calls;             /* hooks of MPICH's creation of communicators */
    struct mdapl_ch3_sleep sleep;
    struct mdapl_ch3_recvs recvs;
    struct mdapl_ch3_awaited *awaited;   /* a receive that waits before it is posted; or NULL */
    struct mdapl_ch3_heap heap;
};
extern struct mdapl_ch3_glue mdapl_ch3_glue;

/* init.c */
/* Opens the context of a job of one rank, unless it is open. An MPI error code. */
int mdapl_ch3_open_alone(struct mdapl_ch3_glue *g);

/* cards.c */
/* Publishes this rank's card, and with it the set of its cores. An MPI error code. */
int mdapl_ch3_cards_put(struct mdapl_ch3_glue *g, int rank, const char *card);
/* Collective, in MPI_Init, after mdapl_ch3_cards_put() of all ranks: reads the cards of all ranks,
 * with the launcher's barrier. 0 or -errno; -ECONNRESET: a rank has ended. */
int mdapl_ch3_cards_share(struct mdapl_ch3_glue *g, int rank);
/* The same for a job of one rank, which needs no launcher. 0 or -ENOMEM. */
int mdapl_ch3_cards_alone(struct mdapl_ch3_glue *g, const char *card);
/* Copies what CH3 knows of a rank of another job: its card, and what follows it. 0 or -errno. */
int mdapl_ch3_cards_of_other(MPIDI_PG_t *pg, int rank, char *buf, size_t len);
/* Copies the card of a rank of the process group `owner` to buf, of len bytes. 0 or -ENOSPC. */
int mdapl_ch3_cards_get(void *owner, int rank, char *buf, size_t len);
/* The set of cores of a rank, as it published it; 0: not known. */
uint32_t mdapl_ch3_cards_cores(const struct mdapl_ch3_glue *g, int rank);
void mdapl_ch3_cards_free(struct mdapl_ch3_glue *g);

/* cores.c */
/* The number of cores that this process may run on, 1 or more. *set_p: a hash of their set, 16
 * bits; *online_p: the number of cores of the node. */
int mdapl_ch3_cores(uint32_t *set_p, int *online_p);

/* vc.c */
int mdapl_ch3_vc_make_peer(MPIDI_VC_t *vc);
/* The peer of a VC, created at the first call. 0, or a negative errno; then a line has been
 * printed. */
static inline int mdapl_ch3_vc_peer(MPIDI_VC_t *vc, struct mdapl_peer **peer_p)
{
    int rc = vc->ch.peer ? 0 : mdapl_ch3_vc_make_peer(vc);

    *peer_p = vc->ch.peer;
    return rc;
}
/* From now on the peer is that of this VC. */
void mdapl_ch3_vc_bind(MPIDI_VC_t *vc, struct mdapl_peer *peer);
/* Finds the VC of a peer that has sent its first message, and makes it active. */
void mdapl_ch3_vc_begin(struct mdapl_peer *peer);
/* The VC of the peer that a message came from; NULL: the peer is being removed. */
static inline MPIDI_VC_t *mdapl_ch3_vc_of(struct mdapl_peer *peer)
{
    const MPIDI_VC_t *vc = peer->owner;

    if (!vc || vc->state == MPIDI_VC_STATE_INACTIVE)
        mdapl_ch3_vc_begin(peer);
    return peer->owner;
}
void mdapl_ch3_vc_fault(void *owner, struct mdapl_peer *peer, int status, const char *why);
/* The context is open: messages up to its limit are eager on this VC. */
void mdapl_ch3_vc_opened(MPIDI_VC_t *vc);
/* Ends a VC that CH3 has begun to close, between rounds of progress. */
void mdapl_ch3_vc_terminate(MPIDI_VC_t *vc);
int mdapl_ch3_vc_error(const MPIDI_VC_t *vc);
int mdapl_ch3_vc_terminate_idle(void);

/* group.c */
/* Behind the card of a group's rank 0: what its keys with other groups are made of. */
enum { mdapl_ch3_keys_follow = '@' };
/* Sets the id and the key of the job. Both are copied. */
void mdapl_ch3_group_set_job(struct mdapl_ch3_glue *g, uint32_t id, const uint8_t *key);
int mdapl_ch3_group_text(char **text_p, int *len_p, MPIDI_PG_t *pg);
/* Adds the process groups that CH3 has made since the last call to the context. Makes progress if
 * one of them is still being removed. */
void mdapl_ch3_group_add_new(struct mdapl_ch3_glue *g);
/* Removes a peer of another job, or a whole group of which no VC is used any more, between rounds
 * of progress, once nothing is unacknowledged. */
void mdapl_ch3_group_remove_peer(struct mdapl_peer *peer);
void mdapl_ch3_group_remove(struct mdapl_group *group);
bool mdapl_ch3_group_is_removed(const struct mdapl_peer *peer);
/* Makes progress until all that is being removed has been. */
void mdapl_ch3_group_finish_removals(struct mdapl_ch3_glue *g);
/* Called between rounds of progress. */
void mdapl_ch3_group_poll(struct mdapl_ch3_glue *g);
/* The context has been closed and its peers freed: CH3 destroys most VCs later. */
void mdapl_ch3_group_forget(void);

/* port.c */
/* Is it a group of one process, at the other end of a temporary VC? */
bool mdapl_ch3_port_is_visit(const struct mdapl_group *group);
/* A temporary VC for a process that has connected to a port. NULL: memory is out. */
MPIDI_VC_t *mdapl_ch3_port_visitor(struct mdapl_peer *peer);
int mdapl_ch3_port_visited(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, void *data, intptr_t *buflen,
                           MPIR_Request **rreq_p);
/* The process at the other end of a temporary VC is lost: CH3 gets the packet that it waits for. An
 * MPI error code. */
int mdapl_ch3_port_lost(MPIDI_VC_t *vc);
/* A communicator has been made: if it is CH3's own over a temporary VC, the VC's request has been
 * answered, and CH3 frees it. */
void mdapl_ch3_port_matched(MPIR_Comm *comm);
/* Closes all ports. */
void mdapl_ch3_port_fini(struct mdapl_ch3_glue *g);

/* progress.c */
/* Waits until all ranks have entered the barrier that this one has, or one of them is lost. An MPI
 * error code. */
int mdapl_ch3_progress_barrier(const struct mdapl_ch3_glue *g);

/* Makes progress until over(arg), as long as a wait spins, at least one round. An MPI error code.
 * What is waited for next is taken for the same: it does not spin again. */
int mdapl_ch3_progress_spin(bool (*over)(const void *arg), const void *arg);

/* lost.c */
int mdapl_ch3_lost_init(struct mdapl_ch3_glue *g);
static inline bool mdapl_ch3_is_lost(const MPIDI_VC_t *vc)
{
    return vc->ch.lost;
}
/* The peer of vc is lost; the line with the cause has been printed. All operations with it fail
 * from now on, or the job ends. */
void mdapl_ch3_lost(MPIDI_VC_t *vc);
/* An operation with this envelope, with the lost peer of vc, fails. Ends the job if MPI could not
 * report the error. */
void mdapl_ch3_lost_op(MPIDI_VC_t *vc, const MPIDI_Message_match *match);
/* A barrier without messages, which a lost rank does not enter: ends the job. */
void mdapl_ch3_lost_in_barrier(const struct mdapl_ch3_glue *g) __attribute__((noreturn));
/* The level of a line about a lost peer: a program that asked for fault tolerance learns of it by
 * errors, and goes on. */
int mdapl_ch3_lost_level(void);
/* Completes a send to a lost peer with an error, in any state of the send. */
void mdapl_ch3_lost_fail_send(MPIR_Request *sreq, const MPIDI_VC_t *vc);
/* The launcher reports that the process of vc has ended. */
void mdapl_ch3_lost_report(MPIDI_VC_t *vc);
/* Reads from the launcher whether any rank has died. */
bool mdapl_ch3_lost_any_dead(struct mdapl_ch3_glue *g);
/* Called between rounds of progress; moved: the last round made some. */
void mdapl_ch3_lost_poll(bool moved);
/* Prints the line and ends the job; the exit status is not 0. */
void mdapl_ch3_end_job(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* colls.c */
/* With MPIR_CVAR_ENABLE_FT, in MPI_Init: MPICH chooses the algorithms, and takes such as report
 * errors. */
void mdapl_ch3_colls_init(void);
/* Do collective operations report the errors of their messages? */
bool mdapl_ch3_colls_report(void);
/* Has it the tag of a message of MPIX_Comm_shrink or _agree, which find out who has failed? */
bool mdapl_ch3_colls_is_census(int tag);
/* A message with this envelope is to be matched, or queued as unexpected: has CH3 not drop it
 * because its communicator is revoked. Returns that communicator, or NULL. */
MPIR_Comm *mdapl_ch3_colls_admit(const MPIDI_Message_match *match);
/* The message has been matched or queued. comm: as returned before it, or NULL. */
static inline void mdapl_ch3_colls_admitted(MPIR_Comm *comm)
{
    if (comm)
        comm->revoked = 1;
}

/* node_colls.c */
/* Does this rank enter barriers that count ranks in shared memory? threads: it has
 * MPI_THREAD_MULTIPLE. */
bool mdapl_ch3_node_counts(bool threads);
/* MPI_Allreduce of a few numbers, by a barrier that they are brought into. False: it is to be made
 * of messages. */
bool mdapl_ch3_node_reduce(const void *sendbuf, void *recvbuf, MPI_Aint count,
                           MPI_Datatype datatype, MPI_Op op, MPIR_Comm *comm, int *mpi_errno);

/* barrier.c */
/* Returns when all ranks have entered the launcher's barrier. 0; -ECONNRESET: a rank has ended, so
 * the barrier cannot complete; -EIO. serve: the rank makes progress meanwhile. */
int mdapl_ch3_barrier(struct mdapl_ch3_glue *g, bool serve);

/* send.c */
extern const uint8_t mdapl_ch3_short_packet[MPIDI_CH3_PKT_END_ALL];
/* Bytes of a packet that are transmitted. */
static inline size_t mdapl_ch3_packet_len(const MPIDI_CH3_Pkt_t *pkt)
{
    return mdapl_ch3_short_packet[pkt->type] ? mdapl_ch3_short_packet[pkt->type] : sizeof(*pkt);
}
/* The envelope of a packet that begins an MPI message; NULL: it is another packet. */
const MPIDI_Message_match *mdapl_ch3_match_of(const MPIDI_CH3_Pkt_t *pkt);
/* Sends a packet without a body, and without a look at what it is. */
void mdapl_ch3_send_packet(MPIDI_VC_t *vc, const MPIDI_CH3_Pkt_t *pkt);
int mdapl_ch3_send_body(MPIDI_VC_t *vc, MPIR_Request *sreq, const void *hdr,
                        const struct iovec *body, int n_body, bool synchronous);
int mdapl_ch3_send_noncontig(MPIDI_VC_t *vc, MPIR_Request *sreq, void *hdr, intptr_t hdr_sz,
                             struct iovec *hdr_iov, int n_hdr_iov);
int mdapl_ch3_send_typed_body(MPIR_Request *sreq, struct iovec *iov, int *n_p);

/* recv.c */
enum mdapl_next mdapl_ch3_recv_msg(void *owner, struct mdapl_peer *peer,
                                   const struct mdapl_rx_msg *m);
int mdapl_ch3_recv_body(MPIDI_VC_t *vc, MPIR_Request *rreq, struct mdapl_rx *rx);
/* The next bytes of the request's body into iov, no more than ch.left: as mdapl_rx_read(), with
 * ch.op. */
int mdapl_ch3_recv_bytes(MPIR_Request *rreq, const struct iovec *iov, int n);
/* Gives up the rest of the request's body. */
void mdapl_ch3_recv_drop(MPIR_Request *rreq);
/* op->done of a read: status is 0 or a negative errno. */
void mdapl_ch3_recv_done(struct mdapl_op *op, int status);

/* awaited.c */
/* A packet with its data has arrived while a receive awaits its message. True: this was it, and it
 * has been received; else CH3 handles it, and may find that receive posted. */
bool mdapl_ch3_awaited_arrived(struct mdapl_ch3_glue *g, const MPIDI_CH3_Pkt_t *pkt,
                               const struct mdapl_rx_msg *m);

/* A handler of CH3's has returned an error: ends the job, unless the cause is a lost peer. */
void mdapl_ch3_handler_failed(int mpi_errno, const char *what);

/* unexpected.c */
/* A message of this VC has arrived that no receive had been posted for: up->msg's answer. */
enum mdapl_next mdapl_ch3_unexpected_arrived(const MPIDI_VC_t *vc);
/* The same of one that a receive has matched, while peers may be paused. */
enum mdapl_next mdapl_ch3_unexpected_next(const MPIDI_VC_t *vc);
/* Is no message of another rank in CH3's list? It may say no for one that is not there any more. */
bool mdapl_ch3_unexpected_none(struct mdapl_ch3_glue *g);
/* A round of progress begins, while peers may be paused. */
void mdapl_ch3_unexpected_waiting(struct mdapl_ch3_glue *g);
/* Now and then (up->look): resumes paused peers, each for a message or more. */
void mdapl_ch3_unexpected_look(struct mdapl_ch3_glue *g);

/* unpack.c */
bool mdapl_ch3_unpack_wanted(const MPIR_Request *rreq);
int mdapl_ch3_unpack_body(MPIR_Request *rreq);
void mdapl_ch3_unpack_end(MPIR_Request *rreq);

/* rndv.c */
int mdapl_ch3_rndv_start(MPIR_Request **sreq_p, const void *buf, MPI_Aint count,
                         MPI_Datatype datatype, int dt_contig, intptr_t data_sz,
                         MPI_Aint dt_true_lb, int rank, int tag, MPIR_Comm *comm,
                         int context_offset);
int mdapl_ch3_rndv_match(MPIDI_VC_t *vc, MPIR_Request *rreq);
int mdapl_ch3_rndv_announced(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, struct mdapl_rx *rx);
int mdapl_ch3_rndv_cancel(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, void *data, intptr_t *buflen,
                          MPIR_Request **rreq_p);
void mdapl_ch3_rndv_forget_unmatched(void);

/* rma.c */
/* Is it one of the packets of RMA, which mdapl_ch3_rma_start() has to see? */
static inline bool mdapl_ch3_is_rma(const MPIDI_CH3_Pkt_t *pkt)
{
    return pkt->type >= MPIDI_CH3_PKT_PUT && pkt->type <= MPIDI_CH3_PKT_DECR_AT_COUNTER;
}
const MPIDI_CH3_Pkt_t *mdapl_ch3_rma_start(MPIDI_VC_t *vc, const MPIDI_CH3_Pkt_t *pkt,
                                           const struct iovec *body, int n_body,
                                           MPIR_Request **sreq_p, MPIDI_CH3_Pkt_t *copy);

/* win_rma.c */
int mdapl_ch3_rma_gather_info(void *base, MPI_Aint size, int disp_unit, MPIR_Info *info,
                              MPIR_Comm *comm, MPIR_Win **win_p);
/* The window is being freed, and no rank uses it any more. */
void mdapl_ch3_rma_free(MPIR_Win *win);
int mdapl_ch3_rma_asked(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, void *data, intptr_t *buflen,
                        MPIR_Request **rreq_p);
int mdapl_ch3_rma_answered(MPIDI_VC_t *vc, MPIDI_CH3_Pkt_t *pkt, void *data, intptr_t *buflen,
                           MPIR_Request **rreq_p);

/* sleep.c */
void mdapl_ch3_sleep_init(struct mdapl_ch3_sleep *s);
/* Sleeps until a channel has an event or, where several threads wait, until something has
 * completed; at most MPIR_CVAR_DAPL_SLEEP_US, or some times that in all threads but one. */
void mdapl_ch3_sleep(struct mdapl_ch3_glue *g);
/* The upcalls around a sleep. owner: the glue. */
void mdapl_ch3_sleep_begin(void *owner);
void mdapl_ch3_sleep_end(void *owner);

/* win.c */
bool mdapl_ch3_shm_is_chosen(void);
void mdapl_ch3_win_lock(MPIR_Win *win);
void mdapl_ch3_win_unlock(MPIR_Win *win);

/* win_share.c */
/* The result of sharing: the first error and the rank of MPI_COMM_WORLD that had it. */
struct mdapl_ch3_outcome {
    int rc, rank;
};
int mdapl_ch3_win_share(MPIR_Win *win, bool apart, struct mdapl_ch3_outcome *outcome);
int mdapl_ch3_win_detect(MPIR_Win **win_p);

/* rma_pool.c */
/* Has CH3 make empty pools in MPI_Init; restore: it has made them. */
void mdapl_ch3_rma_pool_defer(struct mdapl_ch3_rma_pool *p);
void mdapl_ch3_rma_pool_restore(const struct mdapl_ch3_rma_pool *p);
/* Makes the pools, at the first window. An MPI error code. */
int mdapl_ch3_rma_pool_make(struct mdapl_ch3_rma_pool *p);

/* heap.c */
/* From now on large blocks are kept, of about `longest` bytes at most; 0: none. fini: none is any
 * more, and those that are kept are freed. */
void mdapl_ch3_heap_init(struct mdapl_ch3_heap *h, size_t longest);
void mdapl_ch3_heap_fini(struct mdapl_ch3_heap *h);

/* request_pool.c */
/* Makes the first block. In MPI_Init, when there is one thread and next to no request. */
void mdapl_ch3_request_pool_make(void);
/* Calls visit(req, arg) for all requests, in use or free. */
void mdapl_ch3_request_pool_visit(void (*visit)(MPIR_Request *req, const void *arg),
                                  const void *arg);

/* split.c */
void mdapl_ch3_split_init(struct mdapl_ch3_glue *g);

#endif
