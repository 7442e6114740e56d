/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_CONN_H
#define SOFTDAT_CONN_H
/* Listening points, requests to connect, connections. */
#include "link.h"
#include "wire.h"

#include <dat2/udat.h>
#include <netinet/in.h>

struct softdat_held;
struct softdat_rq;

struct softdat_listener {
    struct softdat_sock sock;
    struct softdat_sp *sp;
    uint8_t port;
    bool local;
};

struct softdat_sp {              /* a listening point: PSP or RSP */
    struct softdat_handle h;
    DAT_CONN_QUAL qual;
    struct softdat_evd *evd;
    DAT_PSP_FLAGS flags;
    struct softdat_ep *ep;       /* RSP: the one EP */
    struct {
        struct softdat_listener tcp, local;
    } listener[SOFTDAT_MAX_PORTS];
};

struct softdat_cr {
    struct softdat_handle h;
    struct softdat_conn *conn;
    struct softdat_sp *sp;
    struct sockaddr_in from;
    uint32_t from_qual;
};

/* A frame that waits to be written, besides the EP's requests: small, or the answer to a READ. */
struct softdat_out {
    struct softdat_list link;
    struct softdat_frame f;
    uint64_t due;                /* on a slow wire: not before, ns */
    const void *data;            /* NULL, priv, or registered memory */
    uint32_t key;                /* of that registered memory; 0: it is priv */
    uint8_t priv[];
};

/* Where the payload of the frame being received goes. */
struct softdat_sink {
    struct iovec iov[SOFTDAT_MAX_IOV + 1];
    int n, at;                   /* pieces, the current one */
    size_t left;                 /* bytes of payload still to come */
    bool discard;
};

enum { SOFTDAT_HELD_MAX = 1 << 22 };     /* bytes of sends that wait for a receive */

enum softdat_conn_phase {
    SOFTDAT_CONNECTING,          /* active: the socket is connecting */
    SOFTDAT_CONNECT_SENT,        /* active: CONNECT is out */
    SOFTDAT_ACCEPTED,            /* passive: accepted socket, CONNECT is to come */
    SOFTDAT_CR_PENDING,          /* passive: a CR exists */
    SOFTDAT_ACCEPT_SENT,         /* passive: ACCEPT is out, READY is to come */
    SOFTDAT_OPEN,
    SOFTDAT_LINGERING,           /* no EP any more: write out what is queued, wait for the end */
};

struct softdat_conn {
    struct softdat_sock sock;
    struct softdat_list link;    /* on ia->conns */
    struct softdat_list acks;    /* on ia->acks while an acknowledgement is owed */
    struct softdat_list polled;  /* on ia->rings while ringed, on ia->streams while it is open
                                    and a socket carries its frames */
    struct softdat_list delayed; /* on ia->slow until `resume` */
    struct softdat_list to_break; /* on ia->doomed when it is to break (fault.c) */
    bool request_failed;         /* doomed: the request that is to blame has its status */
    struct softdat_ia *ia;
    struct softdat_ep *ep;
    struct softdat_cr *cr;
    struct softdat_sp *sp;       /* INCOMING: whom it has called */
    enum softdat_conn_phase phase;
    struct sockaddr_in peer;
    uint64_t deadline;           /* ns; 0: none */
    uint64_t unacked_since;      /* ns: the far kernel owes an acknowledgement; 0: it does not */
    uint8_t port;                /* through which of the adapter's */
    bool local;                  /* same host: an abstract unix socket */
    struct softdat_shared shared;
    bool uses_rings;             /* frames go through shared rings, not the socket */
    bool stream;                 /* it is on ia->streams */
    int segment_fd;              /* CALLED: leaves with CONNECT; else -1 */

    /* out */
    struct softdat_list out_queue;
    struct iovec cur[SOFTDAT_MAX_IOV + 2];   /* the frame being written */
    int cur_n, cur_at;
    struct softdat_frame cur_hdr;
    struct softdat_out *cur_out; /* what it is: one of outs, else a request of the EP */
    struct softdat_piece cur_list[SOFTDAT_MAX_IOV];
    uint64_t cur_due;            /* on a slow wire: not before, ns */
    uint32_t cur_regions_freed;  /* ia->frees when its memory was last found registered */
    uint64_t rate_free_at, resume_at; /* ns: when more may be written; when to go on */
    bool bye_sent;
    bool blocked;                /* ringed: the ring is full, go on when there is room */

