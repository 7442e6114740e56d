/* SPDX-License-Identifier: MIT */
#include "stats.h"

#include <inttypes.h>
#include <stdio.h>

#define COUNTER(name, unit, help) { #name, unit, help, offsetof(struct mdapl_stats, name) },
static const struct mdapl_stats_row rows[] = {
#include "stats.def"
};
#undef COUNTER

const struct mdapl_stats_row *mdapl_stats_rows(size_t *n_p)
{
    *n_p = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

void mdapl_stats_print(const struct mdapl_stats *s, char *buf, size_t len)
{
    size_t at = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && at < len; i++) {
        uint64_t value = *(const uint64_t *)((const char *)s + rows[i].offset);

        if (value)
            at += (size_t)snprintf(buf + at, len - at, "%-16s %" PRIu64 " %s\n", rows[i].name,
                                   value, rows[i].unit);
    }
}
