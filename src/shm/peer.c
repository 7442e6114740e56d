/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include "channel.h"
#include "err.h"
#include "min.h"
#include "node.h"
#include "rx_op.h"
#include "shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ns, at most, between the end of the first rank of a job and of this one */
static const uint64_t END = 2000000000;

static const char out_of_memory[] = "out of memory for a message that waits";

/* -- making and freeing ----------------------------------------------------------------------- */

static void inbox_ready(struct mdapl_inbox *in)
{
    mdapl_shm_peer_wake(mdapl_shm_peer_of(in->peer));
}

struct mdapl_shm_peer *mdapl_shm_peer_next(struct mdapl_shm_chan *s,
                                           const struct mdapl_shm_peer *prev)
{
    struct mdapl_peer *next = mdapl_peer_next(s->ctx, &mdapl_shm_channel,
                                              prev ? &prev->base : NULL);

    return next ? mdapl_shm_peer_of(next) : NULL;
}

/* Data of an inring of the peer's segment that its writer uses: less on a node with many ranks,
 * whose rings together would hold a lot of memory. */
static uint32_t room_of_one(const struct mdapl_shm_peer *peer)
{
    uint32_t share = (uint32_t)(MDAPL_SHM_ROOM / peer->s->near.n) & -(uint32_t)MDAPL_LINE_BYTES;

    return share < MDAPL_SHM_ROOM_LEAST
               ? MDAPL_SHM_ROOM_LEAST
               : (uint32_t)mdapl_min(share, mdapl_shm_seg_data_bytes(&peer->far));
}

int mdapl_shm_peer_make(struct mdapl_shm_chan *s, const struct mdapl_group *group, int rank,
                        const char *text, struct mdapl_shm_peer **p)
{
    struct mdapl_shm_card card;
    struct mdapl_shm_peer *peer;
    struct mdapl_shm_seg far;
    int rc;

    if (!mdapl_shm_card_read(&card, text) || card.node != s->node)
        return -EHOSTUNREACH;
    /* The proof that memory is shared: the segment has the token of the card. */
    rc = mdapl_shm_seg_open(&far, card.ref, card.token, group->self.group ? -1 : rank,
                            group->index > 0 ? 0 : s->near.n);
    if (rc)
        return rc;
    peer = aligned_alloc(MDAPL_LINE_BYTES, sizeof(*peer));
    if (peer)
        memset(peer, 0, sizeof(*peer));
    if (!peer || mdapl_shm_way_make(peer) || mdapl_shm_flow_make(peer)) {
        if (peer)
            mdapl_shm_way_free(peer);
        free(peer);
        mdapl_shm_seg_close(&far);
        return -ENOMEM;
    }
    peer->base = (struct mdapl_peer){ &mdapl_shm_channel, s->ctx, group->index, rank, NULL, NULL };
    peer->s = s;
    peer->token = card.token;
    peer->far = far;
    peer->fence = !s->barrier || !far.head->barrier;
    peer->far_inring = group->index > 0 ? 0 : (uint32_t)s->near.me;    /* a guest claims one */
    peer->pid = far.head->pid;
    peer->process = mdapl_shm_os_process_open(peer->pid);
    peer->tx.room = room_of_one(peer);
    peer->tx.spread = &s->spread;
    peer->tx.pair = peer->rx.pair = &peer->pair;
    mdapl_list_init(&peer->ctl);
    mdapl_list_init(&peer->queue);
    mdapl_list_init(&peer->streaming);
    mdapl_list_init(&peer->later);
    mdapl_list_init(&peer->sends);
    mdapl_list_init(&peer->bodies);
    mdapl_list_init(&peer->reading);
    mdapl_list_init(&peer->work);
    mdapl_list_init(&peer->inflight_peers);
    mdapl_inbox_init(&peer->inbox, &peer->base, inbox_ready);
    mdapl_parts_init(&peer->parts, &peer->inbox, &peer->reading, &peer->dead);
    *p = peer;
    return 0;
}

/* All operations in progress end with status. */
static void end_all(struct mdapl_shm_peer *peer, int status)
{
    peer->dead = status;
    mdapl_shm_doorbell_close(peer);
    mdapl_shm_tx_fail(peer, status);
    mdapl_shm_rndv_fail(peer, status);
    mdapl_rx_ops_fail(&peer->reading, status);
    mdapl_inbox_fail(&peer->inbox);
}

void mdapl_shm_peer_free(struct mdapl_shm_peer *peer)
{
    end_all(peer, -ECANCELED);
    mdapl_parts_free(&peer->parts);
    mdapl_shm_rndv_free(peer);
    mdapl_list_remove(&peer->work);
    mdapl_shm_guest_leave(peer);
    mdapl_shm_seg_close(&peer->far);
    mdapl_shm_os_process_close(peer->process);
    mdapl_shm_way_free(peer);
    mdapl_shm_flow_free(peer);
    free(peer->stores);
    free(peer->laps);
    mdapl_peer_gone(&peer->base);
    free(peer);
}

/* -- work ------------------------------------------------------------------------------------- */

void mdapl_shm_peer_wake(struct mdapl_shm_peer *peer)
{
    if (mdapl_list_empty(&peer->work))
        mdapl_list_append(&peer->s->work, &peer->work);
}

