# SPDX-License-Identifier: MIT
"""Instructions of the calls that send and receive short messages between two ranks of a host, by callgrind and by room:
ch3:dapl beside ch3:nemesis, Debian's MPICH and Debian's Open MPI. The method is in METHOD and in mpi_count.c. verbs.py
counts the same where the messages go through verbs."""
import collections
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

from measure import BUILD, cell, die, middle, ratio, save, say, size_name, table
from shm import OURS, all_mpis

COUNT = 512             # messages of a stage: whole periods of what is done every 16 or 512 rounds
SIZES = (0, 8, 64, 1024)
STAGES = ("found", "posted")
LIMIT_S = 300
# key: what is counted of a message, the stage, the rank
CALLS = {
    "send": ("MPI_Send", "found", 0),
    "isend": ("MPI_Isend, and MPI_Wait after it", "posted", 0),
    "found": ("MPI_Recv that finds its message", "found", 1),
    "posted": ("MPI_Irecv before the message, MPI_Wait after it", "posted", 1),
}
NAMED = re.compile(r"^(ob|cob|fn|cfn)=\((\d+)\)(?: (.*))?$")
COST = re.compile(r"^(?:[+-]?\d+|\*) (\d+)$")

CORE, GLUE, UTIL, SHM, DAPL = "MPICH's core", "src/mpid", "src/util", "src/shm", "src/dapl"
MPI, TRANSPORT, LIBC = "the MPI library", "its channel or UCX", "the C library"
PROVIDER = "libdat2 and provider"
# folder of an object file of MPICH's build: room; all others are MPICH's core
FOLDERS = {
    "ch3:dapl": {"channels/dapl/shm/": SHM, "channels/dapl/util/": UTIL, "channels/dapl/src/": GLUE,
                 "channels/dapl/dapl/": DAPL},
    "ch3:nemesis": {"channels/nemesis/": TRANSPORT},
}
BUILDS = {"ch3:dapl": "mpich-obj", "ch3:nemesis": "nemesis-obj"}
LIBC_OBJECTS = ("libc.so", "ld-linux", "libpthread.so", "libm.so", "vdso")
TRANSPORT_OBJECTS = ("libucp.so", "libuct", "libucs.so", "libucm.so", "mca_btl_", "mca_mtl_")
PROVIDER_OBJECTS = ("libdat2.so", "libdaplverbs.so", "libdaplofa.so", "libdaploscm.so")
# what no MPI is charged with: libevent, and the library that stands in for libibverbs (test/verbs)
UNCOUNTED = ("libevent", "libibverbs.so", "libhv.so")
ORDER = (CORE, MPI, GLUE, UTIL, SHM, DAPL, PROVIDER, TRANSPORT, LIBC)

METHOD = f"""Both ranks run under callgrind, which counts in the calls below only, with all that they call, {COUNT}
messages of each size after as many that are not counted. The ranks take turns by words in memory that is not MPI's.
The receiver calls MPI_Recv, or MPI_Wait for the receive that it has posted before, when the message has been sent, so
no call waits, and a rank that waits for its turn makes no MPI call. The sender polls once after each message,
uncounted. The clock of the C library stands still (the benchmark has its own clock_gettime(), which is not counted),
because what is done every so many microseconds would make a slow machine count more; nor are the events counted that
Open MPI looks for every 10 ms. So the numbers depend on compiler, versions of libraries and the processor's
instruction set, but not on load.

A function counts for the room of its source file, of a library of Debian's for that library; what the compiler
inlines counts for its caller. All implementations run with their defaults, bound to no core."""


# -- rooms -------------------------------------------------------------------------------------------

def rooms_of_functions(title, channel):
    """{function: room} of the libmpich that was built here, by its object files; empty for the others. Where functions
    of two rooms have one name, it is in MPICH's core, or else in that of the channel which is used."""
    build = BUILD.parent / BUILDS.get(title, "none")
    objects = [p for p in build.rglob("*.o") if ".libs" in p.parts]
    if not objects:
        return {}
    out = subprocess.run(["nm", "-A", "--defined-only", *map(str, objects)], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True).stdout
    order = [CORE, channel, *FOLDERS[title].values()]
    found = {}
    for path, _, name in re.findall(r"^(.*):\w+ ([tTwW]) (\S+)$", out, re.M):
        room = next((r for folder, r in FOLDERS[title].items() if folder in path), CORE)
        found[name] = min(room, found.get(name, room), key=order.index)
    return found


def is_of(library, objects):
    return pathlib.Path(library or "?").name.startswith(objects)


def room_of(library, function, functions):
    """Where an instruction belongs; None: to the benchmark itself, or to what is not counted."""
    if is_of(library, ("mpi_count", *UNCOUNTED)):
        return None
    if is_of(library, LIBC_OBJECTS):
        return LIBC
    if is_of(library, TRANSPORT_OBJECTS):
        return TRANSPORT
    if is_of(library, PROVIDER_OBJECTS):
        return PROVIDER
    return functions.get(function.split("'")[0], CORE) if functions else MPI


# -- counting ----------------------------------------------------------------------------------------

Cost = collections.namedtuple("Cost", "library function called callee calls instructions")


def costs(profile):
    """Each Cost in one output file of callgrind: those of a function itself, and of `calls` calls of the function
    `callee` in the library `called`, else None, with all that is below."""
    names, library, function, called, callee, calls = {}, None, None, None, None, 0
    for line in profile.read_text().split("\n"):
        named, cost = NAMED.match(line), COST.match(line)
        if named:
            what, number, name = named.groups()
            name = names.setdefault((what[-2:], number), name)
            library = name if what == "ob" else library
            function = name if what == "fn" else function
            called = {"cob": name, "ob": None, "fn": None}.get(what, called)
            callee = name if what == "cfn" else callee
        elif line.startswith("calls="):
            calls = int(line[6:].split()[0])
        elif cost:
            yield Cost(library, function, (called or library) if callee else None, callee, calls, int(cost[1]))
            called, callee, calls = None, None, 0


