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

uint32_t mdapl_rxwin_advertise(struct mdapl_rxwin *w)
{
    assert(mdapl_rxwin_limit(w) >= w->advertised);
    w->advertised = mdapl_rxwin_limit(w);
    return (uint32_t)w->advertised;
}
