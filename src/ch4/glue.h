/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CH4_GLUE_H
#define MDAPL_CH4_GLUE_H
/*
 * The inside of the module ch4:dapl. Files:
 *
 *      dapl_pre.h        what structs of ch4 have of the module
 *      netmod_inline.h   the calls that ch4 compiles into its own code
 *      hooks.c           those that it does not, as far as MPICH's own do all of it
 *      init.c            MPI_Init and MPI_Finalize: opens the context, wires, drains, closes
 *      am.c              active messages: a header, and a body of any length
 *      self.c            those to this process itself
 */
#include "mpidimpl.h"

#include "cfg.h"
#include "contract.h"

/* The process's one instance, in init.c: ch4's calls have no argument that could carry it. */
struct mdapl_ch4_glue {
    struct mdapl_ctx *ctx;               /* NULL in a job of one rank */
    struct mdapl_cfg cfg;
    char *cards;                         /* of all ranks, each in card_len bytes */
    int card_len;
    struct mdapl_ch4_self *first, **end; /* messages to this process, in order (self.c) */
    int64_t idle;                        /* rounds of progress without any, in a row */
    bool closing;                        /* bodies of messages that nobody receives are dropped */
};
extern struct mdapl_ch4_glue mdapl_ch4_glue;

/* An active message, as the contract's header. */
struct mdapl_ch4_am {
    uint64_t handler;                    /* its number: ch4 wants its header aligned */
    char hdr[MDAPL_CH4_HDR_MAX];
};

/* init.c */
/* Prints the line and ends the job. */
void mdapl_ch4_end_job(const char *text) __attribute__((noreturn));

/* am.c */
/* An active message has arrived: as up->msg. */
enum mdapl_next mdapl_ch4_am_arrived(const struct mdapl_rx_msg *m);
/* In MPI_Finalize: gives up the bodies of messages that no receive has matched, now and from now
 * on, for their senders wait until they have been read or dropped. */
void mdapl_ch4_am_forget_unmatched(void);

/* self.c */
/* Takes a message to this process: a copy of header and body. */
void mdapl_ch4_self_send(const struct mdapl_msg *msg);
/* Hands the messages over that were sent before the call. Returns how many. */
int mdapl_ch4_self_progress(void);
/* Memory of ours as a body that has to be fetched: a copy of it. */
struct mdapl_rx *mdapl_ch4_self_keep(const char *data, size_t len);

#endif
