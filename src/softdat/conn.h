/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_CONN_H
#define SOFTDAT_CONN_H
/*
 * Service points, connection requests, connections. The functions are called with the adapter's
 * lock held; those that free a connection say so.
 */
#include "link.h"
#include "wire.h"
#include "dat_path_extensions.h"

#include <netinet/in.h>

struct softdat_config;
struct softdat_evd;
struct softdat_held;
struct softdat_rq;

/* A listening socket of a service point. */
struct softdat_listener {
    struct softdat_sock sock;
    struct softdat_sp *sp;
    uint8_t port;                /* index of the adapter's port */
    bool local;                  /* unix socket; else TCP */
};

struct softdat_sp {              /* service point: PSP or RSP */
    struct softdat_handle h;
    DAT_CONN_QUAL qual;
    struct softdat_evd *evd;     /* for connection request events */
    DAT_PSP_FLAGS flags;
    struct softdat_ep *ep;       /* RSP: the reserved EP */
    struct {
        struct softdat_listener tcp, local;
    } listener[SOFTDAT_MAX_PORTS];
};

/* A connection request: lives from the event until dat_cr_accept or dat_cr_reject. */
struct softdat_cr {
    struct softdat_handle h;
    struct softdat_conn *conn;   /* NULL: the active side has closed it */
    struct softdat_sp *sp;       /* NULL: the service point has been freed */
    struct sockaddr_in from;
    uint32_t from_qual;
};

/* A queued frame that is not a request of the EP: a control frame or the response to a READ. */
struct softdat_out {
    struct softdat_list link;
    struct softdat_frame f;
    uint64_t due;                /* link emulation: earliest transmit time, ns */
    const void *data;            /* NULL, priv, or registered memory */
    uint32_t key;                /* of that registered memory; 0: data is priv or NULL */
    uint8_t priv[];
};

/* Destination of the payload of the frame that is being received. */
struct softdat_sink {
    struct iovec iov[SOFTDAT_MAX_IOV + 1];
    int n, at;                   /* iov entries; index of the current one */
    size_t left;                 /* payload bytes not received yet */
    bool discard;                /* drop the payload */
};

/* Why frames are dropped. */
enum softdat_discard {
    SOFTDAT_DISCARD_NAK = 1,     /* a NAK is sent */
    SOFTDAT_DISCARD_LINK = 2,    /* the peer has withdrawn its consent to copies on this link */
};

enum { SOFTDAT_HELD_MAX = 1 << 22 };     /* bytes of sends buffered until a receive is posted */

enum softdat_conn_phase {
    SOFTDAT_CONNECTING,          /* active: the socket is connecting */
    SOFTDAT_CONNECT_SENT,        /* active: waits for ACCEPT or REJECT */
    SOFTDAT_ACCEPTED,            /* passive: the socket is accepted, waits for CONNECT */
    SOFTDAT_CR_PENDING,          /* passive: waits for dat_cr_accept or dat_cr_reject */
    SOFTDAT_STANDBY_LINK,        /* has no EP: a link in reserve, over the alternate path */
    SOFTDAT_ACCEPT_SENT,         /* passive: waits for READY */
    SOFTDAT_OPEN,
    SOFTDAT_LINGERING,           /* has no EP: transmits its queue, then waits for the peer's end */
};

enum { SOFTDAT_CUR_IOV = SOFTDAT_MAX_IOV + 2 };   /* a header, the segments, and one more */

struct softdat_conn {
    struct softdat_sock sock;
    struct softdat_list link;    /* on ia->conns, later on ia->to_free */
    struct softdat_list acks;    /* on ia->acks while an acknowledgement is pending */
    struct softdat_list polled;  /* on ia->rings while uses_rings; on ia->streams while it is open
                                    and its frames travel on the socket */
    struct softdat_list delayed; /* on ia->delayed until resume_at */
    struct softdat_list to_break; /* on ia->to_break: breaks at the end of this round (fault.c) */
    struct softdat_ia *ia;
    struct softdat_ep *ep;       /* NULL: none yet, or detached */
    struct softdat_cr *cr;
    struct softdat_sp *sp;       /* passive: the service point that accepted it */
    enum softdat_conn_phase phase;
    struct sockaddr_in peer;
    uint64_t deadline;           /* ns, softdat_now(); 0: none */
    uint64_t unacked_since;      /* ns: the remote kernel has acknowledged nothing since; 0: all */
    uint8_t port;                /* index of the adapter's port */
    bool local;                  /* same host: the socket is an abstract unix socket */
    bool request_failed;         /* to_break: the failed request has its status already */
    struct softdat_shared shared;
    bool uses_rings;             /* frames travel through shared rings, not the socket */
    bool plain;                  /* nothing is emulated or injected (short.c) */
    uint64_t may_transmit, may_receive;  /* ia->changes when that was checked last (short.c) */
    bool stream;                 /* on ia->streams */
    int segment_fd;              /* active: sent with CONNECT or MIGRATE; -1: none */

