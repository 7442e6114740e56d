/* SPDX-License-Identifier: MIT */
#include "softdat.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The IA parameters of a dat.conf line: "name=value name=value", separated by blanks or commas.
 * The table has one row per parameter; docs/provider.md describes each.
 */

/* -- interfaces ------------------------------------------------------------------------------- */

static const struct sockaddr_in *ipv4_of(const struct ifaddrs *i)
{
    return i->ifa_addr && i->ifa_addr->sa_family == AF_INET ? (const void *)i->ifa_addr : NULL;
}

/* Fills *port from the first interface that `fits`. False: there is none. */
static bool port_from(struct softdat_port *port,
                      bool (*fits)(const struct ifaddrs *, const void *), const void *arg)
{
    struct ifaddrs *all, *i;
    bool found = false;

    if (getifaddrs(&all))
        return false;
    for (i = all; i && !found; i = i->ifa_next) {
        if (!ipv4_of(i) || !fits(i, arg))
            continue;
        found = true;
        port->addr = *ipv4_of(i);
        port->mask = i->ifa_netmask
                         ? ((const struct sockaddr_in *)(const void *)i->ifa_netmask)->sin_addr
                         : (struct in_addr){ INADDR_NONE };
        port->ifindex = if_nametoindex(i->ifa_name);
        port->carrier = true;
    }
    freeifaddrs(all);
    port->addr.sin_port = 0;
    return found;
}

static bool has_name(const struct ifaddrs *i, const void *name)
{
    return strcmp(i->ifa_name, name) == 0;
}

static bool has_addr(const struct ifaddrs *i, const void *addr)
{
    return ipv4_of(i)->sin_addr.s_addr == ((const struct in_addr *)addr)->s_addr;
}

