/* SPDX-License-Identifier: MIT */
#include "ledger.h"

#include "least.h"

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

/* Memory for one more range. False: there is none. */
static bool grow(struct mdapl_dapl_ledger *l)
{
    struct mdapl_dapl_range *more;

    if (l->n < l->room)
        return true;
    more = realloc(l->more, sizeof(*more) * l->room * 2);
    if (!more)
        return false;
    if (!l->more)
        memcpy(more, l->own, sizeof(l->own));
    l->more = more;
    l->room *= 2;
    return true;
}

int64_t mdapl_dapl_ledger_add(struct mdapl_dapl_ledger *l, uint64_t off, uint64_t len)
{
    struct mdapl_dapl_range *r = l->more ? l->more : l->own;
    uint64_t end = off + len, known = 0;
    uint32_t first, next;

    if (l->n > 0 && len > 0 && end_of(&r[l->n - 1]) == off) {    /* in order: the usual case */
        r[l->n - 1].len += len;
        l->done += len;
        return (int64_t)len;
    }
    if (len == 0)
        return 0;
    if (!grow(l))
        return -ENOMEM;
    r = l->more ? l->more : l->own;
    /* Those that it meets or touches become one with it. */
    first = next = find(l, off);
    for (; next < l->n && r[next].off <= end; next++)
        known += r[next].len;
    if (next > first) {
        off = mdapl_least(off, r[first].off);
        end = end > end_of(&r[next - 1]) ? end : end_of(&r[next - 1]);
    }
    if (next != first + 1)
        memmove(&r[first + 1], &r[next], sizeof(*r) * (l->n - next));
    r[first] = (struct mdapl_dapl_range){ off, end - off };
    l->n = l->n + 1 - (next - first);
    l->done += end - off - known;
    return (int64_t)(end - off - known);
}

struct mdapl_dapl_range mdapl_dapl_ledger_missing(const struct mdapl_dapl_ledger *l, uint64_t off,
                                             uint64_t len)
{
    const struct mdapl_dapl_range *r = ranges_of(l);
    uint64_t end = off + len;
    uint32_t i = find(l, off);

    if (i < l->n && r[i].off <= off) {
        off = mdapl_least(end_of(&r[i]), end);
        i++;
    }
    if (i < l->n)
        end = mdapl_least(end, r[i].off);
    return (struct mdapl_dapl_range){ off, end > off ? end - off : 0 };
}

bool mdapl_dapl_ledger_has(const struct mdapl_dapl_ledger *l, uint64_t off, uint64_t len)
{
    uint32_t i = find(l, off + len);

    return len == 0 || (i < l->n && ranges_of(l)[i].off <= off);
}
