/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TEST_SHM_RANKS_H
#define MDAPL_TEST_SHM_RANKS_H
/*
 * Ranks of the shm channel in one process, where the test calls progress of each: for behaviour
 * that depends on which rank makes progress when. The clock is the test's.
 */
#include "unit.h"

#include "cfg.h"
#include "channel.h"
#include "err.h"
#include "peer.h"
#include "shm.h"
#include "stats.h"
#include "transport.h"

enum { MANY = MDAPL_SHM_POLLED + 4, KEEP = 4096, LONG = 300000, MIB = 1 << 20 };

/* A message that has been announced to a rank. */
struct announced {
    uint32_t number;
    size_t len;
    struct mdapl_rx *rx;         /* NULL: it was here, and has been copied into sink */
};

struct rank {
    struct mdapl_ctx *ctx;
    struct mdapl_shm_chan *s;    /* the inside of its channel */
    struct mdapl_peer *other;
    struct announced announced[KEEP];
    int n_announced;
    enum mdapl_next next;
    char fault[512];
    int n_faults;
    char card[MANY][MDAPL_CARD_MAX];
};

/* Two ranks in nearly all tests. */
struct pair {
    int n, size;                 /* ranks here; of the job, 0: these are all */
    bool (*near)(void *owner, int rank);  /* as the job's */
    struct rank rank[MANY];
    uint64_t now;
};

struct sending {
    struct mdapl_op op;
    int done, status;
};

/* Where bodies come from, and where they are read to. */
extern char source[MIB], sink[MIB];

/* The owner's answer to a message; ranks_on_msg() records it, and reads what is here. */
typedef enum mdapl_next ranks_msg_fn(void *owner, struct mdapl_peer *peer,
                                     const struct mdapl_rx_msg *m);
ranks_msg_fn ranks_on_msg;
extern ranks_msg_fn *on_message;

/* What other threads of a rank and other ranks do while it sleeps: called at the beginning, after
 * all that the rank does before. NULL: nothing. */
extern void (*ranks_asleep)(struct rank *me);

/* The knob shm_single_bytes of the ranks that are opened from now on. */
extern const char *ranks_single_bytes;
/* The rank that does not enter barriers, of those that are opened from now on; -1: none. */
extern int ranks_without_barrier;
/* Opens one rank of p->n, which keeps its card in its own list. */
void ranks_open(struct pair *p, int rank);
/* Opens all of them, which then know the cards of all. */
void ranks_open_all(struct pair *p);
/* A test's setup for so many ranks that reach each other, and its teardown. `other` is rank 0, and
 * for rank 0 it is rank 1. */
int ranks_make(void **state, int n);
int ranks_make_two(void **state);
int ranks_make_many(void **state);
int ranks_unmake(void **state);

/* As mdapl_rx_read(), of a body from `other`; if the read waits its turn comes at once, as in the
 * round of progress that has announced the body. */
int ranks_read(struct rank *me, struct mdapl_rx *rx, const struct iovec *v, int n,
               struct mdapl_op *op);
/* Has all messages to `other` in its inring, also the first ones (fifo.c). */
void ranks_use_ring(struct rank *me);
/* An op->done for struct sending. */
void ranks_done(struct mdapl_op *op, int status);
/* Sends len bytes of source under this number; send_now: without an op. As mdapl_send(). */
int send_to(struct rank *me, int to, uint32_t number, size_t len, struct mdapl_op *op);
int send_op(struct rank *me, uint32_t number, size_t len, bool synchronous, struct mdapl_op *op);
int send_now(struct rank *me, uint32_t number, size_t len);
/* The longest body that goes to `other` through the ring, which has less room on some systems. */
size_t longest_in_ring(const struct rank *me);
/* Fills len bytes of source, by a seed, and clears sink. */
void fill_source(size_t len, uint32_t seed);
/* What the last message announced has to be fetched by; NULL: nothing. */
struct mdapl_rx *last_rx(const struct rank *me);
/* n rounds of progress. */
void rounds(struct rank *me, int n);
const struct mdapl_stats *stats(const struct rank *me);
/* Does this system let a process read another's memory? */
bool memory_can_be_read(void);

#define TEST(f) cmocka_unit_test_setup_teardown(f, ranks_make_two, ranks_unmake)

#endif
