/* SPDX-License-Identifier: MIT */
#include "seg.h"

#include "siphash.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    MAGIC = 0x6d64736d,
    LAYOUT = 1,
    CELLS_AT = MDAPL_SEG_HEAD_BYTES,
    CELLS_BYTES = MDAPL_CELLS * MDAPL_CELL_BYTES,
    DOORS_AT = CELLS_AT + CELLS_BYTES,
    SEG_BYTES = DOORS_AT + MDAPL_DOORS * MDAPL_DOOR_BYTES,
};

_Static_assert(sizeof(struct mdapl_seg_head) <= MDAPL_SEG_HEAD_BYTES, "the head has its place");

static void *map(int fd, size_t at, size_t len, int prot)
{
    void *p = mmap(NULL, len, prot, MAP_SHARED, fd, (off_t)at);

    return p == MAP_FAILED ? NULL : p;
}

/* -- mine ------------------------------------------------------------------------------------- */

bool mdapl_seg_size_allowed(size_t bytes)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY
           || limit.rlim_cur >= bytes;
}

static void fill_head(struct mdapl_seg_head *head, const struct mdapl_job *job,
                      const uint64_t *word, bool barrier)
{
    if (getrandom(&head->token, sizeof(head->token), 0) != sizeof(head->token))
        head->token = (uint64_t)(uintptr_t)head ^ (uint64_t)getpid() << 32;
    head->magic = MAGIC;
    head->version = LAYOUT;
    head->rank = job->rank;
    head->pid = (int32_t)getpid();
    head->barrier = barrier;
    head->word_at = (uint64_t)(uintptr_t)word;
    head->word = *word;
}

/* The one who reads polls: what others write for me lies near my core. The wish stays with the
 * segment, in whichever process a page is first touched. */
static void keep_near(int fd)
{
    void *all = map(fd, 0, SEG_BYTES, PROT_READ | PROT_WRITE);

    if (!all)
        return;
    mdapl_os_near(all, SEG_BYTES);
    munmap(all, SEG_BYTES);
}

int mdapl_seg_make(struct mdapl_seg *seg, const struct mdapl_job *job, const uint64_t *word,
                   bool barrier)
{
    int rc;

    seg->head = NULL;
    seg->cells = NULL;
    seg->fd = mdapl_seg_size_allowed(SEG_BYTES) ? mdapl_os_segment_make(SEG_BYTES, seg->ref)
                                                : -EFBIG;
    if (seg->fd < 0)
        return seg->fd;
    keep_near(seg->fd);
    rc = mdapl_os_segment_reserve(seg->fd, 0, DOORS_AT);
    if (rc) {
        mdapl_seg_close(seg);
        return rc;
    }
    seg->head = map(seg->fd, 0, MDAPL_SEG_HEAD_BYTES, PROT_READ | PROT_WRITE);
    seg->cells = map(seg->fd, CELLS_AT, CELLS_BYTES, PROT_READ | PROT_WRITE);
    if (!seg->head || !seg->cells) {
        mdapl_seg_close(seg);
        return -ENOMEM;
    }
    fill_head(seg->head, job, word, barrier);
    return 0;
}

void mdapl_seg_close(struct mdapl_seg *seg)
{
    if (seg->head)
        munmap(seg->head, MDAPL_SEG_HEAD_BYTES);
    if (seg->cells)
        munmap(seg->cells, CELLS_BYTES);
    mdapl_os_segment_remove(seg->ref);
    close(seg->fd);
}

struct mdapl_door *mdapl_seg_door(const struct mdapl_seg *seg, uint32_t index)
{
    return index < atomic_load(&seg->head->n_doors) ? mdapl_seg_map_door(seg->fd, index) : NULL;
}

/* -- another's -------------------------------------------------------------------------------- */

int mdapl_seg_open(const char *ref, uint64_t token, int rank, pid_t *pid_p)
{
    struct mdapl_seg_head head;
    int fd = mdapl_os_segment_open(ref, SEG_BYTES);

    if (fd < 0)
        return -EHOSTUNREACH;
    if (pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) && head.magic == MAGIC
        && head.version == LAYOUT && head.token == token && head.rank == rank) {
        if (pid_p)
            *pid_p = head.pid;
        return fd;
    }
    close(fd);
    return -EHOSTUNREACH;
}

struct mdapl_seg_head *mdapl_seg_map_head(int fd)
{
    return map(fd, 0, MDAPL_SEG_HEAD_BYTES, PROT_READ | PROT_WRITE);
}

struct mdapl_door *mdapl_seg_map_door(int fd, uint32_t index)
{
    size_t at = DOORS_AT + (size_t)index * MDAPL_DOOR_BYTES;

    if (index >= MDAPL_DOORS || mdapl_os_segment_reserve(fd, at, MDAPL_DOOR_BYTES))
        return NULL;
    return map(fd, at, MDAPL_DOOR_BYTES, PROT_READ | PROT_WRITE);
}

const uint8_t *mdapl_seg_map_cells(int fd)
{
    return map(fd, CELLS_AT, CELLS_BYTES, PROT_READ);
}

void mdapl_seg_unmap_head(struct mdapl_seg_head *head)
{
    if (head)
        munmap(head, MDAPL_SEG_HEAD_BYTES);
}

void mdapl_seg_unmap_door(struct mdapl_door *door)
{
    if (door)
        munmap(door, MDAPL_DOOR_BYTES);
}

void mdapl_seg_unmap_cells(const uint8_t *cells)
{
    if (cells)
        munmap((void *)(uintptr_t)cells, CELLS_BYTES);
}

/* -- proof ------------------------------------------------------------------------------------ */

void mdapl_seg_mac(const struct mdapl_job *job, uint32_t from, uint32_t to, uint64_t token,
                   uint8_t mac[16])
{
    struct {
        char what[8];
        uint32_t job, from, to, zero;
        uint64_t token;
    } said = { "shmdoor", job->id, from, to, 0, token };

    mdapl_siphash(job->key, &said, sizeof(said), mac);
}
