/* SPDX-License-Identifier: MIT */
#include "syscalls.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

struct syscalls syscalls;

void syscalls_reset(void)
{
    syscalls.recv = syscalls.recv_empty = syscalls.send = syscalls.epoll_ctl = syscalls.poll = 0;
}

unsigned long syscalls_total(void)
{
    return syscalls.recv + syscalls.send + syscalls.epoll_ctl + syscalls.poll;
}

/* Calls the next function of that name, the C library's or a sanitizer's, with the type of f. */
#define NEXT(f) ((__typeof__(&f))(uintptr_t)dlsym(RTLD_NEXT, #f))

static ssize_t received(ssize_t n)
{
    syscalls.recv++;
    syscalls.recv_empty += n < 0;
    return n;
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    return received(NEXT(recv)(fd, buf, n, flags));
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    return received(NEXT(recvmsg)(fd, m, flags));
}

/* True if a send() fails now, as on a full socket. */
static bool refused(void)
{
    bool full = syscalls.full;

    if (!full && syscalls.send_refused == 0)
        return false;
    syscalls.send_refused -= !full;
    errno = EAGAIN;
    return true;
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    syscalls.send++;
    if (refused())
        return -1;
    if (syscalls.send_most > 0 && n > syscalls.send_most)
        n = syscalls.send_most;
    return NEXT(send)(fd, buf, n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    syscalls.send++;
    if (syscalls.full) {
        errno = EAGAIN;
        return -1;
    }
    return NEXT(sendmsg)(fd, m, flags);
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *e)
{
    syscalls.epoll_ctl++;
    return NEXT(epoll_ctl)(epfd, op, fd, e);
}

int epoll_wait(int epfd, struct epoll_event *e, int max, int ms)
{
    syscalls.poll++;
    return NEXT(epoll_wait)(epfd, e, max, ms);
}

int ppoll(struct pollfd *fd, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
    syscalls.poll++;
    return NEXT(ppoll)(fd, n, t, mask);
}
