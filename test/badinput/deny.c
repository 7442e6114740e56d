/* SPDX-License-Identifier: MIT */
/* Preloaded: the call that DENY names fails as where a system denies it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static int denied(const char *name)
{
    const char *word = getenv("DENY");

    if (!word || strcmp(word, name) != 0)
        return 0;
    errno = EPERM;
    return 1;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

ssize_t getrandom(void *buf, size_t len, unsigned flags)
{
    ssize_t (*f)(void *, size_t, unsigned) =
        (ssize_t (*)(void *, size_t, unsigned))next("getrandom");

    return denied("getrandom") ? -1 : f(buf, len, flags);
}

int eventfd(unsigned count, int flags)
{
    int (*f)(unsigned, int) = (int (*)(unsigned, int))next("eventfd");

    return denied("eventfd") ? -1 : f(count, flags);
}

int epoll_create1(int flags)
{
    int (*f)(int) = (int (*)(int))next("epoll_create1");

    return denied("epoll_create1") ? -1 : f(flags);
}

typedef int create_call(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    create_call *f = (create_call *)next("pthread_create");

    return denied("pthread_create") ? EAGAIN : f(thread, attr, start, arg);
}
