/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_PEER_H
#define MDAPL_SHM_PEER_H
/*
 * The state of the shm channel, its peers, and the functions that its files call of each other. In
 * the order in which a message passes them:
 *
 *      shm.c      the table of calls; a round of progress
 *      tx.c       one queue for each peer; messages into the ring
 *      ring.h     the ring
 *      fifo.c     before it is used: the first messages to a rank
 *      doorbell.c doorbells: which rings have messages; which are polled
 *      sleep.c    sleeping until a doorbell is rung
 *      rx.c       messages out of the ring, to the owner (util/inbox) or to the files below
 *      part.c     bodies that arrive in parts
 *      rndv_tx.c  long bodies: rendezvous; in cells, or read out of the sender's memory (cma.c)
 *      rndv_rx.c  ... the receiving end
 *      split.c    long bodies that both ends copy
 *      way.c      which of these; judge.c, by what they cost
 *      cell.c     cells
 *      store.c    how bytes of bodies are stored, in the ring and in cells
 *      peer.c     peers; their failure
 *
 * Without messages: node_barrier.c, a barrier of all ranks, and one value made of those of all.
 *
 * Below them are near.c (which ranks of the node are reached), guest.c (and which processes of
 * other jobs), seg.c (the segment), node.c (the business card) and os_*.c (the operating system).
 *
 * A pair of ranks has an inring in each direction, in the segment of its reader, once more messages
 * have been sent in that direction than go into the FIFO, or other ones. A message for which the
 * ring has no room waits in the peer's queue.
 */
#include "idmap.h"
#include "inbox.h"
#include "iov.h"
#include "list.h"
#include "part.h"
#include "pool.h"
#include "ring.h"
#include "seg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_shm_copying;
struct mdapl_shm_data;
struct mdapl_shm_flow;
struct mdapl_shm_laps;
struct mdapl_shm_rndv;
struct mdapl_shm_split_at;
struct mdapl_shm_stores;
struct mdapl_reduce;
struct mdapl_stats;

enum {
    MDAPL_SHM_EAGER = 131072,    /* bytes of a body in the ring, at most; in the pair buffer:
                                  * MDAPL_PAIR_BYTES */
    MDAPL_SHM_SHORT = 4096,      /* ... up to which one copy by the kernel is not tried */
    MDAPL_SHM_WHOLE = 16384,     /* ... up to which it is one message there */
    MDAPL_SHM_PART = 16384,      /* ... in one of the parts of a longer one, at most */
    MDAPL_SHM_ROOM = 32 << 20,   /* bytes of data in all inrings of a process, about */
    MDAPL_SHM_ROOM_LEAST = 57344,    /* ... in one of them */
    MDAPL_SHM_POLLED = 16,       /* rings that are polled */
    MDAPL_SHM_INFLIGHT = 16,     /* cells in flight to one peer */
};

/* What travels in a ring. The header of records is in rndv.h. */
enum mdapl_shm_type {
    MDAPL_SHM_MSG,               /* a message with its body */
    MDAPL_SHM_HEAD,              /* a message with the first part of its body (part.c) */
    MDAPL_SHM_MORE,              /* the next part */
    MDAPL_SHM_RTS,               /* a message whose body is fetched (rndv.h) */
    MDAPL_SHM_CTS,               /* the receiver requests bytes of that body in cells */
    MDAPL_SHM_DATA,              /* bytes of such a body, in a cell or behind the record */
    MDAPL_SHM_SPLIT,             /* both ends copy the body (split.c) */
    MDAPL_SHM_SPLIT_END,         /* the sender's parts of it are there */
    MDAPL_SHM_FIN,               /* the body has been read, not all of it in cells, or dropped */
    MDAPL_SHM_TYPES
};
_Static_assert((int)MDAPL_SHM_TYPES <= MDAPL_WORD_REST, "a type fits its bits of a slot's word");
_Static_assert(MDAPL_SHM_EAGER < 1 << (32 - MDAPL_WORD_LEN), "so does the length of a body");

/* Before the header of a message in parts. */
struct mdapl_shm_head {
    uint64_t len;                /* of the whole body */
};

/* A message or record in a peer's queue. */
struct mdapl_shm_item {
    struct mdapl_list link;
    struct mdapl_op *op;         /* MSG, HEAD */
    uint8_t type, hdr_len;
    uint8_t hdr[MDAPL_HDR_MAX];  /* or the record */
    size_t len;                  /* MSG, HEAD: of the body */
    struct mdapl_pieces body;    /* ... the body; of all other types none */
    struct mdapl_shm_rndv *send; /* RTS */
};