    /* migration to another link (migrate.c); sock.fd < 0 meanwhile, as long as there is none */
    uint64_t token;              /* names the connection for its new link; 0: it cannot migrate */
    struct in_addr other_addr;   /* active: address of the peer's other port; 0: none */
    bool active;                 /* this side has connected */
    bool migrating;              /* without a link, or not sure that the peer uses the new one */
    unsigned attempts;           /* to make a link while there is none */
    int old_fd;                  /* active: the former socket, not read any more; -1: none */
    struct softdat_conn *carrier;    /* active: makes the new link; NULL: none */
    struct softdat_conn *migrates;   /* of a carrier or a standby: the connection whose link it is
                                        to be */
    struct softdat_conn *heir;   /* of a former carrier: has its link, parses what it has read */
    uint32_t reads_sent;         /* READs, PUSHes and ATOMICs transmitted, in total */
    uint32_t reads_taken;        /* the same of the peer, received */
    uint32_t answers;            /* frames on `answered`, in total */
    uint32_t n_answered;         /* its length */
    uint8_t former_inline[SOFTDAT_INLINE];   /* in-line frame of the former link's ring */
    struct softdat_list answered;    /* transmitted answers that the peer may not have taken */

    /* transmit */
    struct softdat_list out_queue;   /* struct softdat_out; before the EP's requests */
    uint32_t responses;          /* READ_DATA and PUSHED frames that are not transmitted yet */
    struct iovec cur[SOFTDAT_CUR_IOV];   /* the frame, or frames, being transmitted */
    int cur_n, cur_at;           /* iov entries, 0: no frame; the first unfinished entry */
    int cur_frames;              /* several: requests of the EP, the last that are transmitted */
    struct softdat_frame cur_hdr[SOFTDAT_CUR_IOV / 2];
    struct softdat_out *cur_out; /* owner of the frame; NULL: a request of the EP */
    struct softdat_piece cur_list[SOFTDAT_MAX_IOV];
    uint64_t cur_due;            /* link emulation: earliest transmit time, ns */
    uint32_t cur_regions_freed;  /* ia->regions_freed when its memory was last verified */
    uint64_t rate_free_at;       /* link emulation: ns, when the rate permits more bytes */
    uint64_t resume_at;          /* ns, when a delayed connection continues */
    uint64_t judged_at;          /* ns, when the last request that was judged completed */
    struct softdat_sample sample;    /* the reads that have completed in this round */
    uint16_t grant;              /* bytes that the port's rate permits then */
    bool bye_sent;
    bool blocked;                /* the ring or the socket's buffer is full: continue when it has
                                    room */

    /* receive */
    struct softdat_frame hdr;
    size_t hdr_have;             /* bytes of hdr received */
    struct softdat_sink sink;
    uint8_t *target;             /* WRITE, PULL, PUSH, ATOMIC: the local address of hdr.addr */
    bool copying;                /* a PULL or PUSH is complete, and the copy is not */
    uint64_t copied;             /* bytes of it that have been copied */
    uint32_t hdr_regions_freed;  /* ia->regions_freed when that memory was last verified */
    uint8_t tail[8];             /* last aligned word of an RDMA write, stored last (sink.c) */
    size_t tail_len;
    uint8_t priv[SOFTDAT_PRIV_MAX];
    struct softdat_list held;    /* sends buffered until a receive is posted */
    struct softdat_list waiting; /* on the receive queue's list while it holds or parks a send */
    struct softdat_held *held_current;   /* the buffered send that is being received */
    size_t held_bytes;
    uint8_t *read_ahead;         /* parked: bytes read behind that header; owned */
    size_t n_read_ahead;
    bool stalled;                /* SOFTDAT_HELD_MAX is exceeded: reads nothing */
    bool parked;                 /* hdr is a SEND that exceeds SOFTDAT_HELD_MAX: payload unread */
    uint8_t discard_rx;          /* softdat_discard: drop every frame but NAK and BYE */
    bool bye_received;
    uint32_t executed;           /* SENDs and WRITEs of the peer executed, in total */
    uint32_t acked;              /* of those, acknowledged */
    uint64_t unacked_bytes;      /* bytes of those not acknowledged */
    uint32_t peer_executed;      /* SENDs and WRITEs of this side that the peer has acknowledged */
    uint32_t ack_requested;      /* number of the last one with SOFTDAT_ACK_NOW */
    uint64_t ack_bytes;          /* bytes of those after it */
    bool long_expected;          /* the last frame was long: read less behind the next */

