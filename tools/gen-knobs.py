#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes everything else from the rows of knobs.def and stats.def.

gen-knobs.py --mpich DIR   mdapl_knobs.h/.c and mdapl_pvars.c for src/mpid inside MPICH's tree:
                           MPICH's control variables (its extractcvars reads the comment block),
                           the knobs filled from them, the counters as performance variables
gen-knobs.py --docs FILE   the tables for people
"""
import argparse
import os
import re
import textwrap

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LICENCE = "/* SPDX-License-Identifier: MIT */\n/* Made by tools/gen-knobs.py from the .def files. */\n"

KNOB = re.compile(
    r'^KNOB_(INT)\((\w+), *(-?\d+), *(-?\d+), *(-?\d+), *"((?:[^"\\]|\\.)*)"\)'
    r'|^KNOB_(STR)\((\w+), *"([^"]*)", *"((?:[^"\\]|\\.)*)"\)'
    r'|^KNOB_(ENUM)\((\w+), *"([^"]*)", *"([^"]*)", *"((?:[^"\\]|\\.)*)"\)', re.M)
COUNTER = re.compile(r'^COUNTER\((\w+), *"([^"]*)", *"([^"]*)"\)', re.M)


def read(name):
    with open(os.path.join(TOP, "src/util", name)) as f:
        return f.read()


def knobs():
    """Rows as (name, kind, default, right values, help)."""
    text = read("knobs.def")
    rows = []
    for m in KNOB.finditer(text):
        g = m.groups()
        if g[0]:
            rows.append((g[1], "int", g[2], f"{g[3]} to {g[4]}", g[5]))
        elif g[6]:
            rows.append((g[7], "string", g[8], "text", g[9]))
        else:
            rows.append((g[11], "string", g[12], g[13].replace("|", ", "), g[14]))
    if len(rows) != len(re.findall(r"^KNOB_", text, re.M)):
        raise SystemExit("knobs.def has a row that gen-knobs.py does not understand")
    return rows


def counters():
    text = read("stats.def")
    rows = COUNTER.findall(text)
    if len(rows) != len(re.findall(r"^COUNTER\(", text, re.M)):
        raise SystemExit("stats.def has a row that gen-knobs.py does not understand")
    return rows


def cvar(row):
    name, kind, default, right, text = row
    text = textwrap.fill(text, 80, initial_indent="        ", subsequent_indent="        ")
    if kind == "string" and not default:
        default = "NULL"
    return (f"    - name        : MPIR_CVAR_DAPL_{name.upper()}\n"
            f"      category    : CH3\n"
            f"      type        : {kind}\n"
            f"      default     : {default}\n"
            f"      class       : none\n"
            f"      verbosity   : MPI_T_VERBOSITY_USER_BASIC\n"
            f"      scope       : MPI_T_SCOPE_LOCAL\n"
            f"      description : >-\n{text}\n")


def knobs_c(rows):
    out = [LICENCE, '#include "mpidi_ch3_impl.h"\n#include "mdapl_knobs.h"\n\n'
           "#include <stdio.h>\n\n/*\n=== BEGIN_MPI_T_CVAR_INFO_BLOCK ===\n\ncvars:\n"]
    out += [cvar(r) + "\n" for r in rows]
    out.append("=== END_MPI_T_CVAR_INFO_BLOCK ===\n*/\n\n")
    out.append("static int set_int(struct mdapl_cfg *cfg, const char *name, int value,\n"
               "                   struct mdapl_err *err)\n{\n    char text[32];\n\n"
               '    snprintf(text, sizeof(text), "%d", value);\n'
               "    return mdapl_cfg_set(cfg, name, text, err);\n}\n\n"
               "static int set_text(struct mdapl_cfg *cfg, const char *name, const char *value,\n"
               "                    struct mdapl_err *err)\n{\n"
               "    return value ? mdapl_cfg_set(cfg, name, value, err) : 0;\n}\n\n"
               "int mdapl_cfg_from_cvars(struct mdapl_cfg *cfg, struct mdapl_err *err)\n{\n"
               "    mdapl_cfg_init(cfg);\n    return ")
    calls = []
    for name, kind, *_ in rows:
        fn = "set_int" if kind == "int" else "set_text"
        calls.append(f'{fn}(cfg, "{name}", MPIR_CVAR_DAPL_{name.upper()}, err)')
    out.append("\n           || ".join(calls))
    out.append("\n           ? -1 : 0;\n}\n")
    return "".join(out)


def pvars_c(rows):
    out = [LICENCE, '#include "mpidi_ch3_impl.h"\n#include "mdapl_knobs.h"\n#include "stats.h"\n\n'
           "void mdapl_pvars_register(struct mdapl_stats *stats)\n{\n    (void)stats;\n"]
    for name, unit, text in rows:
        out.append(f"    MPIR_T_PVAR_COUNTER_REGISTER_DYNAMIC(DAPL, MPI_UNSIGNED_LONG_LONG, dapl_{name},\n"
                   f"        &stats->{name}, 1, MPI_T_VERBOSITY_USER_DETAIL, MPI_T_BIND_NO_OBJECT,\n"
                   f"        MPIR_T_PVAR_FLAG_READONLY | MPIR_T_PVAR_FLAG_CONTINUOUS, mdapl_pvar_read, NULL, \"CH3\",\n"
                   f'        "{text} ({unit})");\n')
    out.append("}\n")
    return "".join(out)


KNOBS_H = LICENCE + """#ifndef MDAPL_KNOBS_H
#define MDAPL_KNOBS_H
#include "cfg.h"
#include "err.h"

