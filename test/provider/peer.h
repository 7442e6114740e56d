/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_PEER_H
#define SOFTDAT_TEST_PEER_H
/*
 * A second process with an adapter of its own, for tests with a peer that is stopped, dies or
 * forks. It is forked before this process opens an adapter; it listens and runs `role`. A socket
 * pair synchronises the two processes.
 */
#include "world.h"

#include <sys/types.h>

struct peer {
    pid_t pid;
    int fd;                      /* the socket pair: this process's end */
    struct sockaddr_in addr;     /* where it listens */
    DAT_CONN_QUAL qual;
    uint64_t va;                 /* its registered memory, BUF bytes */
    DAT_RMR_CONTEXT key;
};

/* Runs in the peer process, with an open adapter that listens and its end of the socket pair. When
 * it returns the process exits with status 0; after a failed assertion with another. */
typedef void peer_role(struct side *s, int fd);

/* Starts a peer process on the IA `name`. */
void peer_start(struct peer *p, const char *name, peer_role *role);
/* The same; the process calls `prepare` (may be NULL) before it opens its adapter. */
void peer_start_prepared(struct peer *p, const char *name, peer_role *role,
                         void (*prepare)(void));
/* Connects s->ep to it and waits until the connection is established. */
void peer_connect(struct peer *p, struct side *s);
/* Stops the process and waits until it is stopped. */
void peer_stop(struct peer *p);
void peer_continue(struct peer *p);
/* Kills the process, unless it has ended; then checks its exit status. */
void peer_end(struct peer *p);

/* In a role: accepts one connection on s->ep and waits until it is established. */
void peer_accept(struct side *s);
/* In a role: waits for the event that ends the connection. */
void peer_wait_end(struct side *s);

/* Sends a byte through the socket pair; receives one, -1: the other process has ended. */
void send_byte(int fd, char c);
int recv_byte(int fd);

/* len bytes at offset `at` of the peer's buffer, as a remote segment. */
DAT_RMR_TRIPLET peer_memory(const struct peer *p, size_t at, uint32_t len);

#endif
