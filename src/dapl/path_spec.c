/* SPDX-License-Identifier: MIT */
#include "path_spec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Reads a port, and what follows it. False: there is none. */
static bool read_port(const char **at, uint32_t *port)
{
    char *end;
    unsigned long n;

    if (!isdigit((unsigned char)**at))
        return false;
    n = strtoul(*at, &end, 10);
    *at = end;
    *port = (uint32_t)n;
    return n >= 1 && n <= DAT_PATH_MAX_PORT;
}

bool mdapl_dapl_path_spec_read(const char *text, struct mdapl_dapl_path_spec *spec)
{
    *spec = (struct mdapl_dapl_path_spec){ .off = strcmp(text, "off") == 0 };
    if (spec->off || strcmp(text, "auto") == 0)
        return true;
    while (spec->n < MDAPL_DAPL_PATHS) {
        DAT_PATH *path = &spec->path[spec->n++];

        if (!read_port(&text, &path->local_port))
            return false;
        if (*text == ':' && (text++, !read_port(&text, &path->remote_port)))
            return false;
        if (!*text)
            return true;
        if (*text++ != ',')
            return false;
    }
    return false;
}

bool mdapl_dapl_path_alternate(const struct mdapl_dapl_path_spec *spec, const DAT_PATH *current,
                               uint32_t wanted, DAT_PATH *path)
{
    const DAT_PATH *found = NULL;

    *path = (DAT_PATH){ .local_port = wanted == current->local_port ? 0 : wanted };
    if (spec->n == 0)
        return true;
    for (const DAT_PATH *p = spec->path; p < spec->path + spec->n; p++)
        if (p->local_port != current->local_port && (!found || p->local_port == wanted))
            found = p;
    if (found)
        *path = *found;
    return found != NULL;
}

uint32_t mdapl_dapl_path_balanced(const struct mdapl_dapl_path_spec *spec, uint32_t ports,
                                  uint64_t nth)
{
    uint64_t n = spec->n > 0 ? (uint64_t)spec->n : ports;

    if (n < 2)
        return 0;
    return spec->n > 0 ? spec->path[nth % n].local_port : (uint32_t)(nth % n) + 1;
}
