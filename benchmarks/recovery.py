# SPDX-License-Identifier: MIT
"""How long a peer is without a connection when one breaks (paper resilient-message-passing, VI.D): the time that each
rank notes for each recovery, from the end of the connection to the next one; and what recoveries, and being able to
recover, cost programs."""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from kernels import build
from measure import BUILD, LIMIT_S, TOP, dapl, die, knobs_env, prefix, printed, save, say, table

sys.path.append(str(TOP / "test/fault"))
from ground import Ground, Watched  # noqa: E402

PROGRAM = TOP / "test/fault/fault.c"
STORM = BUILD / "benchmarks/storm_perf"
MESSAGES, LARGEST, CHANCE = 20000, 262144, 400
STORM_RANKS, STORM_STREAMS, STORM_TURNS = 64, 16, 5
VERDICTS, SWITCHES, GAPS, PRICES = 10, 10, 5, 5    # of each turn
BUFFER = 4 << 20    # bytes of each of the 32 buffers of fault.c
TWO = {"IA": "soft0,soft1"}
WAYS = {
    "rget": {}, "rput": {"rndv": "rput"}, "copy": {"rndv": "copy"}, "ring lane": {"ring": "on"},
    "4 ranks": {},
}
MS = ("median, ms", "90 %, ms", "99 %, ms", "longest, ms")
RECOVERY = re.compile(r"connected to rank \d+ .* again over .* after (\d+) us and (\d+) requests")
WHOLE = re.compile(r"^fault: \d+ messages, \d+ bytes: 0 lost, 0 doubled, 0 reordered, 0 corrupt$", re.M)


