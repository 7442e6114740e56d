/* SPDX-License-Identifier: MIT */
/* Knobs and counters: every row, and the line for a wrong value. */
#include "unit.h"

#include "cfg.h"
#include "err.h"
#include "stats.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rows once more, to be walked at run time. */
static const struct { const char *name; int64_t def, min, max; } ints[] = {
#define KNOB_INT(name, def, min, max, help) { #name, def, min, max },
#define KNOB_BYTES(name, def, min, max, help) { #name, def, min, max },
#define KNOB_STR(name, def, help)
#define KNOB_LIST(name, words, help)
#define KNOB_ENUM(name, def, words, help)
#include "knobs.def"
#undef KNOB_INT
#undef KNOB_BYTES
#undef KNOB_STR
#undef KNOB_LIST
#undef KNOB_ENUM
};

static const char *const helps[] = {
#define KNOB_INT(name, def, min, max, help) help,
#define KNOB_BYTES(name, def, min, max, help) help,
#define KNOB_STR(name, def, help) help,
#define KNOB_LIST(name, words, help) help,
#define KNOB_ENUM(name, def, words, help) help,
#include "knobs.def"
#undef KNOB_INT
#undef KNOB_BYTES
#undef KNOB_STR
#undef KNOB_LIST
#undef KNOB_ENUM
};

static void bounds_of_every_number(void **state)
{
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    char text[32];

    (void)state;
    mdapl_cfg_init(&cfg);
    for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++) {
        assert_in_range(ints[i].def - ints[i].min, 0, ints[i].max - ints[i].min);
        snprintf(text, sizeof(text), "%" PRId64, ints[i].min);
        assert_int_equal(mdapl_cfg_set(&cfg, ints[i].name, text, &err), 0);
        snprintf(text, sizeof(text), "%" PRId64, ints[i].max);
        assert_int_equal(mdapl_cfg_set(&cfg, ints[i].name, text, &err), 0);
        snprintf(text, sizeof(text), "%" PRId64, ints[i].min - 1);
        assert_int_equal(mdapl_cfg_set(&cfg, ints[i].name, text, &err), -EINVAL);
        snprintf(text, sizeof(text), "%" PRId64, ints[i].max + 1);
        assert_int_equal(mdapl_cfg_set(&cfg, ints[i].name, text, &err), -EINVAL);
    }
}

/* The line names each wrong value and the right ones, and the knob does not change. */
static void wrong_values(void **state)
{
    static const char window[] = "a number from 2 to 4096";
    static const char vbuf[] = "a number of bytes from 512 to 1048576; a suffix k, m or g "
                               "multiplies by 1024, 1024^2 or 1024^3";
    static const char cache[] = "a number of bytes from 0 to 1099511627776; a suffix k, m or g "
                                "multiplies by 1024, 1024^2 or 1024^3";
    static const char wiring[] = "one of auto|ring|ondemand|thread";
    static const char ia[] = "empty, or names with single commas between them";
    static const char channels[] = "empty, or names of shm|dapl with single commas between them, "
                                   "each once";
    static const struct { const char *name, *value, *right; } row[] = {
        { "SR_WINDOW", "1", window },
        { "SR_WINDOW", "", window },
        { "SR_WINDOW", " ", window },
        { "SR_WINDOW", "abc", window },
        { "SR_WINDOW", "4 ", window },
        { "SR_WINDOW", " 4", window },
        { "SR_WINDOW", "+4", window },
        { "SR_WINDOW", "-4", window },
        { "SR_WINDOW", "0x10", window },
        { "SR_WINDOW", "1k", window },
        { "SR_WINDOW", "4294967300", window },
        { "VBUF_SIZE", "", vbuf },
        { "VBUF_SIZE", "8x", vbuf },
        { "VBUF_SIZE", "4q", vbuf },
        { "VBUF_SIZE", "1kk", vbuf },
        { "VBUF_SIZE", "k", vbuf },
        { "VBUF_SIZE", "0x1000", vbuf },
        { "VBUF_SIZE", "99999999999999999999", vbuf },
        { "REG_CACHE_BYTES", "1025g", cache },
        { "REG_CACHE_BYTES", "9223372036854775807k", cache },
        { "REG_CACHE_BYTES", "-1", cache },
        { "REG_CACHE_BYTES", "-1k", cache },
        { "WIRING", "thread ", wiring },
        { "WIRING", "rin", wiring },
        { "WIRING", "", wiring },
        { "IA", ",", ia },
        { "IA", " ", ia },
        { "IA", "a,,b", ia },
        { "IA", "a,", ia },
        { "IA", ",a", ia },
        { "IA", "a, b", ia },
        { "CHANNELS", ",", channels },
        { "CHANNELS", "shm,tcp", channels },
        { "CHANNELS", "shm,shm", channels },
        { "CHANNELS", "shm,", channels },
        { "CHANNELS", "SHM", channels },
    };
    struct mdapl_cfg cfg, before;
    struct mdapl_err err;
    char line[256], name[32];

    (void)state;
    mdapl_cfg_init(&cfg);
    before = cfg;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        for (size_t j = 0; j <= strlen(row[i].name); j++)
            name[j] = (char)tolower((unsigned char)row[i].name[j]);
        assert_int_equal(mdapl_cfg_set(&cfg, name, row[i].value, &err), -EINVAL);
        snprintf(line, sizeof(line), "MPIR_CVAR_DAPL_%s=\"%s\" is not possible: it must be %s",
                 row[i].name, row[i].value, row[i].right);
        assert_string_equal(err.text, line);
    }
    assert_memory_equal(&cfg, &before, sizeof(cfg));
    assert_int_equal(mdapl_cfg_set(&cfg, "nonsense", "1", &err), -ENOENT);
}

