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

#include "mdapl_knobs.h"

static const char *effective(const struct mdapl_knob *k, const cvar_table_entry_t *entry)
{
    const char *text = entry->addr, *def = entry->defaultval.str ? entry->defaultval.str : "";

    if (strcmp(text, def) != 0)
        return text;
    return *k->value ? *k->value : "";
}

int mdapl_ch3_cfg_from_cvars(struct mdapl_cfg *cfg, struct mdapl_err *err)
{
    mdapl_cfg_init(cfg);
    for (const struct mdapl_knob *k = mdapl_knobs; k->name; k++) {
        cvar_table_entry_t *entry = LOOKUP_CVAR_BY_NAME(k->cvar);
        const char *value = effective(k, entry);

        if (mdapl_cfg_set(cfg, k->name, value, err))
            return -1;
        if (value != entry->addr)
            MPL_strncpy(entry->addr, value, (size_t)entry->count);
    }
    return 0;
}
