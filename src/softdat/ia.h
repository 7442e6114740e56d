/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_IA_H
#define SOFTDAT_IA_H
/* Adapters: parameters, ports and paths, sockets, the helper thread. */
#include "conn.h"
#include "event.h"
#include "judge.h"
#include "datlock.h"
#include "mem.h"

#include <dat2/dat_registry.h>
#include <pthread.h>

/* The link between two processes of one host: the best that both sides permit. */
enum softdat_local { SOFTDAT_LOCAL_TCP, SOFTDAT_LOCAL_SOCKET, SOFTDAT_LOCAL_SHARED };

/* The link of long RDMA while its target polls; AUTO: the faster one (judge.h). */
enum softdat_polled { SOFTDAT_POLLED_RINGS, SOFTDAT_POLLED_DIRECT, SOFTDAT_POLLED_AUTO };

/* Counters of an adapter; control.c has their names. */
enum softdat_counter {
    SOFTDAT_N_SENDS, SOFTDAT_N_WRITES, SOFTDAT_N_READS, SOFTDAT_N_ATOMICS, SOFTDAT_N_BINDS,
    SOFTDAT_N_BYTES_OUT, SOFTDAT_N_BYTES_READ, SOFTDAT_N_RECVS, SOFTDAT_N_BYTES_IN,
    SOFTDAT_N_DIRECT, SOFTDAT_N_CONNECTS, SOFTDAT_N_BREAKS, SOFTDAT_N_LMRS, SOFTDAT_N_CUTS,
    SOFTDAT_N_FAULTS, SOFTDAT_N_MIGRATIONS, SOFTDAT_COUNTERS
};

struct softdat_port {
    struct sockaddr_in addr;
    struct in_addr mask;
    unsigned ifindex;            /* 0: the address belongs to no interface */
    bool cut;                    /* by daplsoft */
    bool carrier;                /* the interface is up and has a carrier */
    uint64_t free_at;            /* link emulation: ns, when the rate permits more bytes */
};

/* Faults that are injected at random, one in so many cases or in so much time. */
enum softdat_fault {
    SOFTDAT_FAULT_BREAK,         /* a request breaks its connection */
    SOFTDAT_FAULT_LOSE,          /* a completion is lost: the request is executed, then the
                                    connection breaks before the request completes */
    SOFTDAT_FAULT_LMR,           /* a registration fails */
    SOFTDAT_FAULTS
};

/* How often: one case in n, or in n milliseconds; 0: never. */
struct softdat_often {
    uint64_t n;
    bool by_time;
};

/* The IA parameters of a dat.conf line (config.c). All numbers are uint64_t, so that one row type
 * of config.c sets any of them. */
struct softdat_config {
    struct softdat_port port[SOFTDAT_MAX_PORTS];
    uint32_t n_ports;
    uint64_t local;              /* enum softdat_local */
    uint64_t direct_bytes;       /* RDMA of at least so many bytes is copied directly; 0: none */
    uint64_t polled;             /* enum softdat_polled: while the target polls */
    uint64_t max_priv, max_dtos, max_iov, max_rdma_iov, max_reads, max_message, max_lmrs;
    uint64_t max_lmr_size;       /* bytes */
    uint64_t rate;               /* bytes per second and connection; 0: no limit */
    uint64_t latency_us, jitter_us;
    uint64_t port_rate[SOFTDAT_MAX_PORTS];       /* of all connections of a port together */
    uint64_t port_latency_us[SOFTDAT_MAX_PORTS];
    bool limits, delays;         /* there is a rate, or a latency or jitter, of whatever kind */
    uint64_t retry_ms;           /* time after which connections over a down path break */
    uint64_t path_timeout_ms;    /* time without acknowledgement after which they migrate */
    uint64_t seed, max_faults;
    struct softdat_often often[SOFTDAT_FAULTS];
    uint64_t fatal_after;        /* requests until the adapter fails; 0: it does not */
};

/* States of the helper thread (net.c). */
enum softdat_helper_state {
    SOFTDAT_HELPER_MONITORING,   /* the application makes progress: checks that it goes on */
    SOFTDAT_HELPER_SERVING,      /* the application computes: makes progress in its place */
    SOFTDAT_HELPER_STANDBY,      /* a thread of the application waits and makes progress */
};

