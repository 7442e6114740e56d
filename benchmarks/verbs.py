# SPDX-License-Identifier: MIT
"""Real verbs: ch3:dapl on libdaplverbs and on Debian's uDAPL providers beside the builds for verbs that Debian has,
MPICH's ch4:ucx and Open MPI on UCX, between two User-Mode Linux nodes with Soft-RoCE; how long messages take, and what
an MPI asks of verbs for one and how many instructions it needs, which does not depend on load."""
import copy
import itertools
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

import instructions
import kernels
from measure import (BUILD, TOP, across, cell, dapl, debian, die, keep, knobs_env, middle, plot, prefix, printed, ratio,
                     save, say, size_name, table, targets)
from shm import OURS, on_ucx
from standin import Ground, ias
from uml import HERE as UML, Nodes

PROVIDERS = {"own": OURS, "ofa": f"{OURS}, libdaplofa", "scm": f"{OURS}, libdaploscm"}    # by the IA's name
MPICH, OPENMPI = "MPICH, UCX", "Open MPI, UCX"
NATIVE = (MPICH, OPENMPI)
UCX = {"UCX_TLS": "rc,self", "UCX_NET_DEVICES": "rxe0:1", "UCX_IB_GID_INDEX": "0"}    # of IPv6: its UD has no other
LATENCY = (8, 1024, 8192, 65536, 1 << 20)
FIGURES = {                              # test of mpi_perf: title, sizes, unit, the least is best
    "lat": ("Latency (half a round trip)", LATENCY, "us", True),
    "bw": ("Bandwidth", (8192, 65536, 1 << 20), "MB/s", False),
    "rate": ("Message rate", (8,), "millions per second", False),
    "reduce": ("MPI_Allreduce", (8,), "us", True),
}
KERNEL, CLASS = "is", "W"
DRAWS = 2000        # of the turns, to find between what a ratio is
WARM = {"PERF_WARM_MS": "1000"}
# While it is counted nothing is sent because time has passed: it is long in these nodes.
LATE = {"MPIR_CVAR_DAPL_ACK_IDLE_US": "3000000", "MPIR_CVAR_DAPL_DEAD_MS": "0"}
COUNTED = (("lat", 8), ("rate", 8), ("lat", 65536), ("bw", 65536), ("lat", 1 << 20), ("bw", 1 << 20))
# what the library counts: what it is
COUNTS = {
    "doorbells": "calls that post requests",
    "requests": "posted requests",
    "completions": "polled completions",
    "receive_calls": "calls that post receives",
    "receives": "posted receives",
    "arms": "requests of a notification",
    "registrations": "registrations of memory",
}


# -- jobs --------------------------------------------------------------------------------------------

def window(test):
    """Messages under way."""
    return {"lat": 1, "bw": 16, "rate": 64, "reduce": 1}[test]


def at_once(test):
    """Messages of a round trip, a window or a call."""
    return window(test) if test in ("bw", "rate") else 2


