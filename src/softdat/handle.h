/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_HANDLE_H
#define SOFTDAT_HANDLE_H
/* What the program holds of every object, and the limits of the provider. */
#include "alloc.h"
#include "list.h"

#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <stdint.h>

enum {
    SOFTDAT_MAX_IOV = 16,        /* segments of one DTO */
    SOFTDAT_MAX_DTO = 16384,     /* per EP and direction */
    SOFTDAT_MAX_READS = 64,      /* RDMA reads under way per EP */
    SOFTDAT_MAX_QLEN = 1 << 20,  /* entries of an EVD */
    SOFTDAT_MAX_LMRS = 1 << 18,
    SOFTDAT_MAX_PORTS = 2,
    SOFTDAT_MAX_CONTROL = 8,     /* open connections of daplsoft */
};
#define SOFTDAT_MAX_MESSAGE (UINT32_C(1) << 31)  /* bytes of one DTO */

struct softdat_ia;
struct softdat_ep;
struct softdat_conn;

/* What every handle starts with: libdat2 finds the provider through the first word. */
struct softdat_handle {
    DAT_PROVIDER *provider;
    DAT_CONTEXT context;         /* the consumer's */
    DAT_HANDLE_TYPE type;
    uint32_t alive;              /* SOFTDAT_ALIVE until it is freed */
    struct softdat_ia *ia;
    struct softdat_list link;    /* on ia->handles */
};
#define SOFTDAT_ALIVE 0x50f7da7au

/* ia.c */
void softdat_handle_init(struct softdat_handle *h, struct softdat_ia *ia, DAT_HANDLE_TYPE type);
/* The object ends; called with the lock. Its memory is kept for a while, so that a handle that is
 * used after that is recognised. */
void softdat_handle_end(struct softdat_handle *h);

/* The object of a handle if it is alive and of this type, else NULL. */
static inline void *softdat_get(DAT_HANDLE handle, DAT_HANDLE_TYPE type)
{
    struct softdat_handle *h = handle;

    return h && h->alive == SOFTDAT_ALIVE && h->type == type ? h : NULL;
}

#endif
