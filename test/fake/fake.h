/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_FAKE_H
#define MDAPL_TEST_FAKE_H
/*
 * A DAT 2.0 provider inside the test's own process. Nothing happens by itself: what has been
 * posted waits until fake_step() picks, by a seeded choice among all that DAT allows to happen
 * next, one thing to happen. Requests of one EP are executed and completed in their order; between
 * EPs, and between connection events and transfers, any order is possible. Time is a variable.
 *
 * It has the worst habits of the providers that there are: a request that the acceptor of a
 * connection posts before a send of the other end has arrived aborts (MPA does not allow it, RFC
 * 5044 section 7.1), and dat_ep_reset() of an EP that has made a request or has been
 * connected drops its receives without completions (libdaploscm).
 *
 * It registers itself with libdat2, so that src/dapl runs on it through the ordinary dat_ calls.
 * One fake exists at a time.
 */
#include <dat2/udat.h>
#include <stdbool.h>
#include <stdint.h>

/* Faults, one in so many cases; 0: none. The first send of a caller is not counted. */
struct fake_faults {
    unsigned refuse_lmr;         /* dat_lmr_create fails */
    unsigned refuse_recv;        /* dat_ep_post_recv fails once, of an EP with 2 received */
    unsigned refuse_send;        /* dat_ep_post_send fails once */
    unsigned reject_cr;          /* a request is rejected on its way, as a busy host would */
    unsigned time_out_cr;        /* a request is lost: the caller times out */
    DAT_DTOS fail_op;            /* of the requests of this kind, in the order in which they */
    unsigned fail_nth;           /* would be executed, this one (from 1; 0: none) fails with */
    DAT_DTO_COMPLETION_STATUS fail_status;   /* this status, once, and its EP breaks */
    unsigned break_after;        /* after so many executed requests, once: that EP breaks */
    unsigned lose_cr;            /* a request is lost: no event */
    unsigned dup_cr;             /* a request arrives twice; the second one has no caller */
    unsigned lose_accept;        /* an acceptance vanishes: neither end is established */
    unsigned late_read;          /* a read lets the request behind it pass, as on soft-iWARP */
    DAT_EVENT_NUMBER answer;     /* every request is answered by this event; 0: by its receiver */
};

/* What can become of one request and its connection, and of what follows it. */
enum fake_fault_kind {
    FAKE_NOT_EXECUTED,           /* it fails, and the connection breaks */
    FAKE_EXECUTED,               /* it is executed, fails all the same, and the connection breaks */
    FAKE_THEN_BREAK,             /* it succeeds, then the connection breaks */
    FAKE_FLUSH_LATE,             /* as FAKE_EXECUTED; what is flushed completes much later */
    FAKE_END_LATE,               /* as FAKE_EXECUTED; the events of the end are late */
    FAKE_ONE_SIDED,              /* as FAKE_NOT_EXECUTED, but the other end notices when its own
                                  * requests are not executed */
    FAKE_DOUBLED,                /* it succeeds, and its completion arrives twice */
    FAKE_REQUEST_LOST,           /* as FAKE_EXECUTED; the next connection request is lost, */
    FAKE_REQUEST_LATE,           /* or late, */
    FAKE_ACCEPT_LOST,            /* or the next acceptance is lost, */
    FAKE_ACCEPT_LATE,            /* or late */
    FAKE_SWALLOWED,              /* from this request on its direction loses everything silently: */
    FAKE_SWALLOWED_BOTH,         /* or both do. Neither end gets an event, not even of the other's
                                  * disconnect; what is executed in the good direction does not
                                  * complete, as its acknowledgements are lost */
    FAKE_FAULT_KINDS
};

/* The request that is the nth to be executed, from 1, in the order of execution. */
struct fake_fault {
    enum fake_fault_kind kind;
    unsigned nth;
};