    /* the alternate path; the rest is with the EP (struct softdat_alternate) */
    uint8_t peer_port, peer_ports;   /* number of the peer's port; how many it has; 0: unknown */
    bool multipath;              /* it was requested with several paths (DAT 2.0) */
    bool has_standby;            /* without an EP: its standby is still there */
    bool is_standby;             /* of the connection that it `migrates`, passive: once known */
    bool resting;                /* of a standby: ia->n_sockets does not count it */
};

/* A send, or the notification of a write with immediate data, that waits for a receive. */
struct softdat_held {
    struct softdat_list link;
    size_t len;
    bool imm;                    /* a write with immediate data; its payload is in place */
    uint32_t imm_data;           /* imm: the data */
    uint64_t written;            /* imm: bytes written */
    uint8_t data[];              /* len bytes */
};

/* What the peer has written, in total, and, in the high half, how many SENDs and WRITEs of this
 * side it has executed. */
static inline uint64_t softdat_shared_counters(const struct softdat_conn *c)
{
    return atomic_load_explicit(&c->shared.theirs->counters, memory_order_acquire);
}

static inline uint32_t softdat_shared_executed(const struct softdat_conn *c)
{
    return (uint32_t)(softdat_shared_counters(c) >> 32);
}

/* True if the peer has written bytes that have not been read. */
static inline bool softdat_shared_has_bytes(const struct softdat_conn *c)
{
    return (uint32_t)softdat_shared_counters(c) != c->shared.head;
}

/* True if the peer has written bytes or executed requests since the last poll. An empty poll of a
 * ring is this comparison and nothing else. */
static inline bool softdat_shared_pending(const struct softdat_conn *c)
{
    return softdat_shared_counters(c) != softdat_both(c->shared.head, c->shared.executed_seen);
}

/* conn.c */

/* Makes a connection on socket fd and puts it on ia->conns. The connection owns fd. NULL: out of
 * memory or epoll refused fd, which then stays the caller's. */
struct softdat_conn *softdat_conn_make(struct softdat_ia *ia, int fd,
                                       enum softdat_conn_phase phase);
/* Detaches c from its EP, whose memory is not accessed afterwards. With linger the queued frames
 * and a BYE are still transmitted if no frame that reads the EP's memory is half transmitted;
 * otherwise c is freed. */
void softdat_conn_detach(struct softdat_conn *c, bool linger);
/* Closes c at once, without an event. The memory is freed at the end of the round, because events
 * of this round may point to it. */
void softdat_conn_free(struct softdat_conn *c);
/* Lets c transmit its queue and close, for 2 s at most. */
void softdat_conn_linger(struct softdat_conn *c);
/* Dispatches the complete CONNECT, ACCEPT, REJECT or READY frame in c->hdr. False: the frame is not
 * permitted in this phase or cannot be served. */
bool softdat_cm_frame(struct softdat_conn *c);
/* Ends c because its socket has ended or its peer violated the protocol: frees it and posts the
 * event of its phase. */
void softdat_conn_lost(struct softdat_conn *c);
/* Ends c because the transport has given up: its oldest unfinished request completes with status,
 * the others with DAT_DTO_ERR_FLUSHED. Frees c. */
