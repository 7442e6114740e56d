/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_PEER_H
#define MDAPL_SHM_PEER_H
/*
 * The channel's state and its peers. Files, in the way of a message:
 *
 *      shm.c      the table of calls; progress
 *      tx.c       one queue per peer; messages into the ring
 *      ring.h     the ring
 *      bell.c     who has something for me: doors, bells, the rings that are watched, sleeping
 *      rx.c       messages out of the ring; the owner is told (util/inbox)
 *      push.c     bodies of middle length: with their message, in cells
 *      copy.c     long bodies: asked for, in cells, or read out of the sender's memory (single.c)
 *      read.c     the owner's reads of either, while their cells come
 *      cell.c     cells
 *
 * and below them near (which ranks of the node are reached), seg (the segment), node (the business
 * card), os (the operating system).
 *
 * A pair of ranks has a ring in each direction, each in the segment of the one that reads it, from
 * when the first message goes that way. "No room" is in one place, the peer's queue: a message
 * leaves if nothing waits before it and the ring has room.
 */
#include "idmap.h"
#include "inbox.h"
#include "iov.h"
#include "list.h"
#include "near.h"
#include "node.h"
#include "pool.h"
#include "ring.h"
#include "seg.h"
#include "channel.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MDAPL_SHM_EAGER = 16384,     /* bytes of header and body that go into the ring */
    MDAPL_SHM_PUSH_BYTES = 65536,    /* bytes of a body that is not asked for */
    MDAPL_HOT = 16,              /* rings that are watched without a bell */
    MDAPL_FLY = 16,              /* cells under way to one peer */
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

struct mdapl_speer;
struct mdapl_long;
struct pushed;

/* Something that waits for room. */
struct mdapl_shm_item {
    struct mdapl_list link;
    struct mdapl_op *op;         /* MSG, PUSH */
    uint8_t type, hdr_len;
    uint8_t hdr[MDAPL_HDR_MAX];  /* or the record */
    size_t len;                  /* MSG, PUSH: of the body */
    int n;
    struct iovec *v, own[4];     /* ... the body; v is own or malloc'ed */
    struct mdapl_long *send;     /* RTS */
};

struct mdapl_shm {
    alignas(16) uint8_t hdr[MDAPL_HDR_MAX];  /* of the message that is being taken (rx.c) */
    struct mdapl_ctx *ctx;
    uint64_t node;               /* node.h */
    uint64_t word;               /* others try whether they can read it here (copy.c) */
    struct mdapl_seg seg;
    bool barrier;                /* os.h */
    struct mdapl_near near;      /* the ranks of this node */
    struct mdapl_speer **peers;  /* by rank; NULL until the rank is reached */
    struct mdapl_speer **owner;  /* by door; NULL until it has been opened */
    struct mdapl_speer *hot[MDAPL_HOT];
    int n_hot;
    int n_doors;                 /* doors opened, mine and others' */
    struct mdapl_list work;      /* peers with something that waits */
    struct mdapl_pool items;
    struct mdapl_idmap tx_ids, rx_ids;   /* long bodies */
    uint8_t free_cell[MDAPL_CELLS];
    int n_free_cells;
    struct mdapl_list flying;    /* peers with cells under way */
    int64_t single_from;         /* bytes from which one copy is better; -1: not measured yet */
    unsigned rounds;
    uint64_t checked;            /* when the peers were last looked at, ns */
    bool draining, wired;
    bool slept;                  /* since bells were last answered (bell.c) */
    bool reads_allowed;          /* os.h: others may read my memory */
};

/* Another rank of this node. */
struct mdapl_speer {
    struct mdapl_peer base;
    struct mdapl_shm *s;
    struct mdapl_seg far;        /* its segment */
    /* out: all of it NULL and 0 until the first message */
    struct mdapl_spsc_tx tx;
    uint32_t far_door;
    bool fence;                  /* one of the two has no barrier (os.h) */
    struct mdapl_list ctl;       /* items that go first: CTS, FIN */
    struct mdapl_list queue;     /* messages, in the order of mdapl_send() */
    struct mdapl_list streaming; /* bodies with bytes still to go into cells */
    struct mdapl_list sends;     /* long bodies, until their FIN */
    struct {
        uint32_t number;         /* of the message that tells of it */
        uint8_t cell;
    } fly[MDAPL_FLY];            /* cells under way, in their order */
    unsigned fly_first, fly_n;
    struct mdapl_list flying;    /* on s->flying while there are some */
    /* in: rx.door is NULL until the peer has come */
    struct mdapl_spsc_rx rx;
    uint32_t door;
    bool hot;                    /* on s->hot */
    bool active;                 /* has sent something lately */
    struct mdapl_inbox inbox;
    struct mdapl_list bodies;    /* long bodies that the owner has not finished */
    struct mdapl_list pushed;    /* bodies of middle length that the owner has not finished */
    struct mdapl_list reading;   /* reads of either in progress (read.h) */
    struct pushed *coming;       /* the one whose cells are coming; NULL if the owner dropped it */
    size_t coming_left;          /* ... then: its bytes that will still come */
    enum { MDAPL_READ_UNTRIED, MDAPL_READ_WORKS, MDAPL_READ_FAILS } can_read;

    struct mdapl_list work;      /* on s->work */
    uint64_t token;              /* of its segment */
    pid_t pid;
    int dead;                    /* negative errno once it is lost */
    const char *broken;          /* a fault that the next round of progress raises */
    int broken_status;
    int process;                 /* by which its end is noticed (os.h) */
};

static inline struct mdapl_speer *mdapl_speer_of(struct mdapl_peer *peer)
{
    return MDAPL_OF(peer, struct mdapl_speer, base);
}

/* Makes the peer of a rank from its business card. 0, or -errno: -EHOSTUNREACH (in another system),
 * or as mdapl_seg_open(). The caller puts it on s->peers once it is reached. */
int mdapl_speer_make(struct mdapl_shm *s, int rank, const char *text, struct mdapl_speer **p);
void mdapl_speer_free(struct mdapl_speer *peer);
/* Something waits: the peer is looked at in every round of progress until nothing does. */
void mdapl_speer_wake(struct mdapl_speer *peer);
/* Does what can be done. Returns how many things moved. */
int mdapl_speer_work(struct mdapl_speer *peer);
/* Has the next round of progress raise the fault, after the messages that the peer has completed:
 * verbs and waits make no upcalls. status: negative errno; why: static text. */
void mdapl_speer_broken(struct mdapl_speer *peer, int status, const char *why);
/* There is no memory for what the peer has sent: raises the fault. Returns false. */
bool mdapl_speer_no_memory(struct mdapl_speer *peer);
/* The peer is lost: everything queued fails with status and the owner hears why. */
void mdapl_speer_fail(struct mdapl_speer *peer, int status, const char *why);
/* Is the process still there, and does it take what we send? If not the next round raises it. */
void mdapl_speer_check(struct mdapl_speer *peer);
/* How much is still to be delivered or acknowledged, either way. */
size_t mdapl_speer_unfinished(struct mdapl_speer *peer);
/* Nothing waits, and the peer has taken all that was sent. */
bool mdapl_speer_idle(struct mdapl_speer *peer);

#endif
