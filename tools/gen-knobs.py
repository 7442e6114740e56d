#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes everything else from the rows of knobs.def and stats.def.

gen-knobs.py --mpich DIR   mdapl_knobs.h/.c and mdapl_pvars.c for src/mpid inside MPICH's tree:
                           MPICH's control variables (its extractcvars reads the comment block),
                           the table of them, the counters as performance variables
gen-knobs.py --docs FILE   the tables for people
gen-knobs.py --man FILE    mpich-dapl.7, from docs/mpich-dapl.7.in
"""
import argparse
import os
import re
import textwrap

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LICENCE = "/* SPDX-License-Identifier: MIT */\n/* Made by tools/gen-knobs.py from the .def files. */\n"

TEXT = r'"((?:[^"\\]|\\.)*)"'
NUMBERS = r"(-?\d+), *(-?\d+), *(-?\d+)"
KINDS = {
    "INT": re.compile(rf"(\w+), *{NUMBERS}, *{TEXT}"),
    "BYTES": re.compile(rf"(\w+), *{NUMBERS}, *{TEXT}"),
    "STR": re.compile(rf"(\w+), *{TEXT}, *{TEXT}"),
    "LIST": re.compile(rf"(\w+), *{TEXT}, *{TEXT}"),
    "ENUM": re.compile(rf"(\w+), *{TEXT}, *{TEXT}, *{TEXT}"),
}
COUNTER = re.compile(r'^COUNTER\((\w+), *"([^"]*)", *"([^"]*)"\)', re.M)


def read(name):
    with open(os.path.join(TOP, name)) as f:
        return f.read()


def knob(kind, args):
    """A row as (name, default, right values, help)."""
    m = KINDS[kind].fullmatch(args) if kind in KINDS else None
    if not m:
        raise SystemExit(f"knobs.def has a row that gen-knobs.py does not understand: {args}")
    name, *rest, text = m.groups()
    if kind == "LIST":
        return name, "", f"names of {rest[0]}" if rest[0] else "names", text
    if kind == "STR":
        return name, rest[0], "text", text
    if kind == "ENUM":
        return name, rest[0], rest[1].replace("|", ", "), text
    unit = " bytes; k, m, g" if kind == "BYTES" else ""
    return name, rest[0], f"{rest[1]} to {rest[2]}{unit}", text


def knobs():
    text = read("src/util/knobs.def")
    rows = re.findall(r"^KNOB_(\w+)\((.*)\)$", text, re.M)
    if len(rows) != len(re.findall(r"^KNOB_", text, re.M)):
        raise SystemExit("knobs.def has a row that does not end on its line")
    return [knob(kind, args) for kind, args in rows]


def counters():
    """Rows as (name, unit, what it counts, class of MPI_T), the class by the name's ending."""
    text = read("src/util/stats.def")
    rows = COUNTER.findall(text)
    if len(rows) != len(re.findall(r"^COUNTER\(", text, re.M)):
        raise SystemExit("stats.def has a row that gen-knobs.py does not understand")
    classes = {"max": "HIGHWATERMARK", "us": "TIMER"}
    return [(*row, classes.get(row[0].rsplit("_", 1)[-1], "COUNTER")) for row in rows]


def cvar(row):
    name, default, _, text = row
    text = textwrap.fill(text, 80, initial_indent="        ", subsequent_indent="        ")
    return (f"    - name        : MPIR_CVAR_DAPL_{name.upper()}\n"
            f"      category    : CH3\n"
            f"      type        : string\n"
            f"      default     : {default or 'NULL'}\n"
            f"      class       : none\n"
            f"      verbosity   : MPI_T_VERBOSITY_USER_BASIC\n"
            f"      scope       : MPI_T_SCOPE_LOCAL\n"
            f"      description : >-\n{text}\n")


def knobs_c(rows):
    out = [LICENCE, '#include "mpidi_ch3_impl.h"\n#include "mdapl_knobs.h"\n\n'
           "/*\n=== BEGIN_MPI_T_CVAR_INFO_BLOCK ===\n\ncvars:\n"]
    out += [cvar(r) + "\n" for r in rows]
    out.append("=== END_MPI_T_CVAR_INFO_BLOCK ===\n*/\n\nconst struct mdapl_knob mdapl_knobs[] = {\n")
    for name, *_ in rows:
        upper = f"MPIR_CVAR_DAPL_{name.upper()}"
        out.append(f'    {{ "{name}", "{upper}", &{upper} }},\n')
    out.append("    { NULL, NULL, NULL }\n};\n")
    return "".join(out)