/* The ranks that the launcher places on this node, this rank included (near.c). */
struct mdapl_shm_near {
    int *rank;                   /* in ascending order, the same on all of them */
    int n, me;                   /* how many; this rank's index */
    uint64_t digest;             /* of the list */
    /* By index: a peer whose segment has been mapped, until it is reached. */
    struct mdapl_shm_peer **probed;
};

/* Barriers of all ranks of the job, if it has one node (node_barrier.c). */
struct mdapl_shm_node_barrier {
    bool none;                   /* it has been found that there are none */
    uint32_t entered;            /* by this rank, in total */
    uint32_t len;                /* of what it has brought into the last one */
    uint32_t ranks, leaves;      /* at its leaf; of the tree */
    struct mdapl_shm_seg_head *root, *leaf;      /* NULL: not found yet */
};

struct mdapl_shm_chan {
    alignas(16) uint8_t hdr[MDAPL_HDR_MAX];  /* of the message that is being taken (rx.c) */
    struct mdapl_ctx *ctx;
    struct mdapl_stats *stats;   /* the context's */
    uint64_t node;               /* node.h */
    char card[MDAPL_SHM_CARD_BYTES];
    uint64_t word;               /* others read it to test cross-memory attach (cma.c) */
    struct mdapl_shm_seg seg;
    bool barrier;                /* os.h */
    struct mdapl_shm_near near;  /* the ranks of this node */
    struct mdapl_shm_peer **joined;    /* of other groups: mapped, but not reached (guest.c) */
    int n_joined;
    uint64_t early;              /* guests that this process does not know yet (guest.c) */
    struct mdapl_shm_peer **owner; /* by inring; NULL until its first message is accepted */
    struct mdapl_shm_peer *polled[MDAPL_SHM_POLLED];
    int n_polled;
    int n_inrings;               /* in use, in this segment and in others', or their FIFOs */
    struct mdapl_shm_spread spread;
    struct mdapl_list work;      /* peers with queued items or a fault to raise */
    struct mdapl_pool items;
    struct mdapl_idmap tx_ids, rx_ids;   /* long bodies, */
    struct mdapl_pool sends, bodies;     /* ... their state */
    uint8_t free_cell[MDAPL_CELLS];    /* in the order in which they are used, from first_cell */
    unsigned first_cell, n_free_cells;
    struct mdapl_list inflight_peers; /* peers with cells in flight */
    int64_t single_from;         /* the knob SHM_SINGLE_BYTES; -1: the judge decides (way.c) */
    unsigned rounds;
    uint64_t checked;            /* when the peers were last checked, ns */
    bool draining, drained, wired;
    uint64_t end_seen;           /* ns, when a process was seen to have ended after that; 0: none */
    uint32_t fifo_taken;         /* slots of this rank's FIFO */
    bool slept;                  /* since the doorbells were polled last (doorbell.c) */
    bool reads_allowed;          /* others may read this process's memory (os.h) */
    struct mdapl_shm_node_barrier node_barrier;
};

/* Another rank of this node. What a short message needs comes first, in few lines, but for far.head
 * if it rings a doorbell: of many peers none of them is in the core's own cache when the next
 * message of each is sent or taken. */
