/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_PEER_H
#define MDAPL_PEER_H
/*
 * The channel's state and its peers. A peer has what outlives a connection: psns, retained frames,
 * the reorder queue, rendezvous; conn.h has what does not. A message is sent through
 *
 *      tx.c (one queue per peer, the sr lane) -> ring.c (the ring lane) -> ep.c -> DAT
 *
 * and is received through
 *
 *      memory -> ring.c, or DAT -> evd.c -> ep.c
 *          -> rx.c (sequence, acknowledgement, announcement) -> the owner
 *
 * rndv_tx.c and rndv_rx.c carry long bodies, with xfer.c for their RDMA, and rma.c puts and gets;
 * cm.c makes connections, wireup.c decides when; recover.c judges what fails. A frame is
 * transmitted when pick_lane() of tx.c finds its stream up, the window of a lane open and a request
 * slot free; until then it is an item on the peer's queue. RDMA that finds no slot waits on
 * peer->xfers.
 */
#include "channel.h"
#include "clock.h"
#include "cm_fsm.h"
#include "fault.h"
#include "idmap.h"
#include "inbox.h"
#include "list.h"
#include "part.h"
#include "rails.h"
#include "pool.h"
#include "timer.h"
#include "wire.h"

#include <stdbool.h>
#include <stdint.h>

struct mdapl_dapl_block;
struct mdapl_dapl_conn;
struct mdapl_dapl_events;
struct mdapl_dapl_ia;
struct mdapl_dapl_paths;
struct mdapl_dapl_regcache;
struct mdapl_dapl_vbufs;
struct mdapl_stats;

/* Slots beyond the window that only acknowledgements may use (PROTOCOL, "No deadlock"). */
enum { MDAPL_SR_RESERVE = 2 };

/* Probes of paths that may carry nothing (conn.h): what the connections have in common. */
struct mdapl_dapl_probes {
    bool on;                     /* by the knobs and the adapters' limits */
    struct mdapl_dapl_block *words;  /* one that peers write, one that probes are read from */
    uint64_t at;                 /* when the next look is due, ns */
    int watched;                 /* peers with something unfinished, at the last one */
    int pings;                   /* that are in flight */
};

/* Pings of one stream: connection requests that ask only for an answer. */
struct mdapl_dapl_pings {
    struct mdapl_dapl_conn *conn;    /* the request that is in flight, or NULL */
    uint64_t at;                 /* when it was made, ns */
    uint64_t over;               /* when it is not waited for any longer, ns */
    uint64_t next;               /* when another one may be made, ns */
    uint32_t n;                  /* in a row without an answer */
    uint32_t verdicts;           /* connections that have ended after one, lately */
};

/* Connection requests of all streams (cm_time.h). */
struct mdapl_dapl_cm_requests {
    struct mdapl_list waiting;   /* streams that are to make one, the next one first */
    struct mdapl_list counted;   /* those whose request counts as in flight, the oldest first */
    int64_t n;                   /* how many these are */
};

/* The channel's state: one per context. */
struct mdapl_dapl_chan {
    struct mdapl_ctx *ctx;
    struct mdapl_stats *stats;   /* of ctx: at hand for what is counted with each frame, */
    struct mdapl_log *log;       /* and perhaps printed */
    struct mdapl_dapl_dat dat;
    struct mdapl_dapl_rails rails;
    int streams_per_rail;        /* to a peer */
    uint32_t incarnation;        /* that of the last peer made; random before the first */
    uint32_t sr_window, ep_requests;   /* knobs, cut to the provider's limits */
    bool can_read;               /* all rails have RDMA reads */
    bool retain;                 /* knob: frames are kept until they are acknowledged */
    size_t frame_room;           /* bytes of envelope and body that our frame buffers hold */
    size_t eager_max;            /* bytes of them in messages that are sent without a rendezvous */

    struct mdapl_dapl_paths *paths;  /* alternate paths; NULL: no adapter has them */
    struct mdapl_dapl_regcache *regs; /* of the user's memory */
    struct mdapl_dapl_vbufs *vbufs;  /* one for each rail */
    struct mdapl_pool items, transfers, reposts;
    struct mdapl_idmap tx_ids, rx_ids;   /* rendezvous, by the ids that the wire knows */

