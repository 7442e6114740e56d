/* SPDX-License-Identifier: MIT */
#include "datline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line {
    DAT_PROVIDER provider;       /* first member: handles point here */
    DAT_PROVIDER_INFO info;
    struct line *next;
};

/* The registered lines. */
static struct line *lines;

DAT_RETURN datline_not_implemented(void)
{
    return (DAT_RETURN)(DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED);
}

void datline_add(const char *library, const DAT_PROVIDER *table, const DAT_PROVIDER_INFO *info,
                 const char *params)
{
    struct line *line = calloc(1, sizeof(*line));
    char *copy = line ? strdup(params ? params : "") : NULL;

    if (!copy) {
        free(line);
        return;
    }
    line->provider = *table;
    line->provider.device_name = line->info.ia_name;
    line->provider.extension = copy;
    line->info = *info;
    if (dat_registry_add_provider(&line->provider, &line->info) != DAT_SUCCESS) {
        fprintf(stderr, "%s: libdat2 does not register IA %s\n", library, info->ia_name);
        free(copy);
        free(line);
        return;
    }
    line->next = lines;
    lines = line;
}

void datline_remove(const DAT_PROVIDER_INFO *info)
{
    for (struct line **at = &lines; *at; at = &(*at)->next) {
        struct line *line = *at;

        if (strcmp(line->info.ia_name, info->ia_name))
            continue;
        *at = line->next;
        dat_registry_remove_provider(&line->provider, &line->info);
        free(line->provider.extension);
        free(line);
        return;
    }
}

const char *datline_params(const char *name, DAT_PROVIDER **provider_p)
{
    for (struct line *line = lines; line; line = line->next)
        if (strcmp(line->info.ia_name, name) == 0) {
            *provider_p = &line->provider;
            return line->provider.extension;
        }
    return NULL;
}
