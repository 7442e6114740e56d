/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/*
 * Long RDMA between processes of one host is copied directly between the address spaces, by
 * process_vm_readv and process_vm_writev: the request lists the requester's memory, and the target
 * checks key, bounds and rights as for any request, then copies the bytes. Requests are executed in
 * their order, and the requester's core is free.
 *
 * A target that sleeps or computes needs one wake-up for a whole transfer. While the target polls,
 * two cores can also copy through a ring at the same time; which is faster depends on the machine
 * and is found out by the requests themselves (judge.h), unless the IA parameter polled= says.
 *
 * The kernel may forbid the copies (another user, ptrace restrictions, pid namespaces). So each
 * side tries at connect time to read a word of the other whose value the segment contains, and
 * publishes the result there.
 */

static pid_t peer_pid(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 ? cred.pid : 0;
}

void softdat_direct_offer(struct softdat_conn *c)
{
    struct softdat_vm_access *mine = c->shared.my_access;

    if (!c->ia->cfg.direct_bytes)
        return;
    /* Yama permits ptrace access to ancestors only. This permits it to every process of this user,
     * as without Yama; the peer's user has been checked at connect time. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    mine->probe_addr = (uint64_t)(uintptr_t)&c->ia->probe_value;
    mine->probe_value = c->ia->probe_value;
}

void softdat_direct_probe(struct softdat_conn *c)
{
    struct softdat_vm_access theirs = *c->shared.their_access;
    struct iovec remote = { (void *)(uintptr_t)theirs.probe_addr, sizeof(theirs.probe_value) };
    uint64_t word = 0;
    struct iovec local = { &word, sizeof(word) };

    c->shared.pid = peer_pid(c->sock.fd);
    if (c->ia->cfg.direct_bytes && theirs.probe_addr && c->shared.pid > 0
        && process_vm_readv(c->shared.pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(word)
        && word == theirs.probe_value) {
        c->shared.access_verified = true;
        atomic_store(&c->shared.my_access->access_verified, 1);
    }
}

static struct softdat_judge *judge_of(struct softdat_ia *ia, bool read)
{
    return read ? &ia->judge_read : &ia->judge_write;
}

void softdat_direct_choose(struct softdat_conn *c, struct softdat_dto *d)
{
    const struct softdat_config *cfg = &c->ia->cfg;
    bool possible = c->uses_rings && cfg->direct_bytes
                    && atomic_load_explicit(&c->shared.their_access->access_verified,
                                            memory_order_relaxed);
    bool polled = possible && !(atomic_load_explicit(&c->shared.theirs->armed,
                                                     memory_order_relaxed) & 1);
    uint64_t from = cfg->direct_bytes;

    if (polled && cfg->polled == SOFTDAT_POLLED_AUTO && from > SOFTDAT_JUDGE_FROM)
        from = SOFTDAT_JUDGE_FROM;
    d->direct = possible && d->len >= from && !(polled && cfg->polled == SOFTDAT_POLLED_RINGS);
    d->judged = d->direct && polled && cfg->polled == SOFTDAT_POLLED_AUTO;
    if (!d->judged)
        return;
    d->direct = softdat_judge_choose(judge_of(c->ia, softdat_is_read(d)),
                                     softdat_judge_class(d->len)) == SOFTDAT_WAY_DIRECT;
    d->begun = softdat_now();
}

void softdat_direct_completed(struct softdat_sample *s, const struct softdat_dto *d)
{
    unsigned c = softdat_judge_class(d->len);
    bool read = softdat_is_read(d);

    if (!d->judged)
        return;
    s->mixed |= s->bytes > 0 && (s->direct != d->direct || s->c != c || s->read != read);
    if (s->bytes == 0)
        s->begun = d->begun;
    s->direct = d->direct;
    s->read = read;
    s->c = c;
    s->bytes += d->len;
}

/* Requests are executed one after the other, so they have taken the time since the one before. */
void softdat_direct_judge(struct softdat_conn *c, struct softdat_sample *s)
{
    uint64_t from = s->begun > c->judged_at ? s->begun : c->judged_at;

    if (s->bytes == 0)
        return;
    c->judged_at = softdat_now();
    if (!s->mixed)
        softdat_judge_sample(judge_of(c->ia, s->read), s->c,
                             s->direct ? SOFTDAT_WAY_DIRECT : SOFTDAT_WAY_RING, s->bytes,
                             c->judged_at - from);
    *s = (struct softdat_sample){ 0 };
}

uint32_t softdat_direct_list(const struct softdat_dto *d, struct softdat_piece *out)
{
    for (int i = 0; i < d->n_seg; i++)
        out[i] = (struct softdat_piece){ (uint64_t)(uintptr_t)d->seg[i].at, d->seg[i].len };
    return (uint32_t)((size_t)d->n_seg * sizeof(*out));
}

/* -- consent ---------------------------------------------------------------------------------- */

/*
 * The target copies, so a requester that completes a request early must also stop the target from
 * accessing its memory. Each side has a consent word for its own requests with two bits: COPYING is
 * written by the target, WITHDRAWN by the requester, both by read-modify-write only. The target
 * sets COPYING before each system call that copies, unless WITHDRAWN is set, and clears it after
 * the call. The requester sets WITHDRAWN before it completes, flushes or frees a request in flight,
 * then waits while COPYING is set. The modifications of the word have one order: either the target
 * reads WITHDRAWN and copies nothing more, or the requester reads COPYING and waits until that one
 * call has returned.
 *
 * A round of progress makes one such call for a request, of at most PIECE bytes: the lock is held
 * for a short time, and neither other connections nor other threads wait until a long request is
 * complete. Between two parts a registration may be freed, as while a WRITE arrives
 * (softdat_frame_recheck).
 *
 * So the requester's wait is short, too, unless the target is stopped or dies with COPYING set. A
 * stopped thread is not inside the system call, so if all threads of the target are stopped or dead
 * none copies; a thread that continues clears COPYING and reads WITHDRAWN before its next call. The
 * end of the socket means that the target has closed the connection, which it never does during a
 * call, or that its process has ended.
 */
enum { COPYING = 1, WITHDRAWN = 2 };
enum {
    PIECE = 1 << 20,             /* bytes of one system call */
    CHECK_EVERY = 64,            /* pauses between two checks of the target's threads */
};

static bool begin_copy(struct softdat_vm_access *theirs)
{
    uint32_t open = 0;

    return atomic_compare_exchange_strong_explicit(&theirs->consent, &open, COPYING,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

static void end_copy(struct softdat_vm_access *theirs)
{
    atomic_fetch_and_explicit(&theirs->consent, ~(uint32_t)COPYING, memory_order_release);
}

/* True if the thread whose stat file is `path` is stopped or dead. proc(5): "tid (name) state". */
static bool thread_stopped(const char *path)
{
    char text[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    const char *name_end;

    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return true;             /* the thread has ended */
    text[n] = '\0';
    name_end = strrchr(text, ')');
    return name_end && name_end[1] && name_end[2] && strchr("TtZXx", name_end[2]);
}

/* True if the n bytes of entries of /proc/PID/task name only stopped threads. */
static bool threads_stopped(pid_t pid, const char *entry, ssize_t n)
{
    char path[64];

    for (ssize_t at = 0; at < n;) {
        const struct dirent64 *e = (const struct dirent64 *)(const void *)(entry + at);

        at += e->d_reclen;
        snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat", (int)pid, e->d_name);
        if (e->d_name[0] != '.' && !thread_stopped(path))
            return false;
    }
    return true;
}

/* True if all threads of the process are stopped or dead, since any of them may be the one that
 * copies. Reads the directory without opendir(), which calls the program's allocator: the caller
 * holds the lock (alloc.h). */
static bool process_stopped(pid_t pid)
{
    _Alignas(struct dirent64) char entry[1024];
    bool stopped = true;
    char path[64];
    ssize_t n = 0;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT;
    while (stopped && (n = getdents64(fd, entry, sizeof(entry))) > 0)
        stopped = threads_stopped(pid, entry, n);
    if (n < 0)
        stopped = errno == ENOENT;       /* the process has ended */
    close(fd);
    return stopped;
}

static bool socket_ended(const struct softdat_conn *c)
{
    struct pollfd p = { .fd = c->sock.fd, .events = POLLRDHUP };

    return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

void softdat_direct_withdraw(struct softdat_conn *c)
{
    _Atomic uint32_t *consent = c->shared.seg ? &c->shared.my_access->consent : NULL;
    const struct timespec pause = { 0, 20000 };

    if (!consent)
        return;
    atomic_fetch_or_explicit(consent, WITHDRAWN, memory_order_acq_rel);
    for (unsigned n = 1; atomic_load_explicit(consent, memory_order_acquire) & COPYING; n++) {
        if (n % CHECK_EVERY == 0 && (socket_ended(c) || process_stopped(c->shared.pid)))
            return;
        nanosleep(&pause, NULL);
    }
}

static bool uses_region(const struct softdat_dto *d, uint32_t key)
{
    for (int i = 0; i < d->n_seg; i++)
        if (d->seg[i].key == key)
            return true;
    return false;
}

/* Returns the oldest request in flight whose memory in that registration the target may copy. */
static struct softdat_dto *request_in_region(struct softdat_conn *c, uint32_t key)
{
    struct softdat_ep *ep = c->ep;

    for (uint32_t i = 0; ep && i < ep->req.sent; i++) {
        struct softdat_dto *d = softdat_ring_at(&ep->req, i);

        if (d->direct && d->state == SOFTDAT_DTO_SENT && uses_region(d, key))
            return d;
    }
    return NULL;
}

void softdat_direct_region_freed(struct softdat_ia *ia, uint32_t key)
{
    struct softdat_list *l;

    if (!ia->cfg.direct_bytes)
        return;
    for (l = ia->rings.next; l != &ia->rings; l = l->next) {
        struct softdat_conn *c = SOFTDAT_OF(l, struct softdat_conn, polled);
        struct softdat_dto *d = request_in_region(c, key);

        if (!d)
            continue;
        softdat_direct_withdraw(c);
        softdat_fault_fail_request(c, d, DAT_DTO_ERR_LOCAL_PROTECTION);
    }
}

/* -- the target's side ------------------------------------------------------------------------ */

/* Copies by one system call with the requester's consent. Returns the number of bytes; 0: consent
 * is withdrawn; -1: the requester's memory is not mapped. */
static ssize_t copy_piece(struct softdat_conn *c, const struct iovec *local, int n_local,
                          const struct iovec *remote, int n_remote, bool in)
{
    ssize_t n;

    if (!begin_copy(c->shared.their_access))
        return 0;
    n = in ? process_vm_readv(c->shared.pid, local, (unsigned long)n_local, remote,
                              (unsigned long)n_remote, 0)
           : process_vm_writev(c->shared.pid, local, (unsigned long)n_local, remote,
                               (unsigned long)n_remote, 0);
    end_copy(c->shared.their_access);
    return n > 0 ? n : -1;
}

/* Copies the next part of hdr.size bytes, of which both lists have as many. */
static enum softdat_direct_result copy_part(struct softdat_conn *c, struct iovec *local,
                                            int n_local, struct iovec *remote, int n_remote,
                                            bool in)
{
    struct iovec piece[SOFTDAT_MAX_IOV];
    ssize_t n;

    softdat_iov_step(&local, &n_local, c->copied);
    softdat_iov_step(&remote, &n_remote, c->copied);
    /* The kernel copies as many bytes as the shorter of the two lists has. */
    n_local = softdat_iov_prefix(local, n_local, PIECE, piece);
    n = copy_piece(c, piece, n_local, remote, n_remote, in);
    if (n <= 0)
        return n == 0 ? SOFTDAT_DIRECT_WITHDRAWN : SOFTDAT_DIRECT_UNREACHABLE;
    c->copied += (uint64_t)n;
    return c->copied < c->hdr.size ? SOFTDAT_DIRECT_PART : SOFTDAT_DIRECT_DONE;
}

/* Converts the requester's list in c->priv. False: malformed, or its sum is not hdr.size. */
static bool parse_list(const struct softdat_conn *c, struct iovec *out, int *n_p)
{
    struct softdat_piece piece[SOFTDAT_MAX_IOV];
    uint64_t sum = 0;

    *n_p = (int)(c->hdr.len / sizeof(piece[0]));
    if (c->hdr.len % sizeof(piece[0]) || *n_p > SOFTDAT_MAX_IOV)
        return false;
    memcpy(piece, c->priv, c->hdr.len);
    for (int i = 0; i < *n_p; i++) {
        out[i] = (struct iovec){ (void *)(uintptr_t)piece[i].addr, piece[i].len };
        if (piece[i].len > c->hdr.size || (sum += piece[i].len) > c->hdr.size)
            return false;
    }
    return sum == c->hdr.size;
}

enum softdat_direct_result softdat_direct_pull(struct softdat_conn *c, uint8_t *tail,
                                               size_t tail_len)
{
    struct iovec remote[SOFTDAT_MAX_IOV], local[2];
    int n;

    if (!parse_list(c, remote, &n))
        return SOFTDAT_DIRECT_UNREACHABLE;
    local[0] = (struct iovec){ c->target, c->hdr.size - tail_len };
    local[1] = (struct iovec){ tail, tail_len };
    return copy_part(c, local, 2, remote, n, true);
}

enum softdat_direct_result softdat_direct_push(struct softdat_conn *c)
{
    struct iovec remote[SOFTDAT_MAX_IOV];
    struct iovec local = { c->target, c->hdr.size };
    int n;

    return parse_list(c, remote, &n) ? copy_part(c, &local, 1, remote, n, false)
                                     : SOFTDAT_DIRECT_UNREACHABLE;
}