struct mdapl_shm_peer {
    alignas(MDAPL_LINE_BYTES) struct mdapl_peer base;
    struct mdapl_shm_chan *s;
    struct mdapl_list queue;     /* messages, in the order of mdapl_send() */
    struct mdapl_shm_spsc_rx rx; /* rx.in is NULL until the peer has sent a message */
    struct mdapl_inbox inbox;
    int dead;                    /* negative errno once it is lost */
    uint32_t far_inring, inring; /* indexes of the inrings to it and from it */
    bool fence;                  /* one of the two has no barrier (os.h) */
    bool polled;                 /* its ring is polled: it is on s->polled */
    bool active;                 /* it has sent a message since the rings were aged last */
    struct mdapl_shm_spsc_tx tx; /* tx.in is NULL while all messages to it were in its FIFO */
    struct mdapl_shm_seg far;    /* the peer's segment */
    uint32_t fifo_end;           /* of its FIFO, behind the last message of this rank there */
    const struct mdapl_shm_peer *next_near;  /* of the job's next rank on this node, in a ring
                                              * (near.c); NULL: it is of another job */
    /* sending */
    uint32_t long_sent;          /* number of the last message with a body above MDAPL_SHM_SHORT */
    struct mdapl_list ctl;       /* items that are sent first: CTS, FIN */
    struct mdapl_list streaming; /* bodies with requested bytes to put into cells */
    struct mdapl_list sends;     /* long bodies, until they have been sent or their FIN */
    struct {
        uint32_t number;         /* of the message that names it */
        uint8_t cell;
    } inflight[MDAPL_SHM_INFLIGHT]; /* cells in flight, oldest first */
    unsigned inflight_first, inflight_n;
    struct mdapl_list inflight_peers; /* on s->inflight_peers while there are some */
    struct mdapl_shm_pair pair;  /* in the segment with the lesser token; the other rank begins */
    /* receiving */
    struct mdapl_parts parts;    /* bodies in parts */
    struct mdapl_list bodies;    /* long bodies that the owner has not finished */
    struct mdapl_list reading;   /* reads of them in progress (rx_op.h) */
    struct mdapl_list later;     /* ... those that a round of progress begins when it has polled */
    uint8_t alone;               /* announced bodies that still end a round each (rx.c) */
    enum { MDAPL_READ_UNTRIED, MDAPL_READ_WORKS, MDAPL_READ_FAILS } can_read;
    uint32_t splits, split_words;      /* begun, in total; a bit for each word in use (split.c) */
    struct mdapl_shm_copying *copying; /* how long bodies are copied, both directions (way.c) */
    struct mdapl_shm_flow *flow;       /* long bodies in both directions */
    struct mdapl_shm_stores *stores;   /* how they are stored; NULL before the first (store.c) */
    struct mdapl_shm_laps *laps;       /* ... and where, in data; likewise (lap.c) */

    struct mdapl_list work;      /* on s->work */
    uint64_t token;              /* of the peer's segment */
    pid_t pid;
    const char *broken;          /* cause of a fault that the next round of progress raises */
    int broken_status;
    int process;                 /* as mdapl_shm_os_process_open() */
};
_Static_assert(offsetof(struct mdapl_shm_peer, tx.number[MDAPL_SLOTS_FRONT])
                   <= 5 * MDAPL_LINE_BYTES, "a short message needs five lines of its peer");

static inline struct mdapl_shm_peer *mdapl_shm_peer_of(struct mdapl_peer *peer)
{
    return MDAPL_OF(peer, struct mdapl_shm_peer, base);
}

/* -- peer.c ----------------------------------------------------------------------------------- */

/* Makes the peer of a rank from its business card (text). 0, or -errno: -EHOSTUNREACH (the rank is
 * on another node), or as mdapl_shm_seg_open(). The caller owns *p until the rank is reached. */
int mdapl_shm_peer_make(struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank,
                        const char *text, struct mdapl_shm_peer **p);
/* The peer of the channel that follows prev (NULL: the first); NULL: there is none. */
struct mdapl_shm_peer *mdapl_shm_peer_next(struct mdapl_shm_chan *s,
                                           const struct mdapl_shm_peer *prev);
void mdapl_shm_peer_free(struct mdapl_shm_peer *peer);
/* Has each round of progress serve this peer, until its queues are empty. */
void mdapl_shm_peer_wake(struct mdapl_shm_peer *peer);
/* Announces held messages and transmits queued items. Returns how many. */
int mdapl_shm_peer_progress(struct mdapl_shm_peer *peer);
/* Has the next round of progress deliver the messages that the peer has completed and then raise
 * the fault, as verbs and waits make no upcalls. status: negative errno; why: static text. */
void mdapl_shm_peer_broken(struct mdapl_shm_peer *peer, int status, const char *why);
/* Out of memory for a received message: fails the peer. Returns false. */
bool mdapl_shm_peer_no_memory(struct mdapl_shm_peer *peer);
/* The peer is lost: all its operations end with status (negative errno), and up->fault gets why. */
void mdapl_shm_peer_fail(struct mdapl_shm_peer *peer, int status, const char *why);
/* Raises a fault in the next round if the peer's process has ended or has refused this one. */
void mdapl_shm_peer_check(struct mdapl_shm_peer *peer);
/* Publishes what has been taken. Returns how many messages, at least, are not delivered or not
 * acknowledged, in either direction: 0 when it is drained. */
