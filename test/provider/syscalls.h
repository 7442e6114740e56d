/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_SYSCALLS_H
#define SOFTDAT_TEST_SYSCALLS_H
/*
 * Counts the system calls by which the provider receives, transmits and waits: the program has
 * functions of these names, which libdaplsoft.so calls in place of the C library's.
 */
#include <stdatomic.h>
#include <stdbool.h>

struct syscalls {
    _Atomic unsigned long recv, recv_empty;      /* recv() and recvmsg(); those that got nothing */
    _Atomic unsigned long send;          /* send() and sendmsg() */
    _Atomic unsigned long epoll_ctl;
    _Atomic unsigned long poll;          /* epoll_wait() and ppoll() */
    _Atomic unsigned long send_most;     /* send() takes at most so many bytes; 0: as many as the
                                            kernel does */
    _Atomic unsigned long send_refused;  /* the next so many send() fail as on a full socket */
    atomic_bool full;            /* each send() and sendmsg() fails so */
};

/* Of all threads of this process. */
extern struct syscalls syscalls;

/* Sets all counters to 0; what is set for send() stays. */
void syscalls_reset(void);
/* Returns the sum of all calls. */
unsigned long syscalls_total(void);

#endif
