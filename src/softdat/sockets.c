/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096 };             /* a whole job may connect at once */

/* Fills *un with the abstract unix socket address of a service point; returns its length. Abstract
 * addresses leave nothing in the file system and belong to a network namespace, which thus counts
 * as a host. */
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

bool softdat_raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= limit.rlim_max)
        return false;
    limit.rlim_cur = limit.rlim_cur < limit.rlim_max / 2 ? limit.rlim_cur * 2 : limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int new_socket(int domain)
{
    int fd;

    do
        fd = socket(domain, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    while (fd < 0 && errno == EMFILE && softdat_raise_fd_limit());
    return fd;
}

void softdat_warn_once(struct softdat_ia *ia, const char *what, int error)
{
    struct rlimit limit = { 0, 0 };

    if (ia->warned)
        return;
    ia->warned = true;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (error == EMFILE)
        fprintf(stderr, "daplsoft: IA %s cannot %s: %s. The limit is %llu: raise it (ulimit -n)\n",
                ia->name, what, strerror(error), (unsigned long long)limit.rlim_cur);
    else
        fprintf(stderr, "daplsoft: IA %s cannot %s: %s\n", ia->name, what, strerror(error));
}

/* Seconds for which the kernel keeps a connection from accept() until CONNECT has arrived. So the
 * callers that are slow to send it, as many at the same time are on a busy host, do not fill the
 * places of unidentified connections (listen.c), where they would be dropped. */
static const int defer_s = 5;

int softdat_listen_tcp(struct sockaddr_in sin, uint32_t qual)
{
    int one = 1, fd = new_socket(AF_INET), error;

    if (fd < 0)
        return -1;    /* errno names the cause */
    sin.sin_port = htons((uint16_t)qual);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer_s, sizeof(defer_s));
    if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

int softdat_local_socket(void)
{
    return new_socket(AF_UNIX);
}

int softdat_listen_local(struct sockaddr_in sin, uint32_t qual)
{
    struct sockaddr_un un;
    socklen_t len = local_name(&un, sin.sin_addr, qual);
    int fd = softdat_local_socket(), error;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&un, len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

int softdat_connect_local(int fd, struct in_addr addr, uint32_t qual)
{
    struct sockaddr_un un;
    socklen_t len = local_name(&un, addr, qual);

    if (connect(fd, (struct sockaddr *)&un, len))
        return errno;
    return softdat_same_user(fd) ? 0 : EACCES;
}

int softdat_connect_tcp(struct sockaddr_in from, struct sockaddr_in to, int *error_p)
{
    int fd = new_socket(AF_INET), one = 1;

    from.sin_port = 0;
    /* Lets connect() choose the port, which may then be in use for other destinations. While it is
     * in use, and for a minute after that, a service point may have the same number. */
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    }
    if (fd >= 0 && bind(fd, (struct sockaddr *)&from, sizeof(from)) == 0
        && (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EINPROGRESS))
        return fd;
    *error_p = errno;
    if (fd >= 0)
        close(fd);
    return -1;
}
