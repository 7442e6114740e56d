/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_SHM_SEG_H
#define MDAPL_SHM_SEG_H
/*
 * The segment of one process, which the other processes of its node map.
 *
 *      head       its identity; the doorbells; whether it sleeps; the FIFO (fifo.h)
 *      inrings    (ring.h) one for each process that may send to it: the ranks of its job on this
 *                 node, in their order (near.c), and behind them guests (guest.c); their first
 *                 pieces
 *      cells      pieces of long bodies that it sends: it writes them, others read them
 *      inrings    the rest of them
 *
 * Pages are allocated as they are written, so the memory used grows with the number of peers
 * that send; but the owner allocates the first ones, with the FIFO, as the kernel maps all of them
 * with the head. Ranks of the job map it without the rest of the guests'
 * inrings. The more ranks a node has, the less data each inring has.
 *
 * Proof. A business card has a reference to the segment and the random token in its head. A process
 * that opens the reference and reads the token there shares memory with the card's owner. A rank of
 * the job is known by its inring; a guest writes a MAC under the key of its group into its entry.
 */
#include "fifo.h"
#include "node.h"
#include "os.h"
#include "ring.h"

#include <stdint.h>
#include <sys/types.h>

/* How a long body is copied, and the classes of lengths for which that is decided (judge.h). */
enum mdapl_shm_way {
    MDAPL_SHM_TWICE,             /* two copies in cells */
    MDAPL_SHM_ONCE,              /* one copy by the kernel (cma.c), made by the receiver */
    MDAPL_SHM_BOTH,              /* one copy by the kernel, each end a part of the body (split.c) */
    MDAPL_SHM_WAYS
};

enum {
    MDAPL_SHM_CLASSES = 12,
    MDAPL_SHM_CLASS_BYTES = 4096,    /* longest body of class 0 */
};

enum {
    MDAPL_SHM_DOORBELL_WORDS = 63,
    MDAPL_SHM_DOORBELL_FIFO = MDAPL_SHM_DOORBELL_WORDS,    /* the bit that is no word's */
    MDAPL_SHM_GUESTS = 64,
    MDAPL_SHM_INRINGS = /* of the job, at most; there is one for each rank of the node */
        64 * MDAPL_SHM_DOORBELL_WORDS - MDAPL_SHM_GUESTS,
    MDAPL_MAPPED = 1,
    MDAPL_CELLS = 64,
    MDAPL_CELL_BYTES = 32768,
    MDAPL_SEG_HEAD_BYTES = 65536, /* of the file: whole pages everywhere */
};

/* Who a guest is. */
struct mdapl_shm_hello {
    uint32_t group;
    uint32_t rank;           /* in that group */
    uint8_t mac[16];         /* guest.c */
    char card[MDAPL_SHM_CARD_BYTES]; /* node.h, of one that visits a port; else zeros */
};

/* The entry of a process of another job. */
struct mdapl_shm_guest {
    _Atomic uint32_t state;  /* guest.c; 0: it is free */
    struct mdapl_shm_hello hello;
};

/* The first fields do not change after the business card has been written, and the launcher's
 * exchange of cards publishes them. All others are atomic (doorbell.c, sleep.c). */
