/* SPDX-License-Identifier: MIT */
#include "cuts.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FD = 4096, MAX_FRAME = 1 << 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int made[2];              /* links, by end */
static struct { int link, end; } of_fd[MAX_FD];      /* link: plus one; 0: none */
static struct cut {
    long left, sent;
    bool closes;
} cut[CUTS_LINKS][2];

/* The next function of that name, the C library's or a sanitizer's, with the type of f. */
#define NEXT(f) ((__typeof__(&f))(uintptr_t)dlsym(RTLD_NEXT, #f))

static struct cut no_cut(void)
{
    return (struct cut){ .left = LONG_MAX };
}

void cuts_reset(void)
{
    pthread_mutex_lock(&lock);
    made[CUTS_ACTIVE] = made[CUTS_PASSIVE] = 0;
    memset(of_fd, 0, sizeof(of_fd));
    for (int i = 0; i < CUTS_LINKS; i++)
        cut[i][CUTS_ACTIVE] = cut[i][CUTS_PASSIVE] = no_cut();
    pthread_mutex_unlock(&lock);
}

void cuts_set(int link, enum cuts_end end, long bytes, bool closes)
{
    pthread_mutex_lock(&lock);
    cut[link][end] = (struct cut){ .left = bytes == CUTS_NEVER ? LONG_MAX : bytes,
                                   .closes = closes };
    pthread_mutex_unlock(&lock);
}

long cuts_sent(int link, enum cuts_end end)
{
    long n;

    pthread_mutex_lock(&lock);
    n = cut[link][end].sent;
    pthread_mutex_unlock(&lock);
    return n;
}

static void note(int fd, enum cuts_end end)
{
    int type = 0;
    socklen_t len = sizeof(type);

    if (fd < 0 || fd >= MAX_FD || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len)
        || type != SOCK_STREAM)
        return;
    pthread_mutex_lock(&lock);
    of_fd[fd].end = (int)end;
    of_fd[fd].link = ++made[end];
    pthread_mutex_unlock(&lock);
}

int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    int rc = NEXT(connect)(fd, to, len), error = errno;

    if (rc == 0 || error == EINPROGRESS)
        note(fd, CUTS_ACTIVE);
    errno = error;
    return rc;
}

int accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    int got = NEXT(accept4)(fd, from, len, flags), error = errno;

    note(got, CUTS_PASSIVE);
    errno = error;
    return got;
}

int close(int fd)
{
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < MAX_FD)
        of_fd[fd].link = 0;
    pthread_mutex_unlock(&lock);
    return NEXT(close)(fd);
}

/* Returns the cut of a descriptor's link; NULL: it has none. With the lock. */
static struct cut *cut_of(int fd)
{
    int link = fd >= 0 && fd < MAX_FD ? of_fd[fd].link : 0;

    return link > 0 && link <= CUTS_LINKS ? &cut[link - 1][of_fd[fd].end] : NULL;
}

static size_t copy(uint8_t *to, const struct msghdr *m, size_t max)
{
    size_t len = 0;

    for (size_t i = 0; i < m->msg_iovlen && len < max; i++) {
        size_t n = m->msg_iov[i].iov_len < max - len ? m->msg_iov[i].iov_len : max - len;

        memcpy(to + len, m->msg_iov[i].iov_base, n);
        len += n;
    }
    return len;
}

static ssize_t refuse(int fd, const struct cut *c)
{
    if (c->closes)
        shutdown(fd, SHUT_RDWR);
    errno = c->closes ? EPIPE : EAGAIN;
    return -1;
}

/* Transmits as many bytes as the link takes. */
static ssize_t transmit(int fd, const struct msghdr *m, struct cut *c, int flags)
{
    static uint8_t frame[MAX_FRAME];
    struct iovec v = { frame, 0 };
    struct msghdr part = *m;
    ssize_t n;

    if (c->left == 0)
        return refuse(fd, c);
    v.iov_len = copy(frame, m, c->left < MAX_FRAME ? (size_t)c->left : MAX_FRAME);
    part.msg_iov = &v;
    part.msg_iovlen = 1;
    n = NEXT(sendmsg)(fd, &part, flags);
    if (n > 0) {
        c->sent += n;
        c->left -= c->left == LONG_MAX ? 0 : n;
    }
    return n;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    struct cut *c;
    ssize_t n;

    pthread_mutex_lock(&lock);
    c = cut_of(fd);
    n = c ? transmit(fd, m, c, flags) : 0;
    pthread_mutex_unlock(&lock);
    return c ? n : NEXT(sendmsg)(fd, m, flags);
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
    struct iovec v = { (void *)(uintptr_t)buf, len };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

    return sendmsg(fd, &m, flags);
}
