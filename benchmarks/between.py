# SPDX-License-Identifier: MIT
"""Measurements between two hosts, which are network namespaces of this machine with a cable between them: rank 0 on
one, rank 1 on the other, all MPIs over TCP, in turns in which they alternate."""
import pathlib
import shlex
import tempfile

from hosts import Hosts
from measure import TOP, across, cell, middle, keep, printed, ratio, say, size_name, table

ENTER = TOP / "test/hosts/enter"
WIRE = "p0"                              # the end of the cable, on both hosts
OVER_TCP = {"UCX_TLS": "tcp,self"}       # UCX takes two hosts of one system for one, and shares memory


def count(test, size):
    """Operations, or sixteens of them, that take some tenths of a second."""
    each = 16 * size if test.endswith("bw") else size
    return max(10, min(2000, (64 << 20) // each))


def measured(mpis, name, figures, network, reps):
    """{(MPI, test, bytes): [numbers]} of the program benchmarks/NAME.c. figures: {test: title, sizes, unit}."""
    v = {}
    with tempfile.TemporaryDirectory() as work, Hosts(network) as hosts:
        pathlib.Path(work).chmod(0o755)
        programs = {title: mpi.compiled(name, work) for title, mpi in mpis.items()}

        def figure(title, test, size):
            words = [*across(mpis[title], ENTER, WIRE, (hosts.a, hosts.b)), programs[title], test, size,
                     count(test, size)]
            return printed([ENTER, hosts.a, " ".join(shlex.quote(str(w)) for w in words)],
                           dict(mpis[title].env, **OVER_TCP))
        for rep in range(1, reps + 1):
            for test, (_, sizes, _) in figures.items():
                say(f"turn {rep} of {reps}, {test}")
                for size in sizes:
                    keep(v, {(title, test, size): figure(title, test, size) for title in mpis})
    return v


def figure_text(v, titles, test, figure):
    """The table of a test; titles: of the MPIs, ours first; where one begins with that it is ours in another way."""
    title, sizes, unit = figure
    rows = []
    for size in sizes:
        all_of = [middle(v, (t, test, size)) for t in titles]
        others = [x for t, x in zip(titles, all_of) if x and not t.startswith(titles[0])]
        best = (max if unit == "MB/s" else min)(others) if others else None
        rows.append([size_name(size), *map(cell, all_of), cell(ratio(all_of[0], best), 2)])
    return f"## {title}, {unit}\n\n" + table(["bytes", *titles, f"{titles[0]} / best other"], rows) + "\n"


def text_of(v, titles, figures):
    return "".join(figure_text(v, titles, test, figure) for test, figure in figures.items())
