/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Long RDMA between processes of one host goes straight from one address space to the other
 * (process_vm_readv and _writev): the request says where the caller's memory is, and the target,
 * having checked key, bounds and rights as for any request, moves the bytes. Requests stay in
 * their order, and the caller's core does nothing.
 *
 * While the target polls, two cores that copy through a ring at the same time are faster than one
 * that copies in the kernel (benchmarks/results), so this is for targets that sleep or compute:
 * one wake-up for a whole transfer. polled=direct uses it always.
 *
 * The kernel may forbid it (another user, ptrace restrictions, process namespaces), so each side
 * tries at connect time whether it reads a word of the other that it knows, and tells the result.
 */

static pid_t peer_pid(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 ? cred.pid : 0;
}

void softdat_direct_offer(struct softdat_conn *c)
{
    struct softdat_reach *mine = c->shared.my_reach;

    if (!c->ia->cfg.direct_bytes)
        return;
    /* Where the kernel lets only ancestors in (Yama), let the others in as well: they are
     * processes of the same user that have been let into this connection. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    mine->word_at = (uint64_t)(uintptr_t)&c->ia->word;
    mine->word = c->ia->word;
}

void softdat_direct_try(struct softdat_conn *c)
{
    struct softdat_reach theirs = *c->shared.their_reach;
    struct iovec far = { (void *)(uintptr_t)theirs.word_at, sizeof(theirs.word) };
    uint64_t word = 0;
    struct iovec here = { &word, sizeof(word) };

    c->shared.pid = peer_pid(c->sock.fd);
    if (c->ia->cfg.direct_bytes && theirs.word_at && c->shared.pid > 0
        && process_vm_readv(c->shared.pid, &here, 1, &far, 1, 0) == (ssize_t)sizeof(word)
        && word == theirs.word) {
        c->shared.reaches = true;
        atomic_store(&c->shared.my_reach->reaches, 1);
    }
}

bool softdat_direct_possible(const struct softdat_conn *c, uint64_t len)
{
    const struct softdat_config *cfg = &c->ia->cfg;

    return c->ringed && cfg->direct_bytes && len >= cfg->direct_bytes
           && atomic_load_explicit(&c->shared.their_reach->reaches, memory_order_relaxed)
           && (cfg->direct_polled
               || atomic_load_explicit(&c->shared.theirs->asleep, memory_order_relaxed) & 1);
}

uint32_t softdat_direct_list(const struct softdat_dto *d, struct softdat_piece *out)
{
    for (int i = 0; i < d->n_iov; i++)
        out[i] = (struct softdat_piece){ (uint64_t)(uintptr_t)d->iov[i].iov_base,
                                         d->iov[i].iov_len };
    return (uint32_t)((size_t)d->n_iov * sizeof(*out));
}

/* Moves all of it; the kernel may stop at 2 GiB or in between. */
static bool move(struct softdat_conn *c, struct iovec *here, int n_here, struct iovec *there,
                 int n_there, bool in)
{
    struct iovec *h = here, *t = there;

    while (n_here > 0 && n_there > 0) {
        ssize_t n = in ? process_vm_readv(c->shared.pid, h, (unsigned long)n_here, t,
                                          (unsigned long)n_there, 0)
                       : process_vm_writev(c->shared.pid, h, (unsigned long)n_here, t,
                                           (unsigned long)n_there, 0);

        if (n <= 0 && errno != EINTR)
            return false;
        if (n > 0) {
            softdat_iov_step(&h, &n_here, (size_t)n);
            softdat_iov_step(&t, &n_there, (size_t)n);
        }
    }
    return n_here == 0 && n_there == 0;
}

/* The caller's pieces as an iovec; false when they are not `want` bytes together. */
static bool take_list(const struct softdat_conn *c, struct iovec *out, int *n_p)
{
    struct softdat_piece piece[SOFTDAT_MAX_IOV];
    uint64_t sum = 0;

    *n_p = (int)(c->hdr.len / sizeof(piece[0]));
    if (c->hdr.len % sizeof(piece[0]) || *n_p > SOFTDAT_MAX_IOV)
        return false;
    memcpy(piece, c->priv, c->hdr.len);
    for (int i = 0; i < *n_p; i++) {
        out[i] = (struct iovec){ (void *)(uintptr_t)piece[i].addr, piece[i].len };
        if (piece[i].len > c->hdr.want || (sum += piece[i].len) > c->hdr.want)
            return false;
    }
    return sum == c->hdr.want;
}

bool softdat_direct_pull(struct softdat_conn *c, uint8_t *tail, size_t tail_len)
{
    struct iovec there[SOFTDAT_MAX_IOV], here[2];
    int n;

    if (!take_list(c, there, &n))
        return false;
    here[0] = (struct iovec){ c->target, c->hdr.want - tail_len };
    here[1] = (struct iovec){ tail, tail_len };
    /* An empty first piece is not moved, so it must not be counted either. */
    return here[0].iov_len ? move(c, here, 2, there, n, true)
                           : move(c, here + 1, 1, there, n, true);
}

bool softdat_direct_push(struct softdat_conn *c)
{
    struct iovec there[SOFTDAT_MAX_IOV];
    struct iovec here = { c->target, c->hdr.want };
    int n;

    return take_list(c, there, &n) && move(c, &here, 1, there, n, false);
}
