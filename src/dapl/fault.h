/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_FAULT_H
#define MDAPL_FAULT_H
/*
 * A fault as a value: what went wrong, in which operation, with which DAT status, on which
 * connection and adapter. It is raised where it is noticed (conn.h) and judged in recover.c; on the
 * way nothing of it is lost, so the user's line can name all of it.
 */
#include "dat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mdapl_cfg;
struct mdapl_dapl_chan;
struct mdapl_dapl_cm_cause;
struct mdapl_dapl_ia;
struct mdapl_dapl_peer;

enum mdapl_dapl_fault_kind {
    MDAPL_DAPL_FAULT_NONE,
    MDAPL_DAPL_FAULT_DTO,        /* a posted DTO completed with an error: op, dto_status */
    MDAPL_DAPL_FAULT_POST,       /* the provider refused to post a DTO: op, ret */
    MDAPL_DAPL_FAULT_ATTEMPT,    /* a connection attempt ended: cause, detail, *_ns */
    MDAPL_DAPL_FAULT_LOST,       /* an established connection ended: cause */
    MDAPL_DAPL_FAULT_FRAME,      /* a frame that the protocol does not allow: text, len */
    MDAPL_DAPL_FAULT_MEMORY,     /* this process has no memory left: text */
    MDAPL_DAPL_FAULT_BUG,        /* an error of this channel: text */
    MDAPL_DAPL_FAULT_IA,         /* the adapter failed, and it is not opened again: text */
    MDAPL_DAPL_FAULT_KINDS
};

enum mdapl_dapl_op {
    MDAPL_DAPL_OP_SEND,
    MDAPL_DAPL_OP_RECV,
    MDAPL_DAPL_OP_READ,
    MDAPL_DAPL_OP_WRITE,
    MDAPL_DAPL_OP_RING_WRITE,    /* of a frame into the peer's ring */
    MDAPL_DAPL_OP_PROBE,         /* an RDMA write that tests the path */
    MDAPL_DAPL_OPS
};

struct mdapl_dapl_fault {
    enum mdapl_dapl_fault_kind kind;
    /* where: set as the fault is raised */
    const struct mdapl_dapl_ia *ia;
    int stream;                  /* -1: of no one connection */
    uint32_t epoch;              /* number of the connection on that stream */
    /* what: the kind says which of these count */
    enum mdapl_dapl_op op;
    DAT_DTO_COMPLETION_STATUS dto_status;
    DAT_RETURN ret;
    const struct mdapl_dapl_cm_cause *cause;
    uint64_t waited_ns;          /* since connecting to the peer began */
    uint64_t refused_ns;         /* since the first of several definite refusals in a row */
    uint64_t outage_ns;          /* since the peer's last connection ended; 0: it has one, or never
                                  * had one */
    bool recovers;               /* a connection of the peer that ends can be replaced */
    bool spare;                  /* this one is, and another one of the peer's is up */
    uint32_t bugs;               /* faults of the peer so far that no network causes */
    const char *text;            /* static: what the memory was for, what is wrong with the frame */
    const char *frame;           /* the name of its type */
    size_t len;                  /* bytes of the frame */
    char detail[160];            /* more about the cause, or "" */
};

/* The same without numbers, of any kind: a static text. */
const char *mdapl_dapl_fault_name(const struct mdapl_dapl_fault *f);
/* What has failed, of the kinds DTO, POST and LOST, as part of a sentence: "a send failed
 * (DAT_DTO_ERR_TRANSPORT)". Returns buf, which holds len bytes. */
const char *mdapl_dapl_fault_text(const struct mdapl_dapl_fault *f, char *buf, size_t len);
/* Does no network cause this? */
bool mdapl_dapl_fault_is_bug(const struct mdapl_dapl_fault *f);
/* The advice of a fault of kind BUG. */
extern const char mdapl_dapl_bug_advice[];
/* What the user can do about a fault of these kinds: sentences without the last full stop. */
const char *mdapl_dapl_fault_advice(const struct mdapl_dapl_fault *f);

/*
 * The verdict on a fault (recover.c). A connection that ends is replaced, and an attempt at one is
 * repeated, until the time that the knobs allow is over. An error that no network causes (a length,
 * a protection) ends the peer when it happens again. Every other fault is the loss of the peer.
 */
enum mdapl_dapl_verdict {
    MDAPL_DAPL_RETRY,            /* connect again after the backoff that cm.c has begun */
    MDAPL_DAPL_REPLACE,          /* the connection has ended: cm.c makes another one */
    MDAPL_DAPL_FAIL_PEER,        /* the peer is lost: all its operations fail */
};

/* The verdict, from the fault and the knobs alone. */
enum mdapl_dapl_verdict mdapl_dapl_judge(const struct mdapl_dapl_fault *f,
                                         const struct mdapl_cfg *cfg);
/* Judges what has been raised on the streams of a peer and carries it out: operations end with an
 * error and the owner gets the line. Only inside progress. Returns how many faults there were. */
int mdapl_dapl_recover(struct mdapl_dapl_peer *peer);
/* Of several faults of a stream that wait for their verdict the first counts, unless a later one
 * ends the peer in any case: does this one? */
bool mdapl_dapl_fault_is_final(const struct mdapl_dapl_fault *f);
/* mdapl_dapl_recover() for all peers; for a thread that connects without progress
 * (wire_thread.c). */
void mdapl_dapl_recover_all(struct mdapl_dapl_chan *d);

#endif
