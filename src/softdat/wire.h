/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_WIRE_H
#define SOFTDAT_WIRE_H
/*
 * What two software adapters say to each other on a connection's socket: a header of 32 bytes,
 * then `len` bytes of payload. See PROTOCOL. Little-endian; both ends are ours, so the struct is
 * the wire form on every machine that this provider runs on (asserted below).
 */
#include <stdint.h>

enum softdat_frame_type {
    SOFTDAT_CONNECT = 1,     /* active -> passive: private data */
    SOFTDAT_ACCEPT,          /* passive -> active: private data */
    SOFTDAT_REJECT,          /* passive -> active */
    SOFTDAT_READY,           /* active -> passive: the connection stands */
    SOFTDAT_SEND,            /* payload for the next posted receive */
    SOFTDAT_WRITE,           /* payload for addr under key */
    SOFTDAT_READ,            /* read `want` bytes at addr under key */
    SOFTDAT_READ_DATA,       /* the answer, in the order of the READs */
    SOFTDAT_ACK,             /* nothing but the ack field */
    SOFTDAT_NAK,             /* the request number `id` failed with `status`; the end */
    SOFTDAT_BYE,             /* orderly end: nothing follows */
    SOFTDAT_PULL,            /* a WRITE whose `want` bytes are fetched from the listed pieces */
    SOFTDAT_PUSH,            /* a READ whose `want` bytes are stored into the listed pieces */
    SOFTDAT_WRITE_IMM,       /* a WRITE that uses a receive up; id: the immediate data */
    SOFTDAT_PULL_IMM,        /* the same, fetched as PULL */
    SOFTDAT_ATOMIC,          /* payload: operand, operand; id: which operation */
    SOFTDAT_PUSHED,          /* the answer to PUSH, among the READ_DATAs */
    SOFTDAT_FRAME_TYPES
};

enum softdat_atomic { SOFTDAT_FETCH_ADD, SOFTDAT_CMP_SWAP };

enum { SOFTDAT_WIRE_MAGIC = 0x5d, SOFTDAT_PRIV_MAX = 256 };

/* PULL, PUSH: memory of the caller; the payload is at most 16 of these. */
struct softdat_piece {
    uint64_t addr, len;
};

struct softdat_frame {
    uint8_t magic;
    uint8_t type;
    uint16_t status;         /* NAK: a DAT_DTO_COMPLETION_STATUS */
    uint32_t len;            /* bytes of payload */
    uint32_t ack;            /* how many SENDs and WRITEs of the peer have been executed, ever */
    uint32_t key;            /* WRITE, READ: the rmr_context */
    uint64_t addr;           /* WRITE, READ: the target address; CONNECT: the caller's IPv4 */
    uint32_t want;           /* READ, PULL, PUSH: bytes; ACCEPT: the shared segment is used */
    uint32_t id;             /* NAK: which request failed, 0: the READ that is next; _IMM: the
                                immediate data; ATOMIC: a softdat_atomic */
};

_Static_assert(sizeof(struct softdat_frame) == 32, "the header has no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the struct is the wire form");

#endif