struct fake_limits {
    uint32_t dtos, reads, priv;
    uint32_t rdma;               /* bytes of one RDMA transfer */
    uint32_t lmr;                /* bytes of one registration; 0: no limit */
    uint32_t lmrs;               /* registrations of one adapter at once; 0: no limit */
    uint32_t reads_in;           /* RDMA reads that an EP answers at once; 0: as many as it makes */
    uint32_t evd_qlen;           /* entries of an EVD; 0: no limit to speak of */
    bool ipv6;                   /* its address is of that family, and uses all of its bytes */
    bool one_segment;            /* a receive has one segment at most */
    bool sink_needs_write;       /* as iWARP: a read's own memory needs the right of remote write */
};

/* Starts the fake under the IA name "fake". An EVD that overflows loses the event, reports that to
 * the asynchronous EVD, and lets a caller whose request was lost time out; resizing one aborts. */
void fake_start(uint64_t seed, const struct fake_faults *faults, const struct fake_limits *limits);
/* These n faults will happen; the array is the caller's until the end. */
void fake_plan(const struct fake_fault *plan, int n);
/* The same as FAKE_SWALLOWED for the nth EP (in the order of their creation), from now on. */
void fake_swallow(int nth_ep, bool both);    /* until it migrates */
/* What has been swallowed until now arrives, as when TCP repeats it. */
void fake_end_swallow(void);
/* From now on the data of RDMA reads takes this time for each KiB, in the order of their posting,
 * and what the end posts that has to transmit it waits behind it, as in a stream of bytes; 0: no
 * time. */
void fake_slow_reads(uint64_t ns);
/* Of the plan: connections that have been broken, and completions that have been doubled. */
unsigned fake_broken(void);
unsigned fake_doubled(void);
/* Requests that have been executed, or would have been. */
unsigned fake_executed(void);
/* Bytes of the send that was refused. */
uint64_t fake_refused_bytes(void);
/* Calls that found a queue empty when the call before it had taken its last event. */
unsigned fake_looked_behind(void);
/* Ends it. Returns how many DAT objects had not been freed. */
int fake_stop(void);
/* One thing happens; false: nothing can. */
bool fake_step(void);
/* The clock, in ns, for mdapl_clock_manual(); steps move it a little. */
uint64_t *fake_time(void);
/* A number below n, from the same seed. */
uint64_t fake_random(uint64_t n);
/* A request of a stranger arrives at the n-th PSP, with this private data. */
bool fake_stranger(int nth_psp, const void *priv, size_t len);
/* The faults from now on. */
struct fake_faults *fake_faults(void);
/* All requests that are under way end, for their callers, with this event. */
void fake_end_requests(DAT_EVENT_NUMBER number);
/* Requests that are made from now on wait outside until they are let in again. */
void fake_hold_requests(bool hold);
/* How many times dat_ep_connect() has been called. */
unsigned fake_requests(void);
/* How many requests have been taken back, by dat_ep_disconnect() or dat_ep_free(), before there was
 * an answer: while libdaplofa's thread may be at work on them. */
unsigned fake_taken_back(void);
/* How many requests of the nth IA (in the order of opening) have no answer yet. */
unsigned fake_under_way(int nth_ia);
/* All connections of the nth IA break. */
void fake_break_all(int nth_ia);
/* How many requests strangers have had rejected. */
int fake_strangers_rejected(void);
/* An asynchronous error of the nth IA, of those that are open in the order of opening. */
void fake_async(int nth_ia, DAT_EVENT_NUMBER number);
/* The nth IA fails: an asynchronous error, its connections break, and it makes no EP and no LMR any
 * more. */
void fake_end_ia(int nth_ia);
/* The same without the asynchronous error, and only if there is an nth IA. */
void fake_end_ia_unreported(int nth_ia);
/* As fake_end_ia(), after so many more steps in which something happens. silent: what is posted on
 * it is not completed, and no event of its connections arrives there. */
void fake_end_ia_later(unsigned steps, int nth_ia, bool silent);
/* Steps in which something has happened. */
unsigned fake_steps(void);
/* No IA opens from now on, or they do again. */
void fake_refuse_ias(bool refuse);

