/* SPDX-License-Identifier: MIT */
#ifndef MDAPL_CFG_H
#define MDAPL_CFG_H
/*
 * The knobs, as a struct made from knobs.def. Inside MPI the values are those of MPICH's control
 * variables; standalone programs and tests read the same environment names through
 * mdapl_cfg_env(). In both cases a wrong value is refused with one line that names the knob, the
 * value and the possible values.
 */
#include <stdint.h>

struct mdapl_err;

#define KNOB_INT(name, def, min, max, help) int64_t name;
#define KNOB_BYTES(name, def, min, max, help) int64_t name;
#define KNOB_STR(name, def, help) char name[256];
#define KNOB_LIST(name, words, help) char name[256];
#define KNOB_ENUM(name, def, words, help) int name;
struct mdapl_cfg {
#include "knobs.def"
};
#undef KNOB_INT
#undef KNOB_BYTES
#undef KNOB_STR
#undef KNOB_LIST
#undef KNOB_ENUM

/* The words of KNOB_ENUM rows, in the order of their row (test/unit/test_cfg.c checks it). */
enum mdapl_wiring {
    MDAPL_WIRING_AUTO, MDAPL_WIRING_RING, MDAPL_WIRING_ONDEMAND, MDAPL_WIRING_THREAD
};
enum mdapl_ring_mode { MDAPL_RING_AUTO, MDAPL_RING_ON, MDAPL_RING_OFF };
enum mdapl_suppress { MDAPL_SUPPRESS_ON, MDAPL_SUPPRESS_OFF };
enum mdapl_ft { MDAPL_FT_ON, MDAPL_FT_OFF };
enum mdapl_retain { MDAPL_RETAIN_ON, MDAPL_RETAIN_OFF };
enum mdapl_reg_cache { MDAPL_REG_CACHE_AUTO, MDAPL_REG_CACHE_ON, MDAPL_REG_CACHE_OFF };
enum mdapl_ia_use { MDAPL_IA_USE_SHARE, MDAPL_IA_USE_SPARE };
enum mdapl_events { MDAPL_EVENTS_OFF, MDAPL_EVENTS_LOST, MDAPL_EVENTS_SIGNAL };
enum mdapl_summary { MDAPL_SUMMARY_OFF, MDAPL_SUMMARY_FIRST, MDAPL_SUMMARY_ALL };
enum mdapl_path_back { MDAPL_PATH_BACK_ON, MDAPL_PATH_BACK_OFF };
enum mdapl_path_balance { MDAPL_PATH_BALANCE_ON, MDAPL_PATH_BALANCE_OFF };
enum mdapl_rndv_mode { MDAPL_RNDV_RGET, MDAPL_RNDV_RPUT, MDAPL_RNDV_COPY };

/* All knobs at their defaults. */
void mdapl_cfg_init(struct mdapl_cfg *cfg);
/*
 * Sets one knob by its name ("vbuf_size") from text ("16k"). 0, or with the line in err -EINVAL (a
 * wrong value; cfg is as before) or -ENOENT (no such knob).
 */
int mdapl_cfg_set(struct mdapl_cfg *cfg, const char *name, const char *value,
                  struct mdapl_err *err);
/* Defaults, then every MPIR_CVAR_DAPL_<NAME> of the environment. 0 or -EINVAL. */
int mdapl_cfg_env(struct mdapl_cfg *cfg, struct mdapl_err *err);
/* When a job of so many ranks connects; the result is never auto. */
enum mdapl_wiring mdapl_cfg_wiring(const struct mdapl_cfg *cfg, int ranks);

#endif