    struct mdapl_list rings;     /* connections whose peers write into slots of ours */
    struct mdapl_list ring_chunks, ring_free;
    uint16_t ring_tag;           /* of the last slots that were offered */
    uint32_t ring_slots, ring_slot_bytes;    /* of each */
    int n_rings, rings_left;     /* that are polled; that may still be offered (ring.c) */
    struct mdapl_list work;      /* peers that may have something to do */
    struct mdapl_list ack_pending; /* peers that wait for an acknowledgement of ours */
    struct mdapl_list vbuf_waiters; /* peers that found no frame buffer */
    struct mdapl_list closed;    /* connections that drain (conn.h) */
    struct mdapl_timers timers;
    struct mdapl_dapl_probes probes;
    struct mdapl_dapl_cm_requests requests;
    struct mdapl_dapl_events *events;    /* the last ones of all peers */
    uint64_t now;                /* ns, some rounds old at most (dapl.c) */
    uint64_t attentive_until;    /* ns: until then each round polls all queues */

    struct mdapl_list exposed;   /* memory that peers may read and write (rma.c) */
    struct mdapl_list asked;     /* streams whose peers wait for a drain (rma.c) */

    int n_connected;             /* peers all of whose connections are up */
    int n_connecting;            /* streams */
    int failed;                  /* the first peer's negative errno, for the wiring */
    int wire_step;               /* ring wiring: the last distance that was requested */
    int n_wanted;                /* ring wiring: peers that this channel reaches */
    uint64_t wire_start;         /* ns; 0: the wiring has not begun */
    bool wiring;                 /* it has, and is not over */
    bool called_late;            /* requests were sent to the ranks whose requests are late */
    bool used;                   /* a connection has been requested, here or by a peer */
    uint64_t looked;             /* time of the last look(), ns */
    bool draining, closing;
};

/* Connecting of one stream: cm.c changes it. The address is that of the business card. */
struct mdapl_dapl_cm {
    enum mdapl_dapl_cm_state state;
    struct mdapl_timer timer;    /* ends a pause, a request, an acceptance */
    struct mdapl_list request;   /* on one of d->requests */
    bool counted;                /* on which: its request is in flight */
    bool wanted;                 /* this rank repeats requests until it is connected */
    bool overdue;                /* the timer has fired, but an event is in the queue */
    bool refused;                /* the last attempt ended with a definite no */
    uint64_t since;              /* when connecting began, or the last connection ended, ns */
    uint64_t called;             /* when the last request was sent, ns */
    uint64_t refused_since;      /* of the first of several definite refusals in a row, ns */
    uint64_t warn_at;            /* when the user gets the next line about the wait, ns */
    uint32_t unanswered;         /* requests in a row that got no answer */
    uint32_t requests;           /* since connecting began */
    uint32_t epoch;              /* the highest number of a request or a connection (cm_hello.h) */
    uint32_t peer_epoch;         /* requests of the peer's up to this number are stale */
    uint32_t connections;        /* that have been up */
    uint64_t up_at, up_mark;     /* of the last of them: when, ns, and peer_progress() then */
    DAT_CR_HANDLE held;          /* a request of the peer, to be answered after the drain */
    struct mdapl_dapl_hello held_hello;
    uint8_t addr[28], addr_len;  /* where the peer listens; no bytes: not known (a visitor) */
    uint64_t qual;
};

/*
 * The place of one connection to a peer, and of those that follow it. The lowest one that is up
 * carries the frames; bodies that travel by RDMA use all (paper mpi-over-udapl, 6: several
 * endpoints between two ranks). Stream i is of rail i modulo the number of rails that both ends
 * have.
 */
struct mdapl_dapl_stream {
    struct mdapl_dapl_peer *peer;
    int index;
    struct mdapl_dapl_ia *ia;
    struct mdapl_dapl_conn *up;  /* the connection on which frames may be sent, or NULL */
    struct mdapl_dapl_conn *conn;    /* it, an attempt at one, or the last one as it drains */
    struct mdapl_dapl_cm cm;
    struct mdapl_dapl_pings pings;   /* of a connection that is suspect */
    struct mdapl_dapl_fault fault;   /* raised, and not judged yet (recover.c) */
    struct mdapl_dapl_fault ended_by;    /* what ended its last connection */
    uint32_t rx_window;          /* slots of its last connection's window, of the next one's too */
    bool promised;               /* the next one's least receives: in ia->vbufs->n_promised */

