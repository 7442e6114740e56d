# SPDX-License-Identifier: MIT
"""Whole programs: the kernels of benchmarks/kernels by how long bodies travel, beside the MPIs that are installed
(paper mpi-over-udapl, 5.3 and figure 7), and by streams, under a limit per endpoint and without one (6.2, figure
12)."""
import os
import pathlib
import re
import subprocess
import tempfile

from measure import (TOP, cell, dapl, dat_conf, debian, die, far_from, gnuplot, knobs_env, line, middle, near_cores,
                     repeat, save, say, table)
from streams import LIMIT

KERNELS = ("ep", "is", "cg", "ft", "mg")
STREAMED = ("is", "cg")                  # those of figure 12
PIECE = 16384                            # bytes that go on one stream: a message of cg is cut in some pieces
PAPER = {("cg", 2): 11, ("cg", 4): 8, ("is", 2): 8.6, ("is", 4): 4.6}     # percent gained, class A
TOO_LONG = 600                           # seconds, of one job


def offered(knob):
    """The default and all words of a knob."""
    default, words = re.search(rf'KNOB_ENUM\({knob}, "(\w+)", "([^"]+)"',
                               (TOP / "src/util/knobs.def").read_text()).groups()
    return default, words.split("|")


def bound_to(ranks, near):
    """The cores for so many ranks: two are near ones."""
    return near if ranks == 2 else sorted(os.sched_getaffinity(0))[:ranks]


def seconds(command, env):
    """What a kernel's last line says; None when it did not verify, which is said."""
    p = subprocess.run([str(c) for c in ["timeout", "-k", 5, TOO_LONG, *command]], env=env, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace")
    last = (p.stdout.strip().split("\n") or [""])[-1].split()
    if p.returncode == 0 and last[-1:] == ["VERIFIED"]:
        return float(last[3])
    say(f"failed, status {p.returncode}:", " ".join(str(c) for c in command), p.stdout.strip()[-300:])
    return None


def build(mpi, where):
    """Compiles the kernels."""
    p = subprocess.run([TOP / "benchmarks/kernels/build", mpi.mpicc, where], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace")
    if p.returncode:
        die("the kernels do not compile:", p.stdout)
    return where


class Kernels:
    """The kernels of this folder, compiled for this MPI."""

    def __init__(self, mpi, folder, near):
        self.mpi, self.folder, self.near = mpi, folder, near

    def job(self, kernel, size, ranks):
        return lambda: seconds([*self.mpi.start(ranks, bound_to(ranks, self.near)), self.folder / kernel, size],
                               self.mpi.env)


def points(classes, ranks, protocols, streams):
    p = {}
    for size in classes:
        for kernel in KERNELS:
            for name, mpi in protocols.items():
                p[(name, kernel, size, ranks)] = mpi.job(kernel, size, ranks)
        for kernel in STREAMED:
            for n in sorted({2, ranks}):
                for (where, count), mpi in streams.items():
                    p[(where, count, kernel, size, n)] = mpi.job(kernel, size, n)
    return p


def median_and_least(v, key):
    return f"{cell(middle(v, key), 4)} ({cell(min(v[key]), 4)})" if v[key] else "-"


def streamed_rows(v, size, ranks):
    rows = []
    for kernel in STREAMED:
        for n in sorted({2, ranks}):
            row = [kernel, n]
            for where in ("limited", "free"):
                one, two = (middle(v, (where, count, kernel, size, n)) for count in (1, 2))
                row += [cell(one, 4), cell(two, 4), cell(100 * (one / two - 1), 1) if one and two else "-"]
            rows.append(row + [cell(PAPER.get((kernel, n)), 1)])
    return rows


def text_of(v, classes, ranks, protocols, near):
    turns = max(map(len, v.values()))
    missing = sum(turns - len(x) for x in v.values())
    text = f"""# Kernels

`benchmarks/run kernels --class={",".join(classes)}`: the kernels of benchmarks/kernels on the software provider and
beside the MPIs that are installed, medians of {turns} turns in which all measurements alternate. Every number is in
kernels.json. {ranks} ranks have near and far cores, so the least is given too, in brackets; two ranks are on the near
cores {near[0]} and {near[1]}.

{"All results were the published ones." if not missing else f"{missing} RUNS FAILED."}
"""
    for size in classes:
        text += f"\n## Class {size}, {ranks} ranks, seconds\n\n" + table(
            ["kernel", *protocols], [[k] + [median_and_least(v, (name, k, size, ranks)) for name in protocols]
                                     for k in KERNELS])
    text += f"""
## Streams

Seconds with one and two streams, long bodies in pieces of {PIECE // 1024} KiB: with a limit of {LIMIT // 1000000} MB/s
per endpoint, as the paper's adapters had, and without; what the second stream gains, and what it gained in the paper
(class A).
"""
    for size in classes:
        text += f"\n### Class {size}\n\n" + table(
            ["kernel", "ranks", "limited, 1", "limited, 2", "gain, %", "free, 1", "free, 2", "gain, %",
             "paper's gain, %"], streamed_rows(v, size, ranks))
    return text


def draw(v, size, ranks, protocols):
    """kernels.svg: bars of the times of one class, with those of the first protocol as 1."""
    def height(name, kernel):
        own, first = (middle(v, (x, kernel, size, ranks)) for x in (name, next(iter(protocols))))
        return f"{own / first:.4f}" if own and first else "nan"
    rows = "\n".join(" ".join([k] + [height(name, k) for name in protocols]) for k in KERNELS)
    bars = ", ".join(f'$d using {i + 2}:xtic(1) title "{name}"' for i, name in enumerate(protocols))
    gnuplot("kernels", f"Kernels, class {size}, {ranks} ranks", "",
            f'time, {next(iter(protocols))} = 1',
            "set style data histogram\nset style fill solid 0.6\nset yrange [0:*]\nset key outside bottom center "
            f"horizontal\n$d << E\n{rows}\nE\nplot {bars}\n")


def run(reps, classes):
    near, apart = near_cores()
    ranks = 1 << (len(os.sched_getaffinity(0)).bit_length() - 1)
    say(f"{ranks} ranks; cores {near[0]} and {near[1]}: a cache line takes {apart:.3f} us one way")
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        folder = build(dapl(), work / "dapl")

        def ours(lines, **knobs):
            env = dict(dat_conf(work / ("-".join(lines) + ".conf"), lines), **knobs_env(**knobs))
            return Kernels(dapl(env), folder, near)
        free, limited = {"free0": "addr=127.0.0.1"}, {"limited0": f"addr=127.0.0.1 rate={LIMIT}"}
        usual, words = offered("rndv")
        protocols = {word: ours(free, rndv=word) for word in sorted(words, key=lambda w: w != usual)}
        protocols.update({title: Kernels(mpi, build(mpi, work / mpi.word), near) for title, mpi in debian().items()})
        streams = {(where, n): ours(lines, streams=n, stripe_bytes=PIECE, rndv_segment=PIECE)
                   for where, lines in (("limited", limited), ("free", free)) for n in (1, 2)}
        v = repeat(points(classes, ranks, protocols, streams), reps, lambda: line(near), far_from(apart))
    save("kernels", "seconds; key: how bodies travel or which MPI, kernel, class, ranks; or: limited or free, streams, "
         "kernel, class, ranks", v, text_of(v, classes, ranks, protocols, near))
    draw(v, classes[-1], ranks, protocols)
