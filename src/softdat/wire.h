/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_WIRE_H
#define SOFTDAT_WIRE_H
/*
 * Frames between two software adapters: a header of 32 bytes, then `len` bytes of payload.
 * PROTOCOL describes them. Numbers are little-endian; this provider runs only on little-endian
 * machines (asserted below), so the struct is the wire form.
 */
#include <stdbool.h>
#include <stdint.h>

enum softdat_frame_type {
    SOFTDAT_CONNECT = 1,     /* active -> passive: private data */
    SOFTDAT_ACCEPT,          /* passive -> active: private data */
    SOFTDAT_REJECT,          /* passive -> active */
    SOFTDAT_READY,           /* active -> passive: the connection is established */
    SOFTDAT_SEND,            /* payload for the next receive of the peer */
    SOFTDAT_WRITE,           /* payload for addr under key */
    SOFTDAT_READ,            /* read `size` bytes at addr under key */
    SOFTDAT_READ_DATA,       /* response to READ or ATOMIC, in their order */
    SOFTDAT_ACK,             /* only the ack field */
    SOFTDAT_NAK,             /* request number `id` failed with `status`; no request follows */
    SOFTDAT_BYE,             /* disconnect: no frame follows */
    SOFTDAT_PULL,            /* a WRITE: the target copies `size` bytes from the listed pieces */
    SOFTDAT_PUSH,            /* a READ: the target copies `size` bytes into the listed pieces */
    SOFTDAT_WRITE_IMM,       /* a WRITE that consumes a receive; id: the immediate data */
    SOFTDAT_PULL_IMM,        /* the same, copied as PULL */
    SOFTDAT_ATOMIC,          /* payload: two operands; id: a softdat_atomic */
    SOFTDAT_PUSHED,          /* response to PUSH, in order with READ_DATA */
    SOFTDAT_MIGRATE,         /* active -> passive: this link replaces that of a connection */
    SOFTDAT_MIGRATED,        /* passive -> active: the passive side uses the new link */
    SOFTDAT_MIGRATE_DONE,    /* active -> passive: so does the active side */
    SOFTDAT_LOADED,          /* this side has loaded its alternate path: ports key, id */
    SOFTDAT_STANDBY,         /* active -> passive: this link is a connection's standby */
    SOFTDAT_STANDBY_OK,      /* passive -> active: it can be */
    SOFTDAT_STANDBY_READY,   /* active -> passive: it is */
    SOFTDAT_MOVE,            /* passive -> active, on the standby: migrate to it */
    SOFTDAT_FRAME_TYPES
};

enum softdat_atomic { SOFTDAT_FETCH_ADD, SOFTDAT_CMP_SWAP };

enum { SOFTDAT_ACK_NOW = 1 };    /* the sender requests an acknowledgement of this frame */

/* The status field of frames that make a link: the number of the sender's port, from 1, and how
 * many it has. */
enum { SOFTDAT_PORTS_SHIFT = 8, SOFTDAT_PORT_MASK = 0xff };

enum { SOFTDAT_WIRE_MAGIC = 0x5d, SOFTDAT_PRIV_MAX = 256 };

/* PULL, PUSH: requester's memory; the payload is a list of at most 16 pieces. */
struct softdat_piece {
    uint64_t addr, len;
};

/* Payload of MIGRATE and MIGRATED: what this side has taken of the other's frames, in total. */
struct softdat_taken {
    uint64_t token;              /* MIGRATE: of the connection; else 0 */
    uint32_t executed;           /* SENDs and WRITEs executed, as softdat_frame.ack */
    uint32_t writes;             /* the same, and those that wait for a receive */
    uint32_t reads;              /* READs, PUSHes and ATOMICs */
    uint32_t responses;          /* READ_DATA and PUSHED */
};

struct softdat_frame {
    uint8_t magic;
    uint8_t type;
    uint16_t status;         /* NAK: a DAT_DTO_COMPLETION_STATUS; SEND, WRITE: SOFTDAT_ACK_NOW
                                or 0; frames that make a link: the sender's ports */
    uint32_t len;            /* bytes of payload */
    uint32_t ack;            /* number of the peer's SENDs and WRITEs executed, in total */
    uint32_t key;            /* WRITE, READ: the rmr_context; CONNECT, STANDBY: the token, low half;
                                LOADED: the sender's port */
    uint64_t addr;           /* WRITE, READ: the target address; CONNECT, STANDBY, MIGRATE: IPv4 of
                                the active side; ACCEPT: of the passive side's other port, 0:
                                none */
    uint32_t size;           /* READ, PULL, PUSH: bytes; ACCEPT, MIGRATED: 1 if the segment is
                                mapped; CONNECT: 1 if several paths are requested */
    uint32_t id;             /* NAK: number of the failed request, 0: the oldest READ; _IMM:
                                immediate data; ATOMIC: a softdat_atomic; CONNECT, STANDBY: the
                                token, high half; LOADED: the receiver's port; MIGRATE: number of
                                the migration to a standby, 0: to another link */
};

/* The first 8 bytes of a header with status 0, as one number. */
static inline uint64_t softdat_frame_start(enum softdat_frame_type type, uint32_t len)
{
    return SOFTDAT_WIRE_MAGIC | (uint64_t)type << 8 | (uint64_t)len << 32;
}

/* True if the frame is the response to a READ, PUSH or ATOMIC. */
static inline bool softdat_is_response(const struct softdat_frame *f)
{
    return f->type == SOFTDAT_READ_DATA || f->type == SOFTDAT_PUSHED;
}

/* True if the frame is transmitted again on another link, unless the peer has taken it, and is not
 * a request. */
static inline bool softdat_is_answer(const struct softdat_frame *f)
{
    return softdat_is_response(f) || f->type == SOFTDAT_NAK || f->type == SOFTDAT_BYE;
}

_Static_assert(sizeof(struct softdat_frame) == 32, "the header has no padding");
_Static_assert(sizeof(struct softdat_taken) == 24, "the payload has no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the struct is the wire form");

#endif
