# SPDX-License-Identifier: MIT
"""Several endpoints between two ranks (paper mpi-over-udapl, 6 and figure 11): bandwidth by the number of
streams, under a limit per endpoint as the paper's adapters had, and without one."""
import tempfile

import measure
from measure import cell, far_from, line, middle, mpi, near_cores, plot, repeat, save, say, size_name, table, targets

STREAMS = (1, 2, 3, 4)
SIZES = [4096, 16384, 65536, 262144, 1 << 20, 4 << 20]
LIMIT = 659_000_000     # bytes per second and endpoint: one stream of the paper's figure 11


def count(size, limited):
    """Windows of 16 messages that last some tenths of a second."""
    return max(5, (1 << (28 if limited else 31)) // (16 * size))


def ratio(v, where, streams, size):
    return measure.ratio(*(middle(v, (where, s, size)) for s in (streams, 1)))


def text_of(v, cores, reps):
    def rows(where):
        return [[size_name(s)] + [cell(middle(v, (where, n, s))) for n in STREAMS]
                + [cell(ratio(v, where, 2, s), 2)] for s in SIZES]
    head = ["bytes"] + [f"{n} stream{'s' if n > 1 else ''}, MB/s" for n in STREAMS] + ["2 streams / 1"]
    large = [s for s in SIZES if s >= 65536]
    least_limited = min(ratio(v, "limited", 2, s) or 0 for s in large)
    least_free = min(ratio(v, "free", 2, s) or 0 for s in large)
    verdict = targets([("two streams to one, with a limit per endpoint, from 64 KiB", 1.35, False, least_limited),
                       ("the same without a limit", 0.97, False, least_free)])
    return f"""# Streams

`benchmarks/run streams`: MPI bandwidth between two ranks, 16 messages under way, on the software provider, cores
{cores[0]} and {cores[1]}, medians of {reps} turns in which all measurements alternate. Every number is in
streams.json.

Of the sizes the worst:

{verdict}
## With a limit of {LIMIT // 1000000} MB/s per endpoint (`rate={LIMIT}`)

The paper's adapters gave 659 MB/s with one endpoint and 914 MB/s with two, which its bus ended; here nothing but the
limit ends it.

{table(head, rows("limited"))}
## Without a limit

{table(head, rows("free"))}"""


def run(reps):
    cores, near = near_cores()
    say(f"cores {cores[0]} and {cores[1]}: a cache line takes {near:.3f} us one way")
    with tempfile.TemporaryDirectory() as work:
        limited = mpi(work, cores, {"limited0": f"addr=127.0.0.1 rate={LIMIT}"})
        free = mpi(work, cores, {"free0": "addr=127.0.0.1"})
        points = {}
        for size in SIZES:
            for n in STREAMS:
                for where, measure in (("limited", limited), ("free", free)):
                    points[(where, n, size)] = measure("bw", size, count(size, where == "limited"), streams=n,
                                                       stripe_bytes=262144)
        v = repeat(points, reps, lambda: line(cores), far_from(near))
    save("streams", "bandwidth in MB/s (10^6); key: limited or free, streams, bytes", v, text_of(v, cores, reps))
    plot("streams", f"Streams under a limit of {LIMIT // 1000000} MB/s per endpoint", "MB/s", SIZES,
         {f"{n} stream{'s' if n > 1 else ''}": [middle(v, ("limited", n, s)) for s in SIZES] for n in STREAMS})