def count(test, size):
    """Round trips, windows or calls that take about a second, where a message takes 0.1 ms and its bytes 10 ns each:
    for shorter than that the schedulers of this machine and of the nodes may keep one of several paces."""
    return max(8, 1000000 // ((100 + size // 100) * at_once(test)))


def messages(test, size):
    return count(test, size) * at_once(test)


def for_ranks(mpi, env):
    """Options of mpiexec for the environment of the ranks, and of nothing else."""
    if mpi.word.startswith("openmpi"):
        return [word for k, v in env.items() for word in ("-x", f"{k}={v}")]
    return [word for k, v in env.items() for word in ("-genv", k, v)]


def ours(ia):
    mpi = dapl()
    mpi.word = f"dapl-{ia}"
    mpi.knobs = knobs_env(ia=ia)
    return mpi


def native():
    """Debian's, by title."""
    found = debian()
    both = {MPICH: found.get("Debian's MPICH"), OPENMPI: found.get("Debian's Open MPI")}
    if None in both.values():
        die("both Debian's MPICH and its Open MPI are needed: apt-get install mpich openmpi-bin ibverbs-providers")
    both[OPENMPI] = on_ucx(both[OPENMPI])
    both[OPENMPI].options = ["--mca", "pml", "ucx", "--mca", "osc", "^ucx"]    # windows would open UCX once more
    for mpi in both.values():
        mpi.knobs = UCX
    return both


class Job:
    """One MPI's jobs of two ranks, one on each node."""

    def __init__(self, mpi, nodes, work, preloaded):
        self.mpi, self.nodes, self.work, self.preloaded = mpi, nodes, work, preloaded
        self.perf = mpi.compiled("mpi_perf", work)
        self.kernel = kernels.build(mpi, work / f"kernels-{mpi.word}") / KERNEL
        self.env = {**mpi.env, **nodes.env()}
        self.runs = 0

    def command(self, program, **env):
        start = across(self.mpi, UML / "rsh", "eth1", ("n1", "n2"))
        return self.nodes.command("n1", *start, *for_ranks(self.mpi, {**self.mpi.knobs, **env,
                                                                     "LD_PRELOAD": self.preloaded}), *program)

    def perf_command(self, test, size, **env):
        return self.command([self.perf, test, size, count(test, size), window(test)], **env)

    def figure(self, test, size):
        return printed(self.perf_command(test, size, **WARM), self.env)

    def counts(self, test, size):
        """What was counted of each rank; nothing when the job failed."""
        self.runs += 1
        file = self.work / f"{self.mpi.word}.{self.runs}"
        if printed(self.perf_command(test, size, VERBS_COUNT=file, **LATE), self.env) is None:
            return {}
        return {rank: json.loads(pathlib.Path(f"{file}.{rank}").read_text()) for rank in (0, 1)}

    def seconds(self):
        return kernels.seconds(self.command([self.kernel, CLASS]), self.env)


# -- measuring ---------------------------------------------------------------------------------------

def points():
    return [(test, size) for test, (_, sizes, _, _) in FIGURES.items() for size in sizes]


def per_message(title, test, size, counts):
    """{key: [value]} of what was counted in one run."""
    return {(title, test, size, what, rank): n / messages(test, size)
            for rank, of_rank in counts.items() for what, n in of_rank.items()}


def turn(jobs, v):
    """All points once, at each the MPIs in turn."""
    for test, size in points():
        for title, job in jobs.items():
            keep(v, {(title, test, size): job.figure(test, size)})
    for title, job in jobs.items():
        keep(v, {(title, KERNEL, CLASS): job.seconds()})


def count_calls(jobs, v):
    for (test, size), (title, job) in itertools.product(COUNTED, jobs.items()):
        keep(v, per_message(title, test, size, job.counts(test, size)))


# -- instructions, where a library stands in for libibverbs ------------------------------------------

def on_standin(title, mpi, ground):
    """The MPI with a fresh set of verbs objects. All messages between the two ranks of a host go through verbs."""
    knobs = mpi.knobs
    if title in NATIVE:
        knobs = {"UCX_TLS": UCX["UCX_TLS"], "VERBS_TRANSPORT": "infiniband", "LD_PRELOAD": ground.lib / "libmlx5.so.1"}
    mpi = copy.copy(mpi)
    mpi.env = {**mpi.env, **ground.env(**knobs)}
    return mpi


def count_instructions(v, mpis):
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(folder, ias(BUILD / ".libs/libdaplverbs.so"))
        for build in (ground.build, ground.build_for_ucx):
            good, text = build()
            if not good:
                die("the stand-in is not built:", text)
        for title, mpi in mpis.items():
            instructions.measure(v, {title: on_standin(title, mpi, ground)}, 1, instructions.DAPL)


# -- what comes out ----------------------------------------------------------------------------------

def best(v, least, *key):
    """The better of the native ones."""
    found = [x for x in (middle(v, (title, *key)) for title in NATIVE) if x is not None]
    return (min if least else max)(found) if found else None


def between(v, least, *key):
    """Where nine of ten ratios to the better native one are when the turns are drawn anew, with replacement."""
    turns = [v.get((title, *key)) for title in (OURS, *NATIVE)]
    if not all(turns):
        return ""
    draw = random.Random(0)
    ratios = []
    for _ in range(DRAWS):
        mine, *others = (statistics.median(draw.choices(figures, k=len(figures))) for figures in turns)
        ratios.append(mine / (min if least else max)(others))
    tenths = statistics.quantiles(ratios, n=20)
    return f"({cell(tenths[0], 2)} to {cell(tenths[-1], 2)})"


def counted(v, title, test, size, what):
    """Of a message, at both ranks together."""
    both = [middle(v, (title, test, size, what, rank)) for rank in (0, 1)]
    return None if None in both else sum(both)


def fewest(v, *key):
    found = [x for x in (counted(v, title, *key) for title in NATIVE) if x is not None]
    return min(found) if found else None


def target_rows(v):
    rows = [(f"{title}, {size_name(size)}, to the better native one", 1.0, least,
             ratio(middle(v, (OURS, test, size)), best(v, least, test, size)), between(v, least, test, size))
            for test, (title, sizes, _, least) in FIGURES.items() for size in sizes]
    rows.append((f"kernel {KERNEL}, class {CLASS}, to the faster native one", 1.0, True,
                 ratio(middle(v, (OURS, KERNEL, CLASS)), best(v, True, KERNEL, CLASS)),
                 between(v, True, KERNEL, CLASS)))
    rows += [(f"{what} of a message, {WAYS[test]} {size_name(size)}, to the fewer of the native ones", 1.0, True,
              ratio(counted(v, OURS, test, size, what), fewest(v, test, size, what)))
             for what, (test, size) in itertools.product(("doorbells", "completions"), COUNTED)]
    return rows


def with_spread(v, key):
    """The median, and between which values it is."""
    turns = v.get(key)
    return f"{cell(middle(v, key))} ({cell(min(turns))} to {cell(max(turns))})" if turns else "-"


def figure_text(v, titles, test):
    title, sizes, unit, least = FIGURES[test]
    return f"## {title}, {unit}\n\n" + table(
        ["bytes", *titles, f"{OURS} / better native"],
        [[size_name(size), *(with_spread(v, (t, test, size)) for t in titles),
          cell(ratio(middle(v, (OURS, test, size)), best(v, least, test, size)), 2)] for size in sizes]) + "\n"


def counts_text(v, titles):
    def of(t, test, size, what):
        sides = [middle(v, (t, test, size, what, rank)) for rank in (0, 1)]
        return "-" if None in sides else f"{cell(sum(sides))} ({cell(sides[0])}, {cell(sides[1])})"
    return "".join(f"### {WAYS[test]}, {size_name(size)}\n\n" + table(
        ["", *titles], [[about, *(of(t, test, size, what) for t in titles)] for what, about in COUNTS.items()]) + "\n"
        for test, size in COUNTED)


def instruction_rows(v, titles):
    for call, (about, _, _) in instructions.CALLS.items():
        for size in instructions.SIZES:
            native = best(v, True, call, size, "all")
            yield [about, size_name(size), *(cell(middle(v, (t, call, size, "all")), 0) for t in titles),
                   cell(ratio(middle(v, (OURS, call, size, "all")), native), 2)]


def room_rows(v, titles, rooms, size):
    for call, (about, _, _) in instructions.CALLS.items():
        for t in titles:
            yield [about, t, *(cell(middle(v, (t, call, size, room)), 0) for room in rooms)]


def instructions_text(v, titles):
    of_one = [OURS, *NATIVE]
    rooms = [r for r in instructions.ORDER if any(k[0] in of_one and k[-1] == r for k in v)]
    return f"""## Instructions of a message

Without a kernel and an adapter: where a library of test/verbs stands in for libibverbs between two processes of this
machine, under callgrind, as instructions.md counts them in shared memory. The instructions of that library, in whose
place every adapter has its own, count for none. (UCX: `UCX_TLS={UCX["UCX_TLS"]}`.)

{table(["call", "bytes", *titles, f"{OURS} / better native"], instruction_rows(v, titles))}
Where they are, at 8 B:

{table(["call", "", *rooms], room_rows(v, of_one, rooms, 8))}"""


WAYS = {"lat": "ping-pong", "bw": "stream of 16", "rate": "stream of 64"}


def text_of(v, titles, turns):
    return f"""# Real verbs

`benchmarks/run verbs`: two ranks, each on a User-Mode Linux node of one processor (test/verbs/uml) with Linux's
Soft-RoCE; medians of {turns} turns in which the MPIs alternate at each point. {OURS} is on libdaplverbs; all messages
of all MPIs go through verbs ({OURS}: `MPIR_CVAR_DAPL_CHANNELS=dapl`; UCX: `UCX_TLS=rc,self`). Those on UCX are
Debian's packages. Everything else is as the MPI has it by default. Every number is in verbs.json.

Soft-RoCE is software: a doorbell is a system call, which User-Mode Linux makes slow. Kernel and rank of a node share a
processor of this machine, to which they are bound; the Ethernet between the nodes is a socket, without a switch. So
the times say how the MPIs compare here, not what an adapter would do; the counts do not depend on it. In a node the
program that polls has the only processor, so the library that counts gives it away after each round of polls that
found nothing (benchmarks/verbs_count.c); it is preloaded in all jobs of all MPIs. What is timed begins after a second
of messages: for some 0.2 s after both nodes have become busy, frames may wait that long, until the scheduler of this
machine has spread them. In brackets are the least and the most of the turns, and after a ratio of medians where nine
of ten are when the turns are drawn anew, with replacement: where that holds 1 these nodes do not decide the target.
User-Mode Linux does not report unmapped memory (userfaultfd), so {OURS} registers memory for each long body; with an
adapter registrations are kept, as those of UCX are here.

{targets(target_rows(v))}
{"".join(figure_text(v, titles, test) for test in FIGURES)}## NAS kernel {KERNEL}, class {CLASS}, seconds

{table(titles, [[cell(middle(v, (t, KERNEL, CLASS))) for t in titles]])}
## What a message costs in verbs

Counted at both ranks while messages are under way, in runs of their own, and divided by the messages; in brackets rank
0 and rank 1, in a stream the sender and the receiver. Left out is what {OURS} sends because time has passed
(`ACK_IDLE_US`, `DEAD_MS`): an acknowledgement that is due for 5 ms, in which an adapter sends some thousand messages
and these nodes send a hundred.

What decides it. A short message is a send of its sender, with a completion of its receive; of the sends one in 80 makes
a completion, with UCX one in 64. In a stream {OURS} acknowledges half of a window, which has grown to 1024 frames, in a
frame of its own, since the receives of a connection are its own and are never overrun; UCX shares 4096 among all peers,
and asks for new credits after some hundred messages. A long message is an RTS, an RDMA read and a FIN, of any length;
UCX sends 64 KiB in eight pieces.

{counts_text(v, titles)}
{instructions_text(v, titles)}"""


def run(turns):
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        library = work / "verbs_count.so"
        # UCX loads libibverbs for itself alone, where the functions behind ours would not be found
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wshadow", "-fPIC", "-shared",
                        "-o", library, TOP / "benchmarks/verbs_count.c", "-Wl,--no-as-needed", "-libverbs"], check=True)
        mpis = {**{title: ours(ia) for ia, title in PROVIDERS.items()}, **native()}
        v = {}
        with Nodes(work, prefix(), wire=True) as nodes:
            jobs = {title: Job(mpi, nodes, work, library) for title, mpi in mpis.items()}
            for n in range(1, turns + 1):
                say(f"turn {n} of {turns}")
                turn(jobs, v)
            count_calls(jobs, v)
    count_instructions(v, mpis)
    titles = list(mpis)
    save("verbs", "latency and MPI_Allreduce in us, bandwidth in MB/s (10^6), rate in millions per second, kernel in "
         "seconds; key: MPI, test of mpi_perf, bytes; and of a message: what was counted, rank; and instructions: MPI, "
         "call, bytes, room", v,
         text_of(v, titles, turns))
    plot("verbs", "Two nodes with Soft-RoCE: half a round trip", "us", LATENCY,
         {t: [middle(v, (t, "lat", size)) for size in LATENCY] for t in titles})
