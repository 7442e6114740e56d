/* SPDX-License-Identifier: MIT */
/*
 * Every IA is opened in a child: a provider may crash, may not return, and prints what it likes.
 * libdat2 reads dat.conf as it is loaded, and providers change the process that they are loaded
 * into, so the parent loads it for the names alone.
 */
#include "info.h"

#include <dat2/udat.h>
#include <dat2/dat_registry.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_IAS = 1024,
    OPEN_LIMIT_S = 10,           /* for a provider to open one IA and to be queried */
};

struct dat {
    __typeof__(&dat_registry_list_providers) list;
    __typeof__(&dat_strerror) text;
    __typeof__(&dat_ia_openv) open;
    __typeof__(&dat_ia_query) query;
    __typeof__(&dat_ia_close) close;
};

/* Loads libdat2. False, after a line that says what is missing. */
static bool load(struct dat *dat)
{
    const struct {
        const char *name;
        void *at;
    } call[] = {
        { "dat_registry_list_providers", &dat->list }, { "dat_strerror", &dat->text },
        { "dat_ia_openv", &dat->open },                { "dat_ia_query", &dat->query },
        { "dat_ia_close", &dat->close },
    };
    void *lib = dlopen("libdat2.so.2", RTLD_NOW | RTLD_GLOBAL);

    for (size_t i = 0; i < sizeof(call) / sizeof(call[0]); i++) {
        void *f = lib ? dlsym(lib, call[i].name) : NULL;

        if (!f) {
            printf("uDAPL is not installed here: %s. Install the package libdapl2 (Debian; dapl "
                   "elsewhere)\n", dlerror());
            return false;
        }
        memcpy(call[i].at, &f, sizeof(f));
    }
    return true;
}

/* -- in the child ------------------------------------------------------------------------------ */

static void say_address(DAT_IA_ADDRESS_PTR address)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = { .any = *(const struct sockaddr *)address };
    char text[INET6_ADDRSTRLEN] = "unknown";

    if (a.any.sa_family == AF_INET6) {
        memcpy(&a.v6, address, sizeof(a.v6));
        inet_ntop(AF_INET6, &a.v6.sin6_addr, text, sizeof(text));
    } else {
        inet_ntop(AF_INET, &a.v4.sin_addr, text, sizeof(text));
    }
    printf("    address            %s\n", text);
}

static void say_named(const char *what, const DAT_NAMED_ATTR *attr, DAT_COUNT n)
{
    for (DAT_COUNT i = 0; attr && i < n; i++)
        if (attr[i].name)
            printf("    %-18s %s = %s\n", i == 0 ? what : "", attr[i].name,
                   attr[i].value ? attr[i].value : "");
}

static void say_attributes(const DAT_IA_ATTR *a, const DAT_PROVIDER_ATTR *p)
{
    printf("    provider           %.*s %u.%u\n", (int)sizeof(p->provider_name), p->provider_name,
           (unsigned)p->provider_version_major, (unsigned)p->provider_version_minor);
    printf("    adapter            %.*s %.*s\n", (int)sizeof(a->vendor_name), a->vendor_name,
           (int)sizeof(a->adapter_name), a->adapter_name);
    if (a->ia_address_ptr)
        say_address(a->ia_address_ptr);
    printf("    endpoints          %d, each %d transfers, %d RDMA reads out and %d in\n",
           a->max_eps, a->max_dto_per_ep, a->max_rdma_read_per_ep_out, a->max_rdma_read_per_ep_in);
    printf("    events             %d dispatchers of %d\n", a->max_evds, a->max_evd_qlen);
    printf("    registrations      %d of up to %llu bytes\n", a->max_lmrs,
           (unsigned long long)a->max_lmr_block_size);
    printf("    transfers          sends of up to %llu bytes, RDMA of %llu\n",
           (unsigned long long)a->max_message_size, (unsigned long long)a->max_rdma_size);
    printf("    private data       %d bytes%s\n", p->max_private_data_size,
           p->max_private_data_size < 56 ? ": ch3:dapl needs 56" : "");
    say_named("named attributes", a->transport_attr, a->num_transport_attr);
    say_named("named attributes", a->vendor_attr, a->num_vendor_attr);
}

/* The rest of the line of an IA that does not open. cause: errno, which says more than some
 * statuses of DAT's, or 0. */
static void say_refused(const struct dat *dat, DAT_RETURN ret, int cause)
{
    const char *major = "an unknown status", *minor = "", *more = cause ? strerror(cause) : "";

    dat->text(ret, &major, &minor);
    if (DAT_GET_TYPE(ret) == DAT_GET_TYPE(DAT_PROVIDER_NOT_FOUND))
        more = "the library of its line cannot be loaded, or has no such device";
    printf("does not open: %s%s%s%s%s%s\n", major, minor && *minor ? ", " : "", minor ? minor : "",
           *more ? " (" : "", more, *more ? ")" : "");
}

