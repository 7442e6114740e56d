/* SPDX-License-Identifier: MIT */
/*
 * Verbs among the processes of one host, without a kernel: stands in for libibverbs.so.1 and
 * librdmacm.so.1 under unmodified uDAPL providers. This header is what its files share.
 *
 * All objects of all processes lie in one file of the folder that VERBS_DIR names, under one lock
 * that survives the death of its holder. Who posts a request or a receive carries out what has
 * become possible by it, in the order of the send queue, with process_vm_readv() and
 * process_vm_writev(): so one of the two processes is always the caller. Events of completion
 * channels and of the connection manager arrive through FIFOs in that folder.
 *
 * Rules are those of the InfiniBand specification, volume 1, chapters 10 and 11, for RC:
 *  - each byte of a request lies in a registration of the QP's protection domain with the access
 *    that the operation needs (10.6); an access error ends both QPs, a local one its own;
 *  - a send without a receive waits for one: the retry count for RNR is taken as infinite;
 *  - in the error state what is posted and what is queued is flushed, in RESET it vanishes;
 *    receives that are posted in the error state are flushed when it is set again, as with
 *    Soft-RoCE, and with iWARP what is posted then vanishes, as with soft-iWARP;
 *  - an entry of the send queue is free only when the completion of it or of a later one has been
 *    polled (10.8.5), so who never asks for a completion fills the queue;
 *  - completions of a QP stay in the CQ when the QP is destroyed or reset, as with Soft-RoCE;
 *  - a shared receive queue keeps its receives when a QP on it ends, which has an event then
 *    (11.6.3.6); the event of its limit arrives once (11.2.3.3).
 *  - with VERBS_MIGRATE=1 a QP has an alternate path (17.2.8): when both sides have rearmed they
 *    are armed, and when a request finds its path cut, or one side asks, both migrate;
 *  - a datagram to a QP that is not there, has another Q_Key or no receive vanishes (UD, 9.8.3).
 * With VERBS_TRANSPORT=infiniband the port is one of InfiniBand, with a LID, as UCX wants it for UD
 * where /sys has no types of GIDs.
 * Not there: memory windows, timers. A request to a QP that has ended fails at the next attempt
 * instead of after the retries.
 */
#ifndef HV_H
#define HV_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#undef ibv_query_port
#undef ibv_reg_mr

enum {
    HV_QPS = 1024,
    HV_CQS = 1024,
    HV_MRS = 16384,
    HV_SRQS = 64,
    HV_IDS = 4096,
    HV_WRS = 512,         /* requests of a QP */
    HV_RECV_WRS = 4096,   /* receives of a QP or a shared queue */
    HV_CQES = 16384,      /* entries of a CQ */
    HV_SGES = 8,
    HV_GRH = 40,          /* bytes before a datagram in its receive (11.4.1.2) */
    HV_INLINE = 256,      /* bytes */
    HV_GIDS = 3,
    HV_READS = 16,        /* RDMA reads at once */
    HV_QPN_MASK = 0xffffff,
};

/* A request. Inlined bytes lie in data, which every process can read. */
struct hv_send {
    uint64_t id, remote, compare_add, swap;
    uint32_t rkey, imm, bytes;
    uint32_t from, to, qkey;    /* of a datagram: QPs */
    uint8_t op, n_sge;
    bool signaled, inlined;
    struct ibv_sge sge[HV_SGES];
    uint8_t data[HV_INLINE];
};

struct hv_recv {
    uint64_t id;
    uint32_t bytes;
    uint8_t n_sge;
    struct ibv_sge sge[HV_SGES];
};

/* Posted receives, of a QP or shared: [tail, head). */
struct hv_rq {
    uint32_t max, head, tail;
    struct hv_recv recv[HV_RECV_WRS];
};

/*
 * num of any object: its place in the table plus a multiple of the table's length that grows with
 * each use of the place, so that a number of the past is never found; 0 while the place is free.
 * Queues: entries [tail, head) by index modulo their length.
 */
/* A path: IPv4 addresses in network order; 0: none. */
struct hv_path {
    uint32_t local, remote;
};

