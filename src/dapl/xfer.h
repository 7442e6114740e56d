/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_DAPL_XFER_H
#define MDAPL_DAPL_XFER_H
/*
 * One long RDMA transfer, in one direction: a read into local pieces (rget) or a write out of them
 * (rput). It is cut into DTOs at MPIR_CVAR_DAPL_RNDV_SEGMENT (smaller if it is striped), at the
 * boundaries of the pieces of both ends and at the adapter's limit. Several DTOs are in flight, on
 * streams that stream.c picks; when no stream has a free slot, or none is up, the rest waits on
 * peer->xfers.
 *
 * A DTO that fails or is flushed has transferred nothing: its range is put back and posted again,
 * on any stream that is up. The transfer is over when no DTO is in flight. Until then an adapter
 * may still place the data of a read (hazard 2: the response of an EP that has broken arrives
 * late), and the memory stays registered and the owner's operation open.
 */
#include "ia.h"
#include "ledger.h"
#include "list.h"

#include <stdint.h>

struct mdapl_dapl_body;
struct mdapl_dapl_chan;
struct mdapl_dapl_conn;
struct mdapl_dapl_peer;
struct mdapl_dapl_segs;
struct mdapl_dapl_stream;

struct mdapl_dapl_xfer {
    /* what the caller says */
    struct mdapl_dapl_peer *peer;
    enum mdapl_dapl_dto_kind kind;   /* MDAPL_DTO_READ or MDAPL_DTO_WRITE */
    const struct mdapl_dapl_body *local; /* registered; both stay until it is over */
    const struct mdapl_dapl_segs *remote;
    uint64_t local_off, remote_off;  /* the first byte, of each */
    uint64_t body_at, len;           /* the bytes of the body */
    bool once;                       /* the first DTO that fails stops it */
    uint32_t window;                 /* DTOs in flight at most, one more for each that succeeds; 0:
                                      * no limit */
    /* A piece of them has been posted on the connection of this stream. May be NULL. */
    void (*posted)(struct mdapl_dapl_xfer *m, const struct mdapl_dapl_stream *st, uint64_t off,
                   uint64_t len);
    /* A piece has failed on this connection. May be NULL. */
    void (*failed)(struct mdapl_dapl_xfer *m, const struct mdapl_dapl_conn *conn);
    /* Streams are up, and a key of its memory is void on each: nothing more of it can be posted.
     * It may be stopped here. May be NULL: then it waits. */
    void (*stranded)(struct mdapl_dapl_xfer *m);
    /* The last DTO has been posted: what is posted next on the same streams completes after it. May
     * be NULL. */
    void (*all_posted)(struct mdapl_dapl_xfer *m);
    /* No DTO is in flight and none will be posted. Unless it has been stopped, all bytes have been
     * transferred. */
    void (*over)(struct mdapl_dapl_xfer *m);

    struct mdapl_list link;          /* on peer->xfers while there is something to post */
    int stream;                      /* which carries it; -1: all streams, in stripes */
    struct mdapl_dapl_ledger issued; /* bytes of the body in flight or transferred */
    uint32_t under_way;              /* DTOs in flight */
    bool stopped;                    /* nothing more of it is posted */
    uint64_t end;                    /* over: the first byte that has not been transferred */
};

void mdapl_dapl_xfer_init(struct mdapl_dapl_chan *d);
void mdapl_dapl_xfer_fini(struct mdapl_dapl_chan *d);

/* Starts it: posts as many DTOs as find a slot. *m stays the caller's, until over(). */
void mdapl_dapl_xfer_start(struct mdapl_dapl_xfer *m);
/* Posts DTOs that waited for a slot. Returns how many. */
int mdapl_dapl_xfer_flush(struct mdapl_dapl_peer *peer);
/* Posts no more of it. True: over() is called later, when the last DTO in flight has completed.
 * False: it is over, and over() is not called. */
bool mdapl_dapl_xfer_stop(struct mdapl_dapl_xfer *m);
/* Frees what a transfer has allocated whose DTOs never complete; only when the channel closes. */
void mdapl_dapl_xfer_free(struct mdapl_dapl_xfer *m);

#endif