struct mdapl_stats;

/* The knobs from MPICH's control variables. 0, or -1 with the line in err. */
int mdapl_cfg_from_cvars(struct mdapl_cfg *cfg, struct mdapl_err *err);
/* The counters as MPI_T performance variables dapl_<name>; stats has to last as long as MPI_T. */
void mdapl_pvars_register(struct mdapl_stats *stats);
/* MPI_T's callback for all of them (init.c). */
void mdapl_pvar_read(void *counter, void *object, int count, void *buf);

#endif
"""


def docs(rows, stats):
    out = ["<!-- Made by tools/gen-knobs.py from src/util/knobs.def and src/util/stats.def. -->\n",
           "# Knobs and counters\n\n## Knobs\n\nSet `MPIR_CVAR_DAPL_<NAME>` in the environment. A wrong "
           "value ends MPI_Init with one line that names the knob, the value and what is right.\n\n"
           "| MPIR_CVAR_DAPL_ | default | possible | what it does |\n|---|---|---|---|\n"]
    for name, _, default, right, text in rows:
        out.append(f"| {name.upper()} | {default or '(empty)'} | {right} | {text} |\n")
    out.append("\n## Counters\n\nMPI_T performance variables of the category CH3; any MPI_T tool reads "
               "them.\n\n| name | unit | what it counts |\n|---|---|---|\n")
    for name, unit, text in stats:
        out.append(f"| dapl_{name} | {unit} | {text} |\n")
    return "".join(out)


def put(path, text):
    """Writes only what has changed: make goes by time stamps."""
    try:
        with open(path) as f:
            if f.read() == text:
                return
    except FileNotFoundError:
        pass
    with open(path, "w") as f:
        f.write(text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--mpich", metavar="DIR")
    p.add_argument("--docs", metavar="FILE")
    a = p.parse_args()
    if a.mpich:
        put(os.path.join(a.mpich, "mdapl_knobs.h"), KNOBS_H)
        put(os.path.join(a.mpich, "mdapl_knobs.c"), knobs_c(knobs()))
        put(os.path.join(a.mpich, "mdapl_pvars.c"), pvars_c(counters()))
    if a.docs:
        put(a.docs, docs(knobs(), counters()))


if __name__ == "__main__":
    main()