size_t mdapl_shm_peer_unfinished(struct mdapl_shm_peer *peer);
/* Nothing is queued, and the peer has taken all that was sent. */
bool mdapl_shm_peer_idle(struct mdapl_shm_peer *peer);

/* -- near.c ----------------------------------------------------------------------------------- */

/* Lists the ranks of this node, before the segment is made. 0 or -ENOMEM. */
int mdapl_shm_near_init(struct mdapl_shm_chan *s);
void mdapl_shm_near_free(struct mdapl_shm_chan *s);
/* Maps the segments of all ranks that the launcher places on this node, once. */
void mdapl_shm_near_probe(struct mdapl_shm_chan *s);
/* The peer of a rank, after the launcher's barrier. 0 or -EHOSTUNREACH; the channel owns the peer.
 * */
int mdapl_shm_near_reach(struct mdapl_shm_chan *s, int rank, struct mdapl_shm_peer **peer_p);
/* The peer with this index on the node; NULL: it is not reached through shared memory, or is this
 * rank. */
struct mdapl_shm_peer *mdapl_shm_near_peer(const struct mdapl_shm_chan *s, int index);
/* Writes why a rank is not reached, as the end of a sentence about that rank. */
void mdapl_shm_near_cause(const struct mdapl_shm_chan *s, int rank, char *buf, size_t len);

/* -- guest.c ---------------------------------------------------------------------------------- */

/* Maps the segments of the group's ranks on this node and claims an inring in each. */
void mdapl_shm_guest_join(struct mdapl_shm_chan *s, const struct mdapl_group *group);
/* The peer of a rank of another group, when both jobs have joined. 0 or -EHOSTUNREACH. */
int mdapl_shm_guest_reach(struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank,
                          const char *card, struct mdapl_shm_peer **peer_p);
/* Frees the joined peers of this group that have not been reached; -1: of all groups. */
void mdapl_shm_guest_part(struct mdapl_shm_chan *s, int group);
/* A peer is about to be freed: if it is of another group, both ends can use its inrings again. */
void mdapl_shm_guest_leave(struct mdapl_shm_peer *peer);
/* Frees the entries of guests that have left or whose processes have ended. */
void mdapl_shm_guest_sweep(struct mdapl_shm_chan *s);
/* Is it the inring of a guest that has left? */
bool mdapl_shm_guest_has_left(const struct mdapl_shm_chan *s, uint32_t index);
/* Which rank of which group the guest with this inring is, by its hello; of a visitor of an open
 * port the group is added. 0; -EAGAIN: it may be known later, and its doorbell rings again when a
 * group is added or a peer removed; -EACCES: it is none, its segment cannot be mapped, or memory is
 * out. In all cases *rank_p is what it calls itself. */
int mdapl_shm_guest_who(struct mdapl_shm_chan *s, uint32_t index, struct mdapl_group **group_p,
                        int *rank_p);

/* -- tx.c ------------------------------------------------------------------------------------- */

/* As mdapl_send(). */
int mdapl_shm_tx_send(struct mdapl_peer *base, const struct mdapl_msg *msg, struct mdapl_op *op);
/* Messages of the owner, to all peers, that have been sent or queued. */
uint64_t mdapl_shm_tx_sent(const struct mdapl_shm_chan *s);
/* Sends a record without a body, or queues it. 0 or -ENOMEM. */
int mdapl_shm_tx_record(struct mdapl_shm_peer *peer, int type, const void *record, size_t len);
/* Writes a message with the next len bytes of a cursor, or with len bytes at body, if there is
 * room. */
bool mdapl_shm_tx_put_from(struct mdapl_shm_peer *peer, int type, const void *hdr, size_t hdr_len,
                           struct mdapl_iov *from, size_t len);
bool mdapl_shm_tx_put(struct mdapl_shm_peer *peer, int type, const void *hdr, size_t hdr_len,
                      const void *body, size_t len);
/* Opens the inring in the peer's segment if it has none yet. Returns whether it has one. */
bool mdapl_shm_tx_open(struct mdapl_shm_peer *peer);
/* Transmits queued items and pieces of bodies, while there is room. Returns how many. */
int mdapl_shm_tx_flush(struct mdapl_shm_peer *peer);
/* All queued items end with status. */
void mdapl_shm_tx_fail(struct mdapl_shm_peer *peer, int status);

/* -- doorbell.c ------------------------------------------------------------------------------- */

