# SPDX-License-Identifier: MIT
"""How long a peer is without a connection when one breaks (paper resilient-message-passing, V): the
time that each rank notes for each recovery, from the end of the connection to the next one."""
import os
import pathlib
import re
import subprocess
import tempfile

from measure import BUILD, LIMIT_S, TOP, die, knobs_env, prefix, save, say, table

PROGRAM = TOP / "test/fault/fault.c"
STORM = BUILD / "benchmarks/storm_perf"
MESSAGES, LARGEST, CHANCE = 20000, 262144, 400
STORM_RANKS, STORM_STREAMS, STORM_TURNS = 64, 16, 5
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


def row(what, us):
    return [what, str(len(us)), *(f"{percentile(us, percent) / 1000:.2f}" for percent in (50, 90, 99, 100))]


def text_of(found, storm, turns):
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

{table(["", "times", *MS], [row("all connections of a process", storm)])}"""


def run(turns):
    where = prefix()
    found, storm = {way: [] for way in WAYS}, []
    with tempfile.TemporaryDirectory() as work:
        program, conf = pathlib.Path(work, "fault"), pathlib.Path(work, "dat.conf")
        if subprocess.run([where / "bin/mpicc", "-std=gnu11", "-O2", "-o", program, PROGRAM]).returncode:
            die(f"{PROGRAM} is not compiled")
        for turn in range(turns):
            for way, knobs in WAYS.items():
                found[way] += recoveries(where, program, conf, 4 if way == "4 ranks" else 2, turn + 1, knobs)
                say(f"turn {turn + 1}, {way}: {len(found[way])} recoveries")
            storm += storms(where, conf)
            say(f"turn {turn + 1}, all connections of a process: {storm[-STORM_TURNS:]} us")
    save("recovery", "microseconds of each recovery; key: way",
         {**{(way,): us for way, us in found.items()}, ("storm",): storm}, text_of(found, storm, turns))
