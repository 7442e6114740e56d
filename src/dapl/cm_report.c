/* SPDX-License-Identifier: MIT */
#include "cm_report.h"

#include "ia.h"
#include "log.h"
#include "peer.h"
#include "why.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define WAIT_ADVICE "If it computes for so long without an MPI call, raise " \
                    "MPIR_CVAR_DAPL_CONNECT_UNANSWERED_MS; else check its host and the network"

#define ADAPTER_ADVICE "Check the adapter and the system's log"

static const struct mdapl_dapl_cm_cause causes[MDAPL_CAUSES] = {
    [MDAPL_CAUSE_ESTABLISHED] = {
        DAT_CONNECTION_EVENT_ESTABLISHED, MDAPL_CM_ESTABLISHED, MDAPL_CM_REPLY_LATER,
        "established", ""
    },
    [MDAPL_CAUSE_PEER_REJECTED] = {
        DAT_CONNECTION_EVENT_PEER_REJECTED, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_NO,
        "its process refuses (DAT_CONNECTION_EVENT_PEER_REJECTED)",
        "Start all ranks with the same installation and the same MPIR_CVAR_DAPL_ settings, and see "
        "what that rank has printed"
    },
    [MDAPL_CAUSE_NON_PEER_REJECTED] = {
        DAT_CONNECTION_EVENT_NON_PEER_REJECTED, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_NO,
        "nobody listens there (DAT_CONNECTION_EVENT_NON_PEER_REJECTED)",
        "Its process has ended or has closed this IA: see what it and the launcher have printed"
    },
    [MDAPL_CAUSE_ACCEPT_ERROR] = {
        DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_LATER,
        "the caller has gone (DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR)", ""
    },
    [MDAPL_CAUSE_TIMED_OUT] = {
        DAT_CONNECTION_EVENT_TIMED_OUT, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_NONE,
        "no answer in time (DAT_CONNECTION_EVENT_TIMED_OUT)", WAIT_ADVICE
    },
    [MDAPL_CAUSE_UNREACHABLE] = {
        DAT_CONNECTION_EVENT_UNREACHABLE, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_NO,
        "unreachable (DAT_CONNECTION_EVENT_UNREACHABLE)",
        "Check that its host is up and that a network leads from this IA to that address"
    },
    [MDAPL_CAUSE_DISCONNECTED] = {
        DAT_CONNECTION_EVENT_DISCONNECTED, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "the peer disconnected (DAT_CONNECTION_EVENT_DISCONNECTED)",
        "Its process has ended or has given this connection up: see what it and the launcher have "
        "printed"
    },
    [MDAPL_CAUSE_BROKEN] = {
        DAT_CONNECTION_EVENT_BROKEN, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "the connection broke (DAT_CONNECTION_EVENT_BROKEN)", MDAPL_CM_PATH_ADVICE
    },
    [MDAPL_CAUSE_EP_BROKEN] = {
        DAT_ASYNC_ERROR_EP_BROKEN, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "the endpoint broke (DAT_ASYNC_ERROR_EP_BROKEN)", MDAPL_CM_PATH_ADVICE
    },
    [MDAPL_CAUSE_EP_TIMED_OUT] = {
        DAT_ASYNC_ERROR_TIMED_OUT, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "an operation timed out (DAT_ASYNC_ERROR_TIMED_OUT)", MDAPL_CM_PATH_ADVICE
    },
    [MDAPL_CAUSE_EP_PROVIDER] = {
        DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "the provider failed (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR)", ADAPTER_ADVICE
    },
    [MDAPL_CAUSE_IA_CATASTROPHIC] = {
        DAT_ASYNC_ERROR_IA_CATASTROPHIC, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "the adapter failed (DAT_ASYNC_ERROR_IA_CATASTROPHIC)", ADAPTER_ADVICE
    },
    [MDAPL_CAUSE_EVD_OVERFLOW] = {
        DAT_ASYNC_ERROR_EVD_OVERFLOW, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "an event queue overflowed (DAT_ASYNC_ERROR_EVD_OVERFLOW)", ADAPTER_ADVICE
    },
    [MDAPL_CAUSE_UNREACHABLE_LATE] = {
        0, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_NONE,
        "the provider has given the request up (DAT_CONNECTION_EVENT_UNREACHABLE)", WAIT_ADVICE
    },
    [MDAPL_CAUSE_BUSY] = {
        0, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_LATER,
        "another request between the two comes first (DAT_CONNECTION_EVENT_PEER_REJECTED)",
        WAIT_ADVICE
    },
    [MDAPL_CAUSE_GONE] = {
        0, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_NEVER,
        "it has given this rank up (DAT_CONNECTION_EVENT_PEER_REJECTED)",
        "See what that rank has printed"
    },
    [MDAPL_CAUSE_NEW_REQUEST] = {
        0, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "the peer has lost the connection (DAT_CONNECTION_REQUEST_EVENT)", MDAPL_CM_PATH_ADVICE
    },
    [MDAPL_CAUSE_SILENT] = {
        0, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "nothing arrived on it, and no probe completed (MPIR_CVAR_DAPL_DEAD_MS)",
        MDAPL_CM_PATH_ADVICE
    },
    [MDAPL_CAUSE_NO_FLUSH] = {
        0, MDAPL_CM_TIMER, MDAPL_CM_REPLY_NONE,
        "the provider has not completed all transfers of a connection that has ended",
        ADAPTER_ADVICE
    },
    [MDAPL_CAUSE_NO_EVENT] = {
        0, MDAPL_CM_TIMER, MDAPL_CM_REPLY_NONE, "no answer in time", WAIT_ADVICE
    },
    [MDAPL_CAUSE_WRONG_ANSWER] = {
        0, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_NO, "somebody else answers there",
        "Check that no two jobs share an address and that all of dat.conf is the same everywhere"
    },
    [MDAPL_CAUSE_IA_CALLS] = {
        0, MDAPL_CM_LOST, MDAPL_CM_REPLY_LATER,
        "the adapter is unusable (dat_ep_create(): DAT_INTERNAL_ERROR or DAT_INVALID_HANDLE)",
        ADAPTER_ADVICE
    },
    [MDAPL_CAUSE_LOCAL] = {
        0, MDAPL_CM_REJECTED, MDAPL_CM_REPLY_NO, "this side cannot ask", ""
    },
    [MDAPL_CAUSE_OWN] = { 0, MDAPL_CM_CONNECT_REQ, MDAPL_CM_REPLY_LATER, "this rank itself", "" },
};

