/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Two adapters of one host share a segment: a byte ring in each direction, and for each side a pair
 * of cache lines that only this side writes. The active side creates the segment and sends it with
 * CONNECT. From READY on every frame goes through the rings; the socket then carries only doorbells
 * (one byte each, for a side that sleeps), and its end reports that the peer has died.
 *
 * Memory orders: the writer of a ring stores `counters` with release after the bytes, the reader
 * loads it with acquire before it reads them. So it is with the other half of that word, the
 * requests executed, and their memory. The reader stores `head` with release after it has read, the
 * writer loads it with acquire before it overwrites. Before it sleeps a side stores `armed`,
 * executes a sequentially consistent fence and loads counters and head; a writer stores counters or
 * head, executes the fence and loads `armed`. So either the sleeper sees the new bytes or the
 * writer sees that a doorbell is needed.
 */
enum { CHUNK = 1 << 13 };        /* bytes per store of `counters`: both sides copy at a time */
static const uint64_t again_ns = 1000000;    /* until a doorbell that could not be sent is again */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* -- creating and attaching ------------------------------------------------------------------- */

static void attach(struct softdat_conn *c, struct softdat_segment *seg, int side)
{
    c->shared = (struct softdat_shared){
        .seg = seg, .mine = &seg->half[side], .theirs = &seg->half[!side],
        .my_access = &seg->access[side], .their_access = &seg->access[!side],
        .out = seg->bytes[side], .in = seg->bytes[!side],
    };
}

