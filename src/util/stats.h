/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_STATS_H
#define MDAPL_STATS_H
/* The counters, made from stats.def: 64-bit numbers, written by the thread that holds the lock of
 * the context. */
#include <stddef.h>
#include <stdint.h>

#define COUNTER(name, unit, help) uint64_t name;
struct mdapl_stats {
#include "stats.def"
};
#undef COUNTER

/* A row of the table, for output. */
struct mdapl_stats_row {
    const char *name, *unit, *help;
    size_t offset;           /* of the counter in struct mdapl_stats */
};

/* The table and its length. */
const struct mdapl_stats_row *mdapl_stats_rows(size_t *n_p);
/* Writes a line "name value unit" for each counter that is not 0 into buf, cut at len bytes. */
void mdapl_stats_print(const struct mdapl_stats *s, char *buf, size_t len);

/* Raises a counter to value, if it is lower. */
static inline void mdapl_stats_max(uint64_t *counter, uint64_t value)
{
    if (value > *counter)
        *counter = value;
}

#endif
