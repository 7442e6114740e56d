/* SPDX-License-Identifier: MIT */
#include "ledger.h"

#include "min.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t end_of(const struct mdapl_dapl_range *r)
{
    return r->off + r->len;
}

static const struct mdapl_dapl_range *ranges_of(const struct mdapl_dapl_ledger *l)
{
    return l->more ? l->more : l->own;
}

/* The first range that ends at byte `at` or behind it; l->n: none does. */
static uint32_t find(const struct mdapl_dapl_ledger *l, uint64_t at)
{
    const struct mdapl_dapl_range *r = ranges_of(l);
    uint32_t low = 0, high = l->n;

    while (low < high) {
        uint32_t mid = (low + high) / 2;

        if (end_of(&r[mid]) < at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Memory for twice as many ranges. False: there is none. */
static bool grow(struct mdapl_dapl_ledger *l)
{
    struct mdapl_dapl_range *more = realloc(l->more, sizeof(*more) * l->room * 2);

    if (!more)
        return false;
    if (!l->more)
        memcpy(more, l->own, sizeof(l->own));
    l->more = more;
    l->room *= 2;
    return true;
}

/* A range that begins before or in the last one: those that it meets or touches become one with
 * it. There is memory for one more. Returns the bytes that are new. */
static uint64_t insert(struct mdapl_dapl_ledger *l, uint64_t off, uint64_t end)
{
    struct mdapl_dapl_range *r = l->more ? l->more : l->own;
    uint32_t first = find(l, off), next = first;
    uint64_t known = 0;

    for (; next < l->n && r[next].off <= end; next++)
        known += r[next].len;
    if (next > first) {
        off = mdapl_min(off, r[first].off);
        end = end > end_of(&r[next - 1]) ? end : end_of(&r[next - 1]);
    }
    memmove(&r[first + 1], &r[next], sizeof(*r) * (l->n - next));
    r[first] = (struct mdapl_dapl_range){ off, end - off };
    l->n = l->n + 1 - (next - first);
    return end - off - known;
}

int64_t mdapl_dapl_ledger_add(struct mdapl_dapl_ledger *l, uint64_t off, uint64_t len)
{
    struct mdapl_dapl_range *r = l->more ? l->more : l->own;
    uint64_t last = l->n > 0 ? end_of(&r[l->n - 1]) : 0, added = len;

    if (len == 0)
        return 0;
    if (l->n > 0 && off == last) {       /* in order: the usual case */
        r[l->n - 1].len += len;
    } else {
        if (l->n == l->room && !grow(l))
            return -ENOMEM;
        r = l->more ? l->more : l->own;
        if (l->n == 0 || off > last)
            r[l->n++] = (struct mdapl_dapl_range){ off, len };
        else
            added = insert(l, off, off + len);
    }
    l->done += added;
    return (int64_t)added;
}

int mdapl_dapl_ledger_remove(struct mdapl_dapl_ledger *l, uint64_t off, uint64_t len)
{
    uint64_t end = off + len, kept = 0;
    uint32_t first = find(l, off + 1), next = first, n = 0;
    const struct mdapl_dapl_range *r = ranges_of(l);
    struct mdapl_dapl_range rest[2], *to;

    for (; len > 0 && next < l->n && r[next].off < end; next++) {
        if (r[next].off < off)
            rest[n++] = (struct mdapl_dapl_range){ r[next].off, off - r[next].off };
        if (end_of(&r[next]) > end)
            rest[n++] = (struct mdapl_dapl_range){ end, end_of(&r[next]) - end };
        kept -= r[next].len;     /* modulo 2^64, as the sum */
    }
    if (l->n + n - (next - first) > l->room && !grow(l))
        return -ENOMEM;
    to = l->more ? l->more : l->own;
    memmove(&to[first + n], &to[next], sizeof(*to) * (l->n - next));
    for (uint32_t i = 0; i < n; i++) {
        to[first + i] = rest[i];
        kept += rest[i].len;
    }
    l->n = l->n + n - (next - first);
    l->done += kept;
    return 0;
}

struct mdapl_dapl_range mdapl_dapl_ledger_missing(const struct mdapl_dapl_ledger *l, uint64_t off,
                                             uint64_t len)
{
    const struct mdapl_dapl_range *r = ranges_of(l);
    uint64_t end = off + len;
    uint32_t i = find(l, off);

    if (i < l->n && r[i].off <= off) {
        off = mdapl_min(end_of(&r[i]), end);
        i++;
    }
    if (i < l->n)
        end = mdapl_min(end, r[i].off);
    return (struct mdapl_dapl_range){ off, end > off ? end - off : 0 };
}

bool mdapl_dapl_ledger_has(const struct mdapl_dapl_ledger *l, uint64_t off, uint64_t len)
{
    const struct mdapl_dapl_range *r = ranges_of(l);
    uint32_t i = l->n;

    /* From the end, because callers ask for the latest bytes, and the ranges are few. */
    while (i > 0 && r[i - 1].off > off)
        i--;
    return len == 0 || (i > 0 && end_of(&r[i - 1]) >= off + len);
}
