/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_ALLOC_H
#define SOFTDAT_ALLOC_H
/*
 * The provider's own allocator. A program may interpose free() and deregister memory in it, as
 * registration caches do: free() then calls the provider, on any thread and with any lock held. If
 * the provider called the program's allocator under an adapter's lock, that would deadlock.
 */
#include <stddef.h>

/* Returns n bytes, zeroed, aligned for any type; NULL: out of memory. Freed by softdat_free(). */
void *softdat_alloc(size_t n);
/* The same for n elements of `each` bytes; NULL also if the product overflows. */
void *softdat_alloc_n(size_t n, size_t each);
/* Frees memory of softdat_alloc(); NULL is permitted. */
void softdat_free(void *memory);

#endif
