/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CHANNEL_H
#define MDAPL_CHANNEL_H
/*
 * The contract as the channels see it: what a channel implements, what it may ask of its context,
 * and the upcalls. A channel never includes transport.h, an owner never this file.
 */
#include "contract.h"

struct mdapl_cfg;

/* How a channel fetches a body; the owner calls mdapl_rx_read() and mdapl_rx_drop(). */
struct mdapl_rx_ops {
    int (*read)(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op);
    void (*drop)(struct mdapl_rx *rx);
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

/* What channels may know of their context. */
const struct mdapl_job *mdapl_ctx_job(const struct mdapl_ctx *ctx);
const struct mdapl_cfg *mdapl_ctx_cfg(const struct mdapl_ctx *ctx);
/* The clock as it was read last, in one of the last 16 rounds of progress: ns. */
uint64_t mdapl_ctx_recent(const struct mdapl_ctx *ctx);
const char *mdapl_ctx_host(const struct mdapl_ctx *ctx);
/* Does the launcher place rank on my node, as far as it tells? */
bool mdapl_ctx_near(const struct mdapl_ctx *ctx, int rank);
/* Is there one channel only? */
bool mdapl_ctx_alone(const struct mdapl_ctx *ctx);
/* Another rank's business card, asked from the launcher. 0 or -errno. */
int mdapl_ctx_job_card(struct mdapl_ctx *ctx, int rank, char *buf, size_t len);
/* The channel's upcalls go through these. */
enum mdapl_next mdapl_up_msg(struct mdapl_peer *peer, const struct mdapl_rx_msg *m);
void mdapl_up_fault(struct mdapl_peer *peer, int status, const char *why);

#endif
