/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TRANSPORT_H
#define MDAPL_TRANSPORT_H
/*
 * The contract as the owner of messages sees it (src/mpid, a benchmark, a test); the channels that
 * carry them (src/dapl, src/shm) see channel.h. It is three verbs down and two upcalls up:
 *
 *      mdapl_send      a message to a peer: a short header and a body of any length
 *      mdapl_rx_read   copies the next bytes of a body that has to be fetched
 *      mdapl_rx_drop   discards the rest of that body
 *
 *      up->msg         a message from a peer has been announced (in the order it was sent)
 *      up->fault       a peer cannot be reached any more
 *
 * The owner takes a body that arrives with its header during up->msg; any other body has an rx. The
 * channel decides how a body travels, and the owner sees no difference. Beside the verbs stand
 * mdapl_put() and mdapl_get(), for memory that both ends have agreed on. Everything else here is
 * opening, wiring, waiting and closing.
 *
 * Who calls whom: the owner opens one context; mdapl_ctx_open() opens the channels in order, and
 * each peer belongs to the first channel that reaches it. One thread at a time calls functions of
 * one context (the owner's lock). mdapl_progress() makes the upcalls and calls op->done;
 * mdapl_ctx_close() calls op->done of unfinished operations; no verb makes any of these calls.
 *
 * What may block: mdapl_wait(), for its time; mdapl_ctx_open(), mdapl_probe() and
 * mdapl_group_add(), in system calls; mdapl_wire() with the knob wiring=thread; mdapl_ctx_close(),
 * for a bounded time, while peers disconnect. Verbs and progress do not block if group->card
 * (contract.h) does not.
 */
#include "clock.h"
#include "contract.h"

struct mdapl_cfg;

struct mdapl_up {
    /* A message. During the call the owner may send; it may read or drop m->rx then or later. */
    enum mdapl_next (*msg)(void *owner, struct mdapl_peer *peer, const struct mdapl_rx_msg *m);
    /* The peer is lost; every queued operation to it has failed already. status: negative errno;
     * why: one line for the user, valid during the call. */
    void (*fault)(void *owner, struct mdapl_peer *peer, int status, const char *why);
    /* Rare work of the owner's own: called in progress, about every 100 us. NULL: there is none. */
    void (*look)(void *owner);
    /* Around each sleep in mdapl_wait(): between the two, other threads may use the context, one at
     * a time, but for mdapl_wait() and mdapl_ctx_close(); one that is to wait for what it has begun
     * calls mdapl_wake(). Both NULL: no thread uses the context while another one sleeps. */
    void (*sleep_begin)(void *owner);
    void (*sleep_end)(void *owner);
};

/* -- opening and closing (ctx.c) -------------------------------------------------------------- */

struct mdapl_ctx_args {
    const struct mdapl_channel *const *channels;  /* in order of preference, NULL at the end */
    const struct mdapl_up *up;
    void *owner;             /* first argument of the upcalls */
    struct mdapl_group job;  /* copied */
    const struct mdapl_cfg *cfg;  /* the knobs, copied */
    struct mdapl_clock clock;     /* all zero: the system's */
    bool barrier;            /* this rank calls mdapl_barrier_enter() */
};

/* Opens the channels that the knob CHANNELS names, in its order (empty: all, in the order of
 * args->channels). 0, or -errno: err then has the line for the user. */
int mdapl_ctx_open(const struct mdapl_ctx_args *args, struct mdapl_ctx **ctx_p,
                   struct mdapl_err *err);
/* Sets a knob of an open context; those take effect whose help says that MPI_T may change them. 0,
 * or the error of mdapl_cfg_set() with the line in err. */
int mdapl_ctx_tune(struct mdapl_ctx *ctx, const char *knob, const char *value,
                   struct mdapl_err *err);
/* So many processes of the job share this one's core, itself included: it has that part of the
 * core only, so what is rare is done that many times less often, every 2 ms at least. Without a
 * call: 1. */
void mdapl_ctx_share_core(struct mdapl_ctx *ctx, int processes);
/* Writes this rank's business card: printable, without ';' '#' ' ' '$', which launchers use, zero
 * terminated. Returns its length in bytes, or -errno (-ENOSPC: it is longer than len). */
int mdapl_ctx_card(struct mdapl_ctx *ctx, char *buf, size_t len);
/* The same, but only what a process needs that visits a port of this one (mdapl_port_open()). */
int mdapl_port_card(struct mdapl_ctx *ctx, char *buf, size_t len);
/* Sets id and key of the job, where the launcher distributes them after the business cards have
 * been published; before mdapl_wire(). Both are copied. */
void mdapl_ctx_set_job(struct mdapl_ctx *ctx, uint32_t id, const uint8_t key[MDAPL_KEY_BYTES]);
/*
 * Has channels whose two ends may disagree on whether they reach each other try all ranks that the
 * launcher places on this node. All ranks call it once, when every rank's business card is
 * published. When all have returned (the launcher's barrier) mdapl_wire() and mdapl_peer_get() may
 * be called, and both ends of a pair choose the same channel.
 */
