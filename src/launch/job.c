/* SPDX-License-Identifier: MIT */
#include "launch.h"
#include "err.h"

#include "mpidimpl.h"

#include <errno.h>
#include <sys/random.h>

enum { JOB_BYTES = sizeof(struct mdapl_launch_job) };

static const char job_key_name[] = "dapl-job";

/* Rank 0 generates the job's id and key. Only the launcher distributes them, never arguments or the
 * environment: a process that has the key can connect as a rank. */
int mdapl_launch_make_job(struct mdapl_launch_job *job, struct mdapl_err *err)
{
    if (getrandom(job, JOB_BYTES, 0) != JOB_BYTES)
        return mdapl_err_set(err, -errno, "the system gives no random numbers for the job's key: "
                             "getrandom: %s. Allow the system call", strerror(errno));
    job->id |= 1;                /* an id of 0 is none */
    return 0;
}

int mdapl_launch_put_job(struct mdapl_err *err)
{
    struct mdapl_launch_job job;
    char hex[2 * JOB_BYTES + 1];

    if (mdapl_launch_make_job(&job, err))
        return -EIO;
    for (int i = 0; i < JOB_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)&job)[i]);
    if (MPIR_pmi_kvs_put(job_key_name, hex) != MPI_SUCCESS)
        return mdapl_err_set(err, -EIO, "the launcher does not take the job's key; check the "
                             "launcher");
    return 0;
}

int mdapl_launch_get_job(struct mdapl_launch_job *job)
{
    char hex[2 * JOB_BYTES + 1];

    if (MPIR_pmi_kvs_get(0, job_key_name, hex, sizeof(hex)) != MPI_SUCCESS)
        return -EIO;
    for (int i = 0; i < JOB_BYTES; i++)
        if (sscanf(hex + 2 * i, "%2hhx", (unsigned char *)job + i) != 1)
            return -EIO;
    return 0;
}
