/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_CONTROL_H
#define SOFTDAT_CONTROL_H
/*
 * The control protocol between the program daplsoft and an open adapter: a SOCK_SEQPACKET unix
 * socket with the abstract name "daplsoft-ia.PID.K", K counting the adapters of the process. One
 * packet carries a command ("show", "cut 1"), one packet its reply, as text. A reply that begins
 * with "error:" names the error.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum { SOFTDAT_CONTROL_MAX = 60000 };    /* bytes of a reply */

#define SOFTDAT_CONTROL_PREFIX "daplsoft-ia."

/* Fills *un with the control address of the k-th adapter of process pid. Returns the address's
 * length in bytes. */
static inline socklen_t softdat_control_name(struct sockaddr_un *un, pid_t pid, unsigned k)
{
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1
                       + (size_t)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
                                          SOFTDAT_CONTROL_PREFIX "%ld.%u", (long)pid, k));
}

#endif
