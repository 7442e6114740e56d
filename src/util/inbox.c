/* SPDX-License-Identifier: MIT */
#include "inbox.h"

#include "stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A body that has arrived. */
struct body {
    struct mdapl_rx rx;
    struct mdapl_inbox *in;
    char *copy;              /* its own memory, once it has outlived the place where it lay */
    struct mdapl_list link;  /* then: on outlived */
    bool announcing;         /* up->msg is running: it is not freed under its feet */
    bool over;
};

/* An announcement that waits for the end of an earlier body. */
struct held {
    struct mdapl_list link;
    struct mdapl_rx *rx;
    size_t hdr_len;
    uint8_t hdr[MDAPL_HDR_MAX];
};

/* -- bodies ----------------------------------------------------------------------------------- */

static void body_free(struct body *b)
{
    if (b->copy) {
        mdapl_list_remove(&b->link);
        free(b->copy);
    }
    mdapl_pool_give(&b->in->all->bodies, b);
}

static void body_finish(struct mdapl_rx *rx)
{
    struct body *b = MDAPL_OF(rx, struct body, rx);

    mdapl_inbox_over(b->in, rx);
    b->over = true;
    if (!b->announcing)
        body_free(b);
}

/* All of the body is here: there is never anything to fetch. */
static int body_read(struct mdapl_rx *rx, const struct iovec *iov, int n, struct mdapl_op *op)
{
    (void)rx, (void)iov, (void)n, (void)op;
    return -EINVAL;
}

static const struct mdapl_rx_ops body_ops = {
    .read = body_read, .drop = body_finish, .finish = body_finish
};

/* Gives what is left of the body memory of its own. */
static bool body_outlive(struct body *b)
{
    b->copy = malloc(b->rx.here);
    if (!b->copy)
        return false;
    memcpy(b->copy, b->rx.data, b->rx.here);
    b->rx.data = b->copy;
    mdapl_list_append(&b->in->all->outlived, &b->link);
    return true;
}

void mdapl_inboxes_init(struct mdapl_inboxes *all, void (*ready)(struct mdapl_inbox *in))
{
    all->ready = ready;
    mdapl_pool_init(&all->bodies, sizeof(struct body), sizeof(void *), 64, 0);
    mdapl_pool_init(&all->held, sizeof(struct held), sizeof(void *), 64, 0);
    mdapl_list_init(&all->outlived);
}

void mdapl_inboxes_fini(struct mdapl_inboxes *all)
{
    struct mdapl_list *l;

    while ((l = mdapl_list_take(&all->outlived)))
        free(MDAPL_OF(l, struct body, link)->copy);
    mdapl_pool_fini(&all->bodies);
    mdapl_pool_fini(&all->held);
}

/* -- announcing ------------------------------------------------------------------------------- */

static bool must_hold(const struct mdapl_inbox *in)
{
    return in->hold || !mdapl_list_empty(&in->held);
}

static int hold_back(struct mdapl_inbox *in, const void *hdr, size_t hdr_len, struct mdapl_rx *rx)
{
    struct held *h = mdapl_pool_take(&in->all->held);

    if (!h)
        return -ENOMEM;
    h->rx = rx;
    h->hdr_len = hdr_len;
    memcpy(h->hdr, hdr, hdr_len);
    mdapl_list_append(&in->held, &h->link);
    mdapl_ctx_stats(in->peer->ctx)->held++;
    mdapl_stats_max(&mdapl_ctx_stats(in->peer->ctx)->held_max, ++in->n_held);
    return 0;
}

/* Announces; what the owner answers and whether it has come to the body's end decide on hold. */
static void announce_rx(struct mdapl_inbox *in, const void *hdr, size_t hdr_len,
                        struct mdapl_rx *rx)
{
    enum mdapl_next next;

    /* Set before the call: the owner may come to the body's end inside it. */
    in->hold = rx;
    next = mdapl_up_msg(in->peer, hdr, hdr_len, rx);
    if (in->hold == rx && next == MDAPL_NEXT_GO)
        in->hold = NULL;
}

static int announce_body(struct mdapl_inbox *in, const void *hdr, size_t hdr_len, struct body *b)
{
    b->announcing = true;
    announce_rx(in, hdr, hdr_len, &b->rx);
    b->announcing = false;
    if (b->over)
        body_free(b);
    else if (!b->copy && !body_outlive(b))
        return -ENOMEM;
    return 0;
}

static int announce_now(struct mdapl_inbox *in, const void *hdr, size_t hdr_len,
                        struct mdapl_rx *rx)
{
    if (rx && rx->ops == &body_ops)
        return announce_body(in, hdr, hdr_len, MDAPL_OF(rx, struct body, rx));
    if (rx)
        announce_rx(in, hdr, hdr_len, rx);
    else
        mdapl_up_msg(in->peer, hdr, hdr_len, NULL);
    return 0;
}

void mdapl_inbox_init(struct mdapl_inbox *in, struct mdapl_inboxes *all, struct mdapl_peer *peer)
{
    *in = (struct mdapl_inbox){ .all = all, .peer = peer };
    mdapl_list_init(&in->held);
}

int mdapl_inbox_announce(struct mdapl_inbox *in, const void *hdr, size_t hdr_len,
                         struct mdapl_rx *rx)
{
    return must_hold(in) ? hold_back(in, hdr, hdr_len, rx) : announce_now(in, hdr, hdr_len, rx);
}

int mdapl_inbox_take(struct mdapl_inbox *in, const void *hdr, size_t hdr_len, const void *body,
                     size_t len)
{
    struct body *b;

    if (len == 0)
        return mdapl_inbox_announce(in, hdr, hdr_len, NULL);
    b = mdapl_pool_take(&in->all->bodies);
    if (!b)
        return -ENOMEM;
    b->rx = (struct mdapl_rx){ &body_ops, body, len, len };
    b->in = in;
    b->copy = NULL;
    b->over = false;
    if (!must_hold(in))
        return announce_body(in, hdr, hdr_len, b);
    b->announcing = false;
    return body_outlive(b) ? hold_back(in, hdr, hdr_len, &b->rx) : -ENOMEM;
}

void mdapl_inbox_over(struct mdapl_inbox *in, const struct mdapl_rx *rx)
{
    if (in->hold != rx)
        return;
    in->hold = NULL;
    if (!mdapl_list_empty(&in->held))
        in->all->ready(in);
}

int mdapl_inbox_announce_held(struct mdapl_inbox *in)
{
    int n = 0;

    while (!in->hold && !mdapl_list_empty(&in->held)) {
        struct held *h = MDAPL_OF(mdapl_list_take(&in->held), struct held, link);
        int rc;

        in->n_held--;
        rc = announce_now(in, h->hdr, h->hdr_len, h->rx);
        mdapl_pool_give(&in->all->held, h);
        if (rc)
            return rc;
        n++;
    }
    return n;
}

void mdapl_inbox_fail(struct mdapl_inbox *in)
{
    struct mdapl_list *l;

    in->hold = NULL;
    in->n_held = 0;
    while ((l = mdapl_list_take(&in->held))) {
        struct held *h = MDAPL_OF(l, struct held, link);

        if (h->rx)
            h->rx->ops->drop(h->rx);
        mdapl_pool_give(&in->all->held, h);
    }
}