    /* puts: numbers of connections (rma.c) */
    uint32_t put_failed;         /* of the last one on which one has failed; 0: none */
    uint32_t ended_sent;         /* of the last one that the peer has been asked about */
    uint32_t drained_there;      /* of the last one that it has answered about */
    uint32_t asked;              /* of one that the peer asks about */
    struct mdapl_list asking;    /* on d->asked until that one has drained */
};

/* Another rank. */
struct mdapl_dapl_peer {
    struct mdapl_peer base;
    struct mdapl_dapl_chan *d;
    char host[64];
    struct mdapl_dapl_stream *stream;
    struct mdapl_dapl_stream *main;  /* of them: mdapl_dapl_peer_main() */
    int n_streams, n_rails, n_up;
    bool was_up;                 /* it has had a connection */
    bool recovers;               /* both ends replace connections that break */
    uint32_t incarnation;        /* different from those of the peers that were here before */
    uint32_t met;                /* that of the peer at the other end; 0: not known yet */
    uint64_t down_since;         /* begin of the last time without a connection, ns */
    uint32_t bugs;               /* faults so far that no network causes */
    unsigned next_stream;        /* for the next long body */
    struct mdapl_list work;      /* on d->work while there may be something to do */
    struct mdapl_list vbuf_waiters; /* on d->vbuf_waiters: any peer may free the next buffer */
    size_t frame_room;           /* bytes of envelope and body that a frame to it carries */
    bool retains;                /* it keeps its frames until they are acknowledged */
    int dead;                    /* negative errno once it is lost */
    bool faulty;                 /* a fault of a stream waits to be judged, in the next work */

    /* out */
    uint64_t last_tx;            /* when a frame was transmitted to it last, ns */
    struct mdapl_list ctl;       /* items that go first: those of bodies, and RING */
    struct mdapl_list queue;     /* messages, in the order of mdapl_send() */
    uint64_t tx_next;            /* psn of the next frame */
    uint64_t tx_acked;           /* the peer has everything below */
    bool tx_asks;                /* the next frame asks for an acknowledgement */
    uint64_t tx_asked;           /* no other one does until the peer has everything below */
    struct mdapl_list retained;  /* vbufs of the frames between the two, oldest first */
    bool replaying;              /* an item on ctl sends those again that are lost (replay.c) */
    uint64_t retained_bytes;

    /* in */
    uint64_t rx_next;            /* psn expected next; everything below has been taken */
    uint64_t rx_acked;           /* the last ack that was transmitted */
    bool rx_asked;               /* the peer has asked for one since */
    uint64_t rx_unacked_bytes;
    struct mdapl_list reordered; /* frames that have overtaken others, by psn */
    uint64_t n_reordered;        /* how many */
    struct mdapl_list ack_pending; /* on d->ack_pending while rx_next > rx_acked */
    uint64_t ack_pending_since;
    struct mdapl_inbox inbox;
    struct mdapl_parts parts;    /* messages of several frames */
    struct mdapl_list reading;   /* reads of them in progress (rx_op.h) */

    /* long bodies */
    struct mdapl_list rndv_tx, rndv_rx;
    struct mdapl_list xfers;     /* RDMA of theirs that is still to be posted */

    /* puts and gets: those in progress, and those that are to go on (rma.c) */
    struct mdapl_list rma, rma_waiting;
};

/* Frames that the peer has not acknowledged. */
static inline uint64_t mdapl_dapl_peer_unacked(const struct mdapl_dapl_peer *peer)
{
    return peer->tx_next - peer->tx_acked;
}

/* How many frames the two have delivered to each other: it grows as long as they can. */
static inline uint64_t mdapl_dapl_peer_delivered(const struct mdapl_dapl_peer *peer)
{
    return peer->tx_acked + peer->rx_next;
}

/* The one that carries the frames: the lowest that is up; none is: any. */
static inline struct mdapl_dapl_stream *mdapl_dapl_peer_main(const struct mdapl_dapl_peer *peer)
{
    return peer->main;
}

