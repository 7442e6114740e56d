/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_ALLOC_H
#define SOFTDAT_ALLOC_H
/*
 * Memory of the provider's own. The program's allocator may be anything: one whose free() ends
 * registrations calls the provider, from whatever thread and under whatever lock it was called, and
 * waits for ever for a lock that this thread holds. So it is not called under a lock.
 */
#include <stddef.h>

/* n bytes, all zero, or NULL. */
void *softdat_alloc(size_t n);
/* n times each. */
void *softdat_alloc_n(size_t n, size_t each);
/* Gives them back; NULL: nothing. */
void softdat_free(void *memory);

#endif