static bool is_external(const struct ifaddrs *i, const void *none)
{
    (void)none;
    return (i->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;
}

/* -- values ----------------------------------------------------------------------------------- */

struct row {
    const char *name;
    /* Parses value and sets the parameter. False: the value is not allowed. */
    bool (*set)(struct softdat_config *, const struct row *, const char *value);
    size_t at;                   /* offset in softdat_config of a uint64_t or a port */
    const char *allowed;         /* the allowed values, for the error line */
    uint64_t min, max;
    const char *words[4];        /* word i means value i */
};

static uint64_t *number_at(struct softdat_config *cfg, const struct row *row)
{
    return (uint64_t *)(void *)((char *)cfg + row->at);
}

static struct softdat_port *port_at(struct softdat_config *cfg, const struct row *row)
{
    return (struct softdat_port *)(void *)((char *)cfg + row->at);
}

static bool set_addr(struct softdat_config *cfg, const struct row *row, const char *value)
{
    struct softdat_port *port = port_at(cfg, row);
    struct in_addr addr;

    if (inet_pton(AF_INET, value, &addr) != 1 || addr.s_addr == 0)
        return false;
    /* A loopback address, or one of an interface that is still down, belongs to no interface. */
    if (!port_from(port, has_addr, &addr))
        *port = (struct softdat_port){ .addr = { .sin_family = AF_INET, .sin_addr = addr },
                                       .mask = { INADDR_NONE }, .carrier = true };
    return true;
}

static bool set_if(struct softdat_config *cfg, const struct row *row, const char *value)
{
    return port_from(port_at(cfg, row), has_name, value);
}

/* An integer with an optional suffix k, m or g: times 2^10, 2^20, 2^30. */
static bool set_number(struct softdat_config *cfg, const struct row *row, const char *value)
{
    static const char unit[] = "kmg";
    const char *u;
    char *end;
    uint64_t n = strtoull(value, &end, 10);

    if (*value < '0' || *value > '9')
        return false;
    u = *end ? strchr(unit, *end) : NULL;
    if (u) {
        n <<= 10 * (u - unit + 1);
        end++;
    }
    *number_at(cfg, row) = n;
    return !*end && n >= row->min && n <= row->max;
}

/* The same, or "off" for 0. */
static bool set_bytes(struct softdat_config *cfg, const struct row *row, const char *value)
{
    if (strcmp(value, "off"))
        return set_number(cfg, row, value);
    *number_at(cfg, row) = 0;
    return true;
}

static bool set_word(struct softdat_config *cfg, const struct row *row, const char *value)
{
    for (uint64_t i = 0; i < 4 && row->words[i]; i++)
        if (strcmp(row->words[i], value) == 0) {
            *number_at(cfg, row) = i;
            return true;
        }
    return false;
}

/* "1/N": one case in N; "Nms": one in N milliseconds. */
static bool set_often(struct softdat_config *cfg, const struct row *row, const char *value)
{
    struct softdat_often *often = (struct softdat_often *)(void *)((char *)cfg + row->at);
    int used = 0;

    often->by_time = strncmp(value, "1/", 2) != 0;
    if (!often->by_time)
        return set_number(cfg, row, value + 2);
    return sscanf(value, "%" SCNu64 "ms%n", &often->n, &used) == 1 && used > 0 && !value[used]
           && often->n >= row->min && often->n <= row->max;
}

/* -- the rows --------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct softdat_config, member)
#define PORT(i) (offsetof(struct softdat_config, port) + (i) * sizeof(struct softdat_port))
#define NUMBER(name, member, min, max, allowed)                                                  \
    { name, set_number, AT(member), allowed, min, max, {0} }
#define OFTEN(name, which)                                                      \
    { name, set_often, AT(often) + (which) * sizeof(struct softdat_often),      \
      "1/N, one in N, or Nms, one in N milliseconds", 1, UINT32_MAX, {0} }

static const char allowed_addr[] = "an IPv4 address of this host";
static const char allowed_if[] = "the name of an interface that has an IPv4 address";

static const struct row rows[] = {
    { "addr", set_addr, PORT(0), allowed_addr, 0, 0, {0} },
    { "if", set_if, PORT(0), allowed_if, 0, 0, {0} },
    { "addr2", set_addr, PORT(1), allowed_addr, 0, 0, {0} },
    { "if2", set_if, PORT(1), allowed_if, 0, 0, {0} },
    { "local", set_word, AT(local), "shared, socket or tcp", 0, 0, { "tcp", "socket", "shared" } },
    { "direct", set_bytes, AT(direct_bytes), "off or a number of bytes", 1, UINT32_MAX, {0} },
    { "polled", set_word, AT(polled), "rings, direct or auto", 0, 0,
      { "rings", "direct", "auto" } },
    NUMBER("max_priv", max_priv, 0, SOFTDAT_PRIV_MAX, "a number from 0 to 256"),
    NUMBER("max_dtos", max_dtos, 1, SOFTDAT_MAX_DTO, "a number from 1 to 16384"),
    NUMBER("max_iov", max_iov, 1, SOFTDAT_MAX_IOV, "a number from 1 to 16"),
    NUMBER("max_rdma_iov", max_rdma_iov, 1, SOFTDAT_MAX_IOV, "a number from 1 to 16"),
    NUMBER("max_reads", max_reads, 0, SOFTDAT_MAX_READS, "a number from 0 to 64"),
    NUMBER("max_message", max_message, 64, SOFTDAT_MAX_MESSAGE, "64 bytes to 2g"),
    NUMBER("max_lmrs", max_lmrs, 1, SOFTDAT_MAX_LMRS, "a number from 1 to 262144"),
    NUMBER("max_lmr_size", max_lmr_size, 4096, UINT64_MAX, "a number of bytes from 4k"),
    NUMBER("rate", rate, 1, UINT64_MAX, "bytes per second"),
    NUMBER("latency", latency_us, 0, 10000000, "microseconds, at most 10000000"),
    NUMBER("rate1", port_rate[0], 1, UINT64_MAX, "bytes per second"),
    NUMBER("rate2", port_rate[1], 1, UINT64_MAX, "bytes per second"),
    NUMBER("latency1", port_latency_us[0], 0, 10000000, "microseconds, at most 10000000"),
    NUMBER("latency2", port_latency_us[1], 0, 10000000, "microseconds, at most 10000000"),
    NUMBER("jitter", jitter_us, 0, 10000000, "microseconds, at most 10000000"),
    NUMBER("retry", retry_ms, 1, 3600000, "milliseconds, from 1 to 3600000"),
    NUMBER("path_timeout", path_timeout_ms, 1, 3600000, "milliseconds, from 1 to 3600000"),
    NUMBER("seed", seed, 0, UINT64_MAX, "a number"),
    NUMBER("faults", max_faults, 0, UINT64_MAX, "a number"),
    NUMBER("fatal", fatal_after, 1, UINT64_MAX, "a number of requests"),
    OFTEN("break", SOFTDAT_FAULT_BREAK),
    OFTEN("lose", SOFTDAT_FAULT_LOSE),
    OFTEN("fail_lmr", SOFTDAT_FAULT_LMR),
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct softdat_config defaults = {
    .local = SOFTDAT_LOCAL_SHARED,
    .direct_bytes = 1 << 16,
    .polled = SOFTDAT_POLLED_AUTO,
    .max_priv = SOFTDAT_PRIV_MAX,
    .max_dtos = SOFTDAT_MAX_DTO,
    .max_iov = SOFTDAT_MAX_IOV,
    .max_rdma_iov = SOFTDAT_MAX_IOV,
    .max_reads = SOFTDAT_MAX_READS,
    .max_message = SOFTDAT_MAX_MESSAGE,
    .max_lmrs = SOFTDAT_MAX_LMRS,
    .max_lmr_size = UINT32_MAX,
    .retry_ms = 4000,
    .max_faults = UINT64_MAX,
};

/* -- parsing ---------------------------------------------------------------------------------- */

static void report_value(const char *ia_name, const char *word, const char *value,
                         const char *allowed)
{
    fprintf(stderr, "daplsoft: IA %s: parameter \"%s%s%s\" is not possible: it must be %s. Correct "
            "the IA's line in dat.conf\n",
            ia_name, word, value ? "=" : "", value ? value : "", allowed);
}

static void report_name(const char *ia_name, const char *word, const char *value)
{
    char names[512] = "one of ";
    size_t len = strlen(names);

    for (size_t i = 0; i < N_ROWS; i++)
        len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s=", i ? ", " : "",
                                rows[i].name);
    report_value(ia_name, word, value, names);
}

