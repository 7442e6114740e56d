/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_PEER_H
#define MDAPL_SHM_PEER_H
/*
 * The inside of the shm channel: its state, its peers, and what its files call of each other. In
 * the order of a message's way:
 *
 *      shm.c      the table of calls; a round of progress
 *      tx.c       one queue for each peer; messages into the ring
 *      ring.h     the ring
 *      doorbell.c     doorbells: which rings have something; which are polled; sleeping
 *      rx.c       messages out of the ring, to the owner (util/inbox) or to the file below
 *      pipe.c     bodies of middle length: in cells, right behind their message
 *      rndv.c     long bodies: rendezvous; in cells, or read out of the sender's memory (cma.c)
 *      rx_op.c     the owner's reads of either, until their cells have come
 *      cell.c     cells
 *      peer.c     peers; their failure
 *
 * Below them are near.c (which ranks of the node are reached), seg.c (the segment), node.c (the
 * business card) and os_*.c (the operating system).
 *
 * A pair of ranks has a ring in each direction, in the segment of its reader, from the first
 * message in that direction on. A message for which the ring has no room waits in the peer's queue.
 */
#include "idmap.h"
#include "inbox.h"
#include "list.h"
#include "pool.h"
#include "ring.h"
#include "seg.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_iov;
struct mdapl_shm_rndv;
struct mdapl_stats;
struct pushed;

enum {
    MDAPL_SHM_EAGER = 16384,     /* bytes of header and body that go into the ring */
    MDAPL_SHM_PUSH_BYTES = 65536,    /* bytes of a body that goes without a rendezvous */
    MDAPL_SHM_POLLED = 16,       /* rings that are polled */
    MDAPL_SHM_INFLIGHT = 16,     /* cells in flight to one peer */
};

/* What travels in a ring. The records are the header of their message. */
enum mdapl_shm_type {
    MDAPL_SHM_MSG,               /* a message with its body */
    MDAPL_SHM_PUSH,              /* a message whose body follows in cells; body: its length */
    MDAPL_SHM_RTS,               /* a message whose body stays with the sender; body: the record */
    MDAPL_SHM_CTS,               /* the receiver wants bytes of it in cells */
    MDAPL_SHM_DATA,              /* a cell with bytes of a body; the ids are 0 for a pushed one */
    MDAPL_SHM_FIN,               /* the body has been read, or dropped */
    MDAPL_SHM_TYPES
};

struct mdapl_shm_cts {
    uint32_t tx_id, rx_id;
    uint64_t off, len;
};

struct mdapl_shm_data {
    uint32_t tx_id, rx_id;
    uint64_t off;
    uint32_t cell, len;
};

struct mdapl_shm_fin {
    uint32_t tx_id;
    int32_t status;              /* as op->done's */
};

/* A message or record in a peer's queue. */
struct mdapl_shm_item {
    struct mdapl_list link;
    struct mdapl_op *op;         /* MSG, PUSH */
    uint8_t type, hdr_len;
    uint8_t hdr[MDAPL_HDR_MAX];  /* or the record */
    size_t len;                  /* MSG, PUSH: of the body */
    int n;
    struct iovec *v, own[4];     /* ... the body; v is own or malloc'ed */
    struct mdapl_shm_rndv *send; /* RTS */
};

/* Ranks that the launcher places on one node, me among them (near.c). */
struct mdapl_shm_near {
    int *rank;                   /* in ascending order, the same on all of them */
    int n, me;                   /* how many; my own index */
    struct mdapl_shm_peer *
        *probed; /* those whose segment has been mapped, until they are reached */
};

struct mdapl_shm_chan {
    alignas(16) uint8_t hdr[MDAPL_HDR_MAX];  /* of the message that is being taken (rx.c) */
    struct mdapl_ctx *ctx;
    struct mdapl_stats *stats;   /* the context's */
    uint64_t node;               /* node.h */
    uint64_t word;               /* others test whether they can read it (cma.c) */
    struct mdapl_shm_seg seg;
    bool barrier;                /* os.h */
    struct mdapl_shm_near near;  /* the ranks of this node */
    struct mdapl_shm_peer **peers; /* by rank; NULL until the rank is reached */
    struct mdapl_shm_peer **owner; /* by door; NULL until it has been opened */
    struct mdapl_shm_peer *polled[MDAPL_SHM_POLLED];
    int n_polled;
    int n_inrings;               /* doors in use, in this segment and in others' */
    struct mdapl_list work;      /* peers with something in a queue */
    struct mdapl_pool items;
    struct mdapl_idmap tx_ids, rx_ids;   /* long bodies */
    uint8_t free_cell[MDAPL_CELLS];
    int n_free_cells;
    struct mdapl_list inflight_peers; /* peers with cells in flight */
    int64_t single_from;         /* bytes from which one copy is better; -1: not measured yet */
    unsigned rounds;
    uint64_t checked;            /* when the peers were last checked, ns */
    bool draining, wired;
    bool slept;                  /* since doorbells were last handled (doorbell.c) */
    bool reads_allowed;          /* os.h: others may read my memory */
};

