/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Two adapters of one host share a segment: a ring of bytes in each direction, and for each side
 * one line that only this side writes and the other reads. The caller makes the segment and sends
 * it with CONNECT; from READY on every frame goes through the rings, and the socket carries only
 * bells (a byte each, for a side that sleeps) and the news that the peer has died.
 *
 * Memory orders: whoever writes a ring stores `tail` with release after the bytes, the reader
 * loads it with acquire before them; the reader stores `head` with release after it has used the
 * bytes, the writer loads it with acquire before it overwrites them. `executed` is stored with
 * release after the memory that the request was about. Sleeping is the classic handshake: each
 * side stores its own word (asleep; tail or head), and after a sequentially consistent fence loads
 * the other's, so at least one of them sees the other.
 */
enum {
    RING = 1 << 16,              /* bytes, each direction; a power of two */
    CHUNK = 1 << 13,             /* published at once: both sides copy at the same time */
    SEGMENT_MAGIC = 0x5dda7005,
};

struct half {
    _Alignas(128) _Atomic uint64_t tail;     /* bytes that this side has written, ever */
    _Atomic uint64_t head;       /* bytes that it has read of the other's, ever */
    _Atomic uint32_t executed;   /* SENDs and WRITEs of the other that it has executed, ever */
    _Atomic uint32_t asleep;     /* odd while it wants a bell */
};