static bool set_param(const char *ia_name, struct softdat_config *cfg, char *word)
{
    char *value = strchr(word, '=');

    if (value)
        *value++ = '\0';
    for (size_t i = 0; value && i < N_ROWS; i++) {
        if (strcmp(rows[i].name, word))
            continue;
        if (rows[i].set(cfg, &rows[i], value))
            return true;
        report_value(ia_name, word, value, rows[i].allowed);
        return false;
    }
    report_name(ia_name, word, value);
    return false;
}

/* Checks and completes what depends on several parameters. */
static bool finish(const char *ia_name, struct softdat_config *cfg)
{
    struct softdat_port *port = cfg->port;

    if (!port[0].addr.sin_family && !port_from(&port[0], is_external, NULL))
        port[0] = (struct softdat_port){ .addr = { .sin_family = AF_INET }, .carrier = true,
                                         .mask = { INADDR_NONE } };
    if (!port[0].addr.sin_addr.s_addr)
        port[0].addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (!cfg->path_timeout_ms)
        cfg->path_timeout_ms = (cfg->retry_ms + 3) / 4;
    cfg->n_ports = port[1].addr.sin_family ? 2 : 1;
    if (port[0].addr.sin_addr.s_addr == port[1].addr.sin_addr.s_addr) {
        report_value(ia_name, "addr2", inet_ntoa(port[1].addr.sin_addr),
                     "another address than addr");
        return false;
    }
    /* Link emulation has no effect on direct copies, so they are off. */
    cfg->limits = cfg->rate || cfg->port_rate[0] || cfg->port_rate[1];
    cfg->delays = cfg->latency_us || cfg->jitter_us || cfg->port_latency_us[0]
                  || cfg->port_latency_us[1];
    if (cfg->limits || cfg->delays)
        cfg->direct_bytes = 0;
    return true;
}

int softdat_config_parse(const char *ia_name, const char *text, struct softdat_config *cfg)
{
    char *copy = strdup(text), *save = NULL;
    bool ok = copy != NULL;

    *cfg = defaults;
    for (char *w = copy ? strtok_r(copy, " \t,", &save) : NULL; w && ok;
         w = strtok_r(NULL, " \t,", &save))
        ok = set_param(ia_name, cfg, w);
    free(copy);
    return ok && finish(ia_name, cfg) ? 0 : -1;
}
