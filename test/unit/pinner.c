/* SPDX-License-Identifier: MIT */
#include "pinner.h"

#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SLOTS = 1024 };

#define CHECK(cond)                                                        \
    do {                                                                   \
        if (!(cond)) {                                                     \
            fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #cond); \
            abort();                                                       \
        }                                                                  \
    } while (0)

static struct {
    int uring, wire;             /* wire: a file in memory, what has travelled */
    void *wire_at;
    char *ring;                  /* both queues' heads and tails */
    struct io_uring_sqe *sqe;
    size_t ring_bytes;
    struct io_uring_params par;
    struct { size_t len; unsigned priv; } slot[SLOTS];
    int n;
    size_t bytes, limit;
} p;

/* -- the io_uring ----------------------------------------------------------------------------- */

static unsigned *ring_word(uint32_t off)
{
    return (unsigned *)(void *)(p.ring + off);
}

/* An entry for each slot, all empty. */
static bool register_slots(void)
{
    struct io_uring_rsrc_register r = { .nr = SLOTS, .flags = IORING_RSRC_REGISTER_SPARSE };

    return syscall(SYS_io_uring_register, p.uring, IORING_REGISTER_BUFFERS2, &r, sizeof(r)) == 0;
}

static bool slot_set(unsigned slot, void *addr, size_t len)
{
    struct iovec v = { addr, len };
    struct io_uring_rsrc_update2 u = { .offset = slot, .data = (uintptr_t)&v, .nr = 1 };

    return syscall(SYS_io_uring_register, p.uring, IORING_REGISTER_BUFFERS_UPDATE, &u, sizeof(u))
           == 1;
}

/* Moves len bytes between the wire and pinned memory, and waits until it is done. */
static void transfer(int op, unsigned slot, const void *addr, size_t len)
{
    unsigned *tail = ring_word(p.par.sq_off.tail), *head = ring_word(p.par.cq_off.head);
    unsigned at = *tail & (p.par.sq_entries - 1);
    const struct io_uring_cqe *cqe;

    CHECK(len <= PINNER_MAX && slot < SLOTS);
    p.sqe[at] = (struct io_uring_sqe){ .opcode = (uint8_t)op, .fd = p.wire,
                                       .addr = (uintptr_t)addr, .len = (uint32_t)len,
                                       .buf_index = (uint16_t)slot };
    ring_word(p.par.sq_off.array)[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, p.uring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    CHECK(__atomic_load_n(ring_word(p.par.cq_off.tail), __ATOMIC_ACQUIRE) == *head + 1);
    cqe = (const struct io_uring_cqe *)(void *)(p.ring + p.par.cq_off.cqes)
          + (*head & (p.par.cq_entries - 1));
    CHECK(cqe->res == (int)len);
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
}

static void *map(int fd, size_t len, off_t off)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off);

    CHECK(at != MAP_FAILED);
    return at;
}

bool pinner_open(void)
{
    memset(&p, 0, sizeof(p));
    p.limit = SIZE_MAX;
    p.uring = (int)syscall(SYS_io_uring_setup, 4, &p.par);
    if (p.uring < 0)
        return false;
    if (!(p.par.features & IORING_FEAT_SINGLE_MMAP) || !register_slots()) {
        close(p.uring);
        return false;
    }
    p.ring_bytes = p.par.cq_off.cqes + p.par.cq_entries * sizeof(struct io_uring_cqe);
    if (p.ring_bytes < p.par.sq_off.array + p.par.sq_entries * sizeof(unsigned))
        p.ring_bytes = p.par.sq_off.array + p.par.sq_entries * sizeof(unsigned);
    p.ring = map(p.uring, p.ring_bytes, IORING_OFF_SQ_RING);
    p.sqe = map(p.uring, p.par.sq_entries * sizeof(*p.sqe), IORING_OFF_SQES);
    p.wire = memfd_create("wire", MFD_CLOEXEC);
    CHECK(p.wire >= 0 && ftruncate(p.wire, PINNER_MAX) == 0);
    p.wire_at = map(p.wire, PINNER_MAX, 0);
    return true;
}

int pinner_close(void)
{
    munmap(p.wire_at, PINNER_MAX);
    munmap(p.sqe, p.par.sq_entries * sizeof(*p.sqe));
    munmap(p.ring, p.ring_bytes);
    close(p.wire);
    close(p.uring);
    return p.n;
}

/* -- the adapter ------------------------------------------------------------------------------ */

void pinner_limit(size_t bytes)
{
    p.limit = bytes;
}

int pinner_count(void)
{
    return p.n;
}

DAT_RETURN pinner_lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region,
                             DAT_VLEN len, DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS priv,
                             DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr_p, DAT_LMR_CONTEXT *local,
                             DAT_RMR_CONTEXT *key, DAT_VLEN *got_len, DAT_VADDR *got_addr)
{
    unsigned slot = 0;

    (void)ia, (void)type, (void)pz, (void)va;
    while (slot < SLOTS && p.slot[slot].len > 0)
        slot++;
    if (slot == SLOTS || p.bytes + len > p.limit || !slot_set(slot, region.for_va, len))
        return (DAT_RETURN)(DAT_CLASS_ERROR | DAT_INSUFFICIENT_RESOURCES);
    p.slot[slot].len = len;
    p.slot[slot].priv = priv;
    p.bytes += len;
    p.n++;
    *lmr_p = (DAT_LMR_HANDLE)(uintptr_t)(slot + 1);
    *local = *key = slot;
    *got_len = len;
    *got_addr = (DAT_VADDR)(uintptr_t)region.for_va;
    return DAT_SUCCESS;
}

DAT_RETURN pinner_lmr_free(DAT_LMR_HANDLE lmr)
{
    unsigned slot = (unsigned)(uintptr_t)lmr - 1;

    CHECK(slot < SLOTS && p.slot[slot].len > 0);
    CHECK(slot_set(slot, NULL, 0));
    p.bytes -= p.slot[slot].len;
    p.slot[slot].len = 0;
    p.n--;
    return DAT_SUCCESS;
}

const void *pinner_read(DAT_LMR_CONTEXT key, const void *addr, size_t len)
{
    transfer(IORING_OP_WRITE_FIXED, key, addr, len);
    return p.wire_at;
}

void pinner_write(DAT_LMR_CONTEXT key, void *addr, const void *from, size_t len)
{
    memcpy(p.wire_at, from, len);
    transfer(IORING_OP_READ_FIXED, key, addr, len);
}

bool pinner_may(DAT_LMR_CONTEXT key, DAT_MEM_PRIV_FLAGS priv)
{
    return key < SLOTS && (p.slot[key].priv & priv) == priv;
}
