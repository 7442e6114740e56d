/* SPDX-License-Identifier: MIT */
#ifndef DAPL_PRE_H_INCLUDED
#define DAPL_PRE_H_INCLUDED
/*
 * What structs of ch4 have of this module, by the names that MPICH's configure makes from the
 * module's. All of MPICH includes this file, so it includes nothing.
 */
struct mdapl_peer;
struct mdapl_rx;

typedef struct {
    struct mdapl_rx *rx;         /* the body of an active message that is still to be fetched */
} MPIDI_DAPL_am_request_t;

typedef struct {
    struct mdapl_peer *peer;     /* NULL until the first message to it; and of this process */
} MPIDI_DAPL_addr_t;

/* Nothing; a struct in C has a member. */
struct mdapl_ch4_none {
    char none;
};
typedef struct mdapl_ch4_none MPIDI_DAPL_request_t;
typedef struct mdapl_ch4_none MPIDI_DAPL_comm_t;
typedef struct mdapl_ch4_none MPIDI_DAPL_dt_t;
typedef struct mdapl_ch4_none MPIDI_DAPL_op_t;
typedef struct mdapl_ch4_none MPIDI_DAPL_win_t;
typedef struct mdapl_ch4_none MPIDI_DAPL_part_t;

#endif
