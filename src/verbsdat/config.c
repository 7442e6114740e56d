/* SPDX-License-Identifier: MIT */
#include "ia.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY = 7, INLINE = 128, INLINE_MAX = 1024 };

static int wrong(const char *name, const char *word, const char *text)
{
    fprintf(stderr, "daplverbs: IA %s: %s: %s\n", name, word, text);
    return -1;
}

/* The first IPv4 address of an interface. False: it has none. */
static bool address_of(const char *interface, struct sockaddr_in *addr)
{
    struct ifaddrs *all, *a;
    bool found = false;

    if (getifaddrs(&all))
        return false;
    for (a = all; a && !found; a = a->ifa_next) {
        found = a->ifa_addr && a->ifa_addr->sa_family == AF_INET
                && strcmp(a->ifa_name, interface) == 0;
        if (found)
            memcpy(addr, a->ifa_addr, sizeof(*addr));
    }
    freeifaddrs(all);
    addr->sin_port = 0;
    return found;
}

/* An IPv4 address or the name of an interface. */
static int place(const char *name, const char *word, struct sockaddr_in *addr)
{
    *addr = (struct sockaddr_in){ .sin_family = AF_INET };
    if (inet_pton(AF_INET, word, &addr->sin_addr) == 1 || address_of(word, addr))
        return 0;
    return wrong(name, word, if_nametoindex(word)
                                 ? "this interface has no IPv4 address: ip address add ADDRESS/BITS"
                                   " dev NAME"
                                 : "neither an IPv4 address nor a network interface of this host");
}

static int number(const char *name, const char *word, const char *value, long max, long *n)
{
    char text[64], *end;

    *n = strtol(value, &end, 10);
    if (*value && !*end && *n >= 0 && *n <= max)
        return 0;
    snprintf(text, sizeof(text), "not a number from 0 to %ld", max);
    return wrong(name, word, text);
}

static int option(const char *name, const char *word, struct verbsdat_config *cfg)
{
    static const char *const keys[] = { "retry=", "ack_timeout=", "inline=" };
    static const long max[] = { 7, 31, INLINE_MAX };
    static const char alternate[] = "alternate=";
    long n = 0;

    if (strncmp(word, alternate, strlen(alternate)) == 0)
        return place(name, word + strlen(alternate), &cfg->alternate);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        size_t len = strlen(keys[i]);

        if (strncmp(word, keys[i], len))
            continue;
        if (number(name, word, word + len, max[i], &n))
            return -1;
        if (i == 0)
            cfg->retry = (uint8_t)n;
        else if (i == 1)
            cfg->ack_timeout = (uint8_t)n;
        else
            cfg->max_inline = (uint32_t)n;
        return 0;
    }
    return wrong(name, word, "no such parameter; there are retry=, ack_timeout=, inline=, "
                             "alternate=");
}

int verbsdat_config_parse(const char *name, const char *params, struct verbsdat_config *cfg)
{
    char text[512], *save = NULL, *word;
    bool placed = false;

    *cfg = (struct verbsdat_config){ .retry = RETRY, .max_inline = INLINE };
    snprintf(text, sizeof(text), "%s", params);
    for (word = strtok_r(text, " ,\t", &save); word; word = strtok_r(NULL, " ,\t", &save)) {
        if (strchr(word, '=') ? option(name, word, cfg) : place(name, word, &cfg->addr))
            return -1;
        placed = placed || !strchr(word, '=');
    }
    if (placed)
        return 0;
    return wrong(name, "no address", "the IA parameters of its line begin with an interface or an "
                                     "IPv4 address");
}