def pvars_c(rows):
    # MPICH has no macro for a timer that is a number of ours, so all are registered by the function
    # below its macros. Its class for the largest value so far, too, reads a plain number.
    out = [LICENCE, '#include "mpidi_ch3_impl.h"\n#include "mdapl_knobs.h"\n#include "stats.h"\n\n'
           "void mdapl_pvars_register(struct mdapl_stats *stats)\n{\n"]
    for name, unit, text, kind in rows:
        out.append(f"    PVAR_GATED_ACTION(DAPL, MPIR_T_PVAR_REGISTER_impl(\n"
                   f"        MPI_T_PVAR_CLASS_{kind}, MPI_UNSIGNED_LONG_LONG, \"dapl_{name}\", &stats->{name}, 1,\n"
                   f"        MPI_T_ENUM_NULL, MPI_T_VERBOSITY_USER_DETAIL, MPI_T_BIND_NO_OBJECT,\n"
                   f"        MPIR_T_PVAR_FLAG_READONLY | MPIR_T_PVAR_FLAG_CONTINUOUS,\n"
                   f"        mdapl_ch3_pvar_read, NULL, \"CH3\",\n"
                   f'        "{text} ({unit})"));\n')
    out.append("}\n")
    return "".join(out)


KNOBS_H = LICENCE + """#ifndef MDAPL_KNOBS_H
#define MDAPL_KNOBS_H
#include "cfg.h"
#include "err.h"

struct mdapl_ch3_glue;
struct mdapl_stats;

/* A knob and its control variable, which MPICH has filled from the environment. */
struct mdapl_knob {
    const char *name, *cvar;
    const char **value;      /* NULL: the empty text */
};
/* All of them, and a row of NULLs. */
extern const struct mdapl_knob mdapl_knobs[];

/* cvars.c: the knobs from the control variables. 0, or -1 with the line in err. */
int mdapl_ch3_cfg_from_cvars(struct mdapl_ch3_glue *g, struct mdapl_err *err);
/* Has MPI_T written a knob that takes effect while the job runs? owner: the glue. */
void mdapl_ch3_cvars_look(void *owner);
/* The counters as MPI_T performance variables dapl_<name>; stats has to last as long as MPI_T. */
void mdapl_pvars_register(struct mdapl_stats *stats);
/* MPI_T's callback for all of them (init.c). */
void mdapl_ch3_pvar_read(void *counter, void *object, int count, void *buf);

#endif
"""


DOCS = """<!-- Made by tools/gen-knobs.py from src/util/knobs.def and src/util/stats.def. -->
# Knobs and counters

## Knobs

Set `MPIR_CVAR_DAPL_<NAME>` in the environment. A number is decimal; where k, m, g stands, one of these letters
behind it, in either case, multiplies by 1024, 1024^2 or 1024^3. A wrong value ends MPI_Init with one line that names
the knob, the value and what is right, in a job of one rank as well.

| MPIR_CVAR_DAPL_ | default | possible | what it does |
|---|---|---|---|
{knobs}
For MPI_T each is a control variable of characters. A value other than the default that a program writes between
MPI_T_init_thread and MPI_Init has precedence over the environment. Until MPI_Init one that was not written reads as its
default (so do all of MPICH's text variables), from then on as the value in effect.

## Counters

MPI_T performance variables of the category CH3, all MPI_UNSIGNED_LONG_LONG, continuous and read-only, from MPI_Init on.

| name | class | unit | what it counts |
|---|---|---|---|
{counters}"""


def docs(rows, stats):
    return DOCS.format(
        knobs="".join(f"| {name.upper()} | {default or '(empty)'} | {right.replace('|', ', ')} | {text} |\n"
                      for name, default, right, text in rows),
        counters="".join(f"| dapl_{name} | {kind} | {unit} | {text} |\n" for name, unit, text, kind in stats))


def roff(text):
    """Text as roff takes it; a line must not begin with a dot or an apostrophe."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text)


def man(rows, stats):
    knob_items = "".join(f".TP\n.B MPIR_CVAR_DAPL_{name.upper()}\n({roff(right.replace('|', ', '))}; default "
                         f"{roff(default) or 'empty'})\n{roff(text)}\n" for name, default, right, text in rows)
    counter_items = "".join(f".TP\n.B dapl_{name}\n{roff(text)} ({unit}; {kind}).\n"
                            for name, unit, text, kind in stats)
    page = read("docs/mpich-dapl.7.in")
    return page.replace("@KNOBS@\n", knob_items).replace("@COUNTERS@\n", counter_items)


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
    p.add_argument("--man", metavar="FILE")
    a = p.parse_args()
    if a.mpich:
        put(os.path.join(a.mpich, "mdapl_knobs.h"), KNOBS_H)
        put(os.path.join(a.mpich, "mdapl_knobs.c"), knobs_c(knobs()))
        put(os.path.join(a.mpich, "mdapl_pvars.c"), pvars_c(counters()))
    if a.docs:
        put(a.docs, docs(knobs(), counters()))
    if a.man:
        put(a.man, man(knobs(), counters()))


if __name__ == "__main__":
    main()