static void right_values(void **state)
{
    struct mdapl_cfg cfg;
    struct mdapl_err err;
    char word[300];

    (void)state;
    mdapl_cfg_init(&cfg);
    assert_int_equal(cfg.wiring, MDAPL_WIRING_AUTO);
    assert_int_equal(cfg.vbuf_size, 16640);
    assert_string_equal(cfg.ia, "");
    assert_int_equal(mdapl_cfg_set(&cfg, "vbuf_size", "64k", &err), 0);
    assert_int_equal(cfg.vbuf_size, 65536);
    assert_int_equal(mdapl_cfg_set(&cfg, "rndv_segment", "1M", &err), 0);
    assert_int_equal(cfg.rndv_segment, 1 << 20);
    assert_int_equal(mdapl_cfg_set(&cfg, "reg_cache_bytes", "4294967297", &err), 0);
    assert_int_equal(cfg.reg_cache_bytes, 4294967297);
    assert_int_equal(mdapl_cfg_set(&cfg, "reg_cache_bytes", "1024g", &err), 0);
    assert_int_equal(cfg.reg_cache_bytes, (int64_t)1 << 40);
    assert_int_equal(mdapl_cfg_set(&cfg, "shm_single_bytes", "-1", &err), 0);
    assert_int_equal(cfg.shm_single_bytes, -1);
    assert_int_equal(mdapl_cfg_set(&cfg, "ack_frames", "010", &err), 0);
    assert_int_equal(cfg.ack_frames, 10);
    assert_int_equal(mdapl_cfg_set(&cfg, "channels", "dapl,shm", &err), 0);
    assert_string_equal(cfg.channels, "dapl,shm");
    assert_int_equal(mdapl_cfg_set(&cfg, "channels", "", &err), 0);
    assert_string_equal(cfg.channels, "");
    assert_int_equal(mdapl_cfg_set(&cfg, "ia", "soft0,soft0", &err), 0);
    assert_int_equal(mdapl_cfg_set(&cfg, "ia", "ofa-v2-mlx4_0-1", &err), 0);
    assert_string_equal(cfg.ia, "ofa-v2-mlx4_0-1");
    memset(word, 'x', sizeof(word));
    word[255] = '\0';
    assert_int_equal(mdapl_cfg_set(&cfg, "ia", word, &err), 0);
    word[255] = 'x';
    word[256] = '\0';
    assert_int_equal(mdapl_cfg_set(&cfg, "ia", word, &err), -EINVAL);
}

