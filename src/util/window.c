/* SPDX-License-Identifier: MIT */
#include "window.h"

#include <assert.h>

bool mdapl_txwin_update(struct mdapl_txwin *w, uint32_t limit)
{
    uint64_t full = mdapl_seq_widen(w->limit, limit);

    if (full <= w->limit)
        return false;
    w->limit = full;
    return true;
}

struct mdapl_rxwin mdapl_rxwin_new(uint32_t first, uint32_t most)
{
    return (struct mdapl_rxwin){ .advertised = first, .size = first, .most = most,
                                 .grow_at = first < most ? 2 * (uint64_t)first : UINT64_MAX };
}

uint32_t mdapl_rxwin_growth(struct mdapl_rxwin *w)
{
    uint32_t n = w->size < w->most - w->size ? w->size : w->most - w->size;

    w->grow_at = w->size + n < w->most ? w->freed + 2 * (uint64_t)(w->size + n) : UINT64_MAX;
    return n;
}

uint32_t mdapl_rxwin_advertise(struct mdapl_rxwin *w)
{
    assert(mdapl_rxwin_limit(w) >= w->advertised);
    w->advertised = mdapl_rxwin_limit(w);
    return (uint32_t)w->advertised;
}