/* Opens the inring in the peer's segment, for the first message. 0 or -ENOMEM. */
int mdapl_shm_doorbell_open(struct mdapl_shm_peer *peer);
/* Rings the doorbell of a peer that does not poll this ring, and ends its sleep. */
void mdapl_shm_doorbell_ring(struct mdapl_shm_peer *peer);
/* Sets the doorbell of an inring of this segment that is to be looked at again. */
void mdapl_shm_doorbell_again(struct mdapl_shm_chan *s, uint32_t inring);
/* Takes messages out of the rings whose doorbells have been rung. Returns how many. */
int mdapl_shm_doorbell_poll(struct mdapl_shm_chan *s);
/* The peer that writes into this inring, from its first message on; NULL: what it sends is refused,
 * or not taken yet. */
struct mdapl_shm_peer *mdapl_shm_doorbell_writer(struct mdapl_shm_chan *s, uint32_t inring);
/* Stops polling the rings that have been silent since the last call. */
void mdapl_shm_polled_age(struct mdapl_shm_chan *s);
/* Stops polling all rings, so that each message rings a doorbell. False: a ring has a message. */
bool mdapl_shm_polled_stop(struct mdapl_shm_chan *s);
/* Stops polling the ring of this peer, which is lost. */
void mdapl_shm_doorbell_close(struct mdapl_shm_peer *peer);

/* -- sleep.c ---------------------------------------------------------------------------------- */

/* Sleeps until a doorbell rings, at most ns nanoseconds. */
void mdapl_shm_sleep(struct mdapl_shm_chan *s, uint64_t ns);
/* Ends the sleep of a peer whose doorbell has been rung, if it sleeps. */
void mdapl_shm_sleep_end(struct mdapl_shm_peer *peer);
/* Ends the sleep of another thread of this process, if it is in one. */
void mdapl_shm_sleep_wake(struct mdapl_shm_chan *s);

/* -- node_barrier.c --------------------------------------------------------------------------- */

/* Before the launcher's barrier: publishes whether this rank takes part, and reaches all others. */
void mdapl_shm_node_barrier_open(struct mdapl_shm_chan *s);
/* As mdapl_barrier_enter(), _passed() and _result(). */
int mdapl_shm_node_barrier_enter(void *state, const struct mdapl_reduce *r);
bool mdapl_shm_node_barrier_passed(void *state);
const void *mdapl_shm_node_barrier_result(void *state);
/* A rank is about to sleep. True: it waits in a barrier, whose last rank wakes it until
 * mdapl_shm_node_barrier_wakes() is called. */
bool mdapl_shm_node_barrier_sleep(struct mdapl_shm_chan *s);
void mdapl_shm_node_barrier_wakes(struct mdapl_shm_chan *s);

/* -- rx.c ------------------------------------------------------------------------------------- */

/* Has the peer's ring a message that is not taken? Who takes it loads the word again. */
static inline bool mdapl_shm_rx_pending(const struct mdapl_shm_peer *peer)
{
    uint64_t word = atomic_load_explicit(&peer->rx.slot->word, memory_order_relaxed);

    return (uint32_t)(word >> 32) == peer->rx.taken + 1;
}

/* Has it any message? The turn of that may come later, after those in the FIFO (fifo.c). */
static inline bool mdapl_shm_rx_has_any(const struct mdapl_shm_peer *peer)
{
    uint64_t word = atomic_load_explicit(&peer->rx.slot->word, memory_order_relaxed);

    return (int32_t)((uint32_t)(word >> 32) - peer->rx.taken) > 0;
}

/* What the peer has written is none of this protocol: it fails. */
void mdapl_shm_rx_bad(struct mdapl_shm_peer *peer);
/* Takes messages out of this peer's ring, a bounded number. Returns how many. */
int mdapl_shm_rx_poll(struct mdapl_shm_peer *peer);

/*
 * Handles a message of one type. m->hdr is a copy, as long as the type's record; m->body is in the
 * ring. False: the content is impossible, or the peer has failed because memory is out.
 */
typedef bool mdapl_shm_on(struct mdapl_shm_peer *peer, const struct mdapl_shm_spsc_msg *m);

/* -- part.c ----------------------------------------------------------------------------------- */

/* How many messages carry a body of len bytes, and how many bytes each, but the last one, has. */
static inline unsigned mdapl_shm_parts(size_t len)
{
    return (unsigned)((len + MDAPL_SHM_PART - 1) / MDAPL_SHM_PART);
}

static inline size_t mdapl_shm_part_len(size_t len)
{
    unsigned n = mdapl_shm_parts(len);

    return mdapl_shm_spsc_lines((len + n - 1) / n);
}