static inline bool mdapl_dapl_stream_up(const struct mdapl_dapl_stream *st)
{
    return st->up != NULL;
}

/* Frames may be sent on this connection of the stream from now on; NULL: on none. */
void mdapl_dapl_stream_set_up(struct mdapl_dapl_stream *st, struct mdapl_dapl_conn *conn);

static inline struct mdapl_dapl_peer *mdapl_dapl_peer_of(struct mdapl_peer *peer)
{
    return MDAPL_OF(peer, struct mdapl_dapl_peer, base);
}

/* The peer of the channel that follows prev (NULL: the first); NULL: there is none. */
struct mdapl_dapl_peer *mdapl_dapl_peer_next(struct mdapl_dapl_chan *d,
                                             const struct mdapl_dapl_peer *prev);
/* Makes the peer of a rank from its business card. 0, -EHOSTUNREACH (not for us), -ENOMEM. */
int mdapl_dapl_peer_make(struct mdapl_dapl_chan *d, const struct mdapl_group *group, int rank,
                         const char *card, struct mdapl_dapl_peer **p);
/* As mdapl_peer_locate(). */
int mdapl_dapl_peer_locate(struct mdapl_peer *base, const char *card);
/* Takes over the limits in a peer's hello on a stream: the length of its frames and, for the
 * connection st->conn, how many. */
void mdapl_dapl_peer_offered(struct mdapl_dapl_stream *st, const struct mdapl_dapl_hello *h);
/* Ends all operations of the peer, whose connections are closed or drain, with status. */
void mdapl_dapl_peer_end(struct mdapl_dapl_peer *peer, int status);
/* Frees the peer, whose connections are closed; what is queued ends with -ECANCELED. */
void mdapl_dapl_peer_free(struct mdapl_dapl_peer *peer);
/* Has mdapl_dapl_peer_progress() called in this or the next round of progress. */
void mdapl_dapl_peer_wake(struct mdapl_dapl_peer *peer);
/* The same, but only if something is pending; cheap enough for each frame. */
void mdapl_dapl_peer_wake_if_pending(struct mdapl_dapl_peer *peer);
/* Announces, posts and transmits what is pending and has room. Returns how many things moved. */
int mdapl_dapl_peer_progress(struct mdapl_dapl_peer *peer);
/* The peer is lost and its connections are closed: every queued operation fails with status, and
 * the owner gets the line. Only recover.c calls this. */
void mdapl_dapl_peer_fail(struct mdapl_dapl_peer *peer, int status, const char *line);
/* Has all that was sent to the peer been delivered and acknowledged? */
bool mdapl_dapl_peer_idle(const struct mdapl_dapl_peer *peer);
/* How many frames, items and requests are still to be delivered or acknowledged, either way. */
size_t mdapl_dapl_peer_unfinished(const struct mdapl_dapl_peer *peer);
/* -- the flight recorder: events.c ------------------------------------------------------------- */

enum mdapl_dapl_event {
#define EVENT(NAME, format) MDAPL_DAPL_EVENT_##NAME,
#include "events.def"
};

/* Records an event of a peer; a, b: static texts, as the row in events.def has them. */
void mdapl_dapl_event(const struct mdapl_dapl_peer *peer, int stream, enum mdapl_dapl_event kind,
                      const char *a, const char *b, uint64_t number);
/* Prints those of a peer that are still there, the oldest first. */
void mdapl_dapl_events_print(const struct mdapl_dapl_peer *peer);
/* Makes d->events, which the caller frees. False: out of memory. */
bool mdapl_dapl_events_open(struct mdapl_dapl_chan *d);
/* Prints those of all peers if the signal of the knob has arrived. */
void mdapl_dapl_events_look(struct mdapl_dapl_chan *d);

/* Writes this channel's part of the business card, at most len bytes with the 0 at its end. Returns
 * its length, or -ENOSPC. */
int mdapl_dapl_card_put(const struct mdapl_dapl_chan *d, char *buf, size_t len);
/* The same for the name of a port, as short as possible: one stream, on the first rail. */
int mdapl_dapl_port_card_put(const struct mdapl_dapl_chan *d, char *buf, size_t len);

#endif