/* Opens one IA and prints the rest of its line, and the lines of its attributes. Never returns. */
static void describe(const char *name)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_PROVIDER_ATTR provider;
    DAT_IA_HANDLE ia;
    DAT_IA_ATTR attr;
    struct dat dat;
    DAT_RETURN ret;

    if (!load(&dat))
        exit(1);
    errno = 0;
    ret = dat.open((char *)(uintptr_t)name, 8, &async, &ia, DAT_VERSION_MAJOR, DAT_VERSION_MINOR,
                   DAT_FALSE);
    if (ret != DAT_SUCCESS) {
        say_refused(&dat, ret, errno);
        exit(1);
    }
    memset(&attr, 0, sizeof(attr));
    memset(&provider, 0, sizeof(provider));
    ret = dat.query(ia, NULL, DAT_IA_FIELD_ALL, &attr, DAT_PROVIDER_FIELD_ALL, &provider);
    printf("opens\n");
    if (ret == DAT_SUCCESS)
        say_attributes(&attr, &provider);
    fflush(stdout);
    dat.close(ia, DAT_CLOSE_ABRUPT_FLAG);
    exit(0);
}

/* -- in the parent ----------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Prints what arrives on fd until its end. False: the time is over before. */
static bool copy_out(int fd)
{
    int64_t until = now_ms() + OPEN_LIMIT_S * 1000;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char buf[4096];

    for (;;) {
        int64_t left = until - now_ms();
        ssize_t n;

        if (left <= 0 || poll(&p, 1, (int)left) == 0)
            return false;
        n = read(fd, buf, sizeof(buf));
        if (n > 0)
            fwrite(buf, 1, (size_t)n, stdout);
        else if (n == 0 || errno != EINTR)
            return true;
    }
}

/* The child prints into the pipe; what libraries print goes nowhere. */
static void child(const char *name, int pipe_end)
{
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    FILE *out = fdopen(pipe_end, "w");

    if (!out || nowhere < 0)
        exit(1);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    stdout = out;
    setenv("DAPL_DBG_TYPE", "0", 0);
    describe(name);
}

/* Prints what one IA is. True: it opens. */
static bool one_ia(const char *name)
{
    int end[2], status = 0;
    bool in_time;
    pid_t pid;

    printf("IA %s: ", name);
    fflush(stdout);
    if (pipe(end) || (pid = fork()) < 0) {
        printf("%s\n", strerror(errno));
        return false;
    }
    if (pid == 0) {
        close(end[0]);
        child(name, end[1]);
    }
    close(end[1]);
    in_time = copy_out(end[0]);
    close(end[0]);
    if (!in_time)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!in_time)
        printf("does not open: its provider has not answered for %d s\n", OPEN_LIMIT_S);
    else if (WIFSIGNALED(status))
        printf("does not open: its provider crashed (%s)\n", strsignal(WTERMSIG(status)));
    return in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Selects dat.conf as MPI jobs do, and says which it is and why. */
static void select_conf(const char *default_conf)
{
    const char *knob = getenv("MPIR_CVAR_DAPL_DAT_CONF"), *override = getenv("DAT_OVERRIDE");
    const char *why = "libdat2's own", *file = "/etc/dat.conf";

    if (override) {
        file = override;
        why = "DAT_OVERRIDE";
    } else if (knob && *knob) {
        file = knob;
        why = "MPIR_CVAR_DAPL_DAT_CONF";
    } else if (access(default_conf, R_OK) == 0) {
        file = default_conf;
        why = "of this installation; DAT_OVERRIDE would select another";
    }
    setenv("DAT_OVERRIDE", file, 1);
    printf("dat.conf: %s (%s)%s%s\n", file, why, access(file, R_OK) ? ": " : "",
           access(file, R_OK) ? strerror(errno) : "");
}

int info_ias(const char *default_conf)
{
    static DAT_PROVIDER_INFO info[MAX_IAS], *at[MAX_IAS];
    const char *first = NULL;
    DAT_COUNT n = 0;
    struct dat dat;
    int opened = 0;

    select_conf(default_conf);
    for (int i = 0; i < MAX_IAS; i++)
        at[i] = &info[i];
    if (!load(&dat) || dat.list(MAX_IAS, &n, at) != DAT_SUCCESS)
        n = 0;
    for (DAT_COUNT i = 0; i < n; i++) {
        if (!one_ia(info[i].ia_name))
            continue;
        if (opened++ == 0)
            first = info[i].ia_name;
    }
    if (first)
        printf("MPI jobs use %s, the first that opens, unless MPIR_CVAR_DAPL_IA names others\n",
               first);
    else if (n == 0)
        printf("dat.conf names no IA: docs/provider.md has the line of the software provider\n");
    else
        printf("no IA opens: MPI jobs over uDAPL end with an error\n");
    return opened;
}
