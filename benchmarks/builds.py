# SPDX-License-Identifier: MIT
"""How MPICH is compiled: the files that a message passes through compiled once more with other flags, or with a profile
(tools/profile.sh), each alone, for ch3:dapl and for MPICH's ch3:nemesis; instructions of a call by callgrind, and times
of two ranks in shared memory in alternation."""
import copy
import os
import pathlib
import shutil
import subprocess
import tempfile

from instructions import CALLS, counted
from measure import BUILD, TOP, cell, dapl, die, keep, middle, near_cores, ratio, save, say, size_name, table
from shm import OURS, Programs, apart, nemesis

FLAGS = {                                # of the compiler, beside those of a build as it is
    "as it is": None,
    "-fvisibility=hidden": "-fvisibility=hidden",
    "-fno-semantic-interposition": "-fno-semantic-interposition",
    "-Wl,-Bsymbolic-functions": "-Wl,-Bsymbolic-functions",
    "-fno-plt": "-fno-plt",
    "-flto": "-flto=auto",
    "profile": "-fno-lto",
    "profile and -flto": "-flto=auto",
}
PROFILED = [way for way in FLAGS if way.startswith("profile")]
NEMESIS = "ch3:nemesis"
DEVICES = {OURS: ("mpich-obj", dapl, list(FLAGS)), NEMESIS: ("nemesis-obj", nemesis, ["as it is", PROFILED[-1]])}
TIMED = ("as it is", "-flto", *PROFILED)
POINTS = [("lat", size) for size in (8, 64, 1024, 4096, 65536)] + [("rate", 8), ("bw", 65536), ("bw", 1 << 20)]
UNITS = {"lat": "us", "rate": "millions per second", "bw": "MB/s"}
COUNTED_SIZES = (8, 1024)


def steps(*command):
    """Runs a function of tools/profile.sh."""
    script = 'set -eu; top=$1; . "$top/tools/steps.sh"; . "$top/tools/profile.sh"; shift; "$@"'
    if subprocess.run(["bash", "-c", script, "bash", TOP, *map(str, command)]).returncode:
        die("not built:", *map(str, command))


def compiled(build, way, mpi, perf):
    """The build tree of one way, a copy in build/builds: made anew if what it is a copy of has been built since."""
    tree = BUILD.parent / "builds" / f"{mpi.word}-{way.replace(' ', '-').replace(',', '')}"
    library, done = build / "lib/.libs/libmpich.so", tree / ".done"
    if done.exists() and done.stat().st_mtime > library.stat().st_mtime:
        return tree
    shutil.rmtree(tree, ignore_errors=True)
    tree.parent.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", build, tree], check=True)
    if way in PROFILED:
        steps("compile_with_profile", tree, mpi.mpiexec, perf, FLAGS[way])
    elif FLAGS[way]:
        steps("step", tree.name, "compile_again", tree, FLAGS[way])
    done.touch()
    return tree


def builds(work):
    """{(device, way): its MPI}, all of them built."""
    found = {}
    for device, (folder, get, ways) in DEVICES.items():
        plain = get()
        if (BUILD.parent / folder / ".profiled").exists():
            die(f"build/{folder} was compiled with a profile: rm -r it, and ./quickstart makes it as it is")
        perf = plain.compiled("mpi_perf", work)
        for way in ways:
            say(f"{device}, {way}")
            mpi = copy.copy(plain)
            mpi.env = dict(plain.env, LD_LIBRARY_PATH=str(compiled(BUILD.parent / folder, way, plain, perf)
                                                          / "lib/.libs"))
            found[device, way] = mpi
    return found


def counts(mpis, work):
    """{(device, way, call, bytes): [instructions]}"""
    programs = {device: mpis[device, "as it is"].compiled("mpi_count", work, "-rdynamic") for device in DEVICES}
    v = {}
    for (device, way), mpi in mpis.items():
        say(f"instructions: {device}, {way}")
        got = counted(mpi, programs[device], {})
        for (call, size), rooms in (got[0] if got else {}).items():
            keep(v, {(device, way, call, size): sum(rooms.values())})
    return v


def times(mpis, work, turns):
    """{(device, way, test, bytes): [medians of the slices of a turn, with near cores]}"""
    programs = {key: Programs(mpi, work) for key, mpi in mpis.items() if key[1] in TIMED}
    slices = {}
    for turn in range(1, turns + 1):
        for test, size in POINTS:
            say(f"turn {turn} of {turns}, {test} {size_name(size)}")
            cores, _ = near_cores()
            for key, program in programs.items():
                slices.setdefault((*key, test, size), []).append(program.between_two(test, size, cores))
    return apart(slices).get("near", {})


def count_text(v):
    rows = [[device, way, *(cell(middle(v, (device, way, call, size)), 0) for size in COUNTED_SIZES for call in CALLS)]
            for device, (_, _, ways) in DEVICES.items() for way in ways]
    return table(["", "", *(f"{CALLS[call][0]}, {size_name(size)}" for size in COUNTED_SIZES for call in CALLS)], rows)


def time_text(v):
    keys = [(device, way) for device, (_, _, ways) in DEVICES.items() for way in ways if way in TIMED]
    rows = []
    for test, size in POINTS:
        plain = middle(v, (OURS, "as it is", test, size))
        cells = []
        for key in keys:
            x = middle(v, (*key, test, size))
            cells.append(cell(x) if x is None or key == keys[0] else f"{cell(x)} ({cell(ratio(x, plain), 2)})")
        rows.append([f"{test} {size_name(size)}, {UNITS[test]}", *cells])
    return table(["", *(f"{device}, {way}" for device, way in keys)], rows)


def text_of(v, turns):
    line = middle(v, ("line",))
    return f"""# How MPICH is compiled

`benchmarks/run builds`: --enable-fast=O3,ndebug, and on top of it other flags for the files that a message passes
through (tools/profile.sh names their folders), each alone. Instructions of a call as in instructions.md. Times of two
ranks in shared memory on near cores as in shm.md, medians of {turns} turns in which the builds alternate; in
parentheses, to ch3:dapl as it is. A cache line took {cell(line)} us one way. Every number is in builds.json.

{count_text(v)}
{time_text(v)}"""


def run(turns):
    os.environ["DAT_OVERRIDE"] = str(pathlib.Path(dapl().mpiexec).parents[1] / "etc/dat.conf")
    with tempfile.TemporaryDirectory() as work:
        mpis = builds(work)
        v = {**counts(mpis, work), **times(mpis, work, turns)}
    save("builds", "instructions of a call; latency us, rate in millions per second, bandwidth MB/s; key: device, how "
         "it is compiled, call or test, bytes", v, text_of(v, turns))
