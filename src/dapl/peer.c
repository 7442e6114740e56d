/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include "cm.h"
#include "dapl.h"
#include "ep.h"
#include "err.h"
#include "ia.h"
#include "log.h"
#include "rndv.h"
#include "rx.h"
#include "tx.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- business cards: "dapl:<address in hex>:<qualifier>:<host>" ------------------------------- */

static const char card_tag[] = "dapl:";

int mdapl_card_put(const struct mdapl_dapl *d, char *buf, size_t len)
{
    char hex[2 * sizeof(d->ia->addr) + 1];
    int n;

    for (int i = 0; i < d->ia->addr_len; i++)
        snprintf(hex + 2 * i, 3, "%02x", d->ia->addr[i]);
    n = snprintf(buf, len, "%s%s:%llu:%s", card_tag, hex, (unsigned long long)d->ia->qual,
                 mdapl_ctx_host(d->ctx));
    return n < 0 || (size_t)n >= len ? -ENOSPC : n;
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

static bool card_get(const char *card, struct mdapl_cm *cm)
{
    const char *s = strstr(card, card_tag);
    char *end;

    if (!s)
        return false;
    s = get_hex(s + strlen(card_tag), cm->addr, sizeof(cm->addr), &cm->addr_len);
    if (cm->addr_len == 0 || *s++ != ':')
        return false;
    cm->qual = strtoull(s, &end, 10);
    if (end == s || *end++ != ':')
        return false;
    snprintf(cm->host, sizeof(cm->host), "%.*s", (int)strcspn(end, "!:"), end);
    return true;
}

/* -- making and freeing ----------------------------------------------------------------------- */

int mdapl_dpeer_make(struct mdapl_dapl *d, int rank, const char *card, struct mdapl_dpeer **p)
{
    struct mdapl_dpeer *peer = calloc(1, sizeof(*peer));
    struct mdapl_list *lists[] = {
        &peer->work, &peer->ctl, &peer->queue, &peer->retained, &peer->owing, &peer->held,
        &peer->rndv_tx, &peer->rndv_rx, &peer->fetching
    };

    if (!peer)
        return -ENOMEM;
    if (!card_get(card, &peer->cm)) {
        free(peer);
        return -EHOSTUNREACH;
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        mdapl_list_init(lists[i]);
    peer->base = (struct mdapl_peer){ &mdapl_dapl_channel, d->ctx, rank, NULL };
    peer->d = d;
    mdapl_cm_init(peer);
    d->peers[rank] = peer;
    *p = peer;
    return 0;
}

void mdapl_dpeer_free(struct mdapl_dpeer *peer)
{
    mdapl_tx_fail(peer, -ECANCELED);
    mdapl_rndv_fail(peer, -ECANCELED);
    mdapl_rx_fail(peer);
    mdapl_rndv_free(peer);
    mdapl_list_remove(&peer->work);
    mdapl_timer_stop(&peer->cm.retry);
    peer->d->peers[peer->base.rank] = NULL;
    free(peer);
}

/* -- work ------------------------------------------------------------------------------------- */

void mdapl_dpeer_wake(struct mdapl_dpeer *peer)
{
    if (mdapl_list_empty(&peer->work))
        mdapl_list_append(&peer->d->work, &peer->work);
}

void mdapl_dpeer_broken(struct mdapl_dpeer *peer, const char *why)
{
    if (!peer->broken)
        peer->broken = why;
    mdapl_dpeer_wake(peer);
}

int mdapl_dpeer_work(struct mdapl_dpeer *peer)
{
    int n = 0;

    if (peer->broken && !peer->dead) {
        mdapl_cm_lost(peer, peer->broken);
        return 1;
    }
    n += mdapl_rx_announce_held(peer);
    n += mdapl_rndv_flush(peer);
    n += mdapl_tx_flush(peer);
    return n;
}

/* -- the end ---------------------------------------------------------------------------------- */

void mdapl_dpeer_fail(struct mdapl_dpeer *peer, int status, const char *fmt, ...)
{
    char why[512];
    va_list ap;

    if (peer->dead)
        return;
    peer->dead = status;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    if (!peer->d->failed)
        peer->d->failed = mdapl_err_set(mdapl_ctx_err(peer->d->ctx), status, "%s", why);
    mdapl_cm_close(peer);
    mdapl_tx_fail(peer, status);
    mdapl_rndv_fail(peer, status);
    mdapl_rx_fail(peer);
    mdapl_up_fault(&peer->base, status, why);
}

size_t mdapl_dpeer_unfinished(const struct mdapl_dpeer *peer)
{
    size_t n = peer->n_retained + (size_t)(peer->rx_next - peer->rx_acked);

    if (peer->dead)
        return 0;
    n += !mdapl_list_empty(&peer->ctl) + !mdapl_list_empty(&peer->queue);
    n += !mdapl_list_empty(&peer->rndv_tx) + !mdapl_list_empty(&peer->held);
    /* An acknowledgement that is still with the adapter has not been given. */
    return n + (peer->cm.ep ? peer->cm.ep->req_posted : 0);
}
