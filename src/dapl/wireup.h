/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WIREUP_H
#define MDAPL_WIREUP_H
/*
 * Which ranks connect at what time. Ring (paper mpi-over-udapl, 3.2): in step s a rank sends a
 * connection request to the rank s below it and accepts one of the rank s above it, so that each
 * pair connects once and no rank gets all requests at the same time. There is no thread and no
 * barrier between steps: several requests are in flight, and requests are accepted in the order of
 * their arrival. On demand: the first message to a peer connects. With a thread: wire_thread.c. In
 * all cases cm.c makes the connection.
 */
struct mdapl_dapl_chan;

/* As mdapl_wire(). */
int mdapl_dapl_wireup_run(struct mdapl_dapl_chan *d);
/* Sets d->n_wanted: peers that another channel reaches are not to be connected. 0, or -errno with
 * the one clear line. */
int mdapl_dapl_wireup_count(struct mdapl_dapl_chan *d);
/* Calls a rank. 0, or -errno with the one clear line in mdapl_ctx_err(). */
int mdapl_dapl_wireup_call(struct mdapl_dapl_chan *d, int rank);
/*
 * When all that this rank has to call are called: MDAPL_DONE if all of n_wanted are connected; else
 * 0, or -errno once a peer is lost. After connect_timeout_ms one line names those that are missing,
 * and they are called.
 */
int mdapl_dapl_wireup_missing(struct mdapl_dapl_chan *d);

#endif