void mdapl_shm_peer_broken(struct mdapl_shm_peer *peer, int status, const char *why)
{
    if (!peer->broken) {
        peer->broken = why;
        peer->broken_status = status;
    }
    mdapl_shm_peer_wake(peer);
}

static bool something_queued(const struct mdapl_shm_peer *peer)
{
    return !mdapl_list_empty(&peer->ctl) || !mdapl_list_empty(&peer->queue)
           || !mdapl_list_empty(&peer->streaming) || !mdapl_list_empty(&peer->later)
           || peer->broken;
}

/* Delivers the messages that the peer completed before it was lost: at most as many as its ring
 * holds, because a process that still runs could write more for ever. */
static void last_messages(struct mdapl_shm_peer *peer)
{
    int n = 0, got = 1;

    mdapl_shm_fifo_last(peer);
    while (peer->rx.in.front && !peer->dead && got > 0 && n < MDAPL_SLOTS) {
        got = mdapl_shm_rx_poll(peer);
        n += got;
    }
}

int mdapl_shm_peer_progress(struct mdapl_shm_peer *peer)
{
    int n;

    if (peer->dead)
        return 0;
    if (peer->broken) {
        last_messages(peer);
        mdapl_shm_peer_fail(peer, peer->broken_status, peer->broken);
        return 1;
    }
    n = mdapl_inbox_announce_held(&peer->inbox) + mdapl_shm_tx_flush(peer)
        + mdapl_shm_rndv_read_waiting(peer);
    if (something_queued(peer))
        mdapl_shm_peer_wake(peer);
    return n;
}

/* -- the end ---------------------------------------------------------------------------------- */

void mdapl_shm_peer_fail(struct mdapl_shm_peer *peer, int status, const char *why)
{
    struct mdapl_ctx *ctx = peer->s->ctx;
    char line[512];

    if (peer->dead)
        return;
    snprintf(line, sizeof(line),
             "lost rank %d, process %d on this node (%s), which was reached through shared memory: "
             "%s", peer->base.rank, (int)peer->pid, mdapl_ctx_host(ctx), why);
    mdapl_err_set(mdapl_ctx_err(ctx), status, "%s", line);
    mdapl_inbox_announce_last(&peer->inbox);
    end_all(peer, status);
    mdapl_up_fault(&peer->base, status, line);
}

bool mdapl_shm_peer_no_memory(struct mdapl_shm_peer *peer)
{
    mdapl_shm_peer_fail(peer, -ENOMEM, out_of_memory);
    return false;
}

/* What it means that the peer takes no message of ours. */
static const char *refusal(const struct mdapl_group *group)
{
    if (mdapl_group_is_port(group))
        return "it refused us: the port is closed, or has another key";
    if (group->index > 0)
        return "it has disconnected, or has another key";
    return "it refused us: it has lost this rank before. Its own message says why";
}

/* The ranks of a job that has drained wait for each other at the launcher's barrier, and then end:
 * some before the launcher's answer reaches others. */
static bool may_end(struct mdapl_shm_chan *s)
{
    uint64_t now = mdapl_ctx_now(s->ctx);

    if (s->drained && s->end_seen == 0)
        s->end_seen = now;
    return s->drained && now - s->end_seen < END;
}

/* Does the peer take no message of ours? While all were in its FIFO, nothing of its inring has been
 * touched. */
static bool is_refused(const struct mdapl_shm_peer *peer)
{
    const struct mdapl_shm_inring *in = peer->tx.in.front;

    if (!in && peer->tx.next > 0 && atomic_load(&peer->far.head->refuses))
        in = mdapl_shm_seg_inring(&peer->far, peer->far_inring).front;
    return in && atomic_load(&in->refused);
}

void mdapl_shm_peer_check(struct mdapl_shm_peer *peer)
{
    if (peer->dead || peer->broken)
        return;
    if (mdapl_shm_os_process_ended(peer->process, peer->pid) && !may_end(peer->s))
        mdapl_shm_peer_broken(peer, -ECONNRESET,
                              "the process is gone. Look for what ended it: a "
                              "signal, the memory limit");
    else if (peer->rx.in.front && mdapl_shm_guest_has_left(peer->s, peer->inring))
        mdapl_shm_peer_broken(peer, -ECONNRESET, "it has disconnected");
    else if (is_refused(peer))
        mdapl_shm_peer_broken(peer, -ECONNREFUSED, refusal(mdapl_peer_group(&peer->base)));
}

bool mdapl_shm_peer_idle(struct mdapl_shm_peer *peer)
{
    if (peer->dead)
        return true;
    if (peer->tx.in.front)
        mdapl_shm_spsc_ack_in(&peer->tx, mdapl_shm_spsc_taken(&peer->tx));
    else
        mdapl_shm_fifo_ack_in(peer);
    return peer->tx.next == peer->tx.acked && mdapl_list_empty(&peer->ctl)
           && mdapl_list_empty(&peer->queue) && mdapl_list_empty(&peer->sends);
}

size_t mdapl_shm_peer_unfinished(struct mdapl_shm_peer *peer)
{
    size_t n = !mdapl_shm_peer_idle(peer);

    if (peer->dead)
        return 0;
    if (peer->rx.taken != peer->rx.acked)
        mdapl_shm_spsc_ack_flush(&peer->rx);
    return n + !mdapl_list_empty(&peer->inbox.parked);
}
