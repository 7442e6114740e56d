/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_LAUNCH_H
#define MDAPL_LAUNCH_H
/*
 * What a device does with the launcher and the user around MPI_Init and MPI_Finalize, whichever
 * core of MPICH it is for (src/mpid: CH3, src/ch4). It sees MPICH's headers, but neither core's.
 *
 *      job.c        the job's id and key
 *      barrier.c    the launcher's barrier, while a rank makes progress
 *      user.c       lines and tables on stderr, dat.conf, tasks that are no job
 */
#include "contract.h"

struct mdapl_cfg;
struct mdapl_err;
struct mdapl_stats;

/* The id of a job and its key. */
struct mdapl_launch_job {
    uint32_t id;
    uint8_t key[MDAPL_KEY_BYTES];
};

/* job.c */
/* Generates id and key. 0, or a negative errno with the line in err. */
int mdapl_launch_make_job(struct mdapl_launch_job *job, struct mdapl_err *err);
/* On rank 0, in MPI_Init: generates id and key and publishes them. As above. */
int mdapl_launch_put_job(struct mdapl_err *err);
/* After the launcher's next barrier: reads them. 0 or -EIO. */
int mdapl_launch_get_job(struct mdapl_launch_job *job);

/* barrier.c */
/* Returns when all ranks have entered the launcher's barrier: 0, or -EIO. Until then it calls
 * meanwhile(arg) again and again, which returns > 0: it has made progress, 0: it has not, or a
 * negative errno, which ends the wait and is returned. */
int mdapl_launch_barrier(int (*meanwhile)(void *arg), void *arg);

/* user.c */
/*
 * Prints a line to stderr, preceded by rank, host and process id. For faults that end the job: an
 * error that MPI prints may be lost, because a launcher that ends a job discards the output that it
 * has not read yet. So this function returns when the launcher has read the line (5 s at most) and
 * 0.1 s later, in which other ranks print theirs.
 */
void mdapl_launch_print(int rank, const char *text);
/* Prints the counters as the knob SUMMARY wants it. */
void mdapl_launch_summary(const struct mdapl_cfg *cfg, const struct mdapl_stats *counters,
                          int rank);
/* Sets what the user has not set of libdat2's environment and its providers': the dat.conf of this
 * installation, and that Debian's providers print nothing of their own. */
void mdapl_launch_dat_environment(const struct mdapl_cfg *cfg);
/* In a job of one rank: 0, or -EINVAL with the line in err and the task's number, if it is one of
 * several tasks that a launcher has started together, without this MPI's PMI. */
int mdapl_launch_alone(struct mdapl_err *err, int *task_p);

#endif
