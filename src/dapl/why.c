/* SPDX-License-Identifier: MIT */
#include "why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int cause;
    const char *remedy;
} remedies[] = {
    { EMFILE, "Raise this process's limit on open files (ulimit -n)" },
    { ENFILE, "Raise the system's limit on open files (fs.file-max)" },
    { EAGAIN, "Raise the limit on processes and threads (ulimit -u, pids.max of the cgroup)" },
    { ENOMEM, "Free memory, or raise the limit on it (ulimit -v, memory.max of the cgroup), or "
              "that on locked memory (ulimit -l), which adapters need" },
    { EPERM, "A security policy (seccomp, LSM) denies a system call: allow it" },
    { EACCES, "A security policy (seccomp, LSM) denies a system call: allow it" },
    { ENOSYS, "A system call is missing here or denied by seccomp: allow it" },
    { EADDRNOTAVAIL, "Bring up a network interface with an IPv4 address, or give the line in "
                     "dat.conf an address that this host has (addr=)" },
    { ENODEV, "Give its line in dat.conf an address or an interface of an adapter: mpich-dapl-info "
              "proposes lines" },
    { EAFNOSUPPORT, "Bring up a network interface with an IPv4 address" },
};

static bool system_refused(DAT_RETURN ret)
{
    return DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_INSUFFICIENT_RESOURCES)
           || DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_INTERNAL_ERROR);
}

const char *mdapl_dapl_why(const struct mdapl_dapl_ia *ia, DAT_RETURN ret, char buf[MDAPL_WHY])
{
    int cause = errno;
    char status[96];

    mdapl_dapl_dat_text(ia, ret, status);
    if (DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_PROVIDER_NOT_FOUND))
        snprintf(buf, MDAPL_WHY, "its provider library cannot be loaded");
    else if (cause && system_refused(ret))
        snprintf(buf, MDAPL_WHY, "%s (%s)", status, strerror(cause));
    else
        snprintf(buf, MDAPL_WHY, "%s", status);
    errno = cause;
    return buf;
}

const char *mdapl_dapl_why_remedy(int cause)
{
    for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++)
        if (remedies[i].cause == cause)
            return remedies[i].remedy;
    return "Check its line in dat.conf, the provider library in that line and the adapter itself";
}
