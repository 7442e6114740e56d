/* SPDX-License-Identifier: MIT */
#if defined(__linux__) && !defined(MDAPL_PORTABLE)
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Not every C library has this question. */
#ifdef _SC_LEVEL2_CACHE_SIZE
enum { CORE_CACHE = _SC_LEVEL2_CACHE_SIZE };
#else
enum { CORE_CACHE = -1 };
#endif

/* -- who shares memory ------------------------------------------------------------------------ */

/*
 * /proc and the kernel's permission checks work in both directions if the user, pid and IPC
 * namespaces are the same. The network namespace is compared because administrators separate
 * virtual hosts by it (containers do, and our own tests).
 */
static const char *const spaces[] = { "user", "pid", "ipc", "net" };

static int boot_id(char *buf, size_t len)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    bool good = f && fgets(buf, (int)len, f);

    if (f)
        fclose(f);
    if (!good)
        return -ENOTSUP;
    buf[strcspn(buf, "\n")] = '\0';
    return 0;
}

int mdapl_shm_os_node(char *buf, size_t len)
{
    size_t at;

    if (boot_id(buf, len))
        return -ENOTSUP;
    at = strlen(buf);
    at += (size_t)snprintf(buf + at, len - at, " %d.%d", (int)geteuid(), (int)getegid());
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]) && at < len; i++) {
        char path[32], target[64];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
        n = readlink(path, target, sizeof(target));
        if (n <= 0)
            return -ENOTSUP;
        at += (size_t)snprintf(buf + at, len - at, " %.*s", (int)n, target);
    }
    return at < len ? 0 : -ENOSPC;
}

/* -- segments --------------------------------------------------------------------------------- */

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

int mdapl_shm_os_segment_make(size_t bytes, char ref[MDAPL_SHM_REF_MAX])
{
    int fd = memfd_create("mdapl", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc;

    if (fd < 0)
        return -errno;
    /* Sealed, so that no process can shrink it while others use it. */
    if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, SEALS)) {
        rc = -errno;
        close(fd);
        return rc;
    }
    snprintf(ref, MDAPL_SHM_REF_MAX, "%d.%d", (int)getpid(), fd);
    return fd;
}

/* False: ref is none. */
static bool segment_path(const char *ref, char path[64])
{
    int pid, number;

    return sscanf(ref, "%d.%d", &pid, &number) == 2
           && snprintf(path, 64, "/proc/%d/fd/%d", pid, number) > 0;
}

size_t mdapl_shm_os_segment_size(const char *ref)
{
    char path[64];
    struct stat st;

    return segment_path(ref, path) && stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

int mdapl_shm_os_segment_open(const char *ref, size_t bytes)
{
    char path[64];
    struct stat st;
    int fd, seals;

    if (!segment_path(ref, path))
        return -EINVAL;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid()
        || (size_t)st.st_size != bytes || seals < 0 || !(seals & F_SEAL_SHRINK)) {
        close(fd);
        return -EACCES;
    }
    return fd;
}

size_t mdapl_shm_os_inring_max(void)
{
    return 4 << 20;
}

size_t mdapl_shm_os_core_cache(void)
{
    long bytes = sysconf(CORE_CACHE);

    return bytes > 0 ? (size_t)bytes : 0;
}

int mdapl_shm_os_segment_reserve(const char *ref, size_t at, size_t bytes)
{
    (void)ref, (void)at, (void)bytes;
    return 0;                /* not limited: a memfd is ordinary memory */
}

void mdapl_shm_os_segment_remove(const char *ref)
{
    (void)ref;               /* freed with its last descriptor and mapping */
}

/* hwloc has a call for this, but with it every rank would read the topology of the machine at
 * start-up, for one number that getcpu() returns. */
void mdapl_shm_os_near(void *p, size_t len)
{
    unsigned node = 0;
    unsigned long mask;

    if (syscall(SYS_getcpu, NULL, &node, NULL) || node >= CHAR_BIT * sizeof(mask))
        return;
    mask = 1ul << node;
    syscall(SYS_mbind, p, len, MPOL_PREFERRED, &mask, CHAR_BIT * sizeof(mask) + 1, 0);
}

void mdapl_shm_os_small_pages(void *p, size_t len)
{
    madvise(p, len, MADV_NOHUGEPAGE);
}

size_t mdapl_shm_os_memory_left(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    size_t kib = SIZE_MAX / 1024;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

/* -- barrier, sleep --------------------------------------------------------------------------- */

bool mdapl_shm_os_barrier_init(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void mdapl_shm_os_barrier(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void mdapl_shm_os_sleep(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

    syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

void mdapl_shm_os_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* -- cores ------------------------------------------------------------------------------------ */

int mdapl_shm_os_core(void)
{
    return sched_getcpu();
}

/* A set without the core that the thread runs on moves it at once. */
bool mdapl_shm_os_core_leave(int core, int home)
{
    cpu_set_t allowed, others;

    if (sched_getaffinity(0, sizeof(allowed), &allowed))
        return false;
    others = allowed;
    CPU_CLR(core, &others);
    if (home != core && CPU_ISSET(home, &allowed)) {
        CPU_ZERO(&others);
        CPU_SET(home, &others);
    }
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others))
        return false;
    sched_setaffinity(0, sizeof(allowed), &allowed);
    return true;
}

/* -- processes -------------------------------------------------------------------------------- */

/* A pidfd becomes readable when the process ends. Half of the descriptors are left to the program.
 * */
int mdapl_shm_os_process_open(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct rlimit limit;

    if (fd < 0)
        return -errno;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd >= limit.rlim_cur / 2) {
        close(fd);
        return -EMFILE;
    }
    return fd;
}

bool mdapl_shm_os_process_ended(int process, pid_t pid)
{
    struct pollfd p = { process, POLLIN, 0 };

    if (process < 0)
        return kill(pid, 0) && errno == ESRCH;
    return poll(&p, 1, 0) > 0;
}

void mdapl_shm_os_process_close(int process)
{
    if (process >= 0)
        close(process);
}

/* -- another process's memory ----------------------------------------------------------------- */

void mdapl_shm_os_reads_allow(void)
{
    /* Where Yama permits reads to ancestors only: to all processes of this user. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

static ssize_t move(__typeof__(process_vm_readv) *by, pid_t pid, const struct iovec *here,
                    int n_here, const struct iovec *there, int n_there)
{
    ssize_t n;

    do
        n = by(pid, here, (unsigned long)n_here, there, (unsigned long)n_there, 0);
    while (n < 0 && errno == EINTR);
    return n;
}

ssize_t mdapl_shm_os_read(pid_t pid, const struct iovec *here, int n_here,
                          const struct iovec *there, int n_there)
{
    return move(process_vm_readv, pid, here, n_here, there, n_there);
}

ssize_t mdapl_shm_os_write(pid_t pid, const struct iovec *here, int n_here,
                           const struct iovec *there, int n_there)
{
    return move(process_vm_writev, pid, here, n_here, there, n_there);
}
#endif
