# SPDX-License-Identifier: MIT
"""The software provider by itself against what the machine does without it: a cache line, one copy by the kernel
(process_vm calls), two that overlap, a bare TCP program. By dat_perf and line_perf, interleaved in one run."""
import subprocess
import tempfile
import pathlib

from hosts import Hosts
from measure import (DAT_PERF, LINE_PERF, cell, dat_conf, die, far_from, line, middle, near_cores, plot, printed,
                     ratio, repeat, save, say, size_name, table, targets)

LATENCY = [8, 64, 256, 1024, 4096, 16384, 65536]
BANDWIDTH = [1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20]
OPS = ("send", "write", "read")
COPIED = [s for s in BANDWIDTH if s >= 16384]    # sizes for which one host is compared with bare copies
CONNECTIONS = [1, 10, 100, 1000]


def count(test, size):
    """So many that a measurement takes a quarter of a second or so."""
    if test.endswith("_bw"):
        return max(200, min(200000, (1 << 30) // size))
    return max(2000, min(100000, (1 << 28) // size))


def points(env, cores, prefix=(), options=(), slow=1):
    """(test, size, endpoints) -> a function that measures it."""
    def measure(test, size, eps=1):
        return lambda: printed([*prefix, DAT_PERF, "-c", "%d,%d" % cores, *options, "-e", eps, test, size,
                                max(200, count(test, size) // slow)], env)
    return measure


def copies(cores, size):
    """-> a function that measures two copies that overlap, without DAT."""
    return lambda: printed([LINE_PERF, "-c", "%d,%d" % cores, "copies", size, count("copies_bw", size)])


def best_copy(v, op, size):
    """The bandwidth of the better bare loop for a write or read; None when one is missing."""
    loops = [middle(v, (f"vm_{op}_bw", size, 1)), middle(v, ("copies", size, 1))]
    return None if None in loops else max(loops)


def local(cores, env, reps, near):
    measure = points(env, cores)
    p = {("line", 8, 1): lambda: line(cores)}
    for size in LATENCY:
        p.update({(op, size, 1): measure(op, size) for op in OPS})
    for size in BANDWIDTH:
        for op in OPS:
            p.update({(op + "_bw", size, eps): measure(op + "_bw", size, eps) for eps in (1, 2)})
        p.update({(op, size, 1): measure(op, size) for op in ("vm_write_bw", "vm_read_bw")})
        p[("copies", size, 1)] = copies(cores, size)
    p.update({("connect", 8, n): measure("connect", 8, n) for n in CONNECTIONS})
    say(f"between two processes of one host: {len(p)} measurements a turn")
    return repeat(p, reps, lambda: line(cores), far_from(near))


def remote(cores, env, reps, near, hosts):
    measure = points(env, cores, hosts.on_a(), ["-n", hosts.b, "-a", hosts.addr], slow=4)
    p = {}
    for size in LATENCY:
        p.update({(op, size, 1): measure(op, size) for op in ("tcp",) + OPS})
    for size in BANDWIDTH:
        p[("tcp_bw", size, 1)] = measure("tcp_bw", size)
        for op in OPS:
            p.update({(op + "_bw", size, eps): measure(op + "_bw", size, eps) for eps in (1, 2)})
    p.update({("connect", 8, n): measure("connect", 8, n) for n in CONNECTIONS})
    say(f"between two hosts, over a veth pair: {len(p)} measurements a turn")
    return repeat(p, reps, lambda: line(cores), far_from(near))


def latency_table(v, bare):
    rows = [[size_name(s), cell(middle(v, (bare, s, 1)))] + [cell(middle(v, (op, s, 1))) for op in OPS]
            + [cell(ratio(middle(v, ("send", s, 1)), middle(v, (bare, s, 1))), 2)] for s in LATENCY]
    return table(["bytes", f"bare {bare}, us"] + [f"{op}, us" for op in OPS] + [f"send / bare {bare}"], rows)


def bandwidth_table(v, bare):
    def row(s):
        best = middle(v, (bare, s, 1))
        return [size_name(s), cell(best)] + [cell(middle(v, (op + "_bw", s, eps))) for op in OPS for eps in (1, 2)] \
            + [cell(ratio(middle(v, ("write_bw", s, 1)), best), 2)]
    head = ["bytes", f"bare {bare}, MB/s"] + [f"{op}, {eps} EP" for op in OPS for eps in (1, 2)] \
        + [f"write / bare {bare}"]
    return table(head, [row(s) for s in BANDWIDTH])


def connect_table(v, w):
    def ms(values, n):
        us = middle(values, ("connect", 8, n)) if values else None
        return cell(us and us / 1000, 2)
    return table(["connections at the same time", "one host, ms", "two hosts, ms"],
                 [[str(n), ms(v, n), ms(w, n)] for n in CONNECTIONS])


def verdict(v, w):
    """What was asked for, and what was measured."""
    large = [s for s in BANDWIDTH if s >= 65536]
    rows = [("one host: 8 B send, to a cache line's half round trip", 3, True,
             ratio(middle(v, ("send", 8, 1)), middle(v, ("line", 8, 1))))]
    rows += [(f"one host: {op} of {size_name(s)}, to the better of the two bare loops", 0.95, False,
              ratio(middle(v, (op + "_bw", s, 1)), best_copy(v, op, s))) for op in ("write", "read") for s in COPIED]
    rows += [(f"{where}: 1000 connections at the same time, seconds", 1, True, middle(x, ("connect", 8, 1000)) / 1e6)
             for where, x in (("one host", v), ("two hosts", w)) if x and middle(x, ("connect", 8, 1000))]
    if w:
        rows.append(("two hosts: 8 B send, to bare TCP", 1.15, True,
                     ratio(middle(w, ("send", 8, 1)), middle(w, ("tcp", 8, 1)))))
        rows += [(f"two hosts: write of {size_name(s)}, to bare TCP", 0.95, False,
                  ratio(middle(w, ("write_bw", s, 1)), middle(w, ("tcp_bw", s, 1)))) for s in large]
    return targets(rows)


def text_of(v, w, cores, near, reps):
    text = f"""# The software provider by itself

`benchmarks/run provider`: cores {cores[0]} and {cores[1]} (a cache line takes {near:.3f} us one way), medians of
{reps} turns in which all measurements alternate. Latencies are half a round trip, a read's is all of it;
bandwidths with 16 transfers under way on each endpoint. Every number is in provider.json.

## Targets

{verdict(v, w)}
## Between two processes of one host

Bare: a cache line that goes back and forth takes {cell(middle(v, ("line", 8, 1)))} us one way.

{table(["bytes"] + [f"{op}, us" for op in OPS],
       [[size_name(s)] + [cell(middle(v, (op, s, 1))) for op in OPS] for s in LATENCY])}
{bandwidth_table(v, "vm_write_bw")}
Bare loops on one host, MB/s: one copy by the kernel (process_vm_writev, process_vm_readv), two that overlap.

{table(["bytes", "kernel, write", "kernel, read", "two copies", "write / the better", "read / the better"],
       [[size_name(s)] + [cell(middle(v, (k, s, 1))) for k in ("vm_write_bw", "vm_read_bw", "copies")]
        + [cell(ratio(middle(v, (op + "_bw", s, 1)), best_copy(v, op, s)), 2) for op in ("write", "read")]
        for s in COPIED])}
## Connecting

From the first dat_ep_connect until all are established at both ends.

{connect_table(v, w)}"""
    if w:
        text += f"""
## Between two hosts (network namespaces, a veth pair)

{latency_table(w, "tcp")}
{bandwidth_table(w, "tcp_bw")}"""
    return text


def run(reps):
    if not DAT_PERF.exists():
        die("build/ours/benchmarks/dat_perf is missing: ./check unit builds it")
    cores, near = near_cores()
    say(f"cores {cores[0]} and {cores[1]}: a cache line takes {near:.3f} us one way")
    with tempfile.TemporaryDirectory() as folder:
        conf = pathlib.Path(folder) / "dat.conf"
        v = local(cores, dat_conf(conf, {"soft0": "addr=127.0.0.1"}), reps, near)
        w = {}
        try:
            with Hosts("10.94.0") as hosts:
                w = remote(cores, dat_conf(conf, {"soft0": "if=p0"}), reps, near, hosts)
        except subprocess.CalledProcessError as why:
            say("between hosts: left out, no network namespaces here:", str(why))
    values = {("host",) + k: x for k, x in v.items()}
    values.update({("hosts",) + k: x for k, x in w.items()})
    save("provider", "latencies in us, bandwidths in MB/s (10^6); key: where, test, bytes, endpoints", values,
         text_of(v, w, cores, near, reps))
    curves = {op: [middle(v, (op + "_bw", s, 1)) for s in BANDWIDTH] for op in OPS}
    curves["process_vm_writev"] = [middle(v, ("vm_write_bw", s, 1)) for s in BANDWIDTH]
    if w:
        curves["hosts: write"] = [middle(w, ("write_bw", s, 1)) for s in BANDWIDTH]
        curves["hosts: bare TCP"] = [middle(w, ("tcp_bw", s, 1)) for s in BANDWIDTH]
    plot("provider", "The software provider, one endpoint", "MB/s", BANDWIDTH, curves)
