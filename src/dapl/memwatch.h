/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_MEMWATCH_H
#define MDAPL_MEMWATCH_H
/*
 * Reports registered memory whose pages change because the program, its allocator or the C library
 * unmaps, remaps or discards it. An adapter has the addresses of pages, so after such a change it
 * would access the old pages. regcache.c has its ranges watched, and takes the reports before it
 * uses a registration that it has kept.
 *
 * The one file that is about the operating system. On Linux the kernel reports to a userfaultfd
 * (ranges are registered for write protection and nothing is ever protected, so no access is
 * slower); other systems cannot watch.
 *
 * The cost for the program: munmap(), mremap() and madvise() of watched memory wait until a thread
 * has read the event, some 10 us. A mapping is watched from end to end, including parts that were
 * not registered, because the kernel would split off a watched part as a mapping of its own, and
 * mremap() across its ends would fail with EFAULT. For the same reason a mapping stays watched
 * until it is unmapped or the watcher is closed.
 *
 * fork(): a child's memory is not watched, and exec closes the descriptor. Pages that an adapter
 * has pinned stay the parent's: Linux copies them for the child during fork() (since 5.12;
 * userfaultfd as it is used here, since 5.11). So pthread_atfork() is not needed.
 */
#include <stdbool.h>
#include <stdint.h>

struct mdapl_dapl_memwatch;

/* Addresses from start up to and without end. */
struct mdapl_dapl_memwatch_range {
    uintptr_t start, end;
};

/* 0, or -errno: this system cannot watch. */
int mdapl_dapl_memwatch_open(struct mdapl_dapl_memwatch **w_p);
void mdapl_dapl_memwatch_close(struct mdapl_dapl_memwatch *w);

/* Watches the mappings that these pages are in; they may be watched already. 0, or -errno: this
 * memory cannot be watched (a file's, watched by the program itself, too many mappings). */
int mdapl_dapl_memwatch_add(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r);
/* Is any page of this registered memory shared with other processes? Changes that these make to its
 * pages are not reported. */
bool mdapl_dapl_memwatch_shared(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r);

/* Waits, shortly, until mdapl_dapl_memwatch_next() has all changes from before this call. False:
 * changes are still in progress, and no kept registration is valid until a later call returns
 * true. */
bool mdapl_dapl_memwatch_sync(struct mdapl_dapl_memwatch *w);
/* The next range that has changed; false: no more. After too many changes at once: everything. */
bool mdapl_dapl_memwatch_next(struct mdapl_dapl_memwatch *w,
                              struct mdapl_dapl_memwatch_range *r_p);

#endif
