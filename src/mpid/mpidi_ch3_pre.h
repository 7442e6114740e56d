/* SPDX-License-Identifier: MIT */
#ifndef MPIDI_CH3_PRE_H_INCLUDED
#define MPIDI_CH3_PRE_H_INCLUDED
/*
 * The channel's fields of CH3's own structures (mpidpre.h includes this file): a VC points to its
 * peer, a request contains the channel's operation.
 */
#include "transport.h"

/* The process group's string form is CH3's own business-card text. */
#define MPIDI_DEV_IMPLEMENTS_KVS

/* The channel's packets: the envelope of a message whose body is fetched when it is matched; the
 * first one of a process that has connected to a port; a request for the description of a window's
 * memory, and the answer. */
#define MPIDI_CH3_PKT_ENUM MPIDI_CH3I_PKT_DAPL_RNDV, MPIDI_CH3I_PKT_DAPL_VISIT, \
    MPIDI_CH3I_PKT_DAPL_ASK, MPIDI_CH3I_PKT_DAPL_WHERE

/* A process group is a group of the context: group->owner is the process group. */
struct mdapl_ch3_pg {
    struct mdapl_group *group;   /* NULL: not added to the context yet, or that is not open */
    char **cards;                /* business cards, by rank (cards.c); NULL: of another job */
    bool met;                    /* it has been learnt of by connecting or accepting */
    bool refused;                /* it cannot be added */
};
#define MPIDI_CH3_PG_DECL struct mdapl_ch3_pg ch;

typedef struct {
    int dummy;                   /* C has no empty structures */
} MPIDI_CH3I_CH_comm_t;

struct MPIDI_VC;
struct mdapl_ch3_rma;
struct mdapl_ch3_unmatched;
struct mdapl_shm_winseg;

struct mdapl_ch3_vc {
    struct mdapl_peer *peer;     /* NULL until first needed */
    struct MPIDI_VC *next;       /* among the VCs that wait to be terminated */
    unsigned recvs_posted;       /* for messages of this rank, as in struct mdapl_ch3_recvs */
    bool terminating;            /* is among them */
    bool lost;                   /* no operation with it succeeds any more (lost.c) */
    bool reported;               /* the launcher says that its process has ended */
    bool visitor;                /* a temporary VC (port.c), to a process that connects here */
    struct mdapl_group *group;   /* of a temporary VC */
};
#define MPIDI_CH3_VC_DECL struct mdapl_ch3_vc ch;

struct mdapl_ch3_req {
    struct mdapl_op op;          /* the channel's operation on this request */
    struct MPIDI_VC *vc;
    struct mdapl_rx *rx;         /* receiving: a body that has to be fetched, until its end */
    const char *data;            /* receiving: the next bytes of a body that is here */
    size_t left;                 /* receiving: bytes of either still to be read */
    struct mdapl_ch3_unmatched *unmatched; /* receiving: the entry of an unexpected rendezvous */
    void *pack;                  /* sending: a packed body; receiving: see unpack.c */
};
#define MPIDI_CH3_REQUEST_DECL struct mdapl_ch3_req ch;

struct mdapl_ch3_win {
    struct mdapl_shm_winseg *share; /* its memory; NULL: it is not shared */
    struct mdapl_ch3_rma *rma;   /* what RDMA reaches (rma.c); NULL: nothing, by all its ranks */
};
#define MPIDI_CH3_WIN_DECL struct mdapl_ch3_win ch;

typedef struct MPIDI_CH3I_Progress_state {
    unsigned int completion_count;
} MPIDI_CH3I_Progress_state;
#define MPIDI_CH3_PROGRESS_STATE_DECL MPIDI_CH3I_Progress_state ch;

/* Counts the completions; CH3's macros and MPICH's progress calls use it. */
extern volatile unsigned int MPIDI_CH3I_progress_completion_count;
#define MPIDI_CH3I_INCR_PROGRESS_COMPLETION_COUNT (++MPIDI_CH3I_progress_completion_count)
/* After each completion: ends the sleeps of other threads (sleep.c). */
#define MPIDI_CH3I_PROGRESS_WAKEUP \
    do { \
        if (MPIDI_CH3I_progress_blocked) \
            MPIDI_CH3I_Progress_wakeup(); \
    } while (0)

#endif
