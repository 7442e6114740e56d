# SPDX-License-Identifier: MIT
"""What MPI adds to the provider that it runs on: latency, bandwidth and message rate of mpi_perf against dat_perf's
on the same provider and cores, in one run; both lanes, all ways to move long bodies, and what the retention of
frames costs."""
import tempfile
import pathlib

from measure import (DAT_PERF, cell, dat_conf, far_from, line, middle, mpi, near_cores, plot, printed, ratio, repeat,
                     save, say, size_name, table, targets)

LATENCY = [8, 64, 256, 1024, 4096, 16384, 65536, 1 << 20]
BANDWIDTH = [1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20]
RATE = [8, 64, 512, 4096]
WINDOW = 64             # messages under way, for their rate
KINDS = {"usual": {}, "ring off": {"ring": "off"}, "every completion": {"suppress": "off"},
         "no retention": {"retain": "off"}, "rput": {"rndv": "rput"}, "copy": {"rndv": "copy"}}
WAYS = ("usual", "rput", "copy")
SHORT = ("usual", "ring off", "every completion", "no retention")


def points(work, cores):
    env = dat_conf(pathlib.Path(work) / "raw.conf", {"soft0": "addr=127.0.0.1"})
    measure = mpi(work, cores, {"soft0": "addr=127.0.0.1"})

    def raw(test, size, count):
        buffers = 16 if test.endswith("_bw") else 1      # as many as mpi_perf uses
        return lambda: printed([DAT_PERF, "-c", "%d,%d" % cores, "-b", buffers, test, size, count], env)
    p = {}
    for s in LATENCY:
        n = max(1000, min(50000, (1 << 27) // s))
        p[("dat", "lat", s)] = raw("send", s, n)
        for kind in SHORT if s <= 4096 else WAYS:
            p[(kind, "lat", s)] = measure("lat", s, n, **KINDS[kind])
    for s in BANDWIDTH:
        n = max(200, min(100000, (1 << 30) // s))
        p[("dat", "bw", s)] = raw("send_bw", s, n)
        p[("dat read", "bw", s)] = raw("read_bw", s, n)
        p[("dat write", "bw", s)] = raw("write_bw", s, n)
        for kind in WAYS + ("no retention",):
            p[(kind, "bw", s)] = measure("bw", s, max(10, n // 16), **KINDS[kind])
    for s in RATE:
        for kind in SHORT:
            p[(kind, "rate", s)] = measure("rate", s, 10000, WINDOW, **KINDS[kind])
    return p


def retention(v):
    """MPI with retention to MPI without it: every figure that was taken both ways, its ratio and its spread."""
    rows = []
    for test, sizes in (("lat", [s for s in LATENCY if s <= 4096]), ("bw", BANDWIDTH), ("rate", RATE)):
        for s in sizes:
            on, off = (v.get((kind, test, s)) for kind in ("usual", "no retention"))
            if on and off:
                rows.append([f"{test}, {size_name(s)}",
                             cell(ratio(middle(v, ("usual", test, s)), middle(v, ("no retention", test, s))), 3),
                             cell((max(on) - min(on)) / middle(v, ("usual", test, s)), 3)])
    return table(["what", "with / without", "spread of the turns (largest - least) / median"], rows)


def text_of(v, cores, near, reps):
    def m(kind, test, size):
        return middle(v, (kind, test, size))

    def by_kind(test, sizes, kinds):
        return [[size_name(s)] + [cell(m(k, test, s)) for k in kinds] for s in sizes]
    mpi_lat, dat_lat = m("usual", "lat", 8), m("dat", "lat", 8)
    asked = [("8 B latency above a raw DAT send, us", 0.35, True, mpi_lat - dat_lat if mpi_lat and dat_lat else None)]
    asked += [(f"bandwidth at {size_name(s)}, to raw DAT sends", 0.95, False,
               ratio(m("usual", "bw", s), m("dat", "bw", s))) for s in BANDWIDTH if s >= 65536]
    ways = ["rget", "rput", "copy"]
    return f"""# MPI and the provider below it

`benchmarks/run mpi`: two ranks on the software provider, cores {cores[0]} and {cores[1]} (a cache line takes
{near:.3f} us one way), medians of {reps} turns in which all measurements alternate. Every number is in mpi.json.
Both have 16 transfers under way all the time, each with a buffer of its own.

## Targets

{targets(asked)}
## Short messages, us

{table(["bytes", "raw DAT send"] + [f"MPI, {k}" for k in SHORT],
       by_kind("lat", [s for s in LATENCY if s <= 4096], ("dat",) + SHORT))}
## Long messages, us

{table(["bytes", "raw DAT send"] + [f"MPI, {k}" for k in ways],
       by_kind("lat", [s for s in LATENCY if s > 4096], ("dat",) + WAYS))}
## Bandwidth, MB/s, 16 under way

{table(["bytes", "raw DAT send", "raw DAT read", "raw DAT write"] + [f"MPI, {k}" for k in ways],
       by_kind("bw", BANDWIDTH, ("dat", "dat read", "dat write") + WAYS))}
## Message rate, millions per second, {WINDOW} under way

{table(["bytes"] + [f"MPI, {k}" for k in SHORT], by_kind("rate", RATE, SHORT))}
## What the retention of frames and its acknowledgements cost

The same with frames that nobody keeps or acknowledges (`MPIR_CVAR_DAPL_RETAIN=off`).

{retention(v)}"""


def run(reps):
    cores, near = near_cores()
    say(f"cores {cores[0]} and {cores[1]}: a cache line takes {near:.3f} us one way")
    with tempfile.TemporaryDirectory() as work:
        v = repeat(points(work, cores), reps, lambda: line(cores), far_from(near))
    save("mpi", "latency us, bandwidth MB/s (10^6), rate in millions per second; key: kind, test, bytes", v,
         text_of(v, cores, near, reps))
    plot("mpi", "MPI and raw DAT on the software provider", "MB/s", BANDWIDTH,
         {k: [middle(v, (k, "bw", s)) for s in BANDWIDTH] for k in ("dat", "dat read", "dat write") + WAYS})
