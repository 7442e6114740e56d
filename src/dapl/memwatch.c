/* SPDX-License-Identifier: MIT */
#include "memwatch.h"

#include <errno.h>

#if defined(__linux__) && !defined(MDAPL_PORTABLE)
#include <linux/userfaultfd.h>
#endif

#ifdef UFFD_USER_MODE_ONLY

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NOTES = 512,             /* changes that the notes hold until the owner takes them */
    SYNC_YIELDS = 2000,      /* of the core, before a wait for the end of changes is given up */
};

static const uint64_t pagemap_shared = 1ull << 61;   /* of a file, or shared anonymous memory */

/*
 * A thread reads the kernel's events and writes a note of each; the owner of the cache takes the
 * notes. The thread takes no lock and allocates nothing, so a caller of munmap(), which waits until
 * its event has been read, cannot deadlock with it.
 *
 * No change is missed. For the kernel a change is in progress from before the pages are unmapped
 * until its event has been read, and mdapl_dapl_memwatch_sync() waits for its end. (madvise()
 * discards the pages after that; until it returns, a transfer from these pages is an error of the
 * program.) An event that has been read is not a note yet, so `reads` is odd from before each read
 * until after its note, and sync waits until an odd value changes. The locks of the kernel order
 * the read of an event before the end of its change. Sync queries the kernel first, so it finds
 * that read in progress (odd) or finished; the thread writes the note of a finished read before it
 * increments `reads` with release order, so sync sees the note.
 */
struct mdapl_dapl_memwatch {
    int uffd, pagemap, stop;
    pthread_t thread;
    atomic_uint_fast64_t reads;
    /* notes: only the thread writes `noted`, only the owner `taken` */
    atomic_uint_fast64_t noted, taken;
    atomic_bool too_many;        /* the notes were full: any range may have changed */
    struct mdapl_dapl_memwatch_range note[NOTES];
    /* the owner's: the mappings that it watched last, and the value of `noted` at that time */
    struct mdapl_dapl_memwatch_range known;
    uint64_t known_at;
};

/* -- the thread ------------------------------------------------------------------------------- */

static void note(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r)
{
    uint64_t n = atomic_load_explicit(&w->noted, memory_order_relaxed);

    if (n - atomic_load_explicit(&w->taken, memory_order_acquire) == NOTES) {
        atomic_store_explicit(&w->too_many, true, memory_order_relaxed);
        return;
    }
    w->note[n % NOTES] = r;
    atomic_store_explicit(&w->noted, n + 1, memory_order_release);
}

static void note_event(struct mdapl_dapl_memwatch *w, const struct uffd_msg *msg)
{
    if (msg->event == UFFD_EVENT_REMAP)
        note(w, (struct mdapl_dapl_memwatch_range){
                    (uintptr_t)msg->arg.remap.from,
                    (uintptr_t)(msg->arg.remap.from + msg->arg.remap.len) });
    else
        note(w, (struct mdapl_dapl_memwatch_range){ (uintptr_t)msg->arg.remove.start,
                                                    (uintptr_t)msg->arg.remove.end });
}

/* Reads an event and notes it. False: there was none. */
static bool read_one(struct mdapl_dapl_memwatch *w)
{
    struct uffd_msg msg;
    bool got;

    atomic_fetch_add_explicit(&w->reads, 1, memory_order_seq_cst);
    got = read(w->uffd, &msg, sizeof(msg)) == sizeof(msg);
    if (got)
        note_event(w, &msg);
    atomic_fetch_add_explicit(&w->reads, 1, memory_order_release);
    return got;
}

static void *watch(void *arg)
{
    struct mdapl_dapl_memwatch *w = arg;
    struct pollfd fd[] = { { w->uffd, POLLIN, 0 }, { w->stop, POLLIN, 0 } };
    uint64_t one;

    while (poll(fd, 2, -1) <= 0 || !fd[1].revents)
        while (read_one(w))
            ;
    /* The end of a thread frees its memory, perhaps of a watched mapping, and no thread would read
     * that event, so uffd is closed first. The read orders this after the owner's last use. */
    if (read(w->stop, &one, sizeof(one)) == sizeof(one)) {
        close(w->uffd);
        w->uffd = -1;
    }
    return NULL;
}

/* Starts the thread with all signals blocked, so that it handles none of the program's. */
static int start_thread(struct mdapl_dapl_memwatch *w)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

/* -- opening and closing ---------------------------------------------------------------------- */

