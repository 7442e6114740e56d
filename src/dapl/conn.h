/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CONN_H
#define MDAPL_CONN_H
/*
 * One incarnation of a stream: an EP, the number (epoch) of the connection request that it belongs
 * to, the windows of its sr lane, the slots of its ring lane at both ends, and the count of its
 * DTOs. cm.c makes one for each attempt and brings it up.
 *
 * A caller's connection has no receives until it is established; then its first frame permits the
 * acceptor to transmit (PROTOCOL, section 1). So an attempt that is given up owns nothing, because
 * some providers lose the receives of its EP, and the caller transmits first, as MPA has it (RFC
 * 5044, section 7.1).
 *
 * A connection that ended, or was given up, is never used again: it is disconnected, and it drains
 * until every DTO that was posted has completed, because until then an adapter may still write into
 * its receives and its RDMA buffers, and until the provider has reported its end, because until
 * then the peer's adapter may still write into memory of this rank. Then its EP is freed. A stream
 * that waits for that (state DRAINING) is its waiter; an attempt that was given up has none, and
 * the stream goes on at once.
 *
 *      open -> [up] -> closed, on d->closed -> drained -> freed
 *
 * A provider that does not report the end has MDAPL_DAPL_END_MS after the last DTO has completed;
 * then the connection is abandoned: its EP is freed, which ends it in any case. The wait for DTOs
 * has no limit, because their memory must not be used for anything else.
 */
#include "ep.h"
#include "fault.h"
#include "list.h"
#include "ring.h"
#include "timer.h"
#include "window.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_dapl_chan;
struct mdapl_dapl_peer;
struct mdapl_dapl_stream;

enum { MDAPL_DAPL_END_MS = 1000 };

struct mdapl_dapl_conn {
    struct mdapl_dapl_ep ep;     /* events and DTOs name it: mdapl_dapl_conn_of() */
    struct mdapl_dapl_stream *st; /* what it delivers to; NULL once it is closed */
    struct mdapl_dapl_stream *waiter; /* closed: the stream that waits for its drain, or NULL */
    struct mdapl_list link;      /* closed: on d->closed */
    struct mdapl_timer end_timer; /* closed: ends the wait for the event, and a sleep */
    bool end_timed;              /* it has been set */
    struct mdapl_txwin txwin;    /* of its sr lane */
    struct mdapl_rxwin rxwin;
    struct mdapl_dapl_ring_in ring_in;   /* its ring lane */
    struct mdapl_dapl_ring_out ring_out;
    int rank, stream;            /* names, which outlive st */
    uint32_t epoch;              /* number of the request, of the rank that made it */
    bool caller;                 /* this rank made it */
    uint16_t peer_generation;    /* of the rail at its other end, from the hello (wire.h) */
    bool first_arrived;          /* acceptor: the caller's first frame has arrived */
    struct mdapl_list reserved;  /* frame buffers for its receives, until they are posted */
};

static inline struct mdapl_dapl_conn *mdapl_dapl_conn_of(struct mdapl_dapl_ep *ep)
{
    return MDAPL_OF(ep, struct mdapl_dapl_conn, ep);
}

/* Makes the stream's next connection: an unconnected EP, and the frame buffers for its receives,
 * which mdapl_dapl_rx_arm() posts. 0, or -errno with the line in mdapl_ctx_err(); then there is no
 * connection and *conn_p is NULL. */
int mdapl_dapl_conn_open(struct mdapl_dapl_stream *st, uint32_t epoch,
                         struct mdapl_dapl_conn **conn_p);
/* Disconnects it; from here on it delivers nothing and raises no fault, and it drains. waiter: see
 * above, or NULL. */
void mdapl_dapl_conn_close(struct mdapl_dapl_conn *conn, struct mdapl_dapl_stream *waiter);
/* Takes the next closed connection that has drained, or is abandoned, off d->closed; NULL: there is
 * none. The caller frees it. While the channel closes, only DTOs are waited for. */
struct mdapl_dapl_conn *mdapl_dapl_conn_drained(struct mdapl_dapl_chan *d);
/* Frees its EP and itself: it has drained, or its adapter is about to be closed. */
void mdapl_dapl_conn_free(struct mdapl_dapl_conn *conn);

/*
 * Raising a fault. recover.c judges it in the same round of progress, and never inside the call, as
 * verbs make no upcalls. Of several faults of one stream before that the first counts, but for one
 * that ends the peer in any case. No more frames are transmitted on the stream's connection.
 */

/* A DTO has completed with this status, an error; a flushed DTO is no fault of its own, because
 * the end of its connection is reported besides. Ignored when the connection is closed. */
void mdapl_dapl_dto_failed(struct mdapl_dapl_dto *dto, enum mdapl_dapl_op op,
                           DAT_DTO_COMPLETION_STATUS status);
/* The provider has just refused to post this on the connection. */
void mdapl_dapl_post_refused(struct mdapl_dapl_conn *conn, enum mdapl_dapl_op op);
/* There is no memory for what the text says ("a message that waits"; static). */
void mdapl_dapl_out_of_memory(struct mdapl_dapl_peer *peer, const char *text);
/* This channel has done what its own state machines do not allow; text says what (static). */
void mdapl_dapl_impossible(struct mdapl_dapl_peer *peer, const char *text);
/* The fault *f of a stream, or with f->stream < 0 of its peer; f->ia and f->epoch are filled in. */
void mdapl_dapl_raise(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f);

#endif
