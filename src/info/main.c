/* SPDX-License-Identifier: MIT */
/*
 * mpich-dapl-info: what MPI jobs of this host can use. The IAs that dat.conf names: which open,
 * their attributes and limits, and of the others the reason; the limit on locked memory; the verbs
 * devices of the kernel, with lines of dat.conf for them.
 *
 *   mpich-dapl-info [--sysfs=DIR] [--libdir=DIR]        in place of /sys and the installation's lib
 */
#include "info.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { LITTLE_MIB = 64 };        /* so little locked memory is a common default */

static const char usage[] =
    "mpich-dapl-info [--sysfs=DIR] [--libdir=DIR]: the IAs of dat.conf that MPI jobs of this host\n"
    "can use, and lines of dat.conf for its verbs devices. Status 0: at least one IA opens.\n";

static void memory_lock(void)
{
    struct rlimit limit;
    unsigned long long mib;

    if (getrlimit(RLIMIT_MEMLOCK, &limit))
        return;
    mib = (unsigned long long)(limit.rlim_cur >> 20);
    if (limit.rlim_cur == RLIM_INFINITY)
        printf("memory lock limit: none\n");
    else if (mib >= LITTLE_MIB)
        printf("memory lock limit: %llu MiB\n", mib);
    else
        printf("memory lock limit: %llu MiB; adapters lock the memory that they transfer: raise it "
               "(ulimit -l, /etc/security/limits.conf; in a service LimitMEMLOCK=)\n", mib);
}

int main(int argc, char **argv)
{
    const char *sysfs = "/sys", *libdir = INFO_LIBDIR;
    int opened;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        if (strncmp(argv[i], "--sysfs=", 8) == 0) {
            sysfs = argv[i] + 8;
        } else if (strncmp(argv[i], "--libdir=", 9) == 0) {
            libdir = argv[i] + 9;
        } else {
            fputs(usage, stderr);
            return 2;
        }
    }
    opened = info_ias(INFO_DAT_CONF);
    memory_lock();
    info_verbs(sysfs, libdir);
    return opened > 0 ? 0 : 1;
}
