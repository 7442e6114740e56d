# SPDX-License-Identifier: MIT
"""What MPI adds to the provider that it runs on: latency and bandwidth of mpi_perf against dat_perf's on the same
provider and cores, in one run; both lanes, both ways to move long bodies."""
import tempfile
import pathlib

from measure import (DAT_PERF, cell, dat_conf, far_from, line, middle, mpi, near_cores, number, plot, repeat, save,
                     say, size_name, table)

LATENCY = [8, 64, 256, 1024, 4096, 16384, 65536]
BANDWIDTH = [1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20]
KINDS = {"usual": {}, "ring off": {"ring": "off"}, "every completion": {"suppress": "off"}, "copy": {"rndv": "copy"}}


def points(work, cores):
    env = dat_conf(pathlib.Path(work) / "raw.conf", {"soft0": "addr=127.0.0.1"})
    measure = mpi(work, cores, {"soft0": "addr=127.0.0.1"})

    def raw(test, size, count):
        buffers = 16 if test.endswith("_bw") else 1      # as many as mpi_perf uses
        return lambda: number([DAT_PERF, "-c", "%d,%d" % cores, "-b", buffers, test, size, count], env)
    p = {}
    for s in LATENCY:
        n = max(2000, min(100000, (1 << 27) // s))
        p[("dat", "lat", s)] = raw("send", s, n)
        for kind, knobs in KINDS.items():
            p[(kind, "lat", s)] = measure("lat", s, n, **knobs)
    for s in BANDWIDTH:
        n = max(200, min(100000, (1 << 30) // s))
        p[("dat", "bw", s)] = raw("send_bw", s, n)
        p[("dat read", "bw", s)] = raw("read_bw", s, n)
        for kind in ("usual", "copy"):
            p[(kind, "bw", s)] = measure("bw", s, max(10, n // 16), **KINDS[kind])
    p[("usual", "rate", 8)] = measure("rate", 8, 20000, 64)
    p[("ring off", "rate", 8)] = measure("rate", 8, 20000, 64, ring="off")
    return p


def text_of(v, cores, near, reps):
    def m(kind, test, size):
        return middle(v, (kind, test, size))

    def ratio(a, b):
        return a / b if a and b else None
    added = m("usual", "lat", 8) - m("dat", "lat", 8) if m("usual", "lat", 8) and m("dat", "lat", 8) else None
    rows = [["8 B latency above a raw DAT send, us", "at most 0.35", cell(added),
             "reached" if added is not None and added <= 0.35 else "not reached"]]
    for s in BANDWIDTH:
        if s >= 65536:
            r = ratio(m("usual", "bw", s), m("dat", "bw", s))
            rows.append([f"bandwidth at {size_name(s)}, to raw DAT sends", "at least 0.95", cell(r, 2),
                         "reached" if r and r >= 0.95 else "not reached"])
    latency = [[size_name(s), cell(m("dat", "lat", s))] + [cell(m(k, "lat", s)) for k in KINDS] for s in LATENCY]
    bandwidth = [[size_name(s)] + [cell(m(k, "bw", s)) for k in ("dat", "dat read", "usual", "copy")]
                 for s in BANDWIDTH]
    return f"""# MPI and the provider below it

`benchmarks/run mpi`: two ranks on the software provider, cores {cores[0]} and {cores[1]} (a cache line takes
{near:.3f} us one way), medians of {reps} turns in which all measurements alternate. Every number is in mpi.json.
Both have 16 transfers under way, each with a buffer of its own.

## Targets

{table(["what", "target", "measured", ""], rows)}
## Latency, us

{table(["bytes", "raw DAT send"] + [f"MPI, {k}" for k in KINDS], latency)}
## Bandwidth, MB/s, 16 under way

{table(["bytes", "raw DAT send", "raw DAT read", "MPI, rendezvous rget", "MPI, rendezvous copy"], bandwidth)}
Messages of 8 bytes, 64 under way: {cell(m("usual", "rate", 8))} million per second; without the ring lane
{cell(m("ring off", "rate", 8))}.
"""


def run(reps):
    cores, near = near_cores()
    say(f"cores {cores[0]} and {cores[1]}: a cache line takes {near:.3f} us one way")
    with tempfile.TemporaryDirectory() as work:
        v = repeat(points(work, cores), reps, lambda: line(cores), far_from(near))
    save("mpi", "latency us, bandwidth MB/s (10^6), rate in millions per second; key: kind, test, bytes", v,
         text_of(v, cores, near, reps))
    plot("mpi", "MPI and raw DAT on the software provider", "MB/s", BANDWIDTH,
         {k: [middle(v, (k, "bw", s)) for s in BANDWIDTH] for k in ("dat", "dat read", "usual", "copy")})
