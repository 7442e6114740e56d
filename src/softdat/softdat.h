/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_H
#define SOFTDAT_H
/*
 * The inside of the software DAT provider. quick.h has the short steps that every request and every
 * frame takes. Files:
 *
 *      provider.c   what libdat2 loads: init, fini, the table of calls
 *      config.c     the parameters of a line of dat.conf
 *      ia.c         adapters: opening, attributes, closing
 *      path.c       ports, and whether the paths through them are up
 *      net.c        sockets, the event loop, the helper thread
 *      conn.c       connections: making, ending, what happens in each phase
 *      listen.c     listening points
 *      connect.c    calling, disconnecting
 *      accept.c     requests to connect
 *      sockets.c    the sockets of connections: names, options, who is at the other end
 *      ep.c ep_fsm  endpoints: life, completing, flushing
 *      post.c       posting requests and receives; the extended operations
 *      rq.c         queues of receives, shared ones too
 *      tx.c rx.c    frames out and in (wire.h, PROTOCOL)
 *      frame.c      what each type of frame that comes in does
 *      sink.c       where its payload goes
 *      held.c       sends that wait for a receive
 *      shared.c     rings of bytes between two adapters of one host
 *      fork.c       what a child of the process keeps of it: nothing
 *      direct.c     long RDMA straight between their address spaces
 *      mem.c        protection zones and registered memory
 *      evd.c        event dispatchers and notification objects
 *      alloc.c      memory of the provider's own
 *      fault.c      the laboratory: slow wires and injected faults
 *      control.c    answers the program daplsoft (../daplsoft)
 *
 * One lock per adapter protects everything on it. It is taken by the API calls and by the
 * adapter's helper thread, which serves the sockets only while the application does not call in:
 * an application that polls or waits makes all progress itself.
 */
#include "conn.h"
#include "ep.h"
#include "event.h"
#include "ia.h"
#include "mem.h"
#include "quick.h"

#endif