void softdat_conn_break(struct softdat_conn *c, DAT_DTO_COMPLETION_STATUS status);
/* Makes a round of progress at time `when`, ns, or before handle what is due then. */
void softdat_due(struct softdat_ia *ia, uint64_t when);
/* Sets c's deadline to ns from now. */
void softdat_conn_deadline(struct softdat_conn *c, uint64_t ns);
/* Handles a deadline that has passed; may free c. */
void softdat_conn_expire(struct softdat_conn *c);
/* Makes c SOFTDAT_OPEN. The caller posts the event. */
void softdat_conn_open(struct softdat_conn *c);
/* Ends c before it was open: frees it; its EP gets the event number. */
void softdat_conn_failed(struct softdat_conn *c, DAT_EVENT_NUMBER number);
/* Handles the end of c's socket: ends c, unless c migrates and may get another. */
void softdat_conn_link_lost(struct softdat_conn *c);
/* True if the peer has closed c's socket. */
bool softdat_conn_ended(const struct softdat_conn *c);
/* Takes c off the lists of what is polled. */
void softdat_conn_unlist(struct softdat_conn *c);
/* Lets the rounds of progress poll c, which is open and has a link. */
void softdat_conn_poll(struct softdat_conn *c);

/* migrate.c */

/* Starts to replace the link of c by one over the other port of either side that has two. False: it
 * cannot be replaced: c is not open, was not connected by this side, or no port is up. */
bool softdat_migrate(struct softdat_conn *c);
/* The carrier's socket is connected: takes the link from its connection and sends MIGRATE. */
void softdat_migrate_send(struct softdat_conn *carrier);
/* Tries again to make a link, if c has none. */
void softdat_migrate_retry(struct softdat_conn *c);
/* The carrier ends: its connection keeps its link, or tries again. */
void softdat_migrate_failed(struct softdat_conn *c);
/* Returns the passive side of the connection that has this token; NULL: there is none. */
struct softdat_conn *softdat_conn_find(struct softdat_ia *ia, uint64_t token);
/* Takes the link from c: nothing is received or transmitted until it has another. */
void softdat_migrate_unlink(struct softdat_conn *c);
/* Handlers of MIGRATE, MIGRATED and MIGRATE_DONE, and of a REJECT in place of MIGRATED. */
bool softdat_cm_on_migrate(struct softdat_conn *carrier);
bool softdat_cm_on_migrated(struct softdat_conn *carrier);
bool softdat_cm_on_migrate_done(struct softdat_conn *c);
bool softdat_migrate_rejected(struct softdat_conn *carrier);

/* standby.c */

/* Makes the standby of c if this side has to, both have loaded their alternate and there is none;
 * tries again later if that is not possible now. */
void softdat_standby_make(struct softdat_conn *c);
/* The socket of a standby is connected: transmits STANDBY. */
void softdat_standby_send(struct softdat_conn *standby);
/* Returns the connection whose standby s is; NULL: s is none, or its connection is not known. */
static inline struct softdat_conn *softdat_standby_of(const struct softdat_conn *s)
{
    return s->is_standby ? s->migrates : NULL;
}

/* True if c has a standby over a path that is up. */
bool softdat_standby_usable(const struct softdat_conn *c);
/* Begins to migrate c to its standby for that cause, or asks the active side to. False: it has no
 * usable one, or no peer to migrate with. */
bool softdat_standby_begin(struct softdat_conn *c, DAT_PATH_CAUSE cause);
/* The link of c, between hosts, has failed with that errno value: c migrates without, if it has a
 * standby. False: it has none, or the end of the link is the end of c. */
bool softdat_standby_replaces(struct softdat_conn *c, int error);
/* Takes the standby out of reserve: it is the carrier of c's new link. */
void softdat_standby_take(struct softdat_conn *standby);
/* Closes the standby of c, if it has one, without an event, and makes none. */
void softdat_standby_close(struct softdat_conn *c);
/* The EP of c, which lingers, is about to be detached: the standby stays until c ends. */
void softdat_standby_detach(struct softdat_conn *c);
/* c ends: closes its standby; or is one, and its connection makes another. */
void softdat_standby_ended(struct softdat_conn *c);
/* A port has changed: closes the standbys over paths that are down, and migrates the connections
 * that have one; makes standbys where the path is up. */
