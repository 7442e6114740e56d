/* SPDX-License-Identifier: MIT */
#include "body.h"

#include "min.h"
#include "regcache.h"
#include "wire.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Cuts the first max bytes of an iovec into pieces that are neither empty nor longer than the
 * limit, and writes them to `to` unless that is NULL. Returns how many. */
static int cut(const struct iovec *from, int n, size_t max, size_t max_bytes, struct iovec *to)
{
    int made = 0;

    for (int i = 0; i < n && max > 0; i++) {
        char *at = from[i].iov_base, *end = at + mdapl_min(from[i].iov_len, max);

        max -= (size_t)(end - at);
        for (size_t len; at < end; at += len, made++) {
            len = mdapl_min((size_t)(end - at), max_bytes);
            if (to)
                to[made] = (struct iovec){ at, len };
        }
    }
    return made;
}

int mdapl_dapl_body_init(struct mdapl_dapl_body *b, uint64_t lmr_max, const struct iovec *iov,
                         int n, size_t max)
{
    memset(b, 0, sizeof(*b));
    b->n = cut(iov, n, max, (size_t)lmr_max, NULL);
    b->v = malloc((size_t)b->n * (sizeof(*b->v) + sizeof(*b->reg)) + 1);
    if (!b->v)
        return -ENOMEM;
    b->reg = (struct mdapl_dapl_reg **)(void *)(b->v + b->n);
    cut(iov, n, max, (size_t)lmr_max, b->v);
    for (int i = 0; i < b->n; i++)
        b->len += b->v[i].iov_len;
    return 0;
}

static void put(struct mdapl_dapl_body *b, struct mdapl_dapl_regcache *regs, int n)
{
    while (n-- > 0)
        mdapl_dapl_reg_put(regs, b->reg[n]);
}

void mdapl_dapl_body_free(struct mdapl_dapl_body *b)
{
    if (b->regs)
        put(b, b->regs, b->n);
    free(b->v);
    memset(b, 0, sizeof(*b));
}

bool mdapl_dapl_body_register(struct mdapl_dapl_body *b, struct mdapl_dapl_regcache *regs,
                              unsigned use, int n_rails)
{
    unsigned rails = mdapl_dapl_usable_rails(regs->rails, n_rails);
    bool all = true;

    if (rails == 0)
        return false;
    for (int i = 0; b->regs && i < b->n; i++)
        all = mdapl_dapl_lmr_need(&b->reg[i]->lmr, rails) == 0 && all;
    for (int i = 0; !b->regs && i < b->n; i++)
        if (mdapl_dapl_reg_get(regs, b->v[i].iov_base, b->v[i].iov_len, use, rails, &b->reg[i])) {
            put(b, regs, i);
            return false;
        }
    b->regs = regs;
    return all;
}

bool mdapl_dapl_body_has(const struct mdapl_dapl_body *b, int rail)
{
    for (int i = 0; b->regs && i < b->n; i++)
        if (!mdapl_dapl_lmr_has(&b->reg[i]->lmr, rail))
            return false;
    return b->regs != NULL;
}

bool mdapl_dapl_body_describe(const struct mdapl_dapl_body *b, uint64_t off, int n_rails,
                              struct mdapl_dapl_segs *segs)
{
    struct mdapl_dapl_seg *seg = segs->seg;
    bool any = false;
    int i = 0;

    while (off >= b->v[i].iov_len)
        off -= b->v[i++].iov_len;
    if (!b->regs || b->n - i > MDAPL_MAX_SEGS)
        return false;
    for (int k = 0; k < n_rails; k++) {
        segs->generation[k] = mdapl_dapl_body_has(b, k) ? b->reg[0]->lmr.on[k].generation : 0;
        any = any || segs->generation[k] != 0;
    }
    for (; any && i < b->n; i++, seg++, off = 0) {
        *seg = (struct mdapl_dapl_seg){ .addr = (uint64_t)(uintptr_t)b->v[i].iov_base + off,
                                        .len = b->v[i].iov_len - off };
        for (int k = 0; k < n_rails; k++)
            seg->key[k] = segs->generation[k] != 0 ? b->reg[i]->lmr.on[k].key : 0;
    }
    segs->n = (uint16_t)(seg - segs->seg);
    segs->n_rails = any ? (uint16_t)n_rails : 0;
    return any;
}

bool mdapl_dapl_segs_have(const struct mdapl_dapl_segs *segs, int rail, uint16_t generation)
{
    return segs->generation[rail] != 0
           && segs->generation[rail] % MDAPL_HELLO_GENERATIONS == generation;
}

DAT_LMR_TRIPLET mdapl_dapl_body_at(const struct mdapl_dapl_body *b, int rail, uint64_t off,
                                   uint64_t *rest_p)
{
    int i = 0;

    while (off >= b->v[i].iov_len)
        off -= b->v[i++].iov_len;
    assert(i < b->n && mdapl_dapl_lmr_has(&b->reg[i]->lmr, rail));
    *rest_p = b->v[i].iov_len - off;
    return (DAT_LMR_TRIPLET){ .virtual_address = (DAT_VADDR)(uintptr_t)b->v[i].iov_base + off,
                              .lmr_context = b->reg[i]->lmr.on[rail].local };
}

DAT_RMR_TRIPLET mdapl_dapl_segs_at(const struct mdapl_dapl_segs *segs, int rail, uint64_t off,
                                   uint64_t *rest_p)
{
    uint32_t i = 0;

    while (off >= segs->seg[i].len)
        off -= segs->seg[i++].len;
    assert(i < segs->n);
    *rest_p = segs->seg[i].len - off;
    return (DAT_RMR_TRIPLET){ .virtual_address = segs->seg[i].addr + off,
                              .rmr_context = segs->seg[i].key[rail] };
}
