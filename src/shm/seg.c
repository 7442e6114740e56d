/* SPDX-License-Identifier: MIT */
#include "seg.h"

#include "min.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    MAGIC = 0x6d64736d,
    LAYOUT = 23,                 /* of the segment, and of what travels in its rings */
    FRONTS_AT = sizeof(struct mdapl_shm_seg_head),
    INRING_MIN = 262144,
    ALL_INRINGS = 32 << 20,      /* bytes of all of them, as long as one has more than INRING_MIN */
    LEAST_PAGE = 4096,
};

_Static_assert(FRONTS_AT % MDAPL_SLOT_BYTES == 0, "a first piece begins a pair of lines");
_Static_assert(sizeof(struct mdapl_shm_seg_head) <= MDAPL_SEG_HEAD_BYTES,
               "a segment of another group is no shorter");

/* Of each inring, data included, on a node with so many ranks. */
static size_t inring_bytes_for(int n_ranks)
{
    size_t bytes = mdapl_shm_os_inring_max();

    while (bytes > INRING_MIN && bytes * (size_t)n_ranks > ALL_INRINGS)
        bytes /= 2;
    return bytes;
}

/* Of a pair buffer. On a node with many ranks, whose inrings are small, there are none. */
static size_t pair_bytes(const struct mdapl_shm_seg *seg)
{
    return seg->inring_bytes < 4 * MDAPL_PAIR_BYTES ? 0 : MDAPL_PAIR_BYTES;
}

/* Whole pages, so that the pair buffer begins where data does in its page (ring.h). */
uint32_t mdapl_shm_seg_data_bytes(const struct mdapl_shm_seg *seg)
{
    size_t bytes = seg->inring_bytes - sizeof(struct mdapl_shm_inring_rest) - pair_bytes(seg);

    return (uint32_t)(bytes & ~(size_t)(LEAST_PAGE - 1));
}

uint8_t *mdapl_shm_seg_pair(const struct mdapl_shm_seg *seg, const struct mdapl_shm_inring_at *in)
{
    return pair_bytes(seg) > 0 ? in->rest->data + mdapl_shm_seg_data_bytes(seg) : NULL;
}

static size_t front_at(uint32_t index)
{
    return FRONTS_AT + (size_t)index * sizeof(struct mdapl_shm_inring);
}

static size_t rest_at(const struct mdapl_shm_seg *seg, uint32_t index)
{
    return seg->rests_at + (size_t)index * seg->inring_bytes;
}

/* Where everything is in the segment of a rank whose node has n_ranks. Returns the bytes of its
 * file. Those without the inrings of guests are what its job maps. */
static size_t lay_out(struct mdapl_shm_seg *seg, int n_ranks)
{
    seg->inring_bytes = inring_bytes_for(n_ranks);
    seg->first_guest = (uint32_t)mdapl_min((uint64_t)n_ranks, MDAPL_SHM_INRINGS);
    seg->cells_at = (front_at(seg->first_guest + MDAPL_SHM_GUESTS) + MDAPL_SEG_HEAD_BYTES - 1)
                    & ~(size_t)(MDAPL_SEG_HEAD_BYTES - 1);
    seg->rests_at = seg->cells_at + MDAPL_CELLS * MDAPL_CELL_BYTES;
    return rest_at(seg, seg->first_guest + MDAPL_SHM_GUESTS);
}

static int map(struct mdapl_shm_seg *seg, int fd, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return -ENOMEM;
    mdapl_shm_os_small_pages(p, bytes);
    seg->head = p;
    seg->bytes = bytes;
    return 0;
}

/* -- this process's segment -------------------------------------------------------------------- */

bool mdapl_shm_seg_size_allowed(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
           || limit.rlim_cur >= bytes;
}

static void fill_head(struct mdapl_shm_seg_head *head, int rank, int n_ranks,
                      const uint64_t *word, bool barrier)
{
    if (getrandom(&head->token, sizeof(head->token), 0) != sizeof(head->token))
        head->token = (uint64_t)(uintptr_t)head ^ (uint64_t)getpid() << 32;
    head->magic = MAGIC;
    head->version = LAYOUT;
    head->rank = rank;
    head->pid = (int32_t)getpid();
    head->n_ranks = n_ranks;
    head->barrier = barrier;
    head->word_at = (uint64_t)(uintptr_t)word;
    head->word = *word;
}