struct hv_qp {
    uint32_t num, uses, pd, send_cq, recv_cq;
    uint32_t srq;         /* 0: it has receives of its own */
    uint32_t async;       /* FIFO of its context's asynchronous events */
    bool ud;              /* unreliable datagrams, not RC */
    bool signal_all;      /* each request makes a completion, flagged or not */
    uint32_t qkey;        /* ... of the datagrams that it takes */
    uint32_t dest;        /* number of the peer's QP; 0: not connected */
    pid_t pid;
    int state, access;
    struct hv_path path, alternate;
    int migration;        /* enum ibv_mig_state */
    uint32_t send_max;
    uint32_t send_polled; /* requests below it have been reported, or lie before one that has */
    uint32_t send_head, send_tail;
    bool hold;            /* iWARP: the passive side transmits after the active side's first byte */
    bool early;           /* ... and had something to transmit before that */
    struct hv_rq rq;
    struct hv_send send[HV_WRS];
};

struct hv_srq {
    uint32_t num, uses, pd, async;
    uint32_t limit;       /* below so many receives there is an event; 0: none */
    struct hv_rq rq;
};

struct hv_cqe {
    uint64_t id;
    int status, op;
    uint32_t bytes, qpn, imm;
    uint32_t from;        /* QP of a datagram */
    uint32_t polled;      /* of the send queue: the new hv_qp.send_polled */
    bool of_send, with_imm;
};

struct hv_cq {
    uint32_t num, uses, fifo, max, head, tail;
    bool armed;
    struct hv_cqe cqe[HV_CQES];
};

struct hv_mr {
    uint32_t num, uses, pd;
    int access;
    pid_t pid;
    uint64_t start, bytes;
};

enum hv_cm_state { HV_IDLE, HV_CALLING, HV_CALLED, HV_UP, HV_DREQ_SENT, HV_DREQ_RECEIVED, HV_OVER };

/* A connection manager's identifier. */
struct hv_id {
    uint32_t num, uses, fifo, peer, qpn;
    enum hv_cm_state state;
    bool listening;
    uint16_t port;        /* bound to, host order; 0: none */
    uint32_t addr;        /* the same, network order */
};

struct hv_shared {
    pthread_mutex_t lock;
    bool ready;
    uint32_t next_fifo, next_pd, next_port;
    uint32_t cut;         /* no path of this address carries anything; 0: none */
    struct hv_qp qp[HV_QPS];
    struct hv_cq cq[HV_CQS];
    struct hv_srq srq[HV_SRQS];
    struct hv_mr mr[HV_MRS];
    struct hv_id id[HV_IDS];
};

/* What is counted of a process. Exported as ibv_hv_count(), and written to VERBS_DIR/count.PID. */
enum hv_count {
    HV_SEND_CALLS,        /* of ibv_post_send: doorbells of a send queue */
    HV_SENDS,             /* requests in them */
    HV_RECV_CALLS,
    HV_RECVS,
    HV_POLLS,             /* of CQs */
    HV_COMPLETIONS,       /* polled */
    HV_ARMS,              /* of CQs */
    HV_NOTIFICATIONS,     /* by completion channels */
    HV_COUNTS
};

/* What one process knows: the shared file, and its handles by place in the shared tables. */
struct hv_cq_handle {
    struct ibv_cq cq;
    uint32_t num;
};
struct hv_qp_handle {
    struct ibv_qp qp;
    struct hv_qp *of;
    struct ibv_qp_cap cap;
    int unacked;          /* asynchronous events that have been returned and not acknowledged */
};
struct hv_srq_handle {
    struct ibv_srq srq;
    struct hv_srq *of;
    int unacked;
};
struct hv_context {
    struct ibv_context context;
    uint32_t async;       /* FIFO */
};
/* An asynchronous event as it travels: of which object, by its number. */
struct hv_async {
    int type;
    uint32_t num;
};
struct hv_id_handle {
    struct rdma_cm_id id;
    struct ibv_sa_path_rec path;
    uint32_t num;
    int unacked;          /* events that have been returned and not acknowledged */
};
struct hv_process {
    struct hv_shared *shared;
    const char *folder;
    pid_t pid;
    bool iwarp;           /* VERBS_TRANSPORT=iwarp */
    bool infiniband;      /* VERBS_TRANSPORT=infiniband; else RoCE */
    bool withdraw;        /* VERBS_WITHDRAW=1: cm.c */
    bool migrate;         /* VERBS_MIGRATE=1: paths.c */
    bool ordered;         /* VERBS_ORDERED=1: writes are placed in order */
    bool port_down;       /* VERBS_PORT_DOWN=1 */
    uint64_t lockable;    /* VERBS_MEMLOCK=BYTES: of memory for CQs and registrations, else all */
    uint64_t locked;      /* with the lock */
    struct ibv_device device;
    struct ibv_context *cm_context;
    struct hv_cq_handle *cq[HV_CQS];
    struct hv_qp_handle *qp[HV_QPS];
    struct hv_srq_handle *srq[HV_SRQS];
    struct hv_id_handle *id[HV_IDS];
    unsigned long count[HV_COUNTS];
};

