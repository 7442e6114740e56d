/* SPDX-License-Identifier: MIT */
/*
 * daplsoft: shows the adapters of the software DAT provider on this host, and injects faults.
 *
 *   daplsoft list                        the IAs of dat.conf, and the IAs that processes have open
 *   daplsoft show  [TARGET]              ports, counters and connections of open IAs
 *   daplsoft cut   TARGET [PORT]         the path through a port goes down; without PORT, all
 *   daplsoft heal  TARGET [PORT]         the path is up again
 *   daplsoft break TARGET [PORT]         its connections break
 *   daplsoft migrate TARGET [PORT]       they move to their alternate path; if not armed, and made
 *                                        by this side, to the other port
 *   daplsoft fail  TARGET                the adapter fails permanently (IA catastrophic error)
 *
 * TARGET: PID, PID.K (the K-th IA of that process) or all. Adapters of another host or network
 * namespace are reached only from there. list reads the dat.conf that MPI jobs of this installation
 * use: DAT_OVERRIDE's, else etc/dat.conf under the prefix if there is one, else libdat2's own.
 */
#include "control.h"

#include <dat2/udat.h>
#include <dat2/dat_registry.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { MAX_IAS = 4096, MAX_LINES = 64, REPLY_TIMEOUT_S = 5 };

static struct ia {
    long pid;
    unsigned k;
} open_ia[MAX_IAS];
static int n_open;

static const char usage[] =
    "daplsoft list | show [TARGET] | cut TARGET [PORT] | heal TARGET [PORT] |\n"
    "         break TARGET [PORT] | migrate TARGET [PORT] | fail TARGET\n"
    "TARGET: PID, PID.K or all (see daplsoft list)\n";

/* Finds the open adapters by their control sockets (control.h), which the kernel lists by name. */
static void find_open(void)
{
    FILE *f = fopen("/proc/net/unix", "r");
    char line[512];

    while (f && fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, "@" SOFTDAT_CONTROL_PREFIX);
        struct ia ia;
        bool known = false;

        if (!at || sscanf(at + 1 + strlen(SOFTDAT_CONTROL_PREFIX), "%ld.%u", &ia.pid, &ia.k) != 2)
            continue;
        for (int i = 0; i < n_open; i++)
            known = known || (open_ia[i].pid == ia.pid && open_ia[i].k == ia.k);
        if (!known && n_open < MAX_IAS)
            open_ia[n_open++] = ia;
    }
    if (f)
        fclose(f);
}

/* Sends a command to one adapter and receives the reply, SOFTDAT_CONTROL_MAX bytes and a zero at
 * most. False, after a line on stderr: the adapter does not answer. */
static bool send_command(const struct ia *ia, const char *command, char *reply)
{
    struct timeval timeout = { .tv_sec = REPLY_TIMEOUT_S };
    struct sockaddr_un un;
    socklen_t len = softdat_control_name(&un, (pid_t)ia->pid, ia->k);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ssize_t n = -1;

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, (struct sockaddr *)&un, len) == 0
        && send(fd, command, strlen(command), MSG_NOSIGNAL) > 0)
        n = recv(fd, reply, SOFTDAT_CONTROL_MAX, 0);
    if (n <= 0)
        fprintf(stderr, "daplsoft: IA %ld.%u does not answer: %s. Is its process stopped, or "
                "another user's?\n", ia->pid, ia->k, n == 0 ? "it has ended" : strerror(errno));
    close(fd);
    reply[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* True if target is "all", or names the process or the adapter. */
static bool matches(const struct ia *ia, const char *target)
{
    long pid;
    unsigned k;
    int n = sscanf(target, "%ld.%u", &pid, &k);

    return strcmp(target, "all") == 0 || (n >= 1 && pid == ia->pid && (n == 1 || k == ia->k));
}

/* Returns the name of the program of a process, valid until the next call. */
static const char *program_of(long pid)
{
    static char name[64];
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    f = fopen(path, "r");
    if (!f || !fgets(name, sizeof(name), f))
        snprintf(name, sizeof(name), "?");
    name[strcspn(name, "\n")] = '\0';
    if (f)
        fclose(f);
    return name;
}

/* Sends a command to each adapter that matches target and prints the replies. Returns the exit
 * status. */
static int on_each(const char *command, const char *target)
{
    static char reply[SOFTDAT_CONTROL_MAX + 1];
    int done = 0, failed = 0;

    for (int i = 0; i < n_open; i++) {
        if (!matches(&open_ia[i], target))
            continue;
        done++;
        if (!send_command(&open_ia[i], command, reply)) {
            failed++;
            continue;
        }
        failed += strncmp(reply, "error:", 6) == 0;
        printf("%ld.%u (%s) %s", open_ia[i].pid, open_ia[i].k, program_of(open_ia[i].pid), reply);
    }
    if (done == 0 && strcmp(target, "all")) {
        fprintf(stderr, "daplsoft: no open IA %s on this host: daplsoft list shows what there is\n",
                target);
        return 1;
    }
    return failed > 0;
}

/* Lists up to max providers of dat.conf. libdat2 reads dat.conf when it is loaded, so it is loaded
 * after DAT_OVERRIDE has been set. False: libdat2 is missing or fails. */
static bool registry(DAT_COUNT max, DAT_COUNT *n_p, DAT_PROVIDER_INFO **info)
{
    DAT_RETURN (*list_providers)(DAT_COUNT, DAT_COUNT *, DAT_PROVIDER_INFO *[]);
    void *lib, *f;

    if (!getenv("DAT_OVERRIDE") && access(DAPLSOFT_DAT_CONF, R_OK) == 0)
        setenv("DAT_OVERRIDE", DAPLSOFT_DAT_CONF, 1);
    lib = dlopen("libdat2.so.2", RTLD_NOW | RTLD_GLOBAL);
    f = lib ? dlsym(lib, "dat_registry_list_providers") : NULL;
    if (!f) {
        fprintf(stderr, "daplsoft: uDAPL is not installed here: %s. Install the package libdapl2 "
                "(Debian; dapl elsewhere)\n", dlerror());
        return false;
    }
    memcpy(&list_providers, &f, sizeof(f));
    return list_providers(max, n_p, info) == DAT_SUCCESS;
}

static int list(void)
{
    DAT_PROVIDER_INFO info[MAX_LINES], *at[MAX_LINES];
    DAT_COUNT n = 0;

    for (int i = 0; i < MAX_LINES; i++)
        at[i] = &info[i];
    if (registry(MAX_LINES, &n, at))
        for (DAT_COUNT i = 0; i < n; i++)
            printf("dat.conf: %s (uDAPL %u.%u)\n", info[i].ia_name, info[i].dapl_version_major,
                   info[i].dapl_version_minor);
    for (int i = 0; i < n_open; i++)
        printf("open: %ld.%u (%s)\n", open_ia[i].pid, open_ia[i].k, program_of(open_ia[i].pid));
    if (n == 0)
        printf("dat.conf: no IA\n");
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const commands[] = { "show", "cut", "heal", "break", "migrate",
                                            "fail" };
    const char *word = argc > 1 ? argv[1] : "", *target = argc > 2 ? argv[2] : NULL;
    char command[64];

    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    find_open();
    if (strcmp(word, "list") == 0 && argc == 2)
        return list();
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i], word) || argc > 4 || (i > 0 && !target))
            continue;
        snprintf(command, sizeof(command), "%s %s", word, argc > 3 ? argv[3] : "");
        return on_each(command, target ? target : "all");
    }
    fputs(usage, stderr);
    return 2;
}
