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
 * A request that has lost against the peer's is rejected there: its EP is not disconnected, and the
 * answer is its end. libdaplofa's thread may still resolve the address of such a request, and its
 * dat_ep_free() takes the identifier away from that thread.
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

struct dat_path_event_data;
struct mdapl_dapl_chan;
struct mdapl_dapl_path;
struct mdapl_dapl_peer;
struct mdapl_dapl_stream;

enum { MDAPL_DAPL_END_MS = 1000 };

/* What probe.c knows of a connection. */
struct mdapl_dapl_probe {
    uint64_t addr;               /* the peer's word */
    uint32_t key;
    bool promised, given;        /* the peer names it on this connection; has done so */
    bool posted;
    struct mdapl_dapl_dto dto;
    uint64_t received, completed;    /* receives and ring frames; requests: at the last look */
    uint64_t completed_at;       /* the last look at which the latter had grown, ns */
    uint32_t quiet;              /* looks in a row in which neither has grown */
    uint32_t pending;            /* of them, looks in which something was awaited */
    uint32_t others;             /* of those, looks in which another connection has moved */
    uint32_t pause;              /* looks between two probes: grows while nothing but them moves */
    uint32_t pinged;             /* streams that carry a ping made since it is suspect: a set */
    uint32_t answers;            /* of them, since the last thing moved */
    uint32_t grace;              /* looks since the last answer */
    bool reachable;              /* one of them came over the rail of this connection */
    bool moved;                  /* it uses its other path since, or has been asked to */
};

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
    struct mdapl_dapl_probe probe;       /* whether its path carries anything */
    int rank, stream;            /* names, which outlive st */
    uint32_t epoch;              /* number of the request, of the rank that made it */
    bool caller;                 /* this rank made it */
    bool loses;                  /* caller: its request has lost against the peer's */
    uint16_t peer_generation;    /* of the rail at its other end, from the hello (wire.h) */
    bool first_arrived;          /* acceptor: the caller's first frame has arrived */
    struct mdapl_dapl_path *path; /* its alternate path; NULL: it can have none */
    struct mdapl_list reserved;  /* frame buffers for its receives, until they are posted */
};

static inline struct mdapl_dapl_conn *mdapl_dapl_conn_of(struct mdapl_dapl_ep *ep)
{
    return MDAPL_OF(ep, struct mdapl_dapl_conn, ep);
}

/* Sets aside the least receives of the stream's next connection, or does not any more. Frames that
 * wait for that connection are retained, and could take all buffers that it needs. */
void mdapl_dapl_conn_promise(struct mdapl_dapl_stream *st, bool next);
/* Makes the stream's next connection: an unconnected EP with room for all of its window, and the
 * frame buffers of its first receives, which mdapl_dapl_rx_arm() posts. receives: false if it is
 * not to be established, and needs none. 0, or -errno with the line in mdapl_ctx_err(); then there
 * is no connection and *conn_p is NULL. */
int mdapl_dapl_conn_open(struct mdapl_dapl_stream *st, uint32_t epoch, bool receives,
                         struct mdapl_dapl_conn **conn_p);
/* Disconnects it; from here on it delivers nothing and raises no fault, and it drains. waiter: see
 * above, or NULL. */
void mdapl_dapl_conn_close(struct mdapl_dapl_conn *conn, struct mdapl_dapl_stream *waiter);
/* Is the stream's connection the one with this number, and has it not ended here? */
bool mdapl_dapl_conn_is_open(const struct mdapl_dapl_stream *st, uint32_t epoch);
/* Can nothing that the peer has posted on the stream's connection with this number be placed any
 * more: has it ended and drained? */
bool mdapl_dapl_conn_is_over(const struct mdapl_dapl_stream *st, uint32_t epoch);
/* Takes the next closed connection that has drained, or is abandoned, off d->closed; NULL: there is
 * none. The caller frees it. While the channel closes, only DTOs are waited for, and the answers to
 * requests that have lost. */
struct mdapl_dapl_conn *mdapl_dapl_conn_drained(struct mdapl_dapl_chan *d);
/* Frees its EP and itself: it has drained, or its adapter is about to be closed. */
void mdapl_dapl_conn_free(struct mdapl_dapl_conn *conn);

/* -- a path that carries nothing: probe.c ------------------------------------------------------ */

/*
 * Silent loss: a path that carries nothing, although no provider reports it. While a peer has
 * something unfinished the channel looks at its connections a few times in each
 * MPIR_CVAR_DAPL_DEAD_MS. One on which nothing has arrived or completed since the last look gets a
 * probe, a small RDMA write into a word that its peer has named (PROTOCOL, section 1): an adapter
 * completes it while the peer's process computes. Nothing for DEAD_MS: the path is suspect.
 *
 * That alone is no verdict. A stopped process on the software provider, and a host whose cores are
 * all busy, complete nothing either, and a connection that is given up needs its peer's progress
 * to be replaced. So a suspect connection ends only when the peer's process has made progress twice
 * meanwhile, since in a round of progress it serves every adapter: it has answered two pings,
 * one after the other, and some looks after the second one still nothing has moved. A ping is a
 * connection request that is rejected at once; each rail of the peer carries one. Its answer says,
 * too, how long ago requests of the peer have completed on each connection: that is a sign of life
 * as well, of a path on which the probe waits behind long bodies that the peer reads. There has to
 * be a way out, too: an answer over the rail itself, or another connection that moves. Each such
 * end doubles the time of the stream's next one, so that a path which is only slow gets more than
 * it lost. A connection that has an alternate path is asked to move there first, and ends only
 * after a second such verdict.
 *
 * Looks are counted, not time: a rank that has made no progress for long blames nobody for it. The
 * hot path has no part in it: what has arrived and completed follows from the counts of the EP.
 */

