/* SPDX-License-Identifier: MIT */
#include "threads.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

unsigned long long thread_status(const char *tid, const char *field, int base)
{
    unsigned long long n = 0;
    char path[64], line[256];
    FILE *f;

    snprintf(path, sizeof(path), tid ? "/proc/self/task/%.16s/status" : "/proc/self/status", tid);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, field, strlen(field)) == 0)
            n = strtoull(line + strlen(field) + 1, NULL, base);
    if (f)
        fclose(f);
    return n;
}

void each_other_thread(void (*f)(const char *tid, void *arg), void *arg)
{
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;

    while ((e = readdir(d)))
        if (e->d_name[0] != '.' && atoi(e->d_name) != syscall(SYS_gettid))
            f(e->d_name, arg);
    closedir(d);
}

static void add_switches(const char *tid, void *arg)
{
    *(unsigned long long *)arg += thread_status(tid, "voluntary_ctxt_switches", 10)
                                  + thread_status(tid, "nonvoluntary_ctxt_switches", 10);
}

/* Returns the number of context switches of the other threads, in total. */
static unsigned long long switches(void)
{
    unsigned long long n = 0;

    each_other_thread(add_switches, &n);
    return n;
}

void expect_no_switches(void)
{
    unsigned long long before = 0, now = switches();

    for (int i = 0; i < 10 && before != now; i++) {
        before = now;
        usleep(2000000);
        now = switches();
    }
    assert_int_equal(before, now);
}

int open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}
