# SPDX-License-Identifier: MIT
"""Ranks of one host: ch3:dapl in shared memory beside MPICH's ch3:nemesis of the same source and flags, Debian's MPICH
and Debian's Open MPI as it is and on UCX; and what the machine itself allows. The results have a part for each
processor on which it was run: a run replaces its own and keeps the others. README.md's tables are made from them."""
import copy
import itertools
import json
import math
import pathlib
import re
import statistics
import subprocess
import tempfile
import typing

from measure import (BUILD, LINE_PERF, RESULTS, TOP, by_words, cell, dapl, debian, die, keep, line, lines_printed,
                     machine, middle, mpich, near_cores, plot, printed, ratio, save_raw, say, size_name, table,
                     target_text, targets, verdict)

OURS = "ch3:dapl"
LATENCY = [0] + [1 << n for n in range(23)]
BANDWIDTH = [1 << n for n in range(10, 23)]
STREAM = [1 << n for n in range(10, 18)]
FEW, SWAP = 4, [1 << n for n in range(10, 21)]
FIGURES = {                              # of two ranks. what: title and unit, sizes, bound, it is the most
    "lat": ("Latency, us (half a round trip)", LATENCY, 0.85, True),
    "bw": ("Bandwidth, MB/s", BANDWIDTH, 1.1, False),
    "bibw": ("Bandwidth in both directions together, MB/s", BANDWIDTH, 1.1, False),
    "swap": (f"Bandwidth in both directions together, {FEW} messages under way each way, MB/s", SWAP, 1.1, False),
    "stream": ("Bandwidth of one message after the other, MB/s", STREAM, 1.1, False),
    "rate": ("Message rate, millions per second", [8], 1.2, False),
}
TESTS = {"stream": "bw", "swap": "bibw"}  # of mpi_perf, where it has another name
LIMITS = {"lat": "message", "bw": "memcpy", "bibw": "kernel"}    # tests of line_perf
CONNECT_RANKS, MEMORY_RANKS = 32, 64
JOBS = {CONNECT_RANKS: 5, MEMORY_RANKS: 1}  # of so many ranks, of each MPI in a turn: first rounds differ by 2
SLICES = 20                              # of a run, of some milliseconds each
SHORT, SHORT_STARTS = 2048, 5            # bytes; how often each MPI is started for them in a turn
FAR = 2.5                                # times as long: then there are near and far cores, see apart()


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


def packaged():
    """Debian's MPIs, with its Open MPI on UCX too."""
    mpis = debian()
    if "Debian's Open MPI" in mpis:
        mpis["Open MPI, UCX"] = on_ucx(mpis["Debian's Open MPI"])
    return mpis


def all_mpis():
    return {OURS: dapl(), "ch3:nemesis": nemesis(), **packaged()}


class Programs:
    """What is run on one MPI."""

    def __init__(self, mpi, work):
        self.mpi = mpi
        self.perf, self.local = (mpi.compiled(name, work) for name in ("mpi_perf", "mpi_local"))

    def between_two(self, test, size, cores):
        """What the slices of one run gave, Slice by Slice."""
        said = lines_printed([*self.mpi.start(2, cores), self.perf, TESTS.get(test, test), size, count(test, size),
                              window(test, size), SLICES], self.mpi.env)
        return [Slice(*map(float, line.split())) for line in said]

    def together(self, ranks, cores=()):
        return printed([*self.mpi.start(ranks, cores), self.local], self.mpi.env)

    def check(self, title, cores):
        """Is it on the cores that it was told, and in shared memory? What it said."""
        said = self.together(2, cores)
        if said is None or said["cores"] != [str(c) for c in cores] or said["tcp_share"] > 0.01:
            die(f"{title} is not on cores {cores[0]} and {cores[1]}, or not in shared memory: {said}")
        return said


# -- measuring ---------------------------------------------------------------------------------------

class Slice(typing.NamedTuple):
    """A figure, and how long a cache line took between the ranks before and after it, us."""
    figure: float
    before: float
    after: float