struct softdat_ia {
    struct softdat_handle h;
    char name[DAT_NAME_MAX_LENGTH];
    struct softdat_config cfg;
    struct datlock lock;
    struct softdat_list fork_link; /* on the process's list of adapters (fork.c) */
    struct softdat_list objects; /* objects of this adapter that have handles */
    struct softdat_list freed;   /* freed objects, oldest first */
    uint32_t n_freed;
    struct softdat_list conns;   /* all connections */
    struct softdat_list acks;    /* those with a pending acknowledgement */
    struct softdat_list to_free; /* ended connections, freed at the end of the round */
    struct softdat_list rings;   /* connections whose frames travel through rings */
    struct softdat_list streams; /* open connections whose frames travel on sockets */
    struct softdat_list delayed; /* connections that continue at a given time */
    struct softdat_list to_break; /* connections that break at the end of the round */
    struct softdat_list standbys; /* struct softdat_alternate: a standby is made at a given time */
    int n_streams;
    int n_sockets;               /* connections on neither list: not open yet */
    struct softdat_evd *async_evd;
    struct softdat_mem_slot *mem;
    uint32_t n_mem, free_mem, n_lmrs;
    uint32_t regions_freed;      /* number of regions freed, in total */
    uint8_t *scratch;            /* buffer for reads from sockets */
    uint64_t probe_value;        /* random; a peer that reads it can read this process's memory */
    struct softdat_judge judge_write, judge_read;    /* of RDMA to and from polling targets */
    int n_agents_due;
    uint64_t count[SOFTDAT_COUNTERS];
    uint64_t fault_at[SOFTDAT_FAULTS];   /* of faults by time: of the next one, ns; 0: not known */
    uint64_t random, requests;   /* of fault injection: generator state, requests posted */
    bool warned;                 /* softdat_warn_once() has printed its line */
    int n_unidentified;          /* connections in SOFTDAT_ACCEPTED */
    uint64_t listen_resume_at;   /* ns: accepting is paused until then; 0: not paused */
    bool fatal;                  /* the adapter is to fail at the end of this round */
    bool failed;                 /* it has failed */
    DAT_NAMED_ATTR named[12];    /* named attributes for dat_ia_query */
    DAT_COUNT n_named;
    char port_text[16];          /* address of the second port */
    char ports_text[4];          /* number of ports */
    bool uses_paths;             /* an operation of dat_path_extensions.h was called */

    struct softdat_sock netlink; /* carrier changes (path.c) */
    struct softdat_sock control; /* listens for daplsoft (control.c) */
    struct softdat_sock control_conn[SOFTDAT_MAX_CONTROL];
    unsigned next_control_conn;
    int epfd;
    int wake_fd;                 /* eventfd that wakes the helper thread */
    pthread_t helper;
    enum softdat_helper_state helper_state;
    bool work_pending;           /* a ring has work that no doorbell announces */
    bool helper_runs;
    _Atomic bool stopping;       /* the helper thread has to end */
    _Atomic uint32_t calls;      /* number of polls and waits by the application */
    int waiters;                 /* threads of the application that sleep in a wait */
    bool doorbells_armed;        /* peers send a doorbell when they write a ring */
    bool rings_blocked;          /* a ring was full, or not to be read, in the last round */
    uint64_t next_deadline;      /* earliest of connections and standbys, ns; UINT64_MAX: none */
    uint64_t last_epoll;         /* ns */
    uint64_t epoll_period;       /* ns from one poll of epoll to the next; it adapts */
    uint64_t idle_since;         /* ns: no input since then; 0: input in the last round */
    uint64_t changes;            /* calls and rounds that may have changed a connection's usual
                                    case (quick.h, softdat_changing()); not 0 while one exists */
    uint32_t rounds;
    uint32_t next_complete;      /* the call that makes the next complete round */
    uint32_t quiet_rounds;       /* rounds of rings only between two reads of the clock */
    struct softdat_evd *into_evd;    /* the next event of this queue is stored in *into; NULL: no */
    DAT_EVENT *into;
};

/* The functions below are called with the adapter's lock unless they say otherwise. */

/* config.c */
/* Parses the IA parameters into *cfg. Returns 0, or -1 after one line on stderr that names the IA,
 * the parameter and the allowed values. Needs no lock. */
int softdat_config_parse(const char *ia_name, const char *params, struct softdat_config *cfg);

/* ia.c: the calls of DAT 2.0 */
DAT_RETURN softdat_ia_open(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *);
DAT_RETURN softdat_ia_query(DAT_IA_HANDLE, DAT_EVD_HANDLE *, DAT_IA_ATTR_MASK, DAT_IA_ATTR *,
                            DAT_PROVIDER_ATTR_MASK, DAT_PROVIDER_ATTR *);