/* Whether there are probes; the limits of the rails are known. */
void mdapl_dapl_probes_init(struct mdapl_dapl_chan *d);
/* Frees the words; no connection is left. */
void mdapl_dapl_probes_fini(struct mdapl_dapl_chan *d);
/* Does this rank name a word on the connections of a rail? */
bool mdapl_dapl_probe_has_word(struct mdapl_dapl_chan *d, int rail);
/* Frames may be transmitted on the stream's new connection: transmits the one that names a word for
 * the peer's probes. */
void mdapl_dapl_probe_offer(struct mdapl_dapl_stream *st);
/* The connection uses its other path now, at whichever end's request, or has been asked to: that
 * nothing has moved on the former one is no sign any more. */
void mdapl_dapl_probe_moved(struct mdapl_dapl_conn *conn);
/* The connection is not up any more: the frame is not sent, and a ping in flight is given up. */
void mdapl_dapl_probe_end(struct mdapl_dapl_stream *st);
/* What the answer to a ping of the peer says: two bits for each stream, how long ago a request of
 * this rank has completed on its connection (PROTOCOL, section 1). */
uint32_t mdapl_dapl_probe_answer(const struct mdapl_dapl_peer *peer);
/* An event of the stream's ping, with its private data: it is over. */
void mdapl_dapl_probe_pinged(struct mdapl_dapl_stream *st, DAT_EVENT_NUMBER number,
                             const void *priv, size_t len);
/* Looks at all connections, at a time that is due (d->probes). Only inside progress. */
void mdapl_dapl_probe_look(struct mdapl_dapl_chan *d, uint64_t now);

/* -- faults ------------------------------------------------------------------------------------ */

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
/* The peer has lost the stream's connection with this number, which may not be known here yet. */
void mdapl_dapl_lost_by_peer(struct mdapl_dapl_stream *st, uint32_t epoch);
/* There is no memory for what the text says ("a message that waits"; static). */
void mdapl_dapl_out_of_memory(struct mdapl_dapl_peer *peer, const char *text);
/* This channel has done what its own state machines do not allow; text says what (static). */
void mdapl_dapl_impossible(struct mdapl_dapl_peer *peer, const char *text);
/* The fault *f of a stream, or with f->stream < 0 of its peer; f->ia and f->epoch are filled in. */
void mdapl_dapl_raise(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f);

/* -- alternate paths: path.c ------------------------------------------------------------------ */

/*
 * On providers that have the extension dat_path_extensions.h (paper apm-over-infiniband) a
 * connection that has been established gets a second path, over another port of its adapter, and
 * moves there without an error when the first one fails. One that ends all the same is replaced as
 * ever (recover.c).
 *
 *   specification  path_spec.c, from the knob PATHS
 *   loading        path.c: once a connection is up, one after the other, from progress, in 1 % of
 *                  the time at most
 *   migration      by the provider on a fault; by path.c, on request, to leave a path that carries
 *                  nothing, to move a connection back, or to balance the ports. The last two are
 *                  asked for by the end that made the connection's request
 *
 * The provider's events only say which connection to query, since some may be lost or late, and
 * name an EP that has been freed: what a query returns is what counts. Each connection is also
 * queried now and then.
 */

/* Reads the knobs, when the adapters of the channel are open. 0, or -EINVAL or -ENOMEM with the one
 * clear line in mdapl_ctx_err(). */
int mdapl_dapl_paths_open(struct mdapl_dapl_chan *d);
/* Its connections have been closed. */
void mdapl_dapl_paths_close(struct mdapl_dapl_chan *d);
/* Has the knob PATH_BALANCE changed? To be called now and then, if the channel has paths. */
void mdapl_dapl_paths_look(struct mdapl_dapl_chan *d);
/* The connection has been established: it is to have an alternate path. */
void mdapl_dapl_path_up(struct mdapl_dapl_conn *conn);
/* The connection ends: counts what has happened to it, and forgets its paths. */
void mdapl_dapl_path_down(struct mdapl_dapl_conn *conn);
/* The connection's path carries nothing: asks for a migration. False: it has no other path. */
bool mdapl_dapl_path_leave(struct mdapl_dapl_conn *conn);
/* An event of the extension; ep: the endpoint that it names, or NULL. */
void mdapl_dapl_path_event(void *arg, struct mdapl_dapl_ia *ia, struct mdapl_dapl_ep *ep,
                           DAT_EVENT_NUMBER number, const struct dat_path_event_data *data);

#endif
