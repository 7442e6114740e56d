/* SPDX-License-Identifier: MIT */
#ifndef VERBSDAT_HANDLE_H
#define VERBSDAT_HANDLE_H
/* The head of every object behind a DAT handle. */
#include "list.h"

#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <stdint.h>

struct verbsdat_ia;

/* First member of every object: libdat2 finds the provider through the first word. */
struct verbsdat_handle {
    DAT_PROVIDER *provider;
    DAT_CONTEXT context;         /* of dat_set_consumer_context */
    DAT_HANDLE_TYPE type;
    uint32_t alive;              /* VERBSDAT_ALIVE until the object is freed */
    struct verbsdat_ia *ia;
    struct mdapl_list link;      /* on ia->objects, later on ia->freed */
};
#define VERBSDAT_ALIVE 0x7e4b5da7u

/* The type of what is no object of DAT. */
#define VERBSDAT_ASK ((DAT_HANDLE_TYPE)0x100)

/* ia.c */
/* Fills the head of a new object and puts it on ia->objects; with ia->lock. */
void verbsdat_handle_init(struct verbsdat_handle *h, struct verbsdat_ia *ia, DAT_HANDLE_TYPE type);
/* The same, takes ia->lock. */
void verbsdat_handle_add(struct verbsdat_handle *h, struct verbsdat_ia *ia, DAT_HANDLE_TYPE type);
/* Ends an object that calloc() has made; with ia->lock. Its memory is released only after 256 more
 * objects, so that a call with the stale handle returns DAT_INVALID_HANDLE. */
void verbsdat_handle_end(struct verbsdat_handle *h);

/* The object behind a handle; NULL if it has been freed or has another type. */
static inline void *verbsdat_get(DAT_HANDLE handle, DAT_HANDLE_TYPE type)
{
    struct verbsdat_handle *h = handle;

    return h && h->alive == VERBSDAT_ALIVE && h->type == type ? h : NULL;
}

#define VERBSDAT_ERROR(type, subtype) ((DAT_RETURN)(DAT_CLASS_ERROR | (type) | (subtype)))

#endif
