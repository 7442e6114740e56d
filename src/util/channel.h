/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CHANNEL_H
#define MDAPL_CHANNEL_H
/*
 * The contract as the channels see it: the calls that a channel implements, the calls of its
 * context that it may use, and the upcalls. A channel does not include transport.h, an owner not
 * this file.
 */
#include "contract.h"

struct mdapl_cfg;
struct mdapl_port;

/* How a channel fetches a body; the owner calls mdapl_rx_read() and mdapl_rx_drop(). */
struct mdapl_rx_ops {
    int (*read)(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op);
    void (*drop)(struct mdapl_rx *rx);
};

/* How a channel describes and withdraws exposed memory. */
struct mdapl_exposed_ops {
    void (*describe)(struct mdapl_exposed *e, struct mdapl_where *where);
    void (*withdraw)(struct mdapl_exposed *e);
};

/* A channel: one table of calls. state is what open() made. */
struct mdapl_channel {
    const char *name;
    /* Makes the channel's state. 0, or -errno with the line in mdapl_ctx_err(). After -ENOTSUP (not
     * possible on this system) the job goes on without the channel; other failures end it. */
    int (*open)(struct mdapl_ctx *ctx, void **state_p);
    /* Writes this channel's part of the business card, at most len bytes with the zero. Returns its
     * length without the zero, or -errno. */
    int (*card)(void *state, char *buf, size_t len);
    /* As mdapl_port_card(); NULL: as card(). */
    int (*port_card)(void *state, char *buf, size_t len);
    /* As mdapl_probe(); NULL: the two ends of a pair always agree. */
    void (*probe)(void *state);
    /* Makes the peer of a rank with this business card, without traffic. 0, or -errno:
     * -EHOSTUNREACH if this channel does not reach it. */
    int (*reach)(void *state, struct mdapl_group *group, int rank, const char *card,
                 struct mdapl_peer **peer_p);
    /* As mdapl_peer_locate(); NULL: the channel knows where its visitors are. */
    int (*locate)(struct mdapl_peer *peer, const char *card);
    /* A group has been added, other than that of a visit; the peers of its ranks may be made when
     * all processes of both jobs have returned from this, or at any time where this is the only
     * channel. NULL: nothing to do. */
    void (*join)(void *state, struct mdapl_group *group);
    /* Ends what the owner has unfinished with this peer, with -ECANCELED, and disconnects it.
     * MDAPL_DONE: the peer has been freed; 0: not yet, to be called again. */
    int (*leave)(struct mdapl_peer *peer);
    /* As mdapl_peer_lost(). NULL: the channel knows by itself. */
    void (*lost)(struct mdapl_peer *peer);
    /* A group is about to be removed; its peers have been freed. NULL: nothing to do. */
    void (*part)(void *state, struct mdapl_group *group);
    /* As mdapl_wire() and mdapl_send(). */
    int (*wire)(void *state);
    int (*send)(struct mdapl_peer *peer, const struct mdapl_msg *msg, struct mdapl_op *op);
    /* As mdapl_expose(), mdapl_put() and mdapl_get(); NULL: the channel has none of them. */
    int (*expose)(void *state, void *base, size_t len, struct mdapl_exposed **e_p);
    int (*put)(struct mdapl_peer *peer, const struct mdapl_where *to, uint64_t off,
               const void *from, size_t len, struct mdapl_op *op);
    int (*get)(struct mdapl_peer *peer, const struct mdapl_where *from, uint64_t off, void *to,
               size_t len, struct mdapl_op *op);
    /* As mdapl_barrier_enter(), _passed() and _result(); NULL: the channel has no barrier. */
    int (*enter)(void *state, const struct mdapl_reduce *r);
    bool (*passed)(void *state);
    const void *(*result)(void *state);
    /* Bytes of header and body that travel eagerly. */
    size_t (*eager_max)(void *state);
    /* Polls and transmits what is queued. Returns how many messages, frames and transfers moved. */
    int (*progress)(void *state);
    /* As progress(), and checks what not each round has to check: new connections, timers. Called
     * about every 100 us, or with each round if rounds are further apart. now: ns on the context's
     * clock. NULL: progress() checks everything. */
    int (*look)(void *state, uint64_t now);
    /* Is any peer connected? If not, the channel is polled rarely, and a sleep may delay its first
     * connection. */
    bool (*has_connections)(void *state);
    /* As mdapl_wait(), for this channel's events; mdapl_ctx_sleep_begin() and _end() are around
     * what takes time in it. */
    void (*wait)(void *state, uint64_t ns);
    /* As mdapl_wake(): ends wait(), if a thread is in it. */
    void (*wake)(void *state);
    /* As mdapl_drain(). */
    size_t (*drain)(void *state);
    /* As mdapl_peer_idle(). */
    bool (*idle)(struct mdapl_peer *peer);
    /* As mdapl_peer_settled(). */
    bool (*settled)(struct mdapl_peer *peer);
    void (*close)(void *state);
    /* This channel's part of mdapl_ctx_describe(). */
    void (*describe)(void *state, char *buf, size_t len);
};

