/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_H
#define SOFTDAT_H
/*
 * The inside of the software DAT provider. Files:
 *
 *      provider.c   what libdat2 loads: init, fini, the table of calls
 *      config.c     the parameters of a line of dat.conf
 *      ia.c         adapters: opening, attributes, closing
 *      path.c       ports, and whether the paths through them are up
 *      net.c        sockets, the event loop, the helper thread
 *      cm.c         listening points, connection requests, connecting
 *      ep.c ep_fsm  endpoints: life, completing, flushing
 *      post.c       posting requests and receives; the extended operations
 *      rq.c         queues of receives, shared ones too
 *      tx.c rx.c    frames out and in (wire.h, PROTOCOL)
 *      shared.c     rings of bytes between two adapters of one host
 *      direct.c     long RDMA straight between their address spaces
 *      mem.c        protection zones and registered memory
 *      evd.c        event dispatchers and notification objects
 *      fault.c      the laboratory: slow wires and injected faults
 *      control.c    answers the program daplsoft (../daplsoft)
 *
 * One lock per adapter protects everything on it. It is taken by the API calls and by the
 * adapter's helper thread, which serves the sockets only while the application does not call in:
 * an application that polls or waits makes all progress itself.
 */
#include "ep_fsm.h"
#include "wire.h"

#include <netinet/in.h>

#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>
#include <dat2/dat_registry.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SOFTDAT_OF(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

enum {
    SOFTDAT_MAX_IOV = 16,        /* segments of one DTO */
    SOFTDAT_MAX_DTO = 16384,     /* per EP and direction */
    SOFTDAT_MAX_READS = 64,      /* RDMA reads under way per EP */
    SOFTDAT_MAX_QLEN = 1 << 20,  /* entries of an EVD */
    SOFTDAT_MAX_LMRS = 1 << 18,
    SOFTDAT_MAX_PORTS = 2,
    SOFTDAT_ASKERS = 8,          /* open connections of daplsoft */
};
#define SOFTDAT_MAX_MESSAGE (UINT32_C(1) << 31)  /* bytes of one DTO */

struct softdat_ia;
struct softdat_ep;
struct softdat_conn;

/* Intrusive ring, as everywhere. */
struct softdat_list {
    struct softdat_list *next, *prev;
};

static inline void softdat_list_init(struct softdat_list *l)
{
    l->next = l->prev = l;
}

static inline bool softdat_list_empty(const struct softdat_list *l)
{
    return l->next == l;
}

