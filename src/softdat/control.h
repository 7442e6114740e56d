/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_CONTROL_H
#define SOFTDAT_CONTROL_H
/*
 * Between an open adapter and the program daplsoft: a SOCK_SEQPACKET unix socket with the abstract
 * name "daplsoft-ia.PID.K", K counting the process's adapters. One packet asks ("show", "cut 1"),
 * one packet of text answers; an answer that begins with "error:" says what was wrong.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum { SOFTDAT_CONTROL_MAX = 60000 };    /* bytes of an answer */

#define SOFTDAT_CONTROL_PREFIX "daplsoft-ia."

/* Fills the address of the k-th adapter of a process; returns its length. */
static inline socklen_t softdat_control_name(struct sockaddr_un *un, pid_t pid, unsigned k)
{
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1
                       + (size_t)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
                                          SOFTDAT_CONTROL_PREFIX "%ld.%u", (long)pid, k));
}

#endif
