/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_H
#define SOFTDAT_H
/*
 * The internal interfaces of the software DAT provider. Files:
 *
 *      provider.c   entry points of libdat2: init, fini, the table of calls
 *      config.c     the IA parameters of a line of dat.conf
 *      ia.c         adapters: opening, attributes, closing
 *      path.c       ports, and whether the paths through them are up
 *      net.c        sockets, progress, the helper thread
 *      conn.c       connections: creation, end, what each phase permits
 *      listen.c     service points
 *      connect.c    the active side of connecting; disconnecting
 *      accept.c     the passive side: connection requests
 *      migrate.c    replaces the link of a connection by another one
 *      alternate.c  the states of an alternate path, and its operations and events
 *      standby.c    the link over an alternate path that is made in advance
 *      retransmit.c what is transmitted again on that link
 *      sockets.c    sockets of connections: addresses, options, credentials
 *      ep.c ep_fsm  endpoints: creation, completion, flushing
 *      post.c       posting requests and receives; extended operations
 *      rq.c         queues of receives, also shared ones
 *      tx.c rx.c    transmitting and receiving frames (wire.h, PROTOCOL)
 *      ack.c        acknowledgements of executed requests
 *      short.c      the calls of every message in their usual case: short frames over rings
 *      frame.c      handlers of received frames, by type
 *      sink.c       destinations of received payload
 *      held.c       sends that arrive before their receive is posted
 *      shared.c     byte rings between two adapters of one host
 *      direct.c     long RDMA by copies between address spaces
 *      judge.c      which way of long RDMA is the faster
 *      mem.c        protection zones and registered memory
 *      evd.c        event dispatchers
 *      cno.c        notification objects
 *      alloc.c      the provider's own allocator
 *      fork.c       what fork() does to adapters
 *      fault.c      link emulation and fault injection
 *      control.c    the adapter's side of the program daplsoft (../daplsoft)
 *      quick.h      inline steps of every request and frame
 *
 * One lock per adapter (datlock.h) protects everything on it. The DAT calls take it, and so does
 * the adapter's helper thread, which makes progress only while the application does not: an
 * application that polls or waits makes all progress in its own threads.
 */
#include "conn.h"
#include "ep.h"
#include "event.h"
#include "ia.h"
#include "mem.h"
#include "quick.h"

#endif