void softdat_standby_ports(struct softdat_ia *ia);
/* Makes the standbys whose time has come. */
void softdat_standby_resume(struct softdat_ia *ia);
/* Returns the earliest such time, ns; UINT64_MAX: none waits. */
uint64_t softdat_standby_next(const struct softdat_ia *ia);
/* Handlers of STANDBY, STANDBY_OK, STANDBY_READY and MOVE. */
bool softdat_cm_on_standby(struct softdat_conn *c);
bool softdat_cm_on_standby_ok(struct softdat_conn *c);
bool softdat_cm_on_standby_ready(struct softdat_conn *c);
bool softdat_cm_on_move(struct softdat_conn *c);

/* alternate.c: the states of an alternate path */

/* c is open: loads its alternate if several paths were requested. */
void softdat_alternate_open(struct softdat_conn *c);
/* The standby of c is there. */
void softdat_alternate_armed(struct softdat_conn *c);
/* It has failed. */
void softdat_alternate_down(struct softdat_conn *c);
/* Both sides use another link: the standby, if c->move, or one without. */
void softdat_alternate_moved(struct softdat_conn *c);
/* Stores the path of the standby that c is to have. False: it is to have none now, since it is
 * armed, or one side has not loaded, or the two want different ports, or the path is in use. */
bool softdat_alternate_path(const struct softdat_conn *c, DAT_PATH *path);
/* c breaks, because its path is down: reports it if c should have migrated. */
void softdat_alternate_failed(struct softdat_conn *c);
/* A port of the adapter goes up or down. */
void softdat_alternate_port(struct softdat_ia *ia, uint32_t port, bool up);
/* Handler of LOADED. */
bool softdat_cm_on_loaded(struct softdat_conn *c);

/* listen.c */

/* Closes the listening sockets of sp. Connections that it has accepted stay. */
void softdat_sp_close_listeners(struct softdat_ia *ia, struct softdat_sp *sp);

/* retransmit.c */

/* Retains an answer that has been transmitted, and owns it. */
void softdat_retransmit_keep(struct softdat_conn *c, struct softdat_out *out);
/* Frees the answers that are retained; the memory that they name is not read again. */
void softdat_retransmit_forget(struct softdat_conn *c);
/* Takes back the frame that is half transmitted, and drops queued ones that are neither requests
 * nor answers. Before the segment of the former link is freed. */
void softdat_retransmit_begin(struct softdat_conn *c);
/* Queues again what the peer has not taken. False: its numbers are impossible. */
bool softdat_retransmit_after(struct softdat_conn *c, const struct softdat_taken *theirs);

/* connect.c */

/* Handles the end of a non-blocking connect(): sends CONNECT or fails the EP; may free c. */
void softdat_connect_done(struct softdat_conn *c);
/* Repeats a connect() to a unix socket whose backlog was full; may free c. */
void softdat_connect_retry(struct softdat_conn *c);
/* Starts a connection from that port to a service point, whose TCP port is its qualifier: within
 * the host if possible, else by TCP. NULL with an errno value in *error_p. */
struct softdat_conn *softdat_connect_from(struct softdat_ia *ia, int port, struct sockaddr_in to,
                                          int *error_p);
/* Sends the first frame of a connection that softdat_connect_from() has connected at once. */
void softdat_connect_start(struct softdat_conn *c);

/* accept.c */

/* Takes the peer's ports from the frame of c->hdr, one that makes a link. */
void softdat_conn_learn_ports(struct softdat_conn *c);
/* The same, and the active side's address (CONNECT, STANDBY, MIGRATE), if its socket has none. */
void softdat_conn_learn_address(struct softdat_conn *c);

/* Handlers of connection management frames (accept.c, connect.c), called by softdat_cm_frame() in
 * the phase that permits them. False: cannot be served, the connection ends. */
bool softdat_cm_on_connect(struct softdat_conn *c);
bool softdat_cm_on_ready(struct softdat_conn *c);
bool softdat_cm_on_accept(struct softdat_conn *c);
bool softdat_cm_on_reject(struct softdat_conn *c);

/* sockets.c */

/* Raises the soft RLIMIT_NOFILE towards the hard limit, after EMFILE. True: it was raised. */
bool softdat_raise_fd_limit(void);
/* Prints one line on stderr, once per adapter: the IA cannot do `what`, for that errno value. */
void softdat_warn_once(struct softdat_ia *ia, const char *what, int error);
/* Makes a socket that listens on that address with qualifier qual as port. Returns the descriptor,
 * or -1 with errno. */
