/* SPDX-License-Identifier: MIT */
#include "cable.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { NOT_PERMITTED = 77 };     /* exit status */

bool shell(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return system(text) == 0;
}

static void enter_network(void)
{
    if (unshare(CLONE_NEWNET) || !shell("ip link set lo up"))
        _exit(NOT_PERMITTED);
}

/* Joins this process's namespace and its parent's. */
static void join_parent(int n)
{
    int local = getppid();

    if (!shell("ip link add p%d type veth peer name p%d netns %d", n, n, local)
        || !shell("ip addr add " CABLE_REMOTE "/24 dev p%d && ip link set p%d up", n, n, n)
        || !shell("nsenter -t %d -n ip addr add " CABLE_LOCAL "/24 dev p%d", local, n, n)
        || !shell("nsenter -t %d -n ip link set p%d up", local, n))
        _exit(NOT_PERMITTED);
    /* The kernel reports the carrier of a new device some time after it is up. */
    shell("until ip link show p%d | grep -q 'state UP' && "
          "nsenter -t %d -n ip link show p%d | grep -q 'state UP'; do sleep 0.01; done",
          n, local, n);
}

void make_cable(void)
{
    enter_network();
    join_parent(0);
}

void make_two_cables(void)
{
    make_cable();
    join_parent(1);
}

void drop_packets(const struct peer *p, int n)
{
    assert_true(shell("nsenter -t %d -n ip route add blackhole " CABLE_LOCAL "/32", (int)p->pid,
                      n));
}

void between_hosts(peer_role *role)
{
    struct peer p;

    if (getuid() != 0 || system("ip -V >/dev/null 2>&1 && nsenter -V >/dev/null 2>&1"))
        SKIP_TEST("hosts of its own need root, ip and nsenter");
    peer_start_prepared(&p, "soft0", role, enter_network);
    assert_int_equal(recv_byte(p.fd), 'd');
    peer_end(&p);
}
