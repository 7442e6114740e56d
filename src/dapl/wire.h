/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WIRE_H
#define MDAPL_WIRE_H
/*
 * Every byte that the dapl channel puts on the wire: the hello in a connection request and in its
 * answer, and the frames of an established connection. The prose, the pictures and the hex
 * examples are in PROTOCOL beside this file; a test parses those examples with the functions
 * below. All numbers are little-endian. Nothing here knows DAT.
 */
#include "contract.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- hello: private data of a connection request and of its acceptance ------------------------ */

enum {
    MDAPL_HELLO_MAGIC = 0x504d,    /* "MP" */
    MDAPL_HELLO_VERSION = 13,
    MDAPL_HELLO_REPLY = 0x01,      /* flag: the acceptance of a request, not a request */
    MDAPL_HELLO_BUSY = 0x02,       /* flag: a rejection that is no verdict: call again */
    MDAPL_HELLO_GONE = 0x04,       /* flag: a rejection for ever: src has failed or left dst */
    MDAPL_HELLO_PING = 0x08,       /* flag: a request for a rejection, MDAPL_HELLO_BUSY */
    MDAPL_HELLO_BYTES = 56,        /* the smallest private data that providers have */
    MDAPL_HELLO_GENERATIONS = 4096, /* a rail's generation is given modulo this */
    MDAPL_HELLO_RETAINS = 0x0001,  /* offer: src keeps its frames until they are acknowledged */
    MDAPL_HELLO_RECOVERS = 0x0002, /* offer: src replaces connections that break */
    MDAPL_HELLO_WORDS = 0x0004,    /* offer: src names a word for dst's probes on the connection */
    MDAPL_FRAME_MIN = 512,         /* bytes that every rank takes in one frame */
    MDAPL_WINDOW_MIN = 2,          /* frames that every rank takes on a stream */
};

enum { MDAPL_MAX_RAILS = 4, MDAPL_MAX_STREAMS = 16 };

struct mdapl_group;

struct mdapl_dapl_hello {
    uint8_t flags;
    uint8_t stream;                /* which of the connections between the two, from 0 */
    uint32_t group;                /* id of src's */
    uint32_t dst_group;            /* id of dst's; not transmitted, the MAC covers it */
    uint32_t src, dst;             /* ranks in them */
    uint32_t epoch;                /* number of a request, from 1; a rejection has the same, an
                                    * acceptance the number of the connection (cm.h) */
    uint32_t incarnation;          /* of src's peer for dst, not 0 */
    uint32_t met;                  /* of dst's peer for src, as src knows it; 0: it does not yet */
    uint32_t rx_next;              /* the psn that src expects next from dst, low 32 bits; in the
                                    * answer to a ping: mdapl_dapl_probe_answer() (conn.h) */
    uint32_t frame_bytes;          /* the longest frame that src takes */
    uint16_t sr_window;            /* frames that it takes on this stream to begin with */
    uint8_t offers;                /* MDAPL_HELLO_RETAINS, _RECOVERS, _WORDS */
    uint16_t generation;           /* of src's rail, modulo MDAPL_HELLO_GENERATIONS */
};

/* Why a hello is not taken: an index into mdapl_dapl_hello_verdict_text(). */
enum mdapl_dapl_hello_verdict {
    MDAPL_HELLO_OK,
    MDAPL_HELLO_SHORT,
    MDAPL_HELLO_NOT_OURS,
    MDAPL_HELLO_OTHER_VERSION,
    MDAPL_HELLO_UNKNOWN_GROUP,
    MDAPL_HELLO_BAD_MAC,
    MDAPL_HELLO_BAD_RANK,
    MDAPL_HELLO_BAD_SIZE,
};

/* Writes the MDAPL_HELLO_BYTES of h with its MAC under the key that the two groups share. */
void mdapl_dapl_hello_put(const struct mdapl_dapl_hello *h, const uint8_t key[16],
                          uint8_t out[MDAPL_HELLO_BYTES]);