/* As args->barrier, with which the context was opened. */
bool mdapl_ctx_barrier(const struct mdapl_ctx *ctx);
/* The knobs with which the context was opened; valid until it is closed. */
const struct mdapl_cfg *mdapl_ctx_cfg(const struct mdapl_ctx *ctx);
/* The group with this id; NULL: the context has none. */
struct mdapl_group *mdapl_group_find(struct mdapl_ctx *ctx, uint32_t id);
/* The open port that follows prev (NULL: the first). NULL: there is none. */
const struct mdapl_port *mdapl_port_next(const struct mdapl_ctx *ctx,
                                         const struct mdapl_port *prev);
/* The group that a process is added as which no group has, whose request through this channel names
 * the group `id`, and which knows the key of the port. */
struct mdapl_group mdapl_port_visitor(const struct mdapl_port *port, uint32_t id,
                                      const struct mdapl_channel *channel);
/* As in transport.h. */
int mdapl_group_add(struct mdapl_ctx *ctx, const struct mdapl_group *args,
                    struct mdapl_group **group_p);
int mdapl_group_remove(struct mdapl_group *group);
/* As group->card and group->near. */
int mdapl_group_card(const struct mdapl_group *group, int rank, char *buf, size_t len);
bool mdapl_group_near(const struct mdapl_group *group, int rank);
/* The peer of this channel that follows prev (NULL: the first), in the order of groups and ranks.
 * NULL: there is none. */
struct mdapl_peer *mdapl_peer_next(struct mdapl_ctx *ctx, const struct mdapl_channel *channel,
                                   const struct mdapl_peer *prev);
/* The channel is about to free a peer: its group has none for this rank any more. */
void mdapl_peer_gone(struct mdapl_peer *peer);
/* The time in ns when the clock was read last, in one of the last 16 rounds of progress. */
uint64_t mdapl_ctx_recent(const struct mdapl_ctx *ctx);
const char *mdapl_ctx_host(const struct mdapl_ctx *ctx);
/* The inboxes of paused peers, by their links. */
struct mdapl_list *mdapl_ctx_paused(struct mdapl_ctx *ctx);
/* Has the context one channel only? */
bool mdapl_ctx_alone(const struct mdapl_ctx *ctx);
/* Do other threads use the context while one sleeps? */
bool mdapl_ctx_threaded(const struct mdapl_ctx *ctx);
/* The calling thread is about to sleep, or has slept: the upcalls of struct mdapl_up. */
void mdapl_ctx_sleep_begin(struct mdapl_ctx *ctx);
void mdapl_ctx_sleep_end(struct mdapl_ctx *ctx);
/* The upcalls of struct mdapl_up; the first one counts the message. */
enum mdapl_next mdapl_up_msg(struct mdapl_peer *peer, const struct mdapl_rx_msg *m);
void mdapl_up_fault(struct mdapl_peer *peer, int status, const char *why);

#endif
