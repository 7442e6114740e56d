/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_WIRE_H
#define MDAPL_WIRE_H
/*
 * Every byte that the dapl channel puts on the wire: the hello in a connection request and in its
 * answer, and the frames of an established connection. The prose, the pictures and the hex
 * examples are in PROTOCOL beside this file; a test parses those examples with the functions
 * below. All numbers are little-endian. Nothing here knows DAT.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- hello: private data of a connection request and of its acceptance ------------------------ */

enum {
    MDAPL_HELLO_MAGIC = 0x504d,    /* "MP" */
    MDAPL_HELLO_VERSION = 3,
    MDAPL_HELLO_ANSWER = 0x01,     /* flag: the acceptance of a request, not a request */
    MDAPL_HELLO_BUSY = 0x02,       /* flag: a rejection that is no verdict: call again */
    MDAPL_HELLO_BYTES = 56,        /* what the providers that give least give */
    MDAPL_HELLO_RETAINS = 0x0001,  /* offer: src keeps its frames until they are acknowledged */
    MDAPL_FRAME_MIN = 512,         /* bytes that every rank takes in one frame */
    MDAPL_WINDOW_MIN = 2,          /* frames that every rank takes on a stream */
};

enum { MDAPL_MAX_RAILS = 4, MDAPL_MAX_STREAMS = 16 };

struct mdapl_hello {
    uint8_t flags;
    uint8_t stream;                /* which of the connections between the two, from 0 */
    uint32_t job;
    uint32_t src, dst;             /* ranks */
    uint32_t epoch;                /* number of the request, from 1; an answer has the same */
    uint32_t incarnation;          /* random, one per process start */
    uint64_t rx_next;              /* the psn that src expects next from dst */
    uint32_t frame_bytes;          /* the longest frame that src takes */
    uint16_t sr_window;            /* frames that it takes on this stream to begin with */
    uint16_t offers;               /* MDAPL_HELLO_RETAINS */
};

/* Why a hello is not taken: an index into mdapl_hello_verdict_text(). */
enum mdapl_hello_verdict {
    MDAPL_HELLO_OK,
    MDAPL_HELLO_SHORT,
    MDAPL_HELLO_NOT_OURS,
    MDAPL_HELLO_OTHER_VERSION,
    MDAPL_HELLO_OTHER_JOB,
    MDAPL_HELLO_BAD_MAC,
    MDAPL_HELLO_BAD_RANK,
    MDAPL_HELLO_BAD_SIZE,
};

/* Writes the MDAPL_HELLO_BYTES of h with its MAC under the job's key. */
void mdapl_hello_put(const struct mdapl_hello *h, const uint8_t key[16],
                     uint8_t out[MDAPL_HELLO_BYTES]);
/* Reads and verifies a hello of len bytes: version, job and MAC; ranks below size, dst is me; the
 * sizes that it offers are possible. */
enum mdapl_hello_verdict mdapl_hello_get(struct mdapl_hello *h, const void *in, size_t len,
                                         const uint8_t key[16], uint32_t job, uint32_t me,
                                         uint32_t size);
const char *mdapl_hello_verdict_text(enum mdapl_hello_verdict v);

/* -- frames ----------------------------------------------------------------------------------- */

enum mdapl_frame_type {
    MDAPL_FRAME_MSG = 1,           /* a whole message: envelope and body */
    MDAPL_FRAME_RTS,               /* a message whose body stays: envelope, where it is */
    MDAPL_FRAME_CTS,               /* receiver to sender: write me these bytes, or send them */
    MDAPL_FRAME_DATA,              /* a piece of a body */
    MDAPL_FRAME_FIN,               /* receiver to sender: the body was read, or is not wanted */
    MDAPL_FRAME_ACK,               /* nothing but the header; has no psn of its own */
    MDAPL_FRAME_RING,              /* slots for the ring lane are given; no psn either */
    MDAPL_FRAME_WRITTEN,           /* so many bytes of a body have been written before this */
    MDAPL_FRAME_TYPES
};

enum { MDAPL_FRAME_HDR_BYTES = 24 };

/* The header of every frame. */
struct mdapl_frame {
    uint8_t type;
    uint8_t flags;                 /* none yet: 0 */
    uint16_t hdr_len;              /* bytes of envelope behind the header (MSG and RTS) */
    uint32_t psn;                  /* low 32 bits; ACK and RING: that of the next sequenced frame */
    uint32_t ack;                  /* the psn that the sender of this frame expects next */
    uint32_t sr_limit;             /* how many frames its peer may send ever on the sr lane */
    uint32_t ring_limit;           /* the same for the ring lane */
    uint32_t len;                  /* bytes behind the envelope */
};

