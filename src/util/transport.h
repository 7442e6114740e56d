/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TRANSPORT_H
#define MDAPL_TRANSPORT_H
/*
 * The contract between whoever has messages (src/mpid, a benchmark, a test) and the channels that
 * carry them (src/dapl, src/shm). It is three verbs down and two upcalls up:
 *
 *      mdapl_send      a message to a peer: a short header and a body of any length
 *      mdapl_rx_read   the next bytes of a body that has been announced go here
 *      mdapl_rx_drop   nobody wants the rest of that body
 *
 *      up->msg         a message from a peer has been announced (in the order it was sent)
 *      up->fault       a peer cannot be reached any more
 *
 * Whether a body travels inside one frame or by RDMA is decided below the contract and looks the
 * same above it. Everything else here is opening, wiring, waiting and closing.
 *
 * Who calls whom: the owner opens one context, mdapl_ctx_open() opens the channels in order and
 * gives each peer to the first channel that reaches it. All calls on one context come from one
 * thread at a time (the owner's lock). Verbs and mdapl_progress() do not block, as far as the
 * adapter's provider does not. These do: mdapl_ctx_open() and mdapl_probe(), mdapl_wait(),
 * mdapl_wire() with MPIR_CVAR_DAPL_WIRING=thread, and mdapl_ctx_close(), for 2 s at most, until
 * adapters have flushed what is posted. Upcalls and op->done come only from inside
 * mdapl_progress(), never from inside a verb or one of the other calls.
 */
#include "clock.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct mdapl_ctx;
struct mdapl_peer;
struct mdapl_rx;
struct mdapl_cfg;
struct mdapl_stats;
struct mdapl_err;
struct mdapl_log;

enum {
    MDAPL_DONE = 1,          /* a verb's answer: finished at once, op->done will not be called */
    MDAPL_HDR_MAX = 128,     /* bytes of header that every channel carries in one frame */
    MDAPL_CARD_MAX = 512,    /* bytes of a business card, with its terminating zero */
    MDAPL_KEY_BYTES = 16,    /* the job's key, shared through the launcher only */
};

/*
 * An operation in progress. The owner embeds it in its own request and keeps it until done() has
 * been called, exactly once. status is 0 or a negative errno value; -ECANCELED for a send whose
 * body the receiver has dropped without reading any of it.
 */
struct mdapl_op {
    void (*done)(struct mdapl_op *op, int status);
    struct mdapl_op *next;   /* the channel's, while the operation is in its hands */
};

/* What mdapl_send() takes. The header is copied; the body's bytes stay the caller's until done. */
struct mdapl_msg {
    const void *hdr;
    size_t hdr_len;          /* at most MDAPL_HDR_MAX */
    const struct iovec *body;
    int n_body;
    bool synchronous;        /* done means: the receiver has read the body (or dropped it) */
};

/*
 * The receiving side of one body. Owned by the channel; the owner of the context holds it from
 * up->msg until every byte has been read (op->done of the last read, or MDAPL_DONE) or dropped.
 * here is 0 or left: the body has arrived already and may be looked at in place (until it is read,
 * skipped or dropped), or it has to be fetched by mdapl_rx_read().
 */
struct mdapl_rx {
    const struct mdapl_rx_ops *ops;
    const char *data;
    size_t here;
    size_t left;
};

/* How a channel fetches what is not here yet; called through the mdapl_rx_ verbs only. */
struct mdapl_rx_ops {
    int (*read)(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op);
    void (*drop)(struct mdapl_rx *rx);
    /* Every byte that was here has been taken and nothing is left: the rx goes. */
    void (*finish)(struct mdapl_rx *rx);
};

/* What up->msg answers about the messages that follow from the same peer. */
enum mdapl_next {
    MDAPL_NEXT_GO,           /* they may be announced while this body is still unread */
    MDAPL_NEXT_HOLD          /* they wait until this rx has been read or dropped to its end */
};

struct mdapl_up {
    /*
     * A message. hdr is valid during the call. rx is NULL when there is no body. The owner may
     * send from here, and may read or drop the rx here or at any later time.
     */
    enum mdapl_next (*msg)(void *owner, struct mdapl_peer *peer, const void *hdr, size_t hdr_len,
                           struct mdapl_rx *rx);
    /* The peer is lost; every queued operation to it has failed already. why: one clear line. */
    void (*fault)(void *owner, struct mdapl_peer *peer, int status, const char *why);
};

/*
 * The launcher, as the channels see it: who we are and how to learn another rank's card. The
 * implementation is the owner's (PMI in src/mpid, a pipe or shared memory in tests).
 */
