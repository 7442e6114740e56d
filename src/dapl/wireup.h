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
/* Sends connection requests to a rank. 0, or -errno with the one clear line in mdapl_ctx_err(). */
int mdapl_dapl_wireup_call(struct mdapl_dapl_chan *d, int rank);
/*
 * To be called once this rank has sent all requests of its wiring: MDAPL_DONE if all of n_wanted
 * are connected; else 0, or -errno once a peer is lost. After connect_timeout_ms a line names the
 * ranks that are not connected, and requests are sent to them.
 */
int mdapl_dapl_wireup_missing(struct mdapl_dapl_chan *d);

/*
 * Wiring with a thread (wire_thread.c): the method with which paper mpi-over-udapl compares its
 * ring (3.2), kept for that comparison and selected by the knob `wiring` only. From the paper: each
 * process is a server for the ranks above its own and a client of those below. It makes a server
 * thread, which waits for connection requests at the PSP, and then sends all its requests without
 * a limit on their number; the thread accepts the requests in the order of their arrival, and ends
 * when all connections are established. Not from the paper: backoff, hello and state machine of
 * cm.c, as in every wiring; a thread for each rail; and a lock around the channel's state, which is
 * held while an event is handled or a request is sent, and not while a thread sleeps.
 *
 * The call blocks, and no other code uses the channel until it returns, so the lock is local to
 * wire_thread.c. It requires more of the provider than the rest of the channel: that one thread may
 * wait on an EVD while others use the adapter, and that dat_evd_set_unwaitable() ends such a wait.
 *
 * MDAPL_DONE: all connections are established. -errno: they cannot be, and mdapl_ctx_err() has the
 * line.
 */
int mdapl_dapl_wire_thread_run(struct mdapl_dapl_chan *d);

#endif