DAT_RETURN softdat_ia_close(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

/* net.c */
/* Returns CLOCK_MONOTONIC in ns. Needs no lock. */
uint64_t softdat_now(void);
/* Opens the descriptors of an adapter and starts its helper thread; without the lock. Returns 0,
 * or -1 with errno. */
int softdat_net_start(struct softdat_ia *ia);
/* Stops the helper thread and frees all connections; without the lock. */
void softdat_net_stop(struct softdat_ia *ia);
/* Adds s->fd to the epoll set. Returns 0, or -1 with errno. */
int softdat_sock_add(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events);
/* Changes the EPOLL bits that are requested for s. */
void softdat_sock_set_events(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events);
/* Closes s->fd, if it is open, and sets it to -1. */
void softdat_sock_close(struct softdat_ia *ia, struct softdat_sock *s);
/* Takes s out of the epoll set, or puts it back. */
void softdat_sock_suspend(struct softdat_ia *ia, struct softdat_sock *s, bool suspend);
/* True if c's socket is read and written by the rounds of a thread that polls, not by epoll. */
bool softdat_stream_polled(const struct softdat_conn *c);
/* Requests an event of epoll for c, whose socket's buffer is full, when it has room. */
void softdat_stream_watch(struct softdat_conn *c);
/* Does that for the blocked streams of an adapter that have been polled until now: before a sleep,
 * and when there are too many. */
void softdat_streams_watch(struct softdat_ia *ia);
/* Makes the round of progress of a call that polls: of the rings, or, if that is due, a complete
 * one of rings, streams and epoll. */
void softdat_progress(struct softdat_ia *ia);
/* The same for a thread that sleeps between rounds. While the doorbells are armed every event has
 * a descriptor, so only epoll is polled and the cost does not grow with the connections; otherwise
 * the round is complete. Returns the number of sources that had input. */
int softdat_progress_blocking(struct softdat_ia *ia);
/* Wakes the helper thread and makes it monitor the application's calls. */
void softdat_helper_wake(struct softdat_ia *ia);
/* Requests a round of progress for work in a ring that no doorbell announces. */
void softdat_request_progress(struct softdat_ia *ia);
/* Flushes acknowledgements, then sleeps until a descriptor is ready, efd (-1: none) is readable, a
 * deadline expires, or ns have passed (UINT64_MAX: no limit). Releases the lock meanwhile. */
void softdat_sleep(struct softdat_ia *ia, int efd, uint64_t ns);

/* listen.c */
/* Ends a pause of accepting. */
void softdat_listen_resume(struct softdat_ia *ia);

/* fork.c */
/* Registers an adapter for fork(): a child of the process closes its copies of the adapter's
 * descriptors and finds its handles invalid. Without the lock. */
void softdat_fork_register(struct softdat_ia *ia);
/* Undoes that. */
void softdat_fork_unregister(struct softdat_ia *ia);

/* path.c */
/* Starts to follow the carrier of the adapter's interfaces. */
void softdat_path_start(struct softdat_ia *ia);
void softdat_path_stop(struct softdat_ia *ia);
/* True if c's port is cut, or has no carrier and c leaves the host. */
bool softdat_path_down(const struct softdat_conn *c);
/* Returns the index of the port from which to connect to that address; -1: no port is up. */
int softdat_path_choose(const struct softdat_ia *ia, struct in_addr to);
/* Cuts or heals the port with that index. False: there is no such port. */
bool softdat_path_set(struct softdat_ia *ia, int port, bool cut);
/* Resumes accepting on all ports that are not cut (on), or pauses it on all ports. */
void softdat_path_listen(struct softdat_ia *ia, bool on);
/* Sets the deadline of an open connection according to the state of its path and its requests. */
void softdat_path_set_deadline(struct softdat_conn *c);
/* Turns on TCP keep-alive for a connection between hosts, with the time that its state gives it. */
void softdat_path_keep_alive(const struct softdat_conn *c);
/* Handles that deadline: if its path is down or the remote kernel does not respond c migrates, or
 * breaks. */
void softdat_path_expired(struct softdat_conn *c);
/* Breaks c, whose path is down; reports it if c should have migrated. */
void softdat_path_break(struct softdat_conn *c);

/* fault.c */
/* Slow paths of softdat_delay_due(), softdat_rate_allow() and softdat_rate_charge() (quick.h). */
uint64_t softdat_delay_draw_due(struct softdat_ia *ia, uint8_t port);
size_t softdat_rate_limit(struct softdat_conn *c);
void softdat_rate_charge_limits(struct softdat_conn *c, size_t n);
/* Delays c until time `when`, ns. */
void softdat_delay_until(struct softdat_conn *c, uint64_t when);
/* Continues the connections whose time has come. */
void softdat_delay_resume(struct softdat_ia *ia);
/* Returns the earliest such time, ns; UINT64_MAX: no connection is delayed. */
uint64_t softdat_delay_next(const struct softdat_ia *ia);
/* Slow path of softdat_fault_injected() (quick.h). */
bool softdat_fault_draw(struct softdat_ia *ia, enum softdat_fault what);
/* Called for each request posted on c: may schedule a break of c or the failure of the adapter. */
void softdat_fault_on_request(struct softdat_conn *c);
/* Schedules c to break at the end of this round; until then it transmits and completes nothing. */
void softdat_fault_break_later(struct softdat_conn *c);
/* The same; request d of its EP completes with status. */
void softdat_fault_fail_request(struct softdat_conn *c, struct softdat_dto *d,
                                DAT_DTO_COMPLETION_STATUS status);
/* Carries out what is scheduled, at the end of a round. */
void softdat_fault_execute(struct softdat_ia *ia);

/* control.c */
/* Opens the socket on which the adapter serves daplsoft. On failure the adapter works without. */
void softdat_control_start(struct softdat_ia *ia);
void softdat_control_stop(struct softdat_ia *ia);

#endif