void mdapl_probe(struct mdapl_ctx *ctx);
/* Bytes of header and body together that travel eagerly through each of the channels. */
size_t mdapl_ctx_eager_max(struct mdapl_ctx *ctx);
/* The same, for the channel that reaches this peer. */
size_t mdapl_peer_eager_max(const struct mdapl_peer *peer);
/*
 * Connects to the ranks that the knob WIRING selects. Called when every rank's business card is
 * published, then again between rounds of mdapl_progress() as long as it returns 0 (in progress).
 * MDAPL_DONE: all are connected. -errno: it failed, and mdapl_ctx_err() has the line.
 */
int mdapl_wire(struct mdapl_ctx *ctx);
/*
 * Before the launcher's last barrier: from now on acknowledgements are transmitted at once. Returns
 * how many messages and frames are still to be delivered or acknowledged, in either direction;
 * called again between rounds of mdapl_progress() until it returns 0.
 */
size_t mdapl_drain(struct mdapl_ctx *ctx);
/*
 * Adds the group of another job, with which this process then exchanges messages by
 * mdapl_group_peer(). *args is copied: size, id, key, card, and what else the owner knows of it.
 * Called when mdapl_wire() has returned MDAPL_DONE, by all processes of both groups. When all have
 * returned, peers may be made, and both ends of a pair choose the same channel; or at any time by a
 * process that has one channel, whose messages wait until the other process has added its group. A
 * process that has another key is refused; so is one whose group has not been added, where there
 * are several channels. 0, or -errno: -EEXIST (the context has a group with this id), -EINVAL
 * (size) or -ENOMEM.
 */
int mdapl_group_add(struct mdapl_ctx *ctx, const struct mdapl_group *args,
                    struct mdapl_group **group_p);
/*
 * Removes a group other than the job: disconnects its peers and frees them with all that they have.
 * Operations that are unfinished end with -ECANCELED, in this call, or in progress where an adapter
 * still uses their memory. Returns 0 while a connection drains; called again between rounds of
 * mdapl_progress() until it returns MDAPL_DONE, when the group is freed. Between the calls, the
 * owner does not use the group or its peers. Both jobs remove the other's group when they have
 * agreed to; a peer that has done so earlier is lost (up->fault).
 */
int mdapl_group_remove(struct mdapl_group *group);
/* Ends the use of a group that will be removed, before its owner is freed: no peer of it is made
 * any more, and its calls are not used. The group may be added again, by each process when it has
 * removed it, as soon as all processes of both jobs have called this: until then a new peer of one
 * of them would be taken for one of the old group. */
void mdapl_group_close(struct mdapl_group *group);
/*
 * Opens a port: from now on processes that no group has may connect, if they know the id and the
 * key of the port. visitors->self has the port's id, which differs from those of other ports, and
 * rank 0; size is 1. A visitor chooses a random id V, and adds a group of one rank with the id
 * (port's id) xor V, the port's key, and { V, 0 } in `self`. On this side it then is the one rank
 * of a copy of *visitors with the id V, whose self.group is (port's id) xor V. Its messages are
 * announced; the owner removes the group. visitors->card is mdapl_port_card() of this process, for
 * its rails, since the visitor's card is not known: it is the visitor that connects, and that
 * replaces a connection that breaks, until mdapl_peer_locate(). A visit takes a channel whose ends
 * always agree, if one reaches; else the first that does. 0, -EEXIST or -ENOMEM.
 */
int mdapl_port_open(struct mdapl_ctx *ctx, const struct mdapl_group *visitors);
/* Closes the port with this id, if there is one; groups of processes that have connected stay. */
void mdapl_port_close(struct mdapl_ctx *ctx, uint32_t id);
/* The business card of a visitor, as its owner has sent it: from now on both ends may connect. 0,
 * or -EPROTO: it is no card of the channel. */
int mdapl_peer_locate(struct mdapl_peer *peer, const char *card);
/* True when all that was sent to this peer has been acknowledged, and all that it has sent, too:
 * both ends of the connection can do without it then. */
bool mdapl_peer_settled(struct mdapl_peer *peer);
/* The owner knows that the peer's process has ended: what is unfinished with it ends with
 * -ECONNRESET, in this call, or in progress where an adapter still uses its memory. up->fault is
 * not called. The channel notices most ends by itself; it cannot distinguish all of them from a
 * path that will be there again. */
void mdapl_peer_lost(struct mdapl_peer *peer);
/* As mdapl_group_remove(), of one peer: MDAPL_DONE when it has been freed, else to be called
 * again. The next mdapl_group_peer() makes a new one. */
int mdapl_peer_remove(struct mdapl_peer *peer);
/* Closes connections and frees the context with all its peers; operations that are unfinished end
 * with -ECANCELED. In order: all ranks drain, the launcher's barrier, all ranks close. */
void mdapl_ctx_close(struct mdapl_ctx *ctx);