/* The id of the group that a hello of len bytes, not verified yet, is of; 0 if it is too short. */
uint32_t mdapl_dapl_hello_group(const void *in, size_t len);
/* Reads and verifies a hello of len bytes. from: the group that it is of, which has the key of its
 * MAC; NULL if none has this id. self: this process, as that group knows it; dst has to be it, src
 * another one, and the sizes that it offers possible. */
enum mdapl_dapl_hello_verdict mdapl_dapl_hello_get(struct mdapl_dapl_hello *h, const void *in,
                                                   size_t len, const struct mdapl_group *from,
                                                   struct mdapl_name self);
const char *mdapl_dapl_hello_verdict_text(enum mdapl_dapl_hello_verdict v);

/* -- frames ----------------------------------------------------------------------------------- */

/* MDAPL_FRAME_MSG and so on, from 1. */
enum mdapl_dapl_frame_type {
    MDAPL_FRAME_NONE = 0,          /* not on the wire */
#define FRAME(number, NAME, ...) MDAPL_FRAME_##NAME = number,
#include "frames.def"
    MDAPL_FRAME_TYPES
};

enum {
    MDAPL_FRAME_HDR_BYTES = 24,
    MDAPL_FRAME_STALLED = 0x01,    /* flag: a frame has waited for the window of this stream */
    MDAPL_FRAME_ASKS = 0x02,       /* flag: is to be acknowledged at once */
    MDAPL_FRAME_FLAGS = 0x03,
};

/* The header of every frame. */
struct mdapl_dapl_frame {
    uint8_t type;
    uint8_t flags;                 /* MDAPL_FRAME_STALLED, _ASKS */
    uint16_t hdr_len;              /* bytes of envelope behind the header (MSG and RTS) */
    uint32_t psn;                  /* low 32 bits; without one: that of the next that has one */
    uint32_t ack;                  /* the psn that the sender of this frame expects next */
    uint32_t sr_limit;             /* how many frames its peer may send ever on the sr lane */
    uint32_t ring_limit;           /* the same for the ring lane */
    uint32_t len;                  /* bytes behind the envelope */
};

/* Does a frame of this type have a psn of its own? The others need no acknowledgement. */
static inline bool mdapl_dapl_frame_sequenced(uint8_t type)
{
    enum {
        SEQUENCED = 0
#define FRAME(number, NAME, name, psn, ...) | psn << number
#include "frames.def"
    };

    return SEQUENCED >> type & 1;
}

/* Does a frame of this type carry bytes of a body? */
static inline bool mdapl_dapl_frame_has_body(uint8_t type)
{
    enum { NOTHING, LIST, BYTES };
    enum {
        HAVE_BODY = 0
#define FRAME(number, NAME, name, psn, envelope, fields, tail) | (tail == BYTES) << number
#include "frames.def"
    };

    return HAVE_BODY >> type & 1;
}

/* "MSG" and so on; "?" for a type that is none. */
const char *mdapl_dapl_frame_name(uint8_t type);
void mdapl_dapl_frame_put(const struct mdapl_dapl_frame *f, uint8_t out[MDAPL_FRAME_HDR_BYTES]);
/* Writes what a transmission says of its receiver's side, into a frame that has its header: the
 * rest of the frame is the same each time that it is transmitted. */
void mdapl_dapl_frame_stamp(uint8_t *frame, uint32_t ack, uint32_t sr_limit, uint32_t ring_limit);
/*
 * Reads the header of a frame of which len bytes have arrived. False: it is not one: too short,
 * unknown type or flags, lengths that its row does not allow or that do not add up to len.
 */
bool mdapl_dapl_frame_get(struct mdapl_dapl_frame *f, const void *in, size_t len);

/* -- what is behind the header ---------------------------------------------------------------- */