def output(where, conf, command, params="", **knobs):
    """What the command prints, on adapters with these parameters."""
    conf.write_text("".join(f'soft{k} u2.0 nonthreadsafe default {where}/lib/libdaplsoft.so daplsoft.1.0 '
                            f'"addr=127.0.0.1 {params}" ""\n' for k in range(2)))
    env = dict(os.environ, DAT_OVERRIDE=str(conf), PATH=f"{where / 'bin'}:{os.environ['PATH']}", **knobs_env(**knobs))
    p = subprocess.run(["timeout", "-k", "5", str(LIMIT_S), *map(str, command)], env=env, text=True, errors="replace",
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if p.returncode:
        die(f"{command} failed (status {p.returncode}): {p.stdout[-300:]}")
    return p.stdout


def recoveries(where, program, conf, ranks, seed, knobs):
    """The microseconds of each recovery of one job."""
    command = [where / "bin/mpiexec", "-n", ranks, program, seed, MESSAGES, LARGEST]
    text = output(where, conf, command, f"seed={seed} break=1/{CHANCE}", verbose=1, **knobs)
    if not WHOLE.search(text):
        die(f"a job failed (seed {seed}): {text[-300:]}")
    return [int(m[1]) for m in RECOVERY.finditer(text)]


def storms(where, conf):
    """The microseconds until all connections of a process have been replaced."""
    text = output(where, conf, [STORM, STORM_RANKS, STORM_STREAMS, STORM_TURNS], ia="soft0,soft1",
                  streams=STORM_STREAMS // 2)
    return [round(float(ms) * 1000) for ms in text.split()]


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


class Flood:
    """fault.c between two ranks, until the end of a with."""

    def __init__(self, ground, largest, knobs, params=""):
        self.ground = ground
        self.job = Watched(ground.launch(ground.mpiexec(2, *ground.flood(largest)), {"VERBOSE": "2", **knobs},
                                         f"addr=127.0.0.1 {params}"))

    def __enter__(self):
        return self if self.exchanges(3) else die("a job ended too early:", "".join(self.job.lines)[-300:])

    def __exit__(self, *error):
        self.ground.end_flood()
        status, self.text = self.job.finish()
        if status or not WHOLE.search(self.text):
            die(f"a job failed (status {status}): {self.text[-300:]}")

    def exchanges(self, more):
        before = self.job.count("^fault: exchange ")
        return self.job.until(lambda: self.job.count("^fault: exchange ") >= before + more)

    def until(self, pattern, times):
        return self.job.until(lambda: self.job.count(pattern) >= times)

    def tool(self, what, adapter=""):
        """daplsoft, on the first rank's adapter."""
        pid = min(int(f.name) for f in self.ground.processes.iterdir())
        subprocess.run([self.ground.prefix / "bin/daplsoft", what, f"{pid}{adapter}"], stdout=subprocess.DEVNULL,
                       check=True)


def verdict(ground):
    """The microseconds until a connection ends whose path carries nothing; the provider reports nothing. A job for
    each, as a connection that has just been replaced gets more time."""
    with Flood(ground, LARGEST, TWO, "retry=100000") as flood:
        began = time.monotonic()
        flood.tool("cut", ".0")
        found = flood.until("over IA soft0 has ended: nothing arrived", 1)
        took = time.monotonic() - began
        flood.tool("heal", ".0")
    return round(took * 1e6) if found else die("no verdict:", flood.text[-300:])


def switches(ground, times):
    """The microseconds that both ranks are without a connection when the adapter of one fails, and is opened again."""
    with Flood(ground, BUFFER, {"REG_CACHE": "on"}) as flood:
        for k in range(times):
            flood.exchanges(2)
            flood.tool("fail")
            flood.until("again over", 2 * k + 2)
    return [int(m[1]) for m in RECOVERY.finditer(flood.text)]


def gap(ground, fails):
    """The longest microseconds between two messages, with two adapters, one of which fails or not."""
    with Flood(ground, LARGEST, TWO) as flood:
        if fails:
            flood.tool("fail", ".0")
        flood.exchanges(3)
    return int(re.search(r"^fault: gap (\d+) us$", flood.text, re.M)[1])


KERNELS, CLASS, TIMES = ("is", "cg", "ft", "mg"), "A", 2     # times of each turn
PAPER = "0.335 s"       # VI.D: the time of one reconnection
MODES = {    # of a kernel: knobs, a connection breaks every second; FT=off is what the others are compared with
    "rget, off": ({"rndv": "rget", "ft": "off"}, False), "rget, on": ({"rndv": "rget", "ft": "on"}, False),
    "rget, faults": ({"rndv": "rget", "ft": "on"}, True), "rput, off": ({"rndv": "rput", "ft": "off"}, False),
    "rput, on": ({"rndv": "rput", "ft": "on"}, False), "rput, faults": ({"rndv": "rput", "ft": "on"}, True),
}


def ranks_of_kernels():
    return 1 << (len(os.sched_getaffinity(0)).bit_length() - 1)


def kernels(where, conf, folder, found):
    """Adds the seconds of each kernel in each of MODES, and the recoveries that both ends noted. The processes break a
    connection every so many seconds as there are of them."""
    ranks = ranks_of_kernels()
    for kernel in KERNELS:
        for mode, (knobs, faults) in MODES.items():
            text = output(where, conf, [where / "bin/mpiexec", "-n", ranks, folder / kernel, CLASS],
                          f"break={ranks * 1000}ms" if faults else "", verbose=1, **knobs)
            result = re.search(rf"^{kernel} {CLASS} {ranks} (\S+) \S+ VERIFIED$", text, re.M)
            if not result:
                die(f"{kernel} did not verify, {mode}: {text[-300:]}")
            found.setdefault(("kernel", kernel, mode), []).append(float(result[1]))
            found.setdefault(("kernel recoveries", kernel, mode), []).append(len(RECOVERY.findall(text)))


def kernel_rows(found):
    rows = []
    for kernel in KERNELS:
        cells = [kernel]
        for way in ("rget", "rput"):
            off, on, faults = (statistics.median(found["kernel", kernel, f"{way}, {mode}"])
                               for mode in ("off", "on", "faults"))
            cells += [f"{off:.3f}", f"{100 * (on / off - 1):+.1f}", f"{100 * (faults / off - 1):+.1f}"]
        n = sum(sum(found["kernel recoveries", kernel, f"{way}, faults"]) for way in ("rget", "rput")) // 2
        rows.append(cells + [str(n)])
    return rows


PRICE = {    # what: program, words, the number that it prints
    "latency of 8 bytes, us": ("mpi_perf", ("lat", 8, 20000), float),
    "bandwidth of 1 MiB, MB/s": ("mpi_perf", ("bw", 1 << 20, 40), float),
    "private memory of a process, KiB": ("mpi_startup", (), lambda v: v["anon_kib_all"]),
}


def prices(work, conf, turns, found):
    """What each of PRICE is with connections that are replaced, and without."""
    mpi = dapl(dict(os.environ, DAT_OVERRIDE=str(conf)))
    programs = {name: mpi.compiled(name, work) for name, _, _ in PRICE.values()}
    for _ in range(turns):
        for what, (name, words, number) in PRICE.items():
            for ft in ("on", "off"):
                value = printed([*mpi.start(2), programs[name], *words], {**mpi.env, **knobs_env(ft=ft)})
                if value is not None:
                    found.setdefault((what, ft), []).append(number(value))


def price_rows(found):
    rows = []
    for what in PRICE:
        on, off = (statistics.median(found[(what, ft)]) for ft in ("on", "off"))
        rows.append([what, f"{off:.3f}", f"{on:.3f}", f"{100 * (on - off) / off:+.2f} %"])
    return rows


def row(what, us):
    return [what, str(len(us)), *(f"{percentile(us, percent) / 1000:.2f}" for percent in (50, 90, 99, 100))]


def text_of(found, storm, more, price, nas, turns):
    rows = [row(way, us) for way, us in found.items()]
    every = [u for us in found.values() for u in us]
    return f"""# Recovery

`benchmarks/run recovery`: the time of a peer without a connection, from the end of one to the next one, as each rank
notes it (`MPIR_CVAR_DAPL_VERBOSE=1`). {MESSAGES} messages of up to {LARGEST // 1024} KiB between the ranks of one
host, over the software provider, which breaks the connection at one request in {CHANCE}; {turns} jobs for each row. The
break is reported (signaled) by the provider. Every number is in recovery.json.

All rows together: median {percentile(every, 50) / 1000:.2f} ms (target 2), 99 of 100 within
{percentile(every, 99) / 1000:.2f} ms (target 10).

{table(["", "recoveries", *MS], rows)}

All {(STORM_RANKS - 1) * STORM_STREAMS} connections of one process broken at once (`daplsoft break`), by a program
without MPI (benchmarks/storm_perf.c); the ranks at their other ends are {STORM_RANKS - 1} contexts of a second process.
From the first break that the process notices to the last connection (target: 1000 ms):

{table(["", "times", *MS], [row("all connections of a process", storm)])}

More of fault.c between two ranks. Silent loss: of two adapters one loses everything (`daplsoft cut`), and the provider
reports nothing; until its connection ends, by `MPIR_CVAR_DAPL_DEAD_MS` (target: 99 of 100 within 100 ms). An adapter
that fails, the only one, with registrations kept and buffers of {BUFFER >> 20} MiB, 32 of them: the time without a
connection (target: 150 ms). The longest time between two messages with two adapters, of which one fails, and without.

{table(["", "times", *MS], [row(what, us) for what, us in more.items()])}

The price where nothing fails, beside `MPIR_CVAR_DAPL_FT=off`: medians, two ranks of one host, in turn
(targets: 1 % of latency, 0.5 % of bandwidth, 0.45 MB of memory):

{table(["", "off", "on", "difference"], price_rows(price))}

NAS kernels, class {CLASS}, {ranks_of_kernels()} ranks: seconds with `MPIR_CVAR_DAPL_FT=off`, and what they take
longer, in percent, with connections that are replaced (`on`) while none breaks, and while one breaks every second.
Medians of {len(next(iter(nas.values())))} runs, in turn. In the paper, on 256 processes, classes B and C (VI.C and
figure 5): at most 1.5 % longer by RGet and 4 % by RPut, without faults; it ran none with faults, but one reconnection
takes {PAPER} (VI.D), so that one fault a second would take a third of the time.

{table(["kernel", "rget, off, s", "on, %", "1 fault/s, %", "rput, off, s", "on, %", "1 fault/s, %", "recoveries"],
       kernel_rows(nas))}"""


def others(ground, more, turn):
    """Adds to the rows of the second table."""
    def add(what, us):
        more.setdefault(what, []).extend(us)
        say(f"turn {turn + 1}, {what}: {us} us")

    add("silent loss", [verdict(ground) for _ in range(VERDICTS)])
    add("the only adapter fails", switches(ground, SWITCHES))
    gaps = [(gap(ground, False), gap(ground, True)) for _ in range(GAPS)]
    add("longest gap, two adapters", [without for without, _ in gaps])
    add("... of which one fails", [failed for _, failed in gaps])


def run(turns):
    where = prefix()
    found, storm, more, price, nas = {way: [] for way in WAYS}, [], {}, {}, {}
    with tempfile.TemporaryDirectory() as work:
        program, conf = pathlib.Path(work, "fault"), pathlib.Path(work, "dat.conf")
        ground = Ground(where, pathlib.Path(work), 1)
        if subprocess.run([where / "bin/mpicc", "-std=gnu11", "-O2", "-o", program, PROGRAM]).returncode:
            die(f"{PROGRAM} is not compiled")
        folder = build(dapl(), pathlib.Path(work, "kernels"))
        for turn in range(turns):
            for way, knobs in WAYS.items():
                found[way] += recoveries(where, program, conf, 4 if way == "4 ranks" else 2, turn + 1, knobs)
                say(f"turn {turn + 1}, {way}: {len(found[way])} recoveries")
            storm += storms(where, conf)
            say(f"turn {turn + 1}, all connections of a process: {storm[-STORM_TURNS:]} us")
            others(ground, more, turn)
            output(where, conf, ["true"])
            prices(work, conf, PRICES, price)
            for _ in range(TIMES):
                kernels(where, conf, folder, nas)
            say(f"turn {turn + 1}, kernels")
    save("recovery", "microseconds of each recovery; key: way; of the price: what, MPIR_CVAR_DAPL_FT; of kernels: "
         "seconds or recoveries, kernel, how",
         {**{(way,): us for way, us in (found | {"storm": storm} | more).items()}, **price, **nas},
         text_of(found, storm, more, price, nas, turns))