/* -- shared.c: the process, opened at the first call; the lock; FIFOs -- */

struct hv_process *hv_process(void);
void hv_lock(void);
void hv_unlock(void);

/*
 * HV_NEW(table, length): a free place of the table, zeroed and with a new number, or NULL. Numbers
 * stay below 2^24, as those of QPs must. HV_NEW_TO(table, length, entries): zeroed up to the member
 * of this name, a long array of which nothing is read before it is written.
 */
#define HV_NEW(table, length) hv_new((table), (length), sizeof((table)[0]), sizeof((table)[0]))
#define HV_NEW_TO(table, length, entries) hv_new((table), (length), sizeof((table)[0]), \
                                                 offsetof(__typeof__((table)[0]), entries))
void *hv_new(void *table, uint32_t length, size_t bytes, size_t zeroed);

/* The object with this number, or NULL. The lock is held. */
struct hv_qp *hv_qp(uint32_t num);
struct hv_cq *hv_cq(uint32_t num);
struct hv_srq *hv_srq(uint32_t num);
struct hv_id *hv_id(uint32_t num);

void hv_count(enum hv_count what, unsigned long n);
/* For tests: the process's count of this name, -1: none; an event of the port of all contexts. */
long ibv_hv_count(const char *name);
void ibv_hv_cut(uint32_t addr);
void ibv_hv_port_event(int type);

/* A new FIFO to read from: its descriptor, and its number through *num. */
int hv_fifo_make(uint32_t *num);
void hv_fifo_remove(uint32_t num, int fd);
/* Writes a message, at most PIPE_BUF bytes; a reader that has gone is none. */
void hv_fifo_write(uint32_t num, const void *message, size_t bytes);

/* -- queue.c: requests and completions; the lock is held -- */

/* Carries out what the QP can transmit. */
void hv_transmit(struct hv_qp *qp);
/* The same for the QP that transmits to this one. */
void hv_transmit_to(struct hv_qp *qp);
/* To the error state: everything that is queued is flushed. */
void hv_fail(struct hv_qp *qp);
/* To RESET: everything that is queued vanishes. */
void hv_reset(struct hv_qp *qp);

/* The receives of a QP, its own or shared ones. */
struct hv_rq *hv_rq(struct hv_qp *qp);
/* Queues a receive. 0, or an errno value. */
int hv_queue_recv(struct hv_rq *rq, const struct ibv_recv_wr *wr);
/* The event of a shared queue with fewer receives than its limit. */
void hv_check_limit(struct hv_srq *srq);
/* ibv.c: waits until a count of events is 0. */
void hv_wait_for_acks(const int *unacked);

/* -- paths.c: alternate paths; the lock is held -- */

/* What ibv_modify_qp() changes of them. 0, or an errno value. */
int hv_path_modify(struct hv_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* Does the path of the QP carry anything, perhaps after a migration of both sides? */
bool hv_path_carries(struct hv_qp *qp, struct hv_qp *peer);
/* The path record of an identifier whose addresses are known. */
void hv_path_record(struct hv_id_handle *id);

/* The fast calls of an ibv_context. */
int hv_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int hv_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int hv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int hv_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int hv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
