# SPDX-License-Identifier: MIT
"""Alternate paths (paper apm-over-infiniband, figures 5 to 8): the time of a transition by the number of connections,
with a thread that waits for the events and without; the latency meanwhile; two ports under a limit of each; whole
programs whose paths fail."""
import pathlib
import subprocess
import tempfile
import threading

import measure
from kernels import KERNELS, Kernels, build
from measure import (BUILD, cell, dapl, dat_conf, far_from, knobs_env, line, middle, mpi, near_cores, plot, prefix,
                     printed, repeat, save, say, size_name, table, targets)

PATH_PERF = BUILD / "benchmarks/path_perf"
PORTS = "addr=127.0.0.1 addr2=127.0.0.2"
CONNECTIONS = (1, 4, 16, 64, 256, 1024)
MANY = (64, 256, 1024)   # enough of them for a measurement while they are loaded
PINGS = 20000
TIMES = ("load", "migrate", "latency", "plain", "loading", "cost", "first", "stream", "stream_loading")    # path_perf's
SIZES = (65536, 1 << 20, 4 << 20)
LIMIT = 500_000_000      # bytes per second and port
PATHS = ("off", "auto")  # the knob, of MPI by itself
STEADY = {"lat": (8, 20000, "us"), "bw": (65536, 500, "MB/s")}    # mpi_perf's test: bytes, count, unit
WAYS = {"one": ("one port", {"path_balance": "off"}), "balanced": ("balanced", {"path_balance": "on"})}

FAULT_S = 0.25           # from one fault to the next, since kernels are short;
PAPER_S = 10             # the paper's faults are that rare
OUT_S = 0.1              # how long a path is out


def transitions(conf, cores, n, thread):
    """A function that measures n connections: what path_perf prints."""
    env = dat_conf(conf, {"soft0": PORTS})
    return lambda: printed([PATH_PERF, "-c", "%d,%d" % cores, "-e", n, "-n", PINGS, *(["-t"] if thread else [])], env)