/* Makes a HEAD that is taken out of the ring, whose header is a copy, a MSG, if all its parts have
 * arrived. False: the content is impossible. */
bool mdapl_shm_part_join(struct mdapl_shm_peer *peer, struct mdapl_shm_spsc_msg *m);
mdapl_shm_on mdapl_shm_part_on_head, mdapl_shm_part_on_more;

/* -- rndv_tx.c -------------------------------------------------------------------------------- */

void mdapl_shm_rndv_tx_init(struct mdapl_shm_chan *s);
void mdapl_shm_rndv_tx_fini(struct mdapl_shm_chan *s);
/* Begins a rendezvous: the body stays where it is until op->done, after its last piece or the FIN.
 * NULL: out of memory. */
struct mdapl_shm_rndv *mdapl_shm_rndv_send(struct mdapl_shm_peer *peer,
                                           const struct mdapl_msg *msg, size_t len,
                                           struct mdapl_op *op);
/* Sends the RTS with the message's header, if there is room. */
bool mdapl_shm_rndv_put_rts(struct mdapl_shm_rndv *send, const void *hdr, size_t hdr_len);
/* Frees one without a call of its op: its RTS is not sent, or all of it is over. */
void mdapl_shm_rndv_forget(struct mdapl_shm_rndv *send);
/* Sends pieces of bodies that a CTS has requested. Returns how many. */
int mdapl_shm_rndv_stream(struct mdapl_shm_peer *peer);
mdapl_shm_on mdapl_shm_rndv_on_cts, mdapl_shm_rndv_on_fin, mdapl_shm_rndv_on_split;
/* The peer is lost: all rendezvous that this rank sends end with status. */
void mdapl_shm_rndv_fail(struct mdapl_shm_peer *peer, int status);

/* -- rndv_rx.c -------------------------------------------------------------------------------- */

void mdapl_shm_rndv_rx_init(struct mdapl_shm_chan *s);
void mdapl_shm_rndv_rx_fini(struct mdapl_shm_chan *s);
/* Begins the next one of the reads that wait, with those that one call can read with it. Returns
 * how many. */
int mdapl_shm_rndv_read_waiting(struct mdapl_shm_peer *peer);
mdapl_shm_on mdapl_shm_rndv_on_rts, mdapl_shm_rndv_on_split_end;
/* Handles a DATA. bytes: data->len of them, in a cell or in the ring. */
bool mdapl_shm_rndv_on_data(struct mdapl_shm_peer *peer, const struct mdapl_shm_data *data,
                            const uint8_t *bytes);
/* Frees the bodies that the owner never finished. */
void mdapl_shm_rndv_free(struct mdapl_shm_peer *peer);

/* -- cma.c ------------------------------------------------------------------------------------ */

/* Reads the knob SHM_SINGLE_BYTES. */
void mdapl_shm_cma_init(struct mdapl_shm_chan *s);
/* Permits other processes to read and write this one's memory, once a body of len bytes may be
 * copied so. */
void mdapl_shm_cma_allow(struct mdapl_shm_chan *s, size_t len);
/* Tries whether the kernel permits this process to read the peer's memory. */
void mdapl_shm_cma_try(struct mdapl_shm_peer *peer);
/* Does it? */
static inline bool mdapl_shm_cma_works(struct mdapl_shm_peer *peer)
{
    if (peer->can_read == MDAPL_READ_UNTRIED)
        mdapl_shm_cma_try(peer);
    return peer->can_read == MDAPL_READ_WORKS;
}
/* Copies len bytes from the cursor `there`, whose addresses are the peer's, to `here`, or writes
 * them from `here` to `there`. False: the kernel refused. If it did not read, then
 * mdapl_shm_cma_works() is false for this peer from now on. */
typedef bool mdapl_shm_cma_move(struct mdapl_shm_peer *peer, struct mdapl_iov *here,
                                struct mdapl_iov *there, size_t len);
mdapl_shm_cma_move mdapl_shm_cma_read, mdapl_shm_cma_write;

/* -- split.c ---------------------------------------------------------------------------------- */

/* A body that both ends copy, at one of them. */
struct mdapl_shm_split {
    _Atomic uint64_t *word;      /* NULL: there is none */
    uint32_t number, index;      /* of the split; at the receiver: of the word, in the inring */
    uint32_t parts, part_len;
    size_t len;
    uint32_t taken;              /* parts taken at this end */
};

