/* SPDX-License-Identifier: MIT */
#include "seg.h"

#include "min.h"
#include "siphash.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    MAGIC = 0x6d64736d,
    LAYOUT = 5,
    CELLS_AT = MDAPL_SEG_HEAD_BYTES,
    INRINGS_AT = CELLS_AT + MDAPL_CELLS * MDAPL_CELL_BYTES,
};

_Static_assert(sizeof(struct mdapl_shm_seg_head) <= MDAPL_SEG_HEAD_BYTES,
               "the head has its place");

static size_t inring_at(uint32_t index)
{
    return INRINGS_AT + (size_t)index * MDAPL_SHM_INRING_BYTES;
}

/* Without the inrings of guests; the same in all ranks of a node. */
static size_t seg_bytes(int n_ranks)
{
    return inring_at((uint32_t)mdapl_min((uint64_t)n_ranks, MDAPL_SHM_INRINGS));
}

static size_t file_bytes(int n_ranks)
{
    return seg_bytes(n_ranks) + (size_t)MDAPL_SHM_GUESTS * MDAPL_SHM_INRING_BYTES;
}

/* The index of the first inring of guests in a segment of so many bytes. 0: it has none. */
static uint32_t first_guest(size_t bytes)
{
    return bytes > file_bytes(0) ? (uint32_t)((bytes - file_bytes(0)) / MDAPL_SHM_INRING_BYTES)
                                 : 0;
}

static int map(struct mdapl_shm_seg *seg, int fd)
{
    void *p = mmap(NULL, seg->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return -ENOMEM;
    mdapl_shm_os_small_pages(p, seg->bytes);
    seg->head = p;
    return 0;
}

/* -- this process's segment -------------------------------------------------------------------- */

bool mdapl_shm_seg_size_allowed(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
           || limit.rlim_cur >= bytes;
}

static void fill_head(struct mdapl_shm_seg_head *head, int rank, const uint64_t *word,
                      bool barrier)
{
    if (getrandom(&head->token, sizeof(head->token), 0) != sizeof(head->token))
        head->token = (uint64_t)(uintptr_t)head ^ (uint64_t)getpid() << 32;
    head->magic = MAGIC;
    head->version = LAYOUT;
    head->rank = rank;
    head->pid = (int32_t)getpid();
    head->barrier = barrier;
    head->word_at = (uint64_t)(uintptr_t)word;
    head->word = *word;
}

int mdapl_shm_seg_make(struct mdapl_shm_seg *seg, int rank, int n_ranks, const uint64_t *word,
                       bool barrier)
{
    int rc;

    *seg = (struct mdapl_shm_seg){ .bytes = file_bytes(n_ranks) };
    seg->first_guest = first_guest(seg->bytes);
    seg->fd = mdapl_shm_seg_size_allowed(seg->bytes)
                ? mdapl_shm_os_segment_make(seg->bytes, seg->ref)
                : -EFBIG;
    if (seg->fd < 0)
        return seg->fd;
    rc = mdapl_shm_os_segment_reserve(seg->ref, 0, INRINGS_AT);
    if (!rc)
        rc = map(seg, seg->fd);
    if (rc) {
        mdapl_shm_seg_close(seg);
        return rc;
    }
    /* On the NUMA node of the reader, because the reader polls. The policy belongs to the mapping,
     * so it holds whichever process touches a page first. */
    mdapl_shm_os_near(seg->head, seg->bytes);
    fill_head(seg->head, rank, word, barrier);
    return 0;
}

void mdapl_shm_seg_close(struct mdapl_shm_seg *seg)
{
    if (seg->head)
        munmap(seg->head, seg->bytes);
    seg->head = NULL;
    if (seg->fd < 0)
        return;
    mdapl_shm_os_segment_remove(seg->ref);
    close(seg->fd);
}

/* -- another process's segment ----------------------------------------------------------------- */

int mdapl_shm_seg_open(struct mdapl_shm_seg *seg, const char *ref, uint64_t token, int rank,
                       int n_ranks)
{
    size_t bytes = n_ranks > 0 ? file_bytes(n_ranks) : mdapl_shm_os_segment_size(ref);
    int fd = mdapl_shm_os_segment_open(ref, bytes), rc;

    *seg = (struct mdapl_shm_seg){ .bytes = n_ranks > 0 ? seg_bytes(n_ranks) : bytes,
                                   .first_guest = first_guest(bytes), .fd = -1 };
    if (fd < 0)
        return fd;
    if (seg->first_guest == 0 || bytes > file_bytes(MDAPL_SHM_INRINGS)) {
        close(fd);
        return -EHOSTUNREACH;
    }
    memcpy(seg->ref, ref, strlen(ref));
    rc = map(seg, fd);
    close(fd);
    if (rc || (seg->head->magic == MAGIC && seg->head->version == LAYOUT
               && seg->head->token == token && seg->head->rank == rank))
        return rc;
    mdapl_shm_seg_close(seg);
    return -EHOSTUNREACH;
}

/* -- inrings and cells ------------------------------------------------------------------------ */

static struct mdapl_shm_inring *inring(const struct mdapl_shm_seg *seg, uint32_t index)
{
    return (struct mdapl_shm_inring *)(void *)((uint8_t *)seg->head + inring_at(index));
}

struct mdapl_shm_inring *mdapl_shm_seg_claim_inring(struct mdapl_shm_seg *seg, uint32_t *index_p)
{
    uint32_t index = atomic_fetch_add(&seg->head->n_inrings, 1);

    if (index >= MDAPL_SHM_INRINGS || inring_at(index) >= seg->bytes
        || mdapl_shm_os_segment_reserve(seg->ref, inring_at(index), MDAPL_SHM_INRING_BYTES))
        return NULL;
    *index_p = index;
    return inring(seg, index);
}

int mdapl_shm_seg_reserve_inring(const struct mdapl_shm_seg *seg, uint32_t index)
{
    return mdapl_shm_os_segment_reserve(seg->ref, inring_at(index), MDAPL_SHM_INRING_BYTES);
}

static bool is_claimed(const struct mdapl_shm_seg *seg, uint32_t index)
{
    uint32_t guest = index - seg->first_guest;

    if (index < seg->first_guest)
        return index < atomic_load(&seg->head->n_inrings);
    return guest < MDAPL_SHM_GUESTS && atomic_load(&seg->head->guest[guest].state) != 0;
}

struct mdapl_shm_inring *mdapl_shm_seg_inring(const struct mdapl_shm_seg *seg, uint32_t index)
{
    return is_claimed(seg, index) ? inring(seg, index) : NULL;
}

uint8_t *mdapl_shm_seg_cells(const struct mdapl_shm_seg *seg)
{
    return (uint8_t *)seg->head + CELLS_AT;
}

/* -- proof ------------------------------------------------------------------------------------ */

void mdapl_shm_seg_mac(const uint8_t key[16], struct mdapl_shm_id from, struct mdapl_shm_id to,
                       uint64_t token, uint8_t mac[16])
{
    struct {
        char what[8];
        struct mdapl_shm_id from, to;
        uint64_t token;
    } said = { "shmdoor", from, to, token };

    mdapl_siphash(key, &said, sizeof(said), mac);
}
