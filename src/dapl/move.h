/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_MOVE_H
#define MDAPL_MOVE_H
/*
 * Many bytes by RDMA, in one direction: a read into local pieces (rget) or a write out of them
 * (rput). It is cut at MPIR_CVAR_DAPL_RNDV_SEGMENT (finer, when it is striped), at the pieces of
 * both ends and at what the adapter takes; the transfers are posted on the streams that stream.c
 * picks as they have room, so that several are under way, and what finds none waits on the peer.
 */
#include "body.h"
#include "ia.h"
#include "ledger.h"
#include "list.h"
#include "wire.h"

#include <stdint.h>

struct mdapl_dapl;
struct mdapl_dpeer;

struct mdapl_move {
    /* what the caller says */
    struct mdapl_dpeer *peer;
    enum mdapl_dto_kind kind;        /* MDAPL_DTO_READ or MDAPL_DTO_WRITE */
    const struct mdapl_body *here;   /* registered; both stay until it is over */
    const struct mdapl_segs *there;
    uint64_t here_at, there_at;      /* the first byte, of each */
    uint64_t body_at, len;           /* the bytes of the body that it moves */
    struct mdapl_dapl_ledger *done;  /* of the body: has them when they are moved */
    /* A piece of them has been posted on this stream; NULL: of no interest. */
    void (*posted)(struct mdapl_move *m, int stream, uint64_t off, uint64_t len);
    /* The last transfer has been posted: what follows on the same streams comes after it. */
    void (*all_posted)(struct mdapl_move *m);
    /* Nothing is under way any more, and nothing will be: all is done, or it was stopped. */
    void (*over)(struct mdapl_move *m);

    struct mdapl_list link;          /* on peer->moving while there is something to post */
    int stream;                      /* which carries it; -1: all of them, in stripes */
    uint64_t issued;                 /* bytes posted */
    uint32_t under_way;              /* transfers */
    bool stopped;
};

void mdapl_move_init(struct mdapl_dapl *d);
void mdapl_move_fini(struct mdapl_dapl *d);

/* Begins it: posts what has room. */
void mdapl_move_start(struct mdapl_move *m);
/* Posts what waited for room. Returns how many transfers. */
int mdapl_move_flush(struct mdapl_dpeer *peer);
/* No more of it is posted. True: over() will still be called, when the last transfer is back. */
bool mdapl_move_stop(struct mdapl_move *m);

#endif