static inline void softdat_list_append(struct softdat_list *head, struct softdat_list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void softdat_list_remove(struct softdat_list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    softdat_list_init(item);
}

/* What every handle starts with: libdat2 finds the provider through the first word. */
struct softdat_handle {
    DAT_PROVIDER *provider;
    DAT_CONTEXT context;         /* the consumer's */
    DAT_HANDLE_TYPE type;
    uint32_t alive;              /* SOFTDAT_ALIVE until it is freed */
    struct softdat_ia *ia;
    struct softdat_list link;    /* on ia->handles */
};
#define SOFTDAT_ALIVE 0x50f7da7au

/* -- events ----------------------------------------------------------------------------------- */

struct softdat_cno {
    struct softdat_handle h;
    DAT_OS_WAIT_PROXY_AGENT agent;
    int efd;                     /* eventfd of the waiter */
    struct softdat_evd *fired;   /* the EVD that has triggered it */
    bool agent_due;
    int waiters, users;
};

struct softdat_evd {
    struct softdat_handle h;
    struct softdat_cno *cno;
    DAT_EVD_FLAGS flags;
    DAT_EVENT *ring;
    uint32_t qlen, head;
    _Atomic uint32_t count;
    int efd;                     /* eventfd of the waiter; -1 until somebody waits */
    int waiters, users;
    bool enabled, waitable, overflowed;
};

/* -- memory ----------------------------------------------------------------------------------- */

struct softdat_pz {
    struct softdat_handle h;
    int users;
};

/* Memory that a key opens: of an LMR, or the part of one that an RMR is bound to. */
struct softdat_region {
    uint64_t va, len;            /* addresses that the key takes: from va on */
    uint8_t *at;                 /* where va is */
    struct softdat_pz *pz;
    DAT_MEM_PRIV_FLAGS priv;
    uint32_t key;                /* lmr_context and rmr_context; 0: none */
};

struct softdat_lmr {
    struct softdat_handle h;
    struct softdat_region region;
    DAT_VA_TYPE va_type;
    int users;                   /* RMRs bound to it */
};

struct softdat_rmr {
    struct softdat_handle h;
    struct softdat_pz *pz;
    struct softdat_lmr *lmr;     /* NULL: not bound */
    struct softdat_region region;
};

struct softdat_mem_slot {
    struct softdat_region *region;   /* NULL while free */
    uint32_t gen;
    uint32_t next_free;          /* index + 1 */
};

/* -- sockets ---------------------------------------------------------------------------------- */

/* Something in the epoll set. */
struct softdat_sock {
    int fd;
    uint32_t events;             /* what epoll watches for */
    bool muted;
    void (*ready)(struct softdat_ia *ia, struct softdat_sock *sock, uint32_t events);
};

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

enum softdat_conn_phase {
    SOFTDAT_CALLING,             /* active: the socket is connecting */
    SOFTDAT_CALLED,              /* active: CONNECT is out */
    SOFTDAT_INCOMING,            /* passive: accepted socket, CONNECT is to come */
    SOFTDAT_ASKED,               /* passive: a CR exists */
    SOFTDAT_ANSWERED,            /* passive: ACCEPT is out, READY is to come */
    SOFTDAT_OPEN,
    SOFTDAT_LEAVING,             /* no EP any more: write out what is queued, wait for the end */
};

enum { SOFTDAT_CELL = 104 };     /* bytes of a frame that fits beside the counters */

/* What one side of a shared segment writes and the other reads (shared.c). */
struct softdat_half {
    _Alignas(128) _Atomic uint32_t tail;     /* bytes that this side has written, ever */
    _Atomic uint32_t head;       /* bytes that it has read of the other's, ever */
    _Atomic uint32_t executed;   /* SENDs and WRITEs of the other that it has executed, ever */
    _Atomic uint32_t asleep;     /* odd while it wants a bell */
    _Atomic uint32_t cell_at, cell_len;      /* these bytes of the stream are in the cell */
    uint8_t cell[SOFTDAT_CELL];
};

_Static_assert(sizeof(struct softdat_half) == 128, "two cache lines, which come as a pair");

/* Whether one side can move bytes to and from the other's address space (direct.c). */
struct softdat_reach {
    uint64_t word_at, word;      /* what the other side may try to read; 0: not offered */
    _Atomic uint32_t reaches;    /* it has read the other's word */
    _Atomic uint32_t consent;    /* to transfers that the other side carries (direct.c) */
};

enum {
    SOFTDAT_RING = 1 << 16,      /* bytes, each direction; a power of two */
    SOFTDAT_SEGMENT_MAGIC = 0x5dda7005,
};

/* What two processes share. */
struct softdat_segment {
    uint32_t magic, ring;
    struct softdat_reach reach[2];
    struct softdat_half half[2]; /* of the caller, of the called */
    _Alignas(128) uint8_t bytes[2][SOFTDAT_RING];
};

struct softdat_shared {
    struct softdat_segment *seg; /* NULL: none */
    struct softdat_half *mine, *theirs;
    struct softdat_reach *my_reach, *their_reach;
    pid_t pid;                   /* of the other side, as we see it */
    bool reaches;                /* we have told that we reach its memory */
    uint8_t *out, *in;           /* the rings */
    uint32_t tail, head;         /* mine, not all of it published */
    uint32_t told;               /* head, as published */
    uint32_t their_tail, their_head;  /* as last seen */
    uint32_t heard;              /* executed by them, as last seen */
    uint32_t rung;               /* their sleep for which the bell has been rung */
    uint32_t cell_at;            /* where the last cell of ours lies in the stream */
    bool cell_live;              /* it has not been withdrawn */
};

struct softdat_conn {
    struct softdat_sock sock;
    struct softdat_list link;    /* on ia->conns */
    struct softdat_list acks;    /* on ia->acks while an acknowledgement is owed */
    struct softdat_list polled;  /* on ia->rings while ringed, on ia->streams while it is open
                                    and a socket carries its frames */
    struct softdat_list slow;    /* on ia->slow until `resume` */
    struct softdat_list doomed;  /* on ia->doomed when it is to break (fault.c) */
    bool blamed;                 /* doomed: the request that is to blame has its status */
    struct softdat_ia *ia;
    struct softdat_ep *ep;
    struct softdat_cr *cr;
    struct softdat_sp *sp;       /* INCOMING: whom it has called */
    enum softdat_conn_phase phase;
    struct sockaddr_in peer;
    uint64_t deadline;           /* ns; 0: none */
    uint8_t port;                /* through which of the adapter's */
    bool local;                  /* same host: an abstract unix socket */
    struct softdat_shared shared;
    bool ringed;                 /* frames go through shared rings, not the socket */
    bool stream;                 /* it is on ia->streams */
    int segment_fd;              /* CALLED: leaves with CONNECT; else -1 */

    /* out */
    struct softdat_list outs;
    struct iovec cur[SOFTDAT_MAX_IOV + 2];   /* the frame being written */
    int cur_n, cur_at;
    struct softdat_frame cur_hdr;
    struct softdat_out *cur_out; /* what it is: one of outs, else a request of the EP */
    struct softdat_piece cur_list[SOFTDAT_MAX_IOV];
    uint64_t cur_due;            /* on a slow wire: not before, ns */
    uint32_t cur_frees;          /* ia->frees when its memory was last found registered */
    uint64_t wire_free, resume;  /* ns: when more may be written; when to go on */
    bool said_bye;
    bool blocked;                /* ringed: the ring is full, go on when there is room */

    /* in */
    struct softdat_frame hdr;
    size_t hdr_have;
    struct softdat_sink sink;
    uint8_t *target;             /* WRITE, PULL, PUSH, ATOMIC: where addr is */
    uint32_t hdr_frees;          /* ia->frees when its memory was last found registered */
    uint8_t tail[8];             /* the last word of an RDMA write, to be stored last */
    size_t tail_len;
    uint8_t priv[SOFTDAT_PRIV_MAX];
    struct softdat_list held;    /* sends that wait for a receive */
    struct softdat_list waiting; /* on the receive queue's list meanwhile */
    struct softdat_held *holding;/* the one being received */
    size_t held_bytes;
    bool stalled;                /* too much is held: do not read on */
    bool poisoned;               /* a NAK is out: ignore what comes */
    bool heard_bye;
    uint32_t executed, acked;    /* SENDs and WRITEs of the peer: done, told */
    uint64_t unacked_bytes;      /* of those not told */
    bool expect_long;            /* the last frame was long: so may be the next */
};

struct softdat_held {
    struct softdat_list link;
    size_t len;
    bool imm;                    /* not a send: news of a write with immediate data */
    uint32_t imm_data;           /* imm: the data, and the bytes that were written */
    uint64_t written;
    uint8_t data[];
};

/* -- endpoints -------------------------------------------------------------------------------- */

/* A bind that has been posted (mem.c): the region is what the new context opens. */
struct softdat_bind {
    struct softdat_rmr *rmr;
    struct softdat_lmr *lmr;     /* NULL: unbind */
    struct softdat_region region;
};

enum { SOFTDAT_DTO_BIND = 0x100 };   /* beside DAT_DTOS and DAT_IB_DTOS */

enum softdat_dto_state { SOFTDAT_DTO_QUEUED, SOFTDAT_DTO_SENT, SOFTDAT_DTO_DONE };

/* A local segment of a DTO. */
struct softdat_seg {
    uint8_t *at;
    size_t len;
    uint32_t key;                /* of the registration that it lies in */
};

struct softdat_dto {
    DAT_DTO_COOKIE cookie;
    int op;                      /* DAT_DTOS, DAT_IB_DTOS or SOFTDAT_DTO_BIND */
    DAT_COMPLETION_FLAGS flags;
    enum softdat_dto_state state;
    DAT_DTO_COMPLETION_STATUS status;
    uint32_t seq;                /* SEND and WRITE: its number, for the acknowledgement */
    uint64_t len;                /* bytes asked for; for a receive, after the end, bytes received */
    uint64_t raddr;
    uint64_t due;                /* on a slow wire: not before, ns */
    uint32_t rkey;
    uint32_t frees;              /* ia->frees when its segments were last found registered */
    bool direct;                 /* the target carries the bytes */
    int n_seg;
    struct softdat_seg *seg;     /* its place in the ring's array */
    uint8_t ext;                 /* an extended event: 1 + its DAT_IB_EXT_TYPE; else 0 */
    uint32_t imm;                /* immediate data, sent or received */
    uint64_t operand[2];         /* of an atomic operation: add; or compare, swap */
    struct softdat_bind bind;
};

/* Does it bring data back? Such requests complete with their answers, in their order. */
static inline bool softdat_is_read(const struct softdat_dto *d)
{
    return d->op == DAT_DTO_RDMA_READ || d->op == DAT_IB_DTO_FETCH_ADD
           || d->op == DAT_IB_DTO_CMP_SWAP;
}

/* A ring of posted DTOs, oldest first. */
struct softdat_ring {
    struct softdat_dto *dto;
    struct softdat_seg *seg;
    uint32_t size, head, count;
    uint32_t sent;               /* requests: how many from head on have been started */
};

/* A queue of receives: an EP's own, or one that EPs share (rq.c). */
struct softdat_rq {
    struct softdat_ring ring;
    uint32_t max_iov;
    struct softdat_list waiting; /* connections that hold sends for which there was no receive */
};

struct softdat_srq {
    struct softdat_handle h;
    struct softdat_pz *pz;
    struct softdat_rq rq;
    uint32_t low_watermark;      /* an event when fewer receives are left; 0: disarmed */
    uint32_t taken;              /* receives that have left the queue and not completed */
    int users;
};

struct softdat_ep {
    struct softdat_handle h;
    DAT_EP_STATE state;          /* changed by softdat_ep_step() only */
    DAT_EP_ATTR attr;
    struct softdat_pz *pz;
    struct softdat_evd *recv_evd, *req_evd, *conn_evd;
    struct softdat_conn *conn;
    struct softdat_rq own, *rq;  /* rq: own, or of srq */
    struct softdat_srq *srq;
    struct softdat_dto taken;    /* the receive that the arriving send goes to */
    struct softdat_seg taken_seg[SOFTDAT_MAX_IOV];
    bool has_taken;
    struct softdat_ring req;
    uint32_t next_seq;           /* of the next SEND or WRITE */
    uint32_t reads;              /* RDMA reads under way */
    struct sockaddr_in remote;
    DAT_CONN_QUAL remote_qual;
    uint8_t port;                /* of ours, through which it is connected */
    uint8_t priv[SOFTDAT_PRIV_MAX];   /* private data of the answer, for the event */
};

/* -- adapters --------------------------------------------------------------------------------- */

/* How two processes of one host are connected: the best that both sides allow. */
enum softdat_local { SOFTDAT_LOCAL_TCP, SOFTDAT_LOCAL_SOCKET, SOFTDAT_LOCAL_SHARED };

/* What can be counted of an adapter; control.c has the names. */
enum softdat_counter {
    SOFTDAT_N_SENDS, SOFTDAT_N_WRITES, SOFTDAT_N_READS, SOFTDAT_N_ATOMICS, SOFTDAT_N_BINDS,
    SOFTDAT_N_BYTES_OUT, SOFTDAT_N_BYTES_READ, SOFTDAT_N_RECVS, SOFTDAT_N_BYTES_IN,
    SOFTDAT_N_DIRECT, SOFTDAT_N_CONNECTS, SOFTDAT_N_BREAKS, SOFTDAT_N_LMRS, SOFTDAT_N_CUTS,
    SOFTDAT_N_FAULTS, SOFTDAT_COUNTERS
};

struct softdat_port {
    struct sockaddr_in addr;
    struct in_addr mask;
    unsigned ifindex;            /* 0: of no interface */
    bool cut;                    /* by daplsoft */
    bool carrier;                /* the interface is up and has one */
};

/* Faults that strike one in so many. */
enum softdat_fault {
    SOFTDAT_FAULT_BREAK,         /* requests: their connection breaks */
    SOFTDAT_FAULT_LOSE,          /* completions: the request was executed, the connection breaks
                                    before its poster hears of it */
    SOFTDAT_FAULT_LMR,           /* registrations */
    SOFTDAT_FAULTS
};

/* What a line of dat.conf sets (config.c). Numbers have one type, so that one row sets any. */
struct softdat_config {
    struct softdat_port port[SOFTDAT_MAX_PORTS];
    uint32_t n_ports;
    uint64_t local;              /* enum softdat_local */
    uint64_t direct_bytes;       /* RDMA of so many bytes goes straight; 0: never */
    uint64_t direct_polled;      /* also while the target polls */
    uint64_t max_priv, max_dtos, max_iov, max_rdma_iov, max_reads, max_message, max_lmrs;
    uint64_t max_lmr_size;
    uint64_t rate;               /* bytes per second and connection; 0: no limit */
    uint64_t latency_us, jitter_us;
    uint64_t retry_ms;           /* how long a path may be down */
    uint64_t seed, max_faults;
    uint64_t one_in[SOFTDAT_FAULTS];     /* 0: never */
    uint64_t fatal_after;        /* requests until the adapter fails; 0: never */
};

struct softdat_ia {
    struct softdat_handle h;
    char name[DAT_NAME_MAX_LENGTH];
    struct softdat_config cfg;
    pthread_mutex_t lock;
    struct softdat_list handles; /* everything on this adapter, for closing it */
    struct softdat_list ended;   /* handles that have been freed, oldest first */
    uint32_t n_ended;
    struct softdat_list conns, acks, dead, rings, streams, slow, doomed;
    int n_streams;
    int n_sockets;               /* connections that are neither ringed nor streams: being made */
    struct softdat_evd *async_evd;
    bool own_async;
    struct softdat_mem_slot *mem;
    uint32_t n_mem, free_mem, n_lmrs;
    uint32_t frees;              /* how many regions have ended, ever */
    uint8_t *scratch;            /* where sockets are read into */
    uint64_t word;               /* random: who reads it can read our memory (direct.c) */
    int n_agents_due;
    uint64_t count[SOFTDAT_COUNTERS];
    uint64_t random, requests;   /* of the laboratory */
    bool fatal, failed;          /* it shall fail at the end of this round; it has failed */
    DAT_NAMED_ATTR named[8];     /* what dat_ia_query tells of this provider */
    DAT_COUNT n_named;
    char port_text[16];

    struct softdat_sock netlink, control;
    struct softdat_sock asker[SOFTDAT_ASKERS];   /* connections of daplsoft */
    unsigned next_asker;
    int epfd;
    int stop_fd;
    pthread_t helper;
    bool helper_runs;
    _Atomic bool stopping;
    _Atomic uint32_t calls;      /* how often the application has polled or waited */
    _Atomic int waiters;         /* threads that sleep in a wait: they make progress themselves */
    _Atomic bool bells_wanted;   /* a sleeper hears of what comes through shared rings */
    uint64_t next_deadline;      /* of all connections */
    uint64_t looked_at_sockets;  /* when, ns */
    uint64_t idle_since;         /* ns; 0: something has come in the last round */
    uint32_t rounds;
};

/* provider.c */
/* The IA parameters of the dat.conf line of this name and its provider; NULL: no such line. */
const char *softdat_line_params(const char *name, DAT_PROVIDER **provider_p);

/* config.c */
/* 0, or -1 after one line on stderr about what is wrong. */
int softdat_config_parse(const char *ia_name, const char *params, struct softdat_config *cfg);

/* ia.c */
void softdat_handle_init(struct softdat_handle *h, struct softdat_ia *ia, DAT_HANDLE_TYPE type);
/* The object ends; called with the lock. Its memory is kept for a while, so that a handle that is
 * used after that is recognised. */
void softdat_handle_end(struct softdat_handle *h);
/* The object of a handle if it is alive and of this type, else NULL. */
void *softdat_get(DAT_HANDLE handle, DAT_HANDLE_TYPE type);
void softdat_lock(struct softdat_ia *ia);
void softdat_unlock(struct softdat_ia *ia);
DAT_RETURN softdat_ia_open(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *);
DAT_RETURN softdat_ia_query(DAT_IA_HANDLE, DAT_EVD_HANDLE *, DAT_IA_ATTR_MASK, DAT_IA_ATTR *,
                            DAT_PROVIDER_ATTR_MASK, DAT_PROVIDER_ATTR *);
DAT_RETURN softdat_ia_close(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

/* evd.c */
struct softdat_evd *softdat_evd_make(struct softdat_ia *ia, DAT_COUNT qlen, DAT_EVD_FLAGS flags);
void softdat_evd_destroy(struct softdat_evd *evd);
void softdat_evd_post(struct softdat_evd *evd, const DAT_EVENT *event);
/* The same in two steps: fill the slot, then push it. NULL: it overflows, which has been told. */
DAT_EVENT *softdat_evd_slot(struct softdat_evd *evd);
void softdat_evd_push(struct softdat_evd *evd);
void softdat_run_agents(struct softdat_ia *ia);

/* mem.c */
struct softdat_region *softdat_region_find(struct softdat_ia *ia, uint32_t key);
/* Where these bytes are, NULL when there is no such region, or it does not allow it. */
uint8_t *softdat_region_at(const struct softdat_region *region, const struct softdat_pz *pz,
                           uint64_t addr, uint64_t len, DAT_MEM_PRIV_FLAGS priv);
/* Are the registrations still there in which the segments of d lie? */
bool softdat_segs_registered(struct softdat_ia *ia, struct softdat_dto *d);
/* What a posted bind does in its turn. */
void softdat_bind_apply(struct softdat_bind *bind);
/* It will never have its turn. */
void softdat_bind_cancel(struct softdat_bind *bind);

/* net.c */
uint64_t softdat_now(void);
int softdat_net_start(struct softdat_ia *ia);
void softdat_net_stop(struct softdat_ia *ia);
int softdat_sock_add(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events);
void softdat_sock_watch(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events);
void softdat_sock_close(struct softdat_ia *ia, struct softdat_sock *s);
/* A muted socket is not looked at. */
void softdat_sock_mute(struct softdat_ia *ia, struct softdat_sock *s, bool mute);
/* One round over the sockets (lock held). Returns how many were ready. */
int softdat_progress(struct softdat_ia *ia);
/* Sleeps until there may be something to do, efd is written, or ns have passed. Called with the
 * lock, which is given back meanwhile. */
void softdat_sleep(struct softdat_ia *ia, int efd, uint64_t ns);

/* cm.c */
struct softdat_conn *softdat_conn_make(struct softdat_ia *ia, int fd,
                                       enum softdat_conn_phase phase);
/* Ends it; what is queued may still be written when `linger`. */
void softdat_conn_leave(struct softdat_conn *c, bool linger);
void softdat_conn_free(struct softdat_conn *c);
/* A frame of connection management has arrived whole. False: not possible now. */
bool softdat_cm_frame(struct softdat_conn *c);
/* The socket has ended or broken. */
void softdat_conn_lost(struct softdat_conn *c);
/* The transport gives it up: its oldest request completes with `status`. */
void softdat_conn_break(struct softdat_conn *c, DAT_DTO_COMPLETION_STATUS status);
void softdat_conn_deadline(struct softdat_conn *c, uint64_t ns);
void softdat_conn_expire(struct softdat_conn *c);
/* Is the other end of a unix socket a process of the same user? */
bool softdat_same_user(int fd);

/* ep.c */
void softdat_ep_event(struct softdat_ep *ep, DAT_EVENT_NUMBER number, const void *priv,
                      size_t priv_len);
/* Takes the completed requests off the head of the ring and tells of them. */
void softdat_ep_reap(struct softdat_ep *ep);
/* Takes the next receive for an arriving send: ep->taken. NULL: there is none. */
struct softdat_dto *softdat_ep_take_recv(struct softdat_ep *ep);
/* The taken receive completes; imm: a write with immediate data has used it. */
void softdat_ep_recv_done(struct softdat_ep *ep, DAT_DTO_COMPLETION_STATUS status, uint64_t len,
                          const uint32_t *imm);
void softdat_ep_flush(struct softdat_ep *ep);
bool softdat_ep_attr_fits(const struct softdat_config *cfg, const DAT_EP_ATTR *attr);
/* The connection is over: flush everything, one event. */
void softdat_ep_down(struct softdat_ep *ep, DAT_EVENT_NUMBER number);
void softdat_ep_destroy(struct softdat_ep *ep);

/* rq.c */
struct softdat_dto *softdat_ring_at(struct softdat_ring *r, uint32_t i);
bool softdat_ring_make(struct softdat_ring *r, uint32_t size, uint32_t seg_each);
void softdat_ring_free(struct softdat_ring *r);
void softdat_ring_pop(struct softdat_ring *r);
/* The oldest request that has not finished; NULL: none. */
struct softdat_dto *softdat_ring_unfinished(struct softdat_ring *r);
bool softdat_rq_make(struct softdat_rq *rq, uint32_t size, uint32_t seg_each);
/* A receive has left the shared queue: is that to be told? */
void softdat_srq_took(struct softdat_srq *srq);

/* post.c */
/* Posts a bind; called with the lock. */
DAT_RETURN softdat_ep_post_bind(struct softdat_ep *ep, const struct softdat_bind *bind,
                                DAT_RMR_COOKIE cookie, DAT_COMPLETION_FLAGS flags);
/* Posts a receive to a queue whose memory is of pz; called with the lock. */
DAT_RETURN softdat_rq_post(struct softdat_ia *ia, struct softdat_rq *rq,
                           const struct softdat_pz *pz, DAT_COUNT n, const DAT_LMR_TRIPLET *seg,
                           DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags);

/* tx.c */
void softdat_tx_pump(struct softdat_conn *c);
bool softdat_tx_frame(struct softdat_conn *c, enum softdat_frame_type type, const void *priv,
                      size_t len);
/* The answer to a READ: len bytes at data, registered under key. */
bool softdat_tx_read_data(struct softdat_conn *c, const void *data, uint32_t len, uint32_t key);
/* Forgets the frames that would read registered memory. False: one of them has left in part. */
bool softdat_tx_drop_answers(struct softdat_conn *c);
bool softdat_tx_nak(struct softdat_conn *c, uint32_t id, DAT_DTO_COMPLETION_STATUS status);
/* Nothing came in this round: whoever waits for an acknowledgement waits for us. */
void softdat_tx_idle_acks(struct softdat_ia *ia);
/* We are going to sleep: all that is owed leaves. */
void softdat_tx_acks(struct softdat_ia *ia);
void softdat_tx_owe_ack(struct softdat_conn *c);
bool softdat_tx_idle(const struct softdat_conn *c);

/* rx.c */
/* Reads what the socket has. Returns whether there was anything. */
bool softdat_rx_ready(struct softdat_conn *c);
/* A receive has been posted: held sends may go on. */
void softdat_rx_posted(struct softdat_rq *rq);
void softdat_rx_free(struct softdat_conn *c);
/* Looks at a shared ring. Returns whether anything had happened there. */
bool softdat_rx_ring(struct softdat_conn *c);

/* shared.c */
/* The caller's side makes the segment. A file descriptor for the other side, or -1: none. */
int softdat_shared_make(struct softdat_conn *c);
/* The called side takes it (and the descriptor, in any case). */
bool softdat_shared_take(struct softdat_conn *c, int fd);
/* Both sides have it: from now on frames go through it. */
void softdat_shared_start(struct softdat_conn *c);
void softdat_shared_free(struct softdat_conn *c);
/* Writes what there is room for; the number of bytes. */
size_t softdat_shared_write(struct softdat_conn *c, const struct iovec *iov, int n);
ssize_t softdat_shared_peek(struct softdat_conn *c, const uint8_t **p);
void softdat_shared_took(struct softdat_conn *c, size_t n);
/* Tells the other side what has been read and executed. */
void softdat_shared_tell(struct softdat_conn *c);
bool softdat_shared_has_room(struct softdat_conn *c);

static inline uint32_t softdat_shared_executed(const struct softdat_conn *c)
{
    return atomic_load_explicit(&c->shared.theirs->executed, memory_order_acquire);
}

/* Has the other side written or executed anything new? All that an empty poll costs. */
static inline bool softdat_shared_news(const struct softdat_conn *c)
{
    return atomic_load_explicit(&c->shared.theirs->tail, memory_order_relaxed) != c->shared.head
           || softdat_shared_executed(c) != c->shared.heard;
}
/* From now on bells are wanted. False: there is something to do already. */
bool softdat_shared_doze(struct softdat_ia *ia);
void softdat_shared_wake(struct softdat_ia *ia);

/* direct.c */
/* Lets the other side try whether it reaches us; tries whether we reach it. */
void softdat_direct_offer(struct softdat_conn *c);
void softdat_direct_try(struct softdat_conn *c);
/* Shall this transfer be made so? */
bool softdat_direct_possible(const struct softdat_conn *c, uint64_t len);
/* The DTO's memory as the payload of PULL or PUSH; its length in bytes. */
uint32_t softdat_direct_list(const struct softdat_dto *d, struct softdat_piece *out);
/* The target's part, all checks done. The last tail_len bytes of a PULL go to `tail`. */
enum softdat_carried {
    SOFTDAT_CARRIED,
    SOFTDAT_UNREACHABLE,         /* the requester's memory is not there */
    SOFTDAT_WITHDRAWN,           /* the requester has withdrawn its consent */
};
enum softdat_carried softdat_direct_pull(struct softdat_conn *c, uint8_t *tail, size_t tail_len);
enum softdat_carried softdat_direct_push(struct softdat_conn *c);
/* The requester's part: withdraws its consent to all that is under way. When it returns, nobody
 * reads or writes this process's memory for this connection any more. */
void softdat_direct_withdraw(struct softdat_conn *c);
/* A registration ends: withdraws the consent of connections with transfers in it; they break. */
void softdat_direct_region_gone(struct softdat_ia *ia, uint32_t key);

/* path.c */
void softdat_path_start(struct softdat_ia *ia);
void softdat_path_stop(struct softdat_ia *ia);
/* The port from which to call that address; -1: none is up. */
int softdat_path_choose(const struct softdat_ia *ia, struct in_addr to);
/* Cuts or heals a port, counted from 0; false: there is none. */
bool softdat_path_set(struct softdat_ia *ia, int port, bool cut);
/* Is nothing to be written to it or read from it? */
bool softdat_path_cut(const struct softdat_conn *c);
/* The connection has been opened, or its port has changed: when is it to be looked at? */
void softdat_path_watch(struct softdat_conn *c);
/* That time has come. */
void softdat_path_expired(struct softdat_conn *c);

/* fault.c */
/* When a frame that is posted now may leave; 0: at once. */
uint64_t softdat_slow_due(struct softdat_ia *ia);
/* How many bytes of the current frame may be written now; 0: none, it will be resumed. */
size_t softdat_slow_allow(struct softdat_conn *c);
void softdat_slow_wrote(struct softdat_conn *c, size_t n);
void softdat_slow_resume(struct softdat_ia *ia);
/* When that is due next, UINT64_MAX: never. */
uint64_t softdat_slow_next(const struct softdat_ia *ia);
bool softdat_fault_strikes(struct softdat_ia *ia, enum softdat_fault what);
/* A request starts: may anything happen to it? */
void softdat_fault_request(struct softdat_conn *c);
/* It will break at the end of this round; meanwhile it writes nothing and completes nothing. */
void softdat_fault_doom(struct softdat_conn *c);
/* The same, and this request of its endpoint completes with the status. */
void softdat_fault_blame(struct softdat_conn *c, struct softdat_dto *d,
                         DAT_DTO_COMPLETION_STATUS status);
void softdat_fault_execute(struct softdat_ia *ia);

static inline bool softdat_doomed(const struct softdat_conn *c)
{
    return !softdat_list_empty(&c->doomed);
}

/* control.c */
void softdat_control_start(struct softdat_ia *ia);
void softdat_control_stop(struct softdat_ia *ia);

/* tx.c */
/* Steps over n bytes. */
void softdat_iov_step(struct iovec **v, int *n_v, size_t n);

#endif
