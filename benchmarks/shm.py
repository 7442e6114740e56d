# SPDX-License-Identifier: MIT
"""Ranks of one host: ch3:dapl in shared memory beside MPICH's ch3:nemesis of the same source and flags, Debian's MPICH
and Debian's Open MPI as it is and on UCX; and what the machine itself allows. The results have a part for each
processor on which it was run: a run replaces its own and keeps the others. README.md's tables are made from them."""
import copy
import json
import math
import pathlib
import re
import statistics
import subprocess
import tempfile

from measure import (BUILD, LINE_PERF, RESULTS, TOP, by_words, cell, dapl, debian, die, far_from, keep, line, machine,
                     middle, mpich, near_cores, plot, printed, ratio, save_raw, say, size_name, table, target_text,
                     targets, turn, verdict)

OURS = "ch3:dapl"
LATENCY = [0] + [1 << n for n in range(23)]
BANDWIDTH = [1 << n for n in range(10, 23)]
FIGURES = {                              # of two ranks. test of mpi_perf: title and unit, sizes, bound, it is the most
    "lat": ("Latency, us (half a round trip)", LATENCY, 0.85, True),
    "bw": ("Bandwidth, MB/s", BANDWIDTH, 1.1, False),
    "bibw": ("Bandwidth in both directions together, MB/s", BANDWIDTH, 1.1, False),
    "rate": ("Message rate, millions per second", [8], 1.2, False),
}
LIMITS = {"lat": "message", "bw": "memcpy"}      # tests of line_perf
CONNECT_RANKS, MEMORY_RANKS = 32, 64
TRIES = 3                                # for two near cores


# -- the MPIs ----------------------------------------------------------------------------------------

def nemesis():
    """MPICH's own device, configured and compiled as ours is (tools/steps.sh); built once, in build/nemesis."""
    where = BUILD.parent / "nemesis"
    if (where / "built").exists():
        say("ch3:nemesis is there, in build/nemesis (remove it, and it is built again)")
    else:
        say("ch3:nemesis is built, once: this takes some minutes")
        steps = 'set -eu; top=$1; . "$top/tools/steps.sh"; build_mpich nemesis ch3:nemesis "$2"'
        if subprocess.run(["bash", "-c", steps, "bash", TOP, where]).returncode:
            die("ch3:nemesis was not built")
        (where / "built").touch()
    return mpich("nemesis", where)


def on_ucx(openmpi):
    mpi = copy.copy(openmpi)
    mpi.word, mpi.options = "openmpi-ucx", ["--mca", "pml", "ucx", "--mca", "osc", "ucx"]
    mpi.env = dict(mpi.env, OMPI_MCA_pml_ucx_tls="any", OMPI_MCA_pml_ucx_devices="any")
    return mpi


def all_mpis():
    mpis = {OURS: dapl(), "ch3:nemesis": nemesis(), **debian()}
    if "Debian's Open MPI" in mpis:
        mpis["Open MPI, UCX"] = on_ucx(mpis["Debian's Open MPI"])
    return mpis


class Programs:
    """What is run on one MPI."""

    def __init__(self, mpi, work):
        self.mpi = mpi
        self.perf, self.local = (mpi.compiled(name, work) for name in ("mpi_perf", "mpi_local"))

    def between_two(self, test, size, cores):
        return lambda: printed([*self.mpi.start(2, cores), self.perf, test, size, count(test, size),
                                window(test, size)], self.mpi.env)

    def together(self, ranks, cores=()):
        return lambda: printed([*self.mpi.start(ranks, cores), self.local], self.mpi.env)

    def check(self, title, cores):
        """Is it on the cores that it was told, and in shared memory? What it said."""
        said = self.together(2, cores)()
        if said is None or said["cores"] != [str(c) for c in cores] or said["tcp_share"] > 0.01:
            die(f"{title} is not on cores {cores[0]} and {cores[1]}, or not in shared memory: {said}")
        return said


# -- measuring ---------------------------------------------------------------------------------------

def window(test, size):
    """Messages under way."""
    return 1 if test == "lat" else 64 if size <= 65536 else 16


