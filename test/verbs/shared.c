/* SPDX-License-Identifier: MIT */
#include "hv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIFO_BYTES = 1 << 20 };    /* the most that an ordinary user may ask for */

static void die(const char *what)
{
    fprintf(stderr, "verbs of one host: %s: %s\n", what, strerror(errno));
    abort();
}

static void make_lock(struct hv_shared *s)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&s->lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

/* The shared file; the first process makes its lock. */
static struct hv_shared *map(const char *folder)
{
    struct hv_shared *s;
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof(path), "%s/shared", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || lockf(fd, F_LOCK, 0) || ftruncate(fd, sizeof(*s)))
        die(path);
    s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s == MAP_FAILED)
        die(path);
    if (!s->ready) {
        make_lock(s);
        s->ready = true;
    }
    if (lockf(fd, F_ULOCK, 0))
        die(path);
    close(fd);
    return s;
}

static struct hv_process process;

static void open_process(void)
{
    const char *transport = getenv("VERBS_TRANSPORT"), *lockable = getenv("VERBS_MEMLOCK");

    process.folder = getenv("VERBS_DIR");
    if (!process.folder) {
        errno = ENOENT;
        die("VERBS_DIR is not set: a folder that the processes share");
    }
    process.pid = getpid();
    process.withdraw = getenv("VERBS_WITHDRAW") != NULL;
    process.migrate = getenv("VERBS_MIGRATE") != NULL;
    process.ordered = getenv("VERBS_ORDERED") != NULL;
    process.port_down = getenv("VERBS_PORT_DOWN") != NULL;
    process.lockable = lockable ? strtoull(lockable, NULL, 10) : UINT64_MAX;
    process.iwarp = transport && !strcmp(transport, "iwarp");
    process.infiniband = transport && !strcmp(transport, "infiniband");
    process.device.node_type = process.iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
    process.device.transport_type = process.iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    strcpy(process.device.name, "hv0");
    strcpy(process.device.dev_name, "uverbs0");
    /* the others may read and write this process's memory also where only a debugger may */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    process.shared = map(process.folder);
}

struct hv_process *hv_process(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, open_process);
    return &process;
}

void hv_lock(void)
{
    pthread_mutex_t *lock = &hv_process()->shared->lock;

    if (pthread_mutex_lock(lock) == EOWNERDEAD)
        pthread_mutex_consistent(lock);
}

void hv_unlock(void)
{
    pthread_mutex_unlock(&process.shared->lock);
}

/* -- numbered objects ------------------------------------------------------------------------- */

/* How the struct of every table begins. */
struct numbered {
    uint32_t num, uses;
};

void *hv_new(void *table, uint32_t length, size_t bytes, size_t zeroed)
{
    for (uint32_t place = 1; place < length; place++) {
        struct numbered *object = (void *)((char *)table + place * bytes);
        uint32_t uses = object->uses + 1;

        if (object->num)
            continue;
        memset(object, 0, zeroed);
        object->uses = uses;
        object->num = (place + length * uses) & HV_QPN_MASK;
        return object;
    }
    return NULL;
}

struct hv_qp *hv_qp(uint32_t num)
{
    struct hv_qp *qp = &process.shared->qp[num % HV_QPS];

    return num && qp->num == num ? qp : NULL;
}

struct hv_cq *hv_cq(uint32_t num)
{
    struct hv_cq *cq = &process.shared->cq[num % HV_CQS];

    return num && cq->num == num ? cq : NULL;
}

struct hv_srq *hv_srq(uint32_t num)
{
    struct hv_srq *srq = &process.shared->srq[num % HV_SRQS];

    return num && srq->num == num ? srq : NULL;
}

struct hv_id *hv_id(uint32_t num)
{
    struct hv_id *id = &process.shared->id[num % HV_IDS];

    return num && id->num == num ? id : NULL;
}

/* -- counts ----------------------------------------------------------------------------------- */

static const char *const count_names[HV_COUNTS] = {
    [HV_SEND_CALLS] = "send_calls", [HV_SENDS] = "sends", [HV_RECV_CALLS] = "recv_calls",
    [HV_RECVS] = "recvs", [HV_POLLS] = "polls", [HV_COMPLETIONS] = "completions",
    [HV_ARMS] = "arms", [HV_NOTIFICATIONS] = "notifications",
};

void hv_count(enum hv_count what, unsigned long n)
{
    __atomic_fetch_add(&process.count[what], n, __ATOMIC_RELAXED);
}

long ibv_hv_count(const char *name)
{
    for (int i = 0; i < HV_COUNTS; i++)
        if (strcmp(name, count_names[i]) == 0)
            return (long)__atomic_load_n(&process.count[i], __ATOMIC_RELAXED);
    return -1;
}

__attribute__((destructor)) static void write_counts(void)
{
    char path[PATH_MAX];
    FILE *f;

    if (!process.shared || process.pid != getpid())
        return;
    snprintf(path, sizeof(path), "%s/count.%d", process.folder, (int)process.pid);
    f = fopen(path, "w");
    for (int i = 0; f && i < HV_COUNTS; i++)
        fprintf(f, "%s %lu\n", count_names[i], process.count[i]);
    if (f)
        fclose(f);
}

/* -- FIFOs ------------------------------------------------------------------------------------ */

static void fifo_path(uint32_t num, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/fifo.%u", process.folder, num);
}

int hv_fifo_make(uint32_t *num)
{
    char path[PATH_MAX];
    int fd;

    *num = __atomic_add_fetch(&process.shared->next_fifo, 1, __ATOMIC_RELAXED);
    fifo_path(*num, path);
    fd = mkfifo(path, 0600) ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        die(path);
    fcntl(fd, F_SETPIPE_SZ, FIFO_BYTES);
    return fd;
}

void hv_fifo_remove(uint32_t num, int fd)
{
    char path[PATH_MAX];

    fifo_path(num, path);
    unlink(path);
    close(fd);
}

void hv_fifo_write(uint32_t num, const void *message, size_t bytes)
{
    char path[PATH_MAX];
    int fd;

    fifo_path(num, path);
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (write(fd, message, bytes) < 0 && errno != EPIPE)
        die(path);
    close(fd);
}
