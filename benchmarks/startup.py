# SPDX-License-Identifier: MIT
"""How jobs start (paper mpi-over-udapl, 5.1 and figure 5): connecting by a ring, with the thread that the paper
compares it with, and on demand; and what a process holds then (paper unreliable-datagram-mpi, 5.2.2)."""
import os
import pathlib
import statistics
import tempfile

from measure import (BUILD, DEBIAN, cell, dapl, dat_conf, debian, knobs_env, middle, plot, printed, ratio, repeat, save,
                     say, table, targets)

RANKS = [2, 4, 8, 16, 32, 64, 128]
WIRE_PERF = BUILD / "benchmarks/wire_perf"
WIRE_ROUNDS = 5         # of one measurement, whose median it is
OURS = {"thread": "thread", "ring": "ring", "on demand": "ondemand"}
PEER_RANKS = 32         # they poll without giving their cores away: more take minutes


def kinds_of(work):
    """{name: MPI and program}"""
    env = dat_conf(pathlib.Path(work) / "dat.conf", {"soft0": "addr=127.0.0.1"})
    mpis = {**{name: dapl(dict(env, **knobs_env(wiring=word))) for name, word in OURS.items()}, **debian()}
    return {name: (mpi, mpi.compiled("mpi_startup", work)) for name, mpi in mpis.items()}


def points(work):
    p = {}
    kinds = kinds_of(work)
    for n in RANKS:
        for name, (mpi, program) in kinds.items():
            if name in OURS or n <= PEER_RANKS:
                p[(name, n)] = lambda m=mpi, n=n, c=program: printed([*m.start(n), c], m.env)
    env = dat_conf(pathlib.Path(work) / "wire.conf", {"soft0": "addr=127.0.0.1"})
    for n in RANKS:
        for name in ("thread", "ring"):
            p[("wire_perf " + name, n)] = lambda n=n, e=dict(env, **knobs_env(wiring=OURS[name])): \
                printed([WIRE_PERF, n, WIRE_ROUNDS], e)
    return p


def text_of(v, reps):
    def m(kind, n, what):
        runs = [run[what] for run in v.get((kind, n), [])]
        return statistics.median(runs) if runs else None

    def wire(name, n):
        return middle(v, ("wire_perf " + name, n))

    def share(n):
        return ratio(wire("ring", n), wire("thread", n))

    def per_peer(kind, what):
        """KiB for each peer, from the smallest job to the largest."""
        ends = [m(kind, n, what) for n in (RANKS[0], RANKS[-1])]
        return (ends[1] - ends[0]) / (RANKS[-1] - RANKS[0]) if None not in ends else None
    kinds = [k for k in [*OURS, *DEBIAN] if any(key[0] == k for key in v)]
    target = [(f"time to connect: ring to thread, {n} ranks", 0.7, True, share(n)) for n in RANKS if n >= 16]
    connect = [[n, cell(wire("thread", n)), cell(wire("ring", n)), cell(share(n), 2)] for n in RANKS]
    rounds = [[n, cell(m("thread", n, "wire_ms")), cell(m("ring", n, "wire_ms"))]
               + [cell(m(k, n, "first_ms")) for k in ("ring", "on demand")]
               + [cell(m(k, n, "second_ms")) for k in ("ring", "on demand")] for n in RANKS]
    init = [[n] + [cell(m(k, n, "init_ms")) for k in kinds] for n in RANKS]

    def held(what, digits=3):
        return [[n] + [f"{cell(m(k, n, what + '_init'), digits)} / {cell(m(k, n, what + '_all'), digits)}"
                       for k in kinds] for n in RANKS]
    slope = [[k] + [cell(per_peer(k, what), 1) for what in ("anon_kib_init", "anon_kib_all", "pss_kib_init",
                                                           "pss_kib_all")] for k in OURS]
    return f"""# Start-up

`benchmarks/run startup`: jobs of 2 to {RANKS[-1]} ranks on one host of {os.cpu_count()} cores, software provider,
medians of {reps} turns in which all measurements alternate. Every number is in startup.json.

## Targets

{targets(target)}
## Connecting by itself, ms

From a barrier to a barrier, as the paper has it, in wire_perf: no launcher is in it.

{table(["ranks", "thread", "ring", "ring / thread"], connect)}
## Connecting in a job, ms

In MPI_Init it is the counter `wire_us` of the slowest rank: from its first request until all its connections stand;
that the launcher gives the others' business cards is in it. A round is a message from each rank to each other; on
demand, the first one connects.

{table(["ranks", "MPI_Init, thread", "MPI_Init, ring", "first round, ring", "first round, on demand",
        "second round, ring", "second round, on demand"], rounds)}
## MPI_Init, ms (launching not counted)

{table(["ranks"] + kinds, init)}
## Memory of a process, KiB: after MPI_Init / after two rounds

Private memory that has been touched:

{table(["ranks"] + kinds, held("anon_kib"))}
The same with its share of what processes share (Pss):

{table(["ranks"] + kinds, held("pss_kib"))}
What one more peer takes, KiB, from {RANKS[0]} to {RANKS[-1]} ranks:

{table(["", "private, MPI_Init", "private, two rounds", "Pss, MPI_Init", "Pss, two rounds"], slope)}
The paper's processes held 25 MiB at 1024 ranks with a connection and receives of its own for each peer, 14.75 MiB with
shared receives and 8.8 MiB with datagrams: 16 and 6 KiB more for each peer than with datagrams.

## Open files of a process, sockets among them: after MPI_Init / after two rounds

{table(["ranks"] + kinds, held("fds", 0))}
Sockets:

{table(["ranks"] + kinds, held("sockets", 0))}"""


def run(reps):
    with tempfile.TemporaryDirectory() as work:
        v = repeat(points(work), reps, lambda: 0, 1)
    save("startup", "key: way of wiring or MPI, ranks; times ms, memory KiB, the mean or the slowest of the ranks "
         "(benchmarks/mpi_startup.c)", v, text_of(v, reps))

    def curve(kind, what):
        return [statistics.median([r[what] for r in v[(kind, n)]]) if v.get((kind, n)) else None for n in RANKS]
    plot("startup", "Connecting, by ranks", "ms", RANKS,
         {"thread": [middle(v, ("wire_perf thread", n)) for n in RANKS],
          "ring": [middle(v, ("wire_perf ring", n)) for n in RANKS],
          "on demand: the first round": curve("on demand", "first_ms")}, xlabel="ranks")
