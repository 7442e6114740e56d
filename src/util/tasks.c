/* SPDX-License-Identifier: MIT */
#include "tasks.h"

#include <stddef.h>
#include <stdlib.h>

static const char use_mpiexec[] = "Start the job with this MPI's mpiexec";

/* A launcher: its variables of the number of tasks, which may be NULL, and of the task's own
 * number, which begins with 0. */
struct row {
    const char *size, *rank;
    const char *launcher, *remedy;
};

static const struct row with_pmi = {
    "PMI_SIZE", "PMI_RANK", "a launcher with PMI", use_mpiexec
};

/* The inner launcher first, where one may have been started by the other. PMIx is a part of some
 * of them, which know more about the remedy. */
static const struct row without_pmi[] = {
    { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun", use_mpiexec },
    { "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun",
      "Start the job with srun --mpi=pmi2, or with this MPI's mpiexec" },
    { "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "flux run",
      "Start the job with flux run -o pmi=simple, or with this MPI's mpiexec" },
    { "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "jsrun", use_mpiexec },
    { NULL, "PALS_RANKID", "a launcher with PALS", use_mpiexec },
    { NULL, "ALPS_APP_PE", "aprun", use_mpiexec },
    { NULL, "PMIX_RANK", "a launcher with PMIx", use_mpiexec },
};

/* The variable's value; 0 if it has none or is no number. */
static int number(char *(*get)(const char *name), const char *name)
{
    const char *text = get(name);

    return text ? atoi(text) : 0;
}

static bool several(const struct row *row, char *(*get)(const char *name),
                    struct mdapl_tasks *tasks)
{
    int rank = number(get, row->rank);

    if (row->size ? number(get, row->size) <= 1 : rank <= 0)
        return false;
    tasks->name = row->size ? row->size : row->rank;
    tasks->value = get(tasks->name);
    tasks->launcher = row->launcher;
    tasks->remedy = row->remedy;
    tasks->rank = rank;
    return true;
}

bool mdapl_tasks_several(char *(*get)(const char *name), struct mdapl_tasks *tasks)
{
    /* The variables of other launchers remain in the environment of a job that mpiexec starts. */
    if (get("PMI_SIZE") || get("PMI_FD") || get("PMI_PORT"))
        return several(&with_pmi, get, tasks);
    for (size_t i = 0; i < sizeof(without_pmi) / sizeof(without_pmi[0]); i++)
        if (several(&without_pmi[i], get, tasks))
            return true;
    return false;
}