struct softdat_segment {
    uint32_t magic, ring;
    struct half half[2];         /* of the caller, of the called */
    _Alignas(128) uint8_t bytes[2][RING];
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* -- making and taking ------------------------------------------------------------------------ */

static void use(struct softdat_conn *c, struct softdat_segment *seg, int side)
{
    struct softdat_shared *s = &c->shared;

    s->seg = seg;
    s->side = side;
}

static struct softdat_segment *map(int fd)
{
    void *p = mmap(NULL, sizeof(struct softdat_segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

int softdat_shared_make(struct softdat_conn *c)
{
    int fd = memfd_create("daplsoft", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct softdat_segment *seg = NULL;

    /* Sealed: neither side can take pages away from under the other. */
    if (fd >= 0 && ftruncate(fd, sizeof(*seg)) == 0
        && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        seg = map(fd);
    if (!seg) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    seg->magic = SEGMENT_MAGIC;
    seg->ring = RING;
    use(c, seg, 0);
    return fd;
}

bool softdat_shared_take(struct softdat_conn *c, int fd)
{
    struct softdat_segment *seg = NULL;
    struct stat st;

    if (!c->shared.seg && fstat(fd, &st) == 0 && (size_t)st.st_size == sizeof(*seg)
        && fcntl(fd, F_GET_SEALS) >= 0 && fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK)
        seg = map(fd);
    close(fd);
    if (!seg)
        return false;
    if (seg->magic != SEGMENT_MAGIC || seg->ring != RING) {
        munmap(seg, sizeof(*seg));
        return false;
    }
    use(c, seg, 1);
    return true;
}

void softdat_shared_start(struct softdat_conn *c)
{
    struct softdat_ia *ia = c->ia;

    c->ringed = true;
    softdat_list_append(&ia->rings, &c->rings);
    ia->n_sockets--;
    if (ia->bells_wanted)
        atomic_fetch_add(&c->shared.seg->half[c->shared.side].asleep, 1);
}

void softdat_shared_free(struct softdat_conn *c)
{
    if (c->shared.seg)
        munmap(c->shared.seg, sizeof(*c->shared.seg));
    c->shared.seg = NULL;
}

/* -- telling the other side ------------------------------------------------------------------- */

static struct half *mine(const struct softdat_conn *c)
{
    return &c->shared.seg->half[c->shared.side];
}

static struct half *theirs(const struct softdat_conn *c)
{
    return &c->shared.seg->half[!c->shared.side];
}

/* Wakes the other side if it sleeps; once for each sleep. */
static void ring_bell(struct softdat_conn *c)
{
    uint32_t asleep;
    char byte = 0;

    atomic_thread_fence(memory_order_seq_cst);
    asleep = atomic_load_explicit(&theirs(c)->asleep, memory_order_relaxed);
    if (!(asleep & 1) || asleep == c->shared.rung)
        return;
    c->shared.rung = asleep;
    if (send(c->sock.fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return;                  /* full of bells, or dead: the socket tells in its own way */
}

void softdat_shared_tell(struct softdat_conn *c)
{
    atomic_store_explicit(&mine(c)->executed, c->executed, memory_order_release);
    atomic_store_explicit(&mine(c)->head, c->shared.head, memory_order_release);
    c->acked = c->executed;
    c->shared.told = c->shared.head;
    softdat_list_remove(&c->acks);
    ring_bell(c);
}

/* -- writing and reading ---------------------------------------------------------------------- */

static size_t room(struct softdat_conn *c)
{
    struct softdat_shared *s = &c->shared;
    uint64_t used = s->tail - s->their_head;

    if (used + CHUNK > RING) {
        s->their_head = atomic_load_explicit(&theirs(c)->head, memory_order_acquire);
        used = s->tail - s->their_head;
    }
    return used <= RING ? RING - used : 0;
}

static void put(struct softdat_conn *c, const void *from, size_t n)
{
    struct softdat_shared *s = &c->shared;
    uint8_t *ring = s->seg->bytes[s->side];
    size_t at = s->tail % RING, first = least(n, RING - at);

    memcpy(ring + at, from, first);
    memcpy(ring, (const char *)from + first, n - first);
    s->tail += n;
}

static void publish(struct softdat_conn *c)
{
    atomic_store_explicit(&mine(c)->executed, c->executed, memory_order_relaxed);
    atomic_store_explicit(&mine(c)->head, c->shared.head, memory_order_release);
    atomic_store_explicit(&mine(c)->tail, c->shared.tail, memory_order_release);
    c->shared.told = c->shared.head;
}

size_t softdat_shared_write(struct softdat_conn *c, const struct iovec *iov, int n)
{
    size_t total = 0, unpublished = 0, left = room(c);

    for (int i = 0; i < n && left > 0; i++)
        for (size_t at = 0; at < iov[i].iov_len && left > 0;) {
            size_t step = least(least(iov[i].iov_len - at, left), CHUNK - unpublished);

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
    if (total > 0) {
        publish(c);
        ring_bell(c);
    }
    return total;
}

/* The next bytes that have come, as many as lie together. -1: the indices are not possible. */
ssize_t softdat_shared_peek(struct softdat_conn *c, const uint8_t **p)
{
    struct softdat_shared *s = &c->shared;
    uint64_t n;

    if (s->their_tail == s->head)
        s->their_tail = atomic_load_explicit(&theirs(c)->tail, memory_order_acquire);
    n = s->their_tail - s->head;
    if (n > RING)
        return -1;
    *p = s->seg->bytes[!s->side] + s->head % RING;
    return (ssize_t)least(least(n, RING - s->head % RING), CHUNK);
}

void softdat_shared_took(struct softdat_conn *c, size_t n)
{
    c->shared.head += n;
    if (c->shared.head - c->shared.told > RING / 4)
        softdat_shared_tell(c);
    else if (softdat_list_empty(&c->acks))
        softdat_list_append(&c->ia->acks, &c->acks);
}

uint32_t softdat_shared_executed(struct softdat_conn *c)
{
    return atomic_load_explicit(&theirs(c)->executed, memory_order_acquire);
}

bool softdat_shared_has_room(struct softdat_conn *c)
{
    return room(c) > 0;
}

/* -- sleeping --------------------------------------------------------------------------------- */

static bool quiet(struct softdat_conn *c)
{
    return c->stalled
           || (atomic_load_explicit(&theirs(c)->tail, memory_order_relaxed) == c->shared.head
               && softdat_shared_executed(c) == c->shared.heard
               && (!c->blocked || !softdat_shared_has_room(c)));
}

static void flip(struct softdat_ia *ia, bool wanted)
{
    struct softdat_list *l;

    if (ia->bells_wanted == wanted)
        return;
    ia->bells_wanted = wanted;
    for (l = ia->rings.next; l != &ia->rings; l = l->next)
        atomic_fetch_add(&mine(SOFTDAT_OF(l, struct softdat_conn, rings))->asleep, 1);
}

bool softdat_shared_doze(struct softdat_ia *ia)
{
    struct softdat_list *l;

    flip(ia, true);
    atomic_thread_fence(memory_order_seq_cst);
    for (l = ia->rings.next; l != &ia->rings; l = l->next)
        if (!quiet(SOFTDAT_OF(l, struct softdat_conn, rings)))
            return false;
    return true;
}

void softdat_shared_wake(struct softdat_ia *ia)
{
    flip(ia, false);
}