static int open_uffd(void)
{
    struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_EVENT_UNMAP
                              | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE };
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void close_all(struct mdapl_dapl_memwatch *w)
{
    int fd[] = { w->uffd, w->pagemap, w->stop };

    for (int i = 0; i < 3; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    free(w);
}

int mdapl_dapl_memwatch_open(struct mdapl_dapl_memwatch **w_p)
{
    struct mdapl_dapl_memwatch *w = calloc(1, sizeof(*w));
    int rc;

    if (!w)
        return -ENOMEM;
    w->pagemap = w->stop = -1;
    w->uffd = open_uffd();
    if (w->uffd >= 0)
        w->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (w->pagemap >= 0)
        w->stop = eventfd(0, EFD_CLOEXEC);
    rc = w->stop >= 0 ? start_thread(w) : -errno;
    if (rc) {
        close_all(w);
        return rc;
    }
    *w_p = w;
    return 0;
}

void mdapl_dapl_memwatch_close(struct mdapl_dapl_memwatch *w)
{
    uint64_t one = 1;

    while (write(w->stop, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(w->thread, NULL);
    close_all(w);                /* ends the waits for events that have not been read */
}

/* -- what is watched -------------------------------------------------------------------------- */

static struct uffdio_range uffd_range(struct mdapl_dapl_memwatch_range r)
{
    return (struct uffdio_range){ .start = r.start, .len = r.end - r.start };
}

/*
 * The mappings that the range lies in, from the start of the first to the end of the last; the
 * range itself when /proc does not say.
 */
static struct mdapl_dapl_memwatch_range mappings_of(struct mdapl_dapl_memwatch_range r)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    struct mdapl_dapl_memwatch_range all = r;
    uintptr_t start = 0, end;
    size_t size = 0;
    char *line = NULL;

    while (maps && start < r.end && getline(&line, &size, maps) > 0) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) != 2 || end <= r.start
            || start >= r.end)
            continue;
        if (start < all.start)
            all.start = start;
        if (end > all.end)
            all.end = end;
    }
    free(line);
    if (maps)
        fclose(maps);
    return all;
}

static int watch_range(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r)
{
    struct uffdio_register reg = { .range = uffd_range(r), .mode = UFFDIO_REGISTER_MODE_WP };

    return ioctl(w->uffd, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

/* Watches the mappings from end to end (memwatch.h says why); if that fails, the range alone. */
int mdapl_dapl_memwatch_add(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r)
{
    uint64_t noted = atomic_load_explicit(&w->noted, memory_order_acquire);
    struct mdapl_dapl_memwatch_range all;
    int rc = 0;

    /* No change since these mappings were watched last: they still are. */
    if (noted == w->known_at && r.start >= w->known.start && r.end <= w->known.end
        && !atomic_load_explicit(&w->too_many, memory_order_relaxed))
        return 0;
    all = mappings_of(r);
    rc = watch_range(w, all);
    if (rc) {
        all = r;
        rc = watch_range(w, r);
    }
    w->known = rc ? (struct mdapl_dapl_memwatch_range){ 0, 0 } : all;
    w->known_at = noted;
    return rc;
}

enum { ENTRIES = 512 };      /* of the page map, read at once */

/* A page that is not present is not shared; an adapter that pins pages has made them present. */
bool mdapl_dapl_memwatch_shared(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = r.start / page;
    uintptr_t end = (r.end + page - 1) / page;
    uint64_t entry[ENTRIES];

    while (at < end) {
        size_t n = end - at < ENTRIES ? end - at : ENTRIES;

        if (pread(w->pagemap, entry, n * sizeof(entry[0]), (off_t)(at * sizeof(entry[0])))
            != (ssize_t)(n * sizeof(entry[0])))
            return true;
        for (size_t i = 0; i < n; i++)
            if (entry[i] & pagemap_shared)
                return true;
        at += n;
    }
    return false;
}

/* -- what has changed ------------------------------------------------------------------------- */

/* Is a change in progress? The kernel refuses UFFDIO_WRITEPROTECT with EAGAIN then, before it
 * checks the range, which is empty here. */
static bool changing(const struct mdapl_dapl_memwatch *w)
{
    struct uffdio_writeprotect nothing = { .mode = 0 };

    return ioctl(w->uffd, UFFDIO_WRITEPROTECT, &nothing) && errno == EAGAIN;
}

bool mdapl_dapl_memwatch_sync(struct mdapl_dapl_memwatch *w)
{
    int yields = 0;
    uint64_t reads;

    while (changing(w))
        if (++yields > SYNC_YIELDS || sched_yield())
            return false;
    reads = atomic_load_explicit(&w->reads, memory_order_seq_cst);
    while (reads % 2 == 1 && atomic_load_explicit(&w->reads, memory_order_acquire) == reads)
        if (++yields > SYNC_YIELDS || sched_yield())
            return false;
    return true;
}

bool mdapl_dapl_memwatch_next(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range *r_p)
{
    uint64_t n = atomic_load_explicit(&w->taken, memory_order_relaxed);

    if (atomic_exchange_explicit(&w->too_many, false, memory_order_relaxed)) {
        *r_p = (struct mdapl_dapl_memwatch_range){ 0, UINTPTR_MAX };
        w->known = (struct mdapl_dapl_memwatch_range){ 0, 0 };
        return true;
    }
    if (n == atomic_load_explicit(&w->noted, memory_order_acquire))
        return false;
    *r_p = w->note[n % NOTES];
    atomic_store_explicit(&w->taken, n + 1, memory_order_release);
    return true;
}

#else

int mdapl_dapl_memwatch_open(struct mdapl_dapl_memwatch **w_p)
{
    (void)w_p;
    return -ENOSYS;
}

void mdapl_dapl_memwatch_close(struct mdapl_dapl_memwatch *w)
{
    (void)w;
}

int mdapl_dapl_memwatch_add(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r)
{
    (void)w, (void)r;
    return -ENOSYS;
}

bool mdapl_dapl_memwatch_shared(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r)
{
    (void)w, (void)r;
    return true;
}

bool mdapl_dapl_memwatch_sync(struct mdapl_dapl_memwatch *w)
{
    (void)w;
    return false;
}

bool mdapl_dapl_memwatch_next(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range *r_p)
{
    (void)w, (void)r_p;
    return false;
}

#endif
