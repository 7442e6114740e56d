/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_MIXED_H
#define SOFTDAT_TEST_MIXED_H
/*
 * Requests of every kind in both directions of a connection, whose bytes, order and results are
 * checked: what a test posts while something happens to the link. The IAs of the two sides are the
 * process's first and second.
 */
#include "world.h"

enum {
    MIXED_STEPS = 14,
    MIXED_EXTRA = 200,           /* cookie of a receive for which there is no send */
};

/* Fixture: set_up() and tear_down(), with memory for atomic operations. */
int mixed_set_up(void **state);
int mixed_tear_down(void **state);
struct side *mixed_side(struct world *w, bool b);
/* Fills the buffers and posts the receives, but for that of one late send. */
void mixed_prepare(struct world *w);
/* Posts request i of MIXED_STEPS. */
void mixed_post(struct world *w, int i);
/* Posts the late receive and one more at each side, expects all completions and checks the bytes:
 * each request is executed once, in its order. */
void mixed_finish(struct world *w);
/* Expects that nothing else has happened to the connection, and disconnects. */
void mixed_disconnect(struct world *w);
/* Expects that evd is empty, after a round of progress. */
void mixed_none(DAT_EVD_HANDLE evd);
/* Sends a command to the adapter of a side, which makes progress meanwhile; its reply. */
const char *mixed_command(struct world *w, bool b, const char *text);

#endif