def by_room(profile, functions):
    """{room: instructions of a message}. Not counted is what is below the stand-in, and below libevent, by which
    Open MPI looks for events of other kinds every 10 ms of the processor's counter, which does not stand still."""
    rooms = {}
    for library, function, called, _, _, n in costs(profile):
        if called and is_of(library, UNCOUNTED):
            room, n = room_of(called, "", functions), -n
        else:
            room = None if called else room_of(library, function, functions)
        if room:
            rooms[room] = rooms.get(room, 0) + n / COUNT
    return rooms


def profiled(mpi, program, work):
    """Runs the job. Its profiles are rank.R.N in `work`, N from 1 in the order of the stages. The sizes at which
    MPI_Send waits for the receiver; None when the job fails."""
    rank = "OMPI_COMM_WORLD_RANK" if mpi.word.startswith("openmpi") else "PMI_RANK"
    command = ["timeout", "-k", "5", LIMIT_S, *mpi.start(2), "valgrind", "--tool=callgrind",
               "--toggle-collect=count_*", "--dump-after=stage_done", f"--callgrind-out-file={work}/rank.%q{{{rank}}}",
               program, COUNT, f"{work}/turns"]
    p = subprocess.run([str(w) for w in command], env=dict(mpi.env, LD_BIND_NOW="1"), text=True, errors="replace",
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.returncode:
        say("failed:", mpi.word, p.stderr.strip()[-500:])
        return None
    return json.loads(p.stdout)


def counted(mpi, program, functions):
    """{(call, bytes): {room: instructions}} of one run, and the sizes at which MPI_Send waits; None when it fails."""
    with tempfile.TemporaryDirectory() as work:
        waits = profiled(mpi, program, work)
        if waits is None:
            return None
        stages = list(itertools.product(STAGES, SIZES))
        return {(call, size): by_room(pathlib.Path(work) / f"rank.{rank}.{stages.index((stage, size)) + 1}", functions)
                for call, (_, stage, rank) in CALLS.items() for size in SIZES}, waits


def add(v, title, got):
    if got is None:
        return
    calls, waits = got
    v[title, "MPI_Send waits"] = [waits]
    for (call, size), rooms in calls.items():
        v.setdefault((title, call, size, "all"), []).append(sum(rooms.values()))
        for room, n in rooms.items():
            v.setdefault((title, call, size, room), []).append(n)


# -- what comes out ----------------------------------------------------------------------------------

def total_rows(v, titles):
    for call, (name, _, _) in CALLS.items():
        for size in SIZES:
            own, *others = (middle(v, (t, call, size, "all")) for t in titles)
            best = min((x for x in others if x), default=None)
            marks = ["*" if call == "send" and size in v.get((t, "MPI_Send waits"), [[]])[0] else "" for t in titles]
            core = middle(v, (titles[0], call, size, CORE))
            yield [name, size_name(size)] + [cell(x) + mark for x, mark in zip((own, *others), marks)] \
                + [cell(ratio(own, best), 2), cell(ratio(core, best), 2)]


def room_table(v, title):
    rooms = [r for r in ORDER if any(key[0] == title and key[-1] == r for key in v)]
    rows = [[name, size_name(size)] + [cell(middle(v, (title, call, size, r)), 0) for r in ["all", *rooms]]
            for call, (name, _, _) in CALLS.items() for size in SIZES]
    return f"## {title}\n\n" + table(["call", "bytes", "all", *rooms], rows) + "\n"


def text_of(v, titles, turns):
    spread = {t: max((max(n) - min(n) for key, n in v.items() if key[0] == t and key[-1] == "all"), default=None)
              for t in titles}
    return f"""# Instructions of a short message

`benchmarks/run instructions`: medians of {turns} runs.

{METHOD}

## All

{table(["call", "bytes", *titles, f"{OURS} / best other", f"{CORE} alone / best other"], total_rows(v, titles))}
The last column is what {OURS} would be if its channel and the C library took no instruction: {CORE} is the code of CH3
and above.

\\* MPI_Send does not end before the receiver has polled: MPI_Isend, and MPI_Wait when it has.

The largest difference between two of the {turns} runs, instructions of a call:
{", ".join(f"{t} {cell(n)}" for t, n in spread.items())}.

{"".join(room_table(v, t) for t in titles)}"""


def measure(v, mpis, turns, channel=SHM):
    """What these MPIs, by title, need for the calls, so many times; channel: that of ours which is used."""
    if not shutil.which("valgrind"):
        die("valgrind is not installed (apt-get install valgrind)")
    with tempfile.TemporaryDirectory() as work:
        programs = {t: mpi.compiled("mpi_count", work, "-rdynamic") for t, mpi in mpis.items()}
        functions = {t: rooms_of_functions(t, channel) for t in mpis}
        for n in range(1, turns + 1):
            for title, mpi in mpis.items():
                say(f"run {n} of {turns}, {title}")
                add(v, title, counted(mpi, programs[title], functions[title]))


def run(turns):
    mpis = all_mpis()
    v = {}
    measure(v, mpis, turns)
    save("instructions", "instructions of a call; key: MPI, call, bytes, room", v, text_of(v, list(mpis), turns))
