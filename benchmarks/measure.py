# SPDX-License-Identifier: MIT
"""What the runs of benchmarks/run share: near cores, two hosts on one machine, repetitions that are
interleaved, results as JSON, tables and plots."""
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = TOP / "build/ours"
DAT_PERF = BUILD / "benchmarks/dat_perf"
LINE_PERF = BUILD / "benchmarks/line_perf"
RESULTS = TOP / "benchmarks/results"
LIMIT_S = 180           # of one program


def say(*words):
    print(f"[{time.monotonic() - START:5.0f}s]", *words, flush=True)


START = time.monotonic()


def die(*words):
    sys.exit("benchmarks/run: " + " ".join(words))


def lines_printed(command, env=None):
    """The lines that a program prints; none when it fails, which is said."""
    p = subprocess.run(["timeout", "-k", "5", str(LIMIT_S), *map(str, command)], env=env, text=True,
                       errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.returncode == 0 and p.stdout.strip():
        return p.stdout.strip().split("\n")
    say("failed:", " ".join(map(str, command)), f"(status {p.returncode})", p.stderr.strip()[-300:])
    return []


def printed(command, env=None):
    """The last line that a program prints, a number or an object of JSON; None when it fails, which is said."""
    said = lines_printed(command, env)
    try:
        return json.loads(said[-1]) if said else None
    except ValueError:
        say("failed:", " ".join(map(str, command)), "printed", said[-1])
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


def knobs_env(**knobs):
    """For the environment; messages through uDAPL unless channels= says otherwise."""
    return {f"MPIR_CVAR_DAPL_{k.upper()}": str(v) for k, v in {"channels": "dapl", **knobs}.items()}


# -- MPIs --------------------------------------------------------------------------------------------

def bound_by_hydra(cores):
    return ["-bind-to", "user:" + ",".join(map(str, cores))] if cores else []


def bound_by_openmpi(cores):
    if not cores:
        return ["--bind-to", "none", "--oversubscribe"]
    return ["--cpu-list", ",".join(map(str, cores)), "--bind-to", "cpu-list:ordered"]


class Mpi:
    """An MPI to measure: a word for it, its compiler, its mpiexec with the options that it always gets, the
    environment of its jobs."""

    def __init__(self, word, mpicc, mpiexec, env=None, options=(), bound=bound_by_hydra):
        self.word, self.mpicc, self.mpiexec, self.options, self.bound = word, mpicc, mpiexec, options, bound
        self.env = dict(os.environ if env is None else env)

    def compiled(self, name, work, *options):
        """The program of benchmarks/NAME.c, compiled in the folder `work`."""
        program = pathlib.Path(work) / f"{name}-{self.word}"
        subprocess.run([self.mpicc, "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wshadow", *options,
                        "-o", program, TOP / f"benchmarks/{name}.c"], check=True)
        return program

    def start(self, ranks, cores=()):
        """How the command of a job begins, its ranks bound to these cores in their order, or to none."""
        return [self.mpiexec, *self.options, "-n", ranks, *self.bound(cores)]


def mpich(word, where, env=None):
    """The MPICH that is installed there."""
    return Mpi(word, where / "bin/mpicc", where / "bin/mpiexec", env)


def dapl(env=None):
    """Ours."""
    return mpich("dapl", prefix(), env)


def across(mpi, agent, interface, hosts):
    """How the command of a job begins that has one rank on each of these hosts, on which the program `agent` runs
    commands; MPIs reach each other by this interface."""
    places = ",".join(f"{host}:1" for host in hosts)
    if mpi.word.startswith("openmpi"):
        # by its name: called with a path it sends commands that only a shell takes
        return [pathlib.Path(mpi.mpiexec).name, "--mca", "plm_rsh_agent", agent, "--mca", "btl_tcp_if_include",
                interface, "--mca", "oob_tcp_if_include", interface, *mpi.options, "--host", places, "-n", len(hosts),
                "--bind-to", "none"]
    return [mpi.mpiexec, "-launcher", "ssh", "-launcher-exec", agent, "-iface", interface, "-hosts", places, "-n",
            len(hosts)]


ARCH = sysconfig.get_config_var("MULTIARCH")
PEERS = BUILD.parent / "peers"
DEBIAN = {                               # title: suffix of its commands, their package; its library and headers
    "Debian's MPICH": ("mpich", "mpich", "libmpich.so.12", f"usr/include/{ARCH}/mpich", "libmpich-dev"),
    "Debian's Open MPI": ("openmpi", "openmpi-bin", "libmpi.so.40", f"usr/lib/{ARCH}/openmpi/include",
                          "libopenmpi-dev"),
}


def headers_of(package, folder):
    """Where the headers of this package are: installed, or unpacked in build/peers, where they are put when they
    are nowhere; None when that fails."""
    places = [pathlib.Path("/") / folder, PEERS / folder]
    if not any((p / "mpi.h").exists() for p in places):
        say(f"headers of {package}, into build/peers")
        PEERS.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "-q", "download", package], cwd=PEERS, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        for archive in PEERS.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg", "-x", archive, PEERS])
    return next((p for p in places if (p / "mpi.h").exists()), None)