    /* in */
    struct softdat_frame hdr;
    size_t hdr_have;
    struct softdat_sink sink;
    uint8_t *target;             /* WRITE, PULL, PUSH, ATOMIC: where addr is */
    uint32_t hdr_regions_freed;  /* ia->frees when its memory was last found registered */
    uint8_t tail[8];             /* the last word of an RDMA write, to be stored last */
    size_t tail_len;
    uint8_t priv[SOFTDAT_PRIV_MAX];
    struct softdat_list held;    /* sends that wait for a receive */
    struct softdat_list waiting; /* on the receive queue's list meanwhile */
    struct softdat_held *held_current;/* the one being received */
    size_t held_bytes;
    bool stalled;                /* too much is held: do not read on */
    bool parked;                 /* the frame of hdr is a send that is too long to be held */
    uint8_t *read_ahead;         /* parked: what has been read behind that header */
    size_t n_read_ahead;
    bool discard_rx;             /* a NAK is out: ignore what comes */
    bool bye_received;
    uint32_t executed, acked;    /* SENDs and WRITEs of the peer: done, told */
    uint64_t unacked_bytes;      /* of those not told */
    bool long_expected;          /* the last frame was long: so may be the next */
};

struct softdat_held {
    struct softdat_list link;
    size_t len;
    bool imm;                    /* not a send: news of a write with immediate data */
    uint32_t imm_data;           /* imm: the data, and the bytes that were written */
    uint64_t written;
    uint8_t data[];
};

static inline uint32_t softdat_shared_executed(const struct softdat_conn *c)
{
    return atomic_load_explicit(&c->shared.theirs->executed, memory_order_acquire);
}

/* Has the other side written or executed anything new? All that an empty poll costs. */
static inline bool softdat_shared_pending(const struct softdat_conn *c)
{
    return atomic_load_explicit(&c->shared.theirs->tail, memory_order_relaxed) != c->shared.head
           || softdat_shared_executed(c) != c->shared.executed_seen;
}

/* conn.c */
struct softdat_conn *softdat_conn_make(struct softdat_ia *ia, int fd,
                                       enum softdat_conn_phase phase);
/* Ends it; what is queued may still be written when `linger`. */
void softdat_conn_detach(struct softdat_conn *c, bool linger);
void softdat_conn_free(struct softdat_conn *c);
/* It writes out what is queued, for two seconds at most. */
void softdat_conn_linger(struct softdat_conn *c);
/* A frame of connection management has arrived whole. False: not possible now. */
bool softdat_cm_frame(struct softdat_conn *c);
/* The socket has ended or broken. */
void softdat_conn_lost(struct softdat_conn *c);
/* The transport gives it up: its oldest request completes with `status`. */
void softdat_conn_break(struct softdat_conn *c, DAT_DTO_COMPLETION_STATUS status);
void softdat_conn_deadline(struct softdat_conn *c, uint64_t ns);
void softdat_conn_expire(struct softdat_conn *c);
/* It stands, on whatever link. */
void softdat_conn_open(struct softdat_conn *c);
/* It has not come to stand: it ends, with this event for its EP. */
void softdat_conn_failed(struct softdat_conn *c, DAT_EVENT_NUMBER number);

/* listen.c */
/* The listening point takes no more calls. */
void softdat_sp_close_listeners(struct softdat_ia *ia, struct softdat_sp *sp);

/* connect.c */
/* The socket's connect() has come to its end. */
void softdat_connect_done(struct softdat_conn *c);
/* The listening point's backlog was full: calls it again. */
void softdat_connect_retry(struct softdat_conn *c);

/* What frames of connection management do (accept.c, connect.c). False: not possible now. */
bool softdat_cm_on_connect(struct softdat_conn *c);
bool softdat_cm_on_ready(struct softdat_conn *c);
bool softdat_cm_on_accept(struct softdat_conn *c);
bool softdat_cm_on_reject(struct softdat_conn *c);

/* sockets.c */
/* Has the limit of descriptors been raised? Called when one was refused. */
bool softdat_raise_fd_limit(void);
/* One line on stderr, once for each adapter: it cannot do this, for that errno. */
void softdat_warn_once(struct softdat_ia *ia, const char *what, int error);
/* Sockets that listen: the descriptor, or -1 with errno. */
int softdat_listen_tcp(struct sockaddr_in sin, uint32_t qual);
int softdat_listen_local(struct sockaddr_in sin, uint32_t qual);
int softdat_local_socket(void);
/* Connects a unix socket to that listening point of this host. 0 or an errno; EAGAIN: its backlog
 * is full. */
