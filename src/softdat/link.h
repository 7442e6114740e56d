/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_LINK_H
#define SOFTDAT_LINK_H
/*
 * The links below a connection: a socket; or rings in a segment of shared memory, beside a socket;
 * and direct copies between address spaces. "Mine" is written by this side, "theirs" by the peer.
 */
#include "handle.h"

#include <stdatomic.h>
#include <sys/types.h>
#include <sys/uio.h>

struct msghdr;
struct softdat_dto;
struct softdat_piece;

/* A descriptor in the adapter's epoll set. */
struct softdat_sock {
    int fd;                      /* -1: closed */
    uint32_t events;             /* the requested EPOLL bits */
    bool suspended;              /* out of the set until it is resumed */
    void (*ready)(struct softdat_ia *ia, struct softdat_sock *sock, uint32_t events);
};

enum { SOFTDAT_INLINE = 104 };   /* bytes of a frame that fits beside the counters */

/* The part of a segment that one side writes and the other reads (shared.c). The counters are
 * totals of the connection, modulo 2^32. */
struct softdat_half {
    _Alignas(128) _Atomic uint64_t counters;     /* bytes that this side has written; high half: */
                                 /* SENDs and WRITEs of the other side that it has executed */
    _Atomic uint32_t head;       /* bytes of the other side's ring that it has read */
    _Atomic uint32_t armed;      /* odd: it sleeps until a doorbell */
    _Atomic uint64_t in_line;    /* position of the in-line frame; high half: its length, 0: none */
    uint8_t inline_data[SOFTDAT_INLINE];
};