const struct mdapl_dapl_cm_cause *mdapl_dapl_cm_cause(enum mdapl_dapl_cm_cause_id id)
{
    return &causes[id];
}

const struct mdapl_dapl_cm_cause *mdapl_dapl_cm_cause_of(DAT_EVENT_NUMBER number)
{
    for (size_t i = 0; i < MDAPL_CAUSES; i++)
        if (causes[i].number == number && number != 0)
            return &causes[i];
    return NULL;
}

/* -- the lines -------------------------------------------------------------------------------- */

/* "10.0.0.2, qualifier 30013": where the peer listens. */
static void put_address(const struct mdapl_dapl_cm *cm, char *buf, size_t len)
{
    char text[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in6 in6;
    struct sockaddr_in in;

    memcpy(&in6, cm->addr, sizeof(in6));
    memcpy(&in, cm->addr, sizeof(in));
    if (in.sin_family == AF_INET)
        inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
    else if (in.sin_family == AF_INET6)
        inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof(text));
    snprintf(buf, len, "%s, qualifier %llu", text, (unsigned long long)cm->qual);
}

/* More advice where this process can hardly open another file: providers that need a descriptor
 * for a connection report its lack in many ways, most often as UNREACHABLE. */
static void put_descriptors(char *buf, size_t len)
{
    enum { FOR_A_CONNECTION = 3 };
    struct rlimit limit = { 0 };
    int fd[FOR_A_CONNECTION], n = 0;
    bool out = false;

    while (n < FOR_A_CONNECTION && (fd[n] = open("/", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    out = n < FOR_A_CONNECTION && (errno == EMFILE || errno == ENFILE);
    while (n-- > 0)
        close(fd[n]);
    *buf = 0;
    if (out && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        snprintf(buf, len, ". This process has no file descriptors left: raise their limit (ulimit "
                 "-n, now %llu)", (unsigned long long)limit.rlim_cur);
}

static unsigned seconds(uint64_t ns)
{
    return (unsigned)(ns / 1000000000u);
}

static unsigned tenths(uint64_t ns)
{
    return (unsigned)(ns / 100000000u % 10);
}

/* The peer has had a connection. */
static void line_outage(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                        char *buf, size_t len)
{
    const struct mdapl_dapl_peer *peer = st->peer;
    char address[80], descriptors[128], first[192];

    put_address(&st->cm, address, sizeof(address));
    put_descriptors(descriptors, sizeof(descriptors));
    snprintf(buf, len, "no path to rank %d on %s (%s) over IA %s for %u.%u s: %s; then %u requests,"
             " the last one: %s%s%s. %llu frames (%llu bytes) are not acknowledged. %s%s",
             peer->base.rank, peer->host, address, f->ia->name, seconds(f->outage_ns),
             tenths(f->outage_ns), mdapl_dapl_fault_text(&st->ended_by, first, sizeof(first)),
             st->cm.requests, f->cause->text, *f->detail ? ": " : "", f->detail,
             (unsigned long long)mdapl_dapl_peer_unacked(peer),
             (unsigned long long)peer->retained_bytes, f->cause->advice, descriptors);
}

void mdapl_dapl_cm_line_unconnected(const struct mdapl_dapl_stream *st,
                                    const struct mdapl_dapl_fault *f, char *buf, size_t len)
{
    const struct mdapl_dapl_peer *peer = st->peer;
    char address[80], descriptors[128];

    if (f->outage_ns > 0 && st->cm.connections > 0) {
        line_outage(st, f, buf, len);
        return;
    }
    put_address(&st->cm, address, sizeof(address));
    put_descriptors(descriptors, sizeof(descriptors));
    snprintf(buf, len, "rank %d on %s (%s) could not be connected over IA %s in %u.%u s and %u "
             "requests: %s%s%s. %s%s", peer->base.rank, peer->host, address, f->ia->name,
             seconds(f->waited_ns), tenths(f->waited_ns), st->cm.requests, f->cause->text,
             *f->detail ? ": " : "", f->detail, f->cause->advice, descriptors);
}

/* The peer's answer is still awaited. */
static void line_waiting(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                         char *buf, size_t len)
{
    const struct mdapl_dapl_peer *peer = st->peer;
    char address[80], descriptors[128];

    put_address(&st->cm, address, sizeof(address));
    put_descriptors(descriptors, sizeof(descriptors));
    snprintf(buf, len, "rank %d on %s (%s) has not answered for %u s over IA %s, %u requests: %s. "
             "A rank answers inside MPI calls only: if it computes, the job goes on with its next "
             "call; else check its host and the network%s", peer->base.rank, peer->host, address,
             seconds(f->waited_ns), f->ia->name, st->cm.requests, f->cause->text, descriptors);
}

void mdapl_dapl_cm_warn(struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f)
{
    uint64_t now = mdapl_ctx_now(st->peer->d->ctx);
    char line[768];

    for (int i = 0; i < st->index; i++)
        if (mdapl_dapl_cm_connecting(st->peer->stream[i].cm.state))
            return;
    if (f->cause->says <= MDAPL_CM_REPLY_NEVER || now < st->cm.warn_at)
        return;
    line_waiting(st, f, line, sizeof(line));
    mdapl_log(mdapl_ctx_log(st->peer->d->ctx), MDAPL_WARN, "%s", line);
    st->cm.warn_at = now + f->waited_ns;
}

void mdapl_dapl_cm_line_lost(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                             char *buf, size_t len)
{
    const struct mdapl_dapl_peer *peer = st->peer;
    char address[80], what[192];

    put_address(&st->cm, address, sizeof(address));
    snprintf(buf, len,
             "lost the connection to rank %d on %s (%s) over IA %s, stream %d, "
             "connection %u: %s, %llu frames not acknowledged. %s",
             peer->base.rank, peer->host, address, f->ia->name, f->stream, f->epoch,
             mdapl_dapl_fault_text(f, what, sizeof(what)),
             (unsigned long long)mdapl_dapl_peer_unacked(peer), mdapl_dapl_fault_advice(f));
}

void mdapl_dapl_cm_line_frame(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                              char *buf, size_t len)
{
    const struct mdapl_dapl_peer *peer = st->peer;

    snprintf(buf, len, "rank %d on %s sent a frame of %zu bytes over IA %s, stream %d, that is "
             "none of this protocol (%s: %s). The two ranks may run different builds: use the same "
             "installation everywhere", peer->base.rank, peer->host, f->len, f->ia->name,
             f->stream, f->frame, f->text);
}

void mdapl_dapl_cm_line_bug(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                            char *buf, size_t len)
{
    snprintf(buf, len, "rank %d on %s is lost: %s. %s", st->peer->base.rank, st->peer->host,
             f->text, mdapl_dapl_bug_advice);
}

void mdapl_dapl_cm_line_memory(const struct mdapl_dapl_stream *st,
                               const struct mdapl_dapl_fault *f, char *buf, size_t len)
{
    const struct mdapl_dapl_peer *peer = st->peer;

    snprintf(buf, len,
             "out of memory for %s, so that nothing more can be received from or sent to "
             "rank %d on %s. %s",
             f->text, peer->base.rank, peer->host, mdapl_dapl_why_remedy(ENOMEM));
}

void mdapl_dapl_cm_line_ia(const struct mdapl_dapl_stream *st, const struct mdapl_dapl_fault *f,
                           char *buf, size_t len)
{
    const struct mdapl_dapl_peer *peer = st->peer;
    const struct mdapl_dapl_rail_down *down = &f->ia->down;
    uint64_t ns = mdapl_ctx_now(peer->d->ctx) - down->since;
    char reopening[320] = "";

    if (*down->why)
        snprintf(reopening, sizeof(reopening), "; it could not be opened again for %u.%u s, with "
                 "%u attempts, the last one: %s", seconds(ns), tenths(ns), down->attempts,
                 down->why);
    snprintf(buf, len, "IA %s: %s%s; rank %d on %s cannot be reached any more, %llu frames not "
             "acknowledged. " ADAPTER_ADVICE "; with a second IA in MPIR_CVAR_DAPL_IA a job goes "
             "on without this one", f->ia->name, f->text, reopening, peer->base.rank, peer->host,
             (unsigned long long)mdapl_dapl_peer_unacked(peer));
}