/* Does a frame of this type have a psn of its own? The others need no acknowledgement. */
static inline bool mdapl_frame_sequenced(uint8_t type)
{
    return type != MDAPL_FRAME_ACK && type != MDAPL_FRAME_RING;
}

void mdapl_frame_put(const struct mdapl_frame *f, uint8_t out[MDAPL_FRAME_HDR_BYTES]);
/*
 * Reads the header of a frame of which len bytes have arrived. False: it is not one: too short,
 * unknown type or flags, or its lengths do not add up to len.
 */
bool mdapl_frame_get(struct mdapl_frame *f, const void *in, size_t len);

/* -- what is behind the header ---------------------------------------------------------------- */

enum {
    MDAPL_MAX_SEGS = 8,            /* pieces that an RTS or a CTS names */
    MDAPL_SEG_BYTES = 16,          /* one of them, and 4 for each rail */
    MDAPL_SEGS_MOST = MDAPL_MAX_SEGS * (MDAPL_SEG_BYTES + 4 * MDAPL_MAX_RAILS),
    MDAPL_RTS_BYTES = 16,          /* without pieces, as the next one */
    MDAPL_CTS_BYTES = 28,
    MDAPL_DATA_BYTES = 16,
    MDAPL_WRITTEN_BYTES = 16,
    MDAPL_FIN_BYTES = 8,
    MDAPL_RING_BYTES = 20,
};

/* One registered piece of a body. */
struct mdapl_seg {
    uint64_t addr;
    uint64_t len;
    uint32_t key[MDAPL_MAX_RAILS]; /* the rmr_context on each rail */
};

/* Where a body, or a part of one, is to be read or written. */
struct mdapl_segs {
    uint16_t n;                    /* 0: by no RDMA */
    uint16_t n_rails;
    struct mdapl_seg seg[MDAPL_MAX_SEGS];
};

struct mdapl_rts {
    uint64_t body_len;
    uint32_t tx_id;                /* the sender's name for this rendezvous */
    struct mdapl_segs at;          /* the whole of it */
};

struct mdapl_cts {
    uint32_t tx_id, rx_id;
    uint64_t off, len;             /* which bytes of the body */
    struct mdapl_segs to;          /* where they may be written: len bytes, or none */
};

/* followed by the bytes */
struct mdapl_data {
    uint32_t rx_id;
    uint32_t tx_id;
    uint64_t off;
};

struct mdapl_written {
    uint32_t rx_id, tx_id;
    uint64_t len;                  /* bytes, on the stream that carries this */
};

enum mdapl_fin_status { MDAPL_FIN_READ = 0, MDAPL_FIN_DROPPED = 1 };

struct mdapl_fin {
    uint32_t tx_id;
    uint32_t status;               /* enum mdapl_fin_status */
};

/* Slots of the sender's memory, on the rail of stream 0. */
struct mdapl_ring_given {
    uint64_t addr;
    uint32_t key;
    uint32_t slots, slot_bytes;
};

/* put: bytes written. get: false when len or a value is impossible. */
size_t mdapl_rts_put(const struct mdapl_rts *r, uint8_t *out);
bool mdapl_rts_get(struct mdapl_rts *r, const void *in, size_t len);
size_t mdapl_cts_put(const struct mdapl_cts *c, uint8_t *out);
bool mdapl_cts_get(struct mdapl_cts *c, const void *in, size_t len);
size_t mdapl_data_put(const struct mdapl_data *d, uint8_t *out);
bool mdapl_data_get(struct mdapl_data *d, const void *in, size_t len);
size_t mdapl_written_put(const struct mdapl_written *w, uint8_t *out);
bool mdapl_written_get(struct mdapl_written *w, const void *in, size_t len);
size_t mdapl_ring_put(const struct mdapl_ring_given *r, uint8_t *out);
bool mdapl_ring_get(struct mdapl_ring_given *r, const void *in, size_t len);
size_t mdapl_fin_put(const struct mdapl_fin *f, uint8_t *out);
bool mdapl_fin_get(struct mdapl_fin *f, const void *in, size_t len);

#endif
