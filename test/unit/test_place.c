/* SPDX-License-Identifier: MIT */
/* Hints about binding, on a machine that hwloc reads from a file: two_packages.xml. */
#include "unit.h"

#include "place.h"

#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static char line[512];

/* This process runs on these two cores, or on one of them. */
static void bind_to(int a, int b)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(a, &set);
    CPU_SET(b, &set);
    if (sched_setaffinity(0, sizeof(set), &set))
        SKIP_TEST("two cores are needed");
}

static void near_and_far(void **state)
{
    (void)state;
    bind_to(1, 1);
    mdapl_dapl_place_describe_device("ib0", line, sizeof(line));
    assert_string_equal(line, "ib0 is near cores 1; this rank runs on 1: near");
    bind_to(0, 0);
    mdapl_dapl_place_describe_device("ib0", line, sizeof(line));
    assert_string_equal(line, "ib0 is near cores 1; this rank runs on 0: far (latency 21, where "
                              "10 is near). To bind it: mpiexec -bind-to user:1");
}

static void both(void **state)
{
    (void)state;
    bind_to(0, 1);
    mdapl_dapl_place_describe_device("ib0", line, sizeof(line));
    assert_string_equal(line, "ib0 is near cores 1; this rank runs on 0-1: near only at times. To "
                              "bind it: mpiexec -bind-to user:1");
}

static void nowhere(void **state)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    (void)state;
    mdapl_dapl_place_describe((const struct sockaddr *)(const void *)&in, line, sizeof(line));
    assert_string_equal(line, "lo is as near to every core");
    in.sin_addr.s_addr = htonl(0xc0000201);    /* 192.0.2.1, nobody's */
    mdapl_dapl_place_describe((const struct sockaddr *)(const void *)&in, line, sizeof(line));
    assert_non_null(strstr(line, "not known"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_and_far), cmocka_unit_test(both), cmocka_unit_test(nowhere),
    };

    setenv("HWLOC_XMLFILE", TWO_PACKAGES, 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    return RUN(tests);
}
