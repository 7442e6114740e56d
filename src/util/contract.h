/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CONTRACT_H
#define MDAPL_CONTRACT_H
/*
 * What both sides of the contract use: the owner of a context, which sends and receives messages
 * (transport.h: src/mpid, a benchmark, a test), and the channels that carry them (channel.h:
 * src/dapl, src/shm).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct mdapl_channel;
struct mdapl_ctx;
struct mdapl_err;
struct mdapl_log;
struct mdapl_exposed_ops;
struct mdapl_rx_ops;
struct mdapl_stats;

enum {
    MDAPL_DONE = 1,          /* a verb's result: it has finished, op->done will not be called */
    MDAPL_HDR_MAX = 128,     /* bytes of header that every channel carries in one frame */
    MDAPL_CARD_MAX = 512,    /* bytes of a business card, with its terminating zero */
    MDAPL_KEY_BYTES = 16,    /* of a group's key */
    MDAPL_WHERE_BYTES = 278, /* of the description of exposed memory */
    MDAPL_REDUCE_BYTES = 4096, /* that a rank brings into a barrier */
};

/*
 * An operation in progress. The owner embeds it in its own request and keeps it until done() has
 * been called, exactly once. status is 0 or a negative errno value; -ECANCELED for a send whose
 * body the receiver has dropped without reading any of it.
 */
struct mdapl_op {
    void (*done)(struct mdapl_op *op, int status);
};

/* Values that all ranks bring into a barrier, of one length, and how one value is made of them. */
struct mdapl_reduce {
    const void *own;
    size_t len;                  /* bytes, at most MDAPL_REDUCE_BYTES */
    /* `inout` becomes the value of `in` and `inout`; those in `in` are of lower ranks. Both are
     * aligned for any type. Called where a rank is the last one to enter. */
    void (*combine)(const void *arg, const void *in, void *inout);
    const void *arg;
};

/* A message for mdapl_send(). The header is copied; the caller keeps the body's bytes until done.
 * */
struct mdapl_msg {
    const void *hdr;
    size_t hdr_len;          /* at most MDAPL_HDR_MAX */
    const struct iovec *body;
    int n_body;
    bool synchronous;        /* op is done when the receiver has read or dropped the body, or reads
                              * all that is left of it */
};

/*
 * A body that has to be fetched: the receiving side of a rendezvous. The channel makes and frees
 * it; the owner of the context holds it from up->msg until every byte has been read (op->done of
 * the last read, or MDAPL_DONE) or the rest has been dropped.
 */
struct mdapl_rx {
    const struct mdapl_rx_ops *ops;
    size_t left;             /* bytes not read yet */
};

/*
 * A message as it is announced. hdr and data are valid during the call. A body that has arrived
 * with its header lies at data, and the owner copies what it needs before the call returns. Any
 * other body has an rx, which the owner keeps until it has read or dropped it.
 */
struct mdapl_rx_msg {
    const void *hdr;
    size_t hdr_len;
    const char *data;        /* NULL: there is no body, or it has to be fetched */
    size_t len;              /* bytes of the body */
    struct mdapl_rx *rx;     /* NULL: there is nothing to fetch */
};

/* Memory of this process that peers may read and write without its taking part. The channel makes
 * and frees it; the owner of the context holds it until mdapl_withdraw(). */
struct mdapl_exposed {
    const struct mdapl_exposed_ops *ops;
};

/* What a peer has to know of exposed memory: bytes that the owner passes on as they are, to the
 * peers of the channel that has written them. */
struct mdapl_where {
    uint16_t len;            /* 0: there is none, or it cannot be reached */
    uint8_t bytes[MDAPL_WHERE_BYTES];
};

/* Result of up->msg: what happens to later messages of the same peer. */
enum mdapl_next {
    MDAPL_NEXT_GO,           /* they may be announced while this body is still unread */
    MDAPL_NEXT_ENOUGH,       /* the same, but better in another round: this is what was waited for,
                              * and the owner is about to say where the next one belongs */
    MDAPL_NEXT_LATER,        /* they are queued until mdapl_resume(), or until the peer is lost */
    MDAPL_NEXT_HOLD          /* they are queued until m->rx has been read or dropped to its end */
};

