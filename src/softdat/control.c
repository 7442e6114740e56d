/* SPDX-License-Identifier: MIT */
#include "control.h"
#include "softdat.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * The adapter's side of the control protocol (control.h): each open adapter listens on an abstract
 * unix socket; a packet with a command gets a packet of text in reply.
 */

struct reply {
    char text[SOFTDAT_CONTROL_MAX];
    size_t len;
};

__attribute__((format(printf, 2, 3)))
static void append(struct reply *a, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(a->text + a->len, sizeof(a->text) - a->len, format, args);
    va_end(args);
    a->len += n > 0 ? (size_t)n : 0;
    if (a->len >= sizeof(a->text))
        a->len = sizeof(a->text) - 1;
}

/* -- show ------------------------------------------------------------------------------------- */

static const char *const counter_name[SOFTDAT_COUNTERS] = {
    [SOFTDAT_N_SENDS] = "sends", [SOFTDAT_N_WRITES] = "writes", [SOFTDAT_N_READS] = "reads",
    [SOFTDAT_N_ATOMICS] = "atomics", [SOFTDAT_N_BINDS] = "binds",
    [SOFTDAT_N_BYTES_OUT] = "bytes_sent_or_written", [SOFTDAT_N_BYTES_READ] = "bytes_read",
    [SOFTDAT_N_RECVS] = "receives", [SOFTDAT_N_BYTES_IN] = "bytes_received",
    [SOFTDAT_N_DIRECT] = "direct_transfers", [SOFTDAT_N_CONNECTS] = "connections_made",
    [SOFTDAT_N_BREAKS] = "connections_broken", [SOFTDAT_N_LMRS] = "registrations",
    [SOFTDAT_N_CUTS] = "path_downs", [SOFTDAT_N_FAULTS] = "faults_injected",
    [SOFTDAT_N_MIGRATIONS] = "migrations",
};

static const char *const phase_name[] = {
    [SOFTDAT_CONNECTING] = "connecting", [SOFTDAT_CONNECT_SENT] = "connect-sent",
    [SOFTDAT_ACCEPTED] = "accepted", [SOFTDAT_CR_PENDING] = "request-pending",
    [SOFTDAT_STANDBY_LINK] = "standby", [SOFTDAT_ACCEPT_SENT] = "accept-sent",
    [SOFTDAT_OPEN] = "open", [SOFTDAT_LINGERING] = "lingering",
};

static const char *const while_polled[] = {
    [SOFTDAT_POLLED_RINGS] = " unless polled", [SOFTDAT_POLLED_DIRECT] = "",
    [SOFTDAT_POLLED_AUTO] = ", the faster way if polled",
};

/* Appends the link of a connection, which is chosen at connect time. */
static void append_link(struct reply *a, const struct softdat_conn *c)
{
    if (!c->uses_rings) {
        append(a, "%s", c->sock.fd < 0 ? "no link" : c->local ? "a unix socket" : "TCP");
        return;
    }
    append(a, "shared rings");
    if (c->ia->cfg.direct_bytes && atomic_load(&c->shared.their_access->access_verified))
        append(a, ", RDMA from %llu bytes direct%s",
               (unsigned long long)c->ia->cfg.direct_bytes, while_polled[c->ia->cfg.polled]);
    else if (c->ia->cfg.direct_bytes)
        append(a, ", no direct RDMA: the kernel does not allow it");
}

/* Appends the paths of a connection by their ports, the local and the peer's, and what has become
 * of them. */
static void append_paths(struct reply *a, const struct softdat_conn *c)
{
    static const char *const state_name[] = {
        [DAT_PATH_MIGRATED] = "migrated", [DAT_PATH_REARM] = "rearm", [DAT_PATH_ARMED] = "armed",
    };
    static const struct softdat_alternate none;
    const struct softdat_alternate *p = c->ep->alternate ? c->ep->alternate : &none;

    append(a, " path=%d:%d %s", c->port + 1, c->peer_port, state_name[p->state]);
    if (p->standby)
        append(a, " alternate=%d:%d", p->standby->port + 1, p->standby->peer_port);
    append(a, ", %u armed, %u migrated, %u failed", p->n_armed, p->n_migrated, p->n_failed);
}

static void append_conn(struct reply *a, const struct softdat_conn *c)
{
    char addr[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &c->peer.sin_addr, addr, sizeof(addr));
    append(a, "connection: %s port=%d state=%s outstanding=%u by ", addr, c->port + 1,
           phase_name[c->phase], c->ep ? c->ep->req.count : 0);
    append_link(a, c);
    if (c->ep)
        append_paths(a, c);
    append(a, "\n");
}

static void append_ports(struct reply *a, const struct softdat_ia *ia)
{
    for (uint32_t i = 0; i < ia->cfg.n_ports; i++) {
        const struct softdat_port *p = &ia->cfg.port[i];
        char addr[INET_ADDRSTRLEN];

        inet_ntop(AF_INET, &p->addr.sin_addr, addr, sizeof(addr));
        append(a, "port %u: %s %s\n", i + 1, addr,
               p->cut ? "cut" : p->carrier ? "up" : "down: no carrier");
    }
}

