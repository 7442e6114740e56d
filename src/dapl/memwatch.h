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
 * thread has read the event, some 10 us; and mremap() of a mapping of which only a part is watched
 * fails with EFAULT, as it does for mappings whose parts differ in other ways (realloc() then
 * copies). So nothing is watched longer than need be.
 *
 * fork(): a child's memory is not watched, whatever it does is its own affair, and exec closes the
 * descriptor. Pages that an adapter has pinned stay the parent's: Linux copies them for the child
 * as it forks (since 5.12; userfaultfd as it is used here, since 5.11). So nothing is to be done
 * at a fork, and pthread_atfork() is not needed.
 */
#include <stdbool.h>
#include <stdint.h>

struct mdapl_memwatch;

/* Addresses from start up to and without end. */
struct mdapl_range {
    uintptr_t start, end;
};

/* 0, or -errno: this system cannot watch. */
int mdapl_memwatch_open(struct mdapl_memwatch **w_p);
void mdapl_memwatch_close(struct mdapl_memwatch *w);

/* Watches whole pages; again is no harm. -errno: this memory cannot be watched (a file's, watched
 * by the program itself, too many mappings). */
int mdapl_memwatch_add(struct mdapl_memwatch *w, struct mdapl_range r);
/* Forgets whole pages; that they are gone already is no harm. */
void mdapl_memwatch_remove(struct mdapl_memwatch *w, struct mdapl_range r);
/* Is this registered memory shared with others? They may change its pages, unheard. */
bool mdapl_memwatch_shared(struct mdapl_memwatch *w, struct mdapl_range r);

/* Waits, shortly, until what has changed before this call can be had from mdapl_memwatch_next().
 * False: changes do not end; nothing of before can be trusted until a later call answers true. */
bool mdapl_memwatch_sync(struct mdapl_memwatch *w);
/* The next range that has changed; false: no more. After too many changes at once: everything. */
bool mdapl_memwatch_next(struct mdapl_memwatch *w, struct mdapl_range *r_p);

#endif
