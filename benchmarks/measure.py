# SPDX-License-Identifier: MIT
"""What the runs of benchmarks/run share: near cores, two hosts on one machine, repetitions that are
interleaved, results as JSON, tables and plots."""
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = TOP / "build/ours"
DAT_PERF = BUILD / "benchmarks/dat_perf"
RESULTS = TOP / "benchmarks/results"


def say(*words):
    print(f"[{time.monotonic() - START:5.0f}s]", *words, flush=True)


START = time.monotonic()


def die(*words):
    sys.exit("benchmarks/run: " + " ".join(words))


def number(command, env=None):
    """The one number that a program prints; None when it fails, which is said."""
    p = subprocess.run([str(c) for c in command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       text=True, errors="replace")
    try:
        return float(p.stdout.split()[-1])
    except (ValueError, IndexError):
        say("failed:", " ".join(str(c) for c in command), p.stderr.strip()[-300:])
        return None


def size_name(n):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit and n % unit == 0:
            return f"{n // unit} {name}"
    return f"{n} B"


def prefix():
    """Where MPI with ch3:dapl is installed."""
    noted = BUILD.parent / "prefix"
    where = pathlib.Path(noted.read_text().strip()) if noted.exists() else TOP / "install"
    if not (where / "bin/mpicc").exists():
        die(f"no MPI in {where}: ./quickstart installs it")
    return where


def compiled(mpicc, name, program):
    subprocess.run([mpicc, "-O2", "-o", program, TOP / "benchmarks" / name], check=True)
    return program


def knobs_env(**knobs):
    """For the environment; messages through uDAPL unless channels= says otherwise."""
    return {f"MPIR_CVAR_DAPL_{k.upper()}": str(v) for k, v in {"channels": "dapl", **knobs}.items()}


def mpi(work, cores, lines):
    """Builds mpi_perf; measure(test, bytes, count, window, **knobs) -> a function that runs it on two ranks,
    on these cores, on the software provider with a dat.conf of these lines (and not in shared memory,
    unless channels= says so)."""
    program = compiled(prefix() / "bin/mpicc", "mpi_perf.c", pathlib.Path(work) / "mpi_perf")
    conf = pathlib.Path(work) / ("-".join(lines) + ".conf")
    env = dat_conf(conf, lines)

    def measure(test, size, count, window=16, **knobs):
        return lambda: number([prefix() / "bin/mpiexec", "-n", 2, "-bind-to", "user:%d,%d" % cores, program, test,
                               size, count, window], dict(env, **knobs_env(**knobs)))
    return measure


# -- the machine -------------------------------------------------------------------------------------

def line(cores):
    """Half a round trip of a cache line between two cores, us."""
    return number([DAT_PERF, "-c", "%d,%d" % cores, "line", 8, 200000])


def near_cores():
    """The pair of usable cores between which a cache line travels fastest, and its time."""
    pairs = itertools.combinations(sorted(os.sched_getaffinity(0)), 2)
    timed = [(min(line(p) for _ in range(3)), p) for p in pairs]
    if not timed:
        die("at least two cores are needed")
    return min(timed)[1], min(timed)[0]


def far_from(near):
    """Above this the host has moved the cores apart (near ones are at 0.05 to 0.12 us, far ones at 0.25 us
    and more)."""
    return max(2.5 * near, 0.2)


def machine():
    model = [l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")]
    commit = subprocess.run(["git", "-C", TOP, "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                            text=True).stdout.strip()
    return {"cpu": model[0] if model else "?", "cores": len(os.sched_getaffinity(0)),
            "kernel": os.uname().release, "commit": commit}


def dat_conf(path, lines):
    """A dat.conf with the software provider's IAs of these names and parameters; the environment for it."""
    path.write_text("".join(f"{name} u2.0 nonthreadsafe default {BUILD}/.libs/libdaplsoft.so daplsoft.1.0 "
                            f"\"{params}\" \"\"\n" for name, params in lines.items()))
    return dict(os.environ, DAT_OVERRIDE=str(path))


# -- repetitions -------------------------------------------------------------------------------------

def repeat(points, reps, probe, limit):
    """Runs all points {key: function} in turn, `reps` times, and gives {key: [values]}. probe() before and
    after each turn: a turn during which the cores were far apart (over `limit`) is dropped and made again."""
    values = {key: [] for key in points}
    turns = done = 0
    while done < reps and turns < 3 * reps:
        turns += 1
        before = probe()
        turn = {}
        for i, (key, f) in enumerate(points.items()):
            if i % 10 == 0:
                say(f"turn {done + 1} of {reps}: {i} of {len(points)}")
            turn[key] = f()
        after = probe()
        if max(before, after) > limit:
            say(f"the cores were far apart ({before:.3f} us before, {after:.3f} after): the turn is dropped")
            continue
        done += 1
        for key, value in turn.items():
            if value is not None:
                values[key].append(value)
    if done < reps:
        say(f"only {done} of {reps} turns were good: the machine is too unsteady")
    return values


def middle(values, key):
    return statistics.median(values[key]) if values.get(key) else None


# -- output ------------------------------------------------------------------------------------------

def cell(x, digits=3):
    return "-" if x is None else f"{x:.{digits}f}" if x < 100 else f"{x:.0f}"


def ratio(a, b):
    return a / b if a and b else None


def targets(rows):
    """The table of what was asked for: rows of (what, bound, highest, figure), the figure to be at most the bound
    when `highest`, else at least."""
    return table(["what", "target", "measured", ""],
                 [[what, f"{'at most' if highest else 'at least'} {bound}", cell(x, 2),
                   "not measured" if x is None else
                   "reached" if (x <= bound if highest else x >= bound) else "not reached"]
                  for what, bound, highest, x in rows])


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]) + "\n"


def save(name, about, values, text):
    """name.json: every number that was measured; name.md: the tables."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    raw = {"about": about, "machine": machine(), "values": {" ".join(map(str, k)): v for k, v in values.items()}}
    (RESULTS / f"{name}.json").write_text(json.dumps(raw, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
    say("written:", f"benchmarks/results/{name}.json and .md")


def plot(name, title, ylabel, xs, curves, xlabel="bytes"):
    """name.svg: curves {label: [y or None]} over xs."""
    labels = list(curves)
    data = "\n".join(" ".join([str(x)] + ["nan" if curves[l][i] is None else str(curves[l][i]) for l in labels])
                     for i, x in enumerate(xs))
    unit = 'set format x "%.0s%cB"\n' if xlabel == "bytes" else ""
    gnuplot(name, title, xlabel, ylabel,
            "set logscale xy\n" + unit + "set key left top\n$d << E\n" + data + "\nE\nplot "
            + ", ".join(f'$d using 1:{i + 2} with linespoints title "{l}"' for i, l in enumerate(labels)) + "\n")


def gnuplot(name, title, xlabel, ylabel, commands):
    """name.svg, by gnuplot; `commands` hold the data and the plot itself."""
    script = (f'set terminal svg size 760,480 font "sans,12" background "white"\nset output "{RESULTS}/{name}.svg"\n'
              f'set title "{title}"\nset xlabel "{xlabel}"\nset ylabel "{ylabel}"\nset grid\n'
              'set datafile missing "nan"\n' + commands)
    try:
        subprocess.run(["gnuplot"], input=script, text=True, check=True)
        say("written:", f"benchmarks/results/{name}.svg")
    except FileNotFoundError:
        say("no plot: gnuplot is not installed (apt-get install gnuplot-nox)")
