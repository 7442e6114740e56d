/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_MEMWATCH_H
#define MDAPL_MEMWATCH_H
/*
 * Hears of memory whose pages change behind a registration: whoever unmaps, remaps or discards it,
 * the program itself, its allocator or the C library. An adapter knows pages, not addresses: after
 * such a change it would go on with the old ones. regcache.c has its ranges watched and asks here
 * before it trusts a registration.
 *
 * The one file that is about the operating system. On Linux the kernel reports to a userfaultfd
 * (ranges are registered for write protection and nothing is ever protected, so no access is
 * slower); other systems cannot watch.
 *
 * What it costs the program: munmap(), mremap() and madvise() of watched memory wait until a small
 * thread has read the event, some 10 us. Mappings are watched as a whole, with what of them was
 * never registered: a watched part would be a mapping of its own for the kernel, and mremap()
 * across its ends would fail with EFAULT. For the same reason nothing but its end, or that of the
 * watcher, ends the watch of a mapping.
 *
 * fork(): a child's memory is not watched, whatever it does is its own affair, and exec closes the
 * descriptor. Pages that an adapter has pinned stay the parent's: Linux copies them for the child
 * as it forks (since 5.12; userfaultfd as it is used here, since 5.11). So nothing is to be done
 * at a fork, and pthread_atfork() is not needed.
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

/* Watches the mappings that these pages are in; again is no harm. -errno: this memory cannot be
 * watched (a file's, watched by the program itself, too many mappings). */
int mdapl_dapl_memwatch_add(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r);
/* Is any page of this registered memory shared with others? They may change its pages, unheard. */
bool mdapl_dapl_memwatch_shared(struct mdapl_dapl_memwatch *w, struct mdapl_dapl_memwatch_range r);

/* Waits, shortly, until what has changed before this call can be had from
 * mdapl_dapl_memwatch_next(). False: changes do not end; nothing of before can be trusted until a
 * later call answers true. */
bool mdapl_dapl_memwatch_sync(struct mdapl_dapl_memwatch *w);
/* The next range that has changed; false: no more. After too many changes at once: everything. */
bool mdapl_dapl_memwatch_next(struct mdapl_dapl_memwatch *w,
                              struct mdapl_dapl_memwatch_range *r_p);

#endif
