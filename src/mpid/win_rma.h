/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WIN_RMA_H
#define MDAPL_WIN_RMA_H
/*
 * What a rank knows of the ranks of a window whose memory RDMA reaches: win_rma.c makes it, rma.c
 * uses it for puts and gets.
 */
#include "mpidi_ch3_impl.h"

/* What a rank publishes of its window. */
struct mdapl_ch3_place {
    uint32_t id;                 /* of the window, in its process; 0: its memory is not exposed */
    struct mdapl_where where;    /* len 0: operations are messages */
};

/* A rank of a window, as this rank uses its memory. */
struct mdapl_ch3_target {
    struct mdapl_ch3_place place;
    int in_flight;               /* puts and gets by RDMA */
    int ends;                    /* flags of UNLOCK or DECR_AT_COUNTER, to be sent when there are
                                  * none */
    int acks;                    /* acknowledgements that CH3 then gets */
    bool dirty;                  /* operations have been sent that no acknowledgement will cover */
};

struct mdapl_ch3_rma {
    struct mdapl_exposed *mine;  /* NULL: not exposed */
    uint32_t id;
    int *rank_of;                /* by rank of the job; -1: no member */
    struct mdapl_ch3_target target[];
};

/* The rank of the window that a VC leads to; -1: it is of another job. */
static inline int mdapl_ch3_win_rank(const struct mdapl_ch3_rma *rma, const MPIDI_VC_t *vc)
{
    return vc->pg == mdapl_ch3_glue.pg ? rma->rank_of[vc->pg_rank] : -1;
}

/* The description of a rank's memory is void: asks the rank, which vc leads to, for another one.
 * Until it has arrived, operations on that rank are messages. */
void mdapl_ch3_win_ask(MPIR_Win *win, int rank, MPIDI_VC_t *vc);

#endif