/* The enums of cfg.h are the words of their row, in their order. */
static void words_are_enums(void **state)
{
    static const struct { const char *name, *word; int value; size_t at; } row[] = {
        { "wiring", "auto", MDAPL_WIRING_AUTO, offsetof(struct mdapl_cfg, wiring) },
        { "wiring", "ring", MDAPL_WIRING_RING, offsetof(struct mdapl_cfg, wiring) },
        { "wiring", "ondemand", MDAPL_WIRING_ONDEMAND, offsetof(struct mdapl_cfg, wiring) },
        { "wiring", "thread", MDAPL_WIRING_THREAD, offsetof(struct mdapl_cfg, wiring) },
        { "ring", "auto", MDAPL_RING_AUTO, offsetof(struct mdapl_cfg, ring) },
        { "ring", "on", MDAPL_RING_ON, offsetof(struct mdapl_cfg, ring) },
        { "ring", "off", MDAPL_RING_OFF, offsetof(struct mdapl_cfg, ring) },
        { "reg_cache", "auto", MDAPL_REG_CACHE_AUTO, offsetof(struct mdapl_cfg, reg_cache) },
        { "reg_cache", "on", MDAPL_REG_CACHE_ON, offsetof(struct mdapl_cfg, reg_cache) },
        { "reg_cache", "off", MDAPL_REG_CACHE_OFF, offsetof(struct mdapl_cfg, reg_cache) },
        { "suppress", "on", MDAPL_SUPPRESS_ON, offsetof(struct mdapl_cfg, suppress) },
        { "suppress", "off", MDAPL_SUPPRESS_OFF, offsetof(struct mdapl_cfg, suppress) },
        { "summary", "off", MDAPL_SUMMARY_OFF, offsetof(struct mdapl_cfg, summary) },
        { "summary", "first", MDAPL_SUMMARY_FIRST, offsetof(struct mdapl_cfg, summary) },
        { "summary", "all", MDAPL_SUMMARY_ALL, offsetof(struct mdapl_cfg, summary) },
        { "ft", "on", MDAPL_FT_ON, offsetof(struct mdapl_cfg, ft) },
        { "ft", "off", MDAPL_FT_OFF, offsetof(struct mdapl_cfg, ft) },
        { "ia_use", "share", MDAPL_IA_USE_SHARE, offsetof(struct mdapl_cfg, ia_use) },
        { "ia_use", "spare", MDAPL_IA_USE_SPARE, offsetof(struct mdapl_cfg, ia_use) },
        { "events", "lost", MDAPL_EVENTS_LOST, offsetof(struct mdapl_cfg, events) },
        { "events", "signal", MDAPL_EVENTS_SIGNAL, offsetof(struct mdapl_cfg, events) },
        { "retain", "on", MDAPL_RETAIN_ON, offsetof(struct mdapl_cfg, retain) },
        { "retain", "off", MDAPL_RETAIN_OFF, offsetof(struct mdapl_cfg, retain) },
        { "rndv", "rget", MDAPL_RNDV_RGET, offsetof(struct mdapl_cfg, rndv) },
        { "rndv", "rput", MDAPL_RNDV_RPUT, offsetof(struct mdapl_cfg, rndv) },
        { "rndv", "copy", MDAPL_RNDV_COPY, offsetof(struct mdapl_cfg, rndv) },
    };
    struct mdapl_cfg cfg;
    struct mdapl_err err;

    (void)state;
    mdapl_cfg_init(&cfg);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        assert_int_equal(mdapl_cfg_set(&cfg, row[i].name, row[i].word, &err), 0);
        assert_int_equal(*(int *)(void *)((char *)&cfg + row[i].at), row[i].value);
    }
}

static void environment(void **state)
{
    struct mdapl_cfg cfg;
    struct mdapl_err err;

    (void)state;
    setenv("MPIR_CVAR_DAPL_SR_WINDOW", "7", 1);
    assert_int_equal(mdapl_cfg_env(&cfg, &err), 0);
    assert_int_equal(cfg.sr_window, 7);
    setenv("MPIR_CVAR_DAPL_SR_WINDOW", "0", 1);
    assert_int_equal(mdapl_cfg_env(&cfg, &err), -EINVAL);
    setenv("MPIR_CVAR_DAPL_SR_WINDOW", "", 1);
    assert_int_equal(mdapl_cfg_env(&cfg, &err), -EINVAL);
    unsetenv("MPIR_CVAR_DAPL_SR_WINDOW");
}

static void every_knob_has_help(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(helps) / sizeof(helps[0]); i++)
        assert_true(strlen(helps[i]) > 20);
}

static void counters(void **state)
{
    struct mdapl_stats s = { .tx_msgs = 3, .bad_frames = 1 };
    const struct mdapl_stats_row *row;
    char text[4096];
    size_t n;

    (void)state;
    row = mdapl_stats_rows(&n);
    assert_int_equal(n * sizeof(uint64_t), sizeof(s));
    assert_string_equal(row[0].name, "tx_msgs");
    mdapl_stats_print(&s, text, sizeof(text));
    assert_string_equal(text, "tx_msgs          3 messages\nbad_frames       1 frames\n");
    mdapl_stats_max(&s.retained_max, 5);
    mdapl_stats_max(&s.retained_max, 4);
    assert_int_equal(s.retained_max, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_of_every_number),
        cmocka_unit_test(wrong_values),
        cmocka_unit_test(right_values),
        cmocka_unit_test(words_are_enums),
        cmocka_unit_test(environment),
        cmocka_unit_test(every_knob_has_help),
        cmocka_unit_test(counters),
    };

    return RUN(tests);
}
