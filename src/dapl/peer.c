/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include "cfg.h"
#include "cm.h"
#include "conn.h"
#include "dapl.h"
#include "err.h"
#include "frames.h"
#include "ia.h"
#include "min.h"
#include "rma.h"
#include "rndv.h"
#include "rx_op.h"
#include "xfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- business cards --------------------------------------------------------------------------- */

/* "dapl:STREAMS:RAIL,RAIL...:HOST"; a rail is its address in hex, without the zeros at its end, and
 * "/" and the qualifier (PROTOCOL, section 6). */
static const char card_tag[] = "dapl:";

enum { PORT_HOST = 24 };         /* characters of the host name in the name of a port */

/* What a card says. */
struct card {
    int streams, n_rails;
    struct {
        uint8_t addr[28], addr_len;
        uint64_t qual;
    } rail[MDAPL_MAX_RAILS];
    const char *host;
    int host_len;
};

static int put_rail(const struct mdapl_dapl_ia *ia, char *buf, size_t len)
{
    char hex[2 * sizeof(ia->addr) + 1] = "";
    int n = ia->addr_len;

    while (n > 1 && ia->addr[n - 1] == 0)
        n--;
    for (int i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", ia->addr[i]);
    return snprintf(buf, len, "%s%s/%llu", ia->rail ? "," : "", hex,
                    (unsigned long long)ia->qual);
}

/* With the first rails and this many characters of the host name at most, which is for user lines
 * only. */
static int put_card(const struct mdapl_dapl_chan *d, int streams, int rails, int host, char *buf,
                    size_t len)
{
    size_t n = (size_t)snprintf(buf, len, "%s%d:", card_tag, streams);

    for (int i = 0; i < rails && n < len; i++)
        n += (size_t)put_rail(d->rails.ia[i], buf + n, len - n);
    if (n + 1 >= len)
        return -ENOSPC;
    n += (size_t)snprintf(buf + n, len - n, ":%.*s", host, mdapl_ctx_host(d->ctx));
    return (int)mdapl_min(n, len - 1);
}

int mdapl_dapl_card_put(const struct mdapl_dapl_chan *d, char *buf, size_t len)
{
    return put_card(d, d->streams_per_rail, d->rails.n, MDAPL_CARD_MAX, buf, len);
}

int mdapl_dapl_port_card_put(const struct mdapl_dapl_chan *d, char *buf, size_t len)
{
    return put_card(d, 1, 1, PORT_HOST, buf, len);
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *p = c ? strchr(digits, c) : NULL;

    return p ? (int)(p - digits) : -1;
}

static const char *get_hex(const char *s, uint8_t *out, size_t max, uint8_t *len_p)
{
    uint8_t n = 0;

    while (n < max && hex_digit(s[0]) >= 0 && hex_digit(s[1]) >= 0) {
        out[n++] = (uint8_t)(hex_digit(s[0]) << 4 | hex_digit(s[1]));
        s += 2;
    }
    *len_p = n;
    return s;
}

/* A number that one of these characters ends; NULL when there is none. */
static const char *get_number(const char *s, const char *ends, uint64_t *value)
{
    char *end;

    *value = strtoull(s, &end, 10);
    return end > s && *end && strchr(ends, *end) ? end : NULL;
}

static bool card_get(const char *text, struct card *c)
{
    const char *s = strstr(text, card_tag);
    uint64_t n;

    memset(c, 0, sizeof(*c));
    s = s ? get_number(s + strlen(card_tag), ":", &n) : NULL;
    if (!s || n == 0 || n > MDAPL_MAX_STREAMS)
        return false;
    c->streams = (int)n;
    do {
        int i = c->n_rails++;

        s = get_hex(s + 1, c->rail[i].addr, sizeof(c->rail[i].addr), &c->rail[i].addr_len);
        if (c->rail[i].addr_len == 0 || *s != '/')
            return false;
        s = get_number(s + 1, ",:", &c->rail[i].qual);
    } while (s && *s == ',' && c->n_rails < MDAPL_MAX_RAILS);
    if (!s || *s != ':')
        return false;
    c->host = s + 1;
    c->host_len = (int)strcspn(c->host, "!:");
    return true;
}

/* -- making and freeing ----------------------------------------------------------------------- */

static void locate(struct mdapl_dapl_peer *peer, const struct card *card)
{
    for (int i = 0; i < peer->n_streams; i++) {
        struct mdapl_dapl_cm *cm = &peer->stream[i].cm;
        int rail = i % peer->n_rails;

        memcpy(cm->addr, card->rail[rail].addr, sizeof(cm->addr));
        cm->addr_len = card->rail[rail].addr_len;
        cm->qual = card->rail[rail].qual;
    }
}

int mdapl_dapl_peer_locate(struct mdapl_peer *base, const char *text)
{
    struct mdapl_dapl_peer *peer = mdapl_dapl_peer_of(base);
    struct card card;

    if (!card_get(text, &card) || card.n_rails < peer->n_rails)
        return -EPROTO;
    locate(peer, &card);
    return 0;
}

/* The number of streams: the lower of the knobs of both ends, on each rail that both have. */
static int make_streams(struct mdapl_dapl_peer *peer, const struct card *card)
{
    struct mdapl_dapl_chan *d = peer->d;
    int each = card->streams < d->streams_per_rail ? card->streams : d->streams_per_rail;

    peer->n_rails = card->n_rails < d->rails.n ? card->n_rails : d->rails.n;
    peer->n_streams = each * peer->n_rails;
    if (peer->n_streams > MDAPL_MAX_STREAMS)
        peer->n_streams = MDAPL_MAX_STREAMS;
    peer->stream = calloc((size_t)peer->n_streams, sizeof(*peer->stream));
    for (int i = 0; peer->stream && i < peer->n_streams; i++) {
        struct mdapl_dapl_stream *st = &peer->stream[i];

        st->peer = peer;
        st->index = i;
        st->ia = d->rails.ia[i % peer->n_rails];
        st->rx_window = mdapl_rxwin_first(d->sr_window);
        mdapl_list_init(&st->asking);
        mdapl_dapl_cm_init(st);
    }
    peer->main = peer->stream;
    return peer->stream ? 0 : -ENOMEM;
}

void mdapl_dapl_stream_set_up(struct mdapl_dapl_stream *st, struct mdapl_dapl_conn *conn)
{
    struct mdapl_dapl_peer *peer = st->peer;

    st->up = conn;
    for (int i = 0; i < peer->n_streams; i++)
        if (mdapl_dapl_stream_up(&peer->stream[i])) {
            peer->main = &peer->stream[i];
            return;
        }
}

static void inbox_ready(struct mdapl_inbox *in)
{
    mdapl_dapl_peer_wake(mdapl_dapl_peer_of(in->peer));
}

struct mdapl_dapl_peer *mdapl_dapl_peer_next(struct mdapl_dapl_chan *d,
                                             const struct mdapl_dapl_peer *prev)
{
    struct mdapl_peer *next = mdapl_peer_next(d->ctx, &mdapl_dapl_channel,
                                              prev ? &prev->base : NULL);

    return next ? mdapl_dapl_peer_of(next) : NULL;
}

/* The number of a new peer. 0 stands for none. */
static uint32_t new_incarnation(struct mdapl_dapl_chan *d)
{
    if (++d->incarnation == 0)
        d->incarnation = 1;
    return d->incarnation;
}

int mdapl_dapl_peer_make(struct mdapl_dapl_chan *d, const struct mdapl_group *group, int rank,
                         const char *text, struct mdapl_dapl_peer **p)
{
    struct mdapl_dapl_peer *peer = calloc(1, sizeof(*peer));
    struct mdapl_list *lists[] = { &peer->work,      &peer->vbuf_waiters, &peer->ctl,
                                   &peer->queue,     &peer->retained,     &peer->ack_pending,
                                   &peer->reordered, &peer->reading,      &peer->rndv_tx,
                                   &peer->rndv_rx,   &peer->xfers,
                                   &peer->rma,       &peer->rma_waiting };
    struct card card;
    int rc;

    if (!peer)
        return -ENOMEM;
    peer->d = d;
    peer->incarnation = new_incarnation(d);
    peer->frame_room = d->frame_room;    /* until its hello says less */
    rc = card_get(text, &card) ? make_streams(peer, &card) : -EHOSTUNREACH;
    if (rc) {
        free(peer);
        return rc;
    }
    if (!group->visitor)
        locate(peer, &card);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        mdapl_list_init(lists[i]);
    peer->base = (struct mdapl_peer){ &mdapl_dapl_channel, d->ctx, group->index, rank, NULL, NULL };
    mdapl_inbox_init(&peer->inbox, &peer->base, inbox_ready);
    mdapl_parts_init(&peer->parts, &peer->inbox, &peer->reading, &peer->dead);
    snprintf(peer->host, sizeof(peer->host), "%.*s", card.host_len, card.host);
    if (group->index > 0)        /* user lines have rank and host: say that it is not the job's */
        snprintf(peer->host, sizeof(peer->host), "%.*s of job %08x", card.host_len, card.host,
                 group->id);
    *p = peer;
    return 0;
}

void mdapl_dapl_peer_offered(struct mdapl_dapl_stream *st, const struct mdapl_dapl_hello *h)
{
    struct mdapl_dapl_peer *peer = st->peer;
    const struct mdapl_cfg *cfg = mdapl_ctx_cfg(peer->d->ctx);

    /* A frame may have arrived before the event with the hello, and its limit is higher. */
    mdapl_txwin_update(&st->conn->txwin, h->sr_window);
    st->conn->peer_generation = h->generation;
    st->conn->probe.promised = h->offers & MDAPL_HELLO_WORDS;
    peer->met = h->incarnation;
    if (mdapl_seq_before((uint32_t)peer->tx_acked, h->rx_next))
        mdapl_dapl_tx_acked(peer, h->rx_next);
    peer->frame_room = mdapl_min(peer->d->frame_room, h->frame_bytes - MDAPL_FRAME_HDR_BYTES);
    peer->retains = h->offers & MDAPL_HELLO_RETAINS;
    peer->recovers = h->offers & MDAPL_HELLO_RECOVERS && cfg->ft == MDAPL_FT_ON
                     && cfg->retain == MDAPL_RETAIN_ON;
}

void mdapl_dapl_peer_end(struct mdapl_dapl_peer *peer, int status)
{
    mdapl_dapl_tx_fail(peer, status);
    mdapl_dapl_rndv_fail_tx(peer, status);
    mdapl_dapl_rndv_fail_rx(peer, status);
    mdapl_rx_ops_fail(&peer->reading, status);
    mdapl_dapl_rma_fail(peer, status);
    mdapl_dapl_rx_fail(peer);
    for (int i = 0; i < peer->n_streams; i++)
        mdapl_dapl_conn_promise(&peer->stream[i], false);
}

void mdapl_dapl_peer_free(struct mdapl_dapl_peer *peer)
{
    mdapl_dapl_peer_end(peer, -ECANCELED);
    mdapl_dapl_rndv_free_tx(peer);
    mdapl_dapl_rndv_free_rx(peer);
    mdapl_parts_free(&peer->parts);
    mdapl_dapl_rma_free(peer);
    mdapl_list_remove(&peer->work);
    mdapl_list_remove(&peer->vbuf_waiters);
    for (int i = 0; i < peer->n_streams; i++)
        mdapl_timer_stop(&peer->stream[i].cm.timer);
    mdapl_peer_gone(&peer->base);
    free(peer->stream);
    free(peer);
}

/* -- work ------------------------------------------------------------------------------------- */

void mdapl_dapl_peer_wake(struct mdapl_dapl_peer *peer)
{
    if (mdapl_list_empty(&peer->work))
        mdapl_list_append(&peer->d->work, &peer->work);
}

void mdapl_dapl_peer_wake_if_pending(struct mdapl_dapl_peer *peer)
{
    if (!mdapl_list_empty(&peer->ctl) || !mdapl_list_empty(&peer->queue)
        || !mdapl_list_empty(&peer->inbox.parked) || !mdapl_list_empty(&peer->xfers)
        || !mdapl_list_empty(&peer->rma_waiting)
        || mdapl_dapl_rx_ack_due(peer))
        mdapl_dapl_peer_wake(peer);
}

int mdapl_dapl_peer_progress(struct mdapl_dapl_peer *peer)
{
    int n = mdapl_inbox_announce_held(&peer->inbox);

    n += mdapl_dapl_rma_go_on(peer);
    n += mdapl_dapl_xfer_flush(peer);
    n += mdapl_dapl_tx_flush(peer);
    return n;
}

/* -- the end ---------------------------------------------------------------------------------- */

void mdapl_dapl_peer_fail(struct mdapl_dapl_peer *peer, int status, const char *line)
{
    mdapl_inbox_announce_last(&peer->inbox);
    peer->dead = status;
    if (!peer->d->failed)
        peer->d->failed = mdapl_err_set(mdapl_ctx_err(peer->d->ctx), status, "%s", line);
    mdapl_dapl_peer_end(peer, status);
    mdapl_up_fault(&peer->base, status, line);
}

bool mdapl_dapl_peer_idle(const struct mdapl_dapl_peer *peer)
{
    return mdapl_dapl_peer_unacked(peer) == 0 && mdapl_list_empty(&peer->ctl)
           && mdapl_list_empty(&peer->queue) && mdapl_list_empty(&peer->rndv_tx)
           && !mdapl_dapl_rma_busy(peer);
}

size_t mdapl_dapl_peer_unfinished(const struct mdapl_dapl_peer *peer)
{
    size_t n = (size_t)mdapl_dapl_peer_unacked(peer) + (size_t)(peer->rx_next - peer->rx_acked);

    if (peer->dead)
        return 0;
    n += !mdapl_list_empty(&peer->ctl) + !mdapl_list_empty(&peer->queue);
    n += !mdapl_list_empty(&peer->rndv_tx) + !mdapl_list_empty(&peer->inbox.parked);
    n += mdapl_dapl_rma_busy(peer);
    /* An acknowledgement whose DTO has not completed may not have been transmitted. */
    for (int i = 0; i < peer->n_streams; i++) {
        const struct mdapl_dapl_conn *conn = peer->stream[i].conn;

        n += conn ? conn->ep.req_posted - conn->ep.n_unsignaled : 0;
    }
    return n;
}
