/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <errno.h>

/*
 * The standby of a connection: a link over its alternate path that is made in advance, so that it
 * is known to work, and rests until the connection migrates to it (PROTOCOL, section 4). The active
 * side makes it once both sides have loaded their alternate, and again, at growing intervals, when
 * it has failed. A standby at rest has no deadline and only epoll watches it, so it causes no
 * wake-ups; between hosts TCP keep-alive detects that its path has failed.
 */

enum { MAX_DOUBLINGS = 5 };
static const uint64_t first_pause_ns = UINT64_C(50) * 1000000;   /* after a standby that failed */

static uint64_t quarter_retry_ns(const struct softdat_ia *ia)
{
    return ia->cfg.retry_ms * 1000000 / 4 + 1;
}

/* -- at rest ---------------------------------------------------------------------------------- */

static void rest(struct softdat_conn *s)
{
    s->phase = SOFTDAT_STANDBY_LINK;
    s->deadline = 0;
    s->resting = true;
    s->ia->n_sockets--;
    softdat_path_keep_alive(s);
}

static struct softdat_alternate *alternate_of(const struct softdat_conn *c)
{
    return c->ep ? c->ep->alternate : NULL;
}

static struct softdat_conn *standby_of(const struct softdat_conn *c)
{
    return c->ep && c->ep->alternate ? c->ep->alternate->standby : NULL;
}

/* Takes s from its connection. Returns that; NULL: it has none. */
static struct softdat_conn *part(struct softdat_conn *s)
{
    struct softdat_conn *c = softdat_standby_of(s);

    if (!c)
        return NULL;
    s->is_standby = false;
    s->migrates = NULL;
    c->has_standby = false;
    if (standby_of(c) == s)
        c->ep->alternate->standby = NULL;
    return c;
}

void softdat_standby_take(struct softdat_conn *s)
{
    s->ia->n_sockets += s->resting;
    s->resting = false;
    s->token = 0;
    part(s);
}

bool softdat_standby_usable(const struct softdat_conn *c)
{
    const struct softdat_conn *s = standby_of(c);

    return s && s->resting && !softdat_path_down(s);
}

void softdat_standby_close(struct softdat_conn *c)
{
    struct softdat_conn *s = standby_of(c);

    if (alternate_of(c))
        softdat_list_remove(&c->ep->alternate->waits);
    if (!s)
        return;
    part(s);
    softdat_conn_free(s);
}

void softdat_standby_detach(struct softdat_conn *c)
{
    struct softdat_alternate *a = alternate_of(c);

    if (!a)
        return;
    softdat_list_remove(&a->waits);
    c->has_standby = a->standby != NULL;
    a->standby = NULL;
}

/* -- making one ------------------------------------------------------------------------------- */

static void make_later(struct softdat_conn *c)
{
    struct softdat_alternate *a = c->ep->alternate;
    unsigned n = a->tries < MAX_DOUBLINGS ? a->tries++ : MAX_DOUBLINGS;

    if (!c->active)
        return;
    a->standby_at = softdat_now() + (first_pause_ns << n);
    softdat_list_remove(&a->waits);
    softdat_list_append(&c->ia->standbys, &a->waits);
    softdat_due(c->ia, a->standby_at);
}

/* Without a path from here there is no attempt: softdat_standby_ports() makes one when it is up. */
void softdat_standby_make(struct softdat_conn *c)
{
    struct sockaddr_in to = c->peer;
    struct softdat_conn *s;
    DAT_PATH path;
    int error;

    if (!c->active || !c->token || c->phase != SOFTDAT_OPEN || c->migrating || standby_of(c)
        || !softdat_alternate_path(c, &path))
        return;
    softdat_list_remove(&c->ep->alternate->waits);
    if (path.remote_port != c->peer_port)
        to.sin_addr = c->other_addr;
    if (c->ia->cfg.port[path.local_port - 1].cut)
        return;
    s = softdat_connect_from(c->ia, (int)path.local_port - 1, to, &error);
    if (!s) {
        make_later(c);
        return;
    }
    s->migrates = c;
    s->is_standby = true;
    s->token = c->token;
    c->ep->alternate->standby = s;
    softdat_conn_deadline(s, quarter_retry_ns(c->ia));
    if (s->phase == SOFTDAT_CONNECT_SENT)
        softdat_connect_start(s);
}

void softdat_standby_send(struct softdat_conn *s)
{
    softdat_tx_frame(s, SOFTDAT_STANDBY, NULL, 0);
}

static bool loaded(const struct softdat_conn *c)
{
    return alternate_of(c) && c->ep->alternate->state != DAT_PATH_MIGRATED;
}

/* The passive side: the link may be a standby. It is one from STANDBY_READY on: a socket that had
 * waited in the backlog while this side's port was cut may have been given up. */
bool softdat_cm_on_standby(struct softdat_conn *s)
{
    uint64_t token = (uint64_t)s->hdr.id << 32 | s->hdr.key;
    struct softdat_conn *c = softdat_conn_find(s->ia, token);

    if (!c || c->phase != SOFTDAT_OPEN || !loaded(c))
        return false;
    softdat_conn_learn_address(s);
    s->token = token;
    s->ia->n_unidentified--;
    rest(s);
    softdat_conn_deadline(s, quarter_retry_ns(s->ia));
    return softdat_tx_frame(s, SOFTDAT_STANDBY_OK, NULL, 0);
}