/* Two counters in one word, which is loaded and stored as a whole. */
static inline uint64_t softdat_both(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

_Static_assert(sizeof(struct softdat_half) == 128, "two cache lines, which are fetched as a pair");

/* Whether one side can copy to and from the other's address space (direct.c). */
struct softdat_vm_access {
    uint64_t probe_addr, probe_value;   /* a word that the other side may read; 0: not offered */
    _Atomic uint32_t access_verified;   /* this side has read the other side's word */
    _Atomic uint32_t consent;    /* to copies that the other side makes for this side's requests */
};

enum {
    SOFTDAT_RING = 1 << 16,      /* bytes, each direction; a power of two */
    SOFTDAT_SEGMENT_MAGIC = 0x5dda7006,
};

/* The memory that the two processes of a connection share. Index 0: active side, 1: passive. */
struct softdat_segment {
    uint32_t magic, ring;
    struct softdat_vm_access access[2];
    struct softdat_half half[2];
    _Alignas(128) uint8_t bytes[2][SOFTDAT_RING];
};

struct softdat_shared {
    struct softdat_segment *seg; /* NULL: no shared memory */
    struct softdat_half *mine, *theirs;
    struct softdat_vm_access *my_access, *their_access;
    pid_t pid;                   /* of the peer, in this process's pid namespace */
    bool access_verified;        /* as in my_access */
    uint8_t *out, *in;           /* the rings */
    uint32_t tail, head;         /* of mine; possibly not published yet */
    uint32_t executed_seen;      /* of theirs, as last handled; beside head: softdat_both() */
    uint32_t head_published;     /* head as last published */
    uint32_t their_head;         /* as last loaded */
    uint32_t doorbell_sent;      /* value of theirs->armed for which a doorbell was sent */
    uint32_t inline_at;          /* position of the last in-line frame */
    bool inline_live;            /* that frame's position is still published */
};

/* shared.c */
/* Creates a segment for the active side of c. Returns a descriptor for the passive side, owned by
 * the caller, or -1 if shared memory is configured off or not available. */
int softdat_shared_create(struct softdat_conn *c);
/* Transmits m, CONNECT or MIGRATE, on c's socket with that descriptor, c->segment_fd, and closes it
 * once it is transmitted. Returns as sendmsg() does. */
ssize_t softdat_shared_send(struct softdat_conn *c, struct msghdr *m);
/* Maps the segment behind fd for the passive side and closes fd in any case. False: fd is not a
 * segment of this protocol, or shared memory is configured off. */
bool softdat_shared_attach(struct softdat_conn *c, int fd);
/* Moves c's frames from the socket to the rings; both sides have the segment. */
void softdat_shared_start(struct softdat_conn *c);
void softdat_shared_free(struct softdat_conn *c);
/* Writes up to n iovec entries, as far as the ring has room, and sends a doorbell if the peer
 * sleeps. Returns the number of bytes written. */
size_t softdat_shared_write(struct softdat_conn *c, const struct iovec *iov, int n);
/* Points *p to the next contiguous bytes. Returns their number, 0: none, -1: the peer's counters
 * are invalid. */
ssize_t softdat_shared_peek(struct softdat_conn *c, const uint8_t **p);
/* Consumes n bytes, at most as many as peek returned. */
void softdat_shared_consume(struct softdat_conn *c, size_t n);
/* Sends the doorbell for the peer's value `armed` of its word. */
void softdat_shared_wake_peer(struct softdat_conn *c, uint32_t armed);
/* Publishes how many bytes have been read and how many requests executed. */
void softdat_shared_ack(struct softdat_conn *c);
/* True if the ring to the peer has room. */
bool softdat_shared_has_room(struct softdat_conn *c);

/* Arms the doorbells of all rings before the adapter sleeps. False: a ring has pending work, so the
 * adapter must not sleep. */
bool softdat_shared_arm(struct softdat_ia *ia);
/* Disarms them. Returns whether they were armed. */
bool softdat_shared_disarm(struct softdat_ia *ia);
/* Handles a doorbell of c that arrived while armed: reads the ring and arms again. May free c. */
void softdat_shared_doorbell(struct softdat_conn *c);

/* direct.c */
/* Publishes the probe word of this side, if direct copies are configured. */
void softdat_direct_offer(struct softdat_conn *c);
/* Reads the peer's probe word and publishes whether that worked. */
void softdat_direct_probe(struct softdat_conn *c);
/* Chooses whether request d, a read or write that begins now, is to be copied directly by the
 * target: sets d->direct and d->judged. */
void softdat_direct_choose(struct softdat_conn *c, struct softdat_dto *d);

/* Requests of one way and class that have completed at the same time. */
struct softdat_sample {
    uint64_t bytes, begun;       /* of all; when the first began, ns */
    unsigned c;                  /* the class */
    bool direct, read;
    bool mixed;                  /* they are of several ways, classes or operations */
};
/* Adds a completed request. */
void softdat_direct_completed(struct softdat_sample *s, const struct softdat_dto *d);
/* Passes the sample, if there is one, to the judge, and empties it. */
void softdat_direct_judge(struct softdat_conn *c, struct softdat_sample *s);
/* Lists d's local memory in out, at most SOFTDAT_MAX_IOV entries, as the payload of PULL or PUSH.
 * Returns the length of the list in bytes. */
uint32_t softdat_direct_list(const struct softdat_dto *d, struct softdat_piece *out);

/* Result of a copy. */
enum softdat_direct_result {
    SOFTDAT_DIRECT_DONE,
    SOFTDAT_DIRECT_PART,         /* the rest is to be copied in a later round */
    SOFTDAT_DIRECT_UNREACHABLE,  /* the requester's memory is not mapped */
    SOFTDAT_DIRECT_WITHDRAWN,    /* the requester has withdrawn its consent */
};
/* Target: copy, behind the c->copied bytes of former calls, a part for the PULL or PUSH frame of
 * c->hdr, whose key, bounds and rights have been checked. The last tail_len bytes of a PULL go to
 * `tail`, of 8 bytes, instead of the target. */
enum softdat_direct_result softdat_direct_pull(struct softdat_conn *c, uint8_t *tail,
                                               size_t tail_len);
enum softdat_direct_result softdat_direct_push(struct softdat_conn *c);
/* Requester: withdraws its consent to all requests of c in flight. On return the target neither
 * reads nor writes this process's memory for c any more. */
void softdat_direct_withdraw(struct softdat_conn *c);
/* Requester: does that for each connection with a request in flight that uses the freed
 * registration, and breaks these connections. */
void softdat_direct_region_freed(struct softdat_ia *ia, uint32_t key);

#endif