/*
 * The path extension (include/dat_path_extensions.h). An IA has ports; a path is the ports of both
 * its ends, and works while both are up. A connection whose path does not work stands still, and
 * after 300 us with something to transmit it migrates, or breaks. A connection is armed some time
 * after both ends have loaded alternates that fit and work.
 */

/* IAs that are opened from now on have so many ports, up to FAKE_PORTS; 0: no extension, as at
 * first. */
enum { FAKE_PORTS = 4 };
void fake_ports(unsigned n);
/* A port of the nth IA fails or works again. reported: with its events, and what is armed migrates
 * at once; else by time. */
void fake_port(int nth_ia, unsigned port, bool up, bool reported);
/* The same for each of n cuts, at its step (of fake_steps()). The array is the caller's until the
 * end. */
struct fake_cut {
    unsigned step;
    int nth_ia;
    unsigned port;
    bool up, reported;
};
void fake_cuts(const struct fake_cut *cuts, int n);
/* From now on nothing is armed; nothing migrates that was asked to; or the events of the extension
 * are lost. */
void fake_hold_arming(bool hold);
void fake_hold_moves(bool hold);
void fake_lose_path_events(bool lose);
/* From now on a connection that has migrated transmits after this time, as when what was in flight
 * has to be repeated first. */
void fake_slow_moves(uint64_t ns);
/* Migrations of connections, failed ones, and calls of the extension. */
unsigned fake_migrated(void);
unsigned fake_path_failed(void);
unsigned fake_path_calls(void);
/* From now on armed connections migrate by themselves, one in so many steps; 0: none. */
void fake_move_at_random(unsigned one_in);
/* The local port of the path of an EP, by its handle. */
unsigned fake_port_of(DAT_EP_HANDLE ep);
/* So many of the next openings are refused; each opening takes this time, in ns. */
void fake_refuse_openings(unsigned n, uint64_t ns);
/* How many times an IA was to be opened, and when that was last, on the fake's clock. */
unsigned fake_openings(uint64_t *last_p);
/* From now on IAs that have failed, and their EPs, are not freed: the calls return an error. */
void fake_refuse_closes(void);
/* The same of the nth EP, in the order of their creation. */
void fake_async_ep(int nth_ep, DAT_EVENT_NUMBER number);
/* Which of them it is. */
int fake_nth_ep(DAT_EP_HANDLE ep);
/* Requests and receives of an EP that has ended complete when the hold is over and not at once, as
 * an adapter takes its time to flush them. */
void fake_hold_flushes(bool hold);
/* Events that end a connection, and rejections, arrive when the hold is over; a hold without end:
 * never. */
void fake_hold_ends(bool hold);
/* From now on the RDMA writes of an EP that ends are flushed, and on the wire all the same: */
void fake_delay_writes(bool delay);
/* these land now, as far as their memory is registered. Returns how many did. */
int fake_land_writes(void);
/* The same, registered or not, as where registrations are kept and keys stay good. */
int fake_land_writes_anywhere(void);
/* From now on these land, registered or not, just before what is posted on the EP at their target
 * is flushed: as late as DAT allows. */
void fake_land_at_flush(bool land);
/* From now on the data of an EP's RDMA reads is on its way when the EP ends, and is placed as they
 * are flushed, just before their completions (fake_hold_flushes() says when that is). */
void fake_delay_reads(bool delay);
/* The last completions arrive once more, at IAs that are still open: those of EPs that have been
 * freed, or of EPs that exist. Returns how many. */
int fake_complete_again(bool freed);
/* How many EPs there are. */
int fake_eps(void);
/* How often a send found no receive posted at the peer. */
uint64_t fake_not_ready(void);
/* Requests of the nth EP (in the order of their creation) are not executed; -1: of none. */
void fake_hold(int nth_ep);
/* The same for all EPs of the nth IA; -1: of none. */
void fake_hold_ia(int nth_ia);
/* Overwrites the payload of the next executed send with these bytes. */
void fake_forge(const void *bytes, size_t len);

#endif
