/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_TASKS_H
#define MDAPL_TASKS_H
/*
 * What the environment says of the tasks that a launcher has started together. Where its PMI is
 * not the one that this MPI uses, or it has none, each task becomes a job of one rank, and nothing
 * but these variables shows that they were meant to be one job.
 */
#include <stdbool.h>

struct mdapl_tasks {
    const char *name, *value;    /* the variable that says so, and its text */
    const char *launcher;        /* what sets it */
    const char *remedy;          /* how its tasks become one job, as in "Start them with ..." */
    int rank;                    /* of this task; 0 where that is not known */
};

/*
 * For a process whose PMI is that of a job of one rank: whether its launcher has started several
 * tasks. False where a launcher with PMI has started one. get: as getenv(); its texts must remain
 * valid as long as *tasks. *tasks is set where the answer is true.
 */
bool mdapl_tasks_several(char *(*get)(const char *name), struct mdapl_tasks *tasks);

#endif
