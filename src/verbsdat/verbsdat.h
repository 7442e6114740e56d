/* SPDX-License-Identifier: MIT */
#ifndef VERBSDAT_H
#define VERBSDAT_H
/*
 * The internal interfaces of libdaplverbs, a DAT 2.0 provider on libibverbs and librdmacm. Files:
 *
 *      provider.c   entry points of libdat2: init, fini, the table of calls (calls.h)
 *      config.c     the IA parameters of a line of dat.conf
 *      ia.c         adapters: opening, closing, handles
 *      attr.c       attributes of adapters
 *      thread.c     the adapter's thread: what it sleeps on, deadlines, asynchronous events
 *      cm.c         connections: events of the connection manager, connecting, disconnecting
 *      accept.c     service points and connection requests
 *      path.c       alternate paths: operations, states, events
 *      alternate.c  what they are on verbs
 *      ask.c        what the two sides agree on before a connection is armed
 *      ep.c         endpoints: creation, reset, freeing
 *      post.c       posting requests and receives; extended operations
 *      done.c       completions: from ibv_wc to DAT's events
 *      srq.c        shared receive queues
 *      mem.c        protection zones and registered memory
 *      evd.c        event dispatchers
 *      cno.c        notification objects
 *
 * Locks, in the order in which they are taken:
 *      ia->lock     handles, states of EPs, everything of the connection manager
 *      ep->lock     the queue of requests, while one is posted
 *      srq->lock    the free places of a shared queue
 *      evd->lock    the queue of events, and polling its CQ
 *      cno->lock    which EVD has triggered it
 * Posting takes ep->lock alone and dequeuing evd->lock alone: these two are biased to the thread
 * that does it (datlock.h). rdma_destroy_id() waits until the adapter's thread has acknowledged the
 * identifier's events, for which the thread takes ia->lock: so it is called without it. A CNO's
 * agent is the consumer's code and is called without locks.
 */
#include "ep.h"
#include "event.h"
#include "handle.h"
#include "ia.h"

#endif