int softdat_listen_tcp(struct sockaddr_in sin, uint32_t qual);
/* The same for connections within the host: an abstract unix socket. */
int softdat_listen_local(struct sockaddr_in sin, uint32_t qual);
/* Makes an unconnected unix socket. Returns the descriptor, or -1 with errno. */
int softdat_local_socket(void);
/* Connects fd to the unix socket of that service point. Returns 0 or an errno value; EAGAIN: its
 * backlog is full; EACCES: it belongs to another user. */
int softdat_connect_local(int fd, struct in_addr addr, uint32_t qual);
/* Makes a TCP socket bound to address `from` and starts to connect it. Returns the descriptor, or
 * -1 with an errno value in *error_p. */
int softdat_connect_tcp(struct sockaddr_in from, struct sockaddr_in to, int *error_p);
void softdat_set_nodelay(int fd);
/* True if the process at the other end of unix socket fd runs as this user or root. Checked for
 * each connection because abstract socket names have no permissions. */
bool softdat_same_user(int fd);

/* rx.c */

/* Reads from c's socket and handles the frames. Returns true if it read bytes or the end of the
 * stream. May free c. */
bool softdat_rx_ready(struct softdat_conn *c);
/* Reads from c's ring, completes acknowledged requests and continues a blocked transmit. Returns
 * true if there was anything to do. May free c. */
bool softdat_rx_ring(struct softdat_conn *c);
/* Continues with the parked frame and the bytes read behind it. May free c. */
void softdat_rx_unpark(struct softdat_conn *c);
/* Drops what is half received: the link is replaced. */
void softdat_rx_take_back(struct softdat_conn *c);
/* Stops reading from c, or starts it again. */
void softdat_rx_stall(struct softdat_conn *c, bool stalled);

/* short.c */

enum { SOFTDAT_SHORT = SOFTDAT_INLINE - sizeof(struct softdat_frame) };     /* bytes of payload */

/* True if short frames of c need nothing but its link: no link emulation, no injected faults. */
bool softdat_short_plain(const struct softdat_conn *c);
/* Sets ep->short_send and ep->short_rdma by its attributes. */
void softdat_short_limits(struct softdat_ep *ep, const struct softdat_config *cfg);
/* Ends a dequeue of evd, which is empty and notifies no CNO or waiter, by the thread that owns the
 * lock, when c's ring has input: stores the receive of a short send, or the completion of the
 * oldest request, in *event, or makes a round as any other dequeue. Releases the lock. */
DAT_RETURN softdat_short_event(struct softdat_evd *evd, DAT_EVENT *event, struct softdat_conn *c);
/* Executes the send or write in the in-line frame of c's ring. False: there is none, or it is left
 * to softdat_frame_header(). */
bool softdat_short_receive(struct softdat_conn *c);
/* Executes the whole short sends and writes at the beginning of the n bytes at p, which c's stream
 * has received. Returns the number of bytes that these are. */
size_t softdat_short_stream(struct softdat_conn *c, const uint8_t *p, size_t n);

/* frame.c */

/* Handles the complete header c->hdr: checks it and prepares c->sink for the payload. False: a
 * violation of the protocol. */
bool softdat_frame_header(struct softdat_conn *c);
/* Handles a frame whose payload is complete, or continues to (c->copying). False: a violation of
 * the protocol. */
bool softdat_frame_complete(struct softdat_conn *c);
/* Completes the requests up to sequence number ack, which the peer has executed. False: ack is
 * beyond what was transmitted. */
bool softdat_frame_acked(struct softdat_conn *c, uint32_t ack);
/* Verifies the memory of a partly received frame again, if a registration has been freed since. If
 * its own was, the rest of the payload is dropped and the request refused. */
void softdat_frame_recheck(struct softdat_conn *c);

/* sink.c */

/* Advances the sink by n bytes, at most s->left, that have been received in place. */
void softdat_sink_advance(struct softdat_sink *s, size_t n);
/* Copies n bytes, at most s->left, into the sink. */
void softdat_sink_copy(struct softdat_sink *s, const uint8_t *from, size_t n);
/* Copies the entries of v, n of them, that cover its first `max` bytes to out. Returns their
 * number. */
