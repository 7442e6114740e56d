/* SPDX-License-Identifier: MIT */
/*
 * The kernel's verbs devices by sysfs (class/infiniband): no library of verbs is needed. A line of
 * dat.conf for libdaplverbs or libdaplofa names a network interface, since their connections are
 * made by address; one for libdaploscm names a device and a port.
 */
#include "info.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TEXT = 64 };

struct port {
    const char *library;         /* libdaplverbs.so with its path; NULL: it is not installed */
    const char *device;
    int number;
    char state[TEXT], layer[TEXT], gid[TEXT], netdev[TEXT];
};

/* The first line of a file below sysfs; "" when there is none. */
static void get(char out[TEXT], const char *sysfs, const char *device, int port, const char *name)
{
    char path[1024];
    FILE *f;

    snprintf(path, sizeof(path), "%s/class/infiniband/%s/ports/%d/%s", sysfs, device, port, name);
    out[0] = '\0';
    f = fopen(path, "r");
    if (!f)
        return;
    if (!fgets(out, TEXT, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    fclose(f);
}

/* Has the interface an IPv4 address? */
static bool has_ipv4(const char *netdev)
{
    struct ifaddrs *all, *a;
    bool found = false;

    if (getifaddrs(&all))
        return false;
    for (a = all; a; a = a->ifa_next)
        found = found || (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && a->ifa_flags & IFF_UP
                          && strcmp(a->ifa_name, netdev) == 0);
    freeifaddrs(all);
    return found;
}

/* libdaploscm 2.1.10 takes the first 8 bytes of a GID's text for a pointer, and crashes where the
 * text is not longer than that, such as fe80::1 (docs/providers.md). */
static bool gid_is_short(const char *gid)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr a;

    return inet_pton(AF_INET6, gid, &a) != 1 || !inet_ntop(AF_INET6, &a, text, sizeof(text))
           || strlen(text) <= sizeof(char *);
}

/* Prints what can be done with the port; the lines go to dat.conf as they are. */
static void propose(const struct port *p)
{
    if (*p->netdev && has_ipv4(p->netdev) && p->library)
        printf("    own-%s u2.0 nonthreadsafe default %s daplverbs.1.0 \"%s\" \"\"\n", p->netdev,
               p->library, p->netdev);
    if (!*p->netdev)
        printf("    libdaplofa needs the network interface of the port, and it has none: on "
               "InfiniBand load ib_ipoib\n");
    else if (!has_ipv4(p->netdev))
        printf("    libdaplofa needs an IPv4 address on %s: ip address add ADDRESS/BITS dev %s\n",
               p->netdev, p->netdev);
    else
        printf("    ofa-%s u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"%s 0\" \"\"\n",
               p->netdev, p->netdev);
    if (gid_is_short(p->gid))
        printf("    libdaploscm 2.1.10 crashes on the short GID of this port (%s): no line for "
               "it\n", *p->gid ? p->gid : "none");
    else
        printf("    scm-%s-%d u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 \"%s %d\" "
               "\"\"\n", p->device, p->number, p->device, p->number);
}

/* Prints one port. Returns whether it can be used. */
static bool one_port(const char *sysfs, const char *library, const char *device, int number)
{
    struct port p = { .library = library, .device = device, .number = number };
    bool active;

    get(p.state, sysfs, device, number, "state");
    get(p.layer, sysfs, device, number, "link_layer");
    get(p.gid, sysfs, device, number, "gids/0");
    get(p.netdev, sysfs, device, number, "gid_attrs/ndevs/0");
    active = strstr(p.state, "ACTIVE") != NULL;
    printf("verbs device %s port %d: %s, %s%s%s\n", device, number, p.state, p.layer,
           *p.netdev ? ", interface " : "", p.netdev);
    if (active)
        propose(&p);
    else
        printf("    the port is down: check the cable and the switch%s%s\n",
               *p.netdev ? ", and ip link set up dev " : "", p.netdev);
    return active;
}

static int one_device(const char *sysfs, const char *library, const char *device)
{
    char state[TEXT];
    int usable = 0;

    for (int port = 1; port < 256; port++) {
        get(state, sysfs, device, port, "state");
        if (!*state)
            break;
        usable += one_port(sysfs, library, device, port);
    }
    return usable;
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

int info_verbs(const char *sysfs, const char *libdir)
{
    struct dirent **names = NULL;
    char path[1024], library[1024];
    int n, usable = 0;
    bool have;

    snprintf(library, sizeof(library), "%s/libdaplverbs.so", libdir);
    have = access(library, R_OK) == 0;

    snprintf(path, sizeof(path), "%s/class/infiniband", sysfs);
    n = scandir(path, &names, visible, alphasort);
    if (n <= 0)
        printf("verbs devices: none (%s)\n", n < 0 ? "the kernel has no InfiniBand support, or its "
               "modules are not loaded" : "no adapter, or its driver is not loaded");
    for (int i = 0; i < n; i++) {
        usable += one_device(sysfs, have ? library : NULL, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return usable;
}