/* Another rank of this node. */
struct mdapl_shm_peer {
    struct mdapl_peer base;
    struct mdapl_shm_chan *s;
    struct mdapl_shm_seg far;    /* its segment */
    /* sending: all NULL and 0 until the first message */
    struct mdapl_shm_spsc_tx tx;
    uint32_t far_inring;
    bool fence;                  /* one of the two has no barrier (os.h) */
    struct mdapl_list ctl;       /* items that are sent first: CTS, FIN */
    struct mdapl_list queue;     /* messages, in the order of mdapl_send() */
    struct mdapl_list streaming; /* bodies with bytes still to go into cells */
    struct mdapl_list sends;     /* long bodies, until their FIN */
    struct {
        uint32_t number;         /* of the message that names it */
        uint8_t cell;
    } inflight[MDAPL_SHM_INFLIGHT]; /* cells in flight, in their order */
    unsigned inflight_first, inflight_n;
    struct mdapl_list inflight_peers; /* on s->flying while there are some */
    /* receiving: rx.door is NULL until the peer has sent a message */
    struct mdapl_shm_spsc_rx rx;
    uint32_t inring;
    bool polled;                 /* polled: on s->hot */
    bool active;                 /* has sent something lately */
    struct mdapl_inbox inbox;
    struct mdapl_list bodies;    /* long bodies that the owner has not finished */
    struct mdapl_list pushed;    /* bodies of middle length that the owner has not finished */
    struct mdapl_list reading;   /* reads of either in progress (rx_op.h) */
    struct pushed *piping;       /* the one whose cells arrive now; NULL if the owner dropped it */
    size_t piping_left;          /* ... then: its bytes that are still to arrive */
    enum { MDAPL_READ_UNTRIED, MDAPL_READ_WORKS, MDAPL_READ_FAILS } can_read;

    struct mdapl_list work;      /* on s->work */
    uint64_t token;              /* of its segment */
    pid_t pid;
    int dead;                    /* negative errno once it is lost */
    const char *broken;          /* a fault that the next round of progress raises */
    int broken_status;
    int process;                 /* as mdapl_shm_os_process_open() */
};

static inline struct mdapl_shm_peer *mdapl_shm_peer_of(struct mdapl_peer *peer)
{
    return MDAPL_OF(peer, struct mdapl_shm_peer, base);
}

/* -- peer.c ----------------------------------------------------------------------------------- */

/* Makes the peer of a rank from its business card. 0, or -errno: -EHOSTUNREACH (in another system),
 * or as mdapl_shm_seg_open(). The caller puts it on s->peers once it is reached. */
int mdapl_shm_peer_make(struct mdapl_shm_chan *s, int rank, const char *text,
                        struct mdapl_shm_peer **p);
void mdapl_shm_peer_free(struct mdapl_shm_peer *peer);
/* Something is queued: the peer is looked at in each round of progress until nothing is. */
void mdapl_shm_peer_wake(struct mdapl_shm_peer *peer);
/* Does what can be done. Returns how many things moved. */
int mdapl_shm_peer_progress(struct mdapl_shm_peer *peer);
/* Has the next round of progress raise the fault, after the messages that the peer has completed:
 * verbs and waits make no upcalls. status: negative errno; why: static text. */
