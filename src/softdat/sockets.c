/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };             /* a whole job may call at once */

/* On one host connections go through abstract unix sockets: nothing stays behind in the file
 * system, and a network namespace is a host of its own. */
static socklen_t local_name(struct sockaddr_un *un, struct in_addr addr, uint32_t qual)
{
    char text[INET_ADDRSTRLEN];

    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    inet_ntop(AF_INET, &addr, text, sizeof(text));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1
                       + (size_t)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
                                          "daplsoft.%s.%u", text, qual));
}

/* Other users stay out: abstract names have no permissions. */
bool softdat_same_user(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0
           && (cred.uid == geteuid() || cred.uid == 0);
}

void softdat_set_nodelay(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int softdat_listen_tcp(struct sockaddr_in sin, uint32_t qual)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;    /* with errno as it is: the user reads it */
    sin.sin_port = htons((uint16_t)qual);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    close(fd);
    return -1;
}

int softdat_local_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int softdat_listen_local(struct sockaddr_in sin, uint32_t qual)
{
    struct sockaddr_un un;
    socklen_t len = local_name(&un, sin.sin_addr, qual);
    int fd = softdat_local_socket();

    if (fd >= 0 && bind(fd, (struct sockaddr *)&un, len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int softdat_call_local(int fd, struct in_addr addr, uint32_t qual)
{
    struct sockaddr_un un;
    socklen_t len = local_name(&un, addr, qual);

    if (connect(fd, (struct sockaddr *)&un, len))
        return errno;
    return softdat_same_user(fd) ? 0 : EACCES;
}

/* A socket that is connecting from that address; -1 with *error_p. */
int softdat_call_tcp(struct sockaddr_in from, struct sockaddr_in to, int *error_p)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    from.sin_port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0
        && (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EINPROGRESS))
        return fd;
    *error_p = errno;
    if (fd >= 0)
        close(fd);
    return -1;
}
