/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_SEG_H
#define MDAPL_SHM_SEG_H
/*
 * The segment of one process: what it lets the others of its node see.
 *
 *      head       who it is; the bells; whether it sleeps
 *      cells      long bodies on their way out: it fills them, others read them
 *      doors      the rings of those who send to it (ring.h), one for each, taken in turn
 *
 * It is made large and stays empty: memory is used only where somebody has written, so it grows
 * with the peers that talk.
 *
 * Proof. A card says how a segment is reached and the random token in its head. Whoever opens what
 * the card names and reads the token there shares memory with the card's owner. Whoever comes to a
 * door leaves a MAC under the job's key there.
 */
#include "os.h"
#include "ring.h"

#include <stdint.h>
#include <sys/types.h>

struct mdapl_err;
struct mdapl_job;

enum {
    MDAPL_BELL_WORDS = 64,
    MDAPL_DOORS = 64 * MDAPL_BELL_WORDS,     /* at most; there is one for each rank of the node */
    MDAPL_MAPPED = 1,
    MDAPL_CELLS = 32,
    MDAPL_CELL_BYTES = 32768,
    MDAPL_SEG_HEAD_BYTES = 65536,    /* of the file: whole pages everywhere */
};

/* The first fields never change once the card is out; the launcher's exchange of cards publishes
 * them. All others are atomic (bell.c). */
struct mdapl_seg_head {
    uint32_t magic, version;
    uint64_t token;
    int32_t rank, pid;
    uint32_t barrier;        /* the owner has barriers (os.h), so the others need no fences */
    uint64_t word_at, word;  /* what lies where in the owner's memory: can you read it? (copy.c) */
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint32_t n_doors;    /* doors taken */
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint64_t bells;      /* words of bell that may have any */
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint64_t bell[MDAPL_BELL_WORDS];  /* a bit for a door */
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint32_t asleep;     /* 1: wake me when you ring */
    /* By index of the ranks of the node (near.c): MAPPED, or the -errno why its segment is not. */
    alignas(2 * MDAPL_LINE_BYTES) _Atomic int32_t verdict[MDAPL_DOORS];
};

/* A segment, mapped whole: address space costs nothing, calls to map its parts would. */
struct mdapl_seg {
    struct mdapl_seg_head *head;     /* NULL: it is not mapped */
    size_t bytes;
    int fd;                  /* mine: through it the others open it. Others': -1 */
    char ref[MDAPL_SHM_REF_MAX];
};

/* Makes mine, for so many ranks of this node. word: some number in my memory that stays as it is.
 * 0, or -errno: out of memory. */
int mdapl_seg_make(struct mdapl_seg *seg, int rank, int n_ranks, const uint64_t *word,
                   bool barrier);
/* Opens another's, of this rank of the job, and proves that it is what its card means. 0, or
 * -EHOSTUNREACH (it is something else), -ENOMEM, or the system's -errno. */
int mdapl_seg_open(struct mdapl_seg *seg, const char *ref, uint64_t token, int rank, int n_ranks);
void mdapl_seg_close(struct mdapl_seg *seg);
/* May this process make a segment of so many bytes? Its limit on the size of files counts for
 * segments as well, and answers with a signal. */
bool mdapl_seg_size_allowed(size_t bytes);

/* Takes the next door of another's. NULL: there is none left, or memory is out. */
struct mdapl_door *mdapl_seg_take_door(struct mdapl_seg *seg, uint32_t *index_p);
/* A door that has been taken; NULL: it has not. */
struct mdapl_door *mdapl_seg_door(const struct mdapl_seg *seg, uint32_t index);
/* MDAPL_CELLS of MDAPL_CELL_BYTES: the owner writes them. */
uint8_t *mdapl_seg_cells(const struct mdapl_seg *seg);

/* The MAC of `from` at a door of the segment with this token, whose owner is `to`. */
void mdapl_seg_mac(const struct mdapl_job *job, uint32_t from, uint32_t to, uint64_t token,
                   uint8_t mac[16]);

#endif
