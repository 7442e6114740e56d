/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CM_H
#define MDAPL_CM_H
/*
 * Connection management: turns DAT's events into the events of cm_fsm.h and carries out its
 * actions. A connection request is verified (hello, MAC under the job's key) before anything is
 * allocated for it.
 */
#include "ia.h"
#include "channel.h"

struct mdapl_dapl;
struct mdapl_dpeer;
struct mdapl_stream;

/* The hooks that the adapter calls. */
struct mdapl_ia_hooks mdapl_cm_hooks(struct mdapl_dapl *d);

void mdapl_cm_init(struct mdapl_stream *st);
/* This peer is wanted, with all its streams: calls those of them that nobody has called. */
void mdapl_cm_want(struct mdapl_dpeer *peer);
/* The connection has failed (a transfer said so). */
void mdapl_cm_lost(struct mdapl_stream *st, const char *why);
/* Gives its connections up, without a word to the owner. */
void mdapl_cm_close(struct mdapl_dpeer *peer);

#endif
