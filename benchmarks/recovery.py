# SPDX-License-Identifier: MIT
"""How long a peer is without a connection when one breaks (paper resilient-message-passing, V): the
time that each rank notes for each recovery, from the end of the connection to the next one."""
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

from measure import LIMIT_S, TOP, die, knobs_env, prefix, save, say, table

PROGRAM = TOP / "test/fault/fault.c"
MESSAGES, LARGEST, CHANCE = 20000, 262144, 400
WAYS = {
    "rget": {}, "rput": {"rndv": "rput"}, "copy": {"rndv": "copy"}, "ring lane": {"ring": "on"},
    "4 ranks": {},
}
RECOVERY = re.compile(r"connected to rank \d+ .* again over .* after (\d+) us and (\d+) requests")
WHOLE = re.compile(r"^fault: \d+ messages, \d+ bytes: 0 lost, 0 doubled, 0 reordered, 0 corrupt$", re.M)


def recoveries(where, program, conf, ranks, seed, knobs):
    """The microseconds of each recovery of one job."""
    conf.write_text(f'soft0 u2.0 nonthreadsafe default {where}/lib/libdaplsoft.so daplsoft.1.0 '
                    f'"addr=127.0.0.1 seed={seed} break=1/{CHANCE}" ""\n')
    env = dict(os.environ, DAT_OVERRIDE=str(conf), PATH=f"{where / 'bin'}:{os.environ['PATH']}",
               **knobs_env(verbose=1, **knobs))
    p = subprocess.run(["timeout", "-k", "5", str(LIMIT_S), where / "bin/mpiexec", "-n", str(ranks), program, str(seed),
                        str(MESSAGES), str(LARGEST)], env=env, text=True, errors="replace", stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
    if p.returncode or not WHOLE.search(p.stdout):
        die(f"a job failed (status {p.returncode}, seed {seed}): {p.stdout[-300:]}")
    return [int(m[1]) for m in RECOVERY.finditer(p.stdout)]


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def text_of(found, turns):
    rows = [[way, str(len(us)), f"{statistics.median(us) / 1000:.2f}", f"{percentile(us, 90) / 1000:.2f}",
             f"{percentile(us, 99) / 1000:.2f}", f"{max(us) / 1000:.2f}"] for way, us in found.items()]
    every = [u for us in found.values() for u in us]
    return f"""# Recovery

`benchmarks/run recovery`: the time of a peer without a connection, from the end of one to the next one, as each rank
notes it (`MPIR_CVAR_DAPL_VERBOSE=1`). {MESSAGES} messages of up to {LARGEST // 1024} KiB between the ranks of one
host, over the software provider, which breaks the connection at one request in {CHANCE}; {turns} jobs for each row. The
break is reported (signaled) by the provider. Every number is in recovery.json.

All rows together: median {statistics.median(every) / 1000:.2f} ms (target 2), 99 of 100 within
{percentile(every, 99) / 1000:.2f} ms (target 10).

{table(["", "recoveries", "median, ms", "90 %, ms", "99 %, ms", "longest, ms"], rows)}"""


def run(turns):
    where = prefix()
    found = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as work:
        program, conf = pathlib.Path(work, "fault"), pathlib.Path(work, "dat.conf")
        if subprocess.run([where / "bin/mpicc", "-std=gnu11", "-O2", "-o", program, PROGRAM]).returncode:
            die(f"{PROGRAM} is not compiled")
        for turn in range(turns):
            for way, knobs in WAYS.items():
                found[way] += recoveries(where, program, conf, 4 if way == "4 ranks" else 2, turn + 1, knobs)
                say(f"turn {turn + 1}, {way}: {len(found[way])} recoveries")
    save("recovery", "microseconds of each recovery; key: way", {(way,): us for way, us in found.items()},
         text_of(found, turns))
