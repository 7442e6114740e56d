/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_JUDGE_H
#define SOFTDAT_JUDGE_H
/*
 * Which way of long RDMA is the faster here, by the requests themselves: two copies through a
 * ring, which overlap, or one by the kernel. No copy is made to measure: a few requests of each
 * length try the other way, and from then on the faster one is used. It is judged again at growing
 * intervals, and at once if the way in use has become slower than the other one was. A wrong
 * judgement, or a machine that changes, costs a few requests.
 *
 * A cost is the time of a byte. Disturbances only add time, so a cost falls to each lower sample at
 * once, and a higher one raises it by 1/8 at most. A completion that is noticed late makes the time
 * of the next one seem shorter, so a cost is that of two samples in a row. Lengths are judged in
 * classes: up to 16 KiB, 32 KiB, ... 4 MiB, and longer ones. The caller gives the times, so a test
 * has virtual ones.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum softdat_way { SOFTDAT_WAY_RING, SOFTDAT_WAY_DIRECT, SOFTDAT_WAYS };

enum {
    SOFTDAT_JUDGE_CLASSES = 10,
    SOFTDAT_JUDGE_FROM = 1 << 14,    /* longest request of class 0, bytes */
};

struct softdat_judged {
    uint32_t cost[SOFTDAT_WAYS]; /* ns for 1 MiB; 0: not measured */
    uint32_t left, gap;          /* requests until the next trial; between the last two trials */
    uint8_t way;                 /* in use; a trial is of the other one */
    uint8_t trial;               /* requests that the trial still takes; 0: no trial */
    uint8_t samples;             /* of the last trial, up to ENOUGH (judge.c) */
    uint8_t last;                /* way of the last sample */
    uint64_t last_bytes, last_ns;    /* its bytes and time */
};

struct softdat_judge {
    struct softdat_judged c[SOFTDAT_JUDGE_CLASSES];
};

void softdat_judge_init(struct softdat_judge *j);
/* The class of a length in bytes. */
unsigned softdat_judge_class(uint64_t len);
/* The way of the next request of class c. */
enum softdat_way softdat_judge_choose(struct softdat_judge *j, unsigned c);
/* So many bytes of requests of class c took ns that way. */
void softdat_judge_sample(struct softdat_judge *j, unsigned c, enum softdat_way way,
                          uint64_t bytes, uint64_t ns);

#endif
