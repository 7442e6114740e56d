/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TRANSPORT_H
#define MDAPL_TRANSPORT_H
/*
 * The contract as the owner of messages sees it (src/mpid, a benchmark, a test); the channels that
 * carry them (src/dapl, src/shm) see channel.h. It is three verbs down and two upcalls up:
 *
 *      mdapl_send      a message to a peer: a short header and a body of any length
 *      mdapl_rx_read   the next bytes of a body that has to be fetched go here
 *      mdapl_rx_drop   nobody wants the rest of that body
 *
 *      up->msg         a message from a peer has been announced (in the order it was sent)
 *      up->fault       a peer cannot be reached any more
 *
 * A body that arrives with its header is taken during up->msg; any other has an rx. How it travels
 * is decided below the contract and looks the same above it. Everything else here is opening,
 * wiring, waiting and closing.
 *
 * Who calls whom: the owner opens one context, mdapl_ctx_open() opens the channels in order and
 * gives each peer to the first channel that reaches it. All calls on one context come from one
 * thread at a time (the owner's lock). Upcalls come from inside mdapl_progress(), and so does
 * op->done, which mdapl_ctx_close() also calls for what is unfinished; no verb calls either.
 *
 * What may block: mdapl_wait(), for its time; mdapl_ctx_open() and mdapl_probe(), in system calls;
 * mdapl_wire() with the knob wiring=thread; mdapl_ctx_close(), for a bounded time, while peers
 * disconnect. Verbs and progress never wait, but for job->card (contract.h), which progress calls
 * at the first contact of a rank.
 */
#include "clock.h"
#include "contract.h"

struct mdapl_cfg;

struct mdapl_up {
    /* A message. The owner may send from here, and may read or drop m->rx here or at any later
     * time. */
    enum mdapl_next (*msg)(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m);
    /* The peer is lost; every queued operation to it has failed already. why: one clear line. */
    void (*fault)(void *owner, struct mdapl_peer *peer, int status, const char *why);
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

#endif
