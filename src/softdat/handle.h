/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_HANDLE_H
#define SOFTDAT_HANDLE_H
/* The head of every object behind a DAT handle, and the limits of the provider. */
#include "alloc.h"
#include "list.h"

#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <stdint.h>

enum {
    SOFTDAT_MAX_IOV = 16,        /* segments of one DTO */
    SOFTDAT_MAX_DTO = 16384,     /* DTOs per EP and direction */
    SOFTDAT_MAX_READS = 64,      /* RDMA reads in flight per EP */
    SOFTDAT_MAX_QLEN = 1 << 20,  /* events of an EVD */
    SOFTDAT_MAX_LMRS = 1 << 18,
    SOFTDAT_MAX_PORTS = 2,
    SOFTDAT_MAX_CONTROL = 8,     /* connections of daplsoft per adapter */
};
#define SOFTDAT_MAX_MESSAGE (UINT32_C(1) << 31)  /* bytes of one DTO */

struct softdat_ia;
struct softdat_ep;
struct softdat_conn;

/* First member of every object: libdat2 finds the provider through the first word. */
struct softdat_handle {
    DAT_PROVIDER *provider;
    DAT_CONTEXT context;         /* of dat_set_consumer_context */
    DAT_HANDLE_TYPE type;
    uint32_t alive;              /* softdat_alive(type) until the object is freed */
    struct softdat_ia *ia;
    struct softdat_list link;    /* on ia->objects, later on ia->freed */
};

/* What is stored in an object of that type, so that one comparison finds freed ones and other
 * types. */
static inline uint32_t softdat_alive(DAT_HANDLE_TYPE type)
{
    return 0x50f7da7au + (uint32_t)type;
}

/* ia.c */
/* Fills the head of a new object and puts it on ia->objects; called with the lock. */
void softdat_handle_init(struct softdat_handle *h, struct softdat_ia *ia, DAT_HANDLE_TYPE type);
/* Frees an object; called with the lock. Its memory is released only after 256 more objects, so
 * that a call with the stale handle returns DAT_INVALID_HANDLE. */
void softdat_handle_end(struct softdat_handle *h);

/* Returns the object behind the handle that a DAT call is made with; NULL if it has been freed or
 * has another type. The handle itself is not NULL: libdat2 has found the call through it. */
static inline void *softdat_called(DAT_HANDLE handle, DAT_HANDLE_TYPE type)
{
    struct softdat_handle *h = handle;

    return h->alive == softdat_alive(type) ? h : NULL;
}

/* The same for any handle. */
static inline void *softdat_get(DAT_HANDLE handle, DAT_HANDLE_TYPE type)
{
    return handle ? softdat_called(handle, type) : NULL;
}

#endif
