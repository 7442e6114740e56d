/* SPDX-License-Identifier: MIT */
/* Bodies copied out of the sender's memory, or into the receiver's, by cross-memory attach: whether
 * the kernel permits it, and the copies. Whether it is faster than two copies: way.c. */
#include "peer.h"

#include "cfg.h"
#include "channel.h"
#include "iov.h"

void mdapl_shm_cma_init(struct mdapl_shm_chan *s)
{
    s->single_from = mdapl_ctx_cfg(s->ctx)->shm_single_bytes;
}

/* Every process of the user gets this permission, so it is not given before there is a body that
 * the knob lets its other end read from this process, or write to it. */
void mdapl_shm_cma_allow(struct mdapl_shm_chan *s, size_t len)
{
    int64_t from = mdapl_ctx_cfg(s->ctx)->shm_single_bytes;

    if (s->reads_allowed || (from >= 0 && len < (uint64_t)from))
        return;
    mdapl_shm_os_reads_allow();
    s->reads_allowed = true;
}

/* -- does it work ----------------------------------------------------------------------------- */

/* The kernel decides for each pair of processes: the test reads a word whose value is known. */
void mdapl_shm_cma_try(struct mdapl_shm_peer *peer)
{
    const struct mdapl_shm_seg_head *far = peer->far.head;
    uint64_t got = 0;
    struct iovec here = { &got, sizeof(got) };
    struct iovec there = { (void *)(uintptr_t)far->word_at, sizeof(got) };

    peer->can_read = mdapl_shm_os_read(far->pid, &here, 1, &there, 1) == (ssize_t)sizeof(got)
                     && got == far->word ? MDAPL_READ_WORKS : MDAPL_READ_FAILS;
}

/* -- doing it --------------------------------------------------------------------------------- */

enum { PIECES = 16, CALL_BYTES = 1 << 30 };

/* Lists the next pieces of a cursor, at most so many bytes in all. Returns how many pieces. */
static int next_pieces(struct mdapl_iov cur, size_t most, struct iovec v[PIECES])
{
    int n = 0;

    while (n < PIECES && most > 0
           && (v[n].iov_len = mdapl_iov_piece(&cur, most, &v[n].iov_base)) > 0)
        most -= v[n++].iov_len;
    return n;
}

/* Copies len bytes between the two cursors. False: the kernel refused. */
static bool move(mdapl_shm_os_move *by, pid_t pid, struct mdapl_iov *here, struct mdapl_iov *there,
                 size_t len)
{
    struct iovec h[PIECES], t[PIECES];

    while (len > 0) {
        size_t most = len < CALL_BYTES ? len : CALL_BYTES;
        int n_h = next_pieces(*here, most, h), n_t = next_pieces(*there, most, t);
        ssize_t n = by(pid, h, n_h, t, n_t);

        if (n <= 0)
            return false;
        /* n < most if one of the two lists was shorter, or the kernel stopped. */
        mdapl_iov_skip(here, (size_t)n);
        mdapl_iov_skip(there, (size_t)n);
        len -= (size_t)n;
    }
    return true;
}

bool mdapl_shm_cma_read(struct mdapl_shm_peer *peer, struct mdapl_iov *here,
                        struct mdapl_iov *there, size_t len)
{
    if (move(mdapl_shm_os_read, peer->pid, here, there, len))
        return true;
    peer->can_read = MDAPL_READ_FAILS;
    return false;
}

bool mdapl_shm_cma_write(struct mdapl_shm_peer *peer, struct mdapl_iov *here,
                         struct mdapl_iov *there, size_t len)
{
    return move(mdapl_shm_os_write, peer->pid, here, there, len);
}
