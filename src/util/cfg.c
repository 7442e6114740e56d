/* SPDX-License-Identifier: MIT */
#include "cfg.h"

#include "err.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { INT, STR, ENUM };

/* A row of knobs.def. */
struct row {
    const char *name;
    enum kind kind;
    size_t offset;
    int64_t def, min, max;
    const char *text;        /* the default of a text, the default word and the words of an enum */
    const char *words;
};

#define KNOB_INT(name, def, min, max, help) \
    { #name, INT, offsetof(struct mdapl_cfg, name), def, min, max, NULL, NULL },
#define KNOB_STR(name, def, help) \
    { #name, STR, offsetof(struct mdapl_cfg, name), 0, 0, 0, def, NULL },
#define KNOB_ENUM(name, def, words, help) \
    { #name, ENUM, offsetof(struct mdapl_cfg, name), 0, 0, 0, def, words },
static const struct row rows[] = {
#include "knobs.def"
};

static const size_t n_rows = sizeof(rows) / sizeof(rows[0]);

/* The index of a word in "a|b|c", or -1. */
static int find_word(const char *words, const char *value)
{
    size_t len = strlen(value);
    int i = 0;

    for (const char *w = words; w; w = strchr(w, '|'), i++) {
        if (*w == '|')
            w++;
        if (strcspn(w, "|") == len && strncmp(w, value, len) == 0)
            return i;
    }
    return -1;
}

/* A number with an optional k, m or g (1024-fold each); false when it is none. */
static bool get_number(const char *value, int64_t *n_p)
{
    const char *suffix = "kmg", *s;
    char *end;
    long long n;

    errno = 0;
    n = strtoll(value, &end, 0);
    if (end == value || errno)
        return false;
    if (*end && (s = strchr(suffix, tolower((unsigned char)*end)))) {
        int shift = 10 * (int)(s - suffix + 1);

        if (n > INT64_MAX >> shift || n < 0)
            return false;
        n <<= shift;
        end++;
    }
    *n_p = n;
    return *end == '\0';
}

static int wrong(struct mdapl_err *err, const char *name, const char *value, const char *right)
{
    char upper[64];
    size_t i;

    for (i = 0; name[i] && i < sizeof(upper) - 1; i++)
        upper[i] = (char)toupper((unsigned char)name[i]);
    upper[i] = '\0';
    return mdapl_err_set(err, -EINVAL, "MPIR_CVAR_DAPL_%s=%s is not possible: it must be %s", upper,
                         value, right);
}

static int set_row(struct mdapl_cfg *cfg, const struct row *r, const char *value,
                   struct mdapl_err *err)
{
    char *field = (char *)cfg + r->offset, right[128];
    int64_t n;

    if (r->kind == INT) {
        snprintf(right, sizeof(right), "a number from %lld to %lld", (long long)r->min,
                 (long long)r->max);
        if (!get_number(value, &n) || n < r->min || n > r->max)
            return wrong(err, r->name, value, right);
        *(int64_t *)(void *)field = n;
    } else if (r->kind == ENUM) {
        snprintf(right, sizeof(right), "one of %s", r->words);
        if (find_word(r->words, value) < 0)
            return wrong(err, r->name, value, right);
        *(int *)(void *)field = find_word(r->words, value);
    } else {
        if (strlen(value) >= sizeof(cfg->ia))
            return wrong(err, r->name, value, "shorter than 256 characters");
        strcpy(field, value);
    }
    return 0;
}

void mdapl_cfg_init(struct mdapl_cfg *cfg)
{
    struct mdapl_err err;

    memset(cfg, 0, sizeof(*cfg));
    for (size_t i = 0; i < n_rows; i++) {
        char number[32];

        snprintf(number, sizeof(number), "%lld", (long long)rows[i].def);
        set_row(cfg, &rows[i], rows[i].kind == INT ? number : rows[i].text, &err);
    }
}

int mdapl_cfg_set(struct mdapl_cfg *cfg, const char *name, const char *value,
                  struct mdapl_err *err)
{
    for (size_t i = 0; i < n_rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return set_row(cfg, &rows[i], value, err);
    return mdapl_err_set(err, -ENOENT, "there is no knob %s", name);
}

int mdapl_cfg_env(struct mdapl_cfg *cfg, struct mdapl_err *err)
{
    mdapl_cfg_init(cfg);
    for (size_t i = 0; i < n_rows; i++) {
        char name[96] = "MPIR_CVAR_DAPL_";
        size_t at = strlen(name);
        const char *value;

        for (const char *p = rows[i].name; *p; p++)
            name[at++] = (char)toupper((unsigned char)*p);
        name[at] = '\0';
        value = getenv(name);
        if (value && *value && set_row(cfg, &rows[i], value, err))
            return -EINVAL;
    }
    return 0;
}

enum mdapl_wiring mdapl_cfg_wiring(const struct mdapl_cfg *cfg, int ranks)
{
    if (cfg->wiring != MDAPL_WIRING_AUTO)
        return (enum mdapl_wiring)cfg->wiring;
    return ranks <= cfg->wiring_max_ring ? MDAPL_WIRING_RING : MDAPL_WIRING_ONDEMAND;
}