void mdapl_shm_peer_broken(struct mdapl_shm_peer *peer, int status, const char *why);
/* There is no memory for what the peer has sent: raises the fault. Returns false. */
bool mdapl_shm_peer_no_memory(struct mdapl_shm_peer *peer);
/* The peer is lost: everything queued fails with status, and why goes up. */
void mdapl_shm_peer_fail(struct mdapl_shm_peer *peer, int status, const char *why);
/* Is the process still there, and has it accepted our ring? If not the next round raises it. */
void mdapl_shm_peer_check(struct mdapl_shm_peer *peer);
/* How much is still to be delivered or acknowledged, either way. */
size_t mdapl_shm_peer_unfinished(struct mdapl_shm_peer *peer);
/* Nothing is queued, and the peer has taken all that was sent. */
bool mdapl_shm_peer_idle(struct mdapl_shm_peer *peer);

/* -- near.c ----------------------------------------------------------------------------------- */

/* Before the segment is made. 0 or -ENOMEM. */
int mdapl_shm_near_init(struct mdapl_shm_chan *s);
void mdapl_shm_near_free(struct mdapl_shm_chan *s);
/* Maps the segments of all ranks that the launcher places on this node, once. */
void mdapl_shm_near_probe(struct mdapl_shm_chan *s);
/* After the launcher's barrier. 0 or -EHOSTUNREACH; the peer is the channel's. */
int mdapl_shm_near_reach(struct mdapl_shm_chan *s, int rank, struct mdapl_shm_peer **peer_p);
/* Why a rank is not reached, as the end of a sentence about it. */
void mdapl_shm_near_cause(const struct mdapl_shm_chan *s, int rank, char *buf, size_t len);

/* -- tx.c ------------------------------------------------------------------------------------- */

/* As mdapl_send(). */
int mdapl_shm_tx_send(struct mdapl_peer *base, const struct mdapl_msg *msg, struct mdapl_op *op);
/* Sends a record without a body, or queues it. 0 or -ENOMEM. */
int mdapl_shm_tx_record(struct mdapl_shm_peer *peer, int type, const void *record, size_t len);
/* Writes a message with the next len bytes of a cursor, or with len bytes at body, if there is
 * room. */
bool mdapl_shm_tx_put_from(struct mdapl_shm_peer *peer, int type, const void *hdr, size_t hdr_len,
                           struct mdapl_iov *from, size_t len);
bool mdapl_shm_tx_put(struct mdapl_shm_peer *peer, int type, const void *hdr, size_t hdr_len,
                      const void *body, size_t len);
/* Is there a ring to the peer? Takes one in its segment if there is none yet. */
bool mdapl_shm_tx_open(struct mdapl_shm_peer *peer);
/* Sends what is queued, as far as there is room. Returns how many things moved. */
int mdapl_shm_tx_flush(struct mdapl_shm_peer *peer);
/* Everything queued fails. */
void mdapl_shm_tx_fail(struct mdapl_shm_peer *peer, int status);

/* -- doorbell.c
 * ----------------------------------------------------------------------------------- */

/* Takes a ring in the peer's segment, for my first message. 0 or -errno. */
int mdapl_shm_doorbell_open(struct mdapl_shm_peer *peer);
/* Rings the doorbell of a peer that does not poll my ring, and ends its sleep. */
void mdapl_shm_doorbell_ring(struct mdapl_shm_peer *peer);
/* Takes messages out of the rings whose doorbells have been rung. Returns how many. */
int mdapl_shm_doorbell_poll(struct mdapl_shm_chan *s);
/* Stops polling the rings that have been silent since the last call. */
void mdapl_shm_polled_age(struct mdapl_shm_chan *s);
/* Sleeps until a doorbell rings, at most ns nanoseconds. */
void mdapl_shm_doorbell_wait(struct mdapl_shm_chan *s, uint64_t ns);
/* Nothing is taken from this peer any more. */
void mdapl_shm_doorbell_close(struct mdapl_shm_peer *peer);

/* -- rx.c ------------------------------------------------------------------------------------- */

/* Takes messages out of this peer's ring, a bounded number. Returns how many. */
int mdapl_shm_rx_poll(struct mdapl_shm_peer *peer);

/*
 * What the files below do with a message of theirs. Its header is a copy, as long as its record;
 * its body is in the ring. False: the content is impossible, or the peer has failed for want of
 * memory.
 */
typedef bool mdapl_shm_on(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m);

/* -- pipe.c ----------------------------------------------------------------------------------- */

