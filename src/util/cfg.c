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

enum { STR_MAX = sizeof(((struct mdapl_cfg *)NULL)->ia) };

/* A row of knobs.def. set() puts a value into its field of cfg: 0 or -EINVAL with the line. */
struct row {
    const char *name;
    int (*set)(const struct row *r, void *field, const char *value, struct mdapl_err *err);
    size_t offset;
    const char *def, *words;
    int64_t min, max;
};

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

/* A decimal number with at most one of the suffixes, each 1024 times the one before it. */
static bool get_number(const char *value, const char *suffixes, int64_t *n_p)
{
    const char *s;
    char *end;
    long long n;

    if (!isdigit((unsigned char)value[*value == '-']))
        return false;
    errno = 0;
    n = strtoll(value, &end, 10);
    if (errno)
        return false;
    if (*end && (s = strchr(suffixes, tolower((unsigned char)*end)))) {
        int shift = 10 * (int)(s - suffixes + 1);

        if (n > INT64_MAX >> shift || n < 0)
            return false;
        n <<= shift;
        end++;
    }
    *n_p = n;
    return *end == '\0';
}

static int wrong(struct mdapl_err *err, const struct row *r, const char *value, const char *right)
{
    char upper[64];
    size_t i;

    for (i = 0; r->name[i] && i < sizeof(upper) - 1; i++)
        upper[i] = (char)toupper((unsigned char)r->name[i]);
    upper[i] = '\0';
    return mdapl_err_set(err, -EINVAL, "MPIR_CVAR_DAPL_%s=\"%.128s\" is not possible: it must be "
                         "%s", upper, value, right);
}

/* -- one function for each kind of row -------------------------------------------------------- */

static int set_number(const struct row *r, void *field, const char *value, const char *suffixes,
                      struct mdapl_err *err)
{
    char right[128];
    int64_t n;

    if (get_number(value, suffixes, &n) && n >= r->min && n <= r->max) {
        *(int64_t *)field = n;
        return 0;
    }
    snprintf(right, sizeof(right), "a number%s from %lld to %lld%s", *suffixes ? " of bytes" : "",
             (long long)r->min, (long long)r->max,
             *suffixes ? "; a suffix k, m or g multiplies by 1024, 1024^2 or 1024^3" : "");
    return wrong(err, r, value, right);
}

static int set_int(const struct row *r, void *field, const char *value, struct mdapl_err *err)
{
    return set_number(r, field, value, "", err);
}

static int set_bytes(const struct row *r, void *field, const char *value, struct mdapl_err *err)
{
    return set_number(r, field, value, "kmg", err);
}

static int set_enum(const struct row *r, void *field, const char *value, struct mdapl_err *err)
{
    int i = find_word(r->words, value);
    char right[128];

    if (i >= 0) {
        *(int *)field = i;
        return 0;
    }
    snprintf(right, sizeof(right), "one of %s", r->words);
    return wrong(err, r, value, right);
}

static int set_str(const struct row *r, void *field, const char *value, struct mdapl_err *err)
{
    if (strlen(value) >= STR_MAX)
        return wrong(err, r, value, "shorter than 256 characters");
    strcpy(field, value);
    return 0;
}

/* Is value a list of names with single commas between them? If words is not empty, each name is one
 * of words and occurs once. */
static bool is_list(const char *value, const char *words)
{
    unsigned seen = 0;
    const char *at = value;

    for (;; at++) {
        size_t len = strcspn(at, ",");
        char name[STR_MAX];
        int i = 0;

        snprintf(name, sizeof(name), "%.*s", (int)len, at);
        if (len == 0 || strpbrk(name, " \t"))
            return false;
        if (*words && ((i = find_word(words, name)) < 0 || (seen & 1u << i)))
            return false;
        seen |= 1u << i;
        at += len;
        if (!*at)
            return true;
    }
}

static int set_list(const struct row *r, void *field, const char *value, struct mdapl_err *err)
{
    char right[160];

    if (!*value || is_list(value, r->words))
        return set_str(r, field, value, err);
    snprintf(right, sizeof(right), "empty, or names%s%s with single commas between them%s",
             *r->words ? " of " : "", r->words, *r->words ? ", each once" : "");
    return wrong(err, r, value, right);
}

#define ROW(name, set, def, words, min, max) \
    { #name, set, offsetof(struct mdapl_cfg, name), def, words, min, max },
#define KNOB_INT(name, def, min, max, help) ROW(name, set_int, #def, NULL, min, max)
#define KNOB_BYTES(name, def, min, max, help) ROW(name, set_bytes, #def, NULL, min, max)
#define KNOB_STR(name, def, help) ROW(name, set_str, def, NULL, 0, 0)
#define KNOB_LIST(name, words, help) ROW(name, set_list, "", words, 0, 0)
#define KNOB_ENUM(name, def, words, help) ROW(name, set_enum, def, words, 0, 0)
static const struct row rows[] = {
#include "knobs.def"
};

static const size_t n_rows = sizeof(rows) / sizeof(rows[0]);

static int set_row(struct mdapl_cfg *cfg, const struct row *r, const char *value,
                   struct mdapl_err *err)
{
    return r->set(r, (char *)cfg + r->offset, value, err);
}

void mdapl_cfg_init(struct mdapl_cfg *cfg)
{
    struct mdapl_err err;

    memset(cfg, 0, sizeof(*cfg));
    for (size_t i = 0; i < n_rows; i++)
        set_row(cfg, &rows[i], rows[i].def, &err);
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
        if (value && set_row(cfg, &rows[i], value, err))
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