/* A process, as a group refers to it. */
struct mdapl_name {
    uint32_t group;          /* id */
    int rank;
};

/*
 * A group: the processes of one job. A process belongs to one, and (group, rank) identifies it.
 * Group 0 of a context, "the job", is that of this process; the owner adds the groups of other jobs
 * that exchange messages with it (mdapl_group_add() in transport.h). The owner fills in the members
 * down to `owner` and provides both calls (by PMI in src/mpid, from memory in tests).
 */
struct mdapl_group {
    int rank;                /* the job: this process's; of no meaning in other groups */
    int size;
    /* The same in all processes that know the group, different from all other groups'. */
    uint32_t id;
    /* Secret, known to the processes of the job and of this group only: the two groups of a pair
     * have the same key for each other. The job's may be set later, by mdapl_ctx_set_job(). */
    uint8_t key[MDAPL_KEY_BYTES];
    /* Copies the business card of rank into buf (zero terminated). 0 or -errno. Progress calls it
     * at the first contact of a rank, so it should not wait for the launcher. */
    int (*card)(void *owner, int rank, char *buf, size_t len);
    /* Does the launcher place rank on this node? The result is the same on all ranks of a node.
     * NULL: not known, any rank may be on this node. */
    bool (*near)(void *owner, int rank);
    void *owner;             /* first argument of both calls; NULL: the context's owner */
    /* This process, as the processes of the group know it. All zero: by its job and its rank
     * there. */
    struct mdapl_name self;
    /* The channel through which its one process has come to a port; NULL: it has not. No other
     * channel reaches it. In the channel dapl, `card` then has the rails that it uses, but not
     * where it listens, until mdapl_peer_locate(). */
    const struct mdapl_channel *visitor;
    /* Of the context: */
    struct mdapl_ctx *ctx;
    int index;               /* among the context's groups; the job's is 0 */
    struct mdapl_peer **peers;   /* by rank; NULL until mdapl_group_peer() */
    bool closed;             /* mdapl_group_close() */
};

/* Another process, as the owner of the context holds it: the first member of each channel's peer.
 * The channel makes it and frees it in mdapl_group_remove() or mdapl_ctx_close(). */
struct mdapl_peer {
    const struct mdapl_channel *channel;
    struct mdapl_ctx *ctx;
    int group;               /* index of its group */
    int rank;                /* in that group */
    void *owner;             /* for the owner (a VC); NULL until the owner sets it */
    struct mdapl_inbox *paused;  /* what queues its messages since MDAPL_NEXT_LATER; else NULL */
};

/* Group 0 of a context. */
struct mdapl_group *mdapl_ctx_job(struct mdapl_ctx *ctx);
/* This process, as the processes of the group know it. */
struct mdapl_name mdapl_group_self(const struct mdapl_group *group);
/* Is the group's one process that of a port, which this process visits? */
static inline bool mdapl_group_is_port(const struct mdapl_group *group)
{
    return group->self.group != 0 && !group->visitor;
}
/* The group of a peer. */
struct mdapl_group *mdapl_peer_group(const struct mdapl_peer *peer);
/* The peer of a rank of a group, made at the first call. 0, or -errno: -EHOSTUNREACH (no channel
 * reaches it), -EINVAL (this process, or a rank outside the group), or the error of group->card. */
int mdapl_group_peer(struct mdapl_group *group, int rank, struct mdapl_peer **peer_p);
/* The same for a rank of the job. */
static inline int mdapl_peer_get(struct mdapl_ctx *ctx, int rank, struct mdapl_peer **peer_p)
{
    return mdapl_group_peer(mdapl_ctx_job(ctx), rank, peer_p);
}
/* Counters, log and last error of a context; valid until it is closed. */
struct mdapl_stats *mdapl_ctx_stats(struct mdapl_ctx *ctx);
struct mdapl_log *mdapl_ctx_log(struct mdapl_ctx *ctx);
struct mdapl_err *mdapl_ctx_err(struct mdapl_ctx *ctx);
/* The time on the context's clock, in ns. */
uint64_t mdapl_ctx_now(const struct mdapl_ctx *ctx);

#endif
