/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CM_ACT_H
#define MDAPL_CM_ACT_H
/*
 * The actions of the table in cm_fsm.c: cm.c steps the table and calls them, after it has changed
 * the state.
 */
#include "cm_fsm.h"
#include "dat.h"

#include <stdint.h>

struct mdapl_dapl_cm_cause;
struct mdapl_dapl_conn;
struct mdapl_dapl_hello;
struct mdapl_dapl_stream;

enum { MDAPL_CM_GRACE_MS = 1000 };   /* for an event that the state of an EP announces */

/* What an action needs besides the stream. */
struct mdapl_dapl_cm_args {
    DAT_CR_HANDLE cr;            /* the request to answer or to refuse */
    const struct mdapl_dapl_hello *hello; /* its hello */
    const struct mdapl_dapl_cm_cause *cause;
    const char *detail;          /* more about it; NULL: nothing */
};

/* What an action returns: the event to handle next in the same call, or MDAPL_CM_NO_EVENT. */
enum { MDAPL_CM_NO_EVENT = MDAPL_CM_EVENTS };

int mdapl_dapl_cm_act(struct mdapl_dapl_stream *st, enum mdapl_dapl_cm_action action,
                      struct mdapl_dapl_cm_args *args);
/* Sets the timer of the stream's state; due: ns. */
void mdapl_dapl_cm_set_timer(struct mdapl_dapl_stream *st, uint64_t due);
/* The first frame of the connection's other end has arrived, perhaps before the event that it is
 * established: an acceptor may transmit from now on. */
void mdapl_dapl_cm_first_frame(struct mdapl_dapl_conn *conn);
/* Rejects the request that waits for a drain, if there is one, with this flag (wire.h). */
void mdapl_dapl_cm_reject_held(struct mdapl_dapl_stream *st, uint8_t flag);

#endif