int softdat_connect_local(int fd, struct in_addr addr, uint32_t qual);
/* A TCP socket that is connecting from that address; -1 with *error_p. */
int softdat_connect_tcp(struct sockaddr_in from, struct sockaddr_in to, int *error_p);
void softdat_set_nodelay(int fd);
/* Is the other end of a unix socket a process of the same user? Abstract names have no
 * permissions. */
bool softdat_same_user(int fd);

/* rx.c */
/* Reads what the socket has. Returns whether there was anything. */
bool softdat_rx_ready(struct softdat_conn *c);
/* Looks at a shared ring. Returns whether anything had happened there. */
bool softdat_rx_ring(struct softdat_conn *c);
/* The parked frame goes on, and what has been read behind it. */
void softdat_rx_unpark(struct softdat_conn *c);
/* From now on nothing more is read, or again. */
void softdat_rx_stall(struct softdat_conn *c, bool stalled);

/* frame.c */
/* The header has come: prepares the sink. False: this is not our protocol. */
bool softdat_frame_header(struct softdat_conn *c);
/* All of the frame has come. */
bool softdat_frame_complete(struct softdat_conn *c);
/* Everything up to request number `ack` has been executed by the peer. False: it says so of what
 * was never sent. */
bool softdat_frame_acked(struct softdat_conn *c, uint32_t ack);
/* A frame goes on that has come in part. If a registration has ended meanwhile, is its memory still
 * there? If not, the rest goes nowhere and the request is refused. */
void softdat_frame_recheck(struct softdat_conn *c);

/* sink.c */
/* n bytes, no more than are to come, have been put where the sink says. */
void softdat_sink_advance(struct softdat_sink *s, size_t n);
/* Puts n bytes there, no more than are to come. */
void softdat_sink_copy(struct softdat_sink *s, const uint8_t *from, size_t n);
/* How many bytes of an RDMA write are to be stored last, and storing them. */
size_t softdat_tail_len(uint64_t addr, size_t len);
void softdat_store_tail(uint64_t addr, const uint8_t *from, size_t len);

/* held.c */
/* Room for a send of len bytes that is to wait for a receive; NULL: none. */
struct softdat_held *softdat_held_create(size_t len);
/* It has come and waits. */
void softdat_held_queue(struct softdat_conn *c, struct softdat_held *h);
/* Too much would be held with the frame whose header has come: if it is a SEND whose receive is
 * missing it waits in the connection, which is read no further. True: so it does. */
bool softdat_held_park(struct softdat_conn *c);
/* A receive has been posted: held sends may go on. */
void softdat_held_deliver(struct softdat_rq *rq);
void softdat_held_free(struct softdat_conn *c);
/* It does not: both ends learn it. */
void softdat_held_refuse(struct softdat_conn *c, DAT_DTO_COMPLETION_STATUS status);

/* tx.c */
void softdat_tx_progress(struct softdat_conn *c);
bool softdat_tx_frame(struct softdat_conn *c, enum softdat_frame_type type, const void *priv,
                      size_t len);
/* The answer to a READ: len bytes at data, registered under key. */
bool softdat_tx_read_data(struct softdat_conn *c, const void *data, uint32_t len, uint32_t key);
/* Forgets the frames that would read registered memory. False: one of them has left in part. */
bool softdat_tx_drop_responses(struct softdat_conn *c);
bool softdat_tx_nak(struct softdat_conn *c, uint32_t id, DAT_DTO_COMPLETION_STATUS status);
/* Nothing came in this round: whoever waits for an acknowledgement waits for us. */
void softdat_tx_acks_when_idle(struct softdat_ia *ia);
/* We are going to sleep: all that is owed leaves. */
void softdat_tx_flush_acks(struct softdat_ia *ia);
void softdat_tx_executed(struct softdat_conn *c);
bool softdat_tx_idle(const struct softdat_conn *c);
/* Steps over n bytes. */
void softdat_iov_step(struct iovec **v, int *n_v, size_t n);

/* It is to break (fault.c). */
static inline bool softdat_break_pending(const struct softdat_conn *c)
{
    return !softdat_list_empty(&c->to_break);
}

#endif
