/* SPDX-License-Identifier: MIT */
/*
 * The knobs from MPICH's control variables. Each is a string to MPICH, so that MPICH neither
 * truncates numbers to 32 bits nor rejects suffixes such as 64k; cfg.c parses and validates all of
 * them.
 *
 * MPICH keeps two copies of a string: that of the environment, and the one that MPI_T reads and
 * writes, which it initialises with the default only. A copy that differs from the default was
 * written by the program and takes precedence; the value in effect is stored there for MPI_T.
 */
#include "mpidi_ch3_impl.h"

#include "log.h"
#include "mdapl_knobs.h"

static const char *effective(const struct mdapl_knob *k, const cvar_table_entry_t *entry)
{
    const char *text = entry->addr, *def = entry->defaultval.str ? entry->defaultval.str : "";

    if (strcmp(text, def) != 0)
        return text;
    return *k->value ? *k->value : "";
}

static void remember(struct mdapl_ch3_live *live, const char *text)
{
    live->text = text;
    snprintf(live->seen, sizeof(live->seen), "%s", text);
}

/* The knob that MPI_T may write while the job runs. MPICH calls nothing when it is written, so its
 * text is compared now and then, while the program uses MPI_T: the last MPI_T_finalize() frees the
 * variables, and the next MPI_T_init_thread() makes others, with the defaults. */
static const char live_knob[] = "path_balance";

int mdapl_ch3_cfg_from_cvars(struct mdapl_ch3_glue *g, struct mdapl_err *err)
{
    mdapl_cfg_init(&g->cfg);
    for (const struct mdapl_knob *k = mdapl_knobs; k->name; k++) {
        cvar_table_entry_t *entry = LOOKUP_CVAR_BY_NAME(k->cvar);
        const char *value = effective(k, entry);

        if (mdapl_cfg_set(&g->cfg, k->name, value, err))
            return -1;
        if (value != entry->addr)
            MPL_strncpy(entry->addr, value, (size_t)entry->count);
        if (strcmp(k->name, live_knob) == 0) {
            g->live.cvar = k->cvar;
            remember(&g->live, entry->addr);
        }
    }
    return 0;
}

void mdapl_ch3_cvars_look(void *owner)
{
    struct mdapl_ch3_glue *g = owner;
    cvar_table_entry_t *entry;
    struct mdapl_err err;
    bool is_new;

    if (!MPIR_T_is_initialized())
        return;
    entry = LOOKUP_CVAR_BY_NAME(g->live.cvar);
    is_new = entry->addr != g->live.text;
    if (!is_new && strncmp(g->live.text, g->live.seen, sizeof(g->live.seen) - 1) == 0)
        return;
    remember(&g->live, entry->addr);
    if (!is_new && mdapl_ctx_tune(g->ctx, live_knob, g->live.text, &err))
        mdapl_log(mdapl_ctx_log(g->ctx), MDAPL_WARN, "%s", err.text);
}