static void show(struct softdat_ia *ia, int port, struct reply *a)
{
    (void)port;
    append(a, "ia: %s%s\n", ia->name, ia->failed ? " (failed)" : "");
    append_ports(a, ia);
    for (int i = 0; i < SOFTDAT_COUNTERS; i++)
        append(a, "%s: %llu\n", counter_name[i], (unsigned long long)ia->count[i]);
    for (struct softdat_list *l = ia->conns.next; l != &ia->conns; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        if (c->phase != SOFTDAT_STANDBY_LINK)    /* its connection's line has it */
            append_conn(a, c);
    }
}

/* -- the other commands ----------------------------------------------------------------------- */

static void set_path(struct softdat_ia *ia, int port, bool cut, struct reply *a)
{
    for (int i = 0; i < (int)ia->cfg.n_ports; i++)
        if (port == 0 || port == i + 1) {
            softdat_path_set(ia, i, cut);
            append(a, "ia: %s port %d %s\n", ia->name, i + 1, cut ? "cut" : "healed");
        }
    if (a->len == 0)
        append(a, "error: ia %s has no port %d\n", ia->name, port);
}

static void cut(struct softdat_ia *ia, int port, struct reply *a)
{
    set_path(ia, port, true, a);
}

static void heal(struct softdat_ia *ia, int port, struct reply *a)
{
    set_path(ia, port, false, a);
}

static void break_all(struct softdat_ia *ia, int port, struct reply *a)
{
    unsigned n = 0;

    for (struct softdat_list *l = ia->conns.next; l != &ia->conns; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        if (c->phase != SOFTDAT_OPEN || (port && port != c->port + 1))
            continue;
        softdat_fault_break_later(c);
        n++;
    }
    ia->count[SOFTDAT_N_FAULTS] += n;
    append(a, "ia: %s %u connections broken\n", ia->name, n);
}

static void migrate(struct softdat_ia *ia, int port, struct reply *a)
{
    unsigned n = 0;

    for (struct softdat_list *l = ia->conns.next; l != &ia->conns; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, link);

        n += (!port || port == c->port + 1) && softdat_migrate(c);
    }
    append(a, "ia: %s %u connections migrate\n", ia->name, n);
}

static void fail(struct softdat_ia *ia, int port, struct reply *a)
{
    (void)port;
    ia->fatal = true;
    ia->count[SOFTDAT_N_FAULTS]++;
    append(a, "ia: %s failed\n", ia->name);
}

static const struct {
    const char *word;
    void (*act)(struct softdat_ia *, int port, struct reply *);
} command[] = {
    { "show", show }, { "cut", cut }, { "heal", heal }, { "break", break_all }, { "fail", fail },
    { "migrate", migrate },
};

/* Executes "word" or "word PORT"; without a port, or with 0, on all ports. */
static void execute(struct softdat_ia *ia, const char *text, struct reply *a)
{
    char word[16] = "";
    int port = 0;

    if (sscanf(text, "%15s %d", word, &port) >= 1)
        for (size_t i = 0; i < sizeof(command) / sizeof(command[0]); i++)
            if (strcmp(command[i].word, word) == 0) {
                command[i].act(ia, port, a);
                return;
            }
    append(a, "error: unknown command %s\n", word);
}

/* -- the sockets ------------------------------------------------------------------------------ */

/* The client closes the connection once it has the reply: Linux may report the end of such a socket
 * before its last packet, if both come while recv() looks for one. */
static void control_conn_ready(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    struct reply *a = softdat_alloc(sizeof(*a));
    char text[64];
    ssize_t n = a ? recv(s->fd, text, sizeof(text) - 1, MSG_DONTWAIT) : 0;

    (void)events;
    if (n > 0) {
        text[n] = '\0';
        execute(ia, text, a);
        if (send(s->fd, a->text, a->len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            n = 0;
    }
    softdat_free(a);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        softdat_sock_close(ia, s);
}

static void control_ready(struct softdat_ia *ia, struct softdat_sock *s, uint32_t events)
{
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct softdat_sock *conn = &ia->control_conn[ia->next_control_conn++ % SOFTDAT_MAX_CONTROL];

    (void)events;
    if (fd < 0)
        return;
    if (!softdat_same_user(fd)) {
        close(fd);
        return;
    }
    softdat_sock_close(ia, conn);    /* the oldest one is replaced */
    *conn = (struct softdat_sock){ .fd = fd, .ready = control_conn_ready };
    if (softdat_sock_add(ia, conn, EPOLLIN))
        softdat_sock_close(ia, conn);
}

void softdat_control_start(struct softdat_ia *ia)
{
    struct sockaddr_un un;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool bound = false;

    for (int i = 0; i < SOFTDAT_MAX_CONTROL; i++)
        ia->control_conn[i].fd = -1;
    for (unsigned k = 0; fd >= 0 && k < 256 && !bound; k++) {
        socklen_t len = softdat_control_name(&un, getpid(), k);

        bound = bind(fd, (struct sockaddr *)&un, len) == 0;
        if (!bound && errno != EADDRINUSE)
            break;
    }
    ia->control = (struct softdat_sock){ .fd = fd, .ready = control_ready };
    if (fd >= 0 && (!bound || listen(fd, SOFTDAT_MAX_CONTROL)
                    || softdat_sock_add(ia, &ia->control, EPOLLIN)))
        softdat_sock_close(ia, &ia->control);
}

void softdat_control_stop(struct softdat_ia *ia)
{
    for (int i = 0; i < SOFTDAT_MAX_CONTROL; i++)
        softdat_sock_close(ia, &ia->control_conn[i]);
    softdat_sock_close(ia, &ia->control);
}