struct mdapl_job {
    int rank;                /* mine */
    int size;
    uint32_t id;             /* the same in all ranks of the job, different from other jobs' */
    uint8_t key[MDAPL_KEY_BYTES];  /* secret; may be set later, by mdapl_ctx_set_job() */
    /* Copies the card of rank into buf of len bytes, zero terminated. 0 or -errno. It is called in
     * progress too, so it must not block: the owner has all cards before mdapl_probe(). */
    int (*card)(void *owner, int rank, char *buf, size_t len);
    /* Does the launcher place rank on my node? The same answer on all ranks of a node. NULL: it
     * does not tell, and any rank may be there. */
    bool (*near)(void *owner, int rank);
};

/* A channel: one table of calls. state is what open() made. */
struct mdapl_channel {
    const char *name;
    /* Makes the channel's state. -ENOTSUP: this system has no such thing, and nobody is to blame:
     * the job goes on without; any other failure ends it. mdapl_ctx_err() has the line. */
    int (*open)(struct mdapl_ctx *ctx, void **state_p);
    /* Appends this channel's part to my business card, at most len bytes with the zero. */
    int (*card)(void *state, char *buf, size_t len);
    /* As mdapl_probe(); NULL: there is nothing to be agreed on. */
    void (*probe)(void *state);
    /* Can this card be reached? Makes the peer if so; -EHOSTUNREACH if not. No traffic yet. */
    int (*reach)(void *state, int rank, const char *card, struct mdapl_peer **peer_p);
    /* Connects to whom the wiring policy says: as mdapl_wire(). */
    int (*wire)(void *state);
    int (*send)(struct mdapl_peer *peer, const struct mdapl_msg *msg, struct mdapl_op *op);
    /* Bytes of header and body that one frame carries. */
    size_t (*eager_max)(void *state);
    /* Moves whatever can move. Returns how many things moved (0: nothing to do). */
    int (*progress)(void *state);
    /* The same, with all that every round need not look at: new connections, what is due. Called
     * about every 100 us, or with every round if these are further apart. now: ns on the context's
     * clock. NULL: progress() does all. */
    int (*look)(void *state, uint64_t now);
    /* Has any peer come into contact, so that something may come in? A first contact may come in
     * any case: it is heard after a sleep. */
    bool (*hears)(void *state);
    /* Sleeps until something may have happened, at most ns nanoseconds. */
    void (*wait)(void *state, uint64_t ns);
    /* As mdapl_drain(). */
    size_t (*drain)(void *state);
    /* Is this peer's queue empty and all of it acknowledged? */
    bool (*idle)(struct mdapl_peer *peer);
    void (*close)(void *state);
    /* One line for people: the channel, the adapter, the mode. */
    void (*describe)(void *state, char *buf, size_t len);
};

/* First member of every channel's peer object. */
struct mdapl_peer {
    const struct mdapl_channel *channel;
    struct mdapl_ctx *ctx;
    int rank;
    void *owner;             /* the owner's own (a VC); NULL until it sets it */
};

/* -- opening and closing (ctx.c) -------------------------------------------------------------- */

struct mdapl_ctx_args {
    const struct mdapl_channel *const *channels;  /* in order of preference, NULL at the end */
    const struct mdapl_up *up;
    void *owner;             /* first argument of the upcalls and of job.card */
    struct mdapl_job job;    /* copied */
    const struct mdapl_cfg *cfg;  /* the knobs, copied */
    struct mdapl_clock clock;     /* all zero: the system's */
};

/* Opens those of the channels that the knob CHANNELS names, in its order (empty: all, in theirs).
 * 0, or -errno: err then has the one clear line. */
int mdapl_ctx_open(const struct mdapl_ctx_args *args, struct mdapl_ctx **ctx_p,
                   struct mdapl_err *err);
/* My business card: printable, no ';' '#' ' ' '$' (launchers use them). Bytes written or -errno. */
int mdapl_ctx_card(struct mdapl_ctx *ctx, char *buf, size_t len);
/* What the launcher has told about the job after the cards were published; before mdapl_wire(). */
void mdapl_ctx_set_job(struct mdapl_ctx *ctx, uint32_t id, const uint8_t key[MDAPL_KEY_BYTES]);
/*
 * Tries to reach the ranks that the launcher places on this node, for channels whose two ends may
 * come to different answers. To be called once, by all ranks, when every rank's card can be asked
 * for; when all have returned from it (the launcher's barrier) mdapl_wire() and mdapl_peer_get()
 * may be called. Both ends of a pair then choose the same channel.
 */
