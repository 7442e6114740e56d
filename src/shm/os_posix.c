/* SPDX-License-Identifier: MIT */
#if !defined(__linux__) || defined(MDAPL_PORTABLE)
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SLEEP_NS_MAX = 20000 };   /* short, because no other process can end this sleep */

int mdapl_shm_os_node(char *buf, size_t len)
{
    char host[64] = "";
    int n;

    if (gethostname(host, sizeof(host) - 1))
        return -ENOTSUP;
    n = snprintf(buf, len, "%s %ld %d.%d", host, gethostid(), (int)geteuid(), (int)getegid());
    return (size_t)n < len ? 0 : -ENOSPC;
}

int mdapl_shm_os_segment_make(size_t bytes, char ref[MDAPL_SHM_REF_MAX])
{
    for (int i = 0; i < 1000; i++) {
        int fd, rc;

        snprintf(ref, MDAPL_SHM_REF_MAX, "/mdapl-%d.%d", (int)getpid(), i);
        fd = shm_open(ref, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            return -errno;
        if (ftruncate(fd, (off_t)bytes) == 0)
            return fd;
        rc = -errno;
        close(fd);
        shm_unlink(ref);
        return rc;
    }
    return -EEXIST;
}

size_t mdapl_shm_os_segment_size(const char *ref)
{
    int fd = shm_open(ref, O_RDONLY, 0);
    struct stat st = { 0 };

    if (fd < 0)
        return 0;
    fstat(fd, &st);
    close(fd);
    return (size_t)st.st_size;
}

int mdapl_shm_os_segment_open(const char *ref, size_t bytes)
{
    struct stat st;
    int fd = shm_open(ref, O_RDWR, 0);

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) || st.st_uid != geteuid() || (size_t)st.st_size != bytes) {
        close(fd);
        return -EACCES;
    }
    return fd;
}

size_t mdapl_shm_os_inring_max(void)
{
    return 256 << 10;            /* all of it is allocated before its first use */
}

size_t mdapl_shm_os_core_cache(void)
{
    return 0;
}

int mdapl_shm_os_segment_reserve(const char *ref, size_t at, size_t bytes)
{
    int fd = shm_open(ref, O_RDWR, 0), rc;

    if (fd < 0)
        return -errno;
    do
        rc = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    while (rc == EINTR);
    close(fd);
    /* A system that cannot allocate for segments does not limit their memory in this way. */
    return rc == EINVAL || rc == EOPNOTSUPP || rc == ENODEV ? 0 : -rc;
}

void mdapl_shm_os_segment_remove(const char *ref)
{
    shm_unlink(ref);
}

void mdapl_shm_os_near(void *p, size_t len)
{
    (void)p, (void)len;
}

void mdapl_shm_os_small_pages(void *p, size_t len)
{
    (void)p, (void)len;
}

size_t mdapl_shm_os_memory_left(void)
{
    return SIZE_MAX;
}

bool mdapl_shm_os_barrier_init(void)
{
    return false;
}

void mdapl_shm_os_barrier(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

void mdapl_shm_os_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec t = { 0, ns < SLEEP_NS_MAX ? (long)ns : SLEEP_NS_MAX };

    if (atomic_load(word) == value)
        nanosleep(&t, NULL);
}

void mdapl_shm_os_wake(_Atomic uint32_t *word)
{
    (void)word;
}

int mdapl_shm_os_core(void)
{
    return -1;
}

bool mdapl_shm_os_core_leave(int core, int home)
{
    (void)core;
    (void)home;
    return false;
}

int mdapl_shm_os_process_open(pid_t pid)
{
    (void)pid;
    return -ENOTSUP;
}

bool mdapl_shm_os_process_ended(int process, pid_t pid)
{
    (void)process;
    return kill(pid, 0) && errno == ESRCH;
}

void mdapl_shm_os_process_close(int process)
{
    (void)process;
}

void mdapl_shm_os_reads_allow(void)
{
}

ssize_t mdapl_shm_os_read(pid_t pid, const struct iovec *here, int n_here,
                          const struct iovec *there, int n_there)
{
    (void)pid, (void)here, (void)n_here, (void)there, (void)n_there;
    return -1;
}

ssize_t mdapl_shm_os_write(pid_t pid, const struct iovec *here, int n_here,
                           const struct iovec *there, int n_there)
{
    return mdapl_shm_os_read(pid, here, n_here, there, n_there);
}
#endif
