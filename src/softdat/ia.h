/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_IA_H
#define SOFTDAT_IA_H
/* Adapters: what a line of dat.conf sets, ports and paths, sockets and the helper thread. */
#include "conn.h"
#include "event.h"
#include "mem.h"

#include <dat2/dat_registry.h>
#include <pthread.h>

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

/* What the adapter's helper thread does (net.c). */
enum softdat_helper_state {
    SOFTDAT_HELPER_MONITORING, SOFTDAT_HELPER_SERVING, SOFTDAT_HELPER_STANDBY
};

struct softdat_ia {
    struct softdat_handle h;
    char name[DAT_NAME_MAX_LENGTH];
    struct softdat_config cfg;
    pthread_mutex_t lock;
    struct softdat_list fork_link; /* on the process's list (fork.c) */
    struct softdat_list objects; /* everything on this adapter, for closing it */
    struct softdat_list freed;   /* handles that have been freed, oldest first */
    uint32_t n_freed;
    struct softdat_list conns, acks, to_free, rings, streams, delayed, to_break;
    int n_streams;
    int n_sockets;               /* connections that are neither ringed nor streams: being made */
    struct softdat_evd *async_evd;
    struct softdat_mem_slot *mem;
    uint32_t n_mem, free_mem, n_lmrs;
    uint32_t regions_freed;      /* how many regions have ended, ever */
    uint8_t *scratch;            /* where sockets are read into */
    uint64_t probe_value;          /* random: who reads it can read our memory (direct.c) */
    int n_agents_due;
    uint64_t count[SOFTDAT_COUNTERS];
    uint64_t random, requests;   /* of the laboratory */
    bool warned;                 /* about a limit of the process */
    int n_unidentified;          /* INCOMING connections */
    uint64_t listen_resume_at;   /* ns: no call is taken until then; 0: they are */
    bool fatal, failed;          /* it shall fail at the end of this round; it has failed */
    DAT_NAMED_ATTR named[8];     /* what dat_ia_query tells of this provider */
    DAT_COUNT n_named;
    char port_text[16];

    struct softdat_sock netlink, control;
    struct softdat_sock control_conn[SOFTDAT_MAX_CONTROL]; /* connections of daplsoft */
    unsigned next_control_conn;
    int epfd;
    int wake_fd;                 /* eventfd of the helper */
    pthread_t helper;
    enum softdat_helper_state helper_state;
    bool work_pending;           /* a ring has something for which no bell will come */
    bool helper_runs;
    _Atomic bool stopping;
    _Atomic uint32_t calls;      /* how often the application has polled or waited */
    int waiters;                 /* threads that sleep in a wait: they make progress themselves */
    bool doorbells_armed;        /* what comes through a ring rings a bell */
    uint64_t next_deadline;      /* of all connections */
    uint64_t last_epoll;         /* when, ns */
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
DAT_RETURN softdat_ia_open(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *);
DAT_RETURN softdat_ia_query(DAT_IA_HANDLE, DAT_EVD_HANDLE *, DAT_IA_ATTR_MASK, DAT_IA_ATTR *,
                            DAT_PROVIDER_ATTR_MASK, DAT_PROVIDER_ATTR *);
DAT_RETURN softdat_ia_close(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

/* net.c */
uint64_t softdat_now(void);
int softdat_net_start(struct softdat_ia *ia);
void softdat_net_stop(struct softdat_ia *ia);
int softdat_sock_add(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events);
void softdat_sock_set_events(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events);
void softdat_sock_close(struct softdat_ia *ia, struct softdat_sock *s);
/* A muted socket is not looked at. */
void softdat_sock_suspend(struct softdat_ia *ia, struct softdat_sock *s, bool mute);
/* One round over the sockets (lock held). Returns how many were ready. */
int softdat_progress(struct softdat_ia *ia);
/* The same by a thread that sleeps between its rounds: as long as bells are wanted, only what the
 * descriptors have is looked at, and its cost does not depend on the number of connections. */
int softdat_progress_blocking(struct softdat_ia *ia);
/* The helper shall watch whether the application calls in. */
void softdat_helper_wake(struct softdat_ia *ia);
/* There is something to do in a ring for which no bell will come. */
void softdat_request_progress(struct softdat_ia *ia);
/* Sleeps until there may be something to do, efd is written, or ns have passed. Called with the
 * lock, which is given back meanwhile. */
void softdat_sleep(struct softdat_ia *ia, int efd, uint64_t ns);

/* listen.c */
/* The time has come to take calls again. */
void softdat_listen_resume(struct softdat_ia *ia);

/* fork.c */
/* From now on, and no longer, a child of this process leaves the adapter to its parent. */
void softdat_fork_register(struct softdat_ia *ia);
void softdat_fork_unregister(struct softdat_ia *ia);

/* path.c */
void softdat_path_start(struct softdat_ia *ia);
void softdat_path_stop(struct softdat_ia *ia);
/* The port from which to call that address; -1: none is up. */
int softdat_path_choose(const struct softdat_ia *ia, struct in_addr to);
/* Cuts or heals a port, counted from 0; false: there is none. */
bool softdat_path_set(struct softdat_ia *ia, int port, bool cut);
/* Takes calls on all ports that are not cut, or none. */
void softdat_path_listen(struct softdat_ia *ia, bool on);
/* The connection has been opened, or its port has changed: when is it to be looked at? */
void softdat_path_set_deadline(struct softdat_conn *c);
/* It stands, between hosts: the kernel watches over its path while nothing is under way. */
void softdat_path_keep_alive(const struct softdat_conn *c);
/* That time has come. */
void softdat_path_expired(struct softdat_conn *c);

/* fault.c */
/* As softdat_delay_due and softdat_rate_allow (quick.h) on a slow wire. */
uint64_t softdat_delay_draw_due(struct softdat_ia *ia);
size_t softdat_rate_limit(struct softdat_conn *c);
/* It goes on at that time, ns. */
void softdat_delay_until(struct softdat_conn *c, uint64_t when);
void softdat_delay_resume(struct softdat_ia *ia);
/* When that is due next, UINT64_MAX: never. */
uint64_t softdat_delay_next(const struct softdat_ia *ia);
/* As softdat_fault_injected (quick.h) when such faults are wanted. */
bool softdat_fault_draw(struct softdat_ia *ia, enum softdat_fault what);
/* A request starts: may anything happen to it? */
void softdat_fault_on_request(struct softdat_conn *c);
/* It will break at the end of this round; meanwhile it writes nothing and completes nothing. */
void softdat_fault_break_later(struct softdat_conn *c);
/* The same, and this request of its endpoint completes with the status. */
void softdat_fault_fail_request(struct softdat_conn *c, struct softdat_dto *d,
                                DAT_DTO_COMPLETION_STATUS status);
void softdat_fault_execute(struct softdat_ia *ia);

/* control.c */
void softdat_control_start(struct softdat_ia *ia);
void softdat_control_stop(struct softdat_ia *ia);

#endif
