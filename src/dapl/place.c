/* SPDX-License-Identifier: MIT */
#include "place.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* -- which device ----------------------------------------------------------------------------- */

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr,
                      &((const struct sockaddr_in *)(const void *)b)->sin_addr,
                      sizeof(struct in_addr)) == 0;
    return a->sa_family == AF_INET6
           && memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                     &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
                     sizeof(struct in6_addr)) == 0;
}

/* Adapters have the address of their network interface: of IPoIB, of RoCE, of the software
 * provider's port. */
void mdapl_dapl_place_describe(const struct sockaddr *addr, char *buf, size_t len)
{
    struct ifaddrs *all = NULL, *at;

    if (getifaddrs(&all))
        all = NULL;
    for (at = all; at && !same_address(at->ifa_addr, addr);)
        at = at->ifa_next;
    if (at)
        mdapl_dapl_place_describe_device(at->ifa_name, buf, len);
    else
        snprintf(buf, len, "no interface has its address, so its place is not known");
    freeifaddrs(all);
}