def count(test, size):
    """Round trips or windows that take some tenths of a second."""
    if test == "lat":
        return max(200, min(200000, (1 << 30) // max(size, 1)))
    return max(20, min(20000, (1 << 32) // (size * window(test, size))))


def limit(test, size, cores):
    times = min(200000, (1 << 30) // max(size, 1))
    return lambda: printed([LINE_PERF, "-c", "%d,%d" % cores, LIMITS[test], max(size, 1), times, window(test, size)])


def two_ranks(programs, test, size, cores):
    """All MPIs at one size, and the machine."""
    p = {(title, test, size): x.between_two(test, size, cores) for title, x in programs.items()}
    if test in LIMITS:
        p[("limit", test, size)] = limit(test, size, cores)
    return p


def many_ranks(programs):
    return {(title, "together", n): x.together(n) for n in (CONNECT_RANKS, MEMORY_RANKS)
            for title, x in programs.items()}


def measured(programs, reps):
    """{key: [values]}. The host moves cores: each size has the pair that is near while it is measured."""
    v = {}
    nearest = math.inf
    for rep in range(1, reps + 1):
        for test, size in [(test, size) for test, figure in FIGURES.items() for size in figure[1]]:
            for _ in range(TRIES):
                cores, near = near_cores()
                nearest = min(near, nearest)
                got = turn(two_ranks(programs, test, size, cores), lambda c=cores: line(c), far_from(nearest),
                           f"turn {rep} of {reps}, {test} {size_name(size)}")
                if got:
                    keep(v, {**got, ("line",): near, ("cores", test, size): list(cores)})
                    break
        keep(v, turn(many_ranks(programs), lambda: 0, 1, f"turn {rep} of {reps}, many ranks"))
    return v


# -- what comes out ----------------------------------------------------------------------------------

ABOUT = ("processors: by name and number of cores; values: latency us, bandwidth MB/s (10^6), rate in millions per "
         "second; key: MPI or limit, test, bytes; cores: the pair of each turn; together: mpi_local, by ranks")
README_HEAD, README_END = "<!-- made by benchmarks/run shm --readme -->\n", "<!-- end -->\n"
README_ROWS = (                          # what: how it is found in the values
    ("latency 8 B, us", lambda v, t: at(v, t, "lat", 8)),
    ("latency 64 KiB, us", lambda v, t: at(v, t, "lat", 65536)),
    ("bandwidth 64 KiB, MB/s", lambda v, t: at(v, t, "bw", 65536)),
    ("bandwidth 4 MiB, MB/s", lambda v, t: at(v, t, "bw", 4 << 20)),
    ("both ways 64 KiB, MB/s", lambda v, t: at(v, t, "bibw", 65536)),
    ("both ways 4 MiB, MB/s", lambda v, t: at(v, t, "bibw", 4 << 20)),
    ("messages of 8 B, millions per second", lambda v, t: at(v, t, "rate", 8)),
    (f"memory of a process of {MEMORY_RANKS}, KiB", lambda v, t: many(v, t, MEMORY_RANKS, "pss_kib")),
    (f"{CONNECT_RANKS} ranks all to all, again, ms", lambda v, t: many(v, t, CONNECT_RANKS, "later_ms")),
)


def at(v, *key):
    """The median of what the results have under this key."""
    return middle(v, " ".join(map(str, key)))


def titles_of(v):
    """The MPIs that were measured, ours first."""
    return [key[:-len(" check")] for key in v if key.endswith(" check")]


def sizes_of(v, test):
    found = {re.fullmatch(rf"{re.escape(OURS)} {test} (\d+)", key) for key in v}
    return sorted(int(m[1]) for m in found if m)


def figure_rows(v, titles, test, better):
    """For each size: the MPIs, ours to the best of the others, the machine."""
    rows = []
    for size in sizes_of(v, test):
        all_of = [at(v, t, test, size) for t in titles]
        others = [x for x in all_of[1:] if x]
        rows.append((size, all_of, ratio(all_of[0], better(others)) if others else None, at(v, "limit", test, size)))
    return rows


def figure_text(v, titles, test):
    title, _, bound, highest = FIGURES[test]
    rows = figure_rows(v, titles, test, min if highest else max)
    limit_too = ["the machine"] if test in LIMITS else []
    return f"### {title}\n\n" + table(
        ["bytes", *titles, *limit_too, f"{OURS} / best other", target_text(bound, highest)],
        [[size_name(size)] + [cell(x) for x in all_of] + [cell(bare) for _ in limit_too]
         + [cell(share, 2), verdict(share, bound, highest)] for size, all_of, share, bare in rows]) + "\n"


def many(v, title, ranks, what):
    runs = [run[what] for run in v.get(f"{title} together {ranks}", [])]
    return statistics.median(runs) if runs else None


def many_text(v, titles):
    """Memory and rounds of many ranks."""
    def to_least(ranks, what):
        own, *others = (many(v, t, ranks, what) for t in titles)
        others = [x for x in others if x]
        return ratio(own, min(others)) if others else None
    asked = targets([(what, 1.0, True, to_least(*key)) for what, key in {
        f"memory of a process of {MEMORY_RANKS}, to the leanest other": (MEMORY_RANKS, "pss_kib"),
        f"first round of {CONNECT_RANKS} ranks, to the fastest other": (CONNECT_RANKS, "first_ms"),
        f"later rounds of {CONNECT_RANKS} ranks, to the fastest other": (CONNECT_RANKS, "later_ms")}.items()])
    held = [[t] + [cell(many(v, t, MEMORY_RANKS, w), 0) for w in ("pss_kib", "anon_kib", "bare_kib")] for t in titles]
    times = [[t] + [cell(many(v, t, n, w)) for n in (CONNECT_RANKS, MEMORY_RANKS) for w in ("first_ms", "later_ms")]
             for t in titles]
    return f"""### Many ranks

{asked}
Memory of a process, KiB, {MEMORY_RANKS} ranks that have all exchanged messages with each other:

{table(["", "Pss", "private", "Pss before MPI_Init"], held)}
A round in which each rank sends 8 bytes to each other one, ms:

{table([""] + [f"{n} ranks, {which}" for n in (CONNECT_RANKS, MEMORY_RANKS) for which in ("first", "later ones")],
       times)}
"""


def processor_text(name, part):
    v, how = part["values"], part["machine"]
    turns = max(len(v[key]) for key in v if key.startswith(f"{OURS} lat "))
    return f"""## {name}

Linux {how["kernel"]}, sources of {how["commit"]}; a cache line takes {cell(at(v, "line"))} us one way. Medians of
{turns} turns.

{"".join(figure_text(v, titles_of(v), test) for test in FIGURES)}{many_text(v, titles_of(v))}"""


def text_of(processors):
    return f"""# Shared memory

`benchmarks/run shm`: two ranks on two near cores; in each turn the MPIs alternate at each size. {OURS} with its
defaults; ch3:nemesis from the same source with the same flags; Debian's packages as they are, and its Open MPI on UCX.
Every number, and on which cores it was measured, is in shm.json, by processor: a run on another machine adds
to it. Each MPI was found on the cores that it was told and without a byte over TCP.

Bandwidths and the rate: 64 messages under way up to 64 KiB, 16 of the longer ones, each with a buffer of its own.
The machine: for latency, a body that one process copies into shared memory, with the word that announces it, and the
other one copies out; for bandwidth, one process that copies as many buffers (memcpy): an MPI with one copy can reach
it, with two that overlap come near to it.

Many ranks are more than there are cores, bound to none; Open MPI is told --oversubscribe. Memory is Pss: what only the
process has and its share of what processes share, after rounds in which each rank sends 8 bytes to each other one;
the median of the ranks. Nothing is subtracted: what it had before MPI_Init is shown. The time of a round is from
a barrier to the slowest rank's end.

{"".join(processor_text(name, part) for name, part in processors.items())}"""


def readme_tables(processors):
    """What README.md shows of each processor."""
    def one(name, v):
        titles = titles_of(v)
        rows = [[what] + [cell(find(v, t)) for t in titles] for what, find in README_ROWS]
        return f"\n{name} (a cache line takes {cell(at(v, 'line'))} us one way):\n\n" + table(["", *titles], rows)
    return "".join(one(name, part["values"]) for name, part in processors.items()) + "\n"


def results():
    """The parts of shm.json by processor."""
    file = RESULTS / "shm.json"
    return json.loads(file.read_text())["processors"] if file.exists() else {}


def write_readme(folder):
    """README.md with the tables of the results, and their own text shm.md, into this folder; without one, in place."""
    text = (TOP / "README.md").read_text()
    before, rest = text.split(README_HEAD)
    text = before + README_HEAD + readme_tables(results()) + README_END + rest.split(README_END)[1]
    for place, name, what in ((TOP, "README.md", text), (RESULTS, "shm.md", text_of(results()))):
        (pathlib.Path(folder or place) / name).write_text(what)


def draw(part, name, test, title, ylabel):
    v = part["values"]
    sizes = [s for s in sizes_of(v, test) if s]
    curves = {t: [at(v, t, test, s) for s in sizes] for t in titles_of(v)}
    curves["the machine"] = [at(v, "limit", test, s) for s in sizes]
    plot(name, title, ylabel, sizes, curves)


def keep_results(v):
    """Replaces this processor's part of the results; the plots are those of the processor that was measured last."""
    processors, how = results(), machine()
    name = f"{how['cpu']}, {how['cores']} cores"
    processors[name] = {"machine": how, "values": by_words(v)}
    save_raw("shm", {"about": ABOUT, "processors": processors}, text_of(processors))
    write_readme(None)
    draw(processors[name], "shm-latency", "lat", f"Two ranks of one host: {name}", "us, one way")
    draw(processors[name], "shm", "bw", f"Two ranks of one host: {name}", "MB/s")


def run(reps):
    if not LINE_PERF.exists():
        die("no benchmarks/line_perf in build/ours: ./check unit builds it")
    mpis = all_mpis()
    cores, near = near_cores()
    say(f"cores {cores[0]} and {cores[1]}: a cache line takes {near:.3f} us one way")
    with tempfile.TemporaryDirectory() as work:
        programs = {title: Programs(mpi, work) for title, mpi in mpis.items()}
        v = {(title, "check"): [x.check(title, cores)] for title, x in programs.items()}
        v.update(measured(programs, reps))
    keep_results(v)