/* Begins a split of len bytes of a body that the peer sends. False: all words are in use, or the
 * body is too long. */
bool mdapl_shm_split_begin(struct mdapl_shm_peer *peer, size_t len, struct mdapl_shm_split *split);
/* The receiver ends it: the sender takes no more parts, and the word is free for another one. */
void mdapl_shm_split_free(struct mdapl_shm_peer *peer, struct mdapl_shm_split *split);
/* The sender's view of a split that the peer has begun. False: it is impossible. */
bool mdapl_shm_split_join(struct mdapl_shm_peer *peer, const struct mdapl_shm_split_at *at,
                          struct mdapl_shm_split *split);
/* Takes parts until none is left, and copies each: the receiver from the front, here from the
 * cursor `there`; the sender from the back. Cursors are at the first byte. Return the number of
 * parts copied: fewer than split->taken if the kernel refused. The receiver then leaves none to the
 * sender. */
uint32_t mdapl_shm_split_read(struct mdapl_shm_peer *peer, struct mdapl_shm_split *split,
                              struct mdapl_iov here, struct mdapl_iov there);
uint32_t mdapl_shm_split_write(struct mdapl_shm_peer *peer, struct mdapl_shm_split *split,
                               struct mdapl_iov here, struct mdapl_iov there);

/* -- way.c ------------------------------------------------------------------------------------ */

/* A copy under way, at the receiver: of a body, or of several of one length together. */
struct mdapl_shm_copy {
    size_t len;
    unsigned bodies;
    uint64_t start;              /* ns; 0: nobody needs its time */
    uint32_t batch;              /* of copies, to which it belongs */
    enum mdapl_shm_way way;
};

/* Makes peer->copying. 0 or -ENOMEM. */
int mdapl_shm_way_make(struct mdapl_shm_peer *peer);
void mdapl_shm_way_free(struct mdapl_shm_peer *peer);
/* The receiver's choice for a body of len bytes that has been announced; once: one copy is possible
 * for it. */
enum mdapl_shm_way mdapl_shm_way_choose(struct mdapl_shm_peer *peer, size_t len, bool once);
/* The peer's kernel does not permit it to write to this process. */
void mdapl_shm_way_no_writes(struct mdapl_shm_peer *peer);
/* A copy of len bytes of each of some announced bodies, that way, begins; a piece of one in cells
 * has arrived; a copy has ended, whole or not. */
void mdapl_shm_way_begin(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, size_t len,
                         unsigned bodies, struct mdapl_shm_copy *copy);
void mdapl_shm_way_arrived(struct mdapl_shm_peer *peer, const struct mdapl_shm_data *data);
void mdapl_shm_way_end(struct mdapl_shm_peer *peer, const struct mdapl_shm_copy *copy, bool whole);
/* How the receiver wants the next body of such a length, for the CTS or FIN: as it has decided, or
 * as it tries now, for which the body has to be announced. */
enum mdapl_shm_way mdapl_shm_way_wanted(const struct mdapl_shm_peer *peer, size_t len);
/* A body of len bytes comes in the ring or the pair buffer. Returns the time, ns; 0: nobody needs
 * its times. */
uint64_t mdapl_shm_way_comes(struct mdapl_shm_peer *peer, size_t len);
/* Its first message, with `first` bytes of it at `at`, has been taken since `start`, ns; 0: its
 * time is not known, or its owner does not take it yet. */
void mdapl_shm_way_ring(struct mdapl_shm_peer *peer, size_t len, const uint8_t *at, size_t first,
                        bool in_pair, uint64_t start);
/* Is a body announced that would fit the ring or the pair buffer, and is longer than
 * MDAPL_SHM_SHORT? */
bool mdapl_shm_way_announce(struct mdapl_shm_peer *peer, size_t len);
/* A CTS or FIN for a body of len bytes has carried what the receiver wants. */
void mdapl_shm_way_advised(struct mdapl_shm_peer *peer, size_t len, uint64_t way);

/* -- flow.c ----------------------------------------------------------------------------------- */

/* Makes peer->flow. 0 or -ENOMEM. */
int mdapl_shm_flow_make(struct mdapl_shm_peer *peer);
void mdapl_shm_flow_free(struct mdapl_shm_peer *peer);
/* Are long bodies in flight in both directions, in general? */
bool mdapl_shm_flow_both(const struct mdapl_shm_peer *peer);
/* Do the times of bodies of this class matter? In both directions only during trials. */
bool mdapl_shm_flow_timed(const struct mdapl_shm_peer *peer, unsigned c);
/* How bodies of this class go then, in both directions; MDAPL_SHM_WAYS: they are not in flight so,
 * or it is not decided. */
