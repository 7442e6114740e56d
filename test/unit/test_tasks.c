/* SPDX-License-Identifier: MIT */
/* What the environment says of tasks that were started together: every launcher's variables. */
#include "unit.h"

#include "tasks.h"

#include <string.h>

enum { MAX = 6 };

/* An environment: NAME=VALUE each. */
static const char *const *now;

static char *get(const char *name)
{
    size_t n = strlen(name);

    for (int i = 0; i < MAX && now[i]; i++)
        if (strncmp(now[i], name, n) == 0 && now[i][n] == '=')
            return (char *)now[i] + n + 1;
    return NULL;
}

/* env, and what follows from it: the variable that says so, NULL if none does; part of the remedy;
 * the rank. */
static const struct { const char *env[MAX], *name, *remedy; int rank; } rows[] = {
    { { NULL }, NULL, NULL, 0 },
    { { "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=2" }, "SLURM_STEP_NUM_TASKS", "--mpi=pmi2", 2 },
    { { "SLURM_STEP_NUM_TASKS=4" }, "SLURM_STEP_NUM_TASKS", "--mpi=pmi2", 0 },
    { { "SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0" }, NULL, NULL, 0 },
    /* an allocation of four tasks in which a program is started without srun */
    { { "SLURM_NTASKS=4", "SLURM_JOB_ID=7" }, NULL, NULL, 0 },
    { { "SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_JOB_ID=7" }, NULL, NULL, 0 },
    /* mpiexec of Open MPI, by itself and on daemons that srun has started */
    { { "OMPI_COMM_WORLD_SIZE=3", "OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=1" },
      "OMPI_COMM_WORLD_SIZE", "mpiexec", 1 },
    { { "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1", "OMPI_COMM_WORLD_SIZE=8",
        "OMPI_COMM_WORLD_RANK=7" }, "OMPI_COMM_WORLD_SIZE", "mpiexec", 7 },
    { { "OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0", "PMIX_RANK=0" }, NULL, NULL, 0 },
    /* srun --mpi=pmix: the name of srun */
    { { "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=0", "PMIX_RANK=0" },
      "SLURM_STEP_NUM_TASKS", "--mpi=pmi2", 0 },
    { { "FLUX_JOB_SIZE=2", "FLUX_TASK_RANK=1" }, "FLUX_JOB_SIZE", "pmi=simple", 1 },
    { { "JSM_NAMESPACE_SIZE=2", "JSM_NAMESPACE_RANK=1" }, "JSM_NAMESPACE_SIZE", "mpiexec", 1 },
    /* no variable has the number of tasks: all but the first are sure that there are several */
    { { "PMIX_RANK=0", "PMIX_NAMESPACE=a" }, NULL, NULL, 0 },
    { { "PMIX_RANK=3", "PMIX_NAMESPACE=a" }, "PMIX_RANK", "mpiexec", 3 },
    { { "PALS_RANKID=5" }, "PALS_RANKID", "mpiexec", 5 },
    { { "ALPS_APP_PE=1" }, "ALPS_APP_PE", "mpiexec", 1 },
    /* PMI: what it says decides; a job of one rank that mpiexec has started on one of four tasks */
    { { "PMI_FD=5", "PMI_SIZE=1", "PMI_RANK=0", "SLURM_STEP_NUM_TASKS=4" }, NULL, NULL, 0 },
    { { "PMI_PORT=h:1", "PMI_ID=0", "SLURM_STEP_NUM_TASKS=4" }, NULL, NULL, 0 },
    /* ... and one that this MPI was not built for */
    { { "PMI_SIZE=4", "PMI_RANK=3" }, "PMI_SIZE", "mpiexec", 3 },
    /* no numbers */
    { { "SLURM_STEP_NUM_TASKS=", "PMIX_RANK=x", "OMPI_COMM_WORLD_SIZE=-4" }, NULL, NULL, 0 },
};

static void every_environment(void **state)
{
    struct mdapl_tasks tasks;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(&tasks, 0, sizeof(tasks));
        now = rows[i].env;
        assert_int_equal(mdapl_tasks_several(get, &tasks), rows[i].name != NULL);
        if (!rows[i].name)
            continue;
        assert_string_equal(tasks.name, rows[i].name);
        assert_string_equal(tasks.value, get(rows[i].name));
        assert_int_equal(tasks.rank, rows[i].rank);
        assert_non_null(tasks.launcher);
        assert_non_null(strstr(tasks.remedy, rows[i].remedy));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_environment),
    };

    return RUN(tests);
}