def window(test, size):
    """Messages under way."""
    return 1 if test in ("lat", "stream") else FEW if test == "swap" else 64 if size <= 65536 else 16


def count(test, size):
    """Round trips or windows that take some milliseconds: a slice."""
    if window(test, size) == 1:
        return max(10, min(5000, (16 << 20) // max(size, 1)))
    return max(2, min(500, (32 << 20) // (size * window(test, size))))


def limit(test, size, cores):
    times = min(20000, (1 << 28) // max(size, 1))
    program = [LINE_PERF, "-c", "%d,%d" % cores, LIMITS[test], max(size, 1), times, window(test, size)]
    before, figure, after = line(cores), printed(program), line(cores)
    return [Slice(figure, before, after)] if None not in (before, figure, after) else []


def alternating(programs, test, size, cores):
    """{MPI: its slices}. Those of short messages differ between two starts of an MPI by more than between MPIs: each is
    started several times."""
    found = {title: [] for title in programs}
    for _ in range(SHORT_STARTS if size <= SHORT else 1):
        for title, program in programs.items():
            found[title] += program.between_two(test, size, cores)
    return found


def measured(programs, reps):
    """The slices of all turns, {key: [[Slice]]}; and {key: [object]}: on which cores, and what many ranks did."""
    slices, others = {}, {}
    for rep in range(1, reps + 1):
        for test, size in [(test, size) for test, figure in FIGURES.items() for size in figure[1]]:
            say(f"turn {rep} of {reps}, {test} {size_name(size)}")
            cores, _ = near_cores()
            keep(others, {("cores", test, size): list(cores)})
            for title, turn in alternating(programs, test, size, cores).items():
                slices.setdefault((title, test, size), []).append(turn)
            if test in LIMITS:
                slices.setdefault(("limit", test, size), []).append(limit(test, size, cores))
        for ranks, jobs in JOBS.items():
            for job, (title, program) in itertools.product(range(1, jobs + 1), programs.items()):
                say(f"turn {rep} of {reps}, job {job} of {jobs}: {ranks} ranks of {title}")
                keep(others, {(title, "together", ranks): program.together(ranks)})
    return slices, others


def usual_line(slices, of_limits):
    """What a cache line took, by median, before the slices of the machine's limits, or of the MPIs."""
    return statistics.median(s.before for key, turns in slices.items() if (key[0] == "limit") == of_limits
                             for turn in turns for s in turn)


def apart(slices):
    """A host may move virtual cores, so that they are threads of one core in one moment and far from each other in the
    next one. {where: values by key, of each turn the median}: `near` has the slices before and after which a cache
    line took less than the middle (of logarithms) between what it took before the fastest and the slowest twentieth of
    them, `far` those with more at both times. Where these two do not differ by FAR all are near, but for moments: those
    with less or more than is usual for the program that has measured it, by sqrt(FAR). Either may miss some keys; one
    that has less than half of them is left out: the cores were so for moments only."""
    fastest, *_, slowest = statistics.quantiles([s.before for turns in slices.values() for turn in turns for s in turn],
                                                n=20)
    bound, span = math.sqrt(fastest * slowest), math.sqrt(FAR)
    bounds = {"near": {key: (0, bound) for key in slices}, "far": {key: (bound, math.inf) for key in slices}}
    if slowest <= FAR * fastest:
        usual = {of_limits: usual_line(slices, of_limits) for of_limits in {key[0] == "limit" for key in slices}}
        lines = {key: usual[key[0] == "limit"] for key in slices}
        bounds = {"near": {key: (line / span, line * span) for key, line in lines.items()}}

    def belongs(s, least, most):
        return least <= min(s.before, s.after) and max(s.before, s.after) <= most

    found = {}
    for where, of_key in bounds.items():
        kept = {key: [[s for s in turn if belongs(s, *of_key[key])] for turn in turns] for key, turns in slices.items()}
        v = {key: [statistics.median(s.figure for s in turn) for turn in turns if turn] for key, turns in kept.items()}
        v = {key: medians for key, medians in v.items() if medians}
        if 2 * len(v) >= len(slices):
            line = statistics.median(s.before for turns in kept.values() for turn in turns for s in turn)
            found[where] = {**v, ("line",): [line]}
    return found


# -- what comes out ----------------------------------------------------------------------------------

ABOUT = ("processors: by name and number of cores; values: latency us, bandwidth MB/s (10^6), rate in millions per "
         "second; key: MPI or limit, test, bytes; cores: the pair of each turn; together: mpi_local, by ranks")
README_HEAD, README_END = "<!-- made by benchmarks/run shm --readme -->\n", "<!-- end -->\n"
README_ROWS = (                          # what: how it is found in the values
    ("latency 8 B, us", lambda v, t: at(v, t, "lat", 8)),
    ("latency 64 KiB, us", lambda v, t: at(v, t, "lat", 65536)),
    ("bandwidth 64 KiB, MB/s", lambda v, t: at(v, t, "bw", 65536)),
    ("bandwidth 4 MiB, MB/s", lambda v, t: at(v, t, "bw", 4 << 20)),
    ("one after the other 64 KiB, MB/s", lambda v, t: at(v, t, "stream", 65536)),
    ("both ways 64 KiB, MB/s", lambda v, t: at(v, t, "bibw", 65536)),
    ("both ways 4 MiB, MB/s", lambda v, t: at(v, t, "bibw", 4 << 20)),
    (f"both ways, {FEW} at a time, 64 KiB, MB/s", lambda v, t: at(v, t, "swap", 65536)),
    ("messages of 8 B, millions per second", lambda v, t: at(v, t, "rate", 8)),
    (f"memory of a process of {MEMORY_RANKS}, KiB", lambda v, t: many(v, t, MEMORY_RANKS, "pss_kib")),
    (f"{CONNECT_RANKS} ranks all to all, again, ms", lambda v, t: many(v, t, CONNECT_RANKS, "later_ms")),
    (f"barrier of {CONNECT_RANKS} ranks, us", lambda v, t: many(v, t, CONNECT_RANKS, "barrier_us")),
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
    if not rows:
        return ""                # this processor was measured before there was this test
    limit_too = ["the machine"] if test in LIMITS else []
    return f"### {title}\n\n" + table(
        ["bytes", *titles, *limit_too, f"{OURS} / best other", target_text(bound, highest)],
        [[size_name(size)] + [cell(x) for x in all_of] + [cell(bare) for _ in limit_too]
         + [cell(share, 2), verdict(share, bound, highest)] for size, all_of, share, bare in rows]) + "\n"


def many(v, title, ranks, what):
    runs = [run[what] for run in v.get(f"{title} together {ranks}", []) if what in run]
    return statistics.median(runs) if runs else None


def barrier_text(v, titles):
    sizes = (CONNECT_RANKS, MEMORY_RANKS)
    if many(v, titles[0], sizes[0], "barrier_us") is None:
        return ""                # as figure_text()
    rows = [[t] + [cell(many(v, t, n, "barrier_us")) for n in sizes] for t in titles]
    return "A barrier, us:\n\n" + table(["", *(f"{n} ranks" for n in sizes)], rows)


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
    costs = [[t] + [cell(many(v, t, CONNECT_RANKS, which + what), 1) for what in ("_faults", "_switches")
                    for which in ("first", "later")] for t in titles]
    return f"""### Many ranks

{asked}
Memory of a process, KiB, {MEMORY_RANKS} ranks that have all exchanged messages with each other:

{table(["", "Pss", "private", "Pss before MPI_Init"], held)}
A round in which each rank sends 8 bytes to each other one, ms:

{table([""] + [f"{n} ranks, {which}" for n in (CONNECT_RANKS, MEMORY_RANKS) for which in ("first", "later ones")],
       times)}
{barrier_text(v, titles)}
What such a round costs a rank of {CONNECT_RANKS}, with its barrier and reduction:

{table(["", "page faults, first", "later ones", "context switches, first", "later ones"], costs)}
"""


def processor_text(name, part):
    v, how = part["values"], part["machine"]
    turns = max(len(v[key]) for key in v if key.startswith(f"{OURS} lat "))
    figures = "".join(figure_text(v, titles_of(v), test) for test in FIGURES)
    together = many_text(v, titles_of(v)) if any("together" in key for key in v) else ""
    return f"""## {name}

Linux {how["kernel"]}, sources of {how["commit"]}; a cache line takes {cell(at(v, "line"))} us one way. Medians of
{turns} turn{"s" if turns > 1 else ""}.

{figures}{together}"""


def text_of(processors):
    return f"""# Shared memory

`benchmarks/run shm`: two ranks on the two cores that are nearest to each other; in each turn the MPIs alternate at
each size, each for {SLICES} slices of some milliseconds, and up to {size_name(SHORT)} {SHORT_STARTS} times. Before
and after each slice the ranks themselves measure how long a cache line takes between them, since a host moves virtual
cores: slices with near cores and those with cores that are far apart are separate, and those in which they were
moved, or which were moments only, are dropped. (The part of sources bcee834 has whole turns instead, with near cores
before and after each; it and that of 60c05ce alternate once at each size.) {OURS} with its defaults; ch3:nemesis from
the same source with the same flags; Debian's packages as they are, and its Open MPI on UCX. Every number, and on
which cores it was measured, is in shm.json, by processor: a run on another machine adds to it. Each MPI was found on
the cores that it was told and without a byte over TCP.

Bandwidths and the rate, if nothing else is said: 64 messages under way up to 64 KiB, 16 of the longer ones, each with
a buffer of its own. One message after the other: the sender sends the next one when its send is complete, the receiver
receives it when it has the one before, so that the sender may be ahead of it.
The machine: for latency, a body that one process copies into shared memory, with the word that announces it, and the
other one copies out; for bandwidth, one process that copies as many buffers (memcpy): an MPI with one copy can reach
it, with two that overlap come near to it; for both directions, two processes of which each has the kernel copy the
other one's buffers (process_vm_readv) and does nothing else: more takes copies through memory that both map.

Many ranks are more than there are cores, bound to none; Open MPI is told --oversubscribe. Memory is Pss: what only the
process has and its share of what processes share, after rounds in which each rank sends 8 bytes to each other one;
the median of the ranks. Nothing is subtracted: what it had before MPI_Init is shown. The time of a round is from
a barrier to the slowest rank's end. Of {CONNECT_RANKS} ranks each MPI has {JOBS[CONNECT_RANKS]} jobs in a turn, which
alternate (in the parts of sources bcee834, 843222c and 60c05ce one).

{"".join(processor_text(name, part) for name, part in processors.items())}"""


def readme_tables(processors):
    """What README.md shows of each processor."""
    def one(name, v):
        titles = titles_of(v)
        found = [[what] + [find(v, t) for t in titles] for what, find in README_ROWS]
        rows = [[what, *map(cell, values)] for what, *values in found if values[0]]
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


def keep_results(found, others):
    """Replaces those parts of this processor's results that were measured; the plots are those of them. What many ranks
    did is in the first part: their cores are what the host makes them."""
    processors, how = results(), machine()
    own = f"{how['cpu']}, {how['cores']} cores"
    for where, v in found.items():
        name = own + ("" if where == "near" else ", far apart")
        processors[name] = {"machine": how, "values": by_words({**v, **others})}
        others = {key: value for key, value in others.items() if "together" not in key}
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
        checks = {(title, "check"): [x.check(title, cores)] for title, x in programs.items()}
        slices, others = measured(programs, reps)
    found = apart(slices)
    if not found:
        die("the cores were moved all the time: nothing is kept")
    keep_results(found, {**checks, **others})