int softdat_iov_prefix(const struct iovec *v, int n, size_t max, struct iovec *out);
/* Advances the iovec *v of *n_v entries by n bytes. */
void softdat_iov_step(struct iovec **v, int *n_v, size_t n);
/* Returns how many bytes at the end of an RDMA write of len bytes to addr are stored last. */
size_t softdat_tail_len(uint64_t addr, size_t len);
/* Stores these len bytes at addr in naturally aligned pieces with release order. */
void softdat_store_tail(uint64_t addr, const uint8_t *from, size_t len);

/* held.c */

/* Allocates a buffer for a send of len bytes that has no receive. NULL: out of memory. */
struct softdat_held *softdat_held_create(size_t len);
/* Queues the complete h, now owned by c, until a receive is posted. May free c. */
void softdat_held_queue(struct softdat_conn *c, struct softdat_held *h);
/* Called when buffering the SEND of c->hdr would exceed SOFTDAT_HELD_MAX. True: c is parked, its
 * payload stays unread until a receive is posted. False: the frame needs no buffer. */
bool softdat_held_park(struct softdat_conn *c);
/* Delivers held sends to the receives posted on rq, oldest first. */
void softdat_held_deliver(struct softdat_rq *rq);
/* Frees everything that c holds. */
void softdat_held_free(struct softdat_conn *c);
/* Fails a send that does not fit its receive: the receive completes with status, the peer gets a
 * NAK with DAT_DTO_ERR_REMOTE_RESPONDER. */
void softdat_held_refuse(struct softdat_conn *c, DAT_DTO_COMPLETION_STATUS status);

/* ack.c */

/* Returns the hint for the status field of c's request number seq of len bytes, which begins now:
 * SOFTDAT_ACK_NOW or 0. */
uint16_t softdat_ack_hint(struct softdat_conn *c, uint32_t seq, uint64_t len);
/* Called after a round without input: acknowledges over rings at once, over sockets after 10 us of
 * such rounds. */
void softdat_acks_when_idle(struct softdat_ia *ia);
/* Notes that c has an acknowledgement pending. */
void softdat_ack_later(struct softdat_conn *c);
/* Transmits all pending acknowledgements; called before the adapter sleeps. */
void softdat_acks_flush(struct softdat_ia *ia);
/* Counts the request of c->hdr as executed and acknowledges it, at once or with a later frame. */
void softdat_ack_executed(struct softdat_conn *c);

/* tx.c */

/* Transmits queued frames, then requests of the EP, until the link takes no more. */
void softdat_tx_progress(struct softdat_conn *c);
/* The same after the socket has been found to have room. */
void softdat_tx_unblock(struct softdat_conn *c);
/* Transmits request d of c's EP on a stream: a SEND or WRITE of one segment of 1 to SOFTDAT_SHORT
 * bytes, before which nothing is queued, counted as transmitted. */
void softdat_tx_short(struct softdat_conn *c, struct softdat_dto *d);
/* Queues a control frame with a copy of len bytes of payload. False: out of memory. */
bool softdat_tx_frame(struct softdat_conn *c, enum softdat_frame_type type, const void *priv,
                      size_t len);
/* Queues the response to a READ: len bytes at data, registered under key, not copied. */
bool softdat_tx_read_data(struct softdat_conn *c, const void *data, uint32_t len, uint32_t key);
/* Drops the queued frames that read registered memory. False: one of them is half transmitted. */
bool softdat_tx_drop_responses(struct softdat_conn *c);
/* Queues a NAK of request number id (0: the oldest READ) and drops what the peer sends from now
 * on. False: out of memory. */
bool softdat_tx_nak(struct softdat_conn *c, uint32_t id, DAT_DTO_COMPLETION_STATUS status);
/* As softdat_tx_frame(), but before all that is queued, and transmitted by the caller. */
bool softdat_tx_frame_first(struct softdat_conn *c, enum softdat_frame_type type, const void *priv,
                            size_t len);
/* True if no frame is queued or partly transmitted. */
bool softdat_tx_idle(const struct softdat_conn *c);

/* True if c breaks at the end of this round (fault.c). */
static inline bool softdat_break_pending(const struct softdat_conn *c)
{
    return !softdat_list_empty(&c->to_break);
}

#endif