enum mdapl_shm_way mdapl_shm_flow_way(const struct mdapl_shm_peer *peer, unsigned c);
/* A body longer than MDAPL_SHM_SHORT comes from the peer, or is announced; one has arrived whole,
 * whose copy this end began at `start`, ns; 0: that is not known. */
void mdapl_shm_flow_comes(struct mdapl_shm_peer *peer);
void mdapl_shm_flow_arrived(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, size_t len,
                            uint64_t start);
/* A body, in either direction, is the first one at its place in the ring or the pair buffer, or
 * part of it is: that costs page faults, which are no measure. */
void mdapl_shm_flow_fresh(struct mdapl_shm_peer *peer, size_t len);
/* One is to be sent to the peer; all of it has been sent: it is in the ring, in the pair buffer or
 * in cells, or the peer has copied it. */
void mdapl_shm_flow_sends(struct mdapl_shm_peer *peer, size_t len);
void mdapl_shm_flow_sent(struct mdapl_shm_peer *peer, enum mdapl_shm_way way, size_t len);

/* -- decision.c ------------------------------------------------------------------------------- */

/* In which bodies are in flight. */
enum mdapl_shm_directions { MDAPL_SHM_ONE, MDAPL_SHM_TWO };

struct mdapl_shm_decision {
    enum mdapl_shm_way way;
    int n;                       /* ways that were compared */
    const uint32_t *cost;        /* ... what each costs, ns for 1 MiB; 0: not known */
};

/* The node's decision for a class; MDAPL_SHM_WAYS: none yet. */
enum mdapl_shm_way mdapl_shm_node_way(struct mdapl_shm_chan *s, enum mdapl_shm_directions n,
                                      unsigned c);
/* Makes this process's decision the node's, and reports it if it is news there. */
void mdapl_shm_node_decide(struct mdapl_shm_peer *peer, enum mdapl_shm_directions n, unsigned c,
                           const struct mdapl_shm_decision *d);

/* The node's decision on laps of bodies in a ring; MDAPL_LAPS: none yet. */
unsigned mdapl_shm_node_lap(struct mdapl_shm_chan *s);
/* Makes this process's decision the node's. Returns whether it is news there. */
bool mdapl_shm_node_decide_lap(struct mdapl_shm_chan *s, unsigned lap);

/* -- store.c (and store.h) -------------------------------------------------------------------- */

/* Copies the next len bytes of a cursor into shared memory that the peer will read. */
void mdapl_shm_store(struct mdapl_shm_peer *peer, struct mdapl_iov *from, void *to, size_t len);
/* Counts the next such copy, of at least MDAPL_BYTES_LONG bytes, as made, since the caller makes it
 * elsewhere. False: it would be measured, or be by non-temporal stores, and is not counted. */
bool mdapl_shm_store_elsewhere(struct mdapl_shm_peer *peer, size_t len);

/* -- lap.c ------------------------------------------------------------------------------------ */

/* len bytes of a body, at least MDAPL_BYTES_LONG, have been stored in the ring's data. */
void mdapl_shm_lap_stored(struct mdapl_shm_peer *peer, size_t len);

/* -- cell.c ----------------------------------------------------------------------------------- */

void mdapl_shm_cells_init(struct mdapl_shm_chan *s);
/* How many bytes of a body go into one cell, so that both ends copy at the same time. */
size_t mdapl_shm_cell_share(size_t body);
/* Sends DATA with the next bytes of the cursor, data->len of them and at most len: in a cell or, if
 * other peers hold all cells, in the ring. data: off and the ids are set. False: no room until the
 * peer has taken a message that is in flight to it. */
bool mdapl_shm_cell_or_ring(struct mdapl_shm_peer *peer, struct mdapl_iov *from, size_t len,
                            struct mdapl_shm_data *data);
/* Frees the cells whose messages the peer has taken. */
void mdapl_shm_cells_reclaim(struct mdapl_shm_peer *peer);
/* The bytes of the cell that data names, in the peer's segment; NULL: there is no such cell. */
const uint8_t *mdapl_shm_cell_of(const struct mdapl_shm_peer *peer,
                                 const struct mdapl_shm_data *data);

#endif