/* Meanwhile the connection may have lost its EP, or ended for it. */
bool softdat_cm_on_standby_ok(struct softdat_conn *s)
{
    struct softdat_conn *c = softdat_standby_of(s);

    if (!c || !loaded(c))
        return false;
    softdat_conn_learn_ports(s);
    rest(s);
    if (!softdat_tx_frame(s, SOFTDAT_STANDBY_READY, NULL, 0))
        return false;
    softdat_alternate_armed(c);
    return true;
}

bool softdat_cm_on_standby_ready(struct softdat_conn *s)
{
    struct softdat_conn *c = softdat_conn_find(s->ia, s->token);

    if (s->is_standby || !c || !loaded(c) || c->migrating)
        return false;
    if (standby_of(c))           /* the active side has lost it */
        softdat_conn_free(standby_of(c));
    s->deadline = 0;
    s->migrates = c;
    s->is_standby = true;
    c->ep->alternate->standby = s;
    softdat_alternate_armed(c);
    return true;
}

/* -- it ends ---------------------------------------------------------------------------------- */

/* A connection without an EP does not know its standby. */
static void close_orphan(struct softdat_conn *c)
{
    struct softdat_list *l = c->ia->conns.next;

    while (l != &c->ia->conns && softdat_standby_of(SOFTDAT_OF(l, struct softdat_conn, link)) != c)
        l = l->next;
    if (l == &c->ia->conns)
        return;
    part(SOFTDAT_OF(l, struct softdat_conn, link));
    softdat_conn_free(SOFTDAT_OF(l, struct softdat_conn, link));
}

void softdat_standby_ended(struct softdat_conn *s)
{
    struct softdat_conn *c = part(s);
    struct softdat_alternate *a = c ? alternate_of(c) : NULL;

    softdat_standby_close(s);    /* s is a connection that has one */
    if (s->has_standby)
        close_orphan(s);
    if (!a)
        return;
    a->move_asked = false;
    if (a->link_reset)
        softdat_fault_break_later(c);
    if (c->phase != SOFTDAT_OPEN || a->link_reset || softdat_conn_ended(c))
        return;                  /* its peer has closed both */
    softdat_alternate_down(c);
    make_later(c);
}

void softdat_standby_resume(struct softdat_ia *ia)
{
    uint64_t now = softdat_now();
    struct softdat_list *l = ia->standbys.next;

    while (l != &ia->standbys) {
        struct softdat_alternate *a = SOFTDAT_OF(l, struct softdat_alternate, waits);

        l = l->next;
        if (a->standby_at > now)
            continue;
        softdat_list_remove(&a->waits);
        softdat_standby_make(a->ep->conn);
    }
}

uint64_t softdat_standby_next(const struct softdat_ia *ia)
{
    uint64_t next = UINT64_MAX;

    for (struct softdat_list *l = ia->standbys.next; l != &ia->standbys; l = l->next)
        if (SOFTDAT_OF(l, struct softdat_alternate, waits)->standby_at < next)
            next = SOFTDAT_OF(l, struct softdat_alternate, waits)->standby_at;
    return next;
}

/* -- it becomes the link ---------------------------------------------------------------------- */

bool softdat_standby_begin(struct softdat_conn *c, DAT_PATH_CAUSE cause)
{
    struct softdat_alternate *a = alternate_of(c);
    struct softdat_conn *s = standby_of(c);

    if (!softdat_standby_usable(c) || c->phase != SOFTDAT_OPEN || c->migrating || c->carrier
        || a->move_asked || softdat_break_pending(c))
        return false;
    a->move_cause = (uint32_t)cause;
    if (!c->active) {
        a->move_asked = true;
        return softdat_tx_frame(s, SOFTDAT_MOVE, NULL, 0);
    }
    softdat_standby_take(s);
    s->phase = SOFTDAT_CONNECT_SENT;
    s->migrates = c;
    c->carrier = s;
    a->move = a->n_migrated + 1;
    softdat_conn_deadline(s, quarter_retry_ns(c->ia));
    softdat_migrate_send(s);
    return true;
}

/* The active side may have begun by itself: then this frame has been in transit. */
bool softdat_cm_on_move(struct softdat_conn *s)
{
    if (softdat_standby_of(s))
        softdat_standby_begin(s->migrates, DAT_PATH_CAUSE_NONE);
    return s->migrates != NULL;
}

/* The kernel that gives up first resets the link of the other side as well, if that direction of
 * the path works. A peer that has died resets both links. The passive side gives up its socket and
 * waits for MIGRATE. */
bool softdat_standby_replaces(struct softdat_conn *c, int error)
{
    struct softdat_conn *s = standby_of(c);
    bool reset = error == ECONNRESET;

    if (c->local || (error != ETIMEDOUT && !reset) || !s || softdat_conn_ended(s)
        || (!softdat_standby_begin(c, DAT_PATH_CAUSE_TIMEOUT) && !c->ep->alternate->move_asked))
        return false;
    c->ep->alternate->link_reset = reset;
    if (!c->active)
        softdat_migrate_unlink(c);
    return true;
}

void softdat_standby_ports(struct softdat_ia *ia)
{
    struct softdat_list *l = ia->conns.next;

    while (l != &ia->conns) {
        struct softdat_conn *s = SOFTDAT_OF(l, struct softdat_conn, link);

        l = l->next;
        if (softdat_standby_of(s) && softdat_path_down(s))
            softdat_conn_free(s);
    }
    for (l = ia->conns.next; l != &ia->conns; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        if (softdat_path_down(c))
            softdat_standby_begin(c, DAT_PATH_CAUSE_PORT);
        else
            softdat_standby_make(c);
    }
}