def compiler_of(suffix, headers, library):
    """A command that compiles with these headers: Debian's own finds none without the package of them."""
    mpicc = PEERS / f"mpicc.{suffix}"
    PEERS.mkdir(parents=True, exist_ok=True)
    mpicc.write_text(f'#!/bin/sh\nexec cc -I{headers} "$@" /usr/lib/{ARCH}/{library}\n')
    mpicc.chmod(0o755)
    return mpicc


def debian():
    """Debian's MPIs, by title: those that are installed. Whoever is root says that he means it."""
    found = {}
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    for title, (suffix, package, library, folder, dev) in DEBIAN.items():
        mpiexec = shutil.which(f"mpiexec.{suffix}")
        headers = mpiexec and headers_of(dev, folder)
        if not headers:
            say(f"without {title}: apt-get install {package} {dev}")
            continue
        bound = bound_by_openmpi if suffix == "openmpi" else bound_by_hydra
        found[title] = Mpi(suffix, compiler_of(suffix, headers, library), mpiexec, env, bound=bound)
    return found


def mpi(work, cores, lines):
    """Builds mpi_perf; measure(test, bytes, count, window, **knobs) -> a function that runs it on two ranks,
    on these cores, on the software provider with a dat.conf of these lines (and not in shared memory,
    unless channels= says so)."""
    conf = pathlib.Path(work) / ("-".join(lines) + ".conf")
    ours = dapl(dat_conf(conf, lines))
    program = ours.compiled("mpi_perf", work)

    def measure(test, size, count, window=16, **knobs):
        return lambda: printed([*ours.start(2, cores), program, test, size, count, window],
                              dict(ours.env, **knobs_env(**knobs)))
    return measure


# -- the machine -------------------------------------------------------------------------------------

def line(cores):
    """Half a round trip of a cache line between two cores, us."""
    return printed([LINE_PERF, "-c", "%d,%d" % cores, "line", 8, 200000])


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

def turn(points, probe, limit, where):
    """Runs all points {key: function} once: {key: value}; None, said, when probe() before or after them was over
    `limit`: the cores were far apart."""
    before = probe()
    values = {}
    for i, (key, f) in enumerate(points.items()):
        if i % 10 == 0:
            say(f"{where}: {i} of {len(points)}")
        values[key] = f()
    after = probe()
    if max(before, after) <= limit:
        return values
    say(f"the cores were far apart ({before:.3f} us before, {after:.3f} after): this is dropped")
    return None


def repeat(points, reps, probe, limit):
    """Runs all points {key: function} in turn, `reps` times, and gives {key: [values]}. A turn during which the
    cores were far apart is made again."""
    values = {key: [] for key in points}
    turns = done = 0
    while done < reps and turns < 3 * reps:
        turns += 1
        got = turn(points, probe, limit, f"turn {done + 1} of {reps}")
        done += got is not None
        keep(values, got)
    if done < reps:
        say(f"only {done} of {reps} turns were good: the machine is too unsteady")
    return values


def keep(values, got):
    """Adds what a turn has measured."""
    for key, value in (got or {}).items():
        if value is not None:
            values.setdefault(key, []).append(value)


def middle(values, key):
    return statistics.median(values[key]) if values.get(key) else None


# -- output ------------------------------------------------------------------------------------------

def cell(x, digits=3):
    return "-" if x is None else f"{x:.{digits}f}" if x < 100 else f"{x:.0f}"


def ratio(a, b):
    return a / b if a and b else None


def target_text(bound, highest):
    return f"{'at most' if highest else 'at least'} {bound}"


def verdict(x, bound, highest):
    if x is None:
        return "not measured"
    return "reached" if (x <= bound if highest else x >= bound) else "not reached"


def targets(rows):
    """The table of what was asked for: rows of (what, bound, highest, figure[, how sure it is]), the figure to be at
    most the bound when `highest`, else at least."""
    return table(["what", "target", "measured", ""],
                 [[what, target_text(bound, highest), " ".join([cell(x, 2), *sure]), verdict(x, bound, highest)]
                  for what, bound, highest, x, *sure in rows])


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]) + "\n"


def by_words(values):
    """{key, a tuple: values} with keys as results have them."""
    return {" ".join(map(str, k)): v for k, v in values.items()}


def save(name, about, values, text):
    """name.json: every number that was measured; name.md: the tables."""
    save_raw(name, {"about": about, "machine": machine(), "values": by_words(values)}, text)


def save_raw(name, raw, text):
    RESULTS.mkdir(parents=True, exist_ok=True)
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