struct mdapl_shm_seg_head {
    uint32_t magic, version;
    uint64_t token;
    int32_t rank, pid;
    int32_t n_ranks;         /* of its node: that decides where everything is */
    uint32_t barrier;        /* the owner has barriers (os.h), so the others need no fences */
    uint64_t ranks;          /* a digest of those n_ranks: they decide whose each inring is */
    uint64_t word_at, word;  /* a word in the owner's memory, to test reads (cma.c) */
    /* What a doorbell needs, and a message in the FIFO: one line, if the inring is one of the first
     * 256. Of the doorbells, a bit for each word that has bits; there, a bit for each inring. */
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint64_t doorbell_words;
    _Atomic uint32_t asleep;         /* 1: a doorbell has to wake it */
    _Atomic int32_t waker_core;      /* of the rank that ended the last sleep; -1: none did */
    struct mdapl_shm_fifo_ends fifo_ends;
    _Atomic uint64_t doorbell[MDAPL_SHM_DOORBELL_WORDS];
    _Atomic int32_t writes;          /* 1 more than the rank whose FIFO the owner writes (fifo.h) */
    _Atomic uint32_t refuses;        /* inrings of some ranks have `refused` */
    alignas(2 * MDAPL_LINE_BYTES) struct mdapl_shm_fifo_slot fifo[MDAPL_FIFO_SLOTS];
    /* For barriers of the job's ranks (node_barrier.c): does the owner take part, and reach all of
     * them; how often ranks have entered one at this leaf, and leaves at this root; the last one
     * that was released; ranks that may sleep. */
    _Atomic uint32_t takes_part;
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint32_t arrived;
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint32_t leaves;
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint32_t released;
    _Atomic uint32_t sleepers;
    /* By index of the ranks of the node (near.c): MAPPED, or the -errno why its segment is not. */
    alignas(2 * MDAPL_LINE_BYTES) _Atomic int32_t verdict[MDAPL_SHM_INRINGS];
    struct mdapl_shm_guest guest[MDAPL_SHM_GUESTS];
    /* In the segment of the node's first rank, by class of length: how bodies are copied on this
     * node (decision.c), in one direction and in both, 1 more than enum mdapl_shm_way; 0: not
     * decided. */
    alignas(2 * MDAPL_LINE_BYTES) _Atomic uint32_t way[2][MDAPL_SHM_CLASSES];
    _Atomic uint32_t lap;    /* likewise: which laps of bodies in a ring are faster, 1 more */
    /* What the owner has brought into a barrier, and what came out of it, of a leaf. */
    alignas(2 * MDAPL_LINE_BYTES) uint32_t brought_len;
    alignas(16) uint8_t brought[MDAPL_REDUCE_BYTES];
    alignas(2 * MDAPL_LINE_BYTES) uint32_t result_len;
    alignas(16) uint8_t result[MDAPL_REDUCE_BYTES];
};

/* A mapped segment, mapped by one call: address space costs nothing, system calls do. */
struct mdapl_shm_seg {
    struct mdapl_shm_seg_head *head; /* NULL: it is not mapped */
    size_t bytes;            /* that are mapped */
    size_t cells_at, rests_at;   /* offsets */
    size_t inring_bytes;     /* of the rest of each inring, with its pair buffer */
    uint32_t first_guest;    /* index of the first inring for guests */
    int fd;                  /* own segment: the descriptor that others open; else -1 */
    char ref[MDAPL_SHM_REF_MAX];
};

/* Makes this process's segment, for n_ranks of its node. word: a number in its memory that does not
 * change, which others read to test cross-memory attach. 0, or -errno. */
int mdapl_shm_seg_make(struct mdapl_shm_seg *seg, int rank, int n_ranks, const uint64_t *word,
                       bool barrier);
/* Maps the segment of a rank and compares its token. rank: in its job; -1: not known. n_ranks: as
 * that of the own segment for a rank of the job, 0 for one of another group. 0, or -EHOSTUNREACH
 * (the segment there is another one), -ENOMEM, or the -errno of the system call. */
int mdapl_shm_seg_open(struct mdapl_shm_seg *seg, const char *ref, uint64_t token, int rank,
                       int n_ranks);
void mdapl_shm_seg_close(struct mdapl_shm_seg *seg);
/* May this process make a segment of so many bytes? RLIMIT_FSIZE limits segments, and a process
 * that exceeds it gets a signal. */
bool mdapl_shm_seg_size_allowed(size_t bytes);

/* Bytes of data in an inring of this segment. */
uint32_t mdapl_shm_seg_data_bytes(const struct mdapl_shm_seg *seg);
/* The pair buffer behind the data of such an inring; NULL: inrings are too small to have one. */
uint8_t *mdapl_shm_seg_pair(const struct mdapl_shm_seg *seg, const struct mdapl_shm_inring_at *in);
/* Allocates the memory of an inring. 0 or -errno. */
int mdapl_shm_seg_reserve_inring(const struct mdapl_shm_seg *seg, uint32_t index);
/* The inring of this index; NULL: there is none, or it is one for guests that none has claimed. */
struct mdapl_shm_inring_at mdapl_shm_seg_inring(const struct mdapl_shm_seg *seg, uint32_t index);
/* The cells: MDAPL_CELLS of MDAPL_CELL_BYTES. */
uint8_t *mdapl_shm_seg_cells(const struct mdapl_shm_seg *seg);

#endif