void mdapl_probe(struct mdapl_ctx *ctx);
/* Bytes of header and body together that surely travel in one frame, whichever the channel. */
size_t mdapl_ctx_eager_max(struct mdapl_ctx *ctx);
/* The same, for the channel that reaches this peer. */
size_t mdapl_peer_eager_max(const struct mdapl_peer *peer);
/*
 * Connects as the policy (knob) says. To be called first when every rank's card can be asked for,
 * then again between rounds of mdapl_progress() as long as it answers 0 (under way). MDAPL_DONE:
 * all are up. -errno: it will not be; mdapl_ctx_err() has the line.
 */
int mdapl_wire(struct mdapl_ctx *ctx);
/* The peer of a rank, made at the first call. -EHOSTUNREACH: no channel reaches it. */
int mdapl_peer_get(struct mdapl_ctx *ctx, int rank, struct mdapl_peer **peer_p);
/*
 * Before the launcher's last barrier: from now on acknowledgements leave at once. Returns how much
 * is still to be delivered or acknowledged, either way; to be called again between rounds of
 * mdapl_progress() until it answers 0.
 */
size_t mdapl_drain(struct mdapl_ctx *ctx);
/* Closes connections, frees everything. The job must be quiet: drain, launcher's barrier, close. */
void mdapl_ctx_close(struct mdapl_ctx *ctx);

/* -- the verbs -------------------------------------------------------------------------------- */

/*
 * Sends a message. Messages to one peer are announced there in the order of these calls.
 * op == NULL: all or nothing, now: MDAPL_DONE, or -EAGAIN and nothing has happened.
 * op != NULL: MDAPL_DONE, or 0 and op->done() later; body must stay as it is until then.
 * Done means: the body may be reused (msg->synchronous: and has been read).
 * Any other negative value: refused (a lost peer, a header too long); op->done is not called.
 */
int mdapl_send(struct mdapl_peer *peer, const struct mdapl_msg *msg, struct mdapl_op *op);

/*
 * Reads the next bytes of a body, as many as iov has room for (never more than rx->left).
 * MDAPL_DONE, or 0 and op->done() later (iov itself is copied, the memory it names must stay), or
 * a negative errno. One read at a time per rx. When the last byte has been read the rx is gone;
 * after a failed read it is not, and has to be dropped.
 */
int mdapl_rx_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op);

/* Steps over the first n bytes of what is here (the owner has taken them in place). n <= rx->here.
 * Returns true when that was the whole rest: the rx is gone then. */
bool mdapl_rx_skip(struct mdapl_rx *rx, size_t n);

/* Gives up the rest of a body; the rx is gone. No read may be in progress. */
void mdapl_rx_drop(struct mdapl_rx *rx);

/* -- running ---------------------------------------------------------------------------------- */

/* One round over all channels. Returns how many things moved. */
int mdapl_progress(struct mdapl_ctx *ctx);
/* Gives the core away until something may have happened; at most ns nanoseconds. */
void mdapl_wait(struct mdapl_ctx *ctx, uint64_t ns);
/* True when all that was sent to this peer has been acknowledged by it. */
bool mdapl_peer_idle(struct mdapl_peer *peer);
/* One line per channel for people (verbose output, quickstart). */
void mdapl_ctx_describe(struct mdapl_ctx *ctx, char *buf, size_t len);

/* What channels may know of their context. */
const struct mdapl_job *mdapl_ctx_job(const struct mdapl_ctx *ctx);
const struct mdapl_cfg *mdapl_ctx_cfg(const struct mdapl_ctx *ctx);
struct mdapl_stats *mdapl_ctx_stats(struct mdapl_ctx *ctx);
uint64_t mdapl_ctx_now(const struct mdapl_ctx *ctx);  /* ns on the context's clock */
/* The same, as it was read last: in one of the last 16 rounds of progress. */
uint64_t mdapl_ctx_recent(const struct mdapl_ctx *ctx);
struct mdapl_log *mdapl_ctx_log(struct mdapl_ctx *ctx);
struct mdapl_err *mdapl_ctx_err(struct mdapl_ctx *ctx);
const char *mdapl_ctx_host(const struct mdapl_ctx *ctx);
/* Does the launcher place rank on my node, as far as it tells? */
bool mdapl_ctx_near(const struct mdapl_ctx *ctx, int rank);
/* Is there one channel only? */
bool mdapl_ctx_alone(const struct mdapl_ctx *ctx);
/* Copies another rank's business card (job.card) into buf of len bytes. 0 or -errno. */
int mdapl_ctx_job_card(struct mdapl_ctx *ctx, int rank, char *buf, size_t len);
/* The channel's upcalls go through these. */
enum mdapl_next mdapl_up_msg(struct mdapl_peer *peer, const void *hdr, size_t hdr_len,
                             struct mdapl_rx *rx);
void mdapl_up_fault(struct mdapl_peer *peer, int status, const char *why);

#endif