/*
 * A barrier of all ranks of the job without messages, where the ranks share memory. All ranks call
 * it equally often, after the launcher's barrier that follows mdapl_wire(). MDAPL_DONE: all others
 * have called it. 0: they will have when mdapl_barrier_passed() is true, which is looked at between
 * rounds of mdapl_progress(), and mdapl_wait() ends then. -ENOTSUP, at all ranks: there is none,
 * also if args->barrier was not set at one of them. It does not notice that a rank is lost.
 *
 * r: what the ranks bring, given by all or by none (NULL). mdapl_barrier_result() is made of it, in
 * the order of the ranks: after the barrier, until this rank enters the next one. It is NULL if the
 * ranks brought values of different lengths.
 */
int mdapl_barrier_enter(struct mdapl_ctx *ctx, const struct mdapl_reduce *r);
bool mdapl_barrier_passed(const struct mdapl_ctx *ctx);
const void *mdapl_barrier_result(const struct mdapl_ctx *ctx);

/* -- the verbs -------------------------------------------------------------------------------- */

/*
 * Sends a message. The peer announces messages in the order of these calls.
 * op == NULL: transmits all of it now (MDAPL_DONE) or nothing (-EAGAIN).
 * op != NULL: MDAPL_DONE, or 0 and op->done() later; the body must not change until then.
 * When it is done the body may be reused; msg->synchronous says what else it means (contract.h).
 * Other negative values: refused (lost peer, header too long); op->done is not called.
 */
int mdapl_send(struct mdapl_peer *peer, const struct mdapl_msg *msg, struct mdapl_op *op);

/*
 * Reads the next bytes of a body, as many as iov has room for, at most rx->left.
 * MDAPL_DONE, or 0 and op->done() later (iov itself is copied, the memory it names must stay), or
 * a negative errno. One read at a time per rx. With its last byte the rx is freed; after a failed
 * read it is not, and has to be dropped.
 */
int mdapl_rx_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op);

/* Ends what up->msg's answer MDAPL_NEXT_LATER has begun, for a peer or all: what has been queued is
 * announced in progress, until the owner gives that answer again. */
void mdapl_resume(struct mdapl_peer *peer);
void mdapl_resume_all(struct mdapl_ctx *ctx);

/* Discards the rest of a body and frees the rx. No read may be in progress. */
void mdapl_rx_drop(struct mdapl_rx *rx);

/* -- memory of other ranks (rma.c) ------------------------------------------------------------ */

/*
 * Exposes len bytes at base, at least one, to all peers of the channel that has transfers without
 * the other end's processor. The memory stays the owner's, and mapped, until mdapl_withdraw(). 0,
 * -ENOTSUP (no channel has them), or -ENOMEM (the adapter refuses to register it).
 */
int mdapl_expose(struct mdapl_ctx *ctx, void *base, size_t len, struct mdapl_exposed **e_p);
/* Describes the memory as it can be reached now: once an adapter has failed and was opened again,
 * older descriptions are void. where->len is 0 if it cannot be reached. */
void mdapl_exposed_where(struct mdapl_exposed *e, struct mdapl_where *where);
/* Ends the exposure. No put or get of it may be in progress. */
void mdapl_withdraw(struct mdapl_exposed *e);

/* Does the peer's channel have puts and gets? Single ones may be refused all the same. */
bool mdapl_peer_has_rma(const struct mdapl_peer *peer);

/*
 * Writes len bytes, at least one, to byte `off` of memory that a peer has exposed, or reads them
 * from there. 0, and op->done() later; until then the local memory stays as it is. When a put is
 * done its bytes are in the peer's memory, and nothing of it is written there any more; before,
 * they may be written more than once. Puts and gets have no order among each other, nor with
 * messages, until they are done.
 *
 * op->done(-ESTALE): the description is void, and nothing is known of the bytes; no more of them
 * is written. Negative values: -ENOTSUP (not to this peer), -ESTALE, -EINVAL (outside of the
 * memory), -ENOMEM (also: the adapter does not register the local memory), or the error of a lost
 * peer; op->done() is not called then, and the bytes can be sent in a message.
 */
int mdapl_put(struct mdapl_peer *peer, const struct mdapl_where *to, uint64_t off,
              const void *from, size_t len, struct mdapl_op *op);
int mdapl_get(struct mdapl_peer *peer, const struct mdapl_where *from, uint64_t off, void *to,
              size_t len, struct mdapl_op *op);

/* -- running ---------------------------------------------------------------------------------- */

/* One round over all channels. Returns how many messages, frames and transfers moved. */
int mdapl_progress(struct mdapl_ctx *ctx);
/* Sleeps until a channel may have an event; at most ns nanoseconds, maybe less. */
void mdapl_wait(struct mdapl_ctx *ctx, uint64_t ns);
/* Ends the sleep of a thread in mdapl_wait(), which is between sleep_begin() and sleep_end(). */
void mdapl_wake(struct mdapl_ctx *ctx);
/* True when all that was sent to this peer has been acknowledged by it. */
bool mdapl_peer_idle(struct mdapl_peer *peer);
/* Writes one line for the user: adapters, modes and sizes of all channels; cut at len bytes. */
void mdapl_ctx_describe(struct mdapl_ctx *ctx, char *buf, size_t len);

#endif