static struct softdat_segment *map(int fd)
{
    void *p = mmap(NULL, sizeof(struct softdat_segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return NULL;
    madvise(p, sizeof(struct softdat_segment), MADV_DONTFORK);
    return p;
}

/* True if RLIMIT_FSIZE permits a file of this size; exceeding it would raise SIGXFSZ. */
static bool may_grow(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0
           && (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= sizeof(struct softdat_segment));
}

int softdat_shared_create(struct softdat_conn *c)
{
    bool possible = c->ia->cfg.local == SOFTDAT_LOCAL_SHARED && may_grow();
    int fd = possible ? memfd_create("daplsoft", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
    struct softdat_segment *seg = NULL;

    /* The seals keep the peer from shrinking the file, which would make accesses raise SIGBUS. */
    if (fd >= 0 && ftruncate(fd, sizeof(*seg)) == 0
        && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        seg = map(fd);
    if (!seg) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    seg->magic = SOFTDAT_SEGMENT_MAGIC;
    seg->ring = SOFTDAT_RING;
    attach(c, seg, 0);
    softdat_direct_offer(c);
    return fd;
}

ssize_t softdat_shared_send(struct softdat_conn *c, struct msghdr *m)
{
    union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct cmsghdr *h = &control.align;
    ssize_t n;

    memset(&control, 0, sizeof(control));
    *h = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(sizeof(int)) };
    memcpy(CMSG_DATA(h), &c->segment_fd, sizeof(int));
    m->msg_control = &control;
    m->msg_controllen = sizeof(control.room);
    n = sendmsg(c->sock.fd, m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
        close(c->segment_fd);
        c->segment_fd = -1;
    }
    return n;
}

bool softdat_shared_attach(struct softdat_conn *c, int fd)
{
    struct softdat_segment *seg = NULL;
    struct stat st;

    if (c->ia->cfg.local == SOFTDAT_LOCAL_SHARED && !c->shared.seg && fstat(fd, &st) == 0
        && (size_t)st.st_size == sizeof(*seg) && fcntl(fd, F_GET_SEALS) >= 0
        && fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK)
        seg = map(fd);
    close(fd);
    if (!seg)
        return false;
    if (seg->magic != SOFTDAT_SEGMENT_MAGIC || seg->ring != SOFTDAT_RING) {
        munmap(seg, sizeof(*seg));
        return false;
    }
    attach(c, seg, 1);
    softdat_direct_offer(c);
    softdat_direct_probe(c);
    return true;
}

void softdat_shared_start(struct softdat_conn *c)
{
    struct softdat_ia *ia = c->ia;

    c->uses_rings = true;
    softdat_list_append(&ia->rings, &c->polled);
    ia->n_sockets--;
    if (!ia->doorbells_armed)
        return;
    atomic_fetch_add(&c->shared.mine->armed, 1);
    softdat_request_progress(ia); /* the peer may have written before the doorbell was armed */
}

void softdat_shared_free(struct softdat_conn *c)
{
    /* Calls the kernel directly because a program may interpose munmap() and call the provider. */
    if (c->shared.seg)
        syscall(SYS_munmap, c->shared.seg, sizeof(*c->shared.seg));
    c->shared.seg = NULL;
}

/* -- doorbells and acknowledgements ----------------------------------------------------------- */

void softdat_shared_wake_peer(struct softdat_conn *c, uint32_t armed)
{
    char byte = 0;

    /* No memory in the kernel: no doorbell is on its way. Any other failure needs none: a full
     * buffer has an unread one, and the end of the socket is reported by it. */
    if (send(c->sock.fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0
        && (errno == ENOBUFS || errno == ENOMEM)) {
        if (softdat_list_empty(&c->delayed))
            softdat_delay_until(c, softdat_now() + again_ns);
        return;
    }
    c->shared.doorbell_sent = armed;
}

void softdat_shared_ack(struct softdat_conn *c)
{
    softdat_shared_publish(c);
    c->unacked_bytes = 0;
    softdat_list_remove(&c->acks);
    softdat_doorbell(c);
}

/* -- writing and reading ---------------------------------------------------------------------- */

/* Returns how many bytes may be written; reloads the head of the peer only if it is short. */
static size_t room(struct softdat_conn *c)
{
    struct softdat_shared *s = &c->shared;
    uint32_t used = s->tail - s->their_head;

    if (used + CHUNK > SOFTDAT_RING) {
        s->their_head = atomic_load_explicit(&s->theirs->head, memory_order_acquire);
        used = s->tail - s->their_head;
    }
    return used <= SOFTDAT_RING ? SOFTDAT_RING - used : 0;
}

static void put(struct softdat_conn *c, const void *from, size_t n)
{
    struct softdat_shared *s = &c->shared;
    size_t at = s->tail % SOFTDAT_RING, first = min_size(n, SOFTDAT_RING - at);

    memcpy(s->out + at, from, first);
    memcpy(s->out, (const char *)from + first, n - first);
    s->tail += (uint32_t)n;
}

/* Positions in the stream are 32 bits, so the position of an in-line frame recurs after 2^32 bytes.
 * It is retired before that: at most one ring of bytes is unread, so once more than a ring has been
 * written behind the frame the peer has read past it. `counters`, by which the peer learns of later
 * bytes, is stored after this. */
static void retire_inline(struct softdat_shared *s)
{
    if (!s->inline_live || s->tail - s->inline_at <= SOFTDAT_RING)
        return;
    atomic_store_explicit(&s->mine->in_line, 0, memory_order_relaxed);
    s->inline_live = false;
}

/* Publishes the bytes written, with the other counters. */
static void publish(struct softdat_conn *c)
{
    retire_inline(&c->shared);
    softdat_shared_publish(c);
}

/* Stores a frame as the in-line frame (quick.h); the caller publishes it. */
static size_t put_inline(struct softdat_shared *s, const struct iovec *iov, int n, size_t len)
{
    uint8_t *to = s->mine->inline_data;

    for (int i = 0; i < n; to += iov[i].iov_len, i++)
        memcpy(to, iov[i].iov_base, iov[i].iov_len);
    softdat_inline_note(s, (uint32_t)len);
    return len;
}

static size_t put_ring(struct softdat_conn *c, const struct iovec *iov, int n)
{
    size_t total = 0, unpublished = 0, left = room(c);

    for (int i = 0; i < n && left > 0; i++)
        for (size_t at = 0; at < iov[i].iov_len && left > 0;) {
            size_t step = min_size(min_size(iov[i].iov_len - at, left), CHUNK - unpublished);

            put(c, (const char *)iov[i].iov_base + at, step);
            at += step;
            total += step;
            unpublished += step;
            left -= step;
            if (unpublished == CHUNK) {
                publish(c);
                unpublished = 0;
                left = room(c);
            }
        }
    return total;
}

size_t softdat_shared_write(struct softdat_conn *c, const struct iovec *iov, int n)
{
    struct softdat_shared *s = &c->shared;
    size_t len = 0;
    bool read = softdat_all_read(s);

    for (int i = 0; i < n && len <= SOFTDAT_INLINE; i++)
        len += iov[i].iov_len;
    if (read && len <= SOFTDAT_INLINE) {
        len = put_inline(s, iov, n, len);
    } else {
        len = put_ring(c, iov, n);
    }
    if (len > 0) {
        publish(c);
        softdat_doorbell(c);
    }
    return len;
}

ssize_t softdat_shared_peek(struct softdat_conn *c, const uint8_t **p)
{
    struct softdat_shared *s = &c->shared;
    uint32_t n = (uint32_t)softdat_shared_counters(c) - s->head;
    uint64_t in_line = atomic_load_explicit(&s->theirs->in_line, memory_order_relaxed);
    uint32_t len = (uint32_t)(in_line >> 32);

    if (n > 0 && len > 0 && (uint32_t)in_line == s->head) {
        *p = s->theirs->inline_data;
        return len <= n && len <= SOFTDAT_INLINE ? (ssize_t)len : -1;
    }
    if (n > SOFTDAT_RING)
        return -1;
    *p = s->in + s->head % SOFTDAT_RING;
    return (ssize_t)min_size(min_size(n, SOFTDAT_RING - s->head % SOFTDAT_RING), CHUNK);
}

void softdat_shared_consume(struct softdat_conn *c, size_t n)
{
    c->shared.head += (uint32_t)n;
    if (c->shared.head - c->shared.head_published > SOFTDAT_RING / 4)
        softdat_shared_ack(c);
    else
        softdat_ack_later(c);
}

bool softdat_shared_has_room(struct softdat_conn *c)
{
    return room(c) > 0;
}

/* -- sleeping --------------------------------------------------------------------------------- */

/* True if the adapter may sleep as far as c is concerned. */
static bool nothing_pending(struct softdat_conn *c)
{
    return c->stalled || softdat_path_cut(c)
           || (!softdat_shared_pending(c) && !c->copying
               && (!c->blocked || !softdat_shared_has_room(c)));
}

/* Arms or disarms the doorbells of all rings; the low bit of `armed` is the state. */
static void set_armed(struct softdat_ia *ia, bool armed)
{
    struct softdat_list *l;

    if (ia->doorbells_armed == armed)
        return;
    ia->doorbells_armed = armed;
    softdat_round_complete(ia);  /* disarms */
    for (l = ia->rings.next; l != &ia->rings; l = l->next)
        atomic_fetch_add(&SOFTDAT_OF(l, struct softdat_conn, polled)->shared.mine->armed, 1);
}

bool softdat_shared_arm(struct softdat_ia *ia)
{
    struct softdat_list *l;

    if (ia->doorbells_armed)
        return !ia->work_pending;
    set_armed(ia, true);
    atomic_thread_fence(memory_order_seq_cst);
    for (l = ia->rings.next; l != &ia->rings && !ia->work_pending; l = l->next)
        ia->work_pending = !nothing_pending(SOFTDAT_OF(l, struct softdat_conn, polled));
    return !ia->work_pending;
}

bool softdat_shared_disarm(struct softdat_ia *ia)
{
    bool was_armed = ia->doorbells_armed;

    set_armed(ia, false);
    return was_armed;
}

void softdat_shared_doorbell(struct softdat_conn *c)
{
    softdat_rx_ring(c);
    if (c->sock.fd < 0 || !c->ia->doorbells_armed)
        return;
    atomic_fetch_add(&c->shared.mine->armed, 2);
    atomic_thread_fence(memory_order_seq_cst);
    if (!nothing_pending(c))
        c->ia->work_pending = true;
}