/* Sends a message and all of its body, now; false: no room for that. */
bool mdapl_shm_pipe_send(struct mdapl_shm_peer *peer, const struct mdapl_msg *msg, size_t len);
/* Will there be cells for so many bytes once this peer has taken what is in flight to it? */
bool mdapl_shm_pipe_will_fit(const struct mdapl_shm_peer *peer, size_t len);
mdapl_shm_on mdapl_shm_pipe_on_start;
/* bytes: data->len of them, in a cell or in the ring. */
bool mdapl_shm_pipe_on_data(struct mdapl_shm_peer *peer, const struct mdapl_shm_data *data,
                            const uint8_t *bytes);
/* Frees the bodies that the owner never finished. */
void mdapl_shm_pipe_free(struct mdapl_shm_peer *peer);

/* -- rndv.c ----------------------------------------------------------------------------------- */

/* A body that stays with the sender until its FIN. NULL: out of memory. */
struct mdapl_shm_rndv *mdapl_shm_rndv_send(struct mdapl_shm_peer *peer,
                                           const struct mdapl_msg *msg, size_t len,
                                           struct mdapl_op *op);
/* Sends its RTS behind this header, if there is room. */
bool mdapl_shm_rndv_put_rts(struct mdapl_shm_rndv *send, const void *hdr, size_t hdr_len);
/* Sends pieces of bodies that have been asked for. Returns how many. */
int mdapl_shm_rndv_stream(struct mdapl_shm_peer *peer);
mdapl_shm_on mdapl_shm_rndv_on_rts, mdapl_shm_rndv_on_cts, mdapl_shm_rndv_on_fin;
/* As mdapl_shm_pipe_on_data(). */
bool mdapl_shm_rndv_on_data(struct mdapl_shm_peer *peer, const struct mdapl_shm_data *data,
                            const uint8_t *bytes);
/* The peer is lost: sends fail. */
void mdapl_shm_rndv_fail(struct mdapl_shm_peer *peer, int status);
/* Frees the bodies that the owner never finished. */
void mdapl_shm_rndv_free(struct mdapl_shm_peer *peer);

/* -- cma.c --------------------------------------------------------------------------------- */

void mdapl_shm_cma_init(struct mdapl_shm_chan *s);
/* Permits other processes to read this one's memory, once a body of len bytes may be read so. */
void mdapl_shm_cma_allow(struct mdapl_shm_chan *s, size_t len);
/* Is one copy the better way for so many bytes from this peer? Measures at the first call. */
bool mdapl_shm_cma_pays_off(struct mdapl_shm_peer *peer, size_t len);
/* Reads len bytes from the cursor `there`, whose addresses are the peer's, to `here`. False: it did
 * not work; the peer is not asked again. */
bool mdapl_shm_cma_read(struct mdapl_shm_peer *peer, struct mdapl_iov *here,
                        struct mdapl_iov *there, size_t len);

/* -- rx_op.c (and rx_op.h)
 * ----------------------------------------------------------------------- */

/* The peer is lost: all reads in progress end with status. */
void mdapl_shm_rx_ops_fail(struct mdapl_shm_peer *peer, int status);

/* -- cell.c ----------------------------------------------------------------------------------- */

void mdapl_shm_cells_init(struct mdapl_shm_chan *s);
/* Are there so many cells for this peer, and slots for their messages and `more` others? */
bool mdapl_shm_cells_free(struct mdapl_shm_peer *peer, int cells, int more);
/* How many bytes of a body go into one cell, so that both sides copy at the same time. */
size_t mdapl_shm_cell_share(size_t body);
/* Fills a free cell with len bytes from the cursor, sends DATA. data: off and the ids are set. */
void mdapl_shm_cell_send(struct mdapl_shm_peer *peer, struct mdapl_iov *from, size_t len,
                         struct mdapl_shm_data *data);
/* The same in a cell, or, if other peers hold them all, in the ring: at most len bytes; data->len
 * says how many. False: the peer has to take what is in flight to it first. */
bool mdapl_shm_cell_or_ring(struct mdapl_shm_peer *peer, struct mdapl_iov *from, size_t len,
                            struct mdapl_shm_data *data);
/* Frees the cells whose messages the peer has taken. */
void mdapl_shm_cells_reclaim(struct mdapl_shm_peer *peer);
/* The bytes of a cell of the peer's; NULL: it is none. */
const uint8_t *mdapl_shm_cell_of(const struct mdapl_shm_peer *peer,
                                 const struct mdapl_shm_data *data);

#endif
