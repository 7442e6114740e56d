/* SPDX-License-Identifier: MIT */
#include "launch.h"
#include "cfg.h"
#include "err.h"
#include "log.h"
#include "stats.h"
#include "tasks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PIPE_READ_MS = 5000 };    /* how long a line waits for a launcher that does not read it */

/* The variable of the environment for tasks that are meant to be jobs of one rank each. */
static const char alone_name[] = "MPICH_DAPL_SINGLETON";

/* Returns when the launcher has read what is in the pipe of stderr, or after PIPE_READ_MS. */
static void wait_until_read(void)
{
    const struct timespec pause = { 0, 1000 * 1000 };
    int unread = 0;

    for (int ms = 0; ms < PIPE_READ_MS; ms++) {
        if (ioctl(STDERR_FILENO, FIONREAD, &unread) || unread <= 0)
            return;
        nanosleep(&pause, NULL);
    }
}

void mdapl_launch_print(int rank, const char *text)
{
    const struct timespec moment = { 0, 100 * 1000 * 1000 };
    struct mdapl_log log = { .rank = rank, .host = "?" };

    gethostname(log.host, sizeof(log.host) - 1);
    mdapl_log_write(&log, "%s", text);
    if (!isatty(STDERR_FILENO))
        wait_until_read();
    nanosleep(&moment, NULL);
}

/* One write for the whole text, so that the ranks' texts do not interleave. */
void mdapl_launch_summary(const struct mdapl_cfg *cfg, const struct mdapl_stats *counters,
                          int rank)
{
    char text[4096], host[64] = "?";
    size_t n;

    if (cfg->summary == MDAPL_SUMMARY_OFF || (cfg->summary == MDAPL_SUMMARY_FIRST && rank != 0))
        return;
    gethostname(host, sizeof(host) - 1);
    n = (size_t)snprintf(text, sizeof(text), "[rank %d %s] " MDAPL_DEVICE ", what was done:\n",
                         rank, host);
    mdapl_stats_print(counters, text + n, sizeof(text) - n);
    if (!text[n])
        snprintf(text + n, sizeof(text) - n, "no message\n");
    fputs(text, stderr);
}

void mdapl_launch_dat_environment(const struct mdapl_cfg *cfg)
{
    const char *file = *cfg->dat_conf ? cfg->dat_conf : MDAPL_DAT_CONF;

    if (!getenv("DAT_OVERRIDE") && (*cfg->dat_conf || access(file, R_OK) == 0))
        setenv("DAT_OVERRIDE", file, 1);
    /* They print on the program's stdout, and what the program should know it has from the calls */
    setenv("DAPL_DBG_TYPE", "0", 0);
}

/*
 * A job of one rank has no messages to send and needs no adapter. But several tasks that a launcher
 * has started together, without this MPI's PMI, would be as many such jobs, write to the same files
 * and get results of no meaning. Programs that are meant to run so are rarer, and can say it.
 */
int mdapl_launch_alone(struct mdapl_err *err, int *task_p)
{
    struct mdapl_tasks tasks;

    if (getenv(alone_name) || !mdapl_tasks_several(getenv, &tasks))
        return 0;
    *task_p = tasks.rank;
    return mdapl_err_set(err, -EINVAL, "%s=%s: %s has started several tasks, but without a PMI "
                         "that this MPI has, so that each would be a job of one rank. %s; or, "
                         "where that is meant, set %s=1", tasks.name, tasks.value, tasks.launcher,
                         tasks.remedy, alone_name);
}
