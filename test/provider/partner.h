/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_PARTNER_H
#define SOFTDAT_TEST_PARTNER_H
/*
 * A second process with an adapter of its own, for what one process cannot show: a peer that is
 * stopped, that dies, that forks. It is forked before this process opens an adapter, listens, and
 * does what `role` says; both talk through a socket pair besides.
 */
#include "world.h"

#include <sys/types.h>

struct partner {
    pid_t pid;
    int fd;                      /* the socket pair: this process's end */
    struct sockaddr_in addr;     /* where it listens */
    DAT_CONN_QUAL qual;
    uint64_t va;                 /* its registered memory, BUF bytes */
    DAT_RMR_CONTEXT key;
};

/* The partner's side: an open adapter that listens, and the other end of the socket pair. When it
 * returns the process ends with status 0; a failed assertion ends it with another. */
typedef void partner_role(struct side *s, int fd);

/* Starts a partner on the IA `name`. */
void partner_start(struct partner *p, const char *name, partner_role *role);
/* The same; `prepare` (may be NULL) is called in it before it opens its adapter. */
void partner_start_prepared(struct partner *p, const char *name, partner_role *role,
                            void (*prepare)(void));
/* Connects s->ep to it and waits until the connection stands. */
void partner_join(struct partner *p, struct side *s);
/* Stops it, and returns when it has stopped. */
void partner_stop(struct partner *p);
void partner_continue(struct partner *p);
/* Ends it (by SIGKILL); what it has asserted is checked when it ended before. */
void partner_end(struct partner *p);

/* In a role: accepts one call on s->ep and waits until the connection stands. */
void partner_accept(struct side *s);
/* In a role: waits for the event that ends the connection. */
void partner_until_ended(struct side *s);

/* A byte through the socket pair, and one from it (-1: the other process has ended). */
void say(int fd, char c);
int hear(int fd);

/* The memory of the partner as RDMA sees it. */
DAT_RMR_TRIPLET partner_at(const struct partner *p, size_t at, uint32_t len);

#endif
