/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_LINK_H
#define SOFTDAT_LINK_H
/*
 * What carries the bytes of a connection, below it: a socket, or rings in a segment of shared
 * memory beside one, and memory that is reached directly.
 */
#include "handle.h"

#include <stdatomic.h>
#include <sys/types.h>
#include <sys/uio.h>

struct softdat_dto;
struct softdat_piece;

/* Something in the epoll set. */
struct softdat_sock {
    int fd;
    uint32_t events;             /* what epoll watches for */
    bool suspended;
    void (*ready)(struct softdat_ia *ia, struct softdat_sock *sock, uint32_t events);
};

enum { SOFTDAT_INLINE = 104 };   /* bytes of a frame that fits beside the counters */

/* What one side of a shared segment writes and the other reads (shared.c). */
struct softdat_half {
    _Alignas(128) _Atomic uint32_t tail;     /* bytes that this side has written, ever */
    _Atomic uint32_t head;       /* bytes that it has read of the other's, ever */
    _Atomic uint32_t executed;   /* SENDs and WRITEs of the other that it has executed, ever */
    _Atomic uint32_t armed;      /* odd while it wants a bell */
    _Atomic uint32_t inline_at, inline_len;  /* these bytes of the stream are in the cell */
    uint8_t inline_data[SOFTDAT_INLINE];
};

_Static_assert(sizeof(struct softdat_half) == 128, "two cache lines, which come as a pair");

/* Whether one side can move bytes to and from the other's address space (direct.c). */
struct softdat_vm_access {
    uint64_t probe_addr, probe_value;   /* what the other side may try to read; 0: not offered */
    _Atomic uint32_t access_verified; /* it has read the other's word */
    _Atomic uint32_t consent;    /* to transfers that the other side carries (direct.c) */
};

enum {
    SOFTDAT_RING = 1 << 16,      /* bytes, each direction; a power of two */
    SOFTDAT_SEGMENT_MAGIC = 0x5dda7005,
};

/* What two processes share. */
struct softdat_segment {
    uint32_t magic, ring;
    struct softdat_vm_access access[2];
    struct softdat_half half[2]; /* of the caller, of the called */
    _Alignas(128) uint8_t bytes[2][SOFTDAT_RING];
};

struct softdat_shared {
    struct softdat_segment *seg; /* NULL: none */
    struct softdat_half *mine, *theirs;
    struct softdat_vm_access *my_access, *their_access;
    pid_t pid;                   /* of the other side, as we see it */
    bool access_verified;        /* we have told that we reach its memory */
    uint8_t *out, *in;           /* the rings */
    uint32_t tail, head;         /* mine, not all of it published */
    uint32_t head_published;     /* head, as published */
    uint32_t their_tail, their_head;  /* as last seen */
    uint32_t executed_seen;      /* executed by them, as last seen */
    uint32_t doorbell_sent;      /* their sleep for which the bell has been rung */
    uint32_t inline_at;          /* where the last cell of ours lies in the stream */
    bool inline_live;            /* it has not been withdrawn */
};

/* shared.c */
/* The caller's side makes the segment. A file descriptor for the other side, or -1: none. */
int softdat_shared_create(struct softdat_conn *c);
/* The called side takes it (and the descriptor, in any case). */
bool softdat_shared_attach(struct softdat_conn *c, int fd);
/* Both sides have it: from now on frames go through it. */
void softdat_shared_start(struct softdat_conn *c);
void softdat_shared_free(struct softdat_conn *c);
/* Writes what there is room for; the number of bytes. */
size_t softdat_shared_write(struct softdat_conn *c, const struct iovec *iov, int n);
ssize_t softdat_shared_peek(struct softdat_conn *c, const uint8_t **p);
void softdat_shared_consume(struct softdat_conn *c, size_t n);
/* Tells the other side what has been read and executed. */
void softdat_shared_ack(struct softdat_conn *c);
bool softdat_shared_has_room(struct softdat_conn *c);

/* From now on bells are wanted. False: there is something to do already. */
bool softdat_shared_arm(struct softdat_ia *ia);
/* Bells are not wanted any more. Were they? */
bool softdat_shared_disarm(struct softdat_ia *ia);
/* A bell has rung while they are wanted: looks at the ring, and wants the next one. */
void softdat_shared_doorbell(struct softdat_conn *c);

/* direct.c */
/* Lets the other side try whether it reaches us; tries whether we reach it. */
void softdat_direct_offer(struct softdat_conn *c);
void softdat_direct_probe(struct softdat_conn *c);
/* Shall this transfer be made so? */
bool softdat_direct_usable(const struct softdat_conn *c, uint64_t len);
/* The DTO's memory as the payload of PULL or PUSH; its length in bytes. */
uint32_t softdat_direct_list(const struct softdat_dto *d, struct softdat_piece *out);
/* The target's part, all checks done. The last tail_len bytes of a PULL go to `tail`. */
enum softdat_direct_result {
    SOFTDAT_DIRECT_DONE,
    SOFTDAT_DIRECT_UNREACHABLE,  /* the requester's memory is not there */
    SOFTDAT_DIRECT_WITHDRAWN,    /* the requester has withdrawn its consent */
};
enum softdat_direct_result softdat_direct_pull(struct softdat_conn *c, uint8_t *tail,
                                               size_t tail_len);
enum softdat_direct_result softdat_direct_push(struct softdat_conn *c);
/* The requester's part: withdraws its consent to all that is under way. When it returns, nobody
 * reads or writes this process's memory for this connection any more. */
void softdat_direct_withdraw(struct softdat_conn *c);
/* A registration ends: withdraws the consent of connections with transfers in it; they break. */
void softdat_direct_region_freed(struct softdat_ia *ia, uint32_t key);

#endif
