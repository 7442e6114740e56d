/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WIRE_THREAD_H
#define MDAPL_WIRE_THREAD_H
/*
 * Wiring with a thread: the way that paper mpi-over-udapl compares its ring with (3.2), kept for
 * that comparison and started by the knob `wiring` only. From the paper: every process serves
 * those of higher rank and is a client of those of lower rank; it first makes a server thread that
 * waits at its listening point, then requests all its connections, with nothing to hold them
 * back; the thread accepts whatever comes, and ends when all connections stand. Ours: the retries,
 * the hello and the state machine of cm.c, as in every wiring; a thread for each rail; and one
 * lock around the channel's state, which is held while an event is handled or a rank called, never
 * while a thread sleeps.
 *
 * Unlike the other ways it blocks, so nobody else drives the channel meanwhile: the lock is known
 * here alone. It asks more of the provider than the rest of the channel does: that one thread may
 * wait on an event dispatcher while others use the adapter, and that
 * dat_evd_set_unwaitable() ends such a wait.
 */
struct mdapl_dapl_chan;

/* MDAPL_DONE: all connections stand. -errno: they will not; mdapl_ctx_err() has the line. */
int mdapl_dapl_wire_thread_run(struct mdapl_dapl_chan *d);

#endif