def cut_in_turn(over):
    """Cuts the paths through one port and the other, of all adapters of this host, until over; each is healed before
    the next one."""
    port = 1
    while not over.wait(FAULT_S - OUT_S):
        for command, pause in (("cut", OUT_S), ("heal", 0)):
            subprocess.run([prefix() / "bin/daplsoft", command, "all", str(port)], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            over.wait(pause)
        port = 3 - port


def with_faults(job):
    """The same job, whose paths fail meanwhile."""
    def run():
        over = threading.Event()
        cutter = threading.Thread(target=cut_in_turn, args=(over,))
        cutter.start()
        try:
            return job()
        finally:
            over.set()
            cutter.join()
    return run


def whole_programs(work, cores):
    """{key: function} for each kernel on two ranks, without faults and with them."""
    env = {**dat_conf(pathlib.Path(work, "kernels.conf"), {"soft0": PORTS}), **knobs_env(path_quiet_ms=20)}
    ours = dapl(env)
    jobs = Kernels(ours, build(ours, pathlib.Path(work)), cores)
    found = {}
    for kernel in KERNELS:
        job = jobs.job(kernel, "A", 2)
        found.update({("kernel", kernel, "without"): job, ("kernel", kernel, "with"): with_faults(job)})
    return found


def how(thread):
    return "thread" if thread else "polled"


def count(size):
    """Windows of 16 messages that last some tenths of a second under the limit."""
    return max(5, (1 << 28) // (16 * size))


def gain(v, size):
    return measure.ratio(middle(v, ("balanced", size)), middle(v, ("one", size)))


def slower(v, n):
    """Migration to loading; the paper's is 1.30 with few connections and 1.16 with many."""
    return measure.ratio(middle(v, ("migrate", n, "polled")), middle(v, ("load", n, "polled")))


def text_of(v, cores, turns):
    def row(n):
        return [n] + [cell(middle(v, (what, n, h)), 1) for what in ("load", "migrate") for h in ("polled", "thread")] \
            + [cell(slower(v, n), 2)]

    def slowed(kernel):
        return measure.ratio(*(middle(v, ("kernel", kernel, way)) for way in ("with", "without")))

    def per_fault(kernel):
        return (slowed(kernel) - 1) * FAULT_S * 1000 if slowed(kernel) else None

    def lat(n):
        return [n] + [cell(middle(v, (what, n, "polled"))) for what in
                      ("latency", "plain", "loading", "cost", "first")]

    def bulk(n):
        return [n] + [cell(middle(v, (what, n, "polled"))) for what in ("stream", "stream_loading")]

    def worst(pick, what, without):
        """Of what happens while paths are loaded, to that without, with many connections."""
        return pick((x for n in MANY if (x := measure.ratio(*(middle(v, (w, n, "polled")) for w in (what, without))))),
                    default=None)


    def best(test, knob):
        """Of all turns: which cores a virtual machine has at the time changes more than alternate paths do."""
        return (max if test == "bw" else min)(v[("mpi", test, knob)], default=None)

    def kept(test):
        return measure.ratio(*(best(test, knob) for knob in reversed(PATHS)))

    verdict = targets([
        ("MPI latency of 8 B with alternate paths, to that without", 1.01, True, kept("lat")),
        ("MPI bandwidth of 64 KiB with alternate paths, to that without", 0.99, False, kept("bw")),
        ("mean latency while paths are loaded, to that without", 1.01, True, worst(max, "loading", "plain")),
        ("bandwidth while paths are loaded, to that without", 0.99, False, worst(min, "stream_loading", "stream")),
        ("bandwidth of two ports, balanced, to that of one", 1.8, False,
         min((x for x in (gain(v, s) for s in SIZES) if x), default=None)),
        (f"what a fault takes, in % of the {PAPER_S} s from one to the next", 2, True,
         max((per_fault(k) / PAPER_S / 10 for k in KERNELS if slowed(k)), default=None)),
    ])
    return f"""# Alternate paths

`benchmarks/run paths`: DAT's path extension by itself on the software provider (benchmarks/path_perf.c), cores
{cores[0]} and {cores[1]}, medians of {turns} turns. Both ports are addresses of this host. Every number is in
paths.json.

{verdict}
## Time of a transition, us

Of all connections between two processes: MIGRATED to ARMED, from the first request of either end, and ARMED to
MIGRATED, on request of one end. `thread`: the events are counted by a thread that waits in dat_evd_wait(), as in the
paper; `polled`: between other work. The paper's second transition is 1.30 times the first with few connections, and
1.16 with many (figures 5 and 6); both grow in proportion to the connections.

{table(["connections", "loading, polled", "loading, thread", "migration, polled", "migration, thread",
        "migration / loading, polled"], [row(n) for n in CONNECTIONS])}
## Latency of 8 bytes, us

Half a round trip on one connection: the median without transitions; the mean without, and while the other connections
are loaded, one in 5 ms, as src/dapl/path.c does it; what the calls that load one take at one end; the first message
behind a request to migrate, median. With one connection nothing is loaded: what differs in its row is the machine's
noise.

{table(["connections", "median", "mean", "mean while loading", "calls of a load", "first after a migration"],
       [lat(n) for n in CONNECTIONS])}
## Bandwidth, MB/s

RDMA writes of 64 KiB on one connection: without transitions; while the others are loaded in the same way.

{table(["connections", "without", "while loading"], [bulk(n) for n in MANY])}
## MPI

Between two ranks, with `MPIR_CVAR_DAPL_PATHS` off and auto: a connection that has been loaded once, at the beginning;
the best of all turns.

{table(["", *PATHS, "auto / off"],
       [[f"{test} of {size_name(size)}, {unit}", *(cell(best(test, k)) for k in PATHS), cell(kept(test), 3)]
        for test, (size, _, unit) in STEADY.items()])}
## Balance

MPI bandwidth between two ranks with two streams, each port limited to {LIMIT // 1000000} MB/s
(`rate1={LIMIT} rate2={LIMIT}`), MB/s. `MPIR_CVAR_DAPL_DEAD_MS=0`: 16 messages of 4 MiB take longer on one port than
its default, so that one stream would be moved to the other port as one that carries nothing.

{table(["bytes", *(title for title, _ in WAYS.values()), "balanced / one port"],
       [[size_name(s), *(cell(middle(v, (w, s))) for w in WAYS), cell(gain(v, s), 2)] for s in SIZES])}
## Whole programs

Kernels of benchmarks/kernels, class A, on two ranks, seconds: without faults; while one port is cut for {OUT_S} s in
each {FAULT_S} s and the other one in the next; and what one fault takes, as it follows from these. The paper's kernels
took 5 to 7 % longer. All results were the published ones.

{table(["kernel", "without", "with faults", "with / without", "a fault, ms"],
       [[k, *(cell(middle(v, ("kernel", k, way))) for way in ("without", "with")), cell(slowed(k), 3),
         cell(per_fault(k), 1)] for k in KERNELS])}"""


def run(turns):
    cores, near = near_cores()
    say(f"cores {cores[0]} and {cores[1]}: a cache line takes {near:.3f} us one way")
    with tempfile.TemporaryDirectory() as work:
        limited = mpi(work, cores, {"ports0": f"{PORTS} rate1={LIMIT} rate2={LIMIT}"})
        points = {("all", n, how(t)): transitions(pathlib.Path(work, "path.conf"), cores, n, t)
                  for n in CONNECTIONS for t in (False, True)}
        points.update({(way, size): limited("bw", size, count(size), streams=2, stripe_bytes=262144,
                                              dead_ms=0, **knobs)
                       for size in SIZES for way, (_, knobs) in WAYS.items()})
        steady = mpi(work, cores, {"soft0": PORTS})
        points.update({("mpi", test, knob): steady(test, size, n, paths=knob)
                       for test, (size, n, _) in STEADY.items() for knob in PATHS})
        points.update(whole_programs(work, cores))
        v = repeat(points, turns, lambda: line(cores), far_from(near))
    for n in CONNECTIONS:
        for h in (how(False), how(True)):
            printed_by_turn = v.pop(("all", n, h))
            v.update({(what, n, h): [one[what] for one in printed_by_turn if one[what]] for what in TIMES})
    save("paths", "us, of the ways one and balanced MB/s (10^6); key: what, connections or bytes, events", v,
         text_of(v, cores, turns))
    plot("paths", "Transitions of all connections", "us", CONNECTIONS,
         {f"{what}, {h}": [middle(v, (what, n, h)) for n in CONNECTIONS] for what in ("load", "migrate")
          for h in ("polled", "thread")}, "connections")