/* Allocates the FIFO: by its first access another process maps what there is around the head. A
 * first message would cost it a page fault in which a page is allocated, and the owner another
 * one. */
static void allocate_fifo(struct mdapl_shm_seg_head *head)
{
    memset(head->fifo, 0, sizeof(head->fifo));
}

int mdapl_shm_seg_make(struct mdapl_shm_seg *seg, int rank, int n_ranks, const uint64_t *word,
                       bool barrier)
{
    size_t bytes;
    int rc;

    *seg = (struct mdapl_shm_seg){ .fd = -1 };
    bytes = lay_out(seg, n_ranks);
    seg->fd = mdapl_shm_seg_size_allowed(bytes) ? mdapl_shm_os_segment_make(bytes, seg->ref)
                                                : -EFBIG;
    if (seg->fd < 0)
        return seg->fd;
    rc = mdapl_shm_os_segment_reserve(seg->ref, 0, seg->rests_at);
    if (!rc)
        rc = map(seg, seg->fd, bytes);
    if (rc) {
        mdapl_shm_seg_close(seg);
        return rc;
    }
    /* On the NUMA node of the reader, because the reader polls. The policy belongs to the mapping,
     * so it holds whichever process touches a page first. */
    mdapl_shm_os_near(seg->head, seg->bytes);
    fill_head(seg->head, rank, n_ranks, word, barrier);
    allocate_fifo(seg->head);
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

/* Is it the segment of that rank? Of one of another group only the size is known before; the number
 * of ranks on its node, which decides it, is in the head. */
static bool is_that_of(struct mdapl_shm_seg *seg, uint64_t token, int rank, int n_ranks)
{
    int there = seg->head->n_ranks;    /* once: its owner may change it */

    return seg->head->magic == MAGIC && seg->head->version == LAYOUT && seg->head->token == token
           && (rank < 0 || seg->head->rank == rank)
           && (n_ranks > 0 ? there == n_ranks : there > 0 && lay_out(seg, there) == seg->bytes);
}

int mdapl_shm_seg_open(struct mdapl_shm_seg *seg, const char *ref, uint64_t token, int rank,
                       int n_ranks)
{
    size_t bytes;
    int fd, rc;

    *seg = (struct mdapl_shm_seg){ .fd = -1 };
    bytes = n_ranks > 0 ? lay_out(seg, n_ranks) : mdapl_shm_os_segment_size(ref);
    fd = mdapl_shm_os_segment_open(ref, bytes);
    if (fd < 0)
        return fd;
    memcpy(seg->ref, ref, strlen(ref));
    rc = bytes < MDAPL_SEG_HEAD_BYTES
             ? -EHOSTUNREACH : map(seg, fd, n_ranks > 0 ? rest_at(seg, seg->first_guest) : bytes);
    close(fd);
    if (rc || is_that_of(seg, token, rank, n_ranks))
        return rc;
    mdapl_shm_seg_close(seg);
    return -EHOSTUNREACH;
}

/* -- inrings and cells ------------------------------------------------------------------------ */

static struct mdapl_shm_inring_at inring(const struct mdapl_shm_seg *seg, uint32_t index)
{
    uint8_t *base = (uint8_t *)seg->head;

    return (struct mdapl_shm_inring_at){ .front = (void *)(base + front_at(index)),
                                         .rest = (void *)(base + rest_at(seg, index)) };
}

int mdapl_shm_seg_reserve_inring(const struct mdapl_shm_seg *seg, uint32_t index)
{
    return mdapl_shm_os_segment_reserve(seg->ref, rest_at(seg, index), seg->inring_bytes);
}

static bool is_in_use(const struct mdapl_shm_seg *seg, uint32_t index)
{
    uint32_t guest = index - seg->first_guest;

    return index < seg->first_guest
           || (guest < MDAPL_SHM_GUESTS && atomic_load(&seg->head->guest[guest].state) != 0);
}

struct mdapl_shm_inring_at mdapl_shm_seg_inring(const struct mdapl_shm_seg *seg, uint32_t index)
{
    return is_in_use(seg, index) ? inring(seg, index)
                                 : (struct mdapl_shm_inring_at){ NULL, NULL };
}

uint8_t *mdapl_shm_seg_cells(const struct mdapl_shm_seg *seg)
{
    return (uint8_t *)seg->head + seg->cells_at;
}
