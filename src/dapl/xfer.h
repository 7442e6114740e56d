/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_DAPL_XFER_H
#define MDAPL_DAPL_XFER_H
/*
 * One long RDMA transfer, in one direction: a read into local pieces (rget) or a write out of them
 * (rput). It is cut into DTOs at MPIR_CVAR_DAPL_RNDV_SEGMENT (smaller if it is striped), at the
 * boundaries of the pieces of both ends and at the adapter's limit. Several DTOs are in flight, on
 * streams that stream.c picks; when no stream has a free slot the rest waits on peer->xfers.
 */
#include "ia.h"
#include "list.h"

#include <stdint.h>

struct mdapl_dapl_body;
struct mdapl_dapl_chan;
struct mdapl_dapl_ledger;
struct mdapl_dapl_peer;
struct mdapl_dapl_segs;

struct mdapl_dapl_xfer {
    /* what the caller says */
    struct mdapl_dapl_peer *peer;
    enum mdapl_dapl_dto_kind kind;   /* MDAPL_DTO_READ or MDAPL_DTO_WRITE */
    const struct mdapl_dapl_body *local; /* registered; both stay until it is over */
    const struct mdapl_dapl_segs *remote;
    uint64_t local_off, remote_off;  /* the first byte, of each */
    uint64_t body_at, len;           /* the bytes of the body */
    struct mdapl_dapl_ledger *done;  /* of the body: the bytes whose DTOs are complete */
    /* A piece of them has been posted on this stream. May be NULL. */
    void (*posted)(struct mdapl_dapl_xfer *m, int stream, uint64_t off, uint64_t len);
    /* The last DTO has been posted: what is posted next on the same streams completes after it. */
    void (*all_posted)(struct mdapl_dapl_xfer *m);
    /* No DTO is in flight and none will be posted. Unless mdapl_dapl_xfer_stop() was called, every
     * DTO has succeeded. */
    void (*over)(struct mdapl_dapl_xfer *m);

    struct mdapl_list link;          /* on peer->xfers while there is something to post */
    int stream;                      /* which carries it; -1: all streams, in stripes */
    uint64_t issued;                 /* bytes posted */
    uint32_t under_way;              /* DTOs in flight */
    bool stopped;
};

void mdapl_dapl_xfer_init(struct mdapl_dapl_chan *d);
void mdapl_dapl_xfer_fini(struct mdapl_dapl_chan *d);

/* Starts it: posts as many DTOs as find a slot. *m stays the caller's, until over(). */
void mdapl_dapl_xfer_start(struct mdapl_dapl_xfer *m);
/* Posts DTOs that waited for a slot. Returns how many. */
int mdapl_dapl_xfer_flush(struct mdapl_dapl_peer *peer);
/* Posts no more of it. True: over() is called later, when the last DTO in flight has completed. */
bool mdapl_dapl_xfer_stop(struct mdapl_dapl_xfer *m);

#endif