enum {
    MDAPL_MAX_SEGS = 8,            /* pieces that an RTS or a CTS names */
    MDAPL_SEG_BYTES = 16,          /* one of them, and 4 for each rail */
    MDAPL_SEGS_MAX = 4 * MDAPL_MAX_RAILS + MDAPL_MAX_SEGS * (MDAPL_SEG_BYTES + 4 * MDAPL_MAX_RAILS),
};

/* Bytes of a body that are done: a WRITTEN names some. */
enum { MDAPL_MAX_RANGES = 16, MDAPL_RANGE_BYTES = 16 };

struct mdapl_dapl_range {
    uint64_t off, len;
};

struct mdapl_dapl_ranges {
    uint32_t n;
    struct mdapl_dapl_range range[MDAPL_MAX_RANGES];
};

/* One registered piece of a body. */
struct mdapl_dapl_seg {
    uint64_t addr;
    uint64_t len;
    uint32_t key[MDAPL_MAX_RAILS]; /* the rmr_context on each rail */
};

/* Where a body, or a part of one, is to be read or written. */
struct mdapl_dapl_segs {
    uint16_t n;                    /* 0: by no RDMA */
    uint16_t n_rails;
    uint32_t generation[MDAPL_MAX_RAILS];  /* of each rail at its owner, when the keys were made */
    struct mdapl_dapl_seg seg[MDAPL_MAX_SEGS];
};

/* Writes the pieces as an RTS has them, at most MDAPL_SEGS_BYTES; returns the bytes written. */
enum { MDAPL_SEGS_BYTES = 4 + MDAPL_SEGS_MAX };
size_t mdapl_dapl_segs_put(const struct mdapl_dapl_segs *segs, uint8_t *out);
/* Reads them from len bytes; what they do not say is 0. *total_p: their lengths together. False:
 * these are none. */
bool mdapl_dapl_segs_get(struct mdapl_dapl_segs *segs, const void *in, size_t len,
                         uint64_t *total_p);

enum {
    MDAPL_FIELDS_MAX = 28 + MDAPL_SEGS_MAX,    /* bytes of the longest fields, those of a CTS */
};

/* struct mdapl_dapl_rts and so on: the fields of each row. */
#define BARE(...)
#define FRAME(number, NAME, name, psn, envelope, fields, tail) struct mdapl_dapl_##name { fields };
#define U32(member) uint32_t member;
#define U64(member) uint64_t member;
#define ID(member) uint32_t member;
#define ADDR(member) uint64_t member;
#define SEGS(member) struct mdapl_dapl_segs member;
#define RANGES(member) struct mdapl_dapl_ranges member;
#include "frames.def"

/* MDAPL_RTS_BYTES and so on: the bytes of the fields, without what follows them. */
enum {
#define FRAME(number, NAME, name, psn, envelope, fields, tail) MDAPL_##NAME##_BYTES = 0 fields,
#define U32(member) + 4
#define U64(member) + 8
#define ID(member) + 4
#define ADDR(member) + 8
#define SEGS(member) + 4
#define RANGES(member) + 4
#include "frames.def"
};

enum { MDAPL_PARTS_MAX = 1 << 20 };  /* bytes of a body in a HEAD and MOREs, at most */

enum mdapl_dapl_fin_status { MDAPL_FIN_READ = 0, MDAPL_FIN_DROPPED = 1 };

/*
 * mdapl_dapl_rts_put() and so on: writes the fields, with the list that they count, to out; returns
 * the bytes written. mdapl_dapl_rts_get(): reads them from the len bytes at in; false when len or a
 * value is impossible.
 */
#define BARE(...)
#define FRAME(number, NAME, name, psn, envelope, fields, tail)                   \
    size_t mdapl_dapl_##name##_put(const struct mdapl_dapl_##name *b, uint8_t *out);       \
    bool mdapl_dapl_##name##_get(struct mdapl_dapl_##name *b, const void *in, size_t len);
#include "frames.def"

#endif
